//! Collecting the processes of a fence that have ended, while some of them are looked at as they start.
//!
//! Answers: has the program ended, and with what status? The kernel tells a stop of a traced child to whichever thread of its
//! parent waits first, and takes it for told. So nothing is collected here while a thread of the supervisor follows a child;
//! the program itself is collected as soon as it is not the one that is followed.
//! See: wait(2), ptrace(2); `wait_consider_task` in the kernel's `kernel/exit.c`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};

use crate::inside::status_of;
use crate::sys;

/// The processes of a fence, to the first of them.
#[derive(Debug)]
pub(crate) struct Children {
    program: Pid,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many threads of the program are followed.
    program: usize,
    /// How many others.
    others: usize,
    /// True when something was left uncollected meanwhile.
    left: bool,
    /// What ended while it was followed: the kernel has told that already.
    ended: BTreeMap<i32, i32>,
}

/// A process is followed as long as this lives.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    children: &'a Children,
    of_program: bool,
}

impl Children {
    /// The processes that begin with `program`.
    pub(crate) fn of(program: Pid) -> Self {
        Self {
            program,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a thread's stops from being collected.
    pub(crate) fn follow(&self, thread: i32) -> Following<'_> {
        let of_program = sys::trace::is_thread_of(thread, self.program.as_raw_nonzero().get());
        let mut state = self.state();
        let count = if of_program {
            &mut state.program
        } else {
            &mut state.others
        };
        *count = count.saturating_add(1);
        Following {
            children: self,
            of_program,
        }
    }

    /// Keeps the status of what ended while it was followed.
    pub(crate) fn ended(&self, process: i32, status: i32) {
        if process == self.program.as_raw_nonzero().get() {
            let mut state = self.state();
            state.ended.insert(process, status);
            state.left = true;
        }
    }

    /// Collects what has ended. The program's exit status, once it has: the exit code, or 128 and the number of the signal.
    pub(crate) fn collect(&self) -> Option<i32> {
        let mut state = self.state();
        if let Some(status) = state.ended.get(&self.program.as_raw_nonzero().get()) {
            return Some(*status);
        }
        if state.program == 0
            && let Ok(Some((_, status))) = waitpid(Some(self.program), WaitOptions::NOHANG)
            && let Some(status) = status_of(status)
        {
            return Some(status);
        }
        if state.program > 0 || state.others > 0 {
            state.left = true;
            return None;
        }
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
            if process == self.program
                && let Some(status) = status_of(status)
            {
                return Some(status);
            }
        }
        None
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        let mut state = self.children.state();
        let count = if self.of_program {
            &mut state.program
        } else {
            &mut state.others
        };
        *count = count.saturating_sub(1);
        if state.left && state.program == 0 && state.others == 0 {
            state.left = false;
            let _ = kill_process(rustix::process::getpid(), Signal::CHILD);
        }
    }
}
