//! A question as a person is shown it: made from the canonical request, whole.
//!
//! Promises: P8 (nothing of a request is left out or drawn by it: each piece is whole and in visible form; what the agent says
//! about it stands apart). Trust: every text in a request is the agent's.
//! Not here: offers (`offers`), front ends (`tui`, `console`).

use bailiwick_gate::desk::Detail;
use bailiwick_gate::{MayAnswer, Waiting};
use bailiwick_model::{
    Argument, Code, Command, Host, HttpUrl, NormalForm, Request, Resource, ToolName, Verb, Verdict, argument,
    parameters, visible,
};

use crate::flow::may_be_chosen;
use crate::offers::{in_words, with_args};

/// As many blanks in a row as are shown as their number.
const BLANKS: usize = 4;

/// The question as one sentence.
pub(crate) fn sentence(waiting: &Waiting) -> String {
    let program = waiting.command.first().map_or("a program", String::as_str);
    let program = program.rsplit('/').next().unwrap_or(program);
    let resource = shown(&with_args(&waiting.request));
    let address = waiting.request.address().map(|address| format!(" at {address}"));
    format!(
        "{} wants to {}{}",
        shown(program),
        in_words(&waiting.request.verb, &resource),
        address.unwrap_or_default()
    )
}

/// The act as one line, with the address that it would go to.
pub(crate) fn act(request: &Request) -> String {
    let address = request.address().map(|address| format!(" at {address}"));
    let act = format!("{} {}", request.verb, with_args(request));
    format!("{}{}", shown(&act), address.unwrap_or_default())
}

/// Why it is asked.
pub(crate) fn because(waiting: &Waiting) -> Vec<String> {
    let asks = waiting.against.reasons.iter();
    let asks = asks.filter(|reason| reason.verdict == Verdict::Ask);
    let mut lines: Vec<String> = asks.map(|reason| visible(&reason.text)).collect();
    if let Some((_, sentence)) = &waiting.seconded_to {
        let names: Vec<&str> = waiting.seconded.iter().map(|by| by.name.as_str()).collect();
        let (names, sentence) = (names.join(" and "), visible(sentence));
        lines.push(format!(
            "{} said yes to: {sentence}; another must say yes to the same",
            visible(&names)
        ));
    }
    lines.extend(waiting.approvers.as_deref().map(who_may));
    lines
}

/// Who may say yes, in words.
pub(crate) fn who_may(all: &[MayAnswer]) -> String {
    let one = |may: &MayAnswer| match may.after {
        0 => visible(&may.name),
        after => format!("{} (after {after} s)", visible(&may.name)),
    };
    match all.iter().map(one).collect::<Vec<_>>().as_slice() {
        [] => "nobody may say yes to this: no layer's rules name the same person".into(),
        names => format!("{} may say yes", names.join(", ")),
    }
}

/// Text of the agent's on one line: in visible form, runs of blanks as their number.
pub(crate) fn shown(text: &str) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len());
    let mut blanks = 0usize;
    for character in text.chars().map(Some).chain([None]) {
        match character {
            Some(' ') => blanks = blanks.saturating_add(1),
            other => {
                match blanks {
                    0..BLANKS => (0..blanks).for_each(|_| out.push(' ')),
                    _ => out.push_str(&format!(" \\u{{20}}×{blanks} ")),
                }
                blanks = 0;
                out.extend(other);
            }
        }
    }
    out
}

/// What questions are grouped by: the verb, and the program with its subcommand, the host or the folder.
pub(crate) fn kind(request: &Request) -> String {
    let of = match &request.resource {
        Resource::File(path) | Resource::Tree(path) => path
            .parent()
            .map_or_else(|| path.to_string(), |folder| folder.to_string()),
        Resource::Url(url) | Resource::Repository { url, .. } => url.host.to_string(),
        Resource::Endpoint { host, .. } | Resource::Name(host) => host.to_string(),
        Resource::Command(command) => program_of(command),
        Resource::Secret(name) => name.to_string(),
        Resource::Tool(tool) => tool.to_string(),
    };
    format!("{} {}", request.verb, shown(&of))
}

fn program_of(command: &Command) -> String {
    let Some(form) = command.forms().first() else {
        return String::new();
    };
    let name = form.names.first().cloned().unwrap_or_default();
    let parts = form.subcommand.iter().filter_map(|part| part.first());
    parts.fold(name, |sum, part| format!("{sum} {part}"))
}

/// All pieces of a request, with what is to be minded of arguments that untrusted text may have chosen.
pub(crate) fn all_details(waiting: &Waiting) -> Vec<Detail> {
    let asks = waiting.against.reasons.iter();
    let chosen: Vec<&str> = asks
        .filter(|reason| reason.code == Code::InfluenceAsked)
        .map(|reason| reason.text.as_str())
        .collect();
    let minded = |mut detail: Detail| {
        if let Some(name) = detail.name.strip_prefix("argument ") {
            // Of a field within an argument, the argument.
            let whole = may_be_chosen(name);
            let within = whole.split_once("` ").map(|(head, _)| format!("{head}."));
            let about =
                |text: &&&str| text.starts_with(&whole) || within.as_ref().is_some_and(|head| text.starts_with(head));
            if let Some(text) = chosen.iter().find(about) {
                detail.mind = Some(visible(text));
            }
        }
        detail
    };
    details(&waiting.request).into_iter().map(minded).collect()
}

