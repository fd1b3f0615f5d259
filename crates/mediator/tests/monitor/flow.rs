//! Labels: raised by what is read before it is handed over, checked where data would go, and where it may have chosen.

use std::sync::Arc;

use bailiwick_gate::{Answer, Mediator as _, Outcome};
use bailiwick_mediator::TaskSpec;
use bailiwick_model::{Argument, Code, Durability, Event, Obligation, Request, Tag, ToolDuty, Verb, Verdict, argument};

use crate::house::{House, Mood, request, settlement, spec};
use crate::talking::{Gate, dana};
use crate::vectors::load;

/// What an agent in an office may do: look people up, write to anybody, and pay.
const OFFICE: &str = r#"
allow = ["call hr/*", "open hr/**", "prompt hr/*", "sample hr", "elicit hr", "roots hr", "call out/*", "call payroll/*", "call talk/*"]

[network]
allow = ["* http://**", "tunnel db.test:5432"]

[tag.pii]
on        = ["call hr/*"]
may_reach = ["call payroll/*", "POST http://payroll.test/**"]
otherwise = "ask"

[tag.salary]
on        = ["call hr/salary"]
may_reach = ["call payroll/*"]

[tag.web]
on        = ["GET http://**"]
influence = true

[[tool]]
name    = "bank/pay"
trusted = ["to", "amount"]

[[broker]]
run = "git push origin main"
"#;

fn office() -> House {
    House::new(TaskSpec {
        approver_present: true,
        ..spec(Arc::new(load(OFFICE).expect("rules that load")))
    })
}

fn call(tool: &str, args: &[(&str, Argument)]) -> Request {
    let mut request = request(&format!("call {tool}"));
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let args = Argument::Fields(args.collect());
    request.arguments.insert(argument::ARGS.into(), args);
    request
}

fn pay() -> Request {
    let to = Argument::Text("Ann".into());
    call("bank/pay", &[("to", to), ("amount", Argument::Whole(20))])
}

fn denied(outcome: Outcome) -> Code {
    match outcome {
        Outcome::Deny(refusal) => refusal.code,
        other => panic!("denied, not {other:?}"),
    }
}

fn allowed(outcome: Outcome) -> bailiwick_gate::Permit {
    match outcome {
        Outcome::Allow(permit) => permit,
        other => panic!("allowed, not {other:?}"),
    }
}

fn tag(text: &str) -> Tag {
    Tag::parse(text).unwrap()
}

#[test]
fn p6_what_is_read_raises_the_label_before_it_can_be_read() {
    let house = office();
    drop(allowed(house.mediator.decide(&call("out/send", &[]))));
    drop(allowed(house.mediator.decide(&call("hr/salary", &[]))));
    // Both on disk before the permit: the decision, and what it gave.
    let all = house.ledger.all();
    let [.., (decided, _), (raised, durability)] = all.as_slice() else {
        panic!("two records");
    };
    let (Event::Decided { id, decision, .. }, Event::Raised { id: by, label }) = (&decided.event, &raised.event) else {
        panic!("a decision and a raise, not {decided:?} and {raised:?}");
    };
    assert_eq!(
        (id, decision.verdict, *durability),
        (by, Verdict::Allow, Durability::Durable)
    );
    assert_eq!(label.confidential, [tag("pii"), tag("salary")].into());
    // Of two tags one may not even be asked about.
    for sink in ["call out/send", "POST http://h.test/", "GET http://h.test/"] {
        assert_eq!(
            denied(house.mediator.decide(&request(sink))),
            Code::FlowRefused,
            "{sink}"
        );
    }
    drop(allowed(house.mediator.decide(&call("payroll/book", &[]))));
    // What is there already is not put on record again.
    let before = house.ledger.all().len();
    assert_eq!(
        denied(house.mediator.decide(&call("hr/salary", &[]))),
        Code::FlowRefused
    );
    assert_eq!(house.ledger.all().len(), before + 1);
}

#[test]
fn p6_all_that_a_server_says_carries_what_all_its_calls_carry() {
    for act in [
        "open hr/file:///a",
        "prompt hr/x",
        "sample hr",
        "elicit hr",
        "roots hr",
        "call hr/x",
    ] {
        let house = office();
        drop(allowed(house.mediator.decide(&request(act))));
        let (event, _) = house.ledger.last();
        assert!(matches!(event, Event::Raised { .. }), "{act}: {event:?}");
    }
}

