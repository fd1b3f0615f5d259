//! The network gate beside other proxies: one client, one TLS server, and what stands between them.
//!
//! Every way is measured in turn, round by round, by the same client, which for ours runs inside a fence. All of them share
//! the processors of this machine, so what counts is the share of the direct figure.

mod client;
mod origin;
mod peers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bailiwick_testkit::{Bailiwick, Root};
use serde_json::{Value, json};

use crate::measure::{Options, median};
pub use client::run as run_client;
use client::{Seen, Work};
use peers::Peer;

/// The name of the server.
const NAME: &str = "bench.test";
/// How many other rules there are in the item that asks what many cost.
const MANY_RULES: usize = 10_000;

/// What is asked of the server.
struct Item {
    name: &'static str,
    aim: &'static str,
    rounds: usize,
    bytes: u64,
    connections: usize,
    requests: usize,
    kept: bool,
    http2: bool,
    held: u64,
}

const ITEMS: [Item; 9] = [
    Item {
        name: "network: 1 kept connection",
        aim: "at most 0.1 ms more at p50",
        rounds: 5,
        bytes: 100,
        connections: 1,
        requests: 3000,
        kept: true,
        http2: false,
        held: 0,
    },
    Item {
        name: "network: 16 kept connections",
        aim: "at least 0.35 of direct",
        rounds: 5,
        bytes: 100,
        connections: 16,
        requests: 16000,
        kept: true,
        http2: false,
        held: 0,
    },
    Item {
        name: "network: a new connection each",
        aim: "at most 1 ms more at p50",
        rounds: 5,
        bytes: 100,
        connections: 1,
        requests: 300,
        kept: false,
        http2: false,
        held: 0,
    },
    Item {
        name: "network: 16 new connections at a time",
        aim: "",
        rounds: 5,
        bytes: 100,
        connections: 16,
        requests: 1600,
        kept: false,
        http2: false,
        held: 0,
    },
    Item {
        name: "network: 1 GiB",
        aim: "at least 0.8 of squid's tunnel",
        rounds: 3,
        bytes: 1 << 30,
        connections: 1,
        requests: 1,
        kept: true,
        http2: false,
        held: 0,
    },
    Item {
        name: "network: HTTP/2, 1 kept connection",
        aim: "",
        rounds: 5,
        bytes: 100,
        connections: 1,
        requests: 3000,
        kept: true,
        http2: true,
        held: 0,
    },
    Item {
        name: "network: HTTP/2, 16 kept connections",
        aim: "",
        rounds: 5,
        bytes: 100,
        connections: 16,
        requests: 16000,
        kept: true,
        http2: true,
        held: 0,
    },
    Item {
        name: "network: 1,000 idle connections",
        aim: "",
        rounds: 1,
        bytes: 100,
        connections: 1000,
        requests: 1000,
        kept: true,
        http2: false,
        held: 1500,
    },
    Item {
        name: "network: 5,000 connections held",
        aim: "all are served",
        rounds: 1,
        bytes: 100,
        connections: 5000,
        requests: 5000,
        kept: true,
        http2: false,
        held: 1500,
    },
];

/// A way to the server.
struct Way<'a> {
    name: &'static str,
    http2: bool,
    /// Whose work and memory are counted.
    proxies: Proxies,
    run: Box<dyn Fn(&str) -> Command + 'a>,
}

/// The processes that stand between.
enum Proxies {
    None,
    /// One with all that it started.
    Below(u32),
    /// The gates of a daemon.
    GatesOf(PathBuf),
}

/// What one way came to in an item.
#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    bytes_per_second: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    cpu: Vec<f64>,
    memory: Vec<f64>,
}

