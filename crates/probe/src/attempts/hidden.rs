//! A file that may not be read, in a folder that may: by every road to its content.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use super::{any, bait, learn, quoted, read};
use crate::sys::{self, Arg, call, text};
use crate::{Attempt, Goal, Refused, World};

fn hidden(world: &World) -> std::path::PathBuf {
    world.project.join(".env")
}

fn output(read: impl FnOnce(&File) -> Result<(), Refused>, world: &World) -> crate::Tried {
    let copy = world.project.join("copied");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&copy)?;
    let done = read(&file).and_then(|()| super::read(&copy));
    std::fs::remove_file(&copy)?;
    done
}

pub(super) fn attempts() -> Vec<Attempt> {
    let learning = |id, act| Attempt::new(id, Goal::Learn, act);
    let line = |id: &str, act| Attempt::new(id, Goal::Learn, act);
    vec![
        learning("hidden-open", |world| read(hidden(world))),
        learning("hidden-deep", |world| read(world.project.join("deep/er/.env"))),
        learning("hidden-other-pattern", |world| {
            read(world.project.join("deep/.env.production"))
        }),
        learning("hidden-dots", |world| read(world.project.join("deep/.././//.env"))),
        learning("hidden-own-root", |world| {
            any(["/proc/self/root", "/proc/self/task/../root"].map(|root| {
                let inside = hidden(world);
                read(std::path::Path::new(root).join(inside.strip_prefix("/").unwrap_or(&inside)))
            }))
        }),
        learning("hidden-own-folder", |_| {
            any(["/proc/self/cwd/.env", "/proc/thread-self/cwd/.env"].map(read))
        }),
        learning("hidden-path-only-then-read", |world| {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH)
                .open(hidden(world))?;
            read(format!("/proc/self/fd/{}", file.as_raw_fd()))
        }),
        learning("hidden-by-handle", |world| {
            let mut handle = [0u8; 136];
            sys::put(&mut handle, 0, &128u32.to_ne_bytes());
            let mut mount = [0u8; 4];
            let path = text(hidden(world));
            let here = i64::from(libc::AT_FDCWD);
            let at = [
                Arg::N(here),
                Arg::Text(&path),
                Arg::Out(&mut handle),
                Arg::Out(&mut mount),
                Arg::N(0),
            ];
            call(libc::SYS_name_to_handle_at, at)?;
            let folder = File::open(&world.project)?;
            let opened = [Arg::N(folder.as_raw_fd().into()), Arg::Out(&mut handle), Arg::N(0)];
            let file = call(libc::SYS_open_by_handle_at, opened)?;
            read(format!("/proc/self/fd/{file}"))
        })
        .needs(crate::Needs::Root),
        learning("hidden-openat2", |world| {
            let how = [0u8; 24];
            let path = text(hidden(world));
            let here = i64::from(libc::AT_FDCWD);
            let file = call(
                libc::SYS_openat2,
                [Arg::N(here), Arg::Text(&path), Arg::In(&how), Arg::N(24)],
            )?;
            read(format!("/proc/self/fd/{file}"))
        }),
        learning("hidden-mapped", |world| {
            let file = File::open(hidden(world))?;
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
            bait(&sys::mapped(file.as_raw_fd(), length)?)
        }),
        learning("hidden-sendfile", |world| {
            let file = File::open(hidden(world))?;
            let send = |to: &File| {
                let arguments = [
                    Arg::N(to.as_raw_fd().into()),
                    Arg::N(file.as_raw_fd().into()),
                    Arg::N(0),
                    Arg::N(4096),
                ];
                call(libc::SYS_sendfile, arguments).map(drop).map_err(Refused::from)
            };
            output(send, world)
        }),
        learning("hidden-copy-range", |world| {
            let file = File::open(hidden(world))?;
            let copy = |to: &File| {
                let (from, to) = (Arg::N(file.as_raw_fd().into()), Arg::N(to.as_raw_fd().into()));
                call(
                    libc::SYS_copy_file_range,
                    [from, Arg::N(0), to, Arg::N(0), Arg::N(4096), Arg::N(0)],
                )
                .map(drop)
                .map_err(Refused::from)
            };
            output(copy, world)
        }),
        learning("hidden-hard-link", |world| {
            let name = world.project.join("linked");
            std::fs::hard_link(hidden(world), &name)?;
            let got = read(&name);
            std::fs::remove_file(&name)?;
            got
        }),
        learning("hidden-renamed", |world| {
            let name = world.project.join("renamed");
            std::fs::rename(hidden(world), &name)?;
            let got = read(&name);
            std::fs::rename(&name, hidden(world))?;
            got
        }),
        learning("hidden-folder-renamed", |world| {
            let (from, to) = (world.project.join("deep"), world.project.join("moved"));
            std::fs::rename(&from, &to)?;
            let got = any([read(to.join("er/.env")), read(to.join(".env.production"))]);
            std::fs::rename(&to, &from)?;
            got
        }),
        learning("hidden-exchanged", |world| {
            let (a, b) = (text(hidden(world)), text(world.project.join("plain.txt")));
            let here = i64::from(libc::AT_FDCWD);
            let swap = || {
                call(
                    libc::SYS_renameat2,
                    [Arg::N(here), Arg::Text(&a), Arg::N(here), Arg::Text(&b), Arg::N(2)],
                )
            };
            swap()?;
            let got = read(world.project.join("plain.txt"));
            swap()?;
            got
        }),
        learning("hidden-made-readable", |world| {
            std::fs::set_permissions(hidden(world), std::fs::Permissions::from_mode(0o644))?;
            read(hidden(world))
        }),
        learning("hidden-unmounted", |world| {
            let path = text(hidden(world));
            // Outside there is no mask to take away: reading is all that is left to do.
            let _ = call(libc::SYS_umount2, [Arg::Text(&path), Arg::N(libc::MNT_DETACH.into())]);
            read(hidden(world))
        }),
        learning("hidden-by-a-child-without-rights", |world| {
            let path = hidden(world);
            super::any([
                learn(&format!("setpriv --no-new-privs cat {}", quoted(&path))),
                read(&path),
            ])
        }),
        line("hidden-shell", |_| {
            learn("while read -r line; do echo \"$line\"; done < .env")
        }),
        line("hidden-sourced", |_| learn("set -a; . ./.env; env")),
        line("hidden-run", |_| {
            learn("cp .env run-me && chmod +x run-me && cat run-me; s=$?; rm -f run-me; exit $s")
        }),
        line("hidden-grep", |_| learn("grep -rh BAIT .")),
        line("hidden-find", |_| learn("find . -name '.env*' -type f -exec cat {} +")),
        line("hidden-tar", |_| learn("tar -cf - .env | cat")),
        line("hidden-tar-folder", |_| {
            learn("tar -cf - --exclude=laid --exclude=.git . | cat")
        }),
        line("hidden-copy", |_| {
            learn("cp .env copied && cat copied; s=$?; rm -f copied; exit $s")
        }),
        line("hidden-copy-folder", |_| {
            learn("cp -r deep copied-too && cat copied-too/er/.env; s=$?; rm -rf copied-too; exit $s")
        }),
        line("hidden-git-add", |_| {
            learn("git add -f .env && git cat-file -p :.env; s=$?; git rm -q --cached .env; exit $s")
        }),
        line("hidden-git-hash", |_| {
            learn("git cat-file -p $(git hash-object -w --no-filters .env)")
        }),
        line("hidden-git-diff", |_| {
            learn("git diff --no-index /dev/null .env; test $? = 1")
        }),
        line("hidden-git-stash", |_| {
            learn(
                "git -c user.name=x -c user.email=x@y stash -q -a -- .env && git show 'stash@{0}^3:.env'; s=$?; git stash pop -q; exit $s",
            )
        }),
        line("hidden-python", |_| learn("python3 -c 'print(open(\".env\").read())'")),
        line("hidden-diff", |_| learn("diff /dev/null .env; test $? = 1")),
        line("hidden-dd", |_| learn("dd if=.env status=none")),
        Attempt::new("hidden-overwritten", Goal::Change("project:.env"), |world| {
            super::write(hidden(world), "more")
        }),
        Attempt::new("hidden-replaced", Goal::Change("project:.env"), |world| {
            std::fs::write(world.project.join("replacing"), "other")?;
            let done = std::fs::rename(world.project.join("replacing"), hidden(world));
            let _ = std::fs::remove_file(world.project.join("replacing"));
            done.map(|()| "replaced".into()).map_err(Into::into)
        }),
        Attempt::new("hidden-removed", Goal::Change("project:.env"), |world| {
            std::fs::remove_file(hidden(world))?;
            Ok("removed".into())
        }),
        Attempt::new("hidden-emptied", Goal::Change("project:.env"), |world| {
            let path = text(hidden(world));
            call(libc::SYS_truncate, [Arg::Text(&path), Arg::N(0)])?;
            Ok("emptied".into())
        }),
    ]
}
