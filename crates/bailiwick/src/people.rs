//! What is known of people where rules ask: the text that `[relations]` names, read from a file, or as it was last read from
//! an address.
//!
//! Promises: P2 (a file that the agent may change says nothing), P14 (`can` and the gates are told the same text, with its time).
//! Trust: the source is the person's; what was read from an address lies in the state folder, which is in no fence.
//! Not here: reading an address, and reading anew while a task runs (`daemon::relations`).

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use bailiwick_model::{AbsPath, Digest, HttpUrl, Millis, Request, Resource, TaskId, Verb, Verdict};
use bailiwick_policy::{Policy, RelationsFrom, RelationsText, SourceFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::context::{Context, read_rule_file};
use crate::failure::Failure;
use crate::places::Places;
use crate::private_file;

/// Largest text that is kept, in bytes: what it says, as JSON.
const MAX_KEPT: u64 = 16 * 1024 * 1024;

/// Where what is known of people stands.
pub enum Source {
    File(AbsPath),
    Address(HttpUrl),
}

/// A text as it was read from an address.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    url: String,
    read_at: Millis,
    text: String,
}

/// The place that rules name, with the rules themselves; nothing where they ask nothing of people.
pub fn source(context: &Context) -> Result<Option<(Source, RelationsFrom, Policy)>, Failure> {
    let files = context.sources.person.iter().chain(&context.sources.machine);
    let mut files = files.chain(&context.sources.project);
    if !files.any(|file| file.text.contains("relations")) {
        return Ok(None);
    }
    let Ok(policy) = context.clone().surveying().load() else {
        // What is wrong with the rules is said where they are loaded.
        return Ok(None);
    };
    let Some(relations) = policy.settings().relations.clone() else {
        return Ok(None);
    };
    let source = match relations.from.strip_prefix("file:") {
        None => Source::Address(HttpUrl::parse(&relations.from).map_err(|e| Failure::usage(e.to_string()))?),
        Some(path) => {
            let pattern = context.sources.anchors.path(path);
            let pattern = pattern.map_err(|e| Failure::usage(e.to_string()))?;
            let place = pattern.as_tree();
            Source::File(place.ok_or_else(|| Failure::usage(format!("`{}` names no one file", relations.from)))?)
        }
    };
    Ok(Some((source, relations, policy)))
}

/// A text as it was read: under this name, at this time.
pub fn text(name: String, text: String, read_at: Millis) -> RelationsText {
    RelationsText {
        file: SourceFile { name, text },
        read_at,
        user: crate::places::account().map(|account| account.name).unwrap_or_default(),
    }
}

/// Reads a file, now.
pub fn in_file(place: &AbsPath) -> Result<RelationsText, Failure> {
    let file = read_rule_file(&place.to_path_buf())?
        .ok_or_else(|| Failure::usage(format!("`[relations]`: there is no `{place}`")))?;
    let now = bailiwick_gate::Clock::now(&crate::daemon::SteadyClock::default());
    Ok(text(file.name, file.text, now))
}

/// What is known where rules ask of people: the file as it is now, or the address as it was last read.
pub fn known(context: &Context, places: &Places) -> Result<Option<RelationsText>, Failure> {
    let Some((source, _, policy)) = source(context)? else {
        return Ok(None);
    };
    let place = match source {
        Source::Address(url) => return Ok(last_read(places, &url)),
        Source::File(place) => place,
    };
    let found = in_file(&place)?;
    let write = Request::new(TaskId([0; 8]), Verb::Write, Resource::File(place.clone()));
    if policy.evaluate(&write).verdict != Verdict::Deny {
        return Err(
            Failure::usage(format!("`{place}` says who may do what, and the agent may change it"))
                .hint("deny it under `[files]`, or keep it outside of what the agent may write"),
        );
    }
    Ok(Some(found))
}

fn place_of(places: &Places, url: &HttpUrl) -> PathBuf {
    let mut name = Digest(Sha256::digest(url.to_string()).into()).to_string();
    name.truncate(32);
    places.relations().join(format!("{name}.json"))
}

/// An address as it was last read; nothing where it never was, or what was kept cannot be read.
pub fn last_read(places: &Places, url: &HttpUrl) -> Option<RelationsText> {
    use std::io::Read as _;
    let mut kept = String::new();
    let file = std::fs::File::open(place_of(places, url)).ok()?;
    file.take(MAX_KEPT).read_to_string(&mut kept).ok()?;
    let kept: Kept = serde_json::from_str(&kept).ok()?;
    (kept.url == url.to_string()).then(|| text(kept.url, kept.text, kept.read_at))
}

/// Keeps what was read from an address; what it is then.
pub fn keep(places: &Places, url: &HttpUrl, found: String, read_at: Millis) -> std::io::Result<RelationsText> {
    let kept = Kept {
        url: url.to_string(),
        read_at,
        text: found,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(places.relations())?;
    private_file::put(&place_of(places, url), serde_json::to_string(&kept)?.as_bytes())?;
    Ok(text(kept.url, kept.text, kept.read_at))
}
