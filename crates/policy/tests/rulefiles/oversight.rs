//! `[oversight]` as people write it: what it means, what adds up over layers, and what is said about mistakes.

use std::collections::BTreeSet;

use bailiwick_gate::Judged;
use bailiwick_model::{Millis, Obligation, Verb};
use bailiwick_policy::{Moment, Policy, Sources};

use crate::{answer, file, load, policy, project, request, sources, tree};

/// 2026-11-30, a Monday, at 09:00 in Zurich.
const MONDAY_NINE: u64 = 1_796_025_600_000;
const HOUR: u64 = 3_600_000;

/// `code` of what hours and presence say against it.
fn condition(policy: &Policy, act: &str, now: u64, watching: &[&str]) -> Option<&'static str> {
    let present: BTreeSet<String> = watching.iter().map(|name| (*name).to_owned()).collect();
    let moment = Moment {
        now: Millis(now),
        present: &present,
    };
    let request = request(act);
    let duties = policy.evaluate(&request).obligations;
    let said = policy.conditions(&request, &duties, moment);
    said.map(|decision| decision.code.as_str())
}

fn said(text: &str) -> Vec<String> {
    let wrong = project(&format!("extends = [\"coding\"]\n{text}"))
        .err()
        .unwrap_or_default();
    wrong
        .iter()
        .filter(|one| one.is_error())
        .map(|one| {
            format!(
                "{}:{}: {}{}",
                one.line,
                one.column,
                one.message,
                one.hint().map_or(String::new(), |hint| format!(" | {hint}"))
            )
        })
        .collect()
}

#[test]
fn hours_are_a_text_a_list_or_tables() {
    for hours in [
        "hours = \"Mon-Fri 08:00-16:00 Europe/Zurich\"",
        "zone = \"Europe/Zurich\"\nhours = \"Mon-Fri 08:00-12:00, 12:00-16:00\"",
        "hours = [\"Mon-Thu 08:00-16:00 Europe/Zurich\", \"Fri 08:00-16:00 Europe/Zurich\"]",
        "hours = { open = \"08:00-16:00\", zone = \"Europe/Zurich\", except = [\"Sat-Sun\"] }",
        "hours = { open = [\"08:00-18:00 Europe/Zurich\"], except = [\"Sat-Sun\", 2026-12-25], before_close = \"2 h\" }",
        "[[oversight.hours]]\nopen = \"Mon-Fri 00:00-16:00 Europe/Zurich\"\n[[oversight.hours]]\nopen = \"08:00-24:00 Europe/Zurich\"",
    ] {
        let policy = policy(&format!("extends = [\"coding\"]\n[oversight]\n{hours}\n"));
        let own = &policy.settings().oversight;
        assert!(own.is_open(Millis(MONDAY_NINE)), "{hours}");
        assert_eq!(
            own.closes_at(Millis(MONDAY_NINE)),
            Some(Millis(MONDAY_NINE + 7 * HOUR)),
            "{hours}"
        );
        let saturday = MONDAY_NINE + 5 * 24 * HOUR;
        assert!(!own.is_open(Millis(saturday)), "{hours}");
        let monday = Millis(MONDAY_NINE + 7 * 24 * HOUR - HOUR);
        assert_eq!(own.opens_at(Millis(saturday)), Some(monday), "{hours}");
        assert_eq!(own.tell(monday).as_deref(), Some("Mon 2026-12-07 08:00 Europe/Zurich"));
        assert_eq!(
            condition(&policy, "run ls", saturday, &[]),
            Some("out-of-hours"),
            "{hours}"
        );
        assert_eq!(condition(&policy, "run ls", MONDAY_NINE, &[]), None, "{hours}");
    }
}

