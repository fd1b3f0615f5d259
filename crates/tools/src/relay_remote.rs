//! A remote server as one that speaks lines: streamable HTTP on the far side, standard input and output on this one.
//!
//! Promises: P4 (messages and events are bounded; a message that cannot be sent is answered with an error, never left).
//! Trust: the remote server is hostile. The relay runs in a fence of its own that reaches one address, through the network
//! gate: no token is in here, the network gate puts it into the requests.
//! See: MCP, "Transports", Streamable HTTP, revisions 2025-03-26 and later. The transport before it is refused.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, JsonRpcError, JsonRpcVersion2_0, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::{ErrorData, RoleClient};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::backing::Ends;
use crate::limits;
use crate::lines::{From, To};
use crate::results::quoted;
use crate::upstream::opened;

/// Most messages that are on their way to the server at once. More wait.
const ON_THEIR_WAY: usize = 64;

/// How long it waits at first before it asks for a broken stream again.
const AGAIN: Duration = Duration::from_millis(500);

/// How often it asks for a broken stream again.
const TIMES: usize = 8;

/// Relays between two ends (standard input and output: pipes or sockets) and a server at a URL, until what is read ends.
/// Blocks; makes a runtime of its own.
pub fn relay_remote(url: &str, ends: Ends) -> io::Result<()> {
    // A second call finds it in place.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (input, output) = opened(ends)?;
        relay(url, input, output).await
    })
}

async fn relay(url: &str, input: From, output: To) -> io::Result<()> {
    let mut retry = ExponentialBackoff::default();
    retry.base_duration = AGAIN;
    retry.max_times = Some(TIMES);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_concurrent_requests(ON_THEIR_WAY)
        .max_sse_event_size(limits::REMOTE_ANSWER)
        .max_json_response_size(limits::REMOTE_ANSWER)
        .reinit_on_expired_session(true);
    config.retry_config = Arc::new(retry);
    let mut far = StreamableHttpClientTransport::from_config(config);
    let output = Arc::new(Mutex::new(output));
    let places = Arc::new(Semaphore::new(ON_THEIR_WAY));
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let mut waiting = VecDeque::new();
    loop {
        tokio::select! {
            read = input.read_until(b'\n', &mut line), if waiting.len() < ON_THEIR_WAY => {
                if read? == 0 {
                    break;
                }
                if line.last() != Some(&b'\n') {
                    continue;
                }
                let message = serde_json::from_slice::<ClientJsonRpcMessage>(&line);
                line.clear();
                // The gate writes what it has judged: what is no message is a fault of ours, and passed over.
                waiting.extend(message.ok());
            }
            message = Transport::<RoleClient>::receive(&mut far) => {
                let Some(message) = message else {
                    return Err(io::Error::other("the remote server's connection ended"));
                };
                write(&output, &message).await?;
            }
            Ok(place) = Arc::clone(&places).acquire_owned(), if !waiting.is_empty() => {
                if let Some(message) = waiting.pop_front() {
                    send(&mut far, message, &output, place);
                }
            }
        }
    }
    let _ = tokio::time::timeout(limits::LAST_WORDS, Transport::<RoleClient>::close(&mut far)).await;
    Ok(())
}

/// Sends a message on a task of its own. One that cannot be sent is answered with an error.
fn send<T: Transport<RoleClient>>(
    far: &mut T,
    message: ClientJsonRpcMessage,
    output: &Arc<Mutex<To>>,
    place: OwnedSemaphorePermit,
) {
    let id = match &message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    let (sent, output) = (far.send(message), Arc::clone(output));
    tokio::spawn(async move {
        let sent = sent.await;
        drop(place);
        if let (Err(fault), Some(id)) = (sent, id) {
            let why = reason(&fault);
            let error = ServerJsonRpcMessage::Error(JsonRpcError {
                jsonrpc: JsonRpcVersion2_0,
                id: Some(id),
                error: ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None),
            });
            let _ = write(&output, &error).await;
        }
    });
}

/// Why it could not be sent, with all that lies behind it.
fn reason(fault: &dyn std::error::Error) -> String {
    let mut said = fault.to_string();
    let mut behind = fault.source();
    while let Some(cause) = behind {
        let cause_says = cause.to_string();
        if !said.contains(&cause_says) {
            said.push_str(": ");
            said.push_str(&cause_says);
        }
        behind = cause.source();
    }
    let old = ["Not Found", "Method Not Allowed"]
        .iter()
        .any(|status| said.contains(status));
    let hint = if old {
        "; a server that knows only the transport of 2024-11-05 (HTTP with SSE) is not spoken to"
    } else {
        ""
    };
    format!("the remote server cannot be reached: {}{hint}", quoted(&said))
}

async fn write(output: &Mutex<impl AsyncWrite + Unpin>, message: &ServerJsonRpcMessage) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    let mut output = output.lock().await;
    output.write_all(&text).await?;
    output.flush().await
}
