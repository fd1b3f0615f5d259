//! Which keys do what, for the line at the foot and for the page of all keys.

use crate::entry::Purpose;
use crate::page::Fate;
use crate::paper::{Ink, Line, Paper};
use crate::state::{Layer, State, View};

/// A key, and what it does.
pub type Hint = (&'static str, &'static str);

/// The keys that do something now, those first that matter most.
pub fn now(state: &State) -> Vec<Hint> {
    match state.top() {
        None => in_list(state),
        Some(Layer::Question(page)) => match (&page.fate, page.paper.is_shown() || page.paper.shows_end()) {
            (Fate::Waits, true) => vec![
                ("y", "yes, once"),
                ("n", "no"),
                ("o", "wider"),
                ("w", "no, with a word"),
                ("m", "tell me more"),
                ("Esc", "back"),
                ("↑↓", "scroll"),
                ("?", "keys"),
            ],
            (Fate::Waits, false) => vec![
                ("space", "read on"),
                ("n", "no"),
                ("w", "no, with a word"),
                ("m", "tell me more"),
                ("End", "to the end"),
                ("Esc", "back"),
                ("?", "keys"),
            ],
            _ => vec![("Esc", "back"), ("↑↓", "scroll")],
        },
        Some(Layer::Offers(..)) => vec![("Enter", "choose"), ("↑↓", "select"), ("Esc", "back")],
        Some(Layer::Terms(form)) => {
            let mut all = Vec::new();
            if form.paper.is_shown() || form.paper.shows_end() {
                all.push(("y", "yes to that"));
            } else {
                all.push(("space", "read on"));
            }
            if form.has_fields() {
                all.extend([("←→", "change"), ("↑↓", "select"), ("t", "until a time")]);
            }
            all.push(("Esc", "back"));
            all
        }
        Some(Layer::Entry(entry)) => match entry.purpose {
            Purpose::Filter => vec![("Enter", "keep"), ("Esc", "show all")],
            Purpose::Until => vec![("Enter", "set"), ("Esc", "back")],
            Purpose::No(_) => vec![("Enter", "say no"), ("Esc", "back")],
            Purpose::More(_) => vec![("Enter", "ask"), ("Esc", "back")],
        },
        Some(Layer::Grant(..)) => vec![("r", "revoke"), ("c", "cut down"), ("Esc", "back"), ("↑↓", "scroll")],
        Some(Layer::Sure(..)) => vec![("y", "yes, do it"), ("Esc", "leave it")],
        Some(Layer::Help(_)) => vec![("Esc", "back"), ("↑↓", "scroll")],
    }
}

fn in_list(state: &State) -> Vec<Hint> {
    let mut all: Vec<Hint> = match state.view {
        View::Questions if state.questions.rows.len() == 0 => Vec::new(),
        View::Grants if state.granted.is_empty() => Vec::new(),
        View::Tasks if state.at_work.is_empty() => Vec::new(),
        View::Questions => vec![("Enter", "look"), ("↑↓", "select"), ("/", "filter"), ("space", "fold")],
        View::Grants => vec![("Enter", "look"), ("r", "revoke"), ("c", "cut down"), ("↑↓", "select")],
        View::Tasks => vec![("e", "end"), ("↑↓", "select")],
    };
    if state.view == View::Questions && !state.questions.filter().is_empty() {
        all.insert(all.len().min(1), ("Esc", "show all"));
    }
    all.extend([("Tab", "questions, grants, tasks"), ("q", "leave"), ("?", "keys")]);
    all
}

/// All keys, on paper.
pub fn all() -> Paper {
    const COLUMN: usize = 12;
    let mut lines = Vec::new();
    let chapters: [(&str, &[Hint]); 5] = [
        (
            "Anywhere",
            &[
                ("↑ ↓, j k", "one row"),
                ("space, b", "one page; PgUp and PgDn too"),
                ("Home, End", "to the beginning, to the end"),
                ("Tab, 1 2 3", "questions, grants, tasks"),
                ("Esc", "back"),
                ("q", "leave"),
                ("Ctrl-Z", "to the shell for a while; `fg` comes back"),
            ],
        ),
        (
            "Questions",
            &[
                ("Enter", "look at one; fold a kind, or unfold it"),
                ("← →", "fold, unfold"),
                ("/", "show those that hold a text"),
            ],
        ),
        (
            "A question",
            &[
                ("y", "yes: to just what is shown, once"),
                ("o", "a wider yes: what, how often, how long, where"),
                ("n", "no"),
                ("w", "no, with a word to the agent"),
                ("m", "not before the agent has told more"),
                ("g", "the grants that hold"),
            ],
        ),
        (
            "Grants and tasks",
            &[
                ("r", "revoke a grant"),
                ("c", "cut a grant down: fewer times, an earlier end"),
                ("e", "end a task"),
            ],
        ),
        (
            "When a yes is taken",
            &[
                (
                    "",
                    "After the end of the question has been on the screen, by a key that is pressed after that.",
                ),
                (
                    "",
                    "A key that is held down, was typed ahead, or is pasted, is no answer. Silence becomes a no.",
                ),
            ],
        ),
    ];
    for (title, keys) in chapters {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::prose(Ink::Heading, title));
        for (key, what) in keys {
            lines.push(match key.is_empty() {
                true => Line {
                    name: "  ".into(),
                    below: "  ".into(),
                    ..Line::prose(Ink::Plain, what)
                },
                false => Line::named(&format!("  {key}"), COLUMN.saturating_add(2), Ink::Plain, what),
            });
        }
    }
    Paper::new(lines, 0)
}
