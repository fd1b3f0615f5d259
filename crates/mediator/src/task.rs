//! What the mediator knows of one running task, and its open permits.
//!
//! Promises: P10 and P1: counts are taken before the effect, and each permit is settled once.
//! Two locks. `writer` makes one change after the other, with its record; it may be held while the log takes a
//! record, but never while a record becomes durable. `state` guards the memory, is held for moments only and never
//! while the log is called: what the log calls back takes only this one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_authority::Authority;
use bailiwick_gate::Passed;
use bailiwick_model::{
    ContextId, DecisionId, Digest, GrantId, HttpUrl, Label, Method, Millis, Nonce, Place, Request, SecretName, Tag,
    TaskId,
};

use crate::budget::{self, Charge, Spent};
use crate::decide::Uses;
use crate::flow;
use crate::rules::Rules;
use crate::session::Reply;
use crate::snapshot::{Grant, Origin, Purpose, Snapshot, Used};
use crate::totals::Counting;

/// Most permits of one task that may be open at once.
pub(crate) const MAX_OPEN: usize = 65_536;

pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) parent: Option<TaskId>,
    pub(crate) principal: Arc<str>,
    pub(crate) context: Arc<ContextId>,
    pub(crate) command: Vec<String>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) approver_present: bool,
    /// How long a question waits for its answer, in milliseconds.
    pub(crate) patience: u64,
    pub(crate) writer: Mutex<()>,
    /// What calls of tools have come to, in all tasks.
    pub(crate) counting: Arc<Counting>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) ended: bool,
    policy: Arc<dyn Rules>,
    label: Arc<Label>,
    /// What gave each tag of it.
    origins: Arc<BTreeMap<Tag, Origin>>,
    grants: Arc<[Grant]>,
    used: Arc<Used>,
    open: HashMap<Nonce, Open>,
    /// The task's gates: what goes on under a grant that ends is cut off by them.
    gates: Vec<std::sync::Weak<dyn Fn(Vec<u8>) + Send + Sync>>,
}

/// A permit that has been handed out and not been settled.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) decision: DecisionId,
    pub(crate) digest: Digest,
    pub(crate) deadline: Millis,
    pub(crate) uses: Uses,
    /// The grant that answered for it; one use of that is taken.
    pub(crate) grant: Option<Grant>,
    /// What may be redeemed with it; none for all that puts no secret in.
    pub(crate) redeemable: Option<Box<Redeemable>>,
    /// What it is for, where data may still be sent while it is open; none for what has been said whole.
    pub(crate) goes_on: Option<Box<Request>>,
    /// What the person is told when it was done, where rules want that.
    pub(crate) notice: Option<Box<str>>,
}

/// The secrets of one permit that have not been redeemed, and the request that they are for.
#[derive(Debug, Clone)]
pub(crate) struct Redeemable {
    pub(crate) method: Method,
    pub(crate) url: HttpUrl,
    pub(crate) secrets: Vec<(SecretName, Place)>,
}

