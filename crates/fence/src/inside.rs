//! The first process of a fence: it builds the inside, starts the program, collects what has ended, and with its own
//! end ends all.
//!
//! Promises: P1, P2, P9 (no descriptor, environment or memory of the launcher's reaches the program), P13.
//! Trust: once the program runs, this process speaks to the launcher only. It has no capabilities left, cannot be
//! traced or signalled from inside, and reads nothing that the program writes.
//! See: pid_namespaces(7), capabilities(7), pty(7), prctl(2).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use bailiwick_gate::{BindMode, FencePlan, FenceReport, LaunchFault, SECRET, Stdio, decode, encode};
use bailiwick_model::{AbsPath, Level};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitStatus, getrlimit, ioctl_tiocsctty, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use rustix::thread::CapabilitySet;

use crate::ask::Mount;
use crate::channel::Channel;
use crate::children::Children;
use crate::fault::{Says, failed};
use crate::filter::Filters;
use crate::floor::Floor;
use crate::lookout::Watch;
use crate::order::{Hear, Say};
use crate::root::Root;
use crate::serve::Readings;
use crate::supervise::scope::{Scope, Seen};
use crate::supervise::{Charge, Supervisor};
use crate::sys::{self, Fork};
use crate::trees::Trees;
use crate::{capabilities, errand, limits, lookout, masks, network, program, search};

/// Where shared memory with a name lies.
const MEMORY: &str = "/dev/shm";

/// What the inside is built from.
pub(crate) struct Orders<'a> {
    /// The fence.
    pub plan: &'a FencePlan,
    /// The trees, where they had to be opened with more rights than are left.
    pub trees: Option<Trees>,
    /// What came along with the order.
    pub along: Option<Along>,
    /// What reads the starts of programs.
    pub readings: Readings,
    /// The mounts of the trees that are asked about.
    pub asked: Vec<Mount>,
    /// What files are to hold, by number, at level `namespace`.
    pub contents: Vec<OwnedFd>,
    /// The pipes, where there is no terminal.
    pub pipes: Vec<OwnedFd>,
    /// The filters for the program.
    pub filters: &'a Filters,
    /// The filters for the supervisor, made ahead.
    pub own_filters: &'a Filters,
    /// The kernel's version of Landlock.
    pub landlock: i32,
    /// True when a control group limits the fence.
    pub grouped: bool,
    /// True where somebody looks out for protected names that come later.
    pub looked_out: bool,
    /// The process that the fence ends with.
    pub launcher: Pid,
}

/// Descriptors that come along with every order.
#[derive(Debug)]
pub(crate) struct Along {
    /// Where the mediator is asked.
    pub mediator: OwnedFd,
    /// Where commands are handed to that run outside.
    pub brokers: OwnedFd,
    /// What the program is handed.
    pub secret: Option<OwnedFd>,
}

/// The life of the first process.
pub(crate) fn live(orders: Orders<'_>, mut launcher: Channel) -> ! {
    let program = match build(orders, &launcher) {
        Ok(program) => program,
        Err(fault) => {
            let _ = launcher.send(&Hear::Fault { fault }, &[]);
            sys::exit_now(1);
        }
    };
    // With this process all others end; without a launcher nobody is told.
    if let Some(status) = serve(&program, &mut launcher).unwrap_or(Some(137)) {
        let _ = launcher.send(&Hear::Exited { status }, &[]);
    }
    sys::exit_now(0);
}

/// A program that runs.
pub(crate) struct Program {
    /// The program.
    pub pid: Pid,
    /// Tells when a child has ended.
    pub ended: OwnedFd,
    /// It and all that it started.
    pub children: Arc<Children>,
    /// Where what is handed in is put. Held from before the program began, so that no name leads elsewhere.
    pub handover: Option<OwnedFd>,
}

