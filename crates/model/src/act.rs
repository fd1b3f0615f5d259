//! Acts: how a person writes what may be done, everywhere the same: `VERB RESOURCE`.
//!
//! Promises: P4 (an unreadable act is an error that says what was expected). Trust: acts come from rule files and
//! command lines of the person; an untrusted project's file may hold any text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::command_pattern::{CommandError, CommandPattern};
use crate::host_pattern::{HostPattern, split_port};
use crate::path::AbsPath;
use crate::pattern::{ANY_PORT, PathPattern, PatternError, UrlPattern, refuse_other_forms};
use crate::repository::RepositoryPattern;
use crate::secret::{SecretError, SecretPattern};
use crate::tool::{ToolError, ToolPattern};

/// An HTTP method (RFC 9110, section 9), upper-case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Method(String);

impl Method {
    /// Reads a method: 1 to 24 ASCII letters or hyphens, upper-case (methods are case-sensitive).
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=24).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        fits.then(|| Self(text.into()))
    }

    /// The method as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for methods that ask for nothing to be changed (RFC 9110, section 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self.0.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an HTTP method"))
    }
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads a file or lists a folder.
    Read,
    /// Changes a file.
    Write,
    /// Makes a new file or folder.
    Create,
    /// Removes a file or folder.
    Delete,
    /// Keeps a folder of the context's own at a place: the person's own folder of that name is neither shown nor written.
    Keep,
    /// Starts a program.
    Run,
    /// Has a program run outside, in a fence of its own and with its own authority.
    Broker,
    /// Sends an HTTP request.
    Http(Method),
    /// Fetches from a git repository over HTTP.
    Fetch,
    /// Changes references of a git repository over HTTP.
    Push,
    /// Opens a connection to a named host that is passed on unread.
    Tunnel,
    /// Looks a name up.
    Resolve,
    /// Has a secret put into requests, by the gate that sends them.
    Use,
    /// Calls a tool of a server.
    Call,
    /// Reads a resource that a server offers.
    Open,
    /// Has a server make a prompt.
    Prompt,
    /// Lets a server have the agent's model write something.
    Sample,
    /// Lets a server ask whoever works with the agent for input.
    Elicit,
    /// Tells a server which folders the agent works in.
    Roots,
    /// Takes what a server says of a tool, where that is new or has changed.
    Accept,
}

impl Verb {
    /// The verb as it stands in acts.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Keep => "keep",
            Self::Run => "run",
            Self::Broker => "broker",
            Self::Http(method) => method.as_str(),
            Self::Fetch => "fetch",
            Self::Push => "push",
            Self::Tunnel => "tunnel",
            Self::Resolve => "resolve",
            Self::Use => "use",
            Self::Call => "call",
            Self::Open => "open",
            Self::Prompt => "prompt",
            Self::Sample => "sample",
            Self::Elicit => "elicit",
            Self::Roots => "roots",
            Self::Accept => "accept",
        }
    }

    /// True for the verbs of programs.
    pub fn is_command(&self) -> bool {
        matches!(self, Self::Run | Self::Broker)
    }

    /// True for the verbs of servers and their tools.
    pub fn is_tool(&self) -> bool {
        matches!(
            self,
            Self::Call | Self::Open | Self::Prompt | Self::Sample | Self::Elicit | Self::Roots | Self::Accept
        )
    }

    /// True for the verbs of files.
    pub fn is_file(&self) -> bool {
        matches!(
            self,
            Self::Read | Self::Write | Self::Create | Self::Delete | Self::Keep
        )
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = ActError;
    fn from_str(text: &str) -> Result<Self, ActError> {
        Ok(match text {
            "read" => Self::Read,
            "write" => Self::Write,
            "create" => Self::Create,
            "delete" => Self::Delete,
            "keep" => Self::Keep,
            "run" => Self::Run,
            "broker" => Self::Broker,
            "fetch" => Self::Fetch,
            "push" => Self::Push,
            "tunnel" => Self::Tunnel,
            "resolve" => Self::Resolve,
            "use" => Self::Use,
            "call" => Self::Call,
            "open" => Self::Open,
            "prompt" => Self::Prompt,
            "sample" => Self::Sample,
            "elicit" => Self::Elicit,
            "roots" => Self::Roots,
            "accept" => Self::Accept,
            other => Self::Http(Method::parse(other).ok_or_else(|| ActError::Verb(other.into()))?),
        })
    }
}

impl Serialize for Verb {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Verb {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// One verb, or any (`*`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VerbPattern {
    /// Any verb that the resource knows.
    Any,
    /// One verb; `write` covers `create` and `delete` too.
    One(Verb),
}

impl VerbPattern {
    /// True when the pattern covers this verb.
    pub fn covers(&self, verb: &Verb) -> bool {
        match self {
            Self::Any => true,
            Self::One(Verb::Write) => matches!(verb, Verb::Write | Verb::Create | Verb::Delete),
            Self::One(own) => own == verb,
        }
    }
}

impl fmt::Display for VerbPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(verb) => write!(f, "{verb}"),
        }
    }
}

