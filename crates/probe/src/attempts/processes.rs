//! Other processes: reading them, steering them, ending them; and staying behind.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::{act, any, bait, read, write};
use crate::sys::{self, Arg, call};
use crate::{Attempt, Goal, Needs, Tried, World};

/// Every process that is seen but this one, the victim first.
fn others(world: &World) -> Vec<i32> {
    let own = std::process::id();
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pids = pids.filter(|pid| u32::try_from(*pid) != Ok(own));
    std::iter::once(world.victim).chain(pids).take(400).collect()
}

fn read_memory(world: &World) -> Tried {
    let mut file = OpenOptions::new()
        .read(true)
        .open(format!("/proc/{}/mem", world.victim))?;
    file.seek(SeekFrom::Start(world.address))?;
    let mut buffer = [0u8; 64];
    std::io::Read::read(&mut file, &mut buffer)?;
    bait(&buffer)
}

/// Two structures of (address, length): one here, one there.
fn vectors(here: u64, length: u64, there: u64) -> (Vec<u8>, Vec<u8>) {
    let pair = |address: u64| [address.to_ne_bytes(), length.to_ne_bytes()].concat();
    (pair(here), pair(there))
}

fn ptrace(request: i64, pid: i32, address: u64, data: &mut [u8]) -> std::io::Result<i64> {
    let words = [
        Arg::N(request),
        Arg::N(pid.into()),
        Arg::N(address as i64),
        Arg::Out(data),
    ];
    call(libc::SYS_ptrace, words)
}

/// Reads the victim's memory word by word, attached by this request.
fn traced(world: &World, how: i64) -> Tried {
    call(
        libc::SYS_ptrace,
        [Arg::N(how), Arg::N(world.victim.into()), Arg::N(0), Arg::N(0)],
    )?;
    if how == 0x4206 {
        call(
            libc::SYS_ptrace,
            [Arg::N(0x4207), Arg::N(world.victim.into()), Arg::N(0), Arg::N(0)],
        )?;
    }
    let mut status = [0u8; 4];
    call(
        libc::SYS_wait4,
        [
            Arg::N(world.victim.into()),
            Arg::Out(&mut status),
            Arg::N(0x4000_0000),
            Arg::N(0),
        ],
    )?;
    let mut seen = Vec::new();
    for step in 0..8 {
        let mut word = [0u8; 8];
        ptrace(1, world.victim, world.address + step * 8, &mut word)?;
        seen.extend(word);
    }
    call(
        libc::SYS_ptrace,
        [Arg::N(17), Arg::N(world.victim.into()), Arg::N(0), Arg::N(0)],
    )?;
    bait(&seen)
}

fn signal_information() -> [u8; 128] {
    let mut information = [0u8; 128];
    // si_signo 0, si_code SI_QUEUE.
    if let Some(code) = information.get_mut(8..12) {
        code.copy_from_slice(&(-1i32).to_ne_bytes());
    }
    information
}

const TERM: i64 = libc::SIGTERM as i64;

