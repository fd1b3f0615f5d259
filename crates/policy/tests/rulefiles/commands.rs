//! Rules that tell commands apart.

use std::collections::BTreeSet;

use bailiwick_gate::Judged;
use bailiwick_model::{Command, Request, Resource, TaskId, Verb};
use bailiwick_policy::Sources;

use crate::{answer, file, load, policy, request, sources};

#[test]
fn a_list_of_allowed_commands_is_a_list() {
    let denies = policy("extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\nask = [\"gh\"]\n");
    let lists = policy("extends = [\"coding\"]\n[commands]\nallow = [\"ls\", \"git\"]\ndeny = [\"git push\"]\n");
    let whole = policy("extends = [\"coding\"]\nallow = [\"run **\", \"run ls\"]\n");
    for (act, by_deny, by_list) in [
        ("run ls", "allow allowed-by-rule", "allow allowed-by-rule"),
        ("run make", "allow allowed-by-rule", "deny no-rule"),
        ("run gh pr list", "ask asked-by-rule", "deny no-rule"),
        ("run git push", "deny denied-by-rule", "deny denied-by-rule"),
    ] {
        assert_eq!(answer(&denies, &request(act)), by_deny, "{act}");
        assert_eq!(answer(&lists, &request(act)), by_list, "{act}");
        assert_eq!(answer(&whole, &request(act)), "allow allowed-by-rule", "{act}");
    }
}

#[test]
fn p2_a_list_in_the_ceiling_holds_for_every_context() {
    let policy = load(&Sources {
        person: vec![file(
            "rules.toml",
            "extends = [\"ceiling\"]\n[commands]\nallow = [\"git\", \"ls\"]\n",
        )],
        project: Some(file("bailiwick.toml", "extends = [\"coding\"]\n")),
        ..sources()
    })
    .unwrap();
    assert_eq!(answer(&policy, &request("run ls -l")), "allow allowed-by-rule");
    assert_eq!(answer(&policy, &request("run make")), "deny no-rule");
}

#[test]
fn p4_each_command_that_another_carries_is_judged() {
    let policy = policy("extends = [\"coding\"]\n[commands]\nallow = [\"env\", \"ls\"]\ndeny = [\"touch\"]\n");
    let carrying = |inner: &str| {
        let forms = ["env", inner]
            .iter()
            .flat_map(|text| Command::typed(&[*text]).forms().to_vec())
            .collect();
        let command = Command::of(forms).unwrap();
        Request::new(TaskId([0; 8]), Verb::Run, Resource::Command(command))
    };
    for (inner, want) in [
        ("ls", "allow allowed-by-rule"),
        ("touch", "deny denied-by-rule"),
        ("make", "deny no-rule"),
    ] {
        assert_eq!(answer(&policy, &carrying(inner)), want, "{inner}");
    }
    let said = policy.evaluate(&carrying("make")).reasons;
    assert!(said[0].text.contains("`run make`"), "{said:?}");
}

#[test]
fn p4_what_a_program_may_be_taken_for_is_denied_and_need_not_be_allowed() {
    let policy =
        policy("extends = [\"coding\"]\n[commands]\nallow = [\"tool\"]\ndeny = [\"git push\"]\nask = [\"gh\"]\n");
    let taken_for = |words: &[&str]| {
        let mut other = Command::typed(words).forms()[0].clone();
        other.only_against = true;
        let command = Command::of(vec![Command::typed(&["tool"]).forms()[0].clone(), other]).unwrap();
        Request::new(TaskId([0; 8]), Verb::Run, Resource::Command(command))
    };
    assert_eq!(answer(&policy, &taken_for(&["git", "push"])), "deny denied-by-rule");
    assert_eq!(answer(&policy, &taken_for(&["git", "pull"])), "allow allowed-by-rule");
    assert_eq!(answer(&policy, &taken_for(&["gh"])), "ask asked-by-rule");
}

#[test]
fn a_table_narrows_a_command() {
    let policy = policy(
        "extends = [\"coding\"]\n[commands]\nallow = [{ rule = \"ls\", exact = true }, { rule = \"git log\", variables = [\"PAGER\"] }]\n",
    );
    assert_eq!(answer(&policy, &request("run ls")), "allow allowed-by-rule");
    assert_eq!(answer(&policy, &request("run ls -l")), "deny no-rule");
    let mut steered = Command::typed(&["git", "log"]).forms()[0].clone();
    for (name, want) in [("PAGER", "allow allowed-by-rule"), ("LD_PRELOAD", "deny no-rule")] {
        steered.steering = vec![(name.into(), "./x".into())];
        let command = Command::of(vec![steered.clone()]).unwrap();
        let asked = Request::new(TaskId([0; 8]), Verb::Run, Resource::Command(command));
        assert_eq!(answer(&policy, &asked), want, "{name}");
    }
}

#[test]
fn the_persons_own_order_is_the_allow_for_the_first_program() {
    let first = |policy: &bailiwick_policy::Policy, act: &str| {
        let decision = policy.evaluate_order(&request(act));
        format!("{} {}", decision.verdict.as_str(), decision.code)
    };
    let lists = policy("extends = [\"coding\"]\n[commands]\nallow = [\"ls\"]\nask = [\"gh\"]\ndeny = [\"git push\"]\n");
    assert_eq!(first(&lists, "run claude"), "allow allowed-by-order");
    assert_eq!(first(&lists, "run gh pr list"), "allow allowed-by-order");
    assert_eq!(first(&lists, "run ls"), "allow allowed-by-rule");
    assert_eq!(first(&lists, "run git push"), "deny denied-by-rule");
    let nothing = policy("[files]\nread = [\".\"]\n");
    assert_eq!(
        first(&nothing, "run claude"),
        "deny no-rule",
        "rules that allow no command at all"
    );
}

#[test]
fn only_the_starts_that_rules_tell_apart_are_judged() {
    let judged = |commands: &str| policy(&format!("extends = [\"coding\"]\n[commands]\n{commands}\n")).judged();
    let programs =
        |names: &[&str]| Judged::Programs(names.iter().map(|name| (*name).into()).collect::<BTreeSet<String>>());
    assert_eq!(policy("extends = [\"coding\"]\n").judged(), Judged::Nothing);
    assert_eq!(
        judged("deny = [\"git push\", \"/opt/x/y\"]\nask = [\"gh\"]"),
        programs(&["gh", "git", "y"])
    );
    assert_eq!(judged("allow = [\"ls\"]"), Judged::Everything);
    assert_eq!(judged("deny = [\"g*\"]"), Judged::Everything);
    assert_eq!(judged("ask = [\"**\"]"), Judged::Everything);
    assert_eq!(judged("ask = [\"@read-only\"]"), Judged::Everything);
    assert_eq!(
        policy("[files]\nread = [\".\"]\n").judged(),
        Judged::Everything,
        "nothing may start"
    );
}
