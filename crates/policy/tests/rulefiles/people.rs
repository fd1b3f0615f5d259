//! Rules that ask who people are: own records, those of reports, nobody else's.

use std::collections::BTreeSet;

use bailiwick_model::{Argument, Code, Millis, Verdict, argument};
use bailiwick_policy::{Moment, Policy, RelationsText, Sources};

use crate::tools::{call, with};
use crate::{answer, file, load};

const PEOPLE: &str = r#"
people = [
    { id = "e-1", name = "Rui", user = "rui", teams = ["hr"] },
    { id = "e-2", name = "Ana", user = "ana", reports_to = "e-1" },
    { id = "e-3", name = "Bo", reports_to = "e-2" },
    { id = "e-4", name = "Cy", user = "cy" },
]
teams  = [{ id = "hr" }]
things = [{ id = "r-3", kind = "record", owner = "e-3" }, { id = "r-1", kind = "record", owner = "e-1" }]
"#;

const RULES: &str = r#"
[relations]
from        = "file:people.toml"
stale_after = "1 h"

[[tool]]                                   # one's own record
name   = "hr/get_record"
when   = 'args.employee_id == me'
refers = { employee_id = "Person" }

[[tool]]                                   # that of a report, near or far: and it is written down why
name          = "hr/get_record"
when          = 'args.employee_id in me'
refers        = { employee_id = "Person" }
record_reason = true
"#;

const READ_AT: u64 = 1_000_000;

fn as_user(user: &str, rules: &str) -> Policy {
    let sources = Sources {
        relations: Some(RelationsText {
            file: file("people.toml", PEOPLE),
            read_at: Millis(READ_AT),
            user: user.into(),
        }),
        ..with(rules)
    };
    load(&sources).unwrap_or_else(|wrong| panic!("{rules}\n{wrong:#?}"))
}

