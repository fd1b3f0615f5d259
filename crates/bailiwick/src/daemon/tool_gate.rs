//! The tool gate's process, and what it and the daemon say to each other beside decisions.
//!
//! Promises: P9 (the gate is handed no secret), P11 (it ends with its channel).
//! Trust: the gate parses what agents and servers send, and may have been taken over: the daemon starts for it only servers
//! that the rules name, and writes down only definitions that a permit stands behind.
//! Not here: the gateway itself (`tools`), what is done for the gate (`servers`), the frames of its channel (`gate`).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use bailiwick_fence::Channel;
use bailiwick_model::{Nonce, Request};
use bailiwick_tools::{Backing, Config, Definition, Ends};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::lock;
use super::spare::{configured, held, lines_of_gate};

/// The word that makes this program a tool gate.
pub const TOOL_GATE: &str = "__tool-gate";

/// What a tool gate is to do. Its configuration comes along as a descriptor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Assigned {
    /// Serve a task: the door comes along, too.
    Serve {},
    /// List what servers offer, and end.
    Survey {},
}

/// What a tool gate wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wanted {
    /// A server is to be started.
    Start {
        /// The number; it comes back with the answer.
        call: u64,
        /// Its name.
        server: String,
    },
    /// A definition was accepted.
    Accept {
        /// The number.
        call: u64,
        /// What was asked and allowed.
        request: Box<Request>,
        /// The permit.
        nonce: Nonce,
    },
    /// A server is to be ended.
    End {
        /// Its name.
        server: String,
    },
    /// What servers offer, as a text in a descriptor that comes along.
    Surveyed {},
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Told {
    /// The server runs: what it reads and what it writes come along.
    Started {
        /// The number of the call.
        call: u64,
    },
    /// It is written down.
    Accepted {
        /// The number of the call.
        call: u64,
    },
    /// It could not be done.
    Failed {
        /// The number of the call.
        call: u64,
        /// Why.
        why: String,
    },
}

impl Told {
    fn call(&self) -> u64 {
        match self {
            Self::Started { call } | Self::Accepted { call } | Self::Failed { call, .. } => *call,
        }
    }
}

/// A tool gate that runs.
#[derive(Debug)]
pub struct ToolGate {
    process: Child,
    /// The task-bound channel: the mediator's end.
    pub channel: UnixStream,
}

