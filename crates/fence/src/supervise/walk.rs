//! Finds what a path of the agent's leads to, step by step, as the kernel would for the agent.
//!
//! Answers: which object is meant, and what is its own path? Promises: P5. The kernel walks by itself only where no
//! link is on the way; each link is read and followed here, so that `/proc/self` is the agent's and never the
//! supervisor's, whatever links the agent has laid.
//! Trust: path and folders are the agent's, and change at any time. What comes back is an open object with the name
//! that the kernel has for it, not the name that was asked for.
//! Not here: whether it may be used (`scope`).
//! See: path_resolution(7), openat2(2), proc(5).

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstatfs, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use super::caller::{Caller, path_of, split_last};

/// Most links on one way, as in the kernel.
const MAX_LINKS: usize = 40;
/// Marks the file system of processes (statfs(2)).
const PROC: i64 = 0x9fa0;

/// What the kernel says behind the path of what was removed (proc(5)).
const REMOVED: &[u8] = b" (deleted)";
/// How the path of a file in memory begins (memfd_create(2)).
const MEMORY: &[u8] = b"/memfd:";

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    /// Something.
    There(There),
    /// Nothing, in a folder that is there.
    Absent(Absent),
}

/// An object, open without any right to it yet.
#[derive(Debug)]
pub(crate) struct There {
    /// The object.
    pub open: OwnedFd,
    /// Its own path; none for what has no name: a pipe, a socket, a file that was removed.
    pub path: Option<PathBuf>,
    /// The path that it had, where it was removed; also where it is only called so.
    pub former: Option<PathBuf>,
    /// What it is.
    pub stat: Stat,
}

/// A name that is not taken.
#[derive(Debug)]
pub(crate) struct Absent {
    /// The folder.
    pub folder: OwnedFd,
    /// The folder's own path.
    pub folder_path: PathBuf,
    /// The name.
    pub name: OsString,
}

impl Absent {
    /// The path that the name would have.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder_path.join(&self.name)
    }
}

impl There {
    /// Looks at an open object.
    pub(crate) fn of(open: OwnedFd) -> Result<Self, Errno> {
        let stat = statat(&open, c"", AtFlags::EMPTY_PATH)?;
        let path = path_of(&open)?;
        // What was removed has a note behind its path; what never had a name, no slash before it. A file of that very
        // name is not told apart: it is judged by both.
        let removed = path.as_os_str().as_bytes().strip_suffix(REMOVED);
        let nameless = !path.is_absolute() || (stat.st_nlink == 0 && path.as_os_str().as_bytes().starts_with(MEMORY));
        let former = removed.filter(|_| !nameless).map(OsStr::from_bytes).map(PathBuf::from);
        let named = !nameless && (former.is_none() || stat.st_nlink > 0);
        Ok(Self {
            open,
            path: named.then_some(path),
            former,
            stat,
        })
    }

    /// True for what never had a name.
    pub(crate) fn is_nameless(&self) -> bool {
        self.path.is_none() && self.former.is_none()
    }

    /// What kind of thing it is.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

fn flags() -> OFlags {
    OFlags::PATH | OFlags::CLOEXEC
}

/// How a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// To what is there at its end.
    End,
    /// To what is there at its end, be it a link.
    Link,
    /// To its end, or to a name that is not taken.
    New,
    /// To its end, be it a link, or to a name that is not taken.
    NewLink,
}

impl Aim {
    fn follows(self) -> bool {
        matches!(self, Self::End | Self::New)
    }

    fn makes(self) -> bool {
        matches!(self, Self::New | Self::NewLink)
    }
}

/// Finds what a path leads to, from a folder. The folder is asked for only where the path does not begin at the root.
pub(crate) fn find(caller: &Caller, base: i32, path: &Path, aim: Aim) -> Result<Found, Errno> {
    let follow = aim.follows();
    let start = Start::of(caller, base, path)?;
    let last = if follow { flags() } else { flags() | OFlags::NOFOLLOW };
    match start.straight(path, last) {
        Ok(open) => Ok(Found::There(There::of(open)?)),
        Err(Errno::LOOP) => Steps::begin(caller, start.folder()?, path, follow).walk(),
        Err(Errno::NOENT) if aim.makes() => match start.free_name(path) {
            Some(place) => Ok(Found::Absent(place)),
            None => Steps::begin(caller, start.folder()?, path, follow).walk(),
        },
        Err(errno) => Err(errno),
    }
}

/// Where a walk begins.
enum Start {
    /// At the root: the path says so.
    Root,
    /// At a folder of the caller's.
    At(OwnedFd),
}

impl Start {
    fn of(caller: &Caller, base: i32, path: &Path) -> Result<Self, Errno> {
        if path.is_absolute() {
            Ok(Self::Root)
        } else {
            caller.base(base).map(Self::At)
        }
    }

    /// The kernel's own walk, where no link is on the way.
    fn straight(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match self {
            Self::Root => openat2(CWD, path, flags, Mode::empty(), how),
            Self::At(folder) => openat2(folder, path, flags, Mode::empty(), how),
        }
    }

    /// The free name at the end of a path without links, which is what most files that are made have.
    fn free_name(&self, path: &Path) -> Option<Absent> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return None;
        }
        let (folder, name) = split_last(path)?;
        let folder = self.straight(&folder, flags() | OFlags::DIRECTORY).ok()?;
        let free = matches!(
            openat(&folder, &name, flags() | OFlags::NOFOLLOW, Mode::empty()),
            Err(Errno::NOENT)
        );
        let folder_path = path_of(&folder).ok().filter(|path| path.is_absolute())?;
        free.then_some(Absent {
            folder,
            folder_path,
            name,
        })
    }

    fn folder(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Root => openat(CWD, c"/", flags(), Mode::empty()),
            Self::At(folder) => Ok(folder),
        }
    }
}

