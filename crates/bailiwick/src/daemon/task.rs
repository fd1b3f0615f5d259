//! One task, from its order to its end: rules, standing permits, fence, gate, wait.
//!
//! Promises: P1 (every tree in the plan is a spent permit), P10 (the start is on record before the agent starts),
//! P13 (the fence in force is read back and put on record; a lesser one is a fault, and nothing runs).
//! Trust: the order comes from the person. Not here: the gate's channel (`gate_line`), who attends the task (`attend`).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bailiwick_fence::{Control, Lines, Running};
use bailiwick_gate::{
    FenceReport, IdMap, Judged, LaunchFault, Mediator as _, Passed, Random as _, Settlement, Spent, Store as _,
    TaskRow, TaskState,
};
use bailiwick_mediator::{PATIENCE, Rules, TaskFault, TaskSpec};
use bailiwick_model::{AbsPath, Code, Event, Level, Nonce, Record, Request, TaskId, Verb};
use bailiwick_policy::{MandateText, Policy, Published};
use bailiwick_proxy::Config;

use super::attend::Attendance;
use super::bell::Bell;
use super::granted::{grant_trees, granted_devices, ordered, permit};
use super::kept::Kept;
use super::logins::Shared;
use super::opening::Opening;
use super::plan::{self, Granted, Materials};
use super::scratch;
use super::screen::Screen;
use super::spare::{Joiner, NetworkGate};
use super::told::{cannot_ask, no_login, planned, settings_kept, tagged, told};
use super::{Daemon, KernelRandom, broker, gate_line, lock, publish, refusals, relations, secret, servers, vault};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::git::settings::GitSettings;
use crate::places;
use crate::protocol::{Planned, RunOrder, RunningTask, build};

/// What to do when the log takes no records.
pub const LOG_HINT: &str = "see that there is room where the log lies: `bailiwick log path`";

/// The accountable person, as a user name or number.
pub fn principal() -> String {
    let uid = rustix::process::geteuid().as_raw();
    places::account().map_or_else(|| format!("uid {uid}"), |account| account.name)
}

/// A running task, for whoever wants to signal or end it.
#[derive(Clone)]
pub struct Handle {
    about: Arc<RunningTask>,
    fence: Arc<Control>,
    /// Who attends it.
    pub attendance: Arc<Attendance>,
    /// Its terminal, if it has one.
    pub screen: Option<Arc<Screen>>,
    /// Where its person can be told on their desktop.
    pub bell: Option<Bell>,
    /// Its rules.
    pub policy: Arc<Policy>,
    /// True once its hours are over, and it is being ended for that.
    closed: Arc<AtomicBool>,
    /// What it shares of its agent's login.
    shared: Option<Arc<Shared>>,
    /// Ports that are seen outside since it began.
    doors: Arc<Doors>,
}

/// Ports of a running task, and what serves further ones.
struct Doors {
    joiner: Joiner,
    open: Mutex<Option<Vec<publish::Open>>>,
}

impl Handle {
    /// What `status` says of it.
    pub fn describe(&self) -> RunningTask {
        RunningTask {
            attended: self.attendance.is_attended(),
            ..(*self.about).clone()
        }
    }

    /// Brings what the agent has done to its login to where its other contexts see it.
    pub fn share(&self) {
        if let Some(Err(e)) = self.shared.as_ref().map(|shared| shared.gather()) {
            talkln!(
                "bailiwick: the login of task {} could not be shared: {e}",
                self.about.id
            );
        }
    }

    /// Shows one more port outside, until the task ends.
    pub fn publish(&self, port: Published) -> Result<(), LaunchFault> {
        let io = |e: std::io::Error| fault(Code::Fault, "the port cannot be served", e, "");
        let ports = publish::listen(&[port])?;
        let mut open = lock(&self.doors.open);
        let all = open
            .as_mut()
            .ok_or_else(|| fault(Code::UnknownTask, "the task has ended", "", ""))?;
        all.push(ports.serve(&self.fence, &self.doors.joiner).map_err(io)?);
        Ok(())
    }

