//! A text that the person types: a word to the agent, a time, a filter.

use bailiwick_model::DecisionId;

use crate::cells;
use crate::guard::{Code, Guard};

/// The longest word to an agent, in characters.
const LONGEST: usize = 2000;

/// What the text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A no, with this word.
    No(DecisionId),
    /// What the agent is to tell.
    More(DecisionId),
    /// When a yes ends.
    Until,
    /// What the questions are filtered by.
    Filter,
}

/// The text so far.
#[derive(Debug)]
pub struct Entry {
    /// What it is for.
    pub purpose: Purpose,
    /// The text.
    pub text: String,
    /// Since when it is seen.
    pub guard: Guard,
}

impl Entry {
    /// Begins.
    pub fn begin(purpose: Purpose, text: &str) -> Self {
        Self {
            purpose,
            text: text.to_owned(),
            guard: Guard::default(),
        }
    }

    /// What is wanted, in one line.
    pub fn title(&self) -> &'static str {
        match self.purpose {
            Purpose::No(_) => "No, and a word to the agent",
            Purpose::More(_) => "What do you want to know? The agent is asked, and has to try again with its answer",
            Purpose::Until => "Until when? A time of the clock here, such as 18:30",
            Purpose::Filter => "Filter",
        }
    }

    /// Takes a key that types or takes back: true when the text has changed.
    pub fn type_key(&mut self, code: Code) -> bool {
        match code {
            Code::Char(character) => self.add(&character.to_string()),
            Code::Backspace => self.text.pop().is_some(),
            Code::Ctrl('u') => !std::mem::take(&mut self.text).is_empty(),
            Code::Ctrl('w') => {
                let kept = self.text.trim_end().rfind(' ').map_or(0, |at| at.saturating_add(1));
                self.text.truncate(kept);
                true
            }
            _ => false,
        }
    }

    /// Adds a text, as far as there is room. A line's end is a blank.
    pub fn add(&mut self, text: &str) -> bool {
        let room = LONGEST.saturating_sub(self.text.chars().count());
        let text = text.replace(['\n', '\r', '\t'], " ");
        let text: String = cells::safe(&text).chars().take(room).collect();
        self.text.push_str(&text);
        !text.is_empty()
    }
}
