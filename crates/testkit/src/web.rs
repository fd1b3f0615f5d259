//! A small HTTP/1.1 server on the loopback: one thread a connection, every request handed to one function.
//!
//! Trust: the client may be an agent that was taken over. Heads and bodies have limits; a request that does not parse
//! ends its connection.
//! See: RFC 9112.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Largest head and largest body that are read, in bytes.
const MAX_HEAD: u64 = 256 * 1024;
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// How long a connection may stay silent.
const SILENCE: Duration = Duration::from_secs(60);

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The method.
    pub method: String,
    /// The request target, as it was spelled: a path, or a whole URL when the client took this for a proxy.
    pub target: String,
    /// The header fields in order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without its transfer coding.
    pub body: Vec<u8>,
    /// Who asked.
    pub peer: SocketAddr,
}

impl Heard {
    /// The first header field of this name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What to answer.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Whole(Vec<u8>),
    Parts(Vec<(Duration, Vec<u8>)>),
}

impl Answer {
    /// A whole body of plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::whole(status, "text/plain", body.into().into_bytes())
    }

    /// A whole body of a media type.
    pub fn whole(status: u16, media_type: &str, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), media_type.into())],
            content: Content::Whole(body),
        }
    }

    /// A redirect (302) to a place.
    pub fn redirect(location: &str) -> Self {
        Self::text(302, "").with_header("location", location)
    }

    /// An event stream: each part is sent after its pause, as a chunk of its own.
    pub fn events(parts: Vec<(Duration, Vec<u8>)>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            content: Content::Parts(parts),
        }
    }

    /// The same answer with one more header field.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// What answers a request.
pub(crate) type Reply = dyn Fn(&Heard) -> Answer + Send + Sync;

/// A running server. It stops accepting when dropped.
pub(crate) struct WebServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for WebServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebServer({})", self.address)
    }
}

impl WebServer {
    /// Starts a server at an address; port 0 takes a free one.
    pub(crate) fn start(address: SocketAddr, reply: Arc<Reply>) -> Self {
        Self::over(address, None, reply)
    }

    /// The same, over TLS where that is wanted.
    pub(crate) fn over(address: SocketAddr, tls: Option<Arc<ServerConfig>>, reply: Arc<Reply>) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|fault| panic!("cannot listen on {address}: {fault}"));
        let address = listener.local_addr().expect("a bound socket has an address");
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let accepting = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(connection) = connection else { continue };
                let (reply, tls) = (Arc::clone(&reply), tls.clone());
                std::thread::spawn(move || serve(connection, tls, &*reply));
            }
        });
        Self {
            address,
            ended,
            accepting: Some(accepting),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        wake_and_join(&self.address, self.accepting.take());
    }
}

/// Waits for a thread that accepts connections and has been told to end: one connection of our own wakes it.
pub(crate) fn wake_and_join(address: &SocketAddr, accepting: Option<std::thread::JoinHandle<()>>) {
    let woken = TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok();
    if let Some(accepting) = accepting
        && woken
    {
        let _ = accepting.join();
    }
}

/// Serves one connection until it ends, a request does not parse, or an answer cannot be written.
fn serve(connection: TcpStream, tls: Option<Arc<ServerConfig>>, reply: &Reply) -> Option<()> {
    connection.set_read_timeout(Some(SILENCE)).ok()?;
    connection.set_nodelay(true).ok()?;
    let peer = connection.peer_addr().ok()?;
    match tls {
        None => converse(connection, peer, reply),
        Some(config) => {
            let session = ServerConnection::new(config).ok()?;
            converse(StreamOwned::new(session, connection), peer, reply)
        }
    }
}

fn converse<S: Read + Write>(stream: S, peer: SocketAddr, reply: &Reply) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (heard, keep) = read_request(&mut reader, peer)?;
        write_answer(reader.get_mut(), &heard.method, &reply(&heard), keep)?;
        if !keep {
            return Some(());
        }
    }
}

fn read_request<S: Read + Write>(reader: &mut BufReader<S>, peer: SocketAddr) -> Option<(Heard, bool)> {
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut line = String::new();
    head.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target, version) = (
        words.next()?.to_owned(),
        words.next()?.to_owned(),
        words.next()?.to_owned(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        head.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut heard = Heard {
        method,
        target,
        headers,
        body: Vec::new(),
        peer,
    };
    if heard
        .header("expect")
        .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    {
        let writer = reader.get_mut();
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        writer.flush().ok()?;
    }
    heard.body = read_body(reader, &heard)?;
    let closes = heard
        .header("connection")
        .is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Some((heard, version == "HTTP/1.1" && !closes))
}

fn read_body<S: Read>(reader: &mut BufReader<S>, heard: &Heard) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    if heard
        .header("transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    {
        loop {
            let mut line = String::new();
            reader.by_ref().take(MAX_HEAD).read_line(&mut line).ok()?;
            let size = line.trim_end().split(';').next()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            if size > MAX_BODY.saturating_sub(body.len() as u64) {
                return None;
            }
            let before = body.len() as u64;
            reader.by_ref().take(size).read_to_end(&mut body).ok()?;
            if (body.len() as u64).saturating_sub(before) != size {
                return None;
            }
            let mut end = String::new();
            reader.by_ref().take(MAX_HEAD).read_line(&mut end).ok()?;
            if size == 0 {
                return Some(body);
            }
        }
    }
    let length = match heard.header("content-length") {
        Some(length) => length.parse::<u64>().ok()?,
        None => 0,
    };
    if length > MAX_BODY {
        return None;
    }
    reader.by_ref().take(length).read_to_end(&mut body).ok()?;
    (body.len() as u64 == length).then_some(body)
}

fn write_answer(writer: &mut impl Write, method: &str, answer: &Answer, keep: bool) -> Option<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, phrase(answer.status));
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !keep {
        head.push_str("connection: close\r\n");
    }
    match &answer.content {
        Content::Whole(body) => {
            head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
            writer.write_all(head.as_bytes()).ok()?;
            if method != "HEAD" {
                writer.write_all(body).ok()?;
            }
        }
        Content::Parts(parts) => {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
            writer.write_all(head.as_bytes()).ok()?;
            for (pause, part) in parts {
                std::thread::sleep(*pause);
                if !part.is_empty() {
                    let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
                    chunk.extend_from_slice(part);
                    chunk.extend_from_slice(b"\r\n");
                    writer.write_all(&chunk).ok()?;
                    writer.flush().ok()?;
                }
            }
            writer.write_all(b"0\r\n\r\n").ok()?;
        }
    }
    writer.flush().ok()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        302 => "Found",
        400 => "Bad Request",
        404 => "Not Found",
        _ => "Answer",
    }
}
