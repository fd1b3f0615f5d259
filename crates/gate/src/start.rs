//! A program that is about to start: what the fence saw of it, and who reads what it means.
//!
//! Promises: P5 (what is judged is what starts: file, words and variables as the kernel has them).
//! Trust: every text here is the agent's. Bytes that are no UTF-8 stand as U+FFFD, which no rule's word matches.
//! Not here: catching it (`fence`), what its words mean (`commands`), whether it may (`mediator`).

use std::collections::BTreeSet;

use bailiwick_model::Resource;
use serde::{Deserialize, Serialize};

/// A program with its words and variables, at the moment it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// The file's own path, links followed. What is in memory only has a path that does not begin with `/`.
    pub file: String,
    /// The path it was called by: for `/usr/bin/awk` the file may be `/usr/bin/mawk`.
    pub called: String,
    /// The words: the first is the name that the program is given.
    pub words: Vec<String>,
    /// The variables.
    pub variables: Vec<(String, String)>,
    /// The folder it starts in.
    pub directory: String,
    /// True when somebody in the fence may have made or changed the file, or the name it was called by.
    pub own: bool,
    /// Names of programs of the machine whose content the file has, where it is a copy.
    pub like: Vec<String>,
}

/// Brings what starts to its normal form.
pub trait Reading: Send + Sync {
    /// What is asked about: always a command.
    fn read(&self, start: &Start) -> Resource;
}

/// Which starts the fence asks about. What is not asked about is covered by the permit of the task's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Judged {
    /// None: no rule tells programs apart.
    #[default]
    Nothing,
    /// Those that go by one of these names: by the file, by the path it was called by, by its first word, by its content, or
    /// as what a launcher or an interpreter among them is told to start.
    Programs(BTreeSet<String>),
    /// All.
    Everything,
}
