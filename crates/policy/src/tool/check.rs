//! Cedar's own word on a `when`: parsed, and validated strictly against the types of the tool's arguments.
//!
//! Promises: P4 (what Cedar does not take is an error at the place in the rule file that it comes from).
//! A tool is an action of its own, `call SERVER/NAME`, in the action `call`: so each has a context with its own arguments.
//! Not here: the rewriting (`emit`), evaluation (`crate::cedar`).

use std::ops::Range;

use bailiwick_model::ToolName;
use cedar_policy::{Policy, PolicyId, PolicySet, Schema, ValidationError, ValidationMode, Validator};
use miette::Diagnostic as _;

use super::among::Among;
use super::emit::{Emitted, Uses, pointer};
use super::lexer::Wrong;
use super::shape::{Fields, record};
use crate::cedar::{OF_CALLS, quoted};

/// The action that a call of a tool is.
pub(crate) fn action(tool: &ToolName) -> String {
    format!("Action::{}", quoted(&format!("call {tool}")))
}

/// The declaration of that action, with what conditions on it look at.
pub(crate) fn declared(tool: &ToolName, fields: &Fields, uses: &Uses) -> String {
    let counts: Vec<String> = uses
        .counted
        .iter()
        .map(|path| format!("{}: Long", quoted(&pointer(path))))
        .collect();
    let mut context = vec![format!("args: {}", record(fields))];
    if !counts.is_empty() {
        context.push(format!("counts: {{ {} }}", counts.join(", ")));
    }
    if !uses.among.is_empty() {
        let one = |among: &Among| format!("{}: {}", quoted(&among.key()), among.in_cedar(fields));
        let all: Vec<String> = uses.among.iter().map(one).collect();
        context.push(format!("among: {{ {} }}", all.join(", ")));
    }
    if uses.me {
        context.push("me: Person".into());
    }
    if uses.age {
        context.push("relations: { age: Long }".into());
    }
    format!(
        "action {} in [\"call\"] appliesTo {{ principal: [Task], resource: [Tool], context: {{ {} }} }};\n",
        quoted(&format!("call {tool}")),
        context.join(", ")
    )
}

/// Holds an expression against the types of a tool's arguments.
pub(super) fn check(emitted: &Emitted, tool: &ToolName, fields: &Fields) -> Result<(), Wrong> {
    let head = format!("permit (principal, action == {}, resource) when {{ ", action(tool));
    let text = format!("{head}{} }};", emitted.text);
    let place = |at: Option<usize>| -> Range<usize> {
        let inner = at.and_then(|at| at.checked_sub(head.len()));
        inner.and_then(|at| emitted.source_of(at)).unwrap_or(0..0)
    };
    let fault = |error: &dyn std::fmt::Display| Wrong::at(0..0, one_line(&error.to_string()));
    let policy = Policy::parse(Some(PolicyId::new("when")), &text).map_err(|errors| {
        let at = errors
            .labels()
            .and_then(|mut labels| labels.next())
            .map(|label| label.offset());
        Wrong::at(place(at), one_line(&errors.to_string()))
    })?;
    let (schema, _) = Schema::from_cedarschema_str(&format!("{OF_CALLS}\n{}", declared(tool, fields, &emitted.uses)))
        .map_err(|error| fault(&error))?;
    let set = PolicySet::from_policies([policy]).map_err(|error| fault(&error))?;
    let result = Validator::new(schema).validate(&set, ValidationMode::Strict);
    if let Some(error) = result.validation_errors().next() {
        let at = error
            .labels()
            .and_then(|mut labels| labels.next())
            .map(|label| label.offset());
        return Err(said(error, place(at)));
    }
    if result.validation_warnings().next().is_some() {
        let whole = place(Some(head.len()));
        return Err(Wrong::at(whole, "this can never hold").hint("correct it, or take the rule out"));
    }
    Ok(())
}

/// Cedar's complaint in the words of rule files.
fn said(error: &ValidationError, span: Range<usize>) -> Wrong {
    let told = one_line(&error.to_string());
    let told = told
        .split_once("`, ")
        .map_or(told.as_str(), |(_, rest)| rest)
        .to_owned();
    match error {
        ValidationError::UnsafeOptionalAttributeAccess(_) => {
            let name = told.split('`').nth(1).unwrap_or("x").to_owned();
            let name = name.strip_prefix("args.").unwrap_or(&name).to_owned();
            let hint = format!("calls may leave it out: ask first, as in `args has {name} && …`");
            Wrong::at(span, format!("`{name}` may be missing")).hint(hint)
        }
        _ => Wrong::at(span, told),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
