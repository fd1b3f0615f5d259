//! Files: one rule for every way to read, links, nested rules, the rules' own file, large trees.

use std::os::unix::fs::symlink;

use crate::{kits, trust};

#[test]
fn c016_a_hidden_file_is_hidden_from_every_way_of_reading() {
    for kit in kits() {
        kit.write("app.txt", "APPTEXT\n");
        kit.write(".env", "K=demo\n");
        kit.write_home(
            ".gitconfig",
            "[user]\n\tname = Dana\n\temail = dana@example.test\n[safe]\n\tdirectory = *\n",
        );
        kit.shell_outside("git init -q -b main . && git add app.txt && git commit -q -m begin")
            .ok();
        kit.hand_over();
        let ways = [
            "cat .env app.txt",
            "python3 -c \"print(open('app.txt').read()); print(open('.env').read())\"",
            "grep -r . . --exclude-dir=.git",
            "cat app.txt; cp .env copy.txt; cat copy.txt",
            "tar cf - .env app.txt | strings",
            "git add -f .env; git show :.env; git show :app.txt",
            "cat app.txt; ln .env hard.txt; ln -s .env soft.txt; cat hard.txt soft.txt; ln -s $PWD/.env /tmp/e; cat /tmp/e",
            "cat app.txt; mv .env moved.txt; cat moved.txt; mv moved.txt .env",
            "cat app.txt; node -e \"console.log(require('fs').readFileSync('.env', 'utf8'))\"",
            "cat app.txt; dd if=.env 2>/dev/null; cat /proc/self/cwd/.env /proc/self/root$PWD/.env ./././.env",
        ];
        let clean = "rm -f copy.txt hard.txt soft.txt /tmp/e moved.txt; git rm -q --cached .env; true";
        for way in ways {
            let outside = kit.shell_outside(way).stdout;
            kit.shell_outside(clean);
            kit.hand_over();
            assert!(
                outside.contains("K=demo") && outside.contains("APPTEXT"),
                "{way}: {outside}"
            );
        }
        for way in ways {
            let inside = kit.shell(way);
            let all = format!("{}{}", inside.stdout, inside.stderr);
            assert!(
                !all.contains("K=demo") && inside.stdout.contains("APPTEXT"),
                "{way}: {all}"
            );
            let kept = kit
                .shell_outside("grep -rl K=demo . ; git cat-file --batch-all-objects --batch | grep -c K=demo; true")
                .stdout;
            // `git add` outside left its object; no file but the one itself has the text.
            assert_eq!(kept.lines().next(), Some("./.env"), "{way}: {kept}");
            assert_eq!(
                kept.lines().filter(|line| line.starts_with("./")).count(),
                1,
                "{way}: {kept}"
            );
            kit.shell_outside("rm -f copy.txt hard.txt soft.txt");
        }
        assert_eq!(std::fs::read_to_string(kit.project().join(".env")).unwrap(), "K=demo\n");
    }
}

#[test]
fn c017_what_a_link_leads_to_counts() {
    for kit in kits() {
        kit.write("work/app.txt", "APPTEXT\n");
        kit.write("private/n.txt", "PRIVATE\n");
        kit.write_home("dot/bashrc", "# mine\n");
        symlink("dot/bashrc", kit.home().join(".bashrc")).unwrap();
        kit.hand_over();
        trust(
            &kit,
            "extends = [\"readonly\"]\n[files]\nwrite = [\"work\", \"~/dot\"]\nread = [\"~/.bashrc\"]\ndeny = [\"private\"]\n",
        );
        let read = "ln -sf ../private/n.txt work/l; cat work/l";
        let write = "ln -sfn ../private work/d; echo x > work/d/new.txt && echo WROTE";
        let start = [
            "echo x >> ~/.bashrc && echo WROTE",
            "echo x >> ~/dot/bashrc && echo WROTE",
        ];
        let clean = "rm -rf work/l work/d private/new.txt; echo '# mine' > ~/dot/bashrc";
        assert!(kit.shell_outside(read).ok().stdout.contains("PRIVATE"));
        for line in [write, start[0], start[1]] {
            assert!(kit.shell_outside(line).ok().stdout.contains("WROTE"), "{line}");
        }
        kit.shell_outside(clean).ok();
        kit.hand_over();

        assert_eq!(
            kit.shell("echo started; cat ~/.bashrc work/app.txt").ok().stdout,
            "started\n# mine\nAPPTEXT\n"
        );
        for line in [read, write, start[0], start[1]] {
            let inside = kit.shell(line);
            assert!(inside.status != 0, "{line}: {inside:?}");
            assert!(
                !inside.stdout.contains("PRIVATE") && !inside.stdout.contains("WROTE"),
                "{line}: {inside:?}"
            );
        }
        assert!(!kit.project().join("private/new.txt").exists());
        assert_eq!(
            std::fs::read_to_string(kit.home().join("dot/bashrc")).unwrap(),
            "# mine\n"
        );
        assert!(
            std::fs::read_link(kit.home().join(".bashrc")).is_ok(),
            "the link is still one"
        );
    }
}

