//! One request and its answer on their way: what goes through is counted, held to its bounds, and told at the end.
//!
//! Promises: P1 (an effect is settled when its answer ends, however it ends), P4 (what passes a bound that the permit names is
//! cut there, and on record). Nothing is held back but what a rate makes wait.
//! Trust: both bodies are hostile, and so are their lengths.
//! Not here: which bounds there are (rules; they come as obligations), secrets in bodies (`bodies`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bailiwick_line::{Cut, Effect, REVOKED};
use bailiwick_model::{Obligation, media_type};
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap};
use tokio::time::{Instant, Sleep};

use crate::bodies::{Broken, Sent};
use crate::links::After;

/// The bounds of one exchange, by its permit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Most bytes of the request's body.
    upload: Option<u64>,
    /// Sets of media types: the request's body is of one in each.
    types: Vec<Vec<String>>,
    /// Most bytes of the answer's body.
    answer: Option<u64>,
    /// The longest time from the request to the end of the answer.
    time: Option<Duration>,
    /// The most that is passed on in each second.
    rate: Option<u64>,
}

/// The smaller of what is there.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Bounds {
    /// Takes up what an obligation says of bounds. False for one that says something else.
    pub(crate) fn add(&mut self, obligation: &Obligation) -> bool {
        match obligation {
            Obligation::RequestBody { bytes, types } => {
                self.upload = least(self.upload, Some(*bytes));
                if !types.is_empty() {
                    self.types.push(types.clone());
                }
                true
            }
            Obligation::Answer {
                bytes,
                seconds,
                bytes_per_second,
            } => {
                self.answer = least(self.answer, *bytes);
                let time = seconds.map(Duration::from_secs);
                self.time = self.time.into_iter().chain(time).min();
                self.rate = least(self.rate, *bytes_per_second);
                true
            }
            Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. }
            | Obligation::DialAddress { .. }
            | Obligation::MatchServerName
            | Obligation::Inject { .. }
            | Obligation::PinKey { .. }
            | Obligation::Tool(_) => false,
        }
    }

    /// Why a request with this head and body may not be sent at all.
    pub(crate) fn against(&self, headers: &HeaderMap, body: &impl Body) -> Option<String> {
        let said = body.size_hint().lower();
        if let Some(most) = self.upload.filter(|most| said > *most) {
            return Some(format!("its body has {said} bytes, and may have {most}"));
        }
        if self.types.is_empty() || body.is_end_stream() {
            return None;
        }
        let line = headers.get(header::CONTENT_TYPE).and_then(|line| line.to_str().ok());
        let own = media_type(line.unwrap_or_default());
        let fits = self.types.iter().all(|set| set.contains(&own));
        (!fits).then(|| "its body is of a type that it may not have".to_owned())
    }

    /// Why an answer with a body of this length is not passed on at all.
    pub(crate) fn against_answer(&self, body: &impl Body) -> Option<String> {
        let said = body.size_hint().lower();
        let most = self.answer.filter(|most| said > *most)?;
        Some(format!("the answer has {said} bytes, and may have {most}"))
    }

    /// When the answer must have ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.time?)
    }
}

/// What went through, and whether a bound was passed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    /// The request's body was longer than it may be.
    over: AtomicBool,
    /// No more of the request's body is sent.
    ended: AtomicBool,
}

impl Tally {
    /// True when the request's body was cut.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sent, received) = (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        write!(f, "{sent} bytes sent, {received} received")
    }
}

/// Counts what a frame adds; the count so far.
fn count(counter: &AtomicU64, frame: &Frame<Bytes>) -> u64 {
    let length = frame.data_ref().map_or(0, Bytes::len);
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    counter.fetch_add(length, Ordering::Relaxed).saturating_add(length)
}

/// Says which bound was passed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Passed(&'static str);

/// The body of a request, counted and cut where it passes its bound.
pub(crate) struct Upload {
    body: Sent,
    most: Option<u64>,
    tally: Arc<Tally>,
    cut: Arc<Cut>,
}

impl Upload {
    pub(crate) fn new(body: Sent, bounds: &Bounds, tally: Arc<Tally>, cut: Arc<Cut>) -> Self {
        Self {
            body,
            cut,
            most: bounds.upload,
            tally,
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.tally.ended.store(true, Ordering::Release);
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.cut.poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Box::new(Passed(REVOKED)))));
        }
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &polled {
            let sent = count(&self.tally.sent, frame);
            if self.most.is_some_and(|most| sent > most) {
                self.tally.over.store(true, Ordering::Relaxed);
                let passed = Passed("the body is longer than it may be");
                return Poll::Ready(Some(Err(Box::new(passed))));
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body; settles the effect when it ends, however it ends.
pub(crate) struct Download {
    body: Incoming,
    effect: Option<Effect>,
    after: Option<After>,
    tally: Arc<Tally>,
    status: StatusCode,
    end: &'static str,
    most: Option<u64>,
    rate: Option<u64>,
    /// When the answer must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Until when a rate makes it wait.
    pause: Option<Pin<Box<Sleep>>>,
    /// Set when a stand-in in the request's body ended it, after the answer had begun.
    misuse: Arc<AtomicBool>,
}

/// How an answer is passed on.
pub(crate) struct Passing<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) deadline: Option<Instant>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) misuse: Arc<AtomicBool>,
}

