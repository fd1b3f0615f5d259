use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_model::{Code, Request, Verb};
use bailiwick_testkit::{Answer, Origin, Root};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::world::{Say, Seen, World, read_head, tunnel};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// What a client is set up with that believes one root.
pub fn believing(believed: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(believed.as_bytes()).unwrap())
        .unwrap();
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A client that believes one root, on a stream that is ready for its greeting.
pub fn client(stream: TcpStream, believed: &str, name: &str) -> Tls {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let config = Arc::new(believing(believed));
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream)
}

/// What comes until the other end closes, or breaks off.
fn rest(stream: &mut Tls) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One exchange in a tunnel through the proxy.
fn exchange(world: &World, host: &str, port: u16, text: &str) -> String {
    let (head, stream) = tunnel(world, &format!("{host}:{port}"));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut stream = client(stream, world.believed(), host);
    let text = text.replace("HOST", &format!("{host}:{port}"));
    stream.write_all(text.as_bytes()).unwrap();
    rest(&mut stream)
}

pub fn get(world: &World, host: &str, port: u16, path: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n");
    exchange(world, host, port, &text)
}

fn origin(root: &Root, name: &str) -> Origin {
    Origin::over_tls(root, &[name], |heard| {
        Answer::text(200, format!("{} reached", heard.target))
    })
}

/// Allows `GET` of one URL prefix, and what leads there.
fn only(prefix: String) -> impl Fn(&Request) -> Say + Send + 'static {
    move |request| {
        let act = request.to_string();
        if request.verb == Verb::Resolve || act.starts_with(&format!("GET {prefix}")) {
            Say::Allow
        } else {
            Say::Deny(Code::NoRule)
        }
    }
}

#[test]
fn p1_each_request_inside_tls_is_asked_by_method_and_path() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let opened = [format!("api.test:{port}")];
    let world = World::opening(&opened, &root, only(format!("https://api.test:{port}/v1/")));
    let good = get(&world, "api.test", port, "/v1/%61?q=1");
    assert!(good.starts_with("HTTP/1.1 200 OK"), "{good}");
    assert!(good.ends_with("/v1/a?q=1 reached"), "{good}");
    let seen = world.seen();
    assert_eq!(seen[0], Seen::Asked("resolve api.test".into(), None));
    let loopback = "127.0.0.1".parse().ok();
    let asked = Seen::Asked(format!("GET https://api.test:{port}/v1/a?q=1"), loopback);
    assert_eq!(seen[2], asked);
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note.starts_with("status 200")),
    );
    for (method, path) in [("GET", "/v2/x"), ("POST", "/v1/a"), ("GET", "/v1/../v2/x")] {
        let text = format!("{method} {path} HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let refused = exchange(&world, "api.test", port, &text);
        assert!(refused.starts_with("HTTP/1.1 403"), "{method} {path}: {refused}");
        assert!(refused.contains("bailiwick-code: no-rule"), "{refused}");
    }
    let kept = "GET /v2/y HTTP/1.1\r\nhost: HOST\r\n\r\nGET /v1/z HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n";
    let both = exchange(&world, "api.test", port, kept);
    assert!(
        both.contains("bailiwick-code: no-rule") && both.ends_with("/v1/z reached"),
        "{both}"
    );
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(
        origin.requests()[0].header("host"),
        Some(format!("api.test:{port}").as_str())
    );
    assert!(!world.asked().iter().any(|act| act.starts_with("tunnel")));
}

#[test]
fn p5_programs_that_know_no_proxy_are_served_the_same() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let opened = [format!("api.test:{port}")];
    let world = World::opening(&opened, &root, only(format!("https://api.test:{port}/v1/")));
    let stream = world.elsewhere(1, ([93, 184, 215, 14], port).into());
    let mut stream = client(stream, world.believed(), "api.test");
    let request = format!("GET /v1/x HTTP/1.1\r\nhost: api.test:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let answer = rest(&mut stream);
    assert!(answer.ends_with("/v1/x reached"), "{answer}");
    // Some connect long before they greet.
    let stream = world.elsewhere(1, ([93, 184, 215, 14], port).into());
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut stream = client(stream, world.believed(), "api.test");
    stream.write_all(request.as_bytes()).unwrap();
    assert!(rest(&mut stream).ends_with("/v1/x reached"));
    // A host that is not opened is a tunnel, as ever.
    let stream = world.elsewhere(1, ([93, 184, 215, 14], port).into());
    let mut stream = client(stream, world.believed(), "other.test");
    assert!(stream.write_all(b"GET").is_err());
    assert!(
        world.asked().contains(&"resolve other.test".into()),
        "{:?}",
        world.asked()
    );
    assert!(
        world.asked().contains(&format!("tunnel other.test:{port}"))
            || world.zone.asked.lock().unwrap().contains(&"other.test".into())
    );
}

