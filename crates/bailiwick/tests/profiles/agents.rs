//! The real agent programs: each starts inside, does a scripted edit, and leaves its state with the context.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bailiwick_testkit::{Agent, ScriptedModel, Turn, claude, codex, gemini, goose, opencode};
use serde_json::json;

use crate::kits;

/// All files of a folder, from it; links are not followed.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What a program that still ends has just removed is not there.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(files(&path));
        } else {
            all.insert(path);
        }
    }
    all
}

/// What the person's home holds, but for bailiwick's own.
fn of_the_person(home: &Path) -> BTreeSet<PathBuf> {
    let own = home.join(".local/state/bailiwick");
    files(home).into_iter().filter(|path| !path.starts_with(&own)).collect()
}

/// Runs an agent twice. `settings` is what of the person's it is shown, `state` where it keeps its own.
fn works_and_keeps(agent: fn(u16) -> Agent, tool: &str, argument: &str, settings: Option<&str>, state: &[&str]) {
    for kit in kits() {
        let mut before = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for round in ["one", "two"] {
            let line = format!("echo {round} >> made.txt && cat made.txt");
            let model = ScriptedModel::start(vec![
                Turn::tool(tool, json!({argument: line, "description": "a step"})),
                Turn::text("all done"),
            ]);
            let agent = agent(model.port());
            let shown = settings.map_or_else(String::new, |path| format!(", \"~/{path}\""));
            kit.write(
                "bailiwick.toml",
                &format!(
                    "extends = [\"coding\"]\n[files]\nread = [\"{}\"{shown}]\n[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n\
                     [environment]\npass = [\"LOCAL_KEY\"]\n",
                    agent.folder.display(),
                    model.port()
                ),
            );
            kit.run(&["trust"]).ok();
            agent.settle_in(&kit.home());
            if before.is_empty() {
                before = of_the_person(&kit.home());
            }
            let done = kit.agent(&agent).ok();
            assert!(done.stdout.contains("all done"), "{}\n{}", done.stdout, done.stderr);
            let results = model.results();
            assert!(results.len() == 1 && results.concat().contains(round), "{results:?}");
            assert_eq!(
                of_the_person(&kit.home()),
                before,
                "nothing of it is in the person's home"
            );
            let contexts = kit.home().join(".local/state/bailiwick/contexts");
            let context = std::fs::read_dir(contexts).unwrap().next().unwrap().unwrap().path();
            let now: BTreeSet<PathBuf> = state
                .iter()
                .flat_map(|folder| files(&context.join("home").join(folder)))
                .collect();
            assert!(now.len() > 1, "{now:?}");
            assert!(round == "one" || !now.is_disjoint(&kept), "{kept:?}\n{now:?}");
            kept = now;
        }
        assert_eq!(
            std::fs::read_to_string(kit.project().join("made.txt")).unwrap(),
            "one\ntwo\n"
        );
    }
}

#[test]
fn p2_claude_keeps_its_state_with_the_context() {
    works_and_keeps(claude, "Bash", "command", None, &[".claude"]);
}

#[test]
fn p2_codex_keeps_its_state_with_the_context() {
    works_and_keeps(codex, "exec_command", "cmd", Some(".codex/config.toml"), &[".codex"]);
}

#[test]
fn p2_opencode_keeps_its_state_with_the_context() {
    let settings = Some(".config/opencode/opencode.json");
    works_and_keeps(opencode, "bash", "command", settings, &[".local/share/opencode"]);
}

#[test]
fn p2_gemini_keeps_its_state_with_the_context() {
    works_and_keeps(
        gemini,
        "run_shell_command",
        "command",
        Some(".gemini/settings.json"),
        &[".gemini"],
    );
}

#[test]
fn p2_goose_keeps_its_state_with_the_context() {
    works_and_keeps(goose, "shell", "command", None, &[".local/share/goose"]);
}

/// Codex as people start it, with the settings that its profile lays.
fn codex_with_a_sandbox(model_port: u16) -> Agent {
    let mut agent = codex(model_port);
    agent.files.clear();
    let provider = format!(
        "model_providers.local={{name=\"local\",base_url=\"http://127.0.0.1:{model_port}/v1\",wire_api=\"responses\",env_key=\"LOCAL_KEY\"}}"
    );
    let words = [
        "exec",
        "--skip-git-repo-check",
        "--json",
        "-c",
        "model=\"scripted\"",
        "-c",
        "model_provider=\"local\"",
        "-c",
    ];
    agent.command.truncate(1);
    agent.command.extend(words.map(String::from));
    agent.command.extend([provider, "go".into()]);
    agent
}

#[test]
fn p2_codex_works_without_a_sandbox_of_its_own() {
    works_and_keeps(codex_with_a_sandbox, "exec_command", "cmd", None, &[".codex"]);
}
