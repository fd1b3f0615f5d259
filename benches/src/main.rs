//! Measurements: bare, bwrap and ours, pair by pair in one run; decisions and the log by themselves; the network gate beside
//! other proxies.
//!
//! Answers: what does a fence cost, how fast is a decision, how fast is the log, on this machine, now?
//! A figure of one run says little by itself, so every program is run bare, in bwrap and in ours in turn, and what counts is
//! the ratio. A thing that cannot be measured is said, and makes the exit status 1; it is never left out in silence.

#![expect(
    clippy::expect_used,
    reason = "a harness gives up loudly: a fault in it is no measurement"
)]

mod crowd;
mod decisions;
mod measure;
mod network;
mod programs;
mod records;
mod sample;
#[expect(
    clippy::indexing_slicing,
    reason = "a harness gives up loudly: a fault in it is no measurement"
)]
mod tools;

use std::process::ExitCode;

use crate::measure::{Options, Table};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, work] = arguments.as_slice()
        && mode == "__client"
    {
        network::run_client(work);
        return ExitCode::SUCCESS;
    }
    if let [_, mode, tool, words @ ..] = arguments.as_slice()
        && mode == "__tool-client"
    {
        tools::run_client(tool, words);
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("bench: {fault}");
            return ExitCode::from(2);
        }
    };
    let mut table = Table::default();
    programs::measure(&options, &mut table);
    decisions::measure(&options, &mut table);
    records::measure(&options, &mut table);
    if !table.is_empty() {
        print!("{table}");
    }
    let mut network = Vec::new();
    let whole = network::measure(&options, &mut network);
    let mut tools = Vec::new();
    let whole = tools::measure(&options, &mut tools) && whole;
    let whole = crowd::measure(&options, &mut tools) && whole;
    if let Some(path) = &options.json {
        let mut json = table.json();
        if let Some(all) = json.as_object_mut() {
            all.insert("network".into(), network.clone().into());
            all.insert("tools".into(), tools.clone().into());
        }
        std::fs::write(path, json.to_string()).expect("the place for the JSON can be written");
        eprintln!("bench: written to {}", path.display());
    }
    if whole && table.is_whole() && !(table.is_empty() && network.is_empty() && tools.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
