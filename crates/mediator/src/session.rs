//! The mediator's end of a gate's channel, without the channel: frames in, frames out.
//!
//! Promises: P1 (a gate asks and settles for its own task only), P4 (another protocol, a frame that cannot be read or
//! comes out of turn, too many calls at once: the channel is closed).
//! Trust: every byte comes from a process that parses hostile bytes and may have been taken over by them.
//! Not here: the socket, cutting bytes into frames (`gate::FrameReader`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bailiwick_gate::{
    Answer, Call, MAX_SECRET, Outcome, PROTOCOL, Passed, Question, Refusal, Settlement, ToRedeem, Vault, WireFault,
    decode, encode, encode_in,
};
use bailiwick_model::{Code, Request, TaskId};

use crate::monitor::Mediator;
use crate::task::lock;

/// Most calls of one channel whose answers may wait for their records.
const MAX_WAITING: usize = 4096;

/// Room for the frame of any secret.
const SECRET_FRAME: usize = 2 * MAX_SECRET;

/// What sends a frame back. Called from the thread that calls [`Session::receive`], and from the log's own.
pub type Reply = Arc<dyn Fn(Vec<u8>) + Send + Sync>;

/// Says why the channel must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionFault {
    /// The frames do not fit.
    #[error(transparent)]
    Wire(#[from] WireFault),
    /// The gate spoke for a task that is not its own.
    #[error("the gate of task {own} spoke for task {named}")]
    OtherTask {
        /// The channel's task.
        own: TaskId,
        /// The task in the frame.
        named: TaskId,
    },
    /// Too many calls wait, or one under this number.
    #[error("{MAX_WAITING} calls of one channel wait for an answer already, or one of this number does")]
    Busy,
}

/// The calls of one channel whose answers are not known yet.
#[derive(Default)]
pub(crate) struct Line(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    closed: bool,
    /// Each open call, and whether somebody still waits for its answer.
    open: BTreeMap<u64, bool>,
}

/// Who waits for the answer to a call.
pub(crate) struct Asker {
    line: Arc<Line>,
    call: u64,
    reply: Reply,
}

impl Asker {
    /// Says that a person is asked.
    pub(crate) fn tell(&self, question: Question) {
        // An id and a time always fit into a frame.
        let _ = send(
            &self.reply,
            &Answer::Question {
                call: self.call,
                question,
            },
        );
    }

    /// Gives the answer.
    pub(crate) fn answer(self, mediator: &Mediator, outcome: Outcome) {
        lock(&self.line.0).open.remove(&self.call);
        answer(mediator, self.call, outcome, &self.reply);
    }

    /// Answers no.
    pub(crate) fn deny(self, refusal: Refusal) {
        lock(&self.line.0).open.remove(&self.call);
        // A refusal always fits into a frame.
        let _ = send(
            &self.reply,
            &Answer::Deny {
                call: self.call,
                refusal,
            },
        );
    }

    /// True while somebody waits.
    pub(crate) fn waits(&self) -> bool {
        let calls = lock(&self.line.0);
        !calls.closed && calls.open.get(&self.call) == Some(&true)
    }

    /// True when this is a call of that channel: the named one, or any.
    pub(crate) fn is_of(&self, line: &Arc<Line>, call: Option<u64>) -> bool {
        Arc::ptr_eq(&self.line, line) && call.is_none_or(|call| call == self.call)
    }
}

/// One channel, bound to one task.
pub struct Session {
    mediator: Arc<Mediator>,
    task: TaskId,
    greeted: bool,
    line: Arc<Line>,
    vault: Option<Arc<dyn Vault>>,
}

impl Drop for Session {
    /// A channel that has closed waits for nothing.
    fn drop(&mut self) {
        lock(&self.line.0).closed = true;
        self.mediator.withdraw(&self.line, None);
    }
}

impl Session {
    /// A channel that has not been greeted yet.
    pub fn new(mediator: Arc<Mediator>, task: TaskId) -> Self {
        Self {
            mediator,
            task,
            greeted: false,
            line: Arc::default(),
            vault: None,
        }
    }

    /// The same for a gate that may redeem secrets.
    #[must_use]
    pub fn with_vault(mut self, vault: Arc<dyn Vault>) -> Self {
        self.vault = Some(vault);
        self
    }

