//! Whether an expression can hold at all: contradictions that can be seen without knowing the arguments.
//!
//! Promises: P4 (a rule that can never hold is an error, not a rule that silently does nothing). Only what is sure is said:
//! whatever is not understood may hold. It changes no answer.

use std::collections::BTreeMap;

use bailiwick_model::Decimal;

use super::among::{Among, CameFrom, End, Measure};
use super::emit::Path;
use super::expression::{Expression, Node};
use super::parts::{Parts, literal};
use super::shape::{Fields, Shape, at};

/// Most ways to hold that are looked at; with more nothing is said.
const WAYS: usize = 256;

/// Ends the path of how many entries a list has.
const COUNT: &str = "\0count";

/// Ends the path of how many there were to choose from.
const AT_LEAST_ONE: &str = "\0count from one";

/// One thing that must hold.
#[derive(Debug, Clone)]
enum Must<'a> {
    Never(&'a Expression),
    Compare(Path, Sign, Value, &'a Expression),
    Has(Path, bool, &'a Expression),
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(Decimal),
    Text(String),
    Flag(bool),
}

impl Sign {
    fn read(sign: &str) -> Option<Self> {
        Some(match sign {
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::More,
            ">=" => Self::AtLeast,
            "==" => Self::Equal,
            "!=" => Self::Other,
            _ => return None,
        })
    }

    /// What holds where this does not.
    fn against(self) -> Self {
        match self {
            Self::Less => Self::AtLeast,
            Self::AtMost => Self::More,
            Self::More => Self::AtMost,
            Self::AtLeast => Self::Less,
            Self::Equal => Self::Other,
            Self::Other => Self::Equal,
        }
    }

    /// The same with the sides changed.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::More,
            Self::AtMost => Self::AtLeast,
            Self::More => Self::Less,
            Self::AtLeast => Self::AtMost,
            same => same,
        }
    }
}

/// The part that can never hold, and the part that it contradicts where there is one.
pub(super) fn contradiction<'a>(
    of: &'a Expression,
    fields: &Fields,
    from: &CameFrom,
) -> Option<(&'a Expression, Option<&'a Expression>)> {
    let finder = Finder { fields, from };
    let ways = finder.ways(of, true)?;
    let mut first = None;
    for way in &ways {
        match finder.fault(way) {
            None => return None,
            Some(fault) => {
                first.get_or_insert(fault);
            }
        }
    }
    first
}

struct Finder<'f> {
    fields: &'f Fields,
    from: &'f CameFrom,
}

type Way<'a> = Vec<Must<'a>>;

