//! What a decision means to the person, and what would change it.

use std::fmt::Write as _;

use bailiwick_model::{
    AbsPath, Answered, Code, Decision, Event, Host, Layer, Reason, Request, Resource, ToolDuty, Verb, Verdict, size,
};

use crate::context::RULE_FILE;
use crate::protocol::RefusedAct;
use bailiwick_model::visible;

/// The answer as a sentence with its causes.
pub fn told(request: &Request, decision: &Decision, root: &AbsPath) -> String {
    let answer = match decision.verdict {
        Verdict::Allow => "yes",
        Verdict::Ask => "ask",
        Verdict::Deny => "no",
    };
    let mut out = format!("{answer}: {} ({})\n", visible(&request.to_string()), decision.code);
    for reason in &decision.reasons {
        let _ = writeln!(out, "  {}", cause(reason));
    }
    for obligation in &decision.obligations {
        let _ = writeln!(out, "  provided: {}", visible(&duty(obligation)));
    }
    if let Some(change) = change(request, decision, root) {
        let _ = writeln!(out, "  to change it: {}", visible(&change));
    }
    out
}

/// What was refused, and what would change it; none when nothing was.
pub fn refused(event: &Event, root: &AbsPath) -> Option<RefusedAct> {
    match event {
        Event::Decided {
            id, request, decision, ..
        } if decision.verdict == Verdict::Deny => Some(RefusedAct {
            id: *id,
            code: decision.code,
            act: visible(&request.to_string()),
            told: told(request, decision, root),
        }),
        Event::Answered {
            id, request, answer, ..
        } => answer.refusal().map(|code| RefusedAct {
            id: *id,
            code,
            act: visible(&request.to_string()),
            told: format!(
                "no: {} ({code})\n  {}\n",
                visible(&request.to_string()),
                answered(*answer)
            ),
        }),
        Event::Refused { id, code, what } if *code != Code::NotGranted => Some(RefusedAct {
            id: *id,
            code: *code,
            act: visible(what),
            told: by_gate(*code, what),
        }),
        _ => None,
    }
}

/// What became of a question, as a sentence.
pub fn answered(answer: Answered) -> &'static str {
    match answer {
        Answered::Yes => "a person was asked, and said yes",
        Answered::Seconded => "a person was asked, and said yes; a second one has to, too",
        Answered::No => "a person was asked, and said no",
        Answered::More => {
            "a person was asked, and wants to know more first (`bailiwick tell ID WORDS` inside, then try again)"
        }
        Answered::Lapsed => "a person was asked, and nobody answered in time (`bailiwick approve` answers)",
        Answered::Withdrawn => "a person was asked, and whoever asked went away before there was an answer",
    }
}

/// What a gate refused by itself, as a sentence.
pub fn by_gate(code: Code, what: &str) -> String {
    let why = match code {
        Code::CertificateNotAccepted => {
            "the connection is opened to judge its requests, and the program does not believe the task's own authority\n  \
             to change it: name the bundle at `$SSL_CERT_FILE` in the program's settings, or pass the host on unread: `tunnel HOST`"
        }
        _ => "the gate refused it by itself: it was not a request that rules could judge",
    };
    format!("no: {} ({code})\n  {why}\n", visible(what))
}

fn cause(reason: &Reason) -> String {
    let text = visible(&reason.text);
    match &reason.rule {
        Some(rule) => format!("{}: {text} (layer {})", reason.verdict.as_str(), rule.layer),
        None => format!("{}: {text}", reason.verdict.as_str()),
    }
}

fn duty_of_tool(duty: &ToolDuty) -> String {
    match duty {
        ToolDuty::Redact { paths } => format!("{} is left out of the result", paths.join(", ")),
        ToolDuty::Cap { rows, bytes } => {
            let rows = rows.map(|rows| format!("at most {rows} rows"));
            let bytes = bytes.map(|bytes| format!("at most {}", size(bytes)));
            let parts: Vec<String> = rows.into_iter().chain(bytes).collect();
            format!("of the result {} are passed on", parts.join(" and "))
        }
        ToolDuty::Present { .. } => "values of the result are handed on as handles".into(),
        ToolDuty::Label { label } => {
            let tags: Vec<String> = label.tags().map(ToString::to_string).collect();
            format!("what stands behind its handles is tagged {}", tags.join(", "))
        }
        ToolDuty::Reveal { .. } => "handles are opened for the tool".into(),
        ToolDuty::Tokens { most } => format!("a model writes at most {most} tokens"),
        ToolDuty::Notify => "you are told".into(),
    }
}