/// Measures all that is wanted and prints it. False when something could not be measured.
pub fn measure(options: &Options, json: &mut Vec<Value>) -> bool {
    let wanted: Vec<&Item> = ITEMS.iter().filter(|item| options.wants(item.name)).collect();
    let many = options.wants("network: 10,000 rules");
    if wanted.is_empty() && !many {
        return true;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let root = Root::new();
    let port = origin::serve(&root, NAME).port();
    let trusted = scratch.path().join("root.pem");
    std::fs::write(&trusted, root.pem()).expect("the root can be written");
    let opened = ours(&root, port, &format!("allow = [\"GET https://{NAME}:{port}/**\"]"), &[]);
    let passed = ours(&root, port, &format!("tunnel = [\"{NAME}:{port}\"]"), &[]);
    let mut whole = true;
    let mut peer = |name: &str, made: fn(&Path, &str, &str) -> Result<Peer, String>| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        made(&folder, root.pem(), NAME).map_err(|fault| {
            eprintln!("bench: {name}: {fault}");
            whole = false;
        })
    };
    // Squid gives up what it may not read; the folder is nobody's secret.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), open).expect("the folder is ours");
    let takes = |names: &[&str]| names.iter().any(|name| options.takes(name));
    let squid = takes(&["squid, tunnel", "squid, opened"]).then(|| peer("squid", peers::squid).ok());
    let mitmproxy = takes(&["mitmproxy"]).then(|| peer("mitmproxy", peers::mitmproxy).ok());
    let (squid, mitmproxy) = (squid.flatten(), mitmproxy.flatten());
    let mut ways = vec![Way {
        name: "direct",
        http2: true,
        proxies: Proxies::None,
        run: Box::new(|work| outside(work, &trusted, None)),
    }];
    let mut through = Vec::new();
    for peer in squid.iter() {
        through.push(("squid, tunnel", peer, peer.tunnel, &trusted));
        through.push(("squid, opened", peer, peer.opened, &peer.authority));
    }
    for peer in mitmproxy.iter() {
        through.push(("mitmproxy", peer, peer.opened, &peer.authority));
    }
    for (name, peer, port, believed) in through {
        let pid = peer.pid();
        let run = Box::new(move |work: &str| outside(work, believed, Some(port)));
        ways.push(Way {
            name,
            http2: name != "squid, opened",
            proxies: Proxies::Below(pid),
            run,
        });
    }
    for (name, kit) in [("ours, tunnel", &passed), ("ours, opened", &opened)] {
        ways.push(Way {
            name,
            http2: true,
            proxies: Proxies::GatesOf(kit.home()),
            run: Box::new(|work| inside(kit, work)),
        });
    }
    ways.retain(|way| options.takes(way.name));
    for item in wanted {
        whole &= measure_item(options, item, port, &ways, json);
    }
    if many {
        let others: Vec<String> = (0..MANY_RULES)
            .map(|number| format!("GET https://h{number}.test/p/**"))
            .collect();
        let rules = ours(
            &root,
            port,
            &format!("allow = [\"GET https://{NAME}:{port}/**\"]"),
            &others,
        );
        let ways = ["ten rules", "10,000 rules"]
            .into_iter()
            .zip([&opened, &rules])
            .map(|(name, kit)| Way {
                name,
                http2: true,
                proxies: Proxies::GatesOf(kit.home()),
                run: Box::new(move |work: &str| inside(kit, work)) as Box<dyn Fn(&str) -> Command>,
            });
        let item = Item {
            name: "network: 10,000 rules",
            aim: "at most twice ten rules' time",
            ..ITEMS[1]
        };
        whole &= measure_item(options, &item, port, &ways.collect::<Vec<_>>(), json);
    }
    whole
}

/// A project of ours with rules for the server.
fn ours(root: &Root, port: u16, rule: &str, others: &[String]) -> Bailiwick {
    let kit = Bailiwick::new();
    let at = kit.write_home("roots/bench.pem", root.pem());
    kit.write_home(
        ".config/bailiwick/bench.toml",
        &format!("extends = [\"ceiling\"]\nallow = [\"* https://{NAME}:{port}/**\", \"tunnel {NAME}:{port}\"]\n[network]\nroots = [\"{}\"]\n", at.display()),
    );
    kit.write("root.pem", root.pem());
    let mut text = format!(
        "extends = [\"coding\"]\n[network]\n{rule}\nprivate = [\"{NAME}\"]\n[network.hosts]\n\"{NAME}\" = \"127.0.0.1\"\n"
    );
    if !others.is_empty() {
        let more = others
            .iter()
            .map(|act| format!("\"{act}\""))
            .collect::<Vec<_>>()
            .join(",\n");
        text = text.replacen(
            &format!("{rule}\n"),
            &format!("{},\n{more}]\n", rule.trim_end_matches(']')),
            1,
        );
    }
    kit.write("bailiwick.toml", &text);
    let program = std::env::current_exe().expect("this program has a file");
    std::fs::copy(program, kit.project().join("bench")).expect("the client can be copied");
    kit.hand_over();
    kit.run(&["trust"]).ok();
    kit
}

