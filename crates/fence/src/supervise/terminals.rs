//! The fence's own terminals among the machine's.
//!
//! Promises: P1. The kernel uses the number of a terminal again as soon as it is closed: then it may be the person's. A
//! terminal is the fence's own while the very entry in `/dev/pts` is there that was found when it was made.
//! See: pts(4), ptmx(4).

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// Terminals by their numbers: their entries, open without rights, which keeps no terminal open.
#[derive(Debug, Default)]
pub(super) struct Terminals(HashMap<u32, OwnedFd>);

/// True while the entry has not been removed, which is done when the outer end is closed.
fn is_there(entry: &OwnedFd) -> bool {
    fstat(entry).is_ok_and(|stat| stat.st_nlink > 0)
}

impl Terminals {
    /// Adds a terminal whose outer end is open here.
    pub(super) fn add(&mut self, number: u32) -> Result<(), Errno> {
        self.0.retain(|_, entry| is_there(entry));
        let entry = openat(
            CWD,
            format!("/dev/pts/{number}"),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        self.0.insert(number, entry);
        Ok(())
    }

    /// The entry of a terminal that is the fence's own still.
    pub(super) fn own(&self, number: u32) -> Option<&OwnedFd> {
        self.0.get(&number).filter(|entry| is_there(entry))
    }
}
