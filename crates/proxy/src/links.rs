//! Connections to servers on which requests are sent, kept for the next one.
//!
//! Answers: on which connection does an allowed request go?
//! Promises: P5 (a connection serves only the host, port, address and keys that the permit at hand names, so that no request rides
//! on what was decided about another), P4 (what is half closed, or has said something unasked, is thrown away).
//! A request is sent anew only where none of it has been sent.
//! Trust: servers close, speak out of turn and keep silent as they like.
//! Not here: which address may be dialled (`dial`), TLS itself (`upstream`).
//! See: RFC 9112 section 9, RFC 9113.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_model::{Digest, Host, Scheme};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::bodies::Sent;
use crate::gulp::Gulp;
use crate::limits;
use crate::tunnel::{Meter, Metered};
use crate::upstream::{Upstream, UpstreamFault};

/// What a connection serves, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The address that the permit names.
    pub(crate) address: IpAddr,
    /// Sets of public keys: the server's is in each.
    pub(crate) pins: Vec<Vec<Digest>>,
    /// True where HTTP/2 is spoken if the server can.
    pub(crate) many: bool,
}

/// A connection to a server, ready for a request.
pub(crate) struct Link {
    way: Way,
    /// True when requests have gone over it before: it may have been closed since.
    pub(crate) used: bool,
}

/// How requests go over a connection.
enum Way {
    /// One after the other.
    One(One),
    /// Many at once.
    Many(Many),
}

struct One {
    sender: http1::SendRequest<Sent>,
    /// A second descriptor of its socket, to see what has come unasked.
    socket: OwnedFd,
}

#[derive(Clone)]
struct Many {
    sender: http2::SendRequest<Sent>,
    /// How many requests are under way on it.
    streams: Arc<AtomicUsize>,
    /// How many the server takes at once.
    most: Arc<AtomicUsize>,
}

/// A connection that waits for its next request.
struct Kept {
    one: One,
    until: Instant,
}

#[derive(Default)]
struct Waiting {
    ones: HashMap<Destination, Vec<Kept>>,
    count: usize,
    manys: HashMap<Destination, Vec<(Many, Instant)>>,
    /// Servers that did not choose HTTP/2, until when that is believed.
    plain: HashMap<Destination, Instant>,
    /// Held while a connection for many requests is made, so that requests which come at once share it.
    making: HashMap<Destination, Arc<tokio::sync::Mutex<()>>>,
}

/// The connections of one gate.
#[derive(Default)]
pub(crate) struct Links {
    waiting: Mutex<Waiting>,
}

/// What is left once the head of an answer is there: how the connection is given back when the answer has ended.
pub(crate) struct After {
    links: Arc<Links>,
    to: Destination,
    one: Option<One>,
    keeps: Duration,
    _under_way: Option<UnderWay>,
}

/// A request that could not be sent, with the request where none of it has gone out.
pub(crate) struct Unsent {
    pub(crate) fault: hyper::Error,
    pub(crate) request: Option<Box<hyper::Request<Sent>>>,
}

impl One {
    /// False for a connection that is half closed or has something to say that nobody asked for.
    fn is_quiet(&self) -> bool {
        let mut byte = [0u8; 1];
        let looked = rustix::net::recv(&self.socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.sender.is_ready() && matches!(looked, Err(Errno::AGAIN))
    }
}

impl Many {
    fn has_room(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed).min(limits::STREAMS);
        self.sender.is_ready() && self.streams.load(Ordering::Relaxed) < most
    }
}

