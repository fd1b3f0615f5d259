//! Brokers: commands that a task's programs start and that run outside, each a task of its own with its own rules.
//!
//! Promises: P1 (nothing starts here without an open permit for this very command), P2 (its rules stand below the ceiling),
//! P9 (its secret goes to it alone), P10 (the permit is on disk before it starts), P11 (it ends within a second when nobody
//! inside waits for it, and with its task).
//! Trust: the supervisor of the task speaks here, which the agent may have taken over: it can have run what the mediator has
//! allowed, once for each permit, and nothing else. Of the words it is the permit's that count, of the variables none.
//! Not here: holding the start (`fence`), what a broker may do (`policy`), what git must not heed (`git::outside`).

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_fence::{Channel, Outcome, Wanted};
use bailiwick_gate::{Passed, Settlement};
use bailiwick_model::{AbsPath, Code, DecisionId, Level, Nonce, Request, Resource, TaskId, Verb, Verdict};
use bailiwick_policy::{Broker, Policy};

use super::fetcher::For;
use super::task::{self, Handle, Outer};
use super::{Daemon, lock, secret, servers};
use crate::context::Context;
use crate::git;
use crate::protocol::RunOrder;

/// How long a command may take to end by itself when nobody waits for it any more.
const GRACE: Duration = Duration::from_millis(700);
/// The exit status of a command that did not run.
const NOT_RUN: i32 = 126;
/// Most commands of one task that run at one time.
const MAX_RUNNING: usize = 64;

/// A task whose programs may have commands run outside.
pub struct Master {
    /// The task.
    pub task: TaskId,
    /// Its context.
    pub context: Context,
    /// Its rules.
    pub policy: Arc<Policy>,
    /// What the person ordered: their environment is the base of a broker's.
    pub order: RunOrder,
    /// What its fence is made of.
    pub level: Level,
}

/// All commands that run outside, by the permit that each runs under.
#[derive(Default)]
pub struct Brokered(Mutex<BTreeMap<(TaskId, Nonce), Handle>>);

impl Brokered {
    /// Notes that a command runs; false when its permit was cut off meanwhile.
    fn begin(&self, daemon: &Daemon, task: TaskId, nonce: Nonce, handle: &Handle) -> bool {
        lock(&self.0).insert((task, nonce), handle.clone());
        daemon.mediator.is_granted(task, &nonce)
    }

    fn end(&self, task: TaskId, nonce: Nonce) {
        lock(&self.0).remove(&(task, nonce));
    }

    /// Ends the command that runs under a permit: asks it to, and does not wait for long.
    pub fn cut(&self, task: TaskId, nonce: Nonce) {
        if let Some(handle) = lock(&self.0).get(&(task, nonce)).cloned() {
            end_soon(handle);
        }
    }
}

/// Ends a command: asks it to, and does not wait for long.
fn end_soon(handle: Handle) {
    handle.signal(signal_hook::consts::SIGTERM);
    std::thread::spawn(move || {
        std::thread::sleep(GRACE);
        handle.end();
    });
}

/// What runs for one task.
#[derive(Default)]
struct Running {
    all: BTreeMap<u64, State>,
    /// True when the task has ended.
    over: bool,
}

/// One command.
enum State {
    /// It is being started.
    Starting,
    /// Nobody waits for it any more, and it has not started yet.
    Unwanted,
    /// It runs.
    Runs(Box<Handle>),
}

/// Serves the commands of one task.
struct Desk {
    daemon: Arc<Daemon>,
    master: Master,
    running: Mutex<Running>,
    /// The rules of each broker, once they have been compiled.
    compiled: Mutex<BTreeMap<String, Arc<Policy>>>,
    to: Mutex<Channel>,
}

/// A command that is to run.
struct Ordered {
    call: u64,
    nonce: Nonce,
    request: Request,
    directory: String,
    three: [OwnedFd; 3],
}

