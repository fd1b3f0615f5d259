"""The least that a tool server needs: MCP over lines on standard input and output, with no library."""

import json
import sys


def serve(name, tools, call):
    """Serves these definitions; `call(tool, args)` answers with a text, or raises ValueError with what is wrong."""
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if number is None:
            continue
        if method == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": tools}
        elif method == "tools/call":
            try:
                params = message["params"]
                text = call(params["name"], params.get("arguments", {}))
                result = {"content": [{"type": "text", "text": text}]}
            except ValueError as fault:
                result = {"content": [{"type": "text", "text": str(fault)}], "isError": True}
        elif method == "ping":
            result = {}
        else:
            fault = {"code": -32601, "message": f"no method {method}"}
            print(json.dumps({"jsonrpc": "2.0", "id": number, "error": fault}), flush=True)
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
