//! Listens on the machine's loopback, and nowhere else; reads requests within limits.
//!
//! Trust: whoever connects may be any program of the machine: heads, bodies and connections are bounded in size, number and time.
//! Not here: pages (`routes`), who is let through (`wall`).

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::desk::Approver;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use crate::house::{House, Open};
use crate::routes::routes;
use crate::sessions::Sessions;

/// Most connections at a time; what comes beyond is closed at once.
const MAX_CONNECTIONS: usize = 128;

/// How long a request's head may take to come, and an idle connection may stay.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);

/// Largest head, in bytes, and most lines of it.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// Says why the console is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeFault {
    /// The port is not to be had.
    #[error("cannot listen on 127.0.0.1:{port}: {cause}")]
    Port {
        /// The port.
        port: u16,
        /// Why.
        cause: std::io::Error,
    },
    /// The machinery that waits for connections cannot.
    #[error("cannot wait for connections: {0}")]
    Waiting(#[from] std::io::Error),
}

/// A console that listens.
pub struct Console {
    listener: TcpListener,
    open: Open,
}

/// Makes links to a console, while it serves.
#[derive(Clone)]
pub struct Door(Open);

impl Door {
    /// A link by which that person logs in once, soon. The token stands behind the `#`, which browsers send nowhere.
    pub fn link(&self, approver: Approver) -> String {
        let random = Arc::clone(&self.0.house.random);
        let token = self.0.sessions().link(approver, &*random, Instant::now());
        format!("http://127.0.0.1:{}/#{token}", self.0.port)
    }
}

impl Console {
    /// Listens on a port of 127.0.0.1; on any that is free for 0.
    pub fn listen(port: u16, house: House) -> Result<Self, ServeFault> {
        let refuse = |cause| ServeFault::Port { port, cause };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let port = listener.local_addr().map_err(refuse)?.port();
        let open = Open {
            house,
            sessions: Arc::new(Mutex::new(Sessions::default())),
            port,
            verifying: Arc::new(Semaphore::new(1)),
        };
        Ok(Self { listener, open })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.open.port))
    }

    /// Makes links.
    pub fn door(&self) -> Door {
        Door(self.open.clone())
    }

    /// Serves until the process ends.
    pub fn serve(self) -> Result<(), ServeFault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(accept(self.listener, self.open))
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Console({})", self.address())
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Door(127.0.0.1:{})", self.0.port)
    }
}

async fn accept(listener: TcpListener, open: Open) -> Result<(), ServeFault> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let routes = routes(open);
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: some will be given back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let served = server.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A connection that breaks has nobody left to be told.
            let _ = served.await;
            drop(place);
        });
    }
}
