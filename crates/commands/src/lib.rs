//! The command room: what an argv means.
//!
//! Answers: which program, which subcommand, which options and operands are these words, what do they carry, and which
//! variables steer them?
//! Promises: P5 (one normal form for every spelling), P4 (what a grammar does not know is marked, and counts as the
//! stricter of what it may be).
//! Trust: words, variables and lines are the agent's. Grammars are shipped, or the person's own: never a project's.
//! Not here: catching a start (`fence`), rules (`policy`), patterns over normal forms (`model`).
//! See: docs/design/commands.md for the format of grammars; POSIX, "Utility Argument Syntax"; getopt_long(3).

mod argv;
mod carried;
mod grammar;
mod options;
mod reading;
mod shell;
mod steering;

pub use grammar::{GrammarFault, check_examples};
pub use reading::Grammars;
pub use shell::{Part, Place};
