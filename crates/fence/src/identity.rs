//! Who the program is: the person, or where the person is root, somebody without any rights.
//!
//! Promises: P2, P13. An ordinary user is the same inside and outside. Root's programs run outside as the account
//! `bailiwick` where there is one, else as [`NOBODY`]; inside as 1000. 0 is never an identity of a fence, on either
//! side. What root owns is handed over by idmapped mounts (`trees`).
//! See: user_namespaces(7), mount_setattr(2).

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use bailiwick_gate::{IdMap, LaunchFault};
use rustix::process::{DumpableBehavior, Gid, Pid, Uid, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::fault::{Says, failed, hint};
use crate::sys::{self, Fork};

/// The user and group outside, where root has made no account `bailiwick`: a number that distributions leave alone
/// and that is not the `nobody` whom network file systems use.
pub const NOBODY: u32 = 65532;

/// Who root's programs are inside.
const INSIDE: u32 = 1000;

/// Says who a program in a fence of this process's user is.
pub fn identity() -> Result<IdMap, LaunchFault> {
    let own = (geteuid().as_raw(), getegid().as_raw());
    if own.0 != 0 {
        if own.1 == 0 {
            return Err(failed(
                "cannot choose who the program is",
                "the user's group is 0, which is never an identity of a fence",
            ));
        }
        return Ok(IdMap {
            inside: own,
            outside: own,
            owner: None,
        });
    }
    let outside = account("bailiwick").unwrap_or((NOBODY, NOBODY));
    let known = ranges("/proc/self/uid_map");
    if !known.iter().any(|range| range.holds(outside.0)) {
        return hint(
            Err(failed(
                "cannot choose who the program is",
                format!("this machine's root cannot become user {}", outside.0),
            )),
            "run bailiwick as an ordinary user, or make an account `bailiwick`",
        );
    }
    Ok(IdMap {
        inside: (INSIDE, INSIDE),
        outside,
        owner: Some((0, 0)),
    })
}

/// The user and group of an account, where its ids are not 0.
fn account(name: &str) -> Option<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    let ids = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (ids.0 != 0 && ids.1 != 0).then_some(ids)
}

