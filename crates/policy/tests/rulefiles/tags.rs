//! `[tag.NAME]`, and what rules about calls say of tags.

use bailiwick_gate::AsWritten;
use bailiwick_model::{Label, Obligation, Request, Tag, ToolDuty, Verb, Verdict};
use bailiwick_policy::{Diagnostic, Policy, Sources, request_for};

use crate::tools::tools;
use crate::{anchors, file, load, project, sources, tree};

/// What is asked, with arguments where it is a call with some.
fn request(act: &str) -> Request {
    match act.contains('{') {
        true => request_for(act, &anchors(), &AsWritten).unwrap(),
        false => crate::request(act),
    }
}

/// All that is wrong, a line each.
fn told(loaded: Result<Policy, Vec<Diagnostic>>) -> String {
    let all = loaded.map(|_| ()).unwrap_err();
    all.iter()
        .map(|one| format!("{one} | {}\n", one.hint.as_deref().unwrap_or_default()))
        .collect()
}

fn label(policy: &Policy, act: &str) -> Vec<String> {
    of(&policy.label_of(&request(act), &[]))
}

fn of(label: &Label) -> Vec<String> {
    label.tags().map(ToString::to_string).collect()
}

fn cleared(policy: &Policy, act: &str) -> Vec<String> {
    let tags = policy.cleared_for(&request(act));
    tags.iter().map(ToString::to_string).collect()
}

const TAGS: &str = r#"
allow = ["* https://**", "call *"]

[tag.hr]
on        = ["call hr/*", "GET https://hr.test/**", "fetch https://git.test/hr/**"]
may_reach = ["call pay/*", "POST https://pay.test/**", "push https://git.test/hr/** agent/*"]
otherwise = "ask"

[tag.web]
on        = ["GET https://**", "call page/read"]
influence = true
"#;

#[test]
fn p5_a_source_is_found_on_every_road() {
    let policy = project(TAGS).unwrap();
    for (act, want) in [
        ("call hr/get_record", &["hr"][..]),
        ("open hr/file:///a/b", &["hr"]),
        ("prompt hr/x", &["hr"]),
        ("sample hr", &["hr"]),
        ("elicit hr", &["hr"]),
        ("call pay/x", &[]),
        ("call page/read", &["web"]),
        ("open page/x", &[]),
        ("GET https://hr.test/a", &["hr", "web"]),
        ("GET https://HR.test:443/a", &["hr", "web"]),
        ("POST https://hr.test/a", &[]),
        ("tunnel hr.test", &["hr", "web"]),
        ("tunnel hr.test:22", &[]),
        ("resolve hr.test", &[]),
        ("fetch https://git.test/hr/a", &["hr", "web"]),
        ("POST https://git.test/hr/a/git-upload-pack", &["hr"]),
        ("read /home/dana/hr", &[]),
    ] {
        assert_eq!(label(&policy, act), want, "{act}");
    }
}

#[test]
fn p6_what_data_may_reach_is_as_narrow_as_an_allow() {
    let policy = project(TAGS).unwrap();
    for (act, want) in [
        ("call pay/x", &["hr"][..]),
        ("open pay/x", &[]),
        ("call hr/x", &[]),
        ("POST https://pay.test/x", &["hr"]),
        ("resolve pay.test", &["hr"]),
        ("GET https://pay.test/x", &[]),
        ("POST https://xpay.test/x", &[]),
        ("tunnel pay.test", &[]),
        ("push https://git.test/hr/a agent/x", &["hr"]),
        ("push https://git.test/hr/a main", &[]),
        ("write /home/dana/x", &[]),
    ] {
        assert_eq!(cleared(&policy, act), want, "{act}");
    }
    assert!(policy.lists_are_tagged("hr") && !policy.lists_are_tagged("page"));
    let hr = Tag::parse("hr").unwrap();
    let (verdict, rule) = policy.settings().tags.otherwise(&hr);
    assert_eq!((verdict, rule.unwrap().act.as_str()), (Verdict::Ask, "tag hr"));
    let unknown = Tag::parse("unknown").unwrap();
    assert_eq!(policy.settings().tags.otherwise(&unknown), (Verdict::Deny, None));
    let shown = policy.layers();
    assert!(shown.contains("context tag hr may reach call pay/*"), "{shown}");
    assert!(shown.contains("context tag web is untrusted influence"), "{shown}");
}

/// Rules about calls, by condition and argument.
const CALLS: &str = r#"
[tag.pii]
otherwise = "ask"
[tag.pay]
on = ["call bank/close_account"]

[[tool]]
name    = "hr/get_record"
when    = 'args.employee_id == "e1"'
tags    = ["pii"]

