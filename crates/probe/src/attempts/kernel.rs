//! The kernel itself: namespaces, mounts, and the calls that no agent needs.

use std::fs::OpenOptions;

use super::{any, bait, read, write};
use crate::sys::{self, Arg, call, text};
use crate::{Attempt, Goal, Needs, Refused, Tried, World};

const NEW_USER: i64 = 0x1000_0000;
const NEW_MOUNTS: i64 = 0x0002_0000;

/// The machine keeps this from ordinary users by a setting.
fn setting(path: &str, at_most: i64) -> Result<(), Refused> {
    let value = std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok());
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?) == 0;
    match value {
        Some(value) if value > at_most && !root => Err(Refused::NotHere(format!("{path} is {value}"))),
        _ => Ok(()),
    }
}

/// A new user namespace, with what is then tried in it, in a child.
fn in_new_user_namespace(more: i64, act: impl FnOnce() -> Tried) -> Tried {
    let status = sys::in_child(|| {
        if let Err(error) = call(libc::SYS_unshare, [Arg::N(NEW_USER | more)]) {
            return error.raw_os_error().unwrap_or(99);
        }
        i32::from(act().is_err()) * 98
    })?;
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok("in a namespace of its own".into()),
        98 => Err("made, and of no use".into()),
        number => Err(std::io::Error::from_raw_os_error(number).into()),
    }
}

fn mount(source: &str, target: &std::path::Path, kind: &str, flags: u64) -> Tried {
    let (source, target, kind) = (text(source), text(target), text(kind));
    call(
        libc::SYS_mount,
        [
            Arg::Text(&source),
            Arg::Text(&target),
            Arg::Text(&kind),
            Arg::N(flags as i64),
            Arg::N(0),
        ],
    )?;
    Ok("mounted".into())
}

