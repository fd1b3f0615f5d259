//! In a container as engines make them by default: what the machine refuses there, and that nothing runs with less of a
//! fence than was asked for.

use std::os::unix::fs::MetadataExt;

use bailiwick_testkit::Bailiwick;

fn everyone() -> [fn() -> Bailiwick; 2] {
    [Bailiwick::new, Bailiwick::as_ordinary_user]
}

#[test]
fn a_container_refuses_namespaces_mounts_and_a_new_proc() {
    for make in everyone() {
        let (outside, inside) = (make(), make().in_a_container());
        for line in [
            "unshare --user true",
            "unshare --map-root-user --mount true",
            "unshare --map-root-user --mount --pid --fork mount -t proc proc /proc",
        ] {
            outside.shell_outside(line).ok();
            let refused = inside.shell_outside(line);
            assert_ne!(refused.status, 0, "{line}");
            assert!(refused.stderr.contains("not permitted"), "{line}: {}", refused.stderr);
        }
        inside.shell_outside("! mount -t proc proc /proc 2>/dev/null").ok();
        inside
            .shell_outside("! test -s /proc/keys && ! touch /proc/sys/kernel/x")
            .ok();
        inside.shell_outside("! mkdir /sys/fs/cgroup/bailiwick-test").ok();
        // CAP_SYS_ADMIN is bit 21, CAP_SYS_PTRACE bit 19.
        let bounding = inside.shell_outside("sed -n 's/^CapEff:\t*//p' /proc/self/status").ok();
        let bounding = u64::from_str_radix(bounding.stdout.trim(), 16).unwrap();
        assert_eq!(bounding & (1 << 21 | 1 << 19), 0);
        let same = inside.shell_outside("pwd; id -u; echo $HOME").ok();
        let uid = std::fs::metadata(inside.project()).unwrap().uid();
        let place = format!("{}\n{uid}\n{}\n", inside.project().display(), inside.home().display());
        assert_eq!(same.stdout, place);
    }
}

#[test]
fn p13_a_daemon_outlives_its_commands_in_a_container() {
    for make in everyone() {
        let kit = make().in_a_container();
        kit.run(&["log", "checkpoint"]).ok();
        let pid = |kit: &Bailiwick| kit.run(&["status", "--json"]).ok().stdout;
        assert_eq!(pid(&kit), pid(&kit));
    }
}

/// Whoever runs the tests, where that is not root: its fences need namespaces.
fn ordinary() -> Bailiwick {
    Bailiwick::as_ordinary_user().in_a_container()
}

#[test]
fn c078_without_namespaces_a_fence_is_put_up_with_what_there_is_and_says_so() {
    let kit = ordinary();
    kit.write(".env", "SECRET-OF-DANA");
    kit.write("note", "of the project");
    kit.shell_outside("cat .env; cat ~/../project/note").ok();
    let inside = kit.run(&[
        "run",
        "--",
        "sh",
        "-c",
        "cat note && cat .env; touch made; cat /etc/shadow ~/.profile",
    ]);
    assert!(inside.stdout.contains("of the project"), "{inside:?}");
    assert!(!inside.stdout.contains("DANA"), "{inside:?}");
    assert!(kit.project().join("made").exists());
    for said in ["enforced  by process", "partly", "can be seen anywhere"] {
        assert!(inside.stderr.contains(said), "{said}: {}", inside.stderr);
    }
    let doctor = kit.run(&["doctor"]).ok().stdout;
    assert!(
        doctor.contains("process    can be put up here, and is what `run` takes"),
        "{doctor}"
    );
    assert!(doctor.contains("namespace  cannot: namespaces"), "{doctor}");
    let fix = kit.run(&["doctor", "--fix"]).ok().stdout;
    assert!(fix.contains("# namespaces"), "{fix}");
    let log = kit.run(&["log", "show"]).ok().stdout;
    assert!(log.contains("process"), "the level is on record: {log}");
}

#[test]
fn p13_in_a_container_nothing_runs_with_less_than_was_asked_for() {
    for make in everyone() {
        let kit = make().in_a_container();
        let refused = kit
            .run(&["run", "-q", "--level", "namespace", "--", "touch", "ran"])
            .status_is(125);
        assert!(!kit.project().join("ran").exists());
        assert!(
            refused.stderr.contains("level `namespace` cannot be put up here"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("  hint: "), "{}", refused.stderr);
    }
    if bailiwick_testkit::level().is_some() {
        // Each run names a level, and so accepts it.
        return;
    }
    // A rule that asks for more is kept, until the person accepts less by name.
    let kit = ordinary();
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[fence]\nlevel = \"namespace\"\n",
    );
    kit.run(&["trust"]).ok();
    let refused = kit.run(&["run", "-q", "--", "touch", "ran"]).status_is(125);
    assert!(refused.stderr.contains("--level process"), "{}", refused.stderr);
    assert!(!kit.project().join("ran").exists());
    kit.run(&["run", "-q", "--level", "process", "--", "touch", "ran"]).ok();
    assert!(kit.project().join("ran").exists());
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[fence]\nlevel = \"strong\"\n",
    );
    let wrong = kit.run(&["policy", "check"]).status_is(2);
    assert!(wrong.stderr.contains("is not a level"), "{}", wrong.stderr);
}

#[test]
fn p2_roots_fences_need_namespaces() {
    let kit = Bailiwick::new().in_a_container();
    if rustix::process::geteuid().is_root() {
        let refused = kit.shell("touch ran").status_is(125);
        assert!(!kit.project().join("ran").exists());
        assert!(refused.stderr.contains("ordinary user"), "{}", refused.stderr);
        let doctor = kit.run(&["doctor"]).status_is(1);
        assert!(doctor.stdout.contains("NO FENCE"), "{}", doctor.stdout);
        // What needs no fence works all the same.
        kit.run(&["can", "read ."]).ok();
        kit.run(&["policy", "check"]).ok();
        kit.run(&["log", "verify"]).ok();
    } else {
        kit.shell("touch ran").ok();
    }
}
