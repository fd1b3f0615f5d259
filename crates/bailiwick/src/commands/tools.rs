//! `bailiwick tools`: which servers and tools there are here, what was accepted of them, and taking what they offer now.
//!
//! Promises: P8 (what is accepted was shown: the old and the new words, whole, with what hides made visible).
//! Trust: what servers say is hostile; it is listed by a tool gate of its own, and only shown here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::process::ExitCode;

use bailiwick_model::{Layer, ToolName, Verb, visible};
use bailiwick_policy::{Policy, Server, ServerProgram};
use bailiwick_tools::{Difference, Kind, Lock, Offered};
use clap::{Args, Subcommand};

use super::trust::store_if_there;
use crate::context::Context;
use crate::daemon::servers::{LastWords, pinned};
use crate::failure::{Done, Exit, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};

/// The parts of `tools`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Show the servers that the rules here name, and what was taken of each: tools, prompts, resource templates
    List(crate::cli::JsonArg),
    /// Start servers, each in its fence, and take what they offer: shows what is new or has changed, and asks
    Pin(PinArgs),
    /// Start servers, and say what they offer that was not accepted; changes nothing
    Diff(DiffArgs),
}

/// What `tools pin` takes.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// The servers; without one all that the rules name
    pub server: Vec<String>,
    /// Take it without asking
    #[arg(long)]
    pub yes: bool,
}

/// What `tools diff` takes.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The servers; without one all that the rules name
    pub server: Vec<String>,
}

/// Runs the command.
pub fn run(command: &ToolsCommand) -> Done {
    let places = Places::find()?;
    let here = super::run::here()?;
    let store = store_if_there(&places)?;
    let store = store.as_ref().map(|store| store as &dyn bailiwick_gate::Store);
    let context = Context::find(&here, &places, None, store)?.surveying();
    let policy = context.load()?;
    if policy.settings().servers.is_empty() {
        let failure = Failure::usage(format!("the rules of {} name no server", context.root));
        return Err(failure.hint("write `[[server]]` with `name` and `run`, then `bailiwick trust`"));
    }
    match command {
        ToolsCommand::List(args) => list(&context, &policy, args.json),
        ToolsCommand::Pin(args) => pin(&places, &context, &policy, args),
        ToolsCommand::Diff(args) => diff(&places, &context, &policy, &args.server),
    }
}

fn lock_of(context: &Context, layer: Layer) -> Result<Lock, Failure> {
    Lock::read(context.lock_text(layer)).map_err(|fault| {
        Failure::usage(format!("{}: {fault}", context.lock_place(layer).display()))
            .hint("take it away and run `bailiwick tools pin`, or take it from version control")
    })
}

/// What was accepted of all servers.
fn all_of(context: &Context, policy: &Policy) -> Result<Lock, Failure> {
    lock_of(context, Layer::Context)?;
    lock_of(context, Layer::Person)?;
    pinned(context, policy).map_err(|fault| Failure::usage(fault.to_string()))
}

