//! Questions that wait for people: kept on disk, told to whoever attends the task, answered; grants, and who is there.
//!
//! Promises: P8 (what is shown is made by the mediator from the request), P10 (the mediator puts the answer on record before it
//! holds), P11 (what goes on under a grant that has ended is cut off).
//! Trust: answers come over the path socket, which turns away whoever lives in a fence.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Approver, DeskFault, Granted, Terms};
use bailiwick_gate::{Store, Waiting};
use bailiwick_mediator::Watcher;
use bailiwick_model::{AbsPath, Act, Anchors, DecisionId, Nonce, TaskId, Verdict};

use super::{Daemon, auditor, lock};
use crate::context::Context;
use crate::desk::person;
use crate::protocol::PersonAnswer;

/// Most changes that wait to be kept and told; past that a question stands in the list only, until it changes again.
const TO_BE_KEPT: usize = 8192;

/// How long a task may take from its first question until it can be attended.
const BEGINNING: Duration = Duration::from_secs(5);

/// The longest wait for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long somebody counts as there after their last wait.
const STILL_THERE: Duration = Duration::from_secs(5);

/// What happened, on its way to the thread that keeps and tells it.
enum Happened {
    Waits(Box<Waiting>),
    Ended(DecisionId),
    Cut(TaskId, Nonce),
    Noticed(TaskId, String),
}

/// Counts what changes on the approving side, and knows who watches.
#[derive(Default)]
pub struct Moved {
    count: Mutex<u64>,
    changed: Condvar,
    there: Mutex<BTreeMap<Approver, Presence>>,
}

/// How many sessions somebody has, and when the last one was heard of.
struct Presence {
    sessions: usize,
    last: Instant,
}

