//! Who attends a task: the command that started it, or one that came later; at most one at a time.
//!
//! Promises: P11 (a task that is not to go on alone ends with the command that attends it).
//! Who comes later takes the place of who was there, and that one is told so.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Mutex;

use bailiwick_fence::Channel;
use bailiwick_model::TaskId;

use super::lock;
use super::screen::Recent;
use crate::protocol::{PersonAnswer, RunningTask};

/// Most ended tasks that are kept until somebody hears of their end.
const KEPT: usize = 16;

/// How a task ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The agent's status.
    pub status: i32,
    /// The log's checkpoint, where it was asked for.
    pub checkpoint: Option<String>,
    /// How much was refused.
    pub denied: u64,
    /// What came to be that a person should look at.
    pub made: Vec<String>,
}

impl Ended {
    fn answer(&self) -> PersonAnswer {
        PersonAnswer::Ended {
            status: self.status,
            checkpoint: self.checkpoint.clone(),
            denied: self.denied,
            made: self.made.clone(),
        }
    }
}

/// Who attends one task.
#[derive(Debug, Default)]
pub struct Attendance(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    line: Option<(u64, Channel)>,
    ended: Option<Ended>,
    /// True when a person has ended it by name: that is no news then.
    known: bool,
}

impl Attendance {
    /// A number for somebody who comes to attend.
    pub fn next(&self) -> u64 {
        let mut state = lock(&self.0);
        state.last = state.last.wrapping_add(1);
        state.last
    }

    /// Attends under a number, in the place of whoever did.
    pub fn attend(&self, number: u64, line: Channel) {
        let mut state = lock(&self.0);
        if let Some((_, before)) = state.line.replace((number, line)) {
            let _ = before.send(&PersonAnswer::TakenOver, &[]);
            hang_up(&before);
        }
        if let (Some(ended), Some((_, line))) = (&state.ended, &state.line) {
            let _ = line.send(&ended.answer(), &[]);
            hang_up(line);
        }
    }

    /// Says something to whoever attends.
    pub fn say(&self, answer: &PersonAnswer) {
        if let Some((_, line)) = &lock(&self.0).line {
            let _ = line.send(answer, &[]);
        }
    }

    /// Attends no more. False when another attends meanwhile, or the task has ended.
    pub fn leave(&self, number: u64) -> bool {
        let mut state = lock(&self.0);
        let mine = state.line.as_ref().is_some_and(|(attending, _)| *attending == number);
        if mine {
            state.line = None;
        }
        mine && state.ended.is_none()
    }

    /// A person ends it by name, and knows.
    pub fn take_as_known(&self) {
        lock(&self.0).known = true;
    }

    /// True when somebody attends.
    pub fn is_attended(&self) -> bool {
        lock(&self.0).line.is_some()
    }

    /// Tells the end to whoever attends. False when nobody heard it.
    pub fn end(&self, ended: Ended) -> bool {
        let mut state = lock(&self.0);
        let heard = match &state.line {
            Some((_, line)) => {
                let heard = line.send(&ended.answer(), &[]).is_ok();
                hang_up(line);
                heard
            }
            None => state.known,
        };
        state.ended = Some(ended);
        heard
    }
}

/// Ends a connection, also for the thread that reads from it.
fn hang_up(line: &Channel) {
    let _ = rustix::net::shutdown(line, rustix::net::Shutdown::Both);
}

/// Tasks with a terminal whose end nobody has heard.
#[derive(Debug, Default)]
pub struct Unheard(Mutex<VecDeque<(RunningTask, Ended, Recent)>>);

impl Unheard {
    /// Keeps one; the oldest of too many goes.
    pub fn keep(&self, about: RunningTask, ended: Ended, recent: Recent) {
        let mut kept = lock(&self.0);
        kept.push_back((about, ended, recent));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// Forgets one whose end was heard.
    pub fn forget(&self, task: TaskId) {
        lock(&self.0).retain(|(about, ..)| about.id != task);
    }

    /// What `status` says of them.
    pub fn list(&self) -> Vec<(RunningTask, i32)> {
        lock(&self.0)
            .iter()
            .map(|(about, ended, _)| (about.clone(), ended.status))
            .collect()
    }

    /// Tells one's last output and its end. False when there is none of this id.
    pub fn tell(&self, task: TaskId, line: &Channel) -> std::io::Result<bool> {
        let found = {
            let mut kept = lock(&self.0);
            let place = kept.iter().position(|(about, ..)| about.id == task);
            place.and_then(|place| kept.remove(place))
        };
        let Some((about, ended, recent)) = found else {
            return Ok(false);
        };
        let seat = recent.last_seat()?;
        let along = [seat.recent.as_fd(), seat.output.as_fd(), seat.keyboard.as_fd()];
        line.send(&PersonAnswer::Attached(Box::new(about)), &along)?;
        line.send(&ended.answer(), &[])?;
        Ok(true)
    }
}
