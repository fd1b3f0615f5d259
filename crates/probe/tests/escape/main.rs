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
mod trial;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::process::Command;
use std::sync::Mutex;

use bailiwick_probe::{Attempt, Goal, Needs, Outcome, families};
use bailiwick_testkit::{Bailiwick, is_root};

use crate::laid::{Internet, Laid};
use crate::levels::{LEVELS, Level};
use crate::trial::{Came, Side};

/// Worlds that are tried in at the same time.
const WORKERS: usize = 4;

/// Attempts that are tried in one fence.
const TOGETHER: usize = 24;

/// The environment variable that says that names and addresses are the test's own.
const OWN_NETWORK: &str = "BAILIWICK_TEST_OWN_NETWORK";

/// What becomes of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Held,
    Pending(&'static str),
    Skipped(String),
    Wrong(String),
}

/// Where the worlds are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// On this machine, where every attempt must succeed outside.
    Machine,
    /// In a container, which itself stops some of them: those are skipped.
    Container,
}

/// Why an attempt cannot be shown here.
fn unmet(laid: &Laid, attempt: &Attempt) -> Option<&'static str> {
    match attempt.needs {
        Needs::Root if !laid.is_root => Some("needs root outside"),
        Needs::NobodyElse if !is_root() => Some("needs a user that owns nothing else"),
        _ => None,
    }
}

/// What is to be said of an attempt that succeeded outside, by what came of it inside.
fn verdict(attempt: &Attempt, inside: Result<Came, String>, level: &Level) -> Verdict {
    let came = match inside {
        Ok(came) => came,
        Err(cause) => return Verdict::Wrong(format!("cannot be told inside: {cause}")),
    };
    let pending = level.pending.iter().find(|(id, _)| *id == attempt.id);
    match (attempt.goal, came.achieved, pending) {
        (Goal::Keep, true, _) => Verdict::Held,
        (Goal::Keep, false, _) => Verdict::Wrong(format!("must be possible inside: {}", came.line.detail)),
        (_, false, None) => Verdict::Held,
        (_, true, Some((_, gate))) => Verdict::Pending(gate),
        (_, true, None) => Verdict::Wrong(format!("GOT OUT: {}", came.line.detail)),
        (_, false, Some(_)) => Verdict::Wrong("is held now: take its mark away".into()),
    }
}

/// Judges attempts of one family: each alone outside, then together inside, and alone again where that leaves a doubt.
fn judge(
    laid: &mut Laid,
    family: &str,
    attempts: &[(usize, Attempt)],
    level: &'static Level,
    setting: Setting,
) -> Vec<Verdict> {
    let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
    for (number, attempt) in attempts {
        let found = match unmet(laid, attempt) {
            Some(unmet) => Some(Verdict::Skipped(unmet.into())),
            None => match trial::alone(laid, family, attempt, Side::Outside, *number) {
                Ok(Came { achieved: true, .. }) => None,
                Ok(came) if came.line.outcome == Outcome::NotApplicable || setting == Setting::Container => {
                    Some(Verdict::Skipped(came.line.detail))
                }
                Ok(came) => Some(Verdict::Wrong(format!(
                    "gets nothing without a fence either: {}",
                    came.line.detail
                ))),
                Err(cause) => Some(Verdict::Wrong(format!("cannot be told outside: {cause}"))),
            },
        };
        verdicts.extend(found.map(|found| (*number, found)));
    }
    let shown = |(number, _): &&(usize, Attempt)| !verdicts.contains_key(number);
    let pending = |attempt: &Attempt| level.pending.iter().any(|(id, _)| *id == attempt.id);
    let of_many = |attempt: &Attempt| family != "terminal" && attempt.needs != Needs::NobodyElse && !pending(attempt);
    let (many, single): (Vec<_>, Vec<_>) = attempts.iter().filter(shown).partition(|(_, attempt)| of_many(attempt));
    let many: Vec<(usize, &Attempt)> = many.into_iter().map(|(number, attempt)| (*number, attempt)).collect();
    let mut doubtful: Vec<(usize, &Attempt)> = single.into_iter().map(|(number, attempt)| (*number, attempt)).collect();
    if !many.is_empty() {
        for ((number, attempt), came) in many.iter().zip(trial::together(laid, family, &many, level)) {
            match came {
                Some(came) => verdicts.extend([(*number, verdict(attempt, Ok(came), level))]),
                None => doubtful.push((*number, attempt)),
            }
        }
    }
    for (number, attempt) in doubtful {
        let inside = trial::alone(laid, family, attempt, Side::Inside(level), number);
        verdicts.insert(number, verdict(attempt, inside, level));
    }
    verdicts.into_values().collect()
}

