//! The tools that clients may name: what was accepted of each server, under names that mean one tool each.
//!
//! Promises: P5 (a name means one tool, whatever the order in which servers are given; two that would have one name have
//! none). Trust: definitions were accepted by a person; they are still a server's words.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bailiwick_model::{Digest, ToolName, Verb};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::config::ServerConfig;
use crate::definition::{Definition, Kind};
use crate::limits;
use crate::lock::Lock;
use crate::names::{Names, OWN, wire_name};
use crate::schema::Schema;

/// The argument under which a client says why it calls, where a rule wants to know.
pub(crate) const REASON: &str = "bailiwick_reason";

/// The gate's own tool: what the agent has to say about a question.
pub(crate) const ANSWER: &str = "bailiwick__answer";
/// The gate's own tool with which an agent leaves it to a person which of several calls it makes.
pub(crate) const CHOOSE: &str = "bailiwick__choose";

/// One tool that was accepted.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The server and the tool.
    pub(crate) tool: ToolName,
    /// What was accepted.
    pub(crate) definition: Definition,
    pub(crate) digest: Digest,
    /// True where a call must come with a reason.
    pub(crate) wants_reason: bool,
    schema: OnceLock<Result<Schema, String>>,
}

impl Entry {
    pub(crate) fn new(tool: ToolName, definition: Definition, wants_reason: bool) -> Self {
        Self {
            digest: definition.digest(),
            tool,
            definition,
            wants_reason,
            schema: OnceLock::new(),
        }
    }

    /// Its schema, made ready when it is first needed.
    pub(crate) fn schema(&self) -> Result<&Schema, &str> {
        let made = self.schema.get_or_init(|| {
            let schema = self.definition.value().get("inputSchema");
            Schema::compile(schema.unwrap_or(&Value::Null))
        });
        made.as_ref().map_err(String::as_str)
    }

    /// What a client is told of it.
    fn listed(&self, wire: &str, altered: bool) -> Option<Tool> {
        let mut tool = self.definition.tool()?;
        tool.name = wire.to_owned().into();
        if altered {
            tool.output_schema = None;
        }
        if self.wants_reason {
            let mut schema = Map::clone(&tool.input_schema);
            let properties = schema.entry("properties").or_insert_with(|| json!({}));
            let said = json!({"type": "string", "description": "Why this call is made. It is kept on record."});
            properties.as_object_mut()?.insert(REASON.into(), said);
            let required = schema.entry("required").or_insert_with(|| json!([]));
            required.as_array_mut()?.push(REASON.into());
            tool.input_schema = Arc::new(schema);
        }
        Some(tool)
    }
}

struct Named {
    entry: Arc<Entry>,
    /// What a client is told; none where no rule shows it.
    listed: Option<Tool>,
}

/// All that was accepted.
#[derive(Default)]
pub(crate) struct Catalog {
    all: Vec<Named>,
    names: Names<usize>,
    /// Names that two tools would have.
    pub(crate) collisions: Vec<(ToolName, ToolName)>,
}

impl Catalog {
    pub(crate) fn of(lock: &Lock, servers: &BTreeMap<String, ServerConfig>) -> Self {
        let mut catalog = Self::default();
        for (server, config) in servers {
            let Some(pinned) = lock.servers.get(server) else {
                continue;
            };
            for (name, pin) in &pinned.tools {
                let definition = pin.definition();
                // A name that cannot be written in a rule, or a definition that hides something, has no way in here.
                let Ok(tool) = ToolName::new(server, name) else {
                    continue;
                };
                if definition.check(Kind::Tool).is_err() {
                    continue;
                }
                let entry = Entry::new(tool.clone(), definition.clone(), config.wants_reason(&tool));
                let wire = wire_name(server, name);
                let shown = config.shows(&Verb::Call, &tool);
                let listed = shown.then(|| entry.listed(&wire, config.alters(&tool))).flatten();
                let place = catalog.all.len();
                if let Some(other) = catalog.names.get(&wire).and_then(|place| catalog.all.get(*place)) {
                    catalog.collisions.push((other.entry.tool.clone(), tool));
                }
                catalog.names.give(wire, place);
                let entry = Arc::new(entry);
                catalog.all.push(Named { entry, listed });
            }
        }
        catalog
    }

    /// The tool that a client's name means.
    pub(crate) fn get(&self, wire: &str) -> Option<Arc<Entry>> {
        let named = self.all.get(*self.names.get(wire)?)?;
        Some(Arc::clone(&named.entry))
    }

