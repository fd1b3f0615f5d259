//! Through the proxy, where there is one: to what is not allowed, by a name that is. Outside the same goes straight.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::any;
use crate::{Attempt, Goal, Refused, Tried, World};

/// The proxy that the environment names; none outside.
pub(super) fn proxy() -> Option<String> {
    let named = std::env::var("http_proxy").ok()?;
    Some(named.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

pub(super) fn dial(address: &str) -> Result<TcpStream, Refused> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.set_write_timeout(Some(Duration::from_secs(3)))?;
    Ok(stream)
}

/// The first bytes of what comes back.
pub(super) fn answer(stream: &mut TcpStream) -> Result<String, Refused> {
    let mut buffer = [0u8; 512];
    let got = stream.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(buffer.get(..got).unwrap_or_default()).into_owned())
}

/// A connection that goes to the place of a CONNECT: host and port.
pub(super) fn connect(host: &str, port: u16) -> Result<TcpStream, Refused> {
    let Some(proxy) = proxy() else {
        // Outside every name of the test stands for this machine.
        return dial(&format!("127.0.0.1:{port}"));
    };
    let mut stream = dial(&proxy)?;
    write!(stream, "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")?;
    let said = answer(&mut stream)?;
    if said.starts_with("HTTP/1.1 200") {
        Ok(stream)
    } else {
        Err(said.lines().next().unwrap_or("nothing").into())
    }
}

/// Sends a head for a proxy: its first line names a whole URL. Outside it goes to the origin as it is.
pub(super) fn send(world: &World, head: &str, body: &str) -> Result<String, Refused> {
    let address = proxy().unwrap_or_else(|| format!("127.0.0.1:{}", world.origin));
    let mut stream = dial(&address)?;
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    answer(&mut stream)
}

/// A request that must be answered well.
pub(super) fn answered(world: &World, line: &str, body: &str) -> Tried {
    let said = send(
        world,
        &format!("{line}Host: 127.0.0.1:{}\r\nConnection: close\r\n", world.origin),
        body,
    )?;
    if said.starts_with("HTTP/1.1 200") {
        Ok(said)
    } else {
        Err(said.lines().next().unwrap_or("nothing").into())
    }
}

/// A request as it is spelled, with a host that goes with it.
fn request(world: &World, line: &str) -> Tried {
    answered(world, line, "")
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(0).to_be_bytes()
}

/// The extension that names servers: each with its kind, which is 0 for a host.
pub(super) fn names(all: &[(u8, &str)]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (kind, name) in all {
        entries.push(*kind);
        entries.extend(short(name.len()));
        entries.extend(name.bytes());
    }
    let mut extension = vec![0, 0];
    extension.extend(short(entries.len() + 2));
    extension.extend(short(entries.len()));
    extension.extend(entries);
    extension
}

/// The first message of TLS: a greeting for this name, which carries the word in its session's number.
fn hello(name: Option<&str>, word: &str) -> Vec<u8> {
    hello_with(name.map(|name| names(&[(0, name)])).unwrap_or_default(), word)
}

/// A greeting that begins with these extensions.
pub(super) fn hello_with(mut extensions: Vec<u8>, word: &str) -> Vec<u8> {
    let mut session = word.as_bytes().to_vec();
    session.resize(32, b'-');
    // Groups, signatures, versions: what every greeting has.
    extensions.extend([0, 10, 0, 4, 0, 2, 0, 29]);
    extensions.extend([0, 13, 0, 4, 0, 2, 4, 3]);
    extensions.extend([0, 43, 0, 3, 2, 3, 4]);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(32);
    body.extend(session);
    body.extend([0, 2, 0x13, 1, 1, 0]);
    body.extend(short(extensions.len()));
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(short(body.len()));
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend(short(message.len()));
    record.extend(message);
    record
}

/// A tunnel to the name that rules give to an address that is not loopback: there the greeting is looked at.
pub(super) fn pinned(world: &World) -> Result<TcpStream, Refused> {
    if !world.internet {
        return Err(Refused::NotHere("no network of the test's own".into()));
    }
    connect("pinned.test", world.pinned)
}

pub(super) fn say(mut stream: TcpStream, bytes: &[u8]) -> Tried {
    stream.write_all(bytes)?;
    let said = answer(&mut stream)?;
    if said.starts_with("heard") {
        Ok("heard".into())
    } else {
        Err("it was not passed on".into())
    }
}

