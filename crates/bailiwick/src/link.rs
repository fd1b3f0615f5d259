//! The way from a command to the daemon: connects, and starts a daemon where none answers.

use std::io::{BufRead, BufReader};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_fence::Channel;
use bailiwick_gate::desk::Asked;

use crate::failure::Failure;
use crate::places::Places;
use crate::protocol::{PROTOCOL, PersonAnswer, PersonCall, build};

/// How long a daemon may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the daemon.
#[derive(Debug)]
pub struct Link {
    channel: Channel,
    /// How many tasks ran when the connection was made.
    tasks: usize,
    /// Its build, and the version of its frames.
    build: String,
    protocol: u32,
}

impl Link {
    /// Connects to the daemon that runs; none when there is none. One that speaks other frames is a failure.
    pub fn to_running(places: &Places) -> Result<Option<Self>, Failure> {
        Self::to_any(places)?.map(Self::of_these_frames).transpose()
    }

    /// Connects to the daemon that runs, whatever frames it speaks: [`stop`](Self::stop) is the same in all.
    pub fn to_any(places: &Places) -> Result<Option<Self>, Failure> {
        let path = places.socket();
        let socket = match places.at_socket(|path| UnixStream::connect(path)) {
            Ok(socket) => socket,
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(e) => {
                return Err(Failure::fault(format!(
                    "cannot reach the daemon at `{}`: {e}",
                    path.display()
                )));
            }
        };
        Self::greet(socket).map(Some)
    }

    /// Connects to another person's daemon, by the socket for approvers.
    pub fn at(socket: &std::path::Path) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| {
            Failure::fault(format!("cannot reach `{}`: {e}", socket.display()))
                .hint("whose questions these are must have enrolled you: `bailiwick approver add NAME --user YOU`")
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        Self::greet(stream)?.of_these_frames()
    }

    fn greet(socket: UnixStream) -> Result<Self, Failure> {
        let mut link = Self {
            channel: Channel::over(socket.into()),
            tasks: 0,
            build: String::new(),
            protocol: PROTOCOL,
        };
        link.say(&PersonCall::Hello {
            protocol: PROTOCOL,
            build: build(),
        })?;
        match link.hear()? {
            PersonAnswer::Hello { protocol, build, tasks } => {
                link.tasks = tasks;
                link.build = build;
                link.protocol = protocol;
                Ok(link)
            }
            _ => Err(Failure::fault("the daemon answered something else than a greeting")),
        }
    }

    /// Insists on a daemon that speaks the frames of this program.
    fn of_these_frames(self) -> Result<Self, Failure> {
        if self.protocol == PROTOCOL {
            return Ok(self);
        }
        let failure = Failure::fault(format!(
            "the daemon that runs is of build {} and speaks version {}, this program version {PROTOCOL}",
            bailiwick_model::visible(&self.build),
            self.protocol
        ));
        Err(match self.tasks {
            0 => failure.hint("`bailiwick daemon stop` ends it; the next run starts one of this program"),
            1 => failure.hint("a task runs in it and goes on; when it has ended, the next run starts a daemon of this program; `bailiwick daemon stop` ends both now"),
            tasks => failure.hint(format!("{tasks} tasks run in it and go on; when they have ended, the next run starts a daemon of this program; `bailiwick daemon stop` ends all now")),
        })
    }

    /// The questions that wait, oldest first.
    pub fn questions(&mut self) -> Result<Vec<Asked>, Failure> {
        self.say(&PersonCall::Questions)?;
        let mut all = Vec::new();
        loop {
            match self.hear()? {
                PersonAnswer::Asked(asked) => all.push(*asked),
                PersonAnswer::Done => return Ok(all),
                _ => return Err(Failure::fault("the daemon answered something that was not asked")),
            }
        }
    }

    /// Connects, starting a daemon if none runs. One of another build that has nothing to do is replaced, whatever frames
    /// it speaks; one that has goes on, and takes this program's orders if it understands them.
    pub fn open(places: &Places) -> Result<Self, Failure> {
        places.make_state()?;
        match Self::to_any(places)? {
            Some(link) if link.is_other_build() && link.tasks == 0 => link.stop(places)?,
            Some(link) => return link.of_these_frames(),
            None => {}
        }
        // Another command may end or start one at the same moment.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            start(places)?;
            if let Some(link) = Self::to_running(places)? {
                return Ok(link);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Failure::fault("the daemon ended as soon as it had begun")
            .hint(format!("see `{}`", places.daemon_talk().display())))
    }

