//! What is protected inside granted trees: hidden is not read, guarded is not changed, by whatever name.

use std::os::unix::net::UnixListener;

use bailiwick_gate::{BindMode, Protection};
use bailiwick_model::Code;

use crate::desk::{Desk, Setting};

#[test]
fn p5_a_hidden_file_is_read_by_no_name() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/.env", "TOKEN=hidden");
        desk.file("project/deep/er/.env", "TOKEN=hidden");
        std::fs::hard_link(desk.at("project/.env"), desk.at("project/innocent")).unwrap();
        std::os::unix::fs::symlink("deep/er/.env", desk.at("project/link")).unwrap();
        desk.protect("/**/.env", Protection::Hide);
        for script in [
            "cat .env",
            "cat deep/er/.env",
            "cat innocent",
            "cat link",
            "/usr/bin/python3 -c \"open('.env').read()\"",
            "cat /proc/self/cwd/.env",
            "cp .env copy",
            "grep -q TOKEN -r .",
            "chmod 600 .env && cat .env",
            "ln .env other && cat other",
            "mv .env other && cat other",
            "mv deep/er deep/ar && cat deep/ar/.env",
        ] {
            desk.only_outside(script);
            // Outside it may have been moved about: as it was.
            let _ = desk.outside(&["bash", "-c", "rm -rf other deep/ar copy; mkdir -p deep/er"]);
            desk.file("project/.env", "TOKEN=hidden");
            desk.file("project/deep/er/.env", "TOKEN=hidden");
            let _ = std::fs::remove_file(desk.at("project/innocent"));
            std::fs::hard_link(desk.at("project/.env"), desk.at("project/innocent")).unwrap();
        }
        assert_eq!(desk.run(&["true"]).report.protected, 3);
    }
}

#[test]
fn p5_a_hidden_file_is_hidden_in_trees_to_read_too() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("reference/a/.env", "TOKEN");
        desk.file("reference/a/plain", "plain");
        desk.bind("reference", BindMode::Read);
        desk.protect("/**/.env", Protection::Hide);
        let place = desk.at("reference/a");
        desk.only_outside(&format!("cat {}/.env", place.display()));
        desk.sh(&format!("cat {}/plain", place.display())).good();
    }
}

#[test]
fn p5_a_mask_cannot_be_opened_up() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/.env", "TOKEN");
        desk.protect("/**/.env", Protection::Hide);
        for script in [
            "chmod 644 .env",
            "rm -f .env",
            "mv .env x",
            "echo x > .env",
            "umount .env",
            "ln .env y",
        ] {
            desk.sh(script).bad();
        }
        let seen = if setting.is_process() { "644" } else { "0" };
        assert_eq!(desk.sh("stat -c %a .env").good(), seen);
        assert_eq!(std::fs::read_to_string(desk.at("project/.env")).unwrap(), "TOKEN");
    }
}

#[test]
fn p5_guarded_places_of_git_keep_content_and_name() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        assert!(desk.outside(&["git", "init", "-q", "."]).status.success());
        desk.file("project/.git/hooks/pre-commit", "#!/bin/sh\n");
        desk.protect("/**/.git/hooks", Protection::Guard);
        desk.protect("/**/.git/config", Protection::Guard);
        for script in [
            "echo x > .git/hooks/post-checkout",
            "echo x >> .git/hooks/pre-commit",
            "rm .git/hooks/pre-commit",
            "mv .git/hooks .git/h",
            "echo x >> .git/config",
            "echo x > n; mv n .git/config",
            "rm -f .git/config",
            "mv .git g",
            "git config core.pager evil",
            "mv .git g && mkdir .git && mv g .git",
            "chmod 777 .git/config",
        ] {
            desk.sh(script).bad();
        }
        let ran = desk.sh("set -e; cat .git/config > /dev/null; echo a > a; git add a; \
             git -c user.name=n -c user.email=e commit -qm first; git checkout -qb other; git status --short");
        ran.good();
        assert!(desk.at("project/.git/hooks/pre-commit").exists());
    }
}

#[test]
fn p5_folders_that_a_pattern_names_keep_their_names() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        for file in [
            "a/b/keys/k",
            "c/d/rules/r",
            "free/e/.env",
            "in/f/.token",
            "x/in/g/.token",
        ] {
            desk.file(&format!("project/{file}"), "SECRET");
        }
        let project = desk.at("project");
        let below = |path: &str| format!("{}/{path}", project.display());
        desk.protect(&below("a/b/keys"), Protection::Hide);
        desk.protect(&below("c/d/rules"), Protection::Guard);
        desk.protect("/**/.env", Protection::Hide);
        desk.protect(&below("in/**/.token"), Protection::Hide);
        // Renamed, a place would be found by no pattern at the next start.
        for script in [
            "mv a z",
            "mv a/b a/z",
            "mv a/b z",
            "mv c z",
            "mv c/d c/z",
            "mv in z",
            "rm -rf a/b",
            "rmdir a",
        ] {
            desk.sh(script).bad();
        }
        desk.sh("set -e; mv free kept; mv kept/e kept/h; mv in/f in/h; touch a/new c/d/new; mv a/new a/b/new2 || cp a/new a/b/new2")
            .good();
        desk.sh("cat kept/h/.env").bad();
        desk.sh("cat in/h/.token").bad();
    }
}

#[test]
fn p5_another_name_of_a_guarded_file_is_guarded() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/.git/hooks/pre-commit", "#!/bin/sh\n");
        std::fs::hard_link(desk.at("project/.git/hooks/pre-commit"), desk.at("project/x")).unwrap();
        desk.protect("/**/.git/hooks", Protection::Guard);
        desk.only_outside("echo '#' >> x");
        assert_eq!(desk.run(&["true"]).report.protected, 2);
    }
}

