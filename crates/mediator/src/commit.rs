//! From a decision to an answer: reserve, record, hand out; and settle.
//!
//! Promises: P1 (a permit is settled once), P3 (counts are taken under the writer's lock, before the record), P4 (a log
//! that cannot take the record, a state that will not hold still: deny, and what was reserved is released), P10.
//! Trust: a `Settlement` comes from a gate; it can give back only what its own permits took.

use std::sync::Arc;

use bailiwick_gate::{
    LedgerFault, Outcome, Pending, Permit, PermitTerms, Question, Receipt, Refusal, Settlement, digest_of,
};
use bailiwick_model::{
    Code, Decision, DecisionId, Digest, Durability, Event, Label, Millis, Nonce, Obligation, Record, Request, Resource,
    TaskId, ToolDuty, Verb, Verdict, argument, visible,
};

use crate::decide::{Judged, judge};
use crate::durability;
use crate::monitor::{Mediator, unknown_task};
use crate::offers::in_words;
use crate::redeem;
use crate::session::Asker;
use crate::snapshot::{Origin, Purpose, Snapshot};
use crate::task::{Open, Task, lock};

/// How often a decision is made again because the task's state moved meanwhile.
const MAX_ROUNDS: u32 = 8;

/// How long a permit may be used, in milliseconds.
const PERMIT_LIFE: u64 = 30_000;

/// Most bytes of a settlement's note that are kept.
const MAX_NOTE: usize = 1024;

/// Most bytes that are kept of the act that gave a tag.
const MAX_ACT: usize = 256;

/// Most bytes that are kept of what a gate refused by itself.
const MAX_WHAT: usize = 4096;

/// What became of a task's label by an allow.
#[derive(Default)]
struct Raised {
    /// The tags that are new.
    label: Label,
    /// The permits of what may not go on with them.
    cut: Vec<Nonce>,
}

impl Raised {
    /// Raises a task's label by what the answer to a request carries.
    fn of(task: &Task, request: &Request, id: DecisionId, gives: &Label, nonce: &Nonce, now: Millis) -> Self {
        let origin = Origin {
            decision: id,
            act: cut(&visible(&with_args(request)), MAX_ACT).into(),
            at: now,
        };
        let mut state = task.state();
        Self {
            label: state.raise(gives, Some(&origin)),
            cut: state.open_against(nonce),
        }
    }
}

/// An act, and of a call what is given with it.
fn with_args(request: &Request) -> String {
    match request.arguments.get(argument::ARGS) {
        Some(args) if request.args().is_some_and(|args| !args.is_empty()) => format!("{request} {args}"),
        _ => request.to_string(),
    }
}

/// What a permit is for, where data may still be sent while it is open.
fn goes_on(request: &Request) -> Option<Box<Request>> {
    let goes_on = match &request.resource {
        Resource::Url(_) | Resource::Repository { .. } | Resource::Endpoint { .. } => true,
        Resource::Command(_) => request.verb == Verb::Broker,
        // What a server asked for is said once it is there.
        Resource::Tool(_) => matches!(request.verb, Verb::Sample | Verb::Elicit | Verb::Roots),
        Resource::File(_) | Resource::Tree(_) | Resource::Name(_) | Resource::Secret(_) => false,
    };
    goes_on.then(|| Box::new(request.clone()))
}

/// An answer, and the record that it waits for.
struct Committed {
    sealed: Sealed,
    durability: Durability,
    record: Result<Box<dyn Pending>, LedgerFault>,
}

/// An answer that may not be known before its record is safe.
struct Sealed {
    id: DecisionId,
    draft: Draft,
}

enum Draft {
    Allow(Arc<Task>, PermitTerms),
    Ask(Decision, Millis),
    /// With the names of arguments that are at fault.
    Deny(Code, Vec<String>),
}

impl Sealed {
    /// The decision that asks a person, if that is what it is.
    fn asks(&self) -> Option<&Decision> {
        match &self.draft {
            Draft::Ask(decision, _) => Some(decision),
            Draft::Allow(..) | Draft::Deny(..) => None,
        }
    }