impl Master {
    /// Serves the task's commands; the other end of the channel is the supervisor's.
    pub fn serve(self, daemon: &Arc<Daemon>) -> std::io::Result<OwnedFd> {
        let (ours, theirs) = Channel::pair()?;
        let from = Channel::over(ours);
        let desk = Arc::new(Desk {
            daemon: Arc::clone(daemon),
            master: self,
            running: Mutex::default(),
            compiled: Mutex::default(),
            to: Mutex::new(from.second()?),
        });
        std::thread::spawn(move || {
            if let Err(cause) = desk.hear(from) {
                talkln!("bailiwick: brokers of task {} are cut off: {cause}", desk.master.task);
            }
            desk.end_all();
        });
        Ok(theirs)
    }
}

impl Desk {
    fn hear(self: &Arc<Self>, mut from: Channel) -> std::io::Result<()> {
        // A permit that has come once is not taken again, also while the first is not settled yet.
        let mut used = HashSet::new();
        while let Some(wanted) = from.receive::<Wanted>()? {
            if from.waiting() != wanted.brings() {
                return Err(std::io::Error::other("descriptors came along that belong to nothing"));
            }
            match wanted {
                Wanted::Run {
                    call,
                    nonce,
                    request,
                    directory,
                } => {
                    let three = [from.take()?, from.take()?, from.take()?];
                    let decision = self.daemon.mediator.permitted(&request, &nonce);
                    let own = request.task == self.master.task && request.verb == Verb::Broker;
                    let decision = decision.filter(|_| own && used.insert(nonce));
                    let Some(decision) = decision else {
                        return Err(std::io::Error::other("a command came without a permit"));
                    };
                    let ordered = Ordered {
                        call,
                        nonce,
                        request: *request,
                        directory,
                        three,
                    };
                    self.begin(ordered, decision);
                }
                Wanted::Gone { call } => self.gone(call),
            }
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, ordered: Ordered, decision: DecisionId) {
        let call = ordered.call;
        {
            let mut running = lock(&self.running);
            if running.all.len() >= MAX_RUNNING || running.all.contains_key(&call) {
                drop(running);
                self.settle(ordered.nonce, false, "too many run already");
                tell(&ordered.three, Code::LimitReached, decision);
                return self.answer(call, NOT_RUN);
            }
            running.all.insert(call, State::Starting);
        }
        let desk = Arc::clone(self);
        std::thread::spawn(move || {
            let status = desk.run(ordered, decision);
            lock(&desk.running).all.remove(&call);
            desk.answer(call, status);
        });
    }

    fn answer(&self, call: u64, status: i32) {
        // Whoever does not hear it any more has ended.
        let _ = lock(&self.to).send(&Outcome::Ended { call, status }, &[]);
    }

    fn settle(&self, nonce: Nonce, done: bool, note: &str) {
        let settlement = Settlement {
            nonce,
            done,
            note: note.into(),
            passed: Passed::default(),
        };
        if self.daemon.mediator.settle_of(self.master.task, &settlement).is_err() {
            talkln!("bailiwick: a permit of task {} could not be settled", self.master.task);
        }
    }

    /// Runs one command to its end: its status.
    fn run(&self, ordered: Ordered, decision: DecisionId) -> i32 {
        let (nonce, call) = (ordered.nonce, ordered.call);
        let errors = ordered.three.each_ref().map(AsFd::as_fd);
        let [.., errors] = errors;
        let errors = errors.try_clone_to_owned();
        let started = match self.start(ordered) {
            Ok(started) => started,
            Err(why) => {
                self.settle(nonce, false, &why);
                talkln!(
                    "bailiwick: a command of task {} did not run outside: {why}",
                    self.master.task
                );
                if let Ok(errors) = errors {
                    tell(&[errors], Code::BrokerFailed, decision);
                }
                return NOT_RUN;
            }
        };
        drop(errors);
        let handle = started.handle.clone();
        let id = handle.describe().id;
        let unwanted = {
            let mut running = lock(&self.running);
            let before = running.all.insert(call, State::Runs(Box::new(handle.clone())));
            running.over || matches!(before, Some(State::Unwanted))
        };
        // Its permit stays open as long as it runs: what goes on under a grant ends with that.
        let is_open = self
            .daemon
            .brokered
            .begin(&self.daemon, self.master.task, nonce, &handle);
        if unwanted || !is_open {
            handle.end();
        }
        let (status, _) = started.waiting.wait(&self.daemon);
        self.daemon.brokered.end(self.master.task, nonce);
        self.settle(
            nonce,
            true,
            &format!("it ran outside as task {id}, to the end with {status}"),
        );
        lock(&self.daemon.running).remove(&id);
        status
    }

    fn start(&self, ordered: Ordered) -> Result<task::Started, String> {
        let master = &self.master;
        let settings = master.policy.settings();
        let Resource::Command(command) = &ordered.request.resource else {
            return Err("it is no command".into());
        };
        let broker = settings.broker_of(command).ok_or("no broker runs it")?;
        let program = broker.program().ok_or("its broker names no program")?.to_owned();
        let policy = self.rules(broker)?;
        let directory = AbsPath::new(&ordered.directory).map_err(|e| e.to_string())?;
        let look = Request::new(master.task, Verb::Read, Resource::File(directory.clone()));
        if policy.evaluate(&look).verdict != Verdict::Allow {
            return Err(format!("it was started in `{directory}`, which it does not see"));
        }
        if let Some(name) = broker.secret.as_ref().filter(|name| master.policy.withholds(name)) {
            return Err(format!("a rule denies `use secret:{name}`"));
        }
        let named = broker.secret.as_ref().and_then(|name| settings.secrets.get(name));
        let secret = named
            .map(|named| {
                let purpose = format!("secret:{}", broker.secret.as_deref().unwrap_or_default());
                let whom = For {
                    purpose: &purpose,
                    task: Some(master.task),
                    policy: &master.policy,
                    environment: &master.order.environment,
                };
                secret::hand_out(&self.daemon.value_of(&whom, named)?)
            })
            .transpose()?;
        let words = command.words().iter().skip(1).cloned();
        let order = RunOrder {
            environment: servers::surroundings(&master.policy, &master.context, &master.order),
            ..servers::order(std::iter::once(program).chain(words).collect(), master.level, directory)
        };
        let outer = Outer {
            parent: master.task,
            secret,
            variables: Vec::new(),
            server: None,
        };
        task::start_outside(&self.daemon, &order, ordered.three, &master.context, &policy, outer)
            .map_err(|fault| fault.to_string())
    }

    /// The rules of a broker.
    fn rules(&self, broker: &Broker) -> Result<Arc<Policy>, String> {
        let name = broker.origin.to_string();
        if let Some(known) = lock(&self.compiled).get(&name) {
            return Ok(Arc::clone(known));
        }
        let master = &self.master;
        let settings = master.policy.settings();
        let secret = broker.secret.as_ref().and_then(|name| settings.secrets.get(name));
        let mut environment = broker.environment.clone();
        if broker.program().is_some_and(git::outside::is_git) {
            let own = git::outside::variables(&master.context.root, secret, broker)?;
            environment.extend(own);
        }
        let grammars = master.context.grammars().map_err(|failure| failure.message)?;
        let policy = bailiwick_policy::load_broker(&master.context.sources, &grammars, broker, settings, environment);
        let policy = policy.map_err(|wrong| crate::context::rule_failure(&wrong).message)?;
        let policy = Arc::new(policy);
        lock(&self.compiled).insert(name, Arc::clone(&policy));
        Ok(policy)
    }

    /// Nobody inside waits for a command any more.
    fn gone(&self, call: u64) {
        let handle = {
            let mut running = lock(&self.running);
            match running.all.get_mut(&call) {
                Some(State::Runs(handle)) => handle.clone(),
                Some(state) => {
                    *state = State::Unwanted;
                    return;
                }
                None => return,
            }
        };
        end_soon(*handle);
    }

    /// The task has ended: so does what runs for it.
    fn end_all(&self) {
        let mut running = lock(&self.running);
        running.over = true;
        for state in running.all.values() {
            if let State::Runs(handle) = state {
                handle.end();
            }
        }
    }
}

/// Says to whoever started a command that it did not run: the code, and what `bailiwick explain` takes. Never waits.
fn tell(three: &[OwnedFd], code: Code, decision: DecisionId) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(errors) = three.last() else { return };
    let line = format!("bailiwick: the command did not run outside ({code}, {decision})\n");
    let mut ready = [PollFd::new(errors, PollFlags::OUT)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    if matches!(poll(&mut ready, Some(&none)), Ok(1..)) {
        let _ = rustix::io::write(errors, line.as_bytes());
    }
}
