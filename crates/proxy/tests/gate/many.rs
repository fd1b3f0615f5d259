//! HTTP/2 on both sides of the gate.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bailiwick_model::{Code, Request, Verb};
use bailiwick_testkit::Root;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

use crate::world::{Say, Seen, World};

type Body = BoxBody<Bytes, Infallible>;

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

/// A body that is fed piece by piece.
struct Fed(mpsc::UnboundedReceiver<Frame<Bytes>>);

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn fed() -> (mpsc::UnboundedSender<Frame<Bytes>>, Body) {
    let (feed, fed) = mpsc::unbounded_channel();
    (feed, Fed(fed).boxed())
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// A server of HTTP/2 over TLS, and how many connections came.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<String>>>,
}

async fn serve(
    heard: Arc<Mutex<Vec<String>>>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    assert_eq!(request.version(), Version::HTTP_2);
    let line = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        request.headers().get("te")
    );
    heard.lock().unwrap().push(line);
    match request.uri().path() {
        // Sends each piece back as it comes, and trailers at the end.
        "/echo" => {
            let (feed, body) = fed();
            tokio::spawn(async move {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    let _ = feed.send(frame);
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                let _ = feed.send(Frame::trailers(trailers));
            });
            Ok(Response::new(body))
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(Response::new(full("slow")))
        }
        path => {
            let path = path.to_owned();
            let length = request.into_body().collect().await.unwrap().to_bytes().len();
            Ok(Response::new(full(format!("{path} reached with {length}"))))
        }
    }
}

impl Server {
    fn start(root: &Root, name: &str, protocols: &'static [&'static [u8]]) -> Self {
        let mut config = rustls::ServerConfig::clone(&root.serving(&[name]));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, heard) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<String>>>::default());
        let (counted, kept) = (Arc::clone(&connections), Arc::clone(&heard));
        std::thread::spawn(move || {
            block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (acceptor, heard) = (acceptor.clone(), Arc::clone(&kept));
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else {
                            return;
                        };
                        let service = service_fn(move |request| serve(Arc::clone(&heard), request));
                        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Self {
            port,
            connections,
            heard,
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        tokio::time::timeout(crate::world::PATIENCE, future)
            .await
            .expect("it ends in time")
    })
}

/// TLS to a host through the gate, for these protocols.
async fn tls(world: &World, host: &str, port: u16, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
    let proxy: SocketAddr = world.addresses[0];
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"));
    let mut config = crate::tls::believing(world.believed());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(host.to_owned()).unwrap();
    connector.connect(name, stream).await.unwrap()
}

/// A client of HTTP/2 through the gate.
async fn client(world: &World, host: &str, port: u16) -> SendRequest<Body> {
    let stream = tls(world, host, port, &[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn get(port: u16, path: &str) -> hyper::Request<Body> {
    let url = format!("https://a.test:{port}{path}");
    hyper::Request::get(url).body(full("")).unwrap()
}

fn but_secrets(request: &Request) -> Say {
    if request.to_string().contains("secret") {
        Say::Deny(Code::NoRule)
    } else {
        Say::Allow
    }
}

#[test]
fn p1_each_request_on_http_2_is_asked_about() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2", b"http/1.1"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, but_secrets);
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        let paths = ["/x", "/y/../secret", "/%7Ez", "/secret"];
        let asked = paths.map(|path| client.send_request(get(port, path)));
        let mut said = Vec::new();
        for answer in asked {
            let answer = answer.await.unwrap();
            said.push((answer.status().as_u16(), text(answer).await));
        }
        assert_eq!(said[0], (200, "/x reached with 0".into()));
        assert_eq!(said[2], (200, "/~z reached with 0".into()));
        for refused in [&said[1], &said[3]] {
            assert_eq!(refused.0, 403);
            assert!(
                refused.1.starts_with("bailiwick refused GET https://a.test"),
                "{refused:?}"
            );
        }
        let posted = hyper::Request::post(format!("https://a.test:{port}/post"));
        let posted = client.send_request(posted.body(full("12345")).unwrap()).await.unwrap();
        assert_eq!(text(posted).await, "/post reached with 5");
    });
    assert_eq!(
        server.connections.load(Ordering::SeqCst),
        1,
        "one connection carries them all"
    );
    let heard = server.heard.lock().unwrap().clone();
    assert_eq!(heard[0], format!("GET https://a.test:{port}/x None"));
    assert_eq!(heard.len(), 3);
}

