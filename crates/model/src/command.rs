//! Commands: the words of a program that starts, and what they come to.
//!
//! Promises: P5 (a rule is held against the normal form, so that another spelling of the same act is the same act), P8
//! (printed, a command reads back as the same words, with control characters visible).
//! Trust: words and variables are the agent's. What they mean was found by a grammar, which is ours or the person's.
//! Not here: the grammars (`commands`), patterns over commands (`command_pattern`).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A program with its words. Never without a normal form: the first is that of the words as they stand, each further
/// one that of a command which they carry, as `env` and `xargs` do, or of another name that the program goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Command {
    forms: Vec<NormalForm>,
}

/// What the words of one command come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NormalForm {
    /// The words as they are, the program's own name first.
    pub words: Vec<String>,
    /// All names that the program goes by: a deny or an ask of any of them holds.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<String>,
    /// The names of them that an allow may go by: none where the agent could have made the program.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub licensed: BTreeSet<String>,
    /// The program's file, and the path it was called by.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub paths: BTreeSet<String>,
    /// The subcommand, from the outermost: of each part all spellings, the usual one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subcommand: Vec<Vec<String>>,
    /// The options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Given>,
    /// The operands, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<String>,
    /// Variables that steer the program, and are not as the task began with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<(String, String)>,
    /// True when a grammar read the words; else they stand as they are.
    pub known: bool,
    /// Options that the grammar does not know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// True when the subcommand is none that the grammar knows: it may stand for any other.
    #[serde(skip_serializing_if = "is_false")]
    pub doubtful: bool,
    /// What it does besides computing, as far as the grammar tells.
    #[serde(skip_serializing_if = "Effects::is_empty")]
    pub effects: Effects,
    /// True when the grammar proves of the whole list of words that it only reads.
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// True for a form that only denies and asks are held against: what the program might be taken for.
    #[serde(skip_serializing_if = "is_false")]
    pub only_against: bool,
    /// True when words were left out since there were too many.
    #[serde(skip_serializing_if = "is_false")]
    pub cut: bool,
}

/// One option of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Given {
    /// All spellings, the usual one first: `--recursive`, `-r`.
    pub names: Vec<String>,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What a command reads, writes, starts and contacts, in the words of the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Effects {
    /// Files and folders that are read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Files and folders that are changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Programs that are started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<String>,
    /// Hosts and addresses that are contacted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Effects {
    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.starts.is_empty() && self.contacts.is_empty()
    }
}

impl Command {
    /// A command of its normal forms, the words' own first. None without a form, with a form without words, or where
    /// the first form counts for denies only: every command must be allowed.
    pub fn of(forms: Vec<NormalForm>) -> Option<Self> {
        let counts = forms.first().is_some_and(|form| !form.only_against);
        let whole = counts && forms.iter().all(|form| !form.words.is_empty());
        whole.then_some(Self { forms })
    }

    /// Words that no grammar has read. A program that was given no word at all is called by its path.
    pub fn plain(mut words: Vec<String>, called: &str) -> Self {
        if words.is_empty() {
            words.push(called.into());
        }
        let name = called.rsplit('/').next().unwrap_or("").to_owned();
        let mut form = NormalForm {
            names: BTreeSet::from([name.clone()]),
            licensed: BTreeSet::from([name]),
            words,
            ..NormalForm::default()
        };
        form.guess();
        Self { forms: vec![form] }
    }

    /// Words as they stand, called by their first.
    pub fn typed(words: &[&str]) -> Self {
        let called = words.first().copied().unwrap_or("");
        Self::plain(words.iter().map(|word| (*word).to_owned()).collect(), called)
    }

    /// What is held against denies and asks alone: words that start no program, such as a shell's own commands.
    pub fn taken_for(words: &[&str]) -> Self {
        let mut command = Self::typed(words);
        command.forms.iter_mut().for_each(|form| form.only_against = true);
        command
    }

    /// The normal forms, that of the words themselves first.
    pub fn forms(&self) -> &[NormalForm] {
        &self.forms
    }

