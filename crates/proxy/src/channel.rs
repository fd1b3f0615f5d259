//! The task's channel to the mediator, shared by everything the gate serves.
//!
//! Promises: P1 (an effect that was allowed is always settled, also when whoever asked went away), P4 (a channel that
//! fails is closed for good, and everything asked of it is refused), P10 (a refusal of the gate's own is put on record).
//! Trust: the other end is the mediator. What it is told stems from hostile bytes; frames hold it as JSON text.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_gate::{
    Client, ClientFault, FrameReader, GateKind, Outcome, Passed, Permit, Question, Redeemed, Refusal, Reply,
    Settlement, Spent, ToRedeem, Written,
};
use bailiwick_model::{Code, DecisionId, Millis, Nonce, Request, TaskId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use zeroize::Zeroize as _;

use crate::caller::Caller;
use crate::cuts::{Cut, Cuts, REVOKED};
use crate::last::Last;
use crate::limits;
use crate::refusal::Refused;

/// How much may wait to be written before new calls wait too, in bytes.
const WRITE_AHEAD: usize = 1024 * 1024;

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
    Redeem(Nonce, ToRedeem, oneshot::Sender<Result<Redeemed, Refusal>>),
    Refused(Code, String, oneshot::Sender<Refusal>),
    /// What the agent says about a question.
    Tell(DecisionId, String),
}

