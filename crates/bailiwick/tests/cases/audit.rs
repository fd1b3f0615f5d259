//! The log: what is recorded, what odd names do to it, and who can change it.

use std::path::{Path, PathBuf};

use bailiwick_testkit::{Bailiwick, Listener, Origin, finish};
use serde_json::Value;

use crate::{kits, records, trust};

fn log_of(kit: &Bailiwick) -> PathBuf {
    kit.run(&["log", "path"]).ok().stdout.trim().into()
}

/// All files of a folder with their bytes.
fn bytes_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            all.extend(bytes_of(&entry.path()));
        } else {
            all.push((entry.path(), std::fs::read(entry.path()).unwrap()));
        }
    }
    all
}

#[test]
fn c067_the_log_cannot_be_touched_from_inside() {
    for kit in kits() {
        // The whole home is not granted while the log lies in it: not even the name of its folder is the agent's.
        trust(&kit, "extends = [\"coding\"]\n[files]\nwrite = [\"~\"]\n");
        let told = kit.run(&["run", "-q", "--", "true"]).status_is(125).stderr;
        assert!(
            told.contains("holds bailiwick's own") && told.contains("hint:"),
            "{told}"
        );
        kit.write_home("work/notes.txt", "NOTES\n");
        trust(&kit, "extends = [\"coding\"]\n[files]\nwrite = [\"~/work\"]\n");
        kit.shell("echo mine > ~/work/made-inside.txt").ok();
        assert!(
            kit.home().join("work/made-inside.txt").exists(),
            "what is granted can be written"
        );
        let log = log_of(&kit);
        let any = bytes_of(&log)[0].0.clone();
        let (log_name, any) = (log.display(), any.display());
        let attempts = [
            format!("cat {any}"),
            format!("rm -rf {log_name}"),
            format!("rm -f {any} && test ! -e {any}"),
            format!("truncate -s 0 {any}"),
            format!("mv {log_name} {log_name}2"),
            format!("echo x >> {any}"),
            format!("echo x > /tmp/new; mv -f /tmp/new {any}"),
            "mv ~/.local/state/bailiwick ~/b".to_owned(),
            "mv ~/.local/state ~/s".to_owned(),
            "mv ~/.local ~/l".to_owned(),
            "rm -rf ~/.local/state/bailiwick".to_owned(),
            "ln -sfn /tmp ~/.local/state/bailiwick/log".to_owned(),
        ];
        for attempt in &attempts {
            // In a copy, without the fence, each does what it says.
            let copy = kit.outside().join("copy-of-home");
            let moved = attempt.replace(&kit.home().display().to_string(), &copy.display().to_string());
            let line = format!(
                "rm -rf {0}; cp -a {1} {0} 2>/dev/null; HOME={0}; {moved}",
                copy.display(),
                kit.home().display()
            );
            assert_eq!(kit.shell_outside(&line).status, 0, "outside: {attempt}");
        }
        let before = kit.run(&["log", "checkpoint"]).ok().stdout;
        let kept = kit.outside().join("checkpoint.txt");
        std::fs::write(&kept, before).unwrap();
        kit.hand_over();
        for attempt in &attempts {
            // Inside there is no such folder, so some have nothing to fail at; what counts is the log.
            let inside = kit.shell(attempt);
            let link = log.symlink_metadata().unwrap();
            assert!(link.is_dir() && inside.stdout.is_empty(), "{attempt}: {inside:?}");
            kit.run(&["log", "verify", "--since", &kept.display().to_string()]).ok();
        }
        let starts = kit.run(&["log", "show"]).ok().stdout.matches("started for ").count();
        assert!(starts > attempts.len(), "{starts} starts are on record");
    }
}

/// The records of a bundle (C2SP tlog-tiles: each behind its length in two bytes).
fn read_bundle(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let [high, low, after @ ..] = rest {
        let (record, next) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        all.push(record.to_vec());
        rest = next;
    }
    all
}

fn write_bundle(path: &Path, records: &[Vec<u8>]) {
    let one = |record: &Vec<u8>| [&u16::try_from(record.len()).unwrap().to_be_bytes()[..], record].concat();
    std::fs::write(path, records.iter().flat_map(one).collect::<Vec<u8>>()).unwrap();
}

type Change = fn(&mut Vec<Vec<u8>>);

