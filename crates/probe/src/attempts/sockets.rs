//! Unix sockets of the machine: by path, by name, as stream, as datagram.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;

use super::any;
use crate::sys::{Arg, call};
use crate::{Attempt, Goal, Refused, Tried, World};

fn say(mut stream: UnixStream, world: &World) -> Tried {
    std::io::Write::write_all(&mut stream, world.word.as_bytes())?;
    Ok("said".into())
}

fn by_path(path: impl AsRef<Path>, world: &World) -> Tried {
    say(UnixStream::connect(path)?, world)
}

fn datagram(address: &SocketAddr, world: &World) -> Tried {
    UnixDatagram::unbound()?.send_to_addr(world.word.as_bytes(), address)?;
    Ok("sent".into())
}

/// The address of an abstract name, as the kernel takes it.
fn bytes_of(name: &str) -> Vec<u8> {
    let mut bytes = 1u16.to_ne_bytes().to_vec();
    bytes.push(0);
    bytes.extend(name.bytes());
    bytes
}

/// A name of the world.
fn name(world: &World, place: usize) -> Result<String, Refused> {
    world
        .names
        .get(place)
        .cloned()
        .ok_or_else(|| "the world has no such name".into())
}

pub(super) fn attempts() -> Vec<Attempt> {
    let tell = |id, act| Attempt::new(id, Goal::Tell, act);
    vec![
        tell("sockets-path", |world| by_path(world.place_of_socket(0), world)),
        tell("sockets-path-in-project", |world| {
            by_path(world.place_of_socket(1), world)
        }),
        tell("sockets-path-relative", |world| {
            let name = world.place_of_socket(1);
            by_path(name.file_name().unwrap_or_default(), world)
        }),
        tell("sockets-path-by-link", |world| {
            by_path(world.project.join("laid/to-socket"), world)
        }),
        tell("sockets-path-by-proc", |world| {
            let inside = world.place_of_socket(0);
            let inside = inside.strip_prefix("/").unwrap_or(&inside);
            any(["/proc/1/root", "/proc/self/root"].map(|root| by_path(Path::new(root).join(inside), world)))
        }),
        tell("sockets-path-by-hard-link", |world| {
            let name = world.project.join("linked-socket");
            std::fs::hard_link(world.place_of_socket(1), &name)?;
            let done = by_path(&name, world);
            std::fs::remove_file(&name)?;
            done
        }),
        tell("sockets-path-renamed", |world| {
            let (from, to) = (world.place_of_socket(1), world.project.join("renamed-socket"));
            std::fs::rename(&from, &to)?;
            let done = by_path(&to, world);
            std::fs::rename(&to, &from)?;
            done
        }),
        tell("sockets-path-handle", |world| {
            // Connecting to a descriptor that names it.
            let path = crate::sys::text(world.place_of_socket(1));
            let here = i64::from(libc::AT_FDCWD);
            let held = call(
                libc::SYS_openat,
                [Arg::N(here), Arg::Text(&path), Arg::N(libc::O_PATH.into())],
            )?;
            by_path(format!("/proc/self/fd/{held}"), world)
        }),
        tell("sockets-path-datagram", |world| {
            datagram(&SocketAddr::from_pathname(world.place_of_socket(2))?, world)
        }),
        tell("sockets-abstract", |world| {
            say(
                UnixStream::connect_addr(&SocketAddr::from_abstract_name(name(world, 0)?)?)?,
                world,
            )
        }),
        tell("sockets-abstract-datagram", |world| {
            datagram(&SocketAddr::from_abstract_name(name(world, 1)?)?, world)
        }),
        tell("sockets-abstract-packets", |world| {
            let socket = call(
                libc::SYS_socket,
                [Arg::N(1), Arg::N(libc::SOCK_SEQPACKET.into()), Arg::N(0)],
            )?;
            let address = bytes_of(&name(world, 2)?);
            call(
                libc::SYS_connect,
                [Arg::N(socket), Arg::In(&address), Arg::N(address.len() as i64)],
            )?;
            let word = world.word.as_bytes();
            call(
                libc::SYS_write,
                [Arg::N(socket), Arg::In(word), Arg::N(word.len() as i64)],
            )?;
            Ok("said".into())
        }),
        tell("sockets-abstract-unconnected", |world| {
            let socket = call(
                libc::SYS_socket,
                [Arg::N(1), Arg::N(libc::SOCK_DGRAM.into()), Arg::N(0)],
            )?;
            let address = bytes_of(&name(world, 1)?);
            let word = world.word.as_bytes();
            let (word, to) = (
                [Arg::In(word), Arg::N(word.len() as i64)],
                [Arg::In(&address), Arg::N(address.len() as i64)],
            );
            let ([word, length], [to, size]) = (word, to);
            call(libc::SYS_sendto, [Arg::N(socket), word, length, Arg::N(0), to, size])?;
            Ok("sent".into())
        }),
        Attempt::new("sockets-of-bailiwick", Goal::Gain, |world| {
            // The judge listens there in the daemon's place where the daemon does not.
            UnixStream::connect(world.state.join("daemon.sock"))?;
            Ok("connected".into())
        }),
        tell("sockets-of-the-desktop", |world| {
            by_path(world.home.join(".desk/bus"), world)
        }),
    ]
}
