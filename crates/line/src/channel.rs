//! The task's channel to the mediator, shared by everything that a gate serves.
//!
//! Answers: may this be done? Asks, waits for a person where one must say, and uses the permit at once.
//! Promises: P1 (a permit that nobody waits for any more is given back), P4 (a mediator that does not answer is a no),
//! P10 (a refusal of the gate's own is put on record), P11 (an effect under a permit that was revoked is not begun).
//! Trust: the other end is the mediator. What it is told stems from hostile bytes; frames hold it as JSON text.
//! Not here: the socket (`speaker`), what becomes of an effect (`effect`), what the agent is told (each gate's own).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_gate::{GateKind, MAX_FRAME, Outcome, Passed, Question, Refusal, Written};
use bailiwick_model::{Code, DecisionId, Millis, Request, TaskId};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::attended::{Attended, Attending};
use crate::cuts::Cuts;
use crate::effect::Effect;
use crate::speaker::{self, Awaited, ChannelFault, Say};

/// How long the mediator may take to answer. After that the answer is no, and a late permit is given back.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(60);

/// What a frame holds beside a request, at most.
const FRAME_ROOM: usize = 256;

/// Who hears what the mediator says unasked.
pub trait Hears: Send + Sync + 'static {
    /// The mediator has greeted. What was refused before, it has told by then.
    fn greeted(&self) {}

    /// Something was refused to the task: by this gate, or by way of another.
    fn refused(&self, refusal: &Refusal) {
        let _ = refusal;
    }
}

/// Nobody.
impl Hears for () {}

/// A no.
#[derive(Debug, Clone)]
pub struct Denied {
    /// As it is on record; none where the mediator does not answer, so that there is nobody to put it there.
    pub refusal: Option<Refusal>,
    /// A cause that the agent may know: what was wrong with what it sent.
    pub why: Option<String>,
}

impl Denied {
    /// The mediator does not answer.
    fn unanswered() -> Self {
        Self {
            refusal: None,
            why: None,
        }
    }
}

/// Withdraws a request when whoever asked goes away.
struct Withdrawal<'a> {
    channel: &'a Channel,
    number: Option<u64>,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.channel.say(Say::Withdraw(number));
        }
    }
}

/// A cheap handle on the channel.
#[derive(Clone)]
pub struct Channel(Arc<Inner>);

struct Inner {
    task: TaskId,
    asked: AtomicU64,
    say: mpsc::UnboundedSender<Say>,
    cuts: Arc<Cuts>,
    hears: Arc<dyn Hears>,
    attended: Arc<Attended>,
}

impl Channel {
    /// Takes over the socket. The future runs the channel until it ends; without an error when the mediator closed it.
    pub fn open(
        task: TaskId,
        build: &str,
        gate: GateKind,
        socket: UnixStream,
        hears: Arc<dyn Hears>,
    ) -> Result<(Self, impl Future<Output = Result<(), ChannelFault>> + use<>), ChannelFault> {
        let (say, said) = mpsc::unbounded_channel();
        let cuts = Arc::<Cuts>::default();
        let attended = Arc::<Attended>::default();
        let ends = speaker::Ends {
            cuts: Arc::clone(&cuts),
            hears: Arc::clone(&hears),
            attended: Arc::clone(&attended),
        };
        let run = speaker::run(task, build, gate, socket, said, ends)?;
        let inner = Inner {
            task,
            asked: AtomicU64::new(0),
            say,
            cuts,
            hears,
            attended,
        };
        Ok((Self(Arc::new(inner)), run))
    }

    /// The task on whose behalf the channel asks.
    pub fn task(&self) -> TaskId {
        self.0.task
    }

    /// Notes, for as long as what it returns is kept, that somebody is served whose leaving is something to put on record:
    /// when the task ends, that is waited for.
    pub fn attend(&self) -> Attending {
        let (attending, first) = self.0.attended.begin();
        if first {
            self.say(Say::Attending);
        }
        attending
    }

    /// Passes on what the agent has to say about a question.
    pub fn tell(&self, question: DecisionId, words: String) {
        self.say(Say::Tell(question, words));
    }

