//! Programs that start: held, read, asked about, and looked at once more before their first instruction.
//!
//! Answers: what really starts here, and may it? Promises: P1, P5 (what was judged is what starts), P10.
//! A held start is read from the caller's memory, which another thread may change until the kernel has copied it. So the
//! thread is seized while it waits, and stops in its new program before the first instruction: there words, variables and
//! file must be what was judged, or the program ends. A trace is needed for that, hence where starts are judged nobody
//! inside traces or writes into another's memory.
//! Where no rule tells programs apart, starts are not held at all (`filter`).
//! Trust: all of it is the agent's. Not here: what words mean (`Reading`), who may (`mediator`).
//! See: execve(2), ptrace(2), `load_script` in the kernel's `fs/binfmt_script.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bailiwick_gate::{Judged, Start};
use bailiwick_model::{Request, Verb};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::caller::{Caller, link_text};
use super::line::{Leave, No};
use super::outside::Place;
use super::scope::May;
use super::stack::Laid;
use super::walk::{Aim, There, there};
use super::{Done, Supervisor};
use crate::sys::notify;
use crate::sys::trace::{self, Stopped};

/// Most bytes of words, and of variables.
const MAX_TEXTS: usize = 2 * 1024 * 1024;
/// How much of a file says who reads it, as in the kernel.
const HEAD: usize = 256;
/// Most readers of readers, as in the kernel.
const MAX_READERS: usize = 5;
/// Programs that only read what they are given: that a script names one of them says nothing beyond the script.
const READERS: [&str; 14] = [
    "sh", "bash", "dash", "zsh", "ksh", "fish", "env", "node", "perl", "ruby", "php", "awk", "gawk", "tclsh",
];

/// Where a start's arguments stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// The folder that the path is relative to.
    pub base: i32,
    /// The path.
    pub path: usize,
    /// The words; the variables come after them.
    pub words: usize,
    /// The flags.
    pub flags: u32,
}

/// What is to start, read once.
#[derive(Debug)]
struct Wanted {
    file: There,
    called: Vec<u8>,
    words: Vec<Vec<u8>>,
    /// Its variables, where it is asked about, or is a script: else nothing goes by them.
    variables: Option<Vec<Vec<u8>>>,
    /// Who reads it, where it is a script.
    reader: Option<Reader>,
    /// The programs of the machine that the file is a copy of.
    like: Vec<String>,
    /// True where it is asked about by its own names.
    by_name: bool,
}

/// What starts for a script.
#[derive(Debug)]
struct Reader {
    file: There,
    /// The words that stand before the script's own, its name among them.
    ahead: Vec<Vec<u8>>,
}

/// What has started, before its first instruction.
#[derive(Debug)]
struct Begun {
    file: There,
    laid: Laid,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn last_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    text(name)
}

fn same(one: &There, other: &There) -> bool {
    (one.stat.st_dev, one.stat.st_ino) == (other.stat.st_dev, other.stat.st_ino)
}

impl Begun {
    fn of(process: i32) -> Result<Self, Errno> {
        let at = trace::stack_of(process).map_err(|_| Errno::SRCH)?;
        let laid = Laid::of(process, at)?;
        let exe = openat(
            CWD,
            format!("/proc/{process}/exe"),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            file: There::of(exe)?,
            laid,
        })
    }
}

impl Reader {
    /// The path that it is called by.
    fn called(&self) -> &[u8] {
        self.ahead.first().map_or(&[], Vec::as_slice)
    }
}

