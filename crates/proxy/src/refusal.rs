//! What a program inside the fence is told when it may not: one line, and a hint.
//!
//! Promises: P4 (a refusal is an answer, at once). Trust: the text goes to the agent. It holds what the agent asked
//! for, a code and an id: no rule, no address, no reason of policy.

use bailiwick_gate::Refusal;
use bailiwick_line::Denied;
use bailiwick_model::{Code, DecisionId};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::forward::{Body, whole};

/// Longest act that is repeated in a refusal, in characters.
const ACT: usize = 512;

/// A refusal on its way to whoever asked.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) id: Option<DecisionId>,
    act: String,
    why: Option<String>,
    /// What a person said with it.
    word: Option<String>,
}

impl Refused {
    /// A refusal that is on record.
    pub(crate) fn new(refusal: Refusal, act: impl Into<String>) -> Self {
        Self {
            code: refusal.code,
            id: Some(refusal.id),
            act: act.into(),
            why: None,
            word: refusal.word,
        }
    }

    /// What the channel says about an act.
    pub(crate) fn of_denied(denied: Denied, act: impl Into<String>) -> Self {
        let refused = match denied.refusal {
            Some(refusal) => Self::new(refusal, act),
            None => Self::unavailable(act),
        };
        match denied.why {
            Some(why) => refused.because(&why),
            None => refused,
        }
    }

    /// A refusal because the mediator does not answer: there is nobody to put it on record.
    pub(crate) fn unavailable(act: impl Into<String>) -> Self {
        Self {
            code: Code::MediatorUnavailable,
            id: None,
            act: act.into(),
            why: None,
            word: None,
        }
    }

    /// Adds a cause that the agent may know: what was wrong with what it sent.
    pub(crate) fn because(mut self, why: &str) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Names what was asked for in place of a part of it: a page, not the look-up that it needs.
    pub(crate) fn of(mut self, act: &str) -> Self {
        self.act = act.into();
        self
    }

    fn status(&self) -> StatusCode {
        match self.code {
            Code::NameUnresolved | Code::UpstreamUnreachable | Code::UpstreamUntrusted => StatusCode::BAD_GATEWAY,
            Code::MediatorUnavailable | Code::LogUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::MalformedRequest | Code::NameMismatch => StatusCode::BAD_REQUEST,
            Code::TooOften => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::FORBIDDEN,
        }
    }

    /// The refusal as text: one line, then a hint where there is one.
    pub(crate) fn text(&self) -> String {
        let plain = |text: &str| -> String {
            let kept = text.chars().take(ACT);
            kept.map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
        };
        let act = plain(&self.act);
        let why = self.why.as_deref().map(|why| format!(": {}", plain(why)));
        let why = why.unwrap_or_default();
        let word = self.word.as_deref().map(|word| format!(": {}", plain(word)));
        let word = word.unwrap_or_default();
        match self.id {
            Some(id) if self.code == Code::TellMore => format!(
                "bailiwick refused {act}: {} ({id}){why}{word}\nhint: answer with `bailiwick tell {id} WORDS`, then try again\n",
                self.code
            ),
            Some(id) => format!(
                "bailiwick refused {act}: {} ({id}){why}{word}\nhint: a person can see why with `bailiwick explain {id}`\n",
                self.code
            ),
            None => format!("bailiwick refused {act}: {}{why}\n", self.code),
        }
    }

    /// The refusal as an answer to an HTTP request.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::new(whole(self.text()));
        *response.status_mut() = self.status();
        // Many programs show of a refused tunnel, or of an error, its status line and nothing else.
        let id = self.id.map(|id| format!(" {id}")).unwrap_or_default();
        let usual = self.status().canonical_reason().unwrap_or("Refused");
        if let Ok(phrase) = ReasonPhrase::try_from(format!("{usual} (bailiwick: {}{id})", self.code)) {
            response.extensions_mut().insert(phrase);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert("bailiwick-code", HeaderValue::from_static(self.code.as_str()));
        if let Some(id) = self.id.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
            headers.insert("bailiwick-id", id);
        }
        response
    }
}