/// Under sudo, becomes the caller for good: groups, group, user. True when that was done. Call it before anything else,
/// while the process has one thread.
pub fn become_caller_under_sudo() -> std::io::Result<bool> {
    if !geteuid().is_root() {
        return Ok(false);
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (Some(user), Some(group)) = (number("SUDO_UID"), number("SUDO_GID")) else {
        return Ok(false);
    };
    if user == 0 {
        return Ok(false);
    }
    let name = std::env::var("SUDO_USER").unwrap_or_default();
    let groups = match CString::new(name) {
        Ok(name) if !name.is_empty() => sys::groups_of(&name, group),
        _ => vec![group],
    };
    become_for_good(&groups, user, group)?;
    Ok(true)
}

/// Gives up this process's user, groups and with them all privileges.
pub(crate) fn become_for_good(groups: &[u32], user: u32, group: u32) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    // A change of user makes /proc/self root's; a fence writes its id maps there.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// A run of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

impl Range {
    fn holds(self, id: u32) -> bool {
        id.checked_sub(self.first).is_some_and(|place| place < self.count)
    }

    /// What is left when one id is taken out.
    fn without(self, id: u32) -> impl Iterator<Item = Self> {
        let place = if self.holds(id) {
            id.wrapping_sub(self.first)
        } else {
            self.count
        };
        let rest = self.count.saturating_sub(place).saturating_sub(1);
        let below = Self { count: place, ..self };
        let above = Self {
            first: id.saturating_add(1),
            count: if place < self.count { rest } else { 0 },
        };
        [below, above].into_iter().filter(|range| range.count > 0)
    }
}

/// The ids that exist in this user namespace.
fn ranges(map: &str) -> Vec<Range> {
    let Ok(text) = fs::read_to_string(map) else {
        return Vec::new();
    };
    let read = |line: &str| {
        let mut fields = line.split_whitespace();
        let first = fields.next()?.parse().ok()?;
        let count = fields.nth(1)?.parse().ok()?;
        Some(Range { first, count })
    };
    text.lines().filter_map(read).collect()
}

/// The lines of a map in which `owner` becomes `outside` and every other id stays as it is.
fn handed_over(known: &[Range], owner: u32, outside: u32) -> String {
    let mut lines = format!("{owner} {outside} 1\n");
    let others = known
        .iter()
        .flat_map(|range| range.without(owner))
        .flat_map(|range| range.without(outside))
        .flat_map(|range| range.without(u32::MAX))
        .flat_map(|range| range.without(0));
    for Range { first, count } in others {
        lines.push_str(&format!("{first} {first} {count}\n"));
    }
    lines
}

/// Makes a user namespace by whose maps a tree's `owner` becomes `outside`. For root only.
pub(crate) fn namespace_of_owners(owner: (u32, u32), outside: (u32, u32)) -> Result<OwnedFd, LaunchFault> {
    let what = || "cannot hand over the files of the owner".to_owned();
    let (go, wait) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map(|(read, write)| (write, read))
        .or_say(what)?;
    let (ready, made) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_say(what)?;
    let child = match sys::fork().or_say(what)? {
        Fork::Parent(child) => child,
        Fork::Child => {
            drop((go, ready));
            let done = sys::unshare(UnshareFlags::NEWUSER).and_then(|()| rustix::io::write(&made, b"."));
            drop(made);
            // Holds the namespace open until the parent has it.
            let _ = done.and_then(|_| rustix::io::read(&wait, &mut [0u8; 1]));
            sys::exit_now(0);
        }
    };
    drop((made, wait));
    let namespace = held_namespace(child, &ready, owner, outside);
    drop(go);
    let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    namespace
}

fn held_namespace(child: Pid, ready: &OwnedFd, owner: (u32, u32), outside: (u32, u32)) -> Result<OwnedFd, LaunchFault> {
    let what = || "cannot hand over the files of the owner".to_owned();
    if rustix::io::read(ready.as_fd(), &mut [0u8; 1]).or_say(what)? != 1 {
        return Err(failed(what(), "a user namespace was refused"));
    }
    let folder = format!("/proc/{}", child.as_raw_nonzero());
    let users = handed_over(&ranges("/proc/self/uid_map"), owner.0, outside.0);
    let groups = handed_over(&ranges("/proc/self/gid_map"), owner.1, outside.1);
    write_once(&format!("{folder}/uid_map"), &users).or_say(what)?;
    write_once(&format!("{folder}/gid_map"), &groups).or_say(what)?;
    fs::File::open(format!("{folder}/ns/user"))
        .map(OwnedFd::from)
        .or_say(what)
}

/// Writes a kernel file in one call, as id maps must be.
fn write_once(path: &str, text: &str) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Writes the id maps of the user namespace that this process has just made.
pub(crate) fn map_own(identity: &IdMap) -> Result<(), LaunchFault> {
    let what = || "cannot map the user into the fence".to_owned();
    write_once("/proc/self/setgroups", "deny").or_say(what)?;
    let users = format!("{} {} 1\n", identity.inside.0, identity.outside.0);
    write_once("/proc/self/uid_map", &users).or_say(what)?;
    let groups = format!("{} {} 1\n", identity.inside.1, identity.outside.1);
    write_once("/proc/self/gid_map", &groups).or_say(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_zero_is_mapped_to_nothing_but_the_outside_identity() {
        let whole = [Range {
            first: 0,
            count: u32::MAX,
        }];
        assert_eq!(
            handed_over(&whole, 0, 65532),
            "0 65532 1\n1 1 65531\n65533 65533 4294901762\n"
        );
        let small = [Range { first: 0, count: 1001 }];
        assert_eq!(handed_over(&small, 0, 1000), "0 1000 1\n1 1 999\n");
    }

    #[test]
    fn p2_the_identity_is_never_root() {
        let id = identity().unwrap();
        for number in [id.inside.0, id.inside.1, id.outside.0, id.outside.1] {
            assert_ne!(number, 0);
        }
    }
}