impl Wanted {
    fn of(supervisor: &Supervisor, caller: &Caller, places: Places) -> Result<Self, Errno> {
        let of_descriptor = places.flags & libc::AT_EMPTY_PATH.cast_unsigned() != 0 && caller.is_empty(places.path);
        let (file, called) = if of_descriptor {
            let called = format!("/dev/fd/{}", places.base);
            (There::of(caller.base(places.base)?)?, called.into_bytes())
        } else {
            let path = caller.path(places.path)?;
            let aim = if places.flags & libc::AT_SYMLINK_NOFOLLOW.cast_unsigned() == 0 {
                Aim::End
            } else {
                Aim::Link
            };
            let file = there(caller, places.base, &supervisor.instead(path.clone()), aim)?;
            let called = if path.is_absolute() || places.base == libc::AT_FDCWD {
                path.into_os_string().into_vec()
            } else {
                format!("/dev/fd/{}/{}", places.base, path.display()).into_bytes()
            };
            (file, called)
        };
        if file.kind().is_symlink() {
            return Err(Errno::LOOP);
        }
        if !file.kind().is_file() {
            return Err(Errno::ACCESS);
        }
        let words = caller.texts(places.words, MAX_TEXTS)?;
        let mut wanted = Self {
            file,
            called,
            // The kernel gives a program without words an empty one.
            words: if words.is_empty() { vec![Vec::new()] } else { words },
            variables: None,
            reader: None,
            like: Vec::new(),
            by_name: false,
        };
        wanted.like = supervisor.like(&wanted.file);
        wanted.reader = wanted.find_reader(supervisor, caller)?;
        let names = names(&wanted.file, &wanted.called, wanted.words.first(), &wanted.like);
        wanted.by_name = supervisor.is_judged(&names);
        if wanted.by_name || wanted.reader.is_some() {
            wanted.variables = Some(caller.texts(places.words.saturating_add(1), MAX_TEXTS)?);
        }
        Ok(wanted)
    }

    /// Who reads the file, if it says so at its beginning.
    fn find_reader(&self, supervisor: &Supervisor, caller: &Caller) -> Result<Option<Reader>, Errno> {
        let mut ahead: Vec<Vec<u8>> = vec![self.called.clone()];
        let mut found: Option<There> = None;
        for _ in 0..MAX_READERS {
            let Some((reader, word)) = head(found.as_ref().unwrap_or(&self.file)) else {
                break;
            };
            let path = PathBuf::from(OsString::from_vec(reader.clone()));
            found = Some(there(caller, libc::AT_FDCWD, &supervisor.instead(path), Aim::End)?);
            ahead.splice(0..0, std::iter::once(reader).chain(word));
        }
        Ok(found.map(|file| Reader { file, ahead }))
    }

    /// The words that the kernel gives to what starts.
    fn final_words(&self) -> Vec<&[u8]> {
        let own = self.words.iter().map(Vec::as_slice);
        match &self.reader {
            None => own.collect(),
            Some(reader) => reader.ahead.iter().map(Vec::as_slice).chain(own.skip(1)).collect(),
        }
    }

    /// Whether what has started is what was read.
    fn is(&self, begun: &Begun) -> bool {
        let file = self.reader.as_ref().map_or(&self.file, |reader| &reader.file);
        same(file, &begun.file)
            && self.called == begun.laid.called
            && self.final_words() == begun.laid.words.iter().map(Vec::as_slice).collect::<Vec<_>>()
            && self.variables.as_ref() == Some(&begun.laid.variables)
    }
}

/// The program that a file names as its reader, and the word that goes along: its first line after `#!`.
fn head(file: &There) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let open = openat(
        CWD,
        super::files::path_to(&file.open).ok()?,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    );
    let mut bytes = [0u8; HEAD];
    let got = rustix::io::read(open.ok()?, &mut bytes).ok()?;
    reader_in(bytes.get(..got)?)
}

fn reader_in(bytes: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let line = bytes.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = line.split(|byte| *byte == 0).next()?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = line.get(line.iter().position(|byte| !blank(byte))?..)?;
    let line = line.get(..line.iter().rposition(|byte| !blank(byte))?.saturating_add(1))?;
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (reader, rest) = line.split_at_checked(end)?;
    let word = rest
        .iter()
        .position(|byte| !blank(byte))
        .and_then(|start| rest.get(start..));
    Some((reader.to_vec(), word.map(<[u8]>::to_vec)))
}

