//! The policy of one context: all rules in force, ready to be asked.
//!
//! Promises: P14 (the same rules and the same request give the same answer; the digest names the rules).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bailiwick_gate::Reading;
use bailiwick_model::{
    AbsPath, Budget, Digest, HostPattern, Layer, ProgramPattern, Request, Resource, ResourcePattern, RuleRef, Totals,
    Verb, Verdict,
};
use sha2::{Digest as _, Sha256};

use crate::cedar::{self, Engine};
use crate::combine::tree_verbs;
use crate::diagnostic::Diagnostic;
use crate::index::Index;
use crate::relations::Relations;
use crate::remembered::Remembered;
use crate::rule::{Rule, host_of};
use crate::settings::Settings;
use crate::tool::judging::Circumstances;
use crate::trees::Trees;

/// Where a rule was written: all that follows from it shares its budget.
type Written = (Layer, String, u32, u32);

fn written(rule: &RuleRef) -> Written {
    (rule.layer, rule.file.clone(), rule.line, rule.column)
}

/// All rules in force.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    settings: Settings,
    /// The layers of which each must allow.
    granting: Vec<Layer>,
    engine: Engine,
    index: Index,
    trees: Trees,
    remembered: Remembered,
    denies_addresses: bool,
    digest: Digest,
    warnings: Vec<Diagnostic>,
    budgets: HashMap<Written, (usize, Budget)>,
    relations: Option<Arc<Relations>>,
    totals: HashMap<Written, (String, Arc<Totals>)>,
    carriers: BTreeSet<String>,
    also: BTreeMap<String, BTreeSet<String>>,
}

/// The digest of layers, rules and settings, without regard to where they stand.
fn digest_of(rules: &[Rule], settings: &Settings, granting: &[Layer]) -> Digest {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text.as_bytes());
    };
    part("bailiwick rules v1");
    granting.iter().for_each(|layer| part(layer.as_str()));
    let line = |rule: &Rule| {
        let limits = match rule.limits() {
            limits if limits.is_none() => String::new(),
            limits => format!(" {limits:?}"),
        };
        let terms = rule
            .terms
            .as_ref()
            .map_or_else(String::new, |terms| format!(" {terms} {:?}", terms.compiled));
        format!(
            "{} {} {}{limits}{terms}",
            rule.layer(),
            rule.effect.as_str(),
            rule.act()
        )
    };
    let lines: BTreeSet<String> = rules.iter().map(line).collect();
    lines.iter().for_each(|line| part(line));
    part(&format!("{settings:?}"));
    Digest(hash.finalize().into())
}

/// The totals of rules, each under a name that stays the same while its act does.
fn totals_of(rules: &[Rule]) -> HashMap<Written, (String, Arc<Totals>)> {
    let mut all = HashMap::new();
    let mut seen: HashMap<(Layer, String), usize> = HashMap::new();
    for rule in rules {
        let Some(totals) = &rule.limits().totals else { continue };
        let act = rule.act().to_string();
        let place = seen.entry((rule.layer(), act.clone())).or_insert(0);
        *place = place.saturating_add(1);
        let name = match *place {
            1 => act,
            nth => format!("{act} #{nth}"),
        };
        all.entry(written(&rule.origin))
            .or_insert((name, Arc::new(totals.clone())));
    }
    all
}

impl Policy {
    /// Compiles rules. The error names the rule at fault.
    pub(crate) fn of(
        rules: Vec<Rule>,
        settings: Settings,
        granting: Vec<Layer>,
    ) -> Result<Self, Box<(Option<Rule>, String)>> {
        let engine = match Engine::compile(&rules) {
            Ok(engine) => engine,
            Err((number, fault)) => return Err(Box::new((rules.into_iter().nth(number), fault.to_string()))),
        };
        let names_address = |rule: &Rule| {
            let host = host_of(rule.act());
            rule.effect == Verdict::Deny && matches!(host, Some(HostPattern::Exact(host)) if host.address().is_some())
        };
        let mut budgets = HashMap::new();
        for rule in rules.iter().filter(|rule| rule.limits().budget != Budget::default()) {
            let place = budgets.len();
            budgets
                .entry(written(&rule.origin))
                .or_insert((place, rule.limits().budget));
        }
        Ok(Self {
            index: Index::of(&rules),
            trees: Trees::default(),
            remembered: Remembered::default(),
            denies_addresses: rules.iter().any(names_address),
            digest: digest_of(&rules, &settings, &granting),
            warnings: Vec::new(),
            totals: totals_of(&rules),
            rules,
            settings,
            granting,
            engine,
            budgets,
            relations: None,
            carriers: BTreeSet::new(),
            also: BTreeMap::new(),
        })
    }

