//! The way from a command to the daemon: connects, and starts a daemon where none answers.

use std::io::{BufRead, BufReader};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_fence::Channel;

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
    other_build: bool,
}

impl Link {
    /// Connects to the daemon that runs; none when there is none.
    pub fn to_running(places: &Places) -> Result<Option<Self>, Failure> {
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

    fn greet(socket: UnixStream) -> Result<Self, Failure> {
        let mut link = Self {
            channel: Channel::over(socket.into()),
            tasks: 0,
            other_build: false,
        };
        link.say(&PersonCall::Hello {
            protocol: PROTOCOL,
            build: build(),
        })?;
        match link.hear()? {
            PersonAnswer::Hello {
                protocol: PROTOCOL,
                build: theirs,
                tasks,
            } => {
                link.tasks = tasks;
                link.other_build = theirs != build();
                Ok(link)
            }
            PersonAnswer::Hello { protocol, .. } => Err(Failure::fault(format!(
                "the daemon that runs speaks version {protocol}, this program version {PROTOCOL}"
            ))
            .hint("end it with the program that started it: `bailiwick daemon stop`")),
            _ => Err(Failure::fault("the daemon answered something else than a greeting")),
        }
    }

    /// Connects, starting a daemon if none runs. One of another build that has nothing to do is replaced.
    pub fn open(places: &Places) -> Result<Self, Failure> {
        places.make_state()?;
        match Self::to_running(places)? {
            Some(link) if link.other_build && link.tasks == 0 => link.stop(places)?,
            Some(link) => return Ok(link),
            None => {}
        }
        start(places)?;
        Self::to_running(places)?.ok_or_else(|| {
            Failure::fault("the daemon ended as soon as it had begun")
                .hint(format!("see `{}`", places.daemon_talk().display()))
        })
    }

    /// True when the daemon is of another build than this program.
    pub fn is_other_build(&self) -> bool {
        self.other_build
    }

    /// Ends the daemon and waits until it is gone.
    pub fn stop(mut self, places: &Places) -> Result<(), Failure> {
        self.say(&PersonCall::Stop)?;
        let begun = Instant::now();
        // The daemon closes the connection when all is done.
        while let Ok(Some(PersonAnswer::Done)) = self.channel.receive::<PersonAnswer>() {}
        while places.at_socket(|path| UnixStream::connect(path)).is_ok() {
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

    /// Closes the connection, also for a thread that hears.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
    }

    /// A second end of the same connection, for saying something while another thread hears.
    pub fn second(&self) -> std::io::Result<Self> {
        Ok(Self {
            channel: self.channel.second()?,
            tasks: self.tasks,
            other_build: self.other_build,
        })
    }
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
