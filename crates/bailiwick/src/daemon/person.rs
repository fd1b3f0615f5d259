//! One connection of the person's: hears what a command says, and answers.
//!
//! Trust: the peer must be the same user, outside every fence. A peer that lives in another user namespace is a
//! fenced one, however it came by the socket.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_fence::Channel;
use bailiwick_gate::desk::{Approver, DeskFault};
use bailiwick_gate::{CountedKey, LaunchFault, Ledger, Store};
use bailiwick_model::{Code, Event, TaskId};

use super::approvers::ApproverFault;
use super::{Daemon, KernelRandom, attend, colleagues, handover, hours, leave, lock, questions, task};
use bailiwick_policy::Published;

use crate::git::settings::GitSettings;
use crate::made::Made;
use crate::protocol::{DaemonStatus, PROTOCOL, PersonAnswer, PersonCall, Planned, RunOrder, RunningTask, build};

/// How long a task may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

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
            PersonCall::Hello { .. } | PersonCall::Signal(_) | PersonCall::Git(_) => {
                return Err(std::io::Error::other("a frame came out of turn"));
            }
            PersonCall::Run(order) => return run(daemon, channel, &order),
            PersonCall::Attach { task } => return attach(daemon, channel, task),
            PersonCall::End { task, at_once } => channel.send(&end(daemon, task, at_once), &[])?,
            PersonCall::Give { task, path, given } => {
                let content = channel.take().ok();
                channel.send(&handover::give(daemon, task, path, given, content), &[])?;
            }
            PersonCall::Ordered { task } => channel.send(&ordered(daemon, task), &[])?,
            PersonCall::Publish { task, port } => channel.send(&publish(daemon, task, port.into()), &[])?,
            PersonCall::Questions => {
                for asked in daemon.mediator.asked() {
                    channel.send(&PersonAnswer::Asked(Box::new(asked)), &[])?;
                }
                channel.send(&PersonAnswer::Done, &[])?;
            }
            PersonCall::Answer { id, answer, by } => {
                let closed = believed(daemon, by).and_then(|by| {
                    daemon.approvers.stays(&by);
                    daemon.mediator.answer(id, &answer, &by)
                });
                channel.send(&PersonAnswer::Closed(closed.map(Box::new)), &[])?;
            }
            PersonCall::Grants => channel.send(&PersonAnswer::Grants(daemon.mediator.granted()), &[])?,
            PersonCall::Grant { directory, act, terms } => {
                let granted = questions::grant_by_hand(daemon, &directory, &act, terms);
                channel.send(
                    &PersonAnswer::Granted(granted.map(|granted| Some(Box::new(granted)))),
                    &[],
                )?;
            }
            PersonCall::Covered {
                context,
                request,
                decision,
            } => {
                let by = daemon
                    .mediator
                    .answered_by(&context, &request, &decision, &task::principal());
                channel.send(&PersonAnswer::Granted(Ok(by.map(Box::new))), &[])?;
            }
            PersonCall::Narrow { grant, terms, by } => {
                let narrowed = believed(daemon, by).and_then(|by| daemon.mediator.narrow(grant, &terms, &by));
                channel.send(&PersonAnswer::Granted(narrowed.map(|left| Some(Box::new(left)))), &[])?;
            }
            PersonCall::Revoke { grant, by } => {
                let revoked = believed(daemon, by).and_then(|by| daemon.mediator.revoke(grant, &by));
                channel.send(&PersonAnswer::Granted(revoked.map(|()| None)), &[])?;
            }
            PersonCall::Changed { seen, patience, by } => {
                let answer = match believed(daemon, by) {
                    Ok(by) => PersonAnswer::Changed(daemon.moved.wait(seen, Duration::from_millis(patience), &by)),
                    Err(fault) => PersonAnswer::Closed(Err(fault)),
                };
                channel.send(&answer, &[])?;
            }
            PersonCall::Enrol { name, user } => channel.send(&enrol(daemon, &name, user.as_deref()), &[])?,
            PersonCall::Expel { name } => channel.send(&expel(daemon, &name), &[])?,
            PersonCall::Enrolled => {
                let all = daemon.approvers.list(&daemon.moved.there());
                channel.send(&PersonAnswer::Enrolled(all, daemon.approvers.folder()), &[])?;
            }
            PersonCall::ApproveIn { folder } => channel.send(&approve_in(daemon, folder), &[])?,
            PersonCall::SignIn { name, code } => channel.send(&sign_in(daemon, &name, &code), &[])?,
            PersonCall::SignOut { name } => {
                daemon.approvers.sign_out(&name);
                channel.send(&PersonAnswer::Done, &[])?;
            }
            PersonCall::ProgramAgain => {
                daemon.auditor.again();
                channel.send(&PersonAnswer::Done, &[])?;
            }
            PersonCall::Survey {
                directory,
                environment,
                servers,
            } => match task::survey(daemon, directory, environment, &servers) {
                Ok((found, said)) => channel.send(&PersonAnswer::Surveyed { said }, &[found.as_fd()])?,
                Err(fault) => channel.send(&PersonAnswer::Failed(fault), &[])?,
            },
            PersonCall::Counted => channel.send(&PersonAnswer::Counted(daemon.mediator.counted()), &[])?,
            PersonCall::Recount { key } => channel.send(&recount(daemon, &key), &[])?,
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

