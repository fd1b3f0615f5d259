//! What every gate may rely on, shown in-process and over a socket with the same cases.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::house::{Flowing, House, Mood, SocketGate, TASK, act, dry, plain_rules, request, says, settlement, spec};
use bailiwick_gate::{Mediator, Outcome, Passed, Permit, PermitFault, Settlement, digest_of, encode};
use bailiwick_mediator::{Grant, TaskSpec};
use bailiwick_model::GrantId;
use bailiwick_model::{
    Capability, Code, Constraints, Durability, Event, Label, Nonce, Obligation, Request, Tag, TaskId, Verdict,
};

fn over_both(spec: impl Fn() -> TaskSpec, case: impl Fn(&dyn Mediator, &House)) {
    let house = House::new(spec());
    case(house.mediator.as_ref(), &house);
    let house = House::new(spec());
    let gate = SocketGate::connect(house.mediator.clone(), TASK);
    case(&gate, &house);
}

fn plain() -> TaskSpec {
    spec(plain_rules())
}

fn allowed(outcome: Outcome) -> Permit {
    match outcome {
        Outcome::Allow(permit) => permit,
        other => panic!("allowed, not {other:?}"),
    }
}

fn denied(outcome: Outcome) -> Code {
    match outcome {
        Outcome::Deny(refusal) => refusal.code,
        other => panic!("denied, not {other:?}"),
    }
}

#[test]
fn p1_a_permit_fits_its_request_and_is_settled_once() {
    over_both(plain, |gate, house| {
        let asked = request("read /a");
        let permit = allowed(gate.decide(&asked));
        assert_eq!(permit.terms().digest, digest_of(&asked));
        assert_eq!(permit.terms().task, TASK);
        assert_eq!(permit.terms().deadline.0, house.now().0 + 30_000);
        let (first, second) = (settlement(&permit, true), settlement(&permit, true));
        let spent = permit.spend(&asked, house.now()).unwrap();
        assert_eq!(gate.settle(&first), Ok(()));
        let again = gate.settle(&second).unwrap_err();
        assert_eq!(again.code, Code::PermitRefused);
        let (event, _) = house.ledger.last();
        assert!(matches!(
            event,
            Event::Refused {
                code: Code::PermitRefused,
                ..
            }
        ));
        let settled = house
            .ledger
            .all()
            .into_iter()
            .find_map(|(record, _)| match record.event {
                Event::Settled { id, done, .. } => Some((id, done)),
                _ => None,
            });
        assert_eq!(settled, Some((spent.decision(), true)));
    });
}

#[test]
fn p1_a_permit_lapses() {
    over_both(plain, |gate, house| {
        let asked = request("read /a");
        let permit = allowed(gate.decide(&asked));
        house.clock.0.fetch_add(30_000, Ordering::SeqCst);
        let given_up = settlement(&permit, false);
        assert_eq!(permit.spend(&asked, house.now()).unwrap_err(), PermitFault::Lapsed);
        assert_eq!(gate.settle(&given_up), Ok(()), "a lapsed permit can still be given up");
    });
}

#[test]
fn p10_the_record_stands_before_the_answer() {
    over_both(plain, |gate, house| {
        for (text, want) in [
            ("read /a", Durability::Ordered),
            ("GET http://h.test/", Durability::Ordered),
            ("POST http://h.test/", Durability::Durable),
            ("tunnel h.test", Durability::Ordered),
        ] {
            let asked = request(text);
            let permit = allowed(gate.decide(&asked));
            let (event, durability) = house.ledger.last();
            assert_eq!(durability, want, "{text}");
            let Event::Decided {
                id,
                request,
                digest,
                decision,
            } = event
            else {
                panic!("a decision");
            };
            assert_eq!((id, digest), (permit.terms().decision, digest_of(&asked)));
            assert_eq!((request, decision.verdict), (asked, Verdict::Allow));
            gate.settle(&settlement(&permit, true)).unwrap();
        }
    });
}

#[test]
fn p4_a_deny_and_a_question_with_nobody_to_ask() {
    over_both(plain, |gate, house| {
        assert_eq!(denied(gate.decide(&request("delete /a"))), Code::NoRule);
        assert_eq!(house.ledger.last().1, Durability::Ordered);
        assert_eq!(denied(gate.decide(&request("write /a"))), Code::NobodyToAsk);
        let (event, durability) = house.ledger.last();
        assert_eq!(durability, Durability::Durable);
        let Event::Decided { decision, .. } = event else {
            panic!("a decision");
        };
        assert_eq!((decision.verdict, decision.code), (Verdict::Deny, Code::NobodyToAsk));
        assert!(
            decision.reasons.iter().any(|reason| reason.rule.is_some()),
            "the rule that asks stands on record"
        );
    });
}

