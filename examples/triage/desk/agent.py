"""A scripted agent: calls tools through `bailiwick mcp`, as an agent's harness would, and prints what comes back.

Run it inside: `bailiwick run -- python3 agent.py CALLS`, where CALLS is a file with one JSON object a line:
`{"tool": "bank__send_payment", "args": {...}}`, or `{"raw": "..."}` for the text of the arguments as it stands; `{"list": true}` lists
the tools, and `{"together": [...]}` makes several calls at once.
"""

import json
import subprocess
import sys
import threading


class Client:
    """One session with the tool gate, over lines of JSON (MCP, revision 2025-06-18)."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["bailiwick", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.number = 0
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self.hear, daemon=True).start()
        self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "scripted", "version": "1"},
            },
        )
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message):
        self.write(json.dumps(message))

    def write(self, line):
        with self.lock:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def hear(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") in self.waiting:
                self.waiting.pop(message["id"])(message)
        for waiting in list(self.waiting.values()):
            waiting({"error": {"message": "the tool gate has gone"}})

    def begin(self, method, params_text):
        """Asks without waiting; returns what waits for the answer."""
        with self.lock:
            self.number += 1
            number = self.number
        came, answer = threading.Event(), {}

        def take(message):
            answer.update(message)
            came.set()

        self.waiting[number] = take
        self.write(f'{{"jsonrpc":"2.0","id":{number},"method":{json.dumps(method)},"params":{params_text}}}')

        def wait():
            if not came.wait(60):
                raise SystemExit(f"no answer to {method}")
            return answer

        return wait

    def ask(self, method, params):
        return self.begin(method, json.dumps(params))()

    def call(self, step):
        args = step["raw"] if "raw" in step else json.dumps(step.get("args", {}))
        name = json.dumps(step["tool"])
        return self.begin("tools/call", f'{{"name":{name},"arguments":{args}}}')


def told(answer):
    """One line for people: `ok ...` or `refused ...`."""
    if "error" in answer:
        return "refused " + answer["error"]["message"]
    result = answer["result"]
    text = " ".join(part.get("text", "") for part in result.get("content", []))
    return ("refused " if result.get("isError") else "ok ") + text


def main():
    client = Client()
    with open(sys.argv[1]) as steps:
        for line in steps:
            step = json.loads(line)
            if step.get("list"):
                tools = client.ask("tools/list", {})["result"]["tools"]
                print("tools " + " ".join(sorted(tool["name"] for tool in tools)), flush=True)
            elif "together" in step:
                for wait in [client.call(one) for one in step["together"]]:
                    print(told(wait()), flush=True)
            else:
                print(told(client.call(step)()), flush=True)


main()
