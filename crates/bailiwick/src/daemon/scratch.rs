//! The folder that holds all scratch of a task where nothing can be mounted (level `process`).
//!
//! Its launcher makes it, for nobody else to enter, and removes it when the fence has ended. Here is what removes it when the
//! launcher was killed. Trust: what lies in it is the agent's; no link in it is followed.

use bailiwick_model::{AbsPath, TaskId};

/// Where it lies.
pub fn top(task: TaskId) -> Option<AbsPath> {
    AbsPath::new(format!("/tmp/bailiwick-{task}")).ok()
}

/// Removes what a task that has ended left there, if anything.
pub fn clear(task: TaskId) {
    if let Some(top) = top(task) {
        let _ = bailiwick_fence::remove_tree(&top.to_path_buf());
    }
}
