//! The daemon: holds the mediator, the keys, the log and the store; parses nothing hostile but bounded frames.
//!
//! Answers: who decides, and for whom? Promises: P10 (one log, one writer), P4 (what it cannot do is refused).
//! Trust: the path socket carries the person's own commands; peers of other users, and peers that live in a fence,
//! are turned away. Gates speak on channels of their own (`task`), each bound to one task.

pub mod approvers;
mod attend;
mod auditor;
pub mod believed;
mod bell;
mod broker;
mod chores;
mod colleagues;
mod devices;
pub mod fetcher;
mod gate_line;
mod granted;
mod handover;
mod hours;
pub mod kept;
mod key_store;
mod keyring;
pub mod level;
pub mod logins;
mod modes;
mod opening;
pub mod person;
pub mod plan;
mod publish;
mod questions;
pub mod refusals;
mod relations;
mod renewals;
mod replay;
mod scratch;
mod screen;
pub mod secret;
pub mod servers;
mod signature;
pub mod spare;
mod standin;
pub mod surroundings;
pub mod task;
mod told;
pub mod tool_gate;
mod vault;

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bailiwick_gate::{Clock, Ledger, LedgerFault, Store, StoreFault};
use bailiwick_ledger::{Log, SigningKey};
use bailiwick_mediator::Mediator;
use bailiwick_model::{Durability, Event, Millis, Record, TaskId};
use bailiwick_policy::{Policy, Sources};
use bailiwick_store::SqliteStore;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::context::store_failure;
use crate::failure::{Done, Failure};
use crate::places::Places;
pub use surroundings::{KernelRandom, SteadyClock};

/// A daemon without tasks ends after this time.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How often deadlines and ends of grants are looked for, and abandoned permits.
const SWEEP: Duration = Duration::from_millis(500);

/// The name of the log, as it stands in its checkpoints.
const ORIGIN: &str = "bailiwick.log";

/// What all connections share.
pub struct Daemon {
    /// Where things lie.
    pub places: Places,
    /// The reference monitor.
    pub mediator: Arc<Mediator>,
    /// The log.
    pub log: Log,
    /// Trust and tasks.
    pub store: Arc<SqliteStore>,
    /// What is done while nobody waits.
    pub chores: chores::Chores,
    /// What fences this machine can hold.
    pub machine: level::Machine,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Processes started ahead of time.
    pub spares: spare::Spares,
    /// The tasks that run.
    pub running: Mutex<BTreeMap<TaskId, task::Handle>>,
    /// What is refused to them.
    pub refusals: refusals::Watched,
    /// Tasks that have ended while nobody attended them.
    pub unheard: attend::Unheard,
    /// What changes for people who answer questions, and who of them is there.
    pub moved: Arc<questions::Moved>,
    /// Tells people on their desktops.
    pub ringer: bell::Ringer,
    /// Who else may answer.
    pub approvers: approvers::Approvers,
    /// The socket for other users of this machine.
    pub colleagues: Mutex<Option<colleagues::Listening>>,
    /// The program that answers questions.
    pub auditor: auditor::Auditor,
    /// Held while a lock file is being rewritten.
    pub pinning: Mutex<()>,
    /// Logins that are renewed.
    pub renewals: renewals::Renewals,
    /// Commands that run outside under grants.
    pub brokered: broker::Brokered,
    /// Compiled rules, by what they were compiled from.
    compiled: Mutex<Vec<(Sources, Arc<Policy>)>>,
}

/// Takes a lock; a thread that panicked while it held it left whole values behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many of the latest tasks are looked at for what a lost one left behind.
const LOST_AT_MOST: u32 = 1000;

/// Most compiled rule sets that are kept.
const COMPILED: usize = 64;

impl Daemon {
    /// Puts on record what a person does, before it is done.
    pub fn record(&self, task: Option<TaskId>, event: Event) -> Result<(), LedgerFault> {
        let time = self.clock.now();
        let record = Record { time, task, event };
        self.log.append(&record, Durability::Durable)?.wait().map(drop)
    }

    /// The compiled rules of a context, from the cache when nothing they come from has changed.
    pub fn compile(&self, context: &crate::context::Context) -> Result<Arc<Policy>, Failure> {
        let known = lock(&self.compiled)
            .iter()
            .find(|(from, _)| *from == context.sources)
            .map(|(_, policy)| Arc::clone(policy));
        if let Some(policy) = known {
            return Ok(policy);
        }
        let policy = Arc::new(context.load()?);
        let mut compiled = lock(&self.compiled);
        if compiled.len() >= COMPILED {
            compiled.clear();
        }
        compiled.push((context.sources.clone(), Arc::clone(&policy)));
        Ok(policy)
    }
}

