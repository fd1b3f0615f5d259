//! Requests: who wants to do what, to what, with which arguments and which past.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::act::Verb;
use crate::command::Command;
use crate::decimal::Decimal;
use crate::host::Host;
use crate::id::TaskId;
use crate::label::Label;
use crate::path::AbsPath;
use crate::repository::Reference;
use crate::secret::SecretName;
use crate::tool::ToolName;
use crate::url::HttpUrl;

/// What is acted on, in normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Resource {
    /// One file or folder.
    File(AbsPath),
    /// A folder and all below it, as one standing permit.
    Tree(AbsPath),
    /// One HTTP request's URL.
    Url(HttpUrl),
    /// A git repository over HTTP.
    Repository {
        /// Its URL, without `.git`, a slash at the end or a query.
        url: HttpUrl,
        /// What of it.
        reference: Reference,
    },
    /// A named host and port, connected to and passed on unread.
    Endpoint {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// A name that is looked up.
    Name(Host),
    /// A program with its words, and what they come to.
    Command(Command),
    /// A secret, by its name.
    Secret(SecretName),
    /// A server, or what it offers.
    Tool(ToolName),
}

impl Resource {
    /// The host that is reached, for the resources of the network.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Self::Url(url) | Self::Repository { url, .. } => Some(&url.host),
            Self::Endpoint { host, .. } | Self::Name(host) => Some(host),
            Self::File(_) | Self::Tree(_) | Self::Command(_) | Self::Secret(_) | Self::Tool(_) => None,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{path}"),
            Self::Tree(path) if path.as_str() == "/" => f.write_str("/**"),
            Self::Tree(path) => write!(f, "{path}/**"),
            Self::Url(url) => write!(f, "{url}"),
            Self::Repository { url, reference } => match reference {
                Reference::Listed => write!(f, "{url} (what there is)"),
                Reference::Any => write!(f, "{url}"),
                Reference::Named(name) => write!(f, "{url} {name}"),
            },
            Self::Endpoint { host, port: 443 } => write!(f, "{host}"),
            Self::Endpoint { host, port } => write!(f, "{host}:{port}"),
            Self::Name(host) => write!(f, "{host}"),
            Self::Command(command) => write!(f, "{command}"),
            Self::Secret(name) => write!(f, "secret:{name}"),
            Self::Tool(name) => write!(f, "{name}"),
        }
    }
}

/// The value of one argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Argument {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// Yes or no.
    Flag(bool),
    /// The address that will be dialled.
    Address(IpAddr),
    /// A number that is not whole, or too large for [`Whole`](Self::Whole). Of calls of tools only, as are those that follow.
    Number(Decimal),
    /// Nothing, said as such.
    Null,
    /// Values in order.
    List(Vec<Argument>),
    /// Values by name.
    Fields(BTreeMap<String, Argument>),
}

/// As JSON (RFC 8259): how it is shown to people.
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => quoted(text, f),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Address(address) => write!(f, "\"{address}\""),
            Self::Number(number) => write!(f, "{number}"),
            Self::Null => f.write_str("null"),
            Self::List(values) => {
                f.write_str("[")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
            Self::Fields(fields) => {
                f.write_str("{")?;
                for (place, (name, value)) in fields.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    f.write_str(comma)?;
                    quoted(name, f)?;
                    write!(f, ": {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            other if other.is_control() => write!(f, "\\u{:04x}", u32::from(other))?,
            other => write!(f, "{other}")?,
        }
    }
    f.write_str("\"")
}

/// What a gate asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// On whose behalf.
    pub task: TaskId,
    /// What is to be done.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
    /// With which arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, Argument>,
    /// Where its data came from, beyond what the mediator knows of the task.
    #[serde(default, skip_serializing_if = "Label::is_empty")]
    pub label: Label,
}

/// The names of the arguments that requests may carry.
pub mod argument {
    /// The address that will be dialled.
    pub const ADDRESS: &str = "address";
    /// The media type that an HTTP request says its body is of, as it says it: a text. Absent where it says none.
    pub const CONTENT_TYPE: &str = "content-type";
    /// How long an HTTP request says its body is, in bytes: a whole number, 0 where it has none. Absent where it does not say.
    pub const CONTENT_LENGTH: &str = "content-length";
    /// True when an HTTP request brings a login of its own (`Authorization`, `Cookie`).
    pub const CREDENTIAL: &str = "credential";
    /// The full names of the references that a push over HTTP says it changes, apart by blanks: a text. Absent where that was
    /// not read.
    pub const REFERENCES: &str = "references";
    /// All that the agent, or a server, gives with a call of a tool: fields. Its names are the caller's own, so they never
    /// stand beside those of the gate.
    pub const ARGS: &str = "args";
    /// What arguments of a call were chosen from: by the argument's name, the part of an answer with its entries, each with
    /// what rules look at: fields. Only the tool gate puts it together, where it opens a handle.
    pub const CHOSEN: &str = "chosen";
    /// The digest of the definition of the tool that is called or taken, in hex: a text.
    pub const DEFINITION: &str = "definition";
    /// Why the agent says that it makes a call: a text.
    pub const REASON: &str = "reason";
    /// What the options have in common of which a person is to choose one call: a text.
    pub const CHOICE: &str = "choice";
    /// What a server said of a tool before, where it has changed: a text.
    pub const OLD: &str = "old";
    /// What a server says of a tool now: a text.
    pub const NEW: &str = "new";
    /// How many tokens a server has a model write at most: a whole number.
    pub const TOKENS: &str = "tokens";
}

impl Request {
    /// A request without arguments.
    pub fn new(task: TaskId, verb: Verb, resource: Resource) -> Self {
        Self {
            task,
            verb,
            resource,
            arguments: BTreeMap::new(),
            label: Label::default(),
        }
    }

    /// Says which address will be dialled.
    #[must_use]
    pub fn dialling(mut self, address: IpAddr) -> Self {
        self.arguments
            .insert(argument::ADDRESS.into(), Argument::Address(address));
        self
    }

    /// What is given with a call of a tool.
    pub fn args(&self) -> Option<&BTreeMap<String, Argument>> {
        match self.arguments.get(argument::ARGS) {
            Some(Argument::Fields(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The address that will be dialled.
    pub fn address(&self) -> Option<IpAddr> {
        match self.arguments.get(argument::ADDRESS) {
            Some(Argument::Address(address)) => Some(*address),
            _ => None,
        }
    }
}

impl fmt::Display for Request {
    /// The act that is asked for: `VERB RESOURCE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}
