//! The system calls that no safe wrapper has, each with the smallest face that the fence needs.
//!
//! Trust: called by the launcher and its children only, which have one thread and hold no locks across a fork.
//! Not here: what the calls are for (`building`, `inside`, `serve`).
#![expect(unsafe_code, reason = "raw system calls and fork have no safe wrapper")]

pub(crate) mod notify;
pub(crate) mod trace;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::mount::MountAttrFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The one that forked, and its new child.
    Parent(Pid),
    /// The new one.
    Child,
}

fn last_error<T>() -> io::Result<T> {
    Err(io::Error::last_os_error())
}

fn forked(pid: i64) -> io::Result<Fork> {
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(child) if pid > 0 => Ok(Fork::Parent(child)),
        _ if pid == 0 => Ok(Fork::Child),
        _ => last_error(),
    }
}

/// Forks this process, which must have one thread.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so the child may do all that the parent may.
    forked(i64::from(unsafe { libc::fork() }))
}

/// Forks a child whose parent is this process's parent: how a process that built a fence hands it over.
pub(crate) fn fork_sibling() -> io::Result<Fork> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: no new stack and no shared memory: this is a fork but for the parent. The process has one thread and no
    // fork handlers; the C library's note of the thread's id is stale in the child, which uses nothing that reads it.
    forked(unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) })
}

/// Leaves at once: no destructors, no exit handlers.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` ends the process and touches no memory of ours.
    unsafe { libc::_exit(status) }
}

/// Waits until something ends this process.
pub(crate) fn wait_for_the_end() {
    loop {
        // SAFETY: `pause` touches no memory.
        unsafe { libc::pause() };
    }
}

/// Leaves the namespaces of the parent.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: `FILES` is never among the flags, so no descriptor that another thread counts on is lost.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn mount_setattr(mount: BorrowedFd<'_>, deep: bool, attr: &MountAttr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if deep { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated constant, and the structure is what the kernel reads, with its size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if done == 0 { Ok(()) } else { last_error() }
}

/// Adds attributes to a mount, and to all below it when `deep`. None is ever taken away, so flags that the kernel has
/// locked stay as they are.
pub(crate) fn add_mount_flags(mount: impl AsFd, flags: MountAttrFlags, deep: bool) -> io::Result<()> {
    let attr = MountAttr {
        set: u64::from(flags.bits()),
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    mount_setattr(mount.as_fd(), deep, &attr)
}

/// Maps the owners of a detached tree by the id maps of a user namespace.
pub(crate) fn map_owners(tree: impl AsFd, namespace: impl AsFd) -> io::Result<()> {
    let attr = MountAttr {
        set: u64::from(MountAttrFlags::MOUNT_ATTR_IDMAP.bits()),
        clear: 0,
        propagation: 0,
        user_namespace: u64::try_from(namespace.as_fd().as_raw_fd()).unwrap_or(u64::MAX),
    };
    mount_setattr(tree.as_fd(), true, &attr)
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an all-zero request is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: the request is alive over the call and of the type that this ioctl reads.
    let done = unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::SIOCSIFFLAGS,
            std::ptr::from_mut(&mut request),
        )
    };
    if done == 0 { Ok(()) } else { last_error() }
}

/// True where a process of this process table listens on what a Unix socket is connected to: one of elsewhere has no number
/// here (`SO_PEERCRED` in unix(7)).
pub(crate) fn is_listened_on_inside(socket: impl AsFd) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or(0);
    // SAFETY: the structure is alive over the call, and of the size that is given.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &raw mut size,
        )
    };
    done == 0 && peer.pid > 0
}

/// Has a packet socket pass datagrams alone whose target is neither of the loopback nor the fence's own, once each, and
/// of each no more than its heads.
pub(crate) fn only_stray_datagrams(socket: impl AsFd) -> io::Result<()> {
    const BYTE: u16 = 0x30;
    const HALF: u16 = 0x28;
    const WORD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const SHIFT_RIGHT: u16 = 0x74;
    const ANSWER: u16 = 0x06;
    /// Where the filter finds to whom the network gives the packet; 0 is this host.
    const TO_WHOM: u32 = 0xffff_f004;
    const UDP: u32 = 17;
    /// Both heads of IPv6, or those of IPv4 with all options.
    const HEADS: u32 = 68;
    let own = crate::network::OWN.to_bits();
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(BYTE, TO_WHOM, 0, 0),
        step(EQUAL, 0, 0, 23),
        step(BYTE, 0, 0, 0),
        step(SHIFT_RIGHT, 4, 0, 0),
        step(EQUAL, 4, 0, 8),
        // IPv4: the protocol, the first fragment, a target elsewhere.
        step(BYTE, 9, 0, 0),
        step(EQUAL, UDP, 0, 18),
        step(HALF, 6, 0, 0),
        step(ANY_BIT, 0x1fff, 16, 0),
        step(WORD, 16, 0, 0),
        step(EQUAL, own, 14, 0),
        step(SHIFT_RIGHT, 24, 0, 0),
        step(EQUAL, 127, 12, 11),
        // IPv6: the protocol, a target that is not `::1`.
        step(EQUAL, 6, 0, 11),
        step(BYTE, 6, 0, 0),
        step(EQUAL, UDP, 0, 9),
        step(WORD, 24, 0, 0),
        step(EQUAL, 0, 0, 6),
        step(WORD, 28, 0, 0),
        step(EQUAL, 0, 0, 4),
        step(WORD, 32, 0, 0),
        step(EQUAL, 0, 0, 2),
        step(WORD, 36, 0, 0),
        step(EQUAL, 1, 1, 0),
        step(ANSWER, HEADS, 0, 0),
        step(ANSWER, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_mut_ptr(),
    };
    let size = libc::socklen_t::try_from(size_of_val(&program)).unwrap_or(0);
    // SAFETY: the program and what it points to are alive over the call, which only reads them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size,
        )
    };
    if done == 0 { Ok(()) } else { last_error() }
}

