//! `bailiwick mandate`: writes a mandate from a template, and says in plain words what one lets an errand do.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailiwick_model::{Layer, visible};
use clap::{Args, Subcommand};

use super::trust::store_if_there;
use crate::context::{Context, read_rule_file};
use crate::failure::{Done, Failure};
use crate::places::Places;
use crate::protocol::MandateOrder;

/// The parts of `mandate`.
#[derive(Debug, Subcommand)]
pub enum MandateCommand {
    /// Write one from a template: pay, book, mail
    New(NewArgs),
    /// Say what one lets an errand do here, with these values
    Check(CheckArgs),
}

/// What `mandate new` takes.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The template
    pub template: String,
    /// The file; without one it is printed
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What `mandate check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The mandate
    pub file: PathBuf,
    /// A value that it leaves open
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// Runs the command.
pub fn run(command: &MandateCommand) -> Done {
    match command {
        MandateCommand::New(args) => new(args),
        MandateCommand::Check(args) => check(args),
    }
}

fn new(args: &NewArgs) -> Done {
    let Some(text) = bailiwick_policy::mandate_template(&args.template) else {
        let known: Vec<String> = bailiwick_policy::mandate_templates()
            .map(|(name, about)| format!("{name} ({about})"))
            .collect();
        return Err(
            Failure::usage(format!("there is no template `{}`", visible(&args.template))).hint(known.join("; ")),
        );
    };
    let Some(place) = &args.out else {
        tellln!("{}", text.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let wrong = |e: std::io::Error| Failure::usage(format!("{} cannot be written: {e}", place.display()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(place)
        .map_err(wrong)?;
    file.write_all(text.as_bytes()).map_err(wrong)?;
    tellln!("written: {}", place.display());
    Ok(ExitCode::SUCCESS)
}

/// Reads a mandate with the values that are set in it.
pub fn read(place: &Path, set: &[String]) -> Result<MandateOrder, Failure> {
    let file = read_rule_file(place)?.ok_or_else(|| {
        Failure::usage(format!("there is no mandate `{}`", place.display()))
            .hint("`bailiwick mandate new pay` writes one")
    })?;
    let mut values = BTreeMap::new();
    for one in set {
        let (name, value) = one
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("`{}` is no value", visible(one))).hint("write `--set max=200`"))?;
        if values.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("`{}` is set twice", visible(name))));
        }
    }
    Ok(MandateOrder {
        file: file.name,
        text: file.text,
        values,
    })
}

fn check(args: &CheckArgs) -> Done {
    let places = Places::find()?;
    let here = super::run::here()?;
    let store = store_if_there(&places)?;
    let store = store.as_ref().map(|store| store as &dyn bailiwick_gate::Store);
    let now = bailiwick_gate::Clock::now(&crate::daemon::SteadyClock::default());
    let mandate = read(&args.file, &args.set)?;
    let context = Context::find(&here, &places, None, store)?.under(Some(mandate.used(now)));
    let policy = context.load()?;
    if let Some(mandate) = policy.mandate() {
        if let Some(purpose) = &mandate.purpose {
            tellln!("to {}", visible(purpose));
        }
        if let Some(expires) = mandate.expires {
            tellln!("until {}", bailiwick_gate::desk::moment(expires));
        }
    }
    let rules = policy.rules().iter();
    let own = rules.filter(|rule| rule.layer() == Layer::Mandate && rule.follows_from.is_none());
    for rule in own {
        let limits = match rule.limits().to_string() {
            none if none.is_empty() => none,
            limits => format!(", {limits}"),
        };
        tellln!(
            "  {:<5} {}{}",
            rule.effect.as_str(),
            visible(&rule.origin.act),
            visible(&limits)
        );
    }
    tellln!("of what has effects outside nothing else, and only what the rules here allow too");
    Ok(ExitCode::SUCCESS)
}
