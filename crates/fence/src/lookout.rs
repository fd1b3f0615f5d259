//! The lookout: a process beside a fence that protects what gets a protected name from outside while the program runs.
//!
//! Answers: a mask lies on a file and not on its name; what hides the `.env` that a person's editor puts in the place of
//! the one before?
//! Promises: P5, in part: until it is covered, mostly within a millisecond, such a file can be read; what came
//! in the first tenth of a second is found by a walk then. P13 (where it cannot go on, the fence ends).
//! Trust: names and folders are the agent's and other programs'. It stands outside of the fence's process table, has two
//! capabilities, both in the fence's own user namespace, and can make less visible, never more. It takes no word from inside.
//! Not here: names that the agent itself gives (`supervise`), what is there at the start (`search`, `masks`).
//! See: inotify(7), setns(2), statx(2).

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailiwick_gate::{BindMode, Protected, Protection};
use bailiwick_model::AbsPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, FileType, RawDir, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, MountAttrFlags, fsmount};
use rustix::process::{fchdir, nice};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::capabilities;
use crate::channel::Channel;
use crate::filter::Filters;
use crate::mounts::{attach_on, clone_of, fresh, pin, stand_in};
use crate::root::PROC_HIDDEN;
use crate::search::is_closed_or_gone;
use crate::top::{Top, inside};
use crate::trees::{Tree, Trees};
use crate::wanted::{Asked, Match, Seen, Wanted};

/// Most programs have ended before that, and pay nothing.
const GRACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// After so many folders a walk rests: the program has the processors first.
const STRETCH: usize = 256;
const REST: Duration = Duration::from_millis(2);
/// Where some folder cannot be watched, all are walked again and again: so many times longer than a walk takes lie between.
const PACE: u32 = 10;
const SHORTEST_PACE: Duration = Duration::from_secs(1);
const LONGEST_PACE: Duration = Duration::from_secs(60);
/// Most folders that are watched, and most bytes of their paths: the agent can make as many as it likes.
const MAX_FOLDERS: usize = 200_000;
const MAX_PATHS: usize = 64 << 20;

/// What is looked out for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    trees: Vec<Shown>,
    /// Trees that have a server of their own.
    asked: Vec<AbsPath>,
    protected: Vec<Protected>,
}

/// A tree as it is shown inside.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    source: AbsPath,
    target: AbsPath,
    mode: BindMode,
    personal: bool,
}

impl Watch {
    /// The folders of a fence, and what is protected in them. None where nothing can be.
    pub(crate) fn over(trees: &Trees, protected: &[Protected]) -> Option<Self> {
        let shown = |tree: &Tree| Shown {
            source: tree.source.clone(),
            target: tree.target.clone(),
            mode: tree.mode,
            personal: tree.personal,
        };
        let asked: Vec<Asked<'_>> = protected.iter().map(Asked::of).collect();
        let folders = || trees.trees.iter().filter(|tree| tree.folder);
        let matters = folders().any(|tree| !Wanted::of(tree, &asked, &[]).all.is_empty());
        matters.then(|| Self {
            trees: folders().map(shown).collect(),
            asked: trees.asked.clone(),
            protected: protected.to_vec(),
        })
    }

    fn opened(&self, top: &Top) -> Vec<Tree> {
        let open = |shown: &Shown| {
            Some(Tree {
                mount: top.exact(&inside(&shown.target)).ok()?,
                source: shown.source.clone(),
                target: shown.target.clone(),
                mode: shown.mode,
                folder: true,
                personal: shown.personal,
            })
        };
        self.trees.iter().filter_map(open).collect()
    }
}

/// How many folders this machine lets one person watch (inotify(7)).
pub(crate) fn limit() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
    text.trim()
        .parse()
        .map_or(MAX_FOLDERS, |limit: usize| limit.min(MAX_FOLDERS))
}

