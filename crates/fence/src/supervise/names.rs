//! Making, removing and renaming for the agent, and what a file has besides its content: mode, owner, times.
//!
//! Promises: P1, P5. A name is changed in a folder that is open here, by the name alone. A folder on the way to
//! protected places keeps its name, and no other takes it by being renamed: `.git` cannot be moved away and back.
//! Trust: paths and flags are the agent's.
//! See: rename(2), link(2), mknod(2), chmod(2), utimensat(2).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, chmodat, chownat, ftruncate,
    linkat, mkdirat, mknodat, openat, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::caller::{Caller, split_last};
use super::files::{object, path_to};
use super::scope::May;
use super::walk::{Absent, Aim, There, at_name, find_name, there};
use super::{Done, Supervisor, base_in, lock};

/// The bits of a mode that may be set: none by which a file runs as its owner.
const MODE: u32 = 0o1777;
const HERE: i32 = libc::AT_FDCWD;

fn done<T>(result: Result<T, Errno>) -> Result<Done, Errno> {
    result.map(|_| Done::Value(0))
}

fn known(flags: u32, known: i32) -> Result<(), Errno> {
    if flags & !known.cast_unsigned() == 0 {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}

impl Supervisor {
    fn name(&self, caller: &Caller, base: i32, path: PathBuf) -> Result<Absent, Errno> {
        find_name(caller, base, &self.instead(path))
    }

    /// The folder and the name of what is to be made. `.` and `..` are taken.
    fn new_name(&self, caller: &Caller, base: i32, path: PathBuf) -> Result<Absent, Errno> {
        match split_last(&path) {
            Some(_) => self.name(caller, base, path),
            None => there(caller, base, &self.instead(path), Aim::End).and(Err(Errno::EXIST)),
        }
    }

    /// Insists that a name is not taken, and that something may be made there.
    fn insist_free(&self, place: &Absent, folder: bool) -> Result<(), Errno> {
        if at_name(place).is_ok() {
            return Err(Errno::EXIST);
        }
        self.insist(&place.path(), self.may_make(place, folder), May::Write)
    }

    pub(super) fn make_folder(self: &Arc<Self>, caller: &Caller, base: i32, path: usize) -> Result<Done, Errno> {
        let place = self.new_name(caller, base, caller.path(path)?)?;
        let _alone = self.alone_for(&place);
        self.insist_free(&place, true)?;
        let mode = caller.flags(path.saturating_add(1)) & MODE & !caller.umask();
        let path = place.path();
        self.carry_out(caller, &[&path], None, move || {
            done(mkdirat(&place.folder, &place.name, Mode::from_raw_mode(mode)))
        })
    }

    pub(super) fn make_node(self: &Arc<Self>, caller: &Caller, base: i32, path: usize) -> Result<Done, Errno> {
        let wanted = caller.flags(path.saturating_add(1));
        let kind = match FileType::from_raw_mode(wanted) {
            FileType::Unknown => FileType::RegularFile,
            kind @ (FileType::RegularFile | FileType::Fifo | FileType::Socket) => kind,
            _ => return Err(Errno::PERM),
        };
        let place = self.new_name(caller, base, caller.path(path)?)?;
        let _alone = self.alone_for(&place);
        self.insist_free(&place, false)?;
        let mode = Mode::from_raw_mode(wanted & 0o777 & !caller.umask());
        let path = place.path();
        self.carry_out(caller, &[&path], None, move || {
            done(mknodat(&place.folder, &place.name, kind, mode, 0))
        })
    }

    pub(super) fn make_link(
        self: &Arc<Self>,
        caller: &Caller,
        base: i32,
        text: usize,
        path: usize,
    ) -> Result<Done, Errno> {
        let text = caller.path(text)?;
        let place = self.new_name(caller, base, caller.path(path)?)?;
        // What is being renamed is not to become a link meanwhile.
        let alone = lock(&self.names);
        self.insist_free(&place, false)?;
        if self.charge.scope.keeps_its_name(&place.path()) {
            return Err(Errno::ROFS);
        }
        let path = place.path();
        self.carry_out(caller, &[&path], Some(alone), move || {
            done(symlinkat(&text, &place.folder, &place.name))
        })
    }

    pub(super) fn remove(&self, caller: &Caller, base: i32, path: usize, flags: u32) -> Result<Done, Errno> {
        known(flags, libc::AT_REMOVEDIR)?;
        let place = self.name(caller, base, caller.path(path)?)?;
        let _alone = lock(&self.names);
        let there = at_name(&place)?;
        self.insist_movable(&place, &there)?;
        let how = AtFlags::from_bits_retain(flags);
        unlinkat(&place.folder, &place.name, how)?;
        if there.kind().is_socket() {
            self.forget_socket(&there.open);
        }
        Ok(Done::Value(0))
    }

    /// Insists that what stands at a name may go from it.
    fn insist_movable(&self, place: &Absent, there: &There) -> Result<(), Errno> {
        self.insist(
            &place.path(),
            self.charge.scope.may(&place.path(), object(there)),
            May::Write,
        )?;
        let pinned = self.charge.scope.keeps_its_name(&place.path());
        if pinned && !there.kind().is_file() {
            // A folder that is empty holds nothing that could go by another name.
            return if there.kind().is_dir() && is_empty(there) {
                Ok(())
            } else {
                Err(Errno::ROFS)
            };
        }
        Ok(())
    }

    pub(super) fn link(
        self: &Arc<Self>,
        caller: &Caller,
        bases: [usize; 2],
        paths: [usize; 2],
        flags: u32,
    ) -> Result<Done, Errno> {
        known(flags, libc::AT_SYMLINK_FOLLOW)?;
        let aim = if flags == 0 { Aim::Link } else { Aim::End };
        let [base, new_base] = bases.map(|place| base_in(caller, place));
        let [path, new_path] = paths.map(|place| caller.path(place));
        let source = there(caller, base, &self.instead(path?), aim)?;
        if source.kind().is_dir() {
            return Err(Errno::PERM);
        }
        self.insist_on(&source, May::Write)?;
        let place = self.new_name(caller, new_base, new_path?)?;
        let alone = lock(&self.names);
        self.insist_free(&place, false)?;
        if !source.kind().is_file() && self.charge.scope.keeps_its_name(&place.path()) {
            return Err(Errno::ROFS);
        }
        let path = place.path();
        self.carry_out(caller, &[&path], Some(alone), move || {
            let name = path_to(&source.open)?;
            done(linkat(CWD, &name, &place.folder, &place.name, AtFlags::SYMLINK_FOLLOW))
        })
    }

    pub(super) fn rename(
        self: &Arc<Self>,
        caller: &Caller,
        bases: [usize; 2],
        paths: [usize; 2],
        flags: u32,
    ) -> Result<Done, Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::INVAL);
        }
        let [base, new_base] = bases.map(|place| base_in(caller, place));
        let [path, new_path] = paths.map(|place| caller.path(place));
        let (from, to) = (self.name(caller, base, path?)?, self.name(caller, new_base, new_path?)?);
        // What is judged is what is moved: the agent changes names by way of here alone.
        let alone = lock(&self.names);
        let moved = at_name(&from)?;
        let replaced = match at_name(&to) {
            Ok(there) => Some(there),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if replaced.is_some() && flags.contains(RenameFlags::NOREPLACE) {
            return Err(Errno::EXIST);
        }
        self.insist_movable(&from, &moved)?;
        self.insist_settable(&to, &moved)?;
        if let Some(replaced) = &replaced {
            self.insist_movable(&to, replaced)?;
            if flags.contains(RenameFlags::EXCHANGE) {
                self.insist_settable(&from, replaced)?;
            }
        }
        let folder = [Some(&moved), replaced.as_ref()]
            .into_iter()
            .flatten()
            .any(|there| there.kind().is_dir());
        if folder && !self.charge.scope.is_alike(&from.path(), &to.path()) {
            // As between file systems: what is in it is to be copied.
            return Err(Errno::XDEV);
        }
        let (old, new) = (from.path(), to.path());
        self.carry_out(caller, &[&old, &new], Some(alone), move || {
            done(renameat_with(&from.folder, &from.name, &to.folder, &to.name, flags))
        })
    }

    /// Insists that an object may come to a name.
    fn insist_settable(&self, place: &Absent, there: &There) -> Result<(), Errno> {
        let may = match self.is_of_repository(&place.folder, &place.folder_path, &place.name) {
            true => May::Read,
            false => self.charge.scope.may(&place.path(), object(there)),
        };
        self.insist(&place.path(), may, May::Write)?;
        if !there.kind().is_file() && self.charge.scope.keeps_its_name(&place.path()) {
            return Err(Errno::ROFS);
        }
        Ok(())
    }

    pub(super) fn truncate(self: &Arc<Self>, caller: &Caller) -> Result<Done, Errno> {
        let there = there(caller, HERE, &self.instead(caller.path(0)?), Aim::End)?;
        if !there.kind().is_file() {
            return Err(if there.kind().is_dir() {
                Errno::ISDIR
            } else {
                Errno::INVAL
            });
        }
        self.insist_on(&there, May::Write)?;
        let length = caller.argument(1);
        if length > i64::MAX.unsigned_abs() {
            return Err(Errno::INVAL);
        }
        let path = there.path.clone().unwrap_or_default();
        self.carry_out(caller, &[&path], None, move || {
            let name = path_to(&there.open)?;
            let open = openat(CWD, &name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            done(ftruncate(&open, length))
        })
    }

    /// An open file of the caller's whose own things it may change.
    fn own_open(&self, caller: &Caller) -> Result<OwnedFd, Errno> {
        let there = There::of(caller.descriptor(caller.number(0))?)?;
        self.insist_on(&there, May::Write)?;
        Ok(there.open)
    }

    /// An object whose own things may be changed, by path, or by descriptor where the path is empty and may be.
    fn changeable(&self, caller: &Caller, base: i32, path: usize, flags: u32) -> Result<There, Errno> {
        let there = if flags & libc::AT_EMPTY_PATH.cast_unsigned() != 0 && caller.is_empty(path) {
            There::of(caller.base(base)?)?
        } else {
            let aim = if flags & libc::AT_SYMLINK_NOFOLLOW.cast_unsigned() == 0 {
                Aim::End
            } else {
                Aim::Link
            };
            there(caller, base, &self.instead(caller.path(path)?), aim)?
        };
        self.insist_on(&there, May::Write)?;
        Ok(there)
    }

    pub(super) fn change_open_mode(&self, caller: &Caller) -> Result<Done, Errno> {
        let open = self.own_open(caller)?;
        let mode = Mode::from_raw_mode(caller.flags(1) & MODE);
        done(rustix::fs::fchmod(&open, mode))
    }

    pub(super) fn change_mode(
        &self,
        caller: &Caller,
        base: i32,
        path: usize,
        mode: usize,
        flags: u32,
    ) -> Result<Done, Errno> {
        known(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let there = self.changeable(caller, base, path, flags)?;
        if there.kind().is_symlink() {
            return Err(Errno::OPNOTSUPP);
        }
        let (name, mode) = (path_to(&there.open)?, Mode::from_raw_mode(caller.flags(mode) & MODE));
        done(chmodat(CWD, &name, mode, AtFlags::empty()))
    }

    /// The user and group that a call names, from a place on.
    fn owners(caller: &Caller, place: usize) -> (Option<Uid>, Option<Gid>) {
        let id = |place: usize| Some(caller.flags(place)).filter(|id| *id != u32::MAX);
        (
            id(place).map(Uid::from_raw),
            id(place.saturating_add(1)).map(Gid::from_raw),
        )
    }

    pub(super) fn change_open_owner(&self, caller: &Caller) -> Result<Done, Errno> {
        let open = self.own_open(caller)?;
        let (user, group) = Self::owners(caller, 1);
        done(rustix::fs::fchown(&open, user, group))
    }

    pub(super) fn change_owner(&self, caller: &Caller, base: i32, path: usize, flags: u32) -> Result<Done, Errno> {
        known(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let there = self.changeable(caller, base, path, flags)?;
        let (user, group) = Self::owners(caller, path.saturating_add(1));
        done(chownat(&there.open, c"", user, group, AtFlags::EMPTY_PATH))
    }

    pub(super) fn change_times(&self, caller: &Caller) -> Result<Done, Errno> {
        let (base, path, times, flags) = match caller.held.call {
            libc::SYS_utimensat => (caller.number(0), Some(1), 2, caller.flags(3)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (caller.number(0), Some(1), 2, 0),
            _ => (HERE, Some(0), 1, 0),
        };
        known(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let path = path.filter(|path| caller.argument(*path) != 0);
        let there = match path {
            Some(path) => self.changeable(caller, base, path, flags)?,
            // Without a path, the open file itself.
            None => There::of(self.own_open(caller)?)?,
        };
        let times = given_times(caller, times)?;
        if there.kind().is_symlink() {
            return done(utimensat(&there.open, c"", &times, AtFlags::EMPTY_PATH));
        }
        let name = path_to(&there.open)?;
        done(utimensat(CWD, &name, &times, AtFlags::empty()))
    }
}

/// The two times that a call names; now, where it names none.
fn given_times(caller: &Caller, place: usize) -> Result<Timestamps, Errno> {
    let at = |seconds: i64, nanoseconds: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let now = at(0, libc::UTIME_NOW);
    if caller.argument(place) == 0 {
        return Ok(Timestamps {
            last_access: now,
            last_modification: now,
        });
    }
    let words = |bytes: &[u8]| -> Vec<i64> {
        let words = bytes
            .chunks_exact(8)
            .map(|word| <[u8; 8]>::try_from(word).unwrap_or_default());
        words.map(i64::from_ne_bytes).collect()
    };
    let (words, unit) = match caller.held.call {
        libc::SYS_utimensat => (words(&caller.bytes::<32>(place)?), 1),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => {
            let two = words(&caller.bytes::<16>(place)?);
            let whole = |place: usize| two.get(place).copied().unwrap_or(0);
            (vec![whole(0), 0, whole(1), 0], 1)
        }
        // In microseconds.
        _ => (words(&caller.bytes::<32>(place)?), 1000),
    };
    let word = |place: usize| words.get(place).copied().unwrap_or(0);
    let fine = |place: usize| word(place).checked_mul(unit).ok_or(Errno::INVAL);
    Ok(Timestamps {
        last_access: at(word(0), fine(1)?),
        last_modification: at(word(2), fine(3)?),
    })
}

fn is_empty(folder: &There) -> bool {
    let open = openat(
        &folder.open,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let Ok(entries) = open.and_then(rustix::fs::Dir::new) else {
        return false;
    };
    entries
        .flatten()
        .all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
}
