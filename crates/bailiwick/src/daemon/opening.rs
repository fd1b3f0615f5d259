//! A task's own authority, and what programs then believe, while they are made.
//!
//! Answers: what does a task need whose connections are opened? Keys and bundles take a while, in which other things are done.
//! Not here: which bundles (`believed`), the authority itself (`bailiwick_proxy`).

use std::sync::Arc;
use std::thread::JoinHandle;

use bailiwick_gate::LaunchFault;
use bailiwick_model::{Code, TaskId};
use bailiwick_policy::{Policy, Settings};
use bailiwick_proxy::Authority;

use super::believed::Believed;
use super::task::fault;
use crate::protocol::RunOrder;

/// The task's own authority, and what programs then believe, while they are made.
pub struct Opening(Option<JoinHandle<Result<(Authority, Believed), LaunchFault>>>);

impl Opening {
    /// Begins to make them in a thread of its own, where connections are opened.
    pub fn begin(task: TaskId, policy: &Arc<Policy>, order: &RunOrder) -> Self {
        let (policy, environment) = (Arc::clone(policy), order.environment.clone());
        let opens = !policy.settings().opened.is_empty();
        Self(opens.then(|| std::thread::spawn(move || opening(task, policy.settings(), &environment))))
    }

    /// Waits for them. None where no connection is opened.
    pub fn finish(self) -> Result<Option<(Authority, Believed)>, LaunchFault> {
        let made = self.0.map(|making| {
            let lost = |_| {
                Err(fault(
                    Code::Fault,
                    "the task's authority could not be made",
                    "its thread broke off",
                    "",
                ))
            };
            making.join().unwrap_or_else(lost)
        });
        made.transpose()
    }
}

fn opening(
    task: TaskId,
    settings: &Settings,
    environment: &[(String, String)],
) -> Result<(Authority, Believed), LaunchFault> {
    let authority = Authority::make(&task.to_string())
        .map_err(|e| fault(Code::Fault, "the task's authority could not be made", e, ""))?;
    let believed = Believed::gather(&authority, &settings.roots, environment);
    let believed = believed.map_err(|e| fault(Code::PolicyFault, "connections cannot be opened", e, ""))?;
    Ok((authority, believed))
}
