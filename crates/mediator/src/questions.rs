//! Questions that wait for a person: held, answered, lapsed, withdrawn.
//!
//! Promises: P4 (silence is a no; so is a question that nobody waits for any more), P8 (what is asked is bound to the request),
//! P10 (question and answer are on record, durable, before they have an effect).
//! Trust: requests are the agent's; answers come from people, by a road that no agent has.
//! Not here: answers (`answers`), what is shown (`asked`), what a yes may cover (`offers`), showing it (the front ends).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bailiwick_gate::desk::{Approver, Asked, Said};
use bailiwick_gate::{LedgerFault, MAX_FRAME, Pending, Question, Receipt, Refusal, Waiting, digest_of, encode};
use bailiwick_model::{
    Answered, Code, Decision, DecisionId, Durability, Event, GrantId, Millis, Nonce, Record, Request, TaskId, visible,
};

use crate::answers::offers_of;
use crate::asked;
use crate::monitor::Mediator;
use crate::session::{Asker, Line};
use crate::talk::Talks;
use crate::task::lock;

/// Most questions that wait at once.
const MAX_QUESTIONS: usize = 4096;

/// Most questions of one task that wait at once.
const MAX_OF_TASK: usize = 1024;

/// Most bytes of all requests about which questions wait.
const MAX_BYTES: usize = 64 << 20;

/// As many yeses to the like as it takes until the rule is told that would have answered.
const YESES: u64 = 3;

/// Hears of what happens to questions and grants, from whichever thread does it: it must not wait for anything.
pub trait Watcher: Send + Sync {
    /// A question began to wait, or what is known about it changed.
    fn waits(&self, waiting: &Waiting);
    /// A question came to its end.
    fn ended(&self, id: DecisionId);
    /// What goes on under a permit of a task is to be cut off.
    fn cut(&self, task: TaskId, nonce: Nonce);
    /// Something was done of which rules want the person to be told, in plain words.
    fn noticed(&self, task: TaskId, what: &str);
    /// Something that people are shown has changed.
    fn moved(&self);
}

/// One that waits.
pub(crate) struct Held {
    pub(crate) waiting: Waiting,
    /// Who waits; none where the task has ended with its daemon.
    pub(crate) asker: Option<Asker>,
    bytes: usize,
}

/// The questions that wait.
#[derive(Default)]
pub(crate) struct Questions {
    held: Mutex<BTreeMap<DecisionId, Held>>,
    /// Held while a first yes of two is written down: the next one finds it.
    pub(crate) seconding: Mutex<()>,
    pub(crate) talks: Talks,
}

impl Questions {
    /// Looks at one.
    pub(crate) fn look<T>(&self, id: DecisionId, look: impl FnOnce(&Waiting) -> T) -> Option<T> {
        lock(&self.held).get(&id).map(|held| look(&held.waiting))
    }

    /// Takes one: whoever takes it answers it.
    pub(crate) fn take_one(&self, id: DecisionId) -> Option<Held> {
        lock(&self.held).remove(&id)
    }

    /// Takes the first that fits.
    pub(crate) fn take_first(&self, fits: impl Fn(&Held) -> bool) -> Option<Held> {
        let mut all = lock(&self.held);
        let id = all.iter().find(|(_, held)| fits(held)).map(|(id, _)| *id)?;
        all.remove(&id)
    }

    /// Notes a yes that is not enough, if the question still waits: the question then.
    pub(crate) fn second(
        &self,
        id: DecisionId,
        by: &Approver,
        to: (bailiwick_model::Digest, String),
    ) -> Option<Waiting> {
        let mut all = lock(&self.held);
        let waiting = &mut all.get_mut(&id)?.waiting;
        waiting.seconded.push(by.clone());
        waiting.seconded_to = Some(to);
        Some(waiting.clone())
    }

    /// Changes what was said about a question that waits: the question then, and what the change says.
    pub(crate) fn saying<T>(
        &self,
        id: DecisionId,
        task: TaskId,
        change: impl FnOnce(&mut Vec<Said>) -> T,
    ) -> Option<(Waiting, T)> {
        let mut all = lock(&self.held);
        let held = all.get_mut(&id).filter(|held| held.waiting.request.task == task)?;
        let said = change(&mut held.waiting.words);
        Some((held.waiting.clone(), said))
    }

