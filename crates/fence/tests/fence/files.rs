//! Files: what is granted is there, what is not granted is not, and the most exact word wins.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use bailiwick_gate::{Bind, BindMode, Protection};
use bailiwick_model::AbsPath;

use crate::desk::{Desk, Setting};

#[test]
fn p1_what_is_not_granted_cannot_be_read_or_written() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let key = desk.file("home/.ssh/id_ed25519", "PRIVATE KEY");
        let key = key.display();
        desk.only_outside(&format!("cat {key}"));
        desk.only_outside(&format!("/usr/bin/python3 -c \"print(open('{key}').read())\""));
        desk.only_outside(&format!("echo x >> {key}"));
        desk.only_outside(&format!("ls {}", desk.at("home").display()));
        desk.only_outside(&format!("ls {}", std::env::temp_dir().display()));
        desk.only_outside("ls /sys/class || exit 1");
        desk.only_outside("ls /");
    }
}

#[test]
fn p1_a_granted_tree_is_read_written_and_run() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.file("project/a", "alpha");
        let ran = desk.sh(
            "set -e; grep -q alpha a; mkdir -p d/e; printf '#!/bin/sh\\necho run' > d/e/x; chmod +x d/e/x; d/e/x; \
             mv d/e/x d/y; ln d/y d/z; ln -s z d/l; d/l; rm d/y; touch -d 2001-01-01 a; truncate -s 1 a",
        );
        assert_eq!(ran.good(), "run\nrun");
        let made = std::fs::metadata(desk.at("project/d/z")).unwrap();
        let want = std::fs::metadata(desk.at("project")).unwrap();
        assert_eq!(
            (made.uid(), made.gid()),
            (want.uid(), want.gid()),
            "{setting:?}: who owns what was made"
        );
    }
}

#[test]
fn what_was_just_written_can_be_started_at_once() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        // Whoever opened it for the agent holds it no longer, however busy the machine is.
        let ran = desk.sh(
            "set -e; i=0; while [ $i -lt 300 ]; do printf '#!/bin/sh\nexit 0\n' > x$i; chmod +x x$i; ./x$i; i=$((i+1)); done; \
             echo all",
        );
        assert_eq!(ran.good(), "all");
    }
}

#[test]
fn p2_root_files_come_out_as_roots_and_inside_nobody_is_root() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.file("project/own", "");
        let ran = desk.sh("id -u; id -g; stat -c %u own; touch made; stat -c %u made; cat /proc/self/uid_map");
        let lines: Vec<&str> = ran.good().lines().collect();
        assert!(lines[..4].iter().all(|id| *id == lines[0] && *id != "0"), "{lines:?}");
        // Without a user namespace of its own there is no map, and nobody to become.
        assert!(
            setting.is_process() || !lines[4].split_whitespace().any(|id| id == "0"),
            "{lines:?}"
        );
        let owner = std::fs::metadata(desk.at("project")).unwrap().uid();
        assert_eq!(std::fs::metadata(desk.at("project/made")).unwrap().uid(), owner);
        desk.sh(&format!("{} setuid 0", crate::desk::probe().display())).bad();
    }
}

#[test]
fn p1_system_trees_are_read_only_and_set_no_user() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.sh("touch /usr/x").bad();
        desk.sh("touch /x").bad();
        desk.sh("mkdir /dev/x").bad();
        desk.sh("echo 1 > /proc/sys/kernel/hostname").bad();
        desk.sh("cat /proc/keys").bad();
        desk.sh("cat /proc/kmsg").bad();
        if setting.is_process() {
            // The mounts are the machine's: what keeps programs from becoming others is the kernel's promise of it.
            assert_eq!(desk.sh("grep NoNewPrivs /proc/self/status | cut -f2").good(), "1");
            continue;
        }
        assert_eq!(desk.sh("grep -c nosuid /proc/self/mountinfo").status, 0);
        let loose = desk.sh("grep -v nosuid /proc/self/mountinfo | grep -v ' /dev/' || true");
        assert_eq!(loose.good(), "");
    }
}

#[test]
fn p1_reading_and_writing_trees_nest_both_ways() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/fixed/a", "a");
        desk.file("readable/deep/out/b", "b");
        desk.file("readable/deep/c", "c");
        desk.bind("project/fixed", BindMode::Read);
        desk.bind("readable", BindMode::Read);
        desk.bind("readable/deep/out", BindMode::Write);
        let deep = desk.at("readable/deep");
        let deep = deep.display();
        desk.sh(&format!(
            "cat fixed/a && touch x && touch {deep}/out/y && cat {deep}/c {deep}/out/b"
        ))
        .good();
        desk.sh("echo x >> fixed/a").bad();
        desk.sh("touch fixed/b").bad();
        desk.sh("mv fixed other").bad();
        desk.sh(&format!("touch {deep}/z")).bad();
        assert!(desk.at("readable/deep/out/y").exists());
    }
}

