//! Opening files for the agent.
//!
//! Promises: P1, P5. An object is found without any right to it, judged by its own path, and only then opened, by the
//! descriptor that it was found with. Trust: path, flags and mode are the agent's.
//! See: open(2), shm_open(3), pts(4), fifo(7).

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bailiwick_gate::Judged;
use bailiwick_model::{AbsPath, Resource, Verb};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, inotify, memfd_create, openat};
use rustix::io::Errno;

use super::caller::Caller;
use super::scope::{May, Object};
use super::walk::{Absent, Aim, Found, There, find};
use super::{Done, Supervisor, lock, others};
use crate::sys::notify;

/// How often a name that was taken between looking and making is looked at again.
const TRIES: usize = 8;
/// Devices that are the same for everybody.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// How often it is looked whether a caller still waits for the other end of a pipe.
const PAUSE: Duration = Duration::from_millis(20);

/// What is opened, and how.
struct Wish {
    flags: OFlags,
    mode: u32,
}

impl Wish {
    fn has(&self, flag: OFlags) -> bool {
        self.flags.contains(flag)
    }

    /// A file without a name. Its flag holds that of a folder.
    fn unnamed(&self) -> bool {
        self.has(OFlags::TMPFILE)
    }

    fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) || self.unnamed()
    }

    fn keeps(&self) -> bool {
        !self.has(OFlags::CLOEXEC)
    }

    /// The flags for an object that is there.
    fn again(&self) -> OFlags {
        let dropped = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        (self.flags - dropped) | OFlags::CLOEXEC | OFlags::NOCTTY
    }
}

/// The name of an open object that the kernel follows to the very object.
pub(super) fn path_to(open: impl AsFd) -> Result<CString, Errno> {
    CString::new(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())).map_err(|_| Errno::INVAL)
}

/// Opens what a descriptor stands for once more, with other rights.
fn reopen(open: impl AsFd, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    openat(CWD, path_to(open)?, flags, mode)
}

/// What is known of a folder.
pub(super) fn folder() -> Object {
    Object {
        folder: true,
        twin: None,
    }
}

/// What can be told apart about an object.
pub(super) fn object(there: &There) -> Object {
    let several = there.kind().is_file() && there.stat.st_nlink > 1;
    Object {
        folder: there.kind().is_dir(),
        twin: several.then_some((there.stat.st_dev, there.stat.st_ino)),
    }
}

impl Supervisor {
    /// What may be done with an object.
    pub(super) fn may(&self, there: &There) -> May {
        // What never had a name is the agent's own, by way of one of its processes. What was removed has the rights of its
        // old place: the agent may have found it there when it was hidden.
        let paths = there.path.iter().chain(&there.former);
        paths.map(|path| self.may_at(path, there)).min().unwrap_or(May::Write)
    }

    fn may_at(&self, path: &Path, there: &There) -> May {
        if path.starts_with("/proc") {
            let memory = path.file_name().is_some_and(|name| name == "mem");
            if memory && self.charge.judged != Judged::Nothing {
                // What was judged as it started is not to be changed after.
                return May::Nothing;
            }
            return if self.charge.mounted {
                others::may_in_own_proc(path)
            } else {
                others::may_in_proc(path)
            };
        }
        if path.starts_with("/dev") {
            return self.may_use_device(path);
        }
        self.charge.scope.may(path, object(there))
    }

    /// What may be done at a name that is not taken.
    pub(super) fn may_make(&self, place: &Absent, folder: bool) -> May {
        if self.is_of_repository(&place.folder, &place.folder_path, &place.name) {
            return May::Read;
        }
        self.charge.scope.may(&place.path(), Object { folder, twin: None })
    }

    /// Insists on a right. What may be read and not changed is, to the agent, on a read-only file system.
    pub(super) fn insist(&self, path: &Path, may: May, wanted: May) -> Result<(), Errno> {
        if may >= wanted {
            return Ok(());
        }
        self.note_file(path, wanted);
        Err(if may == May::Read { Errno::ROFS } else { Errno::ACCESS })
    }

    /// Insists on a right to an object.
    pub(super) fn insist_on(&self, there: &There, wanted: May) -> Result<(), Errno> {
        let path = there.path.as_ref().or(there.former.as_ref());
        self.insist(path.map_or(Path::new("/"), PathBuf::as_path), self.may(there), wanted)
    }

