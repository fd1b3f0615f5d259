//! What the console shows beside the queue: the log and the rules, from where they lie.
//!
//! Promises: P10 (records are shown as they stand, and verified by the same function as `bailiwick log verify`).
//! Trust: records hold texts of agents; the console makes them visible. Rule files may be anybody's: they are read as ever.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;

use bailiwick_console::{Entry, LogPage, LogWish, Logins, Papers, Rules, Tone};
use bailiwick_gate::desk::{Approver, Desk};
use bailiwick_model::{AbsPath, Answered, Event, Record, visible};

use crate::commands::{log, trust};
use crate::context::Context;
use crate::desk::PathDesk;
use crate::failure::Failure;
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// Records that are read at a time, from the newest back.
const STEP: u64 = 1024;

/// Most records that are looked through for one page: what is older is on the next.
const MOST: u64 = 64 * STEP;

/// Most contexts that are listed.
const MAX_CONTEXTS: usize = 500;

/// The papers of the person whose state lies there.
pub struct OwnPapers {
    places: Places,
    desk: Arc<PathDesk>,
}

impl OwnPapers {
    /// Of these places.
    pub fn new(places: Places, desk: Arc<PathDesk>) -> Self {
        Self { places, desk }
    }

    fn policy(&self, context: &str) -> Result<String, Failure> {
        let gone = || Failure::usage(format!("`{context}` is the root of no context any more"));
        let folder = AbsPath::new(context).map_err(|_| gone())?;
        if !folder.to_path_buf().is_dir() {
            return Err(gone());
        }
        let store = trust::store_if_there(&self.places)?;
        let context = Context::find(&folder, &self.places, None, store.as_ref().map(|store| store as _))?;
        if context.root != folder {
            return Err(gone());
        }
        Ok(context.load()?.layers())
    }
}

fn in_words(failure: Failure) -> String {
    match failure.hint {
        Some(hint) if !hint.is_empty() => format!("{}: {hint}", failure.message),
        _ => failure.message,
    }
}

impl Papers for OwnPapers {
    fn log(&self, wish: &LogWish) -> Result<LogPage, String> {
        log::catch_up(&self.places);
        let folder = self.places.log();
        if !folder.exists() {
            return Ok(LogPage::default());
        }
        let records = || bailiwick_ledger::read(&folder).map_err(|fault| fault.to_string());
        let newest = records()?.size();
        let mut end = wish.before.unwrap_or(newest).min(newest);
        let last = end.saturating_sub(MOST);
        let mut page = LogPage::default();
        while end > last && page.entries.len() < wish.most {
            let begin = end.saturating_sub(STEP);
            let mut found = Vec::new();
            for entry in records()?.starting_at(begin) {
                let (index, record) = entry.map_err(|fault| fault.to_string())?;
                if index >= end {
                    break;
                }
                if wish.task.is_none_or(|task| record.task == Some(task)) {
                    found.push(entry_of(index, &record));
                }
            }
            page.entries.extend(found.into_iter().rev());
            end = begin;
        }
        page.entries.truncate(wish.most);
        let full = page.entries.len() == wish.most;
        let oldest = page.entries.last().filter(|_| full).map_or(end, |entry| entry.index);
        page.older = (oldest > 0).then_some(oldest);
        Ok(page)
    }

    fn verify(&self) -> Result<String, String> {
        log::catch_up(&self.places);
        let cannot = |cause: &dyn std::fmt::Display| format!("the log cannot be verified: {cause}");
        let key = std::fs::read_to_string(self.places.log_verifier()).map_err(|e| cannot(&e))?;
        let key = key.trim().parse().map_err(|e: bailiwick_ledger::KeyFault| cannot(&e))?;
        match bailiwick_ledger::verify(&self.places.log(), &key, None) {
            Ok(verified) => Ok(format!(
                "verified: {} records, all of them signed; going back to an older state as a whole is found only with a checkpoint that was kept elsewhere: `bailiwick log verify --since`",
                verified.size
            )),
            Err(fault) => Err(format!(
                "the log does not verify: {fault}; keep a copy of its folder before anything else is done with it"
            )),
        }
    }

