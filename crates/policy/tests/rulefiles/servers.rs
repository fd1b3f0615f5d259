//! Tool servers: what they are, and what they may do.

use std::collections::BTreeMap;

use bailiwick_gate::AsWritten;
use bailiwick_model::{Obligation, ToolDuty};
use bailiwick_policy::{ServerProgram, ServerVariable, Sources, load_server};

use crate::{answer, file, load, policy, project, request, sources};

const SERVERS: &str = r#"
extends = ["readonly"]

[[server]]
name        = "bank"
run         = ["bank-mcp", "--stdio"]
read        = ["data"]
network     = ["* https://bank.example.com/**"]
environment = { MODE = "test", TOKEN = { secret = "bank" } }
limits      = { start = "5 s", call = "30 s", bytes = "1 MiB" }
sampling    = { tokens = 1000, requests = 3 }

[[server]]
name   = "tickets"
url    = "https://mcp.example.com/mcp"
secret = "tickets"

[secret.bank]
from = "env:BANK"
[secret.tickets]
from = "env:TICKETS"
"#;

#[test]
fn servers_are_read_whole() {
    let policy = policy(SERVERS);
    let bank = policy.settings().server("bank").unwrap();
    assert_eq!(
        bank.program,
        ServerProgram::Run(vec!["bank-mcp".into(), "--stdio".into()])
    );
    assert_eq!(
        bank.environment.get("TOKEN"),
        Some(&ServerVariable::Secret("bank".into()))
    );
    assert_eq!(
        (bank.limits.start, bank.limits.call, bank.limits.bytes),
        (Some(5), Some(30), Some(1 << 20))
    );
    assert_eq!(
        bank.told(),
        [
            "read /home/dana/site/data",
            "* https://bank.example.com/**",
            "use secret:bank"
        ]
    );
    assert_eq!(
        policy.settings().server("tickets").unwrap().told(),
        ["* https://mcp.example.com/mcp", "use secret:tickets"]
    );
    // The agent itself has none of it.
    assert_eq!(
        answer(&policy, &request("GET https://bank.example.com/x")),
        "deny no-rule"
    );
    assert_eq!(
        answer(&policy, &request("GET https://mcp.example.com/mcp")),
        "deny no-rule"
    );
}

#[test]
fn c042_what_a_server_starts_is_denied_where_nothing_is_said() {
    let rules = policy(SERVERS);
    let decision = rules.evaluate(&request("sample bank"));
    assert_eq!(
        decision.obligations,
        [Obligation::Tool(ToolDuty::Tokens { most: 1000 })]
    );
    let budget = rules.budget(decision.reasons[0].rule.as_ref().unwrap());
    assert_eq!(budget.and_then(|(_, budget)| budget.requests), Some(3));
    for act in [
        "elicit bank",
        "roots bank",
        "sample tickets",
        "elicit tickets",
        "roots tickets",
    ] {
        assert_eq!(answer(&rules, &request(act)), "deny no-rule", "{act}");
    }
}

#[test]
fn p2_a_server_has_what_its_table_names_and_every_deny() {
    let text = format!("deny = [\"read data/secret\", \"* https://bank.example.com/admin/**\"]\n{SERVERS}");
    let sources = Sources {
        project: Some(file("bailiwick.toml", &text)),
        ..sources()
    };
    let rules = load(&sources).unwrap();
    let of = |name: &str| {
        let server = rules.settings().server(name).unwrap();
        load_server(&sources, &AsWritten, server, rules.settings(), BTreeMap::new()).unwrap()
    };
    let bank = of("bank");
    for (act, want) in [
        ("read data/x", "allow allowed-by-rule"),
        ("read data/secret", "deny denied-by-rule"),
        ("read src/main.rs", "deny no-rule"),
        ("write data/x", "deny no-rule"),
        ("GET https://bank.example.com/accounts", "allow allowed-by-rule"),
        ("GET https://bank.example.com/admin/x", "deny denied-by-rule"),
        ("GET https://other.example.com/", "deny no-rule"),
        ("read /usr/bin/env", "allow allowed-by-rule"),
        ("call bank/x", "deny no-rule"),
    ] {
        assert_eq!(answer(&bank, &request(act)), want, "{act}");
    }
    assert!(bank.settings().servers.is_empty() && bank.settings().secrets.is_empty());
    let tickets = of("tickets");
    for (act, want) in [
        ("POST https://mcp.example.com/mcp", "allow allowed-by-rule"),
        ("POST https://mcp.example.com/other", "deny no-rule"),
        ("GET https://bank.example.com/accounts", "deny no-rule"),
        ("read data/x", "deny no-rule"),
    ] {
        assert_eq!(answer(&tickets, &request(act)), want, "{act}");
    }
    let duties = tickets
        .evaluate(&request("POST https://mcp.example.com/mcp"))
        .obligations;
    let injects = |duty: &Obligation| matches!(duty, Obligation::Inject { secret, .. } if secret.as_str() == "tickets");
    assert!(duties.iter().any(injects), "{duties:?}");
    assert_eq!(tickets.settings().secrets.len(), 1);
}

