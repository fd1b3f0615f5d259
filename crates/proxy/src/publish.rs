//! Ports of the fence that are seen outside: joins connections that come in pairs, one of each side, ready-made.
//!
//! Promises: P4 (as many at once as one service serves, and no longer silent than any stream), P11 (they live in the
//! gate's runtime, and end with it).
//! Trust: the server inside is hostile; who connects from outside is a program of this machine, sent by nobody knows
//! whom. What they say to each other is passed on unread: that they may talk is on record once, for the port.
//! Not here: listening outside and connecting inside (the daemon, the fence's first process).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

use crate::limits;
use crate::tunnel::{Meter, Metered};

/// Two connections to be joined: from outside, and to the server inside. The latter may still be coming about.
#[derive(Debug)]
pub struct Pair {
    /// From outside.
    pub outer: OwnedFd,
    /// To the server inside.
    pub inner: OwnedFd,
}

/// Where pairs come out.
#[derive(Debug)]
pub struct Pairs(mpsc::Receiver<Pair>);

/// Where pairs go in.
#[derive(Debug, Clone)]
pub struct PairSender(mpsc::Sender<Pair>);

/// A way for pairs into the gate.
pub fn pairs() -> (PairSender, Pairs) {
    let (send, receive) = mpsc::channel(limits::CONNECTIONS);
    (PairSender(send), Pairs(receive))
}

impl PairSender {
    /// Hands a pair over. One that comes while too many wait is closed.
    pub fn send(&self, pair: Pair) {
        let _ = self.0.try_send(pair);
    }
}

/// Joins what comes until the gate ends.
pub(crate) async fn join_all(mut pairs: Pairs) {
    let seats = Arc::new(Semaphore::new(limits::CONNECTIONS));
    while let Some(pair) = pairs.0.recv().await {
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            continue;
        };
        tokio::spawn(async move {
            // Both sides see the end, whichever caused it; there is nobody else to tell.
            let _ = join(pair).await;
            drop(seat);
        });
    }
}

async fn join(pair: Pair) -> io::Result<()> {
    let (mut outer, inner) = (stream(pair.outer)?, stream(pair.inner)?);
    tokio::time::timeout(limits::DIAL_TIME, inner.writable()).await??;
    let meter = Meter::new();
    let mut inner = Metered::new(inner, Arc::clone(&meter));
    let size = limits::TUNNEL_BUFFER;
    tokio::select! {
        passed = copy_bidirectional_with_sizes(&mut outer, &mut inner, size, size) => passed.map(drop),
        () = meter.idle() => Ok(()),
    }
}

fn stream(socket: OwnedFd) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    let _ = stream.set_nodelay(true);
    TcpStream::from_std(stream)
}
