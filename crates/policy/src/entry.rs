//! Reads rules and the other values of a rule file.
//!
//! Promises: P4 (a rule that contradicts its own examples is an error at the example).

use std::net::IpAddr;

use bailiwick_model::{
    Act, ActError, AddressClass, Host, HostPattern, Layer, Level, ProgramPattern, Request, ResourcePattern, TaskId,
    Verb, VerbPattern, Verdict,
};
use toml_edit::{Item, TableLike, Value};

use crate::diagnostic::{Span, suggest};
use crate::document::{Reader, article, kind};
use crate::judge::{asked_for, judge};
use crate::limits::{self, Written};
use crate::opened::passed;
use crate::rule::Rule;
use crate::settings::{bytes_of, seconds_of};
use crate::site::unowned;

/// Where a list of rules stands, which says what may be left out of each act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// Whole acts.
    Top,
    /// Whole acts of the network.
    Network,
    /// Paths: `read` is left out.
    Read,
    /// Paths: `write` is left out.
    Write,
    /// Paths: `*` is left out.
    AnyFileVerb,
    /// Hosts: `tunnel` is left out.
    Tunnel,
    /// Folders: `keep` is left out.
    Keep,
    /// Commands: `run` is left out.
    Commands,
}

impl Section {
    fn verb(self) -> Option<VerbPattern> {
        match self {
            Self::Top | Self::Network => None,
            Self::Read => Some(VerbPattern::One(Verb::Read)),
            Self::Write => Some(VerbPattern::One(Verb::Write)),
            Self::AnyFileVerb => Some(VerbPattern::Any),
            Self::Tunnel => Some(VerbPattern::One(Verb::Tunnel)),
            Self::Keep => Some(VerbPattern::One(Verb::Keep)),
            Self::Commands => Some(VerbPattern::One(Verb::Run)),
        }
    }
}

const VERBS: &[&str] = &[
    "read", "write", "create", "delete", "keep", "run", "broker", "fetch", "push", "tunnel", "resolve", "use", "GET",
    "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "call", "open", "prompt", "sample", "elicit", "roots",
    "accept",
];

/// The keys of a rule's table, but for its limits.
const ENTRY_KEYS: [&str; 7] = ["rule", "allows", "denies", "reason", "variables", "exact", "tls"];

/// A text with where it stands.
type Text = (String, Option<Span>);

/// One rule as it was written.
#[derive(Default)]
struct Entry {
    rule: Option<Text>,
    allows: Vec<Text>,
    denies: Vec<Text>,
    reason: Option<String>,
    /// Steering variables that a command may have.
    variables: Vec<Text>,
    /// True when nothing more than the words is meant.
    exact: Option<Option<Span>>,
    /// Where it says that connections are passed on unread.
    pass: Option<Option<Span>>,
    /// What it lets requests be.
    written: Written,
}

