//! A program of the person's that answers questions: asked about each, tried from time to time, suspended by one wrong yes.
//!
//! Promises: P4 (what does not answer in time, in few words and in the right form has not answered: the question stays for
//! people), P8 (its yes is for the request itself, once, and for no act beyond those named), P10 (that it is suspended is on record).
//! Trust: the program is the person's own, and may be wrong: it may be a model that the text of a request talks round. It is
//! handed no descriptor but its three, and the question as people are shown it.
//! Not here: which program, and for which acts (`policy`), what a yes does (`mediator`).

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Answer, Approver, Asked, Known};
use bailiwick_gate::{Random, Waiting, digest_of};
use bailiwick_model::{
    AbsPath, Code, Command as Started, Decision, DecisionId, Event, HttpUrl, PathPattern, Reason, Request, Resource,
    ResourcePattern, Verb, VerbPattern, Verdict, visible,
};
use bailiwick_policy::{Policy, ProgramApprover, Rule};
use serde::Deserialize;

use super::{Daemon, KernelRandom, lock};

/// How long a task may take from its first question until it is listed.
const BEGINNING: Duration = Duration::from_secs(5);

/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of its answer.
const LONGEST: u64 = 64 * 1024;

/// Most characters of its word.
const WORD: usize = 500;

/// Most programs at once; more questions stay for people.
const AT_ONCE: usize = 4;

/// One question in so many comes with one that is made to try the program.
const ONE_IN: u8 = 6;

/// The name that its answers are under.
const NAME: &str = "program";

/// What the program says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    answer: Word,
    #[serde(default)]
    word: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Yes,
    No,
    Pass,
}

/// How it has done since the daemon began.
#[derive(Debug, Default)]
struct Score {
    command: Vec<String>,
    asked: u64,
    yes: u64,
    no: u64,
    passed: u64,
    tried: u64,
    unanswered: u64,
    /// Why it did not answer the last time that it did not.
    why: String,
}

/// What is known of it.
pub struct Auditor {
    /// Where it stands that it is suspended, and why: one line.
    file: PathBuf,
    score: Mutex<Score>,
    suspended: Mutex<Option<String>>,
    at_once: AtomicUsize,
    known: Mutex<BTreeSet<DecisionId>>,
}

impl Auditor {
    /// Finds out whether it is suspended.
    pub fn open(state: &Path) -> Self {
        let file = state.join("approver-suspended");
        let suspended = match std::fs::read_to_string(&file) {
            Ok(why) => Some(why),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            // What cannot be read does not say that it is not.
            Err(e) => Some(format!("`{}` cannot be read: {e}", file.display())),
        };
        Self {
            file,
            score: Mutex::default(),
            suspended: Mutex::new(suspended),
            at_once: AtomicUsize::new(0),
            known: Mutex::default(),
        }
    }

    /// Lets it answer again.
    pub fn again(&self) {
        lock(&self.suspended).take();
        if let Err(e) = std::fs::remove_file(&self.file)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            talkln!("bailiwick: `{}` could not be removed: {e}", self.file.display());
        }
    }

    /// What there is to say of it, one line each.
    pub fn told(&self) -> Vec<String> {
        let score = lock(&self.score);
        let mut lines = Vec::new();
        if let Some(why) = lock(&self.suspended).as_ref() {
            lines.push(format!(
                "the program that answers questions is suspended, and people answer all: {}; `bailiwick approver again` lets it",
                why.trim()
            ));
        }
        if score.asked > 0 {
            lines.push(format!(
                "`{}` was asked {} times: {} yes, {} no, {} passed on, {} not answered; tried {} times",
                score.command.join(" "),
                score.asked,
                score.yes,
                score.no,
                score.passed,
                score.unanswered,
                score.tried
            ));
        }
        if score.unanswered > 0 {
            lines.push(format!("its last failure: {}", score.why));
        }
        lines
    }

    fn is_suspended(&self) -> bool {
        lock(&self.suspended).is_some()
    }

    fn suspend(&self, why: &str) {
        let line = visible(why);
        if let Err(e) = std::fs::write(&self.file, format!("{line}\n")) {
            talkln!("bailiwick: that the program is suspended holds for this daemon only: {e}");
        }
        *lock(&self.suspended) = Some(line);
    }

    fn is_new(&self, id: DecisionId) -> bool {
        let mut known = lock(&self.known);
        while known.len() > 4096 {
            known.pop_first();
        }
        known.insert(id)
    }
}

