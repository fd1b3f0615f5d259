//! `bailiwick can`: the same answer as the gate would give, without doing anything.
//!
//! Promises: P14: the very function that the mediator decides with is called here, over the same rules.

use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_gate::desk::Granted;
use bailiwick_gate::{Reading as _, Start};
use bailiwick_model::{
    AbsPath, Decision, Host, HttpUrl, Request, Resource, Scheme, SecretName, TaskId, Verb, Verdict, words_of,
};
use bailiwick_policy::Policy;

use crate::advice;
use crate::cli::CanArgs;
use crate::context::Context;
use crate::failure::{Done, Exit, Failure};
use crate::line::{Judged, answer, judge, strictest};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// Which verbs there are.
const VERBS: &str = "files: read, write, create, delete, keep; commands: run, broker; network: tunnel, resolve, fetch, push, GET, POST and the other methods; secrets: use";

/// Runs the command.
pub fn run(args: &CanArgs) -> Done {
    let places = Places::find()?;
    let here = super::run::here()?;
    let store = super::trust::store_if_there(&places)?;
    let context = Context::find(
        &here,
        &places,
        args.program.as_deref(),
        store.as_ref().map(|store| store as _),
    )?;
    let policy = Arc::new(context.load()?);
    if let Some(text) = args.act.trim().strip_prefix("run ") {
        return line(args, text, &context, &policy, &here, &places.home);
    }
    let (request, note) = match args.act.trim().strip_prefix("broker ") {
        Some(text) => (brokered(text, &here, &context)?, None),
        None => read(&args.act, &here, &places.home, &context.root, &policy)?,
    };
    let decision = answer(&policy, &request);
    let granted = granted(&places, &context, &request, &decision);
    if args.json {
        let answer = serde_json::json!({
            "request": request,
            "decision": decision,
            "root": context.root,
            "note": note,
            "granted": granted,
        });
        tellln!("{answer}");
    } else {
        crate::talk::tell(&advice::told(&request, &decision, &context.root));
        if let Some(granted) = &granted {
            tellln!("yes, by grant {}: {}", granted.id, visible(&granted.sentence));
        }
        if let Some(note) = note {
            tellln!("  note: {}", bailiwick_model::visible(&note));
        }
    }
    Ok(if granted.is_some() {
        ExitCode::SUCCESS
    } else {
        ended(decision.verdict)
    })
}

/// The grant that answers what is asked, where the daemon that runs knows one.
fn granted(places: &Places, context: &Context, request: &Request, decision: &Decision) -> Option<Granted> {
    if decision.verdict != Verdict::Ask {
        return None;
    }
    let mut link = Link::to_running(places).ok()??;
    let call = PersonCall::Covered {
        context: context.id(),
        request: Box::new(request.clone()),
        decision: Box::new(decision.clone()),
    };
    link.say(&call).ok()?;
    match link.hear().ok()? {
        PersonAnswer::Granted(Ok(granted)) => granted.map(|granted| *granted),
        _ => None,
    }
}

/// A command that is to run outside, as a request.
fn brokered(text: &str, here: &AbsPath, context: &Context) -> Result<Request, Failure> {
    let words = words_of(text).map_err(|e| Failure::usage(e.to_string()))?;
    let start = Start::typed(words, here.as_str());
    if start.words.is_empty() {
        return Err(Failure::usage(format!("`broker {text}` names no program")));
    }
    Ok(Request::new(
        TaskId([0; 8]),
        Verb::Broker,
        context.grammars()?.read(&start),
    ))
}

fn ended(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Allow => ExitCode::SUCCESS,
        Verdict::Ask => Exit::Waiting.into(),
        Verdict::Deny => Exit::Denied.into(),
    }
}

