//! Patterns over paths and URLs: `*` is one segment (or a part of one), `**` any number.
//!
//! Promises: P4 (a pattern that cannot be read is an error), P5. Trust: patterns come from people's rule files; what
//! they are matched against is in normal form already (`path`, `host`, `url`).
//! A path pattern covers what it matches *and all below it*: naming a folder names what is in it. A URL pattern
//! covers what it matches only. Matching takes time linear in pattern × subject: no backtracking.

use std::fmt;

use crate::host::HostError;
use crate::host_pattern::{HostPattern, split_port};
use crate::path::{AbsPath, PathError};
use crate::url::{HttpUrl, Scheme};

/// Longest pattern that is accepted, in bytes.
const MAX: usize = 4096;

/// The port of a pattern that covers every port, written `host:*`. No request has it.
pub const ANY_PORT: u16 = 0;

/// Says why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is longer than the limit.
    #[error("a pattern of {0} bytes is too long: at most {MAX}")]
    TooLong(usize),
    /// It uses a wildcard form that does not exist here.
    #[error("`{0}` uses {1}, which patterns do not have: use `*` for one segment and `**` for any number")]
    Form(String, &'static str),
    /// Its path is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Its host is none.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its wildcard host has no literal part.
    #[error("`{0}` has no literal label: write `**` for any host, or name a domain as in `*.example.com`")]
    OpenHost(String),
    /// What should be a registrable domain is an address.
    #[error("`{0}` is no site: write a domain as in `site:example.com`")]
    Site(String),
    /// What should be branches of a repository is none.
    #[error("`{0}` names no branch: write `main`, `agent/*`, or a full name such as `refs/tags/**`")]
    Reference(String),
    /// Its port is none.
    #[error("`{0}` is not a port")]
    Port(String),
    /// It is not a URL pattern.
    #[error("`{0}` is not a url pattern: write `scheme://host[:port]/path`")]
    Url(String),
}

/// One step of a segment pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    /// Any number of segments, also none.
    Any,
    /// One segment; `*` inside stands for any text without a slash.
    One(String),
}

/// A pattern over a sequence of segments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Reads segments, each behind a slash.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        let step = |segment: &str| match segment {
            "**" => Ok(Step::Any),
            other if other.contains("**") => Err(PatternError::Form(text.into(), "`**` beside other text")),
            other => Ok(Step::One(other.into())),
        };
        Ok(Self(text.split('/').skip(1).map(step).collect::<Result<_, _>>()?))
    }

    fn is_literal(&self) -> bool {
        self.0
            .iter()
            .all(|step| matches!(step, Step::One(text) if !text.contains('*')))
    }

    /// The states (numbers of steps done) reachable without reading a segment.
    fn close(&self, states: &mut [bool]) {
        let mut open = false;
        for (state, step) in states.iter_mut().zip(self.0.iter().map(Some).chain([None])) {
            *state |= open;
            open = *state && matches!(step, Some(Step::Any));
        }
    }

    fn start(&self) -> Vec<bool> {
        let mut states = vec![false; self.0.len().saturating_add(1)];
        if let Some(first) = states.first_mut() {
            *first = true;
        }
        self.close(&mut states);
        states
    }

    fn read(&self, states: &[bool], segment: &str) -> Vec<bool> {
        let mut next = vec![false; states.len()];
        for (place, step) in self.0.iter().enumerate() {
            if !states.get(place).copied().unwrap_or(false) {
                continue;
            }
            match step {
                Step::Any => set(&mut next, place),
                Step::One(pattern) if segment_matches(pattern, segment) => set(&mut next, place.saturating_add(1)),
                Step::One(_) => {}
            }
        }
        self.close(&mut next);
        next
    }

    /// True when these steps match just this sequence of segments.
    pub(crate) fn matches<'a>(&self, segments: impl Iterator<Item = &'a str>) -> bool {
        let mut states = self.start();
        for segment in segments {
            states = self.read(&states, segment);
        }
        Self::done(&states)
    }

    fn done(states: &[bool]) -> bool {
        states.last().copied().unwrap_or(false)
    }

    /// True when every sequence of segments that these steps match is matched by `wide`; false when that is not sure.
    ///
    /// Reads these steps as if they were segments. A `*` inside a step can then only be read by a `*` of `wide`, which
    /// reads whatever it stands for; a `**` keeps only the states that stay through any segment. `below` says that
    /// `wide` matches all below what it matches, too.
    pub(crate) fn within(&self, wide: &Self, below: bool) -> bool {
        let mut states = wide.start();
        for step in &self.0 {
            if below && Self::done(&states) {
                return true;
            }
            match step {
                Step::One(text) => states = wide.read(&states, text),
                Step::Any => {
                    for (state, step) in states.iter_mut().zip(wide.0.iter().map(Some).chain([None])) {
                        *state &= matches!(step, Some(Step::Any));
                    }
                    wide.close(&mut states);
                }
            }
        }
        Self::done(&states)
    }
}