#[test]
fn p4_the_same_tool_in_another_scope() {
    let of = |user: &str, id: &str, reason: Option<&str>| {
        let mut request = call(&format!(r#"hr/get_record {{"employee_id": "{id}"}}"#));
        let reason = reason.map(|text| (argument::REASON.to_owned(), Argument::Text(text.into())));
        request.arguments.extend(reason);
        answer(&as_user(user, RULES), &request)
    };
    assert_eq!(of("rui", "e-1", None), "allow allowed-by-rule", "one's own");
    assert_eq!(of("rui", "e-2", None), "deny reason-missing", "a report's");
    assert_eq!(of("rui", "e-2", Some("yearly talk")), "allow allowed-by-rule");
    assert_eq!(
        of("rui", "e-3", Some("yearly talk")),
        "allow allowed-by-rule",
        "a report's report's"
    );
    assert_eq!(
        of("rui", "e-4", Some("curious")),
        "deny arguments-refused",
        "a colleague's"
    );
    assert_eq!(
        of("ana", "e-1", Some("curious")),
        "deny arguments-refused",
        "the manager's"
    );
    assert_eq!(of("rui", "e-9", Some("x")), "deny arguments-refused", "nobody's");
    assert_eq!(of("rui", "", Some("x")), "deny arguments-refused");
    assert_eq!(
        of("nobody", "e-1", Some("x")),
        "deny arguments-refused",
        "who is not known"
    );
    let own = as_user("rui", RULES);
    let sly = call(r#"hr/get_record {"employee_id": "e-1", "copy_to": "e-4"}"#);
    assert_eq!(answer(&own, &sly), "deny arguments-refused");
    assert_eq!(own.arguments_at_fault(&sly), ["copy_to"]);
    // Nothing is known where nothing has been read.
    let unread = load(&with(RULES)).unwrap();
    assert_eq!(
        answer(&unread, &call(r#"hr/get_record {"employee_id": "e-1"}"#)),
        "deny arguments-refused"
    );
}

#[test]
fn p4_things_have_owners_and_people_teams() {
    let rules = r#"
        [relations]
        from = "file:people.toml"
        [[tool]]
        name   = "hr/get_record"
        when   = 'args has record && args.record.owner in me && args.record.kind == "record" && me in Team::"hr"'
        any    = ["employee_id"]
        refers = { record = "Thing" }
    "#;
    let of = |user: &str, record: &str| {
        answer(
            &as_user(user, rules),
            &call(&format!(
                r#"hr/get_record {{"employee_id": "x", "record": "{record}"}}"#
            )),
        )
    };
    assert_eq!(of("rui", "r-3"), "allow allowed-by-rule");
    assert_eq!(of("rui", "r-1"), "allow allowed-by-rule");
    assert_eq!(of("rui", "r-9"), "deny arguments-refused");
    assert_eq!(
        of("ana", "r-3"),
        "deny arguments-refused",
        "her report's, but she is not in the team"
    );
}

#[test]
fn p4_what_is_known_of_people_gets_old() {
    let rules = as_user("rui", RULES);
    let request = call(r#"hr/get_record {"employee_id": "e-1"}"#);
    let nobody = BTreeSet::new();
    let at = |seconds: u64| {
        let now = Millis(READ_AT + seconds * 1000);
        rules
            .conditions(&request, &[], Moment { now, present: &nobody })
            .map(|decision| decision.code)
    };
    assert_eq!(at(3600), None);
    assert_eq!(at(3601), Some(Code::RelationsStale));
    let other = call("hr/other {}");
    let now = Millis(READ_AT + 10_000_000);
    assert!(
        rules
            .conditions(&other, &[], Moment { now, present: &nobody })
            .is_none()
    );
    // A condition of its own on the age.
    let young = RULES
        .replace(
            "args.employee_id == me'",
            "args.employee_id == me && relations.age <= 60'",
        )
        .replace("stale_after = \"1 h\"", "");
    let rules = as_user("rui", &young);
    let at = |seconds: u64| {
        let now = Millis(READ_AT + seconds * 1000);
        rules
            .conditions(&request, &[], Moment { now, present: &nobody })
            .map(|decision| decision.verdict)
    };
    assert_eq!(at(60), None);
    assert_eq!(
        at(61),
        Some(Verdict::Deny),
        "what is left is the rule that wants a reason"
    );
}

#[test]
fn p4_mistakes_about_people_are_told() {
    for (rules, says) in [
        ("[relations]\nme = \"e-1\"", "says not where they stand"),
        ("[relations]\nfrom = \"people.txt\"", "is no file of TOML or JSON"),
        (
            "[relations]\nfrom = \"file:p.toml\"\nstale_after = \"soon\"",
            "is not a length of time",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\nrefresh = \"often\"",
            "`refresh` is not a length of time",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\nrefresh = \"1 h\"\nstale_after = \"1 h\"",
            "`refresh` is not less than `stale_after`",
        ),
        (
            "[relations]\nfrom = \"http://people.test/all\"",
            "is an address that others can read along with",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\nme = \"e-77\"",
            "who is not among the people",
        ),
        (
            "[[tool]]\nname = \"hr/get_record\"\nwhen = 'args.employee_id == me'\nrefers = { employee_id = \"Person\" }",
            "nothing here says who people are",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nwhen = 'args.employee_id == me'",
            "is a text, `me` is a Person",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nwhen = 'me in Team::\"rh\"'",
            "there is no Team `rh`",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nwhen = 'me in Group::\"hr\"'",
            "there is no kind `Group`",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nrefers = { employee_id = \"Persn\" }",
            "there is no kind `Persn`",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nrefers = { employe = \"Person\" }",
            "has no argument `employe`",
        ),
        (
            "[relations]\nfrom = \"file:p.toml\"\n[[tool]]\nname = \"hr/get_record\"\nwhen = 'args.employee_id.boss == me'\nrefers = { employee_id = \"Person\" }",
            "a Person has no `boss`",
        ),
    ] {
        let sources = Sources {
            relations: Some(RelationsText {
                file: file("people.toml", PEOPLE),
                read_at: Millis(0),
                user: "rui".into(),
            }),
            ..with(rules)
        };
        let wrong = load(&sources).map(|_| ()).unwrap_err();
        assert!(
            wrong.iter().any(|one| one.message.contains(says)),
            "{rules}\n{wrong:#?}"
        );
    }
}
