//! The network: a loopback of its own, and what is served there from outside.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use bailiwick_gate::{Handed, Listen, ListenKind, MAX_HANDED};
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

/// Everything that is not the fence's own.
const ELSEWHERE: Listen = Listen {
    address: Ipv4Addr::UNSPECIFIED,
    port: 0,
    kind: ListenKind::Elsewhere,
};

/// What the supervisor says to the gate: the message, and the connection that comes along.
fn message(door: &OwnedFd) -> (Handed, Option<TcpStream>) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0u8; MAX_HANDED];
    let got = recvmsg(
        door,
        &mut [std::io::IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .unwrap();
    let connection = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    let text = std::str::from_utf8(&text[..got.bytes]).unwrap();
    (text.parse().unwrap(), connection.map(TcpStream::from))
}

/// True when nothing more comes.
fn is_over(door: &OwnedFd) -> bool {
    rustix::net::recv(door, &mut [0u8; 1][..], rustix::net::RecvFlags::PEEK).is_ok_and(|(got, _)| got == 0)
}

/// A gate that greets each connection with the address that it was made to, and writes down all that it is told. It ends
/// with the fence.
fn gate(door: OwnedFd) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        loop {
            let mut ready = [rustix::event::PollFd::new(&door, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).unwrap();
            if ready[0].revents().contains(rustix::event::PollFlags::HUP) && is_over(&door) {
                return heard;
            }
            match message(&door) {
                (Handed::Connection(address), Some(mut stream)) => {
                    let _ = stream.write_all(format!("gate {address}\n").as_bytes());
                    heard.push(address.to_string());
                }
                (Handed::Refused { what, .. }, None) => heard.push(format!("refused {what}")),
                other => panic!("{other:?}"),
            }
        }
    })
}

/// Runs a script in Python in a fence whose every other address is served; its output, and what the gate heard.
#[track_caller]
fn with_gate(desk: &mut Desk, script: &str) -> (String, Vec<String>) {
    desk.plan.listen = vec![ELSEWHERE];
    let (mut started, [mut out, mut err], into) = desk.start(&["/usr/bin/python3", "-c", script]).unwrap();
    drop(into);
    let gate = gate(started.listeners.remove(0));
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).unwrap();
        text
    });
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let status = started.child.wait();
    let errors = errors.join().unwrap();
    assert_eq!(status, 0, "{errors}");
    (text, gate.join().unwrap())
}

#[test]
fn c030_every_other_address_is_the_gates_and_looks_like_itself() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        let script = "import socket, select, errno\n\
            def ask(address, family=socket.AF_INET):\n\
            \x20 s = socket.socket(family); s.settimeout(9); s.connect(address)\n\
            \x20 return s.makefile().readline().strip(), s.getpeername()[:2], s\n\
            for address in [('93.184.216.34', 443), ('93.184.216.34', 5432), ('169.254.169.254', 80), ('10.0.0.5', 22), ('198.19.0.7', 6379)]:\n\
            \x20 said, peer, s = ask(address); print(said); peers = [address, ('127.0.0.1', peer[1])]; assert peer in peers, peer\n\
            \x20 s.connect_ex(address); assert s.connect_ex(address) == errno.EISCONN\n\
            print(ask(('2606::1', 22), socket.AF_INET6)[0])\n\
            print(ask(('::ffff:1.2.3.4', 9999), socket.AF_INET6)[0])\n\
            # One that does not wait is told that it is under way, and then has no error.\n\
            s = socket.socket(); s.setblocking(False); assert s.connect_ex(('1.1.1.1', 853)) == errno.EINPROGRESS\n\
            assert select.select([], [s], [], 9)[1] and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0\n\
            assert s.connect_ex(('1.1.1.1', 853)) in (0, errno.EISCONN); select.select([s], [], [], 9); print(s.recv(99).decode().strip())\n\
            # A dropped end connects anew.\n\
            import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
            assert libc.connect(s.fileno(), bytes(16), 16) == 0\n\
            s.setblocking(True); s.connect(('1.1.1.1', 854)); print(s.recv(99).decode().strip())\n\
            assert socket.socket().connect_ex(('1.1.1.1', 0)) == errno.ECONNREFUSED\n\
            assert socket.socket().connect_ex(('127.0.0.1', 1)) == errno.ECONNREFUSED";
        let (out, heard) = with_gate(&mut desk, script);
        let want = [
            "93.184.216.34:443",
            "93.184.216.34:5432",
            "169.254.169.254:80",
            "10.0.0.5:22",
            "198.19.0.7:6379",
            "[2606::1]:22",
            "1.2.3.4:9999",
            "1.1.1.1:853",
            "1.1.1.1:854",
        ];
        assert_eq!(heard, want);
        assert_eq!(out, want.map(|address| format!("gate {address}\n")).concat());
    }
}

