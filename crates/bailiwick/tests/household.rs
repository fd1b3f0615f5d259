//! Keeping house: upgrades with tasks running, where things lie, uninstalling, help, working offline.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick_testkit::{Bailiwick, Done, finish, is_root};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|fault| panic!("{fault}: {text}"))
}

/// A copy of the program, as an upgrade or a second installation puts it there.
fn copy(kit: &Bailiwick, name: &str) -> PathBuf {
    let path = kit.outside().join(name);
    std::fs::copy(kit.program(), &path).unwrap();
    kit.hand_over();
    path
}

fn with(kit: &Bailiwick, program: &Path, words: &[&str]) -> Done {
    let mut command = kit.outside_command(program);
    command.args(words);
    finish(command, Duration::from_secs(60))
}

fn build_of(kit: &Bailiwick, program: &Path) -> String {
    let status = json(&with(kit, program, &["status", "--json"]).ok().stdout);
    status["daemon"]["build"].as_str().unwrap().to_owned()
}

#[test]
fn an_upgrade_leaves_tasks_running_and_takes_over_after_the_last() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let older = copy(&kit, "older");
        std::thread::sleep(Duration::from_millis(1100));
        let newer = copy(&kit, "newer");
        let task = with(
            &kit,
            &older,
            &["run", "-q", "-d", "--", "bash", "-c", "read line; echo $line > said"],
        )
        .ok()
        .stdout;
        let first = build_of(&kit, &older);
        // The older program is gone, as an upgrade in place leaves it: its daemon goes on, and starts new tasks.
        std::fs::remove_file(&older).unwrap();
        for _ in 0..3 {
            let run = with(
                &kit,
                &newer,
                &["run", "--", "sh", "-c", "curl -s http://x.test/; echo ran"],
            )
            .ok();
            assert!(run.stdout.contains("ran"), "{}", run.stderr);
            assert!(
                run.stderr.contains("the daemon is of another build and goes on"),
                "{}",
                run.stderr
            );
        }
        assert_eq!(build_of(&kit, &newer), first);
        with(&kit, &newer, &["stop", task.trim()]).ok();
        with(&kit, &newer, &["run", "-q", "--", "true"]).ok();
        assert_ne!(build_of(&kit, &newer), first, "replaced after the last task");
        with(&kit, &newer, &["daemon", "stop"]).ok();
    }
}

/// Somebody who greets as a daemon of other frames, and ends when it is told to.
fn stranger(kit: &Bailiwick, tasks: u64) -> std::thread::JoinHandle<Vec<String>> {
    let state = kit.home().join(".local/state/bailiwick");
    std::fs::create_dir_all(&state).unwrap();
    kit.hand_over();
    let socket = state.join("daemon.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            loop {
                let mut length = [0u8; 4];
                if stream.read_exact(&mut length).is_err() {
                    break;
                }
                let mut body = vec![0u8; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut body).unwrap();
                heard.push(String::from_utf8(body).unwrap());
                let answer = if heard.last().unwrap().contains("hello") {
                    format!("{{\"hello\":{{\"protocol\":9999,\"build\":\"9.9.9\",\"tasks\":{tasks}}}}}")
                } else {
                    "\"done\"".to_owned()
                };
                let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length, answer.as_bytes()].concat()).unwrap();
                if heard.last().unwrap() == "\"stop\"" {
                    std::fs::remove_file(&socket).unwrap();
                    return heard;
                }
            }
        }
        heard
    })
}

