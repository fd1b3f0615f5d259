//! Commands and lines for a shell, as the hook and `can` answer about them: every part by itself, and by what it does.

use std::io::Write;
use std::process::Stdio;

use bailiwick_testkit::Bailiwick;
use serde_json::{Value, json};

use crate::trust;

/// What a project allows beside commands.
const FILES: &str = "[files]\nread = [\".\"]\n";

/// A project with these rules for commands and nothing else.
fn project(commands: &str) -> Bailiwick {
    let kit = Bailiwick::new();
    trust(&kit, &format!("{FILES}[commands]\n{commands}\n"));
    kit
}

/// What a hook answers about a call, as its harness reads it.
fn hook(kit: &Bailiwick, harness: &str, call: &Value) -> Option<Value> {
    let mut command = kit.command(&["hook", harness]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(call.to_string().as_bytes())
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    (!said.trim().is_empty()).then(|| serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}")))
}

/// What Claude Code is told about a line: the decision and the reason.
fn told(kit: &Bailiwick, line: &str) -> (String, String) {
    let call = json!({
        "session_id": "s", "transcript_path": "/tmp/t", "cwd": kit.project(), "permission_mode": "default",
        "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": line },
    });
    let Some(answer) = hook(kit, "claude-code", &call) else {
        return ("none".into(), String::new());
    };
    let said = &answer["hookSpecificOutput"];
    assert_eq!(said["hookEventName"], "PreToolUse");
    let text = |key: &str| said[key].as_str().unwrap().to_owned();
    (text("permissionDecision"), text("permissionDecisionReason"))
}

/// Holds both answers to what is wanted; where it is no, the message names these words.
fn answers(kit: &Bailiwick, line: &str, want: &str, names: &str) {
    let (decision, reason) = told(kit, line);
    assert_eq!(decision, want, "the hook about {line:?}: {reason}");
    assert!(want == "allow" || reason.contains(names), "{line:?}: {reason}");
    assert!(
        !reason.contains("bailiwick.toml") && !reason.contains("commands]"),
        "no rule is told: {reason}"
    );
    let can = kit.run(&["can", &format!("run {line}")]);
    let status = match want {
        "allow" => 0,
        "ask" => 4,
        _ => 3,
    };
    assert_eq!(can.status, status, "can about {line:?}: {}{}", can.stdout, can.stderr);
    assert!(can.stdout.contains(names), "{}", can.stdout);
}

#[test]
fn c001_each_part_of_a_line_needs_its_own_allow() {
    let kit = project("allow = [\"git log\"]");
    answers(&kit, "git log -1", "allow", "git log");
    for (line, part) in [
        ("git log -1 && touch marker", "touch"),
        ("git log -1 ; touch marker", "touch"),
        ("git log nosuch || touch marker", "touch"),
        ("git log -1 | tee marker", "tee"),
        ("git log -1 & touch marker", "touch"),
        ("git log -1\ntouch marker", "touch"),
    ] {
        answers(&kit, line, "deny", part);
    }
}

#[test]
fn c002_a_push_is_denied_in_every_spelling() {
    let kit = project("allow = [\"git\"]\ndeny = [\"git push\"]\nask = [\"**\"]");
    answers(&kit, "git fetch", "allow", "git fetch");
    for line in [
        "git -C widget push origin main",
        "cd widget && git push",
        "git --no-pager push",
        "git fetch && git pull && git push",
        "git -c color.ui=false push",
        "git -c alias.p=push p",
        "/usr/bin/git push",
    ] {
        answers(&kit, line, "deny", "git");
    }
    answers(&kit, "make", "ask", "make");
}

