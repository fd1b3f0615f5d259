//! Processes: nothing of the outside is seen or touched, nothing is inherited, nothing is left behind.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bailiwick_model::AbsPath;

use crate::desk::{Desk, Setting, Who, probe, skipped};

/// A process outside, of the same person.
struct Bystander(Child);

impl Bystander {
    fn of(desk: &Desk, argument: &str, secret: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("bash");
        command
            .args(["-c", "exec -a \"$0\" sleep 1000", argument])
            .env("DEMO_KEY", secret);
        if desk.who == Who::Ordinary {
            command.uid(4242).gid(4242);
        }
        let child = command.spawn().unwrap();
        // Until it is the program that was asked for.
        let until = Instant::now() + Duration::from_secs(5);
        let line = format!("/proc/{}/cmdline", child.id());
        while !std::fs::read_to_string(&line).unwrap_or_default().contains(argument) {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(child)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many processes of this machine have a word in their command line.
fn running(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(word))
        .count()
}

fn gone_within(word: &str, time: Duration) -> bool {
    let until = Instant::now() + time;
    while running(word) > 0 {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn c058_no_environment_or_command_line_of_another_process_is_seen() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let tag = format!("{}{setting:?}", std::process::id());
        let (beta, gamma) = (format!("beta{tag}"), format!("gamma{tag}"));
        let _helper = Bystander::of(&desk, &beta, &gamma);
        let look = format!(
            "import glob, os, sys\nfound = set()\nfor kind in ('environ', 'cmdline'):\n for place in glob.glob('/proc/*/' + kind):\n  \
             try: text = open(place, 'rb').read()\n  except OSError: continue\n  \
             for word in ('be' + 'ta{tag}', 'gam' + 'ma{tag}'):\n   if word.encode() in text: found.add(word)\n\
             sys.exit(0 if len(found) == 2 else 1 if not found else 3)\n"
        );
        desk.file("look.py", "");
        desk.file("project/look.py", &look);
        assert!(
            desk.outside(&["/usr/bin/python3", "look.py"]).status.success(),
            "the probe must work outside"
        );
        desk.run(&["/usr/bin/python3", "look.py"]).bad();
        let ran = desk.sh("env; cat /proc/*/environ | tr '\\0' '\\n'; ls -l /proc/*/fd");
        assert!(!ran.out.contains("CARGO"), "{ran:?}");
        desk.sh("cat /proc/1/environ").bad();
        desk.sh("ls /proc/1/fd").bad();
        desk.sh("cat /proc/self/status /proc/cpuinfo /proc/meminfo > /dev/null && ps ax | grep -q bash")
            .good();
    }
}

#[test]
fn p9_no_descriptor_is_inherited() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        // One that any child would inherit.
        let held = std::fs::File::open("/etc/hostname").unwrap();
        rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap();
        let ran = desk.run(&["ls", "/proc/self/fd"]);
        // The three, and the folder that `ls` reads.
        assert_eq!(ran.good().split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }
}

#[test]
fn p1_processes_outside_are_neither_signalled_nor_traced() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let other = Bystander::of(&desk, "bystander", "x");
        let pid = other.0.id();
        desk.only_outside(&format!("{} kill {pid}", probe().display()));
        desk.only_outside(&format!("{} ptrace {pid}", probe().display()));
        desk.sh(&format!("{} ptrace 1", probe().display())).bad();
        desk.sh("kill -9 1").bad();
    }
}

#[test]
fn p1_debuggers_work_inside() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        if desk.outside(&["strace", "-o", "/dev/null", "true"]).status.success() {
            desk.run(&["strace", "-f", "-o", "/dev/null", "true"]).good();
        } else {
            skipped(1, "strace does not work outside");
        }
    }
}

#[test]
fn p1_ways_to_more_authority_are_refused() {
    let mut missing = 0;
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        for words in [
            "unshare",
            "clone",
            "clone3",
            "setns",
            "mount",
            "pivot",
            "io-uring",
            "bpf",
            "perf",
            "keyctl",
            "add-key",
            "userfaultfd",
            "handle",
            "tiocsti",
            "tiocsti-wide",
            "tioclinux",
            "personality 4194304",
            "socket 17 3 768",
            "socket 2 3 6",
            "socket 2 1 262",
            "socket 2 1 132",
            "socket 40 1 0",
            "socket 38 5 0",
            "socket 16 3 15",
            "socket 16 3 9",
        ] {
            let script = format!("{} {words}", probe().display());
            if desk.outside(&["bash", "-c", &script]).status.success() {
                desk.sh(&script).bad();
            } else {
                missing += 1;
                skipped(
                    missing,
                    &format!("`{words}` does not work outside either ({setting:?})"),
                );
            }
        }
        for words in [
            "socket 1 1 0",
            "socket 2 1 0",
            "socket 2 1 6",
            "socket 10 526337 0",
            "socket 16 3 0",
        ] {
            desk.sh(&format!("{} {words}", probe().display())).good();
        }
        let datagrams = desk.sh(&format!("{} socket 2 2 17", probe().display()));
        if setting.is_process() {
            datagrams.bad();
        } else {
            datagrams.good();
        }
    }
    assert!(missing < 6 * Setting::all().len(), "too little of this could be shown");
}

