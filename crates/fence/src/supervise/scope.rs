//! What a fence allows at a place: the plan's trees, less what is protected in them.
//!
//! Answers: may this path be read, changed, renamed? Promises: P1, P5 (the path is the object's own, found by the
//! kernel; other names of a protected file are known by inode), P13. A protected name is protected whether it is
//! there or not. Pure. Trust: paths come from the kernel, their names from the agent.
//! Not here: finding the object (`walk`), and what Landlock keeps besides: the floor lies below this.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use bailiwick_gate::{BindMode, Protected, Protection};
use bailiwick_model::{AbsPath, PathPattern};

/// What may be done at a place. The later includes the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum May {
    /// Nothing.
    Nothing,
    /// Read.
    Read,
    /// Read and change.
    Write,
}

/// What is known of the object at a place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Object {
    /// True for a folder.
    pub folder: bool,
    /// Its device and inode, where it is a file with several names.
    pub twin: Option<(u64, u64)>,
}

/// The patterns that can match a path, found by the names that they ask for.
#[derive(Debug, Default)]
struct Index {
    all: Vec<(PathPattern, Protection)>,
    /// By a name that every path has which the pattern covers.
    by_name: HashMap<String, Vec<usize>>,
    /// Those without such a name.
    others: Vec<usize>,
}

/// The steps of a pattern.
fn steps(pattern: &PathPattern) -> impl DoubleEndedIterator<Item = &str> {
    pattern.as_str().split('/').filter(|step| !step.is_empty())
}

impl Index {
    fn of(protected: &[Protected]) -> Self {
        let mut index = Self::default();
        for one in protected {
            let place = index.all.len();
            match steps(&one.pattern).rev().find(|step| !step.contains('*')) {
                Some(name) => index.by_name.entry(name.to_owned()).or_default().push(place),
                None => index.others.push(place),
            }
            index.all.push((one.pattern.clone(), one.protection));
        }
        index
    }

    /// The patterns that may cover a path.
    fn candidates<'a>(&'a self, path: &'a AbsPath) -> impl Iterator<Item = &'a (PathPattern, Protection)> {
        let named = path
            .segments()
            .filter_map(|name| self.by_name.get(name))
            .flatten()
            .chain(&self.others);
        named.filter_map(|place| self.all.get(*place))
    }
}

/// A tree that may be used.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Where the kernel has it.
    pub source: AbsPath,
    /// Where rules see it, which is where the agent looks for it.
    pub target: AbsPath,
    /// What may be done there.
    pub mode: BindMode,
    /// True for a tree of the fence's own, in the place of another of the person's.
    pub own: bool,
}

impl Seen {
    /// Where a tree of the fence's own is seen.
    fn kept(&self) -> Option<&AbsPath> {
        self.own.then_some(&self.target)
    }

    /// The path by which rules know a place.
    fn known_as(&self, path: &AbsPath) -> AbsPath {
        let rest = path.as_str().strip_prefix(self.source.as_str()).unwrap_or_default();
        match self.source == self.target {
            true => path.clone(),
            false => self
                .target
                .join(rest.trim_start_matches('/'))
                .unwrap_or_else(|_| path.clone()),
        }
    }
}

/// The places of a fence.
#[derive(Debug)]
pub(crate) struct Scope {
    trees: Vec<Seen>,
    scratch: Vec<AbsPath>,
    protected: Index,
    /// Protected places that no pattern covers: what links with a protected name lead to, other names of a file.
    places: HashMap<AbsPath, Protection>,
    /// Files with several names, one of them protected.
    twins: HashMap<(u64, u64), Protection>,
    /// Folders on the way to protected places, as patterns: renamed, the place would go by another name.
    on_the_way: Vec<PathPattern>,
    /// Those of the trees that are served to be asked about.
    asked: Vec<AbsPath>,
}

impl Scope {
    /// The places of a plan.
    pub(crate) fn of(
        trees: Vec<Seen>,
        scratch: Vec<AbsPath>,
        protected: &[Protected],
        places: HashMap<AbsPath, Protection>,
        twins: HashMap<(u64, u64), Protection>,
    ) -> Self {
        let mut ways = BTreeSet::new();
        for one in protected {
            let steps: Vec<&str> = steps(&one.pattern).collect();
            for (place, step) in steps.iter().enumerate() {
                let last = place.saturating_add(1) == steps.len();
                if *step != "**" && (!last || one.protection == Protection::GuardFile) {
                    ways.insert(format!("/{}", steps.get(..=place).unwrap_or_default().join("/")));
                }
            }
        }
        Self {
            trees,
            scratch,
            protected: Index::of(protected),
            places,
            twins,
            asked: Vec::new(),
            on_the_way: ways.iter().filter_map(|way| PathPattern::parse(way).ok()).collect(),
        }
    }

    /// With some of its trees served to be asked about.
    pub(crate) fn asking(mut self, trees: Vec<AbsPath>) -> Self {
        self.asked = trees;
        self
    }

