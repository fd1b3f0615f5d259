//! Through the proxy by what is not quite in order: greetings, heads and names that two readers may take for two things.

use std::io::Write;
use std::time::Duration;

use super::any;
use super::proxy::{answer, connect, dial, hello_with, names, pinned, port, proxy, request_with, say, send};
use crate::{Attempt, Goal, Refused, Tried, World};

/// Greets with these extensions where `pinned.test` may be reached.
fn greet(world: &World, extensions: Vec<u8>) -> Tried {
    say(pinned(world)?, &hello_with(extensions, &world.word))
}

/// Heads with a body whose end is not clear, with the word in what may be a second request.
const LENGTHS: [&str; 12] = [
    "Content-Length: +{}\r\n",
    "Content-Length: 0x10\r\n",
    "Content-Length: 0, {}\r\n",
    "Content-Length: {} {}\r\n",
    "content-length: 0\r\nContent-Length : {}\r\n",
    "Transfer-Encoding: identity, chunked\r\nContent-Length: {}\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: xchunked\r\nContent-Length: {}\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
    "Transfer-Encoding:\x0bchunked\r\nContent-Length: {}\r\n",
    "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
    "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\nContent-Length: {}\r\n",
];

/// First lines that name an allowed place, or something else, by how they are read. `H` is the origin, `B` a port that no
/// rule names, `W` the word.
const LINES: [&str; 18] = [
    "GET http://H/ok/../../other/W HTTP/1.1",
    "GET http://H/ok/..;/other/W HTTP/1.1",
    "GET http://H/ok/%2e%2e%2fother/W HTTP/1.1",
    "GET http://H/ok/%252e%252e/other/W HTTP/1.1",
    "GET http://H//other/W HTTP/1.1",
    "GET http://H/OK/W HTTP/1.1",
    "GET http://H/other/W#/ok/ HTTP/1.1",
    "GET http://H/other/W?/ok/ HTTP/1.1",
    "GET http://H/other%00/ok/W HTTP/1.1",
    "GET http://B/ok/W HTTP/1.1",
    "GET http://H\\@B/ok/W HTTP/1.1",
    "GET http://B#@H/ok/W HTTP/1.1",
    "GET http://B?@H/ok/W HTTP/1.1",
    "GET  http://H/other/W HTTP/1.1",
    "GET http://H/other/W HTTP/2.0",
    "GET http://H/other/W",
    "GET /other/W HTTP/1.1",
    "CONNECT http://B/W HTTP/1.1",
];

fn lengths(world: &World, form: &'static str) -> Tried {
    let smuggled = format!("0\r\n\r\nGET /other/{} HTTP/1.1\r\nHost: x\r\n\r\n", world.word);
    let form = form.replace("{}", &smuggled.len().to_string());
    request_with(world, &form, &smuggled)
}

fn lines(world: &World, form: &'static str) -> Tried {
    let (origin, barred) = (
        format!("127.0.0.1:{}", world.origin),
        format!("127.0.0.1:{}", port(world)),
    );
    let line = form.replace('H', "\u{1}").replace('B', "\u{2}").replace('W', "\u{3}");
    // The protocol's own name has letters of the form.
    let line = line.replace("\u{1}TTP", "HTTP");
    let line = line
        .replace('\u{1}', &origin)
        .replace('\u{2}', &barred)
        .replace('\u{3}', &world.word);
    send(world, &format!("{line}\r\nHost: {origin}\r\nConnection: close\r\n"), "")
}

/// Heads of CONNECT that may be read as another place.
const PLACES: [&str; 8] = [
    "pinned.test:P@127.0.0.1:B",
    "127.0.0.1:B#pinned.test:P",
    "127.0.0.1:B/pinned.test:P",
    "127.0.0.1:B\r\nX: pinned.test:P",
    "127.0.0.1:0B",
    "127.0.0.1.:B",
    "[::ffff:127.0.0.1]:B",
    "pinned.test.:B",
];

fn places(world: &World, form: &'static str) -> Tried {
    let Some(proxy) = proxy() else {
        return say(connect("127.0.0.1", port(world))?, world.word.as_bytes());
    };
    let place = form
        .replace('P', &world.pinned.to_string())
        .replace('B', &port(world).to_string());
    let mut stream = dial(&proxy)?;
    write!(
        stream,
        "CONNECT {place} HTTP/1.1\r\nHost: pinned.test:{}\r\n\r\n",
        world.pinned
    )?;
    let said = answer(&mut stream)?;
    if said.starts_with("HTTP/1.1 200") {
        say(stream, world.word.as_bytes())
    } else {
        Err(said.lines().next().unwrap_or("nothing").into())
    }
}

/// Names below or beside such as may be looked up: whoever answers for them would hear the word.
const NAMES: [&str; 7] = [
    "W.both.test",
    "W.pinned.test",
    "W.index.crates.io",
    "both.test.W.bait.test",
    "bothtest-W.test",
    "W.localhost",
    "W\\046both.test",
];

