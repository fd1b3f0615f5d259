//! Roads round the supervisor: names in any fence, terminals and sockets where they are the machine's.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use bailiwick_gate::{BindMode, Protection};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::desk::{Desk, Setting};

/// The settings where every call is held.
fn watched() -> Vec<Setting> {
    Setting::all()
        .into_iter()
        .filter(|setting| setting.is_process())
        .collect()
}

/// Waits until a file is there.
#[track_caller]
fn wait_for(place: &Path) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !place.exists() {
        assert!(std::time::Instant::now() < end, "`{}` never came", place.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs Python in the fence.
#[track_caller]
fn python(desk: &Desk, script: &str) -> crate::desk::Ran {
    desk.run(&["/usr/bin/python3", "-c", script])
}

/// Insists that a Python script works outside and not inside.
#[track_caller]
fn python_only_outside(desk: &Desk, script: &str) {
    let outside = desk.outside(&["/usr/bin/python3", "-c", script]);
    assert!(outside.status.success(), "the probe must work outside: {outside:?}");
    python(desk, script).bad();
}

#[test]
fn p5_a_folder_moved_as_a_whole_brings_no_guarded_names_in() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.git/hooks", Protection::Guard);
        desk.protect("/**/.git/modules/**/config", Protection::Guard);
        let other = desk.folder("other");
        desk.bind("other", BindMode::Write);
        // Prepared where nothing is protected, then moved.
        let prepared = "import os; t = os.environ.get('SCRATCH', 'made'); os.makedirs(t + '/r/.git/hooks'); \
            open(t + '/r/.git/hooks/pre-commit', 'w').close(); os.rename(t + '/r', 'sub')";
        python_only_outside(&desk, prepared);
        std::fs::remove_dir_all(desk.at("project/sub")).unwrap();
        // Exchanged with an empty one.
        python(
            &desk,
            &prepared.replace(
                "os.rename(t + '/r', 'sub')",
                "os.mkdir('empty'); import ctypes; \
             exit(0 if ctypes.CDLL(None).renameat2(-100, (t + '/r').encode(), -100, b'empty', 2) == 0 else 1)",
            ),
        )
        .bad();
        // What is protected below a folder is not, where the folder lies elsewhere.
        desk.file("project/.git/modules/m/config", "[core]");
        let away = "import os; os.rename('.git/modules/m', 'm'); open('m/config', 'a').write('x'); os.rename('m', '.git/modules/m')";
        python_only_outside(&desk, away);
        // Between trees alike, and in the scratch folder, folders move as ever; and `mv` copies what may not.
        let free = format!(
            "set -e; mkdir -p a/b $SCRATCH/c/d; mv a a2; mv a2 {}/a; mv $SCRATCH/c $SCRATCH/e; mv $SCRATCH/e e; test -d e/d",
            other.display()
        );
        desk.sh(&free).good();
    }
}

#[test]
fn p5_a_hidden_file_stays_hidden_in_a_folder_that_moves() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.file("project/in/f/.token", "SECRET");
        let pattern = format!("{}/in/**/.token", desk.at("project").display());
        desk.protect(&pattern, Protection::Hide);
        desk.only_outside("mv in/f g && cat g/.token; s=$?; mv g in/f; exit $s");
        desk.sh("mv in/f $SCRATCH/g; cat $SCRATCH/g/.token").bad();
    }
}

#[test]
fn p5_a_link_takes_no_guarded_name_by_a_hard_link() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.github/workflows", Protection::Guard);
        let script = "mkdir -p evil/workflows; ln -sfn evil l && ln -P l .github && touch .github/workflows/w";
        assert!(desk.outside(&["bash", "-c", script]).status.success());
        std::fs::remove_file(desk.at("project/.github")).unwrap();
        desk.sh(script).bad();
        assert!(!desk.at("project/.github").is_symlink());
    }
}

