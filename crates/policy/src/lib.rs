//! Rules people write, compiled to Cedar, evaluated to a decision.
//!
//! Answers: may this be done by the rules, by which of them, and what must the gate do for it to hold?
//! Promises: P2 (each layer of rules must allow), P4 (no rule, a mistake, an error of evaluation: no), P5, P14.
//! Trust: the project's rule file may be written by whoever wrote the repository; until a person trusts it, it can
//! only take away. The request is read by gates from what the agent sent.
//! Not here: finding files and keeping trust (the program), grants and approvals (`mediator`), labels (`flow`),
//! the words and the one matcher (`model`). No I/O, no clock: texts are handed in.
//! See: docs/policy.md for the format of rule files; Cedar's own documentation for what it is compiled to.

mod breadth;
mod broker;
mod cedar;
mod combine;
mod commands;
mod diagnostic;
mod document;
mod entry;
mod foreign;
mod index;
mod judge;
mod limits;
mod load;
mod mandate;
mod opened;
mod outward;
mod overlap;
mod oversight;
mod policy;
mod preset;
#[cfg(test)]
mod proofs;
mod relations;
mod remembered;
mod renewal;
mod rule;
mod secret;
mod settings;
mod show;
mod site;
mod state;
mod tag;
mod tool;
mod trees;

pub use broker::{Broker, load_broker};
pub use diagnostic::{Diagnostic, Severity};
pub use judge::{asked_for, request_for};
pub use load::{SourceFile, Sources, load, trust_digest};
pub use mandate::{Mandate, MandateText, mandate_template, mandate_templates};
pub use outward::{Device, OutwardFault, Published};
pub use overlap::{Overlap, OverlapKind};
pub use oversight::{Closed, Days, FOUR_EYES, Hours, Moment, Oversight, ProgramApprover, Window, Zone, is_name};
pub use policy::Policy;
pub use preset::{agents, preset, profile, profile_for, toolchains};
pub use relations::{RelationsFrom, RelationsText};
pub use renewal::Renewal;
pub use rule::Rule;
pub use secret::{ForRequests, LABEL, Secret, SecretSource};
pub use settings::{Login, LoopbackPort, Settings};
pub use tag::{Tags, came_by_handle};
pub use tool::given::Choosing;
pub use tool::server::{Server, ServerLimits, ServerProgram, ServerVariable, load_server};
