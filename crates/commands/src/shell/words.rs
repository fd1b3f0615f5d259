//! Words of a line: what they come to, as far as that can be told, and the lines that stand in them.

use brush_parser::ParserOptions;
use brush_parser::word::{ParameterExpr, TildeExpr, WordPiece, WordPieceWithSource, parse, parse_heredoc};

/// Stands for what is known at run time only. No word of a rule matches it.
pub(crate) const OPEN: &str = "\u{fffd}";

/// What a word comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// The text, with [`OPEN`] for each piece that is known at run time only.
    pub text: String,
    /// True when pieces of it are known at run time only.
    pub open: bool,
    /// True when it may become several words, or none.
    pub many: bool,
    /// Lines in `$( )` and backquotes.
    pub lines: Vec<String>,
    /// True when something in it is not understood.
    pub odd: bool,
}

/// Reads a word.
pub(crate) fn read(word: &str, home: &str) -> Read {
    let mut read = Read::default();
    match parse(word, &ParserOptions::default()) {
        Ok(pieces) => pieces.iter().for_each(|piece| read.piece(piece, home, false)),
        Err(_) => match one_line(word) {
            Some(line) => {
                read.unknown();
                read.lines.push(line.to_owned());
            }
            None => read.odd = true,
        },
    }
    // `{a,b}` and `{1..9}` become several words; `{}` stays as it is.
    let braces = word.contains('{') && (word.contains(',') || word.contains(".."));
    read.many |= braces && read.text.contains('{');
    read.open |= read.many;
    read
}

/// Reads the text of a here-document that is expanded.
pub(crate) fn read_document(text: &str) -> Read {
    let mut read = Read::default();
    match parse_heredoc(text, &ParserOptions::default()) {
        Ok(pieces) => pieces.iter().for_each(|piece| read.piece(piece, "~", true)),
        Err(_) => read.odd = true,
    }
    read
}

/// The line of a word that is one `"$( )"` with plain text round it. The parser of words loses its way where a
/// here-document in there has quotes of its own; whoever reads the line finds out whether it ends where the word does.
fn one_line(word: &str) -> Option<&str> {
    let inner = word.strip_prefix('"')?.strip_suffix('"')?;
    let (before, rest) = inner.split_once("$(")?;
    let (line, after) = rest.rsplit_once(')')?;
    let plain = |text: &str| !text.contains(['$', '`', '"', '\\', '(', ')']);
    (plain(before) && plain(after) && line.contains("<<")).then_some(line)
}

/// True for a text in which a line may stand.
pub(crate) fn may_hold_lines(text: &str) -> bool {
    text.contains("$(") || text.contains('`') || text.contains("<(") || text.contains(">(")
}

impl Read {
    fn piece(&mut self, piece: &WordPieceWithSource, home: &str, quoted: bool) {
        match &piece.piece {
            WordPiece::Text(text) => {
                if !quoted && text.contains(['*', '?', '[']) {
                    self.open = true;
                    self.many = true;
                }
                self.text.push_str(text);
            }
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            WordPiece::AnsiCQuotedText(text) => match unescaped(text) {
                Some(text) => self.text.push_str(&text),
                None => self.unknown(),
            },
            WordPiece::EscapeSequence(text) => match text.strip_prefix('\\') {
                Some("\n") => {}
                Some(rest) => self.text.push_str(rest),
                None => self.text.push_str(text),
            },
            WordPiece::DoubleQuotedSequence(pieces) | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                pieces.iter().for_each(|piece| self.piece(piece, home, true));
            }
            WordPiece::TildeExpansion(TildeExpr::Home) => self.text.push_str(home),
            WordPiece::TildeExpansion(_) => self.unknown(),
            WordPiece::ParameterExpansion(expansion) => {
                self.unknown();
                self.many |= !quoted;
                self.odd |= holds_more(expansion);
            }
            WordPiece::CommandSubstitution(line) => {
                self.unknown();
                self.many |= !quoted;
                self.lines.push(line.clone());
            }
            WordPiece::BackquotedCommandSubstitution(line) => {
                self.unknown();
                self.many |= !quoted;
                // A backslash before these is taken away before the line is read.
                let line = line.replace("\\`", "`").replace("\\$", "$").replace("\\\\", "\\");
                self.lines.push(line);
            }
            WordPiece::ArithmeticExpression(expression) => {
                self.unknown();
                self.odd |= may_hold_lines(&expression.value);
            }
        }
    }

    fn unknown(&mut self) {
        self.open = true;
        self.text.push_str(OPEN);
    }
}

/// True when an expansion may run a line, or reads a value as one.
fn holds_more(expansion: &ParameterExpr) -> bool {
    let shown = format!("{expansion:?}");
    matches!(expansion, ParameterExpr::Transform { .. }) || may_hold_lines(&shown)
}

/// The text of `$'…'`, where it has the plain escapes only.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            other @ ('\\' | '\'' | '"' | '?') => other,
            _ => return None,
        });
    }
    Some(out)
}
