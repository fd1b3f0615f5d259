//! A terminal of its own: size, job control, interrupt.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use bailiwick_gate::Stdio;
use rustix::termios::{Winsize, tcsetwinsize};

use crate::desk::{Desk, Setting, grant};

struct Screen {
    terminal: std::fs::File,
    text: String,
}

impl Screen {
    /// Reads until a word is there.
    #[track_caller]
    fn until(&mut self, word: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.text.contains(word) {
            assert!(Instant::now() < end, "no `{word}` in `{}`", self.text);
            let mut bytes = [0u8; 1024];
            match self.terminal.read(&mut bytes) {
                Ok(count) => self.text.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(error) => panic!("{error}: no `{word}` in `{}`", self.text),
            }
        }
        self.text.clear();
    }

    fn enter(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn p13_a_terminal_has_a_size_job_control_and_an_interrupt() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.plan.stdio = Stdio::Terminal { rows: 33, columns: 111 };
        desk.plan.command = ["bash", "--norc", "-i"].map(String::from).into();
        desk.plan.environment.push(("PS1".into(), "ready> ".into()));
        desk.plan.environment.push(("TERM".into(), "dumb".into()));
        let mut started = desk
            .launcher()
            .launch(vec![grant()], &desk.plan, None, bailiwick_fence::Lines::default())
            .unwrap();
        let terminal = started.terminal.take().unwrap();
        let mut screen = Screen {
            terminal: terminal.into(),
            text: String::new(),
        };
        screen.until("ready> ");
        screen.enter("stty size; tty\r");
        screen.until("33 111\r\n/dev/pts/");
        let size = Winsize {
            ws_row: 44,
            ws_col: 99,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&screen.terminal, size).unwrap();
        screen.enter("stty size\r");
        screen.until("44 99");
        screen.enter("sleep 500\r");
        std::thread::sleep(Duration::from_millis(200));
        screen.enter("\x1a");
        screen.until("Stopped");
        screen.enter("jobs; fg\r");
        screen.until("sleep 500\r\nsleep 500");
        std::thread::sleep(Duration::from_millis(100));
        screen.enter("\x03");
        screen.enter("echo status $?\r");
        screen.until("status 130");
        screen.enter("echo x > /dev/tty; exit 5\r");
        assert_eq!(started.child.wait(), 5);
    }
}

#[test]
fn p1_without_a_terminal_there_is_none_to_open() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.sh("echo x > /dev/tty").bad();
    }
}
