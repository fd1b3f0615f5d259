//! Which task is meant: the one that is named, the only one here, or the only one there is.

use bailiwick_model::AbsPath;

use crate::failure::Failure;
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{DaemonStatus, PersonAnswer, PersonCall, RunningTask};
use bailiwick_model::visible;

/// Connects to the daemon and asks how it does; a failure when none runs, since then there is no task.
pub fn daemon() -> Result<(Link, DaemonStatus), Failure> {
    let none = || Failure::usage("no task runs").hint("`bailiwick run --detach -- PROGRAM` starts one");
    let mut link = Link::to_running(&Places::find()?)?.ok_or_else(none)?;
    link.say(&PersonCall::Status)?;
    match link.hear()? {
        PersonAnswer::Status(status) => Ok((link, *status)),
        _ => Err(Failure::fault("the daemon answered something that was not asked")),
    }
}

/// Chooses among tasks. `wanted` is an id or its beginning.
pub fn among(tasks: &[RunningTask], wanted: Option<&str>) -> Result<RunningTask, Failure> {
    let fits = |task: &&RunningTask| wanted.is_none_or(|wanted| task.id.to_string().starts_with(wanted));
    let found: Vec<&RunningTask> = tasks.iter().filter(fits).collect();
    let here = super::run::here().ok();
    let is_here = |task: &&&RunningTask| {
        let root = AbsPath::new(&task.context).ok();
        root.zip(here.as_ref()).is_some_and(|(root, here)| root.holds(here))
    };
    let near: Vec<&RunningTask> = found.iter().filter(is_here).copied().collect();
    let list = |tasks: &[&RunningTask]| {
        let lines = tasks.iter().map(|task| {
            let command = visible(&task.command.join(" "));
            format!("{}  {}  {command}", task.id, visible(&task.context))
        });
        lines.collect::<Vec<_>>().join("\n        ")
    };
    match (found.as_slice(), near.as_slice(), wanted) {
        ([one], ..) | (_, [one], None) => Ok((*one).clone()),
        ([], _, Some(wanted)) => {
            Err(Failure::usage(format!("no task has the id `{}`", visible(wanted)))
                .hint("`bailiwick status` lists them"))
        }
        ([], _, None) => Err(Failure::usage("no task runs")),
        (several, ..) => Err(Failure::usage("several tasks run: say which one").hint(list(several))),
    }
}

/// Insists on `done`.
pub fn done(answer: PersonAnswer) -> Result<(), Failure> {
    match answer {
        PersonAnswer::Done => Ok(()),
        PersonAnswer::Failed(fault) => {
            Err(Failure::fault(bailiwick_model::visible_lines(&fault.to_string())).hint(fault.hint))
        }
        _ => Err(Failure::fault("the daemon answered something that was not asked")),
    }
}
