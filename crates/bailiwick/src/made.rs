//! Protected names in the project's top folder that did not exist when a task began: those that do when it has ended
//! are told, since programs outside obey them.
//!
//! Promises: P13 (what could not be held is said). Trust: the names are the rules'; what lies there is the agent's, and
//! is not opened. Not here: names deeper down, which are not looked for.

use std::path::PathBuf;

use bailiwick_model::AbsPath;

use crate::daemon::kept::content;
use crate::protocol::Planned;

/// What is looked at before a task begins and after it has ended, since what came to be in between outlives it.
#[derive(Debug, Default)]
pub struct Made {
    absent: Absent,
    settings: Settings,
}

impl Made {
    /// Looks before.
    pub fn before(planned: &Planned) -> Self {
        Self {
            absent: Absent::find(&planned.root, &planned.guarded),
            settings: Settings::read(&planned.settings, &planned.home),
        }
    }

    /// Looks after: what a person should know, one text each.
    pub fn told(&self) -> Vec<String> {
        [self.absent.told(), self.settings.told()]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Names to look at again.
#[derive(Debug, Default)]
struct Absent(Vec<PathBuf>);

impl Absent {
    /// Finds the names below `root` that the patterns protect and that are not there.
    fn find(root: &AbsPath, guarded: &[String]) -> Self {
        let names = guarded.iter().filter_map(|pattern| pattern.rsplit_once("**/"));
        let plain = names.filter(|(before, name)| matches!(*before, "" | "/" | "./") && !name.contains('*'));
        let paths = plain.map(|(_, name)| root.to_path_buf().join(name));
        Self(paths.filter(|path| path.symlink_metadata().is_err()).collect())
    }

    /// Says which of them are there now; none when none are.
    fn told(&self) -> Option<String> {
        let made: Vec<String> = self
            .0
            .iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .map(|path| format!("`{}`", bailiwick_model::visible(&path.display().to_string())))
            .collect();
        (!made.is_empty()).then(|| {
            format!(
                "bailiwick: look before you go on, programs outside obey what was made here: {}\n",
                made.join(", ")
            )
        })
    }
}

/// Settings of agents in kept folders, as they were when a task began: its next one obeys them.
#[derive(Debug, Default)]
struct Settings(Vec<(String, AbsPath, Option<Vec<u8>>)>);

impl Settings {
    /// Reads them. `kept` holds each by its place inside and outside.
    fn read(kept: &[(AbsPath, AbsPath)], home: &AbsPath) -> Self {
        let named = |place: &AbsPath| match place.as_str().strip_prefix(home.as_str()) {
            Some(rest) => format!("~{rest}"),
            None => place.to_string(),
        };
        let read = |(place, outside): &(AbsPath, AbsPath)| (named(place), outside.clone(), content(outside));
        Self(kept.iter().map(read).collect())
    }

    /// Says which of them are others now; none when none are.
    fn told(&self) -> Option<String> {
        let changed: Vec<String> = self
            .0
            .iter()
            .filter(|(_, outside, before)| content(outside) != *before)
            .map(|(name, outside, _)| {
                let outside = bailiwick_model::visible(outside.as_str());
                format!("`{}` (kept in {outside})", bailiwick_model::visible(name))
            })
            .collect();
        (!changed.is_empty()).then(|| {
            format!(
                "bailiwick: the agent goes on here as it left itself, its settings have changed: {}\n",
                changed.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p13_protected_names_that_came_to_be_are_told() {
        let room = tempfile::tempdir().unwrap();
        let root = AbsPath::new(room.path()).unwrap();
        std::fs::create_dir(room.path().join(".git")).unwrap();
        std::fs::write(room.path().join(".mcp.json"), "").unwrap();
        let guarded = [
            "/**/.git/commondir",
            "**/.mcp.json",
            "/**/.git/modules/**/config",
            "/home/x/.bashrc",
        ];
        let absent = Absent::find(&root, &guarded.map(String::from));
        assert_eq!(absent.told(), None);
        std::fs::write(room.path().join(".git/commondir"), "../evil").unwrap();
        let told = absent.told().unwrap();
        assert!(told.contains(".git/commondir`") && !told.contains("mcp"), "{told}");
    }
}
