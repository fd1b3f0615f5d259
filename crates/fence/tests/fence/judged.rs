//! Programs that start, where rules tell them apart: what really starts is what was asked about.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use bailiwick_gate::{BindMode, Judged};
use bailiwick_model::Resource;

use crate::desk::{Desk, Judge, Ran, Setting};

fn programs(names: &[&str]) -> Judged {
    Judged::Programs(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
}

/// A desk where `touch` is asked about, and denied when it is to make `marker`.
fn without_marker(setting: Setting) -> (Desk, Judge) {
    let judge = Judge::of(|request| match &request.resource {
        Resource::Command(seen) => !seen.words().iter().any(|word| word.contains("marker")),
        _ => false,
    });
    let mut desk = Desk::of(setting);
    desk.plan.judged = programs(&["touch", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]);
    desk.judge = Some(judge.clone());
    (desk, judge)
}

#[track_caller]
fn no_marker(desk: &Desk, script: &str) -> Ran {
    let outside = desk.outside(&["bash", "-c", script]);
    assert!(
        desk.at("project/marker").exists(),
        "the probe must work outside: `{script}`: {outside:?}"
    );
    std::fs::remove_file(desk.at("project/marker")).unwrap();
    let ran = desk.sh(script);
    assert!(!desk.at("project/marker").exists(), "`{script}`: {ran:?}");
    ran
}

#[test]
fn p5_what_really_starts_is_judged_however_it_is_started() {
    for setting in Setting::all() {
        let (desk, judge) = without_marker(setting);
        let script = desk.file("project/script", "#!/usr/bin/touch marker\n");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"]
            .into_iter()
            .find(|loader| std::path::Path::new(loader).exists());
        let loader = format!("{} /usr/bin/touch marker", loader.expect("a dynamic linker"));
        let by_descriptor =
            "import os; f = os.open('/usr/bin/touch', os.O_RDONLY); os.execve(f, ['touch', 'marker'], {})";
        let in_memory = "import os; f = os.memfd_create('x'); os.write(f, open('/usr/bin/touch', 'rb').read()); \
            os.execve(f, ['harmless', 'marker'], {})";
        for line in [
            "touch marker",
            "/usr/bin/touch marker",
            "exec -a ls touch marker",
            "env touch marker",
            "env -S 'touch marker'",
            "nice timeout 5 touch marker",
            "setsid -w touch marker",
            "echo marker | xargs touch",
            "bash -c 'eval touch marker'",
            "echo touch marker | sh",
            "true && touch marker",
            "true | touch marker",
            "(cd / && cd - && touch marker)",
            "/proc/self/root/usr/bin/touch marker",
            "ln -sf /usr/bin/touch other && ./other marker",
            "cp /usr/bin/touch copy && ./copy marker",
            "cp /usr/bin/touch copy && mv copy moved && ./moved marker",
            "t=${SCRATCH:-/tmp}/touch$UID; cat /usr/bin/touch > $t && chmod 755 $t && $t marker",
            "./script",
            loader.as_str(),
            &format!("/usr/bin/python3 -c \"{by_descriptor}\""),
            &format!("/usr/bin/python3 -c \"{in_memory}\""),
            "/usr/bin/python3 -c \"import subprocess; subprocess.run(['touch', 'marker'])\"",
            "find . -maxdepth 0 -exec touch marker {} +",
        ] {
            let _ = desk.outside(&["bash", "-c", "rm -f other copy moved"]);
            let before = judge.commands().len();
            no_marker(&desk, line);
            let asked = judge.commands().split_off(before);
            assert!(asked.iter().any(|(_, allowed)| !allowed), "`{line}`: {asked:?}");
        }
        // The same programs with other words, and other programs, start as ever.
        assert_eq!(desk.sh("touch other2 && ls other2 && ./script; true").good(), "other2");
    }
}

#[test]
fn p5_what_a_start_is_called_and_is_can_be_told_apart() {
    for setting in Setting::all() {
        let judge = Judge::of(|_| true);
        let mut desk = Desk::of(setting);
        desk.plan.judged = Judged::Everything;
        desk.judge = Some(judge.clone());
        let script = desk.file("project/run.sh", "#!/bin/bash -e\necho \"$1\"\n");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(desk.sh("STEER=left ./run.sh 'a b'; /usr/bin/env true").good(), "a b");
        let commands = judge.commands();
        let seen = |part: &[&str]| commands.iter().any(|(seen, _)| seen[1..] == *part);
        assert!(
            seen(&["./run.sh", "own", "", "./run.sh", "a b", "left"]),
            "{commands:?}"
        );
        assert!(
            seen(&["/usr/bin/env", "machine", "", "/usr/bin/env", "true"]),
            "{commands:?}"
        );
        let settled = judge.settled.lock().unwrap();
        assert!(!settled.is_empty() && settled.iter().all(|done| *done), "{settled:?}");
    }
}

#[test]
fn p5_a_start_is_what_was_judged_whatever_another_thread_changes() {
    for setting in Setting::all() {
        let (desk, _) = without_marker(setting);
        // A start takes most of a millisecond; with more time, more tries.
        let tries = std::env::var("BAILIWICK_RACES").unwrap_or_else(|_| "2000".into());
        // The probe works where nobody judges.
        let mut open = Desk::of(setting);
        open.plan.judged = Judged::Nothing;
        let probe = crate::desk::probe();
        let command = |tries: &str| {
            let probe = probe.display().to_string();
            vec![probe, "race-start".into(), tries.to_owned()]
        };
        let run = |desk: &Desk, tries: &str| {
            let command = command(tries);
            desk.run(&command.iter().map(String::as_str).collect::<Vec<_>>())
        };
        run(&open, "300").good();
        assert!(open.at("project/marker").exists(), "the race is won where nobody looks");
        let ran = run(&desk, &tries);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(!desk.at("project/marker").exists(), "{ran:?}");
    }
}

#[test]
fn p4_without_a_mediator_nothing_that_is_judged_starts() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.plan.judged = programs(&["touch"]);
        assert_eq!(desk.sh("touch x").status, 126);
        assert_eq!(
            desk.sh("echo still here; ls / > /dev/null 2>&1; true").good(),
            "still here"
        );
    }
}

