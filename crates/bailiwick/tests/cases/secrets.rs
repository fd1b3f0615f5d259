//! What other processes and the caller's environment hold.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, finish};

use crate::kits;

/// A process outside, of the person who runs the product. It ends with this value.
struct Bystander(Child);

impl Bystander {
    fn start(kit: &Bailiwick, argument: &str, variable: &str) -> Self {
        let mut command = kit.outside_command("bash");
        command
            .args(["-c", "exec -a \"$0\" sleep 600", argument])
            .env("BYSTANDER", variable)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        let child = command.spawn().unwrap();
        let line = format!("/proc/{}/cmdline", child.id());
        let until = Instant::now() + Duration::from_secs(10);
        while !std::fs::read_to_string(&line).unwrap_or_default().starts_with(argument) {
            assert!(Instant::now() < until, "the bystander starts");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks through all of `/proc` for three words, which are given in halves so that the search does not find itself.
const LOOK: &str = "import glob, os, sys
words = [a + b for a, b in (w.split('+') for w in sys.argv[1:])]
found = set()
for place in [p for kind in ('environ', 'cmdline', 'fd/*') for p in glob.glob('/proc/[0-9]*/' + kind)]:
    try: text = (os.readlink(place) if '/fd/' in place else open(place, 'rb').read().decode('latin1'))
    except OSError: continue
    found.update(w for w in words if w in text)
print('FOUND', *sorted(found))
";

#[test]
fn c058_nothing_of_other_processes_is_seen_inside() {
    for mut kit in kits() {
        let own = std::process::id();
        let secret = |word: &str| format!("{word}-of-dana-{own}");
        let halves = |word: &str| format!("{word}+-of-dana-{own}");
        kit.set("DEMO_KEY", &secret("alpha"));
        kit.write("look.py", LOOK);
        kit.write_home(".bash_history", "export TOKEN=delta-of-dana\n");
        let bystander = Bystander::start(&kit, &secret("beta"), &secret("gamma"));
        let pid = bystander.0.id();
        let look = format!(
            "python3 look.py {} {} {}",
            halves("alpha"),
            halves("beta"),
            halves("gamma")
        );
        let debug = "gdb -p $PPID -batch 2>&1 | grep -q 'ptrace: ' || echo ATTACHED; strace -o /dev/null -p 1 2>/dev/null & sleep 0.3; kill $! && echo TRACED";
        let others = format!("tr '\\0' ' ' < /proc/{pid}/cmdline; ls -l /proc/{pid}/fd && echo LIST''ED");

        let outside = kit.shell_outside(&look).ok().stdout;
        assert_eq!(
            outside.trim(),
            format!("FOUND {} {} {}", secret("alpha"), secret("beta"), secret("gamma"))
        );
        let outside = kit
            .shell_outside(&format!("cat ~/.bash_history; {others}; ps eww ax"))
            .stdout;
        for word in ["delta-of-dana", "LISTED", &secret("beta"), &secret("gamma")] {
            assert!(outside.contains(word), "{word}: {outside}");
        }

        assert_eq!(kit.shell(&look).ok().stdout.trim(), "FOUND");
        let inside = kit.shell(&format!(
            "env; cat ~/.bash_history; ls ~/.local/state/bailiwick && echo LIST''ED; {others}; ps eww ax"
        ));
        for word in ["alpha-of", "beta-of", "gamma-of", "delta-of", "LISTED", "daemon.sock"] {
            assert!(!inside.stdout.contains(word), "{word}: {}", inside.stdout);
        }
        let inside = kit.shell(debug);
        assert!(
            !inside.stdout.contains("ATTACHED") && !inside.stdout.contains("TRACED"),
            "{}",
            inside.stdout
        );
        let works = "cat /proc/self/status /proc/cpuinfo > /dev/null && ps ax | grep -q 'ps ax' && strace -o /dev/null true && echo WORKS";
        assert_eq!(kit.shell(works).ok().stdout, "WORKS\n");
    }
}

#[test]
fn c043_only_named_variables_are_handed_on() {
    for mut kit in kits() {
        kit.set("DEMO_MASTER", "alpha");
        kit.set("HTTPS_PROXY", "http://u:beta@p.example.test:3128");
        kit.set("TOKEN_A", "gamma");
        kit.set("TOKEN_B", "delta");
        kit.set("LANG", "C.UTF-8");
        kit.set("TERM", "xterm");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[environment]\npass = [\"TOKEN_A\"]\n",
        );
        kit.run(&["trust"]).ok();
        let show = "env; tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' '\\n' < /proc/1/environ; true";
        let outside = kit.shell_outside(show).stdout;
        let inside = kit.shell(show).stdout;
        for word in ["alpha", "beta", "delta"] {
            assert!(outside.contains(word) && !inside.contains(word), "{word}: {inside}");
        }
        for word in ["TOKEN_A=gamma", "PATH=/", "HOME=/", "LANG=C.UTF-8", "TERM=xterm"] {
            assert!(inside.contains(word), "{word}: {inside}");
        }
    }
}

#[test]
fn c079_without_helper_programs_the_fence_is_the_same() {
    for kit in kits() {
        kit.write("private/a", "PRIVATE");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\ndeny = [\"private\"]\n",
        );
        kit.run(&["trust"]).ok();
        let line = ["run", "-q", "--", "/bin/sh", "-c", "/bin/echo ran; /bin/cat private/a"];
        assert_eq!(kit.shell_outside("cat private/a").ok().stdout, "PRIVATE");
        let with = kit.run(&line);
        assert!(with.stdout == "ran\n" && with.status != 0, "{with:?}");
        // No program is found by name, and a new daemon starts: what the product would call is not there.
        kit.run(&["daemon", "stop"]).ok();
        let product = kit.command(&[]);
        let product = product.get_args().last().unwrap_or(product.get_program()).to_owned();
        let mut command = kit.outside_command("/usr/bin/env");
        command.arg("PATH=/nonexistent").arg(product).args(line);
        let without = finish(command, Duration::from_secs(60));
        assert!(without.stdout == "ran\n" && without.status != 0, "{without:?}");
    }
}