#[test]
fn p1_a_tree_can_be_shown_elsewhere_and_hold_another() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.file("kept/settings", "kept");
        desk.bind("kept", BindMode::Write);
        // The home inside is another folder outside; the project lies in it.
        let last = desk.plan.binds.len() - 1;
        let home = AbsPath::new("/home/dana").unwrap();
        desk.plan.binds[last].target = home.clone();
        let project = Bind {
            source: AbsPath::new(desk.at("project")).unwrap(),
            target: home.join("work/site").unwrap(),
            mode: BindMode::Write,
            own: true,
            optional: false,
        };
        desk.plan.binds.push(project);
        desk.sh("cat /home/dana/settings && touch /home/dana/new /home/dana/work/site/page && ls /home/dana")
            .good();
        assert!(desk.at("kept/new").exists() && desk.at("project/page").exists());
    }
}

#[test]
fn p1_links_at_the_top_are_made_anew() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("real/x", "x");
        symlink("real", desk.at("name")).unwrap();
        desk.bind("name", BindMode::Read);
        let (name, real) = (desk.at("name"), desk.at("real"));
        let ran = desk.sh(&format!(
            "readlink {}; cat {}/x {}/x; /bin/sh -c 'echo y'",
            name.display(),
            name.display(),
            real.display()
        ));
        assert_eq!(ran.good(), "real\nxxy");
    }
}

#[test]
fn p5_links_planted_in_a_writable_tree_show_nothing() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("home/secret", "s");
        symlink(desk.at("home"), desk.at("project/sub")).unwrap();
        desk.bind("project/sub", BindMode::Read);
        let fault = desk.try_run(&["true"]).unwrap_err();
        assert!(fault.cause.contains("link inside a writable tree"), "{fault}");
        let last = desk.plan.binds.len() - 1;
        desk.plan.binds[last].optional = true;
        let ran = desk.run(&["true"]);
        assert_eq!(ran.report.missing.len(), 1, "{ran:?}");
        desk.sh("cat sub/secret").bad();
    }
}

#[test]
fn p13_missing_places_are_faults_or_reported() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.bind("nowhere", BindMode::Read);
        assert!(desk.try_run(&["true"]).unwrap_err().what.contains("nowhere"));
        let last = desk.plan.binds.len() - 1;
        desk.plan.binds[last].optional = true;
        let ran = desk.run(&["true"]);
        assert_eq!(ran.report.missing, [AbsPath::new(desk.at("nowhere")).unwrap()]);
        desk.plan.directory = AbsPath::new("/nowhere").unwrap();
        assert!(desk.try_run(&["true"]).unwrap_err().what.contains("cannot start in"));
    }
}

#[test]
fn p1_files_scratch_and_name_are_as_planned() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.plan
            .files
            .push((AbsPath::new("/etc/hosts").unwrap(), "127.0.0.1 here\n".into()));
        desk.plan
            .files
            .push((AbsPath::new("/opt/made/note").unwrap(), "note".into()));
        desk.plan.scratch.push(AbsPath::new("/var/tmp").unwrap());
        let ran = desk.sh("cat /etc/hosts /opt/made/note; uname -n; touch $SCRATCH/x /var/tmp/y && echo ok");
        assert_eq!(ran.good(), "127.0.0.1 here\nnotedesk\nok");
        desk.sh("echo x >> /etc/hosts").bad();
        desk.sh("echo x >> /opt/made/note").bad();
        desk.sh("rm /opt/made/note").bad();
        assert_ne!(std::fs::read_to_string("/etc/hosts").unwrap(), "127.0.0.1 here\n");
        assert!(!std::path::Path::new("/var/tmp/y").exists());
    }
}

#[test]
fn c017_links_lead_nowhere_that_is_not_granted() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.file("private/n.txt", "private");
        symlink("../private/n.txt", desk.at("project/l")).unwrap();
        symlink("../private", desk.at("project/d")).unwrap();
        desk.only_outside("cat l");
        desk.only_outside("echo x > d/new.txt");
        std::fs::remove_file(desk.at("private/new.txt")).unwrap();
        desk.sh("echo x > d/new.txt").bad();
        assert!(!desk.at("private/new.txt").exists());
    }
}

