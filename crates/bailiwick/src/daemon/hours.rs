//! The end of a context's hours: its tasks are told to end, and are gone when it closes.
//!
//! Promises: P10 (why a task is ended is on record before it is told), P11 (what the kernel holds for a task, trees granted
//! whole and open connections, ends with its hours too).
//! Not here: what is open when (`policy`), what is denied outside of hours (`mediator`), ending a task (`person`).

use std::sync::Arc;

use bailiwick_model::{Event, Millis};
use bailiwick_policy::Policy;

use super::{Daemon, person, task};

/// Tasks are told so long before their context closes, in milliseconds: what takes all the time that it may is gone by then.
const AHEAD: u64 = 6_000;

/// Ends the tasks whose hours are over, or nearly.
pub fn close(daemon: &Arc<Daemon>, handles: &[task::Handle]) {
    let now = daemon.clock.now();
    for handle in handles.iter().filter(|handle| is_over(&handle.policy, now)) {
        if !handle.closes() {
            continue;
        }
        let (daemon, handle) = (Arc::clone(daemon), handle.clone());
        std::thread::spawn(move || {
            let id = handle.describe().id;
            let opens = opens_after(&handle.policy, now);
            // It ends also where that cannot be written down: the log tells its end, and nothing begins without a record.
            if let Err(fault) = daemon.record(Some(id), Event::HoursOver { opens }) {
                talkln!("bailiwick: that the hours of task {id} are over is not on record: {fault}");
            }
            person::stop(&daemon, id, &handle, person::Grace::Whole);
        });
    }
}

fn is_over(policy: &Policy, now: Millis) -> bool {
    let oversight = &policy.settings().oversight;
    if oversight.is_none() {
        return false;
    }
    let soon = Millis(now.0.saturating_add(AHEAD));
    !oversight.is_open(now) || oversight.closes_at(now).is_some_and(|closes| closes <= soon)
}

/// When the context opens after it has closed.
fn opens_after(policy: &Policy, now: Millis) -> Option<Millis> {
    let oversight = &policy.settings().oversight;
    let closed = oversight.closes_at(now).unwrap_or(now);
    oversight.opens_at(closed)
}

/// When the hours of a context end, in words.
pub fn told_end(policy: &Policy, now: Millis) -> Option<String> {
    let oversight = &policy.settings().oversight;
    oversight.closes_at(now).and_then(|at| oversight.tell(at))
}

/// When a context opens, in words.
pub fn told_opening(policy: &Policy, now: Millis) -> String {
    let oversight = &policy.settings().oversight;
    let opens = oversight.opens_at(now).and_then(|at| oversight.tell(at));
    opens.map_or_else(
        || "it does not open within a year".into(),
        |opens| format!("it opens {opens}"),
    )
}

/// What the person is told at the end of a task that was ended by its hours.
pub fn told_over(policy: &Policy, id: bailiwick_model::TaskId, now: Millis) -> String {
    let oversight = &policy.settings().oversight;
    let opens = opens_after(policy, now).and_then(|at| oversight.tell(at));
    let opens = opens.map_or_else(String::new, |opens| format!("; they begin again {opens}"));
    format!("bailiwick: ended, since its hours are over{opens}: `bailiwick run --resume {id}` goes on then\n")
}
