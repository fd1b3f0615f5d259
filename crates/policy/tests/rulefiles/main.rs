//! Rule files as people write them: what they mean, and what is said about mistakes in them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod brokers;
mod chosen;
mod commands;
mod documented;
mod git;
mod layers;
mod limits;
mod mandates;
mod mistakes;
mod network;
mod oversight;
mod people;
mod profiles;
mod secrets;
mod servers;
mod tags;
mod tools;

use bailiwick_gate::AsWritten;
use bailiwick_model::{AbsPath, Anchors, Decision, Request, Resource, TaskId, Verb};
use bailiwick_policy::{Diagnostic, Policy, SourceFile, Sources, asked_for};

pub(crate) fn anchors() -> Anchors {
    Anchors {
        root: AbsPath::new("/home/dana/site").ok(),
        home: AbsPath::new("/home/dana").unwrap(),
    }
}

pub(crate) fn sources() -> Sources {
    Sources {
        machine: Vec::new(),
        person: Vec::new(),
        project: None,
        project_trusted: true,
        profiles: Vec::new(),
        toolchains: Vec::new(),
        found: None,
        preset: None,
        lock: None,
        person_lock: None,
        pinning: false,
        relations: None,
        mandate: None,
        anchors: anchors(),
    }
}

pub(crate) fn file(name: &str, text: &str) -> SourceFile {
    SourceFile {
        name: name.into(),
        text: text.into(),
    }
}

/// Loads rules that name commands as they are written.
pub(crate) fn load(sources: &Sources) -> Result<Policy, Vec<Diagnostic>> {
    bailiwick_policy::load(sources, &AsWritten)
}

/// A trusted project's file alone.
pub(crate) fn project(text: &str) -> Result<Policy, Vec<Diagnostic>> {
    load(&Sources {
        project: Some(file("bailiwick.toml", text)),
        ..sources()
    })
}

pub(crate) fn policy(text: &str) -> Policy {
    project(text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"))
}

pub(crate) fn request(text: &str) -> Request {
    let (verb, resource) = asked_for(text, &anchors(), &AsWritten).unwrap();
    Request::new(TaskId([0; 8]), verb, resource)
}

pub(crate) fn tree(verb: Verb, path: &str) -> Request {
    Request::new(TaskId([0; 8]), verb, Resource::Tree(AbsPath::new(path).unwrap()))
}

/// `verdict code` in words.
pub(crate) fn answer(policy: &Policy, request: &Request) -> String {
    let Decision { verdict, code, .. } = policy.evaluate(request);
    format!("{} {code}", verdict.as_str())
}