    /// Marks it as ended by its hours: false where it was marked before.
    pub fn closes(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// True when its hours have ended it.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// True when it goes on without anybody who attends it.
    pub fn is_lasting(&self) -> bool {
        self.about.lasting
    }

    /// What is in force round it, for errands.
    pub fn fence(&self) -> &Control {
        &self.fence
    }

    /// Passes a signal on to the agent.
    pub fn signal(&self, number: i32) {
        if let Err(e) = self.fence.signal(number) {
            talkln!("bailiwick: signal {number} did not reach task {}: {e}", self.about.id);
        }
    }

    /// Ends all that runs in the fence.
    pub fn end(&self) {
        self.fence.end();
    }
}

/// A task that has started.
pub struct Started {
    /// For signals and for ending it.
    pub handle: Handle,
    /// For waiting.
    pub waiting: Waiting,
    /// What fence is in force.
    pub report: FenceReport,
    /// What is refused, as it comes, where the order wants to hear it.
    pub refused: Option<Receiver<Record>>,
    /// The root of its context.
    pub root: AbsPath,
}

/// What is kept to wait for the end.
pub struct Waiting {
    row: TaskRow,
    running: Running,
    gate: NetworkGate,
    tools: Option<servers::Serving>,
    line: gate_line::Served,
    doors: Arc<Doors>,
    shared: Option<Arc<Shared>>,
    reader: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Waits for the agent's end and clears up behind it; says its status, and how much was refused.
    pub fn wait(mut self, daemon: &Daemon) -> (i32, u64) {
        let status = self.running.wait();
        daemon.chores.end_launcher(self.running);
        drop(lock(&self.doors.open).take());
        if let Some(Err(e)) = self.shared.as_ref().map(|shared| shared.gather()) {
            talkln!("bailiwick: the login of task {} could not be shared: {e}", self.row.id);
        }
        scratch::clear(self.row.id);
        self.line.last_words();
        if let Some(tools) = self.tools {
            tools.end();
        }
        end(daemon, self.row.id, status);
        daemon.chores.end_gate(self.gate);
        let denied = daemon.refusals.end(self.row.id);
        let at = daemon.clock.now();
        let row = TaskRow {
            state: TaskState::Ended { at, status },
            ..self.row
        };
        daemon.chores.keep(row);
        if let Some(reader) = self.reader {
            // All that wrote to the terminal is gone, so it ends, once what is left has been read out.
            let _ = reader.join();
        }
        (status, denied)
    }
}

pub fn fault(code: Code, what: &str, cause: impl std::fmt::Display, hint: &str) -> LaunchFault {
    LaunchFault {
        code,
        what: what.into(),
        cause: cause.to_string(),
        hint: hint.into(),
    }
}

pub fn of_task(cause: TaskFault) -> LaunchFault {
    match cause {
        TaskFault::Log(_) => fault(
            Code::LogUnavailable,
            "nothing is started that cannot be put on record",
            cause,
            LOG_HINT,
        ),
        _ => fault(Code::LimitReached, "the task cannot begin", cause, ""),
    }
}

/// Ends a task on record; it has ended also when the log cannot take that.
fn end(daemon: &Daemon, task: TaskId, status: i32) {
    if let Err(cause) = daemon.mediator.end(task, status) {
        talkln!("bailiwick: the end of task {task} is not on record: {cause}");
    }
}

pub fn of_failure(failure: Failure) -> LaunchFault {
    let code = if failure.exit == Exit::Usage {
        Code::PolicyFault
    } else {
        Code::Fault
    };
    LaunchFault {
        code,
        what: failure.message,
        cause: String::new(),
        hint: failure.hint.unwrap_or_default(),
    }
}

/// Whoever ordered a task, while it starts.
pub trait Orderer {
    /// Hears what will hold, before anything starts.
    fn hears(&mut self, planned: Planned) -> std::io::Result<()>;

