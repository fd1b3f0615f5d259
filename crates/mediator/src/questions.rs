//! Questions that wait for a person: held, answered, lapsed, withdrawn.
//!
//! Promises: P4 (silence is a no; so is a question that nobody waits for any more), P8 (a yes is a grant for the one
//! request whose digest was shown, once; the request is then decided again and never let through by the yes itself),
//! P10 (question and answer are on record, durable, before they have an effect).
//! Trust: requests are the agent's; answers come from the person, by a road that no agent has.
//! Not here: showing them (the daemon and its commands), what else a yes could cover (offers are still to come).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use bailiwick_gate::{LedgerFault, Pending, Question, Receipt, Refusal, digest_of};
use bailiwick_model::{
    Answered, Code, Decision, DecisionId, Digest, Durability, Event, Millis, Record, Request, TaskId,
};

use crate::monitor::Mediator;
use crate::session::{Asker, Line};
use crate::snapshot::Grant;
use crate::task::lock;

/// Most questions that wait at once.
const MAX_QUESTIONS: usize = 1000;

/// Most questions of one task that wait at once.
const MAX_OF_TASK: usize = 256;

/// How long the grant that a yes gives may be used, in milliseconds: the request is decided again at once.
const GRANT_LIFE: u64 = 30_000;

/// A question that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The decision that asks; what answers it names this.
    pub id: DecisionId,
    /// What it is about, whole.
    pub request: Request,
    /// The digest of the request: a yes is for this alone.
    pub digest: Digest,
    /// Why it is asked.
    pub against: Decision,
    /// Since when it waits.
    pub since: Millis,
    /// When silence becomes a no.
    pub deadline: Millis,
}

/// Says why a question cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionFault {
    /// It does not wait, or not any more.
    #[error("no question {0} waits")]
    Unknown(DecisionId),
    /// The log cannot take the answer: it counts as no.
    #[error(transparent)]
    Log(#[from] LedgerFault),
}

struct Held {
    waiting: Waiting,
    asker: Asker,
}

type Watcher = Box<dyn Fn(&Waiting) + Send + Sync>;

/// The questions that wait, oldest first where it matters.
#[derive(Default)]
pub(crate) struct Questions {
    held: Mutex<BTreeMap<DecisionId, Held>>,
    watcher: OnceLock<Watcher>,
}

impl Questions {
    fn take(&self, which: impl Fn(&Held) -> bool) -> Vec<Held> {
        lock(&self.held)
            .extract_if(.., |_, held| which(held))
            .map(|(_, held)| held)
            .collect()
    }
}

impl Mediator {
    /// Hears of each question when it begins to wait, from whichever thread asks: it must not wait for anything.
    /// The first watcher stays.
    pub fn watch_questions(&self, watcher: impl Fn(&Waiting) + Send + Sync + 'static) {
        let _ = self.questions.watcher.set(Box::new(watcher));
    }

