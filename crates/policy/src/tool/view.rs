//! The arguments of one call as a condition sees them: typed by the tool's schema, and only what the condition looks at.
//!
//! Promises: P4 (a value of another kind, one that is missing or that Cedar cannot hold exactly, is a misfit, never left
//! out), P5 (`200`, `200.0` and `2e2` are one number; `"200"` is none). Trust: the arguments are the agent's.
//! Not here: the types (`shape`), what a misfit means for the answer (`judging`).

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_model::{Argument, Decimal};
use cedar_policy::{EntityUid, RestrictedExpression};

use super::emit::{Path, Uses, in_cedar, pointer};
use super::shape::{Fields, Kind, Shape};

/// An argument that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Its name, with dots between names within each other.
    pub argument: String,
    /// What is wrong with it: for the person.
    pub text: String,
}

impl Misfit {
    pub fn of(path: &[String], says: &str) -> Self {
        let argument = path.join(".");
        Self {
            text: format!("`{argument}` {says}"),
            argument,
        }
    }
}

/// Finds what an id names.
pub(crate) type Known<'a> = &'a dyn Fn(Kind, &str) -> Option<EntityUid>;

/// What a condition sees.
#[derive(Debug)]
pub(crate) struct View {
    pub pairs: Vec<(String, RestrictedExpression)>,
    /// What ids among the arguments name.
    pub named: BTreeSet<(Kind, String)>,
}

/// Makes what a condition sees of these arguments.
pub(crate) fn view(
    args: &BTreeMap<String, Argument>,
    fields: &Fields,
    uses: &Uses,
    known: Known<'_>,
) -> Result<View, Misfit> {
    let mut viewer = Viewer {
        uses,
        known,
        named: BTreeSet::new(),
    };
    let own = viewer.fields(args, fields, &mut Vec::new(), false)?;
    let mut pairs = vec![("args".to_owned(), own)];
    if !uses.counted.is_empty() {
        let mut counts = Vec::new();
        for path in &uses.counted {
            let count = count(args, path)?;
            counts.push((pointer(path), RestrictedExpression::new_long(count)));
        }
        let counts = RestrictedExpression::new_record(counts).map_err(|_| Misfit::of(&[], "cannot be counted"))?;
        pairs.push(("counts".into(), counts));
    }
    Ok(View {
        pairs,
        named: viewer.named,
    })
}

/// How many entries a list has; none where there is no list.
fn count(args: &BTreeMap<String, Argument>, path: &Path) -> Result<i64, Misfit> {
    match value_at(args, path) {
        None | Some(Argument::Null) => Ok(0),
        Some(Argument::List(all)) => i64::try_from(all.len()).map_err(|_| Misfit::of(path, "has too many entries")),
        Some(_) => Err(Misfit::of(path, "is no list")),
    }
}

/// The value at a place.
pub(crate) fn value_at<'a>(args: &'a BTreeMap<String, Argument>, path: &[String]) -> Option<&'a Argument> {
    let (first, rest) = path.split_first()?;
    let value = args.get(first)?;
    match (rest.is_empty(), value) {
        (true, value) => Some(value),
        (false, Argument::Fields(inner)) => value_at(inner, rest),
        (false, _) => None,
    }
}

struct Viewer<'a> {
    uses: &'a Uses,
    known: Known<'a>,
    named: BTreeSet<(Kind, String)>,
}

