//! Bounds that a permit puts on a request and its answer, and servers and clients that break off, dawdle, or pour.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use bailiwick_gate::Passed;
use bailiwick_model::{Code, Digest, Obligation, Request, Verb};
use bailiwick_testkit::{Answer, Root};
use sha2::{Digest as _, Sha256};

use crate::world::{Origin, Say, Seen, World, read_all, read_head, usual};

/// A gate whose permits for requests carry these, besides the usual.
fn world(more: Vec<Obligation>) -> World {
    World::proxy(&["a.test"], move |request| under(request, &more))
}

fn under(request: &Request, more: &[Obligation]) -> Say {
    let mut all = usual(request);
    if matches!(request.verb, Verb::Http(_)) {
        all.extend(more.iter().cloned());
    }
    Say::AllowUnder(all)
}

fn body(bytes: u64, types: &[&str]) -> Obligation {
    Obligation::RequestBody {
        bytes,
        types: types.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn answer(bytes: Option<u64>, seconds: Option<u64>, bytes_per_second: Option<u64>) -> Obligation {
    Obligation::Answer {
        bytes,
        seconds,
        bytes_per_second,
    }
}

fn settled(world: &World, note: &str) {
    let what = format!("a settlement with `{note}`");
    world.wait_for(
        &what,
        |seen| matches!(seen, Seen::Settled(_, said) if said.contains(note)),
    );
}

/// A server that reads what it is sent, whatever becomes of it.
fn patient() -> Origin {
    Origin::http(|head, stream| {
        let mut body = Vec::new();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        match length.and_then(|length| length.parse().ok()) {
            Some(length) => {
                body.resize(length, 0);
                let _ = stream.read_exact(&mut body);
            }
            None if head.contains("transfer-encoding") => {
                while !body.ends_with(b"0\r\n\r\n") {
                    let mut byte = [0];
                    match stream.read(&mut byte) {
                        Ok(1) => body.push(byte[0]),
                        _ => return,
                    }
                }
            }
            None => {}
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached");
    })
}

#[test]
fn p4_a_body_that_is_too_long_or_of_another_type_is_not_sent() {
    let origin = patient();
    let world = world(vec![body(10, &["application/json"])]);
    let url = format!("http://a.test:{}/", origin.port());
    let post = |line: &str, text: &str| {
        let request = format!(
            "POST {url} HTTP/1.1\r\n{line}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
        world.exchange(0, &request)
    };
    let good = post("content-type: Application/JSON; charset=utf-8", "0123456789");
    assert!(good.ends_with("reached"), "{good}");
    for (line, text) in [
        ("content-type: application/json", "0123456789x"),
        ("content-type: text/plain", "x"),
        ("x: y", "x"),
    ] {
        let refused = post(line, text);
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        assert!(refused.contains("bailiwick-code: limit-reached"), "{refused}");
    }
    assert_eq!(origin.heard().len(), 1);
    let get = world.get(&url);
    assert!(get.ends_with("reached"), "no body is of no type: {get}");
    settled(&world, "its body has 11 bytes, and may have 10");
}

#[test]
fn p3_what_passed_is_told_for_budgets() {
    let origin = patient();
    let world = world(Vec::new());
    let url = format!("http://a.test:{}/", origin.port());
    let post = |text: &str| {
        let length = text.len();
        let request = format!("POST {url} HTTP/1.1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
        let answer = world.exchange(0, &request);
        assert!(answer.ends_with("reached"), "{answer}");
    };
    post("01234");
    post("");
    settled(&world, "0 bytes sent, 7 received");
    let counted = world.counted.lock().unwrap().clone();
    for sent in [5, 0] {
        let want = Passed {
            sent: Some(sent),
            received: 7,
        };
        assert!(counted.contains(&want), "{want:?} in {counted:?}");
    }
}

#[test]
fn p4_a_body_without_a_length_is_cut_at_its_bound() {
    let origin = patient();
    let world = world(vec![body(10, &[])]);
    let url = format!("http://a.test:{}/", origin.port());
    let chunked = |text: &str| {
        format!(
            "POST {url} HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\n01234\r\n{text}0\r\n\r\n"
        )
    };
    let good = world.exchange(0, &chunked("5\r\n56789\r\n"));
    assert!(good.ends_with("reached"), "{good}");
    let refused = world.exchange(0, &chunked("6\r\n56789x\r\n"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("bailiwick-code: limit-reached"), "{refused}");
    settled(&world, "the body is longer than it may be");
}

#[test]
fn p4_an_answer_is_cut_at_its_length_and_on_record() {
    let known = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n0123456789x");
    });
    let unknown = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n");
        std::thread::sleep(Duration::from_millis(100));
        let _ = stream.write_all(b"6\r\n56789x\r\n0\r\n\r\n");
    });
    let world = world(vec![answer(Some(10), None, None)]);
    let refused = world.get(&format!("http://a.test:{}/", known.port()));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(
        refused.contains("the answer has 11 bytes, and may have 10"),
        "{refused}"
    );
    let cut = world.get(&format!("http://a.test:{}/", unknown.port()));
    assert!(cut.starts_with("HTTP/1.1 200") && cut.contains("01234"), "{cut}");
    assert!(
        !cut.contains("56789x") && !cut.contains("\r\n0\r\n"),
        "it does not look whole: {cut}"
    );
    settled(&world, "11 received, cut at the length that the answer may have");
}

#[test]
fn p4_an_answer_has_its_time_and_its_rate() {
    let silent = Origin::http(|_, _| std::thread::sleep(Duration::from_secs(8)));
    let slow = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n");
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(100));
            if stream.write_all(b"x").is_err() {
                return;
            }
        }
    });
    let timed = world(vec![answer(None, Some(1), None)]);
    let begun = Instant::now();
    let refused = timed.get(&format!("http://a.test:{}/", silent.port()));
    assert!(refused.contains("bailiwick-code: limit-reached"), "{refused}");
    settled(&timed, "no answer in the time that it may take");
    let cut = timed.get(&format!("http://a.test:{}/", slow.port()));
    assert!(cut.starts_with("HTTP/1.1 200") && cut.ends_with('x'), "{cut}");
    settled(&timed, "cut at the time that the answer may take");
    assert!(begun.elapsed() < Duration::from_secs(6));
    let big = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n");
        let _ = stream.write_all(&[b'x'; 300_000]);
    });
    let paced = world(vec![answer(None, None, Some(200_000))]);
    let begun = Instant::now();
    let whole = paced.get(&format!("http://a.test:{}/", big.port()));
    assert_eq!(whole.split_once("\r\n\r\n").unwrap().1.len(), 300_000);
    let took = begun.elapsed();
    assert!(
        took > Duration::from_millis(800) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn p5_a_pinned_key_is_the_servers_or_nothing_is_sent() {
    let root = Root::new();
    let origin = bailiwick_testkit::Origin::over_tls(&root, &["a.test"], |_| Answer::text(200, "reached"));
    let port = origin.port();
    let own = {
        let mut client = crate::tls::client(
            std::net::TcpStream::connect(("127.0.0.1", port)).unwrap(),
            root.pem(),
            "a.test",
        );
        client.write_all(b"x").unwrap();
        let certificate = client.conn.peer_certificates().unwrap()[0].clone();
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate).unwrap();
        Digest(Sha256::digest(parsed.subject_public_key_info().as_ref()).into())
    };
    let pin = |keys: &[Digest]| Obligation::PinKey { sha256: keys.to_vec() };
    let other = Digest([7; 32]);
    for (pins, reached) in [
        (vec![pin(&[own])], true),
        (vec![pin(&[other, own])], true),
        (vec![pin(&[other])], false),
        (vec![pin(&[own]), pin(&[other])], false),
        (vec![pin(&[])], false),
    ] {
        let opened = [format!("a.test:{port}")];
        let world = World::opening(&opened, &root, move |request| under(request, &pins));
        let said = crate::tls::get(&world, "a.test", port, "/x");
        assert_eq!(said.ends_with("reached"), reached, "{said}");
        if !reached {
            assert!(said.contains("bailiwick-code: upstream-untrusted"), "{said}");
            settled(&world, "another public key");
        }
    }
    assert_eq!(origin.requests().len(), 2);
    // Where nothing proves who the server is, no key can be.
    let plain = Origin::plain();
    let world = world(vec![pin(&[own])]);
    let refused = world.get(&format!("http://a.test:{}/", plain.port()));
    assert!(refused.contains("bailiwick-code: permit-refused"), "{refused}");
}

