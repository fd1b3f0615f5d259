//! What the first process does inside for the daemon while the program runs: it connects to a port of the loopback
//! there, and puts copies of files into the hand-over folder.
//!
//! Promises: P1 (what is handed in lands in the one folder, whatever the program plants there), P4 (sizes and names
//! have limits).
//! Trust: errands come from the daemon, for the person. The folder is the program's own to write in: no link in it is
//! followed, nothing in it is replaced, and the folder itself is held from before the program began. This process has
//! no capabilities, and never waits longer than [`PATIENCE`].
//! See: openat2(2), rename(2), connect(2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use bailiwick_gate::LaunchFault;
use bailiwick_model::AbsPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::channel::Channel;
use crate::fault::{Says, cause};
use crate::order::Errand;

/// Largest file that is put inside, in bytes.
pub const MAX_FILE: u64 = 64 << 20;

/// Longest path in the hand-over folder, in bytes, and its most parts.
const MAX_PATH: (usize, usize) = (1024, 32);

/// What a file is called until it is whole.
const PASSING: &str = ".bailiwick-passing";

/// How long a connection inside may take before it is handed out as it is.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Opens the hand-over folder, before the program begins.
pub(crate) fn folder(path: &AbsPath) -> Result<OwnedFd, LaunchFault> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path.to_path_buf(), flags, Mode::empty()).or_say(|| format!("cannot open `{path}` inside"))
}

/// Does an errand. The error is its cause, for people.
pub(crate) fn run(
    errand: Errand,
    channel: &mut Channel,
    handover: Option<&OwnedFd>,
) -> Result<Option<OwnedFd>, String> {
    let folder = || handover.ok_or("this task has no folder for it".to_owned());
    match errand {
        Errand::Connect { port } => reach(port).map(Some),
        Errand::PlaceFolder { path } => {
            let (parent, name) = parent_of(folder()?, &path)?;
            rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(of_errno)?;
            Ok(None)
        }
        Errand::PlaceFile { path, executable } => {
            // Taken first: what came along belongs to this errand, also when it fails.
            let content = channel.take().map_err(|error| error.to_string())?;
            place(folder()?, &path, &content, executable).map(|()| None)
        }
    }
}

fn of_errno(errno: Errno) -> String {
    match errno {
        Errno::EXIST => "there is something of this name already".into(),
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => "what stands there is no folder of this hand-over".into(),
        other => cause(other),
    }
}

/// Connects to a port of the loopback inside: a server listens on one of its two addresses, or on both.
fn reach(port: u16) -> Result<OwnedFd, String> {
    let mut last = Errno::CONNREFUSED;
    for address in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ] {
        match reach_at(&address) {
            Ok(socket) => return Ok(socket),
            Err(errno) => last = errno,
        }
    }
    Err(cause(last))
}

fn reach_at(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) => Ok(socket),
        Err(Errno::INPROGRESS) => {
            // A server whose queue is full answers later: whoever gets the socket waits for it.
            let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&PATIENCE));
            sockopt::socket_error(&socket)?.map(|()| socket)
        }
        Err(errno) => Err(errno),
    }
}

/// The folder that is to hold a path, and the path's last part.
fn parent_of<'a>(folder: &OwnedFd, path: &'a str) -> Result<(OwnedFd, &'a str), String> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255 && !part.contains('\0');
    let (longest, deepest) = MAX_PATH;
    if path.len() > longest || path.split('/').count() > deepest || !path.split('/').all(plain) {
        return Err(format!("its name is not plain, or longer than {longest} bytes"));
    }
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let parent = openat2(folder, parent, flags, Mode::empty(), how).map_err(of_errno)?;
    Ok((parent, name))
}

/// Copies a file to its place, which must be free. It appears there whole.
fn place(folder: &OwnedFd, path: &str, content: &OwnedFd, executable: bool) -> Result<(), String> {
    let (parent, name) = parent_of(folder, path)?;
    let size = rustix::fs::fstat(content).map_err(of_errno)?.st_size;
    if u64::try_from(size).map_or(true, |size| size > MAX_FILE) {
        return Err(format!("it has more than {MAX_FILE} bytes"));
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What the program put there is only in its own way.
    let _ = rustix::fs::unlinkat(&parent, PASSING, AtFlags::empty());
    let made = openat(&parent, PASSING, flags, Mode::from_raw_mode(0o600)).map_err(of_errno)?;
    let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
    let done = copy(content, &made)
        .and_then(|()| rustix::fs::fchmod(&made, mode))
        .and_then(|()| rustix::fs::renameat_with(&parent, PASSING, &parent, name, RenameFlags::NOREPLACE));
    if done.is_err() {
        let _ = rustix::fs::unlinkat(&parent, PASSING, AtFlags::empty());
    }
    done.map_err(of_errno)
}

fn copy(from: impl AsFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0u8; 256 * 1024];
    let mut offset = 0u64;
    while offset <= MAX_FILE {
        let got = rustix::io::pread(&from, &mut buffer, offset)?;
        let mut rest = buffer.get(..got).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        offset = offset.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        while !rest.is_empty() {
            let wrote = rustix::io::write(to, rest)?;
            rest = rest.get(wrote..).unwrap_or_default();
        }
    }
    Err(Errno::FBIG)
}
