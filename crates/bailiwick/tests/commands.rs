//! What the commands say: exit codes, messages and hints, for good input and for bad.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use bailiwick_testkit::Bailiwick;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|fault| panic!("{fault}: {text}"))
}

#[test]
fn p14_can_says_yes_or_no_by_which_rule_and_what_would_change_it() {
    let kit = Bailiwick::new();
    kit.write_home(".ssh/id_ed25519", "key");
    let no = kit.run(&["can", "read ~/.ssh/id_ed25519"]).status_is(3);
    assert!(no.stdout.starts_with("no: read "), "{}", no.stdout);
    assert!(no.stdout.contains("preset:ceiling:"), "{}", no.stdout);
    assert!(no.stdout.contains("to change it: "), "{}", no.stdout);
    let yes = kit.run(&["can", "write notes.txt"]).ok();
    assert!(yes.stdout.contains("preset:coding:"), "{}", yes.stdout);
    let unknown = kit.run(&["can", "tunnel evil.example.test"]).status_is(3);
    assert!(unknown.stdout.contains("no-rule"), "{}", unknown.stdout);
    assert!(
        unknown.stdout.contains(
            "`allow = [\"GET https://evil.example.test/**\"]` under [network] (or `tunnel = [\"evil.example.test\"]`"
        ),
        "{}",
        unknown.stdout
    );
    let usage = kit.run(&["can", "read"]).status_is(2);
    assert!(
        usage.stderr.contains("`read` is not an act: write `VERB RESOURCE`"),
        "{}",
        usage.stderr
    );
    let answer = json(&kit.run(&["can", "--json", "read /etc/shadow"]).status_is(3).stdout);
    assert_eq!(answer["decision"]["verdict"], "deny");
}

#[test]
fn p14_can_says_of_a_url_which_road_it_takes() {
    let kit = Bailiwick::new();
    kit.write(
        "bailiwick.toml",
        "extends = [\"offline\"]\n[network]\nallow = [\"GET https://docs.example.test/**\"]\ntunnel = [\"blind.example.test\"]\n",
    );
    kit.run(&["trust"]).ok();
    let can = |act: &str, status| kit.run(&["can", act]).status_is(status).stdout;
    let yes = can("GET https://docs.example.test/x?q=1", 0);
    assert!(
        yes.starts_with("yes: GET https://docs.example.test/x?q=1 (allowed-by-rule)"),
        "{yes}"
    );
    let no = can("POST https://docs.example.test/x?q=1", 3);
    assert!(
        no.contains("add `allow = [\"POST https://docs.example.test/x\"]` under [network]"),
        "{no}"
    );
    let blind = can("POST https://blind.example.test/x", 0);
    assert!(
        blind.starts_with("yes: tunnel blind.example.test (allowed-by-rule)")
            && blind.contains("passed on unread")
            && blind.contains("note: `POST https://blind.example.test/x` goes through a tunnel"),
        "{blind}"
    );
    let unknown = can("GET https://evil.example.test/", 3);
    assert!(
        unknown.starts_with("no: GET https://evil.example.test/ (no-rule)"),
        "{unknown}"
    );
    let shown = kit.run(&["policy", "show", "--layers"]).ok().stdout;
    assert!(shown.contains("allow GET https://docs.example.test/**"), "{shown}");
    let told = kit.run(&["run", "--", "true"]).ok().stderr;
    assert!(
        told.contains("request GET https://docs.example.test/**")
            && told.contains("reach, by host name alone and unread, blind.example.test"),
        "{told}"
    );
}

#[test]
fn p5_can_judges_what_a_link_leads_to() {
    let kit = Bailiwick::new();
    kit.write_home(".ssh/id_ed25519", "key");
    std::os::unix::fs::symlink(kit.home().join(".ssh"), kit.project().join("innocent")).unwrap();
    let no = kit.run(&["can", "read innocent/id_ed25519"]).status_is(3);
    assert!(
        no.stdout.contains("leads to") && no.stdout.contains(".ssh/id_ed25519"),
        "{}",
        no.stdout
    );
}

#[test]
fn p14_the_gate_and_can_agree_on_files() {
    let kit = Bailiwick::new();
    kit.write("a.txt", "A");
    kit.write(".env", "E");
    kit.write("sub/.env", "E");
    kit.write_home("private.txt", "P");
    kit.write_home(".cargo/bin/tool", "T");
    for path in [
        "a.txt",
        ".env",
        "sub/.env",
        "~/private.txt",
        "~/.cargo/bin/tool",
        "/usr/bin/env",
        "/etc/passwd",
    ] {
        let said = kit.run(&["can", &format!("read {path}")]).status;
        let done = kit.shell(&format!("cat {path} > /dev/null 2>&1")).status;
        // /etc/passwd inside is one that is made for the fence: its rule says yes too.
        assert_eq!(said == 0, done == 0, "{path}: can says {said}, the gate {done}");
    }
}