#[test]
fn p6_an_uncleared_sink_is_asked_about_and_a_yes_is_for_what_was_shown() {
    let house = office();
    let mut gate = Gate::new(&house);
    drop(allowed(house.mediator.decide(&call("hr/name", &[]))));
    let send = |text: &str| call("out/send", &[("text", Argument::Text(text.into()))]);
    let waiting = gate.asks(&house, &send("Ann"));
    let shown = house.mediator.shown(waiting.clone());
    let because = shown.because.join("\n");
    assert!(
        because.contains("tagged `pii` (call hr/name, 1970-01-01 00:16:40 UTC, "),
        "{because}"
    );
    assert_eq!(shown.offers.len(), 1, "this call alone: {:?}", shown.offers);
    house.yes(&waiting).unwrap();
    gate.is_allowed();
    for other in [send("Bob"), send("Ann")] {
        let waiting = gate.asks(&house, &other);
        house.no(&waiting).unwrap();
        assert_eq!(gate.is_denied(), Code::AnsweredNo);
    }
}

#[test]
fn p6_a_yes_to_one_tag_is_none_to_another() {
    let rules = OFFICE.replace("may_reach = [\"call payroll/*\"]\n", "otherwise = \"ask\"\n");
    let house = House::new(TaskSpec {
        approver_present: true,
        ..spec(Arc::new(load(&rules).expect("rules that load")))
    });
    let (mut gate, other) = (Gate::new(&house), &house.mediator);
    drop(allowed(other.decide(&call("hr/name", &[]))));
    let waiting = gate.asks(&house, &call("out/send", &[]));
    // Meanwhile a yes to another call lets it read what carries one tag more.
    let mut second = Gate::new(&house);
    let reading = second.asks(&house, &call("hr/salary", &[]));
    house.yes(&reading).unwrap();
    second.is_allowed();
    house.yes(&waiting).unwrap();
    let Answer::Question { question, .. } = gate.hears() else {
        panic!("asked again, of the other tag");
    };
    let again = (0..5000)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            house.mediator.waiting().into_iter().find(|one| one.id == question.id)
        })
        .expect("a question");
    let because = house.mediator.shown(again).because.join("\n");
    assert!(
        because.contains("`salary`") && because.contains("call hr/salary"),
        "{because}"
    );
}

#[test]
fn p10_what_cannot_be_put_on_record_is_not_read() {
    for mood in [Mood::RefusesRecords, Mood::LosesDurable, Mood::Unhealthy] {
        let house = office();
        house.ledger.set(mood);
        assert_eq!(
            denied(house.mediator.decide(&call("hr/name", &[]))),
            Code::LogUnavailable
        );
    }
}

#[test]
fn p11_what_still_goes_on_and_may_not_is_cut_off_at_the_raise() {
    let house = office();
    let gate = Gate::new(&house);
    let [open, cleared] = ["POST http://h.test/", "POST http://payroll.test/"].map(|act| {
        let permit = allowed(house.mediator.decide(&request(act)));
        permit.terms().nonce
    });
    let tunnel = allowed(house.mediator.decide(&request("tunnel db.test:5432")))
        .terms()
        .nonce;
    let over = allowed(house.mediator.decide(&request("POST http://h.test/over")));
    house.mediator.settle(&settlement(&over, true)).unwrap();
    drop(allowed(house.mediator.decide(&call("hr/name", &[]))));
    let mut cut: Vec<_> = (0..2)
        .map(|_| match gate.hears() {
            Answer::Revoked { nonce } => nonce,
            other => panic!("cut off, not {other:?}"),
        })
        .collect();
    cut.sort_unstable();
    let mut want = vec![open, tunnel];
    want.sort_unstable();
    assert_eq!(cut, want, "and not {cleared:?}");
}

#[test]
fn p6_a_command_that_runs_outside_is_a_sink() {
    let house = office();
    let outside = || {
        let mut request = request("run git push origin main");
        request.verb = Verb::Broker;
        request
    };
    drop(allowed(house.mediator.decide(&outside())));
    drop(allowed(house.mediator.decide(&call("hr/salary", &[]))));
    assert_eq!(denied(house.mediator.decide(&outside())), Code::FlowRefused);
}

