//! Sockets: who may be connected to, and where the agent may listen.
//!
//! Promises: P1, P5 (an address is copied once, and what is judged is what is connected to). A connection goes to a *door*,
//! which the network gate serves outside; to a socket that the agent itself listens on; to one that is granted by itself;
//! or nowhere. In a fence with a network of its own the loopback is the agent's, every other address is a door. Where the
//! network is the machine's, the agent listens on the loopback only, whatever it asked for.
//! Trust: addresses are the agent's; sockets are its own, seen through a descriptor of the same.
//! Not here: how a connection is made (`connection`).
//! See: connect(2), unix(7), ipv6(7), `/proc/net/tcp` in proc(5).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, StatxFlags, fchmod, fstat, statx};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, bind, connect, getsockname, listen, sockopt};

use super::caller::Caller;
use super::connection::{Door, Refused};
use super::scope::May;
use super::walk::{Aim, There, at_name, find_name, there};
use super::{Done, Supervisor, lock};
use crate::network::{self, OWN};
use crate::sys::notify::at_address;

/// Why a Unix socket is not connected to.
const NOT_ITS_OWN: &str = "it was not made inside, and no rule names it";
/// Where the path begins in a Unix address.
const PATH: usize = 2;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The agent's own sockets, by what the kernel calls them.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Inodes of sockets that were bound for it.
    inodes: HashSet<u64>,
    /// Unix addresses without a path.
    names: HashSet<Vec<u8>>,
    /// Unix sockets with a path.
    paths: HashSet<Made>,
    /// What was refused of late.
    pub(super) refused: Refused,
}

/// What tells a file from another that has its inode later: device, inode, and when it was made.
type Made = (u32, u32, u64, i64, u32);

fn made(open: impl AsFd) -> Result<Made, Errno> {
    let stat = statx(
        open,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS | StatxFlags::BTIME,
    )?;
    let time = stat.stx_btime;
    Ok((
        stat.stx_dev_major,
        stat.stx_dev_minor,
        stat.stx_ino,
        time.tv_sec,
        time.tv_nsec,
    ))
}

/// Connects to a Unix socket of the agent's own. All of these are listened on here, which the kernel tells whoever is
/// connected (`SO_PEERCRED`): a socket that merely took the place of one is known by that.
fn connect_own(socket: &OwnedFd, address: &[u8]) -> Result<Done, Errno> {
    at(socket, address, true)?;
    let own = sockopt::socket_peercred(socket).is_ok_and(|peer| peer.pid == rustix::process::getpid());
    if !own {
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        return Err(Errno::CONNREFUSED);
    }
    Ok(Done::Value(0))
}

/// What an address in the kernel's form means.
enum Address {
    /// An end of a connection is dropped.
    None,
    /// An internet address.
    Internet(SocketAddr),
    /// A Unix address with a path.
    Path(PathBuf),
    /// A Unix address without one, as it is; empty for one that the kernel shall choose.
    Name,
}

fn family_of(bytes: &[u8]) -> Option<i32> {
    let (family, _) = bytes.split_first_chunk::<2>()?;
    Some(i32::from(u16::from_ne_bytes(*family)))
}

