//! Tasks that outlive the terminal they were started from, and those that do not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_testkit::Bailiwick;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What leaves an agent to itself: ctrl-\ ctrl-d.
const KEY: &str = "\x1c\x04";

/// A terminal with a command in it, as in a window of its own.
struct Window {
    terminal: Option<File>,
    child: Child,
    text: Arc<Mutex<String>>,
}

impl Window {
    fn open(kit: &Bailiwick, words: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        size(&terminal, 30, 100);
        let end = || {
            let path = std::path::Path::new(name.to_str().unwrap());
            File::options().read(true).write(true).open(path).unwrap()
        };
        let mut command = kit.outside_command("setsid");
        command
            .arg("--ctty")
            .arg(kit.program())
            .args(words)
            .env("TERM", "xterm");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        let text = Arc::new(Mutex::new(String::new()));
        let (mut from, into) = (File::from(terminal.try_clone().unwrap()), Arc::clone(&text));
        std::thread::spawn(move || {
            let mut bytes = [0u8; 4096];
            while let Ok(got @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..got]));
            }
        });
        Self {
            terminal: Some(terminal.into()),
            child,
            text,
        }
    }

    fn says(&self, text: &str) {
        let mut terminal = self.terminal.as_ref().unwrap();
        terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a text, and forgets what came up to it.
    #[track_caller]
    fn until(&self, wanted: &str) -> String {
        let begun = Instant::now();
        loop {
            let mut text = self.text.lock().unwrap();
            if let Some(place) = text.find(wanted) {
                let end = place + wanted.len();
                return text.drain(..end).collect();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no `{wanted}` in `{text}`");
            drop(text);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The exit status of the command.
    #[track_caller]
    fn ends(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it goes on: `{}`",
                self.text.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Shuts the window, whatever runs in it.
    fn shut(mut self) -> i32 {
        // The thread that reads holds a second handle: it goes with the child's last one, as the kernel hangs up.
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::HUP).unwrap();
        self.terminal = None;
        self.ends()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

const SHELL: [&str; 6] = ["run", "-q", "--", "bash", "--norc", "-i"];

fn tasks(kit: &Bailiwick) -> Vec<serde_json::Value> {
    let status: serde_json::Value = serde_json::from_str(&kit.run(&["status", "--json"]).ok().stdout).unwrap();
    status["daemon"]["tasks"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_task_goes_on_when_its_person_leaves_and_comes_back() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let mut window = Window::open(&kit, &SHELL);
        window.says("PS1='ready> '; stty size\r");
        window.until("30 100\r\n");
        window.says("echo first; (sleep 0.7; echo in between) &\r");
        window.until("first\r\n");
        window.says(KEY);
        let told = window.until(" ends it");
        assert!(
            told.contains("goes on alone") && told.contains("`bailiwick attach "),
            "{told}"
        );
        assert_eq!(window.ends(), 0);
        let task = tasks(&kit).remove(0);
        assert_eq!((&task["lasting"], &task["attended"]), (&true.into(), &false.into()));
        let id = task["id"].as_str().unwrap().to_owned();
        let status = kit.run(&["status"]).ok().stdout;
        assert!(status.contains(&format!("`bailiwick attach {id}`")), "{status}");
        std::thread::sleep(Duration::from_secs(1));

        let mut window = Window::open(&kit, &["attach"]);
        // What was said before, and while nobody was there.
        window.until("first\r\n");
        window.until("in between\r\n");
        size(window.terminal.as_ref().unwrap(), 41, 77);
        rustix::process::kill_process(rustix::process::Pid::from_child(&window.child), Signal::WINCH).unwrap();
        // A new size, after the one that has the screen drawn anew.
        std::thread::sleep(Duration::from_millis(1200));
        window.says("stty size\r");
        window.until("41 77\r\n");
        // Interrupt and job control are the agent's own.
        window.says("sleep 100\r");
        std::thread::sleep(Duration::from_millis(300));
        window.says("\x03");
        window.says("echo interrupted $?\r");
        window.until("interrupted 130\r\n");
        window.says("sleep 100\r");
        std::thread::sleep(Duration::from_millis(300));
        window.says("\x1a");
        window.until("Stopped");
        // The last one who comes has it.
        let mut second = Window::open(&kit, &["attach", &id[..6]]);
        window.until("is attended from elsewhere now");
        assert_eq!(window.ends(), 0);
        second.says("kill -KILL %1; wait %1; echo second\r");
        second.until("second\r\n");
        second.says("exit 5\r");
        second.until("has ended with status 5");
        assert_eq!(second.ends(), 5);
        assert!(tasks(&kit).is_empty());
    }
}

#[test]
fn a_closed_window_leaves_the_task_unless_it_is_to_end_with_it() {
    let kit = Bailiwick::new();
    let window = Window::open(&kit, &SHELL);
    window.says("echo $((20 + 3))\r");
    window.until("23\r\n");
    assert_eq!(window.shut(), 0);
    assert_eq!(tasks(&kit).len(), 1);
    let mut killed = Window::open(&kit, &["attach"]);
    killed.until("23\r\n");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(tasks(&kit).len(), 1, "also when the command dies");
    let id = tasks(&kit)[0]["id"].as_str().unwrap().to_owned();
    assert!(kit.run(&["attach"]).status_is(2).stderr.contains("no terminal"));
    assert_eq!(kit.run(&["stop", &id]).ok().stdout, format!("{id} has ended\n"));
    assert!(tasks(&kit).is_empty());

    let mut tied = vec!["run", "-q", "--end-with-terminal"];
    tied.extend(&SHELL[2..]);
    let window = Window::open(&kit, &tied);
    window.says("echo $((20 + 3))\r");
    window.until("23\r\n");
    // The key is a key like any other there: bash leaves at the second half of it.
    assert!(!tasks(&kit)[0]["lasting"].as_bool().unwrap());
    let told = Window::open(&kit, &["attach", tasks(&kit)[0]["id"].as_str().unwrap()]).until("end with its command");
    assert!(told.contains("cannot be attended"), "{told}");
    window.shut();
    let begun = Instant::now();
    while !tasks(&kit).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it ends with its terminal");
    }
}

#[test]
fn p11_a_detached_task_is_ended_by_name_and_its_end_is_kept_until_heard() {
    let kit = Bailiwick::new();
    let id = kit
        .run(&[
            "run",
            "-q",
            "-d",
            "--",
            "bash",
            "-c",
            "tty; seq 100000; touch .mcp.json 2>/dev/null && exit 1; echo done; exit 3",
        ])
        .ok()
        .stdout;
    let id = id.trim();
    let begun = Instant::now();
    // Nobody reads, and it does not wait.
    while !tasks(&kit).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it runs to its end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = kit.run(&["status"]).ok().stdout;
    assert!(
        status.contains(id) && status.contains("ended with status 3"),
        "{status}"
    );
    let mut window = Window::open(&kit, &["attach", id]);
    window.until("99999\r\n100000\r\ndone\r\n");
    window.until("has ended with status 3");
    assert_eq!(window.ends(), 3);
    assert!(!kit.run(&["status"]).ok().stdout.contains(id), "heard once");

    let id = kit
        .run(&["run", "-q", "-d", "--", "bash", "-c", "trap '' TERM HUP; sleep 100"])
        .ok()
        .stdout;
    let id = id.trim();
    std::thread::sleep(Duration::from_millis(300));
    let stopped = kit.run(&["stop", "--now", id]).ok();
    assert!(stopped.elapsed < Duration::from_secs(4), "{:?}", stopped.elapsed);
    assert!(kit.run(&["stop", id]).status_is(2).stderr.contains("no task"));
    kit.run(&["run", "-d", "--", "no-such-program"]).status_is(127);
}

#[test]
fn p11_a_terminal_that_is_stopped_does_not_hold_up_the_end_of_a_task() {
    let kit = Bailiwick::new();
    let window = Window::open(&kit, &["run", "-q", "--", "yes"]);
    window.until("y\r\ny\r\n");
    let command = rustix::process::Pid::from_child(&window.child);
    rustix::process::kill_process(command, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let id = tasks(&kit)[0]["id"].as_str().unwrap().to_owned();
    let stopped = kit.run(&["stop", &id]).ok();
    assert!(stopped.elapsed < Duration::from_secs(12), "{:?}", stopped.elapsed);
    assert!(tasks(&kit).is_empty());
    rustix::process::kill_process(command, Signal::CONT).unwrap();
}
