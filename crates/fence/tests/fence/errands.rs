//! What is asked of the first process while the program runs: to connect inside, and to take copies of files.

use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use bailiwick_fence::{Control, Started};

use crate::desk::{Desk, Setting};

fn content(text: &str) -> OwnedFd {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("content", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file.into()
}

/// A program that runs, with a thread that waits for its end, as errands need.
struct Runs {
    control: Control,
    out: std::io::PipeReader,
    into: std::io::PipeWriter,
    waiter: std::thread::JoinHandle<i32>,
}

impl Runs {
    fn of(desk: &Desk, script: &str) -> Self {
        let (started, [out, _err], into) = desk.start(&["bash", "-c", script]).unwrap();
        let Started { mut child, .. } = started;
        let control = child.control().unwrap();
        let waiter = std::thread::spawn(move || child.wait());
        Self {
            control,
            out,
            into,
            waiter,
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0u8; 1];
        while self.out.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    fn say(&mut self, text: &str) {
        writeln!(self.into, "{text}").unwrap();
    }
}

#[test]
fn a_server_inside_is_reached_by_a_socket_that_is_handed_out() {
    for setting in Setting::all() {
        for (family, address) in [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")] {
            let desk = Desk::of(setting);
            let server = format!(
                "/usr/bin/python3 -uc \"import socket\ns = socket.socket(socket.{family}, socket.SOCK_STREAM)\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.bind(('{address}', 5173))\n\
                 s.listen()\nprint('up')\nc, _ = s.accept()\nc.sendall(c.recv(4).upper())\""
            );
            let mut runs = Runs::of(&desk, &server);
            assert_eq!(runs.line(), "up");
            assert!(
                setting.is_process() || std::net::TcpStream::connect("127.0.0.1:5173").is_err(),
                "nothing listens outside"
            );
            let refused = runs.control.connect(5174).unwrap_err();
            assert!(refused.to_string().contains("refused"), "{refused}");
            let mut stream = std::net::TcpStream::from(runs.control.connect(5173).unwrap());
            stream.set_nonblocking(false).unwrap();
            stream.write_all(b"ping").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "PING");
            assert_eq!(runs.waiter.join().unwrap(), 0);
            let gone = runs.control.connect(5173).unwrap_err();
            assert!(gone.to_string().contains("ended"), "{gone}");
        }
    }
}

#[test]
fn p1_what_is_handed_in_lands_in_its_folder_whatever_is_planted_there() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        let top = desk.plan.scratch[0].clone();
        let folder = top.join("handover").unwrap();
        desk.plan.scratch.push(folder.clone());
        desk.plan.handover = Some(folder);
        // In place of its own parts the program plants links that lead into the project, where it may write itself,
        // and to a file of the project.
        let script = "cd /tmp/scratch/handover; ln -s $OLDPWD/victim taken; ln -s $OLDPWD linked; ln -s $OLDPWD/victim .bailiwick-passing
            (mv /tmp/scratch/handover /tmp/scratch/away || rmdir /tmp/scratch/handover) 2>/dev/null && echo MOVED; echo ready
            read; cat note sub/deep/note; stat -c %a note; test -x tool && echo runs; ls -A; cat taken";
        desk.file("project/victim", "untouched\n");
        let mut runs = Runs::of(
            &desk,
            &script
                .replace("$OLDPWD", desk.at("project").to_str().unwrap())
                .replace("/tmp/scratch", top.as_str()),
        );
        assert_eq!(runs.line(), "ready");
        let control = &runs.control;
        control.place_file("note", false, &content("one\n")).unwrap();
        control.place_file("tool", true, &content("#!/bin/sh\n")).unwrap();
        control.place_folder("sub").unwrap();
        control.place_folder("sub/deep").unwrap();
        control.place_file("sub/deep/note", false, &content("two\n")).unwrap();
        for taken in ["note", "taken", "sub"] {
            let refused = control.place_file(taken, false, &content("x")).unwrap_err();
            assert!(refused.to_string().contains("already"), "{taken}: {refused}");
        }
        assert!(control.place_folder("sub").is_err());
        for bad in ["linked/x", "../x", "/x", "sub/../x", "", "a//b", ".", "missing/x"] {
            assert!(control.place_file(bad, false, &content("x")).is_err(), "{bad}");
        }
        let big = content("");
        rustix::fs::ftruncate(&big, bailiwick_fence::MAX_FILE + 1).unwrap();
        assert!(control.place_file("big", false, &big).is_err());
        runs.say("go");
        let lines: Vec<String> = (0..9).map(|_| runs.line()).collect();
        assert_eq!(
            lines,
            ["one", "two", "644", "runs", "linked", "note", "sub", "taken", "tool"]
        );
        assert_eq!(runs.line(), "untouched");
        assert_eq!(runs.waiter.join().unwrap(), 0);
        assert_eq!(
            std::fs::read_to_string(desk.at("project/victim")).unwrap(),
            "untouched\n"
        );
        assert!(!desk.at("project/x").exists());
    }
}

#[test]
fn a_task_without_a_folder_takes_nothing() {
    let desk = Desk::of(Setting::all()[0]);
    let mut runs = Runs::of(&desk, "echo ready; read");
    assert_eq!(runs.line(), "ready");
    let refused = runs.control.place_file("note", false, &content("x")).unwrap_err();
    assert!(refused.to_string().contains("no folder"), "{refused}");
    // The descriptor that came along was taken: the next errand gets its own.
    assert!(runs.control.connect(1).is_err());
    runs.say("go");
    assert_eq!(runs.waiter.join().unwrap(), 0);
}
