//! The gate as a process: a door in, a channel to the mediator, one runtime, until the channel closes.
//!
//! Promises: P4 (without the mediator every call is refused; who does not know the token is not served), P11 (when the
//! channel closes, all connections end: they live in the runtime, which is dropped).
//! Trust: whoever connects is hostile until it has said the token, and is the agent then.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_line::{Came, ChannelFault, Door};
use bailiwick_model::{Code, read_server};
use rmcp::service::serve_server;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;
use crate::channel::Channel;
use crate::config::Config;
use crate::gate::Gate;
use crate::http::{Web, is_http};
use crate::limits;
use crate::lines::AgentLines;
use crate::lock::LockFault;
use crate::names::OWN;
use crate::objection::Objections;
use crate::session::Session;

/// Says why the gate could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum GateFault {
    /// A socket, or the runtime, cannot be used.
    #[error("the tool gate could not start: {0}")]
    Start(#[source] io::Error),
    /// The configuration names a server that cannot be.
    #[error("the tool gate cannot serve `{0}`: no name of a server, or one that stands twice")]
    Server(String),
    /// The token would let anybody in.
    #[error("the tool gate's token is shorter than 16 characters, or holds a blank")]
    Token,
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockFault),
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelFault),
}

/// Serves until the channel closes; then closes everything and returns. Blocks; makes a runtime of its own.
pub fn run(
    config: Config,
    door: OwnedFd,
    channel: std::os::unix::net::UnixStream,
    backing: Arc<dyn Backing>,
) -> Result<(), GateFault> {
    check(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(GateFault::Start)?;
    let ended = runtime.block_on(serve_all(config, door, channel, backing));
    // Open connections end here, and with them every call.
    runtime.shutdown_background();
    ended
}

fn check(config: &Config) -> Result<(), GateFault> {
    let mut names = BTreeSet::new();
    for server in &config.servers {
        if read_server(&server.name).is_err() || server.name == OWN || !names.insert(&server.name) {
            return Err(GateFault::Server(server.name.clone()));
        }
    }
    let plain = config.token.bytes().all(|byte| byte.is_ascii_graphic());
    if config.token.len() < 16 || config.token.len() > limits::TOKEN_LINE || !plain {
        return Err(GateFault::Token);
    }
    Ok(())
}

async fn serve_all(
    config: Config,
    door: OwnedFd,
    channel: std::os::unix::net::UnixStream,
    backing: Arc<dyn Backing>,
) -> Result<(), GateFault> {
    channel.set_nonblocking(true).map_err(GateFault::Start)?;
    let channel = tokio::net::UnixStream::from_std(channel).map_err(GateFault::Start)?;
    let (channel, line) = Channel::open(config.task, &config.build, channel)?;
    let gate = Arc::new(Gate::new(&config, channel.clone(), backing)?);
    let door = Door::of(door).map_err(GateFault::Start)?;
    let token: Arc<str> = config.token.into();
    let objections = Objections::new(channel.clone());
    let web = Web::new(&gate, &objections, &token);
    for (one, other) in &gate.catalog().collisions {
        let why = format!("{one} and {other} would have one name towards clients: neither is shown");
        let channel = channel.clone();
        tokio::spawn(async move { channel.refuse(Code::ToolUnreadable, "two tools", &why).await });
    }
    let entrance = Arc::new(Entrance {
        gate,
        objections,
        token,
        web,
    });
    tokio::spawn(accept(entrance, door));
    Ok(line.await?)
}

/// What a connection meets.
struct Entrance {
    gate: Arc<Gate>,
    objections: Objections,
    token: Arc<str>,
    web: Web,
}

async fn accept(entrance: Arc<Entrance>, door: Door) {
    let seats = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        match door.accept().await {
            Ok(Came::Connection(stream, _)) => {
                let _ = stream.set_nodelay(true);
                let entrance = Arc::clone(&entrance);
                tokio::spawn(async move {
                    entrance.serve(stream).await;
                    drop(seat);
                });
            }
            // What its supervisor refused was for another gate; this one only has its own port.
            Ok(Came::Refused { what, why }) => {
                let channel = entrance.gate.channel.clone();
                tokio::spawn(async move {
                    channel.refuse(Code::NoRule, &what, &why).await;
                    drop(seat);
                });
            }
            // Too many open files, most likely: connections that end make room.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Entrance {
    /// A connection says its token on a line and then speaks lines, or it speaks HTTP.
    async fn serve(&self, mut stream: TcpStream) {
        let mut first = Vec::new();
        let read = timeout(limits::TOKEN_TIME, first_word(&mut stream, &mut first)).await;
        if !matches!(read, Ok(Ok(()))) {
            return;
        }
        let (from, to) = stream.into_split();
        if is_http(&first) {
            let from = io::Cursor::new(first).chain(from);
            return self.web.serve(tokio::io::join(from, to)).await;
        }
        let said = first.strip_suffix(b"\n").unwrap_or(&first);
        let said = said.strip_suffix(b"\r").unwrap_or(said);
        if !is_same(said, self.token.as_bytes()) {
            let why = "it does not know the task's token";
            self.gate
                .channel
                .refuse(Code::NoRule, "a connection to the tools", why)
                .await;
            return;
        }
        let gone = CancellationToken::new();
        let lines = AgentLines::new(Box::new(from), Box::new(to), self.objections.clone(), gone.clone());
        let session = Session::new(Arc::clone(&self.gate), gone.clone(), None);
        if let Ok(service) = serve_server(session, lines).await {
            let _ = service.waiting().await;
        }
        gone.cancel();
    }
}

/// Reads to the first blank or the end of the first line: byte by byte, so that nothing of what follows is taken.
async fn first_word(stream: &mut TcpStream, first: &mut Vec<u8>) -> io::Result<()> {
    while first.len() <= limits::TOKEN_LINE {
        let byte = stream.read_u8().await?;
        first.push(byte);
        if matches!(byte, b' ' | b'\n') {
            return Ok(());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Compares in a time that does not tell how much is the same.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0u8, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}
