//! What daemon and launcher say to each other, and the check of an order before anything is done.
//!
//! Promises: P4 (another version, an unknown field, an order that does not fit: refused), P13.
//! Trust: orders come from the daemon, which is trusted; they are checked all the same, so that carrying them out has
//! nothing left to refuse but what the machine refuses.
//! Not here: the bytes (`channel`).

use bailiwick_gate::{Bind, Content, FencePlan, FenceReport, LaunchFault, ListenKind, PROTOCOL, Stdio};
use bailiwick_model::{AbsPath, Level};
use serde::{Deserialize, Serialize};

use crate::fault::failed;
use crate::lookout::Watch;

/// Most sockets that may be asked for: they are handed over in one message, beside a terminal.
const MAX_LISTEN: usize = 64;

/// Most contents of files that come along as descriptors.
const MAX_HANDED: usize = 16;

/// Largest content of a file that comes along, in bytes.
pub(crate) const MAX_CONTENT: u64 = 16 << 20;

/// Most trees that are asked about: each has threads of its own.
const MAX_ASKED: usize = 32;

/// What the daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Say {
    /// Starts the program. The supervisor's line to the mediator comes along, that to brokers, that of the server of ask trees
    /// where there are any, a secret, contents of files, and three pipes where the plan says so.
    Order {
        /// The version of these words.
        protocol: u32,
        /// The fence.
        plan: Box<FencePlan>,
    },
    /// Sends a signal to the program and its process group.
    Signal {
        /// The signal's number.
        number: i32,
    },
    /// Has the first process do something inside, while the program runs.
    Errand {
        /// Comes back with the answer.
        call: u64,
        /// What.
        errand: Errand,
    },
}

/// What the first process does inside for the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Errand {
    /// Connects to a port of the loopback inside, and hands the socket out.
    Connect {
        /// The port.
        port: u16,
    },
    /// Makes a folder in the hand-over folder.
    PlaceFolder {
        /// Its path there.
        path: String,
    },
    /// Puts a copy of a file into the hand-over folder. The content's descriptor comes along.
    PlaceFile {
        /// Its path there.
        path: String,
        /// True when it may be run.
        executable: bool,
    },
}

/// What the launcher says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Hear {
    /// The program runs. The listening sockets come along, then the terminal.
    Started {
        /// What is in force.
        report: FenceReport,
        /// How many sockets come along.
        listeners: usize,
        /// Whether a terminal comes along.
        terminal: bool,
    },
    /// The fence's mounts come along: whoever holds them takes them down, and no process of the fence need wait for that
    /// when it ends.
    Mounts,
    /// What is shown, and what is protected there: it is looked out for what comes later.
    Shown {
        /// The folders and the patterns; none where nothing can come.
        watch: Option<Box<Watch>>,
    },
    /// Nothing runs.
    Fault {
        /// Why.
        fault: LaunchFault,
    },
    /// What became of an errand. After [`Errand::Connect`] the socket comes along, unless it failed.
    Done {
        /// The number that the errand came with.
        call: u64,
        /// Whether a descriptor comes along.
        descriptor: bool,
        /// Why it failed.
        failed: Option<String>,
    },
    /// The program has ended, and so has everything in its fence.
    Exited {
        /// Its exit code, or 128 and the number of the signal that ended it.
        status: i32,
    },
}

impl Say {
    /// An order in this build's version.
    pub(crate) fn order(plan: &FencePlan) -> Self {
        Self::Order {
            protocol: PROTOCOL,
            plan: Box::new(plan.clone()),
        }
    }

    /// How many descriptors come along once the program runs.
    pub(crate) fn brings(&self) -> usize {
        let brings = matches!(
            self,
            Self::Errand {
                errand: Errand::PlaceFile { .. },
                ..
            }
        );
        usize::from(brings)
    }
}

impl Hear {
    /// How many descriptors come along.
    pub(crate) fn brings(&self) -> usize {
        match self {
            Self::Started {
                listeners, terminal, ..
            } => listeners.saturating_add(usize::from(*terminal)),
            Self::Done { descriptor, .. } => usize::from(*descriptor),
            Self::Mounts => 1,
            Self::Shown { .. } | Self::Fault { .. } | Self::Exited { .. } => 0,
        }
    }
}

