//! `bailiwick status` and `bailiwick daemon stop`.

use std::process::ExitCode;

use crate::cli::JsonArg;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// Says which tasks run.
pub fn run(args: &JsonArg) -> Done {
    let places = Places::find()?;
    let Some(mut link) = Link::to_running(&places)? else {
        if args.json {
            tellln!("{}", serde_json::json!({ "running": false }));
        } else {
            tellln!("no daemon runs; `bailiwick run` starts one");
        }
        return Ok(ExitCode::SUCCESS);
    };
    link.say(&PersonCall::Status)?;
    let PersonAnswer::Status(status) = link.hear()? else {
        return Err(Failure::fault("the daemon answered something that was not asked"));
    };
    if args.json {
        tellln!("{}", serde_json::json!({ "running": true, "daemon": status }));
        return Ok(ExitCode::SUCCESS);
    }
    let log = if status.log_healthy {
        "the log takes records"
    } else {
        "the log CANNOT BE WRITTEN: what must be recorded is denied"
    };
    tellln!(
        "daemon {} (build {}), {} records, {log}",
        status.pid,
        status.build,
        status.records
    );
    match status.waiting {
        0 => {}
        1 => tellln!("  1 question waits for you: `bailiwick approve` shows it"),
        several => tellln!("  {several} questions wait for you: `bailiwick approve` shows them"),
    }
    for line in &status.program {
        tellln!("  {}", visible(line));
    }
    for task in &status.tasks {
        tellln!(
            "  {}  since {}  {}  {}",
            task.id,
            super::log::time(task.started),
            visible(&task.context),
            visible(&task.command.join(" "))
        );
        match (task.lasting, task.attended) {
            (true, false) => tellln!("    alone: `bailiwick attach {}` comes back to it", task.id),
            (true, true) => tellln!("    attended; `bailiwick attach {}` takes it over", task.id),
            (false, _) => {}
        }
        for tag in &task.read {
            tellln!("    has read what is tagged {}", visible(tag));
        }
        for port in &task.publish {
            tellln!("    port {} inside is seen at 127.0.0.1:{}", port.inside, port.outside);
        }
    }
    for (task, ended) in &status.ended {
        tellln!(
            "  {}  ended with status {ended}  {}  {}",
            task.id,
            visible(&task.context),
            visible(&task.command.join(" "))
        );
        tellln!("    `bailiwick attach {}` shows its last output", task.id);
    }
    if status.tasks.is_empty() {
        tellln!("  no task runs");
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends the daemon.
pub fn stop() -> Done {
    let places = Places::find()?;
    match Link::to_any(&places)? {
        Some(link) => link.stop(&places)?,
        None => talkln!("bailiwick: no daemon runs"),
    }
    Ok(ExitCode::SUCCESS)
}
