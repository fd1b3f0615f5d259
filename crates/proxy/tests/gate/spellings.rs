//! Whatever is written in a head: what is asked about, what another parser makes of it, and what is sent on, are one.

use std::io::{Read, Write};
use std::net::TcpStream;

use bailiwick_model::{Host, HttpUrl};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::world::{Origin, Say, World, read_head};

/// Text that path rules were dodged with, in any order.
fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/".to_owned()),
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just("%2e".to_owned()),
        Just("%2E%2e".to_owned()),
        Just("%2f".to_owned()),
        Just("%5c".to_owned()),
        Just("%252e".to_owned()),
        Just("%00".to_owned()),
        Just("%zz".to_owned()),
        Just("%7e".to_owned()),
        Just("%41".to_owned()),
        Just(";x".to_owned()),
        Just("?".to_owned()),
        Just("#".to_owned()),
        Just("\\".to_owned()),
        "[a-zA-Z0-9~!$&'()*+,=:@_-]{1,3}",
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// A host as it may be spelled.
fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9.-]{1,12}",
        "[0-9]{1,3}(\\.[0-9]{1,3}){0,3}",
        "0x[0-9a-f]{1,8}",
        Just("[::1]".to_owned()),
        Just("[::ffff:1.2.3.4]".to_owned()),
        Just("m\u{fc}nze.test".to_owned()),
        Just("a.test.".to_owned()),
        Just("%61.test".to_owned()),
    ]
}

/// What percent-encodings mean, whatever their spelling.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (bytes[at], byte) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (other, _) => {
                out.push(other);
                at += 1;
            }
        }
    }
    out
}

/// One request on a connection that is kept open where it can be; the head of the answer.
fn ask(world: &World, client: &mut Option<TcpStream>, line: &str) -> String {
    let mut stream = client.take().unwrap_or_else(|| world.connect(0));
    if write!(stream, "{line}\r\n\r\n").is_err() {
        return String::new();
    }
    let head = read_head(&mut stream);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length.and_then(|length| length.parse().ok()) {
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_ok() && !head.contains("connection: close") {
            *client = Some(stream);
        }
    }
    head
}

proptest! {
    #[test]
    fn p5_another_parser_reads_the_same_url(host in host(), port in 1u16.., path in path()) {
        let text = format!("http://{host}:{port}{path}");
        if let Ok(own) = HttpUrl::parse(&text) {
            let other = url::Url::parse(&text).unwrap();
            // An IPv4 address inside IPv6 is one address in two spellings, of which only one is kept.
            prop_assert_eq!(&Host::parse(other.host_str().unwrap()).unwrap(), &own.host);
            prop_assert_eq!(own.port, other.port_or_known_default().unwrap());
            prop_assert_eq!(decoded(own.path()), decoded(other.path()));
            // What is sent is read as it was judged.
            let sent = url::Url::parse(&format!("http://{}:{port}{}", own.host, own.target())).unwrap();
            prop_assert_eq!(sent.path(), own.path());
            let again = format!("http://{}:{port}{}", own.host, own.target());
            prop_assert_eq!(HttpUrl::parse(&again).unwrap(), own);
        }
    }
}

#[test]
fn p5_what_is_asked_about_is_what_is_sent() {
    let origin = Origin::raw(|stream, heard| {
        loop {
            let head = read_head(stream);
            let Some(line) = head.lines().next() else { return };
            heard.lock().unwrap().push(line.to_owned());
            if stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .is_err()
            {
                return;
            }
        }
    });
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let base = format!("http://a.test:{}", origin.port());
    let mut client = None;
    let mut passed = 0usize;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..400 {
        let path = path().new_tree(&mut runner).unwrap().current();
        world.log.lock().unwrap().clear();
        origin.heard.lock().unwrap().clear();
        let head = ask(&world, &mut client, &format!("GET {base}{path} HTTP/1.1"));
        let asked = world.asked().into_iter().find(|act| act.starts_with("GET"));
        let sent = origin.heard().pop();
        match (asked, sent) {
            (Some(asked), Some(sent)) => {
                let judged = asked.strip_prefix(&format!("GET {base}")).unwrap();
                assert_eq!(sent, format!("GET {judged} HTTP/1.1"), "{path}");
                passed += 1;
            }
            (None, None) => assert!(!head.starts_with("HTTP/1.1 2"), "{path}: {head}"),
            (asked, sent) => panic!("{path}: asked {asked:?}, sent {sent:?}"),
        }
    }
    assert!(passed > 50, "{passed} of 400 went through");
}

#[test]
fn p4_no_target_of_connect_is_taken_for_another() {
    let world = World::proxy(&[], |_| Say::Deny(bailiwick_model::Code::NoRule));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let target = proptest::string::string_regex("[a-z0-9.:@/\\[\\]%?#\\\\ -]{1,24}").unwrap();
    for _ in 0..300 {
        let target = target.new_tree(&mut runner).unwrap().current();
        world.log.lock().unwrap().clear();
        let head = ask(&world, &mut None, &format!("CONNECT {target} HTTP/1.1"));
        assert!(!head.starts_with("HTTP/1.1 2"), "{target}: {head}");
        for act in world.asked() {
            // Only what is spelled `host:port` and nothing more is asked about.
            let (host, port) = target.rsplit_once(':').unwrap();
            assert!(port.bytes().all(|byte| byte.is_ascii_digit()), "{target}: {act}");
            assert!(!host.contains(['@', '/', '?', '#', '\\', ' ', '%']), "{target}: {act}");
        }
    }
}
