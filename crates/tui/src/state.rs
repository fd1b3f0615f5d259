//! What is on the screen, and what becomes of it when something happens elsewhere.
//!
//! Answers: which questions, grants and tasks are there, what is selected, what lies above the list? No I/O, no clock: both are
//! handed in. Promises: P8 (a question that ends, or changes, under the person's eyes can be answered no more, or has to be seen
//! again; nothing that comes moves what is looked at).
//! Not here: keys (`keys`), drawing (`draw`), the terminal (`screen`).

use std::sync::Arc;

use bailiwick_gate::desk::{Answer, Approver, Asked, AtWork, Closed, DeskFault, Granted, Terms};
use bailiwick_model::{Answered, DecisionId, GrantId, Millis, TaskId};
use jiff::tz::TimeZone;

use crate::cells::{self, Break};
use crate::entry::Entry;
use crate::guard::{Guard, Pressed};
use crate::page::{Fate, QuestionPage};
use crate::paper::{Ink, Line, Paper};
use crate::questions::Questions;
use crate::rows::Rows;
use crate::terms::{Target, TermsPage};
use crate::times;

/// The smallest screen on which something can be answered: columns and rows.
pub const SMALLEST: (u16, u16) = (24, 7);

/// How long a notice stands, in milliseconds.
const NOTICE: u64 = 12_000;

/// The three lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Questions that wait.
    Questions,
    /// Grants that hold.
    Grants,
    /// Tasks that run.
    Tasks,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer a question.
    Answer {
        /// The question.
        question: DecisionId,
        /// The answer.
        answer: Answer,
        /// The sentence of a yes, as it was shown.
        said: Option<String>,
    },
    /// Narrow a grant.
    Narrow(GrantId, Terms),
    /// Revoke a grant.
    Revoke(GrantId),
    /// End a task.
    End(TaskId),
    /// Leave the screen to the shell for a while.
    Suspend,
    /// Leave.
    Quit,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of an answer.
    Answered {
        /// The question.
        question: DecisionId,
        /// The sentence of a yes, as it was shown.
        said: Option<String>,
        /// What the desk says.
        result: Result<Closed, DeskFault>,
    },
    /// Of narrowing a grant.
    Narrowed(Result<Granted, DeskFault>),
    /// Of revoking one.
    Revoked(GrantId, Result<(), DeskFault>),
    /// Of ending a task.
    Ended(TaskId, Result<(), DeskFault>),
}

/// All that a desk has.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Questions that wait, oldest first.
    pub asked: Vec<Arc<Asked>>,
    /// Grants that hold, newest first.
    pub granted: Vec<Granted>,
    /// Tasks that run.
    pub at_work: Vec<AtWork>,
}

/// Something to be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sure {
    /// That a grant is revoked.
    Revoke(GrantId),
    /// That a task is ended.
    End(TaskId),
}

/// What lies above a list, and covers it.
#[derive(Debug)]
pub enum Layer {
    /// A question.
    Question(Box<QuestionPage>),
    /// What a yes may cover.
    Offers(DecisionId, Rows<usize>),
    /// For how often, how long and where.
    Terms(Box<TermsPage>),
    /// A text that is typed.
    Entry(Entry),
    /// A grant.
    Grant(GrantId, Paper),
    /// Something to be confirmed.
    Sure(Sure, Paper, Guard),
    /// All keys.
    Help(Paper),
}

/// What happened last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Notice {
    text: String,
    /// True for what did not go as it was meant.
    bad: bool,
    since: u64,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    /// Who answers.
    pub by: Approver,
    /// Their time zone.
    pub zone: TimeZone,
    /// What time it is.
    pub now: Millis,
    /// The same, of a clock that only goes on.
    pub at: u64,
    /// Columns and rows of the screen.
    pub size: (u16, u16),
    /// Which list is shown.
    pub view: View,
    /// The questions.
    pub questions: Questions,
    /// The grants.
    pub granted: Vec<Granted>,
    /// Their list.
    pub grants: Rows<GrantId>,
    /// The tasks.
    pub at_work: Vec<AtWork>,
    /// Their list.
    pub tasks: Rows<TaskId>,
    /// What lies above the list, the last uppermost.
    pub layers: Vec<Layer>,
    /// The keys of the last moments.
    pub pressed: Pressed,
    /// Why the desk cannot be reached.
    pub unreached: Option<String>,
    /// True once the desk has been heard.
    pub heard: bool,
    /// True where colours may be used.
    pub coloured: bool,
    notice: Option<Notice>,
}