fn set(states: &mut [bool], place: usize) {
    if let Some(state) = states.get_mut(place) {
        *state = true;
    }
}

/// Matches text against a pattern in which `*` stands for any run of characters.
pub(crate) fn segment_matches(pattern: &str, segment: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == segment;
    };
    let Some(mut tail) = segment.strip_prefix(first) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return tail.ends_with(part);
        }
        match tail.split_once(part) {
            Some((_, after)) => tail = after,
            None => return false,
        }
    }
    true
}

/// A pattern over absolute paths. Covers what it matches, and all below.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern {
    text: String,
    steps: Steps,
}

impl PathPattern {
    /// Reads a pattern in absolute form; a final `/**` or `/` says nothing more than the folder itself.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        let normal = AbsPath::new(text)?.as_str().to_owned();
        let mut bare = normal.as_str();
        while let Some(shorter) = bare.strip_suffix("/**") {
            bare = shorter;
        }
        let text = if bare.is_empty() {
            "/".to_owned()
        } else {
            bare.to_owned()
        };
        let steps = if text == "/" {
            Steps(Vec::new())
        } else {
            Steps::parse(&text)?
        };
        Ok(Self { text, steps })
    }

    /// The pattern of one whole tree.
    pub fn tree(path: &AbsPath) -> Self {
        let steps = Steps(path.segments().map(|segment| Step::One(segment.into())).collect());
        Self {
            text: path.as_str().into(),
            steps,
        }
    }

    /// The pattern as text, in normal form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one tree this pattern stands for, when it has no wildcard.
    pub fn as_tree(&self) -> Option<AbsPath> {
        self.steps.is_literal().then(|| AbsPath::new(&self.text).ok()).flatten()
    }

    /// The longest folder that holds all that can match.
    pub fn anchor(&self) -> AbsPath {
        let mut path = String::new();
        for step in &self.steps.0 {
            match step {
                Step::One(text) if !text.contains('*') => {
                    path.push('/');
                    path.push_str(text);
                }
                _ => break,
            }
        }
        AbsPath::new(if path.is_empty() { "/" } else { &path }).unwrap_or_else(|_| AbsPath::root())
    }

    /// The last step, when it has no wildcard: what an index can look a name up by.
    pub fn last_literal(&self) -> Option<&str> {
        match self.steps.0.last() {
            Some(Step::One(text)) if !text.contains('*') => Some(text),
            _ => None,
        }
    }

    /// True when the pattern matches this path or a folder above it.
    pub fn covers(&self, path: &AbsPath) -> bool {
        let mut states = self.steps.start();
        if Steps::done(&states) {
            return true;
        }
        path.segments().any(|segment| {
            states = self.steps.read(&states, segment);
            Steps::done(&states)
        })
    }

    /// True when the pattern matches exactly this path: not a folder above it.
    pub fn matches(&self, path: &AbsPath) -> bool {
        self.steps.matches(path.segments())
    }

    /// True when this pattern covers nothing that `wide` does not; false also when that is not sure.
    pub fn is_within(&self, wide: &Self) -> bool {
        self.steps.within(&wide.steps, true)
    }

    /// True when something strictly below this path could match (and the path itself is not covered).
    pub fn reaches_into(&self, tree: &AbsPath) -> bool {
        let mut states = self.steps.start();
        for segment in tree.segments() {
            if Steps::done(&states) {
                return false;
            }
            states = self.steps.read(&states, segment);
        }
        !Steps::done(&states) && states.contains(&true)
    }

    /// True when this pattern says the same of what lies strictly below two folders, name by name, and of the folders
    /// themselves: moved from the one to the other, nothing comes under it and nothing gets out. With `covers`, all below
    /// what matches is meant as well.
    pub fn agrees_below(&self, one: &AbsPath, other: &AbsPath, covers: bool) -> bool {
        let read = |path: &AbsPath| {
            let mut states = self.steps.start();
            for segment in path.segments() {
                if covers && Steps::done(&states) {
                    break;
                }
                states = self.steps.read(&states, segment);
            }
            states
        };
        let (one, other) = (read(one), read(other));
        one == other || (covers && Steps::done(&one) && Steps::done(&other))
    }
}

