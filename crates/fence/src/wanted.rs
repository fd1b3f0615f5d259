//! What protected patterns ask for in one tree: which names could matter, which folders they reach, what they say of a place.
//!
//! Promises: P5 (a tree that is seen at another place than its own is judged by both paths).
//! Not here: walking (`search`), and what comes later (`lookout`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use bailiwick_gate::{BindMode, Protected, Protection};
use bailiwick_model::{AbsPath, PathPattern};

use crate::sieve::{Ends, fits};
use crate::top::inside;
use crate::trees::Tree;

/// A protected pattern, and what is asked of it for every tree.
pub(crate) struct Asked<'a> {
    one: &'a Protected,
    anchor: AbsPath,
    /// The last step.
    last: &'a str,
    /// True when it may match in every folder below its anchor.
    deep: bool,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(one: &'a Protected) -> Self {
        let anchor = one.pattern.anchor();
        let text = one.pattern.as_str();
        let rest = text.get(anchor.as_str().trim_end_matches('/').len()..);
        Self {
            one,
            last: text.rsplit('/').next().unwrap_or("*"),
            deep: rest.is_some_and(|rest| rest.starts_with("/**/")),
            anchor,
        }
    }
}

/// The patterns that can match in one tree, by the last name they ask for.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    named: HashMap<&'a [u8], Vec<&'a Protected>>,
    globs: Vec<(&'a str, &'a Protected)>,
    /// True when some pattern reaches every folder of the tree.
    everywhere: bool,
    /// All of them.
    pub all: Vec<&'a Protected>,
    ends: Ends,
    /// What of the other trees lies in this one, by its path there.
    inner: HashSet<PathBuf>,
}

impl<'a> Wanted<'a> {
    /// No pattern.
    pub(crate) fn nothing(tree: &Tree, targets: &[&AbsPath]) -> Self {
        let top = inside(&tree.target);
        let below = targets
            .iter()
            .filter(|target| tree.target.holds(target) && ***target != tree.target);
        let below = below.filter_map(|target| inside(target).strip_prefix(&top).map(Path::to_path_buf).ok());
        Self {
            inner: below.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn of(tree: &Tree, asked: &[Asked<'a>], targets: &[&AbsPath]) -> Self {
        let mut wanted = Self::nothing(tree, targets);
        for asked in asked {
            let (one, anchor) = (asked.one, &asked.anchor);
            if tree.mode == BindMode::Read && one.protection != Protection::Hide {
                continue;
            }
            let (above, below) = (
                [&tree.source, &tree.target].map(|root| anchor.holds(root)),
                [&tree.source, &tree.target].map(|root| root.holds(anchor)),
            );
            if !above.contains(&true) && !below.contains(&true) {
                continue;
            }
            if !tree.personal && !below.contains(&true) {
                // The system's own trees, and a context's, are searched for places that are named there, not for names at large.
                continue;
            }
            wanted.everywhere |= asked.deep && above.contains(&true);
            wanted.all.push(one);
            wanted.ends.add(asked.last.as_bytes());
            match one.pattern.last_literal() {
                Some(name) => wanted.named.entry(name.as_bytes()).or_default().push(one),
                None => wanted.globs.push((asked.last, one)),
            }
        }
        wanted
    }

    /// The patterns whose last step could be this name.
    pub(crate) fn candidates<'b>(&'b self, name: &'b [u8]) -> impl Iterator<Item = &'a Protected> + use<'a, 'b> {
        let could_be = self.ends.could_be(name);
        let named = self.named.get(name).filter(|_| could_be);
        let globs = if could_be { self.globs.as_slice() } else { &[] };
        named.into_iter().flatten().copied().chain(
            globs
                .iter()
                .filter(|(glob, _)| fits(glob.as_bytes(), name))
                .map(|(_, one)| *one),
        )
    }

    /// What they say of a place of this name.
    pub(crate) fn says(&self, name: &[u8], folder: bool, seen: &Seen) -> Option<Match> {
        let meant = |one: &&Protected| one.protection != Protection::GuardFile || !folder;
        seen.protection(self.candidates(name).filter(meant))
    }

    /// True for a folder of the tree in which something may be protected.
    pub(crate) fn enters(&self, tree: &Tree, below: &Path) -> bool {
        tree.personal || self.reaches_into(&Seen::of(tree, below))
    }

    /// True where another tree is seen at this place of the tree.
    pub(crate) fn is_other(&self, below: &Path) -> bool {
        !self.inner.is_empty() && self.inner.contains(below)
    }

    fn reaches_into(&self, seen: &Seen) -> bool {
        self.everywhere
            || self
                .all
                .iter()
                .any(|one| seen.any(|path| one.pattern.reaches_into(path)))
    }
}

/// A path as rules name it: where it lies outside, and where it is seen inside.
pub(crate) struct Seen {
    outside: Option<AbsPath>,
    inside: Option<AbsPath>,
}

impl Seen {
    pub(crate) fn of(tree: &Tree, below: &Path) -> Self {
        let outside = tree.source.join(below).ok();
        let inside = if tree.source == tree.target {
            None
        } else {
            tree.target.join(below).ok()
        };
        Self { outside, inside }
    }

    pub(crate) fn any(&self, matches: impl Fn(&AbsPath) -> bool) -> bool {
        [&self.outside, &self.inside].into_iter().flatten().any(matches)
    }

    pub(crate) fn protection<'a>(&self, patterns: impl Iterator<Item = &'a Protected>) -> Option<Match> {
        let mut found: Option<Match> = None;
        for one in patterns {
            for path in [&self.outside, &self.inside].into_iter().flatten() {
                if one.pattern.matches(path) {
                    let known = found.get_or_insert(Match {
                        protection: one.protection,
                        named: BTreeSet::new(),
                    });
                    known.protection = known.protection.max(one.protection);
                    known.named.extend(named_above(&one.pattern, path));
                }
            }
        }
        found
    }
}

/// What patterns say of one place.
pub(crate) struct Match {
    /// How far it is protected.
    pub protection: Protection,
    /// Which of the folders above it they name: 1 is the one that holds it.
    pub named: BTreeSet<usize>,
}

/// Which folders above a place its pattern names, counted from the place: those before the first wildcard, and those
/// after the last `**`.
fn named_above(pattern: &PathPattern, path: &AbsPath) -> impl Iterator<Item = usize> {
    let depth = path.segments().count();
    let before = pattern.anchor().segments().count();
    let steps = pattern.as_str().rsplit('/').filter(|step| !step.is_empty());
    let after = steps.take_while(|step| *step != "**").count();
    (1..depth).filter(move |above| *above < after || depth.saturating_sub(*above) <= before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_pattern_names_the_folders_on_its_way() {
        let named = |pattern: &str, path: &str| -> Vec<usize> {
            let pattern = PathPattern::parse(pattern).unwrap();
            named_above(&pattern, &AbsPath::new(path).unwrap()).collect()
        };
        assert_eq!(named("/h/.local/state/b", "/h/.local/state/b"), [1, 2, 3]);
        assert_eq!(named("/h/certs/*.key", "/h/certs/a.key"), [1, 2]);
        assert_eq!(named("/**/.env", "/h/p/.env"), [0usize; 0]);
        assert_eq!(named("/**/.git/hooks", "/h/p/.git/hooks"), [1]);
        assert_eq!(named("/h/p/**/.env", "/h/p/a/b/.env"), [3, 4]);
    }
}
