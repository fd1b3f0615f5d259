//! The launcher process: it waits for one order, has the fence built, and stays until everything in it has ended.
//!
//! Promises: P11 (when the daemon's end closes, all in the fence ends at once), P13.
//! Trust: orders come from the daemon alone. This process has one thread and parses nothing hostile.
//! As root it stays root, so that it can remove what it made; the process that builds the fence gives root up.
//! Not here: what the fence is made of (`inside`).

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_gate::{Content, FencePlan, Judged, LaunchFault, Reading};
use bailiwick_model::Level;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, geteuid, kill_process, set_parent_process_death_signal, waitpid,
};
use rustix::thread::UnshareFlags;

use crate::ask::{self, PULSE, Server, Watch};
use crate::channel::Channel;
use crate::fault::{Says, cause, failed, hint};
use crate::filter::{Filters, HeldCalls};
use crate::inside::{self, Along, Orders, status_of};
use crate::limits::Group;
use crate::order::{Hear, MAX_CONTENT, Say, check};
use crate::spare::{AHEAD, Spare};
use crate::sys::{self, Fork};
use crate::trees::Trees;
use crate::{identity, network, process};

/// The namespaces that belong to the order.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWCGROUP);

/// Takes the channel that a launcher is started with, its input, which is `/dev/null` then, and closes what it was started
/// with besides. Call it once, before anything is opened.
pub fn inherited_channel() -> std::io::Result<OwnedFd> {
    sys::take_input()
}

/// Takes the secret that this program was handed ([`bailiwick_gate::SECRET`]). Call it once.
pub fn inherited_secret() -> std::io::Result<OwnedFd> {
    sys::inherited(bailiwick_gate::SECRET)
}

/// Makes what reads the starts of a plan's programs.
pub type Readings = fn(&FencePlan) -> Arc<dyn Reading>;

