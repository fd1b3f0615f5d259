//! The world that the bait is laid in, made anew for each attempt, and what it looked like before.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bailiwick_probe::World;
use bailiwick_testkit::{Bailiwick, is_root};

use crate::ears::{self, Heard, Manner};

/// The user that owns no other process.
const NOBODY_ELSE: u32 = 4243;

/// One world, with those who listen in it.
pub struct Laid {
    pub kit: Bailiwick,
    pub world: World,
    pub heard: Heard,
    pub secret: String,
    pub is_root: bool,
    keeper: Child,
    template: PathBuf,
    terminal: Terminal,
}

/// Names, clouds' logins and a server that rebinds: once for all worlds of a test.
pub struct Internet {
    heard: Heard,
    rebound: u16,
}

impl Internet {
    pub fn start() -> Self {
        let heard = Heard::default();
        ears::names("192.0.2.53:53", &heard);
        ears::streams("169.254.169.254:80", &heard, Manner::Http);
        ears::streams("127.0.0.1:80", &heard, Manner::Http);
        let rebound = ears::streams("127.0.0.1:0", &heard, Manner::Http);
        ears::streams(&format!("93.184.215.14:{rebound}"), &heard, Manner::Honest);
        Self { heard, rebound }
    }
}

/// A process that is not to be touched.
pub struct Victim {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    pid: i32,
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn random() -> String {
    let mut bytes = [0u8; 9];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An address of this machine that is not loopback. No packet is sent.
fn own_address() -> Option<Ipv4Addr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()?.ip() {
        std::net::IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

const PRESENT: &[&str] = &[
    ".git/hooks/pre-commit",
    ".git/modules/sub/hooks/post-update",
    ".husky/pre-commit",
    ".envrc",
    ".vscode/tasks.json",
    ".devcontainer/devcontainer.json",
    ".mcp.json",
    ".claude/settings.json",
    ".claude/hooks/pre-tool",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".cursor/mcp.json",
    ".github/workflows/check.yml",
    ".gitlab-ci.yml",
    "plain.txt",
];

impl Laid {
    /// Lays one. Where names and addresses are the test's own, those who answer for them are given.
    pub fn lay(mut kit: Bailiwick, internet: Option<&Internet>) -> Self {
        let heard = internet.map_or_else(Heard::default, |internet| internet.heard.clone());
        let rebound = internet.map_or(0, |internet| internet.rebound);
        let internet = internet.is_some();
        let secret = format!("BAIT-{}", random());
        let outside = kit.outside().to_owned();
        kit.set("BAIT_TOKEN", &secret);
        kit.set("AWS_SECRET_ACCESS_KEY", &secret);
        kit.set("XDG_STATE_HOME", &outside.join("state").display().to_string());
        let beside = outside.join("beside");
        let tag = random();
        let shared = ["/tmp", "/var/tmp", "/dev/shm"].map(|folder| PathBuf::from(folder).join(format!("bw-{tag}")));
        let names = ["stream", "datagram", "packets"].map(|kind| format!("bw-{tag}-{kind}"));
        ears::at_names(&names, &heard);
        let origin = ears::streams("127.0.0.1:0", &heard, Manner::Http);
        let world = World {
            project: kit.project(),
            home: kit.home(),
            state: outside.join("state/bailiwick"),
            shared,
            ports: [
                ears::streams("[::]:0", &heard, Manner::Plain),
                ears::datagrams("[::]:0", &heard),
            ],
            sockets: [
                beside.join("socket"),
                kit.project().join("near"),
                beside.join("datagrams"),
            ],
            names,
            own_address: if internet {
                Some(Ipv4Addr::new(192, 0, 2, 7))
            } else {
                own_address()
            },
            origin,
            pinned: ears::streams("[::]:0", &heard, Manner::Plain),
            rebound,
            internet,
            beside,
            ..World::default()
        };
        let program = probe();
        let mut keeper = kit.outside_command(&program);
        keeper
            .arg("keeper")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        let (key, queue) = said.trim().split_once(' ').expect("the keeper says a key and a name");
        let terminal = Terminal::open(&heard);
        let mut laid = Self {
            template: outside.join("template"),
            is_root: fs::metadata(kit.project()).unwrap().uid() == 0,
            world: World {
                keys: [key.parse().unwrap(); 3],
                queue: queue.into(),
                terminal: terminal.path.clone(),
                ..world
            },
            kit,
            heard,
            secret,
            keeper,
            terminal,
        };
        laid.first(&program);
        laid
    }

    /// What is the same for every attempt.
    fn first(&mut self, program: &Path) {
        let world = &self.world;
        fs::create_dir_all(world.beside.join("folder")).unwrap();
        self.kit.hand_over();
        let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git worktree add -q tree \
                   && git init -q nested && mkdir -p .git/modules/sub && cp .git/config .git/modules/sub/config";
        self.kit.shell_outside(git).ok();
        for name in PRESENT {
            put(&world.project.join(name), "of the person\n");
        }
        put(
            &world.project.join("nested/.git/hooks/post-checkout"),
            "of the person\n",
        );
        for name in [".env", "deep/er/.env", "deep/.env.production"] {
            put(&world.project.join(name), &format!("TOKEN={}\n", self.secret));
        }
        let rules = format!(
            "extends = [\"coding\"]\n[network]\nallow = [\"GET http://127.0.0.1:{}/ok/**\", \"GET http://rebound.test:{1}/**\", \"GET http://both.test:{1}/**\"]\n\
             tunnel = [\"pinned.test:{2}\"]\n[network.hosts]\n\"pinned.test\" = \"{3}\"\n",
            world.origin,
            world.rebound.max(1),
            world.pinned,
            if world.internet { "93.184.215.14" } else { "127.0.0.1" }
        );
        put(&world.project.join("bailiwick.toml"), &rules);
        fs::copy(program, world.project.join("probe")).unwrap();
        put(&world.project.join("laid/set-id"), "x");
        let home = self.template.join("home");
        for (name, content) in [
            (".bashrc", "# of the person\n"),
            (".gitconfig", "[user]\n\tname = a\n"),
            (".config/bailiwick/mine.toml", "[files]\ndeny = [\"~/Pictures\"]\n"),
            (".local/bin/tool", "a tool that is read\n"),
        ] {
            put(&home.join(name), content);
        }
        for name in [
            "diary",
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".bash_history",
            ".git-credentials",
        ] {
            put(&home.join(name), &self.secret);
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&world.project)
            .arg(self.template.join("project"))
            .status();
        assert!(copied.unwrap().success());
        self.anew(false);
        self.kit.run(&["trust"]).ok();
    }

    /// Lays all of it again, as at the first time; those who listen at paths, only for attempts on them.
    pub fn anew(&self, listening: bool) {
        let world = &self.world;
        let away = world.state.with_extension("away");
        if away.exists() {
            let _ = fs::remove_dir_all(&world.state);
            fs::rename(&away, &world.state).unwrap();
        }
        for folder in [&world.project, &world.home, &world.beside] {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                let _ = if path.symlink_metadata().unwrap().is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
            }
        }
        fs::create_dir_all(&world.state).unwrap();
        put(&world.state.join("bait"), &self.secret);
        put(&world.beside.join("secret"), &self.secret);
        for path in &world.shared {
            put(path, &self.secret);
        }
        let own = self.kit.project();
        for (from, to) in [("project", &world.project), ("home", &world.home)] {
            let from = self.template.join(from).join(".");
            let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
            assert!(done.success());
        }
        let laid = world.project.join("laid");
        for (name, target) in [
            ("to-secret", world.beside.join("secret")),
            ("to-beside", world.beside.clone()),
            ("to-relative", "../../beside/secret".into()),
            ("to-chain", "to-secret".into()),
            ("to-root", "/".into()),
            ("to-environ", format!("/proc/{}/environ", world.victim).into()),
            ("to-tmp", world.shared[0].clone()),
            ("to-hidden", "../.env".into()),
            ("to-config", "../.git/config".into()),
            ("to-nothing", world.beside.join("not-yet")),
            ("to-socket", world.sockets[0].clone()),
        ] {
            symlink(target, laid.join(name)).unwrap();
        }
        fs::hard_link(own.join(".env"), laid.join("other-name")).unwrap();
        fs::hard_link(own.join(".git/hooks/pre-commit"), laid.join("other-hook")).unwrap();
        fs::hard_link(own.join(".env"), world.home.join(".local/bin/other-name")).unwrap();
        if listening {
            ears::at_path(&world.sockets[0], &self.heard);
            ears::at_path(&world.sockets[1], &self.heard);
            ears::at_path_for_datagrams(&world.sockets[2], &self.heard);
            fs::create_dir_all(world.home.join(".desk")).unwrap();
            ears::at_path(&world.home.join(".desk/bus"), &self.heard);
        }
        self.kit.hand_over();
        // Giving a file away takes the bit from it.
        let _ = fs::set_permissions(laid.join("set-id"), fs::Permissions::from_mode(0o4755));
        if !self.is_root && is_root() {
            for path in &world.shared {
                let owner = bailiwick_testkit::ORDINARY_UID;
                std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
            }
        }
    }

    /// A victim, and the world that knows it.
    pub fn with_victim(&mut self, apart: bool) -> Victim {
        let mut command = self.kit.outside_command(probe());
        if apart {
            let environment: Vec<_> = command
                .get_envs()
                .map(|(n, v)| (n.to_owned(), v.map(ToOwned::to_owned)))
                .collect();
            command = as_nobody_else(probe());
            command.env_clear();
            command.envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))));
            command.env("TMPDIR", "/var/tmp");
        }
        let folder = if apart { Path::new("/") } else { &self.world.beside };
        command
            .args(["victim", &self.secret])
            .current_dir(folder)
            .process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        output.read_line(&mut said).unwrap();
        let numbers: Vec<u64> = said
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        let [own, address, lever] = numbers[..] else {
            panic!("the victim says three numbers, not {said:?}")
        };
        self.world.victim = i32::try_from(own).unwrap();
        self.world.address = address;
        self.world.lever = lever;
        // In a container it has another number there than here.
        let pid = seen_here(child.id(), &self.secret);
        Victim { child, output, pid }
    }

    /// What stands at a place: every name below it, with what can be seen of each.
    pub fn look(&self, place: &str) -> BTreeMap<PathBuf, String> {
        let mut seen = BTreeMap::new();
        look_at(&self.world.place(place), &mut seen);
        seen
    }

    /// True when a word was heard, or typed at the other terminal.
    pub fn is_heard(&self, word: &str) -> bool {
        let mut typed = [0u8; 1024];
        let wait = rustix::fs::OFlags::NONBLOCK;
        let _ = rustix::fs::fcntl_setfl(&self.terminal.held, wait);
        if let Ok(got) = std::io::Read::read(&mut &self.terminal.held, &mut typed) {
            self.heard.add(&typed[..got]);
        }
        self.heard.has(word)
    }

    /// True when a place has a bit with which it runs as its owner or group.
    pub fn has_bit(&self, place: &str) -> bool {
        fs::symlink_metadata(self.world.place(place)).is_ok_and(|found| found.mode() & 0o6000 != 0)
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        for path in &self.world.shared {
            let _ = fs::remove_file(path);
        }
        for path in ["/etc", "/usr/local/bin", "/", "/var/spool"] {
            let _ = fs::remove_file(Path::new(path).join("bailiwick-probe-made"));
        }
    }
}

