//! What the person's commands and the daemon say to each other, on the daemon's path socket.

use bailiwick_gate::desk::{Answer, Approver, Asked, Closed, DeskFault, Granted, Terms};
use bailiwick_gate::{Counted, CountedKey, FenceReport, LaunchFault};
use bailiwick_model::{AbsPath, ContextId, Decision, DecisionId, GrantId, Level, Millis, Request, TaskId};
use bailiwick_policy::{MandateText, Published, SourceFile};
use serde::{Deserialize, Serialize};

/// The version of these frames.
pub const PROTOCOL: u32 = 7;

/// This build: version, and what tells one build of a version from another.
pub fn build() -> String {
    use std::os::unix::fs::MetadataExt;
    let version = env!("CARGO_PKG_VERSION");
    match std::fs::metadata("/proc/self/exe") {
        Ok(program) => format!("{version}+{:x}.{:x}", program.mtime(), program.size()),
        Err(_) => version.into(),
    }
}

/// What a command says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PersonCall {
    /// The first frame.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The build.
        build: String,
    },
    /// Starts a task. In pipe mode three descriptors come with it: input, output, errors.
    Run(RunOrder),
    /// What git says of the person, after their order: meanwhile the daemon is at work.
    Git(crate::git::settings::GitSettings),
    /// Passes a signal on to the agent.
    Signal(i32),
    /// Attends a task that has a terminal, in the place of whoever does.
    Attach {
        /// The task.
        task: TaskId,
    },
    /// Ends a task.
    End {
        /// The task.
        task: TaskId,
        /// False to let it end by itself first.
        at_once: bool,
    },
    /// Puts a folder, or a copy of a file, into a task's hand-over folder. With a file its content comes along, sealed.
    Give {
        /// The task.
        task: TaskId,
        /// Its path in the hand-over folder.
        path: String,
        /// What it is.
        given: Given,
    },
    /// Asks what a task was ordered by, which has ended.
    Ordered {
        /// The task.
        task: TaskId,
    },
    /// Shows a port of a running task outside, until it ends.
    Publish {
        /// The task.
        task: TaskId,
        /// The port.
        port: Port,
    },
    /// Asks which questions wait: one frame for each, then `Done`.
    Questions,
    /// Answers a question.
    Answer {
        /// The question.
        id: DecisionId,
        /// The answer.
        answer: Answer,
        /// Who answers; none for the person whose daemon this is.
        by: Option<Approver>,
    },
    /// Enrols somebody who may answer.
    Enrol {
        /// The name.
        name: String,
        /// The user of this machine that they are; none for somebody who shows codes.
        user: Option<String>,
    },
    /// Takes somebody from that list.
    Expel {
        /// The name.
        name: String,
    },
    /// Asks who is enrolled.
    Enrolled,
    /// Names the folder of the socket for approvers who are other users, or none.
    ApproveIn {
        /// The folder.
        folder: Option<std::path::PathBuf>,
    },
    /// Signs an approver in by a code.
    SignIn {
        /// The name.
        name: String,
        /// The code.
        code: String,
    },
    /// Signs one out.
    SignOut {
        /// The name.
        name: String,
    },
    /// Lets a program that was suspended answer again.
    ProgramAgain,
    /// Asks which grants hold.
    Grants,
    /// Gives a grant for the tasks of a context, before anything was asked.
    Grant {
        /// Where the person stands: the context is that of this folder.
        directory: AbsPath,
        /// The act, as rules write it.
        act: String,
        /// How often, and how long.
        terms: Terms,
    },
    /// Asks which grant answers what is asked about a request.
    Covered {
        /// The context.
        context: ContextId,
        /// The request.
        request: Box<Request>,
        /// What was decided about it.
        decision: Box<Decision>,
    },
    /// Narrows a grant.
    Narrow {
        /// The grant.
        grant: GrantId,
        /// What is left of it.
        terms: Terms,
        /// Who does it; none for the person whose daemon this is.
        by: Option<Approver>,
    },
    /// Revokes a grant.
    Revoke {
        /// The grant.
        grant: GrantId,
        /// Who does it; none for the person whose daemon this is.
        by: Option<Approver>,
    },
    /// Waits until something has changed that people who answer are shown. Whoever waits is there to be asked.
    Changed {
        /// The moment up to which they know.
        seen: u64,
        /// The longest wait, in milliseconds; at most half a minute is waited.
        patience: u64,
        /// Who waits; none for the person whose daemon this is.
        by: Option<Approver>,
    },
    /// Has servers that the rules of a folder name started, and asks what they offer.
    Survey {
        /// The folder.
        directory: AbsPath,
        /// The person's environment, where secrets may come from.
        environment: Vec<(String, String)>,
        /// The servers' names; none for all.
        servers: Vec<String>,
    },
    /// Asks what calls of tools have come to.
    Counted,
    /// Begins a total anew.
    Recount {
        /// Which.
        key: CountedKey,
    },
    /// Asks how the daemon does.
    Status,
    /// Asks for a fresh checkpoint.
    Checkpoint,
    /// Trusts a rule file's content, or takes that back.
    Trust {
        /// The file.
        file: String,
        /// Its digest.
        digest: bailiwick_model::Digest,
        /// False to take trust back.
        trusted: bool,
    },
    /// Asks the daemon to end, with all its tasks.
    Stop,
}

