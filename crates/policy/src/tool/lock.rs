//! Reads `bailiwick.lock`: what servers say of their tools, as a person took it.
//!
//! Promises: P4 (a lock that cannot be read gives no policy), P8 (a definition holds as it was seen, not as the server says
//! it now). Trust: the file is trusted with the rule file that it lies beside; what stands in it is the servers'.
//! Not here: writing it, and comparing it with what a server says (the program, `tools`).

use std::collections::BTreeMap;

use bailiwick_model::{ToolName, read_server};
use serde_json::Value;

use super::shape::{Fields, Shape, fields_of};

/// Largest lock, in bytes.
const MAX: usize = 32 << 20;

/// What is pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    tools: BTreeMap<ToolName, Pinned>,
    servers: Vec<String>,
}

/// A tool as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Its arguments; why they cannot be read, where they cannot.
    pub arguments: Result<Fields, &'static str>,
    /// What it answers; why that is not known, where it is not.
    pub answer: Result<Shape, &'static str>,
}

impl Lock {
    /// Reads the text of a lock.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX {
            return Err(format!("a lock of {} bytes is too long", text.len()));
        }
        let whole: Value = serde_json::from_str(text).map_err(|error| format!("this is no lock: {error}"))?;
        if whole.get("version").and_then(Value::as_u64) != Some(1) {
            return Err("this is no lock of a version that this build knows: `\"version\": 1` is".into());
        }
        let servers = whole.get("servers").and_then(Value::as_object);
        let servers = servers.ok_or("this is no lock: `servers` is missing")?;
        let mut lock = Self::default();
        for (server, own) in servers {
            read_server(server).map_err(|error| error.to_string())?;
            lock.servers.push(server.clone());
            let tools = own.get("tools").and_then(Value::as_object);
            for (name, pinned) in tools.into_iter().flatten() {
                let tool = ToolName::new(server, name).map_err(|error| error.to_string())?;
                let schema = pinned.pointer("/definition/inputSchema");
                let schema = schema.ok_or_else(|| format!("`{tool}` has no `definition` with an `inputSchema`"))?;
                let arguments = fields_of(schema);
                let answer = match pinned.pointer("/definition/outputSchema") {
                    Some(schema) => fields_of(schema).map(Shape::Fields),
                    None => Err("its definition has no `outputSchema`"),
                };
                lock.tools.insert(tool, Pinned { arguments, answer });
            }
        }
        Ok(lock)
    }

    /// Takes what is pinned of one server.
    pub fn take(&mut self, server: &str, from: &Self) {
        if from.servers.iter().any(|own| own == server) {
            self.servers.push(server.to_owned());
        }
        let own = from.tools.iter().filter(|(tool, _)| tool.server() == server);
        self.tools
            .extend(own.map(|(tool, pinned)| (tool.clone(), pinned.clone())));
    }

    /// A tool that is pinned.
    pub fn tool(&self, tool: &ToolName) -> Option<(&ToolName, &Pinned)> {
        self.tools.get_key_value(tool)
    }

    /// All tools that are pinned.
    pub fn tools(&self) -> impl Iterator<Item = (&ToolName, &Pinned)> {
        self.tools.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_a_lock_is_read_whole_or_not_at_all() {
        let text = r#"{"version":1,"servers":{"bank":{"tools":{"pay":{"digest":"00","definition":{"name":"pay","inputSchema":{"type":"object","properties":{"to":{"type":"string"}}}}}}},"empty":{}}}"#;
        let lock = Lock::read(text).unwrap();
        let pay = ToolName::parse("bank/pay").unwrap();
        assert!(
            lock.tool(&pay)
                .unwrap()
                .1
                .arguments
                .as_ref()
                .unwrap()
                .contains_key("to")
        );
        let mut other = Lock::default();
        other.take("empty", &lock);
        assert_eq!(other.tools().count(), 0);
        other.take("bank", &lock);
        assert_eq!(other.tools().count(), 1);
        for wrong in [
            "",
            "[]",
            r#"{"version":2,"servers":{}}"#,
            r#"{"version":1}"#,
            r#"{"version":1,"servers":{"A B":{}}}"#,
            r#"{"version":1,"servers":{"a":{"tools":{"x y":{"definition":{"inputSchema":{}}}}}}}"#,
            r#"{"version":1,"servers":{"a":{"tools":{"x":{"definition":{}}}}}}"#,
        ] {
            assert!(Lock::read(wrong).is_err(), "{wrong}");
        }
    }
}
