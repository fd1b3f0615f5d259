//! What outlives a process: trust in rule files, tasks, questions that wait, grants, and how often the like was asked.

use std::collections::BTreeMap;

use bailiwick_model::{
    Act, Answered, ContextId, Decimal, Decision, DecisionId, Digest, GrantId, Millis, Reason, Request, TaskId,
};
use serde::{Deserialize, Serialize};

use crate::desk::{Approver, Granted, Likes, Said};

/// Keeps them.
pub trait Store: Send + Sync {
    /// Says whether this very content of a rule file (and what it extends) is trusted.
    fn is_trusted(&self, file: &str, digest: &Digest) -> Result<bool, StoreFault>;

    /// Trusts a content, or takes that back.
    fn trust(&self, file: &str, digest: &Digest, trusted: bool, now: Millis) -> Result<(), StoreFault>;

    /// Keeps a task's row; a row with the same id is replaced.
    fn put_task(&self, row: &TaskRow) -> Result<(), StoreFault>;

    /// Keeps what a task was ordered by, as text, so that it can be ordered again. Of older orders the newest few hundred stay.
    fn put_order(&self, task: TaskId, order: &str) -> Result<(), StoreFault>;

    /// What a task was ordered by; none where that is not kept.
    fn order(&self, task: TaskId) -> Result<Option<String>, StoreFault>;

    /// The tasks, newest first, at most `limit`.
    fn tasks(&self, limit: u32) -> Result<Vec<TaskRow>, StoreFault>;

    /// Marks every task that still counts as running as lost: whoever ran it is gone. Says how many.
    fn mark_lost(&self, now: Millis) -> Result<u64, StoreFault>;

    /// Keeps a question that waits; one with the same id is replaced.
    fn put_question(&self, waiting: &Waiting) -> Result<(), StoreFault>;

    /// Forgets a question that has come to its end.
    fn drop_question(&self, id: DecisionId) -> Result<(), StoreFault>;

    /// The questions that are kept, oldest first. Their tasks count as ended.
    fn questions(&self) -> Result<Vec<Waiting>, StoreFault>;

    /// Keeps a grant; one with the same id is replaced.
    fn put_grant(&self, row: &GrantRow) -> Result<(), StoreFault>;

    /// Keeps how often a grant has been used.
    fn use_grant(&self, id: GrantId, used: u64) -> Result<(), StoreFault>;

    /// Forgets a grant that has come to its end.
    fn drop_grant(&self, id: GrantId) -> Result<(), StoreFault>;

    /// The grants that are kept, oldest first.
    fn grants(&self) -> Result<Vec<GrantRow>, StoreFault>;

    /// Counts what became of a question.
    fn count(&self, context: &ContextId, kind: &str, answer: Answered) -> Result<(), StoreFault>;

    /// How often the like was asked in a context, and what became of it.
    fn likes(&self, context: &ContextId, kind: &str) -> Result<Likes, StoreFault>;

    /// When a mandate was first used, by its digest: now, where it never was.
    fn first_use(&self, mandate: &Digest, now: Millis) -> Result<Millis, StoreFault>;

    /// Keeps what calls of tools have come to by a rule, in the place of what was kept before.
    fn put_counted(&self, key: &CountedKey, counted: &Counted) -> Result<(), StoreFault>;

    /// Forgets it.
    fn drop_counted(&self, key: &CountedKey) -> Result<(), StoreFault>;

    /// All that is kept of what calls have come to.
    fn counted(&self) -> Result<Vec<(CountedKey, Counted)>, StoreFault>;
}

/// What a total is counted under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedKey {
    /// Whose total it is: a context's, a mandate's, a task's, or that of a layer of rules.
    pub scope: String,
    /// The rule, by a name that stays the same while its act does.
    pub rule: String,
}

/// What calls of tools have come to by one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Calls.
    pub calls: u64,
    /// What stood in arguments, added up, by the argument's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sums: BTreeMap<String, Decimal>,
    /// Bytes of results.
    #[serde(default)]
    pub bytes: u64,
    /// Tokens.
    #[serde(default)]
    pub tokens: u64,
    /// Milliseconds that calls took.
    #[serde(default)]
    pub millis: u64,
    /// The day that all of it is of, counted from 1970, where each day is counted by itself.
    #[serde(default)]
    pub day: u64,
}

/// A question that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The decision that asks; what answers it names this.
    pub id: DecisionId,
    /// What it is about, whole.
    pub request: Request,
    /// The digest of the request: the narrowest yes is for this alone.
    pub digest: Digest,
    /// Why it is asked.
    pub against: Decision,
    /// Since when it waits.
    pub since: Millis,
    /// When silence becomes a no.
    pub deadline: Millis,
    /// The context of the task.
    pub context: ContextId,
    /// The task's program and its arguments.
    pub command: Vec<String>,
    /// The accountable person of the task.
    pub principal: String,
    /// What was said between a person and the agent about it.
    #[serde(default)]
    pub words: Vec<Said>,
    /// Who has said yes already, where one is not enough.
    #[serde(default)]
    pub seconded: Vec<Approver>,
    /// The offer to which they said yes, by the digest of what was shown, and its sentence: the next must say yes to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconded_to: Option<(Digest, String)>,
    /// Who may answer; none for everybody who is an approver at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<MayAnswer>>,
    /// True while whoever asked waits: its task runs.
    #[serde(skip)]
    pub running: bool,
}

/// Somebody who may say yes to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MayAnswer {
    /// The name.
    pub name: String,
    /// After how many seconds of waiting.
    pub after: u64,
    /// What a yes of theirs may cover besides the request itself: within one act of each of these lists. None for anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Vec<Act>>,
}

/// What is kept of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantRow {
    /// The grant as it is shown.
    pub granted: Granted,
    /// The one request that it is for, by its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Digest>,
    /// The questions that it answers.
    pub against: Vec<Reason>,
}

/// What is kept of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// The task.
    pub id: TaskId,
    /// Its context.
    pub context: ContextId,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// When it began.
    pub started: Millis,
    /// What became of it.
    pub state: TaskState,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It ended by itself.
    Ended {
        /// When.
        at: Millis,
        /// Its exit status.
        status: i32,
    },
    /// The daemon that ran it went away.
    Lost {
        /// When that was noticed.
        at: Millis,
    },
}

/// Says why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// A newer build wrote it.
    #[error("the store `{path}` was written by a newer build (schema {found}, this build knows {known})")]
    Newer {
        /// The file.
        path: String,
        /// The schema in the file.
        found: i64,
        /// The newest schema that this build knows.
        known: i64,
    },
    /// Its content is damaged.
    #[error("the store `{path}` is damaged: {cause}")]
    Damaged {
        /// The file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// It cannot be opened, read or written.
    #[error("the store `{path}` cannot be used: {cause}")]
    Unusable {
        /// The file.
        path: String,
        /// What was found.
        cause: String,
    },
}
