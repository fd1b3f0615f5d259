//! What is said to a client whose message cannot be read in one way.
//!
//! Promises: P4 (such a message goes no further; it is answered where it can be, and on record), P5.
//! Trust: the message is the agent's.

use std::sync::Arc;

use bailiwick_model::{Code, visible};
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, JsonRpcError, JsonRpcResponse, JsonRpcVersion2_0, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::channel::Channel;
use crate::limits;
use crate::message;
use crate::strict;

/// Reads what clients say, and answers what cannot be read.
#[derive(Clone)]
pub(crate) struct Objections {
    channel: Channel,
    /// How many may be under way.
    places: Arc<Semaphore>,
}

/// One message that goes no further.
#[derive(Debug)]
pub(crate) struct Objection {
    id: Option<RequestId>,
    /// What was asked for, in a few words.
    what: String,
    why: String,
    /// True for a call of a tool, which has a result to say it in.
    is_call: bool,
    /// True for what is not answered.
    is_notification: bool,
}

impl Objection {
    fn unreadable(why: String) -> Self {
        Self {
            id: None,
            what: "a message".into(),
            why,
            is_call: false,
            is_notification: false,
        }
    }

    fn to(message: &Value, why: String) -> Self {
        let method = message.get("method").and_then(Value::as_str);
        let name = message.pointer("/params/name").and_then(Value::as_str);
        let is_call = method == Some("tools/call");
        let short = |text: &str| visible(&text.chars().take(limits::QUOTED).collect::<String>());
        let what = match (is_call, name, method) {
            (true, Some(name), _) => format!("call {}", short(name)),
            (_, _, Some(method)) => short(method),
            _ => "a message".into(),
        };
        Self {
            id: message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok()),
            what,
            why,
            is_call,
            is_notification: method.is_some() && message.get("id").is_none(),
        }
    }
}

impl Objections {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            places: Arc::new(Semaphore::new(limits::CONNECTIONS)),
        }
    }

    /// Reads a message. An error where it goes no further.
    pub(crate) fn read(bytes: &[u8]) -> Result<ClientJsonRpcMessage, Objection> {
        let read = strict::read(bytes).map_err(|fault| Objection::unreadable(format!("it is no JSON: {fault}")))?;
        if read.value.is_array() {
            let why = "several messages in one are not read; send them one by one";
            return Err(Objection::unreadable(why.into()));
        }
        if let Some(flaw) = &read.flaw {
            return Err(Objection::to(&read.value, flaw.to_string()));
        }
        // Read a second time only where the first reading fits no message.
        message::of_client(read.value).map_err(|_| {
            let value = serde_json::from_slice(bytes).unwrap_or(Value::Null);
            Objection::to(&value, "it is no message of the protocol".into())
        })
    }

    /// A message that is too long to be read.
    pub(crate) fn too_long() -> Objection {
        Objection::unreadable(format!("it is longer than {} bytes", limits::MESSAGE))
    }

    /// Puts it on record; what is answered, where something is. None where too many are under way.
    pub(crate) async fn answer(&self, objection: Objection) -> Option<ServerJsonRpcMessage> {
        let _place = self.places.try_acquire().ok()?;
        let refused = self
            .channel
            .refuse(Code::MalformedRequest, &objection.what, &objection.why)
            .await;
        if objection.is_notification {
            return None;
        }
        Some(match objection.id {
            Some(id) if objection.is_call => ServerJsonRpcMessage::Response(JsonRpcResponse {
                jsonrpc: JsonRpcVersion2_0,
                id,
                result: ServerResult::CallToolResult(refused.result()),
            }),
            id => ServerJsonRpcMessage::Error(JsonRpcError {
                jsonrpc: JsonRpcVersion2_0,
                id,
                error: ErrorData::new(ErrorCode::INVALID_REQUEST, refused.text("message"), None),
            }),
        })
    }
}
