//! What is said about a mistake in a rule file: where it stands, what is wrong, what would be right.
//!
//! Promises: P4 (a mistake is an error that says so, never a rule that silently does nothing).
//! Trust: file names and words in messages may come from an untrusted project; control characters are escaped.

use std::fmt;
use std::ops::Range;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// There is no policy.
    Error,
    /// The policy holds, but probably not as it was meant.
    Warning,
}

/// One thing to say about a rule file. Prints as `file:line:column: message`; the hint is kept apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or `preset:NAME` for a shipped one.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// What is wrong: one line, lower-case.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(severity: Severity, file: &str, place: Place, message: &str, hint: Option<String>) -> Self {
        Self {
            severity,
            file: visible(file),
            line: place.line,
            column: place.column,
            message: visible(message),
            hint: hint.map(|hint| visible(&hint)),
        }
    }

    /// What would be right, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// True when there is no policy because of this.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Makes control characters visible and keeps the text to one line.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// A line and a column, both from 1; columns are counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    /// The first character of a file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place of a byte of a text.
    pub fn of(text: &str, offset: usize) -> Self {
        let head = text.get(..offset).unwrap_or(text);
        let line = head.matches('\n').count().saturating_add(1);
        let last = head.rsplit('\n').next().unwrap_or(head);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            line: number(line),
            column: number(last.chars().count().saturating_add(1)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Bytes of a file's text.
pub(crate) type Span = Range<usize>;

/// The known word that was most likely meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let close = known
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .min()
        .filter(|(steps, candidate)| *steps <= 1.max(candidate.len() / 3));
    let part = || {
        known
            .iter()
            .copied()
            .filter(|candidate| candidate.len() >= 3 && (word.starts_with(candidate) || word.ends_with(candidate)))
            .max_by_key(|candidate| candidate.len())
    };
    close.map(|(_, candidate)| candidate).or_else(part)
}

/// `did you mean ...?`, or the list of what is known.
pub(crate) fn suggest(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let list: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
            format!("known here: {}", list.join(", "))
        }
    }
}

/// How many letters must be put in, taken out, replaced or swapped with the next to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let at = |row: &[usize], place: usize| row.get(place).copied().unwrap_or(usize::MAX / 2);
    let mut older: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for left in from.chars() {
        let mut next = vec![at(&row, 0).saturating_add(1)];
        let mut before = None;
        for (place, right) in to.iter().copied().enumerate() {
            let replaced = at(&row, place).saturating_add(usize::from(left != right));
            let inserted = at(&next, place).saturating_add(1);
            let removed = at(&row, place.saturating_add(1)).saturating_add(1);
            let swapped = match (place.checked_sub(1), last == Some(right) && before == Some(left)) {
                (Some(two_back), true) => at(&older, two_back).saturating_add(1),
                _ => usize::MAX,
            };
            next.push(replaced.min(inserted).min(removed).min(swapped));
            before = Some(right);
        }
        older = std::mem::replace(&mut row, next);
        last = Some(left);
    }
    at(&row, to.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_single_steps() {
        for (from, to, want) in [
            ("", "", 0),
            ("write", "write", 0),
            ("wirte", "write", 1),
            ("wriet", "writes", 2),
            ("a", "", 1),
            ("deny", "denies", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(from, to), want, "{from} to {to}");
        }
    }

    #[test]
    fn c070_the_nearest_word_is_found() {
        let keys = ["read", "write", "deny", "ask"];
        for (word, want) in [
            ("wriet", Some("write")),
            ("wrote", Some("write")),
            ("denyWrit", Some("deny")),
            ("allowRead", Some("read")),
            ("reed", Some("read")),
            ("zzz", None),
        ] {
            assert_eq!(nearest(word, &keys), want, "{word}");
        }
    }

    #[test]
    fn places_are_counted_in_characters() {
        assert_eq!(Place::of("a\nbü = 1", 5), Place { line: 2, column: 3 });
        assert_eq!(Place::of("", 0), Place::START);
    }
}
