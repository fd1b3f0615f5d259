//! Mandates: one errand, narrower than the context.

use std::collections::BTreeSet;

use bailiwick_model::{Code, Millis};
use bailiwick_policy::{Diagnostic, MandateText, Moment, Policy, Sources, mandate_template, mandate_templates};

use crate::tools::{call, with};
use crate::{answer, file, load, request};

const FIRST_USED: u64 = 1_700_000_000_000;

pub(crate) fn under(rules: &str, mandate: &str, values: &[(&str, &str)]) -> Result<Policy, Vec<Diagnostic>> {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(&Sources {
        mandate: Some(MandateText {
            file: file("pay.toml", mandate),
            values: values.collect(),
            first_used: Millis(FIRST_USED),
        }),
        profiles: vec!["claude-code".into()],
        ..with(rules)
    })
}

const CONTEXT: &str = r#"
allow = ["call bank/*", "call hr/*", "GET https://docs.example.com/**", "call github/*"]
"#;

const PAY: &str = r#"
purpose = "pay {recipient} at most {max} EUR"
expires = "2 h"

[values]
recipient = "text"
max       = { type = "decimal", least = 0.01, most = 500 }

[[may]]
name   = "bank/send_payment"
when   = 'args.recipient == {recipient} && args.amount <= {max}'
budget = { sum = { amount = "{max} EUR" }, calls = 1 }

[[may]]
name = "bank/list_*"
"#;

