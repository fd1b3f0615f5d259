//! Processes started ahead of time: a launcher and a network gate that wait for their task.
//!
//! Starting a program costs a millisecond or two; a spare that waits costs none when a task begins. A spare is used
//! for one task only, and is bound to it by the descriptors it is handed: it never learns of another.

use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use bailiwick_commands::Grammars;
use bailiwick_fence::{Channel, Launcher};
use bailiwick_gate::{AsWritten, FencePlan, Judged, Reading};
use bailiwick_proxy::{Config, Pair, PairSender};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The word that makes this program a launcher.
pub const LAUNCHER: &str = "__launcher";
/// The word that makes this program a network gate.
pub const NETWORK_GATE: &str = "__network-gate";

/// A network gate that waits for its task.
#[derive(Debug)]
pub struct NetworkGate {
    process: Child,
    /// The task-bound channel: the mediator's end.
    pub channel: UnixStream,
    control: Arc<Mutex<Channel>>,
}

impl NetworkGate {
    fn spawn(program: &PathBuf) -> std::io::Result<Self> {
        let (channel, gate_channel) = UnixStream::pair()?;
        let (control, gate_control) = Channel::pair()?;
        let control = Arc::new(Mutex::new(Channel::over(control)));
        let process = Command::new(program)
            .arg(NETWORK_GATE)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(gate_channel)))
            .stdout(Stdio::from(gate_control))
            .spawn()?;
        Ok(Self {
            process,
            channel,
            control,
        })
    }

    /// Gives the gate its task: what it serves, and the sockets.
    pub fn assign(&self, config: &Config, sockets: &[OwnedFd]) -> std::io::Result<()> {
        // Rules can be many, and roots long: more than fits into a frame.
        let text = Zeroizing::new(serde_json::to_string(config)?);
        let config = held(&text)?;
        let along: Vec<_> = std::iter::once(&config).chain(sockets).map(AsFd::as_fd).collect();
        lock(&self.control).send(&Assigned {}, &along)
    }

    /// A way to hand connections over that are to be joined.
    pub fn joiner(&self) -> Joiner {
        Joiner(Arc::clone(&self.control))
    }

    /// Ends the gate: closes its channel, and does not leave it behind.
    pub fn end(mut self) {
        let _ = self.channel.shutdown(std::net::Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What is said with a gate's configuration, which comes along as a descriptor, and with its sockets.
#[derive(Debug, Serialize, Deserialize)]
struct Assigned {}

/// What is said with a pair of connections, from outside and inside, that the gate is to join.
#[derive(Debug, Serialize, Deserialize)]
struct Join {}

/// Hands a gate connections that it is to join.
#[derive(Debug, Clone)]
pub struct Joiner(Arc<Mutex<Channel>>);

impl Joiner {
    /// Hands over one connection from outside and one to the inside.
    pub fn join(&self, outer: &OwnedFd, inner: &OwnedFd) -> std::io::Result<()> {
        lock(&self.0).send(&Join {}, &[outer.as_fd(), inner.as_fd()])
    }
}

/// The spares.
#[derive(Debug)]
pub struct Spares {
    program: PathBuf,
    launcher: Mutex<Option<Launcher>>,
    gate: Mutex<Option<NetworkGate>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Spares {
    /// No spares yet; `program` is this program.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            launcher: Mutex::new(None),
            gate: Mutex::new(None),
        }
    }

    /// This program as it runs: where it lies, or the kernel's own handle on it when another has taken its place since. A
    /// newer launcher would not understand an older daemon.
    pub fn own_program(&self) -> PathBuf {
        use std::os::unix::fs::MetadataExt;
        let own = Path::new("/proc/self/exe");
        let same = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        if same(&self.program) == same(own) {
            self.program.clone()
        } else {
            own.to_owned()
        }
    }

    /// Starts what is missing.
    pub fn fill(&self) -> std::io::Result<()> {
        let mut launcher = lock(&self.launcher);
        if launcher.is_none() {
            *launcher = Some(Launcher::spawn(&self.own_program(), &[LAUNCHER])?);
        }
        drop(launcher);
        let mut gate = lock(&self.gate);
        if gate.is_none() {
            *gate = Some(NetworkGate::spawn(&self.own_program())?);
        }
        Ok(())
    }

    /// Takes a launcher, starting one if none waits.
    pub fn launcher(&self) -> std::io::Result<Launcher> {
        match lock(&self.launcher).take() {
            Some(spare) => Ok(spare),
            None => Launcher::spawn(&self.own_program(), &[LAUNCHER]),
        }
    }

    /// Takes a network gate, starting one if none waits or the one that waited has died.
    pub fn network_gate(&self) -> std::io::Result<NetworkGate> {
        if let Some(mut spare) = lock(&self.gate).take()
            && matches!(spare.process.try_wait(), Ok(None))
        {
            return Ok(spare);
        }
        NetworkGate::spawn(&self.own_program())
    }
}

/// The body of the network gate's process: confines itself, waits for its task, serves until the channel closes.
pub fn run_network_gate() -> std::process::ExitCode {
    let fail = |what: &str, cause: &dyn std::fmt::Display| {
        talkln!("bailiwick: the network gate cannot go on: {what}: {cause}");
        std::process::ExitCode::FAILURE
    };
    let (channel, mut control) = match lines_of_gate() {
        Ok(lines) => lines,
        Err(e) => return fail("its channel", &e),
    };
    raise_descriptor_limit();
    let readable = READABLE.iter().chain(&bailiwick_proxy::ROOTS);
    let readable: Vec<PathBuf> = readable.map(PathBuf::from).collect();
    if let Err(fault) = bailiwick_fence::confine_gate(&readable) {
        return fail("its own confinement", &fault);
    }
    match control.receive::<Assigned>() {
        Ok(Some(Assigned {})) => {}
        // The daemon ended before there was a task.
        Ok(None) => return std::process::ExitCode::SUCCESS,
        Err(e) => return fail("its order", &e),
    }
    let config = match configured::<Config>(&mut control) {
        Ok(config) => config,
        Err(e) => return fail("its order", &e),
    };
    let sockets = (0..config.sockets.len()).map_while(|_| control.take().ok()).collect();
    let (joining, pairs) = bailiwick_proxy::pairs();
    std::thread::spawn(move || hear_pairs(control, &joining));
    match bailiwick_proxy::run(config, sockets, pairs, channel, bailiwick_proxy::SystemResolver) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(fault) => fail("its service", &fault),
    }
}

