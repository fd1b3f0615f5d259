//! A work tree for one task: made beside the project, on a branch of its own, kept at the end.
//!
//! It lies in `PROJECT.worktrees/NAME` beside the project, on the branch `bailiwick/NAME`, from where the project stands
//! now. What is not committed is not in it. No hook runs when it is made.

use std::path::{Path, PathBuf};

use bailiwick_model::AbsPath;

use super::quiet_git;
use crate::context::RULE_FILE;
use crate::failure::Failure;

/// What branches of tasks begin with.
const PREFIX: &str = "bailiwick/";

/// Longest name, in bytes.
const MAX_NAME: usize = 64;

/// A work tree of a task.
#[derive(Debug)]
pub struct Worktree {
    /// Where the task starts: as deep in it as the person stands in the project.
    pub directory: AbsPath,
    place: PathBuf,
    branch: String,
    project: PathBuf,
    fresh: bool,
    changed: bool,
}

fn fault(what: &str, cause: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("cannot make a work tree: {what}{cause}"))
}

fn said(folder: &Path, words: &[&str]) -> Result<String, String> {
    let done = quiet_git(folder)
        .args(words)
        .output()
        .map_err(|e| format!("git cannot be started: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(text(&done.stderr).lines().last().unwrap_or("git failed").to_owned())
    }
}

impl Worktree {
    /// Makes the work tree of this name for whoever stands in `directory`, or goes on in the one that is there. Without a
    /// name it takes the next number.
    pub fn make(directory: &AbsPath, name: Option<&str>) -> Result<Self, Failure> {
        let here = directory.to_path_buf();
        let top = said(&here, &["rev-parse", "--show-toplevel"]).map_err(|cause| {
            fault("this is no work tree of git: ", cause).hint("go to a repository, or `git init` one")
        })?;
        let top = PathBuf::from(top);
        said(&top, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .map_err(|_| fault("there is no commit yet to begin from", "").hint("commit something first"))?;
        let folder_name = top.file_name().map(|name| name.to_string_lossy().into_owned());
        let (Some(folder_name), Some(above)) = (folder_name, top.parent()) else {
            return Err(fault("the project has no folder beside it", ""));
        };
        let beside = above.join(format!("{folder_name}.worktrees"));
        let taken = |name: &str| {
            let branch = format!("refs/heads/{PREFIX}{name}");
            beside.join(name).symlink_metadata().is_ok()
                || said(&top, &["show-ref", "--verify", "--quiet", &branch]).is_ok()
        };
        let name = match name.filter(|name| !name.is_empty()) {
            Some(name) => checked(name)?.to_owned(),
            None => {
                let free = (1..10_000u32)
                    .map(|number| number.to_string())
                    .find(|name| !taken(name));
                free.ok_or_else(|| fault("no number is free", ""))?
            }
        };
        let (place, branch) = (beside.join(&name), format!("{PREFIX}{name}"));
        let fresh = place.symlink_metadata().is_err();
        if fresh {
            let path = place.to_string_lossy().into_owned();
            let known = said(
                &top,
                &["show-ref", "--verify", "--quiet", &format!("refs/heads/{branch}")],
            )
            .is_ok();
            let words: Vec<&str> = if known {
                vec!["worktree", "add", "--quiet", &path, &branch]
            } else {
                vec!["worktree", "add", "--quiet", "-b", &branch, &path]
            };
            said(&top, &words).map_err(|cause| fault("", cause))?;
            // Rules that are not in the repository hold here as well: by the same text, they are as trusted.
            let (from, to) = (top.join(RULE_FILE), place.join(RULE_FILE));
            if from.is_file() && to.symlink_metadata().is_err() {
                std::fs::copy(&from, &to).map_err(|e| fault("the rule file cannot be copied: ", e))?;
            }
        } else {
            let common = |folder: &Path| said(folder, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
            let (here, there) = (common(&top), common(&place));
            if here.is_err() || here != there {
                return Err(fault(
                    "",
                    format!("`{}` is there and is none of this repository", place.display()),
                ));
            }
        }
        let below = here.strip_prefix(&top).unwrap_or(Path::new(""));
        let inner = place.join(below);
        let directory = if inner.is_dir() { &inner } else { &place };
        let changed = said(&top, &["status", "--porcelain"]).is_ok_and(|text| !text.is_empty());
        Ok(Self {
            directory: AbsPath::new(directory).map_err(|e| fault("", e))?,
            place,
            branch,
            project: top,
            fresh,
            changed,
        })
    }

    /// What the person is told before.
    pub fn begun(&self) -> String {
        let mut text = format!(
            "bailiwick: {} the work tree `{}`, on the branch `{}`\n",
            if self.fresh { "in" } else { "again in" },
            self.place.display(),
            self.branch
        );
        if self.fresh && self.changed {
            text.push_str("  note      what is not committed in the project is not in there\n");
        }
        text
    }

    /// What the person is told at the end.
    pub fn ended(&self) -> String {
        let ahead = said(
            &self.project,
            &["rev-list", "--count", &format!("HEAD..{}", self.branch)],
        )
        .unwrap_or_default();
        let dirty = said(&self.place, &["status", "--porcelain"]).is_ok_and(|text| !text.is_empty());
        let commits = match ahead.as_str() {
            "" | "0" => "no commits of its own".to_owned(),
            "1" => "one commit of its own".to_owned(),
            more => format!("{more} commits of its own"),
        };
        let (place, branch) = (self.place.display(), &self.branch);
        let (left, first, force) = if dirty {
            (
                ", and changes that are not committed",
                format!("git -C {place} add -A && git -C {place} commit && "),
                "--force ",
            )
        } else {
            ("", String::new(), "")
        };
        let mut text = format!("bailiwick: the work tree `{place}` is kept: {commits}{left}\n");
        if dirty || !matches!(ahead.as_str(), "" | "0") {
            text.push_str(&format!("  to take   {first}git merge {branch}\n"));
        }
        text.push_str(&format!(
            "  to remove git worktree remove {force}{place} && git branch -D {branch}\n"
        ));
        text
    }
}

/// A name that is a folder's and a branch's at the same time.
fn checked(name: &str) -> Result<&str, Failure> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if plain
        && begins
        && name.len() <= MAX_NAME
        && !name.contains("..")
        && !name.ends_with(".lock")
        && !name.ends_with('.')
    {
        return Ok(name);
    }
    Err(Failure::usage(format!(
        "`{}` is no name for a work tree",
        bailiwick_model::visible(name)
    ))
    .hint("letters, digits, `-`, `_` and dots; it begins with a letter or a digit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for good in ["fix", "fix-1", "v1.2", "A_b"] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "-x", "a..b", "x.lock", "a b", "x.", "ä", "~"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
