//! Reads `[[broker]]`: commands that run outside, each with an authority of its own.
//!
//! Promises: P2 (what a broker may do stays below the ceiling, and every deny of files and network holds for it too), P4
//! (a broker whose words the agent could choose at will is an error), P9 (a secret stands here by its name only).
//! Trust: only a trusted project's file has brokers. What they are steered by is the agent's: the words that a `*` leaves
//! open, and all that lies in the project.
//! Not here: running them (the program), their secrets (`secret`).

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_gate::Reading;
use bailiwick_model::{
    ANY_PORT, Act, Command, CommandPattern, HostPattern, ProgramPattern, ResourcePattern, RuleRef, Scheme, Verb,
    VerbPattern, Verdict,
};
use toml_edit::{Item, TableLike};

use crate::diagnostic::{Diagnostic, Span};
use crate::document::{Reader, kind};
use crate::entry::{Section, is_variable};
use crate::load::{Loader, Sources};
use crate::policy::Policy;
use crate::preset::BROKER;
use crate::rule::Rule;
use crate::settings::Settings;

/// The keys of a broker.
const KEYS: &[&str] = &[
    "run",
    "network",
    "read",
    "write",
    "secret",
    "ask",
    "environment",
    "reason",
];

/// The person's variables that a broker's program gets; none of them says what it does.
pub(crate) const PASSED: [&str; 11] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "TZ",
    "SSL_CERT_FILE",
];

/// A command that runs outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// The command, word by word.
    pub pattern: CommandPattern,
    /// Where it was written.
    pub origin: RuleRef,
    /// The name of the secret that it is handed.
    pub secret: Option<String>,
    /// Variables that its program is given.
    pub environment: BTreeMap<String, String>,
    /// What its program may do besides reading the project.
    rules: Vec<Rule>,
}

impl Broker {
    /// True when a command is this broker's, with all that it carries.
    pub fn runs(&self, command: &Command) -> bool {
        let mut forms = command.forms().iter();
        forms.all(|form| self.pattern.admits(form))
    }

    /// The program, as it is looked for along the person's `PATH`.
    pub fn program(&self) -> Option<&str> {
        match &self.pattern.program {
            ProgramPattern::Name(name) => Some(name),
            ProgramPattern::Path(path) => Some(path.as_str()),
            ProgramPattern::ReadOnly => None,
        }
    }

    /// What its program may do besides reading the project, as acts.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        let own = self.rules.iter().filter(|rule| rule.follows_from.is_none());
        own.map(Rule::act)
    }

    /// What it has outside, one line each.
    pub fn told(&self) -> Vec<String> {
        let secret = self.secret.iter().map(|name| format!("use secret:{name}"));
        self.acts().map(ToString::to_string).chain(secret).collect()
    }

    /// The hosts that it may reach, each with its port where that is not the usual one; none for one with a wildcard.
    pub fn hosts(&self) -> impl Iterator<Item = Option<String>> {
        let place = |host: &HostPattern, port: u16, usual: u16| match host {
            HostPattern::Exact(host) if port == usual => Some(host.to_string()),
            HostPattern::Exact(host) if port != ANY_PORT => Some(format!("{host}:{port}")),
            _ => None,
        };
        self.acts().filter_map(move |act| match &act.resource {
            ResourcePattern::Url(url) => Some(place(&url.host, url.port, url.scheme.default_port())),
            ResourcePattern::Repository(own) => {
                let url = &own.url;
                Some(place(&url.host, url.port, url.scheme.default_port()))
            }
            ResourcePattern::Endpoint { host, port } => Some(place(host, *port, Scheme::Https.default_port())),
            ResourcePattern::Path(_)
            | ResourcePattern::AnyCommand
            | ResourcePattern::Command(_)
            | ResourcePattern::Secret(_)
            | ResourcePattern::Tool(_) => None,
        })
    }
}

impl Settings {
    /// The broker that a command is run by.
    pub fn broker_of(&self, command: &Command) -> Option<&Broker> {
        self.brokers.iter().find(|broker| broker.runs(command))
    }
}

/// The rules of a broker's own fence: the machine's programs and the project to read, what the broker names, every deny of
/// files and network that holds for the context, and no word about starts. `of` are the settings of the context.
pub fn load_broker(
    sources: &Sources,
    reading: &dyn Reading,
    broker: &Broker,
    of: &Settings,
    environment: BTreeMap<String, String>,
) -> Result<Policy, Vec<Diagnostic>> {
    let sources = Sources {
        profiles: Vec::new(),
        toolchains: Vec::new(),
        preset: Some(BROKER.into()),
        // Whether it runs is the mandate's matter; what it may do is its own.
        mandate: None,
        ..sources.clone()
    };
    let mut loader = Loader::of(&sources, reading);
    loader.layers();
    loader.rules.extend(broker.rules.iter().cloned());
    loader.rules.retain(|rule| {
        // What it starts is its own; and nothing that the agent has kept is seen.
        let narrows = rule.effect != Verdict::Allow && matches!(rule.act().verb, VerbPattern::One(Verb::Run));
        !narrows && rule.act().verb != VerbPattern::One(Verb::Keep)
    });
    // Whoever clears it for a tag clears it as a whole; what it is given is the task's, and what it says a source.
    loader.tags_named.clear();
    let settings = &mut loader.settings;
    settings.tags = crate::tag::Tags::default();
    settings.environment_pass = PASSED.map(Into::into).into();
    settings.environment_set = environment;
    settings.kept_files.clear();
    settings.kept_links.clear();
    settings.kept_copies.clear();
    settings.notes.clear();
    settings.publish.clear();
    settings.devices.clear();
    settings.brokers.clear();
    settings.hosts.clone_from(&of.hosts);
    settings.private.clone_from(&of.private);
    settings.context.clone_from(&of.context);
    // What the context denies stays denied, whatever the broker names.
    loader.overlaps = false;
    loader.diagnostics.retain(Diagnostic::is_error);
    loader.finish()
}

