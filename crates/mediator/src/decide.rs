//! The decision: a pure function of a request and a snapshot.
//!
//! Answers: may this be done, by which authority, and under which obligations?
//! Promises: P2 and P3 (nothing without a capability that covers it), P4 (whatever is missing or faulty is a deny),
//! P6 (labels are checked at every sink), P8 (a grant answers only the question that it was given against, and never
//! a deny), P14 (no clock, no state, no order of arrival).
//! Trust: the request may be hostile; the snapshot is the mediator's own.
//! Not here: what the rules mean (`policy`), reserving and recording (`commit`).

use bailiwick_authority::Held;
use bailiwick_model::{Capability, Code, Decision, Label, Obligation, Reason, Request, ToolDuty, Verdict, argument};

use bailiwick_policy::{FOUR_EYES, Moment};

use crate::budget::{Charge, charges};
use crate::flow;
use crate::form;
use crate::snapshot::{Grant, Purpose, Snapshot};
use crate::totals::{Due, dues};

/// Decides: all steps run, the strictest answer wins.
pub fn decide(request: &Request, snapshot: &Snapshot) -> Decision {
    judge(request, snapshot).decision
}

/// A decision, and what it would use up.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) decision: Decision,
    pub(crate) uses: Uses,
    /// What the answer carries, of an allow.
    pub(crate) gives: Label,
}

/// What an allow uses up, by place in the lists of the authority, of the grants and of the rules' budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) capability: Option<usize>,
    pub(crate) grant: Option<usize>,
    pub(crate) charges: Vec<Charge>,
    /// What is taken of totals, which tasks share.
    pub(crate) dues: Vec<Due>,
}

pub(crate) fn judge(request: &Request, snapshot: &Snapshot) -> Judged {
    let held = snapshot
        .authority
        .held(request, snapshot.now, &snapshot.used.capabilities);
    let rules = match snapshot.purpose {
        Purpose::Order => snapshot.policy.evaluate_order(request),
        Purpose::Effect | Purpose::Question => snapshot.policy.evaluate(request),
    };
    let moment = Moment {
        now: snapshot.now,
        present: &snapshot.approvers_present,
    };
    let conditions = snapshot.policy.conditions(request, &rules.obligations, moment);
    let steps = [
        other_task(request, snapshot),
        form::refuse(request, snapshot.purpose),
        no_authority(request, held),
        flow::no_flow(request, snapshot),
        Some(rules),
        conditions,
        choice(request),
    ];
    let all = steps.into_iter().flatten().reduce(Decision::and);
    // The rules always answer, so there is always one; without one, nothing may be done.
    let all = all.unwrap_or_else(|| Decision::deny(Code::Fault, "nothing decided about it"));
    let (mut decision, grant) = answer(request, snapshot, all);
    let mut uses = Uses::default();
    if decision.verdict != Verdict::Deny {
        let spent = &snapshot.used.budgets;
        match charges(request, &decision, &*snapshot.policy, spent, snapshot.now) {
            Ok((charges, duties)) => {
                uses.charges = charges;
                decision.obligations.extend(duties);
            }
            // Nobody is asked about what could not be done.
            Err(refusal) => decision = refusal.and(decision),
        }
    }
    if decision.verdict != Verdict::Deny {
        match dues(request, &decision, snapshot) {
            Ok(dues) => uses.dues = dues,
            Err(refusal) => decision = refusal.and(decision),
        }
    }
    match decision.verdict {
        Verdict::Allow => {
            decision
                .obligations
                .extend(missing_duty(request, &decision.obligations));
            uses.grant = grant;
            uses.capability = held.and_then(|held| counted(held, snapshot));
            let own = held.and_then(|held| capability(held, snapshot));
            let given = grant
                .and_then(|place| snapshot.grants.get(place))
                .map(|grant| &grant.capability);
            for by in own.into_iter().chain(given) {
                decision.obligations.extend(by.constraints.limits.obligations());
            }
        }
        Verdict::Ask => uses = Uses::default(),
        Verdict::Deny => {
            decision.obligations.clear();
            uses = Uses::default();
        }
    }
    let behind = behind_handles(request, &decision, snapshot);
    decision.obligations.extend(behind);
    let gives = match decision.verdict {
        Verdict::Allow => snapshot.policy.label_of(request, &decision.obligations),
        Verdict::Ask | Verdict::Deny => Label::default(),
    };
    Judged { decision, uses, gives }
}

