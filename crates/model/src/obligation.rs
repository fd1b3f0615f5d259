//! What a gate must do for an allow to hold.
//!
//! A closed list: gates match it without a wildcard arm, so that an obligation a gate does not know cannot be passed
//! over; one that is unknown on the wire makes the frame malformed (P4; XACML 3.0, section 7.18).

use serde::{Deserialize, Serialize};

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
}
