//! From what was granted to the fence: which trees are seen, what is protected in them, which sockets listen.
//!
//! Promises: P1 (every tree in the plan comes from a spent permit), P9 (the environment is an allow list).
//! Trust: grants and settings come from rules that a person stands behind; the environment is the person's own.
//! Pure: what is on disk is looked at by the launcher, with the fence's own authority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use bailiwick_gate::{
    Bind, BindMode, Content, FencePlan, IdMap, Judged, Limits, Listen, ListenKind, Protected, Protection, Sought, Stdio,
};
use bailiwick_model::{AbsPath, Host, Level, Obligation, PathPattern, TaskId, Verb};
use bailiwick_policy::{Settings, SourceFile};
use bailiwick_proxy::Service;

use super::believed::{BESIDE, Believed, WHOLE};
use super::devices;
use super::kept::placed;
use super::scratch;
use crate::git::signing;
use crate::protocol::RunOrder;

/// Where the network gate listens inside for programs that know proxies.
pub const PROXY_PORT: u16 = 3128;

/// Where the tool gate listens inside.
pub const TOOLS_PORT: u16 = 3129;

/// The variable that says where tools are called, and the one that says what must be known for it.
pub const TOOLS: &str = "BAILIWICK_TOOLS";
pub const TOKEN: &str = "BAILIWICK_TOOLS_TOKEN";

/// The scratch folder into which the person can hand copies of files while the task runs.
const HANDOVER: &str = "/tmp/handover";

/// Where programs are looked for when nothing says.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Processes and threads of a task whose rules set no limit.
const PROCESSES: u64 = 4096;

/// One tree that was granted.
#[derive(Debug, Clone)]
pub struct Granted {
    /// Read or write.
    pub verb: Verb,
    /// The tree.
    pub tree: AbsPath,
    /// What the gate must do.
    pub obligations: Vec<Obligation>,
}

/// What a plan is made from.
#[derive(Debug)]
pub struct Materials<'a> {
    /// What the fence is made of.
    pub level: Level,
    /// The task.
    pub task: TaskId,
    /// The order.
    pub order: &'a RunOrder,
    /// The root of the context.
    pub root: &'a AbsPath,
    /// The person's home folder.
    pub home: &'a AbsPath,
    /// The person's name.
    pub user: &'a str,
    /// What was granted.
    pub granted: &'a [Granted],
    /// Trees whose files are asked about one by one. Where that cannot be, there are none, and `hidden` has them.
    pub asked: &'a [Granted],
    /// Trees that would be asked about, and cannot be here.
    pub hidden: &'a [Granted],
    /// True where what is looked for in the home can be put on record.
    pub listens: bool,
    /// Where git keeps what belongs to the root, when that is elsewhere: the person's own.
    pub repository: Option<&'a AbsPath>,
    /// Where the folders of the context's own lie, by the place inside.
    pub kept: &'a BTreeMap<AbsPath, AbsPath>,
    /// What the rules set besides acts.
    pub settings: &'a Settings,
    /// Who the agent is.
    pub identity: IdMap,
    /// This program itself, which the agent may ask what was refused last.
    pub program: Option<AbsPath>,
    /// Devices and sockets that are granted.
    pub devices: &'a devices::Granted,
    /// The machine's memory, in bytes: a task without a limit of its own gets three quarters of it.
    pub machine_memory: Option<u64>,
    /// Which starts of programs are asked about.
    pub judged: Judged,
    /// The person's own tables of commands.
    pub tables: &'a [SourceFile],
    /// What programs believe of servers, where connections are opened.
    pub believed: Option<&'a Believed>,
    /// What whoever calls tools must know; none where there are no tools.
    pub token: Option<&'a str>,
}

/// A fence and what serves its sockets, in the same order.
#[derive(Debug)]
pub struct Planning {
    /// The fence.
    pub plan: FencePlan,
    /// The services on `plan.listen`. What listens last is the tool gate's, where there is one.
    pub services: Vec<Service>,
}

