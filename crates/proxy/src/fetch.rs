//! One request for the daemon itself, which speaks to no network: a login is renewed, or a text of a person's is read.
//!
//! Promises: P4 (another status than asked for, a redirect, an answer that is too long, or no token: a failure that is said
//! without what was sent), P5 (the server is who its certificate says, at an address that its host may have), P9 (tokens have
//! no printed form, and go to the one address that the person named).
//! Trust: the address is the person's, and what it answers is whatever it says: it is read here, in a process of its own that
//! reads no files, holds the one token, and ends with this request.
//! Not here: whether it may be sent, when, and what is kept (the daemon).
//! See: RFC 6749, sections 2.3.1, 5 and 6; RFC 6750; RFC 9110.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bailiwick_gate::{MAX_SECRET, SecretValue};
use bailiwick_model::{AddressClass, Host, HttpUrl, Scheme};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::dial::connect;
use crate::inject::percent;
use crate::limits;
use crate::links::Destination;
use crate::names::{Names, Resolve};
use crate::upstream::Upstream;

/// Where a request goes. Comes from the daemon, which is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchFrom {
    /// The address, as a person named it.
    pub url: String,
    /// Names that are not looked up: they have this address.
    #[serde(default)]
    pub hosts: BTreeMap<Host, IpAddr>,
    /// True where the host may stand for a private address.
    #[serde(default)]
    pub private: bool,
    /// Roots that the person believes besides the machine's: PEM.
    #[serde(default)]
    pub roots: String,
}

/// What is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wish {
    /// An access token for a refresh token.
    Renew {
        /// The name of the client.
        client: String,
        /// Its password, where it has one.
        #[serde(default)]
        client_secret: Option<SecretValue>,
        /// The refresh token.
        token: SecretValue,
        /// The scope, where one is asked for.
        #[serde(default)]
        scope: Option<String>,
    },
    /// A text.
    Read {
        /// The most bytes that it may have.
        most: usize,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fetched {
    /// A new access token.
    Renewed {
        /// It.
        access: SecretValue,
        /// The refresh token that takes the place of the one that was sent, where there is one.
        token: Option<SecretValue>,
        /// How long it holds, in seconds, where the answer says so.
        seconds: Option<u64>,
    },
    /// The text, in a descriptor that comes along.
    Read {},
    /// The token service refuses: a word of RFC 6749, section 5.2, such as `invalid_grant`.
    Refused {
        /// The word.
        word: String,
    },
    /// It could not be done.
    Failed {
        /// Why; nothing of what was sent stands in it.
        why: String,
    },
}

/// Longest time that a login holds, in seconds: ten years.
const LONGEST: u64 = 10 * 366 * 24 * 3600;

/// Longest word of a refusal.
const WORD: usize = 64;

/// Makes the request. The text comes with what was read.
pub fn fetch<R: Resolve>(from: FetchFrom, wish: &Wish, resolver: R) -> (Fetched, String) {
    let failed = |why: String| (Fetched::Failed { why }, String::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(fault) => return failed(fault.to_string()),
    };
    let made = async { tokio::time::timeout(limits::FETCH_TIME, made(from, wish, resolver)).await };
    let found = match runtime.block_on(made) {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => failed(why),
        Err(_) => failed(format!("no answer within {} s", limits::FETCH_TIME.as_secs())),
    };
    // A look-up that hangs in the system's resolver is left behind.
    runtime.shutdown_background();
    found
}

async fn made<R: Resolve>(from: FetchFrom, wish: &Wish, resolver: R) -> Result<(Fetched, String), String> {
    let url = HttpUrl::parse(&from.url).map_err(|fault| fault.to_string())?;
    let most = match wish {
        Wish::Renew { .. } => limits::TOKEN_ANSWER,
        Wish::Read { most } => *most,
    };
    let request = written(&url, wish)?;
    let (status, body) = answered(&url, from, request, resolver, most).await?;
    match wish {
        Wish::Renew { .. } => renewed(status, &body).map(|found| (found, String::new())),
        Wish::Read { .. } if status == StatusCode::OK => match std::str::from_utf8(&body) {
            Ok(text) => Ok((Fetched::Read {}, text.to_owned())),
            Err(_) => Err("what it answered is no text".into()),
        },
        Wish::Read { .. } => Err(answered_with(status)),
    }
}

fn answered_with(status: StatusCode) -> String {
    match status.is_redirection() {
        true => format!("it answered with {}: another address is not gone to", status.as_u16()),
        false => format!("it answered with {}", status.as_u16()),
    }
}

/// The request as it is sent.
fn written(url: &HttpUrl, wish: &Wish) -> Result<Request<Full<Bytes>>, String> {
    let port = match (url.scheme, url.port) {
        (Scheme::Https, 443) | (Scheme::Http, 80) => String::new(),
        (_, port) => format!(":{port}"),
    };
    let host = match &url.host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]{port}"),
        host => format!("{host}{port}"),
    };
    let request = Request::builder()
        .uri(url.target())
        .header(header::HOST, host)
        .header(header::USER_AGENT, "bailiwick")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::CONNECTION, "close");
    let built = match wish {
        Wish::Read { .. } => request.method(Method::GET).body(Full::new(Bytes::new())),
        Wish::Renew {
            client,
            client_secret,
            token,
            scope,
        } => {
            let room = token.bytes().len().saturating_mul(3).saturating_add(4096);
            let mut form = Zeroizing::new(String::with_capacity(room));
            form.push_str("grant_type=refresh_token&refresh_token=");
            form.push_str(&percent(token.bytes()));
            if let Some(scope) = scope {
                form.push_str("&scope=");
                form.push_str(&percent(scope.as_bytes()));
            }
            let mut request = request
                .method(Method::POST)
                .header(header::ACCEPT, "application/json")
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            match client_secret {
                None => {
                    form.push_str("&client_id=");
                    form.push_str(&percent(client.as_bytes()));
                }
                // Both are coded as in a form first (RFC 6749, section 2.3.1).
                Some(secret) => {
                    let login = Zeroizing::new(format!("{}:{}", *percent(client.as_bytes()), *percent(secret.bytes())));
                    let coded = Zeroizing::new(format!("Basic {}", *Zeroizing::new(STANDARD.encode(login.as_bytes()))));
                    let mut value =
                        HeaderValue::from_str(&coded).map_err(|_| "the client's password cannot be sent")?;
                    value.set_sensitive(true);
                    request = request.header(header::AUTHORIZATION, value);
                }
            }
            request.body(Full::new(Bytes::copy_from_slice(form.as_bytes())))
        }
    };
    built.map_err(|_| "the request cannot be written".into())
}