    /// The same command with changed forms. What it was is left where they would be none.
    #[must_use]
    pub fn map(self, change: impl Fn(NormalForm) -> NormalForm) -> Self {
        let forms = self.forms.iter().cloned().map(change).collect();
        Self::of(forms).unwrap_or(self)
    }

    /// The words as they are.
    pub fn words(&self) -> &[String] {
        self.forms.first().map_or(&[], |form| &form.words)
    }

    /// Each normal form as a command of its own: what the rules are asked about, one by one.
    pub fn parts(&self) -> impl Iterator<Item = Self> + '_ {
        self.forms.iter().map(|form| Self {
            forms: vec![form.clone()],
        })
    }
}

impl NormalForm {
    /// Takes the words as most programs would, so that a deny finds what it names: what begins with a dash may be an
    /// option, or several of one letter.
    pub fn guess(&mut self) {
        for word in self.words.iter().skip(1) {
            if word.len() < 2 || !word.starts_with('-') {
                self.operands.push(word.clone());
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let given = |name: String, value| Given {
                names: vec![name],
                value,
            };
            self.options.push(given(name.to_owned(), value));
            let letters = name
                .chars()
                .skip(1)
                .filter(|_| !name.starts_with("--") && name.chars().count() > 2);
            let letters = letters.map(|letter| given(format!("-{letter}"), None));
            self.options.extend(letters);
        }
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Forms {
            forms: Vec<NormalForm>,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Sent {
            Forms(Forms),
            /// As logs have it from before there were forms.
            Words(Vec<String>),
        }
        let none = || serde::de::Error::custom("a command without words");
        match Sent::deserialize(deserializer)? {
            Sent::Forms(sent) => Self::of(sent.forms).ok_or_else(none),
            Sent::Words(words) => {
                let called = words.first().cloned().ok_or_else(none)?;
                Ok(Self::plain(words, &called))
            }
        }
    }
}

/// Steering variables, then the words, quoted as a shell wants them: read back, they are the same words.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(form) = self.forms.first() else { return Ok(()) };
        for (name, value) in &form.steering {
            write!(f, "{name}={} ", quoted(value))?;
        }
        for (place, word) in form.words.iter().enumerate() {
            if place > 0 {
                f.write_str(" ")?;
            }
            // A first word with `=` would read as a variable.
            let word = if place == 0 && word.contains('=') {
                in_quotes(word)
            } else {
                quoted(word)
            };
            f.write_str(&word)?;
        }
        if form.cut {
            f.write_str(" …")?;
        }
        Ok(())
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_^~\u{fffd}".contains(c);
    if !word.is_empty() && !word.starts_with('~') && word.chars().all(plain) {
        word.to_owned()
    } else {
        in_quotes(word)
    }
}

fn in_quotes(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for character in word.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\'' | '\\' => out.extend(['\\', character]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        Command::typed(words).to_string()
    }

    #[test]
    fn p8_words_are_shown_without_doubt() {
        for (words, want) in [
            (&["git", "push", "origin"][..], "git push origin"),
            (&["echo", "a b", ""], "echo 'a b' ''"),
            (&["echo", "it's", "$(x)"], r"echo 'it'\''s' '$(x)'"),
            (&["echo", "a\nb\u{1b}[2K'"], r"echo $'a\nb\u001b[2K\''"),
            (&["A=b", "c=d"], "'A=b' c=d"),
            (&["ls", "~", "größe"], "ls '~' größe"),
        ] {
            assert_eq!(shown(words), want);
        }
        assert_eq!(Command::plain(Vec::new(), "/bin/ls").words(), ["/bin/ls"]);
    }

    #[test]
    fn p4_a_command_without_words_is_not_read() {
        for bad in [
            "[]",
            r#"{"forms":[]}"#,
            r#"{"forms":[{"words":[]}]}"#,
            r#"{"forms":[{"words":["a"],"x":1}]}"#,
        ] {
            assert!(serde_json::from_str::<Command>(bad).is_err(), "{bad}");
        }
        let old: Command = serde_json::from_str(r#"["a","b"]"#).unwrap();
        let command = Command::typed(&["a", "b"]);
        assert_eq!(old, command, "as logs have it from before there were forms");
        let text = serde_json::to_string(&command).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
    }
}