#[test]
fn p5_a_file_swapped_for_a_folder_takes_no_guarded_name() {
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        desk.protect("/**/.github/workflows", Protection::Guard);
        // Two threads: one renames `x` to the guarded name, the other has a file or a folder stand there.
        let script = "import os, threading, time\n\
            os.makedirs('d/workflows', exist_ok=True); open('f', 'w').close(); os.rename('f', 'x')\n\
            import ctypes; c = ctypes.CDLL(None); end = time.time() + 4\n\
            def swap():\n  while time.time() < end:\n    c.renameat2(-100, b'x', -100, b'd', 2)\n\
            t = threading.Thread(target=swap); t.start()\n\
            while time.time() < end and not os.path.isdir('.github/workflows'):\n  \
            c.renameat2(-100, b'x', -100, b'.github', 0)\n  \
            if os.path.isfile('.github'): c.renameat2(-100, b'.github', -100, b'x', 1); os.path.isfile('.github') and os.unlink('.github')\n  \
            if not os.path.lexists('x') and not os.path.lexists('.github'): open('x', 'w').close()\n\
            t.join(); exit(0 if os.path.isdir('.github/workflows') else 1)";
        python_only_outside(&desk, script);
        std::fs::remove_dir_all(desk.at("project")).unwrap();
        desk.folder("project");
        python(&desk, script).bad();
    }
}