fn looked_up(world: &World, form: &'static str) -> Tried {
    if !world.internet {
        return Err(Refused::NotHere("no network of the test's own".into()));
    }
    super::act(&format!("dig +tries=1 +time=2 A '{}'", form.replace('W', &world.word)))
}

pub(super) fn attempts() -> Vec<Attempt> {
    let tell = |id, act| Attempt::new(id, Goal::Tell, act);
    let mut all = vec![
        tell("crooked-greeting-two-names", |world| {
            greet(world, names(&[(0, "pinned.test"), (0, "other.test")]))
        }),
        tell("crooked-greeting-other-name-first", |world| {
            greet(world, names(&[(0, "other.test"), (0, "pinned.test")]))
        }),
        tell("crooked-greeting-names-twice", |world| {
            greet(
                world,
                [names(&[(0, "pinned.test")]), names(&[(0, "other.test")])].concat(),
            )
        }),
        tell("crooked-greeting-no-names-in-list", |world| greet(world, names(&[]))),
        tell("crooked-greeting-other-kind-of-name", |world| {
            greet(world, names(&[(1, "pinned.test")]))
        }),
        tell("crooked-greeting-empty-name", |world| greet(world, names(&[(0, "")]))),
        tell("crooked-greeting-address", |world| {
            greet(world, names(&[(0, "127.0.0.1")]))
        }),
        tell("crooked-greeting-with-port", |world| {
            greet(world, names(&[(0, "pinned.test:22")]))
        }),
        tell("crooked-greeting-with-space", |world| {
            greet(world, names(&[(0, "pinned.test other.test")]))
        }),
        tell("crooked-greeting-in-pieces", |world| {
            let mut stream = pinned(world)?;
            for piece in hello_with(names(&[(0, "other.test")]), &world.word).chunks(7) {
                stream.write_all(piece)?;
                std::thread::sleep(Duration::from_millis(1));
            }
            say(stream, b"")
        }),
        tell("crooked-greeting-after-plain-text", |world| {
            let whole = [
                world.word.as_bytes(),
                b"\r\n",
                &hello_with(names(&[(0, "pinned.test")]), "x"),
            ]
            .concat();
            say(pinned(world)?, &whole)
        }),
        tell("crooked-greeting-too-short", |world| {
            let whole = hello_with(names(&[(0, "pinned.test")]), &world.word);
            say(pinned(world)?, whole.get(..90).unwrap_or_default())
        }),
        tell("crooked-greeting-old", |world| {
            // SSL 2: a length of two bytes, then 1 for a greeting.
            let mut whole = vec![0x80, 46, 1, 3, 1, 0, 3, 0, 0, 0, 32, 0, 0, 4];
            whole.extend(world.word.bytes());
            whole.resize(48, b'-');
            say(pinned(world)?, &whole)
        }),
        tell("crooked-head-preface-of-the-next-version", |world| {
            let word = &world.word;
            let address = proxy().unwrap_or_else(|| format!("127.0.0.1:{}", world.origin));
            let mut stream = dial(&address)?;
            write!(stream, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{word}")?;
            answer(&mut stream)
        }),
        tell("crooked-head-all-of-it", |world| {
            send(
                world,
                &format!(
                    "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nX: {}\r\n",
                    world.origin, world.word
                ),
                "",
            )
        }),
        tell("crooked-head-websocket-to-other-path", |world| {
            let upgrade =
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n";
            let line = format!(
                "GET http://127.0.0.1:{0}/other/{1} HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n",
                world.origin, world.word
            );
            send(world, &format!("{line}{upgrade}"), "")
        }),
        tell("crooked-head-override-of-method", |world| {
            let line = format!(
                "POST http://127.0.0.1:{0}/ok/x HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n",
                world.origin
            );
            send(
                world,
                &format!(
                    "{line}X-HTTP-Method-Override: GET\r\nContent-Length: {}\r\n",
                    world.word.len()
                ),
                &world.word,
            )
        }),
        tell("crooked-head-second-after-an-answer", |world| {
            let address = proxy().unwrap_or_else(|| format!("127.0.0.1:{}", world.origin));
            let mut stream = dial(&address)?;
            let host = format!("127.0.0.1:{}", world.origin);
            write!(stream, "GET http://{host}/ok/x HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
            let first = answer(&mut stream)?;
            write!(
                stream,
                "GET http://{host}/other/{} HTTP/1.1\r\nHost: {host}\r\n\r\n",
                world.word
            )?;
            any([answer(&mut stream), Err(first.into())])
        }),
    ];
    type Way = fn(&World, &'static str) -> Tried;
    let tables: [(&str, &'static [&'static str], Way); 4] = [
        ("lengths", &LENGTHS, lengths),
        ("line", &LINES, lines),
        ("place", &PLACES, places),
        ("name", &NAMES, looked_up),
    ];
    for (kind, forms, act) in tables {
        for (number, form) in forms.iter().enumerate() {
            all.push(Attempt::at(format!("crooked-{kind}-{number}"), Goal::Tell, act, form));
        }
    }
    all
}