impl State {
    /// Nothing yet.
    pub fn new(by: Approver, zone: TimeZone, now: Millis, coloured: bool) -> Self {
        Self {
            by,
            zone,
            now,
            at: 0,
            size: (80, 24),
            view: View::Questions,
            questions: Questions::default(),
            granted: Vec::new(),
            grants: Rows::default(),
            at_work: Vec::new(),
            tasks: Rows::default(),
            layers: Vec::new(),
            pressed: Pressed::default(),
            unreached: None,
            heard: false,
            coloured,
            notice: None,
        }
    }

    /// Time goes on.
    pub fn tick(&mut self, now: Millis, at: u64) {
        self.now = now;
        self.at = at;
        if self
            .notice
            .as_ref()
            .is_some_and(|notice| at.saturating_sub(notice.since) > NOTICE)
        {
            self.notice = None;
            self.fit();
        }
        if let Some(page) = self.page_mut()
            && page.fate == Fate::Waits
            && page.asked.deadline <= now
        {
            page.fate = Fate::Over("its deadline has passed: silence was a no".into());
        }
    }

    /// The screen has another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.size = (columns, rows);
        self.fit();
    }

    /// True when the screen is too small for an answer to be seen.
    pub fn is_too_small(&self) -> bool {
        self.size.0 < SMALLEST.0 || self.size.1 < SMALLEST.1
    }

    /// Columns and rows between the head and the foot.
    pub fn body(&self) -> (usize, usize) {
        let (columns, rows) = (usize::from(self.size.0), usize::from(self.size.1));
        (columns, rows.saturating_sub(2).saturating_sub(self.told().len()))
    }

    /// What is told above the keys, row by row; at least one. It covers nothing: the body is so much lower.
    pub fn told(&self) -> Vec<String> {
        let (columns, rows) = (usize::from(self.size.0), usize::from(self.size.1));
        let most = (rows / 4).clamp(1, 3);
        let text = match (&self.unreached, &self.notice) {
            (Some(fault), _) => format!("cannot ask the daemon: {fault}"),
            (None, Some(notice)) => notice.text.clone(),
            (None, None) => String::new(),
        };
        // No more of it is made safe than can be seen.
        let begin: String = text
            .chars()
            .take(columns.saturating_mul(most).saturating_add(1))
            .collect();
        let text = cells::safe(&begin);
        let all = cells::rows(&text, columns, Break::Words);
        let shown = all.iter().take(most).enumerate().map(|(place, row)| {
            let goes_on = place.saturating_add(1) == most && all.len() > most;
            let row = text.get(row.clone()).unwrap_or_default();
            match goes_on {
                true => format!(
                    "{}…",
                    cells::cut(row.trim_end(), columns.saturating_sub(1)).trim_end_matches('…')
                ),
                false => row.to_owned(),
            }
        });
        shown.collect()
    }

    /// True where what is told did not go as it was meant.
    pub fn is_told_badly(&self) -> bool {
        self.unreached.is_some() || self.notice.as_ref().is_some_and(|notice| notice.bad)
    }

    /// Gives everything its size.
    pub fn fit(&mut self) {
        let (columns, rows) = self.body();
        self.questions.rows.set_height(rows);
        self.grants.set_height(rows / 2);
        self.tasks.set_height(rows);
        for layer in &mut self.layers {
            match layer {
                // One row says how long it waits, and where the window is.
                Layer::Question(page) => page.paper.set_size(columns, rows.saturating_sub(1)),
                Layer::Offers(_, list) => list.set_height(rows.saturating_sub(1)),
                Layer::Terms(page) => {
                    let fields = page.fields().len();
                    let gap = usize::from(fields > 0 && rows > 10);
                    let taken = fields.saturating_add(gap);
                    page.paper.set_size(columns, rows.saturating_sub(taken));
                }
                Layer::Grant(_, paper) | Layer::Sure(_, paper, _) | Layer::Help(paper) => {
                    paper.set_size(columns, rows);
                }
                Layer::Entry(_) => {}
            }
        }
    }

    /// What lies uppermost.
    pub fn top(&self) -> Option<&Layer> {
        self.layers.last()
    }

    /// Lays something above.
    pub fn push(&mut self, layer: Layer) {
        self.layers.push(layer);
        self.fit();
    }

    /// The screen has been drawn as it is now.
    pub fn drawn(&mut self) {
        let at = self.at;
        if self.is_too_small() {
            return;
        }
        match self.layers.last_mut() {
            Some(Layer::Question(page)) => {
                page.paper.drawn();
                page.guard.drawn(at);
            }
            Some(Layer::Terms(page)) => {
                page.paper.drawn();
                page.guard.drawn(at);
            }
            Some(Layer::Sure(_, paper, guard)) => {
                paper.drawn();
                guard.drawn(at);
            }
            Some(Layer::Entry(entry)) => entry.guard.drawn(at),
            _ => {}
        }
    }

    /// The screen was not to be seen for a while: nothing on it has been looked at.
    pub fn was_away(&mut self) {
        for layer in &mut self.layers {
            match layer {
                Layer::Question(page) => page.guard.renew(),
                Layer::Terms(page) => page.guard.renew(),
                Layer::Sure(_, _, guard) => guard.renew(),
                Layer::Entry(entry) => entry.guard.renew(),
                Layer::Offers(..) | Layer::Grant(..) | Layer::Help(_) => {}
            }
        }
    }

    /// The question that is looked at.
    pub fn page(&self) -> Option<&QuestionPage> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Question(page) => Some(page.as_ref()),
            _ => None,
        })
    }

    /// The question that is looked at.
    pub fn page_mut(&mut self) -> Option<&mut QuestionPage> {
        self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Question(page) => Some(page.as_mut()),
            _ => None,
        })
    }

    /// Says what happened.
    pub fn say(&mut self, bad: bool, text: impl Into<String>) {
        self.notice = Some(Notice {
            text: text.into(),
            bad,
            since: self.at,
        });
        self.fit();
    }

    /// Takes what the desk has now.
    pub fn renew(&mut self, heard: Result<Snapshot, DeskFault>) {
        let snapshot = match heard {
            Ok(snapshot) => snapshot,
            Err(fault) => {
                self.unreached = Some(fault.to_string());
                self.fit();
                return;
            }
        };
        self.unreached = None;
        self.heard = true;
        self.questions.renew(snapshot.asked);
        self.grants
            .renew(snapshot.granted.iter().map(|grant| grant.id).collect());
        self.granted = snapshot.granted;
        self.tasks.renew(snapshot.at_work.iter().map(|task| task.id).collect());
        self.at_work = snapshot.at_work;
        self.renew_page();
        self.renew_grants();
        self.fit();
    }

    fn renew_page(&mut self) {
        let now = self.now;
        let Some(id) = self.page().map(|page| page.asked.id) else {
            return;
        };
        let found = self.questions.find(id).cloned();
        let Some(page) = self.page_mut() else { return };
        let same = match found {
            Some(asked) => page.renew(&asked),
            None => {
                if page.fate == Fate::Waits {
                    page.fate = Fate::Over(match page.asked.deadline <= now {
                        true => "its deadline has passed: silence was a no".into(),
                        false => "it was answered by somebody else, or ended".into(),
                    });
                }
                true
            }
        };
        if !same {
            // What lies above it was made from what it was.
            self.layers.retain(|layer| matches!(layer, Layer::Question(_)));
            self.say(true, "the question has changed: look at it again");
        }
    }

    /// What lies above a grant that is gone goes with it.
    fn renew_grants(&mut self) {
        let granted = &self.granted;
        let there = |id: &GrantId| granted.iter().any(|grant| grant.id == *id);
        let before = self.layers.len();
        self.layers.retain(|layer| match layer {
            Layer::Grant(id, _) | Layer::Sure(Sure::Revoke(id), ..) => there(id),
            Layer::Terms(page) => match &page.target {
                Target::Grant(id) => there(id),
                Target::Offer(..) => true,
            },
            _ => true,
        });
        if self.layers.len() < before && self.notice.is_none() {
            self.say(true, "that grant does not hold any more");
        }
    }

    /// Takes what came of something.
    pub fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Answered { question, said, result } => self.answered(question, said, result),
            Outcome::Narrowed(Ok(grant)) => {
                self.say(false, format!("grant {}: {}", grant.id, grant.sentence));
            }
            Outcome::Revoked(id, Ok(())) => {
                self.say(
                    false,
                    format!("grant {id} is revoked: what went on under it is cut off"),
                );
            }
            Outcome::Ended(id, Ok(())) => self.say(false, format!("task {id} has ended")),
            Outcome::Narrowed(Err(fault)) | Outcome::Revoked(_, Err(fault)) | Outcome::Ended(_, Err(fault)) => {
                self.say(true, fault.to_string());
            }
        }
    }

    fn answered(&mut self, question: DecisionId, said: Option<String>, result: Result<Closed, DeskFault>) {
        let is_open = self.page().is_some_and(|page| page.asked.id == question);
        match result {
            Ok(closed) => {
                if is_open {
                    self.layers.clear();
                }
                self.say_closed(&closed, said);
            }
            Err(fault) => {
                if let (true, Some(page)) = (is_open, self.page_mut()) {
                    page.guard.renew();
                    page.fate = match fault {
                        DeskFault::Unknown(_) => Fate::Over("it was answered by somebody else, or ended".into()),
                        _ => Fate::Waits,
                    };
                }
                let taken = "your answer was not taken";
                self.say(true, format!("{taken}: {fault}"));
            }
        }
    }

    fn say_closed(&mut self, closed: &Closed, said: Option<String>) {
        let (bad, text) = match (&closed.answer, &closed.grant) {
            (None, _) => (
                false,
                "your yes is noted: a second person has to say yes too".to_owned(),
            ),
            (Some(Answered::Yes), Some(grant)) if said.as_ref().is_some_and(|said| *said != grant.sentence) => (
                true,
                format!(
                    "grant {} says something else than was shown: {}",
                    grant.id, grant.sentence
                ),
            ),
            (Some(Answered::Yes), grant) => {
                let id = grant.as_ref().map(|grant| format!(" (grant {})", grant.id));
                let released = match closed.released {
                    0 => String::new(),
                    1 => "; it answered one other question, too".into(),
                    several => format!("; it answered {several} other questions, too"),
                };
                let said = said.unwrap_or_default();
                (false, format!("yes{}: {said}{released}", id.unwrap_or_default()))
            }
            (Some(Answered::More), _) => (false, "the agent is asked; it comes back with its answer".into()),
            (Some(_), _) => (false, "no".into()),
        };
        self.say(bad, text);
    }

    /// The page of a grant, on paper.
    pub fn paper_of(&self, grant: &Granted) -> Paper {
        const COLUMN: usize = 12;
        let mut lines = vec![
            Line::prose(Ink::Heading, format!("Grant {}: the agent", grant.id)),
            Line {
                name: "  ".into(),
                below: "  ".into(),
                ..Line::prose(Ink::Grant, &grant.sentence)
            },
            Line::default(),
        ];
        let mut fact = |name: &str, text: String| lines.push(Line::named(name, COLUMN, Ink::Plain, text));
        let used = match grant.terms.count {
            Some(count) => format!("{} of {count} times", grant.used),
            None => format!("{} times", grant.used),
        };
        fact("used", used);
        if let Some(until) = grant.terms.until {
            let left = times::span(until.0.saturating_sub(self.now.0));
            fact(
                "ends",
                format!("{} here, in {left}", times::local(until, self.now, &self.zone)),
            );
        }
        fact(
            "given",
            format!(
                "{} by {}",
                times::local(grant.given, self.now, &self.zone),
                grant.by.join(", ")
            ),
        );
        if let Some(task) = grant.task {
            fact("task", task.to_string());
        }
        fact("context", grant.context.0.clone());
        for act in &grant.acts {
            fact("act", act.to_string());
        }
        let needed = lines.len();
        Paper::new(lines, needed)
    }
}
