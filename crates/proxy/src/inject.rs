//! Puts a secret into a request, in its place.
//!
//! Promises: P9 (the value stands in the place that the permit names, and nowhere else). Trust: what the client sent there is the
//! agent's; it has been looked through already (`standin`).
//! Pure: heads and whole bodies in, heads and whole bodies out. See: RFC 6750, RFC 7617, WHATWG URL (forms).

use bailiwick_model::Place;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::standin::{basic, decoded};

/// Says why a secret cannot be put in. Holds nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfit(pub(crate) &'static str);

/// Replaces the one place where a text stands in another.
fn swapped(within: &[u8], text: &str, with: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.as_bytes();
    let place = within.windows(text.len().max(1)).position(|part| part == text)?;
    let (before, rest) = within.split_at_checked(place)?;
    let mut out = Zeroizing::new(Vec::with_capacity(within.len().saturating_add(with.len())));
    out.extend_from_slice(before);
    out.extend_from_slice(with);
    out.extend_from_slice(rest.get(text.len()..)?);
    Some(out)
}

fn line(bytes: &[u8]) -> Result<HeaderValue, Unfit> {
    let mut value = HeaderValue::from_bytes(bytes).map_err(|_| Unfit("the value cannot stand in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn coded_login(login: &[u8]) -> Result<HeaderValue, Unfit> {
    let coded = Zeroizing::new(STANDARD.encode(login));
    line(Zeroizing::new(format!("Basic {}", *coded)).as_bytes())
}

/// Puts a value into a head: a header, or the target of the request line. `stand_in` is what it takes the place of.
pub(crate) fn into_head(
    place: &Place,
    value: &[u8],
    stand_in: &str,
    headers: &mut HeaderMap,
    target: &mut Zeroizing<String>,
) -> Result<(), Unfit> {
    match place {
        Place::Bearer => {
            let whole = Zeroizing::new([b"Bearer ", value].concat());
            headers.insert(AUTHORIZATION, line(&whole)?);
        }
        Place::Basic { user } => {
            let sent = headers.get(AUTHORIZATION).and_then(|value| basic(value.as_bytes()));
            let login = sent.and_then(|login| swapped(&login, stand_in, value).map(|whole| (login, whole)));
            let login = match (login, user) {
                // The value may be the user, as some services have it.
                (Some((login, whole)), _) if login.starts_with(stand_in.as_bytes()) => whole,
                (_, Some(user)) => Zeroizing::new([user.as_bytes(), b":", value].concat()),
                (Some((_, whole)), None) => whole,
                (None, None) => return Ok(()),
            };
            headers.insert(AUTHORIZATION, coded_login(&login)?);
        }
        Place::Header { name } => {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Unfit("its header has no name"))?;
            let sent = headers
                .get(&name)
                .and_then(|sent| swapped(sent.as_bytes(), stand_in, value));
            let whole = sent.unwrap_or_else(|| Zeroizing::new(value.to_vec()));
            headers.insert(name, line(&whole)?);
        }
        Place::Query { name } => *target = in_query(target, name, value, stand_in)?,
        Place::Form { .. } | Place::Json { .. } | Place::Signature { .. } => {}
    }
    Ok(())
}

/// Bytes as they stand in a form or a query.
pub(crate) fn percent(bytes: &[u8]) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(bytes.len().saturating_mul(3)));
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            for part in format!("%{byte:02X}").chars() {
                out.push(part);
            }
        }
    }
    out
}

fn in_query(target: &str, name: &str, value: &[u8], stand_in: &str) -> Result<Zeroizing<String>, Unfit> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut done = false;
    let room = target
        .len()
        .saturating_add(value.len().saturating_mul(3))
        .saturating_add(name.len())
        .saturating_add(8);
    let mut out = Zeroizing::new(String::with_capacity(room));
    out.push_str(path);
    let mut sign = '?';
    for part in query.split('&').filter(|_| !query.is_empty()) {
        out.push(sign);
        sign = '&';
        let (own, sent) = part.split_once('=').unwrap_or((part, ""));
        if decoded(own) == name && decoded(sent) == stand_in {
            out.push_str(own);
            out.push('=');
            out.push_str(&percent(value));
            done = true;
        } else {
            out.push_str(part);
        }
    }
    if !done {
        out.push(sign);
        out.push_str(&percent(name.as_bytes()));
        out.push('=');
        out.push_str(&percent(value));
    }
    Ok(out)
}

/// True when the type of a body is the one that the place stands in.
pub(crate) fn is_in_body(place: &Place, headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match place {
        Place::Form { .. } => kind == "application/x-www-form-urlencoded",
        Place::Json { .. } => kind == "application/json" || kind.ends_with("+json"),
        _ => false,
    }
}

