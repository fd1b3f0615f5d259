//! Reads words by a grammar: options in one form, subcommands, operands.
//!
//! Promises: P5. Not here: who the program is (`reading`), what it carries (`carried`).
//! See: POSIX, "Utility Syntax Guidelines"; getopt_long(3) for shortened long options.

use bailiwick_model::{Effects, Given, NormalForm};

use crate::grammar::{Level, Look, Program, Style};
use crate::options::{Opt, Role, Value};

/// What was found in the words, besides what the normal form holds.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// Values of options that carry a command, with what kind they are.
    pub carried: Vec<(Role, Vec<String>)>,
    /// The program, or the subcommand, that the operands are given to.
    pub level: &'a Level,
}

/// Reads the words behind the program's name into the form.
pub(crate) fn read<'a>(program: &'a Program, form: &mut NormalForm) -> Found<'a> {
    let words: Vec<String> = form.words.iter().skip(1).cloned().collect();
    let mut reader = Reader {
        program,
        level: &program.level,
        levels: vec![&program.level],
        form,
        carried: Vec::new(),
        reads: true,
        scripts: Vec::new(),
    };
    reader.form.known = true;
    reader.all(&words);
    reader.close();
    Found {
        carried: reader.carried,
        level: reader.level,
    }
}

struct Reader<'a, 'f> {
    program: &'a Program,
    level: &'a Level,
    levels: Vec<&'a Level>,
    form: &'f mut NormalForm,
    carried: Vec<(Role, Vec<String>)>,
    reads: bool,
    scripts: Vec<String>,
}

impl<'a> Reader<'a, '_> {
    fn all(&mut self, words: &[String]) {
        let mut rest = words;
        let mut only_operands = false;
        if let Some((first, after)) = words.split_first()
            && self.program.bundled
            && !first.starts_with('-')
        {
            rest = self.bundle(first, after);
        }
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            if only_operands {
                self.operand(word);
            } else if word == "--" {
                only_operands = true;
            } else if word.len() > 1 && word.starts_with('-') {
                rest = self.option(word, after);
            } else {
                self.operand(word);
                only_operands = self.level.stop && !self.form.operands.is_empty();
            }
        }
    }

    /// Options without a dash: their values follow in the order of the letters.
    fn bundle<'w>(&mut self, letters: &str, after: &'w [String]) -> &'w [String] {
        let mut rest = after;
        for letter in letters.chars() {
            let name = format!("-{letter}");
            rest = match self.find(|opt| opt.is_called(&name)) {
                Some(opt) => self.given(opt, None, rest),
                None => self.unknown(&name, rest),
            };
        }
        rest
    }

    fn operand(&mut self, word: &str) {
        if self.program.plus && word.starts_with('+') && self.form.subcommand.is_empty() {
            let names = vec!["+".to_owned()];
            let value = word.get(1..).map(Into::into);
            self.form.options.push(Given { names, value });
            return;
        }
        if self.form.operands.is_empty() && !self.level.subcommands.is_empty() {
            // An option that is not known may have taken the word for its value.
            self.form.doubtful |= !self.form.unknown.is_empty();
            match self.level.subcommand(word) {
                Some((names, level)) => {
                    self.form.subcommand.push(names);
                    self.level = level;
                    self.levels.push(level);
                }
                // It may be an alias for any of them.
                None => {
                    self.form.subcommand.push(vec![word.to_owned()]);
                    self.form.doubtful = true;
                    self.level = unknown();
                    self.levels.push(self.level);
                }
            }
            return;
        }
        let place = self.form.operands.len();
        let role = self.level.operands.get(place).or(self.level.operands.last());
        if let Some(role) = role.copied() {
            self.does(role, word);
            if role == Role::Line {
                self.carried.push((role, vec![word.to_owned()]));
            }
        }
        if self.level.look.is_some() && place == 0 && self.scripts.is_empty() {
            self.scripts.push(word.to_owned());
        }
        self.form.operands.push(word.to_owned());
    }

    /// The option of that name, in the subcommand or, where it inherits them, above.
    fn find(&self, fits: impl Fn(&Opt) -> bool) -> Option<&'a Opt> {
        let above = if self.program.inherit { self.levels.len() } else { 1 };
        let levels = self.levels.iter().rev().take(above);
        let mut all = levels.flat_map(|level| level.options.iter().flatten());
        all.find(|opt| fits(opt))
    }

    fn option<'w>(&mut self, word: &str, after: &'w [String]) -> &'w [String] {
        let style = self.program.level.style;
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        if let Some(opt) = self.find(|opt| opt.is_called(name)) {
            return self.given(opt, attached, after);
        }
        let digits = word
            .get(1..)
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        if digits && let Some(opt) = self.find(|opt| opt.number) {
            let names = opt.names.clone();
            let value = word.get(1..).map(Into::into);
            self.form.options.push(Given { names, value });
            return after;
        }
        if word.starts_with("--") {
            if style == Style::Gnu
                && let Some(opt) = self.shortened(name)
            {
                return self.given(opt, attached, after);
            }
            return self.unknown(word, after);
        }
        if style == Style::Words {
            return self.unknown(word, after);
        }
        self.cluster(word, after)
    }

    /// The one long option that begins like this.
    fn shortened(&self, name: &str) -> Option<&'a Opt> {
        let begins = |opt: &Opt| {
            opt.names
                .iter()
                .any(|own| own.starts_with("--") && own.starts_with(name))
        };
        let first = self.find(begins).filter(|_| name.len() > 2)?;
        match self.find(|opt| begins(opt) && opt != first) {
            Some(_) => None,
            None => Some(first),
        }
    }

    fn cluster<'w>(&mut self, word: &str, after: &'w [String]) -> &'w [String] {
        let letters = word.char_indices().skip(1);
        let mut read = Vec::new();
        for (place, letter) in letters {
            let name = format!("-{letter}");
            let Some(opt) = self.find(|opt| opt.is_called(&name)) else {
                return self.unknown(word, after);
            };
            let rest = word.get(place.saturating_add(letter.len_utf8())..).unwrap_or("");
            if opt.value == Value::None {
                read.push(opt);
                continue;
            }
            for opt in read {
                self.given(opt, None, &[]);
            }
            let attached = (!rest.is_empty()).then(|| rest.to_owned());
            return self.given(opt, attached, after);
        }
        for opt in read {
            self.given(opt, None, &[]);
        }
        after
    }

    fn given<'w>(&mut self, opt: &Opt, attached: Option<String>, after: &'w [String]) -> &'w [String] {
        let (value, rest) = match opt.value {
            Value::None => (attached, after),
            Value::Attached(_) => (attached, after),
            Value::Needed(Role::Command) => {
                let end = after
                    .iter()
                    .position(|word| word == ";" || word == "+")
                    .unwrap_or(after.len());
                let (command, rest) = after.split_at_checked(end).unwrap_or((after, &[]));
                self.carried.push((Role::Command, command.to_vec()));
                (Some(command.join(" ")), rest.get(1..).unwrap_or(&[]))
            }
            Value::Needed(_) => match (attached, after.split_first()) {
                (Some(value), _) => (Some(value), after),
                (None, Some((value, rest))) => (Some(value.clone()), rest),
                (None, None) => (None, after),
            },
        };
        let role = match opt.value {
            Value::None => None,
            Value::Needed(role) | Value::Attached(role) => Some(role),
        };
        if let (Some(role), Some(value)) = (role, &value) {
            self.does(role, value);
            match role {
                Role::Split | Role::Module | Role::Line => self.carried.push((role, vec![value.clone()])),
                Role::Code if self.level.look.is_some() => self.scripts.push(value.clone()),
                _ => {}
            }
        }
        // Left out, the value is one that the program has by itself.
        let left_out = matches!(opt.value, Value::Attached(role) if value.is_none() && !role.only_reads());
        let does = opt.does.or(role.filter(|_| left_out));
        if let Some(role) = does {
            self.does(role, &opt.names.join(" "));
        }
        self.form.options.push(Given {
            names: opt.names.clone(),
            value,
        });
        rest
    }

    fn unknown<'w>(&mut self, word: &str, after: &'w [String]) -> &'w [String] {
        let (name, value) = word
            .split_once('=')
            .map_or((word, None), |(name, value)| (name, Some(value.to_owned())));
        self.form.unknown.push(name.to_owned());
        self.form.options.push(Given {
            names: vec![name.to_owned()],
            value,
        });
        after
    }

    fn does(&mut self, role: Role, what: &str) {
        let Effects {
            reads,
            writes,
            starts,
            contacts,
        } = &mut self.form.effects;
        let list = match role {
            Role::Read => reads,
            Role::Write => writes,
            Role::Contact => contacts,
            Role::Start | Role::Command | Role::Split | Role::Line | Role::Module | Role::Code | Role::Steer => starts,
            Role::Text => return,
        };
        list.push(what.to_owned());
        self.reads &= role.only_reads() || (role == Role::Code && self.level.look.is_some());
    }

    fn close(&mut self) {
        let scripts = match self.level.look {
            Some(Look::Sed) => self.scripts.iter().all(|script| sed_only_prints(script)),
            None => true,
        };
        self.form.read_only = self.level.read_only
            && self.reads
            && scripts
            && !self.form.doubtful
            && !self.form.cut
            && self.form.unknown.is_empty()
            && self.form.steering.is_empty();
    }
}

