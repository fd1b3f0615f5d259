//! The mediator: its tasks, from begin to end.
//!
//! Promises: P4 (a task that is unknown or has ended is denied everything), P10, P11 (when a task ends, so do its
//! permits). Not here: deciding (`decide`), committing and settling (`commit`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bailiwick_authority::Authority;
use bailiwick_gate::{Clock, Ledger, LedgerFault, Random, Store};
use bailiwick_model::{Code, ContextId, Decision, Durability, Event, Label, Millis, Record, Request, TaskId};

use crate::decide::decide;
use crate::grants::Grants;
use crate::questions::{Questions, Watcher};
use crate::rules::Rules;
use crate::snapshot::{Grant, Purpose, Snapshot};
use crate::task::{Open, Task, lock};
use crate::totals::Counting;

/// Most tasks that may run at once.
const MAX_TASKS: usize = 1024;

/// How long after its deadline an open permit counts as abandoned. A permit must be *used* before its deadline, but
/// is settled when its effect is over; no stream is expected to last longer than this.
const ABANDONED_AFTER: u64 = 24 * 60 * 60 * 1000;

/// What a task is to be.
pub struct TaskSpec {
    /// Its id; made up when there is none.
    pub id: Option<TaskId>,
    /// The accountable person, as a user name or number.
    pub principal: String,
    /// The task that it runs for, where it is a command that runs outside.
    pub parent: Option<TaskId>,
    /// The context.
    pub context: ContextId,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The rules of the context.
    pub policy: Arc<dyn Rules>,
    /// What the task holds.
    pub authority: Authority,
    /// What it has read before it began.
    pub label: Label,
    /// What a person has said yes to.
    pub grants: Vec<Grant>,
    /// True when someone is there who can be asked.
    pub approver_present: bool,
    /// How long a question waits for its answer, in milliseconds.
    pub patience: u64,
}

/// How long a question waits where no rule says, in milliseconds.
pub const PATIENCE: u64 = 120_000;

impl TaskSpec {
    /// A root task: all that the rules allow, no label, nobody to ask.
    pub fn root(principal: String, context: ContextId, command: Vec<String>, policy: Arc<dyn Rules>) -> Self {
        Self {
            id: None,
            parent: None,
            principal,
            context,
            command,
            policy,
            authority: Authority::whole(),
            label: Label::default(),
            grants: Vec::new(),
            approver_present: false,
            patience: PATIENCE,
        }
    }
}

/// Says why a task cannot begin, be recorded or end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskFault {
    /// There is one with this id already.
    #[error("task {0} runs already")]
    Taken(TaskId),
    /// Too many run.
    #[error("{MAX_TASKS} tasks run already")]
    Full,
    /// There is none with this id.
    #[error("task {0} is not running")]
    Unknown(TaskId),
    /// The log cannot take its record.
    #[error(transparent)]
    Log(#[from] LedgerFault),
}

/// The reference monitor. Shared by all gates of all tasks; has no threads of its own.
pub struct Mediator {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) questions: Questions,
    pub(crate) grants: Grants,
    pub(crate) counting: Arc<Counting>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) watcher: OnceLock<Box<dyn Watcher>>,
    tasks: RwLock<HashMap<TaskId, Arc<Task>>>,
    /// Who is there and watches.
    watching: Mutex<Arc<BTreeSet<String>>>,
}

