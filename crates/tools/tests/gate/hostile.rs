//! Servers that misbehave.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Lines, Plan, Say, Script, Seen, World, called, echo, text, tool};

fn go() -> Value {
    json!([tool("go", json!({}))])
}

/// A world with one server that does this with its first call, and with a second that works.
fn world(act: impl Fn(&mut Lines, Value) + Send + Sync + 'static) -> World {
    let script: Script = Arc::new(move |mut lines| {
        if let Some(call) = lines.next_call(&go()) {
            act(&mut lines, call);
        }
    });
    Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .config(|config| {
            config.limits.call_seconds = 1;
            config.limits.answer_bytes = 1024 * 1024;
        })
        .server("good", &["call good/*"], &go(), echo(go()))
        .start(|_| Say::Allow)
}

/// What comes of a call to it; the other server works all the same.
fn outcome(world: &World) -> crate::world::Called {
    let mut client = world.client();
    let number = client.ask("tools/call", json!({"name": "evil__go", "arguments": {}}));
    client.call("good__go", json!({})).done();
    called(&client.answer_to(number))
}

fn settled(world: &World) -> Vec<(bool, String)> {
    let settled = world.seen().into_iter().filter_map(|seen| match seen {
        Seen::Settled(done, note) if note != "answered" => Some((done, note)),
        _ => None,
    });
    settled.collect()
}

#[test]
fn p4_a_server_that_never_answers_is_given_up_in_time_and_counts_as_done() {
    let world = world(|lines, _| while lines.next().is_some() {});
    let begun = Instant::now();
    outcome(&world).refused("limit-reached");
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(settled(&world)[0].0);
}

#[test]
fn p4_a_server_that_crashes_in_a_call_is_said_so_and_started_again() {
    let starts = Arc::new(AtomicUsize::new(0));
    let script: Script = Arc::new(move |mut lines| {
        let first = starts.fetch_add(1, Ordering::SeqCst) == 0;
        while let Some(call) = lines.next_call(&go()) {
            if first {
                return;
            }
            lines.answer(&call, text("ok"));
        }
    });
    let world = Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .start(|_| Say::Allow);
    let mut client = world.client();
    client.call("evil__go", json!({})).refused("server-failed");
    assert!(settled(&world)[0].0, "it may have been done");
    world.wait(|seen| *seen == Seen::Ended("evil".into()));
    assert_eq!(client.call("evil__go", json!({})).done(), "ok");
}

#[test]
fn p4_a_server_that_crashes_again_and_again_is_left_alone() {
    let script: Script = Arc::new(|mut lines| {
        lines.next();
    });
    let world = Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .start(|_| Say::Allow);
    let mut client = world.client();
    for _ in 0..8 {
        client.call("evil__go", json!({})).refused("server-failed");
    }
    let starts = world
        .seen()
        .into_iter()
        .filter(|seen| matches!(seen, Seen::Started(_)))
        .count();
    assert_eq!(starts, 5);
    assert!(settled(&world).iter().all(|(done, _)| !done), "nothing was done");
}

#[test]
fn p4_garbage_is_passed_over_and_much_of_it_ends_the_server() {
    let world = world(|lines, call| {
        for _ in 0..10 {
            let _ = lines
                .writer
                .write_all(b"Listening on port 3000...\n{\"x\":1}\n\n\xff\xfe\n");
            lines.say(
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}),
            );
        }
        lines.answer(&call, text("ok"));
        while lines.next().is_some() {}
    });
    assert_eq!(outcome(&world).done(), "ok");
    let world = self::world(|lines, _| {
        for _ in 0..20 {
            let _ = lines.writer.write_all(b"garbage\n");
        }
        while lines.next().is_some() {}
    });
    let refused = outcome(&world);
    assert!(
        refused.refused("server-failed").contains("16 lines in a row"),
        "{refused:?}"
    );
}

#[test]
fn p4_a_giant_message_and_an_endless_line_end_the_server_and_hold_no_memory() {
    let world = world(|lines, call| {
        lines.answer(&call, text(&"x".repeat(2 * 1024 * 1024)));
        while lines.next().is_some() {}
    });
    let refused = outcome(&world);
    assert!(
        refused.refused("server-failed").contains("more than 1048576 bytes"),
        "{refused:?}"
    );
    let world = self::world(|lines, _| while lines.writer.write_all(&[b'x'; 65536]).is_ok() {});
    outcome(&world).refused("server-failed");
}

#[test]
fn p4_a_large_answer_within_the_limit_comes_whole() {
    let large = "x".repeat(900 * 1024);
    let said = large.clone();
    let world = world(move |lines, call| {
        let image = json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"});
        lines.answer(&call, json!({"content": [{"type": "text", "text": said}, image]}));
        while lines.next().is_some() {}
    });
    let done = outcome(&world);
    assert_eq!(done.done().len(), large.len());
    assert_eq!(done.whole["content"][1]["data"], "aGVsbG8=");
}

