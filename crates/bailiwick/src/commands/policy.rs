//! `bailiwick policy`: reads the rules, tells mistakes and overlaps, shows what is in force.

use std::process::ExitCode;

use crate::cli::{JsonArg, ShowArgs};
use crate::context::Context;
use crate::failure::{Done, Failure};
use crate::places::Places;
use bailiwick_model::{Layer, RuleRef, visible, visible_lines};
use bailiwick_policy::{Overlap, OverlapKind};

fn context(program: Option<&str>) -> Result<Context, Failure> {
    let places = Places::find()?;
    let store = super::trust::store_if_there(&places)?;
    Context::find(
        &super::run::here()?,
        &places,
        program,
        store.as_ref().map(|store| store as _),
    )
}

/// Checks a project's file as if it were trusted: a mistake must be found before trust is given.
pub fn check(args: &JsonArg) -> Done {
    let mut context = context(None)?;
    let untrusted = context.sources.project.is_some() && !context.sources.project_trusted;
    context.sources.project_trusted = true;
    let policy = context.load()?;
    let overlaps = policy.overlaps();
    if args.json {
        let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
        let pairs: Vec<String> = overlaps.iter().map(|overlap| overlap.text.clone()).collect();
        tellln!(
            "{}",
            serde_json::json!({ "rules": policy.rules().len(), "warnings": warnings, "overlaps": pairs, "trusted": !untrusted })
        );
        return Ok(ExitCode::SUCCESS);
    }
    for warning in policy.warnings() {
        tellln!("warning: {}", visible(&warning.to_string()));
        if let Some(hint) = &warning.hint {
            tellln!("  hint: {}", visible(hint));
        }
    }
    for line in overlaps_told(&overlaps) {
        tellln!("overlap: {}", visible(&line));
    }
    tellln!(
        "{} rules in force for {}, no mistakes",
        policy.rules().len(),
        context.root
    );
    if untrusted {
        tellln!("note: bailiwick.toml is not trusted yet, so only its denies hold: `bailiwick trust`");
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each overlap. What is protected everywhere is an exception in every tree, and told in one line for each.
fn overlaps_told(overlaps: &[Overlap]) -> Vec<String> {
    let everywhere = |one: &Overlap| one.kind == OverlapKind::Exception && one.decides.layer == Layer::Builtin;
    let mut told: Vec<&RuleRef> = Vec::new();
    let mut lines = Vec::new();
    for overlap in overlaps {
        let like = |other: &&Overlap| everywhere(other) && other.over == overlap.over;
        let count = overlaps.iter().filter(like).count();
        if !everywhere(overlap) || count < 2 {
            lines.push(overlap.text.clone());
        } else if !told.contains(&&overlap.over) {
            told.push(&overlap.over);
            let (act, over) = (&overlap.over.act, &overlap.over);
            lines.push(format!(
                "{count} places that are protected everywhere are exceptions in `{act}` ({over}): `policy check --json` lists them"
            ));
        }
    }
    lines
}

/// Shows the rules.
pub fn show(args: &ShowArgs) -> Done {
    let policy = context(args.program.as_deref())?.load()?;
    if args.json {
        let rules: Vec<_> = policy
            .rules()
            .iter()
            .map(|rule| {
                let origin = &rule.origin;
                serde_json::json!({
                    "layer": origin.layer.to_string(), "effect": rule.effect, "act": rule.act().to_string(),
                    "file": origin.file, "line": origin.line, "reason": rule.reason, "follows_from": rule.follows_from,
                })
            })
            .collect();
        tellln!("{}", serde_json::json!({ "rules": rules }));
    } else if args.cedar {
        tellln!("// schema\n{}\n// policies\n{}", policy.schema(), policy.to_cedar());
    } else if args.layers {
        crate::talk::tell(&visible_lines(&policy.layers()));
        tellln!("");
    } else {
        for rule in policy.rules() {
            tellln!(
                "{:<5} {}   ({})",
                rule.effect.as_str(),
                visible(&rule.origin.act),
                visible(&rule.origin.to_string())
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
