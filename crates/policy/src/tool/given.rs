//! Arguments that take what another tool gave: of which kind they are, and whether a call's were chosen so.
//!
//! Promises: P4 (a part that the giving tool does not answer, or that no rule gives out as a handle: an error at its place;
//! an argument that the tool gate did not open from a handle for that part is none that the rule admits).
//! Trust: output schemas are servers', pinned by a person; that a value came by a handle is the tool gate's word.
//! Not here: handles (`tools`), what is asked of the list (`among`).

use std::collections::BTreeMap;

use bailiwick_model::{AnswerPart, Argument, MOST_CHOICES, Request, ToolName, ToolPattern, Verdict};

use super::among::CameFrom;
use super::emit::{Path, Uses};
use super::lock::Lock;
use super::shape::{Field, Fields, Shape};
use super::view::{Misfit, value_at};
use crate::diagnostic::suggest;
use crate::policy::Policy;
use crate::rule::Rule;

/// What is wrong with a part that an argument comes from, and what would be right.
pub(super) type Objection = (String, Option<String>);

/// The arguments of a tool, with those that come from another tool's answers as what stands there.
pub(super) fn giving(
    fields: &Fields,
    from: &CameFrom,
    lock: &Lock,
    rules: &[Rule],
) -> Result<Fields, (Path, Objection)> {
    let mut fields = fields.clone();
    for (path, part) in from {
        let wrong = |objection| (path.clone(), objection);
        if from.keys().any(|other| other != path && path.starts_with(other)) {
            return Err(wrong(("lies in another argument of `from`".into(), None)));
        }
        let Some((_, pinned)) = lock.tool(part.tool()) else {
            let hint = format!("run `bailiwick tools pin {}`", part.tool().server());
            return Err(wrong((
                format!("comes from `{}`, which is not pinned", part.tool()),
                Some(hint),
            )));
        };
        let answer = pinned.answer.as_ref().map_err(|why| {
            let message = format!("comes from `{}`, of whose answers nothing is known: {why}", part.tool());
            wrong((message, None))
        })?;
        let shape = part_of(answer, part).map_err(wrong)?.clone();
        if !is_given_out(part, rules) {
            let message = format!("comes from `{part}`, which no rule gives as a handle");
            let hint = match part.place() {
                "" => "add `present = \"handle\"` to the rule about that tool".to_owned(),
                place => format!("add `present = {{ handles = [\"{place}\"] }}` to the rule about that tool"),
            };
            return Err(wrong((message, Some(hint))));
        }
        match field_at(&mut fields, path) {
            Some(field) => field.shape = shape,
            None => return Err(wrong(("is no argument".into(), None))),
        }
    }
    Ok(fields)
}

/// What stands at a place of an answer.
fn part_of<'a>(answer: &'a Shape, part: &AnswerPart) -> Result<&'a Shape, Objection> {
    let mut here = answer;
    for step in part.place().split('/').skip(1) {
        let name = step.replace("~1", "/").replace("~0", "~");
        here = match here {
            Shape::List(of) if name == "*" => &**of,
            Shape::List(_) => {
                let hint = format!("`*` stands for every entry: `{}`", part.place().replace(step, "*"));
                return Err((
                    format!("comes from `{part}`: `{name}` is no name in a list"),
                    Some(hint),
                ));
            }
            Shape::Fields(fields) => match fields.get(&name) {
                Some(field) => &field.shape,
                None => {
                    let known: Vec<&str> = fields.keys().map(String::as_str).collect();
                    let message = format!("comes from `{part}`: `{}` gives no `{name}`", part.tool());
                    return Err((message, Some(suggest(&name, &known))));
                }
            },
            Shape::Open(why) => return Err((format!("comes from `{part}`, which cannot be judged: {why}"), None)),
            other => return Err((format!("comes from `{part}`, where there is {}", other.told()), None)),
        };
    }
    Ok(here)
}

