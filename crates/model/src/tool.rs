//! Tools that servers offer, and what else of a server is used or asked for: by the server's name and a name of its own.
//!
//! Promises: P4, P5 (a server's name is the person's and holds no slash, so that no tool can be taken for another
//! server's). Trust: the server's part comes from rule files, the rest from the server and the agent.
//! Not here: what the arguments of a call may be (`policy`), what stands in a definition (`tools`).
//! See: Model Context Protocol, 2025-11-25, "Tool Names".

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::act::Verb;
use crate::pattern::Steps;

/// Longest name of a server, in bytes.
const MAX_SERVER: usize = 32;
/// Longest name of what a server offers, in bytes: resources are named by URIs.
const MAX_NAME: usize = 2048;

/// Says why a text names no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub(crate) String);

/// Reads the name of a server: a lower-case letter, then lower-case letters, digits and single hyphens.
pub fn read_server(text: &str) -> Result<&str, ToolError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && text.len() <= MAX_SERVER && text.bytes().all(plain) && !text.contains("--") && !text.ends_with('-') {
        return Ok(text);
    }
    Err(ToolError(format!(
        "`{text}` is no name of a server: at most {MAX_SERVER} lower-case letters, digits and single hyphens, a letter first"
    )))
}

/// A tool, or something else of a server; the server itself where the name is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName {
    server: String,
    name: String,
}

impl ToolName {
    /// What a server offers under a name.
    pub fn new(server: &str, name: &str) -> Result<Self, ToolError> {
        let server = read_server(server)?.to_owned();
        if name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            let shown: String = name.chars().take(64).collect();
            return Err(ToolError(format!(
                "`{}` is no name of a tool: at most {MAX_NAME} bytes without blanks",
                shown.escape_debug()
            )));
        }
        Ok(Self {
            server,
            name: name.into(),
        })
    }

    /// Reads `SERVER/NAME`, or `SERVER` alone.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        let (server, name) = text.split_once('/').unwrap_or((text, ""));
        if text.contains('/') && name.is_empty() {
            return Err(ToolError(format!("`{text}` names a server and then nothing")));
        }
        Self::new(server, name)
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The name behind the server's; empty for the server itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when a verb goes with it: some are about a server, some about what it offers.
    pub fn fits(&self, verb: &Verb) -> bool {
        match verb {
            Verb::Call | Verb::Open | Verb::Prompt | Verb::Accept => !self.name.is_empty(),
            Verb::Sample | Verb::Elicit | Verb::Roots => self.name.is_empty(),
            _ => false,
        }
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str(&self.server),
            name => write!(f, "{}/{name}", self.server),
        }
    }
}

impl FromStr for ToolName {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        Self::parse(text)
    }
}

impl Serialize for ToolName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Which tools an act is about: `bank/send_payment`, `hr/*`, `notes/file:///a/**`; `*` for those of every server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolPattern {
    /// The server; none for any.
    server: Option<String>,
    /// What of it, in segments behind slashes; none for the server itself, or for everything where any server is meant.
    name: Option<(String, Steps)>,
}

