//! Files of other tools that stand where a rule file should: said so, instead of a parser's complaint.

use crate::diagnostic::Place;

/// Keys by which files of other tools are known.
const OWNERS: &[(&str, &[&str])] = &[
    (
        "another agent's settings",
        &["permissions", "sandbox", "hooks", "mcpServers", "enabledPlugins", "env"],
    ),
    (
        "Codex's settings",
        &[
            "sandbox_mode",
            "approval_policy",
            "sandbox_workspace_write",
            "mcp_servers",
            "model_provider",
        ],
    ),
    (
        "another sandbox's settings",
        &[
            "filesystem",
            "allowRead",
            "allowWrite",
            "denyRead",
            "denyWrite",
            "allowedDomains",
            "deniedDomains",
        ],
    ),
    ("Cargo's manifest", &["package", "dependencies", "workspace"]),
    ("a Python project's settings", &["project", "build-system"]),
];

/// Whose key this is, when it is not one of ours.
pub(crate) fn owner_of(key: &str) -> Option<&'static str> {
    OWNERS
        .iter()
        .find(|(_, keys)| keys.contains(&key))
        .map(|(owner, _)| *owner)
}

/// What a text that is not TOML looks like, and where that shows.
pub(crate) fn format_of(text: &str) -> Option<(&'static str, Place)> {
    let offset = text.find(|c: char| !c.is_whitespace())?;
    let rest = text.get(offset..)?;
    if rest.starts_with('{') {
        return Some(("JSON", Place::of(text, offset)));
    }
    if rest.starts_with('<') {
        return Some(("XML", Place::of(text, offset)));
    }
    let mut at = 0usize;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        let word = bare.split(':').next().unwrap_or("");
        let named = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        let after = bare.get(word.len()..).unwrap_or("");
        if bare == "---" || (named && (after == ":" || after.starts_with(": "))) {
            return Some(("YAML", Place::of(text, at)));
        }
        if !bare.is_empty() && !bare.starts_with('#') {
            return None;
        }
        at = at.saturating_add(line.len());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c070_formats_of_other_tools_are_known() {
        let format = |text| format_of(text).map(|(format, place)| (format, place.line, place.column));
        assert_eq!(format("\n  {\"permissions\": {}}"), Some(("JSON", 2, 3)));
        assert_eq!(format("# x\nallow:\n  - a\n"), Some(("YAML", 2, 1)));
        assert_eq!(format("---\na: 1\n"), Some(("YAML", 1, 1)));
        assert_eq!(format("x = [\n"), None);
        assert_eq!(format(""), None);
    }
}
