//! Labels: the tags on a thing, and those on a thing made from two. Comparing them is `flow`'s.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One name of confidentiality (`pii`) or of untrusted influence (`web`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Tag(String);

impl Tag {
    /// Reads a tag: 1 to 64 lower-case letters, digits and hyphens, beginning with a letter.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        fits.then(|| Self(text.into()))
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a tag"))
    }
}

/// What is known of where data came from: what it may not reveal, and who may have shaped it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Tags of confidentiality: may reach only sinks that are cleared for them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub confidential: BTreeSet<Tag>,
    /// Tags of untrusted influence: who may have shaped it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub influence: BTreeSet<Tag>,
}

impl Label {
    /// True when nothing is known against the data.
    pub fn is_empty(&self) -> bool {
        self.confidential.is_empty() && self.influence.is_empty()
    }

    /// All its tags, those of confidentiality first.
    pub fn tags(&self) -> impl Iterator<Item = &Tag> {
        self.confidential.iter().chain(&self.influence)
    }

    /// What is known of a thing made from two others: all that is known of either.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let both = |a: &BTreeSet<Tag>, b: &BTreeSet<Tag>| a.union(b).cloned().collect();
        Self {
            confidential: both(&self.confidential, &other.confidential),
            influence: both(&self.influence, &other.influence),
        }
    }
}
