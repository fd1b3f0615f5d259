//! How a connection is made for the agent, on its own socket, and how the network gate comes by the other end.
//!
//! Promises: P1 (a connection to a door ends at the gate and nowhere else), P10 (what is refused here is told to the gate,
//! which puts it on record), P11 (nobody waits here for longer than its caller does).
//! A door has no address that others could use: each connection to one is made to a listener that lives for it alone, and
//! whose other end is handed over. In a network of the fence's own that listener has the very address that was asked for.
//! Trust: the socket is the agent's, with whatever options it has set: a handshake that does not come about holds up one
//! thread, for a while.
//! Not here: what may be connected to (`sockets`).
//! See: connect(2), "EINPROGRESS"; tcp(7).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::{Handed, Listen, ListenKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, accept_with, bind,
    connect, getpeername, listen, sendmsg, socket_with,
};

use super::caller::Caller;
use super::sockets::{for_socket, local};
use super::{Done, Supervisor, lock, others};

/// How long the kernel may take to complete a connection to this very process.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a caller that waits is looked at.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the same refusal is not told again.
const TOLD: Duration = Duration::from_secs(60);
/// Most refusals that are kept in mind, and so most that are told in that time.
const MAX_TOLD: usize = 256;

/// What is served outside on an address inside.
#[derive(Debug)]
pub(crate) struct Door {
    /// The address inside. An unspecified one stands for every loopback address.
    pub listen: Listen,
    /// Where connections are handed to.
    pub gate: OwnedFd,
}

/// What was refused of late.
#[derive(Debug, Default)]
pub(super) struct Refused(HashMap<String, Instant>);

impl Refused {
    /// True where this is to be told.
    fn is_news(&mut self, what: &str) -> bool {
        if self.0.get(what).is_some_and(|told| told.elapsed() < TOLD) {
            return false;
        }
        if self.0.len() >= MAX_TOLD {
            self.0.retain(|_, told| told.elapsed() < TOLD);
        }
        self.0.len() < MAX_TOLD && {
            self.0.insert(what.to_owned(), Instant::now());
            true
        }
    }
}

/// How far a connection has come.
enum Begun {
    /// It is there.
    Done,
    /// Whoever asked for it waits.
    Waits,
}

/// Has `connect` begun without waiting, also on a socket that waits. Meanwhile the agent sees the socket as one that does
/// not; what it changes of that in this very moment is lost.
fn begin(socket: &OwnedFd, mut connect: impl FnMut(&OwnedFd) -> Result<(), Errno>) -> Result<Begun, Errno> {
    let flags = fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return connect(socket).map(|()| Begun::Done);
    }
    fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    let said = match connect(socket) {
        // On the loopback the handshake is over when the call returns, and the second call takes note of it.
        Err(Errno::INPROGRESS) => connect(socket),
        said => said,
    };
    fcntl_setfl(socket, flags)?;
    match said {
        Ok(()) => Ok(Begun::Done),
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::AGAIN) => Ok(Begun::Waits),
        Err(errno) => Err(errno),
    }
}

fn pause(socket: &OwnedFd) -> Result<(), Errno> {
    // A Unix socket that waits for room at the listener's says nothing by itself.
    if sockopt::socket_domain(socket)? == AddressFamily::UNIX {
        std::thread::sleep(PAUSE);
        return Ok(());
    }
    wait_until(socket, PollFlags::OUT, PAUSE).map(|_| ())
}

fn wait_until(socket: &OwnedFd, what: PollFlags, time: Duration) -> Result<bool, Errno> {
    let wait = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(1),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, what)], Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A listener at the first of these addresses that can be had.
fn listener_at(family: AddressFamily, candidates: &[SocketAddr]) -> Result<OwnedFd, Errno> {
    let mut said = Errno::ADDRNOTAVAIL;
    for address in candidates {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(family, SocketType::STREAM, flags, None)?;
        // Connections that came by this address before are there still, at the gate.
        sockopt::set_socket_reuseaddr(&listener, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_freebind(&listener, true)?;
        }
        match bind(&listener, address).and_then(|()| listen(&listener, 1)) {
            Ok(()) => return Ok(listener),
            Err(errno) => said = errno,
        }
    }
    Err(said)
}