fn other_task(request: &Request, snapshot: &Snapshot) -> Option<Decision> {
    (request.task != snapshot.task).then(|| {
        Decision::deny(
            Code::UnknownTask,
            format!("task {} is not the one that asks", request.task),
        )
    })
}

fn no_authority(request: &Request, held: Option<Held>) -> Option<Decision> {
    held.is_none().then(|| {
        Decision::deny(
            Code::NoCapability,
            format!("the task holds nothing that covers `{request}`"),
        )
    })
}

/// Of several calls a person is to choose one: none is made without their yes.
fn choice(request: &Request) -> Option<Decision> {
    request.arguments.contains_key(argument::CHOICE).then(|| {
        let reason = Reason {
            verdict: Verdict::Ask,
            code: Code::ChoiceOffered,
            rule: None,
            text: "the agent leaves it to you which of several calls it makes: a yes to one is a no to the others"
                .into(),
        };
        Decision {
            verdict: Verdict::Ask,
            code: Code::ChoiceOffered,
            reasons: vec![reason],
            obligations: Vec::new(),
        }
    })
}

/// Answers an ask: by a live grant, or by no when there is nobody to ask.
fn answer(request: &Request, snapshot: &Snapshot, decision: Decision) -> (Decision, Option<usize>) {
    if decision.verdict != Verdict::Ask {
        return (decision, None);
    }
    let left = |place: usize, grant: &Grant| {
        let taken = snapshot.used.grants.get(place).copied().unwrap_or(0);
        grant.capability.constraints.count.is_none_or(|count| taken < count)
    };
    let approvers = snapshot.policy.approvers_of(request);
    let may_have_given = |grant: &Grant| {
        let Some(approvers) = &approvers else { return true };
        let two = decision.reasons.iter().any(|reason| reason.code == Code::FourEyes);
        let may =
            |name: &&String| approvers.iter().any(|may| may.name == **name) && !(two && **name == *snapshot.principal);
        grant.by.iter().filter(may).count() >= if two { FOUR_EYES } else { 1 }
    };
    let live = snapshot.grants.iter().enumerate().find(|(place, grant)| {
        left(*place, grant)
            // Also one that was given by hand, or to another question.
            && may_have_given(grant)
            && grant.answers(request, &decision, &snapshot.principal, snapshot.now)
    });
    match live {
        Some((place, grant)) => (granted(decision, grant), Some(place)),
        None if snapshot.approver_present => (decision, None),
        None => {
            let nobody = Decision::deny(Code::NobodyToAsk, "a person would have to say, and none is there");
            (nobody.and(decision), None)
        }
    }
}

fn granted(decision: Decision, grant: &Grant) -> Decision {
    let mut reasons = vec![Reason {
        verdict: Verdict::Allow,
        code: Code::AllowedByGrant,
        rule: None,
        text: format!("a person said yes (grant {})", grant.id),
    }];
    reasons.extend(decision.reasons.into_iter().map(|reason| Reason {
        verdict: Verdict::Allow,
        ..reason
    }));
    Decision {
        verdict: Verdict::Allow,
        code: Code::AllowedByGrant,
        reasons,
        obligations: decision.obligations,
    }
}

/// The tags on what the agent gets as handles: they go with it, and not with the task.
fn behind_handles(request: &Request, decision: &Decision, snapshot: &Snapshot) -> Option<Obligation> {
    let hands_out = |duty: &Obligation| matches!(duty, Obligation::Tool(ToolDuty::Present { .. }));
    if decision.verdict != Verdict::Allow || !decision.obligations.iter().any(hands_out) {
        return None;
    }
    let label = snapshot.policy.label_of(request, &[]);
    (!label.is_empty()).then_some(Obligation::Tool(ToolDuty::Label { label }))
}

/// Whatever the rules say, only the address that was decided about may be dialled.
fn missing_duty(request: &Request, duties: &[Obligation]) -> Option<Obligation> {
    let is_there = duties.iter().any(|duty| matches!(duty, Obligation::DialAddress { .. }));
    let address = request.address().filter(|_| !is_there)?;
    Some(Obligation::DialAddress { address })
}

/// The capability that covers the request; none where the whole authority does.
fn capability(held: Held, snapshot: &Snapshot) -> Option<&Capability> {
    match held {
        Held::Whole => None,
        Held::Capability(place) => snapshot.authority.capabilities().get(place),
    }
}

/// The place of the capability whose count goes down, if it has one.
fn counted(held: Held, snapshot: &Snapshot) -> Option<usize> {
    match held {
        Held::Whole => None,
        Held::Capability(place) => capability(held, snapshot)?.constraints.count.map(|_| place),
    }
}
