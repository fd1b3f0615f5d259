//! One ask tree: names and attributes are shown, and what reads or changes a file is asked about first.
//!
//! Promises: P1 (no file is opened and no name made, moved or removed without a permit for just that), P5 (what is asked
//! about is the file that was found, held open meanwhile without any right; where its name stands for another file when
//! the answer comes, nothing is done), P8 (one yes is for one opening). Hidden names do not exist; guarded ones stay.
//! Trust: the kernel asks on behalf of the agent. Links are handed back as text: the kernel follows them inside the fence.
//! Not here: the words (`wire`), the answers (`line`).

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_gate::{Protected, Protection};
use bailiwick_model::{AbsPath, Request, Resource, TaskId, Verb};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, accessat, chmod, fallocate, fstatvfs, ftruncate, linkat, mkdirat, mknodat, openat,
    readlinkat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, IoSlice, pread, pwrite, writev};

use super::line::{Act, Line};
use super::nodes::{Found, Nodes, ROOT, stat_of};
use super::wire::{self, Answer, Asked, MAX_PIECE, Owners, change, op};

/// Most files and folders of one tree that are open at once.
const MAX_OPEN: usize = 16_384;

/// What comes of a call.
enum Done {
    /// It is answered with this.
    Answer(Vec<u8>),
    /// It wants no answer.
    Nothing,
    /// It is answered when it has been decided about.
    Later,
}

fn done(answer: Answer) -> Result<Done, Errno> {
    Ok(Done::Answer(answer.done()))
}

/// Something that is open.
enum Open {
    File { open: OwnedFd, node: u64, writes: bool },
    Folder(Vec<(OsString, u64, u32)>),
}

/// One ask tree.
pub(super) struct Tree {
    /// Which of the fence's.
    pub number: usize,
    /// Where it lies, as rules see it.
    pub place: AbsPath,
    pub task: TaskId,
    pub nodes: Nodes,
    /// The kernel's end.
    pub device: OwnedFd,
    pub owners: Owners,
    pub protected: Vec<Protected>,
    pub line: Arc<Line>,
    handles: Mutex<HashMap<u64, Arc<Open>>>,
    last: AtomicU64,
}

impl Tree {
    /// A tree that is asked about over a line.
    pub(super) fn new(
        number: usize,
        (place, root): (AbsPath, OwnedFd),
        (task, owners): (TaskId, Owners),
        protected: Vec<Protected>,
        device: OwnedFd,
        line: Arc<Line>,
    ) -> Self {
        Self {
            number,
            place,
            task,
            nodes: Nodes::of(root),
            device,
            owners,
            protected,
            line,
            handles: Mutex::default(),
            last: AtomicU64::new(0),
        }
    }

    /// Serves one request.
    pub(super) fn serve(self: &Arc<Self>, bytes: &[u8]) {
        let Some(asked) = Asked::of(bytes) else {
            return;
        };
        match self.carry_out(&asked) {
            Ok(Done::Answer(bytes)) => self.answer(asked.unique, Ok(&bytes)),
            Ok(Done::Nothing | Done::Later) => {}
            Err(errno) => self.answer(asked.unique, Err(errno)),
        }
    }

    /// Answers the kernel. A caller that is gone is nobody's loss.
    fn answer(&self, unique: u64, result: Result<&[u8], Errno>) {
        let (error, body) = match result {
            Ok(body) => (None, body),
            Err(errno) => (Some(errno), [].as_slice()),
        };
        let head = wire::head(unique, error, body.len());
        let _ = writev(&self.device, &[IoSlice::new(&head), IoSlice::new(body)]);
    }