fn recount(daemon: &Daemon, key: &CountedKey) -> PersonAnswer {
    let event = Event::Recounted {
        principal: task::principal(),
        scope: key.scope.clone(),
        rule: key.rule.clone(),
    };
    if let Err(fault) = daemon.record(None, event) {
        return failed(Code::LogUnavailable, "it cannot be put on record", &fault.to_string());
    }
    match daemon.mediator.forget_counted(key) {
        Ok(true) => PersonAnswer::Done,
        Ok(false) => failed(
            Code::MalformedRequest,
            "nothing has been used of such a budget",
            &key.rule,
        ),
        Err(fault) => failed(Code::Fault, "the store cannot be written", &fault.to_string()),
    }
}

pub(super) fn failed(code: Code, what: &str, cause: &str) -> PersonAnswer {
    PersonAnswer::Failed(LaunchFault {
        code,
        what: what.into(),
        cause: cause.into(),
        hint: String::new(),
    })
}

/// True for a peer that is the same user, outside every fence.
pub fn is_person(socket: &UnixStream) -> Result<(), Ended> {
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
        .map(|task| RunningTask {
            read: daemon.mediator.read_so_far(task.id),
            ..task
        })
        .collect::<Vec<RunningTask>>();
    DaemonStatus {
        pid: std::process::id(),
        build: build(),
        records: daemon.log.size(),
        log_healthy: daemon.log.is_healthy(),
        waiting: daemon.mediator.waiting().len(),
        there: daemon.moved.there(),
        program: daemon.auditor.told(),
        tasks,
        ended: daemon.unheard.list(),
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

/// Whom to believe that this is by.
fn believed(daemon: &Daemon, by: Option<Approver>) -> Result<Approver, DeskFault> {
    daemon
        .approvers
        .believe(by, crate::desk::person())
        .map_err(DeskFault::Refused)
}

fn of_approvers(what: &str, fault: &ApproverFault) -> PersonAnswer {
    failed(Code::Fault, what, &fault.to_string())
}

/// Enrols somebody, on record first.
fn enrol(daemon: &Daemon, name: &str, user: Option<&str>) -> PersonAnswer {
    let what = format!("`{}` is not enrolled", bailiwick_model::visible(name));
    let by = user.map_or_else(|| "code".to_owned(), |user| format!("user {user}"));
    let note = || {
        let event = Event::Enrolled {
            name: name.into(),
            by: by.clone(),
            enrolled: true,
        };
        daemon.record(None, event).map_err(|fault| fault.to_string())
    };
    let person = task::principal();
    let enrolled = match user {
        Some(user) => daemon.approvers.enrol_user(name, user, &person, &note).map(|()| None),
        None => {
            let told = daemon.approvers.enrol_code(name, &person, &KernelRandom, &note);
            told.map(|told| Some(told.to_string()))
        }
    };
    enrolled.map_or_else(|fault| of_approvers(&what, &fault), PersonAnswer::Enrolling)
}

/// Takes somebody from the list. They are out also where that cannot be written down.
fn expel(daemon: &Daemon, name: &str) -> PersonAnswer {
    let what = format!("`{}` is not taken from the list", bailiwick_model::visible(name));
    if let Err(fault) = daemon.approvers.remove(name) {
        return of_approvers(&what, &fault);
    }
    let event = Event::Enrolled {
        name: name.into(),
        by: String::new(),
        enrolled: false,
    };
    match daemon.record(None, event) {
        Ok(()) => PersonAnswer::Done,
        Err(fault) => failed(
            Code::LogUnavailable,
            "they are out, but that is not on record",
            &fault.to_string(),
        ),
    }
}

fn approve_in(daemon: &Arc<Daemon>, folder: Option<std::path::PathBuf>) -> PersonAnswer {
    let what = "other users cannot answer there";
    if let Err(cause) = colleagues::listen(daemon, folder.as_deref()) {
        return failed(Code::Fault, what, &cause);
    }
    match daemon.approvers.set_folder(folder) {
        Ok(()) => PersonAnswer::Done,
        Err(fault) => of_approvers(what, &fault),
    }
}

fn sign_in(daemon: &Daemon, name: &str, code: &str) -> PersonAnswer {
    // Codes go by the time that others have, not by one that never goes back.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    match daemon.approvers.check(name, code, seconds) {
        Ok(by) => PersonAnswer::SignedIn(by),
        Err(fault) => of_approvers("not signed in", &fault),
    }
}

/// What a task was ordered by that has ended.
fn ordered(daemon: &Daemon, task: TaskId) -> PersonAnswer {
    let what = format!("task {task} cannot be resumed");
    if lock(&daemon.running).contains_key(&task) {
        return failed(
            Code::LimitReached,
            &what,
            "it runs: `bailiwick attach` comes back to it",
        );
    }
    // What was handed over to be kept is kept by then.
    daemon.chores.finish();
    match daemon.store.order(task) {
        Ok(Some(text)) => match serde_json::from_str(&text) {
            Ok(order) => PersonAnswer::Ordered(Box::new(order)),
            Err(cause) => failed(Code::Fault, &what, &cause.to_string()),
        },
        Ok(None) => failed(Code::UnknownTask, &what, "what it was ordered by is not kept"),
        Err(fault) => failed(Code::Fault, &what, &fault.to_string()),
    }
}

/// Shows a port of a running task outside, on record first.
fn publish(daemon: &Daemon, task: TaskId, port: Published) -> PersonAnswer {
    let what = format!("port {} is not shown", port.inside);
    let Some(handle) = lock(&daemon.running).get(&task).cloned() else {
        return failed(Code::UnknownTask, &what, "no such task runs");
    };
    let principal = crate::places::account().map_or_else(|| "the person".to_owned(), |account| account.name);
    let event = Event::Published {
        principal,
        outside: port.outside,
        inside: port.inside,
    };
    if let Err(fault) = daemon.record(Some(task), event) {
        return failed(Code::LogUnavailable, &what, &fault.to_string());
    }
    handle
        .publish(port)
        .map_or_else(PersonAnswer::Failed, |()| PersonAnswer::Done)
}

/// The command that ordered a task.
struct Command<'a> {
    channel: &'a mut Channel,
    made: Made,
}

