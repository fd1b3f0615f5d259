//! Secrets by name, and the places of a request in which one may stand. A value is never here.
//!
//! Promises: P4 (a name or place that cannot be read is an error), P9. Trust: both come from rule files of people.
//! Not here: where a value comes from and which requests it is for (`policy`), putting it there (`proxy`).
//! See: RFC 6750 (Bearer), RFC 7617 (Basic), AWS Signature Version 4.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of a secret, in bytes.
const MAX_NAME: usize = 64;
/// Longest name of a header, a parameter or a field, in bytes.
const MAX_FIELD: usize = 128;

/// Says why a text names no secret, or no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(String);

/// The name of a secret: letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SecretName(String);

impl SecretName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.into()));
        }
        Err(SecretError(format!(
            "`{text}` is no name of a secret: at most {MAX_NAME} letters, digits, `-`, `_` and `.`"
        )))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Which secrets an act is about, written `secret:NAME` or `secret:*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretPattern {
    /// Any.
    Any,
    /// One.
    One(SecretName),
}

impl SecretPattern {
    /// Reads what stands behind `secret:`.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        match text {
            "*" | "**" => Ok(Self::Any),
            name => SecretName::parse(name).map(Self::One),
        }
    }

    /// True when the pattern covers this secret.
    pub fn covers(&self, name: &SecretName) -> bool {
        match self {
            Self::Any => true,
            Self::One(own) => own == name,
        }
    }

    /// True when this pattern covers no secret that `wide` does not.
    pub fn is_within(&self, wide: &Self) -> bool {
        match (self, wide) {
            (_, Self::Any) => true,
            (Self::One(name), wide) => wide.covers(name),
            (Self::Any, Self::One(_)) => false,
        }
    }
}

impl fmt::Display for SecretPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("secret:*"),
            Self::One(name) => write!(f, "secret:{name}"),
        }
    }
}

/// Where in a request a secret stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Place {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The password of `Authorization: Basic …`, as git sends it too.
    Basic {
        /// The user beside it; where there is none, the one that the client names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// A header of its own, or a part of one.
    Header {
        /// Its name, in lower case.
        name: String,
    },
    /// A parameter of the query.
    Query {
        /// Its name.
        name: String,
    },
    /// A field of a body that is a form (`application/x-www-form-urlencoded`).
    Form {
        /// Its name.
        field: String,
    },
    /// A field of a body that is JSON, in objects within objects: `login.password`.
    Json {
        /// The names, with dots between them.
        field: String,
    },
    /// A signature in `Authorization`, made with it (AWS Signature Version 4). The value itself is not sent.
    Signature {
        /// The service, such as `s3`.
        service: String,
        /// The region, such as `eu-central-1`.
        region: String,
        /// The id of the key, which is no secret.
        key: String,
    },
}

impl Place {
    /// Reads a place as rule files write it; `user` is the user beside a password, or the id of a key.
    pub fn read(text: &str, user: Option<&str>) -> Result<Self, SecretError> {
        let wrong = |why: String| Err(SecretError(why));
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let place = match (kind, rest) {
            ("bearer", None) => Self::Bearer,
            ("basic", None) => Self::Basic {
                user: user.map(Into::into),
            },
            ("git", None) => Self::Basic {
                user: Some(user.unwrap_or("x-access-token").into()),
            },
            ("header", Some(name)) if is_token(name) => Self::Header {
                name: name.to_ascii_lowercase(),
            },
            ("query", Some(name)) if is_field(name) => Self::Query { name: name.into() },
            ("form", Some(field)) if is_field(field) => Self::Form { field: field.into() },
            ("json", Some(field)) if is_field(field) && field.split('.').all(|part| !part.is_empty()) => {
                Self::Json { field: field.into() }
            }
            ("sigv4", Some(rest)) => {
                let plain =
                    |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
                match (rest.split_once('/'), user) {
                    (Some((service, region)), Some(key)) if plain(service) && plain(region) => Self::Signature {
                        service: service.into(),
                        region: region.into(),
                        key: key.into(),
                    },
                    (Some(_), None) => {
                        return wrong(format!("`{text}` needs the id of the key: add `user = \"AKIA…\"`"));
                    }
                    _ => {
                        return wrong(format!(
                            "`{text}` names no service and region: write `sigv4:s3/eu-central-1`"
                        ));
                    }
                }
            }
            _ => {
                return wrong(format!(
                    "`{text}` is no place for a secret: write `bearer`, `basic`, `git`, `header:NAME`, `query:NAME`, \
                     `form:FIELD`, `json:FIELD` or `sigv4:SERVICE/REGION`"
                ));
            }
        };
        let takes_user = matches!(place, Self::Basic { .. } | Self::Signature { .. });
        if user.is_some() && !takes_user {
            return wrong(format!("`user` does not go with `{text}`"));
        }
        if let Self::Basic { user: Some(user) } = &place
            && (user.contains(':') || user.contains(char::is_control))
        {
            return wrong(format!("`{user}` is no user of a Basic login: it may hold no colon"));
        }
        Ok(place)
    }

    /// True where the secret itself is put into the request by the gate also when its stand-in is not there.
    pub fn is_added(&self) -> bool {
        !matches!(self, Self::Form { .. } | Self::Json { .. })
    }

    /// The header that it stands in; none for places in the query or the body.
    pub fn header(&self) -> Option<&str> {
        match self {
            Self::Bearer | Self::Basic { .. } | Self::Signature { .. } => Some("authorization"),
            Self::Header { name } => Some(name),
            Self::Query { .. } | Self::Form { .. } | Self::Json { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Basic { .. } => f.write_str("basic"),
            Self::Header { name } => write!(f, "header:{name}"),
            Self::Query { name } => write!(f, "query:{name}"),
            Self::Form { field } => write!(f, "form:{field}"),
            Self::Json { field } => write!(f, "json:{field}"),
            Self::Signature { service, region, .. } => write!(f, "sigv4:{service}/{region}"),
        }
    }
}

