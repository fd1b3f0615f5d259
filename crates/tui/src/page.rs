//! The page of a question: all of it, on paper.
//!
//! Promises: P8 (the request whole, then the sentence of a yes; the agent's words below, marked as its own). Trust: the texts of
//! a question are made visible by the mediator, and made safe once more here; what the agent says is not.
//! Not here: whether an answer is taken (`keys`), drawing (`draw`).

use std::sync::Arc;

use bailiwick_gate::desk::{Answer, Asked, Detail};

use crate::cells;
use crate::guard::Guard;
use crate::paper::{Ink, Line, Paper};

/// The column where values begin.
const COLUMN: usize = 12;

/// The widest name that a value stands beside.
const NAME: usize = 20;

/// The longest value that stands beside its name, in characters.
const BESIDE: usize = 200;

/// As much of the sentence as stands at the top, in characters: the whole request follows it.
const SENTENCE: usize = 300;

/// What becomes of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits.
    Waits,
    /// An answer is on its way.
    Sent,
    /// It does not wait any more, and why.
    Over(String),
}

/// A question that is looked at.
#[derive(Debug)]
pub struct QuestionPage {
    /// The question.
    pub asked: Arc<Asked>,
    /// All of it.
    pub paper: Paper,
    /// Since when it is seen.
    pub guard: Guard,
    /// What becomes of it.
    pub fate: Fate,
}

impl QuestionPage {
    /// Opens it.
    pub fn open(asked: Arc<Asked>) -> Self {
        Self {
            paper: paper(&asked),
            asked,
            guard: Guard::default(),
            fate: Fate::Waits,
        }
    }

    /// Takes what is known of it now: false when it is not what was shown.
    pub fn renew(&mut self, asked: &Arc<Asked>) -> bool {
        if Arc::ptr_eq(&self.asked, asked) || self.asked == *asked {
            return true;
        }
        let (old, new) = (&self.asked, asked);
        let same = old.digest == new.digest
            && old.sentence == new.sentence
            && old.details == new.details
            && old.offers == new.offers
            && old.running == new.running;
        let mut paper = paper(asked);
        self.paper.hand_over(&mut paper, same);
        self.paper = paper;
        if !same {
            self.guard.renew();
        }
        self.asked = Arc::clone(asked);
        same
    }
}

/// The sentence of the narrowest yes.
pub fn narrowest(asked: &Asked) -> Option<String> {
    match Answer::once(asked)? {
        Answer::Yes { offer, terms, .. } => Some(asked.offers.get(offer)?.sentence(&terms)),
        _ => None,
    }
}

fn paper(asked: &Asked) -> Paper {
    let mut lines = Vec::new();
    lines.push(sentence(&asked.sentence));
    lines.push(Line::default());
    facts(asked, &mut lines);
    lines.push(Line::default());
    lines.push(Line::prose(Ink::Heading, "The request, whole"));
    let short = asked.details.iter().filter(|detail| is_short(detail));
    let column = short.map(|detail| width_of(&detail.name)).max().unwrap_or_default();
    let column = column.saturating_add(2).max(COLUMN);
    for detail in &asked.details {
        of_detail(detail, column, &mut lines);
    }
    lines.push(Line::default());
    match narrowest(asked) {
        Some(says) => {
            lines.push(Line::prose(Ink::Heading, "y says: the agent"));
            lines.push(Line {
                name: "  ".into(),
                below: "  ".into(),
                ..Line::prose(Ink::Grant, says)
            });
        }
        None => lines.push(Line::prose(
            Ink::Mind,
            "A yes to this cannot be said as an act for the next task: its task has ended.",
        )),
    }
    let wider = asked.offers.len().saturating_sub(1);
    if wider > 0 {
        lines.push(Line {
            name: "  ".into(),
            below: "  ".into(),
            ..Line::prose(Ink::Faint, format!("o shows {wider} wider {}", offers(wider)))
        });
    }
    let needed = lines.len();
    if let Some(rule) = &asked.rule {
        lines.push(Line::default());
        lines.push(Line::prose(
            Ink::Heading,
            "The like had a yes three times. This line would have said it",
        ));
        lines.push(Line {
            name: "  ".into(),
            below: "  ".into(),
            exact: true,
            ..Line::prose(Ink::Plain, rule)
        });
    }
    words(asked, &mut lines);
    Paper::new(lines, needed)
}

fn offers(count: usize) -> &'static str {
    if count == 1 { "answer" } else { "answers" }
}

