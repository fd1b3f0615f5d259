//! The console's own style sheet and script, each under a name that holds its digest.

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

fn named(stem: &str, text: &str, ending: &str) -> String {
    let digest = hex::encode(Sha256::digest(text));
    format!("{stem}.{}.{ending}", digest.get(..16).unwrap_or(&digest))
}

static NAMES: LazyLock<[String; 3]> = LazyLock::new(|| {
    [
        named("console", STYLE, "css"),
        named("console", SCRIPT, "js"),
        named("icon", ICON, "svg"),
    ]
});

/// The addresses of style sheet, script and icon.
pub fn addresses() -> [String; 3] {
    NAMES.each_ref().map(|name| format!("/assets/{name}"))
}

/// Hands one out.
pub fn serve(name: &str) -> Response {
    let [style, script, icon] = &*NAMES;
    let (kind, text) = match name {
        name if name == style => ("text/css; charset=utf-8", STYLE),
        name if name == script => ("text/javascript; charset=utf-8", SCRIPT),
        name if name == icon => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    // The name holds the digest: what it names never changes, and holds nothing of anybody's.
    let keep = "private, max-age=31536000, immutable";
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, keep)], text).into_response()
}
