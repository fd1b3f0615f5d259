//! What a context keeps: its own, at the usual place, and nothing of the person's.

use bailiwick_testkit::{Bailiwick, Done, at_level_process, skip};

use crate::{kits, program};

/// Looks for a text in all files of a folder.
fn holds(folder: &std::path::Path, text: &str) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            holds(&path, text)
        } else {
            kind.is_file() && std::fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
        }
    })
}

#[test]
fn p2_an_agents_state_is_the_contexts_own() {
    for kit in kits() {
        let agent = program(&kit, ".local/bin/claude", "#!/bin/sh\neval \"$1\"\n");
        kit.write_home(".claude/.credentials.json", "LOGIN-OF-DANA\n");
        kit.write_home(".claude/settings.json", "{\"of\": \"dana\"}\n");
        let inside = |line: &str| kit.run(&["run", "-q", "--", &agent, line]);
        let look = "cat ~/.claude/.credentials.json ~/.claude/settings.json; ls -A ~/.claude";
        assert!(kit.shell_outside(look).ok().stdout.contains("LOGIN-OF-DANA"));
        let seen = inside(look);
        assert!(
            !seen.stdout.contains("DANA") && !seen.stdout.contains("dana"),
            "{seen:?}"
        );
        assert!(
            seen.stdout.contains("\"enabled\": false"),
            "its settings are the profile's: {seen:?}"
        );
        // What it writes is there in the next task of this context, at the place that its variable names.
        inside("echo kept > \"$CLAUDE_CONFIG_DIR/state\" && mkdir ~/.claude/projects").ok();
        assert_eq!(inside("cat ~/.claude/state").ok().stdout, "kept\n");
        assert!(!kit.home().join(".claude/state").exists(), "and not in the person's");
        // Its settings are its own to change, and that is said; a rule can hold them as they are.
        let changed = kit
            .run(&["run", "--", &agent, "echo '{\"hooks\": 1}' > ~/.claude/settings.json"])
            .ok();
        assert!(
            changed
                .stderr
                .contains("its settings have changed: `~/.claude/settings.json`"),
            "{changed:?}"
        );
        let left = kit.run(&["run", "--", &agent, "true"]).ok();
        assert!(!left.stderr.contains("have changed"), "{left:?}");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\ndeny = [\"write ~/.claude/settings.json\"]\n",
        );
        kit.run(&["trust"]).ok();
        for line in [
            "echo '{\"hooks\": 1}' > ~/.claude/settings.json",
            "rm -f ~/.claude/settings.json",
            "echo x > n && mv n ~/.claude/settings.json",
        ] {
            assert_ne!(inside(line).status, 0, "{line}");
        }
        assert_eq!(inside("cat ~/.claude/settings.json").ok().stdout, "{\"hooks\": 1}\n");
        // A program of the same name that lies in the project is nobody's profile.
        kit.write("claude", "#!/bin/sh\nls -A ~/.claude\n");
        kit.shell_outside("chmod +x claude").ok();
        let own = kit.run(&["run", "-q", "--", "./claude"]);
        assert!(own.status != 0 && !own.stdout.contains("state"), "{own:?}");
        // Another context has another one.
        kit.shell_outside("mkdir -p ../other").ok();
        let mut there = kit.command(&["run", "-q", "--", &agent, "ls -A ~/.claude"]);
        let there = there.current_dir(kit.outside().join("other")).output().unwrap();
        assert!(there.status.success(), "{there:?}");
        assert!(!String::from_utf8_lossy(&there.stdout).contains("state"));
        // The person's own settings are shown where a rule says so, and still not changed.
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\nread = [\"~/.claude/settings.json\"]\n",
        );
        kit.run(&["trust"]).ok();
        assert!(inside("cat ~/.claude/settings.json").ok().stdout.contains("dana"));
        assert_eq!(inside("cat ~/.claude/state").ok().stdout, "kept\n");
        assert_ne!(inside("echo x > ~/.claude/settings.json").status, 0);
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("allow keep ") && log.contains("/.claude/**"), "{log}");
    }
}

