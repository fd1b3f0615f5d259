//! Tries what a fence is to stop, one thing a time. Ends with 0 when it succeeded, with 1 when it did not, and says
//! what the kernel answered.
#![expect(unsafe_code, reason = "raw system calls are what is probed")]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;

use libc::c_long;

/// Makes a system call with numbers alone; true when the kernel took it up: it worked, or it failed over its arguments.
fn call(number: c_long, arguments: [c_long; 4]) -> bool {
    let [a, b, c, d] = arguments;
    // SAFETY: every pointer among the arguments is null or points to static memory.
    let done = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    let error = std::io::Error::last_os_error();
    if done >= 0 {
        return true;
    }
    eprintln!("{error}");
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EFAULT | libc::ENOTTY | libc::ENOKEY | libc::EBADF)
    )
}

fn number(text: Option<&String>) -> c_long {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn address_of(bytes: &'static [u64]) -> c_long {
    bytes.as_ptr().expose_provenance() as c_long
}

fn socket(family: c_long, kind: c_long, protocol: c_long) -> bool {
    // SAFETY: no pointers.
    let done = unsafe { libc::syscall(libc::SYS_socket, family, kind, protocol) };
    eprintln!("{}", std::io::Error::last_os_error());
    done >= 0
}

fn forks(count: c_long) -> bool {
    for _ in 0..count {
        // SAFETY: this process has one thread; the child only waits for its end.
        let child = unsafe { libc::fork() };
        if child < 0 {
            eprintln!("{}", std::io::Error::last_os_error());
            return false;
        }
        if child == 0 {
            // SAFETY: waits for any signal, then leaves.
            unsafe {
                libc::pause();
                libc::_exit(0)
            };
        }
    }
    // SAFETY: ends the children, which are of this process's group; this process ignores the signal.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::kill(0, libc::SIGTERM);
    }
    true
}

fn memory(megabytes: c_long) -> bool {
    let bytes = usize::try_from(megabytes).unwrap_or(0) * 1024 * 1024;
    let mut space: Vec<u8> = Vec::new();
    if space.try_reserve_exact(bytes).is_err() {
        return false;
    }
    space.resize(bytes, 1);
    space.iter().step_by(4096).map(|byte| usize::from(*byte)).sum::<usize>() > 0
}

fn connect(address: std::io::Result<SocketAddr>) -> bool {
    match address.and_then(|address| UnixStream::connect_addr(&address)) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}

fn tcp(port: &str) -> bool {
    let said = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}"))?;
        stream.write_all(b"ping")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    match said() {
        Ok(text) => {
            println!("{text}");
            true
        }
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}

/// A gate confines itself and then tries what it must not.
fn gate(secret: &str, listed: &str) -> bool {
    let open = |path: &str| std::fs::read(path).is_ok();
    let start = || {
        std::process::Command::new("/bin/true")
            .status()
            .is_ok_and(|status| status.success())
    };
    if !(open(secret) && open(listed) && start()) {
        eprintln!("the probes must succeed before");
        return false;
    }
    if let Err(fault) = bailiwick_fence::confine_gate(&[listed.into()]) {
        eprintln!("{fault}");
        return false;
    }
    let thread = std::thread::spawn(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
        let address = listener.local_addr().ok()?;
        std::net::TcpStream::connect(address).ok()
    });
    let talks = thread.join().is_ok_and(|stream| stream.is_some());
    let writes = std::fs::write(format!("{listed}.new"), "x").is_ok() || std::fs::write(listed, "x").is_ok();
    let removes = std::fs::remove_file(listed).is_ok();
    let changes = call(libc::SYS_fchmodat, [-100, address_of(&[0]), 0, 0]);
    let traces = call(libc::SYS_ptrace, [0, 0, 0, 0]);
    let all = [
        open(listed),
        talks,
        !open(secret),
        !start(),
        !writes,
        !removes,
        !changes,
        !traces,
    ];
    eprintln!("{all:?}");
    all.iter().all(|one| *one)
}

