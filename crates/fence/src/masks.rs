//! Protects what was found: hidden places are covered, guarded ones mounted read-only on themselves, and the folder
//! that holds a guarded place is pinned so that it cannot be renamed out of the way.
//!
//! Promises: P5, P13. A cover has mode 000 and lies on a read-only file system: it can be neither read nor opened up.
//! A mount stays with its folder entry, so renaming a folder above a covered place uncovers nothing now; the folders that
//! a pattern names keep their names, so that it finds the place again at the next start.
//! Not here: what is to be protected (`search`), and what comes later (`lookout`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bailiwick_gate::{BindMode, LaunchFault, Protection};
use rustix::io::Errno;

use crate::fault::{Says, cause, failed};
use crate::mounts;
use crate::root::Root;
use crate::search::{Found, unprotected_name};
use crate::trees::Trees;

/// Protects every place. Says how many; adds warnings about names that stay open.
pub(crate) fn lay(root: &Root, trees: &Trees, found: &mut Found) -> Result<u64, LaunchFault> {
    let tops: BTreeSet<PathBuf> = trees
        .trees
        .iter()
        .map(|tree| tree.target.as_str().trim_start_matches('/').into())
        .collect();
    let mut pins = pinned(found, &tops);
    pins.extend(named(found, trees, &tops));
    for folder in pins {
        let say = || format!("cannot pin `/{}`", folder.display());
        let place = root.exact(&folder).or_say(say)?;
        mounts::pin(&place, false).or_say(say)?;
    }
    let mut count: u64 = 0;
    // In the order of their paths: what holds comes before what is held.
    for (at, place) in &found.places {
        let say = || format!("cannot protect `/{}`", at.display());
        let here = match root.exact(at) {
            Ok(here) => here,
            // It went since it was found, or a cover above hides it already.
            Err(Errno::NOENT | Errno::ACCESS) => continue,
            Err(errno) => return Err(failed(say(), cause(errno))),
        };
        match place.protection {
            Protection::Hide => root.cover(&here).or_say(say)?,
            Protection::Guard | Protection::GuardFile if place.writable => mounts::pin(&here, true).or_say(say)?,
            Protection::Guard | Protection::GuardFile => {}
        }
        count = count.saturating_add(1);
    }
    for (at, end, protection) in &found.links {
        if name_of_link(root, at, end, *protection).is_err() {
            found.warnings.push(unprotected_name(at));
        }
    }
    Ok(count)
}

/// Protects the name of a link: what it leads to stands in its place.
fn name_of_link(root: &Root, at: &Path, end: &Path, protection: Protection) -> std::io::Result<()> {
    let link = root.exact(at)?;
    match protection {
        Protection::Hide => Ok(root.cover(&link)?),
        Protection::Guard | Protection::GuardFile => mounts::stand_in(&root.exact(end)?, &link),
    }
}

/// The folders that must keep their names for guarded places to keep theirs: the one that holds it, and those above
/// up to the outermost special one (a name with a dot). Those further up stay free, since every pinned folder is a
/// border that no rename crosses.
fn pinned(found: &Found, tops: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let guarded = found
        .places
        .iter()
        .filter(|(_, place)| place.writable && place.protection == Protection::Guard);
    let mut pinned = BTreeSet::new();
    for (at, _) in guarded {
        let mut above: Vec<&Path> = Vec::new();
        for folder in at.ancestors().skip(1) {
            if tops.contains(folder) || folder.as_os_str().is_empty() {
                break;
            }
            above.push(folder);
        }
        let special = |folder: &&Path| {
            folder
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let outermost = above.iter().rposition(special).unwrap_or(0);
        pinned.extend(
            above
                .iter()
                .take(outermost.saturating_add(1))
                .map(|folder| folder.to_path_buf()),
        );
    }
    pinned.retain(|folder| !found.places.contains_key(folder));
    pinned
}

/// The folders that patterns name, where the agent could rename them.
fn named<'a>(
    found: &'a Found,
    trees: &'a Trees,
    tops: &'a BTreeSet<PathBuf>,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    let writable = |folder: &Path| {
        let path = Path::new("/").join(folder);
        let holding = trees.trees.iter().filter(|tree| path.starts_with(tree.target.as_str()));
        let closest = holding.max_by_key(|tree| tree.target.as_str().len());
        closest.is_some_and(|tree| tree.mode == BindMode::Write)
    };
    let free = found.named.iter().filter(|folder| {
        // A place that is itself protected, and the top of a tree, are mounts already.
        !found.places.contains_key(*folder) && !tops.contains(*folder)
    });
    free.filter(move |folder| writable(folder)).cloned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::search::Place;

    fn guarded(paths: &[&str]) -> Found {
        let place = Place {
            protection: Protection::Guard,
            writable: true,
            folder: false,
        };
        let places: BTreeMap<PathBuf, Place> = paths.iter().map(|path| (path.into(), place.clone())).collect();
        Found {
            places,
            ..Found::default()
        }
    }

    #[test]
    fn p5_special_folders_are_pinned_up_to_the_outermost() {
        let tops = BTreeSet::from([PathBuf::from("p")]);
        let pins = |paths: &[&str]| {
            let all = pinned(&guarded(paths), &tops);
            all.iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(pins(&["p/bailiwick.toml"]), [""; 0]);
        assert_eq!(pins(&["p/.git/hooks"]), ["p/.git"]);
        assert_eq!(
            pins(&["p/a/b/.git/modules/m/hooks"]),
            ["p/a/b/.git", "p/a/b/.git/modules", "p/a/b/.git/modules/m"]
        );
        assert_eq!(pins(&["p/a/b/mcp.json"]), ["p/a/b"]);
    }
}
