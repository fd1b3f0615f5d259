//! What the parts of a `when` are: what can be compared with what, and which arguments there are.
//!
//! Promises: P4 (what is compared with something that it can never be is an error at its place).
//! Not here: writing it in Cedar's words (`emit`), Cedar's own types (`check`).

use std::ops::Range;

use bailiwick_model::Decimal;

use super::among::{Among, CameFrom};
use super::emit::Path;
use super::expression::{Expression, Node};
use super::lexer::Wrong;
use super::shape::{Fields, Kind, Shape, at};
use crate::diagnostic::suggest;

/// What a part of an expression is, as far as rewriting needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
    Flag,
    Whole,
    Decimal,
    /// A number that takes the kind of what it is compared with.
    Literal(Decimal),
    Text,
    List(Box<Self>),
    Known(Kind),
    Other,
}

impl Of {
    pub fn in_shape(shape: &Shape) -> Self {
        match shape {
            Shape::Text(_) => Self::Text,
            Shape::Whole => Self::Whole,
            Shape::Number => Self::Decimal,
            Shape::Flag => Self::Flag,
            Shape::List(of) => Self::List(Box::new(Self::in_shape(of))),
            Shape::Known(kind) => Self::Known(*kind),
            Shape::Fields(_) | Shape::Open(_) => Self::Other,
        }
    }

    pub fn told(&self) -> String {
        match self {
            Self::Flag => "true or false".into(),
            Self::Whole => "a whole number".into(),
            Self::Decimal | Self::Literal(_) => "a number".into(),
            Self::Text => "a text".into(),
            Self::List(_) => "a list".into(),
            Self::Known(kind) => format!("a {}", kind.as_str()),
            Self::Other => "something else".into(),
        }
    }

    pub fn is_decimal(&self) -> bool {
        match self {
            Self::Decimal => true,
            Self::List(of) => of.is_decimal(),
            _ => false,
        }
    }

    /// True when both can be equal.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other, _) | (_, Self::Other) => true,
            (Self::Literal(_), Self::Whole | Self::Decimal) | (Self::Whole | Self::Decimal, Self::Literal(_)) => true,
            (Self::Literal(_), Self::Literal(_)) => true,
            (Self::List(one), Self::List(other)) => one.meets(other),
            (one, other) => one == other,
        }
    }
}

/// The arguments of one tool, and the text that speaks of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub source: &'a str,
    pub fields: &'a Fields,
    /// What arguments were chosen from.
    pub from: &'a CameFrom,
}