pub(super) fn attempts() -> Vec<Attempt> {
    let learn = |id, act| Attempt::new(id, Goal::Learn, act);
    let disturb = |id, act| Attempt::new(id, Goal::Disturb, act);
    vec![
        learn("processes-environment", |world| {
            any(others(world)
                .into_iter()
                .map(|pid| read(format!("/proc/{pid}/environ"))))
        }),
        learn("processes-arguments", |world| {
            any(others(world)
                .into_iter()
                .map(|pid| read(format!("/proc/{pid}/cmdline"))))
        }),
        learn("processes-listed", |_| super::learn("ps axwwe")),
        learn("processes-memory-file", read_memory),
        learn("processes-memory-call", |world| {
            let mut buffer = [0u8; 64];
            let (here, there) = vectors(sys::address_to_write(&mut buffer), 64, world.address);
            let words = [
                Arg::N(world.victim.into()),
                Arg::In(&here),
                Arg::N(1),
                Arg::In(&there),
                Arg::N(1),
                Arg::N(0),
            ];
            call(libc::SYS_process_vm_readv, words)?;
            bait(std::hint::black_box(&buffer))
        }),
        learn("processes-root", |world| {
            let inside = world.beside.strip_prefix("/").unwrap_or(&world.beside);
            any(others(world)
                .into_iter()
                .map(|pid| read(format!("/proc/{pid}/root/{}/secret", inside.display()))))
        }),
        learn("processes-folder", |world| {
            any(others(world)
                .into_iter()
                .map(|pid| read(format!("/proc/{pid}/cwd/secret"))))
        }),
        learn("processes-descriptors", |world| {
            any(others(world)
                .into_iter()
                .flat_map(|pid| (0..8).map(move |number| read(format!("/proc/{pid}/fd/{number}")))))
        }),
        learn("processes-threads", |world| {
            any(others(world)
                .into_iter()
                .map(|pid| read(format!("/proc/{pid}/task/{pid}/environ"))))
        }),
        learn("processes-mapped-files", |world| {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", world.victim))?;
            // A map is what makes reading memory possible: it must name the victim's stack.
            if maps.contains("[stack]") {
                read_memory(world)
            } else {
                Err("nothing is mapped".into())
            }
        }),
        learn("processes-traced", |world| traced(world, 16)),
        learn("processes-seized", |world| traced(world, 0x4206)),
        learn("processes-first", |world| {
            let inside = world.beside.strip_prefix("/").unwrap_or(&world.beside);
            let of_root = |pid: i32| read(format!("/proc/{pid}/root/{}/secret", inside.display()));
            any([of_root(1), of_root(2), read("/proc/1/environ"), of_root(world.victim)])
        }),
        disturb("processes-memory-written", |world| {
            let file = OpenOptions::new()
                .write(true)
                .open(format!("/proc/{}/mem", world.victim))?;
            std::os::unix::fs::FileExt::write_at(&file, b"not-as-it", world.lever)?;
            Ok("written".into())
        }),
        disturb("processes-memory-written-by-call", |world| {
            let (here, there) = vectors(sys::address(b"not-as-it"), 9, world.lever);
            let words = [
                Arg::N(world.victim.into()),
                Arg::In(&here),
                Arg::N(1),
                Arg::In(&there),
                Arg::N(1),
                Arg::N(0),
            ];
            call(libc::SYS_process_vm_writev, words)?;
            Ok("written".into())
        }),
        disturb("signals-kill", |world| {
            signal(libc::SYS_kill, [Arg::N(world.victim.into()), Arg::N(TERM)])
        }),
        disturb("signals-stop", |world| {
            signal(
                libc::SYS_kill,
                [Arg::N(world.victim.into()), Arg::N(libc::SIGSTOP.into())],
            )
        }),
        disturb("signals-tkill", |world| {
            signal(libc::SYS_tkill, [Arg::N(world.victim.into()), Arg::N(TERM)])
        }),
        disturb("signals-tgkill", |world| {
            let victim = i64::from(world.victim);
            signal(libc::SYS_tgkill, [Arg::N(victim), Arg::N(victim), Arg::N(TERM)])
        }),
        disturb("signals-group", |world| {
            signal(libc::SYS_kill, [Arg::N(-i64::from(world.victim)), Arg::N(TERM)])
        }),
        disturb("signals-queued", |world| {
            let information = signal_information();
            signal(
                libc::SYS_rt_sigqueueinfo,
                [Arg::N(world.victim.into()), Arg::N(TERM), Arg::In(&information)],
            )
        }),
        disturb("signals-queued-to-thread", |world| {
            let (information, victim) = (signal_information(), i64::from(world.victim));
            let words = [Arg::N(victim), Arg::N(victim), Arg::N(TERM), Arg::In(&information)];
            signal(libc::SYS_rt_tgsigqueueinfo, words)
        }),
        disturb("signals-by-pidfd", |world| {
            let handle = call(libc::SYS_pidfd_open, [Arg::N(world.victim.into()), Arg::N(0)])?;
            signal(
                libc::SYS_pidfd_send_signal,
                [Arg::N(handle), Arg::N(TERM), Arg::N(0), Arg::N(0)],
            )
        }),
        disturb("signals-by-folder-of-proc", |world| {
            let folder = std::fs::File::open(format!("/proc/{}", world.victim))?;
            let handle = Arg::N(std::os::fd::AsRawFd::as_raw_fd(&folder).into());
            signal(
                libc::SYS_pidfd_send_signal,
                [handle, Arg::N(TERM), Arg::N(0), Arg::N(0)],
            )
        }),
        disturb("signals-by-owner-of-a-pipe", |world| {
            // F_SETOWN, F_SETSIG, O_ASYNC: the kernel sends what it was told, when there is something to read.
            let (reader, mut writer) = std::io::pipe()?;
            let reader = i64::from(std::os::fd::AsRawFd::as_raw_fd(&reader));
            call(
                libc::SYS_fcntl,
                [Arg::N(reader), Arg::N(8), Arg::N(world.victim.into())],
            )?;
            call(libc::SYS_fcntl, [Arg::N(reader), Arg::N(10), Arg::N(TERM)])?;
            call(
                libc::SYS_fcntl,
                [Arg::N(reader), Arg::N(4), Arg::N(libc::O_ASYNC.into())],
            )?;
            std::io::Write::write_all(&mut writer, b"x")?;
            std::thread::sleep(std::time::Duration::from_millis(50));
            Ok("sent".into())
        }),
        disturb("signals-all", |_| {
            // The sender is left out by the kernel.
            signal(libc::SYS_kill, [Arg::N(-1), Arg::N(TERM)])
        })
        .needs(Needs::NobodyElse),
        disturb("signals-shell", |world| act(&format!("kill {}", world.victim))),
        disturb("limits-of-others", |world| {
            let limit = [1u64.to_ne_bytes(), 1u64.to_ne_bytes()].concat();
            let words = [
                Arg::N(world.victim.into()),
                Arg::N(libc::RLIMIT_NOFILE.into()),
                Arg::In(&limit),
                Arg::N(0),
            ];
            call(libc::SYS_prlimit64, words)?;
            Ok("set".into())
        }),
        disturb("limits-priority", |world| {
            call(
                libc::SYS_setpriority,
                [Arg::N(0), Arg::N(world.victim.into()), Arg::N(19)],
            )?;
            Ok("set".into())
        }),
        disturb("limits-priority-of-user", |_| {
            let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?);
            call(libc::SYS_setpriority, [Arg::N(2), Arg::N(user.into()), Arg::N(18)])?;
            Ok("set".into())
        })
        .needs(Needs::NobodyElse),
        disturb("limits-processors", |world| {
            let mask = 1u64.to_ne_bytes();
            call(
                libc::SYS_sched_setaffinity,
                [Arg::N(world.victim.into()), Arg::N(8), Arg::In(&mask)],
            )?;
            Ok("set".into())
        }),
        disturb("limits-scheduler", |world| {
            let parameter = 0i32.to_ne_bytes();
            let words = [
                Arg::N(world.victim.into()),
                Arg::N(libc::SCHED_BATCH.into()),
                Arg::In(&parameter),
            ];
            call(libc::SYS_sched_setscheduler, words)?;
            Ok("set".into())
        }),
        disturb("limits-disk", |world| {
            call(
                libc::SYS_ioprio_set,
                [Arg::N(1), Arg::N(world.victim.into()), Arg::N(3 << 13)],
            )?;
            Ok("set".into())
        }),
        disturb("limits-first-to-end", |world| {
            write(format!("/proc/{}/oom_score_adj", world.victim), "900")
        }),
        disturb("limits-what-is-dumped", |world| {
            write(format!("/proc/{}/coredump_filter", world.victim), "0x7f")
        }),
    ]
}