    /// Opens the answer, now that it is known what became of its record.
    fn open(self, recorded: Result<Receipt, LedgerFault>) -> Outcome {
        let deny = |code| Outcome::Deny(Refusal::new(self.id, code));
        match (self.draft, recorded) {
            // The task may have ended while the record became durable; its permits were closed then.
            (Draft::Allow(task, terms), Ok(_)) if task.state().is_open(&terms.nonce) => {
                Outcome::Allow(Permit::issued_by_mediator(terms))
            }
            (Draft::Allow(..), Ok(_)) => deny(Code::UnknownTask),
            (Draft::Ask(_, deadline), Ok(_)) => Outcome::Ask(Question { id: self.id, deadline }),
            (Draft::Deny(code, arguments), Ok(_)) => Outcome::Deny(Refusal {
                arguments,
                ..Refusal::new(self.id, code)
            }),
            (Draft::Allow(task, terms), Err(_)) => {
                let mut state = task.state();
                if let Some(open) = state.close(&terms.nonce) {
                    state.release(&open);
                    // Were it not kept, more would count as used than was: never less.
                    let _ = task.counting.give_back(&open.uses.dues);
                }
                deny(Code::LogUnavailable)
            }
            (Draft::Ask(..) | Draft::Deny(..), Err(_)) => deny(Code::LogUnavailable),
        }
    }
}

impl Mediator {
    /// Decides and commits; calls back with the answer when its record is as safe as it must be: at once, or from the
    /// log's own thread, where the callback must not wait for anything.
    pub fn decide_then(&self, request: &Request, call: impl FnOnce(Outcome) + Send + 'static) {
        let Committed {
            sealed,
            durability,
            record,
        } = self.commit(request, Purpose::Effect);
        match (record, durability) {
            (Ok(pending), Durability::Durable) => pending.then(Box::new(move |done| call(sealed.open(done)))),
            (Ok(pending), Durability::Ordered) => call(sealed.open(pending.wait())),
            (Err(fault), _) => call(sealed.open(Err(fault))),
        }
    }

    /// Decides and commits for somebody who can wait for a person: what one must say is held until they have said it. The
    /// answer comes when it is known, from whichever thread knows it.
    pub(crate) fn decide_patiently(self: &Arc<Self>, request: &Request, asker: Asker) {
        let Committed {
            sealed,
            durability,
            record,
        } = self.commit(request, Purpose::Effect);
        let (mediator, request) = (Arc::clone(self), request.clone());
        let against = sealed.asks().cloned();
        let done = move |recorded| match (sealed.open(recorded), against) {
            (Outcome::Ask(question), Some(against)) => mediator.hold(question, request, against, asker),
            (outcome, _) => asker.answer(&mediator, outcome),
        };
        match (record, durability) {
            (Ok(pending), Durability::Durable) => pending.then(Box::new(done)),
            (Ok(pending), Durability::Ordered) => done(pending.wait()),
            (Err(fault), _) => done(Err(fault)),
        }
    }

    /// Decides and commits about what the person ordered by hand: a task's first program. No gate reaches this.
    pub fn decide_order(&self, request: &Request) -> Outcome {
        let Committed { sealed, record, .. } = self.commit(request, Purpose::Order);
        sealed.open(record.and_then(Pending::wait))
    }

    /// The decision behind a permit of a task that is open and for this very request; none for any other.
    pub fn permitted(&self, request: &Request, nonce: &Nonce) -> Option<DecisionId> {
        let task = self.task(request.task)?;
        task.state().permitted(nonce, digest_of(request))
    }

    /// Says what became of an effect, for one task's gate: a permit of another task is none of its own.
    pub fn settle_of(&self, task: TaskId, settlement: &Settlement) -> Result<(), Refusal> {
        let settled = self.task(task).and_then(|task| self.settle_open(&task, settlement));
        settled.unwrap_or_else(|| Err(self.refuse(Some(task), Code::PermitRefused, "settle: no such open permit")))
    }

