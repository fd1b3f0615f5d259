//! Reads `[[tool]]`: a rule about calls of a tool, with what it says of their arguments.
//!
//! Promises: P4 (an unknown key, a limit that cannot be read, a key that would say nothing where it stands: an error).
//! Trust: the text of a rule file. Not here: conditions against the tools' schemas (`pinned`).

use std::collections::BTreeSet;
use std::sync::Arc;

use bailiwick_model::{
    Act, AnswerPart, Argument, Decimal, Span as TotalSpan, Sum, ToolPattern, Totals, Verb, VerbPattern, Verdict,
};
use toml_edit::{Item, TableLike, Value};

use super::lexer::Wrong;
use super::money::{amount_of, places};
use super::shape::Kind;
use super::terms::{ArgumentLimit, Terms, path_of};
use super::when::When;
use crate::diagnostic::{Place, Span, suggest};
use crate::document::{Reader, kind};
use crate::rule::Rule;
use crate::settings::seconds_of;
use crate::tag::Naming;

/// The keys of a rule about a tool.
const KEYS: &[&str] = &[
    "name",
    "effect",
    "when",
    "unlisted",
    "arguments",
    "any",
    "budget",
    "record_reason",
    "notify",
    "redact",
    "reveal",
    "cap",
    "present",
    "refers",
    "from",
    "tags",
    "fields",
    "cleared",
    "trusted",
    "reason",
    "allows",
    "denies",
];

/// What of it a deny can say.
const OF_DENIES: &[&str] = &["name", "effect", "when", "refers", "from", "reason", "allows", "denies"];

/// What must still be held against what is pinned.
#[derive(Debug, Clone)]
pub(crate) struct ToolTable {
    /// The rule that it makes, by where it stands.
    pub origin: bailiwick_model::RuleRef,
    /// Where its condition stands.
    pub when: Located,
    /// Arguments that it names, with where.
    pub names: Vec<(String, Place)>,
    /// Examples: the text, whether the rule covers it, where it stands.
    pub examples: Vec<(String, bool, Place)>,
    /// True where the argument that holds a unit is said.
    pub unit_said: bool,
}

/// Where a text stands in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located {
    first: Place,
    /// True when the text stands in the file as it is, letter by letter.
    exact: bool,
}

impl Located {
    pub const NOWHERE: Self = Self {
        first: Place::START,
        exact: false,
    };

    /// Where a text value of a file stands.
    pub fn of(file: &str, span: Option<&Span>, value: &str) -> Self {
        let whole = span.map_or(Place::START, |span| Place::of(file, span.start));
        let none = Self {
            first: whole,
            exact: false,
        };
        let Some(span) = span else { return none };
        let raw = file.get(span.clone()).unwrap_or("");
        let marks = ["'''", "\"\"\"", "'", "\""]
            .into_iter()
            .find(|marks| raw.starts_with(marks));
        let Some(marks) = marks else { return none };
        let mut skip = marks.len();
        let inner = raw.get(skip..).unwrap_or("");
        if marks.len() == 3 {
            let line_end = ["\r\n", "\n"].into_iter().find(|end| inner.starts_with(end));
            skip = skip.saturating_add(line_end.map_or(0, str::len));
        }
        let exact = raw.get(skip..).is_some_and(|inner| inner.starts_with(value));
        Self {
            first: if exact {
                Place::of(file, span.start.saturating_add(skip))
            } else {
                whole
            },
            exact,
        }
    }

    /// Where a byte of the text stands in the file.
    pub fn at(self, text: &str, offset: usize) -> Place {
        if !self.exact {
            return self.first;
        }
        let own = Place::of(text, offset);
        match own.line {
            1 => Place {
                line: self.first.line,
                column: self.first.column.saturating_add(own.column).saturating_sub(1),
            },
            lines => Place {
                line: self.first.line.saturating_add(lines).saturating_sub(1),
                column: own.column,
            },
        }
    }
}

