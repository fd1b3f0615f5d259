//! The console: a web page on the machine's loopback for the person who answers.
//!
//! Answers: what is a browser shown, and what may it say on the person's behalf?
//! Promises: P8 (a yes names the digest of the sentence that the server made; it is taken only after the last part of the
//! question was served, and not within half a second of that), P11 (grants are narrowed and revoked, tasks ended).
//! Trust: whatever connects may be any program of the machine, or a page of the agent's in the person's browser: a request
//! counts only with its session's path and cookie, from its own origin. Texts of questions are the agent's: they are escaped and
//! made visible once more.
//! Not here: the queue (`mediator`), the way to the daemon and the files (the binary, by `Desk` and `Papers`).
//! See: docs/console.md.

mod access;
mod assets;
mod house;
mod live;
mod login;
mod pages;
mod papers;
mod reading;
mod routes;
mod server;
mod sessions;
mod terms;
mod wall;

pub use house::House;
pub use papers::{Entry, LogPage, LogWish, Logins, Papers, Rules, Tone};
pub use server::{Console, Door, ServeFault};
pub use sessions::LINK_LIFE;
