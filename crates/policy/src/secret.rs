//! Reads `[secret.NAME]`: where a value comes from, which requests it is for, and in which place of them it stands.
//!
//! Promises: P2 (a secret is used where every layer lets it be), P4, P7 (a login goes with no request that it was not written
//! for), P9 (a secret stands here by its name only).
//! Trust: only files of the person's and a trusted project's file name sources and requests. What is requested is the agent's.
//! Not here: values (the program), putting them into requests (`proxy`).

use bailiwick_model::{
    ANY_PORT, AbsPath, Act, AddressClass, Argument, Code, Decision, HostPattern, HttpUrl, Layer, Obligation, Place,
    Request, Resource, ResourcePattern, Scheme, SecretName, SecretPattern, TaskId, UrlPattern, Verb, VerbPattern,
    Verdict, argument,
};
use toml_edit::{Item, TableLike};

use crate::diagnostic::Span;
use crate::document::{Reader, kind};
use crate::entry::is_variable;
use crate::policy::Policy;
use crate::renewal::Renewal;
use crate::rule::Rule;
use crate::settings::Settings;

/// The keys of a secret.
const KEYS: &[&str] = &[
    "from",
    "refresh",
    "for",
    "as",
    "user",
    "env",
    "shape",
    "session",
    "own_login",
    "ask",
    "host",
];

/// A secret, by where its value comes from and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Where its value comes from.
    pub from: SecretSource,
    /// How it is renewed, where what it comes from is a refresh token.
    pub renewal: Option<Renewal>,
    /// The host, with a port where it is not the usual one, that a broker's is for.
    pub host: Option<String>,
    /// The user that it belongs to, where a program asks for one.
    pub user: Option<String>,
    /// The requests that it is put into; none for one that only brokers use.
    pub requests: Option<ForRequests>,
}

/// The requests that a secret is put into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForRequests {
    /// Which.
    pub urls: Vec<UrlPattern>,
    /// Where in them it stands.
    pub place: Place,
    /// The variables in which the agent finds the stand-in.
    pub variables: Vec<String>,
    /// How the stand-in begins; found out from the value where nothing is said.
    pub shape: Option<String>,
    /// True when the cookies of its hosts stay on this side.
    pub session: bool,
    /// True when its hosts may be sent other logins, too.
    pub own_login: bool,
}

/// Where a secret's value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The content of a file, without a line break at its end.
    File(AbsPath),
    /// A variable of the person's.
    Variable(String),
    /// The first line that a command of the person's says.
    Command(Vec<String>),
    /// An item of the person's keyring: the one of this label, or the one that has these attributes.
    Keyring(Vec<(String, String)>),
}

/// The attribute that stands for an item's label.
pub const LABEL: &str = "label";

/// As a rule file writes it.
impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{path}"),
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::Command(words) => write!(f, "command:{}", words.join(" ")),
            Self::Keyring(attributes) => match attributes.as_slice() {
                [(key, label)] if key == LABEL => write!(f, "keyring:{label}"),
                all => {
                    let all: Vec<String> = all.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    write!(f, "keyring:{}", all.join(","))
                }
            },
        }
    }
}

impl ForRequests {
    /// True when the secret is for this request.
    pub fn covers(&self, url: &HttpUrl) -> bool {
        let url = url.clone().with_one_loopback();
        self.urls.iter().any(|pattern| pattern.covers(&url))
    }

    /// True when the secret is for some request to the same host and port.
    pub fn is_at(&self, url: &HttpUrl) -> bool {
        self.urls
            .iter()
            .any(|own| own.scheme == url.scheme && own.port == url.port && own.host.covers(&url.host))
    }

    /// In one line: its name, which requests it goes with, where it stands and where the stand-in is found.
    pub fn told(&self, name: &str) -> String {
        let urls: Vec<String> = self.urls.iter().map(ToString::to_string).collect();
        let stand_in = match self.variables.as_slice() {
            [] => String::new(),
            names => format!(", stand-in in {}", names.join(" and ")),
        };
        let session = if self.session { ", cookies kept outside" } else { "" };
        format!("{name} with {} ({}{stand_in}{session})", urls.join(" and "), self.place)
    }

