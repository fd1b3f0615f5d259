//! The rule files that are shipped with the program, in the same format as people's own.

/// Denies that hold always, in every context.
pub(crate) const BUILTIN: &str = include_str!("../presets/builtin.toml");

/// The name of the ceiling for those who wrote none.
pub(crate) const CEILING: &str = "ceiling";

/// The preset of a context that has no rule file.
pub(crate) const DEFAULT: &str = "coding";

/// Presets by name. `base` is what the others share.
const PRESETS: &[(&str, &str)] = &[
    ("base", include_str!("../presets/base.toml")),
    ("coding", include_str!("../presets/coding.toml")),
    ("readonly", include_str!("../presets/readonly.toml")),
    ("offline", include_str!("../presets/offline.toml")),
    (CEILING, include_str!("../presets/ceiling.toml")),
];

/// Profiles by name: the programs they are for stand in them.
const PROFILES: &[(&str, &[&str], &str)] = &[
    (
        "claude-code",
        &["claude"],
        include_str!("../presets/profiles/claude-code.toml"),
    ),
    ("codex", &["codex"], include_str!("../presets/profiles/codex.toml")),
];

/// The text of a shipped preset.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The text of a shipped profile.
pub fn profile(name: &str) -> Option<&'static str> {
    PROFILES
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(.., text)| *text)
}

/// The shipped profile for a program, by the last part of its path.
pub fn profile_for(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let found = PROFILES.iter().find(|(_, programs, _)| programs.contains(&name));
    found.map(|(profile, ..)| *profile)
}

/// The names that `extends` may hold in a project's file.
pub(crate) const EXTENDABLE: &[&str] = &["coding", "readonly", "offline", "base"];

/// The names of all shipped profiles.
pub(crate) fn profile_names() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, ..)| *name).collect()
}

#[cfg(test)]
mod tests {
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
            .chain(PROFILES.iter().map(|(name, _, text)| (*name, *text)))
        {
            let anchors = if name == CEILING { &outside } else { &inside };
            let (file, wrong) = Reader::read(Layer::Context, name, text, anchors, true);
            assert_eq!(wrong, [], "{name}");
            assert!(!file.rules.is_empty() || !file.extends.is_empty(), "{name}");
            for (extended, _) in file.extends {
                assert!(preset(&extended).is_some(), "{name} extends {extended}");
            }
        }
        let (file, wrong) = Reader::read(Layer::Builtin, "builtin", BUILTIN, &outside, true);
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
        for (name, programs, text) in PROFILES {
            let anchors = Anchors {
                root: None,
                home: AbsPath::new("/home/dana").unwrap(),
            };
            let (file, _) = Reader::read(Layer::Context, name, text, &anchors, true);
            assert_eq!(&file.program, programs, "the table and the file agree about {name}");
        }
    }
}