/// Answers about a command, or a line of several: each part by itself, and the strictest for all.
fn line(args: &CanArgs, text: &str, context: &Context, policy: &Arc<Policy>, here: &AbsPath, home: &AbsPath) -> Done {
    let places = Places::find()?;
    let mut parts = judge(policy, &context.grammars()?, text, here, home);
    let mut by_grants = Vec::new();
    for part in &mut parts {
        let grant = part.request.as_ref();
        let grant = grant.and_then(|request| granted(&places, context, request, &part.decision));
        if let Some(grant) = grant {
            part.decision.verdict = Verdict::Allow;
            part.decision.code = bailiwick_model::Code::AllowedByGrant;
            by_grants.push(grant);
        }
    }
    let Some(strictest) = strictest(&parts) else {
        return Err(Failure::usage(format!("`{text}` starts nothing")).hint("write a command, as in `run git push`"));
    };
    if args.json {
        let part = |part: &Judged| serde_json::json!({ "request": part.request, "decision": part.decision });
        let answer = serde_json::json!({
            "request": strictest.request,
            "decision": strictest.decision,
            "root": context.root,
            "note": null,
            "parts": parts.iter().map(part).collect::<Vec<_>>(),
        });
        tellln!("{answer}");
    } else {
        for grant in &by_grants {
            tellln!("granted ({}): {}", grant.id, visible(&grant.sentence));
        }
        for part in &parts {
            let told = match &part.request {
                Some(request) => advice::told(request, &part.decision, &context.root),
                None => format!("ask: {} ({})\n", visible(&part.text()), part.decision.code),
            };
            crate::talk::tell(&told);
        }
        if parts.len() > 1 {
            let word = match strictest.decision.verdict {
                Verdict::Allow => "yes",
                Verdict::Ask => "ask",
                Verdict::Deny => "no",
            };
            let part = visible(&strictest.text());
            match strictest.request {
                Some(_) => tellln!("{word}: the whole line, by `{part}`"),
                None => tellln!("{word}: the whole line, since {part}"),
            }
        }
    }
    Ok(ended(strictest.decision.verdict))
}

/// Reads one act, without wildcards, as a request; a note says what was read differently than written.
fn read(
    text: &str,
    here: &AbsPath,
    home: &AbsPath,
    root: &AbsPath,
    policy: &Arc<Policy>,
) -> Result<(Request, Option<String>), Failure> {
    let form = || {
        Failure::usage(format!("`{text}` is not an act: write `VERB RESOURCE`"))
            .hint("for instance \"read ~/.ssh/id_ed25519\", \"write src/main.rs\", \"GET http://localhost:8080/x\", \"tunnel api.anthropic.com\"")
    };
    let (verb, resource) = text.trim().split_once(' ').ok_or_else(form)?;
    let resource = resource.trim();
    let verb: Verb = verb
        .parse()
        .map_err(|e: bailiwick_model::ActError| Failure::usage(e.to_string()).hint(VERBS))?;
    let ask = |verb, resource| Request::new(TaskId([0; 8]), verb, resource);
    let usage = |e: &dyn std::fmt::Display| Failure::usage(e.to_string());
    match verb {
        Verb::Http(method) => {
            let url = HttpUrl::parse(resource).map_err(|e| usage(&e))?;
            let asked = ask(Verb::Http(method), Resource::Url(url.clone()));
            Ok(over_http(asked, &url, policy))
        }
        Verb::Tunnel => {
            let (host, port) = HttpUrl::authority(resource, 443).map_err(|e| usage(&e))?;
            Ok((ask(Verb::Tunnel, Resource::Endpoint { host, port }), None))
        }
        Verb::Fetch | Verb::Push => {
            let (url, reference) = bailiwick_model::read_repository(resource).map_err(|e| usage(&e))?;
            let asked = ask(
                verb,
                Resource::Repository {
                    url: url.clone(),
                    reference,
                },
            );
            Ok(over_http(asked, &url, policy))
        }
        Verb::Resolve => {
            let host = Host::parse(resource).map_err(|e| usage(&e))?;
            Ok((ask(Verb::Resolve, Resource::Name(host)), None))
        }
        Verb::Use => {
            let name = resource.strip_prefix("secret:").ok_or_else(form)?;
            let name = SecretName::parse(name).map_err(|e| usage(&e))?;
            Ok((ask(Verb::Use, Resource::Secret(name)), None))
        }
        // With arguments, as JSON behind the tool's name.
        Verb::Call if resource.contains('{') => {
            let anchors = bailiwick_model::Anchors {
                root: Some(root.clone()),
                home: home.clone(),
            };
            let asked = bailiwick_policy::request_for(text, &anchors, &bailiwick_gate::AsWritten);
            Ok((asked.map_err(|e| usage(&e))?, None))
        }
        Verb::Call | Verb::Open | Verb::Prompt | Verb::Sample | Verb::Elicit | Verb::Roots | Verb::Accept => {
            let tool = resource.parse().map_err(|e: bailiwick_model::ToolError| usage(&e))?;
            Ok((ask(verb, Resource::Tool(tool)), None))
        }
        // A line is read before this.
        Verb::Run | Verb::Broker => Err(form()),
        Verb::Read | Verb::Write | Verb::Create | Verb::Delete | Verb::Keep => file(verb, resource, here, home, root),
    }
}

