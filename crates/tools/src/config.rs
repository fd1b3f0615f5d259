//! What the tool gate is told when it starts.

use bailiwick_model::{AnswerPart, TaskId, ToolName, ToolPattern, Verb};
use serde::{Deserialize, Serialize};

use crate::limits;

/// What one tool gate serves, and for which task. Comes from the daemon, which is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The task on whose behalf everything is asked.
    pub task: TaskId,
    /// The build, told to the mediator in the greeting.
    pub build: String,
    /// What a client must know: the agent is given it. Without it whoever can connect may not call.
    pub token: String,
    /// The servers.
    pub servers: Vec<ServerConfig>,
    /// The text of the lock file; empty where there is none.
    #[serde(default)]
    pub lock: String,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Its name.
    pub name: String,
    /// What some rule allows or asks: what is not covered by one of these is not listed. Deciding is the mediator's alone.
    #[serde(default)]
    pub visible: Vec<Visible>,
    /// Tools whose calls must come with a reason.
    #[serde(default, with = "patterns")]
    pub reasons: Vec<ToolPattern>,
    /// Tools whose results may be changed on their way (kept back, cut, handles): their output schema is not shown, since
    /// it would not hold.
    #[serde(default, with = "patterns")]
    pub altered: Vec<ToolPattern>,
    /// Arguments that take what other tools gave by handles: there the value is asked about.
    #[serde(default)]
    pub choosing: Vec<Choosing>,
    /// True where its lists of resources and prompts are not passed on: they carry tags, and no permit stands for them.
    #[serde(default)]
    pub unlisted: bool,
    /// Its limits.
    #[serde(default)]
    pub limits: ServerLimits,
}

/// An argument that rules judge by the value behind the handle that the agent gives in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choosing {
    /// The tools that have it.
    #[serde(with = "pattern")]
    pub tools: ToolPattern,
    /// Its name, with dots between names within each other.
    pub argument: String,
    /// The part of an answer that the handle must have been given out for.
    pub from: AnswerPart,
    /// The places in the entries of that part that rules look at, each as names within each other.
    #[serde(default)]
    pub looks_at: Vec<Vec<String>>,
}

/// A verb, and what it may be about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visible {
    /// The verb: call, open, prompt, sample, elicit or roots.
    pub verb: Verb,
    /// What it may be about.
    #[serde(with = "pattern")]
    pub pattern: ToolPattern,
}

/// How much one server may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerLimits {
    /// How long it may take to start, in seconds.
    pub start_seconds: u64,
    /// How long a call may take, in seconds.
    pub call_seconds: u64,
    /// Largest message that it may send, in bytes.
    pub answer_bytes: usize,
    /// Most calls at once.
    pub pending: usize,
    /// Most that it may say unasked in each second.
    pub notifications: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            start_seconds: limits::START_TIME.as_secs(),
            call_seconds: limits::CALL_TIME.as_secs(),
            answer_bytes: limits::ANSWER,
            pending: limits::PENDING,
            notifications: limits::NOTIFICATIONS,
        }
    }
}

impl ServerConfig {
    /// True when some rule allows or asks this.
    pub(crate) fn shows(&self, verb: &Verb, tool: &ToolName) -> bool {
        self.visible
            .iter()
            .any(|visible| visible.verb == *verb && visible.pattern.covers(tool))
    }

    /// True when some rule allows or asks something with this verb.
    pub(crate) fn shows_any(&self, verb: &Verb) -> bool {
        self.visible.iter().any(|visible| visible.verb == *verb)
    }

    pub(crate) fn wants_reason(&self, tool: &ToolName) -> bool {
        self.reasons.iter().any(|pattern| pattern.covers(tool))
    }

    pub(crate) fn alters(&self, tool: &ToolName) -> bool {
        self.altered.iter().any(|pattern| pattern.covers(tool))
    }
}

/// A pattern as people write it.
mod pattern {
    use bailiwick_model::ToolPattern;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(pattern: &ToolPattern, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(pattern)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ToolPattern, D::Error> {
        ToolPattern::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Several of them.
mod patterns {
    use bailiwick_model::ToolPattern;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(patterns: &[ToolPattern], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(patterns.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ToolPattern>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let read = |text: &String| ToolPattern::parse(text).map_err(D::Error::custom);
        texts.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_read_back_as_it_was_written() {
        let config = Config {
            task: TaskId([1; 8]),
            build: "0.1.0".into(),
            token: "0123456789abcdef".into(),
            servers: vec![ServerConfig {
                name: "bank".into(),
                visible: vec![Visible {
                    verb: Verb::Call,
                    pattern: ToolPattern::parse("bank/*").unwrap(),
                }],
                reasons: vec![ToolPattern::parse("bank/pay").unwrap()],
                altered: Vec::new(),
                choosing: vec![Choosing {
                    tools: ToolPattern::parse("bank/pay").unwrap(),
                    argument: "to".into(),
                    from: AnswerPart::parse("bank/payees#/all/*").unwrap(),
                    looks_at: vec![vec!["fee".into()]],
                }],
                unlisted: false,
                limits: ServerLimits::default(),
            }],
            lock: String::new(),
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn p4_an_unknown_field_is_refused() {
        let text = r#"{"task":"0101010101010101","build":"x","token":"t","servers":[],"more":1}"#;
        assert!(serde_json::from_str::<Config>(text).is_err());
        let text = r#"{"name":"bank","limits":{"calls":1}}"#;
        assert!(serde_json::from_str::<ServerConfig>(text).is_err());
        assert!(serde_json::from_str::<ServerConfig>(r#"{"name":"bank","limits":{"pending":1}}"#).is_ok());
    }
}
