//! What this machine can do for a fence, found by trying.
//!
//! Promises: P13 (what is said to be there was seen at work). Trust: this machine.
//! Not here: what that means for each promise, and the words on the screen (the command line).

use std::fs;
use std::path::Path;

use bailiwick_model::Level;
use rustix::fs::{Access, CWD, access};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsmount, fsopen, open_tree,
};
use rustix::process::{WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::{UnshareFlags, set_no_new_privs};

use crate::filter::{Filters, HeldCalls};
use crate::sys::{self, Fork};
use crate::{floor, identity, limits};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The running kernel's version of Landlock; 0 where there is none.
    pub landlock: i32,
    /// Everything that was tried, in the order in which a fence needs it.
    pub items: Vec<Item>,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// A word for it: `landlock`, `namespaces`, `proc`, `seccomp`, `idmap`, `cgroup`, `fuse`.
    pub name: &'static str,
    /// Whether it works.
    pub found: bool,
    /// The levels that cannot do without it.
    pub needed: &'static [Level],
    /// What was seen, one line.
    pub seen: String,
    /// What to do where it does not work; may be empty.
    pub hint: &'static str,
}

/// What every fence needs.
const ALWAYS: &[Level] = &Level::ALL;
const NAMESPACE: &[Level] = &[Level::Namespace];
const PROCESS: &[Level] = &[Level::Process];

impl Survey {
    /// The first thing that a level needs and that is not there.
    pub fn missing(&self, level: Level) -> Option<&Item> {
        self.items
            .iter()
            .find(|item| !item.found && item.needed.contains(&level))
    }

    /// The strongest level that can be put up here.
    pub fn strongest(&self) -> Option<Level> {
        Level::ALL.into_iter().find(|level| self.missing(*level).is_none())
    }
}

/// Tries what a fence needs. Forks: the calling process must have one thread.
pub fn survey() -> Survey {
    let landlock = sys::landlock_version();
    let root = geteuid().is_root();
    let namespaces = tried(|| enter_namespaces().is_ok());
    let proc = tried(|| enter_namespaces().is_ok() && in_child(new_proc));
    let seccomp = tried(|| {
        Filters::agent(HeldCalls::default())
            .and_then(|filters| filters.lay())
            .is_ok()
    });
    let held = tried(holds_calls);
    let idmap = root && tried(hands_over);
    let group = limits::delegated();
    let fuse = access("/dev/fuse", Access::READ_OK | Access::WRITE_OK).is_ok();
    let says = |found: bool, yes: &str, no: &str| if found { yes.to_owned() } else { no.to_owned() };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let wsl = release.to_ascii_lowercase().contains("microsoft");
    let items = vec![
        Item {
            name: "landlock",
            found: landlock >= floor::LEAST,
            needed: ALWAYS,
            seen: format!(
                "version {landlock} of it in Linux {}, {} or newer is needed",
                release.trim(),
                floor::LEAST
            ),
            hint: if wsl {
                "inside WSL2: `wsl --update`, and `kernelCommandLine=lsm=landlock,lockdown,yama` under `[wsl2]` in .wslconfig"
            } else {
                "Linux 6.2 or newer, started with `landlock` among its security modules (lsm=…)"
            },
        },
        Item {
            name: "namespaces",
            found: namespaces,
            needed: NAMESPACE,
            seen: says(namespaces, "an ordinary user can make them", "the kernel refused them"),
            hint: "allow user namespaces (kernel.apparmor_restrict_unprivileged_userns, \
                   kernel.unprivileged_userns_clone, user.max_user_namespaces)",
        },
        Item {
            name: "proc",
            found: proc,
            needed: NAMESPACE,
            seen: says(proc, "a new one can be mounted", "a new one was refused"),
            hint: "inside a container, start it with an uncovered `/proc`",
        },
        Item {
            name: "seccomp",
            found: seccomp,
            needed: ALWAYS,
            seen: says(seccomp, "the filters were taken", "the filters were refused"),
            hint: "the kernel needs CONFIG_SECCOMP_FILTER",
        },
        Item {
            name: "supervisor",
            found: held,
            needed: PROCESS,
            seen: says(
                held,
                "system calls can be held and looked at",
                "system calls cannot be held, or not looked at",
            ),
            hint: "the kernel needs CONFIG_SECCOMP_FILTER and Linux 5.19, and kernel.yama.ptrace_scope below 2",
        },
        Item {
            name: "user",
            found: !root,
            needed: PROCESS,
            seen: says(!root, "an ordinary user", "root, whose fences need namespaces"),
            hint: "run bailiwick as an ordinary user",
        },
        Item {
            name: "idmap",
            found: idmap || !root,
            needed: if root { NAMESPACE } else { &[] },
            seen: match (root, idmap) {
                (false, _) => "not needed by an ordinary user".to_owned(),
                (true, found) => says(
                    found,
                    "root's files can be handed over",
                    "root's files cannot be handed over",
                ),
            },
            hint: "run bailiwick as an ordinary user",
        },
        Item {
            name: "cgroup",
            found: group.is_some(),
            needed: &[],
            seen: match &group {
                Some(folder) => format!("delegated at `{}`", folder.display()),
                None => "none is delegated: limits hold for each process".to_owned(),
            },
            hint: "start bailiwick in a delegated scope (systemd-run --user --scope -p Delegate=yes)",
        },
        Item {
            name: "fuse",
            found: fuse,
            needed: &[],
            seen: says(
                fuse,
                "`/dev/fuse` is usable: files can be asked about one by one",
                "`/dev/fuse` is not usable: trees to be asked about are not shown",
            ),
            hint: "load the kernel's module `fuse`, and let users open `/dev/fuse` (mode 0666, as most systems have it)",
        },
    ];
    Survey { landlock, items }
}