#[test]
fn p2_the_strictest_layer_holds_and_lists_add_up() {
    let text = |hours: &str, present: &str| {
        format!(
            "[oversight]\nhours = \"{hours} UTC\"\npresent = [\"run {present}\"]\nfour_eyes = [\"run {present}-all\"]\n"
        )
    };
    let machine = format!(
        "extends = [\"ceiling\"]\n{}approvers = [\"ida\", \"theo\"]\n",
        text("06:00-20:00", "pay")
    );
    let person = format!(
        "{}approvers = [\"theo\", \"rui\"]\n",
        text("Mon-Fri 00:00-24:00", "send")
    );
    let own = format!("extends = [\"coding\"]\n{}", text("08:00-22:00", "buy"));
    let all = Sources {
        machine: vec![file("/etc/bailiwick/a.toml", &machine)],
        person: vec![file("rules.toml", &person)],
        project: Some(file("bailiwick.toml", &own)),
        ..sources()
    };
    let policy = load(&all).unwrap();
    for hour in 0..24 * 7 {
        let now = MONDAY_NINE - 8 * HOUR + hour * HOUR;
        let want = hour / 24 < 5 && (8..20).contains(&(hour % 24));
        assert_eq!(policy.settings().oversight.is_open(Millis(now)), want, "{hour}");
    }
    for (act, watching, want) in [
        ("run pay", &["ida"][..], Some("nobody-present")),
        ("run pay", &["rui"], Some("nobody-present")),
        ("run pay", &["theo"], None),
        ("run send", &[], Some("nobody-present")),
        ("run buy", &[], Some("nobody-present")),
        ("run ls", &[], None),
    ] {
        assert_eq!(
            condition(&policy, act, MONDAY_NINE, watching),
            want,
            "{act} {watching:?}"
        );
    }
    for act in ["run pay-all", "run send-all", "run buy-all"] {
        assert_eq!(answer(&policy, &request(act)), "ask four-eyes", "{act}");
    }
    // A file of outer layers that only watches gives nothing and takes no allow away.
    assert_eq!(answer(&policy, &request("run ls")), "allow allowed-by-rule");
    let watching_only = Sources {
        machine: vec![file(
            "/etc/bailiwick/a.toml",
            "[oversight]\nfour_eyes = [\"run pay\"]\n",
        )],
        project: Some(file("bailiwick.toml", "extends = [\"coding\"]\n")),
        ..sources()
    };
    let policy = load(&watching_only).unwrap();
    assert_eq!(answer(&policy, &request("run ls")), "allow allowed-by-rule");
    assert_eq!(answer(&policy, &request("run pay")), "ask four-eyes");
}

#[test]
fn p2_a_file_that_nobody_trusts_oversees_nothing_and_a_preset_of_a_run_takes_nothing_away() {
    let own = "extends = [\"coding\"]\n[oversight]\nfour_eyes = [\"run pay\"]\nhours = \"08:00-09:00 UTC\"\n";
    let with = |trusted, preset: Option<&str>| {
        let all = Sources {
            project: Some(file("bailiwick.toml", own)),
            project_trusted: trusted,
            preset: preset.map(Into::into),
            ..sources()
        };
        load(&all).unwrap()
    };
    assert!(with(false, None).settings().oversight.is_none());
    assert!(!with(true, None).settings().oversight.is_none());
    let offline = with(true, Some("offline"));
    assert_eq!(answer(&offline, &request("run pay")), "ask four-eyes");
    assert_eq!(
        condition(&offline, "run ls", MONDAY_NINE + 5 * HOUR, &[]),
        Some("out-of-hours")
    );
}

#[test]
fn p5_an_act_is_found_in_every_spelling_and_in_the_tunnel_that_would_hide_it() {
    let rules = policy(
        "[network]\nallow = [\"* https://bank.test/**\", \"* https://git.test/**\"]\ntunnel = [\"db.test:5432\", \"mail.test\"]\n\
         [commands]\nallow = [\"**\"]\n\
         [oversight]\npresent = [\"POST https://bank.test/**\", \"* https://mail.test/x\", \"push https://git.test/a main\", \"run git push\"]\n",
    );
    for (act, want) in [
        ("POST https://bank.test/pay", true),
        ("POST https://BANK.test:443/%70ay", true),
        ("GET https://bank.test/pay", false),
        ("tunnel bank.test:443", true),
        ("tunnel mail.test:443", true),
        ("tunnel db.test:5432", false),
        ("push https://git.test/a main", true),
        ("push https://git.test/a other", false),
        ("fetch https://git.test/a", false),
        ("POST https://git.test/a/git-receive-pack", true),
        ("run git push", true),
        ("run git push --force", true),
        ("run git pull", false),
    ] {
        let found = condition(&rules, act, MONDAY_NINE, &[]) == Some("nobody-present");
        assert_eq!(found, want, "{act}");
    }
}

