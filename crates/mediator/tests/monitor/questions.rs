//! Questions that wait: what a yes covers, and every way in which there is none.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use bailiwick_gate::{Answer, Call, PROTOCOL, Passed, PermitTerms, Settlement, decode, encode};
use bailiwick_mediator::{PATIENCE, QuestionFault, Session, TaskSpec, Waiting};
use bailiwick_model::{Answered, Code, Durability, Event, Label, Millis, Request, Tag};

use crate::house::{House, Mood, TASK, plain_rules, request, says, spec};

fn watched() -> House {
    House::new(TaskSpec {
        approver_present: true,
        ..spec(plain_rules())
    })
}

/// A gate's channel without its socket.
struct Gate {
    session: Session,
    reply: bailiwick_mediator::Reply,
    heard: Receiver<Answer>,
    calls: u64,
}

impl Gate {
    fn new(house: &House) -> Self {
        let (tell, heard): (Sender<Answer>, _) = channel();
        let tell = std::sync::Mutex::new(tell);
        let reply: bailiwick_mediator::Reply = Arc::new(move |frame| {
            let _ = tell.lock().unwrap().send(decode(&frame[4..]).unwrap());
        });
        let mut gate = Self {
            session: Session::new(house.mediator.clone(), TASK),
            reply,
            heard,
            calls: 0,
        };
        gate.say(&Call::Hello {
            protocol: PROTOCOL,
            build: "test".into(),
            gate: bailiwick_gate::GateKind::Files,
        });
        assert!(matches!(gate.hears(), Answer::Hello { .. }));
        gate
    }

    fn say(&mut self, call: &Call) {
        self.session.receive(&encode(call).unwrap()[4..], &self.reply).unwrap();
    }

    fn hears(&self) -> Answer {
        self.heard.recv_timeout(Duration::from_secs(5)).expect("an answer")
    }

    fn decide(&mut self, request: &Request, patient: bool) -> u64 {
        self.calls += 1;
        self.say(&Call::Decide {
            call: self.calls,
            request: Box::new(request.clone()),
            patient,
        });
        self.calls
    }

    /// Asks, and waits until the question waits.
    fn asks(&mut self, house: &House, request: &Request) -> Waiting {
        let call = self.decide(request, true);
        let Answer::Question { call: of, question } = self.hears() else {
            panic!("a question");
        };
        assert_eq!(of, call);
        for _ in 0..5000 {
            if let Some(waiting) = house.mediator.waiting().into_iter().find(|one| one.id == question.id) {
                return waiting;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the question does not wait");
    }

    fn is_allowed(&self) -> PermitTerms {
        match self.hears() {
            Answer::Allow { terms, .. } => *terms,
            other => panic!("allowed, not {other:?}"),
        }
    }

    fn is_denied(&self) -> Code {
        match self.hears() {
            Answer::Deny { refusal, .. } => refusal.code,
            other => panic!("denied, not {other:?}"),
        }
    }
}

fn answers(house: &House) -> Vec<(Answered, Option<String>, Durability)> {
    let all = house.ledger.all().into_iter();
    all.filter_map(|(record, durability)| match record.event {
        Event::Answered { answer, principal, .. } => Some((answer, principal, durability)),
        _ => None,
    })
    .collect()
}

#[test]
fn p8_a_yes_is_for_the_request_that_was_shown_once() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let asked = request("write /a");
    let waiting = gate.asks(&house, &asked);
    assert_eq!(
        (&waiting.request, waiting.deadline.0 - waiting.since.0),
        (&asked, PATIENCE)
    );
    house.mediator.answer(waiting.id, true, "dana").unwrap();
    let terms = gate.is_allowed();
    assert_eq!(terms.digest, bailiwick_gate::digest_of(&asked));
    assert_eq!(
        answers(&house),
        [(Answered::Yes, Some("dana".into()), Durability::Durable)]
    );
    // Another file, the same file again, and the same file after an effect that did not take place: asked anew.
    for (number, again) in ["write /a/b", "write /a", "write /a"].into_iter().enumerate() {
        if number == 2 {
            let settlement = Settlement {
                nonce: terms.nonce,
                done: false,
                note: String::new(),
                passed: Passed::default(),
            };
            house.mediator.settle_of(TASK, &settlement).unwrap();
        }
        let waiting = gate.asks(&house, &request(again));
        house.mediator.answer(waiting.id, false, "dana").unwrap();
        assert_eq!(gate.is_denied(), Code::AnsweredNo, "{again}");
    }
    assert!(house.mediator.waiting().is_empty());
}

#[test]
fn p8_a_question_is_answered_once() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a"));
    house.mediator.answer(waiting.id, false, "dana").unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
    let again = house.mediator.answer(waiting.id, true, "dana");
    assert_eq!(again, Err(QuestionFault::Unknown(waiting.id)));
}

