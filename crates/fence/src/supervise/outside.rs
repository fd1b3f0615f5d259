//! Commands that run outside for a program inside: the place that such a command has here, until it has ended there.
//!
//! Answers: what does the program see that started it? A process with its number, parent, group and session, which has the
//! new program's name but never runs an instruction of it: at its first it waits, and ends with the status of the command
//! outside. So whoever started it waits, signals and pipes as ever.
//! Promises: P1, P5 (words, variables and file are those that were judged, as for all starts), P11 (who waits no more: the
//! command outside ends).
//! Trust: the process is the agent's, and so is every descriptor of it. Three of them, and the name of its folder, go outside.
//! Not here: running the command (the daemon), what is said (`brokered`).
//! See: pidfd_getfd(2), ptrace(2).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bailiwick_gate::{Judged, Start};
use bailiwick_model::{AbsPath, Anchors, CommandPattern, Nonce, Request, Resource, Verb};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::caller::link_text;
use super::{Supervisor, lock};
use crate::brokered::{Outcome, Wanted};
use crate::channel::Channel;
use crate::sys::trace::{self, Stopped};

/// Most commands that run outside at one time.
const MAX_OUTSIDE: usize = 64;
/// The exit status of a command that could not be run outside.
const NOT_RUN: i32 = 126;

/// The line to whoever runs commands outside.
#[derive(Debug)]
pub(super) struct Outside {
    patterns: Vec<CommandPattern>,
    /// None once the line is broken.
    out: Mutex<Option<Channel>>,
    calls: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

/// Who waits for a command outside.
#[derive(Debug)]
struct Waiting {
    status: Option<i32>,
    /// Closed when there is a status.
    tell: Option<OwnedFd>,
}

/// What of a process goes outside.
#[derive(Debug)]
pub(super) struct Place {
    process: i32,
    /// Where it waits.
    at: usize,
    alive: OwnedFd,
    three: [OwnedFd; 3],
    directory: String,
}

impl Outside {
    /// Takes over the socket; a thread of its own hears how commands end.
    pub(super) fn open(patterns: &[String], socket: OwnedFd) -> std::io::Result<Arc<Self>> {
        let anchors = Anchors {
            root: None,
            home: AbsPath::root(),
        };
        let read = |text: &String| CommandPattern::parse(text, &anchors).map_err(std::io::Error::other);
        let from = Channel::over(socket.try_clone()?);
        let outside = Arc::new(Self {
            patterns: patterns.iter().map(read).collect::<Result<_, _>>()?,
            out: Mutex::new(Some(Channel::over(socket))),
            calls: AtomicU64::new(0),
            waiting: Mutex::default(),
        });
        let hearing = Arc::clone(&outside);
        std::thread::Builder::new()
            .stack_size(128 * 1024)
            .spawn(move || hearing.hear(from))?;
        Ok(outside)
    }

    fn hear(&self, mut from: Channel) {
        while let Ok(Some(Outcome::Ended { call, status })) = from.receive::<Outcome>() {
            if let Some(waiting) = lock(&self.waiting).get_mut(&call) {
                waiting.status = Some(status);
                waiting.tell = None;
            }
        }
        *lock(&self.out) = None;
        for waiting in lock(&self.waiting).values_mut() {
            waiting.tell = None;
        }
    }

    fn say(&self, wanted: &Wanted, along: &[OwnedFd]) -> Option<()> {
        let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
        let mut out = lock(&self.out);
        let said = out.as_ref().map(|out| out.send(wanted, &along));
        if matches!(said, Some(Ok(()))) {
            return Some(());
        }
        *out = None;
        None
    }

    /// Runs a command outside, and waits: its status, or none where nobody waits for it any more.
    fn run(&self, nonce: Nonce, request: Request, place: &mut Place) -> Option<i32> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok()?;
        let waiting = Waiting {
            status: None,
            tell: Some(tell),
        };
        lock(&self.waiting).insert(call, waiting);
        let wanted = Wanted::Run {
            call,
            nonce,
            request: Box::new(request),
            directory: std::mem::take(&mut place.directory),
        };
        let begun = self.say(&wanted, &place.three);
        let there = begun.is_some_and(|()| place.waits_for(&told));
        let waited = lock(&self.waiting).remove(&call);
        if begun.is_some() && !there {
            self.say(&Wanted::Gone { call }, &[]);
            return None;
        }
        Some(waited.and_then(|waited| waited.status).unwrap_or(NOT_RUN))
    }
}