#[test]
fn c032_every_spelling_of_a_path_is_judged_on_http_2_too() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, move |request| {
        let act = request.to_string();
        if request.verb == Verb::Resolve || act.starts_with(&format!("GET https://a.test:{port}/public/")) {
            Say::Allow
        } else {
            Say::Deny(Code::NoRule)
        }
    });
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        for path in crate::tls::SPELLINGS {
            // What the library of this test cannot send, others can; the gate reads it with the same parser.
            let Ok(uri) = format!("https://a.test:{port}{path}").parse::<hyper::Uri>() else {
                continue;
            };
            let request = hyper::Request::get(uri).body(full("")).unwrap();
            let status = client.send_request(request).await.unwrap().status().as_u16();
            assert!(matches!(status, 400 | 403), "{path}: {status}");
        }
        let good = client.send_request(get(port, "/public/a")).await.unwrap();
        assert_eq!(good.status(), 200);
    });
    assert_eq!(server.heard.lock().unwrap().len(), 1);
}

#[test]
fn a_refusal_comes_after_the_body_so_that_no_client_takes_it_for_a_fault() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, but_secrets);
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        for _ in 0..20 {
            let request = hyper::Request::post(format!("https://a.test:{port}/secret"));
            let (feed, body) = fed();
            let answer = client.send_request(request.body(body).unwrap());
            feed.send(data("piece")).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(feed.send(data("piece")).is_ok());
            drop(feed);
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 403);
            assert!(text(answer).await.contains("bailiwick refused POST"));
        }
    });
}

#[test]
fn c034_another_authority_inside_the_connection_is_refused() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}"), format!("b.test:{port}")], &root, |_| {
        Say::Allow
    });
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        for url in [
            format!("https://b.test:{port}/x"),
            "https://a.test/x".into(),
            format!("http://a.test:{port}/x"),
        ] {
            let request = hyper::Request::get(url.as_str()).body(full("")).unwrap();
            let answer = client.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 400, "{url}");
        }
        let request = hyper::Request::get(format!("https://a.test:{port}/x")).header("host", format!("b.test:{port}"));
        let answer = client.send_request(request.body(full("")).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 400);
        // A tunnel, and a web socket by extended CONNECT, which is not offered.
        let request = hyper::Request::connect(format!("a.test:{port}"))
            .body(full(""))
            .unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 400);
        let mut request = hyper::Request::connect(format!("https://a.test:{port}/ws"))
            .body(full(""))
            .unwrap();
        request
            .extensions_mut()
            .insert(hyper::ext::Protocol::from_static("websocket"));
        let refused = client.send_request(request).await;
        assert!(refused.is_err() || refused.unwrap().status() == 400);
    });
    assert!(server.heard.lock().unwrap().is_empty(), "{:?}", server.heard);
}

#[test]
fn c076_streams_of_grpc_pass_piece_by_piece_with_their_trailers() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, |_| Say::Allow);
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        let (feed, body) = fed();
        let request = hyper::Request::post(format!("https://a.test:{port}/echo"))
            .header("te", "trailers")
            .header("content-type", "application/grpc");
        let mut answer = client.send_request(request.body(body).unwrap()).await.unwrap();
        for piece in ["one", "two", "three"] {
            feed.send(data(piece)).unwrap();
            let got = answer.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(got.data_ref().unwrap(), piece, "each piece before the next is sent");
        }
        drop(feed);
        let last = answer.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(last.trailers_ref().unwrap().get("grpc-status").unwrap(), "0");
    });
    assert!(server.heard.lock().unwrap()[0].ends_with("Some(\"trailers\")"));
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note == "status 200, 11 bytes sent, 11 received, whole"),
    );
}

