//! Answers that are kept: what was decided about requests of the network, and what Cedar said of a set of rules.
//!
//! Promises: P14 (both are functions of what they are kept under and of rules that never change, so that keeping them
//! changes nothing: property tests hold the answers with and without them together), P4 (bounded: what is kept of one
//! request is short, and of many only the last).
//! Trust: requests come from gates that read what an agent sent; it may ask for something else each time.
//! Not here: decisions about whole trees (`trees`).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use bailiwick_model::{Argument, Decision, Request, Resource, TaskId, ToolName, Verb};

/// Most decisions that are kept in each half.
const DECISIONS: usize = 256;

/// Most sets of rules of which is kept what Cedar said, in each half.
const SETS: usize = 1024;

/// Longest text in a request whose decision is kept, in bytes.
const LONGEST: usize = 1024;

/// What was asked for last: a half that fills, and the one that was full before it.
#[derive(Debug)]
struct Halves<K, V> {
    filling: HashMap<K, V>,
    before: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V: Clone> Halves<K, V> {
    fn new(most: usize) -> Self {
        Self {
            filling: HashMap::new(),
            before: HashMap::new(),
            most,
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(known) = self.filling.get(key) {
            return Some(known.clone());
        }
        let (key, known) = self.before.remove_entry(key)?;
        self.put(key, known.clone());
        Some(known)
    }

    fn put(&mut self, key: K, value: V) {
        if self.filling.len() >= self.most {
            self.before = std::mem::take(&mut self.filling);
        }
        self.filling.insert(key, value);
    }
}

/// What Cedar was asked: a verb, of a tool its name, and the rules that were handed to it.
type Set = (Verb, Option<ToolName>, Vec<usize>);

/// What is kept.
#[derive(Debug)]
pub(crate) struct Remembered {
    decisions: Mutex<Halves<Request, Decision>>,
    sets: Mutex<Halves<Set, Vec<usize>>>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            decisions: Mutex::new(Halves::new(DECISIONS)),
            sets: Mutex::new(Halves::new(SETS)),
        }
    }
}

/// The answer under a key: kept, or made now. Nothing is held while it is made; a fault is not kept.
fn known_or<K: Eq + Hash, V: Clone, E>(
    all: &Mutex<Halves<K, V>>,
    key: K,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<V, E> {
    let known = all.lock().unwrap_or_else(PoisonError::into_inner).get(&key);
    if let Some(known) = known {
        return Ok(known);
    }
    let made = make()?;
    all.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .put(key, made.clone());
    Ok(made)
}

/// True for a request whose decision is kept: one of the network, with short texts.
fn is_kept(request: &Request) -> bool {
    let short = match &request.resource {
        Resource::Url(url) => url.target().len() <= LONGEST,
        Resource::Endpoint { .. } | Resource::Name(_) => true,
        Resource::Repository { .. }
        | Resource::File(_)
        | Resource::Tree(_)
        | Resource::Command(_)
        | Resource::Secret(_)
        | Resource::Tool(_) => false,
    };
    let brief = |argument: &Argument| match argument {
        Argument::Text(text) => text.len() <= LONGEST,
        Argument::Whole(_) | Argument::Flag(_) | Argument::Address(_) => true,
        Argument::Number(_) | Argument::Null | Argument::List(_) | Argument::Fields(_) => false,
    };
    short && request.label.is_empty() && request.arguments.values().all(brief)
}

impl Remembered {
    /// The decision about a request. The rules do not know which task asks.
    pub(crate) fn decision(&self, request: &Request, judge: impl FnOnce() -> Decision) -> Decision {
        if !is_kept(request) {
            return judge();
        }
        let key = Request {
            task: TaskId([0; 8]),
            ..request.clone()
        };
        match known_or(&self.decisions, key, || Ok::<_, std::convert::Infallible>(judge())) {
            Ok(decision) => decision,
            Err(never) => match never {},
        }
    }

    /// Which of these rules are satisfied, where that depends on the verb, the name of a tool, and them alone: each is about
    /// the resource, and none has a condition.
    pub(crate) fn satisfied<E>(
        &self,
        verb: &Verb,
        tool: Option<&ToolName>,
        rules: &[usize],
        ask: impl FnOnce() -> Result<Vec<usize>, E>,
    ) -> Result<Vec<usize>, E> {
        known_or(&self.sets, (verb.clone(), tool.cloned(), rules.to_vec()), ask)
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{Code, HttpUrl};

    use super::*;

    fn request(text: &str) -> Request {
        let url = HttpUrl::parse(text).unwrap();
        Request::new(TaskId([1; 8]), "GET".parse().unwrap(), Resource::Url(url))
    }

    #[test]
    fn p4_only_so_much_is_kept() {
        let remembered = Remembered::default();
        let decide = |number: usize| {
            let made = std::cell::Cell::new(false);
            remembered.decision(&request(&format!("http://a.test/{number}")), || {
                made.set(true);
                Decision::deny(Code::NoRule, number.to_string())
            });
            made.get()
        };
        assert!((0..10 * DECISIONS).all(decide));
        let held = remembered.decisions.lock().unwrap();
        assert!(held.filling.len() + held.before.len() <= 2 * DECISIONS);
        drop(held);
        assert!(!decide(10 * DECISIONS - 1), "the last is kept");
        assert!(decide(0), "the first is not");
        let long = request(&format!("http://a.test/{}", "a".repeat(LONGEST)));
        let twice = [(); 2].map(|()| remembered.decision(&long, || Decision::deny(Code::NoRule, "")));
        assert_eq!(twice[0], twice[1]);
        assert!(!remembered.decisions.lock().unwrap().filling.contains_key(&Request {
            task: TaskId([0; 8]),
            ..long
        }));
    }

    #[test]
    fn p4_a_fault_is_not_kept() {
        let remembered = Remembered::default();
        let verb: Verb = "GET".parse().unwrap();
        assert_eq!(
            remembered.satisfied(&verb, None, &[1, 2], || Err("fault")),
            Err("fault")
        );
        assert_eq!(
            remembered.satisfied(&verb, None, &[1, 2], || Ok::<_, &str>(vec![1])),
            Ok(vec![1])
        );
        assert_eq!(remembered.satisfied(&verb, None, &[1, 2], || Err("fault")), Ok(vec![1]));
        assert_eq!(remembered.satisfied(&verb, None, &[1], || Err("fault")), Err("fault"));
    }
}
