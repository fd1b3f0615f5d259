//! Holds rules about tools against what is pinned of the tools, and against their own examples.
//!
//! Promises: P4 (an argument that there is not, a condition that does not fit, an example that a rule does not keep: an
//! error at its place; a rule with a condition on a tool that is not pinned is an error too, but while pinning).
//! Not here: reading rule files (`written`), the lock (`lock`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bailiwick_model::{Act, Argument, Layer, ResourcePattern, TaskId, ToolName, Verdict};

use super::emit::{Around, Path};
use super::given::{field_at, giving};
use super::lexer::Wrong;
use super::lock::Lock;
use super::shape::{Fields, Kind, Shape, at};
use super::terms::{Terms, path_of};
use super::written::ToolTable;
use crate::diagnostic::{Diagnostic, Place, Severity, suggest};
use crate::judge::request_for;
use crate::load::Loader;
use crate::policy::Policy;
use crate::relations::Relations;
use crate::rule::Rule;
use crate::settings::Settings;

impl Loader<'_> {
    /// What is pinned: of the project's servers in the project's lock, of the person's in theirs.
    pub(crate) fn lock(&mut self) -> Lock {
        let sources = self.sources;
        let mut whole = Lock::default();
        let trusted = sources.lock.as_ref().filter(|_| sources.project_trusted);
        for (file, of) in [(trusted, Layer::Context), (sources.person_lock.as_ref(), Layer::Person)] {
            let Some(file) = file else { continue };
            match Lock::read(&file.text) {
                Ok(lock) => {
                    for server in self.settings.servers.iter().filter(|server| server.origin.layer == of) {
                        whole.take(&server.name, &lock);
                    }
                }
                Err(message) => {
                    let hint = "run `bailiwick tools pin`, which writes it anew";
                    self.say(Severity::Error, &file.name, Place::START, &message, hint);
                }
            }
        }
        whole
    }

    /// Holds all rules about tools against what is pinned.
    pub(crate) fn pinned(&mut self, lock: &Lock, relations: Option<&Arc<Relations>>) {
        for table in std::mem::take(&mut self.tables) {
            let Some(number) = self.rules.iter().position(|rule| rule.origin == table.origin) else {
                continue;
            };
            let Some(mut rule) = self.rules.get(number).cloned() else {
                continue;
            };
            let faults = self.diagnostics.len();
            self.against_the_lock(&mut rule, &table, lock, relations);
            if self.diagnostics.len() == faults {
                self.against_examples(&rule, &table, relations);
            }
            if let Some(place) = self.rules.get_mut(number) {
                *place = rule;
            }
        }
    }

    fn fault(&mut self, table: &ToolTable, place: Place, message: &str, hint: Option<String>) {
        self.diagnostics.push(Diagnostic::new(
            Severity::Error,
            &table.origin.file,
            place,
            message,
            hint,
        ));
    }

    fn against_the_lock(
        &mut self,
        rule: &mut Rule,
        table: &ToolTable,
        lock: &Lock,
        relations: Option<&Arc<Relations>>,
    ) {
        let ResourcePattern::Tool(pattern) = &rule.act().resource else {
            return;
        };
        let (pattern, head) = (pattern.clone(), place_of(table));
        let tools: Vec<(&ToolName, _)> = match pattern.as_name() {
            Some(tool) => lock.tool(&tool).into_iter().collect(),
            None => lock.tools().filter(|(tool, _)| pattern.covers(tool)).collect(),
        };
        let mut terms: Terms = rule.terms.as_deref().cloned().unwrap_or_default();
        if tools.is_empty() && terms.when.is_some() && !self.sources.pinning {
            let server = pattern.server().unwrap_or("SERVER");
            let message = format!("`{pattern}` is not pinned: nothing says what its arguments are");
            return self.fault(
                table,
                head,
                &message,
                Some(format!("run `bailiwick tools pin {server}`")),
            );
        }
        let named: Vec<&(&ToolName, _)> = tools.iter().collect();
        for (tool, pinned) in named {
            let fields: &Fields = match &pinned.arguments {
                Ok(fields) => fields,
                Err(why) if terms.when.is_some() => {
                    let message = format!("`{tool}` cannot be judged: {why}");
                    return self.fault(table, head, &message, Some("take `when` out".into()));
                }
                Err(_) => continue,
            };
            let place_of_name = |path: &Path| {
                let name = path.join(".");
                let mut names = table.names.iter();
                names.find(|(own, _)| *own == name).map_or(head, |(_, place)| *place)
            };
            let given = match giving(fields, &terms.from, lock, &self.rules) {
                // While pinning, what gives may not be pinned yet.
                Err(_) if self.sources.pinning => continue,
                given => given,
            };
            let fields = match &given {
                Ok(fields) => fields,
                Err((path, (says, hint))) => {
                    let message = format!("`{}` {says}", path.join("."));
                    return self.fault(table, place_of_name(path), &message, hint.clone());
                }
            };
            for (name, place) in &table.names {
                if let Some((message, hint)) = unknown(fields, &path_of(name), tool) {
                    return self.fault(table, *place, &message, hint);
                }
            }
            let fields = match referring(fields, &terms.refers) {
                Ok(fields) => fields,
                Err((path, says)) => {
                    let message = format!("`{}` {says}", path.join("."));
                    return self.fault(table, place_of_name(&path), &message, None);
                }
            };
            if let Some(totals) = &mut rule.capability.constraints.limits.totals {
                for sum in &mut totals.sums {
                    let place = place_of_name(&path_of(&sum.argument));
                    if let Some((shape, _)) = at(&fields, &path_of(&sum.argument))
                        && !matches!(shape, Shape::Whole | Shape::Number)
                    {
                        let message = format!("`{}` is {}, and is not added up", sum.argument, shape.told());
                        return self.fault(table, place, &message, None);
                    }
                    if sum.unit.is_some() && !table.unit_said && fields.contains_key("currency") {
                        sum.unit_argument = Some("currency".into());
                    }
                }
            }
            let Some(when) = terms.when.clone() else { continue };
            let around = Around {
                relations: relations.is_some(),
                from: &terms.from,
            };
            match when.compile(tool, &fields, around).and_then(|compiled| {
                let unknown = compiled.uses.known.iter().find(|(kind, id, _)| {
                    relations.is_some_and(|relations| relations.is_read() && relations.uid(*kind, id).is_none())
                });
                match unknown {
                    None => Ok(compiled),
                    Some((kind, id, span)) => {
                        Err(Wrong::at(span.clone(), format!("there is no {} `{id}`", kind.as_str())))
                    }
                }
            }) {
                Ok(compiled) => {
                    terms.compiled.insert((*tool).clone(), (compiled, fields));
                }
                Err(wrong) => {
                    let place = table.when.at(&when.text, wrong.span.start);
                    let of = match pattern.as_name() {
                        Some(_) => String::new(),
                        None => format!(" (of `{tool}`)"),
                    };
                    return self.fault(table, place, &format!("{}{of}", wrong.message), wrong.hint);
                }
            }
        }
        if rule.terms.is_some() {
            rule.terms = Some(Arc::new(terms));
        }
    }

    /// Holds a rule against its own examples, as if it were the only one.
    fn against_examples(&mut self, rule: &Rule, table: &ToolTable, relations: Option<&Arc<Relations>>) {
        if table.examples.is_empty() {
            return;
        }
        let unpinned = self.sources.pinning && rule.terms.as_ref().is_some_and(|terms| terms.when.is_some());
        if unpinned {
            return;
        }
        let alone = Policy::of(vec![rule.clone()], Settings::default(), vec![rule.layer()]);
        let Ok(alone) = alone else { return };
        let alone = alone.knowing(relations.cloned());
        for (text, inside, place) in &table.examples {
            let whole = if text.starts_with("call ") {
                text.clone()
            } else {
                format!("call {text}")
            };
            let mut request = match request_for(&whole, &self.sources.anchors, self.reading) {
                Ok(request) => request,
                Err(message) => {
                    let hint = "an example is a tool and its arguments, as in `bank/pay {\"amount\": 1}`";
                    self.fault(table, *place, &message, Some(hint.into()));
                    continue;
                }
            };
            request.task = TaskId([0; 8]);
            request.arguments.insert(
                bailiwick_model::argument::REASON.into(),
                Argument::Text("example".into()),
            );
            let decision = alone.evaluate(&request);
            let covered = match rule.effect {
                Verdict::Deny => decision.code == bailiwick_model::Code::DeniedByRule,
                Verdict::Allow | Verdict::Ask => decision.verdict != Verdict::Deny,
            };
            if covered != *inside {
                let act: &Act = rule.act();
                let (says, hint) = if *inside {
                    let why = decision
                        .reasons
                        .first()
                        .map(|reason| reason.text.clone())
                        .unwrap_or_default();
                    (
                        "does not cover",
                        format!("widen the rule, or correct the example: {why}"),
                    )
                } else {
                    let hint = "the rule is wider than its examples: narrow it, or correct the example";
                    ("covers", hint.to_owned())
                };
                self.fault(
                    table,
                    *place,
                    &format!("`{act}` {says} its example `{text}`"),
                    Some(hint),
                );
            }
        }
    }
}

