//! What a request gives and may carry, by tables of tags and by rules about calls together.
//!
//! Promises: P6 (a rule's tags hold for each call that it may admit, also where its condition cannot be evaluated; a part
//! of an answer is left out of account only where the permit has it kept back), P7 (a trusted argument is one of each rule
//! that lets the call pass).
//! Trust: arguments are the agent's. Not here: what a task has read so far (`mediator`).

use std::collections::BTreeSet;

use bailiwick_model::{
    Argument, Label, Obligation, Request, Resource, ResourcePattern, RuleRef, Tag, ToolDuty, ToolName, Verb,
    VerbPattern, Verdict, argument,
};

use crate::combine::other_views;
use crate::oversight::views;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::tool::judging::breach;
use crate::tool::terms::{Terms, given_with};
use crate::tool::view::value_at;

impl Policy {
    /// What the agent reads of the answer to a request carries, where it is allowed. `duties` is what the gate must do then: parts of an answer
    /// that it keeps back are not in what the agent gets.
    pub fn label_of(&self, request: &Request, duties: &[Obligation]) -> Label {
        let mut label = Label::default();
        let tags = &self.settings().tags;
        if tags.is_none() {
            return label;
        }
        // Where all of it is handed out as handles, nothing of it is read.
        if is_kept_back("", duties) {
            return label;
        }
        let mut views = views(request, duties);
        if let (Resource::File(_), Verb::Write) = (&request.resource, &request.verb) {
            // What may be written may be read.
            views.push(Request::new(request.task, Verb::Read, request.resource.clone()));
        }
        tags.given(&views, &mut label);
        if let (Resource::Tree(tree), Verb::Read | Verb::Write) = (&request.resource, &request.verb) {
            tags.given_by_tree(tree, &mut label);
        }
        if let (Resource::Tool(tool), Verb::Call) = (&request.resource, &request.verb) {
            for (_, terms) in self.that_may_admit(tool, request) {
                for tag in &terms.tags {
                    tags.put(tag, &mut label);
                }
                for (tag, paths) in &terms.fields {
                    if !paths.iter().all(|path| is_kept_back(path, duties)) {
                        tags.put(tag, &mut label);
                    }
                }
            }
        }
        label
    }

    /// True when resources or prompts of a server give tags: what it lists of them says something of what they are, and no
    /// request stands for that.
    pub fn lists_are_tagged(&self, server: &str) -> bool {
        let listed = |rule: &Rule| match (&rule.act().verb, &rule.act().resource) {
            (VerbPattern::Any | VerbPattern::One(Verb::Open | Verb::Prompt), ResourcePattern::Tool(pattern)) => {
                pattern.server().is_none_or(|own| own == server)
            }
            _ => false,
        };
        let tables = &self.settings().tags.tables;
        tables.iter().flat_map(|table| &table.on).any(listed)
    }

    /// The tags of confidentiality that may reach what a request acts on: by every layer that speaks of the tag.
    pub fn cleared_for(&self, request: &Request) -> BTreeSet<Tag> {
        let tags = &self.settings().tags;
        if tags.is_none() {
            return BTreeSet::new();
        }
        let mut views = vec![request.clone()];
        let others = other_views(request).into_iter();
        views.extend(others.filter(|(_, only_against)| !only_against).map(|(view, _)| view));
        let deciding = match &request.resource {
            Resource::Tool(_) => self.deciding(request),
            _ => Vec::new(),
        };
        let by_rule = |tag: &Tag, layer| {
            let terms = deciding.iter().filter(|rule| rule.layer() == layer);
            terms
                .filter_map(|rule| rule.terms.as_deref())
                .any(|terms| terms.cleared.contains(tag))
        };
        let cleared = |tag: &&Tag| {
            let layers = tags.layers(tag);
            !layers.is_empty()
                && layers
                    .into_iter()
                    .all(|layer| tags.reaches(tag, layer, &views) || by_rule(tag, layer))
        };
        tags.confidential().into_iter().filter(cleared).cloned().collect()
    }

