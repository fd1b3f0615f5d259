//! The outer end of an agent's terminal: it is always read, so that the agent never waits, its last output is kept, and
//! what comes goes to whoever attends.
//!
//! Trust: the output is the agent's, and may hold anything that moves a terminal; it is passed on as it is, as to any
//! terminal, and looked into only where it is shown
//! again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::{MemfdFlags, memfd_create};

use super::lock;
use super::modes::Modes;
use super::replay::without_questions;

/// How much of the last output is kept, in bytes.
const KEPT: usize = 256 * 1024;

/// The last output of a terminal.
#[derive(Debug, Default)]
pub struct Recent {
    bytes: VecDeque<u8>,
    cut: bool,
    modes: Modes,
}

impl Recent {
    fn push(&mut self, bytes: &[u8]) {
        self.modes.push(bytes);
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(KEPT);
        self.cut |= over > 0;
        self.bytes.drain(..over);
    }

    /// What is shown to whoever comes: the last output, from the beginning of a line. A program that has taken the whole
    /// screen draws it anew itself.
    fn shown(&self) -> Vec<u8> {
        if self.modes.is_whole_screen() {
            return self.modes.set();
        }
        let whole: Vec<u8> = self.bytes.iter().copied().collect();
        let line = whole.iter().position(|byte| *byte == b'\n').filter(|_| self.cut);
        let from = line.map_or(0, |end| end.saturating_add(1));
        let mut shown = without_questions(whole.get(from..).unwrap_or_default());
        shown.extend(self.modes.set());
        shown
    }

    fn as_file(&self) -> std::io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("recent", MemfdFlags::CLOEXEC)?);
        file.write_all(&self.shown())?;
        std::io::Seek::rewind(&mut file)?;
        Ok(file.into())
    }

    /// A seat at a terminal that is gone: its last output, and nothing more to come.
    pub fn last_seat(&self) -> std::io::Result<Seat> {
        let (output, _) = UnixStream::pair()?;
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        Ok(Seat {
            recent: self.as_file()?,
            output: output.into(),
            keyboard: null.into(),
        })
    }
}

/// What somebody who attends holds of the terminal.
#[derive(Debug)]
pub struct Seat {
    /// A file with the last output.
    pub recent: OwnedFd,
    /// Where further output comes.
    pub output: OwnedFd,
    /// The terminal itself, for input and size.
    pub keyboard: OwnedFd,
}

/// A terminal that is read.
#[derive(Debug)]
pub struct Screen {
    terminal: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    recent: Recent,
    /// Who attends, by number.
    attending: Option<(u64, UnixStream)>,
}

impl Screen {
    /// Begins to read a terminal. The thread ends when the terminal does.
    pub fn over(terminal: OwnedFd) -> std::io::Result<(Arc<Self>, JoinHandle<()>)> {
        let from = File::from(terminal.try_clone()?);
        let screen = Arc::new(Self {
            terminal,
            state: Mutex::default(),
        });
        let read = Arc::clone(&screen);
        let reader = std::thread::spawn(move || read.read_all(from));
        Ok((screen, reader))
    }

    /// A seat for whoever attends under this number; who sat there sees the output end.
    pub fn seat(&self, number: u64) -> std::io::Result<Seat> {
        let (ours, theirs) = UnixStream::pair()?;
        let keyboard = self.terminal.try_clone()?;
        let mut state = lock(&self.state);
        let recent = state.recent.as_file()?;
        if let Some((_, before)) = state.attending.replace((number, ours)) {
            // Also a reader that waits for a slow screen comes back from it.
            let _ = before.shutdown(std::net::Shutdown::Both);
        }
        Ok(Seat {
            recent,
            output: theirs.into(),
            keyboard,
        })
    }

    /// Who attends under this number leaves.
    pub fn leave(&self, number: u64) {
        let mut state = lock(&self.state);
        if let Some((_, output)) = state.attending.take_if(|(attending, _)| *attending == number) {
            let _ = output.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Shows nobody anything any more: whoever attends does not look.
    pub fn let_go(&self) {
        if let Some((_, output)) = lock(&self.state).attending.take() {
            let _ = output.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Takes what was last put out.
    pub fn take_recent(&self) -> Recent {
        std::mem::take(&mut lock(&self.state).recent)
    }

    fn read_all(&self, mut terminal: File) {
        let mut buffer = vec![0u8; 64 * 1024];
        loop {
            match terminal.read(&mut buffer) {
                Ok(got @ 1..) => self.pass(buffer.get(..got).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // A terminal whose other side is closed answers with an error: that is its end.
                Ok(_) | Err(_) => break,
            }
        }
        lock(&self.state).attending = None;
    }

    fn pass(&self, bytes: &[u8]) {
        let to = {
            let mut state = lock(&self.state);
            state.recent.push(bytes);
            let attending = state.attending.as_ref();
            attending.and_then(|(number, output)| Some((*number, output.try_clone().ok()?)))
        };
        // Not under the lock: a slow screen holds up its agent, and nobody else.
        if let Some((number, mut output)) = to
            && output.write_all(bytes).is_err()
        {
            self.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_output_is_kept_from_the_beginning_of_a_line() {
        let mut recent = Recent::default();
        recent.push(b"first\nsecond");
        assert_eq!(recent.shown(), b"first\nsecond");
        let long = [&[b'x'; 100][..], b"\n"].concat();
        (0..KEPT / 50).for_each(|_| recent.push(&long));
        let shown = recent.shown();
        assert!(shown.len() <= KEPT && shown.len() > KEPT - 200 && shown.starts_with(&long));
    }

    #[test]
    fn a_program_that_has_the_whole_screen_draws_it_itself() {
        let mut recent = Recent::default();
        recent.push(b"before\n\x1b[?10");
        recent.push(b"49hdrawn");
        assert!(recent.shown().starts_with(b"\x1b[?1049h") && !recent.shown().ends_with(b"drawn"));
        recent.push(b"\x1b[?1049lafter");
        assert!(recent.shown().ends_with(b"after"));
    }
}
