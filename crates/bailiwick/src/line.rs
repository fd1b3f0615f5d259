//! Shell lines before the rules: every part of a line is judged by itself, as the gates would.
//!
//! Promises: P14 (each part gets the answer that a gate would give), P4 (a part that cannot be read is asked about).
//! Not here: reading lines (`commands`), saying what came out (`can`, `hook`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bailiwick_commands::{Grammars, Part, Place};
use bailiwick_gate::Clock as _;

use bailiwick_mediator::{Purpose, Rules, Snapshot, decide};
use bailiwick_model::{AbsPath, Code, Decision, Reason, Request, Resource, TaskId, Verb, Verdict};
use bailiwick_policy::Policy;

use crate::daemon::SteadyClock;
use crate::failure::Failure;
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// One part of a line, with its answer.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What it would do; none where it could not be read.
    pub request: Option<Request>,
    /// The answer.
    pub decision: Decision,
}

impl Judged {
    /// The part in words.
    pub fn text(&self) -> String {
        match &self.request {
            Some(request) => match &request.resource {
                Resource::Command(command) => command.to_string(),
                _ => request.to_string(),
            },
            None => self
                .decision
                .reasons
                .first()
                .map_or_else(String::new, |reason| reason.text.clone()),
        }
    }

    /// True when a rule that somebody wrote about this allows it, rather than the `run **` of a preset: that lets programs
    /// run inside a fence, where they have no authority, and says nothing about running them outside.
    pub fn is_named(&self) -> bool {
        let by_name = |reason: &Reason| reason.rule.as_ref().is_some_and(|rule| rule.act != "run **");
        let shells_own = match self.request.as_ref().map(|request| &request.resource) {
            Some(Resource::Command(command)) => command.forms().iter().all(|form| form.only_against),
            _ => false,
        };
        shells_own || self.decision.reasons.iter().any(by_name)
    }
}

/// Decides as the mediator would for a root task with no history.
pub fn answer(policy: &Arc<Policy>, request: &Request) -> Decision {
    let rules: Arc<dyn Rules> = Arc::clone(policy) as _;
    let now = SteadyClock::default().now();
    let mut snapshot = Snapshot::of_rules(request.task, rules, now, Purpose::Question);
    snapshot.approver_present = true;
    if policy.settings().oversight.watches() {
        snapshot.approvers_present = watching();
    }
    decide(request, &snapshot)
}

/// Who watches now, as the daemon has it; nobody where none runs.
fn watching() -> Arc<BTreeSet<String>> {
    static WATCHING: OnceLock<Arc<BTreeSet<String>>> = OnceLock::new();
    let ask = || {
        let mut link = Link::to_running(&Places::find()?)?.ok_or_else(|| Failure::fault("no daemon runs"))?;
        link.say(&PersonCall::Status)?;
        match link.hear()? {
            PersonAnswer::Status(status) => Ok(status.there.into_iter().map(|by| by.name).collect()),
            _ => Err(Failure::fault("the daemon answered something that was not asked")),
        }
    };
    Arc::clone(WATCHING.get_or_init(|| Arc::new(ask().unwrap_or_default())))
}

/// Judges each part of a line that would run in a folder.
pub fn judge(policy: &Arc<Policy>, grammars: &Grammars, line: &str, here: &AbsPath, home: &AbsPath) -> Vec<Judged> {
    let place = Place {
        directory: here.as_str().into(),
        home: home.as_str().into(),
    };
    let parts = grammars.line(line, &place);
    parts.into_iter().map(|part| judge_part(policy, part)).collect()
}

fn judge_part(policy: &Arc<Policy>, part: Part) -> Judged {
    let ask = |verb, resource| Request::new(TaskId([0; 8]), verb, resource);
    let request = match part {
        Part::Start(command) | Part::Builtin(command) => ask(Verb::Run, Resource::Command(command)),
        Part::Read(path) => match reached(&path) {
            Some(path) => ask(Verb::Read, Resource::File(path)),
            None => return unread(format!("`{path}` is no path")),
        },
        Part::Write(path) => match reached(&path) {
            Some(path) => ask(writes(&path), Resource::File(path)),
            None => return unread(format!("`{path}` is no path")),
        },
        Part::Unread(why) => return unread(why),
    };
    Judged {
        decision: answer(policy, &request),
        request: Some(request),
    }
}

/// To write what is not there is to create it.
pub fn writes(path: &AbsPath) -> Verb {
    if path.to_path_buf().symlink_metadata().is_ok() {
        Verb::Write
    } else {
        Verb::Create
    }
}

/// What a path leads to: links are followed, as far as there are files.
pub fn reached(path: &str) -> Option<AbsPath> {
    let written = AbsPath::new(path).ok()?;
    let mut rest = Vec::new();
    let mut there = written.to_path_buf();
    loop {
        if let Ok(found) = there.canonicalize() {
            let whole = rest.iter().rev().fold(found, |path, name| path.join(name));
            return whole.to_str().and_then(|path| AbsPath::new(path).ok());
        }
        rest.push(there.file_name()?.to_owned());
        there = there.parent().map(Path::to_path_buf)?;
    }
}

fn unread(why: String) -> Judged {
    let reason = Reason {
        verdict: Verdict::Ask,
        code: Code::LineUnread,
        rule: None,
        text: why,
    };
    Judged {
        request: None,
        decision: Decision {
            verdict: Verdict::Ask,
            code: Code::LineUnread,
            reasons: vec![reason],
            obligations: Vec::new(),
        },
    }
}

/// The part that decides over a line: the first of the strictest. None for a line that does nothing.
pub fn strictest(parts: &[Judged]) -> Option<&Judged> {
    let strict = parts.iter().map(|part| part.decision.verdict).max()?;
    parts.iter().find(|part| part.decision.verdict == strict)
}
