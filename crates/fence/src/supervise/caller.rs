//! The process that waits in a held call: what it asked for, read once, and where it stands.
//!
//! Promises: P5 (what is judged is what is done: every argument in memory is copied here once, and never read again).
//! Trust: all of it is the agent's. Another thread may change memory, descriptors and folders at any time: each is
//! looked at once, and what was found is what is used.
//! See: proc(5), pidfd_getfd(2).

use std::ffi::{CString, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys::notify::{Held, read_many, read_memory};

/// Longest path, as in the kernel, with its final NUL.
const MAX_PATH: usize = 4096;
/// The part of memory that is mapped whole or not at all.
const PAGE: u64 = 4096;
/// Longest socket address (`struct sockaddr_storage`).
const MAX_ADDRESS: usize = 128;
/// Furthest ancestor that is looked for.
const MAX_ANCESTORS: usize = 4096;

/// Who waits, and with what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// The call.
    pub held: Held,
}

fn text_of(bytes: &str) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

/// What a magic link of `/proc` says.
pub(crate) fn link_text(path: &str) -> Result<PathBuf, Errno> {
    let text = readlinkat(CWD, text_of(path)?, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

/// The path of an open file, as the kernel knows it now.
pub(crate) fn path_of(open: impl AsFd) -> Result<PathBuf, Errno> {
    use std::os::fd::AsRawFd;
    link_text(&format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

impl Caller {
    /// An argument.
    pub(crate) fn argument(&self, place: usize) -> u64 {
        self.held.arguments.get(place).copied().unwrap_or(0)
    }

    /// An argument that is a descriptor, or flags: the kernel reads 32 bits of it.
    pub(crate) fn number(&self, place: usize) -> i32 {
        let bytes = self.argument(place).to_ne_bytes();
        let [a, b, c, d, ..] = if cfg!(target_endian = "little") {
            bytes
        } else {
            let [_, _, _, _, a, b, c, d] = bytes;
            [a, b, c, d, 0, 0, 0, 0]
        };
        i32::from_ne_bytes([a, b, c, d])
    }

    /// Flags: the lower 32 bits of an argument.
    pub(crate) fn flags(&self, place: usize) -> u32 {
        self.number(place).cast_unsigned()
    }

    /// The path that an argument points to.
    pub(crate) fn path(&self, place: usize) -> Result<PathBuf, Errno> {
        let found = text_at(self.held.thread, self.argument(place), MAX_PATH).map_err(|errno| match errno {
            Errno::TOOBIG => Errno::NAMETOOLONG,
            other => other,
        })?;
        match found.len() {
            0 => Err(Errno::NOENT),
            MAX_PATH.. => Err(Errno::NAMETOOLONG),
            _ => Ok(PathBuf::from(OsString::from_vec(found))),
        }
    }

    /// The texts that a list of addresses points to, which ends with none: a program's words, or its variables. At most
    /// `limit` bytes in all.
    pub(crate) fn texts(&self, place: usize, limit: usize) -> Result<Vec<Vec<u8>>, Errno> {
        let list = self.argument(place);
        if list == 0 {
            return Ok(Vec::new());
        }
        let mut addresses = Vec::new();
        let mut at = list;
        'list: loop {
            // Not beyond a page, which may be the last.
            let room = usize::try_from(PAGE.saturating_sub(at % PAGE)).unwrap_or(8).max(8);
            let mut bytes = vec![0u8; room.min(1024)];
            let got = read_memory(self.held.thread, at, &mut bytes).map_err(|_| Errno::FAULT)?;
            if got < 8 {
                return Err(Errno::FAULT);
            }
            let whole = got - got % 8;
            for word in bytes.get(..whole).unwrap_or_default().chunks_exact(8) {
                match u64::from_ne_bytes(<[u8; 8]>::try_from(word).unwrap_or_default()) {
                    0 => break 'list,
                    address => addresses.push(address),
                }
            }
            if addresses.len().saturating_mul(8) > limit {
                return Err(Errno::TOOBIG);
            }
            at = at.saturating_add(u64::try_from(whole).unwrap_or(8));
        }
        read_texts(self.held.thread, &addresses, limit)
    }

    /// True when an argument is no address, or that of an empty text.
    pub(crate) fn is_empty(&self, place: usize) -> bool {
        self.argument(place) == 0 || self.path(place) == Err(Errno::NOENT)
    }

    /// Bytes that an argument points to.
    pub(crate) fn bytes<const N: usize>(&self, place: usize) -> Result<[u8; N], Errno> {
        let mut bytes = [0u8; N];
        match read_memory(self.held.thread, self.argument(place), &mut bytes) {
            Ok(got) if got == N => Ok(bytes),
            _ => Err(Errno::FAULT),
        }
    }

    /// The socket address at `place`, whose length stands in the argument after it.
    pub(crate) fn address(&self, place: usize) -> Result<Vec<u8>, Errno> {
        let length = usize::try_from(self.number(place.saturating_add(1))).map_err(|_| Errno::INVAL)?;
        if length > MAX_ADDRESS {
            return Err(Errno::INVAL);
        }
        let mut bytes = vec![0u8; length];
        match read_memory(self.held.thread, self.argument(place), &mut bytes) {
            Ok(got) if got == length => Ok(bytes),
            _ => Err(Errno::FAULT),
        }
    }

    /// The folder that a relative path begins at: the current one, or that of a descriptor.
    pub(crate) fn base(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        let thread = self.held.thread;
        let (at, lost) = match descriptor {
            libc::AT_FDCWD => (format!("/proc/{thread}/cwd"), Errno::NOENT),
            number if number < 0 => return Err(Errno::BADF),
            number => (format!("/proc/{thread}/fd/{number}"), Errno::BADF),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat(CWD, text_of(&at)?, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => lost,
            other => other,
        })
    }

    /// A descriptor of the caller's: the same open file, here.
    pub(crate) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let number: RawFd = number;
        pidfd_getfd(self.process_of_thread()?, number, PidfdGetfdFlags::empty())
    }

    /// The thread, as a descriptor; its process where the kernel is older than Linux 6.9.
    fn process_of_thread(&self) -> Result<OwnedFd, Errno> {
        /// `PIDFD_THREAD`, which is `O_EXCL` (pidfd_open(2)).
        const THREAD: u32 = 0o200;
        let thread = Pid::from_raw(self.held.thread).ok_or(Errno::SRCH)?;
        match pidfd_open(thread, PidfdFlags::from_bits_retain(THREAD)) {
            Err(Errno::INVAL) => {}
            done => return done,
        }
        pidfd_open(Pid::from_raw(self.process()?).ok_or(Errno::SRCH)?, PidfdFlags::empty())
    }

    /// The number of the thread's process.
    pub(crate) fn process(&self) -> Result<i32, Errno> {
        status_field(self.held.thread, "Tgid:")
            .and_then(|text| text.parse().ok())
            .ok_or(Errno::SRCH)
    }

    /// The bits that are taken from the mode of what it makes.
    pub(crate) fn umask(&self) -> u32 {
        status_field(self.held.thread, "Umask:")
            .and_then(|text| u32::from_str_radix(&text, 8).ok())
            .unwrap_or(0o022)
    }

    /// The terminal that the caller's session belongs to, by its number among the pseudo-terminals.
    pub(crate) fn terminal(&self) -> Option<u32> {
        /// The kernel's numbers of pseudo-terminals begin at this major device number, 256 to each (devices.txt).
        const FIRST: u32 = 136;
        let device = stat_field(self.held.thread, 4)?;
        let device = u32::try_from(device).ok()?;
        let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
        let block = major.checked_sub(FIRST).filter(|block| *block < 8)?;
        Some(block.saturating_mul(256).saturating_add(minor))
    }
}

/// The texts at these addresses, each up to its NUL.
fn read_texts(thread: i32, addresses: &[u64], limit: usize) -> Result<Vec<Vec<u8>>, Errno> {
    /// What is read of each at first: most words and variables are shorter.
    const FIRST: usize = 128;
    let mut all = 0_usize;
    let mut texts = Vec::with_capacity(addresses.len());
    for group in addresses.chunks(256) {
        let firsts = read_many(thread, group, FIRST);
        for (address, first) in group.iter().zip(firsts) {
            let text = match first.iter().position(|byte| *byte == 0) {
                Some(end) => first.get(..end).unwrap_or_default().to_vec(),
                None => text_at(thread, *address, limit)?,
            };
            all = all.saturating_add(text.len()).saturating_add(1);
            if all > limit {
                return Err(Errno::TOOBIG);
            }
            texts.push(text);
        }
    }
    Ok(texts)
}

/// The text at an address, up to its NUL.
pub(crate) fn text_at(thread: i32, address: u64, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut found = Vec::new();
    let mut at = address;
    let mut page = [0u8; 4096];
    while found.len() <= limit {
        let room = usize::try_from(PAGE.saturating_sub(at % PAGE)).unwrap_or(page.len());
        let into = page.get_mut(..room).ok_or(Errno::FAULT)?;
        let got = read_memory(thread, at, into).map_err(|_| Errno::FAULT)?;
        let part = page.get(..got).ok_or(Errno::FAULT)?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            found.extend_from_slice(part.get(..end).unwrap_or_default());
            return Ok(found);
        }
        if got == 0 {
            return Err(Errno::FAULT);
        }
        found.extend_from_slice(part);
        at = at.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
    }
    Err(Errno::TOOBIG)
}

fn status_field(thread: i32, name: &str) -> Option<String> {
    let path = text_of(&format!("/proc/{thread}/status")).ok()?;
    let open = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The kernel writes it whole for each read: one is enough, and the lines that are looked for stand at its beginning.
    let mut bytes = [0u8; 4096];
    let got = rustix::io::read(open, &mut bytes).ok()?;
    let text = String::from_utf8_lossy(bytes.get(..got)?);
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// A number in `/proc/PID/stat`, counted from the state, which is 0.
fn stat_field(process: i32, place: usize) -> Option<i64> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything, also brackets.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = String::from_utf8_lossy(text.get(end.saturating_add(1)..)?).into_owned();
    rest.split_whitespace().nth(place)?.parse().ok()
}

/// The parent of a process.
fn parent_of(process: i32) -> Option<i32> {
    stat_field(process, 1).and_then(|parent| i32::try_from(parent).ok())
}

/// True when a process descends from `ancestor`. Orphans among them were adopted by it.
pub(crate) fn descends(process: i32, ancestor: i32) -> bool {
    let mut now = process;
    for _ in 0..MAX_ANCESTORS {
        match parent_of(now) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => now = parent,
            _ => return false,
        }
    }
    false
}

