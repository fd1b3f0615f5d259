//! The log: append, checkpoint, receipt, offline verify.
//!
//! Answers: is this event on record, how safely, and has the record been changed since?
//! Promises: P10 (a record is in the log before its effect; durable ones on disk before it, ordered ones within 50 ms;
//! changing, dropping, reordering or cutting is found with the public key), P9 (the log's key is never printed).
//! Trust: records hold names that an agent chose: they stand as JSON text, escaped, one entry each. The files may be
//! changed by anyone with access to the disk, in order to hide or to forge an event: whatever is read back is checked.
//! Going back to an older state as a whole is found only with a later checkpoint (`since`).
//! Not here: which events are recorded and how safely (`mediator`), the form of a record (`model`).
//! See: docs/design/log.md; C2SP tlog-tiles, tlog-checkpoint, signed-note, tlog-proof; RFC 6962.

mod disk;
mod folder;
mod key;
mod log;
mod note;
mod open;
mod proof;
mod queue;
mod read;
mod tail;
mod tile;
mod tree;
mod verify;
mod writer;

pub use key::{KeyFault, SigningKey, VerifierKey};
pub use log::{Log, LogFault, Opened};
pub use proof::{ProofFault, inclusion_proof, verify_inclusion};
pub use read::{ReadFault, Records, read};
pub use verify::{Tampering, Verified, VerifyFault, verify};

#[cfg(test)]
extern crate self as bailiwick_ledger;

#[cfg(test)]
#[path = "../tests/specimen/mod.rs"]
mod specimen;
