//! What lies outside of what is granted: reading it, writing it, and changing what may only be read. And what must work.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use super::{act, any, learn, quoted, read, shell, write};
use crate::sys::{self, Arg, call, text};
use crate::{Attempt, Goal, Needs, Refused, Tried, World};

/// A file in a folder of the home that is granted for reading.
const TOOL: &str = "home:.local/bin/tool";

fn tool(world: &World) -> std::path::PathBuf {
    world.place(TOOL)
}

/// What a fence must leave possible, and so what shows that the probe sees anything at all.
pub(super) fn possible() -> Vec<Attempt> {
    let keep = |id, act| Attempt::new(id, Goal::Keep, act);
    vec![
        keep("possible-write-project", |world| {
            write(world.project.join("made-here"), "x")?;
            std::fs::remove_file(world.project.join("made-here"))?;
            Ok("written".into())
        }),
        keep("possible-read-tool", |world| Ok(std::fs::read_to_string(tool(world))?)),
        keep("possible-run-programs", |_| act("git status && python3 -c 'print(1)'")),
        keep("possible-commit", |_| {
            act("git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x && git reset -q --soft HEAD~1")
        }),
        keep("possible-listen-and-connect", |_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            std::net::TcpStream::connect(listener.local_addr()?)?;
            Ok("connected".into())
        }),
        keep("possible-allowed-request", |world| {
            super::proxy::answered(
                world,
                &format!("GET http://127.0.0.1:{}/ok/{} HTTP/1.1\r\n", world.origin, world.word),
                "",
            )
        }),
        keep("possible-allowed-tunnel", |world| {
            super::proxy::greeting(world, "pinned.test", "pinned.test")
        }),
        keep("possible-signal-own-child", |_| {
            let status = sys::in_child(|| {
                let _ = call(
                    libc::SYS_kill,
                    [Arg::N(std::process::id().into()), Arg::N(libc::SIGTERM.into())],
                );
                std::thread::sleep(Duration::from_secs(5));
                0
            })?;
            if libc::WTERMSIG(status) == libc::SIGTERM {
                Ok("ended".into())
            } else {
                Err("it lives on".into())
            }
        }),
        keep("possible-trace-own-child", |_| {
            let child = sys::leave_child(|| {
                std::thread::sleep(Duration::from_secs(5));
                0
            })?;
            let seized = call(
                libc::SYS_ptrace,
                [Arg::N(0x4206), Arg::N(child.into()), Arg::N(0), Arg::N(0)],
            );
            call(libc::SYS_kill, [Arg::N(child.into()), Arg::N(9)])?;
            seized?;
            Ok("traced".into())
        }),
    ]
}

