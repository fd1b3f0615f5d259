//! Values that the agent may pass on and not see.
//!
//! Answers: what stands for a value, and when is it opened?
//! Promises: P6, P9 (a value behind a handle leaves the gate only in an argument that a permit opens; a name that was not
//! given out, or not in this task, opens nothing).
//! Trust: the agent sees the names and may send any text for one. They are random and longer than can be guessed.
//! Not here: which results become handles, and where one is opened: both are obligations of a permit.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::limits;

/// What every handle's name begins with.
const PREFIX: &str = "bailiwick-handle-";

/// How many hex digits follow.
const DIGITS: usize = 32;

struct Kept {
    value: Value,
    /// Where it came from: `SERVER/TOOL`.
    origin: String,
    bytes: usize,
}

#[derive(Default)]
struct State {
    kept: HashMap<String, Kept>,
    /// The names, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// The handles of one task.
#[derive(Default)]
pub(crate) struct Handles(Mutex<State>);

impl Handles {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a value; what stands for it.
    pub(crate) fn keep(&self, value: Value, origin: &str) -> io::Result<String> {
        let bytes = value.to_string().len();
        if bytes > limits::HANDLE_BYTES {
            return Err(io::Error::other("a value is too large to be kept behind a handle"));
        }
        let mut random = [0u8; DIGITS / 2];
        fill(&mut random)?;
        let name = format!("{PREFIX}{}", hex::encode(random));
        let mut state = self.lock();
        while state.order.len() >= limits::HANDLES || state.bytes.saturating_add(bytes) > limits::HANDLE_BYTES {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(gone) = state.kept.remove(&oldest) {
                state.bytes = state.bytes.saturating_sub(gone.bytes);
            }
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.order.push_back(name.clone());
        let origin = origin.to_owned();
        state.kept.insert(name.clone(), Kept { value, origin, bytes });
        Ok(name)
    }

    /// The value behind a name, and where it came from.
    pub(crate) fn open(&self, name: &str) -> Option<(Value, String)> {
        let state = self.lock();
        state
            .kept
            .get(name)
            .map(|kept| (kept.value.clone(), kept.origin.clone()))
    }
}

/// True when a text is a handle's name, given out or not.
pub(crate) fn is_handle(text: &str) -> bool {
    let digits = text.strip_prefix(PREFIX);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Where handles stand in arguments, each as a whole value: the path and the name. An error where one stands in a longer
/// text, or as a name.
pub(crate) fn handles_in(value: &Value) -> Result<Vec<(Vec<String>, String)>, String> {
    let mut found = Vec::new();
    look(value, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn look(value: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) -> Result<(), String> {
    match value {
        Value::String(text) if is_handle(text) => found.push((path.clone(), text.clone())),
        Value::String(text) if text.contains(PREFIX) => {
            return Err(format!("`{}` holds a handle among other text", path.join(".")));
        }
        Value::Array(all) => {
            for (position, value) in all.iter().enumerate() {
                path.push(position.to_string());
                look(value, path, found)?;
                path.pop();
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                if name.contains(PREFIX) {
                    return Err("a handle stands as a name".into());
                }
                path.push(name.clone());
                look(value, path, found)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

/// What may be said of a value behind a handle: its kind and its size, nothing of what it says.
pub(crate) fn summary(value: &Value) -> Value {
    match value {
        Value::Null => json!({"type": "null"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "number"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(all) => json!({"type": "array", "items": all.len()}),
        Value::Object(map) => json!({"type": "object", "fields": map.len()}),
    }
}

/// Fills bytes with randomness from the kernel.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let got = rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        at = at.saturating_add(got);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_only_a_name_that_was_given_out_opens_anything() {
        let handles = Handles::default();
        let name = handles.keep(json!({"card": "4111"}), "bank/card").unwrap();
        assert!(is_handle(&name) && !name.contains("4111"));
        assert_eq!(
            handles.open(&name).unwrap(),
            (json!({"card": "4111"}), "bank/card".into())
        );
        assert_eq!(handles.open(&format!("{PREFIX}{}", "0".repeat(DIGITS))), None);
        assert_ne!(
            handles.keep(json!(1), "a/b").unwrap(),
            handles.keep(json!(1), "a/b").unwrap()
        );
        assert_eq!(Handles::default().open(&name), None, "another task");
    }

    #[test]
    fn p4_handles_are_bounded_and_the_oldest_go() {
        let handles = Handles::default();
        let first = handles.keep(json!(0), "a/b").unwrap();
        for n in 0..limits::HANDLES {
            handles.keep(json!(n), "a/b").unwrap();
        }
        assert_eq!(handles.open(&first), None);
        assert_eq!(handles.lock().order.len(), limits::HANDLES);
        let large = Value::from("x".repeat(limits::HANDLE_BYTES / 2));
        let one = handles.keep(large.clone(), "a/b").unwrap();
        handles.keep(large.clone(), "a/b").unwrap();
        assert_eq!(handles.open(&one), None);
        assert!(handles.lock().bytes <= limits::HANDLE_BYTES);
        assert!(
            handles
                .keep(Value::from("x".repeat(limits::HANDLE_BYTES)), "a/b")
                .is_err()
        );
    }

    #[test]
    fn p6_a_handle_is_found_only_as_a_whole_value() {
        let name = format!("{PREFIX}{}", "a".repeat(DIGITS));
        let found = handles_in(&json!({"to": {"card": name}, "all": [1, name]})).unwrap();
        let mut paths: Vec<String> = found.iter().map(|(path, _)| path.join(".")).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["all.1", "to.card"]);
        assert!(handles_in(&json!({"text": format!("pay {name}")})).is_err());
        assert!(handles_in(&json!({name: 1})).is_err());
        assert_eq!(handles_in(&json!({"text": "plain"})).unwrap(), []);
    }
}
