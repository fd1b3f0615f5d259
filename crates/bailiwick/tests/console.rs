//! The console over a real daemon: answers in a real browser reach acts that are held; agents reach nothing of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick_testkit::{
    Answer, Bailiwick, Chromium, Done, Look, Origin, Root, Tab, at_level_process, finish, is_root, skip,
};

/// A console that runs, with its first link. Dropped, it ends.
struct Console {
    child: Child,
    link: String,
    port: u16,
}

impl Console {
    fn start(kit: &Bailiwick) -> Self {
        let mut command = kit.command(&["console"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut link = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut link).unwrap();
        let link = link.trim().to_owned();
        let port = link
            .strip_prefix("http://127.0.0.1:")
            .and_then(|rest| rest.split('/').next());
        let port = port.unwrap_or_else(|| panic!("`{link}` is no link")).parse().unwrap();
        Self { child, link, port }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn browser() -> Option<Chromium> {
    let browser = Chromium::start();
    if browser.is_none() {
        skip("there is no Chromium with Playwright here");
    }
    browser
}

fn enter(browser: &Chromium, link: &str) -> Tab {
    let tab = browser.open(Look::default());
    tab.goto(link);
    tab.until("location.pathname.endsWith('/questions')");
    tab
}

/// Runs a shell line in the fence, in the background.
fn begin(kit: &Bailiwick, line: &str) -> std::thread::JoinHandle<Done> {
    let command = kit.command(&["run", "-q", "--", "sh", "-c", line]);
    std::thread::spawn(move || finish(command, Duration::from_secs(90)))
}

fn rules(kit: &Bailiwick, text: &str) {
    kit.write("bailiwick.toml", &format!("extends = [\"coding\"]\n{text}"));
    kit.run(&["trust"]).ok();
}

/// Says yes to the question that stands on the page, when it can be said.
fn say_yes(tab: &Tab) {
    tab.until("!!document.getElementById('say-yes') && !document.getElementById('say-yes').disabled");
    tab.click("#say-yes");
    tab.wait(".told:not(.wrong)");
}

#[test]
fn p8_an_answer_in_the_browser_reaches_a_request_that_is_held() {
    let Some(browser) = browser() else { return };
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let origin = Origin::start();
        let url = origin.url("/x?q=%3Cscript%3Ealert(1)%3C/script%3E");
        rules(
            &kit,
            &format!("[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n", origin.port()),
        );
        let console = Console::start(&kit);
        let tab = enter(&browser, &console.link);
        assert!(tab.text("main").contains("Nothing waits for you"));
        let run = begin(&kit, &format!("curl -sf -m 60 '{url}' && echo through"));
        tab.wait("#list > li a");
        tab.click("#list > li a");
        tab.wait("#say-yes");
        let shown = tab.text("#whole");
        assert!(
            shown.contains("<script>alert(1)</script>") && shown.contains("127.0.0.1"),
            "{shown}"
        );
        assert!(origin.requests().is_empty());
        say_yes(&tab);
        assert!(
            tab.text(".told").contains("once, in this task"),
            "{}",
            tab.text(".told")
        );
        assert!(run.join().unwrap().ok().stdout.ends_with("through\n"));
        assert_eq!(origin.requests().len(), 1);

        // No, with a word that the agent hears.
        let run = begin(&kit, &format!("curl -s -m 60 -w '%{{http_code}}' '{url}'"));
        tab.wait("#list > li:not(.gone) a");
        tab.click("#list > li:not(.gone) a");
        tab.fill("#no-word", "use the cache");
        tab.click("#no button");
        tab.wait(".told");
        let said = run.join().unwrap().ok().stdout;
        assert!(
            said.contains("answered-no") && said.contains("use the cache") && said.ends_with("403"),
            "{said}"
        );
        assert_eq!(origin.requests().len(), 1);
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("yes, once by ") || log.contains(": yes by "), "{log}");

        // The log and the rules, as they stand.
        tab.click("header a[href$='/log']");
        tab.click("main form[action$='/log/verify'] button");
        tab.wait(".told");
        assert!(tab.text(".told").starts_with("verified: "), "{}", tab.text(".told"));
        assert!(tab.text(".log").contains("use the cache"), "{}", tab.text(".log"));
        tab.click("header a[href$='/authority']");
        assert!(
            tab.text(".rules")
                .contains(&format!("GET http://127.0.0.1:{}/**", origin.port())),
            "{}",
            tab.text("main")
        );
        assert_eq!(tab.troubles(), Vec::<String>::new());
    }
}

#[test]
fn p8_an_answer_in_the_browser_reaches_an_https_request_that_is_held() {
    let Some(browser) = browser() else { return };
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let root = Root::new();
        let origin = Origin::over_tls(&root, &["api.test"], |heard| {
            Answer::text(200, format!("reached {}", heard.target))
        });
        let port = origin.port();
        kit.write_home("root.pem", root.pem());
        kit.write_home(
            ".config/bailiwick/rules.toml",
            "extends = [\"ceiling\"]\n[network]\nroots = [\"~/root.pem\"]\n",
        );
        let text = format!(
            "[network]\nask = [\"GET https://api.test:{port}/**\"]\n[network.hosts]\n\"api.test\" = \"127.0.0.1\"\n"
        );
        rules(&kit, &text);
        let console = Console::start(&kit);
        let tab = enter(&browser, &console.link);
        let url = format!("https://api.test:{port}/deep/path?q=1");
        let run = begin(&kit, &format!("curl -sS -m 60 '{url}'"));
        tab.wait("#list > li a");
        tab.click("#list > li a");
        tab.wait("#say-yes");
        // What is inside the connection is shown: method, path and query.
        let shown = tab.text("#whole");
        assert!(shown.contains("/deep/path") && shown.contains("api.test"), "{shown}");
        assert!(origin.requests().is_empty());
        say_yes(&tab);
        assert_eq!(run.join().unwrap().ok().stdout, "reached /deep/path?q=1");
        // No fails the next one.
        let run = begin(&kit, &format!("curl -sS -m 60 -w '%{{http_code}}' '{url}'"));
        tab.wait("#list > li:not(.gone) a");
        tab.click("#list > li:not(.gone) a");
        tab.click("#no button");
        tab.wait(".told");
        let said = run.join().unwrap().ok().stdout;
        assert!(said.contains("answered-no") && said.ends_with("403"), "{said}");
        assert_eq!(origin.requests().len(), 1);
    }
}

