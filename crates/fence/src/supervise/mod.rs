//! The supervisor of a fence without namespaces: it answers the calls that a filter holds, and makes for the agent those
//! that the plan allows.
//!
//! Answers: what takes the place of mounts, of a network and of a process table of the fence's own, where the machine
//! refuses those? Promises: P1, P4 (what is not understood is refused; a supervisor that has gone means `ENOSYS`), P5,
//! P13. Trust: every argument is the agent's. The supervisor starts no program; it stands on a Landlock floor of the same
//! trees, and has a filter of its own.
//! Each call is decoded, judged and carried out on objects that are open here, so that nothing can be swapped between
//! judging and doing. No path goes on to the kernel in the agent's own memory.
//! Not here: what Landlock keeps (`floor`), which calls are held (`syscalls`, `filter`).
//! See: seccomp_unotify(2); `docs/design/fence.md`, "Level `process`".

pub(crate) mod caller;
mod connection;
mod files;
mod line;
mod names;
mod others;
mod outside;
mod repositories;
pub(crate) mod scope;
mod sockets;
mod stack;
pub(crate) mod start;
mod telling;
mod terminals;
mod turns;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bailiwick_gate::{Content, Judged, Reading};
use bailiwick_model::{AbsPath, TaskId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::children::Children;
use crate::sys::notify::{self, Held};
use caller::Caller;
pub(crate) use connection::Door;
use line::Line;
use scope::Scope;
pub(crate) use start::Known;
use turns::Turns;

/// Threads that answer, at the beginning.
const WORKERS: usize = 2;
/// Most threads that answer: a start or a question may keep one for a while.
const MAX_WORKERS: usize = 96;
/// Most calls that may wait for something outside the supervisor's hands at one time.
const MAX_WAITING: usize = 512;

/// What a supervisor is made from.
pub(crate) struct Charge {
    /// What may be done where.
    pub scope: Scope,
    /// Small files that stand for the machine's.
    pub files: BTreeMap<AbsPath, Content>,
    /// The folder that stands for `/dev/shm`.
    pub memory: PathBuf,
    /// True where the fence has a root, devices and a process table of its own, and mounts hold besides.
    pub mounted: bool,
    /// What is served outside on ports inside.
    pub doors: Vec<Door>,
    /// The ports on which a host outside may be named; none for any.
    pub ports: Option<BTreeSet<u16>>,
    /// By which the kernel tells which Unix sockets the fence's own network has; none where it cannot, or where it has none.
    pub diagnosis: Option<Mutex<OwnedFd>>,
    /// The program's own terminal.
    pub terminal: Option<u32>,
    /// True where the kernel keeps signals inside by itself.
    pub signals_stay: bool,
    /// Whose task it is.
    pub task: TaskId,
    /// Where the mediator is asked.
    pub mediator: Option<OwnedFd>,
    /// Where commands are handed to that run outside.
    pub brokers: Option<OwnedFd>,
    /// The commands that do, as patterns.
    pub brokered: Vec<String>,
    /// Which starts are asked about.
    pub judged: Judged,
    /// What starts mean.
    pub reading: Arc<dyn Reading>,
    /// Programs whose copies are known.
    pub known: Known,
    /// The processes that are collected.
    pub children: Arc<Children>,
}

/// How often it is looked whether a caller still waits for somebody's answer.
const PAUSE: Duration = Duration::from_millis(20);

/// A supervisor at work.
pub(crate) struct Supervisor {
    listener: OwnedFd,
    turns: Turns,
    charge: Charge,
    terminals: Mutex<terminals::Terminals>,
    /// Held while a name is taken from one thing and given to another, or told apart from one that was just made.
    names: Mutex<()>,
    sockets: Mutex<sockets::Known>,
    waiting: AtomicUsize,
    /// Threads that have nothing to do.
    idle: AtomicUsize,
    /// Threads that answer.
    workers: AtomicUsize,
    /// False until the program runs.
    begun: AtomicBool,
    /// The line to the mediator.
    line: Option<Arc<Line>>,
    /// Commands that run outside, where there are some.
    outside: Option<Arc<outside::Outside>>,
    /// What was refused to which thread, and told it.
    told: Mutex<telling::Told>,
}

/// What comes of a call.
#[derive(Debug)]
enum Done {
    /// It has this result.
    Value(i64),
    /// It has this descriptor; kept over the start of another program, or not.
    Descriptor(OwnedFd, bool),
    /// The kernel carries it out: everything that matters stands in registers.
    GoOn,
    /// Another thread answers.
    Later,
}

/// Takes a lock; a thread that panicked while it held it left whole values behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Supervisor {
    /// Begins to answer, in threads of this process. They have the filters of the thread that calls this.
    pub(crate) fn begin(listener: OwnedFd, mut charge: Charge) -> std::io::Result<()> {
        notify::wake_in_place(listener.as_fd());
        notify::heed_interrupts()?;
        let mut terminals = terminals::Terminals::default();
        charge.terminal.map(|number| terminals.add(number)).transpose()?;
        let mediator = charge.mediator.take();
        let line = mediator.map(|socket| Line::open(charge.task, socket)).transpose()?;
        let brokers = charge.brokers.take().filter(|_| !charge.brokered.is_empty());
        let outside = brokers
            .map(|socket| outside::Outside::open(&charge.brokered, socket))
            .transpose()?;
        let turns = Turns::of(listener.as_fd())?;
        let supervisor = Arc::new(Self {
            listener,
            turns,
            charge,
            terminals: Mutex::new(terminals),
            names: Mutex::default(),
            sockets: Mutex::default(),
            waiting: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            begun: AtomicBool::new(false),
            line,
            outside,
            told: Mutex::default(),
        });
        for _ in 0..WORKERS {
            supervisor.add_worker()?;
        }
        Ok(())
    }

    fn add_worker(self: &Arc<Self>) -> std::io::Result<()> {
        let supervisor = Arc::clone(self);
        self.workers.fetch_add(1, Ordering::Relaxed);
        let spawned = std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn(move || supervisor.work());
        if spawned.is_err() {
            self.workers.fetch_sub(1, Ordering::Relaxed);
        }
        spawned.map(drop)
    }

    fn work(self: Arc<Self>) {
        loop {
            self.idle.fetch_add(1, Ordering::Relaxed);
            let next = self.next();
            let left = self.idle.fetch_sub(1, Ordering::Relaxed);
            match next {
                Ok(held) => {
                    if left <= 1 && self.workers.load(Ordering::Relaxed) < MAX_WORKERS {
                        // Whoever asks next is not to wait for this one.
                        let _ = self.add_worker();
                    }
                    self.serve(held);
                }
                // Nobody is left who could ask: from now on the kernel answers at once (Linux 6.11).
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) && self.is_over() => break,
                // The caller died, or a signal came.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for the next call, which comes to one of the threads that wait.
    fn next(&self) -> std::io::Result<Held> {
        self.turns.wait()?;
        let next = notify::next(self.listener.as_fd());
        // Nothing that this is given can be wrong; and what was taken must be answered.
        let _ = self.turns.pass(self.listener.as_fd());
        next
    }

    /// True once every thread that the filter held is gone, so that no call can come any more.
    fn is_over(&self) -> bool {
        let mut watched = [PollFd::new(&self.listener, PollFlags::empty())];
        let told = poll(&mut watched, Some(&Timespec::default()));
        told.is_ok() && watched.iter().any(|watched| watched.revents().contains(PollFlags::HUP))
    }

    fn serve(self: &Arc<Self>, held: Held) {
        let caller = Caller { held };
        let result = self.decide(&caller);
        self.answer(held.id, result);
    }

    /// Tells the kernel. An answer that comes too late, since the caller is gone, is nobody's loss.
    fn answer(&self, id: u64, result: Result<Done, Errno>) {
        let listener = self.listener.as_fd();
        let told = match result {
            Ok(Done::Value(value)) => notify::answer(listener, id, Ok(value)),
            Ok(Done::GoOn) => notify::go_on(listener, id),
            Ok(Done::Later) => Ok(()),
            Err(errno) => notify::answer(listener, id, Err(errno.raw_os_error())),
            Ok(Done::Descriptor(open, keep)) => match notify::hand(listener, id, open.as_fd(), keep) {
                // The agent has as many open as it may, for instance.
                Err(e) => notify::answer(listener, id, Err(e.raw_os_error().unwrap_or(libc::EIO))),
                Ok(number) => {
                    // Before it goes on: what is open for writing anywhere cannot be started (`ETXTBSY`).
                    drop(open);
                    notify::answer(listener, id, Ok(number))
                }
            },
        };
        let _ = told;
    }

    /// Answers from a thread of its own, since the outside may take its time.
    fn later(
        self: &Arc<Self>,
        caller: &Caller,
        wait: impl FnOnce(&Self) -> Result<Done, Errno> + Send + 'static,
    ) -> Result<Done, Errno> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::AGAIN);
        }
        let (supervisor, id) = (Arc::clone(self), caller.held.id);
        let spawned = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
            let result = wait(&supervisor);
            supervisor.answer(id, result);
            supervisor.waiting.fetch_sub(1, Ordering::Relaxed);
        });
        match spawned {
            Ok(_) => Ok(Done::Later),
            Err(_) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Err(Errno::AGAIN)
            }
        }
    }

    /// Makes a call at these places: here, or where one of them is asked about, in a thread that waits for the answer.
    /// The wait ends with the caller's.
    fn carry_out(
        self: &Arc<Self>,
        caller: &Caller,
        places: &[&Path],
        alone: Option<MutexGuard<'_, ()>>,
        make: impl FnOnce() -> Result<Done, Errno> + Send + 'static,
    ) -> Result<Done, Errno> {
        if !places.iter().any(|place| self.charge.scope.is_asked(place)) {
            let made = make();
            drop(alone);
            return made;
        }
        // Whatever becomes of the name meanwhile, the server of the tree sees to it.
        drop(alone);
        let (id, thread) = (caller.held.id, caller.held.thread);
        self.later(caller, move |supervisor| {
            let (tell, told) = channel();
            let made = std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn(move || tell.send(make()));
            let made = made.map_err(|_| Errno::AGAIN)?;
            loop {
                match told.recv_timeout(PAUSE) {
                    Ok(done) => return done,
                    Err(RecvTimeoutError::Disconnected) => return Err(Errno::AGAIN),
                    Err(RecvTimeoutError::Timeout) if supervisor.waits(id) && !others::has_signal(thread) => {}
                    // Said again until it is heard: the thread may not have been waiting yet.
                    Err(RecvTimeoutError::Timeout) => notify::interrupt(&made),
                }
            }
        })
    }

    /// True while the caller waits still.
    fn waits(&self, id: u64) -> bool {
        notify::waits_still(self.listener.as_fd(), id)
    }

    fn decide(self: &Arc<Self>, caller: &Caller) -> Result<Done, Errno> {
        match caller.held.call {
            libc::SYS_execve => self.start(
                caller,
                start::Places {
                    base: libc::AT_FDCWD,
                    path: 0,
                    words: 1,
                    flags: 0,
                },
            ),
            libc::SYS_execveat => self.start(
                caller,
                start::Places {
                    base: caller.number(0),
                    path: 1,
                    words: 2,
                    flags: caller.flags(4),
                },
            ),
            libc::SYS_openat => self.open(caller, caller.number(0), 1, 2),
            libc::SYS_mkdirat => self.make_folder(caller, caller.number(0), 1),
            libc::SYS_mknodat => self.make_node(caller, caller.number(0), 1),
            libc::SYS_unlinkat => self.remove(caller, caller.number(0), 1, caller.flags(2)),
            libc::SYS_linkat => self.link(caller, [0, 2], [1, 3], caller.flags(4)),
            libc::SYS_symlinkat => self.make_link(caller, caller.number(1), 0, 2),
            libc::SYS_renameat2 => self.rename(caller, [0, 2], [1, 3], caller.flags(4)),
            libc::SYS_inotify_add_watch => self.watch(caller),
            libc::SYS_truncate => self.truncate(caller),
            libc::SYS_fchmod => self.change_open_mode(caller),
            libc::SYS_fchmodat => self.change_mode(caller, caller.number(0), 1, 2, 0),
            libc::SYS_fchmodat2 => self.change_mode(caller, caller.number(0), 1, 2, caller.flags(3)),
            libc::SYS_fchown => self.change_open_owner(caller),
            libc::SYS_fchownat => self.change_owner(caller, caller.number(0), 1, caller.flags(4)),
            libc::SYS_utimensat => self.change_times(caller),
            libc::SYS_connect => self.connect(caller),
            libc::SYS_bind => self.bind(caller),
            libc::SYS_listen => self.listen(caller),
            libc::SYS_kill | libc::SYS_rt_sigqueueinfo | libc::SYS_tkill => self.signal(caller, caller.number(0)),
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => self.signal(caller, caller.number(1)),
            libc::SYS_pidfd_open
            | libc::SYS_sched_setaffinity
            | libc::SYS_sched_setattr
            | libc::SYS_sched_setparam
            | libc::SYS_sched_setscheduler => self.other(caller, caller.number(0)),
            libc::SYS_prlimit64 => self.limit(caller),
            libc::SYS_setpriority | libc::SYS_ioprio_set => self.priority(caller),
            other => self.decide_older(caller, other),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn decide_older(self: &Arc<Self>, caller: &Caller, call: libc::c_long) -> Result<Done, Errno> {
        const HERE: i32 = libc::AT_FDCWD;
        match call {
            libc::SYS_open => self.open(caller, HERE, 0, 1),
            libc::SYS_creat => self.create(caller),
            libc::SYS_mkdir => self.make_folder(caller, HERE, 0),
            libc::SYS_mknod => self.make_node(caller, HERE, 0),
            libc::SYS_unlink => self.remove(caller, HERE, 0, 0),
            libc::SYS_rmdir => self.remove(caller, HERE, 0, libc::AT_REMOVEDIR.cast_unsigned()),
            libc::SYS_link => self.link(caller, [6, 6], [0, 1], 0),
            libc::SYS_symlink => self.make_link(caller, HERE, 0, 1),
            libc::SYS_rename => self.rename(caller, [6, 6], [0, 1], 0),
            libc::SYS_renameat => self.rename(caller, [0, 2], [1, 3], 0),
            libc::SYS_chmod => self.change_mode(caller, HERE, 0, 1, 0),
            libc::SYS_chown => self.change_owner(caller, HERE, 0, 0),
            libc::SYS_lchown => self.change_owner(caller, HERE, 0, libc::AT_SYMLINK_NOFOLLOW.cast_unsigned()),
            libc::SYS_utime | libc::SYS_utimes | libc::SYS_futimesat => self.change_times(caller),
            _ => Err(Errno::NOSYS),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn decide_older(self: &Arc<Self>, caller: &Caller, call: libc::c_long) -> Result<Done, Errno> {
        match call {
            libc::SYS_renameat => self.rename(caller, [0, 2], [1, 3], 0),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// The descriptor of a folder in an argument; `6` stands for the current one, where the call has no such argument.
fn base_in(caller: &Caller, place: usize) -> i32 {
    if place < 6 {
        caller.number(place)
    } else {
        libc::AT_FDCWD
    }
}
