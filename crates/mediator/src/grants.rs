//! Grants: what people said yes to, where it holds, how much of it is used, and how it ends.
//!
//! Promises: P3 (a use is taken before the effect and counted once, over all tasks that share the grant), P8 (what is kept is
//! what was shown), P10 (a grant is on disk before it holds), P11 (one that is revoked or has come to its end decides nothing
//! any more, and what goes on under it is cut off).
//! Trust: called for people alone. Not here: offers (`offers`), questions (`questions`), what a grant covers (`authority`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bailiwick_authority::{act_covers, act_within};
use bailiwick_gate::desk::{Approver, DeskFault, Granted, Scope, Terms};
use bailiwick_gate::{Answer, GrantRow, Pending, Store, StoreFault, encode};
use bailiwick_model::{
    Act, Capability, Constraints, ContextId, Decision, Durability, Event, GrantChange, GrantId, HostPattern, Millis,
    Nonce, Reason, Record, Request, Resource, ResourcePattern, TaskId, Verb, Verdict, visible,
};

use crate::monitor::Mediator;
use crate::offers::act_in_words;
use crate::session::Reply;
use crate::snapshot::Grant;
use crate::task::{Task, lock};

/// Most grants that hold at once.
const MAX_GRANTS: usize = 4096;

/// How many uses of a grant are taken. Shared by all tasks in which it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken(Arc<AtomicU64>);

