//! Every attempt of the probe, twice: it succeeds without a fence, on the same world, and gets nothing in one.
//!
//! Judged by the effect: bait that was read, places that changed, words that were heard, processes that felt it. What an
//! attempt says of itself counts only where there is nothing else ([`Goal::Gain`], [`Goal::Keep`]).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a judge gives up loudly: a fault in it is a failed test"
)]

mod ears;
mod laid;
mod levels;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_probe::{Attempt, Goal, Line, Needs, Outcome, families};
use bailiwick_testkit::{Bailiwick, finish, is_root};

use crate::laid::{Internet, Laid};
use crate::levels::{LEVELS, Level};

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Worlds that are tried in at the same time.
const WORKERS: usize = 4;

/// The environment variable that says that names and addresses are the test's own.
const OWN_NETWORK: &str = "BAILIWICK_TEST_OWN_NETWORK";

/// Where an attempt is made.
#[derive(Debug, Clone, Copy)]
enum Side {
    Outside,
    Inside(&'static Level),
}

/// What came of one attempt on one side.
#[derive(Debug)]
struct Came {
    line: Line,
    achieved: bool,
}

/// What becomes of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Held,
    Pending(&'static str),
    Skipped(String),
    Wrong(String),
}

fn command(laid: &Laid, attempt: &Attempt, side: Side, terminal: bool) -> Command {
    let world = serde_json::to_string(&laid.world).unwrap();
    let probe = laid.world.project.join("probe").display().to_string();
    let mut words: Vec<String> = Vec::new();
    if let Side::Inside(level) = side {
        words.extend([laid.kit.program(), "run".into(), "-q".into()]);
        words.extend(level.arguments.iter().map(ToString::to_string));
        words.push("--".into());
    }
    words.extend([probe, "try".into(), attempt.id.clone(), world]);
    // The caller has a file, a folder and a connection open, as shells and editors do.
    let script = "exec 7<\"$1/secret\" 8<\"$1\" 9<>\"/dev/tcp/127.0.0.1/$2\"; shift 2; \"$@\"; exit $?";
    let apart = matches!(side, Side::Outside) && attempt.needs == Needs::NobodyElse;
    let mut command = if apart {
        let mut command = laid::as_nobody_else(laid::probe());
        let own: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        command.args(own).current_dir("/");
        return command;
    } else if terminal {
        let mut command = laid.kit.outside_command("setsid");
        command.args(["--ctty", "--wait", "bash"]);
        command
    } else {
        laid.kit.outside_command("bash")
    };
    command
        .args(["-c", script, "bash"])
        .arg(&laid.world.beside)
        .arg(laid.world.ports[0].to_string())
        .args(words);
    command
}

/// Runs it at a terminal; what was typed there by someone else is heard.
fn at_a_terminal(laid: &Laid, mut command: Command) -> String {
    let (mut master, path, slave) = laid::pair();
    let end = |slave: &std::fs::File| Stdio::from(slave.try_clone().unwrap());
    command.stdin(end(&slave)).stdout(end(&slave)).stderr(end(&slave));
    let mut child = command.process_group(0).spawn().unwrap();
    let output = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&output);
    std::thread::spawn(move || {
        let mut buffer = [0u8; 8192];
        while let Ok(got @ 1..) = master.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..got]);
        }
    });
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT, "it did not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NONBLOCK;
    let typed = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    let mut buffer = [0u8; 4096];
    if let Ok(got) = std::fs::File::from(typed).read(&mut buffer) {
        laid.heard.add(&buffer[..got]);
    }
    std::thread::sleep(Duration::from_millis(20));
    let text = output.lock().unwrap().clone();
    drop(slave);
    String::from_utf8_lossy(&text).into_owned()
}

