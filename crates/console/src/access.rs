//! Which requests are heard at all, by what their browser says of where they come from.
//!
//! Promises: P8 (no page of another origin, and no name that was made to point here, speaks for the person). Trust: headers come from whoever connects; a
//! browser sets those that are looked at here by itself, and no page can change them.
//! Not here: who is logged in (`sessions`), the token in each form (`wall`).

use axum::http::{HeaderMap, Method, header};

/// Why a request is not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deaf {
    /// It was sent to a name or port that is not the console's.
    Host,
    /// It comes from another page than the console's.
    Origin,
    /// Nothing else than reading and forms is understood.
    Method,
}

/// The names under which the console is reached, at its port.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Holds what a request says of itself against what it must say. `entered`: it is for a page that only a session has.
pub fn hear(method: &Method, headers: &HeaderMap, port: u16, entered: bool) -> Result<(), Deaf> {
    let host = one(headers, header::HOST).ok_or(Deaf::Host)?;
    if !NAMES.iter().any(|name| host == format!("{name}:{port}")) {
        return Err(Deaf::Host);
    }
    let changes = match *method {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => return Err(Deaf::Method),
    };
    let own = format!("http://{host}");
    let site = one(headers, "sec-fetch-site".parse().ok());
    if headers.contains_key(header::ORIGIN) {
        if one(headers, header::ORIGIN) != Some(&own) {
            return Err(Deaf::Origin);
        }
    } else if changes && site != Some("same-origin") {
        return Err(Deaf::Origin);
    }
    if headers.contains_key("sec-fetch-site") {
        // `none`: the person typed it, or came by a bookmark.
        let fits = match site {
            Some("same-origin") => true,
            Some("none") => !changes,
            // The login page alone may be gone to from elsewhere: by the link, from wherever that is clicked.
            Some(_) => !changes && !entered && one(headers, "sec-fetch-mode".parse().ok()) == Some("navigate"),
            None => false,
        };
        if !fits {
            return Err(Deaf::Origin);
        }
    }
    Ok(())
}

/// The value of a header that stands once, in ASCII.
fn one(headers: &HeaderMap, name: impl Into<Option<header::HeaderName>>) -> Option<&str> {
    let name = name.into()?;
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(
                header::HeaderName::try_from(*name).expect("a name"),
                value.parse().expect("a value"),
            );
        }
        headers
    }

    fn heard(method: Method, list: &[(&str, &str)], entered: bool) -> Result<(), Deaf> {
        hear(&method, &headers(list), 4711, entered)
    }

    #[test]
    fn p8_only_the_consoles_own_names_are_heard() {
        for good in ["127.0.0.1:4711", "localhost:4711", "[::1]:4711"] {
            assert_eq!(heard(Method::GET, &[("host", good)], true), Ok(()), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.0.0.1:4712",
            "127.0.0.1:4711.evil.test",
            "evil.test:4711",
            "localhost.:4711",
            "LOCALHOST:4711",
            "127.1:4711",
            "0.0.0.0:4711",
            "127.0.0.2:4711",
            "rebound.test",
            "",
        ] {
            assert_eq!(heard(Method::GET, &[("host", bad)], false), Err(Deaf::Host), "{bad}");
        }
        assert_eq!(heard(Method::GET, &[], false), Err(Deaf::Host));
        let twice = [("host", "127.0.0.1:4711"), ("host", "127.0.0.1:4711")];
        assert_eq!(heard(Method::GET, &twice, false), Err(Deaf::Host));
    }

    #[test]
    fn p8_what_changes_comes_from_the_console_itself() {
        let host = ("host", "127.0.0.1:4711");
        let own = ("origin", "http://127.0.0.1:4711");
        assert_eq!(heard(Method::POST, &[host, own], true), Ok(()));
        assert_eq!(
            heard(Method::POST, &[host, own, ("sec-fetch-site", "same-origin")], true),
            Ok(())
        );
        assert_eq!(
            heard(Method::POST, &[host, ("sec-fetch-site", "same-origin")], true),
            Ok(())
        );
        for other in [
            "http://127.0.0.1:5173",
            "http://localhost:4711",
            "https://127.0.0.1:4711",
            "null",
            "http://evil.test",
            "http://127.0.0.1:47110",
            "",
        ] {
            let list = [host, ("origin", other)];
            assert_eq!(heard(Method::POST, &list, true), Err(Deaf::Origin), "{other}");
            assert_eq!(heard(Method::GET, &list, true), Err(Deaf::Origin), "{other}");
        }
        assert_eq!(heard(Method::POST, &[host], true), Err(Deaf::Origin));
        for site in ["same-site", "cross-site", "none", "x"] {
            let list = [host, own, ("sec-fetch-site", site)];
            assert_eq!(heard(Method::POST, &list, true), Err(Deaf::Origin), "{site}");
        }
        for method in [
            Method::PUT,
            Method::DELETE,
            Method::OPTIONS,
            Method::PATCH,
            Method::TRACE,
        ] {
            assert_eq!(heard(method, &[host, own], true), Err(Deaf::Method));
        }
    }

    #[test]
    fn p8_pages_of_others_neither_fetch_nor_frame_nor_go_to_a_sessions_pages() {
        let host = ("host", "127.0.0.1:4711");
        for site in ["same-site", "cross-site"] {
            for mode in ["navigate", "no-cors", "cors"] {
                let list = [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
                assert_eq!(heard(Method::GET, &list, true), Err(Deaf::Origin), "{site} {mode}");
                assert_eq!(
                    heard(Method::GET, &list, false).is_ok(),
                    mode == "navigate",
                    "{site} {mode}"
                );
            }
        }
        assert_eq!(heard(Method::GET, &[host, ("sec-fetch-site", "none")], true), Ok(()));
    }
}
