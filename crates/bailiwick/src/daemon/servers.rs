//! Tool servers: programs that a task's tool gate has started, each a task of its own with its own rules.
//!
//! Promises: P1 (nothing starts here but what the rules name), P2 (a server's rules stand below the ceiling), P8 (a
//! definition is written down only under an open permit for that very definition), P9 (a server is given its own secrets
//! and nobody else's), P11 (it ends with its task).
//! Trust: the tool gate speaks here, which an agent or a server may have taken over: it can start servers that the rules name,
//! once each at a time, and end them.
//! Not here: the gate's process (`tool_gate`), what a server may do (`policy`), which tools are called (`tools`).

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bailiwick_fence::Channel;
use bailiwick_gate::Store as _;
use bailiwick_model::{
    AbsPath, Argument, Layer, Level, Nonce, Request, Resource, TaskId, ToolPattern, Verb, Verdict, argument, visible,
};
use bailiwick_policy::{Policy, Server, ServerProgram, ServerVariable};
use bailiwick_tools::{Config, Definition, Lock, LockFault, ServerConfig, ServerLimits, Visible};

use super::fetcher::For;
use super::task::{self, Handle, Outer};
use super::tool_gate::{Told, ToolGate, Wanted};
use super::{Daemon, gate_line, lock};
use crate::context::Context;
use crate::git;
use crate::protocol::{RunOrder, build};

/// The word that makes this program the relay to a server that is reached by an address.
pub const RELAY: &str = "__tool-relay";

/// Most bytes of what a server says on its standard error that the daemon's own log takes.
const TALK: u64 = 64 * 1024;

/// How many lines of it are kept for whoever asks why a server failed, and how much of each.
const LAST_LINES: usize = 4;
const LAST_CHARACTERS: usize = 300;

/// How long the last of it is waited for, once a server's fence has been ended.
const LISTENS: Duration = Duration::from_secs(1);
/// How long a server may take to end that is started again.
const ENDS: Duration = Duration::from_secs(10);

/// A task whose tool gate may have servers started.
#[derive(Clone)]
pub struct Master {
    /// The task.
    pub task: TaskId,
    /// Its context.
    pub context: Context,
    /// Its rules.
    pub policy: Arc<Policy>,
    /// What the person ordered: their environment is where secrets may come from.
    pub order: RunOrder,
    /// What its fence is made of.
    pub level: Level,
}

/// A tool gate that serves a task, with its servers.
pub struct Serving {
    gate: ToolGate,
    line: gate_line::Served,
    desk: Arc<Desk>,
}

impl Serving {
    /// Ends the gate and its servers.
    pub fn end(self) {
        self.line.last_words();
        self.desk.end_all();
        self.gate.end();
    }
}

struct Desk {
    daemon: Arc<Daemon>,
    master: Master,
    to: Mutex<Channel>,
    running: Mutex<Running>,
    /// Told when one has ended.
    ended: Condvar,
    talks: Mutex<BTreeMap<String, Talk>>,
}

/// What servers said last on their standard error, line by line.
pub type LastWords = BTreeMap<String, Vec<String>>;

/// What a server says on its standard error.
struct Talk {
    last: Arc<Mutex<VecDeque<String>>>,
    over: Receiver<()>,
}

#[derive(Default)]
struct Running {
    all: BTreeMap<String, Option<Handle>>,
    over: bool,
}

/// What the tool gate is told of a task's servers.
fn config(task: TaskId, policy: &Policy, pinned: &Lock, token: String) -> Config {
    let servers = policy.settings().servers.iter();
    let of = |server: &Server| ServerConfig {
        name: server.name.clone(),
        visible: visible_of(policy, server, pinned),
        reasons: policy.tools_with_reasons(&server.name),
        altered: policy.tools_altered(&server.name),
        choosing: policy
            .tools_choosing(&server.name)
            .into_iter()
            .map(choosing_of)
            .collect(),
        unlisted: policy.lists_are_tagged(&server.name),
        limits: limits_of(server),
    };
    Config {
        task,
        build: build(),
        token,
        servers: servers.map(of).collect(),
        lock: pinned.write(),
    }
}

fn choosing_of(choosing: bailiwick_policy::Choosing) -> bailiwick_tools::Choosing {
    bailiwick_tools::Choosing {
        tools: choosing.tools,
        argument: choosing.argument,
        from: choosing.from,
        looks_at: choosing.looks_at,
    }
}

