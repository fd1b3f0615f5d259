//! What was refused last, for the agent to ask: codes and ids, so that it can tell a person which refusal it means; and what it
//! has to say about a question.
//!
//! Promises: P8 (nothing can be asked for or granted this way; words are shown to a person as the agent's own). Trust: whoever asks is the agent. It
//! learns what each refusal told it already; nothing of the rules.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use bailiwick_gate::Refusal;
use bailiwick_model::DecisionId;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};

use crate::forward::{Body, whole};

/// The name under which the gate itself is asked, through the proxy. `internal` is a zone that no public name server
/// will ever have.
pub const OWN_HOST: &str = "bailiwick.internal";

/// How long the mediator's greeting is waited for.
const GREETING: Duration = Duration::from_secs(2);

/// How many refusals are remembered.
const KEPT: usize = 16;

/// The last refusals.
#[derive(Debug, Default)]
pub(crate) struct Last {
    kept: Mutex<VecDeque<Refusal>>,
    /// Open once the mediator has greeted: by then it has told what was refused before.
    begun: Gathering,
}

/// Whether the mediator has greeted.
#[derive(Debug)]
struct Gathering(tokio::sync::watch::Sender<bool>);

impl Default for Gathering {
    fn default() -> Self {
        Self(tokio::sync::watch::Sender::new(false))
    }
}

impl Last {
    /// Notes that the mediator has greeted.
    pub(crate) fn begin(&self) {
        self.begun.0.send_replace(true);
    }

    /// Waits until the mediator has greeted; not for long.
    pub(crate) async fn gathered(&self) {
        let mut begun = self.begun.0.subscribe();
        let _ = tokio::time::timeout(GREETING, begun.wait_for(|begun| *begun)).await;
    }

    /// Remembers one.
    pub(crate) fn remember(&self, refusal: Refusal) {
        if let Ok(mut kept) = self.kept.lock() {
            // What this gate refused itself is told by the mediator, too.
            if kept.iter().any(|known| known.id == refusal.id) {
                return;
            }
            kept.push_front(refusal);
            kept.truncate(KEPT);
        }
    }

    /// The question that somebody has words about, by the path of the request; none for any other request.
    pub(crate) fn told_of(method: &Method, path: &str) -> Option<DecisionId> {
        let id = path.strip_prefix("/tell/").filter(|_| *method == Method::POST)?;
        id.parse().ok()
    }

    /// The answer to a request for the gate itself: at `/last`, the refusals as JSON, the last one first.
    pub(crate) fn answer(&self, method: &Method, path: &str) -> Response<Body> {
        let mut response = Response::new(whole("ask for /last, or post words to /tell/ID\n"));
        if *method != Method::GET || path != "/last" {
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        }
        let kept = self.kept.lock().map(|kept| kept.clone()).unwrap_or_default();
        let body = serde_json::json!({ "refused": Vec::from(kept) });
        *response.body_mut() = whole(format!("{body}\n"));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::Code;

    use super::*;

    #[test]
    fn only_the_last_refusals_can_be_asked_for() {
        let last = Last::default();
        for number in 0..20u8 {
            last.remember(Refusal::new(DecisionId([number; 6]), Code::NoRule));
        }
        assert_eq!(last.kept.lock().unwrap().len(), KEPT);
        assert_eq!(last.kept.lock().unwrap()[0].id, DecisionId([19; 6]));
        assert_eq!(last.answer(&Method::GET, "/last").status(), StatusCode::OK);
        for (method, path) in [(Method::POST, "/last"), (Method::GET, "/"), (Method::GET, "/grant")] {
            assert_eq!(last.answer(&method, path).status(), StatusCode::NOT_FOUND);
        }
        let id = DecisionId([1; 6]);
        assert_eq!(Last::told_of(&Method::POST, "/tell/010101010101"), Some(id));
        for (method, path) in [
            (Method::GET, "/tell/010101010101"),
            (Method::POST, "/tell/0101"),
            (Method::POST, "/answer/010101010101"),
        ] {
            assert_eq!(Last::told_of(&method, path), None);
        }
    }
}