    fn carry_out(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        match asked.operation {
            op::LOOKUP => self.look_up(asked),
            op::FORGET => {
                let times = asked.fields().u64()?;
                self.nodes.forget(asked.node, times);
                Ok(Done::Nothing)
            }
            op::BATCH_FORGET => self.forget_many(asked),
            op::GETATTR => done(wire::attributes_of(&self.stat(asked.node)?, self.owners)),
            op::SETATTR => self.change(asked),
            op::READLINK => {
                let found = self.nodes.find(asked.node)?;
                let text = readlinkat(&found.open, c"", Vec::new())?;
                done(Answer::default().bytes(text.as_bytes()))
            }
            op::SYMLINK | op::MKNOD | op::MKDIR => self.make(asked),
            op::UNLINK | op::RMDIR => self.remove(asked),
            op::RENAME | op::RENAME2 => self.rename(asked),
            op::LINK => self.link(asked),
            op::OPEN => self.open(asked),
            op::CREATE => self.create(asked),
            op::READ => self.read(asked),
            op::WRITE => self.write(asked),
            op::FALLOCATE => self.reserve(asked),
            op::FSYNC | op::FSYNCDIR | op::FLUSH => self.flush(asked),
            op::RELEASE | op::RELEASEDIR => {
                let handle = asked.fields().u64()?;
                self.handles().remove(&handle);
                done(Answer::default())
            }
            op::OPENDIR => self.open_folder(asked),
            op::READDIR => self.list(asked),
            op::STATFS => self.file_system(),
            op::ACCESS => self.access(asked),
            op::INTERRUPT => self.interrupt(asked),
            op::INIT => wire::greeting(asked).map(Done::Answer).ok_or(Errno::PROTO),
            op::DESTROY => done(Answer::default()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Arc<Open>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, open: Open) -> Result<u64, Errno> {
        let mut handles = self.handles();
        if handles.len() >= MAX_OPEN {
            return Err(Errno::MFILE);
        }
        let handle = self.last.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        handles.insert(handle, Arc::new(open));
        Ok(handle)
    }

    fn handle(&self, handle: u64) -> Result<Arc<Open>, Errno> {
        self.handles().get(&handle).cloned().ok_or(Errno::BADF)
    }

    /// The path of a place, as rules see it.
    fn known_as(&self, path: &Path) -> Result<AbsPath, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(self.place.clone());
        }
        // A name that is no text can be shown, and neither asked about nor judged.
        let text = path.to_str().ok_or(Errno::ACCESS)?;
        self.place.join(text).map_err(|_| Errno::ACCESS)
    }

    fn protection(&self, path: &Path, folder: bool) -> Option<Protection> {
        let path = self.known_as(path).ok()?;
        let covering = self.protected.iter().filter(|one| one.pattern.covers(&path));
        covering
            .map(|one| one.protection)
            .filter(|how| *how != Protection::GuardFile || !folder)
            .max()
    }

    fn is_hidden(&self, path: &Path) -> bool {
        self.protection(path, true) == Some(Protection::Hide)
    }

    fn request(&self, verb: Verb, path: &Path) -> Result<Request, Errno> {
        if verb != Verb::Read && self.protection(path, false).is_some() {
            return Err(Errno::ROFS);
        }
        let resource = Resource::File(self.known_as(path)?);
        Ok(Request::new(self.task, verb, resource))
    }

    /// Asks about all of these, and then does it.
    fn when_allowed(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        requests: impl IntoIterator<Item = Request>,
        act: impl FnOnce(&Self) -> Result<Answer, Errno> + Send + 'static,
    ) -> Result<Done, Errno> {
        let (tree, unique) = (Arc::clone(self), asked.unique);
        let act: Act = Box::new(move |allowed| {
            let result = allowed.and_then(|()| act(&tree));
            let done = result.is_ok();
            match result {
                Ok(answer) => tree.answer(unique, Ok(&answer.done())),
                Err(errno) => tree.answer(unique, Err(errno)),
            }
            done
        });
        self.line.decide((self.number, asked.unique), requests, act);
        Ok(Done::Later)
    }

    fn look_up(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let name = asked.fields().name()?;
        let (_, stat) = self.at(asked.node, name)?;
        let number = self.nodes.number(asked.node, name, &stat);
        done(wire::entry(number, &stat, self.owners))
    }

