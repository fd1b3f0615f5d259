//! Reads a mandate: one errand, narrower than the context, with values that are filled in when it is given.
//!
//! Promises: P3 (a mandate is one more layer that must allow: it only narrows), P4 (a value that is missing, not declared,
//! out of its bounds or that could say more than a value is an error).
//! Trust: the file is the person's; values are, too, but they may have been copied from anywhere: they never become part of
//! an expression or an act, only a number or a text in it.
//! What has effects outside is its matter: calls, requests, pushes, tunnels, brokers, secrets. Files, starts in the fence,
//! look-ups and what the agent's own profile lets it reach stay as the context has them, so that the agent can run.

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_model::{
    Code, Decimal, Decision, Digest, Layer, Millis, Request, Resource, ResourcePattern, Verb, VerbPattern, Verdict,
};
use sha2::{Digest as _, Sha256};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::diagnostic::{Diagnostic, Place, Severity, Span, suggest};
use crate::document::Reader;
use crate::load::{Loader, SourceFile};
use crate::policy::Policy;
use crate::rule::Rule;
use crate::settings::seconds_of;

/// The keys of a mandate.
pub(crate) const KEYS: &[&str] = &["purpose", "expires", "values", "may", "allow", "ask", "deny"];

/// A mandate as it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MandateText {
    /// The file.
    pub file: SourceFile,
    /// What stands for the names in braces.
    pub values: BTreeMap<String, String>,
    /// When it was first used.
    pub first_used: Millis,
}

impl MandateText {
    /// Names the errand: its text, and the values in it.
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(text.as_bytes());
        };
        part("bailiwick mandate v1");
        part(&self.file.text);
        for (name, value) in &self.values {
            part(name);
            part(value);
        }
        Digest(hash.finalize().into())
    }
}

/// A mandate in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mandate {
    /// What it is for, in the person's words.
    pub purpose: Option<String>,
    /// When it ends.
    pub expires: Option<Millis>,
    /// Names the errand: its text, and the values in it.
    pub digest: Option<Digest>,
}

/// Templates of mandates, by name, with one line of what each is for.
const TEMPLATES: [(&str, &str, &str); 3] = [
    (
        "pay",
        "pay one recipient, up to a sum, once",
        include_str!("../presets/mandates/pay.toml"),
    ),
    (
        "book",
        "search freely, book one thing up to a price",
        include_str!("../presets/mandates/book.toml"),
    ),
    (
        "mail",
        "read mail, write to named recipients",
        include_str!("../presets/mandates/mail.toml"),
    ),
];

/// The templates of mandates: name, and what each is for.
pub fn mandate_templates() -> impl Iterator<Item = (&'static str, &'static str)> {
    TEMPLATES.iter().map(|(name, about, _)| (*name, *about))
}

/// The text of a template.
pub fn mandate_template(name: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|(own, ..)| *own == name).map(|(.., text)| *text)
}

impl Mandate {
    /// True when it must allow a request. `deciding` are the rules of the other layers that let it pass.
    pub(crate) fn speaks_of(&self, request: &Request, deciding: &[&Rule]) -> bool {
        let of_profile = |rule: &&Rule| rule.layer() == Layer::Context && rule.origin.file.starts_with("profile:");
        match &request.resource {
            Resource::File(_) | Resource::Tree(_) | Resource::Name(_) => false,
            Resource::Command(_) => request.verb == Verb::Broker,
            Resource::Tool(_) | Resource::Secret(_) => true,
            Resource::Url(_) | Resource::Repository { .. } | Resource::Endpoint { .. } => {
                !deciding.iter().any(of_profile)
            }
        }
    }

    /// Denies what it speaks of once it is over.
    pub(crate) fn over(&self, policy: &Policy, request: &Request, now: Millis) -> Option<Decision> {
        let expires = self.expires.filter(|expires| *expires <= now)?;
        let spoken = self.speaks_of(request, &policy.deciding(request));
        spoken.then(|| {
            let at = i64::try_from(expires.0)
                .ok()
                .and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
            let at = at.map_or_else(String::new, |at| format!(" at {at}"));
            Decision::deny(Code::MandateExpired, format!("the mandate ended{at}"))
        })
    }
}

impl Policy {
    /// The mandate that the task runs under.
    pub fn mandate(&self) -> Option<&Mandate> {
        self.settings().mandate.as_ref()
    }
}

