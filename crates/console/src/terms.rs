//! For how often, how long and where a yes is to hold: what a form says of it, and back.
//!
//! Promises: P8 (what is not understood is refused, and never read as more), P4. Trust: fields come from a form of the console's own, or
//! from whoever made one up: what they say is shown as a sentence before it counts.

use std::collections::BTreeMap;

use bailiwick_gate::desk::{Scope, Terms};
use bailiwick_model::Millis;

/// Fields of a form or a query, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Reads `name=value&…`. A name that stands twice is an error: nobody would know which counts.
    pub fn read(text: &[u8]) -> Option<Self> {
        let mut all = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(text) {
            if all.insert(name.into_owned(), value.into_owned()).is_some() {
                return None;
            }
        }
        Some(Self(all))
    }

    /// The value of a field; none where it is absent or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The number in a field: an error where something else stands there.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Unclear> {
        self.get(name).map(|text| text.parse().map_err(|_| Unclear)).transpose()
    }
}

/// A form says something that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the form says something that is not understood")]
pub struct Unclear;

/// The lengths of time that can be chosen: what stands in the form, what a person reads, milliseconds.
pub const LENGTHS: [(&str, &str, u64); 6] = [
    ("10m", "10 minutes", 600_000),
    ("1h", "1 hour", 3_600_000),
    ("4h", "4 hours", 14_400_000),
    ("1d", "1 day", 86_400_000),
    ("7d", "7 days", 604_800_000),
    ("30d", "30 days", 2_592_000_000),
];

/// The most times that can be named.
pub const MOST_TIMES: u64 = 1_000_000;

/// The latest end that can be named: year 9999.
const LATEST: u64 = 253_402_300_799_000;

/// What was chosen of an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Which offer.
    pub offer: usize,
    /// In which terms, before the offer has its say.
    pub terms: Terms,
    /// As the form has them, to be shown as chosen: how often, how many times, how long, where.
    pub often: String,
    /// The number beside it.
    pub times: u64,
    /// How long.
    pub long: String,
}

impl Chosen {
    /// What is chosen before anybody has chosen: the request itself, once.
    pub fn first(running: bool) -> Self {
        Self {
            offer: 0,
            terms: Terms {
                count: Some(1),
                until: None,
                scope: if running { Scope::Task } else { Scope::Context },
            },
            often: "once".into(),
            times: 5,
            long: String::new(),
        }
    }

    /// Reads what was chosen. `now` makes an end of a length of time.
    pub fn read(fields: &Fields, running: bool, now: Millis) -> Result<Self, Unclear> {
        let mut chosen = Self::first(running);
        chosen.offer = fields.number("offer")?.unwrap_or(0);
        chosen.times = fields.number("times")?.unwrap_or(chosen.times);
        if chosen.times == 0 || chosen.times > MOST_TIMES {
            return Err(Unclear);
        }
        chosen.often = fields.get("often").unwrap_or("once").to_owned();
        chosen.terms.count = match chosen.often.as_str() {
            "once" => Some(1),
            "times" => Some(chosen.times),
            "any" => None,
            _ => return Err(Unclear),
        };
        chosen.long = fields.get("long").unwrap_or_default().to_owned();
        chosen.terms.until = match chosen.long.as_str() {
            "" => None,
            "until" => {
                let until: u64 = fields.number("until")?.ok_or(Unclear)?;
                if until <= now.0 || until > LATEST {
                    return Err(Unclear);
                }
                Some(Millis(until))
            }
            long => {
                let known = LENGTHS.iter().find(|(name, _, _)| *name == long).ok_or(Unclear)?;
                // To the whole second, as the sentence shows it.
                let until = now.0.saturating_add(known.2);
                Some(Millis(until - until % 1000))
            }
        };
        chosen.terms.scope = scope(fields, running)?;
        Ok(chosen)
    }
}

fn scope(fields: &Fields, running: bool) -> Result<Scope, Unclear> {
    match fields.get("scope") {
        None if running => Ok(Scope::Task),
        None => Ok(Scope::Context),
        Some("task") => Ok(Scope::Task),
        Some("context") => Ok(Scope::Context),
        Some(_) => Err(Unclear),
    }
}

/// A scope as forms have it.
pub fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Task => "task",
        Scope::Context => "context",
    }
}

/// The terms of a yes, as its form carries them: just those of the sentence.
pub fn exact(fields: &Fields) -> Result<(usize, Terms), Unclear> {
    let count = match fields.get("count").ok_or(Unclear)? {
        "any" => None,
        count => Some(count.parse().map_err(|_| Unclear)?),
    };
    let until = match fields.get("until").ok_or(Unclear)? {
        "none" => None,
        until => Some(Millis(until.parse().map_err(|_| Unclear)?)),
    };
    let scope = match fields.get("scope").ok_or(Unclear)? {
        "task" => Scope::Task,
        "context" => Scope::Context,
        _ => return Err(Unclear),
    };
    let offer = fields.number("offer")?.ok_or(Unclear)?;
    Ok((offer, Terms { count, until, scope }))
}

/// The same, as names and values.
pub fn exact_fields(offer: usize, terms: &Terms) -> [(&'static str, String); 4] {
    [
        ("offer", offer.to_string()),
        (
            "count",
            terms.count.map_or_else(|| "any".into(), |count| count.to_string()),
        ),
        (
            "until",
            terms.until.map_or_else(|| "none".into(), |until| until.0.to_string()),
        ),
        ("scope", scope_name(terms.scope).into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Chosen, Unclear> {
        Chosen::read(&Fields::read(text.as_bytes()).ok_or(Unclear)?, true, Millis(1_000_500))
    }

    #[test]
    fn p8_terms_are_as_the_form_says_or_refused() {
        assert_eq!(read("").expect("nothing is the narrowest"), Chosen::first(true));
        let wide = read("offer=2&often=times&times=3&long=10m&scope=context").expect("it is clear");
        assert_eq!(
            (wide.offer, wide.terms),
            (
                2,
                Terms {
                    count: Some(3),
                    until: Some(Millis(1_600_000)),
                    scope: Scope::Context
                }
            )
        );
        assert_eq!(read("often=any").map(|any| any.terms.count), Ok(None));
        assert_eq!(
            read("long=until&until=2000000").map(|until| until.terms.until),
            Ok(Some(Millis(2_000_000)))
        );
        for bad in [
            "often=always",
            "often=times&times=0",
            "times=-1",
            "times=1e9",
            "long=forever",
            "long=until",
            "long=until&until=5",
            "long=until&until=99999999999999999",
            "scope=world",
            "offer=-1",
            "offer=x",
            "often=once&often=any",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p8_the_terms_of_a_yes_are_those_of_its_sentence() {
        for terms in [
            Terms::default(),
            Terms {
                count: Some(7),
                until: Some(Millis(1_796_061_845_000)),
                scope: Scope::Context,
            },
        ] {
            let text: Vec<String> = exact_fields(3, &terms)
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let fields = Fields::read(text.join("&").as_bytes()).expect("each stands once");
            assert_eq!(exact(&fields), Ok((3, terms)));
        }
        for missing in [
            "count=1&until=none&scope=task",
            "offer=0&until=none&scope=task",
            "offer=0&count=1&scope=task",
        ] {
            let fields = Fields::read(missing.as_bytes()).expect("each stands once");
            assert_eq!(exact(&fields), Err(Unclear), "{missing}");
        }
    }
}