impl Moved {
    /// Something has changed.
    pub fn bump(&self) {
        let mut count = lock(&self.count);
        *count = count.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Waits until something has changed since `seen`: the moment then. Meanwhile, and a little longer, `by` is there.
    pub fn wait(&self, seen: u64, patience: Duration, by: &Approver) -> u64 {
        self.note(by, |sessions| sessions.saturating_add(1));
        let begun = Instant::now();
        let mut count = lock(&self.count);
        while *count == seen {
            let left = patience.min(LONGEST_WAIT).saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            count = match self.changed.wait_timeout(count, left) {
                Ok((count, _)) => count,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let now = *count;
        drop(count);
        self.note(by, |sessions| sessions.saturating_sub(1));
        now
    }

    /// Who is there to be asked.
    pub fn there(&self) -> Vec<Approver> {
        let mut there = lock(&self.there);
        there.retain(|_, presence| presence.sessions > 0 || presence.last.elapsed() < STILL_THERE);
        there.keys().cloned().collect()
    }

    fn note(&self, by: &Approver, change: impl FnOnce(usize) -> usize) {
        let mut there = lock(&self.there);
        let presence = there.entry(by.clone()).or_insert(Presence {
            sessions: 0,
            last: Instant::now(),
        });
        presence.sessions = change(presence.sessions);
        presence.last = Instant::now();
    }
}

/// Hands what happens to the thread that keeps it.
struct Teller {
    queue: SyncSender<Happened>,
    moved: Arc<Moved>,
}

impl Teller {
    fn pass(&self, happened: Happened) {
        if self.queue.try_send(happened).is_err() {
            talkln!("bailiwick: more happens to questions than can be kept");
        }
    }
}

impl Watcher for Teller {
    fn waits(&self, waiting: &Waiting) {
        self.pass(Happened::Waits(Box::new(waiting.clone())));
    }

    fn ended(&self, id: DecisionId) {
        self.pass(Happened::Ended(id));
    }

    fn cut(&self, task: TaskId, nonce: Nonce) {
        self.pass(Happened::Cut(task, nonce));
    }

    fn noticed(&self, task: TaskId, what: &str) {
        self.pass(Happened::Noticed(task, what.into()));
    }

    fn moved(&self) {
        self.moved.bump();
    }
}

/// Keeps each question on disk as long as it waits, tells it to whoever attends its task, and ends commands whose grant has
/// ended; from threads of their own.
pub fn watch(daemon: &Arc<Daemon>) {
    let (queue, happened) = sync_channel(TO_BE_KEPT);
    let moved = Arc::clone(&daemon.moved);
    daemon.mediator.watch(Box::new(Teller { queue, moved }));
    let (tell, told) = sync_channel(TO_BE_KEPT);
    let keeper = Arc::clone(daemon);
    std::thread::spawn(move || keep(&keeper, &happened, &tell));
    let daemon = Arc::clone(daemon);
    std::thread::spawn(move || tell_attending(&daemon, &told));
}

fn keep(daemon: &Arc<Daemon>, happened: &Receiver<Happened>, tell: &SyncSender<Box<Waiting>>) {
    while let Ok(next) = happened.recv() {
        let kept = match next {
            Happened::Waits(waiting) => {
                // First: the disk may take its time, and an answer may come before it is done.
                let _ = tell.try_send(waiting.clone());
                let kept = daemon.store.put_question(&waiting);
                auditor::ask(daemon, &waiting);
                kept
            }
            Happened::Ended(id) => daemon.store.drop_question(id),
            Happened::Noticed(task, what) => {
                if let Some(handle) = lock(&daemon.running).get(&task).cloned() {
                    if let Some(bell) = &handle.bell {
                        daemon.ringer.say(bell, &what);
                    }
                    handle.attendance.say(&PersonAnswer::Noticed(what));
                }
                Ok(())
            }
            Happened::Cut(task, nonce) => {
                daemon.brokered.cut(task, nonce);
                Ok(())
            }
        };
        if let Err(fault) = kept {
            talkln!("bailiwick: a question could not be kept: {fault}");
        }
    }
}

fn tell_attending(daemon: &Daemon, told: &Receiver<Box<Waiting>>) {
    let mut known = std::collections::BTreeSet::new();
    while let Ok(waiting) = told.recv() {
        // What changes about a question that was told is seen where it is looked at.
        if !known.insert(waiting.id) {
            continue;
        }
        while known.len() > TO_BE_KEPT {
            known.pop_first();
        }
        let bell = lock(&daemon.running)
            .get(&waiting.request.task)
            .and_then(|handle| handle.bell.clone());
        if let Some(bell) = bell {
            daemon.ringer.tell(&bell, &daemon.mediator.shown((*waiting).clone()));
        }
        let begun = Instant::now();
        let attended = loop {
            let handle = lock(&daemon.running).get(&waiting.request.task).cloned();
            let handle = handle.filter(|handle| handle.attendance.is_attended());
            if handle.is_some() || begun.elapsed() > BEGINNING || !daemon.mediator.waits(waiting.id) {
                break handle;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(handle) = attended {
            let asked = daemon.mediator.shown(*waiting);
            handle.attendance.say(&PersonAnswer::Waits(Box::new(asked)));
        }
    }
}

/// Gives a grant for the tasks of a folder's context, against what its rules would ask.
pub fn grant_by_hand(daemon: &Arc<Daemon>, directory: &AbsPath, act: &str, terms: Terms) -> Result<Granted, DeskFault> {
    let refused = |failure: crate::failure::Failure| DeskFault::Refused(failure.message);
    let context = Context::find(directory, &daemon.places, None, Some(daemon.store.as_ref())).map_err(refused)?;
    let policy = daemon.compile(&context).map_err(refused)?;
    if policy.settings().oversight.names_approvers() {
        let why = "rules name who may say yes here: that is asked, and answered by them";
        return Err(DeskFault::Refused(why.into()));
    }
    let anchors = Anchors {
        root: Some(context.root.clone()),
        home: daemon.places.home.clone(),
    };
    let act = Act::parse(act, &anchors).map_err(|fault| DeskFault::Refused(fault.to_string()))?;
    let asks = policy.rules().iter().filter(|rule| rule.effect == Verdict::Ask);
    let asks = asks.map(|rule| (rule.act().clone(), rule.asks())).collect();
    daemon.mediator.grant_by_hand(context.id(), act, asks, terms, &person())
}