#[test]
fn p8_after_a_yes_the_request_is_decided_again() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a"));
    // Meanwhile the task has read something that this sink is not cleared for.
    let label = Label {
        confidential: [Tag::parse("pii").unwrap()].into(),
        ..Label::default()
    };
    house.mediator.raise(TASK, &label).unwrap();
    house.mediator.answer(waiting.id, true, "dana").unwrap();
    assert_eq!(gate.is_denied(), Code::FlowRefused);
}

#[test]
fn p4_silence_is_a_no() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a"));
    house.clock.0.fetch_add(PATIENCE - 1, Ordering::SeqCst);
    house.mediator.sweep(house.now()).unwrap();
    assert_eq!(house.mediator.waiting().len(), 1);
    house.clock.0.fetch_add(1, Ordering::SeqCst);
    let late = house.mediator.answer(waiting.id, true, "dana");
    assert_eq!(late, Err(QuestionFault::Unknown(waiting.id)), "its time is over");
    assert_eq!(gate.is_denied(), Code::QuestionLapsed);
    gate.asks(&house, &request("write /a"));
    house.clock.0.fetch_add(PATIENCE, Ordering::SeqCst);
    house.mediator.sweep(house.now()).unwrap();
    assert_eq!(gate.is_denied(), Code::QuestionLapsed);
    assert_eq!(answers(&house).len(), 2);
}

#[test]
fn p4_a_question_ends_with_whoever_asked() {
    let house = watched();
    let mut gate = Gate::new(&house);
    gate.asks(&house, &request("write /a"));
    let call = gate.calls;
    gate.say(&Call::Withdraw { call: call + 1 });
    assert_eq!(house.mediator.waiting().len(), 1, "that call is none");
    gate.say(&Call::Withdraw { call });
    assert_eq!(gate.is_denied(), Code::QuestionWithdrawn);
    gate.asks(&house, &request("write /a"));
    drop(gate);
    assert!(house.mediator.waiting().is_empty());
    let mut gate = Gate::new(&house);
    gate.asks(&house, &request("write /a"));
    house.mediator.end(TASK, 0).unwrap();
    assert_eq!(gate.is_denied(), Code::QuestionWithdrawn);
    let kinds: Vec<_> = answers(&house).into_iter().map(|(answer, ..)| answer).collect();
    assert_eq!(kinds, [Answered::Withdrawn; 3]);
}

#[test]
fn p4_who_cannot_wait_is_denied_at_once() {
    let house = watched();
    let mut gate = Gate::new(&house);
    gate.decide(&request("write /a"), false);
    assert_eq!(gate.is_denied(), Code::NobodyToAsk);
    assert!(house.mediator.waiting().is_empty());
    // And so is everybody where nobody is there to be asked.
    let house = House::new(spec(plain_rules()));
    let mut gate = Gate::new(&house);
    gate.decide(&request("write /a"), true);
    assert_eq!(gate.is_denied(), Code::NobodyToAsk);
}

#[test]
fn p10_an_answer_that_cannot_be_recorded_is_a_no() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for mood in [Mood::RefusesRecords, Mood::LosesDurable] {
        house.ledger.set(Mood::Works);
        let waiting = gate.asks(&house, &request("write /a"));
        house.ledger.set(mood);
        assert!(matches!(
            house.mediator.answer(waiting.id, true, "dana"),
            Err(QuestionFault::Log(_))
        ));
        assert_eq!(gate.is_denied(), Code::LogUnavailable);
    }
}

#[test]
fn p4_only_so_many_questions_wait() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for number in 0..256 {
        gate.asks(&house, &request(&format!("write /{number}")));
    }
    gate.decide(&request("write /more"), true);
    assert!(matches!(gate.hears(), Answer::Question { .. }));
    assert_eq!(gate.is_denied(), Code::LimitReached);
    assert_eq!(house.mediator.waiting().len(), 256);
}

#[test]
fn p8_many_yeses_leave_no_grant_behind() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for _ in 0..20 {
        let waiting = gate.asks(&house, &request("write /a"));
        house.mediator.answer(waiting.id, true, "dana").unwrap();
        gate.is_allowed();
        house.clock.0.fetch_add(40_000, Ordering::SeqCst);
    }
    // A question of another rule is not answered by any of them.
    let ask = says(bailiwick_model::Verdict::Ask, 9);
    let grant = bailiwick_mediator::Grant::once(
        bailiwick_gate::digest_of(&request("write /a")),
        says(bailiwick_model::Verdict::Ask, 2),
        Millis(u64::MAX),
    );
    assert!(!grant.answers(&request("write /a"), &ask, house.now()));
    assert!(grant.answers(
        &request("write /a"),
        &says(bailiwick_model::Verdict::Ask, 2),
        house.now()
    ));
    assert!(!grant.answers(
        &request("write /b"),
        &says(bailiwick_model::Verdict::Ask, 2),
        house.now()
    ));
}