#[test]
fn p10_explain_says_why_by_the_id_in_a_refusal() {
    let kit = Bailiwick::new();
    let refused = kit.shell("curl -s -m 5 http://evil.example.test/x");
    let id = refused
        .stdout
        .split('(')
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .unwrap_or_default()
        .to_owned();
    assert_eq!(id.len(), 12, "{}\n{}", refused.stdout, refused.stderr);
    let why = kit.run(&["explain", &id]).ok().stdout;
    assert!(
        why.contains("no: ") && why.contains("evil.example.test") && why.contains("recorded: log record"),
        "{why}"
    );
    assert!(why.contains("to change it: "), "{why}");
    assert!(
        kit.run(&["explain", &id[..6]])
            .ok()
            .stdout
            .contains("evil.example.test")
    );
    assert!(
        kit.run(&["explain", "ffffffffffff"])
            .status_is(2)
            .stderr
            .contains("no decision in the log has the id")
    );
    assert!(kit.run(&["explain", "x"]).status_is(2).stderr.contains("is not an id"));
}

#[test]
fn p4_a_mistake_in_the_rules_stops_the_run_and_is_told() {
    let kit = Bailiwick::new();
    kit.write("bailiwick.toml", "[files]\nwritte = [\".\"]\n");
    for (command, status) in [
        (&["run", "-q", "--", "true"][..], 125),
        (&["policy", "check"], 2),
        (&["can", "read ."], 2),
    ] {
        let told = kit.run(command).status_is(status).stderr;
        assert!(
            told.contains("bailiwick.toml:2:1") && told.contains("`writte`") && told.contains("`write`"),
            "{command:?}: {told}"
        );
    }
}

#[test]
fn c070_a_rule_that_this_build_cannot_enforce_is_refused_with_a_hint() {
    let kit = Bailiwick::new();
    for (rules, word) in [
        (
            "[network]\ntunnel = [\"docs.rs\"]\ndeny = [\"POST https://docs.rs/**\"]\n",
            "tunnel",
        ),
        ("[files]\nask = [\"~/Documents/*.pdf\"]\n", "ask"),
        ("[secret.x]\nfrom = \"keyring:a=\"\n", "keyring"),
        ("[[tool]]\nname = \"x/y\"\ntags = [\"a\"]\n", "tag"),
        ("[[server]]\nname = \"x\"\nrun = [\"x\"]\nkeep = [\"/srv/x\"]\n", "kept"),
        ("[tag.pii]\non = [\"run cat ~/hr\"]\n", "inside"),
        ("[oversight]\npresent = [\"call bank\"]\n", "call"),
    ] {
        kit.write("bailiwick.toml", rules);
        let told = kit.run(&["policy", "check"]).status_is(2).stderr;
        assert!(
            told.contains("bailiwick.toml:") && told.contains(word) && told.contains("hint:"),
            "{rules}: {told}"
        );
    }
}

#[test]
fn what_is_protected_everywhere_is_told_once_for_each_tree() {
    let kit = Bailiwick::new();
    let rules = "[files]\nask = [\"~/Documents\"]\nread = [\"~/reference\"]\ndeny = [\"~/reference/old\"]\n";
    kit.write("bailiwick.toml", rules);
    let told = kit.run(&["policy", "check"]).ok().stdout;
    let overlaps: Vec<&str> = told.lines().filter(|line| line.starts_with("overlap: ")).collect();
    assert_eq!(
        overlaps.iter().filter(|line| line.contains("Documents")).count(),
        1,
        "{told}"
    );
    assert!(
        overlaps
            .iter()
            .any(|line| line.contains(" places that are protected everywhere ")),
        "{told}"
    );
    assert!(overlaps.iter().any(|line| line.contains("reference/old")), "{told}");
    let all = kit.run(&["policy", "check", "--json"]).ok().stdout;
    assert!(all.matches("/Documents` (").count() > 20, "{all}");
}

#[test]
fn p5_a_persons_own_tables_say_what_words_mean() {
    let kit = Bailiwick::new();
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[commands]\ndeny = [\"deploy production\"]\n",
    );
    kit.run(&["can", "run deploy --to x production"]).status_is(3);
    kit.run(&["can", "run deploy -y prod"]).ok();
    let table = "[[program]]\nnames = [\"deploy\"]\noptions = [\"-y --yes\"]\n[program.subcommands]\n\"production prod\" = {}\n";
    kit.write_home(".config/bailiwick/commands/deploy.toml", table);
    kit.run(&["can", "run deploy -y prod"]).status_is(3);
    kit.write_home(
        ".config/bailiwick/commands/deploy.toml",
        "[[program]]\nnames = [\"deploy\"]\nwhat = 1\n",
    );
    let told = kit.run(&["can", "run deploy"]).status_is(2).stderr;
    assert!(
        told.contains("deploy.toml") && told.contains("what") && told.contains("hint:"),
        "{told}"
    );
}

