//! `bailiwick doctor`: what this machine can enforce, promise by promise.

use std::process::ExitCode;

use bailiwick_fence::doctor::{Survey, survey};

use crate::cli::JsonArg;
use crate::failure::{Done, Exit};
use crate::visible::visible;

/// How far a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    Enforced,
    Partly,
    Not,
}

impl Kept {
    fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Partly => "partly",
            Self::Not => "not",
        }
    }
}

/// One promise, as this build keeps it where its fence can be put up.
struct Promise {
    id: &'static str,
    what: &'static str,
    kept: Kept,
    /// True when it hangs on the fence: without one, nothing runs, and so nothing is kept either.
    fence: bool,
    how: &'static str,
}

const fn promise(id: &'static str, what: &'static str, kept: Kept, fence: bool, how: &'static str) -> Promise {
    Promise {
        id,
        what,
        kept,
        fence,
        how,
    }
}

/// The one table that `doctor` shows. `docs/security/claims.md` says the same with assumptions and tests.
const PROMISES: [Promise; 14] = [
    promise(
        "P1",
        "complete",
        Kept::Partly,
        true,
        "nothing exists inside but what is granted; protected places that do not exist yet can be made",
    ),
    promise(
        "P2",
        "ceiling",
        Kept::Enforced,
        true,
        "the person's own user, never root, and the person's ceiling over every rule",
    ),
    promise(
        "P3",
        "narrowing",
        Kept::Partly,
        false,
        "capabilities only narrow; child tasks are not built yet",
    ),
    promise(
        "P4",
        "default no",
        Kept::Partly,
        true,
        "what is not allowed, not understood or late is denied; a task ends with its daemon, nothing takes it over yet",
    ),
    promise(
        "P5",
        "act, not spelling",
        Kept::Partly,
        true,
        "one form for paths, hosts and URLs; commands are not judged yet",
    ),
    promise(
        "P6",
        "flow",
        Kept::Not,
        false,
        "labels are carried and checked, but nothing gives them yet",
    ),
    promise("P7", "influence", Kept::Not, false, "needs labels and the tool gate"),
    promise(
        "P8",
        "exact yes",
        Kept::Not,
        false,
        "nobody can be asked yet: what would be asked is denied",
    ),
    promise(
        "P9",
        "no secrets",
        Kept::Partly,
        true,
        "nothing of the caller's environment or files comes in unless a rule passes it; what it passes, the agent has",
    ),
    promise(
        "P10",
        "on record",
        Kept::Partly,
        false,
        "every decision is appended before its effect; going back as a whole is found only by a checkpoint kept elsewhere",
    ),
    promise(
        "P11",
        "revocable",
        Kept::Partly,
        true,
        "a task is ended whole within a second; single grants are not given yet",
    ),
    promise("P12", "bounded leak", Kept::Not, false, "bits are not counted yet"),
    promise(
        "P13",
        "fence as asked",
        Kept::Partly,
        true,
        "the fence is read back from the kernel, a lesser one is a refusal; guarded names that are absent are said before",
    ),
    promise(
        "P14",
        "same answer",
        Kept::Enforced,
        false,
        "`can` and the gates decide by the same pure function",
    ),
];

/// Runs the command. Exit code 1 when no fence can be put up here.
pub fn run(args: &JsonArg) -> Done {
    let survey = survey();
    let holds = survey.holds();
    if args.json {
        tellln!("{}", as_json(&survey, holds));
    } else {
        show(&survey, holds);
    }
    Ok(if holds { ExitCode::SUCCESS } else { Exit::Fault.into() })
}

fn as_json(survey: &Survey, holds: bool) -> serde_json::Value {
    let items: Vec<_> = survey
        .items
        .iter()
        .map(|item| {
            serde_json::json!({ "name": item.name, "found": item.found, "needed": item.needed, "seen": item.seen, "hint": item.hint })
        })
        .collect();
    let promises: Vec<_> = PROMISES
        .iter()
        .map(|promise| {
            serde_json::json!({ "id": promise.id, "what": promise.what, "kept": kept(promise, holds), "how": promise.how })
        })
        .collect();
    serde_json::json!({ "fence": holds, "landlock": survey.landlock, "machine": items, "promises": promises })
}

fn kept(promise: &Promise, holds: bool) -> Kept {
    if promise.fence && !holds {
        Kept::Not
    } else {
        promise.kept
    }
}

fn show(survey: &Survey, holds: bool) {
    tellln!("this machine:");
    for item in &survey.items {
        let mark = match (item.found, item.needed) {
            (true, _) => "yes",
            (false, true) => "NO",
            (false, false) => "no",
        };
        tellln!("  {:<3}  {:<28} {}", mark, item.name, visible(&item.seen));
        if !item.found && !item.hint.is_empty() {
            tellln!("       hint: {}", item.hint);
        }
    }
    if holds {
        tellln!("level `namespace` can be put up here");
    } else {
        tellln!("NO FENCE can be put up here: `bailiwick run` refuses to start anything");
    }
    tellln!("what is kept of each promise:");
    for promise in &PROMISES {
        tellln!(
            "  {:<4}{:<18} {:<9} {}",
            promise.id,
            promise.what,
            kept(promise, holds).as_str(),
            promise.how
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p13_doctor_says_what_the_claims_say() {
        let claims =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security/claims.md")).unwrap();
        for promise in &PROMISES {
            let row = claims
                .lines()
                .find(|line| line.starts_with(&format!("| {} ", promise.id)))
                .unwrap();
            let said = row.split('|').nth(2).unwrap().trim();
            let want = if promise.kept == Kept::Not {
                "pending"
            } else {
                promise.kept.as_str()
            };
            assert!(
                said.starts_with(want),
                "{}: claims say `{said}`, doctor says `{want}`",
                promise.id
            );
        }
    }
}
