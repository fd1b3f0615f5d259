//! Commands: whatever line they stand in and whoever starts them, what really starts is judged.

use bailiwick_testkit::{Bailiwick, Done};

use crate::{kits, records, trust};

const PERSON: &str = "[user]\n\tname = Dana\n\temail = dana@example.test\n[safe]\n\tdirectory = *\n";

fn repository(kit: &Bailiwick) {
    kit.write_home(".gitconfig", PERSON);
    kit.write("a.txt", "one\n");
    kit.shell_outside("git init -q -b main . && git add a.txt && git commit -q -m begin")
        .ok();
    kit.hand_over();
}

/// Insists that a line makes the file `marker` outside, and not inside.
#[track_caller]
fn no_marker(kit: &Bailiwick, line: &str) -> Done {
    let marker = kit.project().join("marker");
    kit.shell_outside(line);
    assert!(marker.exists(), "the probe must work outside: `{line}`");
    std::fs::remove_file(&marker).unwrap();
    let done = kit.shell(line);
    assert!(!marker.exists(), "`{line}`: {} {}", done.stdout, done.stderr);
    done
}

/// What was refused, as it is on record.
fn refused(kit: &Bailiwick) -> String {
    records(kit, &["--denied"]).iter().map(ToString::to_string).collect()
}

#[test]
fn c001_every_part_of_a_line_needs_its_own_permission() {
    for kit in kits() {
        repository(&kit);
        trust(&kit, "extends = [\"coding\"]\n[commands]\nallow = [\"git log\"]\n");
        for line in [
            "git log -1 && touch marker",
            "git log -1 ; touch marker",
            "git log nosuch || touch marker",
            "git log -1 & touch marker; wait",
            "git log -1\ntouch marker",
        ] {
            let done = no_marker(&kit, line);
            assert!(done.stderr.contains("touch"), "{}", done.stderr);
        }
        let done = no_marker(&kit, "git log -1 | tee marker");
        assert!(done.stderr.contains("tee"), "{}", done.stderr);
        let refused = refused(&kit);
        assert!(refused.contains("touch") && refused.contains("tee"), "{refused}");
        assert!(kit.shell("git log -1 --format=%s").ok().stdout.contains("begin"));
    }
}

#[test]
fn c002_push_is_push_however_it_is_spelled() {
    for kit in kits() {
        kit.write_home(".gitconfig", PERSON);
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"git\", \"**\"]\ndeny = [\"git push\"]\n",
        );
        let make = "rm -rf widget remote.git; git init -q --bare remote.git && git init -q -b main widget && cd widget && \
            git commit -q --allow-empty -m one && git remote add origin ../remote.git && git push -q -u origin main && \
            git commit -q --allow-empty -m two";
        kit.shell_outside(make).ok();
        kit.hand_over();
        let head = || kit.shell_outside("git -C remote.git rev-parse main").ok().stdout;
        let before = head();
        let lines = [
            "git -C widget push origin main",
            "cd widget && git push",
            "cd widget && git --no-pager push",
            "cd widget && git fetch && git status && git push",
            "cd widget && git -c color.ui=false push",
            "cd widget && git -c alias.p=push p",
            "cd widget && $(command -v git) push",
            "cd widget && cp $(readlink -f $(command -v git)) ./own && ./own push",
        ];
        for line in lines {
            kit.shell_outside(line);
            assert_ne!(head(), before, "the probe must work outside: {line}");
            kit.shell_outside(&format!(
                "git -C remote.git update-ref refs/heads/main {}",
                before.trim()
            ))
            .ok();
            kit.hand_over();
            kit.shell(line);
            assert_eq!(head(), before, "{line}");
        }
        assert!(
            kit.shell("cd widget && git log --format=%s -1")
                .ok()
                .stdout
                .contains("two")
        );
    }
}

#[test]
fn c004_a_launcher_brings_no_licence_for_what_it_starts() {
    for kit in kits() {
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"env\", \"nice\", \"timeout\", \"setsid\", \"xargs\", \"echo\"]\n\
             deny = [\"touch\"]\n",
        );
        for line in [
            "env touch marker",
            "timeout 5 nice touch marker",
            "setsid -w touch marker",
            "echo marker | xargs touch",
            "env -S 'touch marker'",
        ] {
            no_marker(&kit, line);
        }
        let refused = refused(&kit);
        assert!(refused.contains("touch"), "{refused}");
        assert_eq!(kit.shell("env echo free").ok().stdout, "free\n");
    }
}

