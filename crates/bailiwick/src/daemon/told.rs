//! What a person is told of a task before it starts: what it may do, what is kept, what has it run outside, and what is odd
//! about this place.
//!
//! Promises: P13 (what holds is told before anything starts). Not here: how it is shown (`commands/summary`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bailiwick_model::{
    AbsPath, HostPattern, Layer, Level, Obligation, ResourcePattern, TaskId, Verb, VerbPattern, Verdict,
};
use bailiwick_policy::{Broker, Diagnostic, Policy, Rule};
use bailiwick_tools::{Lock, Pinned};

use super::plan::Granted;
use super::task::Handle;
use super::{Daemon, lock};
use crate::context::Context;
use crate::protocol::{Planned, RunOrder};

/// Most requests, and most hosts, that are told.
const LISTED: usize = 256;
/// Most bytes of one that are told.
const LONGEST: usize = 256;

/// Where a file of a kept folder lies outside.
fn outside(path: &AbsPath, kept: &BTreeMap<AbsPath, AbsPath>) -> Option<AbsPath> {
    let (place, outside) = kept.iter().find(|(place, _)| place.holds(path))?;
    let rest = path.as_str().strip_prefix(place.as_str())?;
    outside.join(rest.trim_start_matches('/')).ok()
}

/// The settings that lie in kept folders from the start, and where each lies outside.
pub fn settings_kept(policy: &Policy, kept: &BTreeMap<AbsPath, AbsPath>) -> Vec<(AbsPath, AbsPath)> {
    let files = policy.settings().kept_files.keys();
    files
        .filter_map(|path| Some((path.clone(), outside(path, kept)?)))
        .collect()
}

