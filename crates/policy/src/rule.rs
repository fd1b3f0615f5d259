//! One rule: an act with an effect, where it was written, and what follows from it.
//!
//! Promises: P4, P5 (a rule holds for the act: what follows from it is written out as rules of its own, so that every
//! reader of rules sees it).
//! What follows: to write is to read too; to reach a host is to look its name up; a denied URL is not reached through
//! a tunnel to the same host and port either; a command starts its own helpers; `localhost`, `127.0.0.1` and `[::1]` name one machine.
//! Not here: what a rule may not say (`judge`), files (`document`), matching many rules (`index`).

use std::sync::Arc;

use bailiwick_gate::Reading;
use bailiwick_model::{
    ANY_PORT, Act, Capability, Code, Host, HostPattern, Layer, Limits, Reason, Request, Resource, ResourcePattern,
    RuleRef, Scheme, Verb, VerbPattern, Verdict,
};

use crate::combine::by_rule;
use crate::preset::is_registry;
use crate::tool::terms::Terms;

/// A rule in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it answers: allow, ask or deny.
    pub effect: Verdict,
    /// What it is about: one act.
    pub capability: Capability,
    /// Where it was written. The act there is this rule's own, also when it follows from another.
    pub origin: RuleRef,
    /// Why, in the words of who wrote it.
    pub reason: Option<String>,
    /// The act that was written, when this rule only follows from it.
    pub follows_from: Option<String>,
    /// What it says of calls of tools.
    pub(crate) terms: Option<Arc<Terms>>,
    act: Act,
}

impl Rule {
    /// What it says of a call's arguments, in plain words; none where it says nothing of them.
    pub fn terms_told(&self) -> Option<String> {
        let told = self.terms.as_ref().map(ToString::to_string);
        told.filter(|told| !told.is_empty())
    }

    /// The act that the rule is about.
    pub fn act(&self) -> &Act {
        &self.act
    }

    /// What a rule that asks says of each request that it asks about.
    pub fn asks(&self) -> Reason {
        by_rule(self, Code::AskedByRule)
    }

    /// The layer that the rule belongs to.
    pub fn layer(&self) -> Layer {
        self.origin.layer
    }

    /// True when the act covers doing this to that.
    pub fn covers(&self, verb: &Verb, resource: &Resource) -> bool {
        covers(self.effect, &self.act, verb, resource)
    }

    /// What the rule lets requests and their answers be.
    pub fn limits(&self) -> &Limits {
        &self.capability.constraints.limits
    }

    /// True for a rule of a shipped preset of a package registry.
    pub fn is_of_registry(&self) -> bool {
        is_registry(&self.origin.file)
    }

    /// True when the rule covers a request, and the request is within its limits as far as it says so itself.
    pub fn admits(&self, request: &Request) -> bool {
        self.covers(&request.verb, &request.resource) && self.limits().breach(request).is_none()
    }

    /// Limits the rule, where it is about requests or tunnels: looking a name up has no limits.
    pub(crate) fn limit(&mut self, limits: &Limits) {
        let looks_up = self.act.verb == VerbPattern::One(Verb::Resolve);
        if matches!(
            self.act.resource,
            ResourcePattern::Url(_) | ResourcePattern::Repository(_) | ResourcePattern::Endpoint { .. }
        ) && !looks_up
        {
            self.capability.constraints.limits.clone_from(limits);
        }
    }

    /// The rules that one written act stands for: first itself, then what follows from it.
    pub(crate) fn written(
        effect: Verdict,
        act: Act,
        origin: &RuleRef,
        reason: Option<&str>,
        reading: &dyn Reading,
    ) -> Vec<Self> {
        let mut acts = vec![(effect, act.clone())];
        let started = match (&act.resource, effect) {
            (ResourcePattern::Command(pattern), Verdict::Allow) if act.verb == VerbPattern::One(Verb::Run) => {
                reading.follows(pattern)
            }
            _ => Vec::new(),
        };
        let started = started.into_iter().map(|pattern| {
            let resource = ResourcePattern::Command(Box::new(pattern));
            (effect, verb_on(Verb::Run, resource))
        });
        for (effect, act) in following(effect, &act).into_iter().chain(started) {
            if !acts.iter().any(|known| *known == (effect, act.clone())) {
                acts.push((effect, act));
            }
        }
        let text = act.to_string();
        let rule = |(place, (effect, act)): (usize, (Verdict, Act))| Self {
            effect,
            capability: Capability::of(act.clone()),
            origin: RuleRef {
                act: act.to_string(),
                ..origin.clone()
            },
            reason: reason.map(Into::into),
            follows_from: (place > 0).then(|| text.clone()),
            terms: None,
            act,
        };
        acts.into_iter().enumerate().map(rule).collect()
    }
}