    /// The first of its requests whose connections are not opened, so that nothing can be put in there.
    pub fn unopened(&self, settings: &Settings) -> Option<&UrlPattern> {
        self.urls.iter().find(|pattern| match &pattern.host {
            HostPattern::Exact(host) => pattern.scheme == Scheme::Https && !settings.opens(host, pattern.port),
            _ => false,
        })
    }

    /// How narrowly it is written for this request: literal bytes of host, then of path.
    fn narrowness(&self, url: &HttpUrl) -> (usize, usize) {
        let url = url.clone().with_one_loopback();
        let covering = self.urls.iter().filter(|pattern| pattern.covers(&url));
        let narrow = covering.map(|pattern| (pattern.host.narrowness(), pattern.literal_path_len()));
        narrow.max().unwrap_or_default()
    }
}

impl Policy {
    /// The secrets that requests of a task may have put in: those that no layer withholds, each with what it is for.
    pub fn secrets_for_requests(&self) -> Vec<(SecretName, &Secret, &ForRequests)> {
        let mut found = Vec::new();
        for (name, secret) in &self.settings().secrets {
            if let (Ok(name), Some(requests)) = (SecretName::parse(name), &secret.requests)
                && self.use_of(TaskId([0; 8]), &name).verdict != Verdict::Deny
            {
                found.push((name, secret, requests));
            }
        }
        found
    }

    /// True when a rule denies that a secret is used at all.
    pub fn withholds(&self, secret: &str) -> bool {
        SecretName::parse(secret).is_ok_and(|name| self.use_of(TaskId([0; 8]), &name).code == Code::DeniedByRule)
    }

    fn use_of(&self, task: TaskId, name: &SecretName) -> Decision {
        self.evaluate(&Request::new(task, Verb::Use, Resource::Secret(name.clone())))
    }

    /// What secrets add to the answer about a request that may be sent: which are put in, the narrowest first, and that a
    /// login of its own is refused beside them.
    pub(crate) fn with_secrets(&self, request: &Request, decision: Decision) -> Decision {
        let Resource::Url(url) = &request.resource else {
            return decision;
        };
        if decision.verdict == Verdict::Deny || self.settings().secrets.is_empty() {
            return decision;
        }
        let brings_its_own = request.arguments.get(argument::CREDENTIAL) == Some(&Argument::Flag(true));
        let mut uses = Vec::new();
        for (name, secret) in &self.settings().secrets {
            let (Ok(name), Some(requests)) = (SecretName::parse(name), &secret.requests) else {
                continue;
            };
            if !requests.is_at(url) {
                continue;
            }
            let used = self.use_of(request.task, &name);
            if used.verdict == Verdict::Deny {
                continue;
            }
            if brings_its_own && !requests.own_login {
                let text = format!(
                    "`{}` has the login of `secret:{name}`, and the request brings another",
                    url.host
                );
                return Decision::deny(Code::StrangersLogin, text);
            }
            if requests.covers(url) {
                uses.push((
                    std::cmp::Reverse(requests.narrowness(url)),
                    name,
                    requests.place.clone(),
                    used,
                ));
            }
        }
        uses.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        let mut decision = decision;
        for (_, secret, place, used) in uses {
            decision = decision.and(used);
            decision.obligations.push(Obligation::Inject { secret, place });
        }
        decision
    }
}