impl Reader<'_> {
    /// Reads a list of rules.
    pub fn rules(&mut self, item: &Item, effect: Verdict, section: Section) {
        let mut entries = Vec::new();
        match item {
            Item::Value(Value::Array(array)) => {
                for value in array {
                    match value {
                        Value::String(text) => entries.push(Entry {
                            rule: Some((text.value().clone(), value.span())),
                            ..Entry::default()
                        }),
                        Value::InlineTable(table) => entries.push(self.entry(table, value.span())),
                        other => {
                            let hint = Some("write a rule as text, or as a table with `rule = \"...\"`".into());
                            self.error(
                                other.span(),
                                &format!("a rule cannot be {}", article(other.type_name())),
                                hint,
                            );
                        }
                    }
                }
            }
            other => {
                let hint = Some("put the rules into a list: `[\"...\"]`".into());
                self.error(
                    other.span(),
                    &format!("rules must be a list, not {}", kind(other)),
                    hint,
                );
            }
        }
        for entry in entries {
            self.take(effect, section, entry);
        }
    }

    fn entry(&mut self, table: &dyn TableLike, span: Option<Span>) -> Entry {
        let mut entry = Entry::default();
        for (key, item) in table.iter() {
            match key {
                "rule" => entry.rule = self.text_of(item, "rule"),
                "reason" => entry.reason = self.text_of(item, "reason").map(|(text, _)| text),
                "allows" => entry.allows = self.texts_of(item, "allows"),
                "denies" => entry.denies = self.texts_of(item, "denies"),
                "variables" => entry.variables = self.texts_of(item, "variables"),
                "exact" => match item.as_bool() {
                    Some(exact) => entry.exact = exact.then(|| item.span()),
                    None => {
                        let message = format!("`exact` must be yes or no, not {}", kind(item));
                        self.error(item.span(), &message, Some("write `exact = true`".into()));
                    }
                },
                "tls" => match item.as_str() {
                    Some("pass") => entry.pass = Some(item.span()),
                    _ => {
                        let hint = "write `tls = \"pass\"` to pass a host on unread; without the key its connections are opened";
                        self.error(item.span(), "`tls` can only be `pass`", Some(hint.into()));
                    }
                },
                other => {
                    let span = table.key(other).and_then(|key| key.span());
                    if limits::KEYS.contains(&other) {
                        self.limit(other, item, span, &mut entry.written);
                    } else {
                        self.unknown(other, span, &[&ENTRY_KEYS, &limits::KEYS[..]].concat());
                    }
                }
            }
        }
        if !table.contains_key("rule") {
            self.error(
                span,
                "a rule's table has no `rule`",
                Some("add `rule = \"...\"`".into()),
            );
        }
        entry
    }

    fn take(&mut self, effect: Verdict, section: Section, entry: Entry) {
        let Some((text, span)) = entry.rule else { return };
        let mut act = match self.act(section, &text) {
            Ok(act) => act,
            Err((message, hint)) => return self.error(span, &message, hint),
        };
        if let Err((message, span)) = narrowed(&mut act, &entry.variables, entry.exact) {
            return self.error(span, &message, Some("both narrow a rule such as `run git log`".into()));
        }
        if let Some(at) = entry.pass {
            match passed(&act).filter(|_| effect != Verdict::Deny) {
                Some(tunnel) => act = tunnel,
                None => {
                    let message = format!("`{text}` cannot be passed on unread: no method and no path is seen there");
                    let hint = "write `* https://host`, in an allow or ask, with `tls = \"pass\"`";
                    return self.error(at, &message, Some(hint.into()));
                }
            }
        }
        if let Some((key, at)) = &entry.written.first
            && let Some((message, hint)) = limits::misplaced(effect, &act, &entry.written, key)
        {
            return self.error(at.clone(), &message, Some(hint));
        }
        let Written { limits, .. } = entry.written;
        if act.verb == VerbPattern::One(Verb::Broker)
            && effect != Verdict::Deny
            && self.layer == Layer::Context
            && !self.shipped
        {
            let hint = "write `[[broker]]` with `run`, and what the command may do outside";
            return self.error(
                span,
                &format!("`{text}` says not with which authority"),
                Some(hint.into()),
            );
        }
        if let Err(objection) = judge(effect, &act, &text) {
            return self.error(span, &objection.message, objection.hint);
        }
        if let (Verdict::Allow, VerbPattern::One(Verb::Keep), ResourcePattern::Path(path)) =
            (effect, &act.verb, &act.resource)
            && let Some((message, hint)) = path.as_tree().and_then(|path| self.keeps_wrongly(&path))
        {
            return self.error(span, &message, Some(hint));
        }
        let origin = self.origin(span.as_ref(), &act);
        let mut rules = Rule::written(effect, act, &origin, entry.reason.as_deref(), self.reading);
        rules.iter_mut().for_each(|rule| rule.limit(&limits));
        let (inside, outside) = match effect {
            Verdict::Deny => (&entry.denies, &entry.allows),
            Verdict::Allow | Verdict::Ask => (&entry.allows, &entry.denies),
        };
        self.examples(&rules, &text, inside, true);
        self.examples(&rules, &text, outside, false);
        self.file.rules.extend(rules);
    }

    /// Holds a rule against its own examples.
    fn examples(&mut self, rules: &[Rule], text: &str, examples: &[Text], inside: bool) {
        for (example, span) in examples {
            match asked_for(example, self.anchors, self.reading) {
                Err(message) => self.error(
                    span.clone(),
                    &message,
                    Some("an example is one act, as in `read ~/x`".into()),
                ),
                Ok((verb, resource)) => {
                    let effect = rules.first().map(|rule| rule.effect);
                    let mut same = rules.iter().filter(|rule| Some(rule.effect) == effect);
                    let asked = Request::new(TaskId([0; 8]), verb, resource);
                    if same.any(|rule| rule.admits(&asked)) != inside {
                        let (says, hint) = if inside {
                            ("does not cover", "widen the rule, or correct the example")
                        } else {
                            (
                                "covers",
                                "the rule is wider than its examples: narrow it, or correct the example",
                            )
                        };
                        self.error(
                            span.clone(),
                            &format!("`{text}` {says} its example `{example}`"),
                            Some(hint.into()),
                        );
                    }
                }
            }
        }
    }

    /// One whole act.
    pub fn whole_act(&self, text: &str) -> Result<Act, (String, Option<String>)> {
        self.act(Section::Top, text)
    }

    fn act(&self, section: Section, text: &str) -> Result<Act, (String, Option<String>)> {
        let first = text.trim().split(' ').next().unwrap_or("");
        let said = |verb: &str| section != Section::Commands || matches!(verb, "run" | "broker");
        if section.verb().is_some()
            && said(first)
            && text.trim().contains(' ')
            && (VERBS.contains(&first) || first == "*")
        {
            let hint =
                format!("the verb is said by the key: write the rest only, or put `{text}` into a list at the top");
            return Err((format!("`{text}` has a verb where none belongs"), Some(hint)));
        }
        if section == Section::Tunnel && text.contains("://") {
            let rest = text.split("://").nth(1).unwrap_or("").split('/').next().unwrap_or("");
            return Err((
                format!("`{text}` is a url: a tunnel is to a host"),
                Some(format!("write `{rest}`")),
            ));
        }
        let read = match section.verb() {
            None => Act::parse(text, self.anchors),
            Some(verb) => Act::of(verb, text.trim(), self.anchors),
        };
        let act = read.map_err(|error| {
            let hint = match &error {
                ActError::Verb(word) => Some(suggest(word, VERBS)),
                ActError::Command(_) => {
                    Some("write program, subcommand, options, as in `run git push` or `run rm -r build`".into())
                }
                ActError::Mismatch { verb, .. } if verb == "tunnel" => {
                    Some("a tunnel is to a host: `tunnel example.com:443`".into())
                }
                ActError::Mismatch { .. } => {
                    Some("files are read and written, urls have methods such as `GET`, hosts are for `tunnel`".into())
                }
                ActError::Relative(_) => Some("write it absolute, or from the home as in `~/x`".into()),
                _ => None,
            };
            (error.to_string(), hint)
        })?;
        let network = matches!(
            act.resource,
            ResourcePattern::Url(_) | ResourcePattern::Repository(_) | ResourcePattern::Endpoint { .. }
        );
        if section == Section::Network && !network {
            let hint = "put it into a list at the top of the file, or under `[files]`";
            return Err((format!("`{text}` is not an act of the network"), Some(hint.into())));
        }
        Ok(act)
    }

    /// `[network] private`.
    pub fn private(&mut self, item: &Item) {
        for (text, span) in self.texts_of(item, "private") {
            match HostPattern::parse(&text) {
                Ok(pattern) => match unowned(&pattern) {
                    Some((message, hint)) => self.error(span, &message, Some(hint)),
                    None => self.file.settings.private.push(pattern),
                },
                Err(error) => self.error(span, &error.to_string(), None),
            }
        }
    }

    /// Complains about what only a context can have. A ceiling says what may be handed on, and starts nothing.
    pub(crate) fn only_for_contexts(&mut self, key: &str, span: Option<Span>) -> bool {
        let fits = self.layer == Layer::Context;
        if !fits {
            let hint = "put it into a project's bailiwick.toml, or give it to `bailiwick run`";
            self.error(
                span,
                &format!("`{key}` cannot hold for every context"),
                Some(hint.into()),
            );
        }
        fits
    }

    /// `[network] publish`.
    pub fn publish(&mut self, item: &Item, span: Option<Span>) {
        if !self.only_for_contexts("publish", span) {
            return;
        }
        let Some(array) = item.as_array() else {
            let hint = Some("write `publish = [5173, \"8080:3000\"]`".into());
            self.error(
                item.span(),
                &format!("`publish` must be a list of ports, not {}", kind(item)),
                hint,
            );
            return;
        };
        for value in array {
            let text = value
                .as_integer()
                .map(|port| port.to_string())
                .or_else(|| value.as_str().map(str::to_owned));
            match text.unwrap_or_else(|| value.to_string().trim().to_owned()).parse() {
                Ok(port) => self.file.settings.publish.push(port),
                Err(fault) => self.error(value.span(), &fault.to_string(), None),
            }
        }
    }

    /// `[devices]`.
    pub fn devices(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if key != "allow" {
                self.unknown(key, span, &["allow"]);
            } else if self.only_for_contexts("devices", span) {
                for (text, span) in self.texts_of(item, "allow") {
                    match text.parse() {
                        Ok(device) => self.file.settings.devices.push(device),
                        Err(fault) => self.error(span, &fault.to_string(), None),
                    }
                }
            }
        }
    }

    /// `[network.hosts]`.
    pub fn hosts(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let key_span = table.key(key).and_then(|key| key.span());
            let Some((text, span)) = self.text_of(item, key) else {
                continue;
            };
            let host = match Host::parse(key) {
                Ok(host @ Host::Name(_)) if !host.is_localhost() => host,
                Ok(_) => {
                    self.error(
                        key_span,
                        &format!("`{key}` has its address already"),
                        Some("only other names can be pinned".into()),
                    );
                    continue;
                }
                Err(error) => {
                    self.error(key_span, &error.to_string(), None);
                    continue;
                }
            };
            match text.parse::<IpAddr>() {
                Ok(address) if AddressClass::of(address) == AddressClass::LinkLocal => {
                    let hint = "link-local addresses, where clouds keep their metadata services, are always refused";
                    self.error(span, &format!("`{text}` can never be reached"), Some(hint.into()));
                }
                Ok(address) => {
                    self.file.settings.hosts.insert(host, address.to_canonical());
                }
                Err(_) => self.error(
                    span,
                    &format!("`{text}` is not an address"),
                    Some("write it as in `192.168.1.20`".into()),
                ),
            }
        }
    }

    /// `[environment]`.
    pub fn environment(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match (key, item.as_table_like()) {
                ("pass", _) => {
                    for (name, span) in self.texts_of(item, "pass") {
                        if is_variable(name.strip_suffix('*').unwrap_or(&name)) {
                            self.file.settings.environment_pass.insert(name);
                        } else {
                            let hint = "letters, digits and `_`, with at most a final `*`; values stand under `set`";
                            self.error(
                                span,
                                &format!("`{name}` is not the name of a variable"),
                                Some(hint.into()),
                            );
                        }
                    }
                }
                ("set", Some(values)) => {
                    for (name, item) in values.iter() {
                        if !is_variable(name) {
                            self.error(span.clone(), &format!("`{name}` is not the name of a variable"), None);
                        } else if let Some((value, span)) = self.text_of(item, name) {
                            if value.contains('\0') {
                                self.error(span, "a variable cannot hold a NUL byte", None);
                            } else {
                                self.file.settings.environment_set.insert(name.into(), value);
                            }
                        }
                    }
                }
                ("set", None) => {
                    let hint = Some("write `set = { NAME = \"value\" }`".into());
                    self.error(span, &format!("`set` must be a table, not {}", kind(item)), hint);
                }
                (other, _) => self.unknown(other, span, &["pass", "set"]),
            }
        }
    }

    /// `[fence]`.
    pub fn fence(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if key == "strict" {
                match item.as_bool() {
                    Some(strict) => self.file.settings.strict = strict,
                    None => self.error(
                        item.span(),
                        &format!("`strict` must be `true` or `false`, not {}", kind(item)),
                        None,
                    ),
                }
                continue;
            }
            match (key, item.as_str().and_then(Level::parse)) {
                ("level", Some(level)) => {
                    self.file.settings.level = Some(level);
                    self.file.settings.least_level = Some(level).filter(|_| self.layer == Layer::Machine);
                }
                ("level", None) => {
                    let known = Level::ALL.map(|level| format!("`{}`", level.as_str())).join(" or ");
                    self.error(
                        item.span(),
                        "`level` is not a level of this build",
                        Some(format!("write {known}")),
                    );
                }
                (other, _) => self.unknown(other, span, &["level", "strict"]),
            }
        }
    }

    /// `[questions]`.
    pub fn questions(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            if key == "notify" {
                match item.as_bool() {
                    Some(notify) => self.file.settings.notify = Some(notify),
                    None => self.error(
                        item.span(),
                        &format!("`notify` must be `true` or `false`, not {}", kind(item)),
                        None,
                    ),
                }
                continue;
            }
            match (key, item.as_str().and_then(seconds_of)) {
                ("deadline", Some(seconds)) => self.file.settings.ask_deadline = Some(seconds),
                ("deadline", None) => {
                    let hint =
                        "write `deadline = \"2 min\"`: seconds (`s`), minutes (`min`) or hours (`h`), at most 24 h";
                    self.error(item.span(), "`deadline` is not a length of time", Some(hint.into()));
                }
                (other, _) => self.unknown(other, span, &["deadline", "notify"]),
            }
        }
    }

    /// `[limits]`.
    pub fn limits(&mut self, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "memory" => {
                    let number = item
                        .as_integer()
                        .and_then(|bytes| u64::try_from(bytes).ok())
                        .filter(|bytes| *bytes > 0);
                    match number.or_else(|| item.as_str().and_then(bytes_of)) {
                        Some(bytes) => self.file.settings.memory = Some(bytes),
                        None => self.error(
                            item.span(),
                            "`memory` is not a size",
                            Some("write `memory = \"8 GiB\"`".into()),
                        ),
                    }
                }
                "processes" => match item
                    .as_integer()
                    .and_then(|count| u64::try_from(count).ok())
                    .filter(|count| *count > 0)
                {
                    Some(count) => self.file.settings.processes = Some(count),
                    None => self.error(
                        item.span(),
                        "`processes` is not a count",
                        Some("write `processes = 4096`".into()),
                    ),
                },
                other => self.unknown(other, span, &["memory", "processes"]),
            }
        }
    }
}

/// Adds what a rule's table says of a command beside its text.
fn narrowed(act: &mut Act, variables: &[Text], exact: Option<Option<Span>>) -> Result<(), (String, Option<Span>)> {
    let wanted = exact
        .clone()
        .or_else(|| variables.first().map(|(_, span)| span.clone()));
    let Some(span) = wanted else { return Ok(()) };
    let ResourcePattern::Command(pattern) = &mut act.resource else {
        return Err((format!("`{act}` has no `variables` and is never `exact`"), span));
    };
    if pattern.program == ProgramPattern::ReadOnly || (exact.is_some() && pattern.open) {
        return Err((format!("`run {pattern}` has no `variables` and is never `exact`"), span));
    }
    pattern.exact |= exact.is_some();
    for (name, span) in variables {
        if !is_variable(name.trim_end_matches('*')) {
            return Err((format!("`{name}` is not the name of a variable"), span.clone()));
        }
        pattern.variables.push((name.clone(), "**".into()));
    }
    Ok(())
}

/// True for the name of a variable (POSIX, section 8.1).
pub(crate) fn is_variable(name: &str) -> bool {
    let head = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    head && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
