//! What the console reads beside the queue: the log, the rules, and codes of people. The binary knows where they lie.

use bailiwick_gate::desk::Approver;
use bailiwick_model::{Millis, TaskId};

/// Which records are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogWish {
    /// Those before this one; none for the newest.
    pub before: Option<u64>,
    /// Those of this task.
    pub task: Option<TaskId>,
    /// At most so many.
    pub most: usize,
}

/// Some records, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The records.
    pub entries: Vec<Entry>,
    /// Where older ones go on, if there may be any.
    pub older: Option<u64>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub index: u64,
    /// When.
    pub time: Millis,
    /// Its task.
    pub task: Option<TaskId>,
    /// What came of it, in a word or two: `allow`, `deny`, `yes`.
    pub came: String,
    /// How that is shown.
    pub tone: Tone,
    /// What happened, as one sentence.
    pub text: String,
}

/// What a record is about, roughly: its word is shown, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Allowed, or done.
    Good,
    /// Denied, refused, revoked.
    Bad,
    /// Asked, or answered.
    Asked,
    /// All else.
    Plain,
}

/// The rules of one context, in plain words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Its root.
    pub context: String,
    /// Where the rules come from, and what they say: `bailiwick policy show --layers`. Or why they cannot be read.
    pub told: Result<String, String>,
}

/// What lies on the person's disk.
pub trait Papers: Send + Sync {
    /// Records of the log.
    fn log(&self, wish: &LogWish) -> Result<LogPage, String>;

    /// Verifies the log whole: what was found, in one sentence; an error is the sentence of what does not hold.
    fn verify(&self) -> Result<String, String>;

    /// The contexts that there are, by their roots.
    fn contexts(&self) -> Result<Vec<String>, String>;

    /// The rules that hold in one.
    fn rules(&self, context: &str) -> Rules;
}

/// People who log in with a code of their own.
pub trait Logins: Send + Sync {
    /// True when there are any.
    fn any(&self) -> bool;

    /// Who it is, when the code is that of the name now. A code is taken once.
    fn check(&self, name: &str, code: &str) -> Option<Approver>;

    /// They have logged out.
    fn leave(&self, approver: &Approver);
}
