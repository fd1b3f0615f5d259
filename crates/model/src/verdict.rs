//! What the mediator answers.

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::obligation::Obligation;
use crate::rule::RuleRef;

/// The three answers, ordered by strictness: combining answers is `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may be done, under the obligations.
    Allow,
    /// A person must say.
    Ask,
    /// It may not be done.
    Deny,
}

impl Verdict {
    /// The verdict as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// One cause of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// What this cause by itself would answer.
    pub verdict: Verdict,
    /// The kind of cause.
    pub code: Code,
    /// The rule, where one is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// The cause as one sentence for the person; never shown to the agent.
    pub text: String,
}

/// A verdict with its causes: data, not proof. Proof is a permit (`gate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The answer: the strictest of all causes.
    pub verdict: Verdict,
    /// The code of the deciding cause.
    pub code: Code,
    /// All causes, the deciding one first.
    pub reasons: Vec<Reason>,
    /// What the gate must do for an allow to hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obligations: Vec<Obligation>,
}

impl Decision {
    /// A denial with one cause that is no rule.
    pub fn deny(code: Code, text: impl Into<String>) -> Self {
        let reason = Reason {
            verdict: Verdict::Deny,
            code,
            rule: None,
            text: text.into(),
        };
        Self {
            verdict: Verdict::Deny,
            code,
            reasons: vec![reason],
            obligations: Vec::new(),
        }
    }

    /// The stricter of two decisions; obligations of both hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (mut first, second) = if other.verdict > self.verdict {
            (other, self)
        } else {
            (self, other)
        };
        first.reasons.extend(second.reasons);
        for obligation in second.obligations {
            if !first.obligations.contains(&obligation) {
                first.obligations.push(obligation);
            }
        }
        first
    }
}