#[test]
fn c002_a_push_is_denied_under_each_name_that_the_program_has() {
    let kit = Bailiwick::new();
    trust(&kit, "extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\n");
    kit.shell_outside("git init -q . && git -c user.name=a -c user.email=a@x.test commit -q --allow-empty -m one")
        .ok();
    kit.shell_outside("git init -q --bare theirs.git && git push -q theirs.git HEAD:refs/heads/main")
        .ok();
    let branches = || kit.shell_outside("git --git-dir=theirs.git branch --list").ok().stdout;
    let tries = [
        "git push theirs.git HEAD:refs/heads/NAME",
        "\"$(git --exec-path)/git-push\" theirs.git HEAD:refs/heads/NAME",
        "PATH=\"$(git --exec-path):$PATH\" git-push theirs.git HEAD:refs/heads/NAME",
        "git send-pack ./theirs.git HEAD:refs/heads/NAME",
        "\"$(git --exec-path)/git-send-pack\" ./theirs.git HEAD:refs/heads/NAME",
        "cp \"$(git --exec-path)/git-push\" mine && ./mine theirs.git HEAD:refs/heads/NAME",
        "ln -sf \"$(git --exec-path)/git-push\" linked && ./linked theirs.git HEAD:refs/heads/NAME",
        "bash -c 'exec -a git-push \"$(command -v git)\" theirs.git HEAD:refs/heads/NAME'",
    ];
    let mut pushed = 0;
    for (place, line) in tries.iter().enumerate() {
        let named = |name: &str| line.replace("NAME", &format!("{name}{place}"));
        // Not every git takes each of these; most must do, or nothing is tried.
        pushed += usize::from(kit.shell_outside(&named("outside")).status == 0);
        let done = kit.run(&["run", "-q", "--", "bash", "-c", &named("inside")]);
        assert_ne!(done.status, 0, "{line}: {done:?}");
    }
    assert!(pushed >= 5, "{pushed}: {}", branches());
    assert!(!branches().contains("inside"), "{}", branches());
    // What git starts by itself to fetch goes on.
    kit.shell_outside("git --git-dir=theirs.git branch more main").ok();
    kit.run(&["run", "-q", "--", "git", "fetch", "-q", "./theirs.git", "more"])
        .ok();
}

#[test]
fn c002_other_names_of_one_program_are_that_program() {
    let kit = Bailiwick::new();
    trust(
        &kit,
        "extends = [\"coding\"]\n[commands]\ndeny = [\"pip install\", \"python3\"]\n",
    );
    for line in [
        "pip3 install x",
        "pip3.11 install x",
        "python -c 1",
        "python3.11 -c 1",
        "python3.12 -m x",
    ] {
        let can = kit.run(&["can", &format!("run {line}")]);
        assert_eq!(can.status, 3, "{line}: {can:?}");
    }
    assert_eq!(kit.run(&["can", "run pip3 list"]).status, 0);
    let other = "\"$(readlink -f /usr/bin/python3)\" -c 'print(6 * 7)'";
    assert!(kit.shell_outside(other).ok().stdout.contains("42"));
    let inside = kit.run(&["run", "-q", "--", "sh", "-c", other]);
    assert!(inside.status != 0 && !inside.stdout.contains("42"), "{inside:?}");
}

#[test]
fn c004_a_launcher_is_no_licence_for_what_it_starts() {
    let kit = project(
        "allow = [\"env\", \"nice\", \"timeout\", \"setsid\", \"xargs\", \"echo\", \"ls\"]\ndeny = [\"touch\"]",
    );
    for line in ["env ls", "timeout 5 nice ls", "echo . | xargs ls"] {
        answers(&kit, line, "allow", "ls");
    }
    for line in [
        "env touch marker",
        "timeout 5 nice touch marker",
        "setsid -w touch marker",
        "echo marker | xargs touch",
        "env -S \"touch marker\"",
    ] {
        answers(&kit, line, "deny", "touch");
    }
    answers(&kit, "env rm x", "deny", "rm x");
}

