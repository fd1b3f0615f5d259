//! Totals: what calls of tools have come to by each rule, over all tasks that share it.
//!
//! Promises: P3 (what a call comes to is taken before the effect, under one lock, so that calls side by side never come to
//! more), P4 (an amount that cannot be counted for sure, or kept, is a denial), P14 (deciding looks at a copy).
//! Trust: amounts are the agent's; that nothing was done, and how long a result was, the gate says, and it gives back only
//! what its own permits took. Not here: what an amount is (`model`), URL budgets (`budget`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bailiwick_gate::{Counted, CountedKey, Passed, Store, StoreFault};
use bailiwick_model::{
    Argument, Code, Decimal, Decision, Digest, Layer, Millis, Request, Resource, RuleRef, Span, TaskId, Totals,
    Verdict, argument, size,
};

use crate::monitor::Mediator;
use crate::snapshot::Snapshot;
use crate::task::lock;

/// All that has been counted.
pub type Counts = BTreeMap<CountedKey, Counted>;

/// What one request takes of one total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    key: CountedKey,
    totals: Arc<Totals>,
    amounts: Vec<Decimal>,
    tokens: u64,
    at: Millis,
}

/// The counts that hold now.
#[derive(Default)]
pub(crate) struct Counting {
    counts: Mutex<Arc<Counts>>,
    /// Where what must outlive this process is kept.
    store: Option<Arc<dyn Store>>,
}

impl Counting {
    /// Counts that outlive this process.
    pub(crate) fn keeping(store: Arc<dyn Store>) -> Self {
        Self {
            counts: Mutex::default(),
            store: Some(store),
        }
    }

    /// A copy, for one decision.
    pub(crate) fn now(&self) -> Arc<Counts> {
        Arc::clone(&lock(&self.counts))
    }

    /// Takes over what an earlier process has counted.
    pub(crate) fn resume(&self, rows: Vec<(CountedKey, Counted)>) {
        *lock(&self.counts) = Arc::new(rows.into_iter().collect());
    }

    /// Takes what is due, all or nothing; false where it does not fit any more.
    pub(crate) fn take(&self, dues: &[Due]) -> Result<bool, StoreFault> {
        let mut counts = lock(&self.counts);
        let mut next = Counts::clone(&counts);
        for due in dues {
            let counted = next.entry(due.key.clone()).or_default();
            begin_day(counted, &due.totals, due.at);
            match due.added_to(counted) {
                Ok(sum) => *counted = sum,
                Err(_) => return Ok(false),
            }
        }
        self.keep(dues, &next)?;
        *counts = Arc::new(next);
        Ok(true)
    }

    /// Gives back what was taken, since nothing was done.
    pub(crate) fn give_back(&self, dues: &[Due]) -> Result<(), StoreFault> {
        self.change(dues, |counted, due| {
            counted.calls = counted.calls.saturating_sub(1);
            counted.tokens = counted.tokens.saturating_sub(due.tokens);
            for (sum, amount) in due.totals.sums.iter().zip(&due.amounts) {
                if let Some(own) = counted.sums.get_mut(&sum.argument) {
                    // What was added exactly can be taken away exactly.
                    *own = own.minus(*amount).unwrap_or(*own);
                }
            }
        })
    }

    /// Counts what is known only afterwards.
    pub(crate) fn settle(&self, dues: &[Due], passed: Passed, now: Millis) -> Result<(), StoreFault> {
        let late = |due: &&Due| due.totals.bytes.is_some() || due.totals.seconds.is_some();
        if !dues.iter().any(|due| late(&due)) {
            return Ok(());
        }
        self.change(dues, |counted, due| {
            counted.bytes = counted.bytes.saturating_add(passed.received);
            counted.millis = counted.millis.saturating_add(now.0.saturating_sub(due.at.0));
        })
    }

    /// Forgets what has been counted under a key; false where nothing has.
    pub(crate) fn forget(&self, key: &CountedKey) -> Result<bool, StoreFault> {
        let mut counts = lock(&self.counts);
        if !counts.contains_key(key) {
            return Ok(false);
        }
        let store = self.store.as_ref();
        store.map_or(Ok(()), |store| store.drop_counted(key))?;
        Arc::make_mut(&mut counts).remove(key);
        Ok(true)
    }

    /// Forgets what was counted for one task.
    pub(crate) fn end_task(&self, task: TaskId) {
        let scope = scope_of_task(task);
        let mut counts = lock(&self.counts);
        if counts.keys().any(|key| key.scope == scope) {
            Arc::make_mut(&mut counts).retain(|key, _| key.scope != scope);
        }
    }

    fn change(&self, dues: &[Due], change: impl Fn(&mut Counted, &Due)) -> Result<(), StoreFault> {
        if dues.is_empty() {
            return Ok(());
        }
        let mut counts = lock(&self.counts);
        let next = Arc::make_mut(&mut counts);
        for due in dues {
            // Another day began meanwhile: what was taken on the last one is not counted any more.
            if let Some(counted) = next.get_mut(&due.key).filter(|own| is_of_day(own, &due.totals, due.at)) {
                change(counted, due);
            }
        }
        self.keep(dues, next)
    }

