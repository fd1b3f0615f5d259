//! Logging in and out.

use std::time::Instant;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bailiwick_gate::desk::Known;

use crate::house::{House, Open, Seat};
use crate::pages;
use crate::sessions::{NoEntry, Pass};
use crate::terms::Fields;
use crate::wall::COOKIE;

/// The page to log in.
pub async fn page(State(open): State<Open>) -> Response {
    pages::login::page(codes(&open).await, None).into_response()
}

/// True when somebody logs in by codes.
async fn codes(open: &Open) -> bool {
    let any = |house: &House| house.logins.as_ref().is_some_and(|logins| logins.any());
    open.ask(any).await.unwrap_or(false)
}

/// Logs in by the token of a link.
pub async fn by_link(State(open): State<Open>, Extension(fields): Extension<Fields>) -> Response {
    // A person may have copied the link whole.
    let token = fields.get("token").unwrap_or_default().trim();
    let token = token.rsplit('#').next().unwrap_or_default().to_owned();
    let random = open.house.random.clone();
    let entered = open.sessions().enter(&token, &*random, Instant::now());
    match entered {
        Ok(pass) => welcome(&pass),
        Err(NoEntry::Unknown) => {
            let words = "this link was used already, or is too old: `bailiwick console link` makes a new one";
            refuse(&open, StatusCode::FORBIDDEN, words).await
        }
        Err(NoEntry::TooMany) => {
            let words = "there have been too many wrong tries: wait a few seconds";
            refuse(&open, StatusCode::TOO_MANY_REQUESTS, words).await
        }
    }
}

/// Logs in by a code of one's own.
pub async fn by_code(State(open): State<Open>, Extension(fields): Extension<Fields>) -> Response {
    let name = fields.get("name").unwrap_or_default().trim().to_owned();
    let code: String = fields.get("code").unwrap_or_default().split_whitespace().collect();
    let Some(logins) = open.house.logins.clone() else {
        return refuse(&open, StatusCode::FORBIDDEN, "nobody logs in here by a code").await;
    };
    if name.len() > 64 || code.len() > 16 || !open.sessions().may_try_code(&name, Instant::now()) {
        let words = "there have been too many wrong codes: wait a minute";
        return refuse(&open, StatusCode::TOO_MANY_REQUESTS, words).await;
    }
    let wanted = name.clone();
    let checked = open.ask(move |_| logins.check(&wanted, &code)).await;
    match checked {
        Ok(Some(approver)) => {
            let random = open.house.random.clone();
            let pass = open.sessions().right_code(&name, approver, &*random, Instant::now());
            welcome(&pass)
        }
        Ok(None) => refuse(&open, StatusCode::FORBIDDEN, "name and code do not fit").await,
        Err(words) => refuse(&open, StatusCode::INTERNAL_SERVER_ERROR, &words.0).await,
    }
}

async fn refuse(open: &Open, status: StatusCode, words: &str) -> Response {
    (status, pages::login::page(codes(open).await, Some(words))).into_response()
}

/// Goes on to the session's first page. The cookie is sent below that page's path only: on loopback every server has the
/// same cookies, whatever its port.
fn welcome(pass: &Pass) -> Response {
    let mut headers = HeaderMap::new();
    let cookie = format!(
        "{COOKIE}={}; Path=/s/{}; HttpOnly; SameSite=Strict",
        pass.cookie, pass.path
    );
    let place = format!("/s/{}/questions", pass.path);
    for (name, value) in [(header::SET_COOKIE, cookie), (header::LOCATION, place)] {
        // Both are made of hex digits and our own words.
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Logs out.
pub async fn leave(State(open): State<Open>, Extension(seat): Extension<Seat>) -> Response {
    open.sessions().leave(&seat.path);
    if let (Known::Code, Some(logins)) = (seat.approver.by, open.house.logins.clone()) {
        let approver = seat.approver.clone();
        // Whoever cannot be told so now forgets it by themselves.
        let _ = open.ask(move |_| logins.leave(&approver)).await;
    }
    let cookie = format!("{COOKIE}=; Path=/s/{}; HttpOnly; SameSite=Strict; Max-Age=0", seat.path);
    let page = pages::layout::bare("Logged out", "`bailiwick console link` makes a new link");
    ([(header::SET_COOKIE, cookie)], page).into_response()
}
