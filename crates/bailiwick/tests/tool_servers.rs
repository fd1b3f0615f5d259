//! Servers of tools: those that are reached by an address, what one keeps, and what a person is told of them and of calls.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::path::Path;

use bailiwick_testkit::{Answer, Bailiwick, Origin, Root, kits, tool_server};
use serde_json::{Value, json};

const SECRET: &str = "s3cret-of-the-tickets-4711";

/// A server of one tool, over streamable HTTP, that says back what login came with a call.
fn served(text: &str, login: Option<&str>) -> Answer {
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return Answer::text(405, "");
    };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "tickets", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{
            "name": "find", "description": "Finds a ticket.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        }]}),
        Some("tools/call") => json!({"content": [{
            "type": "text",
            "text": format!("ticket {}, asked with {}", message["params"]["arguments"]["id"], login.unwrap_or("nothing")),
        }]}),
        _ => json!({}),
    };
    if message.get("id").is_none() {
        return Answer::text(202, "");
    }
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Answer::whole(200, "application/json", answer.to_string().into_bytes())
}

/// The server of tickets, over TLS by a root that the person knows.
fn tickets(kit: &Bailiwick) -> Origin {
    let root = Root::new();
    kit.write_home("root.pem", root.pem());
    kit.write_home(
        ".config/bailiwick/rules.toml",
        "extends = [\"ceiling\"]\n[network]\nroots = [\"~/root.pem\"]\n",
    );
    Origin::over_tls(&root, &["mcp.test"], |heard| {
        served(&heard.text(), heard.header("authorization"))
    })
}

fn agent(kit: &Bailiwick, calls: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter/desk/agent.py");
    kit.write("agent.py", &std::fs::read_to_string(from).unwrap());
    kit.write("calls.jsonl", calls);
}

#[test]
fn p9_a_remote_server_gets_its_login_at_the_gate_and_nobody_inside_has_it() {
    for mut kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        kit.set("TICKETS", SECRET);
        let origin = tickets(&kit);
        agent(
            &kit,
            "{\"tool\": \"tickets__find\", \"args\": {\"id\": 7}}\n{\"tool\": \"tickets__find\", \"args\": {\"id\": 8}}\n",
        );
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network.hosts]\n\"mcp.test\" = \"127.0.0.1\"\n\
                 [secret.tickets]\nfrom = \"env:TICKETS\"\n\
                 [[server]]\nname = \"tickets\"\nurl = \"https://mcp.test:{}/mcp\"\nsecret = \"tickets\"\n\
                 [[tool]]\nname = \"tickets/find\"\nwhen = \"args.id <= 7\"\n",
                origin.port()
            ),
        );
        kit.hand_over();
        kit.run(&["trust"]).ok();
        kit.run(&["tools", "pin", "--yes"]).ok();
        let line = "python3 agent.py calls.jsonl; env; curl -sS -m 5 https://mcp.test:$1/mcp";
        let port = origin.port().to_string();
        let done = kit.run(&["run", "-q", "--", "sh", "-c", line, "sh", &port]);
        let lines: Vec<&str> = done.stdout.lines().collect();
        // What the server says back of its login is taken out on its way.
        assert!(lines[0].starts_with("ok ticket 7, asked with Bearer "), "{done:?}");
        assert!(
            lines[1].contains("arguments-refused") && lines[1].contains("`id`"),
            "{done:?}"
        );
        assert!(
            !done.stdout.contains(SECRET) && !done.stderr.contains(SECRET),
            "{done:?}"
        );
        let heard = origin.requests();
        let calls: Vec<_> = heard
            .iter()
            .filter(|heard| heard.text().contains("tools/call"))
            .collect();
        assert_eq!(calls.len(), 1, "{heard:?}");
        assert!(
            heard
                .iter()
                .all(|heard| heard.header("authorization") == Some(&format!("Bearer {SECRET}")[..])),
            "{heard:?}"
        );
        // The agent itself reaches neither the address nor the login.
        assert!(
            done.stdout.contains("bailiwick refused") || done.status != 0,
            "{done:?}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(!log.contains(SECRET) && log.contains("secret tickets put in"), "{log}");
    }
}

/// Runs at a folder of the home that is a context of its own.
fn at(kit: &Bailiwick, folder: &str, words: &str) -> bailiwick_testkit::Done {
    let folder = kit.home().join(folder);
    kit.shell_outside(&format!("cd {} && exec {} {words}", folder.display(), kit.program()))
}

