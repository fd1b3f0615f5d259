//! `bailiwick mcp`: inside a fence, stands between an agent that speaks to a tool server on its input and output and the tool
//! gate. And the relay to a server that is reached by an address, in a fence of that server's own.
//!
//! Promises: P1 (nothing is decided here: what is said is passed on). Trust: both run with the authority of the fence that
//! they are started in, and may be taken over by it.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use bailiwick_tools::Ends;

use crate::daemon::plan::{TOKEN, TOOLS};
use crate::failure::{Done, Failure};

/// Runs the command.
pub fn run() -> Done {
    let told = std::env::var(TOOLS).ok().zip(std::env::var(TOKEN).ok());
    let Some((address, token)) = told else {
        return Err(Failure::usage("there are no tools here: no rule names a server, or this is no inside of a bailiwick")
            .hint("outside, write `[[server]]` into bailiwick.toml, run `bailiwick tools pin`, and start the agent by `bailiwick run`"));
    };
    let authority = address.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let place = authority.and_then(|authority| authority.parse().ok());
    let place = place.ok_or_else(|| Failure::usage(format!("`{TOOLS}` names no address and port")))?;
    bailiwick_tools::relay_inside(place, &token)
        .map_err(|e| Failure::fault(format!("the tool gate cannot be reached: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The body of the relay's process.
pub fn run_relay() -> ExitCode {
    let Some(url) = std::env::args().nth(2) else {
        talkln!("bailiwick: the relay is not told where to");
        return ExitCode::FAILURE;
    };
    let ends = |input: std::io::Stdin, output: std::io::Stdout| -> std::io::Result<Ends> {
        Ok(Ends {
            to: output.as_fd().try_clone_to_owned()?,
            from: input.as_fd().try_clone_to_owned()?,
        })
    };
    let ended = ends(std::io::stdin(), std::io::stdout()).and_then(|ends| bailiwick_tools::relay_remote(&url, ends));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            talkln!("bailiwick: the relay to {url} ended: {e}");
            ExitCode::FAILURE
        }
    }
}
