//! Field cases through the product: what went wrong in other tools is tried here with real programs.
//!
//! What must be refused inside is first seen to work without the fence, or under a rule that allows it: else its
//! failure would say nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod audit;
mod commands;
mod files;
mod internet;
mod logins;
mod network;
mod secrets;
mod starts;
mod tools;
mod usability;

use bailiwick_testkit::Bailiwick;
use serde_json::Value;

/// The product as whoever runs the test, and as an ordinary user.
fn kits() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// Writes the project's rules and trusts them.
fn trust(kit: &Bailiwick, rules: &str) {
    kit.write("bailiwick.toml", rules);
    kit.run(&["trust"]).ok();
}

/// The log's records, or its refusals only.
fn records(kit: &Bailiwick, arguments: &[&str]) -> Vec<Value> {
    let shown = kit.run(&[&["log", "show", "--json"], arguments].concat()).ok().stdout;
    let read = |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")) };
    shown.lines().map(|line| read(line)["record"].clone()).collect()
}
