//! Totals of tool calls: exact side by side, shared between tasks, given back when nothing was done, kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use bailiwick_gate::{Mediator as _, Outcome, Passed, Permit, Settlement, Store as _};
use bailiwick_mediator::{Mediator, Rules, TaskSpec};
use bailiwick_model::{
    AbsPath, Argument, Code, ContextId, Decimal, Decision, Digest, Layer, Reason, Request, Resource, RuleRef, Span,
    Sum, TaskId, Totals, Verb, Verdict, argument,
};

use super::house::{MemoryLedger, MemoryStore, Numbers, StandingClock};

struct Counting(Arc<Totals>);

fn rule() -> RuleRef {
    RuleRef {
        layer: Layer::Context,
        file: "f".into(),
        line: 1,
        column: 1,
        act: "call bank/pay".into(),
    }
}

impl Rules for Counting {
    fn evaluate(&self, _: &Request) -> Decision {
        Decision {
            verdict: Verdict::Allow,
            code: Code::AllowedByRule,
            reasons: vec![Reason {
                verdict: Verdict::Allow,
                code: Code::AllowedByRule,
                rule: Some(rule()),
                text: "allowed".into(),
            }],
            obligations: Vec::new(),
        }
    }
    fn tree_candidates(&self) -> Vec<(Verb, AbsPath)> {
        Vec::new()
    }
    fn totals(&self, rule: &RuleRef) -> Option<(String, Arc<Totals>)> {
        Some((rule.act.clone(), Arc::clone(&self.0)))
    }
    fn digest(&self) -> Digest {
        Digest([0; 32])
    }
}

fn house(store: &Arc<MemoryStore>) -> Arc<Mediator> {
    let clock = Arc::new(StandingClock::default());
    let mediator = Mediator::new(Arc::new(MemoryLedger::default()), clock, Arc::new(Numbers::default()));
    let mediator = mediator.keeping(Arc::clone(store) as _);
    mediator.take_up_grants().unwrap();
    Arc::new(mediator)
}

fn at_most(most: i64, calls: Option<u64>, span: Span) -> Arc<Totals> {
    Arc::new(Totals {
        sums: vec![Sum {
            argument: "amount".into(),
            most: Decimal::from(most),
            unit: None,
            unit_argument: None,
            places: Some(2),
        }],
        calls,
        span,
        ..Totals::default()
    })
}

fn task(mediator: &Mediator, totals: &Arc<Totals>) -> TaskId {
    let rules = Arc::new(Counting(Arc::clone(totals)));
    let spec = TaskSpec::root("sam".into(), ContextId("home".into()), vec!["agent".into()], rules);
    mediator.begin(spec).unwrap()
}

fn pay(task: TaskId, amount: &str) -> Request {
    let tool = Resource::Tool("bank/pay".parse().unwrap());
    let mut request = Request::new(task, Verb::Call, tool);
    let amount = Argument::Number(amount.parse().unwrap());
    let fields = BTreeMap::from([("amount".to_owned(), amount)]);
    request
        .arguments
        .insert(argument::ARGS.into(), Argument::Fields(fields));
    request
}

fn ask(mediator: &Mediator, request: &Request) -> Result<Permit, Code> {
    match mediator.decide(request) {
        Outcome::Allow(permit) => Ok(permit),
        Outcome::Deny(refusal) => Err(refusal.code),
        Outcome::Ask(_) => panic!("nothing is asked here"),
    }
}

fn settle(mediator: &Mediator, permit: &Permit, done: bool) {
    let settlement = Settlement {
        nonce: permit.terms().nonce,
        done,
        note: String::new(),
        passed: Passed::default(),
    };
    mediator.settle(&settlement).unwrap();
}

