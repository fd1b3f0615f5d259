//! Attempts on Bailiwick itself: each succeeds without a fence, and fails in one.

use bailiwick_testkit::Bailiwick;

/// As whoever runs the tests, and as an ordinary user.
fn everyone() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// Insists that a line works without a fence and not in one.
fn only_outside(kit: &Bailiwick, line: &str) {
    kit.shell_outside(line).ok();
    let inside = kit.shell(line);
    assert!((1..125).contains(&inside.status), "`{line}`: {inside:?}");
}

#[test]
fn p2_the_state_is_out_of_reach_wherever_it_lies() {
    for mut kit in everyone() {
        let state = kit.project().join("kept").display().to_string();
        kit.write("kept/note", "of the project");
        kit.set("XDG_STATE_HOME", &state);
        // A state folder two steps below a tree that may be written could be swapped for another.
        let refused = kit.shell("true").status_is(125);
        assert!(refused.stderr.contains("bailiwick's own"), "{}", refused.stderr);
        kit.run(&["daemon", "stop"]).ok();
        let project = kit.project().display().to_string();
        kit.set("XDG_STATE_HOME", &project);
        kit.shell("true").ok();
        only_outside(&kit, "cat bailiwick/keys/log.key");
        only_outside(&kit, "cat bailiwick/store.sqlite > /dev/null");
        only_outside(&kit, "touch bailiwick/new");
        kit.shell("mv bailiwick other").status_is(1);
        kit.shell("touch note").ok();
        kit.run(&["log", "verify"]).ok();
    }
}

#[test]
fn p2_the_ceiling_is_out_of_reach_where_there_is_none_yet() {
    for mut kit in everyone() {
        let project = kit.project().display().to_string();
        kit.set("XDG_CONFIG_HOME", &project);
        let line = "mkdir -p bailiwick; echo 'allow = [\"read /\"]' > bailiwick/mine.toml";
        assert_ne!(kit.shell(line).status, 0);
        assert!(!kit.project().join("bailiwick/mine.toml").exists());
        only_outside(&kit, "ls bailiwick && touch bailiwick/note");
    }
}

#[test]
fn p2_a_worktree_keeps_its_settings() {
    for kit in everyone() {
        kit.shell_outside(
            "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git worktree add -q tree",
        )
        .ok();
        for line in [
            "cat tree/.git > new && mv new tree/.git",
            "cat tree/.git > new && cat new > tree/.git",
            "echo ../.. > .git/worktrees/tree/commondir",
        ] {
            only_outside(&kit, line);
        }
        kit.shell("cd tree && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m y")
            .ok();
    }
}

#[test]
fn p13_what_came_to_be_that_others_obey_is_told() {
    for kit in everyone() {
        kit.shell_outside("git init -q .").ok();
        let done = kit
            .shell("echo ../evil > .git/commondir; mkdir .husky; touch plain")
            .ok();
        assert!(
            done.stderr.contains(".git/commondir") && done.stderr.contains(".husky") && !done.stderr.contains("plain"),
            "{}",
            done.stderr
        );
        assert_eq!(kit.shell("touch other").ok().stderr, "");
    }
}

#[test]
fn p2_what_runs_without_being_asked_for_keeps_its_content_and_name() {
    const FILES: [&str; 12] = [
        ".githooks/pre-commit",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".zed/tasks.json",
        ".vscode/tasks.json",
        ".devcontainer/devcontainer.json",
        ".envrc",
        ".mcp.json",
        ".github/workflows/check.yml",
        ".gitlab-ci.yml",
        "deep/er/.circleci/config.yml",
    ];
    for kit in everyone() {
        for file in FILES {
            kit.write(file, "of the person");
        }
        for file in FILES {
            for line in [
                format!("echo more >> {file} && echo 'of the person' > {file}"),
                format!("mv {file} other && mv other {file}"),
                format!("cp {file} other && mv other {file}"),
                format!("rm {file}"),
            ] {
                only_outside(&kit, &line);
                kit.write(file, "of the person");
            }
        }
    }
}

#[test]
fn p9_no_process_of_ours_holds_what_the_caller_had_open() {
    for kit in everyone() {
        let name = kit.outside().join("open-by-the-caller").display().to_string();
        let product = kit.command(&["run", "-q", "--", "true"]);
        let words = std::iter::once(product.get_program()).chain(product.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        // Without the words that say who is to run it: the shell is that already.
        let program = words.iter().position(|word| word == "run").unwrap() - 1;
        let script = format!("exec 7< {name}; exec {}", words[program..].join(" "));
        std::fs::write(&name, "").unwrap();
        let mut caller = kit.outside_command("sh");
        caller.args(["-c", &script]);
        bailiwick_testkit::finish(caller, std::time::Duration::from_secs(60)).ok();
        let holding = format!("ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F {name}");
        assert_eq!(kit.shell_outside(&format!("exec 7< {name}; {holding}")).status, 0);
        let held = kit.shell_outside(&holding);
        assert_eq!(held.stdout, "", "held by the daemon or its spares");
    }
}
