//! One attempt on one side, or many in one fence, judged by what is different afterwards.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_probe::{Attempt, Goal, Line, Needs, Outcome, World};
use bailiwick_testkit::finish;

use crate::laid::{self, Laid, Victim};
use crate::levels::Level;

/// How long one attempt may take, and how long many in one fence.
const LIMIT: Duration = Duration::from_secs(30);
const LIMIT_OF_MANY: Duration = Duration::from_secs(180);

/// Where an attempt is made.
#[derive(Debug, Clone, Copy)]
pub enum Side {
    Outside,
    Inside(&'static Level),
}

/// What came of one attempt on one side.
#[derive(Debug)]
pub struct Came {
    pub line: Line,
    pub achieved: bool,
}

fn command(laid: &Laid, asked: &[String], side: Side, apart: bool, terminal: bool) -> Command {
    let probe = laid.world.project.join("probe").display().to_string();
    let mut words: Vec<String> = Vec::new();
    if let Side::Inside(level) = side {
        words.extend([laid.kit.program(), "run".into(), "-q".into()]);
        words.extend(level.arguments.iter().map(ToString::to_string));
        words.push("--".into());
    }
    words.push(probe);
    words.extend(asked.iter().cloned());
    // The caller has a file, a folder and a connection open, as shells and editors do.
    let script = "exec 7<\"$1/secret\" 8<\"$1\" 9<>\"/dev/tcp/127.0.0.1/$2\"; shift 2; \"$@\"; exit $?";
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
    // It holds the terminal's end as well.
    drop(command);
    let output = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&output);
    let reader = std::thread::spawn(move || {
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
    // With the last one who has it open the terminal ends, and so does the reader: all has been read then.
    drop(slave);
    let until = Instant::now() + Duration::from_secs(5);
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let text = output.lock().unwrap().clone();
    String::from_utf8_lossy(&text).into_owned()
}

/// Ends what an attempt left behind; true when there was something.
fn left_behind(word: &str) -> bool {
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

/// The words of one side.
fn word(side: Side, number: usize) -> String {
    let side = if matches!(side, Side::Inside(_)) { "in" } else { "out" };
    format!("word{number}{side}of{}", std::process::id())
}

fn place(attempt: &Attempt) -> Option<&'static str> {
    match attempt.goal {
        Goal::Change(place) | Goal::SetId(place) => Some(place),
        _ => None,
    }
}

fn line_in(text: &str) -> Option<Line> {
    serde_json::from_str(text.trim().get(text.trim().find('{')?..)?).ok()
}

/// Tries one alone. An error says why nothing can be said: it did not run.
pub fn alone(laid: &mut Laid, family: &str, attempt: &Attempt, side: Side, number: usize) -> Result<Came, String> {
    laid.world.word = word(side, number);
    let apart = matches!(side, Side::Outside) && attempt.needs == Needs::NobodyElse;
    let mut victim = laid.with_victim(apart);
    laid.anew(family == "sockets");
    let disturbs = attempt.goal == Goal::Disturb;
    let before = (
        place(attempt).map(|place| laid.look(place)),
        disturbs.then(|| victim.look()),
    );
    let terminal = family == "terminal";
    let asked = [
        "try".to_owned(),
        attempt.id.clone(),
        serde_json::to_string(&laid.world).unwrap(),
    ];
    let command = command(laid, &asked, side, apart, terminal);
    let (said, status) = if terminal {
        (at_a_terminal(laid, command), 0)
    } else {
        match std::panic::catch_unwind(AssertUnwindSafe(|| finish(command, LIMIT))) {
            Ok(done) => (format!("{}\n{}", done.stdout, done.stderr), done.status),
            Err(_) => ("it did not end".into(), 0),
        }
    };
    let ended = |line: Option<Line>| match line {
        Some(line) => Ok(line),
        // A signal of the kernel ended it: that is an answer, too.
        None if status > 128 => Ok(Line {
            id: attempt.id.clone(),
            family: family.into(),
            outcome: Outcome::Refused,
            detail: format!("it was ended with {status}"),
        }),
        None => Err(format!(
            "no answer, status {status}: {}",
            said.trim().chars().take(400).collect::<String>()
        )),
    };
    let line = ended(said.lines().find_map(line_in));
    let mut achieved = match attempt.goal {
        Goal::Change(place) => before.0 != Some(laid.look(place)),
        Goal::SetId(place) => laid.has_bit(place),
        Goal::Tell => felt(side, || laid.is_heard(&laid.world.word)),
        Goal::Disturb => felt(side, || before.1 != Some(victim.look())),
        Goal::Outlive => felt(side, || left_behind(&laid.world.word)),
        Goal::Learn | Goal::Gain | Goal::Keep => false,
    };
    victim.end();
    // What changed has changed, also where there is no answer.
    let line = match line {
        Err(cause) if !achieved => return Err(cause),
        Err(cause) => Line::of(&attempt.id, family, Err(cause.into())),
        Ok(line) => line,
    };
    achieved |= match attempt.goal {
        Goal::Learn => line.detail.contains(&laid.secret),
        Goal::Gain | Goal::Keep => line.outcome == Outcome::Achieved,
        _ => false,
    };
    Ok(Came { line, achieved })
}

/// Tries many in one fence, each with a word of its own. None for those that have to be tried alone to be sure.
pub fn together(
    laid: &mut Laid,
    family: &str,
    attempts: &[(usize, &Attempt)],
    level: &'static Level,
) -> Vec<Option<Came>> {
    let side = Side::Inside(level);
    let mut victims: BTreeMap<usize, (Victim, String)> = BTreeMap::new();
    let common = laid.with_victim(false);
    let of_all = laid.world.clone();
    let mut listed = String::new();
    let worlds = attempts.iter().map(|(number, attempt)| {
        let mut world = of_all.clone();
        if attempt.goal == Goal::Disturb {
            let mut victim = laid.with_victim(false);
            world = laid.world.clone();
            let before = victim.look();
            victims.insert(*number, (victim, before));
        }
        World {
            word: word(side, *number),
            ..world
        }
    });
    let worlds: Vec<World> = worlds.collect();
    for ((_, attempt), world) in attempts.iter().zip(&worlds) {
        listed.push_str(&serde_json::json!({ "id": attempt.id, "world": world }).to_string());
        listed.push('\n');
    }
    laid.world = of_all;
    laid.anew(family == "sockets");
    std::fs::write(laid.world.project.join("attempts.json"), listed).unwrap();
    let looks = attempts.iter().filter_map(|(_, attempt)| place(attempt));
    let before: BTreeMap<&str, _> = looks.map(|place| (place, laid.look(place))).collect();
    let asked = ["many".to_owned(), "attempts.json".to_owned()];
    let command = command(laid, &asked, side, false, false);
    let said = std::panic::catch_unwind(AssertUnwindSafe(|| finish(command, LIMIT_OF_MANY)));
    let said = said.map(|done| done.stdout).unwrap_or_default();
    let mut lines: BTreeMap<String, Line> = said
        .lines()
        .filter_map(line_in)
        .map(|line| (line.id.clone(), line))
        .collect();
    std::thread::sleep(Duration::from_millis(150));
    let judged = attempts.iter().map(|(number, attempt)| {
        let line = lines.remove(&attempt.id)?;
        let word = word(side, *number);
        let suspect = match attempt.goal {
            Goal::Learn => line.detail.contains(&laid.secret),
            Goal::Change(place) => before.get(place) != Some(&laid.look(place)),
            Goal::SetId(place) => laid.has_bit(place),
            Goal::Tell => laid.is_heard(&word),
            Goal::Disturb => victims
                .get_mut(number)
                .is_none_or(|(victim, before)| *before != victim.look()),
            Goal::Outlive => left_behind(&word),
            Goal::Gain => line.outcome == Outcome::Achieved,
            Goal::Keep => line.outcome != Outcome::Achieved,
        };
        // Several aim at one place: whose doing it was shows when each is alone.
        let achieved = attempt.goal == Goal::Keep;
        (!suspect).then_some(Came { line, achieved })
    });
    let judged = judged.collect();
    common.end();
    victims.into_values().for_each(|(victim, _)| victim.end());
    judged
}

/// What was done may take a moment to be felt: longer outside, where it is waited for.
fn felt(side: Side, mut seen: impl FnMut() -> bool) -> bool {
    let patience = if matches!(side, Side::Inside(_)) { 150 } else { 3000 };
    let until = Instant::now() + Duration::from_millis(patience);
    loop {
        if seen() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