impl ToolPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        if matches!(text, "*" | "**") {
            return Ok(Self {
                server: None,
                name: None,
            });
        }
        let (server, name) = text
            .split_once('/')
            .map_or((text, None), |(server, name)| (server, Some(name)));
        let server = match server {
            "*" => None,
            named => Some(read_server(named)?.to_owned()),
        };
        let name = match name {
            Some("") => return Err(ToolError(format!("`{text}` names a server and then nothing"))),
            Some(name) if name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                return Err(ToolError(format!("`{text}` holds a blank, or is too long")));
            }
            Some(name) => {
                let steps = Steps::parse(&format!("/{name}")).map_err(|error| ToolError(error.to_string()))?;
                Some((name.to_owned(), steps))
            }
            None => None,
        };
        Ok(Self { server, name })
    }

    /// The server that it is about; none for any.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The one tool that it names; none where it has a wildcard.
    pub fn as_name(&self) -> Option<ToolName> {
        let server = self.server.as_deref()?;
        let name = self.name.as_ref().map_or("", |(text, _)| text);
        if name.contains('*') {
            return None;
        }
        ToolName::new(server, name).ok()
    }

    /// True when the pattern covers this.
    pub fn covers(&self, tool: &ToolName) -> bool {
        let server = self.server.as_ref().is_none_or(|own| *own == tool.server);
        server
            && match &self.name {
                Some((_, steps)) => !tool.name.is_empty() && steps.matches(tool.name.split('/')),
                None => self.server.is_none() || tool.name.is_empty(),
            }
    }

    /// True when this pattern covers nothing that `wide` does not; false also when that is not sure.
    pub fn is_within(&self, wide: &Self) -> bool {
        let server = wide.server.is_none() || wide.server == self.server;
        server
            && match (&self.name, &wide.name) {
                (Some((_, narrow)), Some((_, wide))) => narrow.within(wide, false),
                (_, None) => wide.server.is_none() || self.name.is_none(),
                (None, Some(_)) => false,
            }
    }

    /// True when something may be covered by both, as far as that can be told.
    pub fn may_meet(&self, other: &Self) -> bool {
        let server = match (&self.server, &other.server) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let literal = |pattern: &Self| pattern.name.as_ref().is_some_and(|(text, _)| !text.contains('*'));
        let alone = |pattern: &Self| pattern.server.is_some() && pattern.name.is_none();
        server
            && match (&self.name, &other.name) {
                _ if alone(self) || alone(other) => self.is_within(other) || other.is_within(self),
                (Some((one, steps)), Some((other_text, other_steps))) => match (literal(self), literal(other)) {
                    (true, true) => one == other_text,
                    (true, false) => other_steps.matches(one.split('/')),
                    (false, true) => steps.matches(other_text.split('/')),
                    (false, false) => true,
                },
                _ => true,
            }
    }

    /// How many characters of it are no wildcard.
    pub fn literal_len(&self) -> usize {
        let text = self.to_string();
        text.len().saturating_sub(text.matches('*').count())
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.as_deref().unwrap_or("*");
        match &self.name {
            Some((name, _)) => write!(f, "{server}/{name}"),
            None => f.write_str(server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_server_s_name_is_one_word_that_no_tool_can_take() {
        for good in ["bank", "a", "acme-files", "h2o"] {
            assert_eq!(read_server(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "-a",
            "a-",
            "a--b",
            "Bank",
            "1a",
            "a_b",
            "a/b",
            "a b",
            "ä",
            &"a".repeat(33),
        ] {
            assert!(read_server(bad).is_err(), "{bad}");
        }
        let tool = ToolName::parse("bank/a/b").unwrap();
        assert_eq!((tool.server(), tool.name()), ("bank", "a/b"));
        for bad in ["bank/", "/x", "bank/a b", "bank/a\u{7}"] {
            assert!(ToolName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p4_a_pattern_covers_what_it_says() {
        for (pattern, yes, no) in [
            (
                "bank/pay",
                &["bank/pay"][..],
                &["bank/pay2", "bank", "shop/pay", "bank/pay/x"][..],
            ),
            ("bank/*", &["bank/pay", "bank/x"], &["bank", "bank/a/b"]),
            ("bank/**", &["bank/pay", "bank/a/b"], &["bank", "banks/pay"]),
            ("bank/get_*", &["bank/get_x"], &["bank/set_x"]),
            ("*/read", &["a/read", "b/read"], &["a/write", "a"]),
            ("*", &["a/read", "b", "c/d/e"], &[]),
            ("bank", &["bank"], &["bank/pay"]),
            ("notes/file:///a/**", &["notes/file:///a/b/c"], &["notes/file:///b"]),
        ] {
            let read = ToolPattern::parse(pattern).unwrap();
            assert_eq!(read.to_string(), pattern);
            for tool in yes {
                assert!(read.covers(&ToolName::parse(tool).unwrap()), "{pattern} covers {tool}");
            }
            for tool in no {
                assert!(
                    !read.covers(&ToolName::parse(tool).unwrap()),
                    "{pattern} covers not {tool}"
                );
            }
        }
        for bad in ["bank/", "Bank/x", "bank/a**b", "bank/a b"] {
            assert!(ToolPattern::parse(bad).is_err(), "{bad}");
        }
    }

    fn texts() -> impl proptest::strategy::Strategy<Value = String> {
        proptest::sample::select(vec![
            "*", "a", "b", "a/*", "a/**", "a/x", "a/x/y", "*/x", "*/x*", "a/x*", "b/*", "*/**", "a/*/y",
        ])
        .prop_map(str::to_owned)
    }

    use proptest::strategy::Strategy as _;

    proptest::proptest! {
        #[test]
        fn p3_within_and_meeting_are_said_only_when_sure(one in texts(), other in texts()) {
            let (one, other) = (ToolPattern::parse(&one).unwrap(), ToolPattern::parse(&other).unwrap());
            for tool in ["a", "b", "a/x", "a/xy", "a/x/y", "a/z/y", "b/x", "b/x/y", "c/x"] {
                let tool = ToolName::parse(tool).unwrap();
                if one.is_within(&other) && one.covers(&tool) {
                    proptest::prop_assert!(other.covers(&tool), "{} in {} at {}", one, other, tool);
                }
                if one.covers(&tool) && other.covers(&tool) {
                    proptest::prop_assert!(one.may_meet(&other), "{} meets {} at {}", one, other, tool);
                }
            }
        }
    }
}