/// Where the fence's own folders stand.
#[derive(Debug)]
struct Own {
    home: AbsPath,
    temporary: AbsPath,
    handover: AbsPath,
    /// Git's system-wide settings, and the names that it ignores everywhere. Git looks whether they are there before it
    /// opens them, so that where nothing is mounted they lie in scratch.
    git: AbsPath,
    ignored: AbsPath,
    /// All roots that programs believe, and those that they believe beside their own.
    whole: AbsPath,
    beside: AbsPath,
    /// All of them that are scratch, outer ones first.
    scratch: Vec<AbsPath>,
}

impl Own {
    fn of(from: &Materials<'_>) -> Option<Self> {
        match from.level {
            Level::Namespace => {
                let [temporary, other, handover] = ["/tmp", "/var/tmp", HANDOVER].map(|path| AbsPath::new(path).ok());
                let (temporary, handover) = (temporary?, handover?);
                Some(Self {
                    scratch: vec![temporary.clone(), other?, handover.clone(), from.home.clone()],
                    home: from.home.clone(),
                    temporary,
                    handover,
                    git: AbsPath::new("/etc/gitconfig").ok()?,
                    ignored: AbsPath::new("/etc/gitignore").ok()?,
                    whole: AbsPath::new("/run/bailiwick/roots.pem").ok()?,
                    beside: AbsPath::new("/run/bailiwick/task-root.pem").ok()?,
                })
            }
            Level::Process => {
                let top = scratch::top(from.task)?;
                let below = |name: &str| top.join(name).ok();
                let (home, temporary, handover) = (below("home")?, below("tmp")?, below("handover")?);
                Some(Self {
                    scratch: vec![top.clone(), home.clone(), temporary.clone(), handover.clone()],
                    git: below("gitconfig")?,
                    ignored: below("gitignore")?,
                    whole: below("roots.pem")?,
                    beside: below("task-root.pem")?,
                    home,
                    temporary,
                    handover,
                })
            }
        }
    }
}

/// Makes the plan. None where the machine's own paths are no paths.
pub fn make(from: &Materials<'_>) -> Option<Planning> {
    let own = Own::of(from)?;
    let files = files(from, &own);
    let (mut listen, services) = sockets(from);
    listen.extend(from.token.map(|_| Listen {
        address: Ipv4Addr::LOCALHOST,
        port: TOOLS_PORT,
        kind: ListenKind::Stream,
    }));
    let binds = binds(from, &files);
    let plan = FencePlan {
        task: from.task,
        level: from.level,
        command: from.order.command.clone(),
        environment: environment(from, &own),
        directory: from.order.directory.clone(),
        links: links(from, &own, &binds),
        sought: sought(from, &binds),
        binds,
        files,
        handed: from.believed.map_or(0, |believed| believed.contents.len()),
        scratch: own.scratch,
        handover: Some(own.handover),
        protected: protected(from),
        asked: from.asked.iter().map(|asked| asked.tree.clone()).collect(),
        strict: from.settings.strict,
        judged: from.judged.clone(),
        brokered: from
            .settings
            .brokers
            .iter()
            .map(|broker| broker.pattern.to_string())
            .collect(),
        secret: false,
        tables: from
            .tables
            .iter()
            .map(|table| (table.name.clone(), table.text.clone()))
            .collect(),
        identity: from.identity,
        listen,
        ports: from
            .settings
            .ports
            .as_ref()
            .map(|ports| ports.iter().copied().collect()),
        limits: Limits {
            memory: from.settings.memory.or(from.machine_memory.map(|all| all / 4 * 3)),
            processes: from.settings.processes.or(Some(PROCESSES)),
        },
        stdio: match from.order.terminal {
            Some((rows, columns)) => Stdio::Terminal { rows, columns },
            None => Stdio::Pipes,
        },
        hostname: "bailiwick".into(),
    };
    Some(Planning { plan, services })
}

/// The home, unless it is granted as a whole. What lies on the way to what is granted is never told.
fn sought(from: &Materials<'_>, binds: &[Bind]) -> Option<Sought> {
    let shown = binds.iter().map(|bind| &bind.target);
    let shown: Vec<&AbsPath> = shown.chain(from.asked.iter().map(|asked| &asked.tree)).collect();
    let first = |path: &&AbsPath| -> Option<String> {
        let rest = path.as_str().strip_prefix(from.home.as_str())?.strip_prefix('/')?;
        rest.split('/').next().map(str::to_owned)
    };
    let listens = from.listens && !shown.iter().any(|path| path.holds(from.home));
    listens.then(|| Sought {
        home: from.home.clone(),
        silent: shown
            .iter()
            .filter_map(first)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
    })
}

