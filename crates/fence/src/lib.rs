//! What the kernel enforces round a task: launcher and fence, at level `namespace`.
//!
//! Answers: how does a program start with exactly the files, network and processes that a plan names, and how is that
//! known for certain?
//! Promises: P1 (nothing is reached but what the plan names), P2 (never root), P9 (nothing of the daemon's is
//! inherited), P11 (all ends when either side closes), P13 (the fence in force is the fence asked for, or nothing
//! starts).
//! Trust: plans come from the daemon. What lies in granted trees, and the program itself, are hostile.
//! Not here: who decides what a plan holds (`mediator`, the daemon), and what is served to the fence (`proxy`).
//! All `unsafe` of this room stands in `sys`.
//! See: `docs/design/fence.md`.

mod ask;
mod brokered;
mod capabilities;
mod channel;
mod children;
mod clear;
mod clock;
mod confine;
pub mod doctor;
mod errand;
mod errands;
mod fault;
mod filter;
mod floor;
mod identity;
mod inside;
mod launcher;
mod limits;
mod lookout;
mod masks;
mod mounts;
mod network;
mod order;
mod process;
mod program;
mod root;
mod search;
mod serve;
mod sieve;
mod spare;
mod supervise;
mod sys;
mod syscalls;
mod table;
mod top;
mod trees;
mod wanted;

pub use brokered::{Outcome, Wanted};
pub use channel::Channel;
pub use clear::remove_tree;
pub use confine::confine_gate;
pub use errand::MAX_FILE;
pub use identity::{NOBODY, become_caller_under_sudo, identity};
pub use launcher::{Control, Launcher, Lines, Running, Started};
pub use serve::{Readings, inherited_channel, inherited_secret, run_launcher};

/// Keeps every descriptor that this process was started with, beyond the three standard ones, from the programs that it
/// starts. Fails where the kernel is older than Linux 5.11.
pub fn keep_descriptors_to_this_process() -> std::io::Result<()> {
    sys::close_at_exec_from(3)
}