/// Asks for one name and greets another.
pub(super) fn greeting(world: &World, asked: &str, greeted: &str) -> Tried {
    let stream = if asked == "pinned.test" {
        pinned(world)?
    } else {
        connect(asked, world.pinned)?
    };
    say(stream, &hello(Some(greeted), &world.word))
}

/// Every way to write an address of this machine that some parser takes for another.
const SPELLINGS: [&str; 16] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "017700000001",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[0:0:0:0:0:0:0:1]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0.0.0.0",
    "127.0.0.1.",
];

/// The same for the address where clouds keep the logins of machines.
const METADATA: [&str; 9] = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "metadata.google.internal",
    "169.254.169.254.nip.io",
];

pub(super) fn attempts() -> Vec<Attempt> {
    let tell = |id, act| Attempt::new(id, Goal::Tell, act);
    let mut all = vec![
        tell("proxy-path-not-allowed", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{}/other/{} HTTP/1.1\r\n",
                    world.origin, world.word
                ),
            )
        }),
        tell("proxy-path-with-dots", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{}/ok/../other/{} HTTP/1.1\r\n",
                    world.origin, world.word
                ),
            )
        }),
        tell("proxy-path-with-coded-dots", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{}/ok/%2e%2e/other/{} HTTP/1.1\r\n",
                    world.origin, world.word
                ),
            )
        }),
        tell("proxy-path-with-coded-slash", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{}/ok%2f..%2fother/{} HTTP/1.1\r\n",
                    world.origin, world.word
                ),
            )
        }),
        tell("proxy-path-with-backslash", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{}/ok/..\\other/{} HTTP/1.1\r\n",
                    world.origin, world.word
                ),
            )
        }),
        tell("proxy-method-not-allowed", |world| {
            let line = format!(
                "POST http://127.0.0.1:{}/ok/{} HTTP/1.1\r\nContent-Length: 0\r\n",
                world.origin, world.word
            );
            request(world, &line)
        }),
        tell("proxy-method-in-lower-case", |world| {
            request(
                world,
                &format!("get http://127.0.0.1:{}/ok/{} HTTP/1.1\r\n", world.origin, world.word),
            )
        }),
        tell("proxy-host-not-that-of-the-line", |world| {
            let head = format!(
                "GET http://127.0.0.1:{}/ok/x HTTP/1.1\r\nHost: {}.test\r\nConnection: close\r\n",
                world.origin, world.word
            );
            send(world, &head, "")
        }),
        tell("proxy-two-hosts", |world| {
            let port = world.origin;
            let hosts = format!("Host: 127.0.0.1:{port}\r\nHost: {}.test\r\n", world.word);
            send(
                world,
                &format!("GET http://127.0.0.1:{port}/ok/x HTTP/1.1\r\n{hosts}Connection: close\r\n"),
                "",
            )
        }),
        tell("proxy-user-in-the-line", |world| {
            request(
                world,
                &format!(
                    "GET http://127.0.0.1:{0}@127.0.0.1:{1}/ok/{2} HTTP/1.1\r\n",
                    world.origin,
                    port(world),
                    world.word
                ),
            )
        }),
        tell("proxy-two-lengths", |world| {
            let smuggled = format!("GET /other/{} HTTP/1.1\r\nHost: x\r\n\r\n", world.word);
            let lengths = format!("Content-Length: 0\r\nContent-Length: {}\r\n", smuggled.len());
            request_with(world, &lengths, &smuggled)
        }),
        tell("proxy-length-and-chunks", |world| {
            let smuggled = format!("0\r\n\r\nGET /other/{} HTTP/1.1\r\nHost: x\r\n\r\n", world.word);
            let lengths = format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", smuggled.len());
            request_with(world, &lengths, &smuggled)
        }),
        tell("proxy-chunks-misspelled", |world| {
            let smuggled = format!("0\r\n\r\nGET /other/{} HTTP/1.1\r\nHost: x\r\n\r\n", world.word);
            let lengths = format!("Content-Length: {}\r\nTransfer-Encoding : chunked\r\n", smuggled.len());
            request_with(world, &lengths, &smuggled)
        }),
        tell("proxy-second-request-in-the-same-write", |world| {
            let smuggled = format!(
                "GET http://127.0.0.1:{}/other/{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                world.origin, world.word
            );
            request_with(world, "", &smuggled)
        }),
        tell("proxy-line-ends-in-a-header", |world| {
            let smuggled = format!("X: y\r\n\nGET /other/{} HTTP/1.1\r\n", world.word);
            request_with(world, &smuggled, "")
        }),
        tell("proxy-lone-line-feeds", |world| {
            let head = format!(
                "GET http://127.0.0.1:{}/ok/x HTTP/1.1\nX: {}\nHost: 127.0.0.1\n",
                world.origin, world.word
            );
            send(world, &head, "")
        }),
        tell("proxy-upgrade", |world| {
            let line = format!(
                "GET http://127.0.0.1:{}/ok/x HTTP/1.1\r\nUpgrade: {}\r\nConnection: Upgrade\r\n",
                world.origin, world.word
            );
            send(world, &line, "")
        }),
        tell("proxy-tunnel-to-http", |world| {
            let stream = connect("127.0.0.1", world.origin)?;
            say(
                stream,
                format!("GET /other/{} HTTP/1.1\r\nHost: x\r\n\r\n", world.word).as_bytes(),
            )
        }),
        tell("proxy-tunnel-to-other-port", |world| {
            say(connect("127.0.0.1", port(world))?, world.word.as_bytes())
        }),
        tell("proxy-tunnel-by-name-to-other-port", |world| {
            say(connect("pinned.test", port(world))?, world.word.as_bytes())
        }),
        tell("proxy-tunnel-other-name-greeted", |world| {
            greeting(world, "pinned.test", "other.test")
        }),
        tell("proxy-tunnel-name-below-greeted", |world| {
            greeting(world, "pinned.test", "a.pinned.test")
        }),
        tell("proxy-tunnel-no-name-greeted", |world| {
            say(pinned(world)?, &hello(None, &world.word))
        }),
        tell("proxy-tunnel-name-with-zero", |world| {
            greeting(world, "pinned.test", "pinned.test\0.other.test")
        }),
        tell("proxy-tunnel-plain-text", |world| {
            say(pinned(world)?, world.word.as_bytes())
        }),
        tell("proxy-tunnel-plain-request", |world| {
            let text = format!("GET /{} HTTP/1.1\r\nHost: pinned.test\r\n\r\n", world.word);
            say(pinned(world)?, text.as_bytes())
        }),
        tell("proxy-tunnel-login-greeting", |world| {
            say(pinned(world)?, format!("SSH-2.0-{}\r\n", world.word).as_bytes())
        }),
        tell("proxy-tunnel-to-address-behind-name", |world| {
            say(
                connect("127.0.0.1", world.pinned)?,
                &hello(Some("pinned.test"), &world.word),
            )
        }),
        tell("proxy-tunnel-name-not-in-rules", |world| {
            say(
                connect("rebound.test", world.pinned)?,
                &hello(Some("rebound.test"), &world.word),
            )
        }),
        tell("proxy-tunnel-name-that-leads-here", |world| {
            say(
                connect("localtest.me", world.pinned)?,
                &hello(Some("localtest.me"), &world.word),
            )
        }),
        tell("proxy-asked-by-name-only", |world| {
            // Straight at the ports that stand for the whole network, where there are such.
            let ports = [80u16, 443];
            match proxy() {
                Some(_) => any(ports.map(|port| {
                    let mut stream = dial(&format!("127.0.0.1:{port}"))?;
                    write!(
                        stream,
                        "GET /other/{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
                        world.word, world.origin
                    )?;
                    let said = answer(&mut stream)?;
                    if said.starts_with("HTTP/1.1 200") {
                        Ok(said)
                    } else {
                        Err(said.into())
                    }
                })),
                None => request(
                    world,
                    &format!("GET http://127.0.0.1/other/{} HTTP/1.1\r\n", world.word),
                ),
            }
        }),
        tell("proxy-old-protocol", |world| {
            let head = format!(
                "GET http://127.0.0.1:{}/other/{} HTTP/1.0\r\n",
                world.origin, world.word
            );
            send(world, &head, "")
        }),
        tell("proxy-other-scheme", |world| {
            any(["ftp", "file", "https", "ws"].map(|scheme| {
                request(
                    world,
                    &format!(
                        "GET {scheme}://127.0.0.1:{}/ok/{} HTTP/1.1\r\n",
                        world.origin, world.word
                    ),
                )
            }))
        }),
    ];
    for (place, host) in SPELLINGS.iter().enumerate() {
        all.push(Attempt::at(
            format!("proxy-this-machine-{place}"),
            Goal::Tell,
            spelled,
            host,
        ));
    }
    for (place, host) in METADATA.iter().enumerate() {
        all.push(Attempt::at(
            format!("proxy-metadata-{place}"),
            Goal::Tell,
            metadata,
            host,
        ));
    }
    for name in ["rebound.test", "both.test"] {
        all.push(Attempt::at(format!("proxy-{name}"), Goal::Tell, rebound, name));
    }
    for kind in ["A", "AAAA", "TXT", "MX", "+tcp A"] {
        let id = kind.trim_start_matches(['+', '-']).replace(' ', "-").to_lowercase();
        all.push(Attempt::at(format!("proxy-names-{id}"), Goal::Tell, asked_for, kind));
    }
    for (name, port) in [("22", 22u16), ("25", 25), ("53", 53), ("3128", 3128), ("6379", 6379)] {
        let host: &'static str = match port {
            22 => "pinned.test:22",
            25 => "pinned.test:25",
            53 => "pinned.test:53",
            3128 => "pinned.test:3128",
            _ => "pinned.test:6379",
        };
        all.push(Attempt::at(
            format!("proxy-tunnel-to-port-{name}"),
            Goal::Tell,
            named_port,
            host,
        ));
    }
    all
}

