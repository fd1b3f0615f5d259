//! The system calls that exist inside, group by group, and who needs them.
//!
//! Promises: P13. Modelled on what container engines allow by default, read against what a development day needs:
//! shells, compilers, interpreters, version control, debuggers, language servers. What stands in no group does not
//! exist (`ENOSYS`), so that programs fall back as on an older kernel; what a program might take for its right is
//! refused aloud (`EPERM`, [`REFUSED`]).
//! Not here: conditions on arguments (`filter`).
//! See: seccomp(2); <https://docs.docker.com/engine/security/seccomp/>.

use libc::c_long;

/// Reading, writing and waiting on descriptors. Everybody.
pub(crate) const DESCRIPTORS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_readahead,
    libc::SYS_fadvise64,
    CACHESTAT,
];

/// Looking at files and folders. Everybody. Not `openat2`: it takes its mode from memory, where no filter sees that a file
/// is made that runs as its owner. Programs fall back.
pub(crate) const LOOKING: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_name_to_handle_at,
    // Watchers: editors, bundlers, test runners.
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];

/// Changing files and folders: what is allowed where is the mounts' and Landlock's to say.
pub(crate) const CHANGING: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
];

/// Memory. Everybody; writable code stays, for runtimes that compile as they go.
pub(crate) const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_mseal,
    libc::SYS_remap_file_pages,
    libc::SYS_process_mrelease,
    // JavaScript engines keep compiled code under protection keys.
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_membarrier,
    MAP_SHADOW_STACK,
];

/// Threads, locks, scheduling, time. Everybody.
pub(crate) const THREADS: &[c_long] = &[
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_getcpu,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
];

/// The process itself: signals, ends, limits, identity. Everybody.
pub(crate) const PROCESS: &[c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_capget,
];

/// Sockets that exist already; `socket` itself has conditions. Everybody who talks to the gate.
pub(crate) const SOCKETS: &[c_long] = &[
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// Starting programs, waiting for them, arranging them in groups and sessions. Shells, build tools.
pub(crate) const PROGRAMS: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_setpgid,
    libc::SYS_setsid,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_setrlimit,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// Changes of identity: only to what the process is already, since no capability is left. Package managers, test
/// suites and login shells call them and look at the answer.
pub(crate) const IDENTITY: &[c_long] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];

/// Between processes: System V and POSIX queues, shared memory. Databases in test suites, fakeroot. All private to the
/// fence by its namespace; at level `process`, where there is none for it, they do not exist.
pub(crate) const SHARED: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

/// Asynchronous input and output of old.
pub(crate) const ASYNCHRONOUS: &[c_long] = &[
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
];

/// Debuggers and tracers: gdb, strace, rr's simpler parts, sanitizers. Landlock keeps them inside the fence.
pub(crate) const DEBUGGERS: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Sandboxes that narrow themselves further: browsers, agents with a sandbox of their own.
pub(crate) const NARROWING: &[c_long] = &[
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Calls that only this processor family has: older forms of the above.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_inotify_init,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_pause,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_getpgrp,
    libc::SYS_arch_prctl,
    libc::SYS_set_thread_area,
    libc::SYS_get_thread_area,
];

/// At level `process` these wait for the supervisor: where no mounts are, only it knows which place a name stands for,
/// and where no namespaces are, whose the other process is.
pub(crate) const WATCHED: &[c_long] = &[
    // Opening, and all that changes names.
    libc::SYS_openat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    // A watcher tells the names of what others make and open, anywhere.
    libc::SYS_inotify_add_watch,
    // What Landlock does not stop: a file's own size, mode, owner and times.
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    // The network is the machine's: addresses are looked at one by one.
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // What one process may do to another of the same person's.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_prlimit64,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// At level `namespace` these wait for the supervisor: they give a name to something, and a mount protects only what is
/// there already.
pub(crate) const NAMING: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_truncate,
];

/// Starts of programs: held at every level.
pub(crate) const STARTING: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Where starts are judged, what could change a program after it was judged is refused.
pub(crate) const MEDDLING: &[c_long] = &[libc::SYS_ptrace, libc::SYS_process_vm_writev];

/// At level `namespace` these wait for the supervisor too: it leads a connection where it may go.
pub(crate) const CONNECTING: &[c_long] = &[libc::SYS_connect];

/// Older forms of what gives a name.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER_NAMING: &[c_long] = &[
    libc::SYS_creat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
];

/// Older forms of what gives a name: one elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER_NAMING: &[c_long] = &[libc::SYS_renameat];

