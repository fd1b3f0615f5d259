//! The words of Bailiwick: what can be asked, of what, and what can be answered.
//!
//! Answers: how is a path, a host, a URL, an act, a request, a verdict written, in its one normal form?
//! Promises: P4 (an unknown field or spelling is an error, never a guess), P5 (one normal form, so that a rule
//! holds for the act and not for its spelling).
//! Trust: every parser here is given text that an agent may have chosen, in order to be read as something else.
//! Not here: matching rules (`policy`), `covers` (`authority`), wire frames and permits (`gate`). No I/O, no clock.

mod act;
mod capability;
mod chosen;
mod code;
mod command;
mod command_pattern;
mod decimal;
mod host;
mod host_pattern;
mod id;
mod label;
mod level;
mod limits;
mod obligation;
mod opened;
mod path;
mod pattern;
mod query;
mod record;
mod repository;
mod request;
mod rule;
mod secret;
mod tool;
mod totals;
mod url;
mod verdict;
mod visible;

pub use act::{Act, ActError, Anchors, Method, ResourcePattern, Verb, VerbPattern};
pub use capability::{Capability, Constraints};
pub use chosen::{AnswerPart, MOST_CHOICES};
pub use code::Code;
pub use command::{Command, Effects, Given, NormalForm};
pub use command_pattern::{CommandError, CommandPattern, ProgramPattern, words_of};
pub use decimal::{Decimal, DecimalError};
pub use host::{AddressClass, Host, HostError};
pub use host_pattern::HostPattern;
pub use id::{ContextId, DecisionId, Digest, GrantId, IdError, Millis, Nonce, TaskId};
pub use label::{Label, Tag};
pub use level::Level;
pub use limits::{AnswerLimit, BodyLimit, Budget, Limits, Parameter, Rate, media_type, size};
pub use obligation::{Obligation, ToolDuty};
pub use opened::Opened;
pub use path::{AbsPath, PathError};
pub use pattern::{ANY_PORT, PathPattern, PatternError, UrlPattern};
pub use query::{QueryError, parameters};
pub use record::{Answered, Durability, Event, GrantChange, Record};
pub use repository::{Reference, ReferenceName, RepositoryPattern, act_of, acts_of, read_repository, requests_of};
pub use request::{Argument, Request, Resource, argument};
pub use rule::{Layer, RuleRef};
pub use secret::{Place, SecretError, SecretName, SecretPattern};
pub use tool::{ToolError, ToolName, ToolPattern, read_server};
pub use totals::{Span, Sum, Totals, Uncounted, argument_at};
pub use url::{HttpUrl, Scheme, UrlError};
pub use verdict::{Decision, Reason, Verdict};
pub use visible::{visible, visible_lines};