/// What is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Given {
    /// An empty folder.
    Folder,
    /// A file.
    File {
        /// True when it may be run.
        executable: bool,
    },
}

/// A task to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOrder {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The level that the person named; none for the strongest that this machine has.
    pub level: Option<Level>,
    /// Where the person stands.
    pub directory: AbsPath,
    /// The person's environment; what the rules do not pass is dropped.
    pub environment: Vec<(String, String)>,
    /// The preset that holds for this run, in place of what the context's rules allow.
    pub preset: Option<String>,
    /// The size of the person's terminal; none for pipes.
    pub terminal: Option<(u16, u16)>,
    /// The person's git settings, so that the agent can commit for them as they do. A person's order is followed by them
    /// ([`PersonCall::Git`]), since git takes its time.
    pub git: crate::git::settings::GitSettings,
    /// True when the command waits for a checkpoint at the end.
    pub checkpoint: bool,
    /// Ports that are to be seen outside.
    pub publish: Vec<Port>,
    /// Devices that are to be shown, as rules write them.
    pub devices: Vec<String>,
    /// True when the agent ends with the command, also where it has a terminal and could go on alone.
    pub tied: bool,
    /// True when nobody attends the agent from the start. It has a terminal then.
    pub detached: bool,
    /// True when each refusal is to be told as it comes.
    pub explain: bool,
    /// False when nobody is to be asked: what would be asked is a no at once.
    pub ask: bool,
    /// The mandate that it runs under.
    #[serde(default)]
    pub mandate: Option<MandateOrder>,
}

/// One errand, with the values that the person has set in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MandateOrder {
    /// The file, for messages.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The values, by name.
    pub values: std::collections::BTreeMap<String, String>,
}

impl MandateOrder {
    /// The mandate, first used at this time.
    pub fn used(self, first_used: Millis) -> MandateText {
        let (name, text) = (self.file, self.text);
        MandateText {
            file: SourceFile { name, text },
            values: self.values,
            first_used,
        }
    }
}

/// Something that was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedAct {
    /// What `explain` takes.
    pub id: bailiwick_model::DecisionId,
    /// The code.
    pub code: bailiwick_model::Code,
    /// What was asked for, in the act's words.
    pub act: String,
    /// Why, and what would change it: lines for people, safe to print.
    pub told: String,
}

/// A port inside that is seen on the machine's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The port on 127.0.0.1 outside.
    pub outside: u16,
    /// The port on the loopback inside.
    pub inside: u16,
}

impl From<Published> for Port {
    fn from(port: Published) -> Self {
        Self {
            outside: port.outside,
            inside: port.inside,
        }
    }
}

impl From<Port> for Published {
    fn from(port: Port) -> Self {
        Self {
            outside: port.outside,
            inside: port.inside,
        }
    }
}

/// What the daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PersonAnswer {
    /// The first frame.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The build.
        build: String,
        /// How many tasks run.
        tasks: usize,
    },
    /// What the task will be able to do: said before anything starts.
    Planned(Box<Planned>),
    /// The agent runs. With a terminal that is attended, a file with its last output, a socket with what follows, and
    /// the terminal come along.
    Started(FenceReport),
    /// The answer to `Ordered`. Of the person's surroundings nothing is kept.
    Ordered(Box<RunOrder>),
    /// Something was refused.
    Refused(Box<RefusedAct>),
    /// Something was done of which rules want the person to be told: in plain words, safe to print.
    Noticed(String),
    /// Something waits for a person.
    Waits(Box<Asked>),
    /// The task is attended. What comes along is as with `Started`.
    Attached(Box<RunningTask>),
    /// Another attends the task now.
    TakenOver,
    /// The agent has ended.
    Ended {
        /// Its status, or 128 + the signal.
        status: i32,
        /// The log's checkpoint, if it was asked for.
        checkpoint: Option<String>,
        /// How much was refused.
        denied: u64,
        /// What came to be that the person should look at: texts that are safe to print.
        made: Vec<String>,
    },
    /// It could not be started.
    Failed(LaunchFault),
    /// One question that waits.
    Asked(Box<Asked>),
    /// The answer to `Answer`.
    Closed(Result<Box<Closed>, DeskFault>),
    /// The answer to `Enrol`: what a program for codes is to be told, for somebody who shows them.
    Enrolling(Option<String>),
    /// The answer to `Enrolled`: who, and the folder of their socket.
    Enrolled(Vec<crate::daemon::approvers::Enrolled>, Option<std::path::PathBuf>),
    /// The answer to `SignIn`.
    SignedIn(Approver),
    /// The answer to `Grants`: the newest first.
    Grants(Vec<Granted>),
    /// The answer to `Grant`, `Covered`, `Narrow` and `Revoke`: the grant, or what is left of it.
    Granted(Result<Option<Box<Granted>>, DeskFault>),
    /// The answer to `Survey`: JSON in a descriptor that comes along.
    Surveyed {
        /// What servers said last on their standard error.
        said: crate::daemon::servers::LastWords,
    },
    /// The answer to `Counted`.
    Counted(Vec<(CountedKey, Counted)>),
    /// The answer to `Changed`: the moment now.
    Changed(u64),
    /// The answer to `Status`.
    Status(Box<DaemonStatus>),
    /// The answer to `Checkpoint`.
    Checkpoint(String),
    /// Done, with nothing to add.
    Done,
}

