//! Reads `approver`: a program of the person's, or the machine's, that answers questions.
//!
//! Promises: P2 (a project's file names none: what answers for a person is the person's to name), P8 (its yes is for the acts
//! that are named, for the request itself, once).
//! Not here: running it (the daemon).

use std::fmt;

use bailiwick_model::{Layer, Request};
use toml_edit::Item;

use super::read::Wanted;
use crate::diagnostic::Span;
use crate::document::{Reader, kind};
use crate::rule::Rule;

/// A program that answers questions.
#[derive(Clone, PartialEq, Eq)]
pub struct ProgramApprover {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// About what its yes counts; empty for everything.
    may: Vec<Rule>,
}

impl fmt::Debug for ProgramApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:?}", self.command, super::acts(&self.may))
    }
}

impl ProgramApprover {
    /// True when its yes to this counts.
    pub fn may_say_yes(&self, request: &Request) -> bool {
        self.may.is_empty()
            || self
                .may
                .iter()
                .any(|rule| rule.covers(&request.verb, &request.resource))
    }
}

impl Reader<'_> {
    /// `approver`: a command, or a table with `run` and `may`.
    pub fn approver(&mut self, item: &Item, span: Option<Span>) {
        if self.layer == Layer::Context {
            let hint = "it answers for you: put it into ~/.config/bailiwick, or /etc/bailiwick for the machine";
            return self.error(span, "a project cannot name its own `approver`", Some(hint.into()));
        }
        let (mut command, mut may) = (Vec::new(), Vec::new());
        match item.as_table_like() {
            None if item.is_array() => command = self.texts_of(item, "approver"),
            None => {
                let hint = "write `approver = [\"program\", \"argument\"]`, or `[approver]` with `run` and `may`";
                let message = format!("`approver` must be a command, not {}", kind(item));
                return self.error(item.span(), &message, Some(hint.into()));
            }
            Some(table) => {
                for (key, item) in table.iter() {
                    let key_span = table.key(key).and_then(|key| key.span());
                    match key {
                        "run" => command = self.texts_of(item, "run"),
                        "may" => {
                            may = self.overseen(item, "may", Wanted::Role);
                            if may.is_empty() {
                                let hint = "name acts to which its yes counts, or take the key out: then all count";
                                self.error(item.span(), "`may` names nothing", Some(hint.into()));
                            }
                        }
                        other => self.unknown(other, key_span, &["run", "may"]),
                    }
                }
            }
        }
        let command: Vec<String> = command.into_iter().map(|(word, _)| word).collect();
        let names_one = command.first().is_some_and(|program| program.starts_with('/'));
        if !names_one || command.iter().any(|word| word.contains('\0')) {
            let hint = "write its whole path, as in `approver = [\"/home/dana/bin/auditor\"]`";
            return self.error(span, "`approver` names no program by its path", Some(hint.into()));
        }
        self.file.settings.approver = Some(ProgramApprover { command, may });
    }
}
