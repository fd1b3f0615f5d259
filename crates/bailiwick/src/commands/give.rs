//! `bailiwick give`: puts copies of the person's files into a running task's hand-over folder.
//!
//! Promises: P8 (what the person named is given, and nothing that somebody put in its place): no symbolic link is
//! followed, on the way or at the end, since the agent may have laid it in a folder that it may write.
//! Trust: the paths are the person's; what lies there may be the agent's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::process::ExitCode;

use bailiwick_fence::MAX_FILE;
use bailiwick_model::TaskId;
use rustix::fs::{
    CWD, Dir, FileType, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags, fcntl_add_seals, fstat, memfd_create,
    openat, openat2,
};
use rustix::io::Errno;

use super::choose;
use crate::cli::GiveArgs;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{Given, PersonCall};
use bailiwick_model::visible;

/// Most files and folders of one call, and deepest folder.
const MOST: usize = 2_000;
const DEEPEST: usize = 24;

/// How files are opened: a pipe or a device in a file's place must not make the command wait.
const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Runs the command.
pub fn run(args: &GiveArgs) -> Done {
    let mut opened = Vec::new();
    for file in &args.files {
        opened.push((open(file)?, name_of(file, args.name.as_deref())?));
    }
    let (link, status) = choose::daemon()?;
    let task = choose::among(&status.tasks, args.task.as_deref())?;
    let mut giving = Giving {
        link,
        task: task.id,
        given: Vec::new(),
        left_out: Vec::new(),
    };
    let mut done = Ok(());
    for (file, name) in &opened {
        done = done.and_then(|()| giving.give(file, name, 0));
    }
    if args.json {
        let given: Vec<_> = giving
            .given
            .iter()
            .map(|(path, bytes)| serde_json::json!({ "path": format!("{}/{path}", task.handover), "bytes": bytes }))
            .collect();
        tellln!(
            "{}",
            serde_json::json!({ "task": task.id, "given": given, "left_out": giving.left_out })
        );
    } else {
        for (path, bytes) in &giving.given {
            tellln!("{}/{} ({bytes} bytes)", task.handover, visible(path));
        }
        for path in &giving.left_out {
            talkln!("bailiwick: left out `{}`: neither a file nor a folder", visible(path));
        }
    }
    done.map(|()| ExitCode::SUCCESS)
}

fn named(path: &Path) -> String {
    visible(&path.display().to_string())
}

/// Opens what a person named, following no link.
fn open(path: &Path) -> Result<OwnedFd, Failure> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(CWD, path, LOOK, Mode::empty(), how).map_err(|errno| match errno {
        Errno::LOOP => {
            let whole = path.canonicalize().map(|whole| named(&whole)).unwrap_or_default();
            Failure::usage(format!("`{}` is a symbolic link, or lies behind one", named(path))).hint(format!(
                "an agent may have laid it; it leads to `{whole}`: name that, if it is what you mean"
            ))
        }
        Errno::NOENT => Failure::usage(format!("`{}` is not there", named(path))),
        other => Failure::usage(format!(
            "`{}` cannot be read: {}",
            named(path),
            std::io::Error::from(other)
        )),
    })?;
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if Places::find()?
        .state
        .canonicalize()
        .is_ok_and(|state| whole.starts_with(state))
    {
        return Err(Failure::usage(format!(
            "`{}` is bailiwick's own: no task gets it",
            named(path)
        )));
    }
    match kind(&opened) {
        Some(FileType::RegularFile | FileType::Directory) => Ok(opened),
        _ => Err(Failure::usage(format!(
            "`{}` is neither a file nor a folder",
            named(path)
        ))),
    }
}

fn kind(file: &OwnedFd) -> Option<FileType> {
    fstat(file).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

/// The name under which it is given.
fn name_of(path: &Path, wanted: Option<&str>) -> Result<String, Failure> {
    if let Some(wanted) = wanted {
        let mut parts = Path::new(wanted).components();
        return match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => Ok(wanted.into()),
            _ => Err(Failure::usage(format!(
                "`{}` is not the name of a file",
                visible(wanted)
            ))),
        };
    }
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = whole.file_name().and_then(|name| name.to_str());
    name.map(Into::into).ok_or_else(|| {
        Failure::usage(format!("`{}` has no name that can be given on", named(path))).hint("`--as NAME` gives it one")
    })
}

