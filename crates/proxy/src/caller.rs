//! What is kept of one client connection: the names it has looked up of late, and how to notice that it has gone while it
//! waits for a person.
//!
//! Trust: the client is hostile. It may hold as many questions open as it has connections; the mediator bounds them.
//! A client that has said all it wants to say looks like one that has gone: while it waits for a person, it is taken for
//! that.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bailiwick_model::Host;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::limits;

/// One client connection.
#[derive(Default)]
pub(crate) struct Caller {
    known: Mutex<HashMap<Host, (Instant, Vec<IpAddr>)>>,
    /// A second descriptor of its socket.
    socket: Option<Arc<OwnedFd>>,
}

impl Caller {
    /// The client at the other end of a socket.
    pub(crate) fn at(socket: impl AsFd) -> Self {
        Self {
            // Without it, going away is noticed when an answer is written, or at the deadline.
            socket: socket.as_fd().try_clone_to_owned().ok().map(Arc::new),
            ..Self::default()
        }
    }

    /// The second descriptor of its socket.
    pub(crate) fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.socket.clone()
    }

    /// The addresses that were looked up for a name a moment ago.
    pub(crate) fn recall(&self, host: &Host) -> Option<Vec<IpAddr>> {
        let known = self.known.lock().ok()?;
        let (when, addresses) = known.get(host)?;
        (when.elapsed() < limits::NAME_TIME).then(|| addresses.clone())
    }

    /// Keeps the addresses of a name for a while.
    pub(crate) fn remember(&self, host: &Host, addresses: &[IpAddr]) {
        if let Ok(mut known) = self.known.lock() {
            if known.len() >= limits::NAMES_KEPT {
                known.clear();
            }
            known.insert(host.clone(), (Instant::now(), addresses.to_vec()));
        }
    }

    /// Acknowledges at once what has come, since more of it is waited for.
    pub(crate) fn acknowledge(&self) {
        if let Some(socket) = &self.socket {
            // Without it a client may wait for a moment.
            let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
        }
    }

    /// Returns when the client says nothing more.
    pub(crate) async fn gone(&self) {
        let second = || {
            let socket = std::net::TcpStream::from(self.socket.as_ref()?.try_clone().ok()?);
            TcpStream::from_std(socket).ok()
        };
        let Some(watched) = second() else {
            return std::future::pending().await;
        };
        loop {
            match watched.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {
                    // The next request on the same connection: it has not gone. What lies there is left, and waited past.
                    let _ = watched.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}
