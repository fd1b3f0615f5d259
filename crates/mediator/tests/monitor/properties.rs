//! What holds for every request and every state.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::house::{Flowing, House, Mood, Saying, TASK, act, dry, says, settlement, spec};
use bailiwick_authority::Authority;
use bailiwick_gate::{Mediator as _, Outcome};
use bailiwick_mediator::{Grant, Purpose, Rules, Snapshot, TaskSpec, Used, decide};
use bailiwick_model::GrantId;
use bailiwick_model::{
    Capability, Code, Constraints, Decision, Event, Label, Millis, Obligation, Request, Tag, TaskId, Verdict,
};
use proptest::prelude::*;

fn requests() -> impl Strategy<Value = Request> {
    let text = prop_oneof![
        "(read|write|create|delete) (/(a|b)){1,3}(/\\*\\*)?",
        "(GET|POST) http://(h|g)\\.test(/(a|b)){0,2}",
        "tunnel (h\\.test|1\\.1\\.1\\.1)(:22)?",
        "resolve (h|g)\\.test",
        "run (ls|git push)",
    ];
    let address = proptest::option::of(prop_oneof![Just([1, 1, 1, 1]), Just([10, 0, 0, 1])]);
    (text, address, labels(), any::<bool>()).prop_map(|(text, address, label, stray)| {
        let mut request = dry(&text);
        request.label = label;
        if stray && text.len() % 7 == 0 {
            request.task = TaskId([0xbb; 8]);
        }
        match address {
            Some(address) => request.dialling(address.into()),
            None => request,
        }
    })
}

fn labels() -> impl Strategy<Value = Label> {
    let tags = || proptest::collection::btree_set("[a-b]", 0..2);
    (tags(), tags()).prop_map(|(confidential, influence)| {
        let read =
            |texts: std::collections::BTreeSet<String>| texts.iter().filter_map(|text| Tag::parse(text)).collect();
        Label {
            confidential: read(confidential),
            influence: read(influence),
        }
    })
}

fn capabilities() -> impl Strategy<Value = Capability> {
    let acts = prop::sample::subsequence(
        vec![
            "* /a",
            "write /",
            "* http://h.test",
            "tunnel h.test",
            "tunnel **:*",
            "read /",
            "run **",
        ],
        0..5,
    );
    let limit = || proptest::option::of(0u64..4);
    (acts, limit(), limit()).prop_map(|(acts, count, expires)| Capability {
        acts: acts.into_iter().map(act).collect(),
        constraints: Constraints {
            count,
            expires: expires.map(Millis),
            ..Constraints::default()
        },
    })
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![3 => Just(Verdict::Allow), 3 => Just(Verdict::Ask), 1 => Just(Verdict::Deny)]
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let authority = prop_oneof![
        2 => Just(Authority::whole()),
        1 => proptest::collection::vec(capabilities(), 0..3).prop_map(Authority::of)
    ];
    let grants = proptest::collection::vec((capabilities(), 0u32..3), 0..3);
    let clearances = proptest::collection::vec(
        ("[a-b]", prop::sample::select(vec!["* http://h.test", "write /"])),
        0..3,
    );
    (
        (
            (verdicts(), 0u32..3, any::<bool>()),
            proptest::collection::btree_set("[a-b]", 0..2),
            authority,
            grants,
            clearances,
        ),
        (labels(), 0u64..5, any::<bool>(), any::<bool>(), 0u64..3),
    )
        .prop_map(
            |(((verdict, line, trusts), asks, authority, grants, clearances), (label, now, dry, present, used))| {
                let against = |(capability, line)| Grant::of(GrantId([1; 6]), capability, says(Verdict::Ask, line));
                let mut policy = Flowing::over(Saying::new(move |_| says(verdict, line)));
                for (tag, to) in clearances {
                    policy
                        .may_reach
                        .entry(Tag::parse(&tag).unwrap())
                        .or_default()
                        .push(act(to));
                }
                policy.asks = asks.iter().filter_map(|text| Tag::parse(text)).collect();
                policy.trusts = trusts;
                let policy = Arc::new(policy);
                Snapshot {
                    authority: Arc::new(authority),
                    label: Arc::new(label),
                    grants: grants.into_iter().map(against).collect(),
                    used: Arc::new(Used {
                        capabilities: vec![used; 3],
                        grants: vec![used; 3],
                        budgets: Vec::new(),
                    }),
                    approver_present: present,
                    ..Snapshot::of_rules(
                        TASK,
                        policy,
                        Millis(now),
                        if dry { Purpose::Question } else { Purpose::Effect },
                    )
                }
            },
        )
}