fn build(mut orders: Orders<'_>, launcher: &Channel) -> Result<Program, LaunchFault> {
    let plan = orders.plan;
    set_parent_process_death_signal(Some(Signal::KILL)).or_say(|| "cannot tie the fence to its launcher".into())?;
    rustix::system::sethostname(plan.hostname.as_bytes()).or_say(|| "cannot set the host name inside".into())?;
    let served = network::sockets(&plan.listen)?;
    let mut trees = match orders.trees {
        Some(trees) => trees,
        None => Trees::open(plan, None)?,
    };
    let asked = orders.asked.iter().filter(|mount| !mount.absent);
    trees.asked = asked.map(|mount| mount.place.clone()).collect();
    let mut root = Root::lay(&plan.limits)?;
    root.furnish(plan, &trees, &orders.asked, &orders.contents)?;
    orders.contents.clear();
    let mut found = search::search(root.top(), &trees, &plan.protected)?;
    let protected = masks::lay(&root, &trees, &mut found)?;
    // A strict fence looks at each name when it is opened.
    let later = !plan.strict && !plan.protected.is_empty();
    let open = later
        .then(|| not_looked_out(orders.looked_out, found.folders))
        .flatten();
    root.enter()?;
    let handover = plan.handover.as_ref().map(errand::folder).transpose()?;
    let floor = Floor::of(plan, &trees, orders.landlock)?;
    let stdio = Ends::of(plan.stdio, "/dev/pts/ptmx", orders.pipes)?;
    drop_privileges()?;
    let ended = sys::child_signals().or_say(|| "cannot watch the program".into())?;
    let mut parts = vec![
        "namespaces".to_owned(),
        format!("landlock-{}", orders.landlock),
        "seccomp".into(),
    ];
    if plan.limits.memory.is_some() || plan.limits.processes.is_some() {
        parts.push(if orders.grouped { "cgroup" } else { "rlimits" }.into());
    }
    if Trees::hands_over(plan) {
        parts.push("idmap".into());
    }
    let report = FenceReport {
        parts,
        protected,
        missing: trees.missing.clone(),
        warnings: trees
            .warnings
            .iter()
            .cloned()
            .chain(found.sockets_covered())
            .chain(open)
            .chain(found.warnings)
            .chain(served.warnings)
            .collect(),
    };
    // What the supervisor makes has the caller's.
    rustix::process::umask(Mode::empty());
    let along = orders.along.take();
    let (lines, secret) = Along::apart(along);
    // Below the agent's own: what the supervisor does for it stays on the same trees.
    let above = floor.above()?;
    floor.lay()?;
    let (mine, theirs) = Channel::pair().or_say(|| "cannot make a channel".into())?;
    let beginning = Beginning {
        plan,
        filters: orders.filters,
        stdio: &stdio,
        grouped: orders.grouped,
        watched: &theirs,
        secret: secret.as_ref(),
    };
    let starting = start(&beginning, above)?;
    drop((theirs, secret));
    let children = Arc::new(Children::of(starting.pid));
    let (mediator, brokers) = lines.unzip();
    let charge = Charge {
        doors: served.doors,
        diagnosis: served.diagnosis.map(Mutex::new),
        mediator,
        brokers,
        ..charge(plan, &trees, orders.readings, &children)
    };
    let pid = starting.supervised(mine, charge, orders.own_filters)?;
    let mut along: Vec<_> = served.sockets.iter().map(AsFd::as_fd).collect();
    along.extend(stdio.master.as_ref().map(AsFd::as_fd));
    let started = Hear::Started {
        report,
        listeners: served.sockets.len(),
        terminal: stdio.master.is_some(),
    };
    let say = || "cannot tell the launcher".to_owned();
    launcher.send(&started, &along).or_say(say)?;
    let watch = later.then(|| Watch::over(&trees, &plan.protected)).flatten();
    let watch = watch.map(Box::new);
    launcher.send(&Hear::Shown { watch }, &[]).or_say(say)?;
    Ok(Program {
        pid,
        ended,
        children,
        handover,
    })
}