/// What is being given.
struct Giving {
    link: Link,
    task: TaskId,
    /// Path in the hand-over folder, and size.
    given: Vec<(String, u64)>,
    left_out: Vec<String>,
}

impl Giving {
    fn give(&mut self, file: &OwnedFd, path: &str, depth: usize) -> Result<(), Failure> {
        if self.given.len() >= MOST || depth > DEEPEST {
            return Err(
                Failure::usage(format!("more than {MOST} files, or folders more than {DEEPEST} deep"))
                    .hint("grant the folder instead: `read = [\"FOLDER\"]` under [files]"),
            );
        }
        let fault = |e: Errno| {
            Failure::fault(format!(
                "`{}` cannot be read: {}",
                visible(path),
                std::io::Error::from(e)
            ))
        };
        let stat = fstat(file).map_err(fault)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let (content, bytes) = sealed(file, path)?;
                let executable = stat.st_mode & 0o100 != 0;
                self.say(path, Given::File { executable }, Some(&content))?;
                self.given.push((path.into(), bytes));
            }
            FileType::Directory => {
                self.say(path, Given::Folder, None)?;
                for entry in Dir::read_from(file).map_err(fault)? {
                    let entry = entry.map_err(fault)?;
                    let name = entry.file_name();
                    let Ok(text) = name.to_str() else {
                        self.left_out.push(format!("{path}/{}", name.to_string_lossy()));
                        continue;
                    };
                    if matches!(text, "." | "..") {
                        continue;
                    }
                    let inner = format!("{path}/{text}");
                    match openat(file, name, LOOK, Mode::empty()) {
                        Ok(opened) if matches!(kind(&opened), Some(FileType::RegularFile | FileType::Directory)) => {
                            self.give(&opened, &inner, depth.saturating_add(1))?;
                        }
                        // A link, a pipe, a socket, a device.
                        Ok(_) | Err(Errno::LOOP | Errno::NXIO) => self.left_out.push(inner),
                        Err(errno) => {
                            return Err(Failure::fault(format!(
                                "`{}` cannot be read: {}",
                                visible(&inner),
                                std::io::Error::from(errno)
                            )));
                        }
                    }
                }
            }
            _ => self.left_out.push(path.into()),
        }
        Ok(())
    }

    fn say(&mut self, path: &str, given: Given, content: Option<&OwnedFd>) -> Result<(), Failure> {
        let along: Vec<_> = content.into_iter().map(AsFd::as_fd).collect();
        let call = PersonCall::Give {
            task: self.task,
            path: path.into(),
            given,
        };
        self.link.say_with(&call, &along)?;
        choose::done(self.link.hear()?).map_err(|failure| {
            if failure.message.ends_with("already") {
                failure.hint("`--as NAME` gives it another name there")
            } else {
                failure
            }
        })
    }
}

/// A copy of a file in memory that nobody can change any more, and its size.
fn sealed(file: &OwnedFd, path: &str) -> Result<(OwnedFd, u64), Failure> {
    let fault = |e: std::io::Error| Failure::fault(format!("`{}` cannot be read: {e}", visible(path)));
    let copy = || -> std::io::Result<(OwnedFd, u64)> {
        let memory = memfd_create("given", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut into = File::from(memory.try_clone()?);
        let mut from = File::from(file.try_clone()?).take(MAX_FILE.saturating_add(1));
        let bytes = std::io::copy(&mut from, &mut into)?;
        into.flush()?;
        fcntl_add_seals(
            &memory,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?;
        Ok((memory, bytes))
    };
    let (content, bytes) = copy().map_err(fault)?;
    if bytes > MAX_FILE {
        return Err(
            Failure::usage(format!("`{}` has more than {} MiB", visible(path), MAX_FILE >> 20))
                .hint("grant its folder instead: `read = [\"FOLDER\"]` under [files]"),
        );
    }
    Ok((content, bytes))
}
