//! The rule files that are shipped with the program, in the same format as people's own.

/// Denies that hold always, in every context.
pub(crate) const BUILTIN: &str = include_str!("../presets/builtin.toml");

/// The name of the ceiling for those who wrote none.
pub(crate) const CEILING: &str = "ceiling";

/// The preset of a context that has no rule file.
pub(crate) const DEFAULT: &str = "coding";

/// The preset with which an agent signs in. Only a run can have it.
pub(crate) const SIGN_IN: &str = "sign-in";

/// The preset of a command that a broker runs. Nobody names it.
pub(crate) const BROKER: &str = "broker";

/// The preset of what a tool server may do besides what its table names.
pub(crate) const SERVER: &str = "server";

/// Presets by name. `base` is what the others share.
const PRESETS: &[(&str, &str)] = &[
    ("base", include_str!("../presets/base.toml")),
    ("coding", include_str!("../presets/coding.toml")),
    ("install", include_str!("../presets/install.toml")),
    ("readonly", include_str!("../presets/readonly.toml")),
    ("offline", include_str!("../presets/offline.toml")),
    ("crates-io", include_str!("../presets/registries/crates-io.toml")),
    ("pypi", include_str!("../presets/registries/pypi.toml")),
    ("npm", include_str!("../presets/registries/npm.toml")),
    ("debian", include_str!("../presets/registries/debian.toml")),
    (BROKER, include_str!("../presets/broker.toml")),
    (SERVER, include_str!("../presets/server.toml")),
    (SIGN_IN, include_str!("../presets/sign-in.toml")),
    (CEILING, include_str!("../presets/ceiling.toml")),
];

/// The presets of package registries, which are read and never written.
const REGISTRIES: [&str; 4] = ["crates-io", "pypi", "npm", "debian"];

/// True for the name of a shipped preset of a registry, as rules have it for their file.
pub(crate) fn is_registry(file: &str) -> bool {
    file.strip_prefix("preset:")
        .is_some_and(|name| REGISTRIES.contains(&name))
}

/// One shipped profile.
struct Profile {
    name: &'static str,
    /// The programs it is for, by name: none for a toolchain.
    programs: &'static [&'static str],
    /// The files by which it is recognized in a project: none for an agent. `*` stands for any rest.
    marks: &'static [&'static str],
    text: &'static str,
}

macro_rules! profile {
    ($name:literal, $programs:expr, $marks:expr) => {
        Profile {
            name: $name,
            programs: &$programs,
            marks: &$marks,
            text: include_str!(concat!("../presets/profiles/", $name, ".toml")),
        }
    };
}

/// Profiles by name: what they are for stands in them, too.
const PROFILES: &[Profile] = &[
    profile!("claude-code", ["claude"], []),
    profile!("codex", ["codex"], []),
    profile!("opencode", ["opencode"], []),
    profile!("gemini-cli", ["gemini"], []),
    profile!("goose", ["goose"], []),
    profile!("rust", [], ["Cargo.toml"]),
    profile!("node", [], ["package.json"]),
    profile!(
        "python",
        [],
        ["pyproject.toml", "requirements*.txt", "setup.py", "Pipfile"]
    ),
    profile!("go", [], ["go.mod", "go.work"]),
    profile!("java", [], ["pom.xml", "build.gradle*", "settings.gradle*"]),
];

/// The text of a shipped preset.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The text of a shipped profile.
pub fn profile(name: &str) -> Option<&'static str> {
    let found = PROFILES.iter().find(|profile| profile.name == name);
    found.map(|profile| profile.text)
}

/// The shipped profile for a program, by the last part of its path.
pub fn profile_for(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let found = PROFILES.iter().find(|profile| profile.programs.contains(&name));
    found.map(|profile| profile.name)
}

/// The shipped profiles of agents, with the programs they are for.
pub fn agents() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let agents = PROFILES.iter().filter(|profile| !profile.programs.is_empty());
    agents.map(|profile| (profile.name, profile.programs))
}

/// The shipped profiles of toolchains, with the names of files by which they are recognized. A `*` stands for any rest.
pub fn toolchains() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let toolchains = PROFILES.iter().filter(|profile| !profile.marks.is_empty());
    toolchains.map(|profile| (profile.name, profile.marks))
}

/// The names that `extends` may hold in a project's file.
pub(crate) const EXTENDABLE: &[&str] = &[
    "coding",
    "install",
    "readonly",
    "offline",
    "base",
    "crates-io",
    "pypi",
    "npm",
    "debian",
];

/// The names of all shipped profiles.
pub(crate) fn profile_names() -> Vec<&'static str> {
    PROFILES.iter().map(|profile| profile.name).collect()
}

#[cfg(test)]
mod tests {
    use bailiwick_gate::AsWritten;
    use bailiwick_model::{AbsPath, Anchors, Layer};

    use super::*;
    use crate::document::Reader;

    #[test]
    fn all_shipped_files_are_without_fault() {
        let home = AbsPath::new("/home/dana").unwrap();
        let inside = Anchors {
            root: AbsPath::new("/home/dana/p").ok(),
            home: home.clone(),
        };
        let outside = Anchors { root: None, home };
        for (name, text) in PRESETS
            .iter()
            .copied()
            .chain(PROFILES.iter().map(|profile| (profile.name, profile.text)))
        {
            let anchors = if name == CEILING { &outside } else { &inside };
            let (file, wrong) = Reader::read(Layer::Context, name, text, anchors, &AsWritten, true);
            assert_eq!(wrong, [], "{name}");
            assert!(!file.rules.is_empty() || !file.extends.is_empty(), "{name}");
            for (extended, _) in file.extends {
                assert!(preset(&extended).is_some(), "{name} extends {extended}");
            }
        }
        let (file, wrong) = Reader::read(Layer::Builtin, "builtin", BUILTIN, &outside, &AsWritten, true);
        assert_eq!(wrong, []);
        assert!(
            file.rules
                .iter()
                .all(|rule| rule.effect == bailiwick_model::Verdict::Deny)
        );
    }

    #[test]
    fn profiles_are_found_by_program() {
        assert_eq!(profile_for("/usr/local/bin/claude"), Some("claude-code"));
        assert_eq!(profile_for("codex"), Some("codex"));
        assert_eq!(profile_for("bash"), None);
        for Profile {
            name,
            programs,
            marks,
            text,
        } in PROFILES
        {
            let anchors = Anchors {
                root: AbsPath::new("/home/dana/p").ok(),
                home: AbsPath::new("/home/dana").unwrap(),
            };
            let (file, _) = Reader::read(Layer::Context, name, text, &anchors, &AsWritten, true);
            assert_eq!(&file.program, programs, "the table and the file agree about {name}");
            assert_eq!(&file.marks, marks, "the table and the file agree about {name}");
        }
    }
}