impl ToolGate {
    /// Starts one that serves a task through this door, or, without one, lists what servers offer; what it wants comes on the
    /// channel.
    pub fn spawn(program: &PathBuf, config: &Config, door: Option<&OwnedFd>) -> std::io::Result<(Self, Channel)> {
        let (channel, gate_channel) = UnixStream::pair()?;
        let (control, gate_control) = Channel::pair()?;
        let control = Channel::over(control);
        let process = Command::new(program)
            .arg(TOOL_GATE)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(gate_channel)))
            .stdout(Stdio::from(gate_control))
            .spawn()?;
        let text = Zeroizing::new(serde_json::to_string(config)?);
        let config = held(&text)?;
        let along: Vec<_> = std::iter::once(&config).chain(door).map(AsFd::as_fd).collect();
        let order = match door {
            Some(_) => Assigned::Serve {},
            None => Assigned::Survey {},
        };
        control.send(&order, &along)?;
        Ok((Self { process, channel }, control))
    }

    /// Ends the gate: closes its channel, and does not leave it behind.
    pub fn end(mut self) {
        let _ = self.channel.shutdown(std::net::Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The daemon, as it is asked from the gate's process.
struct Line {
    to: Mutex<Channel>,
    calls: AtomicU64,
    open: Mutex<HashMap<u64, SyncSender<std::io::Result<Option<Ends>>>>>,
}

impl Line {
    fn over(channel: Channel) -> std::io::Result<Arc<Self>> {
        let line = Arc::new(Self {
            to: Mutex::new(channel.second()?),
            calls: AtomicU64::new(1),
            open: Mutex::default(),
        });
        let hearing = Arc::clone(&line);
        std::thread::spawn(move || hearing.hear(channel));
        Ok(line)
    }

    fn hear(&self, mut from: Channel) {
        while let Ok(Some(told)) = from.receive::<Told>() {
            let answer = match &told {
                Told::Started { .. } => from.take().and_then(|to| Ok(Some(Ends { to, from: from.take()? }))),
                Told::Accepted { .. } => Ok(None),
                Told::Failed { why, .. } => Err(std::io::Error::other(why.clone())),
            };
            if let Some(waiting) = lock(&self.open).remove(&told.call()) {
                let _ = waiting.send(answer);
            }
        }
        // Whoever still waits is told by the end of its sender.
        lock(&self.open).clear();
    }

    fn ask(&self, wanted: impl FnOnce(u64) -> Wanted) -> std::io::Result<Option<Ends>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = sync_channel(1);
        lock(&self.open).insert(call, answer);
        lock(&self.to).send(&wanted(call), &[])?;
        answered
            .recv()
            .map_err(|_| std::io::Error::other("the daemon does not answer"))?
    }
}

impl Backing for Line {
    fn start(&self, server: &str) -> std::io::Result<Ends> {
        let server = server.to_owned();
        let ends = self.ask(|call| Wanted::Start { call, server })?;
        ends.ok_or_else(|| std::io::Error::other("the server came without its ends"))
    }

    fn accept(&self, request: &Request, nonce: &Nonce, _: &Definition) -> std::io::Result<()> {
        // What is written down is what was asked and allowed: it stands in the request.
        let (request, nonce) = (Box::new(request.clone()), *nonce);
        self.ask(|call| Wanted::Accept { call, request, nonce }).map(drop)
    }

    fn end(&self, server: &str) {
        let server = server.to_owned();
        let _ = lock(&self.to).send(&Wanted::End { server }, &[]);
    }
}

/// The body of the tool gate's process: confines itself, waits for its task, serves until the channel closes.
pub fn run_tool_gate() -> std::process::ExitCode {
    let fail = |what: &str, cause: &dyn std::fmt::Display| {
        talkln!("bailiwick: the tool gate cannot go on: {what}: {cause}");
        std::process::ExitCode::FAILURE
    };
    let (channel, mut control) = match lines_of_gate() {
        Ok(lines) => lines,
        Err(e) => return fail("its channel", &e),
    };
    if let Err(fault) = bailiwick_fence::confine_gate(&[]) {
        return fail("its own confinement", &fault);
    }
    let assigned = match control.receive::<Assigned>() {
        Ok(Some(assigned)) => assigned,
        Ok(None) => return std::process::ExitCode::SUCCESS,
        Err(e) => return fail("its order", &e),
    };
    let config = match configured::<Config>(&mut control) {
        Ok(config) => config,
        Err(e) => return fail("its order", &e),
    };
    let door = match assigned {
        Assigned::Serve {} => match control.take() {
            Ok(door) => Some(door),
            Err(e) => return fail("its door", &e),
        },
        Assigned::Survey {} => None,
    };
    let line = match Line::over(control) {
        Ok(line) => line,
        Err(e) => return fail("its line to the daemon", &e),
    };
    match door {
        Some(door) => match bailiwick_tools::run(config, door, channel, line) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(fault) => fail("its service", &fault),
        },
        None => match surveyed(&config, &line) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(e) => fail("what servers offer", &e),
        },
    }
}

/// Lists what servers offer, and says it.
fn surveyed(config: &Config, line: &Arc<Line>) -> std::io::Result<()> {
    let backing: Arc<dyn Backing> = Arc::clone(line) as _;
    let found = bailiwick_tools::survey(config, &backing)?;
    let text = held(&serde_json::to_string(&found)?)?;
    lock(&line.to).send(&Wanted::Surveyed {}, &[text.as_fd()])
}