/// The lines that a gate's process is started with: to the mediator, and to the daemon.
pub fn lines_of_gate() -> std::io::Result<(UnixStream, Channel)> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let control = std::io::stdout().as_fd().try_clone_to_owned()?;
    // These copies are the only ones that are used: the standard descriptors must not keep the channel open.
    silence_standard_descriptors()?;
    Ok((channel.into(), Channel::over(control)))
}

/// The configuration that comes along with a gate's order.
pub fn configured<T: DeserializeOwned>(control: &mut Channel) -> std::io::Result<T> {
    let mut text = Zeroizing::new(String::new());
    std::fs::File::from(control.take()?).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// A text in a descriptor, to be read from its beginning: more than fits into a frame.
pub fn held(text: &str) -> std::io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Hears of connections to be joined, until the daemon's end closes.
fn hear_pairs(mut control: Channel, joining: &PairSender) {
    while let Ok(Some(Join {})) = control.receive::<Join>() {
        let (Ok(outer), Ok(inner)) = (control.take(), control.take()) else {
            return;
        };
        joining.send(Pair { outer, inner });
    }
}

/// Most descriptors that a gate may hold.
const DESCRIPTORS: u64 = 65_536;

/// What looking up names needs to read (resolver(5), nsswitch.conf(5)).
pub const READABLE: [&str; 10] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/run/systemd/resolve",
    "/etc/ld.so.cache",
    "/lib",
    "/usr/lib",
];

/// A gate holds two descriptors for each connection; the usual limit of 1024 would be reached first.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    let raised = setrlimit(
        Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(wanted),
            ..limit
        },
    );
    if let Err(e) = raised {
        talkln!("bailiwick: the network gate keeps its usual number of descriptors: {e}");
    }
}

fn silence_standard_descriptors() -> std::io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// What reads the starts of a plan's programs: the same grammars as `can` reads with, from the variables that the task
/// begins with.
fn reading(plan: &FencePlan) -> Arc<dyn Reading> {
    if plan.judged == Judged::Nothing {
        return Arc::new(AsWritten);
    }
    let mut grammars = Grammars::shipped(plan.environment.clone());
    for (name, text) in &plan.tables {
        match grammars.clone().with(name, text) {
            Ok(more) => grammars = more,
            // The rules were loaded with the same tables: it cannot be. Without it what it speaks of is unknown.
            Err(e) => talkln!("bailiwick: {e}"),
        }
    }
    Arc::new(grammars)
}

/// The body of the launcher's process: its channel is its input, put there by [`Launcher::spawn`].
pub fn run_launcher() -> std::process::ExitCode {
    match bailiwick_fence::inherited_channel() {
        Ok(channel) => bailiwick_fence::run_launcher(channel, reading),
        Err(e) => {
            talkln!("bailiwick: the launcher has no channel: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