    /// Says the person's git settings: asked once, when they are needed.
    fn git(&mut self) -> std::io::Result<GitSettings>;
}

/// The daemon itself: nobody is told, and of git there is nothing.
struct Itself;

impl Orderer for Itself {
    fn hears(&mut self, _: Planned) -> std::io::Result<()> {
        Ok(())
    }

    fn git(&mut self) -> std::io::Result<GitSettings> {
        Ok(GitSettings::default())
    }
}

/// Starts a task.
pub fn start(
    daemon: &Arc<Daemon>,
    order: &RunOrder,
    descriptors: Vec<OwnedFd>,
    orderer: &mut dyn Orderer,
) -> Result<Started, LaunchFault> {
    let stdio: Option<[OwnedFd; 3]> = match (order.terminal, descriptors.try_into()) {
        (None, Ok(three)) => Some(three),
        (Some(_), _) => None,
        (None, Err(_)) => {
            return Err(fault(
                Code::MalformedRequest,
                "an order without a terminal needs three pipes",
                "",
                "",
            ));
        }
    };
    let program = order.command.first().map(String::as_str);
    let context =
        Context::find(&order.directory, &daemon.places, program, Some(daemon.store.as_ref())).map_err(of_failure)?;
    let context = context.with_preset(order.preset.clone());
    let context = relations::at_start(daemon, context, &order.environment).map_err(of_failure)?;
    let now = daemon.clock.now();
    let mandate = order.mandate.clone().map(|order| order.used(now));
    let first = mandate
        .as_ref()
        .map(|mandate| daemon.store.first_use(&mandate.digest(), now))
        .transpose()
        .map_err(|e| of_failure(crate::context::store_failure(&e)))?;
    let context = context.under(mandate.map(|mandate| MandateText {
        first_used: first.unwrap_or(now),
        ..mandate
    }));
    let policy = daemon.compile(&context).map_err(of_failure)?;
    let identity = bailiwick_fence::identity()?;
    let name = places::account().map(|account| account.name);
    let principal = principal();
    // Root's agents are somebody else inside, and are called so.
    let user = name
        .filter(|_| identity.owner.is_none())
        .unwrap_or_else(|| "agent".to_owned());
    let rules: Arc<dyn Rules> = Arc::clone(&policy) as _;
    let mut spec = TaskSpec::root(principal.clone(), context.id(), order.command.clone(), rules);
    spec.approver_present = order.ask;
    spec.patience = policy
        .settings()
        .ask_deadline
        .map_or(PATIENCE, |time| time.saturating_mul(1000));
    let row = TaskRow {
        id: daemon.mediator.begin(spec).map_err(of_task)?,
        context: context.id(),
        command: order.command.clone(),
        started: daemon.clock.now(),
        state: TaskState::Running,
    };
    let begun = begin(
        daemon,
        order,
        stdio,
        &context,
        &policy,
        identity,
        &principal,
        &user,
        row.clone(),
        None,
        orderer,
    );
    if let Err(cause) = &begun {
        end(daemon, row.id, Exit::of_launch(cause.code) as i32);
        daemon.refusals.end(row.id);
    }
    begun
}

/// Has the servers that the rules of a folder name started, and says what they offer: JSON in a descriptor, and their last words.
pub fn survey(
    daemon: &Arc<Daemon>,
    directory: AbsPath,
    environment: Vec<(String, String)>,
    names: &[String],
) -> Result<(OwnedFd, servers::LastWords), LaunchFault> {
    let context = Context::find(&directory, &daemon.places, None, Some(daemon.store.as_ref())).map_err(of_failure)?;
    let context = context.surveying();
    let policy = daemon.compile(&context).map_err(of_failure)?;
    let level = daemon.machine.choose(None, policy.settings())?;
    let command = vec!["bailiwick".to_owned(), "tools".into(), "pin".into()];
    let rules: Arc<dyn Rules> = Arc::clone(&policy) as _;
    let spec = TaskSpec::root(principal(), context.id(), command.clone(), rules);
    let task = daemon.mediator.begin(spec).map_err(of_task)?;
    let order = RunOrder {
        environment,
        ..servers::order(command, level, directory)
    };
    let master = servers::Master {
        task,
        context,
        policy,
        order,
        level,
    };
    let found = daemon
        .mediator
        .started(task, vec![level.as_str().into()])
        .map_err(of_task)
        .and_then(|()| {
            let found = master.survey(daemon, names);
            found.map_err(|e| fault(Code::ServerFailed, "servers could not be asked what they offer", e, ""))
        });
    end(daemon, task, found.as_ref().map_or(1, |_| 0));
    found
}

/// What a command is that runs outside, for another task.
pub struct Outer {
    /// The task that it runs for.
    pub parent: TaskId,
    /// What it is handed.
    pub secret: Option<OwnedFd>,
    /// Variables that it is given besides those of its rules.
    pub variables: Vec<(String, String)>,
    /// The server that it is; none for a command.
    pub server: Option<String>,
}

/// Starts a command that runs outside, by rules of its own.
pub fn start_outside(
    daemon: &Arc<Daemon>,
    order: &RunOrder,
    stdio: [OwnedFd; 3],
    context: &Context,
    policy: &Arc<Policy>,
    outer: Outer,
) -> Result<Started, LaunchFault> {
    let identity = bailiwick_fence::identity()?;
    let name = places::account().map(|account| account.name);
    let principal = principal();
    let user = name
        .filter(|_| identity.owner.is_none())
        .unwrap_or_else(|| "agent".to_owned());
    let rules: Arc<dyn Rules> = Arc::clone(policy) as _;
    let mut spec = TaskSpec::root(principal.clone(), context.id(), order.command.clone(), rules);
    spec.parent = Some(outer.parent);
    let row = TaskRow {
        id: daemon.mediator.begin(spec).map_err(of_task)?,
        context: context.id(),
        command: order.command.clone(),
        started: daemon.clock.now(),
        state: TaskState::Running,
    };
    let begun = begin(
        daemon,
        order,
        Some(stdio),
        context,
        policy,
        identity,
        &principal,
        &user,
        row.clone(),
        Some(outer),
        &mut Itself,
    );
    if let Err(cause) = &begun {
        end(daemon, row.id, Exit::of_launch(cause.code) as i32);
        daemon.refusals.end(row.id);
    }
    begun
}

#[expect(
    clippy::too_many_arguments,
    reason = "the second half of `start`, split off so that a failure ends the task on record"
)]
fn begin(
    daemon: &Arc<Daemon>,
    order: &RunOrder,
    stdio: Option<[OwnedFd; 3]>,
    context: &Context,
    policy: &Arc<Policy>,
    identity: IdMap,
    principal: &str,
    user: &str,
    row: TaskRow,
    outer: Option<Outer>,
    orderer: &mut dyn Orderer,
) -> Result<Started, LaunchFault> {
    // Keys and bundles are made meanwhile.
    let opening = Opening::begin(row.id, policy, order);
    let start = permit(
        daemon,
        &Request::new(row.id, Verb::Run, ordered(order, context)?),
        &context.root,
        policy,
    )?;
    let level = daemon.machine.choose(order.level, policy.settings())?;
    let identity = crate::daemon::level::identity_at(level, identity);
    let (granted, grants) = grant_trees(daemon, policy, row.id)?;
    let writable: Vec<&AbsPath> = granted
        .iter()
        .filter(|g| g.verb == Verb::Write)
        .map(|g| &g.tree)
        .collect();
    crate::own::keep_out(&daemon.places, &writable).map_err(of_failure)?;
    let verb = |keep: bool| {
        granted
            .iter()
            .filter(move |g| (g.verb == Verb::Keep) == keep)
            .map(|g| g.tree.clone())
    };
    let kept = Kept::of(
        verb(true).collect(),
        verb(false),
        &daemon.places.home,
        &context.root,
        daemon
            .places
            .kept(&context.root, outer.as_ref().and_then(|outer| outer.server.as_deref())),
        policy.settings(),
    );
    let devices = granted_devices(order, policy)?;
    let laid = kept.lay(&daemon.places, level).map_err(of_failure)?;
    let shared = kept.shared(&daemon.places).map(Arc::new);
    let (notes, kept) = (kept.notes, laid);
    let trees: Vec<AbsPath> = granted.iter().map(|granted| granted.tree.clone()).collect();
    let is_there = |tree: &AbsPath| tree.to_path_buf().symlink_metadata().is_ok();
    let asked = daemon
        .mediator
        .asked_trees(row.id, &trees, &is_there)
        .map_err(of_task)?;
    let asked: Vec<Granted> = asked
        .into_iter()
        .map(|(tree, obligations)| Granted {
            verb: Verb::Write,
            tree,
            obligations,
        })
        .collect();
    let (asked, unasked) = if daemon.machine.asks_for_files(level) {
        (asked, Vec::new())
    } else {
        (Vec::new(), asked)
    };
    let gone = |e: std::io::Error| fault(Code::Fault, "the command that ordered this is gone", e, "");
    let order = &RunOrder {
        git: orderer.git().map_err(gone)?,
        ..order.clone()
    };
    let opening = opening.finish()?;
    let believed = opening.as_ref().map(|(_, believed)| believed);
    let token = (outer.is_none() && !policy.settings().servers.is_empty()).then(|| {
        let mut bytes = [0; 16];
        KernelRandom.fill(&mut bytes);
        hex::encode(bytes)
    });
    let planning = plan::make(&Materials {
        token: token.as_deref(),
        believed,
        listens: outer.is_none() && daemon.machine.asks_for_files(level),
        asked: &asked,
        hidden: &unasked,
        level,
        task: row.id,
        order,
        root: &context.root,
        home: &daemon.places.home,
        user,
        granted: &granted,
        repository: context.repository.outside(),
        kept: &kept,
        settings: policy.settings(),
        identity,
        program: own_program(),
        devices: &devices,
        machine_memory: machine_memory(),
        // What a command outside starts is its own.
        judged: if outer.is_some() {
            Judged::Nothing
        } else {
            policy.judged()
        },
        tables: &context.tables,
    });
    let mut planning = planning.ok_or_else(|| fault(Code::Fault, "the fence could not be planned", "", ""))?;
    let is_outer = outer.is_some();
    let (secret, variables) = outer.map_or((None, Vec::new()), |outer| (outer.secret, outer.variables));
    if secret.is_some() {
        planning.plan.secret = true;
        let number = (secret::VARIABLE.to_owned(), bailiwick_gate::SECRET.to_string());
        planning.plan.environment.push(number);
    }
    // What runs outside has its own rules, which name no secret for requests.
    let secrets = vault::prepare(daemon, policy, &order.environment, &KernelRandom);
    for (variable, text) in secrets.variables.iter().chain(&variables) {
        planning.plan.environment.retain(|(name, _)| name != variable);
        planning.plan.environment.push((variable.clone(), text.clone()));
    }
    let handover = planning.plan.handover.clone().unwrap_or_else(AbsPath::root);
    let ordered: Vec<Published> = order.publish.iter().map(|port| (*port).into()).collect();
    let published = publish::wanted(&policy.settings().publish, &ordered, &planning.plan.listen)?;
    // Where the loopback is the machine's, a port that keeps its number is seen outside already.
    let seen = |port: &&Published| level == Level::Process && port.inside == port.outside;
    let joined: Vec<Published> = published.iter().filter(|port| !seen(port)).copied().collect();
    // All of them must be free, also those that the agent itself will take.
    drop(publish::listen(&published)?);
    let ports = publish::listen(&joined)?;
    let pinned = servers::pinned(context, policy);
    let planned = Planned {
        level,
        asked: asked.iter().map(|asked| asked.tree.clone()).collect(),
        publish: published.iter().map(|port| (*port).into()).collect(),
        devices: devices.told.clone(),
        settings: settings_kept(policy, &kept),
        notes: policy
            .settings()
            .notes
            .iter()
            .cloned()
            .chain(notes)
            .chain(plan::note_of_streams(policy.settings()))
            .chain(believed.iter().flat_map(|believed| believed.notes.iter().cloned()))
            .chain(no_login(order, policy, &kept))
            .chain(tagged(daemon, row.id))
            .collect(),
        warnings: told(daemon, order, context, policy, &writable)
            .into_iter()
            .chain(cannot_ask(level, &unasked))
            .chain(secrets.warnings)
            .collect(),
        ..planned(daemon, row.id, context, policy, &granted, pinned.as_ref().ok())
    };
    orderer.hears(planned).map_err(gone)?;
    let io = |what: &'static str| move |e: std::io::Error| fault(Code::Fault, what, e, "");
    let mut launcher = daemon.spares.launcher().map_err(io("cannot start the launcher"))?;
    let gate = daemon
        .spares
        .network_gate()
        .map_err(io("cannot start the network gate"))?;
    // On record before the agent runs: what it will be, and what it was given.
    daemon
        .mediator
        .started(row.id, devices.on_record(vec![level.as_str().into()]))
        .map_err(of_task)?;
    for port in &published {
        let event = Event::Published {
            principal: principal.into(),
            outside: port.outside,
            inside: port.inside,
        };
        daemon.record(Some(row.id), event).map_err(|e| of_task(e.into()))?;
    }
    let (hearer, refused) = if order.explain {
        let (hearer, refused) = sync_channel(refusals::WAITING);
        (Some(hearer), Some(refused))
    } else {
        (None, None)
    };
    daemon.refusals.begin(row.id, hearer);
    let trees: Vec<Nonce> = grants.iter().map(Spent::nonce).collect();
    let brokers = match policy.settings().brokers.as_slice() {
        [] => None,
        _ => {
            let from = broker::Master {
                task: row.id,
                context: context.clone(),
                policy: Arc::clone(policy),
                order: order.clone(),
                level,
            };
            Some(from.serve(daemon).map_err(io("cannot make a line for brokers"))?)
        }
    };
    let line = || -> Result<OwnedFd, LaunchFault> {
        let (ours, theirs) = UnixStream::pair().map_err(io("cannot make a line to the fence"))?;
        gate_line::serve(daemon, row.id, &ours).map_err(io("cannot serve the fence"))?;
        Ok(theirs.into())
    };
    let lines = Lines {
        supervisor: Some(line()?),
        files: planning.plan.is_served().then(line).transpose()?,
        brokers,
        secret,
        contents: believed.map(|believed| believed.contents.clone()).unwrap_or_default(),
    };
    let started = launcher.launch(grants, &planning.plan, stdio, lines);
    let mut started = match started {
        Ok(started) => started,
        Err(cause) => {
            settle(daemon, start, false, &cause.to_string());
            gate.end();
            return Err(cause);
        }
    };
    let door = token.as_ref().and_then(|_| started.listeners.pop());
    let config = Config {
        task: row.id,
        sockets: planning.services,
        hosts: policy.settings().hosts.clone(),
        opened: policy.settings().opened.clone(),
        roots: believed.map(|believed| believed.roots.clone()).unwrap_or_default(),
        authority: opening.map(|(authority, _)| authority),
        secrets: secrets.stand_ins,
        build: build(),
    };
    let fence = Arc::new(started.child.control().map_err(io("cannot keep hold of the fence"))?);
    let serving = gate
        .assign(&config, &started.listeners)
        .and_then(|()| {
            let vault = Some(secrets.vault as _);
            gate_line::serve_after(daemon, row.id, &gate.channel, vault, |reply| {
                daemon.refusals.tell(row.id, reply)
            })
        })
        .and_then(|line| Ok((ports.serve(&fence, &gate.joiner())?, line)))
        .and_then(|(ports, line)| {
            let tools = door.zip(token).map(|(door, token)| {
                let master = servers::Master {
                    task: row.id,
                    context: context.clone(),
                    policy: Arc::clone(policy),
                    order: order.clone(),
                    level,
                };
                master.serve(daemon, &door, token, &pinned.map_err(std::io::Error::other)?)
            });
            Ok((ports, line, tools.transpose()?))
        });
    let (ports, line, tools) = match serving {
        Ok(serving) => serving,
        Err(e) => {
            fence.end();
            gate.end();
            return Err(fault(Code::Fault, "a gate could not be given its task", e, ""));
        }
    };
    drop(started.listeners);
    let doors = Arc::new(Doors {
        joiner: gate.joiner(),
        open: Mutex::new(Some(vec![ports])),
    });
    daemon.chores.keep(row.clone());
    let about = RunningTask {
        id: row.id,
        context: row.context.to_string(),
        command: row.command.clone(),
        started: row.started,
        publish: published.into_iter().map(Into::into).collect(),
        handover,
        lasting: order.terminal.is_some() && !order.tied,
        attended: false,
        read: Vec::new(),
    };
    let screen = started.terminal.map(Screen::over).transpose();
    let (screen, reader) = screen.map_err(io("cannot use the agent's terminal"))?.unzip();
    let handle = Handle {
        about: Arc::new(about),
        fence,
        attendance: Arc::default(),
        screen,
        bell: Bell::of(policy.settings().notify, &order.environment),
        policy: Arc::clone(policy),
        closed: Arc::default(),
        shared: shared.clone(),
        doors: Arc::clone(&doors),
    };
    // Before anything that takes its time: the agent runs, and may be spoken of.
    lock(&daemon.running).insert(row.id, handle.clone());
    if !is_outer {
        keep_order(daemon, row.id, order);
        relations::watch(daemon, row.id, context, &order.environment);
    }
    if let Err(cause) = daemon.mediator.settle_trees(row.id, &trees) {
        lock(&daemon.running).remove(&row.id);
        return Err(of_task(cause));
    }
    settle(daemon, start, true, &started.report.parts.join(" "));
    Ok(Started {
        handle,
        waiting: Waiting {
            row,
            running: started.child,
            gate,
            tools,
            line,
            doors,
            shared,
            reader,
        },
        report: started.report,
        refused,
        root: context.root.clone(),
    })
}

