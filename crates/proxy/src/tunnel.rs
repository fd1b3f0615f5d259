//! Streams that are passed on unread, once their first words are right.
//!
//! Promises: P1 (no byte goes to a server before the greeting has been compared), P5, P11. Trust: both ends are
//! hostile; what they say to each other inside TLS is not seen.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bailiwick_model::{Code, Host, Request, Resource, Verb};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::dial::{Gate, Passed, Reached};
use crate::greeting::{self, GreetingFault};
use crate::limits;
use crate::refusal::Refused;
use crate::ssh::Pinned;
use crate::watched::Watched;

/// What went through a stream so far, and when last.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    last: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Meter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) {
        counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    /// Returns when nothing has gone through for [`limits::IDLE_TIME`].
    pub(crate) async fn idle(&self) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let silent = self.start.elapsed().saturating_sub(last);
            if silent >= limits::IDLE_TIME {
                return;
            }
            tokio::time::sleep(limits::IDLE_TIME.saturating_sub(silent)).await;
        }
    }
}

impl std::fmt::Display for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sent = self.written.load(Ordering::Relaxed);
        let received = self.read.load(Ordering::Relaxed);
        write!(f, "{sent} bytes sent, {received} received")
    }
}

/// A stream to a server whose bytes are counted.
pub(crate) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    pub(crate) fn new(stream: S, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let count = buf.filled().len().saturating_sub(before);
        if count > 0 {
            self.meter.count(&self.meter.read, count);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = polled {
            self.meter.count(&self.meter.written, count);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = polled {
            self.meter.count(&self.meter.written, count);
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What is put on record of a greeting that cannot be read.
pub(crate) fn of_greeting(fault: GreetingFault) -> (Code, String) {
    match fault {
        GreetingFault::Silent => (Code::NotTls, "the client said nothing".into()),
        GreetingFault::NotTls(why) => (Code::NotTls, why),
        GreetingFault::Limit(why) => (Code::LimitReached, why.into()),
    }
}

/// Passes on what comes from either end, until one has ended or both are silent. Why the server was refused, if it was.
async fn pass<S>(client: &mut S, first: &[u8], mut reached: Reached<TcpStream>) -> Option<&'static str>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    reached.effect.begin();
    let cut = Arc::clone(reached.effect.cut());
    let meter = Meter::new();
    let server = Metered::new(reached.way, Arc::clone(&meter));
    let mut server = Pinned::new(server, reached.to.pins);
    let passed = async {
        server.write_all(first).await?;
        copy_bidirectional_with_sizes(client, &mut server, limits::TUNNEL_BUFFER, limits::TUNNEL_BUFFER).await
    };
    let end = tokio::select! {
        passed = passed => passed.err().map_or_else(String::new, |fault| format!(", then {fault}")),
        () = meter.idle() => ", then silent for too long".into(),
        // The settlement says so.
        () = cut.off() => String::new(),
    };
    let refused = server.refused();
    let end = refused.map_or(end, |why| format!(", then {why}"));
    reached.effect.settle(true, format!("{meter}{end}"));
    refused
}

impl Gate {
    /// The request for a tunnel.
    pub(crate) fn tunnel_request(&self, host: &Host, port: u16) -> Request {
        let endpoint = Resource::Endpoint {
            host: host.clone(),
            port,
        };
        Request::new(self.channel.task(), Verb::Tunnel, endpoint)
    }

    /// Asks for a tunnel and opens it; nothing has been sent yet.
    pub(crate) async fn open_tunnel(
        &self,
        host: &Host,
        port: u16,
        caller: &Caller,
    ) -> Result<Reached<TcpStream>, Refused> {
        let request = self.tunnel_request(host, port);
        self.reach(host, port, &request, caller, Passed).await
    }

    /// Joins a client to an open tunnel, from the greeting to the end. `early` are bytes of the client's that have been
    /// read already.
    pub(crate) async fn join<S>(&self, mut client: S, early: &[u8], host: &Host, port: u16, reached: Reached<TcpStream>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let act = self.tunnel_request(host, port).to_string();
        let server = if reached.match_server_name {
            let cut = Arc::clone(reached.effect.cut());
            let compared = tokio::select! {
                compared = self.compare_greeting(&mut client, early, host) => compared,
                () = cut.off() => Err((Code::PermitRefused, "before the client had greeted".into())),
            };
            match compared {
                Ok(first) => pass(&mut client, &first, reached).await,
                Err((code, why)) => {
                    reached.effect.settle(false, format!("no byte sent: {why}"));
                    self.channel.refuse(code, &act, &why).await;
                    None
                }
            }
        } else if matches!(host, Host::Name(_)) && !host.is_localhost() {
            let mut client = Watched::new(client, early, host.clone());
            let server = pass(&mut client, &[], reached).await;
            if let Some(why) = client.refused() {
                self.channel.refuse(Code::NameMismatch, &act, why).await;
            }
            server
        } else {
            pass(&mut client, early, reached).await
        };
        if let Some(why) = server {
            self.channel.refuse(Code::UpstreamUntrusted, &act, why).await;
        }
    }

    async fn compare_greeting<S>(&self, client: &mut S, early: &[u8], host: &Host) -> Result<Vec<u8>, (Code, String)>
    where
        S: AsyncRead + Unpin,
    {
        let greeting = greeting::read(client, early).await.map_err(of_greeting)?;
        greeting::names_host(greeting.name.as_deref(), host).map_err(|why| (Code::NameMismatch, why))?;
        Ok(greeting.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn p4_a_stream_may_be_silent_only_so_long() {
        let meter = Meter::new();
        let start = Instant::now();
        tokio::time::sleep(limits::IDLE_TIME / 2).await;
        meter.count(&meter.read, 1);
        meter.idle().await;
        let silent = start.elapsed().saturating_sub(limits::IDLE_TIME / 2);
        assert!(silent >= limits::IDLE_TIME && silent < limits::IDLE_TIME + Duration::from_secs(1));
        assert_eq!(meter.to_string(), "0 bytes sent, 1 received");
    }
}
