//! What somebody inside is told whose program may not start: one line on the errors of whoever would have become it.
//!
//! Promises: P4 (it never waits: errors that nobody reads, or that are full, get nothing). Trust: the line goes to the agent: what
//! it asked for, a code, an id, and a word that a person had for it; nothing of the rules. Its errors are the agent's own to give.
//! See: pidfd_getfd(2).

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bailiwick_gate::Refusal;
use bailiwick_model::{Code, Request, visible};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{Supervisor, lock};

/// How long the same refusal is not told again to the same thread: a shell that looks through its `PATH` tries each folder.
const STANDS: Duration = Duration::from_secs(1);
/// Most threads of which it is known what they were told.
const MAX_TOLD: usize = 1024;
/// Longest act that is repeated, in characters.
const ACT: usize = 400;

/// What was told to which thread, and when.
pub(super) type Told = std::collections::BTreeMap<i32, (String, Instant)>;

impl Supervisor {
    /// True when the same was refused to a thread a moment ago: a shell that looks for a program goes on to the next folder of its
    /// `PATH`, which may hold the same one. The answer stands.
    pub(super) fn was_told(&self, thread: i32, request: &Request) -> bool {
        stands(&lock(&self.told), thread, &request.to_string())
    }

    /// Keeps that what a thread was about to start was refused, and tells it so. There is nothing to tell where the mediator could
    /// not be asked.
    pub(super) fn tell_refused(&self, thread: i32, request: &Request, refusal: Option<&Refusal>) {
        let act = request.to_string();
        {
            let mut told = lock(&self.told);
            if stands(&told, thread, &act) {
                return;
            }
            if told.len() >= MAX_TOLD {
                told.clear();
            }
            told.insert(thread, (act.clone(), Instant::now()));
        }
        if let Some(refusal) = refusal {
            // Who cannot be told finds it out by `bailiwick last`.
            let _ = say(thread, &line(&act, refusal));
        }
    }
}

/// True while what was refused to a thread last is this, and not long ago.
fn stands(told: &Told, thread: i32, act: &str) -> bool {
    let before = told.get(&thread);
    before.is_some_and(|(known, when)| known == act && when.elapsed() < STANDS)
}

fn line(act: &str, refusal: &Refusal) -> String {
    let act: String = visible(act).chars().take(ACT).collect();
    let hint = match refusal.code {
        Code::TellMore => format!("answer with `bailiwick tell {} WORDS`, then try again", refusal.id),
        _ => format!("a person can see why with `bailiwick explain {}`", refusal.id),
    };
    format!("bailiwick refused {act}: {refusal}\nhint: {hint}\n")
}

/// Writes to the errors of a thread, where they take it at once.
fn say(thread: i32, line: &str) -> std::io::Result<()> {
    let pid = Pid::from_raw(thread).ok_or(rustix::io::Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let errors = pidfd_getfd(&process, 2, PidfdGetfdFlags::empty())?;
    let mut ready = [PollFd::from_borrowed_fd(errors.as_fd(), PollFlags::OUT)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&none))? == 1 {
        // A pipe that takes anything takes this whole: it is shorter than PIPE_BUF, pipe(7).
        rustix::io::write(
            &errors,
            line.get(..line.floor_char_boundary(4096)).unwrap_or(line).as_bytes(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bailiwick_model::DecisionId;

    use super::*;

    #[test]
    fn a_refusal_says_what_the_agent_may_know() {
        let refusal = Refusal {
            word: Some("use the staging remote".into()),
            ..Refusal::new(DecisionId([1; 6]), Code::AnsweredNo)
        };
        let told = line("broker git push\u{1b}[2K", &refusal);
        assert!(told.starts_with(
            "bailiwick refused broker git push\\u{1b}[2K: answered-no (010101010101): use the staging remote\n"
        ));
        let more = line("run x", &Refusal::new(DecisionId([1; 6]), Code::TellMore));
        assert!(more.contains("`bailiwick tell 010101010101 WORDS`"), "{more}");
    }
}
