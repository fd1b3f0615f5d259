//! What a person and the agent say to each other about a question.
//!
//! Promises: P8 (the agent's words are its own, stand apart, and decide nothing). Trust: they come from the agent, which wants
//! to be believed; there is a limit to how much is kept.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bailiwick_gate::Waiting;
use bailiwick_gate::desk::Said;
use bailiwick_model::{DecisionId, Durability, Event, Request, TaskId, visible};

use crate::monitor::Mediator;
use crate::task::lock;

/// Most questions whose talk is remembered after a person wanted to know more.
const MAX_TALKS: usize = 256;

/// Most pieces that are said about one question.
const MAX_PIECES: usize = 16;

/// Most bytes of what is said at once.
const MAX_BYTES: usize = 4096;

/// What was said about questions that were closed until the agent tells more.
#[derive(Default)]
pub(crate) struct Talks(Mutex<BTreeMap<DecisionId, Talk>>);

struct Talk {
    request: Request,
    words: Vec<Said>,
}

impl Talks {
    /// Remembers that the agent is to tell more, for when it asks again.
    pub(crate) fn remember(&self, waiting: &Waiting, word: &str) {
        let mut words = waiting.words.clone();
        words.truncate(MAX_PIECES.saturating_sub(1));
        words.push(Said {
            asked: Some(visible(word)),
            answered: None,
        });
        let mut all = lock(&self.0);
        if all.len() >= MAX_TALKS {
            all.pop_first();
        }
        let request = waiting.request.clone();
        all.insert(waiting.id, Talk { request, words });
    }

    /// What was said about this very request when it was asked before.
    pub(crate) fn about(&self, request: &Request) -> Vec<Said> {
        let mut all = lock(&self.0);
        let known = all.iter().find(|(_, talk)| talk.request == *request).map(|(id, _)| *id);
        known
            .and_then(|id| all.remove(&id))
            .map(|talk| talk.words)
            .unwrap_or_default()
    }

    /// Forgets what was said in a task that has ended.
    pub(crate) fn forget(&self, task: TaskId) {
        lock(&self.0).retain(|_, talk| talk.request.task != task);
    }

    fn say(&self, question: DecisionId, task: TaskId, words: &str) -> bool {
        let mut all = lock(&self.0);
        let talk = all.get_mut(&question).filter(|talk| talk.request.task == task);
        talk.is_some_and(|talk| add(&mut talk.words, words))
    }
}

/// Adds what the agent says: as the answer to what was asked last, else by itself. False when there is no room for it.
fn add(all: &mut Vec<Said>, words: &str) -> bool {
    if let Some(last) = all.last_mut().filter(|last| last.answered.is_none()) {
        last.answered = Some(words.into());
        return true;
    }
    let room = all.len() < MAX_PIECES;
    if room {
        all.push(Said {
            asked: None,
            answered: Some(words.into()),
        });
    }
    room
}

impl Mediator {
    /// Takes what the agent says about a question of its task: one that waits, or one that was closed until it tells more.
    pub fn tell(&self, task: TaskId, question: DecisionId, words: &str) {
        let words = visible(words.get(..words.floor_char_boundary(MAX_BYTES)).unwrap_or(words));
        let waits = self.questions.saying(question, task, |all| add(all, &words));
        let taken = match &waits {
            Some((_, taken)) => *taken,
            None => self.questions.talks.say(question, task, &words),
        };
        if !taken {
            return;
        }
        // What it says decides nothing: a log that fails stops what would.
        let _ = self.append(task, Event::Told { question, words }, Durability::Ordered);
        if let (Some((waiting, _)), Some(watcher)) = (waits, self.watcher.get()) {
            watcher.waits(&waiting);
            watcher.moved();
        }
    }
}
