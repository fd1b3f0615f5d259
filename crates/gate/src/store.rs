//! What outlives a process: trust in rule files, and tasks.

use bailiwick_model::{ContextId, Digest, Millis, TaskId};

/// Keeps trust and tasks.
pub trait Store: Send + Sync {
    /// Says whether this very content of a rule file (and what it extends) is trusted.
    fn is_trusted(&self, file: &str, digest: &Digest) -> Result<bool, StoreFault>;

    /// Trusts a content, or takes that back.
    fn trust(&self, file: &str, digest: &Digest, trusted: bool, now: Millis) -> Result<(), StoreFault>;

    /// Keeps a task's row; a row with the same id is replaced.
    fn put_task(&self, row: &TaskRow) -> Result<(), StoreFault>;

    /// The tasks, newest first, at most `limit`.
    fn tasks(&self, limit: u32) -> Result<Vec<TaskRow>, StoreFault>;

    /// Marks every task that still counts as running as lost: whoever ran it is gone. Says how many.
    fn mark_lost(&self, now: Millis) -> Result<u64, StoreFault>;
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
