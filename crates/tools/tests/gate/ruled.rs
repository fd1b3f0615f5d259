//! Calls under real rules.

use bailiwick_gate::AsWritten;
use bailiwick_model::{AbsPath, Anchors, Request, Verdict};
use bailiwick_policy::{Policy, SourceFile, Sources, load};
use bailiwick_tools::Lock;
use serde_json::{Value, json};

use crate::world::{Plan, Say, definition_of, echo, text};

/// The rules of a trusted project, with what is pinned.
fn policy(rules: &str, lock: &Lock) -> Policy {
    let file = |name: &str, text: &str| SourceFile {
        name: name.into(),
        text: text.into(),
    };
    let sources = Sources {
        machine: Vec::new(),
        person: Vec::new(),
        project: Some(file("bailiwick.toml", &format!("extends = [\"readonly\"]\n{rules}"))),
        project_trusted: true,
        profiles: Vec::new(),
        toolchains: Vec::new(),
        found: None,
        preset: None,
        lock: Some(file("bailiwick.lock", &lock.write())),
        person_lock: None,
        pinning: false,
        relations: None,
        mandate: None,
        anchors: Anchors {
            root: AbsPath::new("/home/dana/site").ok(),
            home: AbsPath::new("/home/dana").unwrap(),
        },
    };
    load(&sources, &AsWritten).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
}

/// What rules come to, as the mediator says it, without budgets and without people.
fn judged(policy: &Policy, request: &Request) -> Say {
    let decision = policy.evaluate(request);
    match decision.verdict {
        Verdict::Allow => Say::Under(decision.obligations),
        Verdict::Ask => Say::Ask(true),
        Verdict::Deny => Say::DenyWith(decision.code, policy.arguments_at_fault(request)),
    }
}

#[test]
fn c038_a_rule_on_arguments_lets_the_one_repository_through_and_names_what_is_wrong() {
    let tools = json!([{"name": "create_ticket", "inputSchema": {"type": "object", "required": ["repo"], "properties": {
        "repo": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}}}}]);
    let mut lock = Lock::default();
    lock.accept("git", definition_of(&tools[0]));
    let rules = r#"
[[tool]]
name     = "git/create_ticket"
when     = 'args.repo == "acme/demo" && (!(args has labels) || args.labels.size() <= 2)'
unlisted = "deny"

[[server]]
name = "git"
run  = ["git-mcp"]
"#;
    let policy = policy(rules, &lock);
    let world = Plan::new()
        .server("git", &["call git/*"], &tools, echo(tools.clone()))
        .start(move |request| judged(&policy, request));
    let mut client = world.client();
    client.call("git__create_ticket", json!({"repo": "acme/demo"})).done();
    client
        .call("git__create_ticket", json!({"repo": "acme/demo", "labels": ["a", "b"]}))
        .done();
    for (arguments, name) in [
        (r#"{"repo": "acme/other"}"#, "repo"),
        (r#"{"repo": "ACME/demo"}"#, "repo"),
        (r#"{"repo": "acme/demo/../other"}"#, "repo"),
        (r#"{"repo": ["acme/demo", "acme/other"]}"#, "repo"),
        ("{}", "repo"),
        (r#"{"repo": "acme/demo", "repository": "acme/other"}"#, "repository"),
        (r#"{"repo": "acme/demo", "labels": ["a", "b", "c"]}"#, "labels"),
        (r#"{"repo": "acme/demo", "repo": "acme/other"}"#, "repo"),
    ] {
        client.write(&format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"git__create_ticket","arguments":{arguments}}}}}"#
        ));
        let answer = loop {
            let message = client.next().unwrap();
            if message["id"] == "x" {
                break message;
            }
        };
        let called = crate::world::called(&answer);
        assert!(called.is_error && called.text.contains(name), "{arguments}: {called:?}");
        assert!(!called.text.contains("acme/demo"), "no rule is shown: {called:?}");
    }
}

#[test]
fn p6_rules_keep_back_and_hand_out_handles() {
    let tools = json!([{"name": "look", "inputSchema": {"type": "object", "properties": {}}}]);
    let mut lock = Lock::default();
    lock.accept("hr", definition_of(&tools[0]));
    let rules = r#"
[[tool]]
name   = "hr/look"
redact = ["/salary"]

[[server]]
name = "hr"
run  = ["hr-mcp"]
"#;
    let policy = policy(rules, &lock);
    let listed: Value = tools.clone();
    let script: crate::world::Script = std::sync::Arc::new(move |mut lines| {
        while let Some(call) = lines.next_call(&listed) {
            lines.answer(&call, text(&json!({"name": "Ann", "salary": 5000}).to_string()));
        }
    });
    let world = Plan::new()
        .server("hr", &["call hr/*"], &tools, script)
        .start(move |request| judged(&policy, request));
    let looked = world.client().call("hr__look", json!({}));
    assert!(
        looked.done().contains("Ann") && !looked.text.contains("5000"),
        "{looked:?}"
    );
}
