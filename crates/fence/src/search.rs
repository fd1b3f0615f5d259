//! Finds what is protected inside the trees: every place that a protected pattern matches, before anything runs.
//!
//! Promises: P5 (the object counts: other names of a protected file are found by its inode, a link is followed to what
//! it names inside), P13. Trust: the folders are an agent's of yesterday; nothing here follows a link while it walks.
//! Not here: what patterns ask for (`wanted`), covering and pinning (`masks`), what comes later (`lookout`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bailiwick_gate::{BindMode, LaunchFault, Protected, Protection};
use bailiwick_model::{AbsPath, Code};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use crate::fault::{cause, failed};
use crate::top::{Top, inside};
use crate::trees::{Tree, Trees};
use crate::wanted::{Asked, Match, Seen, Wanted};

/// Most places that can be protected: each is a mount.
const MAX_FOUND: usize = 20_000;
/// Deepest folder that is walked.
const MAX_DEPTH: usize = 400;
/// So many folders are walked by one thread: to start others takes as long.
const ALONE: usize = 200;
/// Most threads that walk.
const MAX_WALKERS: usize = 8;
/// The stack of one, in bytes: what the first thread of a process has.
const WALKER_STACK: usize = 8 * 1024 * 1024;

/// A place that is to be protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// How far.
    pub protection: Protection,
    /// True in a writable tree.
    pub writable: bool,
    /// True for a folder.
    pub folder: bool,
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The places, by their path inside (without the first slash).
    pub places: BTreeMap<PathBuf, Place>,
    /// Protected names that are links to files: where, what they lead to, how far.
    pub links: Vec<(PathBuf, PathBuf, Protection)>,
    /// Folders that a pattern names on its way to a place: renamed, the place would go by another name at the next start.
    pub named: BTreeSet<PathBuf>,
    /// Sockets of the machine in the trees, which are hidden.
    pub sockets: usize,
    /// How many folders were walked.
    pub folders: usize,
    /// What the person should know.
    pub warnings: Vec<String>,
}

impl Found {
    /// Says that sockets are hidden, where there are any.
    pub(crate) fn sockets_covered(&self) -> Option<String> {
        let count = self.sockets;
        (count > 0).then(|| format!("{count} sockets of the machine inside the granted trees are covered"))
    }
}

/// Says that a protected link can be replaced.
pub(crate) fn unprotected_name(at: &Path) -> String {
    let shown = at.display();
    format!("`/{shown}` is a link: what it leads to is protected, its name is not")
}

/// Searches every personal tree.
pub(crate) fn search(top: &Top, trees: &Trees, protected: &[Protected]) -> Result<Found, LaunchFault> {
    // What is asked about has its own server, which hides and guards there.
    let targets = trees.trees.iter().map(|tree| &tree.target).chain(&trees.asked);
    let targets: Vec<&AbsPath> = targets.collect();
    let asked: Vec<Asked<'_>> = protected.iter().map(Asked::of).collect();
    let of = |tree| Wanted::of(tree, &asked, &targets);
    let wanted: Vec<Wanted<'_>> = trees.trees.iter().map(of).collect();
    let nothing: Vec<Wanted<'_>>;
    let shared = Shared::default();
    let mut walk = Walk::of(top, Some(&shared));
    for (tree, wanted) in trees.trees.iter().zip(&wanted) {
        walk.tree(tree, wanted)?;
    }
    walk.share()?;
    walk.found.folders = walk.walked;
    walk.linked_places(trees)?;
    if !walk.twins.is_empty() {
        let none = |tree| Wanted::nothing(tree, &targets);
        nothing = trees.trees.iter().map(none).collect();
        walk.other_names(trees, &nothing)?;
    }
    walk.found.sockets = walk.sockets;
    Ok(walk.found)
}

/// Nobody of the fence can list it either, or it has just gone.
pub(crate) fn is_closed_or_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// A folder that is left to whoever has time.
struct Left<'a> {
    tree: &'a Tree,
    wanted: &'a Wanted<'a>,
    below: PathBuf,
    guarded: bool,
    depth: usize,
}

/// What several threads walk together.
#[derive(Default)]
struct Shared<'a> {
    folders: Mutex<Folders<'a>>,
    changed: Condvar,
    /// Threads that have nothing to walk.
    idle: AtomicUsize,
}

#[derive(Default)]
struct Folders<'a> {
    left: Vec<Left<'a>>,
    /// Threads that walk, and may leave more.
    busy: usize,
}