/// Runs the daemon until it is told to stop, or has had nothing to do for a while.
pub fn run(detach: bool, state: Option<PathBuf>) -> Done {
    bailiwick_fence::keep_descriptors_to_this_process()
        .map_err(|e| Failure::fault(format!("cannot keep descriptors from what is started: {e}")))?;
    let say = |word: &str| {
        if detach {
            use std::io::Write as _;
            let _ = writeln!(std::io::stdout(), "{word}");
        }
    };
    let mut places = Places::find()?;
    if let Some(state) = state {
        places.state = state;
    }
    places.make_state()?;
    let _only_one = match only_one(&places)? {
        Some(lock) => lock,
        None if detach => {
            say("another");
            return Ok(ExitCode::SUCCESS);
        }
        None => {
            return Err(Failure::fault("another daemon runs already")
                .hint("`bailiwick status` shows it, `bailiwick daemon stop` ends it"));
        }
    };
    if detach {
        let _ = rustix::process::setsid();
    }
    // Tried while there is one thread.
    let machine = level::Machine::try_out();
    let daemon = Arc::new(open(places, machine)?);
    questions::watch(&daemon);
    take_up(&daemon)?;
    if let Some(folder) = daemon.approvers.folder()
        && let Err(cause) = colleagues::listen(&daemon, Some(&folder))
    {
        talkln!("bailiwick: other users cannot answer: {cause}");
    }
    let listener = listen(&daemon.places)?;
    say("ready");
    if detach {
        // Whoever waited for the word goes on; nothing else is ever said there.
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
        if let Ok(null) = null {
            let _ = rustix::stdio::dup2_stdout(null);
        }
    }
    background(&daemon);
    for connection in listener.incoming() {
        let daemon = Arc::clone(&daemon);
        match connection {
            Ok(socket) => {
                std::thread::spawn(move || {
                    if let Err(cause) = person::serve(&daemon, socket) {
                        talkln!("bailiwick: a connection ended: {cause}");
                    }
                });
            }
            Err(e) => talkln!("bailiwick: a connection could not be taken: {e}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends every task, closes the log, and leaves.
pub fn leave(daemon: &Daemon) -> ! {
    let handles: Vec<task::Handle> = lock(&daemon.running).values().cloned().collect();
    for handle in &handles {
        handle.end();
    }
    let begun = std::time::Instant::now();
    while !lock(&daemon.running).is_empty() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(2));
    }
    daemon.chores.finish();
    lock(&daemon.colleagues).take();
    let _ = std::fs::remove_file(daemon.places.socket());
    if let Err(fault) = daemon.log.checkpoint() {
        talkln!("bailiwick: the last checkpoint could not be written: {fault}");
    }
    std::process::exit(0)
}

fn background(daemon: &Arc<Daemon>) {
    let daemon = Arc::clone(daemon);
    std::thread::spawn(move || {
        let mut idle_since = std::time::Instant::now();
        loop {
            if let Err(e) = daemon.spares.fill() {
                talkln!("bailiwick: a spare process could not be started: {e}");
            }
            std::thread::sleep(SWEEP);
            let handles: Vec<task::Handle> = lock(&daemon.running).values().cloned().collect();
            handles.iter().for_each(task::Handle::share);
            hours::close(&daemon, &handles);
            daemon
                .mediator
                .watched_by(daemon.moved.there().into_iter().map(|by| by.name).collect());
            if let Err(fault) = daemon.mediator.sweep(daemon.clock.now()) {
                talkln!("bailiwick: abandoned permits are not on record: {fault}");
            }
            if !lock(&daemon.running).is_empty() {
                idle_since = std::time::Instant::now();
            } else if idle_since.elapsed() > IDLE {
                leave(&daemon);
            }
        }
    });
}

fn only_one(places: &Places) -> Result<Option<std::os::fd::OwnedFd>, Failure> {
    let path = places.lock();
    let refuse = |e: rustix::io::Errno| Failure::fault(format!("cannot use `{}`: {e}", path.display()));
    let file = rustix::fs::open(
        &path,
        OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    )
    .map_err(refuse)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(refuse(e)),
    }
}

fn open(places: Places, machine: level::Machine) -> Result<Daemon, Failure> {
    let key = SigningKey::load_or_create(&places.log_key(), ORIGIN).map_err(|fault| {
        Failure::fault(format!("cannot use the log's key: {fault}"))
            .hint("without its key the log cannot go on; a key from a backup, or a fresh state folder (XDG_STATE_HOME), will do")
    })?;
    let verifier = key.verifier().to_string();
    let steady = Arc::new(SteadyClock::default());
    let clock: Arc<dyn Clock> = Arc::clone(&steady) as _;
    let (log, _) = Log::open(&places.log(), key, ORIGIN, Arc::clone(&clock)).map_err(|fault| {
        Failure::fault(format!("cannot open the log: {fault}"))
            .hint("nothing was changed: `bailiwick log verify` says more; with the folder moved aside a new log begins")
    })?;
    std::fs::write(places.log_verifier(), format!("{verifier}\n"))
        .map_err(|e| Failure::fault(format!("cannot write the log's public key: {e}")))?;
    let store = Arc::new(SqliteStore::open(&places.store()).map_err(|fault| store_failure(&fault))?);
    steady.no_earlier_than(latest(&store).map_err(|fault| store_failure(&fault))?);
    // What tasks left behind whose daemon, launcher and fence were all killed.
    let rows = store.tasks(LOST_AT_MOST).map_err(|fault| store_failure(&fault))?;
    for row in rows
        .iter()
        .filter(|row| row.state == bailiwick_gate::TaskState::Running)
    {
        scratch::clear(row.id);
    }
    store.mark_lost(clock.now()).map_err(|fault| store_failure(&fault))?;
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let refusals = refusals::Watched::over(log.clone());
    let mediator = Mediator::new(Arc::new(refusals.clone()), Arc::clone(&clock), Arc::new(KernelRandom));
    let renewals = renewals::Renewals::in_folder(places.renewed());
    let approvers = approvers::Approvers::open(&places.state);
    let auditor = auditor::Auditor::open(&places.state);
    Ok(Daemon {
        mediator: Arc::new(mediator.keeping(Arc::clone(&store) as Arc<dyn Store>)),
        machine,
        places,
        log,
        chores: chores::Chores::begin(Arc::clone(&store)),
        store,
        clock,
        spares: spare::Spares::new(program),
        running: Mutex::new(BTreeMap::new()),
        refusals,
        unheard: attend::Unheard::default(),
        moved: Arc::default(),
        ringer: bell::Ringer::default(),
        approvers,
        colleagues: Mutex::default(),
        auditor,
        renewals,
        brokered: broker::Brokered::default(),
        pinning: Mutex::default(),
        compiled: Mutex::new(Vec::new()),
    })
}

/// The latest moment that is known to be past: a clock that was set back while no daemon ran lengthens no grant either.
fn latest(store: &SqliteStore) -> Result<Millis, StoreFault> {
    let begun = store.tasks(1)?.into_iter().map(|row| row.started);
    let asked = store.questions()?.into_iter().map(|waiting| waiting.since);
    let given = store.grants()?.into_iter().map(|row| row.granted.given);
    Ok(begun.chain(asked).chain(given).max().unwrap_or(Millis(0)))
}

/// Takes up the questions and grants of the daemon before this one.
fn take_up(daemon: &Daemon) -> Result<(), Failure> {
    let failure = |fault| store_failure(&fault);
    daemon.mediator.take_up_grants().map_err(failure)?;
    let kept = daemon.store.questions().map_err(failure)?;
    daemon.mediator.take_up_questions(kept);
    Ok(())
}

fn listen(places: &Places) -> Result<UnixListener, Failure> {
    let path = places.socket();
    // The lock is held, so a socket that lies there belongs to no one.
    let _ = std::fs::remove_file(&path);
    places
        .at_socket(|path| UnixListener::bind(path))
        .map_err(|e| Failure::fault(format!("cannot listen on `{}`: {e}", path.display())))
}

/// A mediator of one run's own: the same processes, with a state folder that belongs to this run alone.
#[derive(Debug)]
pub struct Standalone {
    places: Places,
}

impl Standalone {
    /// Makes the folder.
    pub fn begin(places: &Places) -> Result<Self, Failure> {
        let mut random = [0u8; 8];
        bailiwick_gate::Random::fill(&KernelRandom, &mut random);
        let name = TaskId(random).to_string();
        let own = Places {
            state: places.state.join("standalone").join(name),
            ..places.clone()
        };
        places.make_state()?;
        own.make_state()?;
        Ok(Self { places: own })
    }

    /// Where this run's things lie.
    pub fn places(&self) -> &Places {
        &self.places
    }
}

impl Drop for Standalone {
    /// Ends the daemon of this run; its log stays.
    fn drop(&mut self) {
        let ended = crate::link::Link::to_running(&self.places)
            .and_then(|link| link.map_or(Ok(()), |link| link.stop(&self.places)));
        if let Err(failure) = ended {
            talkln!("{failure}");
        }
    }
}
