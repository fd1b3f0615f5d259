//! Budgets: what a rule may be used for in all, and what of it a task has used.
//!
//! Promises: P3 (what may be sent is taken whole before anything is, so that requests side by side are never more than the
//! budget), P4 (a budget that is used up is a denial with its own code), P14 (a function of what is used, the request and the
//! time).
//! Trust: how long a body is, the gate says from what the agent sent; that it is no longer is an obligation. What passed in the
//! end the gate says too, and it gives back no more than was taken.
//! What is received cannot be known before: each answer may be as long as was left when it was decided, and counts at its end.

use std::collections::VecDeque;

use bailiwick_gate::Passed;
use bailiwick_model::{
    Argument, Budget, Code, Decision, Millis, Obligation, Request, Resource, RuleRef, Verb, Verdict, argument, size,
};

use crate::rules::Rules;

/// What has been used of one budget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests.
    pub requests: u64,
    /// Bytes that are sent or taken for it.
    pub sent: u64,
    /// Bytes that were received.
    pub received: u64,
    /// When requests were allowed, as far back as a rate looks.
    pub times: VecDeque<Millis>,
}

/// What one request takes of one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The budget's place among those of the rules.
    budget: usize,
    /// Bytes of path and query.
    target: u64,
    /// Bytes of the body: as many as it says, or as may be.
    body: u64,
    /// When, and for how many seconds a rate looks back.
    at: Option<(Millis, u32)>,
}

/// What a decision that is no denial takes of budgets, and what the gate must do for them; or the denial.
pub(crate) fn charges(
    request: &Request,
    decision: &Decision,
    rules: &dyn Rules,
    spent: &[Spent],
    now: Millis,
) -> Result<(Vec<Charge>, Vec<Obligation>), Box<Decision>> {
    let (mut charges, mut duties): (Vec<Charge>, Vec<Obligation>) = (Vec::new(), Vec::new());
    let deciding = decision.reasons.iter().filter(|reason| reason.verdict != Verdict::Deny);
    for rule in deciding.filter_map(|reason| reason.rule.as_ref()) {
        let Some((place, budget)) = rules.budget(rule) else {
            continue;
        };
        if charges.iter().any(|charge| charge.budget == place) {
            continue;
        }
        let empty = Spent::default();
        let used = spent.get(place).unwrap_or(&empty);
        let charge = charge(request, place, &budget, used, now);
        match charge {
            Ok(charge) => {
                duties.extend(duties_of(&budget, &charge, used));
                charges.push(charge);
            }
            Err(refusal) => return Err(Box::new(refusal.of(rule, &budget))),
        }
    }
    Ok((charges, duties))
}

/// What there is no more of.
enum Refusal {
    Requests,
    Sent,
    Received,
    Rate(Millis),
}

impl Refusal {
    fn of(self, rule: &RuleRef, budget: &Budget) -> Decision {
        let (code, what) = match self {
            Self::Requests => (
                Code::BudgetSpent,
                format!("all of its {} requests are used", budget.requests.unwrap_or(0)),
            ),
            Self::Sent => (
                Code::BudgetSpent,
                format!("this would be more than {} sent in all", size(budget.sent.unwrap_or(0))),
            ),
            Self::Received => (
                Code::BudgetSpent,
                format!("{} are received already", size(budget.received.unwrap_or(0))),
            ),
            Self::Rate(wait) => (
                Code::TooOften,
                format!(
                    "it is for {}, and the next is possible in {} s",
                    budget.rate.map(|rate| rate.to_string()).unwrap_or_default(),
                    wait.0.div_ceil(1000)
                ),
            ),
        };
        let text = format!("the budget of `{}` ({rule}) is used up: {what}", rule.act);
        let mut decision = Decision::deny(code, text);
        decision
            .reasons
            .iter_mut()
            .for_each(|reason| reason.rule = Some(rule.clone()));
        decision
    }
}

