//! What tools are called towards clients.
//!
//! Answers: which server and which tool does a client's name mean? Exactly one, or none.
//! Promises: P5 (no server can choose a name for a tool that means another server's). Trust: names of tools are the
//! server's; names of servers are the person's.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::limits;

/// The name under which the gate offers tools of its own. No server may have it.
pub const OWN: &str = "bailiwick";

/// Between a server's name and a tool's. No server's name holds an underscore (`model::read_server`).
const BETWEEN: &str = "__";

/// How many hex digits stand for what was left out of a name.
const DIGITS: usize = 12;

/// The name of a tool towards clients: as it is where clients take it, else shortened, with a digest of the whole.
pub fn wire_name(server: &str, tool: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let plain = format!("{server}{BETWEEN}{tool}");
    if plain.len() <= limits::WIRE_NAME && tool.chars().all(kept) && !tool.is_empty() {
        return plain;
    }
    let digest = hex::encode(Sha256::digest(plain.as_bytes()));
    let digest = digest.get(..DIGITS).unwrap_or_default();
    let room = limits::WIRE_NAME
        .saturating_sub(server.len())
        .saturating_sub(BETWEEN.len() + 1 + DIGITS);
    let tool: String = tool.chars().map(|c| if kept(c) { c } else { '_' }).take(room).collect();
    format!("{server}{BETWEEN}{tool}_{digest}")
}

/// Names that mean one thing each. Two things with one name have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names<T> {
    by_name: BTreeMap<String, Option<T>>,
}

impl<T: PartialEq> Names<T> {
    /// Gives a thing its name. False where another thing has it: then neither does.
    pub(crate) fn give(&mut self, name: String, thing: T) -> bool {
        match self.by_name.get_mut(&name) {
            None => {
                self.by_name.insert(name, Some(thing));
                true
            }
            Some(Some(other)) if *other == thing => true,
            Some(slot) => {
                *slot = None;
                false
            }
        }
    }

    /// What a name means.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.by_name.get(name)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c040_joined_names_do_not_collide() {
        assert_eq!(wire_name("files", "read"), "files__read");
        assert_ne!(wire_name("acme", "_status"), wire_name("acme", "status"));
        // A tool that looks like the joined name of another server's.
        assert_eq!(wire_name("acme", "bank__pay"), "acme__bank__pay");
        assert_ne!(wire_name("acme", "a/b"), wire_name("acme", "a_b"));
        assert_ne!(wire_name("acme", "ä"), wire_name("acme", "ö"));
        let long = "x".repeat(100);
        assert_eq!(wire_name("acme", &long).len(), 64);
        assert_ne!(wire_name("acme", &long), wire_name("acme", &format!("{long}y")));
    }

    #[test]
    fn c040_two_things_with_one_name_have_none() {
        let mut names = Names::default();
        assert!(names.give("x".into(), 1));
        assert!(names.give("x".into(), 1), "the same thing again");
        assert!(!names.give("x".into(), 2));
        assert!(!names.give("x".into(), 1));
        assert_eq!(names.get("x"), None);
    }

    proptest! {
        #[test]
        fn c040_a_name_tells_its_server(server in "[a-z](-?[a-z0-9]){0,15}", other in "[a-z](-?[a-z0-9]){0,15}", tool in ".{0,80}", others in ".{0,80}") {
            let name = wire_name(&server, &tool);
            prop_assert!(name.len() <= limits::WIRE_NAME);
            prop_assert_eq!(name.split_once("__").unwrap().0, server.as_str());
            if server != other {
                prop_assert_ne!(name, wire_name(&other, &others));
            }
        }
    }
}
