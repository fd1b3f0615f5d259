//! The channel of a task's gate, served by the daemon.
//!
//! Promises: P4 (what cannot be read there closes it, and so does a gate that does not hear its answers).
//! Trust: the channel comes from a process that parses hostile bytes. It is bound to one task by its descriptor.
//! One thread reads, and sends the answers to all that it has read at once, in one piece: a request costs one wake-up on
//! either side. It never waits for the gate to read: what does not fit into the channel is sent by a second thread.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use bailiwick_gate::{FrameReader, Vault};
use bailiwick_mediator::{Session, SessionFault};
use bailiwick_model::TaskId;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Daemon, lock};

/// Bytes of answers that may wait for a gate that does not read; past that its channel is closed.
const MAX_WAITING: usize = 8 * 1024 * 1024;

/// Sends a frame to a gate.
pub type Reply = Arc<dyn Fn(Vec<u8>) + Send + Sync>;

/// How long a gate may take to say its last words when its task ends.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A channel that is served.
pub struct Served(Arc<Answers>);

impl Served {
    /// Lets the gate say what it has still to say: what became of its effects. Returns when it has, or does not. A gate that
    /// was never asked for anything is not waited for.
    pub fn last_words(&self) {
        let answers = &self.0;
        let mut waiting = lock(&answers.waiting);
        // What it has said may not have been read yet.
        let has_called =
            waiting.has_called || rustix::io::ioctl_fionread(&answers.channel).is_ok_and(|bytes| bytes > 0);
        if !has_called || waiting.closed {
            return;
        }
        waiting.is_over = true;
        let _ = answers.channel.shutdown(std::net::Shutdown::Write);
        let ended = answers
            .changed
            .wait_timeout_while(waiting, LAST_WORDS, |waiting| !waiting.closed);
        drop(ended);
    }
}

/// Serves the gate's channel.
pub fn serve(daemon: &Arc<Daemon>, task: TaskId, channel: &UnixStream) -> std::io::Result<()> {
    serve_after(daemon, task, channel, None, |_| {}).map(drop)
}

/// The same for a gate that may redeem secrets; `first` is handed what sends frames to the gate, before anything else is sent.
pub fn serve_after(
    daemon: &Arc<Daemon>,
    task: TaskId,
    channel: &UnixStream,
    vault: Option<Arc<dyn Vault>>,
    first: impl FnOnce(Reply),
) -> std::io::Result<Served> {
    let from = channel.try_clone()?;
    let answers = Arc::new(Answers {
        channel: channel.try_clone()?,
        reader: OnceLock::new(),
        waiting: Mutex::default(),
        changed: Condvar::new(),
    });
    let left = Arc::clone(&answers);
    std::thread::spawn(move || left.send_what_is_left());
    let mut session = Session::new(Arc::clone(&daemon.mediator), task);
    if let Some(vault) = vault {
        session = session.with_vault(vault);
    }
    let answering = Arc::clone(&answers);
    let reply: Reply = Arc::new(move |frame| answering.take(frame));
    first(Arc::clone(&reply));
    let served = Served(Arc::clone(&answers));
    std::thread::spawn(move || {
        let _ = answers.reader.set(std::thread::current().id());
        if let Err(cause) = read_all(&from, &mut session, &answers, &reply) {
            talkln!("bailiwick: the gate of task {task} is cut off: {cause}");
        }
        answers.end();
    });
    Ok(served)
}

/// Reads what comes next. A reader that sleeps in `recv` is woken for nothing each time the gate takes an answer, since the
/// channel has room then; one that polls is woken for what it polls for.
fn read(from: &UnixStream, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match rustix::net::recv(from, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, got)) => return Ok(got),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match rustix::event::poll(&mut [PollFd::new(from, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(fault) => return Err(fault),
            },
            Err(fault) => return Err(fault),
        }
    }
}

/// Reads until the gate closes the channel, or says what closes it.
fn read_all(from: &UnixStream, session: &mut Session, answers: &Answers, reply: &Reply) -> Result<(), SessionFault> {
    let mut frames = FrameReader::default();
    let mut buffer = vec![0u8; 16 * 1024];
    let mut calls = 0usize;
    while let Ok(got @ 1..) = read(from, &mut buffer) {
        frames.push(buffer.get(..got).unwrap_or_default());
        let taken = loop {
            match frames.next_frame() {
                Ok(Some(body)) => {
                    calls = calls.saturating_add(1);
                    if let Err(cause) = session.receive(body, reply) {
                        break Err(cause);
                    }
                }
                Ok(None) => break Ok(()),
                Err(cause) => break Err(cause.into()),
            }
        };
        // The first is the greeting.
        lock(&answers.waiting).has_called |= calls > 1;
        // Also what says to an older gate why it is cut off.
        answers.send();
        taken?;
    }
    Ok(())
}

/// The answers that are on their way to a gate.
struct Answers {
    channel: UnixStream,
    /// The thread that sends what it has gathered by itself.
    reader: OnceLock<ThreadId>,
    waiting: Mutex<Waiting>,
    /// There is something for the second thread to do.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// There may be a secret in it: what has been sent is written over.
    bytes: Zeroizing<Vec<u8>>,
    /// The channel takes no more at the moment: the second thread sends.
    is_full: bool,
    closed: bool,
    /// The gate is told no more: it is to say its last words.
    is_over: bool,
    /// The gate has asked for something.
    has_called: bool,
}

