//! The gate over HTTP, and a remote server behind it: the gate's own HTTP is the far end of the relay.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bailiwick_model::Code;
use bailiwick_tools::{Ends, relay_remote};
use serde_json::{Value, json};

use crate::world::{Plan, Say, Seen, TOKEN, World, called, echo, tool};

fn pay() -> Value {
    json!([tool("pay", json!({"to": {"type": "string"}}))])
}

fn bank() -> World {
    Plan::new()
        .server("bank", &["call bank/*"], &pay(), echo(pay()))
        .start(|_| Say::Allow)
}

/// One request with a connection of its own: the status, the heads, the body.
fn http(world: &World, method: &str, heads: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(world.address).unwrap();
    stream.set_read_timeout(Some(crate::world::PATIENCE)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{heads}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

/// The message in a body that may be events.
fn message(body: &str) -> Value {
    let found = body.lines().find_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        serde_json::from_str::<Value>(line)
            .ok()
            .filter(|value| value.get("jsonrpc").is_some())
    });
    found.unwrap_or_else(|| panic!("no message in {body}"))
}

fn initialize(version: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": version,
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
    .to_string()
}

#[test]
fn p4_http_without_the_token_or_from_a_page_is_not_served() {
    let world = bank();
    for (heads, status) in [
        (String::new(), 401),
        (format!("Authorization: Bearer {}\r\n", &TOKEN[1..]), 401),
        (format!("Authorization: Basic {TOKEN}\r\n"), 401),
        (format!("{}{}", bearer(), bearer()), 401),
        (format!("{}Origin: http://evil.test\r\n", bearer()), 403),
    ] {
        assert_eq!(
            http(&world, "POST", &heads, &initialize("2025-11-25")).0,
            status,
            "{heads}"
        );
    }
    world.wait(|seen| matches!(seen, Seen::Refused(Code::NoRule, what) if what.contains("HTTP")));
}

#[test]
fn a_session_over_http_calls_like_any_other_and_is_read_as_strictly() {
    let world = bank();
    let (status, head, body) = http(&world, "POST", &bearer(), &initialize("2025-06-18"));
    assert_eq!(status, 200, "{body}");
    assert_eq!(message(&body)["result"]["protocolVersion"], "2025-06-18");
    let session = head
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap();
    let heads = format!(
        "{}Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-06-18\r\n",
        bearer()
    );
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(http(&world, "POST", &heads, &told).0, 202);
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "bank__pay", "arguments": {"to": "Ann"}}});
    let (status, _, body) = http(&world, "POST", &heads, &call.to_string());
    assert_eq!((status, called(&message(&body)).done()), (200, r#"pay {"to":"Ann"}"#));
    let twice = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bank__pay","arguments":{"to":"Ann","to":"Eve"}}}"#;
    let (_, _, body) = http(&world, "POST", &heads, twice);
    assert!(
        called(&message(&body))
            .refused("malformed-request")
            .contains("`to` stands twice"),
        "{body}"
    );
    assert_eq!(http(&world, "DELETE", &heads, "").0 / 100, 2);
}

#[test]
fn p4_revisions_are_answered_by_name() {
    let world = bank();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (_, _, body) = http(&world, "POST", &bearer(), &initialize(version));
        assert_eq!(message(&body)["result"]["protocolVersion"], version);
    }
    for version in ["2023-01-01", "2031-01-01", "x"] {
        let (_, _, body) = http(&world, "POST", &bearer(), &initialize(version));
        assert_eq!(
            message(&body)["result"]["protocolVersion"],
            "2025-11-25",
            "what it could speak instead"
        );
    }
    let call = |version: &str| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"name": "bank__pay", "arguments": {"to": "Ann"}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
        let heads = format!(
            "{}Mcp-Protocol-Version: {version}\r\nMcp-Method: tools/call\r\nMcp-Name: bank__pay\r\n",
            bearer()
        );
        let (_, _, body) = http(&world, "POST", &heads, &body);
        body
    };
    let body = call("2026-07-28");
    assert_eq!(
        called(&message(&body)).done(),
        r#"pay {"to":"Ann"}"#,
        "without a session"
    );
    let body = call("2031-01-01");
    assert!(body.contains("2031-01-01") && body.contains("nsupported"), "{body}");
}

