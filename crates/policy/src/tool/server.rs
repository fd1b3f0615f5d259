//! Reads `[[server]]`: programs and addresses that offer tools, each with an authority of its own.
//!
//! Promises: P2 (what a server may do stays below the ceiling, and every deny of files and network holds for it too), P4 (a
//! server whose name is taken, or that says not what it is, is an error; what it may start, it may only where that is
//! written), P9 (a secret stands here by its name only, and goes to one server).
//! Trust: only a trusted project's file, or the person's own, names servers. A server is not trusted with more than its
//! table says.
//! Not here: starting and reaching them (the program, `tools`), rules about their tools (`written`).

use std::collections::BTreeMap;

use bailiwick_gate::Reading;
use bailiwick_model::{
    Act, Budget, HttpUrl, Layer, Place as SecretPlace, ResourcePattern, RuleRef, SecretName, SecretPattern,
    ToolPattern, UrlPattern, Verb, VerbPattern, Verdict, read_server,
};
use toml_edit::{Item, TableLike};

use super::terms::Terms;
use crate::broker::PASSED;
use crate::diagnostic::{Diagnostic, Place, Severity, Span};
use crate::document::{Reader, kind};
use crate::entry::{Section, is_variable};
use crate::load::{Loader, Sources};
use crate::policy::Policy;
use crate::preset::SERVER;
use crate::rule::Rule;
use crate::secret::ForRequests;
use crate::settings::{Settings, bytes_of, seconds_of};

/// A text, and where it stands.
type Placed = (String, Option<Span>);

/// The keys of a server.
const KEYS: &[&str] = &[
    "name",
    "run",
    "url",
    "read",
    "write",
    "network",
    "environment",
    "secret",
    "keep",
    "limits",
    "sampling",
    "elicitation",
    "roots",
    "reason",
];

/// A name that no server may have: the tools of the gateway itself stand under it.
const RESERVED: &str = "bailiwick";

/// Something that offers tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub origin: RuleRef,
    /// What it is.
    pub program: ServerProgram,
    /// Variables that its program is given, and nothing else of anybody's.
    pub environment: BTreeMap<String, ServerVariable>,
    /// The secret that its requests bring, where it is reached by an address.
    pub secret: Option<String>,
    /// How long it may take, and how much it may answer.
    pub limits: ServerLimits,
    /// Folders that it is told the agent works in; none where nothing is said.
    pub roots: Vec<String>,
    /// What it may do besides looking at the system's programs.
    rules: Vec<Rule>,
}

/// What a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerProgram {
    /// A program that is started, word by word.
    Run(Vec<String>),
    /// An address that is reached.
    Url(HttpUrl),
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerVariable {
    /// This text.
    Text(String),
    /// The value of the secret of this name.
    Secret(String),
}

/// What a server may take. What is absent is as the gate has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Seconds until it must have started.
    pub start: Option<u64>,
    /// Seconds until it must have answered a call.
    pub call: Option<u64>,
    /// Most bytes of a result.
    pub bytes: Option<u64>,
}

impl Server {
    /// What it may do besides looking at the system's programs, as acts.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        let own = self.rules.iter().filter(|rule| rule.follows_from.is_none());
        own.map(Rule::act)
    }

    /// The secrets that it is given, by name.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let variables = self.environment.values().filter_map(|value| match value {
            ServerVariable::Secret(name) => Some(name.as_str()),
            ServerVariable::Text(_) => None,
        });
        self.secret.as_deref().into_iter().chain(variables)
    }

    /// What it has outside, one line each.
    pub fn told(&self) -> Vec<String> {
        let secrets = self.secrets().map(|name| format!("use secret:{name}"));
        self.acts().map(ToString::to_string).chain(secrets).collect()
    }
}

impl Settings {
    /// The server of a name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }
}

