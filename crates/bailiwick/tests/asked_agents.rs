//! Real agent programs whose pushes are asked about: they wait, go on after a yes, and hear what a person wants to know.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::{Duration, Instant};

use bailiwick_testkit::{Agent, Bailiwick, ScriptedModel, Turn, claude, codex};
use serde_json::{Value, json};

/// A broker that pushes to branches of the agent's own, each push after a yes.
const RULES: &str = "[commands]\ndeny = [\"git push\"]\n[questions]\ndeadline = \"10 min\"\n\
    [[broker]]\nrun = \"git push origin HEAD:refs/heads/agent/*\"\nask = true\n\
    write = [\"~/bare.git\", \".git/refs\", \".git/logs\"]\n";

fn settle(kit: &Bailiwick, agent: &Agent, model: &ScriptedModel) {
    let rules = format!(
        "extends = [\"coding\"]\n\n[files]\nread = [\"{}\", \"~/.codex/config.toml\"]\n\n[network]\n\
         allow = [\"* http://127.0.0.1:{}/**\"]\n\n[environment]\n\
         pass = [\"ANTHROPIC_*\", \"DISABLE_AUTOUPDATER\", \"CLAUDE_CODE_*\", \"IS_SANDBOX\", \"LOCAL_KEY\"]\n{RULES}",
        agent.folder.display(),
        model.port(),
    );
    kit.write("bailiwick.toml", &rules);
    kit.write_home(
        ".gitconfig",
        "[user]\n\tname = Dana\n\temail = dana@example.test\n[safe]\n\tdirectory = *\n",
    );
    kit.shell_outside(
        "git init -q -b main . && git add -A && git commit -q -m begin && git init -q --bare ~/bare.git && \
         git remote add origin ~/bare.git",
    )
    .ok();
    kit.run(&["trust"]).ok();
}

/// The next question: its id and the agent's words about it.
fn question(kit: &Bailiwick, before: &str) -> Value {
    let begun = Instant::now();
    loop {
        let listed: Value = serde_json::from_str(&kit.run(&["approve", "--json"]).stdout).unwrap();
        let other = |one: &&Value| one["id"] != before;
        if let Some(one) = listed["waiting"].as_array().unwrap().iter().find(other) {
            return one.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no question");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn branches(kit: &Bailiwick) -> String {
    kit.shell_outside("git -C ~/bare.git for-each-ref --format='%(refname)'")
        .ok()
        .stdout
}

fn asked(agent: fn(u16) -> Agent, tool: &'static str, argument: &'static str) {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let call = |line: &str| {
            let mut input = json!({ argument: line });
            if tool == "Bash" {
                input["description"] = Value::from("a step");
            }
            Turn::tool(tool, input)
        };
        let program = kit.program();
        let push = |branch: &str| format!("git push origin HEAD:refs/heads/agent/{branch} && echo pushed {branch}");
        let tell = format!(
            "{program} tell $({program} last -n 1 2>/dev/null | cut -d' ' -f2 | tr -d :) 'so that dana can review it'"
        );
        let model = ScriptedModel::start(vec![
            call(&push("one")),
            call(&push("two")),
            call(&tell),
            call(&push("two")),
            Turn::text("all done"),
        ]);
        let agent = agent(model.port());
        settle(&kit, &agent, &model);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| kit.agent(&agent));
            // It waits: nothing is pushed before the yes, and the next push asks again.
            let first = question(&kit, "");
            assert!(
                first["act"]
                    .as_str()
                    .unwrap()
                    .starts_with("broker git push origin HEAD:refs/heads/agent/one")
            );
            assert_eq!(branches(&kit), "");
            kit.run(&["approve", first["id"].as_str().unwrap()]).ok();
            let second = question(&kit, first["id"].as_str().unwrap());
            assert_eq!(branches(&kit), "refs/heads/agent/one\n");
            kit.run(&[
                "approve",
                second["id"].as_str().unwrap(),
                "--more",
                "who needs this branch?",
            ])
            .ok();
            let third = question(&kit, second["id"].as_str().unwrap());
            assert_eq!(third["words"][0]["asked"], "who needs this branch?");
            assert_eq!(third["words"][0]["answered"], "so that dana can review it");
            kit.run(&["approve", third["id"].as_str().unwrap()]).ok();
            let done = run.join().unwrap().ok();
            assert!(done.stdout.contains("all done"), "{}\n{}", done.stdout, done.stderr);
        });
        assert_eq!(branches(&kit), "refs/heads/agent/one\nrefs/heads/agent/two\n");
        let results = model.results();
        assert_eq!(results.len(), 4, "{results:?}");
        assert!(results[0].contains("pushed one"), "{results:?}");
        // What the person wants to know is in the result that the model reads next.
        assert!(
            results[1].contains("who needs this branch?") && results[1].contains("tell-more"),
            "{results:?}"
        );
        assert!(results[3].contains("pushed two"), "{results:?}");
    }
}

#[test]
fn p8_claude_waits_for_each_push_and_hears_what_a_person_wants_to_know() {
    asked(claude, "Bash", "command");
}

#[test]
fn p8_codex_waits_for_each_push_and_hears_what_a_person_wants_to_know() {
    asked(codex, "exec_command", "cmd");
}
