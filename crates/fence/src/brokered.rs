//! What the supervisor and the daemon say to each other about commands that run outside for a program inside.
//!
//! Answers: who runs outside, with which words, input and output, and how did it end? Promises: P1 (each has a permit, which
//! the daemon checks before anything starts), P11 (both sides say when their end has gone).
//! Trust: what the supervisor says stems from the agent, and a supervisor that was taken over says what it likes: the daemon
//! goes by the permit alone. Its end parses bounded frames.
//! Not here: holding the start and keeping its place (`supervise/outside`).

use bailiwick_model::{Nonce, Request};
use serde::{Deserialize, Serialize};

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wanted {
    /// A command is to run outside. Three descriptors come along: its input, output and errors.
    Run {
        /// Comes back with what became of it.
        call: u64,
        /// The permit.
        nonce: Nonce,
        /// What the permit is for: a command, to be brokered.
        request: Box<Request>,
        /// The folder that it was started in, inside.
        directory: String,
    },
    /// Nobody inside waits for it any more: it is to end.
    Gone {
        /// The number it came with.
        call: u64,
    },
}

/// What the daemon says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outcome {
    /// A command has ended.
    Ended {
        /// The number it came with.
        call: u64,
        /// Its exit code, or 128 and the number of the signal that ended it.
        status: i32,
    },
}

impl Wanted {
    /// How many descriptors come along.
    pub fn brings(&self) -> usize {
        match self {
            Self::Run { .. } => 3,
            Self::Gone { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_gate::{decode, encode};

    use super::*;

    #[test]
    fn p4_what_is_said_is_read_whole_or_not_at_all() {
        let gone = encode(&Wanted::Gone { call: 7 }).unwrap();
        assert_eq!(decode::<Wanted>(&gone[4..]), Ok(Wanted::Gone { call: 7 }));
        for bad in [
            &br#"{"gone":{}}"#[..],
            br#"{"gone":{"call":1,"more":2}}"#,
            br#"{"run":{"call":1}}"#,
        ] {
            assert!(decode::<Wanted>(bad).is_err());
        }
    }
}
