//! Rules about what a call was chosen from: the least, the greatest and the number of what another tool gave.

use std::fmt::Write as _;

use bailiwick_model::{AnswerPart, Argument, Obligation, ToolDuty, Verdict, argument};
use bailiwick_policy::{Choosing, Diagnostic, Policy, SourceFile, Sources};

use crate::tools::call;
use crate::{answer, file, load, sources};

const LOCK: &str = r##"{"version": 1, "servers": {"air": {"tools": {
  "search": {"digest": "00", "definition": {"name": "search",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}},
    "outputSchema": {"type": "object", "properties": {
      "flights": {"type": "array", "items": {"type": "object", "required": ["stops", "minutes", "price", "currency"],
        "properties": {"stops": {"type": "integer"}, "minutes": {"type": "integer"}, "price": {"type": "number"},
          "currency": {"type": "string"}, "airline": {"type": "string"}, "bags": {"type": "number"},
          "fee": {"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}}}}},
      "best": {"type": "object", "properties": {"price": {"type": "number"}}},
      "note": {"type": "string"}}}}},
  "deals": {"digest": "01", "definition": {"name": "deals", "inputSchema": {"type": "object", "properties": {}},
    "outputSchema": {"type": "object", "properties": {"flights": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}}}}}},
  "book": {"digest": "02", "definition": {"name": "book", "inputSchema": {"type": "object", "required": ["flight"],
    "properties": {"flight": {"type": "object"}, "seat": {"type": "string"}}}}},
  "plain": {"digest": "03", "definition": {"name": "plain", "inputSchema": {"type": "object", "properties": {}}}}}}}}"##;

const SERVER: &str = "[[server]]\nname = \"air\"\nrun = [\"air-mcp\"]\n";

const SEARCH: &str = "[[tool]]\nname = \"air/search\"\npresent = { handles = [\"/flights/*\", \"/best\"] }\n";

const BOOK: &str = r#"
[[tool]]
name = "air/book"
from = { flight = "air/search#/flights/*" }
when = 'args.flight.stops <= 1 && args.flight.minutes <= 720 && args.flight.price <= among.flight.price.min.plus("10 %")'
any  = ["seat"]
"#;

/// An example of the documentation.
pub(crate) fn documented(rules: &str) -> Result<Policy, Vec<Diagnostic>> {
    load(&alone(rules))
}

fn with(rules: &str) -> Sources {
    alone(&format!("{rules}\n{SEARCH}"))
}

fn alone(rules: &str) -> Sources {
    Sources {
        project: Some(file(
            "bailiwick.toml",
            &format!("extends = [\"readonly\"]\n{rules}\n{SERVER}"),
        )),
        lock: Some(SourceFile {
            name: "bailiwick.lock".into(),
            text: LOCK.into(),
        }),
        ..sources()
    }
}

fn policy(rules: &str) -> Policy {
    load(&with(rules)).unwrap_or_else(|wrong| panic!("{rules}\n{wrong:#?}"))
}

fn mistake(rules: &str) -> Diagnostic {
    let wrong = load(&with(rules)).map(|_| ()).unwrap_err();
    wrong.into_iter().find(Diagnostic::is_error).unwrap()
}

