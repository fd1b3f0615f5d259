//! Ask trees: folders whose files are asked about one by one, served to the fence by a process outside of it.
//!
//! Answers: how is an opening held, at level `namespace`, until a person has said yes? Promises: P1, P4 (a server that
//! has died or hangs means refusal, never a wait without end), P5, P8.
//! Trust: the server reads what the kernel asks on behalf of the agent. It is confined to its trees before its first
//! request: Landlock, a filter without `execve` and `ptrace`, no other descriptors. What a taken-over server could do is
//! what the agent could do with every yes.
//!
//! ```text
//! agent ── open ──► kernel ── /dev/fuse ──► server ── decide ──► mediator ──► a person
//! ```
//!
//! The server is forked before the fence's namespaces are made, so that it is the same user outside of them; the kernel's
//! end is opened within, as it must be, and handed out. When the server ends, the kernel refuses all that waits.
//! Not here: which trees those are (the plan), what may be done (the mediator).
//! See: fuse(4), mount_namespaces(7); `docs/design/ask.md`.

mod absent;
mod line;
mod nodes;
mod serve;
mod wire;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::{FencePlan, LaunchFault};
use bailiwick_model::AbsPath;
use rustix::event::Timespec;
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, set_parent_process_death_signal,
    setrlimit,
};
use rustix::thread::set_no_new_privs;

use crate::channel::Channel;
use crate::fault::{Says, failed};
use crate::filter::Filters;
use crate::floor;
use crate::sys::{self, Fork};
use absent::Absent;
use line::Line;
use serve::Tree;
use wire::{MAX_REQUEST, Owners};

/// Threads that serve one tree.
const WORKERS: usize = 3;
/// How long one request may keep a thread before the server counts as stuck.
const STUCK: Duration = Duration::from_secs(10);
/// Descriptors of a server: each open file is one.
const DESCRIPTORS: u64 = 32_768;

/// A tree that has been found where it lies.
#[derive(Debug)]
pub(crate) struct Aim {
    /// Where it lies, and is seen.
    pub place: AbsPath,
    /// The folder itself, open without rights; as root a mount that hands it over.
    pub root: OwnedFd,
    /// False for a single file.
    pub folder: bool,
    /// True for the home, of which nothing is shown.
    pub absent: bool,
}

/// A tree as the fence mounts it.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Where it is seen.
    pub place: AbsPath,
    /// False for a single file.
    pub folder: bool,
    /// What is mounted there.
    pub mount: OwnedFd,
    /// True for what lies below the scratch home.
    pub absent: bool,
}

/// A server that waits for the kernel's ends of its trees.
pub(crate) struct Server {
    process: Pid,
    places: Vec<(AbsPath, bool, bool)>,
    devices: Channel,
    /// As root: a folder with a device of its own.
    device: Option<OwnedFd>,
}

impl Server {
    /// Forks the server of these trees, as the user that this process is. It is the launcher's child, and ends with it.
    pub(crate) fn begin(
        aims: Vec<Aim>,
        plan: &FencePlan,
        mediator: OwnedFd,
        heart: OwnedFd,
        launcher: Pid,
        device: Option<OwnedFd>,
    ) -> Result<Self, LaunchFault> {
        let say = || "cannot start the server of ask trees".to_owned();
        let places = aims
            .iter()
            .map(|aim| (aim.place.clone(), aim.folder, aim.absent))
            .collect();
        let (mine, theirs) = Channel::pair().or_say(say)?;
        match sys::fork_sibling().or_say(say)? {
            Fork::Parent(process) => Ok(Self {
                process,
                places,
                devices: Channel::over(mine),
                device,
            }),
            Fork::Child => {
                drop(mine);
                // Nothing hears of it: without its server a tree is refused.
                let _ = live(aims, plan, mediator, heart, launcher, theirs, device);
                sys::exit_now(1)
            }
        }
    }

    /// Its process.
    pub(crate) fn process(&self) -> Pid {
        self.process
    }