/// The rules of a server's own fence: the machine's programs to read, what the server names, every deny of files and
/// network that holds for the context, and no word about starts. `of` are the settings of the context.
pub fn load_server(
    sources: &Sources,
    reading: &dyn Reading,
    server: &Server,
    of: &Settings,
    environment: BTreeMap<String, String>,
) -> Result<Policy, Vec<Diagnostic>> {
    let sources = Sources {
        profiles: Vec::new(),
        toolchains: Vec::new(),
        preset: Some(SERVER.into()),
        mandate: None,
        ..sources.clone()
    };
    let mut loader = Loader::of(&sources, reading);
    loader.layers();
    loader.rules.retain(|rule| {
        let narrows = rule.effect != Verdict::Allow && matches!(rule.act().verb, VerbPattern::One(Verb::Run));
        let of_tools = matches!(rule.act().resource, ResourcePattern::Tool(_));
        // What the agent keeps is not the server's.
        let kept = rule.layer() == Layer::Context && rule.act().verb == VerbPattern::One(Verb::Keep);
        !narrows && !of_tools && !kept
    });
    // It runs for the context, also where the person's own file names it.
    let own = server.rules.iter().cloned().map(|mut rule| {
        rule.origin.layer = Layer::Context;
        rule
    });
    loader.rules.extend(own);
    loader.tables.clear();
    if let (Some(name), ServerProgram::Url(_)) = (&server.secret, &server.program)
        && let Ok(name) = SecretName::parse(name)
    {
        let act = Act {
            verb: VerbPattern::One(Verb::Use),
            resource: ResourcePattern::Secret(SecretPattern::One(name)),
        };
        let own = RuleRef {
            layer: Layer::Context,
            act: act.to_string(),
            ..server.origin.clone()
        };
        loader
            .rules
            .extend(Rule::written(Verdict::Allow, act, &own, None, reading));
    }
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
    settings.servers.clear();
    settings.hosts.clone_from(&of.hosts);
    settings.private.clone_from(&of.private);
    settings.context.clone_from(&of.context);
    // Its own secret goes to its own address, and no other secret anywhere.
    settings.secrets.clear();
    if let (Some(name), ServerProgram::Url(url)) = (&server.secret, &server.program)
        && let (Some(secret), Ok(pattern)) = (of.secrets.get(name), UrlPattern::parse(&url.to_string()))
    {
        let mut secret = secret.clone();
        secret.requests = Some(ForRequests {
            urls: vec![pattern],
            place: SecretPlace::Bearer,
            variables: Vec::new(),
            shape: None,
            session: false,
            own_login: false,
        });
        settings.secrets.insert(name.clone(), secret);
    }
    // What the context denies stays denied, whatever the server names.
    loader.overlaps = false;
    loader.diagnostics.retain(Diagnostic::is_error);
    loader.finish()
}

impl Loader<'_> {
    /// Two servers of one name, or with one secret, are mistakes.
    pub(crate) fn servers_apart(&mut self) {
        let servers = self.settings.servers.clone();
        for (place, server) in servers.iter().enumerate() {
            let before = || servers.iter().take(place);
            let at = Place {
                line: server.origin.line,
                column: server.origin.column,
            };
            if let Some(other) = before().find(|other| other.name == server.name) {
                let message = format!(
                    "there are two servers `{}`: the other is at {}",
                    server.name, other.origin
                );
                self.say(
                    Severity::Error,
                    &server.origin.file,
                    at,
                    &message,
                    "give one of them another name",
                );
            }
            let shared = server.secrets().find_map(|secret| {
                let other = before().find(|other| other.secrets().any(|own| own == secret))?;
                Some((secret.to_owned(), other.name.clone()))
            });
            if let Some((secret, other)) = shared {
                let message = format!("`secret:{secret}` is that of the server `{other}`, and goes to no other");
                let hint = "give each server a secret of its own";
                self.say(Severity::Error, &server.origin.file, at, &message, hint);
            }
        }
    }
}

