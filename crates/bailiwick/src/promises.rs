//! What each level of fence keeps of the promises: the one table behind `doctor`, the summary of a run and
//! `docs/security/claims.md`.
//!
//! Answers: how far is each promise kept here, and by what is it not kept whole? Computed from the parts that a level
//! has and from what this build does not have yet; nobody writes it down twice.
//! Promises: P13 (what is weaker is said before the agent starts).

use bailiwick_model::Level;

/// What a fence can be made of. A level has some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A root of its own, on which only what is granted is mounted.
    Root,
    /// A network of its own.
    Network,
    /// A process table of its own.
    Processes,
    /// Every call that opens a file, also to read it, is held and judged.
    Opens,
    /// Scratch folders in memory, with a bound.
    Bound,
}

/// The parts of a level.
const fn parts(level: Level) -> &'static [Part] {
    match level {
        Level::Namespace => &[Part::Root, Part::Network, Part::Processes, Part::Bound],
        Level::Process => &[Part::Opens],
    }
}

/// How far a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// As it is written, for what this build can do at all.
    Enforced,
    /// With the exceptions named.
    Partly,
    /// Not: no fence can be put up, or what would keep it is not built.
    Not,
}

impl Kept {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Partly => "partly",
            Self::Not => "not",
        }
    }
}

/// Why something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The level does not have this part.
    Of(Part),
    /// This build does not have it.
    Build,
}

/// One promise.
#[derive(Debug)]
pub struct Promise {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What is done for it; none where nothing is built yet.
    how: Option<&'static str>,
    /// True when it hangs on the fence: without one, nothing runs, and so nothing is kept either.
    fence: bool,
    /// What is missing, and why.
    lacks: &'static [(Lack, &'static str)],
}

const NONE_YET: &[(Lack, &str)] = &[];

/// Every promise.
pub const PROMISES: [Promise; 14] = [
    Promise {
        id: "P1",
        name: "complete",
        how: Some("nothing can be reached but what is granted"),
        fence: true,
        lacks: &[
            (
                Lack::Of(Part::Opens),
                "a hidden file that is made or replaced from outside while the task runs can be read until it is covered, within a second",
            ),
            (
                Lack::Of(Part::Root),
                "whether a file exists, its size, owner and times can be seen anywhere",
            ),
            (
                Lack::Of(Part::Root),
                "a hidden file that is an executable program can be run",
            ),
            (Lack::Of(Part::Processes), "the machine's processes can be seen"),
            (
                Lack::Of(Part::Network),
                "what listens inside is open to the machine's other users and programs",
            ),
            (Lack::Of(Part::Bound), "scratch folders lie on disk, without a bound"),
        ],
    },
    Promise {
        id: "P2",
        name: "ceiling",
        how: Some("the person's own user, never root, and the person's ceiling over every rule"),
        fence: true,
        lacks: NONE_YET,
    },
    Promise {
        id: "P3",
        name: "narrowing",
        how: Some("capabilities only narrow"),
        fence: false,
        lacks: &[(Lack::Build, "child tasks are not built yet")],
    },
    Promise {
        id: "P4",
        name: "default no",
        how: Some("what is not allowed, not understood or late is denied"),
        fence: true,
        lacks: &[
            (Lack::Build, "a task ends with its daemon, nothing takes it over yet"),
            (
                Lack::Of(Part::Processes),
                "if launcher and supervisor are both killed, what runs can open and reach nothing more, but is not ended",
            ),
        ],
    },
    Promise {
        id: "P5",
        name: "act, not spelling",
        how: Some("one form for paths, hosts, URLs and commands"),
        fence: true,
        lacks: NONE_YET,
    },
    Promise {
        id: "P6",
        name: "flow",
        how: Some(
            "what a tagged server or host answers raises the task's label, and data with a tag reaches only what is cleared for it",
        ),
        fence: false,
        lacks: &[
            (Lack::Build, "what a task writes into files carries no label"),
            (Lack::Build, "what a context keeps carries none into its next task"),
        ],
    },
    Promise {
        id: "P7",
        name: "influence",
        how: Some("a trusted argument of a tool that untrusted text may have chosen is asked about"),
        fence: false,
        lacks: &[(
            Lack::Build,
            "arguments of tools alone can be named, not parts of requests or commands",
        )],
    },
    Promise {
        id: "P8",
        name: "exact yes",
        how: Some("a yes is a grant for what was shown, in those terms, and answers only what was asked"),
        fence: false,
        lacks: NONE_YET,
    },
    Promise {
        id: "P9",
        name: "no secrets",
        how: Some("nothing of the caller's environment or files comes in unless a rule passes it"),
        fence: true,
        lacks: &[(
            Lack::Build,
            "what a rule passes, the agent has; its own model login among it",
        )],
    },
    Promise {
        id: "P10",
        name: "on record",
        how: Some("every decision is appended before its effect"),
        fence: false,
        lacks: &[(
            Lack::Build,
            "going back as a whole is found only by a checkpoint kept elsewhere",
        )],
    },
    Promise {
        id: "P11",
        name: "revocable",
        how: Some("a task is ended whole within a second, and a grant that ends cuts off what goes on under it"),
        fence: true,
        lacks: &[(Lack::Build, "a file that was opened under a grant stays open")],
    },
    Promise {
        id: "P12",
        name: "bounded leak",
        how: None,
        fence: false,
        lacks: &[(Lack::Build, "bits are not counted yet")],
    },
    Promise {
        id: "P13",
        name: "fence as asked",
        how: Some("the fence is read back from the kernel, and a lesser one is a refusal"),
        fence: true,
        lacks: NONE_YET,
    },
    Promise {
        id: "P14",
        name: "same answer",
        how: Some("`can` and the gates decide by the same pure function"),
        fence: false,
        lacks: NONE_YET,
    },
];

