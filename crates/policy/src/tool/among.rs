//! What a condition asks of the list that an argument was chosen from: its least, its greatest, how many there were.
//!
//! Answers: `among.flight.price.min`, `among.flight.count`, `among.flight.price.min.plus("10 %")`.
//! Promises: P4 (an entry without the number, with another kind of it or in another currency: the rule does not admit the
//! call), P5 (computed exactly, and rounded down to what Cedar holds only where that changes no comparison), P14.
//! Trust: what was chosen from is a server's answer, put together by the tool gate; rules are people's.
//! Not here: whether the argument was chosen from that list at all (`given`), Cedar (`emit`).

use std::collections::BTreeMap;
use std::fmt;

use bailiwick_model::{AnswerPart, Argument, Decimal};
use cedar_policy::RestrictedExpression;

use super::emit::{Path, in_cedar, pointer};
use super::expression::{Expression, Node};
use super::lexer::Wrong;
use super::shape::{Fields, Shape, at};
use super::view::{Misfit, kind, value_at};
use crate::diagnostic::suggest;

/// Places behind the point of a decimal of Cedar's.
const PLACES: u32 = 4;

/// The field that says in which currency the numbers beside it are.
const CURRENCY: &str = "currency";

/// Where arguments come from, by their names.
pub(crate) type CameFrom = BTreeMap<Path, AnswerPart>;

/// No argument comes from anywhere.
pub(crate) static FROM_NOWHERE: CameFrom = CameFrom::new();

/// Something asked of the list that an argument was chosen from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Among {
    /// The argument.
    pub argument: Path,
    pub of: Measure,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// How many entries there are.
    Count,
    /// The least or greatest number at a place in its entries.
    End {
        field: Path,
        end: End,
        margin: Option<Margin>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Least,
    Greatest,
}

/// What is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Margin {
    /// So many hundredths of it.
    Percent(Decimal),
    Amount(Decimal),
}

