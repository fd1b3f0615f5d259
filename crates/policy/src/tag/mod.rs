//! Tags: which answers carry one, and what data with one may reach.
//!
//! Promises: P2 (layers only narrow: sources of all layers hold, and what data may reach must be said by every layer that
//! speaks of the tag), P5 (a source is found as a deny would find it, under every spelling and in the tunnel that could
//! hide it; what data may reach is as narrow as an allow), P6, P14 (functions of what is handed in).
//! Trust: it stands in rule files; of a project's file that nobody trusts nothing of it holds.
//! Not here: reading it (`read`), rules about calls that name tags (`calls`), what a task has read (`mediator`).

mod calls;
mod known;
mod read;

use std::collections::BTreeSet;
use std::fmt;

use bailiwick_model::{AbsPath, Label, Layer, Request, ResourcePattern, RuleRef, Tag, Verdict};

pub use calls::came_by_handle;
pub(crate) use known::{Naming, TagNamed};

use crate::rule::Rule;

/// What one table says of one tag.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub tag: Tag,
    /// True for untrusted influence, false for confidentiality.
    pub influence: bool,
    /// What carries it in its answers.
    pub on: Vec<Rule>,
    /// What data with it may reach.
    pub may_reach: Vec<Rule>,
    /// True where a person may say yes to what data with it may not reach.
    pub asks: bool,
    /// Where it stands. The act there is `tag NAME`: so a yes to one tag is none to another.
    pub origin: RuleRef,
}

/// The tags in force, of all layers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tags {
    pub(crate) tables: Vec<Table>,
}

impl fmt::Debug for Tags {
    /// What it says, without regard to where that stands: this goes into the digest of the rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines()).finish()
    }
}

fn acts(rules: &[Rule]) -> impl Iterator<Item = String> {
    let own = rules.iter().filter(|rule| rule.follows_from.is_none());
    own.map(|rule| rule.act().to_string())
}

fn covers(rules: &[Rule], views: &[Request]) -> bool {
    let about = |rule: &Rule| views.iter().any(|view| rule.covers(&view.verb, &view.resource));
    rules.iter().any(about)
}

impl Tags {
    /// True when there is no tag.
    pub fn is_none(&self) -> bool {
        self.tables.is_empty()
    }

    /// What it says, one line each, with the layer.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for table in &self.tables {
            let head = format!("{} tag {}", table.origin.layer, table.tag);
            lines.extend(acts(&table.on).map(|act| format!("{head} on {act}")));
            lines.extend(acts(&table.may_reach).map(|act| format!("{head} may reach {act}")));
            lines.insert(match (table.influence, table.asks) {
                (true, _) => format!("{head} is untrusted influence"),
                (false, true) => format!("{head} otherwise ask"),
                (false, false) => format!("{head} otherwise deny"),
            });
        }
        lines.into_iter().collect()
    }

    /// What a task may not do with what it has read, one line for each tag of confidentiality.
    pub fn told(&self) -> Vec<String> {
        let line = |tag: &Tag| {
            // Of several layers each must let it pass: what one of them says is the most.
            let reach: BTreeSet<String> = self.of(tag).flat_map(|table| acts(&table.may_reach)).collect();
            let reach: Vec<String> = reach.into_iter().collect();
            let but = match reach.is_empty() {
                true => "where no rule clears it for that".to_owned(),
                false => format!("but by {}", reach.join(", ")),
            };
            match self.otherwise(tag).0 {
                Verdict::Ask => format!("pass on what is tagged {tag}, {but}, without asking you"),
                Verdict::Allow | Verdict::Deny => format!("pass on what is tagged {tag}, {but}"),
            }
        };
        self.confidential().into_iter().map(line).collect()
    }

    /// Adds those of one more file.
    pub(crate) fn merge(&mut self, other: Self) {
        self.tables.extend(other.tables);
    }

    fn of<'a>(&'a self, tag: &'a Tag) -> impl Iterator<Item = &'a Table> {
        self.tables.iter().filter(move |table| table.tag == *tag)
    }

    /// The layers that speak of a tag.
    fn layers(&self, tag: &Tag) -> BTreeSet<Layer> {
        self.of(tag).map(|table| table.origin.layer).collect()
    }

    /// The tags of confidentiality.
    fn confidential(&self) -> BTreeSet<&Tag> {
        let own = self.tables.iter().filter(|table| !table.influence);
        own.map(|table| &table.tag).collect()
    }

    /// Adds a tag to a label, on the side where it belongs.
    fn put(&self, tag: &Tag, label: &mut Label) {
        let influence = self.of(tag).any(|table| table.influence);
        let side = match influence {
            true => &mut label.influence,
            false => &mut label.confidential,
        };
        side.insert(tag.clone());
    }

    /// The tags that an act gives whose views these are.
    fn given(&self, views: &[Request], label: &mut Label) {
        for table in self.tables.iter().filter(|table| covers(&table.on, views)) {
            self.put(&table.tag, label);
        }
    }

    /// The tags on something in a tree: whoever may read all of it may read that.
    fn given_by_tree(&self, tree: &AbsPath, label: &mut Label) {
        let meets = |rule: &Rule| match &rule.act().resource {
            ResourcePattern::Path(pattern) => pattern.covers(tree) || pattern.reaches_into(tree),
            _ => false,
        };
        for table in self.tables.iter().filter(|table| table.on.iter().any(meets)) {
            self.put(&table.tag, label);
        }
    }

    /// True when a layer's tables let data with a tag reach an act.
    fn reaches(&self, tag: &Tag, layer: Layer, views: &[Request]) -> bool {
        let mut own = self.of(tag).filter(|table| table.origin.layer == layer);
        own.any(|table| covers(&table.may_reach, views))
    }

    /// What is answered where data with a tag would reach what it may not: an ask only where all that speak of the tag ask,
    /// and the table that says so.
    pub fn otherwise(&self, tag: &Tag) -> (Verdict, Option<RuleRef>) {
        let strictest = self.of(tag).min_by_key(|table| table.asks);
        match strictest {
            Some(table) if table.asks => (Verdict::Ask, Some(table.origin.clone())),
            strictest => (Verdict::Deny, strictest.map(|table| table.origin.clone())),
        }
    }
}