/// A flight as JSON: stops, minutes and price.
fn flight(stops: u32, minutes: u32, price: &str) -> String {
    format!(r#"{{"stops": {stops}, "minutes": {minutes}, "price": {price}, "currency": "EUR"}}"#)
}

/// The booking of the first of these.
fn booking(flights: &[String]) -> String {
    let first = flights.first().unwrap();
    let mut all = String::new();
    for flight in flights {
        let comma = if all.is_empty() { "" } else { ", " };
        let _ = write!(all, "{comma}{flight}");
    }
    format!(r#"air/book {{"flight": {first}}} among {{"flight": {{"air/search#/flights/*": [{all}]}}}}"#)
}

#[test]
fn p3_a_flight_is_bounded_by_what_it_was_chosen_from() {
    let policy = policy(BOOK);
    let others = [flight(0, 300, "300.00"), flight(2, 900, "310.5")];
    for (own, want) in [
        (flight(1, 720, "330"), "allow allowed-by-rule"),
        (flight(0, 60, "299.99"), "allow allowed-by-rule"),
        (flight(1, 720, "330.00"), "allow allowed-by-rule"),
        (flight(1, 720, "3.3e2"), "allow allowed-by-rule"),
        (flight(1, 720, "330.01"), "deny arguments-refused"),
        (flight(1, 720, "330.0001"), "deny arguments-refused"),
        (flight(1, 720, "330.00001"), "deny arguments-refused"),
        (flight(1, 720, "333"), "deny arguments-refused"),
        (flight(2, 720, "300"), "deny arguments-refused"),
        (flight(1, 721, "300"), "deny arguments-refused"),
        (flight(1, 720, "\"300\""), "deny arguments-refused"),
        (flight(1, 720, "null"), "deny arguments-refused"),
        (
            r#"{"stops": 1, "minutes": 720, "currency": "EUR"}"#.into(),
            "deny arguments-refused",
        ),
        (
            r#"{"stops": 1, "minutes": 720, "price": 300}"#.into(),
            "deny arguments-refused",
        ),
        (
            r#"{"stops": 1, "minutes": 720, "price": 300, "currency": "USD"}"#.into(),
            "deny arguments-refused",
        ),
    ] {
        let all: Vec<String> = std::iter::once(own.clone()).chain(others.iter().cloned()).collect();
        let request = call(&booking(&all));
        assert_eq!(answer(&policy, &request), want, "{own}");
        // Of what stands behind the handle the agent is told nothing, not even which part of it is at fault.
        if want.starts_with("deny") {
            assert_eq!(policy.arguments_at_fault(&request), ["flight"], "{own}");
        }
    }
    let decision = policy.evaluate(&call(&booking(&[flight(1, 720, "340"), flight(0, 60, "300")])));
    let told = &decision.reasons[0].text;
    assert!(
        told.contains("`flight` is ")
            && told.contains("the least `flight.price` that it was chosen from, plus 10 %, is 330"),
        "{told}"
    );
    let allowed = policy.evaluate(&call(&booking(&[flight(1, 720, "300")])));
    let reveal = Obligation::Tool(ToolDuty::Reveal {
        paths: vec!["/flight".into()],
    });
    assert_eq!(allowed.obligations, [reveal]);
    assert!(
        allowed.reasons[0]
            .text
            .contains("`flight` chosen from `air/search#/flights/*`")
    );
}

#[test]
fn p4_what_did_not_come_by_a_handle_is_not_admitted() {
    let policy = policy(BOOK);
    let own = flight(0, 60, "300");
    let among = |part: &str, entries: &str| {
        format!(r#"air/book {{"flight": {own}}} among {{"flight": {{"{part}": [{entries}]}}}}"#)
    };
    let many = vec![own.clone(); 256].join(", ");
    for (text, want) in [
        (among("air/search#/flights/*", &own), "allow allowed-by-rule"),
        (among("air/search#/flights/*", &many), "allow allowed-by-rule"),
        (format!(r#"air/book {{"flight": {own}}}"#), "deny arguments-refused"),
        (among("air/deals#/flights/*", &own), "deny arguments-refused"),
        (among("air/search#/flights", &own), "deny arguments-refused"),
        (among("air/search", &own), "deny arguments-refused"),
        (among("air/search#/flights/*", ""), "deny arguments-refused"),
        (among("air/search#/flights/*", "3"), "deny arguments-refused"),
        // The price is none of those that it was chosen from.
        (
            among("air/search#/flights/*", &flight(0, 60, "301")),
            "deny arguments-refused",
        ),
        (
            among("air/search#/flights/*", &format!("{own}, {{\"price\": 1}}")),
            "deny arguments-refused",
        ),
        (
            among("air/search#/flights/*", &format!("{own}, {{\"currency\": \"EUR\"}}")),
            "deny arguments-refused",
        ),
        (
            among("air/search#/flights/*", &format!("{many}, {own}")),
            "deny arguments-refused",
        ),
        (
            format!(r#"air/book {{"flight": "bailiwick-handle-{}"}}"#, "0".repeat(32)),
            "deny arguments-refused",
        ),
        (
            format!(r#"air/book {{"flight": {own}}} among {{"seat": {{"air/search#/flights/*": [{own}]}}}}"#),
            "deny arguments-refused",
        ),
        (r#"air/book {"seat": "1A"}"#.into(), "deny arguments-refused"),
    ] {
        assert_eq!(answer(&policy, &call(&text)), want, "{text}");
    }
    // Two parts at once are none.
    let mut request = call(&among("air/search#/flights/*", &own));
    let other = AnswerPart::parse("air/deals#/flights/*").unwrap();
    if let Some(Argument::Fields(all)) = request.arguments.get_mut(argument::CHOSEN)
        && let Some(Argument::Fields(parts)) = all.get_mut("flight")
    {
        parts.insert(other.to_string(), Argument::List(Vec::new()));
    }
    assert_eq!(answer(&policy, &request), "deny arguments-refused");
}

#[test]
fn p4_a_wider_rule_opens_nothing_and_a_deny_holds() {
    let rules = r#"
    allow = ["call air/book"]
    [[tool]]
    name   = "air/book"
    effect = "deny"
    from   = { flight = "air/search#/flights/*" }
    when   = 'args.flight.price > among.flight.price.min.plus(20) || among.flight.count < 2'
    "#;
    let policy = policy(rules);
    let two = |price: &str| booking(&[flight(0, 60, price), flight(0, 60, "300")]);
    for (text, want) in [
        (two("320"), "allow allowed-by-rule"),
        (two("320.01"), "deny denied-by-rule"),
        (booking(&[flight(0, 60, "300")]), "deny denied-by-rule"),
        // What a deny cannot look at is denied.
        (
            format!(r#"air/book {{"flight": {}}}"#, flight(0, 60, "300")),
            "deny arguments-refused",
        ),
    ] {
        let decision = policy.evaluate(&call(&text));
        assert_eq!(answer(&policy, &call(&text)), want, "{text}");
        if decision.verdict == Verdict::Allow {
            assert_eq!(decision.obligations, [], "a wide rule opens no handle");
        }
    }
}

#[test]
fn whole_numbers_counts_and_inner_currencies_are_compared_too() {
    let policy = policy(
        r#"
        [[tool]]
        name = "air/book"
        from = { flight = "air/search#/flights/*" }
        when = '''args.flight.minutes <= among.flight.minutes.min.plus("7.5 %") && among.flight.count <= 3
                  && args.flight has fee.amount && args.flight.fee.amount == among.flight.fee.amount.max'''
        "#,
    );
    let own = |minutes: u32, fee: &str, currency: &str| {
        format!(
            r#"{{"stops": 0, "minutes": {minutes}, "price": 1, "currency": "EUR", "fee": {{"amount": {fee}, "currency": "{currency}"}}}}"#
        )
    };
    for (all, want) in [
        // 7.5 % of 101 is 7.575: 108 is within, 109 is not.
        (
            vec![own(108, "2", "EUR"), own(101, "1.5", "EUR")],
            "allow allowed-by-rule",
        ),
        (
            vec![own(109, "2", "EUR"), own(101, "1.5", "EUR")],
            "deny arguments-refused",
        ),
        (
            vec![own(101, "1", "EUR"), own(101, "1.5", "EUR")],
            "deny arguments-refused",
        ),
        (
            vec![own(101, "2", "EUR"), own(101, "1.5", "CHF")],
            "deny arguments-refused",
        ),
        (vec![own(101, "2", "EUR"); 4], "deny arguments-refused"),
    ] {
        assert_eq!(answer(&policy, &call(&booking(&all))), want, "{all:?}");
    }
}

#[test]
fn p14_what_the_gate_opens_is_what_rules_look_at() {
    let policy = policy(&format!(
        "{BOOK}budget = {{ sum = {{ \"flight.price\" = \"500 EUR\" }}, unit = \"flight.currency\" }}\n"
    ));
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let [choosing] = <[Choosing; 1]>::try_from(policy.tools_choosing("air")).unwrap();
    assert_eq!(
        (
            choosing.tools.to_string().as_str(),
            choosing.argument.as_str(),
            choosing.from.to_string().as_str()
        ),
        ("air/book", "flight", "air/search#/flights/*")
    );
    assert_eq!(choosing.looks_at, [path(&["currency"]), path(&["price"])]);
    assert!(policy.tools_choosing("bank").is_empty());
    let cedar = policy.to_cedar();
    assert!(
        cedar.contains("context.args.flight.price.lessThanOrEqual(context.among[\"/flight/price min + 10 %\"])"),
        "{cedar}"
    );
    let schema = policy.schema();
    assert!(
        schema.contains("among: { \"/flight/price min + 10 %\": __cedar::decimal }"),
        "{schema}"
    );
    assert!(policy.layers().contains("`flight` chosen from `air/search#/flights/*`"));
}

#[test]
fn a_rule_keeps_its_examples_of_choices() {
    let own = booking(&[flight(1, 60, "330"), flight(0, 60, "300")]);
    let other = booking(&[flight(1, 60, "331"), flight(0, 60, "300")]);
    policy(&format!("{BOOK}allows = ['{own}']\ndenies = ['{other}']\n"));
    let wrong = mistake(&format!("{BOOK}allows = ['{other}']\n"));
    assert!(wrong.message.contains("does not cover its example"), "{wrong:?}");
}

#[test]
fn p4_mistakes_about_choices_are_told_with_their_place() {
    let book = |rest: &str| format!("[[tool]]\nname = \"air/book\"\n{rest}\n");
    let from = "from = { flight = \"air/search#/flights/*\" }\n";
    for (rest, says) in [
        (format!("{from}when = 'args.flight.prise <= 1'"), "4:9: there is no argument `prise` in `flight`"),
        (
            format!("{from}when = 'args.flight.price <= among.flight.prise.min'"),
            "4:30: there is no argument `prise` in `flight`",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.airline.min'"),
            "4:30: `flight.airline` is a text: only numbers have a least and a greatest",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.minutes.min'"),
            "4:9: `args.flight.price` is a number, `among.flight.minutes.min` is a whole number",
        ),
        (
            format!("{from}when = 'args.flight.price < among.flight.price.min'"),
            "4:9: `args.flight.price < among.flight.price.min` can never hold",
        ),
        (
            format!("{from}when = '!(args.flight.price <= among.flight.price.max)'"),
            "4:11: `args.flight.price <= among.flight.price.max` can never hold",
        ),
        (format!("{from}when = 'among.flight.count < 1'"), "4:9: `among.flight.count < 1` can never hold"),
        (
            format!("{from}when = 'args.flight.stops <= 1 && args.flight.stops >= 2'"),
            "4:35: `args.flight.stops >= 2` can never hold beside `args.flight.stops <= 1`",
        ),
        (
            format!("{from}when = 'args.flight.price < among.flight.price.min.plus(\"10 %\")'"),
            "4:29: a computed bound is compared by `<=`",
        ),
        (
            format!("{from}when = 'args.flight.price == among.flight.price.min.plus(\"10 %\")'"),
            "4:30: a computed bound is compared by `<=`",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.price.min.plus(\"-10 %\")'"),
            "4:30: this is nothing that can be added",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.price.min.plus(\"much\")'"),
            "4:30: this is nothing that can be added",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.price.min.times(2)'"),
            "4:30: there is no `times` of that",
        ),
        (
            format!("{from}when = 'args.flight.price <= among.flight.price.min * 1.1'"),
            "4:30: Cedar has no arithmetic of decimals",
        ),
        (format!("{from}when = 'args.flight.price <= among.flight.price'"), "4:30: `among.flight.price` is a list"),
        (
            format!("{from}when = 'args.flight.price <= among.seat.price.min'"),
            "4:30: the rule does not say from where `seat` comes",
        ),
        ("when = 'among.flight.count <= 3'".into(), "3:9: the rule does not say from where `flight` comes"),
        ("from = { flight = \"air/search#/fligths/*\" }".into(), "3:10: `flight` comes from `air/search#/fligths/*`: `air/search` gives no `fligths`"),
        ("from = { flight = \"air/search#/flights/0\" }".into(), "3:10: `flight` comes from `air/search#/flights/0`: `0` is no name in a list"),
        ("from = { flight = \"air/search#/note/x\" }".into(), "3:10: `flight` comes from `air/search#/note/x`, where there is a text"),
        ("from = { flight = \"air/search#/note\" }".into(), "3:10: `flight` comes from `air/search#/note`, which no rule gives as a handle"),
        ("from = { flight = \"air/deals#/flights/*\" }".into(), "3:10: `flight` comes from `air/deals#/flights/*`, which no rule gives as a handle"),
        ("from = { flight = \"air/plain#/x\" }".into(), "3:10: `flight` comes from `air/plain`, of whose answers nothing is known"),
        ("from = { flight = \"air/other#/x\" }".into(), "3:10: `flight` comes from `air/other`, which is not pinned"),
        ("from = { fligth = \"air/search#/flights/*\" }".into(), "3:10: `fligth` is no argument"),
        ("from = { flight = \"air\" }".into(), "3:19: `air` names no part of a tool's answers"),
        (
            "from = { flight = \"air/search#/best\" }\nwhen = 'args.flight has price && args.flight.price <= among.flight.price.min'".into(),
            "4:55: `flight` comes from `air/search#/best`, where nothing stands beside it",
        ),
        (format!("effect = \"deny\"\n{from}"), "2:8: `from` says nothing in a deny without `when`"),
    ] {
        let wrong = mistake(&book(&rest));
        let told = format!("{}:{}: {}", wrong.line - 1, wrong.column, wrong.message);
        assert!(told.starts_with(says), "{rest}\n{told}\n{says}");
    }
    // While pinning nothing is known yet.
    let pinning = Sources {
        lock: None,
        pinning: true,
        ..with(BOOK)
    };
    let unpinned = load(&pinning).unwrap();
    let request = call(&booking(&[flight(0, 60, "300")]));
    assert_eq!(answer(&unpinned, &request), "deny arguments-refused");
}