/// What to do for an agent that has no login: neither a shared one nor one of this context's, and no variable of a key.
pub fn no_login(order: &RunOrder, policy: &Policy, kept: &BTreeMap<AbsPath, AbsPath>) -> Option<String> {
    let settings = policy.settings();
    let login = settings.login.as_ref().filter(|_| order.preset.is_none())?;
    let there = |file: &AbsPath| outside(file, kept).is_some_and(|path| path.to_path_buf().exists());
    let is_key = |name: &str| {
        ["_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let key = order
        .environment
        .iter()
        .any(|(name, _)| is_key(name) && settings.passes(name));
    (!key && !login.files.iter().any(there)).then(|| {
        format!(
            "no login of {} is here yet: `bailiwick login {}` signs it in once for all projects, or pass its key as a variable",
            login.agent, login.agent
        )
    })
}

/// What a task's trees tag it with from its start: one line each.
pub fn tagged(daemon: &Daemon, task: TaskId) -> Vec<String> {
    let tags = daemon.mediator.read_so_far(task).into_iter();
    tags.map(|tag| format!("what it may read is tagged {tag}")).collect()
}

/// What a task may do. `pinned` is what was accepted of its servers; none where that cannot be read, which whoever starts their
/// gate says.
pub fn planned(
    daemon: &Daemon,
    task: TaskId,
    context: &Context,
    policy: &Policy,
    granted: &[Granted],
    pinned: Option<&Lock>,
) -> Planned {
    let of = |verb: &Verb| -> Vec<AbsPath> {
        granted
            .iter()
            .filter(|g| g.verb == *verb)
            .map(|g| g.tree.clone())
            .collect()
    };
    let patterns = |wanted: fn(&Obligation) -> Option<&bailiwick_model::PathPattern>| {
        // What is kept is another folder than the one that a deny is about.
        let mut names: Vec<String> = granted
            .iter()
            .filter(|g| g.verb != Verb::Keep)
            .flat_map(|g| &g.obligations)
            .filter_map(wanted)
            .map(ToString::to_string)
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let settings = policy.settings();
    let is_login = |place: &AbsPath| settings.login.as_ref().is_some_and(|login| login.place == *place);
    let reach = reach(policy);
    let told = |(what, mut verbs): (String, Vec<String>)| {
        verbs.sort();
        verbs.dedup();
        format!("{} {what}", verbs.join(" and "))
    };
    let requests = reach.requests.into_iter().map(told).collect();
    let (requests, more_requests) = listed(requests);
    let mut network = reach.unread;
    network.extend(
        settings
            .loopback_ports
            .iter()
            .filter(|port| !port.http)
            .map(|port| format!("port {} of this machine", port.port)),
    );
    network.sort();
    network.dedup();
    let (network, more_network) = listed(network);
    let tools = tools_of(pinned, policy);
    let mut sources: Vec<String> = policy.rules().iter().map(|rule| rule.origin.file.clone()).collect();
    sources.sort();
    sources.dedup();
    sources.retain(|name| !name.starts_with("builtin"));
    Planned {
        task,
        // Said by whoever chose it.
        level: Level::Namespace,
        root: context.root.clone(),
        home: daemon.places.home.clone(),
        sources,
        write: of(&Verb::Write),
        read: of(&Verb::Read),
        kept: of(&Verb::Keep).into_iter().filter(|place| !is_login(place)).collect(),
        login: granted
            .iter()
            .any(|g| g.verb == Verb::Keep && is_login(&g.tree))
            .then(|| settings.login.as_ref().map(|login| login.agent.clone()))
            .flatten(),
        settings: Vec::new(),
        closes: super::hours::told_end(policy, daemon.clock.now()),
        registries: reach.registries.into_iter().collect(),
        requests,
        more_requests,
        network,
        more_network,
        secrets: policy
            .secrets_for_requests()
            .iter()
            .map(|(name, _, requests)| requests.told(name.as_str()))
            .collect(),
        brokers: settings.brokers.iter().map(|broker| told_of(policy, broker)).collect(),
        servers: servers_of(policy, &tools),
        tags: settings.tags.told(),
        tools,
        publish: Vec::new(),
        devices: Vec::new(),
        hidden: patterns(|o| {
            if let Obligation::Hide { pattern } = o {
                Some(pattern)
            } else {
                None
            }
        }),
        guarded: patterns(|o| {
            if let Obligation::Guard { pattern } = o {
                Some(pattern)
            } else {
                None
            }
        }),
        notes: policy.settings().notes.clone(),
        warnings: Vec::new(),
        asked: Vec::new(),
    }
}

/// As many lines as a person reads, and how many are left out: rules can be more than fit into an answer.
fn listed(mut lines: Vec<String>) -> (Vec<String>, usize) {
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    for line in &mut lines {
        line.truncate(line.floor_char_boundary(LONGEST));
    }
    (lines, more)
}

/// How far the rules of the context reach.
#[derive(Default)]
struct Reach {
    /// Registries that are read.
    registries: BTreeSet<String>,
    /// Requests, each an act: what it is on, and its verbs.
    requests: BTreeMap<String, Vec<String>>,
    /// Hosts that are reached unread; the machine's own ports are not among them.
    unread: Vec<String>,
}

fn reach(policy: &Policy) -> Reach {
    let mut found = Reach::default();
    let own = policy
        .rules()
        .iter()
        .filter(|rule| rule.layer() == Layer::Context && rule.effect != Verdict::Deny && rule.follows_from.is_none());
    for rule in own {
        let notes = [
            (rule.effect == Verdict::Ask).then_some("asks first"),
            (!rule.limits().is_none()).then_some("limited"),
        ];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        let notes = match notes.is_empty() {
            true => String::new(),
            false => format!(" ({})", notes.join(", ")),
        };
        let act = rule.act();
        match (&act.resource, &act.verb) {
            (ResourcePattern::Url(url), _) if rule.is_of_registry() => {
                found.registries.insert(url.host.to_string());
            }
            (ResourcePattern::Url(_) | ResourcePattern::Repository(_), verb) => {
                let verbs = found.requests.entry(format!("{}{notes}", act.resource)).or_default();
                verbs.push(verb.to_string());
            }
            (ResourcePattern::Endpoint { host, .. }, VerbPattern::One(Verb::Tunnel)) if !is_here(host) => {
                found.unread.push(format!("{}{notes}", act.resource));
            }
            _ => {}
        }
    }
    found
}

/// True for this machine.
fn is_here(host: &HostPattern) -> bool {
    matches!(host, HostPattern::Exact(host) if host.is_localhost() || host.address().is_some_and(|own| own.is_loopback()))
}

/// What cannot be asked about file by file is not shown, and that is said.
pub fn cannot_ask(level: Level, trees: &[Granted]) -> Option<String> {
    let names: Vec<String> = trees.iter().map(|asked| format!("`{}`", asked.tree)).collect();
    let are = if names.len() > 1 { "are" } else { "is" };
    let why = match level {
        Level::Process => "at level `process`",
        Level::Namespace => "where `/dev/fuse` is not usable (`bailiwick doctor`)",
    };
    (!trees.is_empty()).then(|| {
        format!(
            "{} {are} not shown: files cannot be asked about {why}",
            names.join(", ")
        )
    })
}

/// A broker, as one line.
fn told_of(policy: &Policy, broker: &Broker) -> String {
    let asks = |rule: &&Rule| rule.origin == broker.origin && rule.effect == Verdict::Ask;
    let asked = policy.rules().iter().find(asks).map_or("", |_| " (asks first)");
    let secret = broker
        .secret
        .as_ref()
        .map_or_else(String::new, |name| format!(" with the secret `{name}`"));
    format!(
        "{}{secret}{asked}",
        broker.pattern.to_string().trim_start_matches("@exact ")
    )
}

/// The tools that some rule shows, of those that were accepted.
fn tools_of(pinned: Option<&Lock>, policy: &Policy) -> Vec<String> {
    let of = |(server, own): (&String, &Pinned)| -> Vec<String> {
        let shown = own.tools.keys().filter(|tool| policy.visible(server, tool));
        shown.map(|tool| format!("{server}/{tool}")).collect()
    };
    let servers = pinned.into_iter().flat_map(|lock| &lock.servers);
    servers.flat_map(of).take(LISTED).collect()
}

/// The servers of these tools that have anything outside, each with what it has.
fn servers_of(policy: &Policy, tools: &[String]) -> Vec<String> {
    let servers = policy.settings().servers.iter().filter(|server| {
        let of = |tool: &String| tool.split_once('/').is_some_and(|(name, _)| name == server.name);
        tools.iter().any(of)
    });
    let told = servers.map(|server| (&server.name, server.told()));
    told.filter(|(_, has)| !has.is_empty())
        .map(|(name, has)| format!("{name} ({})", has.join(", ")))
        .collect()
}

/// What the person is told of this place: of the rules, of git, and of who else works here.
pub fn told(
    daemon: &Daemon,
    order: &RunOrder,
    context: &Context,
    policy: &Policy,
    writable: &[&AbsPath],
) -> Vec<String> {
    let with_hint = |warning: &Diagnostic| match &warning.hint {
        Some(hint) => format!("{warning}; {hint}"),
        None => warning.to_string(),
    };
    let mut all: Vec<String> = policy.warnings().iter().map(with_hint).collect();
    let may_write = |path: &AbsPath| writable.iter().any(|tree| tree.holds(path));
    all.extend(context.repository.told(may_write));
    all.extend(crate::git::signing::note(&order.git, policy.settings().git_unsigned));
    let own = context.root.to_path_buf();
    if own.join(".git").symlink_metadata().is_ok() {
        all.extend(order.git.note());
    }
    for task in lock(&daemon.running).values().map(Handle::describe) {
        let other = Path::new(&task.context);
        if other.starts_with(&own) || own.starts_with(other) {
            let program = task.command.first().map_or("", String::as_str);
            all.push(format!("another task runs in this tree: {} (`{program}`)", task.id));
        }
    }
    all
}