impl Links {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A connection that is there already.
    pub(crate) fn take(&self, to: &Destination) -> Option<Link> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        if to.many
            && let Some(manys) = waiting.manys.get_mut(to)
        {
            manys.retain(|(many, _)| !many.sender.is_closed());
            if let Some((many, last)) = manys.iter_mut().find(|(many, _)| many.has_room()) {
                *last = now;
                let way = Way::Many(many.clone());
                return Some(Link { way, used: true });
            }
        }
        let ones = waiting.ones.get_mut(to)?;
        let mut gone = 0usize;
        let found = loop {
            // The one that was used last: it is the least likely to have been closed.
            let Some(kept) = ones.pop() else { break None };
            gone = gone.saturating_add(1);
            if kept.until > now && kept.one.is_quiet() {
                break Some(kept.one);
            }
        };
        if ones.is_empty() {
            waiting.ones.remove(to);
        }
        waiting.count = waiting.count.saturating_sub(gone);
        found.map(|one| Link {
            way: Way::One(one),
            used: true,
        })
    }

    /// Waits until no other request makes a connection that this one could share; none where nothing would be shared.
    pub(crate) async fn alone(&self, to: &Destination) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        let now = Instant::now();
        let making = {
            let mut waiting = self.waiting();
            let shares = to.many && waiting.plain.get(to).is_none_or(|until| *until < now);
            shares.then(|| Arc::clone(waiting.making.entry(to.clone()).or_default()))
        };
        Some(making?.lock_owned().await)
    }

    /// Makes one over a stream that has been dialled.
    pub(crate) async fn make(
        self: &Arc<Self>,
        upstream: &Upstream,
        to: &Destination,
        stream: TcpStream,
    ) -> Result<Link, UpstreamFault> {
        let unreachable = |fault: &dyn std::fmt::Display| UpstreamFault::unreachable(fault.to_string());
        let socket = stream
            .as_fd()
            .try_clone_to_owned()
            .map_err(|fault| unreachable(&fault))?;
        let meter = Meter::new();
        let stream = Metered::new(stream, Arc::clone(&meter));
        let way = match to.scheme {
            Scheme::Http => Way::One(one(stream, meter, socket).await.map_err(|fault| unreachable(&fault))?),
            Scheme::Https => {
                let (stream, many) = upstream.connect(to, Gulp::new(stream)).await?;
                if many {
                    let many = many_over(stream, meter).await.map_err(|fault| unreachable(&fault))?;
                    let mut waiting = self.waiting();
                    let known = waiting.manys.entry(to.clone()).or_default();
                    known.push((many.clone(), Instant::now()));
                    Way::Many(many)
                } else {
                    if to.many {
                        let until = Instant::now() + limits::LINK_TIME_MANY;
                        self.waiting().plain.insert(to.clone(), until);
                    }
                    Way::One(one(stream, meter, socket).await.map_err(|fault| unreachable(&fault))?)
                }
            }
        };
        Ok(Link { way, used: false })
    }

    fn keep(&self, to: Destination, one: One, keeps: Duration) {
        let mut waiting = self.waiting();
        if waiting.count >= limits::LINKS_KEPT || !one.sender.is_ready() {
            return;
        }
        let ones = waiting.ones.entry(to).or_default();
        if ones.len() >= limits::LINKS_KEPT_ALIKE {
            return;
        }
        ones.push(Kept {
            one,
            until: Instant::now() + keeps,
        });
        waiting.count = waiting.count.saturating_add(1);
    }

    /// Closes what has waited for too long, for ever.
    pub(crate) async fn tidy(self: Arc<Self>) {
        loop {
            tokio::time::sleep(limits::TIDY_TIME).await;
            let now = Instant::now();
            let mut waiting = self.waiting();
            waiting.ones.retain(|_, ones| {
                ones.retain(|kept| kept.until > now && kept.one.sender.is_ready());
                !ones.is_empty()
            });
            waiting.plain.retain(|_, until| *until > now);
            waiting.making.retain(|_, making| Arc::strong_count(making) > 1);
            waiting.count = waiting.ones.values().map(Vec::len).sum();
            waiting.manys.retain(|_, manys| {
                manys.retain(|(many, last)| {
                    let idle = many.streams.load(Ordering::Relaxed) == 0;
                    !many.sender.is_closed() && (!idle || now.duration_since(*last) < limits::LINK_TIME_MANY)
                });
                !manys.is_empty()
            });
        }
    }
}

impl Link {
    /// Sends a request; the head of its answer, and what becomes of the connection afterwards.
    pub(crate) async fn send(
        self,
        links: &Arc<Links>,
        to: &Destination,
        mut request: hyper::Request<Sent>,
    ) -> Result<(Response<Incoming>, After), Unsent> {
        let mut way = self.way;
        // A request that is given up half way is no longer under way either.
        let under_way = match &way {
            Way::One(_) => None,
            Way::Many(many) => Some(UnderWay::on(many)),
        };
        let sent = match &mut way {
            Way::One(one) => {
                // It would have to be announced as a word to the next machine alone.
                request.headers_mut().remove(header::TE);
                one.sender.try_send_request(request).await
            }
            Way::Many(many) => many.sender.try_send_request(for_many(request, to)).await,
        };
        match sent {
            Ok(response) => {
                let after = After {
                    links: Arc::clone(links),
                    to: to.clone(),
                    keeps: keeps(response.headers()),
                    one: match way {
                        Way::One(one) => Some(one),
                        Way::Many(_) => None,
                    },
                    _under_way: under_way,
                };
                Ok((response, after))
            }
            Err(mut fault) => {
                let request = fault.take_message().map(|request| Box::new(for_one(request)));
                let fault = fault.into_error();
                Err(Unsent { fault, request })
            }
        }
    }
}

