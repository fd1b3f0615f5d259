use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use bailiwick_gate::Handed;
use bailiwick_model::{Code, Host, Request, Verb};
use bailiwick_proxy::Service;

use crate::dns::ask_a;
use crate::world::{Origin, Say, Seen, World, Zone, client_hello, in_small_records, read_all, read_head, tunnel};

fn only(name: &'static str) -> impl Fn(&Request) -> Say + Send + 'static {
    move |request| match request.resource.host() {
        Some(host) if host.to_string() == name => Say::Allow,
        _ => Say::Deny(Code::NoRule),
    }
}

/// Sends a greeting and returns what the echo server sends back.
fn greet(mut stream: TcpStream, hello: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(hello);
    let _ = stream.shutdown(Shutdown::Write);
    let mut back = Vec::new();
    let _ = stream.read_to_end(&mut back);
    back
}

#[test]
fn c034_the_name_in_the_greeting_is_the_name_of_the_tunnel() {
    let origin = Origin::echo();
    let port = origin.port();
    let world = World::proxy(&["front.example.test", "back.example.test"], only("front.example.test"));
    let open = || {
        let (head, stream) = tunnel(&world, &format!("Front.Example.Test.:{port}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    };
    let good = client_hello(Some("front.EXAMPLE.test"));
    assert_eq!(greet(open(), &good), good, "passed on untouched");
    let bytes = format!("{} bytes sent, {} received", good.len(), good.len());
    world.wait_for("the count", |seen| *seen == Seen::Settled(true, bytes.clone()));
    for size in [1, 3, 40] {
        let spread = in_small_records(&client_hello(Some("front.example.test")), size);
        assert_eq!(greet(open(), &spread), spread, "over records of {size} bytes");
    }
    let heard = origin.heard().iter().filter(|line| line.ends_with("bytes")).count();
    for (hello, code) in [
        (client_hello(Some("back.example.test")), Code::NameMismatch),
        (client_hello(Some("front.example.test.evil.test")), Code::NameMismatch),
        (
            in_small_records(&client_hello(Some("back.example.test")), 7),
            Code::NameMismatch,
        ),
        (client_hello(None), Code::NameMismatch),
        (client_hello(Some("127.0.0.1")), Code::NameMismatch),
        (
            b"GET / HTTP/1.1\r\nhost: back.example.test\r\n\r\n".to_vec(),
            Code::NotTls,
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), Code::NotTls),
        (client_hello(Some("front.example.test"))[..40].to_vec(), Code::NotTls),
        (Vec::new(), Code::NotTls),
    ] {
        let before = world.seen().len();
        assert!(greet(open(), &hello).is_empty(), "{code}");
        world.wait_for(
            "the refusal",
            |seen| matches!(seen, Seen::Refused(own, _) if *own == code),
        );
        let settled = world.seen().split_off(before);
        assert!(
            settled
                .iter()
                .any(|seen| matches!(seen, Seen::Settled(false, note) if note.starts_with("no byte sent"))),
            "{settled:?}"
        );
    }
    let (head, _) = tunnel(&world, &format!("back.example.test:{port}"));
    assert!(
        head.starts_with("HTTP/1.1 403") && head.contains("bailiwick-code: no-rule"),
        "{head}"
    );
    let now = origin.heard().iter().filter(|line| line.ends_with("bytes")).count();
    assert_eq!(now, heard, "no byte of a refused tunnel arrives");
}

#[test]
fn old_and_hasty_clients_get_their_tunnel() {
    let origin = Origin::echo();
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let good = client_hello(Some("a.test"));
    for version in ["1.0", "1.1"] {
        // The greeting in the same breath as the request, before the answer.
        let mut stream = world.connect(0);
        let line = format!("CONNECT a.test:{} HTTP/{version}\r\n\r\n", origin.port());
        stream.write_all(&[line.as_bytes(), &good].concat()).unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with(&format!("HTTP/{version} 200")), "{head}");
        assert_eq!(greet(stream, b""), good);
    }
    let mut stream = world.connect(0);
    let line = format!("CONNECT a.test:{} HTTP/1.1\r\n\r\n", origin.port());
    let other = client_hello(Some("b.test"));
    stream.write_all(&[line.as_bytes(), &other].concat()).unwrap();
    assert!(!read_all(&mut stream).contains("b.test"));
    world.wait_for("the refusal", |seen| {
        matches!(seen, Seen::Refused(Code::NameMismatch, _))
    });
}

#[test]
fn p5_to_an_address_no_server_name_is_right() {
    let origin = Origin::echo();
    let world = World::proxy(&[], |_| Say::Allow);
    let open = || tunnel(&world, &format!("127.0.0.1:{}", origin.port())).1;
    let bare = client_hello(None);
    assert_eq!(greet(open(), &bare), bare);
    assert!(greet(open(), &client_hello(Some("a.test"))).is_empty());
    assert!(!world.asked().iter().any(|act| act.starts_with("resolve")));
}

#[test]
fn p4_a_greeting_has_a_limit() {
    let origin = Origin::echo();
    let world = World::proxy(&["a.test"], |_| Say::Allow);
    let (_, mut stream) = tunnel(&world, &format!("a.test:{}", origin.port()));
    // A handshake message that says it is 60,000 bytes long, in records that never end it.
    let mut bytes = vec![22u8, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xf0];
    bytes.resize(5 + 0x3fff, 0);
    for _ in 0..8 {
        bytes.extend([22u8, 3, 1, 0x3f, 0xff]);
        bytes.resize(bytes.len() + 0x3fff, 0);
    }
    let _ = stream.write_all(&bytes);
    assert!(read_all(&mut stream).is_empty());
    world.wait_for("a refusal", |seen| {
        matches!(seen, Seen::Refused(Code::LimitReached | Code::NotTls, _))
    });
    assert!(!origin.heard().iter().any(|line| line.ends_with("bytes")));
}

#[test]
fn a_tunnel_without_the_duty_to_compare_is_passed_on_at_once() {
    let origin = Origin::raw(|stream, _| {
        let _ = stream.write_all(b"SSH-2.0-server\r\n");
    });
    let world = World::proxy(&["git.test"], |request| match request.address() {
        Some(address) => Say::AllowUnder(vec![bailiwick_model::Obligation::DialAddress { address }]),
        None => Say::Allow,
    });
    let (head, mut stream) = tunnel(&world, &format!("git.test:{}", origin.port()));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(
        read_all(&mut stream),
        "SSH-2.0-server\r\n",
        "the server may speak first"
    );
}

#[test]
fn another_address_is_asked_about_before_it_is_tried() {
    let origin = Origin::plain();
    let zone = Zone {
        names: [(
            "two.test".into(),
            vec!["127.0.0.9".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        )]
        .into(),
        ..Zone::default()
    };
    let world = World::new(vec![Service::Proxy], &[], zone, |_| Say::Allow);
    let url = format!("http://two.test:{}/", origin.port());
    assert!(world.get(&url).ends_with("reached"));
    let dialled: Vec<Seen> = world
        .seen()
        .into_iter()
        .filter(|seen| matches!(seen, Seen::Asked(_, Some(_))))
        .collect();
    let act = format!("GET {url}");
    assert_eq!(
        dialled,
        [
            Seen::Asked(act.clone(), "127.0.0.9".parse().ok()),
            Seen::Asked(act, "127.0.0.1".parse().ok())
        ]
    );
}

#[test]
fn c073_a_stream_to_a_port_of_the_machine() {
    let origin = Origin::echo();
    let port = origin.port();
    let act = format!("tunnel 127.0.0.1:{port}");
    let world = World::new(
        vec![Service::LoopbackStream { port }, Service::LoopbackStream { port: 1 }],
        &[],
        Zone::default(),
        {
            let act = act.clone();
            move |request| {
                let Some(address) = request.address().filter(|_| request.to_string() == act) else {
                    return Say::Deny(Code::AddressLoopback);
                };
                Say::AllowUnder(vec![bailiwick_model::Obligation::DialAddress { address }])
            }
        },
    );
    assert_eq!(world.exchange(0, "select 1"), "select 1");
    assert_eq!(world.exchange(1, "select 1"), "");
    assert_eq!(world.asked(), [act, "tunnel 127.0.0.1:1".into()]);
}

/// A gate that serves DNS and what is made to any other address.
fn straight(
    streams: &[(&str, u16)],
    names: &[(&str, &str)],
    rules: impl Fn(&Request) -> Say + Send + 'static,
) -> World {
    let streams = streams.iter().map(|(host, port)| (Host::parse(host).unwrap(), *port));
    let services = vec![
        Service::DnsDatagram,
        Service::Elsewhere {
            streams: streams.collect(),
        },
    ];
    World::new(services, names, Zone::default(), rules)
}

#[test]
fn c030_programs_that_know_no_proxy_reach_what_they_may() {
    let ok = Origin::echo();
    let plain = Origin::plain();
    let world = straight(&[], &[("ok.example.test", "127.0.0.1")], only("ok.example.test"));
    let address = ask_a(&world, 0, "ok.example.test").unwrap();
    assert!(address.to_string().starts_with("198.19."), "{address}");
    assert_eq!(ask_a(&world, 0, "other.example.test"), None);
    let to = |address: std::net::Ipv4Addr, port: u16| world.elsewhere(1, (address, port).into());
    // (a) and (d): carried, the name in the greeting compared.
    let good = client_hello(Some("ok.example.test"));
    assert_eq!(greet(to(address, ok.port()), &good), good);
    assert!(world.asked().contains(&format!("tunnel ok.example.test:{}", ok.port())));
    // (b): another name at the same address, or an address that stands for no name.
    assert!(greet(to(address, ok.port()), &client_hello(Some("other.example.test"))).is_empty());
    for stranger in [[198, 19, 200, 200], [198, 19, 0, 0]] {
        assert!(greet(to(stranger.into(), ok.port()), &good).is_empty(), "{stranger:?}");
    }
    // Plain HTTP by the same way.
    let send = |address: std::net::Ipv4Addr, host: &str| {
        let mut stream = to(address, plain.port());
        write!(
            stream,
            "GET /x HTTP/1.1\r\nhost: {host}:{}\r\nconnection: close\r\n\r\n",
            plain.port()
        )
        .unwrap();
        read_all(&mut stream)
    };
    assert!(send(address, "OK.example.test").ends_with("reached"));
    assert!(
        world
            .asked()
            .contains(&format!("GET http://ok.example.test:{}/x", plain.port()))
    );
    assert!(send(address, "other.example.test").contains("name-mismatch"));
    assert_eq!(send([198, 19, 9, 9].into(), "ok.example.test"), "");
    assert_eq!(plain.heard().len(), 1);
    assert_eq!(ok.heard().iter().filter(|line| line.ends_with("bytes")).count(), 1);
    assert!(
        world.zone.asked.lock().unwrap().is_empty(),
        "the pinned name needs no look-up"
    );
    let strangers =
        |seen: &&Seen| matches!(seen, Seen::Refused(Code::NameMismatch, what) if what.starts_with("connect 198.19."));
    world.wait_for("strangers", |seen| strangers(&seen));
    assert_eq!(world.seen().iter().filter(strangers).count(), 3);
}

#[test]
fn p5_behind_an_address_without_a_name_the_first_words_say_which_host_is_meant() {
    let ok = Origin::echo();
    let plain = Origin::plain();
    let names = [("ok.example.test", "127.0.0.1")];
    let world = straight(&[], &names, only("ok.example.test"));
    let far = |port: u16| world.elsewhere(1, ([93, 184, 215, 14], port).into());
    let good = client_hello(Some("ok.example.test"));
    assert_eq!(greet(far(ok.port()), &good), good);
    assert_eq!(
        greet(
            world.elsewhere(1, format!("[2606::1]:{}", ok.port()).parse().unwrap()),
            &good
        ),
        good
    );
    for (other, act) in [
        (client_hello(Some("other.example.test")), "resolve other.example.test"),
        (client_hello(Some("localhost")), "tunnel 93.184.215.14"),
        (client_hello(Some("127.0.0.1")), "tunnel 93.184.215.14"),
        (client_hello(None), "tunnel 93.184.215.14"),
        (b"SSH-2.0-x\r\n".to_vec(), "tunnel 93.184.215.14"),
        (b"\x16\x03\x01\0\x04junk".to_vec(), "tunnel 93.184.215.14"),
    ] {
        assert!(greet(far(ok.port()), &other).is_empty());
        let port = if act.starts_with("tunnel") {
            format!(":{}", ok.port())
        } else {
            String::new()
        };
        let act = format!("{act}{port}");
        let told = |seen: &Seen| match seen {
            Seen::Asked(asked, _) => *asked == act,
            Seen::Refused(_, what) => what.starts_with(&act),
            Seen::Settled(..) | Seen::Withdrawn | Seen::Redeemed(_) => false,
        };
        world.wait_for(&act, told);
    }
    let send = |host: &str| {
        let mut stream = far(plain.port());
        write!(stream, "GET /x HTTP/1.1\r\n{host}connection: close\r\n\r\n").unwrap();
        read_all(&mut stream)
    };
    let port = plain.port();
    assert!(send(&format!("host: ok.example.test:{port}\r\n")).ends_with("reached"));
    for wrong in [
        String::new(),
        "host: ok.example.test\r\n".into(),
        format!("host: other.example.test:{port}\r\n"),
        format!("host: localhost:{port}\r\n"),
        format!("host: 127.0.0.1:{port}\r\n"),
        format!("host: 93.184.215.15:{port}\r\n"),
        format!("host: 93.184.215.14:{port}\r\n"),
        format!("host: ok.example.test:{port}\r\nhost: other.example.test:{port}\r\n"),
    ] {
        let answer = send(&wrong);
        assert!(answer.starts_with("HTTP/1.1 40"), "{wrong}: {answer}");
    }
    assert_eq!(plain.heard().len(), 1);
    assert_eq!(ok.heard().iter().filter(|line| line.ends_with("bytes")).count(), 2);
}

#[test]
fn p5_where_no_greeting_is_needed_one_must_still_name_the_host() {
    let echo = Origin::echo();
    let port = echo.port();
    let world = straight(&[("db.test", port)], &[("db.test", "127.0.0.1")], |request| {
        let dial = request
            .address()
            .map(|address| bailiwick_model::Obligation::DialAddress { address });
        Say::AllowUnder(dial.into_iter().collect())
    });
    let address = ask_a(&world, 0, "db.test").unwrap();
    let to = || world.elsewhere(1, (address, port).into());
    let good = client_hello(Some("db.test"));
    for words in [
        good.clone(),
        in_small_records(&good, 3),
        b"SSH-2.0-x\r\n".to_vec(),
        b"\x16".to_vec(),
        b"\x16\x00\x00\x00 a message of 22 bytes".to_vec(),
        vec![0; 3000],
        Vec::new(),
    ] {
        assert_eq!(greet(to(), &words), words);
    }
    let heard = echo.heard().len();
    for words in [
        client_hello(Some("other.test")),
        in_small_records(&client_hello(Some("other.test")), 1),
        client_hello(None),
        good[..40].to_vec(),
        b"\x16\x03\x01\x00\x04junk".to_vec(),
    ] {
        assert!(greet(to(), &words).is_empty(), "{words:?}");
        world.wait_for("refused", |seen| matches!(seen, Seen::Refused(Code::NameMismatch, _)));
    }
    let sent = echo.heard().split_off(heard);
    assert!(sent.iter().all(|line| line == "connected"), "no byte: {sent:?}");
}

#[test]
fn a_stream_that_a_rule_names_needs_no_words_first() {
    let database = Origin::raw(|stream, heard| {
        heard.lock().unwrap().push("connected".into());
        let _ = stream.write_all(b"hello");
    });
    let port = database.port();
    let names = [
        ("db.test", "127.0.0.1"),
        ("other.test", "127.0.0.1"),
        ("late.test", "127.0.0.1"),
    ];
    let named: &[(&str, u16)] = &[("db.test", port), ("10.1.2.3", port)];
    let world = straight(named, &names, move |request| match request.to_string() {
        act if act.contains("db.test") || act.contains("late.test") => Say::AllowUnder(
            request
                .address()
                .map(|address| bailiwick_model::Obligation::DialAddress { address })
                .into_iter()
                .collect(),
        ),
        _ => Say::Deny(Code::NoRule),
    });
    for (name, want) in [("db.test", "hello"), ("late.test", "hello")] {
        let address = ask_a(&world, 0, name).unwrap();
        let begun = std::time::Instant::now();
        let mut stream = world.elsewhere(1, (address, port).into());
        assert_eq!(read_all(&mut stream), want, "{name}");
        assert_eq!(
            begun.elapsed() < bailiwick_proxy::limits::SILENCE,
            name == "db.test",
            "{name}"
        );
    }
    assert_eq!(ask_a(&world, 0, "other.test"), None);
    // What is refused is broken off, and not merely closed.
    let mut refused = world.elsewhere(1, ([10, 1, 2, 3], port).into());
    let fault = refused.read(&mut [0u8; 9]).unwrap_err();
    assert_eq!(fault.kind(), std::io::ErrorKind::ConnectionReset);
    world.wait_for("the address", |seen| {
        *seen == Seen::Asked(format!("tunnel 10.1.2.3:{port}"), Some([10, 1, 2, 3].into()))
    });
    // A client that goes away without a word has asked for nothing, if not for the address itself.
    let address = ask_a(&world, 0, "late.test").unwrap();
    let before = world.asked().len();
    drop(world.elsewhere(1, (address, port).into()));
    drop(world.elsewhere(1, ([10, 1, 2, 4], port).into()));
    world.wait_for("the scan", |seen| {
        *seen == Seen::Asked(format!("tunnel 10.1.2.4:{port}"), Some([10, 1, 2, 4].into()))
    });
    assert_eq!(world.asked().len(), before + 1);
    // What the supervisor refused is on record.
    world.told(1, &Handed::refused("connect 10.1.2.5:22", "no rule names that port"));
    world.wait_for("what was refused", |seen| {
        matches!(seen, Seen::Refused(Code::NoRule, what) if what == "connect 10.1.2.5:22: no rule names that port")
    });
}

#[test]
fn a_socket_that_stands_for_one_host() {
    let ok = Origin::echo();
    let plain = Origin::plain();
    let host = Host::parse("ok.test").unwrap();
    let services = vec![
        Service::Direct {
            host: host.clone(),
            port: ok.port(),
            http: false,
        },
        Service::Direct {
            host,
            port: plain.port(),
            http: true,
        },
    ];
    let world = World::new(services, &[("ok.test", "127.0.0.1")], Zone::default(), |_| Say::Allow);
    let good = client_hello(Some("ok.test"));
    assert_eq!(greet(world.connect(0), &good), good);
    assert!(greet(world.connect(0), &client_hello(Some("a.test"))).is_empty());
    let port = plain.port();
    let answer = world.exchange(
        1,
        &format!("GET / HTTP/1.1\r\nhost: ok.test:{port}\r\nconnection: close\r\n\r\n"),
    );
    assert!(answer.ends_with("reached"), "{answer}");
    let answer = world.exchange(1, &format!("GET / HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n"));
    assert!(answer.contains("name-mismatch"), "{answer}");
    let answer = world.exchange(
        1,
        &format!("GET http://a.test:{port}/ HTTP/1.1\r\nhost: ok.test:{port}\r\n\r\n"),
    );
    assert!(answer.contains("name-mismatch"), "{answer}");
}

#[test]
fn real_tls_by_curl_through_connect_and_by_a_synthetic_address() {
    let folder = std::env::temp_dir().join(format!("bailiwick-proxy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (key, certificate) = (folder.join("key.pem"), folder.join("cert.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=front.test",
            "-addext",
            "subjectAltName=DNS:front.test",
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()
        .expect("openssl is needed for this test");
    assert!(made.success());
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = Command::new("openssl")
        .args([
            "s_server",
            "-quiet",
            "-www",
            "-accept",
            &format!("127.0.0.1:{port}"),
            "-key",
        ])
        .arg(&key)
        .arg("-cert")
        .arg(&certificate)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let services = vec![
        Service::Proxy,
        Service::DnsDatagram,
        Service::Elsewhere {
            streams: BTreeSet::new(),
        },
    ];
    let world = World::new(
        services,
        &[("front.test", "127.0.0.1")],
        Zone::default(),
        only("front.test"),
    );
    let curl = |arguments: &[String]| {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "10", "--cacert"])
            .arg(&certificate)
            .args(arguments)
            .env_remove("no_proxy")
            .env_remove("NO_PROXY")
            .output()
            .expect("curl is needed for this test");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let url = format!("https://front.test:{port}/");
    let proxy = format!("http://{}", world.addresses[0]);
    let (page, fault) = curl(&["--proxy".into(), proxy.clone(), url.clone()]);
    assert!(page.contains("s_server"), "{page}{fault}");
    let (page, fault) = curl(&["--proxy".into(), proxy, format!("https://back.test:{port}/")]);
    assert!(page.is_empty() && fault.contains("403"), "{page}{fault}");
    let address = ask_a(&world, 1, "front.test").unwrap();
    let inside = world.front(2, (address, port).into());
    let map = format!("front.test:{port}:127.0.0.1:{}", inside.port());
    let (page, fault) = curl(&["--noproxy".into(), "*".into(), "--connect-to".into(), map, url]);
    assert!(page.contains("s_server"), "{page}{fault}");
    let tunnels = world
        .asked()
        .iter()
        .filter(|act| act.starts_with("tunnel front.test"))
        .count();
    assert_eq!(tunnels, 2);
    assert_eq!(Verb::Tunnel.as_str(), "tunnel");
    server.kill().unwrap();
    let _ = server.wait();
    let _ = std::fs::remove_dir_all(folder);
}
