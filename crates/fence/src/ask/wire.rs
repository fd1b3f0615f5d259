//! The words of FUSE: what the kernel asks of a file system in a process, and how it is answered.
//!
//! Trust: the kernel writes the frames; names in them are the agent's. Nothing here panics on a short or odd frame: what
//! cannot be read is answered `EINVAL`. Numbers are in the machine's own order.
//! See: fuse(4), and the kernel's `include/uapi/linux/fuse.h`, from which numbers and layouts are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::Stat;
use rustix::io::Errno;

/// Largest piece that is read or written at once, in bytes.
pub(super) const MAX_PIECE: usize = 1 << 20;
/// What a buffer for one request must hold.
pub(super) const MAX_REQUEST: usize = MAX_PIECE + 4096;

/// The version that is spoken.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Reads that do not wait for each other; opening that shortens; several names of one folder at once; large pieces.
const WANTED: u32 = 1 | 1 << 3 | 1 << 5 | 1 << 18 | 1 << 22;

/// What is asked, by its number.
pub(super) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const RENAME2: u32 = 45;
}

/// What `SETATTR` changes.
pub(super) mod change {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const OWNER: u32 = 1 << 1 | 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ACCESSED: u32 = 1 << 4;
    pub(crate) const CHANGED: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ACCESSED_NOW: u32 = 1 << 7;
    pub(crate) const CHANGED_NOW: u32 = 1 << 8;
}

/// One request of the kernel's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub operation: u32,
    /// Its number, by which it is answered.
    pub unique: u64,
    /// What it is about.
    pub node: u64,
    rest: &'a [u8],
}

impl<'a> Asked<'a> {
    /// Reads the head of a request; none where it is too short to be one.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let _length = fields.u32().ok()?;
        let operation = fields.u32().ok()?;
        let unique = fields.u64().ok()?;
        let node = fields.u64().ok()?;
        // Who asks: user, group, process, and what extends it.
        fields.skip(16).ok()?;
        Some(Self {
            operation,
            unique,
            node,
            rest: fields.0,
        })
    }

    /// What comes after the head.
    pub(super) fn fields(&self) -> Fields<'a> {
        Fields(self.rest)
    }
}

/// Reads fields one after the other.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*head))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*head))
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), Errno> {
        self.0 = self.0.get(count..).ok_or(Errno::INVAL)?;
        Ok(())
    }

    /// A text that ends with a NUL.
    pub(super) fn text(&mut self) -> Result<&'a OsStr, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (text, rest) = self.0.split_at_checked(end).ok_or(Errno::INVAL)?;
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(OsStr::from_bytes(text))
    }

    /// A name: one step of a path.
    pub(super) fn name(&mut self) -> Result<&'a OsStr, Errno> {
        let name = self.text()?;
        match name.as_bytes() {
            b"" | b"." | b".." => Err(Errno::INVAL),
            bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
            _ => Ok(name),
        }
    }

    /// The next bytes, as many as there are of `count`.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        self.0.get(..count).ok_or(Errno::INVAL)
    }
}

/// An answer under construction.
#[derive(Debug, Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The answer's bytes.
    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// The head of an answer of this many bytes.
pub(super) fn head(unique: u64, error: Option<Errno>, length: usize) -> Vec<u8> {
    let whole = u32::try_from(length.saturating_add(16)).unwrap_or(u32::MAX);
    let error = error.map_or(0, |errno| errno.raw_os_error().saturating_neg());
    Answer::default()
        .u32(whole)
        .u32(error.cast_unsigned())
        .u64(unique)
        .done()
}

/// Answers the greeting; none where the kernel speaks another language.
pub(super) fn greeting(asked: &Asked<'_>) -> Option<Vec<u8>> {
    let mut fields = asked.fields();
    let (major, minor) = (fields.u32().ok()?, fields.u32().ok()?);
    let (ahead, offered) = (fields.u32().ok()?, fields.u32().ok()?);
    if major != MAJOR || minor < MINOR {
        return None;
    }
    let pages = u16::try_from(MAX_PIECE / 4096).unwrap_or(u16::MAX);
    let answer = Answer::default()
        .u32(MAJOR)
        .u32(MINOR)
        .u32(ahead)
        .u32(offered & WANTED)
        // How many may be under way in the background, and from when the kernel holds back.
        .u16(64)
        .u16(48)
        .u32(u32::try_from(MAX_PIECE).unwrap_or(u32::MAX))
        // Times are exact to the nanosecond.
        .u32(1)
        .u16(pages)
        .u16(0);
    Some(answer.bytes(&[0; 32]).done())
}

/// Who owns what, as the fence has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners {
    pub inside: (u32, u32),
    pub outside: (u32, u32),
}

/// Who owns what is nobody's in the fence.
const NOBODY: u32 = 65534;

impl Owners {
    fn user(self, owner: u32) -> u32 {
        if owner == self.outside.0 { self.inside.0 } else { NOBODY }
    }

