//! Compiles rules to Cedar policies and asks Cedar which of them a request satisfies.
//!
//! Promises: P4 (any error that Cedar reports is a fault, which is a deny: Cedar itself only skips the policy), P14.
//! One rule is one policy. An ask is a permit marked `@effect("ask")`; allows, asks and layers are combined by
//! `combine` from what is satisfied. A tree is a parent of all paths below it, a pattern of all that it matches, so
//! that a policy's resource is one entity and reads as the rule does.
//! Not here: which policies are handed to Cedar (`index`), what their answers mean together (`combine`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::LazyLock;

use bailiwick_model::{Act, PathPattern, Request, Resource, ResourcePattern, ToolName, Verb, VerbPattern, Verdict};
use cedar_policy::{
    Authorizer, Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, EvalResult, Expression, Policy,
    PolicyId, PolicySet, RestrictedExpression, Schema, ValidationMode, Validator,
};

use crate::rule::Rule;
use crate::tool::check;
use crate::tool::emit::Uses;
use crate::tool::judging::Seen;
use crate::tool::shape::{Fields, Shape};

/// The schema that every policy is validated against, strictly.
pub(crate) const SCHEMA: &str = concat!(
    include_str!("../schema.cedarschema"),
    "\n",
    include_str!("../calls.cedarschema")
);

/// The part of it that conditions on calls speak of.
pub(crate) const OF_CALLS: &str = include_str!("../calls.cedarschema");

/// Holds policies against the schema; the schema is read once.
static VALIDATOR: LazyLock<Result<Validator, Fault>> = LazyLock::new(|| {
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(fault)?;
    Ok(Validator::new(schema))
});

/// Says why Cedar gave no answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub String);

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault(error.to_string().replace('\n', " "))
}

/// Every rule as a Cedar policy, parsed and validated.
#[derive(Debug)]
pub(crate) struct Engine {
    policies: Vec<Policy>,
    /// Rules with a condition, for each tool that they are about.
    conditions: HashMap<(usize, ToolName), Policy>,
    targets: Vec<EntityUid>,
    numbers: HashMap<PolicyId, usize>,
    names: Names,
    authorizer: Authorizer,
}

/// Types and actions, read once.
#[derive(Debug)]
struct Names {
    types: HashMap<&'static str, EntityTypeName>,
    actions: HashMap<&'static str, EntityUid>,
    task: EntityUid,
}

const TYPES: [&str; 16] = [
    "Repository",
    "RepositoryPattern",
    "Path",
    "PathPattern",
    "Command",
    "CommandPattern",
    "Url",
    "UrlPattern",
    "Endpoint",
    "EndpointPattern",
    "Name",
    "NamePattern",
    "Secret",
    "SecretPattern",
    "Tool",
    "ToolPattern",
];
const ACTIONS: [&str; 20] = [
    "fetch", "push", "read", "write", "create", "delete", "keep", "run", "broker", "http", "tunnel", "resolve", "use",
    "call", "open", "prompt", "sample", "elicit", "roots", "accept",
];

impl Names {
    fn read() -> Result<Self, Fault> {
        let mut types = HashMap::new();
        for name in TYPES {
            types.insert(name, EntityTypeName::from_str(name).map_err(fault)?);
        }
        let mut actions = HashMap::new();
        for name in ACTIONS {
            actions.insert(name, uid(&EntityTypeName::from_str("Action").map_err(fault)?, name));
        }
        let task = uid(&EntityTypeName::from_str("Task").map_err(fault)?, "this");
        Ok(Self { types, actions, task })
    }

