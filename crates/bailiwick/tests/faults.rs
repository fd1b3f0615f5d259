//! What goes wrong around the product: each gets one clear line, a hint, an exit code, and loses nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Done, finish, is_root};

const LIMIT: Duration = Duration::from_secs(60);

/// The product through another program: `PROGRAM ARGUMENTS… bailiwick WORDS…`, in the same home.
fn through(kit: &Bailiwick, program: &str, arguments: &[&str], words: &[&str]) -> Done {
    let mut command = kit.outside_command(program);
    command.args(arguments).arg(kit.program()).args(words);
    finish(command, LIMIT)
}

fn one_line_and_a_hint(told: &str) {
    let lines: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().any(|line| line.starts_with("bailiwick: ")), "{told}");
    assert!(
        lines.iter().any(|line| line.trim_start().starts_with("hint: ")),
        "{told}"
    );
    assert!(!told.contains("panicked") && !told.contains("RUST_BACKTRACE"), "{told}");
}

fn state(kit: &Bailiwick, name: &str) -> std::path::PathBuf {
    kit.home().join(".local/state/bailiwick").join(name)
}

fn daemon_pid(kit: &Bailiwick) -> i32 {
    let status = kit.run(&["status", "--json"]).ok().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    i32::try_from(status["daemon"]["pid"].as_i64().unwrap()).unwrap()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Runs a program on a machine whose kernel answers this call with an error; it must not start. Says what was told.
fn nothing_runs_without(call: &str, error: &str) -> String {
    let kit = Bailiwick::new();
    kit.write("private.txt", "PRIVATE");
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}"));
    let inject = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let mut probe = kit.outside_command("strace");
    probe.args(inject).args(["cat", "private.txt"]);
    assert_eq!(finish(probe, LIMIT).ok().stdout, "PRIVATE");
    let words = ["run", "--standalone", "-q", "--", "cat", "private.txt"];
    let done = through(&kit, "strace", &inject, &words).status_is(125);
    assert!(!done.stdout.contains("PRIVATE"));
    one_line_and_a_hint(&done.stderr);
    done.stderr
}

#[test]
fn c079_without_landlock_nothing_runs() {
    let told = nothing_runs_without("landlock_create_ruleset", "ENOSYS");
    assert!(told.to_lowercase().contains("landlock"), "{told}");
}

#[test]
fn c079_without_any_part_that_every_level_needs_nothing_runs() {
    // Root has no other level than this one, an ordinary user the weaker one: without held calls there is none.
    let told = nothing_runs_without("unshare,seccomp", "EPERM");
    assert!(told.contains("level `process`") && told.contains("seccomp"), "{told}");
}

#[test]
fn c079_without_a_state_folder_that_can_be_written_nothing_runs() {
    let kit = Bailiwick::new();
    kit.write_home(".local/state/bailiwick", "a file where the folder should be");
    let done = kit.run(&["run", "-q", "--", "true"]).status_is(125);
    assert!(done.stderr.contains("state folder"), "{}", done.stderr);
    one_line_and_a_hint(&done.stderr);
}