/// Holds a call of a child's, and looks at the child's memory.
fn holds_calls() -> bool {
    let Ok(filters) = Filters::watched_agent(HeldCalls::default()) else {
        return false;
    };
    let Ok((told, tell)) = rustix::pipe::pipe() else {
        return false;
    };
    let word = *b"looked at";
    let child = match sys::fork() {
        Ok(Fork::Child) => {
            // Who is not root may lay a filter only so.
            let laid = set_no_new_privs(true).is_ok() && filters.lay_watched(|_listener| Ok(())).is_ok();
            let _ = rustix::io::write(&tell, if laid { b"y" } else { b"n" });
            sys::wait_for_the_end();
            sys::exit_now(0);
        }
        Ok(Fork::Parent(child)) => child,
        Err(_) => return false,
    };
    let mut laid = [0u8; 1];
    let laid = rustix::io::read(&told, &mut laid) == Ok(1) && laid == *b"y";
    let mut seen = [0u8; 9];
    let address = std::ptr::from_ref(&word).addr();
    let looked = u64::try_from(address).is_ok_and(|address| {
        let read = sys::notify::read_memory(child.as_raw_nonzero().get(), address, &mut seen);
        read.is_ok_and(|count| count == seen.len()) && seen == word
    });
    let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    laid && looked
}

/// Runs a trial in a process of its own.
fn tried(trial: impl FnOnce() -> bool) -> bool {
    match sys::fork() {
        Ok(Fork::Child) => sys::exit_now(i32::from(!trial())),
        Ok(Fork::Parent(child)) => {
            let status = waitpid(Some(child), WaitOptions::empty()).ok().flatten();
            status.is_some_and(|(_, status)| status.exit_status() == Some(0))
        }
        Err(_) => false,
    }
}

fn in_child(trial: impl FnOnce() -> bool) -> bool {
    tried(trial)
}

fn enter_namespaces() -> Result<(), ()> {
    let outside = if geteuid().is_root() {
        let found = identity::identity().map_err(drop)?;
        identity::become_for_good(&[found.outside.1], found.outside.0, found.outside.1).map_err(drop)?;
        found
    } else {
        let own = (geteuid().as_raw(), getegid().as_raw());
        bailiwick_gate::IdMap {
            inside: own,
            outside: own,
            owner: None,
        }
    };
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET)
        .map_err(drop)?;
    identity::map_own(&outside).map_err(drop)
}

fn new_proc() -> bool {
    let made = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|made| {
        fsconfig_create(std::os::fd::AsFd::as_fd(&made))?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(std::os::fd::AsFd::as_fd(&made), FsMountFlags::FSMOUNT_CLOEXEC, flags)
    });
    made.is_ok()
}

/// Tries an idmapped mount of the folder that this process is in, else of the root.
fn hands_over() -> bool {
    let Ok(found) = identity::identity() else {
        return false;
    };
    let (Some(owner), here) = (
        found.owner,
        fs::canonicalize(".").unwrap_or_else(|_| Path::new("/").into()),
    ) else {
        return false;
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, &here, flags)
        .ok()
        .zip(identity::namespace_of_owners(owner, found.outside).ok())
        .is_some_and(|(tree, namespace)| sys::map_owners(tree, namespace).is_ok())
}
