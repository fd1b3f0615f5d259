//! What a push over HTTP changes: read from the beginning of its body, before anything is asked.
//!
//! Promises: P5 (a push is told by the references that it would change, as the server will read them, not by what the client
//! says it does), P4 (what cannot be read names none, which counts as any).
//! Trust: every byte is the agent's. Whether a change is forced cannot be seen from here: only the server knows both ends.
//! Not here: which requests push (`model`), who may (rules).
//! See: gitprotocol-http(5), gitprotocol-pack(5), "Pushing Data To a Server".

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bailiwick_model::{HttpUrl, Reference, ReferenceName, Verb, act_of};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap};

use crate::limits;

/// Most bytes of a push's commands.
const MAX_COMMANDS: usize = 256 * 1024;
/// Most references that one push may name.
const MAX_UPDATES: usize = 1000;

/// A request's body of which the beginning may have been read.
pub(crate) struct Received {
    ahead: VecDeque<Frame<Bytes>>,
    rest: Incoming,
}

impl From<Incoming> for Received {
    fn from(rest: Incoming) -> Self {
        Self {
            ahead: VecDeque::new(),
            rest,
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.ahead.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self
            .ahead
            .iter()
            .filter_map(|frame| frame.data_ref())
            .map(|data| data.len() as u64);
        let (ahead, rest) = (ahead.sum::<u64>(), self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint
    }
}

/// True for a request whose body says what a push changes.
pub(crate) fn is_push(url: &HttpUrl, headers: &HeaderMap) -> bool {
    let pushes = matches!(act_of(url), Some((Verb::Push, _, Reference::Any)));
    // What is packed is read by the server alone.
    pushes && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Reads what a push changes: the full names, apart by blanks. None for what cannot be read.
pub(crate) async fn references(body: &mut Received) -> Option<String> {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            match changes(&bytes) {
                Ok(Some(names)) => return Some(names),
                Ok(None) => {}
                Err(_) => return None,
            }
            let frame = body.rest.frame().await?.ok()?;
            if let Some(data) = frame.data_ref() {
                bytes.extend_from_slice(data);
            }
            body.ahead.push_back(frame);
        }
    };
    let names = tokio::time::timeout(limits::HEAD_TIME, read).await.ok().flatten()?;
    let names: Vec<&str> = names.iter().map(ReferenceName::as_str).collect();
    Some(names.join(" "))
}

/// Reads a push's commands at the beginning of its body: none while there are too few bytes; an error says what is wrong.
fn changes(bytes: &[u8]) -> Result<Option<Vec<ReferenceName>>, &'static str> {
    let mut found: Vec<ReferenceName> = Vec::new();
    let mut rest = bytes;
    loop {
        let Some((length, after)) = rest.split_first_chunk::<4>() else {
            return more(bytes);
        };
        let length = std::str::from_utf8(length)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| usize::from_str_radix(text, 16).ok())
            .ok_or("it does not begin with the length of a line")?;
        if length == 0 {
            return Ok(Some(found));
        }
        let length = length
            .checked_sub(4)
            .filter(|length| *length > 0)
            .ok_or("a line has no length")?;
        let Some((line, after)) = after.split_at_checked(length) else {
            return more(bytes);
        };
        rest = after;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"shallow ") && found.is_empty() {
            continue;
        }
        if line.starts_with(b"push-cert") {
            return Err("a signed push cannot be read");
        }
        // What stands behind the first NUL of the first line are abilities of the client.
        let command = line.split(|byte| *byte == 0).next().unwrap_or_default();
        if !found.is_empty() && command.len() != line.len() {
            return Err("a NUL stands in a line");
        }
        if found.len() >= MAX_UPDATES {
            return Err("it names too many references");
        }
        found.push(changed(command)?);
    }
}

fn more(bytes: &[u8]) -> Result<Option<Vec<ReferenceName>>, &'static str> {
    if bytes.len() >= MAX_COMMANDS {
        return Err("its commands are too long");
    }
    Ok(None)
}

