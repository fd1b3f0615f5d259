//! Who may depend on whom, and where each engine may stand.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::tree::root;

/// The allowed edges between rooms: from, to, and why. A row that is not used any more must go.
const EDGES: &[(&str, &str, &str)] = &[
    ("gate", "model", "requests, verdicts and obligations cross the seam"),
    ("policy", "model", "rules are compiled from and answer in its words"),
    (
        "policy",
        "gate",
        "reads commands through the trait `Reading`, says which starts are judged",
    ),
    ("authority", "model", "capabilities are its words"),
    ("flow", "model", "labels are its words"),
    ("mediator", "model", "decides about requests"),
    (
        "mediator",
        "gate",
        "implements the trait `Mediator`, makes permits, uses `Ledger` and `Store`",
    ),
    ("mediator", "policy", "third step of a decision"),
    ("mediator", "authority", "first step of a decision"),
    ("mediator", "flow", "second step of a decision"),
    ("ledger", "model", "keeps its records"),
    ("ledger", "gate", "implements the trait `Ledger`"),
    ("store", "model", "keeps its ids and digests"),
    ("store", "gate", "implements the trait `Store`"),
    ("fence", "model", "paths and codes"),
    ("fence", "gate", "implements the trait `Launch`"),
    ("proxy", "model", "hosts, URLs, requests"),
    ("proxy", "gate", "asks through the client"),
    (
        "proxy",
        "line",
        "takes a fence's connections by its door, asks over its channel",
    ),
    (
        "line",
        "gate",
        "reads what a supervisor hands over, asks through the client",
    ),
    ("line", "model", "requests, ids and codes"),
    ("tools", "model", "tools, arguments, requests"),
    ("tools", "gate", "asks through the client"),
    (
        "tools",
        "line",
        "takes a fence's connections by its door, asks over its channel",
    ),
    ("tui", "model", "ids, moments and answers are its words"),
    ("tui", "gate", "shows what a `Desk` has, and answers there"),
    ("commands", "model", "commands and their normal forms are its words"),
    ("commands", "gate", "implements the trait `Reading`"),
    ("bailiwick", "commands", "reads commands for rules, questions and hooks"),
    (
        "bailiwick",
        "tools",
        "runs the tool gate in its process, and starts servers for it",
    ),
    ("bailiwick", "tui", "hands it the desk over the daemon's socket"),
    ("console", "model", "shows ids, times and acts"),
    ("console", "gate", "is built on the trait `Desk`"),
    ("bailiwick", "console", "serves it, with a desk and papers"),
    ("bailiwick", "model", "composes"),
    ("bailiwick", "gate", "composes: channels and clocks"),
    ("bailiwick", "policy", "loads rules, shows and checks them"),
    ("bailiwick", "mediator", "hosts it"),
    ("bailiwick", "ledger", "opens and verifies the log"),
    ("bailiwick", "store", "opens it"),
    ("bailiwick", "fence", "starts the launcher"),
    ("bailiwick", "proxy", "starts the supervisor"),
    ("benches", "model", "measures decisions"),
    ("benches", "gate", "measures decisions"),
    ("benches", "policy", "measures decisions by number of rules"),
    ("benches", "mediator", "measures decisions"),
    ("benches", "ledger", "measures records and verification"),
    (
        "benches",
        "testkit",
        "runs the product in a fresh home, as the tests do",
    ),
];

/// Edges that only tests have, beyond [`EDGES`]; `testkit` is open to the tests of every room.
const TEST_EDGES: &[(&str, &str, &str)] = &[
    ("testkit", "model", "the house rules read the list of codes"),
    ("mediator", "commands", "the vectors name commands"),
];

