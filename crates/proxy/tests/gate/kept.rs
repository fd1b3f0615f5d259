//! Connections to servers are kept for the next request, under strict rules.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick_model::{Code, Request};
use bailiwick_testkit::{Answer, Root};

use crate::world::{Origin, Say, Seen, World, read_head};

fn allow_all(_: &Request) -> Say {
    Say::Allow
}

/// A server that keeps its connections, counts them, and does something with each before the n-th request on it.
fn keeping(before: impl Fn(usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let origin = Origin::raw(move |stream, heard| {
        counted.fetch_add(1, Ordering::SeqCst);
        for number in 0.. {
            if !before(number, stream) {
                return;
            }
            let head = read_head(stream);
            if head.is_empty() {
                return;
            }
            heard.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            if stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached")
                .is_err()
            {
                return;
            }
        }
    });
    (origin, count)
}

/// Requests one after the other on one connection to the gate; the status of each.
fn ask(world: &World, requests: &[String]) -> Vec<String> {
    let mut client = world.connect(0);
    let mut all = Vec::new();
    for request in requests {
        write!(client, "{request} HTTP/1.1\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        std::io::Read::read_exact(&mut client, &mut body).unwrap();
        all.push(head.split(' ').nth(1).unwrap_or_default().to_owned());
        std::thread::sleep(Duration::from_millis(30));
    }
    all
}

#[test]
fn a_connection_serves_the_next_request_to_the_same_host_and_to_no_other() {
    let (origin, count) = keeping(|_, _| true);
    let world = World::proxy(&["a.test", "b.test"], allow_all);
    let port = origin.port();
    let one = format!("GET http://a.test:{port}/x");
    let requests = vec![one.clone(), one.clone(), one.clone()];
    assert_eq!(ask(&world, &requests), ["200", "200", "200"]);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // Also for another client of this task.
    assert_eq!(ask(&world, std::slice::from_ref(&one)), ["200"]);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // The same address and port under another name.
    assert_eq!(
        ask(&world, &[format!("GET http://b.test:{port}/x"), one]),
        ["200", "200"]
    );
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // Each was asked about and settled.
    assert_eq!(world.asked().iter().filter(|act| act.starts_with("GET")).count(), 6);
    let settled = |seen: &Seen| matches!(seen, Seen::Settled(true, note) if note == "status 200, 0 bytes sent, 7 received, whole");
    assert_eq!(world.seen().iter().filter(|seen| settled(seen)).count(), 6);
}

#[test]
fn p5_a_kept_connection_is_no_way_round_the_next_decision() {
    let (origin, _) = keeping(|_, _| true);
    let world = World::proxy(&["a.test"], |request| {
        if request.to_string().ends_with("/secret") {
            Say::Deny(Code::NoRule)
        } else {
            Say::Allow
        }
    });
    let url = |path: &str| format!("GET http://a.test:{}{path}", origin.port());
    assert_eq!(
        ask(&world, &[url("/x"), url("/secret"), url("/y")]),
        ["200", "403", "200"]
    );
    assert_eq!(origin.heard(), ["GET /x HTTP/1.1", "GET /y HTTP/1.1"]);
}

#[test]
fn what_was_closed_or_speaks_unasked_is_thrown_away() {
    // It closes after the first answer, without saying so.
    let (closing, count) = keeping(|number, _| number == 0);
    let world = World::proxy(&["a.test"], allow_all);
    let url = |port: u16| format!("GET http://a.test:{port}/x");
    let requests = vec![url(closing.port()); 3];
    assert_eq!(ask(&world, &requests), ["200", "200", "200"]);
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // It ends its half, and goes on reading.
    let (half, count) = keeping(|number, stream| {
        if number == 1 {
            let _ = stream.shutdown(Shutdown::Write);
        }
        true
    });
    let requests = vec![url(half.port()); 2];
    assert_eq!(ask(&world, &requests), ["200", "200"]);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!(half.heard().len(), 2);
    // It answers a request that nobody has sent, for whoever comes next.
    let (early, count) = keeping(|number, stream| {
        if number == 1 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\npoisoned");
        }
        true
    });
    let requests = vec![url(early.port()); 2];
    assert_eq!(ask(&world, &requests), ["200", "200"]);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn p1_a_request_is_never_sent_twice() {
    // The second request on a connection is read, and the connection closed.
    let origin = Origin::raw(|stream, heard| {
        for number in 0..2 {
            let head = read_head(stream);
            if head.is_empty() {
                return;
            }
            heard.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            if number == 0 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached");
            }
        }
    });
    let world = World::proxy(&["a.test"], allow_all);
    let port = origin.port();
    let requests = [
        format!("GET http://a.test:{port}/first"),
        format!("POST http://a.test:{port}/pay"),
    ];
    assert_eq!(ask(&world, &requests), ["200", "502"]);
    assert_eq!(origin.heard(), ["GET /first HTTP/1.1", "POST /pay HTTP/1.1"]);
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note.starts_with("no answer: ")),
    );
}

#[test]
fn connections_of_tls_are_kept_too() {
    let root = Root::new();
    let origin = bailiwick_testkit::Origin::over_tls(&root, &["a.test"], |heard| {
        Answer::text(200, heard.peer.port().to_string())
    });
    let port = origin.port();
    let world = World::opening(&[format!("a.test:{port}")], &root, allow_all);
    let peers: Vec<String> = (0..3)
        .map(|_| {
            let answer = crate::tls::get(&world, "a.test", port, "/x");
            answer.rsplit("\r\n\r\n").next().unwrap().to_owned()
        })
        .collect();
    assert!(peers[0].parse::<u16>().is_ok(), "{peers:?}");
    assert!(peers.iter().all(|peer| *peer == peers[0]), "{peers:?}");
}

#[test]
fn a_head_in_pieces_is_not_held_up() {
    let (origin, _) = keeping(|_, _| true);
    let world = World::proxy(&["a.test"], allow_all);
    let mut client = world.connect(0);
    // As most programs have it: the second piece waits for the first to be acknowledged.
    client.set_nodelay(false).unwrap();
    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        write!(client, "GET http://a.test:{}/ HTTP/1.1\r\n", origin.port()).unwrap();
        write!(client, "x-piece: 1\r\n").unwrap();
        write!(client, "\r\n").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
        std::io::Read::read_exact(&mut client, &mut [0u8; 7]).unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    assert!(times[10] < Duration::from_millis(30), "{times:?}");
}