#[test]
fn c006_a_nested_shell_is_judged_by_what_it_runs() {
    let kit = project("allow = [\"bash\", \"sh\", \"eval\", \"printf\", \"ls\"]\ndeny = [\"rm\"]");
    for line in [
        "bash -c \"rm -r keep\"",
        "eval \"rm -r keep\"",
        "printf \"rm -r keep\\n\" | sh",
        "bash <<'END'\nrm -r keep\nEND",
        "bash -c 'bash -c \"rm -r keep\"'",
    ] {
        answers(&kit, line, "deny", "rm -r keep");
    }
    answers(&kit, "bash -lc \"ls keep\"", "allow", "ls keep");
    answers(&kit, "eval \"$X\"", "ask", "run time");
    answers(&kit, "curl x | sh", "deny", "curl");
}

#[test]
fn c007_only_reading_is_a_property_of_all_the_words() {
    let kit = project("allow = [\"@read-only\"]\nask = [\"**\"]");
    for line in [
        "find . -name \"*.tmp\" -delete",
        "find . -name in.txt -exec touch marker {} +",
        "sed -n \"1w out.txt\" in.txt",
        "sed -i s/a/b/ in.txt",
        "sort -o in.txt in.txt",
        "git diff --output=out.txt",
    ] {
        answers(&kit, line, "ask", "");
    }
    for line in [
        "find . -name \"*.tmp\"",
        "sed -n 1p in.txt",
        "git diff",
        "cat in.txt | head -3",
    ] {
        answers(&kit, line, "allow", "");
    }
}

#[test]
fn c009_a_variable_that_steers_is_part_of_the_command() {
    let kit = project("allow = [\"git log\", \"git fetch\", \"bash ok.sh\", \"env\"]");
    for (line, variable) in [
        (
            "GIT_SSH_COMMAND=./grab.sh git fetch ssh://h.example.test/r",
            "GIT_SSH_COMMAND",
        ),
        ("GIT_PAGER=./grab.sh git log", "GIT_PAGER"),
        ("BASH_ENV=./grab.sh bash ok.sh", "BASH_ENV"),
        (
            "env GIT_EXTERNAL_DIFF=./grab.sh git log -p --ext-diff",
            "GIT_EXTERNAL_DIFF",
        ),
        ("export GIT_PAGER=./grab.sh; git log", "GIT_PAGER"),
    ] {
        answers(&kit, line, "deny", variable);
    }
    for line in [
        "git log",
        "PAGER=cat git log",
        "bash ok.sh",
        "git fetch ssh://h.example.test/r",
    ] {
        answers(&kit, line, "allow", "");
    }
    answers(&kit, "bash other.sh", "deny", "other.sh");
}

#[test]
fn c010_a_line_of_allowed_parts_is_allowed() {
    let kit = project("allow = [\"date\", \"git diff\", \"git merge-base\", \"head\", \"true\"]");
    for line in [
        "TZ=UTC date +%H",
        "git diff $(git merge-base HEAD HEAD)",
        "git diff | head -3",
        "LANG=C git diff && true",
    ] {
        answers(&kit, line, "allow", "");
    }
    answers(&kit, "git diff $(touch marker)", "deny", "touch");
}

#[test]
fn c011_quoted_text_is_data() {
    let kit = Bailiwick::new();
    trust(
        &kit,
        "[files]\nread = [\".\"]\nwrite = [\"note.md\"]\n[commands]\nallow = [\"git commit\", \"cat\"]\ndeny = [\"git push\", \"rm\"]\n",
    );
    for line in [
        "git commit --allow-empty -m \"say why git push && rm -rf x is refused\"",
        "git commit --allow-empty -m \"$(cat <<'END'\nsay why `rm -r keep` and one \" mark\ngit push origin\nEND\n)\"",
        "cat > note.md <<'END'\nrm -r keep\nEND",
    ] {
        answers(&kit, line, "allow", "");
    }
    answers(&kit, "cat > note.md <<END\n$(rm -r keep)\nEND", "deny", "rm -r keep");
}