/// What a task will be able to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// The task.
    pub task: TaskId,
    /// What its fence is made of.
    pub level: Level,
    /// The root of the context.
    pub root: AbsPath,
    /// The person's home folder.
    pub home: AbsPath,
    /// The presets, profiles and files that the rules come from.
    pub sources: Vec<String>,
    /// Trees that may be written.
    pub write: Vec<AbsPath>,
    /// Trees that may be read.
    pub read: Vec<AbsPath>,
    /// Trees whose files are asked about one by one.
    pub asked: Vec<AbsPath>,
    /// Folders of the context's own, by their place inside.
    pub kept: Vec<AbsPath>,
    /// The agent whose login is there, shared with its other contexts.
    pub login: Option<String>,
    /// Settings of agents in those, by their place inside and outside.
    pub settings: Vec<(AbsPath, AbsPath)>,
    /// Hosts of package registries that are read and not written.
    pub registries: Vec<String>,
    /// Requests that may be sent, each an act.
    pub requests: Vec<String>,
    /// How many more requests rules name than are listed.
    pub more_requests: usize,
    /// Hosts that can be reached by connections that are passed on unread, and ports of this machine.
    pub network: Vec<String>,
    /// How many more of these rules name than are listed.
    pub more_network: usize,
    /// Secrets that are put into requests: one line each.
    pub secrets: Vec<String>,
    /// Commands that run outside: one line each.
    pub brokers: Vec<String>,
    /// Tools of servers that were accepted and that some rule shows, as `SERVER/TOOL`.
    pub tools: Vec<String>,
    /// The servers of these tools, each with what it has outside.
    pub servers: Vec<String>,
    /// What may not be done with what the task has read: one line for each tag.
    pub tags: Vec<String>,
    /// Ports of the task that are seen outside.
    pub publish: Vec<Port>,
    /// Devices that are shown, and what each weakens: one line each.
    pub devices: Vec<String>,
    /// What may not be read.
    pub hidden: Vec<String>,
    /// What may not be changed.
    pub guarded: Vec<String>,
    /// When its hours end, in words; none where they do not, for a year.
    pub closes: Option<String>,
    /// What profiles tell: one line each.
    pub notes: Vec<String>,
    /// Warnings: one line each.
    pub warnings: Vec<String>,
}

/// How the daemon does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonStatus {
    /// Its process.
    pub pid: u32,
    /// Its build.
    pub build: String,
    /// Records in the log.
    pub records: u64,
    /// False when the log cannot be written.
    pub log_healthy: bool,
    /// How many questions wait for a person.
    pub waiting: usize,
    /// Who is there and watches.
    pub there: Vec<Approver>,
    /// What there is to say of the program that answers questions: one line each.
    pub program: Vec<String>,
    /// The tasks that run.
    pub tasks: Vec<RunningTask>,
    /// Tasks that have ended while nobody attended them, with their status.
    pub ended: Vec<(RunningTask, i32)>,
}

/// One task that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningTask {
    /// The task.
    pub id: TaskId,
    /// Its context.
    pub context: String,
    /// Its command.
    pub command: Vec<String>,
    /// When it began.
    pub started: bailiwick_model::Millis,
    /// Its ports that are seen outside.
    pub publish: Vec<Port>,
    /// Where it finds what is handed in.
    pub handover: AbsPath,
    /// True when it has a terminal and goes on when nobody attends it.
    pub lasting: bool,
    /// True when a command attends it.
    pub attended: bool,
    /// The tags that what it has read carries, each with what gave it.
    #[serde(default)]
    pub read: Vec<String>,
}
