//! `bailiwick last`: what was refused last. Inside a fence it asks the network gate, which tells codes and ids; outside
//! it reads the log, and says why.
//!
//! Promises: P8 (inside nothing can be asked for, answered or granted). Trust: inside, this program runs as part of the
//! agent, with the agent's authority.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use bailiwick_model::{AbsPath, Code, Event, TaskId};
use bailiwick_proxy::OWN_HOST;
use serde_json::{Value, json};

use crate::advice;
use crate::cli::LastArgs;
use crate::daemon::plan::PROXY_PORT;
use crate::failure::{Done, Failure};
use crate::places::Places;
use crate::protocol::RefusedAct;
use bailiwick_model::visible;

/// The variable that tells a program that it runs inside.
const INSIDE: &str = "BAILIWICK";

/// Longest answer that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// True inside a fence.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// What every command but this one says inside.
pub fn only_outside() -> Failure {
    Failure::usage("this is the inside of a bailiwick: the commands are for the person outside")
        .hint("`bailiwick last` says what was refused last, so that you can tell the person who started you")
}

/// Runs the command.
pub fn run(args: &LastArgs) -> Done {
    if is_inside() { inside(args) } else { outside(args) }
}

fn inside(args: &LastArgs) -> Done {
    let answer = asked().map_err(|e| Failure::fault(format!("the network gate does not say what was refused: {e}")))?;
    let refused = answer
        .get("refused")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let refused: Vec<Value> = refused.into_iter().take(args.count).collect();
    if args.json {
        tellln!("{}", json!({ "refused": refused }));
        return Ok(ExitCode::SUCCESS);
    }
    let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for one in &refused {
        let word = text(one, "word");
        let word = if word.is_empty() {
            word
        } else {
            format!(": {}", visible(&word))
        };
        tellln!("{} {}{word}", text(one, "code"), text(one, "id"));
    }
    match refused.first() {
        Some(last) if text(last, "code") == Code::TellMore.as_str() => talkln!(
            "hint: a person wants to know more: answer with `bailiwick tell {} WORDS`, then try again",
            text(last, "id")
        ),
        None => talkln!(
            "nothing was refused that is on record; of files the kernel says it: one that is not there was not granted, one that nobody \
             may read (mode 000) is hidden by a rule, one on a read-only file system may be read alone"
        ),
        Some(last) => talkln!(
            "hint: ask the person who started you: outside, `bailiwick explain {}` says why, and what would change it",
            text(last, "id")
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the gate listens: the fence says so in the variable that programs go by.
fn gate_port() -> u16 {
    let proxy = std::env::var("http_proxy").unwrap_or_default();
    let port = proxy.trim_end_matches('/').rsplit(':').next();
    port.and_then(|port| port.parse().ok()).unwrap_or(PROXY_PORT)
}

/// Asks the gate.
fn asked() -> std::io::Result<Value> {
    let body = to_gate("GET /last", "")?;
    serde_json::from_str(&body).map_err(|_| unread())
}

/// Says something to the gate from inside: the body of its answer.
pub fn to_gate(what: &str, body: &str) -> std::io::Result<String> {
    let (method, path) = what.split_once(' ').ok_or_else(unread)?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, gate_port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = body.len();
    let request = format!(
        "{method} http://{OWN_HOST}{path} HTTP/1.1\r\nHost: {OWN_HOST}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(unread)?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(std::io::Error::other(visible(body.trim())));
    }
    Ok(body.to_owned())
}

fn unread() -> std::io::Error {
    std::io::Error::other("its answer cannot be read")
}

fn outside(args: &LastArgs) -> Done {
    let places = Places::find()?;
    super::log::catch_up(&places);
    let mut kept: VecDeque<(TaskId, RefusedAct)> = VecDeque::new();
    let mut roots = std::collections::BTreeMap::new();
    // Of the task that began last: what it looked for in the home.
    let mut absent: (TaskId, Vec<String>) = (TaskId([0; 8]), Vec::new());
    for entry in super::log::read(&places.log())? {
        let (_, record) = entry?;
        let Some(task) = record.task else { continue };
        if let Event::TaskStarted { context, .. } = &record.event {
            roots.insert(task, AbsPath::new(&context.0).unwrap_or(AbsPath::root()));
            absent = (task, Vec::new());
        }
        // Before its program began, it was asked what the task may have whole: that is no refusal to the agent.
        let Some(root) = roots.get(&task) else { continue };
        if let Event::Refused {
            code: Code::NotGranted,
            what,
            ..
        } = &record.event
            && task == absent.0
        {
            absent.1.push(what.clone());
        }
        if let Some(refused) = advice::refused(&record.event, root) {
            kept.push_front((task, refused));
            kept.truncate(args.count);
        }
    }
    if args.json {
        let refused: Vec<_> = kept
            .iter()
            .map(|(task, refused)| json!({ "task": task, "refused": refused }))
            .collect();
        tellln!(
            "{}",
            json!({ "refused": refused, "absent": { "task": absent.0, "acts": absent.1 } })
        );
        return Ok(ExitCode::SUCCESS);
    }
    for (task, refused) in &kept {
        crate::talk::tell(&refused.told);
        tellln!("  {} in task {task}", refused.id);
    }
    if kept.is_empty() {
        talkln!("bailiwick: nothing on record was refused");
    }
    let (task, acts) = &absent;
    if !acts.is_empty() {
        tellln!("{}", looked_for(*task, acts, &places.home));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which places of the home a task looked for that are there and not granted, and the line that grants them.
fn looked_for(task: TaskId, acts: &[String], home: &AbsPath) -> String {
    let own = acts.iter().filter_map(|act| act.strip_prefix("read "));
    let own = own.map(|path| match path.strip_prefix(home.as_str()) {
        Some(rest) => visible(&format!("~{rest}")),
        None => visible(path),
    });
    let own: Vec<String> = own.collect();
    let listed = own
        .iter()
        .map(|path| format!("\"{path}\""))
        .collect::<Vec<_>>()
        .join(", ");
    let places = if own.len() == 1 { "place" } else { "places" };
    format!(
        "absent in task {task}: {} {places} of your home that it looked for: {}\n  to grant what it needs of them: `read = [{listed}]` under [files]",
        own.len(),
        own.join(", ")
    )
}
