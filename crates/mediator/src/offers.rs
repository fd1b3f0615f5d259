//! What a yes to a request may cover, from narrow to wide.
//!
//! Promises: P8 (each offer is a capability that covers the request, and says in words what it covers, all of it), P4 (what
//! cannot be said for sure as an act is not offered), P14 (a function of the request alone).
//! Trust: the request is the agent's. An offer answers questions only: whatever else the rules deny stays denied, so that
//! no offer goes beyond the ceiling.
//! Not here: how long and how often (`gate::desk::Terms`), giving grants (`grants`).

use bailiwick_authority::covers;
use bailiwick_gate::desk::Offer;
use bailiwick_model::{
    AbsPath, Act, Anchors, Capability, CommandPattern, HttpUrl, Millis, NormalForm, PathPattern, Reference, Request,
    Resource, ResourcePattern, Verb, VerbPattern, argument, visible,
};

/// Most offers of one question.
const MAX_OFFERS: usize = 6;

/// Most words of a command that a wide offer names.
const MAX_HEAD: usize = 4;

/// As much of what is given with a call as stands in a sentence, in characters.
const MAX_ARGS: usize = 400;

/// All offers for a request: itself, once; then wider ones.
pub(crate) fn offers(request: &Request) -> Vec<Offer> {
    let itself = Offer {
        acts: Vec::new(),
        says: format!("may {}", in_words(&request.verb, &visible(&with_args(request)))),
    };
    let mut all = vec![itself];
    // One of several is chosen for this once; and what a server says next has nobody seen yet.
    if request.arguments.contains_key(argument::CHOICE) || request.verb == Verb::Accept {
        return all;
    }
    for wide in wider(request) {
        let known = |offer: &Offer| offer.acts == wide.acts;
        if all.len() < MAX_OFFERS && is_sound(&wide, request) && !all.iter().any(known) {
            all.push(wide);
        }
    }
    all
}

/// What is acted on, with what is given with a call: as much as a sentence takes. The question's details have it whole.
pub(crate) fn with_args(request: &Request) -> String {
    let Some(args) = request.arguments.get(argument::ARGS).map(ToString::to_string) else {
        return request.resource.to_string();
    };
    match args.char_indices().nth(MAX_ARGS) {
        None => format!("{} with {args}", request.resource),
        Some((end, _)) => {
            let begin = args.get(..end).unwrap_or_default();
            format!("{} with {begin}… (more of it below)", request.resource)
        }
    }
}

/// True when the acts cover the request, read back as the same acts, and stand for nothing else than they seem to: a `*` in
/// the name of a file is a wildcard in an act.
fn is_sound(offer: &Offer, request: &Request) -> bool {
    if !matches!(request.resource, Resource::Command(_)) && request.resource.to_string().contains('*') {
        return false;
    }
    let capability = Capability {
        acts: offer.acts.clone(),
        constraints: bailiwick_model::Constraints::default(),
    };
    let again = |act: &Act| Act::parse(&act.to_string(), &nowhere()).as_ref() == Ok(act);
    covers(&capability, request, Millis(0)) && offer.acts.iter().all(again)
}

/// What acts are read against that hold nothing relative.
fn nowhere() -> Anchors {
    Anchors {
        root: None,
        home: AbsPath::root(),
    }
}

fn wider(request: &Request) -> Vec<Offer> {
    match &request.resource {
        Resource::File(path) | Resource::Tree(path) => of_path(&request.verb, path),
        Resource::Url(url) => of_url(request, url),
        Resource::Repository { url, reference } => of_repository(&request.verb, url, reference),
        Resource::Endpoint { .. } | Resource::Name(_) | Resource::Secret(_) | Resource::Tool(_) => {
            of_text(request).into_iter().collect()
        }
        Resource::Command(command) => {
            let counting: Vec<&NormalForm> = command.forms().iter().filter(|form| !form.only_against).collect();
            of_command(&request.verb, &counting)
        }
    }
}

/// The very act, as often as the terms let.
fn of_text(request: &Request) -> Option<Offer> {
    let act = Act::parse(&request.to_string(), &nowhere()).ok()?;
    Some(one(act))
}

fn one(act: Act) -> Offer {
    Offer {
        says: format!("may {}", act_in_words(&act)),
        acts: vec![act],
    }
}

fn of_path(verb: &Verb, path: &AbsPath) -> Vec<Offer> {
    let act = |verb: &Verb, tree: &AbsPath| Act {
        verb: VerbPattern::One(verb.clone()),
        resource: ResourcePattern::Path(PathPattern::tree(tree)),
    };
    let mut all = vec![one(act(verb, path))];
    // The root's folders and the root itself are more than anybody reads into a question about a file.
    if let Some(folder) = path.parent().filter(|folder| folder.segments().count() > 1) {
        all.push(one(act(verb, &folder)));
        if matches!(verb, Verb::Create | Verb::Delete) {
            all.push(one(act(&Verb::Write, &folder)));
        }
    }
    all
}

fn of_url(request: &Request, url: &HttpUrl) -> Vec<Offer> {
    let whole = HttpUrl::from_parts(url.scheme, url.host.clone(), url.port, "/").map(|url| url.to_string());
    let Ok(whole) = whole else { return Vec::new() };
    let root = whole.trim_end_matches('/');
    let folder = url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    let texts = [
        format!("{} {root}{}", request.verb, url.path()),
        format!("{} {root}{folder}/**", request.verb),
        format!("{} {root}/**", request.verb),
    ];
    let read = |text: &String| Act::parse(text, &nowhere()).ok();
    texts.iter().filter_map(read).map(one).collect()
}

