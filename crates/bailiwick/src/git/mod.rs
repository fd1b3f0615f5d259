//! Git as people use it: their settings without what names programs, where a work tree's repository lies, and work trees
//! for one task each.
//!
//! Promises: P2 (nothing of a repository is granted that does not itself say that it belongs to this place), P13 (that
//! commits are not signed in here is said before, and git says it again).
//! Trust: the person's own configuration is theirs; what lies in a project, `.git` files too, is anyone's.
//! Not here: what is guarded in a repository (the builtin rules).

pub mod outside;
pub mod repository;
pub mod settings;
pub mod signing;
pub mod worktree;

use std::path::Path;
use std::process::{Command, Stdio};

/// A git that runs none of the project's or person's programs, asks nobody, and says nothing but its output.
fn quiet_git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
        .stdin(Stdio::null());
    command
}
