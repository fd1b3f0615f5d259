//! Which message of the protocol a value is that has been read strictly.
//!
//! The library tries one kind of message after the other, some twenty of each. The two that every call is made of are told by their
//! names, and read at once; what this makes of them is what the library makes of them, and all else is left to it.
//! Promises: P5 (one reading). Trust: values are the agent's, or a server's.

use rmcp::model::{
    CallToolRequest, CallToolResult, ClientJsonRpcMessage, ClientRequest, JsonRpcRequest, JsonRpcResponse,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// A message of a client.
pub(crate) fn of_client(value: Value) -> Result<ClientJsonRpcMessage, serde_json::Error> {
    if value.as_object().is_some_and(is_call)
        && let Ok(call) = JsonRpcRequest::<CallToolRequest>::deserialize(&value)
    {
        return Ok(ClientJsonRpcMessage::Request(JsonRpcRequest {
            jsonrpc: call.jsonrpc,
            id: call.id,
            request: ClientRequest::CallToolRequest(call.request),
        }));
    }
    serde_json::from_value(value)
}

/// A message of a server.
pub(crate) fn of_server(value: Value) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    if value.as_object().is_some_and(is_result_of_call)
        && let Ok(answer) = JsonRpcResponse::<CallToolResult>::deserialize(&value)
    {
        return Ok(ServerJsonRpcMessage::Response(JsonRpcResponse {
            jsonrpc: answer.jsonrpc,
            id: answer.id,
            result: ServerResult::CallToolResult(answer.result),
        }));
    }
    serde_json::from_value(value)
}

fn is_call(message: &Map<String, Value>) -> bool {
    let names = ["jsonrpc", "id", "method", "params"];
    message.get("method").and_then(Value::as_str) == Some("tools/call")
        && message.len() == names.len()
        && names.iter().all(|name| message.contains_key(*name))
}

/// True for an answer that can only be that of a tool: it has content, and nothing by which another kind is told.
fn is_result_of_call(message: &Map<String, Value>) -> bool {
    let names = ["content", "isError", "structuredContent", "_meta"];
    let result = message.get("result").and_then(Value::as_object);
    message.len() == 3
        && message.contains_key("jsonrpc")
        && message.contains_key("id")
        && result.is_some_and(|result| {
            result.get("content").is_some_and(Value::is_array)
                && result.keys().all(|name| names.contains(&name.as_str()))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn as_the_library(value: &Value) {
        let ours = of_client(value.clone()).map(|message| format!("{message:?}")).ok();
        let theirs = serde_json::from_value::<ClientJsonRpcMessage>(value.clone()).ok();
        assert_eq!(ours, theirs.map(|message| format!("{message:?}")), "{value}");
        let ours = of_server(value.clone()).map(|message| format!("{message:?}")).ok();
        let theirs = serde_json::from_value::<ServerJsonRpcMessage>(value.clone()).ok();
        assert_eq!(ours, theirs.map(|message| format!("{message:?}")), "{value}");
    }

    #[test]
    fn p5_a_call_and_its_result_are_recognized() {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"b": 1}, "_meta": {"progressToken": 7}}});
        assert!(call.as_object().is_some_and(is_call));
        as_the_library(&call);
        let result = json!({"jsonrpc": "2.0", "id": "x", "result": {"content": [{"type": "text", "text": "t"}], "isError": true, "structuredContent": {"a": [null]}, "_meta": {"k": 1}}});
        assert!(result.as_object().is_some_and(is_result_of_call));
        as_the_library(&result);
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z/]{0,6}".prop_map(Value::from),
            Just(json!("text")),
            Just(json!("complete")),
            Just(json!("2.0")),
        ];
        let name = prop_oneof![
            "[a-z]{1,3}",
            Just("type".to_owned()),
            Just("text".to_owned()),
            Just("name".to_owned()),
            Just("arguments".to_owned()),
            Just("task".to_owned()),
            Just("action".to_owned()),
            Just("_meta".to_owned()),
            Just("resultType".to_owned()),
        ];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(name.clone(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn p5_every_message_reads_as_the_library_reads_it(
            id in prop_oneof![Just(json!(1)), Just(json!("a")), anything()],
            params in anything(),
            content in prop_oneof![Just(json!([])), Just(json!([{"type": "text", "text": "t"}])), anything()],
            is_error in proptest::option::of(prop_oneof![Just(json!(false)), anything()]),
            structured in proptest::option::of(anything()),
            meta in proptest::option::of(anything()),
            more in proptest::option::of(("[a-z]{1,6}|result|error|method", anything())),
        ) {
            let mut call = json!({"jsonrpc": "2.0", "id": id.clone(), "method": "tools/call", "params": params});
            let mut answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}});
            for (name, part) in [("isError", is_error), ("structuredContent", structured), ("_meta", meta)] {
                if let Some(part) = part {
                    answer["result"][name] = part;
                }
            }
            as_the_library(&call);
            as_the_library(&answer);
            if let Some((name, value)) = more {
                call[&name] = value.clone();
                answer["result"][&name] = value.clone();
                as_the_library(&call);
                as_the_library(&answer);
                answer[&name] = value;
                as_the_library(&answer);
            }
        }
    }
}
