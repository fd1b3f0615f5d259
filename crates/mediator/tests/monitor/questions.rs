//! Questions that wait: what a yes covers, and every way in which there is none.

use std::sync::atomic::Ordering;

use bailiwick_gate::desk::DeskFault;
use bailiwick_gate::{Answer, Call, Passed, Settlement};
use bailiwick_mediator::PATIENCE;
use bailiwick_model::{Answered, Code, Durability, Event, GrantId, Label, Millis, Tag};

use crate::house::{House, Mood, TASK, plain_rules, request, says, spec};
use crate::talking::{Gate, watched};

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
    house.yes(&waiting).unwrap();
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
        house.no(&waiting).unwrap();
        assert_eq!(gate.is_denied(), Code::AnsweredNo, "{again}");
    }
    assert!(house.mediator.waiting().is_empty());
}

#[test]
fn p8_a_question_is_answered_once() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a"));
    house.no(&waiting).unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
    let again = house.yes(&waiting);
    assert_eq!(again, Err(DeskFault::Unknown(waiting.id)));
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
    house.yes(&waiting).unwrap();
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
    let late = house.yes(&waiting);
    assert_eq!(late, Err(DeskFault::Unknown(waiting.id)), "its time is over");
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
        assert!(matches!(house.yes(&waiting), Err(DeskFault::Fault(_))));
        assert_eq!(gate.is_denied(), Code::LogUnavailable);
    }
}

#[test]
fn p4_only_so_many_questions_wait() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for number in 0..1024 {
        gate.asks(&house, &request(&format!("write /{number}")));
    }
    gate.decide(&request("write /more"), true);
    assert!(matches!(gate.hears(), Answer::Question { .. }));
    assert_eq!(gate.is_denied(), Code::LimitReached);
    assert_eq!(house.mediator.waiting().len(), 1024);
    // They are grouped by what they are about, and one answer to many of them takes its time in proportion.
    let kinds: std::collections::BTreeSet<String> =
        house.mediator.asked().into_iter().map(|asked| asked.kind).collect();
    assert_eq!(kinds.len(), 1);
}

#[test]
fn p8_many_yeses_leave_no_grant_behind() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for _ in 0..20 {
        let waiting = gate.asks(&house, &request("write /a"));
        house.yes(&waiting).unwrap();
        gate.is_allowed();
        house.clock.0.fetch_add(40_000, Ordering::SeqCst);
    }
    // A question of another rule is not answered by any of them.
    let ask = says(bailiwick_model::Verdict::Ask, 9);
    let grant = bailiwick_mediator::Grant::once(
        GrantId([1; 6]),
        bailiwick_gate::digest_of(&request("write /a")),
        says(bailiwick_model::Verdict::Ask, 2),
        Millis(u64::MAX),
    );
    assert!(!grant.answers(&request("write /a"), &ask, "dana", house.now()));
    assert!(grant.answers(
        &request("write /a"),
        &says(bailiwick_model::Verdict::Ask, 2),
        "dana",
        house.now()
    ));
    assert!(!grant.answers(
        &request("write /b"),
        &says(bailiwick_model::Verdict::Ask, 2),
        "dana",
        house.now()
    ));
}