/// Finds what is there at the end of a path.
pub(crate) fn there(caller: &Caller, base: i32, path: &Path, aim: Aim) -> Result<There, Errno> {
    match find(caller, base, path, aim)? {
        Found::There(there) => Ok(there),
        Found::Absent(_) => Err(Errno::NOENT),
    }
}

/// Finds the folder that holds the last name of a path. The name may be taken or not.
pub(crate) fn find_name(caller: &Caller, base: i32, path: &Path) -> Result<Absent, Errno> {
    let (folder, name) = split_last(path).ok_or(Errno::INVAL)?;
    let folder = there(caller, base, &folder, Aim::End)?;
    if !folder.kind().is_dir() {
        return Err(Errno::NOTDIR);
    }
    Ok(Absent {
        folder_path: folder.path.ok_or(Errno::NOENT)?,
        folder: folder.open,
        name,
    })
}

/// What stands at a name of a folder, without following it.
pub(crate) fn at_name(place: &Absent) -> Result<There, Errno> {
    There::of(openat(
        &place.folder,
        &place.name,
        flags() | OFlags::NOFOLLOW,
        Mode::empty(),
    )?)
}

fn is_proc(open: impl AsFd) -> bool {
    fstatfs(open).is_ok_and(|found| found.f_type == PROC)
}

/// A walk by single steps.
struct Steps<'a> {
    caller: &'a Caller,
    here: OwnedFd,
    /// The steps ahead, the next one last.
    ahead: Vec<OsString>,
    /// Whether a link at the end is followed.
    follow: bool,
    /// Whether the path says that its end is a folder.
    folder: bool,
    links: usize,
}

fn steps_of(path: &Path) -> Vec<OsString> {
    let steps = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    steps
        .filter(|step| !step.is_empty() && *step != b".")
        .map(|step| OsString::from_vec(step.to_vec()))
        .rev()
        .collect()
}

impl<'a> Steps<'a> {
    fn begin(caller: &'a Caller, here: OwnedFd, path: &Path, follow: bool) -> Self {
        let bytes = path.as_os_str().as_bytes();
        Self {
            caller,
            here,
            ahead: steps_of(path),
            follow,
            folder: bytes.ends_with(b"/") || bytes.ends_with(b"/."),
            links: 0,
        }
    }

    fn walk(mut self) -> Result<Found, Errno> {
        while let Some(step) = self.ahead.pop() {
            if step == ".." {
                self.here = self.exactly(OsStr::new(".."))?;
                continue;
            }
            let next = match self.exactly(&step) {
                Ok(next) => next,
                Err(Errno::NOENT) if self.ahead.is_empty() => {
                    let folder_path = path_of(&self.here)?;
                    if !folder_path.is_absolute() {
                        return Err(Errno::NOENT);
                    }
                    return Ok(Found::Absent(Absent {
                        folder_path,
                        folder: self.here,
                        name: step,
                    }));
                }
                Err(errno) => return Err(errno),
            };
            let stat = statat(&next, c"", AtFlags::EMPTY_PATH)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind.is_symlink() && (!self.ahead.is_empty() || self.follow || self.folder) {
                self.links = self.links.saturating_add(1);
                if self.links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                self.follow_link(&next, &step)?;
            } else if self.ahead.is_empty() || kind.is_dir() {
                self.here = next;
            } else {
                return Err(Errno::NOTDIR);
            }
        }
        let there = There::of(self.here)?;
        if self.folder && !there.kind().is_dir() {
            return Err(Errno::NOTDIR);
        }
        Ok(Found::There(there))
    }

    /// The next object of this name, whatever it is.
    fn exactly(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        openat(&self.here, name, flags() | OFlags::NOFOLLOW, Mode::empty())
    }

    fn follow_link(&mut self, link: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if is_proc(link) {
            return self.follow_in_proc(link, name);
        }
        let text = OsString::from_vec(readlinkat(link, c"", Vec::new())?.into_bytes());
        self.go(Path::new(&text))
    }

    fn go(&mut self, text: &Path) -> Result<(), Errno> {
        if text.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        if text.is_absolute() {
            self.here = openat(CWD, c"/", flags(), Mode::empty())?;
        }
        self.folder |= self.ahead.is_empty() && text.as_os_str().as_bytes().ends_with(b"/");
        self.ahead.extend(steps_of(text));
        Ok(())
    }

    /// Links in `/proc` lead to whoever looks, or straight to an object. Here it is the agent who looks.
    fn follow_in_proc(&mut self, link: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let folder = path_of(&self.here)?;
        let (thread, process) = (self.caller.held.thread, self.caller.process()?);
        if folder == Path::new("/proc") {
            return match name.as_bytes() {
                b"self" => self.go(Path::new(&process.to_string())),
                b"thread-self" => self.go(Path::new(&format!("{process}/task/{thread}"))),
                // `mounts`, `net`: below `self`.
                _ => {
                    let text = OsString::from_vec(readlinkat(link, c"", Vec::new())?.into_bytes());
                    self.go(Path::new(&text))
                }
            };
        }
        // Straight to an object: only through a folder that has been judged as one of the agent's own processes.
        if !super::others::is_own_proc(&folder) {
            return Err(Errno::ACCESS);
        }
        self.here = openat(&self.here, name, flags(), Mode::empty())?;
        Ok(())
    }
}