    /// How many tasks ran in the daemon when the connection was made.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// True when the daemon is of another build than this program.
    pub fn is_other_build(&self) -> bool {
        self.build != build()
    }

    /// Ends the daemon and waits until it is gone.
    pub fn stop(mut self, places: &Places) -> Result<(), Failure> {
        self.say(&PersonCall::Stop)?;
        let begun = Instant::now();
        // The daemon closes the connection when all is done.
        while let Ok(Some(PersonAnswer::Done)) = self.channel.receive::<PersonAnswer>() {}
        // Its last checkpoint is written after the socket is gone: only then another may begin.
        while places.at_socket(|path| UnixStream::connect(path)).is_ok() || is_held(&places.lock()) {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::fault("the daemon does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Says something.
    pub fn say(&mut self, call: &PersonCall) -> Result<(), Failure> {
        self.say_with(call, &[])
    }

    /// Says something, with descriptors.
    pub fn say_with(&mut self, call: &PersonCall, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        self.channel.send(call, descriptors).map_err(|e| gone(&e.to_string()))
    }

    /// A descriptor that came along with what was heard.
    pub fn take(&mut self) -> Option<OwnedFd> {
        self.channel.take().ok()
    }

    /// Hears the next answer.
    pub fn hear(&mut self) -> Result<PersonAnswer, Failure> {
        match self.channel.receive() {
            Ok(Some(heard)) => Ok(heard),
            Ok(None) => Err(gone("it closed the connection")),
            Err(e) => Err(gone(&e.to_string())),
        }
    }

    /// The process of the daemon: tells one from another.
    pub fn daemon(&self) -> Result<u64, Failure> {
        let peer = rustix::net::sockopt::socket_peercred(&self.channel).map_err(|e| gone(&e.to_string()))?;
        Ok(peer.pid.as_raw_nonzero().get().unsigned_abs().into())
    }

    /// Closes the connection, also for a thread that hears.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
    }

    /// A second end of the same connection, for saying something while another thread hears.
    pub fn second(&self) -> std::io::Result<Self> {
        Ok(Self {
            channel: self.channel.second()?,
            tasks: self.tasks,
            build: self.build.clone(),
            protocol: self.protocol,
        })
    }
}

/// True while a daemon holds its lock.
fn is_held(lock: &std::path::Path) -> bool {
    use rustix::fs::{FlockOperation, flock};
    let Ok(file) = std::fs::File::open(lock) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

fn gone(cause: &str) -> Failure {
    Failure::fault(format!("the daemon does not answer: {cause}"))
        .hint("what it ran has ended; `bailiwick log verify` checks the log; run the command again to start a new one")
}

/// Starts a daemon and waits until it can be reached.
fn start(places: &Places) -> Result<(), Failure> {
    let refuse = |cause: String| {
        Failure::fault(format!("cannot start the daemon: {cause}"))
            .hint(format!("see `{}`", places.daemon_talk().display()))
    };
    let program = std::env::current_exe().map_err(|e| refuse(e.to_string()))?;
    // The daemon outlives this command: it must not hold on to the files, locks and pipes of whoever called it.
    bailiwick_fence::keep_descriptors_to_this_process().map_err(|e| refuse(e.to_string()))?;
    let talk = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(places.daemon_talk());
    let talk = talk.map_err(|e| refuse(e.to_string()))?;
    let kept = [
        "HOME",
        "USER",
        "LOGNAME",
        "PATH",
        "XDG_STATE_HOME",
        "XDG_CONFIG_HOME",
        "LANG",
        "RUST_BACKTRACE",
    ];
    let mut child = Command::new(program)
        .args(["daemon", "run", "--detach", "--state"])
        .arg(&places.state)
        .env_clear()
        .envs(
            kept.iter()
                .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
        )
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(talk)
        .spawn()
        .map_err(|e| refuse(e.to_string()))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match line.trim() {
        // Whether this one serves or another was quicker, a daemon can be reached now.
        "ready" | "another" => Ok(()),
        _ => {
            let _ = child.wait();
            let said = std::fs::read_to_string(places.daemon_talk()).unwrap_or_default();
            let last = said
                .lines()
                .rev()
                .find(|line| line.starts_with("bailiwick: "))
                .unwrap_or("it said nothing");
            Err(refuse(last.trim_start_matches("bailiwick: ").to_owned()))
        }
    }
}
