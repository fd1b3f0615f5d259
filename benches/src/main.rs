//! Measurements: bare, bwrap and ours, pair by pair in one run; then decisions and the log by themselves.
//!
//! Answers: what does a fence cost, how fast is a decision, how fast is the log, on this machine, now?
//! A figure of one run says little by itself, so every program is run bare, in bwrap and in ours in turn, and what counts is
//! the ratio. A thing that cannot be measured is said, and makes the exit status 1; it is never left out in silence.

#![expect(
    clippy::expect_used,
    reason = "a harness gives up loudly: a fault in it is no measurement"
)]

mod decisions;
mod measure;
mod programs;
mod records;
mod sample;

use std::process::ExitCode;

use crate::measure::{Options, Table};

fn main() -> ExitCode {
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
    print!("{table}");
    if let Some(path) = &options.json {
        std::fs::write(path, table.json().to_string()).expect("the place for the JSON can be written");
        eprintln!("bench: written to {}", path.display());
    }
    if table.is_whole() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
