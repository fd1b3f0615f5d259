//! `bailiwick budgets`: what calls of tools have come to by each rule that limits that, and beginning anew.

use std::process::ExitCode;

use bailiwick_gate::{Counted, CountedKey};
use bailiwick_model::{size, visible};
use clap::Subcommand;

use crate::cli::JsonArg;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// The parts of `budgets`.
#[derive(Debug, Subcommand)]
pub enum BudgetsCommand {
    /// Show what has been used
    List(JsonArg),
    /// Begin one anew
    Reset {
        /// Whose budget it is, as `list` shows it
        scope: String,
        /// The rule, as `list` shows it
        rule: String,
    },
}

/// Runs the command.
pub fn run(command: &BudgetsCommand) -> Done {
    let mut link = Link::open(&Places::find()?)?;
    match command {
        BudgetsCommand::List(args) => list(&mut link, args.json),
        BudgetsCommand::Reset { scope, rule } => {
            let key = CountedKey {
                scope: scope.clone(),
                rule: rule.clone(),
            };
            link.say(&PersonCall::Recount { key })?;
            super::choose::done(link.hear()?)?;
            tellln!("{} begins anew", visible(rule));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(link: &mut Link, json: bool) -> Done {
    link.say(&PersonCall::Counted)?;
    let PersonAnswer::Counted(all) = link.hear()? else {
        return Err(Failure::fault("the daemon answered something that was not asked"));
    };
    if json {
        let one = |(key, counted): &(CountedKey, Counted)| serde_json::json!({ "key": key, "used": counted });
        let all: Vec<_> = all.iter().map(one).collect();
        tellln!("{}", serde_json::json!({ "budgets": all }));
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        tellln!("no budget has been used");
    }
    for (key, counted) in &all {
        tellln!("{}  `{}`", visible(&key.scope), visible(&key.rule));
        let calls = match counted.calls {
            1 => "1 call".to_owned(),
            many => format!("{many} calls"),
        };
        let sums = counted.sums.iter().map(|(name, sum)| format!("{sum} of `{name}`"));
        let bytes = (counted.bytes > 0).then(|| format!("{} of results", size(counted.bytes)));
        let tokens = (counted.tokens > 0).then(|| format!("{} tokens", counted.tokens));
        let parts: Vec<String> = std::iter::once(calls).chain(sums).chain(bytes).chain(tokens).collect();
        tellln!("    {}", visible(&parts.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}