/// Where an answer goes.
struct Awaited {
    /// The number by which it is withdrawn.
    number: u64,
    /// False for somebody who cannot wait for a person.
    patient: bool,
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

/// A cheap handle on the channel.
#[derive(Clone)]
pub(crate) struct Channel {
    task: TaskId,
    asked: Arc<AtomicU64>,
    say: mpsc::UnboundedSender<Say>,
    cuts: Arc<Cuts>,
    /// What was refused last.
    pub(crate) last: Arc<Last>,
}

impl Channel {
    /// Takes over the socket. The future runs the channel until it ends; without an error when the mediator closed it.
    pub(crate) fn open(
        task: TaskId,
        build: &str,
        socket: UnixStream,
    ) -> Result<(Self, impl Future<Output = Result<(), ChannelFault>>), ChannelFault> {
        let (say, said) = mpsc::unbounded_channel();
        let client = Client::default();
        let hello = client.hello(build, GateKind::Network).map_err(ClientFault::from)?;
        let last = Arc::<Last>::default();
        let line = Line {
            task,
            client,
            decides: HashMap::new(),
            numbers: HashMap::new(),
            notes: HashMap::new(),
            redeems: HashMap::new(),
            last: Arc::clone(&last),
            cuts: Arc::default(),
            out: hello,
            rests: false,
        };
        let channel = Self {
            task,
            asked: Arc::default(),
            say,
            cuts: Arc::clone(&line.cuts),
            last,
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

    /// Asks about a request and, when it is allowed, uses the permit at once. Where a person must say, the caller waits,
    /// until it goes away; where there is no caller that could wait, that is a no.
    pub(crate) async fn ask(&self, request: &Request, caller: Option<&Caller>) -> Result<Effect, Refused> {
        let written = Written::of(request);
        let digest = written.digest();
        let permit = match self.decide(written, caller).await {
            Some(Outcome::Allow(permit)) => permit,
            Some(Outcome::Deny(refusal)) => return Err(self.refused(refusal, request.to_string())),
            Some(Outcome::Ask(question)) => {
                let refusal = Refusal::new(question.id, Code::QuestionWithdrawn);
                return Err(self.refused(refusal, request.to_string()));
            }
            None => return Err(Refused::unavailable(request.to_string())),
        };
        let id = permit.terms().decision;
        let nonce = permit.terms().nonce;
        match permit.spend_as(digest, now()) {
            Ok(spent) => {
                let effect = Effect {
                    channel: self.clone(),
                    spent,
                    begun: false,
                    settled: false,
                    passed: Passed::default(),
                    cut: self.cuts.begin(nonce, caller.and_then(Caller::socket)),
                };
                if effect.cut.is_cut() {
                    effect.settle(false, "not begun");
                    let code = Code::PermitRefused;
                    return Err(self.refused(Refusal::new(id, code), request.to_string()));
                }
                Ok(effect)
            }
            Err(fault) => {
                self.settle(nonce, false, fault.to_string(), Passed::default());
                let refusal = Refusal::new(id, fault.code());
                Err(self.refused(refusal, request.to_string()))
            }
        }
    }

    /// The answer to a request; none when there is none. A question is the answer when the caller has gone before there
    /// was another.
    async fn decide(&self, request: Written, caller: Option<&Caller>) -> Option<Outcome> {
        let (answer, mut answered) = oneshot::channel();
        let (waits, mut waiting) = oneshot::channel();
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let awaited = Awaited {
            number,
            patient: caller.is_some(),
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
        let gone = async {
            match caller {
                Some(caller) => caller.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = &mut answered => {
                withdrawal.number = None;
                outcome.ok()
            }
            () = gone => Some(Outcome::Ask(question)),
            () = tokio::time::sleep(left.saturating_add(limits::ANSWER_TIME)) => None,
        }
    }

    /// Puts on record what the gate refuses by itself.
    pub(crate) async fn refuse(&self, code: Code, what: &str, why: &str) -> Refused {
        let (answer, answered) = oneshot::channel();
        let line = format!("{what}: {why}");
        if self.say.send(Say::Refused(code, line, answer)).is_err() {
            return Refused::unavailable(what);
        }
        match tokio::time::timeout(limits::ANSWER_TIME, answered).await {
            Ok(Ok(refusal)) => self.refused(refusal, what).because(why),
            Ok(Err(_)) | Err(_) => Refused::unavailable(what),
        }
    }

    fn refused(&self, refusal: Refusal, act: impl Into<String>) -> Refused {
        self.last.remember(refusal.clone());
        Refused::new(refusal, act)
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
    cut: Arc<Cut>,
}

impl Effect {
    /// Whether it is cut off.
    pub(crate) fn cut(&self) -> &Arc<Cut> {
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

    /// Notes how many bytes of the request's body were sent in all. Without it, all that was taken for it counts.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.passed.sent = Some(bytes);
    }

    /// Notes how many bytes of the answer's body were received, besides those noted before.
    pub(crate) fn received(&mut self, bytes: u64) {
        self.passed.received = self.passed.received.saturating_add(bytes);
    }

    /// Gets what the permit obliges the gate to put in.
    pub(crate) async fn redeem(&self, wanted: ToRedeem) -> Result<Redeemed, Code> {
        let (answer, answered) = oneshot::channel();
        let say = Say::Redeem(self.spent.nonce(), wanted, answer);
        self.channel.say.send(say).map_err(|_| Code::MediatorUnavailable)?;
        match tokio::time::timeout(limits::ANSWER_TIME, answered).await {
            Ok(Ok(redeemed)) => redeemed.map_err(|refusal| refusal.code),
            Ok(Err(_)) | Err(_) => Err(Code::MediatorUnavailable),
        }
    }

    /// Says what became of it.
    pub(crate) fn settle(mut self, done: bool, note: impl Into<String>) {
        self.over(done, note.into());
    }

    fn over(&mut self, done: bool, mut note: String) {
        self.settled = true;
        let nonce = self.spent.nonce();
        self.channel.cuts.end(nonce);
        if self.cut.is_cut() {
            note.push_str(", ");
            note.push_str(REVOKED);
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
    redeems: HashMap<u64, oneshot::Sender<Result<Redeemed, Refusal>>>,
    last: Arc<Last>,
    cuts: Arc<Cuts>,
    out: Vec<u8>,
    /// True while all that is to be written is settlements, which wait a moment for a question to go with.
    rests: bool,
}

impl Line {
    async fn run(mut self, socket: UnixStream, mut said: mpsc::UnboundedReceiver<Say>) -> Result<(), ChannelFault> {
        let (mut read, mut write) = socket.into_split();
        let mut reader = FrameReader::default();
        let mut buffer = vec![0u8; 64 * 1024];
        let mut rest = std::pin::pin!(tokio::time::sleep(limits::SETTLE_TIME));
        loop {
            let rested = self.rests;
            tokio::select! {
                got = read.read(&mut buffer) => {
                    let count = match got {
                        Ok(0) => return self.last_words(&mut write).await,
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
                    None => return self.last_words(&mut write).await,
                },
            }
            if self.rests && !rested {
                rest.as_mut().reset(Instant::now() + limits::SETTLE_TIME);
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
            Reply::Ready => self.last.begin(),
            Reply::Told(refusal) => self.last.remember(refusal),
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
            Reply::Revoked(nonce) => self.cuts.revoke(nonce),
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

#[cfg(test)]
mod tests {
    use bailiwick_gate::{Answer, Call, PROTOCOL, PermitTerms, decode, digest_of, encode};
    use bailiwick_model::{DecisionId, Host, Resource, Verb};

    use super::*;

    struct Mediator {
        socket: UnixStream,
        reader: FrameReader,
    }

    impl Mediator {
        async fn hear(&mut self) -> Call {
            loop {
                if let Some(frame) = self.reader.next_frame().unwrap() {
                    return decode(frame).unwrap();
                }
                let mut buffer = [0u8; 4096];
                let count = self.socket.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the gate closed the channel");
                self.reader.push(&buffer[..count]);
            }
        }

        async fn say(&mut self, answer: &Answer) {
            self.socket.write_all(&encode(answer).unwrap()).await.unwrap();
        }
    }

    async fn pair() -> (Channel, Mediator) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (channel, line) = Channel::open(TaskId([1; 8]), "test", ours).unwrap();
        tokio::spawn(line);
        let mut mediator = Mediator {
            socket: theirs,
            reader: FrameReader::default(),
        };
        assert!(matches!(
            mediator.hear().await,
            Call::Hello {
                gate: GateKind::Network,
                ..
            }
        ));
        let hello = Answer::Hello {
            protocol: PROTOCOL,
            build: "test".into(),
        };
        mediator.say(&hello).await;
        (channel, mediator)
    }

    fn request() -> Request {
        Request::new(
            TaskId([1; 8]),
            Verb::Resolve,
            Resource::Name(Host::parse("a.test").unwrap()),
        )
    }

    fn allow(call: u64, request: &Request, deadline: Millis) -> Answer {
        Answer::Allow {
            call,
            terms: Box::new(PermitTerms {
                decision: DecisionId([2; 6]),
                digest: digest_of(request),
                task: request.task,
                nonce: Nonce([3; 16]),
                deadline,
                obligations: Vec::new(),
            }),
        }
    }

    async fn settled(mediator: &mut Mediator) -> Settlement {
        match mediator.hear().await {
            Call::Settle { settlement, .. } => settlement,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn p1_a_permit_that_nobody_waits_for_is_given_back() {
        let (channel, mut mediator) = pair().await;
        let asking = request();
        assert!(
            tokio::time::timeout(Duration::from_millis(20), channel.ask(&asking, None))
                .await
                .is_err()
        );
        let Call::Decide { call, request, .. } = mediator.hear().await else {
            panic!()
        };
        assert!(matches!(mediator.hear().await, Call::Withdraw { call: of } if of == call));
        mediator.say(&allow(call, &request, Millis(u64::MAX))).await;
        let settlement = settled(&mut mediator).await;
        assert_eq!((settlement.nonce, settlement.done), (Nonce([3; 16]), false));
    }

    #[tokio::test]
    async fn p1_an_effect_is_settled_however_it_ends() {
        let (channel, mut mediator) = pair().await;
        for (begun, deadline) in [(false, Millis(u64::MAX)), (true, Millis(u64::MAX)), (false, Millis(1))] {
            let asker = channel.clone();
            let asking = tokio::spawn(async move { asker.ask(&request(), None).await });
            let Call::Decide { call, request, .. } = mediator.hear().await else {
                panic!()
            };
            mediator.say(&allow(call, &request, deadline)).await;
            match asking.await.unwrap() {
                Ok(mut effect) => {
                    assert_ne!(deadline, Millis(1));
                    if begun {
                        effect.begin();
                    }
                    drop(effect);
                }
                Err(refused) => assert_eq!((refused.code, deadline), (Code::PermitRefused, Millis(1))),
            }
            assert_eq!(settled(&mut mediator).await.done, begun);
            mediator
                .say(&Answer::Settled {
                    call: call.saturating_add(1),
                })
                .await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn p4_a_mediator_that_does_not_answer_is_a_refusal() {
        let (channel, _mediator) = pair().await;
        let Err(refused) = channel.ask(&request(), None).await else {
            panic!("allowed")
        };
        assert_eq!(refused.code, Code::MediatorUnavailable);
        let refused = channel.refuse(Code::NotTls, "a", "b").await;
        assert_eq!((refused.code, refused.id), (Code::MediatorUnavailable, None));
    }
}