/// What follows a subcommand that the grammar does not know.
fn unknown() -> &'static Level {
    static UNKNOWN: std::sync::LazyLock<Level> = std::sync::LazyLock::new(Level::default);
    &UNKNOWN
}

/// True for a script of sed that neither writes, reads another file by name, nor starts anything: addresses and the
/// commands `p d q = l n N D P g G h H x b t T`, `s` with harmless flags, `y`. Anything else is not looked into.
fn sed_only_prints(script: &str) -> bool {
    script.split(['\n', ';']).all(|command| {
        let command = command
            .trim()
            .trim_start_matches(|c: char| c.is_ascii_digit() || "$,!+~ {}".contains(c));
        let command = match command.strip_prefix('/') {
            // One regular expression as an address, without a backslash or a bracket that could hide its end.
            Some(rest) => match rest.split_once('/') {
                Some((pattern, after)) if !pattern.contains(['\\', '[']) => {
                    after.trim_start_matches(['I', ',', '!', ' '])
                }
                _ => return false,
            },
            None => command,
        };
        let mut letters = command.chars();
        match letters.next() {
            None => true,
            Some('p' | 'd' | 'q' | '=' | 'n' | 'N' | 'D' | 'P' | 'g' | 'G' | 'h' | 'H' | 'x') => {
                letters.all(|c| c == ' ' || c == '}')
            }
            Some('s') => substitutes_only(letters.as_str()),
            _ => false,
        }
    })
}

/// True for what follows the `s` of a substitution: three parts, and flags that only print.
fn substitutes_only(rest: &str) -> bool {
    let Some(mark) = rest.chars().next().filter(char::is_ascii_punctuation) else {
        return false;
    };
    if rest.contains(['\\', '[']) {
        return false;
    }
    let mut parts = rest.split(mark).skip(1);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(_), Some(flags), None) => flags.chars().all(|c| c.is_ascii_digit() || "gpiI }".contains(c)),
        _ => false,
    }
}
