//! Capabilities: does this authority cover that request, and is the narrower one really narrower?
//!
//! Promises: P3 (a child is at most its parent in every dimension; when that is not sure, the answer is no),
//! P4 (what an act does not plainly cover is not covered).
//! Trust: capabilities come from people's rules, grants and mandates; what is wanted from a parent may come from an
//! agent, which wants more than the parent has.
//! Not here: counting uses (`mediator`, which holds the state), rules and their layers (`policy`), tokens on the wire.

mod act;
mod attenuate;
mod held;
mod limits;

pub use act::{act_covers, act_within};
pub use attenuate::{Widening, attenuate};
pub use held::{Authority, Held, covers};