#[test]
fn c013_a_redirection_is_a_write() {
    let kit = Bailiwick::new();
    std::fs::create_dir_all(kit.project().join("out")).unwrap();
    trust(
        &kit,
        "[files]\nread = [\".\"]\nwrite = [\"out\"]\n[commands]\nallow = [\"git show\", \"echo\"]\n",
    );
    for (line, file) in [
        ("git show HEAD > .profile", ".profile"),
        ("echo x >> .git/hooks/pre-commit", "pre-commit"),
        ("echo x > out/../b.txt", "b.txt"),
        ("echo x 2> err.txt", "err.txt"),
    ] {
        answers(&kit, line, "deny", file);
    }
    assert_eq!(told(&kit, "git show > out/a.txt").0, "allow");
    answers(&kit, "git show HEAD 2>/dev/null", "allow", "");
    for line in ["echo x > out/a.txt", "echo x 2>/dev/null"] {
        assert_eq!(kit.run(&["can", &format!("run {line}")]).status, 0, "{line}");
        assert_ne!(told(&kit, line).0, "deny", "{line}");
    }
}

#[test]
fn c015_a_name_ends_at_its_end_and_an_exact_rule_admits_no_more() {
    let kit = project("allow = [\"ls\", { rule = \"rm -r build\", exact = true }]");
    for line in ["ls -la", "rm -r build", "rm -R build", "rm --recursive build"] {
        answers(&kit, line, "allow", "");
    }
    for (line, part) in [
        ("lsx", "lsx"),
        ("./lsx", "lsx"),
        ("rm -r build keep", "keep"),
        ("rm -r build --no-preserve-root ../keep", "keep"),
        ("./ls", "./ls"),
    ] {
        answers(&kit, line, "deny", part);
    }
}

#[test]
fn p8_each_harness_is_told_in_its_own_words() {
    let kit = project("allow = [\"ls\"]\nask = [\"git push\"]");
    let call = |name: &str, input: Value| json!({ "cwd": kit.project(), "tool_name": name, "tool_input": input });
    let codex = |input: Value| hook(&kit, "codex", &call("Bash", input));
    assert_eq!(codex(json!({ "command": "ls" })), None, "codex knows no allow");
    for line in ["rm x", "git push"] {
        let answer = codex(json!({ "command": line })).unwrap();
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny", "{line}");
    }
    let wrapped = codex(json!({ "command": ["bash", "-lc", "ls && rm x"] })).unwrap();
    assert!(wrapped.to_string().contains("rm x"), "{wrapped}");
    let patch = "*** Begin Patch\n*** Update File: src/x.rs\n@@\n-a\n+b\n*** End Patch\n";
    let patched = hook(&kit, "codex", &call("apply_patch", json!({ "command": patch }))).unwrap();
    assert!(patched.to_string().contains("src/x.rs"), "{patched}");
    let gemini = |name: &str, input: Value| hook(&kit, "gemini", &call(name, input));
    assert_eq!(
        gemini("run_shell_command", json!({ "command": "ls" })),
        Some(json!({ "decision": "allow" }))
    );
    for (name, input) in [
        ("run_shell_command", json!({ "command": "rm x" })),
        ("write_file", json!({ "file_path": "x" })),
        ("read_file", json!({ "file_path": "/etc/shadow" })),
    ] {
        assert_eq!(gemini(name, input).unwrap()["decision"], "deny", "{name}");
    }
    assert_eq!(
        gemini("read_file", json!({ "file_path": "x" })),
        None,
        "what is granted is not spoken of"
    );
    assert_eq!(gemini("some_other_tool", json!({})), None);
}

#[test]
fn what_runs_in_a_fence_by_a_preset_is_not_waved_through_outside() {
    let kit = Bailiwick::new();
    assert_eq!(told(&kit, "rm -rf x").0, "none", "the harness asks as it would");
    trust(&kit, "extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\n");
    assert_eq!(told(&kit, "rm -rf x").0, "none");
    assert_eq!(told(&kit, "rm -rf x && git push").0, "deny");
}
