//! Limits on memory and processes: a control group where one is delegated, else limits on each process.
//!
//! Promises: P13 (the report says which). A control group bounds all together; without one the kernel bounds the
//! number of processes per user namespace, which is the fence, and the data of each process by itself.
//! See: cgroups(7), "Delegation" in the kernel's cgroup-v2 document; getrlimit(2).

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick_gate::{LaunchFault, Limits};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::fault::Says;

/// A control group of the fence's own. It is removed when it is dropped, by the process that made it.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes a control group, where this process may: none where control groups are not delegated to it, or where
    /// there is nothing to limit.
    pub(crate) fn make(limits: &Limits) -> Option<Self> {
        if limits.memory.is_none() && limits.processes.is_none() {
            return None;
        }
        let group = Self {
            folder: delegated()?.join(format!("bailiwick-{}", std::process::id())),
        };
        fs::create_dir(&group.folder).ok()?;
        let text = |limit: Option<u64>| limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string());
        let write = |name: &str, text: &str| fs::write(group.folder.join(name), text);
        write("memory.max", &text(limits.memory)).ok()?;
        write("pids.max", &text(limits.processes)).ok()?;
        if limits.memory.is_some() {
            // Absent where the kernel does not count swap.
            let _ = write("memory.swap.max", "0");
        }
        Some(group)
    }

    /// Moves the calling process in. What it starts is in, too.
    pub(crate) fn join(&self) -> Result<(), LaunchFault> {
        fs::write(self.folder.join("cgroup.procs"), "0").or_say(|| "cannot enter the control group".into())
    }

    /// Ends everything in the group.
    pub(crate) fn end(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A folder of the control group file system in which groups with limits may be made: the one above this process's own
/// (which holds processes, and so can have no limited children), or its own at the root.
pub(crate) fn delegated() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(Path::new)
        .into_iter()
        .find(|folder| folder.join("cgroup.controllers").exists())?;
    let own = mount.join(own.trim_start_matches('/'));
    let above = own.parent().filter(|above| above.starts_with(mount)).unwrap_or(&own);
    let given = fs::read_to_string(above.join("cgroup.subtree_control")).ok()?;
    let has = |name| given.split_whitespace().any(|given| given == name);
    let writable = rustix::fs::access(above, rustix::fs::Access::WRITE_OK).is_ok()
        && rustix::fs::access(above.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).is_ok();
    (has("memory") && has("pids") && writable).then(|| above.to_path_buf())
}

/// How many processes and threads of this process's user run on the machine.
fn of_user() -> u64 {
    let user = format!("\nUid:\t{}\t", rustix::process::getuid().as_raw());
    let threads = |entry: fs::DirEntry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        if !status.contains(&user) {
            return None;
        }
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:"))?;
        line.trim().parse::<u64>().ok()
    };
    fs::read_dir("/proc").map_or(0, |entries| entries.flatten().filter_map(threads).sum())
}

/// Sets the limits on this process and what it starts. Without a control group they stand for it; with one, core
/// files alone are stopped. Where the fence is no user namespace of its own (`alone` is false), the kernel counts all
/// that its user runs: what runs already is added.
pub(crate) fn set(limits: &Limits, grouped: bool, alone: bool) -> Result<(), LaunchFault> {
    let bound = |what, limit: Option<u64>| {
        let Some(limit) = limit else {
            return Ok(());
        };
        let both = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        setrlimit(what, both).or_say(|| format!("cannot limit the program to {limit}"))
    };
    if !grouped {
        let others = if alone || limits.processes.is_none() {
            0
        } else {
            of_user()
        };
        bound(Resource::Nproc, limits.processes.map(|own| own.saturating_add(others)))?;
        bound(Resource::Data, limits.memory)?;
    }
    // A core file may be handed to a program of the machine's that runs outside every fence.
    bound(Resource::Core, Some(0))
}