fn charge(request: &Request, place: usize, budget: &Budget, used: &Spent, now: Millis) -> Result<Charge, Refusal> {
    if budget.requests.is_some_and(|most| used.requests >= most) {
        return Err(Refusal::Requests);
    }
    if budget.received.is_some_and(|most| used.received >= most) {
        return Err(Refusal::Received);
    }
    if let Some(rate) = budget.rate {
        let span = u64::from(rate.seconds).saturating_mul(1000);
        let within = |time: &&Millis| time.0.saturating_add(span) > now.0;
        let recent = used.times.iter().filter(within).count();
        if recent >= usize::try_from(rate.count).unwrap_or(usize::MAX) {
            // The oldest of those that count leaves room when it is a span old.
            let oldest = used
                .times
                .iter()
                .rev()
                .nth(usize::try_from(rate.count).unwrap_or(0).saturating_sub(1));
            let free = oldest.map_or(span, |oldest| oldest.0.saturating_add(span).saturating_sub(now.0));
            return Err(Refusal::Rate(Millis(free)));
        }
    }
    let target = match &request.resource {
        Resource::Url(url) | Resource::Repository { url, .. } => u64::try_from(url.target().len()).unwrap_or(u64::MAX),
        _ => 0,
    };
    let body = match budget.sent {
        None => 0,
        Some(most) => {
            let left = most
                .saturating_sub(used.sent)
                .checked_sub(target)
                .ok_or(Refusal::Sent)?;
            let body = length_of(request).unwrap_or(left);
            (body <= left).then_some(body).ok_or(Refusal::Sent)?
        }
    };
    Ok(Charge {
        budget: place,
        target,
        body,
        at: budget.rate.map(|rate| (now, rate.seconds)),
    })
}

/// How long a request says its body is. A method that changes nothing and says nothing has none: the gate sees to it.
fn length_of(request: &Request) -> Option<u64> {
    match request.arguments.get(argument::CONTENT_LENGTH) {
        Some(Argument::Whole(length)) => u64::try_from(*length).ok(),
        _ => matches!(&request.verb, Verb::Http(method) if method.is_safe()).then_some(0),
    }
}

fn duties_of(budget: &Budget, charge: &Charge, used: &Spent) -> Vec<Obligation> {
    let body = budget.sent.map(|_| Obligation::RequestBody {
        bytes: charge.body,
        types: Vec::new(),
    });
    let answer = budget.received.map(|most| Obligation::Answer {
        bytes: Some(most.saturating_sub(used.received)),
        seconds: None,
        bytes_per_second: None,
    });
    body.into_iter().chain(answer).collect()
}

/// Takes what a request may use.
pub(crate) fn take(spent: &mut Vec<Spent>, charge: &Charge) {
    if spent.len() <= charge.budget {
        spent.resize(charge.budget.saturating_add(1), Spent::default());
    }
    let Some(used) = spent.get_mut(charge.budget) else {
        return;
    };
    used.requests = used.requests.saturating_add(1);
    used.sent = used.sent.saturating_add(charge.target).saturating_add(charge.body);
    if let Some((now, seconds)) = charge.at {
        let span = u64::from(seconds).saturating_mul(1000);
        used.times.retain(|time| time.0.saturating_add(span) > now.0);
        used.times.push_back(now);
    }
}

/// Gives all of it back, since nothing was done.
pub(crate) fn give_back(spent: &mut [Spent], charge: &Charge) {
    let Some(used) = spent.get_mut(charge.budget) else {
        return;
    };
    used.requests = used.requests.saturating_sub(1);
    used.sent = used.sent.saturating_sub(charge.target.saturating_add(charge.body));
    if let Some((now, _)) = charge.at
        && let Some(place) = used.times.iter().rposition(|time| *time == now)
    {
        used.times.remove(place);
    }
}

/// Counts what passed: a body that was shorter gives the rest back.
pub(crate) fn settle(spent: &mut [Spent], charge: &Charge, passed: Passed) {
    let Some(used) = spent.get_mut(charge.budget) else {
        return;
    };
    let over = passed.sent.map_or(0, |sent| charge.body.saturating_sub(sent));
    used.sent = used.sent.saturating_sub(over);
    used.received = used.received.saturating_add(passed.received);
}