#[test]
fn p2_an_untrusted_project_file_only_takes_away() {
    let kit = Bailiwick::new();
    kit.write_home("notes/n.txt", "NOTE");
    kit.write("private/x.txt", "PRIVATE");
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[files]\nread = [\"~/notes\"]\ndeny = [\"private\"]\n",
    );
    assert_ne!(kit.shell("cat ~/notes/n.txt").status, 0, "not granted before trust");
    assert_ne!(kit.shell("cat private/x.txt").status, 0, "denied before trust");
    kit.run(&["trust"]).ok();
    assert_eq!(kit.shell("cat ~/notes/n.txt").ok().stdout, "NOTE");
    assert_ne!(kit.shell("cat private/x.txt").status, 0);
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[files]\nread = [\"~/notes\", \"~/more\"]\n",
    );
    assert_ne!(
        kit.shell("cat ~/notes/n.txt").status,
        0,
        "any change takes the trust away"
    );
    kit.run(&["trust"]).ok();
    assert_eq!(kit.shell("cat ~/notes/n.txt").ok().stdout, "NOTE");
    kit.run(&["trust", "--revoke"]).ok();
    assert_ne!(kit.shell("cat ~/notes/n.txt").status, 0);
}

#[test]
fn p8_trust_cannot_be_given_from_inside() {
    let kit = Bailiwick::new();
    kit.write_home("notes/n.txt", "NOTE");
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[files]\nread = [\"~/notes\"]\n",
    );
    let product = kit.program();
    // Where the program can be reached at all, there is no daemon to be found, and no store.
    let _ = kit.shell(&format!("{product} trust; env -u BAILIWICK {product} trust; true"));
    assert_ne!(kit.shell("cat ~/notes/n.txt").status, 0);
}

#[test]
fn p10_policy_show_and_log_show_what_is_there() {
    let kit = Bailiwick::new();
    let layers = kit.run(&["policy", "show", "--layers"]).ok().stdout;
    assert!(
        layers.contains("builtin") && layers.contains("person") && layers.contains("context"),
        "{layers}"
    );
    let cedar = kit.run(&["policy", "show", "--cedar"]).ok().stdout;
    assert!(
        cedar.contains("permit") && cedar.contains("forbid") && cedar.contains("entity"),
        "{cedar}"
    );
    kit.shell("true").ok();
    let log = kit.run(&["log", "show"]).ok().stdout;
    assert!(log.contains("started for") && log.contains("ended with 0"), "{log}");
    let verified = kit.run(&["log", "verify"]).ok().stdout;
    assert!(verified.starts_with("verified: "), "{verified}");
    assert!(kit.run(&["log", "path"]).ok().stdout.trim().ends_with("bailiwick/log"));
    let checkpoint = kit.run(&["log", "checkpoint"]).ok().stdout;
    let kept = kit.write("checkpoint.txt", &checkpoint);
    kit.shell("true").ok();
    kit.run(&["log", "verify", "--since", &kept.display().to_string()]).ok();
    // The line that a run prints at its end is enough.
    let told = kit.run(&["run", "--", "true"]).ok().stderr;
    let short = told
        .lines()
        .rev()
        .find_map(|line| line.split_once("log checkpoint "))
        .unwrap()
        .1
        .to_owned();
    kit.shell("true").ok();
    kit.run(&["log", "verify", "--since", &short]).ok();
    let forged = short.replacen(|c: char| c.is_ascii_lowercase(), "A", 1);
    kit.run(&["log", "verify", "--since", &forged]).status_is(5);
    kit.write("checkpoint.txt", &checkpoint.replacen('\n', "x\n", 1));
    kit.run(&["log", "verify", "--since", &kept.display().to_string()])
        .status_is(5);
}

#[test]
fn exit_codes_are_the_agents_own_or_ours() {
    let kit = Bailiwick::new();
    assert_eq!(kit.shell("exit 7").status, 7);
    assert_eq!(kit.shell("kill -TERM $$").status, 128 + 15);
    let missing = kit.run(&["run", "-q", "--", "no-such-program"]).status_is(127);
    assert!(
        missing.stderr.contains("`no-such-program`") && missing.stderr.contains("hint:"),
        "{}",
        missing.stderr
    );
    kit.write("plain.txt", "text");
    kit.run(&["run", "-q", "--", "./plain.txt"]).status_is(126);
    kit.run(&["run"]).status_is(2);
    kit.run(&["frobnicate"]).status_is(2);
}