impl Finder<'_> {
    /// The ways in which it can hold, or can fail to; none where there are too many.
    fn ways<'a>(&self, of: &'a Expression, holds: bool) -> Option<Vec<Way<'a>>> {
        match (&of.node, holds) {
            (Node::Not(inner), _) => self.ways(inner, !holds),
            (Node::Binary("&&", left, right), true) | (Node::Binary("||", left, right), false) => {
                let (left, right) = (self.ways(left, holds)?, self.ways(right, holds)?);
                if left.len().saturating_mul(right.len()) > WAYS {
                    return None;
                }
                let both = |one: &Way<'a>, other: &Way<'a>| one.iter().chain(other).cloned().collect();
                Some(
                    left.iter()
                        .flat_map(|one| right.iter().map(move |other| both(one, other)))
                        .collect(),
                )
            }
            (Node::Binary("||", left, right), true) | (Node::Binary("&&", left, right), false) => {
                let mut all = self.ways(left, holds)?;
                all.extend(self.ways(right, holds)?);
                (all.len() <= WAYS).then_some(all)
            }
            _ => Some(vec![vec![self.must(of, holds)]]),
        }
    }

    fn must<'a>(&self, of: &'a Expression, holds: bool) -> Must<'a> {
        match &of.node {
            Node::Flag(flag) if *flag != holds => Must::Never(of),
            Node::Has(inner, names) => match inner.path() {
                Some(mut path) => {
                    path.extend(names.iter().cloned());
                    Must::Has(path, holds, of)
                }
                None => Must::Unknown,
            },
            Node::Binary(sign, left, right) => {
                let Some(sign) = Sign::read(sign) else {
                    return Must::Unknown;
                };
                let sign = if holds { sign } else { sign.against() };
                match (self.place(left), value(right), self.place(right), value(left)) {
                    (Some(path), Some(value), ..) => Must::Compare(path, sign, value, of),
                    (_, _, Some(path), Some(value)) => Must::Compare(path, sign.turned(), value, of),
                    (_, Some(one), _, Some(other)) if !agrees(&other, sign, &one) => Must::Never(of),
                    _ if self.is_past_the_end(left, sign, right) => Must::Never(of),
                    _ if self.is_past_the_end(right, sign.turned(), left) => Must::Never(of),
                    _ => Must::Unknown,
                }
            }
            _ => match self.place(of) {
                Some(path) => Must::Compare(path, Sign::Equal, Value::Flag(holds), of),
                None => Must::Unknown,
            },
        }
    }

    /// True for less than the least, or more than the greatest, of what it was chosen from.
    fn is_past_the_end(&self, own: &Expression, sign: Sign, other: &Expression) -> bool {
        let Ok(Some(among)) = Among::read(other, self.from) else {
            return false;
        };
        let of_it = own.path().is_some_and(|path| path == among.place());
        match among.of {
            Measure::End {
                end: End::Least,
                margin: None,
                ..
            } => of_it && sign == Sign::Less,
            Measure::End { end: End::Greatest, .. } => of_it && sign == Sign::More,
            _ => false,
        }
    }

    /// An argument, or the count of a list of them.
    fn place(&self, of: &Expression) -> Option<Path> {
        let parts = Parts {
            source: "",
            fields: self.fields,
            from: self.from,
        };
        if let Ok(Some(among)) = Among::read(of, self.from) {
            let counts = among.of == Measure::Count;
            let last = if counts { AT_LEAST_ONE } else { "" };
            return Some(vec![format!("\0{}", among.key()), last.into()]);
        }
        match parts.counts(of) {
            Some(mut path) => {
                path.push(COUNT.into());
                Some(path)
            }
            None => of.path().filter(|path| !path.is_empty()),
        }
    }

    /// Why all of these cannot hold at once.
    fn fault<'a>(&self, way: &Way<'a>) -> Option<(&'a Expression, Option<&'a Expression>)> {
        let mut by_path: BTreeMap<&Path, Vec<(Sign, &Value, &'a Expression)>> = BTreeMap::new();
        let mut there: BTreeMap<&Path, (bool, &'a Expression)> = BTreeMap::new();
        for must in way {
            match must {
                Must::Never(part) => return Some((part, None)),
                Must::Unknown => {}
                Must::Has(path, holds, part) => {
                    let required = at(self.fields, path).is_some_and(|(_, required)| required);
                    if required && !holds {
                        return Some((part, None));
                    }
                    match there.get(path) {
                        Some((other, against)) if other != holds => return Some((part, Some(against))),
                        _ => {
                            there.insert(path, (*holds, part));
                        }
                    }
                }
                Must::Compare(path, sign, value, part) => {
                    if let Some((false, against)) = there.get(path) {
                        return Some((part, Some(against)));
                    }
                    by_path.entry(path).or_default().push((*sign, value, part));
                }
            }
        }
        by_path.into_iter().find_map(|(path, all)| self.clash(path, &all))
    }

    fn clash<'a>(
        &self,
        path: &Path,
        all: &[(Sign, &Value, &'a Expression)],
    ) -> Option<(&'a Expression, Option<&'a Expression>)> {
        let least = match path.last().map(String::as_str) {
            Some(COUNT) => Some(0),
            Some(AT_LEAST_ONE) => Some(1),
            _ => None,
        };
        let least = least.map(|least| Value::Number(Decimal::from(least)));
        let whole = least.is_some() || matches!(at(self.fields, path), Some((Shape::Whole, _)));
        for (place, (sign, value, part)) in all.iter().enumerate() {
            if let Some(least) = &least
                && !meet((*sign, value), (Sign::AtLeast, least), true)
            {
                return Some((part, None));
            }
            for (other, against, with) in all.iter().take(place) {
                if !meet((*sign, value), (*other, against), whole) {
                    return Some((part, Some(with)));
                }
            }
        }
        None
    }
}

/// The value that a part is.
fn value(of: &Expression) -> Option<Value> {
    match &of.node {
        Node::Text(text) if !text.contains('\\') => Some(Value::Text(text.clone())),
        Node::Flag(flag) => Some(Value::Flag(*flag)),
        _ => literal(of).map(Value::Number),
    }
}

/// True when a value may stand to another one so.
fn agrees(value: &Value, sign: Sign, to: &Value) -> bool {
    match (value, to) {
        (Value::Number(value), Value::Number(to)) => match sign {
            Sign::Less => value < to,
            Sign::AtMost => value <= to,
            Sign::More => value > to,
            Sign::AtLeast => value >= to,
            Sign::Equal => value == to,
            Sign::Other => value != to,
        },
        _ => match sign {
            Sign::Equal => value == to,
            Sign::Other => value != to,
            _ => true,
        },
    }
}

/// True when one value may stand so to both.
fn meet((sign, value): (Sign, &Value), (other, against): (Sign, &Value), whole: bool) -> bool {
    if sign == Sign::Equal {
        return agrees(value, other, against);
    }
    if other == Sign::Equal {
        return agrees(against, sign, value);
    }
    if let (Value::Flag(one), Value::Flag(two)) = (value, against) {
        // What is neither the one nor the other is nothing.
        return !(sign == Sign::Other && other == Sign::Other) || one == two;
    }
    let (Value::Number(one), Value::Number(two)) = (value, against) else {
        return true;
    };
    let (high, low) = match (is_upper(sign), is_upper(other)) {
        (Some(true), Some(false)) => ((sign, one), (other, two)),
        (Some(false), Some(true)) => ((other, two), (sign, one)),
        _ => return true,
    };
    let strict = high.0 == Sign::Less || low.0 == Sign::More;
    if whole && high.0 == Sign::Less && low.0 == Sign::More {
        // Between two whole numbers that follow each other there is none.
        let next = low.1.plus(Decimal::from(1));
        return next.is_none_or(|next| next < *high.1);
    }
    if strict { low.1 < high.1 } else { low.1 <= high.1 }
}

fn is_upper(sign: Sign) -> Option<bool> {
    match sign {
        Sign::Less | Sign::AtMost => Some(true),
        Sign::More | Sign::AtLeast => Some(false),
        Sign::Equal | Sign::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::expression::parse;
    use crate::tool::shape::fields_of;

    #[test]
    fn p4_what_can_never_hold_is_found_and_nothing_else() {
        let fields = fields_of(&json!({"type": "object", "required": ["a", "n", "f"], "properties": {
            "a": {"type": "number"}, "n": {"type": "integer"}, "f": {"type": "boolean"}, "t": {"type": "string"},
            "l": {"type": "array", "items": {"type": "string"}}}}))
        .unwrap();
        for (text, never) in [
            ("args.a <= 200 && args.a > 300", true),
            ("args.a <= 200 && args.a > 199.99", false),
            ("args.a < 200 && 200 < args.a", true),
            ("args.a <= 200 && 200 <= args.a", false),
            ("args.a == 5 && args.a == 6", true),
            ("args.a == 5 && args.a != 5.0", true),
            ("args.n > 5 && args.n < 6", true),
            ("args.a > 5 && args.a < 6", false),
            ("args.n > 5 && args.n < 7", false),
            ("false", true),
            ("args.a > 1 && false", true),
            ("false || args.a > 1", false),
            ("!(args.a > 1 || true)", true),
            ("args.f && !args.f", true),
            ("args.f || !args.f", false),
            ("args.f == true && args.f == false", true),
            ("args.t == \"x\" && args.t == \"y\"", true),
            ("args.t == \"x\" || args.t == \"y\"", false),
            ("args has t && !(args has t)", true),
            ("!(args has a)", true),
            ("!(args has t) && args.t == \"x\"", true),
            ("args.l.count < 0", true),
            ("args.l.count <= 0", false),
            ("args.l.count == -1", true),
            ("1 > 2", true),
            ("(args.a < 1 || args.a > 9) && args.a == 5", true),
            ("(args.a < 1 || args.a > 9) && args.a == 10", false),
            ("args.l.contains(\"x\") && args.a < 1", false),
        ] {
            let of = parse(text).unwrap();
            assert_eq!(
                contradiction(&of, &fields, &crate::tool::among::FROM_NOWHERE).is_some(),
                never,
                "{text}"
            );
        }
    }
}
