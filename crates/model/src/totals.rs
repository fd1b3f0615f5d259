//! Totals: how much calls of tools may come to in all, by a rule.
//!
//! Promises: P3 (a total only takes away), P4 (an amount that cannot be added for sure is refused). Trust: totals come from
//! rule files of people; the amounts from the agent. Not here: who counts, and how long that is kept (`mediator`).

use std::fmt;

use crate::decimal::Decimal;
use crate::limits::size;
use crate::request::{Argument, Request};

/// What calls may come to in all. What is absent is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Totals {
    /// Most calls.
    pub calls: Option<u64>,
    /// Most of what stands in arguments, added up.
    pub sums: Vec<Sum>,
    /// Most bytes of results.
    pub bytes: Option<u64>,
    /// Most tokens that models write for a server.
    pub tokens: Option<u64>,
    /// Most seconds that calls take, added up.
    pub seconds: Option<u64>,
    /// In which time.
    pub span: Span,
}

/// Over which time a total is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// In all, over every task of the context, or of the mandate.
    #[default]
    Ever,
    /// By one task and what runs for it.
    Task,
    /// Each day by itself, from midnight UTC.
    Day,
}

/// The most that one argument may come to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sum {
    /// The argument, with dots between the names of fields within fields.
    pub argument: String,
    /// The most.
    pub most: Decimal,
    /// The unit, such as a currency; none for plain numbers.
    pub unit: Option<String>,
    /// The argument that names the unit of a call, where there is one: another unit than this one's is refused.
    pub unit_argument: Option<String>,
    /// Most digits behind the point: more than the unit has is refused.
    pub places: Option<u32>,
}

/// Says why the amounts of a call cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Uncounted {
    /// The argument at fault.
    pub argument: String,
    text: String,
}

impl Totals {
    /// True when nothing is limited.
    pub fn is_none(&self) -> bool {
        let Self { span: _, .. } = self;
        *self
            == Self {
                span: self.span,
                ..Self::default()
            }
    }

    /// What a call comes to, for each sum in order.
    pub fn amounts(&self, request: &Request) -> Result<Vec<Decimal>, Uncounted> {
        self.sums.iter().map(|sum| sum.amount(request)).collect()
    }
}

/// The value of an argument, by names with dots between them.
pub fn argument_at<'a>(request: &'a Request, path: &str) -> Option<&'a Argument> {
    let mut names = path.split('.');
    let mut here = request.args()?.get(names.next()?)?;
    for name in names {
        match here {
            Argument::Fields(fields) => here = fields.get(name)?,
            _ => return None,
        }
    }
    Some(here)
}

impl Sum {
    /// What a call comes to. Nothing that is negative or zero, no text, no more digits than the unit has, no other unit.
    fn amount(&self, request: &Request) -> Result<Decimal, Uncounted> {
        let argument = &self.argument;
        let wrong = |argument: &str, text: String| {
            Err(Uncounted {
                argument: argument.into(),
                text,
            })
        };
        let amount = match argument_at(request, argument) {
            Some(Argument::Whole(whole)) => Decimal::from(*whole),
            Some(Argument::Number(number)) => *number,
            Some(_) => return wrong(argument, format!("`{argument}` is no number")),
            None => return wrong(argument, format!("`{argument}` is missing")),
        };
        if amount.is_negative() || amount.is_zero() {
            return wrong(
                argument,
                format!("`{argument}` is {amount}: only more than nothing counts"),
            );
        }
        if let Some(places) = self.places.filter(|places| amount.places() > *places) {
            let text = format!("`{argument}` is {amount}: more than {places} places behind the point");
            return wrong(argument, text);
        }
        if let (Some(unit), Some(named)) = (&self.unit, &self.unit_argument) {
            match argument_at(request, named) {
                Some(Argument::Text(own)) if own == unit => {}
                _ => return wrong(named, format!("`{named}` is not `{unit}`")),
            }
        }
        Ok(amount)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.as_ref().map_or_else(String::new, |unit| format!(" {unit}"));
        write!(f, "{}{unit} of `{}`", self.most, self.argument)
    }
}

impl fmt::Display for Totals {
    /// In plain words: `at most 200 EUR of `amount` and 1 call in all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.sums.iter().map(ToString::to_string).collect();
        parts.extend(self.calls.map(|calls| match calls {
            1 => "1 call".to_owned(),
            many => format!("{many} calls"),
        }));
        parts.extend(self.bytes.map(|bytes| format!("{} of results", size(bytes))));
        parts.extend(self.tokens.map(|tokens| format!("{tokens} tokens")));
        parts.extend(self.seconds.map(|seconds| format!("{seconds} s")));
        let span = match self.span {
            Span::Ever => "in all",
            Span::Task => "in one task",
            Span::Day => "a day",
        };
        write!(f, "at most {} {span}", parts.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::act::Verb;
    use crate::id::TaskId;
    use crate::request::{Resource, argument};
    use crate::tool::ToolName;

    fn call(fields: &[(&str, Argument)]) -> Request {
        let tool = Resource::Tool(ToolName::parse("bank/pay").unwrap());
        let mut request = Request::new(TaskId([1; 8]), Verb::Call, tool);
        let fields: BTreeMap<String, Argument> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        request
            .arguments
            .insert(argument::ARGS.into(), Argument::Fields(fields));
        request
    }

    #[test]
    fn p4_only_what_can_be_added_for_sure_is_counted() {
        let number = |text: &str| Argument::Number(Decimal::parse(text).unwrap());
        let totals = Totals {
            sums: vec![Sum {
                argument: "amount".into(),
                most: Decimal::from(200),
                unit: Some("EUR".into()),
                unit_argument: Some("currency".into()),
                places: Some(2),
            }],
            calls: Some(1),
            ..Totals::default()
        };
        assert_eq!(totals.to_string(), "at most 200 EUR of `amount` and 1 call in all");
        let eur = ("currency", Argument::Text("EUR".into()));
        for (value, want) in [
            (Argument::Whole(150), Some("150")),
            (number("19.99"), Some("19.99")),
            (number("199.999"), None),
            (Argument::Whole(0), None),
            (Argument::Whole(-5), None),
            (Argument::Text("150".into()), None),
            (Argument::Null, None),
            (Argument::List(vec![Argument::Whole(1)]), None),
        ] {
            let amounts = totals.amounts(&call(&[("amount", value.clone()), eur.clone()]));
            let text = amounts
                .as_ref()
                .ok()
                .and_then(|all| all.first())
                .map(ToString::to_string);
            assert_eq!(text.as_deref(), want, "{value}");
        }
        assert_eq!(totals.amounts(&call(&[eur])).unwrap_err().argument, "amount");
        for other in [Some("USD"), Some("eur"), None] {
            let unit = other.map(|text| ("currency", Argument::Text(text.into())));
            let fields: Vec<_> = [("amount", Argument::Whole(1))].into_iter().chain(unit).collect();
            assert_eq!(
                totals.amounts(&call(&fields)).unwrap_err().argument,
                "currency",
                "{other:?}"
            );
        }
    }
}