#[test]
fn c019_no_rename_and_no_link_carries_a_file_into_or_out_of_a_protected_place() {
    for (place, kit) in kits().into_iter().enumerate() {
        kit.write("keys/a", "KEYTEXT\n");
        kit.shell_outside("git init -q -b main . && mkdir -p .git/hooks").ok();
        kit.hand_over();
        trust(&kit, "extends = [\"coding\"]\n[files]\ndeny = [\"keys\"]\n");
        let steps = [
            "echo x > .git/t && mv .git/t .git/hooks/pre-commit",
            "ln keys/a out.txt && cat out.txt",
            "mv keys moved && cat moved/a",
            "mv .git/hooks .git/h2 && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
        ];
        for step in steps {
            let outside = kit.shell_outside(&format!(
                "rm -rf ../copy && cp -a . ../copy && cd ../copy && {step}; cat .git/hooks/pre-commit"
            ));
            let done = outside.stdout.contains("KEYTEXT") || outside.stdout.ends_with("x\n");
            assert!(done, "{step}: {outside:?}");
        }
        // Root's fences need namespaces; an ordinary user's are tried with and without.
        let both: &[&str] = &["namespace", "process"];
        let levels = match (bailiwick_testkit::level().as_deref(), place) {
            (Some("process"), _) => &both[1..],
            (_, 0) => &both[..1],
            _ => both,
        };
        for level in levels {
            for step in steps {
                let inside = kit.run(&["run", "-q", "--level", level, "--", "sh", "-c", step]);
                assert_ne!(inside.status, 0, "{level}: {step}: {inside:?}");
                assert_ne!(inside.status, 125, "{level}: {step}: {inside:?}");
                let all = format!("{}{}", inside.stdout, inside.stderr);
                assert!(!all.contains("KEYTEXT"), "{level}: {step}: {all}");
                let hook = kit.project().join(".git/hooks/pre-commit");
                assert!(hook.symlink_metadata().is_err(), "{level}: {step}: a hook was planted");
                let key = std::fs::read_to_string(kit.project().join("keys/a"));
                assert_eq!(key.unwrap(), "KEYTEXT\n", "{level}: {step}");
            }
        }
    }
}

#[test]
fn c020_nested_rules_hold_as_written_and_refused_writes_fail_aloud() {
    for kit in kits() {
        kit.write(
            "proj/bailiwick.toml",
            "extends = [\"readonly\"]\n[files]\nwrite = [\"out\"]\ndeny = [\"keys\"]\n",
        );
        kit.write("proj/keys/a", "KEY\n");
        kit.write("proj/out/old", "OLD\n");
        kit.write("beside.txt", "BESIDE\n");
        let steps = "pwd; cat keys/a; touch keys/b; echo keys $?; touch out/c; echo out $?; touch here; echo here $?; ls ..; echo list $?; cat ../beside.txt";
        let run = |product: bool| {
            let mut command = if product {
                kit.command(&["run", "-q", "--", "sh", "-c", steps])
            } else {
                let mut command = kit.outside_command("sh");
                command.args(["-c", steps]);
                command
            };
            command.current_dir(kit.project().join("proj"));
            bailiwick_testkit::finish(command, std::time::Duration::from_secs(60))
        };
        let mut command = kit.command(&["trust"]);
        command.current_dir(kit.project().join("proj"));
        bailiwick_testkit::finish(command, std::time::Duration::from_secs(60)).ok();

        let outside = run(false).ok().stdout;
        for word in ["KEY", "keys 0", "out 0", "here 0", "list 0", "BESIDE"] {
            assert!(outside.contains(word), "{word}: {outside}");
        }
        for left in ["keys/b", "out/c", "here"] {
            std::fs::remove_file(kit.project().join("proj").join(left)).unwrap();
        }
        let inside = run(true).stdout;
        assert!(inside.lines().next().unwrap().ends_with("/proj"), "{inside}");
        for word in ["KEY", "keys 0", "here 0", "list 0", "BESIDE"] {
            assert!(!inside.contains(word), "{word}: {inside}");
        }
        assert!(
            inside.contains("out 0") && kit.project().join("proj/out/c").exists(),
            "{inside}"
        );
        assert!(!kit.project().join("proj/keys/b").exists() && !kit.project().join("proj/here").exists());
    }
}

