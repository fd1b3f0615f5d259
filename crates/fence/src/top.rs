//! The folder that all trees of a fence are seen in: a root of its own, or the machine's.
//!
//! Promises: P5 (a place is found without following any link; the end of a link is asked of the kernel).
//! Trust: what lies below may be links that an agent planted.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use bailiwick_model::AbsPath;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};

/// A path as it is called below a top folder.
pub(crate) fn inside(path: &AbsPath) -> PathBuf {
    let path = path.to_path_buf();
    path.strip_prefix("/").map(Path::to_path_buf).unwrap_or(path)
}

/// The top folder.
#[derive(Debug)]
pub(crate) struct Top {
    folder: OwnedFd,
}

impl AsFd for Top {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Top {
    /// A folder as the top.
    pub(crate) fn of(folder: OwnedFd) -> Self {
        Self { folder }
    }

    /// The machine's own root.
    pub(crate) fn of_machine() -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, c"/", flags, Mode::empty()).map(Self::of)
    }

    /// Opens what stands at a path below it, following no link.
    pub(crate) fn exact(&self, inside: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.folder, inside, flags, Mode::empty(), how)
    }

    /// Opens the folder at a path below it, to be read, following no link.
    pub(crate) fn folder(&self, inside: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.exact(inside)?, c".", flags, Mode::empty())
    }

    /// Follows a link to its end, inside. None when it leads nowhere. Also says whether that is a folder.
    pub(crate) fn end_of_link(&self, inside: &Path) -> Option<(PathBuf, bool)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let end = openat2(&self.folder, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        let stat = fstat(&end).ok()?;
        let folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let mut here = inside.to_path_buf();
        // The kernel said that there is an end; now find its name, step by step.
        for _ in 0..40 {
            let mut walked = PathBuf::new();
            let mut link = None;
            let mut steps = here.components();
            for step in steps.by_ref() {
                if step == Component::ParentDir {
                    walked.pop();
                    continue;
                }
                let Component::Normal(name) = step else {
                    continue;
                };
                let next = walked.join(name);
                if let Ok(text) = readlinkat(&self.folder, &next, Vec::new()) {
                    link = Some(text);
                    break;
                }
                walked = next;
            }
            let Some(text) = link else {
                let same = self.exact(&walked).and_then(fstat).ok()?;
                return ((same.st_dev, same.st_ino) == (stat.st_dev, stat.st_ino)).then_some((walked, folder));
            };
            let text = PathBuf::from(OsString::from_vec(text.into_bytes()));
            let led = if text.is_absolute() { text } else { walked.join(text) };
            here = led.join(steps.as_path());
        }
        None
    }
}
