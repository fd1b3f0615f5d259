//! The fetcher's process: makes one request for the daemon, which speaks to no network and parses nothing hostile.
//!
//! Answers: what does the address that a person named say? Promises: P9 (what is sent goes over in a descriptor, and is in no
//! argument and no variable), P10 (the request is on record before it is sent, and what came of it before it is used), P4 (a
//! rule that denies the request holds; a process that does not answer is ended).
//! Trust: the address is the person's; what it answers is read in the process, which is confined before its first byte and
//! gives back a few bounded fields, or a text.
//! Not here: the request itself (`bailiwick_proxy::fetch`), what is done with it (`renewals`).

use std::io::Read as _;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use bailiwick_fence::Channel;
use bailiwick_model::{Digest, Event, HttpUrl, Method, TaskId};
use bailiwick_policy::Policy;
use bailiwick_proxy::{FetchFrom, Fetched, SystemResolver, Wish, fetch};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::Daemon;
use super::believed::persons_roots;
use super::spare::{READABLE, configured, held};

/// The word that makes this program a fetcher.
pub const FETCHER: &str = "__fetcher";

/// How long the process may take in all.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is said with an order, which comes along as a descriptor.
#[derive(Debug, Serialize, Deserialize)]
struct Ordered {}

/// What is said with the answer: it, and a text, come along.
#[derive(Debug, Serialize, Deserialize)]
struct Answered {}

/// What is ordered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    from: FetchFrom,
    wish: Wish,
}

/// Whom a request is made for.
pub struct For<'a> {
    /// In the words of the log: `secret:NAME`, `relations`.
    pub purpose: &'a str,
    /// The task, where it is for one.
    pub task: Option<TaskId>,
    /// The rules that hold.
    pub policy: &'a Policy,
    /// The person's variables.
    pub environment: &'a [(String, String)],
}

impl Daemon {
    /// Makes a request of the daemon's own; what came of it is on record.
    pub fn fetch(&self, whom: &For<'_>, url: &HttpUrl, wish: Wish) -> Result<(Fetched, String), String> {
        let method = match &wish {
            Wish::Renew { .. } => "POST",
            Wish::Read { .. } => "GET",
        };
        let method = Method::parse(method).ok_or("there is no such method")?;
        if whom.policy.denies_own(&method, url) {
            return Err(format!("a rule denies `{} {url}`", method.as_str()));
        }
        let settings = whom.policy.settings();
        let from = FetchFrom {
            url: url.to_string(),
            hosts: settings.hosts.clone(),
            private: settings.private.iter().any(|pattern| pattern.covers(&url.host)),
            roots: persons_roots(&settings.roots, whom.environment)?,
        };
        let recorded = |event| {
            let kept = self.record(whom.task, event);
            kept.map_err(|fault| format!("it cannot be put on record: {fault}"))
        };
        let purpose = || whom.purpose.to_owned();
        recorded(Event::Fetching {
            purpose: purpose(),
            method,
            url: url.clone(),
        })?;
        let found = self.in_a_process(&Order { from, wish });
        let (found, text) = found.unwrap_or_else(|why| (Fetched::Failed { why }, String::new()));
        let (done, note, digest) = match &found {
            Fetched::Renewed { seconds, token, .. } => {
                let holds = seconds.map_or_else(|| "renewed".to_owned(), |seconds| format!("renewed for {seconds} s"));
                let rotated = if token.is_some() {
                    ", with a new refresh token"
                } else {
                    ""
                };
                (true, format!("{holds}{rotated}"), None)
            }
            Fetched::Read {} => {
                let digest = Digest(Sha256::digest(&text).into());
                (true, format!("{} bytes", text.len()), Some(digest))
            }
            Fetched::Refused { word } => (false, format!("refused: {word}"), None),
            Fetched::Failed { why } => (false, why.clone(), None),
        };
        recorded(Event::Fetched {
            purpose: purpose(),
            done,
            note,
            digest,
        })?;
        Ok((found, text))
    }

    fn in_a_process(&self, order: &Order) -> Result<(Fetched, String), String> {
        let fault = |e: std::io::Error| format!("the request could not be made: {e}");
        let (control, theirs) = Channel::pair().map_err(fault)?;
        let mut control = Channel::over(control);
        let mut process = Command::new(self.spares.own_program())
            .arg(FETCHER)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(fault)?;
        let text = Zeroizing::new(serde_json::to_string(order).map_err(|e| e.to_string())?);
        let ordered = held(&text).and_then(|order| control.send(&Ordered {}, &[order.as_fd()]));
        let (say, said) = channel();
        std::thread::spawn(move || {
            let _ = say.send(heard(&mut control));
        });
        let answer = match ordered {
            Ok(()) => said
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| Err("the request took too long".into())),
            Err(e) => Err(fault(e)),
        };
        let _ = process.kill();
        let _ = process.wait();
        answer
    }
}

fn heard(control: &mut Channel) -> Result<(Fetched, String), String> {
    let fault = |e: std::io::Error| format!("the request could not be made: {e}");
    match control.receive::<Answered>().map_err(fault)? {
        Some(Answered {}) => {}
        None => return Err("the process that made the request ended without an answer".into()),
    }
    let found = configured::<Fetched>(control).map_err(fault)?;
    let mut text = String::new();
    let file = std::fs::File::from(control.take().map_err(fault)?);
    let most = u64::try_from(MOST_TEXT).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_string(&mut text).map_err(fault)?;
    match text.len() > MOST_TEXT {
        true => Err(format!("what was read is longer than {MOST_TEXT} bytes")),
        false => Ok((found, text)),
    }
}

/// Longest text that is taken from a fetcher, in bytes.
pub const MOST_TEXT: usize = 16 << 20;

/// The body of the fetcher's process: confines itself, hears its one order, answers, and ends.
pub fn run_fetcher() -> std::process::ExitCode {
    let fail = |what: &str, cause: &dyn std::fmt::Display| {
        talkln!("bailiwick: the fetcher cannot go on: {what}: {cause}");
        std::process::ExitCode::FAILURE
    };
    let control = std::io::stdin().as_fd().try_clone_to_owned();
    let mut control = match control {
        Ok(control) => Channel::over(control),
        Err(e) => return fail("its line", &e),
    };
    let readable = READABLE.iter().chain(&bailiwick_proxy::ROOTS);
    let readable: Vec<_> = readable.map(std::path::PathBuf::from).collect();
    if let Err(fault) = bailiwick_fence::confine_gate(&readable) {
        return fail("its own confinement", &fault);
    }
    let order = match control.receive::<Ordered>() {
        Ok(Some(Ordered {})) => configured::<Order>(&mut control),
        Ok(None) => return std::process::ExitCode::SUCCESS,
        Err(e) => Err(e),
    };
    let Order { from, wish } = match order {
        Ok(order) => order,
        Err(e) => return fail("its order", &e),
    };
    let (found, text) = fetch(from, &wish, SystemResolver);
    let answered = || -> std::io::Result<()> {
        let found = Zeroizing::new(serde_json::to_string(&found)?);
        let (found, text) = (held(&found)?, held(&text)?);
        control.send(&Answered {}, &[found.as_fd(), text.as_fd()])
    };
    match answered() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => fail("its answer", &e),
    }
}