/// Takes a lock. Nothing in this crate panics while it holds one, so a poisoned lock still guards sound data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn new(policy: Arc<dyn Rules>, label: Label, authority: &Authority, grants: Vec<Grant>) -> Self {
        Self {
            version: 0,
            ended: false,
            policy,
            label: Arc::new(label),
            origins: Arc::default(),
            used: Arc::new(Used {
                capabilities: vec![0; authority.capabilities().len()],
                grants: Vec::new(),
                budgets: Vec::new(),
            }),
            grants: grants.into(),
            open: HashMap::new(),
            gates: Vec::new(),
        }
    }

    /// Puts rules in the place of the same rules that knew something else of people.
    pub(crate) fn know_anew(&mut self, rules: &Arc<dyn Rules>) {
        self.policy = Arc::clone(rules);
        self.moved();
    }

    /// Adds a grant, in the place of one of the same id.
    pub(crate) fn grant(&mut self, grant: Grant) {
        let others = self.grants.iter().filter(|known| known.id != grant.id).cloned();
        self.grants = others.chain([grant.clone()]).collect();
        self.moved();
    }

    /// Takes a grant away.
    pub(crate) fn forget(&mut self, id: GrantId) {
        if self.grants.iter().any(|grant| grant.id == id) {
            self.grants = self.grants.iter().filter(|grant| grant.id != id).cloned().collect();
            self.moved();
        }
    }

    /// The grant behind an open permit.
    pub(crate) fn grant_behind(&self, nonce: &Nonce) -> Option<Grant> {
        self.open.get(nonce).and_then(|open| open.grant.clone())
    }

    /// True when a grant holds here.
    pub(crate) fn has(&self, id: GrantId) -> bool {
        self.grants.iter().any(|grant| grant.id == id)
    }

    /// The open permits that a grant gave.
    pub(crate) fn open_under(&self, id: GrantId) -> Vec<Nonce> {
        let under = |open: &Open| open.grant.as_ref().is_some_and(|grant| grant.id == id);
        self.open
            .iter()
            .filter(|(_, open)| under(open))
            .map(|(nonce, _)| *nonce)
            .collect()
    }

    /// Has a gate hear of what is to be cut off, until it is gone.
    pub(crate) fn add_gate(&mut self, gate: std::sync::Weak<dyn Fn(Vec<u8>) + Send + Sync>) {
        self.gates.retain(|known| known.strong_count() > 0);
        self.gates.push(gate);
    }

    /// The gates that are there.
    pub(crate) fn gates(&self) -> Vec<Reply> {
        self.gates.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN
    }

    pub(crate) fn is_open(&self, nonce: &Nonce) -> bool {
        self.open.contains_key(nonce)
    }

    /// The decision behind an open permit, where it is for this request.
    pub(crate) fn permitted(&self, nonce: &Nonce, digest: Digest) -> Option<DecisionId> {
        let open = self.open.get(nonce).filter(|open| open.digest == digest);
        open.map(|open| open.decision)
    }

    /// Takes a secret from an open permit that has not lapsed: its decision, and the request and place that it is for.
    pub(crate) fn redeem(
        &mut self,
        nonce: &Nonce,
        secret: &SecretName,
        now: Millis,
    ) -> Option<(DecisionId, Method, HttpUrl, Place)> {
        let open = self.open.get_mut(nonce).filter(|open| now < open.deadline)?;
        let redeemable = open.redeemable.as_mut()?;
        let place = redeemable.secrets.iter().position(|(name, _)| name == secret)?;
        let (_, place) = redeemable.secrets.swap_remove(place);
        Some((open.decision, redeemable.method.clone(), redeemable.url.clone(), place))
    }

    /// Takes what the permit uses up, and keeps it as open.
    pub(crate) fn reserve(&mut self, nonce: Nonce, open: Open) {
        self.count(&open.uses, |used| used.saturating_add(1));
        self.charge(&open.uses, budget::take);
        self.open.insert(nonce, open);
    }

    /// Takes a permit from the open ones; what it has used up stays used up.
    pub(crate) fn close(&mut self, nonce: &Nonce) -> Option<Open> {
        self.open.remove(nonce)
    }

    /// Gives back what a permit had used up, since its effect did not take place. A yes to one request is not given back:
    /// it was for that attempt.
    pub(crate) fn release(&mut self, open: &Open) {
        if let Some(grant) = open.grant.as_ref().filter(|grant| grant.only.is_none()) {
            grant.taken.give_back();
            self.moved();
        }
        self.count(&open.uses, |used| used.saturating_sub(1));
        self.charge(&open.uses, |spent, charge| budget::give_back(spent, charge));
    }

    /// Counts what passed of an effect against the budgets that its permit was charged to.
    pub(crate) fn passed(&mut self, uses: &Uses, passed: Passed) {
        self.charge(uses, |spent, charge| budget::settle(spent, charge, passed));
    }

    /// Takes from the open permits those that `which` names.
    pub(crate) fn close_where(&mut self, which: impl Fn(&Open) -> bool) -> Vec<Open> {
        let mut closed: Vec<Open> = self
            .open
            .extract_if(|_, open| which(open))
            .map(|(_, open)| open)
            .collect();
        closed.sort_by_key(|open| (open.deadline, open.decision));
        closed
    }

    /// Joins a label to the task's, with what gave it: the tags that are new.
    pub(crate) fn raise(&mut self, label: &Label, origin: Option<&Origin>) -> Label {
        let new = Label {
            confidential: label
                .confidential
                .difference(&self.label.confidential)
                .cloned()
                .collect(),
            influence: label.influence.difference(&self.label.influence).cloned().collect(),
        };
        if !new.is_empty() {
            self.label = Arc::new(bailiwick_flow::join(&self.label, &new));
            if let Some(origin) = origin {
                let origins = new.tags().map(|tag| (tag.clone(), origin.clone()));
                Arc::make_mut(&mut self.origins).extend(origins);
            }
            self.moved();
        }
        new
    }

    /// What the task has read, with what gave it each tag.
    pub(crate) fn label(&self) -> (Arc<Label>, Arc<BTreeMap<Tag, Origin>>) {
        (Arc::clone(&self.label), Arc::clone(&self.origins))
    }

    /// The open permits of what still goes on and may not, now that the task's label is what it is, but for one.
    pub(crate) fn open_against(&self, but: &Nonce) -> Vec<Nonce> {
        let strays = |request: &Request| {
            let refused = flow::uncleared(request, &self.label, &*self.policy);
            !refused.is_empty()
        };
        self.open
            .iter()
            .filter(|(nonce, open)| *nonce != but && open.goes_on.as_deref().is_some_and(strays))
            .map(|(nonce, _)| *nonce)
            .collect()
    }

    fn charge(&mut self, uses: &Uses, change: impl Fn(&mut Vec<Spent>, &Charge)) {
        if uses.charges.is_empty() {
            return;
        }
        let used = Arc::make_mut(&mut self.used);
        uses.charges.iter().for_each(|charge| change(&mut used.budgets, charge));
        self.moved();
    }

    fn count(&mut self, uses: &Uses, change: impl Fn(u64) -> u64) {
        let Some(place) = uses.capability else { return };
        if let Some(slot) = Arc::make_mut(&mut self.used).capabilities.get_mut(place) {
            *slot = change(*slot);
        }
        self.moved();
    }

    pub(crate) fn moved(&mut self) {
        self.version = self.version.wrapping_add(1);
    }
}

