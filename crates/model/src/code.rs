//! Codes: one kebab-case word for every outcome that a person or an agent can see.
//!
//! Each is documented under its own heading in `docs/codes.md`; a test holds the two lists together.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of an outcome.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    /// A rule allows it.
    AllowedByRule = "allowed-by-rule",
    /// A rule asks, and a grant that was given against that question answers.
    AllowedByGrant = "allowed-by-grant",
    /// The person ordered it by hand, as a task's first program.
    AllowedByOrder = "allowed-by-order",
    /// A rule wants a person to say.
    AskedByRule = "asked-by-rule",
    /// A rule denies it.
    DeniedByRule = "denied-by-rule",
    /// A line for a shell, or a part of it, cannot be read for sure.
    LineUnread = "line-unread",
    /// No rule of some layer allows it.
    NoRule = "no-rule",
    /// Rules cover it, and its query or body is outside their limits.
    OutsideLimits = "outside-limits",
    /// The budget of the rule that would allow it is used up.
    BudgetSpent = "budget-spent",
    /// The rule that would allow it is used as often as it may be in this time.
    TooOften = "too-often",
    /// It is outside the hours in which that may be done.
    OutOfHours = "out-of-hours",
    /// It is done only while somebody watches, and nobody does.
    NobodyPresent = "nobody-present",
    /// Two people must say yes to it.
    FourEyes = "four-eyes",
    /// The task holds no capability that covers it.
    NoCapability = "no-capability",
    /// The task has ended, or never was.
    UnknownTask = "unknown-task",
    /// The request is not well formed.
    MalformedRequest = "malformed-request",
    /// A rule could not be evaluated.
    PolicyFault = "policy-fault",
    /// A person would have to say, and none is there.
    NobodyToAsk = "nobody-to-ask",
    /// It is there, outside, and was not granted: inside it is absent.
    NotGranted = "not-granted",
    /// A person was asked, and said no.
    AnsweredNo = "answered-no",
    /// A person was asked, and wants to know more first.
    TellMore = "tell-more",
    /// A person was asked, and nobody answered in time.
    QuestionLapsed = "question-lapsed",
    /// Whoever asked went away before there was an answer.
    QuestionWithdrawn = "question-withdrawn",
    /// The address is this machine's own and is not named by a rule.
    AddressLoopback = "address-loopback",
    /// The address is private and is not named by a rule.
    AddressPrivate = "address-private",
    /// The address is link-local, where metadata services live.
    AddressLinkLocal = "address-link-local",
    /// The name could not be looked up.
    NameUnresolved = "name-unresolved",
    /// Two places of one request name different hosts.
    NameMismatch = "name-mismatch",
    /// The bytes in a tunnel are not the TLS greeting that was announced.
    NotTls = "not-tls",
    /// The other end could not be reached.
    UpstreamUnreachable = "upstream-unreachable",
    /// The server's certificate is not one to believe.
    UpstreamUntrusted = "upstream-untrusted",
    /// The client does not accept the certificate that was made for it.
    CertificateNotAccepted = "certificate-not-accepted",
    /// A limit of size, number or time was passed.
    LimitReached = "limit-reached",
    /// Data with a tag would reach a sink that is not cleared for it.
    FlowRefused = "flow-refused",
    /// Data with a tag would reach a sink that is not cleared for it, and a person may say yes.
    FlowAsked = "flow-asked",
    /// An argument that must carry no untrusted influence may have been chosen by what the task has read.
    InfluenceAsked = "influence-asked",
    /// The log cannot take the record that this decision needs.
    LogUnavailable = "log-unavailable",
    /// The mediator does not answer.
    MediatorUnavailable = "mediator-unavailable",
    /// The state kept moving while the decision was made.
    StateMoved = "state-moved",
    /// The permit is for something else, too old, or used already.
    PermitRefused = "permit-refused",
    /// The fence in force would be less than the fence asked for.
    FencePartial = "fence-partial",
    /// The fence could not be put up.
    FenceFailed = "fence-failed",
    /// The program is not inside the fence.
    ProgramNotFound = "program-not-found",
    /// The program is there but cannot be started.
    ProgramNotExecutable = "program-not-executable",
    /// A port outside on which the task was to be seen is taken.
    PortTaken = "port-taken",
    /// A device cannot be shown to the task.
    DeviceRefused = "device-refused",
    /// A fence of the level that was asked for cannot be had, or a weaker one may not be taken.
    LevelRefused = "level-refused",
    /// A command that was to run outside could not be.
    BrokerFailed = "broker-failed",
    /// The stand-in of a secret was sent elsewhere than where the secret is for.
    StandInMisused = "stand-in-misused",
    /// A request brought a login of its own to a host for which a secret is put in.
    StrangersLogin = "strangers-login",
    /// The value of a secret could not be had.
    SecretUnavailable = "secret-unavailable",
    /// A secret could not be put into a request, or taken out of its answer.
    SecretUnkept = "secret-unkept",
    /// No rule that is about the tool lets a call have these arguments.
    ArgumentsRefused = "arguments-refused",
    /// The arguments of a call are not what the tool's schema says, or can be read in more than one way.
    ArgumentsMalformed = "arguments-malformed",
    /// The agent leaves it to a person which of several calls it makes.
    ChoiceOffered = "choice-offered",
    /// A rule wants to know why the call is made, and the call does not say.
    ReasonMissing = "reason-missing",
    /// What the server says of the tool is new or has changed: a person must see it first.
    ToolChanged = "tool-changed",
    /// The server's words about the tool hold characters that cannot be seen, or cannot be read.
    ToolUnreadable = "tool-unreadable",
    /// There is no such tool.
    ToolUnknown = "tool-unknown",
    /// The tool's server could not be started, or did not answer as it must.
    ServerFailed = "server-failed",
    /// The mandate that the task runs under does not allow it.
    OutsideMandate = "outside-mandate",
    /// The mandate has expired.
    MandateExpired = "mandate-expired",
    /// What is known of people and what they are responsible for is too old.
    RelationsStale = "relations-stale",
    /// A handle was given where it may not be opened, or is none.
    HandleRefused = "handle-refused",
    /// A fault of the machinery.
    Fault = "fault",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_kebab_case() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code} stands twice");
            assert!(
                code.as_str()
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{code}"
            );
        }
    }
}