/// What was accepted of the servers that the rules name, each from the file beside the rules that name it.
pub fn pinned(context: &Context, policy: &Policy) -> Result<Lock, LockFault> {
    let mut all = Lock::default();
    if policy.settings().servers.is_empty() {
        return Ok(all);
    }
    let project = Lock::read(context.lock_text(Layer::Context))?;
    let person = Lock::read(context.lock_text(Layer::Person))?;
    for server in &policy.settings().servers {
        let from = match server.origin.layer {
            Layer::Context => &project,
            _ => &person,
        };
        if let Some(own) = from.servers.get(&server.name) {
            all.servers.insert(server.name.clone(), own.clone());
        }
    }
    Ok(all)
}

/// What may be shown of a server: tools that were accepted one by one, all else by what rules name.
fn visible_of(policy: &Policy, server: &Server, pinned: &Lock) -> Vec<Visible> {
    let tools = pinned
        .servers
        .get(&server.name)
        .into_iter()
        .flat_map(|own| own.tools.keys());
    let called = tools
        .filter(|tool| policy.visible(&server.name, tool))
        .filter_map(|tool| {
            Some(Visible {
                verb: Verb::Call,
                pattern: ToolPattern::parse(&format!("{}/{tool}", server.name)).ok()?,
            })
        });
    called
        .chain(
            policy
                .tools_named(&server.name)
                .into_iter()
                .map(|(verb, pattern)| Visible { verb, pattern }),
        )
        .collect()
}