/// True when a rule with this effect and act is about doing this to that. An allow of a command admits what it says, a
/// deny or ask holds for all that has at least that.
pub(crate) fn covers(effect: Verdict, act: &Act, verb: &Verb, resource: &Resource) -> bool {
    act.verb.covers(verb)
        && match (&act.resource, resource) {
            (ResourcePattern::Path(own), Resource::File(path) | Resource::Tree(path)) => own.covers(path),
            (ResourcePattern::Url(own), Resource::Url(url)) => match effect {
                Verdict::Allow => own.covers(url),
                Verdict::Ask | Verdict::Deny => own.reaches(url),
            },
            (ResourcePattern::Repository(own), Resource::Repository { url, reference }) => match effect {
                Verdict::Allow => own.admits(url, reference),
                Verdict::Ask | Verdict::Deny => own.holds(url, reference),
            },
            (ResourcePattern::Endpoint { host, port }, Resource::Endpoint { host: to, port: at }) => {
                (*port == ANY_PORT || port == at) && host.covers(to)
            }
            (ResourcePattern::Endpoint { host, .. }, Resource::Name(name)) => host.covers(name),
            (ResourcePattern::Secret(own), Resource::Secret(name)) => own.covers(name),
            (ResourcePattern::Tool(own), Resource::Tool(tool)) => own.covers(tool),
            (ResourcePattern::AnyCommand, Resource::Command(_)) => true,
            (ResourcePattern::Command(own), Resource::Command(command)) => match effect {
                Verdict::Allow => {
                    let mut forms = command.forms().iter();
                    forms.all(|form| own.admits(form))
                }
                Verdict::Ask | Verdict::Deny => command.forms().iter().any(|form| own.holds(form)),
            },
            _ => false,
        }
}

/// The host that an act of the network names.
pub(crate) fn host_of(act: &Act) -> Option<&HostPattern> {
    match &act.resource {
        ResourcePattern::Url(url) => Some(&url.host),
        ResourcePattern::Repository(pattern) => Some(&pattern.url.host),
        ResourcePattern::Endpoint { host, .. } => Some(host),
        ResourcePattern::Path(_)
        | ResourcePattern::AnyCommand
        | ResourcePattern::Command(_)
        | ResourcePattern::Secret(_)
        | ResourcePattern::Tool(_) => None,
    }
}

fn with_host(act: &Act, to: &HostPattern) -> Act {
    let mut act = act.clone();
    match &mut act.resource {
        ResourcePattern::Url(url) => url.host = to.clone(),
        ResourcePattern::Repository(pattern) => pattern.url.host = to.clone(),
        ResourcePattern::Endpoint { host, .. } => *host = to.clone(),
        ResourcePattern::Path(_)
        | ResourcePattern::AnyCommand
        | ResourcePattern::Command(_)
        | ResourcePattern::Secret(_)
        | ResourcePattern::Tool(_) => {}
    }
    act
}

/// The names of this machine that a rule on one of them is a rule on too.
fn loopback_names(effect: Verdict, host: &HostPattern) -> Vec<HostPattern> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let localhost = || Host::Name("localhost".into());
    let v4 = Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let v6 = Host::Address(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let one_of_three = matches!(host, HostPattern::Exact(host) if [&localhost(), &v4, &v6].contains(&host));
    let below = match host {
        HostPattern::Exact(host) => host.is_localhost(),
        HostPattern::Below { domain, .. } | HostPattern::Site(domain) => Host::Name(domain.clone()).is_localhost(),
        HostPattern::Any => false,
    };
    let denied = effect == Verdict::Deny && (below || one_of_three);
    let mut names = Vec::new();
    if one_of_three || denied {
        names.extend([localhost(), v4, v6].map(HostPattern::Exact));
    }
    if denied {
        // A name below `localhost` is one more spelling that a deny must not miss.
        names.push(HostPattern::Below {
            domain: "localhost".into(),
            deep: true,
        });
    }
    names
}

