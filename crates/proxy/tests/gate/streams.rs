use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bailiwick_model::Verb;

use crate::world::{Origin, Say, Seen, World, client_hello, read_all, read_head, tunnel};

#[test]
fn c076_lines_of_an_event_stream_arrive_at_once() {
    let (say, said) = mpsc::channel();
    let origin = Origin::http(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        for number in 0..8 {
            std::thread::sleep(Duration::from_millis(60));
            say.send(Instant::now()).unwrap();
            let _ = stream.write_all(format!("data: {number}\n\n").as_bytes());
        }
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let mut stream = world.connect(0);
    write!(stream, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", origin.port()).unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    let mut text = String::new();
    for number in 0..8 {
        let sent: Instant = said.recv().unwrap();
        while !text.contains(&format!("data: {number}\n")) {
            let mut piece = [0u8; 256];
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        assert!(
            sent.elapsed() < Duration::from_millis(200),
            "{number}: {:?}",
            sent.elapsed()
        );
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn c076_large_bodies_pass_both_ways_in_bounded_memory() {
    const SIZE: usize = 256 * 1024 * 1024;
    let origin = Origin::http(|head, stream| {
        let mut chunk = vec![b'x'; 1024 * 1024];
        if head.starts_with("POST") {
            let mut left = SIZE;
            while left > 0 {
                left -= stream.read(&mut chunk).unwrap();
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nall");
        } else {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
            for _ in 0..SIZE / chunk.len() {
                let _ = stream.write_all(&chunk);
            }
        }
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let url = format!("http://a.test:{}/", origin.port());
    let before = resident();
    let mut stream = world.connect(0);
    write!(stream, "GET {url} HTTP/1.1\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    // A slow reader at first: the gate must not read ahead without end.
    std::thread::sleep(Duration::from_millis(300));
    let mut chunk = vec![0u8; 1024 * 1024];
    let mut left = SIZE;
    while left > 0 {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0);
        left -= count;
    }
    let mut stream = world.connect(0);
    write!(
        stream,
        "POST {url} HTTP/1.1\r\ncontent-length: {SIZE}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    for _ in 0..SIZE / chunk.len() {
        stream.write_all(&chunk).unwrap();
    }
    let answer = read_all(&mut stream);
    assert!(answer.ends_with("all"), "{answer}");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB more");
    world.wait_for("the counted bytes", |seen| {
        matches!(seen, Seen::Settled(true, note) if note == &format!("status 200, {SIZE} bytes sent, 3 received, whole"))
    });
}

#[test]
fn c076_many_requests_at_once() {
    let origin = Origin::plain();
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let url = format!("http://a.test:{}/", origin.port());
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| assert!(world.get(&url).ends_with("reached")));
        }
    });
    assert_eq!(origin.heard().len(), 200);
}

#[test]
fn a_client_that_waits_for_100_gets_it_or_the_refusal() {
    let origin = Origin::http(|_, stream| {
        let mut body = [0u8; 5];
        stream.read_exact(&mut body).unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let world = World::proxy(&["a.test"], |request| match request.verb {
        Verb::Http(ref method) if method.as_str() == "PUT" => Say::Deny(bailiwick_model::Code::NoRule),
        _ => Say::Allow,
    });
    let url = format!("http://a.test:{}/", origin.port());
    let mut stream = world.connect(0);
    write!(
        stream,
        "POST {url} HTTP/1.1\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 100"), "{head}");
    stream.write_all(b"hello").unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut stream = world.connect(0);
    write!(
        stream,
        "PUT {url} HTTP/1.1\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[test]
fn c076_a_web_socket_echoes() {
    let origin = Origin::http(|head, stream| {
        assert!(
            head.contains("upgrade: websocket") && head.contains("sec-websocket-key: k"),
            "{head}"
        );
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: a\r\n\r\nfirst",
        );
        let mut bytes = [0u8; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..count]);
        }
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let mut stream = world.connect(0);
    write!(
        stream,
        "GET http://a.test:{}/ HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-key: k\r\n\r\n",
        origin.port()
    )
    .unwrap();
    let head = read_head(&mut stream);
    assert!(
        head.starts_with("HTTP/1.1 101") && head.contains("sec-websocket-accept: a"),
        "{head}"
    );
    let mut bytes = [0u8; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    stream.write_all(b"again").unwrap();
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"again");
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    world.wait_for(
        "the end",
        |seen| matches!(seen, Seen::Settled(true, note) if note.starts_with("web socket")),
    );
}

#[test]
fn a_change_of_protocol_that_was_not_asked_for_is_refused() {
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n");
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    for wanted in ["h2c", "websocket"] {
        let head = format!("GET http://a.test:{}/ HTTP/1.1\r\nconnection: upgrade", origin.port());
        let answer = world.exchange(0, &format!("{head}\r\nupgrade: {wanted}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    }
}

#[test]
fn p11_when_the_channel_closes_every_stream_does() {
    let echo = Origin::echo();
    let slow = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nfirst");
        std::thread::sleep(Duration::from_secs(5));
    });
    let mut world = World::proxy(&["a.test"], |_| Say::Allow);
    let (_, mut open) = tunnel(&world, &format!("a.test:{}", echo.port()));
    let hello = client_hello(Some("a.test"));
    open.write_all(&hello).unwrap();
    let mut back = vec![0u8; hello.len()];
    open.read_exact(&mut back).unwrap();
    let mut page = world.connect(0);
    write!(page, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", slow.port()).unwrap();
    read_head(&mut page);
    let start = Instant::now();
    world.end().unwrap();
    assert_eq!(open.read(&mut back).unwrap_or(0), 0);
    read_all(&mut page);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(
        std::net::TcpStream::connect(world.addresses[0]).is_err(),
        "nothing is served any more"
    );
}

#[test]
fn p4_who_waits_when_the_channel_fails_is_refused() {
    let origin = Origin::plain();
    let mut world = World::proxy(&["a.test"], |request| match request.verb {
        Verb::Resolve => Say::Silence,
        _ => Say::Nonsense,
    });
    let mut waiting = world.connect(0);
    write!(waiting, "GET http://a.test/ HTTP/1.1\r\n\r\n").unwrap();
    world.wait_for("the question", |seen| matches!(seen, Seen::Asked(..)));
    let answer = world.get(&format!("http://127.0.0.1:{}/", origin.port()));
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("mediator-unavailable"),
        "{answer}"
    );
    let answer = read_all(&mut waiting);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(world.end().unwrap_err().to_string().contains("malformed"));
    assert!(origin.heard().is_empty());
}

#[test]
fn a_client_that_goes_away_leaves_no_permit_open() {
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let mut stream = world.connect(0);
    write!(stream, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", origin.port()).unwrap();
    read_head(&mut stream);
    drop(stream);
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note.ends_with("broken off by the client")),
    );
}

#[test]
fn curl_uploads_and_downloads() {
    let origin = Origin::http(|head, stream| {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0u8; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).unwrap();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        );
        let _ = stream.write_all(&body);
        let _ = stream.write_all(b"\r\n0\r\n\r\n");
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let text = "0123456789".repeat(300_000);
    let file = std::env::temp_dir().join(format!("bailiwick-proxy-upload-{}", std::process::id()));
    std::fs::write(&file, &text).unwrap();
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--proxy"])
        .arg(format!("http://{}", world.addresses[0]))
        .args(["-X", "POST", "-H", "Expect: 100-continue", "--data-binary"])
        .arg(format!("@{}", file.display()))
        .arg(format!("http://a.test:{}/", origin.port()))
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .expect("curl is needed for this test");
    let _ = std::fs::remove_file(file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.len(), text.len());
    assert!(output.stdout == text.as_bytes());
}
