//! Folders of a context's own, or of one of its servers: where they lie, and what is laid into them before a task begins.
//!
//! Promises: P1 (each is a spent permit), P2 (the person's folder of the same name is another one).
//! Trust: what lies in a kept folder, earlier tasks have made, links too. Nothing here follows a link: each step is
//! opened by itself. What is linked or copied from is the person's own.
//! See: ARCHITECTURE, "What is kept on disk".

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bailiwick_model::{AbsPath, Level};
use bailiwick_policy::Settings;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, renameat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::logins::Shared;
use crate::failure::Failure;
use crate::places::Places;

/// Largest file that is laid into a kept folder, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// What stands in a file while it is written.
const PASSING: &str = ".bailiwick-passing";

/// How folders are opened here: themselves, and not what a link of that name leads to.
pub(super) const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is to be kept for one context.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The places inside that were granted.
    pub places: Vec<AbsPath>,
    /// The person's home folder.
    pub home: &'a AbsPath,
    /// The root of the context.
    pub root: &'a AbsPath,
    /// Where it lies outside: the context's folder, or that of one of its servers.
    pub own: PathBuf,
    /// What lies there from the start.
    pub settings: &'a Settings,
    /// The trees of the person's that are shown below a kept folder.
    pub shown: Vec<AbsPath>,
    /// What the person should know, one line each.
    pub notes: Vec<String>,
}

impl<'a> Kept<'a> {
    /// Sorts out what is kept: of places that lie in each other, the outer one.
    pub fn of(
        mut granted: Vec<AbsPath>,
        shown: impl Iterator<Item = AbsPath>,
        home: &'a AbsPath,
        root: &'a AbsPath,
        own: PathBuf,
        settings: &'a Settings,
    ) -> Self {
        let shown: Vec<AbsPath> = shown.collect();
        let mut notes = Vec::new();
        granted.retain(|place| stands(place, &shown, &mut notes));
        let all: BTreeSet<AbsPath> = granted.iter().cloned().collect();
        granted.retain(|place| !all.iter().any(|outer| outer != place && outer.holds(place)));
        granted.dedup();
        let below = |tree: &AbsPath| granted.iter().any(|place| place != tree && place.holds(tree));
        Self {
            shown: shown.into_iter().filter(below).collect(),
            notes,
            places: granted,
            home,
            root,
            own,
            settings,
        }
    }

    /// Makes the folders and what lies in them; says for each place where it lies outside. Where nothing can be mounted,
    /// what is shown below a kept folder is linked there.
    pub fn lay(&self, places: &Places, level: Level) -> Result<BTreeMap<AbsPath, AbsPath>, Failure> {
        let own = &self.own;
        let refuse = |what: &str, e: Errno| {
            Failure::fault(format!(
                "cannot keep {what} of this context in `{}`: {}",
                own.display(),
                std::io::Error::from(e)
            ))
            .hint("it is bailiwick's own: moved aside, it is made anew, and what the context kept is gone")
        };
        if self.places.is_empty() {
            return Ok(BTreeMap::new());
        }
        let home = self.begin(own).map_err(|e| refuse("the state", e))?;
        let mut all = BTreeMap::new();
        for place in &self.places {
            let Some(rest) = below(self.home, place) else { continue };
            if let Some(login) = self.settings.login.as_ref().filter(|login| login.place == *place) {
                let outside = AbsPath::new(places.login(&login.agent)).map_err(|e| Failure::fault(e.to_string()))?;
                // Where nothing is mounted, the way from the context's files to the login is this link.
                if let Some((name, above)) = rest.split_last() {
                    let linked = into(&home, above).and_then(|above| symlinkat(outside.as_str(), &above, *name));
                    linked
                        .or_else(|e| if e == Errno::EXIST { Ok(()) } else { Err(e) })
                        .map_err(|e| refuse("the login", e))?;
                }
                all.insert(place.clone(), outside);
                continue;
            }
            let folder = into(&home, &rest).map_err(|e| refuse(&format!("`{place}`"), e))?;
            let laid = self.furnish(place, &folder, level);
            laid.map_err(|(what, e)| refuse(&format!("`{what}`"), e))?;
            let outside = own.join("home").join(rest.join("/"));
            let outside = AbsPath::new(outside).map_err(|e| Failure::fault(e.to_string()))?;
            all.insert(place.clone(), outside);
        }
        if let Some(shared) = self.shared(places) {
            shared.settle().map_err(|e| refuse("the login", e))?;
        }
        Ok(all)
    }

    /// What the context shares of its agent's login.
    pub fn shared(&self, places: &Places) -> Option<Shared> {
        let login = self.settings.login.as_ref()?;
        Shared::of(login, self.home, &self.own, &places.login(&login.agent))
    }