/// The calls that open a file, and which argument their flags are.
#[cfg(target_arch = "x86_64")]
pub(crate) const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];

/// The calls that open a file, and which argument their flags are: one elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2)];

/// Older forms of what is watched.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER_WATCHED: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];

/// Older forms of what is watched: one elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER_WATCHED: &[c_long] = &[libc::SYS_renameat];

/// Changing extended attributes; not at level `process` (`ENOTSUP`), since Landlock does not stop it.
pub(crate) const ATTRIBUTES: &[c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Older forms that change files or start programs.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER_CHANGING: &[c_long] = &[
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_fork,
    libc::SYS_vfork,
];

/// No older forms elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER: &[c_long] = &[];

/// No older forms elsewhere, but one.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER_CHANGING: &[c_long] = &[libc::SYS_renameat];

/// Refused aloud: each is a way to more authority, or a part of the kernel with a history of holes. Programs that have
/// a use for them (container engines, browsers, profilers) say so when they see `EPERM`.
pub(crate) const REFUSED: &[c_long] = &[
    // New namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Programs in the kernel, counters, faults served by user space.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // A second, unfiltered way to make system calls.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Key rings: not divided by user namespace for a person's sessions.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    // Files by number, past every path.
    libc::SYS_open_by_handle_at,
];

// Calls that the C library's table does not name yet; the numbers are the same on every processor family.
const CACHESTAT: c_long = 451;
const MAP_SHADOW_STACK: c_long = 453;
const FUTEX_WAKE: c_long = 454;
const FUTEX_WAIT: c_long = 455;
const FUTEX_REQUEUE: c_long = 456;

/// Every group of an agent's fence.
pub(crate) const AGENT: &[&[c_long]] = &[
    DESCRIPTORS,
    LOOKING,
    CHANGING,
    ATTRIBUTES,
    MEMORY,
    THREADS,
    PROCESS,
    SOCKETS,
    PROGRAMS,
    IDENTITY,
    SHARED,
    ASYNCHRONOUS,
    DEBUGGERS,
    NARROWING,
    OLDER,
    OLDER_CHANGING,
];

/// The groups of a gate: it looks, talks and computes; it starts, changes and traces nothing.
pub(crate) const GATE: &[&[c_long]] = &[DESCRIPTORS, LOOKING, MEMORY, THREADS, PROCESS, SOCKETS, OLDER];

/// The groups of a supervisor: what it does for others, and threads to do it in. It starts no program.
pub(crate) const SUPERVISOR: &[&[c_long]] = &[
    DESCRIPTORS,
    LOOKING,
    CHANGING,
    MEMORY,
    THREADS,
    PROCESS,
    SOCKETS,
    OLDER,
    OLDER_CHANGING,
    &[
        libc::SYS_openat2,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_kill,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_readv,
        // Its requests have conditions.
        libc::SYS_ptrace,
    ],
];

/// The groups of a lookout: it looks. It starts nothing, writes no file and talks to nobody but its launcher.
pub(crate) const LOOKOUT: &[&[c_long]] = &[
    DESCRIPTORS,
    LOOKING,
    MEMORY,
    PROCESS,
    OLDER,
    &[
        libc::SYS_openat2,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_futex,
    ],
];

/// What a lookout mounts with, which is refused to all others.
pub(crate) const MOUNTING: &[c_long] = &[
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn p13_no_call_stands_twice_and_none_is_both_allowed_and_refused() {
        let mut seen = BTreeSet::new();
        for call in AGENT.iter().copied().flatten().chain(REFUSED) {
            assert!(seen.insert(*call), "call {call} stands twice");
        }
    }

    #[test]
    fn p13_what_a_lookout_mounts_with_is_refused_to_all_others() {
        let others: BTreeSet<_> = AGENT.iter().chain(GATE).chain(SUPERVISOR).copied().flatten().collect();
        for call in MOUNTING {
            assert!(REFUSED.contains(call) && !others.contains(call), "call {call}");
        }
    }

    #[test]
    fn p13_neither_gate_nor_lookout_can_start_trace_or_change() {
        let gate: BTreeSet<_> = GATE.iter().chain(LOOKOUT).copied().flatten().collect();
        for call in PROGRAMS
            .iter()
            .chain(DEBUGGERS)
            .chain(CHANGING)
            .chain(ATTRIBUTES)
            .chain(OLDER_CHANGING)
        {
            assert!(!gate.contains(call), "call {call}");
        }
    }
}
