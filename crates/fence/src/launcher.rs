//! The daemon's end of a launcher.
//!
//! Promises: P11 (dropping it ends everything in the fence), P13 (what is reported is what the kernel said).
//! Not here: the launcher process itself (`serve`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::sync::Arc;

use bailiwick_gate::{FencePlan, FenceReport, Launch, LaunchFault, Spent};
use bailiwick_model::Code;

use crate::channel::Channel;
use crate::errands::Errands;
use crate::fault::{cause, failed};
use crate::order::{Errand, Hear, Say};

/// A launcher process that waits for its one order. It can be started ahead of time.
#[derive(Debug)]
pub struct Launcher {
    line: Option<Line>,
}

/// A fence's ends of its lines to the mediator, and what else comes along with an order.
#[derive(Debug, Default)]
pub struct Lines {
    /// The supervisor's.
    pub supervisor: Option<OwnedFd>,
    /// That of the server of the trees that are asked about.
    pub files: Option<OwnedFd>,
    /// At its other end commands are run outside (frames of [`crate::Wanted`]): without one there are none.
    pub brokers: Option<OwnedFd>,
    /// What the program is handed, where the plan says so.
    pub secret: Option<OwnedFd>,
    /// Contents of files, as many as the plan says.
    pub contents: Vec<Arc<OwnedFd>>,
}

/// The channel to a launcher, and the process at its end.
#[derive(Debug)]
struct Line {
    channel: Channel,
    process: Child,
}

impl Line {
    fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Write);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.hang_up();
        // It ends at once, after all in its fence.
        let _ = self.process.wait();
    }
}

impl Launcher {
    /// Starts `exe args…` as a launcher, with the channel for its input, the other two on `/dev/null`, and an empty
    /// environment. The program calls [`crate::run_launcher`] with [`crate::inherited_channel`].
    pub fn spawn(exe: &Path, args: &[&str]) -> io::Result<Self> {
        let (mine, theirs) = Channel::pair()?;
        let mut command = Command::new(exe);
        command
            .args(args)
            .env_clear()
            .current_dir("/")
            .stdin(ProcessStdio::from(theirs))
            .stdout(ProcessStdio::null())
            .stderr(ProcessStdio::null());
        // Nothing is to be arranged between fork and exec, so the memory of whoever calls this is not copied for it: a page
        // that is written afterwards would cost a fault each.
        let process = command.spawn()?;
        // The command holds the launcher's end; with it gone, its death is noticed here.
        drop(command);
        let channel = Channel::over(mine);
        Ok(Self {
            line: Some(Line { channel, process }),
        })
    }

    /// Gives the order: waits until the program runs, or says why it does not. `grants` are the spent permits of what
    /// the plan hands out; `stdio` are the three descriptors of [`bailiwick_gate::Stdio::Pipes`]; at the other ends of `lines`
    /// the fence's questions are answered (frames of [`bailiwick_gate::Client`]): without one they are refused. A launcher
    /// carries out one order.
    pub fn launch(
        &mut self,
        grants: Vec<Spent>,
        plan: &FencePlan,
        stdio: Option<[OwnedFd; 3]>,
        lines: Lines,
    ) -> Result<Started, LaunchFault> {
        if grants.is_empty() && !plan.binds.is_empty() {
            return Err(LaunchFault {
                code: Code::PermitRefused,
                ..failed("cannot hand out files", "no permit came with the order")
            });
        }
        let used = || {
            failed(
                "cannot start the program",
                "its launcher has carried out an order already",
            )
        };
        let mut line = self.line.take().ok_or_else(used)?;
        let lost = |error: io::Error| failed("cannot speak to the launcher", cause(error));
        // A line whose other end is closed is none.
        let closed = |line: Option<OwnedFd>| line.map_or_else(|| Channel::pair().map(|(mine, _)| mine), Ok);
        let supervisor = closed(lines.supervisor).map_err(lost)?;
        let files = plan
            .is_served()
            .then(|| closed(lines.files))
            .transpose()
            .map_err(lost)?;
        let brokers = closed(lines.brokers).map_err(lost)?;
        let (secret, contents) = (lines.secret, lines.contents);
        let along = [&supervisor, &brokers].into_iter().chain(&files).chain(&secret);
        let along = along.chain(contents.iter().map(AsRef::as_ref));
        let along = along.chain(stdio.iter().flatten());
        let along: Vec<BorrowedFd<'_>> = along.map(AsFd::as_fd).collect();
        line.channel.send(&Say::order(plan), &along).map_err(lost)?;
        drop(along);
        drop((stdio, supervisor, files, brokers, secret, contents));
        match line.channel.receive::<Hear>().map_err(lost)? {
            Some(Hear::Started {
                report,
                listeners,
                terminal,
            }) => {
                let listeners = (0..listeners)
                    .map(|_| line.channel.take())
                    .collect::<Result<_, _>>()
                    .map_err(lost)?;
                let terminal = terminal.then(|| line.channel.take()).transpose().map_err(lost)?;
                let child = Running {
                    line,
                    errands: Errands::default(),
                    status: None,
                };
                Ok(Started {
                    report,
                    listeners,
                    terminal,
                    child,
                })
            }
            Some(Hear::Fault { fault }) => Err(fault),
            Some(Hear::Exited { .. } | Hear::Done { .. } | Hear::Mounts | Hear::Shown { .. }) | None => {
                Err(failed("cannot start the program", "its launcher ended"))
            }
        }
    }
}