    fn keep(&self, dues: &[Due], counts: &Counts) -> Result<(), StoreFault> {
        let Some(store) = &self.store else { return Ok(()) };
        let kept = dues.iter().filter(|due| due.totals.span != Span::Task);
        kept.filter_map(|due| counts.get_key_value(&due.key))
            .try_for_each(|(key, counted)| store.put_counted(key, counted))
    }
}

impl Mediator {
    /// All that calls of tools have come to.
    pub fn counted(&self) -> Vec<(CountedKey, Counted)> {
        let counts = self.counting.now();
        counts
            .iter()
            .map(|(key, counted)| (key.clone(), counted.clone()))
            .collect()
    }

    /// Begins a total anew; false where nothing has been counted under this key. For the person alone.
    pub fn forget_counted(&self, key: &CountedKey) -> Result<bool, StoreFault> {
        self.counting.forget(key)
    }
}

fn day_of(now: Millis) -> u64 {
    now.0.checked_div(24 * 60 * 60 * 1000).unwrap_or(0)
}

fn is_of_day(counted: &Counted, totals: &Totals, at: Millis) -> bool {
    totals.span != Span::Day || counted.day == day_of(at)
}

fn begin_day(counted: &mut Counted, totals: &Totals, at: Millis) {
    if totals.span != Span::Day {
        return;
    }
    // A clock that is set back begins no new day.
    if day_of(at) > counted.day {
        *counted = Counted {
            day: day_of(at),
            ..Counted::default()
        };
    }
}

fn scope_of_task(task: TaskId) -> String {
    format!("task:{task}")
}

/// Where a rule's total is counted.
fn scope_of(rule: &RuleRef, totals: &Totals, snapshot: &Snapshot) -> String {
    let mandate =
        |digest: Option<Digest>| digest.map_or_else(|| "mandate".into(), |digest| format!("mandate:{digest}"));
    match (totals.span, rule.layer) {
        (Span::Task, _) => scope_of_task(snapshot.task),
        (_, Layer::Mandate) => mandate(snapshot.policy.mandate()),
        (_, Layer::Context) => format!("context:{}", snapshot.context),
        (_, layer) => layer.as_str().into(),
    }
}

/// What a decision that is no denial takes of totals; or the denial.
pub(crate) fn dues(request: &Request, decision: &Decision, snapshot: &Snapshot) -> Result<Vec<Due>, Box<Decision>> {
    let mut all: Vec<Due> = Vec::new();
    if !matches!(request.resource, Resource::Tool(_)) {
        return Ok(all);
    }
    let deciding = decision.reasons.iter().filter(|reason| reason.verdict != Verdict::Deny);
    for rule in deciding.filter_map(|reason| reason.rule.as_ref()) {
        let Some((name, totals)) = snapshot.policy.totals(rule) else {
            continue;
        };
        let key = CountedKey {
            scope: scope_of(rule, &totals, snapshot),
            rule: name,
        };
        if all.iter().any(|due| due.key == key) {
            continue;
        }
        let amounts = totals.amounts(request).map_err(|fault| {
            let text = format!("what it comes to cannot be counted: {fault}");
            Box::new(of_rule(rule, Code::ArgumentsRefused, text))
        })?;
        let tokens = match request.arguments.get(argument::TOKENS) {
            Some(Argument::Whole(tokens)) => u64::try_from(*tokens).unwrap_or(u64::MAX),
            _ => 0,
        };
        let due = Due {
            key,
            totals,
            amounts,
            tokens,
            at: snapshot.now,
        };
        let mut counted = snapshot.counted.get(&due.key).cloned().unwrap_or_default();
        begin_day(&mut counted, &due.totals, due.at);
        if let Err(over) = due.added_to(&counted) {
            let text = format!("the budget of `{}` ({rule}) is used up: {over}", rule.act);
            return Err(Box::new(of_rule(rule, Code::BudgetSpent, text)));
        }
        all.push(due);
    }
    Ok(all)
}

fn of_rule(rule: &RuleRef, code: Code, text: String) -> Decision {
    let mut decision = Decision::deny(code, text);
    decision
        .reasons
        .iter_mut()
        .for_each(|reason| reason.rule = Some(rule.clone()));
    decision
}

impl Due {
    /// What is counted then; or what there would be too much of.
    fn added_to(&self, counted: &Counted) -> Result<Counted, String> {
        let totals = &self.totals;
        let mut sum = counted.clone();
        sum.calls = counted.calls.saturating_add(1);
        if let Some(most) = totals.calls.filter(|most| sum.calls > *most) {
            return Err(format!("all of its {most} calls are made"));
        }
        for (limit, amount) in totals.sums.iter().zip(&self.amounts) {
            let own = sum.sums.entry(limit.argument.clone()).or_default();
            let next = own.plus(*amount).filter(|next| *next <= limit.most);
            *own = next.ok_or_else(|| format!("{amount} more would pass {limit}, of which {own} are used"))?;
        }
        sum.tokens = counted.tokens.saturating_add(self.tokens);
        if let Some(most) = totals.tokens.filter(|most| sum.tokens > *most) {
            return Err(format!("{} more tokens would pass {most}", self.tokens));
        }
        if let Some(most) = totals.bytes.filter(|most| counted.bytes >= *most) {
            return Err(format!("{} of results have come", size(most)));
        }
        if let Some(most) = totals
            .seconds
            .filter(|most| counted.millis >= most.saturating_mul(1000))
        {
            return Err(format!("its {most} s are used"));
        }
        Ok(sum)
    }
}
