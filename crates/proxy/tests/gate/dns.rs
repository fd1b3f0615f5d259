use std::io::{Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use bailiwick_model::{Code, Request};
use bailiwick_proxy::Service;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use crate::world::{Say, Seen, World, Zone};

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(absolute(name), kind));
    message
}

fn absolute(name: &str) -> Name {
    let labels = name.trim_end_matches('.').split('.');
    Name::from_labels(labels.map(str::as_bytes)).unwrap()
}

fn send(world: &World, service: usize, bytes: &[u8]) -> Option<Message> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.send_to(bytes, world.addresses[service]).unwrap();
    let mut buffer = [0u8; 4096];
    let count = socket.recv(&mut buffer).ok()?;
    Some(Message::from_vec(&buffer[..count]).unwrap())
}

fn ask(world: &World, service: usize, name: &str, kind: RecordType) -> Message {
    let message = question(name, kind);
    let answer = send(world, service, &message.to_vec().unwrap()).expect("an answer");
    assert_eq!(answer.metadata.id, message.metadata.id);
    assert_eq!(answer.queries, message.queries);
    answer
}

fn addresses(answer: &Message) -> Vec<Ipv4Addr> {
    let data = answer.answers.iter().filter_map(|record| match record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    data.collect()
}

/// The address that the DNS service gives to a name.
pub fn ask_a(world: &World, service: usize, name: &str) -> Option<Ipv4Addr> {
    addresses(&ask(world, service, name, RecordType::A)).first().copied()
}

fn only_ok(request: &Request) -> Say {
    if request.to_string() == "resolve ok.example.test" {
        Say::Allow
    } else {
        Say::Deny(Code::NoRule)
    }
}

fn dns(rules: impl Fn(&Request) -> Say + Send + 'static) -> World {
    World::new(
        vec![Service::DnsDatagram, Service::DnsStream],
        &[],
        Zone::default(),
        rules,
    )
}

#[test]
fn c029_names_outside_the_rules_are_not_looked_up() {
    let world = dns(only_ok);
    let start = Instant::now();
    let leak = "c2VjcmV0.leak.example.test";
    for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::HTTPS] {
        let answer = ask(&world, 0, leak, kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        assert!(answer.answers.is_empty());
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(world.zone.asked.lock().unwrap().is_empty());
    assert_eq!(
        world.asked()[0],
        "resolve c2vjcmv0.leak.example.test",
        "on record, in its one form"
    );

    let first = ask_a(&world, 0, "ok.example.test").unwrap();
    assert_eq!(
        ask_a(&world, 0, "OK.Example.Test."),
        Some(first),
        "one address for one name"
    );
    let answer = ask(&world, 0, "ok.example.test", RecordType::A);
    assert_eq!(answer.answers[0].ttl, 5);
    for kind in [
        RecordType::AAAA,
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::TXT,
        RecordType::ANY,
    ] {
        let answer = ask(&world, 0, "ok.example.test", kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(answer.answers.is_empty(), "{kind}");
    }
    assert!(
        world.zone.asked.lock().unwrap().is_empty(),
        "nothing leaves by DNS, not even what is allowed"
    );
}

#[test]
fn names_of_this_machine_and_names_that_stand_in_no_zone() {
    let world = dns(|_| Say::Deny(Code::NoRule));
    for name in ["localhost", "x.localhost", "LOCALHOST."] {
        assert_eq!(ask_a(&world, 0, name), Some(Ipv4Addr::LOCALHOST), "{name}");
    }
    for (name, kind) in [
        ("1.0.0.127.in-addr.arpa", RecordType::PTR),
        ("127.1", RecordType::A),
        ("169.254.169.254", RecordType::A),
        ("a b.test", RecordType::A),
    ] {
        let answer = ask(&world, 0, name, kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
    }
    assert!(world.asked().is_empty());
    assert!(
        world
            .seen()
            .iter()
            .any(|seen| matches!(seen, Seen::Refused(Code::MalformedRequest, _)))
    );
}

#[test]
fn p4_messages_that_do_not_fit_are_refused() {
    let world = dns(|_| Say::Allow);
    let code =
        |message: Message| send(&world, 0, &message.to_vec().unwrap()).map(|answer| answer.metadata.response_code);
    let mut two = question("a.test", RecordType::A);
    two.add_query(Query::query(Name::from_ascii("b.test").unwrap(), RecordType::A));
    assert_eq!(code(two), Some(ResponseCode::FormErr));
    assert_eq!(code(Message::query()), Some(ResponseCode::FormErr), "no question");
    let mut chaos = question("version.bind", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(chaos), Some(ResponseCode::NotImp));
    let long = [question("a.test", RecordType::A).to_vec().unwrap(), vec![0; 2000]].concat();
    assert_eq!(
        send(&world, 0, &long).unwrap().metadata.response_code,
        ResponseCode::FormErr
    );
    let mut broken = question("a.test", RecordType::A).to_vec().unwrap();
    broken.truncate(15);
    assert_eq!(
        send(&world, 0, &broken).unwrap().metadata.response_code,
        ResponseCode::FormErr
    );
    assert!(world.asked().is_empty());
}

#[test]
fn dns_over_a_stream() {
    let world = dns(only_ok);
    let mut stream = world.connect(1);
    for (name, code) in [
        ("ok.example.test", ResponseCode::NoError),
        ("no.example.test", ResponseCode::NXDomain),
    ] {
        let bytes = question(name, RecordType::A).to_vec().unwrap();
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        stream.write_all(&length).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut length = [0u8; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0u8; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, code);
    }
    stream.write_all(&60_000u16.to_be_bytes()).unwrap();
    assert_eq!(
        stream.read(&mut [0u8; 1]).unwrap_or(0),
        0,
        "a length over the limit closes the stream"
    );
}

#[test]
fn p4_without_the_mediator_the_service_fails() {
    let world = dns(|_| Say::Nonsense);
    let answer = ask(&world, 0, "ok.example.test", RecordType::A);
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    let mut world = world;
    assert!(world.end().is_err());
}

/// Programs of their own, in a network of their own. Run by hand, as any user, with `unshare -rnm`, the loopback up, and
/// an `/etc/resolv.conf` that names 127.0.0.1.
#[test]
#[ignore = "needs port 53 of a network namespace"]
fn c029_programs_give_up_within_two_seconds() {
    let services = vec![Service::DnsDatagram, Service::DnsStream];
    let world = World::on(
        |_| 53,
        services,
        &[("ok.example.test", "127.0.0.1")],
        Zone::default(),
        only_ok,
    );
    let look_up = "require('dns').lookup(process.argv[1], e => process.exit(e ? 6 : 0))";
    let ask_all = "require('dns').resolve4(process.argv[1], e => process.exit(e ? 6 : 0))";
    let python = "import socket, sys; socket.getaddrinfo(sys.argv[1], 80)";
    for program in [
        vec!["getent", "hosts"],
        vec!["getent", "ahosts"],
        vec!["python3", "-c", python],
        vec!["node", "-e", look_up],
        vec!["node", "-e", ask_all],
    ] {
        for (name, works) in [("ok.example.test", true), ("c2VjcmV0.leak.example.test", false)] {
            let start = Instant::now();
            let mut command = std::process::Command::new(program[0]);
            let output = command.args(&program[1..]).arg(name).output().unwrap();
            let took = start.elapsed();
            println!(
                "{} {name}: {:?}, {took:?}",
                program[..2].join(" "),
                output.status.code()
            );
            assert_eq!(output.status.success(), works, "{program:?} {output:?}");
            assert!(took < Duration::from_secs(2), "{program:?} {took:?}");
        }
    }
    assert!(world.zone.asked.lock().unwrap().is_empty());
}

#[test]
fn p4_questions_that_wait_have_a_limit() {
    let world = dns(|_| Say::Silence);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..400 {
        let bytes = question(&format!("n{number}.test"), RecordType::A).to_vec().unwrap();
        socket.send_to(&bytes, world.addresses[0]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(200));
    let asked = world.asked().len();
    assert_eq!(asked, bailiwick_proxy::limits::DNS_QUESTIONS);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..proptest::test_runner::Config::with_cases(4) })]
    #[test]
    fn p4_broken_messages_never_end_the_service(
        edits in proptest::collection::vec((0usize..64, proptest::num::u8::ANY, 0usize..64), 100),
    ) {
        let world = dns(only_ok);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (place, byte, cut) in edits {
            let mut bytes = question("some.name.example.test", RecordType::A).to_vec().unwrap();
            let length = bytes.len();
            bytes[place % length] = byte;
            bytes.truncate(length - cut % 8);
            socket.send_to(&bytes, world.addresses[0]).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        proptest::prop_assert!(ask_a(&world, 0, "ok.example.test").is_some());
    }
}