impl task::Orderer for Command<'_> {
    fn hears(&mut self, planned: Planned) -> std::io::Result<()> {
        self.made = Made::before(&planned);
        self.channel.send(&PersonAnswer::Planned(Box::new(planned)), &[])
    }

    fn git(&mut self) -> std::io::Result<GitSettings> {
        match self.channel.receive::<PersonCall>()? {
            Some(PersonCall::Git(settings)) => Ok(settings),
            Some(_) => Err(std::io::Error::other("a frame came out of turn")),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Runs a task on this connection. When the connection closes, a task that is tied to it ends; another goes on.
fn run(daemon: &Arc<Daemon>, mut channel: Channel, order: &RunOrder) -> Result<(), Ended> {
    let descriptors = std::iter::from_fn(|| channel.take().ok()).collect();
    let mut command = Command {
        channel: &mut channel,
        made: Made::default(),
    };
    let started = task::start(daemon, order, descriptors, &mut command);
    let made = command.made;
    let started = match started {
        Ok(started) => started,
        Err(fault) => return channel.send(&PersonAnswer::Failed(fault), &[]),
    };
    let handle = started.handle.clone();
    let attended = if order.detached {
        channel
            .send(&PersonAnswer::Started(started.report.clone()), &[])
            .map(|()| None)
    } else {
        take_seat(&handle, &channel, |_| PersonAnswer::Started(started.report.clone())).map(Some)
    };
    let (ending, checkpoint) = (Arc::clone(daemon), order.checkpoint);
    let waiter = std::thread::spawn(move || see_out(&ending, started, checkpoint, &made));
    match attended {
        Ok(None) => Ok(()),
        Ok(Some(number)) => {
            stay(&handle, channel, number);
            if !handle.is_lasting() {
                let _ = waiter.join();
            }
            Ok(())
        }
        Err(e) => {
            handle.end();
            let _ = waiter.join();
            Err(e)
        }
    }
}

/// How long after a task's end its spares are replaced.
const BEFORE_SPARES: Duration = Duration::from_micros(1500);

/// Waits for a task's end and tells it; meanwhile tells what is refused, where that is wanted.
fn see_out(daemon: &Arc<Daemon>, started: task::Started, checkpoint: bool, made: &Made) {
    let handle = started.handle;
    let attendance = Arc::clone(&handle.attendance);
    let root = started.root;
    let teller = started.refused.map(|refused| {
        std::thread::spawn(move || {
            for record in refused {
                if let Some(refused) = crate::advice::refused(&record.event, &root) {
                    attendance.say(&PersonAnswer::Refused(Box::new(refused)));
                }
            }
        })
    });
    let (status, denied) = started.waiting.wait(daemon);
    if let Some(teller) = teller {
        let _ = teller.join();
    }
    let over = handle.is_closed().then(|| {
        let id = handle.describe().id;
        hours::told_over(&handle.policy, id, daemon.clock.now())
    });
    let ended = attend::Ended {
        status,
        checkpoint: checkpoint.then(|| daemon.log.signed().ok()).flatten(),
        denied,
        made: made.told().into_iter().chain(over).collect(),
    };
    let about = handle.describe();
    let id = about.id;
    // Seen somewhere at any time: among those that run, or those that have ended.
    if let Some(screen) = handle.screen.as_ref().filter(|_| handle.is_lasting()) {
        daemon.unheard.keep(about, ended.clone(), screen.take_recent());
    }
    lock(&daemon.running).remove(&id);
    if handle.attendance.end(ended) {
        daemon.unheard.forget(id);
    }
    // The next task finds its spares ready. Whoever was told of this one's end may end first: where there are few processors
    // it would wait for these processes to start.
    std::thread::sleep(BEFORE_SPARES);
    if let Err(e) = daemon.spares.fill() {
        talkln!("bailiwick: a spare process could not be started: {e}");
    }
}

/// Attends a task on this connection: gives the answer, with a seat at its terminal if it has one.
fn take_seat(
    handle: &task::Handle,
    channel: &Channel,
    answer: impl FnOnce(RunningTask) -> PersonAnswer,
) -> Result<u64, Ended> {
    let number = handle.attendance.next();
    let seat = handle.screen.as_ref().map(|screen| screen.seat(number)).transpose()?;
    let along: Vec<_> = seat
        .iter()
        .flat_map(|seat| [seat.recent.as_fd(), seat.output.as_fd(), seat.keyboard.as_fd()])
        .collect();
    channel.send(&answer(handle.describe()), &along)?;
    handle.attendance.attend(number, channel.second()?);
    Ok(number)
}

/// Passes on what the person says until they go.
fn stay(handle: &task::Handle, mut channel: Channel, number: u64) {
    while let Ok(Some(call)) = channel.receive::<PersonCall>() {
        if let PersonCall::Signal(signal) = call {
            handle.signal(signal);
        }
    }
    let alone = handle.attendance.leave(number);
    if let Some(screen) = &handle.screen {
        screen.leave(number);
    }
    if alone && !handle.is_lasting() {
        handle.end();
    }
}

/// Attends a task that runs, or tells the end of one that nobody has heard.
fn attach(daemon: &Daemon, channel: Channel, task: TaskId) -> Result<(), Ended> {
    let running = lock(&daemon.running).get(&task).cloned();
    let Some(handle) = running else {
        if daemon.unheard.tell(task, &channel)? {
            return Ok(());
        }
        return channel.send(
            &failed(
                Code::UnknownTask,
                &format!("task {task} cannot be attended"),
                "no such task runs",
            ),
            &[],
        );
    };
    if !handle.is_lasting() {
        let cause = "it was started to end with its command, which attends it";
        return channel.send(
            &failed(
                Code::MalformedRequest,
                &format!("task {task} cannot be attended"),
                cause,
            ),
            &[],
        );
    }
    let number = take_seat(&handle, &channel, |about| PersonAnswer::Attached(Box::new(about)))?;
    stay(&handle, channel, number);
    Ok(())
}

/// Ends a task: asks it to end by itself, unless it is to end at once, and does not wait for long.
fn end(daemon: &Daemon, task: TaskId, at_once: bool) -> PersonAnswer {
    let Some(handle) = lock(&daemon.running).get(&task).cloned() else {
        return failed(
            Code::UnknownTask,
            &format!("task {task} cannot be ended"),
            "no such task runs",
        );
    };
    handle.attendance.take_as_known();
    stop(daemon, task, &handle, if at_once { Grace::None } else { Grace::Short })
}

/// What a task is given to end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// Nothing.
    None,
    /// A word, and some seconds.
    Short,
    /// The same, with the time to put its things away before its terminal is said to be gone.
    Whole,
}

/// Ends a task that runs, and does not wait for long.
pub(super) fn stop(daemon: &Daemon, task: TaskId, handle: &task::Handle, grace: Grace) -> PersonAnswer {
    let running = || lock(&daemon.running).get(&task).cloned();
    let begun = std::time::Instant::now();
    if grace != Grace::None {
        handle.signal(signal_hook::consts::SIGTERM);
        // An interactive shell heeds this one only; whoever heeds the other may need time for it.
        let mut hang_up = Some(if grace == Grace::Short {
            Duration::ZERO
        } else {
            GRACE / 2
        });
        while running().is_some() && begun.elapsed() < GRACE {
            if hang_up.take_if(|after| begun.elapsed() >= *after).is_some() {
                handle.signal(signal_hook::consts::SIGHUP);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    handle.end();
    let all_gone = |patience: Duration| {
        let begun = std::time::Instant::now();
        while running().is_some() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    all_gone(GRACE / 5);
    // A terminal that is stopped, and does not take the last output, holds up its own end only.
    if let Some(screen) = &handle.screen {
        screen.let_go();
    }
    all_gone(GRACE);
    match running() {
        None => PersonAnswer::Done,
        Some(_) => failed(Code::Fault, &format!("task {task} does not end"), ""),
    }
}
