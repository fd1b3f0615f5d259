//! Rules against each other: which decides over which, and which can never matter.
//!
//! Promises: P4 (a rule that can never hold is said, not passed over).

use bailiwick_model::{
    BodyLimit, Layer, Limits, ResourcePattern, RuleRef, Scheme, UrlPattern, Verb, VerbPattern, Verdict,
};

use crate::breadth::{act_covers, acts_meet, narrowness};
use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::index::Index;
use crate::policy::Policy;
use crate::rule::Rule;

/// How two rules lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OverlapKind {
    /// A deny takes something out of what another rule gives.
    Exception,
    /// A narrower allow or ask decides over a wider one.
    Narrower,
    /// The other rule can never matter.
    NeverMatters,
}

/// Two rules of which one decides over the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// How they lie to each other.
    pub kind: OverlapKind,
    /// The rule that decides.
    pub decides: RuleRef,
    /// The rule that it decides over.
    pub over: RuleRef,
    /// Both in one sentence.
    pub text: String,
}

/// True for a rule that no person wrote.
pub(crate) fn is_shipped(rule: &Rule) -> bool {
    rule.layer() == Layer::Builtin
        || rule.origin.file.starts_with("preset:")
        || rule.origin.file.starts_with("profile:")
}

impl Policy {
    /// All pairs of written rules of which one decides over the other, where a person wrote at least one of the two.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let written: Vec<&Rule> = self.rules().iter().filter(|rule| rule.follows_from.is_none()).collect();
        let mut found = Vec::new();
        for (place, one) in written.iter().enumerate() {
            for other in written.iter().skip(place.saturating_add(1)) {
                if is_shipped(one) && is_shipped(other) {
                    continue;
                }
                found.extend(between(one, other).or_else(|| between(other, one)));
            }
        }
        found
    }
}

/// How the one rule decides over the other, if it does.
fn between(one: &Rule, other: &Rule) -> Option<Overlap> {
    let overlap = |kind, text: String| {
        Some(Overlap {
            kind,
            decides: one.origin.clone(),
            over: other.origin.clone(),
            text,
        })
    };
    let name = |rule: &Rule| format!("`{}` ({})", rule.origin.act, rule.origin);
    // A rule with limits leaves something over, for all but its like.
    let all = (one.limits().is_none() || one.limits() == other.limits())
        && (one.terms.as_ref().is_none_or(|terms| terms.admits_all()) || one.terms == other.terms);
    let whole = all && act_covers(one.effect, one.act(), other.act());
    match (one.effect, other.effect) {
        (Verdict::Deny, Verdict::Allow | Verdict::Ask) if whole => overlap(
            OverlapKind::NeverMatters,
            format!("{} denies all of {}", name(one), name(other)),
        ),
        (Verdict::Deny, Verdict::Allow | Verdict::Ask) if acts_meet(one.act(), other.act()) => overlap(
            OverlapKind::Exception,
            format!("{} is an exception in {}", name(one), name(other)),
        ),
        (Verdict::Allow, Verdict::Ask) | (Verdict::Ask, Verdict::Allow) if one.layer() == other.layer() => {
            let narrow = |rule: &Rule| {
                let narrowed = rule.terms.as_ref().is_some_and(|terms| !terms.admits_all());
                (narrowness(rule.act()), narrowed)
            };
            let (own, theirs) = (narrow(one), narrow(other));
            let wins = own > theirs || (own == theirs && one.effect == Verdict::Ask);
            if !wins || !acts_meet(one.act(), other.act()) {
                None
            } else if whole {
                overlap(
                    OverlapKind::NeverMatters,
                    format!("{} leaves nothing to {}", name(one), name(other)),
                )
            } else {
                overlap(
                    OverlapKind::Narrower,
                    format!("{} is narrower and decides over {}", name(one), name(other)),
                )
            }
        }
        (effect, same) if effect == same && whole && one.layer() == other.layer() && matters(one, other) => overlap(
            OverlapKind::NeverMatters,
            format!("{} says all that {} says", name(one), name(other)),
        ),
        _ => None,
    }
}

/// True when the other rule, which the one covers whole, keeps nothing of its own: limits on answers, keys and budgets hold
/// where it is the narrower.
fn matters(one: &Rule, other: &Rule) -> bool {
    let (own, theirs) = (one.limits(), other.limits());
    let rest = |limits: &Limits| (limits.answer, limits.keys.clone(), limits.budget, limits.totals.clone());
    rest(own) == rest(theirs) && one.terms == other.terms
}