#[test]
fn p3_calls_side_by_side_never_come_to_more_than_the_total() {
    let mediator = house(&Arc::default());
    let totals = at_most(200, None, Span::Ever);
    // Two tasks of one context share it.
    let tasks = [task(&mediator, &totals), task(&mediator, &totals)];
    let allowed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|number| {
                let (mediator, task) = (Arc::clone(&mediator), tasks[number % 2]);
                scope.spawn(move || ask(&mediator, &pay(task, "7.5")).is_ok())
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| usize::from(thread.join().unwrap()))
            .sum()
    });
    assert!(allowed <= 26, "{allowed} times 7.50 is more than 200");
    // Whoever lost a race too often was denied: what is left can still be had.
    let mut all = allowed;
    while ask(&mediator, &pay(tasks[0], "7.5")).is_ok() {
        all += 1;
    }
    assert_eq!(all, 26);
    assert_eq!(ask(&mediator, &pay(tasks[1], "7.5")).unwrap_err(), Code::BudgetSpent);
    assert!(ask(&mediator, &pay(tasks[1], "5")).is_ok(), "what is left to the cent");
    assert_eq!(ask(&mediator, &pay(tasks[1], "0.01")).unwrap_err(), Code::BudgetSpent);
}

#[test]
fn p3_what_was_not_done_is_given_back_and_what_may_have_been_is_not() {
    let store = Arc::new(MemoryStore::default());
    let mediator = house(&store);
    let totals = at_most(200, Some(2), Span::Ever);
    let id = task(&mediator, &totals);
    let first = ask(&mediator, &pay(id, "150")).unwrap();
    assert_eq!(ask(&mediator, &pay(id, "150")).unwrap_err(), Code::BudgetSpent);
    settle(&mediator, &first, false);
    let second = ask(&mediator, &pay(id, "150")).unwrap();
    settle(&mediator, &second, true);
    let _open = ask(&mediator, &pay(id, "50")).unwrap();
    assert_eq!(ask(&mediator, &pay(id, "0.01")).unwrap_err(), Code::BudgetSpent);
    // A daemon that starts again knows what was spent, also by a call that was never settled.
    let again = house(&store);
    let id = task(&again, &totals);
    assert_eq!(ask(&again, &pay(id, "1")).unwrap_err(), Code::BudgetSpent);
    assert_eq!(store.counted().unwrap().len(), 1);
}

#[test]
fn a_total_of_one_task_ends_with_it() {
    let store = Arc::new(MemoryStore::default());
    let mediator = house(&store);
    let totals = at_most(10, None, Span::Task);
    let (one, other) = (task(&mediator, &totals), task(&mediator, &totals));
    assert!(ask(&mediator, &pay(one, "10")).is_ok());
    assert_eq!(ask(&mediator, &pay(one, "1")).unwrap_err(), Code::BudgetSpent);
    assert!(ask(&mediator, &pay(other, "10")).is_ok());
    assert!(store.counted().unwrap().is_empty());
}

#[test]
fn p4_amounts_that_cannot_be_counted_are_refused() {
    let mediator = house(&Arc::default());
    let id = task(&mediator, &at_most(200, None, Span::Ever));
    for amount in ["199.999", "-1", "0"] {
        assert_eq!(
            ask(&mediator, &pay(id, amount)).unwrap_err(),
            Code::ArgumentsRefused,
            "{amount}"
        );
    }
}

#[test]
fn p10_what_cannot_be_put_on_record_takes_nothing() {
    let (ledger, store) = (Arc::new(MemoryLedger::default()), Arc::new(MemoryStore::default()));
    let mediator = Mediator::new(
        Arc::clone(&ledger) as _,
        Arc::new(StandingClock::default()),
        Arc::new(Numbers::default()),
    );
    let mediator = Arc::new(mediator.keeping(Arc::clone(&store) as _));
    let totals = at_most(10, None, Span::Ever);
    let id = task(&mediator, &totals);
    ledger.set(super::house::Mood::LosesDurable);
    assert_eq!(ask(&mediator, &pay(id, "10")).unwrap_err(), Code::LogUnavailable);
    ledger.set(super::house::Mood::Works);
    assert!(ask(&mediator, &pay(id, "10")).is_ok());
}
