//! The words of a `when`: names, texts, numbers and signs, with where they stand.
//!
//! Promises: P4 (a sign that is not Cedar's is an error at its place). Trust: only files that a person trusts hold a `when`.
//! Numbers are read whole, with point and exponent, which Cedar has not: what they are compared with says what they become.
//! See: Cedar's grammar, <https://docs.cedarpolicy.com/policies/syntax-grammar.html>.

use std::ops::Range;

/// Longest `when`, in bytes.
const MAX: usize = 4 << 10;

/// A word of the language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Name(String),
    /// As it was written.
    Number(String),
    /// What stands between the quotation marks, as it was written.
    Text(String),
    Sign(&'static str),
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub span: Range<usize>,
    pub message: String,
    pub hint: Option<String>,
}

impl Wrong {
    pub fn at(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            hint: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Longer signs first.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "::", "(", ")", "[", "]", "{", "}", ",", ".", ":", "<", ">", "!", "+", "-",
    "*", "=",
];

/// All words of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, Wrong> {
    if text.len() > MAX {
        return Err(Wrong::at(0..0, format!("a `when` of {} bytes is too long", text.len())));
    }
    let mut found = Vec::new();
    let mut at = 0usize;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let blank = rest.len().saturating_sub(rest.trim_start().len());
        if blank > 0 {
            at = at.saturating_add(blank);
            continue;
        }
        if rest.starts_with("//") {
            at = at.saturating_add(rest.find('\n').unwrap_or(rest.len()));
            continue;
        }
        let (token, length) = word(rest).map_err(|(length, message)| {
            let end = at.saturating_add(length).min(text.len());
            Wrong::at(at..end, message)
        })?;
        let end = at.saturating_add(length);
        found.push((token, at..end));
        at = end;
    }
    Ok(found)
}

/// The first word of a text that begins with one, and how long it is.
fn word(rest: &str) -> Result<(Token, usize), (usize, String)> {
    let head = |fits: &dyn Fn(char) -> bool| rest.find(|c: char| !fits(c)).unwrap_or(rest.len());
    let first = rest.chars().next().unwrap_or(' ');
    if first.is_ascii_alphabetic() || first == '_' {
        let length = head(&|c| c.is_ascii_alphanumeric() || c == '_');
        return Ok((Token::Name(rest.get(..length).unwrap_or("").into()), length));
    }
    if first.is_ascii_digit() {
        let length = number(rest);
        return Ok((Token::Number(rest.get(..length).unwrap_or("").into()), length));
    }
    if first == '"' {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    let inner = rest.get(1..at).unwrap_or("").to_owned();
                    return Ok((Token::Text(inner), at.saturating_add(1)));
                }
                _ => {}
            }
        }
        return Err((1, "this text has no end: a quotation mark is missing".into()));
    }
    if first == '\'' {
        return Err((1, "texts stand in `\"…\"`, not in `'…'`".into()));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None => Err((first.len_utf8(), format!("`{first}` is no sign of an expression"))),
    }
}

/// How long a number is: digits, then a point and digits, then an exponent.
fn number(rest: &str) -> usize {
    let digits = |from: usize| {
        let tail = rest.get(from..).unwrap_or("");
        tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len())
    };
    let mut length = digits(0);
    let behind = length.saturating_add(1);
    if rest.get(length..).is_some_and(|tail| tail.starts_with('.')) && digits(behind) > 0 {
        length = behind.saturating_add(digits(behind));
    }
    if rest.get(length..).is_some_and(|tail| tail.starts_with(['e', 'E'])) {
        let mut from = length.saturating_add(1);
        if rest.get(from..).is_some_and(|tail| tail.starts_with(['+', '-'])) {
            from = from.saturating_add(1);
        }
        if digits(from) > 0 {
            length = from.saturating_add(digits(from));
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        let shown = |text: &str| {
            let words = tokens(text).unwrap().into_iter().map(|(token, span)| match token {
                Token::Name(word) => word,
                Token::Number(word) => format!("#{word}"),
                Token::Text(word) => format!("\"{word}\""),
                Token::Sign(sign) => format!("{sign}@{}", span.start),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown("args.a<=199.99 && !x // no\n|| \"a\\\"b\""),
            "args .@4 a <=@6 #199.99 &&@15 !@18 x ||@27 \"a\\\"b\""
        );
        assert_eq!(shown("2e2 1.5E-3 1.x"), "#2e2 #1.5E-3 #1 .@12 x");
        for wrong in ["\"a", "'a'", "a & b", "a ~ b", "ä"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn p4_reading_never_panics(text in ".{0,60}") {
            let _ = tokens(&text);
        }
    }
}
