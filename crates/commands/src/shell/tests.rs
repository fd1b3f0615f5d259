//! Lines, and what they do.

use super::*;

fn parts(line: &str) -> Vec<Part> {
    let place = Place {
        directory: "/p".into(),
        home: "/home/dana".into(),
    };
    Grammars::shipped(Vec::new()).line(line, &place)
}

/// What a line does, as words.
fn does(line: &str) -> Vec<String> {
    let said = |part: &Part| match part {
        Part::Start(command) => format!("run {command}"),
        Part::Builtin(command) => format!("shell {command}"),
        Part::Read(path) => format!("read {path}"),
        Part::Write(path) => format!("write {path}"),
        Part::Unread(_) => "?".into(),
    };
    parts(line).iter().map(said).collect()
}

#[test]
fn every_command_of_a_line_is_found() {
    for (line, want) in [
        (
            "git log -1 && touch marker",
            &["run git log -1", "run touch marker"][..],
        ),
        ("git log -1 ; touch marker", &["run git log -1", "run touch marker"]),
        (
            "git log nosuch || touch marker",
            &["run git log nosuch", "run touch marker"],
        ),
        ("git log -1 | tee marker", &["run git log -1", "run tee marker"]),
        ("git log -1 & touch marker", &["run git log -1", "run touch marker"]),
        ("git log -1\ntouch marker", &["run git log -1", "run touch marker"]),
        ("cd widget && git push", &["shell cd widget", "run git push"]),
        (
            "git diff $(touch marker)",
            &["run touch marker", "run git diff \u{fffd} …"],
        ),
        (
            "git diff `touch marker`",
            &["run touch marker", "run git diff \u{fffd} …"],
        ),
        (
            "diff <(rm a) >(rm b)",
            &["run rm a", "run rm b", "run diff /dev/fd/63 /dev/fd/63"],
        ),
        ("f() { rm x; }; f", &["run rm x"]),
        ("(f() { :; }); f", &["shell :", "run f"]),
        ("false && f() { :; }; f", &["shell false", "shell :", "run f"]),
        ("f() { :; }; command f", &["shell :", "run f"]),
        ("(rm x) > y", &["run rm x", "write /p/y"]),
        (
            "if rm a; then rm b; elif rm c; then rm d; else rm e; fi",
            &["run rm a", "run rm b", "run rm c", "run rm d", "run rm e"],
        ),
        ("for x in $(rm a); do rm b; done", &["run rm a", "run rm b"]),
        ("while rm a; do rm b; done", &["run rm a", "run rm b"]),
        ("case $(rm a) in x) rm b;; esac", &["run rm a", "run rm b"]),
        ("[[ -f $(rm a) ]]", &["run rm a"]),
        ("x=$(rm a)", &["run rm a"]),
        ("! rm a", &["run rm a"]),
        ("time rm a", &["run rm a"]),
        ("exec rm a", &["run rm a"]),
        ("command rm a", &["run rm a"]),
        ("\\rm a", &["run rm a"]),
        ("r\"m\" 'a b'", &["run rm 'a b'"]),
        ("trap 'rm a' EXIT", &["shell trap 'rm a' EXIT", "run rm a"]),
        ("coproc rm a", &["run rm a"]),
    ] {
        assert_eq!(does(line), want, "{line}");
    }
}

#[test]
fn nested_shells_are_read_by_what_they_run() {
    for (line, want) in [
        (
            "bash -c \"rm -r keep\"",
            &["run bash -c 'rm -r keep'", "run rm -r keep"][..],
        ),
        ("bash -lc \"ls keep\"", &["run bash -lc 'ls keep'", "run ls keep"]),
        ("eval \"rm -r keep\"", &["shell eval 'rm -r keep'", "run rm -r keep"]),
        ("bash <<'END'\nrm -r keep\nEND", &["run bash", "run rm -r keep"]),
        ("sh <<< 'rm x'", &["run sh", "run rm x"]),
        (
            "printf 'rm -r keep\\n' | sh",
            &["shell printf $'rm -r keep\\\\n'", "run sh", "run rm -r keep"],
        ),
        ("cat x | sh", &["run cat x", "run sh", "?"]),
        ("bash -c \"$X\"", &["run bash -c \u{fffd} …", "?"]),
        ("eval $X", &["shell eval \u{fffd}", "?"]),
        ("$X a", &["?"]),
        (". ./x", &["shell . ./x", "?"]),
        ("bash x.sh", &["run bash x.sh"]),
        (
            "sh -c 'sh -c \"rm x\"'",
            &["run sh -c 'sh -c \"rm x\"'", "run sh -c 'rm x'", "run rm x"],
        ),
        ("echo 'a", &["?"]),
        ("printf '%s' x | sh", &["shell printf %s x", "run sh", "?"]),
        (
            "ls | xargs -I{} sh -c '{}'",
            &["run ls", "run xargs '-I{}' sh -c '{}'", "?"],
        ),
        ("alias ls='rm x'", &["shell alias 'ls=rm x'", "?"]),
        ("hash -p ./x git", &["shell hash -p ./x git", "?"]),
        ("test -v 'a[$(rm x)]'", &["shell test -v 'a[$(rm x)]'", "?"]),
        ("trap -- 'rm x' EXIT", &["shell trap -- 'rm x' EXIT", "run rm x"]),
    ] {
        let found = does(line);
        let found: Vec<String> = found
            .iter()
            .map(|text| text.replace("'rm -r keep\\n'", "$'rm -r keep\\\\n'"))
            .collect();
        assert_eq!(found, want, "{line}");
    }
}

