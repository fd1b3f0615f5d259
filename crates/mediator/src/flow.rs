//! Where what a task has read may go, and what it may have chosen: step 2 of a decision.
//!
//! Promises: P6 (data with a tag reaches only what is cleared for it), P7 (a trusted argument is asked about where untrusted
//! text may have chosen it), P8 (a yes to one tag, or one argument, is none to another), P14.
//! Trust: the request may be hostile; the task's label is the mediator's own.
//! Not here: what rules say of tags (`policy`), joining and comparing labels (`flow`), raising a label (`commit`).

use std::collections::BTreeSet;

use bailiwick_flow::{Clearance, excess, join};
use bailiwick_gate::desk::moment;
use bailiwick_model::{Code, Decision, Label, Reason, Request, Resource, Tag, Verb, Verdict};
use bailiwick_policy::came_by_handle;

use crate::rules::Rules;
use crate::snapshot::Snapshot;

/// What the rules clear what a request acts on for.
///
/// What stays with the person is no sink: reading, a program inside the fence, which the task's label goes with, what a
/// server says of its tools. A tree that is granted whole is granted before anything is read. Writing a single file is one,
/// as long as files do not carry the label of who wrote them.
pub(crate) fn clearance(request: &Request, rules: &dyn Rules) -> Clearance {
    match (&request.resource, &request.verb) {
        (Resource::File(_), Verb::Read | Verb::Keep)
        | (Resource::Tree(_), _)
        | (Resource::Command(_), Verb::Run)
        | (Resource::Tool(_), Verb::Accept) => Clearance::Everything,
        _ => Clearance::Only(rules.cleared_for(request)),
    }
}

/// The tags that data may not carry on to what a request acts on.
pub(crate) fn uncleared(request: &Request, label: &Label, rules: &dyn Rules) -> BTreeSet<Tag> {
    if label.confidential.is_empty() {
        return BTreeSet::new();
    }
    excess(label, &clearance(request, rules))
}

/// True for what goes on both ways once it is allowed: what it says itself may be said back on it.
fn goes_both_ways(request: &Request) -> bool {
    matches!(
        (&request.resource, &request.verb),
        (Resource::Endpoint { .. }, _) | (Resource::Command(_), Verb::Broker)
    )
}

/// What flow says against a request.
pub(crate) fn no_flow(request: &Request, snapshot: &Snapshot) -> Option<Decision> {
    let mut label = match (snapshot.label.is_empty(), request.label.is_empty()) {
        (_, true) => Label::clone(&snapshot.label),
        (true, false) => request.label.clone(),
        (false, false) => join(&snapshot.label, &request.label),
    };
    if goes_both_ways(request) {
        label = join(&label, &snapshot.policy.label_of(request, &[]));
    }
    if label.is_empty() {
        return None;
    }
    let refused = uncleared(request, &label, &*snapshot.policy);
    let refused = refused.iter().map(|tag| not_cleared(request, tag, snapshot));
    let chosen = untrusted(request, &label, snapshot).into_iter();
    let mut reasons: Vec<Reason> = refused.chain(chosen).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.verdict));
    let first = reasons.first()?;
    Some(Decision {
        verdict: first.verdict,
        code: first.code,
        reasons,
        obligations: Vec::new(),
    })
}

/// That data with a tag may not go there.
fn not_cleared(request: &Request, tag: &Tag, snapshot: &Snapshot) -> Reason {
    let (verdict, rule) = snapshot.policy.otherwise(tag);
    let code = match verdict {
        Verdict::Ask => Code::FlowAsked,
        Verdict::Allow | Verdict::Deny => Code::FlowRefused,
    };
    Reason {
        verdict: verdict.max(Verdict::Ask),
        code,
        text: format!("{}, and `{request}` is not cleared for that", told(tag, snapshot)),
        rule,
    }
}

/// The arguments that untrusted text may have chosen, and must not have.
fn untrusted(request: &Request, label: &Label, snapshot: &Snapshot) -> Vec<Reason> {
    if label.influence.is_empty() {
        return Vec::new();
    }
    let who: Vec<String> = label.influence.iter().map(|tag| told(tag, snapshot)).collect();
    let who = who.join("; ");
    let trusted = snapshot.policy.trusted_arguments(request);
    // A value that came by a handle is what its source said: text that the task has read could not change it.
    let is_the_source_s = |name: &str| request.label.influence.is_empty() && came_by_handle(request, name);
    let all = trusted.into_iter().filter(|(name, _)| !is_the_source_s(name));
    all.map(|(name, mut rule)| {
        // A yes to one argument is none to another.
        rule.act = format!("{} trusted {name}", rule.act);
        Reason {
            verdict: Verdict::Ask,
            code: Code::InfluenceAsked,
            text: format!("{} by untrusted text: {who} ({rule})", may_be_chosen(&name)),
            rule: Some(rule),
        }
    })
    .collect()
}

/// How what is said of an argument begins that may have been chosen by untrusted text.
pub(crate) fn may_be_chosen(name: &str) -> String {
    format!("`{name}` may have been chosen")
}

/// That a task has read what carries a tag, and where.
fn told(tag: &Tag, snapshot: &Snapshot) -> String {
    match snapshot.origins.get(tag) {
        Some(origin) => format!(
            "this task has read what is tagged `{tag}` ({}, {}, {})",
            origin.act,
            moment(origin.at),
            origin.decision
        ),
        None => format!("what goes with it is tagged `{tag}`"),
    }
}
