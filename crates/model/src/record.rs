//! Records: what the log keeps of each event. Names that an agent chose stand in them as JSON text, escaped.

use serde::{Deserialize, Serialize};

use crate::act::{Act, Method};
use crate::code::Code;
use crate::id::{ContextId, DecisionId, Digest, GrantId, Millis, TaskId};
use crate::label::Label;
use crate::request::Request;
use crate::secret::{Place, SecretName};
use crate::url::HttpUrl;
use crate::verdict::Decision;

/// How safe a record must be before its effect may happen (P10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Appended before the effect, on disk within 50 ms.
    Ordered,
    /// On disk before the effect.
    Durable,
}

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantChange {
    /// A person narrowed it: it goes on as less.
    Narrowed,
    /// A person revoked it.
    Revoked,
    /// Its time is over.
    Over,
    /// It has been used as often as it may be.
    UsedUp,
}

impl GrantChange {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Narrowed => "narrowed",
            Self::Revoked => "revoked",
            Self::Over => "over",
            Self::UsedUp => "used up",
        }
    }
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answered {
    /// A person said yes: a grant for just this request, once.
    Yes,
    /// One of the two people who must say yes did; the question waits on.
    Seconded,
    /// A person said no.
    No,
    /// A person wants to know more first: a no for now.
    More,
    /// Nobody answered in time.
    Lapsed,
    /// Whoever asked went away first, or the task ended.
    Withdrawn,
}

