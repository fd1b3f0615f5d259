// A server that offers what the protocol's conformance suite asks of one, over lines.
import { createInterface } from "node:readline";

const text = (text) => ({ type: "text", text });
const image = { type: "image", data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", mimeType: "image/png" };
const audio = { type: "audio", data: "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=", mimeType: "audio/wav" };
const embedded = { type: "resource", resource: { uri: "test://embedded-resource", mimeType: "text/plain", text: "This is an embedded resource content." } };
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const pending = new Map();
let number = 0;
const ask = (method, params) => new Promise((done) => {
  const id = `ask-${number++}`;
  pending.set(id, done);
  say({ id, method, params });
});
const elicited = (answer) => answer.error
  ? { isError: true, content: [text(answer.error.message)] }
  : { content: [text(`Elicitation completed: action=${answer.result.action}, content=${JSON.stringify(answer.result.content ?? {})}`)] };
const none = { type: "object", properties: {} };
const tools = {
  test_simple_text: [none, () => ({ content: [text("This is a simple text response for testing.")] })],
  test_image_content: [none, () => ({ content: [image] })],
  test_audio_content: [none, () => ({ content: [audio] })],
  test_embedded_resource: [none, () => ({ content: [embedded] })],
  test_multiple_content_types: [none, () => ({
    content: [text("Multiple content types test:"), image,
      { type: "resource", resource: { uri: "test://mixed-content-resource", mimeType: "application/json", text: '{"test":"data","value":123}' } }],
  })],
  test_tool_with_logging: [none, async () => {
    for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      say({ method: "notifications/message", params: { level: "info", data } });
      await wait(50);
    }
    return { content: [text("Tool with logging executed successfully")] };
  }],
  test_tool_with_progress: [none, async (_, meta) => {
    for (const progress of [0, 50, 100]) {
      if (meta?.progressToken !== undefined) {
        say({ method: "notifications/progress", params: { progressToken: meta.progressToken, progress, total: 100 } });
      }
      await wait(50);
    }
    return { content: [text("done")] };
  }],
  test_error_handling: [none, () => ({ isError: true, content: [text("This tool intentionally returns an error for testing")] })],
  test_sampling: [{ type: "object", properties: { prompt: { type: "string" } }, required: ["prompt"] }, async ({ prompt }) => {
    const answer = await ask("sampling/createMessage", { messages: [{ role: "user", content: text(prompt) }], maxTokens: 100 });
    if (answer.error) return { isError: true, content: [text(answer.error.message)] };
    return { content: [text(`LLM response: ${answer.result.content.text}`)] };
  }],
  test_elicitation: [{ type: "object", properties: { message: { type: "string" } }, required: ["message"] }, async ({ message }) => {
    const requestedSchema = { type: "object", properties: { username: { type: "string", description: "User's response" }, email: { type: "string", description: "User's email address" } }, required: ["username", "email"] };
    return elicited(await ask("elicitation/create", { message, requestedSchema }));
  }],
  test_elicitation_sep1034_defaults: [none, async () => elicited(await ask("elicitation/create", {
    message: "defaults",
    requestedSchema: { type: "object", required: [], properties: {
      name: { type: "string", default: "John Doe" }, age: { type: "integer", default: 30 }, score: { type: "number", default: 95.5 },
      status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" }, verified: { type: "boolean", default: true } } },
  }))],
  test_elicitation_sep1330_enums: [none, async () => elicited(await ask("elicitation/create", {
    message: "enums",
    requestedSchema: { type: "object", required: [], properties: {
      untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
      titledSingle: { type: "string", oneOf: [{ const: "value1", title: "First Option" }, { const: "value2", title: "Second Option" }, { const: "value3", title: "Third Option" }] },
      legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
      untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
      titledMulti: { type: "array", items: { anyOf: [{ const: "value1", title: "First Choice" }, { const: "value2", title: "Second Choice" }, { const: "value3", title: "Third Choice" }] } } } },
  }))],
  test_reconnection: [none, async () => { await wait(200); return { content: [text("reconnected")] }; }],
  json_schema_2020_12_tool: [{
    $schema: "https://json-schema.org/draft/2020-12/schema", type: "object",
    $defs: { address: { type: "object", properties: { street: { type: "string" }, city: { type: "string" } } } },
    properties: { name: { type: "string" }, address: { $ref: "#/$defs/address" } }, additionalProperties: false,
  }, () => ({ content: [text("ok")] })],
};
const prompts = {
  test_simple_prompt: [[], () => [{ role: "user", content: text("This is a simple prompt for testing.") }]],
  test_prompt_with_arguments: [["arg1", "arg2"], (a) => [{ role: "user", content: text(`Prompt with arguments: arg1='${a.arg1}', arg2='${a.arg2}'`) }]],
  test_prompt_with_embedded_resource: [["resourceUri"], (a) => [
    { role: "user", content: { type: "resource", resource: { uri: a.resourceUri, mimeType: "text/plain", text: "Embedded resource content for testing." } } },
    { role: "user", content: text("Please process the embedded resource above.") }]],
  test_prompt_with_image: [[], () => [{ role: "user", content: image }, { role: "user", content: text("Please analyze the image above.") }]],
};
const read = (uri) => {
  if (uri === "test://static-binary") return { uri, mimeType: "image/png", blob: image.data };
  const id = /^test:\/\/template\/(.*)\/data$/.exec(uri)?.[1];
  if (id) return { uri, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
  return { uri, mimeType: "text/plain", text: "This is the content of the static text resource." };
};
const methods = {
  initialize: (p) => ({ protocolVersion: p.protocolVersion, serverInfo: { name: "conformance", version: "1" },
    capabilities: { tools: {}, resources: { subscribe: true }, prompts: {}, logging: {}, completions: {} } }),
  ping: () => ({}),
  "logging/setLevel": () => ({}),
  "tools/list": () => ({ tools: Object.entries(tools).map(([name, [inputSchema]]) => ({ name, description: `The tool ${name}`, inputSchema })) }),
  "tools/call": (p) => tools[p.name][1](p.arguments ?? {}, p._meta),
  "resources/list": () => ({ resources: ["static-text", "static-binary", "watched-resource"].map((name) => ({ uri: `test://${name}`, name, mimeType: "text/plain" })) }),
  "resources/templates/list": () => ({ resourceTemplates: [{ uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" }] }),
  "resources/read": (p) => ({ contents: [read(p.uri)] }),
  "resources/subscribe": () => ({}),
  "resources/unsubscribe": () => ({}),
  "prompts/list": () => ({ prompts: Object.entries(prompts).map(([name, [names]]) => ({ name, description: `The prompt ${name}`, arguments: names.map((name) => ({ name, description: name, required: true })) })) }),
  "prompts/get": (p) => ({ messages: prompts[p.name][1](p.arguments ?? {}) }),
  "completion/complete": () => ({ completion: { values: ["paris", "park", "party"], total: 3, hasMore: false } }),
};
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.method === undefined) {
    pending.get(message.id)?.(message);
    pending.delete(message.id);
  } else if (message.id !== undefined) {
    const method = methods[message.method];
    if (!method) say({ id: message.id, error: { code: -32601, message: message.method } });
    else Promise.resolve(method(message.params ?? {})).then((result) => say({ id: message.id, result }));
  }
}