#[test]
fn p8_an_answer_in_the_browser_reaches_an_opening_that_is_held() {
    let Some(browser) = browser() else { return };
    if at_level_process() {
        return skip("level `process` shows no such trees");
    }
    if !is_root()
        && std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_err()
    {
        return skip("`/dev/fuse` is not usable");
    }
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user().with_fuse()] {
        kit.write_home("Documents/tax.pdf", "the tax\n");
        kit.hand_over();
        rules(&kit, "[files]\nask = [\"~/Documents\"]\n");
        let console = Console::start(&kit);
        let tab = enter(&browser, &console.link);
        let run = begin(&kit, "cat ~/Documents/tax.pdf");
        tab.wait("#list > li a");
        tab.click("#list > li a");
        assert!(tab.text("h1").contains("wants to read") && tab.text("h1").ends_with("Documents/tax.pdf"));
        say_yes(&tab);
        assert_eq!(run.join().unwrap().ok().stdout, "the tax\n");
        let run = begin(&kit, "cat ~/Documents/tax.pdf; echo ended with $?");
        tab.wait("#list > li:not(.gone) a");
        tab.click("#list > li:not(.gone) a");
        tab.click("#no button");
        let said = run.join().unwrap().ok().stdout;
        assert!(!said.contains("the tax") && said.contains("ended with 1"), "{said}");
        assert_eq!(tab.troubles(), Vec::<String>::new());
    }
}

