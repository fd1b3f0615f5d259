//! Plain HTTP: each request is brought to one form, asked about, and sent on in that form.
//!
//! Promises: P1 (a permit for each request, also on a kept-open connection and after a redirect), P5 (the host of the
//! request line and of the Host line are one; the path that was decided about is the path that is sent), P4.
//! Trust: the request is the agent's; the answer is whoever serves it. Framing is hyper's, which writes every message
//! anew, so that nothing in a head or a body is read as another request by the server.
//! See: RFC 9110 section 7.6 (what a proxy passes on), RFC 9112 sections 3.2 and 6.3.

use std::sync::Arc;

use bailiwick_gate::Refusal;
use bailiwick_line::Effect;
use bailiwick_model::{Argument, Code, DecisionId, Host, Method, Request, Resource, Verb, argument};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::bodies::{Broken, Sent};
use crate::caller::Caller;
use crate::dial::{Asked, Gate, Reached};
use crate::exchange::{Download, Passing, Tally, Upload};
use crate::heads;
use crate::last::{Last, OWN_HOST};
use crate::limits;
use crate::links::{After, Destination, Link, Unsent};
use crate::push::{self, Received};
use crate::refusal::Refused;
use crate::road::Road;
use crate::secrets::{Expected, Stopped};
use crate::serve::Seat;
use crate::tunnel::{Meter, Metered};
use crate::upstream::UpstreamFault;

/// Most bytes that are said about a question at once.
const MAX_WORDS: usize = 4096;

/// The body of an answer.
pub(crate) type Body = BoxBody<Bytes, Broken>;

