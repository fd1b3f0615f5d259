//! Whether requests are under way on a connection that carries many, and for how long none has been.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};

use crate::bodies::Broken;
use crate::forward::Body;
use crate::limits;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    under_way: AtomicUsize,
    /// How many there have been.
    begun: AtomicUsize,
}

/// A request under way; it has ended when this is dropped.
pub(crate) struct UnderWay(Arc<Busy>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Busy {
    /// Notes a request.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Returns when nothing has been asked for long.
    pub(crate) async fn idle(&self) {
        let mut known = 0;
        loop {
            tokio::time::sleep(limits::HEAD_TIME).await;
            let begun = self.begun.load(Ordering::Relaxed);
            if self.under_way.load(Ordering::Relaxed) == 0 && begun == known {
                return;
            }
            known = begun;
        }
    }
}

/// The body of an answer, for as long as which its request is under way.
pub(crate) struct Held {
    body: Body,
    _under_way: UnderWay,
}

impl Held {
    pub(crate) fn new(body: Body, under_way: UnderWay) -> Self {
        Self {
            body,
            _under_way: under_way,
        }
    }
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_when_nothing_is_under_way() {
        let busy = Arc::<Busy>::default();
        let one = busy.begin();
        let long = limits::HEAD_TIME * 5;
        assert!(tokio::time::timeout(long, busy.idle()).await.is_err());
        drop(one);
        let start = tokio::time::Instant::now();
        busy.idle().await;
        assert!(start.elapsed() <= limits::HEAD_TIME * 2);
    }
}
