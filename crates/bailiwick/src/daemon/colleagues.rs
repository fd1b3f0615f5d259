//! The socket for other users of this machine who may answer: they list, answer and watch, and nothing else.
//!
//! Promises: P8 (the kernel says which user is at the other end, at each connection; a user who is not enrolled, or not any
//! more, hears nothing), P4 (any other frame than those three ends the connection).
//! Trust: other users of the machine, who see the questions that they may answer, and no others.
//! Not here: who is enrolled (`approvers`), the person's own socket (`person`).

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bailiwick_fence::Channel;
use bailiwick_gate::Waiting;
use bailiwick_gate::desk::{Approver, DeskFault};

use super::{Daemon, lock};
use crate::protocol::{PROTOCOL, PersonAnswer, PersonCall, build};

/// The name of the socket, in the folder that the person names.
pub const SOCKET: &str = "approve.sock";

/// Most connections at once, of all users.
const MAX: usize = 64;

/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(5);

/// What listens.
pub struct Listening {
    path: PathBuf,
    /// The file that was made: another one of that name is not ours to remove.
    inode: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let own = |found: std::fs::Metadata| found.ino() == self.inode;
        if std::fs::symlink_metadata(&self.path).is_ok_and(own) {
            // The thread that waits for the next connection sees by it that it is not wanted any more.
            let _ = UnixStream::connect(&self.path);
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Says what is wrong with a folder for the socket: whoever can write there could put another socket in its place.
fn unfit(folder: &Path) -> Option<String> {
    let found = match std::fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(e) => return Some(e.to_string()),
    };
    let own = rustix::process::geteuid().as_raw();
    if !folder.is_absolute() {
        Some("its path must be absolute".into())
    } else if !found.is_dir() {
        Some("it is no folder".into())
    } else if found.uid() != own && found.uid() != 0 {
        Some("it belongs to another user, who could put another socket there".into())
    } else if found.mode() & 0o022 != 0 {
        Some("others than its owner can write there, and could put another socket in its place: `chmod go-w` it".into())
    } else {
        None
    }
}

/// Listens in a folder, or stops listening.
pub fn listen(daemon: &Arc<Daemon>, folder: Option<&Path>) -> Result<(), String> {
    let mut listening = lock(&daemon.colleagues);
    let Some(folder) = folder else {
        listening.take();
        return Ok(());
    };
    if let Some(why) = unfit(folder) {
        return Err(format!("the socket cannot lie in `{}`: {why}", folder.display()));
    }
    listening.take();
    let path = folder.join(SOCKET);
    let failed = |e: std::io::Error| format!("cannot listen on `{}`: {e}", path.display());
    match std::fs::symlink_metadata(&path) {
        Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
            return Err(format!("`{}` is something else than a socket", path.display()));
        }
        Ok(_) => std::fs::remove_file(&path).map_err(failed)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    // Whoever may connect is asked of the kernel at each connection, not of the file's mode.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
    let inode = std::fs::symlink_metadata(&path).map_err(failed)?.ino();
    *listening = Some(Listening {
        path: path.clone(),
        inode,
    });
    drop(listening);
    let daemon = Arc::clone(daemon);
    std::thread::spawn(move || {
        let served = Arc::new(AtomicUsize::new(0));
        for connection in listener.incoming() {
            let wanted = lock(&daemon.colleagues)
                .as_ref()
                .is_some_and(|listening| listening.inode == inode);
            if !wanted {
                return;
            }
            let Ok(socket) = connection else { continue };
            if served.load(Ordering::SeqCst) >= MAX {
                continue;
            }
            served.fetch_add(1, Ordering::SeqCst);
            let (daemon, served) = (Arc::clone(&daemon), Arc::clone(&served));
            std::thread::spawn(move || {
                if let Err(cause) = serve(&daemon, socket) {
                    talkln!("bailiwick: an approver's connection ended: {cause}");
                }
                served.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Ok(())
}

/// Who is at the other end; none who is not enrolled.
fn approver(daemon: &Daemon, uid: u32) -> Result<Approver, std::io::Error> {
    let by = daemon.approvers.of_uid(uid);
    by.ok_or_else(|| std::io::Error::other(format!("user {uid} is not enrolled")))
}

fn serve(daemon: &Arc<Daemon>, socket: UnixStream) -> Result<(), std::io::Error> {
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    let uid = peer.uid.as_raw();
    approver(daemon, uid)?;
    socket.set_read_timeout(Some(GREETING))?;
    socket.set_write_timeout(Some(GREETING))?;
    let stream = socket.try_clone()?;
    let mut channel = Channel::over(socket.into());
    let Some(PersonCall::Hello { .. }) = channel.receive::<PersonCall>()? else {
        return Err(std::io::Error::other("it did not begin with a greeting"));
    };
    stream.set_read_timeout(None)?;
    let hello = PersonAnswer::Hello {
        protocol: PROTOCOL,
        build: build(),
        tasks: 0,
    };
    channel.send(&hello, &[])?;
    while let Some(call) = channel.receive::<PersonCall>()? {
        // Whoever has been taken from the list meanwhile is not heard any more.
        let by = approver(daemon, uid)?;
        match call {
            PersonCall::Questions => {
                for waiting in daemon.mediator.waiting().into_iter().filter(|one| is_for(one, &by)) {
                    let asked = daemon.mediator.shown(waiting);
                    channel.send(&PersonAnswer::Asked(Box::new(asked)), &[])?;
                }
                channel.send(&PersonAnswer::Done, &[])?;
            }
            // Whoever they say that they are: it is who the kernel says.
            PersonCall::Answer { id, answer, .. } => {
                let waiting = daemon.mediator.waiting().into_iter().find(|one| one.id == id);
                let closed = match waiting.filter(|one| is_for(one, &by)) {
                    Some(_) => daemon.mediator.answer(id, &answer, &by),
                    None => Err(DeskFault::Unknown(id)),
                };
                channel.send(&PersonAnswer::Closed(closed.map(Box::new)), &[])?;
            }
            PersonCall::Changed { seen, patience, .. } => {
                let now = daemon.moved.wait(seen, Duration::from_millis(patience), &by);
                channel.send(&PersonAnswer::Changed(now), &[])?;
            }
            _ => return Err(std::io::Error::other("a frame that is not for approvers")),
        }
    }
    Ok(())
}

/// True for a question that somebody may answer, now or once it has waited.
fn is_for(waiting: &Waiting, by: &Approver) -> bool {
    let named = |all: &Vec<bailiwick_gate::MayAnswer>| all.iter().any(|may| may.name == by.name);
    waiting.approvers.as_ref().is_none_or(named)
}
