//! Where things lie: one file names every folder and file that Bailiwick keeps for a person.
//!
//! See: XDG Base Directory Specification. State: `~/.local/state/bailiwick`; rules: `~/.config/bailiwick`,
//! `/etc/bailiwick`. Both are mounted in no fence, and a shipped rule denies them.

use std::path::{Path, PathBuf};

use bailiwick_model::AbsPath;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;

/// The folders of one person.
#[derive(Debug, Clone)]
pub struct Places {
    /// The home folder.
    pub home: AbsPath,
    /// What is kept: log, keys, store, socket.
    pub state: PathBuf,
    /// The person's rules.
    pub config: PathBuf,
}

/// The daemon's socket, in the state folder.
const SOCKET: &str = "daemon.sock";

/// The console's socket, in the state folder.
const CONSOLE_SOCKET: &str = "console.sock";

/// Longest path of a socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// The machine's rules.
pub const MACHINE_RULES: &str = "/etc/bailiwick";

impl Places {
    /// Finds the folders from the environment.
    pub fn find() -> Result<Self, Failure> {
        let home = home_folder()?;
        let under = |variable: &str, default: &str| match std::env::var_os(variable) {
            Some(value) if Path::new(&value).is_absolute() => PathBuf::from(value).join("bailiwick"),
            _ => home.to_path_buf().join(default).join("bailiwick"),
        };
        Ok(Self {
            state: under("XDG_STATE_HOME", ".local/state"),
            config: under("XDG_CONFIG_HOME", ".config"),
            home,
        })
    }

    /// Makes the state folder, for its owner alone.
    pub fn make_state(&self) -> Result<(), Failure> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
        let refuse = |cause: String| {
            Failure::fault(format!(
                "cannot use the state folder `{}`: {cause}",
                self.state.display()
            ))
            .hint("it must be a folder of your own that can be written; XDG_STATE_HOME can name another place")
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.state)
            .map_err(|e| refuse(e.to_string()))?;
        let found = std::fs::metadata(&self.state).map_err(|e| refuse(e.to_string()))?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(refuse("it belongs to another user".into()));
        }
        if found.mode() & 0o077 != 0 {
            std::fs::set_permissions(&self.state, std::fs::Permissions::from_mode(0o700))
                .map_err(|e| refuse(e.to_string()))?;
        }
        rustix::process::umask(Mode::from_raw_mode(0o077));
        Ok(())
    }

    /// The socket on which the daemon hears the person.
    pub fn socket(&self) -> PathBuf {
        self.state.join(SOCKET)
    }

    /// Calls with a path to that socket that is short enough for one.
    pub fn at_socket<T>(&self, call: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
        self.at(SOCKET, call)
    }

    /// The socket on which a console that runs is asked for a link.
    pub fn console_socket(&self) -> PathBuf {
        self.state.join(CONSOLE_SOCKET)
    }

    /// Calls with a path to that socket that is short enough for one.
    pub fn at_console_socket<T>(&self, call: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
        self.at(CONSOLE_SOCKET, call)
    }

    /// Held by the one console.
    pub fn console_lock(&self) -> PathBuf {
        self.state.join("console.lock")
    }

    /// The page that sends a browser on to a console's link, for as long as the link can be used.
    pub fn console_page(&self) -> PathBuf {
        self.state.join("console.html")
    }

    /// A socket's path that is short enough for one: the kernel takes 107 bytes (unix(7)), and a long state folder is reached
    /// by an open descriptor of it instead.
    fn at<T>(&self, name: &str, call: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        let path = self.state.join(name);
        if path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH {
            return call(&path);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.state, flags, Mode::empty())?;
        call(&PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())))
    }

    /// Held by the one daemon.
    pub fn lock(&self) -> PathBuf {
        self.state.join("daemon.lock")
    }

    /// What the daemon has to say for itself.
    pub fn daemon_talk(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// The log's folder.
    pub fn log(&self) -> PathBuf {
        self.state.join("log")
    }

    /// The key that signs the log.
    pub fn log_key(&self) -> PathBuf {
        self.state.join("keys").join("log.key")
    }

    /// The public half, for whoever verifies.
    pub fn log_verifier(&self) -> PathBuf {
        self.state.join("keys").join("log.pub")
    }

    /// The state of the person, also where a run has its own mediator.
    fn persons_state(&self) -> &Path {
        let state = self.state.ancestors().find(|folder| folder.ends_with("bailiwick"));
        state.unwrap_or(&self.state)
    }

    /// The logins that contexts share.
    pub fn logins(&self) -> PathBuf {
        self.persons_state().join("logins")
    }

    /// Refresh tokens that took the place of those that the person keeps elsewhere.
    pub fn renewed(&self) -> PathBuf {
        self.persons_state().join("renewed")
    }

    /// What was last read of people from addresses.
    pub fn relations(&self) -> PathBuf {
        self.persons_state().join("relations")
    }

    /// The login of one agent, by its profile.
    pub fn login(&self, agent: &str) -> PathBuf {
        self.logins().join(agent)
    }

    /// Where agents sign in: a folder for each to run in, with no project.
    pub fn sign_ins(&self) -> PathBuf {
        self.home.to_path_buf().join(".local/share/bailiwick/sign-in")
    }

    /// What a context keeps of its own: one folder for each root. A run with its own mediator has the person's.
    pub fn context(&self, root: &AbsPath) -> PathBuf {
        let name = hex::encode(Sha256::digest(root.as_str()));
        let name = name.get(..32).unwrap_or(&name);
        self.persons_state().join("contexts").join(name)
    }

    /// What one of its servers keeps, or where none is named the context itself. No name of a server leads elsewhere.
    pub fn kept(&self, root: &AbsPath, server: Option<&str>) -> PathBuf {
        let context = self.context(root);
        match server {
            Some(name) => context.join("servers").join(name),
            None => context,
        }
    }

    /// Trust and tasks.
    pub fn store(&self) -> PathBuf {
        self.state.join("store.sqlite")
    }
}