/// Blocks SIGCHLD and makes a descriptor that tells of it.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset` before use; the new descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return last_error();
        }
        // Children that only stop tell nothing: each start that is looked at does.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_NOCLDSTOP;
        if libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) != 0 {
            return last_error();
        }
        let told = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if told < 0 {
            last_error()
        } else {
            Ok(OwnedFd::from_raw_fd(told))
        }
    }
}

/// Gives every signal its default action and unblocks all: what a new program expects to find.
pub(crate) fn default_signals() {
    // SAFETY: default actions run no code of ours; the set is initialised by `sigemptyset`.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Marks every descriptor from `first` on to be closed when a program starts.
pub(crate) fn close_at_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only a flag of the descriptors changes; none is closed under an owner's feet.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { last_error() }
}

/// Closes every descriptor above the standard three but these; what this process believed to own otherwise is gone. For a
/// process that was just forked and never returns to what it was.
pub(crate) fn keep_only(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept
        .iter()
        .filter_map(|one| u32::try_from(one.as_raw_fd()).ok())
        .collect();
    kept.sort_unstable();
    let mut first = 3u32;
    let ends = kept.iter().copied().chain([u32::MAX]);
    for end in ends {
        let last = if end == u32::MAX { end } else { end.saturating_sub(1) };
        if first <= last {
            // SAFETY: the caller says that nothing else is used any more.
            if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
                return last_error();
            }
        }
        first = end.saturating_add(1);
    }
    Ok(())
}

/// Has a descriptor of this process at a number too, kept over the start of a program. Whatever lies there is closed.
pub(crate) fn hand(descriptor: impl AsFd, number: i32) -> io::Result<()> {
    let from = descriptor.as_fd().as_raw_fd();
    // SAFETY: the caller needs nothing any more that could lie at the number.
    let done = unsafe {
        if from == number {
            libc::fcntl(number, libc::F_SETFD, 0)
        } else {
            libc::dup2(from, number)
        }
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Becomes another program. Comes back only with the reason why it did not.
pub(crate) fn become_program(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let ended = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (ended(arguments), ended(environment));
    // SAFETY: both lists end with a null pointer, and all texts outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// The version of Landlock in the running kernel; 0 where there is none.
pub(crate) fn landlock_version() -> i32 {
    let (none, size, ask) = (std::ptr::null::<libc::c_void>(), 0usize, 1u32);
    // SAFETY: with the flag that asks for the version, the kernel reads no structure.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, size, ask) };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// Sends a signal by its number, to one process or (negative) a process group.
pub(crate) fn send_signal(to: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` touches no memory.
    if unsafe { libc::kill(to, signal) } == 0 {
        Ok(())
    } else {
        last_error()
    }
}

/// Takes ownership of a descriptor that this process was started with. The caller takes each number once.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: asking for the flags of any number is sound; it fails when nothing is open there.
    if number < 3 || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    // SAFETY: the descriptor is open and was handed to this process to be owned.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// Takes this process's input, puts `/dev/null` in its place, and closes all above the standard three. For a process that
/// has just started and owns nothing else.
pub(crate) fn take_input() -> io::Result<OwnedFd> {
    const NUMBER: i32 = 3;
    // SAFETY: nothing above the standard three is anybody's yet, so that 3 may be replaced.
    let done = unsafe { libc::dup3(0, NUMBER, libc::O_CLOEXEC) };
    if done < 0 {
        return last_error();
    }
    // SAFETY: 3 was just made, and nobody else holds it.
    let channel = unsafe { OwnedFd::from_raw_fd(NUMBER) };
    // SAFETY: as above; a descriptor that is closed here was inherited by mistake.
    if unsafe { libc::syscall(libc::SYS_close_range, NUMBER + 1, u32::MAX, 0) } != 0 {
        return last_error();
    }
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(channel)
}

/// The groups that the account database lists for a user.
pub(crate) fn groups_of(user: &CStr, group: u32) -> Vec<u32> {
    let mut count: libc::c_int = 256;
    let mut groups: Vec<libc::gid_t> = vec![0; 256];
    // SAFETY: the buffer holds as many entries as `count` says.
    let found = unsafe { libc::getgrouplist(user.as_ptr(), group, groups.as_mut_ptr(), &raw mut count) };
    if found < 0 {
        return vec![group];
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}