#[test]
fn p5_starts_are_judged_where_oversight_names_them() {
    let judged = |oversight: &str| policy(&format!("extends = [\"coding\"]\n[oversight]\n{oversight}\n")).judged();
    let plain = judged("hours = \"08:00-16:00 UTC\"");
    for oversight in [
        "present = [\"run pay\"]",
        "four_eyes = [\"run pay\"]",
        "hours = [{ on = [\"run pay now\"], open = \"08:00-16:00 UTC\" }]",
    ] {
        match judged(oversight) {
            Judged::Programs(names) => assert!(names.contains("pay"), "{oversight}"),
            Judged::Everything => {}
            Judged::Nothing => panic!("{oversight}: nothing is judged"),
        }
        assert_ne!(judged(oversight), plain, "{oversight}");
    }
    assert_eq!(judged("present = [\"run **\"]"), Judged::Everything);
}

#[test]
fn p8_files_that_need_four_eyes_are_asked_about_one_by_one() {
    let rules = policy(
        "[files]\nwrite = [\".\"]\nread = [\"~/hr\"]\n[oversight]\nfour_eyes = [\"read ~/hr/pay\", \"write secret\"]\n",
    );
    assert_eq!(answer(&rules, &request("read ~/hr/pay/rui")), "ask four-eyes");
    assert_eq!(answer(&rules, &request("read ~/hr/list")), "allow allowed-by-rule");
    let asked: Vec<String> = rules.asked_candidates().iter().map(ToString::to_string).collect();
    assert_eq!(asked, ["/home/dana/hr/pay", "/home/dana/site/secret"]);
    // The tree round it is granted with the exception.
    let whole = rules.evaluate(&tree(Verb::Read, "/home/dana/hr"));
    let asks = |obligation: &Obligation| matches!(obligation, Obligation::Ask { pattern } if pattern.to_string() == "/home/dana/hr/pay");
    assert!(whole.obligations.iter().any(asks), "{whole:?}");
    assert_eq!(answer(&rules, &tree(Verb::Read, "/home/dana/hr/pay")), "ask four-eyes");
    assert_eq!(
        answer(&rules, &tree(Verb::Write, "/home/dana/site/secret")),
        "ask four-eyes"
    );
}

#[test]
fn p9_the_use_of_a_secret_can_be_watched() {
    let rules = policy(
        "allow = [\"use secret:bank\"]\n[network]\nallow = [\"* https://bank.test/**\", \"* https://b.test/**\"]\n\
         [secret.bank]\nfrom = \"env:BANK\"\nfor = [\"https://bank.test\"]\nas = \"bearer\"\n\
         [oversight]\npresent = [\"use secret:bank\"]\n",
    );
    assert_eq!(
        condition(&rules, "POST https://bank.test/pay", MONDAY_NINE, &[]),
        Some("nobody-present")
    );
    assert_eq!(condition(&rules, "POST https://b.test/pay", MONDAY_NINE, &[]), None);
    assert_eq!(
        condition(&rules, "POST https://bank.test/pay", MONDAY_NINE, &["dana"]),
        None
    );
}

#[test]
fn p2_roles_and_escalation_say_who_may_answer() {
    let rules = policy(
        "extends = [\"coding\"]\n[oversight]\napprovers = [\"dana\", { name = \"theo\", may = [\"run git push\"] }]\n\
         escalate = { after = \"5 min\", to = [\"ida\", { name = \"rui\", may = [\"run rm\"] }] }\n",
    );
    let own = &rules.settings().oversight;
    let (push, remove) = (request("run git push"), request("run rm x"));
    for (who, request, waited, want) in [
        ("dana", &push, 0, true),
        ("dana", &remove, 0, true),
        ("theo", &push, 0, true),
        ("theo", &remove, 0, false),
        ("theo", &remove, 600_000, false),
        ("ida", &push, 299_999, false),
        ("ida", &push, 300_000, true),
        ("rui", &remove, 300_000, true),
        ("rui", &push, 300_000, false),
        ("sam", &push, u64::MAX, false),
        ("Dana", &push, 0, false),
        ("", &push, 0, false),
    ] {
        assert_eq!(own.may_answer(who, request, waited), want, "{who} {request} {waited}");
    }
    assert_eq!(own.escalations(&push), [300]);
    assert_eq!(own.who(&push), "dana or theo");
    // A role is as narrow as an allow: what might be more is not in it.
    assert!(!own.may_answer("theo", &request("run env git push"), 0));
    // Nobody is named: whoever can reach the daemon as an approver.
    let none = policy("extends = [\"coding\"]\n");
    assert!(none.settings().oversight.may_answer("dana", &push, 0) && !none.settings().oversight.names_approvers());
}