    /// The folder of the context, with its root's name in it for whoever looks.
    fn begin(&self, own: &Path) -> Result<OwnedFd, Errno> {
        std::fs::create_dir_all(own.join("home")).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let folder = openat(CWD, own, FOLDER, Mode::empty())?;
        if statat(&folder, "root", AtFlags::SYMLINK_NOFOLLOW).is_err() {
            put(&folder, "root", self.root.as_str().as_bytes())?;
        }
        openat(&folder, "home", FOLDER, Mode::empty())
    }

    /// Lays into one kept folder what belongs there. The error names the place at fault.
    fn furnish(&self, place: &AbsPath, folder: &OwnedFd, level: Level) -> Result<(), (AbsPath, Errno)> {
        let settings = self.settings;
        for (path, text) in &settings.kept_files {
            let Some(steps) = below(place, path) else { continue };
            let text = placed(text, self.home, self.root);
            self.file(folder, &steps, &text).map_err(|e| (path.clone(), e))?;
        }
        for tree in &self.shown {
            let Some(steps) = below(place, tree) else { continue };
            let shown = match level {
                Level::Namespace => self.mount_point(folder, &steps, tree),
                Level::Process => show_by_link(folder, &steps, tree),
            };
            shown.map_err(|e| (tree.clone(), e))?;
        }
        for (path, to) in &settings.kept_links {
            let (Some(steps), Ok(from)) = (below(place, path), openat(CWD, to.as_str(), FOLDER, Mode::empty())) else {
                continue;
            };
            into(folder, &steps)
                .and_then(|folder| link_each(&from, to, &folder, LINKED_BELOW))
                .map_err(|e| (path.clone(), e))?;
        }
        for (path, from) in &settings.kept_copies {
            let (Some(steps), Ok(from)) = (below(place, path), openat(CWD, from.as_str(), FOLDER, Mode::empty()))
            else {
                continue;
            };
            if reach(folder, &steps).is_err() {
                into(folder, &steps)
                    .and_then(|folder| copy(&from, &folder, &mut MAX_COPIED.clone(), MAX_DEPTH))
                    .map_err(|e| (path.clone(), e))?;
            }
        }
        Ok(())
    }

    fn file(&self, folder: &OwnedFd, steps: &[&str], text: &str) -> Result<(), Errno> {
        let Some((name, above)) = steps.split_last() else {
            return Ok(());
        };
        let folder = into(folder, above)?;
        if statat(&folder, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        put(&folder, name, text.as_bytes())
    }

    /// Makes what a tree of the person's is mounted on.
    fn mount_point(&self, folder: &OwnedFd, steps: &[&str], tree: &AbsPath) -> Result<(), Errno> {
        let is_folder = tree.to_path_buf().is_dir();
        let Some((name, above)) = steps.split_last() else {
            return Ok(());
        };
        let above = into(folder, above)?;
        let there = statat(&above, *name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match there {
            Ok(kind) if kind.is_dir() == is_folder && !kind.is_symlink() => return Ok(()),
            Ok(kind) if kind.is_dir() => unlinkat(&above, *name, AtFlags::REMOVEDIR)?,
            Ok(_) => unlinkat(&above, *name, AtFlags::empty())?,
            Err(_) => {}
        }
        if is_folder {
            mkdirat(&above, *name, Mode::from_raw_mode(0o700))
        } else {
            put(&above, name, b"")
        }
    }
}

/// Has a link lead to a tree of the person's, in place of what it would be mounted on.
fn show_by_link(folder: &OwnedFd, steps: &[&str], tree: &AbsPath) -> Result<(), Errno> {
    let Some((name, above)) = steps.split_last() else {
        return Ok(());
    };
    let above = into(folder, above)?;
    match statat(&above, *name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(kind) if kind.is_dir() => unlinkat(&above, *name, AtFlags::REMOVEDIR)?,
        Ok(_) => unlinkat(&above, *name, AtFlags::empty())?,
        Err(_) => {}
    }
    symlinkat(tree.as_str(), &above, *name)
}

/// True when a kept folder can stand at its place. In a tree of the person's that is shown, a folder must be there to
/// stand on: none is made, and no link is followed.
fn stands(place: &AbsPath, shown: &[AbsPath], notes: &mut Vec<String>) -> bool {
    if shown.contains(place) {
        notes.push(format!(
            "`{place}` is granted, and kept too: what is seen there is the context's own"
        ));
    }
    let Some(tree) = shown.iter().find(|tree| *tree != place && tree.holds(place)) else {
        return true;
    };
    let path = place.to_path_buf();
    let plain = path.is_dir() && path.canonicalize().is_ok_and(|whole| whole == path);
    if !plain {
        notes.push(format!(
            "`{place}` is not kept: it lies in `{tree}`, which is granted, and there is no such folder to stand on"
        ));
    }
    plain
}

/// How many folders deep links are laid: below that, whole folders are linked.
const LINKED_BELOW: usize = 1;

/// Most bytes that are copied for one place, and how deep.
const MAX_COPIED: u64 = 256 << 20;
const MAX_DEPTH: usize = 12;

/// A text in which `${HOME}` and `${ROOT}` stand for the home inside and the root of the context.
pub fn placed(text: &str, home: &AbsPath, root: &AbsPath) -> String {
    text.replace("${HOME}", home.as_str()).replace("${ROOT}", root.as_str())
}

/// The steps from a folder to a place below it, or none of them where it is the folder itself.
pub(super) fn below<'p>(folder: &AbsPath, place: &'p AbsPath) -> Option<Vec<&'p str>> {
    folder
        .holds(place)
        .then(|| place.segments().skip(folder.segments().count()).collect())
}