impl Answered {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Seconded => "seconded",
            Self::No => "no",
            Self::More => "more",
            Self::Lapsed => "lapsed",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The code of the denial that follows; none for a yes, after which the request is decided again.
    pub fn refusal(self) -> Option<Code> {
        match self {
            Self::Yes | Self::Seconded => None,
            Self::No => Some(Code::AnsweredNo),
            Self::More => Some(Code::TellMore),
            Self::Lapsed => Some(Code::QuestionLapsed),
            Self::Withdrawn => Some(Code::QuestionWithdrawn),
        }
    }
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// When.
    pub time: Millis,
    /// In which task; none for events of the mediator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// What.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// A log was begun, or opened again.
    Opened {
        /// The build that opened it.
        build: String,
        /// Records that a crash had left unfinished at the end and that were cut off, in bytes.
        recovered_bytes: u64,
    },
    /// A task began.
    TaskStarted {
        /// The accountable person, as a user name or number.
        principal: String,
        /// The context.
        context: ContextId,
        /// The program and its arguments.
        command: Vec<String>,
        /// The digest of all rules in force.
        rules: Digest,
        /// The fence in force, as one word per part.
        fence: Vec<String>,
        /// The task that it runs for, where it is a command that runs outside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<TaskId>,
    },
    /// Something was decided.
    Decided {
        /// What `bailiwick explain` takes.
        id: DecisionId,
        /// The request.
        request: Request,
        /// The digest of the request.
        digest: Digest,
        /// The decision.
        decision: Decision,
    },
    /// A question came to its end: a person answered it, or nobody did.
    Answered {
        /// The decision that asked.
        id: DecisionId,
        /// The request that the question was about.
        request: Request,
        /// The digest of the request.
        digest: Digest,
        /// What became of the question.
        answer: Answered,
        /// Who answered, as a user name or number; none where nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal: Option<String>,
        /// The grant that a yes gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantId>,
        /// What the person said to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        word: Option<String>,
    },
    /// A person gave a grant that outlives the request that it was given for. On record before it holds.
    Granted {
        /// The grant.
        grant: GrantId,
        /// The sentence that was shown before the yes.
        sentence: String,
        /// What it covers.
        acts: Vec<Act>,
        /// How often it may be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Millis>,
        /// The context in which it holds; none for the task alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<ContextId>,
        /// Who gave it, as user names or numbers.
        by: Vec<String>,
    },
    /// A grant was narrowed, or ended. What went on under it is cut off.
    GrantChanged {
        /// The grant.
        grant: GrantId,
        /// How.
        how: GrantChange,
        /// How often it had been used.
        used: u64,
        /// How much went on under it, and was cut off.
        cut: u64,
        /// Who did it; none where it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal: Option<String>,
    },
    /// The hours of a task's context come to their end: it is told to end, and then ended.
    HoursOver {
        /// When the context opens again; none where that is more than a year away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opens: Option<Millis>,
    },
    /// Somebody was enrolled as one who may answer questions, or taken from that list.
    Enrolled {
        /// The name.
        name: String,
        /// How they show who they are: `user NAME`, `code`.
        by: String,
        /// False when they were taken from the list.
        enrolled: bool,
    },
    /// A program that answers questions said yes to one that was made to try it, and is not asked any more.
    Suspended {
        /// The program.
        program: Vec<String>,
        /// What it said yes to.
        request: Request,
    },
    /// The agent said something about a question, in its own words.
    Told {
        /// The question.
        question: DecisionId,
        /// What it said.
        words: String,
    },
    /// What a task has read carries more tags from now on. On disk before what gives them is handed over.
    Raised {
        /// The decision that let it be read.
        id: DecisionId,
        /// The tags that it had not carried before.
        label: Label,
    },
    /// A permit was used or given up.
    Settled {
        /// The decision that gave the permit.
        id: DecisionId,
        /// True when the effect took place.
        done: bool,
        /// What a gate has to add: bytes, a status, a fault.
        note: String,
    },
    /// A secret was handed to a gate for one request, or a signature made with it. Its value stands nowhere.
    Redeemed {
        /// The decision that allowed the request.
        id: DecisionId,
        /// Its name.
        secret: SecretName,
        /// Where in the request it stands.
        place: Place,
    },
    /// The daemon sends a request of its own, for what a person's line names: a login that is renewed, relations that are
    /// read. On record before it is sent.
    Fetching {
        /// What for: `secret:NAME`, `relations`.
        purpose: String,
        /// The method.
        method: Method,
        /// The address.
        url: HttpUrl,
    },
    /// What came of such a request, on record before it is made use of.
    Fetched {
        /// What for.
        purpose: String,
        /// True when it gave what was wanted.
        done: bool,
        /// What there is to say: until when a login holds, why there is none. Never what was sent or read.
        note: String,
        /// The SHA-256 of a text that was read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    /// A gate refused something by itself, before there was a request that could be decided about.
    Refused {
        /// What `bailiwick explain` takes.
        id: DecisionId,
        /// The code.
        code: Code,
        /// What was refused, as the gate saw it.
        what: String,
    },
    /// A port of the task's own network was made to be seen on the machine's loopback, by order of a person.
    Published {
        /// The accountable person, as a user name or number.
        principal: String,
        /// The port on 127.0.0.1 outside.
        outside: u16,
        /// The port on the loopback inside.
        inside: u16,
    },
    /// A person had a total begin anew. On record before it is done.
    Recounted {
        /// The accountable person, as a user name or number.
        principal: String,
        /// Whose total it is.
        scope: String,
        /// The rule.
        rule: String,
    },
    /// A person handed a copy of a file in. On record before it is done.
    HandedIn {
        /// Where the copy is put, in the hand-over folder.
        path: String,
        /// Its size in bytes.
        bytes: u64,
        /// The SHA-256 of its content.
        digest: Digest,
    },
    /// What was to be handed in could not be put there.
    NotHandedIn {
        /// Where it was to be put.
        path: String,
        /// Why.
        cause: String,
    },
    /// A task ended.
    TaskEnded {
        /// The exit status of the agent, or 128 + the signal that ended it.
        status: i32,
    },
    /// A person trusted a rule file, or took that back.
    Trusted {
        /// The file.
        file: String,
        /// The digest of it and what it extends.
        digest: Digest,
        /// False when trust was taken back.
        trusted: bool,
    },
}