impl After {
    /// Gives the connection back: the answer has ended, and with it the request.
    pub(crate) fn end(self) {
        let Self {
            links, to, one, keeps, ..
        } = self;
        let Some(mut one) = one else { return };
        if one.sender.is_ready() {
            return links.keep(to, one, keeps);
        }
        tokio::spawn(async move {
            // Not before the request has been sent whole; not at all where either side wants to close.
            if let Ok(Ok(())) = tokio::time::timeout(limits::HANDSHAKE_TIME, one.sender.ready()).await {
                links.keep(to, one, keeps);
            }
        });
    }
}

/// Counts a request on a connection of many.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn on(many: &Many) -> Self {
        many.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&many.streams))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is written for HTTP/1.1, for HTTP/2: the whole URL stands in its head, the host on no line.
fn for_many(mut request: hyper::Request<Sent>, to: &Destination) -> hyper::Request<Sent> {
    let host = request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let authority = host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
    parts.authority = authority;
    parts.scheme = to.scheme.as_str().parse().ok();
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request
}

/// And back.
fn for_one(mut request: hyper::Request<Sent>) -> hyper::Request<Sent> {
    if request.version() != Version::HTTP_2 {
        return request;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if let Some(host) = parts.authority.take()
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    parts.scheme = None;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    if !request.headers().contains_key(header::CONTENT_LENGTH) && !request.body().is_end_stream() {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
    request
}

/// How long a connection may wait: a little less than the server says, or than servers do that say nothing.
fn keeps(headers: &HeaderMap) -> Duration {
    let lines = headers.get_all("keep-alive").iter();
    let words = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    let seconds = words.filter_map(|word| word.trim().strip_prefix("timeout=")?.parse::<u64>().ok());
    match seconds.min() {
        Some(seconds) => Duration::from_secs(seconds.saturating_sub(1)).min(limits::LINK_TIME_SAID),
        None => limits::LINK_TIME,
    }
}

/// Speaks HTTP/1.1 over a stream to a server, until that ends or nothing has gone through it for too long.
async fn one<S>(server: S, meter: Arc<Meter>, socket: OwnedFd) -> hyper::Result<One>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(limits::BUFFER_BYTES)
        .max_headers(limits::HEAD_LINES)
        .max_header_size(limits::HEAD_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(server)).await?;
    tokio::spawn(async move {
        tokio::select! {
            // What went wrong is told to whoever reads the answer.
            _ = connection.with_upgrades() => {}
            () = meter.idle() => {}
        }
    });
    Ok(One { sender, socket })
}

/// The same for HTTP/2.
async fn many_over<S>(server: S, meter: Arc<Meter>) -> hyper::Result<Many>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_send_buf_size(limits::STREAM_BUFFER)
        .max_header_list_size(limits::HEADER_LIST)
        .max_concurrent_reset_streams(limits::RESETS);
    let (sender, mut connection) = builder.handshake(TokioIo::new(server)).await?;
    let most = Arc::new(AtomicUsize::new(limits::STREAMS));
    let told = Arc::clone(&most);
    tokio::spawn(async move {
        let served = std::future::poll_fn(|cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            told.store(connection.current_max_send_streams(), Ordering::Relaxed);
            polled
        });
        tokio::select! {
            _ = served => {}
            () = meter.idle() => {}
        }
    });
    Ok(Many {
        sender,
        streams: Arc::default(),
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_waits_no_longer_than_its_server_says() {
        let says = |line: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", line.parse().unwrap());
            keeps(&headers)
        };
        assert_eq!(says("timeout=5, max=100"), Duration::from_secs(4));
        assert_eq!(says("max=3,timeout=2"), Duration::from_secs(1));
        assert_eq!(says("timeout=0"), Duration::ZERO);
        assert_eq!(says("timeout=86400"), limits::LINK_TIME_SAID);
        assert_eq!(says("timeout=x"), limits::LINK_TIME);
        assert_eq!(keeps(&HeaderMap::new()), limits::LINK_TIME);
    }
}
