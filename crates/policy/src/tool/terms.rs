//! What a rule about a tool says beside its act: which arguments a call may have, and what a gate must do with results.
//!
//! Promises: P3 (terms only take away), P4 (an argument that a rule does not speak of is none that it admits; one that is
//! missing, of another kind or unreadable is outside). Trust: terms are people's, arguments the agent's.
//! Not here: reading them (`written`), conditions in Cedar (`judging`), totals (`mediator`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bailiwick_model::{AnswerPart, Argument, Decimal, Limits, Obligation, Request, Tag, ToolDuty, ToolName};

use super::among::CameFrom;
use super::emit::{Path, pointer};
use super::given::not_given;
use super::shape::{Fields, Kind};
use super::view::{Misfit, kind, value_at};
use super::when::{Compiled, When};

/// What a rule says of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub when: Option<When>,
    /// True when a call may carry no argument that the rule does not speak of.
    pub closed: bool,
    /// What single arguments may be.
    pub limits: BTreeMap<Path, ArgumentLimit>,
    /// Arguments that may be anything.
    pub any: BTreeSet<Path>,
    /// Arguments that are ids of people, teams or things.
    pub refers: BTreeMap<Path, Kind>,
    /// Arguments that take what another tool gave, by a handle.
    pub from: CameFrom,
    /// True when a call must say why it is made.
    pub record_reason: bool,
    /// True when the person is told.
    pub notify: bool,
    /// Parts of results that are left out.
    pub redact: Vec<String>,
    /// Parts of results that the agent gets as handles.
    pub present: Vec<String>,
    /// Arguments in which the agent may give a handle, which is opened for the tool.
    pub reveal: Vec<String>,
    /// Most rows, and most bytes, of results.
    pub cap: Option<(Option<u64>, Option<u64>)>,
    /// Most tokens that a model writes for a server.
    pub tokens: Option<u64>,
    /// Tags that answers carry.
    pub tags: BTreeSet<Tag>,
    /// Tags that parts of answers carry.
    pub fields: BTreeMap<Tag, Vec<String>>,
    /// Tags that calls may carry.
    pub cleared: BTreeSet<Tag>,
    /// Arguments that must carry no untrusted influence.
    pub trusted: BTreeSet<Path>,
    /// The condition for each tool that the rule is about, with the tool's arguments.
    pub compiled: BTreeMap<ToolName, (Compiled, Fields)>,
}

/// What one argument may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ArgumentLimit {
    /// It, or each of its entries, is one of these.
    pub values: Vec<Argument>,
    /// It, or each of its entries, is a text of this form.
    pub matches: Option<String>,
    /// Most characters of it, or of each of its entries.
    pub longest: Option<u64>,
    /// The least number that it is, or the fewest entries that it has.
    pub min: Option<Decimal>,
    /// The greatest number that it is, or the most entries that it has.
    pub max: Option<Decimal>,
    /// True when a call may leave it out.
    pub optional: bool,
}

impl Terms {
    /// True when nothing is said of arguments: the rule admits any.
    pub fn admits_all(&self) -> bool {
        self.when.is_none() && !self.closed && self.limits.is_empty() && self.from.is_empty()
    }

    /// True when an argument can have but one value.
    pub fn pins(&self, path: &Path) -> bool {
        let by_limit = self
            .limits
            .get(path)
            .is_some_and(|limit| limit.values.len() == 1 && !limit.optional);
        by_limit || self.when.as_ref().is_some_and(|when| when.pins(path))
    }

    /// True when the condition on this tool asks about people.
    pub fn asks_of_people(&self, tool: &ToolName) -> bool {
        let uses = self.compiled.get(tool).map(|(compiled, _)| &compiled.uses);
        uses.is_some_and(|uses| {
            let refers = |path: &Path| self.refers.keys().any(|own| path.starts_with(own));
            uses.me || uses.age || !uses.known.is_empty() || uses.named.iter().any(refers)
        })
    }

    /// True when the condition on this tool asks how old relations are.
    pub fn asks_of_age(&self, tool: &ToolName) -> bool {
        self.compiled.get(tool).is_some_and(|(compiled, _)| compiled.uses.age)
    }

