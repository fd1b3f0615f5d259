//! What a person is told before, at and after a run: short, plain, and only what holds here.

use std::fmt::Write as _;

use bailiwick_gate::FenceReport;
use bailiwick_model::AbsPath;

use crate::protocol::Planned;
use crate::visible::visible;

/// Most names in one line of the summary; the rest is counted.
const SHOWN: usize = 5;

fn line(out: &mut String, head: &str, text: &str) {
    let _ = writeln!(out, "  {head:<9} {text}");
}

/// Names the first few of a list, and counts the rest.
fn some(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(SHOWN)
        .map(|name| visible(name))
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn trees(paths: &[AbsPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

/// What will hold.
pub fn planned(planned: &Planned) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "bailiwick: task {} in {} (rules: {})",
        planned.task,
        visible(planned.root.as_str()),
        some(&planned.sources)
    );
    if !planned.write.is_empty() {
        line(
            &mut out,
            "may",
            &format!("read and write {}", some(&trees(&planned.write))),
        );
    }
    if !planned.read.is_empty() {
        let own: Vec<AbsPath> = planned
            .read
            .iter()
            .filter(|path| !planned.write.contains(path))
            .cloned()
            .collect();
        let head = if planned.write.is_empty() { "may" } else { "" };
        line(&mut out, head, &format!("read {}", some(&trees(&own))));
    }
    match planned.network.as_slice() {
        [] => line(&mut out, "", "reach no host: no rule names one"),
        hosts => line(&mut out, "", &format!("reach {}", some(hosts))),
    }
    if !planned.hidden.is_empty() {
        line(&mut out, "may not", &format!("read {}", some(&planned.hidden)));
    }
    if !planned.guarded.is_empty() {
        let head = if planned.hidden.is_empty() { "may not" } else { "" };
        line(&mut out, head, &format!("change {}", some(&planned.guarded)));
    }
    line(
        &mut out,
        "",
        "touch anything else: other files, hosts, programs and variables do not exist in there",
    );
    for warning in &planned.warnings {
        line(&mut out, "note", &visible(warning));
    }
    out
}

/// What is in force.
pub fn started(report: &FenceReport) -> String {
    let mut out = String::new();
    line(
        &mut out,
        "enforced",
        &format!(
            "by the kernel: {}; {} places protected",
            report.parts.join(", "),
            report.protected
        ),
    );
    line(
        &mut out,
        "partly",
        "what does not exist yet under a protected name can be made, and hosts are told apart by name alone",
    );
    for warning in &report.warnings {
        line(&mut out, "note", &visible(warning));
    }
    out
}

/// How it ended.
pub fn ended(status: i32, checkpoint: &str) -> String {
    let mut lines = checkpoint.lines();
    let (_, size, root) = (lines.next(), lines.next().unwrap_or("?"), lines.next().unwrap_or("?"));
    let status = if status == 0 {
        String::new()
    } else {
        format!("status {status}, ")
    };
    format!("bailiwick: ended, {status}log checkpoint {size} {root}\n")
}