fn outside(work: &str, believed: &Path, proxy: Option<u16>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    command.args(["__client", work]).env("SSL_CERT_FILE", believed);
    for name in ["https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy"] {
        command.env_remove(name);
    }
    if let Some(port) = proxy {
        command.env("https_proxy", format!("http://127.0.0.1:{port}"));
    }
    command
}

fn inside(kit: &Bailiwick, work: &str) -> Command {
    // A tunnel is not opened, so nobody is added to those that are believed.
    let line = "case \"$SSL_CERT_FILE\" in '') export SSL_CERT_FILE=root.pem;; esac; exec ./bench __client \"$1\"";
    kit.command(&["run", "-q", "--", "sh", "-c", line, "sh", work])
}

fn measure_item(options: &Options, item: &Item, port: u16, ways: &[Way<'_>], json: &mut Vec<Value>) -> bool {
    eprintln!("bench: {}", item.name);
    let work = Work {
        url: format!("https://{NAME}:{port}/{}", item.bytes),
        connections: item.connections,
        requests: if options.quick {
            item.requests.div_ceil(5)
        } else {
            item.requests
        }
        .max(item.connections),
        kept: item.kept,
        http2: item.http2,
        held: item.held,
    };
    let text = serde_json::to_string(&work).expect("work is JSON");
    let mut figures: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut faults: BTreeMap<&str, String> = BTreeMap::new();
    let fit: Vec<&Way<'_>> = ways.iter().filter(|way| way.http2 || !item.http2).collect();
    for round in 0..options.rounds(item.rounds) {
        for place in 0..fit.len() {
            let Some(way) = fit.get((place + round) % fit.len()) else {
                continue;
            };
            if faults.contains_key(way.name) {
                continue;
            }
            match once(way, &text) {
                Ok((seen, cpu, memory)) => figures.entry(way.name).or_default().add(&seen, cpu, memory),
                Err(fault) => {
                    eprintln!("bench: {}: {}: {fault}", item.name, way.name);
                    faults.insert(way.name, fault);
                }
            }
        }
    }
    print!("{}", table(item, &fit, &figures, &faults));
    let ways: BTreeMap<&str, Value> = figures.iter().map(|(way, figures)| (*way, figures.json())).collect();
    json.push(json!({"item": item.name, "aim": item.aim, "ways": ways, "faults": faults}));
    faults.is_empty()
}

fn once(way: &Way<'_>, work: &str) -> Result<(Seen, f64, f64), String> {
    let (over, counted) = (Arc::new(AtomicBool::new(false)), &way.proxies);
    let mut command = (way.run)(work);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    std::thread::scope(|scope| {
        let ended = Arc::clone(&over);
        let counting = scope.spawn(move || count(counted, &ended));
        let output = command.output();
        over.store(true, Ordering::Relaxed);
        let (cpu, memory) = counting.join().expect("counting does not fail");
        let output = output.map_err(|fault| format!("cannot be started: {fault}"))?;
        let seen = serde_json::from_slice(&output.stdout);
        seen.map(|seen| (seen, cpu, memory)).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            format!(
                "{}: {}",
                output.status,
                said.lines().next_back().unwrap_or("nothing was said")
            )
        })
    })
}

