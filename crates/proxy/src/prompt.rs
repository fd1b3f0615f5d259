//! Clients that write a head in pieces are not made to wait.
//!
//! A client's kernel may hold the second piece back until the first has been acknowledged (Nagle's algorithm), while ours delays the
//! acknowledgement for up to 40 ms in the hope of an answer to send it with. So where more of a head must come, what has come is
//! acknowledged at once.
//! See: tcp(7), `TCP_QUICKACK`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::caller::Caller;

/// What ends a head.
const END: &[u8] = b"\r\n\r\n";

/// A client's stream, of which each piece that is no end of a head is acknowledged as soon as more is waited for.
pub(crate) struct Prompt<S> {
    stream: S,
    caller: Arc<Caller>,
    more: bool,
}

impl<S> Prompt<S> {
    pub(crate) fn new(stream: S, caller: Arc<Caller>) -> Self {
        Self {
            stream,
            caller,
            more: false,
        }
    }

    /// The stream and nothing else.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        match &polled {
            Poll::Ready(_) => {
                let piece = into.filled().get(before..).unwrap_or_default();
                self.more = !piece.is_empty() && !piece.ends_with(END);
            }
            Poll::Pending if self.more => {
                self.more = false;
                self.caller.acknowledge();
            }
            Poll::Pending => {}
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
