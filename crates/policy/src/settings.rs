//! What rule files set beside rules: environment, limits, pinned names, and what follows from rules for the gates.
//!
//! Promises: P2 (limits of several layers: the least holds; what an outer layer sets, an inner one does not change).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bailiwick_model::{
    ANY_PORT, AbsPath, Act, AddressClass, Host, HostPattern, Layer, Level, Opened, ResourcePattern, Scheme, Verb,
    VerbPattern, Verdict,
};

use crate::broker::Broker;
use crate::mandate::Mandate;
use crate::opened::opened;
use crate::outward::{Device, Published};
use crate::oversight::{Oversight, ProgramApprover};
use crate::relations::RelationsFrom;
use crate::rule::Rule;
use crate::secret::Secret;
use crate::tag::Tags;
use crate::tool::server::Server;

/// A port of this machine that a rule names: served at the same port inside the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopbackPort {
    /// The port.
    pub port: u16,
    /// True when only HTTP is allowed there, by method and path; false for any bytes.
    pub http: bool,
}

/// How an agent signs in, and where it keeps what it then has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The agent's profile.
    pub agent: String,
    /// The words after the program that sign in.
    pub command: Vec<String>,
    /// The files that a sign-in leaves, by their place inside.
    pub files: Vec<AbsPath>,
    /// The hosts that are reached and opened to sign in.
    pub hosts: Vec<HostPattern>,
    /// Where the shared login stands inside.
    pub place: AbsPath,
}

/// The settings in force, merged over the layers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name of the context.
    pub context: Option<String>,
    /// Variables that are passed on, where they are set; a final `*` stands for any rest of the name.
    pub environment_pass: BTreeSet<String>,
    /// Variables that are set.
    pub environment_set: BTreeMap<String, String>,
    /// Files that lie in kept folders from the start, with their content: settings that the agent may change.
    pub kept_files: BTreeMap<AbsPath, String>,
    /// Folders in kept folders whose entries are links to those of another folder, where they have none of that name.
    pub kept_links: BTreeMap<AbsPath, AbsPath>,
    /// Folders in kept folders that begin as copies of other folders.
    pub kept_copies: BTreeMap<AbsPath, AbsPath>,
    /// How the agent signs in.
    pub login: Option<Login>,
    /// What profiles tell the person, one line each.
    pub notes: Vec<String>,
    /// True when commits are to be made unsigned where the person's are signed.
    pub git_unsigned: bool,
    /// The weakest fence that will do, by any layer.
    pub level: Option<Level>,
    /// The weakest fence that will do by the machine's rules: no person accepts a weaker one.
    pub least_level: Option<Level>,
    /// True when every call that opens a file is to be held, by any layer.
    pub strict: bool,
    /// Hours, who watches, four eyes and who may answer: of all layers.
    pub oversight: Oversight,
    /// What answers carry, and what data may reach: of all layers.
    pub tags: Tags,
    /// The program that answers questions: the machine's, else the person's.
    pub approver: Option<ProgramApprover>,
    /// How long a question waits for its answer, in seconds: the least of all layers.
    pub ask_deadline: Option<u64>,
    /// Whether a question is told on the person's desktop; none where that goes by whether there is one. A no of any layer holds.
    pub notify: Option<bool>,
    /// The most memory, in bytes.
    pub memory: Option<u64>,
    /// The most processes at one time.
    pub processes: Option<u64>,
    /// Names pinned to an address by a person, who thereby named that address.
    pub hosts: BTreeMap<Host, IpAddr>,
    /// Names that may stand for private addresses; never for loopback or link-local ones.
    pub private: Vec<HostPattern>,
    /// Ports inside that are seen on the machine's loopback.
    pub publish: Vec<Published>,
    /// Devices that are seen inside.
    pub devices: Vec<Device>,
    /// Ports of this machine that rules of the context name.
    pub loopback_ports: Vec<LoopbackPort>,
    /// Commands that run outside.
    pub brokers: Vec<Broker>,
    /// Where it stands who people are and what they are responsible for.
    pub relations: Option<RelationsFrom>,
    /// The errand that the task runs for.
    pub mandate: Option<Mandate>,
    /// What offers tools.
    pub servers: Vec<Server>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Hosts and ports that rules of the context allow by their full name.
    pub direct_endpoints: Vec<(Host, u16)>,
    /// Hosts and ports that rules of the context name as plain streams.
    pub streams: BTreeSet<(Host, u16)>,
    /// Hosts and ports whose connections are opened, so that each request inside is judged.
    pub opened: Vec<Opened>,
    /// Files with certificates that servers may be verified by, besides those of the machine: of the person's and the
    /// machine's layers.
    pub roots: Vec<AbsPath>,
    /// The ports on which rules of the context name a host; none where one names all.
    pub ports: Option<BTreeSet<u16>>,
}

