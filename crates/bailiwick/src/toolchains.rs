//! Which toolchains a project is for, by the files that lie in it: in its root, or one folder down.
//!
//! Trust: the files may be anybody's. What they can bring in is a shipped profile, and only with a preset that says so.

use std::collections::BTreeSet;
use std::path::Path;

/// Most names that are looked at in one folder, and most folders.
const MAX: usize = 500;

/// What makes no project by itself: a folder with nothing else is a new one, and may become anything.
const SAYS_NOTHING: [&str; 3] = ["readme", "license", "bailiwick.toml"];

/// Folders that hold what others made.
const OTHERS: [&str; 4] = ["node_modules", "target", "vendor", "venv"];

/// Names that tell of C or C++.
const C: [&str; 9] = [
    "Makefile",
    "CMakeLists.txt",
    "meson.build",
    "configure.ac",
    "*.c",
    "*.cc",
    "*.cpp",
    "*.h",
    "*.hpp",
];

/// The profiles of the toolchains that a project is for. For a folder without a project in it, all there are.
pub fn recognized(root: &Path) -> Vec<String> {
    let (names, folders) = listed(root);
    let mut found = found_in(root, &names, &folders);
    let says = |name: &String| {
        let name = name.to_lowercase();
        !name.starts_with('.') && !SAYS_NOTHING.iter().any(|known| name.starts_with(known))
    };
    if !names.iter().chain(&folders).any(says) {
        found.extend(bailiwick_policy::toolchains().map(|(profile, _)| profile));
    }
    found.into_iter().map(str::to_owned).collect()
}

/// The profiles of the toolchains whose files lie in a project.
pub fn found(root: &Path) -> Vec<String> {
    let (names, folders) = listed(root);
    found_in(root, &names, &folders)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// True where sources of C or C++ lie, or what builds them.
pub fn is_c(root: &Path) -> bool {
    let (names, folders) = listed(root);
    let holds = |names: &[String]| names.iter().any(|name| C.iter().any(|mark| fits(mark, name)));
    holds(&names) || own(&folders).any(|folder| holds(&listed(&root.join(folder)).0))
}

fn found_in(root: &Path, names: &[String], folders: &[String]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    marked(names, &mut found);
    for folder in own(folders) {
        marked(&listed(&root.join(folder)).0, &mut found);
    }
    found
}

/// The folders that hold the project's own.
fn own(folders: &[String]) -> impl Iterator<Item = &String> {
    folders.iter().filter(|folder| !OTHERS.contains(&folder.as_str()))
}

fn marked(names: &[String], found: &mut BTreeSet<&'static str>) {
    for (profile, marks) in bailiwick_policy::toolchains() {
        if names.iter().any(|name| marks.iter().any(|mark| fits(mark, name))) {
            found.insert(profile);
        }
    }
}

/// True for the very name, or for one with anything in place of the `*`.
fn fits(mark: &str, name: &str) -> bool {
    match mark.split_once('*') {
        Some((head, tail)) => {
            name.len() >= head.len().saturating_add(tail.len()) && name.starts_with(head) && name.ends_with(tail)
        }
        None => mark == name,
    }
}

/// The files and the folders in a folder, by name; links are neither followed nor folders.
fn listed(folder: &Path) -> (Vec<String>, Vec<String>) {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Ok(name) = entry.file_name().into_string() {
            if is_folder { &mut folders } else { &mut files }.push(name);
        }
    }
    (files, folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_for_what_lies_in_it() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = room.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        let all: Vec<String> = ["go", "java", "node", "python", "rust"].map(String::from).into();
        assert_eq!(recognized(room.path()), all, "an empty folder may become anything");
        at(".git/config");
        at("README.md");
        assert_eq!(recognized(room.path()), all);
        at("main.c");
        assert!(recognized(room.path()).is_empty(), "C needs none");
        at("node_modules/x/package.json");
        at("node_modules/package.json");
        assert!(recognized(room.path()).is_empty(), "what others made says nothing");
        at("Cargo.toml");
        at("web/package.json");
        at("deep/er/go.mod");
        assert_eq!(recognized(room.path()), ["node", "rust"]);
        at("requirements-dev.txt");
        at("app/build.gradle.kts");
        assert_eq!(recognized(room.path()), ["java", "node", "python", "rust"]);
    }
}