/// Sends it to the first of the host's addresses that answers; the status and the body.
async fn answered<R: Resolve>(
    url: &HttpUrl,
    from: FetchFrom,
    request: Request<Full<Bytes>>,
    resolver: R,
    most: usize,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), String> {
    let is_pinned = from.hosts.contains_key(&url.host);
    let names_it = url.host.address().is_some() || url.host.is_localhost() || is_pinned;
    let names = Names::new(from.hosts, resolver);
    let addresses = match names.known(&url.host) {
        Some(known) => known,
        None => names.addresses(&url.host).await?,
    };
    let may = |address: &IpAddr| match AddressClass::of(*address) {
        AddressClass::Public => true,
        AddressClass::Private => names_it || from.private,
        AddressClass::Loopback => names_it,
        AddressClass::LinkLocal => false,
    };
    let mut why = format!("`{}` stands for an address that is refused", url.host);
    for address in addresses.into_iter().filter(may) {
        let to = Destination {
            scheme: url.scheme,
            host: url.host.clone(),
            port: url.port,
            address,
            pins: Vec::new(),
            many: false,
        };
        let stream = match connect(&to).await {
            Ok(stream) => stream,
            Err(fault) => {
                why = fault.why;
                continue;
            }
        };
        return match url.scheme {
            Scheme::Http => sent(TokioIo::new(stream), request, most).await,
            Scheme::Https => {
                let upstream = Upstream::new(from.roots);
                let (stream, _) = upstream.connect(&to, stream).await.map_err(|fault| fault.why)?;
                sent(TokioIo::new(stream), request, most).await
            }
        };
    }
    Err(why)
}