#[test]
fn c021_the_rules_cannot_be_changed_from_inside() {
    for kit in kits() {
        kit.write_home(
            ".gitconfig",
            "[user]\n\tname = Dana\n\temail = dana@example.test\n[safe]\n\tdirectory = *\n",
        );
        let wide = "extends = [\"coding\"]\n[files]\nread = [\"~/private\"]\n";
        let narrow = "extends = [\"coding\"]\n[files]\ndeny = [\"secret\"]\n";
        kit.write_home("private/p.txt", "PRIVATE\n");
        kit.write("secret/s.txt", "SECRET\n");
        kit.write("bailiwick.toml", wide);
        kit.shell_outside("git init -q -b main . && git add -A && git commit -q -m wide")
            .ok();
        trust(&kit, narrow);
        kit.shell_outside("git commit -q -a -m narrow").ok();
        kit.hand_over();
        let product = kit.program();
        kit.shell_outside(&format!("cp {product} ./own-copy")).ok();
        let attempts = [
            "cat wide.txt > bailiwick.toml",
            "sed -i s/secret/nothing/ bailiwick.toml",
            "cp wide.txt new.toml && mv -f new.toml bailiwick.toml",
            "rm -f bailiwick.toml",
            "mv bailiwick.toml away.toml",
            "git checkout -q HEAD~1 -- bailiwick.toml",
            "ln bailiwick.toml other.toml && cat wide.txt > other.toml",
            "chmod 666 bailiwick.toml && cat wide.txt > bailiwick.toml",
            "python3 -c \"open('bailiwick.toml', 'r+').write('# ')\"",
        ];
        kit.write("wide.txt", wide);
        for attempt in attempts {
            // Each would work without the fence, in a copy.
            let line = format!(
                "rm -rf ../copy; cp -a . ../copy; cd ../copy; {attempt}; cmp -s bailiwick.toml ../project/bailiwick.toml && echo SAME; true"
            );
            assert!(!kit.shell_outside(&line).ok().stdout.contains("SAME"), "{attempt}");
        }
        let rules = kit.project().join("bailiwick.toml");
        for attempt in attempts.iter().chain(&[
            "mv ../project ../project2",
            "cd .. && rm -rf project/bailiwick.toml",
            "./own-copy trust",
            "XDG_STATE_HOME=/tmp/s ./own-copy trust && exit 1",
        ]) {
            let inside = kit.shell(attempt);
            assert!(inside.status != 0, "{attempt}: {inside:?}");
            assert_eq!(std::fs::read_to_string(&rules).unwrap(), narrow, "{attempt}");
            let still = kit.shell("cat secret/s.txt ~/private/p.txt");
            assert_eq!(still.stdout, "", "{attempt}");
        }
        // Writing, replacing and linking are on record; removing and changing modes fail in the kernel.
        let denied: String = crate::records(&kit, &["--denied"])
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(denied.contains("bailiwick.toml"), "{denied}");
        // What a person changes holds from the next start.
        trust(&kit, wide);
        assert_eq!(
            kit.shell("cat secret/s.txt ~/private/p.txt").ok().stdout,
            "SECRET\nPRIVATE\n"
        );
    }
}

#[test]
fn c075_hidden_files_of_a_large_tree_are_hidden_in_every_run() {
    for kit in kits() {
        let mut hidden = Vec::new();
        for folder in 0..1000 {
            let path = kit.project().join(format!("t/{}/{folder}", folder / 40));
            std::fs::create_dir_all(&path).unwrap();
            for file in 0..20 {
                std::fs::write(path.join(format!("f{file}")), "").unwrap();
            }
            if folder % 85 == 0 {
                std::fs::write(path.join(".env"), "K=demo\n").unwrap();
                hidden.push(format!("t/{}/{folder}/.env", folder / 40));
            }
        }
        assert_eq!(hidden.len(), 12);
        trust(
            &kit,
            "extends = [\"coding\"]\n[files]\ndeny = [\"**/.env\", \"**/*.pem\", \"**/*.key\", \"**/id_rsa\", \"**/id_ed25519\", \
             \"**/.npmrc\", \"**/.netrc\", \"**/secrets.json\", \"**/*.p12\", \"**/credentials\"]\n",
        );
        let read = format!("cat {}", hidden.join(" "));
        assert_eq!(kit.shell_outside(&read).ok().stdout, "K=demo\n".repeat(12));
        for _ in 0..2 {
            let inside = kit.shell(&format!("{read}; find t -type f | wc -l"));
            assert_eq!(inside.stdout.trim(), "20012", "{}", inside.stderr.len());
        }
        // A file that a person makes between two runs is hidden in the next.
        kit.write("new/.env", "K=1\n");
        let inside = kit.shell("cat new/.env");
        assert!(inside.status != 0 && inside.stdout.is_empty(), "{inside:?}");
        // The agent makes none, by whatever name it begins with.
        for made in [
            "mkdir own && echo K=1 > own/.env && cat own/.env",
            "mkdir own2; echo K=1 > own2/e; mv own2/e own2/.env; cat own2/.env",
            "mkdir own3; echo K=1 > own3/e; ln own3/e own3/.env; ln -s e own3/x.pem; cat own3/.env own3/x.pem",
            "mkdir -p own4/a && cp -r t/0/1 own4/a/.env; ls own4/a/.env",
        ] {
            assert!(kit.shell_outside(made).ok().stdout.lines().next().is_some(), "{made}");
            kit.shell_outside("rm -rf own own2 own3 own4");
            let inside = kit.shell(made);
            assert!(inside.status != 0 && inside.stdout.is_empty(), "{made}: {inside:?}");
            kit.shell_outside("rm -rf own own2 own3 own4");
        }
    }
}