/// Seconds of processor time that the proxies used until it is over, and the most memory that one held, in MiB.
fn count(proxies: &Proxies, over: &AtomicBool) -> (f64, f64) {
    let mut first: BTreeMap<u32, f64> = BTreeMap::new();
    let mut last: BTreeMap<u32, f64> = BTreeMap::new();
    let mut memory = 0.0f64;
    loop {
        let done = over.load(Ordering::Relaxed);
        for pid in proxies.now() {
            let Some((time, held)) = used(pid) else { continue };
            first.entry(pid).or_insert(time);
            last.insert(pid, time);
            memory = memory.max(held);
        }
        if done {
            let used = last.iter().map(|(pid, time)| time - first.get(pid).unwrap_or(time));
            return (used.sum(), memory);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Proxies {
    fn now(&self) -> Vec<u32> {
        let processes = || {
            let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        };
        let line = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let holds = |pid: u32, word: &str| String::from_utf8_lossy(&line(pid)).contains(word);
        match self {
            Self::None => Vec::new(),
            Self::Below(first) => processes()
                .filter(|pid| pid == first || parent(*pid) == Some(*first))
                .collect(),
            Self::GatesOf(home) => {
                let home = home.parent().unwrap_or(home).display().to_string();
                let daemons: Vec<u32> = processes()
                    .filter(|pid| holds(*pid, "daemon\0run") && holds(*pid, &home))
                    .collect();
                processes()
                    .filter(|pid| {
                        daemons.contains(pid)
                            || (parent(*pid).is_some_and(|up| daemons.contains(&up)) && holds(*pid, "__network-gate"))
                    })
                    .collect()
            }
        }
    }
}

fn after_name(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(Into::into).collect())
}

fn parent(pid: u32) -> Option<u32> {
    after_name(pid)?.get(1)?.parse().ok()
}

/// Seconds of processor time, and MiB of memory (proc_pid_stat(5): ticks of 10 ms, pages of 4 KiB).
fn used(pid: u32) -> Option<(f64, f64)> {
    let fields = after_name(pid)?;
    let number = |place: usize| fields.get(place)?.parse::<f64>().ok();
    Some(((number(11)? + number(12)?) / 100.0, number(21)? / 256.0))
}

impl Figures {
    fn add(&mut self, seen: &Seen, cpu: f64, memory: f64) {
        let requests = seen.times.len() as f64;
        self.per_second.push(requests / seen.seconds);
        self.bytes_per_second.push(seen.bytes as f64 / seen.seconds);
        self.p50.push(seen.quantile(0.5));
        self.p99.push(seen.quantile(0.99));
        self.cpu.push(cpu * 1e6 / requests);
        self.memory.push(memory);
    }

    fn json(&self) -> Value {
        json!({
            "requests_per_second": self.per_second, "bytes_per_second": self.bytes_per_second,
            "p50_us": self.p50, "p99_us": self.p99, "proxy_cpu_us_per_request": self.cpu, "proxy_memory_mib": self.memory,
        })
    }
}

fn table(item: &Item, ways: &[&Way<'_>], figures: &BTreeMap<&str, Figures>, faults: &BTreeMap<&str, String>) -> String {
    let mut text = format!(
        "\n{}{}{}\n\n",
        item.name,
        if item.aim.is_empty() { "" } else { "; aim: " },
        item.aim
    );
    text.push_str("| way | requests/s | of the first | MB/s | p50 | p99 | p50 more than the first | proxy's CPU a request | memory |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    let of = |way: &str, pick: fn(&Figures) -> &Vec<f64>| figures.get(way).and_then(|figures| median(pick(figures)));
    let first = ways.first().map_or("", |way| way.name);
    for way in ways {
        if faults.contains_key(way.name) {
            let _ = writeln!(text, "| {} | failed | | | | | | | |", way.name);
            continue;
        }
        let value = |pick: fn(&Figures) -> &Vec<f64>| of(way.name, pick).unwrap_or(f64::NAN);
        let base = |pick: fn(&Figures) -> &Vec<f64>| of(first, pick).unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.1} | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} MiB |",
            way.name,
            value(|f| &f.per_second),
            value(|f| &f.per_second) / base(|f| &f.per_second),
            value(|f| &f.bytes_per_second) / 1e6,
            value(|f| &f.p50),
            value(|f| &f.p99),
            value(|f| &f.p50) - base(|f| &f.p50),
            value(|f| &f.cpu),
            value(|f| &f.memory)
        );
    }
    text
}