    /// What stands at a name.
    fn at(&self, folder: u64, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        let path = self.nodes.path_in(folder, name)?;
        if self.is_hidden(&path) {
            return Err(Errno::NOENT);
        }
        let open = self.nodes.open(&path, OFlags::PATH)?;
        let stat = stat_of(&open)?;
        Ok((open, stat))
    }

    fn forget_many(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let count = fields.u32()?;
        fields.skip(4)?;
        for _ in 0..count {
            let (node, times) = (fields.u64()?, fields.u64()?);
            self.nodes.forget(node, times);
        }
        Ok(Done::Nothing)
    }

    fn stat(&self, node: u64) -> Result<Stat, Errno> {
        let errno = match self.nodes.find(node) {
            Ok(found) => return Ok(found.stat),
            Err(errno) => errno,
        };
        // What has lost its name and is open still.
        let opened = self.handles().values().find_map(|open| match open.as_ref() {
            Open::File { open, node: of, .. } if *of == node => rustix::fs::fstat(open).ok(),
            _ => None,
        });
        opened.ok_or(errno)
    }

    /// Insists that a file is still what its number stood for when it was asked about.
    fn still(&self, node: u64, found: &Found) -> Result<(), Errno> {
        // Never `ESTALE`, after which the kernel would ask once more, about what stands there now.
        let now = self.nodes.find(node).map_err(|_| Errno::ACCESS)?;
        let same = (now.stat.st_dev, now.stat.st_ino) == (found.stat.st_dev, found.stat.st_ino);
        if same && now.path == found.path {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    fn open(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let flags = OFlags::from_bits_retain(asked.fields().u32()?);
        let found = self.nodes.find(asked.node)?;
        match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::ACCESS),
        }
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        let verb = if writes { Verb::Write } else { Verb::Read };
        // Reading back is the kernel's wish where it fills a page that is written in part.
        let how = flags & (OFlags::RWMODE | OFlags::TRUNC);
        let request = self.request(verb, &found.path)?;
        let node = asked.node;
        self.when_allowed(asked, [request], move |tree| {
            tree.still(node, &found)?;
            let open = again(&found.open, how)?;
            let handle = tree.keep(Open::File { open, node, writes })?;
            Ok(wire::opened(Answer::default(), handle))
        })
    }

    fn create(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (flags, mode) = (OFlags::from_bits_retain(fields.u32()?), fields.u32()?);
        fields.skip(8)?;
        let name = fields.name()?.to_owned();
        let path = self.nodes.path_in(asked.node, &name)?;
        let request = self.request(Verb::Create, &path)?;
        let folder = self.nodes.find(asked.node)?;
        let node = asked.node;
        self.when_allowed(asked, [request], move |tree| {
            tree.still(node, &folder)?;
            let flags = (flags & OFlags::RWMODE) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = openat(&folder.open, &name, flags, Mode::from_raw_mode(mode & 0o777))?;
            let stat = rustix::fs::fstat(&open)?;
            let number = tree.nodes.number(node, &name, &stat);
            let file = Open::File {
                open,
                node: number,
                writes: true,
            };
            let handle = tree.keep(file)?;
            Ok(wire::opened(wire::entry(number, &stat, tree.owners), handle))
        })
    }