#[test]
fn p5_answers_in_another_order_reach_who_asked_and_answers_to_nothing_reach_nobody() {
    let script: Script = Arc::new(|mut lines| {
        let any = json!([{"name": "go", "inputSchema": {"type": "object"}}]);
        let calls: Vec<Value> = (0..3).map(|_| lines.next_call(&any).unwrap()).collect();
        for id in [json!(9999), json!("0"), json!(-1), Value::Null] {
            lines.say(&json!({"jsonrpc": "2.0", "id": id, "result": text("forged")}));
        }
        for call in calls.iter().rev() {
            let n = call["params"]["arguments"]["n"].clone();
            lines.answer(call, text(&n.to_string()));
            lines.answer(call, text("again"));
        }
        lines.next();
    });
    let any = json!([{"name": "go", "inputSchema": {"type": "object"}}]);
    let world = Plan::new()
        .server("evil", &["call evil/*"], &any, script)
        .start(|_| Say::Allow);
    let mut client = world.client();
    let numbers: Vec<u64> = (0..3)
        .map(|n| client.ask("tools/call", json!({"name": "evil__go", "arguments": {"n": n}})))
        .collect();
    for (n, number) in numbers.into_iter().enumerate() {
        assert_eq!(called(&client.answer_to(number)).done(), n.to_string());
    }
}

#[test]
fn p4_a_flood_is_slowed_down_and_the_others_work() {
    let said = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&said);
    let world = world(move |lines, _| {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x".repeat(2000)}});
        let line = format!("{message}\n");
        while lines.writer.write_all(line.as_bytes()).is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    outcome(&world).refused("limit-reached");
    let said = said.load(Ordering::SeqCst);
    assert!(said < 2000, "{said} messages were taken in a second and a half");
    world.client().call("good__go", json!({})).done();
}

#[test]
fn p4_a_flood_of_changes_is_looked_at_one_by_one() {
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let script: Script = Arc::new(move |mut lines| {
        let mut call = None;
        while let Some(message) = lines.next() {
            if message["method"] == "tools/list" {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if !lines.usual(&message, &go()) {
                for _ in 0..150 {
                    lines.say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                }
                call = Some(message);
            } else if let Some(call) = call.take() {
                std::thread::sleep(Duration::from_millis(200));
                lines.answer(&call, text("ok"));
            }
        }
    });
    let world = Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .start(|_| Say::Allow);
    world.client().call("evil__go", json!({})).done();
    let lists = lists.load(Ordering::SeqCst);
    assert!((2..=20).contains(&lists), "{lists}");
}

#[test]
fn p4_a_server_that_does_not_greet_is_given_up_in_time() {
    let script: Script = Arc::new(|mut lines| while lines.next().is_some() {});
    let world = Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .config(|config| config.limits.start_seconds = 1)
        .start(|_| Say::Allow);
    let begun = Instant::now();
    let refused = world.client().call("evil__go", json!({}));
    assert!(
        refused.refused("server-failed").contains("did not greet"),
        "{refused:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(4));
    world.wait(|seen| *seen == Seen::Ended("evil".into()));
}

#[test]
fn p4_a_server_that_lists_without_end_is_given_up() {
    let script: Script = Arc::new(|mut lines| {
        let mut page = 0;
        while let Some(message) = lines.next() {
            if message["method"] == "tools/list" {
                page += 1;
                let tools = json!([tool(&format!("t{page}"), json!({}))]);
                lines.answer(&message, json!({"tools": tools, "nextCursor": format!("{page}")}));
            } else {
                lines.usual(&message, &json!([]));
            }
        }
    });
    let world = Plan::new()
        .server("evil", &["call evil/*"], &go(), script)
        .start(|_| Say::Allow);
    let refused = world.client().call("evil__go", json!({}));
    assert!(refused.refused("server-failed").contains("256 pages"), "{refused:?}");
}

#[test]
fn p4_an_answer_of_another_kind_is_no_result() {
    let world = world(|lines, call| {
        lines.answer(&call, json!({"tools": []}));
        while lines.next().is_some() {}
    });
    outcome(&world).refused("server-failed");
    let world = self::world(|lines, call| {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{},"id":77,"result":{{"content":[]}}}}"#,
            call["id"]
        );
        let _ = lines.writer.write_all(format!("{line}\n").as_bytes());
        while lines.next().is_some() {}
    });
    outcome(&world).refused("limit-reached");
}

#[test]
fn p4_a_client_that_does_not_read_is_not_heard_and_the_others_are() {
    let world = world(|lines, _| while lines.next().is_some() {});
    let mut deaf = world.client();
    deaf.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let line = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}})
    );
    let mut taken = 0;
    while taken < 400_000 && deaf.stream.write_all(line.as_bytes()).is_ok() {
        taken += 1;
    }
    assert!(taken < 400_000, "{taken} requests were taken and none of the answers");
    world.client().call("good__go", json!({})).done();
}