impl Door {
    pub(super) fn is_at(&self, address: SocketAddr) -> bool {
        if self.listen.kind != ListenKind::Stream || address.port() != self.listen.port {
            return false;
        }
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => self.listen.address == ip || (self.listen.address.is_unspecified() && ip.is_loopback()),
            IpAddr::V6(ip) => ip.is_loopback() && self.listen.address == Ipv4Addr::LOCALHOST,
        }
    }

    /// True for the door of all that is nowhere inside.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.listen.kind == ListenKind::Elsewhere
    }

    /// Where the listener of one connection stands, best first.
    fn places(&self, address: SocketAddr, own_network: bool) -> Vec<SocketAddr> {
        let here: IpAddr = match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let (any, here) = (SocketAddr::new(address.ip(), 0), SocketAddr::new(here, 0));
        match (own_network, self.is_elsewhere()) {
            // Another listener may stand at the port, the agent's own for one.
            (true, _) => vec![address, any, here],
            (false, true) => vec![here],
            (false, false) => vec![any],
        }
    }

    /// Connects a socket of the agent's to a listener that lives for this connection alone, and hands its other end to
    /// the gate. What the kernel said of the connection is the result.
    fn join(&self, socket: &OwnedFd, meant: SocketAddr, own_network: bool) -> Result<(), Errno> {
        let address = for_socket(socket, meant)?;
        let family = sockopt::socket_domain(socket)?;
        let listener = listener_at(family, &self.places(address, own_network))?;
        let at = local(&listener)?;
        let begun = begin(socket, |socket| connect(socket, &at));
        let said = match begun {
            Ok(_) => Ok(()),
            Err(Errno::INPROGRESS) => Err(Errno::INPROGRESS),
            Err(errno) => return Err(errno),
        };
        let own = local(socket)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let accepted = match accept_with(&listener, SocketFlags::CLOEXEC) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN | Errno::INTR) => {
                    wait_until(&listener, PollFlags::IN, PAUSE)?;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            // Somebody else's connection is dropped.
            let peer = getpeername(&accepted)?.map(SocketAddr::try_from);
            if peer == Some(Ok(own)) {
                self.tell(&Handed::Connection(meant), Some(&accepted))?;
                if let Ok(Begun::Waits) = begun {
                    begin(socket, |socket| connect(socket, &at))?;
                }
                return said;
            }
        }
        Err(Errno::TIMEDOUT)
    }

    /// Tells the gate, which may not take its time: where it does not listen, the connection is refused.
    fn tell(&self, message: &Handed, connection: Option<&OwnedFd>) -> Result<(), Errno> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let along = connection.map(AsFd::as_fd);
        if let Some(along) = &along {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(along)));
        }
        let text = message.to_string();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(
            &self.gate,
            &[std::io::IoSlice::new(text.as_bytes())],
            &mut control,
            flags,
        )
        .map(|_| ())
        .map_err(|_| Errno::CONNREFUSED)
    }
}

impl Supervisor {
    /// Has the kernel connect a socket as the agent asked. What waits, waits in a thread of its own.
    pub(super) fn make(
        self: &Arc<Self>,
        caller: &Caller,
        socket: OwnedFd,
        mut connect: impl FnMut(&OwnedFd) -> Result<(), Errno> + Send + 'static,
    ) -> Result<Done, Errno> {
        if let Begun::Done = begin(&socket, &mut connect)? {
            return Ok(Done::Value(0));
        }
        let (id, thread) = (caller.held.id, caller.held.thread);
        self.later(caller, move |supervisor| {
            let limit = sockopt::socket_timeout(&socket, Timeout::Send)?;
            let start = Instant::now();
            loop {
                pause(&socket)?;
                if let Begun::Done = begin(&socket, &mut connect)? {
                    return Ok(Done::Value(0));
                }
                if limit.is_some_and(|limit| start.elapsed() >= limit) {
                    return Err(Errno::INPROGRESS);
                }
                if !supervisor.waits(id) || others::has_signal(thread) {
                    return Err(Errno::INTR);
                }
            }
        })
    }

    /// Leads a connection to a door.
    pub(super) fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        socket: OwnedFd,
        door: usize,
        address: SocketAddr,
    ) -> Result<Done, Errno> {
        // A socket that has another end already gets no second one: the kernel says so.
        if let Ok(Some(other)) = getpeername(&socket) {
            return begin(&socket, |socket| connect(socket, &other)).map(|_| Done::Value(0));
        }
        self.later(caller, move |supervisor| {
            let door = supervisor.charge.doors.get(door).ok_or(Errno::CONNREFUSED)?;
            door.join(&socket, address, supervisor.charge.mounted)?;
            Ok(Done::Value(0))
        })
    }

    /// Has the gate put on record that something was refused here: once, of the same for a while.
    pub(super) fn refused(&self, what: &str, why: &str) {
        let Some(door) = self.charge.doors.iter().find(|door| door.is_elsewhere()) else {
            return;
        };
        if lock(&self.sockets).refused.is_news(what) {
            // A gate that does not listen any more ends the task.
            let _ = door.tell(&Handed::refused(what, why), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_the_same_refusal_is_told_once_and_no_more_than_so_many() {
        let mut refused = Refused::default();
        assert!(refused.is_news("a") && !refused.is_news("a") && refused.is_news("b"));
        let told = (0..10_000)
            .filter(|number| refused.is_news(&format!("n{number}")))
            .count();
        assert_eq!(told, MAX_TOLD - 2);
        assert!(refused.0.len() <= MAX_TOLD);
    }
}