/// A body that is there already.
pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
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
        let (head, body) = request.into_parts();
        // Who waits to be told to go on has not begun its body, and is not to.
        let waits = head.headers.contains_key(header::EXPECT);
        let request = hyper::Request::from_parts(head, ());
        let mut body = Some(Received::from(body));
        match self.forward(road, caller, request, &mut body, seat).await {
            Ok(response) => response,
            Err(refused) => {
                // Some clients take an answer that comes before their body was read for a fault.
                if let Some(body) = body.filter(|_| !waits) {
                    read_away(body).await;
                }
                refused.response()
            }
        }
    }

    /// Passes on what the agent has to say about a question.
    async fn tell(&self, question: DecisionId, body: Option<Received>) -> Response<Body> {
        let body = match body {
            Some(body) => Limited::new(body, MAX_WORDS).collect().await.ok(),
            None => None,
        };
        let words = body.and_then(|body| String::from_utf8(body.to_bytes().to_vec()).ok());
        let mut response = Response::new(whole("said; a person who is asked sees it as your words\n"));
        match words.filter(|words| !words.trim().is_empty()) {
            Some(words) => self.channel.tell(question, words),
            None => {
                response = Response::new(whole("nothing was said: text is wanted, at most 4096 bytes\n"));
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
        }
        response
    }

    async fn forward(
        self: &Arc<Self>,
        road: &Road,
        caller: &Caller,
        mut request: hyper::Request<()>,
        body: &mut Option<Received>,
        seat: Seat,
    ) -> Result<Response<Body>, Refused> {
        let written = |request: &hyper::Request<()>| format!("{} {}", request.method(), request.uri());
        let url = match road.url_of(request.version(), request.uri(), request.headers()) {
            Ok(url) => url,
            Err((code, why)) => return Err(self.channel.refuse(code, &written(&request), &why).await),
        };
        if matches!(road, Road::Proxy) && matches!(&url.host, Host::Name(name) if name == OWN_HOST) {
            self.channel.last.gathered().await;
            if let Some(question) = Last::told_of(request.method(), &url.target()) {
                return Ok(self.tell(question, body.take()).await);
            }
            return Ok(self.channel.last.answer(request.method(), &url.target()));
        }
        let Some(method) = Method::parse(request.method().as_str()) else {
            let why = "the method is none that rules know";
            return Err(self
                .channel
                .refuse(Code::MalformedRequest, &written(&request), why)
                .await);
        };
        let Ok(target) = url.target().parse::<Uri>() else {
            let why = "the path cannot be sent on";
            return Err(self
                .channel
                .refuse(Code::MalformedRequest, &written(&request), why)
                .await);
        };
        let web_socket = heads::wants_web_socket(&request);
        let look = match self.secrets.look(&url, request.headers()) {
            Ok(look) => look,
            Err(why) => {
                let act = format!("{} {url}", request.method());
                return Err(self.channel.refuse(Code::StandInMisused, &act, &why).await);
            }
        };
        let asked = Request::new(self.channel.task(), Verb::Http(method), Resource::Url(url.clone()));
        let asked = match describe(asked, request.headers()) {
            Ok(asked) => look.told(without_body(
                asked,
                body.as_ref().is_none_or(|body| body.is_end_stream()),
            )),
            Err(why) => {
                return Err(self
                    .channel
                    .refuse(Code::MalformedRequest, &written(&request), why)
                    .await);
            }
        };
        let asked = match body.as_mut().filter(|_| push::is_push(&url, request.headers())) {
            Some(body) => with_references(asked, push::references(body).await),
            None => asked,
        };
        let many = request.version() == Version::HTTP_2 && !web_socket;
        let wanted = Asked {
            scheme: url.scheme,
            many,
        };
        let reached = match road {
            Road::Proxy | Road::Straight { .. } | Road::Address { .. } => {
                self.reach(&url.host, url.port, &asked, caller, wanted).await?
            }
            // The loopback of the machine, under the one form of its address, then under its IPv6 form.
            Road::Loopback { port } => {
                let localhost = Host::Name("localhost".into());
                self.reach(&localhost, *port, &asked, caller, wanted).await?
            }
        };
        let client = web_socket.then(|| (hyper::upgrade::on(&mut request), seat));
        let (mut head, ()) = request.into_parts();
        let against = body
            .as_ref()
            .and_then(|body| reached.bounds.against(&head.headers, body));
        if let Some(why) = against {
            let id = reached.effect.spent().decision();
            reached.effect.settle(false, why.as_str());
            let code = Code::LimitReached;
            return Err(Refused::new(Refusal::new(id, code), asked.to_string()).because(&why));
        }
        let Some(body) = body.take() else {
            return Err(Refused::unavailable(asked.to_string()));
        };
        let open_ended = !body.is_end_stream() && !head.headers.contains_key(header::CONTENT_LENGTH);
        let chunked = head.headers.contains_key(header::TRANSFER_ENCODING) || open_ended;
        heads::for_server(&mut head.headers);
        head.uri = target;
        head.version = Version::HTTP_11;
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
            heads::ask_for_web_socket(&mut head.headers);
        }
        let put_in = tokio::select! {
            biased;
            put_in = self.secrets.put_in(&mut head, body, &url, &look, &reached.effect, web_socket) => put_in,
            () = reached.effect.cut().off() => Err(Stopped::revoked()),
        };
        let (body, expected) = match put_in {
            Ok(put_in) => put_in,
            Err(stopped) => return Err(self.stop(stopped, reached.effect, &asked, false).await),
        };
        let request = hyper::Request::from_parts(head, body);
        self.send(request, reached, client, &asked, expected).await
    }

    /// Sends a request over the connection that was reached, and passes the answer on as it comes.
    async fn send(
        self: &Arc<Self>,
        request: hyper::Request<Sent>,
        reached: Reached<Link>,
        client: Option<(OnUpgrade, Seat)>,
        asked: &Request,
        expected: Expected,
    ) -> Result<Response<Body>, Refused> {
        let Reached {
            way: link,
            to,
            mut effect,
            bounds,
            ..
        } = reached;
        let tally = Arc::<Tally>::default();
        let cut = Arc::clone(effect.cut());
        let request = request.map(|body| Upload::new(body, &bounds, Arc::clone(&tally), Arc::clone(&cut)).boxed());
        let deadline = bounds.deadline();
        effect.begin();
        let sent = tokio::select! {
            biased;
            sent = self.sent(request, link, &to, deadline) => sent,
            () = cut.off() => Err(NoAnswer::Revoked),
        };
        let (response, after) = match sent {
            Ok(sent) => sent,
            Err(_) if expected.was_misused() => return Err(self.stop(Stopped::misused(), effect, asked, true).await),
            Err(NoAnswer::Unreached(UpstreamFault { code, why })) => {
                let id = effect.spent().decision();
                effect.settle(false, why.as_str());
                return Err(Refused::new(Refusal::new(id, code), asked.to_string()));
            }
            Err(NoAnswer::Revoked) => return Err(revoked(effect, asked)),
            Err(NoAnswer::Broken(_)) if cut.is_cut() => return Err(revoked(effect, asked)),
            Err(NoAnswer::Late) => return Err(past(effect, asked, "no answer in the time that it may take")),
            Err(NoAnswer::Broken(_)) if tally.is_over() => {
                return Err(past(effect, asked, "the body is longer than it may be"));
            }
            Err(NoAnswer::Broken(fault)) => return Err(broken(effect, asked, &fault)),
        };
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return match client.filter(|_| heads::is_web_socket(response.headers())) {
                Some((client, seat)) => Ok(switch(response, client, seat, effect)),
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
        heads::for_client(&mut head.headers);
        head.version = Version::HTTP_11;
        head.extensions.clear();
        if let Some(why) = bounds.against_answer(&body) {
            return Err(past(effect, asked, &why));
        }
        let misuse = expected.misuse();
        let passing = Passing {
            bounds: &bounds,
            deadline,
            tally,
            misuse,
        };
        let body = Download::new(status, body, effect, after, passing);
        match self.secrets.receive(&mut head, body, expected).await {
            Ok(body) => Ok(Response::from_parts(head, body)),
            // The body has settled the effect.
            Err(Stopped { code, why }) => Err(self.channel.refuse(code, &asked.to_string(), &why).await),
        }
    }

    /// Sends a request; once more, over a connection made for it, where a kept one turns out to be closed and nothing was
    /// sent.
    async fn sent(
        &self,
        request: hyper::Request<Sent>,
        link: Link,
        to: &Destination,
        deadline: Option<Instant>,
    ) -> Result<(Response<Incoming>, After), NoAnswer> {
        let twice = async {
            let used = link.used;
            match link.send(&self.links, to, request).await {
                Ok(sent) => Ok(sent),
                Err(Unsent {
                    request: Some(request), ..
                }) if used => {
                    let link = self.fresh(to).await.map_err(NoAnswer::Unreached)?;
                    let again = link.send(&self.links, to, *request).await;
                    again.map_err(|unsent| NoAnswer::Broken(unsent.fault))
                }
                Err(Unsent { fault, .. }) => Err(NoAnswer::Broken(fault)),
            }
        };
        match deadline {
            None => twice.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, twice).await {
                Ok(sent) => sent,
                Err(_) => Err(NoAnswer::Late),
            },
        }
    }

    /// Refuses a request for its secret, and settles it.
    async fn stop(&self, stopped: Stopped, effect: Effect, asked: &Request, done: bool) -> Refused {
        let Stopped { code, why } = stopped;
        effect.settle(done, why.as_str());
        self.channel.refuse(code, &asked.to_string(), &why).await
    }
}

