//! What gets a protected name from outside while the program runs.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use bailiwick_fence::Started;
use bailiwick_gate::{BindMode, Protection};

use crate::desk::{Desk, Setting};

/// How long it may take until a name that comes later is covered.
const A_SECOND: Duration = Duration::from_secs(1);

fn wait_for(file: &Path) {
    let until = Instant::now() + Duration::from_secs(10);
    while !file.exists() {
        assert!(Instant::now() < until, "`{}` never came", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts what says that it has begun, waits for a word, and then does as the script says.
fn begin(desk: &Desk, script: &str) -> (Started, impl FnOnce() -> String + use<>) {
    let script = format!("touch begun; until [ -e go ]; do sleep 0.02; done; {script}; true");
    let (started, [mut out, mut err], into) = desk.start(&["bash", "-c", &script]).unwrap();
    wait_for(&desk.at("project/begun"));
    let go = desk.at("project/go");
    let said = move || {
        std::fs::write(go, "").unwrap();
        let mut all = String::new();
        out.read_to_string(&mut all).unwrap();
        err.read_to_string(&mut all).unwrap();
        drop(into);
        all
    };
    (started, said)
}

/// As editors save: another file takes the name.
fn replace(desk: &Desk, name: &str, content: &str) {
    let passing = desk.file(&format!("{name}.new"), content);
    std::fs::rename(passing, desk.at(name)).unwrap();
}

#[test]
fn c016_strictly_hidden_is_what_comes_later_too_and_at_once() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.plan.strict = true;
        desk.protect("/**/.env", Protection::Hide);
        desk.file("project/.env", "OLD");
        desk.folder("project/deep");
        let (mut started, said) = begin(&desk, "cat .env deep/.env; cp .env c; ls -d c");
        replace(&desk, "project/.env", "K=demo");
        desk.file("project/deep/.env", "K=demo");
        let said = said();
        assert!(!said.contains("K=demo"), "{setting:?}: {said}");
        started.child.wait();
    }
}

#[test]
fn c016_c075_what_comes_later_from_outside_is_hidden_within_a_second() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.env", Protection::Hide);
        desk.protect("/**/keys", Protection::Hide);
        desk.file("project/.env", "OLD");
        desk.file("project/free", "FREE");
        desk.file("project/real", "K=linked");
        desk.folder("project/deep");
        desk.file("reference/a/plain", "PLAIN");
        desk.bind("reference", BindMode::Read);
        let reference = desk.at("reference").display().to_string();
        let ways = format!(
            "cat free {reference}/a/plain; cat .env deep/.env made/by/.env moved/in/.env keys/k {reference}/a/.env; ls keys; cat real; \
             grep -r K=demo . {reference}; cp .env copy && cat copy; tar cf - . 2>/dev/null | grep -a K="
        );
        // What the ways show where nothing is hidden.
        let shows = |all: &str| all.contains("K=demo");
        let comes = |desk: &Desk| {
            replace(desk, "project/.env", "K=demo");
            desk.file("project/deep/.env", "K=demo");
            desk.file("project/made/by/.env", "K=demo");
            desk.file("elsewhere/in/.env", "K=demo");
            std::fs::rename(desk.at("elsewhere"), desk.at("project/moved")).unwrap();
            desk.file("project/keys/k", "K=demo");
            desk.file("reference/a/.env", "K=demo");
            std::fs::create_dir(desk.at("project/l")).unwrap();
            std::os::unix::fs::symlink("../real", desk.at("project/l/.env")).unwrap();
        };
        let (mut started, said) = begin(&desk, &ways);
        comes(&desk);
        std::thread::sleep(A_SECOND);
        let said = said();
        started.child.wait();
        let outside = desk.outside(&["bash", "-c", &format!("{ways}; true")]);
        assert!(
            shows(&String::from_utf8_lossy(&outside.stdout)),
            "the probe must work outside: {outside:?}"
        );
        assert!(said.contains("FREE") && said.contains("PLAIN"), "{setting:?}: {said}");
        assert!(!shows(&said), "{setting:?}: {said}");
        // At level `process` the name of a link counts, and not what it leads to.
        assert!(
            setting.is_process() || !said.contains("K=linked"),
            "{setting:?}: {said}"
        );
    }
}

#[test]
fn c016_what_is_replaced_again_and_again_is_hidden_again_and_again() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.env", Protection::Hide);
        for folder in 0..300 {
            desk.folder(&format!("project/many/{}/{folder}", folder % 7));
        }
        let (mut started, said) = begin(&desk, "cat .env many/*/*/.env; find many -name .env | wc -l");
        std::thread::sleep(Duration::from_millis(300));
        for round in 0..50 {
            replace(&desk, "project/.env", &format!("K=demo {round}"));
        }
        for folder in 0..300 {
            desk.file(&format!("project/many/{}/{folder}/.env", folder % 7), "K=demo");
        }
        std::thread::sleep(A_SECOND);
        let said = said();
        started.child.wait();
        assert!(said.contains("300") && !said.contains("K=demo"), "{setting:?}: {said}");
    }
}

#[test]
fn c021_rules_that_are_replaced_from_outside_stay_guarded() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/rules.toml", Protection::Guard);
        desk.file("project/rules.toml", "OLD");
        let ways = "rm -f rules.toml; mv rules.toml away; chmod 666 rules.toml; echo x > rules.toml; cat rules.toml";
        let (mut started, said) = begin(&desk, ways);
        replace(&desk, "project/rules.toml", "NEW");
        std::thread::sleep(A_SECOND);
        let said = said();
        started.child.wait();
        assert!(said.contains("NEW"), "{setting:?}: {said}");
        assert_eq!(
            std::fs::read_to_string(desk.at("project/rules.toml")).unwrap(),
            "NEW",
            "{said}"
        );
    }
}

/// The lookout's process: the child of the launcher that has a number in one process table only.
fn lookout(launcher: u32) -> rustix::process::Pid {
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    let outside = |pid: &&str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
    };
    let pid = children.split_whitespace().find(outside).expect("a lookout");
    rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap()
}

#[test]
fn p13_a_fence_without_its_lookout_ends() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.env", Protection::Hide);
        let (mut started, [_out, _err], _into) = desk.start(&["bash", "-c", "touch begun; sleep 60"]).unwrap();
        wait_for(&desk.at("project/begun"));
        std::thread::sleep(Duration::from_millis(300));
        let lookout = lookout(started.child.launcher());
        let status = std::fs::read_to_string(format!("/proc/{}/status", lookout.as_raw_nonzero())).unwrap();
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        // CAP_DAC_READ_SEARCH (2) and CAP_SYS_ADMIN (21), of the fence's own user namespace; filtered.
        assert_eq!(of("CapEff:"), Some("0000000000200004"), "{status}");
        assert_eq!(
            (of("CapBnd:"), of("Seccomp:")),
            (Some("0000000000000000"), Some("2")),
            "{status}"
        );
        rustix::process::kill_process(lookout, rustix::process::Signal::KILL).unwrap();
        let begun = Instant::now();
        assert_eq!(started.child.wait(), 137);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
