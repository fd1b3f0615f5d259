//! What a command ends with when it does not do what was asked: one line, a hint, an exit code.

use std::fmt;

use bailiwick_model::Code;

/// Exit codes. `run` passes the agent's own and keeps 125 to 127 for its own failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// A fault of the machinery.
    Fault = 1,
    /// The command line or a file of the person's is wrong.
    Usage = 2,
    /// The answer is no.
    Denied = 3,
    /// The answer waits for a person.
    Waiting = 4,
    /// A verification failed.
    Unverified = 5,
    /// `run` could not start the agent.
    NotStarted = 125,
    /// The program is there but cannot be started.
    NotExecutable = 126,
    /// The program is not there.
    NotFound = 127,
}

impl Exit {
    /// What a `run` ends with whose agent was not started.
    pub fn of_launch(code: Code) -> Self {
        match code {
            Code::ProgramNotFound => Self::NotFound,
            Code::ProgramNotExecutable => Self::NotExecutable,
            _ => Self::NotStarted,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// One failure, as the person sees it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What the process ends with.
    pub exit: Exit,
    /// Its kind, where it has one.
    pub code: Option<Code>,
    /// One line.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: None,
            message: message.into(),
            hint: None,
        }
    }

    /// A fault of the machinery.
    pub fn fault(message: impl Into<String>) -> Self {
        Self::new(Exit::Fault, message)
    }

    /// The command line or a file is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Adds the kind, for programs that read it.
    #[must_use]
    pub fn coded(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bailiwick: {}", self.message)?;
        match &self.hint {
            Some(hint) if !hint.is_empty() => write!(f, "\n  hint: {hint}"),
            _ => Ok(()),
        }
    }
}

/// What commands return.
pub type Done = Result<std::process::ExitCode, Failure>;