fn list(context: &Context, policy: &Policy, json: bool) -> Done {
    let lock = all_of(context, policy)?;
    let servers = &policy.settings().servers;
    // What rules show of it: templates are shown where any resource is.
    let shows = |server: &str, kind, name: &str| match kind {
        Kind::Tool => policy.visible(server, name),
        Kind::Prompt => ToolName::new(server, name).is_ok_and(|name| policy.shows(&Verb::Prompt, &name)),
        Kind::Template => policy.tools_named(server).iter().any(|(verb, _)| *verb == Verb::Open),
    };
    let accepted = |server: &Server, kind| -> Vec<(String, bool)> {
        let own = lock.servers.get(&server.name).into_iter();
        own.flat_map(|own| own.of(kind).keys())
            .map(|name| (name.clone(), shows(&server.name, kind, name)))
            .collect()
    };
    if json {
        let of = |server: &Server| {
            let all = |kind| -> Vec<_> {
                let all = accepted(server, kind).into_iter();
                all.map(|(name, shown)| serde_json::json!({ "name": name, "shown": shown }))
                    .collect()
            };
            serde_json::json!({
                "name": server.name, "program": program(server), "tools": all(Kind::Tool), "prompts": all(Kind::Prompt),
                "templates": all(Kind::Template),
            })
        };
        let all: Vec<_> = servers.iter().map(of).collect();
        tellln!("{}", serde_json::json!({ "servers": all }));
        return Ok(ExitCode::SUCCESS);
    }
    for server in servers {
        tellln!("{}  {}", server.name, visible(&program(server)));
        let all = Kind::ALL.map(|kind| accepted(server, kind).into_iter().map(move |one| (kind, one)));
        let all: Vec<_> = all.into_iter().flatten().collect();
        for (kind, (name, shown)) in &all {
            let note = if *shown {
                ""
            } else {
                "  (no rule lets the agent know of it)"
            };
            tellln!("  {}{note}", visible(&named(&server.name, &(*kind, name.clone()))));
        }
        if all.is_empty() {
            tellln!("  nothing accepted yet: `bailiwick tools pin {}`", server.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn program(server: &Server) -> String {
    match &server.program {
        ServerProgram::Run(words) => words.join(" "),
        ServerProgram::Url(url) => url.to_string(),
    }
}

/// What each server offers, and what each said last on its standard error.
type Surveyed = (BTreeMap<String, Result<Offered, String>>, LastWords);

/// Has the daemon start servers and say what they offer.
fn survey(places: &Places, context: &Context, policy: &Policy, names: &[String]) -> Result<Surveyed, Failure> {
    for name in names {
        if !policy.settings().servers.iter().any(|server| server.name == *name) {
            return Err(Failure::usage(format!("no rule names a server `{}`", visible(name)))
                .hint("`bailiwick tools list` shows those that the rules name"));
        }
    }
    let mut link = Link::open(places)?;
    link.say(&PersonCall::Survey {
        directory: context.root.clone(),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        servers: names.to_vec(),
    })?;
    let said = match link.hear()? {
        PersonAnswer::Surveyed { said } => said,
        PersonAnswer::Failed(fault) => return Err(Failure::fault(fault.to_string()).hint(fault.hint)),
        _ => return Err(Failure::fault("the daemon answered something that was not asked")),
    };
    let unread = |e: &dyn std::fmt::Display| Failure::fault(format!("what servers offer cannot be read: {e}"));
    let text = link.take().ok_or_else(|| unread(&"nothing came"))?;
    let mut all = String::new();
    let file = std::fs::File::from(text);
    file.take(64 << 20).read_to_string(&mut all).map_err(|e| unread(&e))?;
    let offered = serde_json::from_str(&all).map_err(|e| unread(&e))?;
    Ok((offered, said))
}

/// Why a server could not be asked, and what it said itself.
fn tell_failed(name: &str, why: &str, said: &LastWords) {
    talkln!("bailiwick: server `{name}` could not be asked: {}", visible(why));
    for line in said.get(name).into_iter().flatten() {
        talkln!("  it said: {}", visible(line));
    }
}

/// A tool by its name alone, all else with its kind.
fn named(server: &str, (kind, name): &(Kind, String)) -> String {
    match kind {
        Kind::Tool => format!("{server}/{name}"),
        Kind::Prompt | Kind::Template => format!("{kind} {server}/{name}"),
    }
}

/// Shows what differs of a server; how many differences there are.
fn show(lock: &Lock, name: &str, offered: &Offered) -> usize {
    let all: Vec<Difference> = lock.compare(name, offered);
    for one in &all {
        let what = match (&one.of, &one.old, &one.new) {
            (Some(of), None, _) => format!("new: {}", named(name, of)),
            (Some(of), _, None) => format!("gone: {}", named(name, of)),
            (Some(of), _, _) => format!("changed: {}", named(name, of)),
            (None, ..) => format!("what {name} says of itself"),
        };
        tellln!("{}", visible(&what));
        for line in one.text().lines() {
            tellln!("    {line}");
        }
    }
    for (what, why) in &offered.withheld_others {
        tellln!(
            "withheld, and never to be accepted: {} of {name} ({})",
            visible(what),
            visible(why)
        );
    }
    for (tool, why) in &offered.withheld {
        tellln!(
            "withheld, and never to be accepted: {name}/{} ({})",
            visible(tool),
            visible(why)
        );
    }
    all.len()
}

fn diff(places: &Places, context: &Context, policy: &Policy, names: &[String]) -> Done {
    let lock = all_of(context, policy)?;
    let (mut differences, mut failed) = (0, false);
    let (all, said) = survey(places, context, policy, names)?;
    for (name, offered) in &all {
        match offered {
            Ok(offered) => differences += show(&lock, name, offered),
            Err(why) => {
                failed = true;
                tell_failed(name, why, &said);
            }
        }
    }
    if differences == 0 && !failed {
        tellln!("all is as it was accepted");
    }
    Ok(match (failed, differences) {
        (true, _) => Exit::Fault.into(),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => Exit::Denied.into(),
    })
}

fn pin(places: &Places, context: &Context, policy: &Policy, args: &PinArgs) -> Done {
    let shown = all_of(context, policy)?;
    let mut locks = BTreeMap::new();
    let mut failed = false;
    let (all, said) = survey(places, context, policy, &args.server)?;
    for (name, offered) in &all {
        let offered = match offered {
            Ok(offered) => offered,
            Err(why) => {
                failed = true;
                tell_failed(name, why, &said);
                continue;
            }
        };
        if show(&shown, name, offered) == 0 {
            tellln!("{name}: all is as it was accepted");
        } else if args.yes || confirmed(name)? {
            let layer = policy
                .settings()
                .server(name)
                .map_or(Layer::Context, |server| server.origin.layer);
            if let Entry::Vacant(place) = locks.entry(layer) {
                place.insert(lock_of(context, layer)?);
            }
            if let Some(lock) = locks.get_mut(&layer) {
                lock.accept_all(name, offered);
            }
        }
    }
    for (layer, lock) in locks {
        let after = context.with_lock(layer, lock.write());
        after.write_lock(layer, after.lock_text(layer))?;
        tellln!("written: {}", after.lock_place(layer).display());
        // Who has been shown it and has taken it trusts it: where the rules were trusted before, they are with it.
        if context.sources.project_trusted && layer == Layer::Context {
            let (file, digest) = after
                .trusted_by()
                .ok_or_else(|| Failure::fault("the rule file is gone"))?;
            let mut link = Link::open(places)?;
            link.say(&PersonCall::Trust {
                file,
                digest,
                trusted: true,
            })?;
            super::choose::done(link.hear()?)?;
        }
    }
    Ok(if failed { Exit::Fault.into() } else { ExitCode::SUCCESS })
}

fn confirmed(name: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::usage(format!("nobody is there to say yes to what `{name}` offers"))
                .hint("on a terminal it is asked; `--yes` takes it unseen"),
        );
    }
    crate::talk::talk(&format!("take this of `{name}`? [y/N] "));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|e| Failure::fault(format!("the answer cannot be read: {e}")))?;
    Ok(matches!(line.trim(), "y" | "yes"))
}
