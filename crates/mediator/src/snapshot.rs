//! All that a decision depends on besides the request, at one moment.
//!
//! Promises: P14 (a decision is a function of the request and this). Trust: made by the mediator alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bailiwick_authority::{Authority, covers};
use bailiwick_gate::digest_of;
use bailiwick_model::{
    Capability, Code, Constraints, ContextId, Decision, DecisionId, Digest, GrantId, Label, Millis, Reason, Request,
    Resource, Tag, TaskId, Verdict,
};

use bailiwick_policy::FOUR_EYES;

use crate::budget::Spent;
use crate::grants::Taken;
use crate::rules::Rules;
use crate::totals::Counts;

/// What the answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An effect will follow: the request must say all that the effect depends on, such as the address.
    Effect,
    /// The same, of what the person ordered by hand. No gate can ask so.
    Order,
    /// Someone wants to know, as with `bailiwick can`; nothing follows.
    Question,
}

/// A person's yes to a question.
#[derive(Debug, Clone)]
pub struct Grant {
    /// What it is known by.
    pub id: GrantId,
    /// What was granted. Where the yes was to one request, its acts are empty: only the constraints count.
    pub capability: Capability,
    /// The decision that asked.
    pub against: Decision,
    /// The one request that it is for; none where the capability says what it covers.
    pub only: Option<Digest>,
    /// Who gave it: each person once.
    pub by: BTreeSet<String>,
    /// True when it outlives its task, and each use must be kept.
    pub(crate) is_kept: bool,
    /// How many uses are taken, in all tasks in which it holds.
    pub(crate) taken: Taken,
}

impl Grant {
    /// A yes to what a capability covers.
    pub fn of(id: GrantId, capability: Capability, against: Decision) -> Self {
        Self {
            id,
            capability,
            against,
            only: None,
            by: BTreeSet::new(),
            is_kept: false,
            taken: Taken::default(),
        }
    }

    /// A yes to one request, once, until it expires.
    pub fn once(id: GrantId, request: Digest, against: Decision, expires: Millis) -> Self {
        let constraints = Constraints {
            count: Some(1),
            expires: Some(expires),
            ..Constraints::default()
        };
        let capability = Capability {
            acts: Vec::new(),
            constraints,
        };
        Self {
            only: Some(request),
            ..Self::of(id, capability, against)
        }
    }

    /// Says who gave it.
    #[must_use]
    pub fn given_by(mut self, people: impl IntoIterator<Item = String>) -> Self {
        self.by.extend(people);
        self
    }

    /// True when it was given by two people of whom neither is the one whose task asks.
    fn is_seen_by_four_eyes(&self, principal: &str) -> bool {
        self.by.iter().filter(|name| *name != principal).count() >= FOUR_EYES
    }

    fn covers(&self, request: &Request, now: Millis) -> bool {
        match &self.only {
            Some(digest) => !self.has_expired(now) && digest_of(request) == *digest,
            // What is laid into a fence whole cannot be taken back: no grant that may end gives that.
            None => !matches!(request.resource, Resource::Tree(_)) && covers(&self.capability, request, now),
        }
    }

    /// True when it answers nothing any more.
    pub(crate) fn has_expired(&self, now: Millis) -> bool {
        self.capability
            .constraints
            .expires
            .is_some_and(|expires| expires <= now)
    }

    /// True when this grant covers the request and was given against every question that the decision asks: a grant
    /// is no answer to a question that nobody saw. What needs four eyes it answers where two people gave it, neither of them
    /// the principal.
    pub fn answers(&self, request: &Request, decision: &Decision, principal: &str, now: Millis) -> bool {
        let needs_two = |reason: &Reason| is_ask(reason) && reason.code == Code::FourEyes;
        if decision.reasons.iter().any(needs_two) && !self.is_seen_by_four_eyes(principal) {
            return false;
        }
        let asks = |decision: &Decision| decision.reasons.iter().any(is_ask);
        let seen = |ask: &Reason| {
            let same = |own: &Reason| is_ask(own) && own.code == ask.code && is_same(own, ask);
            self.against.reasons.iter().any(same)
        };
        decision.verdict == Verdict::Ask
            && asks(decision)
            && decision.reasons.iter().filter(|reason| is_ask(reason)).all(seen)
            && self.covers(request, now)
    }
}

/// True for the same words in the same file: where in it they stand may change while a grant holds.
fn is_same(one: &Reason, other: &Reason) -> bool {
    match (&one.rule, &other.rule) {
        (Some(one), Some(other)) => one.layer == other.layer && one.file == other.file && one.act == other.act,
        (one, other) => one == other,
    }
}

fn is_ask(reason: &Reason) -> bool {
    reason.verdict == Verdict::Ask
}

/// What gave a task a tag first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The decision that let it be read.
    pub decision: DecisionId,
    /// What was done: an act.
    pub act: String,
    /// When.
    pub at: Millis,
}

/// How many uses of counted things are taken, by their place in the lists they stand in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// Of the authority's capabilities.
    pub capabilities: Vec<u64>,
    /// Of the grants.
    pub grants: Vec<u64>,
    /// Of the budgets of rules; one that is missing is not used yet.
    pub budgets: Vec<Spent>,
}

/// The state of a task at one moment. Cheap to take: what does not change is shared.
#[derive(Clone)]
pub struct Snapshot {
    /// The task.
    pub task: TaskId,
    /// The accountable person.
    pub principal: Arc<str>,
    /// What the answer is for.
    pub purpose: Purpose,
    /// What the task holds.
    pub authority: Arc<Authority>,
    /// The rules of its context.
    pub policy: Arc<dyn Rules>,
    /// What it has read.
    pub label: Arc<Label>,
    /// What gave it each of those tags.
    pub origins: Arc<BTreeMap<Tag, Origin>>,
    /// What a person has said yes to.
    pub grants: Arc<[Grant]>,
    /// What is used up.
    pub used: Arc<Used>,
    /// The context.
    pub context: Arc<ContextId>,
    /// What calls of tools have come to.
    pub counted: Arc<Counts>,
    /// The time.
    pub now: Millis,
    /// Counts the changes of the task's state.
    pub version: u64,
    /// True when someone is there who can be asked.
    pub approver_present: bool,
    /// Who is there and watches.
    pub approvers_present: Arc<BTreeSet<String>>,
}

impl fmt::Debug for Snapshot {
    /// All but the rules, which stand as their digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("task", &self.task)
            .field("principal", &self.principal)
            .field("purpose", &self.purpose)
            .field("authority", &self.authority)
            .field("policy", &self.policy.digest())
            .field("label", &self.label)
            .field("origins", &self.origins)
            .field("grants", &self.grants)
            .field("used", &self.used)
            .field("context", &self.context)
            .field("counted", &self.counted)
            .field("now", &self.now)
            .field("version", &self.version)
            .field("approver_present", &self.approver_present)
            .field("approvers_present", &self.approvers_present)
            .finish()
    }
}

impl Snapshot {
    /// The state of a root task that has done nothing yet, with nobody there to ask.
    pub fn of_rules(task: TaskId, policy: Arc<dyn Rules>, now: Millis, purpose: Purpose) -> Self {
        Self {
            task,
            principal: Arc::from(""),
            purpose,
            authority: Arc::new(Authority::whole()),
            policy,
            label: Arc::default(),
            origins: Arc::default(),
            grants: Arc::default(),
            used: Arc::default(),
            context: Arc::new(ContextId(String::new())),
            counted: Arc::default(),
            now,
            version: 0,
            approver_present: false,
            approvers_present: Arc::default(),
        }
    }
}