impl Parts<'_> {
    /// What was written there.
    pub fn word(&self, of: &Expression) -> String {
        self.source.get(of.span.clone()).unwrap_or("").to_owned()
    }

    /// What a part is. Nothing is complained about here.
    pub fn kind(&self, of: &Expression) -> Of {
        if let Some(literal) = literal(of) {
            return Of::Literal(literal);
        }
        if let Some((kind, name)) = self.of_known(of) {
            return match (kind, name) {
                (Kind::Thing, "owner" | "case_of") => Of::Known(Kind::Person),
                (kind, name) if attributes(kind).contains(&name) => Of::Text,
                _ => Of::Other,
            };
        }
        if let Ok(Some(among)) = Among::read(of, self.from) {
            return match among.is_whole(self.fields) {
                Some(true) => Of::Whole,
                Some(false) => Of::Decimal,
                None => Of::Other,
            };
        }
        if let Some(path) = of.path() {
            return match at(self.fields, &path) {
                Some((shape, _)) => Of::in_shape(shape),
                None if self.counts(of).is_some() => Of::Whole,
                None => Of::Other,
            };
        }
        match &of.node {
            Node::Flag(_) | Node::Has(..) | Node::Like(..) | Node::Not(_) => Of::Flag,
            Node::Binary("&&" | "||" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "in", ..) => Of::Flag,
            Node::Binary(_, left, right) => match (self.kind(left), self.kind(right)) {
                (Of::Decimal, _) | (_, Of::Decimal) => Of::Decimal,
                _ => Of::Whole,
            },
            Node::Minus(inner) => self.kind(inner),
            Node::Text(_) => Of::Text,
            Node::Entity(kind, _) => Kind::read(kind).map_or(Of::Other, Of::Known),
            Node::Variable(name) if name == "me" => Of::Known(Kind::Person),
            Node::Set(all) => Of::List(Box::new(all.first().map_or(Of::Other, |first| self.kind(first)))),
            Node::Function(name, _) if name == "decimal" => Of::Decimal,
            Node::If(_, yes, no) => match self.kind(yes) {
                Of::Literal(_) => self.kind(no),
                kind => kind,
            },
            Node::Get(inner, _) if matches!(&inner.node, Node::Variable(own) if own == "relations") => Of::Whole,
            Node::Get(..) => Of::Other,
            Node::Method(_, name, _) => match name.as_str() {
                "contains" | "containsAll" | "containsAny" | "isEmpty" => Of::Flag,
                "lessThan" | "lessThanOrEqual" | "greaterThan" | "greaterThanOrEqual" => Of::Flag,
                _ => Of::Other,
            },
            Node::Number(_) | Node::Record(_) | Node::Variable(_) | Node::Function(..) => Of::Other,
        }
    }

    /// What something is known of, and what of it: `args.record.owner`.
    pub fn of_known<'e>(&self, of: &'e Expression) -> Option<(Kind, &'e str)> {
        let Node::Get(inner, name) = &of.node else { return None };
        match self.kind(inner) {
            Of::Known(kind) => Some((kind, name)),
            _ => None,
        }
    }

    /// The list of which this counts the entries: `args.list.count`.
    pub fn counts(&self, of: &Expression) -> Option<Path> {
        let Node::Get(list, name) = &of.node else { return None };
        let path = list.path().filter(|_| name == "count")?;
        matches!(at(self.fields, &path), Some((Shape::List(_), _))).then_some(path)
    }

    /// Complains about an argument that there is not.
    pub fn known(&self, path: &[String], span: &Range<usize>) -> Result<(), Wrong> {
        let mut fields = self.fields;
        for (place, name) in path.iter().enumerate() {
            let above = path.get(..place).unwrap_or_default().join(".");
            let of = if above.is_empty() {
                String::new()
            } else {
                format!(" in `{above}`")
            };
            let Some(field) = fields.get(name) else {
                let known: Vec<&str> = fields.keys().map(String::as_str).collect();
                let wrong = Wrong::at(span.clone(), format!("there is no argument `{name}`{of}"));
                return Err(wrong.hint(suggest(name, &known)));
            };
            let last = place.saturating_add(1) == path.len();
            match &field.shape {
                _ if last => {}
                Shape::Fields(inner) => fields = inner,
                Shape::Open(why) => {
                    return Err(Wrong::at(span.clone(), format!("`{name}`{of} cannot be judged: {why}")));
                }
                other => {
                    let wrong = Wrong::at(
                        span.clone(),
                        format!("`{name}`{of} is {}, and has no fields", other.told()),
                    );
                    return Err(match other {
                        Shape::List(_) => {
                            wrong.hint("of a list there is `.count`, `.contains(…)`, `.containsAll([…])`")
                        }
                        _ => wrong,
                    });
                }
            }
        }
        Ok(())
    }

    /// Complains about two parts of which one can never be the other.
    pub fn comparable(
        &self,
        (left, own): (&Expression, &Of),
        (right, theirs): (&Expression, &Of),
    ) -> Result<(), Wrong> {
        let span = left.span.start.min(right.span.start)..left.span.end.max(right.span.end);
        if !own.meets(theirs) {
            let (one, other) = (self.word(left), self.word(right));
            let message = format!("`{one}` is {}, `{other}` is {}", own.told(), theirs.told());
            let wrong = Wrong::at(span, message);
            return Err(match (own, theirs, &right.node) {
                (Of::Known(kind), Of::Text, Node::Text(id)) => {
                    wrong.hint(format!("write `{}::\"{id}\"`", kind.as_str()))
                }
                (Of::Whole, Of::Decimal, _) | (Of::Decimal, Of::Whole, _) => {
                    wrong.hint("Cedar compares whole numbers with whole numbers, and decimals with decimals")
                }
                _ => wrong,
            });
        }
        for (path, value) in [(left, right), (right, left)] {
            let Some((Shape::Text(Some(known)), _)) = path.path().and_then(|path| at(self.fields, &path)) else {
                continue;
            };
            if let Node::Text(text) = &value.node
                && !text.contains('\\')
                && !known.contains(text)
            {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let message = format!(
                    "`{}` is never `{text}`: its schema lists what it may be",
                    self.word(path)
                );
                return Err(Wrong::at(span, message).hint(suggest(text, &known)));
            }
        }
        Ok(())
    }
}

/// What is known of people, teams and things.
pub(super) fn attributes(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Person => &["id", "name", "user"],
        Kind::Team => &["id", "name"],
        Kind::Thing => &["id", "kind", "owner", "case_of"],
    }
}

/// The number that a part is, with its sign.
pub(super) fn literal(of: &Expression) -> Option<Decimal> {
    match &of.node {
        Node::Number(text) => Decimal::parse(text).ok(),
        Node::Minus(inner) => match &inner.node {
            Node::Number(text) => Decimal::parse(&format!("-{text}")).ok(),
            _ => None,
        },
        _ => None,
    }
}
