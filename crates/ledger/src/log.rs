//! A log that is open for appending.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bailiwick_gate::{Clock, Ledger, LedgerFault, Pending};
use bailiwick_model::{Durability, Event, Record};

use crate::disk::{Disk, RealDisk};
use crate::key::SigningKey;
use crate::open::{self, Recovered};
use crate::queue::{Order, Queue};
use crate::tile::MAX_ENTRY;
use crate::writer::{Turnover, Writer};

/// A log that is open for appending. Clones are the same log; the last one to go closes it.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What was found at opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// How many records there were.
    pub size: u64,
    /// How many bytes a crash had left unfinished at the end; they were cut off.
    pub recovered_bytes: u64,
}

/// Says why a log cannot be opened or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFault {
    /// The folder or a file in it cannot be used.
    #[error("the log `{path}` cannot be used: {cause}")]
    Unusable {
        /// The folder or file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// Another process has it open.
    #[error("the log `{path}` is in use by another process")]
    Busy {
        /// The folder.
        path: String,
    },
    /// Its content was changed, or the disk lost what it had kept.
    #[error("the log `{path}` is damaged at record {record}: {cause}")]
    Damaged {
        /// The folder.
        path: String,
        /// The first record that is not as it was.
        record: u64,
        /// What was found.
        cause: String,
    },
    /// Its published checkpoint was changed, or is of another key.
    #[error("the checkpoint of the log `{path}` does not hold: {cause}")]
    Checkpoint {
        /// The folder.
        path: String,
        /// Why.
        cause: String,
    },
    /// The disk refused.
    #[error("the log cannot be written: {0}")]
    Io(String),
    /// The log has been closed.
    #[error("the log is closed")]
    Closed,
}

impl Log {
    /// Opens the log in a folder, or begins one; the folder is made for its owner alone.
    ///
    /// What a crash left half written at the end is cut off. A log that was changed is refused, not repaired. The
    /// opening itself is the first thing on record.
    pub fn open(
        folder: &Path,
        key: SigningKey,
        origin: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Opened), LogFault> {
        Self::open_on(Arc::new(RealDisk), Turnover::default(), folder, key, origin, clock)
    }

    /// Opens a log on a disk that may be a test's.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        turnover: Turnover,
        folder: &Path,
        key: SigningKey,
        origin: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Opened), LogFault> {
        let Recovered { on_disk, opened } = open::recover(disk, folder, key, origin)?;
        let queue = Arc::new(Queue::new(opened.size, origin));
        let writer = Writer::new(queue.clone(), on_disk, turnover);
        let writer = thread::Builder::new().name("log".into()).spawn(move || writer.run());
        let writer = writer.map_err(|error| LogFault::Io(error.to_string()))?;
        let log = Self(Arc::new(Inner {
            queue,
            writer: Mutex::new(Some(writer)),
        }));
        let event = Event::Opened {
            build: env!("CARGO_PKG_VERSION").into(),
            recovered_bytes: opened.recovered_bytes,
        };
        let record = Record {
            time: clock.now(),
            task: None,
            event,
        };
        let written = log.append(&record, Durability::Durable).and_then(Pending::wait);
        written.map_err(|fault| LogFault::Io(cause_of(fault)))?;
        log.checkpoint()?;
        Ok((log, opened))
    }

    /// Writes all that was appended, publishes the signed checkpoint that covers it with all its tiles, and returns it.
    pub fn checkpoint(&self) -> Result<String, LogFault> {
        self.order(true)
    }

    /// Writes all that was appended so that it stays, and returns the signed checkpoint that covers it: it can be verified
    /// against from then on. It is published, as [`Self::checkpoint`] does, within a second.
    pub fn signed(&self) -> Result<String, LogFault> {
        self.order(false)
    }

    fn order(&self, publish: bool) -> Result<String, LogFault> {
        let (order, answer) = Order::new(publish);
        let mut state = self.0.queue.lock();
        if state.closed {
            return Err(LogFault::Closed);
        }
        state.orders.push(order);
        drop(state);
        self.0.queue.wake();
        answer.recv().map_err(|_| LogFault::Closed)?.map_err(LogFault::Io)
    }

    /// How many records have a place in it.
    pub fn size(&self) -> u64 {
        self.0.queue.lock().next
    }

    /// Writes all that was appended, publishes a last checkpoint, and lets the folder go. Later appends, through any
    /// clone, are refused.
    pub fn close(self) {
        self.0.close();
    }
}

impl Inner {
    fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.wake();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A callback may hold the last clone: the writer cannot wait for itself, and ends by itself.
        if let Some(writer) = writer.filter(|writer| writer.thread().id() != thread::current().id()) {
            let _ = writer.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({} records)", self.size())
    }
}

impl Ledger for Log {
    fn append(&self, record: &Record, durability: Durability) -> Result<Box<dyn Pending>, LedgerFault> {
        let bytes = serde_json::to_vec(record).map_err(|error| LedgerFault::Io(error.to_string()))?;
        if bytes.len() > MAX_ENTRY {
            return Err(LedgerFault::TooLarge(bytes.len()));
        }
        Ok(Box::new(self.0.queue.push(bytes, durability)?))
    }

    fn is_healthy(&self) -> bool {
        let state = self.0.queue.lock();
        state.fault.is_none() && !state.closed
    }
}

fn cause_of(fault: LedgerFault) -> String {
    match fault {
        LedgerFault::Io(cause) => cause,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
