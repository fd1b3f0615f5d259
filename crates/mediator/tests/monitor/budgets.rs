//! Budgets of rules: taken before the effect, given back when there was none, shared by all that a task does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bailiwick_gate::{Mediator as _, Outcome, Passed, Permit};
use bailiwick_model::{Argument, Code, Event, Obligation, Request, argument};
use proptest::prelude::*;

use crate::house::{House, request, settlement, spec};
use crate::vectors::load;

fn house(rule: &str) -> House {
    let policy = load(&format!("[network]\nallow = [{rule}, \"GET https://free.test/**\"]\n")).unwrap();
    House::new(spec(Arc::new(policy)))
}

fn asked(act: &str, length: Option<i64>) -> Request {
    let mut request = request(act);
    let length = length.map(|length| (argument::CONTENT_LENGTH.to_owned(), Argument::Whole(length)));
    request.arguments.extend(length);
    request
}

fn permit(house: &House, act: &str, length: Option<i64>) -> Result<Permit, Code> {
    match house.mediator.decide(&asked(act, length)) {
        Outcome::Allow(permit) => Ok(permit),
        Outcome::Deny(refusal) => Err(refusal.code),
        Outcome::Ask(_) => panic!("{act} is asked"),
    }
}

fn settle(house: &House, permit: &Permit, done: bool, passed: Passed) {
    let settlement = bailiwick_gate::Settlement {
        passed,
        ..settlement(permit, done)
    };
    house.mediator.settle(&settlement).unwrap();
}

const GET: &str = "GET https://a.test/x";
const POST: &str = "POST https://a.test/x";

#[test]
fn p3_a_budget_of_requests_is_spent_and_what_was_not_done_is_given_back() {
    let house = house("{ rule = \"* https://a.test/**\", budget = { requests = 2 } }");
    let first = permit(&house, GET, None).unwrap();
    let second = permit(&house, "PUT https://a.test/y", None).unwrap();
    assert_eq!(
        permit(&house, GET, None).unwrap_err(),
        Code::BudgetSpent,
        "open permits count"
    );
    settle(&house, &first, true, Passed::default());
    settle(&house, &second, false, Passed::default());
    let third = permit(&house, GET, None).unwrap();
    settle(&house, &third, true, Passed::default());
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::BudgetSpent);
    let Event::Decided { decision, .. } = house.ledger.last().0 else {
        panic!()
    };
    assert_eq!(
        decision.reasons[0].text,
        "the budget of `* https://a.test/**` (bailiwick.toml:2) is used up: all of its 2 requests are used"
    );
    assert!(
        permit(&house, "GET https://free.test/", None).is_ok(),
        "another rule has no part in it"
    );
}

#[test]
fn p3_what_is_sent_is_taken_before_it_is_sent() {
    // `/x` is two bytes of it.
    let house = house("{ rule = \"* https://a.test/**\", budget = { sent = 100 } }");
    let body = |permit: &Permit| {
        permit.terms().obligations.iter().find_map(|duty| match duty {
            Obligation::RequestBody { bytes, .. } => Some(*bytes),
            _ => None,
        })
    };
    let first = permit(&house, POST, Some(60)).unwrap();
    assert_eq!(body(&first), Some(60));
    assert_eq!(permit(&house, POST, Some(37)).unwrap_err(), Code::BudgetSpent);
    let second = permit(&house, POST, Some(36)).unwrap();
    assert_eq!(
        permit(&house, GET, None).unwrap_err(),
        Code::BudgetSpent,
        "the path counts too"
    );
    let sent = |sent| Passed {
        sent: Some(sent),
        received: 0,
    };
    settle(&house, &first, true, sent(10));
    settle(&house, &second, true, Passed::default());
    // 100 - 12 - 38 = 50.
    let open = permit(&house, POST, None).unwrap();
    assert_eq!(body(&open), Some(48), "a length that is not said is all that is left");
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::BudgetSpent);
    settle(&house, &open, true, sent(0));
    let get = permit(&house, GET, None).unwrap();
    assert_eq!(
        body(&get),
        Some(0),
        "what changes nothing and says no length has no body"
    );
    // A gate gives back no more than was taken.
    settle(&house, &get, true, sent(0));
    assert_eq!(permit(&house, POST, Some(45)).unwrap_err(), Code::BudgetSpent);
    assert!(permit(&house, POST, Some(44)).is_ok());
}