/// Where nothing can be mounted, links in the home of the task's own lead to what is granted below the person's.
fn links(from: &Materials<'_>, own: &Own, binds: &[Bind]) -> Vec<(AbsPath, AbsPath)> {
    if from.level == Level::Namespace {
        return Vec::new();
    }
    let below = |path: &AbsPath| {
        let rest = path.as_str().strip_prefix(from.home.as_str())?.strip_prefix('/')?;
        own.home.join(rest).ok()
    };
    let mut all: Vec<(AbsPath, AbsPath)> = binds
        .iter()
        .filter(|bind| {
            // What lies in another tree of the home is reached through that.
            let outer = |other: &Bind| other.target != bind.target && other.target.holds(&bind.target);
            !binds.iter().any(|other| outer(other) && from.home.holds(&other.target))
        })
        .filter_map(|bind| Some((below(&bind.target)?, bind.source.clone())))
        .collect();
    all.sort();
    all
}

fn binds(from: &Materials<'_>, files: &[(AbsPath, Content)]) -> Vec<Bind> {
    let made: BTreeSet<&AbsPath> = files.iter().map(|(path, _)| path).collect();
    let mut modes: BTreeMap<&AbsPath, BindMode> = BTreeMap::new();
    for granted in from.granted.iter().filter(|granted| granted.verb != Verb::Keep) {
        let mode = if granted.verb == Verb::Read {
            BindMode::Read
        } else {
            BindMode::Write
        };
        let known = modes.entry(&granted.tree).or_insert(mode);
        *known = mode.max(*known);
    }
    let own = from.program.iter().filter(|program| {
        let mut shown = from.granted.iter();
        !shown.any(|granted| granted.tree.holds(program))
    });
    let own = own.map(|program| Bind {
        source: program.clone(),
        target: program.clone(),
        mode: BindMode::Read,
        own: false,
        optional: true,
    });
    modes
        .into_iter()
        // What is kept stands in place of the person's own folder of that name, whoever grants that.
        .filter(|(path, _)| !made.contains(path) && !from.kept.contains_key(path))
        .filter(|(path, _)| !from.asked.iter().chain(from.hidden).any(|asked| asked.tree == **path))
        .map(|(path, mode)| Bind {
            source: path.clone(),
            target: path.clone(),
            mode,
            own: from.root.holds(path)
                || from.home.holds(path)
                || from.repository.is_some_and(|folder| folder.holds(path))
                || !is_system(path),
            optional: path != from.root,
        })
        .chain(from.kept.iter().map(|(place, outside)| Bind {
            source: outside.clone(),
            target: place.clone(),
            mode: BindMode::Write,
            own: true,
            optional: false,
        }))
        .chain(own)
        .chain(from.devices.shown.iter().map(devices::Shown::bind))
        .collect()
}

/// True for trees that belong to the machine: as root they are not handed over as the person's own.
fn is_system(path: &AbsPath) -> bool {
    const SYSTEM: [&str; 12] = [
        "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "etc", "nix", "snap", "var",
    ];
    path.segments().next().is_none_or(|top| SYSTEM.contains(&top))
}