#[test]
fn p10_a_question_to_someone_is_durable_and_is_no_permit() {
    let watched = || TaskSpec {
        approver_present: true,
        ..plain()
    };
    over_both(watched, |gate, house| {
        assert!(matches!(gate.decide(&request("write /a")), Outcome::Ask(_)));
        assert_eq!(house.ledger.last().1, Durability::Durable);
    });
}

#[test]
fn p4_a_request_that_does_not_say_enough_is_denied() {
    over_both(plain, |gate, _| {
        for (asked, want) in [
            (dry("GET http://h.test/"), Code::MalformedRequest),
            (dry("tunnel h.test"), Code::MalformedRequest),
            (dry("tunnel 1.1.1.1").dialling([8, 8, 8, 8].into()), Code::NameMismatch),
            (dry("read /a").dialling([8, 8, 8, 8].into()), Code::MalformedRequest),
        ] {
            assert_eq!(denied(gate.decide(&asked)), want, "{asked}");
        }
        let mut odd = request("GET http://h.test/");
        odd.arguments
            .insert("more".into(), bailiwick_model::Argument::Flag(true));
        assert_eq!(denied(gate.decide(&odd)), Code::MalformedRequest);
        let mut odd = request("read /a");
        odd.verb = "run".parse().unwrap();
        assert_eq!(denied(gate.decide(&odd)), Code::MalformedRequest);
    });
}

#[test]
fn p5_the_address_that_was_decided_about_is_the_one_to_dial() {
    over_both(plain, |gate, _| {
        let asked = request("tunnel h.test");
        let permit = allowed(gate.decide(&asked));
        let address = asked.address().unwrap();
        assert_eq!(permit.terms().obligations, [Obligation::DialAddress { address }]);
    });
}

#[test]
fn p10_a_log_that_fails_allows_nothing() {
    over_both(plain, |gate, house| {
        for mood in [Mood::RefusesRecords, Mood::Unhealthy] {
            house.ledger.set(mood);
            for text in ["read /a", "POST http://h.test/", "delete /a", "write /a"] {
                assert_eq!(
                    denied(gate.decide(&request(text))),
                    Code::LogUnavailable,
                    "{mood:?} {text}"
                );
            }
        }
        house.ledger.set(Mood::LosesDurable);
        assert_eq!(
            denied(gate.decide(&request("POST http://h.test/"))),
            Code::LogUnavailable
        );
        let permit = allowed(gate.decide(&request("read /a")));
        house.ledger.set(Mood::RefusesRecords);
        assert_eq!(
            gate.settle(&settlement(&permit, true)).unwrap_err().code,
            Code::LogUnavailable
        );
        assert_eq!(gate.refused(TASK, Code::NotTls, "x").code, Code::LogUnavailable);
        house.ledger.set(Mood::Works);
        drop(allowed(gate.decide(&request("POST http://h.test/"))));
    });
}

fn writing_granted(count: Option<u64>) -> TaskSpec {
    let capability = Capability {
        acts: vec![act("write /a")],
        constraints: Constraints {
            count,
            ..Constraints::default()
        },
    };
    TaskSpec {
        grants: vec![Grant::of(GrantId([1; 6]), capability, says(Verdict::Ask, 2))],
        ..plain()
    }
}

#[test]
fn p8_a_grant_is_used_up_and_given_back_only_by_an_effect_that_was_not_done() {
    over_both(
        || writing_granted(Some(1)),
        |gate, house| {
            let first = allowed(gate.decide(&request("write /a/b")));
            let (event, durability) = house.ledger.last();
            assert_eq!(durability, Durability::Durable, "the answer to a question");
            assert!(matches!(event, Event::Decided { decision, .. } if decision.code == Code::AllowedByGrant));
            assert_eq!(denied(gate.decide(&request("write /a/b"))), Code::NobodyToAsk);
            gate.settle(&settlement(&first, false)).unwrap();
            let second = allowed(gate.decide(&request("write /a/b")));
            gate.settle(&settlement(&second, true)).unwrap();
            assert_eq!(denied(gate.decide(&request("write /a/b"))), Code::NobodyToAsk);
            assert_eq!(denied(gate.decide(&request("write /b"))), Code::NobodyToAsk);
        },
    );
}