/// Reads what is left of a body that goes nowhere, as far as it is short and comes soon.
async fn read_away(mut body: Received) {
    let reading = async {
        let mut left = limits::READ_AWAY;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(limits::READ_AWAY_TIME, reading).await;
}

/// Why a request that was allowed has no answer.
enum NoAnswer {
    /// The kept connection was closed, and no other came about.
    Unreached(UpstreamFault),
    /// What allowed the request was revoked.
    Revoked,
    /// It did not come in the time that it may take.
    Late,
    /// The server, or the request's body, broke off.
    Broken(hyper::Error),
}

/// What rules may ask about a request besides its URL.
fn describe(mut asked: Request, headers: &HeaderMap) -> Result<Request, &'static str> {
    let only = |name: &HeaderName| {
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some(line), None) => line.to_str().map(Some).map_err(|_| "a line of the head is not text"),
            (Some(_), Some(_)) => Err("a line of the head that says one thing stands twice"),
        }
    };
    if let Some(line) = only(&header::CONTENT_TYPE)? {
        let name = argument::CONTENT_TYPE.to_owned();
        asked.arguments.insert(name, Argument::Text(line.to_owned()));
    }
    // With a transfer coding, what is said about the length does not count (RFC 9112, section 6.3).
    if !headers.contains_key(header::TRANSFER_ENCODING)
        && let Some(line) = only(&header::CONTENT_LENGTH)?
    {
        let length = line.parse().map_err(|_| "the length of the body is no number")?;
        let name = argument::CONTENT_LENGTH.to_owned();
        asked.arguments.insert(name, Argument::Whole(length));
    }
    Ok(asked)
}

/// Says what a push changes, where that could be read.
fn with_references(mut asked: Request, names: Option<String>) -> Request {
    if let Some(names) = names {
        asked
            .arguments
            .insert(argument::REFERENCES.into(), Argument::Text(names));
    }
    asked
}

/// Tells that a request which says no length has no body. Of a method that changes nothing that is taken for granted.
fn without_body(mut asked: Request, is_empty: bool) -> Request {
    if is_empty && matches!(&asked.verb, Verb::Http(method) if !method.is_safe()) {
        let length = asked.arguments.entry(argument::CONTENT_LENGTH.to_owned());
        length.or_insert(Argument::Whole(0));
    }
    asked
}

/// Refuses, or gives up, what passes a bound of its permit.
fn past(effect: Effect, asked: &Request, why: &str) -> Refused {
    let refusal = Refusal::new(effect.spent().decision(), Code::LimitReached);
    effect.settle(true, why);
    Refused::new(refusal, asked.to_string()).because(why)
}

/// Refuses a request that was under way when what allowed it was revoked.
fn revoked(effect: Effect, asked: &Request) -> Refused {
    let refusal = Refusal {
        arguments: Vec::new(),
        id: effect.spent().decision(),
        code: Code::PermitRefused,
        word: None,
    };
    effect.settle(true, "no answer");
    Refused::new(refusal, asked.to_string())
}

/// Goes on as a web socket, passed on unread.
fn switch(mut response: Response<Incoming>, client: OnUpgrade, seat: Seat, effect: Effect) -> Response<Body> {
    let server = hyper::upgrade::on(&mut response);
    let mut headers = response.headers().clone();
    heads::for_client(&mut headers);
    heads::ask_for_web_socket(&mut headers);
    tokio::spawn(async move {
        let meter = Meter::new();
        if let (Ok(client), Ok(server)) = (client.await, server.await) {
            let mut client = TokioIo::new(client);
            let mut server = Metered::new(TokioIo::new(server), Arc::clone(&meter));
            tokio::select! {
                // Both ends know how it ended; what counts here is how much went through.
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                () = meter.idle() => {}
                () = effect.cut().off() => {}
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
    let refusal = Refusal::new(effect.spent().decision(), Code::UpstreamUnreachable);
    effect.settle(true, format!("no answer: {fault}"));
    Refused::new(refusal, asked.to_string())
}
