//! What a fence's supervisor says to the network gate, one message for each connection that it makes or refuses.
//!
//! Trust: the supervisor is ours, what it says was asked for by the agent. Messages are text of at most [`MAX_HANDED`]
//! bytes; the connection itself comes along as a descriptor.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Longest message, in bytes.
pub const MAX_HANDED: usize = 512;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handed {
    /// A connection comes along, which the agent made to this address.
    Connection(SocketAddr),
    /// The supervisor refused this by itself: what was asked for, as the kernel had it, and why.
    Refused {
        /// What was asked for.
        what: String,
        /// Why it was refused.
        why: String,
    },
}

impl Handed {
    /// A refusal that fits into one message, with control characters made visible.
    pub fn refused(what: &str, why: &str) -> Self {
        let plain = |text: &str| text.escape_debug().take(MAX_HANDED / 4).collect();
        Self::Refused {
            what: plain(what),
            why: plain(why),
        }
    }
}

impl fmt::Display for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(address) => write!(f, "connection {address}"),
            Self::Refused { what, why } => write!(f, "refused {what}\n{why}"),
        }
    }
}

/// Says that a message is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the supervisor's message is not understood")]
pub struct HandedFault;

impl FromStr for Handed {
    type Err = HandedFault;

    fn from_str(text: &str) -> Result<Self, HandedFault> {
        match text.split_once(' ').ok_or(HandedFault)? {
            ("connection", address) => address.parse().map(Self::Connection).map_err(|_| HandedFault),
            ("refused", rest) => {
                let (what, why) = rest.split_once('\n').ok_or(HandedFault)?;
                Ok(Self::Refused {
                    what: what.into(),
                    why: why.into(),
                })
            }
            _ => Err(HandedFault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_as_they_were_written() {
        for message in [
            Handed::Connection("93.184.216.34:443".parse().unwrap()),
            Handed::Connection("[2606::1]:22".parse().unwrap()),
            Handed::refused("connect /a b\nc", "a rule\u{1b}[2J"),
        ] {
            let text = message.to_string();
            assert!(text.len() <= MAX_HANDED);
            assert_eq!(text.parse(), Ok(message), "{text}");
        }
        assert_eq!(
            Handed::refused("x\ny", "z"),
            Handed::Refused {
                what: "x\\ny".into(),
                why: "z".into()
            }
        );
        for wrong in ["", "connection", "connection x", "refused x", "other 1.2.3.4:5"] {
            assert_eq!(wrong.parse::<Handed>(), Err(HandedFault), "{wrong}");
        }
        assert!(
            Handed::refused(&"\u{10ffff}".repeat(9999), &"x".repeat(9999))
                .to_string()
                .len()
                <= MAX_HANDED
        );
    }
}
