//! Holds the tags that rules name against the tables that there are.
//!
//! Promises: P4 (a tag without a table, a table that nothing gives, one that is of two kinds: errors at their place).

use bailiwick_model::{Layer, Tag};

use crate::diagnostic::{Place, Severity, suggest};
use crate::load::Loader;

/// As what a rule about calls names a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Answers carry it.
    Given,
    /// Calls may carry it.
    Cleared,
}

/// A tag that a rule about calls names, with where.
#[derive(Debug, Clone)]
pub(crate) struct TagNamed {
    pub tag: Tag,
    pub file: String,
    pub layer: Layer,
    pub place: Place,
    pub naming: Naming,
}

impl Loader<'_> {
    /// Complains about tags that are not what rules take them for.
    pub(crate) fn tags_known(&mut self) {
        let tables = self.settings.tags.tables.clone();
        for named in std::mem::take(&mut self.tags_named) {
            let tag = &named.tag;
            let own = |layer: Layer| {
                let mut of = tables.iter().filter(|table| table.tag == *tag);
                of.any(|table| table.origin.layer == layer)
            };
            let table = tables.iter().find(|table| table.tag == *tag);
            let (message, hint) = match (table, named.naming) {
                (None, _) => {
                    let known: Vec<&str> = tables.iter().map(|table| table.tag.as_str()).collect();
                    let near = crate::diagnostic::nearest(tag.as_str(), &known);
                    let hint = match near {
                        Some(_) => suggest(tag.as_str(), &known),
                        None => format!("add `[tag.{tag}]` with what data that carries it may reach"),
                    };
                    (format!("there is no tag `{tag}`"), hint)
                }
                (Some(table), Naming::Cleared) if table.influence => {
                    let hint = "it says who may have shaped data, not where that may go: take it out";
                    (format!("`{tag}` is untrusted influence"), hint.to_owned())
                }
                (Some(_), Naming::Cleared) if !own(named.layer) => {
                    let message = format!("`{tag}` is no tag of this layer: nothing is cleared for it by this");
                    let hint = format!("write it where `[tag.{tag}]` stands, or add that table here, too");
                    (message, hint)
                }
                _ => continue,
            };
            self.say(Severity::Error, &named.file, named.place, &message, &hint);
        }
        for table in &tables {
            let other = tables.iter().find(|other| other.tag == table.tag);
            if other.is_some_and(|other| other.influence != table.influence) {
                let message = format!(
                    "`{}` is confidentiality in one place and influence in another",
                    table.tag
                );
                let place = Place {
                    line: table.origin.line,
                    column: table.origin.column,
                };
                let hint = "give one of them another name";
                self.say(Severity::Error, &table.origin.file, place, &message, hint);
            }
        }
    }

    /// Complains about tags that nothing gives.
    pub(crate) fn tags_given(&mut self, given: &[Tag]) {
        let tables = self.settings.tags.tables.clone();
        for table in &tables {
            let mut same = tables.iter().filter(|other| other.tag == table.tag);
            if same.any(|other| !other.on.is_empty()) || given.contains(&table.tag) {
                continue;
            }
            let place = Place {
                line: table.origin.line,
                column: table.origin.column,
            };
            let message = format!("nothing gives `{}`", table.tag);
            let hint = format!(
                "add `on = [\"call SERVER/*\"]`, or `tags = [\"{}\"]` to a `[[tool]]`",
                table.tag
            );
            self.say(Severity::Error, &table.origin.file, place, &message, &hint);
        }
    }
}
