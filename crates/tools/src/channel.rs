//! The task's channel to the mediator, shared by everything the gate serves.
//!
//! Promises: P1 (an effect that was allowed is always settled, also when whoever asked went away), P4 (a channel that
//! fails is closed for good, and everything asked of it is refused), P10 (a refusal of the gate's own is put on record),
//! P11 (what goes on under a permit that holds no more is cut off at once).
//! Trust: the other end is the mediator. What it is told stems from hostile bytes; frames hold it as JSON text.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_gate::{
    Client, ClientFault, FrameReader, GateKind, MAX_FRAME, Outcome, Passed, Permit, Question, Refusal, Reply,
    Settlement, Spent, Written,
};
use bailiwick_model::{Code, DecisionId, Millis, Nonce, Request, TaskId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::limits;
use crate::refusal::Refused;

/// How much may wait to be written before new calls wait too, in bytes.
const WRITE_AHEAD: usize = 1024 * 1024;

/// What a frame holds beside a request, at most.
const FRAME_ROOM: usize = 256;

/// How many permits that were revoked before they came are remembered.
const REVOKED_EARLY: usize = 64;

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

enum Say {
    Decide(Written, Awaited),
    /// Nobody waits any more for the answer under this number.
    Withdraw(u64),
    Settle(Settlement),
    Refused(Code, String, oneshot::Sender<Refusal>),
    /// What the agent says about a question.
    Tell(DecisionId, String),
}

/// Where an answer goes.
struct Awaited {
    /// The number by which it is withdrawn.
    number: u64,
    waits: Option<oneshot::Sender<Question>>,
    answer: oneshot::Sender<Outcome>,
}

/// Withdraws a request when whoever asked goes away.
struct Withdrawal<'a> {
    channel: &'a Channel,
    number: Option<u64>,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let _ = self.channel.say.send(Say::Withdraw(number));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The effects that are under way, each with what cuts it off.
#[derive(Default)]
struct Cuts {
    under_way: HashMap<Nonce, CancellationToken>,
    /// Revoked before the permit came, the last one last.
    early: VecDeque<Nonce>,
}

impl Cuts {
    fn begin(&mut self, nonce: Nonce) -> CancellationToken {
        let cut = CancellationToken::new();
        if self.early.contains(&nonce) {
            cut.cancel();
        }
        self.under_way.insert(nonce, cut.clone());
        cut
    }

    fn revoke(&mut self, nonce: Nonce) {
        if let Some(cut) = self.under_way.get(&nonce) {
            cut.cancel();
            return;
        }
        if self.early.len() >= REVOKED_EARLY {
            self.early.pop_front();
        }
        self.early.push_back(nonce);
    }
}

/// A cheap handle on the channel.
#[derive(Clone)]
pub(crate) struct Channel {
    task: TaskId,
    asked: Arc<AtomicU64>,
    say: mpsc::UnboundedSender<Say>,
    cuts: Arc<Mutex<Cuts>>,
}

impl Channel {
    /// Takes over the socket. The future runs the channel until it ends; without an error when the mediator closed it.
    pub(crate) fn open(
        task: TaskId,
        build: &str,
        socket: UnixStream,
    ) -> Result<(Self, impl Future<Output = Result<(), ChannelFault>> + use<>), ChannelFault> {
        let (say, said) = mpsc::unbounded_channel();
        let client = Client::default();
        let hello = client.hello(build, GateKind::Tools).map_err(ClientFault::from)?;
        let line = Line {
            task,
            client,
            decides: HashMap::new(),
            numbers: HashMap::new(),
            notes: HashMap::new(),
            cuts: Arc::default(),
            out: hello,
        };
        let channel = Self {
            task,
            asked: Arc::default(),
            say,
            cuts: Arc::clone(&line.cuts),
        };
        Ok((channel, line.run(socket, said)))
    }

    /// Passes on what the agent has to say about a question.
    pub(crate) fn tell(&self, question: DecisionId, words: String) {
        let _ = self.say.send(Say::Tell(question, words));
    }

    /// The task on whose behalf the channel asks.
    pub(crate) fn task(&self) -> TaskId {
        self.task
    }

    /// Asks about a request and, when it is allowed, uses the permit at once. Where a person must say, the caller waits
    /// until it goes away.
    pub(crate) async fn ask(&self, request: &Request, gone: &CancellationToken) -> Result<Effect, Refused> {
        let written = Written::of(request);
        if written.bytes() > MAX_FRAME.saturating_sub(FRAME_ROOM) {
            let why = format!("it has {} bytes: too many to be asked about", written.bytes());
            return Err(self.refuse(Code::LimitReached, &request.to_string(), &why).await);
        }
        let digest = written.digest();
        let permit = match self.decide(written, gone).await {
            Some(Outcome::Allow(permit)) => permit,
            Some(Outcome::Deny(refusal)) => return Err(Refused::new(refusal)),
            Some(Outcome::Ask(question)) => {
                return Err(Refused::new(Refusal::new(question.id, Code::QuestionWithdrawn)));
            }
            None => return Err(Refused::unavailable()),
        };
        let id = permit.terms().decision;
        let nonce = permit.terms().nonce;
        match permit.spend_as(digest, now()) {
            Ok(spent) => {
                let cut = lock(&self.cuts).begin(nonce);
                let effect = Effect {
                    channel: self.clone(),
                    spent,
                    begun: false,
                    settled: false,
                    passed: Passed::default(),
                    cut,
                };
                if effect.cut.is_cancelled() {
                    effect.settle(false, "not begun");
                    return Err(Refused::new(Refusal::new(id, Code::PermitRefused)));
                }
                Ok(effect)
            }
            Err(fault) => {
                self.settle(nonce, false, fault.to_string(), Passed::default());
                Err(Refused::new(Refusal::new(id, fault.code())))
            }
        }
    }

    /// The answer to a request; none when there is none. A question is the answer when the caller has gone before there
    /// was another.
    async fn decide(&self, request: Written, gone: &CancellationToken) -> Option<Outcome> {
        let (answer, mut answered) = oneshot::channel();
        let (waits, mut waiting) = oneshot::channel();
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let awaited = Awaited {
            number,
            waits: Some(waits),
            answer,
        };
        self.say.send(Say::Decide(request, awaited)).ok()?;
        let mut withdrawal = Withdrawal {
            channel: self,
            number: Some(number),
        };
        let question = tokio::select! {
            biased;
            outcome = &mut answered => {
                withdrawal.number = None;
                return outcome.ok();
            }
            Ok(question) = &mut waiting => question,
            () = tokio::time::sleep(limits::ANSWER_TIME) => return None,
        };
        let left = Duration::from_millis(question.deadline.0.saturating_sub(now().0));
        tokio::select! {
            biased;
            outcome = &mut answered => {
                withdrawal.number = None;
                outcome.ok()
            }
            () = gone.cancelled() => Some(Outcome::Ask(question)),
            () = tokio::time::sleep(left.saturating_add(limits::ANSWER_TIME)) => None,
        }
    }

    /// Puts on record what the gate refuses by itself. The cause may be told to the agent.
    pub(crate) async fn refuse(&self, code: Code, what: &str, why: &str) -> Refused {
        let (answer, answered) = oneshot::channel();
        if self
            .say
            .send(Say::Refused(code, format!("{what}: {why}"), answer))
            .is_err()
        {
            return Refused::unavailable();
        }
        match tokio::time::timeout(limits::ANSWER_TIME, answered).await {
            Ok(Ok(refusal)) => Refused::new(refusal).because(why),
            Ok(Err(_)) | Err(_) => Refused::unavailable(),
        }
    }

    fn settle(&self, nonce: Nonce, done: bool, note: String, passed: Passed) {
        // A channel that is gone has told the mediator all it needs: every open permit counts as abandoned.
        let _ = self.say.send(Say::Settle(Settlement {
            nonce,
            done,
            note,
            passed,
        }));
    }
}

/// An effect that was allowed and may now be done. Settled when it is dropped, if not before.
pub(crate) struct Effect {
    channel: Channel,
    spent: Spent,
    begun: bool,
    settled: bool,
    passed: Passed,
    cut: CancellationToken,
}

impl Effect {
    /// Cancelled when it is cut off.
    pub(crate) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// What the permit was spent on.
    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Notes that the effect has begun: from now on it counts as done, however it ends.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Notes how many bytes went out.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.passed.sent = u64::try_from(bytes).ok();
    }

    /// Notes how many bytes came back.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.passed.received = u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// Says what became of it.
    pub(crate) fn settle(mut self, done: bool, note: impl Into<String>) {
        self.over(done, note.into());
    }

    fn over(&mut self, done: bool, mut note: String) {
        self.settled = true;
        let nonce = self.spent.nonce();
        lock(&self.channel.cuts).under_way.remove(&nonce);
        if self.cut.is_cancelled() {
            note.push_str(", cut off: what allowed it was revoked");
        }
        self.channel.settle(nonce, done, note, self.passed);
    }
}