/// Complaints about limits of people that keep nothing out, since a wider rule of the same layer lets all of it pass.
pub(crate) fn idle_limits(rules: &[Rule]) -> Vec<Diagnostic> {
    let narrowed = |rule: &Rule| rule.terms.as_ref().is_some_and(|terms| !terms.admits_all());
    let keeps_out = |rule: &&Rule| {
        rule.limits().query.is_some()
            || rule.limits().body != BodyLimit::default()
            || (narrowed(rule) && rule.effect == Verdict::Allow)
    };
    let written = || rules.iter().filter(|rule| rule.follows_from.is_none());
    let mut found = Vec::new();
    for rule in written().filter(keeps_out) {
        let lets = |other: &&Rule| {
            other.layer() == rule.layer()
                && other.effect == Verdict::Allow
                && other.limits().is_none()
                && !narrowed(other)
                && act_covers(other.effect, other.act(), rule.act())
        };
        let Some(wide) = written().find(lets) else { continue };
        let place = Place {
            line: rule.origin.line,
            column: rule.origin.column,
        };
        let message = format!(
            "the limits of `{}` keep nothing out: `{}` ({}) allows what is outside them",
            rule.origin.act, wide.origin.act, wide.origin
        );
        let hint = "narrow the wider rule, or give it limits too";
        found.push(Diagnostic::new(
            Severity::Warning,
            &rule.origin.file,
            place,
            &message,
            Some(hint.into()),
        ));
    }
    found
}

/// Complaints about rules of people that a deny makes void.
pub(crate) fn dead(policy: &Policy) -> Vec<Diagnostic> {
    dead_among(policy.rules(), policy.index())
}

/// The same of one file alone: for one whose rules are not all in force.
pub(crate) fn dead_in(rules: &[Rule]) -> Vec<Diagnostic> {
    dead_among(rules, &Index::of(rules))
}

fn dead_among(rules: &[Rule], index: &Index) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for rule in rules {
        let tunnels = rule.act().verb == VerbPattern::One(Verb::Tunnel);
        if rule.effect == Verdict::Deny || rule.follows_from.is_some() || (is_shipped(rule) && !tunnels) {
            continue;
        }
        let near = index.near(rules, rule.act());
        let denies = near.iter().filter_map(|number| rules.get(*number));
        let over = denies.filter(|deny| {
            let whole = deny.terms.as_ref().is_none_or(|terms| terms.admits_all());
            deny.effect == Verdict::Deny && whole && act_covers(deny.effect, deny.act(), rule.act())
        });
        // The complaint names the deny that is easiest to change: one of the same file first.
        let Some(deny) = over.min_by_key(|deny| (deny.origin.file != rule.origin.file, deny.layer() != Layer::Builtin))
        else {
            continue;
        };
        let same_file = deny.origin.file == rule.origin.file;
        if is_shipped(rule) && (is_shipped(deny) || !goes_round(deny)) {
            continue;
        }
        let (act, denied) = (&rule.origin.act, deny.follows_from.as_ref().unwrap_or(&deny.origin.act));
        let (severity, message, hint) = if same_file && deny.act() == rule.act() && deny.follows_from.is_none() {
            let message = format!(
                "`{act}` is both allowed and denied (line {}): the deny always wins",
                deny.origin.line
            );
            (Severity::Error, message, "take one of the two out")
        } else if same_file {
            let message = format!(
                "`{act}` can never match: `{denied}` (line {}) denies all of it",
                deny.origin.line
            );
            (
                Severity::Error,
                message,
                "a deny is never overridden: narrow it, or take this rule out",
            )
        } else if deny.layer() == Layer::Builtin {
            let message = format!("`{act}` can never match: bailiwick itself denies `{denied}`");
            (Severity::Error, message, "take the rule out")
        } else {
            let message = format!("`{act}` can never match: `{denied}` ({}) denies all of it", deny.origin);
            (
                Severity::Warning,
                message,
                "a deny is never overridden: take the rule out",
            )
        };
        let place = Place {
            line: rule.origin.line,
            column: rule.origin.column,
        };
        let hint = match tunnels && goes_round(deny) {
            true => round_hint(rule),
            false => hint.into(),
        };
        found.push(Diagnostic::new(
            severity,
            &rule.origin.file,
            place,
            &message,
            Some(hint),
        ));
    }
    found
}

/// True for a denied tunnel that follows from a deny of some HTTPS requests of a host: what is in a tunnel is not seen.
fn goes_round(deny: &Rule) -> bool {
    let from = deny.follows_from.as_deref().and_then(|act| act.split_once(' '));
    deny.act().verb == VerbPattern::One(Verb::Tunnel)
        && from.is_some_and(|(verb, rest)| {
            let url = UrlPattern::parse(rest.split(' ').next().unwrap_or(rest));
            url.is_ok_and(|url| url.scheme == Scheme::Https && (verb != "*" || !url.is_whole_host()))
        })
}

fn round_hint(tunnel: &Rule) -> String {
    let host = match &tunnel.act().resource {
        ResourcePattern::Endpoint { host, port: 443 } => host.to_string(),
        ResourcePattern::Endpoint { host, port } => format!("{host}:{port}"),
        _ => String::new(),
    };
    format!(
        "what is in a tunnel is not seen, so it would go round the deny: allow requests instead, as in `GET https://{host}/**`"
    )
}
