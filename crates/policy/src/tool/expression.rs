//! A `when` as a tree: one Cedar expression, in which every part knows where it stands.
//!
//! Promises: P4 (what is not an expression is an error at its place; depth is bounded). Trust: only files that a person
//! trusts hold a `when`.
//! Own, since Cedar's tree has no number with a point, and loses the places that messages need. Whatever is made of the
//! tree is parsed and validated by Cedar again (`compile`).

use std::ops::Range;

use super::lexer::{Token, Wrong, tokens};

/// Deepest nesting.
const DEPTH: usize = 40;

/// A part of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    pub node: Node,
    pub span: Range<usize>,
}

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Flag(bool),
    /// As it was written, without a sign.
    Number(String),
    /// What stands between the quotation marks, as it was written.
    Text(String),
    /// `Team::"hr"`.
    Entity(String, String),
    Variable(String),
    Set(Vec<Expression>),
    Record(Vec<(String, Expression)>),
    /// `of.name`, and whether it was called with arguments.
    Get(Box<Expression>, String),
    Method(Box<Expression>, String, Vec<Expression>),
    Function(String, Vec<Expression>),
    /// `of has a.b`.
    Has(Box<Expression>, Vec<String>),
    /// `of like "pattern"`.
    Like(Box<Expression>, String),
    Not(Box<Expression>),
    Minus(Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    If(Box<Expression>, Box<Expression>, Box<Expression>),
}

impl Expression {
    /// The names behind `args`, where that is what this is: `args.a.b`.
    pub fn path(&self) -> Option<Vec<String>> {
        self.behind("args")
    }

    /// The names behind a word, where that is what this is.
    pub fn behind(&self, word: &str) -> Option<Vec<String>> {
        match &self.node {
            Node::Variable(name) if name == word => Some(Vec::new()),
            Node::Get(of, name) => {
                let mut path = of.behind(word)?;
                path.push(name.clone());
                Some(path)
            }
            _ => None,
        }
    }

    /// The parts that must all hold.
    pub fn conjuncts(&self) -> Vec<&Self> {
        match &self.node {
            Node::Binary("&&", left, right) => {
                let mut parts = left.conjuncts();
                parts.extend(right.conjuncts());
                parts
            }
            _ => vec![self],
        }
    }
}

