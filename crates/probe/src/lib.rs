//! Attempts at getting out of a fence: a table of what to try, and a program that tries it.
//!
//! Answers: what can a hostile program in here learn, change, disturb or tell, by which road?
//! Promises: none of its own; it shows P1, P2, P5, P9 and P13 from the attacker's side.
//! Trust: an attempt says what it *believes* it got. Whoever runs it judges by the effect: by bait that only they know, by
//! what is different afterwards, by what was heard outside ([`Goal`]).
//! Not here: the world with bait, and the judge (`tests`). No rule, no fence and no mediator is known here.

mod attempts;
mod sys;
mod victim;
mod world;

pub use attempts::families;
pub use victim::{be_keeper, be_victim};
pub use world::World;

/// Attempts of one kind.
#[derive(Debug)]
pub struct Family {
    /// What they have in common.
    pub name: &'static str,
    /// The attempts.
    pub attempts: Vec<Attempt>,
}

/// One attempt.
#[derive(Debug)]
pub struct Attempt {
    /// Its name, unique among all.
    pub id: String,
    /// What it is after, and so how it is judged.
    pub goal: Goal,
    /// What it needs outside to succeed at all.
    pub needs: Needs,
    /// What it does.
    act: Act,
}

/// What an attempt is after. Each kind is judged from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The secret that the bait holds: it stands in the detail.
    Learn,
    /// A place that must be as it was: see [`World::place`].
    Change(&'static str),
    /// The set-user-id or set-group-id bit on a place.
    SetId(&'static str),
    /// The world's word, heard by a server, a terminal or a process outside.
    Tell,
    /// Another process: ended, stopped, slowed, limited or written to.
    Disturb,
    /// A process that is still there when the run has ended.
    Outlive,
    /// A facility of the kernel: the attempt used it and says so.
    Gain,
    /// Something that a fence must leave possible. It shows that the probe is not blind.
    Keep,
}

/// What an attempt needs outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but the world.
    Nothing,
    /// To be root.
    Root,
    /// To be a user that owns no other process: what it does reaches all of them.
    NobodyElse,
}

#[derive(Debug)]
enum Act {
    Plain(fn(&World) -> Tried),
    At(fn(&World, &'static str) -> Tried, &'static str),
}

/// What came of an attempt, as far as it can tell itself: what it got, or why it did not.
pub type Tried = Result<String, Refused>;

/// Why an attempt did not get what it was after.
#[derive(Debug)]
pub enum Refused {
    /// It was stopped.
    Stopped(String),
    /// The machine has no such thing.
    NotHere(String),
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        const ABSENT: [i32; 7] = [
            libc::ENOSYS,
            libc::EAFNOSUPPORT,
            libc::EPROTONOSUPPORT,
            libc::ESOCKTNOSUPPORT,
            libc::EOPNOTSUPP,
            libc::ENODEV,
            libc::ENOPROTOOPT,
        ];
        match error.raw_os_error() {
            Some(number) if ABSENT.contains(&number) => Self::NotHere(error.to_string()),
            _ => Self::Stopped(error.to_string()),
        }
    }
}

impl From<&str> for Refused {
    fn from(cause: &str) -> Self {
        Self::Stopped(cause.into())
    }
}

impl From<String> for Refused {
    fn from(cause: String) -> Self {
        Self::Stopped(cause)
    }
}

impl Attempt {
    fn new(id: &str, goal: Goal, act: fn(&World) -> Tried) -> Self {
        Self {
            id: id.into(),
            goal,
            needs: Needs::Nothing,
            act: Act::Plain(act),
        }
    }

    fn at(id: String, goal: Goal, act: fn(&World, &'static str) -> Tried, place: &'static str) -> Self {
        Self {
            id,
            goal,
            needs: Needs::Nothing,
            act: Act::At(act, place),
        }
    }

    fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    /// Tries it, in this very process: it may end or change the process.
    pub fn run(&self, world: &World) -> Tried {
        match self.act {
            Act::Plain(act) => act(world),
            Act::At(act, place) => act(world, place),
        }
    }
}

/// One attempt's line of output.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Line {
    /// The attempt.
    pub id: String,
    /// Its family.
    pub family: String,
    /// What it believes of itself.
    pub outcome: Outcome,
    /// What it got, or why it did not.
    pub detail: String,
}

/// What an attempt believes of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It got what it was after.
    Achieved,
    /// It was stopped.
    Refused,
    /// The machine has no such thing.
    NotApplicable,
}

impl Line {
    /// The line of an attempt that was tried.
    pub fn of(id: &str, family: &str, tried: Tried) -> Self {
        let (outcome, detail) = match tried {
            Ok(detail) => (Outcome::Achieved, detail),
            Err(Refused::Stopped(cause)) => (Outcome::Refused, cause),
            Err(Refused::NotHere(cause)) => (Outcome::NotApplicable, cause),
        };
        Self {
            id: id.into(),
            family: family.into(),
            outcome,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_attempt_has_a_name_of_its_own_and_there_are_many() {
        let families = super::families();
        let names: Vec<&str> = families
            .iter()
            .flat_map(|f| &f.attempts)
            .map(|a| a.id.as_str())
            .collect();
        let set: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), set.len(), "a name stands twice");
        assert!(names.len() > 500, "{}", names.len());
        assert!(families.iter().all(|family| !family.attempts.is_empty()));
    }
}
