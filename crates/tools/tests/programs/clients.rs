//! Real clients before the gate.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::found::{npm, python};
use crate::servers::everything_allowed;
use crate::world::{TOKEN, World};

/// Runs a program; what it prints. It ends in time, or the test fails.
pub fn run(command: &mut Command) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(std::fs::File::create(&err).unwrap())
        .env("NO_PROXY", "127.0.0.1")
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it does not end: {}", std::fs::read_to_string(&err).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = std::fs::read_to_string(&out).unwrap();
    let err = std::fs::read_to_string(&err).unwrap();
    assert!(status.success(), "{status}: {said}{err}");
    said
}

/// What stands for `bailiwick mcp`: a program of its own.
fn relay(world: &World, folder: &Path) -> String {
    let file = folder.join("relay");
    let port = world.address.port();
    let script = format!("#!/bin/sh\n(echo {TOKEN}; exec cat) | exec nc -N 127.0.0.1 {port}\n");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}

#[test]
fn the_inspector_lists_and_calls_over_lines_and_over_http() {
    let Some(inspector) = npm(".bin/mcp-inspector") else {
        return;
    };
    let Some(world) = everything_allowed() else { return };
    let folder = tempfile::tempdir().unwrap();
    let relay = relay(&world, folder.path());
    let listed = run(Command::new(&inspector).args(["--cli", &relay, "--method", "tools/list"]));
    assert!(listed.contains("all__echo"), "{listed}");
    let called = run(Command::new(&inspector)
        .args(["--cli", &relay, "--method", "tools/call", "--tool-name", "all__echo"])
        .args(["--tool-arg", "message=hello"]));
    assert!(called.contains("hello"), "{called}");
    let url = format!("http://{}/mcp", world.address);
    let header = format!("Authorization: Bearer {TOKEN}");
    let called = run(Command::new(&inspector)
        .args([
            "--cli",
            &url,
            "--transport",
            "http",
            "--header",
            &header,
            "--method",
            "tools/call",
        ])
        .args(["--tool-name", "all__get-sum", "--tool-arg", "a=2", "b=3"]));
    assert!(called.contains('5'), "{called}");
}

#[test]
fn the_typescript_client_calls_over_lines_and_over_http() {
    let Some(sdk) = npm("@modelcontextprotocol/sdk/dist/esm/client/index.js") else {
        return;
    };
    let Some(world) = everything_allowed() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.mjs");
    let base = sdk.parent().unwrap().display();
    let relay = relay(&world, folder.path());
    let script = format!(
        r#"
import {{ Client }} from "{base}/index.js";
import {{ StdioClientTransport }} from "{base}/stdio.js";
import {{ StreamableHTTPClientTransport }} from "{base}/streamableHttp.js";
const transports = [
  new StdioClientTransport({{ command: "{relay}", args: [] }}),
  new StreamableHTTPClientTransport(new URL("http://{}/mcp"), {{ requestInit: {{ headers: {{ Authorization: "Bearer {TOKEN}" }} }} }}),
];
for (const transport of transports) {{
  const client = new Client({{ name: "t", version: "1" }});
  await client.connect(transport);
  const listed = await client.listTools();
  const structured = await client.callTool({{ name: "all__get-structured-content", arguments: {{ location: "Chicago" }} }});
  const refused = await client.callTool({{ name: "all__nothing", arguments: {{}} }});
  console.log(listed.tools.length, JSON.stringify(structured.structuredContent), refused.isError, refused.content[0].text);
  await client.close();
}}
process.exit(0);
"#,
        world.address
    );
    std::fs::write(&file, script).unwrap();
    let said = run(Command::new("node").arg(&file));
    assert_eq!(said.lines().count(), 2, "{said}");
    for line in said.lines() {
        assert!(
            line.contains("{") && line.contains("true bailiwick refused this call: tool-unknown"),
            "{said}"
        );
    }
}

#[test]
fn the_python_client_calls_over_lines() {
    let Some(python) = python() else { return };
    let Some(world) = everything_allowed() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.py");
    let relay = relay(&world, folder.path());
    let script = format!(
        r#"
import asyncio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    server = StdioServerParameters(command="{relay}", args=[])
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            said = await session.call_tool("all__echo", {{"message": "hello"}})
            print(len(listed.tools), said.content[0].text)
asyncio.run(main())
"#
    );
    std::fs::write(&file, script).unwrap();
    let said = run(Command::new(python).arg(&file));
    assert!(said.contains("hello"), "{said}");
}
