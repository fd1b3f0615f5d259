//! The condition of a rule: as it was written, and as Cedar evaluates it for one tool.
//!
//! Promises: P4 (what does not fit the tool's arguments, or can never hold, is an error at its place).
//! Not here: reading rule files (`written`), evaluation (`judging`).

use std::collections::BTreeSet;

use bailiwick_model::ToolName;

use super::among::Among;
use super::check::check;
use super::emit::{Around, Uses, emit};
use super::expression::{Expression, Node, parse};
use super::hold::contradiction;
use super::lexer::Wrong;
use super::shape::Fields;

/// A condition as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct When {
    pub text: String,
    expression: Expression,
}

/// A condition in Cedar's words, for the arguments of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// The whole.
    pub cedar: String,
    /// What must hold all together, one by one: to say which does not.
    pub parts: Vec<Part>,
    pub uses: Uses,
}

/// One of several things that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub cedar: String,
    /// As it was written.
    pub text: String,
    /// The arguments that it speaks of.
    pub names: BTreeSet<String>,
    /// What it asks of the lists that they were chosen from.
    pub among: BTreeSet<Among>,
}

impl When {
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        Ok(Self {
            text: text.into(),
            expression: parse(text)?,
        })
    }

    /// True where one of the things that must all hold is that an argument is this one value: `args.to == "x"`.
    pub fn pins(&self, path: &[String]) -> bool {
        let is_path = |of: &Expression| of.path().is_some_and(|own| own == path);
        let is_value = |of: &Expression| match &of.node {
            Node::Flag(_) | Node::Number(_) | Node::Text(_) => true,
            Node::Minus(of) => matches!(of.node, Node::Number(_)),
            _ => false,
        };
        self.expression.conjuncts().into_iter().any(|part| match &part.node {
            Node::Binary("==", left, right) => (is_path(left) && is_value(right)) || (is_value(left) && is_path(right)),
            _ => false,
        })
    }

    /// The condition for a tool with these arguments.
    pub fn compile(&self, tool: &ToolName, fields: &Fields, around: Around<'_>) -> Result<Compiled, Wrong> {
        let whole = emit(&self.expression, &self.text, fields, around)?;
        check(&whole, tool, fields)?;
        if let Some((part, against)) = contradiction(&self.expression, fields, around.from) {
            let word = |of: &Expression| self.text.get(of.span.clone()).unwrap_or("").to_owned();
            let message = match against {
                Some(against) => format!("`{}` can never hold beside `{}`", word(part), word(against)),
                None => format!("`{}` can never hold", word(part)),
            };
            let hint = "correct it, or take the rule out: a rule that never holds grants nothing";
            return Err(Wrong::at(part.span.clone(), message).hint(hint));
        }
        let mut parts = Vec::new();
        for conjunct in self.expression.conjuncts() {
            let own = emit(conjunct, &self.text, fields, around)?;
            let paths = own.uses.named.iter().chain(&own.uses.guarded).chain(&own.uses.counted);
            let paths = paths.chain(own.uses.among.iter().map(|among| &among.argument));
            let names = paths.map(|path| path.join(".")).collect();
            parts.push(Part {
                cedar: own.text,
                text: self.text.get(conjunct.span.clone()).unwrap_or("").to_owned(),
                names,
                among: own.uses.among,
            });
        }
        Ok(Compiled {
            cedar: whole.text,
            parts,
            uses: whole.uses,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::shape::fields_of;

    fn fields() -> Fields {
        fields_of(&json!({
            "type": "object",
            "required": ["recipient", "amount", "urgent", "count", "who"],
            "properties": {
                "recipient": {"type": "string"},
                "amount": {"type": "number"},
                "urgent": {"type": "boolean"},
                "count": {"type": "integer"},
                "note": {"type": "string"},
                "currency": {"enum": ["EUR", "CHF"]},
                "labels": {"type": "array", "items": {"type": "string"}},
                "amounts": {"type": "array", "items": {"type": "number"}},
                "who": {"type": "object", "required": ["iban"], "properties": {"iban": {"type": "string"}, "bic": {"type": "string"}}},
                "either": {"type": ["string", "integer"]},
                "x-y": {"type": "string"},
            },
        }))
        .unwrap()
    }

    fn compile(text: &str) -> Result<Compiled, Wrong> {
        let tool = ToolName::parse("bank/send_payment").unwrap();
        When::parse(text)?.compile(&tool, &fields(), Around::default())
    }

    #[test]
    fn p4_a_condition_is_rewritten_for_cedar() {
        for (text, want) in [
            (
                "args.recipient == \"Babysitter\" && args.amount <= 200",
                "((context.args.recipient == \"Babysitter\") && context.args.amount.lessThanOrEqual(decimal(\"200.0\")))",
            ),
            (
                "199.99 > args.amount",
                "decimal(\"199.99\").greaterThan(context.args.amount)",
            ),
            ("args.amount == 2e2", "(context.args.amount == decimal(\"200.0\"))"),
            ("args.amount != -0.5", "(context.args.amount != decimal(\"-0.5\"))"),
            ("args.count < 3 + 4", "(context.args.count < (3 + 4))"),
            (
                "[1, 2.5].contains(args.amount)",
                "[decimal(\"1.0\"), decimal(\"2.5\")].contains(context.args.amount)",
            ),
            (
                "args has amounts && args.amounts.containsAll([1])",
                "((context.args has \"amounts\") && context.args.amounts.containsAll([decimal(\"1.0\")]))",
            ),
            ("args.labels.count <= 2", "(context.counts[\"/labels\"] <= 2)"),
            ("args.who.iban like \"CH*\"", "(context.args.who.iban like \"CH*\")"),
            (
                "args has \"x-y\" && args[\"x-y\"] == \"a\"",
                "((context.args has \"x-y\") && (context.args[\"x-y\"] == \"a\"))",
            ),
            (
                "args.amount < decimal(\"5\")",
                "context.args.amount.lessThan(decimal(\"5.0\"))",
            ),
            (
                "!args.urgent || args.amount <= 10",
                "(!(context.args.urgent) || context.args.amount.lessThanOrEqual(decimal(\"10.0\")))",
            ),
            (
                "args.amount <= (if args.urgent then 10 else 20)",
                "context.args.amount.lessThanOrEqual((if context.args.urgent then decimal(\"10.0\") else decimal(\"20.0\")))",
            ),
            ("args.who == {iban: \"x\"}", ""),
        ] {
            match compile(text) {
                Ok(compiled) => assert_eq!(compiled.cedar, want, "{text}"),
                Err(wrong) => assert_eq!(want, "", "{text}: {wrong:?}"),
            }
        }
    }

    #[test]
    fn p4_a_condition_that_does_not_fit_is_an_error_at_its_place() {
        for (text, at, says) in [
            ("args.amuont <= 200", 0, "no argument `amuont`"),
            (
                "args.recipient == \"a\" && args.who.ibn == \"x\"",
                25,
                "no argument `ibn` in `who`",
            ),
            (
                "args.recipient <= 200",
                0,
                "`args.recipient` is a text, `200` is a number",
            ),
            (
                "args.amount <= \"200\"",
                0,
                "`args.amount` is a number, `\"200\"` is a text",
            ),
            ("args.recipient < args.who.iban", 0, "`<` is for numbers"),
            (
                "args.amount <= args.count",
                0,
                "is a number, `args.count` is a whole number",
            ),
            ("args.count <= 2.5", 14, "`2.5` stands where a whole number must"),
            ("args.amount * 2 <= 10", 0, "no arithmetic"),
            ("args.amount <= 0.00001", 15, "cannot be compared"),
            ("args.note == \"x\"", 0, "`note` may be missing"),
            ("args.urgent && args.who.bic == \"x\"", 15, "may be missing"),
            ("args has currency && args.currency == \"Eur\"", 21, "is never `Eur`"),
            (
                "args.either == \"x\"",
                0,
                "cannot be judged: its schema allows more than one type",
            ),
            ("args == 1", 0, "is all arguments"),
            ("context.args.amount <= 200", 0, "says nothing here"),
            ("amount <= 200", 0, "`amount` is not known here"),
            (
                "args.amount <= 200 && args.amount > 300",
                22,
                "can never hold beside `args.amount <= 200`",
            ),
            ("me == me", 0, "nothing here says who people are"),
            ("args.recipient in [\"a\"]", 0, "`in` is for people"),
            ("args.recipient.iban == \"x\"", 0, "has no fields"),
            ("args.labels.count <= \"2\"", 0, "is a whole number"),
            ("args.recipient", 0, "unexpected type"),
            ("args.count", 0, "unexpected type"),
            ("ip(\"1.1.1.1\").isLoopback()", 0, "no function `ip`"),
            ("args has amuont", 0, "no argument `amuont`"),
        ] {
            let wrong = compile(text).map(|compiled| compiled.cedar).unwrap_err();
            assert!(wrong.message.contains(says), "{text}: {wrong:?}");
            assert_eq!(wrong.span.start, at, "{text}: {wrong:?}");
        }
    }

    #[test]
    fn what_a_condition_speaks_of_is_known() {
        let compiled =
            compile("args.amount <= 200 && (args has note && args.note == \"x\") && args.labels.count <= 2").unwrap();
        let named: Vec<String> = compiled.uses.named.iter().map(|path| path.join(".")).collect();
        assert_eq!(named, ["amount", "note"]);
        let texts: Vec<&str> = compiled.parts.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "args.amount <= 200",
                "args has note",
                "args.note == \"x\"",
                "args.labels.count <= 2"
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn p4_compiling_never_panics(text in "(args\\.(amount|labels|who|note|count|x)|args| has | && | \\|\\| |[0-9]{1,3}|\\.[a-z]{1,5}|<=|==|\\(|\\)|\"a\"|!|-){0,12}") {
            let _ = compile(&text);
        }
    }
}
