//! HTTP URLs in one normal form: what a server will act on, whatever the spelling.
//!
//! Promises: P5. Trust: the text comes from the agent, which wants a path rule to see another path than the server.
//! A path whose folding servers disagree about (encoded dots, `;` beside dots, backslashes, doubled slashes, encoded slashes
//! beside any of these, doubly encoded text) is refused, not guessed. Another encoded slash is read in both ways: an allow must
//! cover both, a deny holds for either.
//! See: RFC 3986, sections 5.2.4 and 6.2; WHATWG URL.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::host::{Host, HostError};

/// A slash that does not part segments, in the one form.
const SLASH: &str = "%2F";

/// Longest URL that is accepted, in bytes.
const MAX: usize = 16 * 1024;

/// The two schemes that the network gate speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that the scheme means when none is written.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Reads a scheme in any letter case.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Http, Self::Https]
            .into_iter()
            .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str()))
    }
}

/// Says why a text is not a URL that may be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is longer than the limit.
    #[error("a url of {0} bytes is too long: at most {MAX}")]
    TooLong(usize),
    /// It has no scheme that the gate speaks.
    #[error("`{0}` does not begin with `http://` or `https://`")]
    Scheme(String),
    /// Its host is none.
    #[error(transparent)]
    Host(#[from] HostError),
    /// It names a user before the host.
    #[error("`{0}` carries user information before its host")]
    UserInformation(String),
    /// Its port is none.
    #[error("`{0}` is not a port")]
    Port(String),
    /// Servers disagree about what its path means.
    #[error("`{path}` can be read in more than one way: {why}")]
    Ambiguous {
        /// The path as it was written.
        path: String,
        /// What is ambiguous in it.
        why: &'static str,
    },
}

/// A URL in normal form. There is never a fragment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpUrl {
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, also when it is the scheme's own.
    pub port: u16,
    /// The path: begins with `/`, dot segments folded, percent-encoding in one form.
    path: String,
    /// What stands after `?`, as it was written.
    query: Option<String>,
}

impl HttpUrl {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX {
            return Err(UrlError::TooLong(text.len()));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::Scheme(text.into()))?;
        let scheme = Scheme::parse(scheme).ok_or_else(|| UrlError::Scheme(text.into()))?;
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (host, port) = Self::authority(authority, scheme.default_port())?;
        Self::from_parts(scheme, host, port, target)
    }

    /// Reads `host[:port]`, as in a URL, a `Host` header or a CONNECT request.
    pub fn authority(text: &str, default_port: u16) -> Result<(Host, u16), UrlError> {
        if text.contains('@') {
            return Err(UrlError::UserInformation(text.into()));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            None => default_port,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| UrlError::Port(digits.into()))?,
            Some(other) => return Err(UrlError::Port(other.into())),
        };
        Ok((Host::parse(host)?, port))
    }

    /// Puts a URL together from a known host and the target of a request line (`/path?query`).
    pub fn from_parts(scheme: Scheme, host: Host, port: u16, target: &str) -> Result<Self, UrlError> {
        if target.len() > MAX {
            return Err(UrlError::TooLong(target.len()));
        }
        let target = target.split('#').next().unwrap_or("");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        if let Some(query) = query
            && query.bytes().any(|byte| !(0x21..0x7f).contains(&byte))
        {
            return Err(UrlError::Ambiguous {
                path: query.into(),
                why: "white space or non-ASCII text in the query",
            });
        }
        Ok(Self {
            scheme,
            host,
            port,
            path: normal_path(path)?,
            query: query.map(Into::into),
        })
    }

    /// The path in normal form.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The ways in which servers may read the path: as it is and, where a slash in it is encoded, with that as a slash.
    pub fn readings(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let other = self.path.contains(SLASH).then(|| self.path.replace(SLASH, "/"));
        std::iter::once(Cow::Borrowed(self.path.as_str())).chain(other.map(Cow::Owned))
    }

    /// The query, without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The same with one spelling for this machine, which has three: `localhost`, `127.0.0.1` and `[::1]`.
    #[must_use]
    pub fn with_one_loopback(mut self) -> Self {
        self.host = self.host.with_one_loopback();
        self
    }

    /// What stands in the request line that is sent on: the very path that was decided about.
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// `host` or `host:port`, as it stands in a `Host` header.
    pub fn host_header(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

fn normal_path(path: &str) -> Result<String, UrlError> {
    let ambiguous = |why| UrlError::Ambiguous { path: path.into(), why };
    if path.is_empty() {
        return Ok("/".into());
    }
    if !path.starts_with('/') {
        return Err(ambiguous("it does not begin with a slash"));
    }
    let decoded = decode_unreserved(path).map_err(ambiguous)?;
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = decoded.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." if segment == ".." && kept.pop().is_none() => {
                return Err(ambiguous("it climbs above the root"));
            }
            "." | ".." => {
                if last {
                    kept.push("");
                }
            }
            "" if !last => return Err(ambiguous("doubled slashes are folded by some servers")),
            other => {
                // `..;x` is a parent folder to servers that strip path parameters.
                let is_dots = |part: &str| part.split(';').next().is_some_and(|bare| matches!(bare, "." | ".."));
                if is_dots(other) {
                    return Err(ambiguous("a parameter on a dot segment"));
                }
                if other.contains(SLASH) && other.split(SLASH).any(|part| part.is_empty() || is_dots(part)) {
                    return Err(ambiguous("an encoded slash beside dots or another slash"));
                }
                kept.push(other);
            }
        }
    }
    Ok(format!("/{}", kept.join("/")))
}

