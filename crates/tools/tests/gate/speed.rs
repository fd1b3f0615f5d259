//! What a call costs, and that it does not grow with the number of tools.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Client, Lines, Plan, Say, World, echo, tool};

/// How many calls are measured.
const CALLS: usize = 1000;

fn tools(count: usize) -> Value {
    let all = (0..count).map(|n| tool(&format!("t{n}"), json!({"n": {"type": "integer"}})));
    Value::from(all.collect::<Vec<_>>())
}

fn world(count: usize) -> (World, Client) {
    let all = tools(count);
    let world = Plan::new()
        .server("many", &["call many/*"], &all, echo(all.clone()))
        .start(|_| Say::Allow);
    let mut client = world.client();
    // A tool's schema is made ready when the tool is first called.
    for n in 0..count {
        client.call(&format!("many__t{n}"), json!({})).done();
    }
    (world, client)
}

fn took(mut act: impl FnMut()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn middle(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[test]
fn a_call_costs_the_same_with_ten_tools_and_with_a_thousand() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let lines = Lines {
        reader: BufReader::new(theirs.try_clone().unwrap()),
        writer: theirs,
    };
    std::thread::spawn(move || echo(tools(1))(lines));
    let (mut to, mut from) = (ours.try_clone().unwrap(), BufReader::new(ours));
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t0", "arguments": {"n": 1}}});
    let call = format!("{call}\n");
    let (_few, mut few) = world(10);
    let (_many, mut many) = world(1000);
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    // In turn, so that what else the machine does falls on each alike.
    for n in 0..CALLS {
        all[0].push(took(|| {
            to.write_all(call.as_bytes()).unwrap();
            from.read_line(&mut String::new()).unwrap();
        }));
        all[1].push(took(|| drop(few.call(&format!("many__t{}", n % 10), json!({"n": n})))));
        all[2].push(took(|| drop(many.call(&format!("many__t{n}"), json!({"n": n})))));
    }
    let [direct, few, many] = all.map(middle);
    println!("p50 without a gate {direct:?}, with 10 tools {few:?}, with 1,000 {many:?}");
    assert!(many < few * 2 + Duration::from_micros(200), "{few:?} and {many:?}");
}
