//! What is refused to each task while it runs: counted, and told to whoever wants to hear it live.
//!
//! It stands between the mediator and the log, and looks at each record on its way there: what is told is what is on
//! record, and nothing else.
//! Promises: P10 (the record comes first). Trust: records hold names that agents chose; they are shown by whoever prints
//! them. Not here: what a refusal means to a person (`advice`).

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use bailiwick_gate::{Answer, Ledger, LedgerFault, Pending, Refusal, encode};
use bailiwick_ledger::Log;
use bailiwick_model::{Code, DecisionId, Durability, Event, Record, TaskId, Verdict};

use super::gate_line::Reply;
use super::lock;

/// Refusals that may wait for whoever hears of them; more are counted only.
pub const WAITING: usize = 1024;

/// Refusals that are kept for a gate that is not there yet.
const UNTOLD: usize = 16;

/// The log, watched.
#[derive(Clone)]
pub struct Watched {
    log: Log,
    tasks: Arc<Mutex<BTreeMap<TaskId, Refusals>>>,
}

/// What has been refused to one task.
#[derive(Default)]
struct Refusals {
    count: u64,
    hearer: Option<SyncSender<Record>>,
    /// Tells the task's network gate, which the agent asks what was refused last.
    gate: Option<Reply>,
    /// What it has not been told, since it was not there yet.
    untold: Vec<Vec<u8>>,
}

impl Watched {
    /// Watches a log.
    pub fn over(log: Log) -> Self {
        Self {
            log,
            tasks: Arc::default(),
        }
    }

    /// Watches a task from now on: its program begins.
    pub fn begin(&self, task: TaskId, hearer: Option<SyncSender<Record>>) {
        let refusals = Refusals {
            hearer,
            ..Refusals::default()
        };
        lock(&self.tasks).insert(task, refusals);
    }

    /// Has a gate hear of what is refused to a task.
    pub fn tell(&self, task: TaskId, gate: Reply) {
        if let Some(refusals) = lock(&self.tasks).get_mut(&task) {
            for frame in std::mem::take(&mut refusals.untold) {
                gate(frame);
            }
            refusals.gate = Some(gate);
        }
    }

    /// Ends watching a task; says how much was refused to it. Who hears of it hears no more.
    pub fn end(&self, task: TaskId) -> u64 {
        lock(&self.tasks).remove(&task).map_or(0, |refusals| refusals.count)
    }
}

/// True for what was denied, asked without a yes, or refused by a gate itself.
pub fn is_refusal(event: &Event) -> bool {
    refusal(event).is_some()
}

/// What the agent may know of a refusal.
fn refusal(event: &Event) -> Option<Refusal> {
    let of = |id: &DecisionId, code| Refusal::new(*id, code);
    match event {
        Event::Decided { id, decision, .. } => (decision.verdict == Verdict::Deny).then(|| of(id, decision.code)),
        Event::Answered { id, answer, word, .. } => answer.refusal().map(|code| Refusal {
            word: word.clone(),
            ..of(id, code)
        }),
        // What is absent was not refused, and the agent must not learn that it is there.
        Event::Refused { id, code, .. } => (*code != Code::NotGranted).then(|| of(id, *code)),
        _ => None,
    }
}

impl Ledger for Watched {
    fn append(&self, record: &Record, durability: Durability) -> Result<Box<dyn Pending>, LedgerFault> {
        let pending = self.log.append(record, durability)?;
        if let Some(refusal) = refusal(&record.event)
            && let Some(task) = record.task
            && let Some(refusals) = lock(&self.tasks).get_mut(&task)
        {
            refusals.count = refusals.count.saturating_add(1);
            if let Ok(frame) = encode(&Answer::Told { refusal }) {
                match &refusals.gate {
                    Some(gate) => gate(frame),
                    None if refusals.untold.len() < UNTOLD => refusals.untold.push(frame),
                    None => {}
                }
            }
            if let Some(hearer) = &refusals.hearer {
                let _ = hearer.try_send(record.clone());
            }
        }
        Ok(pending)
    }

    fn is_healthy(&self) -> bool {
        self.log.is_healthy()
    }
}