#[test]
fn p11_what_runs_in_the_background_ends_with_the_program() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let word = format!("98761.{}{}", std::process::id(), u8::from(setting.who == Who::Own));
        let ran = desk.sh(&format!(
            "sleep {word} & setsid sleep {word} & (trap '' TERM HUP; exec sleep {word}) & disown -a; sleep 0.1"
        ));
        ran.good();
        assert_eq!(running(&word), 0, "left behind");
    }
}

#[test]
fn p11_all_ends_when_either_side_closes() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let word = format!("98762.{}{}", std::process::id(), u8::from(setting.who == Who::Own));
        let script = format!("trap '' TERM HUP INT; sleep {word} & sleep {word}");
        let begin = || {
            let running_now = desk.start(&["bash", "-c", &script]).unwrap();
            let until = Instant::now() + Duration::from_secs(5);
            while running(&format!("sleep\0{word}")) < 2 {
                assert!(Instant::now() < until, "the probe must run first");
                std::thread::sleep(Duration::from_millis(5));
            }
            running_now
        };
        let (started, ..) = begin();
        drop(started);
        assert!(gone_within(&word, Duration::from_secs(1)), "after the daemon went");
        let (mut started, ..) = begin();
        let launcher = rustix::process::Pid::from_raw(started.child.launcher() as i32).unwrap();
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
        assert!(
            gone_within(&word, Duration::from_secs(1)),
            "after the launcher was killed"
        );
        assert_eq!(started.child.wait(), 137);
        let (mut started, ..) = begin();
        assert_eq!(started.child.end(), 137);
        assert_eq!(running(&word), 0);
    }
}

#[test]
fn p13_signals_and_statuses_come_through() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        assert_eq!(desk.sh("exit 0").status, 0);
        assert_eq!(desk.sh("exit 3").status, 3);
        assert_eq!(desk.sh("kill -SEGV $$").status, 128 + 11);
        let (mut started, [mut out, _err], _into) = desk
            .start(&[
                "bash",
                "-c",
                "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.01; done",
            ])
            .unwrap();
        let mut text = [0u8; 6];
        std::io::Read::read_exact(&mut out, &mut text).unwrap();
        started.child.signal(10).unwrap();
        assert_eq!(started.child.wait(), 9);
    }
}

#[test]
fn p13_limits_hold() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        let many = format!("{} forks 60", probe().display());
        let much = format!("{} memory 300", probe().display());
        desk.sh(&many).good();
        desk.sh(&much).good();
        desk.plan.limits.processes = Some(40);
        desk.plan.limits.memory = Some(200 << 20);
        let ran = desk.sh(&many);
        assert_ne!(ran.status, 0, "{ran:?}");
        assert!(
            ran.report
                .parts
                .iter()
                .any(|part| part == "rlimits" || part == "cgroup")
        );
        assert_ne!(desk.sh(&much).status, 0);
        desk.sh("for i in 1 2 3; do /bin/true & done; wait").good();
    }
}

#[test]
fn p9_the_launcher_has_an_empty_environment() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let (started, ..) = desk.start(&["sleep", "5"]).unwrap();
        let environment = std::fs::read(format!("/proc/{}/environ", started.child.launcher())).unwrap();
        assert!(environment.is_empty());
    }
}

#[test]
fn p1_a_confined_gate_only_reads_what_is_listed_and_talks() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let secret = desk.file("home/secret", "s");
        let listed = desk.file("project/hosts", "l");
        let done = desk.outside(&[
            probe().to_str().unwrap(),
            "gate",
            secret.to_str().unwrap(),
            listed.to_str().unwrap(),
        ]);
        assert!(done.status.success(), "{done:?}");
        assert_eq!(std::fs::read_to_string(listed).unwrap(), "l");
    }
}

#[test]
fn p13_the_survey_finds_what_the_other_tests_use() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let seen = desk.outside(&[probe().to_str().unwrap(), "survey"]);
        let text = String::from_utf8_lossy(&seen.stdout).into_owned();
        println!("{text}");
        for name in ["landlock", "namespaces", "proc", "seccomp", "idmap"] {
            let item = text
                .split("Item")
                .find(|item| item.contains(&format!("\"{name}\"")))
                .unwrap();
            assert!(item.contains("found: true"), "{item}");
        }
    }
}

#[test]
fn p2_under_sudo_the_caller_is_who_it_was() {
    if !rustix::process::geteuid().is_root() {
        return skipped(1, "only root can play sudo");
    }
    let caller = |user: &str| {
        let mut command = Command::new(probe());
        command.arg("caller").env("SUDO_UID", user).env("SUDO_GID", "4243");
        command.output().unwrap()
    };
    let done = caller("4242");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "4242 4243");
    assert!(!caller("0").status.success(), "root is nobody's caller");
}

#[test]
fn p13_scratch_folders_together_hold_no_more_than_the_limit() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.plan.scratch.push(AbsPath::new("/var/tmp").unwrap());
        let fill = "head -c 20M /dev/zero > $SCRATCH/a && head -c 20M /dev/zero > /var/tmp/b \
                    && head -c 20M /dev/zero > /dev/shm/c";
        desk.sh(fill).good();
        desk.plan.limits.memory = Some(50 << 20);
        desk.sh(fill).bad();
        desk.sh("head -c 40M /dev/zero > $SCRATCH/a").good();
        desk.sh("cd /dev/shm && for i in $(seq 20); do touch $i.{1..1000} || exit 1; done")
            .bad();
        desk.sh("touch $SCRATCH/x; ls -a /dev/shm /var/tmp; ls -ld /var/tmp | cut -c1-10")
            .good();
    }
}
