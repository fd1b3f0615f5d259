//! The gate over HTTP: streamable HTTP at `/mcp`, for clients that speak it.
//!
//! Promises: P4 (without the token, nothing; a body that can be read in two ways goes no further).
//! Trust: whoever connects is hostile until it has shown the token, and is the agent then. A page of the world's that a
//! browser inside the fence shows is turned away by its `Origin`, whatever it knows.
//! See: MCP, "Transports", Streamable HTTP; RFC 6750 section 2.1.

use std::convert::Infallible;
use std::sync::Arc;

use bailiwick_model::Code;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::limits;
use crate::objection::Objections;
use crate::serve::is_same;
use crate::session::Session;

/// Where it is served.
const PATH: &str = "/mcp";

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// True for the first word of an HTTP request.
pub(crate) fn is_http(first: &[u8]) -> bool {
    let word = first.strip_suffix(b" ");
    word.is_some_and(|word| !word.is_empty() && word.len() <= 16 && word.iter().all(u8::is_ascii_uppercase))
}

/// The server of HTTP.
#[derive(Clone)]
pub(crate) struct Web {
    gate: Arc<Gate>,
    objections: Objections,
    token: Arc<str>,
    service: StreamableHttpService<Session, LocalSessionManager>,
}

impl Web {
    pub(crate) fn new(gate: &Arc<Gate>, objections: &Objections, token: &Arc<str>) -> Self {
        let places = Arc::new(Semaphore::new(limits::SESSIONS));
        let of_session = Arc::clone(gate);
        let make = move || {
            let place = Arc::clone(&places).try_acquire_owned();
            let place = place.map_err(|_| std::io::Error::other("too many sessions"))?;
            Ok(Session::new(
                Arc::clone(&of_session),
                CancellationToken::new(),
                Some(place),
            ))
        };
        let config = StreamableHttpServerConfig::default()
            .with_sse_keep_alive(Some(limits::KEEP_ALIVE))
            .with_max_request_body_bytes(limits::MESSAGE);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(limits::SESSION_TIME);
        Self {
            gate: Arc::clone(gate),
            objections: objections.clone(),
            token: Arc::clone(token),
            service: StreamableHttpService::new(make, Arc::new(sessions), config),
        }
    }

    /// Serves one connection.
    pub(crate) async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let serve = service_fn(|request| {
            let web = self.clone();
            async move { Ok::<_, Infallible>(web.answer(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD_TIME)
            .serve_connection(TokioIo::new(stream), serve);
        // A client that breaks off is its own affair.
        let _ = connection.await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !self.knows_token(&request) {
            let why = "it does not know the task's token";
            self.gate
                .channel
                .refuse(Code::NoRule, "an HTTP request to the tools", why)
                .await;
            let mut answer = plain(
                StatusCode::UNAUTHORIZED,
                "bailiwick: the task's token is missing or wrong\n",
            );
            let challenge = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            return answer;
        }
        if !request.headers().get_all(ORIGIN).iter().all(is_own) {
            return plain(
                StatusCode::FORBIDDEN,
                "bailiwick: pages from elsewhere are not served\n",
            );
        }
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "bailiwick: tools are served at /mcp\n");
        }
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, limits::MESSAGE).collect().await else {
            return plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                "bailiwick: the body is too long, or broke off\n",
            );
        };
        let body = body.to_bytes();
        if head.method == Method::POST
            && let Err(objection) = Objections::read(&body)
        {
            return match self.objections.answer(objection).await {
                Some(answer) => json(&answer),
                None => plain(StatusCode::BAD_REQUEST, "bailiwick: the message is not read\n"),
            };
        }
        self.service.handle(Request::from_parts(head, Full::new(body))).await
    }

    fn knows_token(&self, request: &Request<Incoming>) -> bool {
        let mut said = request.headers().get_all(AUTHORIZATION).iter();
        let (Some(said), None) = (said.next(), said.next()) else {
            return false;
        };
        let said = said.as_bytes();
        let (scheme, token) = said.split_at(said.len().min(7));
        scheme.eq_ignore_ascii_case(b"bearer ") && is_same(token, self.token.as_bytes())
    }
}

/// True for a page that the machine itself serves (to the agent: the fence).
fn is_own(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|text| text.split_once("://"));
    let Some(("http" | "https", authority)) = origin else {
        return false;
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn json(message: &impl serde::Serialize) -> Answer {
    let text = serde_json::to_vec(message).unwrap_or_default();
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_a_page_from_elsewhere_is_not_own() {
        for own in [
            "http://localhost",
            "http://localhost:3000",
            "https://127.0.0.1:1",
            "http://[::1]:80",
            "http://[::1]",
        ] {
            assert!(is_own(&HeaderValue::from_static(own)), "{own}");
        }
        for other in [
            "http://evil.test",
            "null",
            "",
            "http://localhost.evil.test",
            "http://localhost:x@evil.test",
            "file://localhost",
        ] {
            assert!(!is_own(&HeaderValue::from_static(other)), "{other}");
        }
    }

    #[test]
    fn the_first_word_tells_http_from_a_token() {
        for http in ["POST ", "GET ", "DELETE ", "OPTIONS "] {
            assert!(is_http(http.as_bytes()), "{http}");
        }
        for token in ["0123456789abcdef\n", "POST\n", "abc ", " ", "", "POST/ "] {
            assert!(!is_http(token.as_bytes()), "{token}");
        }
    }
}