    /// Why the rule does not admit these arguments, as far as that stands in no condition.
    pub fn breach(&self, tool: &ToolName, request: &Request, limits: &Limits) -> Option<Misfit> {
        let args = given_with(request);
        if let Some(misfit) = not_given(&self.from, request, args) {
            return Some(misfit);
        }
        for (path, limit) in &self.limits {
            if let Some(says) = limit.breach(value_at(args, path)) {
                return Some(Misfit::of(path, &says));
            }
        }
        if !self.closed {
            return None;
        }
        let listed = self.listed(tool, limits);
        let path = surplus(args, &listed, &mut Vec::new())?;
        Some(Misfit::of(&path, "is not among the arguments that the rule speaks of"))
    }

    /// The arguments that the rule speaks of.
    fn listed(&self, tool: &ToolName, limits: &Limits) -> BTreeSet<Path> {
        let listed = self.any.iter().chain(self.limits.keys()).chain(self.from.keys());
        let mut listed: BTreeSet<Path> = listed.cloned().collect();
        if let Some((compiled, _)) = self.compiled.get(tool) {
            let uses = &compiled.uses;
            listed.extend(uses.named.iter().chain(&uses.guarded).chain(&uses.counted).cloned());
        }
        for sum in limits.totals.iter().flat_map(|totals| &totals.sums) {
            listed.insert(path_of(&sum.argument));
            listed.extend(sum.unit_argument.as_deref().map(path_of));
        }
        listed
    }

    /// What the gate must do when this rule lets a call pass.
    pub fn duties(&self) -> Vec<Obligation> {
        let mut duties = Vec::new();
        if !self.redact.is_empty() {
            let paths = self.redact.clone();
            duties.push(Obligation::Tool(ToolDuty::Redact { paths }));
        }
        if let Some((rows, bytes)) = self.cap {
            duties.push(Obligation::Tool(ToolDuty::Cap { rows, bytes }));
        }
        if !self.present.is_empty() {
            let paths = self.present.clone();
            duties.push(Obligation::Tool(ToolDuty::Present { paths }));
        }
        if !self.reveal.is_empty() || !self.from.is_empty() {
            let from = self.from.keys().map(|path| pointer(path));
            let paths = self.reveal.iter().cloned().chain(from).collect();
            duties.push(Obligation::Tool(ToolDuty::Reveal { paths }));
        }
        if let Some(most) = self.tokens {
            duties.push(Obligation::Tool(ToolDuty::Tokens { most }));
        }
        if self.notify {
            duties.push(Obligation::Tool(ToolDuty::Notify));
        }
        duties
    }
}

/// Nothing is given with it.
static NOTHING: BTreeMap<String, Argument> = BTreeMap::new();

/// What is given with a call.
pub(crate) fn given_with(request: &Request) -> &BTreeMap<String, Argument> {
    request.args().unwrap_or(&NOTHING)
}

/// Reads the name of an argument, with dots between names within each other.
pub(crate) fn path_of(text: &str) -> Path {
    text.split('.').map(Into::into).collect()
}

/// The first argument that stands in no list.
fn surplus(args: &BTreeMap<String, Argument>, listed: &BTreeSet<Path>, path: &mut Path) -> Option<Path> {
    for (name, value) in args {
        path.push(name.clone());
        let whole = listed.iter().any(|own| path.starts_with(own));
        let inside = listed.iter().any(|own| own.starts_with(path));
        match value {
            _ if whole => {}
            Argument::Fields(inner) if inside => {
                if let Some(found) = surplus(inner, listed, path) {
                    return Some(found);
                }
            }
            _ => return Some(path.clone()),
        }
        path.pop();
    }
    None
}

impl ArgumentLimit {
    /// What is wrong with a value; nothing where it is as it may be.
    fn breach(&self, value: Option<&Argument>) -> Option<String> {
        let Some(value) = value.filter(|value| **value != Argument::Null) else {
            return (!self.optional).then(|| "is missing".into());
        };
        let single = |value: &Argument| self.breach_of_one(value);
        match value {
            Argument::List(all) => {
                let count = i64::try_from(all.len()).map(Decimal::from).unwrap_or_default();
                if let Some(most) = self.max.filter(|most| count > *most) {
                    return Some(format!("has {count} entries, more than {most}"));
                }
                if let Some(least) = self.min.filter(|least| count < *least) {
                    return Some(format!("has {count} entries, fewer than {least}"));
                }
                all.iter().find_map(single)
            }
            value => {
                if self.min.is_some() || self.max.is_some() {
                    let number = match value {
                        Argument::Whole(whole) => Decimal::from(*whole),
                        Argument::Number(number) => *number,
                        other => return Some(format!("is {}, not a number", kind(other))),
                    };
                    if let Some(most) = self.max.filter(|most| number > *most) {
                        return Some(format!("is {number}, more than {most}"));
                    }
                    if let Some(least) = self.min.filter(|least| number < *least) {
                        return Some(format!("is {number}, less than {least}"));
                    }
                }
                single(value)
            }
        }
    }

