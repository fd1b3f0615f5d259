//! The questions that wait, on a terminal: looked at, answered; grants narrowed and revoked; tasks ended.
//!
//! Answers: what does a person see of a question, and which key is an answer to it?
//! Promises: P8 (a question stands there whole; a yes is taken only after its end has been on the screen, from a key that was
//! pressed after that; the sentence of the yes is shown before it; the agent's words stand apart, and draw nothing but
//! themselves), P11 (grants are narrowed and revoked from here).
//! Trust: all texts are the agent's until they have been through `cells`; keys come from the person at the terminal.
//! Not here: making questions and offers, keeping grants (`mediator`); the way to the daemon (whoever hands in a `Desk`).
//!
//! `state`, `keys` and `draw` are a function of what they are handed: all that is tested without a terminal. `screen` is the
//! terminal.

mod cells;
mod draw;
mod entry;
mod guard;
mod hints;
mod keys;
mod page;
mod paper;
mod questions;
mod rows;
mod screen;
mod state;
mod terms;
mod times;

pub use cells::safe;
pub use draw::draw;
pub use guard::{Code, HELD, Key, LOOK};
pub use keys::{key, paste};
pub use screen::run;
pub use state::{Effect, Outcome, Snapshot, State};
pub use times::{local, next, span};