/// What the gate asks about what goes to a URL: that, or the tunnel that it would go through unread.
fn over_http(asked: Request, url: &HttpUrl, policy: &Arc<Policy>) -> (Request, Option<String>) {
    let endpoint = Resource::Endpoint {
        host: url.host.clone(),
        port: url.port,
    };
    let tunnel = Request::new(asked.task, Verb::Tunnel, endpoint);
    let passes = url.scheme == Scheme::Https
        && !policy.settings().opens(&url.host, url.port)
        && answer(policy, &tunnel).verdict != Verdict::Deny;
    if !passes {
        return (asked, None);
    }
    let note = format!("`{asked}` goes through a tunnel, which a rule names: methods and paths inside are not seen");
    (tunnel, Some(note))
}

fn file(
    verb: Verb,
    text: &str,
    here: &AbsPath,
    home: &AbsPath,
    root: &AbsPath,
) -> Result<(Request, Option<String>), Failure> {
    let (text, tree) = match text.strip_suffix("/**") {
        Some(folder) => (if folder.is_empty() { "/" } else { folder }, true),
        None => (text, false),
    };
    if text.contains('*') {
        return Err(Failure::usage(format!(
            "`{text}` is a pattern; ask about one path, or about a folder with `/**` at its end"
        )));
    }
    let written = match text.strip_prefix("~") {
        Some("") => home.clone(),
        Some(rest) if rest.starts_with('/') => home
            .join(rest.trim_start_matches('/'))
            .map_err(|e| Failure::usage(e.to_string()))?,
        _ => here.join(text).map_err(|e| Failure::usage(e.to_string()))?,
    };
    // What counts is the object that is reached: links are followed, as the kernel would.
    let reached = std::fs::canonicalize(written.to_path_buf())
        .ok()
        .and_then(|path| AbsPath::new(path).ok());
    let (path, mut note) = match reached {
        Some(reached) if reached != written => {
            let note = format!("{written} leads to {reached}, and that is what is judged");
            (reached, Some(note))
        }
        _ => (written, None),
    };
    let private = ["/tmp", "/var/tmp", "/proc", "/dev"]
        .iter()
        .any(|top| AbsPath::new(top).is_ok_and(|top| top.holds(&path)));
    if private && note.is_none() && !root.holds(&path) {
        note = Some(format!(
            "{path} lies in a place that is made new and private for each task: inside, other files stand there"
        ));
    }
    let resource = if tree {
        Resource::Tree(path)
    } else {
        Resource::File(path)
    };
    Ok((Request::new(TaskId([0; 8]), verb, resource), note))
}
