//! A tool's JSON Schema, and arguments held against it.
//!
//! Answers: do these arguments fit what the tool says it takes, and if not, which one?
//! Promises: P4 (arguments that do not fit are refused; a schema that cannot be used makes a tool that cannot be called).
//! Trust: the schema is the server's. It may be built to take long, or to name others over the network: nothing is
//! fetched, and patterns are read by an engine whose time grows with the text alone.
//! See: JSON Schema 2020-12, drafts 4 to 2019-09.

use std::fmt;

use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use serde_json::Value;

/// Largest compiled pattern, in bytes.
const PATTERN: usize = 1024 * 1024;

/// One schema, ready for use.
pub(crate) struct Schema(Validator);

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

/// Fetches nothing.
struct Nothing;

impl Retrieve for Nothing {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`{uri}` is not fetched").into())
    }
}

impl Schema {
    /// Makes a schema ready. The error says why it cannot be used.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        jsonschema::options()
            .with_retriever(Nothing)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN))
            .build(schema)
            .map(Self)
            .map_err(|fault| short(&fault.to_string()))
    }

    /// Holds arguments against it. The error names the argument, and repeats no value.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), String> {
        self.check_but(arguments, &[])
    }

    /// The same, without what is said of some places: something stands there for the real value.
    pub(crate) fn check_but(&self, arguments: &Value, places: &[Vec<String>]) -> Result<(), String> {
        if places.is_empty() && self.0.is_valid(arguments) {
            return Ok(());
        }
        let is_there = |fault: &ValidationError<'_>| {
            let at = fault.instance_path().to_string();
            places.iter().any(|place| at == pointer_of(place))
        };
        match self.0.iter_errors(arguments).find(|fault| !is_there(fault)) {
            None => Ok(()),
            Some(fault) => Err(describe(&fault)),
        }
    }
}

/// A JSON Pointer (RFC 6901).
fn pointer_of(place: &[String]) -> String {
    let steps = place
        .iter()
        .map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")));
    steps.collect()
}

/// What is wrong, and where: no values, which may be long.
fn describe(fault: &ValidationError<'_>) -> String {
    let place = fault.instance_path().to_string();
    let place = place.trim_start_matches('/').replace('/', ".");
    let what = short(&fault.masked_with("it").to_string());
    if place.is_empty() {
        return what;
    }
    format!("`{}`: {what}", short(&place))
}

fn short(text: &str) -> String {
    bailiwick_model::visible(&text.chars().take(crate::limits::QUOTED).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn c038_arguments_that_do_not_fit_are_refused_by_name() {
        let schema = Schema::compile(&json!({
            "type": "object",
            "properties": {
                "repo": {"type": "string"},
                "labels": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "amount": {"type": "number", "minimum": 0},
            },
            "required": ["repo"],
            "additionalProperties": false,
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({"repo": "acme/demo", "labels": ["a"]})), Ok(()));
        let refused = |arguments: Value| schema.check(&arguments).unwrap_err();
        let said = refused(json!({"repo": ["acme/demo", "acme/other"]}));
        assert!(said.starts_with("`repo`: ") && !said.contains("acme"), "{said}");
        assert!(refused(json!({})).contains("repo"));
        assert!(refused(json!({"repo": "a", "repository": "b"})).contains("repository"));
        assert!(refused(json!({"repo": "a", "labels": ["a", "b", "c"]})).starts_with("`labels`: "));
        assert!(refused(json!({"repo": "a", "labels": ["a", 1]})).starts_with("`labels.1`: "));
        assert!(refused(json!({"repo": "a", "amount": "200"})).starts_with("`amount`: "));
        assert!(refused(json!({"repo": "a", "amount": -1})).starts_with("`amount`: "));
    }

    #[test]
    fn p4_a_schema_fetches_nothing_and_takes_no_time() {
        let remote = Schema::compile(&json!({"$ref": "https://evil.test/schema.json"}));
        assert!(remote.unwrap_err().contains("evil.test"));
        assert!(Schema::compile(&json!({"$ref": "file:///etc/passwd"})).is_err());
        assert!(Schema::compile(&json!({"type": "nonsense"})).is_err());
        assert!(Schema::compile(&json!({"pattern": "("})).is_err());
        let slow = Schema::compile(&json!({"type": "string", "pattern": "^(a+)+$"})).unwrap();
        let begun = std::time::Instant::now();
        assert!(slow.check(&json!(format!("{}!", "a".repeat(100_000)))).is_err());
        assert!(begun.elapsed() < std::time::Duration::from_secs(2));
        let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"});
        assert!(Schema::compile(&draft4).is_ok());
        let within = json!({"$defs": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/x"}}});
        assert!(Schema::compile(&within).unwrap().check(&json!({"a": 1})).is_err());
    }
}
