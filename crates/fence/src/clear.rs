//! Removes what an agent left in a folder, whatever it made of it.
//!
//! Promises: P11 (nothing is left behind). Trust: names, modes and depth are the agent's: folders that nobody may enter, and
//! more of them in one another than a process may have open. No link is followed; few descriptors are held at one time.
//! See: rename(2), unlink(2).

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, chmodat, openat, renameat_with, unlinkat};
use rustix::io::Errno;

/// How long it may take: something else may add to it meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes a folder and all in it. What is not there is removed.
pub fn remove_tree(top: &Path) -> std::io::Result<()> {
    let name = CString::new(top.as_os_str().as_bytes())?;
    let folder = match open(CWD, &name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    empty(&folder)?;
    Ok(unlinkat(CWD, &name, AtFlags::REMOVEDIR)?)
}

/// Opens a folder that its owner may have closed to everybody.
fn open(parent: impl AsFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    chmodat(CWD, itself, Mode::RWXU, AtFlags::empty())?;
    openat(&found, c".", flags, Mode::empty())
}

fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            found.push(entry.file_name().to_owned());
        }
    }
    Ok(found)
}

/// Empties a folder. What lies deep is brought up first, step by step, so that no way is too long.
fn empty(top: &OwnedFd) -> Result<(), Errno> {
    let begun = Instant::now();
    let mut number = 0u64;
    while begun.elapsed() < PATIENCE {
        let folders = unlink_files(top)?;
        if folders.is_empty() {
            return Ok(());
        }
        for name in folders {
            let folder = open(top, &name)?;
            for inner in unlink_files(&folder)? {
                // To be moved, it must be writable itself.
                open(&folder, &inner)?;
                number = bring_up(&folder, &inner, top, number)?;
            }
            unlinkat(top, &name, AtFlags::REMOVEDIR)?;
        }
    }
    Err(Errno::TIMEDOUT)
}

/// Removes all names in a folder but those of folders, which come back.
fn unlink_files(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut folders = names(folder)?;
    folders.retain(|name| unlinkat(folder, name, AtFlags::empty()).is_err());
    Ok(folders)
}

/// Moves a folder up under a number of its own; the next number.
fn bring_up(from: &OwnedFd, name: &CString, to: &OwnedFd, mut number: u64) -> Result<u64, Errno> {
    loop {
        let new = format!(".cleared-{number}");
        number = number.saturating_add(1);
        match renameat_with(from, name, to, OsStr::new(&new), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done.map(|()| number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn p11_closed_and_deep_folders_are_removed_and_no_link_is_followed() {
        let room = tempfile::tempdir().unwrap();
        let top = room.path().join("top");
        std::fs::create_dir_all(top.join("a/b/c")).unwrap();
        std::fs::create_dir_all(room.path().join("kept")).unwrap();
        std::fs::write(room.path().join("kept/file"), "").unwrap();
        for at in ["top/link", "top/a/link", "top/a/b/link"] {
            symlink(room.path().join("kept"), room.path().join(at)).unwrap();
        }
        std::fs::create_dir(top.join(".cleared-0")).unwrap();
        std::fs::write(top.join("a/b/c/file"), "").unwrap();
        let mut here = openat(CWD, &top, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, c"deep", Mode::RWXU).unwrap();
            here = openat(&here, c"deep", OFlags::PATH, Mode::empty()).unwrap();
        }
        for closed in ["a/b/c", "a/b", "a"] {
            std::fs::set_permissions(top.join(closed), PermissionsExt::from_mode(0o0)).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists() && room.path().join("kept/file").exists());
        remove_tree(&top).unwrap();
    }
}
