//! Real servers behind the gate.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bailiwick_model::{Argument, Code, Nonce, Request};
use bailiwick_tools::{Backing, Config, Definition, Ends, Offered, survey};
use serde_json::json;

use crate::found::{npm, python, server};
use crate::world::{Lines, Plan, Say, Script, TOKEN, World, called};

struct Survey(BTreeMap<String, Script>);

impl Backing for Survey {
    fn start(&self, server: &str) -> std::io::Result<Ends> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let script = Arc::clone(&self.0[server]);
        let lines = Lines {
            reader: std::io::BufReader::new(theirs.try_clone()?),
            writer: theirs,
        };
        std::thread::spawn(move || script(lines));
        Ok(Ends {
            to: OwnedFd::from(ours.try_clone()?),
            from: OwnedFd::from(ours),
        })
    }

    fn accept(&self, _: &Request, _: &Nonce, _: &Definition) -> std::io::Result<()> {
        panic!("a survey accepts nothing")
    }

    fn end(&self, _: &str) {}
}

/// Surveys a server and accepts all that it offers.
pub fn accepted(name: &str, acts: &[&str], script: Script) -> (Plan, Offered) {
    let mut plan = Plan::new().server(name, acts, &json!([]), script).config(|config| {
        config.limits.start_seconds = 60;
        config.limits.call_seconds = 60;
    });
    let config = Config {
        task: bailiwick_model::TaskId([1; 8]),
        build: "test".into(),
        token: TOKEN.into(),
        servers: plan.configs.clone(),
        lock: String::new(),
    };
    let backing: Arc<dyn Backing> = Arc::new(Survey(plan.servers.clone()));
    let mut all = survey(&config, &backing).unwrap();
    let offered = all.remove(name).unwrap().unwrap();
    assert!(offered.withheld.is_empty(), "{:?}", offered.withheld);
    plan.lock.accept_all(name, &offered);
    assert_eq!(plan.lock.compare(name, &offered), []);
    (plan, offered)
}

pub fn everything() -> Option<Script> {
    let program = npm("@modelcontextprotocol/server-everything/dist/index.js")?;
    Some(server("node", &[program.display().to_string()]))
}

pub fn everything_allowed() -> Option<World> {
    let acts = [
        "call all/*",
        "open all/**",
        "prompt all/*",
        "sample all",
        "elicit all",
        "roots all",
    ];
    let (plan, offered) = accepted("all", &acts, everything()?);
    assert!(
        offered.tools.len() >= 8
            && !offered.prompts.is_empty()
            && !offered.templates.is_empty()
            && !offered.resources.is_empty(),
        "{offered:?}"
    );
    Some(plan.start(|_| Say::Allow))
}

#[test]
fn the_server_of_everything_works_through_the_gate() {
    let Some(world) = everything_allowed() else { return };
    let mut client = world.client_with(json!({"sampling": {}, "elicitation": {}, "roots": {}}));
    let names = client.tools();
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("all__") || name == "bailiwick__answer"),
        "{names:?}"
    );
    assert!(
        client
            .call("all__echo", json!({"message": "hello"}))
            .done()
            .contains("hello")
    );
    assert!(
        client
            .call("all__get-sum", json!({"a": 2, "b": 3.5}))
            .done()
            .contains("5.5")
    );
    client
        .call("all__get-sum", json!({"a": "2", "b": 3}))
        .refused("arguments-malformed");
    let image = client.call("all__get-tiny-image", json!({}));
    assert!(
        image.whole["content"]
            .as_array()
            .unwrap()
            .iter()
            .any(|block| block["type"] == "image"),
        "{image:?}"
    );
    let structured = client.call("all__get-structured-content", json!({"location": "New York"}));
    assert!(structured.whole["structuredContent"].is_object(), "{structured:?}");
    let params = json!({"name": "all__trigger-long-running-operation", "arguments": {"duration": 1, "steps": 4},
        "_meta": {"progressToken": 7}});
    let answer = client.request("tools/call", params);
    called(&answer).done();
    let steps = client
        .heard
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .count();
    assert_eq!(steps, 4, "{:#?}", client.heard);
    let listed = client.request("resources/list", json!({}));
    let uri = listed["result"]["resources"][0]["uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("all+"), "{uri}");
    let read = client.request("resources/read", json!({"uri": uri}));
    assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
    let listed = client.request("prompts/list", json!({}));
    let prompts = listed["result"]["prompts"].as_array().unwrap();
    let plain = prompts.iter().find(|prompt| prompt.get("arguments").is_none()).unwrap();
    let made = client.request("prompts/get", json!({"name": plain["name"]}));
    assert!(made["result"]["messages"][0]["content"].is_object(), "{made}");
}