#[test]
fn p8_a_use_whose_record_was_lost_is_given_back() {
    over_both(
        || writing_granted(Some(1)),
        |gate, house| {
            for mood in [Mood::RefusesRecords, Mood::LosesDurable, Mood::Unhealthy] {
                house.ledger.set(mood);
                assert_eq!(denied(gate.decide(&request("write /a"))), Code::LogUnavailable);
            }
            house.ledger.set(Mood::Works);
            drop(allowed(gate.decide(&request("write /a"))));
        },
    );
}

#[test]
fn p6_what_the_task_has_read_reaches_no_sink_that_is_not_cleared() {
    let cleared = || {
        let mut rules = Flowing::over(plain_rules());
        let to = vec![act("* http://payroll.test")];
        rules.may_reach.insert(Tag::parse("pii").unwrap(), to);
        spec(Arc::new(rules))
    };
    over_both(cleared, |gate, house| {
        drop(allowed(gate.decide(&request("POST http://h.test/"))));
        let pii = Label {
            confidential: Tag::parse("pii").into_iter().collect(),
            ..Label::default()
        };
        let mut carrying = request("POST http://h.test/");
        carrying.label = pii.clone();
        assert_eq!(
            denied(gate.decide(&carrying)),
            Code::FlowRefused,
            "the request's own label"
        );
        house.mediator.raise(TASK, &pii).unwrap();
        for text in ["POST http://h.test/", "GET http://h.test/", "tunnel h.test", "write /a"] {
            assert_eq!(denied(gate.decide(&request(text))), Code::FlowRefused, "{text}");
        }
        drop(allowed(gate.decide(&request("read /a"))));
        drop(allowed(gate.decide(&request("POST http://payroll.test/"))));
    });
}

#[test]
fn p11_a_task_that_has_ended_is_denied_everything() {
    over_both(plain, |gate, house| {
        let open = allowed(gate.decide(&request("read /a")));
        house.mediator.end(TASK, 3).unwrap();
        let events: Vec<Event> = house.ledger.all().into_iter().map(|(record, _)| record.event).collect();
        let [
            ..,
            Event::Settled { done: false, note, .. },
            Event::TaskEnded { status: 3 },
        ] = events.as_slice()
        else {
            panic!("abandoned, then ended: {events:?}");
        };
        assert_eq!(note, "abandoned");
        assert_eq!(denied(gate.decide(&request("read /a"))), Code::UnknownTask);
        assert_eq!(
            gate.settle(&settlement(&open, true)).unwrap_err().code,
            Code::PermitRefused
        );
        assert!(house.mediator.end(TASK, 0).is_err() && house.mediator.started(TASK, Vec::new()).is_err());
    });
}

#[test]
fn p1_abandoned_permits_are_cleared_away_and_stay_used() {
    over_both(
        || writing_granted(Some(1)),
        |gate, house| {
            let lost = allowed(gate.decide(&request("write /a")));
            assert_eq!(house.mediator.sweep(house.now()), Ok(0), "it may still be used");
            house.clock.0.fetch_add(30_000 + 24 * 60 * 60 * 1000, Ordering::SeqCst);
            assert_eq!(house.mediator.sweep(house.now()), Ok(1));
            assert_eq!(house.mediator.sweep(house.now()), Ok(0));
            assert!(matches!(house.ledger.last().0, Event::Settled { done: false, note, .. } if note == "abandoned"));
            assert_eq!(
                gate.settle(&settlement(&lost, false)).unwrap_err().code,
                Code::PermitRefused
            );
            assert_eq!(
                denied(gate.decide(&request("write /a"))),
                Code::NobodyToAsk,
                "its effect may have taken place, so its use is not given back"
            );
        },
    );
}

#[test]
fn p10_what_a_gate_refuses_by_itself_is_on_record_and_long_texts_are_cut() {
    over_both(plain, |gate, house| {
        let refusal = gate.refused(TASK, Code::NameMismatch, &"é".repeat(3000));
        assert_eq!(refusal.code, Code::NameMismatch);
        let Event::Refused { id, what, .. } = house.ledger.last().0 else {
            panic!("a refusal");
        };
        assert_eq!(id, refusal.id);
        assert!(what.len() <= 4096 && what.len() > 4000);
        let permit = allowed(gate.decide(&request("read /a")));
        let long = Settlement {
            note: "é".repeat(3000),
            ..settlement(&permit, true)
        };
        gate.settle(&long).unwrap();
        assert!(matches!(house.ledger.last().0, Event::Settled { note, .. } if note.len() == 1024));
    });
}