/// What is acted on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourcePattern {
    /// Files and folders.
    Path(PathPattern),
    /// HTTP requests.
    Url(UrlPattern),
    /// Git repositories over HTTP, and their references.
    Repository(Box<RepositoryPattern>),
    /// Connections to a named host, passed on unread; also look-ups of its name.
    Endpoint {
        /// The host.
        host: HostPattern,
        /// The port, or [`ANY_PORT`].
        port: u16,
    },
    /// Any program with any words (`run **`, `broker **`).
    AnyCommand,
    /// Programs with certain words.
    Command(Box<CommandPattern>),
    /// Secrets.
    Secret(SecretPattern),
    /// Servers, and what they offer.
    Tool(ToolPattern),
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(pattern) => write!(f, "{pattern}"),
            Self::Url(pattern) => write!(f, "{pattern}"),
            Self::Repository(pattern) => write!(f, "{pattern}"),
            Self::Endpoint { host, port: 443 } => write!(f, "{host}"),
            Self::Endpoint { host, port: ANY_PORT } => write!(f, "{host}:*"),
            Self::Endpoint { host, port } => write!(f, "{host}:{port}"),
            Self::AnyCommand => f.write_str("**"),
            Self::Command(pattern) => write!(f, "{pattern}"),
            Self::Secret(pattern) => write!(f, "{pattern}"),
            Self::Tool(pattern) => write!(f, "{pattern}"),
        }
    }
}

/// Says why a text is not an act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// There are no two words.
    #[error("`{0}` is not an act: write `VERB RESOURCE`, for instance `read ~/notes` or `GET http://host/path`")]
    Form(String),
    /// The verb is none.
    #[error("`{0}` is not a verb")]
    Verb(String),
    /// The resource cannot be read.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A relative path stands where nothing says what it is relative to.
    #[error("`{0}` is relative, and here there is no project that it could be relative to")]
    Relative(String),
    /// The verb and the resource do not go together.
    #[error("`{verb}` does not go with `{resource}`")]
    Mismatch {
        /// The verb.
        verb: String,
        /// The resource.
        resource: String,
    },
    /// It names no command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// What is fetched of a repository cannot be said.
    #[error("`{0}` names branches: which are fetched is not seen, so a fetch is of a whole repository")]
    Fetched(String),
    /// It names no secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It names no tool.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// What `.` and `~` stand for while a rule file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchors {
    /// The root folder of the context; none where rules hold for all contexts.
    pub root: Option<AbsPath>,
    /// The person's home folder.
    pub home: AbsPath,
}

impl Anchors {
    /// Reads a path pattern: absolute, `~/…`, relative to the root, or `**/…` for anywhere.
    pub fn path(&self, text: &str) -> Result<PathPattern, ActError> {
        refuse_other_forms(text)?;
        let relative = |root: &AbsPath, rest: &str| format!("{}/{rest}", root.as_str());
        let absolute = if text.starts_with('/') {
            text.to_owned()
        } else if text == "~" {
            self.home.as_str().to_owned()
        } else if let Some(rest) = text.strip_prefix("~/") {
            relative(&self.home, rest)
        } else if text == "**" || text.starts_with("**/") {
            format!("/{text}")
        } else {
            relative(self.root.as_ref().ok_or_else(|| ActError::Relative(text.into()))?, text)
        };
        Ok(PathPattern::parse(&absolute)?)
    }
}

/// One act: a verb and what it is done to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Act {
    /// The verb.
    pub verb: VerbPattern,
    /// The resource.
    pub resource: ResourcePattern,
}

impl Act {
    /// Reads `VERB RESOURCE`.
    pub fn parse(text: &str, anchors: &Anchors) -> Result<Self, ActError> {
        let (verb, resource) = text.trim().split_once(' ').ok_or_else(|| ActError::Form(text.into()))?;
        let resource = resource.trim();
        let verb = if verb == "*" {
            VerbPattern::Any
        } else {
            VerbPattern::One(verb.parse()?)
        };
        Self::of(verb, resource, anchors)
    }