impl Settings {
    /// True when a variable of this name is passed on.
    pub fn passes(&self, name: &str) -> bool {
        self.environment_pass.iter().any(|known| match known.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => known == name,
        })
    }

    /// Adds the settings of one more file. Files come from the innermost layer to the outermost.
    pub(crate) fn merge(&mut self, other: Self) {
        let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.context = other.context.or(self.context.take());
        self.environment_pass.extend(other.environment_pass);
        self.environment_set.extend(other.environment_set);
        self.kept_files.extend(other.kept_files);
        self.kept_links.extend(other.kept_links);
        self.kept_copies.extend(other.kept_copies);
        self.login = other.login.or(self.login.take());
        self.notes.extend(other.notes);
        self.git_unsigned |= other.git_unsigned;
        // The stronger is the greater; none is less than any.
        self.level = self.level.max(other.level);
        self.least_level = self.least_level.max(other.least_level);
        self.strict |= other.strict;
        self.oversight.merge(other.oversight);
        self.tags.merge(other.tags);
        self.approver = other.approver.or(self.approver.take());
        self.ask_deadline = least(self.ask_deadline, other.ask_deadline);
        self.notify = match (self.notify, other.notify) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        self.memory = least(self.memory, other.memory);
        self.processes = least(self.processes, other.processes);
        self.hosts.extend(other.hosts);
        self.publish.extend(other.publish);
        self.devices.extend(other.devices);
        self.roots.extend(other.roots);
        self.brokers.extend(other.brokers);
        self.servers.extend(other.servers);
        self.mandate = other.mandate.or(self.mandate.take());
        self.relations = other.relations.or(self.relations.take());
        self.secrets.extend(other.secrets);
        for pattern in other.private {
            if !self.private.contains(&pattern) {
                self.private.push(pattern);
            }
        }
    }

    /// Derives from the rules which ports and endpoints the gates shall serve.
    pub(crate) fn derive(&mut self, rules: &[Rule]) {
        let mut loopback: BTreeMap<u16, bool> = BTreeMap::new();
        let mut direct = BTreeSet::new();
        let mut ports = Some(BTreeSet::new());
        for rule in rules {
            if rule.layer() != Layer::Context || rule.effect == Verdict::Deny {
                continue;
            }
            let (host, port, http) = match &rule.act().resource {
                // What is inside TLS begins with a greeting, which is no HTTP.
                ResourcePattern::Url(url) => (&url.host, url.port, url.scheme == Scheme::Http),
                ResourcePattern::Repository(own) => (&own.url.host, own.url.port, own.url.scheme == Scheme::Http),
                ResourcePattern::Endpoint { host, port } if rule.act().verb == VerbPattern::One(Verb::Tunnel) => {
                    (host, *port, false)
                }
                _ => continue,
            };
            if port == ANY_PORT {
                ports = None;
            }
            ports.iter_mut().for_each(|ports: &mut BTreeSet<u16>| {
                ports.insert(port);
            });
            let HostPattern::Exact(host) = host else { continue };
            if port == ANY_PORT {
                continue;
            }
            if names_a_stream(rule.act()) {
                self.streams.insert((host.clone(), port));
            }
            let loops = host.is_localhost()
                || host
                    .address()
                    .is_some_and(|address| AddressClass::of(address) == AddressClass::Loopback);
            if loops {
                // Where any bytes are allowed, the path of HTTP is not looked at.
                let only_http = loopback.entry(port).or_insert(http);
                *only_http &= http;
            } else if rule.effect == Verdict::Allow {
                direct.insert((host.clone(), port));
            }
        }
        self.loopback_ports = loopback
            .into_iter()
            .map(|(port, http)| LoopbackPort { port, http })
            .collect();
        self.direct_endpoints = direct.into_iter().collect();
        self.ports = ports;
        self.opened = opened(rules);
    }
}

/// True for an act that names a port on which something else than HTTP over TLS is spoken: a database, a shell. There the
/// client's first words are not insisted on.
pub(crate) fn names_a_stream(act: &Act) -> bool {
    const HTTPS: u16 = 443;
    match &act.resource {
        ResourcePattern::Endpoint { port, .. } => {
            act.verb == VerbPattern::One(Verb::Tunnel) && ![ANY_PORT, HTTPS].contains(port)
        }
        _ => false,
    }
}

/// Reads a size: a whole number, and a unit of bytes (`512 MiB`, `8 GiB`, `2 GB`).
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|bytes| *bytes > 0)
}

/// Longest time that a question may wait, in seconds.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// Reads a length of time: a whole number and a unit (`30 s`, `2 min`, `1 h`), in seconds.
pub(crate) fn seconds_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(end)?;
    let factor: u64 = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        _ => return None,
    };
    let seconds = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=LONGEST_WAIT).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, want) in [
            ("8 GiB", Some(8 << 30)),
            ("512MiB", Some(512 << 20)),
            ("2 GB", Some(2_000_000_000)),
            ("4096", Some(4096)),
            ("8 gigs", None),
            ("GiB", None),
            ("0", None),
            ("99999999999 TiB", None),
        ] {
            assert_eq!(bytes_of(text), want, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, want) in [
            ("30 s", Some(30)),
            ("2 min", Some(120)),
            ("1h", Some(3600)),
            ("24 h", Some(86_400)),
            ("25 h", None),
            ("0 s", None),
            ("30", None),
            ("2 weeks", None),
        ] {
            assert_eq!(seconds_of(text), want, "{text}");
        }
    }

    #[test]
    fn variables_pass_by_name_or_head() {
        let settings = Settings {
            environment_pass: ["PATH", "LC_*"].map(Into::into).into(),
            ..Settings::default()
        };
        assert!(settings.passes("PATH") && settings.passes("LC_ALL"));
        assert!(!settings.passes("PATHS") && !settings.passes("LANG"));
    }
}
