//! A gate confines itself, before the first hostile byte: it reads what is listed and talks to the network, and does
//! nothing else any more.
//!
//! Promises: P1, P9, P13. What is left to a gate that hostile bytes have taken over: the descriptors it holds, new
//! connections, and the listed files.

use std::path::PathBuf;

use bailiwick_gate::LaunchFault;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;

use crate::fault::Says;
use crate::filter::Filters;
use crate::floor;

/// Confines this process and all its later threads. Call it while the process has one thread. Files in
/// `allowed_read` that do not exist are left out.
pub fn confine_gate(allowed_read: &[PathBuf]) -> Result<(), LaunchFault> {
    let say = || "cannot confine the gate".to_owned();
    let filters = Filters::gate()?;
    set_no_new_privs(true).or_say(say)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).or_say(say)?;
    floor::lay_under_gate(allowed_read)?;
    filters.lay()
}
