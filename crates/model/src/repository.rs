//! Git over HTTP as acts on repositories: `fetch URL`, `push URL BRANCH`.
//!
//! Promises: P5 (an act is the same however its requests are spelled: with `.git` or without, as one request or the other of
//! the protocol), P4 (what is not read for sure may be any branch).
//! Trust: URLs and names of branches come from the agent, which wants a push to be taken for a fetch.
//! Not here: reading which references a push changes from the body of its request (the network gate).
//! See: Git's own documentation, gitprotocol-http (smart HTTP) and git-check-ref-format.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::act::{Method, Verb};
use crate::pattern::{PatternError, Steps, UrlPattern, as_text, refuse_other_forms};
use crate::query::parameters;
use crate::request::{Argument, Request, Resource, argument};
use crate::url::HttpUrl;

/// Where branches stand among references.
const HEADS: &str = "refs/heads/";

/// What of a repository an act is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// What references there are is listed: the first step of a fetch or push.
    Listed,
    /// Any may be fetched or changed: which is not read.
    Any,
    /// One is changed.
    Named(ReferenceName),
}

/// The full name of a reference: `refs/heads/main`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ReferenceName(String);

impl ReferenceName {
    /// Reads a full name, as git allows it.
    pub fn parse(text: &str) -> Option<Self> {
        let odd = |c: char| c.is_control() || " ~^:?*[\\\u{7f}".contains(c);
        let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
        let fits = text.len() <= 1024
            && text.starts_with("refs/")
            && !text.contains(odd)
            && !text.contains("..")
            && !text.contains("@{")
            && !text.ends_with('.')
            && text.split('/').all(part);
        fits.then(|| Self(text.into()))
    }

    /// Reads a name as people write it: a branch, or a full name.
    pub fn read(text: &str) -> Option<Self> {
        match text.starts_with("refs/") {
            true => Self::parse(text),
            false => Self::parse(&format!("{HEADS}{text}")),
        }
    }
}

impl ReferenceName {
    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReferenceName {
    /// A branch by its own name, all else in full.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.strip_prefix(HEADS).unwrap_or(&self.0))
    }
}

impl<'de> Deserialize<'de> for ReferenceName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).ok_or_else(|| serde::de::Error::custom("not a reference"))
    }
}

/// The act on a repository that an HTTP request belongs to; none for a request that belongs to none.
///
/// The URL is that of the repository, without `.git`, a slash at the end or a query.
pub fn act_of(url: &HttpUrl) -> Option<(Verb, HttpUrl, Reference)> {
    let path = url.path().trim_end_matches('/');
    let (before, last) = path.rsplit_once('/')?;
    let found = match last.to_ascii_lowercase().as_str() {
        "git-upload-pack" => (Verb::Fetch, before, Reference::Any),
        "git-receive-pack" => (Verb::Push, before, Reference::Any),
        "refs" => {
            let (repository, info) = before.rsplit_once('/')?;
            if !info.eq_ignore_ascii_case("info") {
                return None;
            }
            let verb = match parameters(url.query().unwrap_or("")) {
                Ok(found) => {
                    let (_, service) = found
                        .into_iter()
                        .find(|(name, _)| name.eq_ignore_ascii_case("service"))?;
                    match service.to_ascii_lowercase().as_str() {
                        "git-upload-pack" => Verb::Fetch,
                        "git-receive-pack" => Verb::Push,
                        _ => return None,
                    }
                }
                // What servers may read in two ways is the stricter of the two.
                Err(_) => Verb::Push,
            };
            (verb, repository, Reference::Listed)
        }
        _ => return None,
    };
    let (verb, repository, reference) = found;
    let url = HttpUrl::from_parts(url.scheme, url.host.clone(), url.port, bare(repository)).ok()?;
    Some((verb, url, reference))
}

