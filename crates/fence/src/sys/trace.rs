//! Stopping a thread at the moment its new program starts (ptrace(2), "PTRACE_SEIZE" and "Stops under ptrace").
//!
//! A trace belongs to the thread that began it: seize, wait and let go in one thread.
#![expect(unsafe_code, reason = "ptrace has no safe wrapper")]

use std::io;

const SEIZE: libc::c_uint = 0x4206;
const INTERRUPT: libc::c_uint = 0x4207;
const DETACH: libc::c_uint = 17;
/// Tells of a program that starts.
const AT_EXEC: usize = 0x10;
/// The event of a program that starts.
const EXEC: i32 = 4;
/// The event of a stop that was asked for.
const STOP: i32 = 128;

/// Where a traced thread has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Before the first instruction of a new program, in the process of this number.
    AtStart(i32),
    /// On its way back from a call that started nothing; a signal may wait for it.
    Back(i32, i32),
    /// It has ended, with this exit code, or 128 and the number of the signal.
    Ended(i32, i32),
}

fn request(request: libc::c_uint, thread: i32, data: usize) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    let data = std::ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: these requests take plain numbers and write nothing here.
    if unsafe { libc::ptrace(request, thread, none, data) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Traces a thread that waits in a held call, and has it stop when it comes back from it or starts a program.
pub(crate) fn seize(thread: i32) -> io::Result<()> {
    request(SEIZE, thread, AT_EXEC)?;
    request(INTERRUPT, thread, 0)
}

/// Waits until what this thread traces has stopped.
pub(crate) fn wait() -> io::Result<Stopped> {
    loop {
        let mut status = 0;
        // SAFETY: the status is alive over the call.
        let found = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if found < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if libc::WIFEXITED(status) {
            return Ok(Stopped::Ended(found, libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Stopped::Ended(found, libc::WTERMSIG(status).saturating_add(128)));
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        return Ok(match event {
            EXEC => Stopped::AtStart(found),
            STOP => Stopped::Back(found, 0),
            _ => Stopped::Back(found, signal),
        });
    }
}

/// Lets a stopped thread go on by itself, with the signal that it was to get; 0 for none.
pub(crate) fn let_go(thread: i32, signal: i32) -> io::Result<()> {
    request(DETACH, thread, usize::try_from(signal).unwrap_or(0))
}

/// True when a thread is one of this process's.
pub(crate) fn is_thread_of(thread: i32, process: i32) -> bool {
    // SAFETY: plain numbers; signal 0 is only a question.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}
