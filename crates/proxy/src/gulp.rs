//! Streams under TLS, taken from the kernel in large pieces while much comes.
//!
//! The TLS library asks for 4 KiB at a time, a quarter of a record: of a large body that is four calls of the kernel for each
//! record, with as many looks whether it is whole. Where a read was filled to its end there is likely more, and that is taken at once.
//! Trust: the bytes are whoever's is at the other end. What is held is bounded ([`limits::GULP`]), and nothing is while nothing comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::bytes::{Buf as _, BytesMut};
use tokio_util::io::poll_read_buf;

use crate::limits;

/// A stream that is read ahead while much comes.
pub(crate) struct Gulp<S> {
    stream: S,
    held: BytesMut,
    /// The last read was filled to its end.
    more: bool,
}

impl<S> Gulp<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            held: BytesMut::new(),
            more: false,
        }
    }

    fn hand_out(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.held.len().min(into.remaining());
        into.put_slice(self.held.get(..count).unwrap_or_default());
        self.held.advance(count);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gulp<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !this.held.is_empty() {
            this.hand_out(into);
            return Poll::Ready(Ok(()));
        }
        if !this.more || into.remaining() >= limits::GULP {
            // Who waits for little holds nothing.
            this.held = BytesMut::new();
            let before = into.remaining();
            ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
            this.more = into.remaining() == 0 && before >= limits::GULP_FROM;
            return Poll::Ready(Ok(()));
        }
        this.held.reserve(limits::GULP);
        match poll_read_buf(Pin::new(&mut this.stream), cx, &mut this.held) {
            Poll::Ready(Ok(count @ 1..)) => {
                this.more = count >= limits::GULP_FROM;
                this.hand_out(into);
                Poll::Ready(Ok(()))
            }
            other => {
                this.held = BytesMut::new();
                other.map_ok(drop)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gulp<S> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Hands out pieces as they are, and counts how often it was asked.
    struct Pieces {
        pieces: std::collections::VecDeque<Vec<u8>>,
        asked: usize,
        pauses: bool,
    }

    impl AsyncRead for Pieces {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.asked += 1;
            if self.pauses && self.asked.is_multiple_of(3) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(mut piece) = self.pieces.pop_front() else {
                return Poll::Ready(Ok(()));
            };
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
            Poll::Ready(Ok(()))
        }
    }

    fn read(pieces: Vec<Vec<u8>>, at_a_time: usize, pauses: bool) -> (Vec<u8>, Gulp<Pieces>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut gulp = Gulp::new(Pieces {
                pieces: pieces.into(),
                asked: 0,
                pauses,
            });
            let mut all = Vec::new();
            let mut piece = vec![0u8; at_a_time];
            loop {
                match gulp.read(&mut piece).await.unwrap() {
                    0 => return (all, gulp),
                    count => all.extend_from_slice(&piece[..count]),
                }
            }
        })
    }

    #[test]
    fn much_is_taken_in_few_pieces_and_nothing_is_held_at_the_end() {
        let (all, gulp) = read(vec![vec![7; 1 << 20]], 4096, false);
        assert_eq!(all.len(), 1 << 20);
        assert!(gulp.stream.asked < 30, "{}", gulp.stream.asked);
        assert_eq!(gulp.held.capacity(), 0);
        // What fits into its reads is never read ahead.
        let (_, gulp) = read(vec![vec![7; 1000]; 10], 4096, false);
        assert_eq!((gulp.stream.asked, gulp.held.capacity()), (11, 0));
    }

    proptest! {
        #[test]
        fn every_byte_comes_once_and_in_order(
            pieces in proptest::collection::vec(1usize..200_000, 0..8),
            at_a_time in 1usize..20_000,
            pauses in any::<bool>(),
        ) {
            let mut number = 0u32;
            let mut byte = || { number = number.wrapping_mul(1_664_525).wrapping_add(1); (number >> 24) as u8 };
            let pieces: Vec<Vec<u8>> = pieces.into_iter().map(|length| (0..length).map(|_| byte()).collect()).collect();
            let want = pieces.concat();
            prop_assert!(read(pieces, at_a_time, pauses).0 == want);
        }
    }
}