/// A server whose answers to `/slow` never end: its port, and how many it has begun.
fn endless() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let begun = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, begun) = (stream.unwrap(), Arc::clone(&begun));
            std::thread::spawn(move || {
                let mut head = [0u8; 4096];
                let _ = stream.read(&mut head);
                begun.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
                while stream.write_all(b"more\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    (port, count)
}

#[test]
fn p11_a_grant_that_is_revoked_in_the_browser_cuts_a_download() {
    let Some(browser) = browser() else { return };
    let kit = Bailiwick::as_ordinary_user();
    let (port, count) = endless();
    rules(
        &kit,
        &format!("[network]\nask = [\"GET http://127.0.0.1:{port}/**\"]\n"),
    );
    let console = Console::start(&kit);
    let tab = enter(&browser, &console.link);
    let run = begin(
        &kit,
        &format!("curl -sS -N -m 80 http://127.0.0.1:{port}/slow > slow; echo the download ended with $?"),
    );
    tab.wait("#list > li a");
    tab.click("#list > li a");
    // A wider yes, for any number of times, in this task.
    tab.click("#offer-1");
    tab.select("#often", "any");
    tab.until("document.querySelector('.sentence').textContent.includes('/slow') && !document.querySelector('.sentence').textContent.includes('once')");
    say_yes(&tab);
    let begun = Instant::now();
    while count.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the download begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(!run.is_finished(), "it goes on");
    tab.click("header a[href$='/grants']");
    assert!(tab.text(".rows").contains("/slow"), "{}", tab.text("main"));
    let begun = Instant::now();
    tab.click("form[action$='/revoke'] button");
    tab.wait(".told");
    let said = run.join().unwrap().ok().stdout;
    let took = begun.elapsed();
    assert!(
        !said.contains("ended with 0") && took < Duration::from_secs(3),
        "{took:?}: {said} {}",
        kit.run(&["log", "show", "-n", "12"]).stdout
    );
    assert!(tab.text("main").contains("No grant holds"));
}

#[test]
fn p8_a_link_is_for_the_person_and_for_once() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let none = kit.run(&["console", "link"]).status_is(2);
        assert!(none.stderr.contains("no console runs"), "{}", none.stderr);
        let console = Console::start(&kit);
        let (first, second) = (
            kit.run(&["console", "link"]).ok().stdout,
            kit.run(&["console", "link"]).ok().stdout,
        );
        for link in [&first, &second] {
            let (place, token) = link.trim().split_once('#').unwrap();
            assert_eq!(place, format!("http://127.0.0.1:{}/", console.port));
            assert_eq!(token.len(), 64);
        }
        assert_ne!(first, second);
        let login = |link: &str| {
            let line = format!(
                "curl -s -o /dev/null -w '%{{http_code}}' -H 'Origin: http://127.0.0.1:{}' --data-urlencode 'token={}' http://127.0.0.1:{}/login",
                console.port,
                link.trim(),
                console.port
            );
            kit.shell_outside(&line).ok().stdout
        };
        assert_eq!((login(&first).as_str(), login(&first).as_str()), ("303", "403"));
        let again = kit.run(&["console"]).status_is(2);
        assert!(again.stderr.contains("a console runs already"), "{}", again.stderr);
        // Nobody else reads what hands links out.
        let state = kit.home().join(".local/state/bailiwick");
        let mode = |name: &str| {
            use std::os::unix::fs::PermissionsExt;
            state.join(name).symlink_metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode("console.sock"), mode("console.lock")), (0o600, 0o600));
        drop(console);
        // One that was killed leaves its socket behind: the next takes its place.
        let next = Console::start(&kit);
        assert!(
            kit.run(&["console", "link"])
                .ok()
                .stdout
                .contains(&format!(":{}/#", next.port))
        );
        drop(next);
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let fixed = busy.local_addr().unwrap().port().to_string();
        let refused = kit.run(&["console", "--port", &fixed]).status_is(1);
        assert!(
            refused.stderr.contains("cannot listen on 127.0.0.1:"),
            "{}",
            refused.stderr
        );
    }
}

