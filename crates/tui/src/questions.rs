//! The questions that wait, those of one kind together.
//!
//! Memory: the questions once, and a row for each. Drawing costs what fits on the screen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bailiwick_gate::desk::Asked;
use bailiwick_model::DecisionId;

use crate::cells;
use crate::rows::Rows;

/// As many questions of a kind as are shown one by one; a kind of more is folded when it comes.
const FOLDED_FROM: usize = 20;

/// One row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The head of those of one kind.
    Kind(String),
    /// A question.
    Question(DecisionId),
}

/// One row to be drawn.
#[derive(Debug)]
pub enum Shown<'a> {
    /// The head of a kind.
    Kind {
        /// The kind.
        kind: &'a str,
        /// How many there are.
        count: usize,
        /// False when they are shown.
        folded: bool,
    },
    /// A question.
    Question {
        /// The question.
        asked: &'a Asked,
        /// True when it stands under a head.
        under: bool,
    },
}

/// All of them.
#[derive(Debug, Default)]
pub struct Questions {
    all: Vec<Arc<Asked>>,
    /// How many there are of a kind, among those that fit the filter.
    counts: BTreeMap<String, usize>,
    folded: BTreeMap<String, bool>,
    filter: String,
    /// The list.
    pub rows: Rows<Place>,
}

impl Questions {
    /// Takes those that wait now.
    pub fn renew(&mut self, all: Vec<Arc<Asked>>) {
        let kinds: BTreeSet<&str> = all.iter().map(|asked| asked.kind.as_str()).collect();
        self.folded.retain(|kind, _| kinds.contains(kind.as_str()));
        self.all = all;
        self.lay();
    }

    /// Which wait.
    pub fn all(&self) -> &[Arc<Asked>] {
        &self.all
    }

    /// The question of that id.
    pub fn find(&self, id: DecisionId) -> Option<&Arc<Asked>> {
        self.all.iter().find(|asked| asked.id == id)
    }

    /// What they are filtered by.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows only those that hold this text.
    pub fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.lay();
    }

    /// Folds the kind of the selected row, or unfolds it.
    pub fn fold(&mut self, wanted: Option<bool>) {
        let kind = match self.rows.selected() {
            Some(Place::Kind(kind)) => kind.clone(),
            Some(Place::Question(id)) => match self.find(*id) {
                Some(asked) => asked.kind.clone(),
                None => return,
            },
            None => return,
        };
        if self.counts.get(&kind).copied().unwrap_or_default() < 2 {
            return;
        }
        let now = self.folded.get(&kind).copied().unwrap_or_default();
        let folded = wanted.unwrap_or(!now);
        if folded {
            self.rows.select(&Place::Kind(kind.clone()));
        }
        self.folded.insert(kind, folded);
        self.lay();
    }

    fn lay(&mut self) {
        let filter = self.filter.to_lowercase();
        let fits = |asked: &&Arc<Asked>| {
            let texts = [&asked.act, &asked.kind, &asked.context.0, &asked.sentence];
            filter.is_empty()
                || texts.iter().any(|text| text.to_lowercase().contains(&filter))
                || asked.id.to_string().starts_with(filter.trim_start_matches("q-"))
                || asked.command.iter().any(|word| word.to_lowercase().contains(&filter))
        };
        let mut kinds: Vec<&str> = Vec::new();
        let mut of_kind: BTreeMap<&str, Vec<DecisionId>> = BTreeMap::new();
        for asked in self.all.iter().filter(fits) {
            let ids = of_kind.entry(&asked.kind).or_default();
            if ids.is_empty() {
                kinds.push(&asked.kind);
            }
            ids.push(asked.id);
        }
        let selected = match self.rows.selected() {
            Some(Place::Question(id)) => Some(*id),
            _ => None,
        };
        let mut places = Vec::new();
        for kind in &kinds {
            let ids = of_kind.get(kind).map(Vec::as_slice).unwrap_or_default();
            if ids.len() > 1 {
                places.push(Place::Kind((*kind).to_owned()));
                let held = selected.is_some_and(|selected| ids.contains(&selected));
                let known = self.folded.get(*kind).copied();
                let folded = known.unwrap_or(ids.len() > FOLDED_FROM && !held);
                if known.is_none() && ids.len() > FOLDED_FROM {
                    self.folded.insert((*kind).to_owned(), folded);
                }
                if folded {
                    continue;
                }
            }
            places.extend(ids.iter().map(|id| Place::Question(*id)));
        }
        self.counts = of_kind
            .iter()
            .map(|(kind, ids)| ((*kind).to_owned(), ids.len()))
            .collect();
        self.rows.renew(places);
    }

    /// The rows of the window; true for the selected one.
    pub fn window(&self) -> impl Iterator<Item = (Shown<'_>, bool)> {
        self.rows.window().filter_map(|(place, selected)| {
            let shown = match place {
                Place::Kind(kind) => Shown::Kind {
                    kind,
                    count: self.counts.get(kind).copied().unwrap_or_default(),
                    folded: self.folded.get(kind).copied().unwrap_or_default(),
                },
                Place::Question(id) => {
                    let asked = self.find(*id)?;
                    let under = self.counts.get(&asked.kind).is_some_and(|count| *count > 1);
                    Shown::Question { asked, under }
                }
            };
            Some((shown, selected))
        })
    }
}

/// What a question is about, on one line: its last part cut off where there is no room.
pub fn headline(asked: &Asked, room: usize) -> String {
    // No more of it is made safe than can be seen.
    let begin: String = asked.act.chars().take(room.saturating_add(1)).collect();
    cells::cut(&cells::safe(&begin), room).into_owned()
}