    /// What clients are told, without those that are withheld.
    pub(crate) fn listed(&self, withheld: &dyn Fn(&ToolName) -> bool) -> Vec<Tool> {
        let shown = self.all.iter().filter_map(|named| {
            let tool = named.listed.as_ref()?;
            let means_this = self.names.get(&tool.name).is_some();
            (means_this && !withheld(&named.entry.tool)).then(|| tool.clone())
        });
        shown.chain(own()).chain(choosing()).collect()
    }
}

/// The gate's own tools.
fn own() -> Option<Tool> {
    debug_assert!(ANSWER.starts_with(OWN));
    serde_json::from_value(json!({
        "name": ANSWER,
        "title": "Answer a person's question",
        "description": "When a refusal says `tell-more`, a person wants to know more before deciding. Say it here, then try the call again.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "question": {"type": "string", "description": "The id in the refusal, in brackets."},
                "words": {"type": "string", "description": "What you have to say."},
            },
            "required": ["question", "words"],
            "additionalProperties": false,
        },
    }))
    .ok()
}

/// The tool by which a person chooses.
fn choosing() -> Option<Tool> {
    serde_json::from_value(json!({
        "name": CHOOSE,
        "title": "Let a person choose",
        "description": "Where several calls would do and a person should say which (three flights, two dates): give them all as options. \
            The person is shown each whole, the one they choose is made, and its result comes back; the others are not made.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "options": {
                    "type": "array", "minItems": 2, "maxItems": limits::OPTIONS,
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool": {"type": "string", "description": "The tool's name, as it is listed."},
                            "arguments": {"type": "object"},
                        },
                        "required": ["tool", "arguments"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["options"],
            "additionalProperties": false,
        },
    }))
    .ok()
}

#[cfg(test)]
mod tests {
    use bailiwick_model::ToolPattern;

    use super::*;
    use crate::config::Visible;

    fn server(name: &str, patterns: &[&str]) -> (String, ServerConfig) {
        let visible = |pattern: &&str| Visible {
            verb: Verb::Call,
            pattern: ToolPattern::parse(pattern).unwrap(),
        };
        let config = ServerConfig {
            name: name.into(),
            visible: patterns.iter().map(visible).collect(),
            reasons: Vec::new(),
            altered: Vec::new(),
            choosing: Vec::new(),
            unlisted: false,
            limits: crate::config::ServerLimits::default(),
        };
        (name.into(), config)
    }

    fn accept(lock: &mut Lock, server: &str, name: &str) {
        let value = json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}});
        lock.accept(server, Definition::from_value(value));
    }

    fn names(catalog: &Catalog) -> Vec<String> {
        let listed = catalog.listed(&|_| false);
        listed.iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn c040_each_call_reaches_the_server_meant_in_either_order() {
        let mut lock = Lock::default();
        for (server, tool) in [
            ("files", "read"),
            ("notes", "read"),
            ("files", "notes__read"),
            ("notes", "bailiwick__answer"),
        ] {
            accept(&mut lock, server, tool);
        }
        for order in [["files", "notes"], ["notes", "files"]] {
            let servers: BTreeMap<_, _> = order.iter().map(|name| server(name, &["*/*"])).collect();
            let catalog = Catalog::of(&lock, &servers);
            let means = |wire: &str| catalog.get(wire).map(|entry| entry.tool.to_string());
            assert_eq!(means("files__read").as_deref(), Some("files/read"));
            assert_eq!(means("notes__read").as_deref(), Some("notes/read"));
            assert_eq!(means("files__notes__read").as_deref(), Some("files/notes__read"));
            assert_eq!(means("bailiwick__answer"), None, "the gate's own");
            assert_eq!(names(&catalog).len(), 6);
        }
    }

    #[test]
    fn only_what_a_rule_shows_is_listed() {
        let mut lock = Lock::default();
        accept(&mut lock, "hr", "look");
        accept(&mut lock, "hr", "fire");
        let (name, mut config) = server("hr", &["hr/look"]);
        config.reasons = vec![ToolPattern::parse("hr/look").unwrap()];
        config.altered = vec![ToolPattern::parse("hr/*").unwrap()];
        let catalog = Catalog::of(&lock, &[(name, config)].into());
        assert_eq!(names(&catalog), ["hr__look", ANSWER, CHOOSE]);
        let listed = catalog.listed(&|_| false);
        assert_eq!(listed[0].output_schema, None);
        assert_eq!(listed[0].input_schema["required"], json!([REASON]));
        assert!(catalog.get("hr__fire").is_some(), "known, so that it can be refused");
        assert_eq!(catalog.listed(&|tool| tool.name() == "look").len(), 2);
    }
}
