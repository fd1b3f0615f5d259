//! How fast bytes go through, beside a bare connection. Run by hand: `cargo test --release -- --ignored --nocapture speed`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::world::{Origin, Say, World, client_hello, patient, read_head, tunnel};

const SIZE: usize = 2 * 1024 * 1024 * 1024;

fn pour(stream: &mut TcpStream) {
    let chunk = vec![b'x'; 256 * 1024];
    for _ in 0..SIZE / chunk.len() {
        if stream.write_all(&chunk).is_err() {
            return;
        }
    }
}

fn drain(mut stream: TcpStream) -> f64 {
    let mut chunk = vec![0u8; 256 * 1024];
    let mut left = SIZE;
    let start = Instant::now();
    while left > 0 {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0);
        left = left.saturating_sub(count);
    }
    let bytes = u32::try_from(SIZE / 1_000_000).unwrap();
    f64::from(bytes) / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "takes a while and asserts nothing: figures for people"]
fn speed_of_downloads_and_requests() {
    let page = Origin::http(|_, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
        pour(stream);
    });
    let raw = Origin::raw(|stream, _| {
        // All of the greeting: what is left unread when a socket is closed resets the connection.
        let mut greeting = [0u8; 4096];
        if stream.read(&mut greeting).is_ok() {
            pour(stream);
        }
    });
    let small = Origin::plain();
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    for _ in 0..3 {
        let mut bare = patient(TcpStream::connect(raw.address).unwrap());
        bare.write_all(b"x").unwrap();
        let bare = drain(bare);
        let (_, mut through) = tunnel(&world, &format!("a.test:{}", raw.port()));
        through.write_all(&client_hello(Some("a.test"))).unwrap();
        let through = drain(through);
        println!("tunnel: bare {bare:.0} MB/s, through the gate {through:.0} MB/s");

        let mut bare = patient(TcpStream::connect(page.address).unwrap());
        bare.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        read_head(&mut bare);
        let bare = drain(bare);
        let mut through = world.connect(0);
        write!(through, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", page.port()).unwrap();
        read_head(&mut through);
        let through = drain(through);
        println!("plain HTTP: bare {bare:.0} MB/s, through the gate {through:.0} MB/s");
    }
    let mut stream = world.connect(0);
    let start = Instant::now();
    for _ in 0..3000 {
        write!(stream, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", small.port()).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
        stream.read_exact(&mut [0u8; 7]).unwrap();
    }
    let each = start.elapsed().as_secs_f64() / 3000.0 * 1e6;
    println!("a request on a kept-open connection, decided and dialled anew: {each:.0} µs");
}