/// Engines: crate (or, with a final `*`, crates), the rooms that may name it, and why there.
const ENGINES: &[(&str, &[&str], &str)] = &[
    ("cedar-policy*", &["policy"], "one engine of rules, in one room"),
    (
        "toml_edit",
        &["policy", "commands"],
        "rule files are read in one place, tables of grammars in another",
    ),
    (
        "jiff",
        &["policy", "bailiwick", "tui"],
        "hours in time zones are reckoned where rules are, from a database that is built in; people read and write local times",
    ),
    (
        "totp-rs",
        &["bailiwick"],
        "codes of people without an account here are checked where their secrets are: in the daemon",
    ),
    (
        "psl",
        &["policy", "proxy"],
        "who owns a domain is asked where rules are read, and where cookies are kept",
    ),
    (
        "secret-service",
        &["bailiwick"],
        "the person's keyring is asked by the daemon, which is theirs",
    ),
    (
        "aws-sigv4",
        &["bailiwick"],
        "signatures are made where the keys are: in the daemon",
    ),
    (
        "brush-parser",
        &["commands"],
        "lines for a shell are read as a preview, in one room",
    ),
    (
        "hyper*",
        &["proxy", "tools", "console", "benches"],
        "hostile HTTP is parsed in the gates, browsers' in the console's process; measurements have both ends",
    ),
    (
        "http-body-util",
        &["proxy", "tools", "console", "benches"],
        "goes with hyper",
    ),
    ("rmcp", &["tools"], "the tools' protocol is spoken in one room"),
    (
        "jsonschema",
        &["tools"],
        "arguments are held against a tool's schema where they come in",
    ),
    ("axum", &["console"], "pages are served from one room"),
    ("maud", &["console"], "one template library, which escapes"),
    (
        "rustls*",
        &["proxy", "tools", "testkit", "benches"],
        "TLS is read in the supervisor, and spoken by the relay to remote tools; tests and measurements have both ends",
    ),
    ("tokio-rustls", &["proxy", "benches"], "goes with rustls"),
    ("webpki-roots", &["proxy"], "goes with rustls"),
    (
        "rcgen",
        &["proxy", "testkit"],
        "certificates are made in one room, and for tests' servers",
    ),
    ("hickory*", &["proxy"], "DNS is read in the supervisor only"),
    ("sqlx*", &["store"], "one room knows the database"),
    ("landlock", &["fence"], "the kernel's fence is put up in one room"),
    ("seccompiler", &["fence"], "the kernel's fence is put up in one room"),
    (
        "libc",
        &["fence", "probe"],
        "raw calls need `unsafe`, which only these rooms have",
    ),
    ("nix", &["fence"], "see `rustix`: one is enough"),
    ("ed25519-dalek", &["ledger"], "one room signs"),
    ("clap", &["bailiwick"], "one room reads the command line"),
    ("ratatui*", &["tui"], "one room draws on the person's terminal"),
    (
        "rustix",
        &["fence", "bailiwick", "ledger", "line", "proxy", "tools", "testkit"],
        "safe calls of the kernel: descriptors, terminals, locks, process groups",
    ),
    (
        "tokio",
        &["line", "proxy", "tools", "store", "console", "bailiwick", "benches"],
        "the launcher and the deciding ring have no runtime",
    ),
];

/// One dependency as a manifest states it.
struct Edge {
    from: String,
    to: String,
    test_only: bool,
    own: bool,
}

fn edges() -> Vec<Edge> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut edges = Vec::new();
    for package in list(&metadata["packages"]) {
        for dependency in list(&package["dependencies"]) {
            edges.push(Edge {
                from: room(&package["name"]),
                to: room(&dependency["name"]),
                test_only: dependency["kind"] == "dev",
                own: dependency["path"].is_string(),
            });
        }
    }
    assert!(edges.len() > 30, "cargo metadata names few dependencies");
    edges
}

/// A crate's room: its name without the house's prefix.
fn room(name: &Value) -> String {
    let name = name.as_str().expect("a package has a name");
    name.strip_prefix("bailiwick-").unwrap_or(name).to_owned()
}

fn table<'a>(rows: &'a [(&str, &str, &str)]) -> BTreeMap<(&'a str, &'a str), &'a str> {
    let map: BTreeMap<_, _> = rows.iter().map(|(from, to, why)| ((*from, *to), *why)).collect();
    assert_eq!(map.len(), rows.len(), "an edge stands twice in a table");
    assert!(map.values().all(|why| why.len() >= 8), "an edge has no reason");
    map
}

#[test]
fn edges_between_rooms_are_those_of_the_table() {
    let allowed = table(EDGES);
    let edges = edges();
    let normal = edges.iter().filter(|edge| edge.own && !edge.test_only);
    let there: BTreeSet<(&str, &str)> = normal.map(|edge| (edge.from.as_str(), edge.to.as_str())).collect();
    for edge in &there {
        assert!(
            allowed.contains_key(edge),
            "{} may not depend on {}: see EDGES",
            edge.0,
            edge.1
        );
    }
    for edge in allowed.keys() {
        assert!(
            there.contains(edge),
            "{} does not depend on {} any more: take it out of EDGES",
            edge.0,
            edge.1
        );
    }
}

#[test]
fn edges_of_tests_are_those_of_the_table() {
    let (allowed, test_allowed) = (table(EDGES), table(TEST_EDGES));
    let edges = edges();
    let test_edges = edges
        .iter()
        .filter(|edge| edge.own && edge.test_only && edge.to != "testkit");
    let there: BTreeSet<(&str, &str)> = test_edges.map(|edge| (edge.from.as_str(), edge.to.as_str())).collect();
    for edge in &there {
        let known = allowed.contains_key(edge) || test_allowed.contains_key(edge);
        assert!(
            known,
            "the tests of {} may not depend on {}: see TEST_EDGES",
            edge.0, edge.1
        );
    }
    for edge in test_allowed.keys() {
        assert!(
            there.contains(edge),
            "{} → {} is not used any more: take it out of TEST_EDGES",
            edge.0,
            edge.1
        );
    }
}

#[test]
fn engines_stay_inside_their_room() {
    let edges = edges();
    for (engine, rooms, why) in ENGINES {
        assert!(why.len() >= 8, "{engine} has no reason");
        let is_engine = |name: &str| match engine.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *engine,
        };
        for edge in edges
            .iter()
            .filter(|edge| !edge.own && !edge.test_only && is_engine(&edge.to))
        {
            assert!(
                rooms.contains(&edge.from.as_str()),
                "{} may not depend on {}, which stands in {rooms:?}: {why}",
                edge.from,
                edge.to
            );
        }
    }
}
