//! The queue: records that have their place in the log and are on their way to the disk.
//!
//! Answers: which place does a record get, and when may its effect happen?
//! Promises: P10 (an ordered record is acknowledged at once only while the disk keeps pace and has room for it; else it
//! waits like a durable one).
//! Not here: writing (`writer`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use bailiwick_gate::{LedgerFault, Pending, Receipt};
use bailiwick_model::Durability;

use crate::tail::{ENTRY_HEAD, FRAME_ROOM};

/// How long an acknowledged record may be off the disk before new ones have to wait.
pub(crate) const PACE: Duration = Duration::from_millis(50);
/// How many bytes may wait; more means that the disk does not keep up.
const MAX_WAITING: u64 = 64 << 20;
/// How many bytes wake the writer early.
const MANY: u64 = 1 << 20;

/// What calls back when a record is safe, or is not going to be.
type Call = Box<dyn FnOnce(Result<Receipt, LedgerFault>) + Send>;

/// The queue, shared by those who append and the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// What each frame needs beside its entries, in bytes.
    frame_room: u64,
}

pub(crate) struct State {
    pub(crate) waiting: Vec<Queued>,
    /// What the waiting records need in the tail, in bytes, were each in a frame of its own.
    pub(crate) need: u64,
    /// Bytes on disk that are kept free for them.
    pub(crate) room: u64,
    /// The index that the next record gets.
    pub(crate) next: u64,
    /// When the oldest record was appended that is not on disk.
    pub(crate) oldest: Option<Instant>,
    /// Somebody waits for the disk.
    pub(crate) urgent: bool,
    /// Why nothing can be written.
    pub(crate) fault: Option<String>,
    pub(crate) closed: bool,
    /// Who asked for a checkpoint.
    pub(crate) orders: Vec<Order>,
}

/// A record on its way.
pub(crate) struct Queued {
    pub(crate) bytes: Vec<u8>,
    pub(crate) since: Instant,
    /// Who waits for it; none when it was acknowledged at once.
    pub(crate) slot: Option<Arc<Slot>>,
}

/// Somebody who waits for a checkpoint.
pub(crate) struct Order {
    /// Whether it is to be published first.
    pub(crate) publish: bool,
    answer: mpsc::Sender<Result<String, String>>,
}

impl Order {
    pub(crate) fn new(publish: bool) -> (Self, mpsc::Receiver<Result<String, String>>) {
        let (answer, answered) = mpsc::channel();
        (Self { publish, answer }, answered)
    }

    /// Tells it. Whoever asked may have gone; what was asked for is done all the same.
    pub(crate) fn answer(self, note: Result<String, String>) {
        let _ = self.answer.send(note);
    }
}

impl Queue {
    pub(crate) fn new(next: u64, origin: &str) -> Self {
        let state = State {
            waiting: Vec::new(),
            need: 0,
            room: 0,
            next,
            oldest: None,
            urgent: false,
            fault: None,
            closed: false,
            orders: Vec::new(),
        };
        // The origin stands twice in a note; numbers, base64 and the rest of it are below 256 bytes.
        let frame_room = (2 * origin.len() + 256 + FRAME_ROOM) as u64;
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            frame_room,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // The state is changed in steps that cannot panic, so a poisoned lock holds nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>, at_most: Option<Duration>) -> MutexGuard<'a, State> {
        match at_most {
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.wake
                    .wait_timeout(state, time)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    /// What a record needs in the tail, in bytes.
    pub(crate) fn need_of(&self, bytes: &[u8]) -> u64 {
        (bytes.len() + ENTRY_HEAD) as u64 + self.frame_room
    }

    /// Takes a record in: from here on its place is fixed.
    pub(crate) fn push(&self, bytes: Vec<u8>, durability: Durability) -> Result<Placed, LedgerFault> {
        let since = Instant::now();
        let need = self.need_of(&bytes);
        let mut state = self.lock();
        if state.closed {
            return Err(LedgerFault::Closed);
        }
        if let Some(fault) = &state.fault {
            return Err(LedgerFault::Io(fault.clone()));
        }
        if state.need > MAX_WAITING {
            return Err(LedgerFault::Io("the disk does not keep up".into()));
        }
        let first = state.waiting.is_empty();
        let few = state.need < MANY;
        let index = state.next;
        state.next += 1;
        state.need += need;
        let keeps_pace = state
            .oldest
            .is_none_or(|oldest| since.saturating_duration_since(oldest) < PACE);
        state.oldest.get_or_insert(since);
        let at_once = durability == Durability::Ordered && keeps_pace && state.need <= state.room;
        let slot = (!at_once).then(|| Arc::new(Slot::default()));
        state.waiting.push(Queued {
            bytes,
            since,
            slot: slot.clone(),
        });
        let wakes = first || (few && state.need >= MANY) || (slot.is_some() && !state.urgent);
        state.urgent |= slot.is_some();
        drop(state);
        if wakes {
            self.wake();
        }
        Ok(Placed { index, slot })
    }
}

/// Where the writer leaves the answer for one who waits.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<Answer>,
    filled: Condvar,
}

#[derive(Default)]
enum Answer {
    #[default]
    Open,
    Call(Call),
    Given(Result<Receipt, LedgerFault>),
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers. Calls back from this very thread when that was asked for.
    pub(crate) fn fill(&self, result: Result<Receipt, LedgerFault>) {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            Answer::Open => {
                *state = Answer::Given(result);
                self.filled.notify_one();
            }
            Answer::Call(call) => {
                drop(state);
                call(result);
            }
            given @ Answer::Given(_) => *state = given,
        }
    }
}

/// A record that has its place.
pub(crate) struct Placed {
    index: u64,
    slot: Option<Arc<Slot>>,
}

impl Placed {
    fn at_once(&self) -> Receipt {
        Receipt {
            index: self.index,
            checkpoint: None,
        }
    }
}

impl Pending for Placed {
    fn index(&self) -> u64 {
        self.index
    }

    fn wait(self: Box<Self>) -> Result<Receipt, LedgerFault> {
        let Some(slot) = &self.slot else {
            return Ok(self.at_once());
        };
        let mut state = slot.lock();
        loop {
            if let Answer::Given(result) = std::mem::take(&mut *state) {
                return result;
            }
            state = slot.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn then(self: Box<Self>, call: Call) {
        let Some(slot) = &self.slot else {
            return call(Ok(self.at_once()));
        };
        let mut state = slot.lock();
        match std::mem::take(&mut *state) {
            Answer::Given(result) => {
                drop(state);
                call(result);
            }
            _ => *state = Answer::Call(call),
        }
    }
}
