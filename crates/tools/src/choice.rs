//! Several calls of which a person is to choose one.
//!
//! Promises: P4 (what is no list of calls is refused), P8 (each is shown whole, in a question of its own, and the yes is to that
//! very call). Trust: the options are the agent's. Not here: that a yes to one is a no to the others (`mediator`).

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use crate::limits;

/// The calls that are offered: tool and arguments.
pub(crate) fn options(arguments: &Map<String, Value>) -> Result<Vec<(String, JsonObject)>, String> {
    let wrong = || {
        format!(
            "`options` is a list of 2 to {} calls, each with `tool` and `arguments`",
            limits::OPTIONS
        )
    };
    let (Some(Value::Array(all)), 1) = (arguments.get("options"), arguments.len()) else {
        return Err(wrong());
    };
    if !(2..=limits::OPTIONS).contains(&all.len()) {
        return Err(wrong());
    }
    let option = |value: &Value| match value {
        Value::Object(fields) if fields.len() == 2 => match (fields.get("tool"), fields.get("arguments")) {
            (Some(Value::String(tool)), Some(Value::Object(arguments))) => Some((tool.clone(), arguments.clone())),
            _ => None,
        },
        _ => None,
    };
    let read: Option<Vec<_>> = all.iter().map(option).collect();
    let read = read.ok_or_else(wrong)?;
    for (place, one) in read.iter().enumerate() {
        if read.iter().take(place).any(|before| before == one) {
            return Err("two of the options are the same".into());
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p4_only_a_list_of_calls_is_one() {
        let read = |value: Value| match value {
            Value::Object(fields) => options(&fields),
            _ => Err(String::new()),
        };
        let call = |tool: &str| json!({"tool": tool, "arguments": {"a": 1}});
        assert_eq!(read(json!({"options": [call("x__a"), call("x__b")]})).unwrap().len(), 2);
        for wrong in [
            json!({}),
            json!({"options": []}),
            json!({"options": [call("a")]}),
            json!({"options": [call("a"), call("a")]}),
            json!({"options": [call("a"), "b"]}),
            json!({"options": [call("a"), {"tool": "b"}]}),
            json!({"options": [call("a"), call("b")], "why": "x"}),
            json!({"options": (0..9).map(|n| call(&n.to_string())).collect::<Vec<_>>()}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
