//! Plain HTTP: each request is brought to one form, asked about, and sent on in that form.
//!
//! Promises: P1 (a permit for each request, also on a kept-open connection and after a redirect), P5 (the host of the
//! request line and of the Host line are one; the path that was decided about is the path that is sent), P4.
//! Trust: the request is the agent's; the answer is whoever serves it. Framing is hyper's, which writes every message
//! anew, so that nothing in a head or a body is read as another request by the server.
//! See: RFC 9110 section 7.6 (what a proxy passes on), RFC 9112 sections 3.2 and 6.3.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bailiwick_gate::Refusal;
use bailiwick_model::{Code, Host, Method, Request, Resource, Scheme, Verb};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bodies::{Broken, Sent};
use crate::caller::Caller;
use crate::channel::Effect;
use crate::dial::{Gate, Reached};
use crate::last::OWN_HOST;
use crate::limits;
use crate::refusal::Refused;
use crate::road::Road;
use crate::secrets::{Expected, Stopped};
use crate::serve::Seat;
use crate::tunnel::{Meter, Metered};
use crate::upstream::UpstreamFault;

/// The body of an answer.
pub(crate) type Body = BoxBody<Bytes, Broken>;

/// A body that is there already.
pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// Takes out what is meant for the next machine only (RFC 9110, section 7.6.1), and all that is said to a proxy.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for line in headers.get_all(header::CONNECTION) {
        let words = line.to_str().unwrap_or_default().split(',');
        named.extend(words.filter_map(|word| HeaderName::from_bytes(word.trim().as_bytes()).ok()));
    }
    let proxy = headers.keys().filter(|name| name.as_str().starts_with("proxy-"));
    named.extend(proxy.cloned());
    named.extend([
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("http2-settings"),
    ]);
    for name in named {
        headers.remove(name);
    }
}

/// True for a request to go on as a web socket: the only change of protocol that is passed on.
fn wants_web_socket(request: &hyper::Request<Incoming>) -> bool {
    let upgrade = request.headers().get(header::UPGRADE);
    request.method() == hyper::Method::GET
        && upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

impl Gate {
    /// Answers one request, whatever becomes of it.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        road: &Road,
        caller: &Caller,
        request: hyper::Request<Incoming>,
        seat: Seat,
    ) -> Response<Body> {
        match self.forward(road, caller, request, seat).await {
            Ok(response) => response,
            Err(refused) => refused.response(),
        }
    }

    async fn forward(
        self: &Arc<Self>,
        road: &Road,
        caller: &Caller,
        mut request: hyper::Request<Incoming>,
        seat: Seat,
    ) -> Result<Response<Body>, Refused> {
        let written = format!("{} {}", request.method(), request.uri());
        let url = match road.url_of(request.uri(), request.headers()) {
            Ok(url) => url,
            Err((code, why)) => return Err(self.channel.refuse(code, &written, &why).await),
        };
        if matches!(road, Road::Proxy) && url.host.to_string() == OWN_HOST {
            self.channel.last.gathered().await;
            return Ok(self.channel.last.answer(request.method(), &url.target()));
        }
        let Some(method) = Method::parse(request.method().as_str()) else {
            let why = "the method is none that rules know";
            return Err(self.channel.refuse(Code::MalformedRequest, &written, why).await);
        };
        let Ok(target) = url.target().parse::<Uri>() else {
            let why = "the path cannot be sent on";
            return Err(self.channel.refuse(Code::MalformedRequest, &written, why).await);
        };
        let web_socket = wants_web_socket(&request);
        let look = match self.secrets.look(&url, request.headers()) {
            Ok(look) => look,
            Err(why) => return Err(self.channel.refuse(Code::StandInMisused, &written, &why).await),
        };
        let asked = Request::new(self.channel.task(), Verb::Http(method), Resource::Url(url.clone()));
        let asked = look.told(asked);
        let reached = match road {
            Road::Proxy | Road::Straight { .. } | Road::Address { .. } => {
                self.reach(&url.host, url.port, &asked, caller).await?
            }
            Road::Loopback { port } => self.reach_loopback(*port, &asked, caller).await?,
        };
        let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let client = web_socket.then(|| (hyper::upgrade::on(&mut request), seat));
        let (mut head, body) = request.into_parts();
        strip_hop_by_hop(&mut head.headers);
        head.headers.remove(header::HOST);
        head.uri = target;
        head.version = hyper::Version::HTTP_11;
        head.extensions.clear();
        if let Ok(host) = HeaderValue::from_str(&url.host_header()) {
            head.headers.insert(header::HOST, host);
        }
        if chunked {
            head.headers.remove(header::CONTENT_LENGTH);
            head.headers
                .insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if web_socket {
            head.headers
                .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers
                .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        let put_in = self
            .secrets
            .put_in(&mut head, body, &url, &look, &reached.effect, web_socket)
            .await;
        let (body, expected) = match put_in {
            Ok(put_in) => put_in,
            Err(stopped) => return Err(self.stop(stopped, reached.effect, &asked, false).await),
        };
        let request = hyper::Request::from_parts(head, body);
        self.send(request, reached, client, &asked, expected).await
    }

    /// The loopback of the machine, under the one form of its address, then under its IPv6 form.
    async fn reach_loopback(&self, port: u16, asked: &Request, caller: &Caller) -> Result<Reached, Refused> {
        let localhost = Host::Name("localhost".into());
        self.reach(&localhost, port, asked, caller).await
    }

    /// Sends a request over a connection made for it, and passes the answer on as it comes.
    async fn send(
        self: &Arc<Self>,
        request: hyper::Request<Sent>,
        reached: Reached,
        client: Option<(OnUpgrade, Seat)>,
        asked: &Request,
        expected: Expected,
    ) -> Result<Response<Body>, Refused> {
        let meter = Meter::new();
        let Reached { stream, mut effect, .. } = reached;
        let server = Metered::new(stream, Arc::clone(&meter));
        let secured = match &asked.resource {
            Resource::Url(url) if url.scheme == Scheme::Https => Some(&url.host),
            _ => None,
        };
        let made = match secured {
            None => link(server, Arc::clone(&meter)).await,
            Some(host) => match self.upstream.connect(host, server).await {
                Ok(server) => link(server, Arc::clone(&meter)).await,
                Err(UpstreamFault { code, why }) => {
                    let id = effect.spent().decision();
                    effect.settle(false, why.as_str());
                    return Err(Refused::new(Refusal { id, code }, asked.to_string()).because(&why));
                }
            },
        };
        let mut sender = match made {
            Ok(sender) => sender,
            Err(fault) => return Err(broken(effect, asked, &fault)),
        };
        effect.begin();
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(_) if expected.was_misused() => return Err(self.stop(Stopped::misused(), effect, asked, true).await),
            Err(fault) => return Err(broken(effect, asked, &fault)),
        };
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let as_asked = response
                .headers()
                .get(header::UPGRADE)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
            return match client.filter(|_| as_asked) {
                Some((client, seat)) => Ok(switch(response, client, seat, effect, meter)),
                None => {
                    effect.settle(true, "the server changed the protocol unasked");
                    let why = "the server changed the protocol unasked";
                    Err(self
                        .channel
                        .refuse(Code::UpstreamUnreachable, &asked.to_string(), why)
                        .await)
                }
            };
        }
        let (mut head, body) = response.into_parts();
        strip_hop_by_hop(&mut head.headers);
        head.version = hyper::Version::HTTP_11;
        head.extensions.clear();
        let misuse = expected.misuse();
        let body = Streamed {
            body,
            effect: Some(effect),
            meter,
            status,
            end: "broken off by the client",
            misuse,
        };
        match self.secrets.receive(&mut head, body, expected).await {
            Ok(body) => Ok(Response::from_parts(head, body)),
            // The body has settled the effect.
            Err(Stopped { code, why }) => Err(self.channel.refuse(code, &asked.to_string(), &why).await),
        }
    }

    /// Refuses a request for its secret, and settles it.
    async fn stop(&self, stopped: Stopped, effect: Effect, asked: &Request, done: bool) -> Refused {
        let Stopped { code, why } = stopped;
        effect.settle(done, why.as_str());
        self.channel.refuse(code, &asked.to_string(), &why).await
    }
}

