//! What a rule may not say: what this build cannot enforce, and what could never matter.
//!
//! Promises: P4, P13 (a rule that cannot be kept is refused at load, with what would be kept instead).
//! Not here: rules against each other (`overlap`).

use bailiwick_gate::{Reading, Start};
use bailiwick_model::{
    Act, AddressClass, Anchors, AnswerPart, Argument, Decimal, Host, HostPattern, HttpUrl, Request, Resource,
    ResourcePattern, SecretPattern, TaskId, Verb, VerbPattern, Verdict, argument, read_repository, words_of,
};

use crate::rule::host_of;
use crate::site::unowned;

/// What is wrong with a rule, and what would be right.
pub(crate) struct Objection {
    pub message: String,
    pub hint: Option<String>,
}

fn object<T>(message: String, hint: impl Into<String>) -> Result<T, Objection> {
    Err(Objection {
        message,
        hint: Some(hint.into()),
    })
}

/// Refuses what this build cannot keep. `text` is the rule as it was written.
pub(crate) fn judge(effect: Verdict, act: &Act, text: &str) -> Result<(), Objection> {
    if let Some((message, hint)) = host_of(act).and_then(unowned) {
        return object(message, hint);
    }
    if effect == Verdict::Deny {
        return Ok(());
    }
    if let Some(HostPattern::Exact(Host::Address(address))) = host_of(act)
        && AddressClass::of(*address) == AddressClass::LinkLocal
    {
        let hint =
            "link-local addresses, where clouds keep their metadata services, are always refused: take the rule out";
        return object(format!("`{text}` can never match"), hint);
    }
    if let Some(HostPattern::Below { domain, .. }) = host_of(act)
        && Host::Name(domain.clone()).is_localhost()
    {
        let hint = "this machine must be named: write `localhost` or `127.0.0.1` with a port";
        return object(format!("`{text}` can never match"), hint);
    }
    match &act.resource {
        ResourcePattern::Tool(_) if act.verb == VerbPattern::One(Verb::Accept) => {
            let hint = "take it out: what is new or has changed is asked about wherever its tool may be called";
            object(format!("`{text}` is always asked"), hint)
        }
        ResourcePattern::Path(_) if effect == Verdict::Ask && act.verb == VerbPattern::One(Verb::Keep) => object(
            format!("`{text}` cannot be asked: what a context keeps is laid before its program starts"),
            "allow it, or take the line out",
        ),
        ResourcePattern::Path(path) if effect == Verdict::Ask && path.as_tree().is_some() => Ok(()),
        ResourcePattern::Path(_) if matches!(act.verb, VerbPattern::One(Verb::Create | Verb::Delete)) => {
            let hint = "a granted tree is granted for all changes: use `write`, with a deny for exceptions";
            object(
                format!("`{text}` cannot be told apart from `write` in this build"),
                hint,
            )
        }
        ResourcePattern::Path(_) if text.split(' ').any(|word| word.starts_with("**")) => {
            let hint = "name a folder, for instance `.` or `~/src`; only a deny may begin with `**`";
            object(format!("`{text}` is too wide for an allow"), hint)
        }
        ResourcePattern::Path(path) if path.as_tree().is_none() => {
            let hint = format!(
                "name the whole folder `{}`, with a deny for what is inside it",
                path.anchor()
            );
            object(
                format!("`{text}` has a wildcard, and allows and asks of files must name a folder or one file"),
                hint,
            )
        }
        _ => Ok(()),
    }
}

/// Reads one act without wildcards as what would be asked: an example in a rule, or what `can` is given.
pub fn asked_for(text: &str, anchors: &Anchors, reading: &dyn Reading) -> Result<(Verb, Resource), String> {
    let wild = || format!("`{text}` has a wildcard: name one file, host, url or command");
    let (word, rest) = text.trim().split_once(' ').unwrap_or((text, ""));
    if let Some(verb) = word.parse().ok().filter(Verb::is_command)
        && !rest.trim().is_empty()
    {
        let words = words_of(rest).map_err(|error| error.to_string())?;
        let directory = anchors.root.as_ref().unwrap_or(&anchors.home);
        let start = Start::typed(words, directory.as_str());
        if start.words.is_empty() {
            return Err(format!("`{text}` names no program"));
        }
        return Ok((verb, reading.read(&start)));
    }
    if let (Ok(verb @ Verb::Http(_)), true) = (word.parse(), rest.contains("://")) {
        if rest.contains('*') {
            return Err(wild());
        }
        let url = HttpUrl::parse(rest.trim()).map_err(|error| error.to_string())?;
        return Ok((verb, Resource::Url(url)));
    }
    if let Ok(verb @ (Verb::Fetch | Verb::Push)) = word.parse() {
        if rest.contains('*') {
            return Err(wild());
        }
        let (url, reference) = read_repository(rest).map_err(|error| error.to_string())?;
        return Ok((verb, Resource::Repository { url, reference }));
    }
    let act = Act::parse(text, anchors).map_err(|error| error.to_string())?;
    let VerbPattern::One(verb) = act.verb else {
        return Err(format!("`{text}` names no single verb"));
    };
    let resource = match act.resource {
        ResourcePattern::Path(path) => Resource::File(path.as_tree().ok_or_else(wild)?),
        ResourcePattern::Url(_) | ResourcePattern::Repository(_) => return Err(wild()),
        ResourcePattern::Endpoint {
            host: HostPattern::Exact(host),
            ..
        } if verb == Verb::Resolve => Resource::Name(host),
        ResourcePattern::Endpoint {
            host: HostPattern::Exact(host),
            port,
        } if port != bailiwick_model::ANY_PORT => Resource::Endpoint { host, port },
        ResourcePattern::Endpoint { .. } => return Err(wild()),
        ResourcePattern::Secret(SecretPattern::One(name)) => Resource::Secret(name),
        ResourcePattern::Tool(pattern) => Resource::Tool(pattern.as_name().ok_or_else(wild)?),
        ResourcePattern::AnyCommand | ResourcePattern::Command(_) | ResourcePattern::Secret(SecretPattern::Any) => {
            return Err(wild());
        }
    };
    Ok((verb, resource))
}