#[test]
fn p4_mistakes_in_servers_are_told() {
    for (text, says) in [
        ("[[server]]\nrun = [\"x\"]", "a server has no `name`"),
        ("[[server]]\nname = \"Bank\"\nrun = [\"x\"]", "is no name of a server"),
        ("[[server]]\nname = \"a_b\"\nrun = [\"x\"]", "is no name of a server"),
        (
            "[[server]]\nname = \"bailiwick\"\nrun = [\"x\"]",
            "the gateway's own name",
        ),
        ("[[server]]\nname = \"a\"", "says not what it is"),
        ("[[server]]\nname = \"a\"\nrun = []", "`run` names no program"),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nurl = \"https://a.test/\"",
            "not both",
        ),
        ("[[server]]\nname = \"a\"\nurl = \"http://a.test/mcp\"", "without TLS"),
        (
            "[[server]]\nname = \"a\"\nurl = \"https://a.test/*\"",
            "is not one address",
        ),
        (
            "[[server]]\nname = \"a\"\nurl = \"https://a.test/mcp\"\nread = [\".\"]",
            "has nothing else",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nsecret = \"s\"\n[secret.s]\nfrom = \"env:S\"",
            "is for a server with a `url`",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nenvironment = { T = { secret = \"s\" } }",
            "there is no secret `s`",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nenvironment = { \"A B\" = \"x\" }",
            "is not the name of a variable",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\n[[server]]\nname = \"a\"\nrun = [\"y\"]",
            "there are two servers `a`: the other is at bailiwick.toml:3",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nenvironment = { T = { secret = \"s\" } }\n[[server]]\nname = \"b\"\nrun = [\"y\"]\nenvironment = { T = { secret = \"s\" } }\n[secret.s]\nfrom = \"env:S\"",
            "is that of the server `a`",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nsampling = { tokens = 0 }",
            "is not a count",
        ),
        (
            "[[server]]\nname = \"a\"\nrun = [\"x\"]\nargs = []",
            "is not a known key",
        ),
    ] {
        let wrong = project(&format!("extends = [\"readonly\"]\n{text}"))
            .map(|_| ())
            .unwrap_err();
        assert!(wrong.iter().any(|one| one.message.contains(says)), "{text}\n{wrong:#?}");
    }
}

#[test]
fn p2_a_persons_own_server_leaves_the_ceiling_as_it_is() {
    let person = "[[server]]\nname = \"own\"\nrun = [\"own-mcp\"]\nelicitation = true\n";
    let of = |project: &str| {
        load(&Sources {
            person: vec![file("servers.toml", person)],
            project: Some(file("bailiwick.toml", project)),
            ..sources()
        })
        .unwrap()
    };
    let rules = of("extends = [\"readonly\"]\nallow = [\"call own/*\", \"elicit own\"]\n");
    assert!(rules.settings().server("own").is_some());
    assert_eq!(answer(&rules, &request("read src")), "allow allowed-by-rule");
    assert_eq!(answer(&rules, &request("call own/x")), "allow allowed-by-rule");
    assert_eq!(answer(&rules, &request("elicit own")), "allow allowed-by-rule");
    let silent = of("extends = [\"readonly\"]\n");
    assert_eq!(answer(&silent, &request("elicit own")), "deny no-rule");
    assert!(!silent.visible("own", "x"));
}