impl Download {
    pub(crate) fn new(status: StatusCode, body: Incoming, effect: Effect, after: After, passing: Passing<'_>) -> Self {
        let mut download = Self {
            body,
            effect: Some(effect),
            after: Some(after),
            tally: passing.tally,
            status,
            end: "broken off by the client",
            most: passing.bounds.answer,
            rate: passing.bounds.rate,
            deadline: passing.deadline.map(|at| Box::pin(tokio::time::sleep_until(at))),
            pause: None,
            misuse: passing.misuse,
        };
        if download.body.is_end_stream() {
            download.over();
        }
        download
    }

    /// Notes the end of a whole answer.
    fn over(&mut self) {
        self.end = "whole";
        if let Some(after) = self.after.take() {
            after.end();
        }
    }

    fn cut(&mut self, why: &'static str) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.end = why;
        self.after = None;
        Poll::Ready(Some(Err(Box::new(Passed(why)))))
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(effect) = &self.effect
            && effect.cut().poll(cx).is_ready()
        {
            return self.cut("not whole");
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return self.cut("cut at the time that the answer may take");
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &polled {
            None => self.over(),
            Some(Err(_)) => {
                self.end = "broken off by the server";
                self.after = None;
            }
            Some(Ok(frame)) => {
                let received = count(&self.tally.received, frame);
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if let Some(effect) = &mut self.effect {
                    effect.received(u64::try_from(bytes).unwrap_or(u64::MAX));
                }
                if self.most.is_some_and(|most| received > most) {
                    return self.cut("cut at the length that the answer may have");
                }
                if let (Some(rate), Some(data)) = (self.rate, frame.data_ref()) {
                    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    let pause =
                        Duration::from_secs(1).saturating_mul(bytes) / u32::try_from(rate).unwrap_or(u32::MAX).max(1);
                    self.pause = Some(Box::pin(tokio::time::sleep(pause)));
                }
                if self.body.is_end_stream() {
                    self.over();
                }
            }
        }
        Poll::Ready(polled.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.over();
        }
        let Some(mut effect) = self.effect.take() else { return };
        // A server may answer before it has read: what is still on its way counts as all that may be sent.
        if self.tally.ended.load(Ordering::Acquire) {
            effect.sent(self.tally.sent.load(Ordering::Relaxed));
        }
        let mut note = format!("status {}, {}, {}", self.status.as_u16(), self.tally, self.end);
        if self.tally.is_over() {
            note.push_str(", cut at the length that its body may have");
        }
        if self.misuse.load(Ordering::Relaxed) {
            note.push_str(", ended by a stand-in in the body");
        }
        effect.settle(true, note);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    fn bounds(all: &[Obligation]) -> Bounds {
        let mut bounds = Bounds::default();
        assert!(all.iter().all(|one| bounds.add(one)));
        bounds
    }

    fn body(text: &'static str) -> Sent {
        Full::new(Bytes::from_static(text.as_bytes()))
            .map_err(|never| match never {})
            .boxed()
    }

    #[test]
    fn p4_of_several_bounds_each_holds() {
        let request = |bytes, types: &[&str]| Obligation::RequestBody {
            bytes,
            types: types.iter().map(|text| (*text).to_owned()).collect(),
        };
        let both = bounds(&[
            request(10, &["text/plain", "application/json"]),
            request(5, &["application/json"]),
        ]);
        assert_eq!(both.upload, Some(5));
        let says = |line: &str, text| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, line.parse().unwrap());
            both.against(&headers, &body(text))
        };
        assert_eq!(says("Application/JSON; charset=utf-8", "12345"), None);
        assert!(
            says("application/json", "123456")
                .unwrap()
                .contains("6 bytes, and may have 5")
        );
        assert!(says("text/plain", "1").is_some());
        assert!(
            both.against(&HeaderMap::new(), &body("1")).is_some(),
            "no type is none of them"
        );
        assert_eq!(both.against(&HeaderMap::new(), &body("")), None, "no body has no type");
        let answer = |bytes, seconds| Obligation::Answer {
            bytes,
            seconds,
            bytes_per_second: None,
        };
        let both = bounds(&[answer(Some(3), None), answer(Some(9), Some(7))]);
        assert_eq!((both.answer, both.time), (Some(3), Some(Duration::from_secs(7))));
        assert!(both.against_answer(&body("1234")).is_some() && both.against_answer(&body("123")).is_none());
        assert!(!Bounds::default().add(&Obligation::MatchServerName));
    }

    #[tokio::test]
    async fn p4_a_body_without_a_length_is_cut_where_it_is_too_long() {
        let bounds = bounds(&[Obligation::RequestBody {
            bytes: 3,
            types: Vec::new(),
        }]);
        let tally = Arc::<Tally>::default();
        let fits = Upload::new(body("123"), &bounds, Arc::clone(&tally), Arc::default())
            .collect()
            .await
            .unwrap();
        assert_eq!(fits.to_bytes(), "123");
        assert!(!tally.is_over());
        let tally = Arc::<Tally>::default();
        assert!(
            Upload::new(body("1234"), &bounds, Arc::clone(&tally), Arc::default())
                .collect()
                .await
                .is_err()
        );
        assert!(tally.is_over());
    }
}
