//! The channel to the mediator, and the calls of the kernel's that wait for an answer on it.
//!
//! Promises: P1 (a permit is spent on the request that it is for, and settled by what came of it), P4 (silence, a closed
//! channel, an answer that does not fit: a refusal), P8 (an interrupted call withdraws its question).
//! Trust: the other end is the mediator. No thread waits here for a person: what is to be done is kept until the answer
//! comes.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bailiwick_gate::{Client, FrameReader, GateKind, Outcome, Passed, Permit, Reply, Settlement, Spent};
use bailiwick_model::{Code, Nonce, Request, TaskId};
use rustix::io::Errno;

use crate::clock::now;

/// How long the mediator may take to decide, or to say that a person is asked.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// How long after the deadline of a question its no may take.
const LATE: Duration = Duration::from_secs(10);

/// A call of the kernel's: which tree, and its number there.
pub(super) type Who = (usize, u64);

/// Does what was allowed and answers the kernel; given an error, answers with that. True when it was done.
pub(super) type Act = Box<dyn FnOnce(Result<(), Errno>) -> bool + Send>;

struct Held {
    who: Who,
    asked: Request,
    rest: VecDeque<Request>,
    spent: Vec<Spent>,
    act: Act,
    until: Instant,
}

#[derive(Default)]
struct State {
    client: Client,
    calls: HashMap<u64, Held>,
    by_who: HashMap<Who, u64>,
}

impl State {
    fn take(&mut self, call: u64) -> Option<Held> {
        let held = self.calls.remove(&call)?;
        self.by_who.remove(&held.who);
        Some(held)
    }
}

/// The channel.
pub(super) struct Line {
    socket: UnixStream,
    task: TaskId,
    state: Mutex<State>,
}