#[test]
fn c034_one_name_from_connect_greeting_and_host_line() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let opened = [format!("api.test:{port}"), format!("other.test:{port}")];
    let world = World::opening(&opened, &root, |_| Say::Allow);
    for line in [
        "host: other.test:PORT",
        "host: api.test",
        "host: api.test:PORT\r\nhost: api.test:PORT",
        "host: api.test:PORT\r\nhost: other.test:PORT",
        "host: user@api.test:PORT",
        "x: y",
    ] {
        let line = line.replace("PORT", &port.to_string());
        let text = format!("GET / HTTP/1.1\r\n{line}\r\nconnection: close\r\n\r\n");
        let answer = exchange(&world, "api.test", port, &text);
        assert!(answer.starts_with("HTTP/1.1 400"), "{line}: {answer}");
    }
    for target in [
        "http://api.test:PORT/",
        "https://other.test:PORT/",
        "https://api.test/",
        "//x",
        "*",
    ] {
        let target = target.replace("PORT", &port.to_string());
        let text = format!("GET {target} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n");
        let answer = exchange(&world, "api.test", port, &text);
        assert!(answer.starts_with("HTTP/1.1 400"), "{target}: {answer}");
    }
    let inner = format!("CONNECT api.test:{port} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n");
    let answer = exchange(&world, "api.test", port, &inner);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    // The greeting names another host than CONNECT does.
    let (_, stream) = tunnel(&world, &format!("api.test:{port}"));
    let mut stream = client(stream, world.believed(), "other.test");
    let fault = stream.write_all(b"GET").unwrap_err().to_string();
    assert!(
        fault.contains("UnrecognisedName") || fault.contains("unrecognized"),
        "{fault}"
    );
    world.wait_for("the refusal", |seen| {
        matches!(seen, Seen::Refused(Code::NameMismatch, what) if what.starts_with(&format!("TLS to api.test:{port}")))
    });
    assert_eq!(world.asked(), Vec::<String>::new());
}

#[test]
fn p5_a_server_whose_certificate_is_not_to_be_believed_gets_no_byte() {
    let (root, other) = (Root::new(), Root::new());
    let (strange, wrong) = (origin(&other, "api.test"), origin(&root, "else.test"));
    let ports = [strange.port(), wrong.port()];
    let opened = ports.map(|port| format!("api.test:{port}"));
    let world = World::opening(&opened, &root, |_| Say::Allow);
    for port in ports {
        let answer = get(&world, "api.test", port, "/secret");
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("bailiwick-code: upstream-untrusted"), "{answer}");
        assert!(answer.contains("invalid peer certificate"), "{answer}");
    }
    assert!(strange.requests().is_empty() && wrong.requests().is_empty());
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(false, note) if note.contains("invalid peer certificate")),
    );
}

#[test]
fn p10_a_client_that_does_not_believe_the_authority_is_on_record() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let world = World::opening(&[format!("api.test:{port}")], &root, |_| Say::Allow);
    let (_, stream) = tunnel(&world, &format!("api.test:{port}"));
    // It believes the server's own root, as a client that pins would.
    let mut stream = client(stream, root.pem(), "api.test");
    assert!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err());
    world.wait_for(
        "the refusal",
        |seen| matches!(seen, Seen::Refused(Code::CertificateNotAccepted, what) if what.contains("UnknownCA")),
    );
    // One that goes away when it sees the certificate.
    let (_, mut stream) = tunnel(&world, &format!("api.test:{port}"));
    stream.write_all(&crate::world::client_hello(Some("api.test"))).unwrap();
    stream.read_exact(&mut [0u8; 100]).unwrap();
    drop(stream);
    world.wait_for(
        "the going",
        |seen| matches!(seen, Seen::Refused(Code::CertificateNotAccepted, what) if what.contains("went away")),
    );
    assert!(world.asked().is_empty() && origin.requests().is_empty());
}