/// Reads one act without wildcards as a request: `call` may have arguments behind it, as an object of JSON, and behind them
/// what they were chosen from: `call air/book {"flight": {…}} among {"flight": {"air/search#/flights/*": [{…}, {…}]}}`.
pub fn request_for(text: &str, anchors: &Anchors, reading: &dyn Reading) -> Result<Request, String> {
    let nobody = TaskId([0; 8]);
    let call = text
        .trim()
        .strip_prefix("call ")
        .and_then(|rest| rest.trim().split_once([' ', '{']).map(|_| rest.trim()));
    let Some(rest) = call else {
        let (verb, resource) = asked_for(text, anchors, reading)?;
        return Ok(Request::new(nobody, verb, resource));
    };
    let end = rest.find([' ', '{']).unwrap_or(rest.len());
    let (name, args) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (verb, resource) = asked_for(&format!("call {name}"), anchors, reading)?;
    let mut request = Request::new(nobody, verb, resource);
    let wrong = |error: serde_json::Error| format!("`{name}` has no arguments of JSON: {error}");
    let mut values = serde_json::Deserializer::from_str(args).into_iter::<serde_json::Value>();
    let whole = values.next().transpose().map_err(wrong)?.unwrap_or_default();
    match argument_of(&whole)? {
        fields @ Argument::Fields(_) => request.arguments.insert(argument::ARGS.into(), fields),
        _ => return Err(format!("`{name}` has no arguments: they stand in `{{…}}`")),
    };
    let rest = args.get(values.byte_offset()..).unwrap_or("").trim();
    if rest.is_empty() {
        return Ok(request);
    }
    let among = rest.strip_prefix("among").map(str::trim_start);
    let Some(among) = among.filter(|among| among.starts_with('{')) else {
        return Err(format!("`{rest}` says nothing behind the arguments of `{name}`"));
    };
    chosen(&mut request, among)?;
    Ok(request)
}

/// Reads what arguments were chosen from.
fn chosen(request: &mut Request, text: &str) -> Result<(), String> {
    let whole: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("behind `among` stands no JSON: {error}"))?;
    for (argument, parts) in whole.as_object().into_iter().flatten() {
        for (part, entries) in parts.as_object().into_iter().flatten() {
            let part = AnswerPart::parse(part).map_err(|error| error.to_string())?;
            let Argument::List(entries) = argument_of(entries)? else {
                return Err(format!("what `{argument}` was chosen from is no list"));
            };
            request.choosing(argument, &part, entries);
        }
    }
    if request.arguments.contains_key(argument::CHOSEN) {
        return Ok(());
    }
    let shape = "{\"flight\": {\"air/search#/flights/*\": […]}}";
    Err(format!("write what was chosen from where: `among {shape}`"))
}

/// A value of JSON, as it was written.
fn argument_of(value: &serde_json::Value) -> Result<Argument, String> {
    use serde_json::Value;
    Ok(match value {
        Value::Null => Argument::Null,
        Value::Bool(flag) => Argument::Flag(*flag),
        Value::String(text) => Argument::Text(text.clone()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Argument::Whole(whole),
            None => Argument::Number(Decimal::parse(&number.to_string()).map_err(|error| error.to_string())?),
        },
        Value::Array(all) => Argument::List(all.iter().map(argument_of).collect::<Result<_, _>>()?),
        Value::Object(all) => {
            let field = |(name, value): (&String, &Value)| Ok((name.clone(), argument_of(value)?));
            Argument::Fields(all.iter().map(field).collect::<Result<_, String>>()?)
        }
    })
}
