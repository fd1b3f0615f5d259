//! The trait every gate decides through, in-process or over a channel.

use bailiwick_model::{Code, DecisionId, Millis, Nonce, Request, TaskId};
use serde::{Deserialize, Serialize};

use crate::permit::Permit;

/// The reference monitor, as a gate sees it.
pub trait Mediator {
    /// Decides about a request, and commits: when this returns an allow, the record is as safe as P10 asks.
    fn decide(&self, request: &Request) -> Outcome;

    /// Says what became of an effect. Each permit is settled once; a second time is refused.
    fn settle(&self, settlement: &Settlement) -> Result<(), Refusal>;

    /// Puts on record what a gate refused by itself, before there was a request that could be decided about.
    fn refused(&self, task: TaskId, code: Code, what: &str) -> Refusal;
}

/// The answer to a request.
#[derive(Debug)]
pub enum Outcome {
    /// It may be done, once.
    Allow(Permit),
    /// A person must say, and nobody is asked on this road.
    Ask(Question),
    /// It may not be done.
    Deny(Refusal),
}

/// A question to a person, as the gate may know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The decision that asks.
    pub id: DecisionId,
    /// When silence becomes a no.
    pub deadline: Millis,
}

/// A denial, as the agent may see it: a code and an id, no policy content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// What `bailiwick explain` takes.
    pub id: DecisionId,
    /// The kind of denial.
    pub code: Code,
    /// The arguments of a call that are at fault, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// What a person said to the agent with it, in visible form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

impl Refusal {
    /// A denial without a word.
    pub fn new(id: DecisionId, code: Code) -> Self {
        Self {
            id,
            code,
            arguments: Vec::new(),
            word: None,
        }
    }
}

/// `answered-no (0123456789ab): use the staging host`.
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.code, self.id)?;
        if !self.arguments.is_empty() {
            let names: Vec<String> = self.arguments.iter().map(|name| format!("`{name}`")).collect();
            write!(f, ", see {}", names.join(", "))?;
        }
        match &self.word {
            Some(word) => write!(f, ": {word}"),
            None => Ok(()),
        }
    }
}

/// What became of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The permit's identity.
    pub nonce: Nonce,
    /// True when the effect took place.
    pub done: bool,
    /// What the gate has to add, for people: bytes, a status, a fault. At most 1024 bytes are kept.
    pub note: String,
    /// What passed of an HTTP request and its answer, where budgets count it.
    #[serde(default, skip_serializing_if = "Passed::is_nothing")]
    pub passed: Passed,
}

/// How much of an HTTP request and its answer passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passed {
    /// Bytes of the request's body that were sent; none where that is not known, and all that was taken for it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Bytes of the answer's body that were received.
    #[serde(default)]
    pub received: u64,
}

impl Passed {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
