//! Telling something to a server on this machine, by every kind of socket, past any proxy.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::any;
use crate::sys::{Arg, call};
use crate::{Attempt, Goal, Needs, Refused, Tried, World};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn port(world: &World, place: usize) -> u16 {
    world.ports.get(place).copied().unwrap_or(0)
}

fn own(world: &World) -> Result<IpAddr, Refused> {
    world
        .own_address
        .map(IpAddr::V4)
        .ok_or_else(|| Refused::NotHere("no address but loopback".into()))
}

fn stream(world: &World, to: IpAddr) -> Tried {
    let address = SocketAddr::new(to, port(world, 0));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.write_all(world.word.as_bytes())?;
    Ok("said".into())
}

fn datagram(world: &World, to: IpAddr, port: u16) -> Tried {
    let any = if to.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    UdpSocket::bind((any, 0))?.send_to(world.word.as_bytes(), (to, port))?;
    Ok("sent".into())
}

/// The address of a loopback port, as the kernel takes it.
fn address(port: u16) -> Vec<u8> {
    address_of(Ipv4Addr::LOCALHOST, port)
}

fn address_of(to: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = 2u16.to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(to.octets());
    bytes.resize(16, 0);
    bytes
}

/// Says something to an address that no proxy variable leads to, and waits for an answer.
fn straight(world: &World, words: &str) -> Tried {
    let to = SocketAddr::new(own(world)?, port(world, 0));
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(words.as_bytes())?;
    let mut answer = [0u8; 64];
    match std::io::Read::read(&mut stream, &mut answer)? {
        0 => Err("closed".into()),
        got => Ok(String::from_utf8_lossy(answer.get(..got).unwrap_or_default()).into_owned()),
    }
}

fn socket(family: i32, kind: i32, protocol: i32) -> Result<i64, Refused> {
    Ok(call(
        libc::SYS_socket,
        [Arg::N(family.into()), Arg::N(kind.into()), Arg::N(protocol.into())],
    )?)
}

/// A socket of this kind that is connected and written to.
fn connected(world: &World, kind: i32, protocol: i32) -> Tried {
    let socket = socket(libc::AF_INET, kind, protocol)?;
    let to = address(port(world, 0));
    call(libc::SYS_connect, [Arg::N(socket), Arg::In(&to), Arg::N(16)])?;
    let word = world.word.as_bytes();
    call(
        libc::SYS_write,
        [Arg::N(socket), Arg::In(word), Arg::N(word.len() as i64)],
    )?;
    Ok("said".into())
}