/// The act on a repository that a request belongs to, with each reference that it is about: those that a push says it
/// changes, where that was read.
pub fn acts_of(request: &Request) -> Option<(Verb, HttpUrl, Vec<Reference>)> {
    let Resource::Url(url) = &request.resource else {
        return None;
    };
    let (verb, repository, reference) = act_of(url)?;
    let read = match request.arguments.get(argument::REFERENCES) {
        Some(Argument::Text(text)) if verb == Verb::Push && reference == Reference::Any => Some(text),
        _ => None,
    };
    let references = match read {
        None => vec![reference],
        // Git asks whether it may push, before it sends much: that changes nothing.
        Some(text) if text.is_empty() => vec![Reference::Listed],
        Some(text) => {
            let named = |name| ReferenceName::parse(name).map_or(Reference::Any, Reference::Named);
            text.split(' ').map(named).collect()
        }
    };
    Some((verb, repository, references))
}

/// The HTTP requests that an act on a repository is made of, in each spelling of it: those that do it, then those that list
/// references. None for other verbs.
pub fn requests_of(verb: &Verb, repository: &HttpUrl) -> Vec<(Method, HttpUrl)> {
    let service = match verb {
        Verb::Fetch => "git-upload-pack",
        Verb::Push => "git-receive-pack",
        _ => return Vec::new(),
    };
    let base = repository.path().trim_end_matches('/');
    let with = (!base.is_empty()).then(|| format!("{base}.git"));
    let bases = || with.as_deref().into_iter().chain([base]);
    let does = bases().map(|base| ("POST", format!("{base}/{service}")));
    let lists = bases().map(|base| ("GET", format!("{base}/info/refs?service={service}")));
    let of = |(method, target): (&str, String)| {
        let url = HttpUrl::from_parts(repository.scheme, repository.host.clone(), repository.port, &target).ok()?;
        Some((Method::parse(method)?, url))
    };
    does.chain(lists).filter_map(of).collect()
}

/// Reads what an act on a repository is about: `URL`, or `URL BRANCH`.
pub fn read_repository(text: &str) -> Result<(HttpUrl, Reference), PatternError> {
    let (address, reference) = match text.trim().split_once(' ') {
        Some((address, name)) => {
            let name = name.trim();
            let read = ReferenceName::read(name).ok_or_else(|| PatternError::Reference(name.into()))?;
            (address, Reference::Named(read))
        }
        None => (text.trim(), Reference::Any),
    };
    let not_one = || PatternError::Url(address.into());
    let url = HttpUrl::parse(address)
        .ok()
        .filter(|url| url.query().is_none())
        .ok_or_else(not_one)?;
    let url = HttpUrl::from_parts(url.scheme, url.host.clone(), url.port, bare(url.path())).map_err(|_| not_one())?;
    Ok((url, reference))
}

/// A repository's path without what may be left out: `/acme/site.git/` is `/acme/site`.
fn bare(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.strip_suffix(".git")
        .filter(|rest| !rest.ends_with('/'))
        .unwrap_or(path)
}

/// A pattern over repositories, and for pushes over their references.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryPattern {
    /// The repositories, without `.git`.
    pub url: UrlPattern,
    references: Option<(String, Steps)>,
}

