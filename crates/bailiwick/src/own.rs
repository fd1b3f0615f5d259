//! Bailiwick's own folders: nothing inside a fence reads or changes them, wherever they lie.
//!
//! Promises: P2, P10. Whoever writes in the state folder gives trust and signs the log; whoever writes in the rule
//! folders raises the ceiling. Shipped rules deny the usual places; here are denies for every other place that
//! `XDG_STATE_HOME`, `XDG_CONFIG_HOME` or a link may name.
//! Trust: the paths are the person's own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bailiwick_model::AbsPath;
use bailiwick_policy::SourceFile;

use crate::failure::Failure;
use crate::places::{MACHINE_RULES, Places};

/// Where they are when nothing says otherwise, below the home.
const USUAL: [&str; 2] = [".local/state/bailiwick", ".config/bailiwick"];

/// Denies for those that lie elsewhere than the shipped denies say; none when there are none.
pub fn denies(places: &Places) -> Result<Option<SourceFile>, Failure> {
    let home = places.home.to_path_buf();
    let usual = USUAL.map(|path| home.join(path));
    let mut names: Vec<PathBuf> = Vec::new();
    for folder in folders(places).into_iter().take(2).chain(usual.clone()) {
        names.extend([whole(&folder), folder]);
    }
    names.retain(|name| !usual.iter().any(|usual| name.starts_with(usual)));
    names.sort();
    names.dedup();
    let mut text = String::from("deny = [\n");
    for name in &names {
        let refuse = |cause: &str| {
            Failure::usage(format!(
                "bailiwick's own folder `{}` cannot be denied: {cause}",
                name.display()
            ))
            .hint("set XDG_STATE_HOME and XDG_CONFIG_HOME to folders with plain names")
        };
        let path = AbsPath::new(name).map_err(|fault| refuse(&fault.to_string()))?;
        if path.as_str().contains(['*', '\\', '"']) || path.as_str().contains(char::is_control) {
            return Err(refuse("its name holds a sign that rules cannot hold"));
        }
        text.push_str(&format!("    \"* {path}\",\n"));
    }
    text.push_str("]\n");
    Ok((!names.is_empty()).then(|| SourceFile {
        name: "builtin:own-folders".into(),
        text,
    }))
}

/// Sees to it that the denies hold in trees that may be written. What is absent cannot be hidden, so it is made; and a
/// folder that may be renamed takes what is hidden in it along, and leaves its name free to be made anew.
pub fn keep_out(places: &Places, writable: &[&AbsPath]) -> Result<(), Failure> {
    for tree in writable {
        let tree = whole(&tree.to_path_buf());
        for folder in folders(places) {
            let own = whole(&folder);
            let Ok(below) = own.strip_prefix(&tree) else {
                continue;
            };
            let refuse = |cause: String| {
                Failure::usage(format!(
                    "`{}` may be written, and holds bailiwick's own `{}`: {cause}",
                    tree.display(),
                    own.display()
                ))
                .hint("grant the folders in it that are needed, or keep the state elsewhere with XDG_STATE_HOME and XDG_CONFIG_HOME")
            };
            if below.components().count() > 1 {
                return Err(refuse("what writes there can put another in its place".into()));
            }
            match make(&own) {
                Err(e) if !own.is_dir() && !cannot_be_made_inside(&e) => return Err(refuse(e.to_string())),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Makes a folder: the machine's rules are for everybody to read.
fn make(folder: &Path) -> std::io::Result<()> {
    let mode = if folder == Path::new(MACHINE_RULES) {
        0o755
    } else {
        0o700
    };
    std::fs::create_dir(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))
}

/// What the person may not make, the agent may not either.
fn cannot_be_made_inside(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// State, rules, the machine's rules. The state of a run with its own mediator lies in the person's.
fn folders(places: &Places) -> [PathBuf; 3] {
    let state = places.state.ancestors().find(|folder| folder.ends_with("bailiwick"));
    [
        state.unwrap_or(&places.state).to_path_buf(),
        places.config.clone(),
        MACHINE_RULES.into(),
    ]
}

/// A path without links; of what does not exist yet, as far as it does.
fn whole(path: &Path) -> PathBuf {
    let there = |known: &Path| {
        let rest = path.strip_prefix(known).ok()?;
        let known = known.canonicalize().ok()?;
        // Joined with nothing it would end with a slash.
        Some(if rest.as_os_str().is_empty() {
            known
        } else {
            known.join(rest)
        })
    };
    path.ancestors().find_map(there).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(room: &Path, state: &str, config: &str) -> Places {
        Places {
            home: AbsPath::new(room.join("home")).unwrap(),
            state: room.join(state),
            config: room.join(config),
        }
    }

    #[test]
    fn p2_own_folders_are_denied_where_they_lie() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        std::fs::create_dir_all(room.join("home/real")).unwrap();
        let usual = places(&room, "home/.local/state/bailiwick", "home/.config/bailiwick");
        assert_eq!(denies(&usual).unwrap(), None);
        let alone = places(
            &room,
            "home/.local/state/bailiwick/standalone/1",
            "home/.config/bailiwick",
        );
        assert_eq!(denies(&alone).unwrap(), None);
        let moved = denies(&places(
            &room,
            "desk/st/bailiwick/standalone/1",
            "home/.config/bailiwick",
        ))
        .unwrap();
        assert!(
            moved
                .unwrap()
                .text
                .contains(&format!("\"* {}/desk/st/bailiwick\"", room.display()))
        );
        std::os::unix::fs::symlink("real", room.join("home/.config")).unwrap();
        let linked = denies(&usual).unwrap().unwrap().text;
        assert!(linked.contains("home/real/bailiwick\""), "{linked}");
        assert!(denies(&places(&room, "odd*/bailiwick", "home/.config/bailiwick")).is_err());
    }

    #[test]
    fn p2_no_tree_may_be_written_whose_folders_can_be_swapped() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        std::fs::create_dir_all(room.join("home/.config")).unwrap();
        let usual = places(&room, "home/.local/state/bailiwick", "home/.config/bailiwick");
        let tree = |path: &str| AbsPath::new(room.join(path)).unwrap();
        assert!(keep_out(&usual, &[&tree("home")]).is_err());
        assert!(keep_out(&usual, &[&tree("home/.local")]).is_err());
        assert!(keep_out(&usual, &[&AbsPath::root()]).is_err());
        assert!(keep_out(&usual, &[&tree("home/work"), &tree("homes")]).is_ok());
        assert!(!room.join("home/.config/bailiwick").exists());
        assert!(keep_out(&usual, &[&tree("home/.config")]).is_ok());
        assert!(room.join("home/.config/bailiwick").is_dir());
    }
}
