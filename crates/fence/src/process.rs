//! A fence of level `process`: no namespace, nothing mounted. Its first process is the parent of all in it, keeps the
//! supervisor, and ends them all.
//!
//! Answers: how is an agent held where the machine refuses namespaces? Promises: P1, P2, P11 (what is left when the
//! program has ended, or the launcher has gone, is ended one by one), P13.
//! Trust: as in `inside`; besides, the supervisor's threads live here, which handle what the agent asks for.
//! The first process must be an ancestor of whoever waits in a held call: Yama lets ancestors look at memory. It adopts
//! orphans, so that it stays one.
//! Not here: what a held call may do (`supervise`).
//! See: landlock(7), seccomp_unotify(2), PR_SET_CHILD_SUBREAPER(2const).

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::{FencePlan, FenceReport, LaunchFault};
use bailiwick_model::AbsPath;
use rustix::fs::{AtFlags, CWD, statat};
use rustix::process::{Pid, Signal, WaitOptions, getegid, geteuid, kill_process, wait};

use crate::channel::Channel;
use crate::children::Children;
use crate::errand;
use crate::fault::{Says, failed, hint};
use crate::floor::Floor;
use crate::inside::{self, Along, Beginning, Ends, Orders, Program};
use crate::network;
use crate::order::Hear;
use crate::program;
use crate::search::{self, Found};
use crate::supervise::caller::descendants;
use crate::supervise::scope::{Scope, Seen};
use crate::supervise::{Charge, Door};
use crate::sys::{self, notify};
use crate::top::Top;
use crate::trees::Trees;

/// The first version of Landlock that keeps signals inside.
const SIGNALS_STAY: i32 = 6;
/// How long what is left may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The folder in the first scratch folder that stands for `/dev/shm`.
const MEMORY: &str = ".shm";

/// The life of the first process.
pub(crate) fn live(mut orders: Orders<'_>, mut launcher: Channel) -> ! {
    let made = Scratch::make(orders.plan);
    let begun = made.and_then(|scratch| begin(&mut orders, &launcher, &scratch));
    let status = match begun {
        Ok(program) => inside::serve(&program, &mut launcher).unwrap_or(None),
        Err(fault) => {
            end_all();
            clear(orders.plan);
            let _ = launcher.send(&Hear::Fault { fault }, &[]);
            sys::exit_now(1);
        }
    };
    end_all();
    clear(orders.plan);
    if let Some(status) = status {
        let _ = launcher.send(&Hear::Exited { status }, &[]);
    }
    sys::exit_now(0);
}

/// Ends everything that descends from this process.
pub(crate) fn end_all() {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        // Stopped first, so that none starts another while they are ended one by one.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in descendants(own) {
                if let Some(process) = Pid::from_raw(process) {
                    let _ = kill_process(process, signal);
                }
            }
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The scratch folders: made for the fence, removed by whoever waits for its end ([`clear`]).
struct Scratch {
    first: PathBuf,
}

impl Scratch {
    fn make(plan: &FencePlan) -> Result<Self, LaunchFault> {
        let first = plan.scratch.first().map(AbsPath::to_path_buf);
        let first =
            first.ok_or_else(|| failed("cannot carry out the order", "level `process` needs a scratch folder"))?;
        for folder in plan.scratch.iter().map(AbsPath::to_path_buf) {
            let inner = tops(plan).iter().any(|top| *top != folder && folder.starts_with(top));
            let made = fs::DirBuilder::new().mode(0o700).recursive(inner).create(&folder);
            made.or_say(|| format!("cannot make the scratch folder `{}`", folder.display()))?;
        }
        let memory = first.join(MEMORY);
        fs::create_dir(&memory).or_say(|| "cannot make a folder for shared memory".into())?;
        let inside = |path: &Path| tops(plan).iter().any(|top| path.starts_with(top));
        for (path, content) in &plan.files {
            let path = path.to_path_buf();
            if inside(&path) {
                fs::write(&path, content.bytes()).or_say(|| format!("cannot write `{}`", path.display()))?;
            }
        }
        for (at, to) in &plan.links {
            let at = at.to_path_buf();
            let say = || format!("cannot lay the link `{}`", at.display());
            if let Some(folder) = at.parent() {
                fs::create_dir_all(folder).or_say(say)?;
            }
            match symlink(to.to_path_buf(), &at) {
                // Its folder is a link to what holds it.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                other => other.or_say(say)?,
            }
        }
        Ok(Self { first })
    }
}

/// The scratch folders that lie in no other.
fn tops(plan: &FencePlan) -> Vec<PathBuf> {
    let inner = |path: &AbsPath| plan.scratch.iter().any(|other| other != path && other.holds(path));
    let tops = plan.scratch.iter().filter(|path| !inner(path));
    tops.map(AbsPath::to_path_buf).collect()
}

/// Removes the scratch folders of a fence that has ended.
pub(crate) fn clear(plan: &FencePlan) {
    for top in tops(plan) {
        let _ = crate::clear::remove_tree(&top);
    }
}