/// Speaks HTTP/1.1 over a stream to a server, until that ends or nothing has gone through it for too long.
async fn link<S>(server: S, meter: Arc<Meter>) -> hyper::Result<SendRequest<Sent>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper::client::conn::http1::Builder::new();
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
    Ok(sender)
}

/// Goes on as a web socket, passed on unread.
fn switch(
    mut response: Response<Incoming>,
    client: OnUpgrade,
    seat: Seat,
    effect: Effect,
    meter: Arc<Meter>,
) -> Response<Body> {
    let server = hyper::upgrade::on(&mut response);
    let mut headers = response.headers().clone();
    strip_hop_by_hop(&mut headers);
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    tokio::spawn(async move {
        if let (Ok(client), Ok(server)) = (client.await, server.await) {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            tokio::select! {
                // Both ends know how it ended; what counts here is how much went through.
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                () = meter.idle() => {}
            }
        }
        effect.settle(true, format!("web socket, {meter}"));
        drop(seat);
    });
    let mut answer = Response::new(whole(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}

/// What is said when the server takes the connection and then does not answer in HTTP.
fn broken(effect: Effect, asked: &Request, fault: &hyper::Error) -> Refused {
    let refusal = Refusal {
        id: effect.spent().decision(),
        code: Code::UpstreamUnreachable,
    };
    effect.settle(true, format!("no answer: {fault}"));
    Refused::new(refusal, asked.to_string())
}

/// An answer's body on its way through; settles the effect when it ends, however it ends.
struct Streamed {
    body: Incoming,
    effect: Option<Effect>,
    meter: Arc<Meter>,
    status: StatusCode,
    end: &'static str,
    /// Whether a stand-in in the request's body ended it, after the answer had begun.
    misuse: Arc<AtomicBool>,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(effect)) = (&polled, &mut self.effect) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            effect.received(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        match &polled {
            Poll::Ready(None) => self.end = "whole",
            Poll::Ready(Some(Err(_))) => self.end = "broken off by the server",
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.end = "whole",
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.end = "whole";
        }
        if let Some(effect) = self.effect.take() {
            let mut note = format!("status {}, {}, {}", self.status.as_u16(), self.meter, self.end);
            if self.misuse.load(Ordering::Relaxed) {
                note.push_str(", ended by a stand-in in the body");
            }
            effect.settle(true, note);
        }
    }
}
