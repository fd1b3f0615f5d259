//! What a gate must do for an allow to hold.
//!
//! A closed list: gates match it without a wildcard arm, so that an obligation a gate does not know cannot be passed
//! over; one that is unknown on the wire makes the frame malformed (P4; XACML 3.0, section 7.18).

use serde::{Deserialize, Serialize};

use crate::id::Digest;
use crate::label::Label;
use crate::pattern::PathPattern;
use crate::secret::{Place, SecretName};

/// One duty of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Obligation {
    /// Inside the tree that is granted, nothing that the pattern covers may be read, changed or replaced.
    Hide {
        /// What is hidden.
        pattern: PathPattern,
    },
    /// Inside the tree that is granted, nothing that the pattern covers may be changed or replaced.
    Guard {
        /// What is guarded.
        pattern: PathPattern,
    },
    /// Inside the tree that is granted, what the pattern covers is not: each file there is asked about by itself.
    Ask {
        /// What is asked about.
        pattern: PathPattern,
    },
    /// Only the address that was decided about may be dialled.
    DialAddress {
        /// That address.
        address: std::net::IpAddr,
    },
    /// The TLS greeting in the tunnel must name the host that was decided about.
    MatchServerName,
    /// A secret is put into the request at its place, and into no other, and taken out of what is answered. Where several
    /// could stand at one place, the one whose stand-in the client sent, else the first.
    Inject {
        /// Its name.
        secret: SecretName,
        /// Where.
        place: Place,
    },
    /// The body of the request is no longer and of no other type than this. Several may stand in one permit: each holds.
    RequestBody {
        /// Most bytes that the body may have, as they are sent.
        bytes: u64,
        /// The media types that it may be of, lower-case and without parameters; none for any. A body without a type
        /// is of none of them.
        types: Vec<String>,
    },
    /// The answer is no more than this. Several may stand in one permit: each holds.
    Answer {
        /// Most bytes that its body may have, as they are received.
        bytes: Option<u64>,
        /// The longest time from the request to the end of the answer, in seconds.
        seconds: Option<u64>,
        /// The most that is passed on in each second, in bytes: what is faster waits.
        bytes_per_second: Option<u64>,
    },
    /// The public key of the server's own certificate is one of these, besides being verified as any. Several may stand
    /// in one permit: each holds.
    PinKey {
        /// SHA-256 of the key's SubjectPublicKeyInfo (RFC 7469, section 2.4).
        sha256: Vec<Digest>,
    },
    /// What the tool gate must do.
    Tool(ToolDuty),
}

/// One duty of the tool gate: a closed list, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToolDuty {
    /// Parts of a tool's result are left out.
    Redact {
        /// Which: JSON Pointers (RFC 6901) in which `*` stands for every member or element.
        paths: Vec<String>,
    },
    /// A tool's result is no more than this: what is over is left out, and that is said. Several may stand in one permit.
    Cap {
        /// Most elements of its outermost list.
        rows: Option<u64>,
        /// Most bytes of its text.
        bytes: Option<u64>,
    },
    /// Parts of a tool's result are handed to the agent as handles.
    Present {
        /// Which, as in [`Redact`](Self::Redact); the empty path for all of it.
        paths: Vec<String>,
    },
    /// What stands behind the handles of a tool's result carries these tags: a call in which the agent gives one says so.
    Label {
        /// The tags.
        label: Label,
    },
    /// Handles that the agent gives in these arguments are opened for the tool.
    Reveal {
        /// Which, as in [`Redact`](Self::Redact).
        paths: Vec<String>,
    },
    /// What a model writes for a server has at most so many tokens.
    Tokens {
        /// How many.
        most: u64,
    },
    /// The person is told that it was done. The daemon does that; a gate has nothing to do.
    Notify,
}