/// All pieces of a request.
pub(crate) fn details(request: &Request) -> Vec<Detail> {
    let mut all = match &request.resource {
        Resource::File(path) => vec![piece("path", path.as_str())],
        Resource::Tree(path) => vec![piece("folder", path.as_str())],
        Resource::Url(url) => of_url(&request.verb, url),
        Resource::Repository { url, .. } => {
            let mut all = of_host(&url.host, url.port);
            all.push(piece("repository", &request.resource.to_string()));
            all
        }
        Resource::Endpoint { host, port } => of_host(host, *port),
        Resource::Name(host) => vec![host_piece(host)],
        Resource::Command(command) => of_command(command),
        Resource::Secret(name) => vec![piece("secret", &name.to_string())],
        Resource::Tool(tool) => of_tool(&request.verb, tool),
    };
    for (name, value) in &request.arguments {
        let value = match value {
            Argument::Fields(_) if name == argument::CHOSEN => {
                all.push(piece("chosen from", &value.to_string()));
                continue;
            }
            // The caller's own names are told apart from those of the gate.
            Argument::Fields(fields) => {
                let own = |(name, value): (&String, &Argument)| {
                    let text = match value {
                        Argument::Text(text) => text.clone(),
                        other => other.to_string(),
                    };
                    piece(&format!("argument {}", shown(name)), &text)
                };
                all.extend(fields.iter().map(own));
                continue;
            }
            Argument::Number(_) | Argument::Null | Argument::List(_) => value.to_string(),
            Argument::Text(text) => text.clone(),
            Argument::Whole(number) => number.to_string(),
            Argument::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Argument::Address(address) => address.to_string(),
        };
        all.push(piece(&shown(name), &value));
    }
    if !request.label.is_empty() {
        let tags: Vec<String> = request.label.tags().map(ToString::to_string).collect();
        all.push(piece("tags of its data", &tags.join("\n")));
    }
    all
}

fn of_tool(verb: &Verb, tool: &ToolName) -> Vec<Detail> {
    let name = match verb {
        Verb::Open => "resource",
        Verb::Prompt => "prompt",
        _ => "tool",
    };
    let mut all = vec![piece("server", tool.server())];
    if !tool.name().is_empty() {
        all.push(piece(name, tool.name()));
    }
    all
}

fn piece(name: &str, value: &str) -> Detail {
    Detail {
        name: name.into(),
        lines: value.split('\n').map(shown).collect(),
        mind: None,
    }
}

fn of_url(verb: &Verb, url: &HttpUrl) -> Vec<Detail> {
    let mut all = vec![piece("method", verb.as_str()), piece("scheme", url.scheme.as_str())];
    all.extend(of_host(&url.host, url.port));
    all.push(piece("path", url.path()));
    let Some(query) = url.query() else { return all };
    match parameters(query) {
        Ok(read) => all.extend(
            read.iter()
                .map(|(name, value)| piece(&format!("query {}", shown(name)), value)),
        ),
        Err(_) => all.push(piece("query, as it stands", query)),
    }
    all
}

fn of_host(host: &Host, port: u16) -> Vec<Detail> {
    vec![host_piece(host), piece("port", &port.to_string())]
}

/// A host stands in ASCII; what it would look like elsewhere is what to mind.
fn host_piece(host: &Host) -> Detail {
    Detail {
        mind: host.looks_like().map(|name| {
            let scripts = if is_mixed(&name) {
                "letters of several scripts"
            } else {
                "letters beyond ASCII"
            };
            format!(
                "elsewhere this is shown as `{}`: {scripts}, it may look like another name",
                visible(&name)
            )
        }),
        ..piece("host", &host.to_string())
    }
}

/// True where one label has ASCII letters beside others.
fn is_mixed(name: &str) -> bool {
    name.split('.').any(|label| {
        let letters = |ascii: bool| label.chars().any(|c| c.is_alphabetic() && c.is_ascii() == ascii);
        letters(true) && letters(false)
    })
}

fn of_command(command: &Command) -> Vec<Detail> {
    let mut all = Vec::new();
    let Some(form) = command.forms().first() else {
        return all;
    };
    all.push(piece("program", form.words.first().map_or("", String::as_str)));
    for path in &form.paths {
        all.push(piece("file of the program", path));
    }
    for (place, word) in form.words.iter().enumerate().skip(1) {
        all.push(piece(&format!("word {place}"), word));
    }
    for (name, value) in &form.steering {
        all.push(piece(&format!("variable {}", shown(name)), value));
    }
    if form.cut {
        all.push(piece("mind", "there are more words than are kept: these are not all"));
    }
    let carried: Vec<&NormalForm> = command
        .forms()
        .iter()
        .skip(1)
        .filter(|form| !form.only_against)
        .collect();
    if !carried.is_empty() {
        let names: Vec<&str> = carried
            .iter()
            .filter_map(|form| form.names.first().map(String::as_str))
            .collect();
        all.push(piece(
            "starts",
            &format!("{} more: {}", carried.len(), names.join(", ")),
        ));
    }
    for (what, list) in [
        ("reads", &form.effects.reads),
        ("changes", &form.effects.writes),
        ("starts", &form.effects.starts),
        ("contacts", &form.effects.contacts),
    ] {
        if !list.is_empty() {
            all.push(piece(what, &list.join("\n")));
        }
    }
    all
}
