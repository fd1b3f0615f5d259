//! `bailiwick approve`: shows what waits for the person, and answers it.
//!
//! Promises: P8 (what is shown is the act as the mediator has it, whole, with control characters visible; a yes is for
//! that act, once).

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_gate::desk::{Answer, Asked};
use bailiwick_model::Millis;

use crate::cli::ApproveArgs;
use crate::failure::{Done, Exit, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// What stands before the id of a question.
const HEAD: &str = "q-";

/// The line that tells of a question, and how to answer it.
pub fn waits(waiting: &Asked) -> String {
    format!(
        "bailiwick: waits for you: `bailiwick approve {HEAD}{}`: {}\n",
        waiting.id, waiting.act
    )
}

/// Runs the command.
pub fn run(args: &ApproveArgs) -> Done {
    let found = match &args.at {
        Some(socket) => Some(Link::at(socket)?),
        None => Link::to_running(&Places::find()?)?,
    };
    let Some(mut link) = found else {
        return match &args.question {
            Some(wanted) => Err(unknown(wanted)),
            None => list(&[], args.json),
        };
    };
    let all = link.questions()?;
    let Some(wanted) = &args.question else {
        return list(&all, args.json);
    };
    let waiting = among(&all, wanted)?;
    let answer = match args.no {
        true => Some(Answer::No { word: None }),
        false => Answer::once(waiting),
    };
    let answer = answer.ok_or_else(|| {
        Failure::usage("a yes to this cannot be said as an act for the next task")
            .hint("its task has ended: start it again, and answer then")
    })?;
    let id = waiting.id;
    link.say(&PersonCall::Answer { id, answer, by: None })?;
    match link.hear()? {
        PersonAnswer::Closed(Ok(closed)) if closed.answer.is_none() => {
            tellln!("yes, as the first of two; another must say yes too: {}", waiting.act);
            return Ok(ExitCode::SUCCESS);
        }
        PersonAnswer::Closed(Ok(_)) => {}
        PersonAnswer::Closed(Err(fault)) => return Err(Failure::fault(fault.to_string())),
        _ => return Err(Failure::fault("the daemon answered something that was not asked")),
    }
    if args.json {
        tellln!(
            "{}",
            serde_json::json!({ "answered": if args.no { "no" } else { "yes" }, "question": waiting })
        );
    } else if args.no {
        tellln!("no: {}", waiting.act);
    } else {
        tellln!("yes, once: {}", waiting.act);
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(wanted: &str) -> Failure {
    Failure::usage(format!("no question `{}` waits", visible(wanted)))
        .hint("`bailiwick approve` lists those that do; a question ends with its deadline, or with whoever asked")
}

fn among<'a>(all: &'a [Asked], wanted: &str) -> Result<&'a Asked, Failure> {
    let id = wanted.strip_prefix(HEAD).unwrap_or(wanted).to_ascii_lowercase();
    let mut found = all
        .iter()
        .filter(|one| !id.is_empty() && one.id.to_string().starts_with(&id));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "`{}` is the beginning of several questions",
            visible(wanted)
        ))
        .hint("`bailiwick approve` lists them")),
        (None, _) => Err(unknown(wanted)),
    }
}

fn list(all: &[Asked], json: bool) -> Done {
    let code = if all.is_empty() {
        ExitCode::SUCCESS
    } else {
        Exit::Waiting.into()
    };
    if json {
        tellln!("{}", serde_json::json!({ "waiting": all }));
        return Ok(code);
    }
    if all.is_empty() {
        tellln!("nothing waits for you");
    }
    let now = now();
    for one in all {
        tellln!("{HEAD}{}  {}", one.id, one.act);
        for line in &one.because {
            tellln!("    {line}");
        }
        tellln!(
            "    task {}, waits since {}, no in {}",
            one.task,
            span(now.0.saturating_sub(one.since.0)),
            span(one.deadline.0.saturating_sub(now.0))
        );
    }
    Ok(code)
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}
