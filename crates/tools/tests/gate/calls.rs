//! Calls: what is listed, judged, sent and settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_model::{Code, Obligation, ToolDuty};
use serde_json::{Value, json};

use crate::world::{Plan, Say, Seen, TOKEN, called, echo, text, tool};

fn pay() -> Value {
    json!([tool(
        "pay",
        json!({"to": {"type": "string"}, "amount": {"type": "number"}})
    )])
}

fn bank() -> Plan {
    Plan::new().server("bank", &["call bank/*"], &pay(), echo(pay()))
}

#[test]
fn p1_a_call_is_asked_about_spent_made_and_settled_in_this_order() {
    let world = bank().start(|_| Say::Allow);
    let mut client = world.client();
    assert_eq!(client.tools(), ["bank__pay"]);
    assert_eq!(world.seen(), [], "listing starts nothing and asks nothing");
    let done = client.call("bank__pay", json!({"to": "Ann", "amount": 199.5}));
    // In which order names stand is the build's matter.
    let said: Value = serde_json::from_str(done.done().trim_start_matches("pay ")).unwrap();
    assert_eq!(said, json!({"amount": 199.5, "to": "Ann"}));
    world.wait(|seen| matches!(seen, Seen::Settled(..)));
    let seen = world.seen();
    let [Seen::Asked(act, arguments), Seen::Started(_), Seen::Settled(true, note)] = &seen[..] else {
        panic!("{seen:#?}")
    };
    assert_eq!((act.as_str(), note.as_str()), ("call bank/pay", "answered"));
    assert!(
        arguments.starts_with(r#"args={"amount": 199.5, "to": "Ann"} definition=""#),
        "{arguments}"
    );
    client.call("bank__pay", json!({})).done();
    assert_eq!(
        world
            .seen()
            .iter()
            .filter(|seen| matches!(seen, Seen::Started(_)))
            .count(),
        1
    );
}

#[test]
fn p4_what_is_denied_is_a_result_that_says_so_and_nothing_starts() {
    let world = Plan::new()
        .server("bank", &["call bank/pay"], &pay(), echo(pay()))
        .start(|_| Say::Deny(Code::NoRule));
    let mut client = world.client();
    let refused = client.call("bank__pay", json!({}));
    let text = refused.refused("no-rule");
    assert!(text.ends_with(')'), "a code and an id: {text}");
    assert!(world.seen().iter().all(|seen| !matches!(seen, Seen::Started(_))));
    client.call("bank__unknown", json!({})).refused("no-rule");
    client.call("shop__pay", json!({})).refused("tool-unknown");
    client.call("pay", json!({})).refused("tool-unknown");
}

#[test]
fn p4_who_does_not_know_the_token_is_not_served() {
    let world = bank().start(|_| Say::Allow);
    for token in ["", "wrong", &TOKEN[1..], &format!("{TOKEN}x"), &"x".repeat(1000)] {
        let mut stranger = world.stranger(token);
        let _ = std::io::Write::write_all(
            &mut stranger.stream,
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
        );
        assert_eq!(stranger.next(), None, "{token}");
    }
    world.wait(|seen| matches!(seen, Seen::Refused(Code::NoRule, what) if what.contains("token")));
}

#[test]
fn c038_arguments_are_read_in_one_way_and_refused_by_name() {
    let tools = json!([{"name": "create_ticket", "inputSchema": {"type": "object", "properties": {
        "repo": {"type": "string"}, "labels": {"type": "array", "maxItems": 2}, "n": {"type": "number"}},
        "required": ["repo"], "additionalProperties": false}}]);
    let world = Plan::new()
        .server("git", &["call git/*"], &tools, echo(tools.clone()))
        .start(|_| Say::Allow);
    let mut client = world.client();
    client.call("git__create_ticket", json!({"repo": "acme/demo"})).done();
    for (arguments, name) in [
        (r#"{"repo":"acme/demo","repo":"acme/other"}"#, "`repo`"),
        (r#"{"repo":"acme/demo","\u0072epo":"acme/other"}"#, "`repo`"),
        (r#"{"repo":["acme/demo","acme/other"]}"#, "`repo`"),
        (r#"{}"#, "repo"),
        (r#"{"repo":"acme/demo","repository":"acme/other"}"#, "repository"),
        (r#"{"repo":"acme/demo","labels":["a","b","c"]}"#, "`labels`"),
        (r#"{"repo":"acme/demo","n":1e400}"#, "`n`"),
        (r#"{"repo":"acme/demo","n":200.00000000000000000001}"#, "`n`"),
        (r#"{"repo":"acme/demo","n":"1"}"#, "`n`"),
        ("{\"repo\":\"acme/demo\",\"re\u{200b}po\":1}", "re\\u{200b}po"),
    ] {
        let id = 1000;
        client.write(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"git__create_ticket","arguments":{arguments}}}}}"#
        ));
        let answer = client.next().unwrap();
        let said = answer.to_string();
        assert!(
            said.contains("bailiwick refused this") && said.contains(name.replace('\\', "\\\\").as_str()),
            "{arguments}: {said}"
        );
        assert!(!said.contains("acme"), "{said}");
    }
    assert_eq!(world.asked(), ["call git/create_ticket"]);
    let refused = world
        .seen()
        .into_iter()
        .filter(|seen| matches!(seen, Seen::Refused(..)))
        .count();
    assert_eq!(refused, 10, "each is on record");
}

#[test]
fn p4_what_is_too_large_or_too_deep_is_refused() {
    let tools = json!([{"name": "any", "inputSchema": {"type": "object"}}]);
    let world = Plan::new()
        .server("a", &["call a/*"], &tools, echo(tools.clone()))
        .start(|_| Say::Allow);
    let mut client = world.client();
    let large = "x".repeat(200 * 1024);
    client.call("a__any", json!({"text": large})).refused("limit-reached");
    // Short as it is written, and long as it is judged.
    let many = client.call("a__any", json!({"list": vec![0; 60_000]}));
    assert!(
        many.refused("limit-reached").contains("too many to be asked about"),
        "{many:?}"
    );
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{}}}"#,
        "[".repeat(100)
    ));
    assert!(client.next().unwrap().to_string().contains("malformed-request"));
    client.write("[]");
    assert!(client.next().unwrap().to_string().contains("one by one"));
    client.write(&"x".repeat(5 * 1024 * 1024));
    assert!(client.next().unwrap().to_string().contains("longer than"));
    assert_eq!(client.next(), None);
}

#[test]
fn p8_a_question_holds_the_call_and_a_word_comes_with_the_no() {
    let world = bank().start(|request| match request.args().unwrap().len() {
        0 => Say::Ask(true),
        1 => Say::Ask(false),
        _ => Say::TellMore("which Ann?"),
    });
    let mut client = world.client();
    client.call("bank__pay", json!({})).done();
    client.call("bank__pay", json!({"to": "Ann"})).refused("answered-no");
    let refused = client.call("bank__pay", json!({"to": "Ann", "amount": 1}));
    let said = refused.refused("tell-more").to_owned();
    assert!(
        said.contains("which Ann?") && said.contains("bailiwick__answer"),
        "{said}"
    );
    let id = said.split_once('(').unwrap().1.split_once(')').unwrap().0.to_owned();
    client
        .call(
            "bailiwick__answer",
            json!({"question": id, "words": "Ann of the office"}),
        )
        .done();
    world.wait(|seen| *seen == Seen::Told("Ann of the office".into()));
    client
        .call("bailiwick__answer", json!({"question": "x", "words": "y"}))
        .refused("arguments-malformed");
}

#[test]
fn p1_a_call_that_is_given_up_withdraws_its_question() {
    let world = bank().start(|_| Say::Silence);
    let mut client = world.client();
    let number = client.ask("tools/call", json!({"name": "bank__pay", "arguments": {}}));
    world.wait(|seen| matches!(seen, Seen::Asked(..)));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}));
    world.wait(|seen| *seen == Seen::Withdrawn);
    let mut other = world.client();
    other.ask("tools/call", json!({"name": "bank__pay", "arguments": {}}));
    world.wait(|seen| matches!(seen, Seen::Asked(..)));
    drop(other);
    let withdrawn = || world.seen().iter().filter(|seen| **seen == Seen::Withdrawn).count() == 2;
    let until = Instant::now() + crate::world::PATIENCE;
    while !withdrawn() {
        assert!(Instant::now() < until, "a connection that ends withdraws, too");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn p11_what_is_revoked_is_cut_off_at_once() {
    let script: crate::world::Script = Arc::new(|mut lines| {
        lines.next_call(&pay());
        let cancelled = lines.next().unwrap();
        assert_eq!(cancelled["method"], "notifications/cancelled");
        lines
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}));
        lines.next();
    });
    let world = Plan::new()
        .server("bank", &["call bank/*"], &pay(), script)
        .start(|_| Say::Revoke);
    let begun = Instant::now();
    world.client().call("bank__pay", json!({})).refused("permit-refused");
    assert!(begun.elapsed() < Duration::from_secs(1));
    world.wait(|seen| matches!(seen, Seen::Settled(true, note) if note.contains("revoked")));
}

