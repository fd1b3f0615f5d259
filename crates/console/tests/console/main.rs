//! The console over a real socket, with a desk that is made up: what it shows, what it takes, what it refuses.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test that cannot go on has failed"
)]

mod answers;
mod attacks;
mod client;
mod fake;
mod pages;
