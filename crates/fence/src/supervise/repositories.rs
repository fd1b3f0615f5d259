//! Repositories under other names: for git a folder is one by what lies in it.
//!
//! Answers: would this name make a folder a repository, or change what git obeys in one? Promises: P1, P5 (`.git` is only the
//! usual name: `git status` in any folder with `HEAD`, `objects` and `refs` starts what its `config` says).
//! Trust: folders and names are the agent's. Not here: what lies below a folder called `.git`, for which there are rules.
//! See: gitrepository-layout(5); `is_git_directory` in git's `setup.c`.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::MutexGuard;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

use super::walk::Absent;
use super::{Supervisor, lock};

/// What a folder is a repository by.
const PARTS: [&[u8]; 4] = [b"HEAD", b"objects", b"refs", b"commondir"];
/// What git obeys in one.
const OBEYED: [&[u8]; 3] = [b"config", b"config.worktree", b"hooks"];

fn is_part(name: &OsStr) -> bool {
    PARTS.contains(&name.as_bytes())
}

fn is_hooks(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "hooks")
}

/// False for most names: git asks for none of them.
pub(super) fn may_be_obeyed(folder: &Path, name: &OsStr) -> bool {
    is_part(name) || OBEYED.contains(&name.as_bytes()) || is_hooks(folder)
}

/// True for a folder that is a repository, or would be with one name more.
fn is_repository(folder: impl AsFd, with: Option<&OsStr>) -> bool {
    let has =
        |name: &str| with.is_some_and(|with| with == name) || statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

impl Supervisor {
    /// True when a name may not be given or its content changed, since git obeys it or would come to.
    pub(super) fn is_of_repository(&self, folder: impl AsFd, folder_path: &Path, name: &OsStr) -> bool {
        if !may_be_obeyed(folder_path, name) {
            return false;
        }
        let in_hooks = is_hooks(folder_path);
        let usual = folder_path
            .components()
            .any(|step| step == Component::Normal(OsStr::new(".git")));
        if usual || !self.charge.scope.guards_repositories(folder_path) {
            return false;
        }
        if is_part(name) {
            return is_repository(&folder, Some(name));
        }
        let above = openat(&folder, c"..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        is_repository(&folder, None) || (in_hooks && above.is_ok_and(|above| is_repository(above, None)))
    }

    /// Keeps others from making another part of a repository meanwhile.
    pub(super) fn alone_for(&self, place: &Absent) -> Option<MutexGuard<'_, ()>> {
        is_part(&place.name).then(|| lock(&self.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_folder_is_a_repository_by_what_lies_in_it() {
        let room = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(room.path()).unwrap();
        let with = |name: &str| is_repository(&open, Some(OsStr::new(name)));
        std::fs::write(room.path().join("HEAD"), "").unwrap();
        assert!(!with("objects") && with("commondir"));
        std::fs::create_dir(room.path().join("objects")).unwrap();
        assert!(with("refs") && !is_repository(&open, None));
        std::fs::create_dir(room.path().join("refs")).unwrap();
        assert!(is_repository(&open, None));
    }
}
