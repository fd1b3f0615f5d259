//! Questions that two must say yes to, and who may say it when.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bailiwick_authority::act_covers;
use bailiwick_gate::desk::{Answer, Approver, Asked, Closed, DeskFault, Known, Offer, Scope, Terms};
use bailiwick_gate::{Answer as Heard, Call, GateKind, PROTOCOL, decode, encode};
use bailiwick_mediator::{Reply, Session};
use bailiwick_model::{Answered, Code, Event, Request};

use crate::house::{House, Mood, TASK, request, spec};
use crate::{rules, start};

fn house(oversight: &str) -> House {
    let mut spec = spec(rules(oversight));
    spec.approver_present = true;
    spec.patience = 3_600_000;
    House::new(spec)
}

/// A gate's channel without its socket.
struct Gate {
    session: Session,
    reply: Reply,
    heard: Receiver<Heard>,
}

impl Gate {
    fn new(house: &House) -> Self {
        let (tell, heard): (Sender<Heard>, _) = channel();
        let tell = std::sync::Mutex::new(tell);
        let reply: Reply = Arc::new(move |frame| {
            let _ = tell.lock().unwrap().send(decode(&frame[4..]).unwrap());
        });
        let mut gate = Self {
            session: Session::new(house.mediator.clone(), TASK),
            reply,
            heard,
        };
        gate.say(&Call::Hello {
            protocol: PROTOCOL,
            build: "test".into(),
            gate: GateKind::Files,
        });
        assert!(matches!(gate.hears(), Heard::Hello { .. }));
        gate
    }

    fn say(&mut self, call: &Call) {
        self.session.receive(&encode(call).unwrap()[4..], &self.reply).unwrap();
    }

    fn hears(&self) -> Heard {
        self.heard.recv_timeout(Duration::from_secs(5)).expect("an answer")
    }

    fn asks(&mut self, house: &House, request: &Request) -> Asked {
        self.say(&Call::Decide {
            call: 1,
            request: Box::new(request.clone()),
            patient: true,
        });
        let Heard::Question { question, .. } = self.hears() else {
            panic!("a question");
        };
        for _ in 0..5000 {
            if let Some(asked) = house.mediator.asked().into_iter().find(|one| one.id == question.id) {
                return asked;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the question does not wait");
    }

    fn is_allowed(&self) -> bool {
        matches!(self.hears(), Heard::Allow { .. })
    }

    fn is_denied(&self) -> Code {
        match self.hears() {
            Heard::Deny { refusal, .. } => refusal.code,
            other => panic!("denied, not {other:?}"),
        }
    }

    fn hears_nothing(&self) -> bool {
        self.heard.try_recv().is_err()
    }
}

fn who(name: &str) -> Approver {
    Approver {
        name: name.into(),
        by: Known::User,
    }
}

fn says(house: &House, asked: &Asked, answer: &Answer, name: &str) -> Result<Closed, DeskFault> {
    house.mediator.answer(asked.id, answer, &who(name))
}

fn yes(house: &House, asked: &Asked, name: &str) -> Result<Closed, DeskFault> {
    says(house, asked, &Answer::once(asked).unwrap(), name)
}

fn refused(result: Result<Closed, DeskFault>) -> String {
    match result {
        Err(DeskFault::Refused(why)) => why,
        other => panic!("refused, not {other:?}"),
    }
}

const FOUR: &str = "[oversight]\nfour_eyes = [\"run pay\"]\n";

#[test]
fn p8_two_different_people_of_whom_none_asks_must_say_yes() {
    let house = house(FOUR);
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &request("run pay"));
    assert!(
        asked
            .because
            .iter()
            .any(|line| line.contains("needs the yes of two people")),
        "{:?}",
        asked.because
    );
    // The asker is none of the two, and neither is a program.
    assert!(refused(yes(&house, &asked, "dana")).contains("the one whose task asks"));
    let program = Approver {
        name: "auditor".into(),
        by: Known::Program,
    };
    let told = refused(
        house
            .mediator
            .answer(asked.id, &Answer::once(&asked).unwrap(), &program),
    );
    assert!(told.contains("a program is none"), "{told}");
    let first = yes(&house, &asked, "ida").unwrap();
    assert_eq!((first.answer, first.grant), (None, None));
    assert!(gate.hears_nothing());
    // It waits on, and shows the first yes.
    let again = house.mediator.asked().remove(0);
    assert_eq!((again.id, again.seconded.clone()), (asked.id, vec!["ida".to_owned()]));
    assert!(
        again
            .because
            .iter()
            .any(|line| line.starts_with("ida said yes to: may run pay, once, in this task")),
        "{:?}",
        again.because
    );
    assert!(refused(yes(&house, &again, "ida")).contains("has said yes already"));
    // The second must say yes to the same.
    let wider = Answer::yes(
        &again,
        1,
        Terms {
            count: Some(9),
            until: None,
            scope: Scope::Context,
        },
    );
    assert!(refused(says(&house, &again, &wider.unwrap(), "theo")).contains("say yes to the same"));
    let second = yes(&house, &again, "theo").unwrap();
    assert_eq!(second.answer, Some(Answered::Yes));
    assert_eq!(second.grant.unwrap().by, ["ida", "theo"]);
    assert!(gate.is_allowed());
    // Once: the next one needs two again.
    gate.asks(&house, &request("run pay"));
    let said: Vec<_> = house
        .ledger
        .all()
        .into_iter()
        .filter_map(|(record, _)| match record.event {
            Event::Answered { answer, principal, .. } => Some((answer, principal.unwrap_or_default())),
            _ => None,
        })
        .collect();
    assert_eq!(
        said,
        [(Answered::Seconded, "ida".into()), (Answered::Yes, "theo".into())]
    );
}

#[test]
fn p8_a_no_of_anybody_ends_it_and_a_first_yes_holds_for_no_other_question() {
    let house = house(FOUR);
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &request("run pay"));
    yes(&house, &asked, "ida").unwrap();
    says(&house, &asked, &Answer::No { word: None }, "theo").unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
    assert!(matches!(yes(&house, &asked, "theo"), Err(DeskFault::Unknown(_))));
    let again = gate.asks(&house, &request("run pay"));
    assert!(again.seconded.is_empty());
    assert_eq!(yes(&house, &again, "theo").unwrap().answer, None);
    assert!(gate.hears_nothing());
}