impl<'a> Shared<'a> {
    fn folders(&self) -> MutexGuard<'_, Folders<'a>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, folder: Left<'a>) {
        self.folders().left.push(folder);
        self.changed.notify_one();
    }

    /// The next folder; none once all is walked. Whoever has one tells [`done`](Self::done).
    fn next(&self) -> Option<Left<'a>> {
        let mut folders = self.folders();
        loop {
            if let Some(next) = folders.left.pop() {
                folders.busy = folders.busy.saturating_add(1);
                return Some(next);
            }
            if folders.busy == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            folders = self.changed.wait(folders).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn done(&self) {
        let mut folders = self.folders();
        folders.busy = folders.busy.saturating_sub(1);
        if folders.busy == 0 {
            self.changed.notify_all();
        }
    }
}

struct Walk<'a> {
    top: &'a Top,
    found: Found,
    /// Protected names that are links: where, how far.
    links: Vec<(PathBuf, Protection)>,
    /// Protected files that have other names.
    twins: BTreeSet<(u64, u64, Protection)>,
    /// While other names are looked for: every file with more than one.
    files: Option<Vec<(PathBuf, u64, u64)>>,
    sockets: usize,
    buffer: Vec<u8>,
    /// Where folders are left for others; none where one walks alone.
    shared: Option<&'a Shared<'a>>,
    /// How many folders were walked.
    walked: usize,
    /// True once other threads walk as well.
    sharing: bool,
}

impl<'a> Walk<'a> {
    fn of(top: &'a Top, shared: Option<&'a Shared<'a>>) -> Self {
        Self {
            top,
            found: Found::default(),
            links: Vec::new(),
            twins: BTreeSet::new(),
            files: None,
            sockets: 0,
            buffer: Vec::with_capacity(32 * 1024),
            shared,
            walked: 0,
            sharing: false,
        }
    }

    /// Walks what was left, with as many threads as there are processors.
    fn share(&mut self) -> Result<(), LaunchFault> {
        let Some(shared) = self.shared.filter(|shared| !shared.folders().left.is_empty()) else {
            return Ok(());
        };
        let others = std::thread::available_parallelism()
            .map_or(1, NonZeroUsize::get)
            .min(MAX_WALKERS);
        let top = self.top;
        self.sharing = true;
        let walks = std::thread::scope(|scope| {
            let walkers = (1..others).map_while(|_| {
                let walk = move || {
                    let mut walk = Walk::of(top, Some(shared));
                    walk.sharing = true;
                    walk.what_is_left(shared).map(|()| walk)
                };
                // As deep as one thread alone may walk.
                let thread = std::thread::Builder::new().stack_size(WALKER_STACK);
                thread.spawn_scoped(scope, walk).ok()
            });
            let walkers: Vec<_> = walkers.collect();
            let own = self.what_is_left(shared);
            let mut walks = Vec::new();
            for walker in walkers {
                let lost = |_| {
                    failed(
                        "cannot search for what is protected",
                        "a thread of the search broke off",
                    )
                };
                walks.push(walker.join().map_err(lost)??);
            }
            own.map(|()| walks)
        })?;
        for walk in walks {
            self.add(walk)?;
        }
        Ok(())
    }

    fn what_is_left(&mut self, shared: &Shared<'a>) -> Result<(), LaunchFault> {
        while let Some(mut left) = shared.next() {
            let at = inside(&left.tree.target).join(&left.below);
            let walked = match self.top.folder(&at) {
                Ok(folder) => {
                    let Left {
                        tree,
                        wanted,
                        guarded,
                        depth,
                        ..
                    } = left;
                    self.folder(&folder, tree, wanted, &mut left.below, guarded, depth)
                }
                Err(errno) if is_closed_or_gone(errno) => Ok(()),
                Err(errno) => Err(self.lost(&at, errno)),
            };
            shared.done();
            walked?;
        }
        Ok(())
    }

    /// Adds what another thread has found.
    fn add(&mut self, other: Walk<'_>) -> Result<(), LaunchFault> {
        for (at, place) in other.found.places {
            self.take_as(&at, place)?;
        }
        self.found.named.extend(other.found.named);
        self.links.extend(other.links);
        self.twins.extend(other.twins);
        self.sockets = self.sockets.saturating_add(other.sockets);
        self.walked = self.walked.saturating_add(other.walked);
        Ok(())
    }

    fn tree(&mut self, tree: &'a Tree, wanted: &'a Wanted<'a>) -> Result<(), LaunchFault> {
        let at = inside(&tree.target);
        let top = Seen::of(tree, Path::new(""));
        let meant = |one: &&&Protected| one.protection != Protection::GuardFile || !tree.folder;
        if let Some(Match { protection, named }) = top.protection(wanted.all.iter().filter(meant).copied()) {
            let protection = protection.max(Protection::Guard);
            self.keep_names(&at, &named);
            self.take(&at, tree, protection, tree.folder)?;
            if protection == Protection::Hide {
                return Ok(());
            }
        }
        let search = tree.personal
            || wanted
                .all
                .iter()
                .any(|one| top.any(|path| one.pattern.reaches_into(path)));
        if !tree.folder || !search {
            return Ok(());
        }
        let folder = match self.top.folder(&at) {
            Ok(folder) => folder,
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(self.lost(&at, errno)),
        };
        self.folder(&folder, tree, wanted, &mut PathBuf::new(), false, 0)
    }