impl Launch for Launcher {
    type Running = Started;

    fn launch(&mut self, grants: Vec<Spent>, plan: &FencePlan) -> Result<Started, LaunchFault> {
        Self::launch(self, grants, plan, None, Lines::default())
    }
}

/// A program that runs in its fence.
#[derive(Debug)]
pub struct Started {
    /// What is in force.
    pub report: FenceReport,
    /// The sockets that listen inside, in the order of the plan.
    pub listeners: Vec<OwnedFd>,
    /// The outer end of the program's terminal, where it has one.
    pub terminal: Option<OwnedFd>,
    /// The program. Dropping it ends everything in the fence.
    pub child: Running,
}

/// A program that runs, or has ended.
#[derive(Debug)]
pub struct Running {
    line: Line,
    errands: Errands,
    status: Option<i32>,
}

impl Running {
    /// Waits until the program has ended, and with it everything in its fence. Its exit code, or 128 and the number of
    /// the signal that ended it; 137 when the launcher was lost.
    pub fn wait(&mut self) -> i32 {
        while self.status.is_none() {
            match self.line.channel.receive::<Hear>() {
                Ok(Some(Hear::Exited { status })) => self.status = Some(status),
                Ok(Some(Hear::Done {
                    call,
                    descriptor,
                    failed,
                })) => {
                    let along = if descriptor {
                        self.line.channel.take().ok()
                    } else {
                        None
                    };
                    self.errands.answer(call, failed.map_or(Ok(along), Err));
                }
                Ok(Some(Hear::Started { .. } | Hear::Mounts | Hear::Shown { .. } | Hear::Fault { .. })) => {}
                Ok(None) | Err(_) => self.status = Some(137),
            }
        }
        self.errands.end();
        self.status.unwrap_or(137)
    }

    /// Sends a signal to the program and its process group.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let channel = &self.line.channel;
        self.errands.alone(|| channel.send(&Say::Signal { number }, &[]))
    }

    /// Ends everything in the fence at once, and waits for it.
    pub fn end(&mut self) -> i32 {
        self.line.hang_up();
        self.wait()
    }

    /// A second handle, for signals and for ending from elsewhere.
    pub fn control(&self) -> io::Result<Control> {
        let socket = self.line.channel.as_fd().try_clone_to_owned()?;
        Ok(Control {
            channel: Channel::over(socket),
            errands: self.errands.clone(),
        })
    }

    /// The number of the launcher process, for messages.
    pub fn launcher(&self) -> u32 {
        self.line.process.id()
    }
}

/// A second handle on a running program, for whoever signals or ends it, or hands something in, while another waits.
#[derive(Debug)]
pub struct Control {
    channel: Channel,
    errands: Errands,
}

impl Control {
    /// Sends a signal to the program and its process group.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        self.errands.alone(|| self.channel.send(&Say::Signal { number }, &[]))
    }

    /// Ends everything in the fence at once; [`Running::wait`] then answers.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Write);
    }

    /// Connects to a port of the loopback inside. The socket does not block; where the server inside is slow, the
    /// connection may still be coming about. Fails when nothing listens there. Needs a thread in [`Running::wait`].
    pub fn connect(&self, port: u16) -> io::Result<OwnedFd> {
        let socket = self.ask(Errand::Connect { port }, None)?;
        socket.ok_or_else(|| io::Error::other("no socket came along"))
    }

    /// Makes a folder in the hand-over folder of the plan. Fails where something of the name is there already. Needs a
    /// thread in [`Running::wait`].
    pub fn place_folder(&self, path: &str) -> io::Result<()> {
        self.ask(Errand::PlaceFolder { path: path.into() }, None).map(drop)
    }

    /// Puts a copy of a file into the hand-over folder of the plan: at most [`MAX_FILE`](crate::MAX_FILE) bytes. The
    /// content must be a file that nobody changes meanwhile. Fails where something of the name is there already. Needs
    /// a thread in [`Running::wait`].
    pub fn place_file(&self, path: &str, executable: bool, content: &OwnedFd) -> io::Result<()> {
        let path = path.into();
        self.ask(Errand::PlaceFile { path, executable }, Some(content))
            .map(drop)
    }

    fn ask(&self, errand: Errand, along: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let along: Vec<_> = along.into_iter().map(AsFd::as_fd).collect();
        self.errands
            .ask(|call| self.channel.send(&Say::Errand { call, errand }, &along))
    }
}

impl AsFd for Running {
    /// Becomes readable when the program has ended: [`Running::wait`] then answers at once.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.channel.as_fd()
    }
}