impl Promise {
    fn gaps(&self, level: Level) -> impl Iterator<Item = &'static str> {
        let missing = move |lack: &Lack| match lack {
            Lack::Of(part) => !parts(level).contains(part),
            Lack::Build => true,
        };
        self.lacks
            .iter()
            .filter(move |(lack, _)| missing(lack))
            .map(|(_, gap)| *gap)
    }

    /// How far it is kept at a level; none stands for a machine without any fence.
    pub fn kept(&self, level: Option<Level>) -> Kept {
        match level {
            None if self.fence => Kept::Not,
            _ if self.how.is_none() => Kept::Not,
            level => match self.gaps(level.unwrap_or(Level::Namespace)).next() {
                None => Kept::Enforced,
                Some(_) => Kept::Partly,
            },
        }
    }

    /// By what it is kept, and what is missing: one line.
    pub fn said(&self, level: Option<Level>) -> String {
        if level.is_none() && self.fence {
            return "nothing runs without a fence".into();
        }
        let gaps: Vec<&str> = self.gaps(level.unwrap_or(Level::Namespace)).collect();
        match (self.how, gaps.is_empty()) {
            (None, _) => gaps.join("; "),
            (Some(how), true) => how.to_owned(),
            (Some(how), false) => format!("{how}; but {}", gaps.join("; ")),
        }
    }
}

/// What a fence of this level leaves open, in short lines: what a person hears before an agent starts.
pub fn left_open(level: Level) -> impl Iterator<Item = &'static str> {
    PROMISES.iter().flat_map(move |promise| {
        let of_level = promise.lacks.iter().filter_map(move |(lack, gap)| match lack {
            Lack::Of(part) if !parts(level).contains(part) => Some(*gap),
            _ => None,
        });
        // The first promise says it; the others hang on the same.
        of_level.filter(|_| promise.id == "P1" || promise.id == "P4")
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The table for the documents.
    fn as_table() -> String {
        let mut out = String::from("| promise | level `namespace` | level `process` |\n|---|---|---|\n");
        for promise in &PROMISES {
            let _ = write!(out, "| {} ({}) |", promise.name, promise.id);
            for level in Level::ALL {
                let kept = match promise.kept(Some(level)) {
                    Kept::Not => "pending",
                    kept => kept.as_str(),
                };
                let _ = write!(out, " {kept}: {} |", promise.said(Some(level)));
            }
            out.push('\n');
        }
        out
    }

    fn claims() -> String {
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security/claims.md")).unwrap()
    }

    #[test]
    fn p13_the_claims_hold_this_very_table() {
        let claims = claims();
        let table = as_table();
        assert!(claims.contains(&table), "docs/security/claims.md must hold:\n{table}");
    }

    #[test]
    fn p13_the_claims_are_no_stronger_than_the_table() {
        let claims = claims();
        for promise in &PROMISES {
            let rows = claims
                .lines()
                .filter(|line| line.starts_with(&format!("| {} ", promise.id)));
            let row = rows.clone().find(|line| line.split('|').count() == 6);
            let said = row.unwrap().split('|').nth(2).unwrap().trim();
            let want = match promise.kept(Some(Level::Namespace)) {
                Kept::Not => "pending",
                kept => kept.as_str(),
            };
            assert!(
                said.starts_with(want),
                "{}: claims say `{said}`, the table `{want}`",
                promise.id
            );
        }
    }

    #[test]
    fn p13_without_a_fence_nothing_is_kept_that_hangs_on_one() {
        assert_eq!(PROMISES.first().unwrap().kept(None), Kept::Not);
        assert_eq!(PROMISES.last().unwrap().kept(None), Kept::Enforced);
        for level in Level::ALL {
            assert!(left_open(level).next().is_some());
        }
    }
}
