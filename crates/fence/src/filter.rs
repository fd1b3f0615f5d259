//! The seccomp filters: the table of system calls with the conditions on their arguments, compiled for the kernel.
//!
//! Promises: P13. Three filters stand on one another; the kernel takes the strictest answer, and of two errors that of
//! the filter laid last. First the calls that exist, those refused aloud (`EPERM`), all else `ENOSYS`; then arguments
//! that are refused with `EPERM`; then socket families that do not exist here. A call by another processor family's numbers ends the process; x32 numbers
//! stand in no table.
//! Not here: the table (`syscalls`), and how it is searched (`table`).
//! See: seccomp(2), socket(2), ioctl_tty(2), personality(2), inode(7), "The file type and mode".

use std::collections::BTreeMap;

use bailiwick_gate::LaunchFault;
use bailiwick_model::Code;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::syscalls::{
    AGENT, ATTRIBUTES, CONNECTING, GATE, LOOKOUT, MEDDLING, MOUNTING, NAMING, OLDER_NAMING, OLDER_WATCHED, OPENING,
    REFUSED, SHARED, STARTING, SUPERVISOR, WATCHED,
};
use crate::table::{self, Answer};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Fault = seccompiler::BackendError;

const INET: u64 = 2;
const INET6: u64 = 10;
const UNIX: u64 = 1;
const NETLINK: u64 = 16;
/// The part of a socket's type that is not flags.
const TYPE: u64 = 0xf;
/// Streams and datagrams: no raw sockets.
const TYPES: [u64; 2] = [1, 2];
/// The kernel's choice, TCP, UDP: no MPTCP (262), no SCTP (132).
const PROTOCOLS: [u64; 3] = [0, 6, 17];
/// Every flag of `clone` that makes a namespace.
const NAMESPACES: [u64; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];
/// The options of sockets of every kind (`SOL_SOCKET`).
const SOCKET_LEVEL: u64 = 1;
/// Puts bytes into a terminal's input as if they were typed.
const TIOCSTI: u64 = 0x5412;
/// Pastes a virtual console's selection: the same by another road.
const TIOCLINUX: u64 = 0x541c;
/// Plain Linux, without address randomisation, 32-bit alike, and the question what is set: debuggers, `setarch`.
const PERSONALITIES: [u64; 5] = [0, 0x0004_0000, 0x0000_0008, 0x0002_0000, 0xffff_ffff];