/// Opens a device or a kernel file; to have it open is to have what it gives.
fn opened(path: &str, for_writing: bool) -> Tried {
    match OpenOptions::new().read(true).write(for_writing).open(path) {
        Ok(_) => Ok(format!("opened {path}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Refused::NotHere(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Reads a file through a ring of submissions, past the calls that would be looked at.
fn through_ring(path: &std::path::Path) -> Tried {
    setting("/proc/sys/kernel/io_uring_disabled", 0)?;
    let mut parameters = [0u8; 120];
    let ring = call(libc::SYS_io_uring_setup, [Arg::N(8), Arg::Out(&mut parameters)])?;
    let number = |at: usize| {
        let bytes = parameters
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or_default();
        u64::from(u32::from_ne_bytes(bytes))
    };
    let map = |offset: i64, length: u64| {
        let access = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        let kind = i64::from(libc::MAP_SHARED | libc::MAP_POPULATE);
        call(
            libc::SYS_mmap,
            [
                Arg::N(0),
                Arg::N(length as i64),
                Arg::N(access),
                Arg::N(kind),
                Arg::N(ring),
                Arg::N(offset),
            ],
        )
    };
    // Offsets of the submission ring begin at 40, those of the completion ring at 80 (io_uring_setup(2)).
    let submissions = map(0, 4096)? as u64;
    let completions = map(0x800_0000, 4096)? as u64;
    let entries = map(0x1000_0000, 8 * 64)? as u64;
    let path = text(path);
    let mut buffer = vec![0u8; 256];
    let submit = |words: [u64; 8]| -> Result<i32, Refused> {
        for (place, word) in words.iter().enumerate() {
            let at = entries + place as u64 * 8;
            sys::put_number_at(at, *word as u32);
            sys::put_number_at(at + 4, (*word >> 32) as u32);
        }
        sys::put_number_at(submissions + number(40 + 24), 0);
        let tail = submissions + number(40 + 4);
        sys::put_number_at(tail, sys::number_at(tail).wrapping_add(1));
        call(
            libc::SYS_io_uring_enter,
            [Arg::N(ring), Arg::N(1), Arg::N(1), Arg::N(1), Arg::N(0), Arg::N(0)],
        )?;
        let head = completions + number(80);
        let mask = sys::number_at(completions + number(80 + 8));
        let entry = completions + number(80 + 20) + u64::from(sys::number_at(head) & mask) * 16;
        let result = sys::number_at(entry + 8) as i32;
        sys::put_number_at(head, sys::number_at(head).wrapping_add(1));
        if result < 0 {
            Err(std::io::Error::from_raw_os_error(-result).into())
        } else {
            Ok(result)
        }
    };
    let here = u64::from((libc::AT_FDCWD) as u32);
    // IORING_OP_OPENAT is 18, IORING_OP_READ 22: opcode in the lowest byte, descriptor in the upper half.
    let file = submit([
        18 | here << 32,
        0,
        path.as_ptr().expose_provenance() as u64,
        0,
        0,
        0,
        0,
        0,
    ])?;
    let at = sys::address_to_write(&mut buffer);
    submit([22 | (file as u64) << 32, 0, at, 200, 0, 0, 0, 0])?;
    bait(std::hint::black_box(&buffer))
}

pub(super) fn attempts() -> Vec<Attempt> {
    let gain = |id, act| Attempt::new(id, Goal::Gain, act);
    let root = |id, act| Attempt::new(id, Goal::Gain, act).needs(Needs::Root);
    let mut all = vec![
        gain("kernel-user-namespace", |_| {
            in_new_user_namespace(0, || Ok(String::new()))
        }),
        gain("kernel-user-namespace-by-clone", |_| {
            let status = sys::in_child(|| {
                let child = call(
                    libc::SYS_clone,
                    [
                        Arg::N(NEW_USER | i64::from(libc::SIGCHLD)),
                        Arg::N(0),
                        Arg::N(0),
                        Arg::N(0),
                        Arg::N(0),
                    ],
                );
                // Both parent and child come here, and leave.
                child.err().map_or(0, |error| error.raw_os_error().unwrap_or(99))
            })?;
            match libc::WEXITSTATUS(status) {
                0 => Ok("cloned".into()),
                number => Err(std::io::Error::from_raw_os_error(number).into()),
            }
        }),
        gain("kernel-user-namespace-by-clone3", |_| {
            let status = sys::in_child(|| {
                let mut arguments = (NEW_USER as u64).to_ne_bytes().to_vec();
                arguments.resize(32, 0);
                arguments.extend(17u64.to_ne_bytes());
                arguments.resize(88, 0);
                let child = call(libc::SYS_clone3, [Arg::In(&arguments), Arg::N(88)]);
                child.err().map_or(0, |error| error.raw_os_error().unwrap_or(99))
            })?;
            match libc::WEXITSTATUS(status) {
                0 => Ok("cloned".into()),
                number => Err(std::io::Error::from_raw_os_error(number).into()),
            }
        }),
        gain("kernel-mounts-in-new-namespace", |world| {
            let place = world.project.join("deep");
            in_new_user_namespace(NEW_MOUNTS, || mount("tmpfs", &place, "tmpfs", 0))
        }),
        gain("kernel-bind-in-new-namespace", |world| {
            let place = world.project.join("deep");
            in_new_user_namespace(NEW_MOUNTS, || mount("/", &place, "none", libc::MS_BIND | libc::MS_REC))
        }),
        gain("kernel-new-mount-calls", |_| {
            in_new_user_namespace(NEW_MOUNTS, || {
                let kind = text("tmpfs");
                let made = call(libc::SYS_fsopen, [Arg::Text(&kind), Arg::N(0)])?;
                call(
                    libc::SYS_fsconfig,
                    [Arg::N(made), Arg::N(6), Arg::N(0), Arg::N(0), Arg::N(0)],
                )?;
                call(libc::SYS_fsmount, [Arg::N(made), Arg::N(0), Arg::N(0)])?;
                Ok("mounted".into())
            })
        }),
        gain("kernel-tree-cloned", |_| {
            in_new_user_namespace(NEW_MOUNTS, || {
                let path = text("/");
                let here = i64::from(libc::AT_FDCWD);
                let tree = call(
                    libc::SYS_open_tree,
                    [Arg::N(here), Arg::Text(&path), Arg::N(1 | 0x8000)],
                )?;
                let attributes = [0u8; 32];
                let empty = text("");
                call(
                    libc::SYS_mount_setattr,
                    [
                        Arg::N(tree),
                        Arg::Text(&empty),
                        Arg::N(0x1000),
                        Arg::In(&attributes),
                        Arg::N(32),
                    ],
                )?;
                Ok("cloned".into())
            })
        }),
        gain("kernel-network-namespace", |_| {
            in_new_user_namespace(0x4000_0000, || Ok(String::new()))
        }),
        root("kernel-mount", |world| {
            let place = world.project.join("deep");
            mount("tmpfs", &place, "tmpfs", 0)?;
            let path = text(&place);
            call(libc::SYS_umount2, [Arg::Text(&path), Arg::N(2)])?;
            Ok("mounted".into())
        }),
        root("kernel-change-root", |_| {
            let status = sys::in_child(|| {
                let path = text("/");
                i32::from(call(libc::SYS_chroot, [Arg::Text(&path)]).is_err())
            })?;
            if status == 0 {
                Ok("changed".into())
            } else {
                Err("refused".into())
            }
        }),
        root("kernel-namespaces-of-another", |world| {
            let status = sys::in_child(|| {
                let tried = any([world.victim, 1].map(|pid| {
                    let file = std::fs::File::open(format!("/proc/{pid}/ns/mnt"))?;
                    let file = Arg::N(std::os::fd::AsRawFd::as_raw_fd(&file).into());
                    call(libc::SYS_setns, [file, Arg::N(0)])?;
                    Ok("entered".into())
                }));
                i32::from(tried.is_err())
            })?;
            if status == 0 {
                Ok("entered".into())
            } else {
                Err("refused".into())
            }
        }),
        root("kernel-become-root", |_| {
            call(libc::SYS_setresuid, [Arg::N(0), Arg::N(0), Arg::N(0)])?;
            Ok("uid 0".into())
        }),
        root("kernel-groups", |_| {
            let groups = 0u32.to_ne_bytes();
            call(libc::SYS_setgroups, [Arg::N(1), Arg::In(&groups)])?;
            Ok("group 0".into())
        }),
        root("kernel-host-name", |_| {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
            let name = name.trim().as_bytes();
            call(libc::SYS_sethostname, [Arg::In(name), Arg::N(name.len() as i64)])?;
            Ok("set".into())
        }),
        root("kernel-device-made", |world| {
            let place = world.project.join("device");
            let path = text(&place);
            let here = i64::from(libc::AT_FDCWD);
            let mode = i64::from(libc::S_IFCHR) | 0o600;
            call(
                libc::SYS_mknodat,
                [
                    Arg::N(here),
                    Arg::Text(&path),
                    Arg::N(mode),
                    Arg::N(libc::makedev(1, 5) as i64),
                ],
            )?;
            let got = opened(&place.to_string_lossy(), false);
            std::fs::remove_file(&place)?;
            got
        }),
        root("kernel-message-log", |_| {
            let mut buffer = [0u8; 64];
            call(libc::SYS_syslog, [Arg::N(3), Arg::Out(&mut buffer), Arg::N(64)])?;
            Ok("read".into())
        }),
        root("kernel-message-device", |_| opened("/dev/kmsg", false)),
        root("kernel-memory-device", |_| {
            any([opened("/dev/mem", false), opened("/proc/kcore", false)])
        }),
        root("kernel-loop-device", |_| {
            any([opened("/dev/loop-control", true), opened("/dev/loop0", true)])
        }),
        root("kernel-tunnel-device", |_| opened("/dev/net/tun", true)),
        root("kernel-virtual-machine", |_| opened("/dev/kvm", true)),
        root("kernel-settings", |_| opened("/proc/sys/kernel/core_pattern", true)),
        root("kernel-trigger", |_| opened("/proc/sysrq-trigger", true)),
        root("kernel-system-files", |_| {
            opened("/sys/kernel/mm/transparent_hugepage/enabled", true)
        }),
        root("kernel-groups-of-processes", |_| {
            let folder = "/sys/fs/cgroup/bailiwick-probe-made";
            std::fs::create_dir(folder)?;
            std::fs::remove_dir(folder)?;
            Ok("made".into())
        }),
        root("kernel-ports", |_| {
            call(IOPL, [Arg::N(3)])?;
            Ok("raised".into())
        }),
        root("kernel-accounting", |_| {
            call(libc::SYS_acct, [Arg::N(0)])?;
            Ok("turned off".into())
        }),
        root("kernel-watch-all-files", |_| {
            call(libc::SYS_fanotify_init, [Arg::N(4), Arg::N(0)])?;
            Ok("watching".into())
        }),
        root("kernel-clock", |_| {
            // Sets nothing: an adjustment without a mode only reads, one of zero is asked for.
            let mut timex = vec![0u8; 208];
            sys::put(&mut timex, 0, &0x8001u32.to_ne_bytes());
            call(libc::SYS_adjtimex, [Arg::Out(&mut timex)])?;
            Ok("adjusted".into())
        }),
        gain("kernel-fuse", |_| opened("/dev/fuse", true)).needs(Needs::Root),
        Attempt::new("kernel-ring-reads-hidden", Goal::Learn, |world| {
            through_ring(&world.project.join(".env"))
        }),
        Attempt::new("kernel-ring-reads-outside", Goal::Learn, |world| {
            through_ring(&world.beside.join("secret"))
        }),
        gain("kernel-events", |_| {
            setting("/proc/sys/kernel/perf_event_paranoid", 2)?;
            let mut event = vec![0u8; 128];
            // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, of this process, without the kernel.
            sys::put(&mut event, 0, &[1, 0, 0, 0, 128, 0, 0, 0]);
            sys::put(&mut event, 40, &0b110_0001u64.to_ne_bytes());
            call(
                libc::SYS_perf_event_open,
                [Arg::In(&event), Arg::N(0), Arg::N(-1), Arg::N(-1), Arg::N(0)],
            )?;
            Ok("counting".into())
        }),
        gain("kernel-page-faults", |_| {
            // The one flag leaves faults of the kernel out, which ordinary users may have.
            call(libc::SYS_userfaultfd, [Arg::N(1)])?;
            Ok("handling".into())
        }),
        gain("kernel-page-faults-device", |_| opened("/dev/userfaultfd", true)).needs(Needs::Root),
        gain("kernel-keys-session", |_| {
            call(libc::SYS_keyctl, [Arg::N(0), Arg::N(-3), Arg::N(1)])?;
            Ok("has a session".into())
        }),
        gain("kernel-keys-added", |_| {
            let (kind, name) = (text("user"), text("bailiwick-probe"));
            let key = call(
                libc::SYS_add_key,
                [Arg::Text(&kind), Arg::Text(&name), Arg::In(b"x"), Arg::N(1), Arg::N(-4)],
            )?;
            call(libc::SYS_keyctl, [Arg::N(9), Arg::N(key), Arg::N(-4)])?;
            Ok("kept".into())
        }),
        gain("kernel-keys-requested", |_| {
            let (kind, name) = (text("keyring"), text("_ses"));
            match call(
                libc::SYS_request_key,
                [Arg::Text(&kind), Arg::Text(&name), Arg::N(0), Arg::N(0)],
            ) {
                Ok(_) => Ok("found".into()),
                // The search was made.
                Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => Ok("searched".into()),
                Err(error) => Err(error.into()),
            }
        }),
        gain("kernel-programs", |_| {
            setting("/proc/sys/kernel/unprivileged_bpf_disabled", 0)?;
            let mut map = vec![0u8; 72];
            // BPF_MAP_TYPE_ARRAY, keys of 4, values of 8, one entry.
            sys::put(&mut map, 0, &[2, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0]);
            call(libc::SYS_bpf, [Arg::N(0), Arg::In(&map), Arg::N(72)])?;
            Ok("mapped".into())
        }),
        gain("kernel-personality", |_| {
            call(libc::SYS_personality, [Arg::N(0x0040_0000)])?;
            Ok("readable is runnable".into())
        }),
        gain("kernel-core-dump", |world| {
            let limit = [u64::MAX.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat();
            let before = std::fs::read_dir(&world.project)?.count();
            let status = sys::in_child(|| {
                let _ = call(
                    libc::SYS_prlimit64,
                    [Arg::N(0), Arg::N(libc::RLIMIT_CORE.into()), Arg::In(&limit), Arg::N(0)],
                );
                let _ = call(libc::SYS_prctl, [Arg::N(libc::PR_SET_DUMPABLE.into()), Arg::N(1)]);
                let _ = call(
                    libc::SYS_kill,
                    [Arg::N(std::process::id().into()), Arg::N(libc::SIGABRT.into())],
                );
                0
            })?;
            let after = std::fs::read_dir(&world.project)?;
            let left: Vec<_> = after.flatten().map(|entry| entry.path()).collect();
            for core in left.iter().filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("core"))
            }) {
                std::fs::remove_file(core)?;
            }
            if libc::WCOREDUMP(status) || left.len() > before {
                Ok("dumped".into())
            } else {
                Err("no core".into())
            }
        })
        .needs(Needs::Root),
        gain("kernel-other-limits-raised", |_| {
            let limit = [u64::MAX.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat();
            call(
                libc::SYS_prlimit64,
                [Arg::N(0), Arg::N(libc::RLIMIT_CORE.into()), Arg::In(&limit), Arg::N(0)],
            )?;
            Ok("raised".into())
        })
        .needs(Needs::Root),
        gain("kernel-handle", |world| {
            let mut handle = [0u8; 136];
            sys::put(&mut handle, 0, &128u32.to_ne_bytes());
            let mut mount = [0u8; 4];
            let path = text(&world.project);
            let here = i64::from(libc::AT_FDCWD);
            call(
                libc::SYS_name_to_handle_at,
                [
                    Arg::N(here),
                    Arg::Text(&path),
                    Arg::Out(&mut handle),
                    Arg::Out(&mut mount),
                    Arg::N(0),
                ],
            )?;
            let folder = std::fs::File::open(&world.project)?;
            let folder = Arg::N(std::os::fd::AsRawFd::as_raw_fd(&folder).into());
            call(libc::SYS_open_by_handle_at, [folder, Arg::Out(&mut handle), Arg::N(0)])?;
            Ok("opened".into())
        })
        .needs(Needs::Root),
        gain("kernel-swap-and-modules", |_| {
            let path = text("/nonexistent");
            let empty = text("");
            any([
                call(libc::SYS_swapoff, [Arg::Text(&path)]),
                call(libc::SYS_delete_module, [Arg::Text(&path), Arg::N(0)]),
                call(libc::SYS_finit_module, [Arg::N(-1), Arg::Text(&empty), Arg::N(0)]),
            ]
            .map(|done| match done {
                // The caller was found worthy; the argument was not.
                Err(error)
                    if [libc::ENOENT, libc::EINVAL, libc::EBADF].contains(&error.raw_os_error().unwrap_or(0)) =>
                {
                    Ok("let in".into())
                }
                Err(error) => Err(error.into()),
                Ok(_) => Ok("done".into()),
            }))
        })
        .needs(Needs::Root),
        Attempt::new("kernel-addresses", Goal::Gain, |_| {
            let text = std::fs::read_to_string("/proc/kallsyms")?;
            let first = text.split_whitespace().next().unwrap_or("0");
            if first.chars().all(|digit| digit == '0') {
                Err("only zeros".into())
            } else {
                Ok("read".into())
            }
        })
        .needs(Needs::Root),
        Attempt::new("kernel-loginuid", Goal::Gain, |_| write("/proc/self/loginuid", "0")).needs(Needs::Root),
        Attempt::new("kernel-own-memory-file-of-parent", Goal::Learn, |world| {
            let parent = std::os::unix::process::parent_id();
            any([
                read(format!("/proc/{parent}/environ")),
                read(format!("/proc/{}/environ", world.victim)),
            ])
        }),
    ];
    all.extend(of_this_machine());
    all
}

#[cfg(target_arch = "x86_64")]
const IOPL: libc::c_long = libc::SYS_iopl;
#[cfg(not(target_arch = "x86_64"))]
const IOPL: libc::c_long = -1;

/// What only one kind of machine has.
#[cfg(target_arch = "x86_64")]
fn of_this_machine() -> Vec<Attempt> {
    fn old_open(path: &std::path::Path) -> Tried {
        let page = sys::low_page(text(path).as_bytes_with_nul())?;
        // open is 5, read is 3 there.
        let file = sys::call_32(5, [page, 0, 0]);
        if file < 0 {
            return Err(std::io::Error::from_raw_os_error(-file).into());
        }
        let got = sys::call_32(3, [file as u32, page + 2048, 256]);
        if got < 0 {
            return Err(std::io::Error::from_raw_os_error(-got).into());
        }
        bait(&sys::low_half(page, 256))
    }
    fn of_x32(world: &World) -> Tried {
        let path = text(world.beside.join("secret"));
        let here = i64::from(libc::AT_FDCWD);
        let file = call(
            0x4000_0000 | libc::SYS_openat,
            [Arg::N(here), Arg::Text(&path), Arg::N(0)],
        )?;
        read(format!("/proc/self/fd/{file}"))
    }
    vec![
        Attempt::new("kernel-32-bit-reads-hidden", Goal::Learn, |world| {
            old_open(&world.project.join(".env"))
        }),
        Attempt::new("kernel-32-bit-reads-outside", Goal::Learn, |world| {
            old_open(&world.beside.join("secret"))
        }),
        Attempt::new("kernel-32-bit-call", Goal::Gain, |_| {
            // getpid is 20 there.
            let pid = sys::call_32(20, [0, 0, 0]);
            if pid > 0 {
                Ok(format!("pid {pid}"))
            } else {
                Err(std::io::Error::from_raw_os_error(-pid).into())
            }
        }),
        Attempt::new("kernel-x32-call", Goal::Learn, of_x32),
        Attempt::new("kernel-segments", Goal::Gain, |_| {
            let mut table = [0u8; 64];
            call(libc::SYS_modify_ldt, [Arg::N(0), Arg::Out(&mut table), Arg::N(64)])?;
            Ok("read".into())
        }),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn of_this_machine() -> Vec<Attempt> {
    Vec::new()
}
