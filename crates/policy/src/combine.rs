//! Makes one decision of the rules that a request satisfies.
//!
//! Promises: P2 (every layer must allow), P4 (a deny beats all; a layer without a rule denies; an ill-formed request is
//! denied), P5 (the address that is dialled is judged, whatever name led to it), P14.
//! Trust: requests come from gates that read what an agent sent. Rules come from files read by `load`.
//! Not here: which rules are satisfied (`cedar`, `index`), approvals and grants (`mediator`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use bailiwick_model::{
    AbsPath, AddressClass, Argument, Code, Command, Decision, Host, HostPattern, Layer, Obligation, PathPattern,
    Reason, Reference, Request, Resource, ResourcePattern, Verb, VerbPattern, Verdict, acts_of, argument, requests_of,
};

use crate::breadth::narrowness;
use crate::oversight::Moment;
use crate::policy::Policy;
use crate::rule::{Rule, host_of};
use crate::settings::names_a_stream;
use crate::tool::judging::breach;

impl Policy {
    /// Decides about a request by the rules alone: step 3 of a decision.
    pub fn evaluate(&self, request: &Request) -> Decision {
        let judge = || {
            let decision = self.decide(request, |request| self.satisfied(request));
            let decision = self.with_secrets(request, decision);
            self.settings().oversight.with_four_eyes(request, decision)
        };
        match &request.resource {
            Resource::Tree(tree) if request.arguments.is_empty() => self.trees().remember(&request.verb, tree, judge),
            _ => self.remembered().decision(request, judge),
        }
    }

    /// What hours, and who is there, say against a request: step 4 of a decision. `duties` is what the rules want of the gate.
    pub fn conditions(&self, request: &Request, duties: &[Obligation], moment: Moment<'_>) -> Option<Decision> {
        let overseen = self.settings().oversight.conditions(request, duties, moment);
        let by_age = self.by_age(request, moment.now);
        let mandate = self
            .mandate()
            .and_then(|mandate| mandate.over(self, request, moment.now));
        [overseen, by_age, mandate].into_iter().flatten().reduce(Decision::and)
    }

    /// Decides with a given way to find the satisfied rules.
    pub(crate) fn decide(
        &self,
        request: &Request,
        satisfied: impl Fn(&Request) -> Result<Vec<usize>, String>,
    ) -> Decision {
        if let Some(wrong) = ill_formed(request) {
            return Decision::deny(
                Code::MalformedRequest,
                format!("`{request}` is not well formed: {wrong}"),
            );
        }
        match &request.resource {
            Resource::Command(command) if command.forms().len() > 1 => {
                self.each_form(request, command, |part| self.decide_one(part, &satisfied))
            }
            // What a push changes is judged one by one, and the strictest answer counts.
            Resource::Url(_) => {
                let parts = by_reference(request).into_iter();
                let all = parts
                    .map(|part| self.decide_one(&part, &satisfied))
                    .reduce(Decision::and);
                all.unwrap_or_else(|| self.decide_one(request, &satisfied))
            }
            _ => self.decide_one(request, &satisfied),
        }
    }

    fn decide_one(&self, request: &Request, satisfied: &impl Fn(&Request) -> Result<Vec<usize>, String>) -> Decision {
        if let Resource::Tool(tool) = &request.resource
            && let Some(refusal) = self.unjudged(tool, request, &self.index().candidates(self.rules(), request))
        {
            return refusal;
        }
        let rules = match self.in_all_views(request, satisfied) {
            Ok(numbers) => self.at(&numbers),
            Err(fault) => return Decision::deny(Code::PolicyFault, format!("a rule could not be evaluated: {fault}")),
        };
        let denies: Vec<&Rule> = rules
            .iter()
            .copied()
            .filter(|rule| rule.effect == Verdict::Deny)
            .collect();
        if !denies.is_empty() {
            return denied(request, &denies);
        }
        if let (Resource::Tool(tool), Verb::Accept) = (&request.resource, &request.verb) {
            return self.accepting(tool, &rules);
        }
        let (mut decision, deciding) = self.layered(request, &rules);
        if decision.verdict == Verdict::Deny {
            return decision;
        }
        if let Resource::Tool(_) = &request.resource {
            return Self::with_duties_of_call(request, decision, &deciding);
        }
        if let Resource::Tree(_) = &request.resource {
            decision.obligations = self.duties_in(request);
        }
        if let Resource::Url(_) | Resource::Repository { .. } | Resource::Endpoint { .. } = &request.resource {
            if let Some(refusal) = self.address_refused(request, &rules, satisfied) {
                return refusal;
            }
            decision.obligations = Self::duties_of_reach(request, &rules);
            for duty in deciding.iter().flat_map(|rule| rule.limits().obligations()) {
                if !decision.obligations.contains(&duty) {
                    decision.obligations.push(duty);
                }
            }
        }
        decision
    }

