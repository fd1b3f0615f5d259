//! Who listens outside: servers of every kind, and terminals. All that they hear is kept.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was heard.
#[derive(Debug, Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    pub fn add(&self, bytes: &[u8]) {
        let mut all = self.0.lock().unwrap();
        all.extend_from_slice(bytes);
        all.push(b'\n');
    }

    pub fn has(&self, word: &str) -> bool {
        let all = self.0.lock().unwrap();
        all.windows(word.len()).any(|window| window == word.as_bytes())
    }
}

/// How a stream is answered.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    /// As a server of HTTP that finds everything well.
    Http,
    /// With one plain word.
    Plain,
    /// As the server that may be reached: nothing it hears counts.
    Honest,
}

fn serve(mut stream: impl Read + Write, heard: &Heard, manner: Manner) {
    let mut buffer = [0u8; 8192];
    let mut all = Vec::new();
    while let Ok(got @ 1..) = stream.read(&mut buffer) {
        // A word may come in pieces.
        all.extend_from_slice(&buffer[..got]);
        if !matches!(manner, Manner::Honest) {
            heard.add(&all);
        }
        let answer: &[u8] = match manner {
            Manner::Http => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nheard",
            Manner::Honest => b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhonest",
            Manner::Plain => b"heard",
        };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn each(listener: TcpListener, heard: &Heard, manner: Manner) {
    let heard = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = heard.clone();
            std::thread::spawn(move || {
                let stream: TcpStream = stream;
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                serve(stream, &heard, manner);
            });
        }
    });
}

/// Listens for streams; says the port.
pub fn streams(address: &str, heard: &Heard, manner: Manner) -> u16 {
    let listener = TcpListener::bind(address).unwrap_or_else(|e| panic!("{address}: {e}"));
    let port = listener.local_addr().unwrap().port();
    each(listener, heard, manner);
    port
}

/// Listens for datagrams; says the port.
pub fn datagrams(address: &str, heard: &Heard) -> u16 {
    let socket = UdpSocket::bind(address).unwrap();
    let port = socket.local_addr().unwrap().port();
    let heard = heard.clone();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 8192];
        while let Ok((got, _)) = socket.recv_from(&mut buffer) {
            heard.add(&buffer[..got]);
        }
    });
    port
}

fn unix(listener: UnixListener, heard: &Heard) {
    let heard = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = heard.clone();
            std::thread::spawn(move || serve(stream, &heard, Manner::Plain));
        }
    });
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// Listens at a path.
pub fn at_path(path: &Path, heard: &Heard) {
    let _ = std::fs::remove_file(path);
    unix(
        UnixListener::bind(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        heard,
    );
    open_to_all(path);
}

/// Listens at a path for datagrams.
pub fn at_path_for_datagrams(path: &Path, heard: &Heard) {
    let _ = std::fs::remove_file(path);
    unix_datagrams(UnixDatagram::bind(path).unwrap(), heard);
    open_to_all(path);
}

fn unix_datagrams(socket: UnixDatagram, heard: &Heard) {
    let heard = heard.clone();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 8192];
        while let Ok(got) = socket.recv(&mut buffer) {
            heard.add(&buffer[..got]);
        }
    });
}

/// Listens at abstract names: streams, datagrams, packets.
pub fn at_names(names: &[String; 3], heard: &Heard) {
    let address = |name: &String| SocketAddr::from_abstract_name(name).unwrap();
    unix(UnixListener::bind_addr(&address(&names[0])).unwrap(), heard);
    unix_datagrams(UnixDatagram::bind_addr(&address(&names[1])).unwrap(), heard);
    let packets = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    let name = rustix::net::SocketAddrUnix::new_abstract_name(names[2].as_bytes()).unwrap();
    rustix::net::bind(&packets, &name).unwrap();
    rustix::net::listen(&packets, 16).unwrap();
    let listener = UnixListener::from(packets);
    unix(listener, heard);
}

/// Answers for every name below `.test` and some others: with the loopback for what begins with `pinned`, with the
/// address of clouds' logins for what speaks of metadata, and by turns for what rebinds.
pub fn names(address: &str, heard: &Heard) {
    let socket = UdpSocket::bind(address).unwrap();
    let stream = TcpListener::bind(address).unwrap();
    let streams_heard = heard.clone();
    std::thread::spawn(move || {
        for mut stream in stream.incoming().flatten() {
            let mut buffer = [0u8; 2048];
            if let Ok(got @ 3..) = stream.read(&mut buffer)
                && let Some((name, answer)) = answered(&buffer[2..got], 0)
            {
                streams_heard.add(name.as_bytes());
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _ = stream.write_all(&[&length, answer.as_slice()].concat());
            }
        }
    });
    let heard = heard.clone();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 2048];
        let mut turn = 0usize;
        while let Ok((got, from)) = socket.recv_from(&mut buffer) {
            if let Some((name, answer)) = answered(&buffer[..got], turn) {
                heard.add(name.as_bytes());
                turn += usize::from(name.starts_with("rebound"));
                let _ = socket.send_to(&answer, from);
            }
        }
    });
}

const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
const LOGINS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

fn answered(question: &[u8], turn: usize) -> Option<(String, Vec<u8>)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(question.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = question.get(at..at + 4)?;
    let name = labels.join(".");
    let addresses = match name.as_str() {
        _ if kind != [0, 1, 0, 1] => Vec::new(),
        "rebound.test" if turn.is_multiple_of(2) => vec![PUBLIC],
        "rebound.test" | "localtest.me" => vec![Ipv4Addr::LOCALHOST],
        "both.test" => vec![Ipv4Addr::LOCALHOST, PUBLIC],
        "metadata.google.internal" | "169.254.169.254.nip.io" => vec![LOGINS],
        _ => vec![PUBLIC],
    };
    let mut answer = question.get(..2)?.to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::try_from(addresses.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(question.get(12..at + 4)?);
    for address in addresses {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    Some((name, answer))
}
