//! Rules about tools of servers: which calls a rule admits, by the values of their arguments.
//!
//! Answers: are these arguments what the rule speaks of, and does its condition hold for them?
//! Promises: P4 (a missing, surplus, mistyped or unreadable argument is no match; a rule that can never hold is an error),
//! P5 (values are compared as what they are, however they were written).
//! Trust: rules are people's; schemas are servers', pinned by a person; arguments are the agent's.
//! Not here: schemas in full, handles and results (`tools`), totals (`mediator`).

mod among;
pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod expression;
pub(crate) mod given;
mod hold;
pub(crate) mod judging;
pub(crate) mod lexer;
pub(crate) mod lock;
pub(crate) mod money;
mod parts;
pub(crate) mod pinned;
pub(crate) mod server;
pub(crate) mod shape;
mod shown;
pub(crate) mod terms;
pub(crate) mod view;
pub(crate) mod when;
pub(crate) mod written;
