//! `bailiwick run`: says what will hold, starts the agent through the daemon, and stands between it and the terminal.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use bailiwick_gate::LaunchFault;
use bailiwick_model::{AbsPath, Code};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use super::made::{Absent, Settings};
use crate::cli::RunArgs;
use crate::daemon::Standalone;
use crate::failure::{Done, Exit, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall, RunOrder};
use crate::terminal::{self, Raw};

/// Runs the command.
pub fn run(args: &RunArgs) -> Done {
    start(args).map_err(|mut failure| {
        // Whatever went wrong, the agent's own exit codes stay free.
        if !matches!(failure.exit, Exit::NotFound | Exit::NotExecutable) {
            failure.exit = Exit::NotStarted;
        }
        failure
    })
}

fn start(args: &RunArgs) -> Done {
    let places = Places::find()?;
    let directory = here()?;
    let terminal = terminal::size();
    let order = RunOrder {
        command: args.command.clone(),
        preset: args.preset.clone(),
        author: author(&directory),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        directory,
        terminal,
        checkpoint: !args.quiet,
        publish: args.publish.iter().map(|port| (*port).into()).collect(),
    };
    let standalone = args.standalone.then(|| Standalone::begin(&places)).transpose()?;
    let mut link = Link::open(standalone.as_ref().map_or(&places, Standalone::places))?;
    if link.is_other_build() && !args.quiet {
        talkln!("bailiwick: the daemon is of another build; it goes on because it has tasks that run");
    }
    let pipes = if terminal.is_some() { None } else { Some(Pipes::make()?) };
    let agent = pass_signals(&link)?;
    match &pipes {
        Some(pipes) => {
            let theirs: Vec<_> = pipes.theirs.iter().map(AsFd::as_fd).collect();
            link.say_with(&PersonCall::Run(order), &theirs)?;
        }
        None => link.say(&PersonCall::Run(order))?,
    }
    let program = args.command.first().map_or("", String::as_str);
    let status = accompany(&mut link, &agent, pipes, program, args.quiet)?;
    drop(link);
    drop(standalone);
    Ok(ExitCode::from(u8::try_from(status.clamp(0, 255)).unwrap_or(255)))
}

/// The current folder.
pub fn here() -> Result<AbsPath, Failure> {
    let folder = std::env::current_dir().map_err(|e| {
        Failure::usage(format!("the current folder cannot be read: {e}")).hint("go to a folder that exists")
    })?;
    AbsPath::new(folder).map_err(|e| Failure::usage(e.to_string()))
}

/// Who the person is in git, from their own configuration: never from the project's, which anyone may have written.
fn author(directory: &AbsPath) -> Option<(String, String)> {
    directory
        .ancestors()
        .find(|folder| std::path::Path::new(folder).join(".git").symlink_metadata().is_ok())?;
    let found = Command::new("git")
        .args(["config", "--global", "--get-regexp", "^user\\.(name|email)$"])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(found.stdout).ok()?;
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned))
    };
    Some((value("user.name")?, value("user.email")?))
}

/// The three pipes of a run without a terminal.
struct Pipes {
    ours: [OwnedFd; 3],
    theirs: [OwnedFd; 3],
}

impl Pipes {
    fn make() -> Result<Self, Failure> {
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(|e| Failure::fault(format!("cannot make a pipe: {e}")))
        };
        let (input, ours_in) = pipe()?;
        let (ours_out, output) = pipe()?;
        let (ours_err, errors) = pipe()?;
        Ok(Self {
            ours: [ours_in, ours_out, ours_err],
            theirs: [input, output, errors],
        })
    }
}