impl Reader<'_> {
    /// `[[tool]]`, and `[[may]]` of a mandate.
    pub fn tools(&mut self, item: &Item, key: &str, span: Option<Span>) {
        self.list_of_tables(item, key, span, Self::tool);
    }

    fn tool(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let faults = self.diagnostics.len();
        let Some((name, name_span)) = table.get("name").and_then(|item| self.text_of(item, "name")) else {
            if !table.contains_key("name") {
                self.error(
                    span,
                    "a tool has no `name`",
                    Some("add `name = \"bank/send_payment\"`".into()),
                );
            }
            return;
        };
        let effect = match table.get("effect").map(|item| (item.as_str(), item.span())) {
            None | Some((Some("allow"), _)) => Verdict::Allow,
            Some((Some("ask"), _)) => Verdict::Ask,
            Some((Some("deny"), _)) => Verdict::Deny,
            Some((_, at)) => {
                let hint = "write `allow`, `ask` or `deny`";
                return self.error(at, "`effect` is none that there is", Some(hint.into()));
            }
        };
        let pattern = match ToolPattern::parse(&name) {
            Ok(pattern) if name.contains('/') => pattern,
            Ok(_) => {
                let hint = format!("name a tool, as in `{name}/send_payment`, or all of a server, as in `{name}/*`");
                return self.error(name_span, &format!("`{name}` names no tool"), Some(hint));
            }
            Err(error) => return self.error(name_span, &error.to_string(), None),
        };
        let mut terms = Terms::default();
        let mut totals = None;
        let mut when = Located::NOWHERE;
        let mut reason = None;
        let (mut names, mut examples, mut unit_said) = (Vec::new(), Vec::new(), false);
        let mut unlisted = None;
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if effect == Verdict::Deny && KEYS.contains(&key) && !OF_DENIES.contains(&key) {
                let hint = "a deny holds whatever else a call carries: take the key out";
                self.error(span, &format!("`{key}` says nothing in a deny"), Some(hint.into()));
                continue;
            }
            match key {
                "name" | "effect" => {}
                "when" => {
                    if let Some((text, span)) = self.text_of(item, "when") {
                        when = Located::of(self.text, span.as_ref(), &text);
                        match When::parse(&text) {
                            Ok(parsed) => terms.when = Some(parsed),
                            Err(wrong) => self.wrong(&wrong, &text, when),
                        }
                    }
                }
                "unlisted" => match item.as_str() {
                    Some("deny") => unlisted = Some(true),
                    Some("allow") => unlisted = Some(false),
                    _ => self.error(item.span(), "`unlisted` can be `deny` or `allow`", None),
                },
                "arguments" => self.table(item, key, span, |reader, table| {
                    for (name, item) in table.iter() {
                        let span = table.key(name).and_then(|key| key.span());
                        names.push((name.to_owned(), reader.place(span.as_ref())));
                        if let Some(limit) = reader.argument_limit(name, item, span) {
                            terms.limits.insert(path_of(name), limit);
                        }
                    }
                }),
                "any" => {
                    for (name, span) in self.texts_of(item, "any") {
                        names.push((name.clone(), self.place(span.as_ref())));
                        terms.any.insert(path_of(&name));
                    }
                }
                "budget" => self.table(item, key, span, |reader, table| {
                    let (read, said) = reader.totals(table, &mut names);
                    totals = Some(read);
                    unit_said = said;
                }),
                "record_reason" => terms.record_reason = self.flag(item, key),
                "notify" => terms.notify = self.flag(item, key),
                "redact" => terms.redact = self.pointers(item, key),
                "reveal" => terms.reveal = self.pointers(item, key),
                "cap" => self.table(item, key, span, |reader, table| terms.cap = reader.cap(table)),
                "present" => match (
                    item.as_str(),
                    item.as_table_like().and_then(|table| table.get("handles")),
                ) {
                    (Some("handle"), _) => terms.present = vec![String::new()],
                    (None, Some(handles)) => terms.present = self.pointers(handles, "handles"),
                    _ => {
                        let hint = "write `present = \"handle\"`, or `present = { handles = [\"/flights/*\"] }`";
                        self.error(item.span(), "`present` is none that there is", Some(hint.into()));
                    }
                },
                "refers" => self.table(item, key, span, |reader, table| {
                    for (name, item) in table.iter() {
                        let span = table.key(name).and_then(|key| key.span());
                        names.push((name.to_owned(), reader.place(span.as_ref())));
                        match item.as_str().map(|text| (Kind::read(text), text)) {
                            Some((Some(kind), _)) => {
                                terms.refers.insert(path_of(name), kind);
                            }
                            Some((None, text)) => {
                                let hint = suggest(text, &Kind::ALL.map(Kind::as_str));
                                reader.error(item.span(), &format!("there is no kind `{text}`"), Some(hint));
                            }
                            None => reader.error(item.span(), &format!("`{name}` must be a text"), None),
                        }
                    }
                }),
                "from" => self.table(item, key, span, |reader, table| {
                    for (name, item) in table.iter() {
                        let span = table.key(name).and_then(|key| key.span());
                        names.push((name.to_owned(), reader.place(span.as_ref())));
                        let Some((text, span)) = reader.text_of(item, name) else {
                            continue;
                        };
                        match AnswerPart::parse(&text) {
                            Ok(part) => {
                                terms.from.insert(path_of(name), part);
                            }
                            Err(error) => {
                                let hint =
                                    format!("write the tool and the place: `{name} = \"air/search#/flights/*\"`");
                                reader.error(span, &error.to_string(), Some(hint));
                            }
                        }
                    }
                }),
                "reason" => reason = self.text_of(item, "reason").map(|(text, _)| text),
                "allows" | "denies" => {
                    let inside = (key == "allows") == (effect != Verdict::Deny);
                    for (text, span) in self.texts_of(item, key) {
                        examples.push((text, inside, self.place(span.as_ref())));
                    }
                }
                "trusted" => {
                    for (name, span) in self.texts_of(item, key) {
                        names.push((name.clone(), self.place(span.as_ref())));
                        terms.trusted.insert(path_of(&name));
                    }
                }
                "tags" => terms.tags = self.tag_names(item, key, Naming::Given).into_iter().collect(),
                "cleared" => terms.cleared = self.tag_names(item, key, Naming::Cleared).into_iter().collect(),
                "fields" => {
                    self.table(item, key, span, |reader, table| {
                        terms.fields = reader.tagged_fields(table)
                    });
                }
                other => self.unknown(other, span, KEYS),
            }
        }
        terms.closed = match effect {
            Verdict::Deny => false,
            _ => unlisted.unwrap_or(terms.when.is_some() || !terms.limits.is_empty() || !terms.from.is_empty()),
        };
        if effect == Verdict::Deny && terms.when.is_none() && !terms.from.is_empty() {
            let hint = "say with `when` what is denied of it: what did not come from there is denied then, too";
            self.error(
                name_span.clone(),
                "`from` says nothing in a deny without `when`",
                Some(hint.into()),
            );
        }
        if self.diagnostics.len() > faults {
            return;
        }
        let act = Act {
            verb: VerbPattern::One(Verb::Call),
            resource: bailiwick_model::ResourcePattern::Tool(pattern),
        };
        let origin = self.origin(name_span.as_ref(), &act);
        let terms = Arc::new(terms);
        for mut rule in Rule::written(effect, act, &origin, reason.as_deref(), self.reading) {
            rule.terms = (*terms != Terms::default()).then(|| Arc::clone(&terms));
            rule.capability.constraints.limits.totals.clone_from(&totals);
            self.file.rules.push(rule);
        }
        self.file.tables.push(ToolTable {
            origin,
            when,
            names,
            examples,
            unit_said,
        });
    }

    /// Says what is wrong with a condition, where it stands in the file.
    pub(super) fn wrong(&mut self, wrong: &Wrong, text: &str, located: Located) {
        let place = located.at(text, wrong.span.start);
        self.diagnostics.push(crate::diagnostic::Diagnostic::new(
            crate::diagnostic::Severity::Error,
            self.name,
            place,
            &wrong.message,
            wrong.hint.clone(),
        ));
    }

    fn argument_limit(&mut self, name: &str, item: &Item, span: Option<Span>) -> Option<ArgumentLimit> {
        const KEYS: &[&str] = &["values", "matches", "longest", "min", "max", "optional"];
        let mut limit = ArgumentLimit::default();
        if item.is_array() {
            limit.values = self.argument_values(item, name)?;
            return Some(limit);
        }
        let Some(table) = item.as_table_like() else {
            let hint =
                format!("write `{name} = {{ max = 2 }}`, or the values that it may have: `{name} = [\"a\", \"b\"]`");
            self.error(
                span,
                &format!("`{name}` must be a table or a list, not {}", kind(item)),
                Some(hint),
            );
            return None;
        };
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "values" => limit.values = self.argument_values(item, key)?,
                "matches" => limit.matches = self.text_of(item, key).map(|(text, _)| text),
                "longest" => limit.longest = self.count(item, key),
                "min" | "max" => match number_of(item) {
                    Some(number) if key == "min" => limit.min = Some(number),
                    Some(number) => limit.max = Some(number),
                    None => self.error(
                        item.span(),
                        &format!("`{key}` is not a number"),
                        Some(format!("write `{key} = 2`")),
                    ),
                },
                "optional" => limit.optional = self.flag(item, key),
                other => self.unknown(other, span, KEYS),
            }
        }
        if let (Some(least), Some(most)) = (limit.min, limit.max)
            && least > most
        {
            self.error(
                span,
                &format!("`{name}` can never be at least {least} and at most {most}"),
                None,
            );
        }
        Some(limit)
    }

    fn argument_values(&mut self, item: &Item, what: &str) -> Option<Vec<Argument>> {
        let Some(array) = item.as_array() else {
            self.error(item.span(), &format!("`{what}` must be a list of values"), None);
            return None;
        };
        let mut values = Vec::new();
        for value in array {
            let number = |text: String| Decimal::parse(&text).ok();
            values.push(match value {
                Value::String(text) => Argument::Text(text.value().clone()),
                Value::Boolean(flag) => Argument::Flag(*flag.value()),
                Value::Integer(whole) => Argument::Whole(*whole.value()),
                Value::Float(own) => match number(written(own)) {
                    Some(number) => Argument::Number(number),
                    None => {
                        self.error(value.span(), "this number cannot be held exactly", None);
                        return None;
                    }
                },
                _ => {
                    self.error(
                        value.span(),
                        &format!("`{what}` holds texts, numbers, true and false"),
                        None,
                    );
                    return None;
                }
            });
        }
        if values.is_empty() {
            let hint = "name one, or take the rule out";
            self.error(
                item.span(),
                &format!("`{what}` has no value that it may be"),
                Some(hint.into()),
            );
            return None;
        }
        Some(values)
    }

    pub(crate) fn pointers(&mut self, item: &Item, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (text, span) in self.texts_of(item, key) {
            if text.starts_with('/') {
                found.push(text);
            } else {
                let hint = format!(
                    "write it as a JSON Pointer: `/{}`; `*` stands for every entry",
                    text.replace('.', "/")
                );
                self.error(span, &format!("`{text}` names no part of a result"), Some(hint));
            }
        }
        found
    }

    fn cap(&mut self, table: &dyn TableLike) -> Option<(Option<u64>, Option<u64>)> {
        let (mut rows, mut bytes) = (None, None);
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "rows" => rows = self.count(item, key),
                "bytes" => bytes = self.size(item, key),
                other => self.unknown(other, span, &["rows", "bytes"]),
            }
        }
        (rows.is_some() || bytes.is_some()).then_some((rows, bytes))
    }

    /// What calls may come to in all, and whether the argument with the unit is said.
    fn totals(&mut self, table: &dyn TableLike, names: &mut Vec<(String, Place)>) -> (Totals, bool) {
        const KEYS: &[&str] = &["sum", "calls", "bytes", "tokens", "seconds", "per", "unit"];
        let mut totals = Totals::default();
        let mut unit = None;
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "sum" => self.table(item, "budget.sum", span, |reader, table| {
                    for (name, item) in table.iter() {
                        let span = table.key(name).and_then(|key| key.span());
                        names.push((name.to_owned(), reader.place(span.as_ref())));
                        let amount = match item.as_str() {
                            Some(text) => amount_of(text),
                            None => number_of(item)
                                .filter(|number| !number.is_negative())
                                .map(|number| (number, None)),
                        };
                        match amount {
                            Some((most, unit)) => totals.sums.push(Sum {
                                argument: name.to_owned(),
                                most,
                                places: unit.as_deref().and_then(places),
                                unit,
                                unit_argument: None,
                            }),
                            None => {
                                let hint = format!("write `{name} = \"200 EUR\"`, or a number");
                                reader.error(item.span(), &format!("`{name}` is not an amount"), Some(hint));
                            }
                        }
                    }
                }),
                "calls" => totals.calls = self.count(item, key),
                "bytes" => totals.bytes = self.size(item, key),
                "tokens" => totals.tokens = self.count(item, key),
                "seconds" => {
                    let length = item.as_str().and_then(seconds_of);
                    totals.seconds = match length {
                        Some(seconds) => Some(seconds),
                        None => self.count(item, key),
                    };
                }
                "per" => match item.as_str() {
                    Some("task") => totals.span = TotalSpan::Task,
                    Some("day") => totals.span = TotalSpan::Day,
                    _ => {
                        let hint = "write `per = \"task\"` or `per = \"day\"`; without the key it is in all";
                        self.error(item.span(), "`per` is none that there is", Some(hint.into()));
                    }
                },
                "unit" => {
                    unit = self.text_of(item, key).map(|(text, span)| {
                        names.push((text.clone(), self.place(span.as_ref())));
                        text
                    });
                }
                other => self.unknown(other, span, KEYS),
            }
        }
        if let Some(unit) = &unit {
            for sum in totals.sums.iter_mut().filter(|sum| sum.unit.is_some()) {
                sum.unit_argument = Some(unit.clone());
            }
        }
        let mut seen = BTreeSet::new();
        totals.sums.retain(|sum| seen.insert(sum.argument.clone()));
        if totals.is_none() && self.diagnostics.is_empty() {
            let hint = "write `budget = { calls = 1 }`, or `budget = { sum = { amount = \"200 EUR\" } }`";
            self.error(None, "`budget` limits nothing", Some(hint.into()));
        }
        (totals, unit.is_some())
    }
}