#[test]
fn c042_the_server_of_everything_asks_for_what_rules_let_it() {
    let Some(world) = everything_allowed() else { return };
    let mut client = world.client_with(json!({"sampling": {}, "elicitation": {"form": {}}, "roots": {}}));
    let names = client.tools();
    assert!(
        names.iter().any(|name| name == "all__trigger-sampling-request"),
        "{names:?}"
    );
    for (name, arguments, asks, result) in [
        (
            "all__trigger-sampling-request",
            json!({"prompt": "hi", "maxTokens": 10}),
            "sampling/createMessage",
            json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "written"}}),
        ),
        (
            "all__trigger-elicitation-request",
            json!({}),
            "elicitation/create",
            json!({"action": "decline"}),
        ),
    ] {
        let number = client.ask("tools/call", json!({"name": name, "arguments": arguments}));
        let asked = client.hear(asks);
        client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        let done = called(&client.answer_to(number));
        assert!(!done.text.is_empty(), "{done:?}");
    }
    let acts = world.asked();
    assert!(
        acts.contains(&"sample all".to_owned()) && acts.contains(&"elicit all".to_owned()),
        "{acts:?}"
    );
}

#[test]
fn c038_the_server_of_files_reads_what_its_arguments_may_name() {
    let Some(program) = npm("@modelcontextprotocol/server-filesystem/dist/index.js") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::fs::write(folder.join("a.txt"), "alpha").unwrap();
    std::fs::write(folder.join("b.txt"), "beta").unwrap();
    let words = [program.display().to_string(), folder.display().to_string()];
    let (plan, offered) = accepted("files", &["call files/*"], server("node", &words));
    assert!(
        offered.tools.contains_key("read_text_file"),
        "{:?}",
        offered.tools.keys()
    );
    let allowed = folder.join("a.txt").display().to_string();
    let world = plan.start(move |request| match request.args().unwrap().get("path") {
        Some(Argument::Text(path)) if *path == allowed => Say::Allow,
        _ => Say::Deny(Code::ArgumentsRefused),
    });
    let mut client = world.client();
    let path = |name: &str| json!({"path": folder.join(name).display().to_string()});
    assert_eq!(client.call("files__read_text_file", path("a.txt")).done(), "alpha");
    client
        .call("files__read_text_file", path("b.txt"))
        .refused("arguments-refused");
    client
        .call("files__read_text_file", path("../a.txt"))
        .refused("arguments-refused");
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{{"name":"files__read_text_file","arguments":{{"path":"{0}/a.txt","path":"{0}/b.txt"}}}}}}"#,
        folder.display()
    );
    client.write(&twice);
    called(&client.answer_to(99)).refused("malformed-request");
}

#[test]
fn the_server_of_memory_keeps_what_it_was_given() {
    let Some(program) = npm("@modelcontextprotocol/server-memory/dist/index.js") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = format!("MEMORY_FILE_PATH={}", folder.path().join("memory.json").display());
    let words = [file, "node".into(), program.display().to_string()];
    let (plan, _) = accepted("memory", &["call memory/*"], server("env", &words));
    let world = plan.start(|_| Say::Allow);
    let mut client = world.client();
    let ann = json!({"name": "Ann", "entityType": "person", "observations": ["likes tea"]});
    client
        .call("memory__create_entities", json!({"entities": [ann]}))
        .done();
    assert!(
        client
            .call("memory__read_graph", json!({}))
            .done()
            .contains("likes tea")
    );
}

#[test]
fn a_server_of_the_python_sdk_works_through_the_gate() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.py");
    std::fs::write(&file, PYTHON).unwrap();
    let (plan, offered) = accepted("py", &["call py/*"], server(python, &[file.display().to_string()]));
    assert_eq!(offered.tools.keys().collect::<Vec<_>>(), ["add", "fail"]);
    let world = plan.start(|_| Say::Allow);
    let mut client = world.client();
    let added = client.call("py__add", json!({"a": 2, "b": 3}));
    assert!(added.done().contains('5'), "{added:?}");
    let failed = client.call("py__fail", json!({}));
    assert!(failed.is_error && failed.text.contains("fail"), "{failed:?}");
    client
        .call("py__add", json!({"a": "two", "b": 3}))
        .refused("arguments-malformed");
}

const PYTHON: &str = r#"
try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server import MCPServer as Server
server = Server("test")
@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b
@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("on purpose")
server.run()
"#;
