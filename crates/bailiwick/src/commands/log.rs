//! `bailiwick log`: shows and verifies the log, from its files alone.

use std::path::Path;
use std::process::ExitCode;

use bailiwick_ledger::VerifierKey;
use bailiwick_model::{Answered, Event, Millis, Record, argument};

use crate::cli::{LogShowArgs, LogVerifyArgs};
use crate::daemon::refusals::is_refusal;
use crate::failure::{Done, Exit, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// One record and its place, or why it cannot be read.
pub type Entry = Result<(u64, Record), Failure>;

/// Reads a log.
pub fn read(folder: &Path) -> Result<impl Iterator<Item = Entry>, Failure> {
    let refuse = |e: &dyn std::fmt::Display| {
        Failure::fault(format!("cannot read the log in `{}`: {e}", folder.display()))
            .hint("`bailiwick log verify` says more")
    };
    if !folder.exists() {
        return Err(Failure::fault(format!("there is no log in `{}`", folder.display()))
            .hint("it begins with the first `bailiwick run`"));
    }
    let folder = folder.to_owned();
    let entries = bailiwick_ledger::read(&folder).map_err(|e| refuse(&e))?;
    Ok(entries.map(move |entry| {
        entry.map_err(|e| Failure::fault(format!("cannot read the log in `{}`: {e}", folder.display())))
    }))
}

/// Has a running daemon write out what it has in hand, so that what was just decided is there to be read.
pub fn catch_up(places: &Places) {
    if let Ok(Some(mut link)) = Link::to_running(places)
        && link.say(&PersonCall::Checkpoint).is_ok()
    {
        // Where it cannot be written, the files are read as they are.
        let _ = link.hear();
    }
}

/// Prints where the log lies.
pub fn path() -> Done {
    tellln!("{}", Places::find()?.log().display());
    Ok(ExitCode::SUCCESS)
}

/// Prints a fresh checkpoint.
pub fn checkpoint() -> Done {
    let mut link = Link::open(&Places::find()?)?;
    link.say(&PersonCall::Checkpoint)?;
    match link.hear()? {
        PersonAnswer::Checkpoint(note) => crate::talk::tell(&note),
        PersonAnswer::Failed(fault) => return Err(Failure::fault(fault.to_string()).hint(fault.hint)),
        _ => return Err(Failure::fault("the daemon answered something that was not asked")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows records.
pub fn show(args: &LogShowArgs) -> Done {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => {
            let places = Places::find()?;
            catch_up(&places);
            places.log()
        }
    };
    let wanted = |record: &Record| {
        args.task.is_none_or(|task| record.task == Some(task)) && (!args.denied || is_refusal(&record.event))
    };
    let mut kept = std::collections::VecDeque::new();
    for entry in read(&folder)? {
        let (index, record) = entry?;
        if !wanted(&record) {
            continue;
        }
        match args.last {
            None => print_record(index, &record, args.json),
            Some(last) => {
                kept.push_back((index, record));
                if kept.len() > last {
                    kept.pop_front();
                }
            }
        }
    }
    for (index, record) in kept {
        print_record(index, &record, args.json);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_record(index: u64, record: &Record, json: bool) {
    let line = if json {
        serde_json::json!({ "index": index, "record": record }).to_string()
    } else {
        let task = record.task.map_or_else(|| "-".repeat(16), |task| task.to_string());
        format!(
            "{index:>7}  {}  {task}  {}",
            time(record.time),
            visible(&sentence(&record.event))
        )
    };
    tellln!("{line}");
}

/// What a record says, as one sentence. Not in visible form.
pub fn sentence(event: &Event) -> String {
    match event {
        Event::Opened {
            build,
            recovered_bytes: 0,
        } => format!("log opened by {build}"),
        Event::Opened { build, recovered_bytes } => {
            format!("log opened by {build}, {recovered_bytes} unfinished bytes cut off")
        }
        Event::TaskStarted {
            principal,
            context,
            command,
            ..
        } => {
            format!("started for {principal} in {context}: {}", command.join(" "))
        }
        Event::Decided {
            id, request, decision, ..
        } => {
            let address = request
                .address()
                .map(|address| format!(" at {address}"))
                .unwrap_or_default();
            let rule = decision.reasons.first().and_then(|reason| reason.rule.as_ref());
            let rule = rule.map(|rule| format!(" by {rule}")).unwrap_or_default();
            let args = request.arguments.get(argument::ARGS);
            let args = args.map(|args| format!(" {args}")).unwrap_or_default();
            let chosen = request.arguments.get(argument::CHOSEN);
            let args = args
                + &chosen
                    .map(|chosen| format!(" chosen from {chosen}"))
                    .unwrap_or_default();
            let reason = match request.arguments.get(argument::REASON) {
                Some(reason) => format!(", reason {reason}"),
                None => String::new(),
            };
            format!(
                "{} {request}{address}{args} ({}{rule}{reason}, {id})",
                decision.verdict.as_str(),
                decision.code
            )
        }
        Event::Answered {
            id,
            request,
            answer,
            principal,
            grant,
            word,
            ..
        } => {
            let by = principal.as_ref().map(|name| format!(" by {name}")).unwrap_or_default();
            let answer = match answer {
                Answered::Yes => "yes",
                Answered::Seconded => "yes, as one of two",
                Answered::No => "no",
                Answered::More => "more is to be told first",
                Answered::Lapsed => "no answer in time",
                Answered::Withdrawn => "withdrawn",
            };
            let grant = grant.map(|grant| format!(", grant {grant}")).unwrap_or_default();
            let word = word.as_ref().map(|word| format!(": \"{word}\"")).unwrap_or_default();
            format!("question {request}: {answer}{word}{by} ({id}{grant})")
        }
        Event::Granted {
            grant, sentence, by, ..
        } => format!("granted by {}: {sentence} ({grant})", by.join(" and ")),
        Event::GrantChanged {
            grant,
            how,
            used,
            cut,
            principal,
        } => {
            let by = principal.as_ref().map(|name| format!(" by {name}")).unwrap_or_default();
            format!("grant {}{by}, used {used} times, {cut} cut off ({grant})", how.as_str())
        }
        Event::HoursOver { opens: Some(at) } => format!("told to end, since its hours are over until {}", time(*at)),
        Event::HoursOver { opens: None } => "told to end, since its hours are over".into(),
        Event::Enrolled {
            name,
            by,
            enrolled: true,
        } => format!("{name} ({by}) may answer questions"),
        Event::Enrolled {
            name, enrolled: false, ..
        } => format!("{name} may not answer questions any more"),
        Event::Suspended { program, request } => {
            format!(
                "{} is not asked any more: it said yes to {request}, which was made to try it",
                program.join(" ")
            )
        }
        Event::Told { question, words } => format!("the agent says about question {question}: \"{words}\""),
        Event::Raised { id, label } => {
            let tags: Vec<String> = label.tags().map(ToString::to_string).collect();
            format!("has read what is tagged {} ({id})", tags.join(", "))
        }
        Event::Settled { id, done: true, note } => format!("done ({id}) {note}"),
        Event::Settled { id, done: false, note } => format!("not done ({id}) {note}"),
        Event::Redeemed { id, secret, place } => format!("secret {secret} put in ({place}) ({id})"),
        Event::Fetching { purpose, method, url } => format!("for {purpose}: {} {url}", method.as_str()),
        Event::Fetched {
            purpose,
            done,
            note,
            digest,
        } => {
            let done = if *done { "done" } else { "not done" };
            let digest = digest.map(|digest| format!(", sha256 {digest}")).unwrap_or_default();
            format!("for {purpose}: {done}, {note}{digest}")
        }
        Event::Refused { id, code, what } => format!("refused {what} ({code}, {id})"),
        Event::Published {
            principal,
            outside,
            inside,
        } => format!("port {inside} is seen at 127.0.0.1:{outside}, by order of {principal}"),
        Event::Recounted { principal, scope, rule } => {
            format!("{principal} had the budget of `{rule}` begin anew ({scope})")
        }
        Event::HandedIn { path, bytes, digest } => format!("handed in {path} ({bytes} bytes, sha256 {digest})"),
        Event::NotHandedIn { path, cause } => format!("not handed in {path}: {cause}"),
        Event::TaskEnded { status } => format!("ended with {status}"),
        Event::Trusted {
            file, trusted: true, ..
        } => format!("trusted {file}"),
        Event::Trusted {
            file, trusted: false, ..
        } => format!("no longer trusted {file}"),
    }
}

/// A time in UTC (RFC 3339).
pub fn time(at: Millis) -> String {
    let moment = bailiwick_gate::desk::moment(at);
    let moment = moment.trim_end_matches(" UTC").replace(' ', "T");
    format!("{moment}.{:03}Z", at.0 % 1000)
}

/// Verifies a log.
pub fn verify(args: &LogVerifyArgs) -> Done {
    let places = Places::find()?;
    let folder = args.folder.clone().unwrap_or_else(|| places.log());
    if !folder.exists() {
        return Err(Failure::fault(format!("there is no log in `{}`", folder.display()))
            .hint("it begins with the first `bailiwick run`"));
    }
    let key = verifier(args, &places)?;
    let since = args.since.as_deref().map(file_or_text).transpose()?;
    match bailiwick_ledger::verify(&folder, &key, since.as_deref()) {
        Ok(verified) => {
            if args.json {
                tellln!(
                    "{}",
                    serde_json::json!({ "verified": true, "size": verified.size, "checkpoint_size": verified.checkpoint_size, "unsigned_tail": verified.unsigned_tail })
                );
            } else {
                tellln!("verified: {} records, all of them signed", verified.size);
                if since.is_none() {
                    tellln!(
                        "note: going back to an older state as a whole is found only with `--since`, by a checkpoint kept elsewhere"
                    );
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(fault) => {
            if args.json {
                tellln!(
                    "{}",
                    serde_json::json!({ "verified": false, "fault": fault.to_string() })
                );
            }
            Err(
                Failure::new(Exit::Unverified, format!("the log does not verify: {fault}"))
                    .hint("keep a copy of the folder before anything else is done with it"),
            )
        }
    }
}

fn verifier(args: &LogVerifyArgs, places: &Places) -> Result<VerifierKey, Failure> {
    let written = args
        .key
        .clone()
        .unwrap_or_else(|| places.log_verifier().display().to_string());
    let text = file_or_text(&written)?;
    text.trim()
        .parse()
        .map_err(|e| Failure::usage(format!("`{}` is not a verifier key: {e}", visible(text.trim()))))
}

/// What a file holds, or the text itself where no such file exists.
fn file_or_text(written: &str) -> Result<String, Failure> {
    if !Path::new(written).exists() {
        return Ok(written.to_owned());
    }
    std::fs::read_to_string(written).map_err(|e| Failure::usage(format!("cannot read `{written}`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_calendar_times() {
        assert_eq!(time(Millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(Millis(951_782_400_123)), "2000-02-29T00:00:00.123Z");
        assert_eq!(time(Millis(1_795_996_800_000)), "2026-11-30T00:00:00.000Z");
        assert_eq!(time(Millis(4_107_542_399_999)), "2100-02-28T23:59:59.999Z");
    }
}
