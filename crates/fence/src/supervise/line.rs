//! The supervisor's line to the mediator.
//!
//! Promises: P1 (what is held goes on only with a permit for this very request), P4 (no line, no answer in time: a refusal,
//! never a wait without end), P10 (what is refused is on record before the agent hears of it).
//! Trust: the other end is the mediator. What it is told stems from the agent; frames hold it as JSON text.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::{Client, FrameReader, GateKind, Outcome, Passed, Refusal, Reply, Settlement};
use bailiwick_model::{Nonce, Request, Resource, TaskId, Verb};

use super::lock;
use crate::clock::now;

/// How long the mediator may take, a person's answer included.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often it is looked whether the caller waits still.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a refusal waits for its record.
const RECORDING: Duration = Duration::from_secs(1);
/// How long the mediator may take to read.
const WRITING: Duration = Duration::from_secs(5);
/// Most different refusals that are put on record of their own.
const MAX_NOTED: usize = 4096;

/// The line.
#[derive(Debug)]
pub(super) struct Line {
    task: TaskId,
    state: Mutex<State>,
    /// The acts that were put on record, as text.
    noted: Mutex<HashSet<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// None once the line is broken.
    out: Option<UnixStream>,
    client: Client,
    waiting: BTreeMap<u64, SyncSender<Outcome>>,
}

/// Why something may not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum No {
    /// The mediator says so; without a refusal where it cannot be asked.
    Denied(Option<Refusal>),
    /// Whoever asked has gone, or has been called away.
    Gone,
}

/// Leave for one effect, to be settled.
#[derive(Debug)]
pub(super) struct Leave(Nonce);

impl Leave {
    /// The permit, for whoever has the effect and settles it.
    pub(super) fn nonce(&self) -> Nonce {
        self.0
    }
}

impl Line {
    /// Takes over the socket; a thread of its own hears the answers.
    pub(super) fn open(task: TaskId, socket: OwnedFd) -> std::io::Result<Arc<Self>> {
        let mut socket = UnixStream::from(socket);
        socket.set_write_timeout(Some(WRITING))?;
        let client = Client::default();
        let hello = client
            .hello(env!("CARGO_PKG_VERSION"), GateKind::Supervisor)
            .map_err(std::io::Error::other)?;
        let from = socket.try_clone()?;
        // Without anybody at the other end, all that would be asked is refused.
        let out = socket.write_all(&hello).is_ok().then_some(socket);
        let state = State {
            out,
            client,
            waiting: BTreeMap::new(),
        };
        let line = Arc::new(Self {
            task,
            state: Mutex::new(state),
            noted: Mutex::default(),
        });
        let hearing = Arc::clone(&line);
        std::thread::Builder::new()
            .stack_size(128 * 1024)
            .spawn(move || hearing.hear(from))?;
        Ok(line)
    }

    fn hear(&self, mut from: UnixStream) {
        let mut frames = FrameReader::default();
        let mut bytes = vec![0u8; 16 * 1024];
        'heard: while let Ok(got @ 1..) = from.read(&mut bytes) {
            frames.push(bytes.get(..got).unwrap_or_default());
            loop {
                match frames.next_frame() {
                    Ok(Some(body)) => {
                        let mut state = lock(&self.state);
                        match state.client.receive(body) {
                            Ok(Reply::Decided(call, outcome)) => {
                                if let Some(waits) = state.waiting.remove(&call) {
                                    let _ = waits.try_send(outcome);
                                }
                            }
                            // What goes on is not this gate's: connections are the network gate's, commands outside the daemon's.
                            Ok(
                                Reply::Revoked(_)
                                | Reply::Ready
                                | Reply::Told(_)
                                | Reply::Waits(..)
                                | Reply::Settled(..)
                                | Reply::Noted(..)
                                | Reply::Redeemed(..),
                            ) => {}
                            Err(_) => break 'heard,
                        }
                    }
                    Ok(None) => break,
                    Err(_) => break 'heard,
                }
            }
        }
        let mut state = lock(&self.state);
        state.out = None;
        state.waiting.clear();
    }

    /// A request of this task.
    pub(super) fn request(&self, verb: Verb, resource: Resource) -> Request {
        Request::new(self.task, verb, resource)
    }

    fn send(state: &mut State, frame: &[u8]) -> Option<()> {
        let sent = state.out.as_mut().map(|out| out.write_all(frame));
        if !matches!(sent, Some(Ok(()))) {
            state.out = None;
            state.waiting.clear();
            return None;
        }
        Some(())
    }

    fn begin(&self, request: &Request, patient: bool) -> Option<(u64, Receiver<Outcome>)> {
        let (tell, told) = sync_channel(1);
        let mut state = lock(&self.state);
        let client = &mut state.client;
        let asked = if patient {
            client.decide(request)
        } else {
            client.decide_now(request)
        };
        let (call, frame) = asked.ok()?;
        state.waiting.insert(call, tell);
        Self::send(&mut state, &frame)?;
        Some((call, told))
    }

    /// Asks, and waits for the answer while `waits` says that the caller does.
    pub(super) fn ask(&self, request: &Request, waits: impl Fn() -> bool) -> Result<Leave, No> {
        let (call, told) = self.begin(request, true).ok_or(No::Denied(None))?;
        let begun = Instant::now();
        loop {
            match told.recv_timeout(PAUSE) {
                Ok(Outcome::Allow(permit)) => {
                    let nonce = permit.terms().nonce;
                    return match permit.spend(request, now()) {
                        Ok(spent) => Ok(Leave(spent.nonce())),
                        Err(fault) => {
                            self.settle(Leave(nonce), false, &fault.to_string());
                            Err(No::Denied(None))
                        }
                    };
                }
                Ok(Outcome::Deny(refusal)) => return Err(No::Denied(Some(refusal))),
                Ok(Outcome::Ask(_)) | Err(RecvTimeoutError::Disconnected) => return Err(No::Denied(None)),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() > PATIENCE => return Err(No::Denied(None)),
                Err(RecvTimeoutError::Timeout) if !waits() => {
                    self.withdraw(call);
                    return Err(No::Gone);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Says that nobody waits any more. An answer that comes all the same finds nobody; its permit lapses.
    fn withdraw(&self, call: u64) {
        let mut state = lock(&self.state);
        if let Ok(Some(frame)) = state.client.withdraw(call) {
            let _ = Self::send(&mut state, &frame);
        }
    }

    /// Says what became of an effect.
    pub(super) fn settle(&self, leave: Leave, done: bool, note: &str) {
        let settlement = Settlement {
            nonce: leave.0,
            done,
            note: note.into(),
            passed: Passed::default(),
        };
        let mut state = lock(&self.state);
        if let Ok((_, frame)) = state.client.settle(&settlement) {
            let _ = Self::send(&mut state, &frame);
        }
    }

    /// Has put on record what the fence refuses by itself, before the agent hears of it: once for each act, and a bounded
    /// number of them.
    pub(super) fn note(&self, verb: Verb, resource: Resource) {
        let request = self.request(verb, resource);
        {
            let mut noted = lock(&self.noted);
            if noted.len() >= MAX_NOTED || !noted.insert(request.to_string()) {
                return;
            }
        }
        // Decided about as if it had been asked: the record says by which rule. Were it allowed, nobody takes the permit.
        if let Some((_, told)) = self.begin(&request, false) {
            let _ = told.recv_timeout(RECORDING);
        }
    }
}
