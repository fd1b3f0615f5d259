// Stands before the gate for the conformance suite, which knows neither a token nor a gateway's names: puts the token in,
// and takes the server's name off and on. Prints its port.
import http from "node:http";

const [port, token, server] = process.argv.slice(2);
const outer = (message) => {
  const params = message.params ?? {};
  if (["tools/call", "prompts/get"].includes(message.method)) params.name = `${server}__${params.name}`;
  if (params.uri !== undefined && message.method?.startsWith("resources/")) params.uri = `${server}+${params.uri}`;
  if (params.ref?.name !== undefined) params.ref.name = `${server}__${params.ref.name}`;
  if (params.ref?.uri !== undefined) params.ref.uri = `${server}+${params.ref.uri}`;
  return message;
};
const front = http.createServer((near, answer) => {
  const parts = [];
  near.on("data", (part) => parts.push(part));
  near.on("end", () => {
    let body = Buffer.concat(parts);
    try {
      body = Buffer.from(JSON.stringify(outer(JSON.parse(body))));
    } catch {
      // Not a message: passed on as it is.
    }
    const headers = { ...near.headers, authorization: `Bearer ${token}` };
    delete headers["transfer-encoding"];
    if (near.method === "POST") headers["content-length"] = body.length;
    const far = http.request({ host: "127.0.0.1", port, method: near.method, path: near.url, headers }, (said) => {
      const heads = { ...said.headers };
      delete heads["content-length"];
      answer.writeHead(said.statusCode, heads);
      answer.flushHeaders();
      said.on("data", (part) => answer.write(part.toString().replaceAll(`${server}__`, "").replaceAll(`${server}+`, "")));
      said.on("end", () => answer.end());
      said.on("error", () => answer.end());
    });
    far.on("error", () => answer.destroy());
    answer.on("close", () => far.destroy());
    far.end(body);
  });
});
front.listen(0, "127.0.0.1", () => console.log(front.address().port));
