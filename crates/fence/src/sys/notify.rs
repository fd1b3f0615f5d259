//! Held system calls: the kernel's side of a filter that asks a supervisor (seccomp_unotify(2)), and the memory of
//! whoever waits (process_vm_readv(2)).
#![expect(unsafe_code, reason = "these calls have no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use seccompiler::sock_filter;

// Requests of the listener, as the kernel's header builds them.
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const IS_VALID: libc::Ioctl = 0x4008_2102;
const ADD_DESCRIPTOR: libc::Ioctl = 0x4018_2103;
const SET_FLAGS: libc::Ioctl = 0x4008_2104;
/// The waker hands its processor over to whoever it wakes (Linux 6.6).
const SYNC_WAKE_UP: u64 = 1;

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// The kernel's number for this wait.
    pub id: u64,
    /// The thread that waits.
    pub thread: i32,
    /// The number of the call.
    pub call: libc::c_long,
    /// Its arguments, as they stand in the registers.
    pub arguments: [u64; 6],
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Lays a filter on this thread, which asks the listener that comes back. A wait is then broken by fatal signals only.
pub(crate) fn lay_watched(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program outlives the call, and `sock_filter` has the kernel's layout. The descriptor is ours alone.
    unsafe {
        let made = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&filter),
        );
        match RawFd::try_from(made) {
            Ok(made) if made >= 0 => Ok(OwnedFd::from_raw_fd(made)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Has waiting threads woken on the processor of whoever answers, where the kernel can.
pub(crate) fn wake_in_place(listener: BorrowedFd<'_>) {
    // SAFETY: the request takes its flags by value.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Waits for the next call.
pub(crate) fn next(listener: BorrowedFd<'_>) -> io::Result<Held> {
    // SAFETY: an all-zero structure is what the kernel wants, and of the size that the request names.
    let mut heard: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is alive over the call.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, std::ptr::from_mut(&mut heard)) })?;
    Ok(Held {
        id: heard.id,
        thread: i32::try_from(heard.pid).unwrap_or(0),
        call: heard.data.nr.into(),
        arguments: heard.data.args,
    })
}

/// Answers with a result, or with the number of an error.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) -> io::Result<()> {
    send(
        listener,
        &libc::seccomp_notif_resp {
            id,
            val: result.unwrap_or(0),
            error: result.err().map_or(0, |errno| errno.saturating_neg()),
            flags: 0,
        },
    )
}

/// Lets the kernel carry the call out as it stands. Only for calls whose arguments are all in registers.
pub(crate) fn go_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    send(
        listener,
        &libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1),
        },
    )
}

fn send(listener: BorrowedFd<'_>, response: &libc::seccomp_notif_resp) -> io::Result<()> {
    // SAFETY: the structure is alive over the call, which only reads it.
    done(unsafe { libc::ioctl(listener.as_raw_fd(), SEND, std::ptr::from_ref(response)) })
}

/// Puts a descriptor into the waiting process, which goes on waiting, and says its number there.
pub(crate) fn hand(listener: BorrowedFd<'_>, id: u64, descriptor: BorrowedFd<'_>, keep: bool) -> io::Result<i64> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: 0,
        srcfd: u32::try_from(descriptor.as_raw_fd()).unwrap_or(u32::MAX),
        newfd: 0,
        newfd_flags: if keep {
            0
        } else {
            u32::try_from(libc::O_CLOEXEC).unwrap_or(0)
        },
    };
    // SAFETY: the structure is alive over the call, which only reads it.
    let number = unsafe { libc::ioctl(listener.as_raw_fd(), ADD_DESCRIPTOR, std::ptr::from_ref(&request)) };
    done(number.min(0))?;
    Ok(number.into())
}

/// True while the call waits still: what was read of its process is of that process.
pub(crate) fn waits_still(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the number is alive over the call, which only reads it.
    unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID, std::ptr::from_ref(&id)) == 0 }
}

/// Reads memory of another process. Less than asked for where the rest is not mapped.
pub(crate) fn read_memory(thread: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let address = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let here = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let there = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: into.len(),
    };
    // SAFETY: the local part is a buffer of ours of that length; the other is only a number to the kernel.
    let got = unsafe { libc::process_vm_readv(thread, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Reads up to `each` bytes at each of these addresses, at most 256 of them, never beyond their page. What cannot be read
/// is empty.
pub(crate) fn read_many(thread: i32, addresses: &[u64], each: usize) -> Vec<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut read: Vec<Vec<u8>> = addresses
        .iter()
        .map(|address| {
            let room = PAGE.saturating_sub(usize::try_from(address % 4096).unwrap_or(0));
            vec![0u8; room.min(each)]
        })
        .collect();
    let there: Vec<libc::iovec> = addresses
        .iter()
        .zip(&read)
        .map(|(address, into)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(usize::try_from(*address).unwrap_or(0)),
            iov_len: into.len(),
        })
        .collect();
    let here: Vec<libc::iovec> = read
        .iter_mut()
        .map(|into| libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        })
        .collect();
    let (ours, theirs) = (
        libc::c_ulong::try_from(here.len()).unwrap_or(0),
        libc::c_ulong::try_from(there.len()).unwrap_or(0),
    );
    // SAFETY: the local parts are buffers of ours of those lengths, alive over the call; the others are numbers to the
    // kernel.
    let got = unsafe { libc::process_vm_readv(thread, here.as_ptr(), ours, there.as_ptr(), theirs, 0) };
    let mut left = usize::try_from(got).unwrap_or(0);
    for part in &mut read {
        let whole = part.len();
        part.truncate(left.min(whole));
        left = left.saturating_sub(whole);
    }
    read
}

/// Has orphans of this process's descendants become its own children.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this request takes plain numbers.
    done(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// The number of the pseudo-terminal whose outer end this is.
pub(crate) fn terminal_number(outer: BorrowedFd<'_>) -> io::Result<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the number is alive over the call and of the type that this request writes.
    done(unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCGPTN, std::ptr::from_mut(&mut number)) })?;
    Ok(number)
}

/// Binds or connects a socket to an address that is given as the kernel's bytes.
pub(crate) fn at_address(socket: BorrowedFd<'_>, address: &[u8], connect: bool) -> io::Result<()> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (socket, address) = (socket.as_raw_fd(), address.as_ptr().cast());
    // SAFETY: the address is a buffer of that length; the kernel checks what is in it.
    done(unsafe {
        if connect {
            libc::connect(socket, address, length)
        } else {
            libc::bind(socket, address, length)
        }
    })
}

/// What ends the wait of one thread of this process.
const INTERRUPT: libc::c_int = libc::SIGUSR1;

extern "C" fn heed(_signal: libc::c_int) {}

/// Lets a thread's wait in the kernel be ended by [`interrupt`].
pub(crate) fn heed_interrupts() -> io::Result<()> {
    // SAFETY: the handler does nothing, so it may run at any moment; without `SA_RESTART` the call it falls into ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = heed as *const () as usize;
        libc::sigemptyset(&raw mut action.sa_mask);
        done(libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut()))
    }
}

/// Ends the wait of a thread in the kernel. One that has ended is left alone.
pub(crate) fn interrupt<T>(thread: &std::thread::JoinHandle<T>) {
    use std::os::unix::thread::JoinHandleExt;
    // SAFETY: the handle has not been joined, so the thread's number is its own still.
    let _ = unsafe { libc::pthread_kill(thread.as_pthread_t(), INTERRUPT) };
}