/// True for an act of which a mandate says something.
pub(crate) fn is_its_matter(rule: &Rule) -> bool {
    match &rule.act().resource {
        ResourcePattern::Path(_) => false,
        ResourcePattern::AnyCommand | ResourcePattern::Command(_) => rule.act().verb == VerbPattern::One(Verb::Broker),
        ResourcePattern::Endpoint { .. } => rule.act().verb != VerbPattern::One(Verb::Resolve),
        ResourcePattern::Url(_)
        | ResourcePattern::Repository(_)
        | ResourcePattern::Secret(_)
        | ResourcePattern::Tool(_) => true,
    }
}

impl Reader<'_> {
    /// One key of a mandate.
    pub fn of_mandate(&mut self, key: &str, item: &Item, span: Option<Span>, first_used: Millis) {
        let mandate = self.file.settings.mandate.get_or_insert_default();
        match key {
            "purpose" => {
                let purpose = self.text_of(item, "purpose").map(|(text, _)| text);
                self.file.settings.mandate.get_or_insert_default().purpose = purpose;
            }
            "expires" => {
                let text = item
                    .as_str()
                    .map(ToOwned::to_owned)
                    .or_else(|| item.as_datetime().map(ToString::to_string));
                match text.as_deref().and_then(|text| time_of(text, first_used)) {
                    Some(at) => mandate.expires = Some(at),
                    None => {
                        let hint = "write `expires = \"2 h\"`, or a time with its zone, as `expires = 2026-12-24T18:00:00+01:00`";
                        self.error(item.span(), "`expires` is no time", Some(hint.into()));
                    }
                }
            }
            "values" => {}
            "may" => self.tools(item, "may", span),
            "allow" => self.rules(item, Verdict::Allow, crate::entry::Section::Top),
            "ask" => self.rules(item, Verdict::Ask, crate::entry::Section::Top),
            "deny" => self.rules(item, Verdict::Deny, crate::entry::Section::Top),
            other => self.unknown(other, span, KEYS),
        }
    }
}

impl Loader<'_> {
    /// The errand: one more layer that must allow.
    pub(crate) fn mandate(&mut self) {
        let Some(mandate) = &self.sources.mandate else { return };
        let text = match filled(mandate) {
            Ok(text) => text,
            Err(wrong) => return self.diagnostics.extend(wrong),
        };
        let (name, anchors) = (&mandate.file.name, &self.sources.anchors);
        let (mut file, wrong) = Reader::read_mandate(name, &text, anchors, self.reading, mandate.first_used);
        if let Some(own) = &mut file.settings.mandate {
            own.digest = Some(mandate.digest());
        }
        self.diagnostics.extend(wrong);
        let strange = file
            .rules
            .iter()
            .find(|rule| rule.effect != Verdict::Deny && rule.follows_from.is_none() && !is_its_matter(rule));
        if let Some(rule) = strange {
            let place = Place {
                line: rule.origin.line,
                column: rule.origin.column,
            };
            let message = format!(
                "`{}` is no matter of a mandate: files and programs are as the context has them",
                rule.origin.act
            );
            self.say(
                Severity::Error,
                name,
                place,
                &message,
                "take it out, or narrow it by a deny",
            );
        }
        self.granting.push(Layer::Mandate);
        self.add(file);
    }
}

/// A time, or a length of time from the first use.
fn time_of(text: &str, first_used: Millis) -> Option<Millis> {
    if let Some(seconds) = seconds_of(text).or_else(|| days_of(text)) {
        return Some(Millis(first_used.0.saturating_add(seconds.saturating_mul(1000))));
    }
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Millis)
}

fn days_of(text: &str) -> Option<u64> {
    const MOST: u64 = 366;
    let (count, unit) = text.trim().split_once(' ')?;
    let days = count.parse::<u64>().ok().filter(|days| (1..=MOST).contains(days))?;
    matches!(unit.trim(), "day" | "days").then(|| days.saturating_mul(86_400))
}

/// What a name in braces may stand for.
#[derive(Debug, Clone, Default)]
struct Declared {
    kind: Option<Kind>,
    least: Option<Decimal>,
    most: Option<Decimal>,
    default: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Decimal,
    Whole,
    Text,
}

impl Kind {
    fn read(text: &str) -> Option<Self> {
        match text {
            "decimal" => Some(Self::Decimal),
            "whole" => Some(Self::Whole),
            "text" => Some(Self::Text),
            _ => None,
        }
    }
}

