//! Labels: joining them, and whether data with one may reach a sink.
//!
//! Answers: what is known of a thing made from two others? May it go there? How much can be told by a choice?
//! Promises: P6 (a tag that a sink is not cleared for is found), P12 (bits are rounded up, never down).
//! Trust: labels are set by the mediator alone; what a server says of its own answers can only raise them.
//! Not here: which sink is cleared for what (`mediator`, from rules), where labels begin, budgets of bits.

mod bits;
mod clearance;

pub use bits::Bits;
pub use clearance::{Clearance, excess, flows_to, join};
