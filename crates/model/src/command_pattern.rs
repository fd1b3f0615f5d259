//! Patterns over commands: how a person writes which program may start, and how.
//!
//! Promises: P4 (what cannot be read is an error), P5 (held against the normal form, so that order and spelling of
//! options do not matter). An allow *admits*: a program and subcommand alone admit any options and operands, with
//! options or operands they admit exactly these, unless `**` stands at the end. A deny or ask *holds* for every command
//! that has at least what it names. Where a command cannot be told for sure, nothing is admitted and all is held.
//! Trust: patterns come from people's rule files, commands from an agent.
//! Not here: what words mean (`commands`).

use std::fmt;

use crate::act::{ActError, Anchors};
use crate::command::{Given, NormalForm};
use crate::path::AbsPath;
use crate::pattern::PathPattern;

/// Longest pattern, in bytes.
const MAX: usize = 4096;

/// The word for the class of commands that only read.
const READ_ONLY: &str = "@read-only";
/// The word before a pattern that admits or holds for nothing more than is written.
const EXACT: &str = "@exact";

/// Says why a text is not a pattern over commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It is longer than the limit.
    #[error("a command of {0} bytes is too long for a rule: at most {MAX}")]
    TooLong(usize),
    /// There is no program.
    #[error("`run {0}` names no program")]
    Empty(String),
    /// A quote is open.
    #[error("`run {0}` has a quote that does not end")]
    Quote(String),
    /// It has what only a shell line has.
    #[error("`run {0}` is a shell line, with `{1}`: a rule names one command")]
    Line(String, char),
    /// It uses a class that there is not.
    #[error("`{0}` is no class of commands: there is `@read-only`")]
    Class(String),
    /// More stands there than fits.
    #[error("`run {0}` cannot be said: {1}")]
    Form(String, &'static str),
}

/// Which program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProgramPattern {
    /// By name; `*` stands for any text.
    Name(String),
    /// By the path of its file, or the path it is called by.
    Path(PathPattern),
    /// Any that only reads, with all its words.
    ReadOnly,
}

/// A pattern over commands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandPattern {
    /// True when it is met by nothing more than what is written, also where only a program is.
    pub exact: bool,
    /// Steering variables, each by a name that may end in `*`, with a pattern of its value.
    pub variables: Vec<(String, String)>,
    /// The program.
    pub program: ProgramPattern,
    /// Subcommand, options and operands; in each `*` is any text without `/`, `**` any text.
    pub words: Vec<String>,
    /// True when any further words may follow.
    pub open: bool,
}

/// Cuts a text into words: blanks divide, `'…'` and `"…"` hold together, nothing else is special.
pub fn words_of(text: &str) -> Result<Vec<String>, CommandError> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '|' | '&' | ';' | '<' | '>' | '`' | '$' | '\\') => {
                return Err(CommandError::Line(text.into(), character));
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(CommandError::Quote(text.into()));
    }
    words.extend(word);
    Ok(words)
}