/// The number that the victim has here, when this process was started to become it, or to start it in a container.
fn seen_here(started: u32, secret: &str) -> i32 {
    let started = i32::try_from(started).unwrap();
    let is_victim = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.ends_with(&format!("victim\0{secret}\0")) && line.matches('\0').count() == 3
    };
    let mut line = vec![started];
    while let Some(pid) = line.pop() {
        if is_victim(pid) {
            return pid;
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        line.extend(
            children
                .split_whitespace()
                .filter_map(|child| child.parse::<i32>().ok()),
        );
    }
    panic!("the victim is nowhere below {started}")
}

/// A command of the user that owns no other process.
pub fn as_nobody_else(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY_ELSE}"), format!("--regid={NOBODY_ELSE}")]);
    command.args(["--clear-groups", "--"]).arg(program);
    command
}

fn look_at(path: &Path, seen: &mut BTreeMap<PathBuf, String>) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let content = if found.is_file() {
        fs::read(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    } else {
        fs::read_link(path)
            .map(|target| target.display().to_string())
            .unwrap_or_default()
    };
    let mut names = [0u8; 1024];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    // A folder's times change with its names, which are looked at themselves.
    let times = if found.is_dir() {
        0
    } else {
        found.mtime_nsec() + found.mtime()
    };
    seen.insert(
        path.into(),
        format!(
            "{:o} {} {} {times} {names} {content}",
            found.mode(),
            found.uid(),
            found.gid()
        ),
    );
    if found.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            look_at(&entry.path(), seen);
        }
    }
}

