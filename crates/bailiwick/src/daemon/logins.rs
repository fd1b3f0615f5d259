//! The login that an agent's contexts share: kept once, linked into what each context keeps, gathered in again when an
//! agent has put a new file in place of the link.
//!
//! Promises: P9, as its stated exception: an agent's own model login is the agent's to read, and to renew.
//! Trust: what is gathered, an agent wrote. It reaches nothing but the next task of the same agent, whose own it is: an
//! agent that was taken over can leave another's login there (SECURITY.md). No link of its is followed.
//! Some programs write in place, which goes through a link (opencode); others put a new file there (codex, Claude Code).

use std::os::fd::OwnedFd;
use std::path::Path;

use bailiwick_model::AbsPath;
use bailiwick_policy::Login;
use rustix::fs::{AtFlags, CWD, FileType, Mode, openat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::kept::{FOLDER, below, into, put, read, unlike};

/// What is shared of one context's.
#[derive(Debug)]
pub struct Shared {
    /// The folder that the context's files lie in, below which nothing but folders of bailiwick's and the agent's lie.
    home: OwnedFd,
    /// The folder of the login; none when nobody has signed in.
    login: Option<OwnedFd>,
    /// Each file: the steps to its folder, its name, and what the link to the login says.
    files: Vec<(Vec<String>, String, String)>,
}

impl Shared {
    /// Finds what a context shares. `context` is the folder of what it keeps, `logins` that of the agent's login.
    pub fn of(login: &Login, home: &AbsPath, context: &Path, logins: &Path) -> Option<Self> {
        let place = below(home, &login.place)?;
        let mut files = Vec::new();
        for file in &login.files {
            let mut steps: Vec<String> = below(home, file)?.into_iter().map(str::to_owned).collect();
            let name = steps.pop()?;
            // Relative, so that it holds wherever the home stands inside.
            let link = format!("{}{}/{name}", "../".repeat(steps.len()), place.join("/"));
            files.push((steps, name, link));
        }
        Some(Self {
            home: openat(CWD, context.join("home"), FOLDER, Mode::empty()).ok()?,
            login: openat(CWD, logins, FOLDER, Mode::empty()).ok(),
            files,
        })
    }

    /// The same while a task runs, and when it has ended: where there is a login, and nobody has removed it since.
    pub fn gather(&self) -> Result<(), Errno> {
        let there = |login: &OwnedFd| rustix::fs::fstat(login).is_ok_and(|stat| stat.st_nlink > 0);
        if self.login.as_ref().is_some_and(there) {
            self.settle()
        } else {
            Ok(())
        }
    }

    /// Brings context and login together: what the agent has put in place of a link, and what is newer than what is
    /// shared, becomes what is shared; then each file is a link to it. Without a login, the links are taken away.
    pub fn settle(&self) -> Result<(), Errno> {
        for (steps, name, link) in &self.files {
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            let folder = into(&self.home, &steps)?;
            let there = statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
            let kind = there.map(|stat| FileType::from_raw_mode(stat.st_mode));
            match (&self.login, kind) {
                (None, Some(FileType::Symlink)) => unlinkat(&folder, name.as_str(), AtFlags::empty())?,
                (None, _) | (Some(_), Some(FileType::Symlink)) => {}
                (Some(login), Some(FileType::RegularFile)) => {
                    let known = statat(login, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
                    let when = |stat: rustix::fs::Stat| (stat.st_mtime, stat.st_mtime_nsec);
                    if known.map(when) < there.map(when)
                        && let Some(bytes) = read(&folder, name)
                    {
                        put(login, name, &bytes)?;
                    }
                    relink(&folder, name, link)?;
                }
                (Some(_), None) => relink(&folder, name, link)?,
                // A folder or a pipe in its place is the agent's own affair.
                (Some(_), Some(_)) => {}
            }
        }
        Ok(())
    }
}

/// Puts a link in place of whatever has its name, in one step.
fn relink(folder: &OwnedFd, name: &str, link: &str) -> Result<(), Errno> {
    let passing = unlike();
    symlinkat(link, folder, passing.as_str())?;
    renameat(folder, passing.as_str(), folder, name)
}