    /// The arguments of a call that must carry no untrusted influence, each with the rule that says so. One that a rule or
    /// the mandate holds to one value is not among them: nobody could have chosen it.
    pub fn trusted_arguments(&self, request: &Request) -> Vec<(String, RuleRef)> {
        if !matches!((&request.resource, &request.verb), (Resource::Tool(_), Verb::Call)) || !self.has_trusted() {
            return Vec::new();
        }
        let deciding = self.deciding(request);
        let args = given_with(request);
        let mut found: Vec<(String, RuleRef)> = Vec::new();
        for rule in &deciding {
            let Some(terms) = rule.terms.as_deref() else { continue };
            for path in &terms.trusted {
                let name = path.join(".");
                let is_there = value_at(args, path).is_some_and(|value| *value != Argument::Null);
                let pins = |rule: &&&Rule| rule.terms.as_deref().is_some_and(|terms| terms.pins(path));
                if is_there && !deciding.iter().any(|rule| pins(&rule)) && !found.iter().any(|(own, _)| *own == name) {
                    found.push((name, rule.origin.clone()));
                }
            }
        }
        found
    }

    fn has_trusted(&self) -> bool {
        let trusts = |rule: &Rule| rule.terms.as_deref().is_some_and(|terms| !terms.trusted.is_empty());
        self.rules().iter().any(trusts)
    }

    /// The rules that name tags and may admit a call.
    fn that_may_admit<'a>(
        &'a self,
        tool: &'a ToolName,
        request: &'a Request,
    ) -> impl Iterator<Item = (&'a Rule, &'a Terms)> {
        let candidates = self.index().candidates(self.rules(), request);
        candidates
            .into_iter()
            .filter_map(|number| self.rules().get(number).map(|rule| (number, rule)))
            .filter_map(move |(number, rule)| {
                let terms = rule.terms.as_deref()?;
                let names = !terms.tags.is_empty() || !terms.fields.is_empty();
                let about = rule.effect != Verdict::Deny && rule.covers(&request.verb, &request.resource);
                let may = names && about && breach(rule, request).is_none();
                (may && self.may_hold(number, terms, tool, request)).then_some((rule, terms))
            })
    }
}

/// True for an argument that the tool gate opened from a handle before it asked.
pub fn came_by_handle(request: &Request, name: &str) -> bool {
    match request.arguments.get(argument::CHOSEN) {
        Some(Argument::Fields(chosen)) => chosen.contains_key(name),
        _ => false,
    }
}

/// True when a duty has a part of a result left out, or handed out as a handle.
fn is_kept_back(path: &str, duties: &[Obligation]) -> bool {
    let covers = |own: &String| {
        let mut wanted = path.split('/');
        own.split('/').all(|step| match wanted.next() {
            Some(other) => step == "*" || step == other,
            None => false,
        })
    };
    duties.iter().any(|duty| match duty {
        // What is handed out as a handle carries its own tags.
        Obligation::Tool(ToolDuty::Redact { paths } | ToolDuty::Present { paths }) => paths.iter().any(covers),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_a_part_is_kept_back_where_a_duty_covers_all_of_it() {
        let kept = |path: &str, own: &str| {
            let paths = vec![own.to_owned()];
            is_kept_back(path, &[Obligation::Tool(ToolDuty::Redact { paths })])
        };
        for (path, own, want) in [
            ("/people/*/salary", "/people/*/salary", true),
            ("/people/*/salary", "/people", true),
            ("/people/*/salary", "/people/*", true),
            ("/people/0/salary", "/people/*/salary", true),
            ("/people/*/salary", "/people/0/salary", false),
            ("/people/*/salary", "/people/*/salary/net", false),
            ("/salary", "/salaries", false),
            ("/salary", "/name", false),
        ] {
            assert_eq!(kept(path, own), want, "{path} by {own}");
        }
        let paths = vec![String::new()];
        let whole = [Obligation::Tool(ToolDuty::Present { paths })];
        assert!(is_kept_back("/a", &whole) && is_kept_back("", &whole));
        assert!(!is_kept_back("/a", &[]) && !is_kept_back("", &[]));
    }
}