/// Ends what an attempt left behind; true when there was something.
fn left_behind(word: &str) -> bool {
    std::thread::sleep(Duration::from_millis(60));
    let mut found = false;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(&format!("linger\0{word}")) {
            found = true;
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    found
}

fn try_one(laid: &mut Laid, family: &str, attempt: &Attempt, side: Side, number: usize) -> Came {
    let inside = matches!(side, Side::Inside(_));
    laid.world.word = format!(
        "word{number}{}of{}",
        if inside { "in" } else { "out" },
        std::process::id()
    );
    let apart = !inside && attempt.needs == Needs::NobodyElse;
    let mut victim = laid.with_victim(apart);
    laid.anew();
    let place = match attempt.goal {
        Goal::Change(place) | Goal::SetId(place) => Some(place),
        _ => None,
    };
    let before = (place.map(|place| laid.look(place)), victim.look());
    let terminal = family == "terminal";
    let command = command(laid, attempt, side, terminal);
    let said = if terminal {
        at_a_terminal(laid, command)
    } else {
        match std::panic::catch_unwind(AssertUnwindSafe(|| finish(command, LIMIT))) {
            Ok(done) => format!("{}\n{}", done.stdout, done.stderr),
            Err(_) => "it did not end".into(),
        }
    };
    let found = said
        .lines()
        .find_map(|line| serde_json::from_str::<Line>(line.trim().get(line.trim().find('{')?..)?).ok());
    let line = found.unwrap_or_else(|| Line {
        id: attempt.id.clone(),
        family: family.into(),
        outcome: Outcome::Refused,
        detail: format!("no answer: {}", said.trim().chars().take(300).collect::<String>()),
    });
    let achieved = match attempt.goal {
        Goal::Learn => line.detail.contains(&laid.secret),
        Goal::Change(place) => before.0 != Some(laid.look(place)),
        Goal::SetId(place) => laid.has_bit(place),
        Goal::Tell => heard(laid),
        Goal::Disturb => before.1 != victim.look(),
        Goal::Outlive => left_behind(&laid.world.word),
        Goal::Gain | Goal::Keep => line.outcome == Outcome::Achieved,
    };
    victim.end();
    Came { line, achieved }
}

/// What was said may be on its way yet.
fn heard(laid: &Laid) -> bool {
    let until = Instant::now() + Duration::from_millis(120);
    while Instant::now() < until {
        if laid.is_heard() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn judge(laid: &mut Laid, family: &str, attempt: &Attempt, level: &'static Level, number: usize) -> Verdict {
    let unmet = match attempt.needs {
        Needs::Root if !laid.is_root => Some("needs root outside"),
        Needs::NobodyElse if !is_root() => Some("needs a user that owns nothing else"),
        _ => None,
    };
    if let Some(unmet) = unmet {
        return Verdict::Skipped(unmet.into());
    }
    let outside = try_one(laid, family, attempt, Side::Outside, number);
    if !outside.achieved {
        return match outside.line.outcome {
            Outcome::NotApplicable => Verdict::Skipped(outside.line.detail),
            _ => Verdict::Wrong(format!("gets nothing without a fence either: {}", outside.line.detail)),
        };
    }
    let inside = try_one(laid, family, attempt, Side::Inside(level), number);
    let pending = level
        .pending
        .iter()
        .find(|(id, _)| *id == attempt.id)
        .map(|(_, gate)| *gate);
    match (attempt.goal, inside.achieved, pending) {
        (Goal::Keep, true, _) | (_, false, None) if attempt.goal != Goal::Keep || inside.achieved => Verdict::Held,
        (Goal::Keep, ..) => Verdict::Wrong(format!("must be possible inside: {}", inside.line.detail)),
        (_, true, Some(gate)) => Verdict::Pending(gate),
        (_, true, None) => Verdict::Wrong(format!("GOT OUT: {}", inside.line.detail)),
        (_, false, _) => Verdict::Wrong("is held now: take its mark away".into()),
    }
}

/// Tries all attempts whose name has the wanted word in it, shows the table, and fails where something is wrong.
fn try_all(make: fn() -> Bailiwick, who: &str) {
    let wanted = std::env::var("BAILIWICK_PROBE_ONLY").unwrap_or_default();
    for level in LEVELS {
        let all: Vec<(usize, &'static str, Attempt)> = families()
            .into_iter()
            .flat_map(|family| family.attempts.into_iter().map(move |attempt| (family.name, attempt)))
            .filter(|(_, attempt)| attempt.id.contains(&wanted))
            .enumerate()
            .map(|(number, (family, attempt))| (number, family, attempt))
            .collect();
        for (id, _) in level.pending {
            let known = !wanted.is_empty() || all.iter().any(|(_, _, attempt)| attempt.id == *id);
            assert!(known, "`{id}` is marked and is no attempt");
        }
        let order: Vec<&'static str> = families().iter().map(|family| family.name).collect();
        let verdicts: Mutex<BTreeMap<String, (&'static str, Verdict)>> = Mutex::default();
        let queue = Mutex::new(all.into_iter());
        let internet = std::env::var_os(OWN_NETWORK).map(|_| Internet::start());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    let mut laid = Laid::lay(make(), internet.as_ref());
                    loop {
                        let next = queue.lock().unwrap().next();
                        let Some((number, family, attempt)) = next else { return };
                        let verdict = judge(&mut laid, family, &attempt, level, number);
                        verdicts.lock().unwrap().insert(attempt.id.clone(), (family, verdict));
                    }
                });
            }
        });
        show(&verdicts.into_inner().unwrap(), &order, level, who);
    }
}

