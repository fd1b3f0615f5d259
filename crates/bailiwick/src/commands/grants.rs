//! `bailiwick grants`: which yeses hold, what they cover, how often they were used; gives, narrows and revokes them.
//!
//! Promises: P8 (a grant is listed with the sentence that was shown before the yes), P11 (revoking takes hold at the next effect
//! and cuts off what goes on).

use std::process::ExitCode;

use bailiwick_gate::desk::{Granted, Scope, moment};
use bailiwick_model::{GrantId, Millis, visible};

use crate::cli::{GrantsCommand, GrantsGiveArgs, TermsArgs};
use crate::daemon::SteadyClock;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use crate::terms;

/// Runs the command.
pub fn run(command: &GrantsCommand) -> Done {
    match command {
        GrantsCommand::List(args) => list(args.json),
        GrantsCommand::Give(args) => give(args),
        GrantsCommand::Narrow { grant, terms } => narrow(grant, terms),
        GrantsCommand::Revoke { grant } => revoke(grant),
    }
}

fn now() -> Millis {
    bailiwick_gate::Clock::now(&SteadyClock::default())
}

fn strange() -> Failure {
    Failure::fault("the daemon answered something that was not asked")
}

fn all(link: &mut Link) -> Result<Vec<Granted>, Failure> {
    link.say(&PersonCall::Grants)?;
    match link.hear()? {
        PersonAnswer::Grants(all) => Ok(all),
        _ => Err(strange()),
    }
}

/// The daemon: where none runs, one is started, for grants outlive it.
fn daemon() -> Result<Link, Failure> {
    Link::open(&Places::find()?)
}

fn list(json: bool) -> Done {
    let granted = all(&mut daemon()?)?;
    if json {
        tellln!("{}", serde_json::json!({ "grants": granted }));
        return Ok(ExitCode::SUCCESS);
    }
    if granted.is_empty() {
        tellln!("nothing is granted beyond the rules");
    }
    for one in &granted {
        tell(one);
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(one: &Granted) {
    tellln!("{}  {}", one.id, visible(&one.sentence));
    for act in &one.acts {
        tellln!("    covers `{}`", visible(&act.to_string()));
    }
    let times = match (one.terms.count, one.used) {
        (Some(count), used) => format!("used {used} of {count} times"),
        (None, 1) => "used once".to_owned(),
        (None, used) => format!("used {used} times"),
    };
    tellln!(
        "    {}, {times}, given {} by {}",
        visible(&one.context.to_string()),
        moment(one.given),
        visible(&one.by.join(" and "))
    );
}

fn among(all: &[Granted], wanted: &str) -> Result<GrantId, Failure> {
    let mut found = all
        .iter()
        .filter(|one| !wanted.is_empty() && one.id.to_string().starts_with(wanted));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "`{}` is the beginning of several grants",
            visible(wanted)
        ))),
        (None, _) => Err(Failure::usage(format!("there is no grant `{}`", visible(wanted)))
            .hint("`bailiwick grants list` shows those that hold")),
    }
}

fn narrow(wanted: &str, terms: &TermsArgs) -> Done {
    let mut link = daemon()?;
    let grant = among(&all(&mut link)?, wanted)?;
    let terms = terms::read(terms, Scope::Task, now())?;
    if terms.count.is_none() && terms.until.is_none() {
        return Err(Failure::usage(
            "say what is to be left of it: `--times N`, `--for TIME` or `--until HH:MM`",
        ));
    }
    link.say(&PersonCall::Narrow { grant, terms, by: None })?;
    match link.hear()? {
        PersonAnswer::Granted(Ok(Some(left))) => tell(&left),
        PersonAnswer::Granted(Err(fault)) => return Err(Failure::usage(fault.to_string())),
        _ => return Err(strange()),
    }
    Ok(ExitCode::SUCCESS)
}

fn revoke(wanted: &str) -> Done {
    let mut link = daemon()?;
    let grant = among(&all(&mut link)?, wanted)?;
    link.say(&PersonCall::Revoke { grant, by: None })?;
    match link.hear()? {
        PersonAnswer::Granted(Ok(None)) => tellln!("revoked {grant}: what went on under it is cut off"),
        PersonAnswer::Granted(Err(fault)) => return Err(Failure::fault(fault.to_string())),
        _ => return Err(strange()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives a grant before anything was asked: against the questions that the context's rules would ask about the act.
fn give(args: &GrantsGiveArgs) -> Done {
    let call = PersonCall::Grant {
        directory: super::run::here()?,
        act: args.act.clone(),
        terms: terms::read(&args.terms, Scope::Context, now())?,
    };
    let mut link = daemon()?;
    link.say(&call)?;
    match link.hear()? {
        PersonAnswer::Granted(Ok(Some(granted))) => {
            if args.json {
                tellln!("{}", serde_json::json!({ "granted": granted }));
            } else {
                tell(&granted);
            }
            Ok(ExitCode::SUCCESS)
        }
        PersonAnswer::Granted(Err(fault)) => Err(Failure::usage(fault.to_string())
            .hint("a grant answers what a rule asks: `bailiwick can` says which rule that would be")),
        _ => Err(strange()),
    }
}
