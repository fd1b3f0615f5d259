//! The network: a loopback of its own, and what is served there from outside.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use bailiwick_gate::{Listen, ListenKind};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::desk::{Desk, Setting, probe};

fn answer_once(listener: TcpListener, text: &'static str) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut ping = [0u8; 4];
        stream.read_exact(&mut ping).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
    })
}

#[test]
fn p1_the_loopback_outside_is_not_reached_and_a_served_socket_is() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        let served = answer_once(outside, "outside");
        desk.only_outside(&format!("{} tcp {port}", probe().display()));
        served.join().unwrap();

        let listen = |port, kind| Listen {
            address: Ipv4Addr::LOCALHOST,
            port,
            kind,
        };
        // Also a port that needs a privilege, and the one that is somebody else's outside.
        desk.plan.listen = vec![
            listen(port, ListenKind::Stream),
            listen(53, ListenKind::Datagram),
            listen(80, ListenKind::Stream),
        ];
        let script = format!(
            "{} tcp {port} && {} tcp 80 && /usr/bin/python3 -c \"import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.sendto(b'ask', ('127.0.0.1', 53))\nprint(s.recv(9).decode())\"",
            probe().display(),
            probe().display()
        );
        let (mut started, [mut out, _err], _into) = desk.start(&["bash", "-c", &script]).unwrap();
        let mut sockets = started.listeners.drain(..);
        let first = answer_once(TcpListener::from(sockets.next().unwrap()), "gate");
        let names = UdpSocket::from(sockets.next().unwrap());
        let second = answer_once(TcpListener::from(sockets.next().unwrap()), "web");
        let look_up = std::thread::spawn(move || {
            let mut ask = [0u8; 9];
            let (_, from) = names.recv_from(&mut ask).unwrap();
            names.send_to(b"answer", from).unwrap();
        });
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        for thread in [first, second, look_up] {
            thread.join().unwrap();
        }
        assert_eq!(text, "gate\nweb\nanswer\n");
        drop(sockets);
        assert_eq!(started.child.wait(), 0);
    }
}

#[test]
fn p1_abstract_sockets_outside_are_not_reached() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let name = format!("bailiwick-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        desk.only_outside(&format!("{} abstract {name}", probe().display()));
    }
}

#[test]
fn p1_there_is_no_network_but_the_loopback() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        if setting.is_process() {
            // The network is the machine's, and not for the agent to look at.
            desk.only_outside("cat /proc/net/dev");
            desk.only_outside("cat /proc/self/net/tcp");
            continue;
        }
        assert_eq!(desk.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1").good(), "lo");
        assert_eq!(desk.sh("tail -n +2 /proc/net/route").good(), "");
    }
}

/// Takes a connection that the fence hands out.
fn handed(door: &OwnedFd) -> TcpStream {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let into = &mut [std::io::IoSliceMut::new(&mut byte)];
    recvmsg(door, into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let connection = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    TcpStream::from(connection.unwrap())
}

#[test]
fn p1_without_a_network_of_its_own_a_fence_has_doors_and_its_own_servers() {
    for setting in Setting::all().into_iter().filter(|setting| setting.is_process()) {
        let mut desk = Desk::of(setting);
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        let served = answer_once(outside.try_clone().unwrap(), "outside");
        desk.only_outside(&format!("{} tcp {port}", probe().display()));
        served.join().unwrap();
        // Only the one who listens inside is reached there, on whatever address it asked to listen.
        let own = "import socket,threading\n\
            def serve(family, address):\n  s = socket.socket(family); s.bind((address, 0)); s.listen(1)\n  \
            threading.Thread(target=lambda: s.accept()[0].sendall(b'own'), daemon=True).start()\n  return s\n\
            for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')]:\n  \
            s = serve(family, address); at = s.getsockname()\n  \
            assert at[0] in ('127.0.0.1', '::ffff:127.0.0.1'), at\n  \
            print(socket.create_connection(('127.0.0.1', at[1])).recv(9).decode())\n\
            s = socket.socket(); s.listen(1); print(s.getsockname()[0])";
        assert_eq!(
            desk.run(&["/usr/bin/python3", "-c", own]).good(),
            "own\nown\nown\n127.0.0.1"
        );
        let bind_out = "import socket; socket.socket().bind(('192.0.2.1', 0))";
        desk.run(&["/usr/bin/python3", "-c", bind_out]).bad();
        // A door stands where somebody else listens outside; it has no address of its own.
        let listen = |address, port| Listen {
            address,
            port,
            kind: ListenKind::Stream,
        };
        desk.plan.listen = vec![listen(Ipv4Addr::LOCALHOST, port), listen(Ipv4Addr::UNSPECIFIED, 443)];
        let script = format!(
            "{} tcp {port}; /usr/bin/python3 -c \"import socket; print(socket.create_connection(('127.64.1.2', 443)).recv(9).decode())\"",
            probe().display()
        );
        let (mut started, [mut out, _err], _into) = desk.start(&["bash", "-c", &script]).unwrap();
        let mut doors = started.listeners.drain(..);
        let (first, second) = (doors.next().unwrap(), doors.next().unwrap());
        let mut connection = handed(&first);
        let mut ping = [0u8; 4];
        connection.read_exact(&mut ping).unwrap();
        connection.write_all(b"door").unwrap();
        drop(connection);
        let mut connection = handed(&second);
        assert_eq!(connection.local_addr().unwrap().ip(), Ipv4Addr::new(127, 64, 1, 2));
        connection.write_all(b"name").unwrap();
        drop(connection);
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["door", "name"]);
        assert_eq!(started.child.wait(), 0);
        drop(outside);
    }
}