#[test]
fn c060_a_server_is_called_with_the_login_of_its_own_context_or_not_at_all() {
    for kit in kits() {
        let origin = tickets(&kit);
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter/desk/agent.py");
        let agent = std::fs::read_to_string(from).unwrap();
        for who in ["ann", "bob"] {
            kit.write_home(&format!("{who}/agent.py"), &agent);
            kit.write_home(
                &format!("{who}/calls.jsonl"),
                "{\"tool\": \"tickets__find\", \"args\": {\"id\": 7}}\n",
            );
            kit.write_home(
                &format!("{who}/bailiwick.toml"),
                &format!(
                    "extends = [\"coding\"]\n[network.hosts]\n\"mcp.test\" = \"127.0.0.1\"\n\
                     [secret.tickets]\nfrom = \"file:~/.config/{who}\"\n\
                     [[server]]\nname = \"tickets\"\nurl = \"https://mcp.test:{}/mcp\"\nsecret = \"tickets\"\n\
                     [[tool]]\nname = \"tickets/find\"\nany = [\"id\"]\n",
                    origin.port()
                ),
            );
        }
        // Both have signed in once, so that the tools are known.
        kit.write_home(".config/ann", "real-login-of-ann-0815");
        kit.write_home(".config/bob", "real-login-of-bob-0815");
        kit.hand_over();
        for who in ["ann", "bob"] {
            at(&kit, who, "trust").ok();
            at(&kit, who, "tools pin --yes").ok();
        }
        std::fs::remove_file(kit.home().join(".config/bob")).unwrap();
        let logins = |since: usize| -> Vec<String> {
            let heard = origin.requests();
            let logins = heard
                .iter()
                .skip(since)
                .map(|heard| heard.header("authorization").unwrap_or("nobody").to_owned());
            logins.collect()
        };
        let begun = logins(0).len();
        let call = "run -q -- python3 agent.py calls.jsonl";
        let done = at(&kit, "ann", call).ok();
        assert!(done.stdout.starts_with("ok ticket 7"), "{done:?}");
        let anns = logins(begun);
        assert!(
            !anns.is_empty() && anns.iter().all(|login| login == "Bearer real-login-of-ann-0815"),
            "{anns:?}"
        );
        // Bob has signed out: nobody's login is taken instead, and he is told what is missing.
        let begun = logins(0).len();
        let done = at(&kit, "bob", call).ok();
        assert!(
            done.stdout.starts_with("refused") && done.stdout.contains("tickets"),
            "{done:?}"
        );
        assert!(
            !logins(begun).iter().any(|login| login.contains("ann")),
            "{:?}",
            logins(begun)
        );
        // Nor with the number of Ann's session, at his own gate or at hers, nor with a login that he brings.
        let out = kit.home().join("ann/told");
        let line = format!(
            "cd {} && {} run -q -- sh -c 'echo $BAILIWICK_TOOLS $BAILIWICK_TOOLS_TOKEN > told; until [ -e gone ]; do sleep 0.05; done'",
            kit.home().join("ann").display(),
            kit.program()
        );
        std::thread::scope(|scope| {
            let running = scope.spawn(|| kit.shell_outside(&line));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            let session = loop {
                let text = std::fs::read_to_string(&out).unwrap_or_default();
                if text.ends_with('\n') {
                    break text.trim().to_owned();
                }
                assert!(std::time::Instant::now() < until, "her session never began");
                std::thread::sleep(std::time::Duration::from_millis(20));
            };
            let (address, token) = session.split_once(' ').unwrap();
            let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tickets__find","arguments":{"id":7}}}"#;
            kit.write_home("bob/body.json", body);
            let ask = "curl -s -m 5 -o /dev/null -w \"%{http_code} \" -H \"content-type: application/json\" \
                       -H \"accept: application/json, text/event-stream\" -d @body.json";
            let begun = logins(0).len();
            let tries = format!(
                "run -q -- sh -c '{ask} -H \"authorization: Bearer {token}\" {address}; {ask} -H \"authorization: Bearer {token}\" $BAILIWICK_TOOLS; \
                 {ask} -H \"authorization: Bearer of-another-service\" $BAILIWICK_TOOLS; \
                 {ask} -H \"authorization: Bearer $BAILIWICK_TOOLS_TOKEN\" $BAILIWICK_TOOLS; true'"
            );
            let done = at(&kit, "bob", &tries).ok();
            let codes: Vec<&str> = done.stdout.split_whitespace().collect();
            // His own number is taken, though it asks for a session first.
            assert_eq!(codes, ["401", "401", "401", "400"], "{done:?}");
            assert!(
                !logins(begun).iter().any(|login| login.contains("real")),
                "{:?}",
                logins(begun)
            );
            std::fs::write(kit.home().join("ann/gone"), "").unwrap();
            running.join().unwrap().ok();
        });
        // Ann signs out.
        std::fs::remove_file(kit.home().join(".config/ann")).unwrap();
        let begun = logins(0).len();
        let done = at(&kit, "ann", call).ok();
        assert!(done.stdout.starts_with("refused"), "{done:?}");
        assert!(
            !logins(begun).iter().any(|login| login.contains("real")),
            "{:?}",
            logins(begun)
        );
    }
}