impl Supervisor {
    pub(super) fn start(self: &Arc<Self>, caller: &Caller, places: Places) -> Result<Done, Errno> {
        // The first start is this fence's own doing: nobody else runs yet.
        if !self.begun.load(Ordering::Acquire) {
            return self.follow(caller, |_| true, |_| true).map(|_| Done::Later);
        }
        let wanted = Wanted::of(self, caller, places)?;
        let by_name = wanted.by_name;
        let reader = wanted.reader.as_ref().and_then(|reader| self.judged_reader(reader));
        let seen = if by_name || reader.is_some() {
            Some(self.seen(caller, &wanted)?)
        } else {
            None
        };
        let outside = seen.as_ref().filter(|_| by_name && self.is_brokering());
        if let Some(request) = outside.and_then(|seen| self.brokered(seen)) {
            return self.start_outside(caller, &wanted, request);
        }
        let leave = seen.map(|seen| self.leave(caller, &wanted, seen, reader)).transpose()?;
        let judged = leave.is_some();
        let fits = |begun: &Begun| match judged {
            true => wanted.is(begun),
            // Not asked about: then what starts must be nothing that is, or the very script whose reader is not asked about.
            false => !self.is_judged(&self.names_of(begun)) || wanted.is(begun),
        };
        let came = self.follow(caller, fits, |_| true);
        if let Some((leave, line)) = leave.zip(self.line.as_ref()) {
            let (done, note) = match &came {
                Ok(Came::Started) => (true, ""),
                Ok(Came::Back) => (false, "it did not start"),
                Ok(Came::Changed) => (false, "it was changed while it was judged, and ended"),
                Err(_) => (false, "it could not be followed"),
            };
            line.settle(leave, done, note);
        }
        came.map(|_| Done::Later)
    }

