use std::io::{Read, Write};
use std::process::Command;

use bailiwick_model::{AddressClass, Code, Obligation, PathPattern, Request, Verb};
use bailiwick_proxy::Service;

use crate::world::{Origin, PATIENCE, Say, Seen, World, Zone, read_all, read_head};

fn allow_all(_: &Request) -> Say {
    Say::Allow
}

#[test]
fn p1_a_request_is_asked_dialled_and_settled() {
    let origin = Origin::plain();
    let world = World::proxy(&["a.test"], allow_all);
    let port = origin.port();
    let answer = world.get(&format!("http://A.Test.:{port}/x?q=1#f"));
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("reached"), "{answer}");
    world.wait_for(
        "the settling",
        |seen| matches!(seen, Seen::Settled(true, note) if note.starts_with("status 200") && note.ends_with("whole")),
    );
    let loopback = "127.0.0.1".parse().ok();
    let seen = world.seen();
    assert_eq!(seen[0], Seen::Asked("resolve a.test".into(), None));
    assert_eq!(seen[1], Seen::Settled(true, "127.0.0.1".into()));
    assert_eq!(
        seen[2],
        Seen::Asked(format!("GET http://a.test:{port}/x?q=1"), loopback)
    );
    assert_eq!(seen.len(), 4);
    let head = origin.heard().remove(0);
    assert!(head.starts_with("GET /x?q=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: a.test:{port}\r\n")), "{head}");
}

#[test]
fn a_refusal_is_one_line_and_a_hint() {
    let world = World::proxy(&[], |_| Say::Deny(Code::NoRule));
    let answer = world.get("http://evil.test/x");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 403 Forbidden"), "{head}");
    assert!(head.contains("bailiwick-code: no-rule"), "{head}");
    assert!(head.contains("content-type: text/plain"), "{head}");
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("bailiwick-id: "))
        .unwrap();
    assert_eq!(
        body,
        format!(
            "bailiwick refused GET http://evil.test/x: no-rule ({id})\n\
             hint: a person can see why with `bailiwick explain {id}`\n"
        )
    );
    assert_eq!(world.asked(), ["resolve evil.test"]);
}

#[test]
fn a_question_holds_the_request_until_it_is_answered() {
    let world = World::proxy(&[], |_| Say::Ask(Some(false)));
    let waits = |world: &World, url: &str| {
        let mut client = world.connect(0);
        let request = format!("GET {url} HTTP/1.1\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        read_all(&mut client)
    };
    let answer = waits(&world, "http://a.test/");
    assert!(answer.contains("bailiwick-code: answered-no"), "{answer}");
    // Who has said all it wants to say looks like one that has gone.
    let answer = World::proxy(&[], |_| Say::Ask(None)).get("http://a.test/");
    assert!(answer.contains("bailiwick-code: question-withdrawn"), "{answer}");
    let origin = Origin::plain();
    let world = World::proxy(&["a.test"], |request| match request.verb {
        bailiwick_model::Verb::Resolve => Say::Allow,
        _ => Say::Ask(Some(true)),
    });
    let begun = std::time::Instant::now();
    let answer = waits(&world, &format!("http://a.test:{}/", origin.port()));
    assert!(answer.ends_with("reached"), "{answer}");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(200));
}