#[test]
fn what_comes_at_once_shares_a_connection_and_does_not_wait_for_each_other() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, |_| Say::Allow);
    let begun = std::time::Instant::now();
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        let all: Vec<_> = (0..40).map(|_| client.send_request(get(port, "/slow"))).collect();
        for answer in all {
            assert_eq!(text(answer.await.unwrap()).await, "slow");
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_client_of_http_2_gets_what_a_server_of_http_1_says() {
    let root = Root::new();
    let old = bailiwick_testkit::Origin::over_tls(&root, &["a.test"], |heard| {
        bailiwick_testkit::Answer::text(
            200,
            format!("{} {} {:?}", heard.method, heard.text(), heard.header("cookie")),
        )
        .with_header("alt-svc", "h3=\":443\"")
    });
    let port = old.port();
    let world = World::opening(&[format!("a.test:{port}")], &root, |_| Say::Allow);
    block_on(async {
        let mut client = client(&world, "a.test", port).await;
        let (feed, body) = fed();
        feed.send(data("in ")).unwrap();
        feed.send(data("pieces")).unwrap();
        drop(feed);
        let request = hyper::Request::put(format!("https://a.test:{port}/x"))
            .header("cookie", "a=1")
            .header("cookie", "b=2");
        let answer = client.send_request(request.body(body).unwrap()).await.unwrap();
        assert!(answer.headers().get("alt-svc").is_none());
        assert_eq!(text(answer).await, "PUT in pieces Some(\"a=1; b=2\")");
    });
    let heard = old.requests().remove(0);
    assert_eq!(heard.header("host"), Some(format!("a.test:{port}").as_str()));
    // A client that speaks HTTP/1.1 is not served by HTTP/2, so that its server sees what it sends.
    let new = Server::start(&root, "a.test", &[b"h2"]);
    let world = World::opening(&[format!("a.test:{}", new.port)], &root, |_| Say::Allow);
    let answer = crate::tls::get(&world, "a.test", new.port, "/x");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[test]
fn p4_a_flood_of_resets_or_of_heads_ends_the_connection() {
    let root = Root::new();
    let server = Server::start(&root, "a.test", &[b"h2"]);
    let port = server.port;
    let world = World::opening(&[format!("a.test:{port}")], &root, |request| match request.verb {
        Verb::Resolve => Say::Allow,
        _ => Say::Silence,
    });
    block_on(async {
        // Streams that are opened and reset at once (rapid reset), by hand.
        let mut stream = tls(&world, "a.test", port, &[b"h2"]).await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        // `GET https://a/`, out of the static table but for the authority.
        let block = [0x82, 0x87, 0x84, 0x41, 0x01, b'a'];
        for number in 0..5000u32 {
            let id = (number * 2 + 1).to_be_bytes();
            let mut frames = vec![0, 0, 6, 1, 5];
            frames.extend(id);
            frames.extend(block);
            frames.extend([0, 0, 4, 3, 0]);
            frames.extend(id);
            frames.extend([0, 0, 0, 8]);
            if stream.write_all(&frames).await.is_err() {
                break;
            }
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        // A GOAWAY frame is the last thing that is said: ENHANCE_YOUR_CALM.
        assert!(rest.windows(4).any(|part| part == [0, 0, 0, 0x0b]), "{rest:?}");
        // A head that never ends, in CONTINUATION frames.
        let mut stream = tls(&world, "a.test", port, &[b"h2"]).await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        stream.write_all(&[0, 0, 6, 1, 1, 0, 0, 0, 1]).await.unwrap();
        stream.write_all(&block).await.unwrap();
        let mut line = vec![0x40, 1, b'x', 0x7f, 0x81, 0x1e];
        line.extend(vec![b'y'; 4000]);
        let mut sent = 0usize;
        for _ in 0..10_000 {
            let length = u32::try_from(line.len()).unwrap().to_be_bytes();
            let head = [length[1], length[2], length[3], 9, 0, 0, 0, 0, 1];
            if stream.write_all(&head).await.is_err() || stream.write_all(&line).await.is_err() {
                break;
            }
            sent += line.len();
        }
        assert!(sent < 8 * 1024 * 1024, "{sent} bytes of one head");
    });
    assert!(server.heard.lock().unwrap().is_empty());
    world.wait_for(
        "the flood on record",
        |seen| matches!(seen, Seen::Refused(Code::MalformedRequest, what) if what.starts_with("an HTTP/2 connection")),
    );
}
