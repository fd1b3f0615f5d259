//! The reference monitor: decide, commit, settle.
//!
//! Answers: may this request's effect take place, now, once, and is that on record?
//! Promises: P1 (a permit fits one request and is settled once), P3 (counts are taken before the effect), P4 (what is
//! missing or faulty is a deny with its own code; a question with nobody to ask is one), P10 (the record is as safe as
//! it must be before the permit is handed out), P14 (`decide` is a function of the request and the snapshot).
//! Trust: requests and frames come from gates that hostile bytes may have taken over. Rules, log, clock and randomness
//! are handed in and trusted.
//! Not here: what rules mean (`policy`), what a capability covers (`authority`), sockets, threads, files, the time.
//!
//! Reading order: `decide`, `snapshot`, `commit`, `task`, `session`, `questions`, `answers`, `grants`.

mod answers;
mod asked;
mod budget;
mod commit;
mod decide;
mod durability;
mod flow;
mod form;
mod grants;
mod monitor;
mod offers;
mod questions;
mod redeem;
mod rules;
mod session;
mod snapshot;
mod standing;
mod talk;
mod task;
mod totals;

pub use budget::Spent;
pub use decide::decide;
pub use monitor::{Mediator, PATIENCE, TaskFault, TaskSpec};
pub use questions::Watcher;
pub use rules::Rules;
pub use session::{Reply, Session, SessionFault};
pub use snapshot::{Grant, Origin, Purpose, Snapshot, Used};
pub use totals::Counts;