    /// Makes the mounts, in the namespaces of the fence, and hands the server its ends of them.
    pub(crate) fn mounts(self, plan: &FencePlan) -> Result<Vec<Mount>, LaunchFault> {
        let mut mounts = Vec::new();
        let mut devices = Vec::new();
        let mut came = Vec::new();
        for (place, folder, absent) in self.places {
            let say = || format!("cannot show `{}` inside, to be asked about", place.as_str());
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let device = match &self.device {
                Some(own) => openat(own, c"fuse", flags, Mode::empty()),
                None => openat(CWD, c"/dev/fuse", flags, Mode::empty()),
            };
            let made = device.and_then(|device| mount(&device, plan, folder).map(|mount| (device, mount)));
            let (device, mount) = match made {
                // Without it the home is silent, as it was.
                Err(_) if absent => {
                    came.push(false);
                    continue;
                }
                made => made.or_say(say)?,
            };
            came.push(true);
            devices.push(device);
            mounts.push(Mount {
                place,
                folder,
                mount,
                absent,
            });
        }
        let ends: Vec<_> = devices.iter().map(AsFd::as_fd).collect();
        self.devices
            .send(&came, &ends)
            .or_say(|| "cannot speak to the server of ask trees".into())?;
        Ok(mounts)
    }
}

fn mount(device: &OwnedFd, plan: &FencePlan, folder: bool) -> rustix::io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let made = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let (user, group) = plan.identity.inside;
    for (name, value) in [
        ("source", "bailiwick-ask".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", if folder { "40000" } else { "100000" }.to_owned()),
        ("user_id", user.to_string()),
        ("group_id", group.to_string()),
    ] {
        fsconfig_set_string(made.as_fd(), name, value.as_str())?;
    }
    fsconfig_create(made.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// As root: a folder in memory with a device that the fence's user may open, whatever the machine's own one says.
pub(crate) fn own_device() -> Result<OwnedFd, LaunchFault> {
    let say = || "cannot make a device for ask trees".to_owned();
    let made = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).or_say(say)?;
    fsconfig_create(made.as_fd()).or_say(say)?;
    let folder = fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID).or_say(say)?;
    let mask = rustix::process::umask(Mode::empty());
    // The number of the device is the same on every machine (`Documentation/admin-guide/devices.txt`).
    let device = mknodat(
        &folder,
        c"fuse",
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(10, 229),
    );
    rustix::process::umask(mask);
    device.or_say(say)?;
    Ok(folder)
}

/// When a thread took up what it does, in milliseconds since the server began, and 1; 0 where it does nothing.
type Busy = Arc<AtomicU64>;

/// The life of the server.
fn live(
    aims: Vec<Aim>,
    plan: &FencePlan,
    mediator: OwnedFd,
    heart: OwnedFd,
    launcher: Pid,
    devices: OwnedFd,
    // Held to the end: a mount that nobody holds any more makes the kernel wait, and here nobody waits with it.
    device: Option<OwnedFd>,
) -> Result<(), LaunchFault> {
    let say = || "cannot serve ask trees".to_owned();
    set_parent_process_death_signal(Some(Signal::KILL)).or_say(say)?;
    if rustix::process::getppid() != Some(launcher) {
        return Err(failed(say(), "the launcher has ended"));
    }
    let mut kept: Vec<_> = aims.iter().map(|aim| aim.root.as_fd()).collect();
    kept.extend([mediator.as_fd(), heart.as_fd(), devices.as_fd()]);
    kept.extend(device.as_ref().map(AsFd::as_fd));
    sys::keep_only(&kept).or_say(say)?;
    drop(kept);
    rustix::process::umask(Mode::empty());
    raise_limit();
    // For whoever looks at the list of processes.
    let _ = rustix::thread::set_name(c"bailiwick-ask");
    let mut devices = Channel::over(devices);
    let came = devices.receive::<Vec<bool>>().or_say(say)?.unwrap_or_default();
    let ends: Vec<Option<OwnedFd>> = came
        .into_iter()
        .map(|came| came.then(|| devices.take()).transpose())
        .collect::<Result<_, _>>()
        .or_say(say)?;
    drop(devices);
    confine(&aims)?;
    let line = Arc::new(Line::open(UnixStream::from(mediator), plan.task).or_say(say)?);
    let owners = Owners {
        inside: plan.identity.inside,
        outside: plan.identity.outside,
    };
    let begun = Instant::now();
    let mut busy: Vec<Busy> = Vec::new();
    for (number, (aim, device)) in aims.into_iter().zip(ends).enumerate() {
        let Some(device) = device else { continue };
        if aim.absent {
            let silent: HashSet<OsString> = plan
                .sought
                .iter()
                .flat_map(|sought| &sought.silent)
                .map(Into::into)
                .collect();
            let absent = Absent {
                place: aim.place,
                home: aim.root,
                device,
                owner: owners.inside,
                line: Arc::clone(&line),
                told: Mutex::new((silent, 0)),
            };
            let since = Busy::default();
            busy.push(Arc::clone(&since));
            spawn(move || work(&absent.device, begun, &since, |bytes| absent.serve(bytes))).or_say(say)?;
            continue;
        }
        let place = (aim.place, aim.root);
        let task = plan.task;
        let tree = Tree::new(
            number,
            place,
            (task, owners),
            plan.protected.clone(),
            device,
            Arc::clone(&line),
        );
        let tree = Arc::new(tree);
        for _ in 0..WORKERS {
            let (tree, since) = (Arc::clone(&tree), Busy::default());
            busy.push(Arc::clone(&since));
            spawn(move || {
                work(&tree.device, begun, &since, |bytes| tree.serve(bytes));
                // The mount is gone, and with it the fence.
                sys::exit_now(0)
            })
            .or_say(say)?;
        }
    }
    let heard = Arc::clone(&line);
    spawn(move || {
        let _ = heard.hear();
        // Without the mediator nothing can be allowed any more.
        sys::exit_now(0);
    })
    .or_say(say)?;
    beat(UnixStream::from(heart), &line, begun, &busy);
    Ok(())
}

