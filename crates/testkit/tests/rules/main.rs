//! The house rules, held by tests: who may depend on whom, what may stand where, and what must be written down.
//!
//! Everything here reads files, and asks `cargo metadata`. A rule that fails says what to change, or which table to
//! change with a reason.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests give up loudly: a fault in them is a failed test"
)]

mod documents;
mod edges;
mod sources;
mod tree;