impl Place {
    /// Turns a program that stands before its first instruction into one that waits, and takes what goes outside.
    pub(super) fn of(process: i32) -> std::io::Result<Self> {
        let pid = Pid::from_raw(process).ok_or(Errno::SRCH)?;
        let alive = pidfd_open(pid, PidfdFlags::empty())?;
        let take = |number| match pidfd_getfd(&alive, number, PidfdGetfdFlags::empty()) {
            // A program may be started with some of the three closed.
            Err(Errno::BADF) => rustix::fs::open(
                "/dev/null",
                rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            ),
            other => other,
        };
        let three = [take(0)?, take(1)?, take(2)?];
        let directory = link_text(&format!("/proc/{process}/cwd"))?;
        let at = trace::have_it_wait(process)?;
        Ok(Self {
            process,
            at,
            alive,
            three,
            directory: directory.display().to_string(),
        })
    }

    fn has_ended(&self) -> bool {
        let mut ready = [PollFd::new(&self.alive, PollFlags::IN)];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut ready, Some(&none)), Ok(1..))
    }

    /// Waits until there is an answer; false when the process has ended first.
    fn waits_for(&self, told: &OwnedFd) -> bool {
        loop {
            let mut ready = [
                PollFd::new(told, PollFlags::IN),
                PollFd::new(&self.alive, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => {
                    let spoken = |place: usize| ready.get(place).is_some_and(|one| !one.revents().is_empty());
                    return spoken(0) || !spoken(1);
                }
            }
        }
    }
}

impl Supervisor {
    /// What a start is to be asked for, where it is one that runs outside.
    pub(super) fn brokered(&self, start: &Start) -> Option<Request> {
        let outside = self.outside.as_ref()?;
        let resource = self.charge.reading.read(start);
        let Resource::Command(command) = &resource else {
            return None;
        };
        let fits = |pattern: &CommandPattern| command.forms().iter().all(|form| pattern.admits(form));
        let fits = outside.patterns.iter().any(fits);
        fits.then(|| Request::new(self.charge.task, Verb::Broker, resource))
    }

    /// True where some starts run outside.
    pub(super) fn is_brokering(&self) -> bool {
        self.outside.is_some() && self.charge.judged != Judged::Nothing
    }

    /// Has the command run outside, in a thread of its own, and ends the process that has its place with its status.
    pub(super) fn run_outside(self: &Arc<Self>, nonce: Nonce, request: Request, mut place: Place) {
        let Some(outside) = self.outside.clone() else { return };
        let supervisor = Arc::clone(self);
        let full = lock(&outside.waiting).len() >= MAX_OUTSIDE;
        let process = place.process;
        let spawned = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let status = if full {
                Some(NOT_RUN)
            } else {
                outside.run(nonce, request, &mut place)
            };
            if let Some(status) = status {
                supervisor.end_place(&place, status);
            }
        });
        if spawned.is_err()
            && let Some(process) = Pid::from_raw(process)
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }

    fn end_place(&self, place: &Place, status: i32) {
        let _following = self.charge.children.follow(place.process);
        if place.has_ended() || trace::seize(place.process).is_err() {
            return;
        }
        match trace::wait() {
            Ok(Stopped::Back(process, signal)) => {
                // The number may be another's by now.
                if !place.has_ended() {
                    let _ = trace::have_it_end(process, place.at, u8::try_from(status & 0xff).unwrap_or(u8::MAX));
                }
                let _ = trace::let_go(process, signal);
            }
            Ok(Stopped::AtStart(process)) => drop(trace::let_go(process, 0)),
            Ok(Stopped::Ended(process, status)) => self.charge.children.ended(process, status),
            Err(_) => {}
        }
    }
}