/// Something that lies somewhere.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where.
    pub path: PathBuf,
    /// What it is, in a few words.
    pub what: &'static str,
    /// True for what is made anew when it is gone, and holds nothing that a person would miss.
    pub anew: bool,
}

impl Places {
    /// All that there may be, in the order in which people ask for it.
    pub fn all(&self) -> Vec<Place> {
        let place = |path: PathBuf, what, anew| Place { path, what, anew };
        let state = |name: &str| self.state.join(name);
        vec![
            place(self.config.clone(), "your rules", false),
            place(MACHINE_RULES.into(), "the machine's rules", false),
            place(self.log(), "the log", false),
            place(state("keys"), "the log's keys", false),
            place(state("contexts"), "what agents keep, by project", false),
            place(state("logins"), "logins of agents, shared by their projects", false),
            place(state("renewed"), "logins that were renewed", false),
            place(state("relations"), "what was last read of people", true),
            place(self.sign_ins(), "where agents sign in", true),
            place(state("standalone"), "logs of `--standalone` runs", false),
            place(state("approvers.json"), "who else may answer for you", false),
            place(state("approver-suspended"), "why your own approver is not asked", false),
            place(self.store(), "which rule files you trust, and tasks", true),
            place(state("store.sqlite-wal"), "what is being written of it", true),
            place(state("store.sqlite-shm"), "what is being written of it", true),
            place(self.socket(), "where the daemon hears you", true),
            place(self.lock(), "held by the daemon", true),
            place(self.daemon_talk(), "what the daemon says", true),
            place(self.console_socket(), "where a console is asked for links", true),
            place(self.console_lock(), "held by the console", true),
            place(self.console_page(), "what opens a browser for the console", true),
        ]
    }
}

fn home_folder() -> Result<AbsPath, Failure> {
    let fail = || Failure::usage("the home folder is not known").hint("set HOME to an absolute path");
    match std::env::var_os("HOME") {
        Some(home) if Path::new(&home).is_absolute() => AbsPath::new(home).map_err(|_| fail()),
        _ => account().map(|account| account.home).ok_or_else(fail),
    }
}

/// One line of the user database.
#[derive(Debug, Clone)]
pub struct Account {
    /// The user's name.
    pub name: String,
    /// The user's home folder.
    pub home: AbsPath,
}

/// The account of the user that this process runs as, from `/etc/passwd` (see passwd(5)).
pub fn account() -> Option<Account> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        let home = fields.nth(2)?;
        (id == uid).then_some(())?;
        Some(Account {
            name: name.into(),
            home: AbsPath::new(home).ok()?,
        })
    })
}