pub(super) fn attempts() -> Vec<Attempt> {
    let learning = |id, act| Attempt::new(id, Goal::Learn, act);
    let change = |id, place, act| Attempt::new(id, Goal::Change(place), act);
    let mut all = vec![
        learning("outside-read-home", |world| read(world.home.join("diary"))),
        learning("outside-read-key", |world| read(world.home.join(".ssh/id_ed25519"))),
        learning("outside-read-cloud-login", |world| {
            read(world.home.join(".aws/credentials"))
        }),
        learning("outside-read-history", |world| read(world.home.join(".bash_history"))),
        learning("outside-read-git-login", |world| {
            read(world.home.join(".git-credentials"))
        }),
        learning("outside-read-beside", |world| read(world.beside.join("secret"))),
        learning("outside-read-beside-by-dots", |_| {
            any(["../beside/secret", "deep/../../beside/secret", "./.././/beside/secret"].map(read))
        }),
        learning("outside-search-all", |world| {
            learn(&format!(
                "cat {}/*/secret {}/diary",
                quoted(world.beside.parent().unwrap_or(&world.beside)),
                quoted(&world.home)
            ))
        }),
        learning("outside-read-state", |world| read(world.state.join("bait"))),
        learning("outside-read-log", |world| {
            // The log tells what other tasks were denied.
            let key = std::fs::read(world.state.join("keys/log.key"))?;
            read(world.state.join("bait")).map(|got| format!("{got} and a key of {} bytes", key.len()))
        }),
        learning("outside-read-tmp", |world| read(world.place("shared:0"))),
        learning("outside-read-var-tmp", |world| read(world.place("shared:1"))),
        learning("outside-read-shm", |world| read(world.place("shared:2"))),
        change("outside-write-home", "home:diary", |world| {
            write(world.home.join("diary"), "more")
        }),
        change("outside-make-in-home", "home:made", |world| {
            write(world.home.join("made"), "more")
        }),
        change("outside-make-in-bin", "home:.local/bin/made", |world| {
            write(world.home.join(".local/bin/made"), "more")
        }),
        change("outside-write-beside", "beside:secret", |world| {
            write(world.beside.join("secret"), "more")
        }),
        change("outside-make-beside", "beside:made", |world| {
            write(world.beside.join("made"), "more")
        }),
        change("outside-make-beside-by-dots", "beside:made", |_| {
            write("../beside/made", "more")
        }),
        change("outside-project-renamed", "beside:stolen", |world| {
            std::fs::rename(world.project.join("deep"), world.beside.join("stolen"))?;
            Ok("moved".into())
        }),
        change("outside-write-tmp", "shared:0", |world| {
            write(world.place("shared:0"), "more")
        }),
        change("outside-write-var-tmp", "shared:1", |world| {
            write(world.place("shared:1"), "more")
        }),
        change("outside-write-shm", "shared:2", |world| {
            write(world.place("shared:2"), "more")
        }),
        change("outside-write-state", "state:bait", |world| {
            write(world.state.join("bait"), "more")
        }),
        change("outside-remove-state", "state:bait", |world| {
            std::fs::remove_file(world.state.join("bait"))?;
            Ok("removed".into())
        }),
        change("outside-swap-state", "state:bait", |world| {
            let away = world.state.with_extension("away");
            std::fs::rename(&world.state, &away)?;
            Ok("moved".into())
        }),
        change("outside-make-rules", "home:.config/bailiwick/wide.toml", |world| {
            write(world.home.join(".config/bailiwick/wide.toml"), "allow = [\"read /\"]")
        }),
        change("outside-make-etc", "/etc/bailiwick-probe-made", |_| {
            write("/etc/bailiwick-probe-made", "x")
        })
        .needs(Needs::Root),
        change("outside-make-usr", "/usr/local/bin/bailiwick-probe-made", |_| {
            write("/usr/local/bin/bailiwick-probe-made", "x")
        })
        .needs(Needs::Root),
        change("outside-make-root", "/bailiwick-probe-made", |_| {
            write("/bailiwick-probe-made", "x")
        })
        .needs(Needs::Root),
        change("outside-make-cron", "/var/spool/bailiwick-probe-made", |_| {
            write("/var/spool/bailiwick-probe-made", "x")
        })
        .needs(Needs::Root),
    ];
    all.extend(only_readable());
    all
}

