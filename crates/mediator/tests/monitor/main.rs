//! The mediator as a whole: what gates may rely on, what holds for every request and state, and decisions as vectors.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

mod budgets;
mod differential;
mod flow;
mod gates;
mod grants;
mod house;
mod offers;
mod properties;
mod questions;
mod redeem;
mod standing;
mod talking;
mod totals;
mod vectors;