#[test]
fn p5_a_hidden_file_that_was_replaced_is_not_read_by_its_descriptor() {
    for setting in watched() {
        let mut desk = Desk::of(setting);
        let hidden = desk.file("project/.env", "TOKEN=hidden");
        desk.protect("/**/.env", Protection::Hide);
        let script = "import os, time; f = os.open('.env', os.O_PATH); open('ready', 'w').close()\n\
            for _ in range(2000):\n  \
            time.sleep(0.005)\n  \
            if os.path.exists('replaced'): break\n\
            print(open(f'/proc/self/fd/{f}').read())";
        for inside in [false, true] {
            let (ready, replaced) = (desk.at("project/ready"), desk.at("project/replaced"));
            std::thread::scope(|threads| {
                let ran = threads.spawn(|| {
                    if inside {
                        let ran = python(&desk, script);
                        (ran.status == 0, ran.out)
                    } else {
                        let ran = desk.outside(&["/usr/bin/python3", "-c", script]);
                        (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
                    }
                });
                wait_for(&ready);
                // As an editor saves.
                let new = desk.file("project/new", "TOKEN=new");
                std::fs::rename(new, &hidden).unwrap();
                desk.file("project/replaced", "");
                let (read, out) = ran.join().unwrap();
                assert_eq!(read, !inside, "{out}");
                assert_eq!(out.contains("TOKEN"), !inside);
            });
            std::fs::remove_file(ready).unwrap();
            std::fs::remove_file(replaced).unwrap();
        }
        // Its own files without a name it opens as ever.
        python(&desk, "import os, tempfile\n\
            f = tempfile.TemporaryFile(dir='.'); f.write(b'x'); f.flush(); assert open(f'/proc/self/fd/{f.fileno()}', 'r+').read() == 'x'\n\
            m = os.memfd_create('m'); os.write(m, b'y'); assert open(f'/proc/self/fd/{m}', 'r+').read() == 'y'\n\
            open('gone', 'w').write('z'); g = os.open('gone', os.O_RDONLY); os.unlink('gone')\n\
            assert open(f'/proc/self/fd/{g}', 'r+').read() == 'z'").good();
    }
}

#[test]
fn p1_a_terminal_that_was_given_back_is_the_persons() {
    for setting in watched() {
        let desk = Desk::of(setting);
        // The numbers of terminals are used again: after these are closed, the person opens one.
        let script = "import os, time\n\
            own = [os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY) for _ in range(24)]\n\
            import fcntl, struct; numbers = [struct.unpack('i', fcntl.ioctl(f, 0x80045430, b'1234'))[0] for f in own]\n\
            fcntl.ioctl(own[0], 0x40045431, struct.pack('i', 0)); os.close(os.open(f'/dev/pts/{numbers[0]}', os.O_RDWR | os.O_NOCTTY))\n\
            [os.close(f) for f in own]; open('ready', 'w').close()\n\
            for _ in range(2000):\n  \
            time.sleep(0.005)\n  \
            if os.path.exists('name'): break\n\
            f = os.open(open('name').read(), os.O_RDWR | os.O_NOCTTY)\n\
            print(numbers, os.readlink(f'/proc/self/fd/{f}'))";
        let ready = desk.at("project/ready");
        for inside in [false, true] {
            std::thread::scope(|threads| {
                let ran = threads.spawn(|| {
                    if inside {
                        let ran = python(&desk, script);
                        (ran.status == 0, format!("{ran:?}"))
                    } else {
                        let ran = desk.outside(&["/usr/bin/python3", "-c", script]);
                        (ran.status.success(), format!("{ran:?}"))
                    }
                });
                wait_for(&ready);
                let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
                grantpt(terminal.as_fd()).unwrap();
                unlockpt(terminal.as_fd()).unwrap();
                let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
                if rustix::process::geteuid().is_root() {
                    // As the terminal of the person whose fence it is.
                    std::os::unix::fs::chown(&name, Some(4242), None).unwrap();
                }
                let written = desk.file("project/written", &name);
                std::fs::rename(written, desk.at("project/name")).unwrap();
                let (opened, said) = ran.join().unwrap();
                assert_eq!(opened, !inside, "{said}");
            });
            std::fs::remove_file(&ready).unwrap();
            std::fs::remove_file(desk.at("project/name")).unwrap();
        }
    }
}

#[test]
fn p1_a_socket_is_known_by_more_than_a_number_that_is_used_again() {
    for setting in watched() {
        let desk = Desk::of(setting);
        let script = "import os, socket, time\n\
            own = []\n\
            for n in range(64):\n  \
            s = socket.socket(socket.AF_UNIX); s.bind(f's{n}'); own.append((os.stat(f's{n}').st_ino, s))\n\
            for n in range(64): os.unlink(f's{n}')\n\
            inodes = [n for n, s in own]; [s.close() for n, s in own]; del own\n\
            open('ready', 'w').close()\n\
            for _ in range(2000):\n  \
            time.sleep(0.005)\n  \
            if os.path.exists('there'): break\n\
            print('same' if os.stat('there').st_ino in inodes else 'other')\n\
            s = socket.socket(socket.AF_UNIX); s.connect('there')";
        let (ready, there) = (desk.at("project/ready"), desk.at("project/there"));
        std::thread::scope(|threads| {
            let ran = threads.spawn(|| python(&desk, script));
            wait_for(&ready);
            let _listener = (0..64)
                .map(|number| {
                    let place = desk.at(&format!("project/p{number}"));
                    let listener = UnixListener::bind(&place).unwrap();
                    std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
                    listener
                })
                .collect::<Vec<_>>();
            std::fs::rename(desk.at("project/p0"), &there).unwrap();
            let outside = desk.outside(&[
                "/usr/bin/python3",
                "-c",
                "import socket; socket.socket(socket.AF_UNIX).connect('there')",
            ]);
            assert!(outside.status.success(), "{outside:?}");
            let ran = ran.join().unwrap();
            ran.bad();
            // Else the number was not used again here, and nothing is shown.
            if ran.out.trim() != "same" {
                crate::desk::skipped(1, "the file system did not use an inode again");
            }
        });
    }
}

#[test]
fn p1_watching_tells_nothing_of_what_is_not_granted() {
    for setting in watched() {
        let mut desk = Desk::of(setting);
        desk.file("home/private/diary", "x");
        desk.file("project/keys/k", "x");
        let pattern = desk.at("project/keys").display().to_string();
        desk.protect(&pattern, Protection::Hide);
        let watch = |place: &Path| {
            format!(
                "import ctypes, os; c = ctypes.CDLL(None); f = c.inotify_init1(0); \
                 w = c.inotify_add_watch(f, {:?}.encode(), 0xfff); exit(0 if w > 0 else 1)",
                place.display().to_string()
            )
        };
        python_only_outside(&desk, &watch(&desk.at("home/private")));
        python_only_outside(&desk, &watch(&desk.at("project/keys")));
        let seen = watch(&desk.at("project")).replace(
            "exit(0 if w > 0 else 1)",
            "open('n', 'w').close(); assert b'n' in os.read(f, 999); assert c.inotify_rm_watch(f, w) == 0; \
             os.symlink('n', 'link'); assert c.inotify_add_watch(f, b'link', 0x02000fff) > 0; \
             assert c.inotify_add_watch(f, b'link', 0x01000fff) == -1",
        );
        python(&desk, &seen).good();
    }
}

#[test]
fn p1_a_file_that_may_be_read_keeps_its_flags() {
    for setting in watched() {
        let mut desk = Desk::of(setting);
        desk.file("project/guarded", "x");
        let pattern = desk.at("project/guarded").display().to_string();
        desk.protect(&pattern, Protection::Guard);
        // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS with `nodump`.
        let script = "import fcntl, struct; f = open('guarded'); \
            n = struct.unpack('l', fcntl.ioctl(f, 0x80086601, b'12345678'))[0]; \
            fcntl.ioctl(f, 0x40086602, struct.pack('l', n ^ 0x40))";
        let outside = desk.outside(&["/usr/bin/python3", "-c", script]);
        if !outside.status.success() {
            crate::desk::skipped(1, "the file system has no flags of files");
            continue;
        }
        python(&desk, script).bad();
    }
}

#[test]
fn p1_no_signal_goes_out_by_way_of_a_socket() {
    for setting in watched() {
        let desk = Desk::of(setting);
        for request in ["0x8901", "0x8902"] {
            let script = format!(
                "import fcntl, os, socket, struct; fcntl.ioctl(socket.socketpair()[0], {request}, struct.pack('i', os.getpid()))"
            );
            python_only_outside(&desk, &script);
        }
    }
}

#[test]
fn p1_a_socket_listens_on_the_loopback_whatever_is_raced() {
    for setting in watched() {
        let desk = Desk::of(setting);
        // Bound by the kernel when it connected, a socket loses its address when it is connected to nothing.
        let script = "import socket, ctypes\n\
            c = ctypes.CDLL(None); l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(9)\n\
            s = socket.socket(); s.connect(l.getsockname())\n\
            assert c.connect(s.fileno(), bytes(16), 16) == 0\n\
            try:\n  s.listen(1)\nexcept OSError: exit(1)\n\
            print(s.getsockname()[0])";
        let ran = python(&desk, script);
        assert!(ran.status == 1 || ran.out.trim() == "127.0.0.1", "{ran:?}");
        let race = "import socket, ctypes, threading, time\n\
            c = ctypes.CDLL(None); l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(999); at = l.getsockname()\n\
            end = time.time() + 3; found = []\n\
            while time.time() < end:\n  \
            s = socket.socket(); s.connect(at)\n  \
            t = threading.Thread(target=lambda: c.connect(s.fileno(), bytes(16), 16)); t.start()\n  \
            ok = c.listen(s.fileno(), 1) == 0; t.join()\n  \
            if ok and s.getsockname()[0] == '0.0.0.0': print('wide'); break\n  \
            s.close(); l.accept()[0].close()";
        assert_eq!(python(&desk, race).good(), "");
    }
}

#[test]
fn p1_no_port_is_shared_with_a_server_of_the_persons() {
    for setting in watched() {
        let desk = Desk::of(setting);
        let (into, out) = (desk.at("project/port"), desk.at("project/done"));
        // The person's server shares its port with others of the same user.
        let server = format!(
            "import socket, os, time; s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', 0)); s.listen(9)\n\
            open('new', 'w').write(str(s.getsockname()[1])); os.rename('new', 'port')\n\
            for _ in range(4000):\n  \
            time.sleep(0.005)\n  \
            if os.path.exists({:?}): break",
            out.display().to_string()
        );
        let share = "import socket; s = socket.socket(); s.setsockopt(1, 15, 1); \
            s.bind(('127.0.0.1', int(open('port').read()))); s.listen(9)";
        std::thread::scope(|threads| {
            let served = threads.spawn(|| desk.outside(&["/usr/bin/python3", "-c", &server]));
            wait_for(&into);
            let outside = desk.outside(&["/usr/bin/python3", "-c", share]);
            let inside = python(&desk, share);
            desk.file("project/done", "");
            assert!(served.join().unwrap().status.success());
            assert!(outside.status.success(), "{outside:?}");
            inside.bad();
        });
        // The option is taken all the same.
        python(
            &desk,
            "import socket; s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', 0)); s.listen(9)",
        )
        .good();
    }
}

#[test]
fn p1_nobody_else_answers_held_calls() {
    for setting in watched() {
        let desk = Desk::of(setting);
        // A filter that allows everything and asks a listener: SECCOMP_SET_MODE_FILTER with NEW_LISTENER.
        let script = "import ctypes, struct; c = ctypes.CDLL(None); c.prctl(38, 1, 0, 0, 0)\n\
            code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n\
            program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))\n\
            exit(0 if c.syscall(317, 1, 8, program) > 0 else 1)";
        #[cfg(target_arch = "x86_64")]
        python_only_outside(&desk, script);
    }
}

#[test]
fn p1_signals_do_not_follow_a_socket_to_its_other_end() {
    for setting in watched() {
        let desk = Desk::of(setting);
        for (option, known) in [
            ("getsockopt(1, 77)", "getsockopt(1, 17, 12)"),
            ("setsockopt(1, 76, 1)", "setsockopt(1, 16, 1)"),
        ] {
            let script = |option: &str| format!("import socket; socket.socketpair()[0].{option}");
            let outside = desk.outside(&["/usr/bin/python3", "-c", &script(option)]);
            if outside.status.success() {
                python(&desk, &script(option)).bad();
            } else {
                crate::desk::skipped(1, "the kernel hands out no processes by sockets");
            }
            python(&desk, &script(known)).good();
        }
    }
}

#[test]
fn p11_scratch_is_removed_whatever_was_made_of_it() {
    for setting in watched() {
        let desk = Desk::of(setting);
        let script = "import os; s = os.environ['SCRATCH']; os.makedirs(s + '/a/b'); open(s + '/a/b/f', 'w').close()\n\
            os.chdir(s)\n\
            for _ in range(1500): os.mkdir('d'); os.chdir('d')\n\
            os.chdir(s); os.chmod('a/b', 0); os.chmod('a', 0)";
        python(&desk, script).good();
        assert!(!desk.plan.scratch[0].to_path_buf().exists());
    }
}

#[test]
fn p13_held_calls_take_any_arguments() {
    for setting in watched() {
        let desk = Desk::of(setting);
        let secret = desk.file("home/secret", "SECRET");
        // Whatever is held, but what would end or limit the caller itself, from four threads.
        let script = "import ctypes, os, random, threading, time\n\
            c = ctypes.CDLL(None); os.makedirs('z/y'); open('z/f', 'w').close(); os.symlink('/proc/self/mem', 'z/l')\n\
            calls = [257, 258, 259, 263, 265, 266, 316, 76, 268, 452, 260, 280, 42, 49, 50, 434, 254, 2, 85, 83, 84, 133, \
            86, 87, 88, 82, 264, 90, 92, 94, 132, 235, 261]\n\
            texts = [b'z', b'z/f', b'z/l', b'z/y/../f', b'/proc/self/fd/3', b'/proc/thread-self/root/etc/passwd', \
            b'a' * 4095, b'a/' * 2047, bytes([255, 254]), bytes([10]), b'', b'..', b'/', b'/dev/ptmx', b'/dev/shm/x', \
            b'/dev/tty', bytes([2, 0, 0, 80, 127, 0, 0, 1]) + bytes(8), bytes([1, 0]) + b'z/sock', bytes([1, 0, 0]) + b'abs', \
            bytes([10, 0, 0, 80]) + bytes(24), bytes(28)]\n\
            kept = [ctypes.create_string_buffer(text) for text in texts]; r = random.Random(7); count = 0\n\
            end = time.time() + 3\n\
            def some():\n  \
            k = r.random()\n  \
            if k < .6: return ctypes.addressof(r.choice(kept))\n  \
            if k < .7: return r.choice([0, 2**64 - 1, 2**64 - 100, 1 << 63, 0xffffffff, 0x7ffffffff000, 4096])\n  \
            if k < .9: return r.choice([0, 1, 2, 3, 9, 16, 28, 64, 0o102, 0x10000, 0x200000, 0x410000])\n  \
            return r.getrandbits(64)\n\
            def go():\n  \
            global count\n  \
            while time.time() < end: c.syscall(r.choice(calls), *[ctypes.c_uint64(some()) for _ in range(6)]); count += 1\n\
            all = [threading.Thread(target=go, daemon=True) for _ in range(4)]\n\
            for one in all: one.start()\n\
            time.sleep(4); os.closerange(3, 4000); s = os.environ['SCRATCH']; os.chmod(s, 0o700)\n\
            open(s + '/alive', 'w').close(); print(count)";
        if cfg!(target_arch = "x86_64") {
            let ran = python(&desk, script);
            assert!(ran.good().parse::<u32>().unwrap() > 1000, "{ran:?}");
        }
        assert_eq!(std::fs::read_to_string(secret).unwrap(), "SECRET");
    }
}

#[test]
fn p1_a_hidden_program_can_be_run_and_not_read() {
    // What is not kept, and said so: should it be kept one day, what is said must change.
    for setting in watched() {
        let mut desk = Desk::of(setting);
        std::fs::copy("/bin/true", desk.at("project/hidden")).unwrap();
        std::fs::set_permissions(
            desk.at("project/hidden"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        desk.file("project/script", "#!/bin/sh\ntrue\n");
        std::fs::set_permissions(
            desk.at("project/script"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        for name in ["hidden", "script"] {
            desk.protect(&desk.at("project").join(name).display().to_string(), Protection::Hide);
        }
        desk.only_outside("cat hidden");
        desk.only_outside("./script");
        desk.sh("./hidden").good();
    }
}
