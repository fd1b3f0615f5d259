//! Shows the rules in force, layer by layer, with where each line came from.

use std::fmt::Write as _;

use bailiwick_model::{Layer, Verdict};

use crate::policy::Policy;
use crate::rule::Rule;

impl Policy {
    /// The rules in force by layer: what each layer allows, asks and denies, and by which line of which file.
    pub fn layers(&self) -> String {
        let mut out = String::new();
        for layer in [
            Layer::Builtin,
            Layer::Machine,
            Layer::Person,
            Layer::Context,
            Layer::Mandate,
        ] {
            let own: Vec<_> = self.rules().iter().filter(|rule| rule.layer() == layer).collect();
            if own.is_empty() && !self.granting_layers().contains(&layer) {
                continue;
            }
            let role = match layer {
                Layer::Builtin => "never overridden",
                _ if !self.granting_layers().contains(&layer) => "only denies",
                Layer::Context => "what this context is granted",
                Layer::Mandate => "what this errand may do outside",
                _ => "the most that a context may be granted",
            };
            let _ = writeln!(out, "{layer} ({role})");
            let width = own
                .iter()
                .map(|rule| rule.act().to_string().chars().count())
                .filter(|len| *len <= 60)
                .max()
                .unwrap_or(0);
            for effect in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
                for rule in own.iter().filter(|rule| rule.effect == effect) {
                    let act = rule.act().to_string();
                    let _ = write!(out, "  {:5} {act:width$}  {}", effect.as_str(), rule.origin);
                    if let Some(from) = &rule.follows_from {
                        let _ = write!(out, "  (follows from `{from}`)");
                    }
                    if let Some(reason) = &rule.reason {
                        let _ = write!(out, "  # {reason}");
                    }
                    out.push('\n');
                    if !rule.limits().is_none() {
                        let _ = writeln!(out, "          with {}", rule.limits());
                    }
                    if let Some(terms) = &rule.terms {
                        let _ = writeln!(out, "          {terms}");
                    }
                    self.show_broker(rule, &mut out);
                }
            }
            out.push('\n');
        }
        for server in &self.settings().servers {
            let _ = writeln!(out, "server {}  {}", server.name, server.origin);
            for line in server.told() {
                let _ = writeln!(out, "  {line}");
            }
            out.push('\n');
        }
        let tags = self.settings().tags.lines();
        if !tags.is_empty() {
            let _ = writeln!(out, "tags (every layer's hold)");
            for line in tags {
                let _ = writeln!(out, "  {line}");
            }
            out.push('\n');
        }
        let overseen = self.settings().oversight.lines();
        if !overseen.is_empty() {
            let _ = writeln!(out, "oversight (every layer's holds)");
            for line in overseen {
                let _ = writeln!(out, "  {line}");
            }
            out.push('\n');
        }
        out
    }

    /// What the command of a broker's rule may do outside.
    fn show_broker(&self, rule: &Rule, out: &mut String) {
        let mut brokers = self.settings().brokers.iter();
        let Some(broker) = brokers.find(|broker| broker.origin == rule.origin) else {
            return;
        };
        for line in broker.told() {
            let _ = writeln!(out, "          outside: {line}");
        }
    }
}