/// Checks an order; changes nothing.
pub(crate) fn check(protocol: u32, plan: &FencePlan, descriptors: usize) -> Result<(), LaunchFault> {
    let refuse = |cause: String| Err(failed("cannot carry out the order", cause));
    if protocol != PROTOCOL {
        return refuse(format!(
            "it is written in version {protocol}, this build reads {PROTOCOL}"
        ));
    }
    // The lines come first.
    let pipes = if plan.stdio == Stdio::Pipes { 3 } else { 0 };
    let wanted = 2usize
        .saturating_add(usize::from(plan.is_served()))
        .saturating_add(usize::from(plan.secret))
        .saturating_add(plan.handed)
        .saturating_add(pipes);
    if descriptors != wanted {
        return refuse(format!("{descriptors} descriptors came along, {wanted} are needed"));
    }
    if plan.command.first().is_none_or(String::is_empty) {
        return refuse("it names no program".into());
    }
    let words = plan.command.iter();
    let settings = plan.environment.iter().flat_map(|(name, value)| [name, value]);
    if words
        .chain(settings)
        .chain([&plan.hostname])
        .any(|text| text.contains('\0'))
    {
        return refuse("a word holds a NUL byte".into());
    }
    if let Some((name, _)) = plan
        .environment
        .iter()
        .find(|(name, _)| name.is_empty() || name.contains('='))
    {
        return refuse(format!("`{name}` is not the name of a variable"));
    }
    if plan.handed > MAX_HANDED {
        return refuse(format!("more than {MAX_HANDED} contents of files"));
    }
    let none = |content: &Content| match content {
        Content::Text(_) => false,
        Content::Handed(number) => *number >= plan.handed,
        Content::Bytes(_) => true,
    };
    if let Some((path, _)) = plan.files.iter().find(|(_, content)| none(content)) {
        return refuse(format!("what `{path}` holds has not come along"));
    }
    if plan.listen.len() > MAX_LISTEN {
        return refuse(format!("more than {MAX_LISTEN} listening sockets"));
    }
    if plan.hostname.is_empty() || plan.hostname.len() > 64 {
        return refuse("the host name has not 1 to 64 bytes".into());
    }
    let (inside, outside) = (plan.identity.inside, plan.identity.outside);
    if [inside.0, inside.1, outside.0, outside.1].contains(&0) {
        return refuse("0 is never an identity of a fence".into());
    }
    if plan.asked.len() > MAX_ASKED {
        return refuse(format!("more than {MAX_ASKED} trees to be asked about"));
    }
    if plan.level == Level::Process {
        check_unmounted(plan)?;
    }
    let reserved = |path: &str| matches!(path, "/" | "/dev" | "/.bailiwick") || below(path, "/proc");
    let targets = plan.binds.iter().map(|bind| bind.target.as_str());
    let made = plan
        .scratch
        .iter()
        .chain(plan.files.iter().map(|(path, _)| path))
        .chain(&plan.asked)
        .map(|path| path.as_str());
    if let Some(path) = targets.chain(made).find(|path| reserved(path)) {
        return refuse(format!("`{path}` is the fence's own"));
    }
    if let Some(sought) = plan
        .sought
        .as_ref()
        .filter(|sought| !plan.scratch.contains(&sought.home))
    {
        return refuse(format!(
            "`{}` is to be listened to, and is no scratch folder",
            sought.home.as_str()
        ));
    }
    if let Some(path) = plan.handover.as_ref().filter(|path| !plan.scratch.contains(path)) {
        return refuse(format!("`{path}` is to be handed things, and is no scratch folder"));
    }
    Ok(())
}

/// Checks an order for a fence that mounts nothing (level `process`).
fn check_unmounted(plan: &FencePlan) -> Result<(), LaunchFault> {
    let refuse = |cause: String| Err(failed("cannot carry out the order at level `process`", cause));
    if plan.is_served() {
        return refuse("nothing can be asked about file by file".into());
    }
    let linked = |bind: &Bind| plan.links.iter().any(|(_, to)| *to == bind.source);
    if let Some(bind) = plan
        .binds
        .iter()
        .find(|bind| bind.source != bind.target && !linked(bind))
    {
        return refuse(format!("`{}` cannot be seen at another place", bind.source.as_str()));
    }
    if plan.listen.iter().any(|one| one.kind == ListenKind::Datagram) {
        return refuse("there are no datagrams".into());
    }
    let outside = |at: &AbsPath| !plan.scratch.iter().any(|folder| below(at.as_str(), folder.as_str()));
    if let Some((at, _)) = plan.links.iter().find(|(at, _)| outside(at)) {
        return refuse(format!("the link `{}` lies outside the scratch folders", at.as_str()));
    }
    if plan.identity.inside != plan.identity.outside {
        return refuse("nobody has another number inside".into());
    }
    Ok(())
}

/// True when a path is a folder or lies below it.
pub(crate) fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
