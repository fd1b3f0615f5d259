//! Orders to the launcher: the fence as it is to be, in words that need no policy to be carried out.
//!
//! A plan says everything: what is not in it does not exist inside. It is data from the daemon, which is trusted;
//! what the launcher finds on disk while it carries it out is not.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bailiwick_model::{AbsPath, Code, Level, PathPattern, TaskId};
use serde::{Deserialize, Serialize};

use crate::permit::Spent;
use crate::start::Judged;

/// Starts programs in fences.
pub trait Launch {
    /// What is kept of a running program.
    type Running;

    /// Starts a program in a fence. `grants` are the spent permits of the trees that the plan hands out: without them
    /// there is nothing to hand out.
    fn launch(&mut self, grants: Vec<Spent>, plan: &FencePlan) -> Result<Self::Running, LaunchFault>;
}

/// The descriptor on which a program is handed its secret.
pub const SECRET: i32 = 9;

/// A fence, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FencePlan {
    /// Whose task it is, for what the supervisor asks.
    pub task: TaskId,
    /// What the fence is made of.
    pub level: Level,
    /// The program and its arguments. The first word is looked up inside, along the `PATH` of `environment`.
    pub command: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// Where the program starts.
    pub directory: AbsPath,
    /// Trees whose files are asked about one by one, at their own places.
    pub asked: Vec<AbsPath>,
    /// The home below which nothing is shown; what is looked for there and is there outside is put on record.
    pub sought: Option<Sought>,
    /// What is seen of the machine's files, and how.
    pub binds: Vec<Bind>,
    /// Files made for the fence (path, content): `/etc/hosts` and the like. Read-only.
    pub files: Vec<(AbsPath, Content)>,
    /// How many contents come along as descriptors.
    pub handed: usize,
    /// Folders inside that are private scratch, empty at the start, gone at the end: `/tmp` and the like.
    pub scratch: Vec<AbsPath>,
    /// The scratch folder into which files can be put from outside while the program runs. One of `scratch`.
    pub handover: Option<AbsPath>,
    /// Symbolic links in scratch folders (where, to what): how a fence that mounts nothing shows the home's trees in a
    /// home of its own.
    pub links: Vec<(AbsPath, AbsPath)>,
    /// What may not be read or changed inside the binds.
    pub protected: Vec<Protected>,
    /// True when every call that opens a file is held, at level `namespace` too: what is protected is so also where it is
    /// made or replaced from outside.
    pub strict: bool,
    /// Which starts of programs are asked about.
    pub judged: Judged,
    /// Commands that run outside, as patterns.
    pub brokered: Vec<String>,
    /// True where a secret comes along: the program has it as descriptor [`SECRET`].
    pub secret: bool,
    /// Grammars of the person's, by which starts are read beside the shipped ones: the name of each and its text.
    pub tables: Vec<(String, String)>,
    /// Who the program is, inside and outside.
    pub identity: IdMap,
    /// Sockets that listen inside and are served outside, in the order in which they are handed back.
    pub listen: Vec<Listen>,
    /// The ports on which rules name a host outside; none where that may be any. A connection to another port of a host
    /// outside is refused at once.
    pub ports: Option<Vec<u16>>,
    /// Limits.
    pub limits: Limits,
    /// What the program's input and output are.
    pub stdio: Stdio,
    /// The host name inside.
    pub hostname: String,
}

impl FencePlan {
    /// True when it needs the server of files, and so that server's line to the mediator.
    pub fn is_served(&self) -> bool {
        !self.asked.is_empty() || self.sought.is_some()
    }
}

/// What a file that is made for the fence holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// This text.
    Text(String),
    /// What a descriptor holds that comes along: too much for a frame. Several files may hold the same.
    Handed(usize),
    /// These bytes: what came along, once it has been read. Never sent.
    #[serde(skip)]
    Bytes(Arc<[u8]>),
}

impl Content {
    /// The bytes. None of what has not been read yet.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Handed(_) => &[],
        }
    }
}

impl<T: Into<String>> From<T> for Content {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// The person's home, which is scratch inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sought {
    /// Where it lies. One of the scratch folders.
    pub home: AbsPath,
    /// Names in it that are never told: what is granted lies there.
    pub silent: Vec<String>,
}

/// A file or folder of the machine that is seen inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// Where it lies outside.
    pub source: AbsPath,
    /// Where it is seen inside.
    pub target: AbsPath,
    /// What may be done there.
    pub mode: BindMode,
    /// True when the person owns it, so that as root it is mapped to the fence's identity.
    pub own: bool,
    /// True when a missing source is left out; false when it is a fault.
    pub optional: bool,
}

/// What may be done in a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindMode {
    /// Read, list and run.
    Read,
    /// Also write, make and remove.
    Write,
}

/// What may not be touched inside a bind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// What.
    pub pattern: PathPattern,
    /// How far.
    pub protection: Protection,
}

/// How far something is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Read, but not changed, where it is a file; a folder of the name is not meant.
    GuardFile,
    /// Read, but not changed.
    Guard,
    /// Neither read nor changed.
    Hide,
}

/// Who the program is. Inside it is never 0, and it is never 0 outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdMap {
    /// User and group inside.
    pub inside: (u32, u32),
    /// User and group outside.
    pub outside: (u32, u32),
    /// The owner on disk whose files are handed to `outside` by an idmapped mount; none when that is `outside` itself.
    pub owner: Option<(u32, u32)>,
}

/// What is served inside from outside: mostly a socket that listens on the loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// The address inside; unspecified where it is not one.
    pub address: Ipv4Addr,
    /// The port inside; 0 where it is not one.
    pub port: u16,
    /// What comes in.
    pub kind: ListenKind,
}

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListenKind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
    /// TCP to every address that is not the fence's own. Connections are handed over one by one, each with the address that
    /// was asked for, and what was refused before that ([`Handed`](crate::Handed)).
    Elsewhere,
    /// The heads of datagrams that are meant for an address outside, and go nowhere. Level `namespace` only.
    Strays,
}

/// A port of the machine's loopback that is served at the same port inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopbackPort {
    /// The port.
    pub port: u16,
    /// True when HTTP is spoken there and each request is judged; false for a plain connection.
    pub http: bool,
}

/// Limits of a fence. Absent means the machine's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory in bytes: of all together where there is a control group, else of each process's data.
    pub memory: Option<u64>,
    /// Processes and threads of all together.
    pub processes: Option<u64>,
}

/// What the program's input and output are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stdio {
    /// A terminal of its own.
    Terminal {
        /// Rows.
        rows: u16,
        /// Columns.
        columns: u16,
    },
    /// Three pipes, handed over with the order: input, output, errors.
    Pipes,
}

/// What fence is in force, read back from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FenceReport {
    /// The parts in force, one word each: `landlock-7`, `seccomp`, `namespaces`, `cgroup` or `rlimits`.
    pub parts: Vec<String>,
    /// How many places were found and are protected.
    pub protected: u64,
    /// Optional binds whose source is missing.
    pub missing: Vec<AbsPath>,
    /// Warnings for the person, one line each.
    pub warnings: Vec<String>,
}

/// Says why a fence could not be put up. Nothing runs then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{what}{}{cause}", if .cause.is_empty() { "" } else { ": " })]
#[serde(deny_unknown_fields)]
pub struct LaunchFault {
    /// The kind.
    pub code: Code,
    /// What could not be done, in the person's words.
    pub what: String,
    /// Why.
    pub cause: String,
    /// What to do about it; may be empty.
    pub hint: String,
}