impl Viewer<'_> {
    /// Whether all of what stands at a place is looked at, or only something in it; none for nothing.
    fn wanted(&self, path: &[String]) -> Option<bool> {
        let mut looked = self.uses.named.iter().chain(&self.uses.guarded).peekable();
        let whole = looked.clone().any(|own| path.starts_with(own));
        let inside = looked.any(|own| own.starts_with(path));
        (whole || inside).then_some(whole)
    }

    fn fields(
        &mut self,
        args: &BTreeMap<String, Argument>,
        fields: &Fields,
        path: &mut Path,
        whole: bool,
    ) -> Result<RestrictedExpression, Misfit> {
        let mut record = Vec::new();
        for (name, field) in fields {
            path.push(name.clone());
            let wanted = if whole { Some(true) } else { self.wanted(path) };
            if let (Some(whole), false) = (wanted, matches!(field.shape, Shape::Open(_))) {
                match args.get(name) {
                    Some(Argument::Null) if field.required => return Err(Misfit::of(path, "is null")),
                    None if field.required => return Err(Misfit::of(path, "is missing")),
                    None | Some(Argument::Null) => {}
                    Some(value) => record.push((name.clone(), self.value(value, &field.shape, path, whole)?)),
                }
            }
            path.pop();
        }
        RestrictedExpression::new_record(record).map_err(|_| Misfit::of(path, "stands twice"))
    }

    fn value(
        &mut self,
        value: &Argument,
        shape: &Shape,
        path: &mut Path,
        whole: bool,
    ) -> Result<RestrictedExpression, Misfit> {
        let other = |path: &Path| Err(Misfit::of(path, &format!("is {}, not {}", kind(value), shape.told())));
        Ok(match (shape, value) {
            (Shape::Text(None), Argument::Text(text)) => RestrictedExpression::new_string(text.clone()),
            (Shape::Text(Some(known)), Argument::Text(text)) if known.contains(text) => {
                RestrictedExpression::new_string(text.clone())
            }
            (Shape::Whole, Argument::Whole(number)) => RestrictedExpression::new_long(*number),
            (Shape::Whole, Argument::Number(number)) => match number.to_string().parse::<i64>() {
                Ok(whole) => RestrictedExpression::new_long(whole),
                Err(_) => return other(path),
            },
            (Shape::Number, Argument::Whole(number)) => decimal(Decimal::from(*number), path)?,
            (Shape::Number, Argument::Number(number)) => decimal(*number, path)?,
            (Shape::Flag, Argument::Flag(flag)) => RestrictedExpression::new_bool(*flag),
            (Shape::List(of), Argument::List(all)) => {
                let mut values = Vec::new();
                for value in all {
                    values.push(self.value(value, of, path, true)?);
                }
                RestrictedExpression::new_set(values)
            }
            (Shape::Fields(fields), Argument::Fields(inner)) => self.fields(inner, fields, path, whole)?,
            (Shape::Known(kind), Argument::Text(id)) => self.id(*kind, id, path)?,
            (Shape::Known(kind), Argument::Whole(id)) => self.id(*kind, &id.to_string(), path)?,
            _ => return other(path),
        })
    }

    fn id(&mut self, kind: Kind, id: &str, path: &Path) -> Result<RestrictedExpression, Misfit> {
        match (self.known)(kind, id) {
            Some(uid) => {
                self.named.insert((kind, id.to_owned()));
                Ok(RestrictedExpression::new_entity_uid(uid))
            }
            None => Err(Misfit::of(
                path,
                &format!("names no {} that relations know", kind.as_str()),
            )),
        }
    }
}

fn decimal(number: Decimal, path: &Path) -> Result<RestrictedExpression, Misfit> {
    match in_cedar(number) {
        Some(text) => Ok(RestrictedExpression::new_decimal(text)),
        None => Err(Misfit::of(
            path,
            "is a number that cannot be compared exactly: four places behind the point, and 15 digits before it",
        )),
    }
}

