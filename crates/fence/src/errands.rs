//! The daemon's side of errands: what it asks of the first process while another thread waits for the program's end.
//!
//! Promises: P4 (an errand of a task that has ended, or whose answer does not come, fails). Not here: doing them
//! (`errand`).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the first process may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of an errand: the descriptor that came along, or why it failed.
pub(crate) type Outcome = Result<Option<OwnedFd>, String>;

/// The errands that have not been answered. Shared by all handles on one task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errands {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    ended: bool,
    last: u64,
    waiting: HashMap<u64, SyncSender<Outcome>>,
}

impl Errands {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an errand under a number of its own, and waits for what becomes of it.
    pub fn ask(&self, send: impl FnOnce(u64) -> io::Result<()>) -> io::Result<Option<OwnedFd>> {
        let (answer, answered) = sync_channel(1);
        let call = {
            let mut open = self.open();
            if open.ended {
                return Err(gone());
            }
            open.last = open.last.wrapping_add(1);
            let call = open.last;
            open.waiting.insert(call, answer);
            // Sent while the lock is held: frames of several threads do not mix.
            if let Err(error) = send(call) {
                open.waiting.remove(&call);
                return Err(error);
            }
            call
        };
        match answered.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome.map_err(io::Error::other),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                self.open().waiting.remove(&call);
                Err(io::Error::other("the fence does not answer"))
            }
        }
    }

    /// Calls while no errand is being sent: frames of several threads do not mix.
    pub fn alone<T>(&self, send: impl FnOnce() -> T) -> T {
        let _open = self.open();
        send()
    }

    /// Hands an answer to whoever waits for it.
    pub fn answer(&self, call: u64, outcome: Outcome) {
        if let Some(asker) = self.open().waiting.remove(&call) {
            let _ = asker.send(outcome);
        }
    }

    /// The task has ended: nobody is answered any more.
    pub fn end(&self) {
        let mut open = self.open();
        open.ended = true;
        open.waiting.clear();
    }
}

fn gone() -> io::Error {
    io::Error::other("the task has ended")
}