    /// Puts an act together from a verb and the text of a resource.
    pub fn of(verb: VerbPattern, resource: &str, anchors: &Anchors) -> Result<Self, ActError> {
        let mismatch = |verb: &VerbPattern| ActError::Mismatch {
            verb: verb.to_string(),
            resource: resource.into(),
        };
        let is_url = resource.contains("://");
        let pattern = match &verb {
            VerbPattern::One(Verb::Run | Verb::Broker) if resource == "**" => ResourcePattern::AnyCommand,
            VerbPattern::One(Verb::Run | Verb::Broker) => {
                ResourcePattern::Command(Box::new(CommandPattern::parse(resource, anchors)?))
            }
            VerbPattern::One(Verb::Use) => {
                let name = resource.strip_prefix("secret:").ok_or_else(|| mismatch(&verb))?;
                ResourcePattern::Secret(SecretPattern::parse(name)?)
            }
            VerbPattern::Any if resource.starts_with("secret:") => {
                ResourcePattern::Secret(SecretPattern::parse(resource.trim_start_matches("secret:"))?)
            }
            VerbPattern::One(one) if one.is_tool() => {
                let pattern = ToolPattern::parse(resource)?;
                // Some verbs are about a server, some about what it offers.
                let of_server = matches!(one, Verb::Sample | Verb::Elicit | Verb::Roots);
                let fits = pattern
                    .as_name()
                    .map_or_else(|| !of_server || !resource.contains('/'), |named| named.fits(one));
                if !fits {
                    return Err(mismatch(&verb));
                }
                ResourcePattern::Tool(pattern)
            }
            VerbPattern::One(Verb::Fetch | Verb::Push) if !is_url => return Err(mismatch(&verb)),
            VerbPattern::One(Verb::Fetch | Verb::Push) => {
                let pattern = RepositoryPattern::parse(resource)?;
                if pattern.names_references() && verb == VerbPattern::One(Verb::Fetch) {
                    return Err(ActError::Fetched(resource.into()));
                }
                ResourcePattern::Repository(Box::new(pattern))
            }
            VerbPattern::One(Verb::Tunnel | Verb::Resolve) if is_url => return Err(mismatch(&verb)),
            VerbPattern::One(Verb::Tunnel | Verb::Resolve) => {
                let (host, port) = split_port(resource, 443)?;
                ResourcePattern::Endpoint {
                    host: HostPattern::parse(host)?,
                    port,
                }
            }
            VerbPattern::One(Verb::Http(_)) if !is_url => return Err(mismatch(&verb)),
            VerbPattern::Any | VerbPattern::One(Verb::Http(_)) if is_url => {
                ResourcePattern::Url(UrlPattern::parse(resource)?)
            }
            _ if is_url => return Err(mismatch(&verb)),
            _ => ResourcePattern::Path(anchors.path(resource)?),
        };
        Ok(Self {
            verb,
            resource: pattern,
        })
    }
}

/// As its text.
impl Serialize for Act {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From its text in normal form: nothing in it is relative.
impl<'de> Deserialize<'de> for Act {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nowhere = Anchors {
            root: None,
            home: AbsPath::root(),
        };
        Self::parse(&text, &nowhere).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors() -> Anchors {
        Anchors {
            root: AbsPath::new("/p").ok(),
            home: AbsPath::new("/home/dana").unwrap(),
        }
    }

    #[test]
    fn acts_read_and_print_in_one_form() {
        for (text, want) in [
            ("read .", "read /p"),
            ("write ~/x/../y/", "write /home/dana/y"),
            ("* **/.env", "* /**/.env"),
            ("GET HTTP://A.Test/x/**", "GET http://a.test/x/**"),
            ("* https://**", "* https://**/**"),
            ("fetch https://h.test/a/b.git", "fetch https://h.test/a/b"),
            (
                "push https://h.test/a/b.git/ agent/*",
                "push https://h.test/a/b agent/*",
            ),
            ("push https://h.test/** refs/heads/main", "push https://h.test/** main"),
            ("push https://h.test **", "push https://h.test/**"),
            ("tunnel API.test", "tunnel api.test"),
            ("tunnel api.test:22", "tunnel api.test:22"),
            ("tunnel **:*", "tunnel **:*"),
            ("run **", "run **"),
            ("use secret:github", "use secret:github"),
            ("call bank/send_payment", "call bank/send_payment"),
            ("call hr/*", "call hr/*"),
            ("call *", "call *"),
            ("open notes/file:///a/**", "open notes/file:///a/**"),
            ("sample bank", "sample bank"),
            ("* secret:*", "* secret:*"),
            ("broker  git push", "broker git push"),
            ("broker **", "broker **"),
            ("run  git   push 'a b' **", "run git push 'a b' **"),
            ("run ./build.sh https://x.test/", "run /p/build.sh https://x.test/"),
        ] {
            assert_eq!(
                Act::parse(text, &anchors()).map(|act| act.to_string()).as_deref(),
                Ok(want),
                "{text}"
            );
        }
    }

    #[test]
    fn p4_what_does_not_fit_is_an_error() {
        for bad in [
            "read",
            "call bank",
            "call Bank/x",
            "sample bank/x",
            "roots */x",
            "raed x",
            "get http://a/",
            "GET /x",
            "read http://a/",
            "tunnel https://a/",
            "run git log && rm x",
            "run @all",
            "run ** x",
            "tunnel a:0",
            "push h.test/a",
            "fetch https://h.test/a main",
            "push https://h.test/a?x main",
            "use github",
            "use secret:a b",
        ] {
            assert!(Act::parse(bad, &anchors()).is_err(), "{bad}");
        }
        let nowhere = Anchors {
            root: None,
            ..anchors()
        };
        assert!(matches!(Act::parse("read .", &nowhere), Err(ActError::Relative(_))));
    }
}
