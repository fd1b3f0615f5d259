//! The memory of fifty servers of tools: what all of ours needs for them, beside what they need themselves.
//!
//! Counted is the proportional share of each process (`Pss`, proc_pid_smaps(5)): pages that several hold are divided among them.
//! The servers are programs of Python of twenty lines, each called once before it is looked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, tool_server};
use serde_json::{Value, json};

use crate::measure::Options;

/// How many servers.
const SERVERS: usize = 50;

/// How long they may take to have answered.
const PATIENCE: Duration = Duration::from_secs(300);

/// A client that calls each server once, says so by a file, and waits.
const CLIENT: &str = r#"
import json, subprocess, sys, time
mcp = subprocess.Popen(["bailiwick", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
number = 0
def ask(method, params):
    global number
    number += 1
    mcp.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    mcp.stdin.flush()
    while True:
        m = json.loads(mcp.stdout.readline())
        if m.get("id") == number and "method" not in m: return m
ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})
said = sum("said" in json.dumps(ask("tools/call", {"name": f"s{n}__say", "arguments": {}})) for n in range(int(sys.argv[1])))
open("ready", "w").write(str(said))
time.sleep(600)
"#;

/// What processes hold, in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    /// Ours: daemon, gates, launchers, supervisors.
    ours: u64,
    /// How many those are.
    processes: u64,
    /// The servers.
    servers: u64,
}

/// Measures; false when something could not be.
pub fn measure(options: &Options, json: &mut Vec<Value>) -> bool {
    const ITEM: &str = "tools: memory of 50 servers";
    if !options.wants(ITEM) {
        return true;
    }
    let found = held(0).and_then(|none| Ok((none, held(SERVERS)?)));
    let (none, all) = match found {
        Ok(found) => found,
        Err(why) => {
            eprintln!("bench: {ITEM}: {why}");
            return false;
        }
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let more = all.ours.saturating_sub(none.ours);
    println!(
        "{ITEM}\n  ours {:.1} MiB in {} processes; without servers {:.1} MiB in {}: {:.2} MiB a server; the servers themselves {:.1} MiB",
        mib(all.ours),
        all.processes,
        mib(none.ours),
        none.processes,
        mib(more) / SERVERS as f64,
        mib(all.servers),
    );
    json.push(json!({
        "item": ITEM, "ours_mib": mib(all.ours), "without_mib": mib(none.ours), "a_server_mib": mib(more) / SERVERS as f64,
        "servers_mib": mib(all.servers),
    }));
    true
}

/// What is held with so many servers, each of which has answered once.
fn held(servers: usize) -> Result<Held, String> {
    let kit = Bailiwick::new();
    kit.write_home("servers/server.py", &tool_server("say", "", "\"said\""));
    kit.write("client.py", CLIENT);
    let mut rules = "extends = [\"coding\"]\nallow = [\"call *\"]\n".to_owned();
    for number in 0..servers {
        let _ = write!(
            rules,
            "[[server]]\nname = \"s{number}\"\nrun = [\"python3\", \"{}\"]\nread = [\"~/servers\"]\n",
            kit.home().join("servers/server.py").display()
        );
    }
    kit.write("bailiwick.toml", &rules);
    kit.run(&["trust"]).ok();
    if servers > 0 {
        kit.run(&["tools", "pin", "--yes"]).ok();
    }
    let script = if servers > 0 {
        "exec python3 client.py \"$0\""
    } else {
        "touch ready; sleep 600"
    };
    let count = servers.to_string();
    let mut command = kit.command(&["run", "-q", "--", "sh", "-c", script, &count]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut task = command.spawn().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let ready = kit.project().join("ready");
    let answered = loop {
        match std::fs::read_to_string(&ready) {
            Ok(said) if servers == 0 || !said.is_empty() => break said,
            _ if begun.elapsed() > PATIENCE => break "none".into(),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let daemon = serde_json::from_str::<Value>(&kit.run(&["status", "--json"]).ok().stdout);
    let daemon = daemon.ok().and_then(|status| status.pointer("/daemon/pid")?.as_u64());
    let found = daemon.map(below);
    let _ = kit.run(&["daemon", "stop"]);
    let _ = task.wait();
    if servers > 0 && answered != count {
        return Err(format!("{answered} of {count} servers answered"));
    }
    found.ok_or_else(|| "the daemon's number is not known".into())
}

/// What a process and all below it hold.
fn below(top: u64) -> Held {
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()) {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name, in brackets, may hold anything.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(process);
        }
    }
    let program = std::fs::read_link(format!("/proc/{top}/exe")).unwrap_or_default();
    let (mut all, mut next) = (BTreeSet::from([top]), vec![top]);
    while let Some(process) = next.pop() {
        for child in children.get(&process).into_iter().flatten() {
            if all.insert(*child) {
                next.push(*child);
            }
        }
    }
    let mut held = Held::default();
    for process in all {
        let bytes = share(Path::new(&format!("/proc/{process}")));
        if std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| exe == program) {
            held.ours += bytes;
            held.processes += 1;
        } else {
            held.servers += bytes;
        }
    }
    held
}

/// The proportional share of a process, in bytes.
fn share(process: &Path) -> u64 {
    let text = std::fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
