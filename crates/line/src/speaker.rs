//! The one owner of a channel's socket: says what is to be said, and hands on what comes back.
//!
//! Promises: P1 (a permit that nobody waits for is given back; a settlement that cannot be sent ends the channel), P4 (a
//! channel that fails is closed for good, and everything asked of it is refused), P9 (what came is written over).
//! Trust: the other end is the mediator.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_gate::{
    Client, ClientFault, FrameReader, GateKind, Outcome, Passed, Permit, Question, Redeemed, Refusal, Reply,
    Settlement, ToRedeem, Written,
};
use bailiwick_model::{Code, DecisionId, Nonce, TaskId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use zeroize::Zeroize as _;

use crate::attended::Attended;
use crate::channel::Hears;
use crate::cuts::Cuts;

/// How much may wait to be written before new calls wait too, in bytes.
const WRITE_AHEAD: usize = 1024 * 1024;

/// How long the settlement of an effect may wait for a question that it is sent with. It never comes after one.
const SETTLE_TIME: Duration = Duration::from_millis(2);

/// How long those who are served may take to go when the channel ends.
const HEARS_OUT: Duration = Duration::from_millis(100);

/// How long what is left to say may take when the channel ends.
const LAST_WORDS: Duration = Duration::from_millis(150);

/// Says why the channel ended.
#[derive(Debug, thiserror::Error)]
pub enum ChannelFault {
    /// The frames do not fit.
    #[error(transparent)]
    Client(#[from] ClientFault),
    /// The socket failed.
    #[error("the channel to the mediator failed: {0}")]
    Socket(#[from] io::Error),
}

/// What is to be said.
pub(crate) enum Say {
    Decide(Written, Awaited),
    /// Nobody waits any more for the answer under this number.
    Withdraw(u64),
    Settle(Settlement),
    Redeem(Nonce, ToRedeem, oneshot::Sender<Result<Redeemed, Refusal>>),
    Refused(Code, String, oneshot::Sender<Refusal>),
    /// What the agent says about a question.
    Tell(DecisionId, String),
    /// Somebody is served about whom there may be more to say at the end.
    Attending,
}

impl Say {
    pub(crate) fn settle(nonce: Nonce, done: bool, note: String, passed: Passed) -> Self {
        Self::Settle(Settlement {
            nonce,
            done,
            note,
            passed,
        })
    }
}

/// Where an answer goes.
pub(crate) struct Awaited {
    /// The number by which it is withdrawn.
    pub(crate) number: u64,
    /// False for somebody who cannot wait for a person.
    pub(crate) patient: bool,
    pub(crate) waits: Option<oneshot::Sender<Question>>,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// What a channel's two ends on this side share.
pub(crate) struct Ends {
    pub(crate) cuts: Arc<Cuts>,
    pub(crate) hears: Arc<dyn Hears>,
    pub(crate) attended: Arc<Attended>,
}

/// Greets; the future runs the channel until it ends.
pub(crate) fn run(
    task: TaskId,
    build: &str,
    gate: GateKind,
    socket: UnixStream,
    said: mpsc::UnboundedReceiver<Say>,
    ends: Ends,
) -> Result<impl Future<Output = Result<(), ChannelFault>> + use<>, ChannelFault> {
    let client = Client::default();
    let hello = client.hello(build, gate).map_err(ClientFault::from)?;
    let speaker = Speaker {
        task,
        client,
        decides: HashMap::new(),
        numbers: HashMap::new(),
        notes: HashMap::new(),
        redeems: HashMap::new(),
        ends,
        out: hello,
        rests: false,
    };
    Ok(speaker.run(socket, said))
}

struct Speaker {
    task: TaskId,
    client: Client,
    decides: HashMap<u64, Awaited>,
    /// The calls by the numbers under which they are withdrawn.
    numbers: HashMap<u64, u64>,
    notes: HashMap<u64, oneshot::Sender<Refusal>>,
    redeems: HashMap<u64, oneshot::Sender<Result<Redeemed, Refusal>>>,
    ends: Ends,
    out: Vec<u8>,
    /// True while all that is to be written is settlements, which wait a moment for a question to go with.
    rests: bool,
}

impl Speaker {
    async fn run(mut self, socket: UnixStream, mut said: mpsc::UnboundedReceiver<Say>) -> Result<(), ChannelFault> {
        let (mut read, mut write) = socket.into_split();
        let mut reader = FrameReader::default();
        let mut buffer = vec![0u8; 64 * 1024];
        let mut rest = std::pin::pin!(tokio::time::sleep(SETTLE_TIME));
        loop {
            let rested = self.rests;
            tokio::select! {
                got = read.read(&mut buffer) => {
                    let count = match got {
                        Ok(0) => return self.last_words(&mut write, &mut said).await,
                        Ok(count) => count,
                        Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                        Err(fault) => return Err(fault.into()),
                    };
                    if let Some(got) = buffer.get_mut(..count) {
                        reader.push(got);
                        // There may be a secret in it.
                        got.zeroize();
                    }
                    while let Some(frame) = reader.next_frame().map_err(ClientFault::from)? {
                        let reply = self.client.receive(frame)?;
                        self.hand_on(reply)?;
                    }
                }
                () = rest.as_mut(), if self.rests => self.rests = false,
                wrote = write.write(&self.out), if !self.out.is_empty() && !self.rests => {
                    match wrote {
                        Ok(count) => drop(self.out.drain(..count)),
                        // The mediator closed it while something was on its way: that is an end like any other.
                        Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                        Err(fault) => return Err(fault.into()),
                    }
                }
                say = said.recv(), if self.out.len() < WRITE_AHEAD => match say {
                    Some(say) => {
                        self.say(say)?;
                        // What is said at once is written at once.
                        while self.out.len() < WRITE_AHEAD
                            && let Ok(more) = said.try_recv()
                        {
                            self.say(more)?;
                        }
                    }
                    None => return self.last_words(&mut write, &mut said).await,
                },
            }
            if self.rests && !rested {
                rest.as_mut().reset(Instant::now() + SETTLE_TIME);
            }
        }
    }

    /// Writes what there is left to say, and that there is no more.
    async fn last_words(
        mut self,
        write: &mut OwnedWriteHalf,
        said: &mut mpsc::UnboundedReceiver<Say>,
    ) -> Result<(), ChannelFault> {
        if let Ok(heard) = tokio::time::timeout(HEARS_OUT, self.hear_out(said)).await {
            heard?;
        }
        let written = async {
            write.write_all(&self.out).await?;
            write.shutdown().await
        };
        // A mediator that hears no more needs none of it: what was not settled counts as abandoned.
        let _ = tokio::time::timeout(LAST_WORDS, written).await;
        Ok(())
    }

    /// Takes what is said of those who are served still, until they have gone. Nothing is answered any more.
    async fn hear_out(&mut self, said: &mut mpsc::UnboundedReceiver<Say>) -> Result<(), ChannelFault> {
        let attended = Arc::clone(&self.ends.attended);
        let mut gone = std::pin::pin!(attended.gone());
        loop {
            self.decides.clear();
            self.notes.clear();
            self.redeems.clear();
            tokio::select! {
                biased;
                say = said.recv() => match say {
                    Some(say) => self.say(say)?,
                    None => return Ok(()),
                },
                () = &mut gone => return Ok(()),
            }
        }
    }

    fn say(&mut self, say: Say) -> Result<(), ChannelFault> {
        let waits = matches!(say, Say::Settle(_));
        self.rests = waits && (self.rests || self.out.is_empty());
        match say {
            Say::Decide(request, awaited) => {
                let framed = self.client.ask(&request, awaited.patient);
                if let Some((call, frame)) = Self::sendable(framed)? {
                    self.out.extend(frame);
                    self.numbers.insert(awaited.number, call);
                    self.decides.insert(call, awaited);
                }
            }
            Say::Withdraw(number) => {
                let call = self.numbers.get(&number).copied();
                if let Some(frame) = call.map(|call| self.client.withdraw(call)).transpose()?.flatten() {
                    self.out.extend(frame);
                }
            }
            Say::Settle(settlement) => self.settle(&settlement)?,
            Say::Redeem(nonce, wanted, answer) => {
                if let Some((call, frame)) = Self::sendable(self.client.redeem(nonce, wanted))? {
                    self.out.extend(frame);
                    self.redeems.insert(call, answer);
                }
            }
            Say::Tell(question, words) => {
                // What does not fit into a frame is not said.
                if let Ok(frame) = self.client.tell(question, &words) {
                    self.out.extend(frame);
                }
            }
            Say::Attending => self.out.extend(self.client.attending().map_err(ClientFault::from)?),
            Say::Refused(code, what, answer) => {
                if let Some((call, frame)) = Self::sendable(self.client.refused(self.task, code, &what))? {
                    self.out.extend(frame);
                    self.notes.insert(call, answer);
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, settlement: &Settlement) -> Result<(), ChannelFault> {
        // A settlement that cannot be sent would leave a permit open for ever: the channel is of no more use.
        let (_, frame) = self.client.settle(settlement)?;
        self.out.extend(frame);
        Ok(())
    }

    /// What cannot be sent for its size or number is refused alone: its answer is dropped, the channel stays.
    fn sendable(framed: Result<(u64, Vec<u8>), ClientFault>) -> Result<Option<(u64, Vec<u8>)>, ChannelFault> {
        match framed {
            Ok(framed) => Ok(Some(framed)),
            Err(ClientFault::Busy | ClientFault::Wire(_)) => Ok(None),
            Err(fault @ ClientFault::Stray) => Err(fault.into()),
        }
    }

    fn hand_on(&mut self, reply: Reply) -> Result<(), ChannelFault> {
        match reply {
            Reply::Ready => self.ends.hears.greeted(),
            Reply::Told(refusal) => self.ends.hears.refused(&refusal),
            Reply::Waits(call, question) => {
                let waits = self.decides.get_mut(&call).and_then(|awaited| awaited.waits.take());
                if let Some(waits) = waits {
                    let _ = waits.send(question);
                }
            }
            Reply::Decided(call, outcome) => {
                let unheard = match self.decides.remove(&call) {
                    Some(awaited) => {
                        self.numbers.remove(&awaited.number);
                        awaited.answer.send(outcome).err()
                    }
                    None => Some(outcome),
                };
                if let Some(Outcome::Allow(permit)) = unheard {
                    self.give_back(&permit)?;
                }
            }
            // Whether the mediator could take it is in its own record; there is nothing left to do here.
            Reply::Settled(..) => {}
            Reply::Revoked(nonce) => self.ends.cuts.revoke(nonce),
            Reply::Redeemed(call, redeemed) => {
                if let Some(asker) = self.redeems.remove(&call) {
                    let _ = asker.send(redeemed);
                }
            }
            Reply::Noted(call, refusal) => {
                if let Some(asker) = self.notes.remove(&call) {
                    let _ = asker.send(refusal);
                }
            }
        }
        Ok(())
    }

    /// Settles a permit that nobody waits for any more.
    fn give_back(&mut self, permit: &Permit) -> Result<(), ChannelFault> {
        self.settle(&Settlement {
            nonce: permit.terms().nonce,
            done: false,
            note: "nobody waited for the answer".into(),
            passed: Passed::default(),
        })
    }
}
