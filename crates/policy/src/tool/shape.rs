//! What an argument may be, as a rule sees it: made from the JSON Schema of a tool's definition.
//!
//! Promises: P4 (what a schema leaves open is not judged as something it may not be: a rule that names it is an error).
//! Trust: the schema is the server's, pinned by a person. It says what an argument is *called* and of what kind it is;
//! that a call's arguments are so is looked at again, value by value (`view`).
//! Not here: holding arguments against the whole schema (`tools`).
//! See: JSON Schema 2020-12; Model Context Protocol, `Tool.inputSchema`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Deepest nesting that is looked at.
const DEPTH: usize = 12;

/// The kind of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Text; one of these where the schema lists them.
    Text(Option<BTreeSet<String>>),
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// Yes or no.
    Flag,
    /// Values of one kind.
    List(Box<Self>),
    /// Values by name.
    Fields(Fields),
    /// The id of something that relations know.
    Known(Kind),
    /// What cannot be judged, and why.
    Open(&'static str),
}

/// Arguments by name.
pub(crate) type Fields = BTreeMap<String, Field>;

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub shape: Shape,
    /// True when every call has it, and not as null.
    pub required: bool,
}

/// What an id may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Person,
    Team,
    Thing,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Person, Self::Team, Self::Thing];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "Person",
            Self::Team => "Team",
            Self::Thing => "Thing",
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl Shape {
    /// The kind in words, with its article.
    pub fn told(&self) -> String {
        match self {
            Self::Text(None) => "a text".into(),
            Self::Text(Some(values)) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                format!("one of {}", values.join(", "))
            }
            Self::Whole => "a whole number".into(),
            Self::Number => "a number".into(),
            Self::Flag => "true or false".into(),
            Self::List(_) => "a list".into(),
            Self::Fields(_) => "an object".into(),
            Self::Known(kind) => format!("the id of a {}", kind.as_str()),
            Self::Open(why) => format!("open: {why}"),
        }
    }

    /// The kind in Cedar's words.
    pub fn in_cedar(&self) -> String {
        match self {
            Self::Text(_) => "String".into(),
            Self::Whole => "Long".into(),
            Self::Number => "__cedar::decimal".into(),
            Self::Flag => "Bool".into(),
            Self::List(of) => format!("Set<{}>", of.in_cedar()),
            Self::Fields(fields) => record(fields),
            Self::Known(kind) => kind.as_str().into(),
            // It is in no context, and no rule names it.
            Self::Open(_) => "{}".into(),
        }
    }

    /// True when it can stand in a list that rules look into.
    fn is_open(&self) -> bool {
        match self {
            Self::Open(_) => true,
            Self::List(of) => of.is_open(),
            Self::Fields(fields) => fields.values().any(|field| field.shape.is_open()),
            _ => false,
        }
    }
}

/// A record type in Cedar's words, without what cannot be judged.
pub(crate) fn record(fields: &Fields) -> String {
    let told = fields
        .iter()
        .filter(|(_, field)| !matches!(field.shape, Shape::Open(_)));
    let all: Vec<String> = told
        .map(|(name, field)| {
            let mark = if field.required { "" } else { "?" };
            format!("{}{mark}: {}", crate::cedar::quoted(name), field.shape.in_cedar())
        })
        .collect();
    format!("{{ {} }}", all.join(", "))
}

/// The arguments of a tool by its schema; the reason where it cannot be read at all.
pub(crate) fn fields_of(schema: &Value) -> Result<Fields, &'static str> {
    match shape(schema, schema, 0).0 {
        Shape::Fields(fields) => Ok(fields),
        // A tool without arguments.
        Shape::Open(_) if schema.get("type").and_then(Value::as_str) == Some("object") => Ok(Fields::new()),
        Shape::Open(why) => Err(why),
        _ => Err("it is not of the type `object`"),
    }
}

