//! `bailiwick doctor`: what this machine can enforce, promise by promise, and how to get more out of it.

use std::process::ExitCode;

use bailiwick_fence::doctor::{Survey, survey};
use bailiwick_model::Level;

use crate::cli::DoctorArgs;
use crate::columns::folded;
use crate::failure::{Done, Exit};
use crate::promises::PROMISES;
use bailiwick_model::visible;

/// Lets this program, and no other, make namespaces where AppArmor keeps them from ordinary users.
const APPARMOR: &str = include_str!("../../apparmor/bailiwick");

/// Where Ubuntu restricts namespaces by AppArmor.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Where the text on a part of the machine begins.
const MACHINE_INDENT: usize = 19;

/// Where the text on a promise begins.
const PROMISE_INDENT: usize = 35;

/// How many characters a text may have that begins there: as many as it has, unless a terminal says.
fn room(indent: usize) -> usize {
    crate::columns::width(std::io::stdout()).map_or(usize::MAX, |width| width - indent)
}

/// Runs the command. Exit code 1 when no fence can be put up here.
pub fn run(args: &DoctorArgs) -> Done {
    let survey = survey();
    let level = survey.strongest();
    if args.fix {
        fix(&survey, level);
    } else if args.json {
        tellln!("{}", as_json(&survey, level));
    } else {
        show(&survey, level);
    }
    Ok(if level.is_some() {
        ExitCode::SUCCESS
    } else {
        Exit::Fault.into()
    })
}

fn as_json(survey: &Survey, level: Option<Level>) -> serde_json::Value {
    let items: Vec<_> = survey
        .items
        .iter()
        .map(|item| {
            let needed: Vec<&str> = item.needed.iter().map(|level| level.as_str()).collect();
            serde_json::json!({ "name": item.name, "found": item.found, "needed": needed, "seen": item.seen, "hint": item.hint })
        })
        .collect();
    let promises: Vec<_> = PROMISES
        .iter()
        .map(|promise| {
            let (kept, how) = (promise.kept(level), promise.said(level));
            serde_json::json!({ "id": promise.id, "what": promise.name, "kept": kept, "how": how })
        })
        .collect();
    let level = level.map(Level::as_str);
    serde_json::json!({ "level": level, "landlock": survey.landlock, "machine": items, "promises": promises })
}

fn show(survey: &Survey, level: Option<Level>) {
    tellln!("this machine:");
    for item in &survey.items {
        let needed = !item.needed.is_empty();
        let mark = match (item.found, needed) {
            (true, _) => "yes",
            (false, true) => "NO",
            (false, false) => "no",
        };
        let (mut mark, mut name) = (mark, item.name);
        for seen in folded(&visible(&item.seen), room(MACHINE_INDENT)) {
            tellln!("  {mark:<3}  {name:<11} {seen}");
            (mark, name) = ("", "");
        }
        if !item.found && !item.hint.is_empty() {
            for hint in folded(&format!("hint: {}", item.hint), room(MACHINE_INDENT)) {
                tellln!("{:MACHINE_INDENT$}{hint}", "");
            }
        }
    }
    tellln!("levels of fence, the strongest first:");
    for each in Level::ALL {
        match survey.missing(each) {
            None if level == Some(each) => {
                tellln!("  {:<10} can be put up here, and is what `run` takes", each.as_str())
            }
            None => tellln!(
                "  {:<10} can be put up here: `run --level {}`",
                each.as_str(),
                each.as_str()
            ),
            Some(item) => tellln!(
                "  {:<10} cannot: {} ({})",
                each.as_str(),
                item.name,
                visible(&item.seen)
            ),
        }
    }
    let Some(level) = level else {
        tellln!(
            "NO FENCE can be put up here: `bailiwick run` refuses to start anything; `policy check`, `can` and `log verify` work"
        );
        return promises(None);
    };
    if survey.missing(Level::Namespace).is_some() {
        tellln!("`bailiwick doctor --fix` says how to get the stronger level");
    }
    promises(Some(level));
}

fn promises(level: Option<Level>) {
    tellln!("what is kept of each promise:");
    for promise in &PROMISES {
        let (mut id, mut name, mut kept) = (promise.id, promise.name, promise.kept(level).as_str());
        for said in folded(&promise.said(level), room(PROMISE_INDENT)) {
            tellln!("  {id:<4}{name:<18} {kept:<9} {said}");
            (id, name, kept) = ("", "", "");
        }
    }
}

/// Says what to do so that the strongest level can be had. Changes nothing: each step is a person's to take.
fn fix(survey: &Survey, level: Option<Level>) {
    if level == Some(Level::Namespace) {
        tellln!("nothing is to be done: level `namespace` can be put up here");
        return;
    }
    let restricted = std::fs::read_to_string(RESTRICTED).is_ok_and(|text| text.trim() == "1");
    for item in survey
        .items
        .iter()
        .filter(|item| !item.found && !item.needed.is_empty())
    {
        tellln!("# {}: {}", item.name, visible(&item.seen));
        if item.name == "namespaces" && restricted {
            let program = std::env::current_exe().unwrap_or_default();
            tellln!("# AppArmor keeps them from ordinary users. This lets bailiwick alone make them; as root:");
            tellln!("cat > /etc/apparmor.d/bailiwick <<'END'");
            crate::talk::tell(&APPARMOR.replace("/usr/bin/bailiwick", &program.display().to_string()));
            tellln!("END");
            tellln!("apparmor_parser -r /etc/apparmor.d/bailiwick");
        } else {
            tellln!("# {}", item.hint);
        }
    }
}
