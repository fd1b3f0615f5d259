//! The person's git settings, as far as they name no program and lead nowhere: identity, aliases, how things look and
//! what is done by default.
//!
//! Trust: the settings are the person's; git itself reads them, with what they include. What is kept is an allow list:
//! git has hundreds of settings, and any of them may name a program tomorrow.
//! See: git-config(1).

use std::process::{Child, Stdio};

use bailiwick_model::AbsPath;
use serde::{Deserialize, Serialize};

use super::quiet_git;

/// Sections of which everything is kept: they hold colours, advice and the like.
const WHOLE: [&str; 4] = ["color", "column", "advice", "i18n"];

/// Settings that are kept, by section.
const KEPT: [(&str, &[&str]); 22] = [
    ("user", &["name", "email", "useconfigonly"]),
    ("author", &["name", "email"]),
    ("committer", &["name", "email"]),
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "commentchar",
            "commentstring",
            "eol",
            "ignorecase",
            "precomposeunicode",
            "quotepath",
            "safecrlf",
            "whitespace",
        ],
    ),
    ("init", &["defaultbranch"]),
    ("pull", &["ff", "rebase"]),
    ("push", &["autosetupremote", "default", "followtags"]),
    ("fetch", &["all", "output", "parallel", "prune", "prunetags"]),
    (
        "merge",
        &[
            "autostash",
            "branchdesc",
            "conflictstyle",
            "ff",
            "log",
            "renamelimit",
            "renames",
            "stat",
            "verbosity",
        ],
    ),
    (
        "rebase",
        &[
            "abbreviatecommands",
            "autosquash",
            "autostash",
            "missingcommitscheck",
            "stat",
            "updaterefs",
        ],
    ),
    (
        "diff",
        &[
            "algorithm",
            "colormoved",
            "colormovedws",
            "context",
            "indentheuristic",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "relative",
            "renamelimit",
            "renames",
            "submodule",
            "suppressblankempty",
            "wserrorhighlight",
        ],
    ),
    ("branch", &["autosetupmerge", "autosetuprebase", "sort"]),
    ("tag", &["sort"]),
    (
        "status",
        &[
            "aheadbehind",
            "branch",
            "relativepaths",
            "short",
            "showstash",
            "showuntrackedfiles",
            "submodulesummary",
        ],
    ),
    (
        "log",
        &["abbrevcommit", "date", "decorate", "follow", "graphcolors", "showroot"],
    ),
    ("format", &["pretty"]),
    ("blame", &["blankboundary", "coloring", "date", "showemail", "showroot"]),
    ("commit", &["cleanup", "status", "verbose"]),
    ("rerere", &["autoupdate", "enabled"]),
    ("grep", &["column", "extendedregexp", "linenumber", "patterntype"]),
    ("help", &["autocorrect"]),
    ("stash", &["showincludeuntracked", "showpatch", "showstat"]),
];

/// Who commits: settings of which git needs a name and an email, of one section or the other.
const IDENTITY: [&str; 4] = ["user.name", "user.email", "author.name", "author.email"];

/// Largest value that is kept, in bytes, and most settings.
const MAX_VALUE: usize = 4096;
const MAX_SETTINGS: usize = 1000;

/// Largest list of ignored names, in bytes.
const MAX_IGNORED: u64 = 64 * 1024;

/// What is known of the person's git.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSettings {
    /// Names and values, in the order in which they hold.
    pub kept: Vec<(String, String)>,
    /// Those of [`IDENTITY`] that the repository's own settings give.
    pub given_here: Vec<String>,
    /// True when commits here are signed by default.
    pub signs_commits: bool,
    /// True when tags here are signed by default.
    pub signs_tags: bool,
    /// The names that the person never wants in any repository, where they keep such a list at a place of their own.
    pub ignored: Option<String>,
}

/// Git, asked for its settings. It takes its time, in which other things can be done.
#[derive(Debug)]
pub struct Asked {
    git: Option<Child>,
    folder: AbsPath,
}

