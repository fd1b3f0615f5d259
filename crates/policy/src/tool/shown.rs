//! What the tool gate is told of rules, so that it lists what may be used: never more than a filter.
//!
//! Promises: P14 (listing depends on rules alone, never on arguments). Not here: whether a call may be made (`judging`).

use bailiwick_model::{ResourcePattern, ToolPattern, Verb, VerbPattern, Verdict};

use super::terms::Terms;
use crate::policy::Policy;
use crate::rule::Rule;

impl Policy {
    /// What rules let be used or asked of a server besides its tools: by verb and pattern.
    pub fn tools_named(&self, server: &str) -> Vec<(Verb, ToolPattern)> {
        let rules = self.rules().iter().filter(|rule| rule.effect != Verdict::Deny);
        let named = rules.filter_map(|rule| {
            let pattern = pattern_of(rule, server)?;
            // A ceiling says what may be handed on at all; what is shown is what the context speaks of.
            let inner = self.granting_layers().iter().max() == Some(&rule.layer());
            match &rule.act().verb {
                VerbPattern::One(verb) if inner && *verb != Verb::Call => Some((verb.clone(), pattern.clone())),
                _ => None,
            }
        });
        let mut all: Vec<(Verb, ToolPattern)> = named.collect();
        all.sort();
        all.dedup();
        all
    }

    /// The tools of a server whose calls must say why they are made.
    pub fn tools_with_reasons(&self, server: &str) -> Vec<ToolPattern> {
        self.tools_where(server, |terms| terms.record_reason)
    }

    /// The tools of a server whose results may be changed on their way to the agent.
    pub fn tools_altered(&self, server: &str) -> Vec<ToolPattern> {
        self.tools_where(server, |terms| {
            !terms.redact.is_empty() || !terms.present.is_empty() || terms.cap.is_some()
        })
    }

    fn tools_where(&self, server: &str, which: impl Fn(&Terms) -> bool) -> Vec<ToolPattern> {
        let rules = self.rules().iter().filter(|rule| rule.effect != Verdict::Deny);
        let such = rules.filter(|rule| rule.terms.as_deref().is_some_and(&which));
        such.filter_map(|rule| pattern_of(rule, server).cloned()).collect()
    }
}

/// The pattern of a rule that is about a server.
fn pattern_of<'a>(rule: &'a Rule, server: &str) -> Option<&'a ToolPattern> {
    match &rule.act().resource {
        ResourcePattern::Tool(pattern) if pattern.server().is_none_or(|own| own == server) => Some(pattern),
        _ => None,
    }
}