/// `OLD NEW NAME`, where an id is 40 or 64 digits, and all zeros for what is not.
fn changed(command: &[u8]) -> Result<ReferenceName, &'static str> {
    let text = std::str::from_utf8(command).map_err(|_| "a reference is not UTF-8")?;
    let mut words = text.splitn(3, ' ');
    let (Some(old), Some(new), Some(name)) = (words.next(), words.next(), words.next()) else {
        return Err("a line is no command");
    };
    let is_id = |id: &str| matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id(old) || !is_id(new) || old.len() != new.len() {
        return Err("a line holds no ids");
    }
    ReferenceName::parse(name).ok_or("a reference has no proper name")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000";
    const ONE: &str = "1111111111111111111111111111111111111111";

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    fn names(body: &str) -> Result<Option<Vec<String>>, &'static str> {
        let names = |found: Vec<ReferenceName>| found.iter().map(|name| name.as_str().to_owned()).collect();
        Ok(changes(body.as_bytes())?.map(names))
    }

    #[test]
    fn p5_what_a_push_would_move_is_read() {
        let body = [
            line(&format!("shallow {ONE}")),
            line(&format!(
                "{ZERO} {ONE} refs/heads/agent/x\0 report-status side-band-64k agent=git/2.39"
            )),
            line(&format!("{ONE} {ZERO} refs/heads/main\n")),
            "0000PACK and so on".into(),
        ];
        let body = body.concat();
        let want = ["refs/heads/agent/x", "refs/heads/main"].map(str::to_owned).to_vec();
        assert_eq!(names(&body), Ok(Some(want)));
        let end = body.find("0000PACK").unwrap();
        for cut in 0..end {
            assert_eq!(changes(&body.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(changes(b"0000"), Ok(Some(Vec::new())), "git asks first whether it may");
    }

    #[test]
    fn p4_what_is_no_push_is_refused() {
        for bad in [
            "zzzz".to_owned(),
            "0003x".into(),
            "0004".into(),
            line("push-cert\0 report-status"),
            line(&format!("{ZERO} {ONE}")),
            line(&format!("{ZERO} {ONE} main")),
            line(&format!("{ZERO} {ONE} refs/heads/a..b")),
            line(&format!("{ZERO} {ONE} refs/heads/a b")),
            line(&format!("{ZERO} {ONE}0 refs/heads/a")),
            [
                line(&format!("{ZERO} {ONE} refs/heads/a\0")),
                line(&format!("{ZERO} {ONE} refs/heads/b\0 x")),
            ]
            .concat(),
            [
                line(&format!("{ZERO} {ONE} refs/heads/a\0")),
                line(&format!("shallow {ONE}")),
            ]
            .concat(),
        ] {
            assert!(changes(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let endless = line(&format!("shallow {ONE}")).repeat(MAX_COMMANDS / 50);
        assert!(changes(endless.as_bytes()).is_err());
        let many = line(&format!("{ZERO} {ONE} refs/heads/a")).repeat(MAX_UPDATES + 1);
        assert!(changes(many.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn p4_any_body_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = changes(&bytes);
        }

        #[test]
        fn p5_more_bytes_change_no_answer(words in proptest::collection::vec("[a-z]{1,8}(/[a-z]{1,8})?", 1..5), rest in ".{0,40}") {
            let mut body = String::new();
            for name in &words {
                body.push_str(&line(&format!("{ZERO} {ONE} refs/heads/{name}")));
            }
            body.push_str("0000");
            let alone = changes(body.as_bytes());
            body.push_str(&rest);
            let read = changes(body.as_bytes());
            prop_assert_eq!(&alone, &read);
            let read: Vec<String> = read.unwrap().unwrap().iter().map(|name| name.as_str().to_owned()).collect();
            let want: Vec<String> = words.iter().map(|name| format!("refs/heads/{name}")).collect();
            prop_assert_eq!(read, want);
        }
    }
}
