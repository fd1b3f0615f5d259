//! Landlock, the floor: what may be read, run and changed, exactly as in the plan, whatever the mounts say.
//!
//! Promises: P1, P13. Every right that the running kernel knows is handled, as a hard requirement, and the kernel's
//! answer is read back: fully enforced, or nothing starts. Signals and abstract sockets are kept inside where the
//! kernel can (ABI 6).
//! Not here: mounts (`root`), which do what Landlock cannot: read-only places inside writable ones.
//! See: landlock(7).

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use bailiwick_gate::{BindMode, FencePlan, LaunchFault};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags, open};

use crate::fault::failed;
use crate::trees::Trees;

/// Least version of Landlock: the first that can refuse to shorten a file.
pub(crate) const LEAST: i32 = 3;

fn refused(cause: impl std::fmt::Display) -> LaunchFault {
    LaunchFault {
        hint: "landlock must be among the security modules of the running kernel (see /sys/kernel/security/lsm)".into(),
        ..failed("cannot lay the floor with landlock", cause.to_string())
    }
}

/// The devices that a fence without a `/dev` of its own sees; all terminals besides, of which the supervisor opens the
/// fence's own.
const SHARED_DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];

/// What may be done to a device.
fn device(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | (AccessFs::from_all(abi) & (AccessFs::IoctlDev | AccessFs::Truncate))
}

/// The floor, not laid yet.
pub(crate) struct Floor {
    rules: RulesetCreated,
    version: i32,
}

