//! The fence's own network: nothing but a loopback, and the sockets that a gate outside serves.
//!
//! Promises: P1. The sockets are made inside and handed out: the gate accepts on them without ever being inside.
//! Every address there is is this loopback's: so a program sees the address it asked for at the other end of a connection
//! that the supervisor made for it, and a datagram to anywhere is refused at once, here.
//! See: network_namespaces(7), netdevice(7), rtnetlink(7).

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use bailiwick_gate::{LaunchFault, Listen, ListenKind};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, netlink, recv, send, socket_with,
    socketpair, sockopt,
};

use crate::fault::Says;
use crate::supervise::Door;
use crate::sys;

/// The fence's own address besides those of the loopback: programs that ask whether there is a network find one.
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Brings the loopback up. For a process in a new network namespace that has its rights there.
pub(crate) fn bring_up() -> Result<(), LaunchFault> {
    let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let say = || "cannot bring up a network of its own".to_owned();
    sys::loopback_up(probe.or_say(say)?).or_say(say)?;
    // Where the kernel has no such routes, connections are made all the same, to an address that differs.
    let _ = take_every_address();
    // Its own servers may take any port that is free, and the supervisor can show a connection's own.
    let _ = std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    Ok(())
}

/// Has every address lead to this network's loopback.
fn take_every_address() -> Result<(), Errno> {
    const NEW_ADDRESS: u16 = 20;
    const NEW_ROUTE: u16 = 24;
    const INET: u8 = 2;
    const INET6: u8 = 10;
    /// Table `local`, static, on this host, of the kind `local` (rtnetlink(7)).
    const LOCAL: [u8; 4] = [255, 4, 254, 2];
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let attribute = |kind: u16, value: [u8; 4]| [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat();
    let (own, interface) = (OWN.octets(), LOOPBACK.to_ne_bytes());
    // Family, length, flags, scope, interface; the address itself and its own end.
    let address = [
        &[INET, 32, 0, 0][..],
        &interface,
        &attribute(1, own),
        &attribute(2, own),
    ]
    .concat();
    ask_kernel(&socket, NEW_ADDRESS, &address)?;
    // Family, lengths of target and source, service; what kind of route; flags; the interface, the preferred source.
    let route = |family: u8| [&[family, 0, 0, 0][..], &LOCAL, &[0; 4], &attribute(4, interface)].concat();
    ask_kernel(&socket, NEW_ROUTE, &[route(INET), attribute(7, own)].concat())?;
    ask_kernel(&socket, NEW_ROUTE, &route(INET6))
}

/// Sends one request about the network and reads what came of it (netlink(7)).
fn ask_kernel(socket: &OwnedFd, kind: u16, body: &[u8]) -> Result<(), Errno> {
    const HEAD: usize = 16;
    /// A request, to be acknowledged, that makes something.
    const FLAGS: u16 = 0x1 | 0x4 | 0x400;
    let length = u32::try_from(HEAD.saturating_add(body.len())).map_err(|_| Errno::MSGSIZE)?;
    let head = [
        &length.to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &FLAGS.to_ne_bytes(),
        &[0; 8],
    ]
    .concat();
    send(socket.as_fd(), &[&head, body].concat(), SendFlags::empty())?;
    let mut answer = [0u8; 1024];
    let (got, _) = recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
    let code = answer
        .get(..got)
        .and_then(|answer| answer.get(HEAD..)?.first_chunk::<4>());
    match code.map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(code.saturating_neg())),
        None => Err(Errno::PROTO),
    }
}

/// The number of the loopback interface, which is the first in every network.
const LOOPBACK: u32 = 1;

/// Sockets that are served outside.
pub(crate) struct Served {
    /// What is handed out, one for each that was wanted.
    pub sockets: Vec<OwnedFd>,
    /// Where the supervisor hands connections over by itself.
    pub doors: Vec<Door>,
    /// By which the kernel tells of Unix sockets ([`unix_listeners`]), where it does.
    pub diagnosis: Option<OwnedFd>,
    /// What could not be had and does not weaken the fence.
    pub warnings: Vec<String>,
}

fn diagnosis() -> Result<OwnedFd, Errno> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    unix_listeners(&socket).map(|_| socket)
}