/// The kind of a value in words.
pub(crate) fn kind(value: &Argument) -> &'static str {
    match value {
        Argument::Text(_) => "a text",
        Argument::Whole(_) | Argument::Number(_) => "a number",
        Argument::Flag(_) => "true or false",
        Argument::Address(_) => "an address",
        Argument::Null => "null",
        Argument::List(_) => "a list",
        Argument::Fields(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use cedar_policy::{Context, Entities, EvalResult, Expression, Request};
    use proptest::prelude::*;

    use super::*;
    use crate::cedar::quoted;
    use crate::tool::emit::{Around, emit};
    use crate::tool::expression::parse;
    use crate::tool::shape::Field;

    /// A kind of argument with a value of it: the shape, the value, and how an expression writes it.
    type Made = (Shape, Argument, String);

    fn made() -> impl Strategy<Value = Made> {
        let text = "[a-c\"\\\\\n\u{e4}\u{0} ]{0,6}".prop_map(|text| {
            let literal = quoted(&text);
            (Shape::Text(None), Argument::Text(text), literal)
        });
        let whole = (-1000i64..1000).prop_map(|number| (Shape::Whole, Argument::Whole(number), number.to_string()));
        let number = (-100_000i64..100_000, 0u32..5).prop_map(|(number, places)| {
            let decimal = Decimal::parse(&format!("{number}e-{places}")).unwrap();
            (Shape::Number, Argument::Number(decimal), format!("{number}e-{places}"))
        });
        let as_whole =
            (-1000i64..1000).prop_map(|number| (Shape::Number, Argument::Whole(number), format!("{number}.0")));
        let flag = any::<bool>().prop_map(|flag| (Shape::Flag, Argument::Flag(flag), flag.to_string()));
        let leaf = prop_oneof![text, whole, number, as_whole, flag];
        let list = proptest::collection::vec(-9i64..9, 1..4).prop_map(|all| {
            let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
            let values = all.into_iter().map(Argument::Whole).collect();
            (
                Shape::List(Box::new(Shape::Whole)),
                Argument::List(values),
                format!("[{}]", texts.join(", ")),
            )
        });
        prop_oneof![5 => leaf, 1 => list]
    }

    fn evaluated(text: &str, fields: &Fields, args: &BTreeMap<String, Argument>) -> Result<Option<bool>, Misfit> {
        let emitted = emit(&parse(text).unwrap(), text, fields, Around::default()).unwrap();
        let seen = view(args, fields, &emitted.uses, &|_, _| None)?;
        let uid = |text: &str| text.parse().unwrap();
        let context = Context::from_pairs(seen.pairs).unwrap();
        let request = Request::new(
            uid("Task::\"t\""),
            uid("Action::\"call\""),
            uid("Tool::\"a/x\""),
            context,
            None,
        )
        .unwrap();
        let expression = Expression::from_str(&emitted.text).unwrap();
        Ok(
            match cedar_policy::eval_expression(&request, &Entities::empty(), &expression) {
                Ok(EvalResult::Bool(holds)) => Some(holds),
                _ => None,
            },
        )
    }

    proptest! {
        #[test]
        fn p5_what_a_condition_sees_is_what_the_call_says(
            all in proptest::collection::vec((made(), any::<bool>(), any::<bool>()), 1..6),
            inner in made(),
        ) {
            let (mut fields, mut args) = (Fields::new(), BTreeMap::new());
            for (number, ((shape, value, _), required, there)) in all.iter().enumerate() {
                let name = format!("a{number}");
                fields.insert(name.clone(), Field { shape: shape.clone(), required: *required });
                if *required || *there {
                    args.insert(name, value.clone());
                }
            }
            let (shape, value, literal) = inner;
            let of = |shape| Fields::from([("in".to_owned(), Field { shape, required: true })]);
            fields.insert("o".into(), Field { shape: Shape::Fields(of(shape)), required: true });
            args.insert("o".into(), Argument::Fields([("in".to_owned(), value)].into()));
            let text = format!("args.o[\"in\"] == {literal}");
            prop_assert_eq!(evaluated(&text, &fields, &args), Ok(Some(true)), "{}", text);
            for (number, ((_, _, literal), required, there)) in all.iter().enumerate() {
                let name = format!("a{number}");
                let is_there = *required || *there;
                let has = format!("args has {name}");
                prop_assert_eq!(evaluated(&has, &fields, &args), Ok(Some(is_there)), "{}", has);
                let same = format!("args has {name} && args.{name} == {literal}");
                prop_assert_eq!(evaluated(&same, &fields, &args), Ok(Some(is_there)), "{}", same);
                let other = format!("args has {name} && args.{name} != {literal}");
                prop_assert_eq!(evaluated(&other, &fields, &args), Ok(Some(false)), "{}", other);
            }
        }

        #[test]
        fn p4_a_value_of_another_kind_is_a_misfit(own in made(), other in made()) {
            let number = |shape: &Shape| matches!(shape, Shape::Whole | Shape::Number);
            prop_assume!(own.0 != other.0 && !(number(&own.0) && number(&other.0)));
            let fields = Fields::from([("a".to_owned(), Field { shape: own.0, required: true })]);
            let args = BTreeMap::from([("a".to_owned(), other.1)]);
            let text = format!("args.a == {}", own.2);
            prop_assert!(evaluated(&text, &fields, &args).is_err(), "{}", text);
        }
    }

    #[test]
    fn p5_a_number_is_one_however_it_is_written() {
        let fields = Fields::from([(
            "a".to_owned(),
            Field {
                shape: Shape::Number,
                required: true,
            },
        )]);
        for (text, want) in [
            ("200", Some(true)),
            ("200.0", Some(true)),
            ("2e2", Some(true)),
            ("199.9999", Some(true)),
            ("200.0001", Some(false)),
            ("-5", Some(true)),
            ("199.99999", None),
            ("922337203685477.5807", Some(false)),
            ("922337203685477.5808", None),
            ("1e20", None),
        ] {
            let args = BTreeMap::from([("a".to_owned(), Argument::Number(Decimal::parse(text).unwrap()))]);
            let found = evaluated("args.a <= 200", &fields, &args);
            assert_eq!(found.ok().flatten(), want, "{text}");
        }
    }
}
