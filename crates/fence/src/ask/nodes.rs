//! What the kernel knows by number in an ask tree: each a name in a folder, and the file that stood there when it was
//! looked up.
//!
//! Promises: P5 (a number stands for one name of one file; where another file has its name now, it stands for nothing).
//! Trust: names are the agent's, and whatever else changes the tree outside.
//! Nothing is held open: a name is found again from the tree's own folder, without following a link or leaving it.
//! See: openat2(2).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, openat2, statat};
use rustix::io::Errno;

/// The number of the tree itself.
pub(super) const ROOT: u64 = 1;

/// How deep a name may lie.
const MAX_DEPTH: usize = 512;

/// A file by its device and number.
type Inode = (u64, u64);

#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
    inode: Inode,
    /// How often the kernel has been told of it, and has not forgotten it.
    known: u64,
}

/// A file that was found by its number.
#[derive(Debug)]
pub(super) struct Found {
    /// Open without any right.
    pub open: OwnedFd,
    /// What it is.
    pub stat: Stat,
    /// Its path from the tree's own folder.
    pub path: PathBuf,
}

/// The numbers of one tree.
#[derive(Debug)]
pub(super) struct Nodes {
    root: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    all: HashMap<u64, Node>,
    by_name: HashMap<(u64, OsString, Inode), u64>,
}

/// What a descriptor stands for.
pub(super) fn stat_of(open: impl AsFd) -> Result<Stat, Errno> {
    statat(open, c"", AtFlags::EMPTY_PATH)
}

fn inode_of(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

impl Nodes {
    /// The tree below a folder, or of one file.
    pub(super) fn of(root: OwnedFd) -> Self {
        let state = State {
            last: ROOT,
            ..State::default()
        };
        Self {
            root,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree's own folder.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a path of the tree without any right.
    pub(super) fn open(&self, path: &std::path::Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if path.as_os_str().is_empty() {
            return rustix::io::fcntl_dupfd_cloexec(&self.root, 0);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn path_of(&self, node: u64) -> Result<(PathBuf, Option<Inode>), Errno> {
        let state = self.lock();
        let mut steps: Vec<&OsStr> = Vec::new();
        let mut here = node;
        let mut inode = None;
        while here != ROOT {
            let known = state.all.get(&here).ok_or(Errno::STALE)?;
            inode.get_or_insert(known.inode);
            steps.push(&known.name);
            here = known.parent;
            if steps.len() > MAX_DEPTH {
                return Err(Errno::NAMETOOLONG);
            }
        }
        Ok((steps.iter().rev().collect(), inode))
    }

    /// Finds a file by its number. `ESTALE` where its name stands for another now, so that the kernel looks again.
    pub(super) fn find(&self, node: u64) -> Result<Found, Errno> {
        let (path, inode) = self.path_of(node)?;
        let open = self.open(&path, OFlags::PATH).map_err(|errno| match errno {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => Errno::STALE,
            other => other,
        })?;
        let stat = stat_of(&open)?;
        if inode.is_some_and(|inode| inode != inode_of(&stat)) {
            return Err(Errno::STALE);
        }
        Ok(Found { open, stat, path })
    }

    /// The path of a name in a folder, from the tree's own folder.
    pub(super) fn path_in(&self, folder: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(self.path_of(folder)?.0.join(name))
    }

    /// The number of a name for a file; the kernel knows it once more.
    pub(super) fn number(&self, folder: u64, name: &OsStr, stat: &Stat) -> u64 {
        let mut state = self.lock();
        let key = (folder, name.to_owned(), inode_of(stat));
        if let Some(number) = state.by_name.get(&key).copied()
            && let Some(node) = state.all.get_mut(&number)
        {
            node.known = node.known.saturating_add(1);
            return number;
        }
        state.last = state.last.saturating_add(1);
        let number = state.last;
        let node = Node {
            parent: folder,
            name: name.to_owned(),
            inode: inode_of(stat),
            known: 1,
        };
        state.by_name.insert(key, number);
        state.all.insert(number, node);
        number
    }

    /// The kernel forgets that it was told of a number so many times.
    pub(super) fn forget(&self, number: u64, times: u64) {
        let mut state = self.lock();
        let Some(node) = state.all.get_mut(&number) else {
            return;
        };
        node.known = node.known.saturating_sub(times);
        if node.known == 0
            && let Some(node) = state.all.remove(&number)
        {
            state.by_name.remove(&(node.parent, node.name, node.inode));
        }
    }

    /// A name was given to what had another.
    pub(super) fn renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr), inode: &Stat) {
        let mut state = self.lock();
        let old = (from.0, from.1.to_owned(), inode_of(inode));
        let new = (to.0, to.1.to_owned(), inode_of(inode));
        let Some(number) = state.by_name.remove(&old) else {
            return;
        };
        if let Some(node) = state.all.get_mut(&number) {
            (node.parent, node.name) = (new.0, new.1.clone());
        }
        state.by_name.insert(new, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_number_stands_for_one_name_of_one_file() {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("d")).unwrap();
        std::fs::write(room.path().join("d/a"), "a").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", room.path().join("link")).unwrap();
        let nodes = Nodes::of(std::fs::File::open(room.path()).unwrap().into());
        let look = |folder: u64, name: &str| -> Result<u64, Errno> {
            let path = nodes.path_in(folder, OsStr::new(name))?;
            let stat = stat_of(nodes.open(&path, OFlags::PATH)?)?;
            Ok(nodes.number(folder, OsStr::new(name), &stat))
        };
        let d = look(ROOT, "d").unwrap();
        let a = look(d, "a").unwrap();
        assert_eq!(look(d, "a"), Ok(a));
        assert_eq!(nodes.find(a).unwrap().path, PathBuf::from("d/a"));
        let link = look(ROOT, "link").unwrap();
        assert_eq!(
            nodes.find(link).unwrap().stat.st_mode & 0o170_000,
            0o120_000,
            "not followed"
        );
        // Another file under the name, another folder on the way.
        std::fs::write(room.path().join("b"), "b").unwrap();
        std::fs::rename(room.path().join("b"), room.path().join("d/a")).unwrap();
        assert_eq!(nodes.find(a).unwrap_err(), Errno::STALE);
        let b = look(d, "a").unwrap();
        assert_ne!(a, b);
        std::fs::rename(room.path().join("d"), room.path().join("e")).unwrap();
        std::os::unix::fs::symlink("/etc", room.path().join("d")).unwrap();
        assert_eq!(nodes.find(b).unwrap_err(), Errno::STALE);
        // It is forgotten when the kernel has forgotten it as often as it was told.
        nodes.forget(a, 1);
        assert!(nodes.lock().all.contains_key(&a));
        nodes.forget(a, 1);
        assert!(!nodes.lock().all.contains_key(&a));
    }
}