#[test]
fn p10_a_full_disk_denies_what_must_be_recorded_and_loses_nothing() {
    let mut kit = Bailiwick::new();
    let small = kit.outside().join("small");
    std::fs::create_dir(&small).unwrap();
    kit.set("XDG_STATE_HOME", &small.display().to_string());
    // In a mount namespace of the test's own: a state folder on a disk of 3 MiB, which is then filled.
    let product = kit.program();
    let script = format!(
        "{product} run -q -- true\n\
         {product} log verify > before.txt\n\
         dd if=/dev/zero of='{small}/fill' bs=4k 2>/dev/null\n\
         for i in $(seq 1 60); do {product} run -q -- true 2> told.txt && continue; break; done\n\
         {product} run -q -- true 2> told.txt && echo RAN-ON-A-FULL-DISK; cat told.txt >&2\n\
         {product} log verify || echo NOT-VERIFIED\n\
         rm '{small}/fill'; sleep 2; {product} run -q -- echo again; {product} log verify\n\
         {product} daemon stop\n",
        small = small.display(),
    );
    // An ordinary user becomes root in a namespace of their own to mount, and themselves again to run.
    let mount = format!("mount -t tmpfs -o size=3m,mode=700 none '{}'", small.display());
    let (user, again) = match is_root() {
        true => ("-m", "bash".to_owned()),
        false => {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            ("-rm", format!("unshare -U --map-user={uid} --map-group={gid} bash"))
        }
    };
    std::fs::write(kit.project().join("script.sh"), script).unwrap();
    let mut command = kit.outside_command("unshare");
    command.args([
        user,
        "--propagation",
        "private",
        "bash",
        "-c",
        &format!("{mount} && {again} script.sh"),
    ]);
    let done = finish(command, LIMIT);
    assert!(
        !done.stdout.contains("RAN-ON-A-FULL-DISK") && !done.stdout.contains("NOT-VERIFIED"),
        "{}\n{}",
        done.stdout,
        done.stderr
    );
    assert!(
        done.stderr.contains("log-unavailable") || done.stderr.contains("log cannot be written"),
        "{}",
        done.stderr
    );
    assert!(
        done.stdout.contains("again"),
        "it goes on when there is room: {}\n{}",
        done.stdout,
        done.stderr
    );
}

#[test]
fn p4_a_dead_daemon_ends_its_tasks_within_a_second_and_the_log_verifies() {
    let kit = Bailiwick::new();
    kit.shell("true").ok();
    let pid = daemon_pid(&kit);
    let mut command = kit.command(&[
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "touch began; while :; do touch alive; sleep 0.05; done",
    ]);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !kit.project().join("began").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the task begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(pid);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    one_line_and_a_hint(&String::from_utf8_lossy(&output.stderr));
    std::thread::sleep(Duration::from_secs(1));
    let _ = std::fs::remove_file(kit.project().join("alive"));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!kit.project().join("alive").exists(), "the agent has ended");
    kit.run(&["log", "verify"]).ok();
    assert_eq!(
        kit.shell("echo again").ok().stdout,
        "again\n",
        "a new daemon takes over the log"
    );
    kit.run(&["log", "verify"]).ok();
}

#[test]
fn a_state_folder_with_a_path_too_long_for_a_socket_will_do() {
    let mut kit = Bailiwick::new();
    let long = kit.outside().join("l".repeat(120));
    kit.set("XDG_STATE_HOME", &long.display().to_string());
    assert_eq!(kit.shell("echo here").ok().stdout, "here\n");
    kit.run(&["run", "-q", "--standalone", "--", "true"]).ok();
    kit.run(&["daemon", "stop"]).ok();
}

#[test]
fn a_second_daemon_is_refused() {
    let kit = Bailiwick::new();
    kit.shell("true").ok();
    let told = kit.run(&["daemon", "run"]).status_is(1).stderr;
    assert!(told.contains("another daemon runs already"), "{told}");
    one_line_and_a_hint(&told);
    assert_eq!(kit.shell("echo still").ok().stdout, "still\n");
}

#[test]
fn a_damaged_store_is_refused_and_left_as_it_is() {
    let kit = Bailiwick::new();
    kit.shell("true").ok();
    kit.run(&["daemon", "stop"]).ok();
    for name in ["store.sqlite-wal", "store.sqlite-shm"] {
        let _ = std::fs::remove_file(state(&kit, name));
    }
    let garbage = b"this is no database, and long enough to be looked at".repeat(200);
    std::fs::write(state(&kit, "store.sqlite"), &garbage).unwrap();
    let done = kit.run(&["run", "-q", "--", "true"]).status_is(125);
    assert!(done.stderr.contains("is damaged"), "{}", done.stderr);
    one_line_and_a_hint(&done.stderr);
    assert_eq!(std::fs::read(state(&kit, "store.sqlite")).unwrap(), garbage);
}

