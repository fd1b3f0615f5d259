use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Shutdown, UdpSocket};
use std::os::unix::net::UnixStream;

use bailiwick_model::{Code, TaskId};
use bailiwick_proxy::{Config, GateFault, Service, SystemResolver, run};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::world::{Origin, Say, World, Zone, client_hello, read_all};

/// Bytes of all kinds: noise, and words of the protocols in an order of their own.
fn mess() -> impl Strategy<Value = Vec<u8>> {
    let word = proptest::sample::select(vec![
        &b"GET http://a.test/ HTTP/1.1\r\n"[..],
        b"CONNECT a.test:443 HTTP/1.1\r\n",
        b"host: a.test\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc",
        b"\x00\x1c\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c",
        b"\0",
        b"http://[::1",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]);
    let noise = proptest::collection::vec(proptest::num::u8::ANY, 0..60);
    let piece = proptest::prop_oneof![word.prop_map(<[u8]>::to_vec), noise];
    proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

#[test]
fn p4_no_bytes_bring_the_gate_down() {
    let origin = Origin::plain();
    let port = origin.port();
    let services = vec![
        Service::Proxy,
        Service::DnsStream,
        Service::Elsewhere {
            streams: BTreeSet::new(),
        },
        Service::LoopbackHttp { port },
        Service::DnsDatagram,
    ];
    let world = World::new(services, &[("a.test", "127.0.0.1")], Zone::default(), move |request| {
        // Nothing is dialled but the server here: what else is named may be anywhere.
        if request.to_string().contains(&format!("127.0.0.1:{port}")) {
            Say::Allow
        } else {
            Say::Deny(Code::NoRule)
        }
    });
    let mut runner = TestRunner::deterministic();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..300 {
        let bytes = mess().new_tree(&mut runner).unwrap().current();
        let service = round % world.addresses.len();
        if service == 4 {
            let _ = datagrams.send_to(&bytes, world.addresses[service]);
            continue;
        }
        let mut stream = match service {
            2 => world.elsewhere(2, ([93, 184, 215, 14], port).into()),
            _ => world.connect(service),
        };
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_all(&mut stream);
    }
    let answer = world.get(&format!("http://127.0.0.1:{port}/"));
    assert!(answer.ends_with("reached"), "{answer}");
}

#[test]
fn p4_heads_have_limits() {
    let origin = Origin::plain();
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let line = format!("GET http://a.test:{}/ HTTP/1.1\r\n", origin.port());
    let many: String = (0..300).map(|number| format!("x-{number}: y\r\n")).collect();
    let answer = world.exchange(0, &format!("{line}{many}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = "y".repeat(70_000);
    let answer = world.exchange(0, &format!("{line}x: {long}\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = world.exchange(0, &format!("GET http://a.test/{} HTTP/1.1\r\n\r\n", "y".repeat(20_000)));
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(origin.heard().is_empty());
}

#[test]
fn a_server_that_does_not_speak_http_is_a_bad_gateway() {
    for words in [
        &b"SSH-2.0-x\r\n"[..],
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    ] {
        let origin = Origin::http(move |_, stream| {
            let _ = stream.write_all(words);
        });
        let world = World::proxy(&["a.test"], |_| Say::Allow);
        let answer = world.get(&format!("http://a.test:{}/", origin.port()));
        assert!(answer.starts_with("HTTP/1.1 502"), "{words:?}: {answer}");
    }
}

#[test]
fn a_refusal_shows_no_control_characters() {
    let world = World::proxy(&[], |_| Say::Deny(Code::NoRule));
    let hello = client_hello(Some("a.test"));
    let text = format!("GET http://a.test/{} HTTP/1.1\r\n\r\n", "%0a%1b[31m");
    let answer = world.exchange(0, &text);
    assert!(
        answer.starts_with("HTTP/1.1 400") && !answer.contains('\u{1b}'),
        "{answer}"
    );
    assert!(!hello.is_empty());
}

#[test]
fn sockets_and_services_must_fit() {
    let config = Config {
        task: TaskId([1; 8]),
        sockets: vec![Service::Proxy],
        hosts: [].into(),
        opened: Vec::new(),
        authority: None,
        roots: String::new(),
        secrets: Vec::new(),
        build: "test".into(),
    };
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let fault = run(config, Vec::new(), bailiwick_proxy::pairs().1, ours, SystemResolver).unwrap_err();
    assert!(matches!(
        fault,
        GateFault::Sockets {
            sockets: 0,
            services: 1
        }
    ));
    assert_eq!(fault.to_string(), "0 sockets were handed over for 1 services");
}
