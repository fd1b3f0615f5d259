//! What tests share: a scripted language model, servers that record, the product in a fresh home, real agents.
//!
//! Answers: how does a whole-way test start the product, what drives the agent in it, and what was heard outside?
//! Trust: nothing here is part of the product. What an agent sends to these servers is recorded and never acted on.
//! Not here: the house rules (`tests/rules`), probes of the fence (`fence`'s own tests).

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness for tests gives up loudly: a fault in it is a failed test"
)]

mod agents;
mod chromium;
mod container;
mod dns;
mod git_server;
mod origin;
mod product;
mod registries;
mod root;
mod scripted_model;
mod skip;
mod tool_server;
mod user;
mod web;

pub use agents::{Agent, claude, codex, gemini, goose, opencode};
pub use chromium::{Chromium, Look, Tab};
pub use dns::DnsSink;
pub use git_server::GitServer;
pub use origin::{Listener, Origin};
pub use product::{Bailiwick, Done, at_level_process, finish, kits, level};
pub use registries::registries;
pub use root::Root;
pub use scripted_model::{ModelRequest, ScriptedModel, Turn};
pub use skip::skip;
pub use tool_server::tool_server;
pub use user::{ORDINARY_UID, is_root, ordinary};
pub use web::{Answer, Heard};
