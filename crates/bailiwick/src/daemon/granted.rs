//! What a task is granted before it begins: its first program, trees, devices.
//!
//! Promises: P1 (each is asked for, and its permit spent), P10 (nothing is granted that cannot be put on record).
//! Trust: the order comes from the person. Not here: the fence that is made from it (`plan`), the rest of the start (`task`).

use bailiwick_gate::{LaunchFault, Outcome, Reading as _, Spent, Start};
use bailiwick_model::{AbsPath, Code, Request, Resource, TaskId, Verb};
use bailiwick_policy::Policy;

use super::plan::Granted;
use super::task::{LOG_HINT, fault, of_failure, of_task};
use super::{Daemon, devices, hours};
use crate::context::Context;
use crate::protocol::RunOrder;

/// What the person orders, in normal form.
pub fn ordered(order: &RunOrder, context: &Context) -> Result<Resource, LaunchFault> {
    let start = Start::named(order.command.clone(), Vec::new(), order.directory.as_str());
    Ok(context.grammars().map_err(of_failure)?.read(&start))
}

/// Asks for the permit of what the person orders, and spends it.
pub fn permit(daemon: &Daemon, request: &Request, root: &AbsPath, policy: &Policy) -> Result<Spent, LaunchFault> {
    match daemon.mediator.decide_order(request) {
        Outcome::Allow(permit) => permit
            .spend(request, daemon.clock.now())
            .map_err(|cause| fault(cause.code(), "a permit was refused", cause, "")),
        Outcome::Ask(question) => Err(fault(
            Code::NobodyToAsk,
            &format!("`{request}` must be asked"),
            question.id,
            "a task begins by what its rules allow",
        )),
        Outcome::Deny(refusal) if refusal.code == Code::LogUnavailable => Err(fault(
            refusal.code,
            "nothing is started that cannot be put on record",
            &refusal,
            LOG_HINT,
        )),
        Outcome::Deny(refusal) if refusal.code == Code::OutOfHours && !policy.settings().oversight.is_none() => {
            let told = hours::told_opening(policy, daemon.clock.now());
            Err(fault(
                refusal.code,
                &format!("nothing runs in {root} now: {told}"),
                &refusal,
                &format!("`bailiwick explain {}` says by which rule", refusal.id),
            ))
        }
        Outcome::Deny(refusal) => Err(fault(
            refusal.code,
            &format!("`{request}` is denied in {root}"),
            &refusal,
            &format!("`bailiwick explain {}` says why", refusal.id),
        )),
    }
}

/// The devices that the rules and the order grant.
pub fn granted_devices(order: &RunOrder, policy: &Policy) -> Result<devices::Granted, LaunchFault> {
    let mut wanted = policy.settings().devices.clone();
    for text in &order.devices {
        let device = text.parse();
        wanted.push(device.map_err(|e| fault(Code::DeviceRefused, "a device cannot be shown", e, ""))?);
    }
    devices::find(&wanted, &order.environment)
}

/// Rules name many places, such as toolchains, that most machines do not have. What is kept is made where it is missing.
///
/// A login that contexts share is there once somebody has signed in.
fn is_there(daemon: &Daemon, policy: &Policy, verb: &Verb, tree: &AbsPath) -> bool {
    match policy.settings().login.as_ref().filter(|login| login.place == *tree) {
        Some(login) if *verb == Verb::Keep => daemon.places.login(&login.agent).is_dir(),
        _ => *verb == Verb::Keep || tree.to_path_buf().symlink_metadata().is_ok(),
    }
}

/// Asks for a standing permit on each tree that the rules could allow whole, and spends those that are given.
pub fn grant_trees(daemon: &Daemon, policy: &Policy, task: TaskId) -> Result<(Vec<Granted>, Vec<Spent>), LaunchFault> {
    let mut granted = Vec::new();
    let mut grants = Vec::new();
    let is_there = |verb: &Verb, tree: &AbsPath| is_there(daemon, policy, verb, tree);
    for (request, permit) in daemon.mediator.grant_trees(task, &is_there).map_err(of_task)? {
        let Resource::Tree(tree) = &request.resource else {
            continue;
        };
        let spent = permit
            .spend(&request, daemon.clock.now())
            .map_err(|cause| fault(cause.code(), "a permit was refused", cause, ""))?;
        granted.push(Granted {
            verb: request.verb.clone(),
            tree: tree.clone(),
            obligations: spent.obligations().to_vec(),
        });
        grants.push(spent);
    }
    Ok((granted, grants))
}