fn protected(from: &Materials<'_>) -> Vec<Protected> {
    // In worktrees and submodules `.git` is a file that says where git finds its settings. Rules cannot tell it from the
    // folder, which must stay writable.
    let git = PathPattern::parse("/**/.git").ok();
    let mut all: BTreeMap<&PathPattern, Protection> = BTreeMap::new();
    all.extend(git.as_ref().map(|pattern| (pattern, Protection::GuardFile)));
    let unasked: Vec<PathPattern> = from
        .hidden
        .iter()
        .filter_map(|asked| PathPattern::parse(asked.tree.as_str()).ok())
        .collect();
    all.extend(unasked.iter().map(|pattern| (pattern, Protection::Hide)));
    for obligation in from
        .granted
        .iter()
        .chain(from.asked)
        .flat_map(|granted| &granted.obligations)
    {
        let (pattern, protection) = match obligation {
            Obligation::Hide { pattern } => (pattern, Protection::Hide),
            Obligation::Guard { pattern } => (pattern, Protection::Guard),
            // These have a mount of their own, or are among those that cannot be asked about.
            Obligation::Ask { .. } => continue,
            // Duties of the network gate do not come with trees.
            Obligation::DialAddress { .. }
            | Obligation::MatchServerName
            | Obligation::Inject { .. }
            | Obligation::RequestBody { .. }
            | Obligation::Answer { .. }
            | Obligation::PinKey { .. }
            | Obligation::Tool(_) => continue,
        };
        let known = all.entry(pattern).or_insert(protection);
        *known = protection.max(*known);
    }
    all.into_iter()
        .map(|(pattern, protection)| Protected {
            pattern: pattern.clone(),
            protection,
        })
        .collect()
}

/// What is served inside and by whom. All other ports of the loopback are the agent's own, every other address is the
/// gate's.
fn sockets(from: &Materials<'_>) -> (Vec<Listen>, Vec<Service>) {
    let settings = from.settings;
    let on_loopback = |port, kind| Listen {
        address: Ipv4Addr::LOCALHOST,
        port,
        kind,
    };
    let everywhere = |kind| Listen {
        address: Ipv4Addr::UNSPECIFIED,
        port: 0,
        kind,
    };
    let mut all = vec![
        (on_loopback(PROXY_PORT, ListenKind::Stream), Service::Proxy),
        (on_loopback(53, ListenKind::Datagram), Service::DnsDatagram),
        (on_loopback(53, ListenKind::Stream), Service::DnsStream),
    ];
    for port in &settings.loopback_ports {
        let service = if port.http {
            Service::LoopbackHttp { port: port.port }
        } else {
            Service::LoopbackStream { port: port.port }
        };
        all.push((on_loopback(port.port, ListenKind::Stream), service));
    }
    let streams = settings.streams.clone();
    all.push((everywhere(ListenKind::Elsewhere), Service::Elsewhere { streams }));
    all.push((everywhere(ListenKind::Strays), Service::Strays));
    // Without a network of its own a fence has no datagrams.
    let datagrams = |kind| matches!(kind, ListenKind::Datagram | ListenKind::Strays);
    all.retain(|(listen, _)| from.level == Level::Namespace || !datagrams(listen.kind));
    all.into_iter().unzip()
}

/// What a person is told where rules name a port for a service of its own.
pub fn note_of_streams(settings: &Settings) -> Option<String> {
    let is_here = |host: &Host| host.is_localhost() || host.address().is_some_and(|address| address.is_loopback());
    let far = settings.streams.iter().filter(|(host, _)| !is_here(host));
    let named: Vec<String> = far.map(|(host, port)| format!("{host}:{port}")).collect();
    let (first, others) = named.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Some(format!(
        "{first}{others}: what goes there is bound by name and address alone, since the rule names a port that need not speak TLS"
    ))
}

