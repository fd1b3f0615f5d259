//! One connection of the person's: hears what a command says, and answers.
//!
//! Trust: the peer must be the same user, outside every fence. A peer that lives in another user namespace is a
//! fenced one, however it came by the socket.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bailiwick_fence::Channel;
use bailiwick_gate::{LaunchFault, Ledger, Store};
use bailiwick_model::{Code, Event};

use super::{Daemon, leave, lock, task};
use crate::protocol::{DaemonStatus, PROTOCOL, PersonAnswer, PersonCall, RunOrder, RunningTask, build};

/// Says why a connection ended before its time.
pub type Ended = std::io::Error;

/// Serves one connection until it closes.
pub fn serve(daemon: &Arc<Daemon>, socket: UnixStream) -> Result<(), Ended> {
    is_person(&socket)?;
    let mut channel = Channel::over(socket.into());
    let Some(PersonCall::Hello { .. }) = channel.receive::<PersonCall>()? else {
        return Err(std::io::Error::other("it did not begin with a greeting"));
    };
    let tasks = lock(&daemon.running).len();
    channel.send(
        &PersonAnswer::Hello {
            protocol: PROTOCOL,
            build: build(),
            tasks,
        },
        &[],
    )?;
    while let Some(call) = channel.receive::<PersonCall>()? {
        match call {
            PersonCall::Hello { .. } | PersonCall::Signal(_) => {
                return Err(std::io::Error::other("a frame came out of turn"));
            }
            PersonCall::Run(order) => return run(daemon, channel, &order),
            PersonCall::Status => channel.send(&PersonAnswer::Status(Box::new(status(daemon))), &[])?,
            PersonCall::Checkpoint => {
                let answer = daemon.log.checkpoint().map_or_else(
                    |e| failed(Code::LogUnavailable, "cannot write a checkpoint", &e.to_string()),
                    PersonAnswer::Checkpoint,
                );
                channel.send(&answer, &[])?;
            }
            PersonCall::Trust { file, digest, trusted } => channel.send(&trust(daemon, file, digest, trusted), &[])?,
            PersonCall::Stop => {
                channel.send(&PersonAnswer::Done, &[])?;
                leave(daemon);
            }
        }
    }
    Ok(())
}

fn failed(code: Code, what: &str, cause: &str) -> PersonAnswer {
    PersonAnswer::Failed(LaunchFault {
        code,
        what: what.into(),
        cause: cause.into(),
        hint: String::new(),
    })
}

fn is_person(socket: &UnixStream) -> Result<(), Ended> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(std::io::Error::other("the peer is another user"));
    }
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user"));
    let theirs = namespace(&peer.pid.as_raw_nonzero().to_string())?;
    if theirs != namespace("self")? {
        return Err(std::io::Error::other("the peer lives in a fence"));
    }
    Ok(())
}

fn status(daemon: &Daemon) -> DaemonStatus {
    let tasks = lock(&daemon.running)
        .values()
        .map(task::Handle::describe)
        .collect::<Vec<RunningTask>>();
    DaemonStatus {
        pid: std::process::id(),
        build: build(),
        records: daemon.log.size(),
        log_healthy: daemon.log.is_healthy(),
        tasks,
    }
}

fn trust(daemon: &Daemon, file: String, digest: bailiwick_model::Digest, trusted: bool) -> PersonAnswer {
    let event = Event::Trusted {
        file: file.clone(),
        digest,
        trusted,
    };
    // On record before it holds.
    if let Err(fault) = daemon.record(None, event) {
        return failed(Code::LogUnavailable, "trust was not given", &fault.to_string());
    }
    match daemon.store.trust(&file, &digest, trusted, daemon.clock.now()) {
        Ok(()) => PersonAnswer::Done,
        Err(fault) => failed(Code::Fault, "trust was not given", &fault.to_string()),
    }
}

/// Runs a task on this connection: when the connection closes, the task ends.
fn run(daemon: &Arc<Daemon>, mut channel: Channel, order: &RunOrder) -> Result<(), Ended> {
    let descriptors = std::iter::from_fn(|| channel.take().ok()).collect();
    let started = task::start(daemon, order, descriptors, &|planned| {
        channel.send(&PersonAnswer::Planned(Box::new(planned)), &[])
    });
    let (handle, waiting, report, terminal) = match started {
        Ok(started) => (started.handle, started.waiting, started.report, started.terminal),
        Err(fault) => return channel.send(&PersonAnswer::Failed(fault), &[]),
    };
    let terminal: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
    if let Err(e) = channel.send(&PersonAnswer::Started(report), &terminal) {
        handle.end();
        waiting.wait(daemon);
        return Err(e);
    }
    drop(terminal);
    let answers = channel.second()?;
    let ending = Arc::clone(daemon);
    let wants_checkpoint = order.checkpoint;
    let waiter = std::thread::spawn(move || {
        let status = waiting.wait(&ending);
        let checkpoint = wants_checkpoint.then(|| ending.log.checkpoint().ok()).flatten();
        let _ = answers.send(&PersonAnswer::Ended { status, checkpoint }, &[]);
        let _ = rustix::net::shutdown(&answers, rustix::net::Shutdown::Both);
        // The next task finds its spares ready.
        if let Err(e) = ending.spares.fill() {
            talkln!("bailiwick: a spare process could not be started: {e}");
        }
    });
    while let Ok(Some(call)) = channel.receive::<PersonCall>() {
        if let PersonCall::Signal(number) = call {
            handle.signal(number);
        }
    }
    handle.end();
    let _ = waiter.join();
    Ok(())
}