async fn sent<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let broke = |fault: hyper::Error| format!("the connection broke off: {fault}");
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(limits::HEAD_BYTES)
        .handshake(stream)
        .await
        .map_err(broke)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(broke)?;
    let (head, body) = answer.into_parts();
    let read = Limited::new(body, most).collect().await;
    connection.abort();
    match read {
        Ok(read) => Ok((head.status, Zeroizing::new(read.to_bytes().to_vec()))),
        Err(fault) if fault.is::<http_body_util::LengthLimitError>() => {
            Err(format!("what it answered is longer than {most} bytes"))
        }
        Err(_) => Err("the answer broke off".into()),
    }
}

/// What a token service answers. Fields that are not known mean nothing (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

fn renewed(status: StatusCode, body: &[u8]) -> Result<Fetched, String> {
    let read: Result<TokenAnswer, _> = serde_json::from_slice(body);
    if !status.is_success() {
        let is_word = |word: &String| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            !word.is_empty() && word.len() <= WORD && word.bytes().all(plain)
        };
        let refuses = matches!(status.as_u16(), 400 | 401);
        return match read.ok().and_then(|read| read.error).filter(is_word) {
            Some(word) if refuses => Ok(Fetched::Refused { word }),
            _ => Err(answered_with(status)),
        };
    }
    // What is wrong with it is not repeated: a token may stand in the words.
    let read = read.map_err(|_| "what it answered is no answer of a token service".to_owned())?;
    let access = read.access_token.map(Zeroizing::new);
    let next = read.refresh_token.map(Zeroizing::new);
    let access = access.ok_or("its answer has no `access_token`")?;
    let is_bearer = read.token_type.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    if !is_bearer {
        return Err("its `token_type` is not `Bearer`".into());
    }
    let seconds = match read.expires_in {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(text)) => {
            Some(text.parse::<u64>().map_err(|_| "its `expires_in` is no number")?)
        }
        Some(other) => Some(other.as_u64().ok_or("its `expires_in` is no number")?),
    };
    Ok(Fetched::Renewed {
        access: token(&access)?,
        token: next.map(|text| token(&text)).transpose()?,
        seconds: seconds.map(|seconds| seconds.min(LONGEST)),
    })
}