/// Asks the program about a question, if there is one, from a thread of its own.
pub fn ask(daemon: &Arc<Daemon>, waiting: &Waiting) {
    if !waiting.running || !daemon.auditor.is_new(waiting.id) {
        return;
    }
    if let Some(policy) = rules_of(daemon, waiting) {
        return ask_by(daemon, waiting, policy);
    }
    // A task that is about to begin is listed a moment after its first question.
    let (daemon, waiting) = (Arc::clone(daemon), waiting.clone());
    std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < BEGINNING && daemon.mediator.waits(waiting.id) {
            if let Some(policy) = rules_of(&daemon, &waiting) {
                return ask_by(&daemon, &waiting, policy);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// The rules of the task that asks, once it is listed.
fn rules_of(daemon: &Daemon, waiting: &Waiting) -> Option<Arc<Policy>> {
    let handle = lock(&daemon.running).get(&waiting.request.task).cloned();
    handle.map(|handle| handle.policy)
}

fn ask_by(daemon: &Arc<Daemon>, waiting: &Waiting, policy: Arc<Policy>) {
    let Some(program) = policy.settings().approver.clone() else {
        return;
    };
    if daemon.auditor.is_suspended() {
        return;
    }
    let free = |taken: usize| (taken < AT_ONCE).then_some(taken.saturating_add(1));
    if daemon
        .auditor
        .at_once
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, free)
        .is_err()
    {
        return unanswered(daemon, &program, "too many questions at once");
    }
    let (daemon, waiting) = (Arc::clone(daemon), waiting.clone());
    std::thread::spawn(move || {
        about(&daemon, &policy, &program, &waiting);
        daemon.auditor.at_once.fetch_sub(1, Ordering::SeqCst);
    });
}

fn unanswered(daemon: &Daemon, program: &ProgramApprover, why: &str) {
    let why = visible(why);
    talkln!(
        "bailiwick: `{}` has not answered, the question stays for people: {why}",
        visible(&program.command.join(" "))
    );
    let mut score = lock(&daemon.auditor.score);
    score.command.clone_from(&program.command);
    score.unanswered = score.unanswered.saturating_add(1);
    score.why = why;
}

fn about(daemon: &Arc<Daemon>, policy: &Policy, program: &ProgramApprover, waiting: &Waiting) {
    let mut drawn = [0u8; 2];
    KernelRandom.fill(&mut drawn);
    let [chance, order] = drawn;
    let canary = (chance % ONE_IN == 0).then(|| canary(policy, waiting)).flatten();
    // Before the question or after it: which of two is the one that counts must not be known by its place.
    let first = order % 2 == 0;
    if first && !stands(daemon, program, canary.as_ref()) {
        return;
    }
    let asked = daemon.mediator.shown(waiting.clone());
    let said = run(program, &asked);
    if !first && !stands(daemon, program, canary.as_ref()) {
        return;
    }
    if daemon.auditor.is_suspended() {
        return;
    }
    {
        let mut score = lock(&daemon.auditor.score);
        score.command.clone_from(&program.command);
        score.asked = score.asked.saturating_add(1);
    }
    let said = match said {
        Ok(said) => said,
        Err(why) => return unanswered(daemon, program, &why),
    };
    let answer = match said.answer {
        Word::Pass => {
            let mut score = lock(&daemon.auditor.score);
            score.passed = score.passed.saturating_add(1);
            return;
        }
        Word::No => Some(Answer::No {
            word: said.word.map(|word| word.chars().take(WORD).collect()),
        }),
        Word::Yes if !program.may_say_yes(&waiting.request) => {
            return unanswered(daemon, program, "it said yes to what its yes is not for");
        }
        Word::Yes => Answer::once(&asked),
    };
    let by = Approver {
        name: NAME.into(),
        by: Known::Program,
    };
    let Some(answer) = answer else { return };
    match daemon.mediator.answer(waiting.id, &answer, &by) {
        Ok(_) => {
            let mut score = lock(&daemon.auditor.score);
            let count = if said.answer == Word::Yes {
                &mut score.yes
            } else {
                &mut score.no
            };
            *count = count.saturating_add(1);
        }
        // Somebody else was first, or it may not answer this.
        Err(fault) => unanswered(daemon, program, &fault.to_string()),
    }
}

/// Tries the program: false when it said yes to what it must refuse, and is suspended.
fn stands(daemon: &Daemon, program: &ProgramApprover, canary: Option<&Waiting>) -> bool {
    let Some(canary) = canary else { return true };
    let said = run(program, &daemon.mediator.shown(canary.clone()));
    {
        let mut score = lock(&daemon.auditor.score);
        score.tried = score.tried.saturating_add(1);
    }
    if !matches!(said, Ok(Said { answer: Word::Yes, .. })) {
        return true;
    }
    let why = format!(
        "`{}` said yes to `{}`, which the rules deny",
        program.command.join(" "),
        canary.request
    );
    daemon.auditor.suspend(&why);
    talkln!("bailiwick: {}", visible(&why));
    let event = Event::Suspended {
        program: program.command.clone(),
        request: canary.request.clone(),
    };
    if let Err(fault) = daemon.record(Some(canary.request.task), event) {
        talkln!("bailiwick: that is not on record: {fault}");
    }
    daemon.moved.bump();
    false
}

/// A question that looks like any other of this task, about something that the rules deny.
fn canary(policy: &Policy, like: &Waiting) -> Option<Waiting> {
    let denies: Vec<&Rule> = policy
        .rules()
        .iter()
        .filter(|rule| rule.effect == Verdict::Deny && rule.follows_from.is_none())
        .collect();
    let mut bytes = [0u8; 14];
    KernelRandom.fill(&mut bytes);
    let [a, b, c, d, id @ .., _, _, _, _] = bytes;
    let from = u32::from_be_bytes([a, b, c, d]) as usize % denies.len().max(1);
    let around = denies.iter().skip(from).chain(denies.iter().take(from));
    around.take(64).find_map(|rule| {
        let (verb, resource) = example(rule)?;
        let request = Request::new(like.request.task, verb, resource);
        // It is made to be refused: the rules themselves say that it is.
        if policy.evaluate(&request).verdict != Verdict::Deny {
            return None;
        }
        let reason = Reason {
            verdict: Verdict::Ask,
            code: Code::AskedByRule,
            rule: Some(rule.origin.clone()),
            text: format!("`{}` ({}) wants a person to say", rule.origin.act, rule.origin),
        };
        Some(Waiting {
            id: DecisionId(id),
            digest: digest_of(&request),
            against: Decision {
                verdict: Verdict::Ask,
                code: Code::AskedByRule,
                reasons: vec![reason],
                obligations: Vec::new(),
            },
            words: Vec::new(),
            seconded: Vec::new(),
            seconded_to: None,
            request,
            ..like.clone()
        })
    })
}

/// One thing that a rule is about.
fn example(rule: &Rule) -> Option<(Verb, Resource)> {
    let act = rule.act();
    let verb = |usual: Verb| match &act.verb {
        VerbPattern::One(verb) => verb.clone(),
        VerbPattern::Any => usual,
    };
    match &act.resource {
        ResourcePattern::Path(pattern) => {
            let path = in_pattern(pattern)?;
            Some((verb(Verb::Read), Resource::File(path)))
        }
        ResourcePattern::Url(url) => {
            let text = url.to_string().replace("**", "a").replace('*', "a");
            let get = "GET".parse().ok()?;
            Some((verb(get), Resource::Url(HttpUrl::parse(&text).ok()?)))
        }
        ResourcePattern::Command(pattern) => {
            let text = pattern.to_string().replace("**", "a").replace('*', "a");
            let words: Vec<&str> = text.split(' ').collect();
            Some((verb(Verb::Run), Resource::Command(Started::typed(&words))))
        }
        _ => None,
    }
}

fn in_pattern(pattern: &PathPattern) -> Option<AbsPath> {
    let text = pattern.to_string();
    let text = match text.strip_prefix("/**/") {
        Some(rest) => format!("/home/{rest}"),
        None => text,
    };
    AbsPath::new(text.replace("**", "a").replace('*', "a")).ok()
}

/// Runs the program once: what it said, or why that counts for nothing.
fn run(program: &ProgramApprover, asked: &Asked) -> Result<Said, String> {
    let (name, arguments) = program.command.split_first().ok_or("it has no name")?;
    let question = serde_json::to_vec(asked).map_err(|e| e.to_string())?;
    let mut command = Command::new(name);
    command.args(arguments).env_clear().current_dir("/");
    for name in ["PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // A group of its own, so that what it starts ends with it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|e| format!("it does not start: {e}"))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    // One that does not read must hold nobody up; nor one that says nothing.
    let writer = std::thread::spawn(move || input.map(|mut input| input.write_all(&question)));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.map(|output| output.take(LONGEST.saturating_add(1)).read_to_end(&mut bytes));
        let _ = tell.send(read.transpose().map(|_| bytes));
    });
    let begun = Instant::now();
    let heard = told.recv_timeout(PATIENCE);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if heard.is_ok() && begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            _ => break None,
        }
    };
    if let Some(group) = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
    drop(writer);
    let seconds = PATIENCE.as_secs();
    let late = || format!("it took longer than {seconds} seconds");
    let bytes = heard
        .map_err(|_| late())?
        .map_err(|e| format!("its answer cannot be read: {e}"))?;
    // One that says too much is cut off, which it may take for a reason to fail.
    if bytes.len() as u64 > LONGEST {
        return Err(format!("its answer is longer than {LONGEST} bytes"));
    }
    let status = ended.ok_or_else(late)?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    serde_json::from_slice(&bytes).map_err(|e| format!("its answer makes no sense: {e}"))
}