    /// What may be done at a path that no link stands on.
    pub(crate) fn may(&self, path: &Path, object: Object) -> May {
        let Ok(path) = AbsPath::new(path) else {
            return May::Nothing;
        };
        if self.is_in_scratch(&path) {
            return May::Write;
        }
        let Some(tree) = self.tree_of(&path) else {
            return May::Nothing;
        };
        let (path, kept) = (tree.known_as(&path), tree.kept());
        let granted = match tree.mode {
            BindMode::Read => May::Read,
            BindMode::Write => May::Write,
        };
        match self.protection(&path, object, kept) {
            Some(Protection::Hide) => May::Nothing,
            Some(Protection::Guard | Protection::GuardFile) => granted.min(May::Read),
            None => granted,
        }
    }

    /// True when what is protected below one folder is just what would be below another: a folder may move from the one
    /// to the other as a whole. Else whoever moves it copies, name by name.
    pub(crate) fn is_alike(&self, one: &Path, other: &Path) -> bool {
        let (Ok(one), Ok(other)) = (AbsPath::new(one), AbsPath::new(other)) else {
            return false;
        };
        let scratch = |path: &AbsPath| self.is_in_scratch(path);
        if scratch(&one) || scratch(&other) {
            return scratch(&one) && scratch(&other);
        }
        let (Some(tree), Some(other_tree)) = (self.tree_of(&one), self.tree_of(&other)) else {
            return false;
        };
        if tree.kept() != other_tree.kept() {
            return false;
        }
        let (one, other) = (tree.known_as(&one), other_tree.known_as(&other));
        self.protected
            .all
            .iter()
            .all(|(pattern, how)| pattern.agrees_below(&one, &other, *how != Protection::GuardFile))
    }

    /// True for what lies in scratch: no tree stands nearer, as a project does in a home of the task's own.
    pub(crate) fn is_scratch(&self, path: &Path) -> bool {
        AbsPath::new(path).is_ok_and(|path| self.is_in_scratch(&path))
    }

    fn is_in_scratch(&self, path: &AbsPath) -> bool {
        let tree = self.tree_of(path).map_or(0, |tree| tree.source.as_str().len());
        let mut holding = self.scratch.iter().filter(|scratch| scratch.holds(path));
        holding.any(|scratch| scratch.as_str().len() > tree)
    }

    /// True where each file is asked about, by somebody else than the supervisor.
    pub(crate) fn is_asked(&self, path: &Path) -> bool {
        let asked = |path: &AbsPath| self.tree_of(path).is_some_and(|tree| self.asked.contains(&tree.source));
        !self.asked.is_empty() && AbsPath::new(path).is_ok_and(|path| asked(&path))
    }

    /// True where what git obeys is protected at large, whatever its folder is called.
    pub(crate) fn guards_repositories(&self, path: &Path) -> bool {
        let Ok(path) = AbsPath::new(path) else {
            return true;
        };
        let settings = |pattern: &PathPattern| pattern.as_str() == "/**/.git/config";
        !self.is_in_scratch(&path)
            && self.tree_of(&path).is_some_and(|tree| !tree.own)
            && self.protected.all.iter().any(|(pattern, _)| settings(pattern))
    }

    /// True for what is granted by itself: a device, a socket.
    pub(crate) fn is_granted(&self, path: &Path) -> bool {
        AbsPath::new(path).is_ok_and(|path| self.trees.iter().any(|tree| tree.source == path))
    }

    /// The nearest tree that holds a place, as with mounts.
    fn tree_of(&self, path: &AbsPath) -> Option<&Seen> {
        let holding = self.trees.iter().filter(|tree| tree.source.holds(path));
        holding.max_by_key(|tree| tree.source.as_str().len())
    }

    /// In a tree of the fence's own (`kept`), only what is named there is protected: it is not the place that rules at
    /// large are about.
    fn protection(&self, path: &AbsPath, object: Object, kept: Option<&AbsPath>) -> Option<Protection> {
        let at_large = |pattern: &PathPattern| kept.is_some_and(|kept| !kept.holds(&pattern.anchor()));
        let by_pattern = self.protected.candidates(path).filter_map(|(pattern, protection)| {
            let meant = match protection {
                // A file alone is meant: not what is in a folder of the name.
                Protection::GuardFile => !object.folder && pattern.matches(path),
                Protection::Guard | Protection::Hide => pattern.covers(path),
            };
            (meant && !at_large(pattern)).then_some(*protection)
        });
        let by_place = self
            .places
            .iter()
            .filter(|(place, _)| place.holds(path))
            .map(|(_, protection)| *protection);
        let by_inode = object.twin.and_then(|twin| self.twins.get(&twin).copied());
        by_pattern.chain(by_place).chain(by_inode).max()
    }

