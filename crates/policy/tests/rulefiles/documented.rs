//! The examples of docs/policy.md do what the page says of them.

use bailiwick_policy::Sources;

use crate::mandates::under;
use crate::tools::tools;
use crate::{chosen, file, load, project, sources};

const PAGE: &str = include_str!("../../../../docs/policy.md");

/// The examples: what stands after `toml` on the fence line, and the text.
fn examples() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in PAGE.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(head)) => open = Some((head.trim().into(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

#[test]
fn every_example_loads_or_is_refused_as_said() {
    let mut counts = [0; 3];
    for (head, text) in examples() {
        match head.as_str() {
            "toml" => {
                project(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                counts[0] += 1;
            }
            "toml tools" => {
                tools(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                counts[0] += 1;
            }
            "toml flights" => {
                chosen::documented(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                counts[0] += 1;
            }
            "toml mandate" => {
                let values = [("recipient", "Anna"), ("max", "200")];
                under("allow = [\"call bank/*\"]", &text, &values).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                counts[0] += 1;
            }
            "toml ceiling" => {
                let person = vec![file("rules.toml", &text)];
                load(&Sources { person, ..sources() }).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                counts[1] += 1;
            }
            "toml refused" => {
                assert!(project(&text).is_err(), "{text}");
                counts[2] += 1;
            }
            _ => {}
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