#[test]
fn what_rules_may_ask_about_stands_in_the_request() {
    let origin = patient();
    let world = World::proxy(&["a.test"], |request| {
        if matches!(request.verb, Verb::Http(_)) {
            let said: Vec<String> = request
                .arguments
                .iter()
                .filter(|(name, _)| *name != "address")
                .map(|(name, value)| format!("{name} {value:?}"))
                .collect();
            assert_eq!(
                said,
                [
                    "content-length Whole(2)",
                    "content-type Text(\"text/plain; x=y\")",
                    "credential Flag(true)"
                ]
            );
        }
        Say::Allow
    });
    let url = format!("http://a.test:{}/", origin.port());
    let request = format!(
        "POST {url} HTTP/1.1\r\ncontent-type: text/plain; x=y\r\nauthorization: Bearer x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
    );
    assert!(world.exchange(0, &request).ends_with("reached"));
    let twice = format!("POST {url} HTTP/1.1\r\ncontent-type: a/b\r\ncontent-type: c/d\r\nconnection: close\r\n\r\n");
    assert!(world.exchange(0, &twice).starts_with("HTTP/1.1 400"));
}

#[test]
fn faults_of_servers_are_told_and_hang_nothing() {
    let begins = |rest: &'static [u8]| {
        Origin::http(move |_, stream| {
            let _ = stream.write_all(rest);
            let _ = stream.shutdown(Shutdown::Both);
        })
    };
    let dies = begins(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf");
    let chunk = begins(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n63\r\nhalf");
    let nothing = begins(b"");
    let long = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        for number in 0..10_000 {
            if write!(stream, "x-{number}: {}\r\n", "y".repeat(90)).is_err() {
                return;
            }
        }
    });
    let world = world(Vec::new());
    for (origin, status, note) in [
        (&dies, "HTTP/1.1 200", "4 received, broken off by the server"),
        (&chunk, "HTTP/1.1 200", "received, broken off by the server"),
        (&nothing, "HTTP/1.1 502", "no answer"),
        (&long, "HTTP/1.1 502", "no answer"),
    ] {
        let said = world.get(&format!("http://a.test:{}/", origin.port()));
        assert!(said.starts_with(status), "{said}");
        assert!(!said.ends_with("0\r\n\r\n"), "it does not look whole: {said}");
        settled(&world, note);
        world.log.lock().unwrap().clear();
    }
}