/// The files at which Unix sockets of this network listen, by the lower half of their inodes' numbers (sock_diag(7)).
pub(crate) fn unix_listeners(socket: &OwnedFd) -> Result<HashSet<u64>, Errno> {
    const BY_FAMILY: u16 = 20;
    const DONE: u16 = 3;
    const FAULT: u16 = 2;
    /// A request for all.
    const FLAGS: u16 = 0x1 | 0x300;
    const LISTENING: u32 = 1 << 10;
    const SHOW_FILE: u32 = 2;
    const HEAD: usize = 16;
    /// Head and fixed part of an answer; what follows is the file's attribute, whose number stands behind its own head.
    const FILE: usize = HEAD + 16 + 4;
    let mut request = [
        &40u32.to_ne_bytes()[..],
        &BY_FAMILY.to_ne_bytes(),
        &FLAGS.to_ne_bytes(),
        &[0; 8],
    ]
    .concat();
    request.extend(
        [
            &[1, 0, 0, 0][..],
            &LISTENING.to_ne_bytes(),
            &[0; 4],
            &SHOW_FILE.to_ne_bytes(),
            &[0; 8],
        ]
        .concat(),
    );
    send(socket.as_fd(), &request, SendFlags::empty())?;
    let mut found = HashSet::new();
    let mut answer = vec![0u8; 32 * 1024];
    loop {
        let (got, _) = recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
        let mut rest = answer.get(..got).unwrap_or_default();
        while let Some(length) = rest.first_chunk::<4>() {
            let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(0);
            let message = rest
                .get(..length)
                .filter(|message| message.len() >= HEAD)
                .ok_or(Errno::PROTO)?;
            match message
                .get(4..)
                .and_then(|rest| rest.first_chunk())
                .map(|kind| u16::from_ne_bytes(*kind))
            {
                Some(DONE) => return Ok(found),
                Some(FAULT) | None => return Err(Errno::PROTO),
                Some(_) => {}
            }
            let number = message.get(FILE..).and_then(|file| file.first_chunk::<4>());
            found.extend(number.map(|number| u64::from(u32::from_ne_bytes(*number))));
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Makes the sockets. For a process inside that has its rights still.
pub(crate) fn sockets(wanted: &[Listen]) -> Result<Served, LaunchFault> {
    let mut served = Served {
        sockets: Vec::new(),
        doors: Vec::new(),
        diagnosis: diagnosis().ok(),
        warnings: Vec::new(),
    };
    for listen in wanted {
        served.sockets.push(match listen.kind {
            ListenKind::Elsewhere => {
                let (door, gate) = door(*listen)?;
                served.doors.push(door);
                gate
            }
            ListenKind::Strays => match strays() {
                Ok(socket) => socket,
                Err(errno) => {
                    let cause = crate::fault::cause(errno);
                    served
                        .warnings
                        .push(format!("datagrams that go nowhere are not on record: {cause}"));
                    let silent = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
                    silent.or_say(|| "cannot make a socket inside".into())?
                }
            },
            ListenKind::Stream | ListenKind::Datagram => listening(listen)?,
        });
    }
    Ok(served)
}

/// A pair through which connections are handed to the gate.
pub(crate) fn door(listen: Listen) -> Result<(Door, OwnedFd), LaunchFault> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (own, gate) = pair.or_say(|| format!("cannot serve port {} inside", listen.port))?;
    Ok((Door { listen, gate: own }, gate))
}

/// A socket that is told of each datagram inside which is meant for another address than the loopback's, as the network
/// has it (packet(7)).
fn strays() -> Result<OwnedFd, Errno> {
    /// `ETH_P_ALL`.
    const EVERYTHING: u16 = 3;
    let said = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    // It hears nothing until it is bound: to the loopback, so that no other packet of the machine passes by it.
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::only_stray_datagrams(&socket).map_err(said)?;
    let family = u16::try_from(libc::AF_PACKET).unwrap_or(17);
    let head = [family.to_ne_bytes(), EVERYTHING.to_be_bytes()].concat();
    let address = [&head[..], &LOOPBACK.to_ne_bytes(), &[0; 12]].concat();
    sys::notify::at_address(socket.as_fd(), &address, false).map_err(said)?;
    Ok(socket)
}

fn listening(wanted: &Listen) -> Result<OwnedFd, LaunchFault> {
    let say = || format!("cannot listen on {}:{} inside", wanted.address, wanted.port);
    let kind = match wanted.kind {
        ListenKind::Stream => SocketType::STREAM,
        ListenKind::Datagram | ListenKind::Elsewhere | ListenKind::Strays => SocketType::DGRAM,
    };
    let made = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).or_say(say)?;
    sockopt::set_socket_reuseaddr(&made, true).or_say(say)?;
    bind(&made, &SocketAddrV4::new(wanted.address, wanted.port)).or_say(say)?;
    if wanted.kind == ListenKind::Stream {
        listen(&made, BACKLOG).or_say(say)?;
    }
    Ok(made)
}
