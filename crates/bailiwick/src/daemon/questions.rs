//! Questions that wait for the person: listed, answered, and told to whoever attends the task.
//!
//! Promises: P8 (what is shown is made here from the request, whole; nothing of it is the agent's own telling), P10
//! (the mediator puts the answer on record before it holds).
//! Trust: answers come over the path socket, which turns away whoever lives in a fence.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bailiwick_mediator::{QuestionFault, Waiting};
use bailiwick_model::{Code, DecisionId, Verdict};

use super::person::failed;
use super::{Daemon, lock, task};
use crate::protocol::{PersonAnswer, WaitingAct};
use crate::visible::visible;

/// Most questions that wait to be told to those who attend; more stand in the list only.
const TO_BE_TOLD: usize = 1024;

/// How long a task may take from its first question until it can be attended.
const BEGINNING: Duration = Duration::from_secs(5);

/// Tells each question to whoever attends its task, from a thread of its own.
pub fn tell_waiting(daemon: &Arc<Daemon>) {
    let (sender, told) = sync_channel::<Waiting>(TO_BE_TOLD);
    daemon.mediator.watch_questions(move |waiting| {
        let _ = sender.try_send(waiting.clone());
    });
    let daemon = Arc::clone(daemon);
    std::thread::spawn(move || {
        for waiting in told {
            let begun = std::time::Instant::now();
            let attended = loop {
                let handle = lock(&daemon.running).get(&waiting.request.task).cloned();
                let handle = handle.filter(|handle| handle.attendance.is_attended());
                if handle.is_some() || begun.elapsed() > BEGINNING || !is_waiting(&daemon, waiting.id) {
                    break handle;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            if let Some(handle) = attended {
                handle.attendance.say(&PersonAnswer::Waits(Box::new(shown(waiting))));
            }
        }
    });
}

fn is_waiting(daemon: &Daemon, id: DecisionId) -> bool {
    daemon.mediator.waiting().iter().any(|waiting| waiting.id == id)
}

/// The questions that wait.
pub fn waiting(daemon: &Daemon) -> Vec<WaitingAct> {
    daemon.mediator.waiting().into_iter().map(shown).collect()
}

/// Answers a question.
pub fn answer(daemon: &Daemon, id: DecisionId, yes: bool) -> PersonAnswer {
    match daemon.mediator.answer(id, yes, &task::principal()) {
        Ok(_) => PersonAnswer::Done,
        Err(fault @ QuestionFault::Unknown(_)) => failed(Code::QuestionLapsed, &fault.to_string(), ""),
        Err(fault @ QuestionFault::Log(_)) => {
            failed(Code::LogUnavailable, "the answer counts as no", &fault.to_string())
        }
    }
}

fn shown(waiting: Waiting) -> WaitingAct {
    let address = waiting
        .request
        .address()
        .map(|address| format!(" at {address}"))
        .unwrap_or_default();
    let asks = waiting.against.reasons.iter();
    let asks = asks.filter(|reason| reason.verdict == Verdict::Ask);
    WaitingAct {
        id: waiting.id,
        task: waiting.request.task,
        act: format!("{}{address}", visible(&waiting.request.to_string())),
        because: asks.map(|reason| visible(&reason.text)).collect(),
        digest: waiting.digest,
        since: waiting.since,
        deadline: waiting.deadline,
        request: waiting.request,
    }
}
