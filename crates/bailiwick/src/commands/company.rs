//! Stands between an agent and the person, from its start, or from when they come back to it, until one of them goes.
//!
//! Promises: P1 (the agent never holds the person's own terminal, pipe or file: all is relayed).
//! Not here: what the person is told (`run`), the terminal's bytes (`terminal`).

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use bailiwick_model::TaskId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use super::at_terminal::{Held, Hold};
use crate::failure::Failure;
use crate::link::Link;
use crate::protocol::{PersonAnswer, PersonCall};
use crate::terminal::{self, Raw};

/// The three pipes of a run without a terminal.
pub struct Pipes {
    ours: [OwnedFd; 3],
    theirs: [OwnedFd; 3],
}

impl Pipes {
    /// Makes them.
    pub fn make() -> Result<Self, Failure> {
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

    /// The ends that the agent gets.
    pub fn theirs(&self) -> &[OwnedFd; 3] {
        &self.theirs
    }
}

/// How it came to an end.
#[derive(Debug)]
pub enum Left {
    /// The agent has ended.
    Ended {
        /// Its status.
        status: i32,
        /// The log's checkpoint, where it was asked for.
        checkpoint: Option<String>,
        /// How much was refused.
        denied: u64,
        /// What came to be that the person should look at: texts that are safe to print.
        made: Vec<String>,
    },
    /// The agent goes on alone.
    Alone,
    /// Another command attends it now.
    TakenOver,
}

/// Hears what the daemon says besides.
pub trait Hears {
    /// Hears an answer. An error ends it.
    fn hears(&mut self, answer: PersonAnswer) -> Result<(), Failure>;