    /// True when a folder or link of this name is on the way to protected places: it keeps its name, and no other takes
    /// it by being renamed.
    pub(crate) fn keeps_its_name(&self, path: &Path) -> bool {
        let Ok(path) = AbsPath::new(path) else {
            return true;
        };
        // A tree moves with the folder that it is mounted below, and would be known by another name then.
        let top = self.trees.iter().any(|tree| path.holds(&tree.source));
        if self.is_in_scratch(&path) {
            return top || self.scratch.contains(&path);
        }
        let path = self
            .tree_of(&path)
            .map_or_else(|| path.clone(), |tree| tree.known_as(&path));
        top || self.on_the_way.iter().any(|way| way.matches(&path)) || self.places.keys().any(|place| path.holds(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn scope() -> Scope {
        let protect = |pattern: &str, protection| Protected {
            pattern: PathPattern::parse(pattern).unwrap(),
            protection,
        };
        let seen = |source: &str, target: &str, mode| Seen {
            source: path(source),
            target: path(target),
            mode,
            own: source != target,
        };
        Scope::of(
            vec![
                seen("/usr", "/usr", BindMode::Read),
                seen("/p", "/p", BindMode::Write),
                seen("/p/vendor", "/p/vendor", BindMode::Read),
                seen("/state/kept", "/home/.agent", BindMode::Write),
            ],
            vec![path("/tmp/s"), path("/p"), path("/usr/share"), path("/state")],
            &[
                protect("/**/.git/hooks", Protection::Guard),
                protect("/**/.git", Protection::GuardFile),
                protect("/p/**/.env", Protection::Hide),
                protect("/p/**/*.pem", Protection::Hide),
                protect("/p/a/secret", Protection::Hide),
                protect("/state", Protection::Hide),
                protect("/home/.agent/settings", Protection::Guard),
            ],
            [(path("/p/real"), Protection::Hide)].into(),
            [((1, 2), Protection::Guard)].into(),
        )
    }

    #[test]
    fn p1_what_no_tree_holds_is_nothing() {
        let scope = scope();
        let may = |path: &str| scope.may(Path::new(path), Object::default());
        assert_eq!(may("/etc/passwd"), May::Nothing);
        assert_eq!(may("/usr/bin/ls"), May::Read);
        assert_eq!(may("/p/x"), May::Write);
        assert_eq!(may("/p/vendor/x"), May::Read);
        assert_eq!(may("/tmp/s/.env"), May::Write);
        // The nearer holds, and of two at one place the tree: a project lies in a home that is scratch.
        assert_eq!(may("/usr/share/x"), May::Write);
        assert_eq!(may("/p/.git/hooks/x"), May::Read);
        assert!(scope.is_scratch(Path::new("/tmp/s/x")) && !scope.is_scratch(Path::new("/p/x")));
        assert_eq!(may("/px"), May::Nothing);
        assert_eq!(may("/state/other"), May::Write, "scratch");
        assert_eq!(may("/state/kept/x"), May::Write, "rules know it by where it is seen");
        assert_eq!(may("/state/kept/settings"), May::Read);
        assert_eq!(may("/state/kept/.git/hooks"), May::Write, "not named there");
    }

    #[test]
    fn p5_protected_names_hold_whether_they_are_there_or_not() {
        let scope = scope();
        let may = |path: &str| scope.may(Path::new(path), Object::default());
        assert_eq!(may("/p/sub/.git/hooks/pre-commit"), May::Read);
        assert_eq!(may("/p/sub/.git/index"), May::Write);
        assert_eq!(may("/p/.git"), May::Read, "a file of that name");
        let folder = Object {
            folder: true,
            ..Object::default()
        };
        assert_eq!(scope.may(Path::new("/p/.git"), folder), May::Write);
        assert_eq!(may("/p/deep/er/.env"), May::Nothing);
        assert_eq!(may("/p/k.pem"), May::Nothing);
        assert_eq!(may("/p/real/x"), May::Nothing, "what a protected link leads to");
        let twin = Object {
            twin: Some((1, 2)),
            ..Object::default()
        };
        assert_eq!(scope.may(Path::new("/p/other"), twin), May::Read);
    }

    #[test]
    fn p5_folders_move_between_places_alike_alone() {
        let scope = scope();
        let alike = |one: &str, other: &str| {
            let (one, other) = (Path::new(one), Path::new(other));
            assert_eq!(scope.is_alike(one, other), scope.is_alike(other, one));
            scope.is_alike(one, other)
        };
        assert!(alike("/p/x", "/p/y/z"));
        assert!(alike("/p/.git/refs", "/p/objects"));
        assert!(alike("/tmp/s/x", "/tmp/s/y"));
        assert!(alike("/state/kept/x", "/state/kept/y"));
        for (one, other) in [
            ("/tmp/s/x", "/p/x"),
            ("/p/x", "/p/.git"),
            ("/p/x", "/p/a"),
            ("/state/kept/x", "/p/x"),
            ("/p/x", "/elsewhere"),
        ] {
            assert!(!alike(one, other), "{one} {other}");
        }
    }

    #[test]
    fn p5_folders_on_the_way_keep_their_names() {
        let scope = scope();
        for kept in [
            "/p",
            "/p/sub/.git",
            "/p/a",
            "/p/vendor",
            "/p/a/secret/../../a",
            "/tmp/s",
            "/state",
        ] {
            assert!(scope.keeps_its_name(Path::new(kept)), "{kept}");
        }
        for free in ["/p/sub", "/p/sub/a", "/p/.github", "/tmp/s/x"] {
            assert!(!scope.keeps_its_name(Path::new(free)), "{free}");
        }
    }
}
