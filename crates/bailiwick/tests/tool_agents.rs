//! Real agent programs that call tools through the gate: an honest one pays what it may, a taken-over one gets nowhere.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::path::Path;

use bailiwick_testkit::{Agent, Bailiwick, ScriptedModel, Turn, claude, codex};
use serde_json::{Value, json};

fn read(example: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter");
    std::fs::read_to_string(root.join(example)).unwrap()
}

/// The babysitter's desk for an agent whose model listens at a port.
fn settle(kit: &Bailiwick, agent: &Agent, model: &ScriptedModel) {
    for part in ["bank.py", "mcp.py"] {
        kit.write_home(&format!("bank/{part}"), &read(&format!("bank/{part}")));
    }
    kit.write_home("bank/till/payments.jsonl", "");
    let rules = read("desk/bailiwick.toml").replace("\"../bank", "\"../home/bank");
    let rules = format!(
        "{rules}\n[files]\nread = [\"{}\", \"~/.codex/config.toml\"]\n\n[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n\n\
         [environment]\npass = [\"ANTHROPIC_*\", \"DISABLE_AUTOUPDATER\", \"CLAUDE_CODE_*\", \"IS_SANDBOX\", \"LOCAL_KEY\"]\n",
        agent.folder.display(),
        model.port(),
    );
    kit.write("bailiwick.toml", &rules);
    kit.write(
        "mcp.json",
        &json!({ "mcpServers": { "tools": { "command": "bailiwick", "args": ["mcp"] } } }).to_string(),
    );
    kit.hand_over();
    kit.run(&["trust"]).ok();
    kit.run(&["tools", "pin", "--yes"]).ok();
}

fn pay(recipient: &str, amount: u32) -> Value {
    json!({ "recipient": recipient, "amount": amount, "currency": "EUR" })
}

/// Claude Code knows the gate by a file, Codex by its settings.
fn with_tools(mut agent: Agent, name: &str) -> Agent {
    if name == "claude" {
        let more = ["--mcp-config", "mcp.json", "--strict-mcp-config"];
        agent.command.extend(more.map(ToOwned::to_owned));
    } else {
        for (_, settings) in &mut agent.files {
            settings.push_str("\n[mcp_servers.tools]\ncommand = \"bailiwick\"\nargs = [\"mcp\"]\n");
        }
    }
    agent
}

fn calls(name: &str, agent: fn(u16) -> Agent) {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let tool = "mcp__tools__bank__send_payment";
        let model = ScriptedModel::start(vec![
            Turn::tool(tool, pay("Mallory", 150)),
            Turn::tool(tool, pay("Babysitter", 999)),
            Turn::tool(tool, pay("Babysitter", 150)),
            Turn::tool(tool, pay("Babysitter", 150)),
            Turn::text("all done"),
        ]);
        let agent = with_tools(agent(model.port()), name);
        settle(&kit, &agent, &model);
        let done = kit.agent(&agent).ok();
        assert!(done.stdout.contains("all done"), "{}\n{}", done.stdout, done.stderr);
        let results = model.results();
        assert_eq!(results.len(), 4, "{results:?}");
        for (place, want) in [
            (0, "arguments-refused"),
            (1, "arguments-refused"),
            (2, "paid 150 EUR to Babysitter"),
            (3, "budget-spent"),
        ] {
            assert!(results[place].contains(want), "{place}: {results:?}");
        }
        let till = std::fs::read_to_string(kit.home().join("bank/till/payments.jsonl")).unwrap();
        assert_eq!(till.lines().count(), 1, "{till}");
        assert!(till.contains("Babysitter") && till.contains("150"), "{till}");
    }
}

#[test]
fn p3_claude_pays_what_it_may_and_no_more() {
    calls("claude", claude);
}

#[test]
fn p3_codex_pays_what_it_may_and_no_more() {
    calls("codex", codex);
}