    /// The rules that a request satisfies: as it is, and where it is one of git's as what else it is. The denies alone where
    /// there are any.
    fn in_all_views(
        &self,
        request: &Request,
        satisfied: &impl Fn(&Request) -> Result<Vec<usize>, String>,
    ) -> Result<Vec<usize>, String> {
        let is_deny = |number: &usize| {
            self.rules()
                .get(*number)
                .is_some_and(|rule| rule.effect == Verdict::Deny)
        };
        let mut numbers = satisfied(request)?;
        let views = other_views(request);
        if views.is_empty() {
            return Ok(numbers);
        }
        for (view, only_against) in views {
            let found = satisfied(&view)?;
            numbers.extend(found.into_iter().filter(|number| !only_against || is_deny(number)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.iter().any(is_deny) {
            numbers.retain(is_deny);
        }
        Ok(numbers)
    }

    /// The rules of all layers that let a request pass.
    pub(crate) fn deciding(&self, request: &Request) -> Vec<&Rule> {
        let numbers = self.in_all_views(request, &|request| self.satisfied(request));
        let rules = self.at(&numbers.unwrap_or_default());
        self.layered(request, &rules).1
    }

    fn at(&self, numbers: &[usize]) -> Vec<&Rule> {
        numbers.iter().filter_map(|number| self.rules().get(*number)).collect()
    }

    /// The answer of the layers together, and the rule of each that gives it.
    fn layered<'a>(&self, request: &Request, rules: &[&'a Rule]) -> (Decision, Vec<&'a Rule>) {
        let (mut reasons, mut deciding) = (Vec::new(), Vec::new());
        // What a program might be taken for need not be allowed.
        let is_against = |command: &Command| command.forms().iter().all(|form| form.only_against);
        let only_against = matches!(&request.resource, Resource::Command(command) if is_against(command));
        for layer in self.granting_layers() {
            // The narrower decides; where two are as narrow, `max` takes the ask.
            let own = || rules.iter().copied().filter(|rule| rule.layer() == *layer);
            // Of two that are alike but for what they ask of arguments, the one that was written first.
            let narrow = |rule: &&Rule| (narrowness(rule.act()), is_narrowed(rule), rule.effect);
            let is_outside = |rule: &&Rule| rule.limits().breach(request).is_some() || breach(rule, request).is_some();
            // What an ask says of limits, no wider allow takes back.
            let asked = own()
                .filter(|rule| rule.effect == Verdict::Ask && rule.terms.is_none())
                .filter(is_outside);
            let floor = asked.map(|rule| narrow(&rule)).max();
            let admits = own()
                .filter(|rule| !is_outside(rule))
                .filter(|rule| rule.effect == Verdict::Ask || floor.is_none_or(|floor| narrow(rule) > floor));
            let narrowest = match &request.resource {
                Resource::Tool(_) => admits.rev().max_by_key(narrow),
                _ => admits.max_by_key(narrow),
            };
            if *layer == Layer::Mandate
                && self
                    .mandate()
                    .is_some_and(|mandate| !mandate.speaks_of(request, &deciding))
            {
                continue;
            }
            match narrowest {
                Some(rule) => {
                    deciding.push(rule);
                    let code = match rule.effect {
                        Verdict::Allow => Code::AllowedByRule,
                        Verdict::Ask => Code::AskedByRule,
                        Verdict::Deny => Code::DeniedByRule,
                    };
                    reasons.push(by_rule(rule, code));
                }
                None if only_against => {}
                None => reasons.push(match (self.refused_in(*layer, request), own().max_by_key(narrow)) {
                    (Some(refused), _) => refused,
                    (None, Some(rule)) => outside(rule, request),
                    (None, None) if *layer == Layer::Mandate => Reason {
                        verdict: Verdict::Deny,
                        code: Code::OutsideMandate,
                        rule: None,
                        text: format!("the mandate does not allow `{request}`"),
                    },
                    (None, None) => Reason {
                        verdict: Verdict::Deny,
                        code: Code::NoRule,
                        rule: None,
                        text: format!("no rule of the {layer} layer allows `{request}`"),
                    },
                }),
            }
        }
        // The innermost layer is what a person looks at first.
        reasons.reverse();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.verdict));
        let decision = match reasons.first() {
            Some(first) => Decision {
                verdict: first.verdict,
                code: first.code,
                reasons,
                obligations: Vec::new(),
            },
            None if only_against => Decision {
                verdict: Verdict::Allow,
                code: Code::AllowedByRule,
                reasons,
                obligations: Vec::new(),
            },
            None => Decision::deny(Code::NoRule, format!("there is no rule that allows `{request}`")),
        };
        (decision, deciding)
    }

    /// What must be hidden or guarded inside a tree that is granted whole.
    fn duties_in(&self, request: &Request) -> Vec<Obligation> {
        let Resource::Tree(tree) = &request.resource else {
            return Vec::new();
        };
        let (mut hides, mut guards) = (BTreeSet::new(), BTreeSet::new());
        for rule in self.rules().iter().filter(|rule| rule.effect == Verdict::Deny) {
            let ResourcePattern::Path(pattern) = &rule.act().resource else {
                continue;
            };
            if !pattern.reaches_into(tree) {
                continue;
            }
            // A kept folder is another one than programs outside look into: what is said of names anywhere is not about it.
            if request.verb == Verb::Keep && !tree.holds(&pattern.anchor()) {
                continue;
            }
            if rule.act().verb.covers(&Verb::Read) {
                hides.insert(pattern);
            } else if matches!(request.verb, Verb::Write | Verb::Keep) {
                guards.insert(pattern);
            }
        }
        let guards = guards.difference(&hides).map(|pattern| Obligation::Guard {
            pattern: (*pattern).clone(),
        });
        let hides = hides.iter().map(|pattern| Obligation::Hide {
            pattern: (*pattern).clone(),
        });
        let asks = self.asked_in(request, tree).into_iter();
        hides.chain(guards).chain(asks).collect()
    }

    /// What is asked about inside a tree that is granted whole.
    fn asked_in(&self, request: &Request, tree: &AbsPath) -> Vec<Obligation> {
        if request.verb == Verb::Keep {
            return Vec::new();
        }
        let verbs: &[Verb] = match request.verb {
            Verb::Read => &[Verb::Read],
            _ => &[Verb::Read, Verb::Write],
        };
        let asks = |inner: &AbsPath| {
            let inside = |verb: &Verb| Request::new(request.task, verb.clone(), Resource::Tree(inner.clone()));
            verbs
                .iter()
                .any(|verb| self.evaluate(&inside(verb)).verdict == Verdict::Ask)
        };
        let inner: BTreeSet<AbsPath> = self.asked_candidates().into_iter().collect();
        inner
            .iter()
            .filter(|inner| *inner != tree && tree.holds(inner) && asks(inner))
            .filter_map(|inner| PathPattern::parse(inner.as_str()).ok())
            .map(|pattern| Obligation::Ask { pattern })
            .collect()
    }

    /// Judges the address that is dialled, or that the host is.
    fn address_refused(
        &self,
        request: &Request,
        rules: &[&Rule],
        satisfied: &impl Fn(&Request) -> Result<Vec<usize>, String>,
    ) -> Option<Decision> {
        let host = request.resource.host()?;
        let known = dialled(request);
        if let Some(address) = known {
            let pinned = self.settings().hosts.get(host).copied();
            let own = host.address().map(|own| own.to_canonical()).or(pinned);
            let strays = own.is_some_and(|own| own != address);
            let outside = host.is_localhost() && AddressClass::of(address) != AddressClass::Loopback;
            if strays || outside {
                let text = format!("`{host}` does not stand for {address}");
                return Some(Decision::deny(Code::NameMismatch, text));
            }
        }
        let class = match known {
            Some(address) => AddressClass::of(address),
            None if host.is_localhost() => AddressClass::Loopback,
            None => return None,
        };
        let code = match class {
            AddressClass::Public => None,
            AddressClass::LinkLocal => Some(Code::AddressLinkLocal),
            AddressClass::Loopback => (!self.names(host, rules)).then_some(Code::AddressLoopback),
            AddressClass::Private => {
                let private = self.settings().private.iter().any(|pattern| pattern.covers(host));
                (!private && !self.names(host, rules)).then_some(Code::AddressPrivate)
            }
        };
        if let Some(code) = code {
            let address = known.map_or_else(|| host.to_string(), |address| address.to_string());
            let text = match (host.address().is_some() || known.is_none(), class) {
                (_, AddressClass::LinkLocal) => format!("{address} is link-local and always refused"),
                (true, class) => format!("{address} is a {class} address that no rule names"),
                (false, class) => format!("`{host}` is at {address}, a {class} address that no rule names"),
            };
            return Some(Decision::deny(code, text));
        }
        // A deny that names an address holds under every name of it.
        if self.denies_addresses()
            && host.address().is_none()
            && let Some(address) = known
        {
            let mut there = request.clone();
            match &mut there.resource {
                Resource::Url(url) | Resource::Repository { url, .. } => url.host = Host::Address(address),
                Resource::Endpoint { host, .. } => *host = Host::Address(address),
                _ => {}
            }
            match self.in_all_views(&there, satisfied) {
                Err(fault) => return Some(Decision::deny(Code::PolicyFault, fault)),
                Ok(numbers) => {
                    let rules = self.at(&numbers);
                    let denies: Vec<&Rule> = rules.into_iter().filter(|rule| rule.effect == Verdict::Deny).collect();
                    if !denies.is_empty() {
                        return Some(denied(request, &denies));
                    }
                }
            }
        }
        None
    }

    /// True when a person named this very host as an address or as this machine, or pinned the name.
    fn names(&self, host: &Host, rules: &[&Rule]) -> bool {
        let literal = rules.iter().any(|rule| {
            rule.layer() == Layer::Context
                && matches!(host_of(rule.act()), Some(HostPattern::Exact(own)) if own == host)
        });
        let is_place = host.address().is_some() || host.is_localhost();
        (is_place && literal) || self.settings().hosts.contains_key(host)
    }

    fn duties_of_reach(request: &Request, rules: &[&Rule]) -> Vec<Obligation> {
        let mut duties = Vec::new();
        let address = dialled(request);
        if let Some(address) = address {
            duties.push(Obligation::DialAddress { address });
        }
        if let Resource::Endpoint { host, .. } = &request.resource {
            let loops = match address {
                Some(address) => AddressClass::of(address) == AddressClass::Loopback,
                None => host.is_localhost(),
            };
            // A service that is named by its port, a database say, need not speak TLS.
            let named = |rule: &&Rule| rule.layer() == Layer::Context && names_a_stream(rule.act());
            if !loops && !rules.iter().any(named) {
                duties.push(Obligation::MatchServerName);
            }
        }
        duties
    }
}

