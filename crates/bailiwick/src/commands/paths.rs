//! `bailiwick paths`: where things lie.

use std::process::ExitCode;

use crate::cli::JsonArg;
use crate::failure::Done;
use crate::places::Places;

/// Runs the command.
pub fn run(args: &JsonArg) -> Done {
    let all = Places::find()?.all();
    if args.json {
        let list: Vec<_> = all
            .iter()
            .map(|place| {
                let there = place.path.symlink_metadata().is_ok();
                serde_json::json!({ "path": place.path, "what": place.what, "there": there })
            })
            .collect();
        tellln!("{}", serde_json::json!({ "paths": list }));
        return Ok(ExitCode::SUCCESS);
    }
    let width = all.iter().map(|place| place.what.chars().count()).max().unwrap_or(0);
    for place in &all {
        let absent = if place.path.symlink_metadata().is_ok() {
            ""
        } else {
            "  (not there)"
        };
        tellln!("{:<width$}  {}{absent}", place.what, place.path.display());
    }
    Ok(ExitCode::SUCCESS)
}
