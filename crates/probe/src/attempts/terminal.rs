//! Terminals: typing for the person, and other terminals of the person. Run with a terminal of its own.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::{any, write};
use crate::sys::{self, Arg, call};
use crate::{Attempt, Goal, Needs, Refused, Tried, World};

const TIOCSTI: i64 = 0x5412;
const TIOCLINUX: i64 = 0x541c;

/// Types the word and a line's end into a terminal, by this request.
fn typed(descriptor: i64, request: i64, word: &str) -> Tried {
    for byte in word.bytes().chain(*b"\n") {
        call(libc::SYS_ioctl, [Arg::N(descriptor), Arg::N(request), Arg::In(&[byte])])?;
    }
    Ok("typed".into())
}

fn own_terminal() -> Result<File, Refused> {
    Ok(OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/tty")?)
}

fn other(world: &World) -> Result<File, Refused> {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(&world.terminal);
    Ok(options?)
}

pub(super) fn attempts() -> Vec<Attempt> {
    let tell = |id, act| Attempt::new(id, Goal::Tell, act);
    vec![
        tell("terminal-typed", |world| {
            any((0..10).map(|number| typed(number, TIOCSTI, &world.word)))
        }),
        tell("terminal-typed-upper-bits", |world| {
            any((0..10).map(|number| typed(number, 0x1_0000_0000 | TIOCSTI, &world.word)))
        }),
        tell("terminal-typed-all-upper-bits", |world| {
            any((0..10).map(|number| typed(number, (0xffff_ffff_i64 << 32) | TIOCSTI, &world.word)))
        }),
        tell("terminal-typed-by-name", |world| {
            typed(own_terminal()?.as_raw_fd().into(), TIOCSTI, &world.word)
        }),
        tell("terminal-typed-by-proc", |world| {
            any((0..3).map(|number| {
                let file = OpenOptions::new().read(true).open(format!("/proc/self/fd/{number}"))?;
                typed(file.as_raw_fd().into(), TIOCSTI, &world.word)
            }))
        }),
        tell("terminal-typed-by-a-child", |world| {
            let status = sys::in_child(|| i32::from(any((0..3).map(|n| typed(n, TIOCSTI, &world.word))).is_err()))?;
            if status == 0 {
                Ok("typed".into())
            } else {
                Err("refused".into())
            }
        }),
        tell("terminal-typed-by-python", |world| {
            super::act(&format!(
                "python3 -c 'import fcntl,os; t=os.open(\"/dev/tty\", os.O_RDWR); [fcntl.ioctl(t, 0x5412, bytes([c])) for c in b\"{}\\n\"]'",
                world.word
            ))
        }),
        tell("terminal-stolen", |world| {
            let victim = other(world)?;
            let status = sys::in_child(|| {
                let taken = || -> Tried {
                    call(libc::SYS_setsid, [])?;
                    call(
                        libc::SYS_ioctl,
                        [Arg::N(victim.as_raw_fd().into()), Arg::N(0x540e), Arg::N(1)],
                    )?;
                    typed(victim.as_raw_fd().into(), TIOCSTI, &world.word)
                };
                i32::from(taken().is_err())
            })?;
            if status == 0 {
                Ok("stolen".into())
            } else {
                Err("refused".into())
            }
        })
        .needs(Needs::Root),
        tell("terminal-other-written", |world| write(&world.terminal, &world.word)),
        tell("terminal-other-typed", |world| {
            typed(other(world)?.as_raw_fd().into(), TIOCSTI, &world.word)
        })
        .needs(Needs::Root),
        tell("terminal-every-other-written", |world| {
            let own = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
            let all = std::fs::read_dir("/dev/pts")?.flatten().map(|entry| entry.path());
            let others: Vec<_> = all
                .filter(|path| *path != own && path.file_name().is_some_and(|name| name != "ptmx"))
                .collect();
            any(std::iter::once(world.terminal.clone()).chain(others).map(|path| {
                // Only the person's: a name of the machine's list may be anyone's.
                if path == world.terminal {
                    write(path, &world.word)
                } else {
                    Err("not the world's".into())
                }
            }))
        }),
        Attempt::new("terminal-selection", Goal::Gain, |_| {
            any(["/dev/tty0", "/dev/tty1", "/dev/console"].map(|path| {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
                    .open(path)?;
                // Subcode 6 asks for the shift state, which changes nothing.
                call(
                    libc::SYS_ioctl,
                    [
                        Arg::N(file.as_raw_fd().into()),
                        Arg::N(TIOCLINUX),
                        Arg::Out(&mut [6, 0]),
                    ],
                )?;
                Ok("asked".into())
            }))
        })
        .needs(Needs::Root),
        Attempt::new("terminal-console-redirected", Goal::Gain, |_| {
            let console = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
                .open("/dev/console")?;
            drop(console);
            Ok("opened".into())
        })
        .needs(Needs::Root),
    ]
}
