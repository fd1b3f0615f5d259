//! TLS connections that are opened here, so that each request inside can be judged.
//!
//! Answers: a client that wants `host:port` greets; it is shown a certificate of the task's own authority, and what it then
//! says is served as requests to that host and port, and to no other.
//! Promises: P1, P5 (the greeting's name is the host that was connected to; the Host line is held to it in `road`),
//! P10 (a client that will not be served this way is on record, with what to do about it).
//! Trust: every byte is the agent's.
//! Not here: which hosts are opened (rules, by [`Config::opened`](crate::Config::opened)); the requests (`forward`).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bailiwick_model::{ANY_PORT, Code, Host, HostPattern, Opened, Scheme};
use hyper::upgrade::Parts;
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::caller::Caller;
use crate::dial::Gate;
use crate::greeting::{self, names_host};
use crate::gulp::Gulp;
use crate::limits;
use crate::prompt::Prompt;
use crate::road::Road;
use crate::serve::Seat;
use crate::tunnel::of_greeting;
use crate::upstream::HTTP_2;

/// A stream of which some bytes have been read already.
pub(crate) struct Begun<S> {
    first: Vec<u8>,
    from: usize,
    rest: S,
}

impl<S> Begun<S> {
    pub(crate) fn new(first: Vec<u8>, rest: S) -> Self {
        Self { first, from: 0, rest }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.first.get(self.from..).unwrap_or_default();
        if left.is_empty() {
            self.first = Vec::new();
            return Pin::new(&mut self.rest).poll_read(cx, into);
        }
        let part = left.get(..into.remaining().min(left.len())).unwrap_or_default();
        into.put_slice(part);
        self.from = self.from.saturating_add(part.len());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(cx)
    }
}

/// Which connections are opened, however many hosts rules name.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// Hosts that are named as they are.
    named: HashMap<Host, Vec<Opened>>,
    /// Those of patterns.
    others: Vec<Opened>,
    ports: BTreeSet<u16>,
}

impl Openings {
    pub(crate) fn of(all: Vec<Opened>) -> Self {
        let mut openings = Self::default();
        for opened in all {
            openings.ports.insert(opened.port);
            match &opened.host {
                HostPattern::Exact(host) => openings.named.entry(host.clone()).or_default().push(opened),
                _ => openings.others.push(opened),
            }
        }
        openings
    }

    fn covers(&self, host: &Host, port: u16) -> bool {
        let named = self.named.get(host).into_iter().flatten();
        named.chain(&self.others).any(|opened| opened.covers(host, port))
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port) || self.ports.contains(&ANY_PORT)
    }
}

/// What is said to a client whose greeting names another host (RFC 6066, section 3): a fatal `unrecognized_name`.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// What is put on record of a client that ends the handshake.
fn of_handshake(fault: &io::Error) -> (Code, String) {
    let inner = fault.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied),
        )) => (
            Code::CertificateNotAccepted,
            format!("the client does not accept the certificate that was made for it ({alert:?})"),
        ),
        // It saw the certificate, and went without a word.
        None if matches!(
            fault.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        ) =>
        {
            (
                Code::CertificateNotAccepted,
                "the client went away when it saw the certificate that was made for it".into(),
            )
        }
        Some(_) | None => (
            Code::NotTls,
            format!("the TLS handshake with the client failed: {fault}"),
        ),
    }
}

impl Gate {
    /// True when connections to this host and port are opened.
    pub(crate) fn opens(&self, host: &Host, port: u16) -> bool {
        self.issuer.is_some() && self.opened.covers(host, port)
    }

    /// True when a connection to this host and port, or to a host that is behind this address, may be one that is opened.
    pub(crate) fn may_open(&self, host: &Host, port: u16) -> bool {
        let behind = matches!(host, Host::Address(_)) && self.opened.has_port(port);
        self.opens(host, port) || (self.issuer.is_some() && behind)
    }

    /// The same for a connection that came through the proxy. Its type is named, since requests inside are served as those
    /// of the proxy are, and so the compiler would look for it in itself.
    pub(crate) fn serve_opened_tunnel(
        self: Arc<Self>,
        host: Host,
        port: u16,
        parts: Parts<TokioIo<Prompt<TcpStream>>>,
        seat: Seat,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let client = parts.io.into_inner().into_inner();
        let caller = Caller::at(&client);
        Box::pin(async move {
            self.serve_opened(host, port, client, &parts.read_buf, caller, seat)
                .await;
        })
    }

    /// Serves a connection to a host and port that is opened. `early` are bytes that have been read already.
    pub(crate) async fn serve_opened<S>(
        self: Arc<Self>,
        host: Host,
        port: u16,
        mut stream: S,
        early: &[u8],
        caller: Caller,
        seat: Seat,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let what = format!("TLS to {host}:{port}");
        let mut first = early.to_vec();
        if first.is_empty() {
            let mut piece = vec![0u8; 4096];
            // Connections are made ahead of need, and left.
            match tokio::time::timeout(limits::HEAD_TIME, stream.read(&mut piece)).await {
                Ok(Ok(count @ 1..)) => first.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Ok(Ok(_) | Err(_)) | Err(_) => return,
            }
        }
        let greeting = match greeting::read(&mut stream, &first).await {
            Ok(greeting) => greeting,
            Err(fault) => {
                let (code, why) = of_greeting(fault);
                self.channel.refuse(code, &what, &why).await;
                return;
            }
        };
        if let Err(why) = names_host(greeting.name.as_deref(), &host) {
            self.channel.refuse(Code::NameMismatch, &what, &why).await;
            // A client that has gone does not hear it.
            let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
            let _ = stream.shutdown().await;
            return;
        }
        let serving = match self.issuer.as_ref().map(|issuer| issuer.serving(&host)) {
            Some(Ok(serving)) => serving,
            Some(Err(fault)) => {
                self.channel.refuse(Code::Fault, &what, &fault.to_string()).await;
                return;
            }
            None => return,
        };
        // A client that does not believe the certificate ends the handshake, and often its task with it.
        let attending = self.channel.attend();
        let accepting = TlsAcceptor::from(serving).accept(Gulp::new(Begun::new(greeting.bytes, stream)));
        match tokio::time::timeout(limits::HANDSHAKE_TIME, accepting).await {
            Ok(Ok(client)) => {
                drop(attending);
                let many = client.get_ref().1.alpn_protocol() == Some(HTTP_2);
                let road = Road::Straight {
                    scheme: Scheme::Https,
                    host,
                    port,
                };
                if many {
                    self.serve_many(road, client, caller, seat).await;
                } else {
                    self.serve_requests(road, client, caller, seat).await;
                }
            }
            Ok(Err(fault)) => {
                let (code, why) = of_handshake(&fault);
                self.channel.refuse(code, &what, &why).await;
            }
            Err(_) => {
                let why = "the TLS handshake with the client did not end in time";
                self.channel.refuse(Code::LimitReached, &what, why).await;
            }
        }
    }
}