#[test]
fn c006_nested_shells_are_judged_by_what_they_run() {
    for kit in kits() {
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"bash\", \"sh\", \"printf\", \"ls\"]\ndeny = [\"rm\"]\n",
        );
        let keep = kit.project().join("keep");
        for line in [
            "bash -c 'rm -r keep'",
            "eval 'rm -r keep'",
            "printf 'rm -r keep\\n' | sh",
            "bash <<'END'\nrm -r keep\nEND",
            "bash -c \"$(printf 'cm0gLXIga2VlcAo=' | base64 -d)\" || rm -r keep",
        ] {
            kit.shell_outside("mkdir -p keep").ok();
            kit.hand_over();
            kit.shell_outside(line);
            assert!(!keep.exists(), "the probe must work outside: {line}");
            kit.shell_outside("mkdir -p keep").ok();
            kit.hand_over();
            kit.shell(line);
            assert!(keep.exists(), "{line}");
        }
        kit.write("keep/inside", "");
        assert_eq!(kit.shell("bash -lc 'ls keep' 2>/dev/null").ok().stdout, "inside\n");
    }
}

#[test]
fn c007_read_only_is_a_property_of_the_whole_command() {
    for kit in kits() {
        repository(&kit);
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"@read-only\"]\nask = [\"**\"]\n",
        );
        kit.write("in.txt", "b\na\n");
        kit.write("a.txt", "two\n");
        let run = |line: &str| kit.run(&["run", "-q", "--no-ask", "--", "bash", "-c", line]);
        for line in [
            "find . -name '*.tmp' -delete",
            "find . -name in.txt -exec touch marker {} +",
            "sed -n '1w out.txt' in.txt",
            "sed -i s/a/b/ in.txt",
            "sort -o in.txt in.txt",
            "git diff --output=out.txt",
        ] {
            kit.write("old.tmp", "");
            let changed = || {
                let text = std::fs::read_to_string(kit.project().join("in.txt")).unwrap();
                let there = |name: &str| kit.project().join(name).exists();
                text != "b\na\n" || !there("old.tmp") || there("marker") || there("out.txt")
            };
            kit.shell_outside(line).ok();
            assert!(changed(), "the probe must work outside: {line}");
            kit.shell_outside("rm -f marker out.txt").ok();
            kit.write("in.txt", "b\na\n");
            kit.write("old.tmp", "");
            run(line);
            assert!(!changed(), "{line}");
        }
        assert!(run("find . -name '*.tmp'").ok().stdout.contains("old.tmp"));
        assert_eq!(run("sed -n 1p in.txt").ok().stdout, "b\n");
    }
}

#[test]
fn c009_variables_that_steer_a_program_are_part_of_the_command() {
    for kit in kits() {
        repository(&kit);
        let grab = kit.write("grab.sh", "#!/bin/sh\ntouch marker\n");
        std::fs::set_permissions(&grab, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        kit.write("ok.sh", "true\n");
        kit.write("a.txt", "two\n");
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"git log\", \"git fetch\", \"bash ok.sh\", \"env\"]\n",
        );
        for (line, variable) in [
            (
                "GIT_SSH_COMMAND=./grab.sh git fetch ssh://h.example.test/r",
                "GIT_SSH_COMMAND",
            ),
            ("BASH_ENV=./grab.sh bash ok.sh", "BASH_ENV"),
            ("GIT_PAGER=./grab.sh git -p log", "GIT_PAGER"),
            (
                "env GIT_EXTERNAL_DIFF=./grab.sh git log -p --ext-diff -1 --root -- a.txt",
                "GIT_EXTERNAL_DIFF",
            ),
        ] {
            let marker = kit.project().join("marker");
            if variable != "GIT_PAGER" {
                // Git takes a pager on a terminal alone.
                kit.shell_outside(line);
                assert!(marker.exists(), "the probe must work outside: {line}");
                std::fs::remove_file(&marker).unwrap();
            }
            kit.shell(line);
            assert!(!marker.exists(), "{line}");
            let refused = refused(&kit);
            assert!(refused.contains(variable), "{variable}: {refused}");
        }
        kit.shell("git log -1 && bash ok.sh").ok();
    }
}

#[test]
fn c010_a_line_of_permitted_parts_is_permitted() {
    for kit in kits() {
        repository(&kit);
        kit.write("a.txt", "two\n");
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"date\", \"git diff\", \"git merge-base\", \"head\", \"true\"]\n",
        );
        assert_eq!(kit.shell("TZ=UTC date +%H").ok().stdout.len(), 3);
        assert!(
            kit.shell("git diff $(git merge-base HEAD HEAD)")
                .ok()
                .stdout
                .contains("+two")
        );
        assert!(kit.shell("git diff | head -3").ok().stdout.contains("diff --git"));
        assert!(kit.shell("LANG=C git diff && true").ok().stdout.contains("+two"));
        no_marker(&kit, "git diff $(touch marker)");
    }
}