/// A value that has been looked at.
#[derive(Debug, Clone)]
struct Filled {
    kind: Kind,
    text: String,
}

/// The mandate's text with its values filled in, or what is wrong with them.
pub(crate) fn filled(mandate: &MandateText) -> Result<String, Vec<Diagnostic>> {
    // What is no TOML is complained about by the reader, which knows more of it.
    let Ok(mut document) = mandate.file.text.parse::<DocumentMut>() else {
        return Ok(mandate.file.text.clone());
    };
    let mut filler = Filler {
        mandate,
        values: BTreeMap::new(),
        wrong: Vec::new(),
        unknown: BTreeSet::new(),
    };
    let declared = toml_edit::Document::parse(&mandate.file.text);
    if let Ok(declared) = &declared {
        filler.declared(declared.as_table().get("values"));
    }
    filler.table(document.as_table_mut(), &mut Vec::new());
    match filler.wrong.is_empty() {
        true => Ok(document.to_string()),
        false => Err(filler.wrong),
    }
}

struct Filler<'a> {
    mandate: &'a MandateText,
    values: BTreeMap<String, Filled>,
    wrong: Vec<Diagnostic>,
    unknown: BTreeSet<String>,
}

impl Filler<'_> {
    fn say(&mut self, span: Option<Span>, message: &str, hint: Option<String>) {
        let file = &self.mandate.file;
        let place = span.map_or(Place::START, |span| Place::of(&file.text, span.start));
        self.wrong
            .push(Diagnostic::new(Severity::Error, &file.name, place, message, hint));
    }

    fn declared(&mut self, item: Option<&Item>) {
        let table = item.and_then(Item::as_table_like);
        let mut known = Vec::new();
        for (name, item) in table.into_iter().flat_map(TableLike::iter) {
            known.push(name.to_owned());
            let declared = match (item.as_str(), item.as_table_like()) {
                (Some(kind), _) => Declared {
                    kind: Kind::read(kind),
                    ..Declared::default()
                },
                (None, Some(table)) => self.bounds(table),
                (None, None) => Declared::default(),
            };
            let Some(kind) = declared.kind else {
                let hint = format!("write `{name} = \"decimal\"`, `\"whole\"` or `\"text\"`");
                self.say(item.span(), &format!("`{name}` says not what it is"), Some(hint));
                continue;
            };
            let given = self.mandate.values.get(name).or(declared.default.as_ref()).cloned();
            match given {
                None => self.say(
                    item.span(),
                    &format!("`{name}` is not set"),
                    Some(format!("add `--set {name}=…`")),
                ),
                Some(text) => match checked(kind, &declared, &text) {
                    Ok(text) => {
                        self.values.insert(name.to_owned(), Filled { kind, text });
                    }
                    Err(says) => self.say(item.span(), &format!("`{name}` {says}"), None),
                },
            }
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        for name in self
            .mandate
            .values
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
        {
            let place = Diagnostic::new(
                Severity::Error,
                &self.mandate.file.name,
                Place::START,
                &format!("this mandate has no value `{name}`"),
                Some(suggest(name, &known)),
            );
            self.wrong.push(place);
        }
    }

    fn bounds(&mut self, table: &dyn TableLike) -> Declared {
        let mut declared = Declared::default();
        for (key, item) in table.iter() {
            let number = || {
                let text = item.as_integer().map(|whole| whole.to_string());
                let text = text.or_else(|| item.as_float().map(|float| float.to_string()));
                text.and_then(|text| Decimal::parse(&text).ok())
            };
            match key {
                "type" => declared.kind = item.as_str().and_then(Kind::read),
                "least" => declared.least = number(),
                "most" => declared.most = number(),
                "default" => {
                    declared.default = item
                        .as_str()
                        .map(ToOwned::to_owned)
                        .or_else(|| number().map(|own| own.to_string()));
                }
                other => {
                    let hint = suggest(other, &["type", "least", "most", "default"]);
                    self.say(item.span(), &format!("`{other}` is not a known key"), Some(hint));
                    continue;
                }
            }
            let read = match key {
                "least" => declared.least.is_some(),
                "most" => declared.most.is_some(),
                "default" => declared.default.is_some(),
                _ => true,
            };
            if !read {
                self.say(item.span(), &format!("`{key}` cannot be read"), None);
            }
        }
        declared
    }

    fn table(&mut self, table: &mut Table, keys: &mut Vec<String>) {
        for (key, item) in table.iter_mut() {
            if keys.is_empty() && key.get() == "values" {
                continue;
            }
            keys.push(key.get().to_owned());
            self.item(item, keys);
            keys.pop();
        }
    }

    fn item(&mut self, item: &mut Item, keys: &mut Vec<String>) {
        match item {
            Item::Table(table) => self.table(table, keys),
            Item::ArrayOfTables(tables) => tables.iter_mut().for_each(|table| self.table(table, keys)),
            Item::Value(value) => self.value(value, keys),
            Item::None => {}
        }
    }

    fn value(&mut self, value: &mut Value, keys: &mut Vec<String>) {
        match value {
            Value::String(own) => {
                let Some(text) = self.text(own.value(), keys) else {
                    return;
                };
                let decor = own.decor().clone();
                let mut filled = toml_edit::Formatted::new(text);
                *filled.decor_mut() = decor;
                *own = filled;
            }
            Value::Array(all) => all.iter_mut().for_each(|value| self.value(value, keys)),
            Value::InlineTable(table) => {
                for (key, value) in table.iter_mut() {
                    keys.push(key.get().to_owned());
                    self.value(value, keys);
                    keys.pop();
                }
            }
            _ => {}
        }
    }

    /// A text with its values filled in; none where there is nothing to fill in.
    fn text(&mut self, text: &str, keys: &[String]) -> Option<String> {
        let key = keys.last().map_or("", String::as_str);
        let (mut out, mut rest, mut found) = (String::new(), text, false);
        while let Some((before, behind)) = rest.split_once('{') {
            let name = behind.split_once('}').map(|(name, _)| name);
            let plain = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            out.push_str(before);
            let Some(name) = name.filter(plain) else {
                out.push('{');
                rest = behind;
                continue;
            };
            found = true;
            rest = behind.get(name.len().saturating_add(1)..).unwrap_or("");
            match self.values.get(name).cloned() {
                Some(value) => match place(key, keys, &value) {
                    Ok(literal) => out.push_str(&literal),
                    Err(says) => self.say(None, &format!("`{name}` cannot stand in `{key}`: {says}"), None),
                },
                None if self.unknown.insert(name.to_owned()) && self.wrong.is_empty() => {
                    let known: Vec<String> = self.values.keys().cloned().collect();
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    let hint = format!("declare it under `[values]`; {}", suggest(name, &known));
                    self.say(
                        None,
                        &format!("`{{{name}}}` in `{key}` is no value of this mandate"),
                        Some(hint),
                    );
                }
                None => {}
            }
        }
        out.push_str(rest);
        found.then_some(out)
    }
}

