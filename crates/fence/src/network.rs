//! The fence's own network: nothing but a loopback, and the sockets that a gate outside serves.
//!
//! Promises: P1. The sockets are made inside and handed out: the gate accepts on them without ever being inside.
//! See: network_namespaces(7), netdevice(7).

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use bailiwick_gate::{LaunchFault, Listen, ListenKind};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::fault::Says;
use crate::sys;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Brings the loopback up. For a process in a new network namespace that has its rights there.
pub(crate) fn bring_up() -> Result<(), LaunchFault> {
    let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let say = || "cannot bring up a network of its own".to_owned();
    sys::loopback_up(probe.or_say(say)?).or_say(say)
}

/// Makes the sockets. For a process inside that has its rights still.
pub(crate) fn sockets(wanted: &[Listen]) -> Result<Vec<OwnedFd>, LaunchFault> {
    wanted.iter().map(listening).collect()
}

fn listening(wanted: &Listen) -> Result<OwnedFd, LaunchFault> {
    let say = || format!("cannot listen on {}:{} inside", wanted.address, wanted.port);
    let kind = match wanted.kind {
        ListenKind::Stream => SocketType::STREAM,
        ListenKind::Datagram => SocketType::DGRAM,
    };
    let made = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).or_say(say)?;
    sockopt::set_socket_reuseaddr(&made, true).or_say(say)?;
    bind(&made, &SocketAddrV4::new(wanted.address, wanted.port)).or_say(say)?;
    if wanted.kind == ListenKind::Stream {
        listen(&made, BACKLOG).or_say(say)?;
    }
    Ok(made)
}