/// Refuses, in text that a person wrote, wildcard forms of other tools: they would be taken as plain characters.
pub(crate) fn refuse_other_forms(text: &str) -> Result<(), PatternError> {
    let form = |what| Err(PatternError::Form(text.into(), what));
    match text.chars().find(|c| matches!(c, '?' | '[' | ']' | '{' | '}')) {
        Some('?') => form("`?`"),
        Some('[' | ']') => form("a bracket"),
        Some(_) => form("a brace"),
        None => Ok(()),
    }
}

/// A pattern over URLs: `scheme://host[:port][/path]`. Without a path it covers every path. The query is not looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlPattern {
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: HostPattern,
    /// The port, or [`ANY_PORT`].
    pub port: u16,
    path: String,
    steps: Steps,
}

impl UrlPattern {
    /// Reads a URL pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        let not_url = || PatternError::Url(text.into());
        let (scheme, rest) = text.split_once("://").ok_or_else(not_url)?;
        let scheme = Scheme::parse(scheme).ok_or_else(not_url)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at_checked(at).ok_or_else(not_url)?,
            None => (rest, "/**"),
        };
        let (host, port) = split_port(authority, scheme.default_port())?;
        if path.contains(['?', '#']) {
            return Err(PatternError::Form(text.into(), "a query or fragment"));
        }
        refuse_other_forms(path)?;
        // The literal text of a rule is brought to the form that requests have, with its stars set aside.
        let probe = format!("{}://h{}", scheme.as_str(), path.replace('*', "~star~"));
        let normal = HttpUrl::parse(&probe).map_err(|_| not_url())?;
        let path = normal.path().replace("~star~", "*");
        Ok(Self {
            scheme,
            host: HostPattern::parse(host)?,
            port,
            steps: Steps::parse(&path)?,
            path,
        })
    }

    /// The path part of the pattern.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The same with one spelling for this machine.
    #[must_use]
    pub fn with_one_loopback(mut self) -> Self {
        if let HostPattern::Exact(host) = self.host {
            self.host = HostPattern::Exact(host.with_one_loopback());
        }
        self
    }

    /// True when the pattern covers every path.
    pub fn is_whole_host(&self) -> bool {
        self.path == "/**"
    }

    /// True when the pattern covers this URL, in whichever way a server reads it: what an allow goes by.
    pub fn covers(&self, url: &HttpUrl) -> bool {
        self.is_at(url) && url.readings().all(|path| self.steps.matches(path.split('/').skip(1)))
    }

    /// True when the pattern covers this URL in some way in which a server may read it: what a deny or ask goes by.
    pub fn reaches(&self, url: &HttpUrl) -> bool {
        self.is_at(url) && url.readings().any(|path| self.steps.matches(path.split('/').skip(1)))
    }

    fn is_at(&self, url: &HttpUrl) -> bool {
        let port = self.port == ANY_PORT || self.port == url.port;
        self.scheme == url.scheme && port && self.host.covers(&url.host)
    }

    /// True when the pattern covers this URL if the letter case of the path does not count.
    pub(crate) fn covers_in_any_case(&self, url: &HttpUrl) -> bool {
        let lower = |text: &str| text.to_ascii_lowercase();
        let Ok(own) = Steps::parse(&lower(&self.path)) else {
            return false;
        };
        let fits = |path: std::borrow::Cow<'_, str>| own.matches(lower(&path).split('/').skip(1));
        self.is_at(url) && url.readings().any(fits)
    }

    /// True when this pattern covers no URL that `wide` does not; false also when that is not sure.
    pub fn is_within(&self, wide: &Self) -> bool {
        self.scheme == wide.scheme
            && (wide.port == ANY_PORT || self.port == wide.port)
            && self.host.is_within(&wide.host)
            && self.steps.within(&wide.steps, false)
    }

    /// How many bytes of the path are literal: longer is narrower.
    pub fn literal_path_len(&self) -> usize {
        self.path.len().saturating_sub(self.path.matches('*').count())
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.host)?;
        if self.port == ANY_PORT {
            f.write_str(":*")?;
        } else if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