/// What of the protected names that come later stays open for longer, where something does.
fn not_looked_out(looked_out: bool, folders: usize) -> Option<String> {
    let limit = lookout::limit();
    let what = "a hidden file that is made or replaced from outside while the task runs can be read";
    let instead = "`strict = true` under [fence] hides it at once";
    match looked_out {
        true if folders <= limit => None,
        true => Some(format!(
            "{what} for up to a minute: {folders} folders lie there, and {limit} can be watched (fs.inotify.max_user_watches); {instead}"
        )),
        false => Some(format!("{what}: nobody can look out for it here; {instead}")),
    }
}

/// What the supervisor of a fence with mounts goes by: they hold what is there, it what comes to be.
fn charge(plan: &FencePlan, trees: &Trees, readings: Readings, children: &Arc<Children>) -> Charge {
    let seen = trees.trees.iter().map(|tree| Seen {
        source: tree.target.clone(),
        target: tree.target.clone(),
        mode: tree.mode,
        own: tree.source != tree.target,
    });
    let asked = trees.asked.iter().map(|place| Seen {
        source: place.clone(),
        target: place.clone(),
        mode: BindMode::Write,
        own: false,
    });
    // What is made for the fence is there to be read, whatever rules say of such names elsewhere.
    let made = plan.files.iter().map(|(path, _)| Seen {
        source: path.clone(),
        target: path.clone(),
        mode: BindMode::Read,
        own: true,
    });
    let seen = seen.chain(asked).chain(made);
    let scratch = plan.scratch.iter().cloned().chain(AbsPath::new(MEMORY).ok());
    Charge {
        scope: Scope::of(
            seen.collect(),
            scratch.collect(),
            &plan.protected,
            HashMap::new(),
            HashMap::new(),
        )
        .asking(trees.asked.clone()),
        files: BTreeMap::new(),
        memory: MEMORY.into(),
        mounted: true,
        doors: Vec::new(),
        ports: ports(plan),
        diagnosis: None,
        terminal: None,
        signals_stay: true,
        task: plan.task,
        mediator: None,
        brokers: None,
        brokered: plan.brokered.clone(),
        judged: plan.judged.clone(),
        reading: readings(plan),
        known: program::known(plan),
        children: Arc::clone(children),
    }
}

/// The ports on which a host outside may be named at all.
pub(crate) fn ports(plan: &FencePlan) -> Option<BTreeSet<u16>> {
    plan.ports.as_ref().map(|ports| ports.iter().copied().collect())
}

impl Along {
    /// The two lines, and what the program is handed.
    pub(crate) fn apart(along: Option<Self>) -> (Option<(OwnedFd, OwnedFd)>, Option<OwnedFd>) {
        along
            .map(|along| ((along.mediator, along.brokers), along.secret))
            .map_or((None, None), |(lines, secret)| (Some(lines), secret))
    }
}

/// What becomes the program's input and output.
pub(crate) struct Ends {
    /// Input, output, errors: one terminal, or three pipes.
    three: Vec<OwnedFd>,
    /// The other end of the terminal.
    pub master: Option<OwnedFd>,
}

impl Ends {
    /// The three pipes, or a new terminal from the device that makes them.
    pub(crate) fn of(kind: Stdio, maker: &str, pipes: Vec<OwnedFd>) -> Result<Self, LaunchFault> {
        let Stdio::Terminal { rows, columns } = kind else {
            return Ok(Self {
                three: pipes,
                master: None,
            });
        };
        let say = || "cannot make a terminal of its own".to_owned();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = open(maker, flags, Mode::empty()).or_say(say)?;
        grantpt(&master).or_say(say)?;
        unlockpt(&master).or_say(say)?;
        let how = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = ioctl_tiocgptpeer(&master, how).or_say(say)?;
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).or_say(say)?;
        Ok(Self {
            three: vec![terminal],
            master: Some(master),
        })
    }

    /// Takes the three places, and the terminal as the session's own.
    fn take(&self) -> rustix::io::Result<()> {
        setsid()?;
        let of = |place: usize| {
            self.three
                .get(place)
                .or(self.three.first())
                .ok_or(rustix::io::Errno::BADF)
        };
        rustix::stdio::dup2_stdin(of(0)?)?;
        rustix::stdio::dup2_stdout(of(1)?)?;
        rustix::stdio::dup2_stderr(of(2)?)?;
        if self.master.is_some() {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    }
}