fn signal<const N: usize>(number: libc::c_long, words: [Arg<'_>; N]) -> Tried {
    call(number, words)?;
    Ok("sent".into())
}

/// A process that stays: this program, told to wait, with the word among its arguments.
fn linger(world: &World, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Tried {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    command.args(["linger", &world.word]);
    prepare(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    Ok(format!("started {}", child.id()))
}

pub(super) fn left_behind() -> Vec<Attempt> {
    let stay = |id, act| Attempt::new(id, Goal::Outlive, act);
    fn own() -> Result<String, crate::Refused> {
        Ok(super::quoted(std::env::current_exe()?))
    }
    vec![
        stay("left-child", |world| linger(world, |command| command)),
        stay("left-group-of-its-own", |world| {
            linger(world, |command| command.process_group(0))
        }),
        stay("left-double-fork", |world| {
            sys::in_child(|| i32::from(linger(world, |command| command.process_group(0)).is_err()))?;
            Ok("forked twice".into())
        }),
        stay("left-session-of-its-own", |world| {
            sys::in_child(|| {
                let _ = call(libc::SYS_setsid, []);
                i32::from(linger(world, |command| command).is_err())
            })?;
            Ok("in a session of its own".into())
        }),
        stay("left-daemon", |world| {
            sys::in_child(|| {
                let _ = call(libc::SYS_setsid, []);
                for number in 0..64 {
                    let _ = call(libc::SYS_close, [Arg::N(number)]);
                }
                let _ = std::env::set_current_dir("/");
                i32::from(linger(world, |command| command.process_group(0)).is_err())
            })?;
            Ok("a daemon".into())
        }),
        stay("left-nohup", |world| {
            act(&format!("nohup {} linger {} >/dev/null 2>&1 &", own()?, world.word))
        }),
        stay("left-setsid", |world| {
            act(&format!("setsid -f {} linger {} >/dev/null 2>&1", own()?, world.word))
        }),
        stay("left-ignoring-signals", |world| {
            act(&format!(
                "(trap '' HUP TERM INT; exec setsid {} linger {}) >/dev/null 2>&1 &",
                own()?,
                world.word
            ))
        }),
        stay("left-stopped", |world| {
            act(&format!(
                "trap '' HUP; {} linger {} >/dev/null 2>&1 & sleep 0.1; kill -STOP $!",
                own()?,
                world.word
            ))
        }),
        stay("left-reaper", |world| {
            call(libc::SYS_prctl, [Arg::N(36), Arg::N(1)])?;
            linger(world, |command| command.process_group(0))
        }),
    ]
}
