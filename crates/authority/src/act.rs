//! What one act covers, and when one act lies within another.
//!
//! Promises: P3, P4, P5 (requests are in normal form, so an act covers the deed and not its spelling).
//! Trust: the request's texts come from an agent. Not here: constraints of time and number (`held`).

use bailiwick_model::{
    ANY_PORT, Act, HostPattern, HttpUrl, Method, Request, Resource, ResourcePattern, Verb, VerbPattern, acts_of,
    requests_of,
};

/// Says whether an act covers a request.
///
/// A path covers itself and all below it; `write` covers `create` and `delete`. A URL, and a tunnel, cover looking
/// up their host's name too, since nobody reaches a host without. `*` covers the verbs that the resource knows.
pub fn act_covers(act: &Act, request: &Request) -> bool {
    let verb = &request.verb;
    match (&act.resource, &request.resource) {
        (ResourcePattern::Path(pattern), Resource::File(path) | Resource::Tree(path)) => {
            verb.is_file() && act.verb.covers(verb) && pattern.covers(path)
        }
        (ResourcePattern::Url(pattern), Resource::Url(url)) => {
            matches!(verb, Verb::Http(_)) && act.verb.covers(verb) && pattern.covers(url)
        }
        (ResourcePattern::Repository(pattern), Resource::Repository { url, reference }) => {
            matches!(verb, Verb::Fetch | Verb::Push) && act.verb.covers(verb) && pattern.admits(url, reference)
        }
        (ResourcePattern::Url(pattern), Resource::Repository { url, .. }) => {
            let covers =
                |(method, url): &(Method, HttpUrl)| act.verb.covers(&Verb::Http(method.clone())) && pattern.covers(url);
            // Those that do it: to list is not enough.
            let mut does = requests_of(verb, url)
                .into_iter()
                .filter(|(method, _)| !method.is_safe());
            does.any(|request| covers(&request))
        }
        (ResourcePattern::Repository(pattern), Resource::Url(_)) => {
            matches!(verb, Verb::Http(_))
                && acts_of(request).is_some_and(|(verb, url, references)| {
                    act.verb.covers(&verb) && references.iter().all(|reference| pattern.admits(&url, reference))
                })
        }
        (ResourcePattern::Endpoint { host, port }, Resource::Endpoint { host: to, port: at }) => {
            *verb == Verb::Tunnel && act.verb.covers(verb) && port_covers(*port, *at) && host.covers(to)
        }
        (
            ResourcePattern::Url(_) | ResourcePattern::Repository(_) | ResourcePattern::Endpoint { .. },
            Resource::Name(name),
        ) => *verb == Verb::Resolve && looked_up(act).is_some_and(|host| host.covers(name)),
        (ResourcePattern::Secret(own), Resource::Secret(name)) => {
            *verb == Verb::Use && act.verb.covers(verb) && own.covers(name)
        }
        (ResourcePattern::Tool(own), Resource::Tool(tool)) => {
            tool.fits(verb) && act.verb.covers(verb) && own.covers(tool)
        }
        (ResourcePattern::AnyCommand, Resource::Command(_)) => verb.is_command() && act.verb.covers(verb),
        (ResourcePattern::Command(pattern), Resource::Command(command)) => {
            // What a command carries, as `env` does, must be covered too.
            let mut forms = command.forms().iter().filter(|form| !form.only_against);
            verb.is_command() && act.verb.covers(verb) && forms.all(|form| pattern.admits(form))
        }
        (
            ResourcePattern::Path(_)
            | ResourcePattern::Url(_)
            | ResourcePattern::Repository(_)
            | ResourcePattern::Endpoint { .. }
            | ResourcePattern::AnyCommand
            | ResourcePattern::Command(_)
            | ResourcePattern::Secret(_)
            | ResourcePattern::Tool(_),
            _,
        ) => false,
    }
}

