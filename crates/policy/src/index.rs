//! Finds the rules that can have a say about a request, without looking at all of them.
//!
//! Promises: P14. A rule that is left out is one that Cedar would find unsatisfied; property tests hold the answers
//! with and without the index together.
//! Files are found by the folders above them and, for patterns, by literal head and last name; the network by host,
//! by the domains above it, and by the head of a URL's path; commands by the program's name.

use std::collections::HashMap;

use bailiwick_model::{
    AbsPath, Act, Host, HostPattern, PathPattern, ProgramPattern, Request, Resource, ResourcePattern, ToolName, Verb,
    VerbPattern,
};

use crate::cedar::is_tree;
use crate::rule::Rule;

type Numbers = Vec<usize>;

/// The rules, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Index {
    trees: HashMap<String, Numbers>,
    globs: HashMap<String, Globs>,
    urls: ByHost<HashMap<String, Numbers>>,
    repositories: ByHost<Numbers>,
    endpoints: ByHost<Numbers>,
    names: ByHost<Numbers>,
    /// By the name of the program, where it is written out.
    programs: HashMap<String, Numbers>,
    commands: Numbers,
    secrets: Numbers,
    /// By the whole name of a tool, where it is written out.
    tools: HashMap<ToolName, Numbers>,
    /// By the name of the server, where that is written out.
    servers: HashMap<String, Numbers>,
    any_server: Numbers,
}

/// The patterns with one literal head.
#[derive(Debug, Default)]
struct Globs {
    by_last: HashMap<String, Numbers>,
    open: Numbers,
}

/// Things by the host they are for.
#[derive(Debug, Default)]
struct ByHost<T> {
    exact: HashMap<Host, T>,
    one: HashMap<String, T>,
    deep: HashMap<String, T>,
    site: HashMap<String, T>,
    any: T,
}

impl<T: Default> ByHost<T> {
    fn slot(&mut self, pattern: &HostPattern) -> &mut T {
        match pattern {
            HostPattern::Any => &mut self.any,
            HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
            HostPattern::Below { domain, deep: true } => self.deep.entry(domain.clone()).or_default(),
            HostPattern::Below { domain, deep: false } => self.one.entry(domain.clone()).or_default(),
            HostPattern::Site(domain) => self.site.entry(domain.clone()).or_default(),
        }
    }

    fn of(&self, host: &Host) -> Vec<&T> {
        let mut found = vec![&self.any];
        found.extend(self.exact.get(host));
        if let Host::Name(name) = host {
            let mut domain = name.split_once('.').map(|(_, rest)| rest);
            found.extend(domain.and_then(|domain| self.one.get(domain)));
            found.extend(self.site.get(name));
            while let Some(here) = domain {
                found.extend(self.deep.get(here));
                found.extend(self.site.get(here));
                domain = here.split_once('.').map(|(_, rest)| rest);
            }
        }
        found
    }
}