/// A family's name, and some of its attempts by number.
type Unit = (&'static str, Vec<(usize, Attempt)>);

fn units(wanted: &str) -> VecDeque<Unit> {
    let mut units = VecDeque::new();
    let mut number = 0;
    for family in families() {
        let mut unit = Vec::new();
        for attempt in family
            .attempts
            .into_iter()
            .filter(|attempt| attempt.id.contains(wanted))
        {
            number += 1;
            unit.push((number, attempt));
            if unit.len() == TOGETHER {
                units.push_back((family.name, std::mem::take(&mut unit)));
            }
        }
        if !unit.is_empty() {
            units.push_back((family.name, unit));
        }
    }
    units
}

/// Tries all attempts whose name has the wanted word in it, shows the table, and fails where something is wrong.
fn try_all(make: fn() -> Bailiwick, who: &str, setting: Setting) {
    let wanted = std::env::var("BAILIWICK_PROBE_ONLY").unwrap_or_default();
    let internet = std::env::var_os(OWN_NETWORK).map(|_| Internet::start());
    for level in LEVELS
        .iter()
        .filter(|level| setting == Setting::Machine || level.in_containers)
        .filter(|level| level.for_root || !who.starts_with("root"))
    {
        let queue = Mutex::new(units(&wanted));
        for (id, _) in level.pending {
            let known = || {
                queue
                    .lock()
                    .unwrap()
                    .iter()
                    .any(|(_, unit)| unit.iter().any(|(_, attempt)| attempt.id == *id))
            };
            assert!(!wanted.is_empty() || known(), "`{id}` is marked and is no attempt");
        }
        let order: Vec<&'static str> = families().iter().map(|family| family.name).collect();
        let verdicts: Mutex<BTreeMap<String, (&'static str, Verdict)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    let mut laid = Laid::lay(make(), internet.as_ref());
                    loop {
                        let next = queue.lock().unwrap().pop_front();
                        let Some((family, unit)) = next else { return };
                        let found = judge(&mut laid, family, &unit, level, setting);
                        let named = unit.iter().map(|(_, attempt)| attempt.id.clone());
                        let found = named.zip(found).map(|(id, verdict)| (id, (family, verdict)));
                        verdicts.lock().unwrap().extend(found);
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
        let who = if is_root() { "root" } else { "an ordinary user" };
        try_all(Bailiwick::new, who, Setting::Machine);
    }
}

#[test]
fn p1_no_attempt_of_an_ordinary_user_gets_out() {
    if is_root() && !in_a_network_of_its_own("p1_no_attempt_of_an_ordinary_user_gets_out") {
        try_all(Bailiwick::as_ordinary_user, "an ordinary user", Setting::Machine);
    }
}

#[test]
fn p1_no_attempt_gets_out_of_a_fence_in_a_container() {
    if !LEVELS.iter().any(|level| level.in_containers) {
        return bailiwick_testkit::skip("no level can be put up in a container yet");
    }
    if !in_a_network_of_its_own("p1_no_attempt_gets_out_of_a_fence_in_a_container") {
        // Root's fences need namespaces, which a container refuses.
        let ordinary: fn() -> Bailiwick = || Bailiwick::as_ordinary_user().in_a_container();
        try_all(ordinary, "an ordinary user in a container", Setting::Container);
    }
}