/// True for the name of a variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let head = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    head && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl CommandPattern {
    /// Reads what stands behind `run`. `run **` is no pattern of this kind.
    pub fn parse(text: &str, anchors: &Anchors) -> Result<Self, ActError> {
        if text.len() > MAX {
            return Err(CommandError::TooLong(text.len()).into());
        }
        let mut words = words_of(text)?.into_iter().peekable();
        let exact = words.next_if(|word| word == EXACT).is_some();
        let mut variables = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            if !is_variable(name.trim_end_matches('*')) {
                break;
            }
            variables.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        let program = match words.next() {
            Some(word) if word == READ_ONLY => ProgramPattern::ReadOnly,
            Some(word) if word.starts_with('@') => return Err(CommandError::Class(word).into()),
            Some(word) if word.starts_with('-') || word == "**" => {
                return Err(CommandError::Form(text.into(), "a program comes first").into());
            }
            Some(word) if word.contains('/') && word.contains('\\') => {
                return Err(CommandError::Form(text.into(), "a program's path has no backslash").into());
            }
            Some(word) if word.contains('/') || word == "~" => ProgramPattern::Path(anchors.path(&word)?),
            Some(word) if !word.is_empty() => ProgramPattern::Name(word),
            _ => return Err(CommandError::Empty(text.into()).into()),
        };
        let mut words: Vec<String> = words.collect();
        let open = words.last().is_some_and(|word| word == "**");
        if open {
            words.pop();
        }
        let wrong = match &program {
            _ if words.iter().any(|word| word == "**") => Some("`**` stands at the end only"),
            ProgramPattern::ReadOnly if exact || open || !words.is_empty() || !variables.is_empty() => {
                Some("`@read-only` stands alone")
            }
            _ if exact && open => Some("an exact rule has no `**`"),
            _ => None,
        };
        match wrong {
            Some(wrong) => Err(CommandError::Form(text.into(), wrong).into()),
            None => Ok(Self {
                exact,
                variables,
                program,
                words,
                open,
            }),
        }
    }

    /// The pattern that admits one command, with its variables, and nothing else: what an answer to it would grant.
    pub fn exactly(form: &NormalForm) -> Self {
        let name = form.licensed.first().or_else(|| form.names.first()).cloned();
        let path = form.paths.iter().find_map(|path| AbsPath::new(path).ok());
        let program = match path {
            Some(path) if form.licensed.is_empty() => ProgramPattern::Path(PathPattern::tree(&path)),
            _ => ProgramPattern::Name(literal(&name.unwrap_or_default())),
        };
        Self {
            exact: true,
            variables: form
                .steering
                .iter()
                .map(|(name, value)| (name.clone(), literal(value)))
                .collect(),
            program,
            words: form.words.iter().skip(1).map(|word| literal(word)).collect(),
            open: false,
        }
    }

    /// True when an allow of this covers the command.
    pub fn admits(&self, form: &NormalForm) -> bool {
        let steered = |(name, value): &(String, String)| {
            let mut named = self.variables.iter().filter(|(own, _)| matches(own, name));
            named.any(|(_, pattern)| matches(pattern, value))
        };
        let program = match &self.program {
            ProgramPattern::Name(name) => form.licensed.iter().any(|own| matches(name, own)),
            ProgramPattern::Path(path) => is_at(path, form),
            ProgramPattern::ReadOnly => form.read_only,
        };
        if form.only_against || !program || !form.steering.iter().all(steered) {
            return false;
        }
        if !form.known {
            return self.words.is_empty() && !self.exact || self.is_spelled(form);
        }
        let Some(met) = self.met(form, true) else { return false };
        // A subcommand that may stand for another is none that a rule could name.
        if form.doubtful && !self.words.is_empty() {
            return false;
        }
        let bare = met.options.is_empty() && met.operands == 0;
        if self.open || (bare && !self.exact) {
            return true;
        }
        let whole = met.subcommand == form.subcommand.len()
            && met.options.len() == form.options.len()
            && met.operands == form.operands.len();
        whole && form.unknown.is_empty() && !form.doubtful && !form.cut
    }

    /// True when a deny or an ask of this holds for the command.
    pub fn holds(&self, form: &NormalForm) -> bool {
        let set = |(name, pattern): &(String, String)| {
            let mut own = form.steering.iter().filter(|(own, _)| matches(name, own));
            own.any(|(_, value)| matches(pattern, value))
        };
        let program = match &self.program {
            ProgramPattern::Name(name) => form.names.iter().any(|own| matches(name, own)),
            ProgramPattern::Path(path) => is_at(path, form),
            ProgramPattern::ReadOnly => form.read_only,
        };
        if !program || !self.variables.iter().all(set) {
            return false;
        }
        match self.met(form, false) {
            None => false,
            Some(met) if self.exact => {
                let unsure = form.cut || form.doubtful || !form.unknown.is_empty() || !form.known;
                unsure
                    || met.options.len() == form.options.len()
                        && met.operands == form.operands.len()
                        && met.subcommand == form.subcommand.len()
            }
            Some(_) => true,
        }
    }

    /// Words without a grammar: each must stand where it is written.
    fn is_spelled(&self, form: &NormalForm) -> bool {
        let own = form.words.get(1..).unwrap_or(&[]);
        let fits = |(pattern, word): (&String, &String)| {
            matches_safely(pattern, word) && (pattern.starts_with('-') || !word.starts_with('-'))
        };
        let length = own.len() == self.words.len() || (self.open && own.len() > self.words.len());
        length && !form.cut && self.words.iter().zip(own).all(fits)
    }

    /// Finds each word of the pattern in the command. `admit`: operands must follow without a gap, and doubt is a no.
    fn met(&self, form: &NormalForm, admit: bool) -> Option<Met> {
        let mut met = Met::default();
        let mut words = self.words.iter().peekable();
        let mut only_operands = false;
        while let Some(word) = words.next() {
            if !only_operands && word == "--" {
                only_operands = true;
            } else if !only_operands && word.len() > 1 && word.starts_with('-') {
                let next = words.peek().map(|next| next.as_str());
                match met.option(form, word, next, admit) {
                    Some(true) => {
                        words.next();
                    }
                    Some(false) => {}
                    // After a launcher's own options, what looks like one belongs to the command it carries.
                    None if met.operand(form, word, admit) => {}
                    None if !admit && form.is_unsure() => {}
                    None => return None,
                }
            } else if let Some(part) = form.subcommand.get(met.subcommand) {
                let doubtful = form.doubtful && !admit;
                if !doubtful && !part.iter().any(|name| matches(word, name)) {
                    return None;
                }
                met.subcommand = met.subcommand.saturating_add(1);
            } else if !met.operand(form, word, admit) && (admit || !(form.cut || form.doubtful)) {
                return None;
            }
        }
        Some(met)
    }

    /// True when all that the narrow one admits is admitted by this one, as far as that can be told.
    pub fn admits_all_of(&self, narrow: &Self) -> bool {
        let program = self.program == narrow.program;
        let variables = narrow.variables.iter().all(|own| self.variables.contains(own));
        let bare = self.words.is_empty() && !self.exact;
        // An option's word may be another's value in a longer list.
        let plain = self.words.iter().all(|word| !word.starts_with('-'));
        let open = self.open && plain && narrow.words.starts_with(&self.words);
        self == narrow || (program && variables && (bare || open))
    }

    /// True when this one holds for all that the narrow one admits or holds for, as far as that can be told.
    pub fn holds_for_all_of(&self, narrow: &Self) -> bool {
        let mut rest = narrow.words.iter();
        let words = self.words.iter().all(|word| rest.any(|own| own == word));
        let variables = self.variables.is_empty();
        self == narrow || (self.program == narrow.program && variables && words && !self.exact)
    }

    /// True when some command may be met by both.
    pub fn may_meet(&self, other: &Self) -> bool {
        let name = |program: &ProgramPattern| match program {
            ProgramPattern::Name(name) => Some(name.clone()),
            ProgramPattern::Path(path) => path.last_literal().map(Into::into),
            ProgramPattern::ReadOnly => None,
        };
        let both = match (name(&self.program), name(&other.program)) {
            (Some(one), Some(two)) => matches(&one, &two) || matches(&two, &one),
            _ => true,
        };
        let subcommand = |words: &[String]| words.first().filter(|word| !word.starts_with('-')).cloned();
        both && match (subcommand(&self.words), subcommand(&other.words)) {
            (Some(one), Some(two)) => matches(&one, &two) || matches(&two, &one),
            _ => true,
        }
    }

    /// How much is written out, in characters: the more, the narrower.
    pub fn literal_len(&self) -> usize {
        let literal = |text: &str| text.chars().filter(|c| *c != '*').count().saturating_add(1);
        let program = match &self.program {
            ProgramPattern::Name(name) => literal(name),
            ProgramPattern::Path(path) => literal(path.as_str()),
            ProgramPattern::ReadOnly => 1,
        };
        self.words
            .iter()
            .fold(program, |sum, word| sum.saturating_add(literal(word)))
    }
}