/// True when some rule has the tool's answers handed out so.
fn is_given_out(part: &AnswerPart, rules: &[Rule]) -> bool {
    let gives = |rule: &&Rule| {
        let presents = |place: &String| place == part.place();
        rule.effect != Verdict::Deny
            && rule
                .terms
                .as_ref()
                .is_some_and(|terms| terms.present.iter().any(presents))
    };
    let resource = bailiwick_model::Resource::Tool(part.tool().clone());
    let mut about = rules.iter().filter(gives);
    about.any(|rule| rule.covers(&bailiwick_model::Verb::Call, &resource))
}

pub(super) fn field_at<'a>(fields: &'a mut Fields, path: &[String]) -> Option<&'a mut Field> {
    let (first, rest) = path.split_first()?;
    let field = fields.get_mut(first)?;
    if rest.is_empty() {
        return Some(field);
    }
    match &mut field.shape {
        Shape::Fields(inner) => field_at(inner, rest),
        _ => None,
    }
}

/// An argument that was not chosen from where the rule says that it comes from.
pub(crate) fn not_given(from: &CameFrom, request: &Request, args: &BTreeMap<String, Argument>) -> Option<Misfit> {
    from.iter().find_map(|(path, part)| {
        let is_there = value_at(args, path).is_some_and(|value| *value != Argument::Null);
        let says = match (is_there, request.chosen_from(&path.join("."), part)) {
            (false, _) => "is missing".to_owned(),
            (true, None) => format!("was not given by a handle from `{part}`"),
            (true, Some([])) => format!("was chosen from nothing that `{part}` gave"),
            (true, Some(among)) if among.len() > MOST_CHOICES => {
                format!(
                    "was chosen from {} entries: more than {MOST_CHOICES} are not compared",
                    among.len()
                )
            }
            (true, Some(_)) => return None,
        };
        Some(Misfit::of(path, &says))
    })
}

/// An argument for which the tool gate opens a handle before it asks, and what it says of where that came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choosing {
    /// The tools that have the argument.
    pub tools: ToolPattern,
    /// Its name, with dots between names within each other.
    pub argument: String,
    /// What it comes from.
    pub from: AnswerPart,
    /// The places in the entries there that rules look at, each as names within each other.
    pub looks_at: Vec<Vec<String>>,
}

impl Policy {
    /// The arguments of a server's tools that take what other tools gave.
    pub fn tools_choosing(&self, server: &str) -> Vec<Choosing> {
        let mut all: BTreeMap<(ToolPattern, String, AnswerPart), Vec<Path>> = BTreeMap::new();
        for rule in self.rules() {
            let Some(terms) = rule.terms.as_deref() else { continue };
            let bailiwick_model::ResourcePattern::Tool(pattern) = &rule.act().resource else {
                continue;
            };
            if pattern.server().is_some_and(|own| own != server) {
                continue;
            }
            for (path, part) in &terms.from {
                let looked = all.entry((pattern.clone(), path.join("."), part.clone())).or_default();
                for (compiled, fields) in terms.compiled.values() {
                    looked.extend(looks_at(&compiled.uses, path, fields));
                }
            }
        }
        let one = |((tools, argument, from), mut looks_at): ((_, _, _), Vec<Path>)| {
            looks_at.sort_unstable();
            looks_at.dedup();
            Choosing {
                tools,
                argument,
                from,
                looks_at,
            }
        };
        all.into_iter().map(one).collect()
    }

    /// The name of an argument as the agent may be told of it: of what it was given as a handle it knows no parts.
    pub(super) fn told_of(&self, tool: &ToolName, name: String) -> String {
        let resource = bailiwick_model::Resource::Tool(tool.clone());
        let about = self
            .rules()
            .iter()
            .filter(|rule| rule.covers(&bailiwick_model::Verb::Call, &resource));
        let mut from = about
            .filter_map(|rule| rule.terms.as_deref())
            .flat_map(|terms| terms.from.keys());
        let whole = from.find_map(|path| {
            let whole = path.join(".");
            let rest = name.strip_prefix(&whole)?;
            rest.starts_with('.').then_some(whole)
        });
        whole.unwrap_or(name)
    }
}

fn looks_at(uses: &Uses, argument: &Path, fields: &Fields) -> Vec<Path> {
    let own = uses.among.iter().filter(|among| among.argument == *argument);
    own.flat_map(|among| among.looks_at(fields)).collect()
}
