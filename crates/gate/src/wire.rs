//! Frames between a gate and the mediator: four bytes of length (big-endian), then JSON.
//!
//! Promises: P4. Trust: what the mediator reads comes from a process that parses hostile bytes. Every frame has a
//! size limit; unknown fields, unknown obligations, another protocol version: refused, and the channel is closed.

use bailiwick_model::{Code, DecisionId, Digest, Nonce, Request, SecretName, TaskId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use crate::mediator::{Question, Refusal, Settlement};
use crate::permit::PermitTerms;
use crate::secret::{Redeemed, ToSign};
use crate::written::{RequestDigest, Written};

/// The version of the frames. Both ends must have the same.
pub const PROTOCOL: u32 = 7;

/// Largest frame, in bytes of JSON.
pub const MAX_FRAME: usize = 256 * 1024;

/// Which gate speaks on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GateKind {
    /// HTTP, tunnels, look-ups.
    Network,
    /// Files, programs that start, connections: what a fence's supervisor holds.
    Supervisor,
    /// Trees whose files are asked about one by one.
    Files,
    /// Tools of servers.
    Tools,
}

/// What a gate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// The first frame.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The build.
        build: String,
        /// Which gate.
        gate: GateKind,
    },
    /// A request. The number comes back with the answer.
    Decide {
        /// The number.
        call: u64,
        /// The request.
        request: Box<Request>,
        /// True when whoever asked can wait for a person: then an ask is answered later. Else it is a no at once.
        patient: bool,
    },
    /// Nobody waits any more for the answer to a request. That answer comes all the same.
    Withdraw {
        /// The number of the request.
        call: u64,
    },
    /// What became of an effect.
    Settle {
        /// The number.
        call: u64,
        /// What became of it.
        settlement: Settlement,
    },
    /// What an open permit obliges the gate to put in. Answered once for each secret of a permit.
    Redeem {
        /// The number.
        call: u64,
        /// The permit.
        nonce: Nonce,
        /// The secret.
        secret: SecretName,
        /// What is to be signed, where a signature is wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sign: Option<Box<ToSign>>,
        /// True when the server did not take the value that was handed out last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unwelcome: bool,
    },
    /// What the agent has to say about a question of its own. At most 4096 bytes are kept. Nothing comes back.
    Tell {
        /// The question.
        question: DecisionId,
        /// Its words.
        words: String,
    },
    /// Somebody is served who may leave at the task's end without having asked for anything: there may be more to say then.
    /// Nothing comes back.
    Attending,
    /// What the gate refused by itself.
    Refused {
        /// The number.
        call: u64,
        /// The task.
        task: TaskId,
        /// The code.
        code: Code,
        /// What was refused. At most 4096 bytes are kept.
        what: String,
    },
}

/// What the mediator says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The first frame.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The build.
        build: String,
    },
    /// Allowed.
    Allow {
        /// The number of the call.
        call: u64,
        /// What the permit is for.
        terms: Box<PermitTerms>,
    },
    /// A person is asked, and the answer follows.
    Question {
        /// The number of the call.
        call: u64,
        /// The question.
        question: Question,
    },
    /// Denied, or put on record as refused.
    Deny {
        /// The number of the call.
        call: u64,
        /// The refusal.
        refusal: Refusal,
    },
    /// What was refused to the task by way of another gate: nobody asked here.
    Told {
        /// The refusal.
        refusal: Refusal,
    },
    /// The grant behind an open permit holds no more: what goes on under that permit is to be cut off, and settled.
    Revoked {
        /// The permit.
        nonce: Nonce,
    },
    /// What a permit obliges the gate to put in.
    Redeemed {
        /// The number of the call.
        call: u64,
        /// The value, or the signature.
        redeemed: Redeemed,
    },
    /// Settled.
    Settled {
        /// The number of the call.
        call: u64,
    },
}

/// Says why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// Longer than [`MAX_FRAME`].
    #[error("a frame of {0} bytes is too long: at most {MAX_FRAME}")]
    TooLong(usize),
    /// Not the JSON that is expected.
    #[error("a frame is malformed: {0}")]
    Malformed(String),
    /// Another version of the protocol.
    #[error("the other side speaks protocol {0}, this side {PROTOCOL}")]
    Version(u32),
    /// A frame that does not belong here.
    #[error("a frame came out of turn: {0}")]
    OutOfTurn(&'static str),
}

/// Writes a frame: length and JSON.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireFault> {
    encode_in(0, message)
}

/// The same with room for so many bytes from the start: what fits is written once, and leaves no copy behind.
pub fn encode_in<T: Serialize>(room: usize, message: &T) -> Result<Vec<u8>, WireFault> {
    let mut frame = Vec::with_capacity(room);
    frame.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut frame, message).map_err(|fault| WireFault::Malformed(fault.to_string()))?;
    measured(frame)
}

/// The frame of [`Call::Decide`] for a request that is written already.
pub(crate) fn encode_decide(call: u64, request: &Written, patient: bool) -> Result<Vec<u8>, WireFault> {
    let json = request.json();
    let mut frame = Vec::with_capacity(json.len().saturating_add(80));
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(format!("{{\"decide\":{{\"call\":{call},\"request\":").as_bytes());
    frame.extend_from_slice(json);
    frame.extend_from_slice(format!(",\"patient\":{patient}}}}}").as_bytes());
    measured(frame)
}

/// Puts its length before a frame, where room was left for it.
fn measured(mut frame: Vec<u8>) -> Result<Vec<u8>, WireFault> {
    let length = frame.len().saturating_sub(4);
    let head = u32::try_from(length)
        .ok()
        .filter(|_| length <= MAX_FRAME)
        .ok_or(WireFault::TooLong(length))?;
    for (slot, byte) in frame.iter_mut().zip(head.to_be_bytes()) {
        *slot = byte;
    }
    Ok(frame)
}

/// Reads the JSON of one frame.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireFault> {
    if body.len() > MAX_FRAME {
        return Err(WireFault::TooLong(body.len()));
    }
    serde_json::from_slice(body).map_err(|fault| WireFault::Malformed(fault.to_string()))
}

/// Cuts a stream of bytes into frames, without ever holding more than one frame and one read. What has been taken is
/// overwritten: a frame may hold the value of a secret.
#[derive(Default)]
pub struct FrameReader {
    buffer: Zeroizing<Vec<u8>>,
    taken: usize,
}

/// Shows nothing of what it holds.
impl std::fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameReader({})", self.buffer.len())
    }
}

impl FrameReader {
    /// Takes bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        let taken = self.taken.min(self.buffer.len());
        self.taken = 0;
        let rest = self.buffer.len().saturating_sub(taken);
        self.buffer.copy_within(taken.., 0);
        if let Some(over) = self.buffer.get_mut(rest..) {
            over.zeroize();
        }
        self.buffer.truncate(rest);
        if self.buffer.capacity().saturating_sub(rest) < bytes.len() {
            let mut wider = Zeroizing::new(Vec::with_capacity(rest.saturating_add(bytes.len()).saturating_mul(2)));
            wider.extend_from_slice(&self.buffer);
            self.buffer = wider;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame's JSON, if one is there.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, WireFault> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((head, body)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(WireFault::TooLong(length));
        }
        let Some(frame) = body.get(..length) else {
            return Ok(None);
        };
        self.taken = self.taken.saturating_add(4).saturating_add(length);
        Ok(Some(frame))
    }
}

/// The digest of a request, as a value.
pub fn digest_of(request: &Request) -> Digest {
    RequestDigest::of(request).value()
}
