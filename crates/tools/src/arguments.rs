//! The arguments of a call, as the mediator judges them.
//!
//! Promises: P4, P5 (a number is judged by its text, exactly; what cannot be held exactly is refused by name).
//! Trust: the arguments are the agent's, read strictly (`strict`). What is sent on is written from the same value.

use std::collections::BTreeMap;

use bailiwick_model::{Argument, Decimal};
use serde_json::{Map, Value};

/// Fields as arguments. The error names the argument.
pub(crate) fn fields_of(fields: &Map<String, Value>) -> Result<Argument, String> {
    fields_at(fields, "")
}

fn fields_at(fields: &Map<String, Value>, at: &str) -> Result<Argument, String> {
    let mut all = BTreeMap::new();
    for (name, value) in fields {
        let at = if at.is_empty() {
            name.clone()
        } else {
            format!("{at}.{name}")
        };
        all.insert(name.clone(), argument_of(value, &at)?);
    }
    Ok(Argument::Fields(all))
}

/// A value as an argument. The error names the argument, and shows what is wrong with it.
pub(crate) fn argument_of(value: &Value, at: &str) -> Result<Argument, String> {
    Ok(match value {
        Value::Null => Argument::Null,
        Value::Bool(flag) => Argument::Flag(*flag),
        Value::String(text) => Argument::Text(text.clone()),
        Value::Number(number) => {
            let text = number.to_string();
            let decimal = Decimal::parse(&text).map_err(|fault| format!("`{at}`: {fault}"))?;
            match number.as_i64().or_else(|| decimal.to_string().parse().ok()) {
                Some(whole) => Argument::Whole(whole),
                None => Argument::Number(decimal),
            }
        }
        Value::Array(all) => Argument::List(
            all.iter()
                .enumerate()
                .map(|(position, value)| argument_of(value, &format!("{at}.{position}")))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => fields_at(fields, at)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(text: &str) -> Result<Argument, String> {
        argument_of(&serde_json::from_str(text).unwrap(), "x")
    }

    #[test]
    fn p5_numbers_are_judged_by_their_text() {
        assert_eq!(number("200"), Ok(Argument::Whole(200)));
        assert_eq!(number("-1"), Ok(Argument::Whole(-1)));
        assert_eq!(number("200.0"), Ok(Argument::Whole(200)), "the same number");
        assert_eq!(number("2e2"), Ok(Argument::Whole(200)));
        assert_eq!(
            number("199.999"),
            Ok(Argument::Number(Decimal::parse("199.999").unwrap()))
        );
        assert_eq!(number("0.1"), Ok(Argument::Number(Decimal::parse("0.1").unwrap())));
        assert!(number("1e300").unwrap_err().starts_with("`x`: "));
        assert!(number("1e-300").is_err());
    }

    #[test]
    fn what_is_within_is_named_by_its_place() {
        let Value::Object(fields) = json!({"a": {"b": [1, {"c": 1e200}]}, "t": "x", "n": null, "f": true}) else {
            panic!("fields")
        };
        assert!(fields_of(&fields).unwrap_err().starts_with("`a.b.1.c`: "));
        let Value::Object(fields) = json!({"a": {"b": [1]}, "t": "x"}) else {
            panic!("fields")
        };
        assert_eq!(
            fields_of(&fields).unwrap().to_string(),
            r#"{"a": {"b": [1]}, "t": "x"}"#
        );
    }
}