/// Prints, reads and sends a pattern as its text.
macro_rules! as_text {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "`{self}`")
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&<String as serde::Deserialize>::deserialize(deserializer)?)
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;
as_text!(PathPattern);
as_text!(UrlPattern);

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn path_patterns_cover_what_they_match_and_all_below() {
        for (text, yes, no) in [
            ("/a", &["/a", "/a/b/c"][..], &["/ab", "/"][..]),
            ("/a/**", &["/a", "/a/b"], &["/b"]),
            (
                "/**/.env",
                &["/.env", "/x/.env", "/x/y/.env/z"],
                &["/x/.envrc", "/x/a.env"],
            ),
            ("/a/*.md", &["/a/x.md", "/a/.md"], &["/a/b/x.md", "/a/x.mdx"]),
            ("/a/*/c", &["/a/b/c", "/a/b/c/d"], &["/a/c", "/a/b/b/c"]),
            ("/**/.git/**/x*y", &["/.git/xy", "/p/.git/a/b/x1y"], &["/p/git/xy"]),
            ("/", &["/", "/a"], &[]),
        ] {
            for subject in yes {
                assert!(pattern(text).covers(&path(subject)), "{text} covers {subject}");
            }
            for subject in no {
                assert!(!pattern(text).covers(&path(subject)), "{text} does not cover {subject}");
            }
        }
    }

    #[test]
    fn reaches_into_finds_what_lies_below() {
        assert!(pattern("/**/.env").reaches_into(&path("/p")));
        assert!(pattern("/p/a").reaches_into(&path("/p")));
        assert!(!pattern("/p").reaches_into(&path("/p")), "covered whole");
        assert!(
            !pattern("/p").reaches_into(&path("/p/a")),
            "covered whole by a folder above"
        );
        assert!(!pattern("/q/a").reaches_into(&path("/p")));
        assert!(!pattern("/*/a").reaches_into(&path("/p/b")));
    }

    #[test]
    fn folders_are_alike_below_where_a_pattern_says_the_same() {
        for (text, one, other, covers, yes) in [
            ("/**/.env", "/p/a", "/q/b", true, true),
            ("/**/.git/config", "/p/a", "/p/.git", true, false),
            ("/**/.git/config", "/p/.git/refs", "/p/a", true, true),
            ("/**/.git/modules/**/config", "/p/.git/modules/m", "/p/m", true, false),
            ("/p/in/**/.token", "/p/in/f", "/p/in/g/h", true, true),
            ("/p/in/**/.token", "/p/in/f", "/p/f", true, false),
            ("/**/.git", "/p/.git/a", "/p/a", true, false),
            ("/**/.git", "/p/.git/a", "/p/a", false, true),
            ("/a", "/a/b", "/a/c", true, true),
        ] {
            assert_eq!(
                pattern(text).agrees_below(&path(one), &path(other), covers),
                yes,
                "{text} {one} {other}"
            );
        }
    }

    #[test]
    fn anchors_are_the_literal_heads() {
        assert_eq!(pattern("/a/b/*/c").anchor(), path("/a/b"));
        assert_eq!(pattern("/**/.env").anchor(), path("/"));
        assert_eq!(pattern("/a/b").as_tree(), Some(path("/a/b")));
        assert_eq!(pattern("/a/*").as_tree(), None);
    }

    #[test]
    fn p4_other_wildcard_forms_are_refused() {
        for bad in ["/a**", "a/b", "/a/**b"] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
        for bad in ["/a/[ab]", "/a/?", "/a/{b,c}"] {
            assert!(refuse_other_forms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p3_within_is_said_only_when_sure() {
        for (narrow, wide, want) in [
            ("/a/b", "/a", true),
            ("/a/*/c", "/a/*", true),
            ("/a/**/c", "/a/*/c", false),
            ("/a/**/c", "/**/c", true),
            ("/a/x*y", "/a/x*", true),
            ("/a/x*", "/a/x*y", false),
            ("/**/.env", "/", true),
            ("/a", "/a/*", false),
            ("/**/a", "/a", false),
        ] {
            assert_eq!(pattern(narrow).is_within(&pattern(wide)), want, "{narrow} in {wide}");
        }
        let urls = |narrow: &str, wide: &str| {
            UrlPattern::parse(narrow)
                .unwrap()
                .is_within(&UrlPattern::parse(wide).unwrap())
        };
        assert!(urls("http://a.test/x/*", "http://a.test/x/**") && urls("http://a.test/x", "http://**"));
        assert!(!urls("http://a.test/x/**", "http://a.test/x/*") && !urls("http://a.test/x/y", "http://a.test/x"));
        assert!(urls("http://a.test:81/x", "http://a.test:*/x") && !urls("http://a.test:*/x", "http://a.test/x"));
        assert!(!urls("http://a.test/x", "https://a.test/x") && !urls("http://a.test:81/x", "http://a.test/x"));
    }

    proptest::proptest! {
        #[test]
        fn p3_within_never_widens(
            narrow in "(/(a|b|\\*|\\*\\*|a\\*|\\*b)){1,4}",
            wide in "(/(a|b|\\*|\\*\\*|a\\*|\\*b)){0,4}",
            subject in "(/(a|b|ab|c)){0,5}",
        ) {
            let (narrow, wide) = (pattern(&narrow), pattern(&format!("/{wide}")));
            let subject = path(&format!("/{subject}"));
            if narrow.is_within(&wide) && narrow.covers(&subject) {
                proptest::prop_assert!(wide.covers(&subject), "{} in {} at {}", narrow, wide, subject);
            }
        }
    }

    #[test]
    fn urls_are_compared_part_by_part() {
        let covers = |pattern: &str, url: &str| {
            UrlPattern::parse(pattern)
                .unwrap()
                .covers(&HttpUrl::parse(url).unwrap())
        };
        assert!(covers("http://a.test/public/**", "http://a.test/public/x/y?q=1"));
        assert!(covers("http://a.test/public/**", "http://a.test/public/"));
        assert!(!covers("http://a.test/public/**", "http://a.test/publicity"));
        assert!(!covers("http://a.test/**", "https://a.test/"));
        assert!(!covers("http://a.test/**", "http://a.test:8080/"));
        assert!(covers("https://**", "https://any.test/x") && covers("http://a.test", "http://a.test/x"));
        assert!(covers("http://a.test/x", "http://a.test/x") && !covers("http://a.test/x", "http://a.test/x/y"));
        assert!(covers("http://[::1]:80/*", "http://[::1]/x"));
        let reaches = |pattern: &str, url: &str| {
            UrlPattern::parse(pattern)
                .unwrap()
                .reaches(&HttpUrl::parse(url).unwrap())
        };
        let scoped = "https://a.test/@x%2Fy";
        assert!(covers("https://a.test/**", scoped) && reaches("https://a.test/**", scoped));
        assert!(!covers("https://a.test/*", scoped) && reaches("https://a.test/*", scoped));
        assert!(!covers("https://a.test/@x/**", scoped) && reaches("https://a.test/@x/**", scoped));
        assert!(!reaches("https://a.test/@z/**", scoped));
        assert!(covers("http://**:*/x", "http://a.test:8080/x") && !covers("http://**:*/x", "https://a.test/x"));
        assert_eq!(
            UrlPattern::parse("http://[::1]:*")
                .map(|url| url.to_string())
                .as_deref(),
            Ok("http://[::1]:*/**")
        );
        assert!(UrlPattern::parse("http://a.test/x?y").is_err() && UrlPattern::parse("a.test/x").is_err());
    }
}