/// The code of now (RFC 6238), from what the person was told when they were enrolled.
const CODE: &str = "\
import base64, hashlib, hmac, re, struct, sys, time
secret = re.search('secret=([A-Z2-7]+)', sys.argv[1]).group(1)
key = base64.b32decode(secret + '=' * (-len(secret) % 8))
mac = hmac.new(key, struct.pack('>Q', int(time.time()) // 30), hashlib.sha1).digest()
at = mac[-1] & 15
print('%06d' % ((struct.unpack('>I', mac[at:at + 4])[0] & 0x7fffffff) % 1000000))
";

#[test]
fn p8_people_who_are_enrolled_log_in_by_their_codes() {
    let kit = Bailiwick::as_ordinary_user();
    let console = Console::start(&kit);
    let port = console.port;
    let page = || {
        kit.shell_outside(&format!("curl -s http://127.0.0.1:{port}/"))
            .ok()
            .stdout
    };
    assert!(!page().contains("a code of your own"));
    let told = kit.run(&["approver", "add", "rui", "--totp"]).ok().stdout;
    assert!(page().contains("a code of your own"));
    kit.write("code.py", CODE);
    let code = kit
        .shell_outside(&format!("/usr/bin/python3 code.py '{}'", told.trim()))
        .ok()
        .stdout;
    let login = |name: &str, code: &str| {
        let line = format!(
            "curl -s -o /dev/null -w '%{{http_code}}' -H 'Origin: http://127.0.0.1:{port}' -d 'name={name}&code={code}' http://127.0.0.1:{port}/login/code"
        );
        kit.shell_outside(&line).ok().stdout
    };
    let wrong = if code.trim() == "000000" { "000001" } else { "000000" };
    assert_eq!(login("rui", wrong), "403");
    assert_eq!(login("ida", code.trim()), "403");
    assert_eq!(login("rui", code.trim()), "303");
    // A code is good once.
    assert_eq!(login("rui", code.trim()), "403");
}

/// Reads a socket's first words.
const FROM_SOCKET: &str = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]); print(s.recv(500).decode())";

/// Speaks HTTP to a port without any proxy.
const FROM_PORT: &str = "import socket,sys; s=socket.create_connection(('127.0.0.1',int(sys.argv[1])),5); s.sendall(b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:'+sys.argv[1].encode()+b'\\r\\nConnection: close\\r\\n\\r\\n'); s.settimeout(5); print(s.makefile('rb').read().decode())";

#[test]
fn p8_nothing_inside_reaches_the_console() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        // Something waits, so that there is something to be seen.
        let origin = Origin::start();
        rules(
            &kit,
            &format!("[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n", origin.port()),
        );
        let held = begin(&kit, &format!("curl -s -m 60 {}", origin.url("/held-one")));
        let begun = Instant::now();
        while !kit.run(&["approve", "--json"]).stdout.contains("held-one") {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing waits");
        }
        let console = Console::start(&kit);
        let (port, pid, program) = (console.port, console.child.id(), kit.program());
        let state = kit.home().join(".local/state/bailiwick").display().to_string();
        kit.write("ask_socket.py", FROM_SOCKET);
        kit.write("ask_port.py", FROM_PORT);
        std::fs::write(format!("{state}/console.html"), "a link").unwrap();
        kit.hand_over();
        // Each is first seen to work without a fence; the word is what it would give away.
        let attempts = [
            (format!("/usr/bin/python3 ask_port.py {port}"), "console.DIGEST"),
            (
                format!("curl -s --noproxy '*' http://127.0.0.1:{port}/"),
                "console.DIGEST",
            ),
            (format!("curl -s http://127.0.0.1:{port}/"), "console.DIGEST"),
            (format!("curl -s http://localhost:{port}/"), "console.DIGEST"),
            (format!("/usr/bin/python3 ask_socket.py {state}/console.sock"), "/#"),
            (format!("ls {state}; cat {state}/console.html"), "a link"),
            (format!("ls -l {state}/console.sock && echo it is there"), "it is there"),
            (format!("{program} console link"), "/#"),
            (
                format!("env -i HOME=\"$HOME\" PATH=\"$PATH\" {program} console link"),
                "/#",
            ),
            (
                format!(
                    "env -i HOME=\"$HOME\" PATH=\"$PATH\" XDG_STATE_HOME={} {program} console link",
                    state.trim_end_matches("/bailiwick")
                ),
                "/#",
            ),
            (format!("{program} approve --json"), "held-one"),
            (
                format!("env -i HOME=\"$HOME\" PATH=\"$PATH\" {program} approve --json"),
                "held-one",
            ),
            (format!("tr '\\0' '\\n' < /proc/{pid}/environ | grep HOME"), "HOME="),
            (format!("ls -l /proc/{pid}/fd | grep socket"), "socket"),
            (
                format!("head -c 1 /proc/{pid}/mem; readlink /proc/{pid}/exe"),
                "bailiwick",
            ),
            (format!("kill -0 {pid} && echo signalled"), "signalled"),
        ];
        for (line, word) in &attempts {
            // Without a root of its own a fence keeps no names from being seen, only what they stand for.
            if at_level_process() && line.starts_with("ls -l ") && line.contains("console.sock") {
                continue;
            }
            let word = word.replace("console.DIGEST", "The console of Bailiwick");
            let outside = kit.shell_outside(line);
            assert!(
                outside.stdout.contains(&word),
                "it does not work outside: {line}: {outside:?}"
            );
            let inside = kit.shell(line);
            assert!((0..125).contains(&inside.status), "{line}: {inside:?}");
            assert!(!inside.stdout.contains(&word), "{line}: {inside:?}");
        }
        let id = kit.run(&["approve", "--json"]).stdout;
        let id = id
            .split("\"id\":\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap()
            .to_owned();
        kit.run(&["approve", "--no", &id]).ok();
        held.join().unwrap().ok();
        let link = kit.run(&["console", "link"]).ok().stdout;
        assert!(link.contains(&format!(":{port}/#")));
    }
}

