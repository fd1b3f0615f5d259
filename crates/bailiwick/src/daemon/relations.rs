//! What is known of people, read from an address, and read anew while a task runs.
//!
//! Promises: P10 (each text that takes the place of another is on record, with its digest, before it holds), P4 (what cannot be
//! read, or is wrong in itself, leaves the last one, which gets too old by `stale_after`), P11 (what changed holds for the next
//! call), P14 (a decision is made by one text, and made again where another took its place meanwhile).
//! Trust: the source is the person's. What an address answers comes by the fetcher, bounded; it is read as a file would be.
//! Not here: what is kept, and files (`people`), the request (`fetcher`), staleness (`policy`).

use std::sync::Arc;
use std::time::Duration;

use bailiwick_mediator::Rules;
use bailiwick_model::{Digest, Event, HttpUrl, TaskId};
use bailiwick_policy::{Policy, RelationsFrom, RelationsText};
use bailiwick_proxy::{Fetched, Wish};
use sha2::{Digest as _, Sha256};

use super::fetcher::For;
use super::{Daemon, lock};
use crate::context::Context;
use crate::failure::Failure;
use crate::people::{self, Source};

/// How often it is read anew where nothing is said; a quarter of `stale_after` where that is less.
const REFRESH: u64 = 10 * 60;

/// How long a failure is waited out; less where it is read more often.
const AGAIN: u64 = 30;

/// Largest text from an address, in bytes.
const MOST: usize = 4 << 20;

/// How often a task's end is looked for.
const LOOK: Duration = Duration::from_millis(200);

fn refresh(of: &RelationsFrom) -> u64 {
    let stale = of
        .stale_after
        .map_or(REFRESH, |seconds| (seconds / 4).clamp(1, REFRESH));
    of.refresh.unwrap_or(stale)
}

/// True while a text need not be read anew: `every` is in seconds.
fn is_new(daemon: &Daemon, text: &RelationsText, every: u64) -> bool {
    daemon.clock.now().0.saturating_sub(text.read_at.0) / 1000 < every
}

/// The place with what an address says of people: as it was last read where that is not long ago, else read now.
pub fn at_start(daemon: &Daemon, context: Context, environment: &[(String, String)]) -> Result<Context, Failure> {
    let Some((Source::Address(url), of, policy)) = people::source(&context)? else {
        return Ok(context);
    };
    let mut context = context;
    let known = context.sources.relations.as_ref();
    if known.is_some_and(|text| is_new(daemon, text, refresh(&of))) {
        return Ok(context);
    }
    match read(daemon, &context, None, &url, &policy, environment) {
        Ok(found) => context.sources.relations = Some(found),
        // The one from before holds until it is too old.
        Err(why) if context.sources.relations.is_some() => {
            talkln!("bailiwick: `[relations]`: `{url}` cannot be read, and what was read before holds: {why}");
        }
        Err(why) => {
            return Err(Failure::usage(format!("`[relations]`: `{url}` cannot be read: {why}"))
                .hint("rules here ask who people are, and nothing is known of them yet"));
        }
    }
    Ok(context)
}

/// Reads an address; what it says is held against the rules before it is kept.
fn read(
    daemon: &Daemon,
    context: &Context,
    task: Option<TaskId>,
    url: &HttpUrl,
    policy: &Policy,
    environment: &[(String, String)],
) -> Result<RelationsText, String> {
    let whom = For {
        purpose: "relations",
        task,
        policy,
        environment,
    };
    let read_at = daemon.clock.now();
    let text = match daemon.fetch(&whom, url, Wish::Read { most: MOST })? {
        (Fetched::Read {}, text) => text,
        (Fetched::Failed { why }, _) => return Err(why),
        (Fetched::Renewed { .. } | Fetched::Refused { .. }, _) => return Err("it answered something else".into()),
    };
    let mut tried = context.clone();
    tried.sources.relations = Some(people::text(url.to_string(), text.clone(), read_at));
    tried.load().map_err(|failure| failure.message)?;
    people::keep(&daemon.places, url, text, read_at).map_err(|e| format!("it cannot be kept: {e}"))
}

/// Reads anew for a task, as often as its rules say, until the task ends.
pub fn watch(daemon: &Arc<Daemon>, task: TaskId, context: &Context, environment: &[(String, String)]) {
    let Some(first) = &context.sources.relations else {
        return;
    };
    let (daemon, digest) = (Arc::clone(daemon), digest(first));
    let (context, environment) = (context.clone(), environment.to_vec());
    std::thread::spawn(move || {
        let Ok(Some((source, of, _))) = people::source(&context) else {
            return;
        };
        let watching = Watching {
            daemon,
            task,
            source,
            every: refresh(&of),
            environment,
            digest,
            context,
        };
        watching.go_on();
    });
}

fn digest(of: &RelationsText) -> Digest {
    Digest(Sha256::digest(&of.file.text).into())
}

struct Watching {
    daemon: Arc<Daemon>,
    task: TaskId,
    source: Source,
    /// In seconds.
    every: u64,
    environment: Vec<(String, String)>,
    /// Of the text that holds.
    digest: Digest,
    context: Context,
}

impl Watching {
    fn go_on(mut self) {
        let mut wait = self.every;
        while self.waits(Duration::from_secs(wait)) {
            wait = match self.again() {
                Ok(()) => self.every,
                Err(why) => {
                    talkln!(
                        "bailiwick: `[relations]` of task {}: what was read before holds: {why}",
                        self.task
                    );
                    self.every.min(AGAIN)
                }
            };
        }
    }

    /// Waits; false when the task has ended.
    fn waits(&self, long: Duration) -> bool {
        let begun = std::time::Instant::now();
        loop {
            if !lock(&self.daemon.running).contains_key(&self.task) {
                return false;
            }
            let left = long.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn again(&mut self) -> Result<(), String> {
        let daemon = Arc::clone(&self.daemon);
        let found = match &self.source {
            Source::File(place) => people::in_file(place).map_err(|failure| failure.message)?,
            Source::Address(url) => {
                // Another task of the same rules may just have read it.
                let last = people::last_read(&daemon.places, url);
                match last.filter(|text| is_new(&daemon, text, self.every)) {
                    Some(found) => found,
                    None => {
                        let policy = daemon.compile(&self.context).map_err(|failure| failure.message)?;
                        read(&daemon, &self.context, Some(self.task), url, &policy, &self.environment)?
                    }
                }
            }
        };
        let digest = digest(&found);
        let mut context = self.context.clone();
        context.sources.relations = Some(found);
        let policy = context.load().map_err(|failure| failure.message)?;
        if digest != self.digest {
            let note = match &self.source {
                Source::File(place) => format!("{place} has changed"),
                Source::Address(url) => format!("{url} says something else"),
            };
            let event = Event::Fetched {
                purpose: "relations".into(),
                done: true,
                note,
                digest: Some(digest),
            };
            let recorded = daemon.record(Some(self.task), event);
            recorded.map_err(|fault| format!("it cannot be put on record: {fault}"))?;
        }
        let rules: Arc<dyn Rules> = Arc::new(policy);
        daemon.mediator.know_anew(self.task, &rules);
        (self.digest, self.context) = (digest, context);
        Ok(())
    }
}