impl Waiting {
    fn push(&mut self, frame: &[u8]) {
        let held = self.bytes.len();
        if self.bytes.capacity().saturating_sub(held) < frame.len() {
            let mut wider = Zeroizing::new(Vec::with_capacity(held.saturating_add(frame.len()).saturating_mul(2)));
            wider.extend_from_slice(&self.bytes);
            self.bytes = wider;
        }
        self.bytes.extend_from_slice(frame);
    }

    /// Takes away what has been sent.
    fn sent(&mut self, count: usize) {
        let rest = self.bytes.len().saturating_sub(count);
        self.bytes.copy_within(count.., 0);
        if let Some(over) = self.bytes.get_mut(rest..) {
            over.zeroize();
        }
        self.bytes.truncate(rest);
    }
}

impl Answers {
    /// Takes a frame: to be sent at once, or by the thread that reads when it has answered all that it has read.
    fn take(&self, mut frame: Vec<u8>) {
        let mut waiting = lock(&self.waiting);
        if waiting.closed || waiting.is_over {
            frame.zeroize();
            return;
        }
        waiting.push(&frame);
        frame.zeroize();
        if waiting.bytes.len() > MAX_WAITING {
            return self.close(&mut waiting);
        }
        let gathers = self.reader.get() == Some(&std::thread::current().id());
        if !gathers && !waiting.is_full {
            self.send_now(&mut waiting);
        }
    }

    /// Sends what has been gathered, as far as the channel takes it.
    fn send(&self) {
        let mut waiting = lock(&self.waiting);
        if !waiting.is_full {
            self.send_now(&mut waiting);
        }
    }

    fn send_now(&self, waiting: &mut Waiting) {
        while !waiting.bytes.is_empty() && !waiting.closed && !waiting.is_over {
            match rustix::net::send(&self.channel, &waiting.bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => waiting.sent(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    waiting.is_full = true;
                    self.changed.notify_all();
                    return;
                }
                Err(_) => return self.close(waiting),
            }
        }
    }

    fn close(&self, waiting: &mut Waiting) {
        waiting.closed = true;
        waiting.bytes.zeroize();
        let _ = self.channel.shutdown(std::net::Shutdown::Both);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.close(&mut lock(&self.waiting));
    }

    /// Waits for the channel wherever it was full, until it closes.
    fn send_what_is_left(&self) {
        let mut waiting = lock(&self.waiting);
        while !waiting.closed {
            if !waiting.is_full {
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                continue;
            }
            drop(waiting);
            // A channel that was shut is ready, too.
            let ready = rustix::event::poll(&mut [PollFd::new(&self.channel, PollFlags::OUT)], None);
            waiting = lock(&self.waiting);
            if ready.is_ok_and(|ready| ready > 0) {
                waiting.is_full = false;
                self.send_now(&mut waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn pair() -> (Arc<Answers>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let answers = Arc::new(Answers {
            channel: ours,
            reader: OnceLock::new(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        });
        let left = Arc::clone(&answers);
        std::thread::spawn(move || left.send_what_is_left());
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (answers, theirs)
    }

    #[test]
    fn p4_a_gate_that_reads_late_hears_all_in_order_and_holds_nobody_up() {
        let (answers, mut gate) = pair();
        let frame = |number: u32| [number.to_be_bytes().as_slice(), &[7; 60_000]].concat();
        let want: Vec<u8> = (0..100).flat_map(frame).collect();
        // From many threads' point of view: none of these waits for the gate.
        (0..50).for_each(|number| answers.take(frame(number)));
        let _ = answers.reader.set(std::thread::current().id());
        (50..100).for_each(|number| answers.take(frame(number)));
        answers.send();
        let mut got = vec![0; want.len()];
        gate.read_exact(&mut got).unwrap();
        assert!(got == want);
    }

    #[test]
    fn what_the_reading_thread_gathers_is_sent_in_one_piece() {
        let (answers, mut gate) = pair();
        answers.reader.set(std::thread::current().id()).unwrap();
        answers.take(vec![1; 10]);
        answers.take(vec![2; 10]);
        gate.set_nonblocking(true).unwrap();
        assert!(gate.read(&mut [0; 64]).is_err());
        answers.send();
        assert_eq!(gate.read(&mut [0; 64]).unwrap(), 20);
        let other = Arc::clone(&answers);
        std::thread::spawn(move || other.take(vec![3; 10])).join().unwrap();
        assert_eq!(gate.read(&mut [0; 64]).unwrap(), 10);
    }

    #[test]
    fn p4_a_gate_that_never_reads_is_cut_off() {
        let (answers, mut gate) = pair();
        for _ in 0..MAX_WAITING / 100_000 + 4 {
            answers.take(vec![0; 100_000]);
        }
        assert!(lock(&answers.waiting).closed);
        let mut rest = Vec::new();
        gate.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < MAX_WAITING);
    }
}
