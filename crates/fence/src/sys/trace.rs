//! Stopping a thread at the moment its new program starts (ptrace(2), "PTRACE_SEIZE" and "Stops under ptrace"), and having
//! a program wait there instead of running.
//!
//! A trace belongs to the thread that began it: seize, wait and let go in one thread.
#![expect(unsafe_code, reason = "ptrace has no safe wrapper")]

use std::io;

const SEIZE: libc::c_uint = 0x4206;
const INTERRUPT: libc::c_uint = 0x4207;
const DETACH: libc::c_uint = 17;
const POKE: libc::c_uint = 5;
const REGISTERS: libc::c_uint = 0x4204;
/// The set of general registers (elf(5)).
const GENERAL: usize = 1;
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

/// What a program does that waits: one call that never comes back, again and again. No register needs to be set for it.
#[cfg(target_arch = "x86_64")]
mod waiting {
    /// Where the instruction pointer stands among the registers.
    pub const POINTER: usize = 16;
    /// Where the stack pointer stands.
    pub const STACK: usize = 19;
    /// `mov eax, SYS_pause; syscall; jmp` to the beginning.
    pub const CODE: [u8; 16] = [
        0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    ];
    /// Where a call begins that was broken off: it is made again, or comes back to what follows.
    pub const CALL: usize = 5;

    /// `nop; nop; mov edi, status; mov eax, SYS_exit_group; syscall`.
    pub fn ending(status: u8) -> [u8; 16] {
        [
            0x90, 0x90, 0xbf, status, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b,
        ]
    }
}

/// What a program does that waits: one call that never comes back, again and again.
#[cfg(target_arch = "aarch64")]
mod waiting {
    /// Where the instruction pointer stands among the registers.
    pub const POINTER: usize = 32;
    /// Where the stack pointer stands.
    pub const STACK: usize = 31;
    /// `mov x8, SYS_ppoll`, nothing in `x0` to `x4`, `svc 0`, `b` to the beginning.
    pub const CODE: [u8; 32] = of([
        0xd280_0928,
        0xd280_0000,
        0xd280_0001,
        0xd280_0002,
        0xd280_0003,
        0xd280_0004,
        0xd400_0001,
        0x17ff_fff9,
    ]);
    /// Where a call begins that was broken off.
    pub const CALL: usize = 24;

    const fn of<const N: usize>(words: [u32; 8]) -> [u8; N] {
        let mut bytes = [0; N];
        let mut at = 0;
        while at < N {
            bytes[at] = words[at / 4].to_le_bytes()[at % 4];
            at += 1;
        }
        bytes
    }

    /// `nop; mov x0, status; mov x8, SYS_exit_group; svc 0`.
    pub fn ending(status: u8) -> [u8; 16] {
        of([
            0xd503_201f,
            0xd280_0000 | (status as u32) << 5,
            0xd280_0bc8,
            0xd400_0001,
            0,
            0,
            0,
            0,
        ])
    }
}

fn write(process: i32, at: usize, code: &[u8]) -> io::Result<()> {
    for (word, at) in code.chunks_exact(8).zip((at..).step_by(8)) {
        let word = usize::from_ne_bytes(<[u8; 8]>::try_from(word).unwrap_or_default());
        let at = std::ptr::without_provenance_mut::<libc::c_void>(at);
        let word = std::ptr::without_provenance_mut::<libc::c_void>(word);
        // SAFETY: the address is one of the other process; nothing is written here.
        if unsafe { libc::ptrace(POKE, process, at, word) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The general registers of a stopped thread.
fn registers(thread: i32) -> io::Result<[usize; 64]> {
    let mut registers = [0usize; 64];
    let mut into = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of_val(&registers),
    };
    let kind = std::ptr::without_provenance_mut::<libc::c_void>(GENERAL);
    // SAFETY: the kernel writes no more than the length says, and both live over the call.
    if unsafe { libc::ptrace(REGISTERS, thread, kind, &raw mut into) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(registers)
}

/// Where the stack of a stopped thread ends that grows down. Before the first instruction of a program the kernel has laid
/// there what it tells it: its words, its variables, and more (getauxval(3)).
pub(crate) fn stack_of(thread: i32) -> io::Result<u64> {
    let at = registers(thread)?.get(waiting::STACK).copied().unwrap_or(0);
    u64::try_from(at).map_err(io::Error::other)
}

/// Has a program that stands before its first instruction wait there for good, once it goes on. Where it waits.
pub(crate) fn have_it_wait(process: i32) -> io::Result<usize> {
    let at = registers(process)?.get(waiting::POINTER).copied().unwrap_or(0);
    write(process, at, &waiting::CODE)?;
    Ok(at)
}

/// Has a program that waits and has stopped end with a status, once it goes on.
pub(crate) fn have_it_end(process: i32, at: usize, status: u8) -> io::Result<()> {
    write(process, at.wrapping_add(waiting::CALL), &waiting::ending(status))
}

/// True when a thread is one of this process's.
pub(crate) fn is_thread_of(thread: i32, process: i32) -> bool {
    // SAFETY: plain numbers; signal 0 is only a question.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}
