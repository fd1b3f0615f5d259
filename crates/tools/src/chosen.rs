//! What the mediator is told of an argument in which the agent gave a handle.
//!
//! Answers: which value is judged, and what was it chosen from?
//! Promises: P4 (a handle that was not given out for that part of an answer stays what it is, a text, which no such rule
//! admits), P5 (what is judged is what is sent: values behind handles never change), P6 (of what does not pass nothing is
//! said that is not known without seeing the value).
//! Trust: the agent chooses the handle; the values are a server's answer.
//! Not here: whether it may be so, and what is compared (`policy`); opening it for the tool (`call`).

use std::collections::BTreeMap;

use bailiwick_model::{Argument, Code, MOST_CHOICES, Request, ToolName, argument};
use serde_json::Value;

use crate::arguments::argument_of;
use crate::config::Choosing;
use crate::handles::Handles;
use crate::limits;

/// Why nothing is asked: the code, and what the agent may know of it.
pub(crate) type Unfit = (Code, String);

/// Puts the values behind handles into a request, where rules look at them, and what each was chosen from.
pub(crate) fn look_behind(
    request: &mut Request,
    tool: &ToolName,
    choosing: &[Choosing],
    handles: &[(Vec<String>, String)],
    kept: &Handles,
) -> Result<(), Unfit> {
    let mut bytes = 0usize;
    for (path, name) in handles {
        let at = path.join(".");
        let Some((value, given)) = kept.open(name) else {
            continue;
        };
        let is_it = |choosing: &&Choosing| {
            choosing.tools.covers(tool)
                && choosing.argument.split('.').eq(path.iter().map(String::as_str))
                && choosing.from.tool().to_string() == given.tool
                && given.place.as_deref() == Some(choosing.from.place())
        };
        let fitting: Vec<&Choosing> = choosing.iter().filter(is_it).collect();
        let Some(first) = fitting.first() else {
            continue;
        };
        if given.all.len() > MOST_CHOICES {
            let why = format!(
                "`{at}` was chosen from {} entries: at most {MOST_CHOICES} are compared",
                given.all.len()
            );
            return Err((Code::LimitReached, why));
        }
        bytes = bytes.saturating_add(value.to_string().len());
        if bytes > limits::ARGUMENTS {
            let why = format!(
                "what stands behind `{at}` is more than is asked about: at most {} bytes",
                limits::ARGUMENTS
            );
            return Err((Code::LimitReached, why));
        }
        // What is wrong with it may not be said: it would say something of the value.
        let unfit = |_| {
            (
                Code::HandleRefused,
                format!("`{at}`: what stands behind the handle cannot be judged"),
            )
        };
        let value = argument_of(&value, "").map_err(unfit)?;
        let looks_at = || fitting.iter().flat_map(|choosing| &choosing.looks_at);
        let mut among = Vec::with_capacity(given.all.len());
        for entry in &given.all {
            let mut seen = BTreeMap::new();
            for place in looks_at() {
                copy(entry, place, &mut seen).map_err(unfit)?;
            }
            among.push(Argument::Fields(seen));
        }
        let slot = match request.arguments.get_mut(argument::ARGS) {
            Some(Argument::Fields(args)) => slot(args, path),
            _ => None,
        };
        if let Some(slot) = slot {
            *slot = value;
            request.choosing(&at, &first.from, among);
        }
    }
    Ok(())
}

fn slot<'a>(args: &'a mut BTreeMap<String, Argument>, path: &[String]) -> Option<&'a mut Argument> {
    let (first, rest) = path.split_first()?;
    let value = args.get_mut(first)?;
    match value {
        value if rest.is_empty() => Some(value),
        Argument::Fields(inner) => slot(inner, rest),
        _ => None,
    }
}

/// Copies what stands at a place, where something does.
fn copy(entry: &Value, place: &[String], seen: &mut BTreeMap<String, Argument>) -> Result<(), String> {
    let Some((first, rest)) = place.split_first() else {
        return Ok(());
    };
    let Some(value) = entry.get(first.as_str()) else {
        return Ok(());
    };
    if rest.is_empty() {
        seen.insert(first.clone(), argument_of(value, "")?);
        return Ok(());
    }
    let empty = || Argument::Fields(BTreeMap::new());
    match seen.entry(first.clone()).or_insert_with(empty) {
        Argument::Fields(inner) => copy(value, rest, inner),
        _ => Ok(()),
    }
}
