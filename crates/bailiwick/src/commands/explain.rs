//! `bailiwick explain ID`: why something was decided, as it stands in the log.

use std::process::ExitCode;

use bailiwick_model::{AbsPath, Event, Record};

use crate::advice;
use crate::cli::ExplainArgs;
use crate::failure::{Done, Failure};
use crate::places::Places;
use bailiwick_model::visible;

/// Runs the command.
pub fn run(args: &ExplainArgs) -> Done {
    let places = Places::find()?;
    let wanted = args
        .id
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_ascii_lowercase();
    if wanted.len() < 4 || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage(format!(
            "`{}` is not an id: 12 hex digits, or at least 4 of them",
            visible(&args.id)
        ))
        .hint("an id stands in every refusal, and in `bailiwick log show --denied`"));
    }
    super::log::catch_up(&places);
    let mut found: Vec<(u64, Record)> = Vec::new();
    let mut answers = Vec::new();
    let mut root = AbsPath::root();
    let mut roots = std::collections::BTreeMap::new();
    for entry in super::log::read(&places.log())? {
        let (index, record) = entry?;
        match (&record.event, record.task) {
            (Event::TaskStarted { context, .. }, Some(task)) => {
                roots.insert(task, context.0.clone());
            }
            (Event::Decided { id, .. } | Event::Refused { id, .. }, task) if id.to_string().starts_with(&wanted) => {
                if let Some(folder) = task.and_then(|task| roots.get(&task)) {
                    root = AbsPath::new(folder).unwrap_or(root);
                }
                found.push((index, record));
            }
            (Event::Answered { id, answer, .. }, _) if id.to_string().starts_with(&wanted) => {
                answers.push((*id, *answer))
            }
            _ => {}
        }
    }
    let (index, record) = match found.as_slice() {
        [one] => one,
        [] => {
            return Err(Failure::usage(format!("no decision in the log has the id `{wanted}`"))
                .hint("the log of a `--standalone` run lies in a folder of its own"));
        }
        several => {
            let ids: Vec<String> = several.iter().filter_map(|(_, record)| id_of(record)).collect();
            return Err(Failure::usage(format!(
                "`{wanted}` is the beginning of several ids: {}",
                ids.join(", ")
            )));
        }
    };
    if args.json {
        tellln!("{}", serde_json::json!({ "index": index, "record": record }));
        return Ok(ExitCode::SUCCESS);
    }
    match &record.event {
        Event::Decided {
            id, request, decision, ..
        } => {
            crate::talk::tell(&advice::told(request, decision, &root));
            for (_, answer) in answers.iter().filter(|(of, _)| of == id) {
                tellln!("  {}", advice::answered(*answer));
            }
        }
        Event::Refused { code, what, .. } => {
            crate::talk::tell(&advice::by_gate(*code, what));
        }
        _ => {}
    }
    tellln!("  recorded: log record {index}, {}", super::log::time(record.time));
    Ok(ExitCode::SUCCESS)
}

fn id_of(record: &Record) -> Option<String> {
    match &record.event {
        Event::Decided { id, .. } | Event::Refused { id, .. } => Some(id.to_string()),
        _ => None,
    }
}
