//! Brokers: commands that run outside for an agent, with an authority that it does not have itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, GitServer, at_level_process, finish};

/// Root's, and an ordinary user's.
fn everybody() -> Vec<Bailiwick> {
    if at_level_process() {
        return vec![project(Bailiwick::as_ordinary_user())];
    }
    vec![project(Bailiwick::new()), project(Bailiwick::as_ordinary_user())]
}

/// A project under git with one commit, whose `origin` is a bare repository in the home.
fn project(kit: Bailiwick) -> Bailiwick {
    kit.write("src.txt", "one\n");
    kit.shell_outside(
        "git init -q -b main . && git config user.email t@t.test && git config user.name T && git add -A && \
         git commit -qm one && git init -q --bare ~/bare.git && git remote add origin ~/bare.git",
    )
    .ok();
    kit
}

fn rules(kit: &Bailiwick, broker: &str) {
    kit.write(
        "bailiwick.toml",
        &format!("extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\n{broker}"),
    );
    kit.run(&["trust"]).ok();
}

const PUSH: &str = "[[broker]]\nrun = \"git push origin HEAD:refs/heads/agent/*\"\n";

fn to_bare() -> String {
    format!("{PUSH}write = [\"~/bare.git\", \".git/refs\", \".git/logs\"]\n")
}

fn branches(kit: &Bailiwick) -> String {
    kit.shell_outside("git -C ~/bare.git for-each-ref --format='%(refname)'")
        .ok()
        .stdout
}

#[test]
fn p1_a_push_runs_outside_to_the_branches_that_its_broker_names() {
    for kit in everybody() {
        rules(&kit, &to_bare());
        kit.shell("git push origin HEAD:main").status_is(126);
        kit.shell("git push -f origin HEAD:refs/heads/agent/x").status_is(126);
        kit.shell("git push origin HEAD:refs/heads/agent/../main")
            .status_is(126);
        assert_eq!(branches(&kit), "");
        let line = "git push origin HEAD:refs/heads/agent/one 2>&1 | tee log; cat log >&2; git log -1 --format=%D";
        let pushed = kit.shell(line).ok();
        assert_eq!(branches(&kit), "refs/heads/agent/one\n", "{pushed:?}");
        assert!(
            pushed.stdout.contains("[new branch]      HEAD -> agent/one"),
            "{pushed:?}"
        );
        assert!(pushed.stdout.contains("origin/agent/one"), "{pushed:?}");
        assert!(pushed.stdout.contains(&pushed.stderr), "{pushed:?}");
        assert!(!pushed.stdout.contains("error"), "{pushed:?}");
        // What git says of a failure comes through, and its status.
        let failed = kit.shell("rm -r .git/refs/heads/main; git push origin HEAD:refs/heads/agent/two");
        assert_eq!(failed.status, 1, "{failed:?}");
        assert!(
            failed.stderr.contains("src refspec HEAD does not match any"),
            "{failed:?}"
        );
    }
}

const SECRET: &str = "tok-4f1c9a77e2b05d";

#[test]
fn p9_a_push_uses_a_credential_that_the_agent_never_sees() {
    for kit in everybody() {
        let server = GitServer::start(&format!("x-access-token:{SECRET}"));
        kit.write_home(".config/token", &format!("{SECRET}\n"));
        kit.shell_outside(&format!("git remote set-url origin {}", server.url()))
            .ok();
        let broker = format!(
            "{PUSH}secret = \"site\"\nnetwork = [\"* {}/**\"]\nwrite = [\".git/refs\", \".git/logs\"]\n\
             [secret.site]\nfrom = \"file:~/.config/token\"\n",
            server.url(),
        );
        rules(&kit, &broker);
        // The agent pushes in the background and looks meanwhile wherever it can.
        let line = "env >seen; git push origin HEAD:refs/heads/agent/x >out 2>&1 & p=$!
            for i in 1 2 3 4 5 6 7 8; do for d in /proc/[0-9]*; do cat $d/environ $d/cmdline >>seen 2>/dev/null; done; sleep 0.05; done
            wait $p; echo status $?; cat out; cat ~/.config/token; cat out .git/config >>seen; curl -s -m 3 http://HOST/ >>seen; git push origin HEAD:main || echo no";
        let done = kit.shell(&line.replace("HOST", &server.host()));
        assert!(
            done.stdout.contains("status 0") && done.stdout.contains("HEAD -> agent/x"),
            "{done:?}"
        );
        assert!(done.stdout.trim().ends_with("no"), "{done:?}");
        assert_eq!(server.references(), "refs/heads/agent/x\n", "{done:?}");
        let seen = std::fs::read_to_string(kit.project().join("seen")).unwrap();
        assert!(
            seen.contains("PATH=") && !seen.contains(SECRET) && !format!("{done:?}").contains(SECRET),
            "{done:?}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(
            log.contains("broker git push") && log.contains("it ran outside as task"),
            "{log}"
        );
        let state = kit
            .shell_outside(&format!("grep -rl {SECRET} ~/.local/state . ; true"))
            .ok()
            .stdout;
        assert_eq!(state, "", "the value is in no file of ours");
        assert!(
            kit.run(&["can", "broker git push origin HEAD:refs/heads/agent/y"])
                .status
                == 0
        );
        kit.run(&["can", "broker git push origin HEAD:main"]).status_is(3);
    }
}

