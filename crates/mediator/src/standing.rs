//! Standing permits: the trees that are granted whole when a task begins.
//!
//! Promises: P1 (a tree is granted by a permit like anything else, recorded with its extent), P4 (what is not allowed
//! outright is not granted). Not here: laying the trees into a fence (whoever holds the permits).

use bailiwick_gate::{Mediator as _, Outcome, Permit};
use bailiwick_model::{AbsPath, Code, Nonce, Obligation, Request, Resource, TaskId, Verb};

use crate::monitor::{Mediator, TaskFault};
use crate::task::lock;

impl Mediator {
    /// Asks for every tree that the task's rules may allow whole, widest first, and returns the permits.
    ///
    /// Trees for which `exists` says no are not asked for: there is nothing to grant. A tree that lies in one already granted by the same or a stronger verb is not asked for again, unless it is
    /// hidden or guarded there. What is asked and not allowed stands on record, and is not returned. A tree that may be
    /// written is handed over to be read, too: one whose reading a rule denies is not granted at all.
    pub fn grant_trees(
        &self,
        id: TaskId,
        exists: &dyn Fn(&Verb, &AbsPath) -> bool,
    ) -> Result<Vec<(Request, Permit)>, TaskFault> {
        let task = self.task(id).ok_or(TaskFault::Unknown(id))?;
        let mut candidates = task.policy.tree_candidates();
        candidates.sort_by_key(|(verb, tree)| (tree.segments().count(), tree.clone(), *verb == Verb::Read));
        candidates.dedup();
        candidates.retain(|(verb, tree)| exists(verb, tree));
        let mut granted: Vec<(Request, Permit)> = Vec::new();
        for (verb, tree) in candidates {
            let request = Request::new(id, verb, Resource::Tree(tree));
            if granted.iter().any(|(wide, permit)| holds(wide, permit, &request)) || self.reading_is_denied(&request) {
                continue;
            }
            if let Outcome::Allow(permit) = self.decide(&request) {
                granted.push((request, permit));
            }
        }
        Ok(granted)
    }

    fn reading_is_denied(&self, request: &Request) -> bool {
        let reading = Request::new(request.task, Verb::Read, request.resource.clone());
        matches!(request.verb, Verb::Write | Verb::Keep) && self.question(&reading).code == Code::DeniedByRule
    }

    /// Closes the permits of trees that have been laid into the fence. They get no records of their own: what was
    /// granted stands in their decisions, and that the fence stands is told by the settlement of the program's start.
    pub fn settle_trees(&self, id: TaskId, nonces: &[Nonce]) -> Result<(), TaskFault> {
        let task = self.task(id).ok_or(TaskFault::Unknown(id))?;
        let _writer = lock(&task.writer);
        let mut state = task.state();
        for nonce in nonces {
            state.close(nonce);
        }
        Ok(())
    }
}

/// True when a tree that has been granted gives all that is asked for here.
fn holds(wide: &Request, permit: &Permit, narrow: &Request) -> bool {
    let (Resource::Tree(outer), Resource::Tree(inner)) = (&wide.resource, &narrow.resource) else {
        return false;
    };
    let closed = permit.terms().obligations.iter().any(|obligation| match obligation {
        Obligation::Hide { pattern } | Obligation::Guard { pattern } => pattern.covers(inner),
        Obligation::DialAddress { .. } | Obligation::MatchServerName => false,
    });
    outer.holds(inner) && is_as_strong(&wide.verb, &narrow.verb) && !closed
}

fn is_as_strong(wide: &Verb, narrow: &Verb) -> bool {
    // What is kept is another folder than the one of that name: no grant of the latter gives it.
    wide == narrow || (*wide == Verb::Write && narrow.is_file() && *narrow != Verb::Keep)
}
