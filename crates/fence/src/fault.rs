//! Faults in the person's words: what could not be done, why, and what to do about it.

use std::io;

use bailiwick_gate::LaunchFault;
use bailiwick_model::Code;

/// What the kernel said, in lower case, without its number.
pub(crate) fn cause(error: impl Into<io::Error>) -> String {
    let text = error.into().to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// A fence that could not be put up.
pub(crate) fn failed(what: impl Into<String>, cause: impl Into<String>) -> LaunchFault {
    LaunchFault {
        code: Code::FenceFailed,
        what: what.into(),
        cause: cause.into(),
        hint: String::new(),
    }
}

/// Puts words to what the kernel refused.
pub(crate) trait Says<T> {
    /// Says what could not be done.
    fn or_say(self, what: impl FnOnce() -> String) -> Result<T, LaunchFault>;
}

impl<T, E: Into<io::Error>> Says<T> for Result<T, E> {
    fn or_say(self, what: impl FnOnce() -> String) -> Result<T, LaunchFault> {
        self.map_err(|error| failed(what(), cause(error)))
    }
}

/// Adds a hint to a fault that has none.
pub(crate) fn hint<T>(result: Result<T, LaunchFault>, hint: &str) -> Result<T, LaunchFault> {
    result.map_err(|mut fault| {
        if fault.hint.is_empty() {
            fault.hint = hint.into();
        }
        fault
    })
}
