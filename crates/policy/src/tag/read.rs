//! Reads `[tag.NAME]`.
//!
//! Promises: P4 (an act that cannot be followed, or that is no place where data goes, is an error at its place, never
//! passed over).

use bailiwick_model::{Act, ResourcePattern, RuleRef, Tag, Verb, VerbPattern, Verdict};
use toml_edit::{Item, TableLike};

use super::{Naming, Table, TagNamed};
use crate::diagnostic::Span;
use crate::document::{Reader, kind};
use crate::judge::judge;
use crate::rule::Rule;

/// The keys of the table.
const KEYS: &[&str] = &["on", "influence", "may_reach", "otherwise"];

/// What is wrong with an act, and what would be right.
type Wrong = (String, &'static str);

impl Reader<'_> {
    /// `[tag]`.
    pub fn tags(&mut self, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(|key| key.span());
            let Some(tag) = Tag::parse(name) else {
                let hint = "at most 64 lower-case letters, digits and hyphens, a letter first";
                self.error(span, &format!("`{name}` is no name of a tag"), Some(hint.into()));
                continue;
            };
            self.table(item, &format!("tag.{name}"), span.clone(), |reader, table| {
                reader.tag(tag, table, span);
            });
        }
    }

    fn tag(&mut self, tag: Tag, table: &dyn TableLike, span: Option<Span>) {
        let faults = self.diagnostics.len();
        let influence = table.get("influence").is_some_and(|item| self.flag(item, "influence"));
        let (mut on, mut may_reach, mut asks) = (Vec::new(), Vec::new(), false);
        for (key, item) in table.iter() {
            let key_span = table.key(key).and_then(|key| key.span());
            match key {
                "influence" => {}
                "may_reach" | "otherwise" if influence => {
                    let hint = "say with `trusted` in a `[[tool]]` which arguments it may not have chosen";
                    let message = format!("`{key}` says nothing of untrusted influence: it may go anywhere");
                    self.error(key_span, &message, Some(hint.into()));
                }
                "on" => {
                    for (text, span) in self.texts_of(item, key) {
                        on.extend(self.tag_source(&text, span));
                    }
                }
                "may_reach" => {
                    for (text, span) in self.texts_of(item, key) {
                        may_reach.extend(self.tag_sink(&text, span));
                    }
                }
                "otherwise" => match item.as_str() {
                    Some("deny") => {}
                    Some("ask") => asks = true,
                    _ => {
                        let hint = "write `deny`, as it is without the key, or `ask`";
                        self.error(item.span(), "`otherwise` is none that there is", Some(hint.into()));
                    }
                },
                other => self.unknown(other, key_span, KEYS),
            }
        }
        if self.diagnostics.len() > faults {
            return;
        }
        let place = self.place(span.as_ref());
        let origin = RuleRef {
            layer: self.layer,
            file: self.name.into(),
            line: place.line,
            column: place.column,
            act: format!("tag {tag}"),
        };
        self.file.settings.tags.tables.push(Table {
            tag,
            influence,
            on,
            may_reach,
            asks,
            origin,
        });
    }

    /// An act whose answer carries the tag: found as a deny finds it.
    fn tag_source(&mut self, text: &str, span: Option<Span>) -> Vec<Rule> {
        let Some(act) = self.act_of_tag(text, span.clone(), Verdict::Deny) else {
            return Vec::new();
        };
        if let Some((message, hint)) = not_followed(&act, text) {
            self.error(span, &message, Some(hint.into()));
            return Vec::new();
        }
        let origin = self.origin(span.as_ref(), &act);
        let mut all = Vec::new();
        for (place, act) in with_the_server(&act).into_iter().enumerate() {
            let written = Rule::written(Verdict::Deny, act, &origin, None, self.reading);
            all.extend(written.into_iter().map(|mut rule| {
                if place > 0 {
                    rule.follows_from = Some(text.to_owned());
                }
                rule
            }));
        }
        // To look a name up reads nothing that its host says.
        all.retain(|rule| rule.act().verb != VerbPattern::One(Verb::Resolve));
        all
    }

    /// An act that data with the tag may reach: as narrow as an allow.
    fn tag_sink(&mut self, text: &str, span: Option<Span>) -> Vec<Rule> {
        let Some(act) = self.act_of_tag(text, span.clone(), Verdict::Allow) else {
            return Vec::new();
        };
        if let Some((message, hint)) = no_sink(&act, text) {
            self.error(span, &message, Some(hint.into()));
            return Vec::new();
        }
        let origin = self.origin(span.as_ref(), &act);
        Rule::written(Verdict::Allow, act, &origin, None, self.reading)
    }

    fn act_of_tag(&mut self, text: &str, span: Option<Span>, effect: Verdict) -> Option<Act> {
        let act = match self.whole_act(text) {
            Ok(act) => act,
            Err((message, hint)) => {
                self.error(span, &message, hint);
                return None;
            }
        };
        if let Err(objection) = judge(effect, &act, text) {
            self.error(span, &objection.message, objection.hint);
            return None;
        }
        Some(act)
    }

    /// The tags that a rule about calls names.
    pub(crate) fn tag_names(&mut self, item: &Item, key: &str, naming: Naming) -> Vec<Tag> {
        let mut found = Vec::new();
        for (text, span) in self.texts_of(item, key) {
            found.extend(self.tag_name(&text, span, naming));
        }
        if item.as_array().is_some_and(toml_edit::Array::is_empty) {
            let hint = "name a tag, or take the key out";
            self.error(item.span(), &format!("`{key}` names no tag"), Some(hint.into()));
        }
        found
    }

    fn tag_name(&mut self, text: &str, span: Option<Span>, naming: Naming) -> Option<Tag> {
        let Some(tag) = Tag::parse(text) else {
            let hint = "at most 64 lower-case letters, digits and hyphens, a letter first";
            self.error(span, &format!("`{text}` is no name of a tag"), Some(hint.into()));
            return None;
        };
        let place = self.place(span.as_ref());
        self.file.tags_named.push(TagNamed {
            tag: tag.clone(),
            file: self.name.into(),
            layer: self.layer,
            place,
            naming,
        });
        Some(tag)
    }

    /// `fields = { TAG = ["/place"] }`.
    pub(crate) fn tagged_fields(&mut self, table: &dyn TableLike) -> std::collections::BTreeMap<Tag, Vec<String>> {
        let mut found = std::collections::BTreeMap::new();
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(|key| key.span());
            if !item.is_array() {
                let hint = format!("write `{name} = [\"/people/*/salary\"]`");
                let message = format!("`{name}` must be a list of parts of a result, not {}", kind(item));
                self.error(item.span(), &message, Some(hint));
                continue;
            }
            let paths = self.pointers(item, name);
            if let Some(tag) = self.tag_name(name, span, Naming::Given).filter(|_| !paths.is_empty()) {
                found.insert(tag, paths);
            }
        }
        found
    }
}

