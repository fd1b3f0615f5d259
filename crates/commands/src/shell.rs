//! Shell lines: every command in them, wherever it stands, and every file that they redirect to or from.
//!
//! Promises: P4 (what cannot be read, for sure and within the limits, is said to be unread, never passed over), P5.
//! Trust: a line is the agent's. Its shell is not this one, and may read a line otherwise: this is a preview of what the
//! fence will ask about, and no fence.
//! Not here: what a rule says about a part (the program's), what a command means (`reading`). Aliases are not looked at.
//! See: POSIX, "Shell Command Language"; the bash manual, "Shell Syntax".

mod own;
mod walk;
mod words;

use std::sync::mpsc;
use std::time::Duration;

use bailiwick_model::Command;

use crate::Grammars;
use walk::Walk;

/// Longest line, in bytes.
const MAX_LINE: usize = 64 * 1024;
/// How deep brackets and words such as `if` may stand in each other.
const MAX_NESTING: usize = 24;
/// How deep lines may stand in lines: `$( )`, `eval`, `sh -c`.
pub(crate) const MAX_DEPTH: usize = 8;
/// Most parts of one line.
pub(crate) const MAX_PARTS: usize = 256;
/// How long reading may take: a protection against texts that make a parser slow.
const PATIENCE: Duration = Duration::from_secs(3);
/// Room for a parser that goes down into a text as deep as the text does.
const STACK: usize = 32 * 1024 * 1024;

/// One thing that a line does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Starts a program.
    Start(Command),
    /// Does something by the shell itself, which starts nothing: only a deny or an ask may be held against it.
    Builtin(Command),
    /// Reads a file, by an absolute path.
    Read(String),
    /// Changes or makes a file, by an absolute path.
    Write(String),
    /// Cannot be read: why.
    Unread(String),
}

/// Where a line would run.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The folder.
    pub directory: String,
    /// The home folder, for `~`.
    pub home: String,
}

impl Grammars {
    /// Reads a line for `sh` or `bash`: all that it may do, in the order in which it stands there.
    pub fn line(&self, text: &str, place: &Place) -> Vec<Part> {
        if let Some(why) = too_much(text) {
            return vec![Part::Unread(why.into())];
        }
        let (sender, receiver) = mpsc::channel();
        let (grammars, text, place) = (self.clone(), text.to_owned(), place.clone());
        let read = move || {
            let mut walk = Walk::new(&grammars, &place);
            walk.text(&text, MAX_DEPTH);
            // Whoever waited may have gone.
            drop(sender.send(walk.parts));
        };
        let started = std::thread::Builder::new().stack_size(STACK).spawn(read);
        let parts = started.ok().and_then(|_| receiver.recv_timeout(PATIENCE).ok());
        match parts {
            Some(parts) if parts.len() <= MAX_PARTS => parts,
            Some(_) => vec![Part::Unread("the line does too much at once".into())],
            None => vec![Part::Unread("the line could not be read in time".into())],
        }
    }
}

/// Why a text is not even looked at.
pub(crate) fn too_much(text: &str) -> Option<&'static str> {
    if text.len() > MAX_LINE {
        return Some("the line is too long");
    }
    if text.contains('\0') {
        return Some("the line holds a zero byte");
    }
    let (mut depth, mut deepest) = (0usize, 0usize);
    for character in text.chars() {
        match character {
            '(' | '{' | '[' => depth = depth.saturating_add(1),
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let opens = |word: &&str| matches!(*word, "if" | "while" | "until" | "for" | "case" | "select" | "!");
    let words = text
        .split(|c: char| c.is_whitespace() || c == ';')
        .filter(opens)
        .count();
    (deepest > MAX_NESTING || words > 64).then_some("the line is nested too deep")
}

#[cfg(test)]
mod tests;
