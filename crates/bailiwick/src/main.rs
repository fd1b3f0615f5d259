//! Bailiwick: runs an AI agent as its own user, with exactly the authority that its task needs.
//!
//! This crate composes the rooms, talks to people and holds the keys. One program plays every role: the person's
//! commands, the daemon (mediator), the launcher and the gates; each is a process of its own.

#[macro_use]
mod talk;

mod advice;
mod cli;
mod columns;
mod commands;
mod context;
mod daemon;
mod desk;
mod failure;
mod git;
mod line;
mod link;
mod made;
mod own;
mod papers;
mod people;
mod places;
mod private_file;
mod promises;
mod protocol;
mod terminal;
mod terms;
mod toolchains;

use std::process::ExitCode;

use failure::Exit;

fn main() -> ExitCode {
    // The roles of other processes come first: they read no command line of the person's.
    match std::env::args().nth(1).as_deref() {
        Some(daemon::spare::LAUNCHER) => return daemon::spare::run_launcher(),
        Some(git::outside::CREDENTIAL) => return git::outside::answer_credential(),
        Some(daemon::spare::NETWORK_GATE) => return daemon::spare::run_network_gate(),
        Some(daemon::fetcher::FETCHER) => return daemon::fetcher::run_fetcher(),
        Some(daemon::tool_gate::TOOL_GATE) => return daemon::tool_gate::run_tool_gate(),
        Some(daemon::servers::RELAY) => return commands::mcp::run_relay(),
        _ => {}
    }
    if let Some(answered) = git::signing::answer_git() {
        return answered;
    }
    if let Err(e) = bailiwick_fence::become_caller_under_sudo() {
        talkln!("bailiwick: cannot become the user who called sudo: {e}");
        return Exit::NotStarted.into();
    }
    match cli::run() {
        Ok(code) => code,
        Err(failure) => {
            talkln!("{failure}");
            failure.exit.into()
        }
    }
}