#[test]
fn c067_five_changes_are_found_by_the_command() {
    let kit = Bailiwick::new();
    for _ in 0..4 {
        kit.shell("true").ok();
    }
    kit.run(&["daemon", "stop"]).ok();
    let log = log_of(&kit);
    let copy = kit.outside().join("copy");
    let key = kit.home().join(".local/state/bailiwick/keys");
    let key = bytes_of(&key)
        .into_iter()
        .map(|(path, _)| path)
        .find(|path| path.to_string_lossy().contains("pub") || path.to_string_lossy().contains("verif"))
        .unwrap();
    let (at, key) = (copy.display().to_string(), key.display().to_string());
    let verify = || kit.run(&["log", "verify", "--folder", &at, "--key", &key]);
    let again = || {
        let _ = std::fs::remove_dir_all(&copy);
        kit.shell_outside(&format!("cp -a {} {}", log.display(), copy.display()))
            .ok();
    };
    again();
    verify().ok();
    let changes: [(&str, Change); 5] = [
        ("a byte is changed", |all| {
            let at = all[5].len() - 3;
            all[5][at] ^= 1;
        }),
        ("a record is deleted in the middle", |all| drop(all.remove(5))),
        ("the last three are deleted", |all| all.truncate(all.len() - 3)),
        ("two are swapped", |all| all.swap(5, 9)),
        ("a copied one is added", |all| all.insert(5, all[2].clone())),
    ];
    for (what, change) in changes {
        again();
        let bundles: Vec<PathBuf> = bytes_of(&copy.join("tile/entries"))
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert!(
            !bundles.is_empty(),
            "a closed log has bundles: {:?}",
            bytes_of(&copy).iter().map(|(p, _)| p).collect::<Vec<_>>()
        );
        for path in bundles {
            let mut all = read_bundle(&std::fs::read(&path).unwrap());
            if all.len() > 10 {
                change(&mut all);
                write_bundle(&path, &all);
            }
        }
        let told = verify().status_is(5).stderr;
        assert!(
            told.contains("does not verify") && told.contains("record"),
            "{what}: {told}"
        );
    }
}

/// A line that would pass for a record, behind a line break, with marks that turn and hide text.
const FORGED: &str = "x\n{\"decision\":\"allow\",\"who\":\"root\"}\u{202e}\u{1b}[2K";

fn holds(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text.contains(word),
        Value::Array(all) => all.iter().any(|value| holds(value, word)),
        Value::Object(all) => all.values().any(|value| holds(value, word)),
        _ => false,
    }
}

