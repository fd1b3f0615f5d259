//! Grammars: how the words of one program are read. Data, in TOML.
//!
//! Promises: P4 (a table with a key or a word that is not known gives no grammar, and the message names it).
//! Trust: tables are shipped with the program, or stand in the person's own settings.
//! See: docs/design/commands.md, which documents each key.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use bailiwick_model::{AbsPath, Anchors, CommandPattern};
use serde::Deserialize;

use crate::options::{Opt, Role};

/// Says what is wrong with a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct GrammarFault {
    /// The file, as it is shown to people.
    pub file: String,
    /// What is wrong.
    pub what: String,
}

/// One file of tables.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Tables {
    #[serde(default)]
    program: Vec<Program>,
}

/// How options are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Style {
    /// `-a`, `-ab`, `-ofile`, `--long`, `--long=value`, `--lo` for `--long`.
    #[default]
    Gnu,
    /// The same, without `--lo`.
    Whole,
    /// Whole words behind one dash: `-name x`.
    Words,
}

/// What a program carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Carries {
    /// Its operands are a command, which it starts.
    Command,
    /// The first operand names a program that it is itself.
    Applet,
    /// The first operand is the file of a program that it loads.
    File,
    /// The first operand is a script, which goes by its own name.
    Script,
    /// Its operands together are a line for a shell.
    Line,
}

/// One program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Program {
    /// Its names; one `*` stands for any text.
    pub names: Vec<String>,
    #[serde(flatten)]
    pub level: Level,
    /// True when subcommands take the program's own options, too.
    pub inherit: bool,
    /// Variables that steer it, beside those that steer every program.
    pub variables: Vec<String>,
    /// True when the first word may be options without a dash: `tar xf a`.
    pub bundled: bool,
    /// True when `+NAME` may stand before the subcommand: `cargo +nightly build`.
    pub plus: bool,
    /// Other names of one and the same program: what is denied or asked of one is of all.
    pub aka: Vec<String>,
    /// True when it may be called by `NAME-SUBCOMMAND`: `git-push`.
    pub dashed: bool,
    /// Lines with the same normal form, pair by pair.
    pub same: Vec<[String; 2]>,
    /// Lines with another one.
    pub differs: Vec<[String; 2]>,
    /// Lines that only read.
    pub reads: Vec<String>,
    /// Lines that do more.
    pub does_more: Vec<String>,
}

/// A program or a subcommand: what may follow its name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Level {
    pub style: Style,
    /// True when options end at the first operand.
    pub stop: bool,
    #[serde(deserialize_with = "options")]
    pub options: Option<Vec<Opt>>,
    /// What the operands are, by place; the last one holds for all that follow.
    #[serde(deserialize_with = "roles")]
    pub operands: Vec<Role>,
    /// True when it only reads, if no option or operand says otherwise.
    pub read_only: bool,
    /// The operand whose text must be looked at, by the name of the look.
    pub look: Option<Look>,
    pub carries: Option<Carries>,
    /// How many operands stand before the command that it carries.
    pub skip: usize,
    /// Words among its operands behind which a command follows: `uv run x`.
    pub behind: Vec<String>,
    /// True when it adds words to that command which stand nowhere.
    pub appends: bool,
    /// True when `NAME=value` may stand before that command.
    pub assignments: bool,
    /// What an allow of it allows too: texts as behind `run`.
    pub starts: Vec<String>,
    /// The subcommand that it comes to, where it has none of these options: what is denied or asked of that is of it, too.
    pub is: Option<String>,
    pub unless: Vec<String>,
    /// Subcommands by their spellings, divided by blanks, the usual one first.
    pub subcommands: BTreeMap<String, Level>,
}

/// Texts that say what a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Look {
    /// A script of sed, in its first operand or in `-e`.
    Sed,
}

fn options<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Opt>>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let read = texts.iter().map(|text| Opt::parse(text)).collect::<Result<_, _>>();
    read.map(Some).map_err(serde::de::Error::custom)
}