#[test]
fn a_remote_server_behind_the_relay_is_a_server_like_any_other() {
    let far = bank();
    let address = far.address;
    let script: crate::world::Script = std::sync::Arc::new(move |lines| {
        // What the network gate does: it puts the token in.
        let gate = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", gate.local_addr().unwrap());
        std::thread::spawn(move || put_token_in(&gate, address));
        relay(&url, lines);
    });
    let listed = json!([{"name": "bank__pay", "description": "does pay", "inputSchema": {"type": "object",
        "properties": {"to": {"type": "string"}}, "additionalProperties": false}},
        {"name": "other", "inputSchema": {"type": "object"}}]);
    let near = Plan::new()
        .server("far", &["call far/*"], &listed, script)
        .start(|_| Say::Allow);
    let mut client = near.client();
    assert_eq!(
        client.call("far__bank__pay", json!({"to": "Ann"})).done(),
        r#"pay {"to":"Ann"}"#
    );
    client.call("far__other", json!({})).refused("tool-unknown");
    assert_eq!(far.asked(), ["call bank/pay"]);
}

#[test]
fn p4_a_remote_server_that_is_not_there_or_speaks_the_old_transport_is_said_so() {
    for answer in [
        "",
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ] {
        let script: crate::world::Script = std::sync::Arc::new(move |lines| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/mcp", listener.local_addr().unwrap());
            if answer.is_empty() {
                drop(listener);
            } else {
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        let mut stream = stream.unwrap();
                        let _ = stream.read(&mut [0; 4096]);
                        let _ = stream.write_all(answer.as_bytes());
                    }
                });
            }
            relay(&url, lines);
        });
        let near = Plan::new()
            .server("far", &["call far/*"], &pay(), script)
            .start(|_| Say::Allow);
        let refused = near.client().call("far__pay", json!({}));
        let said = refused.refused("server-failed");
        assert!(said.contains("cannot be reached"), "{said}");
        assert_eq!(said.contains("2024-11-05"), !answer.is_empty(), "{said}");
    }
}

fn relay(url: &str, lines: crate::world::Lines) {
    let ends = Ends {
        from: lines.writer.try_clone().unwrap().into(),
        to: lines.writer.into(),
    };
    let _ = relay_remote(url, ends);
}

/// Passes connections on, with the token in each request.
fn put_token_in(gate: &std::net::TcpListener, address: std::net::SocketAddr) {
    for near in gate.incoming() {
        let (near, far) = (near.unwrap(), TcpStream::connect(address).unwrap());
        let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0u8; 65536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
                let said = said.replace(" HTTP/1.1\r\n", &format!(" HTTP/1.1\r\n{}", bearer()));
                let _ = to.write_all(said.as_bytes());
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut &far, &mut &near);
            let _ = near.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// A request of the newest revision, which has no session.
fn modern(world: &World, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}}});
    let name = params["name"].as_str().unwrap().to_owned();
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    let heads = format!(
        "{}Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n",
        bearer()
    );
    let (_, _, body) = http(world, "POST", &heads, &body);
    message(&body)
}

#[test]
fn what_a_server_asks_for_is_needed_of_a_client_of_the_newest_revision() {
    let script: crate::world::Script = std::sync::Arc::new(|mut lines| {
        while let Some(call) = lines.next_call(&pay()) {
            let schema = json!({"type": "object", "properties": {"p": {"type": "string"}}});
            let params = json!({"message": "which account?", "requestedSchema": schema});
            lines.say(&json!({"jsonrpc": "2.0", "id": "w", "method": "elicitation/create", "params": params}));
            let given = lines.next().unwrap();
            lines.answer(&call, crate::world::text(&given["result"]["content"]["p"].to_string()));
        }
    });
    let world = Plan::new()
        .server("bank", &["call bank/*", "elicit bank"], &pay(), script)
        .start(|_| Say::Allow);
    let call = json!({"name": "bank__pay", "arguments": {"to": "Ann"}});
    let told = modern(&world, call.clone());
    assert_eq!(told["result"]["resultType"], "input_required", "{told}");
    let needed = &told["result"]["inputRequests"]["bailiwick"];
    assert_eq!(
        needed["params"]["message"],
        "The tool server `bank` asks: which account?"
    );
    let state = told["result"]["requestState"].clone();
    let mut again = call.clone();
    again["requestState"] = state;
    again["inputResponses"] = json!({"bailiwick": {"action": "accept", "content": {"p": "savings"}}});
    let mut other = again.clone();
    other["arguments"] = json!({"to": "Eve"});
    assert!(
        called(&modern(&world, other))
            .refused("arguments-malformed")
            .contains("another call")
    );
    assert_eq!(called(&modern(&world, again.clone())).done(), "\"savings\"");
    assert!(
        called(&modern(&world, again))
            .refused("arguments-malformed")
            .contains("lapsed")
    );
    assert_eq!(world.asked(), ["call bank/pay", "elicit bank"], "judged once each");
}
