//! Which layers there are, and what each can do.

use bailiwick_model::{Layer, Obligation, PathPattern, Verb, Verdict};
use bailiwick_policy::{OverlapKind, Policy, Sources, trust_digest};

use crate::{answer, file, load, policy, project, request, sources, tree};

const ALLOWED: &str = "allow allowed-by-rule";
const DENIED: &str = "deny denied-by-rule";
const NO_RULE: &str = "deny no-rule";

/// A Rust project without a rule file.
fn default() -> Policy {
    load(&Sources {
        toolchains: vec!["rust".into()],
        found: None,
        ..sources()
    })
    .unwrap()
}

#[test]
fn without_any_file_a_context_may_code_in_its_folder() {
    let policy = default();
    assert_eq!(policy.warnings(), []);
    for (act, want) in [
        ("read src/main.rs", ALLOWED),
        ("write src/main.rs", ALLOWED),
        ("create x", ALLOWED),
        ("delete x", ALLOWED),
        ("run cargo test", ALLOWED),
        ("read /usr/bin/git", ALLOWED),
        ("read ~/.cargo/registry/x", ALLOWED),
        ("GET https://index.crates.io/se/rd/serde", ALLOWED),
        ("resolve index.crates.io", ALLOWED),
        ("read .env.example", ALLOWED),
        ("read .github/workflows/ci.yml", ALLOWED),
        ("write .git/refs/heads/x", ALLOWED),
        ("write .git/worktrees/w/index", ALLOWED),
        ("write .git/modules/m/index", ALLOWED),
        ("read .env", DENIED),
        ("read ~/.ssh/id_ed25519", DENIED),
        ("read ~/.cargo/credentials.toml", DENIED),
        ("read ~/.config/bailiwick/x.toml", DENIED),
        ("write bailiwick.toml", DENIED),
        ("write sub/bailiwick.toml", DENIED),
        ("write .git/hooks/pre-commit", DENIED),
        ("write .git/config", DENIED),
        ("write .git/modules/a/b/hooks/x", DENIED),
        ("write .claude/settings.json", DENIED),
        ("write .github/workflows/ci.yml", DENIED),
        ("read /etc/shadow", DENIED),
        ("read /run/docker.sock", DENIED),
        ("read ~/other/x", NO_RULE),
        ("write /usr/bin/git", NO_RULE),
        ("write ~/.cargo/bin/x", NO_RULE),
        ("read /etc/hostname", NO_RULE),
        ("tunnel github.com", NO_RULE),
        ("resolve github.com", NO_RULE),
        ("GET http://index.crates.io/", NO_RULE),
        ("PUT https://index.crates.io/", NO_RULE),
        ("tunnel index.crates.io", NO_RULE),
        ("tunnel index.crates.io:22", NO_RULE),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
}

#[test]
fn trees_come_with_what_is_hidden_and_guarded_in_them() {
    let policy = default();
    let home = "/home/dana/site";
    let write = policy.evaluate(&tree(Verb::Write, home));
    assert_eq!(write.verdict, Verdict::Allow);
    let pattern = |text: &str| PathPattern::parse(text).unwrap();
    let hide = |text: &str| Obligation::Hide { pattern: pattern(text) };
    let guard = |text: &str| Obligation::Guard { pattern: pattern(text) };
    assert!(write.obligations.contains(&hide("/home/dana/site/**/.env")));
    assert!(write.obligations.contains(&guard("/**/.git/hooks")));
    assert!(
        !write.obligations.contains(&hide("/home/dana/.ssh")),
        "that lies elsewhere"
    );
    let read = policy.evaluate(&tree(Verb::Read, home));
    assert!(
        read.obligations.contains(&hide("/home/dana/site/**/.env"))
            && !read.obligations.contains(&guard("/**/.git/hooks"))
    );
    assert_eq!(
        policy.evaluate(&tree(Verb::Read, "/usr")).obligations,
        [],
        "system trees need no search"
    );
    let mut seen = Vec::new();
    for duty in write.obligations {
        assert!(!seen.contains(&duty), "{duty:?} stands twice");
        seen.push(duty);
    }
    assert_eq!(answer(&policy, &tree(Verb::Read, "/home/dana")), NO_RULE);
    assert_eq!(answer(&policy, &tree(Verb::Read, "/home/dana/.ssh")), DENIED);
    let candidates = policy.tree_candidates();
    assert!(candidates.contains(&(Verb::Write, bailiwick_model::AbsPath::new(home).unwrap())));
    assert!(candidates.contains(&(Verb::Read, bailiwick_model::AbsPath::new("/usr").unwrap())));
}

#[test]
fn c070_a_contradiction_in_an_untrusted_file_is_a_mistake_too() {
    for project_trusted in [false, true] {
        let text = "allow = [\"read ~/x\"]\ndeny = [\"read ~/x\"]\n";
        let wrong = load(&Sources {
            project: Some(file("bailiwick.toml", text)),
            project_trusted,
            ..sources()
        });
        let wrong = wrong.unwrap_err();
        assert!(
            wrong
                .iter()
                .any(|one| one.is_error() && one.to_string().contains("both allowed and denied"))
        );
    }
}

#[test]
fn an_untrusted_project_can_only_take_away() {
    let text =
        "context = \"x\"\n[files]\nread = [\"~/notes\"]\ndeny = [\"secret\"]\n[environment]\npass = [\"TOKEN\"]\n";
    let with = |trusted| {
        load(&Sources {
            project: Some(file("bailiwick.toml", text)),
            project_trusted: trusted,
            ..sources()
        })
        .unwrap()
    };
    let (untrusted, trusted) = (with(false), with(true));
    assert_eq!(answer(&untrusted, &request("read ~/notes/x")), NO_RULE);
    assert_eq!(answer(&untrusted, &request("read secret/x")), DENIED);
    assert_eq!(answer(&untrusted, &request("read src/x")), ALLOWED);
    assert!(!untrusted.settings().passes("TOKEN") && untrusted.settings().context.is_none());
    let warning = untrusted.warnings()[0].to_string();
    assert_eq!(
        warning,
        "bailiwick.toml:1:1: this file is not trusted: only its denies hold, beside the preset `coding`"
    );
    assert_eq!(answer(&trusted, &request("read ~/notes/x")), ALLOWED);
    assert_eq!(answer(&trusted, &request("read src/x")), NO_RULE, "it extends nothing");
    assert!(trusted.settings().passes("TOKEN") && trusted.warnings().is_empty());
}

#[test]
fn p2_every_layer_that_is_there_must_allow() {
    let with = |machine: &str, person: &str| {
        let list = |name: &str, text: &str| {
            if text.is_empty() {
                Vec::new()
            } else {
                vec![file(name, text)]
            }
        };
        load(&Sources {
            machine: list("/etc/bailiwick/m.toml", machine),
            person: list("~/.config/bailiwick/p.toml", person),
            ..sources()
        })
        .unwrap()
    };
    let narrow = with("", "allow = [\"read ~/site\", \"run **\"]\n");
    assert_eq!(answer(&narrow, &request("read x")), ALLOWED);
    let denied = narrow.evaluate(&request("write x"));
    assert_eq!(
        denied.reasons[0].text,
        "no rule of the person layer allows `write /home/dana/site/x`"
    );
    let machine = with("allow = [\"read /usr\"]\n", "");
    assert_eq!(answer(&machine, &request("read /usr/x")), ALLOWED);
    assert_eq!(answer(&machine, &request("read x")), NO_RULE);
    // Files that only deny narrow the ceiling there is.
    let denies = with("deny = [\"run **\"]\n", "[files]\ndeny = [\"~/site/x\"]\n");
    assert_eq!(denies.granting_layers(), [Layer::Person, Layer::Context]);
    assert_eq!(answer(&denies, &request("read y")), ALLOWED);
    assert_eq!(answer(&denies, &request("read x")), DENIED);
    assert_eq!(
        answer(&denies, &request("read ~/.ssh/x")),
        DENIED,
        "the shipped ceiling still holds"
    );
    assert_eq!(answer(&denies, &request("run make")), DENIED);
    let extended = with("", "extends = [\"ceiling\"]\n[files]\ndeny = [\"~/site/x\"]\n");
    assert_eq!(answer(&extended, &request("read y")), ALLOWED);
}

#[test]
fn the_narrower_of_allow_and_ask_wins_and_a_tie_asks() {
    let policy = policy(
        "extends = [\"coding\"]\n[network]\nallow = [\"* http://a.test/models/**\", \"GET http://b.test/**\", \"tunnel c.test\"]\n\
         ask = [\"POST http://**\", \"* http://b.test/**\", \"tunnel **\", \"tunnel d.test\"]\n",
    );
    for (act, want) in [
        ("POST http://a.test/models/x", ALLOWED),
        ("POST http://a.test/other", "ask asked-by-rule"),
        ("GET http://a.test/other", NO_RULE),
        ("GET http://b.test/x", ALLOWED),
        ("POST http://b.test/x", "ask asked-by-rule"),
        ("tunnel c.test", ALLOWED),
        ("tunnel e.test", "ask asked-by-rule"),
        ("resolve d.test", ALLOWED),
        ("resolve e.test", "ask asked-by-rule"),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let tie = crate::policy("allow = [\"tunnel a.test\"]\nask = [\"tunnel a.test\"]\n");
    assert_eq!(answer(&tie, &request("tunnel a.test")), "ask asked-by-rule");
}

#[test]
fn reasons_name_the_rule_and_its_line() {
    let policy =
        policy("extends = [\"coding\"]\n[files]\nwrite = [\".\"]\ndeny = [{ rule = \"keys\", reason = \"ours\" }]\n");
    let decision = policy.evaluate(&request("read keys/x"));
    let reason = &decision.reasons[0];
    assert_eq!(
        reason.text,
        "`* /home/dana/site/keys` (bailiwick.toml:4) denies it: ours"
    );
    assert_eq!(reason.rule.as_ref().map(|rule| (rule.line, rule.column)), Some((4, 18)));
    let allowed = policy.evaluate(&request("read x"));
    assert_eq!(
        allowed.reasons[0].text,
        "`write /home/dana/site` (preset:coding:8) allows it"
    );
}

#[test]
fn p4_an_ill_formed_request_is_denied() {
    let policy = default();
    let mut odd = request("read x");
    odd.verb = Verb::Tunnel;
    assert_eq!(answer(&policy, &odd), "deny malformed-request");
    assert_eq!(
        answer(&policy, &tree(Verb::Delete, "/home/dana/site")),
        "deny malformed-request"
    );
}

#[test]
fn settings_are_merged_over_the_layers() {
    let policy = load(&Sources {
        person: vec![file("p", "[limits]\nmemory = \"4 GiB\"\n[environment]\nset = { A = \"outer\" }\n")],
        project: Some(file(
            "bailiwick.toml",
            "context = \"site\"\nextends = [\"coding\"]\n[limits]\nmemory = \"8 GiB\"\nprocesses = 10\n[environment]\nset = { A = \"inner\", B = \"b\" }\n\
             [network]\ntunnel = [\"a.test\", \"localhost:5432\"]\nallow = [\"* http://127.0.0.1:11434/**\"]\nprivate = [\"*.corp.test\"]\nhosts = { \"db.test\" = \"10.0.0.5\" }\n",
        )),
        profiles: vec!["claude-code".into()],
        ..sources()
    })
    .unwrap();
    let settings = policy.settings();
    assert_eq!(settings.context.as_deref(), Some("site"));
    assert_eq!((settings.memory, settings.processes), (Some(4 << 30), Some(10)));
    assert_eq!(settings.environment_set.get("A").map(String::as_str), Some("outer"));
    assert!(
        settings.passes("ANTHROPIC_API_KEY") && settings.passes("LC_ALL") && !settings.passes("AWS_SECRET_ACCESS_KEY")
    );
    let ports: Vec<_> = settings
        .loopback_ports
        .iter()
        .map(|port| (port.port, port.http))
        .collect();
    assert_eq!(ports, [(5432, false), (11434, true)]);
    let direct: Vec<String> = settings
        .direct_endpoints
        .iter()
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    assert!(
        direct.contains(&"a.test:443".into()) && direct.contains(&"api.anthropic.com:443".into()),
        "{direct:?}"
    );
    assert_eq!(settings.hosts.len(), 1);
    assert_eq!(settings.private.len(), 1);
}

#[test]
fn trust_is_of_the_text_and_what_it_extends() {
    let one = trust_digest(&file("bailiwick.toml", "extends = [\"coding\"]\n"), None);
    assert_eq!(one, trust_digest(&file("elsewhere", "extends = [\"coding\"]\n"), None));
    assert_ne!(
        one,
        trust_digest(&file("bailiwick.toml", "extends = [\"coding\"]\n\n"), None)
    );
    assert_ne!(
        one,
        trust_digest(&file("bailiwick.toml", "extends = [\"readonly\"]\n"), None)
    );
}

#[test]
fn p14_the_digest_is_of_the_rules_and_settings() {
    let digest = |text: &str| policy(text).digest();
    let plain = digest("extends = [\"coding\"]\n");
    assert_eq!(plain, digest("# moved\n\nextends = [\"coding\"]\n"));
    assert_ne!(plain, digest("extends = [\"coding\"]\ndeny = [\"read x\"]\n"));
    assert_ne!(plain, digest("extends = [\"coding\"]\n[limits]\nprocesses = 5\n"));
}

#[test]
fn overlaps_are_found() {
    let policy = policy(
        "[files]\nwrite = [\".\"]\nread = [\"src\"]\ndeny = [\"src/keys\"]\n[network]\nallow = [\"* http://a.test/**\"]\nask = [\"POST http://a.test/**\"]\n",
    );
    let kinds: Vec<(OverlapKind, u32, u32)> = policy
        .overlaps()
        .iter()
        .filter(|pair| pair.decides.file == pair.over.file)
        .map(|pair| (pair.kind, pair.decides.line, pair.over.line))
        .collect();
    assert!(kinds.contains(&(OverlapKind::Exception, 4, 2)) && kinds.contains(&(OverlapKind::Exception, 4, 3)));
    assert!(kinds.contains(&(OverlapKind::Narrower, 7, 6)), "{kinds:?}");
}

#[test]
fn policies_can_be_shown() {
    let policy = project("extends = [\"coding\"]\n[network]\nallow = [\"GET http://a.test/x/**\"]\n").unwrap();
    let cedar = policy.to_cedar();
    let want = "@id(\"context/bailiwick.toml:3:10\")\n@layer(\"context\")\n@origin(\"bailiwick.toml:3:10\")\n@effect(\"allow\")\n\
                @act(\"GET http://a.test/x/**\")\npermit (\n  principal,\n  action == Action::\"http\",\n  resource in UrlPattern::\"http://a.test/x/**\"\n)\n\
                when { context.method == \"GET\" };\n";
    assert!(cedar.contains(want), "{cedar}");
    let layers = policy.layers();
    assert!(
        layers.contains("context (what this context is granted)") && layers.contains("bailiwick.toml:3"),
        "{layers}"
    );
}

#[test]
fn p2_ports_and_devices_come_from_a_trusted_project_only() {
    let text = "extends = [\"coding\"]\n[network]\npublish = [5173, \"8080:3000\"]\n[devices]\nallow = [\"gpu\", \"/dev/kvm\"]\n";
    let with = |project_trusted| {
        load(&Sources {
            project: Some(file("bailiwick.toml", text)),
            project_trusted,
            ..sources()
        })
        .unwrap()
    };
    let (untrusted, trusted) = (with(false), with(true));
    assert!(untrusted.settings().publish.is_empty() && untrusted.settings().devices.is_empty());
    let written = |settings: &bailiwick_policy::Settings| -> Vec<String> {
        let ports = settings.publish.iter().map(ToString::to_string);
        ports.chain(settings.devices.iter().map(ToString::to_string)).collect()
    };
    assert_eq!(written(trusted.settings()), ["5173", "8080:3000", "gpu", "/dev/kvm"]);
    for outer in ["[network]\npublish = [5173]\n", "[devices]\nallow = [\"gpu\"]\n"] {
        let wrong = load(&Sources {
            person: vec![file("rules.toml", outer)],
            ..sources()
        })
        .unwrap_err();
        assert!(
            wrong[0].to_string().contains("cannot hold for every context"),
            "{}",
            wrong[0]
        );
    }
}