fn port_covers(own: u16, asked: u16) -> bool {
    own == ANY_PORT || own == asked
}

/// The hosts whose names the act lets be looked up.
fn looked_up(act: &Act) -> Option<&HostPattern> {
    match (&act.resource, &act.verb) {
        (ResourcePattern::Url(url), VerbPattern::Any | VerbPattern::One(Verb::Http(_))) => Some(&url.host),
        (ResourcePattern::Repository(pattern), VerbPattern::One(Verb::Fetch | Verb::Push)) => Some(&pattern.url.host),
        (ResourcePattern::Endpoint { host, .. }, VerbPattern::Any | VerbPattern::One(Verb::Tunnel | Verb::Resolve)) => {
            Some(host)
        }
        _ => None,
    }
}

/// Says whether `child` covers nothing that `parent` does not. False also when that is not sure.
pub fn act_within(child: &Act, parent: &Act) -> bool {
    if matches!(
        (&child.resource, &child.verb),
        (ResourcePattern::Endpoint { .. }, VerbPattern::One(Verb::Resolve))
    ) {
        // Looking up a name knows no port.
        return match (looked_up(child), looked_up(parent)) {
            (Some(narrow), Some(wide)) => narrow.is_within(wide),
            _ => false,
        };
    }
    verb_within(&child.verb, &parent.verb)
        && match (&child.resource, &parent.resource) {
            (ResourcePattern::Path(narrow), ResourcePattern::Path(wide)) => narrow.is_within(wide),
            (ResourcePattern::Url(narrow), ResourcePattern::Url(wide)) => narrow.is_within(wide),
            (ResourcePattern::Repository(narrow), ResourcePattern::Repository(wide)) => narrow.is_within(wide),
            // Every request to a host is wider than any act on its repositories.
            (ResourcePattern::Repository(narrow), ResourcePattern::Url(wide)) => {
                wide.is_whole_host() && narrow.url.is_within(wide)
            }
            (ResourcePattern::Endpoint { host, port }, ResourcePattern::Endpoint { host: wide, port: same }) => {
                port_covers(*same, *port) && host.is_within(wide)
            }
            (ResourcePattern::Secret(narrow), ResourcePattern::Secret(wide)) => narrow.is_within(wide),
            (ResourcePattern::Tool(narrow), ResourcePattern::Tool(wide)) => narrow.is_within(wide),
            (ResourcePattern::AnyCommand | ResourcePattern::Command(_), ResourcePattern::AnyCommand) => true,
            (ResourcePattern::Command(narrow), ResourcePattern::Command(wide)) => wide.admits_all_of(narrow),
            _ => false,
        }
}