/// A number as it was written.
fn number_of(item: &Item) -> Option<Decimal> {
    match item.as_value()? {
        Value::Integer(whole) => Some(Decimal::from(*whole.value())),
        Value::Float(own) => Decimal::parse(&written(own)).ok(),
        Value::String(text) => Decimal::parse(text.value()).ok(),
        _ => None,
    }
}

/// A float as its file writes it, without the signs that TOML allows within.
fn written(own: &toml_edit::Formatted<f64>) -> String {
    let text = own
        .as_repr()
        .and_then(|repr| repr.as_raw().as_str())
        .map(ToOwned::to_owned);
    let text = text.unwrap_or_else(|| own.value().to_string());
    text.trim_start_matches('+').replace('_', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_texts_are_places_in_files() {
        let place = |file: &str, quoted: &str, value: &str, offset: usize| {
            let start = file.find(quoted).unwrap();
            let located = Located::of(file, Some(&(start..start + quoted.len())), value);
            let place = located.at(value, offset);
            (place.line, place.column)
        };
        assert_eq!(place("x\nwhen = 'a && b'", "'a && b'", "a && b", 5), (2, 14));
        assert_eq!(place("when = \"a && b\"", "\"a && b\"", "a && b", 5), (1, 14));
        assert_eq!(
            place("when = '''\na &&\n  b'''", "'''\na &&\n  b'''", "a &&\n  b", 7),
            (3, 3)
        );
        assert_eq!(
            place("when = \"a\\\"b\"", "\"a\\\"b\"", "a\"b", 2),
            (1, 8),
            "what is escaped is found whole"
        );
    }
}
