//! The channel of a task's network gate, served by two threads of the daemon.
//!
//! Promises: P4 (what cannot be read there closes it, and so does a gate that does not hear its answers).
//! Trust: the channel comes from a process that parses hostile bytes. It is bound to one task by its descriptor.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use bailiwick_gate::{FrameReader, Vault};
use bailiwick_mediator::Session;
use bailiwick_model::TaskId;
use zeroize::Zeroize as _;

use super::Daemon;

/// Answers that may wait for a gate that does not read; past that its channel is closed.
const MAX_WAITING_ANSWERS: usize = 8192;

/// Sends a frame to a gate.
pub type Reply = Arc<dyn Fn(Vec<u8>) + Send + Sync>;

/// Serves the gate's channel: one thread reads, one writes, so that a gate that does not read holds up no one else.
pub fn serve(daemon: &Arc<Daemon>, task: TaskId, channel: &UnixStream) -> std::io::Result<()> {
    serve_after(daemon, task, channel, None, |_| {})
}

/// The same for a gate that may redeem secrets; `first` is handed what sends frames to the gate, before anything else is sent.
pub fn serve_after(
    daemon: &Arc<Daemon>,
    task: TaskId,
    channel: &UnixStream,
    vault: Option<Arc<dyn Vault>>,
    first: impl FnOnce(Reply),
) -> std::io::Result<()> {
    let (mut from, mut to) = (channel.try_clone()?, channel.try_clone()?);
    let closing = channel.try_clone()?;
    let (queue, answers) = sync_channel::<Vec<u8>>(MAX_WAITING_ANSWERS);
    std::thread::spawn(move || {
        while let Ok(mut frame) = answers.recv() {
            let written = to.write_all(&frame);
            // There may be a secret in it.
            frame.zeroize();
            if written.is_err() {
                return;
            }
        }
    });
    let mut session = Session::new(Arc::clone(&daemon.mediator), task);
    if let Some(vault) = vault {
        session = session.with_vault(vault);
    }
    let reply = replies(queue, closing);
    first(Arc::clone(&reply));
    std::thread::spawn(move || {
        let mut frames = FrameReader::default();
        let mut buffer = vec![0u8; 16 * 1024];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            frames.push(buffer.get(..got).unwrap_or_default());
            loop {
                match frames.next_frame() {
                    Ok(Some(body)) => {
                        if let Err(cause) = session.receive(body, &reply) {
                            talkln!("bailiwick: the gate of task {task} is cut off: {cause}");
                            let _ = from.shutdown(std::net::Shutdown::Both);
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(cause) => {
                        talkln!("bailiwick: the gate of task {task} is cut off: {cause}");
                        let _ = from.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                }
            }
        }
    });
    Ok(())
}

/// Puts answers into the queue; a gate that lets it fill up is cut off.
fn replies(queue: SyncSender<Vec<u8>>, channel: UnixStream) -> Reply {
    Arc::new(move |frame| {
        if queue.try_send(frame).is_err() {
            let _ = channel.shutdown(std::net::Shutdown::Both);
        }
    })
}
