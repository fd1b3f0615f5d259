//! What the mediator is told of an argument in which the agent gave a handle, and what the agent is told of it.

use std::sync::Arc;

use bailiwick_model::{AnswerPart, Argument, Code, Obligation, Request, ToolDuty, ToolPattern};
use bailiwick_tools::Choosing;
use serde_json::{Value, json};

use crate::world::{Client, Plan, Say, Seen, World, text, tool};

fn duty(of: fn(Vec<String>) -> ToolDuty, place: &str) -> Obligation {
    Obligation::Tool(of(vec![place.into()]))
}

/// A server that gives flights, and books them; the mediator allows what costs at most 320.
fn air() -> World {
    let tools = json!([
        tool("search", json!({"many": {"type": "integer"}})),
        tool("deals", json!({})),
        tool(
            "book",
            json!({"flight": {"type": "object"}, "note": {"type": "string"}, "back": {"type": "object"}})
        ),
    ]);
    let listed = tools.clone();
    let script: crate::world::Script = Arc::new(move |mut lines| {
        while let Some(call) = lines.next_call(&listed) {
            let params = &call["params"];
            if params["name"] == "book" {
                let said = format!("booked {}", params["arguments"]["flight"]["id"]);
                lines.answer(&call, text(&said));
                continue;
            }
            let flight = |id: u64, price: Value| json!({"id": id, "price": price, "fee": {"amount": 1}, "secret": "4111222233334444"});
            let flights: Vec<Value> = match params["arguments"]["many"].as_u64() {
                Some(1000) => vec![flight(1, json!(300)), flight(2, serde_json::from_str("1e300").unwrap())],
                Some(many) => (0..many).map(|id| flight(id, json!(300))).collect(),
                None => vec![flight(1, json!(310.5)), flight(2, json!(300)), flight(3, json!(340))],
            };
            let value = json!({"flights": flights, "best": {"id": 9, "price": 1}});
            lines.answer(&call, json!({"content": [], "structuredContent": value}));
        }
    });
    let choosing = |place: &str| Choosing {
        tools: ToolPattern::parse("air/book").unwrap(),
        argument: "flight".into(),
        from: AnswerPart::parse(place).unwrap(),
        looks_at: vec![
            vec!["price".into()],
            vec!["fee".into(), "amount".into()],
            vec!["gone".into()],
        ],
    };
    Plan::new()
        .server("air", &["call air/*"], &tools, script)
        .config(|config| config.choosing = vec![choosing("air/search#/flights/*")])
        .start(|request: &Request| {
            if request.to_string() != "call air/book" {
                return Say::Under(vec![
                    duty(|paths| ToolDuty::Present { paths }, "/flights/*"),
                    duty(|paths| ToolDuty::Present { paths }, "/best"),
                ]);
            }
            let price = match request.args().unwrap().get("flight") {
                Some(Argument::Fields(flight)) => flight.get("price").map(ToString::to_string),
                _ => None,
            };
            match price.as_deref() {
                Some("310.5" | "300") => Say::Under(vec![duty(|paths| ToolDuty::Reveal { paths }, "/flight")]),
                _ => Say::DenyWith(Code::ArgumentsRefused, vec!["flight".into()]),
            }
        })
}

fn handles(client: &mut Client, name: &str, arguments: Value) -> Vec<String> {
    let found = client.call(name, arguments);
    let all = found.whole.to_string();
    assert!(!all.contains("4111222233334444") && !all.contains("price"), "{all}");
    let flights = found.whole["structuredContent"]["flights"].as_array().unwrap().clone();
    let best = found.whole["structuredContent"]["best"].clone();
    let name = |value: &Value| value["handle"].as_str().unwrap().to_owned();
    flights.iter().chain([&best]).map(name).collect()
}

/// What was asked last.
fn asked(world: &World) -> String {
    let asked = world.seen().into_iter().rev().find_map(|seen| match seen {
        Seen::Asked(_, arguments) => Some(arguments),
        _ => None,
    });
    asked.unwrap()
}

#[test]
fn p3_what_stands_behind_a_handle_is_judged_with_what_it_was_chosen_from() {
    let world = air();
    let mut client = world.client();
    let found = handles(&mut client, "air__search", json!({}));
    assert_eq!(client.call("air__book", json!({"flight": found[0]})).done(), "booked 1");
    let told = asked(&world);
    let want = "args={\"flight\": {\"fee\": {\"amount\": 1}, \"id\": 1, \"price\": 310.5, \"secret\": \"4111222233334444\"}} \
        chosen={\"flight\": {\"air/search#/flights/*\": [{\"fee\": {\"amount\": 1}, \"price\": 310.5}, \
        {\"fee\": {\"amount\": 1}, \"price\": 300}, {\"fee\": {\"amount\": 1}, \"price\": 340}]}} ";
    assert!(told.starts_with(want), "{told}");
    // The agent is told the name of what it gave, and nothing that stands behind it.
    let refused = client.call("air__book", json!({"flight": found[2]}));
    let said = refused.refused("arguments-refused");
    assert!(said.ends_with(": see `flight`"), "{said}");
    assert_eq!(client.call("air__book", json!({"flight": found[1]})).done(), "booked 2");
}

#[test]
fn p4_another_handle_stays_a_text() {
    let world = air();
    let mut client = world.client();
    let found = handles(&mut client, "air__search", json!({}));
    let deals = handles(&mut client, "air__deals", json!({}));
    let guess = format!("bailiwick-handle-{}", "0".repeat(32));
    for (name, what) in [
        (&guess, "made up"),
        (&found[3], "another place"),
        (&deals[1], "another tool"),
    ] {
        client
            .call("air__book", json!({"flight": name}))
            .refused("arguments-refused");
        assert!(
            asked(&world).starts_with(&format!("args={{\"flight\": \"{name}\"}} definition=")),
            "{what}"
        );
    }
    // In another argument it is not opened, and not judged.
    client
        .call("air__book", json!({"flight": found[0], "back": found[1]}))
        .refused("handle-refused");
    assert!(asked(&world).contains(&format!("\"back\": \"{}\"", found[1])));
    // What is written out was chosen from nothing.
    client
        .call("air__book", json!({"flight": {"id": 2, "price": 300}}))
        .done();
    assert!(!asked(&world).contains("chosen="));
    let another = air();
    another
        .client()
        .call("air__book", json!({"flight": found[0]}))
        .refused("arguments-refused");
}

#[test]
fn p4_what_is_too_much_or_cannot_be_held_is_not_asked_about() {
    let world = air();
    let mut client = world.client();
    let many = handles(&mut client, "air__search", json!({"many": 257}));
    let said = client.call("air__book", json!({"flight": many[0]}));
    assert!(
        said.refused("limit-reached")
            .contains("chosen from 257 entries: at most 256")
    );
    let most = handles(&mut client, "air__search", json!({"many": 256}));
    client.call("air__book", json!({"flight": most[0]})).done();
    let odd = handles(&mut client, "air__search", json!({"many": 1000}));
    for name in &odd[..2] {
        let said = client.call("air__book", json!({"flight": name}));
        let said = said.refused("handle-refused");
        assert!(
            said.ends_with(": `flight`: what stands behind the handle cannot be judged"),
            "{said}"
        );
    }
}