impl Line {
    /// Greets the mediator.
    pub(super) fn open(socket: UnixStream, task: TaskId) -> std::io::Result<Self> {
        let state = State::default();
        let hello = state.client.hello(env!("CARGO_PKG_VERSION"), GateKind::Files);
        (&socket).write_all(&hello.map_err(std::io::Error::other)?)?;
        Ok(Self {
            socket,
            task,
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about requests, one after the other, and acts when all are allowed.
    pub(super) fn decide(&self, who: Who, requests: impl IntoIterator<Item = Request>, act: Act) {
        self.next(who, requests.into_iter().collect(), Vec::new(), act);
    }

    fn next(&self, who: Who, mut rest: VecDeque<Request>, spent: Vec<Spent>, act: Act) {
        let Some(asked) = rest.pop_front() else {
            let done = act(Ok(()));
            return spent.iter().for_each(|one| self.settle(one.nonce(), done, ""));
        };
        let mut state = self.lock();
        let sent = state.client.decide(&asked).map_err(std::io::Error::other);
        let sent = sent.and_then(|(call, frame)| (&self.socket).write_all(&frame).map(|()| call));
        match sent {
            Ok(call) => {
                let until = Instant::now().checked_add(ANSWER_TIME).unwrap_or_else(Instant::now);
                let held = Held {
                    who,
                    asked,
                    rest,
                    spent,
                    act,
                    until,
                };
                state.by_who.insert(who, call);
                state.calls.insert(call, held);
            }
            Err(_) => {
                drop(state);
                self.give_up(spent, act, Errno::ACCESS);
            }
        }
    }

    fn give_up(&self, spent: Vec<Spent>, act: Act, errno: Errno) {
        act(Err(errno));
        spent.iter().for_each(|one| self.settle(one.nonce(), false, "not done"));
    }

    fn settle(&self, nonce: Nonce, done: bool, note: &str) {
        let mut state = self.lock();
        let settlement = Settlement {
            nonce,
            done,
            note: note.into(),
            passed: Passed::default(),
        };
        if let Ok((_, frame)) = state.client.settle(&settlement) {
            // A channel that is gone is noticed by whoever hears.
            let _ = (&self.socket).write_all(&frame);
        }
    }

    /// Puts on record that something was looked for that is not granted.
    pub(super) fn missed(&self, what: &str) {
        let mut state = self.lock();
        if let Ok((_, frame)) = state.client.refused(self.task, Code::NotGranted, what) {
            let _ = (&self.socket).write_all(&frame);
        }
    }

    /// Ends the wait of a call whose caller was interrupted. False when it does not wait.
    pub(super) fn interrupt(&self, who: Who) -> bool {
        let call = self.lock().by_who.get(&who).copied();
        call.is_some_and(|call| self.withdraw(call, Errno::INTR))
    }

    fn withdraw(&self, call: u64, errno: Errno) -> bool {
        let mut state = self.lock();
        let Some(held) = state.take(call) else {
            return false;
        };
        if let Ok(Some(frame)) = state.client.withdraw(call) {
            let _ = (&self.socket).write_all(&frame);
        }
        drop(state);
        self.give_up(held.spent, held.act, errno);
        true
    }

    /// Refuses what has waited longer than the mediator said that it could.
    pub(super) fn refuse_late(&self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .lock()
            .calls
            .iter()
            .filter(|(_, held)| held.until <= now)
            .map(|(call, _)| *call)
            .collect();
        for call in late {
            self.withdraw(call, Errno::ACCESS);
        }
    }

    /// Hears the mediator until the channel closes.
    pub(super) fn hear(&self) -> std::io::Result<()> {
        let mut frames = FrameReader::default();
        let mut buffer = vec![0u8; 16 * 1024];
        loop {
            let got = (&self.socket).read(&mut buffer)?;
            if got == 0 {
                return Ok(());
            }
            frames.push(buffer.get(..got).unwrap_or_default());
            while let Some(frame) = frames.next_frame().map_err(std::io::Error::other)? {
                let reply = self.lock().client.receive(frame).map_err(std::io::Error::other)?;
                self.heard(reply);
            }
        }
    }

    fn heard(&self, reply: Reply) {
        match reply {
            // Nothing is redeemed here, and what has been opened is settled: nothing goes on that could be cut off.
            Reply::Ready
            | Reply::Told(_)
            | Reply::Settled(..)
            | Reply::Noted(..)
            | Reply::Redeemed(..)
            | Reply::Revoked(_) => {}
            Reply::Waits(call, question) => {
                let left = Duration::from_millis(question.deadline.0.saturating_sub(now().0));
                let until = Instant::now().checked_add(left.saturating_add(LATE));
                if let (Some(held), Some(until)) = (self.lock().calls.get_mut(&call), until) {
                    held.until = until;
                }
            }
            Reply::Decided(call, outcome) => {
                let held = self.lock().take(call);
                match (held, outcome) {
                    (Some(held), Outcome::Allow(permit)) => self.allowed(held, permit),
                    (Some(held), Outcome::Deny(_) | Outcome::Ask(_)) => {
                        self.give_up(held.spent, held.act, Errno::ACCESS);
                    }
                    (None, Outcome::Allow(permit)) => {
                        self.settle(permit.terms().nonce, false, "nobody waited for the answer");
                    }
                    (None, Outcome::Deny(_) | Outcome::Ask(_)) => {}
                }
            }
        }
    }

    fn allowed(&self, mut held: Held, permit: Permit) {
        let nonce = permit.terms().nonce;
        match permit.spend(&held.asked, now()) {
            // A single file comes with no duties: one that it had could not be kept here.
            Ok(spent) if spent.obligations().is_empty() => {
                held.spent.push(spent);
                self.next(held.who, held.rest, held.spent, held.act);
            }
            Ok(_) | Err(_) => {
                self.settle(nonce, false, "the permit cannot be used here");
                self.give_up(held.spent, held.act, Errno::ACCESS);
            }
        }
    }
}