#[test]
fn a_reason_goes_with_the_request_and_not_to_the_server() {
    let world = bank()
        .config(|config| config.reasons = vec![bailiwick_model::ToolPattern::parse("bank/*").unwrap()])
        .start(|_| Say::Allow);
    let mut client = world.client();
    let listed = client.request("tools/list", json!({}));
    let schema = &listed["result"]["tools"][0]["inputSchema"];
    assert_eq!(schema["required"], json!(["bailiwick_reason"]));
    let done = client.call("bank__pay", json!({"to": "Ann", "bailiwick_reason": "the sitter"}));
    assert_eq!(done.done(), r#"pay {"to":"Ann"}"#);
    let seen = world.wait(|seen| matches!(seen, Seen::Asked(..)));
    let Seen::Asked(_, arguments) = seen else { panic!() };
    assert!(arguments.ends_with(r#"reason="the sitter""#), "{arguments}");
    client
        .call("bank__pay", json!({"bailiwick_reason": 1}))
        .refused("arguments-malformed");
}

#[test]
fn p6_results_are_kept_back_cut_and_handed_out_as_handles_that_only_a_permit_opens() {
    let tools = json!([
        tool("look", json!({})),
        tool("pay", json!({"card": {"type": "integer"}, "note": {"type": "string"}}))
    ]);
    let listed = tools.clone();
    let script: crate::world::Script = Arc::new(move |mut lines| {
        while let Some(call) = lines.next_call(&listed) {
            if call["params"]["name"] == "look" {
                let value = json!({"name": "Ann", "salary": 98765432, "card": 411122223});
                lines.answer(
                    &call,
                    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value}),
                );
            } else {
                let said = format!("paid with {}", call["params"]["arguments"]["card"]);
                lines.answer(&call, text(&said));
            }
        }
    });
    let world = Plan::new()
        .server("hr", &["call hr/*"], &tools, script)
        .start(|request| {
            if request.to_string() == "call hr/look" {
                return Say::Under(vec![
                    Obligation::Tool(ToolDuty::Redact {
                        paths: vec!["/salary".into()],
                    }),
                    Obligation::Tool(ToolDuty::Present {
                        paths: vec!["/card".into()],
                    }),
                    Obligation::Tool(ToolDuty::Notify),
                ]);
            }
            let is_noted = request.args().unwrap().contains_key("note");
            let reveal = Obligation::Tool(ToolDuty::Reveal {
                paths: vec!["/card".into()],
            });
            Say::Under(if is_noted { Vec::new() } else { vec![reveal] })
        });
    let mut client = world.client();
    let looked = client.call("hr__look", json!({}));
    let all = looked.whole.to_string();
    assert!(
        all.contains("Ann") && !all.contains("98765432") && !all.contains("411122223"),
        "{all}"
    );
    let handle = looked.whole["structuredContent"]["card"]["handle"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        client.call("hr__pay", json!({"card": handle})).done(),
        "paid with 411122223"
    );
    client
        .call("hr__pay", json!({"card": handle, "note": "x"}))
        .refused("handle-refused");
    client
        .call("hr__pay", json!({"note": handle}))
        .refused("handle-refused");
    client
        .call("hr__pay", json!({"note": format!("to {handle}")}))
        .refused("handle-refused");
    let guess = format!("bailiwick-handle-{}", "0".repeat(32));
    client.call("hr__pay", json!({"card": guess})).refused("handle-refused");
    let asked = world.seen();
    assert!(
        asked.iter().all(|seen| !format!("{seen:?}").contains("411122223")),
        "{asked:#?}"
    );
    let name = |seen: &&Seen| matches!(seen, Seen::Asked(act, arguments) if act == "call hr/pay" && arguments.contains(&handle));
    assert!(asked.iter().filter(name).count() >= 3, "what is judged is the handle");
}

#[test]
fn p4_an_obligation_that_has_no_place_here_is_a_refusal() {
    let world = bank().start(|_| Say::Under(vec![Obligation::Tool(ToolDuty::Tokens { most: 1 })]));
    world.client().call("bank__pay", json!({})).refused("fault");
    world.wait(|seen| matches!(seen, Seen::Settled(false, _)));
}

#[test]
fn a_server_s_own_error_gives_the_budget_back_and_a_failed_result_too() {
    let script: crate::world::Script = Arc::new(|mut lines| {
        let call = lines.next_call(&pay()).unwrap();
        lines.fail(&call, "no\u{1b}[2Kpe");
        let call = lines.next_call(&pay()).unwrap();
        let mut result = text("not enough");
        result["isError"] = json!(true);
        lines.answer(&call, result);
        lines.next();
    });
    let world = Plan::new()
        .server("bank", &["call bank/*"], &pay(), script)
        .start(|_| Say::Allow);
    let mut client = world.client();
    let failed = client.call("bank__pay", json!({}));
    assert!(
        failed.is_error && failed.text == "the tool failed: no\\u{1b}[2Kpe",
        "{failed:?}"
    );
    assert!(client.call("bank__pay", json!({})).is_error);
    let settled = || {
        world
            .seen()
            .into_iter()
            .filter(|seen| matches!(seen, Seen::Settled(false, _)))
            .count()
    };
    world.wait(|_| settled() == 2);
}

#[test]
fn progress_and_log_messages_come_through_under_their_own_names() {
    let script: crate::world::Script = Arc::new(|mut lines| {
        let call = lines.next_call(&pay()).unwrap();
        let token = call["params"]["_meta"]["progressToken"].clone();
        for (token, step) in [(token.clone(), 1), (json!("forged"), 2), (token, 3)] {
            let params = json!({"progressToken": token, "progress": step, "total": 3});
            lines.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        }
        let params = json!({"level": "warning", "logger": "x", "data": "hm"});
        lines.say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}));
        std::thread::sleep(Duration::from_millis(100));
        lines.answer(&call, text("ok"));
        lines.next();
    });
    let world = Plan::new()
        .server("bank", &["call bank/*"], &pay(), script)
        .start(|_| Say::Allow);
    let mut client = world.client();
    let params = json!({"name": "bank__pay", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let answer = client.request("tools/call", params);
    assert_eq!(called(&answer).done(), "ok");
    let steps: Vec<&Value> = client
        .heard
        .iter()
        .filter(|m| m["method"] == "notifications/progress")
        .collect();
    assert_eq!(steps.len(), 2, "{:#?}", client.heard);
    assert!(steps.iter().all(|step| step["params"]["progressToken"] == "mine"));
    assert_eq!(client.hear("notifications/message")["params"]["logger"], "bank/x");
}

#[test]
fn a_client_that_takes_back_many_calls_is_still_heard() {
    let world = bank().start(|request| {
        if request.args().unwrap().is_empty() {
            Say::Silence
        } else {
            Say::Allow
        }
    });
    let mut client = world.client();
    for _ in 0..1500 {
        let number = client.ask("tools/call", json!({"name": "bank__pay", "arguments": {}}));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}));
    }
    client.call("bank__pay", json!({"to": "Ann"})).done();
}

