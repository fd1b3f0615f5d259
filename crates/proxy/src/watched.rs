//! A client that need not greet with TLS, and must name the right server where it does.
//!
//! Promises: P5 (at a port that a rule names for a service of its own, a greeting that names another host passes no byte).
//! Trust: the bytes are the agent's, cut as it likes. What does not begin like a record of TLS is passed on as it is: a
//! server that speaks TLS from the start does not understand it.
//! Not here: where a greeting is insisted on (`tunnel`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bailiwick_model::Host;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::greeting::{Reader, names_host};

/// How far the first words have been read.
enum First {
    /// They are held back.
    Held(Box<Reader>),
    /// They may be passed on, from this byte.
    Passed(Vec<u8>, usize),
    /// They named another server.
    Refused(String),
}

/// A client whose first words are looked at.
pub(crate) struct Watched<S> {
    client: S,
    host: Host,
    first: First,
}

impl<S> Watched<S> {
    /// `early` are bytes of the client's that have been read already.
    pub(crate) fn new(client: S, early: &[u8], host: Host) -> Self {
        let mut reader = Box::<Reader>::default();
        let judged = (!early.is_empty()).then(|| Self::judge(&mut reader, early, &host));
        Self {
            client,
            host,
            first: judged.flatten().unwrap_or(First::Held(reader)),
        }
    }

    /// Why the first words were refused.
    pub(crate) fn refused(&self) -> Option<&str> {
        match &self.first {
            First::Refused(why) => Some(why),
            First::Held(_) | First::Passed(..) => None,
        }
    }

    /// Takes more, or the end, and says what becomes of what was held back; none while that is not known.
    fn judge(reader: &mut Reader, more: &[u8], host: &Host) -> Option<First> {
        reader.add(more);
        let is_greeting = match reader.bytes() {
            [] => false,
            [first] => *first == 0x16 && !more.is_empty(),
            [first, second, ..] => (*first, *second) == (0x16, 0x03),
        };
        if !is_greeting {
            return Some(First::Passed(reader.take(), 0));
        }
        match reader.greeting() {
            Ok(None) if more.is_empty() => Some(First::Refused("the greeting does not end".into())),
            Ok(None) => None,
            Ok(Some(greeting)) => Some(match names_host(greeting.name.as_deref(), host) {
                Ok(()) => First::Passed(greeting.bytes, 0),
                Err(why) => First::Refused(why),
            }),
            Err(_) => Some(First::Refused("the TLS greeting cannot be read".into())),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.first {
                First::Refused(_) => return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted))),
                First::Passed(bytes, from) => {
                    let rest = bytes.get(*from..).unwrap_or_default();
                    if rest.is_empty() {
                        return Pin::new(&mut this.client).poll_read(cx, into);
                    }
                    let part = rest.get(..into.remaining().min(rest.len())).unwrap_or_default();
                    into.put_slice(part);
                    *from = from.saturating_add(part.len());
                    return Poll::Ready(Ok(()));
                }
                First::Held(reader) => {
                    let mut space = [0u8; 2048];
                    let mut piece = ReadBuf::new(&mut space);
                    ready!(Pin::new(&mut this.client).poll_read(cx, &mut piece))?;
                    if let Some(next) = Self::judge(reader, piece.filled(), &this.host) {
                        this.first = next;
                    }
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.client).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(cx)
    }
}
