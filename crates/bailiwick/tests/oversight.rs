//! Hours, four eyes, other approvers and a program that answers, over real tasks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bailiwick_testkit::{Bailiwick, finish};
use serde_json::Value;

const DAY: u64 = 86_400;

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn clock(second_of_day: u64) -> String {
    let minute = second_of_day % DAY / 60;
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// Hours that are open now and close in so many seconds, give or take none.
fn closing_in(left: u64) -> String {
    let closes = seconds() + left;
    let minute = closes.div_ceil(60) * 60 + 60;
    format!(
        "[oversight]\nhours = {{ open = \"{}-{} UTC\", before_close = \"{} s\" }}\n",
        clock(closes - 3600),
        clock(minute),
        minute - closes
    )
}

/// Hours that are closed now and for some hours.
fn closed() -> String {
    format!(
        "[oversight]\nhours = \"{}-{} UTC\"\n",
        clock(seconds() + 5 * 3600),
        clock(seconds() + 6 * 3600)
    )
}

fn until<T>(found: impl Fn() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(40) {
        if let Some(found) = found() {
            return Some(found);
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    None
}

fn rules(kit: &Bailiwick, text: &str) {
    kit.write("bailiwick.toml", &format!("extends = [\"coding\"]\n{text}"));
    kit.run(&["trust"]).ok();
}

fn waiting(kit: &Bailiwick) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&kit.run(&["approve", "--json"]).stdout).unwrap();
    listed["waiting"].as_array().unwrap().clone()
}

fn question(kit: &Bailiwick, act: &str) -> Value {
    let find = || {
        waiting(kit)
            .into_iter()
            .find(|one| one["act"].as_str().unwrap().contains(act))
    };
    until(find).unwrap_or_else(|| panic!("`{act}` among {:?}", waiting(kit)))
}

/// A shell in the fence, in the background.
fn background(kit: &Bailiwick, line: &str) -> Child {
    let mut command = kit.command(&["run", "--", "sh", "-c", line]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// What it has said at its end, and how it ended.
fn ended(child: Child) -> (Option<i32>, String, String) {
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn log(kit: &Bailiwick) -> String {
    kit.run(&["log", "show"]).ok().stdout
}

fn hours_of(kit: &Bailiwick) {
    rules(kit, &closed());
    let refused = kit.run(&["run", "--", "sh", "-c", "true"]).status_is(125);
    let told = &refused.stderr;
    assert!(
        told.contains("nothing runs in") && told.contains("now: it opens ") && told.contains(" UTC"),
        "{told}"
    );
    let can = kit.run(&["can", "read bailiwick.toml"]).status_is(3).stdout;
    assert!(can.contains("out-of-hours") && can.contains("it opens "), "{can}");
    // Open for a while: it says until when, is told in time, and has time to put its things away.
    rules(kit, &format!("{}[state]\nkeep = [\"~/.kept\"]\n", closing_in(16)));
    let line =
        "trap 'echo put away > ~/.kept/word; exit 7' TERM; echo begun >> ~/.kept/word; while :; do sleep 0.1; done";
    let begun = Instant::now();
    let (status, _, told) = ended(background(kit, line));
    assert_eq!(status, Some(7), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(17), "{:?}", begun.elapsed());
    assert!(
        told.contains("when its hours end: it is told to end, and ended"),
        "{told}"
    );
    let over = told
        .lines()
        .find(|line| line.contains("its hours are over"))
        .unwrap_or_else(|| panic!("{told}"));
    assert!(over.contains("they begin again"), "{over}");
    let task = over
        .split("--resume ")
        .nth(1)
        .unwrap()
        .split('`')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        log(kit).contains("told to end, since its hours are over until"),
        "{}",
        log(kit)
    );
    // Again, in the same place, with what it kept; not while it is closed.
    rules(kit, &format!("{}[state]\nkeep = [\"~/.kept\"]\n", closed()));
    let shut = kit.run(&["run", "--resume", &task]).status_is(125);
    assert!(shut.stderr.contains("it opens "), "{}", shut.stderr);
    rules(kit, &format!("{}[state]\nkeep = [\"~/.kept\"]\n", closing_in(14)));
    let mut again = kit.command(&["run", "--resume", &task]);
    again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (status, _, told) = ended(again.spawn().unwrap());
    assert_eq!(status, Some(7), "{told}");
    rules(kit, "[state]\nkeep = [\"~/.kept\"]\n");
    assert_eq!(kit.shell("cat ~/.kept/word").ok().stdout, "put away\n");
    for (wrong, words) in [("0000000000000000", "is not kept"), ("x", "is not the id of a task")] {
        let told = kit.run(&["run", "--resume", wrong]).status_is(125).stderr;
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn c053_a_task_ends_with_its_hours_and_goes_on_when_they_begin_again() {
    hours_of(&Bailiwick::new());
}

#[test]
fn c053_the_hours_of_an_ordinary_user_end_their_tasks_too() {
    let kit = Bailiwick::as_ordinary_user();
    kit.hand_over();
    hours_of(&kit);
}

#[test]
fn c053_a_command_of_the_night_is_denied_by_day() {
    let kit = Bailiwick::new();
    let by_day = format!(
        "[oversight]\nhours = [{{ on = [\"run touch night\"], open = \"{}-{} UTC\" }}]\n",
        clock(seconds() + 5 * 3600),
        clock(seconds() + 6 * 3600)
    );
    rules(&kit, &by_day);
    let done = kit.shell("touch day && echo day; touch night || echo denied; ls");
    assert_eq!(done.stdout, "day\ndenied\nbailiwick.toml\nday\n", "{}", done.stderr);
    assert!(
        log(&kit).contains("deny run touch night (out-of-hours"),
        "{}",
        log(&kit)
    );
    let at_night = by_day.replace(&clock(seconds() + 5 * 3600), &clock(seconds() - 3600));
    rules(&kit, &at_night);
    assert_eq!(kit.shell("touch night && ls night").ok().stdout, "night\n");
}

#[test]
fn p8_the_one_whose_task_asks_is_none_of_four_eyes() {
    let kit = Bailiwick::new();
    rules(
        &kit,
        "[oversight]\nfour_eyes = [\"run touch paid\"]\n[questions]\ndeadline = \"8 s\"\n",
    );
    let child = background(&kit, "/usr/bin/touch paid && echo paid || echo refused");
    let asked = question(&kit, "touch paid");
    let id = asked["id"].as_str().unwrap();
    let told = kit.run(&["approve", id]);
    assert_ne!(told.status, 0);
    assert!(told.stderr.contains("two others must say yes"), "{}", told.stderr);
    kit.run(&["approve", id, "--no"]).ok();
    let (_, said, _) = ended(child);
    assert_eq!(said, "refused\n");
    // Also a grant that was given by hand.
    kit.run(&["grants", "give", "run touch paid", "--for", "1 h"]);
    let child = background(&kit, "/usr/bin/touch paid && echo paid || echo refused");
    let asked = question(&kit, "touch paid");
    kit.run(&["approve", asked["id"].as_str().unwrap(), "--no"]).ok();
    assert_eq!(ended(child).1, "refused\n");
}

/// The product as another user, who answers by the socket.
fn as_user(kit: &Bailiwick, uid: u32, home: &std::path::Path, arguments: &[&str]) -> bailiwick_testkit::Done {
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"])
        .arg(kit.program())
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .current_dir("/");
    finish(command, Duration::from_secs(30))
}

/// The number of a user of this machine.
fn uid_of(name: &str) -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")))
        .unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

#[test]
fn p8_two_other_users_say_yes_by_their_own_socket_and_do_nothing_else_there() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be several users");
        return;
    }
    let kit = Bailiwick::new();
    let home = kit.outside().join("others");
    let folder = kit.outside().join("approve");
    for path in [&home, &folder] {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (ida, theo) = (uid_of("nobody"), uid_of("daemon"));
    rules(
        &kit,
        "[oversight]\nfour_eyes = [\"run touch paid\"]\napprovers = [\"ida\", \"theo\"]\n",
    );
    kit.run(&["approver", "add", "ida", "--user", "nobody"]).ok();
    let twice = kit.run(&["approver", "add", "ida2", "--user", "nobody"]);
    assert!(
        twice.status != 0 && twice.stderr.contains("one person is one pair of eyes"),
        "{}",
        twice.stderr
    );
    let open = kit.outside().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = kit.run(&["approver", "socket", open.to_str().unwrap()]);
    assert!(
        refused.status != 0 && refused.stderr.contains("others than its owner can write there"),
        "{}",
        refused.stderr
    );
    kit.run(&["approver", "socket", folder.to_str().unwrap()]).ok();
    let socket: PathBuf = folder.join("approve.sock");
    let at = socket.to_str().unwrap().to_owned();
    let child = background(&kit, "/usr/bin/touch paid && echo paid || echo refused");
    let asked = question(&kit, "touch paid");
    let id = asked["id"].as_str().unwrap().to_owned();
    // Somebody who is not enrolled hears nothing.
    let stranger = as_user(&kit, theo, &home, &["approve", "--at", &at]);
    assert!(
        stranger.status != 0 && !stranger.stdout.contains("touch"),
        "{}{}",
        stranger.stdout,
        stranger.stderr
    );
    kit.run(&["approver", "add", "theo", "--user", "daemon"]).ok();
    let listed = as_user(&kit, ida, &home, &["approve", "--at", &at]).status_is(4).stdout;
    assert!(
        listed.contains("touch paid") && listed.contains("two people"),
        "{listed}"
    );
    let first = as_user(&kit, ida, &home, &["approve", "--at", &at, &id]).ok();
    assert!(first.stdout.contains("one more is needed"), "{}", first.stdout);
    let again = as_user(&kit, ida, &home, &["approve", "--at", &at, &id]);
    assert!(
        again.status != 0 && again.stderr.contains("has said yes already"),
        "{}",
        again.stderr
    );
    assert_eq!(question(&kit, "touch paid")["seconded"], serde_json::json!(["ida"]));
    as_user(&kit, theo, &home, &["approve", "--at", &at, &id]).ok();
    assert_eq!(ended(child).1, "paid\n");
    let told = log(&kit);
    assert!(
        told.contains("yes, as one of two by ida") && told.contains("yes by theo"),
        "{told}"
    );
    assert!(told.contains("ida (user nobody) may answer questions"), "{told}");
    // No other frame is heard there, and who is taken from the list is not heard any more.
    let list = kit.run(&["approver", "list"]).ok().stdout;
    assert!(
        list.contains("ida  user nobody") && list.contains("theo  user daemon"),
        "{list}"
    );
    kit.run(&["approver", "remove", "ida"]).ok();
    assert_ne!(as_user(&kit, ida, &home, &["approve", "--at", &at]).status, 4);
    kit.run(&["approver", "socket", "--off"]).ok();
    assert!(!socket.exists());
    let secret = std::fs::metadata(kit.home().join(".local/state/bailiwick/approvers.json"));
    assert!(secret.is_ok_and(|found| found.mode() & 0o777 == 0o600));
}

#[test]
fn p8_nothing_in_a_fence_reaches_the_socket_for_approvers() {
    let kit = Bailiwick::new();
    rules(&kit, "[commands]\nask = [\"touch paid\"]\n");
    let folder = kit.outside().join("approve");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    kit.run(&["approver", "socket", folder.to_str().unwrap()]).ok();
    let at = folder.join("approve.sock");
    let probe = format!(
        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); print('reached')\"",
        at.display()
    );
    assert_eq!(kit.shell_outside(&probe).ok().stdout, "reached\n");
    let inside = kit.shell(&probe);
    assert!(
        inside.status != 0 && !inside.stdout.contains("reached"),
        "{}",
        inside.stdout
    );
}

/// A program that answers, as a script.
fn program(kit: &Bailiwick, name: &str, body: &str) -> String {
    let path = kit.write_home(&format!("bin/{name}"), &format!("#!/usr/bin/env python3\n{body}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn answers_by(kit: &Bailiwick, program: &str, may: &str) {
    kit.write_home(
        ".config/bailiwick/approver.toml",
        &format!("extends = [\"ceiling\"]\n[approver]\nrun = [\"{program}\"]\n{may}\n"),
    );
}

const ASKS: &str = "[commands]\nask = [\"touch\", \"rmdir\"]\n[questions]\ndeadline = \"15 s\"\n";

#[test]
fn p8_a_program_answers_within_its_acts_and_what_it_passes_on_stays_for_people() {
    let kit = Bailiwick::new();
    // It says yes to what this project asks about, and refuses whatever else it is tried with.
    let body = "import json, sys\n\
        q = json.load(sys.stdin)\n\
        words = q['act'].split()\n\
        if words[:2] == ['run', 'touch'] and len(words) == 3 and words[2] in ('a', 'b', 'mine', 'no'):\n\
        \x20   print(json.dumps({'answer': {'mine': 'pass', 'no': 'no'}.get(words[2], 'yes'), 'word': 'not so'}))\n\
        elif words[:2] == ['run', 'rmdir']:\n\
        \x20   print(json.dumps({'answer': 'yes'}))\n\
        else:\n\
        \x20   print(json.dumps({'answer': 'no'}))";
    let path = program(&kit, "auditor", body);
    rules(&kit, ASKS);
    answers_by(&kit, &path, "may = [\"run touch **\"]");
    kit.write("dir/x", "");
    let done = kit.shell("touch a && ls a; touch no || echo refused");
    assert_eq!(done.stdout, "a\nrefused\n", "{}", done.stderr);
    assert!(
        log(&kit).contains("question run touch a: yes by program"),
        "{}",
        log(&kit)
    );
    // Passed on, and outside of its acts: a person answers.
    for (act, counted) in [("touch mine", "1 passed on"), ("rmdir dir/none", "1 not answered")] {
        let child = background(&kit, &format!("{act} 2>/dev/null; true"));
        let asked = question(&kit, &format!("run {act}"));
        let status = || kit.run(&["status"]).ok().stdout;
        assert!(
            until(|| status().contains(counted).then_some(())).is_some(),
            "{}",
            status()
        );
        kit.run(&["approve", asked["id"].as_str().unwrap()]).ok();
        ended(child);
    }
    let status = kit.run(&["status"]).ok().stdout;
    assert!(status.contains("1 passed on, 1 not answered; tried "), "{status}");
    assert!(status.contains("it said yes to what its yes is not for"), "{status}");
}

#[test]
fn p4_a_program_that_is_slow_loud_or_makes_no_sense_has_not_answered() {
    for (body, words) in [
        ("import time\ntime.sleep(60)", "longer than 5 seconds"),
        ("print('yes')", "makes no sense"),
        ("print('{\"answer\": \"yes\", \"more\": 1}')", "makes no sense"),
        (
            "print('{\"answer\": \"yes\"}')\nimport sys\nsys.exit(3)",
            "it ended with exit status: 3",
        ),
        ("print('x' * 100000)", "longer than 65536 bytes"),
        ("import os\nprint(os.listdir('/proc/self/fd'))\n", "makes no sense"),
    ] {
        let kit = Bailiwick::new();
        let path = program(&kit, "auditor", body);
        rules(&kit, ASKS);
        answers_by(&kit, &path, "");
        let child = background(&kit, "/usr/bin/touch a && echo made || echo refused");
        let status = || kit.run(&["status"]).ok().stdout;
        assert!(
            until(|| status().contains(words).then_some(())).is_some(),
            "{body}: {}",
            status()
        );
        // It is there for people still.
        let asked = question(&kit, "touch a");
        kit.run(&["approve", asked["id"].as_str().unwrap(), "--no"]).ok();
        assert_eq!(ended(child).1, "refused\n", "{body}");
    }
}

#[test]
fn p8_a_program_that_says_yes_to_everything_is_suspended_and_that_is_on_record() {
    let kit = Bailiwick::new();
    let path = program(
        &kit,
        "auditor",
        "import sys\nsys.stdin.read()\nprint('{\"answer\": \"yes\"}')",
    );
    rules(&kit, ASKS);
    answers_by(&kit, &path, "");
    // One question in six comes with one that must be refused: among eighty there is one but for one time in two million.
    let mut child = background(&kit, "for n in $(seq 80); do touch x$n || break; done");
    let begun = Instant::now();
    let suspended = loop {
        let status = kit.run(&["status"]).ok().stdout;
        if status.contains("is suspended, and people answer all") {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{status}");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(suspended.contains("which the rules deny"), "{suspended}");
    // From then on the questions stay for people, also for the next daemon.
    question(&kit, "run touch x");
    let _ = child.kill();
    let _ = child.wait();
    assert!(
        log(&kit).contains("is not asked any more: it said yes to"),
        "{}",
        log(&kit)
    );
    kit.run(&["daemon", "stop"]).ok();
    let child = background(&kit, "/usr/bin/touch y && echo made || echo refused");
    question(&kit, "touch y");
    assert_eq!(ended(child).1, "refused\n");
    kit.run(&["approver", "again"]).ok();
    assert!(!kit.run(&["status"]).ok().stdout.contains("suspended"));
}