    /// The questions that wait, oldest first.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = lock(&self.questions.held)
            .values()
            .map(|held| held.waiting.clone())
            .collect();
        all.sort_by_key(|waiting| (waiting.since, waiting.id));
        all
    }

    /// Answers a question for a person. After a yes the request is decided again, with a grant for just that request.
    pub fn answer(self: &Arc<Self>, id: DecisionId, yes: bool, principal: &str) -> Result<Waiting, QuestionFault> {
        let now = self.clock.now();
        let held = lock(&self.questions.held).remove(&id);
        let held = held.ok_or(QuestionFault::Unknown(id))?;
        if held.waiting.deadline <= now {
            self.close(held, Answered::Lapsed);
            return Err(QuestionFault::Unknown(id));
        }
        let answer = if yes { Answered::Yes } else { Answered::No };
        let Held { waiting, asker } = held;
        let noted = self
            .append_answer(&waiting, answer, Some(principal), Durability::Durable)
            .and_then(Pending::wait);
        if let Err(fault) = noted {
            asker.deny(Refusal {
                id,
                code: Code::LogUnavailable,
            });
            return Err(fault.into());
        }
        let task = self.task(waiting.request.task);
        let deny = |code| Refusal { id, code };
        match (yes, task) {
            (false, _) => asker.deny(deny(Code::AnsweredNo)),
            (true, None) => asker.deny(deny(Code::UnknownTask)),
            (true, Some(task)) => {
                let expires = Millis(now.0.saturating_add(GRANT_LIFE));
                let grant =
                    Grant::once(waiting.digest, waiting.against.clone(), expires).given_by([principal.to_owned()]);
                {
                    let _writer = lock(&task.writer);
                    task.state().grant_once(grant, now);
                }
                self.decide_patiently(&waiting.request, asker);
            }
        }
        Ok(waiting)
    }

    /// Keeps a question that a person must answer, unless nobody waits for it any more.
    pub(crate) fn hold(&self, question: Question, request: Request, against: Decision, asker: Asker) {
        let waiting = Waiting {
            id: question.id,
            digest: digest_of(&request),
            since: self.clock.now(),
            deadline: question.deadline,
            request,
            against,
        };
        asker.tell(question);
        let task = waiting.request.task;
        let refused = {
            let mut all = lock(&self.questions.held);
            let of_task = || all.values().filter(|held| held.waiting.request.task == task).count();
            // Both are marked before questions are looked through for them: what is kept here is found there.
            if !asker.waits() || self.task(task).is_none() {
                Some((asker, Code::QuestionWithdrawn))
            } else if all.len() >= MAX_QUESTIONS || of_task() >= MAX_OF_TASK {
                Some((asker, Code::LimitReached))
            } else {
                let held = Held {
                    waiting: waiting.clone(),
                    asker,
                };
                all.insert(waiting.id, held);
                None
            }
        };
        match refused {
            None => {
                if let Some(watcher) = self.questions.watcher.get() {
                    watcher(&waiting);
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
            Some((asker, _)) => self.close(Held { waiting, asker }, Answered::Withdrawn),
        }
    }

    /// Withdraws the question of one call of a channel, or all of a channel.
    pub(crate) fn withdraw(&self, line: &Arc<Line>, call: Option<u64>) {
        let of_line = |held: &Held| held.asker.is_of(line, call);
        for held in self.questions.take(of_line) {
            self.close(held, Answered::Withdrawn);
        }
    }

    /// Withdraws the questions of a task that has ended.
    pub(crate) fn withdraw_of(&self, task: TaskId) {
        for held in self.questions.take(|held| held.waiting.request.task == task) {
            self.close(held, Answered::Withdrawn);
        }
    }

    /// Makes a no of every question that has waited until its deadline.
    pub(crate) fn lapse(&self, now: Millis) {
        for held in self.questions.take(|held| held.waiting.deadline <= now) {
            self.close(held, Answered::Lapsed);
        }
    }

    /// Ends a question that nobody answered. It is a no also where the log cannot take that.
    fn close(&self, held: Held, answer: Answered) {
        let Held { waiting, asker } = held;
        let code = answer.refusal().unwrap_or(Code::Fault);
        let appended = self.append_answer(&waiting, answer, None, Durability::Ordered);
        self.deny_after(appended, asker, waiting.id, code);
    }

    /// Denies once it is known what became of the record. Waits for nothing: this may be the log's own thread.
    fn deny_after(&self, appended: Result<Box<dyn Pending>, LedgerFault>, asker: Asker, id: DecisionId, code: Code) {
        let deny = move |recorded: Result<Receipt, LedgerFault>| {
            let code = recorded.map_or(Code::LogUnavailable, |_| code);
            asker.deny(Refusal { id, code });
        };
        match appended {
            Ok(pending) => pending.then(Box::new(deny)),
            Err(fault) => deny(Err(fault)),
        }
    }

    fn append_answer(
        &self,
        waiting: &Waiting,
        answer: Answered,
        principal: Option<&str>,
        durability: Durability,
    ) -> Result<Box<dyn Pending>, LedgerFault> {
        let event = Event::Answered {
            id: waiting.id,
            request: waiting.request.clone(),
            digest: waiting.digest,
            answer,
            principal: principal.map(Into::into),
        };
        self.append(waiting.request.task, event, durability)
    }

    fn append(&self, task: TaskId, event: Event, durability: Durability) -> Result<Box<dyn Pending>, LedgerFault> {
        let record = Record {
            time: self.clock.now(),
            task: Some(task),
            event,
        };
        self.ledger.append(&record, durability)
    }
}