fn sentence(text: &str) -> Line {
    let long = text.chars().count();
    if long <= SENTENCE {
        return Line::prose(Ink::Question, format!("{text}?"));
    }
    let head: String = text.chars().take(SENTENCE).collect();
    Line::prose(
        Ink::Question,
        format!("{head}… ({} characters: the whole stands below)", grouped(long)),
    )
}

fn facts(asked: &Asked, lines: &mut Vec<Line>) {
    let mut fact = |name: &str, ink: Ink, text: String| lines.push(Line::named(name, COLUMN, ink, text));
    let program = asked.command.join(" ");
    fact("task", Ink::Plain, format!("{}  {program}", asked.task));
    if !asked.running {
        let ended = "has ended, with its daemon: a yes is kept for the next task here, once";
        fact("", Ink::Mind, ended.into());
    }
    fact("context", Ink::Plain, asked.context.0.clone());
    for (place, why) in asked.because.iter().enumerate() {
        fact(if place == 0 { "because" } else { "" }, Ink::Plain, why.clone());
    }
    let likes = asked.likes;
    let before = match likes.asked {
        0 => "nothing like it was asked here".to_owned(),
        1 => format!("the like was asked once here: {} yes, {} no", likes.yes, likes.no),
        times => format!(
            "the like was asked {times} times here: {} yes, {} no",
            likes.yes, likes.no
        ),
    };
    fact("before", Ink::Plain, before);
    if !asked.seconded.is_empty() {
        let who = asked.seconded.join(", ");
        fact("yes from", Ink::Mind, format!("{who}; one person more has to say it"));
    }
}

/// True for a value that stands beside its name.
fn is_short(detail: &Detail) -> bool {
    let characters: usize = detail.lines.iter().map(|line| line.chars().count()).sum();
    detail.lines.len() == 1 && characters <= BESIDE && width_of(&detail.name) <= NAME
}

fn width_of(name: &str) -> usize {
    cells::width(&cells::safe(name))
}

fn of_detail(detail: &Detail, column: usize, lines: &mut Vec<Line>) {
    let name = cells::safe(&detail.name).into_owned();
    let characters: usize = detail.lines.iter().map(|line| line.chars().count()).sum();
    match detail.lines.as_slice() {
        [one] if is_short(detail) => {
            let gap = " ".repeat(column.saturating_sub(cells::width(&name)));
            lines.push(Line {
                name: format!("  {name}{gap}"),
                below: format!("{}┊ ", " ".repeat(column)),
                exact: true,
                number: None,
                ..Line::prose(Ink::Plain, one)
            });
        }
        several => {
            let of = several.len();
            let count = match of {
                1 => format!("  {name}  ({} characters)", grouped(characters)),
                _ => format!("  {name}  ({of} lines, {} characters)", grouped(characters)),
            };
            lines.push(Line::prose(Ink::Faint, count));
            let digits = of.to_string().len().max(2);
            for (place, text) in several.iter().enumerate() {
                let number = place.saturating_add(1);
                lines.push(Line {
                    name: format!("  {number:>digits$} │ "),
                    below: format!("  {:>digits$} ┊ ", ""),
                    exact: true,
                    number: Some((number, of)),
                    ..Line::prose(Ink::Plain, text)
                });
            }
        }
    }
    if let Some(mind) = &detail.mind {
        lines.push(Line {
            name: "  ! ".into(),
            below: "    ".into(),
            ..Line::prose(Ink::Mind, mind)
        });
    }
}

/// What was said about it. It stands below the request and what a yes to it says, so that it cannot be taken for either.
fn words(asked: &Asked, lines: &mut Vec<Line>) {
    if asked.words.is_empty() {
        return;
    }
    lines.push(Line::default());
    lines.push(Line::prose(
        Ink::Heading,
        "What the agent says about it: its own words, which nobody has checked",
    ));
    let mut said = |who: &str, ink: Ink, text: &str| {
        for (place, line) in text.split('\n').enumerate() {
            lines.push(Line {
                name: format!("  {:<7}│ ", if place == 0 { who } else { "" }),
                below: format!("  {:<7}│ ", ""),
                ..Line::prose(ink, line)
            });
        }
    };
    for exchange in &asked.words {
        if let Some(wanted) = &exchange.asked {
            said("you", Ink::Plain, wanted);
        }
        match &exchange.answered {
            Some(answered) => said("agent", Ink::Agent, answered),
            None => said("agent", Ink::Faint, "(has not answered)"),
        }
    }
}

/// `4,012`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digits.len().saturating_sub(place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