    fn contexts(&self) -> Result<Vec<String>, String> {
        let mut all = BTreeSet::new();
        let at_work = self.desk.at_work().unwrap_or_default();
        all.extend(at_work.into_iter().map(|task| task.context));
        let granted = self.desk.granted().unwrap_or_default();
        all.extend(granted.into_iter().map(|grant| grant.context.to_string()));
        let kept = std::fs::read_dir(self.places.state.join("contexts"))
            .into_iter()
            .flatten()
            .flatten();
        for folder in kept.take(MAX_CONTEXTS) {
            let mut root = String::new();
            let file = std::fs::File::open(folder.path().join("root"));
            if file.and_then(|file| file.take(4096).read_to_string(&mut root)).is_ok() {
                all.insert(root);
            }
        }
        all.retain(|root| AbsPath::new(root.as_str()).is_ok_and(|root| root.to_path_buf().is_dir()));
        Ok(all.into_iter().take(MAX_CONTEXTS).collect())
    }

    fn rules(&self, context: &str) -> Rules {
        Rules {
            context: context.to_owned(),
            told: self.policy(context).map_err(in_words),
        }
    }
}

/// People who are enrolled with a code of their own; the daemon knows their codes.
pub struct Codes {
    places: Places,
}

impl Codes {
    /// Of the daemon that keeps its state there.
    pub fn new(places: Places) -> Self {
        Self { places }
    }

    fn call(&self, call: &PersonCall) -> Option<PersonAnswer> {
        let mut link = Link::to_running(&self.places).ok()??;
        link.say(call).ok()?;
        link.hear().ok()
    }
}

impl Logins for Codes {
    fn any(&self) -> bool {
        match self.call(&PersonCall::Enrolled) {
            Some(PersonAnswer::Enrolled(all, _)) => all.iter().any(|one| one.user.is_none()),
            _ => false,
        }
    }

    fn check(&self, name: &str, code: &str) -> Option<Approver> {
        let (name, code) = (name.to_owned(), code.to_owned());
        match self.call(&PersonCall::SignIn { name, code })? {
            PersonAnswer::SignedIn(approver) => Some(approver),
            _ => None,
        }
    }

    fn leave(&self, approver: &Approver) {
        let name = approver.name.clone();
        // Whoever is not signed out so is forgotten after an hour.
        let _ = self.call(&PersonCall::SignOut { name });
    }
}

/// A record in a word, and a sentence.
fn entry_of(index: u64, record: &Record) -> Entry {
    let (came, tone) = came_to(&record.event);
    Entry {
        index,
        time: record.time,
        task: record.task,
        came: came.to_owned(),
        tone,
        text: visible(&log::sentence(&record.event)),
    }
}

fn came_to(event: &Event) -> (&'static str, Tone) {
    match event {
        Event::Decided { decision, .. } => {
            let tone = match decision.verdict {
                bailiwick_model::Verdict::Allow => Tone::Good,
                bailiwick_model::Verdict::Ask => Tone::Asked,
                bailiwick_model::Verdict::Deny => Tone::Bad,
            };
            (decision.verdict.as_str(), tone)
        }
        Event::Answered { answer, .. } => match answer {
            Answered::Yes => ("yes", Tone::Good),
            Answered::Seconded => ("one yes", Tone::Asked),
            Answered::No => ("no", Tone::Bad),
            Answered::More => ("more", Tone::Asked),
            Answered::Lapsed => ("lapsed", Tone::Bad),
            Answered::Withdrawn => ("withdrawn", Tone::Plain),
        },
        Event::Granted { .. } => ("granted", Tone::Good),
        Event::GrantChanged { how, .. } => (how.as_str(), Tone::Bad),
        Event::Refused { .. } => ("refused", Tone::Bad),
        Event::Told { .. } => ("told", Tone::Asked),
        Event::TaskStarted { .. } => ("started", Tone::Plain),
        Event::TaskEnded { .. } => ("ended", Tone::Plain),
        Event::Settled { done: true, .. } => ("done", Tone::Plain),
        Event::Settled { done: false, .. } => ("not done", Tone::Plain),
        Event::Redeemed { .. } => ("secret", Tone::Plain),
        Event::Raised { .. } => ("label", Tone::Plain),
        Event::Trusted { .. } => ("trust", Tone::Plain),
        Event::HandedIn { .. } | Event::NotHandedIn { .. } => ("give", Tone::Plain),
        Event::Published { .. } => ("port", Tone::Plain),
        Event::Fetching { .. } => ("fetch", Tone::Plain),
        Event::Fetched { done, .. } => ("fetch", if *done { Tone::Plain } else { Tone::Bad }),
        Event::Recounted { .. } => ("budget", Tone::Plain),
        Event::Opened { .. } => ("log", Tone::Plain),
        Event::HoursOver { .. } => ("hours", Tone::Bad),
        Event::Enrolled { .. } => ("approver", Tone::Plain),
        Event::Suspended { .. } => ("suspended", Tone::Bad),
    }
}