impl Victim {
    /// What others could have changed of it.
    pub fn look(&mut self) -> String {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.pid)).unwrap_or_default();
        let status = read("status");
        let state = status
            .lines()
            .find(|line| line.starts_with("State:"))
            .unwrap_or("gone")
            .to_owned();
        // Asleep and about to run are the same.
        let state = state
            .replace("R (running)", "S (sleeping)")
            .replace("D (disk sleep)", "S (sleeping)");
        let allowed = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"))
            .unwrap_or("")
            .to_owned();
        let stat = read("stat");
        let after = stat.rsplit(") ").next().unwrap_or_default().to_owned();
        let fields: Vec<&str> = after.split(' ').collect();
        let pick = |place: usize| fields.get(place).copied().unwrap_or("").to_owned();
        // proc_pid_stat(5): priority, nice, then far behind the scheduler's policy.
        let rank = [pick(15), pick(16), pick(37), pick(38)].join(" ");
        let disk = Command::new("ionice")
            .args(["-p", &self.pid.to_string()])
            .output()
            .map(|done| done.stdout)
            .unwrap_or_default();
        let mut all = vec![
            state.clone(),
            allowed,
            rank,
            read("limits"),
            read("oom_score_adj"),
            read("coredump_filter"),
        ];
        all.push(String::from_utf8_lossy(&disk).into_owned());
        if state.contains("S (sleeping)") {
            let mut word = String::new();
            if let Some(input) = &mut self.child.stdin
                && writeln!(input).is_ok()
            {
                let _ = self.output.read_line(&mut word);
            }
            all.push(word);
        }
        all.join("\n")
    }

    /// Ends it.
    pub fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The probe's program, as it was built.
pub fn probe() -> PathBuf {
    std::env::var_os("NEXTEST_BIN_EXE_bailiwick-probe")
        .map_or_else(|| env!("CARGO_BIN_EXE_bailiwick-probe").into(), PathBuf::from)
}

/// A terminal of the person, with nobody at it.
pub struct Terminal {
    path: PathBuf,
    held: fs::File,
}

impl Terminal {
    pub fn open(heard: &Heard) -> Self {
        let (master, path, held) = pair();
        let heard = heard.clone();
        std::thread::spawn(move || {
            let mut master = master;
            let mut buffer = [0u8; 1024];
            while let Ok(got @ 1..) = std::io::Read::read(&mut master, &mut buffer) {
                heard.add(&buffer[..got]);
            }
        });
        Self { path, held }
    }
}

/// A new terminal: its two ends, and its name. Everyone may open it, as the person's own programs may.
pub fn pair() -> (fs::File, PathBuf, fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let path = PathBuf::from(name);
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let slave = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o666));
    (fs::File::from(master), path, fs::File::from(slave))
}