fn of_repository(verb: &Verb, url: &HttpUrl, reference: &Reference) -> Vec<Offer> {
    let mut texts = Vec::new();
    if let Reference::Named(name) = reference {
        texts.push(format!("{verb} {url} {name}"));
        if let Some((folder, _)) = name
            .as_str()
            .rsplit_once('/')
            .filter(|(folder, _)| folder.matches('/').count() > 1)
        {
            texts.push(format!("{verb} {url} {folder}/*"));
        }
    } else {
        texts.push(format!("{verb} {url}"));
    }
    let read = |text: &String| Act::parse(text, &nowhere()).ok();
    texts.iter().filter_map(read).map(one).collect()
}

/// The very command; the same with any further words; the same program and subcommand with any words. A command that carries
/// others, as `env` does, is offered with those, each exactly.
fn of_command(verb: &Verb, forms: &[&NormalForm]) -> Vec<Offer> {
    let act = |pattern: CommandPattern| Act {
        verb: VerbPattern::One(verb.clone()),
        resource: ResourcePattern::Command(Box::new(pattern)),
    };
    let exact: Vec<Act> = forms.iter().map(|form| act(CommandPattern::exactly(form))).collect();
    let said = exact.iter().map(act_in_words).collect::<Vec<_>>().join(", and ");
    let mut all = vec![Offer {
        acts: exact,
        says: format!("may {said}"),
    }];
    let [form] = forms else { return all };
    if !form.known || form.doubtful || form.cut || !form.steering.is_empty() {
        return all;
    }
    let exactly = CommandPattern::exactly(form);
    let opened = |words: Vec<String>| {
        act(CommandPattern {
            exact: false,
            open: true,
            words,
            ..exactly.clone()
        })
    };
    // `git push origin **`: the subcommand, and the operands up to the last one, where no option stands between.
    let plain: Vec<String> = exactly
        .words
        .iter()
        .take_while(|word| !word.starts_with('-'))
        .take(MAX_HEAD)
        .cloned()
        .collect();
    let subcommand = form.subcommand.len();
    let last = plain.len().saturating_sub(1);
    for length in (subcommand.max(1)..=last).rev() {
        if let Some(head) = plain.get(..length) {
            all.push(one(opened(head.to_vec())));
        }
    }
    all
}

/// An act as it stands in a sentence after `may`, in visible form.
pub(crate) fn act_in_words(act: &Act) -> String {
    let resource = visible(&act.resource.to_string());
    match (&act.verb, &act.resource) {
        (VerbPattern::One(verb), ResourcePattern::Path(_)) => {
            format!("{}, and what is below it", in_words(verb, &resource))
        }
        (VerbPattern::One(verb), ResourcePattern::Url(_)) if verb_is_safe(verb) => {
            format!("{}, with any query", in_words(verb, &resource))
        }
        (VerbPattern::One(verb), ResourcePattern::Url(_)) => {
            format!("{}, with any query and body", in_words(verb, &resource))
        }
        (VerbPattern::One(verb), ResourcePattern::Command(pattern)) if pattern.exact => {
            let bare = resource.strip_prefix("@exact ").unwrap_or(&resource);
            format!("{}, in just these words", in_words(verb, bare))
        }
        (VerbPattern::One(verb), ResourcePattern::Command(pattern)) if pattern.open => {
            let bare = resource.strip_suffix(" **").unwrap_or(&resource);
            format!("{}, with any further words", in_words(verb, bare))
        }
        (VerbPattern::One(verb @ Verb::Call), _) => format!("{}, with any arguments", in_words(verb, &resource)),
        (VerbPattern::One(verb), _) => in_words(verb, &resource),
        (VerbPattern::Any, _) => format!("do anything with {resource}"),
    }
}

fn verb_is_safe(verb: &Verb) -> bool {
    matches!(verb, Verb::Http(method) if method.is_safe())
}

/// A verb and a resource as they stand in a sentence after `may` or `wants to`.
pub(crate) fn in_words(verb: &Verb, resource: &str) -> String {
    match verb {
        Verb::Read => format!("read {resource}"),
        Verb::Write => format!("change {resource}"),
        Verb::Create => format!("make {resource}"),
        Verb::Delete => format!("remove {resource}"),
        Verb::Keep => format!("keep a folder of its own at {resource}"),
        Verb::Run => format!("run {resource}"),
        Verb::Broker => format!("have {resource} run outside, with more authority than it has itself"),
        Verb::Http(method) => format!("send {} {resource}", method.as_str()),
        Verb::Fetch => format!("fetch from {resource}"),
        Verb::Push => format!("push to {resource}"),
        Verb::Tunnel => format!("connect to {resource}, unread"),
        Verb::Resolve => format!("look up the name {resource}"),
        Verb::Use => format!("use {resource}"),
        Verb::Call => format!("call {resource}"),
        Verb::Open => format!("read the resource {resource}"),
        Verb::Prompt => format!("have the prompt {resource} made"),
        Verb::Sample => format!("let the server {resource} have its model write something"),
        Verb::Elicit => format!("let the server {resource} ask you for input"),
        Verb::Roots => format!("tell the server {resource} which folders it works in"),
        Verb::Accept => format!("take what its server now says of the tool {resource}"),
    }
}