    fn group(self, owner: u32) -> u32 {
        if owner == self.outside.1 { self.inside.1 } else { NOBODY }
    }
}

fn unsigned(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

fn short(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(0)
}

fn attributes(answer: Answer, stat: &Stat, owners: Owners) -> Answer {
    answer
        .u64(stat.st_ino)
        .u64(unsigned(stat.st_size))
        .u64(unsigned(stat.st_blocks))
        .u64(unsigned(stat.st_atime))
        .u64(unsigned(stat.st_mtime))
        .u64(unsigned(stat.st_ctime))
        .u32(short(stat.st_atime_nsec))
        .u32(short(stat.st_mtime_nsec))
        .u32(short(stat.st_ctime_nsec))
        .u32(stat.st_mode)
        .u32(short(stat.st_nlink))
        .u32(owners.user(stat.st_uid))
        .u32(owners.group(stat.st_gid))
        .u32(short(stat.st_rdev))
        .u32(short(stat.st_blksize))
        .u32(0)
}

/// What `GETATTR` is answered. The kernel believes none of it for longer than the call: files change outside.
pub(super) fn attributes_of(stat: &Stat, owners: Owners) -> Answer {
    attributes(Answer::default().u64(0).u32(0).u32(0), stat, owners)
}

/// What a name stands for.
pub(super) fn entry(node: u64, stat: &Stat, owners: Owners) -> Answer {
    let head = Answer::default().u64(node).u64(0).u64(0).u64(0).u32(0).u32(0);
    attributes(head, stat, owners)
}

/// What stands for a name that is absent, which the kernel may believe for so many seconds.
pub(super) fn absent(seconds: u64) -> Vec<u8> {
    Answer::default().u64(0).u64(0).u64(seconds).bytes(&[0; 104]).done()
}

/// What `GETATTR` is answered of an empty folder that never changes.
pub(super) fn empty_folder(owner: (u32, u32)) -> Vec<u8> {
    const FOLDER: u32 = 0o040_755;
    let head = Answer::default().u64(1 << 30).u32(0).u32(0);
    let times = head.u64(1).bytes(&[0; 52]).u32(FOLDER).u32(2);
    times.u32(owner.0).u32(owner.1).u32(0).u32(4096).u32(0).done()
}

/// What `STATFS` is answered where there is no room.
pub(super) fn no_space() -> Vec<u8> {
    Answer::default()
        .bytes(&[0; 40])
        .u32(4096)
        .u32(255)
        .u32(4096)
        .bytes(&[0; 28])
        .done()
}

/// What is open under a number.
pub(super) fn opened(answer: Answer, handle: u64) -> Answer {
    answer.u64(handle).u32(0).u32(0)
}

/// Puts an entry of a folder into an answer of at most `room` bytes. False when there is no room for it.
pub(super) fn put_entry(into: &mut Vec<u8>, room: usize, inode: u64, next: u64, kind: u32, name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let padded = 24usize.saturating_add(bytes.len()).next_multiple_of(8);
    if into.len().saturating_add(padded) > room {
        return false;
    }
    let length = short(bytes.len());
    let entry = Answer::default()
        .u64(inode)
        .u64(next)
        .u32(length)
        .u32(kind)
        .bytes(bytes)
        .done();
    let end = into.len().saturating_add(padded);
    into.extend_from_slice(&entry);
    into.resize(end, 0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_odd_frames_are_refused() {
        assert!(Asked::of(&[0; 39]).is_none());
        let bytes = [[0u8; 40].as_slice(), b"a/b\0..\0\0name\0rest"].concat();
        let asked = Asked::of(&bytes).unwrap();
        let mut fields = asked.fields();
        assert_eq!(fields.name(), Err(Errno::INVAL), "two steps");
        assert_eq!(fields.name(), Err(Errno::INVAL), "a way up");
        assert_eq!(fields.name(), Err(Errno::INVAL), "nothing");
        assert_eq!(fields.name(), Ok(OsStr::new("name")));
        assert_eq!(fields.name(), Err(Errno::INVAL), "no end");
        assert_eq!(fields.u64(), Err(Errno::INVAL), "too short");
    }

    #[test]
    fn answers_have_the_kernels_sizes() {
        let stat = rustix::fs::stat("/").unwrap();
        let owners = Owners {
            inside: (1000, 1000),
            outside: (0, 0),
        };
        assert_eq!(attributes_of(&stat, owners).done().len(), 104);
        assert_eq!(entry(1, &stat, owners).done().len(), 128);
        assert_eq!(opened(Answer::default(), 1).done().len(), 16);
        assert_eq!(absent(1).len(), 128);
        assert_eq!(empty_folder((1, 1)).len(), 104);
        assert_eq!(no_space().len(), 80);
        let mut init = vec![0u8; 40];
        init.extend([7u32, 31, 0, u32::MAX].iter().flat_map(|word| word.to_ne_bytes()));
        assert_eq!(greeting(&Asked::of(&init).unwrap()).unwrap().len(), 64);
    }
}