fn environment(from: &Materials<'_>, own: &Own) -> Vec<(String, String)> {
    let mut all: BTreeMap<String, String> = from
        .order
        .environment
        .iter()
        .filter(|(name, _)| from.settings.passes(name))
        .cloned()
        .collect();
    let path = all.get("PATH").map_or(USUAL_PATH, String::as_str).to_owned();
    let mut put = |name: &str, value: &str| all.insert(name.into(), value.into());
    put("HOME", own.home.as_str());
    put("USER", from.user);
    put("LOGNAME", from.user);
    put("TMPDIR", own.temporary.as_str());
    put("BAILIWICK", "1");
    put("BAILIWICK_HANDOVER", own.handover.as_str());
    if from.level == Level::Process {
        // The machine's `/tmp` is not the task's; names are looked up by streams (resolv.conf(5)).
        for name in ["TMP", "TEMP"] {
            put(name, own.temporary.as_str());
        }
        put("RES_OPTIONS", "use-vc");
    }
    // Wherever a git was built to look: the file that is made for the fence.
    put("GIT_CONFIG_SYSTEM", own.git.as_str());
    let program = from.program.as_ref().map(AbsPath::as_str);
    for (name, value) in signing::variables(&from.order.git, from.settings.git_unsigned, program) {
        put(&name, &value);
    }
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    for name in [
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        put(name, &proxy);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        put(name, "localhost,127.0.0.1,::1,.localhost");
    }
    // Node reads proxy variables only when told to (Node 24 and later; earlier ones come out at the direct ports).
    put("NODE_USE_ENV_PROXY", "1");
    if from.believed.is_some() {
        for name in WHOLE {
            put(name, own.whole.as_str());
        }
        for name in BESIDE {
            put(name, own.beside.as_str());
        }
    }
    if let Some(token) = from.token {
        put(TOOLS, &format!("http://127.0.0.1:{TOOLS_PORT}/mcp"));
        put(TOKEN, token);
    }
    for (name, value) in &from.devices.variables {
        put(name, value);
    }
    for (name, value) in &from.settings.environment_set {
        put(name, &placed(value, &own.home, from.root).replace("${PATH}", &path));
    }
    let path = all.entry("PATH".into()).or_insert_with(|| USUAL_PATH.into());
    let own = from.program.as_ref().and_then(AbsPath::parent);
    if let Some(own) = own.filter(|own| !path.split(':').any(|folder| folder == own.as_str())) {
        path.push(':');
        path.push_str(own.as_str());
    }
    all.entry("SHELL".into()).or_insert_with(|| "/bin/sh".into());
    all.into_iter().collect()
}

/// The small files that are made for the fence, in place of the machine's.
fn files(from: &Materials<'_>, own: &Own) -> Vec<(AbsPath, Content)> {
    let (uid, gid) = from.identity.inside;
    let (user, home) = (from.user, &own.home);
    let shell = from
        .order
        .environment
        .iter()
        .find(|(name, _)| name == "SHELL")
        .map_or("/bin/sh", |(_, shell)| shell);
    let mut git = "[safe]\n\tdirectory = *\n".to_owned();
    if from.identity.owner.is_some() {
        // Root's files belong to another number inside: git would take each for changed, and read it again.
        git.push_str("[core]\n\tcheckStat = minimal\n");
    }
    git.push_str(&from.order.git.as_file(&own.ignored));
    if from.repository.is_some() {
        // What tidies up a repository needs more of it than is granted.
        git.push_str("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
    }
    let mut hosts = "127.0.0.1\tlocalhost bailiwick\n::1\tlocalhost\n".to_owned();
    for (name, address) in from.settings.hosts.iter().filter(|(_, address)| address.is_loopback()) {
        // A name that is pinned to this machine is still reached through the gate: DNS answers for it.
        hosts.push_str(&format!("# {name} is pinned to {address} by rule\n"));
    }
    let streams = if from.level == Level::Process { " use-vc" } else { "" };
    let names = format!("nameserver 127.0.0.1\noptions timeout:2 attempts:1{streams}\n");
    let text = |path: &str, content: String| AbsPath::new(path).ok().map(|path| (path, content.into()));
    let roots = from.believed.into_iter().flat_map(|believed| {
        let named = [(&own.whole, believed.whole), (&own.beside, believed.beside)];
        let over = believed.over.iter().map(|(path, number)| (path, *number));
        named.into_iter().chain(over)
    });
    let roots = roots.map(|(path, number)| (path.clone(), Content::Handed(number)));
    [
        text("/etc/passwd", format!("root:x:0:0:root:/root:/usr/sbin/nologin\n{user}:x:{uid}:{gid}::{home}:{shell}\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")),
        text("/etc/group", format!("root:x:0:\n{user}:x:{gid}:\nnogroup:x:65534:\n")),
        text("/etc/hosts", hosts),
        text("/etc/hostname", "bailiwick\n".into()),
        text("/etc/resolv.conf", names),
        text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n".into()),
        Some((own.git.clone(), git.into())),
        from.order.git.ignored.clone().map(|ignored| (own.ignored.clone(), ignored.into())),
    ]
    .into_iter()
    .flatten()
    .chain(roots)
    .collect()
}
