//! What was decided about whole trees: each task of a context asks for the same ones when it begins.
//!
//! Promises: P14: a decision by the rules alone is a function of verb and tree, so that remembering it changes nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bailiwick_model::{AbsPath, Decision, Verb};

/// Most decisions that are remembered; others are made again each time.
const MAX: usize = 4096;

/// Decisions about whole trees.
#[derive(Debug, Default)]
pub(crate) struct Trees(Mutex<HashMap<(Verb, AbsPath), Decision>>);

impl Trees {
    /// The decision about a tree: remembered, or made now.
    pub(crate) fn remember(&self, verb: &Verb, tree: &AbsPath, judge: impl FnOnce() -> Decision) -> Decision {
        let key = (verb.clone(), tree.clone());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let decision = judge();
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() < MAX {
                all.insert(key, decision.clone());
            }
            decision
        })
    }
}
