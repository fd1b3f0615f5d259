//! Where a rule stands: its layer, file, line, and what was written there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The layers of rules. Between layers the strictest answer wins; each layer that is there must allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Shipped in the program and never overridden: only denies.
    Builtin,
    /// The machine's, in `/etc/bailiwick`.
    Machine,
    /// The person's ceiling.
    Person,
    /// The context's: presets, profiles, and the project's file once it is trusted.
    Context,
    /// One errand's.
    Mandate,
}

impl Layer {
    /// The layer as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Machine => "machine",
            Self::Person => "person",
            Self::Context => "context",
            Self::Mandate => "mandate",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Points at one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleRef {
    /// The layer it belongs to.
    pub layer: Layer,
    /// The file, or `preset:NAME` for a shipped one.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// The rule as an act in normal form.
    pub act: String,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