#[test]
fn a_daemon_of_other_frames_is_told_with_what_to_do() {
    let kit = Bailiwick::new();
    kit.write("Cargo.toml", "");
    let daemon = stranger(&kit, 2);
    for words in [&["status"][..], &["run", "-q", "--", "true"], &["give", "Cargo.toml"]] {
        let told = kit.run(words);
        assert!(told.status == 1 || told.status == 125, "{}", told.status);
        assert!(
            told.stderr.contains("of build 9.9.9 and speaks version 9999"),
            "{}",
            told.stderr
        );
        assert!(
            told.stderr.contains("2 tasks run in it and go on") && told.stderr.contains("daemon stop"),
            "{}",
            told.stderr
        );
    }
    kit.run(&["daemon", "stop"]).ok();
    assert_eq!(daemon.join().unwrap().last().unwrap(), "\"stop\"");
    // One that has nothing to do is replaced.
    let daemon = stranger(&kit, 0);
    kit.run(&["run", "-q", "--", "true"]).ok();
    assert_eq!(daemon.join().unwrap().last().unwrap(), "\"stop\"");
}

#[test]
fn uninstalling_says_what_goes_and_what_stays() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        kit.write("mine.txt", "mine\n");
        kit.write_home(".local/state/bailiwick/logins/agent/token", "secret\n");
        kit.write_home(".config/bailiwick/rules.toml", "extends = [\"ceiling\"]\n");
        let task = kit.run(&["run", "-q", "-d", "--", "sleep", "100"]).ok().stdout;
        assert!(kit.run(&["uninstall"]).status_is(2).stderr.contains("1 tasks run"));
        kit.run(&["stop", "--now", task.trim()]).ok();
        let state = kit.home().join(".local/state/bailiwick");
        let paths = json(&kit.run(&["paths", "--json"]).ok().stdout);
        let log = paths["paths"]
            .as_array()
            .unwrap()
            .iter()
            .find(|place| place["what"] == "the log")
            .unwrap();
        assert_eq!(
            (&log["path"], &log["there"]),
            (&state.join("log").to_str().unwrap().into(), &true.into())
        );
        let dry = kit.run(&["uninstall", "--dry-run", "--purge"]).ok().stdout;
        assert!(dry.contains("would remove") && dry.contains("the log"), "{dry}");
        assert!(state.join("store.sqlite").exists() && kit.run(&["status"]).ok().stdout.contains("daemon "));
        let told = kit.run(&["uninstall"]).ok();
        assert!(
            told.stdout.contains("removed") && told.stdout.contains("kept"),
            "{}",
            told.stdout
        );
        assert!(
            told.stderr.contains("--purge") && told.stderr.contains("the program itself stays"),
            "{}",
            told.stderr
        );
        let left: Vec<_> = std::fs::read_dir(&state)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        assert!(
            !left
                .iter()
                .any(|name| name.starts_with("store") || name.starts_with("daemon")),
            "{left:?}"
        );
        assert!(
            left.contains(&"log".to_owned()) && left.contains(&"keys".to_owned()),
            "{left:?}"
        );
        kit.run(&["log", "verify"]).ok();
        assert!(left.contains(&"logins".to_owned()), "{left:?}");
        assert!(kit.home().join(".config/bailiwick/rules.toml").exists());
        // It can be taken up again, on the same log.
        kit.run(&["run", "-q", "--", "true"]).ok();
        kit.run(&["log", "verify"]).ok();
        // What is not made in every home.
        for file in [
            "renewed/DIGEST",
            "relations/DIGEST",
            "approvers.json",
            "approver-suspended",
        ] {
            kit.write_home(&format!(".local/state/bailiwick/{file}"), "kept\n");
        }
        let purged = json(&kit.run(&["uninstall", "--purge", "--json"]).ok().stdout);
        assert_eq!(
            purged["kept"].as_array().unwrap().len(),
            usize::from(Path::new("/etc/bailiwick").exists()),
            "{purged}"
        );
        assert!(!state.exists() && !kit.home().join(".config/bailiwick").exists());
        assert_eq!(
            std::fs::read_to_string(kit.project().join("mine.txt")).unwrap(),
            "mine\n"
        );
    }
}