    fn lost(&self, at: &Path, errno: Errno) -> LaunchFault {
        failed(
            format!("cannot search `/{}` for what is protected", at.display()),
            cause(errno),
        )
    }

    /// Walks one folder. `guarded` says that all of it is read-only anyway, so that files with other names matter.
    fn folder(
        &mut self,
        folder: &OwnedFd,
        tree: &'a Tree,
        wanted: &'a Wanted<'a>,
        below: &mut PathBuf,
        guarded: bool,
        depth: usize,
    ) -> Result<(), LaunchFault> {
        self.walked = self.walked.saturating_add(1);
        if depth > MAX_DEPTH {
            return Err(LaunchFault {
                code: Code::LimitReached,
                ..failed(
                    format!("cannot search `{}` for what is protected", tree.source.as_str()),
                    format!("folders lie more than {MAX_DEPTH} deep"),
                )
            });
        }
        let entries = match self.entries(folder, wanted, guarded) {
            Ok(entries) => entries,
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(self.lost(&inside(&tree.target).join(below.as_path()), errno)),
        };
        for (name, kind) in entries {
            let name = OsStr::from_bytes(name.to_bytes());
            below.push(name);
            self.entry(folder, name, kind, tree, wanted, below, guarded, depth)?;
            below.pop();
        }
        Ok(())
    }

