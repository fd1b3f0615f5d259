//! Writes a `when` as Cedar has it, for the arguments of one tool.
//!
//! Promises: P4 (an argument that there is not, one of another kind than it is compared with, a number that Cedar cannot
//! hold: an error at its place). `args` becomes `context.args`, a number compared with a decimal argument `decimal("…")` and a
//! method of Cedar's, `args.list.count` and `me` what is handed in beside the arguments.
//! Not here: Cedar's own word on the result (`check`), what is handed in (`view`).

use std::collections::BTreeSet;
use std::ops::Range;

use bailiwick_model::Decimal;

use super::among::{Among, CameFrom, FROM_NOWHERE};
use super::expression::{Expression, Node};
use super::lexer::Wrong;
use super::parts::{Of, Parts, attributes, literal};
use super::shape::{Fields, Kind, at, unjudged};
use crate::diagnostic::suggest;

/// A place among the arguments: names within each other.
pub(crate) type Path = Vec<String>;

/// A path as a JSON Pointer (RFC 6901).
pub(crate) fn pointer(path: &[String]) -> String {
    let step = |name: &String| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    path.iter().map(step).collect()
}

/// What an expression looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// Arguments whose values it sees.
    pub named: BTreeSet<Path>,
    /// Arguments of which it asks whether they are there.
    pub guarded: BTreeSet<Path>,
    /// Lists whose entries it counts.
    pub counted: BTreeSet<Path>,
    /// What it asks of the lists that arguments were chosen from.
    pub among: BTreeSet<Among>,
    /// True when it asks who the person is.
    pub me: bool,
    /// True when it asks how old relations are.
    pub age: bool,
    /// People, teams and things that it names, with where.
    pub known: Vec<(Kind, String, Range<usize>)>,
}

impl Uses {
    /// All that either looks at.
    pub fn join(&mut self, other: &Self) {
        self.named.extend(other.named.iter().cloned());
        self.guarded.extend(other.guarded.iter().cloned());
        self.counted.extend(other.counted.iter().cloned());
        self.among.extend(other.among.iter().cloned());
        self.known.extend(other.known.iter().cloned());
        self.me |= other.me;
        self.age |= other.age;
    }
}

/// An expression in Cedar's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Emitted {
    pub text: String,
    /// Which part of the text stands for which part of what was written; outer parts after inner ones.
    pub places: Vec<(Range<usize>, Range<usize>)>,
    pub uses: Uses,
}

impl Emitted {
    /// Where in what was written a place of the text comes from.
    pub fn source_of(&self, at: usize) -> Option<Range<usize>> {
        let holds = |(out, _): &&(Range<usize>, Range<usize>)| out.contains(&at);
        let smallest = self.places.iter().filter(holds).min_by_key(|(out, _)| out.len());
        smallest.map(|(_, source)| source.clone())
    }
}

/// What may be named besides arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    /// True when there are relations.
    pub relations: bool,
    /// What arguments were chosen from.
    pub from: &'a CameFrom,
}

impl Default for Around<'_> {
    fn default() -> Self {
        Self {
            relations: false,
            from: &FROM_NOWHERE,
        }
    }
}

/// Writes an expression for arguments of these kinds.
pub(crate) fn emit(
    expression: &Expression,
    source: &str,
    fields: &Fields,
    around: Around<'_>,
) -> Result<Emitted, Wrong> {
    let mut emitter = Emitter {
        parts: Parts {
            source,
            fields,
            from: around.from,
        },
        around,
        bounds: false,
        out: Emitted {
            text: String::new(),
            places: Vec::new(),
            uses: Uses::default(),
        },
    };
    emitter.part(expression, false)?;
    Ok(emitter.out)
}

struct Emitter<'a> {
    parts: Parts<'a>,
    around: Around<'a>,
    /// True where a computed bound may stand.
    bounds: bool,
    out: Emitted,
}

type Done = Result<(), Wrong>;

