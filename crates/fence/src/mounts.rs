//! Mounts by descriptor: made, copied, laid on a place that is open, so that no path is looked up twice.
//!
//! Promises: P5, P13. Not here: what is mounted where (`root`, `masks`, `lookout`).
//! See: fsopen(2), open_tree(2), move_mount(2).

use std::os::fd::{AsFd, OwnedFd};

use rustix::mount::{
    FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsopen, move_mount, open_tree,
};

use crate::sys;

/// A new file system, not mounted yet.
pub(crate) fn fresh(kind: &str, settings: &[(&str, Option<&str>)]) -> rustix::io::Result<OwnedFd> {
    let made = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in settings {
        match value {
            Some(value) => fsconfig_set_string(made.as_fd(), *name, *value)?,
            None => fsconfig_set_flag(made.as_fd(), *name)?,
        }
    }
    fsconfig_create(made.as_fd())?;
    Ok(made)
}

/// A copy of what is mounted at a place, with all below it.
pub(crate) fn clone_of(folder: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(folder, path, flags)
}

/// Mounts at a path, which is looked up.
pub(crate) fn attach(mount: &OwnedFd, folder: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<()> {
    move_mount(mount, c"", folder, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Mounts on what is open.
pub(crate) fn attach_on(mount: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", place, c"", flags)
}

/// Mounts a file or folder on itself: read-only, or as it is so that it cannot be renamed.
pub(crate) fn pin(place: &OwnedFd, read_only: bool) -> std::io::Result<()> {
    let copy = clone_of(place, "")?;
    if read_only {
        sys::add_mount_flags(&copy, MountAttrFlags::MOUNT_ATTR_RDONLY, true)?;
    }
    Ok(attach_on(&copy, place)?)
}

/// Puts a file, read-only, in the place of a link that leads to it, so that the link cannot be replaced. Older
/// kernels refuse to mount on links.
pub(crate) fn stand_in(file: &OwnedFd, link: &OwnedFd) -> std::io::Result<()> {
    let copy = clone_of(file, "")?;
    sys::add_mount_flags(&copy, MountAttrFlags::MOUNT_ATTR_RDONLY, true)?;
    Ok(attach_on(&copy, link)?)
}