impl Asked {
    /// What it says; nothing where git is not installed.
    pub fn heard(self) -> GitSettings {
        let said = self.git.and_then(|git| git.wait_with_output().ok());
        let found = said.map(|said| said.stdout).unwrap_or_default();
        let found = String::from_utf8_lossy(&found);
        let mut all = GitSettings::read(&found);
        if found.contains("global\0core.excludesfile\n") {
            all.ignored = ignored(&self.folder);
        }
        all
    }
}

impl GitSettings {
    /// Asks what holds for the person in this folder.
    pub fn ask(folder: &AbsPath) -> Asked {
        let mut git = quiet_git(&folder.to_path_buf());
        git.args(["config", "--list", "--show-scope", "--includes", "-z"]);
        git.stdout(Stdio::piped()).stderr(Stdio::null());
        Asked {
            git: git.spawn().ok(),
            folder: folder.clone(),
        }
    }

    /// Reads git's own list: scope, then name and value, with zeros between them.
    fn read(listed: &str) -> Self {
        let mut all = Self::default();
        let mut parts = listed.split('\0');
        while let (Some(scope), Some(setting)) = (parts.next(), parts.next()) {
            // A name alone means yes.
            let (name, value) = setting.split_once('\n').unwrap_or((setting, "true"));
            let yes = !matches!(value.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0" | "");
            match name {
                "commit.gpgsign" => all.signs_commits = yes,
                "tag.gpgsign" | "tag.forcesignannotated" => all.signs_tags = yes,
                _ => {}
            }
            let here = matches!(scope, "local" | "worktree");
            if here && IDENTITY.contains(&name) && !all.given_here.iter().any(|given| given == name) {
                all.given_here.push(name.to_owned());
            }
            if scope == "global" && is_kept(name, value) && all.kept.len() < MAX_SETTINGS {
                all.kept.push((name.to_owned(), value.to_owned()));
            }
        }
        all
    }

    /// The last value of a name.
    fn value(&self, name: &str) -> Option<&str> {
        let mut found = self.kept.iter().rev();
        found.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What the person is told where git knows too little to commit; none where it knows enough.
    pub fn note(&self) -> Option<String> {
        let missing: Vec<&str> = ["name", "email"]
            .into_iter()
            .filter(|key| {
                ["user", "author"].iter().all(|section| {
                    let name = format!("{section}.{key}");
                    self.value(&name).is_none() && !self.given_here.contains(&name)
                })
            })
            .collect();
        if missing.is_empty() {
            return None;
        }
        let settings: Vec<String> = missing
            .iter()
            .map(|key| format!("`git config --global user.{key} …`"))
            .collect();
        Some(format!(
            "git knows no {} of yours, so commits fail in there: {}",
            missing.join(" and no "),
            settings.join(" and ")
        ))
    }

    /// True when commits or tags are signed by default.
    pub fn signs(&self) -> bool {
        self.signs_commits || self.signs_tags
    }

    /// The settings as a file.
    pub fn as_file(&self, ignored: &AbsPath) -> String {
        let mut text = String::new();
        for (name, value) in &self.kept {
            let (Some((section, rest)), Some((_, key))) = (name.split_once('.'), name.rsplit_once('.')) else {
                continue;
            };
            let below = rest.strip_suffix(key).and_then(|below| below.strip_suffix('.'));
            let head = match below {
                Some(below) => format!("[{section} {}]", quoted(below)),
                None => format!("[{section}]"),
            };
            text.push_str(&format!("{head}\n\t{key} = {}\n", quoted(value)));
        }
        if self.ignored.is_some() {
            text.push_str(&format!("[core]\n\texcludesFile = {}\n", quoted(ignored.as_str())));
        }
        text
    }
}

/// The person's own list of ignored names, wherever they keep it.
fn ignored(folder: &AbsPath) -> Option<String> {
    let mut git = quiet_git(&folder.to_path_buf());
    git.args([
        "config",
        "--global",
        "--includes",
        "--type=path",
        "--get",
        "core.excludesFile",
    ]);
    let named = String::from_utf8(git.output().ok()?.stdout).ok()?;
    let path = std::path::Path::new(named.trim_end_matches('\n'));
    let found = path
        .metadata()
        .ok()
        .filter(|found| path.is_absolute() && found.is_file());
    found.filter(|found| found.len() <= MAX_IGNORED)?;
    std::fs::read_to_string(path).ok()
}

fn is_kept(name: &str, value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if value.len() > MAX_VALUE
        || !name.chars().all(plain)
        || value.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return false;
    }
    match name.split_once('.') {
        Some((section, _)) if WHOLE.contains(&section) => true,
        // What begins so is a line for a shell.
        Some(("alias", _)) => !value.trim_start().starts_with('!'),
        Some((section, key)) => KEPT
            .iter()
            .any(|(known, keys)| *known == section && keys.contains(&key)),
        None => false,
    }
}

/// A value for git's configuration, quoted (git-config(1), "Syntax").
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str, &str)]) -> GitSettings {
        let listed: String = settings
            .iter()
            .map(|(scope, name, value)| format!("{scope}\0{name}\n{value}\0"))
            .collect();
        GitSettings::read(&listed)
    }

    #[test]
    fn c023_what_names_a_program_or_leads_elsewhere_is_dropped() {
        for (name, value) in [
            ("core.pager", "evil"),
            ("core.editor", "evil"),
            ("core.sshcommand", "evil"),
            ("core.hookspath", "/h"),
            ("core.fsmonitor", "evil"),
            ("core.attributesfile", "/a"),
            ("credential.helper", "store"),
            ("credential.https://x.test.helper", "store"),
            ("diff.external", "evil"),
            ("diff.pdf.textconv", "evil"),
            ("merge.ours.driver", "evil"),
            ("merge.tool", "evil"),
            ("filter.lfs.clean", "evil"),
            ("gpg.program", "evil"),
            ("user.signingkey", "KEY"),
            ("url.https://x.test/.insteadof", "git@x.test:"),
            ("http.proxy", "http://x.test"),
            ("http.extraheader", "Authorization: x"),
            ("include.path", "/x"),
            ("includeif.gitdir:~/w/.path", "/x"),
            ("alias.x", "!evil"),
            ("alias.y", "  !evil"),
            ("sequence.editor", "evil"),
            ("interactive.difffilter", "evil"),
            ("pager.log", "evil"),
            ("uploadpack.packobjectshook", "evil"),
            ("commit.template", "/x"),
            ("init.templatedir", "/x"),
            ("safe.directory", "*"),
            ("protocol.ext.allow", "always"),
            ("trailer.x.command", "evil"),
        ] {
            assert_eq!(of(&[("global", name, value)]).kept, [], "{name}");
        }
    }

    #[test]
    fn c023_identity_aliases_and_looks_are_kept_and_only_those_of_the_person() {
        let found = of(&[
            ("system", "user.name", "machine"),
            ("global", "user.name", "A \"quoted\" \\ name"),
            ("global", "user.email", "a@b.test"),
            ("global", "alias.lg", "log --oneline"),
            ("global", "color.diff.meta", "yellow"),
            ("local", "user.name", "whoever wrote the repository"),
        ]);
        assert_eq!(found.value("user.name"), Some("A \"quoted\" \\ name"));
        assert_eq!(found.kept.len(), 4);
        assert_eq!(found.given_here, ["user.name"]);
        let file = found.as_file(&AbsPath::new("/etc/gitignore").unwrap());
        assert!(
            file.contains("[user]\n\tname = \"A \\\"quoted\\\" \\\\ name\"\n"),
            "{file}"
        );
        assert!(file.contains("[color \"diff\"]\n\tmeta = \"yellow\"\n"), "{file}");
    }

    #[test]
    fn signing_counts_wherever_it_is_set_and_the_last_word_holds() {
        assert!(of(&[("local", "commit.gpgsign", "true")]).signs_commits);
        assert!(
            !of(&[
                ("global", "commit.gpgsign", "true"),
                ("local", "commit.gpgsign", "false")
            ])
            .signs()
        );
        assert!(GitSettings::read("global\0tag.gpgsign\0").signs_tags);
    }
}