impl RepositoryPattern {
    /// Reads `URL` or `URL BRANCHES`: branches by name, all else in full (`refs/tags/**`).
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (url, references) = match text.split_once(' ') {
            Some((url, references)) => (url, Some(references.trim())),
            None => (text, None),
        };
        let whole = match url.split_once("://") {
            Some((_, rest)) if rest.contains('/') => bare(url),
            _ => url,
        };
        let url = UrlPattern::parse(whole)?;
        let references = match references {
            None | Some("**" | "refs/**") => None,
            Some(written) => {
                refuse_other_forms(written)?;
                let full = match written.starts_with("refs/") {
                    true => written.to_owned(),
                    false => format!("{HEADS}{written}"),
                };
                if ReferenceName::parse(&full.replace("**", "x").replace('*', "x")).is_none() {
                    return Err(PatternError::Reference(written.into()));
                }
                let steps = Steps::parse(&format!("/{full}"))?;
                Some((full, steps))
            }
        };
        Ok(Self { url, references })
    }

    /// True when the pattern is about some references only.
    pub fn names_references(&self) -> bool {
        self.references.is_some()
    }

    /// True when an allow of the pattern lets this be done. Listing is let for any of its references.
    pub fn admits(&self, url: &HttpUrl, reference: &Reference) -> bool {
        let named = match (&self.references, reference) {
            (None, _) | (Some(_), Reference::Listed) => true,
            (Some(_), Reference::Any) => false,
            (Some((_, steps)), Reference::Named(name)) => matches(steps, name),
        };
        named && self.url.covers(url)
    }

    /// True when a deny or an ask of the pattern is about this: what may be one of its references is. Letter case does not
    /// count, since servers differ in it.
    pub fn holds(&self, url: &HttpUrl, reference: &Reference) -> bool {
        let named = match (&self.references, reference) {
            (None, _) | (Some(_), Reference::Any) => true,
            (Some(_), Reference::Listed) => false,
            (Some((_, steps)), Reference::Named(name)) => matches(steps, name),
        };
        named && (self.url.reaches(url) || self.url.covers_in_any_case(url))
    }

    /// True when this pattern is about nothing that `wide` is not; false also when that is not sure.
    pub fn is_within(&self, wide: &Self) -> bool {
        let named = match (&self.references, &wide.references) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some((_, narrow)), Some((_, wide))) => narrow.within(wide, false),
        };
        named && self.url.is_within(&wide.url)
    }

    /// How many bytes of path and references are literal: longer is narrower.
    pub fn literal_len(&self) -> usize {
        let named = self
            .references
            .as_ref()
            .map_or(0, |(text, _)| text.replace('*', "").len());
        self.url.literal_path_len().saturating_add(named)
    }
}