fn roles<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Role>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    let read = words
        .iter()
        .map(|word| Role::parse(word).ok_or_else(|| serde::de::Error::custom(format!("no role `{word}`"))));
    read.collect()
}

impl Level {
    /// The subcommand of that name, with all its spellings.
    pub(crate) fn subcommand(&self, name: &str) -> Option<(Vec<String>, &Level)> {
        let found = self
            .subcommands
            .iter()
            .find(|(names, _)| names.split(' ').any(|own| own == name));
        found.map(|(names, level)| (names.split(' ').map(Into::into).collect(), level))
    }
}

impl Level {
    /// What an allow of any part of it allows too.
    fn all_starts(&self) -> Vec<String> {
        let inner = self.subcommands.values().flat_map(Self::all_starts);
        self.starts.iter().cloned().chain(inner).collect()
    }
}

impl Program {
    /// The other names of a program of this name.
    pub(crate) fn also(&self, name: &str) -> &[String] {
        let known = self.aka.iter().any(|own| fits(own, name));
        if known { &self.aka } else { &[] }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|own| fits(own, name))
    }
}

/// True when a name is the pattern's, in which one `*` stands for any text.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len().saturating_add(tail.len()) && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

/// Reads one file of tables.
pub(crate) fn programs(file: &str, text: &str) -> Result<Vec<Program>, GrammarFault> {
    let wrong = |what: String| GrammarFault {
        file: file.into(),
        what,
    };
    let tables: Tables =
        toml_edit::de::from_str(text).map_err(|error| wrong(error.to_string().trim().replace('\n', ", ")))?;
    match tables.program.iter().find(|program| program.names.is_empty()) {
        Some(_) => Err(wrong("a program has no `names`".into())),
        None => Ok(tables.program),
    }
}

/// The tables that are shipped, by name.
pub(crate) const SHIPPED: &[(&str, &str)] = &[
    ("containers", include_str!("../grammars/containers.toml")),
    ("coreutils", include_str!("../grammars/coreutils.toml")),
    ("forges", include_str!("../grammars/forges.toml")),
    ("git", include_str!("../grammars/git.toml")),
    ("interpreters", include_str!("../grammars/interpreters.toml")),
    ("launchers", include_str!("../grammars/launchers.toml")),
    ("network", include_str!("../grammars/network.toml")),
    ("packages", include_str!("../grammars/packages.toml")),
    ("text", include_str!("../grammars/text.toml")),
];

/// One shipped program, read when it is first asked for: most tasks start few of those that there are.
struct Shelved {
    names: Vec<&'static str>,
    /// True for a program that runs others without starting them.
    carrier: bool,
    text: &'static str,
    program: OnceLock<Option<Program>>,
}

/// What every table of a program begins with.
const HEAD: &str = "[[program]]\n";

static SHELF: LazyLock<Vec<Shelved>> = LazyLock::new(|| {
    let tables = SHIPPED.iter().flat_map(|(_, text)| text.split(HEAD).skip(1));
    tables.map(Shelved::of).collect()
});

impl Shelved {
    fn of(text: &'static str) -> Self {
        let line = |head: &str| text.lines().find_map(|line| line.strip_prefix(head));
        let names = line("names = [").unwrap_or("").split('"').skip(1).step_by(2);
        let carries = line("carries = ").unwrap_or("").trim_matches('"');
        Self {
            names: names.collect(),
            carrier: ["applet", "file", "script"].contains(&carries),
            text,
            program: OnceLock::new(),
        }
    }

    fn program(&self) -> Option<&Program> {
        let read = || {
            programs("shipped", &format!("{HEAD}{}", self.text))
                .ok()?
                .into_iter()
                .next()
        };
        self.program.get_or_init(read).as_ref()
    }
}

/// The shipped program of that name.
pub(crate) fn shipped(name: &str) -> Option<&'static Program> {
    let found = SHELF
        .iter()
        .find(|shelved| shelved.names.iter().any(|own| fits(own, name)));
    found.and_then(Shelved::program)
}