fn show(verdicts: &BTreeMap<String, (&'static str, Verdict)>, order: &[&str], level: &Level, who: &str) {
    let mut table = format!(
        "level {}, as {who}\n{:<16}{:>6}{:>9}{:>9}{:>7}\n",
        level.name, "", "held", "pending", "skipped", "wrong"
    );
    let mut details = String::new();
    let mut sums = [0usize; 4];
    for family in order {
        let mut counts = [0usize; 4];
        for (id, (_, verdict)) in verdicts.iter().filter(|(_, (of, _))| of == family) {
            let (place, detail) = match verdict {
                Verdict::Held => (0, String::new()),
                Verdict::Pending(gate) => (1, format!("pending  {id}: needs {gate}\n")),
                Verdict::Skipped(reason) => (2, format!("skipped  {id}: {reason}\n")),
                Verdict::Wrong(reason) => (3, format!("WRONG    {id}: {reason}\n")),
            };
            counts[place] += 1;
            sums[place] += 1;
            details.push_str(&detail);
        }
        if counts.iter().sum::<usize>() > 0 {
            let _ = writeln!(
                table,
                "{family:<16}{:>6}{:>9}{:>9}{:>7}",
                counts[0], counts[1], counts[2], counts[3]
            );
        }
    }
    let _ = writeln!(
        table,
        "{:<16}{:>6}{:>9}{:>9}{:>7}",
        "all", sums[0], sums[1], sums[2], sums[3]
    );
    println!("{details}{table}");
    if let Some(folder) = std::env::var_os("BAILIWICK_PROBE_TABLES") {
        let path = std::path::Path::new(&folder).join(format!("{}-{}", level.name, who.replace(' ', "-")));
        std::fs::write(path, format!("{details}{table}")).unwrap();
    }
    if sums[2] > 0 {
        bailiwick_testkit::skip(&format!("{} attempts that this machine cannot show outside", sums[2]));
    }
    assert_eq!(sums[3], 0, "\n{details}{table}");
    assert!(sums[0] > 0, "nothing was tried");
}

/// The same test once more in a network of its own, where names and all addresses are the test's: as root, who may make
/// one. True when that was done.
fn in_a_network_of_its_own(test: &str) -> bool {
    if !is_root() || std::env::var_os(OWN_NETWORK).is_some() {
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let folder = tempfile_folder();
    std::fs::write(
        folder.join("resolv.conf"),
        "nameserver 192.0.2.53\noptions timeout:2 attempts:1\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("nsswitch.conf"),
        "passwd: files\ngroup: files\nhosts: files dns\n",
    )
    .unwrap();
    let script = "set -e; ip link set lo up; for a in 192.0.2.53 192.0.2.7 93.184.215.14 169.254.169.254; do ip addr add $a/32 dev lo; done; \
                  mount --bind \"$1/resolv.conf\" /etc/resolv.conf; mount --bind \"$1/nsswitch.conf\" /etc/nsswitch.conf; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-mn", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(&folder);
    command
        .arg(own)
        .args([test, "--exact", "--nocapture"])
        .env(OWN_NETWORK, "1");
    let status = command.status().unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(status.success(), "see above");
    true
}

fn tempfile_folder() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("bailiwick-escape-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn p1_no_attempt_gets_out() {
    if !in_a_network_of_its_own("p1_no_attempt_gets_out") {
        try_all(Bailiwick::new, if is_root() { "root" } else { "an ordinary user" });
    }
}

#[test]
fn p1_no_attempt_of_an_ordinary_user_gets_out() {
    if is_root() && !in_a_network_of_its_own("p1_no_attempt_of_an_ordinary_user_gets_out") {
        try_all(Bailiwick::as_ordinary_user, "an ordinary user");
    }
}
