//! Servers of tools that are reached by an address, and what a person is told of calls.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::path::Path;

use bailiwick_testkit::{Answer, Bailiwick, Origin, Root};
use serde_json::{Value, json};

const SECRET: &str = "s3cret-of-the-tickets-4711";

/// A server of one tool, over streamable HTTP, that says back what login came with a call.
fn served(text: &str, login: Option<&str>) -> Answer {
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return Answer::text(405, "");
    };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "tickets", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{
            "name": "find", "description": "Finds a ticket.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        }]}),
        Some("tools/call") => json!({"content": [{
            "type": "text",
            "text": format!("ticket {}, asked with {}", message["params"]["arguments"]["id"], login.unwrap_or("nothing")),
        }]}),
        _ => json!({}),
    };
    if message.get("id").is_none() {
        return Answer::text(202, "");
    }
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Answer::whole(200, "application/json", answer.to_string().into_bytes())
}

fn agent(kit: &Bailiwick, calls: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter/desk/agent.py");
    kit.write("agent.py", &std::fs::read_to_string(from).unwrap());
    kit.write("calls.jsonl", calls);
}

#[test]
fn p9_a_remote_server_gets_its_login_at_the_gate_and_nobody_inside_has_it() {
    for mut kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        kit.set("TICKETS", SECRET);
        let root = Root::new();
        let origin = Origin::over_tls(&root, &["mcp.test"], |heard| {
            served(&heard.text(), heard.header("authorization"))
        });
        kit.write_home("root.pem", root.pem());
        kit.write_home(
            ".config/bailiwick/rules.toml",
            "extends = [\"ceiling\"]\n[network]\nroots = [\"~/root.pem\"]\n",
        );
        agent(
            &kit,
            "{\"tool\": \"tickets__find\", \"args\": {\"id\": 7}}\n{\"tool\": \"tickets__find\", \"args\": {\"id\": 8}}\n",
        );
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network.hosts]\n\"mcp.test\" = \"127.0.0.1\"\n\
                 [secret.tickets]\nfrom = \"env:TICKETS\"\n\
                 [[server]]\nname = \"tickets\"\nurl = \"https://mcp.test:{}/mcp\"\nsecret = \"tickets\"\n\
                 [[tool]]\nname = \"tickets/find\"\nwhen = \"args.id <= 7\"\n",
                origin.port()
            ),
        );
        kit.hand_over();
        kit.run(&["trust"]).ok();
        kit.run(&["tools", "pin", "--yes"]).ok();
        let line = "python3 agent.py calls.jsonl; env; curl -sS -m 5 https://mcp.test:$1/mcp";
        let port = origin.port().to_string();
        let done = kit.run(&["run", "-q", "--", "sh", "-c", line, "sh", &port]);
        let lines: Vec<&str> = done.stdout.lines().collect();
        // What the server says back of its login is taken out on its way.
        assert!(lines[0].starts_with("ok ticket 7, asked with Bearer "), "{done:?}");
        assert!(
            lines[1].contains("arguments-refused") && lines[1].contains("`id`"),
            "{done:?}"
        );
        assert!(
            !done.stdout.contains(SECRET) && !done.stderr.contains(SECRET),
            "{done:?}"
        );
        let heard = origin.requests();
        let calls: Vec<_> = heard
            .iter()
            .filter(|heard| heard.text().contains("tools/call"))
            .collect();
        assert_eq!(calls.len(), 1, "{heard:?}");
        assert!(
            heard
                .iter()
                .all(|heard| heard.header("authorization") == Some(&format!("Bearer {SECRET}")[..])),
            "{heard:?}"
        );
        // The agent itself reaches neither the address nor the login.
        assert!(
            done.stdout.contains("bailiwick refused") || done.status != 0,
            "{done:?}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(!log.contains(SECRET) && log.contains("secret tickets put in"), "{log}");
    }
}

#[test]
fn p8_a_person_is_told_what_was_done_where_rules_want_that() {
    let kit = Bailiwick::as_ordinary_user();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter");
    for part in ["bank.py", "mcp.py"] {
        let text = std::fs::read_to_string(root.join("bank").join(part)).unwrap();
        kit.write_home(&format!("bank/{part}"), &text);
    }
    kit.write_home("bank/till/payments.jsonl", "");
    agent(
        &kit,
        "{\"tool\": \"bank__send_payment\", \"args\": {\"recipient\": \"Babysitter\", \"amount\": 20, \"currency\": \"EUR\"}}\n",
    );
    let rules = std::fs::read_to_string(root.join("desk/bailiwick.toml")).unwrap();
    let rules = rules
        .replace("\"../bank", "\"../home/bank")
        .replace("any    = [\"note\"]", "any    = [\"note\"]\nnotify = true");
    kit.write("bailiwick.toml", &rules);
    kit.hand_over();
    kit.run(&["trust"]).ok();
    kit.run(&["tools", "pin", "--yes"]).ok();
    let done = kit.run(&["run", "-q", "--", "python3", "agent.py", "calls.jsonl"]).ok();
    assert!(done.stdout.starts_with("ok paid 20 EUR"), "{done:?}");
    assert!(
        done.stderr.contains("it did: call bank/send_payment with") && done.stderr.contains("\"Babysitter\""),
        "{done:?}"
    );
}