    /// The entries of a folder that can matter, all read before any is entered: one buffer serves all depths.
    fn entries(
        &mut self,
        folder: &OwnedFd,
        wanted: &Wanted<'_>,
        guarded: bool,
    ) -> rustix::io::Result<Vec<(std::ffi::CString, FileType)>> {
        let every = guarded || self.files.is_some();
        let mut entries = Vec::new();
        let space: &mut [MaybeUninit<u8>] = self.buffer.spare_capacity_mut();
        let mut list = RawDir::new(folder, space);
        while let Some(entry) = list.next() {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            let (bytes, kind) = (name.to_bytes(), entry.file_type());
            let entered = matches!(kind, FileType::Directory | FileType::Socket | FileType::Unknown);
            let matters = every || entered || wanted.candidates(bytes).next().is_some();
            if matters && !matches!(bytes, b"." | b"..") {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(entries)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one step of the walk; a struct would be built per file"
    )]
    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        kind: FileType,
        tree: &'a Tree,
        wanted: &'a Wanted<'a>,
        below: &mut PathBuf,
        guarded: bool,
        depth: usize,
    ) -> Result<(), LaunchFault> {
        let kind = match kind {
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => return Ok(()),
            },
            known => known,
        };
        let at = || inside(&tree.target).join(below.as_path());
        let mut guarded = guarded;
        if wanted.candidates(name.as_bytes()).next().is_some() {
            let seen = Seen::of(tree, below);
            if let Some(Match { protection, named }) = wanted.says(name.as_bytes(), kind.is_dir(), &seen) {
                // A file is guarded like everything else.
                let protection = protection.max(Protection::Guard);
                let at = at();
                self.keep_names(&at, &named);
                if kind.is_symlink() {
                    self.links.push((at, protection));
                    return Ok(());
                }
                if wanted.is_other(below) {
                    return Ok(());
                }
                self.take(&at, tree, protection, kind.is_dir())?;
                self.note_twin(folder, name, kind, protection);
                if protection == Protection::Hide {
                    return Ok(());
                }
                guarded |= kind.is_dir();
            }
        }
        match kind {
            FileType::Directory => {
                if wanted.is_other(below) {
                    return Ok(());
                }
                if !wanted.enters(tree, below) {
                    return Ok(());
                }
                let depth = depth.saturating_add(1);
                if let Some(shared) = self.shared.filter(|shared| self.leaves(shared)) {
                    shared.leave(Left {
                        tree,
                        wanted,
                        below: below.clone(),
                        guarded,
                        depth,
                    });
                    return Ok(());
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match openat(folder, name, flags, Mode::empty()) {
                    Ok(next) => self.folder(&next, tree, wanted, below, guarded, depth),
                    Err(errno) if is_closed_or_gone(errno) => Ok(()),
                    Err(errno) => Err(self.lost(&at(), errno)),
                }
            }
            FileType::Socket => {
                // Something of the machine listens there, or did: no named socket is reachable unless a gate serves it.
                self.sockets = self.sockets.saturating_add(1);
                self.take(&at(), tree, Protection::Hide, false)
            }
            FileType::RegularFile => {
                if guarded {
                    self.note_twin(folder, name, kind, Protection::Guard);
                }
                if let Some(files) = &mut self.files
                    && let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                    && stat.st_nlink > 1
                {
                    files.push((inside(&tree.target).join(below.as_path()), stat.st_dev, stat.st_ino));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// True when the next folder is better walked by another thread.
    fn leaves(&self, shared: &Shared<'_>) -> bool {
        let others = if self.sharing {
            shared.idle.load(Ordering::Relaxed) > 0
        } else {
            self.walked >= ALONE
        };
        others && self.files.is_none()
    }

    fn take(&mut self, at: &Path, tree: &Tree, protection: Protection, folder: bool) -> Result<(), LaunchFault> {
        let writable = tree.mode == BindMode::Write;
        self.take_as(
            at,
            Place {
                protection,
                writable,
                folder,
            },
        )
    }

    fn take_as(&mut self, at: &Path, place: Place) -> Result<(), LaunchFault> {
        if self.found.places.len() >= MAX_FOUND {
            return Err(LaunchFault {
                code: Code::LimitReached,
                hint: "name fewer places, or grant smaller trees".into(),
                ..failed(
                    "cannot protect every place",
                    format!("more than {MAX_FOUND} match the protected patterns"),
                )
            });
        }
        let protection = place.protection;
        let known = self.found.places.entry(at.to_path_buf()).or_insert(place);
        known.protection = known.protection.max(protection);
        Ok(())
    }

    fn keep_names(&mut self, at: &Path, named: &BTreeSet<usize>) {
        let above = at.ancestors().enumerate();
        let named = above.filter(|(steps, folder)| named.contains(steps) && !folder.as_os_str().is_empty());
        self.found.named.extend(named.map(|(_, folder)| folder.to_path_buf()));
    }

    fn note_twin(&mut self, folder: &OwnedFd, name: &OsStr, kind: FileType, protection: Protection) {
        if kind.is_file()
            && let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            && stat.st_nlink > 1
        {
            self.twins.insert((stat.st_dev, stat.st_ino, protection));
        }
    }

    /// Protects what protected links lead to, where that is seen inside at all.
    fn linked_places(&mut self, trees: &Trees) -> Result<(), LaunchFault> {
        for (at, protection) in std::mem::take(&mut self.links) {
            let end = self.top.end_of_link(&at);
            match &end {
                Some((end, false)) => self.found.links.push((at, end.clone(), protection)),
                _ => self.found.warnings.push(unprotected_name(&at)),
            }
            let Some((end, folder)) = end else {
                continue;
            };
            let path = Path::new("/").join(&end);
            let holding = trees
                .trees
                .iter()
                .filter(|tree| path.starts_with(tree.target.to_path_buf()));
            let Some(tree) = holding.max_by_key(|tree| tree.target.as_str().len()) else {
                continue;
            };
            if protection == Protection::Guard && tree.mode == BindMode::Read {
                continue;
            }
            self.take(&end, tree, protection, folder)?;
            if let (Ok(up), Some(name)) = (self.top.folder(end.parent().unwrap_or(Path::new("."))), end.file_name()) {
                let kind = if folder {
                    FileType::Directory
                } else {
                    FileType::RegularFile
                };
                self.note_twin(&up, name, kind, protection);
            }
        }
        Ok(())
    }

    /// Walks again for other names of protected files.
    fn other_names(&mut self, trees: &'a Trees, nothing: &'a [Wanted<'a>]) -> Result<(), LaunchFault> {
        let twins = std::mem::take(&mut self.twins);
        self.files = Some(Vec::new());
        let known: BTreeSet<PathBuf> = self.found.places.keys().cloned().collect();
        let sockets = self.sockets;
        for (tree, nothing) in trees.trees.iter().zip(nothing).filter(|(tree, _)| tree.personal) {
            let at = inside(&tree.target);
            if let (true, Ok(folder)) = (tree.folder, self.top.folder(&at)) {
                self.folder(&folder, tree, nothing, &mut PathBuf::new(), false, 0)?;
            }
            for (at, device, inode) in self.files.replace(Vec::new()).unwrap_or_default() {
                // What lies in a guarded folder is guarded with it.
                let held = at.ancestors().any(|above| known.contains(above));
                for protection in [Protection::Guard, Protection::Hide] {
                    let done = known.contains(&at) || (held && protection == Protection::Guard);
                    if twins.contains(&(device, inode, protection)) && !done {
                        self.take(&at, tree, protection, false)?;
                    }
                }
            }
        }
        self.sockets = sockets;
        Ok(())
    }
}
