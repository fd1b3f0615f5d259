//! What the agent is told when it may not: one line.
//!
//! Promises: P4 (a refusal is an answer, at once). Trust: the text goes to the agent. It holds a code, an id, what a
//! person said to it, and what was wrong with what it sent: no rule, no reason of policy.

use bailiwick_gate::Refusal;
use bailiwick_line::Denied;
use bailiwick_model::{Code, DecisionId, visible};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::json;

use crate::limits;

/// The code of the protocol's error that stands for a refusal where there is no tool's result to carry it.
const REFUSED: ErrorCode = ErrorCode(-32040);

/// A refusal on its way to whoever asked.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) id: Option<DecisionId>,
    why: Option<String>,
    /// What a person said with it.
    word: Option<String>,
}

/// The arguments that are at fault, by name: the agent's own names.
fn named(arguments: &[String]) -> Option<String> {
    let names: Vec<String> = arguments.iter().map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("see {}", names.join(", ")))
}

/// What the agent may know of a refusal that is about where data goes: that it is.
fn flow(code: Code) -> Option<String> {
    (code == Code::FlowRefused).then(|| "what was read in this task may not go there".to_owned())
}

impl Refused {
    /// A refusal that is on record.
    pub(crate) fn new(refusal: Refusal) -> Self {
        Self {
            code: refusal.code,
            id: Some(refusal.id),
            why: named(&refusal.arguments).or_else(|| flow(refusal.code)),
            word: refusal.word,
        }
    }

    /// What the channel says.
    pub(crate) fn of(denied: Denied) -> Self {
        let refused = denied.refusal.map_or_else(Self::unavailable, Self::new);
        match denied.why {
            Some(why) => refused.because(&why),
            None => refused,
        }
    }

    /// A refusal because the mediator does not answer: there is nobody to put it on record.
    pub(crate) fn unavailable() -> Self {
        Self {
            code: Code::MediatorUnavailable,
            id: None,
            why: None,
            word: None,
        }
    }

    /// Adds a cause that the agent may know: what was wrong with what it sent, or that a server failed.
    pub(crate) fn because(mut self, why: &str) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The refusal as text.
    pub(crate) fn text(&self, what: &str) -> String {
        let plain = |text: &str| visible(&text.chars().take(limits::QUOTED).collect::<String>());
        let id = self.id.map(|id| format!(" ({id})")).unwrap_or_default();
        let why = self.why.as_deref().map(|why| format!(": {}", plain(why)));
        let word = self.word.as_deref().map(|word| format!(": {}", plain(word)));
        let mut text = format!(
            "bailiwick refused this {what}: {}{id}{}{}",
            self.code,
            why.unwrap_or_default(),
            word.unwrap_or_default()
        );
        if let (Code::TellMore, Some(id)) = (self.code, self.id) {
            text.push_str(&format!(
                "\nhint: answer with the tool `bailiwick__answer` (question `{id}`), then try again"
            ));
        }
        text
    }

    /// The refusal as a tool's result.
    pub(crate) fn result(&self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(self.text("call"))])
    }

    /// The refusal as an error of the protocol.
    pub(crate) fn error(&self, what: &str) -> ErrorData {
        let id = self.id.map(|id| id.to_string());
        ErrorData::new(
            REFUSED,
            self.text(what),
            Some(json!({ "code": self.code.as_str(), "id": id })),
        )
    }
}
