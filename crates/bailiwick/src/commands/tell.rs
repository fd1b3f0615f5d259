//! `bailiwick tell ID WORDS`: inside a fence, what the agent has to say about a question.
//!
//! Promises: P8 (a person sees it apart from the question, as the agent's own words; it answers and grants nothing). Trust: this
//! program runs as part of the agent.

use std::process::ExitCode;

use bailiwick_model::{DecisionId, visible};

use super::last::{is_inside, to_gate};
use crate::cli::TellArgs;
use crate::failure::{Done, Failure};

/// Most bytes that are said at once.
const LONGEST: usize = 4096;

/// Runs the command.
pub fn run(args: &TellArgs) -> Done {
    if !is_inside() {
        return Err(
            Failure::usage("this is for an agent inside, to say something about a question of its own")
                .hint("`bailiwick approve` answers questions"),
        );
    }
    let wanted = args.question.trim_start_matches("q-");
    let id: DecisionId = wanted
        .parse()
        .map_err(|_| Failure::usage(format!("`{}` is no id of a question: 12 hex digits", visible(wanted))))?;
    let words = args.words.join(" ");
    if words.trim().is_empty() || words.len() > LONGEST {
        return Err(Failure::usage(format!("say something, in at most {LONGEST} bytes")));
    }
    let said = to_gate(&format!("POST /tell/{id}"), &words);
    let said = said.map_err(|e| Failure::fault(format!("the network gate does not take it: {e}")))?;
    tellln!("{}", visible(said.trim()));
    Ok(ExitCode::SUCCESS)
}
