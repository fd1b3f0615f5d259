//! Runs that nobody watches: a status file, exit codes, what was refused and what would allow it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use bailiwick_testkit::Bailiwick;
use serde_json::Value;

fn status_of(kit: &Bailiwick, name: &str) -> Value {
    let text = std::fs::read_to_string(kit.project().join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text}"))
}

#[test]
fn a_status_file_says_how_a_run_does() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let line = "sleep 0.5; grep -q '\"running\"' status.json && echo seen; curl -s http://evil.example.test/ >/dev/null; exit 7";
        let run = kit
            .run(&["run", "-q", "--status-file", "status.json", "--", "sh", "-c", line])
            .status_is(7);
        assert_eq!(run.stdout, "seen\n");
        let status = status_of(&kit, "status.json");
        assert_eq!(
            (&status["state"], &status["status"]),
            (&"ended".into(), &7.into()),
            "{status}"
        );
        assert_eq!(
            status["level"],
            bailiwick_testkit::level().unwrap_or("namespace".into())
        );
        assert!(status["denied"].as_u64().unwrap() >= 1, "{status}");
        assert!(
            status["checkpoint"].as_str().unwrap().contains("bailiwick.log"),
            "{status}"
        );
        assert!(status["started"].as_str() < status["ended"].as_str(), "{status}");
        assert_eq!(status["failure"], Value::Null);
        assert!(
            kit.run(&["log", "show", "--task", status["task"].as_str().unwrap()])
                .ok()
                .stdout
                .contains("ended with 7")
        );
        let left: Vec<_> = std::fs::read_dir(kit.project())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["status.json"], "nothing is left beside it");
    }
}

#[test]
fn our_own_failures_have_exit_codes_of_their_own() {
    let kit = Bailiwick::new();
    let plain = kit.write("plain", "no program\n");
    let plain = plain.to_str().unwrap();
    kit.write("bad.toml", "");
    for (command, exit, code) in [
        ("no-such-program", 127, "program-not-found"),
        (plain, 126, "program-not-executable"),
    ] {
        let run = kit
            .run(&["run", "--status-file", "s.json", "--", command])
            .status_is(exit);
        let status = status_of(&kit, "s.json");
        assert_eq!(status["state"], "failed", "{status}");
        assert_eq!(status["failure"]["exit"], exit);
        assert_eq!(status["failure"]["code"], code, "{}", run.stderr);
        assert_eq!(status["status"], Value::Null);
    }
    kit.write("bailiwick.toml", "[files]\nwrit = [\".\"]\n");
    kit.run(&["run", "--status-file", "s.json", "--", "true"])
        .status_is(125);
    let status = status_of(&kit, "s.json");
    assert!(
        status["failure"]["message"]
            .as_str()
            .unwrap()
            .contains("`writ` is not a known key"),
        "{status}"
    );
    std::fs::remove_file(kit.project().join("bailiwick.toml")).unwrap();
    // The agent's own codes are passed on, also those.
    for own in [0, 1, 125, 126, 127, 255] {
        kit.shell(&format!("exit {own}")).status_is(own);
    }
    let told = kit
        .run(&["run", "--status-file", "missing/s.json", "--", "touch", "ran"])
        .status_is(125)
        .stderr;
    assert!(
        told.contains("status file `missing/s.json` cannot be written"),
        "{told}"
    );
    assert!(!kit.project().join("ran").exists());
}

#[test]
fn a_status_file_is_not_written_through_what_lies_there() {
    let kit = Bailiwick::new();
    let victim = kit.write_home("victim", "untouched\n");
    std::os::unix::fs::symlink(&victim, kit.project().join("s.json")).unwrap();
    kit.run(&["run", "-q", "--status-file", "s.json", "--", "true"]).ok();
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "untouched\n");
    assert_eq!(status_of(&kit, "s.json")["state"], "ended");
}

#[test]
fn what_was_refused_is_told_with_what_would_allow_it() {
    let kit = Bailiwick::new();
    let line = "for n in 1 2 3; do curl -s http://evil.example.test/x; done >/dev/null; curl -s https://other.example.test; true";
    let run = kit
        .run(&["run", "-q", "--no-ask", "--explain-denials", "--", "sh", "-c", line])
        .ok();
    let told = &run.stderr;
    assert!(told.contains("no: resolve evil.example.test (no-rule) "), "{told}");
    assert_eq!(
        told.matches("resolve evil.example.test (no-rule)").count(),
        1,
        "once: {told}"
    );
    let line = "to change it: add `allow = [\"GET https://evil.example.test/**\"]` under [network] (or `tunnel = [\"evil.example.test\"]`";
    assert!(told.contains(line), "{told}");
    assert!(told.contains("refused, ") && told.contains(" different"), "{told}");
    let id = told.split("(no-rule) ").nth(1).and_then(|rest| rest.get(..12)).unwrap();
    assert!(
        kit.run(&["explain", id])
            .ok()
            .stdout
            .contains("resolve evil.example.test")
    );
    let calm = kit.run(&["run", "-q", "--explain-denials", "--", "true"]).ok();
    assert!(calm.stderr.contains("nothing was refused"), "{}", calm.stderr);
    // What is asked is refused at once, since nobody is there.
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:9999/**\"]\n",
    );
    kit.run(&["trust"]).ok();
    let asked = kit.run(&[
        "run",
        "-q",
        "--no-ask",
        "--explain-denials",
        "--",
        "curl",
        "-s",
        "http://127.0.0.1:9999/",
    ]);
    assert!(
        asked.stderr.contains("ask: ") && asked.stderr.contains("127.0.0.1:9999"),
        "{}",
        asked.stderr
    );
    assert!(asked.elapsed.as_secs() < 20);
}