fn spawn(run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().stack_size(256 * 1024).spawn(run).map(drop)
}

/// Each open file takes a descriptor.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    let raised = Rlimit {
        current: Some(most),
        ..limit
    };
    // With fewer, opening fails sooner, with the error that says so.
    let _ = setrlimit(Resource::Nofile, raised);
}

fn confine(aims: &[Aim]) -> Result<(), LaunchFault> {
    let say = || "cannot confine the server of ask trees".to_owned();
    let filters = Filters::supervisor()?;
    set_no_new_privs(true).or_say(say)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).or_say(say)?;
    // To look whether a name of the home is there takes no right.
    let asked = aims.iter().filter(|aim| !aim.absent);
    floor::lay_under_files(asked.map(|aim| (&aim.root, aim.folder)))?;
    filters.lay()
}

fn since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// Serves what the kernel asks of one tree until it is gone.
fn work(device: &OwnedFd, begun: Instant, busy: &Busy, serve: impl Fn(&[u8])) {
    let mut buffer = vec![0u8; MAX_REQUEST];
    loop {
        match rustix::io::read(device, &mut buffer) {
            Ok(count) => {
                busy.store(since(begun), Ordering::Relaxed);
                serve(buffer.get(..count).unwrap_or_default());
                busy.store(0, Ordering::Relaxed);
            }
            // The caller gave up before its request was read; a signal came.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Answers the launcher's question whether the server is well, until the launcher goes.
fn beat(mut heart: UnixStream, line: &Line, begun: Instant, busy: &[Busy]) {
    let stuck = u64::try_from(STUCK.as_millis()).unwrap_or(u64::MAX);
    let mut byte = [0u8; 1];
    while let Ok(1) = heart.read(&mut byte) {
        line.refuse_late();
        let now = since(begun);
        let is_stuck = |busy: &Busy| {
            let taken_up = busy.load(Ordering::Relaxed);
            taken_up != 0 && now.saturating_sub(taken_up) > stuck
        };
        if busy.iter().any(is_stuck) || std::io::Write::write_all(&mut heart, &byte).is_err() {
            return;
        }
    }
}

/// The launcher's watch over a server.
#[derive(Debug)]
pub(crate) struct Watch {
    process: Pid,
    heart: UnixStream,
    asked: Option<Instant>,
}

/// How often a server is asked whether it is well.
pub(crate) const PULSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long it may take to say so.
const PATIENCE: Duration = Duration::from_secs(5);

impl Watch {
    /// Watches a server by its heart's other end.
    pub(crate) fn over(process: Pid, heart: OwnedFd) -> std::io::Result<Self> {
        let heart = UnixStream::from(heart);
        heart.set_nonblocking(true)?;
        Ok(Self {
            process,
            heart,
            asked: None,
        })
    }

    /// Asks how the server is, and ends it when it has not said so for too long: the kernel then refuses all that waits
    /// for it. False when it is no more.
    pub(crate) fn look(&mut self) -> bool {
        let mut bytes = [0u8; 16];
        match self.heart.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => self.asked = None,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        if self.asked.is_none() {
            if std::io::Write::write_all(&mut self.heart, &[1]).is_err() {
                return false;
            }
            self.asked = Some(Instant::now());
        }
        if self.asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
            self.end();
            return false;
        }
        true
    }

    /// Ends the server, without waiting for its end.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::kill_process(self.process, Signal::KILL);
    }

    /// Ends the server.
    pub(crate) fn end(&self) {
        self.kill();
        let _ = rustix::process::waitpid(Some(self.process), rustix::process::WaitOptions::empty());
    }
}
