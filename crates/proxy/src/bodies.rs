//! Bodies on their way: what the agent sends is looked through for stand-ins, what comes back for values.
//!
//! Promises: P9 (no cut of a body hides anything; no more waits here than could be the beginning of something).
//! Trust: both bodies are hostile. See: `scrub` for what is looked for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::scrub::{Forms, Stream};

/// What ends a body before its time.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request on its way to a server.
pub(crate) type Sent = BoxBody<Bytes, Broken>;

/// A body that is there already.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Sent {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Says that a stand-in was found in a body.
#[derive(Debug, thiserror::Error)]
#[error("a stand-in is where it does not belong")]
pub(crate) struct Misused;

/// What a body is looked through for and what becomes of it.
enum Duty {
    /// What is found ends the body, and is told.
    End(Arc<AtomicBool>),
    /// What is found is written over.
    WriteOver,
}

/// A body that is looked through.
struct Watched<B> {
    body: B,
    forms: Arc<Forms>,
    stream: Stream,
    duty: Duty,
    over: bool,
    /// What comes after all data.
    trailers: Option<HeaderMap>,
}

/// Looks through what the agent sends; the flag says afterwards whether a stand-in ended it.
pub(crate) fn guarded<B>(body: B, forms: Arc<Forms>, found: Arc<AtomicBool>) -> Sent
where
    B: Body<Data = Bytes> + Unpin + Send + Sync + 'static,
    B::Error: Into<Broken>,
{
    Watched {
        body,
        forms,
        stream: Stream::new(),
        duty: Duty::End(found),
        over: false,
        trailers: None,
    }
    .boxed()
}

/// Writes over what is found in an answer.
pub(crate) fn scrubbed<B>(body: B, forms: Arc<Forms>) -> BoxBody<Bytes, Broken>
where
    B: Body<Data = Bytes> + Unpin + Send + Sync + 'static,
    B::Error: Into<Broken>,
{
    Watched {
        body,
        forms,
        stream: Stream::new(),
        duty: Duty::WriteOver,
        over: false,
        trailers: None,
    }
    .boxed()
}

/// Writes over what is found in the lines of a head or of trailers. A line whose very name holds something goes.
pub(crate) fn scrub_head(headers: &mut HeaderMap, forms: &Forms) {
    let mut gone: Vec<HeaderName> = Vec::new();
    for (name, value) in headers.iter_mut() {
        if forms.is_in_lower_case(name.as_str().as_bytes()) {
            gone.push(name.clone());
        }
        let mut bytes = value.as_bytes().to_vec();
        if forms.scrub(&mut bytes) {
            *value = HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static("*"));
        }
    }
    for name in gone {
        headers.remove(name);
    }
}

/// A body of which some frames have been read already.
pub(crate) struct Resumed<B> {
    first: std::collections::VecDeque<Frame<Bytes>>,
    rest: B,
}

impl<B> Resumed<B> {
    pub(crate) fn new(first: Vec<Frame<Bytes>>, rest: B) -> Self {
        Self {
            first: first.into(),
            rest,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Resumed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.first.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

impl<B> Watched<B> {
    fn pass(&mut self, out: Vec<u8>) -> Option<Result<Frame<Bytes>, Broken>> {
        if let Duty::End(found) = &self.duty
            && self.stream.has_found()
        {
            found.store(true, Ordering::Relaxed);
            self.over = true;
            self.trailers = None;
            return Some(Err(Box::new(Misused)));
        }
        (!out.is_empty()).then(|| Ok(Frame::data(Bytes::from(out))))
    }

    fn end(&mut self, mut trailers: Option<HeaderMap>) -> Option<Result<Frame<Bytes>, Broken>> {
        self.over = true;
        if let Some(lines) = &mut trailers {
            match &self.duty {
                Duty::WriteOver => scrub_head(lines, &self.forms),
                Duty::End(found) => {
                    if lines.values().any(|value| self.forms.is_in(value.as_bytes())) {
                        found.store(true, Ordering::Relaxed);
                        return Some(Err(Box::new(Misused)));
                    }
                }
            }
        }
        self.trailers = trailers;
        let rest = self.stream.finish(&self.forms);
        let passed = self.pass(rest);
        passed.or_else(|| self.trailers.take().map(|lines| Ok(Frame::trailers(lines))))
    }
}

impl<B> Body for Watched<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Broken>,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if self.over {
                return Poll::Ready(self.trailers.take().map(|lines| Ok(Frame::trailers(lines))));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(self.end(None)),
                Some(Err(fault)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(fault.into())));
                }
                Some(Ok(frame)) => frame,
            };
            let passed = match frame.into_data() {
                Ok(data) => {
                    let this = &mut *self;
                    let out = this.stream.push(&this.forms, &data);
                    this.pass(out)
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(lines) => return Poll::Ready(self.end(Some(lines))),
                    Err(_) => None,
                },
            };
            if passed.is_some() {
                return Poll::Ready(passed);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over && self.trailers.is_none()
    }

    /// Lengths stay as they are: what is found is written over.
    fn size_hint(&self) -> SizeHint {
        if self.over {
            SizeHint::with_exact(0)
        } else {
            self.body.size_hint()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Pieces(VecDeque<Frame<Bytes>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn pieces(all: &[&'static str], trailer: Option<&str>) -> Pieces {
        let mut frames: VecDeque<_> = all
            .iter()
            .map(|piece| Frame::data(Bytes::from_static(piece.as_bytes())))
            .collect();
        if let Some(value) = trailer {
            let mut lines = HeaderMap::new();
            lines.insert("x-end", value.parse().unwrap());
            frames.push_back(Frame::trailers(lines));
        }
        Pieces(frames)
    }

    fn forms() -> Arc<Forms> {
        let mut forms = Forms::none();
        forms.add(b"real-value", b"standinsts");
        Arc::new(forms)
    }

    #[tokio::test]
    async fn c056_an_answer_is_scrubbed_over_its_cuts_and_in_its_trailers() {
        let body = scrubbed(
            pieces(&["a re", "al-v", "alue b", " real-val"], Some("it was real-value")),
            forms(),
        );
        let done = body.collect().await.unwrap();
        assert_eq!(done.trailers().unwrap()["x-end"], "it was standinsts");
        assert_eq!(done.to_bytes(), "a standinsts b real-val");
    }

    #[tokio::test]
    async fn c055_a_stand_in_in_a_body_ends_it_before_it_is_sent() {
        for (all, trailer) in [
            (&["{\"a\": \"rea", "l-value\"}"][..], None),
            (&["x"], Some("real-value")),
        ] {
            let found = Arc::new(AtomicBool::new(false));
            let mut body = guarded(pieces(all, trailer), forms(), Arc::clone(&found));
            let mut sent = Vec::new();
            let mut ended = false;
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => sent.extend_from_slice(&frame.into_data().unwrap_or_default()),
                    Err(_) => ended = true,
                }
            }
            assert!(ended && found.load(Ordering::Relaxed));
            assert!(!String::from_utf8_lossy(&sent).contains("rea"), "{sent:?}");
        }
        let found = Arc::new(AtomicBool::new(false));
        let body = guarded(pieces(&["real-", "valuable"], Some("x")), forms(), Arc::clone(&found));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "real-valuable");
        assert!(!found.load(Ordering::Relaxed));
    }
}
