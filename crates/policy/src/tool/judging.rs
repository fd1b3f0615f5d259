//! Judges a call by the rules about its tool: which of them admit its arguments, and why the others do not.
//!
//! Promises: P2 (each layer must allow), P4 (a deny or ask whose condition cannot be evaluated is a deny; an allow whose
//! condition cannot be is none), P14 (time is handed in). Trust: arguments are the agent's.
//! What the agent is told is the code and the names of arguments; the texts here are for the person.
//! Not here: how layers are put together (`combine`), totals (`mediator`), handles and results (`tools`).

use bailiwick_model::{
    Argument, Code, Decision, Layer, Millis, Reason, Request, Resource, ToolName, Verb, Verdict, argument,
};

use cedar_policy::RestrictedExpression;

use super::among::Among;
use super::given::not_given;
use super::terms::{Terms, given_with as args};
use super::view::{Misfit, View, view};
use super::when::Compiled;
use crate::policy::Policy;
use crate::rule::Rule;

/// Under which circumstances a call is judged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Circumstances {
    /// The time, where it is known: relations are as old as it says.
    pub now: Option<Millis>,
    /// True when nothing that is known of people counts.
    pub without_people: bool,
}

impl Policy {
    /// True when some rule of every layer could let this tool be called, whatever the arguments: only then is it shown.
    pub fn visible(&self, server: &str, name: &str) -> bool {
        ToolName::new(server, name).is_ok_and(|tool| self.shows(&Verb::Call, &tool))
    }

    /// The same for any act on what servers offer.
    pub fn shows(&self, verb: &Verb, tool: &ToolName) -> bool {
        if !tool.fits(verb) {
            return false;
        }
        let resource = Resource::Tool(tool.clone());
        let near = self.index().of_tool(tool);
        let about = || {
            near.iter()
                .filter_map(|number| self.rules().get(*number))
                .filter(|rule| rule.covers(verb, &resource))
        };
        let denied = about()
            .any(|rule| rule.effect == Verdict::Deny && rule.terms.as_ref().is_none_or(|terms| terms.admits_all()));
        let granted = |layer: &Layer| about().any(|rule| rule.layer() == *layer && rule.effect != Verdict::Deny);
        !denied && !self.granting_layers().is_empty() && self.granting_layers().iter().all(granted)
    }

