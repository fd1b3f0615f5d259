//! What stands before every page: who is heard, who is logged in, which form is one of ours; and what every answer says to
//! the browser.
//!
//! Promises: P8. Trust: all of a request is whoever connects'.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use crate::access::{Deaf, hear};
use crate::house::{Open, Seat};
use crate::pages;
use crate::terms::Fields;

/// The name of the cookie.
pub const COOKIE: &str = "bailiwick-console";

/// Largest form.
const MAX_FORM: usize = 64 * 1024;

/// How long a form may take to come.
const FORM_PATIENCE: Duration = Duration::from_secs(10);

/// Longest address of a page.
const MAX_ADDRESS: usize = 2048;

/// What a page may load, and who may frame it.
const CONTENT: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What every answer says to the browser.
const SAID: [(&str, &str); 7] = [
    ("content-security-policy", CONTENT),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // Not `no-referrer`, with which browsers do not say which origin a form comes from.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Lets a request through to its page, or not.
pub async fn guard(State(open): State<Open>, mut request: Request, next: Next) -> Response {
    let mut response = match admit(&open, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(refused) => refused,
    };
    let headers = response.headers_mut();
    for (name, value) in SAID {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn admit(open: &Open, request: &mut Request) -> Result<(), Response> {
    let address = request.uri().path_and_query().map_or("", |address| address.as_str());
    if address.len() > MAX_ADDRESS {
        return Err(StatusCode::URI_TOO_LONG.into_response());
    }
    let path = request.uri().path().strip_prefix("/s/");
    let path = path.map(|rest| rest.split('/').next().unwrap_or_default().to_owned());
    hear(request.method(), request.headers(), open.port, path.is_some())
        .map_err(|deaf| refuse(deaf).into_response())?;
    let fields = match *request.method() {
        Method::POST => Some(form(request).await?),
        _ => None,
    };
    if let Some(path) = path {
        let cookies = cookies(request.headers());
        // What a page fetches by itself is no sign that anybody is there.
        let asked_for = !request.headers().contains_key("x-console-live") && !request.uri().path().ends_with("/live");
        let mut sessions = open.sessions();
        let Some(session) = sessions.find(&path, &cookies, asked_for, Instant::now()) else {
            drop(sessions);
            let page = pages::login::ended();
            return Err((StatusCode::UNAUTHORIZED, page).into_response());
        };
        if let Some(fields) = &fields
            && !same(fields.get("form").unwrap_or_default(), &session.form)
        {
            drop(sessions);
            let words = "this form is not one of this session's: go back, load the page anew, and answer there";
            return Err((StatusCode::FORBIDDEN, pages::layout::bare("Not taken", words)).into_response());
        }
        let seat = Seat {
            approver: session.approver.clone(),
            form: session.form.clone(),
            path,
        };
        drop(sessions);
        request.extensions_mut().insert(seat);
    }
    if let Some(fields) = fields {
        request.extensions_mut().insert(fields);
    }
    Ok(())
}

fn refuse(deaf: Deaf) -> impl IntoResponse {
    let (status, words) = match deaf {
        Deaf::Host => (StatusCode::MISDIRECTED_REQUEST, "this is not an address of the console"),
        Deaf::Origin => (
            StatusCode::FORBIDDEN,
            "this was sent by a page that is not the console's",
        ),
        Deaf::Method => (
            StatusCode::METHOD_NOT_ALLOWED,
            "the console reads pages and takes forms, and nothing else",
        ),
    };
    (status, words)
}

/// Compares in a time that does not tell how much is right.
fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differs == 0
}

async fn form(request: &mut Request) -> Result<Fields, Response> {
    let refuse = |status: StatusCode| status.into_response();
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if kind != Some("application/x-www-form-urlencoded") {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let body = std::mem::replace(request.body_mut(), Body::empty());
    let whole = tokio::time::timeout(FORM_PATIENCE, Limited::new(body, MAX_FORM).collect()).await;
    let whole = whole.map_err(|_| refuse(StatusCode::REQUEST_TIMEOUT))?;
    let whole = whole.map_err(|_| refuse(StatusCode::PAYLOAD_TOO_LARGE))?;
    Fields::read(&whole.to_bytes()).ok_or_else(|| refuse(StatusCode::BAD_REQUEST))
}

/// The values of our cookie: a page of another port may have set one of the same name.
fn cookies(headers: &HeaderMap) -> Vec<String> {
    let all = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value.to_owned())
        .take(8)
        .collect()
}