/// The names of the shipped programs that run others without starting them.
pub(crate) fn shipped_carriers() -> impl Iterator<Item = &'static str> {
    let carriers = SHELF.iter().filter(|shelved| shelved.carrier);
    carriers.flat_map(|shelved| shelved.names.iter().copied())
}

/// Holds tables against their own examples: each one that does not hold, as a sentence.
pub fn check_examples(file: &str, text: &str) -> Result<Vec<String>, GrammarFault> {
    let programs = programs(file, text)?;
    let grammars = crate::Grammars::shipped(Vec::new()).with(file, text)?;
    let anchors = Anchors {
        root: None,
        home: AbsPath::root(),
    };
    let mut wrong = Vec::new();
    for program in programs {
        let name = program.names.first().cloned().unwrap_or_default();
        let unreadable = |text: &&String| CommandPattern::parse(text, &anchors).is_err();
        let starts = program.level.all_starts();
        wrong.extend(
            starts
                .iter()
                .filter(unreadable)
                .map(|text| format!("{name}: `{text}` is no command")),
        );
        for [one, other] in &program.same {
            if grammars.forms_of(one) != grammars.forms_of(other) {
                wrong.push(format!("{name}: `{one}` is not the same as `{other}`"));
            }
        }
        for [one, other] in &program.differs {
            if grammars.forms_of(one) == grammars.forms_of(other) {
                wrong.push(format!("{name}: `{one}` is the same as `{other}`"));
            }
        }
        for (lines, want) in [(&program.reads, true), (&program.does_more, false)] {
            for line in lines {
                if grammars.only_reads(line) != want {
                    wrong.push(format!(
                        "{name}: `{line}` {} only",
                        if want { "does not read" } else { "reads" }
                    ));
                }
            }
        }
        if program.same.is_empty() || (program.reads.is_empty() && program.does_more.is_empty()) {
            wrong.push(format!("{name}: it has too few examples"));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_shipped_tables_hold_their_own_examples() {
        let mut wrong = Vec::new();
        for (name, text) in SHIPPED {
            match check_examples(name, text) {
                Ok(found) => wrong.extend(found),
                Err(fault) => wrong.push(fault.to_string()),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn what_is_read_when_it_is_asked_for_is_what_the_files_say() {
        let mut count = 0;
        for (file, text) in SHIPPED {
            for program in programs(file, text).unwrap() {
                count += 1;
                for name in program.names.iter().filter(|name| !name.contains('*')) {
                    let found = shipped(name).unwrap_or_else(|| panic!("{file}: no {name}"));
                    assert_eq!(found.names, program.names, "{file}: {name} stands twice");
                    let carrier = SHELF
                        .iter()
                        .any(|shelved| shelved.carrier && shelved.names.contains(&name.as_str()));
                    let carries = [Some(Carries::Applet), Some(Carries::File), Some(Carries::Script)];
                    assert_eq!(carrier, carries.contains(&program.level.carries), "{file}: {name}");
                }
            }
        }
        assert_eq!(count, SHELF.len());
    }

    #[test]
    fn p4_a_table_with_a_mistake_is_no_grammar() {
        for (text, what) in [
            ("[[program]]\nnames = [\"x\"]\nnmaes = []\n", "nmaes"),
            ("[[program]]\nnames = [\"x\"]\noptions = [\"x\"]\n", "`x` is no option"),
            ("[[program]]\nnames = [\"x\"]\noperands = [\"what\"]\n", "what"),
            ("[[program]]\noperands = [\"read\"]\n", "has no `names`"),
            (
                "[[program]]\nnames = [\"x\"]\n[program.subcommands]\na = { b = 1 }\n",
                "`b`",
            ),
        ] {
            let fault = programs("f", text).map(|_| ()).unwrap_err();
            assert!(fault.what.contains(what), "{fault}");
        }
    }
}