impl Reader<'_> {
    /// `[[broker]]`.
    pub fn brokers(&mut self, item: &Item, span: Option<Span>) {
        if !self.only_for_contexts("broker", span.clone()) {
            return;
        }
        self.list_of_tables(item, "broker", span, Self::broker);
    }

    fn broker(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let before = std::mem::take(&mut self.file.rules);
        let (mut run, mut secret, mut reason, mut ask) = (None, None, None, false);
        let mut environment = BTreeMap::new();
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "run" => run = self.text_of(item, "run"),
                "secret" => secret = self.text_of(item, "secret"),
                "reason" => reason = self.text_of(item, "reason").map(|(text, _)| text),
                "network" => self.rules(item, Verdict::Allow, Section::Network),
                "read" => self.rules(item, Verdict::Allow, Section::Read),
                "write" => self.rules(item, Verdict::Allow, Section::Write),
                "environment" => self.table(item, key, span, |reader, values| {
                    environment = reader.variables(values);
                }),
                "ask" => match item.as_bool() {
                    Some(said) => ask = said,
                    None => {
                        let message = format!("`ask` must be yes or no, not {}", kind(item));
                        self.error(item.span(), &message, Some("write `ask = true`".into()));
                    }
                },
                other => self.unknown(other, span, KEYS),
            }
        }
        let rules = std::mem::replace(&mut self.file.rules, before);
        let Some((text, run_span)) = run else {
            if !table.contains_key("run") {
                let hint = "add `run = \"git push origin HEAD:refs/heads/agent/*\"`";
                self.error(span, "a broker has no `run`", Some(hint.into()));
            }
            return;
        };
        let pattern = match self.brokered(&text) {
            Ok(pattern) => pattern,
            Err((message, hint)) => return self.error(run_span, &message, hint),
        };
        let act = Act {
            verb: VerbPattern::One(Verb::Broker),
            resource: ResourcePattern::Command(Box::new(pattern.clone())),
        };
        let origin = self.origin(run_span.as_ref(), &act);
        let effect = if ask { Verdict::Ask } else { Verdict::Allow };
        let written = Rule::written(effect, act, &origin, reason.as_deref(), self.reading);
        self.file.rules.extend(written);
        if let Some((name, span)) = &secret {
            let place = self.place(span.as_ref());
            self.file.secrets_named.push((name.clone(), place));
        }
        self.file.settings.brokers.push(Broker {
            pattern,
            origin,
            secret: secret.map(|(name, _)| name),
            environment,
            rules,
        });
    }

    /// The command of a broker: every word is named, so that the agent chooses only what a `*` leaves open.
    fn brokered(&self, text: &str) -> Result<CommandPattern, (String, Option<String>)> {
        let wrong = |message: String, hint: &str| Err((message, Some(hint.to_owned())));
        let mut pattern = CommandPattern::parse(text.trim(), self.anchors).map_err(|error| {
            let hint = "write program and words, as in `git push origin HEAD:refs/heads/agent/*`";
            (error.to_string(), Some(hint.into()))
        })?;
        if pattern.open {
            let hint = "write each word; `*` stands for any text without `/` in one";
            return wrong(format!("`{text}` would let the agent add words of its own"), hint);
        }
        let literal = match &pattern.program {
            ProgramPattern::Name(name) => !name.contains('*'),
            ProgramPattern::Path(path) => path.as_tree().is_some(),
            ProgramPattern::ReadOnly => false,
        };
        if !literal {
            return wrong(format!("`{text}` names no one program"), "a broker runs one program");
        }
        if !pattern.variables.is_empty() {
            let hint = "set it under `environment` of the broker";
            return wrong(format!("`{text}` takes a variable from the agent"), hint);
        }
        pattern.exact = true;
        Ok(pattern)
    }

    fn variables(&mut self, table: &dyn TableLike) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(|key| key.span());
            match self.text_of(item, name) {
                Some((value, _)) if is_variable(name) && !value.contains('\0') => {
                    all.insert(name.to_owned(), value);
                }
                Some(_) => self.error(span, &format!("`{name}` is not the name of a variable"), None),
                None => {}
            }
        }
        all
    }
}

/// The programs that brokers run, by name.
pub(crate) fn programs(brokers: &[Broker]) -> BTreeSet<String> {
    let name = |program: &str| program.rsplit('/').next().unwrap_or(program).to_owned();
    brokers.iter().filter_map(Broker::program).map(name).collect()
}