/// Reads one expression.
pub(crate) fn parse(text: &str) -> Result<Expression, Wrong> {
    let tokens = tokens(text)?;
    let end = text.len();
    let mut parser = Parser {
        tokens,
        at: 0,
        end,
        depth: 0,
    };
    let expression = parser.expression()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

struct Parser {
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    end: usize,
    depth: usize,
}

type Parsed = Result<Expression, Wrong>;

/// How two parts are put together: each level holds the signs of one strength, the weakest first.
const LEVELS: [&[&str]; 2] = [&["||"], &["&&"]];
const RELATIONS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn span(&self) -> Range<usize> {
        let here = self.tokens.get(self.at);
        here.map_or(self.end..self.end, |(_, span)| span.clone())
    }

    /// Where what was read last ends.
    fn last(&self) -> usize {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        before.map_or(0, |(_, span)| span.end)
    }

    fn unexpected(&self, wanted: &str) -> Wrong {
        let found = match self.peek() {
            None => "the expression ends".to_owned(),
            Some(Token::Sign(sign)) => format!("there is `{sign}`"),
            Some(Token::Name(word) | Token::Number(word)) => format!("there is `{word}`"),
            Some(Token::Text(text)) => format!("there is `\"{text}\"`"),
        };
        let wrong = Wrong::at(self.span(), format!("{found} where {wanted} should be"));
        match self.peek() {
            Some(Token::Sign("=")) => wrong.hint("to compare is `==`"),
            _ => wrong,
        }
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(own)) if *own == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(own)) if own == word)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at = self.at.saturating_add(usize::from(found));
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Wrong> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{sign}`"))),
        }
    }

    fn name(&mut self, wanted: &str) -> Result<String, Wrong> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at = self.at.saturating_add(1);
                Ok(name)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn text(&mut self, wanted: &str) -> Result<String, Wrong> {
        match self.peek() {
            Some(Token::Text(text)) => {
                let text = text.clone();
                self.at = self.at.saturating_add(1);
                Ok(text)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn of(&self, start: usize, node: Node) -> Expression {
        Expression {
            node,
            span: start..self.last(),
        }
    }

    /// One step deeper, where that is not too deep.
    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= DEPTH {
            return Err(Wrong::at(
                self.span(),
                format!("more than {DEPTH} parts within each other"),
            ));
        }
        self.depth = self.depth.saturating_add(1);
        let found = read(self);
        self.depth = self.depth.saturating_sub(1);
        found
    }

    fn expression(&mut self) -> Parsed {
        self.deeper(|parser| {
            if !parser.is_word("if") {
                return parser.joined(0);
            }
            let start = parser.span().start;
            let mut parts = Vec::new();
            for word in ["if", "then", "else"] {
                if !parser.is_word(word) {
                    return Err(parser.unexpected(&format!("`{word}`")));
                }
                parser.at = parser.at.saturating_add(1);
                parts.push(Box::new(parser.expression()?));
            }
            match <[Box<Expression>; 3]>::try_from(parts) {
                Ok([test, yes, no]) => Ok(parser.of(start, Node::If(test, yes, no))),
                Err(_) => Err(parser.unexpected("three parts")),
            }
        })
    }

    fn joined(&mut self, level: usize) -> Parsed {
        let Some(signs) = LEVELS.get(level) else {
            return self.relation();
        };
        let start = self.span().start;
        let mut left = self.joined(level.saturating_add(1))?;
        // A chain is as deep as it is long.
        let mut links = 0usize;
        while let Some(sign) = signs.iter().copied().find(|sign| self.is(sign)) {
            links = links.saturating_add(1);
            if links > DEPTH {
                return Err(Wrong::at(self.span(), format!("more than {DEPTH} parts in a row")));
            }
            self.at = self.at.saturating_add(1);
            let right = self.joined(level.saturating_add(1))?;
            left = self.of(start, Node::Binary(sign, Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Parsed {
        let start = self.span().start;
        let left = self.sum()?;
        if let Some(sign) = RELATIONS.into_iter().find(|sign| self.is(sign)) {
            self.at = self.at.saturating_add(1);
            let right = self.sum()?;
            let found = self.of(start, Node::Binary(sign, Box::new(left), Box::new(right)));
            return match RELATIONS.into_iter().find(|sign| self.is(sign)) {
                Some(_) => Err(self.unexpected("`&&`").hint("write `1 <= x && x <= 9`")),
                None => Ok(found),
            };
        }
        if self.is_word("in") {
            self.at = self.at.saturating_add(1);
            let right = self.sum()?;
            return Ok(self.of(start, Node::Binary("in", Box::new(left), Box::new(right))));
        }
        if self.is_word("has") {
            self.at = self.at.saturating_add(1);
            let mut names = match self.peek() {
                Some(Token::Text(_)) => vec![self.text("a name")?],
                _ => vec![self.name("a name")?],
            };
            while self.take(".") {
                names.push(self.name("a name")?);
            }
            return Ok(self.of(start, Node::Has(Box::new(left), names)));
        }
        if self.is_word("like") {
            self.at = self.at.saturating_add(1);
            let pattern = self.text("a pattern in `\"…\"`")?;
            return Ok(self.of(start, Node::Like(Box::new(left), pattern)));
        }
        if self.is_word("is") {
            return Err(Wrong::at(
                self.span(),
                "`is` says nothing here: an argument's type stands in its schema",
            ));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed {
        let start = self.span().start;
        let mut left = self.product()?;
        let mut links = 0usize;
        while let Some(sign) = ["+", "-"].into_iter().find(|sign| self.is(sign)) {
            links = links.saturating_add(1);
            if links > DEPTH {
                return Err(Wrong::at(self.span(), format!("more than {DEPTH} parts in a row")));
            }
            self.at = self.at.saturating_add(1);
            let right = self.product()?;
            left = self.of(start, Node::Binary(sign, Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed {
        let start = self.span().start;
        let mut left = self.unary()?;
        let mut links = 0usize;
        while self.take("*") {
            links = links.saturating_add(1);
            if links > DEPTH {
                return Err(Wrong::at(self.span(), format!("more than {DEPTH} parts in a row")));
            }
            let right = self.unary()?;
            left = self.of(start, Node::Binary("*", Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let start = self.span().start;
        if self.take("!") {
            let of = self.deeper(Self::unary)?;
            return Ok(self.of(start, Node::Not(Box::new(of))));
        }
        if self.take("-") {
            let of = self.deeper(Self::unary)?;
            return Ok(self.of(start, Node::Minus(Box::new(of))));
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let start = self.span().start;
        let mut of = self.primary()?;
        let mut links = 0usize;
        loop {
            links = links.saturating_add(1);
            if links > DEPTH {
                return Err(Wrong::at(self.span(), format!("more than {DEPTH} names in a row")));
            }
            if self.take(".") {
                let name = self.name("a name")?;
                if self.take("(") {
                    let with = self.list(")")?;
                    of = self.of(start, Node::Method(Box::new(of), name, with));
                } else {
                    of = self.of(start, Node::Get(Box::new(of), name));
                }
            } else if self.take("[") {
                let name = self.text("a name in `\"…\"`")?;
                self.expect("]")?;
                of = self.of(start, Node::Get(Box::new(of), name));
            } else {
                return Ok(of);
            }
        }
    }

    /// What stands between commas, to the closing sign.
    fn list(&mut self, close: &str) -> Result<Vec<Expression>, Wrong> {
        let mut all = Vec::new();
        while !self.take(close) {
            if !all.is_empty() {
                self.expect(",")?;
                if self.take(close) {
                    break;
                }
            }
            all.push(self.expression()?);
        }
        Ok(all)
    }

    fn primary(&mut self) -> Parsed {
        let start = self.span().start;
        let Some(token) = self.peek().cloned() else {
            return Err(self.unexpected("a value"));
        };
        match token {
            Token::Number(number) => {
                self.at = self.at.saturating_add(1);
                Ok(self.of(start, Node::Number(number)))
            }
            Token::Text(text) => {
                self.at = self.at.saturating_add(1);
                Ok(self.of(start, Node::Text(text)))
            }
            Token::Sign("(") => {
                self.at = self.at.saturating_add(1);
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => {
                self.at = self.at.saturating_add(1);
                let all = self.list("]")?;
                Ok(self.of(start, Node::Set(all)))
            }
            Token::Sign("{") => self.record(),
            Token::Sign(_) => Err(self.unexpected("a value")),
            Token::Name(name) => {
                self.at = self.at.saturating_add(1);
                match name.as_str() {
                    "true" | "false" => return Ok(self.of(start, Node::Flag(name == "true"))),
                    "and" | "or" | "not" => {
                        self.at = self.at.saturating_sub(1);
                        return Err(self.unexpected("a value").hint("Cedar writes `&&`, `||` and `!`"));
                    }
                    _ => {}
                }
                if self.take("::") {
                    let id = self.text("a name in `\"…\"`")?;
                    return Ok(self.of(start, Node::Entity(name, id)));
                }
                if self.take("(") {
                    let with = self.list(")")?;
                    return Ok(self.of(start, Node::Function(name, with)));
                }
                Ok(self.of(start, Node::Variable(name)))
            }
        }
    }

    fn record(&mut self) -> Parsed {
        let start = self.span().start;
        self.expect("{")?;
        let mut all: Vec<(String, Expression)> = Vec::new();
        while !self.take("}") {
            if !all.is_empty() {
                self.expect(",")?;
            }
            let name = match self.peek() {
                Some(Token::Text(_)) => self.text("a name")?,
                _ => self.name("a name")?,
            };
            self.expect(":")?;
            all.push((name, self.expression()?));
        }
        Ok(self.of(start, Node::Record(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(of: &Expression) -> String {
        let all = |all: &[Expression]| all.iter().map(shown).collect::<Vec<_>>().join(" ");
        match &of.node {
            Node::Flag(flag) => flag.to_string(),
            Node::Number(number) => number.clone(),
            Node::Text(text) => format!("'{text}'"),
            Node::Entity(kind, id) => format!("{kind}::{id}"),
            Node::Variable(name) => name.clone(),
            Node::Set(values) => format!("[{}]", all(values)),
            Node::Record(values) => values
                .iter()
                .map(|(name, value)| format!("{{{name}:{}}}", shown(value)))
                .collect(),
            Node::Get(of, name) => format!("{}.{name}", shown(of)),
            Node::Method(of, name, with) => format!("{}.{name}({})", shown(of), all(with)),
            Node::Function(name, with) => format!("{name}({})", all(with)),
            Node::Has(of, names) => format!("({} has {})", shown(of), names.join(".")),
            Node::Like(of, pattern) => format!("({} like {pattern})", shown(of)),
            Node::Not(of) => format!("!{}", shown(of)),
            Node::Minus(of) => format!("-{}", shown(of)),
            Node::Binary(sign, left, right) => format!("({} {sign} {})", shown(left), shown(right)),
            Node::If(test, yes, no) => format!("({} ? {} : {})", shown(test), shown(yes), shown(no)),
        }
    }

    #[test]
    fn expressions_are_read_as_cedar_reads_them() {
        for (text, want) in [
            (
                "args.a == 1 && args.b < 2.5 || !args.c",
                "(((args.a == 1) && (args.b < 2.5)) || !args.c)",
            ),
            ("a || b && c || d", "((a || (b && c)) || d)"),
            ("args[\"x y\"].z.contains(\"q\")", "args.x y.z.contains('q')"),
            (
                "args has a.b && args.l like \"x*\"",
                "((args has a.b) && (args.l like x*))",
            ),
            ("[1, 2,].contains(-args.n)", "[1 2].contains(-args.n)"),
            ("if a then b else c && d", "(a ? b : (c && d))"),
            ("me in Team::\"hr\"", "(me in Team::hr)"),
            ("args.a + 1 * 2 - 3 < 4", "(((args.a + (1 * 2)) - 3) < 4)"),
            ("{a: 1, \"b\": [true]} == args", "({a:1}{b:[true]} == args)"),
            ("ip(\"::1\").isLoopback()", "ip('::1').isLoopback()"),
        ] {
            assert_eq!(parse(text).map(|found| shown(&found)).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn p4_what_is_none_is_an_error_at_its_place() {
        for (text, at) in [
            ("", 0),
            ("args.a ==", 9),
            ("args.a = 1", 7),
            ("args.a == 1 args.b", 12),
            ("(args.a", 7),
            ("1 < args.a < 3", 11),
            ("args.", 5),
            ("not args.a", 0),
            ("args is X", 5),
        ] {
            assert_eq!(parse(text).map_err(|wrong| wrong.span.start), Err(at), "{text}");
        }
        for deep in [
            "!".repeat(5000) + "a",
            "(".repeat(5000),
            "[".repeat(3000),
            "a&&".repeat(2000) + "a",
        ] {
            assert!(parse(&deep).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn p4_reading_never_panics(text in "([a-z .<=&|!()\\[\\]{},:\"0-9-]|args|has|like|if|then|else|in){0,40}") {
            let _ = parse(&text);
        }
    }
}
