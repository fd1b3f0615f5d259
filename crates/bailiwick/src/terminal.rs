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
        set_size(terminal, rows, columns);
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let _ = tcsetwinsize(terminal, size);
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

/// How the key is called that leaves an agent to itself.
pub const DETACH_KEY: &str = "ctrl-\\ ctrl-d";

/// What terminals send for it: plainly, and where a program asked for keys to be told apart (CSI u).
const DETACH: [(&[u8], &[u8]); 2] = [(b"\x1c", b"\x04"), (b"\x1b[92;5u", b"\x1b[100;5u")];

/// How long the first half of the key waits for the second, in milliseconds, and how long a part of a half does.
const BETWEEN_KEYS: i64 = 700;
const WITHIN_KEY: i64 = 30;

/// How long a program has for noticing another size: some wait a while for a size to stay, before they draw.
const BETWEEN_SIZES: std::time::Duration = std::time::Duration::from_millis(600);

/// Finds the key in what is typed.
#[derive(Debug, Default)]
struct Typed {
    /// What may be the beginning of the key, and has not been passed on.
    held: Vec<u8>,
}

impl Typed {
    /// Takes what was typed; gives what is to be passed on, and whether the key was among it: what follows is dropped.
    fn take(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::new();
        for byte in bytes {
            self.held.push(*byte);
            loop {
                let whole = DETACH.map(|(first, second)| [first, second].concat());
                if whole.contains(&self.held) {
                    return (passed, true);
                }
                if self.held.is_empty() || whole.iter().any(|key| key.starts_with(&self.held)) {
                    break;
                }
                passed.push(self.held.remove(0));
            }
        }
        (passed, false)
    }

    /// How long to wait for more, in milliseconds; none when nothing is held.
    fn patience(&self) -> Option<i64> {
        let between = DETACH.iter().any(|(first, _)| self.held.starts_with(first));
        (!self.held.is_empty()).then_some(if between { BETWEEN_KEYS } else { WITHIN_KEY })
    }
}

/// Passes on what is typed until the key that detaches comes, or the person's terminal is gone. With `whole`, the key is
/// passed on like any other, and only a terminal that is gone ends it.
pub fn keyboard(mut to: impl Write, whole: bool) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut typed = Typed::default();
    let mut buffer = vec![0u8; BUFFER];
    let stdin = std::io::stdin();
    loop {
        if let Some(patience) = typed.patience() {
            let patience = Timespec {
                tv_sec: 0,
                tv_nsec: patience.saturating_mul(1_000_000),
            };
            let waited = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&patience));
            if waited == Ok(0) {
                let _ = to.write_all(&std::mem::take(&mut typed.held));
                continue;
            }
        }
        // Not through the buffer of the standard library: what is there has been polled for.
        let got = match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => return,
            Ok(got) => buffer.get(..got).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        let (passed, detach) = if whole { (got.to_vec(), false) } else { typed.take(got) };
        // An agent that is gone has an end of its own.
        let _ = to.write_all(&passed);
        if detach {
            return;
        }
    }
}

/// Puts the person's terminal back into the state of a shell, whatever the agent had made of it.
pub fn put_back() {
    // Leave the whole screen; show the cursor; no mouse, no focus, no bracketed paste; plain keys; plain letters.
    let plain = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[<u\x1b[>4;0m\x1b[0m\r\n";
    let mut out = std::io::stdout();
    let _ = out.write_all(plain.as_bytes()).and_then(|()| out.flush());
}

/// Has the program at a terminal draw its screen anew: it is told of another size, then of the right one.
pub fn redraw(terminal: &OwnedFd) {
    if let Some((rows, columns)) = size() {
        set_size(terminal, if rows > 1 { rows.saturating_sub(1) } else { 2 }, columns);
        std::thread::sleep(BETWEEN_SIZES);
        resize(terminal);
    }
}

/// A second handle on a descriptor, as a file.
pub fn file(descriptor: impl AsFd) -> std::io::Result<std::fs::File> {
    descriptor.as_fd().try_clone_to_owned().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_found_in_what_is_typed_and_nothing_else_is_lost() {
        for (typed, passed, detaches) in [
            (&[&b"ls\r"[..]][..], &b"ls\r"[..], false),
            (&[b"a\x1c\x04b"], b"a", true),
            (&[b"a\x1c", b"\x04"], b"a", true),
            (&[b"\x1cx"], b"\x1cx", false),
            (&[b"\x1c\x1c\x04"], b"\x1c", true),
            (&[b"\x1b[A\x1b[B"], b"\x1b[A\x1b[B", false),
            (&[b"\x1b[92;5u\x1b[100;5u"], b"", true),
            (&[b"\x1b[92;5u", b"\x1b[100;6u"], b"\x1b[92;5u\x1b[100;6u", false),
            (&[b"\x04"], b"\x04", false),
        ] {
            let mut keys = Typed::default();
            let mut all = Vec::new();
            let mut found = false;
            for piece in typed {
                let (more, detach) = keys.take(piece);
                all.extend(more);
                found |= detach;
            }
            assert_eq!((all.as_slice(), found), (passed, detaches), "{typed:?}");
            assert!(keys.held.is_empty() || detaches, "{typed:?}");
        }
        let mut keys = Typed::default();
        assert_eq!(keys.take(b"\x1b"), (Vec::new(), false));
        assert_eq!(keys.patience(), Some(WITHIN_KEY));
    }
}