#[test]
fn c038_a_refusal_names_the_arguments_that_are_at_fault() {
    let world = bank().start(|_| Say::DenyWith(Code::ArgumentsRefused, vec!["amount".into()]));
    let refused = world.client().call("bank__pay", json!({"amount": 201}));
    assert!(
        refused.refused("arguments-refused").ends_with("see `amount`"),
        "{refused:?}"
    );
}

#[test]
fn p6_a_handle_takes_its_tags_along_and_the_server_s_own_words_stay_here() {
    let tools = json!([
        tool("look", json!({"fail": {"type": "boolean"}})),
        tool("pay", json!({"card": {}, "note": {}})),
    ]);
    let listed = tools.clone();
    let script: crate::world::Script = Arc::new(move |mut lines| {
        while let Some(call) = lines.next_call(&listed) {
            if call["params"]["name"] == "pay" {
                lines.answer(&call, text("paid"));
            } else if call["params"]["arguments"]["fail"] == json!(true) {
                lines.fail(&call, "no card 411122223");
            } else {
                lines.answer(&call, json!({"content": [], "structuredContent": {"card": 411122223}}));
            }
        }
    });
    let pii = bailiwick_model::Label {
        confidential: bailiwick_model::Tag::parse("pii").into_iter().collect(),
        ..bailiwick_model::Label::default()
    };
    let (seen, label) = (Arc::new(std::sync::Mutex::new(Vec::new())), pii.clone());
    let labels = Arc::clone(&seen);
    let world = Plan::new()
        .server("hr", &["call hr/*"], &tools, script)
        .start(move |request| {
            let paths = vec!["/card".to_owned()];
            if request.to_string() == "call hr/look" {
                return Say::Under(vec![
                    Obligation::Tool(ToolDuty::Present { paths }),
                    Obligation::Tool(ToolDuty::Label { label: label.clone() }),
                ]);
            }
            labels.lock().unwrap().push(request.label.clone());
            Say::Under(vec![Obligation::Tool(ToolDuty::Reveal { paths })])
        });
    let mut client = world.client();
    let looked = client.call("hr__look", json!({}));
    let handle = looked.whole["structuredContent"]["card"]["handle"].as_str().unwrap();
    assert_eq!(client.call("hr__pay", json!({"card": handle})).done(), "paid");
    assert_eq!(client.call("hr__pay", json!({"card": "of my own"})).done(), "paid");
    let empty = bailiwick_model::Label::default();
    assert_eq!(*seen.lock().unwrap(), [pii, empty]);
    let failed = client.call("hr__look", json!({"fail": true})).whole.to_string();
    assert!(
        failed.contains("the tool failed") && !failed.contains("411122223"),
        "{failed}"
    );
}