    /// The arguments of a call for which no rule admits it: what the agent may be told of the refusal.
    pub fn arguments_at_fault(&self, request: &Request) -> Vec<String> {
        let Resource::Tool(tool) = &request.resource else {
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        let candidates = self.index().candidates(self.rules(), request);
        for layer in self.granting_layers() {
            let mut of_layer = Vec::new();
            let mut admitted = false;
            for number in &candidates {
                let rule = self.rules().get(*number).filter(|rule| rule.effect != Verdict::Deny);
                let Some(rule) = rule.filter(|rule| rule.layer() == *layer) else {
                    continue;
                };
                let totals = rule.limits().totals.as_ref();
                let uncounted = totals.and_then(|totals| totals.amounts(request).err());
                names.extend(uncounted.map(|fault| fault.argument));
                let misfits = self.misfits(*number, rule, tool, request);
                admitted |= misfits.is_empty();
                of_layer.extend(misfits);
            }
            // What a layer lets pass is not at fault there.
            for misfit in of_layer.iter().filter(|_| !admitted) {
                let own = misfit.argument.split(", ").filter(|name| !name.is_empty());
                names.extend(own.map(Into::into));
            }
        }
        let mut names: Vec<String> = names.into_iter().map(|name| self.told_of(tool, name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The rules about a tool that a request satisfies; the denies alone where there are any.
    pub(crate) fn satisfied_by_call(
        &self,
        request: &Request,
        candidates: &[usize],
        circumstances: Circumstances,
        plain: impl FnOnce(&[usize]) -> Result<Vec<usize>, String>,
    ) -> Result<Vec<usize>, String> {
        let Resource::Tool(tool) = &request.resource else {
            return plain(candidates);
        };
        let terms = |number: &usize| self.rules().get(*number).and_then(|rule| rule.terms.as_deref());
        let (conditional, simple): (Vec<usize>, Vec<usize>) = candidates
            .iter()
            .copied()
            .partition(|number| terms(number).is_some_and(|terms| terms.when.is_some()));
        let mut found = plain(&simple)?;
        for number in conditional {
            let Some((own, (compiled, _))) = terms(&number).and_then(|own| Some((own, own.compiled.get(tool)?))) else {
                continue;
            };
            if circumstances.without_people && own.asks_of_people(tool) {
                continue;
            }
            let Ok(seen) = self.seen(own, compiled, tool, request, circumstances) else {
                continue;
            };
            if self.engine().holds(number, tool, seen)? {
                found.push(number);
            }
        }
        found.sort_unstable();
        let is_deny = |number: &usize| {
            self.rules()
                .get(*number)
                .is_some_and(|rule| rule.effect == Verdict::Deny)
        };
        if found.iter().any(is_deny) {
            found.retain(is_deny);
        }
        Ok(found)
    }

    /// What the condition of a rule sees of a call.
    fn seen(
        &self,
        terms: &Terms,
        compiled: &Compiled,
        tool: &ToolName,
        request: &Request,
        circumstances: Circumstances,
    ) -> Result<Seen, Misfit> {
        let fields = terms.compiled.get(tool).map(|(_, fields)| fields);
        let fields = fields.ok_or_else(|| Misfit::of(&[], "belongs to a tool that is not pinned"))?;
        if let Some(misfit) = not_given(&terms.from, request, args(request)) {
            return Err(misfit);
        }
        let relations = self.relations();
        let known = |kind, id: &str| relations.and_then(|relations| relations.uid(kind, id));
        let View { mut pairs, mut named } = view(args(request), fields, &compiled.uses, &known)?;
        if !compiled.uses.among.is_empty() {
            let mut among = Vec::new();
            for one in &compiled.uses.among {
                let entries = entries(terms, one, request);
                among.push((one.key(), one.handed_in(fields, args(request), entries)?));
            }
            let among = RestrictedExpression::new_record(among).map_err(|_| Misfit::of(&[], "is asked twice"))?;
            pairs.push(("among".into(), among));
        }
        let entities = match relations {
            None => Vec::new(),
            Some(relations) => {
                if compiled.uses.me {
                    use crate::tool::shape::Kind;
                    let me = relations
                        .me
                        .as_ref()
                        .and_then(|id| Some((id.clone(), relations.uid(Kind::Person, id)?)));
                    let (id, uid) = me.ok_or_else(|| Misfit {
                        argument: String::new(),
                        text: "nobody among the people is the one for whom the task runs".into(),
                    })?;
                    named.insert((Kind::Person, id));
                    pairs.push(("me".into(), RestrictedExpression::new_entity_uid(uid)));
                }
                if compiled.uses.age {
                    let now = circumstances.now.unwrap_or(relations.read_at);
                    let age = now.0.saturating_sub(relations.read_at.0) / 1000;
                    let age = i64::try_from(age).unwrap_or(i64::MAX);
                    let age = RestrictedExpression::new_long(age);
                    let age = RestrictedExpression::new_record([("age".to_owned(), age)]);
                    pairs.push(("relations".into(), age.map_err(|_| Misfit::of(&[], "has no age"))?));
                }
                named.extend(compiled.uses.known.iter().map(|(kind, id, _)| (*kind, id.clone())));
                relations.entities(&named).map_err(|text| Misfit {
                    argument: String::new(),
                    text,
                })?
            }
        };
        Ok(Seen { pairs, entities })
    }

    /// False only where the condition of a rule is known not to hold for a call.
    pub(crate) fn may_hold(&self, number: usize, terms: &Terms, tool: &ToolName, request: &Request) -> bool {
        if terms.when.is_none() {
            return true;
        }
        let Some((compiled, _)) = terms.compiled.get(tool) else {
            return true;
        };
        let seen = self.seen(terms, compiled, tool, request, Circumstances::default());
        seen.map_or(true, |seen| self.engine().holds(number, tool, seen).unwrap_or(true))
    }

    /// A deny, or an ask, whose condition cannot be evaluated for this call.
    pub(crate) fn unjudged(&self, tool: &ToolName, request: &Request, candidates: &[usize]) -> Option<Decision> {
        for number in candidates {
            let Some(rule) = self.rules().get(*number).filter(|rule| rule.effect != Verdict::Allow) else {
                continue;
            };
            let Some(terms) = rule.terms.as_deref().filter(|terms| terms.when.is_some()) else {
                continue;
            };
            let Some((compiled, _)) = terms.compiled.get(tool) else {
                let text = format!(
                    "`{}` ({}) cannot be judged: `{tool}` is not pinned",
                    rule.origin.act, rule.origin
                );
                return Some(Decision::deny(Code::ToolChanged, text));
            };
            if let Err(misfit) = self.seen(terms, compiled, tool, request, Circumstances::default()) {
                let mut decision = Decision::deny(Code::ArgumentsRefused, "");
                decision.reasons = vec![refused(rule, &misfit)];
                return Some(decision);
            }
        }
        None
    }

    /// Why a rule that is about the tool does not admit a call: one for each thing that does not hold.
    fn misfits(&self, number: usize, rule: &Rule, tool: &ToolName, request: &Request) -> Vec<Misfit> {
        if let Some(misfit) = breach(rule, request).or_else(|| uncounted(rule, request)) {
            return vec![misfit];
        }
        let Some(terms) = rule.terms.as_deref().filter(|terms| terms.when.is_some()) else {
            return Vec::new();
        };
        let Some((compiled, _)) = terms.compiled.get(tool) else {
            return vec![Misfit {
                argument: String::new(),
                text: format!("`{tool}` is not pinned"),
            }];
        };
        let mut found = Vec::new();
        for part in &compiled.parts {
            let seen = match self.seen(terms, compiled, tool, request, Circumstances::default()) {
                Ok(seen) => seen,
                Err(misfit) => return vec![misfit],
            };
            if self.engine().part_holds(number, tool, &part.cedar, seen) {
                continue;
            }
            let names: Vec<String> = part.names.iter().cloned().collect();
            let fields = terms.compiled.get(tool).map(|(_, fields)| fields);
            let measured = part.among.iter().filter_map(|one| {
                let entries = entries(terms, one, request);
                let number = one.measured(fields?, args(request), entries).ok()?;
                Some(format!("{one} is {number}"))
            });
            let values = part.names.iter().map(|name| {
                let value = super::view::value_at(args(request), &super::terms::path_of(name));
                let value = value.map_or_else(|| "missing".to_owned(), |value| clipped(&value.to_string()));
                format!("`{name}` is {value}")
            });
            found.push(Misfit {
                argument: names.join(", "),
                text: format!(
                    "`{}` does not hold: {}",
                    part.text,
                    values.chain(measured).collect::<Vec<_>>().join(", ")
                ),
            });
        }
        found
    }

    /// The reason of a layer in which rules are about the tool, and none admits the call.
    pub(crate) fn refused_in(&self, layer: Layer, request: &Request) -> Option<Reason> {
        let Resource::Tool(tool) = &request.resource else {
            return None;
        };
        let candidates = self.index().candidates(self.rules(), request);
        let mut first = None;
        for number in candidates {
            let Some(rule) = self.rules().get(number) else { continue };
            if rule.layer() != layer || rule.effect == Verdict::Deny {
                continue;
            }
            let misfits = self.misfits(number, rule, tool, request).into_iter();
            let told = misfits.map(|misfit| refused(rule, &misfit)).reduce(|mut one, other| {
                one.text.push_str("; ");
                one.text.push_str(&other.text);
                one
            });
            first = match (first, told) {
                (None, told) => told,
                (first, _) => first,
            };
        }
        first
    }

    /// What the answer to a call adds for the gate; or that its amounts cannot be counted, or it says not why it is made.
    pub(crate) fn with_duties_of_call(request: &Request, mut decision: Decision, deciding: &[&Rule]) -> Decision {
        for rule in deciding {
            // No wider rule takes the place of one whose amounts cannot be counted.
            if let Some(misfit) = uncounted(rule, request) {
                return Decision {
                    reasons: vec![refused(rule, &misfit)],
                    ..Decision::deny(Code::ArgumentsRefused, "")
                };
            }
            let Some(terms) = rule.terms.as_deref() else { continue };
            let said = |argument: &Argument| matches!(argument, Argument::Text(text) if !text.trim().is_empty());
            if terms.record_reason && !request.arguments.get(argument::REASON).is_some_and(said) {
                let text = format!(
                    "`{}` ({}) wants to know why, and the call does not say",
                    rule.origin.act, rule.origin
                );
                let mut decision = Decision::deny(Code::ReasonMissing, text);
                if let Some(reason) = decision.reasons.first_mut() {
                    reason.rule = Some(rule.origin.clone());
                }
                return decision;
            }
            for duty in terms.duties() {
                if !decision.obligations.contains(&duty) {
                    decision.obligations.push(duty);
                }
            }
        }
        decision
    }

    /// What is new or has changed is never taken without a person, whom no rule can take the place of.
    pub(crate) fn accepting(&self, tool: &ToolName, rules: &[&Rule]) -> Decision {
        if !rules.is_empty() || !self.shows(&Verb::Call, tool) {
            return Decision::deny(Code::NoRule, format!("no rule lets `{tool}` be used"));
        }
        let reason = Reason {
            verdict: Verdict::Ask,
            code: Code::ToolChanged,
            rule: None,
            text: format!("what the server says of `{tool}` is new, or has changed"),
        };
        Decision {
            verdict: Verdict::Ask,
            code: Code::ToolChanged,
            reasons: vec![reason],
            obligations: Vec::new(),
        }
    }

    /// What the age of relations says against a call.
    pub(crate) fn by_age(&self, request: &Request, now: Millis) -> Option<Decision> {
        let (Resource::Tool(tool), Some(relations)) = (&request.resource, self.relations()) else {
            return None;
        };
        let candidates = self.index().candidates(self.rules(), request);
        let about = candidates.iter().filter_map(|number| self.rules().get(*number));
        let speaking: Vec<&Rule> = about
            .filter(|rule| rule.terms.as_ref().is_some_and(|terms| terms.asks_of_people(tool)))
            .collect();
        let is_old = relations
            .stale_after
            .is_some_and(|most| now.0.saturating_sub(relations.read_at.0) / 1000 > most);
        let asks_age = |rule: &&Rule| rule.terms.as_ref().is_some_and(|terms| terms.asks_of_age(tool));
        if speaking.is_empty() || !(is_old || speaking.iter().any(asks_age)) {
            return None;
        }
        let circumstances = |without_people| Circumstances {
            now: Some(now),
            without_people,
        };
        let age = now.0.saturating_sub(relations.read_at.0) / 1000;
        if !is_old {
            let decision = self.decide(request, |request| self.satisfied_in(request, circumstances(false)));
            return (decision.verdict != Verdict::Allow).then_some(decision);
        }
        let stale = || {
            let text = format!(
                "what is known of people is {age} s old, and may be no older than {} s",
                relations.stale_after.unwrap_or(0)
            );
            Decision::deny(Code::RelationsStale, text)
        };
        if speaking.iter().any(|rule| rule.effect != Verdict::Allow) {
            return Some(stale());
        }
        let decision = self.decide(request, |request| self.satisfied_in(request, circumstances(true)));
        (decision.verdict == Verdict::Deny).then(stale)
    }
}

/// What Cedar is handed besides the request.
#[derive(Debug)]
pub(crate) struct Seen {
    pub pairs: Vec<(String, RestrictedExpression)>,
    pub entities: Vec<cedar_policy::Entity>,
}

/// Why a rule does not admit a call, as far as that stands in no condition.
pub(crate) fn breach(rule: &Rule, request: &Request) -> Option<Misfit> {
    let Resource::Tool(tool) = &request.resource else {
        return None;
    };
    let terms = rule.terms.as_deref()?;
    terms.breach(tool, request, rule.limits())
}

/// What an argument was chosen from.
fn entries<'a>(terms: &Terms, among: &Among, request: &'a Request) -> &'a [Argument] {
    let part = terms.from.get(&among.argument);
    let entries = part.and_then(|part| request.chosen_from(&among.argument.join("."), part));
    entries.unwrap_or_default()
}

/// An amount that cannot be counted.
fn uncounted(rule: &Rule, request: &Request) -> Option<Misfit> {
    let uncounted = rule.limits().totals.as_ref()?.amounts(request).err()?;
    Some(Misfit {
        text: uncounted.to_string(),
        argument: uncounted.argument,
    })
}

fn refused(rule: &Rule, misfit: &Misfit) -> Reason {
    Reason {
        verdict: Verdict::Deny,
        code: Code::ArgumentsRefused,
        rule: Some(rule.origin.clone()),
        text: format!(
            "`{}` ({}) does not admit it: {}",
            rule.origin.act, rule.origin, misfit.text
        ),
    }
}

/// A value as it is shown in a reason.
fn clipped(text: &str) -> String {
    const LONGEST: usize = 80;
    if text.chars().count() <= LONGEST {
        return text.into();
    }
    let head: String = text.chars().take(LONGEST).collect();
    format!("{head}…")
}
