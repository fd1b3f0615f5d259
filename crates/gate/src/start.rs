//! A program that is about to start: what the fence saw of it, and who reads what it means.
//!
//! Promises: P5 (what is judged is what starts: file, words and variables as the kernel has them).
//! Trust: every text here is the agent's. Bytes that are no UTF-8 stand as U+FFFD, which no rule's word matches.
//! Not here: catching it (`fence`), what its words mean (`commands`), whether it may (`mediator`).

use std::collections::BTreeSet;

use bailiwick_model::{Command, CommandPattern, Resource};
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

impl Start {
    /// Words as somebody would type them, with variables in front: the program is named, not looked for.
    pub fn typed(words: Vec<String>, directory: &str) -> Self {
        let is_variable = |word: &String| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            let head = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            head && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let split = words.iter().take_while(|word| is_variable(word)).count();
        let pair = |word: &String| word.split_once('=').map(|(name, value)| (name.into(), value.into()));
        let variables = words.iter().take(split).filter_map(pair).collect();
        Self::named(words.into_iter().skip(split).collect(), variables, directory)
    }

    /// A program that nobody has looked for yet. By a bare name it will be found among the installed ones; by a path it
    /// is that very file, which the agent may have made unless it lies among the system's programs.
    pub fn named(words: Vec<String>, variables: Vec<(String, String)>, directory: &str) -> Self {
        let program = words.first().cloned().unwrap_or_default();
        let of_the_system = SYSTEM.iter().any(|top| program.starts_with(top)) && !program.contains("/../");
        Self {
            own: program.contains('/') && !of_the_system,
            file: program.clone(),
            called: program,
            words,
            variables,
            directory: directory.into(),
            like: Vec::new(),
        }
    }
}

/// Where the system's programs lie (hier(7)), and those of the package managers that keep their own.
const SYSTEM: [&str; 8] = [
    "/usr/",
    "/bin/",
    "/sbin/",
    "/lib/",
    "/lib64/",
    "/opt/",
    "/nix/store/",
    "/snap/",
];

/// Brings what starts to its normal form.
pub trait Reading: Send + Sync {
    /// What is asked about: always a command.
    fn read(&self, start: &Start) -> Resource;

    /// What an allowed command starts by itself, and what is allowed with it.
    fn follows(&self, pattern: &CommandPattern) -> Vec<CommandPattern>;

    /// Other names under which a program of this name may start: `pip3`, `git-push`.
    fn also(&self, name: &str) -> BTreeSet<String>;

    /// The names of programs that run others without starting them, as the dynamic linker and `busybox` do, or that are
    /// told what to be by a script, as interpreters are.
    fn carriers(&self) -> BTreeSet<String>;
}

/// Reads nothing: words stand as they are. For rules that name no commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsWritten;

impl Reading for AsWritten {
    fn read(&self, start: &Start) -> Resource {
        Resource::Command(Command::plain(start.words.clone(), &start.called))
    }

    fn follows(&self, _: &CommandPattern) -> Vec<CommandPattern> {
        Vec::new()
    }

    fn also(&self, _: &str) -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn carriers(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
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