    /// True when the agent is left alone as soon as it runs.
    fn is_left_alone(&self) -> bool {
        false
    }
}

/// Says how to come back to a task.
pub fn say_alone(task: TaskId) {
    talkln!("bailiwick: task {task} goes on alone");
    talkln!("  `bailiwick attach {task}` comes back to it, `bailiwick stop {task}` ends it");
}

/// What signals are passed to, once there is an agent: its terminal, if it has one.
type Agent = Arc<OnceLock<Option<OwnedFd>>>;

/// Stands between the agent and the person.
pub struct Company {
    agent: Agent,
    /// True when the person goes and the agent does not.
    leaves: Arc<AtomicBool>,
    /// True when the agent goes on when the person goes.
    lasting: bool,
    /// Holds back what the agent writes while a question stands at the terminal.
    hold: Arc<Hold>,
    /// For closing the connection while it is heard.
    line: Arc<Link>,
}

impl Company {
    /// Begins to pass signals on to the agent, and the terminal's size to its terminal. Before there is an agent, they
    /// end this command, and with it the order.
    pub fn keep(link: &Link, lasting: bool) -> Result<Self, Failure> {
        let fault = |e: std::io::Error| Failure::fault(format!("cannot watch for signals: {e}"));
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH]).map_err(fault)?;
        let company = Self {
            agent: Agent::default(),
            leaves: Arc::default(),
            lasting,
            hold: Arc::default(),
            line: Arc::new(link.second().map_err(fault)?),
        };
        let mut say = link.second().map_err(fault)?;
        let (agent, leave) = (Arc::clone(&company.agent), company.leave());
        std::thread::spawn(move || {
            for signal in signals.forever() {
                match (signal, agent.get()) {
                    (SIGWINCH, Some(Some(terminal))) => terminal::resize(terminal),
                    (SIGWINCH, _) => {}
                    (SIGHUP, Some(Some(_))) if lasting => leave(),
                    (other, Some(_)) => {
                        let _ = say.say(&PersonCall::Signal(other));
                    }
                    (other, None) => std::process::exit(128 + other),
                }
            }
        });
        Ok(company)
    }

    /// What holds back what the agent writes.
    pub fn hold(&self) -> Arc<Hold> {
        Arc::clone(&self.hold)
    }

    /// Makes [`accompany`](Self::accompany) come back, and leaves the agent alone.
    fn leave(&self) -> impl Fn() + Send + 'static {
        let (leaves, line) = (Arc::clone(&self.leaves), Arc::clone(&self.line));
        move || {
            leaves.store(true, Ordering::SeqCst);
            line.hang_up();
        }
    }

    /// Stands between until the agent or the person goes.
    pub fn accompany(
        &self,
        link: &mut Link,
        mut pipes: Option<Pipes>,
        hears: &mut impl Hears,
    ) -> Result<Left, Failure> {
        let mut raw = None;
        let mut output: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let answer = match link.hear() {
                Ok(answer) => answer,
                Err(_) if self.leaves.load(Ordering::SeqCst) => {
                    settle(output);
                    if raw.take().is_some() {
                        terminal::put_back();
                    }
                    return Ok(Left::Alone);
                }
                Err(failure) => return Err(failure),
            };
            let comes_back = matches!(answer, PersonAnswer::Attached(_));
            let begins = matches!(answer, PersonAnswer::Started(_) | PersonAnswer::Attached(_));
            match answer {
                PersonAnswer::Ended {
                    status,
                    checkpoint,
                    denied,
                    made,
                } => {
                    // Everything in the fence is gone, so its pipes and terminal are closed: what is left can be read.
                    settle(output);
                    return Ok(Left::Ended {
                        status,
                        checkpoint,
                        denied,
                        made,
                    });
                }
                PersonAnswer::TakenOver => {
                    settle(output);
                    if raw.take().is_some() {
                        terminal::put_back();
                    }
                    return Ok(Left::TakenOver);
                }
                other => hears.hears(other)?,
            }
            if !begins {
                continue;
            }
            if hears.is_left_alone() {
                return Ok(Left::Alone);
            }
            match (link.take(), link.take(), link.take(), pipes.take()) {
                (Some(recent), Some(shown), Some(keyboard), None) => {
                    raw = Raw::enter().ok();
                    output.push(self.sit(recent, shown, keyboard, comes_back)?);
                }
                (None, None, None, Some(pipes)) => output.extend(self.join(pipes)),
                _ => {
                    return Err(Failure::fault(
                        "the daemon handed over something else than was asked for",
                    ));
                }
            }
        }
    }

    /// Sits down at the agent's terminal.
    fn sit(
        &self,
        recent: OwnedFd,
        shown: OwnedFd,
        keyboard: OwnedFd,
        comes_back: bool,
    ) -> Result<JoinHandle<()>, Failure> {
        let fault = |e: std::io::Error| Failure::fault(format!("cannot use the terminal: {e}"));
        let into = terminal::file(&keyboard).map_err(fault)?;
        let mut recent = File::from(recent);
        let mut out = std::io::stdout();
        let _ = std::io::copy(&mut recent, &mut out).and_then(|_| out.flush());
        let _ = self.agent.set(Some(keyboard));
        let agent = Arc::clone(&self.agent);
        // While it is drawn, what is typed and shown goes on.
        std::thread::spawn(move || {
            if let Some(Some(keyboard)) = agent.get() {
                // A change of size that came before this was nobody's.
                terminal::resize(keyboard);
                if comes_back {
                    terminal::redraw(keyboard);
                }
            }
        });
        let (lasting, leave) = (self.lasting, self.leave());
        std::thread::spawn(move || {
            terminal::keyboard(into, !lasting);
            if lasting {
                leave();
            }
        });
        Ok(terminal::relay(File::from(shown), std::io::stdout()))
    }

    /// Joins the agent's pipes to the person's.
    fn join(&self, pipes: Pipes) -> [JoinHandle<()>; 2] {
        let [input, out, errors] = pipes.ours;
        drop(pipes.theirs);
        let output = [
            terminal::relay(File::from(out), Held::over(std::io::stdout(), &self.hold)),
            terminal::relay(File::from(errors), Held::over(std::io::stderr(), &self.hold)),
        ];
        terminal::relay(std::io::stdin(), File::from(input));
        let _ = self.agent.set(None);
        output
    }
}

/// Waits until what the agent put out has been shown.
fn settle(output: Vec<JoinHandle<()>>) {
    for relay in output {
        let _ = relay.join();
    }
}