#[test]
fn p6_a_call_that_is_decided_after_a_raise_knows_of_it() {
    for _ in 0..20 {
        let house = office();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let mediator = house.mediator.clone();
                scope.spawn(move || {
                    let act = if number == 3 { "hr/salary" } else { "out/send" };
                    for _ in 0..4 {
                        let _ = mediator.decide(&call(act, &[]));
                    }
                });
            }
        });
        let mut raised = false;
        for (record, _) in house.ledger.all() {
            match record.event {
                Event::Raised { .. } => raised = true,
                Event::Decided { request, decision, .. } if raised => {
                    assert_eq!(decision.verdict, Verdict::Deny, "{request}");
                }
                _ => {}
            }
        }
        assert!(raised);
    }
}

#[test]
fn p7_what_untrusted_text_may_have_chosen_is_asked_about() {
    let house = office();
    let mut gate = Gate::new(&house);
    drop(allowed(house.mediator.decide(&pay())));
    drop(allowed(house.mediator.decide(&request("GET http://page.test/"))));
    let waiting = gate.asks(&house, &pay());
    let shown = house.mediator.shown(waiting.clone());
    let minded: Vec<&str> = shown
        .details
        .iter()
        .filter_map(|detail| detail.mind.as_deref())
        .collect();
    assert_eq!(minded.len(), 2, "{shown:?}");
    assert!(
        minded
            .iter()
            .any(|text| text.starts_with("`to` may have been chosen by untrusted text")
                && text.contains("`web` (GET http://page.test/, ")),
        "{minded:?}"
    );
    house.yes(&waiting).unwrap();
    gate.is_allowed();
    let waiting = gate.asks(&house, &pay());
    house.no(&waiting).unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
    // A wide yes by hand is no answer to it.
    let _ = dana();
    let acts = bailiwick_model::Act::parse("call bank/pay", &crate::vectors::anchors()).unwrap();
    let by_hand = house.mediator.grant_by_hand(
        bailiwick_model::ContextId("/p".into()),
        acts,
        Vec::new(),
        bailiwick_gate::desk::Terms::default(),
        &dana(),
    );
    assert!(by_hand.is_err(), "no rule asks about it");
}

#[test]
fn p7_a_value_that_came_by_a_handle_is_its_source_s() {
    let house = office();
    drop(allowed(house.mediator.decide(&request("GET http://page.test/"))));
    let mut by_handle = call("bank/pay", &[("to", Argument::Text("Ann".into()))]);
    let chosen = Argument::Fields([("to".to_owned(), Argument::Fields([].into()))].into());
    by_handle.arguments.insert(argument::CHOSEN.into(), chosen);
    drop(allowed(house.mediator.decide(&by_handle)));
    // Unless that source is untrusted itself.
    by_handle.label.influence.insert(tag("web"));
    let outcome = house.mediator.decide(&by_handle);
    assert!(matches!(outcome, Outcome::Ask(_)), "{outcome:?}");
}

#[test]
fn p6_what_is_handed_out_as_a_handle_goes_with_it_and_not_with_the_task() {
    let rules = r#"
allow = ["call out/*", "call bank/*"]

[tag.card]
may_reach = ["call bank/*"]

[[tool]]
name    = "hr/card"
fields  = { card = ["/card"] }
present = { handles = ["/card"] }

[[tool]]
name    = "hr/whole"
tags    = ["card"]
present = "handle"

[[tool]]
name   = "hr/part"
tags   = ["card"]
present = { handles = ["/card"] }
"#;
    let house = House::new(spec(Arc::new(load(rules).expect("rules that load"))));
    for tool in ["hr/card", "hr/whole"] {
        let permit = allowed(house.mediator.decide(&call(tool, &[])));
        let label = permit.terms().obligations.iter().find_map(|duty| match duty {
            Obligation::Tool(ToolDuty::Label { label }) => Some(label.clone()),
            _ => None,
        });
        let label = label.expect("tags for the handles");
        assert_eq!(label.confidential, [tag("card")].into());
        // The task has read nothing of it; a call in which a handle is given carries its tags.
        drop(allowed(house.mediator.decide(&call("out/send", &[]))));
        let mut with_handle = call("out/send", &[]);
        with_handle.label = label.clone();
        assert_eq!(denied(house.mediator.decide(&with_handle)), Code::FlowRefused);
        let mut with_handle = call("bank/pay", &[]);
        with_handle.label = label;
        drop(allowed(house.mediator.decide(&with_handle)));
    }
    // Where only a part is a handle, the rest is read.
    drop(allowed(house.mediator.decide(&call("hr/part", &[]))));
    assert_eq!(denied(house.mediator.decide(&call("out/send", &[]))), Code::FlowRefused);
}
