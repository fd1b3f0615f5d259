//! Hands copies of a person's files in, while the task runs.
//!
//! Promises: P10 (digest and size are durably on record before the copy is made). P8: only what a person named is
//! handed in, as it was then.
//! Trust: the command hands over sealed memory, so that what is digested is what is put there. Not here: reading the
//! person's files (the command), putting them into their place (the fence's first process).

use std::os::fd::OwnedFd;

use bailiwick_model::{Code, Digest, Event, TaskId};
use rustix::fs::SealFlags;
use sha2::{Digest as _, Sha256};

use super::{Daemon, lock};
use crate::protocol::{Given, PersonAnswer};

/// Hands a file or a folder in, and says what became of it.
pub fn give(daemon: &Daemon, task: TaskId, path: String, given: Given, content: Option<OwnedFd>) -> PersonAnswer {
    let refuse = |code, cause: &str| super::person::failed(code, &format!("`{path}` was not handed in"), cause);
    let Some(handle) = lock(&daemon.running).get(&task).cloned() else {
        return refuse(Code::UnknownTask, "no such task runs");
    };
    let done = match (given, content) {
        (Given::Folder, None) => handle.fence().place_folder(&path),
        (Given::File { executable }, Some(content)) => {
            let (bytes, digest) = match measured(&content) {
                Ok(measured) => measured,
                Err(cause) => return refuse(Code::MalformedRequest, &cause.to_string()),
            };
            let event = Event::HandedIn {
                path: path.clone(),
                bytes,
                digest,
            };
            if let Err(fault) = daemon.record(Some(task), event) {
                return refuse(Code::LogUnavailable, &fault.to_string());
            }
            handle.fence().place_file(&path, executable, &content)
        }
        (Given::Folder, Some(_)) | (Given::File { .. }, None) => {
            return refuse(Code::MalformedRequest, "the order does not fit what came along");
        }
    };
    match done {
        Ok(()) => PersonAnswer::Done,
        Err(cause) => {
            let event = Event::NotHandedIn {
                path: path.clone(),
                cause: cause.to_string(),
            };
            if let Err(fault) = daemon.record(Some(task), event) {
                talkln!("bailiwick: that `{path}` was not handed in is not on record: {fault}");
            }
            refuse(Code::Fault, &cause.to_string())
        }
    }
}

/// Size and digest of content that nobody can change any more.
fn measured(content: &OwnedFd) -> std::io::Result<(u64, Digest)> {
    let wanted = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
    if !rustix::fs::fcntl_get_seals(content)?.contains(wanted) {
        return Err(std::io::Error::other("what came along is not sealed"));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 256 * 1024];
    let mut size = 0u64;
    loop {
        let got = rustix::io::pread(content, &mut buffer, size)?;
        if got == 0 {
            break;
        }
        hash.update(buffer.get(..got).unwrap_or_default());
        size = size.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
    }
    if size > bailiwick_fence::MAX_FILE {
        return Err(std::io::Error::other(format!(
            "it has more than {} MiB",
            bailiwick_fence::MAX_FILE >> 20
        )));
    }
    Ok((size, Digest(hash.finalize().into())))
}