/// How a value stands at its place: as a literal in an expression, else as it is where it can say nothing more.
fn place(key: &str, keys: &[String], value: &Filled) -> Result<String, &'static str> {
    let in_values = keys.iter().any(|key| key == "arguments")
        && (key == "values" || keys.iter().rev().nth(1).is_some_and(|above| above == "arguments"));
    match (key, value.kind) {
        ("when", Kind::Text) => Ok(crate::cedar::quoted(&value.text)),
        (_, Kind::Decimal | Kind::Whole) => Ok(value.text.clone()),
        ("purpose" | "reason", Kind::Text) => Ok(value.text.clone()),
        (_, Kind::Text) if in_values => Ok(value.text.clone()),
        (_, Kind::Text) => {
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '+');
            match value.text.chars().all(plain) && !value.text.contains("..") {
                true => Ok(value.text.clone()),
                false => Err("here it may hold letters, digits and `.-_@+` only"),
            }
        }
    }
}

/// Looks at a value: the text that stands for it.
fn checked(kind: Kind, declared: &Declared, text: &str) -> Result<String, String> {
    const LONGEST: usize = 1024;
    if kind == Kind::Text {
        let fits = !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control);
        return if fits {
            Ok(text.into())
        } else {
            Err("is no text of one line".into())
        };
    }
    let number = Decimal::parse(text).map_err(|_| "is no number".to_owned())?;
    if kind == Kind::Whole && number.places() > 0 {
        return Err("is no whole number".into());
    }
    if let Some(most) = declared.most.filter(|most| number > *most) {
        return Err(format!("is {number}, more than {most}"));
    }
    if let Some(least) = declared.least.filter(|least| number < *least) {
        return Err(format!("is {number}, less than {least}"));
    }
    Ok(number.to_string())
}