    /// Asks about a request and, when it is allowed, uses the permit at once. Where a person must say, the caller waits
    /// until `gone` returns; where there is no caller that could wait, that is a no. `client` is the socket of whoever is
    /// served: it is shut when the effect is cut off and goes on all the same.
    pub async fn ask(
        &self,
        request: &Request,
        gone: Option<impl Future<Output = ()>>,
        client: Option<Arc<OwnedFd>>,
    ) -> Result<Effect, Denied> {
        let written = Written::of(request);
        if written.bytes() > MAX_FRAME.saturating_sub(FRAME_ROOM) {
            let why = format!("it has {} bytes: too many to be asked about", written.bytes());
            return Err(self.refuse(Code::LimitReached, &request.to_string(), &why).await);
        }
        let digest = written.digest();
        let permit = match self.decide(written, gone).await {
            Some(Outcome::Allow(permit)) => permit,
            Some(Outcome::Deny(refusal)) => return Err(self.denied(refusal)),
            Some(Outcome::Ask(question)) => {
                return Err(self.denied(Refusal::new(question.id, Code::QuestionWithdrawn)));
            }
            None => return Err(Denied::unanswered()),
        };
        let id = permit.terms().decision;
        let nonce = permit.terms().nonce;
        match permit.spend_as(digest, now()) {
            Ok(spent) => {
                let effect = Effect::new(self.clone(), spent, self.0.cuts.begin(nonce, client));
                if effect.cut().is_cut() {
                    effect.settle(false, "not begun");
                    return Err(self.denied(Refusal::new(id, Code::PermitRefused)));
                }
                Ok(effect)
            }
            Err(fault) => {
                self.say(Say::settle(nonce, false, fault.to_string(), Passed::default()));
                Err(self.denied(Refusal::new(id, fault.code())))
            }
        }
    }

    /// The answer to a request; none when there is none. A question is the answer when the caller has gone before there
    /// was another.
    async fn decide(&self, request: Written, gone: Option<impl Future<Output = ()>>) -> Option<Outcome> {
        let (answer, mut answered) = oneshot::channel();
        let (waits, mut waiting) = oneshot::channel();
        let number = self.0.asked.fetch_add(1, Ordering::Relaxed);
        let awaited = Awaited {
            number,
            patient: gone.is_some(),
            waits: Some(waits),
            answer,
        };
        if !self.say(Say::Decide(request, awaited)) {
            return None;
        }
        let mut withdrawal = Withdrawal {
            channel: self,
            number: Some(number),
        };
        let question: Question = tokio::select! {
            biased;
            outcome = &mut answered => {
                withdrawal.number = None;
                return outcome.ok();
            }
            Ok(question) = &mut waiting => question,
            () = tokio::time::sleep(ANSWER_TIME) => return None,
        };
        let left = Duration::from_millis(question.deadline.0.saturating_sub(now().0));
        let gone = async {
            match gone {
                Some(gone) => gone.await,
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
            () = tokio::time::sleep(left.saturating_add(ANSWER_TIME)) => None,
        }
    }

    /// Puts on record what the gate refuses by itself. The cause may be told to the agent.
    pub async fn refuse(&self, code: Code, what: &str, why: &str) -> Denied {
        let (answer, answered) = oneshot::channel();
        if !self.say(Say::Refused(code, format!("{what}: {why}"), answer)) {
            return Denied::unanswered();
        }
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(Ok(refusal)) => Denied {
                why: Some(why.to_owned()),
                ..self.denied(refusal)
            },
            Ok(Err(_)) | Err(_) => Denied::unanswered(),
        }
    }

    fn denied(&self, refusal: Refusal) -> Denied {
        self.0.hears.refused(&refusal);
        Denied {
            refusal: Some(refusal),
            why: None,
        }
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.0.cuts
    }