/// Stands between the agent and the person until the agent has ended; says its status.
fn accompany(
    link: &mut Link,
    agent: &Agent,
    mut pipes: Option<Pipes>,
    program: &str,
    quiet: bool,
) -> Result<i32, Failure> {
    let mut raw = None;
    let mut absent = Absent::default();
    let mut settings = Settings::default();
    let mut output: Vec<JoinHandle<()>> = Vec::new();
    loop {
        match link.hear()? {
            PersonAnswer::Planned(planned) => {
                absent = Absent::find(&planned.root, &planned.guarded);
                settings = Settings::read(&planned.settings, &planned.home);
                if !quiet {
                    crate::talk::talk(&super::summary::planned(&planned));
                }
            }
            PersonAnswer::Started(report) => {
                if !quiet {
                    crate::talk::talk(&super::summary::started(&report));
                }
                match (link.take(), pipes.take()) {
                    (Some(master), None) => {
                        raw = Raw::enter().ok();
                        output.push(relay_terminal(agent, master)?);
                    }
                    (
                        None,
                        Some(Pipes {
                            ours: [input, out, errors],
                            theirs,
                        }),
                    ) => {
                        drop(theirs);
                        output.push(terminal::relay(std::fs::File::from(out), std::io::stdout()));
                        output.push(terminal::relay(std::fs::File::from(errors), std::io::stderr()));
                        terminal::relay(std::io::stdin(), std::fs::File::from(input));
                        let _ = agent.set(None);
                    }
                    _ => {
                        return Err(Failure::fault(
                            "the daemon handed over something else than was asked for",
                        ));
                    }
                }
            }
            PersonAnswer::Ended { status, checkpoint } => {
                // Everything in the fence is gone, so its pipes and terminal are closed: what is left can be read out.
                for relay in output {
                    let _ = relay.join();
                }
                drop(raw.take());
                for told in [absent.told(), settings.told()].into_iter().flatten() {
                    crate::talk::talk(&told);
                }
                if let (Some(checkpoint), false) = (checkpoint, quiet) {
                    crate::talk::talk(&super::summary::ended(status, &checkpoint));
                }
                return Ok(status);
            }
            PersonAnswer::Failed(fault) => return Err(not_started(&fault, program)),
            _ => return Err(Failure::fault("the daemon answered something that was not asked")),
        }
    }
}

fn not_started(fault: &LaunchFault, program: &str) -> Failure {
    let exit = Exit::of_launch(fault.code);
    let failure = Failure::new(exit, crate::visible::visible_lines(&fault.to_string()));
    match (exit, fault.hint.is_empty()) {
        (Exit::NotFound, true) => failure.hint(where_outside(program)),
        (_, true) if matches!(fault.code, Code::FenceFailed | Code::FencePartial) => {
            failure.hint("`bailiwick doctor` says what this machine can do, and what to change")
        }
        (_, true) => failure,
        (_, false) => failure.hint(fault.hint.clone()),
    }
}

/// What to do about a program that is not there inside: it may well be there outside.
fn where_outside(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    match found.filter(|_| !program.contains('/')) {
        Some(file) => {
            let whole = std::fs::canonicalize(&file).unwrap_or(file);
            let folder = whole.parent().unwrap_or(&whole).display().to_string();
            format!(
                "it lies in `{folder}` outside; grant that: `read = [\"{folder}\"]` under [files] in bailiwick.toml"
            )
        }
        None => "only programs in granted trees exist in there: `bailiwick policy show` lists them".into(),
    }
}

fn relay_terminal(agent: &Agent, master: OwnedFd) -> Result<JoinHandle<()>, Failure> {
    let file =
        |master: &OwnedFd| terminal::file(master).map_err(|e| Failure::fault(format!("cannot use the terminal: {e}")));
    let (from, to) = (file(&master)?, file(&master)?);
    terminal::resize(&master);
    let _ = agent.set(Some(master));
    terminal::relay(std::io::stdin(), to);
    Ok(terminal::relay(from, std::io::stdout()))
}

/// What signals are passed to, once there is an agent: its terminal, if it has one.
type Agent = Arc<OnceLock<Option<OwnedFd>>>;

/// Passes signals on to the agent, and the terminal's size to its terminal. Before there is one, they end this command,
/// and with it the order.
fn pass_signals(link: &Link) -> Result<Agent, Failure> {
    let fault = |e: std::io::Error| Failure::fault(format!("cannot watch for signals: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH]).map_err(fault)?;
    let mut link = link.second().map_err(fault)?;
    let agent = Agent::default();
    let watched = Arc::clone(&agent);
    std::thread::spawn(move || {
        for signal in signals.forever() {
            match (signal, watched.get()) {
                (SIGWINCH, Some(Some(master))) => terminal::resize(master),
                (SIGWINCH, _) => {}
                (other, Some(_)) => {
                    let _ = link.say(&PersonCall::Signal(other));
                }
                (other, None) => std::process::exit(128 + other),
            }
        }
    });
    Ok(agent)
}
