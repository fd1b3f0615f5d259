//! The cookies of hosts with a session that is kept on this side: the agent sees none and sends none.
//!
//! Promises: P9. Trust: cookies come from whoever serves; which go where is for a library that knows RFC 6265.
//! Kept in memory for the life of the task.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bailiwick_model::HttpUrl;
use cookie_store::{CookieStore, RawCookie};
use hyper::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use url::Url;

use crate::scrub::{Forms, SHORTEST};

/// Most bytes of one line that sets a cookie (RFC 6265, section 6.1).
const LINE: usize = 8 * 1024;
/// Most cookies that are kept for one task.
const MOST: usize = 1000;

/// All cookies of one task.
#[derive(Default)]
pub(crate) struct Jar(Mutex<CookieStore>);

fn address(url: &HttpUrl) -> Option<Url> {
    Url::parse(&format!(
        "{}://{}{}",
        url.scheme.as_str(),
        url.host_header(),
        url.target()
    ))
    .ok()
}

/// True for a domain that is no public suffix: a cookie for one of those would go to everybody below it (RFC 6265, section 5.3).
fn is_of_one_owner(domain: &str) -> bool {
    psl::domain(domain.trim_start_matches('.').as_bytes()).is_some()
}

impl Jar {
    fn store(&self) -> MutexGuard<'_, CookieStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the cookies for a request into its head.
    pub(crate) fn fill(&self, url: &HttpUrl, headers: &mut HeaderMap) {
        let Some(address) = address(url) else { return };
        let store = self.store();
        let pairs: Vec<String> = store
            .get_request_values(&address)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        drop(store);
        headers.remove(COOKIE);
        if let Ok(mut line) = HeaderValue::from_str(&pairs.join("; "))
            && !pairs.is_empty()
        {
            line.set_sensitive(true);
            headers.insert(COOKIE, line);
        }
    }

    /// Keeps what an answer sets, and takes it out of its head.
    pub(crate) fn keep(&self, url: &HttpUrl, headers: &mut HeaderMap) {
        let lines: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
        headers.remove(SET_COOKIE);
        let Some(address) = address(url) else { return };
        let texts = lines
            .iter()
            .filter_map(|line| line.to_str().ok().filter(|line| line.len() <= LINE));
        let read = texts
            .filter_map(|line| RawCookie::parse(line.to_owned()).ok())
            .filter(|cookie| cookie.domain().is_none_or(is_of_one_owner));
        let mut store = self.store();
        if store.iter_any().count() < MOST {
            store.store_response_cookies(read.map(RawCookie::into_owned), &address);
        }
    }

    /// Adds the values of the cookies of a host to what its answers are looked through for.
    pub(crate) fn add_to(&self, url: &HttpUrl, forms: &mut Forms) {
        let Some(address) = address(url) else { return };
        let store = self.store();
        for (_, value) in store.get_request_values(&address) {
            if value.len() > SHORTEST {
                forms.add(value.as_bytes(), b"");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    fn sent(jar: &Jar, to: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("own=1"));
        jar.fill(&url(to), &mut headers);
        headers.get(COOKIE).map(|line| line.to_str().unwrap().to_owned())
    }

    #[test]
    fn p9_cookies_stay_here_and_go_where_they_were_set() {
        let jar = Jar::default();
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_static("id=0123456789; Path=/; HttpOnly"));
        headers.append(SET_COOKIE, HeaderValue::from_static("all=1; Domain=test"));
        headers.append(SET_COOKIE, HeaderValue::from_static("other=1; Domain=other.test"));
        headers.append(SET_COOKIE, HeaderValue::from_static("deep=2; Path=/a"));
        jar.keep(&url("https://shop.test/login"), &mut headers);
        assert!(headers.is_empty());
        assert_eq!(sent(&jar, "https://shop.test/x").as_deref(), Some("id=0123456789"));
        assert!(sent(&jar, "https://shop.test/a/b").unwrap().contains("deep=2"));
        assert_eq!(sent(&jar, "https://other.test/"), None);
        let mut forms = Forms::none();
        jar.add_to(&url("https://shop.test/"), &mut forms);
        let mut text = b"your id is 0123456789".to_vec();
        assert!(forms.scrub(&mut text));
        assert_eq!(text, b"your id is **********");
    }
}