    fn breach_of_one(&self, value: &Argument) -> Option<String> {
        if !self.values.is_empty() && !self.values.iter().any(|own| same(own, value)) {
            return Some("has another value".into());
        }
        if self.matches.is_none() && self.longest.is_none() {
            return None;
        }
        let Argument::Text(text) = value else {
            return Some(format!("is {}, not a text", kind(value)));
        };
        if let Some(form) = &self.matches
            && !matches_form(form, text)
        {
            return Some(format!("is not of the form `{form}`"));
        }
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        let most = self.longest.filter(|most| length > *most)?;
        Some(format!("has {length} characters, more than {most}"))
    }
}

/// True for one value, however its number is written.
fn same(own: &Argument, value: &Argument) -> bool {
    let number = |value: &Argument| match value {
        Argument::Whole(whole) => Some(Decimal::from(*whole)),
        Argument::Number(number) => Some(*number),
        _ => None,
    };
    match (number(own), number(value)) {
        (Some(own), Some(value)) => own == value,
        _ => own == value,
    }
}

/// True when a text is of a form: `*` is any text without a slash, `**` any text.
fn matches_form(form: &str, text: &str) -> bool {
    // What is left of the form, for each place in the text that has been reached. Forms are short, and people's.
    let form: Vec<char> = form.chars().collect();
    let mut reached: BTreeSet<usize> = BTreeSet::from([0]);
    let open = |reached: &mut BTreeSet<usize>| {
        let mut places: Vec<usize> = reached.iter().copied().collect();
        while let Some(place) = places.pop() {
            if form.get(place) == Some(&'*') {
                let double = form.get(place.saturating_add(1)) == Some(&'*');
                let next = place.saturating_add(if double { 2 } else { 1 });
                if reached.insert(next) {
                    places.push(next);
                }
            }
        }
    };
    open(&mut reached);
    for c in text.chars() {
        let mut next = BTreeSet::new();
        for place in &reached {
            match form.get(*place) {
                Some('*') => {
                    let double = form.get(place.saturating_add(1)) == Some(&'*');
                    if double || c != '/' {
                        next.insert(*place);
                    }
                }
                Some(own) if *own == c => {
                    next.insert(place.saturating_add(1));
                }
                _ => {}
            }
        }
        open(&mut next);
        if next.is_empty() {
            return false;
        }
        reached = next;
    }
    reached.contains(&form.len())
}

impl fmt::Display for ArgumentLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        let mut parts = Vec::new();
        if !values.is_empty() {
            parts.push(values.join(" or "));
        }
        parts.extend(self.matches.as_ref().map(|form| format!("of the form `{form}`")));
        parts.extend(self.min.map(|least| format!("at least {least}")));
        parts.extend(self.max.map(|most| format!("at most {most}")));
        parts.extend(self.longest.map(|most| format!("at most {most} characters")));
        parts.extend(self.optional.then(|| "optional".to_owned()));
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Terms {
    /// In plain words, with semicolons between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.when.as_ref().map(|when| format!("when `{}`", when.text)));
        let limit = |(path, limit): (&Path, &ArgumentLimit)| format!("`{}` {limit}", path.join("."));
        parts.extend(self.limits.iter().map(limit));
        if self.closed {
            parts.push("no argument that is not named".into());
        }
        let any: Vec<String> = self.any.iter().map(|path| format!("`{}`", path.join("."))).collect();
        if !any.is_empty() {
            parts.push(format!("any {}", any.join(", ")));
        }
        let from = |(path, part): (&Path, &AnswerPart)| format!("`{}` chosen from `{part}`", path.join("."));
        parts.extend(self.from.iter().map(from));
        let refers = |(path, kind): (&Path, &Kind)| format!("`{}` is the id of a {}", path.join("."), kind.as_str());
        parts.extend(self.refers.iter().map(refers));
        parts.extend(self.record_reason.then(|| "the reason is recorded".to_owned()));
        parts.extend(self.notify.then(|| "you are told".to_owned()));
        let list = |what: &str, all: &[String]| (!all.is_empty()).then(|| format!("{what} {}", all.join(", ")));
        parts.extend(list("without", &self.redact));
        parts.extend(list("opens handles in", &self.reveal));
        parts.extend(list(
            "as handles:",
            &self.present.iter().map(|path| shown(path)).collect::<Vec<_>>(),
        ));
        if let Some((rows, bytes)) = self.cap {
            parts.extend(rows.map(|rows| format!("at most {rows} rows")));
            parts.extend(bytes.map(|bytes| format!("at most {bytes} bytes of result")));
        }
        parts.extend(self.tokens.map(|most| format!("at most {most} tokens each")));
        let tags = |all: &BTreeSet<Tag>| all.iter().map(|tag| format!("`{tag}`")).collect::<Vec<_>>();
        parts.extend(list("its answers carry", &tags(&self.tags)));
        let fields = |(tag, paths): (&Tag, &Vec<String>)| format!("{} carries `{tag}`", paths.join(", "));
        parts.extend(self.fields.iter().map(fields));
        parts.extend(list("may carry", &tags(&self.cleared)));
        let trusted: Vec<String> = self
            .trusted
            .iter()
            .map(|path| format!("`{}`", path.join(".")))
            .collect();
        parts.extend(list("asked where untrusted text may have chosen", &trusted));
        f.write_str(&parts.join("; "))
    }
}