    fn of(&self, kind: &str, id: &str) -> Result<EntityUid, Fault> {
        let kind = self.types.get(kind).ok_or_else(|| Fault(format!("no type `{kind}`")))?;
        Ok(uid(kind, id))
    }
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

impl Engine {
    /// Compiles rules, in order. The error carries the number of the rule at fault.
    pub fn compile(rules: &[Rule]) -> Result<Self, (usize, Fault)> {
        let start = |fault| (0, fault);
        let names = Names::read().map_err(start)?;
        let validator = VALIDATOR.as_ref().map_err(|fault| (0, fault.clone()))?;
        let mut set = PolicySet::new();
        let mut engine = Self {
            policies: Vec::with_capacity(rules.len()),
            conditions: HashMap::new(),
            targets: Vec::with_capacity(rules.len()),
            numbers: HashMap::with_capacity(rules.len()),
            names,
            authorizer: Authorizer::new(),
        };
        for (number, (rule, id)) in rules.iter().zip(ids(rules)).enumerate() {
            let id = PolicyId::new(id);
            let policy =
                Policy::parse(Some(id.clone()), text_of(rule, None)).map_err(|error| (number, fault(error)))?;
            let (kind, target) = target_of(rule.effect, rule.act());
            engine
                .targets
                .push(engine.names.of(kind, &target).map_err(|fault| (number, fault))?);
            set.add(policy.clone()).map_err(|error| (number, fault(error)))?;
            for (tool, (compiled, _)) in rule.terms.iter().flat_map(|terms| &terms.compiled) {
                let text = text_of_call(rule, None, tool, &compiled.cedar);
                let condition = Policy::parse(Some(id.clone()), text).map_err(|error| (number, fault(error)))?;
                engine.conditions.insert((number, tool.clone()), condition);
            }
            engine.numbers.insert(id, number);
            engine.policies.push(policy);
        }
        let result = validator.validate(&set, ValidationMode::Strict);
        if let Some(error) = result.validation_errors().next() {
            let number = engine.numbers.get(error.policy_id()).copied().unwrap_or(0);
            return Err((number, fault(error)));
        }
        Ok(engine)
    }

    /// The entity that a rule's resource is in Cedar.
    pub fn target(&self, rule: usize) -> Option<&EntityUid> {
        self.targets.get(rule)
    }

    /// Which of the candidates a request satisfies: the denies alone where there are any, as Cedar says.
    ///
    /// `parents` are the targets that the resource lies in.
    pub fn satisfied(
        &self,
        request: &Request,
        candidates: impl Iterator<Item = usize>,
        mut parents: HashSet<EntityUid>,
    ) -> Result<Vec<usize>, Fault> {
        let mut set = PolicySet::new();
        for number in candidates {
            let policy = self.policies.get(number).ok_or_else(|| fault("no such rule"))?;
            set.add(policy.clone()).map_err(fault)?;
        }
        let resource = self.resource(&request.resource)?;
        let action = match &request.verb {
            Verb::Http(_) => "http",
            other => other.as_str(),
        };
        let action = self.names.actions.get(action).ok_or_else(|| fault("no such action"))?;
        let context = match &request.verb {
            Verb::Http(method) => {
                let method = RestrictedExpression::new_string(method.as_str().into());
                Context::from_pairs([("method".to_owned(), method)]).map_err(fault)?
            }
            _ => Context::empty(),
        };
        // A tree's root lies in itself already; as its own parent it would be a cycle.
        parents.remove(&resource);
        let entity = Entity::new_no_attrs(resource.clone(), parents);
        let entities = Entities::from_entities([entity], None).map_err(fault)?;
        let query = cedar_policy::Request::new(self.names.task.clone(), action.clone(), resource, context, None)
            .map_err(fault)?;
        let response = self.authorizer.is_authorized(&query, &set, &entities);
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(fault(error));
        }
        let number = |id| {
            self.numbers
                .get(id)
                .copied()
                .ok_or_else(|| fault("an answer by no rule"))
        };
        let mut found = response
            .diagnostics()
            .reason()
            .map(number)
            .collect::<Result<Vec<_>, _>>()?;
        found.sort_unstable();
        Ok(found)
    }

    /// True when the condition of a rule holds for a call of a tool.
    pub fn holds(&self, rule: usize, tool: &ToolName, seen: Seen) -> Result<bool, String> {
        let condition = self.conditions.get(&(rule, tool.clone())).ok_or("no such condition")?;
        let set = PolicySet::from_policies([condition.clone()]).map_err(|error| error.to_string())?;
        let (query, entities) = self.call(rule, tool, seen).map_err(|fault| fault.to_string())?;
        let response = self.authorizer.is_authorized(&query, &set, &entities);
        match response.diagnostics().errors().next() {
            Some(error) => Err(fault(error).to_string()),
            None => Ok(response.diagnostics().reason().next().is_some()),
        }
    }

    /// True when one part of a condition holds: to say which does not, never to let anything pass.
    pub fn part_holds(&self, rule: usize, tool: &ToolName, part: &str, seen: Seen) -> bool {
        let (Ok((query, entities)), Ok(part)) = (self.call(rule, tool, seen), Expression::from_str(part)) else {
            return false;
        };
        cedar_policy::eval_expression(&query, &entities, &part) == Ok(EvalResult::Bool(true))
    }

