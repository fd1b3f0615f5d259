//! `bailiwick attach` and `bailiwick stop`: comes back to a task with a terminal, or ends a task.

use std::process::ExitCode;

use super::choose;
use super::company::{Company, Hears, Left, say_alone};
use crate::cli::{AttachArgs, StopArgs};
use crate::failure::{Done, Failure};
use crate::protocol::{PersonAnswer, PersonCall, RunningTask};
use crate::terminal;

/// Somebody who comes back.
struct Comer;

impl Hears for Comer {
    fn hears(&mut self, answer: PersonAnswer) -> Result<(), Failure> {
        match answer {
            PersonAnswer::Attached(_)
            | PersonAnswer::Refused(_)
            | PersonAnswer::Waits(_)
            | PersonAnswer::Noticed(_) => Ok(()),
            answer => choose::done(answer),
        }
    }
}

/// Attends a task.
pub fn attach(args: &AttachArgs) -> Done {
    if terminal::size().is_none() {
        return Err(Failure::usage("there is no terminal to attend a task with")
            .hint("`attach` passes on what you type; start it from a terminal"));
    }
    let (mut link, status) = choose::daemon()?;
    let lasting = |task: &RunningTask| task.lasting;
    let mut tasks: Vec<RunningTask> = status
        .tasks
        .into_iter()
        .filter(|task| args.task.is_some() || lasting(task))
        .collect();
    tasks.extend(status.ended.into_iter().map(|(task, _)| task));
    let task = choose::among(&tasks, args.task.as_deref())?;
    let company = Company::keep(&link, true)?;
    link.say(&PersonCall::Attach { task: task.id })?;
    match company.accompany(&mut link, None, &mut Comer)? {
        Left::Ended { status, made, .. } => {
            made.iter().for_each(|told| crate::talk::talk(told));
            talkln!("bailiwick: task {} has ended with status {status}", task.id);
            Ok(ExitCode::from(u8::try_from(status.clamp(0, 255)).unwrap_or(255)))
        }
        Left::Alone => {
            say_alone(task.id);
            Ok(ExitCode::SUCCESS)
        }
        Left::TakenOver => {
            talkln!("bailiwick: task {} is attended from elsewhere now", task.id);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Ends a task.
pub fn stop(args: &StopArgs) -> Done {
    let (mut link, status) = choose::daemon()?;
    let task = choose::among(&status.tasks, Some(&args.task))?;
    link.say(&PersonCall::End {
        task: task.id,
        at_once: args.now,
    })?;
    choose::done(link.hear()?)?;
    tellln!("{} has ended", task.id);
    Ok(ExitCode::SUCCESS)
}