    /// Who reads a script, and of what it is a copy, where that is asked about by itself.
    fn judged_reader<'a>(&self, reader: &'a Reader) -> Option<(&'a Reader, Vec<String>)> {
        let like = self.like(&reader.file);
        let names = names(&reader.file, reader.called(), None, &like);
        let itself = !names.iter().any(|name| is_reader(name)) && self.is_judged(&names);
        itself.then_some((reader, like))
    }

    /// Asks for what is to start, and for what reads it.
    fn leave(
        &self,
        caller: &Caller,
        wanted: &Wanted,
        mut start: Start,
        reader: Option<(&Reader, Vec<String>)>,
    ) -> Result<Leave, Errno> {
        let line = self.line.as_ref().ok_or(Errno::ACCESS)?;
        let id = caller.held.id;
        let ask = |start: &Start| {
            let request = line.request(Verb::Run, self.charge.reading.read(start));
            // A shell that looks through its `PATH` goes on to the next folder, which may hold the same program.
            if self.was_told(caller.held.thread, &request) {
                return Err(Errno::ACCESS);
            }
            line.ask(&request, || self.waits(id)).map_err(|no| match no {
                No::Denied(refusal) => {
                    self.tell_refused(caller.held.thread, &request, refusal.as_ref());
                    Errno::ACCESS
                }
                No::Gone => Errno::INTR,
            })
        };
        let leave = ask(&start)?;
        if let Some((reader, like)) = reader {
            start.file = shown(&reader.file);
            start.called = text(reader.called());
            start.words = wanted.final_words().into_iter().map(text).collect();
            start.own = self.is_own(&reader.file, Path::new(&start.called));
            start.like = like;
            match ask(&start) {
                Ok(second) => line.settle(second, true, "it reads a script"),
                Err(errno) => {
                    line.settle(leave, false, "what reads it was refused");
                    return Err(errno);
                }
            }
        }
        Ok(leave)
    }

    /// What is seen of what is to start.
    fn seen(&self, caller: &Caller, wanted: &Wanted) -> Result<Start, Errno> {
        let directory = link_text(&format!("/proc/{}/cwd", caller.held.thread))?;
        Ok(Start {
            file: shown(&wanted.file),
            called: text(&wanted.called),
            words: wanted.words.iter().map(|word| text(word)).collect(),
            variables: wanted.variables.iter().flatten().filter_map(|one| pair(one)).collect(),
            directory: directory.display().to_string(),
            own: self.is_own(&wanted.file, &absolute(&directory, &wanted.called)),
            like: wanted.like.clone(),
        })
    }

    /// Asks, and has the command run outside: what starts here only keeps its place.
    fn start_outside(self: &Arc<Self>, caller: &Caller, wanted: &Wanted, request: Request) -> Result<Done, Errno> {
        let line = self.line.as_ref().ok_or(Errno::ACCESS)?;
        let (id, thread) = (caller.held.id, caller.held.thread);
        if self.was_told(thread, &request) {
            return Err(Errno::ACCESS);
        }
        let leave = line.ask(&request, || self.waits(id)).map_err(|no| match no {
            No::Denied(refusal) => {
                self.tell_refused(thread, &request, refusal.as_ref());
                Errno::ACCESS
            }
            No::Gone => Errno::INTR,
        })?;
        let mut place = None;
        let keep = |process| {
            place = Place::of(process).ok();
            place.is_some()
        };
        let came = self.follow(caller, |begun| wanted.is(begun), keep);
        match (&came, place) {
            // Whoever runs it outside settles it.
            (Ok(Came::Started), Some(place)) => self.run_outside(leave.nonce(), request, place),
            _ => line.settle(leave, false, "it did not start as it was judged"),
        }
        came.map(|_| Done::Later)
    }

    /// The names that what has started goes by.
    fn names_of(&self, begun: &Begun) -> Vec<String> {
        let laid = &begun.laid;
        names(&begun.file, &laid.called, laid.words.first(), &self.like(&begun.file))
    }

    fn is_judged(&self, names: &[String]) -> bool {
        match &self.charge.judged {
            Judged::Nothing => false,
            Judged::Everything => true,
            Judged::Programs(programs) => names.iter().any(|name| programs.contains(name)),
        }
    }

    /// True when somebody in the fence may have made the file, or the name that it is called by.
    fn is_own(&self, file: &There, called: &Path) -> bool {
        let folder = called.parent().unwrap_or(called);
        self.may(file) == May::Write
            || self.charge.scope.may(folder, super::files::folder()) == May::Write
            || called.starts_with("/proc")
            || called.starts_with("/dev")
    }

    /// The programs of the machine that a file is, under another name, or is a copy of.
    fn like(&self, file: &There) -> Vec<String> {
        let size = u64::try_from(file.stat.st_size).unwrap_or(0);
        let itself = (file.stat.st_dev, file.stat.st_ino);
        let known = self.charge.known.of_size(size);
        let copies = known
            .iter()
            .filter(|known| known.file == itself || alike(file, &known.path));
        copies.map(|known| known.name.clone()).collect()
    }

    /// Lets a start go on, and looks at what has started before its first instruction.
    /// `keep` is called with what fits before it goes on; false ends it.
    fn follow(
        &self,
        caller: &Caller,
        fits: impl Fn(&Begun) -> bool,
        keep: impl FnOnce(i32) -> bool,
    ) -> Result<Came, Errno> {
        let thread = caller.held.thread;
        let _following = self.charge.children.follow(thread);
        let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::ACCESS);
        // Where it is traced by somebody already, it cannot be looked at.
        trace::seize(thread).map_err(|_| Errno::ACCESS)?;
        let gone_on = notify::go_on(self.listener.as_fd(), caller.held.id);
        match trace::wait().map_err(errno)? {
            Stopped::AtStart(process)
                if gone_on.is_ok() && Begun::of(process).is_ok_and(|begun| fits(&begun)) && keep(process) =>
            {
                self.begun.store(true, Ordering::Release);
                trace::let_go(process, 0).map_err(errno)?;
                Ok(Came::Started)
            }
            Stopped::AtStart(process) => {
                if let Some(process) = Pid::from_raw(process) {
                    let _ = kill_process(process, Signal::KILL);
                }
                if let Ok(Stopped::Ended(process, status)) = trace::wait() {
                    self.charge.children.ended(process, status);
                }
                Ok(Came::Changed)
            }
            Stopped::Back(thread, signal) => {
                let _ = trace::let_go(thread, signal);
                Ok(Came::Back)
            }
            Stopped::Ended(process, status) => {
                self.charge.children.ended(process, status);
                Ok(Came::Back)
            }
        }
    }
}

/// What came of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Started,
    Back,
    Changed,
}

/// The names that a start goes by. `like` are the programs that it is a copy of.
fn names(file: &There, called: &[u8], word: Option<&Vec<u8>>, like: &[String]) -> Vec<String> {
    let mut names = vec![last_name(shown(file).as_bytes()), last_name(called)];
    names.extend(word.map(|word| last_name(word)));
    names.extend_from_slice(like);
    names
}

fn is_reader(name: &str) -> bool {
    READERS.contains(&name) || name.starts_with("python") || name.starts_with("lua")
}