#[test]
fn c068_each_event_is_one_record_whatever_is_in_its_names() {
    for kit in kits() {
        let origin = Origin::start();
        let crashing = Listener::start();
        trust(
            &kit,
            &format!(
                "extends = [\"offline\"]\n[network]\nallow = [\"* http://127.0.0.1:{0}/**\", \"GET http://127.0.0.1:{1}/**\", \"* http://ok.example.test:{0}/**\"]\n\
                 ask = [\"POST http://127.0.0.1:{0}/ask/**\"]\ndeny = [\"* http://127.0.0.1:{0}/no/**\"]\n\
                 [network.hosts]\n\"ok.example.test\" = \"127.0.0.1\"\n",
                origin.port(),
                crashing.port()
            ),
        );
        // Allowed; denied by a rule; asked with nobody there; a host that no rule names; a server that breaks off.
        let (at, crash) = (origin.url(""), format!("http://127.0.0.1:{}/crash", crashing.port()));
        let line = format!(
            "curl -sf {at}/fine; curl -s {at}/no/1; curl -s -d x {at}/ask/1; curl -s http://evil.example.test/; \
             curl -s https://tunnel.example.test/; curl -s {crash}; getent hosts leak.example.test; true"
        );
        kit.run(&["run", "-q", "--no-ask", "--", "sh", "-c", &line]).ok();
        // Odd names: an argument, a program, a file, a path, a host, a name that is looked up, a method.
        kit.write(&format!("odd/{FORGED}.sh"), "#!/bin/sh\necho ran\n");
        kit.shell_outside("chmod +x odd/*.sh").ok();
        let program = format!("./odd/{FORGED}.sh");
        let done = kit.run(&["run", "-q", "--", &program, FORGED]).ok();
        assert_eq!(done.stdout, "ran\n");
        kit.run(&["run", "-q", "--", FORGED]).status_is(127);
        kit.run(&[
            "run",
            "-q",
            "--",
            "sh",
            "-c",
            "test \"$1\" = \"$2\"",
            "sh",
            FORGED,
            FORGED,
        ])
        .ok();
        kit.write(
            "odd.py",
            "import socket, sys\nname = sys.argv[1]\n\
             def proxy(data):\n    s = socket.create_connection(('127.0.0.1', 3128), 5); s.sendall(data); s.settimeout(5); print(s.recv(999))\n\
             proxy(b'GET http://evil.example.test/' + name.encode().replace(b'\\n', b'%0a').replace(b'\\x1b', b'%1b').replace(b' ', b'+') + b' HTTP/1.1\\r\\n\\r\\n')\n\
             proxy(b'CONNECT evil' + name.split('\\n')[1].encode() + b'.test:443 HTTP/1.1\\r\\n\\r\\n')\n\
             proxy(b'CONNECT evil\\xe2\\x80\\xaetest.example.test:443 HTTP/1.1\\r\\n\\r\\n')\n\
             label = name.encode()[:60]\n\
             s = socket.create_connection(('127.0.0.1', 53), 5)\n\
             ask = b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([len(label)]) + label + b'\\4test\\0\\0\\1\\0\\1'\n\
             s.sendall(bytes([0, len(ask)]) + ask); print(s.recv(999))\n",
        );
        kit.run(&["run", "-q", "--", "python3", "odd.py", FORGED]).ok();
        // A context whose folder has such a name, and whose file is trusted.
        let folder = kit.project().join(FORGED);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("bailiwick.toml"), "extends = [\"coding\"]\n").unwrap();
        kit.hand_over();
        for words in [&["trust"][..], &["run", "-q", "--", "true"]] {
            let mut command = kit.command(words);
            command.current_dir(&folder);
            finish(command, std::time::Duration::from_secs(60));
        }

        let size = kit.run(&["log", "verify", "--json"]).ok().stdout;
        let size = serde_json::from_str::<Value>(&size).unwrap()["size"].as_u64().unwrap();
        let shown = kit.run(&["log", "show"]).ok().stdout;
        assert!(shown.lines().count() as u64 >= size, "each record has a line");
        for (number, line) in shown.lines().enumerate() {
            assert_eq!(
                line.split_whitespace().next(),
                Some(number.to_string().as_str()),
                "{line}"
            );
            let plain = |c: char| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c);
            assert!(line.chars().all(plain), "{line:?}");
        }
        let all = records(&kit, &[]);
        assert_eq!(
            all.len(),
            shown.lines().count(),
            "one line of JSON each, and each can be read"
        );
        assert!(
            all.iter()
                .all(|record| record["time"].is_u64() && record["event"].is_object()),
            "{all:?}"
        );
        assert!(
            all.iter()
                .all(|record| record.get("who").is_none() && record.get("decision").is_none())
        );
        assert!(
            all.iter().any(|record| holds(record, FORGED)),
            "the name is kept as it was"
        );
        for words in [
            "allow GET http://127.0.0.1:P/fine (allowed-by-rule by ",
            "deny GET http://127.0.0.1:P/no/1 at 127.0.0.1 (denied-by-rule by ",
            "POST http://127.0.0.1:P/ask/1 at 127.0.0.1 (",
            "deny resolve evil.example.test (no-rule",
            "deny resolve tunnel.example.test (no-rule",
            "deny resolve leak.example.test (no-rule",
            "started for ",
            "not done (",
        ] {
            let words = words
                .replace(":P", &format!(":{}", origin.port()))
                .replace("/fine (", "/fine at 127.0.0.1 (");
            let refused = kit.run(&["log", "show", "--denied"]).stdout;
            assert!(shown.contains(&words), "{words}: {refused}");
        }
        let once = |words: &str| shown.matches(words).count();
        let port = origin.port();
        assert_eq!(once(&format!("deny POST http://127.0.0.1:{port}/ask/1")), 1);
        assert_eq!(once(&format!("deny GET http://127.0.0.1:{port}/no/1")), 1);
        let asked = records(&kit, &["--denied"])
            .into_iter()
            .find(|record| record.to_string().contains("/ask/1"))
            .unwrap();
        assert!(
            asked["task"].is_string() && asked["event"].to_string().contains("\"rule\""),
            "{asked}"
        );
        assert_eq!(origin.requests().len(), 1, "{:?}", origin.requests());
    }
}