/// The acts of a source: of one that is all calls of a server, all else that the server says, too.
fn with_the_server(act: &Act) -> Vec<Act> {
    let mut all = vec![act.clone()];
    let ResourcePattern::Tool(pattern) = &act.resource else {
        return all;
    };
    if act.verb != VerbPattern::One(Verb::Call) && act.verb != VerbPattern::Any {
        return all;
    }
    let text = pattern.to_string();
    let server = match text.as_str() {
        "*" => Some("*"),
        other => other
            .strip_suffix("/**")
            .or_else(|| other.strip_suffix("/*"))
            .filter(|server| !server.contains('/')),
    };
    let Some(server) = server else { return all };
    let of_tools = match server {
        "*" => "*".to_owned(),
        server => format!("{server}/**"),
    };
    let read = |text: &str| bailiwick_model::ToolPattern::parse(text).ok();
    for verb in [
        Verb::Call,
        Verb::Open,
        Verb::Prompt,
        Verb::Sample,
        Verb::Elicit,
        Verb::Roots,
    ] {
        let of = match verb {
            Verb::Call | Verb::Open | Verb::Prompt => of_tools.as_str(),
            _ => server,
        };
        all.extend(read(of).map(|pattern| Act {
            verb: VerbPattern::One(verb),
            resource: ResourcePattern::Tool(pattern),
        }));
    }
    all
}

/// Why nothing can be said of what an act gives.
fn not_followed(act: &Act, text: &str) -> Option<Wrong> {
    let verb = match &act.verb {
        VerbPattern::Any => None,
        VerbPattern::One(verb) => Some(verb),
    };
    match (&act.resource, verb) {
        (ResourcePattern::Path(_), Some(Verb::Read)) => None,
        (ResourcePattern::Path(_), _) => Some((
            format!("`{text}`: files give what is read of them"),
            "write `read` and the path, as in `read ~/hr/**`",
        )),
        (ResourcePattern::AnyCommand | ResourcePattern::Command(_), verb) if verb != Some(&Verb::Broker) => Some((
            format!("`{text}`: a program inside reads nothing that its task has not read"),
            "name what a server or a host answers, or a command that runs outside, as in `broker git fetch`",
        )),
        (ResourcePattern::Secret(_), _) => Some((
            format!("`{text}`: a secret is never read"),
            "name the requests that it is put into",
        )),
        (_, Some(Verb::Resolve)) => Some((
            format!("`{text}` only looks a name up"),
            "name the requests or the tunnel, as in `* https://host/**`",
        )),
        (_, Some(Verb::Accept)) => Some((
            format!("`{text}`: what a server says of its tools is seen by a person first"),
            "name its calls, as in `call hr/*`",
        )),
        _ => None,
    }
}

/// Why nothing is cleared by an act.
fn no_sink(act: &Act, text: &str) -> Option<Wrong> {
    let verb = match &act.verb {
        VerbPattern::Any => None,
        VerbPattern::One(verb) => Some(verb),
    };
    let stays = "it stays with you: nothing has to be said of it";
    match (&act.resource, verb) {
        (_, Some(Verb::Read | Verb::Run | Verb::Accept)) => {
            Some((format!("`{text}` is no place where data goes"), stays))
        }
        (ResourcePattern::Path(_), Some(Verb::Keep)) => Some((format!("`{text}` is no place where data goes"), stays)),
        (ResourcePattern::Secret(_), _) => Some((
            format!("`{text}` is no place where data goes"),
            "name the requests that the secret is put into",
        )),
        _ => None,
    }
}