#[test]
fn p1_bytes_that_are_no_tls_go_nowhere() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let world = World::opening(&[format!("api.test:{port}")], &root, |_| Say::Allow);
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"GET / HTTP/1.1\r\nhost: api.test\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
    ] {
        let (head, mut stream) = tunnel(&world, &format!("api.test:{port}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream.write_all(bytes).unwrap();
        assert_eq!(read_head(&mut stream), "");
        world.wait_for("the refusal", |seen| {
            matches!(seen, Seen::Refused(Code::NotTls, what) if what.starts_with(&format!("TLS to api.test:{port}")))
        });
        world.log.lock().unwrap().clear();
    }
    assert!(origin.requests().is_empty());
    // A connection that is left without a word asks for nothing.
    drop(tunnel(&world, &format!("api.test:{port}")));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(world.seen(), []);
}

/// The spellings by which a path rule was dodged elsewhere.
pub const SPELLINGS: [&str; 8] = [
    "/public/../admin",
    "/public/%2e%2e/admin",
    "/public/..;x/admin",
    "/public/..%2fadmin",
    "//admin",
    "/public/%252e%252e/admin",
    "/admin",
    "/public/..\\admin",
];

#[test]
fn c032_every_request_inside_tls_is_judged_by_the_path_that_is_sent() {
    let root = Root::new();
    let origin = origin(&root, "data.test");
    let port = origin.port();
    let opened = [format!("data.test:{port}")];
    let world = World::opening(&opened, &root, only(format!("https://data.test:{port}/public/")));
    for path in SPELLINGS {
        let said = get(&world, "data.test", port, path);
        assert!(said.starts_with("HTTP/1.1 40"), "{path}: {said}");
    }
    // As the second request on a kept-open connection, too.
    let both = "GET /public/a HTTP/1.1\r\nhost: HOST\r\n\r\nPOST /public/x HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let said = exchange(&world, "data.test", port, both);
    assert!(
        said.contains("/public/a reached") && said.contains("403 Forbidden"),
        "{said}"
    );
    let heard: Vec<String> = origin.requests().into_iter().map(|heard| heard.target).collect();
    assert_eq!(heard, ["/public/a"]);
}

#[test]
fn c034_a_greeting_without_a_name_is_refused_for_a_name() {
    let root = Root::new();
    let origin = origin(&root, "api.test");
    let port = origin.port();
    let world = World::opening(&[format!("api.test:{port}")], &root, |_| Say::Allow);
    let (_, mut stream) = tunnel(&world, &format!("api.test:{port}"));
    stream.write_all(&crate::world::client_hello(None)).unwrap();
    let mut alert = Vec::new();
    let _ = stream.read_to_end(&mut alert);
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 112]);
    world.wait_for("the refusal", |seen| {
        matches!(seen, Seen::Refused(Code::NameMismatch, _))
    });
    assert!(origin.requests().is_empty() && world.asked().is_empty());
    // To an address, a greeting without one is right, and the certificate names the address.
    let here = Origin::over_tls(&root, &["127.0.0.1"], |_| Answer::text(200, "reached"));
    let port = here.port();
    let world = World::opening(&[format!("127.0.0.1:{port}")], &root, |_| Say::Allow);
    let said = get(&world, "127.0.0.1", port, "/x");
    assert!(said.ends_with("reached"), "{said}");
}

#[test]
fn c076_event_streams_and_web_sockets_pass_through_opened_connections() {
    let root = Root::new();
    let pieces: Vec<(Duration, Vec<u8>)> = (0..5)
        .map(|number| (Duration::from_millis(250), format!("data: {number}\n\n").into_bytes()))
        .collect();
    let events = Origin::over_tls(&root, &["api.test"], move |_| Answer::events(pieces.clone()));
    let port = events.port();
    let world = World::opening(&[format!("api.test:{port}")], &root, |_| Say::Allow);
    let (_, stream) = tunnel(&world, &format!("api.test:{port}"));
    let mut stream = client(stream, world.believed(), "api.test");
    let request = format!("GET /events HTTP/1.1\r\nhost: api.test:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut times = Vec::new();
    let mut buffer = [0u8; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        times.extend(text.matches("data: ").map(|_| Instant::now()));
    }
    assert_eq!(times.len(), 5);
    let spread = times[4].duration_since(times[0]);
    assert!(
        spread > Duration::from_millis(800),
        "they came as they were sent: {spread:?}"
    );
    // A web socket: what goes through after the change of protocol is not looked at.
    let echo = TlsEcho::start(&root);
    let world = World::opening(&[format!("api.test:{}", echo.port)], &root, |_| Say::Allow);
    let (_, stream) = tunnel(&world, &format!("api.test:{}", echo.port));
    let mut stream = client(stream, world.believed(), "api.test");
    let request = format!(
        "GET /ws HTTP/1.1\r\nhost: api.test:{}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n",
        echo.port
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    for word in [&b"one"[..], b"two", b"\x81\x05three"] {
        stream.write_all(word).unwrap();
        let mut back = vec![0; word.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, word);
    }
    drop(stream);
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note == "web socket, 13 bytes sent, 13 received"),
    );
}

/// A server that changes to a web socket and echoes.
struct TlsEcho {
    port: u16,
}

impl TlsEcho {
    fn start(root: &Root) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = root.serving(&["api.test"]);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(session, connection);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_err() {
                        break;
                    }
                    head.push(byte[0]);
                }
                let _ = stream.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
                );
                let mut buffer = [0u8; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            }
        });
        Self { port }
    }
}

#[test]
fn c076_a_large_body_passes_through_an_opened_connection_in_bounded_memory() {
    const SIZE: usize = 128 * 1024 * 1024;
    let root = Root::new();
    let big = Origin::over_tls(&root, &["api.test"], |_| {
        Answer::whole(200, "application/octet-stream", vec![b'x'; SIZE])
    });
    let port = big.port();
    let world = World::opening(&[format!("api.test:{port}")], &root, |_| Say::Allow);
    let (_, stream) = tunnel(&world, &format!("api.test:{port}"));
    let mut stream = client(stream, world.believed(), "api.test");
    let request = format!("GET /big HTTP/1.1\r\nhost: api.test:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut buffer = vec![0u8; 256 * 1024];
    let mut all = 0usize;
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        all += count;
    }
    assert!(all > SIZE, "{all}");
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note.contains(&format!("{SIZE} received, whole"))),
    );
}
