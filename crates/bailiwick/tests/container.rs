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

#[test]
fn p13_in_a_container_nothing_runs_with_less_than_was_asked_for() {
    for make in everyone() {
        let kit = make().in_a_container();
        let refused = kit.shell("touch ran").status_is(125);
        assert!(!kit.project().join("ran").exists());
        assert!(refused.stderr.contains("namespace"), "{}", refused.stderr);
        assert!(refused.stderr.contains("  hint: "), "{}", refused.stderr);
        let doctor = kit.run(&["doctor"]).status_is(1);
        assert!(doctor.stdout.contains("NO FENCE"), "{}", doctor.stdout);
    }
}