#[test]
fn quoted_text_is_data() {
    for line in [
        "git commit --allow-empty -m \"say why git push && rm -rf x is refused\"",
        "git commit -m \"$(cat <<'END'\nwhy `rm x` and a \" mark\ngit push origin\nEND\n)\"",
        "cat > note.md <<'END'\nrm -r keep\nEND",
    ] {
        let found = does(line);
        assert!(
            found
                .iter()
                .all(|text| !text.starts_with("run rm") && !text.contains("run git push") && text != "?"),
            "{found:?}"
        );
    }
    assert_eq!(does("cat <<END\n$(rm x)\nEND"), ["run rm x", "run cat"]);
}

#[test]
fn redirections_are_files() {
    for (line, want) in [
        ("echo x > .profile", &["write /p/.profile", "shell echo x"][..]),
        (
            "echo x >> .git/hooks/pre-commit",
            &["write /p/.git/hooks/pre-commit", "shell echo x"],
        ),
        ("echo x > out/../b.txt", &["write /p/b.txt", "shell echo x"]),
        ("echo x 2> err.txt", &["write /p/err.txt", "shell echo x"]),
        ("echo x 2>/dev/null", &["shell echo x"]),
        ("echo x >&2 2>&1", &["shell echo x"]),
        ("echo x >& all", &["write /p/all", "shell echo x"]),
        ("echo x &> ~/all", &["write /home/dana/all", "shell echo x"]),
        ("wc < /etc/passwd", &["read /etc/passwd", "run wc"]),
        ("echo x > $F", &["?", "shell echo x"]),
        (
            "cd out && echo x > a",
            &["shell cd out", "write /p/out/a", "shell echo x"],
        ),
        ("(cd out); echo x > a", &["shell cd out", "write /p/a", "shell echo x"]),
        (
            "cd out | cat; echo x > a",
            &["shell cd out", "run cat", "write /p/a", "shell echo x"],
        ),
        ("cd $X; echo x > a", &["shell cd \u{fffd}", "?", "shell echo x"]),
        (
            "ls || cd out; echo x > a",
            &["run ls", "shell cd out", "?", "shell echo x"],
        ),
        (
            "if ls; then cd out; fi; echo x > a",
            &["run ls", "shell cd out", "?", "shell echo x"],
        ),
        ("echo x > /dev/tcp/h/1", &["?", "shell echo x"]),
    ] {
        assert_eq!(does(line), want, "{line}");
    }
}

#[test]
fn p5_variables_count_for_what_follows() {
    for line in [
        "GIT_PAGER=./x git log",
        "export GIT_PAGER=./x; git log",
        "GIT_PAGER=./x; git log",
        "export GIT_PAGER; read GIT_PAGER; git log",
        "GIT_PAGER+=x git log",
        "env GIT_PAGER=./x git log",
        "for GIT_PAGER in a b; do git log; done",
    ] {
        let steered = parts(line).iter().any(|part| {
            matches!(part, Part::Start(command) if command.forms().iter().any(|form| form.names.contains("git") && !form.steering.is_empty()))
        });
        assert!(steered, "{line}");
    }
    let Some(Part::Start(command)) = parts("PATH=./x:$PATH git log").pop() else {
        panic!("a start")
    };
    assert!(
        command.forms()[0].licensed.is_empty(),
        "another `PATH` may find another git"
    );
}

#[test]
fn p4_words_known_at_run_time_only_are_doubt() {
    let cut = |line: &str| match parts(line).pop() {
        Some(Part::Start(command)) => command.forms()[0].cut,
        other => panic!("{other:?}"),
    };
    assert!(cut("git log $X") && cut("rm *") && cut("rm {a,b}") && cut("git -C $X log"));
    assert!(!cut("git -C \"$X\" log") && !cut("git commit -m \"$(date)\"") && !cut("rm '*' {}"));
}

#[test]
fn p4_limits_hold() {
    assert_eq!(does(&"a;".repeat(40_000)), ["?"]);
    assert_eq!(does(&"(".repeat(200)), ["?"]);
    assert_eq!(does(&"ls;".repeat(1000)), ["?"]);
    let deep = format!("{}ls{}", "$(echo ".repeat(20), ")".repeat(20));
    assert!(does(&deep).contains(&"?".to_owned()) && !does(&deep).contains(&"run ls".to_owned()));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(96))]

    #[test]
    fn p4_no_line_is_too_odd(line in "(git|rm|sh -c|eval|\\$\\(|\\)|`|'|\"|<<E|E\n|\\{|\\}|;|&&|\\||>|<|\\$x|\\$\\{x|\\[\\[|if|then|fi|for|do|\\PC| |\n){0,24}") {
        proptest::prop_assert!(parts(&line).len() <= MAX_PARTS);
    }

    #[test]
    fn p5_a_line_does_what_its_commands_do_one_by_one(
        commands in proptest::collection::vec("(git log|git push -f|rm -r a|env ls|touch 'a;b'|echo x > y|TZ=UTC date)", 1..5),
        joins in proptest::collection::vec("( && | \\|\\| |; | \\| |\n)", 5),
    ) {
        let mut line = String::new();
        let mut alone = Vec::new();
        for (place, command) in commands.iter().enumerate() {
            if place > 0 {
                line.push_str(&joins[place]);
            }
            line.push_str(command);
            alone.extend(does(command));
        }
        proptest::prop_assert_eq!(does(&line), alone);
    }
}