impl Reader<'_> {
    /// `[secret.NAME]`.
    pub fn secrets(&mut self, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(|key| key.span());
            if let Err(error) = SecretName::parse(name) {
                self.error(span, &error.to_string(), None);
                continue;
            }
            let key = format!("secret.{name}");
            self.table(item, &key, span.clone(), |reader, table| {
                reader.secret(name, table, span)
            });
        }
    }

    fn secret(&mut self, name: &str, table: &dyn TableLike, span: Option<Span>) {
        let (mut from, mut host, mut user, mut place) = (None, None, None, None);
        let (mut urls, mut variables, mut shape) = (Vec::new(), Vec::new(), None);
        let (mut session, mut own_login, mut ask) = (false, false, false);
        let mut renewal = None;
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "from" => from = self.text_of(item, "from"),
                "refresh" => {
                    let faults = self.diagnostics.len();
                    self.table(item, "refresh", span, |reader, table| {
                        renewal = reader.renewal(table, item.span())
                    });
                    if self.diagnostics.len() > faults {
                        return;
                    }
                }
                "host" => host = self.text_of(item, "host").map(|(text, _)| text.to_ascii_lowercase()),
                "user" => user = self.text_of(item, "user").map(|(text, _)| text),
                "for" => urls = self.one_or_more(item, "for"),
                "as" => place = self.text_of(item, "as"),
                "env" => variables = self.one_or_more(item, "env"),
                "shape" => shape = self.text_of(item, "shape"),
                "session" => session = self.yes_or_no(item, "session"),
                "own_login" => own_login = self.yes_or_no(item, "own_login"),
                "ask" => ask = self.yes_or_no(item, "ask"),
                other => self.unknown(other, span, KEYS),
            }
        }
        let Some((text, from_span)) = from else {
            let hint = "add `from = \"keyring:token\"`, `\"file:~/.config/token\"`, `\"env:NAME\"` or `\"command:pass show x\"`";
            let message = format!("the secret `{name}` comes from nowhere");
            return self.error(span, &message, Some(hint.into()));
        };
        let wrong = |text: &Option<String>| {
            text.as_ref()
                .is_some_and(|text| text.contains(char::is_control) || text.is_empty())
        };
        if wrong(&host) || wrong(&user) {
            return self.error(span, "`host` and `user` are one line each", None);
        }
        let from = match self.source(&text) {
            Ok(from) => from,
            Err((message, hint)) => return self.error(from_span, &message, Some(hint.into())),
        };
        let requests = match (urls.is_empty(), place) {
            (true, None) if variables.is_empty() && shape.is_none() && !session && !own_login && !ask => None,
            (true, place) => {
                let span = place.map_or(span, |(_, span)| span);
                let hint = "add `for = [\"https://api.example.com/**\"]`";
                let message = format!("the secret `{name}` is for no request");
                return self.error(span, &message, Some(hint.into()));
            }
            (false, None) => {
                let hint = "add `as = \"bearer\"`, or another place";
                let message = format!("the secret `{name}` has no place in its requests");
                return self.error(span, &message, Some(hint.into()));
            }
            (false, Some((place, place_span))) => {
                let place = match Place::read(&place, user.as_deref()) {
                    Ok(place) => place,
                    Err(error) => return self.error(place_span, &error.to_string(), None),
                };
                if renewal.is_some() && matches!(place, Place::Signature { .. }) {
                    let message = "a key that signs is not renewed: take `refresh` out";
                    return self.error(place_span, message, None);
                }
                let mut patterns = Vec::new();
                for (text, span) in urls {
                    match pattern_of(&text) {
                        Ok(pattern) => patterns.push(pattern),
                        Err((message, hint)) => self.error(span, &message, Some(hint.into())),
                    }
                }
                for (variable, span) in &variables {
                    if !is_variable(variable) {
                        let message = format!("`{variable}` is not the name of a variable");
                        self.error(span.clone(), &message, None);
                    }
                }
                if let Some((text, span)) = &shape
                    && !(text.len() <= 32
                        && text
                            .bytes()
                            .all(|byte| byte.is_ascii_graphic() && !b"\"\\%&=:".contains(&byte)))
                {
                    let hint = "write how such a token begins, as in `shape = \"ghp_\"`";
                    self.error(
                        span.clone(),
                        &format!("`{text}` is no beginning of a token"),
                        Some(hint.into()),
                    );
                }
                Some(ForRequests {
                    urls: patterns,
                    place,
                    variables: variables.into_iter().map(|(name, _)| name).collect(),
                    shape: shape.map(|(text, _)| text),
                    session,
                    own_login,
                })
            }
        };
        if requests.is_some() {
            self.used(name, ask, span);
        }
        let secret = Secret {
            from,
            renewal,
            host,
            user,
            requests,
        };
        self.file.settings.secrets.insert(name.into(), secret);
    }

    /// A project's own secret is there to be used; that of an outer layer a context must name.
    fn used(&mut self, name: &str, ask: bool, span: Option<Span>) {
        if self.layer != Layer::Context {
            if ask {
                let hint = format!("write `ask = [\"use secret:{name}\"]` at the top");
                self.error(span, "`ask` stands in a project's secret alone", Some(hint));
            }
            return;
        }
        let Ok(secret) = SecretName::parse(name) else { return };
        let act = Act {
            verb: VerbPattern::One(Verb::Use),
            resource: ResourcePattern::Secret(SecretPattern::One(secret)),
        };
        let origin = self.origin(span.as_ref(), &act);
        let effect = if ask { Verdict::Ask } else { Verdict::Allow };
        let rules = Rule::written(effect, act, &origin, None, self.reading);
        self.file.rules.extend(rules);
    }

    /// One text, or a list of texts.
    fn one_or_more(&mut self, item: &Item, what: &str) -> Vec<(String, Option<Span>)> {
        match item.as_str() {
            Some(text) => vec![(text.into(), item.span())],
            None => self.texts_of(item, what),
        }
    }

    fn yes_or_no(&mut self, item: &Item, what: &str) -> bool {
        item.as_bool().unwrap_or_else(|| {
            let message = format!("`{what}` must be yes or no, not {}", kind(item));
            self.error(item.span(), &message, Some(format!("write `{what} = true`")));
            false
        })
    }

    pub(crate) fn source(&self, text: &str) -> Result<SecretSource, (String, &'static str)> {
        const FORMS: &str = "write `keyring:token`, `file:~/.config/token`, `env:NAME` or `command:pass show x`";
        let wrong = || (format!("`{text}` is no place that a secret comes from"), FORMS);
        let (form, rest) = text.split_once(':').ok_or_else(wrong)?;
        match form {
            "file" => {
                let path = self.anchors.path(rest).map_err(|error| (error.to_string(), FORMS))?;
                path.as_tree().map(SecretSource::File).ok_or_else(wrong)
            }
            "env" if is_variable(rest) => Ok(SecretSource::Variable(rest.into())),
            "command" => match bailiwick_model::words_of(rest) {
                Ok(words) if !words.is_empty() => Ok(SecretSource::Command(words)),
                Ok(_) => Err(wrong()),
                Err(error) => Err((error.to_string(), "name one command without a shell's signs")),
            },
            "keyring" if !rest.is_empty() && !rest.contains(char::is_control) => keyring(rest).ok_or_else(|| {
                let hint = "write `keyring:LABEL`, or attributes as in `keyring:service=github,user=dana`";
                (format!("`{text}` names no item of a keyring"), hint)
            }),
            _ => Err(wrong()),
        }
    }
}