#[test]
fn p14_the_digest_of_the_rules_has_oversight_in_it_but_not_where_it_stands() {
    let digest = |text: &str| policy(&format!("extends = [\"coding\"]\n{text}")).digest();
    let mut seen = vec![digest("")];
    for oversight in [
        "[oversight]\nhours = \"08:00-16:00 UTC\"\n",
        "[oversight]\nhours = \"08:00-16:00 Europe/London\"\n",
        "[oversight]\nhours = \"08:00-16:01 UTC\"\n",
        "[oversight]\nhours = { open = \"08:00-16:00 UTC\", before_close = \"1 h\" }\n",
        "[oversight]\nhours = { open = \"08:00-16:00 UTC\", except = [\"12-25\"] }\n",
        "[oversight]\nhours = [{ open = \"08:00-16:00 UTC\", on = [\"run ls\"] }]\n",
        "[oversight]\npresent = [\"run ls\"]\n",
        "[oversight]\nfour_eyes = [\"run ls\"]\n",
        "[oversight]\napprovers = [\"ida\"]\n",
        "[oversight]\napprovers = [{ name = \"ida\", may = [\"run ls\"] }]\n",
        "[oversight]\napprovers = [\"ida\"]\nescalate = { after = \"1 min\", to = [\"theo\"] }\n",
        "[oversight]\napprovers = [\"ida\"]\nescalate = { after = \"2 min\", to = [\"theo\"] }\n",
    ] {
        let own = digest(oversight);
        assert!(!seen.contains(&own), "{oversight}");
        assert_eq!(own, digest(&format!("# a line\n\n{oversight}")));
        seen.push(own);
    }
}

#[test]
fn p4_mistakes_are_said_with_their_place_and_what_would_be_right() {
    for (text, want) in [
        (
            "[oversight]\nhuors = \"x\"\n",
            "3:1: `huors` is not a known key | did you mean `hours`?",
        ),
        (
            "[oversight]\nhours = \"Mon\"\n",
            "3:9: `Mon` are no hours | write days, times and a zone",
        ),
        (
            "[oversight]\nhours = \"08:00-16:00\"\n",
            "3:9: `08:00-16:00` says not in which time zone | add it",
        ),
        (
            "[oversight]\nhours = \"08:00-16:00 Europe/Zurch\"\n",
            "3:9: `Europe/Zurch` is not a time zone | did you mean `Europe/Zurich`?",
        ),
        (
            "[oversight]\nzone = \"CET/Nowhere\"\n",
            "3:8: `CET/Nowhere` is not a time zone",
        ),
        (
            "[oversight]\nhours = \"16:00-16:00 UTC\"\n",
            "3:9: `16:00-16:00 UTC` are no hours",
        ),
        (
            "[oversight]\nhours = \"08:00-16:00 UTC Mon-Fri\"\n",
            "3:9: `08:00-16:00 UTC Mon-Fri` are no hours",
        ),
        (
            "[oversight]\nhours = []\n",
            "3:9: `hours` is empty: it would never be open",
        ),
        ("[oversight]\nhours = 8\n", "3:9: hours cannot be a number"),
        (
            "[oversight]\nhours = { except = [\"Sat\"] }\n",
            "a table of hours has no `open`",
        ),
        (
            "[oversight]\nhours = [\"08:00-16:00 UTC\", \"08:00-16:00 Europe/Zurich\"]\n",
            "3:29: hours of `UTC` and of `Europe/Zurich` stand in one list",
        ),
        (
            "[oversight]\nhours = { open = \"Sat 08:00-16:00 UTC\", except = [\"Sat-Sun\"] }\n",
            "these hours are never open | widen the hours",
        ),
        (
            "[oversight]\nhours = { open = \"08:00-09:00 UTC\", before_close = \"2 h\" }\n",
            "these hours are never open",
        ),
        (
            "[oversight]\nhours = { open = \"08:00-09:00 UTC\", before_close = \"soon\" }\n",
            "`before_close` is not a length of time | write `before_close = \"2 h\"`",
        ),
        (
            "[oversight]\nhours = { open = \"08:00-09:00 UTC\", except = [\"Xmas\"] }\n",
            "3:47: `Xmas` is no day, date or span of dates",
        ),
        (
            "[oversight]\nhours = [{ on = [], open = \"08:00-09:00 UTC\" }]\n",
            "`on` names nothing | name acts",
        ),
        (
            "[oversight]\nhours = [{ on = [\"write .\"], open = \"08:00-09:00 UTC\" }]\n",
            "3:18: `write .`: files in a tree that is granted are not decided about one by one | hours of the whole context",
        ),
        (
            "[oversight]\npresent = [\"* **\"]\n",
            "files in a tree that is granted are not decided about one by one",
        ),
        (
            "[oversight]\npresent = [\"call bank\"]\n",
            "`call` does not go with `bank`",
        ),
        (
            "[oversight]\npresent = [\"resolve a.test\"]\n",
            "`resolve a.test` only looks a name up",
        ),
        (
            "[oversight]\nfour_eyes = [\"read ~/hr/*.pdf\"]\n",
            "3:14: `read ~/hr/*.pdf` has a wildcard, and allows and asks of files must name a folder or one file",
        ),
        ("[oversight]\napprovers = []\n", "3:13: `approvers` names nobody"),
        (
            "[oversight]\napprovers = [\"a b\"]\n",
            "3:14: `a b` is not the name of an approver",
        ),
        (
            "[oversight]\napprovers = [{ may = [\"run ls\"] }]\n",
            "an approver has no `name`",
        ),
        (
            "[oversight]\napprovers = [\"ida\"]\nescalate = { after = \"1 min\" }\n",
            "`escalate` needs both `after` and `to`",
        ),
        (
            "[oversight]\nescalate = { after = \"1 min\", to = [\"ida\"] }\n",
            "3:1: `escalate` comes after nobody | name those who are asked at once",
        ),
        (
            "[oversight]\napprovers = [\"ida\"]\nescalate = { after = \"1 week\", to = [\"ida\"] }\n",
            "`after` is not a length of time",
        ),
    ] {
        let said = said(text);
        assert!(said.len() == 1 && said[0].contains(want), "{text}{said:#?}");
    }
}