    pub(crate) fn warning(mut self, warnings: Vec<Diagnostic>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Takes from the grammars which programs run others without starting them, and under which other names those may start
    /// that rules name.
    pub(crate) fn read_by(mut self, reading: &dyn Reading) -> Self {
        self.carriers = reading.carriers();
        let named = self.rules.iter().filter_map(|rule| match &rule.act().resource {
            ResourcePattern::Command(pattern) => match &pattern.program {
                ProgramPattern::Name(name) => Some(name.clone()),
                ProgramPattern::Path(_) | ProgramPattern::ReadOnly => None,
            },
            _ => None,
        });
        self.also = named.map(|name| (name.clone(), reading.also(&name))).collect();
        self
    }

    /// Other names under which a program of this name may start, which some rule names.
    pub(crate) fn also(&self, name: &str) -> impl Iterator<Item = &String> {
        self.also.get(name).into_iter().flatten()
    }

    /// Says who people are.
    pub(crate) fn knowing(mut self, relations: Option<Arc<Relations>>) -> Self {
        self.relations = relations;
        self
    }

    /// Who people are, where rules ask.
    pub(crate) fn relations(&self) -> Option<&Relations> {
        self.relations.as_deref()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn carriers(&self) -> &BTreeSet<String> {
        &self.carriers
    }

    /// What is probably not as it was meant.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// All rules, the outermost layer first, with those that follow from others.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The layers of which each must allow what is to be allowed.
    pub fn granting_layers(&self) -> &[Layer] {
        &self.granting
    }

    /// The budget of the rule that is written there, and its place among all budgets of these rules.
    pub fn budget(&self, rule: &RuleRef) -> Option<(usize, Budget)> {
        // Most policies have none.
        if self.budgets.is_empty() {
            return None;
        }
        self.budgets.get(&written(rule)).copied()
    }

    /// What calls may come to in all by the rule that is written there, and its name: that of its act, and which of that act it
    /// is in its layer.
    pub fn totals(&self, rule: &RuleRef) -> Option<(String, Arc<Totals>)> {
        if self.totals.is_empty() {
            return None;
        }
        self.totals.get(&written(rule)).cloned()
    }

    pub(crate) fn denies_addresses(&self) -> bool {
        self.denies_addresses
    }

    pub(crate) fn trees(&self) -> &Trees {
        &self.trees
    }

    pub(crate) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Names all rules and settings in force: another digest, other answers. Where a rule stands is left out.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The trees that every layer would grant whole, were it not for denies, with the verb: each is to be asked for.
    ///
    /// Trees are nested or apart, so that what all layers grant together is made of trees that one of them names.
    pub fn tree_candidates(&self) -> Vec<(Verb, AbsPath)> {
        // Files are no matter of a mandate.
        let files = self.granting.iter().filter(|layer| **layer != Layer::Mandate);
        let mut named: BTreeMap<Layer, HashSet<(Verb, AbsPath)>> =
            files.map(|layer| (*layer, HashSet::new())).collect();
        for rule in self.rules.iter().filter(|rule| rule.effect == Verdict::Allow) {
            if let (ResourcePattern::Path(pattern), Some(trees)) = (&rule.act().resource, named.get_mut(&rule.layer()))
                && let Some(tree) = pattern.as_tree()
            {
                trees.extend(
                    tree_verbs(&rule.act().verb)
                        .iter()
                        .map(|verb| (verb.clone(), tree.clone())),
                );
            }
        }
        let granted = |trees: &HashSet<(Verb, AbsPath)>, verb: &Verb, tree: &AbsPath| {
            let above = |folder: &str| AbsPath::new(folder).is_ok_and(|folder| trees.contains(&(verb.clone(), folder)));
            tree.ancestors().any(above)
        };
        let all: BTreeSet<&(Verb, AbsPath)> = named.values().flatten().collect();
        let by_all = |(verb, tree): &&(Verb, AbsPath)| named.values().all(|trees| granted(trees, verb, tree));
        all.into_iter().filter(by_all).cloned().collect()
    }

    /// The trees that some rule asks about, in any verb, or that two people must say yes to.
    pub fn asked_candidates(&self) -> Vec<AbsPath> {
        let asks = self.rules.iter().filter(|rule| rule.effect == Verdict::Ask);
        asks.filter_map(|rule| match &rule.act().resource {
            ResourcePattern::Path(pattern) => pattern.as_tree(),
            _ => None,
        })
        .chain(self.settings.oversight.asked_trees())
        .collect()
    }

    /// All rules as Cedar policies.
    pub fn to_cedar(&self) -> String {
        cedar::text(&self.rules)
    }

    /// The schema of those policies.
    pub fn schema(&self) -> String {
        cedar::schema_of(&self.rules)
    }

    /// The rules that the request satisfies, found through the index.
    pub(crate) fn satisfied(&self, request: &Request) -> Result<Vec<usize>, String> {
        self.satisfied_in(request, Circumstances::default())
    }

    /// The same, where it is known what time it is.
    pub(crate) fn satisfied_in(&self, request: &Request, circumstances: Circumstances) -> Result<Vec<usize>, String> {
        let candidates = self.index.candidates(&self.rules, request);
        let among = |candidates: &[usize]| {
            let parents: HashSet<_> = candidates
                .iter()
                .filter_map(|number| self.engine.target(*number).cloned())
                .collect();
            self.engine
                .satisfied(request, candidates.iter().copied(), parents)
                .map_err(|fault| fault.to_string())
        };
        match &request.resource {
            // A path may be what a rule names, and a name that is the whole resource; all else is only in what rules name.
            Resource::File(_) | Resource::Tree(_) | Resource::Secret(_) | Resource::Command(_) => among(&candidates),
            Resource::Tool(tool) => self.satisfied_by_call(request, &candidates, circumstances, |simple| {
                let ask = || among(simple);
                self.remembered.satisfied(&request.verb, Some(tool), simple, ask)
            }),
            Resource::Url(_) | Resource::Repository { .. } | Resource::Endpoint { .. } | Resource::Name(_) => {
                let ask = || among(&candidates);
                self.remembered.satisfied(&request.verb, None, &candidates, ask)
            }
        }
    }

    /// The same answer without the index: every rule is handed to Cedar.
    #[cfg(test)]
    pub(crate) fn satisfied_by_all(&self, request: &Request) -> Result<Vec<usize>, String> {
        use bailiwick_model::VerbPattern;
        let mut parents = HashSet::new();
        if let Resource::File(path) | Resource::Tree(path) = &request.resource {
            for above in path.ancestors() {
                parents.insert(self.engine.path(above).map_err(|fault| fault.to_string())?);
            }
        }
        for (number, rule) in self.rules.iter().enumerate() {
            let mut act = rule.act().clone();
            if act.verb == VerbPattern::Any || !matches!(act.verb, VerbPattern::One(Verb::Resolve | Verb::Tunnel)) {
                // Whether the verb fits is Cedar's to find: only the resource makes a parent.
                act.verb = VerbPattern::Any;
            }
            if crate::rule::covers(rule.effect, &act, &request.verb, &request.resource) {
                parents.extend(self.engine.target(number).cloned());
            }
        }
        let all: Vec<usize> = (0..self.rules.len()).collect();
        self.satisfied_by_call(request, &all, Circumstances::default(), |all| {
            self.engine
                .satisfied(request, all.iter().copied(), parents)
                .map_err(|fault| fault.to_string())
        })
    }
}