/// The mode bits by which a file runs as its owner or its group.
const SET_ID: [u64; 2] = [0o4000, 0o2000];
/// Each of these flags makes a call that opens a file read the mode: it makes a file, with a name or without one.
const CREATING: [u64; 2] = [0o100, 0o20_000_000];
/// Each of these flags makes a call that opens a file more than a look: access for writing, `O_CREAT`, `O_TRUNC`,
/// `O_TMPFILE`.
const WRITING: u32 = 0o20_001_103;
/// The calls that give a file its mode, and which argument that is.
const MODES: [(libc::c_long, u8); 4] = [
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
];
/// The calls that give a file its mode where they make it: which arguments the flags and the mode are.
const OPENINGS: [(libc::c_long, u8, u8); 1] = [(libc::SYS_openat, 2, 3)];
#[cfg(target_arch = "x86_64")]
const OLDER_MODES: [(libc::c_long, u8); 3] = [(libc::SYS_chmod, 1), (libc::SYS_mknod, 1), (libc::SYS_creat, 1)];
#[cfg(target_arch = "x86_64")]
const OLDER_OPENINGS: [(libc::c_long, u8, u8); 1] = [(libc::SYS_open, 1, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_MODES: [(libc::c_long, u8); 0] = [];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_OPENINGS: [(libc::c_long, u8, u8); 0] = [];

/// The calls that exist with conditions on their arguments.
const CONDITIONAL: &[libc::c_long] = &[
    libc::SYS_clone,
    libc::SYS_ioctl,
    libc::SYS_personality,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Which calls of an agent are held besides those that always are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeldCalls {
    /// Every call that opens a file, also to read.
    pub strict: bool,
    /// Every start of a program: where rules tell programs apart. Elsewhere nothing would come of it.
    pub starts: bool,
}

impl HeldCalls {
    fn starting(self) -> &'static [libc::c_long] {
        if self.starts { STARTING } else { &[] }
    }
}

/// The filters of one kind of process, ready to be laid.
#[derive(Debug, Clone)]
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// The filters of an agent at level `namespace`: the first of them asks a supervisor about what gets a name or may be
    /// written, about connections, and as `held` says.
    pub(crate) fn agent(held: HeldCalls) -> Result<Self, LaunchFault> {
        let watched = NAMING
            .iter()
            .chain(OLDER_NAMING)
            .chain(CONNECTING)
            .chain(held.starting());
        let watched = watched.map(|call| (*call, Answer::Watch));
        let opening = OPENING.iter().map(|(call, flags)| match held.strict {
            true => (*call, Answer::Watch),
            false => (*call, Answer::WatchIf(*flags, WRITING)),
        });
        let mut filters = Self::of(AGENT, &[], &watched.chain(opening).collect::<Vec<_>>())?;
        let roads = compile(roads_past_connect(), libc::EPERM).map_err(refused)?;
        filters.0.push(roads);
        filters.judged(held)
    }

    /// The filters of an agent at level `process`: the first of them asks a supervisor. Every call that opens a file is held
    /// there anyway.
    pub(crate) fn watched_agent(held: HeldCalls) -> Result<Self, LaunchFault> {
        let same =
            |calls: &[libc::c_long], answer: Answer| calls.iter().map(|call| (*call, answer)).collect::<Vec<_>>();
        let refuse = |code: i32| Answer::Refuse(u16::try_from(code).unwrap_or(u16::MAX));
        let differently: Vec<_> = [
            same(WATCHED, Answer::Watch),
            same(OLDER_WATCHED, Answer::Watch),
            same(held.starting(), Answer::Watch),
            same(SHARED, refuse(libc::ENOSYS)),
            same(ATTRIBUTES, refuse(libc::ENOTSUP)),
        ]
        .concat();
        let mut filters = Self::of(AGENT, &[], &differently)?;
        for (rules, code) in [(shared_network(), libc::EPERM), (ignored(), 0)] {
            filters.0.push(compile(rules, code).map_err(refused)?);
        }
        filters.judged(held)
    }

    /// The filters of a gate.
    pub(crate) fn gate() -> Result<Self, LaunchFault> {
        let starting = [libc::SYS_execve, libc::SYS_execveat, libc::SYS_ptrace];
        Self::of(GATE, &starting, &[])
    }

    /// One filter more, for a fence whose starts are judged: nobody changes what was judged.
    fn judged(mut self, held: HeldCalls) -> Result<Self, LaunchFault> {
        if held.starts {
            let rules = MEDDLING.iter().map(|call| (*call, Vec::new())).collect();
            self.0.push(compile(Ok(rules), libc::EPERM).map_err(refused)?);
        }
        Ok(self)
    }

    /// The filters of a supervisor.
    pub(crate) fn supervisor() -> Result<Self, LaunchFault> {
        let mut filters = Self::of(SUPERVISOR, STARTING, &[])?;
        filters
            .0
            .push(compile(looking_at_starts(), libc::EPERM).map_err(refused)?);
        Ok(filters)
    }

    /// The filters of a lookout: it looks and mounts.
    pub(crate) fn lookout() -> Result<Self, LaunchFault> {
        let mounting = MOUNTING.iter().map(|call| (*call, Answer::Allow));
        Self::of(LOOKOUT, STARTING, &mounting.collect::<Vec<_>>())
    }

    /// `differently` are calls of the groups that have another answer than to be done.
    fn of(
        groups: &[&[libc::c_long]],
        also_refused: &[libc::c_long],
        differently: &[(libc::c_long, Answer)],
    ) -> Result<Self, LaunchFault> {
        let error = |code: i32| Answer::Refuse(u16::try_from(code).unwrap_or(u16::MAX));
        let allowed = groups
            .iter()
            .copied()
            .flatten()
            .chain(CONDITIONAL)
            .map(|call| (*call, Answer::Allow));
        let denied = REFUSED
            .iter()
            .chain(also_refused)
            .map(|call| (*call, error(libc::EPERM)));
        let answers = allowed
            .chain(denied)
            .chain(differently.iter().copied())
            .filter_map(|(call, answer)| Some((u32::try_from(call).ok()?, answer)));
        let existing = table::program(&answers.collect(), error(libc::ENOSYS), &machine().map_err(refused)?);
        Ok(Self(vec![
            existing.ok_or_else(|| refused("the table of calls is too long"))?,
            compile(refused_arguments(), libc::EPERM).map_err(refused)?,
            compile(strange_families(), libc::EAFNOSUPPORT).map_err(refused)?,
        ]))
    }

    /// Lays the filters on this thread and all that it starts; `tell` is given the listener of the first one before the
    /// others are laid.
    pub(crate) fn lay_watched(
        &self,
        tell: impl FnOnce(std::os::fd::OwnedFd) -> Result<(), LaunchFault>,
    ) -> Result<(), LaunchFault> {
        let Some((first, others)) = self.0.split_first() else {
            return Err(refused("there are none"));
        };
        tell(crate::sys::notify::lay_watched(first).map_err(refused)?)?;
        others
            .iter()
            .try_for_each(|program| seccompiler::apply_filter(program))
            .map_err(refused)
    }

    /// Lays the filters on this thread and all that it starts. They cannot be taken off.
    pub(crate) fn lay(&self) -> Result<(), LaunchFault> {
        self.0
            .iter()
            .try_for_each(|program| seccompiler::apply_filter(program))
            .map_err(refused)
    }
}

fn refused(cause: impl std::fmt::Display) -> LaunchFault {
    LaunchFault {
        code: Code::FenceFailed,
        what: "cannot filter system calls".into(),
        cause: cause.to_string(),
        hint: "the kernel needs CONFIG_SECCOMP_FILTER".into(),
    }
}

fn compile(rules: Result<Rules, Fault>, code: i32) -> Result<BpfProgram, Fault> {
    let refuse = SeccompAction::Errno(code.unsigned_abs());
    SeccompFilter::new(rules?, SeccompAction::Allow, refuse, machine()?).and_then(BpfProgram::try_from)
}

fn machine() -> Result<TargetArch, Fault> {
    TargetArch::try_from(std::env::consts::ARCH)
}

fn when(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Fault> {
    // The kernel reads these arguments as 32 bits: the upper half is the caller's to fill, and must not matter.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

fn all_of(conditions: impl IntoIterator<Item = Result<SeccompCondition, Fault>>) -> Result<SeccompRule, Fault> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

fn refused_arguments() -> Result<Rules, Fault> {
    let mut rules = Rules::new();
    let namespaces = NAMESPACES.map(|flag| all_of([when(0, SeccompCmpOp::MaskedEq(flag), flag)]));
    rules.insert(libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?);
    let ioctl = [TIOCSTI, TIOCLINUX].map(|request| all_of([when(1, SeccompCmpOp::Eq, request)]));
    rules.insert(libc::SYS_ioctl, ioctl.into_iter().collect::<Result<_, _>>()?);
    let personality = PERSONALITIES.map(|kind| when(0, SeccompCmpOp::Ne, kind));
    rules.insert(libc::SYS_personality, vec![all_of(personality)?]);
    let mut sockets = Vec::new();
    for family in [INET, INET6] {
        let of_family = || when(0, SeccompCmpOp::Eq, family);
        let protocol = PROTOCOLS.map(|protocol| when(2, SeccompCmpOp::Ne, protocol));
        sockets.push(all_of([of_family()].into_iter().chain(protocol))?);
        for kind in (0..=TYPE).filter(|kind| !TYPES.contains(kind)) {
            sockets.push(all_of([of_family(), when(1, SeccompCmpOp::MaskedEq(TYPE), kind)])?);
        }
    }
    sockets.push(all_of([
        when(0, SeccompCmpOp::Eq, NETLINK),
        when(2, SeccompCmpOp::Ne, 0),
    ])?);
    rules.insert(libc::SYS_socket, sockets);
    rules.append(&mut other_identities()?);
    Ok(rules)
}

/// No file may be made to run as its owner: on disk that is the person, or root, and outside anybody may start it.
fn other_identities() -> Result<Rules, Fault> {
    let mut rules = Rules::new();
    for (call, mode) in MODES.into_iter().chain(OLDER_MODES) {
        let bits = SET_ID.map(|bit| all_of([when(mode, SeccompCmpOp::MaskedEq(bit), bit)]));
        rules.insert(call, bits.into_iter().collect::<Result<_, _>>()?);
    }
    for (call, flags, mode) in OPENINGS.into_iter().chain(OLDER_OPENINGS) {
        let mut all = Vec::new();
        for (flag, bit) in CREATING.into_iter().flat_map(|flag| SET_ID.map(|bit| (flag, bit))) {
            all.push(all_of([
                when(flags, SeccompCmpOp::MaskedEq(flag), flag),
                when(mode, SeccompCmpOp::MaskedEq(bit), bit),
            ])?);
        }
        rules.insert(call, all);
    }
    Ok(rules)
}

/// Whom a message goes to is said by the call that is watched alone: no datagrams to Unix sockets, whose addresses lie in
/// memory, and no connection that begins with its first bytes (tcp(7), "TCP_FASTOPEN").
fn roads_past_connect() -> Result<Rules, Fault> {
    const STREAM: u64 = 1;
    const SEQUENCED: u64 = 5;
    const FASTOPEN: u64 = 0x2000_0000;
    const TCP: u64 = 6;
    const FASTOPEN_OPTIONS: [u64; 2] = [23, 30];
    let mut rules = Rules::new();
    let mut local = Vec::new();
    for kind in (0..=TYPE).filter(|kind| ![STREAM, SEQUENCED].contains(kind)) {
        local.push(all_of([
            when(0, SeccompCmpOp::Eq, UNIX),
            when(1, SeccompCmpOp::MaskedEq(TYPE), kind),
        ])?);
    }
    rules.insert(libc::SYS_socketpair, local.clone());
    rules.insert(libc::SYS_socket, local);
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(
            call,
            vec![all_of([when(flags, SeccompCmpOp::MaskedEq(FASTOPEN), FASTOPEN)])?],
        );
    }
    let fast = FASTOPEN_OPTIONS.map(|number| option(TCP, number));
    rules.insert(libc::SYS_setsockopt, fast.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

/// An option of a socket.
fn option(level: u64, option: u64) -> Result<SeccompRule, Fault> {
    all_of([when(1, SeccompCmpOp::Eq, level), when(2, SeccompCmpOp::Eq, option)])
}

/// Where the network is the machine's: besides, no datagrams at all, and no signals by way of a descriptor.
fn shared_network() -> Result<Rules, Fault> {
    /// `SO_PASSPIDFD` and `SO_PEERPIDFD`.
    const PASS_PROCESS: u64 = 76;
    const PEER_PROCESS: u64 = 77;
    let mut rules = roads_past_connect()?;
    for family in [INET, INET6] {
        let datagrams = all_of([
            when(0, SeccompCmpOp::Eq, family),
            when(1, SeccompCmpOp::MaskedEq(TYPE), 2),
        ])?;
        rules.entry(libc::SYS_socket).or_default().push(datagrams);
    }
    let pass = option(SOCKET_LEVEL, PASS_PROCESS)?;
    rules.entry(libc::SYS_setsockopt).or_default().push(pass);
    // A descriptor of the process at the other end takes signals.
    rules.insert(libc::SYS_getsockopt, vec![option(SOCKET_LEVEL, PEER_PROCESS)?]);
    // F_SETOWN and F_SETOWN_EX.
    let owners = [8, 15].map(|request| all_of([when(1, SeccompCmpOp::Eq, request)]));
    rules.insert(libc::SYS_fcntl, owners.into_iter().collect::<Result<_, _>>()?);
    // FIOSETOWN and SIOCSPGRP do the same.
    let mut requests = [0x8901, 0x8902]
        .map(|request| all_of([when(1, SeccompCmpOp::Eq, request)]))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    requests.append(&mut changes_by_request()?);
    rules.insert(libc::SYS_ioctl, requests);
    Ok(rules)
}

/// Requests that change a file which is open to read, or what stands in a folder, past every name: only a mount that is
/// read-only stops them (ioctl_iflags(2), btrfs-ioctl(2)).
fn changes_by_request() -> Result<Vec<SeccompRule>, Fault> {
    /// Flags, generation and attributes of an inode; encryption, integrity.
    const CHANGES: [u64; 8] = [
        0x4008_6602,
        0x4004_6602,
        0x4008_7602,
        0x4004_7602,
        0x401c_5820,
        0x800c_6613,
        0xc050_6617,
        0x4080_6685,
    ];
    /// The requests of btrfs, which others have taken up: sharing and comparing content, for which the target is open to
    /// write.
    const BTRFS: u64 = 0x9400;
    const SHARING: [u64; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];
    let mut rules = CHANGES
        .map(|request| all_of([when(1, SeccompCmpOp::Eq, request)]))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let others = SHARING.map(|request| when(1, SeccompCmpOp::Ne, request));
    rules.push(all_of(
        [when(1, SeccompCmpOp::MaskedEq(0xff00), BTRFS)]
            .into_iter()
            .chain(others),
    )?);
    Ok(rules)
}

/// A supervisor traces to look at what starts, and no further: it seizes, stops and lets go (ptrace(2)).
fn looking_at_starts() -> Result<Rules, Fault> {
    // Seizing, stopping, letting go; registers to read, and words to write.
    const REQUESTS: [u64; 5] = [0x4206, 0x4207, 17, 0x4204, 5];
    let others = REQUESTS.map(|request| when(0, SeccompCmpOp::Ne, request));
    Ok(Rules::from([(libc::SYS_ptrace, vec![all_of(others)?])]))
}

/// Answered with success and not done. The supervisor must be able to look at every process (PR_SET_DUMPABLE(2const)).
/// A port is not shared with another server of the person's, who would not notice (`SO_REUSEPORT`, socket(7)).
fn ignored() -> Result<Rules, Fault> {
    const DUMPABLE: u64 = 4;
    const REUSE_PORT: u64 = 15;
    let undumpable = all_of([when(0, SeccompCmpOp::Eq, DUMPABLE)])?;
    let shared = all_of([
        when(1, SeccompCmpOp::Eq, SOCKET_LEVEL),
        when(2, SeccompCmpOp::Eq, REUSE_PORT),
    ])?;
    Ok(Rules::from([
        (libc::SYS_prctl, vec![undumpable]),
        (libc::SYS_setsockopt, vec![shared]),
    ]))
}

fn strange_families() -> Result<Rules, Fault> {
    let strange = || all_of([UNIX, INET, INET6, NETLINK].map(|family| when(0, SeccompCmpOp::Ne, family)));
    [libc::SYS_socket, libc::SYS_socketpair]
        .into_iter()
        .map(|call| Ok((call, vec![strange()?])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGED: HeldCalls = HeldCalls {
        strict: true,
        starts: true,
    };

    #[test]
    fn p13_the_filters_compile_and_fit_the_kernel() {
        for (filters, count) in [
            (Filters::agent(HeldCalls::default()).unwrap(), 4),
            (Filters::agent(JUDGED).unwrap(), 5),
            (Filters::watched_agent(HeldCalls::default()).unwrap(), 5),
            (Filters::watched_agent(JUDGED).unwrap(), 6),
            (Filters::gate().unwrap(), 3),
            (Filters::supervisor().unwrap(), 4),
            (Filters::lookout().unwrap(), 3),
        ] {
            assert_eq!(filters.0.len(), count);
            assert!(filters.0.iter().all(|program| program.len() < 4096));
        }
    }
}