    /// Has something said. False where the channel is gone; that has told the mediator all it needs: every open permit
    /// counts as abandoned.
    pub(crate) fn say(&self, say: Say) -> bool {
        self.0.say.send(say).is_ok()
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::future::{Pending, pending};

    use bailiwick_gate::{Answer, Call, FrameReader, PROTOCOL, PermitTerms, Settlement, decode, digest_of, encode};
    use bailiwick_model::{DecisionId, Host, Nonce, Resource, Verb};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
        let (channel, run) = Channel::open(TaskId([1; 8]), "test", GateKind::Network, ours, Arc::new(())).unwrap();
        tokio::spawn(run);
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

    const NOBODY: Option<Pending<()>> = None;

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
            tokio::time::timeout(Duration::from_millis(20), channel.ask(&asking, NOBODY, None))
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
            let asking = tokio::spawn(async move { asker.ask(&request(), NOBODY, None).await });
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
                Err(denied) => {
                    let code = denied.refusal.map(|refusal| refusal.code);
                    assert_eq!((code, deadline), (Some(Code::PermitRefused), Millis(1)));
                }
            }
            assert_eq!(settled(&mut mediator).await.done, begun);
            mediator
                .say(&Answer::Settled {
                    call: call.saturating_add(1),
                })
                .await;
        }
    }

    #[tokio::test]
    async fn what_passed_is_told_with_the_settlement_and_a_question_takes_it_along() {
        let (channel, mut mediator) = pair().await;
        let asker = channel.clone();
        let asking = tokio::spawn(async move { asker.ask(&request(), Some(pending()), None).await });
        let Call::Decide { call, request, patient } = mediator.hear().await else {
            panic!()
        };
        assert!(patient);
        mediator.say(&allow(call, &request, Millis(u64::MAX))).await;
        let mut effect = asking.await.unwrap().unwrap();
        effect.begin();
        effect.sent(3usize);
        effect.received(4u64);
        effect.received(5usize);
        effect.settle(true, "done");
        // In one piece with what is asked next.
        let asker = channel.clone();
        let asking = tokio::spawn(async move { asker.ask(&request, NOBODY, None).await.is_err() });
        let mut buffer = [0u8; 4096];
        let count = mediator.socket.read(&mut buffer).await.unwrap();
        mediator.reader.push(&buffer[..count]);
        let settlement = settled(&mut mediator).await;
        assert_eq!((settlement.passed.sent, settlement.passed.received), (Some(3), 9));
        let next = mediator.reader.next_frame().unwrap().map(decode::<Call>);
        assert!(matches!(next, Some(Ok(Call::Decide { patient: false, .. }))));
        drop(mediator);
        assert!(asking.await.unwrap(), "a channel that has closed is a no");
    }

    #[tokio::test(start_paused = true)]
    async fn p4_a_mediator_that_does_not_answer_is_a_refusal() {
        let (channel, _mediator) = pair().await;
        let Err(denied) = channel.ask(&request(), NOBODY, None).await else {
            panic!("allowed")
        };
        assert!(denied.refusal.is_none());
        assert!(channel.refuse(Code::NotTls, "a", "b").await.refusal.is_none());
    }

    #[tokio::test]
    async fn p10_what_the_end_brings_to_light_is_said_before_the_channel_closes() {
        let (channel, mut mediator) = pair().await;
        let attending = channel.attend();
        assert!(matches!(mediator.hear().await, Call::Attending));
        drop(channel.attend());
        mediator.socket.shutdown().await.unwrap();
        let leaves = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let said = channel
                .refuse(Code::CertificateNotAccepted, "TLS to h:1", "it left")
                .await;
            drop(attending);
            said
        });
        let heard = mediator.hear().await;
        assert!(
            matches!(
                heard,
                Call::Refused {
                    code: Code::CertificateNotAccepted,
                    ..
                }
            ),
            "{heard:?}"
        );
        assert!(
            leaves.await.unwrap().refusal.is_none(),
            "nothing is answered at the end"
        );
        assert_eq!(mediator.socket.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn p4_what_fits_into_no_frame_is_refused_on_record() {
        let (channel, mut mediator) = pair().await;
        let mut large = request();
        let text = bailiwick_model::Argument::Text("a".repeat(MAX_FRAME));
        large.arguments.insert("reason".into(), text);
        let asker = channel.clone();
        let asking = tokio::spawn(async move { asker.ask(&large, NOBODY, None).await.err() });
        let Call::Refused { call, code, .. } = mediator.hear().await else {
            panic!()
        };
        let refusal = Refusal::new(DecisionId([2; 6]), code);
        mediator.say(&Answer::Deny { call, refusal }).await;
        let denied = asking.await.unwrap().unwrap();
        assert_eq!(denied.refusal.map(|refusal| refusal.code), Some(Code::LimitReached));
        assert!(denied.why.unwrap().contains("too many"));
    }
}