impl Drop for Effect {
    fn drop(&mut self) {
        if !self.settled {
            let note = if self.begun {
                "broken off"
            } else {
                "given up before it was done"
            };
            self.over(self.begun, note.into());
        }
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The one owner of the socket.
struct Line {
    task: TaskId,
    client: Client,
    decides: HashMap<u64, Awaited>,
    /// The calls by the numbers under which they are withdrawn.
    numbers: HashMap<u64, u64>,
    notes: HashMap<u64, oneshot::Sender<Refusal>>,
    cuts: Arc<Mutex<Cuts>>,
    out: Vec<u8>,
}

impl Line {
    async fn run(mut self, socket: UnixStream, mut said: mpsc::UnboundedReceiver<Say>) -> Result<(), ChannelFault> {
        let (mut read, mut write) = socket.into_split();
        let mut reader = FrameReader::default();
        let mut buffer = vec![0u8; 64 * 1024];
        loop {
            tokio::select! {
                got = read.read(&mut buffer) => {
                    let count = match got {
                        Ok(0) => return self.last_words(&mut write).await,
                        Ok(count) => count,
                        Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                        Err(fault) => return Err(fault.into()),
                    };
                    if let Some(got) = buffer.get(..count) {
                        reader.push(got);
                    }
                    while let Some(frame) = reader.next_frame().map_err(ClientFault::from)? {
                        let reply = self.client.receive(frame)?;
                        self.hand_on(reply)?;
                    }
                }
                wrote = write.write(&self.out), if !self.out.is_empty() => {
                    match wrote {
                        Ok(count) => drop(self.out.drain(..count)),
                        // The mediator closed it while something was on its way: that is an end like any other.
                        Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                        Err(fault) => return Err(fault.into()),
                    }
                }
                say = said.recv(), if self.out.len() < WRITE_AHEAD => match say {
                    Some(say) => self.say(say)?,
                    None => return self.last_words(&mut write).await,
                },
            }
        }
    }

    /// Writes what there is left to say, and that there is no more.
    async fn last_words(&self, write: &mut OwnedWriteHalf) -> Result<(), ChannelFault> {
        let written = async {
            write.write_all(&self.out).await?;
            write.shutdown().await
        };
        // A mediator that hears no more needs none of it: what was not settled counts as abandoned.
        let _ = tokio::time::timeout(limits::LAST_WORDS, written).await;
        Ok(())
    }

    fn say(&mut self, say: Say) -> Result<(), ChannelFault> {
        match say {
            Say::Decide(request, awaited) => {
                let framed = self.client.ask(&request, true);
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
            Say::Tell(question, words) => {
                // What does not fit into a frame is not said.
                if let Ok(frame) = self.client.tell(question, &words) {
                    self.out.extend(frame);
                }
            }
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
            Reply::Revoked(nonce) => lock(&self.cuts).revoke(nonce),
            Reply::Noted(call, refusal) => {
                if let Some(asker) = self.notes.remove(&call) {
                    let _ = asker.send(refusal);
                }
            }
            // Whether the mediator could take it is in its own record. This gate keeps no list of what was refused, and
            // asks for no secret.
            Reply::Ready | Reply::Told(_) | Reply::Settled(..) | Reply::Redeemed(..) => {}
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