/// Rules, and another one beside them.
struct Stricter(Arc<dyn Rules>, Verdict);

impl Rules for Stricter {
    fn evaluate(&self, request: &Request) -> Decision {
        self.0.evaluate(request).and(says(self.1, 7))
    }
    fn tree_candidates(&self) -> Vec<(bailiwick_model::Verb, bailiwick_model::AbsPath)> {
        self.0.tree_candidates()
    }
    fn digest(&self) -> bailiwick_model::Digest {
        self.0.digest()
    }
    fn cleared_for(&self, request: &Request) -> std::collections::BTreeSet<Tag> {
        self.0.cleared_for(request)
    }
    fn otherwise(&self, tag: &Tag) -> (Verdict, Option<bailiwick_model::RuleRef>) {
        self.0.otherwise(tag)
    }
    fn trusted_arguments(&self, request: &Request) -> Vec<(String, bailiwick_model::RuleRef)> {
        self.0.trusted_arguments(request)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn p14_the_same_inputs_give_the_same_decision(asked in requests(), state in snapshots()) {
        prop_assert_eq!(decide(&asked, &state), decide(&asked.clone(), &state.clone()));
    }

    #[test]
    fn p4_a_deny_of_the_rules_stays_one_whatever_else_holds(asked in requests(), state in snapshots()) {
        let denying = Snapshot { policy: Saying::new(|_| says(Verdict::Deny, 9)), ..state };
        let decision = decide(&asked, &denying);
        prop_assert_eq!(decision.verdict, Verdict::Deny);
        prop_assert!(decision.obligations.is_empty());
    }

    #[test]
    fn p8_grants_discharge_the_question_they_answer_and_never_a_deny(asked in requests(), state in snapshots()) {
        let bare = Snapshot { grants: Arc::default(), approver_present: true, ..state.clone() };
        let (with, without) = (decide(&asked, &Snapshot { approver_present: true, ..state }), decide(&asked, &bare));
        match without.verdict {
            Verdict::Ask => prop_assert!(with == without || with.code == Code::AllowedByGrant),
            Verdict::Allow | Verdict::Deny => prop_assert_eq!(with, without),
        }
    }

    #[test]
    fn p4_stricter_states_never_allow_more(asked in requests(), state in snapshots(), more in labels(), stricter in verdicts()) {
        let before = decide(&asked, &state).verdict;
        let rules = state.policy.clone();
        let tightened = [
            Snapshot { authority: Arc::new(Authority::of(Vec::new())), ..state.clone() },
            Snapshot { label: Arc::new(bailiwick_flow::join(&state.label, &more)), ..state.clone() },
            Snapshot { approver_present: false, ..state.clone() },
            Snapshot { purpose: Purpose::Effect, ..state.clone() },
            Snapshot { policy: Arc::new(Stricter(rules, stricter)), ..state.clone() },
        ];
        for state in tightened {
            prop_assert!(decide(&asked, &state).verdict >= before);
        }
    }

    #[test]
    fn p1_an_allow_to_connect_names_the_address(asked in requests(), state in snapshots()) {
        let decision = decide(&asked, &state);
        let connects = matches!(asked.resource, bailiwick_model::Resource::Url(_) | bailiwick_model::Resource::Endpoint { .. });
        if decision.verdict == Verdict::Allow && connects && state.purpose == Purpose::Effect {
            let address = asked.address().unwrap();
            let duty = Obligation::DialAddress { address };
            prop_assert!(decision.obligations.contains(&duty));
        }
    }

    #[test]
    fn p3_nothing_without_a_capability(asked in requests(), state in snapshots()) {
        let bare = Snapshot { authority: Arc::new(Authority::of(Vec::new())), ..state };
        prop_assert_eq!(decide(&asked, &bare).verdict, Verdict::Deny);
    }
}

#[derive(Debug, Clone)]
enum Move {
    Ask(bool),
    Settle(bool),
    Mood(Mood),
    Pass(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let mood = prop::sample::select(vec![
        Mood::Works,
        Mood::RefusesRecords,
        Mood::LosesDurable,
        Mood::Unhealthy,
    ]);
    let one = prop_oneof![
        4 => any::<bool>().prop_map(Move::Ask),
        3 => any::<bool>().prop_map(Move::Settle),
        2 => mood.prop_map(Move::Mood),
        1 => (0u64..2).prop_map(|days| Move::Pass(days * 100_000_000)),
    ];
    proptest::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A counted grant, a log that fails now and then, effects that are done, given up or abandoned: at no time are
    /// more effects possible than the count, and nothing is allowed that is not on record.
    #[test]
    fn p10_p3_counts_and_records_hold_whatever_happens(moves in moves()) {
        let capability = Capability {
            acts: vec![act("* /a"), act("* http://h.test")],
            constraints: Constraints { count: Some(3), ..Constraints::default() },
        };
        let asks = says(Verdict::Ask, 1);
        let rules = { let asks = asks.clone(); Saying::new(move |_| asks.clone()) };
        let house = House::new(TaskSpec { grants: vec![Grant::of(GrantId([1; 6]), capability, asks)], ..spec(rules) });
        let (mut mood, mut open, mut done, mut lost) = (Mood::Works, Vec::new(), 0u64, 0u64);
        for step in moves {
            match step {
                Move::Mood(new) => { mood = new; house.ledger.set(new); }
                Move::Pass(time) => {
                    house.clock.0.fetch_add(time, Ordering::SeqCst);
                    if mood == Mood::Works {
                        let swept = house.mediator.sweep(house.now()).unwrap();
                        // Permits lapse in the order in which they were handed out.
                        open.drain(..swept);
                        lost += swept as u64;
                    }
                }
                Move::Ask(post) => {
                    let asked = crate::house::request(if post { "POST http://h.test/" } else { "read /a" });
                    let left = 3 - done - lost - open.len() as u64;
                    match house.mediator.decide(&asked) {
                        Outcome::Allow(permit) => {
                            prop_assert_eq!(mood, Mood::Works, "an answer to a question is durable");
                            prop_assert!(left > 0);
                            let id = permit.terms().decision;
                            let is_recorded = house.ledger.all().iter().any(|(record, _)| matches!(&record.event,
                                Event::Decided { id: own, decision: Decision { verdict: Verdict::Allow, .. }, .. } if *own == id));
                            prop_assert!(is_recorded);
                            open.push(permit);
                        }
                        Outcome::Deny(refusal) => {
                            let want = if mood == Mood::Works { Code::NobodyToAsk } else { Code::LogUnavailable };
                            prop_assert_eq!(refusal.code, want);
                            prop_assert!(mood != Mood::Works || left == 0);
                        }
                        Outcome::Ask(_) => prop_assert!(false, "nobody is there"),
                    }
                }
                Move::Settle(was_done) => {
                    if let Some(permit) = open.pop() {
                        let settled = house.mediator.settle(&settlement(&permit, was_done));
                        prop_assert_eq!(settled.is_ok(), matches!(mood, Mood::Works | Mood::LosesDurable | Mood::Unhealthy));
                        done += u64::from(was_done);
                        prop_assert!(house.mediator.settle(&settlement(&permit, false)).is_err());
                    }
                }
            }
        }
    }
}