fn limits_of(server: &Server) -> ServerLimits {
    let usual = ServerLimits::default();
    let limits = server.limits;
    ServerLimits {
        start_seconds: limits.start.unwrap_or(usual.start_seconds),
        call_seconds: limits.call.unwrap_or(usual.call_seconds),
        answer_bytes: limits
            .bytes
            .map_or(usual.answer_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        ..usual
    }
}

impl Master {
    /// Starts the tool gate of the task behind this door, with what was accepted of its servers.
    pub fn serve(self, daemon: &Arc<Daemon>, door: &OwnedFd, token: String, pinned: &Lock) -> std::io::Result<Serving> {
        let config = config(self.task, &self.policy, pinned, token);
        let task = self.task;
        let (gate, control) = ToolGate::spawn(&daemon.spares.own_program(), &config, Some(door))?;
        let desk = self.desk(daemon, &control)?;
        let hearing = Arc::clone(&desk);
        std::thread::spawn(move || {
            if let Err(cause) = hearing.hear(control, None) {
                talkln!("bailiwick: the tool gate of task {task} is cut off: {cause}");
            }
            hearing.end_all();
        });
        let line = gate_line::serve_after(daemon, task, &gate.channel, None, |_| {})?;
        Ok(Serving { gate, line, desk })
    }

    /// Lists what the servers of these names offer: JSON, by server, of what it offers or why it could not be asked; and what
    /// they said last besides.
    pub fn survey(self, daemon: &Arc<Daemon>, names: &[String]) -> std::io::Result<(OwnedFd, LastWords)> {
        let mut config = config(self.task, &self.policy, &Lock::default(), "0".repeat(32));
        config
            .servers
            .retain(|server| names.is_empty() || names.contains(&server.name));
        let (gate, control) = ToolGate::spawn(&daemon.spares.own_program(), &config, None)?;
        let desk = self.desk(daemon, &control)?;
        let mut found = None;
        let heard = desk.hear(control, Some(&mut found));
        desk.end_all();
        gate.end();
        heard?;
        let found =
            found.ok_or_else(|| std::io::Error::other("the tool gate ended before it said what servers offer"))?;
        Ok((found, desk.last_words()))
    }

    fn desk(self, daemon: &Arc<Daemon>, control: &Channel) -> std::io::Result<Arc<Desk>> {
        Ok(Arc::new(Desk {
            daemon: Arc::clone(daemon),
            master: self,
            to: Mutex::new(control.second()?),
            running: Mutex::default(),
            ended: Condvar::new(),
            talks: Mutex::default(),
        }))
    }
}

impl Desk {
    fn hear(self: &Arc<Self>, mut from: Channel, found: Option<&mut Option<OwnedFd>>) -> std::io::Result<()> {
        while let Some(wanted) = from.receive::<Wanted>()? {
            match wanted {
                Wanted::Start { call, server } => {
                    let desk = Arc::clone(self);
                    std::thread::spawn(move || desk.start(call, &server));
                }
                Wanted::Accept { call, request, nonce } => {
                    let told = match self.accept(&request, &nonce) {
                        Ok(()) => Told::Accepted { call },
                        Err(why) => Told::Failed { call, why },
                    };
                    self.tell(&told, &[]);
                }
                Wanted::End { server } => self.end(&server),
                Wanted::Surveyed {} => {
                    let Some(found) = found else {
                        return Err(std::io::Error::other("it was not asked what servers offer"));
                    };
                    *found = Some(from.take()?);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn tell(&self, told: &Told, along: &[&OwnedFd]) {
        let along: Vec<_> = along.iter().map(|end| end.as_fd()).collect();
        // A gate that does not hear it any more has ended.
        let _ = lock(&self.to).send(told, &along);
    }

    fn start(self: &Arc<Self>, call: u64, name: &str) {
        match self.started(name) {
            Ok((to, from)) => self.tell(&Told::Started { call }, &[&to, &from]),
            Err(why) => {
                talkln!(
                    "bailiwick: server `{name}` of task {} did not start: {why}",
                    self.master.task
                );
                self.tell(&Told::Failed { call, why }, &[]);
            }
        }
    }

    /// Starts a server: what it reads and what it writes.
    fn started(self: &Arc<Self>, name: &str) -> Result<(OwnedFd, OwnedFd), String> {
        let settings = self.master.policy.settings();
        let server = settings.servers.iter().find(|server| server.name == name);
        let server = server.ok_or("no rule names it")?;
        self.take_place(name)?;
        let ended = |why: String| {
            self.leave_place(name);
            why
        };
        let (input, to) = std::io::pipe().map_err(|e| ended(e.to_string()))?;
        let (from, output) = std::io::pipe().map_err(|e| ended(e.to_string()))?;
        let (talk, errors) = std::io::pipe().map_err(|e| ended(e.to_string()))?;
        let three = [OwnedFd::from(input), output.into(), errors.into()];
        let started = self.launch(server, three).map_err(ended)?;
        let talk = pass_on(name.to_owned(), self.master.task, talk.into());
        lock(&self.talks).insert(name.to_owned(), talk);
        let (handle, id) = (started.handle.clone(), started.handle.describe().id);
        let over = {
            let mut running = lock(&self.running);
            running.all.insert(name.to_owned(), Some(handle.clone()));
            running.over
        };
        if over {
            handle.end();
        }
        let (desk, name) = (Arc::clone(self), name.to_owned());
        std::thread::spawn(move || {
            started.waiting.wait(&desk.daemon);
            desk.leave_place(&name);
            lock(&desk.daemon.running).remove(&id);
        });
        Ok((to.into(), from.into()))
    }

    /// Notes that a server is being started. Its gate asks for it again when it hears no more of it: what is left of the one
    /// before is ended, and waited for.
    fn take_place(&self, name: &str) -> Result<(), String> {
        let until = Instant::now() + ENDS;
        let mut running = lock(&self.running);
        while let Some(before) = running.all.get(name) {
            let Some(before) = before else {
                return Err("it is being started already".into());
            };
            before.end();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the one that ran before does not end".into());
            }
            let waited = self.ended.wait_timeout(running, left);
            running = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        if running.over {
            return Err("its task has ended".into());
        }
        running.all.insert(name.to_owned(), None);
        Ok(())
    }

    fn leave_place(&self, name: &str) {
        lock(&self.running).all.remove(name);
        self.ended.notify_all();
    }

    fn launch(&self, server: &Server, three: [OwnedFd; 3]) -> Result<task::Started, String> {
        let master = &self.master;
        let grammars = master.context.grammars().map_err(|failure| failure.message)?;
        let settings = master.policy.settings();
        let policy =
            bailiwick_policy::load_server(&master.context.sources, &grammars, server, settings, BTreeMap::new());
        let policy = policy.map_err(|wrong| crate::context::rule_failure(&wrong).message)?;
        let command = match &server.program {
            ServerProgram::Run(words) => {
                if let Some(path) = changeable(&master.policy, &master.context, words) {
                    return Err(format!(
                        "`{path}`, or what lies beside it, may be changed by the agent: deny that under `[files]`, or keep it elsewhere"
                    ));
                }
                // It may not start where the project is.
                let whole = |word: &String| {
                    let place = master.context.root.join(word).ok();
                    let file = place.filter(|place| place.to_path_buf().is_file());
                    file.map_or_else(|| word.clone(), |file| file.as_str().to_owned())
                };
                words.iter().map(whole).collect()
            }
            ServerProgram::Url(url) => {
                let own = task::own_program().ok_or("this program's own file is gone")?;
                vec![own.as_str().into(), RELAY.into(), url.to_string()]
            }
        };
        // Where the project is not the server's to see, it starts in the root folder.
        let look = Request::new(master.task, Verb::Read, Resource::File(master.context.root.clone()));
        let directory = match policy.evaluate(&look).verdict {
            Verdict::Allow => master.context.root.clone(),
            Verdict::Ask | Verdict::Deny => AbsPath::root(),
        };
        let order = RunOrder {
            environment: surroundings(&master.policy, &master.context, &master.order),
            ..order(command, master.level, directory)
        };
        let outer = Outer {
            parent: master.task,
            secret: None,
            variables: self.variables(server)?,
            server: Some(server.name.clone()),
        };
        task::start_outside(&self.daemon, &order, three, &master.context, &Arc::new(policy), outer)
            .map_err(|fault| fault.to_string())
    }

    /// The variables that a server is given by name.
    fn variables(&self, server: &Server) -> Result<Vec<(String, String)>, String> {
        let master = &self.master;
        let value = |variable: &ServerVariable| match variable {
            ServerVariable::Text(text) => Ok(text.clone()),
            ServerVariable::Secret(name) => {
                if master.policy.withholds(name) {
                    return Err(format!("a rule denies `use secret:{name}`"));
                }
                let secret = master.policy.settings().secrets.get(name);
                let secret = secret.ok_or_else(|| format!("there is no secret `{name}`"))?;
                let whom = For {
                    purpose: &format!("secret:{name}"),
                    task: Some(master.task),
                    policy: &master.policy,
                    environment: &master.order.environment,
                };
                let value = self.daemon.value_of(&whom, secret)?;
                String::from_utf8(value.to_vec()).map_err(|_| format!("the secret `{name}` is no text"))
            }
        };
        let all = server.environment.iter();
        all.map(|(name, variable)| Ok((name.clone(), value(variable)?)))
            .collect()
    }

    /// Writes a definition down that a person has accepted: the one in the request that the permit is for.
    fn accept(&self, request: &Request, nonce: &Nonce) -> Result<(), String> {
        let master = &self.master;
        let Resource::Tool(tool) = &request.resource else {
            return Err("it names no tool".into());
        };
        let own = request.task == master.task && request.verb == Verb::Accept;
        let permitted = own && self.daemon.mediator.permitted(request, nonce).is_some();
        if !permitted {
            return Err("there is no open permit for it".into());
        }
        let Some(Argument::Text(text)) = request.arguments.get(argument::NEW) else {
            return Err("it says nothing".into());
        };
        let definition: Definition = serde_json::from_str(text).map_err(|e| format!("it is no definition: {e}"))?;
        if definition.name() != tool.name() {
            return Err("the definition is of another tool".into());
        }
        let server = master
            .policy
            .settings()
            .server(tool.server())
            .ok_or("no rule names it")?;
        let layer = server.origin.layer;
        // The file as it is now: another task may have had something written meanwhile.
        let _one_at_a_time = lock(&self.daemon.pinning);
        let place = master.context.lock_place(layer);
        let now = crate::context::read_text_file(&place, u64::MAX).map_err(|failure| failure.message)?;
        let before = master
            .context
            .with_lock(layer, now.map_or_else(String::new, |file| file.text));
        let mut all = Lock::read(before.lock_text(layer)).map_err(|fault| fault.to_string())?;
        all.accept(tool.server(), definition);
        let after = before.with_lock(layer, all.write());
        let write = || {
            after
                .write_lock(layer, after.lock_text(layer))
                .map_err(|failure| failure.message)
        };
        // What a person said yes to is trusted as they saw it, where it was trusted before.
        let trusted = |context: &Context| {
            let (file, digest) = context.trusted_by()?;
            self.daemon
                .store
                .is_trusted(&file, &digest)
                .ok()
                .filter(|trusted| *trusted)
        };
        let was_trusted = trusted(&before).is_some();
        write()?;
        match after.trusted_by().filter(|_| was_trusted && layer == Layer::Context) {
            Some((file, digest)) => self
                .daemon
                .store
                .trust(&file, &digest, true, self.daemon.clock.now())
                .map_err(|fault| fault.to_string()),
            None => Ok(()),
        }
    }

    fn end(&self, name: &str) {
        let handle = lock(&self.running).all.get(name).cloned().flatten();
        if let Some(handle) = handle {
            handle.end();
        }
    }

    /// What each server said last. Their fences have ended, so they say no more.
    fn last_words(&self) -> LastWords {
        let talks = std::mem::take(&mut *lock(&self.talks));
        let heard = talks.into_iter().map(|(name, talk)| {
            let _ = talk.over.recv_timeout(LISTENS);
            let last = lock(&talk.last).iter().cloned().collect();
            (name, last)
        });
        heard
            .filter(|(_, last): &(String, Vec<String>)| !last.is_empty())
            .collect()
    }

    /// The task has ended: so do its servers.
    fn end_all(&self) {
        let mut running = lock(&self.running);
        running.over = true;
        for handle in running.all.values().flatten() {
            handle.end();
        }
    }
}

/// True for a place that the task's agent may write, or that lies in its project.
fn is_writable(policy: &Policy, root: &AbsPath, path: &AbsPath) -> bool {
    let trees = policy.tree_candidates();
    root.holds(path) || trees.iter().any(|(verb, tree)| *verb != Verb::Read && tree.holds(path))
}

/// The person's environment, with a `PATH` of folders that the agent cannot write: what a program outside begins with.
pub fn surroundings(policy: &Policy, context: &Context, order: &RunOrder) -> Vec<(String, String)> {
    let writable = |folder: &str| {
        let folder = std::path::Path::new(folder);
        let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        [folder.to_path_buf(), whole]
            .into_iter()
            .any(|path| AbsPath::new(path).map_or(true, |path| is_writable(policy, &context.root, &path)))
    };
    let mut all = order.environment.clone();
    for (_, path) in all.iter_mut().filter(|(name, _)| name == "PATH") {
        let kept = path
            .split(':')
            .filter(|folder| folder.starts_with('/') && !writable(folder));
        *path = kept.collect::<Vec<_>>().join(":");
    }
    all
}

/// The words of a server's command that name files which the agent, or what runs for it, could have changed: a program
/// loads what lies beside it, too.
fn changeable(policy: &Policy, context: &Context, words: &[String]) -> Option<AbsPath> {
    let place = |word: &String| match word.starts_with('/') {
        true => AbsPath::new(word).ok(),
        false => context.root.join(word).ok(),
    };
    let places = words.iter().filter_map(place);
    let files = places.filter(|path| path.to_path_buf().is_file());
    let may_change = |path: &AbsPath| {
        let asked = |verb: Verb, path: &AbsPath| {
            let request = Request::new(TaskId([0; 8]), verb, Resource::File(path.clone()));
            policy.evaluate(&request).verdict != Verdict::Deny
        };
        let beside = path.parent().and_then(|folder| folder.join("beside").ok());
        asked(Verb::Write, path) || beside.is_some_and(|beside| asked(Verb::Create, &beside))
    };
    files.into_iter().find(|path| may_change(path))
}

/// The order for a program that is no agent, without surroundings.
pub fn order(command: Vec<String>, level: Level, directory: AbsPath) -> RunOrder {
    RunOrder {
        command,
        level: Some(level),
        directory,
        environment: Vec::new(),
        preset: None,
        terminal: None,
        git: git::settings::GitSettings::default(),
        checkpoint: false,
        publish: Vec::new(),
        devices: Vec::new(),
        tied: true,
        detached: false,
        explain: false,
        ask: false,
        mandate: None,
    }
}

/// What a server says on its standard error goes to the daemon's own log, up to a limit; what is over is read and dropped.
/// The last lines are kept besides.
fn pass_on(name: String, task: TaskId, talk: OwnedFd) -> Talk {
    let last = Arc::<Mutex<VecDeque<String>>>::default();
    let (ended, over) = std::sync::mpsc::channel();
    let kept = Arc::clone(&last);
    std::thread::spawn(move || {
        // Told by being dropped.
        let _ended = ended;
        let mut from = std::io::BufReader::new(std::fs::File::from(talk));
        let (mut left, mut line) = (TALK, Vec::new());
        loop {
            line.clear();
            let mut part = std::io::Read::take(&mut from, 4096);
            match part.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let text = visible(String::from_utf8_lossy(&line).trim_end());
                    if left > 0 {
                        talkln!("bailiwick: server `{name}` of task {task}: {text}");
                    }
                    left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
                    if !text.is_empty() {
                        let mut kept = lock(&kept);
                        kept.push_back(text.chars().take(LAST_CHARACTERS).collect());
                        if kept.len() > LAST_LINES {
                            kept.pop_front();
                        }
                    }
                }
            }
        }
    });
    Talk { last, over }
}