    /// Folders, links, pipes, sockets, and files made by `mknod`.
    fn make(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (mode, text) = match asked.operation {
            op::MKNOD => {
                let mode = fields.u32()?;
                fields.skip(12)?;
                (mode, None)
            }
            op::MKDIR => {
                let mode = fields.u32()?;
                fields.skip(4)?;
                (mode & 0o777 | 0o040_000, None)
            }
            _ => (0o120_000, Some(())),
        };
        let name = fields.name()?.to_owned();
        let text = text.map(|()| fields.text().map(OsStr::to_owned)).transpose()?;
        let kind = FileType::from_raw_mode(mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return Err(Errno::PERM);
        }
        let path = self.nodes.path_in(asked.node, &name)?;
        let request = self.request(Verb::Create, &path)?;
        let folder = self.nodes.find(asked.node)?;
        let node = asked.node;
        self.when_allowed(asked, [request], move |tree| {
            tree.still(node, &folder)?;
            let mode = Mode::from_raw_mode(mode & 0o777);
            match (kind, text) {
                (FileType::Directory, _) => mkdirat(&folder.open, &name, mode)?,
                (_, Some(text)) => symlinkat(&text, &folder.open, &name)?,
                (kind, None) => mknodat(&folder.open, &name, kind, mode, 0)?,
            }
            let stat = statat(&folder.open, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            let number = tree.nodes.number(node, &name, &stat);
            Ok(wire::entry(number, &stat, tree.owners))
        })
    }

    fn remove(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let name = asked.fields().name()?.to_owned();
        let (_, before) = self.at(asked.node, &name)?;
        let request = self.request(Verb::Delete, &self.nodes.path_in(asked.node, &name)?)?;
        let folder = self.nodes.find(asked.node)?;
        let how = match asked.operation {
            op::RMDIR => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        let node = asked.node;
        self.when_allowed(asked, [request], move |tree| {
            tree.still(node, &folder)?;
            is_still(&folder, &name, &before)?;
            unlinkat(&folder.open, &name, how)?;
            Ok(Answer::default())
        })
    }

    fn rename(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let to = fields.u64()?;
        let mut how = RenameFlags::empty();
        if asked.operation == op::RENAME2 {
            how = RenameFlags::from_bits_retain(fields.u32()?);
            fields.skip(4)?;
        }
        if how.intersects(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE) {
            return Err(Errno::INVAL);
        }
        let (old, new) = (fields.name()?.to_owned(), fields.name()?.to_owned());
        let from = asked.node;
        let (_, before) = self.at(from, &old)?;
        let in_place = self.at(to, &new).ok().map(|(_, stat)| stat);
        let verb = if in_place.is_some() { Verb::Write } else { Verb::Create };
        let requests = [
            self.request(Verb::Delete, &self.nodes.path_in(from, &old)?)?,
            self.request(verb, &self.nodes.path_in(to, &new)?)?,
        ];
        let (source, target) = (self.nodes.find(from)?, self.nodes.find(to)?);
        self.when_allowed(asked, requests, move |tree| {
            tree.still(from, &source)?;
            tree.still(to, &target)?;
            is_still(&source, &old, &before)?;
            let how = match &in_place {
                Some(replaced) => is_still(&target, &new, replaced).map(|()| how)?,
                None => how | RenameFlags::NOREPLACE,
            };
            renameat_with(&source.open, &old, &target.open, &new, how)?;
            tree.nodes.renamed((from, &old), (to, &new), &before);
            Ok(Answer::default())
        })
    }

    fn link(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let linked = fields.u64()?;
        let name = fields.name()?.to_owned();
        let found = self.nodes.find(linked)?;
        let requests = [
            self.request(Verb::Write, &found.path)?,
            self.request(Verb::Create, &self.nodes.path_in(asked.node, &name)?)?,
        ];
        let folder = self.nodes.find(asked.node)?;
        let node = asked.node;
        self.when_allowed(asked, requests, move |tree| {
            tree.still(node, &folder)?;
            tree.still(linked, &found)?;
            linkat(CWD, itself(&found.open)?, &folder.open, &name, AtFlags::SYMLINK_FOLLOW)?;
            let stat = statat(&folder.open, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            let number = tree.nodes.number(node, &name, &stat);
            Ok(wire::entry(number, &stat, tree.owners))
        })
    }

    /// Size, mode and times. What is open for writing may be changed by whoever has it open.
    fn change(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let valid = fields.u32()?;
        fields.skip(4)?;
        let (handle, size) = (fields.u64()?, fields.u64()?);
        fields.skip(8)?;
        let (accessed, changed) = (fields.u64()?, fields.u64()?);
        fields.skip(8)?;
        let (accessed_part, changed_part) = (fields.u32()?, fields.u32()?);
        fields.skip(4)?;
        let mode = fields.u32()?;
        if valid & change::OWNER != 0 {
            return Err(Errno::PERM);
        }
        let time = |set: u32, now: u32, seconds: u64, part: u32| Timespec {
            tv_sec: i64::try_from(seconds).unwrap_or(0),
            tv_nsec: match (valid & now != 0, valid & set != 0) {
                (true, _) => UTIME_NOW,
                (false, true) => part.into(),
                (false, false) => UTIME_OMIT,
            },
        };
        let wish = Change {
            size: (valid & change::SIZE != 0).then_some(size),
            mode: (valid & change::MODE != 0).then_some(mode & 0o777),
            times: (valid & (change::ACCESSED | change::CHANGED) != 0).then(|| Timestamps {
                last_access: time(change::ACCESSED, change::ACCESSED_NOW, accessed, accessed_part),
                last_modification: time(change::CHANGED, change::CHANGED_NOW, changed, changed_part),
            }),
        };
        let handle = (valid & change::HANDLE != 0).then_some(handle);
        let opened = handle.and_then(|handle| self.handle(handle).ok()).or_else(|| {
            let writes = |open: &&Arc<Open>| matches!(open.as_ref(), Open::File { node, writes: true, .. } if *node == asked.node);
            self.handles().values().find(writes).cloned()
        });
        if let Some(Open::File { open, writes: true, .. }) = opened.as_deref() {
            wish.make(open, true)?;
            return done(wire::attributes_of(&rustix::fs::fstat(open)?, self.owners));
        }
        let found = self.nodes.find(asked.node)?;
        let request = self.request(Verb::Write, &found.path)?;
        let node = asked.node;
        self.when_allowed(asked, [request], move |tree| {
            tree.still(node, &found)?;
            wish.make(&found.open, false)?;
            Ok(wire::attributes_of(&stat_of(&found.open)?, tree.owners))
        })
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let handle = self.handle(handle)?;
        let Open::File { open, .. } = handle.as_ref() else {
            return Err(Errno::ISDIR);
        };
        let size = usize::try_from(size).unwrap_or(MAX_PIECE).min(MAX_PIECE);
        let mut bytes = vec![0u8; size];
        let count = pread(open, &mut bytes, offset)?;
        bytes.truncate(count);
        Ok(Done::Answer(bytes))
    }

    fn write(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
        fields.skip(20)?;
        let bytes = fields.bytes(usize::try_from(size).map_err(|_| Errno::INVAL)?)?;
        let handle = self.handle(handle)?;
        let Open::File { open, writes: true, .. } = handle.as_ref() else {
            return Err(Errno::BADF);
        };
        let written = pwrite(open, bytes, offset)?;
        done(Answer::default().u32(u32::try_from(written).unwrap_or(0)).u32(0))
    }

    fn reserve(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (handle, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let mode = fields.u32()?;
        let handle = self.handle(handle)?;
        let Open::File { open, writes: true, .. } = handle.as_ref() else {
            return Err(Errno::BADF);
        };
        fallocate(open, FallocateFlags::from_bits_retain(mode), offset, length)?;
        done(Answer::default())
    }

    fn flush(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        if asked.operation == op::FSYNC {
            let handle = self.handle(asked.fields().u64()?)?;
            if let Open::File { open, .. } = handle.as_ref() {
                rustix::fs::fsync(open)?;
            }
        }
        done(Answer::default())
    }

    fn open_folder(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let found = self.nodes.find(asked.node)?;
        let open = self.nodes.open(&found.path, OFlags::RDONLY | OFlags::DIRECTORY);
        let open = match (open, asked.node) {
            // The tree's own folder is held without the right to list it.
            (_, ROOT) => openat(
                self.nodes.root(),
                c".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?,
            (open, _) => open?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&open)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_way = matches!(name.as_bytes(), b"." | b"..");
            if is_way || !self.is_hidden(&found.path.join(name)) {
                let kind = FileType::as_raw_mode(entry.file_type()) >> 12;
                entries.push((name.to_owned(), entry.ino(), kind));
            }
        }
        let handle = self.keep(Open::Folder(entries))?;
        done(wire::opened(Answer::default(), handle))
    }

    fn list(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mut fields = asked.fields();
        let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let handle = self.handle(handle)?;
        let Open::Folder(entries) = handle.as_ref() else {
            return Err(Errno::NOTDIR);
        };
        let room = usize::try_from(size).unwrap_or(MAX_PIECE).min(MAX_PIECE);
        let mut bytes = Vec::new();
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, (name, inode, kind)) in entries.iter().enumerate().skip(first) {
            let next = u64::try_from(place).unwrap_or(u64::MAX).saturating_add(1);
            if !wire::put_entry(&mut bytes, room, *inode, next, *kind, name) {
                break;
            }
        }
        Ok(Done::Answer(bytes))
    }

    fn file_system(&self) -> Result<Done, Errno> {
        let found = fstatvfs(self.nodes.root())?;
        let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let answer = Answer::default()
            .u64(found.f_blocks)
            .u64(found.f_bfree)
            .u64(found.f_bavail)
            .u64(found.f_files)
            .u64(found.f_ffree)
            .u32(short(found.f_bsize))
            .u32(short(found.f_namemax))
            .u32(short(found.f_frsize))
            .u32(0);
        done(answer.bytes(&[0; 24]))
    }

    fn access(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let mask = asked.fields().u32()?;
        let found = self.nodes.find(asked.node)?;
        let wish = Access::from_bits_truncate(u8::try_from(mask & 7).unwrap_or(7).into());
        accessat(CWD, itself(&found.open)?, wish, AtFlags::empty())?;
        done(Answer::default())
    }

    /// Ends the wait of a call. One that is not known may not have been taken up yet: the kernel says it again.
    fn interrupt(&self, asked: &Asked<'_>) -> Result<Done, Errno> {
        let unique = asked.fields().u64()?;
        if self.line.interrupt((self.number, unique)) {
            return Ok(Done::Nothing);
        }
        Err(Errno::AGAIN)
    }
}

/// What is changed of a file besides its content.
struct Change {
    size: Option<u64>,
    mode: Option<u32>,
    times: Option<Timestamps>,
}

impl Change {
    /// Makes the change. `open` is open for writing, or for nothing.
    fn make(&self, open: &OwnedFd, writes: bool) -> Result<(), Errno> {
        if let Some(size) = self.size {
            if writes {
                ftruncate(open, size)?;
            } else {
                ftruncate(again(open, OFlags::WRONLY)?, size)?;
            }
        }
        let name = itself(open)?;
        if let Some(mode) = self.mode {
            chmod(name.as_c_str(), Mode::from_raw_mode(mode))?;
        }
        if let Some(times) = &self.times {
            utimensat(CWD, name.as_c_str(), times, AtFlags::empty())?;
        }
        Ok(())
    }
}

/// The name by which the kernel opens what a descriptor stands for.
fn itself(open: impl AsFd) -> Result<CString, Errno> {
    CString::new(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())).map_err(|_| Errno::INVAL)
}

/// Opens what a descriptor stands for once more, with rights.
fn again(open: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(
        CWD,
        itself(open)?,
        flags | OFlags::CLOEXEC | OFlags::NOCTTY,
        Mode::empty(),
    )
}

/// Insists that the same file stands at a name.
fn is_still(folder: &Found, name: &OsStr, before: &Stat) -> Result<(), Errno> {
    let now = statat(&folder.open, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}