#[test]
fn what_is_overseen_is_shown() {
    let rules = policy(
        "extends = [\"coding\"]\n[oversight]\nhours = { open = \"Mon-Fri 08:00-16:00 Europe/Zurich\", except = [\"12-25\"], before_close = \"2 h\" }\n\
         present = [\"run pay\"]\napprovers = [\"ida\", { name = \"theo\", may = [\"run ls\"] }]\n",
    );
    let shown = rules.layers();
    for line in [
        "oversight (every layer's holds)",
        "context hours everything: Mon-Fri 08:00-16:00 Europe/Zurich, except 12-25, not within 120 min of closing",
        "context present run pay",
        "context approver ida",
        "context approver theo (run ls)",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}

#[test]
fn p2_a_program_that_answers_is_named_by_the_person_or_the_machine() {
    let with = |project: &str, person: &str, machine: &str| {
        let files = |text: &str| match text {
            "" => Vec::new(),
            text => vec![file("rules.toml", text)],
        };
        load(&Sources {
            machine: files(machine),
            person: files(person),
            project: Some(file("bailiwick.toml", project)),
            ..sources()
        })
    };
    let own = "approver = [\"/x/auditor\", \"-v\"]\nextends = [\"coding\"]\n";
    let wrong = with(own, "", "").unwrap_err();
    assert_eq!(wrong[0].message, "a project cannot name its own `approver`");
    let plain = "extends = [\"coding\"]\n";
    let person = "extends = [\"ceiling\"]\n[approver]\nrun = [\"/x/auditor\", \"-v\"]\nmay = [\"run git push\"]\n";
    let found = with(plain, person, "").unwrap();
    let program = found.settings().approver.as_ref().unwrap();
    assert_eq!(program.command, ["/x/auditor", "-v"]);
    assert!(program.may_say_yes(&request("run git push")) && !program.may_say_yes(&request("run git pull")));
    let machine = "approver = [\"/usr/bin/theirs\"]\nextends = [\"ceiling\"]\n";
    let both = with(plain, person, machine).unwrap();
    assert_eq!(both.settings().approver.as_ref().unwrap().command, ["/usr/bin/theirs"]);
    assert_ne!(both.digest(), found.digest());
    for text in [
        "approver = [\"auditor\"]\n",
        "approver = []\n",
        "approver = \"/x\"\n",
        "[approver]\nmay = [\"run ls\"]\n",
        "[approver]\nrun = [\"/x\"]\nmay = []\n",
        "[approver]\nrun = [\"/x\"]\nmya = [\"run ls\"]\n",
    ] {
        assert!(with(plain, text, "").is_err(), "{text}");
    }
}
