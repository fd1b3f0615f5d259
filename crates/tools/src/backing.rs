//! What the gate asks of the daemon beside decisions.

use std::io;
use std::os::fd::OwnedFd;

use bailiwick_model::{Nonce, Request};

use crate::definition::Definition;

/// The two ends of a server that was started.
#[derive(Debug)]
pub struct Ends {
    /// What the server reads.
    pub to: OwnedFd,
    /// What it writes.
    pub from: OwnedFd,
}

/// The daemon, as the gate sees it. The calls may block: each is made on a thread of its own.
pub trait Backing: Send + Sync + 'static {
    /// Starts a server in a fence of its own.
    fn start(&self, server: &str) -> io::Result<Ends>;

    /// Writes down that a definition was accepted, under the permit that was spent on the request.
    fn accept(&self, request: &Request, nonce: &Nonce, definition: &Definition) -> io::Result<()>;

    /// Ends a server.
    fn end(&self, server: &str);
}