#[test]
fn a_newer_store_is_refused_and_left_as_it_is() {
    let kit = Bailiwick::new();
    kit.shell("true").ok();
    kit.run(&["daemon", "stop"]).ok();
    let store = state(&kit, "store.sqlite");
    let python = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('pragma user_version=999'); c.commit()";
    let done = Command::new("python3")
        .args(["-c", python])
        .arg(&store)
        .status()
        .unwrap();
    assert!(done.success());
    let done = kit.run(&["run", "-q", "--", "true"]).status_is(125);
    assert!(done.stderr.contains("newer build"), "{}", done.stderr);
    one_line_and_a_hint(&done.stderr);
}

#[test]
fn p13_an_unreadable_project_is_told() {
    let kit = Bailiwick::as_ordinary_user();
    let rules = kit.write("bailiwick.toml", "extends = [\"coding\"]\n");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o000)).unwrap();
    let done = kit.run(&["run", "-q", "--", "true"]).status_is(125);
    assert!(done.stderr.contains("cannot read"), "{}", done.stderr);
    one_line_and_a_hint(&done.stderr);
}

#[test]
fn p10_a_tampered_log_is_told_and_the_record_named() {
    let kit = Bailiwick::new();
    for _ in 0..3 {
        kit.shell("true").ok();
    }
    kit.run(&["daemon", "stop"]).ok();
    kit.run(&["log", "verify"]).ok();
    let changed = change_a_byte(&state(&kit, "log"));
    assert!(changed, "the log has a file that holds records");
    let done = kit.run(&["log", "verify"]).status_is(5);
    assert!(
        done.stderr.contains("does not verify") && done.stderr.contains("record"),
        "{}",
        done.stderr
    );
}

/// Changes a letter of a record, wherever the log keeps it.
fn change_a_byte(folder: &std::path::Path) -> bool {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if change_a_byte(&path) {
                return true;
            }
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let Some(at) = bytes.windows(12).position(|window| window == b"task-started") else {
            continue;
        };
        bytes[at] = b'T';
        std::fs::write(&path, bytes).unwrap();
        return true;
    }
    false
}

/// The processes below one.
fn below(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut place = 0;
    while let Some(parent) = all.get(place) {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|word| word.parse::<i32>().ok()));
        place += 1;
    }
    all
}

#[test]
fn p4_without_daemon_launcher_and_supervisor_a_fence_without_namespaces_reaches_nothing_more() {
    let kit = Bailiwick::as_ordinary_user();
    let line = "echo $$ > began; echo $TMPDIR > scratch; while :; do : > tick; done";
    let mut command = kit.command(&["run", "-q", "--level", "process", "--", "bash", "-c", line]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !kit.project().join("tick").exists() {
        assert!(Instant::now() < until, "the probe must run first");
        std::thread::sleep(Duration::from_millis(10));
    }
    let scratch = std::fs::read_to_string(kit.project().join("scratch")).unwrap();
    let scratch = std::path::Path::new(scratch.trim()).parent().unwrap().to_owned();
    assert!(scratch.is_dir());
    let agent: i32 = std::fs::read_to_string(kit.project().join("began"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let mut all = below(daemon_pid(&kit));
    // All but the agent, at once: its own processes are what is left.
    all.retain(|pid| *pid != agent);
    for pid in all.into_iter().rev() {
        kill(pid);
    }
    run.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    std::fs::remove_file(kit.project().join("tick")).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        !kit.project().join("tick").exists(),
        "what is left opens no file any more"
    );
    // The next daemon clears up what is there.
    kit.run(&["run", "-q", "--", "true"]).ok();
    assert!(!scratch.exists(), "{}", scratch.display());
    if let Some(agent) = rustix::process::Pid::from_raw(agent) {
        let _ = rustix::process::kill_process(agent, rustix::process::Signal::KILL);
    }
}