#[test]
fn p13_the_summary_says_what_is_kept_and_which_profiles_hold() {
    let kit = Bailiwick::new();
    let agent = program(&kit, ".local/bin/codex", "#!/bin/sh\ntrue\n");
    kit.write("Cargo.toml", "");
    kit.write("web/package.json", "{}");
    let told = kit.run(&["run", "--", &agent]).ok().stderr;
    for part in [
        "profiles  codex, node, rust\n",
        "~/.codex",
        "~/.cache",
        "own sandbox is off",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let layers = kit
        .run(&["policy", "show", "--layers", "--program", "codex"])
        .ok()
        .stdout;
    assert!(
        layers.contains("profile:codex") && layers.contains("profile:rust"),
        "{layers}"
    );
    let can = kit.run(&["can", "--program", "codex", "keep ~/.codex"]).ok().stdout;
    assert!(can.starts_with("yes: keep "), "{can}");
    let other = kit.run(&["can", "--program", "codex", "read ~/.codex/auth.json"]);
    assert!(other.stdout.starts_with("no: read "), "{other:?}");
}

#[test]
fn p2_links_in_what_is_kept_lead_nowhere() {
    for kit in kits() {
        let agent = program(&kit, ".local/bin/claude", "#!/bin/sh\neval \"$1\"\n");
        let inside = |line: &str| kit.run(&["run", "-q", "--", &agent, line]);
        kit.write("Cargo.toml", "");
        kit.write_home("victim/kept", "as it was\n");
        kit.write_home(".cargo/registry/cache/index-1/a-1.crate", "CRATE-OF-DANA\n");
        let victim = kit.home().join("victim").display().to_string();
        inside("true").ok();
        // What is laid there at the next start must not go through what an earlier task left.
        for line in [
            format!("rm -rf ~/.cache/cargo && ln -s {victim} ~/.cache/cargo"),
            format!(
                "rm -rf ~/.cache/cargo/registry && mkdir -p ~/.cache/cargo && ln -s {victim} ~/.cache/cargo/registry"
            ),
            format!("rm -rf ~/.cache/cargo/registry/cache && ln -s {victim} ~/.cache/cargo/registry/cache"),
            "rm -rf ~/.cache/cargo && mkfifo ~/.cache/cargo".into(),
        ] {
            inside(&line).ok();
            let next = inside("cat ~/.cache/cargo/registry/cache/index-1/a-1.crate").ok();
            assert_eq!(next.stdout, "CRATE-OF-DANA\n", "{line}");
            let names: Vec<_> = std::fs::read_dir(&victim).unwrap().flatten().collect();
            assert_eq!(names.len(), 1, "{line}: {names:?}");
        }
        // Neither do the tasks of two terminals disturb each other: both see one state.
        let mut first = kit.command(&[
            "run",
            "-q",
            "--",
            &agent,
            "touch ~/.claude/a; while [ ! -e ~/.claude/b ]; do sleep 0.05; done",
        ]);
        let mut first = first.spawn().unwrap();
        inside("while [ ! -e ~/.claude/a ]; do sleep 0.05; done; touch ~/.claude/b").ok();
        assert!(first.wait().unwrap().success());
    }
}

#[test]
fn p2_a_cache_is_never_written_through() {
    for kit in kits() {
        kit.write("Cargo.toml", "");
        kit.write("package.json", "{}");
        kit.write("pyproject.toml", "");
        kit.write("go.mod", "");
        kit.write("pom.xml", "");
        let caches = [
            ".cargo/registry/cache/index-1/a-1.crate",
            ".cargo/registry/src/index-1/a-1/lib.rs",
            ".cargo/registry/index/index-1/.cache/a",
            ".npm/_cacache/content",
            ".cache/pip/http/x",
            "go/pkg/mod/cache/download/x.zip",
            ".m2/repository/x/x.jar",
        ];
        for cache in caches {
            kit.write_home(cache, "as it was\n");
        }
        // Every name by which a cache can be reached inside: the person's, and the context's own that begins from it.
        let own = [
            ".cache/cargo/registry/cache/index-1/a-1.crate",
            ".cache/cargo/registry/src/index-1/a-1/lib.rs",
            ".cache/cargo/registry/index/index-1/.cache/a",
        ];
        for name in caches.iter().chain(&own) {
            let folder = name.rsplit_once('/').unwrap().0;
            let poison = format!(
                "mkdir -p ~/{folder} 2>/dev/null; echo POISON > ~/{name}; rm -f ~/{name}; echo POISON > ~/{name}; true"
            );
            // Outside, in a copy of the home, each name can be written. What the daemon removes meanwhile is not copied.
            let copy = kit.outside().join("copy").display().to_string();
            let home = kit.home().display().to_string();
            let probe = format!(
                "cp -r {home} {copy} 2>/dev/null; export HOME={copy} && {{ {poison}; }} && cat ~/{name}; rm -rf {copy}"
            );
            assert_eq!(kit.shell_outside(&probe).ok().stdout, "POISON\n", "{name}");
            kit.shell(&poison).ok();
        }
        for cache in caches {
            assert_eq!(
                std::fs::read_to_string(kit.home().join(cache)).unwrap(),
                "as it was\n",
                "{cache}"
            );
        }
        assert!(!holds(&kit.home().join(".cargo"), "POISON") && !holds(&kit.home().join(".npm"), "POISON"));
        // Those with a way to read them are read.
        for readable in [
            ".cargo/registry/src/index-1/a-1/lib.rs",
            ".cache/cargo/registry/src/index-1/a-1/lib.rs",
            "go/pkg/mod/cache/download/x.zip",
            ".m2/repository/x/x.jar",
        ] {
            let read = kit.shell(&format!("cat ~/{readable}"));
            assert_eq!(read.ok().stdout, "as it was\n", "{readable}");
        }
    }
}

/// What a run told, wherever its lines were broken.
fn said(run: &Done) -> String {
    run.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn p13_a_kept_folder_in_a_granted_tree_stands_on_one_that_is_there_or_is_told() {
    if at_level_process() {
        skip("where nothing is mounted, a kept folder in a granted tree is a refusal");
        return;
    }
    for kit in kits() {
        let agent = program(&kit, ".local/bin/goose", "#!/bin/sh\neval \"$1\"\n");
        kit.write_home(".config/other", "OTHER\n");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\nread = [\"~/.config\", \"~/.local/share/goose\"]\n",
        );
        kit.run(&["trust"]).ok();
        kit.write_home(".local/share/goose/sessions", "SESSIONS-OF-DANA\n");
        let run = |line: &str| kit.run(&["run", "--", &agent, line]).ok();
        let told = run("cat ~/.config/other; cat ~/.local/share/goose/sessions || true");
        assert_eq!(told.stdout, "OTHER\n");
        assert!(said(&told).contains("/.config/goose` is not kept"), "{told:?}");
        assert!(
            said(&told).contains("/.local/share/goose` is granted, and kept too"),
            "{told:?}"
        );
        assert!(
            !kit.home().join(".config/goose").exists(),
            "nothing is made in the person's home"
        );
        // A link is no folder to stand on.
        kit.shell_outside("mkdir ~/elsewhere && ln -s ../elsewhere ~/.config/goose")
            .ok();
        assert!(said(&run("true")).contains("/.config/goose` is not kept"));
        kit.shell_outside("rm ~/.config/goose && mkdir ~/.config/goose").ok();
        kit.hand_over();
        run("echo x > ~/.config/goose/config.yaml");
        assert_eq!(run("cat ~/.config/goose/config.yaml").stdout, "x\n");
        assert!(!kit.home().join(".config/goose/config.yaml").exists());
    }
}