/// Decodes what need not be encoded, writes the rest with upper-case digits, refuses what servers fold differently.
fn decode_unreserved(path: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err("a broken percent-encoding");
                };
                match u8::try_from(high << 4 | low).unwrap_or(0) {
                    // Names hold them, as in `/@scope%2Fname`: kept, and read in both ways ([`HttpUrl::readings`]).
                    b'/' => out.push_str(SLASH),
                    b'\\' => return Err("an encoded backslash"),
                    b'%' => return Err("doubly encoded text"),
                    0..=0x1f | 0x7f => return Err("an encoded control character"),
                    plain @ (b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~') => {
                        out.push(char::from(plain));
                    }
                    other => out.push_str(&format!("%{other:02X}")),
                }
            }
            b'\\' => return Err("a backslash"),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => return Err("white space, a control character or non-ASCII text"),
        }
    }
    Ok(out)
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_str(), self.host_header(), self.target())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for HttpUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HttpUrl {
    /// Takes only the normal form.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match Self::parse(&text) {
            Ok(url) if url.to_string() == text => Ok(url),
            _ => Err(serde::de::Error::custom("not a url in normal form")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> String {
        HttpUrl::parse(text).map_or_else(|_| "refused".into(), |url| url.to_string())
    }

    #[test]
    fn p5_one_url_for_many_spellings() {
        for (spelling, want) in [
            ("HTTP://API.Example.Test.:80", "http://api.example.test/"),
            ("http://a.test/x/../public/a#frag", "http://a.test/public/a"),
            ("http://a.test/%70ublic/%7ea?q=%2e", "http://a.test/public/~a?q=%2e"),
            ("http://a.test/public/%2e%2e/admin", "http://a.test/admin"),
            ("https://a.test:8443/a%c3%a9/", "https://a.test:8443/a%C3%A9/"),
            ("http://[::1]:80/a/.", "http://[::1]/a/"),
            ("https://a.test/@scope%2fname", "https://a.test/@scope%2Fname"),
        ] {
            assert_eq!(url(spelling), want, "{spelling}");
        }
    }

    #[test]
    fn p5_what_servers_read_differently_is_refused() {
        for bad in [
            "http://a.test/public/..;x/admin",
            "http://a.test/public/..%2fadmin",
            "http://a.test/public/%2fadmin",
            "http://a.test/a%2f%2fb",
            "http://a.test/a%2f",
            "http://a.test/a%2f.;x%2fb",
            "http://a.test/a%5cb",
            "http://a.test//admin",
            "http://a.test/public/%252e%252e/admin",
            "http://a.test/..",
            "http://a.test\\@b.test/",
            "http://a.test@b.test/",
            "http://a.test:0/",
            "http://a.test:99999/",
            "http://a.test:/",
            "http://a.test/a b",
            "ftp://a.test/",
            "http:///x",
            "http://a.test/%00",
            "http://a.test/%zz",
        ] {
            assert_eq!(url(bad), "refused", "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parse_is_idempotent_and_never_panics(text in "https?://[a-z.0-9@:\\[\\]\\\\]{0,16}[/a-z.%2e5;?#\\\\]{0,24}|\\PC{0,30}") {
            if let Ok(url) = HttpUrl::parse(&text) {
                proptest::prop_assert!(!url.path().split('/').any(|segment| segment == ".." || segment == "."));
                proptest::prop_assert_eq!(HttpUrl::parse(&url.to_string()), Ok(url));
            }
        }
    }
}
