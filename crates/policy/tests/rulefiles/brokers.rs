//! Commands that run outside, and their secrets.

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_gate::{AsWritten, Judged};
use bailiwick_model::{Command, Resource};
use bailiwick_policy::{Policy, Sources, load_broker};

use crate::{answer, file, load, policy, project, request, sources};

const PUSH: &str = "extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\n[network]\ndeny = [\"* https://evil.test/**\"]\n\
    [[broker]]\nrun = \"git push origin HEAD:refs/heads/agent/*\"\nsecret = \"hub\"\nnetwork = [\"tunnel github.com\", \
    \"tunnel evil.test\"]\nwrite = [\".git/refs\"]\n[secret.hub]\nfrom = \"env:TOKEN\"\n";

fn of_broker(policy: &Policy, text: &str) -> Policy {
    let sources = Sources {
        project: Some(file("bailiwick.toml", text)),
        ..sources()
    };
    let command = Command::typed(&["git", "push", "origin", "HEAD:refs/heads/agent/x"]);
    let broker = policy.settings().broker_of(&command).unwrap();
    load_broker(&sources, &AsWritten, broker, policy.settings(), BTreeMap::new()).unwrap()
}

#[test]
fn a_denied_command_may_be_brokered_and_no_other_word_of_it() {
    let policy = policy(PUSH);
    for (act, want) in [
        ("run git push origin HEAD:refs/heads/agent/x", "deny denied-by-rule"),
        (
            "broker git push origin HEAD:refs/heads/agent/x",
            "allow allowed-by-rule",
        ),
        ("broker git push origin HEAD:refs/heads/main", "deny no-rule"),
        ("broker git push origin HEAD:refs/heads/agent/../main", "deny no-rule"),
        ("broker git push origin HEAD:refs/heads/agent/x --force", "deny no-rule"),
        ("broker git push", "deny no-rule"),
        ("broker ls", "deny no-rule"),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let Judged::Programs(programs) = policy.judged() else {
        panic!("{:?}", policy.judged())
    };
    assert!(programs.contains("git"));
    let alone = PUSH.replace("deny = [\"git push\"]", "deny = []");
    assert_eq!(
        crate::policy(&alone).judged(),
        Judged::Programs(BTreeSet::from(["git".to_owned()]))
    );
}

#[test]
fn p2_a_broker_stands_below_the_ceiling_and_every_deny() {
    let of = |person: &str| {
        load(&Sources {
            project: Some(file("bailiwick.toml", PUSH)),
            person: vec![file("rules.toml", person)],
            ..sources()
        })
        .unwrap()
    };
    let asked = request("broker git push origin HEAD:refs/heads/agent/x");
    assert_eq!(
        answer(&of("deny = [\"broker git push\"]\n"), &asked),
        "deny denied-by-rule"
    );
    assert_eq!(answer(&of("deny = [\"broker **\"]\n"), &asked), "deny denied-by-rule");
    assert_eq!(
        answer(&of("allow = [\"run **\", \"read /\"]\n"), &asked),
        "deny no-rule"
    );
    assert_eq!(
        answer(&of("deny = [\"run git push\"]\n"), &asked),
        "allow allowed-by-rule"
    );
    let own = of_broker(&policy(PUSH), PUSH);
    for (act, want) in [
        ("tunnel github.com", "allow allowed-by-rule"),
        ("tunnel evil.test", "deny denied-by-rule"),
        ("tunnel docs.rs", "deny no-rule"),
        ("read .git/HEAD", "allow allowed-by-rule"),
        ("write .git/refs/x", "allow allowed-by-rule"),
        ("write src", "deny no-rule"),
        ("write .git/config", "deny denied-by-rule"),
        ("read .env", "deny denied-by-rule"),
        ("read ~/.ssh/id", "deny denied-by-rule"),
        ("read ~/other", "deny no-rule"),
        ("run git-remote-https", "allow allowed-by-rule"),
    ] {
        assert_eq!(answer(&own, &request(act)), want, "{act}");
    }
    assert!(own.settings().brokers.is_empty() && !own.settings().passes("EDITOR"));
    assert!(
        own.tree_candidates().iter().all(|(verb, _)| verb.as_str() != "keep"),
        "nothing that the agent keeps"
    );
}

#[test]
fn p2_an_untrusted_project_has_no_broker_and_no_secret() {
    let untrusted = load(&Sources {
        project: Some(file("bailiwick.toml", PUSH)),
        project_trusted: false,
        ..sources()
    })
    .unwrap();
    assert!(untrusted.settings().brokers.is_empty() && untrusted.settings().secrets.is_empty());
    let asked = request("broker git push origin HEAD:refs/heads/agent/x");
    assert_eq!(answer(&untrusted, &asked), "deny no-rule");
    assert!(matches!(asked.resource, Resource::Command(_)));
}

#[test]
fn p4_a_broker_that_the_agent_could_steer_is_a_mistake() {
    for (text, said) in [
        ("[[broker]]\nwrite = [\".\"]\n", "a broker has no `run`"),
        (
            "[[broker]]\nrun = \"git push **\"\n",
            "would let the agent add words of its own",
        ),
        ("[[broker]]\nrun = \"g* push\"\n", "names no one program"),
        ("[[broker]]\nrun = \"@read-only\"\n", "names no one program"),
        (
            "[[broker]]\nrun = \"A=* git push\"\n",
            "takes a variable from the agent",
        ),
        (
            "[[broker]]\nrun = \"git push\"\nsecret = \"x\"\n",
            "there is no secret `x`",
        ),
        (
            "[[broker]]\nrun = \"git push\"\nexec = true\n",
            "`exec` is not a known key",
        ),
        ("allow = [\"broker git push\"]\n", "says not with which authority"),
        ("[secret.x]\nfrom = \"keyring:a=\"\n", "names no item of a keyring"),
        ("[secret.x]\nfrom = \"token\"\n", "no place that a secret comes from"),
        ("[secret.x]\nhost = \"a.test\"\n", "comes from nowhere"),
        ("[secret.x]\nfrom = \"env:T\"\nhost = \"a\\nb\"\n", "one line each"),
    ] {
        let text = format!("extends = [\"coding\"]\n{text}").replace("extends = [\"coding\"]\nallow", "allow");
        let wrong = project(&text).unwrap_err();
        let all: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|one| one.contains(said)), "{text}\n{all:?}");
    }
}