    fn take(&self, which: impl Fn(&Held) -> bool) -> Vec<Held> {
        lock(&self.held)
            .extract_if(.., |_, held| which(held))
            .map(|(_, held)| held)
            .collect()
    }
}

impl Mediator {
    /// The questions that wait, oldest first.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = lock(&self.questions.held)
            .values()
            .map(|held| held.waiting.clone())
            .collect();
        all.sort_by_key(|waiting| (waiting.since, waiting.id));
        all
    }

    /// True while a question waits.
    pub fn waits(&self, id: DecisionId) -> bool {
        self.questions.look(id, |_| ()).is_some()
    }

    /// The questions that wait as a person is shown them, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        self.waiting().into_iter().map(|waiting| self.shown(waiting)).collect()
    }

    /// A question as a person is shown it.
    pub fn shown(&self, waiting: Waiting) -> Asked {
        let kind = asked::kind(&waiting.request);
        // What cannot be read is not known, and nothing hangs on it.
        let likes = self
            .store
            .as_ref()
            .and_then(|store| store.likes(&waiting.context, &kind).ok());
        let likes = likes.unwrap_or_default();
        let offers = offers_of(&waiting);
        let exact = offers.iter().find_map(|offer| offer.acts.first());
        let rule = exact
            .filter(|_| likes.yes >= YESES)
            .map(|act| format!("allow = [{:?}]", act.to_string()));
        Asked {
            id: waiting.id,
            task: waiting.request.task,
            running: waiting.running,
            command: waiting.command.iter().map(|word| visible(word)).collect(),
            digest: waiting.digest,
            act: asked::act(&waiting.request),
            sentence: asked::sentence(&waiting),
            details: asked::all_details(&waiting),
            because: asked::because(&waiting),
            seconded: waiting.seconded.iter().map(|by| by.name.clone()).collect(),
            since: waiting.since,
            deadline: waiting.deadline,
            context: waiting.context,
            principal: waiting.principal,
            request: waiting.request,
            words: waiting.words,
            offers,
            likes,
            kind,
            rule,
        }
    }

    /// Takes up questions that were kept when the daemon before this one ended. A yes to one of them is for the next task of
    /// its context.
    pub fn take_up_questions(&self, kept: Vec<Waiting>) {
        let mut all = lock(&self.questions.held);
        for waiting in kept.into_iter().take(MAX_QUESTIONS) {
            let bytes = size_of(&waiting.request);
            let waiting = Waiting {
                running: false,
                ..waiting
            };
            let held = Held {
                asker: None,
                bytes,
                waiting,
            };
            all.insert(held.waiting.id, held);
        }
    }

    /// Keeps a question that a person must answer, unless nobody waits for it any more.
    pub(crate) fn hold(&self, question: Question, request: Request, against: Decision, asker: Asker) {
        let task = self.task(request.task);
        let waiting = Waiting {
            id: question.id,
            digest: digest_of(&request),
            since: self.clock.now(),
            deadline: question.deadline,
            context: task
                .as_ref()
                .map(|task| bailiwick_model::ContextId::clone(&task.context))
                .unwrap_or_else(|| bailiwick_model::ContextId(String::new())),
            command: task.as_ref().map(|task| task.command.clone()).unwrap_or_default(),
            principal: task.as_ref().map(|task| task.principal.to_string()).unwrap_or_default(),
            approvers: task.and_then(|task| task.policy().approvers_of(&request)),
            seconded_to: None,
            words: self.questions.talks.about(&request),
            seconded: Vec::new(),
            running: true,
            request,
            against,
        };
        asker.tell(question);
        let bytes = size_of(&waiting.request);
        let task = waiting.request.task;
        let refused = {
            let mut all = lock(&self.questions.held);
            let of_task = || all.values().filter(|held| held.waiting.request.task == task).count();
            let held = || all.values().fold(bytes, |sum, held| sum.saturating_add(held.bytes));
            // Both are marked before questions are looked through for them: what is kept here is found there.
            if !asker.waits() || self.task(task).is_none() {
                Some((asker, Code::QuestionWithdrawn))
            } else if all.len() >= MAX_QUESTIONS || of_task() >= MAX_OF_TASK || held() > MAX_BYTES {
                Some((asker, Code::LimitReached))
            } else {
                let held = Held {
                    waiting: waiting.clone(),
                    asker: Some(asker),
                    bytes,
                };
                all.insert(waiting.id, held);
                None
            }
        };
        match refused {
            None => {
                if let Some(watcher) = self.watcher.get() {
                    watcher.waits(&waiting);
                    watcher.moved();
                }
            }
            Some((asker, Code::LimitReached)) => {
                let event = Event::Refused {
                    id: waiting.id,
                    code: Code::LimitReached,
                    what: format!("{}: too many questions wait", waiting.request),
                };
                self.deny_after(
                    self.append(task, event, Durability::Ordered),
                    asker,
                    waiting.id,
                    Code::LimitReached,
                );
            }
            Some((asker, _)) => {
                let asker = Some(asker);
                self.close(Held { waiting, asker, bytes }, Answered::Withdrawn);
            }
        }
    }

    /// Withdraws the question of one call of a channel, or all of a channel.
    pub(crate) fn withdraw(&self, line: &Arc<Line>, call: Option<u64>) {
        let of_line = |held: &Held| held.asker.as_ref().is_some_and(|asker| asker.is_of(line, call));
        for held in self.questions.take(of_line) {
            self.close(held, Answered::Withdrawn);
        }
    }

    /// Withdraws the questions of a task that has ended, and forgets what was said.
    pub(crate) fn withdraw_of(&self, task: TaskId) {
        self.questions.talks.forget(task);
        for held in self.questions.take(|held| held.waiting.request.task == task) {
            self.close(held, Answered::Withdrawn);
        }
    }

    /// Makes a no of every question that has waited until its deadline.
    pub(crate) fn lapse(&self, now: Millis) {
        for held in self.questions.take(|held| held.waiting.deadline <= now) {
            self.count(&held.waiting, Answered::Lapsed);
            self.close(held, Answered::Lapsed);
        }
    }

    /// Ends a question that nobody answered. It is a no also where the log cannot take that.
    pub(crate) fn close(&self, held: Held, answer: Answered) {
        let Held { waiting, asker, .. } = held;
        let code = answer.refusal().unwrap_or(Code::Fault);
        let appended = self.append_answer(&waiting, answer, None, (None, None), Durability::Ordered);
        self.ended(waiting.id);
        if let Some(asker) = asker {
            self.deny_after(appended, asker, waiting.id, code);
        }
    }

    /// Denies once it is known what became of the record. Waits for nothing: this may be the log's own thread.
    fn deny_after(&self, appended: Result<Box<dyn Pending>, LedgerFault>, asker: Asker, id: DecisionId, code: Code) {
        let deny = move |recorded: Result<Receipt, LedgerFault>| {
            let code = recorded.map_or(Code::LogUnavailable, |_| code);
            asker.deny(Refusal::new(id, code));
        };
        match appended {
            Ok(pending) => pending.then(Box::new(deny)),
            Err(fault) => deny(Err(fault)),
        }
    }

    pub(crate) fn count(&self, waiting: &Waiting, answer: Answered) {
        if let Some(store) = &self.store {
            // A count that is lost is a hint that is lost.
            let _ = store.count(&waiting.context, &asked::kind(&waiting.request), answer);
        }
    }

    pub(crate) fn append_answer(
        &self,
        waiting: &Waiting,
        answer: Answered,
        by: Option<&Approver>,
        (grant, word): (Option<GrantId>, Option<String>),
        durability: Durability,
    ) -> Result<Box<dyn Pending>, LedgerFault> {
        let event = Event::Answered {
            id: waiting.id,
            request: waiting.request.clone(),
            digest: waiting.digest,
            answer,
            principal: by.map(|by| by.name.clone()),
            grant,
            word,
        };
        self.append(waiting.request.task, event, durability)
    }

    pub(crate) fn append(
        &self,
        task: TaskId,
        event: Event,
        durability: Durability,
    ) -> Result<Box<dyn Pending>, LedgerFault> {
        let record = Record {
            time: self.clock.now(),
            task: Some(task),
            event,
        };
        self.ledger.append(&record, durability)
    }

    pub(crate) fn ended(&self, id: DecisionId) {
        if let Some(watcher) = self.watcher.get() {
            watcher.ended(id);
            watcher.moved();
        }
    }

    pub(crate) fn moved(&self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.moved();
        }
    }

    pub(crate) fn tell_cut(&self, task: TaskId, nonce: Nonce) {
        if let Some(watcher) = self.watcher.get() {
            watcher.cut(task, nonce);
        }
    }
}

fn size_of(request: &Request) -> usize {
    encode(request).map_or(MAX_FRAME, |frame| frame.len())
}