/// A command in a network namespace with nothing in it, not even a loopback that is up.
fn offline(kit: &Bailiwick, namespaces: &[&str], words: &[&str]) -> Done {
    let mut command = kit.outside_command("unshare");
    command.args(namespaces).args(words);
    finish(command, Duration::from_secs(60))
}

#[test]
fn nothing_here_needs_a_network() {
    let ordinary = &["--net", "--user", "--map-current-user"][..];
    let own = if is_root() { &["--net"][..] } else { ordinary };
    for (kit, namespaces) in [(Bailiwick::new(), own), (Bailiwick::as_ordinary_user(), ordinary)] {
        let others = "tail -n +3 /proc/net/dev | grep -v '^ *lo:'";
        assert_eq!(kit.shell_outside("test -r /proc/net/dev").status, 0);
        assert_eq!(
            offline(&kit, namespaces, &["sh", "-c", others]).status,
            1,
            "there is no network in there"
        );
        let bailiwick = |words: &[&str]| {
            let program = kit.program();
            let mut all = vec![program.as_str()];
            all.extend(words);
            offline(&kit, namespaces, &all)
        };
        bailiwick(&["run", "-q", "--standalone", "--", "sh", "-c", "echo made > made.txt"]).ok();
        assert_eq!(
            std::fs::read_to_string(kit.project().join("made.txt")).unwrap(),
            "made\n"
        );
        let told = bailiwick(&["run", "-q", "--standalone", "--", "curl", "-sS", "https://crates.io/"]);
        assert!(
            told.status != 0 && told.elapsed < Duration::from_secs(30),
            "{}",
            told.stderr
        );
        bailiwick(&["can", "write x"]).ok();
        bailiwick(&["policy", "check"]).ok();
    }
}

#[test]
fn help_completions_and_pages_are_made_from_the_command_line_as_it_is() {
    let kit = Bailiwick::new();
    let help = kit.run(&["--help"]).ok().stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 12 && help.contains("Examples:"), "{help}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = kit.run(&["completions", shell]).ok().stdout;
        assert!(commands.iter().all(|command| text.contains(command)), "{shell}");
    }
    let completed = kit.shell_outside(&format!(
        "bash -c 'source <({} completions bash); COMP_WORDS=(bailiwick att); COMP_CWORD=1; _bailiwick bailiwick att bailiwick; echo ${{COMPREPLY[*]}}'",
        kit.program()
    ));
    assert_eq!(completed.ok().stdout, "attach\n");
    assert!(kit.run(&["man"]).ok().stdout.contains(".TH bailiwick 1"));
    let folder = kit.outside().join("man1");
    std::fs::create_dir(&folder).unwrap();
    kit.run(&["man", folder.to_str().unwrap()]).ok();
    for command in &commands {
        let page = std::fs::read_to_string(folder.join(format!("bailiwick-{command}.1")));
        assert!(page.is_ok_and(|page| page.contains(command)), "{command}");
        let told = kit.run(&[command, "--help"]).ok().stdout;
        assert!(told.contains("Usage: "), "{told}");
    }
    assert!(
        kit.run(&["man", "/nowhere/at/all"])
            .status_is(2)
            .stderr
            .contains("cannot be written")
    );
}

#[test]
fn every_list_can_be_had_as_json() {
    let kit = Bailiwick::new();
    kit.run(&["run", "-q", "--", "curl", "-s", "http://evil.example.test/"]);
    for words in [
        &["status", "--json"][..],
        &["paths", "--json"],
        &["last", "--json"],
        &["doctor", "--json"],
        &["policy", "show", "--json"],
        &["policy", "check", "--json"],
        &["log", "verify", "--json"],
    ] {
        let answer = kit.run(words);
        assert!(json(&answer.stdout).is_object(), "{words:?}");
    }
    let records = kit.run(&["log", "show", "--json"]).ok().stdout;
    assert!(records.lines().count() > 3 && records.lines().all(|line| json(line).is_object()));
}
