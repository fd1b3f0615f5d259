//! The gate as a process: sockets in, one runtime, until the channel closes.
//!
//! Promises: P4 (without the mediator every request is refused), P11 (when the channel closes, all connections end
//! within a second: they live in the runtime, which is dropped). Trust: the sockets are the fence's; who connects is
//! hostile.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_line::{Came, ChannelFault, Door};
use bailiwick_model::{Code, Host, Scheme};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::busy::{Busy, Held};
use crate::caller::Caller;
use crate::certificates::{CertificateFault, Issuer};
use crate::channel::Channel;
use crate::config::{Config, Service};
use crate::dial::Gate;
use crate::forward::{Body, whole};
use crate::intercept::Openings;
use crate::limits;
use crate::names::{Names, Resolve};
use crate::prompt::Prompt;
use crate::publish::{Pairs, join_all};
use crate::road::Road;
use crate::secrets::Secrets;
use crate::strays::watch_strays;
use crate::synthetic::Synthetic;
use crate::upstream::Upstream;

/// Says why the gate could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum GateFault {
    /// The sockets are not those of the configuration.
    #[error("{sockets} sockets were handed over for {services} services")]
    Sockets {
        /// How many sockets there are.
        sockets: usize,
        /// How many services are to be served.
        services: usize,
    },
    /// A socket, or the runtime, cannot be used.
    #[error("the network gate could not start: {0}")]
    Start(#[source] io::Error),
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelFault),
    /// The task's authority cannot be used.
    #[error(transparent)]
    Authority(#[from] CertificateFault),
}

