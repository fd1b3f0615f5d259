//! Namespaces made ahead of time, while a launcher waits for its order: those that take the kernel longest (a network
//! above all) and are the same whatever the order says.
//!
//! Promises: P13 (where the order names another identity, they are not used; what is used is owned by the fence's own
//! user namespace, as if it were made then). The process that made them stays beside the fence, as its lookout.
//! Not here: mounts and processes, which belong to the order; what a lookout does (`lookout`).
//! See: setns(2), pidfd_open(2).

use std::os::fd::{AsFd, OwnedFd};

use bailiwick_gate::{IdMap, LaunchFault};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, geteuid, kill_process, pidfd_open, set_parent_process_death_signal, waitpid,
};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use crate::channel::Channel;
use crate::fault::{Says, failed};
use crate::lookout::{self, Watch};
use crate::sys::{self, Fork};
use crate::{identity, network};

/// What is made ahead of time.
pub(crate) const AHEAD: UnshareFlags = UnshareFlags::NEWUSER
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS);

/// A process that holds namespaces until a fence has entered them, and is its lookout then.
#[derive(Debug)]
pub(crate) struct Spare {
    identity: IdMap,
    holder: Pid,
    process: OwnedFd,
    /// The line to it; it ends with the line.
    line: Option<Channel>,
    /// As root: the user namespace that hands over what root owns.
    owners: Option<OwnedFd>,
}

impl Spare {
    /// Begins to make them, in a process of its own. None where that cannot be: the fence then makes them itself, and
    /// says why it cannot.
    pub(crate) fn begin() -> Option<Self> {
        let identity = identity::identity().ok()?;
        let (line, theirs) = Channel::pair().ok()?;
        let launcher = rustix::process::getpid();
        let holder = match sys::fork().ok()? {
            Fork::Parent(holder) => holder,
            Fork::Child => {
                drop(line);
                let held = hold(&identity, launcher).is_ok() && attend(Channel::over(theirs)).is_ok();
                sys::exit_now(i32::from(!held));
            }
        };
        let process = pidfd_open(holder, PidfdFlags::empty());
        let Ok(process) = process else {
            end(holder);
            return None;
        };
        let owners = identity
            .owner
            .and_then(|owner| identity::namespace_of_owners(owner, identity.outside).ok());
        Some(Self {
            owners,
            identity,
            holder,
            process,
            line: Some(Channel::over(line)),
        })
    }

    /// Waits until they are made. False where they were not, or are another identity's.
    pub(crate) fn fits(&mut self, identity: &IdMap) -> bool {
        let ready = |line: &mut Channel| matches!(line.receive(), Ok(Some(())));
        self.identity == *identity && self.line.as_mut().is_some_and(ready)
    }

    /// Has it look out for a fence that has entered them, whose mounts these are.
    pub(crate) fn look_out(&self, watch: &Watch, mounts: &OwnedFd) -> std::io::Result<()> {
        let line = self.line.as_ref().ok_or(std::io::ErrorKind::NotConnected)?;
        line.send(watch, &[mounts.as_fd()])
    }

    /// The line to it: it says nothing, and is closed when the lookout could not go on.
    pub(crate) fn line(&self) -> Option<&Channel> {
        self.line.as_ref()
    }

    /// Closes what a process of the fence has of the line.
    pub(crate) fn hang_up(&mut self) {
        self.line = None;
    }

    /// The user namespace that hands over what the owner owns.
    pub(crate) fn owners(&self) -> Option<OwnedFd> {
        self.owners.as_ref().and_then(|owners| owners.try_clone().ok())
    }

    /// Enters them.
    pub(crate) fn enter(&self) -> Result<(), LaunchFault> {
        let kinds = ThreadNameSpaceType::USER
            | ThreadNameSpaceType::NETWORK
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
        move_into_thread_name_spaces(self.process.as_fd(), kinds).or_say(|| "cannot enter namespaces of its own".into())
    }

    /// Lets go of them: a fence that has entered them keeps them. Nobody looks out any more.
    pub(crate) fn let_go(self) {
        end(self.holder);
    }
}

fn end(holder: Pid) {
    let _ = kill_process(holder, Signal::KILL);
    let _ = waitpid(Some(holder), WaitOptions::empty());
}

/// Says that they are made, and waits: until they are let go of, or it is told what to look out for.
fn attend(mut line: Channel) -> std::io::Result<()> {
    line.send(&(), &[])?;
    match line.receive::<Watch>()? {
        Some(watch) => {
            let mounts = line.take()?;
            lookout::live(&watch, mounts, &line)
        }
        None => Ok(()),
    }
}

fn hold(identity: &IdMap, launcher: Pid) -> Result<(), LaunchFault> {
    let say = || "cannot make namespaces ahead of time".to_owned();
    if geteuid().is_root() {
        let (user, group) = identity.outside;
        identity::become_for_good(&[group], user, group).or_say(say)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).or_say(say)?;
    // A launcher that has ended already sends no signal any more.
    if rustix::process::getppid() != Some(launcher) {
        return Err(failed(say(), "the launcher has ended"));
    }
    sys::unshare(AHEAD).or_say(say)?;
    identity::map_own(identity)?;
    network::bring_up()
}
