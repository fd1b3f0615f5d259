//! What goes on under a permit is cut off when the grant behind it holds no more.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::world::{Origin, Say, Seen, World, client_hello, read_all, read_head, tunnel};

/// The number of the gate's first question about a request: the greeting, the name's look-up and what became of it come
/// before.
const FIRST: u64 = 4;

const SAID: &str = "cut off: what allowed it was revoked";

fn world() -> World {
    World::proxy(&["a.test"], |_| Say::Allow)
}

/// Revokes the first permit; within a second it is settled with a word about that.
fn revoke(world: &World) {
    let begun = Instant::now();
    world.revoke(FIRST);
    world.wait_for(
        "the settlement",
        |seen| matches!(seen, Seen::Settled(_, note) if note.ends_with(SAID)),
    );
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A server that sends without end; says when its connection has ended.
fn endless() -> (Origin, mpsc::Receiver<()>) {
    let (say, said) = mpsc::channel();
    let origin = Origin::http(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
        let _ = say.send(());
    });
    (origin, said)
}

fn ask(world: &World, origin: &Origin) -> TcpStream {
    let mut client = world.connect(0);
    write!(client, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", origin.port()).unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client
}

#[test]
fn p11_a_running_download_is_cut_on_both_sides() {
    let (origin, ended) = endless();
    let world = world();
    let mut client = ask(&world, &origin);
    let mut piece = [0u8; 65536];
    for _ in 0..50 {
        assert!(client.read(&mut piece).unwrap() > 0, "it runs");
    }
    let reading = std::thread::spawn(move || while let Ok(1..) = client.read(&mut piece) {});
    revoke(&world);
    reading.join().unwrap();
    ended.recv_timeout(Duration::from_secs(5)).unwrap();
    let other = Origin::plain();
    let answer = world.get(&format!("http://a.test:{}/", other.port()));
    assert!(answer.ends_with("reached"), "others go on: {answer}");
}

#[test]
fn p11_a_download_that_its_client_does_not_read_is_cut_too() {
    let (origin, ended) = endless();
    let world = world();
    let client = ask(&world, &origin);
    std::thread::sleep(Duration::from_millis(300));
    revoke(&world);
    ended.recv_timeout(Duration::from_secs(5)).unwrap();
    drop(client);
}

#[test]
fn p11_an_upload_and_a_request_without_an_answer_are_cut() {
    let (say, said) = mpsc::channel();
    let origin = Origin::http(move |_, stream| {
        let mut bytes = [0u8; 65536];
        while let Ok(1..) = stream.read(&mut bytes) {}
        let _ = say.send(());
    });
    for body in ["", "content-length: 1000000000\r\n"] {
        let world = world();
        let mut client = world.connect(0);
        write!(client, "PUT http://a.test:{}/ HTTP/1.1\r\n{body}\r\n", origin.port()).unwrap();
        let mut writing = client.try_clone().unwrap();
        let uploads = std::thread::spawn(
            move || {
                while !body.is_empty() && writing.write_all(&[b'x'; 65536]).is_ok() {}
            },
        );
        world.wait_for(
            "the question",
            |seen| matches!(seen, Seen::Asked(act, _) if act.starts_with("PUT")),
        );
        std::thread::sleep(Duration::from_millis(200));
        revoke(&world);
        said.recv_timeout(Duration::from_secs(5)).unwrap();
        client.shutdown(std::net::Shutdown::Both).unwrap_or_default();
        uploads.join().unwrap();
    }
}

#[test]
fn p11_a_tunnel_and_a_web_socket_are_cut() {
    let world = world();
    let echo = Origin::echo();
    let (_, mut open) = tunnel(&world, &format!("a.test:{}", echo.port()));
    let hello = client_hello(Some("a.test"));
    open.write_all(&hello).unwrap();
    let mut back = vec![0u8; hello.len()];
    open.read_exact(&mut back).unwrap();
    revoke(&world);
    assert_eq!(open.read(&mut back).unwrap_or(0), 0);

    let world = self::world();
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: a\r\n\r\n",
        );
        let _ = stream.read(&mut [0u8; 64]);
    });
    let mut stream = world.connect(0);
    let line = format!("GET http://a.test:{}/ HTTP/1.1\r\n", origin.port());
    let lines = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";
    stream.write_all(format!("{line}{lines}").as_bytes()).unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
    revoke(&world);
    assert_eq!(read_all(&mut stream), "");
}

#[test]
fn p11_a_tunnel_whose_client_has_not_greeted_is_cut() {
    let world = world();
    let echo = Origin::echo();
    let (_, mut open) = tunnel(&world, &format!("a.test:{}", echo.port()));
    revoke(&world);
    assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn p11_what_was_revoked_before_its_permit_came_is_never_begun() {
    let world = world();
    let origin = Origin::plain();
    world.revoke(FIRST);
    std::thread::sleep(Duration::from_millis(100));
    let answer = world.get(&format!("http://a.test:{}/", origin.port()));
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("permit-refused"),
        "{answer}"
    );
    assert!(origin.heard().is_empty());
    let answer = world.get(&format!("http://a.test:{}/", origin.port()));
    assert!(answer.ends_with("reached"), "{answer}");
}
