//! What a gate gets for the obligation to put a secret in: its value, or a signature made with it.
//!
//! Promises: P9 (a value has no form that is printed, and is overwritten where it is let go), P10 (the mediator records
//! each use before it hands anything out). Trust: who asks is a gate that hostile bytes may have taken over: it gets what
//! its open permit names, once.
//! Not here: where values come from (the program), putting them into requests (`proxy`).

use std::fmt;

use bailiwick_model::{HttpUrl, Method, Place, SecretName, TaskId};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// Longest value that is handed to a gate, in bytes.
pub const MAX_SECRET: usize = 16 * 1024;
/// Most headers that a signature covers.
const MAX_SIGNED: usize = 64;

/// The value of a secret. Overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Takes a value over.
    pub fn new(value: Zeroizing<Vec<u8>>) -> Self {
        Self(value)
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows nothing of it.
impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

impl Serialize for SecretValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Zeroizing::new(STANDARD.encode(self.bytes()));
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = SecretValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value in base64")
            }
            // Base64 needs no escapes in JSON, so the text is read where it lies, and no copy of it is made.
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SecretValue, E> {
                if text.len() > MAX_SECRET.saturating_mul(2) {
                    return Err(E::custom("the value is too long"));
                }
                let value = STANDARD
                    .decode(text)
                    .map_err(|_| E::custom("the value is not base64"))?;
                Ok(SecretValue::new(Zeroizing::new(value)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// What a signature is to be made over: the request of the permit, and the headers that are signed with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSign {
    /// The headers, by their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The SHA-256 of the body in hexadecimal digits, or the word that stands for a body that is not signed.
    pub body: String,
}

impl ToSign {
    /// True when it is no more than a signature takes in.
    pub fn is_bounded(&self) -> bool {
        self.headers.len() <= MAX_SIGNED && self.body.len() <= 128
    }
}

/// What a gate wants redeemed, by an open permit that obliges it to put that in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToRedeem {
    /// The secret.
    pub secret: SecretName,
    /// What is to be signed, where a signature is wanted.
    pub sign: Option<ToSign>,
    /// True when the server did not take the value that was handed out last: one that is renewed may have ended early.
    pub unwelcome: bool,
}

/// What was redeemed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Redeemed {
    /// The value.
    Value(SecretValue),
    /// The headers that carry a signature. The value stays where it is.
    Signed(Vec<(String, String)>),
}

/// One use of a secret, as its permit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The task.
    pub task: TaskId,
    /// The secret.
    pub secret: SecretName,
    /// Where it stands.
    pub place: Place,
    /// The method of the request that was allowed.
    pub method: Method,
    /// The URL of the request that was allowed.
    pub url: HttpUrl,
    /// What is to be signed, where a signature is wanted.
    pub sign: Option<ToSign>,
    /// True when the server did not take the value that was handed out last, as the gate says.
    pub unwelcome: bool,
}

/// What is called with what a vault answers: the cause is for people, and names no value.
pub type Handed = Box<dyn FnOnce(Result<Redeemed, String>) + Send>;

/// Has the values of secrets.
pub trait Vault: Send + Sync {
    /// Hands out what a use needs, at once or later, from another thread. Never waits.
    fn redeem(&self, wanted: Use, then: Handed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_a_value_has_no_printed_form_and_is_read_back() {
        let value = SecretValue::new(Zeroizing::new(b"ghp_canary".to_vec()));
        let redeemed = Redeemed::Value(value);
        assert!(!format!("{redeemed:?}").contains("canary"));
        let text = serde_json::to_string(&redeemed).unwrap();
        assert!(!text.contains("canary"));
        assert_eq!(serde_json::from_str::<Redeemed>(&text).unwrap(), redeemed);
        assert!(serde_json::from_str::<Redeemed>(r#"{"value":"%"}"#).is_err());
    }
}