/// Serves, and joins the pairs that come, until the channel closes; then closes everything and returns. Blocks; makes a runtime of its own.
pub fn run<R: Resolve>(
    config: Config,
    sockets: Vec<OwnedFd>,
    pairs: Pairs,
    channel: std::os::unix::net::UnixStream,
    resolver: R,
) -> Result<(), GateFault> {
    if sockets.len() != config.sockets.len() {
        return Err(GateFault::Sockets {
            sockets: sockets.len(),
            services: config.sockets.len(),
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(GateFault::Start)?;
    let ended = runtime.block_on(serve_all(config, sockets, pairs, channel, resolver));
    // Open connections end here. A look-up that hangs in the system's resolver is left behind.
    runtime.shutdown_background();
    ended
}

async fn serve_all<R: Resolve>(
    config: Config,
    sockets: Vec<OwnedFd>,
    pairs: Pairs,
    channel: std::os::unix::net::UnixStream,
    resolver: R,
) -> Result<(), GateFault> {
    channel.set_nonblocking(true).map_err(GateFault::Start)?;
    let channel = tokio::net::UnixStream::from_std(channel).map_err(GateFault::Start)?;
    let (channel, line) = Channel::open(config.task, &config.build, channel)?;
    let gate = Arc::new(Gate {
        channel,
        names: Names::new(config.hosts, resolver),
        synthetic: Mutex::new(Synthetic::default()),
        opened: Openings::of(config.opened),
        issuer: config.authority.as_ref().map(Issuer::new).transpose()?,
        upstream: Upstream::new(config.roots),
        links: Arc::default(),
        exchanges: Semaphore::new(limits::EXCHANGES),
        secrets: Secrets::of(config.secrets),
    });
    tokio::spawn(Arc::clone(&gate.links).tidy());
    for (service, socket) in config.sockets.into_iter().zip(sockets) {
        if service == Service::Strays {
            let socket = datagram(socket).map_err(GateFault::Start)?;
            tokio::spawn(watch_strays(Arc::clone(&gate), socket));
        } else if service == Service::DnsDatagram {
            let socket = datagram(socket).map_err(GateFault::Start)?;
            tokio::spawn(serve_datagrams(Arc::clone(&gate), Arc::new(socket)));
        } else {
            let door = Door::of(socket).map_err(GateFault::Start)?;
            tokio::spawn(accept(Arc::clone(&gate), Arc::new(service), door));
        }
    }
    tokio::spawn(join_all(pairs));
    let ended = line.await;
    tokio::time::sleep(limits::LAST_WORDS).await;
    Ok(ended?)
}

fn datagram(socket: OwnedFd) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// A place among the connections of one service, given back when the last holder is gone.
pub(crate) type Seat = Arc<OwnedSemaphorePermit>;

async fn accept(gate: Arc<Gate>, service: Arc<Service>, door: Door) {
    let seats = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        match door.accept().await {
            Ok(Came::Connection(stream, meant)) => {
                let _ = stream.set_nodelay(true);
                let (gate, service) = (Arc::clone(&gate), Arc::clone(&service));
                tokio::spawn(async move { gate.serve(&service, stream, meant, Arc::new(seat)).await });
            }
            Ok(Came::Refused { what, why }) => {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    let what = gate.with_name(what);
                    gate.channel.refuse(Code::NoRule, &what, &why).await;
                    drop(seat);
                });
            }
            // Too many open files, most likely: connections that end make room.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Gate {
    async fn serve(self: Arc<Self>, service: &Service, stream: TcpStream, meant: Option<SocketAddr>, seat: Seat) {
        match service {
            Service::Proxy => self.serve_http(Road::Proxy, stream, seat).await,
            Service::LoopbackHttp { port } => self.serve_http(Road::Loopback { port: *port }, stream, seat).await,
            Service::LoopbackStream { port } => {
                self.serve_stream(&Host::Address([127, 0, 0, 1].into()), *port, stream)
                    .await;
            }
            Service::Direct { host, port, http } => self.serve_straight(host.clone(), *port, *http, stream, seat).await,
            Service::Elsewhere { streams } => {
                if let Some(meant) = meant {
                    self.serve_elsewhere(meant, streams, stream, seat).await;
                }
            }
            Service::DnsStream => self.serve_dns_stream(stream).await,
            // Served by `serve_datagrams` and `watch_strays`.
            Service::DnsDatagram | Service::Strays => {}
        }
    }

    async fn serve_straight(self: Arc<Self>, host: Host, port: u16, http: bool, stream: TcpStream, seat: Seat) {
        if http {
            let road = Road::Straight {
                scheme: Scheme::Http,
                host,
                port,
            };
            self.serve_http(road, stream, seat).await;
        } else {
            self.serve_stream(&host, port, stream).await;
        }
    }

    pub(crate) async fn serve_stream(&self, host: &Host, port: u16, stream: TcpStream) {
        match self.open_tunnel(host, port, &Caller::at(&stream)).await {
            Ok(reached) => self.join(stream, &[], host, port, reached).await,
            // On record; on a bare stream there is no way to say it.
            Err(_) => reset(stream),
        }
    }

    pub(crate) async fn serve_http(self: Arc<Self>, road: Road, stream: TcpStream, seat: Seat) {
        let caller = Caller::at(&stream);
        self.serve_requests(road, stream, caller, seat).await;
    }

    /// Serves the requests on one connection, plain or opened.
    pub(crate) async fn serve_requests<S>(self: Arc<Self>, road: Road, stream: S, caller: Caller, seat: Seat)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let caller = Arc::new(caller);
        let reads = Arc::clone(&caller);
        let road = Arc::new(road);
        let gate = Arc::clone(&self);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (gate, road) = (Arc::clone(&gate), Arc::clone(&road));
            let (caller, seat) = (Arc::clone(&caller), Arc::clone(&seat));
            async move {
                let response = if request.method() == Method::CONNECT {
                    gate.connect(&road, &caller, request, seat).await
                } else {
                    gate.answer(&road, &caller, request, seat).await
                };
                Ok::<Response<Body>, Infallible>(response)
            }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .half_close(true)
            .max_buf_size(limits::BUFFER_BYTES)
            .max_headers(limits::HEAD_LINES)
            .max_header_size(limits::HEAD_BYTES)
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD_TIME);
        let served = builder
            .serve_connection(TokioIo::new(Prompt::new(stream, reads)), service)
            .with_upgrades()
            .await;
        // hyper has answered already; what could not be read as a request is put on record.
        if let Err(fault) = served
            && fault.is_parse()
        {
            self.channel
                .refuse(Code::MalformedRequest, "an HTTP request", &fault.to_string())
                .await;
        }
    }

    /// Serves the requests on one connection of HTTP/2, which was opened.
    pub(crate) async fn serve_many<S>(self: Arc<Self>, road: Road, stream: S, caller: Caller, seat: Seat)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let caller = Arc::new(caller);
        let road = Arc::new(road);
        let (gate, busy) = (Arc::clone(&self), Arc::new(Busy::default()));
        let under_way = Arc::clone(&busy);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (gate, road) = (Arc::clone(&gate), Arc::clone(&road));
            let (caller, seat) = (Arc::clone(&caller), Arc::clone(&seat));
            let place = under_way.begin();
            async move {
                let response = gate.answer_one_of_many(&road, &caller, request, seat).await;
                let response = response.map(|body| Held::new(body, place).boxed());
                Ok::<Response<Body>, Infallible>(response)
            }
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(u32::try_from(limits::STREAMS).unwrap_or(u32::MAX))
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_send_buf_size(limits::STREAM_BUFFER)
            .max_header_list_size(limits::HEADER_LIST)
            .max_pending_accept_reset_streams(limits::RESETS)
            .max_local_error_reset_streams(limits::RESETS)
            .keep_alive_interval(limits::PULSE)
            .keep_alive_timeout(limits::PULSE);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = busy.idle() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(fault) = ended
            && let Some(why) = of_http_2(&fault)
        {
            self.channel
                .refuse(Code::MalformedRequest, "an HTTP/2 connection", &why)
                .await;
        }
    }

    async fn answer_one_of_many(
        self: &Arc<Self>,
        road: &Road,
        caller: &Caller,
        request: hyper::Request<Incoming>,
        seat: Seat,
    ) -> Response<Body> {
        // Never closed.
        let _place = self.exchanges.acquire().await;
        if request.method() == Method::CONNECT {
            let written = format!("CONNECT {}", request.uri());
            let why = "neither tunnels nor web sockets go over HTTP/2";
            let refused = self.channel.refuse(Code::MalformedRequest, &written, why).await;
            return refused.response();
        }
        self.answer(road, caller, request, seat).await
    }

    /// Answers CONNECT: asks, dials, and then joins the two ends once the client has said whom it greets.
    async fn connect(
        self: &Arc<Self>,
        road: &Road,
        caller: &Caller,
        mut request: hyper::Request<Incoming>,
        seat: Seat,
    ) -> Response<Body> {
        let written = format!("CONNECT {}", request.uri());
        let parsed = match (road, request.uri().authority()) {
            (Road::Straight { .. } | Road::Address { .. } | Road::Loopback { .. }, _) => {
                Err("this is not a proxy".into())
            }
            (Road::Proxy, Some(authority)) if authority.port().is_some() && request.uri().scheme().is_none() => {
                bailiwick_model::HttpUrl::authority(authority.as_str(), 443).map_err(|fault| fault.to_string())
            }
            (Road::Proxy, _) => Err("CONNECT takes `host:port`".to_owned()),
        };
        let (host, port) = match parsed {
            Ok(parsed) => parsed,
            Err(why) => {
                return self
                    .channel
                    .refuse(Code::MalformedRequest, &written, &why)
                    .await
                    .response();
            }
        };
        let upgrade = hyper::upgrade::on(&mut request);
        let gate = Arc::clone(self);
        if self.opens(&host, port) {
            tokio::spawn(async move {
                let Ok(upgraded) = upgrade.await else { return };
                // Through the proxy it is a socket.
                if let Ok(parts) = upgraded.downcast::<TokioIo<Prompt<TcpStream>>>() {
                    gate.serve_opened_tunnel(host, port, parts, seat).await;
                }
            });
            return Response::new(whole(""));
        }
        let reached = match self.open_tunnel(&host, port, caller).await {
            Ok(reached) => reached,
            Err(refused) => return refused.response(),
        };
        tokio::spawn(async move {
            // A client that went away drops the effect, which says so.
            if let Ok(upgraded) = upgrade.await {
                match upgraded.downcast::<TokioIo<Prompt<TcpStream>>>() {
                    Ok(parts) => {
                        let client = parts.io.into_inner().into_inner();
                        gate.join(client, &parts.read_buf, &host, port, reached).await;
                    }
                    Err(upgraded) => gate.join(TokioIo::new(upgraded), &[], &host, port, reached).await,
                }
            }
            drop(seat);
        });
        Response::new(whole(""))
    }

    /// DNS over a stream: each message has two bytes of length before it.
    async fn serve_dns_stream(&self, mut stream: TcpStream) {
        loop {
            let message = tokio::time::timeout(limits::DNS_TIME, read_dns(&mut stream)).await;
            let Ok(Some(message)) = message else { return };
            let Some(answer) = self.answer_dns(&message).await else {
                return;
            };
            let Ok(length) = u16::try_from(answer.len()) else {
                return;
            };
            let mut framed = length.to_be_bytes().to_vec();
            framed.extend(answer);
            match tokio::time::timeout(limits::DNS_TIME, stream.write_all(&framed)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

/// What is put on record of a connection of HTTP/2 that was ended for what the client did; none for one that just ended.
fn of_http_2(fault: &hyper::Error) -> Option<String> {
    let mut cause = std::error::Error::source(fault);
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<std::io::Error>() {
            // It has gone away, or what it speaks over has.
            let _ = inner;
            return None;
        }
        cause = inner.source();
    }
    (!fault.is_closed() && !fault.is_incomplete_message() && !fault.is_canceled()).then(|| {
        let cause = std::error::Error::source(fault);
        cause.map_or_else(|| fault.to_string(), |cause| format!("{fault}: {cause}"))
    })
}

/// Breaks a connection off, so that the client takes it for refused and not for over.
pub(crate) fn reset(stream: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
}

async fn read_dns(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > limits::DNS_BYTES {
        return None;
    }
    let mut message = vec![0u8; length];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

async fn serve_datagrams(gate: Arc<Gate>, socket: Arc<UdpSocket>) {
    let waiting = Arc::new(Semaphore::new(limits::DNS_QUESTIONS));
    // One byte more than may be sent, so that what is too long is seen.
    let mut buffer = vec![0u8; limits::DNS_BYTES.saturating_add(1)];
    loop {
        let Ok((count, client)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&waiting).try_acquire_owned() else {
            continue;
        };
        let question = buffer.get(..count).unwrap_or_default().to_vec();
        let (gate, socket) = (Arc::clone(&gate), Arc::clone(&socket));
        tokio::spawn(async move {
            if let Some(answer) = gate.answer_dns(&question).await {
                // The client asks again when an answer is lost.
                let _ = socket.send_to(&answer, client).await;
            }
            drop(place);
        });
    }
}