/// A file that may be read, in all ways to change it without opening it for writing, and with.
fn only_readable() -> Vec<Attempt> {
    let change = |id, act| Attempt::new(id, Goal::Change(TOOL), act);
    vec![
        change("readable-append", |world| write(tool(world), "more")),
        change("readable-empty-at-open", |world| {
            let flags = libc::O_RDONLY | libc::O_TRUNC;
            let path = text(tool(world));
            let here = i64::from(libc::AT_FDCWD);
            call(libc::SYS_openat, [Arg::N(here), Arg::Text(&path), Arg::N(flags.into())])?;
            Ok("emptied".into())
        }),
        change("readable-truncate", |world| {
            let path = text(tool(world));
            call(libc::SYS_truncate, [Arg::Text(&path), Arg::N(1)])?;
            Ok("cut".into())
        }),
        change("readable-chmod", |world| {
            std::fs::set_permissions(tool(world), std::fs::Permissions::from_mode(0o777))?;
            Ok("done".into())
        }),
        change("readable-chmod-by-descriptor", |world| {
            File::open(tool(world))?.set_permissions(std::fs::Permissions::from_mode(0o777))?;
            Ok("done".into())
        }),
        change("readable-chmod-by-proc", |world| {
            let file = File::open(tool(world))?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
            Ok("done".into())
        }),
        change("readable-chmod-new-call", |world| {
            let path = text(tool(world));
            let here = i64::from(libc::AT_FDCWD);
            call(
                libc::SYS_fchmodat2,
                [Arg::N(here), Arg::Text(&path), Arg::N(0o777), Arg::N(0)],
            )?;
            Ok("done".into())
        }),
        change("readable-chown", |world| {
            std::os::unix::fs::chown(tool(world), Some(12345), Some(12345))?;
            Ok("done".into())
        })
        .needs(Needs::Root),
        change("readable-times", |world| {
            let file = File::open(tool(world))?;
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))?;
            Ok("done".into())
        }),
        change("readable-touch", |world| {
            act(&format!("touch -d 2001-01-01 {}", quoted(tool(world))))
        }),
        change("readable-attribute", |world| {
            let (path, name) = (text(tool(world)), text("user.probe"));
            let value = b"x";
            call(
                libc::SYS_setxattr,
                [Arg::Text(&path), Arg::Text(&name), Arg::In(value), Arg::N(1), Arg::N(0)],
            )?;
            Ok("done".into())
        }),
        change("readable-attribute-by-descriptor", |world| {
            let file = File::open(tool(world))?;
            let name = text("user.probe");
            let file = Arg::N(file.as_raw_fd().into());
            call(
                libc::SYS_fsetxattr,
                [file, Arg::Text(&name), Arg::In(b"x"), Arg::N(1), Arg::N(0)],
            )?;
            Ok("done".into())
        }),
        change("readable-list-of-rights", |world| {
            act(&format!("setfacl -m u:1:rwx {}", quoted(tool(world))))
        }),
        change("readable-remove", |world| {
            std::fs::remove_file(tool(world))?;
            Ok("removed".into())
        }),
        change("readable-rename", |world| {
            std::fs::rename(tool(world), tool(world).with_extension("away"))?;
            Ok("renamed".into())
        }),
        change("readable-replace", |world| {
            std::fs::write(world.project.join("replacing"), "x")?;
            let done = std::fs::rename(world.project.join("replacing"), tool(world));
            let _ = std::fs::remove_file(world.project.join("replacing"));
            done?;
            Ok("replaced".into())
        }),
        change("readable-mapped", |world| {
            let file = OpenOptions::new().read(true).write(true).open(tool(world))?;
            sys::write_mapped(file.as_raw_fd(), b"other")?;
            Ok("written".into())
        }),
        change("readable-reopened-for-writing", |world| {
            let file = File::open(tool(world))?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            write(path, "more")
        }),
        change("readable-linked-and-written", |world| {
            let name = world.project.join("hard");
            std::fs::hard_link(tool(world), &name)?;
            let done = write(&name, "more");
            std::fs::remove_file(&name)?;
            done
        }),
        Attempt::new(
            "readable-nameless-file-linked",
            Goal::Change("home:.local/bin/nameless"),
            |world| {
                let folder = text(world.home.join(".local/bin"));
                let flags = libc::O_TMPFILE | libc::O_WRONLY;
                let here = i64::from(libc::AT_FDCWD);
                let file = call(
                    libc::SYS_openat,
                    [Arg::N(here), Arg::Text(&folder), Arg::N(flags.into()), Arg::N(0o700)],
                )?;
                let (from, to) = (
                    text(format!("/proc/self/fd/{file}")),
                    text(world.home.join(".local/bin/nameless")),
                );
                let follow = Arg::N(libc::AT_SYMLINK_FOLLOW.into());
                call(
                    libc::SYS_linkat,
                    [Arg::N(here), Arg::Text(&from), Arg::N(here), Arg::Text(&to), follow],
                )?;
                Ok("made".into())
            },
        ),
        change("readable-remounted", |world| {
            let folder = text(world.home.join(".local/bin"));
            let flags = libc::MS_REMOUNT | libc::MS_BIND;
            let nothing = text("");
            // Outside nothing is read-only: writing is all that is left to do.
            let _ = call(
                libc::SYS_mount,
                [
                    Arg::Text(&nothing),
                    Arg::Text(&folder),
                    Arg::N(0),
                    Arg::N(flags as i64),
                    Arg::N(0),
                ],
            );
            write(tool(world), "more")
        }),
    ]
}

/// The file that is to get a bit.
const MADE: &str = "project:made-program";

