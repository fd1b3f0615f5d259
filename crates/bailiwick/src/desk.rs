//! The approving side over the daemon's path socket: what front ends are built on.
//!
//! Answers: how does a front end reach the daemon, also one that comes, goes, or is another than before?
//! Promises: P8 (answers pass as they were given), P11 (revocation goes the same way). Trust: the daemon is the person's own;
//! it turns away whoever lives in a fence.
//! Not here: showing anything (`tui`, `console`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Answer, Approver, Asked, AtWork, Closed, Desk, DeskFault, Granted, Known, Terms};
use bailiwick_model::{DecisionId, GrantId, TaskId, visible, visible_lines};

use crate::daemon::task;
use crate::failure::Failure;
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// How often a daemon is looked for that is not there.
const LOOK: Duration = Duration::from_millis(100);

/// Where the number of the daemon ends in a moment, and its own count begins.
const COUNT_BITS: u32 = 40;

/// The desk of the person whose daemon this is. Every call has a connection of its own: calls wait for none other, and a
/// daemon that was replaced is found at the next.
#[derive(Debug, Clone)]
pub struct PathDesk {
    places: Places,
    /// The socket for approvers of another person, where it is their desk.
    at: Option<PathBuf>,
}

/// The person who runs this program, as the kernel knows them.
pub fn person() -> Approver {
    Approver {
        name: task::principal(),
        by: Known::User,
    }
}

impl PathDesk {
    /// The desk of the daemon that keeps its state there. None need run yet.
    pub fn new(places: Places) -> Self {
        Self { places, at: None }
    }

    /// The desk of another person who has enrolled this one.
    pub fn at(places: Places, socket: &Path) -> Self {
        let at = Some(socket.to_owned());
        Self { places, at }
    }

    fn link(&self) -> Result<Option<Link>, DeskFault> {
        match &self.at {
            Some(socket) => Link::at(socket).map(Some).map_err(fault),
            None => Link::to_running(&self.places).map_err(fault),
        }
    }

    /// At another's desk there are questions alone: the daemon takes nothing else there.
    fn is_own(&self) -> Result<(), DeskFault> {
        match self.at {
            Some(_) => Err(DeskFault::Refused(
                "grants and tasks are for the person whose they are".into(),
            )),
            None => Ok(()),
        }
    }

    fn call(&self, call: &PersonCall) -> Result<PersonAnswer, DeskFault> {
        let Some(mut link) = self.link()? else {
            return Err(DeskFault::Fault(
                "no daemon runs: nothing waits and nothing runs".into(),
            ));
        };
        link.say(call).map_err(fault)?;
        link.hear().map_err(fault)
    }
}

fn fault(failure: Failure) -> DeskFault {
    DeskFault::Fault(match failure.hint {
        Some(hint) if !hint.is_empty() => format!("{}: {hint}", failure.message),
        _ => failure.message,
    })
}

fn unasked() -> DeskFault {
    DeskFault::Fault("the daemon answered something that was not asked".into())
}

impl Desk for PathDesk {
    fn asked(&self) -> Result<Vec<Asked>, DeskFault> {
        match self.link()? {
            Some(mut link) => link.questions().map_err(fault),
            None => Ok(Vec::new()),
        }
    }

    fn answer(&self, question: DecisionId, answer: &Answer, by: &Approver) -> Result<Closed, DeskFault> {
        let call = PersonCall::Answer {
            id: question,
            answer: answer.clone(),
            by: Some(by.clone()),
        };
        match self.call(&call)? {
            PersonAnswer::Closed(closed) => closed.map(|closed| *closed),
            _ => Err(unasked()),
        }
    }

    fn granted(&self) -> Result<Vec<Granted>, DeskFault> {
        if self.at.is_some() {
            return Ok(Vec::new());
        }
        let Some(mut link) = self.link()? else {
            return Ok(Vec::new());
        };
        link.say(&PersonCall::Grants).map_err(fault)?;
        match link.hear().map_err(fault)? {
            PersonAnswer::Grants(all) => Ok(all),
            _ => Err(unasked()),
        }
    }

    fn narrow(&self, grant: GrantId, terms: &Terms) -> Result<Granted, DeskFault> {
        self.is_own()?;
        let call = PersonCall::Narrow {
            grant,
            terms: *terms,
            by: None,
        };
        match self.call(&call)? {
            PersonAnswer::Granted(left) => left?.map(|left| *left).ok_or_else(unasked),
            _ => Err(unasked()),
        }
    }

    fn revoke(&self, grant: GrantId) -> Result<(), DeskFault> {
        self.is_own()?;
        match self.call(&PersonCall::Revoke { grant, by: None })? {
            PersonAnswer::Granted(left) => left.map(drop),
            _ => Err(unasked()),
        }
    }

    fn at_work(&self) -> Result<Vec<AtWork>, DeskFault> {
        if self.at.is_some() {
            return Ok(Vec::new());
        }
        let Some(mut link) = self.link()? else {
            return Ok(Vec::new());
        };
        link.say(&PersonCall::Status).map_err(fault)?;
        let PersonAnswer::Status(status) = link.hear().map_err(fault)? else {
            return Err(unasked());
        };
        let shown = |text: &String| visible(text);
        let at_work = status.tasks.iter().map(|running| AtWork {
            id: running.id,
            context: visible(&running.context),
            command: running.command.iter().map(shown).collect(),
            started: running.started,
        });
        Ok(at_work.collect())
    }

    fn end(&self, task: TaskId) -> Result<(), DeskFault> {
        self.is_own()?;
        match self.call(&PersonCall::End { task, at_once: false })? {
            PersonAnswer::Done => Ok(()),
            PersonAnswer::Failed(fault) => Err(DeskFault::Fault(visible_lines(&fault.to_string()))),
            _ => Err(unasked()),
        }
    }

    /// A moment holds which daemon counted it: where another runs now, or none, something has changed. Zero is the moment of
    /// no daemon.
    fn changed(&self, seen: u64, patience: Duration, by: &Approver) -> Result<u64, DeskFault> {
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let Some(mut link) = self.link().inspect_err(|_| std::thread::sleep(LOOK.min(left)))? else {
                if seen != 0 || left.is_zero() {
                    return Ok(0);
                }
                std::thread::sleep(LOOK.min(left));
                continue;
            };
            let daemon = link.daemon().map_err(fault)?;
            let same = seen >> COUNT_BITS == daemon;
            let mask = (1 << COUNT_BITS) - 1;
            let patience = if same { left } else { Duration::ZERO };
            let call = PersonCall::Changed {
                seen: seen & mask,
                patience: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
                by: Some(by.clone()),
            };
            return match link.say(&call).and_then(|()| link.hear()) {
                Ok(PersonAnswer::Changed(count)) => Ok(daemon << COUNT_BITS | count & mask),
                Ok(_) => Err(unasked()),
                // It has ended meanwhile.
                Err(_) => Ok(0),
            };
        }
    }
}