#[test]
fn p1_the_home_and_the_root_are_no_contexts() {
    let kit = Bailiwick::new();
    for folder in [kit.home(), "/".into()] {
        let mut command = kit.command(&["run", "-q", "--", "true"]);
        command.current_dir(folder);
        let done = bailiwick_testkit::finish(command, std::time::Duration::from_secs(20)).status_is(125);
        assert!(
            done.stderr.contains("all in it would be the agent's") && done.stderr.contains("hint:"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn p13_doctor_says_for_every_promise_what_is_kept() {
    let kit = Bailiwick::new();
    let told = kit.run(&["doctor"]).ok().stdout;
    for promise in 1..=14 {
        assert!(
            told.lines()
                .any(|line| line.trim_start().starts_with(&format!("P{promise} "))),
            "P{promise}: {told}"
        );
    }
    let facts = json(&kit.run(&["doctor", "--json"]).ok().stdout);
    assert!(
        facts["promises"].as_array().is_some_and(|rows| rows.len() == 14),
        "{facts}"
    );
}

#[test]
fn p13_doctor_tells_an_ordinary_user_of_both_levels() {
    let kit = Bailiwick::as_ordinary_user();
    let told = kit.run(&["doctor"]).ok().stdout;
    assert!(
        told.contains("process    can be put up here: `run --level process`"),
        "{told}"
    );
    kit.run(&["run", "-q", "--level", "process", "--", "true"]).ok();
}

#[test]
fn p9_the_callers_environment_is_not_the_agents() {
    let mut kit = Bailiwick::new();
    kit.set("SECRET_TOKEN", "SECRET-VALUE");
    let inside = kit
        .shell("env; tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/1/environ")
        .stdout;
    assert!(!inside.contains("SECRET-VALUE"), "{inside}");
    assert!(inside.contains("HOME=") && inside.contains("PATH="), "{inside}");
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[environment]\npass = [\"SECRET_TOKEN\"]\nset = { OWN = \"1\" }\n",
    );
    kit.run(&["trust"]).ok();
    let inside = kit.shell("env").ok().stdout;
    assert!(
        inside.contains("SECRET_TOKEN=SECRET-VALUE") && inside.contains("OWN=1"),
        "{inside}"
    );
}

#[test]
fn p2_a_program_of_the_projects_own_gets_no_profile_by_its_name() {
    let mut kit = Bailiwick::new();
    kit.set("ANTHROPIC_API_KEY", "KEY-OF-DANA");
    let own = kit.write("claude", "#!/bin/sh\nenv\n");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    for program in ["./claude", &own.display().to_string()] {
        let told = kit.run(&["run", "-q", "--", program]).ok().stdout;
        assert!(
            told.contains("HOME=") && !told.contains("KEY-OF-DANA"),
            "{program}: {told}"
        );
    }
    assert!(
        kit.run(&["policy", "show", "--program", "claude"])
            .ok()
            .stdout
            .contains("api.anthropic.com")
    );
}

#[test]
fn limits_hold_also_where_no_rule_sets_them() {
    let kit = Bailiwick::new();
    let told = kit
        .run(&["run", "-q", "--", "bash", "-c", "ulimit -u; ulimit -d"])
        .ok()
        .stdout;
    let limits: Vec<&str> = told.lines().collect();
    assert_eq!(limits.len(), 2, "{told}");
    assert!(
        limits.iter().all(|limit| limit.parse::<u64>().is_ok()),
        "no limit is `unlimited`: {told}"
    );
}

/// Starts a task that says when it has begun; gives the command that runs it.
fn begun(kit: &Bailiwick, line: &str) -> std::process::Child {
    let _ = std::fs::remove_file(kit.project().join("began"));
    let mut command = kit.command(&[
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        &format!("sleep 0.3; touch began; {line}"),
    ]);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    let start = std::time::Instant::now();
    while !kit.project().join("began").exists() {
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "the task begins");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

fn send(child: &std::process::Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn signals_reach_the_agent() {
    let kit = Bailiwick::new();
    let mut child = begun(
        &kit,
        "trap 'touch heard; exit 9' INT; touch trapped; while :; do sleep 0.05; done",
    );
    let start = std::time::Instant::now();
    while !kit.project().join("trapped").exists() {
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "the trap is set");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    send(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(kit.project().join("heard").exists());
    let mut child = begun(&kit, "sleep 100");
    send(&child, rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn p11_a_command_that_is_gone_takes_its_task_along() {
    let kit = Bailiwick::new();
    let mut child = begun(&kit, "while :; do touch alive; sleep 0.05; done");
    send(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let _ = std::fs::remove_file(kit.project().join("alive"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!kit.project().join("alive").exists(), "the agent has ended");
    assert!(kit.run(&["status"]).ok().stdout.contains("no task runs"));
}