    fn commit(&self, request: &Request, purpose: Purpose) -> Committed {
        let digest = digest_of(request);
        let id = self.new_id();
        let Some(task) = self.task(request.task) else {
            return self.put_on_record(request, digest, id, unknown_task(request.task), None);
        };
        for _ in 0..MAX_ROUNDS {
            let snapshot = self.snapshot_of(&task, purpose);
            let judged = judge(request, &snapshot);
            let gives = judged.gives.clone();
            let writer = lock(&task.writer);
            if let Some((decision, permit)) = self.reserve(&task, &snapshot, judged, request, (id, digest)) {
                let raised = match &permit {
                    Some((nonce, _)) if !gives.is_empty() => {
                        Raised::of(&task, request, id, &gives, nonce, snapshot.now)
                    }
                    _ => Raised::default(),
                };
                let terms = permit.map(|(nonce, deadline)| PermitTerms {
                    decision: id,
                    digest,
                    task: task.id,
                    nonce,
                    deadline,
                    obligations: decision.obligations.clone(),
                });
                let permit = terms.map(|terms| (Arc::clone(&task), terms));
                let committed = self.put_on_record(request, digest, id, decision, permit);
                let committed = self.put_raise_on_record(task.id, id, &raised, committed);
                drop(writer);
                self.cut_off(&task, &raised.cut);
                return committed;
            }
        }
        let moved = Decision::deny(Code::StateMoved, "the task's state kept moving while this was decided");
        self.put_on_record(request, digest, id, moved, None)
    }

    /// Puts on record that a task's label is raised: the answer waits for that, too.
    fn put_raise_on_record(&self, task: TaskId, id: DecisionId, raised: &Raised, committed: Committed) -> Committed {
        if raised.label.is_empty() || committed.record.is_err() {
            return committed;
        }
        let label = raised.label.clone();
        Committed {
            durability: Durability::Durable,
            record: self.append(task, Event::Raised { id, label }, Durability::Durable),
            ..committed
        }
    }

    /// Takes what the decision uses up, and opens its permit; nothing when the state has moved since the snapshot.
    fn reserve(
        &self,
        task: &Task,
        snapshot: &Snapshot,
        judged: Judged,
        request: &Request,
        (id, digest): (DecisionId, Digest),
    ) -> Option<(Decision, Option<(Nonce, Millis)>)> {
        let mut state = task.state();
        if state.ended {
            return Some((unknown_task(task.id), None));
        }
        if state.version != snapshot.version {
            return None;
        }
        if judged.decision.verdict != Verdict::Allow {
            return Some((judged.decision, None));
        }
        if state.is_full() {
            let full = Decision::deny(Code::LimitReached, "too many permits of this task are open");
            return Some((full, None));
        }
        let grant = judged.uses.grant.and_then(|place| snapshot.grants.get(place)).cloned();
        if let Some(grant) = &grant {
            // Another task that shares it may have taken the last use meanwhile.
            let taken = grant.taken.take(grant.capability.constraints.count)?;
            if self.keep_use(grant, taken).is_err() {
                grant.taken.give_back();
                let unkept = Decision::deny(Code::Fault, "that a grant was used could not be kept");
                return Some((unkept, None));
            }
        }
        match self.counting.take(&judged.uses.dues) {
            Ok(true) => {}
            fits => {
                if let Some(grant) = &grant {
                    grant.taken.give_back();
                }
                let unkept = || Decision::deny(Code::Fault, "what a call comes to could not be kept");
                // Another task that shares a total may have taken what was left: it is decided again.
                return fits.err().map(|_| (unkept(), None));
            }
        }
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let (nonce, deadline) = (Nonce(bytes), Millis(snapshot.now.0.saturating_add(PERMIT_LIFE)));
        let open = Open {
            decision: id,
            digest,
            deadline,
            uses: judged.uses,
            grant,
            redeemable: redeem::redeemable(request, &judged.decision),
            goes_on: goes_on(request),
            notice: notice(request, &judged.decision),
        };
        state.reserve(nonce, open);
        Some((judged.decision, Some((nonce, deadline))))
    }

    fn put_on_record(
        &self,
        request: &Request,
        digest: Digest,
        id: DecisionId,
        decision: Decision,
        permit: Option<(Arc<Task>, PermitTerms)>,
    ) -> Committed {
        let durability = durability::of(request, &decision);
        let draft = match (decision.verdict, permit) {
            (Verdict::Allow, Some((task, terms))) => Draft::Allow(task, terms),
            // An allow comes with its permit; one without would be a fault.
            (Verdict::Allow, None) => Draft::Deny(Code::Fault, Vec::new()),
            (Verdict::Ask, _) => {
                let patience = self.task(request.task).map_or(0, |task| task.patience);
                let deadline = Millis(self.clock.now().0.saturating_add(patience));
                Draft::Ask(decision.clone(), deadline)
            }
            (Verdict::Deny, _) => Draft::Deny(decision.code, self.at_fault(request, decision.code)),
        };
        let record = Record {
            time: self.clock.now(),
            task: Some(request.task),
            event: Event::Decided {
                id,
                request: request.clone(),
                digest,
                decision,
            },
        };
        let record = if self.ledger.is_healthy() {
            self.ledger.append(&record, durability)
        } else {
            Err(LedgerFault::Closed)
        };
        Committed {
            sealed: Sealed { id, draft },
            durability,
            record,
        }
    }

