//! What a process of the agent's may do to others, and what it sees of them.
//!
//! Promises: P1. Others are those that do not descend from the supervisor; the person's own programs among them run as
//! the same user, so that the kernel would let the agent signal them, slow them down and read their command lines.
//! Trust: process numbers are the agent's to choose. They stand in registers: what was looked at is what the kernel
//! acts on, but for a number that is given to another process in between.
//! See: kill(2), sched_setscheduler(2), prlimit(2), proc(5).

use std::path::{Component, Path};

use rustix::io::Errno;

use super::caller::{Caller, descendants, descends, group_of};
use super::scope::May;
use super::{Done, Supervisor};
use crate::root::PROC_HIDDEN;

fn own_number() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

fn is_own(process: i32) -> bool {
    descends(process, own_number())
}

/// The process whose folder in `/proc` a path is in.
fn process_in(path: &Path) -> Option<i32> {
    let mut steps = path.strip_prefix("/proc").ok()?.components();
    match steps.next()? {
        Component::Normal(name) => name.to_str()?.parse().ok(),
        _ => None,
    }
}

/// True for a folder in `/proc` that belongs to a process of the agent's.
pub(super) fn is_own_proc(path: &Path) -> bool {
    process_in(path).is_some_and(is_own)
}

/// What tells of other processes' locks and shared memory.
const OF_OTHERS: [&str; 2] = ["locks", "sysvipc"];

/// What may be done in `/proc`: everything that the kernel allows for the agent's own processes, but for the machine's
/// connections; of the rest, what concerns no process can be read.
pub(super) fn may_in_proc(path: &Path) -> May {
    let network = path.components().any(|step| step.as_os_str() == "net");
    let machine = PROC_HIDDEN
        .iter()
        .chain(&OF_OTHERS)
        .any(|name| path.starts_with(Path::new("/proc").join(name)));
    match process_in(path) {
        _ if network || machine => May::Nothing,
        Some(process) if is_own(process) => May::Write,
        Some(_) => May::Nothing,
        None => May::Read,
    }
}

/// What tells of any process what everybody may know.
const OPEN: [&str; 4] = ["stat", "status", "cmdline", "comm"];

/// The same where the process table is the fence's own: its first process is the supervisor, whose memory is nobody's.
pub(super) fn may_in_own_proc(path: &Path) -> May {
    match process_in(path) {
        Some(process) if is_own(process) => May::Write,
        Some(_)
            if path
                .file_name()
                .is_some_and(|name| OPEN.iter().any(|open| name == *open)) =>
        {
            May::Read
        }
        Some(_) => May::Nothing,
        None => May::Read,
    }
}

/// True when a signal waits for a thread that has a handler for it, and does not block it.
pub(super) fn has_signal(thread: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & set("SigCgt:") != 0
}

impl Supervisor {
    /// Another process, by its number; 0 is the caller itself.
    pub(super) fn other(&self, _caller: &Caller, process: i32) -> Result<Done, Errno> {
        match process {
            0 => Ok(Done::GoOn),
            process if process > 0 && is_own(process) => Ok(Done::GoOn),
            process if process > 0 => Err(Errno::SRCH),
            _ => Err(Errno::INVAL),
        }
    }

    /// A signal to a process, or (negative) to a process group.
    pub(super) fn signal(&self, caller: &Caller, to: i32) -> Result<Done, Errno> {
        let grouped = caller.held.call == libc::SYS_kill;
        match to {
            // Its own group; a session of its own is what the program was started with.
            0 if grouped => Ok(Done::GoOn),
            // Everything: the kernel's scope keeps it inside, where it has one.
            -1 if grouped && self.charge.signals_stay => Ok(Done::GoOn),
            -1 if grouped => Err(Errno::PERM),
            group if grouped && group < 0 => {
                // A group lies in one session, and the program was started in one of its own: with one member of the
                // agent's, all are.
                let number = group.saturating_neg();
                let own = descendants(own_number())
                    .into_iter()
                    .any(|member| group_of(member) == Some(number));
                if own { Ok(Done::GoOn) } else { Err(Errno::SRCH) }
            }
            process => self.other(caller, process),
        }
    }

    pub(super) fn limit(&self, caller: &Caller) -> Result<Done, Errno> {
        // Without new limits it is a question.
        if caller.argument(2) == 0 {
            return Ok(Done::GoOn);
        }
        self.other(caller, caller.number(0))
    }

    /// Priorities: of a process, a group, or all of a user's, which are the person's.
    pub(super) fn priority(&self, caller: &Caller) -> Result<Done, Errno> {
        let by_process = match caller.held.call {
            libc::SYS_setpriority => 0,
            // `IOPRIO_WHO_PROCESS`.
            _ => 1,
        };
        match (caller.number(0), caller.number(1)) {
            (kind, who) if kind == by_process => self.other(caller, who),
            (kind, 0) if kind == by_process.saturating_add(1) => Ok(Done::GoOn),
            _ => Err(Errno::PERM),
        }
    }
}
