//! Keeps a program that starts and the thread that looks at it on one processor for that moment.
//!
//! The two take turns: the one waits while the other goes on. On two processors each turn wakes a processor that has gone to sleep,
//! which takes as long as all the rest. Where this cannot be had, a start takes longer, and that is all.
//! Not here: what is looked at (`start`).
//! See: sched_setaffinity(2).

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread of the agent's and this one, on one processor as long as this lives.
pub(super) struct Together {
    /// What the agent's thread had.
    theirs: Option<(Pid, CpuSet)>,
    /// What this one had.
    own: Option<CpuSet>,
}

impl Together {
    /// Has a thread that waits go on here, where this one runs.
    pub(super) fn with(thread: i32) -> Self {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        let hold = |whose: Option<Pid>| {
            let had = sched_getaffinity(whose).ok()?;
            sched_setaffinity(whose, &here).ok().map(|()| had)
        };
        let own = hold(None);
        let thread = Pid::from_raw(thread).filter(|_| own.is_some());
        let theirs = thread.and_then(|thread| hold(Some(thread)).map(|had| (thread, had)));
        Self { theirs, own }
    }

    /// Lets it go on wherever it could before, by the number that it has now: a thread that starts a program takes its process's.
    pub(super) fn let_go(&mut self, process: i32) {
        if let Some((_, had)) = self.theirs.take()
            && let Some(process) = Pid::from_raw(process)
        {
            let _ = sched_setaffinity(Some(process), &had);
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        if let Some((thread, had)) = self.theirs.take() {
            let _ = sched_setaffinity(Some(thread), &had);
        }
        if let Some(had) = self.own.take() {
            let _ = sched_setaffinity(None, &had);
        }
    }
}