/// A port of the world that no rule names.
pub(super) fn port(world: &World) -> u16 {
    world.ports.first().copied().unwrap_or(0)
}

pub(super) fn request_with(world: &World, more: &str, body: &str) -> Tried {
    let head = format!(
        "GET http://127.0.0.1:{0}/ok/x HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n{more}",
        world.origin
    );
    send(world, &head, body)
}

/// Asks for a port of this machine that no rule names, by this spelling.
fn spelled(world: &World, host: &'static str) -> Tried {
    match proxy() {
        Some(_) => request(
            world,
            &format!("GET http://{host}:{}/{} HTTP/1.1\r\n", port(world), world.word),
        ),
        None => say(connect(host, port(world))?, world.word.as_bytes()),
    }
}

/// Asks where clouds keep logins. Outside the world's own server stands for it.
fn metadata(world: &World, host: &'static str) -> Tried {
    if !world.internet {
        return Err(Refused::NotHere("no network of the test's own".into()));
    }
    if proxy().is_none() {
        let mut stream = dial("169.254.169.254:80")?;
        write!(stream, "GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.word)?;
        return answer(&mut stream);
    }
    let asked = request(world, &format!("GET http://{host}/{} HTTP/1.1\r\n", world.word));
    any([
        asked,
        connect(host, 80).and_then(|stream| say(stream, world.word.as_bytes())),
    ])
}

/// A name that leads elsewhere when it is looked up again: to this machine.
fn rebound(world: &World, host: &'static str) -> Tried {
    if !world.internet {
        return Err(Refused::NotHere("no network of the test's own".into()));
    }
    if proxy().is_none() {
        let mut stream = dial(&format!("127.0.0.1:{}", world.rebound))?;
        write!(stream, "GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.word)?;
        return answer(&mut stream);
    }
    any((0..4).map(|_| {
        let said = request(
            world,
            &format!("GET http://{host}:{}/{} HTTP/1.1\r\n", world.rebound, world.word),
        )?;
        // The first answer is honest, and says so: what counts is where the next ones go.
        if said.contains("honest") {
            Err("answered by the honest one".into())
        } else {
            Ok(said)
        }
    }))
}

/// Tells the word to whoever answers for names, as a part of a name.
fn asked_for(world: &World, kind: &'static str) -> Tried {
    if !world.internet {
        return Err(Refused::NotHere("no network of the test's own".into()));
    }
    super::act(&format!("dig +tries=1 +time=2 {kind} {}.bait.test", world.word))
}

/// Asks for a port that the rule for this name does not name. Outside the world's own server stands for it.
fn named_port(world: &World, place: &'static str) -> Tried {
    let (host, number) = place.rsplit_once(':').unwrap_or((place, "0"));
    let number = if proxy().is_some() {
        number.parse().unwrap_or(0)
    } else {
        world.pinned
    };
    say(connect(host, number)?, world.word.as_bytes())
}
