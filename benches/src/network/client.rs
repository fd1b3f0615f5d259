//! A client that measures: it asks one server for the same thing again and again, through the proxy that its environment
//! names, and prints what it saw as one line of JSON.
//!
//! It runs as a process of its own, so that it can run inside a fence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// The URL, `https://`.
    pub url: String,
    /// How many connections at a time.
    pub connections: usize,
    /// How many requests in all.
    pub requests: usize,
    /// True to keep connections; false for a new one for each request.
    pub kept: bool,
    /// True for HTTP/2.
    pub http2: bool,
    /// How long the connections are held after the last answer, in milliseconds.
    pub held: u64,
}

/// What was seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// From the first request to the last answer, in seconds.
    pub seconds: f64,
    /// Body bytes received.
    pub bytes: u64,
    /// What each request took, with its connection where that was new, in microseconds; sorted.
    pub times: Vec<u32>,
}

impl Seen {
    /// The time that this share of the requests did not take longer than, in microseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let place = (self.times.len() as f64 * share) as usize;
        let time = self.times.get(place.min(self.times.len().saturating_sub(1)));
        time.copied().map_or(f64::NAN, f64::from)
    }
}

enum Sender {
    One(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

struct Client {
    work: Work,
    uri: Uri,
    proxy: Option<String>,
    config: Arc<ClientConfig>,
}

/// Does the work that is written as JSON, and prints what was seen.
pub fn run(work: &str) {
    let work: Work = serde_json::from_str(work).expect("the work is JSON");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let seen = runtime.expect("a runtime").block_on(measure(work));
    println!("{}", serde_json::to_string(&seen).expect("figures are JSON"));
}

fn config(http2: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let file = std::env::var_os("SSL_CERT_FILE").expect("SSL_CERT_FILE says whom to believe");
    let pem = std::fs::read(file).expect("the roots can be read");
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions of TLS").with_root_certificates(roots);
    let mut config = builder.with_no_client_auth();
    // Each new connection is a whole handshake, as that of a new program is.
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Arc::new(config)
}

async fn measure(work: Work) -> Seen {
    let proxy = std::env::var("https_proxy")
        .or_else(|_| std::env::var("HTTPS_PROXY"))
        .ok();
    let proxy = proxy.map(|proxy| proxy.trim_start_matches("http://").trim_end_matches('/').to_owned());
    let client = Arc::new(Client {
        uri: work.url.parse().expect("a URL"),
        config: config(work.http2),
        proxy: proxy.filter(|proxy| !proxy.is_empty()),
        work,
    });
    let each = client.work.requests.div_ceil(client.work.connections);
    let mut senders = Vec::new();
    if client.work.kept {
        for _ in 0..client.work.connections {
            let mut sender = client.connect().await;
            // The first request on a connection finds everything cold.
            client.ask(&mut sender).await;
            senders.push(Some(sender));
        }
    } else {
        senders.resize_with(client.work.connections, || None);
    }
    let begun = Instant::now();
    let tasks: Vec<_> = senders
        .into_iter()
        .map(|mut sender| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let (mut times, mut bytes) = (Vec::with_capacity(each), 0);
                for _ in 0..each {
                    let asked = Instant::now();
                    match &mut sender {
                        Some(sender) => bytes += client.ask(sender).await,
                        None => bytes += client.ask(&mut client.connect().await).await,
                    }
                    times.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
                (times, bytes, sender)
            })
        })
        .collect();
    let (mut seen, mut kept) = (Seen::default(), Vec::new());
    for task in tasks {
        let (times, bytes, sender) = task.await.expect("no request fails");
        seen.times.extend(times);
        seen.bytes += bytes;
        kept.push(sender);
    }
    seen.seconds = begun.elapsed().as_secs_f64();
    seen.times.sort_unstable();
    tokio::time::sleep(Duration::from_millis(client.work.held)).await;
    drop(kept);
    seen
}

impl Client {
    fn host(&self) -> &str {
        self.uri.host().expect("the URL has a host")
    }

    async fn tls(&self) -> TlsStream<TcpStream> {
        let port = self.uri.port_u16().unwrap_or(443);
        let authority = format!("{}:{port}", self.host());
        let mut stream = match &self.proxy {
            // Names are not looked up: what is measured is on this machine.
            None => TcpStream::connect(("127.0.0.1", port)).await,
            Some(proxy) => TcpStream::connect(proxy).await,
        }
        .expect("the server or the proxy can be reached");
        stream.set_nodelay(true).expect("the socket takes options");
        if self.proxy.is_some() {
            let asked = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
            stream.write_all(asked.as_bytes()).await.expect("the proxy listens");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("the proxy answers"));
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            assert!(head.contains(" 200"), "the proxy answers: {head}");
        }
        let name = ServerName::try_from(self.host().to_owned()).expect("a name");
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, stream).await.expect("TLS comes about")
    }

    async fn connect(&self) -> Sender {
        let io = TokioIo::new(self.tls().await);
        if self.work.http2 {
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20);
            let (sender, connection) = builder.handshake(io).await.expect("HTTP/2 comes about");
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(io)
                .await
                .expect("HTTP comes about");
            tokio::spawn(connection);
            Sender::One(sender)
        }
    }

    /// Asks once; says how long the body was.
    async fn ask(&self, sender: &mut Sender) -> u64 {
        let request = Request::get(if self.work.http2 {
            self.uri.clone()
        } else {
            self.target()
        });
        let request = if self.work.http2 {
            request
        } else {
            request.header("host", self.uri.authority().expect("the URL has a host").as_str())
        };
        let request = request.body(Empty::new()).expect("a request");
        let answer = match sender {
            Sender::One(sender) => {
                sender.ready().await.expect("the connection is kept");
                sender.send_request(request).await
            }
            Sender::Two(sender) => sender.send_request(request).await,
        };
        let answer = answer.expect("there is an answer");
        assert!(answer.status().is_success(), "the answer is {}", answer.status());
        let (mut body, mut bytes) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame.expect("the body is whole").data_ref().map_or(0, Bytes::len) as u64;
        }
        bytes
    }

    fn target(&self) -> Uri {
        let target = self.uri.path_and_query().expect("the URL has a path");
        target.as_str().parse().expect("a target")
    }
}