fn shown(file: &There) -> String {
    match file.path.as_ref().or(file.former.as_ref()) {
        Some(path) => path.display().to_string(),
        None => "in memory".into(),
    }
}

fn absolute(directory: &Path, called: &[u8]) -> PathBuf {
    let mut at = PathBuf::new();
    for step in directory.join(std::ffi::OsStr::from_bytes(called)).components() {
        match step {
            std::path::Component::ParentDir => {
                at.pop();
            }
            std::path::Component::CurDir => {}
            other => at.push(other),
        }
    }
    at
}

fn pair(variable: &[u8]) -> Option<(String, String)> {
    let text = text(variable);
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Whether a file has the content of another.
fn alike(file: &There, other: &Path) -> bool {
    let open = |path: PathBuf| fs::File::open(path).ok();
    let path = super::files::path_to(&file.open)
        .ok()
        .and_then(|path| path.into_string().ok());
    let (Some(one), Some(other)) = (path.and_then(|path| open(path.into())), open(other.to_path_buf())) else {
        return false;
    };
    let mut one = std::io::BufReader::with_capacity(64 * 1024, one);
    let mut other = std::io::BufReader::with_capacity(64 * 1024, other);
    loop {
        use std::io::BufRead as _;
        let (Ok(a), Ok(b)) = (one.fill_buf(), other.fill_buf()) else {
            return false;
        };
        let shared = a.len().min(b.len());
        if shared == 0 {
            return a.len() == b.len();
        }
        if a.get(..shared) != b.get(..shared) {
            return false;
        }
        one.consume(shared);
        other.consume(shared);
    }
}

/// The programs of the machine that rules speak of, by their size: a copy has the size of what it is a copy of.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<u64, Vec<KnownProgram>>);

/// One of them.
#[derive(Debug)]
struct KnownProgram {
    name: String,
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl Known {
    /// Looks for the programs along a `PATH`: some hundred names, so each folder is read once instead of asked for each.
    pub(crate) fn along(path: &str, judged: &Judged) -> Self {
        let mut known = Self::default();
        let Judged::Programs(programs) = judged else {
            return known;
        };
        for name in programs.iter().filter(|name| name.starts_with('/')) {
            known.take(name, PathBuf::from(name));
        }
        let mut read = BTreeSet::new();
        for folder in path.split(':').filter(|folder| folder.starts_with('/')) {
            // `/bin` is `/usr/bin` on most machines.
            let is_new = fs::metadata(folder).is_ok_and(|found| read.insert((found.dev(), found.ino())));
            let entries = is_new.then(|| fs::read_dir(folder).ok()).flatten();
            for entry in entries.into_iter().flatten().flatten() {
                if let Some(name) = entry.file_name().to_str().filter(|name| programs.contains(*name)) {
                    known.take(name, entry.path());
                }
            }
        }
        known
    }

    fn take(&mut self, name: &str, path: PathBuf) {
        if let Ok(found) = fs::metadata(&path)
            && found.is_file()
        {
            self.0.entry(found.len()).or_default().push(KnownProgram {
                name: name.to_owned(),
                path,
                file: (found.dev(), found.ino()),
            });
        }
    }

    fn of_size(&self, size: u64) -> &[KnownProgram] {
        self.0.get(&size).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scripts_reader_is_read_as_the_kernel_does() {
        let read = |text: &str| {
            reader_in(text.as_bytes()).map(|(reader, word)| (super::text(&reader), word.map(|word| super::text(&word))))
        };
        let of = |reader: &str, word: Option<&str>| Some((reader.to_owned(), word.map(str::to_owned)));
        assert_eq!(read("#!/bin/sh\nx"), of("/bin/sh", None));
        assert_eq!(read("#! /usr/bin/env  node  \n"), of("/usr/bin/env", Some("node")));
        assert_eq!(read("#!/bin/awk -f -x\n"), of("/bin/awk", Some("-f -x")));
        for none in ["", "#!", "#!\n/bin/sh", "#! \t", "\x7fELF"] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }

    #[test]
    fn paths_are_made_whole_by_their_text() {
        assert_eq!(absolute(Path::new("/p/x"), b"../y/./git"), Path::new("/p/y/git"));
    }

    proptest::proptest! {
        #[test]
        fn p4_any_head_is_read_or_not(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = reader_in(&bytes);
        }
    }
}