#[test]
fn a_client_that_never_reads_makes_the_server_wait_and_nothing_grow() {
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let chunk = vec![b'x'; 64 * 1024];
        let mut sent = 0usize;
        while stream.write_all(&chunk).is_ok() {
            sent += chunk.len();
        }
        assert!(sent < 64 * 1024 * 1024, "{sent} bytes were taken in");
    });
    let world = world(Vec::new());
    let mut client = world.connect(0);
    write!(client, "GET http://a.test:{}/ HTTP/1.1\r\n\r\n", origin.port()).unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
    std::thread::sleep(Duration::from_millis(300));
    // Others are served meanwhile.
    let other = Origin::plain();
    assert!(
        world
            .get(&format!("http://a.test:{}/", other.port()))
            .ends_with("reached")
    );
    drop(client);
    settled(&world, "broken off by the client");
}

#[test]
fn c074_who_dawdles_holds_nobody_else_up() {
    let origin = patient();
    let world = world(Vec::new());
    let url = format!("http://a.test:{}/", origin.port());
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = world.connect(0);
            write!(client, "GET {url} HTTP/1.1\r\nx-").unwrap();
            client
        })
        .collect();
    let begun = Instant::now();
    assert!(world.get(&url).ends_with("reached"));
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(slow);
    // 100,000 bytes of head are none that is passed on.
    let long = format!(
        "GET {url} HTTP/1.1\r\nx: {}\r\nconnection: close\r\n\r\n",
        "y".repeat(100_000)
    );
    let mut client = world.connect(0);
    let _ = client.write_all(long.as_bytes());
    let said = read_all(&mut client);
    assert!(said.starts_with("HTTP/1.1 431") || said.is_empty(), "{said}");
    world.wait_for("the head on record", |seen| {
        matches!(seen, Seen::Refused(Code::MalformedRequest, _))
    });
    assert_eq!(origin.heard().len(), 1);
}
