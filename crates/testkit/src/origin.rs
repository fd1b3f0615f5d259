//! Servers that record: an HTTP origin, and a listener that counts connections.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::root::Root;
use crate::web::{Answer, Heard, WebServer};

/// A free port on the loopback.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// An HTTP server on the loopback that keeps every request.
#[derive(Debug)]
pub struct Origin {
    server: WebServer,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Origin {
    /// Starts an origin that answers every request with `200` and the body `ok`.
    pub fn start() -> Self {
        Self::answering(|_| Answer::text(200, "ok"))
    }

    /// Starts an origin that answers as the function says.
    pub fn answering(reply: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Self {
        Self::at(ANY_PORT, reply)
    }

    /// Starts an origin at an address. A test that can do without a fixed port should.
    pub fn at(address: SocketAddr, reply: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Self {
        Self::serving(address, None, reply)
    }

    /// Starts an origin that speaks TLS, with a certificate for these names, and answers as the function says.
    pub fn over_tls(root: &Root, names: &[&str], reply: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Self {
        Self::serving(ANY_PORT, Some(root.serving(names)), reply)
    }

    fn serving(
        address: SocketAddr,
        tls: Option<Arc<rustls::ServerConfig>>,
        reply: impl Fn(&Heard) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        let reply = move |request: &Heard| {
            kept.lock()
                .expect("no thread panics with the list")
                .push(request.clone());
            reply(request)
        };
        let server = WebServer::over(address, tls, Arc::new(reply));
        Self { server, heard }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// A URL on it; the path begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    /// All requests until now, in the order in which they came.
    pub fn requests(&self) -> Vec<Heard> {
        self.heard.lock().expect("no thread panics with the list").clone()
    }
}

/// A TCP listener on the loopback that counts connections and closes each at once.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on a free port.
    pub fn start() -> Self {
        Self::at(ANY_PORT)
    }

    /// Listens at an address.
    pub fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|fault| panic!("cannot listen on {address}: {fault}"));
        let address = listener.local_addr().expect("a bound socket has an address");
        let count = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let (counted, end) = (Arc::clone(&count), Arc::clone(&ended));
        let accepting = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                if connection.is_ok() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self {
            address,
            count,
            ended,
            accepting: Some(accepting),
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        crate::web::wake_and_join(&self.address, self.accepting.take());
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use std::time::Duration;

    use super::*;

    fn curl(arguments: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--noproxy", "*", "--max-time", "10"])
            .args(arguments)
            .output()
            .expect("curl is installed: run ./scripts/test");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn origin_keeps_method_target_header_and_body() {
        let origin = Origin::start();
        let answer = curl(&["--data", "k=v", "--header", "X-Mark: 7", &origin.url("/a?b=c")]);
        assert_eq!(answer, "ok");
        let heard = origin.requests();
        assert_eq!(heard.len(), 1);
        assert_eq!((heard[0].method.as_str(), heard[0].target.as_str()), ("POST", "/a?b=c"));
        assert_eq!(heard[0].header("x-mark"), Some("7"));
        assert_eq!(heard[0].text(), "k=v");
    }

    #[test]
    fn origin_reads_chunked_bodies_and_serves_a_kept_connection() {
        let origin = Origin::start();
        let url = origin.url("/up");
        let chunked = ["--header", "Transfer-Encoding: chunked", "--data", "abc", &url, &url];
        assert_eq!(curl(&chunked), "okok");
        let heard = origin.requests();
        assert_eq!(heard.iter().map(Heard::text).collect::<Vec<_>>(), ["abc", "abc"]);
        assert_eq!(
            heard[0].peer, heard[1].peer,
            "the second request came over the same connection"
        );
    }

    #[test]
    fn origin_redirects_and_streams() {
        let origin = Origin::answering(|request| match request.target.as_str() {
            "/from" => Answer::redirect("/to"),
            "/stream" => Answer::events(vec![
                (Duration::ZERO, b"data: 1\n\n".to_vec()),
                (Duration::from_millis(20), b"data: 2\n\n".to_vec()),
            ]),
            _ => Answer::text(404, "no"),
        });
        assert_eq!(curl(&["--location", &origin.url("/from")]), "no");
        assert_eq!(curl(&[&origin.url("/stream")]), "data: 1\n\ndata: 2\n\n");
        assert_eq!(origin.requests().len(), 3);
    }

    #[test]
    fn listener_counts() {
        let listener = Listener::start();
        assert_eq!(listener.connections(), 0);
        curl(&[&format!("http://127.0.0.1:{}/", listener.port())]);
        assert_eq!(listener.connections(), 1);
    }
}