/// Connects to a socket of any name, and says what came.
const CONNECT: &str = "\
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(5)
s.connect(sys.argv[1].replace('@', '\\0'))
print(s.recv(9).decode())
";

/// Listens where servers of a desktop would, and says one word to whoever comes.
const LISTEN: &str = "\
import os, socket, sys, threading, time
os.makedirs('/tmp/.X11-unix', exist_ok=True)
try: os.chmod('/tmp/.X11-unix', 0o1777)
except PermissionError: pass
def serve(name):
    s = socket.socket(socket.AF_UNIX)
    s.bind(name.replace('@', '\\0'))
    s.listen()
    while True:
        c, _ = s.accept()
        c.send(b'reached')
        c.close()
for name in sys.argv[1:]:
    threading.Thread(target=serve, args=(name,), daemon=True).start()
time.sleep(0.3)
print('ready', flush=True)
time.sleep(600)
";

#[test]
fn p8_nothing_inside_speaks_to_the_screen_or_the_session() {
    for (number, mut kit) in [Bailiwick::new(), Bailiwick::as_ordinary_user()]
        .into_iter()
        .enumerate()
    {
        // The sockets of a screen and of a session, where programs of a desktop look for them.
        let display = 1000 + std::process::id() % 1000 * 2 + u32::try_from(number).unwrap();
        let screen = format!("/tmp/.X11-unix/X{display}");
        let bus = kit.outside().join("run/bus").display().to_string();
        let names = [screen.clone(), format!("@{screen}"), bus.clone()];
        kit.set("DBUS_SESSION_BUS_ADDRESS", &format!("unix:path={bus}"));
        kit.set("DISPLAY", &format!(":{display}"));
        kit.write("listen.py", LISTEN);
        kit.write("talk_to.py", CONNECT);
        let mut listen = kit.outside_command("/usr/bin/python3");
        let mut listen = listen
            .arg("listen.py")
            .args(&names)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(listen.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let _ends = Console {
            child: listen,
            link: String::new(),
            port: 0,
        };
        assert_eq!(ready, "ready\n");
        for name in &names {
            let line = format!("/usr/bin/python3 talk_to.py {name}");
            let outside = kit.shell_outside(&line);
            assert!(
                outside.stdout.contains("reached"),
                "it does not work outside: {line}: {outside:?}"
            );
            let inside = kit.shell(&line);
            assert!(
                (1..125).contains(&inside.status) && !inside.stdout.contains("reached"),
                "{line}: {inside:?}"
            );
        }
        // By the programs that do such things.
        for line in [
            "xdotool key Return",
            "dbus-send --session --dest=org.freedesktop.DBus / org.freedesktop.DBus.Hello",
        ] {
            let program = line.split(' ').next().unwrap();
            if kit.shell_outside(&format!("command -v {program}")).status != 0 {
                skip(&format!("there is no {program} here"));
                continue;
            }
            let inside = kit.shell(&format!("timeout 10 {line}"));
            assert_ne!(inside.status, 0, "{line}: {inside:?}");
        }
        let _ = std::fs::remove_file(screen);
    }
}
