//! Devices and the compositor: not there unless granted, and then there, with what they weaken said before.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use bailiwick_testkit::{Bailiwick, is_root, skip};

/// A device of this test's own that gives zeros, like `/dev/zero`; only root can make one.
struct OwnDevice(String);

impl OwnDevice {
    fn make(name: &str) -> Option<Self> {
        let path = format!("/dev/bailiwick-{name}-{}", std::process::id());
        let made = std::process::Command::new("mknod")
            .args(["-m", "666", &path, "c", "1", "5"])
            .status();
        if !is_root() || !made.is_ok_and(|status| status.success()) {
            skip("only root can make a device to test with, and not in every container");
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for OwnDevice {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn p2_a_device_is_there_only_when_a_person_grants_it() {
    let Some(device) = OwnDevice::make("zero") else { return };
    let path = &device.0;
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let read = format!("head -c 4 {path} | od -An -tx1");
        let shell = |options: &[&str]| {
            let mut words = vec!["run"];
            words.extend(options);
            words.extend(["--", "sh", "-c", &read]);
            kit.run(&words)
        };
        assert_eq!(kit.shell_outside(&read).ok().stdout, " 00 00 00 00\n");
        assert!(shell(&["-q"]).stdout.is_empty());
        let granted = shell(&["--device", path]).ok();
        assert_eq!(granted.stdout, " 00 00 00 00\n", "{}", granted.stderr);
        assert!(
            granted.stderr.contains(&format!("weaker    {path}: ")),
            "{}",
            granted.stderr
        );
        let log = kit.run(&["log", "show", "--json"]).ok().stdout;
        assert!(log.contains(&format!("\"shows {path}\"")), "it is on record");
        // A project's file grants it when it is trusted, and not before.
        kit.write(
            "bailiwick.toml",
            &format!("extends = [\"coding\"]\n[devices]\nallow = [\"{path}\"]\n"),
        );
        assert!(shell(&["-q"]).stdout.is_empty());
        kit.run(&["trust"]).ok();
        assert_eq!(shell(&["-q"]).ok().stdout, " 00 00 00 00\n");
        // It is the device and nothing round it.
        let around = kit.shell("ls /dev").ok().stdout;
        assert!(!around.contains("loop") && !around.contains("mem"), "{around}");
    }
}

#[test]
fn what_has_the_machine_is_never_shown() {
    let kit = Bailiwick::new();
    for (device, exit, why) in [
        ("/dev/mem", 2, "never granted"),
        ("/dev/pts/0", 2, "never granted"),
        ("/dev/input/event0", 2, "never granted"),
        ("x11", 2, "can read every window and type into it"),
        ("/etc/passwd", 2, "is not a device"),
        ("/dev/bailiwick-missing", 125, "no such device"),
    ] {
        let told = kit
            .run(&["run", "--device", device, "--", "touch", "ran"])
            .status_is(exit)
            .stderr;
        assert!(told.contains(why), "{device}: {told}");
    }
    if std::path::Path::new("/dev/dri").exists() {
        kit.run(&["run", "-q", "--device", "gpu", "--", "ls", "/dev/dri"]).ok();
    } else {
        let told = kit
            .run(&["run", "--device", "gpu", "--", "touch", "ran"])
            .status_is(125)
            .stderr;
        assert!(told.contains("no graphics card"), "{told}");
    }
    assert!(!kit.project().join("ran").exists());
}

#[test]
fn the_compositor_is_reached_only_when_a_person_grants_it() {
    for mut kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let runtime = kit.outside().join("run");
        let place = runtime.join("wayland-5");
        let listener = UnixListener::bind(&place).unwrap();
        let _other = UnixListener::bind(runtime.join("other")).unwrap();
        kit.hand_over();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = [0u8; 4];
                if stream.read_exact(&mut asked).is_ok() {
                    let _ = stream.write_all(b"drawn");
                }
            }
        });
        kit.set("WAYLAND_DISPLAY", "wayland-5");
        let ask = "/usr/bin/python3 -c \"import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.path.join(os.environ.get('XDG_RUNTIME_DIR', '/'), os.environ.get('WAYLAND_DISPLAY', 'none')))
s.sendall(b'draw')
print(s.recv(5).decode())\"";
        assert_eq!(kit.shell_outside(ask).ok().stdout, "drawn\n");
        assert_ne!(kit.shell(ask).status, 0);
        let granted = kit.run(&["run", "--wayland", "--", "sh", "-c", ask]).ok();
        assert_eq!(granted.stdout, "drawn\n");
        assert!(
            granted.stderr.contains("weaker    wayland: ") && granted.stderr.contains("clipboard"),
            "{}",
            granted.stderr
        );
        let beside = format!("ls {}", runtime.display());
        let beside = kit.run(&["run", "-q", "--wayland", "--", "sh", "-c", &beside]);
        assert!(!beside.stdout.contains("other"), "the socket alone: {}", beside.stdout);
        kit.set("WAYLAND_DISPLAY", "missing");
        let told = kit.run(&["run", "--wayland", "--", "true"]).status_is(125).stderr;
        assert!(
            told.contains("no socket lies there") && told.contains("X11 is never shown"),
            "{told}"
        );
    }
}