#[test]
fn p8_a_yes_of_one_before_does_not_answer_what_needs_two() {
    // A grant of one person for all of it, given against an ask of a rule, is none against four eyes.
    let house = house("[commands]\nask = [\"git push\"]\n[oversight]\nfour_eyes = [\"run git push origin main\"]\n");
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &start("git push origin fix"));
    let covers = |offer: &Offer| {
        offer
            .acts
            .iter()
            .any(|act| act_covers(act, &start("git push origin main")))
    };
    let wide = asked.offers.iter().position(covers);
    let wide = wide.unwrap_or_else(|| panic!("{:?}", asked.offers));
    let for_good = Terms {
        count: None,
        until: None,
        scope: Scope::Context,
    };
    let all = Answer::yes(&asked, wide, for_good).unwrap();
    says(&house, &asked, &all, "ida").unwrap();
    assert!(gate.is_allowed());
    let asked = gate.asks(&house, &start("git push origin main"));
    assert_eq!(asked.because.len(), 2, "{:?}", asked.because);
}

#[test]
fn p10_a_first_yes_that_cannot_be_written_down_is_none() {
    let house = house(FOUR);
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &request("run pay"));
    house.ledger.set(Mood::LosesDurable);
    assert!(matches!(yes(&house, &asked, "ida"), Err(DeskFault::Fault(_))));
    house.ledger.set(Mood::Works);
    assert!(house.mediator.asked().remove(0).seconded.is_empty());
    assert_eq!(yes(&house, &asked, "theo").unwrap().answer, None);
}

#[test]
fn p8_of_two_yeses_at_the_same_moment_both_count_once() {
    for _ in 0..8 {
        let house = house(FOUR);
        let mut gate = Gate::new(&house);
        let asked = gate.asks(&house, &request("run pay"));
        let all: Vec<_> = std::thread::scope(|scope| {
            let one = |name: &'static str| {
                let (house, asked) = (&house, &asked);
                scope.spawn(move || yes(house, asked, name))
            };
            let both: Vec<_> = ["ida", "ida", "theo"].map(one).into_iter().collect();
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let done = |want: Option<Answered>| all.iter().flatten().filter(|closed| closed.answer == want).count();
        assert_eq!((done(None), done(Some(Answered::Yes))), (1, 1), "{all:?}");
        assert!(gate.is_allowed());
    }
}

#[test]
fn p2_roles_and_escalation_hold_for_a_yes_and_anybody_may_say_no() {
    let house = house(
        "[commands]\nask = [\"git push\", \"rm\"]\n[oversight]\napprovers = [\"ida\", { name = \"theo\", may = [\"run git push\"] }]\n\
         escalate = { after = \"5 min\", to = [\"rui\"] }\n",
    );
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &request("run rm x"));
    assert!(
        asked
            .because
            .iter()
            .any(|line| line == "ida, rui (after 300 s) may say yes"),
        "{:?}",
        asked.because
    );
    for name in ["dana", "theo", "sam", "Ida", ""] {
        assert!(
            refused(yes(&house, &asked, name)).contains("may not say yes to this"),
            "{name}"
        );
    }
    assert!(refused(yes(&house, &asked, "rui")).contains("once it has waited for 300 s"));
    house.clock.0.fetch_add(300_000, Ordering::SeqCst);
    yes(&house, &asked, "rui").unwrap();
    assert!(gate.is_allowed());
    let asked = gate.asks(&house, &start("git push origin main"));
    yes(&house, &asked, "theo").unwrap();
    assert!(gate.is_allowed());
    // A no takes no role.
    let asked = gate.asks(&house, &request("run rm x"));
    says(
        &house,
        &asked,
        &Answer::No {
            word: Some("not today".into()),
        },
        "dana",
    )
    .unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
}

#[test]
fn p2_whose_role_is_one_act_says_yes_to_nothing_wider() {
    let house = house(
        "[commands]\nask = [\"git push\"]\n[oversight]\napprovers = [{ name = \"theo\", may = [\"run git push origin fix\"] }]\n",
    );
    let mut gate = Gate::new(&house);
    let asked = gate.asks(&house, &start("git push origin fix"));
    let wide = |offer: &Offer| {
        offer
            .acts
            .iter()
            .any(|wide| act_covers(wide, &start("git push origin main")))
    };
    let wide = asked
        .offers
        .iter()
        .position(wide)
        .unwrap_or_else(|| panic!("{:?}", asked.offers));
    let all = Answer::yes(&asked, wide, Terms::default()).unwrap();
    assert!(refused(says(&house, &asked, &all, "theo")).contains("not to so much"));
    yes(&house, &asked, "theo").unwrap();
    assert!(gate.is_allowed());
    let asked = gate.asks(&house, &start("git push origin main"));
    assert!(refused(yes(&house, &asked, "theo")).contains("nobody may say yes to this"));
}