fn place_of(table: &ToolTable) -> Place {
    Place {
        line: table.origin.line,
        column: table.origin.column,
    }
}

/// Complains about an argument that a tool does not have, as far as its schema says which it has.
fn unknown(fields: &Fields, path: &[String], tool: &ToolName) -> Option<(String, Option<String>)> {
    let (first, rest) = path.split_first()?;
    let Some(field) = fields.get(first) else {
        let known: Vec<&str> = fields.keys().map(String::as_str).collect();
        return Some((
            format!("`{tool}` has no argument `{first}`"),
            Some(suggest(first, &known)),
        ));
    };
    match (rest.is_empty(), &field.shape) {
        (true, _) | (false, Shape::Open(_)) => None,
        (false, Shape::Fields(inner)) => unknown(inner, rest, tool),
        (false, shape) => Some((format!("`{first}` is {}, and has no fields", shape.told()), None)),
    }
}

/// The arguments, with those that are ids as what they name.
fn referring(fields: &Fields, refers: &BTreeMap<Path, Kind>) -> Result<Fields, (Path, String)> {
    let mut fields = fields.clone();
    for (path, kind) in refers {
        let field = field_at(&mut fields, path).ok_or_else(|| (path.clone(), "is no argument".to_owned()))?;
        match field.shape {
            Shape::Text(_) | Shape::Whole => field.shape = Shape::Known(*kind),
            ref other => return Err((path.clone(), format!("is {}, and no id", other.told()))),
        }
    }
    Ok(fields)
}