fn keyring(text: &str) -> Option<SecretSource> {
    if !text.contains('=') {
        return Some(SecretSource::Keyring(vec![(LABEL.into(), text.into())]));
    }
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        (!key.is_empty() && !value.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    text.split(',')
        .map(pair)
        .collect::<Option<Vec<_>>>()
        .map(SecretSource::Keyring)
}

/// Requests that a login may go with: over TLS, or to this machine; to hosts that are named.
fn pattern_of(text: &str) -> Result<UrlPattern, (String, &'static str)> {
    const HINT: &str = "write `https://api.example.com/**`: scheme, host and path";
    let pattern = UrlPattern::parse(text).map_err(|error| (error.to_string(), HINT))?;
    let pattern = pattern.with_one_loopback();
    if matches!(pattern.host, HostPattern::Any) || pattern.port == ANY_PORT {
        return Err((format!("`{text}` would send a secret to any host or port"), HINT));
    }
    let here = match &pattern.host {
        HostPattern::Exact(host) => {
            host.is_localhost()
                || host
                    .address()
                    .is_some_and(|address| AddressClass::of(address) == AddressClass::Loopback)
        }
        _ => false,
    };
    if pattern.scheme == Scheme::Http && !here {
        let hint = "write `https://…`: without TLS a secret goes to this machine alone";
        return Err((format!("`{text}` would send a secret where others can read it"), hint));
    }
    Ok(pattern)
}
