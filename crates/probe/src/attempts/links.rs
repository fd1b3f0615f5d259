//! Links that lay in the project before the run began, and links that are made to get at something.

use std::os::unix::fs::symlink;

use super::{any, read, write};
use crate::sys::{Arg, call, text};
use crate::{Attempt, Goal};

pub(super) fn attempts() -> Vec<Attempt> {
    let learn = |id, act| Attempt::new(id, Goal::Learn, act);
    vec![
        learn("links-file-outside", |world| read(world.project.join("laid/to-secret"))),
        learn("links-folder-outside", |world| {
            read(world.project.join("laid/to-beside/secret"))
        }),
        learn("links-relative", |world| read(world.project.join("laid/to-relative"))),
        learn("links-chain", |world| read(world.project.join("laid/to-chain"))),
        learn("links-whole-machine", |world| {
            let inside = world.beside.strip_prefix("/").unwrap_or(&world.beside);
            read(world.project.join("laid/to-root").join(inside).join("secret"))
        }),
        learn("links-other-process", |world| {
            read(world.project.join("laid/to-environ"))
        }),
        learn("links-host-tmp", |world| read(world.project.join("laid/to-tmp"))),
        learn("links-name-of-hidden", |world| {
            read(world.project.join("laid/to-hidden"))
        }),
        learn("links-hard-name-of-hidden", |world| {
            read(world.project.join("laid/other-name"))
        }),
        learn("links-hard-name-in-granted-home", |world| {
            read(world.home.join(".local/bin/other-name"))
        }),
        Attempt::new(
            "links-hard-name-of-guarded",
            Goal::Change("project:.git/hooks/pre-commit"),
            |world| write(world.project.join("laid/other-hook"), "more"),
        ),
        Attempt::new("links-name-of-guarded", Goal::Change("project:.git/config"), |world| {
            write(world.project.join("laid/to-config"), "more")
        }),
        Attempt::new("links-write-through-folder", Goal::Change("beside:new"), |world| {
            write(world.project.join("laid/to-beside/new"), "more")
        }),
        Attempt::new("links-write-through-file", Goal::Change("beside:secret"), |world| {
            write(world.project.join("laid/to-secret"), "more")
        }),
        Attempt::new("links-dangling-made-real", Goal::Change("beside:not-yet"), |world| {
            write(world.project.join("laid/to-nothing"), "more")
        }),
        learn("links-made-to-outside", |world| {
            let name = world.project.join("made-link");
            symlink(world.beside.join("secret"), &name)?;
            let got = read(&name);
            std::fs::remove_file(&name)?;
            got
        }),
        learn("links-made-hard-to-outside", |world| {
            let name = world.project.join("made-hard");
            std::fs::hard_link(world.beside.join("secret"), &name)?;
            let got = read(&name);
            std::fs::remove_file(&name)?;
            got
        }),
        learn("links-made-hard-by-descriptor", |world| {
            let file = std::fs::File::open(world.beside.join("secret"))?;
            let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            let name = world.project.join("made-hard-too");
            let (from, to) = (text(from), text(&name));
            let here = i64::from(libc::AT_FDCWD);
            let follow = Arg::N(libc::AT_SYMLINK_FOLLOW.into());
            call(
                libc::SYS_linkat,
                [Arg::N(here), Arg::Text(&from), Arg::N(here), Arg::Text(&to), follow],
            )?;
            let got = read(&name);
            std::fs::remove_file(&name)?;
            got
        }),
        learn("links-magic", |world| {
            let inside = world.beside.strip_prefix("/").unwrap_or(&world.beside).join("secret");
            any([
                "/proc/self/root",
                "/proc/thread-self/root",
                "/proc/1/root",
                "/proc/1/cwd",
            ]
            .map(|magic| {
                any([
                    std::path::Path::new(magic).join(&inside),
                    std::path::Path::new(magic).join("..").join(&inside),
                ]
                .map(read))
            }))
        }),
        learn("links-swapped-while-looked-at", |world| {
            // A name that is now a plain file and now a link: what is checked is not what is opened.
            let name = world.project.join("swapped");
            let other = world.project.join("swapped-too");
            std::fs::write(&name, "plain")?;
            symlink(world.beside.join("secret"), &other)?;
            let (a, b) = (text(&name), text(&other));
            let here = i64::from(libc::AT_FDCWD);
            let got = any((0..200).map(|_| {
                call(
                    libc::SYS_renameat2,
                    [Arg::N(here), Arg::Text(&a), Arg::N(here), Arg::Text(&b), Arg::N(2)],
                )?;
                read(&name)
            }));
            std::fs::remove_file(&name)?;
            std::fs::remove_file(&other)?;
            got
        }),
    ]
}