/// Without a user; for those see [`Place::read`].
impl FromStr for Place {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        Self::read(text, None)
    }
}

/// A name of a header that a request may carry through a proxy (RFC 9110, section 5.6.2): none of those that frame it.
fn is_token(name: &str) -> bool {
    const FRAMING: [&str; 9] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "trailer",
        "upgrade",
        "accept-encoding",
        "range",
    ];
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=MAX_FIELD).contains(&name.len())
        && name.bytes().all(sign)
        && !FRAMING.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn is_field(name: &str) -> bool {
    (1..=MAX_FIELD).contains(&name.len()) && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_read() {
        let name = SecretName::parse("github-1").unwrap();
        assert!(SecretPattern::parse("*").unwrap().covers(&name));
        assert!(SecretPattern::parse("github-1").unwrap().covers(&name));
        assert!(!SecretPattern::parse("github").unwrap().covers(&name));
        assert!(!SecretPattern::Any.is_within(&SecretPattern::One(name)));
        for wrong in ["", "a b", "a/b", "ä", &"x".repeat(65), "a*"] {
            assert!(SecretName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn p4_places_are_read_or_refused() {
        for (text, user, want) in [
            ("bearer", None, "bearer"),
            ("basic", Some("bot"), "basic"),
            ("git", None, "basic"),
            ("header:X-Api-Key", None, "header:x-api-key"),
            ("query:key", None, "query:key"),
            ("json:login.password", None, "json:login.password"),
            ("sigv4:s3/eu-central-1", Some("AKIA1"), "sigv4:s3/eu-central-1"),
        ] {
            assert_eq!(
                Place::read(text, user).map(|place| place.to_string()).as_deref(),
                Ok(want)
            );
        }
        for (text, user) in [
            ("", None),
            ("bearer", Some("bot")),
            ("basic", Some("a:b")),
            ("header:", None),
            ("header:Host", None),
            ("header:a b", None),
            ("json:a..b", None),
            ("sigv4:s3", Some("AKIA1")),
            ("sigv4:s3/eu", None),
            ("cookie", None),
        ] {
            assert!(Place::read(text, user).is_err(), "{text}");
        }
    }
}
