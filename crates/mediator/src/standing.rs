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
        let mut candidates = task.policy().tree_candidates();
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

    /// The trees whose files are to be asked about one by one, with what is hidden and guarded in each: those that the rules
    /// neither grant nor deny. One that lies in another of them is part of that, unless a granted tree lies between.
    pub fn asked_trees(
        &self,
        id: TaskId,
        granted: &[AbsPath],
        exists: &dyn Fn(&AbsPath) -> bool,
    ) -> Result<Vec<(AbsPath, Vec<Obligation>)>, TaskFault> {
        let task = self.task(id).ok_or(TaskFault::Unknown(id))?;
        let mut candidates = task.policy().asked_candidates();
        candidates.sort_by_key(|tree| (tree.segments().count(), tree.clone()));
        candidates.dedup();
        let mut asked: Vec<AbsPath> = Vec::new();
        for tree in candidates.into_iter().filter(|tree| exists(tree)) {
            let all = asked
                .iter()
                .map(|above| (above, true))
                .chain(granted.iter().map(|above| (above, false)));
            let nearest = all
                .filter(|(above, _)| above.holds(&tree))
                .max_by_key(|(above, is_asked)| (above.segments().count(), *is_asked));
            if !nearest.is_some_and(|(_, is_asked)| is_asked) && self.is_asked(id, &tree) {
                asked.push(tree);
            }
        }
        let with_duties = |tree: AbsPath| {
            let whole = Request::new(id, Verb::Write, Resource::Tree(tree.clone()));
            (tree, task.policy().evaluate(&whole).obligations)
        };
        Ok(asked.into_iter().map(with_duties).collect())
    }

    fn is_asked(&self, id: TaskId, tree: &AbsPath) -> bool {
        let code = |verb: Verb| {
            self.question(&Request::new(id, verb, Resource::Tree(tree.clone())))
                .code
        };
        // With nobody there, what would be asked is a no: names are shown all the same.
        [Verb::Read, Verb::Write]
            .into_iter()
            .any(|verb| matches!(code(verb), Code::AskedByRule | Code::FourEyes | Code::NobodyToAsk))
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
        Obligation::Hide { pattern } | Obligation::Guard { pattern } | Obligation::Ask { pattern } => {
            pattern.covers(inner)
        }
        Obligation::DialAddress { .. }
        | Obligation::MatchServerName
        | Obligation::Inject { .. }
        | Obligation::RequestBody { .. }
        | Obligation::Answer { .. }
        | Obligation::PinKey { .. }
        | Obligation::Tool(_) => false,
    });
    outer.holds(inner) && is_as_strong(&wide.verb, &narrow.verb) && !closed
}

fn is_as_strong(wide: &Verb, narrow: &Verb) -> bool {
    // What is kept is another folder than the one of that name: no grant of the latter gives it.
    wide == narrow || (*wide == Verb::Write && narrow.is_file() && *narrow != Verb::Keep)
}