/// What else a request is: one that git sends is an act on a repository too, and the other way round. With true for those of
/// which only denies count.
pub(crate) fn other_views(request: &Request) -> Vec<(Request, bool)> {
    let with = |verb, resource| Request {
        verb,
        resource,
        ..request.clone()
    };
    match &request.resource {
        Resource::Url(_) => acts_of(request)
            .into_iter()
            .map(|(verb, url, references)| {
                let reference = match <[Reference; 1]>::try_from(references) {
                    Ok([reference]) => reference,
                    Err(_) => Reference::Any,
                };
                (with(verb, Resource::Repository { url, reference }), false)
            })
            .collect(),
        Resource::Repository { url, .. } => requests_of(&request.verb, url)
            .into_iter()
            // To be allowed to list is not to be allowed to do.
            .map(|(method, url)| {
                let only_against = method.is_safe();
                (with(Verb::Http(method), Resource::Url(url)), only_against)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The parts of a push that changes several references, each of which changes one.
fn by_reference(request: &Request) -> Vec<Request> {
    let Some((_, _, references)) = acts_of(request).filter(|(_, _, references)| references.len() > 1) else {
        return Vec::new();
    };
    let part = |reference: &Reference| {
        let name = match reference {
            Reference::Named(name) => name.as_str().to_owned(),
            // No name: then it is any.
            Reference::Any | Reference::Listed => " ".into(),
        };
        let mut part = request.clone();
        part.arguments.insert(argument::REFERENCES.into(), Argument::Text(name));
        part
    };
    references.iter().map(part).collect()
}

/// The address that the request says is dialled, else the one that its host is.
fn dialled(request: &Request) -> Option<IpAddr> {
    let own = || request.resource.host().and_then(Host::address);
    request.address().or_else(own).map(|address| address.to_canonical())
}

fn denied(request: &Request, denies: &[&Rule]) -> Decision {
    let mut decision = Decision::deny(Code::DeniedByRule, format!("a rule denies `{request}`"));
    decision.reasons = denies.iter().map(|rule| by_rule(rule, Code::DeniedByRule)).collect();
    decision
}

/// A rule that covers a request whose query or body is outside its limits.
fn outside(rule: &Rule, request: &Request) -> Reason {
    let breach = rule.limits().breach(request).unwrap_or_default();
    Reason {
        verdict: Verdict::Deny,
        code: Code::OutsideLimits,
        rule: Some(rule.origin.clone()),
        text: format!(
            "`{}` ({}) is for less: {breach}, and the rule has {}",
            rule.origin.act,
            rule.origin,
            rule.limits()
        ),
    }
}

pub(crate) fn by_rule(rule: &Rule, code: Code) -> Reason {
    let does = match rule.effect {
        Verdict::Allow => "allows it",
        Verdict::Ask => "wants a person to say",
        Verdict::Deny => "denies it",
    };
    let terms = rule
        .terms
        .as_ref()
        .map_or_else(String::new, |terms| format!(", {terms}"));
    let act = rule.follows_from.as_deref().unwrap_or(&rule.origin.act);
    let why = rule
        .reason
        .as_deref()
        .map_or_else(String::new, |reason| format!(": {reason}"));
    let limits = match rule.limits() {
        limits if limits.is_none() => String::new(),
        limits => format!(", with {limits}"),
    };
    Reason {
        verdict: rule.effect,
        code,
        rule: Some(rule.origin.clone()),
        text: format!("`{act}` ({}) {does}{limits}{terms}{why}", rule.origin),
    }
}

/// True for a rule that says more than its act.
fn is_narrowed(rule: &Rule) -> bool {
    !rule.limits().is_none() || rule.terms.as_ref().is_some_and(|terms| !terms.admits_all())
}

/// What is wrong with a request whose verb does not go with its resource.
fn ill_formed(request: &Request) -> Option<&'static str> {
    let fits = match &request.resource {
        Resource::File(_) => request.verb.is_file(),
        Resource::Tree(_) => matches!(request.verb, Verb::Read | Verb::Write | Verb::Keep),
        Resource::Url(_) => matches!(request.verb, Verb::Http(_)),
        Resource::Repository { .. } => matches!(request.verb, Verb::Fetch | Verb::Push),
        Resource::Endpoint { .. } => request.verb == Verb::Tunnel,
        Resource::Name(_) => request.verb == Verb::Resolve,
        Resource::Command(_) => request.verb.is_command(),
        Resource::Secret(_) => request.verb == Verb::Use,
        Resource::Tool(tool) => tool.fits(&request.verb),
    };
    if !fits {
        return Some("the verb does not go with the resource");
    }
    let port = match &request.resource {
        Resource::Url(url) | Resource::Repository { url, .. } => Some(url.port),
        Resource::Endpoint { port, .. } => Some(*port),
        _ => None,
    };
    (port == Some(bailiwick_model::ANY_PORT)).then_some("the port is no port")
}

/// The verbs with which a rule grants whole trees.
pub(crate) fn tree_verbs(verb: &VerbPattern) -> &'static [Verb] {
    match verb {
        VerbPattern::Any => &[Verb::Read, Verb::Write],
        VerbPattern::One(Verb::Read) => &[Verb::Read],
        VerbPattern::One(Verb::Write) => &[Verb::Write],
        VerbPattern::One(Verb::Keep) => &[Verb::Keep],
        VerbPattern::One(_) => &[],
    }
}
