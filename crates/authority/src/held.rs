//! What a task holds: all of its context's rules, or a list of capabilities; and the one `covers`.
//!
//! Promises: P3, P4. Not here: how often a capability has been used (`mediator` keeps the counts and hands them in).

use bailiwick_model::{Budget, Capability, Command, Millis, Request, Resource};

use crate::act::act_covers;

/// Says whether a capability covers a request at this time. `expires` is the first moment at which it does not.
pub fn covers(capability: &Capability, request: &Request, now: Millis) -> bool {
    let limits = &capability.constraints;
    limits.count != Some(0)
        && limits.not_before.is_none_or(|from| from <= now)
        && limits.expires.is_none_or(|until| now < until)
        && limits.limits.breach(request).is_none()
        // Nobody counts the budget of a capability yet: one that has a budget covers nothing.
        && limits.limits.budget == Budget::default()
        && parts(request)
            .iter()
            .all(|part| capability.acts.iter().any(|act| act_covers(act, part)))
}

/// A command that carries others is covered when each of them is, be it by another act.
fn parts(request: &Request) -> Vec<Request> {
    match &request.resource {
        Resource::Command(command) => {
            let counts = |part: &Command| part.forms().iter().any(|form| !form.only_against);
            let part = |part| Request {
                resource: Resource::Command(part),
                ..request.clone()
            };
            command.parts().filter(counts).map(part).collect()
        }
        _ => vec![request.clone()],
    }
}

/// The authority of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    whole: bool,
    capabilities: Vec<Capability>,
}

/// By which part of an authority a request is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// By all of it: nothing is used up.
    Whole,
    /// By the capability at this place in the list, of which one use is taken when it has a count.
    Capability(usize),
}

impl Authority {
    /// All that the rules of the context allow: the authority of a root task.
    pub fn whole() -> Self {
        Self {
            whole: true,
            capabilities: Vec::new(),
        }
    }

    /// These capabilities and nothing else. An empty list is no authority at all.
    pub fn of(capabilities: Vec<Capability>) -> Self {
        Self {
            whole: false,
            capabilities,
        }
    }

    /// The capabilities; empty for the whole authority.
    pub fn capabilities(&self) -> &[Capability] {
        &self.capabilities
    }

    /// By what the request is covered, if it is. `used` tells how many uses are taken already, by place in the list;
    /// a place that is missing there counts as unused. One without a count is chosen before one that runs out.
    pub fn held(&self, request: &Request, now: Millis, used: &[u64]) -> Option<Held> {
        if self.whole {
            return Some(Held::Whole);
        }
        let left = |place: usize, capability: &Capability| {
            let taken = used.get(place).copied().unwrap_or(0);
            capability.constraints.count.is_none_or(|count| taken < count)
        };
        self.capabilities
            .iter()
            .enumerate()
            .filter(|(place, capability)| left(*place, capability) && covers(capability, request, now))
            .min_by_key(|(_, capability)| capability.constraints.count.is_some())
            .map(|(place, _)| Held::Capability(place))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bailiwick_model::{AbsPath, Act, Anchors, Constraints, Host, HttpUrl, SecretName, TaskId, Verb};

    use super::*;

    pub(crate) fn act(text: &str) -> Act {
        let anchors = Anchors {
            root: None,
            home: AbsPath::new("/home/dana").unwrap(),
        };
        Act::parse(text, &anchors).unwrap()
    }

    pub(crate) fn request(text: &str) -> Request {
        let (verb, resource) = text.split_once(' ').unwrap();
        let verb: Verb = verb.parse().unwrap();
        let resource = match &verb {
            Verb::Http(_) => Resource::Url(HttpUrl::parse(resource).unwrap()),
            Verb::Tunnel => {
                let (host, port) = HttpUrl::authority(resource, 443).unwrap();
                Resource::Endpoint { host, port }
            }
            Verb::Resolve => Resource::Name(Host::parse(resource).unwrap()),
            Verb::Fetch | Verb::Push => {
                let (url, reference) = bailiwick_model::read_repository(resource).unwrap();
                Resource::Repository { url, reference }
            }
            Verb::Use => Resource::Secret(SecretName::parse(resource.trim_start_matches("secret:")).unwrap()),
            verb if verb.is_tool() => Resource::Tool(resource.parse().unwrap()),
            Verb::Run | Verb::Broker => Resource::Command(Command::typed(&resource.split(' ').collect::<Vec<_>>())),
            _ => match resource.strip_suffix("/**") {
                Some(tree) => Resource::Tree(AbsPath::new(tree).unwrap()),
                None => Resource::File(AbsPath::new(resource).unwrap()),
            },
        };
        Request::new(TaskId([1; 8]), verb, resource)
    }

    fn limited(constraints: Constraints) -> Capability {
        Capability {
            acts: vec![act("read /a")],
            constraints,
        }
    }

    #[test]
    fn p4_the_edges_of_time_and_number() {
        let asked = request("read /a/x");
        let window = limited(Constraints {
            not_before: Some(Millis(10)),
            expires: Some(Millis(20)),
            ..Constraints::default()
        });
        for (now, want) in [(9, false), (10, true), (19, true), (20, false)] {
            assert_eq!(covers(&window, &asked, Millis(now)), want, "at {now}");
        }
        let none = limited(Constraints {
            count: Some(0),
            ..Constraints::default()
        });
        assert!(!covers(&none, &asked, Millis(0)));
        assert!(
            !covers(
                &Capability {
                    acts: Vec::new(),
                    constraints: Constraints::default()
                },
                &asked,
                Millis(0)
            ),
            "no acts, no authority"
        );
    }

    #[test]
    fn p4_an_empty_authority_covers_nothing_and_counts_run_out() {
        let asked = request("read /a/x");
        assert_eq!(Authority::of(Vec::new()).held(&asked, Millis(0), &[]), None);
        assert_eq!(Authority::whole().held(&asked, Millis(0), &[]), Some(Held::Whole));
        let once = limited(Constraints {
            count: Some(1),
            ..Constraints::default()
        });
        let authority = Authority::of(vec![once.clone()]);
        assert_eq!(authority.held(&asked, Millis(0), &[0]), Some(Held::Capability(0)));
        assert_eq!(authority.held(&asked, Millis(0), &[1]), None);
        let both = Authority::of(vec![once, limited(Constraints::default())]);
        assert_eq!(
            both.held(&asked, Millis(0), &[]),
            Some(Held::Capability(1)),
            "uses are kept while something else covers"
        );
    }
}
