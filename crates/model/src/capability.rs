//! Capabilities: authority to do acts under constraints. The one type behind a rule, a grant, a line of a mandate,
//! an offer and a token. `covers` and `attenuate` are `authority`'s.

use crate::act::Act;
use crate::id::Millis;
use crate::limits::Limits;

/// Authority to do acts under constraints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// What may be done: any of these.
    pub acts: Vec<Act>,
    /// Under which constraints.
    pub constraints: Constraints,
}

/// Limits on a capability. Absent means unlimited in that dimension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraints {
    /// How many times it may be used.
    pub count: Option<u64>,
    /// Not used before this time.
    pub not_before: Option<Millis>,
    /// Not used at or after this time.
    pub expires: Option<Millis>,
    /// How many further times it may be handed on.
    pub depth: Option<u32>,
    /// What an HTTP request and its answer may be.
    pub limits: Limits,
}

impl Capability {
    /// A capability for one act, without constraints.
    pub fn of(act: Act) -> Self {
        Self {
            acts: vec![act],
            constraints: Constraints::default(),
        }
    }
}