fn scope(plan: &FencePlan, trees: &Trees, found: &Found) -> Scope {
    let mut places = HashMap::new();
    let mut twins = HashMap::new();
    let covered = |path: &AbsPath| plan.protected.iter().any(|one| one.pattern.covers(path));
    for (at, place) in &found.places {
        let at = Path::new("/").join(at);
        if let Ok(stat) = statat(CWD, &at, AtFlags::SYMLINK_NOFOLLOW)
            && stat.st_nlink > 1
            && !place.folder
        {
            twins.insert((stat.st_dev, stat.st_ino), place.protection);
        }
        if let Ok(at) = AbsPath::new(&at)
            && !covered(&at)
        {
            places.insert(at, place.protection);
        }
    }
    for (_, end, protection) in &found.links {
        if let Ok(end) = AbsPath::new(Path::new("/").join(end)) {
            places.insert(end, *protection);
        }
    }
    let seen = trees.trees.iter().map(|tree| Seen {
        source: tree.source.clone(),
        target: tree.target.clone(),
        mode: tree.mode,
        own: tree.source != tree.target,
    });
    Scope::of(seen.collect(), plan.scratch.clone(), &plan.protected, places, twins)
}

fn begin(orders: &mut Orders<'_>, launcher: &Channel, scratch: &Scratch) -> Result<Program, LaunchFault> {
    let plan = orders.plan;
    let trees = Trees::find(plan)?;
    // What is seen at another place is the fence's own: there is nothing of the person's in it to look for.
    let machine = Top::of_machine().or_say(|| "cannot open the root folder".into())?;
    let (elsewhere, here): (Vec<_>, Vec<_>) = trees.trees.into_iter().partition(|tree| tree.source != tree.target);
    let mut trees = Trees { trees: here, ..trees };
    let found = search::search(&machine, &trees, &plan.protected)?;
    trees.trees.extend(elsewhere);
    let scope = scope(plan, &trees, &found);
    let (doors, gates) = doors(plan)?;
    let stdio = Ends::of(plan.stdio, "/dev/ptmx", std::mem::take(&mut orders.pipes))?;
    let terminal = stdio
        .master
        .as_ref()
        .map(|master| notify::terminal_number(master.as_fd()));
    let terminal = terminal
        .transpose()
        .or_say(|| "cannot make a terminal of its own".into())?;
    let handover = plan.handover.as_ref().map(errand::folder).transpose()?;
    let ended = sys::child_signals().or_say(|| "cannot watch the program".into())?;
    rustix::process::umask(rustix::fs::Mode::empty());
    // Below the agent's own floor: what the supervisor does for it stays on the same trees.
    Floor::on_machine(plan, &trees, orders.landlock, false)?.lay()?;
    let floor = Floor::on_machine(plan, &trees, orders.landlock, true)?;
    let (lines, secret) = Along::apart(orders.along.take());
    let (mine, theirs) = Channel::pair().or_say(|| "cannot make a channel".into())?;
    let beginning = Beginning {
        plan,
        filters: orders.filters,
        stdio: &stdio,
        grouped: orders.grouped,
        watched: &theirs,
        secret: secret.as_ref(),
    };
    let starting = inside::start(&beginning, floor)?;
    drop((theirs, secret));
    let (mediator, brokers) = lines.unzip();
    let children = Arc::new(Children::of(starting.pid));
    let charge = Charge {
        scope,
        files: plan.files.iter().cloned().collect(),
        memory: scratch.first.join(MEMORY),
        mounted: false,
        doors,
        ports: inside::ports(plan),
        diagnosis: None,
        terminal,
        signals_stay: orders.landlock >= SIGNALS_STAY,
        task: plan.task,
        mediator,
        brokers,
        brokered: plan.brokered.clone(),
        judged: plan.judged.clone(),
        reading: (orders.readings)(plan),
        known: program::known(plan),
        children: Arc::clone(&children),
    };
    let pid = starting.supervised(mine, charge, orders.own_filters)?;
    let mut parts = vec![
        "process".to_owned(),
        format!("landlock-{}", orders.landlock),
        "seccomp".into(),
        "supervisor".into(),
    ];
    if plan.limits.memory.is_some() || plan.limits.processes.is_some() {
        parts.push(if orders.grouped { "cgroup" } else { "rlimits" }.into());
    }
    let report = FenceReport {
        parts,
        protected: u64::try_from(found.places.len()).unwrap_or(u64::MAX),
        missing: trees.missing,
        // Names of links are protected here as well, so nothing is to be said of them.
        warnings: trees.warnings.into_iter().chain(found.sockets_covered()).collect(),
    };
    let mut along: Vec<_> = gates.iter().map(AsFd::as_fd).collect();
    along.extend(stdio.master.as_ref().map(AsFd::as_fd));
    let started = Hear::Started {
        report,
        listeners: gates.len(),
        terminal: stdio.master.is_some(),
    };
    launcher
        .send(&started, &along)
        .or_say(|| "cannot tell the launcher".into())?;
    Ok(Program {
        pid,
        ended,
        children,
        handover,
    })
}

/// A pair for each port that is served outside: connections are handed through it.
fn doors(plan: &FencePlan) -> Result<(Vec<Door>, Vec<OwnedFd>), LaunchFault> {
    let made = plan.listen.iter().map(|listen| network::door(*listen));
    Ok(made.collect::<Result<Vec<_>, LaunchFault>>()?.into_iter().unzip())
}

/// Becomes what the fence's first process is to be: never root.
pub(crate) fn enter(orders: &Orders<'_>) -> Result<(), LaunchFault> {
    notify::adopt_orphans().or_say(|| "cannot adopt orphans".into())?;
    if geteuid().is_root() {
        return hint(
            Err(failed("cannot put up a fence of level `process`", "it is root's")),
            "run bailiwick as an ordinary user",
        );
    }
    if orders.plan.identity.outside != (geteuid().as_raw(), getegid().as_raw()) {
        return Err(failed(
            "cannot become another user",
            "only root's fences run as another user",
        ));
    }
    Ok(())
}