impl Index {
    /// Sorts rules in, under their numbers.
    pub fn of(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            let act = rule.act();
            let slot = match &act.resource {
                ResourcePattern::Path(path) if is_tree(path) => index.trees.entry(path.as_str().into()).or_default(),
                ResourcePattern::Path(path) => index.glob(path),
                ResourcePattern::Url(url) => index.urls.slot(&url.host).entry(literal_head(url.path())).or_default(),
                ResourcePattern::Repository(pattern) => index.repositories.slot(&pattern.url.host),
                ResourcePattern::Endpoint { host, .. } if act.verb == VerbPattern::One(Verb::Resolve) => {
                    index.names.slot(host)
                }
                ResourcePattern::Endpoint { host, .. } => index.endpoints.slot(host),
                ResourcePattern::Command(pattern) => match &pattern.program {
                    ProgramPattern::Name(name) if !name.contains(['*', '\\']) => {
                        index.programs.entry(name.clone()).or_default()
                    }
                    _ => &mut index.commands,
                },
                ResourcePattern::AnyCommand => &mut index.commands,
                ResourcePattern::Secret(_) => &mut index.secrets,
                ResourcePattern::Tool(pattern) => match (pattern.as_name(), pattern.server()) {
                    (Some(tool), _) => index.tools.entry(tool).or_default(),
                    (None, Some(server)) => index.servers.entry(server.into()).or_default(),
                    (None, None) => &mut index.any_server,
                },
            };
            slot.push(number);
        }
        index
    }

    fn glob(&mut self, path: &PathPattern) -> &mut Numbers {
        let globs = self.globs.entry(path.anchor().as_str().into()).or_default();
        match path.last_literal() {
            Some(last) => globs.by_last.entry(last.into()).or_default(),
            None => &mut globs.open,
        }
    }

    /// The rules whose act covers the request, in order.
    pub fn candidates(&self, rules: &[Rule], request: &Request) -> Numbers {
        let mut found = Numbers::new();
        match &request.resource {
            Resource::File(path) | Resource::Tree(path) => self.files(path, &mut found),
            Resource::Url(url) => {
                for by_head in self.urls.of(&url.host) {
                    for path in url.readings() {
                        for head in heads(&path) {
                            found.extend(by_head.get(head).into_iter().flatten());
                        }
                    }
                }
            }
            Resource::Repository { url, .. } => {
                let of_host = self.repositories.of(&url.host).into_iter();
                of_host.for_each(|numbers| found.extend(numbers));
            }
            Resource::Endpoint { host, .. } => self
                .endpoints
                .of(host)
                .into_iter()
                .for_each(|numbers| found.extend(numbers)),
            Resource::Name(host) => self
                .names
                .of(host)
                .into_iter()
                .for_each(|numbers| found.extend(numbers)),
            Resource::Secret(_) => found.extend(&self.secrets),
            Resource::Tool(tool) => found = self.of_tool(tool),
            Resource::Command(command) => {
                found.extend(&self.commands);
                let mut names: Vec<&String> = command.forms().iter().flat_map(|form| &form.names).collect();
                names.sort_unstable();
                names.dedup();
                for name in names {
                    found.extend(self.programs.get(name).into_iter().flatten());
                }
            }
        }
        found.retain(|number| {
            rules
                .get(*number)
                .is_some_and(|rule| rule.covers(&request.verb, &request.resource))
        });
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The rules that could cover all of an act: more than do, never fewer.
    pub fn near(&self, rules: &[Rule], act: &Act) -> Numbers {
        let mut found = Numbers::new();
        match &act.resource {
            ResourcePattern::Path(path) => match path.as_tree() {
                Some(tree) => self.files(&tree, &mut found),
                None => found.extend(0..rules.len()),
            },
            ResourcePattern::Url(url) => match &url.host {
                HostPattern::Exact(host) => {
                    let by_head = self.urls.of(host).into_iter().flat_map(HashMap::values);
                    by_head.for_each(|numbers| found.extend(numbers));
                }
                _ => found.extend(0..rules.len()),
            },
            // A URL may deny all of a repository's host.
            ResourcePattern::Repository(_) => found.extend(0..rules.len()),
            ResourcePattern::Endpoint {
                host: HostPattern::Exact(host),
                ..
            } => {
                let both = self.endpoints.of(host).into_iter().chain(self.names.of(host));
                both.for_each(|numbers| found.extend(numbers));
            }
            ResourcePattern::Endpoint { .. } => found.extend(0..rules.len()),
            ResourcePattern::Secret(_) => found.extend(&self.secrets),
            ResourcePattern::Tool(pattern) => match pattern.as_name() {
                Some(tool) => found = self.of_tool(&tool),
                None => found.extend(0..rules.len()),
            },
            ResourcePattern::AnyCommand | ResourcePattern::Command(_) => {
                found.extend(&self.commands);
                found.extend(self.programs.values().flatten());
            }
        }
        found
    }

    /// The rules whose pattern is, or may be, about a tool: more than are, never fewer.
    pub fn of_tool(&self, tool: &ToolName) -> Numbers {
        let mut found = self.any_server.clone();
        found.extend(self.servers.get(tool.server()).into_iter().flatten());
        found.extend(self.tools.get(tool).into_iter().flatten());
        found
    }

    fn files(&self, path: &AbsPath, found: &mut Numbers) {
        for above in path.ancestors() {
            found.extend(self.trees.get(above).into_iter().flatten());
            let Some(globs) = self.globs.get(above) else { continue };
            found.extend(&globs.open);
            // A pattern covers what lies below its match, so its last name may be any name in the path.
            let mut names: Vec<&str> = path.segments().collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                found.extend(globs.by_last.get(name).into_iter().flatten());
            }
        }
    }
}

/// The part of a URL pattern's path before the first segment with a wildcard.
fn literal_head(path: &str) -> String {
    let literal = path.split('/').skip(1).take_while(|segment| !segment.contains('*'));
    literal.fold(String::new(), |head, segment| head + "/" + segment)
}

/// The path itself, then what is left of it without its last segment, down to nothing.
fn heads(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |head| head.rsplit_once('/').map(|(rest, _)| rest))
}