/// Gives up every capability, for good, for this process and all that it starts.
fn drop_privileges() -> Result<(), LaunchFault> {
    capabilities::keep(CapabilitySet::empty()).or_say(|| "cannot give up privileges".into())
}

/// How the program begins, besides its floor.
pub(crate) struct Beginning<'a> {
    /// The fence.
    pub plan: &'a FencePlan,
    /// Its filters.
    pub filters: &'a Filters,
    /// Its input and output.
    pub stdio: &'a Ends,
    /// True when a control group limits it.
    pub grouped: bool,
    /// Who is told the descriptor of held calls.
    pub watched: &'a OwnedFd,
    /// What it is handed.
    pub secret: Option<&'a OwnedFd>,
}

/// A program that is about to start.
pub(crate) struct Starting {
    /// Its process.
    pub pid: Pid,
    told: OwnedFd,
}

/// Begins to start the program: its first held call is its start.
pub(crate) fn start(beginning: &Beginning<'_>, floor: Floor) -> Result<Starting, LaunchFault> {
    let say = || "cannot start a process".to_owned();
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_say(say)?;
    // Out of the way of what the program is handed by number.
    let tell = rustix::io::fcntl_dupfd_cloexec(tell, SECRET.saturating_add(1)).or_say(say)?;
    let pid = match sys::fork().or_say(say)? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let fault = become_agent(beginning, floor);
            if let Ok(frame) = encode(&fault) {
                let _ = rustix::io::write(&tell, &frame);
            }
            sys::exit_now(127);
        }
    };
    drop(tell);
    Ok(Starting { pid, told })
}

impl Starting {
    /// Confines this process, puts it in charge of the program's held calls, and waits until the program runs, or for the
    /// reason why it does not. This process starts no other afterwards.
    pub(crate) fn supervised(self, listener: OwnedFd, charge: Charge, filters: &Filters) -> Result<Pid, LaunchFault> {
        // Each connection that is being made takes a few descriptors. The program has its own limit.
        let files = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: files.maximum,
            maximum: files.maximum,
        };
        let _ = setrlimit(Resource::Nofile, raised);
        // While the program's process gets ready.
        filters.lay()?;
        let Some(listener) = handed(listener)? else {
            return self.runs();
        };
        Supervisor::begin(listener, charge).or_say(|| "cannot start the supervisor".into())?;
        self.runs()
    }

    fn runs(self) -> Result<Pid, LaunchFault> {
        let mut heard = Vec::new();
        let mut bytes = [0u8; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.told, &mut bytes) {
            heard.extend_from_slice(bytes.get(..count).unwrap_or_default());
        }
        match heard.split_first_chunk::<4>() {
            None => Ok(self.pid),
            Some((_, body)) => {
                Err(decode(body).unwrap_or_else(|_| failed("cannot start the program", "it died at once")))
            }
        }
    }
}

/// The descriptor of held calls, from the program's process; none where that has something else to say.
fn handed(from: OwnedFd) -> Result<Option<OwnedFd>, LaunchFault> {
    let mut from = Channel::over(from);
    let say = || "cannot hold the program's system calls".to_owned();
    let told: Option<()> = from.receive().or_say(say)?;
    told.map(|()| from.take().or_say(say)).transpose()
}

