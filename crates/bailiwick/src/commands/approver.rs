//! `bailiwick approver`: who else may answer the person's questions.

use std::process::ExitCode;

use bailiwick_model::visible;

use super::choose;
use crate::cli::{ApproverAddArgs, ApproverCommand};
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// Runs the command.
pub fn run(command: &ApproverCommand) -> Done {
    let mut link = Link::open(&Places::find()?)?;
    match command {
        ApproverCommand::Add(args) => return add(&mut link, args),
        ApproverCommand::List(args) => return list(&mut link, args.json),
        ApproverCommand::Remove { name } => {
            link.say(&PersonCall::Expel { name: name.clone() })?;
            choose::done(link.hear()?)?;
            tellln!("{} may not answer any more", visible(name));
        }
        ApproverCommand::Socket { folder, .. } => {
            let folder = folder.as_ref().map(std::path::absolute).transpose();
            let folder = folder.map_err(|e| Failure::usage(format!("the folder cannot be told: {e}")))?;
            link.say(&PersonCall::ApproveIn { folder: folder.clone() })?;
            choose::done(link.hear()?)?;
            match folder {
                Some(folder) => tellln!(
                    "others answer with `bailiwick approve --at {}`",
                    visible(&folder.join("approve.sock").display().to_string())
                ),
                None => tellln!("other users cannot answer any more"),
            }
        }
        ApproverCommand::Again => {
            link.say(&PersonCall::ProgramAgain)?;
            choose::done(link.hear()?)?;
            tellln!("the program of `approver` is asked again");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(link: &mut Link, args: &ApproverAddArgs) -> Done {
    link.say(&PersonCall::Enrol {
        name: args.name.clone(),
        user: args.user.clone(),
    })?;
    match link.hear()? {
        PersonAnswer::Enrolling(Some(told)) => {
            tellln!("{told}");
            crate::talk::talk(&format!(
                "bailiwick: {} signs in on the console by codes made from this; it is not shown again\n",
                visible(&args.name)
            ));
        }
        PersonAnswer::Enrolling(None) => {
            let user = args.user.as_deref().unwrap_or("");
            tellln!("{} may answer, as user {}", visible(&args.name), visible(user));
        }
        PersonAnswer::Failed(fault) => return Err(Failure::usage(fault.to_string())),
        _ => return Err(Failure::fault("the daemon answered something that was not asked")),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(link: &mut Link, json: bool) -> Done {
    link.say(&PersonCall::Enrolled)?;
    let PersonAnswer::Enrolled(all, folder) = link.hear()? else {
        return Err(Failure::fault("the daemon answered something that was not asked"));
    };
    if json {
        tellln!("{}", serde_json::json!({ "approvers": all, "folder": folder }));
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        tellln!("nobody but you");
    }
    for one in &all {
        let how = one
            .user
            .as_ref()
            .map_or_else(|| "by codes".to_owned(), |user| format!("user {}", visible(user)));
        let there = if one.there { ", there now" } else { "" };
        tellln!("{}  {how}{there}", visible(&one.name));
    }
    match folder {
        Some(folder) => tellln!(
            "other users answer by the socket in {}",
            visible(&folder.display().to_string())
        ),
        None if all.iter().any(|one| one.user.is_some()) => {
            crate::talk::talk(
                "bailiwick: other users have no socket yet: `bailiwick approver socket FOLDER` makes one\n",
            );
        }
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}
