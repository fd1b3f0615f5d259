//! A call of a tool: straight at its server, through the tool gate with few and with many rules, and through another proxy.
//!
//! One client, which for ours runs inside a fence and speaks through `bailiwick mcp`. The server is Node's `server-everything`,
//! which takes little itself, so that what stands between shows. Peers, where their programs are in the `PATH`: `fastmcp`'s proxy, and
//! `supergateway`, which is a bridge between lines and HTTP and stands here at both ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::Bailiwick;
use serde_json::{Value, json};

use crate::measure::{Options, installed, median};

/// The server, below the folder that `./scripts/test` installs programs in.
const SERVER: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
/// Calls before the clock runs, and calls that count.
const WARM: usize = 50;
const CALLS: usize = 1000;
/// The proxies beside ours.
const PEER: &str = "fastmcp proxy";
const BRIDGE: &str = "supergateway, both ends";
/// Rules for other tools.
const RULES: [usize; 3] = [0, 10, 1000];

/// The client's mode: `__tool-client TOOL COMMAND…`; prints what each call took, in microseconds.
pub fn run_client(tool: &str, words: &[String]) {
    let (program, rest) = words.split_first().expect("a command");
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut to = child.stdin.take().expect("its input");
    let mut from = BufReader::new(child.stdout.take().expect("its output"));
    let mut number = 0u64;
    let mut ask = |method: &str, params: Value| -> Value {
        number += 1;
        // In one piece, as clients write: a piece for each word of JSON would be a wake-up each on its whole way.
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        );
        to.write_all(line.as_bytes()).expect("it reads");
        loop {
            let mut line = String::new();
            assert!(from.read_line(&mut line).expect("it speaks") > 0, "it has ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == number && message.get("method").is_none() {
                return message;
            }
        }
    };
    ask(
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}),
    );
    let mut took = Vec::with_capacity(CALLS);
    for place in 0..WARM + CALLS {
        let begun = Instant::now();
        let answer = ask("tools/call", json!({"name": tool, "arguments": {"message": "hello"}}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("hello"), "it answered {answer}");
        if place >= WARM {
            took.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
    }
    println!("{}", Value::from(took));
    let _ = child.kill();
    let _ = child.wait();
}

struct Way {
    name: String,
    command: Box<dyn Fn() -> Command>,
}

/// Measures; false when something could not be.
pub fn measure(options: &Options, json: &mut Vec<Value>) -> bool {
    const ITEM: &str = "tools: a call";
    if !options.wants(ITEM) {
        return true;
    }
    let base = std::env::var_os("BAILIWICK_TEST_CACHE")
        .map_or_else(|| PathBuf::from("/var/cache/bailiwick-test"), PathBuf::from);
    let server = base.join(SERVER);
    if !server.is_file() {
        eprintln!(
            "bench: {ITEM}: there is no {}: `./scripts/test` installs it",
            server.display()
        );
        return false;
    }
    let client = std::env::current_exe().expect("this program's own file");
    let kits: Vec<(usize, Bailiwick)> = RULES
        .iter()
        .map(|count| (*count, ours(&base, &server, &client, *count)))
        .collect();
    let kits = std::rc::Rc::new(kits);
    let straight = {
        let (client, server) = (client.clone(), server.clone());
        move || {
            let mut command = Command::new(&client);
            command.args(["__tool-client", "echo", "node"]).arg(&server);
            command
        }
    };
    let mut ways = vec![Way {
        name: "direct".into(),
        command: Box::new(straight),
    }];
    if let Some(python) = fastmcp().filter(|_| options.takes(PEER)) {
        let (client, server) = (client.clone(), server.clone());
        let script = std::env::temp_dir().join(format!("bench-proxy-{}.py", std::process::id()));
        let text = format!(
            "from fastmcp import FastMCP\nc = {{'mcpServers': {{'e': {{'command': 'node', 'args': ['{}']}}}}}}\n\
             try:\n    from fastmcp.server import create_proxy as make\nexcept ImportError:\n    make = FastMCP.as_proxy\n\
             make(c, name='p').run(show_banner=False)\n",
            server.display()
        );
        std::fs::write(&script, text).expect("scratch can be written");
        ways.push(Way {
            name: PEER.into(),
            command: Box::new(move || {
                let mut command = Command::new(&client);
                command.args(["__tool-client", "echo"]).arg(&python).arg(&script);
                command
            }),
        });
    } else if options.takes(PEER) {
        eprintln!("bench: {ITEM}: no `fastmcp` in the PATH, so without that column");
    }
    let bridge = options.takes(BRIDGE).then(|| Bridge::over(&server)).flatten();
    if let Some(bridge) = &bridge {
        let (client, program, url) = (client.clone(), bridge.program.clone(), bridge.url());
        ways.push(Way {
            name: BRIDGE.into(),
            command: Box::new(move || {
                let mut command = Command::new(&client);
                command.args(["__tool-client", "echo"]).arg(&program);
                command.args(["--streamableHttp", &url, "--logLevel", "none"]);
                command
            }),
        });
    } else if options.takes(BRIDGE) {
        eprintln!("bench: {ITEM}: no `supergateway` in the PATH, so without that column");
    }
    for (place, count) in RULES.iter().enumerate() {
        let (kits, client) = (std::rc::Rc::clone(&kits), client.clone());
        ways.push(Way {
            name: format!("ours, {count} other rules"),
            command: Box::new(move || {
                let client = client.display().to_string();
                let words = [
                    "run",
                    "-q",
                    "--",
                    &client,
                    "__tool-client",
                    "everything__echo",
                    "bailiwick",
                    "mcp",
                ];
                kits[place].1.command(&words)
            }),
        });
    }
    ways.retain(|way| options.takes(&way.name));
    let mut figures: BTreeMap<usize, Vec<[f64; 3]>> = BTreeMap::new();
    let mut whole = true;
    for _ in 0..options.rounds(20) {
        for (place, way) in ways.iter().enumerate() {
            match once((way.command)()) {
                Ok(seen) => figures.entry(place).or_default().push(seen),
                Err(fault) => {
                    eprintln!("bench: {ITEM}: {}: {fault}", way.name);
                    whole = false;
                }
            }
        }
    }
    let mut table = format!("{ITEM}\n");
    let mut rows = Vec::new();
    let at = |place: usize, part: usize| {
        let all = figures.get(&place)?;
        median(&all.iter().map(|one| one[part]).collect::<Vec<_>>())
    };
    let direct = at(0, 0).unwrap_or_default();
    for (place, way) in ways.iter().enumerate() {
        let (Some(p50), Some(p99), Some(rate)) = (at(place, 0), at(place, 1), at(place, 2)) else {
            continue;
        };
        let _ = writeln!(
            table,
            "  {:<26} p50 {p50:>8.0} µs (+{:.0})  p99 {p99:>8.0} µs  {rate:>7.0} calls/s",
            way.name,
            p50 - direct
        );
        rows.push(json!({"way": way.name, "p50_us": p50, "p99_us": p99, "calls_per_second": rate}));
    }
    print!("{table}");
    json.push(json!({"item": ITEM, "aim": "at most 150 µs more than direct at p50", "ways": rows}));
    whole
}

/// A home whose project has the server, and rules for so many other tools.
fn ours(base: &Path, server: &Path, client: &Path, count: usize) -> Bailiwick {
    let kit = Bailiwick::new();
    let mut rules = format!(
        "extends = [\"coding\"]\n[files]\nread = [\"{}\"]\n[[server]]\nname = \"everything\"\nrun = [\"node\", \"{}\"]\nread = [\"{}\"]\n\
         [[tool]]\nname = \"everything/echo\"\narguments = {{ message = {{ longest = 100 }} }}\n",
        client.display(),
        server.display(),
        base.join("node_modules").display(),
    );
    for number in 0..count {
        let _ = writeln!(rules, "[[tool]]\nname = \"everything/other-{number}\"");
    }
    kit.write("bailiwick.toml", &rules);
    kit.run(&["trust"]).ok();
    kit.run(&["tools", "pin", "--yes"]).ok();
    kit
}

/// The bridge that serves the server over HTTP; its other end is started with each client.
struct Bridge {
    program: PathBuf,
    port: u16,
    process: Child,
}

impl Bridge {
    fn over(server: &Path) -> Option<Self> {
        let program = installed("supergateway")?;
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let process = Command::new(&program)
            .args(["--stdio", &format!("node {}", server.display())])
            .args([
                "--outputTransport",
                "streamableHttp",
                "--stateful",
                "--logLevel",
                "none",
            ])
            .args(["--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let bridge = Self { program, port, process };
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(bridge)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The Python that knows `fastmcp`: the one beside its program.
fn fastmcp() -> Option<PathBuf> {
    let python = installed("fastmcp")?.with_file_name("python3");
    python.is_file().then_some(python)
}

/// One run: median, 99th percentile, calls in a second.
fn once(mut command: Command) -> Result<[f64; 3], String> {
    let done = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&done.stdout);
    let line = text.lines().last().unwrap_or_default();
    let mut took: Vec<f64> = serde_json::from_str(line).map_err(|e| {
        format!(
            "{e}: {}",
            String::from_utf8_lossy(&done.stderr)
                .chars()
                .take(400)
                .collect::<String>()
        )
    })?;
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    let sum: f64 = took.iter().sum();
    Ok([at(0.5), at(0.99), took.len() as f64 * 1e6 / sum])
}
