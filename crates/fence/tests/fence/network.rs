//! The network: a loopback of its own, and what is served there from outside.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use bailiwick_gate::{Listen, ListenKind};

use crate::desk::{Desk, Who, probe};

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
    for who in Who::all() {
        let mut desk = Desk::of(who);
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
    for who in Who::all() {
        let desk = Desk::of(who);
        let name = format!("bailiwick-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        desk.only_outside(&format!("{} abstract {name}", probe().display()));
    }
}

#[test]
fn p1_there_is_no_network_but_the_loopback() {
    for who in Who::all() {
        let desk = Desk::of(who);
        assert_eq!(desk.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1").good(), "lo");
        assert_eq!(desk.sh("tail -n +2 /proc/net/route").good(), "");
    }
}