#[test]
fn p4_a_channel_serves_its_own_task_and_nothing_malformed() {
    let other = TaskId([0xbb; 8]);
    let stray: Request = Request {
        task: other,
        ..request("read /a")
    };
    let call = bailiwick_gate::Call::Decide {
        call: 9,
        request: Box::new(stray.clone()),
        patient: true,
    };
    let hello = bailiwick_gate::Call::Hello {
        protocol: bailiwick_gate::PROTOCOL,
        build: "again".into(),
        gate: bailiwick_gate::GateKind::Network,
    };
    for bytes in [
        encode(&call).unwrap(),
        encode(&hello).unwrap(),
        b"\0\0\0\x02{}".to_vec(),
        u32::MAX.to_be_bytes().to_vec(),
        [b"\0\0\0\x0d".as_slice(), br#"{"settle":12}"#].concat(),
    ] {
        let house = House::new(plain());
        let gate = SocketGate::connect(house.mediator.clone(), TASK);
        assert!(!gate.survives(&bytes), "{}", String::from_utf8_lossy(&bytes));
    }
    let house = House::new(plain());
    let second = TaskSpec {
        id: Some(other),
        ..plain()
    };
    house.mediator.begin(second).unwrap();
    let gate = SocketGate::connect(house.mediator.clone(), TASK);
    assert_eq!(
        denied(gate.decide(&stray)),
        Code::UnknownTask,
        "also when the other task runs"
    );
    assert!(matches!(
        house.ledger.last().0,
        Event::Refused {
            code: Code::UnknownTask,
            ..
        }
    ));
    assert_eq!(
        denied(gate.decide(&request("read /a"))),
        Code::MediatorUnavailable,
        "the channel is closed"
    );

    let theirs = allowed(house.mediator.decide(&stray));
    let gate = SocketGate::connect(house.mediator.clone(), TASK);
    assert_eq!(
        gate.settle(&settlement(&theirs, true)).unwrap_err().code,
        Code::PermitRefused
    );
    assert_eq!(
        house.mediator.settle(&settlement(&theirs, true)),
        Ok(()),
        "it is still open for its own gate"
    );
}

#[test]
fn p4_a_greeting_comes_first_and_in_the_same_version() {
    let house = House::new(plain());
    let sent: Arc<std::sync::Mutex<Vec<Vec<u8>>>> = Arc::default();
    let reply: bailiwick_mediator::Reply = {
        let sent = sent.clone();
        Arc::new(move |frame| sent.lock().unwrap().push(frame))
    };
    let mut session = bailiwick_mediator::Session::new(house.mediator.clone(), TASK);
    assert!(
        session
            .receive(
                br#"{"refused":{"call":1,"task":"aaaaaaaaaaaaaaaa","code":"fault","what":""}}"#,
                &reply
            )
            .is_err()
    );
    assert!(sent.lock().unwrap().is_empty());
    let old = br#"{"hello":{"protocol":99,"build":"x","gate":"network"}}"#;
    assert!(session.receive(old, &reply).is_err());
    assert_eq!(
        sent.lock().unwrap().len(),
        1,
        "an older gate is told which version it met"
    );
    assert!(
        session
            .receive(
                br#"{"settle":{"call":1,"settlement":{"nonce":"00","done":true,"note":""}}}"#,
                &reply
            )
            .is_err()
    );
}

#[test]
fn p1_a_permit_is_settled_once_under_64_threads() {
    let house = House::new(plain());
    let permit = allowed(house.mediator.decide(&request("read /a")));
    let settled: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| usize::from(house.mediator.settle(&settlement(&permit, true)).is_ok())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(settled, 1);
}

#[test]
fn p3_a_count_holds_under_64_threads() {
    let house = House::new(writing_granted(Some(5)));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| house.mediator.decide(&request("write /a"))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let allowed = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Allow(_)))
        .count();
    assert!((1..=5).contains(&allowed), "{allowed} uses of 5");
    let recorded = house.ledger.all().iter().filter(|(record, _)| matches!(&record.event, Event::Decided { decision, .. } if decision.verdict == Verdict::Allow)).count();
    assert_eq!(recorded, allowed);
    let mut more = 0;
    while let Outcome::Allow(_) = house.mediator.decide(&request("write /a")) {
        more += 1;
    }
    assert_eq!(allowed + more, 5, "none was lost to a race");
}