    /// The names of arguments that an agent may be told of, where they are why it is denied.
    fn at_fault(&self, request: &Request, code: Code) -> Vec<String> {
        let task = self.task(request.task).filter(|_| code == Code::ArgumentsRefused);
        task.map_or_else(Vec::new, |task| task.policy().arguments_at_fault(request))
    }

    /// Settles a permit of this task; nothing when it is not open here.
    fn settle_open(&self, task: &Task, settlement: &Settlement) -> Option<Result<(), Refusal>> {
        let _writer = lock(&task.writer);
        let open = {
            let mut state = task.state();
            let open = state.close(&settlement.nonce)?;
            match settlement.done {
                true => state.passed(&open.uses, settlement.passed),
                false => state.release(&open),
            }
            open
        };
        let dues = &open.uses.dues;
        let counted = match settlement.done {
            true => self.counting.settle(dues, settlement.passed, self.clock.now()),
            false => self.counting.give_back(dues),
        };
        if let (true, Some(notice), Some(watcher)) = (settlement.done, &open.notice, self.watcher.get()) {
            watcher.noticed(task.id, notice);
        }
        let event = Event::Settled {
            id: open.decision,
            done: settlement.done,
            note: cut(&settlement.note, MAX_NOTE).into(),
        };
        let unrecorded = |_| Refusal::new(open.decision, Code::LogUnavailable);
        let noted = self.note(Some(task.id), event).map_err(unrecorded);
        let unkept = |_| Refusal::new(open.decision, Code::Fault);
        Some(noted.and(counted.map_err(unkept)))
    }

    /// Puts a refusal on record that no decision stands behind.
    pub(crate) fn refuse(&self, task: Option<TaskId>, code: Code, what: &str) -> Refusal {
        let id = self.new_id();
        let event = Event::Refused {
            id,
            code,
            what: cut(what, MAX_WHAT).into(),
        };
        match self.note(task, event) {
            Ok(()) => Refusal::new(id, code),
            Err(_) => Refusal::new(id, Code::LogUnavailable),
        }
    }

    fn new_id(&self) -> DecisionId {
        let mut bytes = [0; 6];
        self.random.fill(&mut bytes);
        DecisionId(bytes)
    }
}

impl bailiwick_gate::Mediator for Mediator {
    fn decide(&self, request: &Request) -> Outcome {
        let Committed { sealed, record, .. } = self.commit(request, Purpose::Effect);
        sealed.open(record.and_then(Pending::wait))
    }

    fn settle(&self, settlement: &Settlement) -> Result<(), Refusal> {
        let tasks: Vec<Arc<Task>> = self.read_tasks(|tasks| tasks.values().cloned().collect());
        let settled = tasks.iter().find_map(|task| self.settle_open(task, settlement));
        settled.unwrap_or_else(|| Err(self.refuse(None, Code::PermitRefused, "settle: no such open permit")))
    }

    fn refused(&self, task: TaskId, code: Code, what: &str) -> Refusal {
        self.refuse(Some(task), code, what)
    }
}

/// What the person is told when a request has been done, where rules want that: whole, in visible form.
fn notice(request: &Request, decision: &Decision) -> Option<Box<str>> {
    let wanted = |duty: &Obligation| matches!(duty, Obligation::Tool(ToolDuty::Notify));
    decision.obligations.iter().any(wanted).then(|| {
        let did = in_words(&request.verb, &request.resource.to_string());
        let args = request.arguments.get(argument::ARGS);
        let args = args.map(|args| format!(" with {args}")).unwrap_or_default();
        visible(&format!("{did}{args}")).into()
    })
}

/// The head of a text, at most this many bytes, cut between characters.
fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}