/// The body of the launcher process: waits for one order on the channel, carries it out, stays until the end. The
/// process must have one thread. The exit code says whether the launcher itself was in order.
pub fn run_launcher(channel: OwnedFd, readings: Readings) -> ExitCode {
    // Made ready before the order comes, so that it need not wait.
    let ahead = [false, true].map(|starts| Filters::agent(HeldCalls { strict: false, starts }));
    let own_filters = Filters::supervisor();
    let landlock = sys::landlock_version();
    let mut spare = Spare::begin();
    let mut daemon = Channel::over(channel);
    let order = match daemon.receive::<Say>() {
        Ok(Some(Say::Order { protocol, plan })) => Ok((protocol, plan)),
        Ok(Some(Say::Signal { .. } | Say::Errand { .. })) => {
            Err(failed("cannot carry out the order", "something else came before it"))
        }
        Ok(None) => {
            if let Some(spare) = spare {
                spare.let_go();
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(failed("cannot carry out the order", cause(error))),
    };
    let carry_out = || {
        let (protocol, mut plan) = order?;
        check(protocol, &plan, daemon.waiting())?;
        let held = HeldCalls {
            strict: plan.strict,
            starts: plan.judged != Judged::Nothing,
        };
        let [filters, of_judged] = ahead;
        let filters = match (plan.level, held) {
            (Level::Process, held) => Filters::watched_agent(held)?,
            (Level::Namespace, HeldCalls { strict: true, .. }) => Filters::agent(held)?,
            (Level::Namespace, HeldCalls { starts: true, .. }) => of_judged?,
            (Level::Namespace, _) => filters?,
        };
        let take = |daemon: &mut Channel| daemon.take().or_say(|| "cannot carry out the order".into());
        let (mediator, brokers) = (take(&mut daemon)?, take(&mut daemon)?);
        let files = plan.is_served().then(|| take(&mut daemon)).transpose()?;
        let along = Along {
            mediator,
            brokers,
            secret: plan.secret.then(|| take(&mut daemon)).transpose()?,
        };
        let handed = (0..plan.handed).map(|_| take(&mut daemon));
        let handed = handed.collect::<Result<Vec<_>, LaunchFault>>()?;
        let pipes = (0..daemon.waiting()).map(|_| daemon.take()).collect::<Result<_, _>>();
        let pipes = pipes.or_say(|| "cannot carry out the order".into())?;
        match plan.level {
            Level::Namespace => Fence::start(
                &plan,
                (along, files, handed),
                readings,
                pipes,
                [&filters, &own_filters?],
                landlock,
                spare.as_mut(),
            ),
            Level::Process => {
                read_contents(&mut plan, handed)?;
                Fence::start_process(plan, along, readings, pipes, [&filters, &own_filters?], landlock)
            }
        }
    };
    let fence = carry_out();
    match fence {
        Ok(mut fence) => {
            match spare {
                Some(spare) if fence.ahead => fence.spare = Some(spare),
                Some(spare) => spare.let_go(),
                None => {}
            }
            fence.serve(&mut daemon)
        }
        Err(fault) => {
            if let Some(spare) = spare {
                spare.let_go();
            }
            let _ = daemon.send(&Hear::Fault { fault }, &[]);
            ExitCode::FAILURE
        }
    }
}

/// Where nothing is mounted, what files are to hold is kept in memory.
fn read_contents(plan: &mut FencePlan, handed: Vec<OwnedFd>) -> Result<(), LaunchFault> {
    let handed = handed.into_iter().map(contents_of);
    let handed = handed.collect::<Result<Vec<_>, LaunchFault>>()?;
    for (_, content) in &mut plan.files {
        if let Content::Handed(number) = content
            && let Some(bytes) = handed.get(*number)
        {
            *content = Content::Bytes(Arc::clone(bytes));
        }
    }
    Ok(())
}

/// What a descriptor holds that came along.
fn contents_of(descriptor: OwnedFd) -> Result<Arc<[u8]>, LaunchFault> {
    let say = || "cannot read what a file is to hold".to_owned();
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(descriptor);
    let rewound = file.seek(SeekFrom::Start(0));
    rewound.or_say(say)?;
    file.take(MAX_CONTENT).read_to_end(&mut bytes).or_say(say)?;
    Ok(bytes.into())
}

/// A fence, as its launcher holds it.
struct Fence {
    first: Option<Pid>,
    inside: Channel,
    group: Option<Group>,
    /// At level `process`: what must be cleared up behind it.
    process: Option<Box<FencePlan>>,
    /// The watch over the server of trees that are asked about.
    files: Option<Watch>,
    /// What was mounted in the fence. It is taken down with this process, when the daemon knows that the fence has ended.
    mounts: Option<OwnedFd>,
    /// True where it has entered namespaces that were made ahead.
    ahead: bool,
    /// Who made them, and looks out now.
    spare: Option<Spare>,
}

impl Fence {
    fn start(
        plan: &FencePlan,
        (along, files, contents): (Along, Option<OwnedFd>, Vec<OwnedFd>),
        readings: Readings,
        pipes: Vec<OwnedFd>,
        filters: [&Filters; 2],
        landlock: i32,
        spare: Option<&mut Spare>,
    ) -> Result<Self, LaunchFault> {
        let say = || "cannot start a process".to_owned();
        let (mine, theirs) = Channel::pair().or_say(say)?;
        let hearts = files.as_ref().map(|_| Channel::pair()).transpose().or_say(say)?;
        let (heart, beating) = hearts.unzip();
        let asking = files.zip(beating);
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_say(say)?;
        let group = Group::make(&plan.limits);
        let spare = spare.and_then(|spare| spare.fits(&plan.identity).then_some(spare));
        let launcher = rustix::process::getpid();
        let builder = match sys::fork().or_say(say)? {
            Fork::Parent(builder) => builder,
            Fork::Child => {
                drop((mine, told, heart));
                let orders = Orders {
                    plan,
                    trees: None,
                    along: Some(along),
                    readings,
                    asked: Vec::new(),
                    contents,
                    pipes,
                    filters: filters[0],
                    own_filters: filters[1],
                    landlock,
                    grouped: group.is_some(),
                    looked_out: spare.is_some(),
                    launcher,
                };
                build(orders, group, spare, asking, Channel::over(theirs), &tell);
            }
        };
        drop((theirs, tell, pipes, along, asking, contents));
        let mut number = || {
            let mut number = [0u8; 4];
            let heard = rustix::io::read(&told, &mut number);
            Pid::from_raw(i32::from_ne_bytes(number)).filter(|_| heard == Ok(4))
        };
        // The server comes first, so that it is known also where the fence fails.
        let files = heart.is_some().then(&mut number).flatten().zip(heart);
        let files = files.map(|(server, heart)| Watch::over(server, heart)).transpose();
        let files = files.or_say(say)?;
        let first = number();
        let _ = waitpid(Some(builder), WaitOptions::empty());
        Ok(Self {
            first,
            inside: Channel::over(mine),
            group,
            process: None,
            files,
            mounts: None,
            ahead: spare.is_some(),
            spare: None,
        })
    }

    /// Starts the first process of a fence without namespaces.
    fn start_process(
        plan: Box<FencePlan>,
        along: Along,
        readings: Readings,
        pipes: Vec<OwnedFd>,
        filters: [&Filters; 2],
        landlock: i32,
    ) -> Result<Self, LaunchFault> {
        let say = || "cannot start a process".to_owned();
        let (mine, theirs) = Channel::pair().or_say(say)?;
        let group = Group::make(&plan.limits);
        let launcher = rustix::process::getpid();
        // What the first process leaves behind when it is lost comes to this one.
        sys::notify::adopt_orphans().or_say(say)?;
        let first = match sys::fork().or_say(say)? {
            Fork::Parent(first) => first,
            Fork::Child => {
                drop(mine);
                let orders = Orders {
                    plan: &plan,
                    trees: None,
                    along: Some(along),
                    readings,
                    asked: Vec::new(),
                    contents: Vec::new(),
                    pipes,
                    filters: filters[0],
                    own_filters: filters[1],
                    landlock,
                    grouped: group.is_some(),
                    looked_out: false,
                    launcher,
                };
                let theirs = Channel::over(theirs);
                let entered = group
                    .as_ref()
                    .map_or(Ok(()), Group::join)
                    .and_then(|()| process::enter(&orders));
                match entered {
                    Ok(()) => process::live(orders, theirs),
                    Err(fault) => {
                        let _ = theirs.send(&Hear::Fault { fault }, &[]);
                        sys::exit_now(1);
                    }
                }
            }
        };
        Ok(Self {
            first: Some(first),
            inside: Channel::over(mine),
            group,
            process: Some(plan),
            files: None,
            mounts: None,
            ahead: false,
            spare: None,
        })
    }

    /// Stays between the daemon and the fence until the fence has ended.
    fn serve(mut self, daemon: &mut Channel) -> ExitCode {
        self.attend(daemon);
        if let Some(spare) = self.spare.take() {
            spare.let_go();
        }
        if let Some(files) = self.files.take() {
            files.end();
        }
        ExitCode::SUCCESS
    }

    fn attend(&mut self, daemon: &mut Channel) {
        loop {
            let mut ready = vec![
                PollFd::new(&*daemon, PollFlags::IN),
                PollFd::new(&self.inside, PollFlags::IN),
            ];
            ready.extend(
                self.spare
                    .iter()
                    .filter_map(Spare::line)
                    .map(|line| PollFd::new(line, PollFlags::IN)),
            );
            let pulse = self.files.as_ref().map(|_| PULSE);
            match poll(&mut ready, pulse.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return self.finish(daemon, None),
            }
            let spoken = |place: usize| ready.get(place).is_some_and(|one| !one.revents().is_empty());
            let (from_daemon, from_inside, lost_lookout) = (spoken(0), spoken(1), spoken(2));
            if self.files.as_mut().is_some_and(|files| !files.look()) {
                self.files = None;
            }
            if from_inside && !self.hear(daemon) {
                return;
            }
            // What is hidden would not stay so.
            if lost_lookout || (from_daemon && !self.obey(daemon)) {
                return self.finish(daemon, Some(137));
            }
        }
    }

    /// Passes on what the fence says. False when it has ended.
    fn hear(&mut self, daemon: &Channel) -> bool {
        if !self.inside.read().unwrap_or(false) {
            self.end();
            return false;
        }
        loop {
            match self.inside.next::<Hear>() {
                Ok(None) => return true,
                Ok(Some(Hear::Exited { status })) => {
                    self.collect();
                    let _ = daemon.send(&Hear::Exited { status }, &[]);
                    return false;
                }
                Ok(Some(Hear::Fault { fault })) => {
                    self.collect();
                    let _ = daemon.send(&Hear::Fault { fault }, &[]);
                    return false;
                }
                Ok(Some(Hear::Mounts)) => self.mounts = self.inside.take().ok(),
                Ok(Some(Hear::Shown { watch })) => match (watch, &self.spare, &self.mounts) {
                    (Some(watch), Some(spare), Some(mounts)) => {
                        if spare.look_out(&watch, mounts).is_err() {
                            self.end();
                            return false;
                        }
                    }
                    _ => self.spare.take().map_or((), Spare::let_go),
                },
                Ok(Some(said @ (Hear::Started { .. } | Hear::Done { .. }))) => {
                    let brings = said.brings();
                    if pass(&mut self.inside, daemon, &said, brings).is_err() {
                        self.end();
                        return false;
                    }
                }
                Err(_) => {
                    self.end();
                    return false;
                }
            }
        }
    }

    /// Passes on what the daemon says. False when it has gone, or speaks out of turn.
    fn obey(&mut self, daemon: &mut Channel) -> bool {
        if !daemon.read().unwrap_or(false) {
            return false;
        }
        loop {
            match daemon.next::<Say>() {
                Ok(None) => return true,
                Ok(Some(said @ (Say::Signal { .. } | Say::Errand { .. }))) => {
                    let brings = said.brings();
                    let _ = pass(daemon, &self.inside, &said, brings);
                }
                Ok(Some(Say::Order { .. })) | Err(_) => return false,
            }
        }
    }

    /// Ends all in the fence.
    fn end(&mut self) -> Option<i32> {
        if let Some(first) = self.first {
            let _ = kill_process(first, Signal::KILL);
        }
        if let Some(group) = &self.group {
            group.end();
        }
        self.collect()
    }

    /// Waits until the first process is gone, and so everything in the fence.
    fn collect(&mut self) -> Option<i32> {
        // What waits for it in the fence is refused then; its own end is waited for later.
        if let Some(files) = &self.files {
            files.kill();
        }
        let status = waitpid(Some(self.first.take()?), WaitOptions::empty());
        if let Some(plan) = self.process.take() {
            process::end_all();
            process::clear(&plan);
        }
        status.ok().flatten().and_then(|(_, status)| status_of(status))
    }

    fn finish(&mut self, daemon: &Channel, status: Option<i32>) {
        let ended = self.end();
        let status = status.or(ended).unwrap_or(137);
        let _ = daemon.send(&Hear::Exited { status }, &[]);
    }
}

/// Passes on what one side said, with the descriptors that belong to it.
fn pass<T: serde::Serialize>(from: &mut Channel, to: &Channel, said: &T, brings: usize) -> std::io::Result<()> {
    let taken = (0..brings).map(|_| from.take()).collect::<std::io::Result<Vec<_>>>()?;
    let along: Vec<_> = taken.iter().map(std::os::fd::AsFd::as_fd).collect();
    to.send(said, &along)
}

/// Builds the outer half of the fence: gives root up, makes the namespaces, and leaves the first process in them.
fn build(
    mut orders: Orders<'_>,
    group: Option<Group>,
    spare: Option<&mut Spare>,
    asking: Option<(OwnedFd, OwnedFd)>,
    launcher: Channel,
    tell: &OwnedFd,
) -> ! {
    let entered = enter(&mut orders, group.as_ref(), spare.as_deref(), asking, tell);
    if let Some(spare) = spare {
        spare.hang_up();
    }
    // Who does not have them cannot look out.
    orders.looked_out &= entered.is_ok() && hand_out_mounts(&launcher);
    match entered.and_then(|()| first_process()) {
        Ok(Fork::Parent(first)) => {
            let _ = rustix::io::write(tell, &first.as_raw_nonzero().get().to_ne_bytes());
            sys::exit_now(0);
        }
        Ok(Fork::Child) => inside::live(orders, launcher),
        Err(fault) => {
            let _ = launcher.send(&Hear::Fault { fault }, &[]);
            sys::exit_now(1);
        }
    }
}

/// Hands this process's mounts to the launcher. Without them the first process takes them down as it ends.
fn hand_out_mounts(launcher: &Channel) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mounts = openat(CWD, c"/proc/self/ns/mnt", flags, Mode::empty());
    mounts.is_ok_and(|mounts| launcher.send(&Hear::Mounts, &[mounts.as_fd()]).is_ok())
}

fn first_process() -> Result<Fork, LaunchFault> {
    sys::fork_sibling().or_say(|| "cannot start a process".into())
}

fn enter(
    orders: &mut Orders<'_>,
    group: Option<&Group>,
    spare: Option<&Spare>,
    asking: Option<(OwnedFd, OwnedFd)>,
    tell: &OwnedFd,
) -> Result<(), LaunchFault> {
    let identity = orders.plan.identity;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(group) = group {
        group.join()?;
    }
    let root = geteuid().is_root();
    let mut aims = match &asking {
        Some(_) => Trees::asked(orders.plan, spare.and_then(Spare::owners))?,
        None => Vec::new(),
    };
    // Where root may make no devices, the machine's own one has to do.
    let device = if root && asking.is_some() {
        ask::own_device().ok()
    } else {
        None
    };
    if root {
        orders.trees = Some(Trees::open(orders.plan, spare.and_then(Spare::owners))?);
        let (user, outside_group) = identity.outside;
        identity::become_for_good(&[outside_group], user, outside_group)
            .or_say(|| format!("cannot become the unprivileged user {user}"))?;
    } else if identity.outside != (geteuid().as_raw(), getegid().as_raw()) || identity.owner.is_some() {
        return Err(failed(
            "cannot become another user",
            "only root's fences run as another user",
        ));
    }
    set_parent_process_death_signal(Some(Signal::KILL)).or_say(|| "cannot tie the fence to its launcher".into())?;
    // A launcher that has ended already sends no signal any more.
    if rustix::process::getppid() != Some(orders.launcher) {
        return Err(failed("cannot tie the fence to its launcher", "it has ended"));
    }
    // Outside of the namespaces, as the same user.
    let server = match asking {
        Some((mediator, heart)) => {
            let aims = std::mem::take(&mut aims);
            let server = Server::begin(aims, orders.plan, mediator, heart, orders.launcher, device)?;
            let number = server.process().as_raw_nonzero().get().to_ne_bytes();
            rustix::io::write(tell, &number).or_say(|| "cannot tell the launcher".into())?;
            Some(server)
        }
        None => None,
    };
    let made = match spare {
        Some(spare) => {
            spare.enter()?;
            sys::unshare(NAMESPACES)
        }
        None => sys::unshare(NAMESPACES | AHEAD),
    };
    hint(
        made.or_say(|| "cannot make namespaces of its own".into()),
        "this machine does not let ordinary users make namespaces (kernel.apparmor_restrict_unprivileged_userns, \
         kernel.unprivileged_userns_clone, user.max_user_namespaces)",
    )?;
    if spare.is_none() {
        identity::map_own(&identity)?;
        network::bring_up()?;
    }
    if let Some(server) = server {
        orders.asked = server.mounts(orders.plan)?;
    }
    Ok(())
}