impl Mediator {
    /// A mediator without tasks.
    pub fn new(ledger: Arc<dyn Ledger>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            ledger,
            clock,
            random,
            questions: Questions::default(),
            grants: Grants::default(),
            counting: Arc::default(),
            store: None,
            watcher: OnceLock::new(),
            tasks: RwLock::default(),
            watching: Mutex::default(),
        }
    }

    /// The same, with grants and counts that outlive this process.
    #[must_use]
    pub fn keeping(mut self, store: Arc<dyn Store>) -> Self {
        self.counting = Arc::new(Counting::keeping(Arc::clone(&store)));
        self.store = Some(store);
        self
    }

    /// Has somebody hear of what happens here. The first stays.
    pub fn watch(&self, watcher: Box<dyn Watcher>) {
        let _ = self.watcher.set(watcher);
    }

    /// Takes a task in, with the grants of its context. From now on its gates can ask; what is in its fence is put on record by
    /// [`started`](Self::started).
    pub fn begin(&self, spec: TaskSpec) -> Result<TaskId, TaskFault> {
        let id = spec.id.unwrap_or_else(|| {
            let mut bytes = [0; 8];
            self.random.fill(&mut bytes);
            TaskId(bytes)
        });
        let mut tasks = self.tasks.write().unwrap_or_else(PoisonError::into_inner);
        if tasks.contains_key(&id) {
            return Err(TaskFault::Taken(id));
        }
        if tasks.len() >= MAX_TASKS {
            return Err(TaskFault::Full);
        }
        let task = Arc::new(Task::with_state(spec, id, Arc::clone(&self.counting)));
        for grant in self.grants_of(&task.context) {
            task.state().grant(grant);
        }
        tasks.insert(id, task);
        Ok(id)
    }

    /// Puts on record that the task's program begins, in a fence of these parts.
    pub fn started(&self, id: TaskId, fence: Vec<String>) -> Result<(), TaskFault> {
        let task = self.task(id).ok_or(TaskFault::Unknown(id))?;
        let _writer = lock(&task.writer);
        let event = Event::TaskStarted {
            principal: task.principal.to_string(),
            context: ContextId::clone(&task.context),
            command: task.command.clone(),
            rules: task.policy().digest(),
            fence,
            parent: task.parent,
        };
        Ok(self.note(Some(id), event)?)
    }

    /// Ends a task: it is denied everything from now on, and its open permits are void.
    ///
    /// The task has ended also when the log cannot take the record of it.
    pub fn end(&self, id: TaskId, status: i32) -> Result<(), TaskFault> {
        let removed = self.tasks.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let task = removed.ok_or(TaskFault::Unknown(id))?;
        let _writer = lock(&task.writer);
        let open = {
            let mut state = task.state();
            state.ended = true;
            state.moved();
            state.close_where(|_| true)
        };
        self.withdraw_of(id);
        self.end_grants_of(id);
        self.counting.end_task(id);
        let abandoned = self.note_abandoned(id, &open);
        self.note(Some(id), Event::TaskEnded { status })?;
        Ok(abandoned?)
    }

    /// Clears away permits that nobody will settle any more, and says how many; turns questions that waited too long
    /// into a no. To be called now and then.
    ///
    /// What such a permit had used up stays used up: its effect may have taken place.
    pub fn sweep(&self, now: Millis) -> Result<usize, LedgerFault> {
        self.lapse(now);
        self.end_grants(now);
        let tasks = self.all_tasks();
        let mut swept = 0usize;
        for task in tasks {
            let _writer = lock(&task.writer);
            let late = |open: &Open| open.deadline.0.saturating_add(ABANDONED_AFTER) <= now.0;
            let abandoned = task.state().close_where(late);
            swept = swept.saturating_add(abandoned.len());
            self.note_abandoned(task.id, &abandoned)?;
        }
        Ok(swept)
    }

    /// Joins a label to what the task has read. When this returns, every later decision knows.
    pub fn raise(&self, id: TaskId, label: &Label) -> Result<(), TaskFault> {
        let task = self.task(id).ok_or(TaskFault::Unknown(id))?;
        let _writer = lock(&task.writer);
        task.state().raise(label, None);
        Ok(())
    }

    /// What a task has read carries, each tag with what gave it first, in plain words.
    pub fn read_so_far(&self, id: TaskId) -> Vec<String> {
        let Some(task) = self.task(id) else { return Vec::new() };
        let (label, origins) = task.state().label();
        let told = |tag: &bailiwick_model::Tag| match origins.get(tag) {
            Some(origin) => format!(
                "`{tag}` ({}, {}, {})",
                origin.act,
                bailiwick_gate::desk::moment(origin.at),
                origin.decision
            ),
            None => format!("`{tag}`"),
        };
        label.tags().map(told).collect()
    }

    /// Puts rules in the place of a task's, which are the same but know something else of people. What is being decided
    /// meanwhile is decided again.
    pub fn know_anew(&self, id: TaskId, rules: &Arc<dyn Rules>) {
        if let Some(task) = self.task(id) {
            let _writer = lock(&task.writer);
            task.state().know_anew(rules);
        }
    }

    /// What would be decided about a request, now; nothing is recorded, reserved or allowed by it.
    pub fn question(&self, request: &Request) -> Decision {
        match self.task(request.task) {
            Some(task) => decide(request, &self.snapshot_of(&task, Purpose::Question)),
            None => unknown_task(request.task),
        }
    }

    /// Says who is there and watches, from now on: each a person with a live session, by the name that rules know.
    pub fn watched_by(&self, people: BTreeSet<String>) {
        *lock(&self.watching) = Arc::new(people);
    }

    /// Who is there and watches.
    pub fn approvers_present(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&lock(&self.watching))
    }

    pub(crate) fn snapshot_of(&self, task: &Task, purpose: Purpose) -> Snapshot {
        task.snapshot(self.clock.now(), purpose, self.approvers_present())
    }

    pub(crate) fn task(&self, id: TaskId) -> Option<Arc<Task>> {
        self.read_tasks(|tasks| tasks.get(&id).cloned())
    }

    pub(crate) fn all_tasks(&self) -> Vec<Arc<Task>> {
        self.read_tasks(|tasks| tasks.values().cloned().collect())
    }

    pub(crate) fn read_tasks<T>(&self, read: impl FnOnce(&HashMap<TaskId, Arc<Task>>) -> T) -> T {
        read(&self.tasks.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_abandoned(&self, task: TaskId, permits: &[Open]) -> Result<(), LedgerFault> {
        permits.iter().try_for_each(|open| {
            let event = Event::Settled {
                id: open.decision,
                done: false,
                note: "abandoned".into(),
            };
            self.note(Some(task), event)
        })
    }

    /// Appends an ordered record that no permit waits for.
    pub(crate) fn note(&self, task: Option<TaskId>, event: Event) -> Result<(), LedgerFault> {
        let time = self.clock.now();
        let record = Record { time, task, event };
        self.ledger.append(&record, Durability::Ordered)?.wait().map(drop)
    }
}

pub(crate) fn unknown_task(id: TaskId) -> Decision {
    Decision::deny(Code::UnknownTask, format!("task {id} has ended, or never was"))
}
