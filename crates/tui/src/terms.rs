//! For how often, how long and where a yes is to hold: chosen value by value, beside the whole sentence that comes of it.
//!
//! Promises: P8 (the sentence that is shown is the one that is answered with: its moment is fixed when it is chosen; another
//! choice is another sentence, to be seen before a yes counts), P11 (a grant is narrowed the same way).

use bailiwick_gate::desk::{Asked, Granted, Scope, Terms};
use bailiwick_model::{DecisionId, GrantId, Millis};
use jiff::tz::TimeZone;

use crate::guard::Guard;
use crate::paper::{Ink, Line, Paper};
use crate::times;

/// Some values, of which one is chosen.
#[derive(Debug, Clone)]
pub struct Field<T> {
    /// How it is called.
    pub name: &'static str,
    values: Vec<(String, T)>,
    chosen: usize,
}

impl<T: Copy + PartialEq> Field<T> {
    fn new(name: &'static str, values: Vec<(String, T)>) -> Self {
        Self {
            name,
            values,
            chosen: 0,
        }
    }

    /// The chosen value.
    fn value(&self) -> Option<T> {
        self.values.get(self.chosen).map(|(_, value)| *value)
    }

    fn step(&mut self, by: isize) -> bool {
        let last = self.values.len().saturating_sub(1);
        let next = self.chosen.saturating_add_signed(by).min(last);
        std::mem::replace(&mut self.chosen, next) != next
    }

    /// All values by name; true for the chosen one.
    fn all(&self) -> Vec<(&str, bool)> {
        let numbered = self.values.iter().enumerate();
        numbered
            .map(|(place, (label, _))| (label.as_str(), place == self.chosen))
            .collect()
    }
}

/// A field, to be drawn.
#[derive(Debug)]
pub struct Choice<'a> {
    /// How it is called.
    pub name: &'static str,
    /// Its values by name; true for the chosen one.
    pub values: Vec<(&'a str, bool)>,
    /// True for the field that the arrows change.
    pub selected: bool,
}

/// What the terms are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A yes to an offer of a question.
    Offer(DecisionId, usize),
    /// What is left of a grant.
    Grant(GrantId),
}

/// The form.
#[derive(Debug)]
pub struct TermsPage {
    /// What it is for.
    pub target: Target,
    /// What stands before the terms.
    base: String,
    often: Field<Option<u64>>,
    long: Field<Option<Millis>>,
    place: Field<Scope>,
    /// The terms of the grant before, and how often it has been used.
    before: Option<(Terms, u64)>,
    /// Terms that cannot be chosen.
    fixed: Option<Terms>,
    field: usize,
    now: Millis,
    zone: TimeZone,
    /// The sentence.
    pub paper: Paper,
    /// Since when it is seen.
    pub guard: Guard,
}

const OFTEN: &str = "how often";
const LONG: &str = "how long";
const PLACE: &str = "where";

impl TermsPage {
    /// For an offer of a question; none where it makes no such offer.
    pub fn of_offer(asked: &Asked, place: usize, now: Millis, zone: &TimeZone) -> Option<Self> {
        let offer = asked.offers.get(place)?;
        let times = |count: u64| (format!("{count} times"), Some(count));
        let often = vec![
            ("once".into(), Some(1)),
            times(3),
            times(10),
            ("any number of times".into(), None),
        ];
        let places = match asked.running {
            true => vec![
                ("in this task".into(), Scope::Task),
                ("in every task of this context".into(), Scope::Context),
            ],
            false => vec![("in every task of this context".into(), Scope::Context)],
        };
        let mut page = Self {
            target: Target::Offer(asked.id, place),
            base: offer.says.clone(),
            often: Field::new(OFTEN, often),
            long: Field::new(LONG, ends(now, "with no end of its own")),
            place: Field::new(PLACE, places),
            before: None,
            fixed: offer.is_request().then(|| offer.terms(Terms::default())),
            field: 0,
            now,
            zone: zone.clone(),
            paper: Paper::default(),
            guard: Guard::default(),
        };
        page.write();
        Some(page)
    }

