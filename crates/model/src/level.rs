//! The levels of a fence.

use serde::{Deserialize, Serialize};

/// What a fence is made of. The later is the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Landlock, a filter of system calls, and a supervisor that makes the calls that they cannot judge. No namespaces.
    Process,
    /// Namespaces, mounts, Landlock and a filter of system calls.
    Namespace,
}

impl Level {
    /// Every level of this build, the strongest first.
    pub const ALL: [Self; 2] = [Self::Namespace, Self::Process];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Namespace => "namespace",
        }
    }

    /// The level of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}
