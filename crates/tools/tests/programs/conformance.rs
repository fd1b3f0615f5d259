//! The protocol's official conformance suite: a server behind the gate, and the gate as a client by its relay.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bailiwick_tools::{Ends, relay_remote};
use serde_json::json;

use crate::clients::run;
use crate::found::{npm, server};
use crate::servers::accepted;
use crate::world::{Say, Script, TOKEN};

/// A Node that the suite runs on: version 22 or later.
fn node() -> Option<PathBuf> {
    let found = [Path::new("node").to_owned()].into_iter().chain(npm("node/bin/node"));
    let is_new = |node: &PathBuf| {
        let said = Command::new(node).arg("--version").output().ok()?.stdout;
        let said = String::from_utf8(said).ok()?;
        said.trim_start_matches('v')
            .split('.')
            .next()?
            .parse::<u32>()
            .ok()
            .filter(|major| *major >= 22)
    };
    let found = { found }.find(|node| is_new(node).is_some());
    if found.is_none() {
        bailiwick_testkit::skip("the conformance suite needs Node 22");
    }
    found
}

struct Front(Child);

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_conformance_suite_passes_through_the_gate() {
    let Some(suite) = npm("@modelcontextprotocol/conformance/dist/index.js") else {
        return;
    };
    let Some(node) = node() else { return };
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/conformance");
    let script = server(&node, &[here.join("server.mjs").display().to_string()]);
    let acts = [
        "call conf/*",
        "open conf/**",
        "prompt conf/*",
        "sample conf",
        "elicit conf",
    ];
    let (plan, _) = accepted("conf", &acts, script);
    let world = plan.start(|_| Say::Allow);
    let mut front = Command::new(&node)
        .arg(here.join("front.mjs"))
        .args([&world.address.port().to_string(), TOKEN, "conf"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(front.stdout.take().unwrap())
        .read_line(&mut port)
        .unwrap();
    let _front = Front(front);
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    let folder = tempfile::tempdir().unwrap();
    // The exit status counts the scenarios that fail, which are looked at here.
    let said = run(Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", "\"$0\" \"$1\" server --url \"$2\" --suite all 2>&1; true"])
        .args([node.as_os_str(), suite.as_os_str(), url.as_ref()]));
    let failed: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with('✗'))
        .map(|line| line.trim_start_matches('✗').trim().split(':').next().unwrap())
        .collect();
    let passed = said.lines().filter(|line| line.starts_with('✓')).count();
    assert_eq!((passed, failed), (32, Vec::<&str>::new()), "{said}");
}

/// Runs one scenario for clients: the gate, with the suite's server behind the relay, does this with it.
fn client_scenario(node: &Path, suite: &Path, scenario: &str, act: impl FnOnce(&str)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client");
    let port = listener.local_addr().unwrap().port();
    // The suite starts a program with its server's address, and waits until it ends.
    let script = format!("#!/bin/sh\nfor url; do :; done\necho \"$url\" | exec nc -N 127.0.0.1 {port}\n");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            run(Command::new("sh")
                .current_dir(folder.path())
                .args([
                    "-c",
                    "\"$0\" \"$1\" client --command \"$2\" --scenario \"$3\" 2>&1; true",
                ])
                .args([node.as_os_str(), suite.as_os_str(), file.as_os_str(), scenario.as_ref()]))
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut url = String::new();
        BufReader::new(&mut stream).read_line(&mut url).unwrap();
        act(url.trim());
        drop(stream);
        running.join().unwrap()
    })
}

fn remote(url: &str) -> Script {
    let url = url.to_owned();
    Arc::new(move |lines| {
        let ends = Ends {
            from: lines.writer.try_clone().unwrap().into(),
            to: lines.writer.into(),
        };
        let _ = relay_remote(&url, ends);
    })
}

#[test]
fn the_relay_passes_the_scenarios_for_clients() {
    let Some(suite) = npm("@modelcontextprotocol/conformance/dist/index.js") else {
        return;
    };
    let Some(node) = node() else { return };
    for (scenario, call) in [
        ("initialize", None),
        ("tools_call", Some(("conf__add_numbers", json!({"a": 2, "b": 3})))),
        ("sse-retry", Some(("conf__test_reconnection", json!({})))),
    ] {
        let said = client_scenario(&node, &suite, scenario, |url| {
            let (plan, _) = accepted("conf", &["call conf/*"], remote(url));
            let world = plan.start(|_| Say::Allow);
            if let Some((name, arguments)) = call {
                world.client().call(name, arguments).done();
            }
        });
        assert!(said.contains(", 0 failed"), "{scenario}: {said}");
    }
}
