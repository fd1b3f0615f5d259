//! Where the repository of a work tree lies when it lies elsewhere: linked work trees, submodules, and contexts in a
//! folder of a larger work tree.
//!
//! Promises: P2. A `.git` file says where a repository is, and anyone may have written it. It is believed only when the
//! repository says the same of this place: git wrote that, for a person. What is granted then is what git needs to commit
//! there: objects, branches and their logs, and the part that belongs to this work tree alone.
//! Trust: everything read here is hostile; nothing is run but `git config` on one file.
//! See: gitrepository-layout(5), git-worktree(1), gitsubmodules(7).

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bailiwick_model::AbsPath;
use bailiwick_policy::SourceFile;

use super::quiet_git;

/// Largest file that leads elsewhere, in bytes.
const MAX_LEAD: u64 = 8192;

/// The repository of a context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repository {
    /// The folder outside the context's root that holds it.
    folder: Option<AbsPath>,
    /// The rules with which git works here.
    pub rules: Option<SourceFile>,
    /// The work tree that this one is linked to.
    pub main: Option<AbsPath>,
    /// The top of the work tree that this context is only a folder of.
    pub above: Option<AbsPath>,
    note: Option<String>,
}

impl Repository {
    /// The folder that holds what belongs to this place, outside of it: the person's own, when rules grant something there.
    pub fn outside(&self) -> Option<&AbsPath> {
        self.folder.as_ref().or(self.above.as_ref())
    }

    /// What the person is told. `may_write` says what rules let write.
    pub fn told(&self, may_write: impl Fn(&AbsPath) -> bool) -> Option<String> {
        let Some(top) = &self.above else {
            return self.note.clone();
        };
        let repository = top.join(".git").ok()?;
        (!may_write(&repository)).then(|| {
            format!(
                "the repository's top, `{top}`, lies above this context, so git does not work in there; to let it: \
                 `read = [\"{top}\"]` and `write = [\".\", \"{repository}\"]` under [files]"
            )
        })
    }

    /// Finds the repository of a context's root.
    pub fn of(root: &AbsPath) -> Self {
        let top = root.to_path_buf();
        match top.join(".git").symlink_metadata() {
            Ok(found) if found.is_file() => elsewhere(root, &top).unwrap_or_else(|why| Self {
                note: Some(format!("git does not work in there: {why}")),
                ..Self::default()
            }),
            Ok(_) => Self::default(),
            Err(_) => Self {
                above: above(root),
                ..Self::default()
            },
        }
    }
}