/// The group that a process belongs to.
pub(crate) fn group_of(process: i32) -> Option<i32> {
    stat_field(process, 2).and_then(|group| i32::try_from(group).ok())
}

/// All processes that descend from one.
pub(crate) fn descendants(ancestor: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let all: Vec<(i32, i32)> = entries
        .flatten()
        .filter_map(number)
        .filter_map(|process| Some((process, parent_of(process)?)))
        .collect();
    let mut found = vec![ancestor];
    let mut place = 0;
    while let Some(parent) = found.get(place).copied() {
        found.extend(
            all.iter()
                .filter(|(_, above)| *above == parent)
                .map(|(process, _)| *process),
        );
        place = place.saturating_add(1);
    }
    found.split_off(1)
}

/// The last name of a path and the text before it. None where the path ends in `.`, `..` or is the root.
pub(crate) fn split_last(path: &Path) -> Option<(PathBuf, OsString)> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/')?;
    let whole = bytes.get(..=end)?;
    let start = whole
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |place| place.saturating_add(1));
    let (folder, name) = whole.split_at_checked(start)?;
    if matches!(name, b"." | b"..") {
        return None;
    }
    let folder = if folder.is_empty() { b".".as_slice() } else { folder };
    Some((
        PathBuf::from(OsString::from_vec(folder.to_vec())),
        OsString::from_vec(name.to_vec()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_is_told_apart() {
        let split = |path: &str| {
            split_last(Path::new(path))
                .map(|(folder, name)| (folder.display().to_string(), name.into_string().unwrap()))
        };
        let of = |folder: &str, name: &str| Some((folder.to_owned(), name.to_owned()));
        assert_eq!(split("a"), of(".", "a"));
        assert_eq!(split("/a"), of("/", "a"));
        assert_eq!(split("x/y//z//"), of("x/y//", "z"));
        for none in ["/", "x/..", ".", "x/./"] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn p5_a_path_is_the_folder_and_the_last_name(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..64), slashes in 0usize..3) {
            let bytes = [bytes, vec![b'/'; slashes]].concat();
            let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
            if let Some((folder, name)) = split_last(path) {
                let name = name.as_bytes();
                assert!(!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..");
                let steps = |path: &Path| {
                    let all = path.components().filter(|step| *step != std::path::Component::CurDir);
                    all.map(|step| step.as_os_str().to_owned()).collect::<Vec<_>>()
                };
                assert_eq!(steps(&folder.join(std::ffi::OsStr::from_bytes(name))), steps(path));
            }
        }
    }

    #[test]
    fn descent_is_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        assert!(descends(number, own) && descendants(own).contains(&number));
        assert!(!descends(1, own) && !descends(own, number));
        assert!(group_of(number).is_some() && group_of(number) == group_of(own));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