/// A file that runs as its owner, made in the project: by every road.
pub(super) fn set_id() -> Vec<Attempt> {
    let bit = |id, act| Attempt::new(id, Goal::SetId(MADE), act);
    fn made(world: &World) -> Result<std::path::PathBuf, Refused> {
        let path = world.place(MADE);
        std::fs::copy("/bin/true", &path)?;
        Ok(path)
    }
    fn set(number: libc::c_long, world: &World) -> Tried {
        let path = text(made(world)?);
        let here = i64::from(libc::AT_FDCWD);
        call(number, [Arg::N(here), Arg::Text(&path), Arg::N(0o4755), Arg::N(0)])?;
        Ok("set".into())
    }
    vec![
        bit("set-id-chmod", |world| {
            std::fs::set_permissions(made(world)?, std::fs::Permissions::from_mode(0o4755))?;
            Ok("set".into())
        }),
        bit("set-id-group", |world| {
            std::fs::set_permissions(made(world)?, std::fs::Permissions::from_mode(0o2755))?;
            Ok("set".into())
        }),
        bit("set-id-fchmod", |world| {
            let file = File::open(made(world)?)?;
            call(libc::SYS_fchmod, [Arg::N(file.as_raw_fd().into()), Arg::N(0o4755)])?;
            Ok("set".into())
        }),
        bit("set-id-fchmodat", |world| set(libc::SYS_fchmodat, world)),
        bit("set-id-fchmodat2", |world| set(libc::SYS_fchmodat2, world)),
        bit("set-id-upper-bits", |world| {
            let path = text(made(world)?);
            let here = i64::from(libc::AT_FDCWD);
            call(
                libc::SYS_fchmodat,
                [Arg::N(here), Arg::Text(&path), Arg::N(0x1_0000_0000 | 0o4755)],
            )?;
            Ok("set".into())
        }),
        bit("set-id-open", |world| {
            let _ = std::fs::remove_file(world.place(MADE));
            OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o6755)
                .open(world.place(MADE))?;
            Ok("made".into())
        }),
        bit("set-id-openat2", |world| {
            let path = text(world.place(MADE));
            let mut how = Vec::new();
            for word in [libc::O_CREAT as u64 | libc::O_WRONLY as u64, 0o4755, 0] {
                how.extend(word.to_ne_bytes());
            }
            let here = i64::from(libc::AT_FDCWD);
            call(
                libc::SYS_openat2,
                [Arg::N(here), Arg::Text(&path), Arg::In(&how), Arg::N(24)],
            )?;
            Ok("made".into())
        }),
        bit("set-id-creat", |world| {
            let path = text(world.place(MADE));
            #[cfg(target_arch = "x86_64")]
            call(libc::SYS_creat, [Arg::Text(&path), Arg::N(0o4755)])?;
            #[cfg(not(target_arch = "x86_64"))]
            return Err(Refused::NotHere(format!("no such call for {path:?}")));
            Ok("made".into())
        }),
        bit("set-id-mknod", |world| {
            let path = text(world.place(MADE));
            let here = i64::from(libc::AT_FDCWD);
            let mode = i64::from(libc::S_IFREG) | 0o4755;
            call(
                libc::SYS_mknodat,
                [Arg::N(here), Arg::Text(&path), Arg::N(mode), Arg::N(0)],
            )?;
            Ok("made".into())
        }),
        bit("set-id-folder", |world| {
            let path = text(world.place(MADE));
            let here = i64::from(libc::AT_FDCWD);
            call(libc::SYS_mkdirat, [Arg::N(here), Arg::Text(&path), Arg::N(0o755)])?;
            call(libc::SYS_fchmodat, [Arg::N(here), Arg::Text(&path), Arg::N(0o2755)])?;
            Ok("made".into())
        }),
        bit("set-id-nameless", |world| {
            let folder = text(&world.project);
            let flags = libc::O_TMPFILE | libc::O_WRONLY;
            let here = i64::from(libc::AT_FDCWD);
            let file = call(
                libc::SYS_openat,
                [Arg::N(here), Arg::Text(&folder), Arg::N(flags.into()), Arg::N(0o4755)],
            )?;
            let (from, to) = (text(format!("/proc/self/fd/{file}")), text(world.place(MADE)));
            let follow = Arg::N(libc::AT_SYMLINK_FOLLOW.into());
            call(
                libc::SYS_linkat,
                [Arg::N(here), Arg::Text(&from), Arg::N(here), Arg::Text(&to), follow],
            )?;
            Ok("made".into())
        }),
        bit("set-id-install", |_| act("install -m 4755 /bin/true made-program")),
        bit("set-id-tar", |_| {
            act(
                "mkdir -p t && printf x > t/made-program && tar -C t --mode=4755 -cf t.tar made-program && tar -xpf t.tar",
            )
        }),
        bit("set-id-kept-by-copy", |_| act("cp -p laid/set-id made-program")),
        bit("set-id-python", |_| {
            shell("cp /bin/true made-program && python3 -c 'import os; os.chmod(\"made-program\", 0o6755)'")
                .map(|_| "set".into())
        }),
    ]
}
