//! The approving side: what people who answer questions are shown, and what they may say.
//!
//! Answers: which questions wait, what would each answer cover, which grants hold?
//! Promises: P8 (what is shown is made by the mediator from the request, whole; an answer names the digest of the offer that
//! was shown, with its time and number, and holds for nothing else), P11 (grants are narrowed and revoked here).
//! Trust: texts in requests are the agent's. Every text that is made for showing stands here in visible form; the request
//! itself does not. Answers come from people; a front end that runs as the agent never gets here.
//! Not here: showing it (`tui`, `console`), making offers and keeping grants (`mediator`).

use std::fmt;
use std::time::Duration;

use bailiwick_model::{Act, Answered, ContextId, DecisionId, Digest, GrantId, Millis, Request, TaskId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A question that waits, as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The decision that asks: what an answer names.
    pub id: DecisionId,
    /// The task.
    pub task: TaskId,
    /// False when the task has ended, with its daemon: a yes is then kept for the next task of the context, once.
    pub running: bool,
    /// The context.
    pub context: ContextId,
    /// The task's program and its arguments, in visible form.
    pub command: Vec<String>,
    /// The accountable person: who asks, in the sense of four eyes.
    pub principal: String,
    /// The request itself: what a yes to the first offer is for, and nothing else. Not in visible form.
    pub request: Request,
    /// The digest of the request.
    pub digest: Digest,
    /// The act as one line, whole, in visible form.
    pub act: String,
    /// What is asked, as one sentence.
    pub sentence: String,
    /// All that the request holds, whole, in visible form, piece by piece.
    pub details: Vec<Detail>,
    /// Why it is asked: one line each.
    pub because: Vec<String>,
    /// What the agent says about it, and what it answered when a person wanted to know more. Its own words, never to be taken
    /// for the question.
    pub words: Vec<Said>,
    /// How often the like was asked in this context before, and what came of it.
    pub likes: Likes,
    /// People who have said yes already, where one is not enough.
    pub seconded: Vec<String>,
    /// Since when it waits.
    pub since: Millis,
    /// When silence becomes a no.
    pub deadline: Millis,
    /// What a yes may cover, from narrow to wide. The first is the request itself, once.
    pub offers: Vec<Offer>,
    /// Questions with the same text here are alike: for grouping.
    pub kind: String,
    /// The line of a rule file that would have answered it, once the like has had three yeses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// One piece of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detail {
    /// What it is: `program`, `word 3`, `host`.
    pub name: String,
    /// Its lines, each whole and in visible form; more than one where the value has line breaks.
    pub lines: Vec<String>,
    /// What a person should mind about it, such as the ASCII form of a look-alike host; none mostly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mind: Option<String>,
}

/// What was said between a person and the agent about a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// What the person wanted to know; none where the agent spoke first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// What the agent said, in visible form; none where it has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
}

/// How often the like was asked before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Likes {
    /// In all.
    pub asked: u64,
    /// With a yes.
    pub yes: u64,
    /// With a no.
    pub no: u64,
}

/// What a yes may cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The acts; none for just the request, once.
    pub acts: Vec<Act>,
    /// What it lets the agent do, as the beginning of a sentence in visible form: `may run git push origin agent/x`.
    pub says: String,
}

/// For how often, how long and where a yes is to hold. Absent means unlimited in that dimension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// How many times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Where.
    pub scope: Scope,
}

/// Where a grant holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// In the task that asked, until it ends.
    #[default]
    Task,
    /// In every task of the context, until it is revoked.
    Context,
}

impl Offer {
    /// True for the request itself, which is granted once, for the task that asked.
    pub fn is_request(&self) -> bool {
        self.acts.is_empty()
    }

    /// The terms in which this offer can be given: the request itself knows none but its own.
    pub fn terms(&self, wished: Terms) -> Terms {
        match self.is_request() {
            true => Terms {
                count: Some(1),
                ..Terms::default()
            },
            false => wished,
        }
    }

    /// The whole sentence of a yes.
    pub fn sentence(&self, terms: &Terms) -> String {
        format!("{}{terms}", self.says)
    }

    /// What an answer names: the digest of just this offer of just this question, in these terms.
    pub fn digest(&self, question: DecisionId, terms: &Terms) -> Digest {
        let mut hash = Sha256::new();
        hash.update(b"bailiwick offer v1\n");
        // Text and numbers alone: writing them cannot fail.
        hash.update(serde_json::to_vec(&(question, self, terms)).unwrap_or_default());
        Digest(hash.finalize().into())
    }
}

/// `, once, until 2026-11-30 18:00 UTC, in this task`.
impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Some(1) => f.write_str(", once")?,
            Some(count) => write!(f, ", at most {count} times")?,
            None => {}
        }
        if let Some(until) = self.until {
            write!(f, ", until {}", moment(until))?;
        }
        f.write_str(match self.scope {
            Scope::Task => ", in this task",
            Scope::Context => ", in this context",
        })
    }
}

/// A moment in UTC, to the second (RFC 3339, with a blank for the `T`).
pub fn moment(time: Millis) -> String {
    // Days since 1970 to a date: the civil calendar counted from a first of March, so that leap days come last.
    let seconds = time.0 / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = of_era
        .saturating_sub(of_era / 1460)
        .saturating_add(of_era / 36_524)
        .saturating_sub(of_era / 146_096)
        / 365;
    let before = (365 * year_of_era)
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100);
    let of_year = of_era.saturating_sub(before);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era
        .saturating_mul(400)
        .saturating_add(year_of_era)
        .saturating_add(later);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// What a person says to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// No, with a word to the agent.
    No {
        /// The word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        word: Option<String>,
    },
    /// Yes.
    Yes {
        /// Which offer, by its place.
        offer: usize,
        /// In which terms.
        terms: Terms,
        /// The digest of what was shown.
        shown: Digest,
    },
    /// Not before the agent has told more.
    More {
        /// What the person wants to know.
        word: String,
    },
}