#[test]
fn c017_a_protected_file_that_is_a_link_is_protected_where_it_leads() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        let real = desk.file("project/dot/bashrc", "# kept\n");
        symlink("dot/bashrc", desk.at("project/.bashrc")).unwrap();
        desk.protect("/**/.bashrc", Protection::Guard);
        // A link to nowhere does not stop the start either, and is spoken of.
        symlink("/nowhere/at/all", desk.at("project/.profile")).unwrap();
        desk.protect("/**/.profile", Protection::Guard);
        let ran = desk.run(&["true"]);
        // Where nothing is mounted, the name itself is protected.
        assert_eq!(
            ran.report.warnings.iter().any(|line| line.contains(".profile")),
            !setting.is_process(),
            "{ran:?}"
        );
        desk.only_outside("ln -sf dot/other new && mv -T .bashrc kept && mv -T kept .bashrc");
        assert!(desk.outside(&["bash", "-c", "echo >> .bashrc"]).status.success());
        desk.sh("echo x >> .bashrc").bad();
        desk.sh("echo x >> dot/bashrc").bad();
        desk.sh("rm .bashrc").bad();
        desk.sh("cat .bashrc").good();
        assert_eq!(std::fs::read_to_string(real).unwrap(), "# kept\n\n");
    }
}

#[test]
fn c020_the_most_exact_word_wins() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("parent/proj/keys/a", "key");
        desk.folder("parent/proj/out");
        desk.bind("parent/proj", BindMode::Read);
        desk.bind("parent/proj/out", BindMode::Write);
        desk.protect(desk.at("parent/proj/keys").to_str().unwrap(), Protection::Hide);
        desk.plan.directory = AbsPath::new(desk.at("parent/proj")).unwrap();
        let proj = desk.at("parent/proj");
        assert_eq!(
            desk.sh("pwd; /bin/pwd -P; touch out/c").good(),
            format!("{0}\n{0}", proj.display())
        );
        assert!(desk.at("parent/proj/out/c").exists());
        for script in [
            "cat keys/a",
            "touch keys/b",
            "ls ..",
            "ls keys",
            "chmod 700 keys",
            "touch new",
        ] {
            desk.sh(script).bad();
        }
        assert!(!desk.at("parent/proj/keys/b").exists());
    }
}

/// Makes `made` a file that runs as its owner, each time by another call; numbers as on this processor family.
const SET_ID: &[&str] = &[
    "os.chmod('made', 0o4755)",
    "os.chmod('made', 0o2755)",
    "os.chmod('made', 0o6755)",
    "os.fchmod(os.open('made', os.O_RDONLY), 0o4755)",
    "os.chmod('made', 0o4755, dir_fd=os.open('.', os.O_RDONLY))",
    "call(452, -100, b'made', 0o4755, 0)",
    "os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755))",
    "os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o2755))",
    #[cfg(target_arch = "x86_64")]
    "call(265, -100, b'/proc/self/fd/%d' % os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755), -100, b'new', 0x400)",
    "os.mknod('new', 0o104755)",
    "os.mknod('new', 0o104755, dir_fd=os.open('.', os.O_RDONLY))",
    "call(437, -100, b'new', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)",
    #[cfg(target_arch = "x86_64")]
    "call(2, b'new', os.O_CREAT | os.O_WRONLY, 0o4755)",
    #[cfg(target_arch = "x86_64")]
    "call(85, b'new', 0o4755)",
    #[cfg(target_arch = "x86_64")]
    "call(90, b'made', 0o1_4755)",
];

#[test]
fn p2_no_file_is_made_that_runs_as_its_owner() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        for attempt in SET_ID {
            desk.file("project/made", "#!/bin/true\n");
            let script = format!(
                "import ctypes, os, struct, sys\n\
                 os.umask(0)\n\
                 def call(*all):\n\
                 \x20   if ctypes.CDLL(None).syscall(*all) < 0: sys.exit(1)\n\
                 {attempt}\n\
                 sys.exit(not any(os.path.exists(f) and os.stat(f).st_mode & 0o6000 for f in ['made', 'new']))"
            );
            let outside = desk.outside(&["/usr/bin/python3", "-c", &script]);
            assert!(outside.status.success(), "{attempt}: {outside:?}");
            let _ = std::fs::remove_file(desk.at("project/new"));
            desk.file("project/made", "#!/bin/true\n");
            std::fs::set_permissions(desk.at("project/made"), PermissionsExt::from_mode(0o755)).unwrap();
            desk.run(&["/usr/bin/python3", "-c", &script]).bad();
            for file in ["project/made", "project/new"] {
                let mode = std::fs::symlink_metadata(desk.at(file)).map_or(0, |found| found.permissions().mode());
                assert_eq!(mode & 0o6000, 0, "{attempt}");
            }
        }
        desk.sh("chmod 1777 made && install -m 755 made other && mkdir -m 1755 folder && test -x other")
            .good();
    }
}