/// The life of the lookout of a fence, until the other end of the line closes. The process has one thread and the
/// capabilities of the user namespace that the mounts belong to.
pub(crate) fn live(watch: &Watch, mounts: OwnedFd, line: &Channel) -> io::Result<()> {
    let mut closed = [PollFd::new(line, PollFlags::IN)];
    match poll(&mut closed, Some(&GRACE)) {
        Ok(0) | Err(Errno::INTR) => {}
        Ok(_) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    drop(mounts);
    let filters = Filters::lookout().map_err(io::Error::other)?;
    let top = Top::of_machine()?;
    let trees = watch.opened(&top);
    let targets = trees.iter().map(|tree| &tree.target).chain(&watch.asked);
    let targets: Vec<&AbsPath> = targets.collect();
    let asked: Vec<Asked<'_>> = watch.protected.iter().map(Asked::of).collect();
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
    let over = |tree| Over {
        tree,
        wanted: Wanted::of(tree, &asked, &targets),
    };
    let over: Vec<Over<'_>> = trees.iter().map(over).collect();
    let mut lookout = Lookout {
        top: &top,
        over: &over,
        // A person may have so many of them, in all programs together.
        full: events.is_none(),
        events,
        folders: HashMap::new(),
        paths: 0,
        again: Instant::now(),
        cover: cover_of_files(&top)?,
    };
    let _ = nice(5);
    capabilities::keep(CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH)?;
    filters.lay().map_err(io::Error::other)?;
    lookout.walk_all()?;
    lookout.watch(line)
}

/// A cover of files that hangs in the fence already: one of those in its `/proc`.
fn cover_of_files(top: &Top) -> io::Result<OwnedFd> {
    let covered = |name: &&str| {
        let place = top.exact(&Path::new("proc").join(name)).ok()?;
        let found = looked_at(&place).ok()?;
        (found.covered && !found.kind.is_dir()).then_some(place)
    };
    let found = PROC_HIDDEN.iter().find_map(covered);
    found.ok_or_else(|| io::Error::other("no file of `/proc` is covered"))
}

/// What stands at a place.
struct Look {
    kind: FileType,
    /// True where something is mounted.
    mounted: bool,
    /// True where that is a cover.
    covered: bool,
}

fn looked_at(place: &OwnedFd) -> rustix::io::Result<Look> {
    let found = statx(place, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::MODE)?;
    let mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let mode = found.stx_mode.into();
    Ok(Look {
        kind: FileType::from_raw_mode(mode),
        mounted,
        covered: mounted && mode & 0o7777 == 0,
    })
}

/// Gone, or not to be seen, by the time that it is looked at.
fn is_gone(errno: Errno) -> bool {
    is_closed_or_gone(errno) || matches!(errno, Errno::NAMETOOLONG | Errno::STALE)
}

/// A tree that is looked over, and what is asked for there.
struct Over<'a> {
    tree: &'a Tree,
    wanted: Wanted<'a>,
}

impl Over<'_> {
    /// Where a place of the tree is seen, below the top.
    fn at(&self, below: &Path) -> PathBuf {
        inside(&self.tree.target).join(below)
    }
}

/// Something that happened in a watched folder.
struct Event {
    folder: i32,
    flags: ReadFlags,
    name: Option<CString>,
}

struct Lookout<'a> {
    top: &'a Top,
    over: &'a [Over<'a>],
    /// What tells of watched folders; none where the person has too many such.
    events: Option<OwnedFd>,
    /// Where each watched folder lies: its tree, and its path there.
    folders: HashMap<i32, (&'a Over<'a>, PathBuf)>,
    /// How many bytes their paths have.
    paths: usize,
    /// True once no more can be watched.
    full: bool,
    /// When all is walked again, then.
    again: Instant,
    cover: OwnedFd,
}