/// Opens a folder below another, step by step, and makes what is missing. A link, or a file, in place of a folder is
/// taken away: it is an earlier task's, and nothing of bailiwick's.
pub(super) fn into(folder: &OwnedFd, steps: &[&str]) -> Result<OwnedFd, Errno> {
    let mut here = folder.try_clone().map_err(|_| Errno::MFILE)?;
    for step in steps {
        let next = openat(&here, *step, FOLDER, Mode::empty());
        here = match next {
            Ok(next) => next,
            Err(errno) => {
                if errno != Errno::NOENT {
                    unlinkat(&here, *step, AtFlags::empty())?;
                }
                match mkdirat(&here, *step, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => openat(&here, *step, FOLDER, Mode::empty())?,
                    Err(errno) => return Err(errno),
                }
            }
        };
    }
    Ok(here)
}

/// Opens a folder below another, if it is there, following no link.
fn reach(folder: &OwnedFd, steps: &[&str]) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(folder, steps.join("/"), FOLDER, Mode::empty(), how)
}

/// The bytes of a plain file that a task may have left, as many as settings have; none for anything else.
pub fn content(path: &AbsPath) -> Option<Vec<u8>> {
    let above = path.parent()?;
    let folder = openat(CWD, above.as_str(), FOLDER, Mode::empty()).ok()?;
    read(&folder, path.name()?)
}

pub(super) fn read(folder: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    // Without waiting: it may be a pipe that nobody writes to.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Puts a file in place of whatever has its name, in one step.
pub(super) fn put(folder: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let io = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let passing = unlike();
    // A script is there to be run.
    let mode = if bytes.starts_with(b"#!") { 0o700 } else { 0o600 };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(folder, passing.as_str(), flags, Mode::from_raw_mode(mode))?;
    std::fs::File::from(made).write_all(bytes).map_err(io)?;
    renameat(folder, passing.as_str(), folder, name)
}

/// A name that nothing has yet.
pub(super) fn unlike() -> String {
    let mut random = [0u8; 8];
    bailiwick_gate::Random::fill(&super::surroundings::KernelRandom, &mut random);
    format!("{PASSING}-{}", hex::encode(random))
}

/// The entries of a folder, by name, with their kinds.
fn entries(folder: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && name != "."
            && name != ".."
        {
            all.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(all)
}

/// Links each entry of a folder of the person's that has no namesake, and goes into folders so deep.
fn link_each(from: &OwnedFd, name: &AbsPath, to: &OwnedFd, deep: usize) -> Result<(), Errno> {
    let there: BTreeSet<String> = entries(to)?.into_iter().map(|(name, _)| name).collect();
    for (entry, kind) in entries(from)? {
        let Ok(own) = name.join(&entry) else { continue };
        if kind.is_dir() && deep > 0 {
            let inner = openat(from, entry.as_str(), FOLDER, Mode::empty())?;
            let outer = into(to, &[entry.as_str()])?;
            link_each(&inner, &own, &outer, deep.saturating_sub(1))?;
        } else if !there.contains(&entry) {
            match symlinkat(own.as_str(), to, entry.as_str()) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// Copies files and folders, as many as the bytes that are left allow.
fn copy(from: &OwnedFd, to: &OwnedFd, left: &mut u64, deep: usize) -> Result<(), Errno> {
    for (entry, kind) in entries(from)? {
        if kind.is_dir() && deep > 0 {
            let inner = openat(from, entry.as_str(), FOLDER, Mode::empty())?;
            copy(&inner, &into(to, &[entry.as_str()])?, left, deep.saturating_sub(1))?;
        } else if kind.is_file()
            && let Some(bytes) = read(from, &entry)
        {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let Some(rest) = left.checked_sub(length).filter(|_| length < MAX_FILE) else {
                continue;
            };
            *left = rest;
            put(to, &entry, &bytes)?;
        }
    }
    Ok(())
}
