//! What this machine can do for a fence, found by trying.
//!
//! Promises: P13 (what is said to be there was seen at work). Trust: this machine.
//! Not here: what that means for each promise, and the words on the screen (the command line).

use std::fs;
use std::path::Path;

use rustix::fs::{Access, CWD, access};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsmount, fsopen, open_tree,
};
use rustix::process::{WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::UnshareFlags;

use crate::filter::Filters;
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
    /// Whether no fence of this build can do without it.
    pub needed: bool,
    /// What was seen, one line.
    pub seen: String,
    /// What to do where it does not work; may be empty.
    pub hint: &'static str,
}

impl Survey {
    /// True when a fence of level `namespace` can be put up here.
    pub fn holds(&self) -> bool {
        self.items.iter().all(|item| item.found || !item.needed)
    }
}

/// Tries what a fence needs. Forks: the calling process must have one thread.
pub fn survey() -> Survey {
    let landlock = sys::landlock_version();
    let root = geteuid().is_root();
    let namespaces = tried(|| enter_namespaces().is_ok());
    let proc = tried(|| enter_namespaces().is_ok() && in_child(new_proc));
    let seccomp = tried(|| Filters::agent().and_then(|filters| filters.lay()).is_ok());
    let idmap = root && tried(hands_over);
    let group = limits::delegated();
    let fuse = access("/dev/fuse", Access::READ_OK | Access::WRITE_OK).is_ok();
    let says = |found: bool, yes: &str, no: &str| if found { yes.to_owned() } else { no.to_owned() };
    let items = vec![
        Item {
            name: "landlock",
            found: landlock >= floor::LEAST,
            needed: true,
            seen: format!("version {landlock}, {} or newer is needed", floor::LEAST),
            hint: "start the kernel with `landlock` among its security modules (lsm=…)",
        },
        Item {
            name: "namespaces",
            found: namespaces,
            needed: true,
            seen: says(namespaces, "an ordinary user can make them", "the kernel refused them"),
            hint: "allow user namespaces (kernel.apparmor_restrict_unprivileged_userns, \
                   kernel.unprivileged_userns_clone, user.max_user_namespaces)",
        },
        Item {
            name: "proc",
            found: proc,
            needed: true,
            seen: says(proc, "a new one can be mounted", "a new one was refused"),
            hint: "inside a container, start it with an uncovered `/proc`",
        },
        Item {
            name: "seccomp",
            found: seccomp,
            needed: true,
            seen: says(seccomp, "the filters were taken", "the filters were refused"),
            hint: "the kernel needs CONFIG_SECCOMP_FILTER",
        },
        Item {
            name: "idmap",
            found: idmap || !root,
            needed: root,
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
            needed: false,
            seen: match &group {
                Some(folder) => format!("delegated at `{}`", folder.display()),
                None => "none is delegated: limits hold for each process".to_owned(),
            },
            hint: "start bailiwick in a delegated scope (systemd-run --user --scope -p Delegate=yes)",
        },
        Item {
            name: "fuse",
            found: fuse,
            needed: false,
            seen: says(fuse, "`/dev/fuse` is usable", "`/dev/fuse` is not usable"),
            hint: "",
        },
    ];
    Survey { landlock, items }
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
