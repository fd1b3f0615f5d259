//! Values that the agent may pass on and not see.
//!
//! Answers: what stands for a value, and when is it opened?
//! Promises: P6, P9 (a value behind a handle leaves the gate only in an argument that a permit opens; a name that was not
//! given out, or not in this task, opens nothing).
//! Trust: the agent sees the names and may send any text for one. They are random and longer than can be guessed.
//! Not here: which results become handles, and where one is opened: both are obligations of a permit.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_model::Label;
use serde_json::{Value, json};

use crate::limits;

/// What every handle's name begins with.
const PREFIX: &str = "bailiwick-handle-";

/// How many hex digits follow.
const DIGITS: usize = 32;

/// What was given out together: all that one place named in one answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Given {
    /// The tool that answered: `SERVER/TOOL`.
    pub(crate) tool: String,
    /// The place, as the rule writes it; none for what could not be looked into.
    pub(crate) place: Option<String>,
    /// The values, in order.
    pub(crate) all: Vec<Value>,
    /// The tags on them.
    pub(crate) label: Label,
}

struct Kept {
    given: Arc<Given>,
    /// Which of them.
    position: usize,
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

    /// Keeps what one place named; the names that stand for the values, in order.
    pub(crate) fn keep(&self, given: Given) -> io::Result<Vec<String>> {
        let bytes: Vec<usize> = given.all.iter().map(|value| value.to_string().len()).collect();
        let whole = bytes.iter().fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
        if whole > limits::HANDLE_BYTES || bytes.len() > limits::HANDLES {
            return Err(io::Error::other(
                "what a rule gives as handles is too much to be kept behind them",
            ));
        }
        let mut names = Vec::with_capacity(bytes.len());
        for _ in &bytes {
            let mut random = [0u8; DIGITS / 2];
            fill(&mut random)?;
            names.push(format!("{PREFIX}{}", hex::encode(random)));
        }
        let mut state = self.lock();
        // What is given out together goes together, but for the oldest: so what is kept is what is counted.
        while state.order.len().saturating_add(names.len()) > limits::HANDLES
            || state.bytes.saturating_add(whole) > limits::HANDLE_BYTES
        {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(gone) = state.kept.remove(&oldest) {
                state.bytes = state.bytes.saturating_sub(gone.bytes);
            }
        }
        let given = Arc::new(given);
        for (position, (name, bytes)) in names.iter().zip(bytes).enumerate() {
            let given = Arc::clone(&given);
            state.bytes = state.bytes.saturating_add(bytes);
            state.order.push_back(name.clone());
            let kept = Kept { given, position, bytes };
            state.kept.insert(name.clone(), kept);
        }
        Ok(names)
    }

    /// The tags on all that these names stand for.
    pub(crate) fn label_of<'a>(&self, names: impl Iterator<Item = &'a String>) -> Label {
        let state = self.lock();
        let kept = names.filter_map(|name| state.kept.get(name));
        kept.fold(Label::default(), |sum, kept| sum.joined(&kept.given.label))
    }

    /// The value behind a name, and with what it was given out.
    pub(crate) fn open(&self, name: &str) -> Option<(Value, Arc<Given>)> {
        let state = self.lock();
        let kept = state.kept.get(name)?;
        Some((kept.given.all.get(kept.position)?.clone(), Arc::clone(&kept.given)))
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

    fn keep(handles: &Handles, all: Vec<Value>) -> io::Result<Vec<String>> {
        handles.keep(Given {
            tool: "bank/card".into(),
            place: Some("/cards/*".into()),
            all,
            label: Label::default(),
        })
    }

    #[test]
    fn p6_only_a_name_that_was_given_out_opens_anything() {
        let handles = Handles::default();
        let names = keep(
            &handles,
            vec![json!({"card": "4111222233334444"}), json!({"card": "4222"})],
        )
        .unwrap();
        assert!(
            names
                .iter()
                .all(|name| is_handle(name) && !name.contains("4111222233334444"))
        );
        let (value, given) = handles.open(&names[1]).unwrap();
        assert_eq!((value, given.tool.as_str()), (json!({"card": "4222"}), "bank/card"));
        assert_eq!(given.all.len(), 2);
        assert_eq!(handles.open(&format!("{PREFIX}{}", "0".repeat(DIGITS))), None);
        assert_ne!(
            keep(&handles, vec![json!(1)]).unwrap(),
            keep(&handles, vec![json!(1)]).unwrap()
        );
        assert_eq!(Handles::default().open(&names[0]), None, "another task");
    }

    #[test]
    fn p4_handles_are_bounded_and_the_oldest_go() {
        let handles = Handles::default();
        let first = keep(&handles, vec![json!(0)]).unwrap();
        for n in 0..limits::HANDLES {
            keep(&handles, vec![json!(n)]).unwrap();
        }
        assert_eq!(handles.open(&first[0]), None);
        assert_eq!(handles.lock().order.len(), limits::HANDLES);
        let large = Value::from("x".repeat(limits::HANDLE_BYTES / 2));
        let one = keep(&handles, vec![large.clone()]).unwrap();
        keep(&handles, vec![large]).unwrap();
        assert_eq!(handles.open(&one[0]), None);
        assert!(handles.lock().bytes <= limits::HANDLE_BYTES);
        assert!(keep(&handles, vec![Value::from("x".repeat(limits::HANDLE_BYTES))]).is_err());
        assert!(keep(&handles, vec![json!(0); limits::HANDLES + 1]).is_err());
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