    /// For what is left of a grant.
    pub fn of_grant(grant: &Granted, now: Millis, zone: &TimeZone) -> Self {
        let left = grant.terms.count.map(|count| count.saturating_sub(grant.used));
        let fewer = |count: &u64| left.is_none_or(|left| *count < left);
        let mut often = vec![("as often as now".to_owned(), None)];
        often.extend([1, 3, 10].iter().filter(|count| fewer(count)).map(|count| {
            let label = if *count == 1 {
                "once more".into()
            } else {
                format!("{count} times more")
            };
            (label, Some(*count))
        }));
        let earlier = |end: &(String, Option<Millis>)| {
            end.1.is_none() || grant.terms.until.is_none_or(|until| end.1 < Some(until))
        };
        let mut long: Vec<_> = ends(now, "as long as now").into_iter().filter(earlier).collect();
        long.rotate_right(1);
        let base = grant.sentence.strip_suffix(&grant.terms.to_string());
        let mut page = Self {
            target: Target::Grant(grant.id),
            base: base.unwrap_or(&grant.sentence).to_owned(),
            often: Field::new(OFTEN, often),
            long: Field::new(LONG, long),
            place: Field::new(PLACE, vec![("as now".into(), grant.terms.scope)]),
            before: Some((grant.terms, grant.used)),
            fixed: None,
            field: 0,
            now,
            zone: zone.clone(),
            paper: Paper::default(),
            guard: Guard::default(),
        };
        page.write();
        page
    }

    /// The terms that are chosen: what an answer names.
    pub fn terms(&self) -> Terms {
        self.fixed.unwrap_or(Terms {
            count: self.often.value().flatten(),
            until: self.long.value().flatten(),
            scope: self.place.value().unwrap_or_default(),
        })
    }

    /// The whole sentence that comes of it.
    pub fn sentence(&self) -> String {
        let terms = self.terms();
        let shown = match self.before {
            // As it is kept: with what has been used.
            Some((before, used)) => Terms {
                count: terms.count.map(|count| count.saturating_add(used)).or(before.count),
                until: terms.until.or(before.until),
                scope: before.scope,
            },
            None => terms,
        };
        format!("{}{shown}", self.base)
    }

    /// True where there is something to choose.
    pub fn has_fields(&self) -> bool {
        self.fixed.is_none()
    }

    /// True where nothing has been chosen that narrows a grant.
    pub fn is_as_before(&self) -> bool {
        let terms = self.terms();
        self.before.is_some() && terms.count.is_none() && terms.until.is_none()
    }

    /// What there is to choose.
    pub fn fields(&self) -> Vec<Choice<'_>> {
        if !self.has_fields() {
            return Vec::new();
        }
        let all = [
            (self.often.name, self.often.all()),
            (self.long.name, self.long.all()),
            (self.place.name, self.place.all()),
        ];
        let numbered = all.into_iter().enumerate();
        numbered
            .map(|(place, (name, values))| Choice {
                name,
                values,
                selected: place == self.field,
            })
            .collect()
    }

    /// Goes to another field.
    pub fn go(&mut self, by: isize) {
        self.field = self.field.saturating_add_signed(by).min(2);
    }

    /// Chooses another value in the field.
    pub fn choose(&mut self, by: isize) {
        let changed = match self.field {
            0 => self.often.step(by),
            1 => self.long.step(by),
            _ => self.place.step(by),
        };
        if changed {
            self.write();
        }
    }

    /// Sets an end: false where that is none, or not before the end that there is.
    pub fn end_at(&mut self, until: Millis, now: Millis) -> bool {
        let latest = self.before.and_then(|(before, _)| before.until);
        if until <= now || latest.is_some_and(|latest| until >= latest) || !self.has_fields() {
            return false;
        }
        self.now = now;
        let label = format!("until {}", times::local(until, now, &self.zone));
        self.long.values.retain(|(label, _)| !label.starts_with("until "));
        self.long.values.push((label, Some(until)));
        self.long.chosen = self.long.values.len().saturating_sub(1);
        self.field = 1;
        self.write();
        true
    }

    /// Writes the sentence anew: it has to be seen before it is answered with.
    fn write(&mut self) {
        let mut lines = Vec::new();
        let head = match self.target {
            Target::Offer(..) => "y says: the agent",
            Target::Grant(_) => "y leaves: the agent",
        };
        lines.push(Line::prose(Ink::Heading, head));
        lines.push(Line {
            name: "  ".into(),
            below: "  ".into(),
            ..Line::prose(Ink::Grant, self.sentence())
        });
        if let Some(until) = self.terms().until {
            let local = times::local(until, self.now, &self.zone);
            let zone = times::zone_name(until, &self.zone);
            let left = times::span(until.0.saturating_sub(self.now.0));
            lines.push(Line {
                name: "  ".into(),
                below: "  ".into(),
                ..Line::prose(Ink::Faint, format!("that is {local} {zone} here, in {left}"))
            });
        }
        let needed = lines.len();
        let mut paper = Paper::new(lines, needed);
        self.paper.hand_over(&mut paper, false);
        paper.scroll_to(0);
        self.paper = paper;
        self.guard.renew();
    }
}

fn ends(now: Millis, none: &str) -> Vec<(String, Option<Millis>)> {
    vec![
        ("for 10 min".into(), Some(times::later(now, 10))),
        ("for 1 h".into(), Some(times::later(now, 60))),
        (none.into(), None),
    ]
}
