//! What a person is told before, at and after a run: short, plain, and only what holds here.

use std::fmt::Write as _;

use bailiwick_gate::FenceReport;
use bailiwick_model::{AbsPath, Level};

use crate::protocol::Planned;
use bailiwick_model::visible;

/// Widest line where standard error is no terminal, in characters.
const WIDTH: usize = 100;

/// Where the text of a line begins.
const INDENT: usize = 12;

/// How many characters the text of a line may have: a list is cut and the rest counted, a sentence goes on below.
fn room() -> usize {
    crate::columns::width(std::io::stderr()).unwrap_or(WIDTH) - INDENT
}

fn line(out: &mut String, head: &str, text: &str) {
    let mut head = head;
    for text in crate::columns::folded(text, room()) {
        let _ = writeln!(out, "  {head:<9} {text}");
        head = "";
    }
}

/// Names as many of a list as fit behind `lead`, and counts the rest.
fn some(lead: &str, names: &[String]) -> String {
    some_of(lead, names, 0)
}

/// The same of names of which so many more are not listed.
fn some_of(lead: &str, names: &[String], more: usize) -> String {
    let room = room();
    let mut text = lead.to_owned();
    for (place, name) in names.iter().enumerate() {
        let name = visible(name);
        let left = names.len().saturating_sub(place).saturating_add(more);
        let needed = text.chars().count() + name.chars().count() + ", and 999 more".len();
        if place > 0 && needed > room {
            let _ = write!(text, " and {left} more");
            return text;
        }
        text.push_str(if place == 0 { " " } else { ", " });
        text.push_str(&name);
    }
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

/// Paths as a person writes them: from the root of the context, or from the home.
struct Short<'a> {
    root: &'a str,
    home: &'a str,
}

impl Short<'_> {
    fn path(&self, path: &str) -> String {
        let below = |folder: &str| {
            path.strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
                .map(str::to_owned)
        };
        match (path.strip_prefix("/**/"), below(self.root), below(self.home)) {
            (Some(rest), _, _) => format!("**/{rest}"),
            (None, Some(rest), _) => rest,
            (None, None, Some(rest)) => format!("~/{rest}"),
            (None, None, None) if path == self.home => "~".into(),
            (None, None, None) => path.to_owned(),
        }
    }

    /// The person's own places first: those of the machine say less.
    fn paths<'b>(&self, paths: impl Iterator<Item = &'b str>) -> Vec<String> {
        let mut names: Vec<String> = paths.map(|path| self.path(path)).collect();
        names.sort_by_key(|name| name.starts_with('/'));
        names
    }
}

/// True for what belongs to the machine: named as a whole, not one by one.
fn is_system(path: &AbsPath) -> bool {
    let top = path.segments().next().unwrap_or_default();
    matches!(top, "usr" | "bin" | "sbin" | "opt" | "etc" | "var" | "nix" | "snap") || top.starts_with("lib")
}

