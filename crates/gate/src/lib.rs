//! The seam: what a gate asks, what the mediator answers, and the proof it hands out.
//!
//! Answers: how does a gate get a permit, and what must it do with it? How does the daemon order a fence? What do people
//! see and say who answer questions ([`desk`])?
//! Promises: P1 (a `Permit` is made here only from a mediator's answer, cannot be cloned, and fits one request),
//! P4 (frames have a version and a size limit; an unknown field or obligation is refused), P10 (the `Ledger` trait
//! says when a record is safe).
//! Trust: frames on a task's channel come from a gate that hostile bytes may have taken over; frames from the
//! mediator are trusted. The types keep *our* code honest; against a taken-over gate stand its own confinement and
//! the mediator, which settles each permit once.
//! Not here: deciding (`mediator`), sockets (whoever holds them): everything here is handed bytes and hands out bytes.

mod client;
pub mod desk;
mod handed;
mod launch;
mod ledger;
mod mediator;
mod permit;
mod secret;
mod start;
mod store;
mod wire;
mod written;

pub use client::{Client, ClientFault, Reply};
pub use handed::{Handed, HandedFault, MAX_HANDED};
pub use launch::{
    Bind, BindMode, Content, FencePlan, FenceReport, IdMap, Launch, LaunchFault, Limits, Listen, ListenKind,
    LoopbackPort, Protected, Protection, SECRET, Sought, Stdio,
};
pub use ledger::{Clock, Ledger, LedgerFault, Pending, Random, Receipt};
pub use mediator::{Mediator, Outcome, Passed, Question, Refusal, Settlement};
pub use permit::{Permit, PermitFault, PermitTerms, Spent};
pub use secret::{Handed as Redemption, MAX_SECRET, Redeemed, SecretValue, ToRedeem, ToSign, Use, Vault};
pub use start::{AsWritten, Judged, Reading, Start};
pub use store::{Counted, CountedKey, GrantRow, MayAnswer, Store, StoreFault, TaskRow, TaskState, Waiting};
pub use wire::{
    Answer, Call, FrameReader, GateKind, MAX_FRAME, PROTOCOL, WireFault, decode, digest_of, encode, encode_in,
};
pub use written::{RequestDigest, Written};