#[test]
fn p8_a_person_is_told_what_was_done_where_rules_want_that() {
    let kit = Bailiwick::as_ordinary_user();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/babysitter");
    for part in ["bank.py", "mcp.py"] {
        let text = std::fs::read_to_string(root.join("bank").join(part)).unwrap();
        kit.write_home(&format!("bank/{part}"), &text);
    }
    kit.write_home("bank/till/payments.jsonl", "");
    agent(
        &kit,
        "{\"tool\": \"bank__send_payment\", \"args\": {\"recipient\": \"Babysitter\", \"amount\": 20, \"currency\": \"EUR\"}}\n",
    );
    let rules = std::fs::read_to_string(root.join("desk/bailiwick.toml")).unwrap();
    let rules = rules
        .replace("\"../bank", "\"../home/bank")
        .replace("any    = [\"note\"]", "any    = [\"note\"]\nnotify = true");
    kit.write("bailiwick.toml", &rules);
    kit.hand_over();
    kit.run(&["trust"]).ok();
    kit.run(&["tools", "pin", "--yes"]).ok();
    let done = kit.run(&["run", "-q", "--", "python3", "agent.py", "calls.jsonl"]).ok();
    assert!(done.stdout.starts_with("ok paid 20 EUR"), "{done:?}");
    assert!(
        done.stderr.contains("it did: call bank/send_payment with") && done.stderr.contains("\"Babysitter\""),
        "{done:?}"
    );
}

/// A server that counts in its home how often it was called, and says what is there.
fn counter() -> String {
    let call = r#"
def call():
    said = []
    for place in ("~/.counter", "~/.other"):
        folder = os.path.expanduser(place)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(folder + "/calls", "a+") as calls:
                calls.write("x")
                calls.seek(0)
                said.append(f"{place} {len(calls.read())}")
        except OSError as fault:
            said.append(f"{place} {fault}")
    return " ".join(said)
"#;
    tool_server("count", call, "call()")
}

#[test]
fn p2_what_a_server_keeps_is_its_own() {
    for kit in kits() {
        kit.write_home("servers/counter.py", &counter());
        // The person's own folder of that name.
        kit.write_home(".counter/calls", "person");
        let server = |name: &str, keep: &str| {
            format!(
                "[[server]]\nname = \"{name}\"\nrun = [\"python3\", \"../home/servers/counter.py\"]\nread = [\"~/servers\"]\n{keep}"
            )
        };
        let keep = "keep = [\"~/.counter\"]\n";
        let servers = [server("one", keep), server("two", keep), server("three", "")].concat();
        let rules = "extends = [\"coding\"]\nallow = [\"call *\"]\n[state]\nkeep = [\"~/.counter\"]\n";
        kit.write("bailiwick.toml", &format!("{rules}{servers}"));
        let calls = "{\"tool\": \"one__count\"}\n{\"tool\": \"one__count\"}\n{\"tool\": \"two__count\"}\n{\"tool\": \"three__count\"}\n";
        agent(&kit, calls);
        kit.run(&["trust"]).ok();
        kit.run(&["tools", "pin", "--yes"]).ok();
        let task = "python3 agent.py calls.jsonl; cat ~/.counter/calls 2>&1; echo agent >> ~/.counter/calls";
        let run = || kit.run(&["run", "-q", "--", "sh", "-c", task]).ok().stdout;
        let first = run();
        let lines: Vec<&str> = first.lines().collect();
        assert!(lines[0].contains("~/.counter 1"), "{first}");
        assert!(lines[1].contains("~/.counter 2"), "{first}");
        assert!(
            lines[2].contains("~/.counter 1"),
            "another server's is another: {first}"
        );
        let second = run();
        let lines: Vec<&str> = second.lines().collect();
        assert!(
            lines[0].contains("~/.counter 3") && lines[1].contains("~/.counter 4"),
            "{second}"
        );
        assert!(lines[2].contains("~/.counter 2"), "{second}");
        // Where nothing is kept, what it wrote went with its task.
        assert!(
            !lines[3].contains("~/.counter 2") && !lines[3].contains("~/.other 2"),
            "{second}"
        );
        assert!(!lines[0].contains("~/.other 2"), "{second}");
        assert_eq!(lines[4..], ["agent"], "the agent's is the agent's own: {second}");
        let persons = std::fs::read_to_string(kit.home().join(".counter/calls")).unwrap();
        assert_eq!(persons, "person");
        let told = kit.run(&["run", "--", "true"]).ok().stderr;
        assert!(
            told.contains("call the tools one/count, three/count, two/count"),
            "{told}"
        );
        let has = format!("one (read {0}/servers, keep {0}/.counter)", kit.home().display());
        assert!(
            told.contains(&has) || told.contains("by servers, which have more: one (read"),
            "{told}"
        );
    }
}

#[test]
fn a_server_that_cannot_be_asked_is_told_with_its_own_last_words() {
    for kit in kits() {
        kit.write_home(
            "servers/broken.sh",
            "echo started >&2\nprintf 'no key: \\033[2Kset TELLER_KEY\\n' >&2\nexit 3\n",
        );
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[[server]]\nname = \"one\"\nrun = [\"sh\", \"../home/servers/broken.sh\"]\nread = [\"~/servers\"]\n",
        );
        kit.run(&["trust"]).ok();
        let told = kit.run(&["tools", "pin", "--yes"]).status_is(1).stderr;
        assert!(told.contains("server `one` could not be asked"), "{told}");
        assert!(told.contains("  it said: started\n"), "{told}");
        assert!(
            told.contains("no key: ") && told.contains("set TELLER_KEY") && !told.contains('\u{1b}'),
            "{told}"
        );
    }
}