#[test]
fn p5_where_starts_are_judged_nobody_changes_a_program_after_its_start() {
    for setting in Setting::all() {
        let (mut desk, _) = without_marker(setting);
        desk.bind("home", BindMode::Write);
        let trace = "import ctypes, os, sys, time\n\
            p = os.fork()\n\
            if p == 0:\n  time.sleep(30)\n\
            c = ctypes.CDLL(None, use_errno=True)\n\
            done = c.ptrace(16, p, 0, 0)\n\
            try:\n  f = os.open(f'/proc/{p}/mem', os.O_RDWR)\n\
            except OSError:\n  f = -1\n\
            os.kill(p, 9)\n\
            sys.exit(0 if done == 0 or f >= 0 else 1)";
        let outside = desk.outside(&["/usr/bin/python3", "-c", trace]);
        assert!(outside.status.success(), "{outside:?}");
        desk.run(&["/usr/bin/python3", "-c", trace]).bad();
    }
}

#[test]
fn p4_sixty_four_threads_start_programs_at_once() {
    for setting in Setting::all() {
        let judge = Judge::of(|_| true);
        let mut desk = Desk::of(setting);
        desk.plan.judged = Judged::Everything;
        desk.judge = Some(judge);
        let script = "import subprocess, threading\n\
            def many():\n  [subprocess.run(['/bin/true'], check=True) for _ in range(5)]\n\
            all = [threading.Thread(target=many) for _ in range(64)]\n\
            [one.start() for one in all]; [one.join() for one in all]; print('all')";
        assert_eq!(desk.run(&["/usr/bin/python3", "-c", script]).good(), "all");
    }
}