#[test]
fn p5_git_outside_heeds_nothing_that_the_agent_lays() {
    for kit in everybody() {
        rules(&kit, &to_bare());
        let evil = kit.home().join("evil.git");
        kit.shell_outside("git init -q --bare ~/evil.git").ok();
        let push = "git push origin HEAD:refs/heads/agent/x";
        // Each of these has a program run, or another repository pushed to, when git is left alone.
        let lines = [
            format!("GIT_SSH_COMMAND='touch {{M}}' {push}"),
            format!("GIT_DIR=/nowhere {push}"),
            format!(
                "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.pushurl GIT_CONFIG_VALUE_0={} {push}",
                evil.display()
            ),
            format!(
                "git -c remote.origin.pushurl={} push origin HEAD:refs/heads/agent/x",
                evil.display()
            ),
            format!("PATH=$PWD/bin:$PATH {push}"),
            "./git push origin HEAD:refs/heads/agent/x".to_owned(),
            format!("LD_PRELOAD=$PWD/x.so {push}"),
        ];
        kit.write("bin/git-receive-pack", "#!/bin/sh\ntouch ~/marker marker\n");
        kit.write("git", "#!/bin/sh\ntouch ~/marker marker\n");
        kit.shell_outside("chmod +x git bin/git-receive-pack").ok();
        for line in &lines {
            let done = kit.shell(line);
            let pushed = branches(&kit);
            assert!(
                pushed.is_empty() || pushed == "refs/heads/agent/x\n",
                "{line}: {done:?}"
            );
            let evil = kit
                .shell_outside("git -C ~/evil.git for-each-ref; ls ~/marker 2>/dev/null; true")
                .ok();
            assert_eq!(evil.stdout, "", "{line}: {done:?}");
        }
        // A nested repository and a bare one, where `origin` is another and hooks run.
        let nested = format!(
            "mkdir -p sub && cd sub && git init -q . 2>/dev/null; mkdir -p .git/hooks bare/refs bare/objects; \
             printf '[remote \"origin\"]\\nurl={e}\\n[core]\\nhooksPath=hooks\\nbare=true\\n' | tee bare/config .git/config; \
             echo 'ref: refs/heads/main' >bare/HEAD; mkdir -p bare/hooks; printf '#!/bin/sh\\ntouch ~/marker' >bare/hooks/pre-push; chmod +x bare/hooks/pre-push; \
             {push}; cd bare && {push}",
            e = evil.display()
        );
        let done = kit.shell(&nested);
        let evil = kit
            .shell_outside("git -C ~/evil.git for-each-ref; ls ~/marker 2>/dev/null; true")
            .ok();
        assert_eq!(evil.stdout, "", "{done:?}");
        assert_eq!(
            branches(&kit),
            "refs/heads/agent/x\n",
            "it went to the project's own origin: {done:?}"
        );
        // Elsewhere than in the project it does not run, and the agent hears no more than a code.
        let elsewhere = kit.shell(&format!("cd /tmp && {push}")).status_is(126);
        assert!(
            elsewhere.stderr.contains("did not run outside (broker-failed, "),
            "{elsewhere:?}"
        );
    }
}