/// Puts a value into a whole body in place of its stand-in; none when the stand-in is not there.
pub(crate) fn into_body(
    place: &Place,
    value: &[u8],
    stand_in: &str,
    body: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>, Unfit> {
    match place {
        Place::Form { field } => {
            let text = std::str::from_utf8(body).map_err(|_| Unfit("the body is no form"))?;
            let has = text.split('&').any(|part| {
                let (own, sent) = part.split_once('=').unwrap_or((part, ""));
                decoded(own) == *field && decoded(sent) == stand_in
            });
            if !has {
                return Ok(None);
            }
            let target = Zeroizing::new(format!("?{text}"));
            let filled = in_query(&target, field, value, stand_in)?;
            Ok(Some(Zeroizing::new(
                filled.get(1..).unwrap_or_default().as_bytes().to_vec(),
            )))
        }
        Place::Json { field } => {
            let read: Value = serde_json::from_slice(body).map_err(|_| Unfit("the body is not json"))?;
            let mut at = Some(&read);
            for part in field.split('.') {
                at = at.and_then(|value| value.get(part));
            }
            if at.and_then(Value::as_str) != Some(stand_in) {
                return Ok(None);
            }
            // The text stays as it was sent, but for the one place: a stand-in is written without escapes.
            let text = std::str::from_utf8(value).map_err(|_| Unfit("the value cannot stand in json"))?;
            let quoted = Zeroizing::new(serde_json::to_string(text).unwrap_or_default());
            let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
            swapped(body, stand_in, inner.as_bytes())
                .map(Some)
                .ok_or(Unfit("the stand-in is written with escapes"))
        }
        _ => Ok(None),
    }
}

/// True for a body that hands out a login: what a token service answers (RFC 6749, section 5.1).
pub(crate) fn hands_out_a_login(body: &[u8]) -> bool {
    const NAMES: [&str; 3] = ["access_token", "refresh_token", "id_token"];
    let read: Value = match serde_json::from_slice(body) {
        Ok(read) => read,
        // What is not whole may be one all the same.
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            return NAMES.iter().any(|name| text.contains(&format!("\"{name}\"")));
        }
    };
    NAMES.iter().any(|name| read.get(name).is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: &str = "standin-0123456789";

    fn head(
        place: &str,
        user: Option<&str>,
        value: &str,
        lines: &[(&str, &str)],
        target: &str,
    ) -> (Vec<String>, String) {
        let place = Place::read(place, user).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let mut target = Zeroizing::new(target.to_owned());
        into_head(&place, value.as_bytes(), S, &mut headers, &mut target).unwrap();
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        (headers.iter().map(line).collect(), target.to_string())
    }

    fn login(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn a_value_stands_in_its_place() {
        let bearer = format!("bearer {S}");
        for lines in [&[][..], &[("authorization", bearer.as_str())]] {
            assert_eq!(
                head("bearer", None, "real", lines, "/x").0,
                ["authorization: Bearer real"]
            );
        }
        let part = format!("token {S}");
        let lines = [("authorization", part.as_str())];
        assert_eq!(
            head("header:authorization", None, "real", &lines, "/x").0,
            ["authorization: token real"]
        );
        assert_eq!(head("header:x-key", None, "real", &[], "/x").0, ["x-key: real"]);
        let query = format!("/x?a=1&key={S}&b=2");
        assert_eq!(
            head("query:key", None, "re al&=", &[], &query).1,
            "/x?a=1&key=re%20al%26%3D&b=2"
        );
        assert_eq!(head("query:key", None, "real", &[], "/x").1, "/x?key=real");
        assert_eq!(head("query:key", None, "real", &[], "/x?a").1, "/x?a&key=real");
    }

    #[test]
    fn c054_a_password_stands_inside_basic() {
        for (user, sent, value, want) in [
            (None, format!("bot:{S}"), "real-7", "bot:real-7"),
            (None, format!("bot:{S}"), "with:colon", "bot:with:colon"),
            (None, format!("bot:{S}"), "größe", "bot:größe"),
            (None, format!("{S}:"), "sk_live", "sk_live:"),
            (Some("own"), format!("bot:{S}"), "real-7", "own:real-7"),
        ] {
            let sent = login(&sent);
            let (lines, _) = head("basic", user, value, &[("authorization", &sent)], "/x");
            assert_eq!(lines, [format!("authorization: {}", login(want))]);
        }
        assert_eq!(
            head("git", None, "real", &[], "/").0,
            [format!("authorization: {}", login("x-access-token:real"))]
        );
        assert!(
            head("basic", None, "real", &[], "/").0.is_empty(),
            "nobody said for which user"
        );
    }

    #[test]
    fn a_field_of_a_body_is_filled_and_the_rest_stays() {
        let body = |place: &str, text: &str| {
            let place = Place::read(place, None).unwrap();
            into_body(&place, b"re\"al &", S, text.as_bytes())
                .map(|body| body.map(|body| String::from_utf8(body.to_vec()).unwrap()))
        };
        let form = format!("user=a&pass={S}&x=%20");
        assert_eq!(
            body("form:pass", &form),
            Ok(Some("user=a&pass=re%22al%20%26&x=%20".into()))
        );
        assert_eq!(body("form:other", &form), Ok(None));
        let json = format!("{{ \"a\": {{\"b\": \"{S}\"}}, \"c\": 1.0 }}");
        assert_eq!(
            body("json:a.b", &json),
            Ok(Some("{ \"a\": {\"b\": \"re\\\"al &\"}, \"c\": 1.0 }".into()))
        );
        assert_eq!(body("json:c", &json), Ok(None));
        assert!(body("json:a", "{").is_err());
    }

    #[test]
    fn c056_a_new_login_is_seen() {
        assert!(hands_out_a_login(br#"{"access_token":"x","token_type":"Bearer"}"#));
        assert!(hands_out_a_login(br#"{"refresh_token": "x", "cut off"#));
        assert!(!hands_out_a_login(br#"{"token_type":"Bearer","text":"access_token"}"#));
    }

    proptest! {
        #[test]
        fn p9_a_header_holds_the_value_and_no_line_more(value in "[ -~]{6,60}") {
            let (lines, _) = head("bearer", None, &value, &[("x-other", "1")], "/");
            prop_assert_eq!(lines.len(), 2);
        }

        #[test]
        fn a_parameter_decodes_to_the_value(value in "\\PC{0,40}") {
            let (_, target) = head("query:k", None, &value, &[], "/x?a=b");
            let url = bailiwick_model::HttpUrl::parse(&format!("http://h{target}")).unwrap();
            let all: Vec<_> = crate::standin::parameters(&url).collect();
            prop_assert_eq!(all.len(), 2);
            prop_assert_eq!(&all[1].1, &value);
        }
    }
}