fn matches(steps: &Steps, name: &ReferenceName) -> bool {
    steps.matches(name.0.split('/'))
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        match &self.references {
            Some((text, _)) => write!(f, " {}", text.strip_prefix(HEADS).unwrap_or(text)),
            None => Ok(()),
        }
    }
}
as_text!(RepositoryPattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    fn act(text: &str) -> Option<String> {
        let (verb, url, reference) = act_of(&url(text))?;
        Some(format!("{verb} {url} {reference:?}"))
    }

    #[test]
    fn p5_fetch_and_push_are_told_by_what_is_requested() {
        for (text, want) in [
            (
                "https://h.test/a/b.git/git-upload-pack",
                Some("fetch https://h.test/a/b Any"),
            ),
            (
                "https://h.test/a/b/git-receive-pack",
                Some("push https://h.test/a/b Any"),
            ),
            (
                "https://h.test/a/b.git/git-receive-pack/",
                Some("push https://h.test/a/b Any"),
            ),
            (
                "https://h.test/a/b.git/Git-Receive-Pack",
                Some("push https://h.test/a/b Any"),
            ),
            (
                "https://h.test/a/b.git/info/refs?service=git-upload-pack",
                Some("fetch https://h.test/a/b Listed"),
            ),
            (
                "https://h.test/a/b.git/info/refs?x=1&service=git-receive-pack",
                Some("push https://h.test/a/b Listed"),
            ),
            (
                "https://h.test/a/b.git/info/refs?service=git%2Dreceive-pack",
                Some("push https://h.test/a/b Listed"),
            ),
            (
                "https://h.test/a/info/refs?service=git-upload-pack&service=git-receive-pack",
                Some("push https://h.test/a Listed"),
            ),
            ("https://h.test/git-upload-pack", Some("fetch https://h.test/ Any")),
            ("https://h.test/a/b.git/info/refs", None),
            ("https://h.test/a/b.git/info/refs?service=x", None),
            ("https://h.test/a/b/git-receive-pack/x", None),
            ("https://h.test/a/b", None),
        ] {
            assert_eq!(act(text).as_deref(), want, "{text}");
        }
        for verb in [Verb::Fetch, Verb::Push] {
            let requests = requests_of(&verb, &url("https://h.test/a/b"));
            assert_eq!(requests.len(), 4);
            for (_, request) in requests {
                let (found, repository, _) = act_of(&request).unwrap();
                assert_eq!(
                    (found, repository),
                    (verb.clone(), url("https://h.test/a/b")),
                    "{request}"
                );
            }
        }
    }

    #[test]
    fn patterns_name_repositories_and_branches() {
        let pattern = |text: &str| RepositoryPattern::parse(text).unwrap();
        let named = |text: &str| Reference::Named(ReferenceName::read(text).unwrap());
        let site = url("https://h.test/acme/site");
        let agent = pattern("https://h.test/acme/site.git agent/*");
        assert_eq!(agent.to_string(), "https://h.test/acme/site agent/*");
        assert_eq!(pattern("https://h.test").to_string(), "https://h.test/**");
        assert_eq!(
            pattern("https://h.test/a.git refs/tags/**").to_string(),
            "https://h.test/a refs/tags/**"
        );
        for (reference, admits, holds) in [
            (named("agent/x"), true, true),
            (named("agent/x/y"), false, false),
            (named("main"), false, false),
            (named("refs/tags/agent/x"), false, false),
            (Reference::Listed, true, false),
            (Reference::Any, false, true),
        ] {
            assert_eq!(agent.admits(&site, &reference), admits, "{reference:?}");
            assert_eq!(agent.holds(&site, &reference), holds, "{reference:?}");
        }
        let other = url("https://h.test/Acme/Site");
        assert!(!agent.admits(&other, &named("agent/x")) && agent.holds(&other, &named("agent/x")));
        let upper = pattern("https://h.test/Acme/Site");
        assert!(upper.holds(&site, &Reference::Any) && !upper.admits(&site, &Reference::Any));
        for bad in [
            "h.test/a",
            "https://h.test/a main extra",
            "https://h.test/a ..",
            "https://h.test/a a..b",
            "https://h.test/a [ab]",
            "https://h.test/a ",
        ] {
            assert!(RepositoryPattern::parse(bad).is_err(), "{bad}");
        }
        assert!(ReferenceName::read("x y").is_none() && ReferenceName::read("a.lock").is_none());
    }

    proptest::proptest! {
        #[test]
        fn p3_within_never_widens(
            narrow in "https://h\\.test(/(a|b|\\*|\\*\\*)){1,2}( (a|a/\\*|a/\\*\\*|\\*|b))?",
            wide in "https://h\\.test(/(a|b|\\*|\\*\\*)){1,2}( (a|a/\\*|a/\\*\\*|\\*|b))?",
            path in "(/(a|b)){1,2}",
            branch in "(a|b)(/(a|b))?",
            listed in 0u8..3,
        ) {
            let (narrow, wide) = (RepositoryPattern::parse(&narrow).unwrap(), RepositoryPattern::parse(&wide).unwrap());
            let at = url(&format!("https://h.test{path}"));
            let reference = match listed {
                0 => Reference::Listed,
                1 => Reference::Any,
                _ => Reference::Named(ReferenceName::read(&branch).unwrap()),
            };
            if narrow.is_within(&wide) {
                proptest::prop_assert!(!narrow.admits(&at, &reference) || wide.admits(&at, &reference), "{} in {}", narrow, wide);
            }
        }

        #[test]
        fn reading_never_panics(path in "(/[a-zA-Z.-]{0,8}){0,4}(/git-(upload|receive)-pack|/info/refs)?/?", query in "(service=git-(upload|receive)-pack|[a-z=&;%]{0,9})", text in "\\PC{0,30}") {
            if let Ok(url) = HttpUrl::parse(&format!("https://h.test{path}?{query}"))
                && let Some((verb, repository, _)) = act_of(&url)
            {
                proptest::prop_assert!(!requests_of(&verb, &repository).is_empty());
            }
            let _ = (RepositoryPattern::parse(&text), ReferenceName::read(&text));
        }
    }
}
