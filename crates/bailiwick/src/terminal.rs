//! The person's end of a run: their terminal or pipes on one side, the agent's on the other.
//!
//! Promises: P1 (the agent never holds the person's own terminal, pipe or file: all is relayed).

use std::io::{IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// Size of the relay's buffers, in bytes.
const BUFFER: usize = 64 * 1024;

/// The size of the person's terminal, as rows and columns; none unless both input and output are one.
pub fn size() -> Option<(u16, u16)> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_row.max(1), size.ws_col.max(1)))
}

/// The person's terminal in raw mode, for as long as this lives.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Turns raw mode on.
    pub fn enter() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Gives the agent's terminal the size of the person's.
pub fn resize(terminal: &OwnedFd) {
    if let Some((rows, columns)) = size() {
        let _ = tcsetwinsize(
            terminal,
            Winsize {
                ws_row: rows,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        );
    }
}

/// Copies from one to the other until the source ends or the sink is gone.
pub fn relay(mut from: impl Read + Send + 'static, mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0u8; BUFFER];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(got) => {
                    if to
                        .write_all(buffer.get(..got).unwrap_or_default())
                        .and_then(|()| to.flush())
                        .is_err()
                    {
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // A terminal whose other side is closed answers with an error: that is its end.
                Err(_) => return,
            }
        }
    })
}

/// A second handle on a descriptor, as a file.
pub fn file(descriptor: impl AsFd) -> std::io::Result<std::fs::File> {
    descriptor.as_fd().try_clone_to_owned().map(Into::into)
}
