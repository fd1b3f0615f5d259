//! Rules about tools: what arguments calls may have, and what is said about mistakes.

use bailiwick_gate::AsWritten;
use bailiwick_model::{Argument, Decision, Obligation, Request, ToolDuty, Verdict, argument};
use bailiwick_policy::{Diagnostic, Policy, SourceFile, Sources, request_for};

use crate::{anchors, answer, file, load, sources};

/// What is pinned of the servers in these tests.
pub(crate) const LOCK: &str = r##"{"version": 1, "servers": {
  "bank": {"tools": {
    "send_payment": {"digest": "00", "definition": {"name": "send_payment", "inputSchema": {
      "type": "object", "required": ["recipient", "amount"], "additionalProperties": false,
      "properties": {"recipient": {"type": "string"}, "amount": {"type": "number"}, "currency": {"type": "string"},
                     "note": {"type": "string"}, "date": {"type": "string", "format": "date"}}}}},
    "list_payments": {"digest": "01", "definition": {"name": "list_payments", "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer"}}}}},
    "odd": {"digest": "02", "definition": {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"type": ["string", "integer"]}}}}}}},
  "github": {"tools": {
    "create_ticket": {"digest": "03", "definition": {"name": "create_ticket", "inputSchema": {
      "type": "object", "required": ["repo"],
      "properties": {"repo": {"type": "string"}, "title": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}}}}}}},
  "hr": {"tools": {
    "get_record": {"digest": "04", "definition": {"name": "get_record", "inputSchema": {
      "type": "object", "required": ["employee_id"], "properties": {"employee_id": {"type": "string"}, "copy_to": {"type": "string"}, "record": {"type": "string"}}}}}}}
}}"##;

const SERVERS: &str = r#"
[[server]]
name = "bank"
run  = ["bank-mcp"]
[[server]]
name = "github"
url  = "https://mcp.example.com/mcp"
[[server]]
name = "hr"
run  = ["hr-mcp"]
"#;

pub(crate) fn with(rules: &str) -> Sources {
    Sources {
        project: Some(file(
            "bailiwick.toml",
            &format!("extends = [\"readonly\"]\n{rules}\n{SERVERS}"),
        )),
        lock: Some(SourceFile {
            name: "bailiwick.lock".into(),
            text: LOCK.into(),
        }),
        ..sources()
    }
}

pub(crate) fn tools(rules: &str) -> Result<Policy, Vec<Diagnostic>> {
    load(&with(rules))
}

fn policy(rules: &str) -> Policy {
    tools(rules).unwrap_or_else(|wrong| panic!("{rules}\n{wrong:#?}"))
}

pub(crate) fn call(text: &str) -> Request {
    request_for(&format!("call {text}"), &anchors(), &AsWritten).unwrap_or_else(|wrong| panic!("{text}: {wrong}"))
}

/// The first error, as `line:column: message`, from the first line of the rules on.
fn mistake(rules: &str) -> String {
    let wrong = tools(rules).map(|_| ()).unwrap_err();
    let first = wrong.iter().find(|one| one.is_error()).unwrap();
    format!("{}:{}: {}", first.line - 1, first.column, first.message)
}

const PAY: &str = r#"
[[tool]]
name   = "bank/send_payment"
when   = 'args.recipient == "Babysitter" && args.amount <= 200'
any    = ["note"]
budget = { sum = { amount = "200 EUR" }, calls = 1 }
"#;