/// Keeps what a task was ordered by, without the person's surroundings: they are those of whoever orders it again.
fn keep_order(daemon: &Daemon, task: TaskId, order: &RunOrder) {
    let order = RunOrder {
        environment: Vec::new(),
        git: GitSettings::default(),
        ..order.clone()
    };
    match serde_json::to_string(&order) {
        Ok(text) => daemon.chores.keep_order(task, text),
        Err(cause) => talkln!("bailiwick: task {task} cannot be resumed later: {cause}"),
    }
}

fn settle(daemon: &Daemon, spent: Spent, done: bool, note: &str) {
    let settlement = Settlement {
        nonce: spent.nonce(),
        done,
        note: note.into(),
        passed: Passed::default(),
    };
    if let Err(refusal) = daemon.mediator.settle(&settlement) {
        talkln!("bailiwick: a permit could not be settled: {refusal}");
    }
}

/// This program, where it lies now.
pub fn own_program() -> Option<AbsPath> {
    let program = std::env::current_exe().ok()?;
    program.is_file().then(|| AbsPath::new(program).ok()).flatten()
}

/// The machine's memory, in bytes (sysinfo(2)).
fn machine_memory() -> Option<u64> {
    let found = rustix::system::sysinfo();
    found.totalram.checked_mul(found.mem_unit.into())
}