impl Answer {
    /// The narrowest yes: to the request itself, once; where its task has ended, to the same act of the next one, once.
    pub fn once(asked: &Asked) -> Option<Self> {
        let scope = if asked.running { Scope::Task } else { Scope::Context };
        let terms = Terms {
            count: Some(1),
            scope,
            ..Terms::default()
        };
        Self::yes(asked, 0, terms)
    }

    /// A yes to an offer in such terms; none where there is no such offer.
    pub fn yes(asked: &Asked, offer: usize, terms: Terms) -> Option<Self> {
        let chosen = asked.offers.get(offer)?;
        let terms = chosen.terms(terms);
        let shown = chosen.digest(asked.id, &terms);
        Some(Self::Yes { offer, terms, shown })
    }
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approver {
    /// The name.
    pub name: String,
    /// How it is known that it is them.
    pub by: Known,
}

/// How it is known who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Known {
    /// The kernel names the user at the other end of the socket.
    User,
    /// They logged in to the console with a code of their own (RFC 6238).
    Code,
    /// It is a program that the person named.
    Program,
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// What it came to; none where a second person has to say yes too.
    pub answer: Option<Answered>,
    /// The grant that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Granted>,
    /// How many other questions it answered as well.
    pub released: usize,
}

/// A grant, as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// What `bailiwick grants revoke` takes.
    pub id: GrantId,
    /// The sentence that was shown before the yes, in visible form.
    pub sentence: String,
    /// What it covers; none for one request alone.
    pub acts: Vec<Act>,
    /// In which terms.
    pub terms: Terms,
    /// How often it has been used.
    pub used: u64,
    /// The task that asked; none where it was given before anything was asked.
    pub task: Option<TaskId>,
    /// The context.
    pub context: ContextId,
    /// Who gave it.
    pub by: Vec<String>,
    /// When.
    pub given: Millis,
}

/// A task that runs, as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtWork {
    /// The task.
    pub id: TaskId,
    /// The context.
    pub context: String,
    /// Its program and arguments, in visible form.
    pub command: Vec<String>,
    /// When it began.
    pub started: Millis,
}

/// Says why the approving side cannot do what was wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeskFault {
    /// The question does not wait, or not any more: it was answered, withdrawn, or lapsed.
    #[error("no question {0} waits: it was answered by somebody else, or ended")]
    Unknown(DecisionId),
    /// The answer names another offer, or other terms, than the question has.
    #[error("question {0} makes no such offer: look at it again")]
    Offer(DecisionId),
    /// There is no such grant.
    #[error("there is no grant {0}")]
    Grant(GrantId),
    /// It would give more than the grant does.
    #[error("grant {0} can be narrowed only")]
    Wider(GrantId),
    /// Whoever answers may not.
    #[error("{0}")]
    Refused(String),
    /// The daemon cannot: its log, its store, or the way to it.
    #[error("{0}")]
    Fault(String),
}

/// The approving side, as a front end sees it.
pub trait Desk: Send + Sync {
    /// The questions that wait, oldest first.
    fn asked(&self) -> Result<Vec<Asked>, DeskFault>;

    /// Answers one. Of two answers the first counts; the second is told so.
    fn answer(&self, question: DecisionId, answer: &Answer, by: &Approver) -> Result<Closed, DeskFault>;

    /// The grants that hold, newest first.
    fn granted(&self) -> Result<Vec<Granted>, DeskFault>;

    /// Narrows a grant: fewer further uses, an earlier end.
    fn narrow(&self, grant: GrantId, terms: &Terms) -> Result<Granted, DeskFault>;

    /// Revokes a grant: what goes on under it is cut off within a second.
    fn revoke(&self, grant: GrantId) -> Result<(), DeskFault>;

    /// The tasks that run.
    fn at_work(&self) -> Result<Vec<AtWork>, DeskFault>;

    /// Ends a task.
    fn end(&self, task: TaskId) -> Result<(), DeskFault>;

    /// Waits until something here has changed since the moment that `seen` names, at most so long; says the moment now.
    /// A front end that waits is a live session of its approver.
    fn changed(&self, seen: u64, patience: Duration, by: &Approver) -> Result<u64, DeskFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_dates() {
        for (millis, want) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_000, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (951_868_800_000, "2000-03-01 00:00:00 UTC"),
            (1_796_061_845_000, "2026-11-30 18:04:05 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(moment(Millis(millis)), want);
        }
    }

    #[test]
    fn p8_an_answer_is_for_one_offer_in_its_terms() {
        let offer = Offer {
            acts: Vec::new(),
            says: "may read /a".into(),
        };
        let (one, other) = (DecisionId([1; 6]), DecisionId([2; 6]));
        let terms = Terms {
            count: Some(2),
            until: Some(Millis(0)),
            scope: Scope::Context,
        };
        assert_eq!(
            offer.sentence(&terms),
            "may read /a, at most 2 times, until 1970-01-01 00:00:00 UTC, in this context"
        );
        let once = offer.terms(terms);
        assert_eq!(offer.sentence(&once), "may read /a, once, in this task");
        assert_ne!(offer.digest(one, &terms), offer.digest(one, &once));
        assert_ne!(offer.digest(one, &terms), offer.digest(other, &terms));
    }
}
