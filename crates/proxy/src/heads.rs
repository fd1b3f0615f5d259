//! Heads of requests and answers, as the next machine is to have them.
//!
//! Promises: P5 (what one machine says to the next ends here). Trust: request heads are the agent's, those of answers the
//! server's. See: RFC 9110 section 7.6.1, RFC 9113 section 8.2, RFC 7838.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Takes out what is meant for the next machine only, and all that is said to a proxy.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for line in headers.get_all(header::CONNECTION) {
        let words = line.to_str().unwrap_or_default().split(',');
        named.extend(words.filter_map(|word| HeaderName::from_bytes(word.trim().as_bytes()).ok()));
    }
    let proxy = headers.keys().filter(|name| name.as_str().starts_with("proxy-"));
    named.extend(proxy.cloned());
    named.extend([
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("http2-settings"),
    ]);
    for name in named {
        headers.remove(name);
    }
}

/// What a server is to have: without the host, which is written anew, and with cookies on one line.
pub(crate) fn for_server(headers: &mut HeaderMap) {
    let trailers = headers
        .get_all(header::TE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("trailers"));
    strip_hop_by_hop(headers);
    headers.remove(header::HOST);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let cookies: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(line) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, line);
    }
}

/// What a client is to have. That a server can be had by other ways is not passed on: there are none here.
pub(crate) fn for_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(header::ALT_SVC);
}

/// True for a request to go on as a web socket: the only change of protocol that is passed on.
pub(crate) fn wants_web_socket<B>(request: &hyper::Request<B>) -> bool {
    request.method() == hyper::Method::GET && is_web_socket(request.headers())
}

/// True for a head that names the protocol of web sockets.
pub(crate) fn is_web_socket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Names it.
pub(crate) fn ask_for_web_socket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn p5_what_is_meant_for_the_gate_ends_at_the_gate() {
        let mut request = head(&[
            ("host", "a.test"),
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("proxy-authorization", "Basic x"),
            ("te", "gzip, trailers"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("accept", "*/*"),
        ]);
        for_server(&mut request);
        assert_eq!(
            request,
            head(&[("te", "trailers"), ("cookie", "a=1; b=2"), ("accept", "*/*")])
        );
        let mut answer = head(&[
            ("alt-svc", "h3=\":443\""),
            ("trailer", "x-sum"),
            ("keep-alive", "timeout=5"),
        ]);
        for_client(&mut answer);
        assert_eq!(answer, head(&[("trailer", "x-sum")]));
    }
}
