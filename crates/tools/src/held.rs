//! Calls that wait for a client of the newest revision: it is not asked, it is told what is needed and calls again.
//!
//! Answers: which call goes on when a client comes back with what was needed?
//! Promises: P5 (a call goes on only with the name and the arguments it began with; it is judged once, and sent once), P4
//! (what nobody comes back for is given up in time). Trust: the client is the agent's; the state it brings back is a random
//! name, and means nothing by itself.
//! See: MCP 2026-07-28, multi round-trip requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bailiwick_model::Digest;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, InputRequest, InputRequests, InputRequiredResult, InputResponses, JsonObject};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::definition::canonical;
use crate::gate::guard;
use crate::handles::fill;
use crate::limits;

/// Under which name the one thing that is needed stands.
const NAME: &str = "bailiwick";

/// What a call needs before it can go on.
pub(crate) struct Needed {
    pub(crate) request: InputRequest,
    pub(crate) answer: oneshot::Sender<Value>,
}

/// A call under way on a task of its own.
pub(crate) struct Ride {
    pub(crate) result: oneshot::Receiver<CallToolResult>,
    pub(crate) needs: mpsc::Receiver<Needed>,
    /// Cancelled when it goes on no more.
    pub(crate) gone: CancellationToken,
    /// Gives it up when nobody holds it.
    pub(crate) _ends: DropGuard,
    /// The name and the arguments it began with.
    pub(crate) digest: Digest,
}

struct Waiting {
    ride: Ride,
    answer: oneshot::Sender<Value>,
}

/// The calls that wait.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<HashMap<String, Waiting>>>);

/// What a call is, for comparing.
pub(crate) fn digest_of(name: &str, arguments: Option<&JsonObject>) -> Digest {
    let whole = canonical(&json!([name, arguments]));
    Digest(Sha256::digest(whole.as_bytes()).into())
}

impl Held {
    /// Keeps a call until the client comes back; what it is told.
    pub(crate) fn keep(&self, ride: Ride, needed: Needed) -> Result<InputRequiredResult, ErrorData> {
        let full = || ErrorData::internal_error("too many calls wait for their clients", None);
        let mut random = [0u8; 16];
        fill(&mut random).map_err(|_| full())?;
        let state = hex::encode(random);
        let requests = InputRequests::from([(NAME.to_owned(), needed.request)]);
        let answer = needed.answer;
        {
            let mut all = guard(&self.0);
            if all.len() >= limits::CALLS {
                return Err(full());
            }
            all.insert(state.clone(), Waiting { ride, answer });
        }
        let (all, lapses) = (self.clone(), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(limits::HELD_TIME).await;
            guard(&all.0).remove(&lapses);
        });
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// The call that a client comes back for, with what was needed.
    pub(crate) fn resume(
        &self,
        state: &str,
        digest: Digest,
        responses: Option<InputResponses>,
    ) -> Result<Ride, &'static str> {
        let mut all = guard(&self.0);
        match all.get(state) {
            Some(waiting) if waiting.ride.digest == digest => {}
            Some(_) => return Err("`requestState` belongs to another call"),
            None => return Err("`requestState` is none that was given out, or has lapsed"),
        }
        let Some(given) = responses.and_then(|mut all| all.remove(NAME)) else {
            return Err("`inputResponses` holds nothing for what was needed");
        };
        let Some(waiting) = all.remove(state) else {
            return Err("`requestState` has lapsed");
        };
        // Where nobody waits for it any more, the call says so.
        let _ = waiting.answer.send(given);
        Ok(waiting.ride)
    }
}