fn verb_within(child: &VerbPattern, parent: &VerbPattern) -> bool {
    match (child, parent) {
        (_, VerbPattern::Any) => true,
        (VerbPattern::Any, VerbPattern::One(_)) => false,
        // `covers` knows that `write` is wider than `create`; one verb other than `write` covers itself alone.
        (VerbPattern::One(verb), VerbPattern::One(_)) => parent.covers(verb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::tests::{act, request};

    #[test]
    fn p4_an_act_covers_what_it_says() {
        for (rule, yes, no) in [
            (
                "read /a",
                &["read /a", "read /a/b", "read /a/**"][..],
                &["write /a", "read /", "read /ab"][..],
            ),
            (
                "write /a",
                &["write /a/b", "create /a/b", "delete /a/b"],
                &["read /a/b"],
            ),
            ("create /a", &["create /a/b"], &["write /a/b", "delete /a/b"]),
            ("* /a", &["read /a", "delete /a"], &["run /a", "read /b"]),
            (
                "GET http://h.test/x/**",
                &["GET http://h.test/x/y", "resolve h.test"],
                &[
                    "POST http://h.test/x/y",
                    "GET http://h.test/",
                    "resolve x.h.test",
                    "tunnel h.test:80",
                ],
            ),
            (
                "* http://h.test",
                &["PUT http://h.test/"],
                &["PUT https://h.test/", "tunnel h.test:80"],
            ),
            (
                "tunnel h.test:22",
                &["tunnel h.test:22", "resolve h.test"],
                &["tunnel h.test", "tunnel x.h.test:22", "GET https://h.test/"],
            ),
            (
                "tunnel h.test:*",
                &["tunnel h.test:22", "tunnel h.test"],
                &["tunnel g.test"],
            ),
            (
                "push https://h.test/a.git agent/*",
                &[
                    "push https://h.test/a agent/x",
                    "GET https://h.test/a.git/info/refs?service=git-receive-pack",
                    "resolve h.test",
                ],
                &[
                    "push https://h.test/a main",
                    "push https://h.test/a",
                    "fetch https://h.test/a",
                    "POST https://h.test/a.git/git-receive-pack",
                    "GET https://h.test/a.git",
                ],
            ),
            (
                "fetch https://h.test/**",
                &["fetch https://h.test/a", "POST https://h.test/a/git-upload-pack"],
                &["push https://h.test/a", "POST https://h.test/a/git-receive-pack"],
            ),
            (
                "* https://h.test/a.git/**",
                &["fetch https://h.test/a", "push https://h.test/a main"],
                &["push https://h.test/b main"],
            ),
            (
                "GET https://h.test/**",
                &["GET https://h.test/a/info/refs?service=git-upload-pack"],
                &["fetch https://h.test/a"],
            ),
            ("resolve h.test", &["resolve h.test"], &["tunnel h.test"]),
            ("run **", &["run /bin/ls"], &["read /bin/ls"]),
            ("run ls", &["run ls", "run ls -l"], &["run lsx", "run env ls"]),
            (
                "call bank/*",
                &["call bank/pay"],
                &["call shop/pay", "open bank/pay", "accept bank/pay"],
            ),
        ] {
            for asked in yes {
                assert!(act_covers(&act(rule), &request(asked)), "{rule} covers {asked}");
            }
            for asked in no {
                assert!(
                    !act_covers(&act(rule), &request(asked)),
                    "{rule} does not cover {asked}"
                );
            }
        }
    }

    #[test]
    fn p3_within_is_said_only_when_sure() {
        for (narrow, wide, want) in [
            ("read /a/b", "read /a", true),
            ("create /a/b", "write /a", true),
            ("write /a", "create /a", false),
            ("* /a", "write /a", false),
            ("read /a", "* /", true),
            ("GET http://h.test/x", "* http://h.test/**", true),
            ("* http://h.test/x", "GET http://h.test/**", false),
            ("tunnel h.test", "tunnel *.test", true),
            ("tunnel h.test:22", "tunnel h.test", false),
            ("tunnel h.test:22", "tunnel h.test:*", true),
            ("tunnel h.test:*", "tunnel h.test", false),
            ("resolve h.test:22", "tunnel h.test", true),
            ("resolve h.test", "GET http://h.test/x", true),
            ("resolve g.test", "GET http://h.test/x", false),
            ("push https://h.test/a agent/*", "push https://h.test/**", true),
            ("push https://h.test/a", "push https://h.test/a agent/*", false),
            ("push https://h.test/a main", "* https://h.test", true),
            ("push https://h.test/a main", "POST https://h.test", false),
            ("fetch https://h.test/a", "push https://h.test/a", false),
            ("resolve h.test", "fetch https://h.test/a", true),
            ("read /a", "GET http://a/", false),
            ("run **", "run **", true),
            ("call bank/pay", "call bank/*", true),
            ("call bank/*", "call bank/pay", false),
            ("call bank/pay", "open bank/*", false),
            ("run git push", "run **", true),
            ("run git push", "run git", true),
            ("run git", "run git push", false),
        ] {
            assert_eq!(act_within(&act(narrow), &act(wide)), want, "{narrow} in {wide}");
        }
    }
}
