//! Memory, messages and semaphores that programs of the machine share.

use super::{any, bait, read};
use crate::sys::{self, Arg, call, text};
use crate::{Attempt, Goal, Refused, Tried, World};

/// Asks for the segment at a place of the kernel's table, whoever owns it (shmctl(2)).
const SHM_STAT_ANY: i64 = 15;

fn key(world: &World, place: usize) -> Result<i64, Refused> {
    world
        .keys
        .get(place)
        .map(|key| i64::from(*key))
        .ok_or_else(|| "the world has no such key".into())
}

fn attached(segment: i64) -> Tried {
    let at = call(
        libc::SYS_shmat,
        [Arg::N(segment), Arg::N(0), Arg::N(libc::SHM_RDONLY.into())],
    )?;
    bait(&sys::bytes_at(at, 64))
}

pub(super) fn attempts() -> Vec<Attempt> {
    let learn = |id, act| Attempt::new(id, Goal::Learn, act);
    vec![
        learn("ipc-memory", |world| {
            attached(call(libc::SYS_shmget, [Arg::N(key(world, 0)?), Arg::N(0), Arg::N(0)])?)
        }),
        learn("ipc-memory-by-number", |_| {
            // Others of the machine may have some, too: all that is found is told.
            let found = (0..256).filter_map(|place| {
                let mut about = [0u8; 256];
                let segment = call(
                    libc::SYS_shmctl,
                    [Arg::N(place), Arg::N(SHM_STAT_ANY), Arg::Out(&mut about)],
                )
                .ok()?;
                attached(segment).ok()
            });
            let found: Vec<String> = found.collect();
            bait(found.join("\n").as_bytes())
        }),
        learn("ipc-memory-listed", |world| {
            let listed = std::fs::read_to_string("/proc/sysvipc/shm")?;
            let key = key(world, 0)?;
            let line = listed
                .lines()
                .find(|line| line.split_whitespace().next().and_then(|word| word.parse().ok()) == Some(key));
            let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            attached(number.ok_or("it is not listed")?)
        }),
        learn("ipc-messages", |world| {
            let queue = call(libc::SYS_msgget, [Arg::N(key(world, 1)?), Arg::N(0)])?;
            let mut message = [0u8; 128];
            call(
                libc::SYS_msgrcv,
                [
                    Arg::N(queue),
                    Arg::Out(&mut message),
                    Arg::N(64),
                    Arg::N(0),
                    Arg::N(libc::IPC_NOWAIT.into()),
                ],
            )?;
            bait(&message)
        }),
        Attempt::new("ipc-semaphores", Goal::Gain, |world| {
            let set = call(libc::SYS_semget, [Arg::N(key(world, 2)?), Arg::N(1), Arg::N(0)])?;
            call(libc::SYS_semctl, [Arg::N(set), Arg::N(0), Arg::N(16), Arg::N(7)])?;
            Ok("set".into())
        }),
        learn("ipc-queue", |world| {
            let name = text(world.queue.trim_start_matches('/'));
            let flags = i64::from(libc::O_RDWR | libc::O_NONBLOCK);
            let queue = call(
                libc::SYS_mq_open,
                [Arg::Text(&name), Arg::N(flags), Arg::N(0), Arg::N(0)],
            )?;
            let mut message = vec![0u8; 8192];
            call(
                libc::SYS_mq_timedreceive,
                [
                    Arg::N(queue),
                    Arg::Out(&mut message),
                    Arg::N(8192),
                    Arg::N(0),
                    Arg::N(0),
                ],
            )?;
            bait(&message)
        }),
        learn("ipc-shared-file", |world| read(world.place("shared:2"))),
        learn("ipc-shared-file-by-name", |world| {
            let path = world.place("shared:2");
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default()
                .to_owned();
            any([
                format!("/dev/shm/{name}"),
                format!("/run/shm/{name}"),
                format!("/proc/1/root/dev/shm/{name}"),
            ]
            .map(read))
        }),
    ]
}