impl<'a> Lookout<'a> {
    fn watch(&mut self, line: &Channel) -> io::Result<()> {
        loop {
            let left = self.again.saturating_duration_since(Instant::now());
            if self.full && left.is_zero() {
                self.walk_all()?;
                continue;
            }
            let mut ready = vec![PollFd::new(line, PollFlags::IN)];
            ready.extend(self.events.iter().map(|events| PollFd::new(events, PollFlags::IN)));
            let left = self.full.then(|| Timespec::try_from(left)).transpose();
            match poll(&mut ready, left.map_err(io::Error::other)?.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ready.first().is_some_and(|line| !line.revents().is_empty()) {
                return Ok(());
            }
            for event in self.happened()? {
                self.hear(&event)?;
            }
        }
    }

    /// What happened since: as much as is there.
    fn happened(&self) -> io::Result<Vec<Event>> {
        let mut all = Vec::new();
        let Some(events) = &self.events else {
            return Ok(all);
        };
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(events, &mut space);
        while all.is_empty() || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => all.push(Event {
                    folder: event.wd(),
                    flags: event.events(),
                    name: event.file_name().map(ToOwned::to_owned),
                }),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(all)
    }

    fn hear(&mut self, event: &Event) -> io::Result<()> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.walk_all();
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            if let Some((_, below)) = self.folders.remove(&event.folder) {
                self.paths = self.paths.saturating_sub(below.as_os_str().len());
            }
            return Ok(());
        }
        let Some((name, (over, folder))) = event.name.as_deref().zip(self.folders.get(&event.folder)) else {
            return Ok(());
        };
        let (over, below) = (*over, folder.join(OsStr::from_bytes(name.to_bytes())));
        let kind = match event.flags.contains(ReadFlags::ISDIR) {
            true => FileType::Directory,
            false => FileType::RegularFile,
        };
        match self.comes(over, &below, kind)? {
            true => self.walk(over, below),
            false => Ok(()),
        }
    }

    fn walk_all(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        for over in self.over.iter().filter(|over| !over.wanted.all.is_empty()) {
            self.walk(over, PathBuf::new())?;
        }
        let pace = begun.elapsed().saturating_mul(PACE);
        self.again = Instant::now() + pace.clamp(SHORTEST_PACE, LONGEST_PACE);
        Ok(())
    }

    /// Watches a folder and those below it, the nearest first, and protects what lies there.
    fn walk(&mut self, over: &'a Over<'a>, below: PathBuf) -> io::Result<()> {
        let mut left = VecDeque::from([below]);
        let mut walked: usize = 0;
        while let Some(below) = left.pop_front() {
            // What cannot be looked into is not the agent's to read either, or has gone.
            let Ok(folder) = self.top.folder(&over.at(&below)) else {
                continue;
            };
            // Watched before it is read: what comes meanwhile is told or found.
            self.add(&folder, over, &below);
            for (name, kind) in entries(&folder) {
                let below = below.join(name);
                if self.comes(over, &below, kind)? {
                    left.push_back(below);
                }
            }
            walked = walked.saturating_add(1);
            if walked.is_multiple_of(STRETCH) {
                std::thread::sleep(REST);
            }
        }
        Ok(())
    }

    fn add(&mut self, folder: &OwnedFd, over: &'a Over<'a>, below: &Path) {
        let Some(events) = self.events.as_ref().filter(|_| self.folders.len() < MAX_FOLDERS) else {
            self.full = true;
            return;
        };
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        match fchdir(folder).and_then(|()| inotify::add_watch(events, c".", what)) {
            Ok(number) => {
                let known = self.folders.insert(number, (over, below.to_path_buf()));
                let before = known.map_or(0, |(_, below)| below.as_os_str().len());
                self.paths = (self.paths.saturating_add(below.as_os_str().len())).saturating_sub(before);
                self.full |= self.paths >= MAX_PATHS;
            }
            Err(errno) if is_gone(errno) => {}
            // As many as the machine allows, most likely.
            Err(_) => self.full = true,
        }
    }

    /// Protects what stands at a place, if its name says so. True for a folder that is to be entered.
    fn comes(&self, over: &Over<'_>, below: &Path, kind: FileType) -> io::Result<bool> {
        let Over { tree, wanted } = over;
        let Some(name) = below.file_name().map(OsStr::as_bytes) else {
            return Ok(false);
        };
        if wanted.is_other(below) {
            return Ok(false);
        }
        let mut kind = kind;
        if kind == FileType::Unknown || wanted.candidates(name).next().is_some() {
            let at = over.at(below);
            let place = match self.top.exact(&at) {
                Ok(place) => place,
                Err(errno) if is_gone(errno) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            };
            let look = looked_at(&place)?;
            kind = look.kind;
            if let Some(Match { protection, .. }) = wanted.says(name, kind.is_dir(), &Seen::of(tree, below)) {
                self.protect(&at, &place, &look, protection)?;
                if protection == Protection::Hide {
                    return Ok(false);
                }
            }
        }
        Ok(kind.is_dir() && wanted.enters(tree, below))
    }

    fn protect(&self, at: &Path, place: &OwnedFd, look: &Look, protection: Protection) -> io::Result<()> {
        let hide = protection == Protection::Hide;
        let done = match (look.kind, hide) {
            (FileType::Symlink, _) => return self.protect_link(at, place, hide),
            _ if look.covered || (look.mounted && !hide) => return Ok(()),
            (_, true) => self.hide(place, look),
            (_, false) => pin(place, true),
        };
        match done {
            // It went meanwhile: what has its name now is told by itself.
            Err(_) if self.is_another(at, place) => Ok(()),
            done => done,
        }
    }

    fn hide(&self, place: &OwnedFd, look: &Look) -> io::Result<()> {
        if !look.kind.is_dir() {
            return Ok(attach_on(&clone_of(&self.cover, "")?, place)?);
        }
        let quiet =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let flags = quiet | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let made = fresh("tmpfs", &[("mode", Some("0000")), ("ro", None)])?;
        Ok(attach_on(
            &fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags)?,
            place,
        )?)
    }

    /// What a link leads to is protected, and its name where the kernel lets links be mounted on.
    fn protect_link(&self, at: &Path, link: &OwnedFd, hide: bool) -> io::Result<()> {
        if let Some((end, _)) = self.top.end_of_link(at)
            && let Ok(end) = self.top.exact(&end)
        {
            let look = looked_at(&end)?;
            match hide {
                true if !look.covered => self.hide(&end, &look)?,
                false if !look.kind.is_dir() => {
                    let _ = stand_in(&end, link);
                }
                _ => {}
            }
        }
        if hide {
            let _ = attach_on(&clone_of(&self.cover, "")?, link);
        }
        Ok(())
    }

    /// True when something else, or nothing, stands now where this stood.
    fn is_another(&self, at: &Path, place: &OwnedFd) -> bool {
        let number = |place: &OwnedFd| rustix::fs::fstat(place).map(|found| (found.st_dev, found.st_ino));
        self.top.exact(at).map_or(true, |now| number(&now) != number(place))
    }
}

/// What lies in a folder, by name and kind, as far as it can be read.
fn entries(folder: &OwnedFd) -> Vec<(OsString, FileType)> {
    let mut space = [MaybeUninit::uninit(); 16 * 1024];
    let mut list = RawDir::new(folder, &mut space);
    let mut all = Vec::new();
    while let Some(Ok(entry)) = list.next() {
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            all.push((OsString::from_vec(name.to_vec()), entry.file_type()));
        }
    }
    all
}
