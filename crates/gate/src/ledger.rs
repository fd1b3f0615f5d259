//! What the mediator needs of a log, a clock and a source of randomness: handed in, so that deciding has none.

use bailiwick_model::{Durability, Millis, Record};

/// An append-only log.
pub trait Ledger: Send + Sync {
    /// Appends a record: from here on its place in the log is fixed. How safe it is, the pending says.
    fn append(&self, record: &Record, durability: Durability) -> Result<Box<dyn Pending>, LedgerFault>;

    /// False when the log has failed: nothing that must be recorded may be allowed.
    fn is_healthy(&self) -> bool;
}

/// A record that has been appended.
pub trait Pending: Send {
    /// The record's place in the log, from 0.
    fn index(&self) -> u64;

    /// Waits until the record is as safe as was asked: at once for ordered, on disk for durable.
    fn wait(self: Box<Self>) -> Result<Receipt, LedgerFault>;

    /// Calls back instead of waiting, from the log's own thread; must return quickly.
    fn then(self: Box<Self>, call: Box<dyn FnOnce(Result<Receipt, LedgerFault>) + Send>);
}

/// Proof that a record is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The record's place in the log, from 0.
    pub index: u64,
    /// The signed note that covers it, once there is one.
    pub checkpoint: Option<String>,
}

/// Says why the log cannot take a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// The disk refused.
    #[error("the log cannot be written: {0}")]
    Io(String),
    /// The record is larger than an entry may be.
    #[error("a record of {0} bytes is too large for the log: at most 65535")]
    TooLarge(usize),
    /// The log has been closed.
    #[error("the log is closed")]
    Closed,
}

/// A clock.
pub trait Clock: Send + Sync {
    /// The time.
    fn now(&self) -> Millis;
}

/// A source of randomness that cannot be predicted.
pub trait Random: Send + Sync {
    /// Fills with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}
