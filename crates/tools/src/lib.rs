//! The tool gate: MCP in, MCP out.
//!
//! Answers: which tools of which servers may an agent call, with what, and what does it see of the answer? The agent sees
//! one server; behind it stand many, each started outside, in a fence of its own, when it is first needed.
//! Promises: P1 (each call, and each request of a server, has a permit of its own, spent before the effect and settled
//! after it), P4 (what cannot be read in one way, or passes a limit, is refused; without the mediator nothing goes), P5
//! (a name means one tool; what is judged is what is sent), P6 (what a rule keeps back, or hands out as a handle, does not
//! reach the agent), P8 (a definition that is new or has changed is shown to a person first), P11.
//! Trust: every byte of the agent is hostile, and so is every byte of a server. The process holds no secret, starts
//! nothing, reaches nothing by itself, and decides nothing.
//! Not here: deciding (`mediator`), starting servers (the daemon, by `Backing`), reaching remote ones (a relay, which is
//! a server like any other to the gate, behind the network gate).
//! See: Model Context Protocol, revisions 2024-11-05 to 2026-07-28; `docs/design/tools.md`.

#![expect(
    deprecated,
    reason = "the newest revision leaves sampling, roots, logging and subscriptions; the older ones, which nearly all speak, have them"
)]

mod arguments;
mod backing;
mod call;
mod catalog;
mod channel;
mod choice;
mod chosen;
mod config;
mod definition;
mod gate;
mod handles;
mod held;
mod http;
pub mod limits;
mod lines;
mod lock;
mod message;
mod names;
mod objection;
mod offers;
mod places;
mod refusal;
mod relay_inside;
mod relay_remote;
mod results;
mod reversed;
mod schema;
mod serve;
mod session;
mod strict;
mod survey;
mod upstream;

pub use backing::{Backing, Ends};
pub use bailiwick_line::ChannelFault;
pub use config::{Choosing, Config, ServerConfig, ServerLimits, Visible};
pub use definition::{Definition, DefinitionFault, Kind};
pub use lock::{Difference, Lock, LockFault, Offered, Pinned, PinnedDefinition};
pub use names::{OWN, wire_name};
pub use relay_inside::relay_inside;
pub use relay_remote::relay_remote;
pub use serve::{GateFault, run};
pub use survey::survey;