#[test]
fn p9_any_program_is_handed_its_secret_once_and_its_input_passes() {
    for kit in everybody() {
        kit.write_home(".config/token", SECRET);
        kit.write("tool", "#!/bin/sh\nread -r t <&9; read -r again <&9; read -r line; echo ${#t} ${#again} $line $WORD $AGENT; exit 7\n");
        kit.shell_outside("mkdir -p ~/bin && mv tool ~/bin/tool && chmod 755 ~/bin/tool")
            .ok();
        let tool = kit.home().join("bin/tool").display().to_string();
        rules(
            &kit,
            &format!(
                "[files]\nread = [\"~/bin\"]\n[[broker]]\nrun = \"{tool} --flag *\"\nsecret = \"x\"\nread = [\"~/bin\"]\nenvironment = {{ WORD = \"set\" }}\n\
                 [secret.x]\nfrom = \"command:cat {}/.config/token\"\n",
                kit.home().display()
            ),
        );
        let done = kit.shell(&format!("echo hello | AGENT=evil {tool} --flag a; echo $?"));
        assert_eq!(done.stdout, format!("{} 0 hello set\n7\n", SECRET.len()), "{done:?}");
        let begun = std::time::Instant::now();
        let done = kit.shell(&format!(
            "mkfifo f; exec 5<>f; timeout 1 {tool} --flag a <&5; echo over $?"
        ));
        assert!(
            done.stdout.contains("over 124") && begun.elapsed().as_secs() < 60,
            "{done:?}"
        );
    }
}

#[test]
fn p8_a_broker_that_asks_waits_for_a_yes_and_trust_says_what_it_has() {
    let kit = everybody().remove(0);
    rules(
        &kit,
        &format!(
            "{}ask = true\nsecret = \"x\"\n[secret.x]\nfrom = \"command:echo t\"\nhost = \"h.test\"\n",
            to_bare()
        ),
    );
    let trusted = kit.run(&["trust"]).ok().stdout;
    for told in [
        "ask   broker ",
        "outside: write ",
        "outside: use secret:x",
        "secret x from command:echo t",
    ] {
        assert!(trusted.contains(told), "{told}: {trusted}");
    }
    let push = "git push origin HEAD:refs/heads/agent/x";
    for (answer, status, pushed) in [("--no", 126, ""), ("", 0, "refs/heads/agent/x\n")] {
        let command = kit.command(&["run", "-q", "--", "sh", "-c", push]);
        let run = std::thread::spawn(move || finish(command, Duration::from_secs(60)));
        let begun = Instant::now();
        let id = loop {
            let listed = kit.run(&["approve", "--json"]).stdout;
            if let Some((_, rest)) = listed.split_once("\"id\":\"") {
                assert!(listed.contains(&format!("broker {push}")), "{listed}");
                break rest.split('"').next().unwrap().to_owned();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{listed}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let words: Vec<&str> = ["approve", answer, &id]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        kit.run(&words).ok();
        let done = run.join().unwrap();
        assert_eq!(done.status, status, "{answer}: {done:?}");
        assert_eq!(branches(&kit), pushed);
    }
}

#[test]
fn p11_twenty_at_once_and_a_kill_ends_what_runs_outside() {
    let kit = everybody().remove(0);
    kit.write_home("bin/slow", "#!/bin/sh\nsleep 1; echo $1; exec sleep $2\n");
    kit.shell_outside("chmod 755 ~/bin/slow").ok();
    let slow = kit.home().join("bin/slow").display().to_string();
    rules(
        &kit,
        &format!("[files]\nread = [\"~/bin\"]\n[[broker]]\nrun = \"{slow} * *\"\nread = [\"~/bin\"]\n"),
    );
    let done = kit
        .shell(&format!("for i in $(seq 20); do {slow} $i 0 & done; wait"))
        .ok();
    let mut said: Vec<u32> = done.stdout.lines().map(|line| line.parse().unwrap()).collect();
    said.sort_unstable();
    assert_eq!(said, (1..=20).collect::<Vec<u32>>(), "{done:?}");
    let begun = Instant::now();
    let done = kit.shell(&format!(
        "timeout 3 {slow} 1 500; echo $?; {slow} 2 500 & {slow} 3 0; exit 5"
    ));
    assert_eq!(done.status, 5, "{done:?}");
    assert!(done.stdout.contains("124"), "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let begun = Instant::now();
    loop {
        let status = kit.run(&["status"]).ok().stdout;
        if !status.contains("slow") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "nothing is left: {status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
