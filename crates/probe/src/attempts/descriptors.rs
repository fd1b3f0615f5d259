//! What the caller had open when the run began: a file (7), a folder (8) and a connection (9).

use super::{any, bait};
use crate::sys::{Arg, call, text};
use crate::{Attempt, Goal, Refused, Tried};

fn read_descriptor(number: i64) -> Tried {
    let mut buffer = [0u8; 4096];
    let got = call(
        libc::SYS_pread64,
        [Arg::N(number), Arg::Out(&mut buffer), Arg::N(4096), Arg::N(0)],
    )?;
    bait(buffer.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default())
}

fn through_folder(folder: i64, path: &str) -> Tried {
    let opened = call(libc::SYS_openat, [Arg::N(folder), Arg::Text(&text(path)), Arg::N(0)])?;
    read_descriptor(opened)
}

pub(super) fn attempts() -> Vec<Attempt> {
    let learn = |id, act| Attempt::new(id, Goal::Learn, act);
    vec![
        learn("descriptors-file", |_| any((3..64).map(read_descriptor))),
        learn("descriptors-file-reopened", |_| {
            any((3..64).map(|number| super::read(format!("/proc/self/fd/{number}"))))
        }),
        learn("descriptors-folder", |_| {
            any((3..64).map(|number| through_folder(number, "secret")))
        }),
        learn("descriptors-folder-entered", |_| {
            any((3..64).map(|number| {
                call(libc::SYS_fchdir, [Arg::N(number)])?;
                super::read("secret")
            }))
        }),
        Attempt::new("descriptors-connection", Goal::Tell, |world| {
            any((3..64).map(|number| {
                let bytes = world.word.as_bytes();
                call(
                    libc::SYS_write,
                    [Arg::N(number), Arg::In(bytes), Arg::N(bytes.len() as i64)],
                )?;
                Ok("written".into())
            }))
        }),
        learn("descriptors-of-others", |world| {
            let others = std::fs::read_dir("/proc")?.flatten().filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                (u32::try_from(pid) != Ok(std::process::id())).then_some(pid)
            });
            let others: Vec<i32> = std::iter::once(world.victim).chain(others).collect();
            any(others
                .iter()
                .flat_map(|pid| (0..12).map(move |number| super::read(format!("/proc/{pid}/fd/{number}")))))
        }),
        learn("descriptors-taken-by-pidfd", |world| {
            let handle = call(libc::SYS_pidfd_open, [Arg::N(world.victim.into()), Arg::N(0)])?;
            any((0..12).map(|number| {
                let taken = call(libc::SYS_pidfd_getfd, [Arg::N(handle), Arg::N(number), Arg::N(0)])?;
                read_descriptor(taken)
            }))
        }),
        learn("descriptors-current-folder", |world| {
            let name = world.beside.file_name().and_then(|name| name.to_str()).unwrap_or("");
            any([1, 2, 3]
                .map(|up| through_folder(libc::AT_FDCWD.into(), &format!("{}{name}/secret", "../".repeat(up)))))
        }),
        learn("descriptors-current-folder-of-parent", |world| {
            let name = world.beside.file_name().and_then(|name| name.to_str()).unwrap_or("");
            let parent = std::os::unix::process::parent_id();
            any([parent, 1].map(|pid| super::read(format!("/proc/{pid}/cwd/../{name}/secret"))))
        }),
        learn("descriptors-environment", |_| {
            let all: Vec<String> = std::env::vars_os()
                .map(|(_, value)| value.to_string_lossy().into_owned())
                .collect();
            bait(all.join("\n").as_bytes())
        }),
        learn("descriptors-environment-of-the-shell", |_| super::learn("env; set")),
        learn("descriptors-environment-of-ancestors", |_| {
            let mut pid = std::os::unix::process::parent_id();
            let mut seen = Vec::new();
            for _ in 0..16 {
                seen.push(super::read(format!("/proc/{pid}/environ")));
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let parent = status
                    .lines()
                    .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
                match parent {
                    Some(parent) if parent > 0 => pid = parent,
                    _ => break,
                }
            }
            any(seen).map_err(|cause| match cause {
                Refused::Stopped(cause) | Refused::NotHere(cause) => Refused::Stopped(cause),
            })
        }),
    ]
}