#[test]
fn p5_patterns_hold_by_the_path_outside_and_inside() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.file("kept/.profile", "kept");
        desk.file("kept/.netrc", "kept");
        desk.bind("kept", BindMode::Write);
        let last = desk.plan.binds.len() - 1;
        desk.plan.binds[last].target = bailiwick_model::AbsPath::new("/home/dana").unwrap();
        desk.protect("/home/dana/.profile", Protection::Guard);
        desk.protect(desk.at("kept/.netrc").to_str().unwrap(), Protection::Hide);
        desk.sh("echo x >> /home/dana/.profile").bad();
        desk.sh("cat /home/dana/.netrc").bad();
        desk.sh("cat /home/dana/.profile && touch /home/dana/x").good();
    }
}

#[test]
fn p1_a_socket_of_the_machine_in_a_granted_tree_is_not_reached() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let place = desk.at("project/daemon.sock");
        let _listener = UnixListener::bind(&place).unwrap();
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        desk.only_outside(&format!("{} named {}", crate::desk::probe().display(), place.display()));
        assert!(
            desk.run(&["true"])
                .report
                .warnings
                .iter()
                .any(|line| line.contains("socket"))
        );
    }
}

#[test]
fn p13_too_many_places_are_a_fault_and_not_a_shrug() {
    let setting = Setting::all()[0];
    let mut desk = Desk::of(setting);
    for folder in 0..21 {
        desk.folder(&format!("project/{folder}"));
        for file in 0..1000 {
            std::fs::write(desk.at(&format!("project/{folder}/{file}.pem")), "").unwrap();
        }
    }
    desk.protect("/**/*.pem", Protection::Hide);
    assert_eq!(desk.try_run(&["true"]).unwrap_err().code, Code::LimitReached);
}

#[test]
fn p5_a_file_is_guarded_where_a_folder_of_the_name_is_not() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/sub/.git", "gitdir: ../.git/modules/sub\n");
        desk.file("project/.git/HEAD", "ref: refs/heads/main\n");
        desk.protect("/**/.git", Protection::GuardFile);
        desk.only_outside("echo 'gitdir: ../.git/modules/sub' > sub/.git");
        for script in [
            "rm sub/.git",
            "mv sub/.git other",
            "echo x > new; mv new sub/.git",
            "truncate -s 0 sub/.git",
        ] {
            desk.sh(script).bad();
        }
        desk.sh("cat sub/.git && touch .git/index.lock && mv .git/index.lock .git/index")
            .good();
    }
}

#[test]
fn p5_names_are_guarded_in_a_project_that_lies_in_a_home_that_is_scratch() {
    for setting in Setting::with_namespaces() {
        let mut desk = Desk::of(setting);
        desk.folder("home/work/project");
        desk.bind("home/work/project", BindMode::Write);
        desk.plan
            .scratch
            .push(bailiwick_model::AbsPath::new(desk.at("home")).unwrap());
        desk.protect("/**/.git/hooks", Protection::Guard);
        let home = desk.at("home");
        let home = home.display();
        let line = format!("cd {home}/work/project && mkdir -p .git && mkdir .git/hooks");
        desk.sh(&format!("mkdir {home}/own && {line}")).bad();
        // Nor does it come by another name with the folder above it.
        desk.sh(&format!("mv {home}/work {home}/other")).bad();
        desk.sh(&format!("mkdir {home}/own && mv {home}/own {home}/more"))
            .good();
        assert!(!desk.at("home/work/project/.git/hooks").exists());
    }
}

#[test]
fn p5_a_name_that_is_made_is_what_was_judged_whatever_another_thread_changes() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.folder("project/x");
        let probe = crate::desk::probe().display().to_string();
        desk.run(&[&probe, "race-name", "1000"]).good();
        assert!(
            desk.at("project/x/guarde").exists(),
            "it is made where nothing guards it"
        );
        std::fs::remove_file(desk.at("project/x/guarde")).unwrap();
        desk.protect("/**/guarde", Protection::Guard);
        let tries = if setting == Setting::all()[0] {
            "100000"
        } else {
            "10000"
        };
        desk.run(&[&probe, "race-name", tries]).good();
        assert!(!desk.at("project/x/guarde").exists());
    }
}

#[test]
fn p5_a_repository_under_another_name_is_guarded_too() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.git/config", Protection::Guard);
        desk.protect("/**/.git/hooks", Protection::Guard);
        for script in [
            "mkdir -p x/objects x/refs; echo 'ref: refs/heads/main' > x/HEAD",
            "mkdir -p y/refs; echo 'ref: refs/heads/main' > y/HEAD; mkdir y/objects",
            "mkdir z; echo 'ref: refs/heads/main' > z/HEAD; echo ../old > z/commondir",
            "mkdir w; mkdir w/objects w/refs2; echo x > w/HEAD; mv w/refs2 w/refs",
            "echo '[core]' >> old/config",
            "echo x > old/hooks/post-update",
            "cp old/config other; mv other old/config",
        ] {
            let clean = "rm -rf x y z w old other; git init -q --bare old && mkdir -p old/hooks";
            let outside = |line: &str| desk.outside(&["bash", "-c", line]).status.success();
            assert!(
                outside(clean) && outside(script) && outside(clean),
                "the probe must work outside: {script}"
            );
            desk.sh(script).bad();
        }
        // Its objects and branches are the agent's to write, and so are such names where no repository comes about.
        desk.sh("mkdir -p free/hooks && echo x > free/config && echo x > free/HEAD && echo x > free/hooks/x && echo x > old/refs/x")
            .good();
    }
}