const NO_SUMS: &str = "Cedar has no arithmetic of decimals: a total is a `budget`";

impl Emitter<'_> {
    fn put(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    /// Writes a part; a number in it as a decimal where that is what it is compared with.
    fn part(&mut self, of: &Expression, decimal: bool) -> Done {
        let start = self.out.text.len();
        self.write(of, decimal)?;
        let end = self.out.text.len();
        self.out.places.push((start..end, of.span.clone()));
        Ok(())
    }

    fn write(&mut self, of: &Expression, decimal: bool) -> Done {
        let span = of.span.clone();
        if let Some(number) = literal(of) {
            return self.number(number, span, decimal);
        }
        if let Some(path) = self.parts.counts(of) {
            self.put(&format!("context.counts[{}]", crate::cedar::quoted(&pointer(&path))));
            self.out.uses.counted.insert(path);
            return Ok(());
        }
        if let Some(among) = Among::read(of, self.around.from)? {
            return self.among(among, span);
        }
        let is_known = self.parts.of_known(of).is_some();
        if let Some(path) = of.path().filter(|_| !is_known) {
            return self.argument(&path, span);
        }
        match &of.node {
            Node::Flag(flag) => self.put(if *flag { "true" } else { "false" }),
            Node::Number(number) => {
                return Err(Wrong::at(
                    span,
                    format!("`{number}` is no number that can be held exactly"),
                ));
            }
            Node::Text(text) => self.put(&format!("\"{text}\"")),
            Node::Entity(kind, id) => self.entity(kind, id, span)?,
            Node::Variable(name) => self.variable(name, span)?,
            Node::Set(all) => {
                self.put("[");
                self.list(all, decimal)?;
                self.put("]");
            }
            Node::Record(all) => {
                self.put("{");
                for (place, (name, value)) in all.iter().enumerate() {
                    self.put(if place == 0 { "\"" } else { ", \"" });
                    self.put(name);
                    self.put("\": ");
                    self.part(value, decimal)?;
                }
                self.put("}");
            }
            Node::Get(inner, name) => self.attribute(inner, name, span)?,
            Node::Has(inner, names) => self.has(inner, names, span)?,
            Node::Like(inner, pattern) => {
                let kind = self.parts.kind(inner);
                if !matches!(kind, Of::Text | Of::Other) {
                    return Err(Wrong::at(
                        span,
                        format!("`{}` is {}: `like` is for texts", self.parts.word(inner), kind.told()),
                    ));
                }
                self.put("(");
                self.part(inner, false)?;
                self.put(&format!(" like \"{pattern}\")"));
            }
            Node::Not(inner) => {
                self.put("!(");
                self.part(inner, false)?;
                self.put(")");
            }
            Node::Minus(inner) => {
                if self.parts.kind(inner).is_decimal() {
                    return Err(Wrong::at(span, NO_SUMS));
                }
                self.put("-(");
                self.part(inner, false)?;
                self.put(")");
            }
            Node::If(test, yes, no) => {
                let decimal = decimal || self.parts.kind(of).is_decimal();
                self.put("(if ");
                self.part(test, false)?;
                self.put(" then ");
                self.part(yes, decimal)?;
                self.put(" else ");
                self.part(no, decimal)?;
                self.put(")");
            }
            Node::Function(name, with) => self.function(name, with, span)?,
            Node::Method(inner, name, with) => self.method(inner, name, with)?,
            Node::Binary(sign @ ("&&" | "||"), left, right) => {
                self.put("(");
                self.part(left, false)?;
                self.put(&format!(" {sign} "));
                self.part(right, false)?;
                self.put(")");
            }
            Node::Binary(sign @ ("+" | "-" | "*"), left, right) => {
                for side in [left, right] {
                    let kind = self.parts.kind(side);
                    let whole = match &kind {
                        Of::Whole | Of::Other => true,
                        Of::Literal(number) => number.places() == 0,
                        _ => false,
                    };
                    if !whole {
                        let wrong = Wrong::at(side.span.clone(), NO_SUMS);
                        return Err(match Among::read(side, self.around.from) {
                            Ok(Some(_)) => wrong.hint("a share more is `.plus(\"10 %\")`, an amount more `.plus(20)`"),
                            _ => wrong,
                        });
                    }
                }
                self.put("(");
                self.part(left, false)?;
                self.put(&format!(" {sign} "));
                self.part(right, false)?;
                self.put(")");
            }
            Node::Binary(sign, left, right) => self.relation(sign, left, right, span)?,
        }
        Ok(())
    }

    fn list(&mut self, all: &[Expression], decimal: bool) -> Done {
        for (place, value) in all.iter().enumerate() {
            self.put(if place == 0 { "" } else { ", " });
            self.part(value, decimal)?;
        }
        Ok(())
    }

    fn number(&mut self, number: Decimal, span: Range<usize>, decimal: bool) -> Done {
        if decimal {
            let Some(text) = in_cedar(number) else {
                let hint = "Cedar's decimals have four places behind the point, and at most 922337203685477";
                return Err(
                    Wrong::at(span, format!("`{number}` cannot be compared with a decimal argument")).hint(hint),
                );
            };
            self.put(&format!("decimal(\"{text}\")"));
            return Ok(());
        }
        match number.to_string().parse::<i64>() {
            Ok(whole) => self.put(&whole.to_string()),
            Err(_) => return Err(Wrong::at(span, format!("`{number}` stands where a whole number must"))),
        }
        Ok(())
    }

    fn argument(&mut self, path: &[String], span: Range<usize>) -> Done {
        if path.is_empty() {
            return Err(Wrong::at(
                span,
                "`args` is all arguments: name one, as in `args.amount`",
            ));
        }
        self.parts.known(path, &span)?;
        if let Some((shape, _)) = at(self.parts.fields, path)
            && let Some(why) = unjudged(shape)
        {
            return Err(Wrong::at(span, format!("`{}` cannot be judged: {why}", path.join("."))));
        }
        self.out.uses.named.insert(path.to_vec());
        self.place(path);
        Ok(())
    }

    fn among(&mut self, among: Among, span: Range<usize>) -> Done {
        let part = self.around.from.get(&among.argument);
        if let Some(part) = part.filter(|part| !part.place().split('/').any(|step| step == "*")) {
            let message = format!(
                "`{}` comes from `{part}`, where nothing stands beside it",
                among.argument.join(".")
            );
            let hint = "what is chosen from a list comes from a place with `*`, as in `air/search#/flights/*`";
            return Err(Wrong::at(span, message).hint(hint));
        }
        let place = among.place();
        self.parts.known(&place, &span)?;
        if among.is_whole(self.parts.fields).is_none() {
            let told = at(self.parts.fields, &place).map_or_else(String::new, |(shape, _)| shape.told());
            let message = format!(
                "`{}` is {told}: only numbers have a least and a greatest",
                place.join(".")
            );
            return Err(Wrong::at(span, message));
        }
        if among.is_bound() && !self.bounds {
            let hint = "as in `args.flight.price <= among.flight.price.min.plus(\"10 %\")`";
            return Err(Wrong::at(span, "a computed bound is compared by `<=`, or in a deny by `>`").hint(hint));
        }
        self.put(&format!("context.among[{}]", crate::cedar::quoted(&among.key())));
        self.out.uses.among.insert(among);
        Ok(())
    }

    /// Writes one side of a comparison, in which a computed bound may stand where `bounds` says so.
    fn side(&mut self, of: &Expression, decimal: bool, bounds: bool) -> Done {
        let is_bound = matches!(Among::read(of, self.around.from), Ok(Some(among)) if among.is_bound());
        self.bounds = bounds && is_bound;
        let done = self.part(of, decimal);
        self.bounds = false;
        done
    }

    fn place(&mut self, path: &[String]) {
        self.put("context.args");
        for name in path {
            self.put(&access(name));
        }
    }

    fn variable(&mut self, name: &str, span: Range<usize>) -> Done {
        match name {
            "me" => {
                self.needs_relations(&span)?;
                self.out.uses.me = true;
                self.put("context.me");
                Ok(())
            }
            "context" | "principal" | "action" | "resource" => {
                let hint = "the arguments are `args`; which tool it is, the rule says by its `name`";
                Err(Wrong::at(span, format!("`{name}` says nothing here")).hint(hint))
            }
            other => {
                let known: Vec<String> = self.parts.fields.keys().map(|name| format!("args.{name}")).collect();
                let known: Vec<&str> = known.iter().map(String::as_str).chain(["me"]).collect();
                let hint = if self.parts.fields.contains_key(other) {
                    format!("write `args.{other}`")
                } else {
                    suggest(other, &known)
                };
                Err(Wrong::at(span, format!("`{other}` is not known here")).hint(hint))
            }
        }
    }

    fn needs_relations(&self, span: &Range<usize>) -> Done {
        if self.around.relations {
            return Ok(());
        }
        let hint = "add `[relations]` with `from = \"file:people.toml\"`";
        Err(Wrong::at(span.clone(), "nothing here says who people are").hint(hint))
    }

    fn entity(&mut self, kind: &str, id: &str, span: Range<usize>) -> Done {
        let Some(known) = Kind::read(kind) else {
            let hint = suggest(kind, &Kind::ALL.map(Kind::as_str));
            return Err(Wrong::at(span, format!("there is no kind `{kind}`")).hint(hint));
        };
        self.needs_relations(&span)?;
        self.out.uses.known.push((known, id.to_owned(), span));
        self.put(&format!("{kind}::\"{id}\""));
        Ok(())
    }

    fn attribute(&mut self, inner: &Expression, name: &str, span: Range<usize>) -> Done {
        if matches!(&inner.node, Node::Variable(own) if own == "relations") {
            self.needs_relations(&span)?;
            if name != "age" {
                return Err(
                    Wrong::at(span, format!("relations have no `{name}`")).hint("known here: `age`, in seconds")
                );
            }
            self.out.uses.age = true;
            self.put("context.relations.age");
            return Ok(());
        }
        if let Of::Known(kind) = self.parts.kind(inner) {
            let known = attributes(kind);
            if !known.contains(&name) {
                let wrong = Wrong::at(span, format!("a {} has no `{name}`", kind.as_str()));
                return Err(wrong.hint(suggest(name, known)));
            }
        }
        self.part(inner, false)?;
        self.put(&access(name));
        Ok(())
    }

    fn has(&mut self, inner: &Expression, names: &[String], span: Range<usize>) -> Done {
        let Some(above) = inner.path() else {
            return Err(Wrong::at(
                span,
                format!("`{}` is no object of the arguments", self.parts.word(inner)),
            ));
        };
        self.put("(");
        let mut path = above;
        for (place, name) in names.iter().enumerate() {
            self.put(if place == 0 { "" } else { " && " });
            self.place(&path);
            self.put(&format!(" has \"{name}\""));
            path.push(name.clone());
        }
        self.parts.known(&path, &span)?;
        self.put(")");
        self.out.uses.guarded.insert(path);
        Ok(())
    }

    fn function(&mut self, name: &str, with: &[Expression], span: Range<usize>) -> Done {
        let text = match with {
            [one] if name == "decimal" => match &one.node {
                Node::Text(text) => Some(text.as_str()),
                _ => None,
            },
            _ => None,
        };
        match text.and_then(|text| Decimal::parse(text).ok()) {
            Some(number) => self.number(number, span, true),
            None if name == "decimal" => {
                Err(Wrong::at(span, "this is no decimal").hint("write the number itself, as in `args.amount <= 200`"))
            }
            None => Err(Wrong::at(span, format!("there is no function `{name}` here"))),
        }
    }

    fn method(&mut self, inner: &Expression, name: &str, with: &[Expression]) -> Done {
        let own = self.parts.kind(inner);
        let theirs = with.first().map(|first| self.parts.kind(first));
        let decimal = own.is_decimal() || theirs.as_ref().is_some_and(Of::is_decimal);
        if let (Of::List(of), "contains", Some(theirs), Some(first)) = (&own, name, &theirs, with.first()) {
            self.parts.comparable((inner, of), (first, theirs))?;
        }
        self.part(inner, decimal)?;
        self.put(&format!(".{name}("));
        self.list(with, decimal)?;
        self.put(")");
        Ok(())
    }

    fn relation(&mut self, sign: &str, left: &Expression, right: &Expression, span: Range<usize>) -> Done {
        let (own, theirs) = (self.parts.kind(left), self.parts.kind(right));
        if sign == "in" {
            let people = matches!(own, Of::Known(_) | Of::Other);
            if !people {
                let hint = "is it one of a list? write `[\"a\", \"b\"].contains(args.x)`";
                return Err(Wrong::at(
                    span,
                    format!(
                        "`{}` is {}: `in` is for people, teams and things",
                        self.parts.word(left),
                        own.told()
                    ),
                )
                .hint(hint));
            }
            // Who reports to somebody in a team is not in it.
            let (into, many) = match &theirs {
                Of::List(of) => (&**of, true),
                of => (of, false),
            };
            if (&own, into) == (&Of::Known(Kind::Person), &Of::Known(Kind::Team)) {
                self.part(left, false)?;
                self.put(if many {
                    ".teams.containsAny("
                } else {
                    ".teams.contains("
                });
            } else {
                self.put("(");
                self.part(left, false)?;
                self.put(" in ");
            }
            self.part(right, false)?;
            self.put(")");
            return Ok(());
        }
        self.parts.comparable((left, &own), (right, &theirs))?;
        let decimal = own.is_decimal() || theirs.is_decimal();
        let method = match sign {
            "<" => "lessThan",
            "<=" => "lessThanOrEqual",
            ">" => "greaterThan",
            ">=" => "greaterThanOrEqual",
            _ => "",
        };
        if !method.is_empty() {
            for (side, kind) in [(left, &own), (right, &theirs)] {
                if !matches!(kind, Of::Whole | Of::Decimal | Of::Literal(_) | Of::Other) {
                    return Err(Wrong::at(
                        span,
                        format!(
                            "`{}` is {}: `{sign}` is for numbers",
                            self.parts.word(side),
                            kind.told()
                        ),
                    ));
                }
            }
        }
        // A bound is rounded down to what Cedar holds: what these two say of it stays the same.
        let (on_the_left, on_the_right) = (matches!(sign, ">=" | "<"), matches!(sign, "<=" | ">"));
        if !decimal || method.is_empty() {
            self.put("(");
            self.side(left, decimal, on_the_left)?;
            self.put(&format!(" {sign} "));
            self.side(right, decimal, on_the_right)?;
            self.put(")");
            return Ok(());
        }
        self.side(left, true, on_the_left)?;
        self.put(&format!(".{method}("));
        self.side(right, true, on_the_right)?;
        self.put(")");
        Ok(())
    }
}

/// A number as Cedar's `decimal` reads it; none where it cannot hold it: four places, and 64 bits in all.
pub(crate) fn in_cedar(number: Decimal) -> Option<String> {
    const PLACES: usize = 4;
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if fraction.len() > PLACES {
        return None;
    }
    format!("{whole}{fraction:0<PLACES$}").parse::<i64>().ok()?;
    let fraction = if fraction.is_empty() { "0" } else { fraction };
    Some(format!("{whole}.{fraction}"))
}

/// How a name behind a point is written: as it is where it can be.
fn access(name: &str) -> String {
    const TAKEN: [&str; 11] = [
        "true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar", "when",
    ];
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    match plain && !TAKEN.contains(&name) {
        true => format!(".{name}"),
        false => format!("[\"{name}\"]"),
    }
}