impl Floor {
    /// A floor on which nothing may be done. With `network`, no TCP connection either, and no listening, where the kernel
    /// can tell (ABI 4).
    fn bare(version: i32, network: bool) -> Result<Self, LaunchFault> {
        if version < LEAST {
            return Err(refused(format!(
                "the kernel has version {version} of it, {LEAST} is the least that will do"
            )));
        }
        let abi = ABI::from(version);
        let build = || -> Result<RulesetCreated, RulesetError> {
            let mut rules = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(abi))?;
            let ports = AccessNet::from_all(abi);
            if network && !ports.is_empty() {
                rules = rules.handle_access(ports)?;
            }
            let scopes = Scope::from_all(abi);
            if !scopes.is_empty() {
                rules = rules.scope(scopes)?;
            }
            rules.create()
        };
        let rules = build().map_err(refused)?;
        Ok(Self { rules, version })
    }

    /// The floor of an agent, from inside the new root.
    pub(crate) fn of(plan: &FencePlan, trees: &Trees, version: i32) -> Result<Self, LaunchFault> {
        let abi = ABI::from(version);
        let (read, device) = (AccessFs::from_read(abi), device(abi));
        let mut floor = Self::bare(version, false)?;
        floor.places(plan, trees)?;
        for (path, _) in &plan.files {
            floor.allow(&path.to_path_buf(), AccessFs::ReadFile.into(), false)?;
        }
        floor.allow(Path::new("/dev"), read | device, true)?;
        floor.allow(Path::new("/dev/shm"), AccessFs::from_all(abi), true)?;
        floor.processes()?;
        Ok(floor)
    }

    /// The floor of an agent, or of its supervisor, on the machine's own root. The agent's is closed to the network.
    pub(crate) fn on_machine(
        plan: &FencePlan,
        trees: &Trees,
        version: i32,
        network: bool,
    ) -> Result<Self, LaunchFault> {
        let abi = ABI::from(version);
        let mut floor = Self::bare(version, network)?;
        floor.places(plan, trees)?;
        for name in SHARED_DEVICES {
            floor.allow(&Path::new("/dev").join(name), device(abi), false)?;
        }
        floor.allow(Path::new("/dev/pts"), device(abi) | AccessFs::ReadDir, true)?;
        floor.processes()?;
        Ok(floor)
    }

    fn places(&mut self, plan: &FencePlan, trees: &Trees) -> Result<(), LaunchFault> {
        let abi = ABI::from(self.version);
        let (read, all) = (AccessFs::from_read(abi), AccessFs::from_all(abi));
        for tree in &trees.trees {
            let mut rights = if tree.mode == BindMode::Write { all } else { read };
            if crate::order::below(tree.target.as_str(), "/dev") {
                rights |= device(abi);
            }
            self.allow_at(&tree.mount, rights, tree.folder)?;
        }
        for path in &trees.asked {
            let folder = path.to_path_buf().is_dir();
            self.allow(&path.to_path_buf(), all, folder)?;
        }
        for path in &plan.scratch {
            self.allow(&path.to_path_buf(), all, true)?;
        }
        Ok(())
    }

    /// Programs write their own names, scores and maps there; debuggers the memory of their children. The rest is
    /// mounted read-only, or the machine's root's.
    fn processes(&mut self) -> Result<(), LaunchFault> {
        let abi = ABI::from(self.version);
        let write = (AccessFs::from_all(abi) & AccessFs::Truncate) | AccessFs::WriteFile;
        self.allow(Path::new("/proc"), AccessFs::from_read(abi) | write, true)
    }

    fn allow(&mut self, path: &Path, rights: BitFlags<AccessFs>, folder: bool) -> Result<(), LaunchFault> {
        let place = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| refused(format!("`{}`: {}", path.display(), crate::fault::cause(errno))))?;
        self.allow_at(&place, rights, folder)
    }

    /// A rule is the file's or folder's own, whatever was mounted over it since.
    fn allow_at(&mut self, place: impl AsFd, rights: BitFlags<AccessFs>, folder: bool) -> Result<(), LaunchFault> {
        let rights = if folder {
            rights
        } else {
            rights & AccessFs::from_file(ABI::from(self.version))
        };
        let add = |rules: &mut RulesetCreated| -> Result<(), RulesetError> {
            rules.add_rule(PathBeneath::new(place, rights)).map(|_| ())
        };
        add(&mut self.rules).map_err(refused)
    }

    /// What the agent stands on above its supervisor, where that stands on this floor already: nothing more is refused, but
    /// the supervisor is out of reach, for a trace as for a signal. Each opening is then looked up once and not twice.
    pub(crate) fn above(&self) -> Result<Self, LaunchFault> {
        let scopes = Scope::from_all(ABI::from(self.version));
        if scopes.is_empty() {
            // There is nothing else that such a floor could handle (before ABI 6).
            return Ok(Self {
                rules: self.rules.try_clone().map_err(refused)?,
                version: self.version,
            });
        }
        // Where a file may be moved to is the one right that every floor refuses unless it says otherwise.
        let build = || -> Result<RulesetCreated, RulesetError> {
            Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::Refer)?
                .scope(scopes)?
                .create()
        };
        let mut above = Self {
            rules: build().map_err(refused)?,
            version: self.version,
        };
        above.allow(Path::new("/"), AccessFs::Refer.into(), true)?;
        Ok(above)
    }

    /// Lays the floor under this thread and all that it starts.
    pub(crate) fn lay(self) -> Result<(), LaunchFault> {
        let status = self.rules.restrict_self().map_err(refused)?;
        if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
            return Err(refused("the kernel says that it is not fully enforced"));
        }
        Ok(())
    }
}

/// Lays a floor under the server of ask trees: those trees, and nothing else.
pub(crate) fn lay_under_files<'a>(trees: impl Iterator<Item = (&'a OwnedFd, bool)>) -> Result<(), LaunchFault> {
    let version = crate::sys::landlock_version();
    let mut floor = Floor::bare(version, true)?;
    let all = AccessFs::from_all(ABI::from(version));
    for (root, folder) in trees {
        floor.allow_at(root, all, folder)?;
    }
    floor.lay()
}

/// Lays a floor under a gate: it reads what is listed, and changes nothing.
pub(crate) fn lay_under_gate(readable: &[std::path::PathBuf]) -> Result<(), LaunchFault> {
    let version = crate::sys::landlock_version();
    let mut floor = Floor::bare(version, false)?;
    for path in readable {
        if let Ok(place) = PathFd::new(path) {
            let folder = path.is_dir();
            let rights = AccessFs::ReadFile | AccessFs::ReadDir;
            floor.allow_at(&place, rights, folder)?;
        }
    }
    floor.lay()
}