    fn call(&self, rule: usize, tool: &ToolName, seen: Seen) -> Result<(cedar_policy::Request, Entities), Fault> {
        let resource = self.names.of("Tool", &tool.to_string())?;
        let action = uid(
            &EntityTypeName::from_str("Action").map_err(fault)?,
            &format!("call {tool}"),
        );
        let context = Context::from_pairs(seen.pairs).map_err(fault)?;
        let parents = self.targets.get(rule).cloned().into_iter().collect();
        let own = Entity::new_no_attrs(resource.clone(), parents);
        let entities = Entities::from_entities(seen.entities.into_iter().chain([own]), None).map_err(fault)?;
        let query =
            cedar_policy::Request::new(self.names.task.clone(), action, resource, context, None).map_err(fault)?;
        Ok((query, entities))
    }

    fn resource(&self, resource: &Resource) -> Result<EntityUid, Fault> {
        match resource {
            Resource::File(path) | Resource::Tree(path) => self.names.of("Path", path.as_str()),
            Resource::Url(url) => self.names.of("Url", &url.to_string()),
            Resource::Repository { .. } => self.names.of("Repository", &resource.to_string()),
            Resource::Endpoint { host, port } => self.names.of("Endpoint", &format!("{host}:{port}")),
            Resource::Name(host) => self.names.of("Name", &host.to_string()),
            Resource::Command(command) => self.names.of("Command", &command.to_string()),
            Resource::Secret(name) => self.names.of("Secret", name.as_str()),
            Resource::Tool(name) => self.names.of("Tool", &name.to_string()),
        }
    }

    /// The folder paths as entities, for an answer without the index.
    #[cfg(test)]
    pub fn path(&self, path: &str) -> Result<EntityUid, Fault> {
        self.names.of("Path", path)
    }
}

/// A name for each rule that stays the same while its line does.
fn ids(rules: &[Rule]) -> impl Iterator<Item = String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    rules.iter().map(move |rule| {
        let origin = &rule.origin;
        let base = format!("{}/{}:{}:{}", origin.layer, origin.file, origin.line, origin.column);
        let count = seen.entry(base.clone()).or_insert(0);
        *count = count.saturating_add(1);
        if *count == 1 { base } else { format!("{base}/{count}") }
    })
}

/// All rules as one Cedar text.
pub(crate) fn text(rules: &[Rule]) -> String {
    let policies: Vec<String> = rules
        .iter()
        .zip(ids(rules))
        .flat_map(
            |(rule, id)| match rule.terms.as_deref().filter(|terms| terms.when.is_some()) {
                None => vec![text_of(rule, Some(&id))],
                Some(terms) => {
                    let compiled = terms.compiled.iter();
                    compiled
                        .map(|(tool, (compiled, _))| {
                            text_of_call(rule, Some(&format!("{id}/{tool}")), tool, &compiled.cedar)
                        })
                        .collect()
                }
            },
        )
        .collect();
    policies.join("\n")
}

/// The schema of all rules: with the arguments of the tools on which there are conditions.
pub(crate) fn schema_of(rules: &[Rule]) -> String {
    let mut tools: BTreeMap<&ToolName, (Uses, &Fields)> = BTreeMap::new();
    let compiled = rules
        .iter()
        .filter_map(|rule| rule.terms.as_deref())
        .flat_map(|terms| &terms.compiled);
    for (tool, (compiled, fields)) in compiled {
        let (uses, known) = tools.entry(tool).or_insert_with(|| (Uses::default(), fields));
        uses.join(&compiled.uses);
        // Of two rules the one may say that an argument is an id: that says more.
        if fields.values().any(|field| matches!(field.shape, Shape::Known(_))) {
            *known = fields;
        }
    }
    let declared = tools
        .iter()
        .map(|(tool, (uses, fields))| check::declared(tool, fields, uses));
    std::iter::once(format!("{SCHEMA}\n")).chain(declared).collect()
}

/// The type and name of what a rule is about.
fn target_of(effect: Verdict, act: &Act) -> (&'static str, String) {
    match &act.resource {
        ResourcePattern::Path(pattern) => (
            if is_tree(pattern) { "Path" } else { "PathPattern" },
            pattern.to_string(),
        ),
        // The same words say more in a deny than in an allow.
        ResourcePattern::Url(pattern) if effect == Verdict::Allow => ("UrlPattern", pattern.to_string()),
        ResourcePattern::Url(pattern) => ("UrlPattern", format!("any reading of {pattern}")),
        ResourcePattern::Repository(pattern) if effect == Verdict::Allow => ("RepositoryPattern", pattern.to_string()),
        ResourcePattern::Repository(pattern) => ("RepositoryPattern", format!("any case of {pattern}")),
        ResourcePattern::Endpoint { host, .. } if act.verb == VerbPattern::One(Verb::Resolve) => {
            ("NamePattern", host.to_string())
        }
        ResourcePattern::Endpoint { .. } => ("EndpointPattern", act.resource.to_string()),
        ResourcePattern::AnyCommand => ("CommandPattern", "**".into()),
        ResourcePattern::Secret(pattern) => ("SecretPattern", pattern.to_string()),
        ResourcePattern::Tool(pattern) => ("ToolPattern", pattern.to_string()),
        // The same words say more in a deny than in an allow.
        ResourcePattern::Command(pattern) if effect == Verdict::Allow => ("CommandPattern", pattern.to_string()),
        ResourcePattern::Command(pattern) => ("CommandPattern", format!("at least {pattern}")),
    }
}