    /// Insists that git obeys nothing that stands in a file.
    fn insist_harmless(&self, there: &There) -> Result<(), Errno> {
        let Some((folder_path, name)) = there
            .path
            .as_deref()
            .and_then(|path| path.parent().zip(path.file_name()))
        else {
            return Ok(());
        };
        if !super::repositories::may_be_obeyed(folder_path, name) {
            return Ok(());
        }
        let folder = openat(CWD, folder_path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if self.is_of_repository(&folder, folder_path, name) {
            self.note_file(&folder_path.join(name), May::Write);
            return Err(Errno::ROFS);
        }
        Ok(())
    }

    /// Has put on record that a file was refused.
    fn note_file(&self, path: &Path, wanted: May) {
        if let Some(line) = &self.line
            && !path.starts_with("/proc")
            && !path.starts_with("/dev")
            && let Ok(path) = AbsPath::new(path)
        {
            let verb = if wanted == May::Write { Verb::Write } else { Verb::Read };
            line.note(verb, Resource::File(path));
        }
    }

    pub(super) fn open(self: &Arc<Self>, caller: &Caller, base: i32, path: usize, flags: usize) -> Result<Done, Errno> {
        let wish = Wish {
            flags: OFlags::from_bits_retain(caller.flags(flags)),
            mode: caller.flags(flags.saturating_add(1)),
        };
        self.fulfil(caller, base, &caller.path(path)?, &wish)
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn create(self: &Arc<Self>, caller: &Caller) -> Result<Done, Errno> {
        let wish = Wish {
            flags: OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC,
            mode: caller.flags(1),
        };
        self.fulfil(caller, libc::AT_FDCWD, &caller.path(0)?, &wish)
    }

    /// The path that stands for another: shared memory has a folder of the fence's own.
    pub(super) fn instead(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix("/dev/shm") {
            Ok(rest) if rest.as_os_str().is_empty() => self.charge.memory.clone(),
            Ok(rest) => self.charge.memory.join(rest),
            Err(_) => path,
        }
    }

    /// A small file that stands for the machine's.
    fn made(&self, path: &Path) -> Option<Result<OwnedFd, Errno>> {
        let content = self.charge.files.get(&AbsPath::new(path).ok()?)?;
        let make = || {
            let file = memfd_create("file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            let mut rest = content.bytes();
            while !rest.is_empty() {
                let written = rustix::io::write(&file, rest)?;
                rest = rest.get(written..).unwrap_or_default();
            }
            fcntl_add_seals(
                &file,
                SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
            )?;
            reopen(&file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        Some(make())
    }

    fn fulfil(self: &Arc<Self>, caller: &Caller, base: i32, path: &Path, wish: &Wish) -> Result<Done, Errno> {
        if wish.has(OFlags::PATH) {
            // No more than a look, which nothing hinders; whatever comes of it is opened anew before it is read. The
            // flag stands in a register.
            return Ok(Done::GoOn);
        }
        let path = self.instead(path.to_path_buf());
        if !wish.writes()
            && let Some(made) = self.made(&path)
        {
            return Ok(Done::Descriptor(made?, wish.keeps()));
        }
        if path.as_os_str() == "/dev/tty" {
            return self.open_own_terminal(caller, wish);
        }
        let (create, exclusive) = (wish.has(OFlags::CREATE), wish.has(OFlags::EXCL));
        let follow = !(wish.has(OFlags::NOFOLLOW) || create && exclusive);
        let aim = match (create && !wish.unnamed(), follow) {
            (false, true) => Aim::End,
            (false, false) => Aim::Link,
            (true, true) => Aim::New,
            (true, false) => Aim::NewLink,
        };
        for _ in 0..TRIES {
            match find(caller, base, &path, aim)? {
                Found::There(_) if create && exclusive && !wish.unnamed() => return Err(Errno::EXIST),
                Found::There(there) => {
                    if let Some(made) = there
                        .path
                        .as_ref()
                        .filter(|_| !wish.writes())
                        .and_then(|path| self.made(path))
                    {
                        return Ok(Done::Descriptor(made?, wish.keeps()));
                    }
                    return self.open_object(caller, there, wish);
                }
                Found::Absent(place) if create => match self.make_file(caller, place, wish) {
                    Err(Errno::EXIST) => {}
                    other => return other,
                },
                Found::Absent(_) => return Err(Errno::NOENT),
            }
        }
        Err(Errno::AGAIN)
    }

    /// Makes a file at a name that is not taken; `EXIST` where it has been taken since.
    fn make_file(self: &Arc<Self>, caller: &Caller, place: Absent, wish: &Wish) -> Result<Done, Errno> {
        let _alone = self.alone_for(&place);
        self.insist(&place.path(), self.may_make(&place, false), May::Write)?;
        let mode = Mode::from_raw_mode(wish.mode & 0o777 & !caller.umask());
        let flags = wish.flags | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        let (path, keep) = (place.path(), wish.keeps());
        self.carry_out(caller, &[&path], None, move || {
            let made = openat(&place.folder, &place.name, flags, mode)?;
            Ok(Done::Descriptor(made, keep))
        })
    }

    fn open_object(self: &Arc<Self>, caller: &Caller, there: There, wish: &Wish) -> Result<Done, Errno> {
        let kind = there.kind();
        if wish.has(OFlags::DIRECTORY) && !kind.is_dir() {
            return Err(Errno::NOTDIR);
        }
        if kind.is_symlink() {
            return Err(Errno::LOOP);
        }
        let wanted = if wish.writes() { May::Write } else { May::Read };
        self.insist_on(&there, wanted)?;
        if wish.writes() && kind.is_file() {
            self.insist_harmless(&there)?;
        }
        if kind.is_dir() && wish.writes() && !wish.unnamed() {
            return Err(Errno::ISDIR);
        }
        if kind.is_socket() {
            return Err(Errno::NXIO);
        }
        if kind.is_fifo() {
            return self.open_pipe(caller, there, wish);
        }
        let mode = if wish.unnamed() {
            wish.mode & 0o777 & !caller.umask()
        } else {
            0
        };
        if let Some(path) = there.path.clone().filter(|path| self.charge.scope.is_asked(path)) {
            let (flags, keep) = (wish.again(), wish.keeps());
            return self.carry_out(caller, &[&path], None, move || {
                let opened = reopen(&there.open, flags, Mode::from_raw_mode(mode))?;
                Ok(Done::Descriptor(opened, keep))
            });
        }
        let opened = reopen(&there.open, wish.again(), Mode::from_raw_mode(mode))?;
        if !self.charge.mounted && there.path.as_deref().is_some_and(is_terminal_maker) {
            let number = notify::terminal_number(opened.as_fd()).map_err(|_| Errno::NXIO)?;
            lock(&self.terminals).add(number)?;
        }
        Ok(Done::Descriptor(opened, wish.keeps()))
    }

    /// A pipe with a name is open once its other end is. The wait ends with the caller's.
    fn open_pipe(self: &Arc<Self>, caller: &Caller, there: There, wish: &Wish) -> Result<Done, Errno> {
        let (flags, keep, id) = (wish.again(), wish.keeps(), caller.held.id);
        let both = wish.has(OFlags::RDWR);
        if both || wish.has(OFlags::NONBLOCK) || there.is_nameless() {
            return Ok(Done::Descriptor(reopen(&there.open, flags, Mode::empty())?, keep));
        }
        let thread = caller.held.thread;
        self.later(caller, move |supervisor| {
            let (tell, told) = channel();
            let pipe = Arc::new(there.open);
            let opening = Arc::clone(&pipe);
            let spawned = std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn(move || tell.send(reopen(&opening, flags, Mode::empty())));
            if spawned.is_err() {
                return Err(Errno::AGAIN);
            }
            loop {
                match told.recv_timeout(PAUSE) {
                    Ok(opened) => return Ok(Done::Descriptor(opened?, keep)),
                    Err(RecvTimeoutError::Disconnected) => return Err(Errno::AGAIN),
                    Err(RecvTimeoutError::Timeout) if supervisor.waits(id) && !others::has_signal(thread) => {}
                    Err(RecvTimeoutError::Timeout) => {
                        // Being both ends for a moment ends the wait of the thread that opens.
                        let _ = reopen(&pipe, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
                        return Err(Errno::INTR);
                    }
                }
            }
        })
    }

    fn open_own_terminal(self: &Arc<Self>, caller: &Caller, wish: &Wish) -> Result<Done, Errno> {
        let number = caller.terminal().ok_or(Errno::NXIO)?;
        if self.charge.mounted {
            let opened = openat(CWD, format!("/dev/pts/{number}"), wish.again(), Mode::empty())?;
            return Ok(Done::Descriptor(opened, wish.keeps()));
        }
        let terminals = lock(&self.terminals);
        let terminal = terminals.own(number).ok_or(Errno::NXIO)?;
        let opened = reopen(terminal, wish.again(), Mode::empty())?;
        Ok(Done::Descriptor(opened, wish.keeps()))
    }

    /// Watches a file or a folder that may be read (inotify(7)).
    pub(super) fn watch(&self, caller: &Caller) -> Result<Done, Errno> {
        let wish = inotify::WatchFlags::from_bits_retain(caller.flags(2));
        let aim = if wish.contains(inotify::WatchFlags::DONT_FOLLOW) {
            Aim::Link
        } else {
            Aim::End
        };
        let path = self.instead(caller.path(1)?);
        let Found::There(there) = find(caller, libc::AT_FDCWD, &path, aim)? else {
            return Err(Errno::NOENT);
        };
        self.insist_on(&there, May::Read)?;
        let watcher = caller.descriptor(caller.number(0))?;
        let itself = format!("/proc/self/fd/{}", there.open.as_raw_fd());
        let number = inotify::add_watch(&watcher, itself, wish - inotify::WatchFlags::DONT_FOLLOW)?;
        Ok(Done::Value(number.into()))
    }

    fn may_use_device(&self, path: &Path) -> May {
        let Ok(name) = path.strip_prefix("/dev") else {
            return May::Nothing;
        };
        let Some(name) = name.to_str() else {
            return May::Nothing;
        };
        if self.charge.mounted {
            // All of them are the fence's own, or named by the person.
            return May::Write;
        }
        let terminals = lock(&self.terminals);
        let own = |number: &str| number.parse().is_ok_and(|number| terminals.own(number).is_some());
        if DEVICES.contains(&name) || is_terminal_maker(path) || name.strip_prefix("pts/").is_some_and(own) {
            May::Write
        } else if name == "pts" {
            May::Read
        } else if self.charge.scope.is_granted(path) {
            // A device that the person names.
            May::Write
        } else {
            May::Nothing
        }
    }
}

fn is_terminal_maker(path: &Path) -> bool {
    path == Path::new("/dev/ptmx") || path == Path::new("/dev/pts/ptmx")
}