fn following(effect: Verdict, act: &Act) -> Vec<(Verdict, Act)> {
    let mut found = Vec::new();
    let spellings = host_of(act).map_or_else(Vec::new, |host| loopback_names(effect, host));
    let spelled = spellings.iter().map(|host| with_host(act, host));
    for act in [act.clone()].into_iter().chain(spelled) {
        found.push((effect, act.clone()));
        match (&act.resource, effect) {
            (ResourcePattern::Path(_), Verdict::Allow) if act.verb == VerbPattern::One(Verb::Write) => {
                found.push((effect, verb_on(Verb::Read, act.resource.clone())));
            }
            (ResourcePattern::Url(url), Verdict::Deny) => {
                let reach = |verb, port| {
                    let host = url.host.clone();
                    (effect, verb_on(verb, ResourcePattern::Endpoint { host, port }))
                };
                found.push(reach(Verb::Tunnel, url.port));
                let own_port = url.port == ANY_PORT || url.port == url.scheme.default_port();
                let whole = url.scheme == Scheme::Https && url.is_whole_host() && own_port;
                if whole && act.verb == VerbPattern::Any {
                    found.push(reach(Verb::Resolve, Scheme::Https.default_port()));
                }
            }
            // What is in a tunnel is not seen.
            (ResourcePattern::Repository(pattern), Verdict::Deny) => {
                let (host, port) = (pattern.url.host.clone(), pattern.url.port);
                found.push((effect, verb_on(Verb::Tunnel, ResourcePattern::Endpoint { host, port })));
            }
            (
                ResourcePattern::Url(_) | ResourcePattern::Repository(_) | ResourcePattern::Endpoint { .. },
                Verdict::Allow | Verdict::Ask,
            ) => {
                found.extend(host_of(&act).map(|host| look_up(effect, host)));
            }
            _ => {}
        }
    }
    found
}

/// To look up a name that was written out tells nobody anything; below a wildcard the name itself can carry data.
fn look_up(effect: Verdict, host: &HostPattern) -> (Verdict, Act) {
    let effect = match host {
        HostPattern::Exact(_) => Verdict::Allow,
        HostPattern::Any | HostPattern::Below { .. } | HostPattern::Site(_) => effect,
    };
    let port = Scheme::Https.default_port();
    let host = host.clone();
    (effect, verb_on(Verb::Resolve, ResourcePattern::Endpoint { host, port }))
}

fn verb_on(verb: Verb, resource: ResourcePattern) -> Act {
    Act {
        verb: VerbPattern::One(verb),
        resource,
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{AbsPath, Anchors};

    use super::*;

    fn written(effect: Verdict, act: &str) -> Vec<String> {
        let anchors = Anchors {
            root: AbsPath::new("/p").ok(),
            home: AbsPath::new("/home/dana").unwrap(),
        };
        let origin = RuleRef {
            layer: Layer::Context,
            file: "f".into(),
            line: 1,
            column: 1,
            act: String::new(),
        };
        let act = Act::parse(act, &anchors).unwrap();
        let rules = Rule::written(effect, act, &origin, None, &bailiwick_gate::AsWritten);
        let text = |rule: &Rule| format!("{} {}", rule.effect.as_str(), rule.act());
        rules.iter().map(text).collect()
    }

    #[test]
    fn p5_what_follows_from_a_rule_is_written_out() {
        let (allow, ask, deny) = (Verdict::Allow, Verdict::Ask, Verdict::Deny);
        for (effect, act, want) in [
            (allow, "write .", &["allow write /p", "allow read /p"][..]),
            (allow, "read .", &["allow read /p"]),
            (deny, "write .", &["deny write /p"]),
            (allow, "tunnel a.test", &["allow tunnel a.test", "allow resolve a.test"]),
            (ask, "tunnel a.test", &["ask tunnel a.test", "allow resolve a.test"]),
            (ask, "tunnel **.test", &["ask tunnel **.test", "ask resolve **.test"]),
            (deny, "tunnel a.test", &["deny tunnel a.test"]),
            (
                deny,
                "* https://a.test/**",
                &["deny * https://a.test/**", "deny tunnel a.test", "deny resolve a.test"],
            ),
            (
                deny,
                "* https://a.test/x",
                &["deny * https://a.test/x", "deny tunnel a.test"],
            ),
            (
                deny,
                "push https://a.test/r main",
                &["deny push https://a.test/r main", "deny tunnel a.test"],
            ),
            (
                allow,
                "fetch https://a.test/r",
                &["allow fetch https://a.test/r", "allow resolve a.test"],
            ),
            (
                deny,
                "POST http://a.test:81",
                &["deny POST http://a.test:81/**", "deny tunnel a.test:81"],
            ),
            (
                allow,
                "tunnel localhost:1",
                &[
                    "allow tunnel localhost:1",
                    "allow resolve localhost",
                    "allow tunnel 127.0.0.1:1",
                    "allow resolve 127.0.0.1",
                    "allow tunnel [::1]:1",
                    "allow resolve [::1]",
                ],
            ),
            (
                deny,
                "tunnel x.localhost:1",
                &[
                    "deny tunnel x.localhost:1",
                    "deny tunnel localhost:1",
                    "deny tunnel 127.0.0.1:1",
                    "deny tunnel [::1]:1",
                    "deny tunnel **.localhost:1",
                ],
            ),
        ] {
            assert_eq!(written(effect, act), want, "{act}");
        }
    }
}