fn duty(obligation: &bailiwick_model::Obligation) -> String {
    use bailiwick_model::Obligation::{
        Answer, Ask, DialAddress, Guard, Hide, Inject, MatchServerName, PinKey, RequestBody, Tool,
    };
    match obligation {
        Hide { pattern } => format!("`{pattern}` in it stays hidden"),
        Ask { pattern } => format!("each file of `{pattern}` in it is asked about"),
        Guard { pattern } => format!("`{pattern}` in it is not changed"),
        DialAddress { address } => format!("only {address} is connected to"),
        MatchServerName => "the TLS greeting names the same host; what follows is passed on unread".into(),
        Inject { secret, place } => format!("the secret {secret} is put in ({place}), and taken out of the answer"),
        RequestBody { bytes, types } => {
            let types = match types.as_slice() {
                [] => String::new(),
                types => format!(", of type {}", types.join(" or ")),
            };
            let most = match *bytes {
                u64::MAX => "any length".to_owned(),
                bytes => format!("at most {}", size(bytes)),
            };
            format!("the body has {most}{types}")
        }
        Answer {
            bytes,
            seconds,
            bytes_per_second,
        } => {
            let parts = [
                bytes.map(|bytes| format!("at most {}", size(bytes))),
                seconds.map(|seconds| format!("within {seconds} s")),
                bytes_per_second.map(|rate| format!("at {} a second", size(rate))),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("the answer comes {}", parts.join(", "))
        }
        Tool(duty) => duty_of_tool(duty),
        PinKey { sha256 } => {
            let keys: Vec<String> = sha256.iter().map(ToString::to_string).collect();
            format!("the server has the key {}", keys.join(" or "))
        }
    }
}

/// What a person could do so that the answer changes; none when it is yes.
pub fn change(request: &Request, decision: &Decision, root: &AbsPath) -> Option<String> {
    let first = decision
        .reasons
        .iter()
        .find(|reason| reason.verdict == decision.verdict)?;
    match (decision.code, &first.rule) {
        (Code::DeniedByRule, Some(rule)) if rule.layer == Layer::Builtin => {
            Some("nothing in your rules can: this is built in, for every task".into())
        }
        (Code::DeniedByRule, Some(rule)) if rule.file == "preset:ceiling" => Some(format!(
            "the shipped ceiling denies it; a ceiling of your own in ~/.config/bailiwick/*.toml takes its place (`{}`)",
            rule.act
        )),
        (Code::DeniedByRule, Some(rule)) => Some(format!(
            "remove or narrow `{}` at {}:{}",
            rule.act, rule.file, rule.line
        )),
        (Code::NoRule, _) => {
            let ceiling = |reason: &Reason| matches!(&reason.rule, Some(rule) if rule.layer == Layer::Person);
            let more = match decision.reasons.iter().any(ceiling) {
                true => "",
                false => "; the ceiling must allow it, too",
            };
            Some(format!(
                "add {} to {root}/{RULE_FILE}, then `bailiwick trust`{more}",
                line_for(request)
            ))
        }
        (Code::OutsideLimits, Some(rule)) => Some(format!(
            "widen the limits of `{}` at {}:{}",
            rule.act, rule.file, rule.line
        )),
        (Code::BudgetSpent, Some(rule)) if matches!(request.resource, Resource::Tool(_)) => Some(format!(
            "raise the budget at {}:{}, or have it begin anew: `bailiwick budgets list` names it for `reset`",
            rule.file, rule.line
        )),
        (Code::BudgetSpent, Some(rule)) => Some(format!(
            "raise the budget of `{}` at {}:{}, or start another task",
            rule.act, rule.file, rule.line
        )),
        (Code::AddressLoopback | Code::AddressPrivate, _) => {
            Some("name the address itself in a rule, or pin the name to it under [network.hosts]".into())
        }
        (Code::AddressLinkLocal, _) => Some("nothing can: link-local addresses are always refused".into()),
        (Code::AskedByRule, Some(rule)) => Some(format!(
            "a person says yes with `bailiwick approve` while it waits; or allow it at {}:{}",
            rule.file, rule.line
        )),
        (Code::FlowRefused, Some(rule)) => Some(format!(
            "name it in `may_reach` of `{}` at {}:{}, or begin another task, which has read nothing",
            rule.act, rule.file, rule.line
        )),
        (Code::FlowRefused, None) => Some("begin another task, which has read nothing".into()),
        (Code::FlowAsked, Some(rule)) => Some(format!(
            "a person says yes with `bailiwick approve` while it waits; or name it in `may_reach` of `{}` at {}:{}",
            rule.act, rule.file, rule.line
        )),
        (Code::InfluenceAsked, Some(rule)) => Some(format!(
            "a person says yes with `bailiwick approve` while it waits; or hold the argument to one value at {}:{}",
            rule.file, rule.line
        )),
        (Code::OutOfHours, Some(rule)) => Some(format!("wait; or widen the hours at {}:{}", rule.file, rule.line)),
        (Code::NobodyPresent, Some(rule)) => Some(format!(
            "have them open `bailiwick approve` or the console; or take `{}` out at {}:{}",
            rule.act, rule.file, rule.line
        )),
        (Code::FourEyes, Some(rule)) => Some(format!(
            "two people say yes while it waits; or take `{}` out at {}:{}",
            rule.act, rule.file, rule.line
        )),
        _ => None,
    }
}

/// The two ways to let a host be reached over TLS.
fn opened_or_not(host: &Host) -> String {
    format!("`allow = [\"GET https://{host}/**\"]` under [network] (or `tunnel = [\"{host}\"]`, for all of it unread)")
}

fn line_for(request: &Request) -> String {
    match &request.resource {
        Resource::File(path) | Resource::Tree(path) => {
            let (key, table) = match request.verb {
                Verb::Read => ("read", "files"),
                Verb::Keep => ("keep", "state"),
                _ => ("write", "files"),
            };
            format!("`{key} = [\"{path}\"]` under [{table}]")
        }
        Resource::Endpoint { host, port: 443 } => opened_or_not(host),
        Resource::Endpoint { host, port } => format!("`tunnel = [\"{host}:{port}\"]` under [network]"),
        // A rule has no query.
        Resource::Url(url) => format!(
            "`allow = [\"{} {}://{}{}\"]` under [network]",
            request.verb,
            url.scheme.as_str(),
            url.host_header(),
            url.path()
        ),
        Resource::Repository { .. } => format!("`allow = [\"{request}\"]` under [network]"),
        Resource::Name(host) => opened_or_not(host),
        Resource::Command(command) => {
            let form = command.forms().first();
            let name = form.and_then(|form| form.licensed.first().or_else(|| form.paths.first()));
            match name {
                Some(name) => format!("`allow = [\"{name}\"]` under [commands]"),
                None => "a rule under [commands] with the program's path".into(),
            }
        }
        Resource::Secret(_) | Resource::Tool(_) => format!("`allow = [\"{request}\"]` at the top"),
    }
}
