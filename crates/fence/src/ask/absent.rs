//! What lies below the scratch home: nothing, with an ear.
//!
//! Answers: what of the person's home was looked for in there, that is there outside and was not granted?
//! Promises: P1 (every name is absent, whatever it is outside), P10 (each is put on record, once).
//! Trust: names are the agent's. It learns nothing: a name that is there outside is as absent as one that is not, and what is
//! told is told to the log alone. At most [`MOST`] are.
//! The kernel lays the scratch home over this (overlayfs), so that only names which are not in scratch come here, each once.
//! See: `Documentation/filesystems/overlayfs.rst`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use bailiwick_model::AbsPath;
use rustix::fs::{AtFlags, statat};
use rustix::io::{Errno, IoSlice, writev};

use super::line::Line;
use super::wire::{self, Answer, Asked, op};

/// Most names that are told of one task.
const MOST: usize = 64;
/// How long the kernel may believe that a name is absent, in seconds: as long as the task runs.
const LONG: u64 = 1 << 30;

/// An empty folder in the place of the person's home.
pub(super) struct Absent {
    /// Where the home lies.
    pub place: AbsPath,
    /// The home itself.
    pub home: OwnedFd,
    /// The kernel's end.
    pub device: OwnedFd,
    /// Who the fence's user is inside.
    pub owner: (u32, u32),
    pub line: Arc<Line>,
    /// What was told, and what is never: names on the way to what is granted.
    pub told: Mutex<(HashSet<OsString>, usize)>,
}

impl Absent {
    /// Serves one request.
    pub(super) fn serve(&self, bytes: &[u8]) {
        let Some(asked) = Asked::of(bytes) else {
            return;
        };
        let answer = match asked.operation {
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return,
            op::INIT => wire::greeting(&asked).ok_or(Errno::PROTO),
            op::LOOKUP => asked.fields().name().map(|name| {
                self.sought(name);
                wire::absent(LONG)
            }),
            op::GETATTR => Ok(wire::empty_folder(self.owner)),
            op::OPENDIR => Ok(wire::opened(Answer::default(), 1).done()),
            op::READDIR | op::RELEASEDIR | op::ACCESS | op::DESTROY | op::FLUSH | op::FSYNCDIR => Ok(Vec::new()),
            op::STATFS => Ok(wire::no_space()),
            op::CREATE | op::MKDIR | op::MKNOD | op::SYMLINK | op::LINK | op::SETATTR => Err(Errno::ROFS),
            _ => Err(Errno::NOSYS),
        };
        let (error, body) = match &answer {
            Ok(body) => (None, body.as_slice()),
            Err(errno) => (Some(*errno), [].as_slice()),
        };
        let head = wire::head(asked.unique, error, body.len());
        let _ = writev(&self.device, &[IoSlice::new(&head), IoSlice::new(body)]);
    }

    /// Tells of a name that is there outside, the first time that it is looked for.
    fn sought(&self, name: &OsStr) {
        let Some(path) = name.to_str().and_then(|name| self.place.join(name).ok()) else {
            return;
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.1 >= MOST || told.0.contains(name) || statat(&self.home, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return;
        }
        told.0.insert(name.to_owned());
        told.1 = told.1.saturating_add(1);
        self.line.missed(&format!("read {path}"));
    }
}