/// The shape, and whether it may be null.
fn shape(schema: &Value, whole: &Value, depth: usize) -> (Shape, bool) {
    let open = |why| (Shape::Open(why), true);
    if depth > DEPTH {
        return open("its schema is nested too deep");
    }
    let deeper = depth.saturating_add(1);
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return match target.strip_prefix('#').and_then(|pointer| whole.pointer(pointer)) {
            Some(found) if target.starts_with("#/") => shape(found, whole, deeper),
            _ => open("its schema refers to another one"),
        };
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(all) = schema.get(key).and_then(Value::as_array) {
            let of_null = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("null");
            let null = all.iter().any(|one| of_null(&one));
            let mut rest = all.iter().filter(|one| !of_null(one));
            return match (rest.next(), rest.next()) {
                (Some(one), None) => {
                    let (own, inner) = shape(one, whole, deeper);
                    (own, inner || null)
                }
                _ => open("its schema allows more than one type"),
            };
        }
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        return match all.as_slice() {
            [one] => shape(one, whole, deeper),
            _ => open("its schema is put together of several"),
        };
    }
    let listed = values_of(schema);
    let (kind, null) = match schema.get("type") {
        Some(Value::String(kind)) => (kind.as_str(), false),
        Some(Value::Array(kinds)) => {
            let null = kinds.iter().any(|kind| kind == "null");
            let mut rest = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            match (rest.next(), rest.next()) {
                (Some(kind), None) => (kind, null),
                _ => return open("its schema allows more than one type"),
            }
        }
        _ if matches!(listed, Some(Some(_))) => ("string", false),
        _ if schema.get("properties").is_some() => ("object", false),
        _ => return open("its schema says no type"),
    };
    let found = match kind {
        "string" => match listed {
            None => Shape::Text(None),
            Some(Some(values)) => Shape::Text(Some(values)),
            Some(None) => Shape::Open("its schema lists values that are no texts"),
        },
        "integer" => Shape::Whole,
        "number" => Shape::Number,
        "boolean" => Shape::Flag,
        "array" => match schema.get("items") {
            Some(items @ Value::Object(_)) => match shape(items, whole, deeper) {
                (_, true) => Shape::List(Box::new(Shape::Open("its entries may be null"))),
                (of, false) => Shape::List(Box::new(of)),
            },
            _ => Shape::List(Box::new(Shape::Open("its schema says not what its entries are"))),
        },
        "object" => fields(schema, whole, deeper),
        _ => Shape::Open("its schema names a type that JSON Schema does not have"),
    };
    (found, null)
}

fn fields(schema: &Value, whole: &Value, depth: usize) -> Shape {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Shape::Open("its schema says not which fields it has");
    };
    let required: BTreeSet<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let field = |(name, own): (&String, &Value)| {
        let (shape, null) = shape(own, whole, depth);
        let required = required.contains(name.as_str()) && !null;
        (name.clone(), Field { shape, required })
    };
    Shape::Fields(properties.iter().map(field).collect())
}

/// The values that a schema lists: texts; none inside where some are none. Null is left out.
fn values_of(schema: &Value) -> Option<Option<BTreeSet<String>>> {
    let all: Vec<&Value> = match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(all), _) => all.iter().filter(|value| !value.is_null()).collect(),
        (None, Some(one)) => vec![one],
        (None, None) => return None,
    };
    Some(all.iter().map(|value| value.as_str().map(ToOwned::to_owned)).collect())
}

/// What an argument at a place is, and whether every call has it.
pub(crate) fn at<'a>(fields: &'a Fields, path: &[String]) -> Option<(&'a Shape, bool)> {
    let (first, rest) = path.split_first()?;
    let field = fields.get(first)?;
    match (rest.is_empty(), &field.shape) {
        (true, shape) => Some((shape, field.required)),
        (false, Shape::Fields(inner)) => at(inner, rest).map(|(shape, required)| (shape, required && field.required)),
        (false, _) => None,
    }
}

/// Why a shape cannot be judged, where it cannot.
pub(crate) fn unjudged(shape: &Shape) -> Option<&'static str> {
    match shape {
        Shape::Open(why) => Some(why),
        Shape::List(of) if of.is_open() => match &**of {
            Shape::Open(why) => Some(why),
            _ => Some("its entries cannot be judged whole"),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(schema: &Value) -> String {
        record(&fields_of(schema).unwrap())
    }

    #[test]
    fn a_schema_is_read_as_kinds() {
        let schema = json!({
            "type": "object",
            "required": ["to", "amount", "who", "nothing"],
            "properties": {
                "to": {"type": "string"},
                "amount": {"type": "number"},
                "count": {"type": "integer"},
                "urgent": {"type": "boolean"},
                "labels": {"type": "array", "items": {"type": "string"}},
                "who": {"$ref": "#/$defs/Who"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "nothing": {"type": ["string", "null"]},
                "either": {"type": ["string", "integer"]},
                "meta": {"type": "object"},
                "kind": {"enum": ["a", "b"]},
                "when": {"type": "string", "format": "date-time"},
            },
            "$defs": {"Who": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]}},
        });
        assert_eq!(
            told(&schema),
            "{ \"amount\": __cedar::decimal, \"count\"?: Long, \"kind\"?: String, \"labels\"?: Set<String>, \"note\"?: String, \
             \"nothing\"?: String, \"to\": String, \"urgent\"?: Bool, \"when\"?: String, \"who\": { \"iban\": String } }"
        );
        let fields = fields_of(&schema).unwrap();
        let path = |text: &str| text.split('.').map(Into::into).collect::<Vec<String>>();
        assert_eq!(at(&fields, &path("who.iban")), Some((&Shape::Text(None), true)));
        assert_eq!(at(&fields, &path("who.name")), None);
        assert_eq!(at(&fields, &path("to.x")), None);
        assert_eq!(
            unjudged(at(&fields, &path("either")).unwrap().0),
            Some("its schema allows more than one type")
        );
    }

    #[test]
    fn p4_what_refers_to_itself_ends() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
        assert!(fields_of(&schema).is_ok());
        let schema = json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}});
        assert!(fields_of(&schema).is_err());
        assert!(fields_of(&json!({"type": "string"})).is_err());
        assert_eq!(fields_of(&json!({"type": "object"})), Ok(Fields::new()));
    }
}