/// A datagram of UDP, as raw bytes behind the head of the network's layer.
fn raw_datagram(world: &World) -> Vec<u8> {
    let word = world.word.as_bytes();
    let mut bytes = 4242u16.to_be_bytes().to_vec();
    bytes.extend(port(world, 1).to_be_bytes());
    bytes.extend(u16::try_from(8 + word.len()).unwrap_or(8).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(word);
    bytes
}

/// A question for a name that begins with the word.
fn question(word: &str) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [word, "bait", "test"] {
        bytes.push(u8::try_from(label.len()).unwrap_or(1));
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

pub(super) fn attempts() -> Vec<Attempt> {
    let tell = |id, act| Attempt::new(id, Goal::Tell, act);
    let gain = |id, act| Attempt::new(id, Goal::Gain, act);
    vec![
        tell("network-stream", |world| stream(world, HERE)),
        tell("network-stream-6", |world| {
            stream(world, IpAddr::V6(Ipv6Addr::LOCALHOST))
        }),
        tell("network-stream-mapped", |world| {
            stream(world, IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()))
        }),
        tell("network-stream-own-address", |world| stream(world, own(world)?)),
        tell("network-stream-unspecified", |world| {
            stream(world, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        }),
        tell("network-stream-other-loopback", |world| {
            stream(world, IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9)))
        }),
        tell("network-stream-own-address-mapped", |world| match own(world)? {
            IpAddr::V4(address) => stream(world, IpAddr::V6(address.to_ipv6_mapped())),
            IpAddr::V6(_) => Err(Refused::NotHere("no address of the older kind".into())),
        }),
        tell("network-straight-named-as-this-machine", |world| {
            let (word, port) = (&world.word, port(world, 0));
            straight(
                world,
                &format!("GET /{word} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
            )
        }),
        tell("network-straight-named-as-the-loopback", |world| {
            let (word, port) = (&world.word, port(world, 0));
            straight(
                world,
                &format!("GET /{word} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
            )
        }),
        tell("network-straight-whole-url", |world| {
            let (word, port) = (&world.word, port(world, 0));
            straight(
                world,
                &format!("GET http://127.0.0.1:{port}/{word} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
            )
        }),
        tell("network-straight-asked-to-connect", |world| {
            let (word, port) = (&world.word, port(world, 0));
            straight(
                world,
                &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: {word}\r\n\r\n{word}"),
            )
        }),
        tell("network-straight-no-words-of-http", |world| {
            straight(world, &format!("SSH-2.0-{}\r\n", world.word))
        }),
        tell("network-connected-anew", |world| {
            // A socket that was connected where it may be, dropped, and connected elsewhere.
            let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
            let (first, none) = (address(port(world, 0)), [0u8; 16]);
            let IpAddr::V4(own) = own(world)? else {
                return Err(Refused::NotHere("no address of the older kind".into()));
            };
            let second = address_of(own, port(world, 0));
            let connect = |to: &[u8]| call(libc::SYS_connect, [Arg::N(socket), Arg::In(to), Arg::N(16)]);
            let _ = connect(&first);
            connect(&none)?;
            connect(&second)?;
            let word = world.word.as_bytes();
            call(
                libc::SYS_write,
                [Arg::N(socket), Arg::In(word), Arg::N(word.len() as i64)],
            )?;
            std::thread::sleep(Duration::from_millis(50));
            Ok("said".into())
        }),
        tell("network-datagram", |world| datagram(world, HERE, port(world, 1))),
        tell("network-datagram-6", |world| {
            datagram(world, IpAddr::V6(Ipv6Addr::LOCALHOST), port(world, 1))
        }),
        tell("network-datagram-own-address", |world| {
            datagram(world, own(world)?, port(world, 1))
        }),
        tell("network-datagram-connected", |world| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect((HERE, port(world, 1)))?;
            socket.send(world.word.as_bytes())?;
            Ok("sent".into())
        }),
        tell("network-raw-names", |world| {
            UdpSocket::bind("127.0.0.1:0")?.send_to(&question(&world.word), (HERE, port(world, 1)))?;
            Ok("asked".into())
        }),
        tell("network-raw-names-own-address", |world| {
            UdpSocket::bind("0.0.0.0:0")?.send_to(&question(&world.word), (own(world)?, port(world, 1)))?;
            Ok("asked".into())
        }),
        tell("network-multipath", |world| connected(world, libc::SOCK_STREAM, 262)),
        tell("network-other-stream", |world| connected(world, libc::SOCK_STREAM, 132)),
        tell("network-sent-while-connecting", |world| {
            let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
            let to = address(port(world, 0));
            let word = world.word.as_bytes();
            let flags = i64::from(libc::MSG_FASTOPEN);
            call(
                libc::SYS_sendto,
                [
                    Arg::N(socket),
                    Arg::In(word),
                    Arg::N(word.len() as i64),
                    Arg::N(flags),
                    Arg::In(&to),
                    Arg::N(16),
                ],
            )?;
            std::thread::sleep(Duration::from_millis(50));
            Ok("sent".into())
        }),
        tell("network-connecting-put-off", |world| {
            let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
            let on = 1i32.to_ne_bytes();
            call(
                libc::SYS_setsockopt,
                [Arg::N(socket), Arg::N(6), Arg::N(30), Arg::In(&on), Arg::N(4)],
            )?;
            let to = address(port(world, 0));
            call(libc::SYS_connect, [Arg::N(socket), Arg::In(&to), Arg::N(16)])?;
            let word = world.word.as_bytes();
            call(
                libc::SYS_write,
                [Arg::N(socket), Arg::In(word), Arg::N(word.len() as i64)],
            )?;
            std::thread::sleep(Duration::from_millis(50));
            Ok("said".into())
        }),
        tell("network-message-with-address", |world| {
            let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
            let (to, word) = (address(port(world, 1)), world.word.as_bytes());
            let part = [
                crate::sys::address(word).to_ne_bytes(),
                (word.len() as u64).to_ne_bytes(),
            ]
            .concat();
            let head = [crate::sys::address(&to), 16, crate::sys::address(&part), 1, 0, 0, 0]
                .map(u64::to_ne_bytes)
                .concat();
            call(libc::SYS_sendmsg, [Arg::N(socket), Arg::In(&head), Arg::N(0)])?;
            Ok("sent".into())
        }),
        tell("network-light-datagram", |world| {
            // A server for plain datagrams does not hear it: what counts is that the socket is there.
            socket(libc::AF_INET, libc::SOCK_DGRAM, 136)?;
            datagram(world, HERE, port(world, 1))
        }),
        tell("network-raw", |world| {
            let socket = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP)?;
            let (bytes, to) = (raw_datagram(world), address(0));
            call(
                libc::SYS_sendto,
                [
                    Arg::N(socket),
                    Arg::In(&bytes),
                    Arg::N(bytes.len() as i64),
                    Arg::N(0),
                    Arg::In(&to),
                    Arg::N(16),
                ],
            )?;
            Ok("sent".into())
        })
        .needs(Needs::Root),
        gain("network-packets", |_| {
            socket(17, libc::SOCK_RAW, 0x0300).map(|_| "listening to all".into())
        })
        .needs(Needs::Root),
        gain("network-echo", |_| {
            let groups = std::fs::read_to_string("/proc/sys/net/ipv4/ping_group_range").unwrap_or_default();
            if groups.split_whitespace().collect::<Vec<_>>() == ["1", "0"] {
                return Err(Refused::NotHere("no group may have such sockets".into()));
            }
            socket(libc::AF_INET, libc::SOCK_DGRAM, 1).map(|_| "made".into())
        }),
        gain("network-kernel-sockets-listed", |_| {
            socket(16, libc::SOCK_RAW, 4).map(|_| "made".into())
        }),
        gain("network-kernel-events", |_| {
            socket(16, libc::SOCK_RAW, 15).map(|_| "made".into())
        }),
        gain("network-kernel-generic", |_| {
            socket(16, libc::SOCK_RAW, 16).map(|_| "made".into())
        }),
        gain("network-kernel-crypto", |_| {
            socket(16, libc::SOCK_RAW, 21).map(|_| "made".into())
        }),
        gain("network-kernel-filters", |_| {
            socket(16, libc::SOCK_RAW, 12).map(|_| "made".into())
        }),
        gain("network-kernel-ciphers", |_| {
            socket(38, libc::SOCK_SEQPACKET, 0).map(|_| "made".into())
        }),
        gain("network-kernel-keys", |_| {
            socket(15, libc::SOCK_RAW, 2).map(|_| "made".into())
        }),
        gain("network-virtual-machine", |_| {
            socket(40, libc::SOCK_STREAM, 0).map(|_| "made".into())
        }),
        gain("network-fast-packets", |_| {
            socket(44, libc::SOCK_RAW, 0).map(|_| "made".into())
        })
        .needs(Needs::Root),
        gain("network-radio", |_| {
            any([31, 39, 36].map(|family| socket(family, libc::SOCK_RAW, 0).map(|_| "made".into())))
        }),
        gain("network-cluster", |_| {
            any([30, 21].map(|family| socket(family, libc::SOCK_SEQPACKET, 0).map(|_| "made".into())))
        }),
        gain("network-device-changed", |_| {
            // RTM_NEWLINK for the first device, with nothing to change.
            let socket = socket(16, libc::SOCK_RAW, 0)?;
            let mut message = 32u32.to_ne_bytes().to_vec();
            message.extend(16u16.to_ne_bytes());
            message.extend(5u16.to_ne_bytes());
            message.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            message.extend(1i32.to_ne_bytes());
            message.extend([0; 8]);
            call(libc::SYS_write, [Arg::N(socket), Arg::In(&message), Arg::N(32)])?;
            let mut answer = [0u8; 64];
            call(libc::SYS_read, [Arg::N(socket), Arg::Out(&mut answer), Arg::N(64)])?;
            match answer.get(16..20) {
                Some([0, 0, 0, 0]) => Ok("changed".into()),
                _ => Err("refused".into()),
            }
        })
        .needs(Needs::Root),
    ]
}
