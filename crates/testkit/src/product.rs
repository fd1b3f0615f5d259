//! The product in a fresh home: run it, wait for it with a limit, and leave no daemon behind.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::agents::Agent;
use crate::container::Container;
use crate::user::{ORDINARY_UID, is_root, ordinary};

/// How long one command may take before it is ended and the test fails.
const LIMIT: Duration = Duration::from_secs(120);

/// Variables of the caller that a run keeps. All others are set here or absent.
const KEPT: [&str; 5] = ["PATH", "LANG", "TERM", "TZ", "RUST_BACKTRACE"];

/// Goes on as a user (the second word) who may open `/dev/fuse`.
const FUSE_FOR_ALL: &str = "\
    set -e; mkdir -p \"$1\"; mount -t tmpfs -o mode=755 tmpfs \"$1\"; mknod \"$1/fuse\" c 10 229; chmod 666 \"$1/fuse\"; \
    mount --bind \"$1/fuse\" /dev/fuse; u=$2; shift 2; exec setpriv --reuid=\"$u\" --regid=\"$u\" --clear-groups -- \"$@\"";

/// What became of a command.
#[derive(Debug, Clone)]
pub struct Done {
    /// The exit status, or 128 + the signal that ended it.
    pub status: i32,
    /// What it wrote to its output.
    pub stdout: String,
    /// What it wrote to its errors.
    pub stderr: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Done {
    /// This outcome, if the status is 0; else the test fails and shows all.
    pub fn ok(self) -> Self {
        self.status_is(0)
    }

    /// This outcome, if the status is as given; else the test fails and shows all.
    pub fn status_is(self, status: i32) -> Self {
        assert!(
            self.status == status,
            "status {} instead of {status} after {:?}\n--- output\n{}\n--- errors\n{}",
            self.status,
            self.elapsed,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// The product with a home of its own. Dropped, it ends its daemon and removes the home.
#[derive(Debug)]
pub struct Bailiwick {
    root: tempfile::TempDir,
    ordinary: bool,
    environment: Vec<(String, String)>,
    container: Option<Container>,
    fuse: bool,
}

impl Bailiwick {
    /// A fresh home, run as whoever runs the test.
    pub fn new() -> Self {
        Self::with_user(false)
    }

    /// A fresh home of an ordinary user: when the test runs as root, all commands run as another user.
    pub fn as_ordinary_user() -> Self {
        Self::with_user(is_root())
    }

    fn with_user(ordinary: bool) -> Self {
        let base = std::env::var_os("BAILIWICK_TEST_SCRATCH").map_or_else(usual_scratch, PathBuf::from);
        let root = tempfile::Builder::new()
            .prefix("bw-")
            .tempdir_in(&base)
            .unwrap_or_else(|fault| panic!("cannot make a folder in {}: {fault}", base.display()));
        let kit = Self {
            root,
            ordinary,
            environment: Vec::new(),
            container: None,
            fuse: false,
        };
        for folder in ["home", "project", "run", "tmp"] {
            std::fs::create_dir(kit.root.path().join(folder)).expect("a fresh folder is writable");
        }
        restrict(&kit.root.path().join("run"));
        kit.hand_over();
        kit
    }

    /// The same, in a container as engines make them by default: every later command, the product's and those outside
    /// any fence, runs in one and the same. See `container`.
    pub fn in_a_container(mut self) -> Self {
        self.container = Some(Container::start());
        self
    }

    /// The same, where every user may open `/dev/fuse`, as most systems have it: where root tests as another user, commands
    /// see a device of their own there.
    pub fn with_fuse(mut self) -> Self {
        self.fuse = true;
        self
    }

    /// The home folder.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The project folder: where commands start.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// A folder beside home and project, for what lies outside of both.
    pub fn outside(&self) -> &Path {
        self.root.path()
    }

    /// Adds a variable to the environment of every later command.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.into(), value.into()));
    }

    /// Writes a file of the project, with its folders.
    pub fn write(&self, path: &str, content: &str) -> PathBuf {
        self.put(&self.project().join(path), content)
    }

    /// Writes a file of the home, with its folders.
    pub fn write_home(&self, path: &str, content: &str) -> PathBuf {
        self.put(&self.home().join(path), content)
    }

    fn put(&self, path: &Path, content: &str) -> PathBuf {
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the folder can be made");
        std::fs::write(path, content).expect("the file can be written");
        self.hand_over();
        path.to_owned()
    }

    /// Gives all that lies here to the user who runs the commands.
    pub fn hand_over(&self) {
        if self.ordinary {
            chown_all(self.root.path());
        }
    }

    /// The path of the product's program.
    pub fn program(&self) -> String {
        product().to_string_lossy().into_owned()
    }

    /// The product with these arguments, in the project, ready to be started. For a terminal or a long run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.outside_command(product());
        let level = level();
        let (first, rest) = match (arguments.split_first(), &level) {
            (Some((&"run", rest)), Some(level)) if !rest.contains(&"--level") => (vec!["run", "--level", level], rest),
            _ => (Vec::new(), arguments),
        };
        command.args(first).args(rest);
        command
    }

    /// Another program in the same home and folder, without any fence: the probe that must succeed first.
    pub fn outside_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = match (&self.container, self.ordinary) {
            (Some(container), ordinary) => container.command(program, ordinary),
            (None, true) if self.fuse => {
                let mut command = Command::new("unshare");
                command
                    .args(["--mount", "sh", "-c", FUSE_FOR_ALL, "sh"])
                    .arg(self.root.path().join("device"))
                    .arg(ORDINARY_UID.to_string())
                    .arg(program);
                command
            }
            (None, true) => ordinary(program),
            (None, false) => Command::new(program),
        };
        let home = self.home();
        command
            .current_dir(self.project())
            .env_clear()
            .envs(KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
            .env("HOME", &home)
            .env("USER", "tester")
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_DATA_HOME", home.join(".local/share"))
            .env("XDG_STATE_HOME", home.join(".local/state"))
            .env("XDG_CACHE_HOME", home.join(".cache"))
            .env("XDG_RUNTIME_DIR", self.root.path().join("run"))
            .env("TMPDIR", self.root.path().join("tmp"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the product with these arguments and no input.
    pub fn run(&self, arguments: &[&str]) -> Done {
        finish(self.command(arguments), LIMIT)
    }

    /// Runs a shell line in the fence: `bailiwick run -q -- sh -c LINE`.
    pub fn shell(&self, line: &str) -> Done {
        self.run(&["run", "-q", "--", "sh", "-c", line])
    }

    /// Runs the same shell line without any fence.
    pub fn shell_outside(&self, line: &str) -> Done {
        let mut command = self.outside_command("sh");
        command.args(["-c", line]);
        finish(command, LIMIT)
    }

    /// Runs an agent in the fence.
    pub fn agent(&self, agent: &Agent) -> Done {
        agent.settle_in(&self.home());
        self.hand_over();
        let mut arguments = vec!["run", "-q", "--"];
        arguments.extend(agent.command.iter().map(String::as_str));
        let mut command = self.command(&arguments);
        command.envs(agent.environment.iter().map(|(name, value)| (name, value)));
        finish(command, LIMIT)
    }

    /// Runs an agent without any fence.
    pub fn agent_outside(&self, agent: &Agent) -> Done {
        agent.settle_in(&self.home());
        self.hand_over();
        let (program, words) = agent.command.split_first().expect("an agent has a program");
        let mut command = self.outside_command(program);
        command
            .args(words)
            .envs(agent.environment.iter().map(|(name, value)| (name, value)));
        finish(command, LIMIT)
    }
}

/// The level of fence that every run of a test names, where one is set for the whole run of the tests
/// (`BAILIWICK_TEST_LEVEL`); else each takes the machine's strongest.
pub fn level() -> Option<String> {
    std::env::var("BAILIWICK_TEST_LEVEL")
        .ok()
        .filter(|level| !level.is_empty())
}

/// True when tests run without namespaces.
pub fn at_level_process() -> bool {
    level().as_deref() == Some("process")
}

/// The product as whoever runs the test, and as an ordinary user. Root has no fence of level `process`.
pub fn kits() -> Vec<Bailiwick> {
    if at_level_process() {
        return vec![Bailiwick::as_ordinary_user()];
    }
    vec![Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

impl Default for Bailiwick {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bailiwick {
    fn drop(&mut self) {
        if product_path().is_file() {
            let mut command = self.command(&["daemon", "stop"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Ok(child) = command.process_group(0).spawn() {
                wait(child, Duration::from_secs(10));
            }
        }
    }
}

/// Where homes lie when nothing else is said: not below `/tmp`, which every fence has for itself.
fn usual_scratch() -> PathBuf {
    let cache = match std::env::var_os("HOME") {
        Some(home) if !is_root() => PathBuf::from(home).join(".cache"),
        _ => PathBuf::from("/var/cache"),
    };
    let folder = cache.join("bailiwick-test");
    std::fs::create_dir_all(&folder).unwrap_or_else(|fault| panic!("cannot make {}: {fault}", folder.display()));
    folder
}

/// Runs a command without input until it ends. Past the limit its process group is ended and the test fails.
pub fn finish(mut command: Command, limit: Duration) -> Done {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|fault| panic!("cannot start {command:?}: {fault}"));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(child, limit);
    let (stdout, stderr) = (gathered(&stdout), gathered(&stderr));
    let Some(status) = status else {
        panic!("{command:?} did not end within {limit:?}\n--- output\n{stdout}\n--- errors\n{stderr}");
    };
    Done {
        status: status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .unwrap_or(-1),
        stdout,
        stderr,
        elapsed: begun.elapsed(),
    }
}

type Gathered = std::sync::Arc<(std::sync::Mutex<(Vec<u8>, bool)>, std::sync::Condvar)>;

fn collect(pipe: Option<impl Read + Send + 'static>) -> Gathered {
    let gathered = Gathered::default();
    let into = std::sync::Arc::clone(&gathered);
    std::thread::spawn(move || {
        let mut buffer = [0u8; 16 * 1024];
        let mut pipe = pipe;
        while let Some(length) = pipe.as_mut().and_then(|pipe| pipe.read(&mut buffer).ok())
            && length > 0
        {
            let mut state = into.0.lock().expect("no thread panics with the bytes");
            state.0.extend_from_slice(&buffer[..length]);
        }
        into.0.lock().expect("no thread panics with the bytes").1 = true;
        into.1.notify_all();
    });
    gathered
}

/// What came until the pipe ended, or until two seconds after the command did: a daemon may have inherited the pipe.
fn gathered(gathered: &Gathered) -> String {
    let state = gathered.0.lock().expect("no thread panics with the bytes");
    let (state, _) = gathered
        .1
        .wait_timeout_while(state, Duration::from_secs(2), |state| !state.1)
        .expect("no thread panics with the bytes");
    String::from_utf8_lossy(&state.0).into_owned()
}

fn wait(mut child: Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() >= end {
            let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The product's program: `BAILIWICK_BIN`, or the one built beside this test.
fn product_path() -> PathBuf {
    if let Some(path) = std::env::var_os("BAILIWICK_BIN").or_else(|| std::env::var_os("NEXTEST_BIN_EXE_bailiwick")) {
        return path.into();
    }
    // A test lies in target/PROFILE/deps, a measurement in target/PROFILE.
    let own = std::env::current_exe().expect("a program knows its own path");
    let mut folder = own.parent().expect("a program lies in a folder");
    if folder.ends_with("deps") {
        folder = folder.parent().unwrap_or(folder);
    }
    folder.join("bailiwick")
}

fn product() -> PathBuf {
    let path = product_path();
    assert!(
        path.is_file(),
        "the product is not built at {}: run cargo build, or set BAILIWICK_BIN",
        path.display()
    );
    path
}

fn restrict(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).expect("a fresh folder takes a mode");
}

/// Gives a folder and all in it to the ordinary user, without following links.
fn chown_all(path: &Path) {
    let _ = std::os::unix::fs::lchown(path, Some(ORDINARY_UID), Some(ORDINARY_UID));
    let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    if let Ok(entries) = std::fs::read_dir(path)
        && is_folder
    {
        entries.flatten().for_each(|entry| chown_all(&entry.path()));
    }
}
