//! The fence, tried from inside by what it is to stop: each probe first succeeds outside, then fails inside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod brokered;
mod desk;
mod errands;
mod files;
mod judged;
mod later;
mod network;
mod processes;
mod protected;
mod start;
mod supervised;
mod terminal;
mod work;