/// True for a pattern without wildcards.
pub(crate) fn is_tree(pattern: &PathPattern) -> bool {
    !pattern.as_str().contains('*')
}

pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", EntityId::new(text).escaped())
}

/// A rule with a condition, for one tool.
fn text_of_call(rule: &Rule, id: Option<&str>, tool: &ToolName, condition: &str) -> String {
    let (kind, target) = target_of(rule.effect, rule.act());
    format!(
        "{}{} (\n  principal,\n  action == {},\n  resource in {kind}::{}\n)\nwhen {{ {condition} }};\n",
        notes_of(rule, id),
        head_of(rule.effect),
        check::action(tool),
        quoted(&target)
    )
}

fn head_of(effect: Verdict) -> &'static str {
    match effect {
        Verdict::Deny => "forbid",
        Verdict::Allow | Verdict::Ask => "permit",
    }
}

/// The annotations of a rule.
fn notes_of(rule: &Rule, id: Option<&str>) -> String {
    let act = rule.act();
    let mut out = String::new();
    let mut note = |key: &str, value: &str| out.push_str(&format!("@{key}({})\n", quoted(value)));
    if let Some(id) = id {
        note("id", id);
    }
    note("layer", rule.layer().as_str());
    let origin = &rule.origin;
    note("origin", &format!("{}:{}:{}", origin.file, origin.line, origin.column));
    note("effect", rule.effect.as_str());
    note("act", &act.to_string());
    if let Some(from) = &rule.follows_from {
        note("follows_from", from);
    }
    if !rule.limits().is_none() {
        note("limits", &rule.limits().to_string());
    }
    if let Some(terms) = &rule.terms {
        note("terms", &terms.to_string());
    }
    if let Some(reason) = &rule.reason {
        note("reason", reason);
    }
    out
}

fn text_of(rule: &Rule, id: Option<&str>) -> String {
    let act = rule.act();
    let mut out = notes_of(rule, id);
    let head = head_of(rule.effect);
    let (action, method) = match (&act.verb, &act.resource) {
        (VerbPattern::Any, ResourcePattern::Path(_)) => (
            "in [Action::\"read\", Action::\"write\", Action::\"create\", Action::\"delete\", Action::\"keep\"]"
                .to_owned(),
            None,
        ),
        (VerbPattern::One(Verb::Write), _) => (
            "in [Action::\"write\", Action::\"create\", Action::\"delete\"]".into(),
            None,
        ),
        (VerbPattern::One(Verb::Http(method)), _) => ("== Action::\"http\"".into(), Some(method)),
        (VerbPattern::Any, ResourcePattern::Url(_)) => ("== Action::\"http\"".into(), None),
        (VerbPattern::Any, ResourcePattern::Repository(_)) => ("in [Action::\"fetch\", Action::\"push\"]".into(), None),
        (VerbPattern::Any, ResourcePattern::Endpoint { .. }) => ("== Action::\"tunnel\"".into(), None),
        (VerbPattern::Any, ResourcePattern::AnyCommand | ResourcePattern::Command(_)) => {
            ("== Action::\"run\"".into(), None)
        }
        (VerbPattern::Any, ResourcePattern::Secret(_)) => ("== Action::\"use\"".into(), None),
        // Each tool on which there is a condition is an action of its own in this one.
        (VerbPattern::Any | VerbPattern::One(Verb::Call), ResourcePattern::Tool(_)) => {
            ("in Action::\"call\"".into(), None)
        }
        (VerbPattern::One(verb), _) => (format!("== Action::\"{verb}\""), None),
    };
    let (kind, target) = target_of(rule.effect, act);
    out.push_str(&format!(
        "{head} (\n  principal,\n  action {action},\n  resource in {kind}::{}\n)",
        quoted(&target)
    ));
    if let Some(method) = method {
        out.push_str(&format!("\nwhen {{ context.method == {} }}", quoted(method.as_str())));
    }
    out.push_str(";\n");
    out
}