fn read(bytes: &[u8]) -> Result<Address, Errno> {
    let port = || {
        bytes
            .get(2..4)
            .and_then(|port| <[u8; 2]>::try_from(port).ok())
            .map(u16::from_be_bytes)
    };
    match family_of(bytes).ok_or(Errno::INVAL)? {
        libc::AF_UNSPEC => Ok(Address::None),
        libc::AF_INET => {
            let address = bytes.get(4..8).and_then(|address| <[u8; 4]>::try_from(address).ok());
            let (address, port) = address.zip(port()).ok_or(Errno::INVAL)?;
            Ok(Address::Internet((Ipv4Addr::from(address), port).into()))
        }
        libc::AF_INET6 => {
            let address = bytes.get(8..24).and_then(|address| <[u8; 16]>::try_from(address).ok());
            let (address, port) = address.zip(port()).ok_or(Errno::INVAL)?;
            Ok(Address::Internet((Ipv6Addr::from(address), port).into()))
        }
        libc::AF_UNIX => {
            let path = bytes.get(PATH..).unwrap_or_default();
            if path.first().is_none_or(|first| *first == 0) {
                return Ok(Address::Name);
            }
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            let path = path.get(..end).unwrap_or_default();
            Ok(Address::Path(Path::new(OsStr::from_bytes(path)).to_path_buf()))
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// An address of a socket's own family: IPv4 in IPv6 form where the socket is of IPv6.
pub(super) fn for_socket(socket: &OwnedFd, address: SocketAddr) -> Result<SocketAddr, Errno> {
    match (sockopt::socket_domain(socket)?, address.ip().to_canonical()) {
        (AddressFamily::INET6, IpAddr::V4(ip)) => Ok((ip.to_ipv6_mapped(), address.port()).into()),
        (AddressFamily::INET, ip @ IpAddr::V4(_)) | (AddressFamily::INET6, ip @ IpAddr::V6(_)) => {
            Ok((ip, address.port()).into())
        }
        (AddressFamily::INET, IpAddr::V6(_)) => Err(Errno::AFNOSUPPORT),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

pub(super) fn local(socket: impl AsFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(socket)?)
}

impl Supervisor {
    pub(super) fn connect(self: &Arc<Self>, caller: &Caller) -> Result<Done, Errno> {
        let socket = caller.descriptor(caller.number(0))?;
        let bytes = caller.address(1)?;
        match read(&bytes) {
            Ok(Address::Internet(address)) if sockopt::socket_type(&socket)? == SocketType::STREAM => {
                self.reach(caller, socket, address, bytes)
            }
            Ok(Address::Path(path)) => self.reach_path(caller, socket, path),
            // Datagrams, names and all else stay in a network of the fence's own; what is no address is the kernel's to say.
            _ if self.charge.mounted => self.make(caller, socket, move |socket| at(socket, &bytes, true)),
            Ok(Address::None) => at(&socket, &bytes, true).map(|()| Done::Value(0)),
            Ok(Address::Name) => {
                if !lock(&self.sockets).names.contains(&bytes) {
                    return Err(Errno::CONNREFUSED);
                }
                self.later(caller, move |_| connect_own(&socket, &bytes))
            }
            Ok(Address::Internet(_)) => Err(Errno::AFNOSUPPORT),
            Err(errno) => Err(errno),
        }
    }

    fn reach_path(self: &Arc<Self>, caller: &Caller, socket: OwnedFd, path: PathBuf) -> Result<Done, Errno> {
        let there = there(caller, libc::AT_FDCWD, &self.instead(path), Aim::End)?;
        let path = there.path.as_deref();
        let granted = path.is_some_and(|path| self.charge.scope.is_granted(path));
        let known = if self.charge.mounted {
            // Nobody else makes anything in scratch that was mounted for the fence.
            path.is_some_and(|path| self.charge.scope.is_scratch(path)) || self.is_listened_on(&there)
        } else {
            lock(&self.sockets).paths.contains(&made(&there.open)?)
        };
        if !granted && (!known || self.may(&there) < May::Write) {
            let at = path.unwrap_or(Path::new("a socket without a name"));
            self.refused(&format!("connect {}", at.display()), NOT_ITS_OWN);
            return Err(Errno::ACCESS);
        }
        let address = by_descriptor(&there.open, None)?;
        if !self.charge.mounted {
            return self.later(caller, move |_| {
                let _open = there.open;
                if granted {
                    at(&socket, &address, true).map(|()| Done::Value(0))
                } else {
                    connect_own(&socket, &address)
                }
            });
        }
        self.make(caller, socket, move |socket| {
            let _open = &there.open;
            at(socket, &address, true)?;
            // Whoever listens on another file of that number is no process of the fence's.
            if !granted && !crate::sys::is_listened_on_inside(socket) {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
                return Err(Errno::CONNREFUSED);
            }
            Ok(())
        })
    }

    /// True where a socket of the fence's own network listens at a file. Its number may be another's too.
    fn is_listened_on(&self, there: &There) -> bool {
        let Some(diagnosis) = &self.charge.diagnosis else {
            return true;
        };
        let asking = lock(diagnosis);
        network::unix_listeners(&asking).is_ok_and(|listeners| listeners.contains(&(there.stat.st_ino & 0xffff_ffff)))
    }

    fn reach(
        self: &Arc<Self>,
        caller: &Caller,
        socket: OwnedFd,
        address: SocketAddr,
        bytes: Vec<u8>,
    ) -> Result<Done, Errno> {
        // To connect to no address is to connect to this machine (ip(7)).
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let address = SocketAddr::new(ip, address.port());
        if self.charge.mounted && (ip.is_loopback() || ip == OWN) {
            return self.make(caller, socket, move |socket| at(socket, &bytes, true));
        }
        if let Some(door) = self.charge.doors.iter().position(|door| door.is_at(address)) {
            return self.admit(caller, socket, door, address);
        }
        if !ip.is_loopback() {
            return self.reach_elsewhere(caller, socket, address);
        }
        let listener = self.own_listener(address).ok_or(Errno::CONNREFUSED)?;
        self.later(caller, move |supervisor| {
            let said = connect(&socket, &for_socket(&socket, address)?);
            // Still the same: nobody else took the port while it was connected to.
            if supervisor.own_listener(address) != Some(listener) && matches!(said, Ok(()) | Err(Errno::INPROGRESS)) {
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                return Err(Errno::CONNREFUSED);
            }
            said.map(|()| Done::Value(0))
        })
    }

    fn reach_elsewhere(self: &Arc<Self>, caller: &Caller, socket: OwnedFd, address: SocketAddr) -> Result<Done, Errno> {
        let port = address.port();
        if self.charge.ports.as_ref().is_some_and(|ports| !ports.contains(&port)) {
            self.refused(&format!("connect {address}"), "no rule names a host on that port");
            return Err(Errno::CONNREFUSED);
        }
        let elsewhere = self.charge.doors.iter().position(Door::is_elsewhere);
        match elsewhere.filter(|_| port != 0) {
            Some(door) => self.admit(caller, socket, door, address),
            None => Err(Errno::CONNREFUSED),
        }
    }

    /// The inode of the agent's own socket that listens at an address.
    fn own_listener(&self, address: SocketAddr) -> Option<u64> {
        let listening: HashSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| std::fs::read_to_string(table).ok())
            .flat_map(|table| listeners(&table, address))
            .collect();
        let known = lock(&self.sockets);
        // Where others listen there as well, it is not known whose the connection would be.
        let mut all = listening.iter();
        match (all.next(), listening.iter().all(|inode| known.inodes.contains(inode))) {
            (Some(first), true) => Some(*first),
            _ => None,
        }
    }

    pub(super) fn bind(&self, caller: &Caller) -> Result<Done, Errno> {
        let bytes = caller.address(1)?;
        let socket = caller.descriptor(caller.number(0))?;
        match read(&bytes)? {
            Address::None => Err(Errno::INVAL),
            Address::Internet(address) => {
                let inode = fstat(&socket)?.st_ino;
                bind(&socket, &loopback_for(&socket, address)?)?;
                lock(&self.sockets).inodes.insert(inode);
                Ok(Done::Value(0))
            }
            Address::Name if family_of(&bytes) == Some(libc::AF_UNIX) => {
                at(&socket, &bytes, false)?;
                let name = name_of(&socket)?;
                lock(&self.sockets).names.insert(name);
                Ok(Done::Value(0))
            }
            Address::Name => Err(Errno::INVAL),
            Address::Path(path) => {
                let place = find_name(caller, libc::AT_FDCWD, &self.instead(path))?;
                self.insist(&place.path(), self.may_make(&place, false), May::Write)?;
                let address = by_descriptor(&place.folder, Some(&place.name))?;
                // The kernel gives the name the mode of the socket itself.
                fchmod(&socket, Mode::from_raw_mode(0o777 & !caller.umask()))?;
                // Nothing else takes the name before it is looked at.
                let _alone = lock(&self.names);
                at(&socket, &address, false)?;
                let there = at_name(&place)?;
                if there.kind().is_socket() {
                    lock(&self.sockets).paths.insert(made(&there.open)?);
                }
                Ok(Done::Value(0))
            }
        }
    }

    /// Forgets a Unix socket whose name has been removed.
    pub(super) fn forget_socket(&self, open: &OwnedFd) {
        if let Ok(made) = made(open) {
            lock(&self.sockets).paths.remove(&made);
        }
    }

    pub(super) fn listen(&self, caller: &Caller) -> Result<Done, Errno> {
        let socket = caller.descriptor(caller.number(0))?;
        if matches!(
            sockopt::socket_domain(&socket)?,
            AddressFamily::INET | AddressFamily::INET6
        ) {
            // What was not bound here would be bound to every address of the machine, or, bound by the kernel when it
            // connected, could lose its address meanwhile. The kernel refuses to bind the latter.
            let inode = fstat(&socket)?.st_ino;
            if !lock(&self.sockets).inodes.contains(&inode) {
                let own = local(&socket)?;
                let nowhere = SocketAddr::new(
                    match own.ip() {
                        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                    },
                    0,
                );
                bind(&socket, &loopback_for(&socket, nowhere)?)?;
                lock(&self.sockets).inodes.insert(inode);
            }
        }
        listen(&socket, caller.number(1))?;
        Ok(Done::Value(0))
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

fn at(socket: &OwnedFd, bytes: &[u8], connect: bool) -> Result<(), Errno> {
    at_address(socket.as_fd(), bytes, connect).map_err(errno)
}

/// Where the agent listens when it asks for an address: on the loopback.
fn loopback_for(socket: &OwnedFd, address: SocketAddr) -> Result<SocketAddr, Errno> {
    let six = sockopt::socket_domain(socket)? == AddressFamily::INET6;
    let ip: IpAddr = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        // Every address of both kinds: most who connect to this machine use the older one.
        IpAddr::V6(ip) if ip.is_unspecified() && six && !sockopt::ipv6_v6only(socket)? => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip if ip.is_loopback() => ip,
        _ => return Err(Errno::ADDRNOTAVAIL),
    };
    for_socket(socket, SocketAddr::new(ip, address.port()))
}

/// The Unix address of a file, by way of a descriptor: it cannot be swapped, and a long path fits.
fn by_descriptor(open: &OwnedFd, name: Option<&OsStr>) -> Result<Vec<u8>, Errno> {
    let mut address = u16::try_from(libc::AF_UNIX).unwrap_or(1).to_ne_bytes().to_vec();
    address.extend_from_slice(format!("/proc/self/fd/{}", open.as_raw_fd()).as_bytes());
    if let Some(name) = name {
        address.push(b'/');
        address.extend_from_slice(name.as_bytes());
    }
    address.push(0);
    if address.len() > size_of::<libc::sockaddr_un>() {
        return Err(Errno::NAMETOOLONG);
    }
    Ok(address)
}

/// The Unix address of a socket that was bound without a path.
fn name_of(socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let own: SocketAddrAny = getsockname(socket)?;
    let own = rustix::net::SocketAddrUnix::try_from(own)?;
    let mut address = u16::try_from(libc::AF_UNIX).unwrap_or(1).to_ne_bytes().to_vec();
    address.push(0);
    address.extend_from_slice(own.abstract_name().ok_or(Errno::INVAL)?);
    Ok(address)
}

/// The inodes of sockets that listen at an address, from a table of the kernel's.
fn listeners(table: &str, wanted: SocketAddr) -> Vec<u64> {
    let row = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let own = fields.next()?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?.parse::<u64>().ok()?;
        let (address, port) = own.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let ip = ip_in_table(address)?;
        let same = ip.to_canonical() == wanted.ip().to_canonical() || ip.is_unspecified();
        (state == LISTENING && port == wanted.port() && same).then_some(inode)
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// An address in the kernel's table: words of four bytes in hexadecimal, each in the machine's own order.
fn ip_in_table(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for place in (0..text.len()).step_by(8) {
        let word = u32::from_str_radix(text.get(place..place.checked_add(8)?)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|bytes| Ipv4Addr::from(bytes).into()),
        16 => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|bytes| Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn in_table(ip: IpAddr) -> String {
        let words = |bytes: &[u8]| -> String {
            bytes
                .chunks_exact(4)
                .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())))
                .collect()
        };
        match ip {
            IpAddr::V4(ip) => words(&ip.octets()),
            IpAddr::V6(ip) => words(&ip.octets()),
        }
    }

    proptest! {
        #[test]
        fn p4_any_bytes_are_an_address_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..=MAX)) {
            if let Ok(Address::Path(path)) = read(&bytes) {
                let path = path.as_os_str().as_bytes();
                prop_assert!(!path.is_empty() && !path.contains(&0) && path.len() <= bytes.len() - PATH);
            }
        }

        #[test]
        fn p5_an_address_is_read_as_the_kernel_reads_it(ip in any::<IpAddr>(), port in any::<u16>(), rest in any::<[u8; 8]>()) {
            let (family, flow) = match ip {
                IpAddr::V4(_) => (libc::AF_INET, &[][..]),
                IpAddr::V6(_) => (libc::AF_INET6, &rest[..4]),
            };
            let octets = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let family = u16::try_from(family).unwrap().to_ne_bytes();
            let bytes = [&family[..], &port.to_be_bytes(), flow, &octets, &rest].concat();
            prop_assert!(matches!(read(&bytes), Ok(Address::Internet(found)) if found == SocketAddr::new(ip, port)));
            for short in 0..4 + flow.len() + octets.len() {
                prop_assert!(!matches!(read(&bytes[..short]), Ok(Address::Internet(_))));
            }
        }

        #[test]
        fn p4_any_table_is_read(table in "([ -~]{0,80}\n){0,6}", ip in any::<IpAddr>(), port in any::<u16>()) {
            listeners(&table, SocketAddr::new(ip, port));
        }

        #[test]
        fn p5_the_rows_of_one_address_are_found(ip in any::<IpAddr>(), port in any::<u16>(), inode in any::<u64>(), state in 1u8..=12) {
            let row = format!(
                "head\n   0: {}:{port:04X} 00000000:0000 {state:02X} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 x",
                in_table(ip)
            );
            let found = listeners(&row, SocketAddr::new(ip, port));
            prop_assert_eq!(found, if state == 10 { vec![inode] } else { vec![] });
            prop_assert!(listeners(&row, SocketAddr::new(ip, port ^ 1)).is_empty());
        }
    }

    /// Longest address (`struct sockaddr_storage`).
    const MAX: usize = 128;

    #[test]
    fn the_kernels_table_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = fstat(&listener).unwrap().st_ino;
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(listeners(&table, at), [inode]);
        assert!(!listeners(&table, SocketAddr::new(at.ip(), at.port() ^ 1)).contains(&inode));
        let six = std::net::TcpListener::bind("[::1]:0").unwrap();
        let table = std::fs::read_to_string("/proc/net/tcp6").unwrap();
        assert_eq!(
            listeners(&table, six.local_addr().unwrap()),
            [fstat(&six).unwrap().st_ino]
        );
    }
}
