//! How acts lie to each other: which is wider, which is narrower, whether they meet.
//!
//! Promises: P2. Where two patterns cannot be compared exactly, the answer errs to "not covered": these answers give
//! warnings and the order between an allow and an ask, never an allow.
//! Not here: matching a request (`rule::covers`).

use bailiwick_model::{
    ANY_PORT, Act, HostPattern, PathPattern, ResourcePattern, SecretPattern, UrlPattern, Verb, VerbPattern, Verdict,
};

/// How narrow an act is: longest literal host, then path, then verb, then port. Greater is narrower.
pub(crate) fn narrowness(act: &Act) -> (usize, usize, bool, bool) {
    let verb = act.verb != VerbPattern::Any;
    match &act.resource {
        ResourcePattern::Path(path) => (0, literal_len(path), verb, false),
        ResourcePattern::Url(url) => (
            url.host.narrowness(),
            url.literal_path_len(),
            verb,
            url.port != ANY_PORT,
        ),
        ResourcePattern::Repository(pattern) => (
            pattern.url.host.narrowness(),
            pattern.literal_len(),
            verb,
            pattern.url.port != ANY_PORT,
        ),
        ResourcePattern::Endpoint { host, port } => (host.narrowness(), 0, verb, *port != ANY_PORT),
        ResourcePattern::AnyCommand | ResourcePattern::Secret(SecretPattern::Any) => (0, 0, verb, false),
        ResourcePattern::Secret(SecretPattern::One(_)) => (0, 1, verb, false),
        ResourcePattern::Command(pattern) => (0, pattern.literal_len(), verb, pattern.exact),
        ResourcePattern::Tool(pattern) => (0, pattern.literal_len(), verb, pattern.as_name().is_some()),
    }
}

fn literal_len(path: &PathPattern) -> usize {
    let text = path.as_str();
    text.len().saturating_sub(text.matches('*').count())
}

/// True when all that a rule with the narrow act is about, one with this effect and the wide act is about too.
pub(crate) fn act_covers(effect: Verdict, wide: &Act, narrow: &Act) -> bool {
    let verb = match (&wide.verb, &narrow.verb) {
        (VerbPattern::Any, _) => true,
        (VerbPattern::One(_), VerbPattern::Any) => false,
        (wide, VerbPattern::One(verb)) => wide.covers(verb),
    };
    verb && match (&wide.resource, &narrow.resource) {
        (ResourcePattern::Path(wide), ResourcePattern::Path(narrow)) => narrow.is_within(wide),
        (ResourcePattern::Url(wide), ResourcePattern::Url(narrow)) => narrow.is_within(wide),
        (ResourcePattern::Repository(wide), ResourcePattern::Repository(narrow)) => narrow.is_within(wide),
        (ResourcePattern::Url(wide), ResourcePattern::Repository(narrow)) => {
            wide.is_whole_host() && narrow.url.is_within(wide)
        }
        (ResourcePattern::Endpoint { host, port }, ResourcePattern::Endpoint { host: to, port: at }) => {
            // A look-up has no port.
            let look_up = wide.verb == VerbPattern::One(Verb::Resolve);
            to.is_within(host) && (look_up || *port == ANY_PORT || port == at)
        }
        (ResourcePattern::Secret(wide), ResourcePattern::Secret(narrow)) => narrow.is_within(wide),
        (ResourcePattern::Tool(wide), ResourcePattern::Tool(narrow)) => narrow.is_within(wide),
        (ResourcePattern::AnyCommand, ResourcePattern::AnyCommand | ResourcePattern::Command(_)) => true,
        (ResourcePattern::Command(wide), ResourcePattern::Command(narrow)) => match effect {
            Verdict::Allow => wide.admits_all_of(narrow),
            Verdict::Ask | Verdict::Deny => wide.holds_for_all_of(narrow),
        },
        _ => false,
    }
}