#[test]
fn a_question_is_withdrawn_when_the_client_goes_away() {
    let world = World::proxy(&[], |_| Say::Ask(None));
    let mut client = world.connect(0);
    client
        .write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(!world.log.lock().unwrap().contains(&Seen::Withdrawn));
    drop(client);
    let begun = std::time::Instant::now();
    while !world.log.lock().unwrap().contains(&Seen::Withdrawn) {
        assert!(begun.elapsed() < PATIENCE, "not withdrawn");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_reached_is_a_bad_gateway() {
    let world = World::proxy(&["a.test"], allow_all);
    let answer = world.get("http://b.test/");
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway"), "{answer}");
    assert!(answer.contains("name-unresolved"), "{answer}");
    let answer = world.get("http://a.test:1/");
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway"), "{answer}");
    assert!(answer.contains("upstream-unreachable"), "{answer}");
    world.wait_for("the look-up", |seen| {
        *seen == Seen::Settled(false, "no such name".into())
    });
    world.wait_for(
        "the dialling",
        |seen| matches!(seen, Seen::Settled(false, note) if note.starts_with("127.0.0.1:1: ")),
    );
}

#[test]
fn c025_one_name_for_many_spellings() {
    let origin = Origin::plain();
    let port = origin.port();
    let own = format!("http://api.example.test:{port}/");
    let world = World::proxy(&["api.example.test", "xn--mnze-0ra.example.test"], move |request| {
        let act = request.to_string();
        if act == "resolve api.example.test" || act.starts_with(&format!("GET {own}")) {
            return Say::Allow;
        }
        Say::Deny(Code::NoRule)
    });
    let good = world.get(&format!("http://API.Example.Test.:{port}/"));
    assert!(good.ends_with("reached"), "{good}");
    for (url, code) in [
        ("http://evilapi.example.test:PORT/", "no-rule"),
        ("http://api.example.test.evil.test:PORT/", "no-rule"),
        ("http://x.api.example.test:PORT/", "no-rule"),
        ("http://xn--mnze-0ra.example.test:PORT/", "no-rule"),
        ("http://api.example.test:PORT@evil.test/", "malformed-request"),
        ("http://api.example.test@evil.test:PORT/", "malformed-request"),
        ("http://evil.test\\@api.example.test:PORT/", ""),
        ("http://münze.example.test:PORT/", ""),
    ] {
        let answer = world.get(&url.replace("PORT", &port.to_string()));
        assert!(!answer.contains("reached") && !answer.is_empty(), "{url}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 4"), "{url}: {answer}");
        assert!(answer.contains(code), "{url}: {answer}");
    }
    assert_eq!(origin.heard().len(), 1);
    // The denied international name is on record in its one form.
    assert!(world.asked().contains(&"resolve xn--mnze-0ra.example.test".into()));
}

#[test]
fn c026_the_address_that_is_dialled_is_the_address_that_is_judged() {
    let origin = Origin::plain();
    let port = origin.port();
    let zone = Zone {
        names: [(
            "rebind.test".into(),
            vec!["169.254.169.254".parse().unwrap(), "::ffff:127.0.0.1".parse().unwrap()],
        )]
        .into(),
        ..Zone::default()
    };
    let world = World::new(vec![Service::Proxy], &[], zone, |request| {
        match request.address().map(AddressClass::of) {
            None | Some(AddressClass::Public) => Say::Allow,
            Some(AddressClass::Loopback) => Say::Deny(Code::AddressLoopback),
            Some(AddressClass::Private) => Say::Deny(Code::AddressPrivate),
            Some(AddressClass::LinkLocal) => Say::Deny(Code::AddressLinkLocal),
        }
    });
    for (host, normal) in [
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
        ("[::]", "[::]"),
        ("localhost.", "localhost"),
        ("rebind.test", "rebind.test"),
        ("2852039166", "169.254.169.254"),
        ("[64:ff9b::a9fe:a9fe]", "169.254.169.254"),
    ] {
        let answer = world.get(&format!("http://{host}:{port}/"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        assert!(answer.contains("bailiwick-code: address-"), "{host}: {answer}");
        let want = format!("GET http://{normal}:{port}/");
        assert!(world.asked().contains(&want), "{host}: {:?}", world.asked());
        let mut stream = world.connect(0);
        write!(stream, "CONNECT {host}:{port} HTTP/1.1\r\n\r\n").unwrap();
        let answer = read_head(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
    assert!(origin.heard().is_empty(), "{:?}", origin.heard());
}

#[test]
fn c028_each_hop_is_a_request_of_its_own() {
    let b = Origin::plain();
    let to_b = format!("http://b.example.test:{}/", b.port());
    let a = Origin::http(move |_, stream| {
        let _ = write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: {to_b}\r\ncontent-length: 0\r\n\r\n"
        );
    });
    let world = World::proxy(&["a.example.test", "b.example.test"], |request| {
        if request
            .resource
            .host()
            .is_some_and(|host| host.to_string() == "a.example.test")
        {
            Say::Allow
        } else {
            Say::Deny(Code::NoRule)
        }
    });
    let output = Command::new("curl")
        .args(["-sS", "-L", "-i", "--max-time", "10", "--proxy"])
        .arg(format!("http://{}", world.addresses[0]))
        .arg(format!("http://a.example.test:{}/start", a.port()))
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .expect("curl is needed for this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("302 Found") && text.contains("403 Forbidden"), "{text}");
    assert!(text.contains("bailiwick refused GET http://b.example.test"), "{text}");
    assert_eq!(a.heard().len(), 1);
    assert!(b.heard().is_empty());
}

#[test]
fn c032_every_request_is_judged_by_the_path_that_is_sent() {
    let origin = Origin::plain();
    let port = origin.port();
    let own = format!("http://data.example.test:{port}/public/");
    let world = World::proxy(&["data.example.test"], move |request| {
        let act = request.to_string();
        if act.starts_with("resolve ") || act.starts_with(&format!("GET {own}")) {
            Say::Allow
        } else {
            Say::Deny(Code::NoRule)
        }
    });
    let base = format!("http://data.example.test:{port}");
    let send = |method: &str, path: &str| {
        world.exchange(
            0,
            &format!("{method} {base}{path} HTTP/1.1\r\nconnection: close\r\n\r\n"),
        )
    };
    assert!(send("GET", "/public/a").ends_with("reached"));
    assert!(
        send("GET", "/x/../%70ublic/./b").ends_with("reached"),
        "the same path in another spelling"
    );
    for path in [
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/public/..;x/admin",
        "/public/..%2fadmin",
        "//admin",
        "/public//../admin",
        "/public/%252e%252e/admin",
        "/public/..\\admin",
        "/public/%2E%2E%5Cadmin",
    ] {
        let answer = send("GET", path);
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    assert!(send("POST", "/public/x").starts_with("HTTP/1.1 403"));
    assert!(send("get", "/public/x").starts_with("HTTP/1.1 4"));
    // The second request on a kept-open connection.
    let mut stream = world.connect(0);
    write!(stream, "GET {base}/public/a HTTP/1.1\r\n\r\n").unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream.read_exact(&mut [0u8; 7]).unwrap();
    write!(
        stream,
        "POST {base}/public/x HTTP/1.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let second = read_all(&mut stream);
    assert!(second.starts_with("HTTP/1.1 403"), "{second}");
    let heard = origin.heard();
    assert_eq!(heard.len(), 3);
    assert!(heard.iter().all(|head| head.starts_with("GET /public/")), "{heard:?}");
}

#[test]
fn p5_heads_that_can_be_read_in_two_ways_are_refused() {
    let origin = Origin::plain();
    let port = origin.port();
    let world = World::proxy(&["a.test", "b.test"], allow_all);
    for (head, code) in [
        (
            "GET http://a.test:PORT/ HTTP/1.1\r\nhost: b.test:PORT\r\n\r\n",
            "name-mismatch",
        ),
        (
            "GET http://a.test:PORT/ HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "name-mismatch",
        ),
        (
            "GET http://a.test:PORT/ HTTP/1.1\r\nhost: a.test:PORT\r\nhost: a.test:PORT\r\n\r\n",
            "malformed-request",
        ),
        (
            "GET http://a.test:PORT/ HTTP/1.1\r\nhost: u@a.test:PORT\r\n\r\n",
            "malformed-request",
        ),
        ("GET http://u:p@a.test:PORT/ HTTP/1.1\r\n\r\n", "malformed-request"),
        ("GET /x HTTP/1.1\r\nhost: a.test:PORT\r\n\r\n", "malformed-request"),
        ("GET https://a.test:PORT/ HTTP/1.1\r\n\r\n", "malformed-request"),
        ("GET ftp://a.test:PORT/ HTTP/1.1\r\n\r\n", "malformed-request"),
        ("OPTIONS * HTTP/1.1\r\nhost: a.test:PORT\r\n\r\n", "malformed-request"),
        ("GET http://a.test:PORT/ HTTP/1.1\r\nx: a\r\n b\r\n\r\n", ""),
        ("GET http://a.test:PORT/ HTTP/1.1\r\nx : a\r\n\r\n", ""),
        ("GET http://a.test:PORT/ HTTP/1.1\r\n: a\r\n\r\n", ""),
        (
            "GET http://a.test:PORT/ HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "",
        ),
        ("GET http://a.test:PORT/ HTTP/1.1\r\ncontent-length: +1\r\n\r\na", ""),
        (
            "POST http://a.test:PORT/ HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\na",
            "",
        ),
        (
            "POST http://a.test:PORT/ HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "",
        ),
        ("GET http://a.test:PORT/ HTTP/2.0\r\n\r\n", ""),
        ("GET  http://a.test:PORT/ HTTP/1.1\r\n\r\n", ""),
        ("CONNECT a.test HTTP/1.1\r\n\r\n", "malformed-request"),
        ("CONNECT u@a.test:443 HTTP/1.1\r\n\r\n", "malformed-request"),
        ("CONNECT http://a.test:443/ HTTP/1.1\r\n\r\n", ""),
    ] {
        let answer = world.exchange(0, &head.replace("PORT", &port.to_string()));
        assert!(answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer:?}");
        assert!(answer.contains(code), "{head:?}: {answer}");
    }
    assert!(origin.heard().is_empty(), "{:?}", origin.heard());
    let refused = world
        .seen()
        .iter()
        .filter(|seen| matches!(seen, Seen::Refused(..)))
        .count();
    assert!(refused >= 20, "what the gate refuses by itself is on record: {refused}");
}

#[test]
fn p5_a_body_is_framed_anew_so_that_no_second_request_hides_in_it() {
    let (say, said) = std::sync::mpsc::channel();
    let origin = Origin::http(move |_, stream| {
        let mut bytes = [0u8; 4096];
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            let count = stream.read(&mut bytes).unwrap();
            body.extend_from_slice(&bytes[..count]);
        }
        say.send(String::from_utf8(body).unwrap()).unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let world = World::proxy(&["a.test"], allow_all);
    let url = format!("http://a.test:{}/", origin.port());
    for lengths in [
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 3",
    ] {
        let body = "5\r\nhello\r\n0\r\n\r\nGET http://a.test/hidden HTTP/1.1\r\n\r\n";
        let answer = world.exchange(0, &format!("POST {url} HTTP/1.1\r\n{lengths}\r\n\r\n{body}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(said.recv().unwrap(), "5\r\nhello\r\n0\r\n\r\n");
    }
    for head in origin.heard() {
        assert!(!head.contains("content-length"), "{head}");
        assert_eq!(head.matches("transfer-encoding: chunked").count(), 1, "{head}");
    }
    assert!(
        !world.asked().iter().any(|act| act.contains("hidden")),
        "{:?}",
        world.asked()
    );
}

#[test]
fn what_is_meant_for_the_proxy_goes_no_further() {
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-hop\r\nx-hop: 1\r\nproxy-authenticate: x\r\nx-end: 1\r\n\r\nok",
        );
    });
    let world = World::proxy(&["a.test"], allow_all);
    let answer = world.exchange(
        0,
        &format!(
            "GET http://a.test:{}/ HTTP/1.1\r\nconnection: close, X-Secret\r\nx-secret: 1\r\nproxy-authorization: b\r\n\
             proxy-connection: keep-alive\r\nkeep-alive: 5\r\nte: trailers\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n\
             x-end: 1\r\n\r\n",
            origin.port()
        ),
    );
    assert!(answer.contains("x-end: 1") && answer.ends_with("ok"), "{answer}");
    assert!(!answer.contains("x-hop") && !answer.contains("proxy-"), "{answer}");
    let head = origin.heard().remove(0);
    assert!(head.contains("x-end: 1"), "{head}");
    for gone in ["x-secret", "proxy-", "keep-alive", "te:", "upgrade", "http2"] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
}

#[test]
fn heads_without_bodies_keep_their_length() {
    let origin = Origin::http(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n");
    });
    let world = World::proxy(&["a.test"], allow_all);
    let url = format!("http://a.test:{}/", origin.port());
    let answer = world.exchange(0, &format!("HEAD {url} HTTP/1.1\r\nconnection: close\r\n\r\n"));
    assert!(
        answer.contains("content-length: 12345") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
}

#[test]
fn c073_a_port_of_the_machine_is_served_at_the_same_port() {
    let origin = Origin::plain();
    let other = Origin::plain();
    let port = origin.port();
    let services = vec![
        Service::LoopbackHttp { port },
        Service::LoopbackHttp { port: other.port() },
    ];
    let own = format!("GET http://127.0.0.1:{port}/");
    let world = World::new(services, &[], Zone::default(), move |request| {
        if request.to_string().starts_with(&own) {
            Say::Allow
        } else {
            Say::Deny(Code::AddressLoopback)
        }
    });
    for host in ["127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "127.1"] {
        let answer = world.exchange(
            0,
            &format!("GET /v1 HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n"),
        );
        assert!(answer.ends_with("reached"), "{host}: {answer}");
    }
    for (lines, code) in [
        (format!("host: evil.test:{port}"), "name-mismatch"),
        ("host: 127.0.0.1:1".into(), "name-mismatch"),
        ("host: 127.0.0.1".into(), "name-mismatch"),
        ("x: y".into(), "malformed-request"),
    ] {
        let answer = world.exchange(0, &format!("GET /v1 HTTP/1.1\r\n{lines}\r\n\r\n"));
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains(code),
            "{lines}: {answer}"
        );
    }
    let answer = world.exchange(
        1,
        &format!("GET /v1 HTTP/1.1\r\nhost: localhost:{}\r\n\r\n", other.port()),
    );
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let answer = world.exchange(0, "CONNECT a.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(origin.heard().len(), 5);
    let sent = origin.heard().remove(1);
    assert!(sent.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{sent}");
    assert!(other.heard().is_empty());
    assert!(!world.asked().iter().any(|act| act.starts_with("resolve")));
}

#[test]
fn p4_an_obligation_that_cannot_be_kept_is_a_refusal() {
    let origin = Origin::plain();
    let port = origin.port();
    let pattern = PathPattern::parse("/x").unwrap();
    let world = World::proxy(&["a.test"], move |request| match request.verb {
        Verb::Resolve => Say::Allow,
        Verb::Tunnel => Say::AllowUnder(vec![Obligation::Hide {
            pattern: pattern.clone(),
        }]),
        _ => Say::AllowUnder(vec![Obligation::DialAddress {
            address: "127.0.0.2".parse().unwrap(),
        }]),
    });
    let answer = world.get(&format!("http://a.test:{port}/"));
    assert!(
        answer.contains("permit-refused"),
        "another address than was asked about: {answer}"
    );
    let answer = world.exchange(0, &format!("CONNECT a.test:{port} HTTP/1.1\r\n\r\n"));
    assert!(answer.contains("permit-refused"), "{answer}");
    assert!(origin.heard().is_empty());
}
