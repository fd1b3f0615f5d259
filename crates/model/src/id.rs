//! Names and numbers that identify things. All are opaque; none carries authority by itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch. Handed in by whoever owns a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// Says why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: {want} expected")]
pub struct IdError {
    text: String,
    what: &'static str,
    want: &'static str,
}

/// Writes bytes as hex into a text that is twice as long. In one piece: ids stand in every frame and every record.
fn hex_of<'a>(bytes: &[u8], text: &'a mut [u8]) -> &'a str {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    for (byte, pair) in bytes.iter().zip(text.as_chunks_mut::<2>().0) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    // Hex is always text.
    std::str::from_utf8(text).unwrap_or_default()
}

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0u8; N];
    let mut digits = text.bytes();
    for slot in &mut out {
        *slot = nibble(digits.next()?)? << 4 | nibble(digits.next()?)?;
    }
    digits.next().is_none().then_some(out)
}

/// Declares a fixed-size id, written as lower-case hex.
macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal, $want:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(hex_of(&self.0, &mut [0; 2 * $len]))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                bytes_of(text).map(Self).ok_or_else(|| IdError { text: text.into(), what: $what, want: $want })
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(hex_of(&self.0, &mut [0; 2 * $len]))
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// Identifies one task: one run of an agent, or a child of one.
    TaskId, 8, "a task id", "16 hex digits"
);
hex_id!(
    /// Identifies one decision; what `bailiwick explain` takes.
    DecisionId, 6, "a decision id", "12 hex digits"
);
hex_id!(
    /// Identifies one grant: what a person said yes to.
    GrantId, 6, "a grant id", "12 hex digits"
);
hex_id!(
    /// A number used once: the identity of a permit.
    Nonce, 16, "a nonce", "32 hex digits"
);
hex_id!(
    /// A SHA-256 digest.
    Digest, 32, "a digest", "64 hex digits"
);

/// Names a context: a place of work with its grants. The root folder's path and the name the person gave it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextId(pub String);

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_refuse_other_spellings() {
        let id = TaskId([1, 2, 3, 4, 5, 6, 7, 0xfe]);
        assert_eq!(id.to_string(), "01020304050607fe");
        assert_eq!("01020304050607fe".parse(), Ok(id));
        for bad in [
            "",
            "01020304050607f",
            "01020304050607feff",
            "01020304050607FE",
            "0x020304050607fe",
        ] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