#[test]
fn p4_a_payment_is_bounded_by_its_arguments() {
    let policy = policy(PAY);
    for (args, want, names) in [
        (
            r#"{"recipient": "Babysitter", "amount": 200, "currency": "EUR"}"#,
            "allow allowed-by-rule",
            "",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 199.99, "currency": "EUR", "note": "thanks"}"#,
            "allow allowed-by-rule",
            "",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 2e2, "currency": "EUR"}"#,
            "allow allowed-by-rule",
            "",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 201, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 200.01, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 199.999, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 0.12345, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 0, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": -5, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": "200", "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": null, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": [1], "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 1e300, "currency": "EUR"}"#,
            "",
            "",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 1e20, "currency": "EUR"}"#,
            "deny arguments-refused",
            "amount",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 20, "currency": "USD"}"#,
            "deny arguments-refused",
            "currency",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 20}"#,
            "deny arguments-refused",
            "currency",
        ),
        (
            r#"{"recipient": "babysitter", "amount": 20, "currency": "EUR"}"#,
            "deny arguments-refused",
            "recipient",
        ),
        // The second letter is Cyrillic.
        (
            r#"{"recipient": "Bаbysitter", "amount": 20, "currency": "EUR"}"#,
            "deny arguments-refused",
            "recipient",
        ),
        (
            r#"{"recipient": ["Babysitter"], "amount": 20, "currency": "EUR"}"#,
            "deny arguments-refused",
            "recipient",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 20, "currency": "EUR", "date": "2026-01-01"}"#,
            "deny arguments-refused",
            "date",
        ),
        (
            r#"{"recipient": "Babysitter", "amount": 20, "currency": "EUR", "bcc": "x"}"#,
            "deny arguments-refused",
            "bcc",
        ),
        ("{}", "deny arguments-refused", ""),
    ] {
        let text = format!("call bank/send_payment {args}");
        let Ok(request) = request_for(&text, &anchors(), &AsWritten) else {
            assert_eq!(want, "", "{args}");
            continue;
        };
        assert_eq!(answer(&policy, &request), want, "{args}");
        if !names.is_empty() {
            assert!(
                policy.arguments_at_fault(&request).contains(&names.to_owned()),
                "{args}: {:?}",
                policy.arguments_at_fault(&request)
            );
        }
    }
    let Decision { reasons, .. } = policy.evaluate(&call(
        r#"bank/send_payment {"recipient": "Babysitter", "amount": 201, "currency": "EUR"}"#,
    ));
    assert!(
        reasons[0]
            .text
            .contains("`args.amount <= 200` does not hold: `amount` is 201"),
        "{}",
        reasons[0].text
    );
    // Without arguments, and of another tool.
    assert_eq!(answer(&policy, &call("bank/send_payment")), "deny arguments-refused");
    assert_eq!(answer(&policy, &call("bank/list_payments {}")), "deny no-rule");
}