impl Taken {
    pub(crate) fn of(uses: u64) -> Self {
        Self(Arc::new(AtomicU64::new(uses)))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes one use of at most so many: how many are taken then; none when there is none left.
    pub(crate) fn take(&self, most: Option<u64>) -> Option<u64> {
        let more = |taken: u64| {
            let next = taken.saturating_add(1);
            most.is_none_or(|most| next <= most).then_some(next)
        };
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(before.saturating_add(1))
    }

    pub(crate) fn give_back(&self) {
        let less = |taken: u64| taken.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// The grants that hold.
#[derive(Default)]
pub(crate) struct Grants(Mutex<BTreeMap<GrantId, Kept>>);

#[derive(Clone)]
struct Kept {
    granted: Granted,
    grant: Grant,
}

impl Kept {
    fn shown(&self) -> Granted {
        Granted {
            used: self.grant.taken.now(),
            ..self.granted.clone()
        }
    }

    fn row(&self) -> GrantRow {
        let asks = self.grant.against.reasons.iter();
        GrantRow {
            granted: self.shown(),
            only: self.grant.only,
            against: asks.filter(|reason| reason.verdict == Verdict::Ask).cloned().collect(),
        }
    }

    fn holds_in(&self, task: &Task) -> bool {
        match self.granted.terms.scope {
            Scope::Task => self.granted.task == Some(task.id),
            Scope::Context => self.granted.context == *task.context,
        }
    }
}

/// Puts a grant together from what is kept of it.
fn grant_of(row: &GrantRow) -> Grant {
    let terms = row.granted.terms;
    let constraints = Constraints {
        count: terms.count,
        expires: terms.until,
        ..Constraints::default()
    };
    let capability = Capability {
        acts: row.granted.acts.clone(),
        constraints,
    };
    Grant {
        id: row.granted.id,
        capability,
        against: Decision {
            verdict: Verdict::Ask,
            code: row
                .against
                .first()
                .map_or(bailiwick_model::Code::AskedByRule, |reason| reason.code),
            reasons: row.against.clone(),
            obligations: Vec::new(),
        },
        only: row.only,
        is_kept: terms.scope == Scope::Context,
        taken: Taken::of(row.granted.used),
        by: row.granted.by.iter().cloned().collect(),
    }
}

/// True when a rule that asks may ask about what an act covers: about all of it, a part of it, or the name of its host.
fn may_ask(rule: &Act, act: &Act) -> bool {
    let name = match &act.resource {
        ResourcePattern::Url(url) => Some(&url.host),
        ResourcePattern::Repository(repository) => Some(&repository.url.host),
        ResourcePattern::Endpoint { host, .. } => Some(host),
        _ => None,
    };
    let looked_up = name.is_some_and(|host| match host {
        HostPattern::Exact(host) => {
            let look = Request::new(TaskId([0; 8]), Verb::Resolve, Resource::Name(host.clone()));
            act_covers(rule, &look)
        }
        _ => false,
    });
    act_within(act, rule) || act_within(rule, act) || looked_up
}

impl Mediator {
    /// Takes up the grants that a store has kept, and what calls have come to.
    pub fn take_up_grants(&self) -> Result<(), StoreFault> {
        let Some(store) = &self.store else { return Ok(()) };
        let now = self.clock.now();
        for row in store.grants()? {
            let over = row.granted.terms.until.is_some_and(|until| until <= now);
            let spent = row.granted.terms.count.is_some_and(|count| count <= row.granted.used);
            if over || spent {
                store.drop_grant(row.granted.id)?;
                continue;
            }
            let kept = Kept {
                grant: grant_of(&row),
                granted: row.granted,
            };
            lock(&self.grants.0).insert(kept.granted.id, kept);
        }
        self.counting.resume(store.counted()?);
        Ok(())
    }

    /// True while a permit of a task is open, and the grant that gave it, if one did, holds.
    pub fn is_granted(&self, task: TaskId, nonce: &Nonce) -> bool {
        let grant = self.task(task).map(|task| task.state().grant_behind(nonce));
        match grant.flatten() {
            // One request alone: that grant ends when it is used.
            Some(grant) => grant.only.is_some() || lock(&self.grants.0).contains_key(&grant.id),
            None => true,
        }
    }

    /// The grants that hold, newest first.
    pub fn granted(&self) -> Vec<Granted> {
        let mut all: Vec<Granted> = lock(&self.grants.0).values().map(Kept::shown).collect();
        all.sort_by_key(|granted| (std::cmp::Reverse(granted.given), granted.id));
        all
    }

    /// The grants that hold in a context from its beginning: what a new task of it starts with.
    pub fn grants_of(&self, context: &ContextId) -> Vec<Grant> {
        let all = lock(&self.grants.0);
        let of = |kept: &&Kept| kept.granted.terms.scope == Scope::Context && kept.granted.context == *context;
        all.values().filter(of).map(|kept| kept.grant.clone()).collect()
    }

    /// The grant that answers what is asked about a request in a context, for a task of this person.
    pub fn answered_by(
        &self,
        context: &ContextId,
        request: &Request,
        decision: &Decision,
        principal: &str,
    ) -> Option<Granted> {
        let now = self.clock.now();
        let all = lock(&self.grants.0);
        let left = |kept: &&Kept| {
            kept.granted
                .terms
                .count
                .is_none_or(|count| kept.grant.taken.now() < count)
        };
        let answers = |kept: &&Kept| {
            kept.granted.context == *context
                && kept.grant.only.is_none()
                && kept.grant.answers(request, decision, principal, now)
        };
        all.values().filter(left).find(answers).map(Kept::shown)
    }

    /// Gives a grant for all tasks of a context before anything was asked. `asks` are the context's rules that ask, with what
    /// each would say: those that may ask about the act are answered by it.
    pub fn grant_by_hand(
        self: &Arc<Self>,
        context: ContextId,
        act: Act,
        asks: Vec<(Act, Reason)>,
        terms: Terms,
        by: &Approver,
    ) -> Result<Granted, DeskFault> {
        let now = self.clock.now();
        let against: Vec<Reason> = asks
            .into_iter()
            .filter(|(rule, _)| may_ask(rule, &act))
            .map(|(_, reason)| reason)
            .collect();
        let never = terms.count == Some(0) || terms.until.is_some_and(|until| until <= now);
        if against.is_empty() || never {
            let why = if never {
                "it would never hold"
            } else {
                "no rule here asks about it"
            };
            return Err(DeskFault::Refused(format!(
                "`{}` is not granted: {why}",
                visible(&act.to_string())
            )));
        }
        let terms = Terms {
            scope: Scope::Context,
            ..terms
        };
        let granted = Granted {
            id: self.new_grant_id(),
            sentence: format!("may {}{terms}", act_in_words(&act)),
            acts: vec![act],
            terms,
            used: 0,
            task: None,
            context,
            by: vec![by.name.clone()],
            given: now,
        };
        let noted = self.note_grant(&granted).and_then(Pending::wait);
        noted.map_err(|fault| DeskFault::Fault(fault.to_string()))?;
        let grant = self.give(granted.clone(), None, &against)?;
        self.release(&grant, now);
        self.moved();
        Ok(granted)
    }

    /// Gives a grant: keeps it, and lets it hold from now on.
    pub(crate) fn give(
        &self,
        granted: Granted,
        only: Option<bailiwick_model::Digest>,
        against: &[Reason],
    ) -> Result<Grant, DeskFault> {
        let row = GrantRow {
            granted,
            only,
            against: against.to_vec(),
        };
        let kept = Kept {
            grant: grant_of(&row),
            granted: row.granted.clone(),
        };
        if lock(&self.grants.0).len() >= MAX_GRANTS {
            return Err(DeskFault::Refused(format!(
                "{MAX_GRANTS} grants hold already: revoke some"
            )));
        }
        self.keep(row.granted.terms.scope, |store| store.put_grant(&row))?;
        lock(&self.grants.0).insert(row.granted.id, kept.clone());
        for task in self.all_tasks() {
            if kept.holds_in(&task) {
                let _writer = lock(&task.writer);
                task.state().grant(kept.grant.clone());
            }
        }
        Ok(kept.grant)
    }

    /// Narrows a grant: it may be used as often as `terms` say from now on, at most, and not longer.
    pub fn narrow(&self, id: GrantId, terms: &Terms, by: &Approver) -> Result<Granted, DeskFault> {
        let kept = lock(&self.grants.0).get(&id).cloned().ok_or(DeskFault::Grant(id))?;
        let old = kept.granted.terms;
        let used = kept.grant.taken.now();
        let left = old.count.map(|count| count.saturating_sub(used));
        let no_more = |old: Option<u64>, new: Option<u64>| match (old, new) {
            (_, None) => true,
            (None, Some(_)) => true,
            (Some(old), Some(new)) => new <= old,
        };
        let wider = !no_more(left, terms.count)
            || !no_more(old.until.map(|until| until.0), terms.until.map(|until| until.0))
            || terms.scope > old.scope;
        if wider {
            return Err(DeskFault::Wider(id));
        }
        let new = Terms {
            count: terms.count.map(|count| count.saturating_add(used)).or(old.count),
            until: terms.until.or(old.until),
            scope: old.scope,
        };
        let granted = Granted {
            sentence: kept
                .granted
                .sentence
                .strip_suffix(&old.to_string())
                .unwrap_or(&kept.granted.sentence)
                .to_owned()
                + &new.to_string(),
            terms: new,
            ..kept.granted.clone()
        };
        let row = GrantRow {
            granted: granted.clone(),
            ..kept.row()
        };
        self.note_change(&kept, GrantChange::Narrowed, 0, Some(by))?;
        self.keep(row.granted.terms.scope, |store| store.put_grant(&row))?;
        let mut grant = grant_of(&row);
        grant.taken = kept.grant.taken.clone();
        let kept = Kept { granted, grant };
        lock(&self.grants.0).insert(id, kept.clone());
        for task in self.all_tasks() {
            if kept.holds_in(&task) {
                let _writer = lock(&task.writer);
                let mut state = task.state();
                state.forget(id);
                state.grant(kept.grant.clone());
            }
        }
        self.moved();
        Ok(kept.shown())
    }

    /// Revokes a grant. What goes on under it is cut off by its gates.
    pub fn revoke(&self, id: GrantId, by: &Approver) -> Result<(), DeskFault> {
        let kept = lock(&self.grants.0).get(&id).cloned().ok_or(DeskFault::Grant(id))?;
        self.end_grant(&kept, GrantChange::Revoked, Some(by))
    }

    /// Ends the grants whose time is over, and forgets those that are used up and those of tasks that have ended.
    pub(crate) fn end_grants(&self, now: Millis) {
        let all: Vec<Kept> = lock(&self.grants.0).values().cloned().collect();
        for kept in all {
            let used_up = kept
                .granted
                .terms
                .count
                .is_some_and(|count| count <= kept.grant.taken.now());
            let over = kept.granted.terms.until.is_some_and(|until| until <= now);
            // A yes to one request is used at once or never; what it let begin goes on.
            let how = match kept.grant.only.is_some() {
                true if !used_up && over => Some(GrantChange::Over),
                false if over => Some(GrantChange::Over),
                _ if used_up && !self.goes_on(kept.granted.id) => Some(GrantChange::UsedUp),
                _ => None,
            };
            if let Some(how) = how {
                // It answers nothing any more, whatever the log says.
                let _ = self.end_grant(&kept, how, None);
            }
        }
    }

    /// Forgets the grants of a task that has ended.
    pub(crate) fn end_grants_of(&self, task: TaskId) {
        let of_task =
            |_: &GrantId, kept: &mut Kept| kept.granted.terms.scope == Scope::Task && kept.granted.task == Some(task);
        lock(&self.grants.0).extract_if(.., of_task).for_each(drop);
    }

    /// Writes down that a use of a grant is taken, where that must outlive this process.
    pub(crate) fn keep_use(&self, grant: &Grant, taken: u64) -> Result<(), StoreFault> {
        match &self.store {
            Some(store) if grant.is_kept && grant.capability.constraints.count.is_some() => {
                store.use_grant(grant.id, taken)
            }
            _ => Ok(()),
        }
    }

    /// Changes what is kept of a grant. What holds for one task ends with it, and the task with this process.
    fn keep(&self, scope: Scope, change: impl FnOnce(&dyn Store) -> Result<(), StoreFault>) -> Result<(), DeskFault> {
        match &self.store {
            Some(store) if scope == Scope::Context => {
                change(&**store).map_err(|fault| DeskFault::Fault(fault.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn goes_on(&self, id: GrantId) -> bool {
        self.all_tasks()
            .iter()
            .any(|task| !task.state().open_under(id).is_empty())
    }

    fn end_grant(&self, kept: &Kept, how: GrantChange, by: Option<&Approver>) -> Result<(), DeskFault> {
        let id = kept.granted.id;
        if lock(&self.grants.0).remove(&id).is_none() {
            return Err(DeskFault::Grant(id));
        }
        let mut cut = 0u64;
        for task in self.all_tasks() {
            let (open, gates) = {
                let _writer = lock(&task.writer);
                let mut state = task.state();
                state.forget(id);
                (state.open_under(id), state.gates())
            };
            cut = cut.saturating_add(u64::try_from(open.len()).unwrap_or(u64::MAX));
            self.tell_gates(&task, &gates, &open);
        }
        self.keep(kept.granted.terms.scope, |store| store.drop_grant(id))?;
        self.moved();
        // It ends also where that cannot be written down: less authority needs no record.
        self.note_change(kept, how, cut, by)
    }

    /// Has a task's gates cut off what goes on under these permits.
    pub(crate) fn cut_off(&self, task: &Task, open: &[Nonce]) {
        if !open.is_empty() {
            let gates = task.state().gates();
            self.tell_gates(task, &gates, open);
        }
    }

    fn tell_gates(&self, task: &Task, gates: &[Reply], open: &[Nonce]) {
        for nonce in open {
            if let Ok(frame) = encode(&Answer::Revoked { nonce: *nonce }) {
                gates.iter().for_each(|gate| gate(frame.clone()));
            }
            self.tell_cut(task.id, *nonce);
        }
    }

    fn note_change(&self, kept: &Kept, how: GrantChange, cut: u64, by: Option<&Approver>) -> Result<(), DeskFault> {
        // A yes to one request, once, that has been used: the decision stands on record with it.
        if kept.grant.only.is_some() && how != GrantChange::Revoked {
            return Ok(());
        }
        let record = Record {
            time: self.clock.now(),
            task: kept.granted.task,
            event: Event::GrantChanged {
                grant: kept.granted.id,
                how,
                used: kept.grant.taken.now(),
                cut,
                principal: by.map(|by| by.name.clone()),
            },
        };
        let appended = self.ledger.append(&record, Durability::Durable).and_then(Pending::wait);
        appended.map(drop).map_err(|fault| DeskFault::Fault(fault.to_string()))
    }
}