#[test]
fn p1_ports_that_no_rule_names_are_refused_at_once_and_told_once() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.plan.ports = Some(vec![443]);
        let script = "import socket, errno\n\
            for _ in range(9):\n\
            \x20 assert socket.socket().connect_ex(('93.184.216.34', 22)) == errno.ECONNREFUSED\n\
            s = socket.socket(); s.connect(('93.184.216.34', 443)); print(s.recv(99).decode().strip())";
        let (out, heard) = with_gate(&mut desk, script);
        assert_eq!(out, "gate 93.184.216.34:443\n");
        assert_eq!(heard, ["refused connect 93.184.216.34:22", "93.184.216.34:443"]);
    }
}

#[test]
fn p1_a_gate_that_does_not_listen_holds_up_nobody() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.plan.listen = vec![ELSEWHERE];
        // More than fit between the two, and meanwhile all else goes on.
        let script = "import socket, errno, time, os\n\
            t = time.monotonic(); kept = []\n\
            for n in range(2000):\n\
            \x20 s = socket.socket(); kept.append(s); code = s.connect_ex(('93.184.216.34', 443))\n\
            \x20 if code: break\n\
            assert code == errno.ECONNREFUSED, code\n\
            l = socket.create_server(('127.0.0.1', 0)); socket.create_connection(l.getsockname()); os.mkdir('made')\n\
            assert time.monotonic() - t < 20";
        let (mut started, _ends, _into) = desk.start(&["/usr/bin/python3", "-c", script]).unwrap();
        assert_eq!(started.child.wait(), 0);
        std::fs::remove_dir(desk.at("project/made")).unwrap();
    }
}

#[test]
fn many_threads_connect_at_once() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        let script = "import socket, threading\n\
            l = socket.create_server(('127.0.0.1', 0), backlog=128)\n\
            def serve():\n\
            \x20 while True: l.accept()[0].sendall(b'own\\n')\n\
            threading.Thread(target=serve, daemon=True).start()\n\
            said = []\n\
            def go(n):\n\
            \x20 for at in [l.getsockname(), ('93.184.216.34', 443), (f'1.2.3.{n}', 5432)]:\n\
            \x20  s = socket.create_connection(at, 20); said.append(s.makefile().readline().strip())\n\
            all = [threading.Thread(target=go, args=(n,)) for n in range(64)]\n\
            [t.start() for t in all]; [t.join() for t in all]\n\
            print(said.count('own'), said.count('gate 93.184.216.34:443'), len(set(said)))";
        let (out, heard) = with_gate(&mut desk, script);
        assert_eq!(out, "64 64 66\n");
        assert_eq!(heard.len(), 128);
    }
}

#[test]
fn a_connection_that_waits_feels_a_signal_and_holds_up_no_other() {
    for setting in Setting::with_namespaces() {
        let desk = Desk::of(setting);
        // A listener that is full lets nobody in: the kernel drops who knocks.
        let script = "import socket, threading, signal, errno, time, os\n\
            full = socket.socket(); full.bind(('127.0.0.1', 0)); full.listen(0)\n\
            kept = []\n\
            for _ in range(4):\n\
            \x20 s = socket.socket(); s.setblocking(False); s.connect_ex(full.getsockname()); kept.append(s)\n\
            time.sleep(.2)\n\
            import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
            def wait(): s = socket.socket(); kept.append(s); s.connect_ex(full.getsockname())\n\
            for _ in range(16): threading.Thread(target=wait, daemon=True).start()\n\
            signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, .3)\n\
            s = socket.socket(); a = full.getsockname(); raw = (2).to_bytes(2, 'little') + a[1].to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8)\n\
            t = time.monotonic(); assert libc.connect(s.fileno(), raw, 16) == -1 and ctypes.get_errno() == errno.EINTR, ctypes.get_errno()\n\
            assert time.monotonic() - t < 2\n\
            t = time.monotonic(); l = socket.create_server(('127.0.0.1', 0)); socket.create_connection(l.getsockname())\n\
            assert time.monotonic() - t < 1\n\
            # Room comes, and one of those that wait is let in.\n\
            s = socket.socket(); done = threading.Event(); threading.Thread(target=lambda: (s.connect(full.getsockname()), done.set()), daemon=True).start()\n\
            full.settimeout(5)\n\
            for _ in range(24):\n\
            \x20 try: kept.append(full.accept()[0])\n\
            \x20 except TimeoutError: break\n\
            assert done.wait(20)\n\
            u = socket.socket(socket.AF_UNIX); u.bind(os.environ['SCRATCH'] + '/u'); u.listen(0);\n\
            one = socket.socket(socket.AF_UNIX); one.connect(u.getsockname())\n\
            two = socket.socket(socket.AF_UNIX); threading.Timer(.2, u.accept).start(); two.connect(u.getsockname())\n\
            three = socket.socket(socket.AF_UNIX); three.setblocking(False); assert three.connect_ex(u.getsockname()) == errno.EAGAIN\n\
            os._exit(0)";
        let ran = desk.run(&["/usr/bin/python3", "-c", script]);
        ran.good();
    }
}