[[tool]]
name    = "hr/get_record"
fields  = { pay = ["/rows/*/salary"] }
unlisted = "allow"

[[tool]]
name    = "bank/send_payment"
when    = 'args.recipient == "Babysitter" && args.amount <= 200'
trusted = ["recipient", "amount"]
cleared = ["pii"]
"#;

#[test]
fn p6_a_rule_s_tags_hold_for_the_calls_that_it_admits() {
    let policy = tools(CALLS).unwrap();
    let get = |id: &str| format!(r#"call hr/get_record {{"employee_id": "{id}"}}"#);
    assert_eq!(label(&policy, &get("e1")), ["pay", "pii"]);
    assert_eq!(label(&policy, &get("e2")), ["pay"]);
    // One that cannot be judged counts as held.
    assert_eq!(
        label(&policy, r#"call hr/get_record {"employee_id": 7}"#),
        ["pay", "pii"]
    );
    // A part that the permit has kept back is not in the answer.
    let duty = |path: &str| {
        let paths = vec![path.to_owned()];
        vec![Obligation::Tool(ToolDuty::Redact { paths })]
    };
    for (path, want) in [("/rows/*", &[][..]), ("/rows/0/salary", &["pay"]), ("/name", &["pay"])] {
        assert_eq!(of(&policy.label_of(&request(&get("e2")), &duty(path))), want, "{path}");
    }
    let pay = r#"call bank/send_payment {"recipient": "Babysitter", "amount": 20, "currency": "EUR"}"#;
    assert_eq!(
        cleared(&policy, pay),
        Vec::<String>::new(),
        "its currency is not listed"
    );
    let policy = tools(&CALLS.replace("cleared = [\"pii\"]", "any = [\"currency\"]\ncleared = [\"pii\"]")).unwrap();
    assert_eq!(cleared(&policy, pay), ["pii"]);
    assert_eq!(cleared(&policy, &pay.replace("20", "201")), Vec::<String>::new());
}

#[test]
fn p7_an_argument_of_one_value_was_chosen_by_nobody() {
    let policy = tools(&CALLS.replace("cleared = [\"pii\"]", "any = [\"currency\"]")).unwrap();
    let pay = r#"call bank/send_payment {"recipient": "Babysitter", "amount": 20, "currency": "EUR"}"#;
    let trusted = |policy: &Policy, act: &str| -> Vec<String> {
        let all = policy.trusted_arguments(&request(act)).into_iter();
        all.map(|(name, _)| name).collect()
    };
    assert_eq!(trusted(&policy, pay), ["amount"], "the recipient is one");
    assert_eq!(
        trusted(&policy, &pay.replace("20", "201")),
        Vec::<String>::new(),
        "not admitted"
    );
    for (when, want) in [
        (
            "args.recipient == \"Babysitter\" || args.amount <= 20",
            &["amount", "recipient"][..],
        ),
        ("\"Babysitter\" == args.recipient && args.amount == 20", &[]),
        ("args.recipient != \"Mallory\" && args.amount == 20", &["recipient"]),
    ] {
        let when = CALLS
            .replace("args.recipient == \"Babysitter\" && args.amount <= 200", when)
            .replace("cleared = [\"pii\"]", "any = [\"currency\"]");
        let policy = tools(&when).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
        assert_eq!(trusted(&policy, pay), want, "{when}");
    }
}

#[test]
fn p2_layers_hold_together_and_an_untrusted_project_says_nothing() {
    let person = "allow = [\"* https://**\", \"call *\"]\n[tag.hr]\non = [\"call hr/*\"]\nmay_reach = [\"call pay/*\"]\notherwise = \"ask\"\n";
    let with = |text: &str, project_trusted| {
        load(&Sources {
            person: vec![file("rules.toml", person)],
            project: Some(file("bailiwick.toml", text)),
            project_trusted,
            ..sources()
        })
    };
    let wide = "allow = [\"call *\"]\n[tag.hr]\non = [\"call people/*\"]\nmay_reach = [\"call *\"]\n";
    let both = with(wide, true).unwrap();
    assert_eq!(label(&both, "call people/x"), ["hr"]);
    assert_eq!(
        (cleared(&both, "call pay/x"), cleared(&both, "call out/x")),
        (vec!["hr".into()], Vec::new())
    );
    assert_eq!(
        both.settings().tags.otherwise(&Tag::parse("hr").unwrap()).0,
        Verdict::Deny
    );
    let alone = with(wide, false).unwrap();
    assert_eq!(label(&alone, "call people/x"), Vec::<String>::new());
    assert_eq!(
        alone.settings().tags.otherwise(&Tag::parse("hr").unwrap()).0,
        Verdict::Ask
    );
    let other = "allow = [\"call *\"]\n[tag.hr]\non = [\"call people/*\"]\ninfluence = true\n";
    assert!(told(with(other, true)).contains("`hr` is confidentiality in one place and influence in another"));
    // A rule of one layer clears nothing that another one speaks of.
    let rule = "[[tool]]\nname = \"pay/x\"\ncleared = [\"hr\"]\n";
    assert!(told(with(rule, true)).contains("bailiwick.toml:3:12: `hr` is no tag of this layer"));
}

#[test]
fn p4_what_cannot_be_kept_is_refused_at_its_place() {
    for (text, want) in [
        (
            "[tag.x]\non = [\"write ~/hr/**\"]",
            "2:7: `write ~/hr/**`: files give what is read of them",
        ),
        (
            "[tag.x]\non = [\"run git log\"]",
            "2:7: `run git log`: a program inside reads nothing",
        ),
        ("[tag.x]\non = [\"use secret:x\"]", "a secret is never read"),
        (
            "[tag.x]\non = [\"resolve a.test\"]",
            "2:7: `resolve a.test` only looks a name up",
        ),
        (
            "[tag.x]\non = [\"call a/*\"]\nmay_reach = [\"read ~/x\"]",
            "3:14: `read ~/x` is no place where data goes",
        ),
        (
            "[tag.x]\non = [\"call a/*\"]\nmay_reach = [\"run cat\"]",
            "`run cat` is no place where data goes",
        ),
        ("[tag.x]\nmay_reach = [\"call a/*\"]", "1:6: nothing gives `x`"),
        (
            "[tag.x]\non = [\"call a/*\"]\ninfluence = true\nmay_reach = []",
            "4:1: `may_reach` says nothing of untrusted influence",
        ),
        (
            "[tag.x]\non = [\"call a/*\"]\notherwise = \"allow\"",
            "3:13: `otherwise` is none that there is",
        ),
        ("[tag.x]\non = [\"call a/*\"]\nto = []", "3:1: `to` is not a known key"),
        ("[tag.X]\non = [\"call a/*\"]", "1:6: `X` is no name of a tag"),
        ("[tag.x]\non = [\"call a\"]", "2:7: "),
        (
            "[[tool]]\nname = \"a/b\"\ntags = [\"secret\"]",
            "3:9: there is no tag `secret`",
        ),
        (
            "[tag.secrets]\non = [\"call a/*\"]\n[[tool]]\nname = \"a/b\"\ntags = [\"secret\"]",
            "did you mean `secrets`?",
        ),
        (
            "[[tool]]\nname = \"a/b\"\nfields = { x = [\"/a\"] }",
            "3:12: there is no tag `x`",
        ),
        ("[[tool]]\nname = \"a/b\"\ntags = []", "3:8: `tags` names no tag"),
        (
            "[tag.x]\non = [\"call a/*\"]\ninfluence = true\n[[tool]]\nname = \"a/b\"\ncleared = [\"x\"]",
            "6:12: `x` is untrusted influence",
        ),
        (
            "[[tool]]\nname = \"a/b\"\neffect = \"deny\"\ntrusted = [\"x\"]",
            "4:1: `trusted` says nothing in a deny",
        ),
    ] {
        let text = format!("{text}\n");
        let wrong = told(project(&text));
        assert!(wrong.contains(want), "{text}\n{wrong}");
    }
}

#[test]
fn p6_a_tree_carries_what_lies_in_it() {
    let policy = project(
        "[files]\nread = [\"~/hr\"]\n[tag.hr]\non = [\"read ~/hr/**\"]\n[tag.key]\non = [\"read ~/site/*.key\"]\n",
    )
    .unwrap();
    let given = |verb: Verb, path: &str| of(&policy.label_of(&tree(verb, path), &[]));
    for (verb, path, want) in [
        (Verb::Read, "/home/dana/hr", &["hr"][..]),
        (Verb::Read, "/home/dana/hr/2026", &["hr"]),
        (Verb::Read, "/home/dana", &["hr", "key"]),
        (Verb::Write, "/home/dana/site", &["key"]),
        (Verb::Keep, "/home/dana", &[]),
        (Verb::Read, "/home/dana/notes", &[]),
        (Verb::Read, "/usr", &[]),
    ] {
        assert_eq!(given(verb.clone(), path), want, "{verb} {path}");
    }
    for (act, want) in [
        ("read ~/hr/a", &["hr"][..]),
        ("write ~/hr/a", &["hr"]),
        ("create ~/hr/a", &[]),
        ("read ~/site/a.key", &["key"]),
        ("read ~/site/a.txt", &[]),
    ] {
        assert_eq!(label(&policy, act), want, "{act}");
    }
}
