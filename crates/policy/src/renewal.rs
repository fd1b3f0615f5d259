//! Reads `refresh` of a secret: a login that ends, and is renewed with what its source has.
//!
//! Promises: P4 (an address without TLS elsewhere than on this machine, a key that is not known: an error at its place), P9 (a
//! token stands here by its source only).
//! Trust: only files of the person's and a trusted project's file name where a refresh token is sent.
//! Not here: the request itself (`proxy`), when it is made and what is kept (the program).
//! See: RFC 6749, sections 2.3.1, 5 and 6; RFC 9700, section 4.14.

use bailiwick_model::{AddressClass, Code, Host, HttpUrl, Method, Request, Resource, Scheme, TaskId, Verb};
use toml_edit::TableLike;

use crate::diagnostic::Span;
use crate::document::Reader;
use crate::policy::Policy;
use crate::secret::SecretSource;

/// The keys of `refresh`.
const KEYS: &[&str] = &["url", "client", "client_secret", "scope"];

/// How a login is renewed: what its source has is a refresh token, for which an address gives access tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The token endpoint.
    pub url: HttpUrl,
    /// The name under which this client is known there.
    pub client: String,
    /// Where its password comes from, for a client that has one.
    pub client_secret: Option<SecretSource>,
    /// The scope that is asked for; without it that of the refresh token.
    pub scope: Option<String>,
}

/// In one line: where it is renewed, and as whom.
impl std::fmt::Display for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "renewed at {} as {}", self.url, self.client)?;
        match &self.scope {
            Some(scope) => write!(f, " for {scope}"),
            None => Ok(()),
        }
    }
}

impl Policy {
    /// True when a rule denies that the daemon sends a request of its own to an address that a person's line names.
    pub fn denies_own(&self, method: &Method, url: &HttpUrl) -> bool {
        let request = Request::new(TaskId([0; 8]), Verb::Http(method.clone()), Resource::Url(url.clone()));
        self.evaluate(&request).code == Code::DeniedByRule
    }
}

/// Says why an address is none to which the daemon may send a request of its own.
pub(crate) fn own_address(text: &str) -> Result<HttpUrl, (String, &'static str)> {
    const HINT: &str = "write `https://…`: without TLS it goes to this machine alone";
    let url = HttpUrl::parse(text).map_err(|error| (error.to_string(), HINT))?;
    let here = match &url.host {
        Host::Address(address) => AddressClass::of(*address) == AddressClass::Loopback,
        Host::Name(_) => url.host.is_localhost(),
    };
    match url.scheme {
        Scheme::Http if !here => Err((format!("`{text}` is an address that others can read along with"), HINT)),
        _ => Ok(url),
    }
}

impl Reader<'_> {
    /// `refresh = { url = "…", client = "…" }`.
    pub(crate) fn renewal(&mut self, table: &dyn TableLike, span: Option<Span>) -> Option<Renewal> {
        let (mut url, mut client, mut client_secret, mut scope) = (None, None, None, None);
        for (key, item) in table.iter() {
            let at = table.key(key).and_then(|key| key.span());
            match key {
                "url" => {
                    let (text, span) = self.text_of(item, key)?;
                    match own_address(&text) {
                        Ok(read) => url = Some(read),
                        Err((message, hint)) => {
                            self.error(span, &message, Some(hint.into()));
                            return None;
                        }
                    }
                }
                "client" | "scope" => {
                    let (text, span) = self.text_of(item, key)?;
                    if text.is_empty() || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                        self.error(span, &format!("`{key}` is one line of ASCII"), None);
                        return None;
                    }
                    match key {
                        "client" => client = Some(text),
                        _ => scope = Some(text),
                    }
                }
                "client_secret" => {
                    let (text, span) = self.text_of(item, key)?;
                    match self.source(&text) {
                        Ok(source) => client_secret = Some(source),
                        Err((message, hint)) => {
                            self.error(span, &message, Some(hint.into()));
                            return None;
                        }
                    }
                }
                other => self.unknown(other, at, KEYS),
            }
        }
        let (Some(url), Some(client)) = (url, client) else {
            let hint = "write `refresh = { url = \"https://login.example.com/token\", client = \"my-client\" }`";
            self.error(span, "`refresh` does not say where, or as whom", Some(hint.into()));
            return None;
        };
        Some(Renewal {
            url,
            client,
            client_secret,
            scope,
        })
    }
}