/// What will hold.
pub fn planned(planned: &Planned) -> String {
    let short = Short {
        root: planned.root.as_str(),
        home: planned.home.as_str(),
    };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "bailiwick: task {} in {}",
        planned.task,
        visible(planned.root.as_str())
    );
    let (profiles, others): (Vec<_>, Vec<_>) = planned.sources.iter().partition(|name| name.starts_with("profile:"));
    line(
        &mut out,
        "rules",
        &some("from", &others.into_iter().cloned().collect::<Vec<_>>()),
    );
    if !profiles.is_empty() {
        let names = profiles
            .iter()
            .map(|name| name.trim_start_matches("profile:").to_owned());
        line(&mut out, "profiles", &names.collect::<Vec<_>>().join(", "));
    }
    let mut head = "may";
    let mut may = |out: &mut String, text: &str| line(out, std::mem::take(&mut head), text);
    if !planned.write.is_empty() {
        let trees: Vec<String> = planned.write.iter().map(ToString::to_string).collect();
        may(&mut out, &some("read and write", &trees));
    }
    let (system, own): (Vec<&AbsPath>, Vec<&AbsPath>) = planned
        .read
        .iter()
        .filter(|path| !planned.write.contains(path))
        .partition(|path| is_system(path));
    let own = short.paths(own.iter().map(|path| path.as_str()));
    match (system.is_empty(), own.is_empty()) {
        (false, true) => may(&mut out, "read the machine's programs and libraries"),
        (false, false) => may(&mut out, &some("read the machine's programs and libraries, and", &own)),
        (true, false) => may(&mut out, &some("read", &own)),
        (true, true) => {}
    }
    if !planned.asked.is_empty() {
        let own = short.paths(planned.asked.iter().map(AbsPath::as_str));
        may(&mut out, &some("see names, and ask you about each file, in", &own));
    }
    if !planned.kept.is_empty() {
        let own = short.paths(planned.kept.iter().map(AbsPath::as_str));
        may(
            &mut out,
            &some("keep, for this project alone and apart from yours,", &own),
        );
    }
    if let Some(agent) = &planned.login {
        may(
            &mut out,
            &format!(
                "use and renew the login of {}, which all its projects share",
                visible(agent)
            ),
        );
    }
    if !planned.registries.is_empty() {
        may(
            &mut out,
            &some("fetch packages, and publish none, from", &planned.registries),
        );
    }
    match (planned.requests.as_slice(), planned.network.as_slice()) {
        ([], []) if !planned.registries.is_empty() => {}
        ([], []) => may(&mut out, "reach no host: no rule names one"),
        (requests, hosts) => {
            if !requests.is_empty() {
                may(&mut out, &some_of("request", requests, planned.more_requests));
            }
            if !hosts.is_empty() {
                may(
                    &mut out,
                    &some_of("reach, by host name alone and unread,", hosts, planned.more_network),
                );
            }
        }
    }
    if !planned.secrets.is_empty() {
        may(
            &mut out,
            &some("use, without seeing them, the secrets", &planned.secrets),
        );
    }
    if !planned.brokers.is_empty() {
        may(
            &mut out,
            &some("have run outside, with more than it has here,", &planned.brokers),
        );
    }
    if !planned.tools.is_empty() {
        may(&mut out, &some("call the tools", &planned.tools));
    }
    if !planned.servers.is_empty() {
        may(
            &mut out,
            &some("have these done by servers, which have more:", &planned.servers),
        );
    }
    for port in &planned.publish {
        line(
            &mut out,
            "seen at",
            &format!(
                "http://127.0.0.1:{} (port {} inside), by any program and browser of this machine",
                port.outside, port.inside
            ),
        );
    }
    for device in &planned.devices {
        line(&mut out, "weaker", &visible(device));
    }
    let mut head = "may not";
    let mut not = |out: &mut String, text: &str| line(out, std::mem::take(&mut head), text);
    if !planned.hidden.is_empty() {
        not(
            &mut out,
            &some("read", &short.paths(planned.hidden.iter().map(String::as_str))),
        );
    }
    if !planned.guarded.is_empty() {
        not(
            &mut out,
            &some("change", &short.paths(planned.guarded.iter().map(String::as_str))),
        );
    }
    for tag in &planned.tags {
        not(&mut out, &visible(tag));
    }
    not(
        &mut out,
        match planned.level {
            Level::Namespace => "touch anything else: no other file, host, process or variable exists in there",
            Level::Process => "touch anything else: no other file, host, process or variable",
        },
    );
    if let Some(closes) = &planned.closes {
        let told = format!("{}, when its hours end: it is told to end, and ended", visible(closes));
        line(&mut out, "until", &told);
    }
    for note in planned.notes.iter().chain(&planned.warnings) {
        let below = note.strip_prefix(short.root).and_then(|rest| rest.strip_prefix('/'));
        line(&mut out, "note", &visible(below.unwrap_or(note)));
    }
    out
}

/// What is in force.
pub fn started(report: &FenceReport, level: Level) -> String {
    let mut out = String::new();
    line(
        &mut out,
        "enforced",
        &format!("by {}; {} places protected", report.parts.join(", "), report.protected),
    );
    let gaps: Vec<&str> = crate::promises::left_open(level)
        .chain(["of TLS that is passed on unread only the host's name is seen"])
        .collect();
    line(&mut out, "partly", &gaps.join("; "));
    for warning in &report.warnings {
        line(&mut out, "note", &visible(warning));
    }
    out
}

/// How to leave an agent that goes on by itself.
pub fn lasting() -> String {
    let mut out = String::new();
    line(
        &mut out,
        "leave",
        &format!(
            "{} leaves it running, and so does a closed terminal; `bailiwick attach` comes back",
            crate::terminal::DETACH_KEY
        ),
    );
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
