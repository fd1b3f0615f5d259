//! The mediator's end of a gate's channel, without the channel: frames in, frames out.
//!
//! Promises: P1 (a gate asks and settles for its own task only), P4 (another protocol, a frame that cannot be read or
//! comes out of turn, too many calls at once: the channel is closed).
//! Trust: every byte comes from a process that parses hostile bytes and may have been taken over by them.
//! Not here: the socket, cutting bytes into frames (`gate::FrameReader`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bailiwick_gate::{Answer, Call, Outcome, PROTOCOL, Refusal, Settlement, WireFault, decode, encode};
use bailiwick_model::{Code, Request, TaskId};

use crate::monitor::Mediator;

/// Most calls of one channel whose answers may wait for their records.
const MAX_WAITING: usize = 4096;

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
    /// Too many calls wait.
    #[error("{MAX_WAITING} calls of one channel wait for an answer already")]
    Busy,
}

/// One channel, bound to one task.
pub struct Session {
    mediator: Arc<Mediator>,
    task: TaskId,
    greeted: bool,
    waiting: Arc<AtomicUsize>,
}

impl Session {
    /// A channel that has not been greeted yet.
    pub fn new(mediator: Arc<Mediator>, task: TaskId) -> Self {
        Self {
            mediator,
            task,
            greeted: false,
            waiting: Arc::default(),
        }
    }

    /// Takes one frame's JSON. The answer is sent when it is known; answers may overtake each other. After a fault
    /// the channel must be closed.
    pub fn receive(&mut self, body: &[u8], reply: &Reply) -> Result<(), SessionFault> {
        let call: Call = decode(body)?;
        match (call, self.greeted) {
            (Call::Hello { protocol, .. }, false) => self.greet(protocol, reply),
            (Call::Hello { .. }, true) => Err(WireFault::OutOfTurn("a second greeting").into()),
            (_, false) => Err(WireFault::OutOfTurn("a call before the greeting").into()),
            (Call::Decide { call, request }, true) => self.decide(call, &request, reply),
            (Call::Settle { call, settlement }, true) => {
                let answer = match self.mediator.settle_of(self.task, &settlement) {
                    Ok(()) => Answer::Settled { call },
                    Err(refusal) => Answer::Deny { call, refusal },
                };
                send(reply, &answer).map_err(Into::into)
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
        Ok(())
    }

    fn decide(&self, call: u64, request: &Request, reply: &Reply) -> Result<(), SessionFault> {
        self.check_task(call, request.task, "decide", reply)?;
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            return Err(SessionFault::Busy);
        }
        let (mediator, waiting, reply) = (Arc::clone(&self.mediator), Arc::clone(&self.waiting), Arc::clone(reply));
        self.mediator.decide_then(request, move |outcome| {
            waiting.fetch_sub(1, Ordering::Relaxed);
            answer(&mediator, call, outcome, &reply);
        });
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
        Outcome::Ask(question) => (Answer::Question { call, question }, None),
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
        };
        let code = match mediator.settle_of(task, &settlement) {
            Ok(()) => Code::LimitReached,
            Err(refusal) => refusal.code,
        };
        let refusal = Refusal { id, code };
        // A refusal always fits into a frame.
        let _ = send(reply, &Answer::Deny { call, refusal });
    }
}

fn send(reply: &Reply, answer: &Answer) -> Result<(), WireFault> {
    reply(encode(answer)?);
    Ok(())
}
