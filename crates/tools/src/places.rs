//! Places inside a result or inside arguments.
//!
//! Answers: which parts of a JSON value does a rule mean by `/case/notes` or `items[*].price`?
//! Promises: P6 (what a rule names is found wherever it stands; a place that cannot be read is none, and refused).
//! Trust: places are written by people; the values are a server's.
//! See: RFC 6901 (JSON Pointer); `*` stands for every name and every position.

use serde_json::Value;

/// One step down.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A name, or a position.
    Name(String),
    /// Every one.
    Any,
}

/// A place: a JSON Pointer, or names apart by dots with `[n]` and `[*]`. The empty one is the whole value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was written.
    text: String,
    steps: Vec<Step>,
}

impl Place {
    /// Reads a place; none where it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let step = |text: &str| match text {
            "*" => Step::Any,
            text => Step::Name(text.replace("~1", "/").replace("~0", "~")),
        };
        let of = |steps| {
            let text = text.to_owned();
            Some(Self { text, steps })
        };
        if text.is_empty() || text == "$" {
            return of(Vec::new());
        }
        if let Some(pointer) = text.strip_prefix('/') {
            return of(pointer.split('/').map(step).collect());
        }
        let mut steps = Vec::new();
        for part in text.strip_prefix("$.").unwrap_or(text).split('.') {
            let (name, mut positions) = match part.find('[') {
                Some(at) => part.split_at(at),
                None => (part, ""),
            };
            if !name.is_empty() {
                steps.push(step(name));
            } else if positions.is_empty() {
                return None;
            }
            while let Some(rest) = positions.strip_prefix('[') {
                let (position, rest) = rest.split_once(']')?;
                let is_position =
                    position == "*" || (!position.is_empty() && position.bytes().all(|b| b.is_ascii_digit()));
                if !is_position {
                    return None;
                }
                steps.push(step(position));
                positions = rest;
            }
            if !positions.is_empty() {
                return None;
            }
        }
        of(steps)
    }

    /// The place, as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Does something to every part that the place means. Says how many there were.
    pub(crate) fn each(&self, value: &mut Value, change: &mut dyn FnMut(&mut Value)) -> usize {
        each(&self.steps, value, change)
    }

    /// True when the place means this very part: names and positions from the top.
    pub(crate) fn is(&self, path: &[String]) -> bool {
        self.steps.len() == path.len()
            && self.steps.iter().zip(path).all(|(step, at)| match step {
                Step::Any => true,
                Step::Name(name) => name == at,
            })
    }
}

fn each(steps: &[Step], value: &mut Value, change: &mut dyn FnMut(&mut Value)) -> usize {
    let Some((step, rest)) = steps.split_first() else {
        change(value);
        return 1;
    };
    match (step, value) {
        (Step::Any, Value::Object(map)) => map.values_mut().map(|value| each(rest, value, change)).sum(),
        (Step::Any, Value::Array(all)) => all.iter_mut().map(|value| each(rest, value, change)).sum(),
        (Step::Name(name), Value::Object(map)) => map.get_mut(name).map_or(0, |value| each(rest, value, change)),
        (Step::Name(name), Value::Array(all)) => match name.parse::<usize>() {
            Ok(position) => all.get_mut(position).map_or(0, |value| each(rest, value, change)),
            // A name after a list means the name in each of its items: rules are written for one record.
            Err(_) => all.iter_mut().map(|value| each(steps, value, change)).sum(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gone(place: &str, mut value: Value) -> Value {
        Place::parse(place)
            .unwrap()
            .each(&mut value, &mut |part| *part = json!("-"));
        value
    }

    #[test]
    fn p6_places_are_found_wherever_they_stand() {
        let value = json!({"case": {"notes": "n", "id": 1}, "items": [{"price": 1, "x": 2}, {"price": 3}]});
        let notes = json!({"case": {"notes": "-", "id": 1}, "items": [{"price": 1, "x": 2}, {"price": 3}]});
        assert_eq!(gone("/case/notes", value.clone()), notes);
        assert_eq!(gone("case.notes", value.clone()), notes);
        let prices = json!({"case": {"notes": "n", "id": 1}, "items": [{"price": "-", "x": 2}, {"price": "-"}]});
        for place in [
            "/items/*/price",
            "items[*].price",
            "items.price",
            "/items/price",
            "$.items[*].price",
        ] {
            assert_eq!(gone(place, value.clone()), prices, "{place}");
        }
        assert_eq!(gone("items[1]", json!({"items": [1, 2]})), json!({"items": [1, "-"]}));
        assert_eq!(gone("", json!([1])), json!("-"));
        assert_eq!(gone("/a~1b", json!({"a/b": 1})), json!({"a/b": "-"}));
        assert_eq!(gone("x", json!([[{"x": 1}]])), json!([[{"x": "-"}]]));
        assert_eq!(gone("nowhere", json!({"a": 1})), json!({"a": 1}));
    }

    #[test]
    fn p4_what_is_no_place_is_refused() {
        for bad in ["a..b", "a[", "a[x]", "a[1]b", ".", "a[]"] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