#[test]
fn c038_a_ticket_only_in_one_repository() {
    for rules in [
        "[[tool]]\nname = \"github/create_ticket\"\nwhen = 'args.repo == \"acme/demo\" && args.labels.count <= 2'\nany = [\"title\"]\n",
        "[[tool]]\nname = \"github/create_ticket\"\narguments = { repo = [\"acme/demo\"], labels = { max = 2, optional = true }, title = { longest = 100, optional = true } }\n",
    ] {
        let policy = policy(rules);
        for (args, want, name) in [
            (r#"{"repo": "acme/demo"}"#, Verdict::Allow, ""),
            (
                r#"{"repo": "acme/demo", "title": "x", "labels": ["a", "b"]}"#,
                Verdict::Allow,
                "",
            ),
            (r#"{"repo": "acme/other"}"#, Verdict::Deny, "repo"),
            (r#"{"repo": "ACME/demo"}"#, Verdict::Deny, "repo"),
            (r#"{"repo": "acme/demo/../other"}"#, Verdict::Deny, "repo"),
            (r#"{"repo": ["acme/demo", "acme/other"]}"#, Verdict::Deny, "repo"),
            (r#"{}"#, Verdict::Deny, "repo"),
            (
                r#"{"repo": "acme/demo", "repository": "acme/other"}"#,
                Verdict::Deny,
                "repository",
            ),
            (
                r#"{"repo": "acme/demo", "labels": ["a", "b", "c"]}"#,
                Verdict::Deny,
                "labels",
            ),
            (r#"{"repo": "acme/demo", "labels": "a"}"#, Verdict::Deny, "labels"),
        ] {
            let request = call(&format!("github/create_ticket {args}"));
            assert_eq!(policy.evaluate(&request).verdict, want, "{rules}{args}");
            let names = policy.arguments_at_fault(&request);
            assert!(name.is_empty() || names == [name], "{rules}{args}: {names:?}");
        }
    }
}

#[test]
fn p4_the_narrower_decides_and_a_deny_beats_all() {
    let policy = policy(
        r#"
        deny = ["call bank/odd"]
        ask  = ["call bank/*"]
        [[tool]]
        name = "bank/send_payment"
        when = 'args.amount <= 20'
        any  = ["recipient", "currency"]
        [[tool]]
        name   = "bank/send_payment"
        effect = "deny"
        when   = 'args.recipient like "*evil*"'
        "#,
    );
    for (text, want) in [
        (
            r#"bank/send_payment {"recipient": "x", "amount": 20}"#,
            "allow allowed-by-rule",
        ),
        (
            r#"bank/send_payment {"recipient": "x", "amount": 21}"#,
            "ask asked-by-rule",
        ),
        (
            r#"bank/send_payment {"recipient": "x", "amount": 20, "note": "n"}"#,
            "ask asked-by-rule",
        ),
        (
            r#"bank/send_payment {"recipient": "angel", "amount": 20}"#,
            "allow allowed-by-rule",
        ),
        (
            r#"bank/send_payment {"recipient": "an evil one", "amount": 20}"#,
            "deny denied-by-rule",
        ),
        // What a deny cannot look at is denied.
        (
            r#"bank/send_payment {"recipient": ["evil"], "amount": 20}"#,
            "deny arguments-refused",
        ),
        (r#"bank/send_payment {"amount": 20}"#, "deny arguments-refused"),
        ("bank/list_payments", "ask asked-by-rule"),
        ("bank/odd", "deny denied-by-rule"),
        ("github/create_ticket", "deny no-rule"),
    ] {
        assert_eq!(answer(&policy, &call(text)), want, "{text}");
    }
    for (server, name, want) in [
        ("bank", "send_payment", true),
        ("bank", "list_payments", true),
        ("bank", "odd", false),
        ("github", "create_ticket", false),
        ("nobody", "x", false),
        ("No Name", "x", false),
    ] {
        assert_eq!(policy.visible(server, name), want, "{server}/{name}");
    }
    let accept = |tool: &str| answer(&policy, &crate::request(&format!("accept {tool}")));
    assert_eq!(accept("bank/send_payment"), "ask tool-changed");
    assert_eq!(accept("bank/odd"), "deny no-rule");
    assert_eq!(accept("github/create_ticket"), "deny no-rule");
}

#[test]
fn p2_a_ceiling_bounds_arguments_too() {
    let person =
        "extends = [\"ceiling\"]\ndeny = [\"call hr/*\"]\n[[tool]]\nname = \"bank/send_payment\"\neffect = \"ask\"\n";
    let own = with(PAY);
    let policy = load(&Sources {
        person: vec![file("rules.toml", person)],
        ..own
    })
    .unwrap();
    let pay = |amount: u32| {
        call(&format!(
            r#"bank/send_payment {{"recipient": "Babysitter", "amount": {amount}, "currency": "EUR"}}"#
        ))
    };
    assert_eq!(answer(&policy, &pay(200)), "ask asked-by-rule");
    assert_eq!(answer(&policy, &pay(201)), "deny arguments-refused");
    assert!(policy.visible("bank", "send_payment") && !policy.visible("hr", "get_record"));
}

#[test]
fn a_rule_says_what_becomes_of_results() {
    let policy = policy(
        r#"
        [[tool]]
        name          = "hr/get_record"
        record_reason = true
        notify        = true
        redact        = ["/ssn", "/rows/*/iban"]
        cap           = { rows = 10, bytes = "64 KiB" }
        present       = { handles = ["/salary"] }
        "#,
    );
    let mut request = call(r#"hr/get_record {"employee_id": "e-1"}"#);
    assert_eq!(answer(&policy, &request), "deny reason-missing");
    request
        .arguments
        .insert(argument::REASON.into(), Argument::Text(" ".into()));
    assert_eq!(answer(&policy, &request), "deny reason-missing");
    request
        .arguments
        .insert(argument::REASON.into(), Argument::Text("yearly talk".into()));
    let decision = policy.evaluate(&request);
    let duties = [
        ToolDuty::Redact {
            paths: vec!["/ssn".into(), "/rows/*/iban".into()],
        },
        ToolDuty::Cap {
            rows: Some(10),
            bytes: Some(64 << 10),
        },
        ToolDuty::Present {
            paths: vec!["/salary".into()],
        },
        ToolDuty::Notify,
    ];
    assert_eq!(decision.verdict, Verdict::Allow);
    assert_eq!(decision.obligations, duties.map(Obligation::Tool));
}

#[test]
fn p4_mistakes_are_told_with_their_place() {
    for (rules, says) in [
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'args.amuont <= 200'",
            "3:9: there is no argument `amuont`",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'args.amount <= 200 && args.note == \"x\"'",
            "3:31: `note` may be missing",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = '''\nargs.amount <= 200 &&\n  args.amount > 300'''",
            "5:3: `args.amount > 300` can never hold beside `args.amount <= 200`",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = \"args.amount <= \"",
            "3:24: the expression ends where a value should be",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'args.recipient <= 200'",
            "3:9: `args.recipient` is a text, `200` is a number",
        ),
        (
            "[[tool]]\nname = \"bank/odd\"\nwhen = 'args has x && args.x == \"a\"'",
            "3:23: `x` cannot be judged: its schema allows more than one type",
        ),
        (
            "[[tool]]\nname = \"bank/new\"\nwhen = 'args.x == 1'",
            "2:8: `bank/new` is not pinned",
        ),
        (
            "[[tool]]\nname = \"bank/*\"\nwhen = 'args.amount <= 1'",
            "3:9: there is no argument `amount` (of `bank/list_payments`)",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nany = [\"notes\"]",
            "3:8: `bank/send_payment` has no argument `notes`",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\narguments = { amonut = { max = 1 } }",
            "3:15: `bank/send_payment` has no argument `amonut`",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nbudget = { sum = { recipient = \"1 EUR\" } }",
            "3:20: `recipient` is a text, and is not added up",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nbudget = { sum = { amount = \"lots\" } }",
            "3:29: `amount` is not an amount",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nbudget = { per = \"week\" }",
            "3:18: `per` is none that there is",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\ntrusted = [\"amuont\"]",
            "3:12: `bank/send_payment` has no argument `amuont`",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\neffect = \"deny\"\nbudget = { calls = 1 }",
            "4:1: `budget` says nothing in a deny",
        ),
        ("[[tool]]\nname = \"bank\"", "2:8: `bank` names no tool"),
        ("[[tool]]\nwhen = 'true'", "1:1: a tool has no `name`"),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwehn = 'true'",
            "3:1: `wehn` is not a known key",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'false'",
            "3:9: this can never hold",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nredact = [\"ssn\"]",
            "3:11: `ssn` names no part of a result",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'args.amount <= 5'\nany = [\"recipient\"]\nallows = ['bank/send_payment {\"recipient\": \"x\", \"amount\": 6}']",
            "5:11: `call bank/send_payment` does not cover its example",
        ),
        (
            "[[tool]]\nname = \"bank/send_payment\"\nwhen = 'args.amount <= 5'\nany = [\"recipient\"]\ndenies = ['bank/send_payment {\"recipient\": \"x\", \"amount\": 5}']",
            "5:11: `call bank/send_payment` covers its example",
        ),
        ("allow = [\"accept bank/odd\"]", "1:1: "),
    ] {
        let told = mistake(rules);
        assert!(
            told.starts_with(says) || rules.starts_with("allow"),
            "{rules}\n{told}\n{says}"
        );
    }
    let pinning = Sources {
        lock: None,
        pinning: true,
        ..with(PAY)
    };
    let unpinned = load(&pinning).unwrap();
    assert_eq!(
        answer(&unpinned, &call("bank/send_payment {}")),
        "deny arguments-refused"
    );
}

#[test]
fn a_rule_keeps_its_examples() {
    policy(
        r#"
        [[tool]]
        name   = "bank/send_payment"
        when   = 'args.recipient == "x" && args.amount <= 5'
        budget = { sum = { amount = "5 EUR" } }
        allows = ['bank/send_payment {"recipient": "x", "amount": 5, "currency": "EUR"}']
        denies = ['bank/send_payment {"recipient": "x", "amount": 5, "currency": "USD"}', 'call bank/send_payment {}']
        [[tool]]
        name   = "bank/send_payment"
        effect = "deny"
        when   = 'args.recipient == "y"'
        denies = ['bank/send_payment {"recipient": "y", "amount": 5}']
        allows = ['bank/send_payment {"recipient": "x", "amount": 5}']
        "#,
    );
}

#[test]
fn a_condition_is_shown_as_cedar_has_it() {
    let policy = policy(PAY);
    let cedar = policy.to_cedar();
    assert!(
        cedar.contains("when { ((context.args.recipient == \"Babysitter\") && context.args.amount.lessThanOrEqual(decimal(\"200.0\"))) };"),
        "{cedar}"
    );
    assert!(
        policy
            .schema()
            .contains("action \"call bank/send_payment\" in [\"call\"]"),
        "{}",
        policy.schema()
    );
    let layers = policy.layers();
    assert!(
        layers.contains("when `args.recipient == \"Babysitter\" && args.amount <= 200`"),
        "{layers}"
    );
}

#[test]
fn p4_an_untrusted_file_has_no_tools() {
    let policy = load(&Sources {
        project_trusted: false,
        ..with(&format!("{PAY}\n[[tool]]\nname = \"hr/*\"\neffect = \"deny\"\n"))
    })
    .unwrap();
    assert!(policy.settings().servers.is_empty());
    assert!(!policy.visible("bank", "send_payment"));
    let request = call(r#"bank/send_payment {"recipient": "Babysitter", "amount": 20, "currency": "EUR"}"#);
    assert_eq!(answer(&policy, &request), "deny no-rule");
    assert_eq!(answer(&policy, &call("hr/get_record {}")), "deny denied-by-rule");
}

#[test]
fn p4_what_is_pinned_is_trusted_with_its_file() {
    let project = file("bailiwick.toml", PAY);
    let lock = |text: &str| bailiwick_policy::trust_digest(&project, Some(&file("bailiwick.lock", text)));
    assert_ne!(lock(LOCK), lock(&LOCK.replace("number", "string")));
    assert_ne!(lock(LOCK), bailiwick_policy::trust_digest(&project, None));
    let broken = load(&Sources {
        lock: Some(file("bailiwick.lock", "{")),
        ..with("")
    });
    assert!(broken.unwrap_err().iter().any(|one| one.file == "bailiwick.lock"));
}