/// A token, of the signs that RFC 6749 lets it have.
fn token(text: &str) -> Result<SecretValue, String> {
    let plain = |byte: u8| (b'!'..=b'~').contains(&byte);
    if text.is_empty() || text.len() > MAX_SECRET || !text.bytes().all(plain) {
        return Err("it gives a token that cannot be sent".into());
    }
    Ok(SecretValue::new(Zeroizing::new(text.as_bytes().to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Result<Fetched, String> {
        renewed(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    fn value(text: &str) -> SecretValue {
        SecretValue::new(Zeroizing::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn p4_an_answer_of_a_token_service_is_read_or_refused() {
        let whole =
            r#"{"access_token": "a1", "token_type": "bearer", "expires_in": 3600, "refresh_token": "r2", "more": [1]}"#;
        assert_eq!(
            of(200, whole),
            Ok(Fetched::Renewed {
                access: value("a1"),
                token: Some(value("r2")),
                seconds: Some(3600),
            })
        );
        let short = r#"{"access_token": "a1", "token_type": "Bearer", "expires_in": "60"}"#;
        assert!(matches!(
            of(200, short),
            Ok(Fetched::Renewed {
                token: None,
                seconds: Some(60),
                ..
            })
        ));
        let word = |word: &str| Ok(Fetched::Refused { word: word.into() });
        assert_eq!(
            of(400, r#"{"error": "invalid_grant", "error_description": "r1 is spent"}"#),
            word("invalid_grant")
        );
        assert_eq!(of(401, r#"{"error": "invalid_client"}"#), word("invalid_client"));
        for (status, body) in [
            (500, r#"{"error": "invalid_grant"}"#),
            (302, ""),
            (400, "<html>"),
            (400, r#"{"error": "Canary Token"}"#),
            (200, ""),
            (200, "[]"),
            (200, r#"{"token_type": "bearer"}"#),
            (200, r#"{"access_token": "canary"}"#),
            (200, r#"{"access_token": "canary", "token_type": "mac"}"#),
            (
                200,
                r#"{"access_token": "canary", "access_token": "b", "token_type": "bearer"}"#,
            ),
            (200, r#"{"access_token": "canary\n", "token_type": "bearer"}"#),
            (
                200,
                r#"{"access_token": "canary", "token_type": "bearer", "expires_in": -1}"#,
            ),
            (200, r#"{"access_token": 1, "token_type": "bearer"}"#),
            (200, r#"{"access_token": "", "token_type": "bearer"}"#),
        ] {
            let why = of(status, body).expect_err(body);
            assert!(!why.to_lowercase().contains("canary"), "{why}");
        }
    }

    #[test]
    fn p9_a_refresh_token_stands_in_the_body_alone() {
        let url = HttpUrl::parse("https://login.test:8443/token?x=1").unwrap();
        let wish = |client_secret: Option<&str>| Wish::Renew {
            client: "my client".into(),
            client_secret: client_secret.map(value),
            token: value("r/1+2"),
            scope: Some("a b".into()),
        };
        let body = |request: Request<Full<Bytes>>| {
            let collected = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(request.into_body().collect());
            String::from_utf8(collected.unwrap().to_bytes().to_vec()).unwrap()
        };
        let public = written(&url, &wish(None)).unwrap();
        assert_eq!(public.uri(), "/token?x=1");
        assert_eq!(public.headers()[header::HOST], "login.test:8443");
        assert!(!public.headers().contains_key(header::AUTHORIZATION));
        assert!(!format!("{:?}", public.headers()).contains("r/1"));
        assert_eq!(
            body(public),
            "grant_type=refresh_token&refresh_token=r%2F1%2B2&scope=a%20b&client_id=my%20client"
        );
        let known = written(&url, &wish(Some("p:w"))).unwrap();
        let login = known.headers()[header::AUTHORIZATION]
            .to_str()
            .unwrap()
            .strip_prefix("Basic ")
            .unwrap()
            .to_owned();
        assert_eq!(STANDARD.decode(login).unwrap(), b"my%20client:p%3Aw");
        assert!(!body(known).contains("client"));
        assert!(!format!("{:?}", wish(Some("p:w"))).contains("r/1"));
    }

    struct Fixed(&'static str);

    impl Resolve for Fixed {
        async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            Ok(vec![self.0.parse().unwrap()])
        }
    }

    fn from(url: &str) -> FetchFrom {
        FetchFrom {
            url: url.into(),
            hosts: BTreeMap::new(),
            private: false,
            roots: String::new(),
        }
    }

    /// A server that answers one request with these bytes.
    fn answering(bytes: Vec<u8>) -> (String, std::thread::JoinHandle<String>) {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/people", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0u8; 4096];
            let count = stream.read(&mut head).unwrap();
            // The other side may have had enough.
            let _ = stream.write_all(&bytes);
            String::from_utf8_lossy(&head[..count]).into_owned()
        });
        (url, served)
    }

    #[test]
    fn p4_a_text_is_read_whole_or_not_at_all() {
        let text =
            |status: &str, body: &str| format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let long = "x".repeat(65);
        for (answer, want) in [
            (text("200 OK", "people = []"), Ok("people = []")),
            (text("200 OK", &long), Err("what it answered is longer than 64 bytes")),
            (
                format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000)),
                Err("what it answered is longer than 64 bytes"),
            ),
            (text("404 Not Found", "no"), Err("it answered with 404")),
            (
                text("302 Found", ""),
                Err("it answered with 302: another address is not gone to"),
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".into(),
                Err("the answer broke off"),
            ),
        ] {
            let (url, served) = answering(answer.into_bytes());
            let found = fetch(from(&url), &Wish::Read { most: 64 }, crate::names::SystemResolver);
            let asked = served.join().unwrap();
            assert!(asked.starts_with("GET /people HTTP/1.1\r\n"), "{asked}");
            match want {
                Ok(text) => assert_eq!(found, (Fetched::Read {}, text.to_owned())),
                Err(why) => assert_eq!(found.0, Fetched::Failed { why: why.into() }),
            }
        }
    }

    #[test]
    fn p5_a_name_stands_for_no_address_that_it_may_not_have() {
        for (url, address) in [
            ("https://login.test/token", "127.0.0.1"),
            ("https://login.test/token", "10.0.0.1"),
            ("https://login.test/token", "169.254.169.254"),
            ("http://169.254.169.254/token", "1.1.1.1"),
        ] {
            let (found, _) = fetch(from(url), &Wish::Read { most: 64 }, Fixed(address));
            let Fetched::Failed { why } = found else { panic!() };
            assert!(why.contains("stands for an address that is refused"), "{why}");
        }
    }
}