/// A small file's first line, behind a word.
fn lead(path: &Path, word: &str) -> Option<PathBuf> {
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || found.len() > MAX_LEAD {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let named = text.strip_prefix(word)?.trim_end_matches(['\n', '\r']);
    (!named.is_empty() && !named.contains('\n')).then(|| PathBuf::from(named))
}

/// A path that is named in a folder, with all links resolved.
fn whole(folder: &Path, named: &Path) -> Option<PathBuf> {
    folder.join(named).canonicalize().ok()
}

fn elsewhere(root: &AbsPath, top: &Path) -> Result<Repository, String> {
    let file = top.join(".git");
    let named = lead(&file, "gitdir: ").ok_or("its `.git` file names no folder")?;
    let own =
        whole(top, &named).ok_or_else(|| format!("its `.git` file names `{}`, which is not there", named.display()))?;
    let top = top.canonicalize().map_err(|e| e.to_string())?;
    let own_path = AbsPath::new(&own).map_err(|e| e.to_string())?;
    if root.holds(&own_path) || own.starts_with(&top) {
        return Ok(Repository::default());
    }
    let mine =
        |path: &Path| path.metadata().map(|found| found.uid()).ok() == top.metadata().map(|found| found.uid()).ok();
    if !mine(&own) {
        return Err(format!("`{}` belongs to somebody else", own.display()));
    }
    if let Some(common) = common_of(&own, &file) {
        return linked(&own, &common);
    }
    if is_submodule_of(&own, &top) {
        let allow = [format!("write {}", ruled(&own)?)];
        let own = ruled(&own)?;
        let deny = ["commondir", "config", "config.worktree", "hooks"].map(|name| format!("write {own}/{name}"));
        return Ok(Repository {
            rules: Some(rules(&allow, &deny)),
            folder: Some(own_path),
            note: Some(format!("this is a submodule: git also writes in `{own}`")),
            ..Repository::default()
        });
    }
    Err(format!(
        "its `.git` file names `{}`, which does not name this place; `git worktree repair` mends that, or grant it by rule",
        own.display()
    ))
}

/// The folder that all work trees of a repository share, when `own` is the part of the work tree whose `.git` file is given,
/// and says so.
fn common_of(own: &Path, file: &Path) -> Option<PathBuf> {
    let worktrees = own.parent().filter(|parent| parent.ends_with("worktrees"))?;
    let common = whole(own, &lead(&own.join("commondir"), "")?)?;
    let back = whole(own, &lead(&own.join("gitdir"), "")?)?;
    let same = back == file.canonicalize().ok()? && worktrees.parent() == Some(&common);
    (same && common.join("objects").is_dir() && common.join("HEAD").is_file()).then_some(common)
}

fn linked(own: &Path, common: &Path) -> Result<Repository, String> {
    let (own, shared) = (ruled(own)?, ruled(common)?);
    // What may be absent is only granted where it is there.
    let folders = ["objects", "refs", "logs", "reftable", "rr-cache", "lfs"];
    let mut allow = vec![format!("read {shared}")];
    allow.extend(folders.iter().map(|name| format!("write {shared}/{name}")));
    allow.push(format!("write {own}"));
    let deny = ["commondir", "gitdir", "config.worktree"].map(|name| format!("write {own}/{name}"));
    let main = common.parent().filter(|_| common.ends_with(".git"));
    Ok(Repository {
        folder: AbsPath::new(common).ok(),
        rules: Some(rules(&allow, &deny)),
        main: main.and_then(|main| AbsPath::new(main).ok()),
        note: Some(format!(
            "this is a linked work tree: git also writes objects and branches in `{shared}`, and nothing else there"
        )),
        above: None,
    })
}

/// True when a submodule's repository names this place as its work tree.
fn is_submodule_of(own: &Path, top: &Path) -> bool {
    let below = own.ancestors().skip(1).any(|folder| folder.ends_with("modules"));
    let mut git = quiet_git(Path::new("/"));
    git.args(["config", "--no-includes", "--file"]).arg(own.join("config"));
    git.args(["--get", "core.worktree"]);
    let found = git.output().map(|done| done.stdout).unwrap_or_default();
    let named = String::from_utf8_lossy(&found);
    let named = named.trim_end_matches('\n');
    below && !named.is_empty() && whole(own, Path::new(named)).as_deref() == Some(top)
}

/// The top of the work tree that a context is only a folder of.
fn above(root: &AbsPath) -> Option<AbsPath> {
    let mut folders = root.ancestors().skip(1);
    let top = folders.find(|folder| Path::new(folder).join(".git").symlink_metadata().is_ok())?;
    AbsPath::new(top).ok()
}

/// A path as a rule can name it.
fn ruled(path: &Path) -> Result<String, String> {
    let path = AbsPath::new(path).map_err(|e| e.to_string())?;
    if path.as_str().contains(['*', '\\', '"']) || path.as_str().contains(char::is_control) {
        return Err(format!("`{path}` holds a sign that rules cannot hold"));
    }
    Ok(path.as_str().to_owned())
}

fn rules(allow: &[String], deny: &[String]) -> SourceFile {
    let mut text = String::new();
    for (key, acts) in [("allow", allow), ("deny", deny)] {
        let quoted: Vec<String> = acts.iter().map(|act| format!("    \"{act}\",\n")).collect();
        let _ = write!(text, "{key} = [\n{}]\n", quoted.concat());
    }
    SourceFile {
        name: "git:repository".into(),
        text,
    }
}
