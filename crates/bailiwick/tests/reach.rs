//! What goes in and out while a task runs, by the person's own order: ports seen outside, files handed in.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, at_level_process};

/// A fresh home of whoever runs the test, and one of an ordinary user.
fn kits() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// A port of the loopback that nobody uses now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[track_caller]
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a task that makes the file `began`, and waits until it has.
fn begun(kit: &Bailiwick, options: &[&str], line: &str) -> Child {
    let mut words = vec!["run"];
    words.extend(options);
    words.extend(["--", "bash", "-c", line]);
    let mut command = kit.command(&words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("the task begins", || kit.project().join("began").exists());
    // The agent may be faster than the daemon, which takes a moment to note that it runs.
    until("the task is known", || {
        kit.run(&["status"]).ok().stdout.contains("began")
    });
    child
}

fn ended(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A server on the loopback, in Python: it answers each connection with `hello` and its first line.
fn server(port: u16, address: &str) -> String {
    let family = if address.contains(':') { "AF_INET6" } else { "AF_INET" };
    format!(
        "/usr/bin/python3 -c \"import socket
s = socket.socket(socket.{family}, socket.SOCK_STREAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('{address}', {port}))
s.listen()
open('began', 'w')
while True:
    c, _ = s.accept()
    c.sendall(b'hello ' + c.makefile('rb').readline())
    c.close()\""
    )
}

/// What a server on the loopback outside answers; none when the connection is refused or closed.
fn ask(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"there\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    (!text.is_empty()).then_some(text)
}

#[test]
fn p11_a_port_is_seen_outside_as_long_as_the_task_runs() {
    // Where the loopback is the machine's, each port that the agent listens on is seen.
    let all_seen = at_level_process();
    for kit in kits() {
        for address in ["127.0.0.1", "::1"] {
            let _ = std::fs::remove_file(kit.project().join("began"));
            let (inside, outside) = (free_port(), free_port());
            // Without the option nothing is seen.
            let mut hidden = begun(&kit, &["-q"], &server(inside, address));
            assert_eq!(ask(inside).is_some(), all_seen && address == "127.0.0.1");
            rustix::process::kill_process(rustix::process::Pid::from_child(&hidden), rustix::process::Signal::TERM)
                .unwrap();
            hidden.wait().unwrap();

            let _ = std::fs::remove_file(kit.project().join("began"));
            let child = begun(&kit, &["-p", &format!("{outside}:{inside}")], &server(inside, address));
            for _ in 0..20 {
                assert_eq!(ask(outside).as_deref(), Some("hello there\n"), "{address}");
            }
            assert!(all_seen || ask(inside).is_none(), "only the named port");
            let status = kit.run(&["status"]).ok().stdout;
            assert!(
                status.contains(&format!("port {inside} inside is seen at 127.0.0.1:{outside}")),
                "{status}"
            );
            // One that is open when the task ends is closed with it.
            let mut open = TcpStream::connect(("127.0.0.1", outside)).unwrap();
            open.write_all(b"th").unwrap();
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
                .unwrap();
            let (_, _, told) = ended(child);
            assert!(told.contains(&format!("http://127.0.0.1:{outside}")), "{told}");
            open.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            assert!(matches!(open.read(&mut [0u8; 8]), Ok(0)) || open.write_all(b"x").is_err());
            drop(
                TcpListener::bind(("127.0.0.1", outside))
                    .unwrap_or_else(|e| panic!("port {outside} is free again: {e}")),
            );
            let log = kit.run(&["log", "show"]).ok().stdout;
            let line = format!("port {inside} is seen at 127.0.0.1:{outside}, by order of ");
            assert_eq!(log.matches(&line).count(), 1, "{log}");
        }
    }
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_starts() {
    let kit = Bailiwick::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let told = kit
        .run(&["run", "-p", &port, "--", "touch", "ran"])
        .status_is(125)
        .stderr;
    assert!(
        told.contains(&format!(
            "port {port} of this machine cannot be used: another program, or another task, listens there"
        )),
        "{told}"
    );
    assert!(!kit.project().join("ran").exists());
    drop(other);
    kit.run(&["run", "-q", "-p", &port, "--", "touch", "ran"]).ok();
    assert!(
        kit.run(&["run", "-p", "x", "--", "true"])
            .status_is(2)
            .stderr
            .contains("is not a port")
    );
}

#[test]
fn p2_a_project_publishes_only_when_it_is_trusted() {
    let kit = Bailiwick::new();
    let port = free_port();
    kit.write(
        "bailiwick.toml",
        &format!("extends = [\"coding\"]\n[network]\npublish = [{port}]\n"),
    );
    let child = begun(&kit, &["-q"], &server(port, "127.0.0.1"));
    assert!(at_level_process() || ask(port).is_none(), "nobody trusts the file");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    ended(child);
    kit.run(&["trust"]).ok();
    std::fs::remove_file(kit.project().join("began")).unwrap();
    let child = begun(&kit, &["-q"], &server(port, "127.0.0.1"));
    assert_eq!(ask(port).as_deref(), Some("hello there\n"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    ended(child);
}

/// Starts a task that waits for a line; gives it once `began` is there.
fn waits(kit: &Bailiwick, then: &str) -> Child {
    let _ = std::fs::remove_file(kit.project().join("began"));
    begun(kit, &["-q"], &format!("touch began; read; {then}"))
}

#[track_caller]
fn go(mut child: Child) -> (i32, String, String) {
    writeln!(child.stdin.take().unwrap(), "go").unwrap();
    ended(child)
}

#[test]
fn p10_a_copy_is_handed_in_while_the_agent_runs_and_is_on_record() {
    for kit in kits() {
        kit.write_home("private/report.txt", "figures\n");
        kit.write_home("private/sub/tool.sh", "#!/bin/sh\n");
        kit.write_home("private/sub/deep/x", "deep\n");
        std::os::unix::fs::symlink("/etc/passwd", kit.home().join("private/sub/link")).unwrap();
        kit.hand_over();
        let report = kit.home().join("private/report.txt");
        let folder = kit.home().join("private/sub");
        let (report, folder) = (report.to_str().unwrap(), folder.to_str().unwrap());
        assert!(kit.run(&["give", report]).status_is(2).stderr.contains("no task runs"));
        let child = waits(
            &kit,
            "echo $BAILIWICK_HANDOVER; cd $BAILIWICK_HANDOVER; cat report.txt other sub/deep/x; find . | sort; echo more >> report.txt; cat ~/private/report.txt",
        );
        let given = kit.run(&["give", report]).ok();
        let place = given.stdout.strip_suffix("/report.txt (8 bytes)\n").unwrap().to_owned();
        assert!(at_level_process() || place == "/tmp/handover", "{place}");
        let again = kit.run(&["give", report]).status_is(1);
        assert!(
            again.stderr.contains("already") && again.stderr.contains("--as"),
            "{}",
            again.stderr
        );
        kit.run(&["give", "--as", "other", report]).ok();
        let whole = kit.run(&["give", folder]).ok();
        assert!(whole.stderr.contains("left out `sub/link`"), "{}", whole.stderr);
        let (status, out, errors) = go(child);
        assert_eq!(
            out,
            format!(
                "{place}\nfigures\nfigures\ndeep\n.\n./other\n./report.txt\n./sub\n./sub/deep\n./sub/deep/x\n./sub/tool.sh\n"
            ),
            "{errors}"
        );
        assert_ne!(status, 0, "the file itself is not there");
        assert_eq!(
            std::fs::read_to_string(report).unwrap(),
            "figures\n",
            "only the copy changed"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        let digest = kit.shell_outside(&format!("sha256sum {report}")).ok().stdout;
        let line = format!("handed in report.txt (8 bytes, sha256 {})", &digest[..64]);
        assert!(log.contains(&line), "{log}");
        assert!(log.contains("not handed in report.txt: "), "{log}");
        kit.run(&["log", "verify"]).ok();
    }
}

#[test]
fn p8_what_somebody_laid_in_a_files_place_is_not_given() {
    let kit = Bailiwick::new();
    kit.write_home(".ssh/id_ed25519", "secret key\n");
    kit.write("notes.txt", "notes\n");
    std::os::unix::fs::symlink(kit.home().join(".ssh/id_ed25519"), kit.project().join("planted")).unwrap();
    std::os::unix::fs::symlink(kit.home().join(".ssh"), kit.project().join("docs")).unwrap();
    assert!(kit.shell_outside("mkfifo pipe").status == 0);
    let child = waits(&kit, "ls -A $BAILIWICK_HANDOVER");
    for (bad, why) in [
        ("planted", "symbolic link"),
        ("docs/id_ed25519", "symbolic link"),
        ("pipe", "neither a file nor a folder"),
        ("missing", "is not there"),
        ("../home/.local/state/bailiwick/keys/log.key", "bailiwick's own"),
    ] {
        let told = kit.run(&["give", bad]).status_is(2).stderr;
        assert!(told.contains(why), "{bad}: {told}");
    }
    kit.run(&["give", "notes.txt"]).ok();
    assert!(
        kit.run(&["give", "--task", "ffff", "notes.txt"])
            .status_is(2)
            .stderr
            .contains("no task has the id")
    );
    let other = waits(&kit, "true");
    let several = kit.run(&["give", "notes.txt"]).status_is(2).stderr;
    assert!(several.contains("several tasks run"), "{several}");
    assert_eq!(go(child).1, "notes.txt\n");
    go(other);
}

#[test]
fn p8_inside_the_last_refusal_can_be_asked_for_and_nothing_else() {
    for kit in kits() {
        let inside = kit
            .shell("curl -s http://evil.example.test/ > /dev/null; bailiwick last; bailiwick last --json")
            .ok();
        let mut lines = inside.stdout.lines();
        let (code, id) = lines.next().unwrap().split_once(' ').unwrap();
        assert_eq!(code, "no-rule");
        let json: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(
            json["refused"][0],
            serde_json::json!({ "code": code, "id": id }),
            "{json}"
        );
        assert!(
            inside.stderr.contains(&format!("`bailiwick explain {id}`")),
            "{}",
            inside.stderr
        );
        for told in ["evil.example.test", "preset", "layer"] {
            assert!(!inside.stdout.contains(told), "no policy: {}", inside.stdout);
        }
        let outside = kit.run(&["last"]).ok().stdout;
        assert!(outside.contains(id) && outside.contains("to change it: "), "{outside}");
        let nothing = kit.shell("bailiwick last").ok();
        assert!(
            nothing.stdout.is_empty() && nothing.stderr.contains("nothing was refused"),
            "{}",
            nothing.stderr
        );
        for line in [
            "trust",
            "status",
            "give x",
            "attach",
            "stop x",
            "explain x",
            "can 'read x'",
            "run -- true",
            "daemon stop",
        ] {
            let told = kit.shell(&format!("bailiwick {line}")).status_is(2).stderr;
            assert!(told.contains("inside of a bailiwick"), "{line}: {told}");
        }
        // Also without the variable the daemon is not there.
        let told = kit
            .shell("env -u BAILIWICK bailiwick status; env -u BAILIWICK bailiwick trust")
            .stderr;
        assert!(!told.contains("trusted:"), "{told}");
        let other = kit.shell("for path in last grant; do curl -s -o /dev/null -w '%{http_code} ' -X POST http://bailiwick.internal/$path; done");
        assert_eq!(other.stdout, "404 404 ");
    }
}

#[test]
fn p13_more_rules_than_fit_into_an_answer_are_told_by_their_number() {
    let kit = Bailiwick::new();
    let long = "p".repeat(400);
    let rules: Vec<String> = (0..900)
        .map(|number| format!("\"GET https://h{number}.example.test/{long}/**\""))
        .collect();
    let text = format!(
        "extends = [\"coding\"]\n[network]\nallow = [\n{}\n]\n",
        rules.join(",\n")
    );
    kit.write("bailiwick.toml", &text);
    kit.run(&["trust"]).ok();
    let told = kit.run(&["run", "--", "true"]).ok().stderr;
    let numbers = told
        .lines()
        .filter_map(|line| line.rsplit_once(" and ")?.1.strip_suffix(" more"));
    let most = numbers.filter_map(|number| number.parse::<usize>().ok()).max();
    assert!(most.is_some_and(|more| more > 800 && more < 900), "{told}");
}
