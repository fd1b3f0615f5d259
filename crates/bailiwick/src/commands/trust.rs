//! `bailiwick trust`: says that this very content of a project's rule file speaks for the person.

use std::process::ExitCode;

use bailiwick_store::SqliteStore;

use crate::cli::TrustArgs;
use crate::context::{Context, RULE_FILE, store_failure};
use crate::daemon::servers::pinned;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// Opens the store, if there is one: without one nothing has been trusted yet.
pub fn store_if_there(places: &Places) -> Result<Option<SqliteStore>, Failure> {
    if places.store().symlink_metadata().is_err() {
        return Ok(None);
    }
    SqliteStore::open(&places.store())
        .map(Some)
        .map_err(|fault| store_failure(&fault))
}

/// Runs the command.
pub fn run(args: &TrustArgs) -> Done {
    let places = Places::find()?;
    let here = super::run::here()?;
    let mut context = Context::find(&here, &places, None, None)?;
    let Some(file) = context.sources.project.clone() else {
        return Err(Failure::usage(format!("there is no {RULE_FILE} in {}", context.root))
            .hint("without one the preset `coding` holds, and needs no trust"));
    };
    context.sources.project_trusted = true;
    // What servers offer is accepted once they may be started.
    let policy = context.clone().surveying().load()?;
    let digest = bailiwick_policy::trust_digest(&file, context.sources.lock.as_ref());
    let mut link = Link::open(&places)?;
    link.say(&PersonCall::Trust {
        file: file.name.clone(),
        digest,
        trusted: !args.revoke,
    })?;
    match link.hear()? {
        PersonAnswer::Done => {}
        PersonAnswer::Failed(fault) => return Err(Failure::fault(fault.to_string()).hint(fault.hint)),
        _ => return Err(Failure::fault("the daemon answered something that was not asked")),
    }
    if args.revoke {
        tellln!("no longer trusted: {} (only its denies hold)", visible(&file.name));
        return Ok(ExitCode::SUCCESS);
    }
    tellln!(
        "trusted: {} as it is now ({})",
        visible(&file.name),
        digest.to_string().get(..16).unwrap_or_default()
    );
    for rule in policy
        .rules()
        .iter()
        .filter(|rule| rule.origin.file == file.name && rule.follows_from.is_none())
    {
        tellln!("  {:<5} {}", rule.effect.as_str(), visible(&rule.origin.act));
        if let Some(terms) = rule.terms_told() {
            tellln!("        {}", visible(&terms));
        }
        let brokers = policy.settings().brokers.iter();
        for broker in brokers.filter(|broker| broker.origin == rule.origin) {
            for line in broker.told() {
                tellln!("        outside: {}", visible(&line));
            }
        }
    }
    for server in &policy.settings().servers {
        tellln!("  server {}", server.name);
        for line in server.told() {
            tellln!("        outside: {}", visible(&line));
        }
    }
    for line in policy.settings().tags.told() {
        tellln!("  may not {}", visible(&line));
    }
    for (name, secret) in &policy.settings().secrets {
        tellln!("  secret {} from {}", visible(name), visible(&secret.from.to_string()));
        if let Some(renewal) = &secret.renewal {
            tellln!("        {}", visible(&renewal.to_string()));
        }
        if let Some(requests) = &secret.requests {
            tellln!("        put into requests: {}", visible(&requests.told(name)));
        }
    }
    tellln!("any change to it takes the trust away");
    // A lock that cannot be read is told where it is used.
    let accepted = pinned(&context, &policy).unwrap_or_default();
    let servers = &policy.settings().servers;
    if servers
        .iter()
        .any(|server| !accepted.servers.contains_key(&server.name))
    {
        talkln!("bailiwick: servers are named of which nothing was accepted yet: run `bailiwick tools pin`");
    }
    Ok(ExitCode::SUCCESS)
}