impl Among {
    /// Reads what an expression asks of a list; nothing where it asks something else.
    pub fn read(of: &Expression, from: &CameFrom) -> Result<Option<Self>, Wrong> {
        if let Node::Method(inner, name, with) = &of.node {
            let Some(mut own) = inner
                .behind("among")
                .map(|_| Self::read(inner, from))
                .transpose()?
                .flatten()
            else {
                return Ok(None);
            };
            return match (&mut own.of, name.as_str()) {
                (Measure::End { margin, .. }, "plus") => {
                    *margin = Some(Margin::read(with, of)?);
                    Ok(Some(own))
                }
                _ => {
                    let message = format!("there is no `{name}` of that");
                    let hint = "what can be added is a share or an amount: `among.x.price.min.plus(\"10 %\")`";
                    Err(Wrong::at(of.span.clone(), message).hint(hint))
                }
            };
        }
        let Some(names) = of.behind("among") else {
            return Ok(None);
        };
        let Some(argument) = from.keys().find(|own| names.starts_with(own)) else {
            let told = names.first().map_or_else(|| "x".into(), Clone::clone);
            let known: Vec<String> = from.keys().map(|path| path.join(".")).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => format!("add `from = {{ {told} = \"air/search#/flights/*\" }}`"),
                false => suggest(&told, &known),
            };
            let message = format!("the rule does not say from where `{told}` comes");
            return Err(Wrong::at(of.span.clone(), message).hint(hint));
        };
        let rest = names.get(argument.len()..).unwrap_or_default();
        let of = match rest.split_last() {
            Some((last, [])) if last == "count" => Measure::Count,
            Some((last, field @ [_, ..])) if last == "min" || last == "max" => Measure::End {
                field: field.to_vec(),
                end: if last == "min" { End::Least } else { End::Greatest },
                margin: None,
            },
            _ => {
                let message = format!("`among.{}` is a list", names.join("."));
                let hint = "ask for `.count`, or for the `.min` or `.max` of a number in its entries";
                return Err(Wrong::at(of.span.clone(), message).hint(hint));
            }
        };
        let argument = argument.clone();
        Ok(Some(Self { argument, of }))
    }

    /// Its name in what Cedar is handed: `/flight/price min + 10 %`.
    pub fn key(&self) -> String {
        let argument = pointer(&self.argument);
        match &self.of {
            Measure::Count => format!("{argument} count"),
            Measure::End { field, end, margin } => {
                let margin = margin.map_or_else(String::new, |margin| format!(" + {margin}"));
                format!("{argument}{} {end}{margin}", pointer(field))
            }
        }
    }

    /// The argument and the place in it that is compared.
    pub fn place(&self) -> Path {
        match &self.of {
            Measure::Count => self.argument.clone(),
            Measure::End { field, .. } => self.argument.iter().chain(field).cloned().collect(),
        }
    }

    /// True for a computed bound.
    pub fn is_bound(&self) -> bool {
        matches!(&self.of, Measure::End { margin: Some(_), .. })
    }

    /// True where it is a whole number; false for a decimal. None where the place holds no number.
    pub fn is_whole(&self, fields: &Fields) -> Option<bool> {
        if self.of == Measure::Count {
            return Some(true);
        }
        match at(fields, &self.place())?.0 {
            Shape::Whole => Some(true),
            Shape::Number => Some(false),
            _ => None,
        }
    }

    /// Its type in Cedar's words.
    pub fn in_cedar(&self, fields: &Fields) -> &'static str {
        match self.is_whole(fields) {
            Some(true) => "Long",
            _ => "__cedar::decimal",
        }
    }

    /// Where the currency of the number stands, below the argument: beside it, or further out.
    pub fn currency(&self, fields: &Fields) -> Option<Path> {
        let Measure::End { field, .. } = &self.of else {
            return None;
        };
        (0..field.len()).rev().find_map(|depth| {
            let mut beside = field.get(..depth)?.to_vec();
            beside.push(CURRENCY.into());
            let whole: Path = self.argument.iter().chain(&beside).cloned().collect();
            matches!(at(fields, &whole), Some((Shape::Text(_), _))).then_some(beside)
        })
    }

    /// The places in entries that it looks at.
    pub fn looks_at(&self, fields: &Fields) -> Vec<Path> {
        match &self.of {
            Measure::Count => Vec::new(),
            Measure::End { field, .. } => std::iter::once(field.clone()).chain(self.currency(fields)).collect(),
        }
    }

    /// What it is for a call with these arguments, chosen from these entries.
    pub fn measured(
        &self,
        fields: &Fields,
        args: &BTreeMap<String, Argument>,
        entries: &[Argument],
    ) -> Result<Decimal, Misfit> {
        let Measure::End { field, end, margin } = &self.of else {
            let count = i64::try_from(entries.len()).ok().map(Decimal::from);
            return count.ok_or_else(|| Misfit::of(&self.argument, "was chosen from too many"));
        };
        let place = self.place();
        let fault = |says: &str| Misfit::of(&place, says);
        let whole = self.is_whole(fields).ok_or_else(|| fault("is no number"))?;
        let inside = |entry: &Argument, path: &Path| match entry {
            Argument::Fields(inner) => value_at(inner, path).cloned(),
            _ => None,
        };
        let mut numbers = Vec::with_capacity(entries.len());
        for entry in entries {
            let number = match inside(entry, field) {
                Some(Argument::Whole(number)) => Decimal::from(number),
                Some(Argument::Number(number)) if !whole || number.places() == 0 => number,
                None | Some(Argument::Null) => return Err(fault("is missing in an entry that it was chosen from")),
                Some(other) => {
                    return Err(fault(&format!(
                        "is {} in an entry that it was chosen from",
                        kind(&other)
                    )));
                }
            };
            numbers.push(number);
        }
        if let Some(currency) = self.currency(fields) {
            let own: Path = self.argument.iter().chain(&currency).cloned().collect();
            let own = value_at(args, &own);
            let is_same = |entry: &Argument| inside(entry, &currency).as_ref() == own;
            if !matches!(own, Some(Argument::Text(_))) || !entries.iter().all(is_same) {
                return Err(fault("was chosen from entries in several currencies, or without one"));
            }
        }
        let own = match value_at(args, &place) {
            Some(Argument::Whole(number)) => Some(Decimal::from(*number)),
            Some(Argument::Number(number)) => Some(*number),
            _ => None,
        };
        if !own.is_some_and(|own| numbers.contains(&own)) {
            return Err(fault("is not among those that it was chosen from"));
        }
        let found = match end {
            End::Least => numbers.into_iter().min(),
            End::Greatest => numbers.into_iter().max(),
        };
        let found = found.ok_or_else(|| fault("was chosen from nothing"))?;
        let bound = match margin {
            None => return Ok(found),
            Some(Margin::Percent(many)) => found.hundredths(*many).and_then(|share| found.plus(share)),
            Some(Margin::Amount(amount)) => found.plus(*amount),
        };
        let bound = bound.ok_or_else(|| fault("has a bound that cannot be held exactly"))?;
        // What it is compared with has no more places: `<=` and `>` say the same of both.
        Ok(bound.rounded_down(if whole { 0 } else { PLACES }))
    }

    /// The same for Cedar.
    pub fn handed_in(
        &self,
        fields: &Fields,
        args: &BTreeMap<String, Argument>,
        entries: &[Argument],
    ) -> Result<RestrictedExpression, Misfit> {
        let number = self.measured(fields, args, entries)?;
        let long = || number.to_string().parse().ok().map(RestrictedExpression::new_long);
        let held = match self.is_whole(fields) {
            Some(true) => long(),
            _ => in_cedar(number).map(RestrictedExpression::new_decimal),
        };
        held.ok_or_else(|| Misfit::of(&self.place(), "was chosen from numbers that cannot be compared exactly"))
    }
}

impl Margin {
    fn read(with: &[Expression], of: &Expression) -> Result<Self, Wrong> {
        let read = match with {
            [one] => match &one.node {
                Node::Text(text) => {
                    let percent = text
                        .strip_suffix('%')
                        .and_then(|rest| Decimal::parse(rest.trim_end()).ok());
                    percent.map(Self::Percent)
                }
                _ => super::parts::literal(one).map(Self::Amount),
            },
            _ => None,
        };
        let is_more = |margin: &Self| {
            let (Self::Percent(own) | Self::Amount(own)) = margin;
            !own.is_negative() && !own.is_zero()
        };
        read.filter(is_more).ok_or_else(|| {
            let hint = "write a share, `plus(\"10 %\")`, or an amount, `plus(20)`, more than nothing";
            Wrong::at(of.span.clone(), "this is nothing that can be added").hint(hint)
        })
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(many) => write!(f, "{many} %"),
            Self::Amount(amount) => write!(f, "{amount}"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Least => "min",
            Self::Greatest => "max",
        })
    }
}

impl fmt::Display for Among {
    /// In plain words: ``the least `flight.price` plus 10 %``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place().join(".");
        match &self.of {
            Measure::Count => write!(f, "how many `{place}` was chosen from"),
            Measure::End { end, margin, .. } => {
                let end = if *end == End::Least { "least" } else { "greatest" };
                write!(f, "the {end} `{place}` that it was chosen from")?;
                margin.map_or(Ok(()), |margin| write!(f, ", plus {margin},"))
            }
        }
    }
}
