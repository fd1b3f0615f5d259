//! Commands before the rules: each normal form is judged by itself, and the strictest answer holds.
//!
//! Promises: P4 (what a command carries must be allowed too: a launcher's licence is none for what it starts), P5.
//! Not here: what words mean (`commands`), one rule against one form (`model`).

use std::collections::BTreeSet;

use bailiwick_gate::Judged;
use bailiwick_model::{
    Code, Command, Decision, Layer, ProgramPattern, Reason, Request, Resource, ResourcePattern, Verb, VerbPattern,
    Verdict,
};

use crate::broker;
use crate::policy::Policy;
use crate::rule::Rule;

/// True for a rule about starts inside that names commands, rather than all of them.
fn names_commands(rule: &Rule) -> bool {
    is_run(rule) && matches!(rule.act().resource, ResourcePattern::Command(_))
}

/// True for a rule about starts inside.
fn is_run(rule: &Rule) -> bool {
    rule.act().verb == VerbPattern::One(Verb::Run)
}

/// True for a rule about any start inside.
fn is_run_any(rule: &Rule) -> bool {
    is_run(rule) && rule.act().resource == ResourcePattern::AnyCommand
}

impl Policy {
    /// Decides about what the person orders by hand: the first start of a task. Where a layer lists what may be started,
    /// and where a rule would ask the person, the order is the answer; a deny holds.
    pub fn evaluate_order(&self, request: &Request) -> Decision {
        let decision = self.evaluate(request);
        let answered = |reason: &Reason| match reason.code {
            Code::AskedByRule => true,
            Code::NoRule => self.granting_layers().iter().any(|layer| self.lists(*layer)),
            _ => false,
        };
        let mut strict = decision
            .reasons
            .iter()
            .filter(|reason| reason.verdict != Verdict::Allow);
        if decision.verdict == Verdict::Allow || !strict.all(answered) {
            return decision;
        }
        let said = Reason {
            verdict: Verdict::Allow,
            code: Code::AllowedByOrder,
            rule: None,
            text: format!("the person ordered `{request}` by hand, as this task's first program"),
        };
        let allows = decision
            .reasons
            .into_iter()
            .filter(|reason| reason.verdict == Verdict::Allow);
        Decision {
            verdict: Verdict::Allow,
            code: Code::AllowedByOrder,
            reasons: [said].into_iter().chain(allows).collect(),
            obligations: decision.obligations,
        }
    }

    /// True when a layer lists the commands that it allows.
    fn lists(&self, layer: Layer) -> bool {
        let mut own = self.rules().iter().filter(|rule| rule.layer() == layer);
        let listed = own
            .clone()
            .any(|rule| rule.effect == Verdict::Allow && names_commands(rule));
        let any = own.any(|rule| rule.effect == Verdict::Allow && is_run_any(rule));
        listed && !any
    }

    /// Judges each normal form, and combines the answers.
    pub(crate) fn each_form(
        &self,
        request: &Request,
        command: &Command,
        judge: impl Fn(&Request) -> Decision,
    ) -> Decision {
        let part = |part| Request {
            resource: Resource::Command(part),
            ..request.clone()
        };
        let all = command.parts().map(|form| judge(&part(form))).reduce(Decision::and);
        let mut all = all.unwrap_or_else(|| Decision::deny(Code::MalformedRequest, "a command without words"));
        let mut seen = Vec::new();
        all.reasons.retain(|reason| {
            let new = !seen.contains(reason);
            if new {
                seen.push(reason.clone());
            }
            new
        });
        all
    }

    /// Which starts a fence must ask about, for these rules to hold.
    pub fn judged(&self) -> Judged {
        let is_any = |rule: &&Rule| is_run_any(rule);
        let in_layer = |layer: &Layer| {
            let mut own = self.rules().iter().filter(is_any);
            own.any(|rule| rule.layer() == *layer && rule.effect == Verdict::Allow)
        };
        let narrows = |rule: &&Rule| is_any(rule) && rule.effect != Verdict::Allow;
        // What starts in a fence is no matter of a mandate.
        let mut layers = self.granting_layers().iter().filter(|layer| **layer != Layer::Mandate);
        if !layers.all(in_layer) || self.rules().iter().any(|rule| narrows(&rule)) {
            return Judged::Everything;
        }
        let mut names = BTreeSet::new();
        let told_apart = |rule: &&Rule| is_run(rule) && rule.effect != Verdict::Allow;
        let watched = self.settings().oversight.watched();
        for rule in self.rules().iter().filter(told_apart).chain(watched) {
            let pattern = match &rule.act().resource {
                ResourcePattern::Command(pattern) if rule.act().verb != VerbPattern::One(Verb::Broker) => pattern,
                ResourcePattern::AnyCommand => return Judged::Everything,
                _ => continue,
            };
            let name = match &pattern.program {
                ProgramPattern::Name(name) => Some(name.as_str()),
                ProgramPattern::Path(path) => path.last_literal(),
                ProgramPattern::ReadOnly => None,
            };
            match name.filter(|name| !name.contains(['*', '\\'])) {
                Some(name) => {
                    names.insert(name.to_owned());
                    names.extend(self.also(name).cloned());
                }
                None => return Judged::Everything,
            }
        }
        if !names.is_empty() {
            names.extend(self.carriers().iter().cloned());
        }
        // What a broker runs is caught where it starts, whoever starts it.
        names.extend(broker::programs(&self.settings().brokers));
        if names.is_empty() {
            return Judged::Nothing;
        }
        Judged::Programs(names)
    }
}