    /// Takes one frame's JSON. The answer is sent when it is known; answers may overtake each other. After a fault
    /// the channel must be closed.
    pub fn receive(&mut self, body: &[u8], reply: &Reply) -> Result<(), SessionFault> {
        let call: Call = decode(body)?;
        match (call, self.greeted) {
            (Call::Hello { protocol, .. }, false) => self.greet(protocol, reply),
            (Call::Hello { .. }, true) => Err(WireFault::OutOfTurn("a second greeting").into()),
            (_, false) => Err(WireFault::OutOfTurn("a call before the greeting").into()),
            (Call::Decide { call, request, patient }, true) => self.decide(call, &request, patient, reply),
            (Call::Withdraw { call }, true) => {
                // What is not open any more has been answered meanwhile.
                if let Some(waited_for) = lock(&self.line.0).open.get_mut(&call) {
                    *waited_for = false;
                }
                self.mediator.withdraw(&self.line, Some(call));
                Ok(())
            }
            (Call::Attending, true) => Ok(()),
            (Call::Settle { call, settlement }, true) => {
                let answer = match self.mediator.settle_of(self.task, &settlement) {
                    Ok(()) => Answer::Settled { call },
                    Err(refusal) => Answer::Deny { call, refusal },
                };
                send(reply, &answer).map_err(Into::into)
            }
            (
                Call::Redeem {
                    call,
                    nonce,
                    secret,
                    sign,
                    unwelcome,
                },
                true,
            ) => {
                let reply = Arc::clone(reply);
                let then = move |handed| {
                    let answer = match handed {
                        Ok(redeemed) => Answer::Redeemed { call, redeemed },
                        Err(refusal) => Answer::Deny { call, refusal },
                    };
                    // Both fit into a frame: what a vault hands out is bounded. No copy is left behind by growing.
                    if let Ok(frame) = encode_in(SECRET_FRAME, &answer) {
                        reply(frame);
                    }
                };
                let wanted = ToRedeem {
                    secret,
                    sign: sign.map(|sign| *sign),
                    unwelcome,
                };
                self.mediator
                    .redeem(self.task, &nonce, wanted, self.vault.as_ref(), Box::new(then));
                Ok(())
            }
            (Call::Tell { question, words }, true) => {
                self.mediator.tell(self.task, question, &words);
                Ok(())
            }
            (Call::Refused { call, task, code, what }, true) => {
                self.check_task(call, task, "refused", reply)?;
                let refusal = self.mediator.refuse(Some(task), code, &what);
                send(reply, &Answer::Deny { call, refusal }).map_err(Into::into)
            }
        }
    }

    fn greet(&mut self, protocol: u32, reply: &Reply) -> Result<(), SessionFault> {
        // The answer goes out in either case, so that an older gate can say what it met.
        let hello = Answer::Hello {
            protocol: PROTOCOL,
            build: env!("CARGO_PKG_VERSION").into(),
        };
        send(reply, &hello)?;
        if protocol != PROTOCOL {
            return Err(WireFault::Version(protocol).into());
        }
        self.greeted = true;
        // Without a task there is nothing to hear of.
        if let Some(task) = self.mediator.task(self.task) {
            task.state().add_gate(Arc::downgrade(reply));
        }
        Ok(())
    }

    fn decide(&self, call: u64, request: &Request, patient: bool, reply: &Reply) -> Result<(), SessionFault> {
        self.check_task(call, request.task, "decide", reply)?;
        {
            let mut calls = lock(&self.line.0);
            if calls.open.len() >= MAX_WAITING || calls.open.insert(call, true).is_some() {
                return Err(SessionFault::Busy);
            }
        }
        let asker = Asker {
            line: Arc::clone(&self.line),
            call,
            reply: Arc::clone(reply),
        };
        if patient {
            self.mediator.decide_patiently(request, asker);
            return Ok(());
        }
        let mediator = Arc::clone(&self.mediator);
        self.mediator
            .decide_then(request, move |outcome| asker.answer(&mediator, outcome));
        Ok(())
    }

    /// Refuses, on record, a call for another task than the channel's.
    fn check_task(&self, call: u64, named: TaskId, what: &str, reply: &Reply) -> Result<(), SessionFault> {
        if named == self.task {
            return Ok(());
        }
        let what = format!("{what}: for task {named} on the channel of another");
        let refusal = self.mediator.refuse(Some(self.task), Code::UnknownTask, &what);
        send(reply, &Answer::Deny { call, refusal })?;
        Err(SessionFault::OtherTask { own: self.task, named })
    }
}

fn answer(mediator: &Mediator, call: u64, outcome: Outcome, reply: &Reply) {
    let (answer, permit) = match outcome {
        Outcome::Allow(permit) => {
            let terms = permit.terms().clone();
            let key = (terms.task, terms.nonce, terms.decision);
            let terms = Box::new(terms);
            (Answer::Allow { call, terms }, Some(key))
        }
        // Nobody is asked on behalf of somebody who does not wait.
        Outcome::Ask(question) => {
            let refusal = Refusal::new(question.id, Code::NobodyToAsk);
            (Answer::Deny { call, refusal }, None)
        }
        Outcome::Deny(refusal) => (Answer::Deny { call, refusal }, None),
    };
    if send(reply, &answer).is_err()
        && let Some((task, nonce, id)) = permit
    {
        // A permit whose obligations fit into no frame is given up again.
        let settlement = Settlement {
            nonce,
            done: false,
            note: "too large for a frame".into(),
            passed: Passed::default(),
        };
        let code = match mediator.settle_of(task, &settlement) {
            Ok(()) => Code::LimitReached,
            Err(refusal) => refusal.code,
        };
        let refusal = Refusal::new(id, code);
        // A refusal always fits into a frame.
        let _ = send(reply, &Answer::Deny { call, refusal });
    }
}

fn send(reply: &Reply, answer: &Answer) -> Result<(), WireFault> {
    reply(encode(answer)?);
    Ok(())
}