impl Task {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn with_state(spec: crate::TaskSpec, id: TaskId, counting: Arc<Counting>) -> Self {
        Self {
            id,
            state: Mutex::new(State::new(spec.policy, spec.label, &spec.authority, spec.grants)),
            parent: spec.parent,
            principal: spec.principal.into(),
            context: Arc::new(spec.context),
            command: spec.command,
            authority: Arc::new(spec.authority),
            approver_present: spec.approver_present,
            patience: spec.patience,
            writer: Mutex::new(()),
            counting,
        }
    }

    /// The rules as they are now.
    pub(crate) fn policy(&self) -> Arc<dyn Rules> {
        Arc::clone(&self.state().policy)
    }

    pub(crate) fn snapshot(&self, now: Millis, purpose: Purpose, watching: Arc<BTreeSet<String>>) -> Snapshot {
        let state = self.state();
        let mut used = Arc::clone(&state.used);
        if !state.grants.is_empty() {
            // Uses of a grant are taken in other tasks too.
            Arc::make_mut(&mut used).grants = state.grants.iter().map(|grant| grant.taken.now()).collect();
        }
        Snapshot {
            task: self.id,
            principal: Arc::clone(&self.principal),
            purpose,
            authority: Arc::clone(&self.authority),
            policy: Arc::clone(&state.policy),
            label: Arc::clone(&state.label),
            origins: Arc::clone(&state.origins),
            grants: Arc::clone(&state.grants),
            used,
            context: Arc::clone(&self.context),
            counted: self.counting.now(),
            now,
            version: state.version,
            approver_present: self.approver_present,
            approvers_present: watching,
        }
    }
}