/// How far a pattern's words have been found in a command.
#[derive(Default)]
struct Met {
    subcommand: usize,
    /// The places of the options that were found.
    options: Vec<usize>,
    operands: usize,
}

impl Met {
    /// Finds an operand: the next one for an allow, any later one else.
    fn operand(&mut self, form: &NormalForm, word: &str, admit: bool) -> bool {
        let rest = form.operands.get(self.operands..).unwrap_or(&[]);
        let skipped = if admit {
            rest.first().filter(|operand| matches_safely(word, operand)).map(|_| 0)
        } else {
            rest.iter().position(|operand| matches(word, operand))
        };
        if let Some(skipped) = skipped {
            self.operands = self.operands.saturating_add(skipped).saturating_add(1);
        }
        skipped.is_some()
    }

    /// Finds an option as it is written in a pattern. True: the next word is its value.
    fn option(&mut self, form: &NormalForm, word: &str, next: Option<&str>, admit: bool) -> Option<bool> {
        let fits = |pattern: &str, value: &str| {
            if admit {
                matches_safely(pattern, value)
            } else {
                matches(pattern, value)
            }
        };
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let by = |name: &str, given: &Given| given.names.iter().any(|own| own == name);
        // As it stands, with its value attached or in the next word.
        let whole = self.take(form, |given| {
            by(name, given)
                && match (attached.or(next), &given.value) {
                    (Some(pattern), Some(value)) => fits(pattern, value),
                    (None, Some(_)) => !admit,
                    (_, None) => attached.is_none(),
                }
        });
        if let Some(given) = whole {
            return Some(attached.is_none() && next.is_some() && given.value.is_some());
        }
        // An option whose value may be left out, written without one.
        if attached.is_none() && !admit && self.take(form, |given| by(name, given)).is_some() {
            return Some(false);
        }
        if word.starts_with("--") {
            return None;
        }
        // One letter with its value attached: `-n5`.
        let head = word.char_indices().nth(2).map(|(place, _)| word.split_at(place));
        if let Some((name, pattern)) = head
            && self
                .take(form, |given| {
                    by(name, given) && given.value.as_deref().is_some_and(|value| fits(pattern, value))
                })
                .is_some()
        {
            return Some(false);
        }
        // A cluster: `-rf`.
        let letters: Vec<String> = word.chars().skip(1).map(|letter| format!("-{letter}")).collect();
        if letters.len() < 2 {
            return None;
        }
        for letter in letters {
            self.take(form, |given| by(&letter, given) && given.value.is_none())?;
        }
        Some(false)
    }