/// Takes the last steps on the way to the program. Comes back only with a fault.
fn become_agent(beginning: &Beginning<'_>, floor: Floor) -> LaunchFault {
    let Beginning { plan, filters, .. } = beginning;
    let prepare = || -> Result<(program::Image, Vec<CString>), LaunchFault> {
        let image = program::Image::of(plan)?;
        let environment = program::environment(plan)?;
        beginning.stdio.take().or_say(|| "cannot take the terminal".into())?;
        sys::close_at_exec_from(3).or_say(|| "cannot close descriptors".into())?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let folder = plan.directory.to_path_buf();
        rustix::process::chdir(&folder).or_say(|| format!("cannot start in `{}`", plan.directory.as_str()))?;
        limits::set(&plan.limits, beginning.grouped, plan.level == Level::Namespace)?;
        sys::default_signals();
        // Where no process table of its own ends with the first process, the program at least does.
        set_parent_process_death_signal(Some(Signal::KILL)).or_say(|| "cannot tie the program to its fence".into())?;
        // The supervisor looks at this start as at all others.
        set_dumpable_behavior(DumpableBehavior::Dumpable).or_say(|| "cannot be looked at".into())?;
        Ok((image, environment))
    };
    match prepare() {
        Ok((image, environment)) => {
            let tell = |listener: OwnedFd| tell_listener(beginning.watched, &listener);
            let laid = floor.lay().and_then(|()| filters.lay_watched(tell));
            // Nothing else is needed any more that could lie at this number.
            let handed = || match beginning.secret {
                Some(secret) => sys::hand(secret, SECRET).or_say(|| "cannot hand over a secret".into()),
                None => Ok(()),
            };
            let handed = laid.and_then(|()| handed());
            handed.err().unwrap_or_else(|| image.run(&environment))
        }
        Err(fault) => fault,
    }
}

fn tell_listener(supervisor: &OwnedFd, listener: &OwnedFd) -> Result<(), LaunchFault> {
    let say = || "cannot hold the program's system calls".to_owned();
    let channel = Channel::over(supervisor.try_clone().or_say(say)?);
    channel.send(&(), &[listener.as_fd()]).or_say(say)
}

/// Collects what has ended and passes signals on, until the program has ended: its status; or the launcher has gone:
/// none.
pub(crate) fn serve(program: &Program, launcher: &mut Channel) -> io::Result<Option<i32>> {
    loop {
        let mut ready = [
            PollFd::new(&*launcher, PollFlags::IN),
            PollFd::new(&program.ended, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let spoken = ready.first().is_some_and(|one| !one.revents().is_empty());
        let dead = ready.get(1).is_some_and(|one| !one.revents().is_empty());
        if dead {
            let _ = rustix::io::read(&program.ended, &mut [0u8; 1024]);
            if let Some(status) = program.children.collect() {
                return Ok(Some(status));
            }
        }
        if spoken {
            if !launcher.read()? {
                return Ok(None);
            }
            while let Some(say) = launcher.next::<Say>()? {
                match say {
                    Say::Signal { number } => {
                        let group = program.pid.as_raw_nonzero().get().saturating_neg();
                        let _ = sys::send_signal(group, number);
                    }
                    Say::Errand { call, errand } => {
                        let done = errand::run(errand, launcher, program.handover.as_ref());
                        answer(launcher, call, done)?;
                    }
                    Say::Order { .. } => {}
                }
            }
        }
    }
}

/// Says what became of an errand.
fn answer(launcher: &Channel, call: u64, done: Result<Option<OwnedFd>, String>) -> io::Result<()> {
    let (descriptor, failed) = match done {
        Ok(descriptor) => (descriptor, None),
        Err(cause) => (None, Some(cause)),
    };
    let along: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    let done = Hear::Done {
        call,
        descriptor: !along.is_empty(),
        failed,
    };
    launcher.send(&done, &along)
}

/// The exit code, or 128 and the number of the signal.
pub(crate) fn status_of(status: WaitStatus) -> Option<i32> {
    let ended = |signal: i32| signal.saturating_add(128);
    status.exit_status().or_else(|| status.terminating_signal().map(ended))
}