#[test]
fn p3_a_mandate_only_narrows() {
    let policy = under(CONTEXT, PAY, &[("recipient", "Babysitter"), ("max", "200")]).unwrap();
    for (text, want) in [
        (
            r#"bank/send_payment {"recipient": "Babysitter", "amount": 200, "currency": "EUR"}"#,
            "allow allowed-by-rule",
        ),
        (
            r#"bank/send_payment {"recipient": "Babysitter", "amount": 200.01, "currency": "EUR"}"#,
            "deny arguments-refused",
        ),
        (
            r#"bank/send_payment {"recipient": "Bob", "amount": 1, "currency": "EUR"}"#,
            "deny arguments-refused",
        ),
        ("bank/list_payments {}", "allow allowed-by-rule"),
        ("bank/odd {}", "deny outside-mandate"),
        (r#"hr/get_record {"employee_id": "x"}"#, "deny outside-mandate"),
    ] {
        assert_eq!(answer(&policy, &call(text)), want, "{text}");
    }
    for (act, want) in [
        ("GET https://docs.example.com/x", "deny outside-mandate"),
        ("use secret:x", "deny outside-mandate"),
        // So that the agent can run, and reach its model.
        ("read src/main.rs", "allow allowed-by-rule"),
        ("run ls", "allow allowed-by-rule"),
        ("tunnel api.anthropic.com", "allow allowed-by-rule"),
        ("resolve api.anthropic.com", "allow allowed-by-rule"),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    assert!(policy.visible("bank", "send_payment") && !policy.visible("hr", "get_record"));
    assert_eq!(
        policy.mandate().unwrap().purpose.as_deref(),
        Some("pay Babysitter at most 200 EUR")
    );
    // What the context does not have, no mandate gives.
    let narrow = under(
        "allow = [\"call bank/list_*\"]",
        PAY,
        &[("recipient", "Babysitter"), ("max", "200")],
    )
    .unwrap();
    let pay = call(r#"bank/send_payment {"recipient": "Babysitter", "amount": 20, "currency": "EUR"}"#);
    assert_eq!(answer(&narrow, &pay), "deny no-rule");
}

#[test]
fn p4_a_mandate_ends() {
    let policy = under(CONTEXT, PAY, &[("recipient", "Babysitter"), ("max", "200")]).unwrap();
    let nobody = BTreeSet::new();
    let at = |request: &bailiwick_model::Request, seconds: u64| {
        let now = Millis(FIRST_USED + seconds * 1000);
        policy
            .conditions(request, &[], Moment { now, present: &nobody })
            .map(|decision| decision.code)
    };
    let list = call("bank/list_payments {}");
    assert_eq!(at(&list, 7199), None);
    assert_eq!(at(&list, 7200), Some(Code::MandateExpired));
    assert_eq!(at(&request("read src"), 9999), None);
    assert_eq!(at(&request("tunnel api.anthropic.com"), 9999), None);
    let dated = PAY.replace("expires = \"2 h\"", "expires = 2023-11-14T22:13:20+00:00");
    let policy = under(CONTEXT, &dated, &[("recipient", "B"), ("max", "200")]).unwrap();
    assert_eq!(policy.mandate().unwrap().expires, Some(Millis(FIRST_USED)));
}

#[test]
fn p4_a_value_is_never_more_than_a_value() {
    for recipient in [
        "\" || true || args.recipient == \"",
        "x\" || 1 == 1 //",
        "\\\" || true || \\\"",
        "' || true",
        "}} {max}",
        "a\"b",
    ] {
        let policy = under(CONTEXT, PAY, &[("recipient", recipient), ("max", "200")])
            .unwrap_or_else(|wrong| panic!("{recipient}: {wrong:#?}"));
        let other = call(r#"bank/send_payment {"recipient": "Bob", "amount": 1, "currency": "EUR"}"#);
        assert_eq!(answer(&policy, &other), "deny arguments-refused", "{recipient}");
        let mut own = other.clone();
        let fields = own.arguments.get_mut(bailiwick_model::argument::ARGS).unwrap();
        if let bailiwick_model::Argument::Fields(fields) = fields {
            fields.insert("recipient".into(), bailiwick_model::Argument::Text(recipient.into()));
        }
        assert_eq!(answer(&policy, &own), "allow allowed-by-rule", "{recipient}");
    }
    let acts = "[values]\nhost = \"text\"\n[[may]]\nname = \"bank/list_*\"\n";
    let mandate = format!("allow = [\"GET https://{{host}}/**\"]\n{acts}");
    assert!(under(CONTEXT, &mandate, &[("host", "docs.example.com")]).is_ok());
    for host in ["**", "*.example.com", "a.test/x", "a b", "a..b", "a\nb"] {
        assert!(under(CONTEXT, &mandate, &[("host", host)]).is_err(), "{host}");
    }
}

#[test]
fn p4_mistakes_in_mandates_are_told() {
    let both: &[(&str, &str)] = &[("recipient", "B"), ("max", "200")];
    for (mandate, values, says) in [
        (PAY, &both[..1], "`max` is not set"),
        (
            PAY,
            &[("recipient", "B"), ("max", "501")][..],
            "`max` is 501, more than 500",
        ),
        (PAY, &[("recipient", "B"), ("max", "0")], "`max` is 0, less than 0.01"),
        (PAY, &[("recipient", "B"), ("max", "lots")], "`max` is no number"),
        (PAY, &[("recipient", ""), ("max", "1")], "is no text of one line"),
        (
            PAY,
            &[("recipient", "B"), ("max", "1"), ("mix", "1")],
            "has no value `mix`",
        ),
        (
            "purpose = \"{x}\"\n[[may]]\nname = \"bank/odd\"",
            &[],
            "`{x}` in `purpose` is no value of this mandate",
        ),
        (
            "expires = \"soon\"\n[[may]]\nname = \"bank/odd\"",
            &[],
            "`expires` is no time",
        ),
        ("allow = [\"read x\"]", &[], "is no matter of a mandate"),
        ("[files]\nread = [\".\"]", &[], "`files` is not a known key"),
        (
            "[[may]]\nname = \"bank/send_payment\"\nwhen = 'args.amuont <= 1'",
            &[],
            "there is no argument `amuont`",
        ),
        (
            "[values]\nx = \"number\"\n[[may]]\nname = \"bank/odd\"",
            &[],
            "`x` says not what it is",
        ),
    ] {
        let wrong = under(CONTEXT, mandate, values).map(|_| ()).unwrap_err();
        assert!(
            wrong.iter().any(|one| one.message.contains(says)),
            "{mandate}\n{wrong:#?}"
        );
    }
}

#[test]
fn templates_are_without_fault() {
    let values: &[(&str, &[(&str, &str)])] = &[
        ("pay", &[("recipient", "Anna Babysitter"), ("max", "200")]),
        ("book", &[("max", "350.50")]),
        ("mail", &[("to", "anna@example.com")]),
    ];
    for (name, _) in mandate_templates() {
        let text = mandate_template(name).unwrap();
        let (_, values) = values.iter().find(|(own, _)| *own == name).unwrap();
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let loaded = load(&Sources {
            mandate: Some(MandateText {
                file: file(name, text),
                values: values.collect(),
                first_used: Millis(0),
            }),
            pinning: true,
            ..with(CONTEXT)
        });
        assert!(loaded.is_ok(), "{name}: {loaded:#?}");
    }
}