/// Starts programs again and again, while another thread changes path and words: `true` or `touch`, `other` or `marker`.
fn race_start(tries: c_long) -> bool {
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
    static PATH: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static WORDS: [AtomicPtr<libc::c_char>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];
    static DONE: AtomicBool = AtomicBool::new(false);
    static NONE: [usize; 1] = [0];
    let (touch, truly) = (u64::from_ne_bytes(*b"/touch\0\0"), u64::from_ne_bytes(*b"/true\0\0\0"));
    PATH[0].store(u64::from_ne_bytes(*b"/usr/bin"), Relaxed);
    PATH[1].store(touch, Relaxed);
    WORDS[0].store(c"touch".as_ptr().cast_mut(), Relaxed);
    WORDS[1].store(c"other".as_ptr().cast_mut(), Relaxed);
    let changing = std::thread::spawn(move || {
        let mut turn = 0_u32;
        while !DONE.load(Relaxed) {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let word = if turn & 0x1_0000 == 0 { c"other" } else { c"marker" };
            WORDS[1].store(word.as_ptr().cast_mut(), Relaxed);
            PATH[1].store(if turn & 0x2_0000 == 0 { touch } else { truly }, Relaxed);
            for _ in 0..(turn >> 22) {
                std::hint::spin_loop();
            }
        }
    });
    for _ in 0..tries {
        // SAFETY: the child shares this memory until it starts a program or ends, and does nothing else; the arrays are
        // static and hold addresses of static texts, the last of them none.
        unsafe {
            #[expect(deprecated, reason = "memory must be shared with a thread that goes on")]
            let child = libc::vfork();
            if child == 0 {
                let words = (&raw const WORDS).cast::<*const libc::c_char>();
                libc::execve((&raw const PATH).cast(), words, (&raw const NONE).cast());
                libc::_exit(1);
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    DONE.store(true, Relaxed);
    changing.join().is_ok()
}

/// Makes files again and again, while another thread changes the name: `x/guarde` or `x/harmle`.
fn race_name(tries: c_long) -> bool {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    static NAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static DONE: AtomicBool = AtomicBool::new(false);
    let harmless = u64::from_ne_bytes(*b"x/harmle");
    NAME[0].store(harmless, Relaxed);
    let changing = std::thread::spawn(move || {
        let mut turn = 0_u32;
        while !DONE.load(Relaxed) {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let name = if turn & 0x1_0000 == 0 {
                harmless
            } else {
                u64::from_ne_bytes(*b"x/guarde")
            };
            NAME[0].store(name, Relaxed);
            for _ in 0..(turn >> 22) {
                std::hint::spin_loop();
            }
        }
    });
    let mut made = 0;
    for _ in 0..tries {
        // SAFETY: the name is static and ends with NUL.
        unsafe {
            let file = libc::open((&raw const NAME).cast(), libc::O_CREAT | libc::O_WRONLY, 0o600);
            if file >= 0 {
                made += 1;
                libc::close(file);
                libc::unlink(c"x/harmle".as_ptr());
            }
        }
    }
    DONE.store(true, Relaxed);
    changing.join().is_ok() && made > 0
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let first = args.get(1);
    let word = first.map_or("", String::as_str);
    static ZEROS: [u64; 64] = [0; 64];
    let worked = match args.first().map_or("", String::as_str) {
        "unshare" => call(libc::SYS_unshare, [c_long::from(libc::CLONE_NEWUSER), 0, 0, 0]),
        "clone" => {
            // SAFETY: a fork into a new user namespace; the child leaves at once.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0) };
            if child == 0 {
                // SAFETY: leaves.
                unsafe { libc::_exit(0) };
            }
            child > 0
        }
        "clone3" => call(libc::SYS_clone3, [0, 0, 0, 0]),
        "setns" => call(libc::SYS_setns, [-1, 0, 0, 0]),
        "mount" => call(libc::SYS_mount, [0, 0, 0, 0]),
        "pivot" => call(libc::SYS_pivot_root, [0, 0, 0, 0]),
        "io-uring" => call(libc::SYS_io_uring_setup, [0, 0, 0, 0]),
        "bpf" => call(libc::SYS_bpf, [9999, 0, 0, 0]),
        "perf" => call(libc::SYS_perf_event_open, [0, 0, -1, -1]),
        "keyctl" => call(libc::SYS_keyctl, [0, -3, 0, 0]),
        "add-key" => call(libc::SYS_add_key, [0, 0, 0, 0]),
        "userfaultfd" => call(libc::SYS_userfaultfd, [1, 0, 0, 0]),
        "handle" => call(libc::SYS_open_by_handle_at, [-100, 0, 0, 0]),
        "tiocsti" => call(libc::SYS_ioctl, [0, 0x5412, address_of(&ZEROS), 0]),
        // The kernel looks at the lower half alone.
        "tiocsti-wide" => call(libc::SYS_ioctl, [0, 0x1_0000_5412, address_of(&ZEROS), 0]),
        "tioclinux" => call(libc::SYS_ioctl, [0, 0x541c, address_of(&ZEROS), 0]),
        "personality" => call(libc::SYS_personality, [number(first), 0, 0, 0]),
        "socket" => socket(number(first), number(args.get(2)), number(args.get(3))),
        // SAFETY: no pointers.
        "setuid" => unsafe { libc::syscall(libc::SYS_setuid, number(first)) == 0 },
        "kill" => call(libc::SYS_kill, [number(first), 0, 0, 0]),
        "ptrace" => call(libc::SYS_ptrace, [16, number(first), 0, 0]),
        "abstract" => connect(SocketAddr::from_abstract_name(word)),
        "named" => connect(SocketAddr::from_pathname(word)),
        "tcp" => tcp(word),
        "forks" => forks(number(first)),
        "memory" => memory(number(first)),
        "race-start" => race_start(number(first)),
        "race-name" => race_name(number(first)),
        "gate" => gate(word, args.get(2).map_or("", String::as_str)),
        "caller" => {
            let changed = bailiwick_fence::become_caller_under_sudo();
            println!(
                "{} {}",
                rustix::process::getuid().as_raw(),
                rustix::process::getegid().as_raw()
            );
            // SAFETY: no pointers. Root must be out of reach.
            matches!(changed, Ok(true)) && unsafe { libc::setuid(0) } != 0
        }
        "survey" => {
            println!("{:#?}", bailiwick_fence::doctor::survey());
            true
        }
        other => {
            eprintln!("`{other}` is no probe");
            return ExitCode::from(2);
        }
    };
    if worked { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
