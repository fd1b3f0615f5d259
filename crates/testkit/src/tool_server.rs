//! A server of one tool that speaks lines: a program of Python, for whatever is to be tried with it.

/// The server. `before` is Python that runs first, `said` an expression: what each call is answered with, a text. The tool takes
/// nothing, and is described as `d`.
pub fn tool_server(tool: &str, before: &str, said: &str) -> String {
    SERVER
        .replace("BEFORE", before)
        .replace("TOOL", tool)
        .replace("SAID", said)
}

const SERVER: &str = r#"
import json, os, sys
BEFORE
for line in sys.stdin:
    m = json.loads(line)
    if m.get("id") is None: continue
    if m["method"] == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "TOOL", "description": "d", "inputSchema": {"type": "object", "properties": {}}}]}
    else:
        r = {"content": [{"type": "text", "text": SAID}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;