fn shown(path: &str) -> String {
    if path.is_empty() {
        "all of it".into()
    } else {
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_match_whole_texts() {
        for (form, text, want) in [
            ("acme/*", "acme/demo", true),
            ("acme/*", "acme/demo/../other", false),
            ("acme/**", "acme/a/b", true),
            ("acme/*", "ACME/demo", false),
            ("*@acme.test", "a@acme.test", true),
            ("*@acme.test", "a@acme.test.evil", false),
            ("*@acme.test", "a/b@acme.test", false),
            ("a*b*c", "a123b45c", true),
            ("a*b*c", "a123b45", false),
            ("", "", true),
            ("*", "", true),
            ("**", "a/b\n", true),
        ] {
            assert_eq!(matches_form(form, text), want, "{form} {text}");
        }
    }

    #[test]
    fn p4_what_a_rule_does_not_speak_of_is_surplus() {
        let field = |pairs: &[(&str, Argument)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let text = |text: &str| Argument::Text(text.into());
        let listed = BTreeSet::from([path_of("to.name"), path_of("note")]);
        for (args, want) in [
            (field(&[("note", text("x"))]), None),
            (
                field(&[("note", Argument::Fields(field(&[("deep", text("x"))])))]),
                None,
            ),
            (field(&[("to", Argument::Fields(field(&[("name", text("x"))])))]), None),
            (
                field(&[("to", Argument::Fields(field(&[("iban", text("x"))])))]),
                Some("to.iban"),
            ),
            (field(&[("to", text("x"))]), Some("to")),
            (field(&[("x", Argument::Null)]), Some("x")),
        ] {
            let found = surplus(&args, &listed, &mut Vec::new());
            assert_eq!(found.map(|path| path.join(".")).as_deref(), want, "{args:?}");
        }
    }

    #[test]
    fn p4_an_argument_is_what_its_limit_says() {
        let limit = |max: i64| ArgumentLimit {
            max: Some(Decimal::from(max)),
            ..ArgumentLimit::default()
        };
        let list = |count: usize| Argument::List(vec![Argument::Text("a".into()); count]);
        for (limit, value, fits) in [
            (limit(2), list(2), true),
            (limit(2), list(3), false),
            (limit(2), Argument::Whole(2), true),
            (limit(2), Argument::Whole(3), false),
            (limit(2), Argument::Text("1".into()), false),
            (limit(2), Argument::Null, false),
            (
                ArgumentLimit {
                    values: vec![Argument::Text("acme/demo".into())],
                    ..ArgumentLimit::default()
                },
                Argument::List(vec![
                    Argument::Text("acme/demo".into()),
                    Argument::Text("acme/other".into()),
                ]),
                false,
            ),
            (
                ArgumentLimit {
                    longest: Some(2),
                    ..ArgumentLimit::default()
                },
                Argument::Text("äöü".into()),
                false,
            ),
            (
                ArgumentLimit {
                    values: vec![Argument::Whole(2)],
                    ..ArgumentLimit::default()
                },
                Argument::Number(Decimal::parse("2.0").unwrap()),
                true,
            ),
        ] {
            assert_eq!(limit.breach(Some(&value)).is_none(), fits, "{limit} {value}");
        }
        assert!(ArgumentLimit::default().breach(None).is_some());
    }
}