#[test]
fn p1_a_datagram_goes_nowhere_and_is_told_of() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.plan.listen = vec![Listen {
            kind: ListenKind::Strays,
            ..ELSEWHERE
        }];
        let script = "import socket, errno\n\
            for family, address in [(socket.AF_INET, '8.8.8.8'), (socket.AF_INET6, '2606::1')]:\n\
            \x20 s = socket.socket(family, socket.SOCK_DGRAM); s.connect((address, 53)); s.getsockname(); s.settimeout(9)\n\
            \x20 s.send(b'x')\n\
            \x20 try: s.recv(9); raise SystemExit('an answer')\n\
            \x20 except ConnectionRefusedError: pass\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'y', ('1.1.1.1', 443))\n\
            l = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); l.bind(('127.0.0.1', 0)); s.sendto(b'z', l.getsockname()); print(l.recv(9))\n\
            s.connect(('9.9.9.9', 9))\n\
            print(socket.getaddrinfo('127.0.0.1', 80, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)[0][4])";
        let (mut started, [mut out, mut err], _into) = desk.start(&["/usr/bin/python3", "-c", script]).unwrap();
        let strays = UdpSocket::from(started.listeners.remove(0));
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        err.read_to_string(&mut text).unwrap();
        assert_eq!(text, "b'z'\n('127.0.0.1', 80)\n");
        assert_eq!(started.child.wait(), 0);
        strays.set_nonblocking(true).unwrap();
        let mut heads = Vec::new();
        let mut head = [0u8; 128];
        while let Ok(count) = strays.recv(&mut head) {
            heads.push(head[..count].to_vec());
        }
        // Two that were answered, one that was not; neither what stayed inside nor what was not sent.
        assert_eq!(heads.len(), 3, "{heads:?}");
        assert_eq!(heads[0][16..20], [8, 8, 8, 8]);
        assert_eq!(heads[1][24..26], [0x26, 0x06]);
        assert_eq!(heads[2][16..20], [1, 1, 1, 1]);
    }
}

#[test]
fn p1_no_road_leads_past_the_call_that_is_held() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        let fast = format!("import socket; s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', {port}))");
        assert!(desk.outside(&["/usr/bin/python3", "-c", &fast]).status.success());
        desk.run(&["/usr/bin/python3", "-c", &fast]).bad();
        let option = "import socket; socket.socket().setsockopt(6, 30, 1)";
        assert!(desk.outside(&["/usr/bin/python3", "-c", option]).status.success());
        desk.run(&["/usr/bin/python3", "-c", option]).bad();
        // Datagrams to a socket of the machine's that comes later.
        let place = desk.at("project/later.sock");
        let send = format!(
            "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{}')",
            place.display()
        );
        let listener = std::os::unix::net::UnixDatagram::bind(&place).unwrap();
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(desk.outside(&["/usr/bin/python3", "-c", &send]).status.success());
        drop(listener);
        std::fs::remove_file(&place).unwrap();
        let (out, _) = with_gate(
            &mut desk,
            "import socket\ntry: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); print('a pair')\nexcept PermissionError: print('none')",
        );
        assert_eq!(out, "none\n");
    }
}