#[test]
fn p3_what_was_received_counts_when_it_is_known() {
    let house = house("{ rule = \"* https://a.test/**\", budget = { received = \"1 KiB\" } }");
    let first = permit(&house, GET, None).unwrap();
    let answer = |bytes| Obligation::Answer {
        bytes: Some(bytes),
        seconds: None,
        bytes_per_second: None,
    };
    assert!(first.terms().obligations.contains(&answer(1024)));
    let received = |received| Passed { sent: None, received };
    settle(&house, &first, true, received(1000));
    let second = permit(&house, GET, None).unwrap();
    assert!(second.terms().obligations.contains(&answer(24)));
    settle(&house, &second, true, received(24));
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::BudgetSpent);
}

#[test]
fn p3_a_rate_counts_within_its_time() {
    let house = house("{ rule = \"* https://a.test/**\", budget = { rate = \"2/min\" } }");
    let later = |seconds: u64| house.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    settle(&house, &permit(&house, GET, None).unwrap(), true, Passed::default());
    later(30);
    settle(&house, &permit(&house, GET, None).unwrap(), true, Passed::default());
    later(20);
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::TooOften);
    let Event::Decided { decision, .. } = house.ledger.last().0 else {
        panic!()
    };
    assert_eq!(
        decision.reasons[0].text,
        "the budget of `* https://a.test/**` (bailiwick.toml:2) is used up: it is for 2 requests a minute, and the next is \
         possible in 10 s"
    );
    later(10);
    let third = permit(&house, GET, None).unwrap();
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::TooOften);
    settle(&house, &third, false, Passed::default());
    assert!(permit(&house, GET, None).is_ok(), "what was not done is not counted");
}

#[test]
fn p3_all_spellings_of_a_rule_share_its_budget() {
    let house = house("{ rule = \"* http://localhost:8000/**\", budget = { requests = 1 } }");
    let own = |act: &str| request(act).dialling("127.0.0.1".parse().unwrap());
    let is_allowed = |act: &str| matches!(house.mediator.decide(&own(act)), Outcome::Allow(_));
    assert!(is_allowed("GET http://localhost:8000/"));
    assert!(!is_allowed("GET http://127.0.0.1:8000/"));
}

#[test]
fn p4_nobody_is_asked_about_what_no_budget_is_left_for() {
    let policy = load("[network]\nask = [{ rule = \"* https://a.test/**\", budget = { requests = 0 } }]\n").unwrap();
    let mut spec = spec(Arc::new(policy));
    spec.approver_present = true;
    let house = House::new(spec);
    assert_eq!(permit(&house, GET, None).unwrap_err(), Code::BudgetSpent);
}

/// What may happen to one of the permits that are open.
#[derive(Debug, Clone)]
enum Step {
    Ask(Option<i64>),
    Settle(usize, bool, Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = proptest::option::of(0i64..60);
    let step = prop_oneof![
        3 => length.prop_map(Step::Ask),
        2 => (0usize..8, any::<bool>(), proptest::option::of(0u64..200)).prop_map(|(place, done, sent)| Step::Settle(place, done, sent)),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn p3_no_order_of_requests_sends_more_than_the_budget(steps in steps()) {
        let house = house("{ rule = \"* https://a.test/**\", budget = { sent = 100, requests = 9 } }");
        let mut open: Vec<(Permit, u64)> = Vec::new();
        let (mut sent, mut requests) = (0u64, 0u64);
        for step in steps {
            match step {
                Step::Ask(length) => {
                    let Ok(permit) = permit(&house, POST, length) else { continue };
                    let most = permit.terms().obligations.iter().find_map(|duty| match duty {
                        Obligation::RequestBody { bytes, .. } => Some(*bytes),
                        _ => None,
                    });
                    let most = most.expect("a bound on the body");
                    prop_assert!(length.is_none_or(|length| u64::try_from(length) == Ok(most)));
                    open.push((permit, most));
                }
                Step::Settle(place, done, bytes) if place < open.len() => {
                    let (permit, most) = open.remove(place);
                    // An honest gate sends no more than the obligation says.
                    let bytes = bytes.map(|bytes| bytes.min(most));
                    settle(&house, &permit, done, Passed { sent: bytes, received: 0 });
                    if done {
                        sent += 2 + bytes.unwrap_or(most);
                        requests += 1;
                    }
                }
                Step::Settle(..) => {}
            }
            let might = sent + open.iter().map(|(_, most)| 2 + most).sum::<u64>();
            prop_assert!(might <= 100, "{might} bytes are sent or may be");
            prop_assert!(requests + u64::try_from(open.len()).unwrap() <= 9);
        }
    }
}