/// True when some request can be covered by both acts, as far as that can be told.
pub(crate) fn acts_meet(one: &Act, other: &Act) -> bool {
    let verbs = match (&one.verb, &other.verb) {
        (VerbPattern::Any, _) | (_, VerbPattern::Any) => true,
        (one, VerbPattern::One(verb)) if one.covers(verb) => true,
        (VerbPattern::One(verb), other) => other.covers(verb),
    };
    let resources = match (&one.resource, &other.resource) {
        (ResourcePattern::Path(one), ResourcePattern::Path(other)) => {
            let into = |glob: &PathPattern, path: &PathPattern| {
                path.as_tree()
                    .is_some_and(|tree| glob.covers(&tree) || glob.reaches_into(&tree))
            };
            into(one, other) || into(other, one)
        }
        (ResourcePattern::Url(one), ResourcePattern::Url(other)) => {
            let any = |url: &UrlPattern| url.path().contains('*');
            one.scheme == other.scheme
                && (one.port == other.port || [one.port, other.port].contains(&ANY_PORT))
                && hosts_meet(&one.host, &other.host)
                && (one.path() == other.path()
                    || (any(one) && heads_meet(one, other))
                    || heads_meet(other, one) && any(other))
        }
        (ResourcePattern::Repository(one), ResourcePattern::Repository(other)) => meet_at(&one.url, &other.url),
        (ResourcePattern::Url(url), ResourcePattern::Repository(pattern))
        | (ResourcePattern::Repository(pattern), ResourcePattern::Url(url)) => meet_at(url, &pattern.url),
        (ResourcePattern::Endpoint { host, port }, ResourcePattern::Endpoint { host: to, port: at }) => {
            hosts_meet(host, to) && (port == at || [*port, *at].contains(&ANY_PORT))
        }
        (ResourcePattern::Secret(one), ResourcePattern::Secret(other)) => one.is_within(other) || other.is_within(one),
        (ResourcePattern::Tool(one), ResourcePattern::Tool(other)) => one.may_meet(other),
        (ResourcePattern::Command(one), ResourcePattern::Command(other)) => one.may_meet(other),
        (
            ResourcePattern::AnyCommand | ResourcePattern::Command(_),
            ResourcePattern::AnyCommand | ResourcePattern::Command(_),
        ) => true,
        _ => false,
    };
    verbs && resources
}

/// True when two patterns are about one host and port, and the literal heads of their paths lead to each other.
fn meet_at(one: &UrlPattern, other: &UrlPattern) -> bool {
    one.scheme == other.scheme
        && (one.port == other.port || [one.port, other.port].contains(&ANY_PORT))
        && hosts_meet(&one.host, &other.host)
        && heads_meet(one, other)
}

fn hosts_meet(one: &HostPattern, other: &HostPattern) -> bool {
    other.is_within(one) || one.is_within(other)
}

/// True when the literal head of the one's path leads to the other's.
fn heads_meet(one: &UrlPattern, other: &UrlPattern) -> bool {
    let head = one.path().split('*').next().unwrap_or("");
    let stem = other.path().split('*').next().unwrap_or("");
    stem.starts_with(head) || head.starts_with(stem)
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{AbsPath, Anchors};

    use super::*;

    fn act(text: &str) -> Act {
        let anchors = Anchors {
            root: AbsPath::new("/p").ok(),
            home: AbsPath::new("/home/dana").unwrap(),
        };
        Act::parse(text, &anchors).unwrap()
    }

    #[test]
    fn wider_acts_cover_narrower_ones() {
        for (wide, narrow, want) in [
            ("read /a", "read /a/b", true),
            ("read /a", "read /a/**/x", true),
            ("read /a/b", "read /a", false),
            ("read **/x", "read /a/x", true),
            ("* /a", "write /a", true),
            ("write /a", "delete /a", true),
            ("write /a", "read /a", false),
            ("read /a", "* /a", false),
            ("tunnel **", "tunnel a.test", true),
            ("tunnel **", "tunnel a.test:22", false),
            ("tunnel **:*", "tunnel a.test:22", true),
            ("resolve **.test", "resolve *.a.test", true),
            ("tunnel *.test", "tunnel **.test", false),
            ("GET http://a.test/**", "GET http://a.test/x/*", true),
            ("GET http://a.test/x/**", "GET http://a.test/xy", false),
            ("* http://**", "POST http://a.test/x", true),
            ("* https://**", "POST http://a.test/x", false),
            ("run **", "run git push", true),
            ("run git", "run git push", true),
            ("run git push", "run git", false),
        ] {
            assert_eq!(
                act_covers(Verdict::Allow, &act(wide), &act(narrow)),
                want,
                "{wide} over {narrow}"
            );
            assert!(!want || acts_meet(&act(wide), &act(narrow)), "{wide} meets {narrow}");
        }
    }

    #[test]
    fn narrower_is_host_then_path_then_verb() {
        for (narrow, wide) in [
            ("* http://a.test/**", "GET http://**/a/very/long/path"),
            ("* http://a.test/x/**", "GET http://a.test/**"),
            ("GET http://a.test/**", "* http://a.test/**"),
            ("tunnel a.test", "tunnel *.test"),
            ("tunnel **", "tunnel **:*"),
            ("run git push", "run git"),
            ("run git", "run @read-only"),
            ("run @read-only", "run **"),
        ] {
            assert!(
                narrowness(&act(narrow)) > narrowness(&act(wide)),
                "{narrow} than {wide}"
            );
        }
    }
}