impl Reader<'_> {
    /// `[[server]]`.
    pub fn servers(&mut self, item: &Item, span: Option<Span>) {
        if self.layer == Layer::Machine {
            let hint = "put it into a project's bailiwick.toml, or into `~/.config/bailiwick`";
            return self.error(span, "a server is a context's, or a person's", Some(hint.into()));
        }
        self.list_of_tables(item, "server", span, Self::server);
    }

    fn server(&mut self, table: &dyn TableLike, span: Option<Span>) {
        let before = std::mem::take(&mut self.file.rules);
        let (mut name, mut run, mut url, mut secret) = (None, None, None, None);
        let mut environment = BTreeMap::new();
        let mut limits = ServerLimits::default();
        let mut roots = Vec::new();
        let mut starts: Vec<(Verb, Budget, Option<u64>, Option<Span>)> = Vec::new();
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "name" => name = self.text_of(item, "name"),
                "run" => run = Some((self.texts_of(item, "run"), item.span())),
                "url" => url = self.text_of(item, "url"),
                "secret" => secret = self.text_of(item, "secret"),
                "reason" => {
                    self.text_of(item, "reason");
                }
                "read" => self.rules(item, Verdict::Allow, Section::Read),
                "write" => self.rules(item, Verdict::Allow, Section::Write),
                "network" => self.rules(item, Verdict::Allow, Section::Network),
                "keep" => self.rules(item, Verdict::Allow, Section::Keep),
                "environment" => self.table(item, key, span, |reader, values| {
                    environment = reader.server_variables(values);
                }),
                "limits" => self.table(item, key, span, |reader, values| limits = reader.server_limits(values)),
                "sampling" => {
                    let at = span.clone();
                    self.table(item, key, span, |reader, values| {
                        let (budget, tokens) = reader.sampling(values);
                        starts.push((Verb::Sample, budget, tokens, at));
                    });
                }
                "elicitation" => {
                    if self.flag(item, "elicitation") {
                        starts.push((Verb::Elicit, Budget::default(), None, span));
                    }
                }
                "roots" => {
                    roots = self.texts_of(item, "roots").into_iter().map(|(text, _)| text).collect();
                    starts.push((Verb::Roots, Budget::default(), None, span));
                }
                other => self.unknown(other, span, KEYS),
            }
        }
        let mut rules = std::mem::replace(&mut self.file.rules, before);
        let Some((name, name_span)) = name else {
            if !table.contains_key("name") {
                self.error(span, "a server has no `name`", Some("add `name = \"bank\"`".into()));
            }
            return;
        };
        if let Err(error) = read_server(&name) {
            return self.error(name_span, &error.to_string(), None);
        }
        if name == RESERVED {
            let message = format!("`{RESERVED}` is the gateway's own name");
            return self.error(name_span, &message, Some("choose another name".into()));
        }
        let Some(program) = self.server_program(run, url, span) else {
            return;
        };
        let Ok(pattern) = ToolPattern::parse(&name) else { return };
        let act = |verb| Act {
            verb: VerbPattern::One(verb),
            resource: ResourcePattern::Tool(pattern.clone()),
        };
        let mut origin = self.origin(name_span.as_ref(), &act(Verb::Call));
        origin.act = format!("server {name}");
        if let ServerProgram::Url(url) = &program {
            if let Some(rule) = rules.first() {
                let message = format!(
                    "`{}`: a server that is reached by an address has nothing else",
                    rule.origin.act
                );
                let hint = "what it reaches is its `url`, and it reads no files: take the key out";
                return self.error(name_span, &message, Some(hint.into()));
            }
            match self.whole_act(&format!("* {url}")) {
                Ok(act) => {
                    let own = RuleRef {
                        act: act.to_string(),
                        ..origin.clone()
                    };
                    rules = Rule::written(Verdict::Allow, act, &own, None, self.reading);
                }
                Err((message, hint)) => return self.error(name_span, &message, hint),
            }
        } else if let Some((text, span)) = &secret {
            let hint = format!("hand it to the program: `environment = {{ TOKEN = {{ secret = \"{text}\" }} }}`");
            return self.error(span.clone(), "`secret` is for a server with a `url`", Some(hint));
        }
        let server = Server {
            name: name.clone(),
            origin: origin.clone(),
            program,
            environment,
            secret: secret.map(|(name, _)| name),
            limits,
            roots,
            rules,
        };
        for secret in server.secrets() {
            let place = self.place(name_span.as_ref());
            self.file.secrets_named.push((secret.to_owned(), place));
        }
        for (verb, budget, tokens, span) in starts {
            let act = act(verb);
            let written = self.origin(span.as_ref(), &act);
            for mut rule in Rule::written(Verdict::Allow, act, &written, None, self.reading) {
                rule.follows_from = Some(origin.act.clone());
                rule.capability.constraints.limits.budget = budget;
                rule.terms = tokens.map(|most| {
                    std::sync::Arc::new(Terms {
                        tokens: Some(most),
                        ..Terms::default()
                    })
                });
                self.file.rules.push(rule);
            }
        }
        self.file.settings.servers.push(server);
    }

    fn server_program(
        &mut self,
        run: Option<(Vec<Placed>, Option<Span>)>,
        url: Option<Placed>,
        span: Option<Span>,
    ) -> Option<ServerProgram> {
        match (run, url) {
            (Some((words, at)), None) => {
                let words: Vec<String> = words.into_iter().map(|(word, _)| word).collect();
                if words.first().is_none_or(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
                    self.error(
                        at,
                        "`run` names no program",
                        Some("write `run = [\"bank-mcp\", \"--stdio\"]`".into()),
                    );
                    return None;
                }
                Some(ServerProgram::Run(words))
            }
            (None, Some((text, at))) => match HttpUrl::parse(&text) {
                Ok(url) if url.scheme == bailiwick_model::Scheme::Https || url.host.is_localhost() => {
                    if text.contains('*') || url.query().is_some() {
                        let hint = "write it whole, without `?` and `*`";
                        self.error(
                            at,
                            &format!("`{text}` is not one address of a server"),
                            Some(hint.into()),
                        );
                        return None;
                    }
                    Some(ServerProgram::Url(url))
                }
                Ok(_) => {
                    let hint = "write `https://…`; plain `http` is for this machine alone";
                    self.error(at, &format!("`{text}` would be reached without TLS"), Some(hint.into()));
                    None
                }
                Err(error) => {
                    self.error(at, &error.to_string(), None);
                    None
                }
            },
            (both, _) => {
                let message = match both {
                    Some(_) => "a server is a program or an address, not both",
                    None => "a server says not what it is",
                };
                let hint = "write `run = [\"bank-mcp\"]`, or `url = \"https://host/mcp\"`";
                self.error(span, message, Some(hint.into()));
                None
            }
        }
    }

    pub(crate) fn flag(&mut self, item: &Item, key: &str) -> bool {
        item.as_bool().unwrap_or_else(|| {
            let message = format!("`{key}` must be yes or no, not {}", kind(item));
            self.error(item.span(), &message, Some(format!("write `{key} = true`")));
            false
        })
    }

    fn server_variables(&mut self, table: &dyn TableLike) -> BTreeMap<String, ServerVariable> {
        let mut all = BTreeMap::new();
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(|key| key.span());
            if !is_variable(name) {
                self.error(span, &format!("`{name}` is not the name of a variable"), None);
                continue;
            }
            let secret = item.as_table_like().and_then(|table| match table.len() {
                1 => table.get("secret"),
                _ => None,
            });
            let value = match (item.as_str(), secret) {
                (Some(text), _) if !text.contains('\0') => ServerVariable::Text(text.into()),
                (None, Some(secret)) => match self.text_of(secret, "secret") {
                    Some((secret, _)) => ServerVariable::Secret(secret),
                    None => continue,
                },
                _ => {
                    let hint = format!("write `{name} = \"text\"`, or `{name} = {{ secret = \"bank\" }}`");
                    self.error(item.span(), &format!("`{name}` is no text and no secret"), Some(hint));
                    continue;
                }
            };
            all.insert(name.to_owned(), value);
        }
        all
    }

    fn server_limits(&mut self, table: &dyn TableLike) -> ServerLimits {
        let mut limits = ServerLimits::default();
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "start" | "call" => match item.as_str().and_then(seconds_of) {
                    Some(seconds) if key == "start" => limits.start = Some(seconds),
                    Some(seconds) => limits.call = Some(seconds),
                    None => {
                        let hint = format!("write `{key} = \"30 s\"`");
                        self.error(item.span(), &format!("`{key}` is not a length of time"), Some(hint));
                    }
                },
                "bytes" => limits.bytes = self.size(item, "bytes"),
                other => self.unknown(other, span, &["start", "call", "bytes"]),
            }
        }
        limits
    }

    /// A size of more than nothing.
    pub(super) fn size(&mut self, item: &Item, key: &str) -> Option<u64> {
        let number = item
            .as_integer()
            .and_then(|bytes| u64::try_from(bytes).ok())
            .filter(|bytes| *bytes > 0);
        let found = number.or_else(|| item.as_str().and_then(bytes_of));
        if found.is_none() {
            let message = format!("`{key}` is not a size");
            self.error(item.span(), &message, Some(format!("write `{key} = \"1 MiB\"`")));
        }
        found
    }

    /// A count of at least one.
    pub(super) fn count(&mut self, item: &Item, key: &str) -> Option<u64> {
        let found = item
            .as_integer()
            .and_then(|count| u64::try_from(count).ok())
            .filter(|count| *count > 0);
        if found.is_none() {
            self.error(
                item.span(),
                &format!("`{key}` is not a count"),
                Some(format!("write `{key} = 3`")),
            );
        }
        found
    }

    fn sampling(&mut self, table: &dyn TableLike) -> (Budget, Option<u64>) {
        let (mut budget, mut tokens) = (Budget::default(), None);
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "tokens" => tokens = self.count(item, key),
                "requests" => budget.requests = self.count(item, key),
                other => self.unknown(other, span, &["tokens", "requests"]),
            }
        }
        (budget, tokens)
    }
}