    fn take<'a>(&mut self, form: &'a NormalForm, fits: impl Fn(&Given) -> bool) -> Option<&'a Given> {
        let mut free = form.options.iter().enumerate();
        let (place, given) = free.find(|(place, given)| !self.options.contains(place) && fits(given))?;
        self.options.push(place);
        Some(given)
    }
}

impl NormalForm {
    /// True when options may be among the words that nobody could read.
    fn is_unsure(&self) -> bool {
        self.cut || self.doubtful || !self.unknown.is_empty()
    }
}

/// A word as the pattern that matches it alone.
fn literal(word: &str) -> String {
    word.replace('\\', "\\\\").replace('*', "\\*")
}

fn is_at(pattern: &PathPattern, form: &NormalForm) -> bool {
    let paths = form.paths.iter().filter_map(|path| AbsPath::new(path).ok());
    paths.into_iter().any(|path| pattern.matches(&path))
}

/// Matches one word: `*` is any text without `/`, `**` any text.
fn matches(pattern: &str, word: &str) -> bool {
    // Places of the pattern that can be reached; linear in pattern × word.
    let tokens = tokens(pattern);
    let mut states = vec![false; tokens.len().saturating_add(1)];
    let close = |states: &mut Vec<bool>| {
        let mut carry = false;
        for (state, token) in states.iter_mut().zip(tokens.iter().map(Some).chain([None])) {
            *state |= carry;
            carry = *state && matches!(token, Some(Token::Part | Token::All));
        }
    };
    if let Some(first) = states.first_mut() {
        *first = true;
    }
    close(&mut states);
    for character in word.chars() {
        let mut next = vec![false; states.len()];
        for (place, (state, token)) in states.iter().zip(&tokens).enumerate() {
            let to = match token {
                _ if !state => continue,
                Token::One(own) if *own == character => place.saturating_add(1),
                Token::One(_) => continue,
                Token::Part if character == '/' => continue,
                Token::Part | Token::All => place,
            };
            if let Some(slot) = next.get_mut(to) {
                *slot = true;
            }
        }
        states = next;
        close(&mut states);
    }
    states.last().copied().unwrap_or(false)
}

/// The same for an allow: no wildcard stands for `..`, which leads elsewhere.
fn matches_safely(pattern: &str, word: &str) -> bool {
    let climbs = |text: &str| text.split(['/', ':', '=']).any(|part| part == "..");
    matches(pattern, word) && (!pattern.contains('*') || !climbs(word) || climbs(pattern))
}

enum Token {
    One(char),
    Part,
    All,
}

/// A backslash before a star makes it a plain one.
fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, tokens.last_mut()) {
            ('\\', _) => tokens.push(Token::One(
                characters.next_if(|next| matches!(next, '*' | '\\')).unwrap_or('\\'),
            )),
            ('*', Some(last @ (Token::Part | Token::All))) => *last = Token::All,
            ('*', _) => tokens.push(Token::Part),
            (other, _) => tokens.push(Token::One(other)),
        }
    }
    tokens
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let special = |c: char| c.is_whitespace() || "|&;<>`$\\'\"".contains(c);
        let quoted = |word: &str| match (word.is_empty() || word.contains(special), word.contains('\'')) {
            (false, _) => word.to_owned(),
            (true, false) => format!("'{word}'"),
            // No word has both kinds in a rule file's one pair of quotes: each piece gets the pair that it can have.
            (true, true) => format!("'{}'", word.replace('\'', "'\"'\"'")),
        };
        let mut parts = Vec::new();
        parts.extend(self.exact.then(|| EXACT.to_owned()));
        let variables = self.variables.iter();
        parts.extend(variables.map(|(name, value)| {
            format!(
                "{name}={}",
                if value.is_empty() { value.clone() } else { quoted(value) }
            )
        }));
        parts.push(match &self.program {
            ProgramPattern::Name(name) => quoted(name),
            ProgramPattern::Path(path) => quoted(path.as_str()),
            ProgramPattern::ReadOnly => READ_ONLY.to_owned(),
        });
        parts.extend(self.words.iter().map(|word| quoted(word)));
        parts.extend(self.open.then(|| "**".to_owned()));
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests;