#[test]
fn c011_quoted_words_are_no_commands() {
    for kit in kits() {
        repository(&kit);
        kit.shell_outside("mkdir keep").ok();
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"git commit\", \"cat\", \"git log\"]\ndeny = [\"git push\", \"rm\"]\n",
        );
        kit.hand_over();
        let message = "say why git push && rm -rf x is refused";
        kit.shell(&format!("git commit -q --allow-empty -m \"{message}\"")).ok();
        assert_eq!(kit.shell("git log -1 --format=%s").ok().stdout.trim(), message);
        let text = "an odd \" quote, `rm -r keep`\ngit push origin\n";
        kit.shell(&format!(
            "git commit -q --allow-empty -m \"$(cat <<'END'\n{text}END\n)\""
        ))
        .ok();
        assert_eq!(kit.shell("git log -1 --format=%B").ok().stdout.trim(), text.trim());
        kit.shell("cat > note.md <<'END'\nrm -r keep\nEND").ok();
        assert_eq!(
            std::fs::read_to_string(kit.project().join("note.md")).unwrap(),
            "rm -r keep\n"
        );
        assert!(kit.project().join("keep").exists());
    }
}

#[test]
fn c013_a_redirect_is_a_write() {
    for kit in kits() {
        repository(&kit);
        kit.shell_outside("mkdir out").ok();
        kit.hand_over();
        trust(
            &kit,
            "extends = [\"readonly\"]\n[files]\nwrite = [\"out\"]\n[commands]\nallow = [\"git show\", \"echo\"]\n",
        );
        for (line, made) in [
            ("git show HEAD > .profile", ".profile"),
            ("echo x >> .git/hooks/pre-commit", ".git/hooks/pre-commit"),
            ("echo x > out/../b.txt", "b.txt"),
            ("echo x 2> err.txt", "err.txt"),
        ] {
            let made = kit.project().join(made);
            kit.shell_outside(line).ok();
            assert!(made.exists(), "the probe must work outside: {line}");
            std::fs::remove_file(&made).unwrap();
            kit.shell(line);
            assert!(!made.exists(), "{line}");
        }
        kit.shell("echo x > out/a.txt").ok();
        assert_eq!(std::fs::read_to_string(kit.project().join("out/a.txt")).unwrap(), "x\n");
        kit.shell("echo x 2>/dev/null").ok();
    }
}

#[test]
fn c015_a_pattern_means_no_more_than_it_says() {
    for kit in kits() {
        let own = "#!/bin/sh\ntouch marker\n";
        for place in ["lsx", "bin/lsx"] {
            let program = kit.write(place, own);
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        trust(
            &kit,
            "extends = [\"coding\"]\n[commands]\nallow = [\"ls\", \"rm -r build\"]\n",
        );
        no_marker(&kit, "PATH=$PWD/bin:$PATH lsx; PATH=$PWD/bin:$PATH; lsx");
        no_marker(&kit, "./lsx");
        let make = || {
            kit.shell_outside("mkdir -p build keep ../keep").ok();
            kit.hand_over();
        };
        make();
        assert!(kit.shell("ls -la").ok().stdout.contains("build"));
        let keep = kit.project().join("keep");
        for line in [
            "rm -r build keep",
            "rm -r keep build",
            "rm -rf build keep",
            "rm -r build --no-preserve-root keep",
        ] {
            make();
            kit.shell_outside(line);
            assert!(!keep.exists(), "the probe must work outside: {line}");
            make();
            kit.shell(line);
            assert!(keep.exists(), "{line}");
        }
        make();
        kit.shell("rm -r build").ok();
        assert!(!kit.project().join("build").exists());
    }
}

#[test]
fn c074_what_was_refused_to_a_program_or_a_file_is_known_inside_by_code_and_id() {
    for kit in kits() {
        repository(&kit);
        trust(&kit, "extends = [\"coding\"]\n[commands]\ndeny = [\"touch\"]\n");
        let product = kit.program();
        for line in ["touch x", "echo x > .git/hooks/pre-commit", "mkdir -p sub/.git/hooks"] {
            let done = kit.shell(&format!("{line}; {product} last"));
            let id = done.stdout.trim().strip_prefix("denied-by-rule ").map(str::to_owned);
            let id = id.unwrap_or_else(|| panic!("{line}: {} {}", done.stdout, done.stderr));
            let why = kit.run(&["explain", &id]).stdout;
            assert!(why.contains("denied-by-rule"), "{line}: {why}");
            assert!(
                !done.stdout.contains("rule:") && !done.stdout.contains("toml"),
                "{}",
                done.stdout
            );
        }
    }
}