#[test]
fn p1_a_socket_of_the_machine_that_comes_later_is_not_reached_and_the_agents_own_are() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        let script = "import socket, os, time, errno, struct\n\
            open('began', 'w').close()\n\
            while not os.path.exists('later.sock'): time.sleep(.01)\n\
            def to(path): s = socket.socket(socket.AF_UNIX); return s.connect_ex(path), s\n\
            os.symlink('later.sock', 'link'); os.link('later.sock', 'other'); os.mkdir('d')\n\
            for path in ['later.sock', 'link', 'other', os.getcwd() + '/d/../later.sock', '/proc/self/cwd/later.sock']: assert to(path)[0] == errno.EACCES, path\n\
            own = socket.socket(socket.AF_UNIX); own.bind('own.sock'); own.listen(9); assert own.getsockname() == 'own.sock'\n\
            code, s = to('own.sock'); assert code == 0 and s.getpeername() == 'own.sock'\n\
            peer = own.accept()[0]; pid, uid, _ = struct.unpack('iii', peer.getsockopt(socket.SOL_SOCKET, 17, 12)); print(pid, uid == os.getuid())\n\
            s.send(b'x'); assert peer.recv(9) == b'x'\n\
            os.rename('own.sock', 'moved.sock'); assert to('moved.sock')[0] == 0\n\
            far = os.environ['SCRATCH'] + '/far'; l = socket.socket(socket.AF_UNIX); l.bind(far); l.listen(1); assert to(far)[0] == 0\n\
            name = socket.socket(socket.AF_UNIX); name.bind('\\0name'); name.listen(1); assert to('\\0name')[0] == 0\n\
            own.close(); assert to('moved.sock')[0] in (errno.ECONNREFUSED, errno.EACCES)\n\
            assert to('missing')[0] == errno.ENOENT and to('began')[0] in (errno.ECONNREFUSED, errno.EACCES)\n\
            pair = socket.socketpair(); pair[0].send(b'x'); assert pair[1].recv(9) == b'x'";
        desk.plan.listen = vec![ELSEWHERE];
        let (mut started, [mut out, mut err], _into) = desk.start(&["/usr/bin/python3", "-c", script]).unwrap();
        let gate = gate(started.listeners.remove(0));
        while !desk.at("project/began").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let place = desk.at("project/new.sock");
        let listener = UnixListener::bind(&place).unwrap();
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let probe = format!("{} named {}", probe().display(), place.display());
        assert!(desk.outside(&["bash", "-c", &probe]).status.success());
        listener.accept().unwrap();
        if desk.who == crate::desk::Who::Ordinary {
            // Hard links are made of one's own.
            let _ = std::os::unix::fs::chown(&place, Some(4242), Some(4242));
        }
        std::fs::rename(&place, desk.at("project/later.sock")).unwrap();
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let mut errors = String::new();
        err.read_to_string(&mut errors).unwrap();
        assert_eq!((started.child.wait(), &*errors), (0, ""));
        // The peer is the fence's first process, of the same user.
        assert_eq!(text, "1 True\n");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody knocked");
        let heard = gate.join().unwrap();
        assert!(
            heard
                .iter()
                .any(|line| line.starts_with("refused connect /") && line.ends_with("later.sock")),
            "{heard:?}"
        );
    }
}

#[test]
fn p5_an_address_that_changes_meanwhile_is_the_one_that_was_judged() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        // Port 1 is refused by the supervisor, port 2 is the gate's: no thread that swaps them brings one in for the other.
        desk.plan.ports = Some(vec![2]);
        let program = desk.file("project/race.c", include_str!("../programs/race.c"));
        let built = desk.at("project/race");
        let gcc = std::process::Command::new("gcc")
            .args(["-O2", "-static", "-pthread", "-o"])
            .arg(&built)
            .arg(&program)
            .status();
        assert!(gcc.unwrap().success(), "gcc is needed for this test");
        desk.plan.listen = vec![ELSEWHERE];
        let tries = if setting.is_process() { "5000" } else { "110000" };
        let (mut started, [mut out, mut err], _into) = desk.start(&[built.to_str().unwrap(), tries]).unwrap();
        let door = started.listeners.remove(0);
        let gate = std::thread::spawn(move || {
            let mut passed = 0u32;
            while !{
                let mut ready = [rustix::event::PollFd::new(&door, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut ready, None).unwrap();
                is_over(&door)
            } {
                match message(&door) {
                    (Handed::Connection(address), Some(_)) => {
                        assert_eq!(address, "93.184.216.34:2".parse().unwrap());
                        passed += 1;
                    }
                    (Handed::Refused { what, .. }, None) => assert!(
                        ["connect 93.184.216.34:1", "connect 10.0.0.1:1"].contains(&&*what),
                        "{what}"
                    ),
                    other => panic!("{other:?}"),
                }
            }
            passed
        });
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let mut errors = String::new();
        err.read_to_string(&mut errors).unwrap();
        assert_eq!((started.child.wait(), &*errors), (0, ""));
        let counts: Vec<u32> = text.split_whitespace().map(|count| count.parse().unwrap()).collect();
        let passed = gate.join().unwrap();
        assert_eq!(counts[0], passed, "each that came about is at the gate");
        assert!(counts[0] > 100 && counts[1] > 100, "both were seen: {text}");
        let _ = std::fs::remove_file(built);
    }
}