#[test]
fn p11_a_permit_whose_record_becomes_durable_after_the_end_is_void() {
    // A log that keeps the caller waiting until the test says so.
    struct Slow(Arc<crate::house::MemoryLedger>, Arc<std::sync::Barrier>);
    struct Held(Box<dyn bailiwick_gate::Pending>, Arc<std::sync::Barrier>);
    impl bailiwick_gate::Pending for Held {
        fn index(&self) -> u64 {
            self.0.index()
        }
        fn wait(self: Box<Self>) -> Result<bailiwick_gate::Receipt, bailiwick_gate::LedgerFault> {
            self.1.wait();
            self.1.wait();
            self.0.wait()
        }
        fn then(
            self: Box<Self>,
            call: Box<dyn FnOnce(Result<bailiwick_gate::Receipt, bailiwick_gate::LedgerFault>) + Send>,
        ) {
            call(self.wait());
        }
    }
    impl bailiwick_gate::Ledger for Slow {
        fn append(
            &self,
            record: &bailiwick_model::Record,
            durability: Durability,
        ) -> Result<Box<dyn bailiwick_gate::Pending>, bailiwick_gate::LedgerFault> {
            let inner = self.0.append(record, durability)?;
            Ok(match durability {
                Durability::Durable => Box::new(Held(inner, self.1.clone())),
                Durability::Ordered => inner,
            })
        }
        fn is_healthy(&self) -> bool {
            true
        }
    }
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let ledger = Arc::new(Slow(Arc::default(), barrier.clone()));
    let mediator = bailiwick_mediator::Mediator::new(
        ledger,
        Arc::<crate::house::StandingClock>::default(),
        Arc::<crate::house::Numbers>::default(),
    );
    mediator.begin(plain()).unwrap();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| mediator.decide(&request("POST http://h.test/")));
        barrier.wait();
        mediator.end(TASK, 0).unwrap();
        barrier.wait();
        assert_eq!(denied(asks.join().unwrap()), Code::UnknownTask);
    });
}

#[test]
fn p4_open_permits_are_bounded() {
    let house = House::new(plain());
    let asked = request("read /a");
    let mut first = None;
    for _ in 0..65_536 {
        let permit = allowed(house.mediator.decide(&asked));
        first.get_or_insert(permit.terms().nonce);
    }
    assert_eq!(denied(house.mediator.decide(&asked)), Code::LimitReached);
    let given_up = Settlement {
        nonce: first.unwrap_or(Nonce([0; 16])),
        done: false,
        note: String::new(),
        passed: Passed::default(),
    };
    house.mediator.settle(&given_up).unwrap();
    drop(allowed(house.mediator.decide(&asked)));
}

#[test]
fn a_dry_question_leaves_no_trace() {
    let house = House::new(writing_granted(Some(1)));
    let before = house.ledger.all().len();
    assert_eq!(
        house.mediator.question(&dry("GET http://h.test/")).verdict,
        Verdict::Allow
    );
    for _ in 0..3 {
        assert_eq!(house.mediator.question(&dry("write /a")).code, Code::AllowedByGrant);
    }
    assert_eq!(house.ledger.all().len(), before);
}

#[test]
fn p3_a_count_is_not_taken_twice_by_two_who_saw_it_free() {
    let (both, calls) = (std::sync::Barrier::new(2), std::sync::atomic::AtomicUsize::new(0));
    let rules = crate::house::Saying::new(move |_| {
        // The first two decisions are made from the same state; what is decided again does not wait.
        if calls.fetch_add(1, Ordering::SeqCst) < 2 {
            both.wait();
        }
        says(Verdict::Ask, 2)
    });
    let house = House::new(TaskSpec {
        policy: rules,
        ..writing_granted(Some(1))
    });
    let ask = || matches!(house.mediator.decide(&request("write /a")), Outcome::Allow(_));
    let allowed = std::thread::scope(|scope| {
        let other = scope.spawn(ask);
        usize::from(ask()) + usize::from(other.join().unwrap())
    });
    assert_eq!(allowed, 1);
}
