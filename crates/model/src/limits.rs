//! Limits on HTTP requests and their answers: what a rule on a URL lets stand in them, and how much of it.
//!
//! Promises: P3 (a limit only takes away), P4 (what cannot be read for sure is outside), P5.
//! Trust: limits come from people's rule files; the query and what a request says of its body come from the agent. What is
//! said here about a body is what the request *says*; that it holds is the gate's duty, by obligation.
//! Not here: reading them from rule files (`policy`), narrowing them (`authority`), counting budgets (`mediator`).

use std::collections::BTreeMap;
use std::fmt;

use crate::id::Digest;
use crate::obligation::Obligation;
use crate::pattern::segment_matches;
use crate::query::parameters;
use crate::request::{Argument, Request, Resource, argument};
use crate::totals::Totals;

/// What a rule lets an HTTP request and its answer be. What is absent is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The parameters that may stand in the query, by name; no other may. None: any query.
    pub query: Option<BTreeMap<String, Parameter>>,
    /// What the body may be.
    pub body: BodyLimit,
    /// What the answer may be.
    pub answer: AnswerLimit,
    /// The server's own public key is one of these (SHA-256 of its SubjectPublicKeyInfo); none for any.
    pub keys: Vec<Digest>,
    /// How much there may be in all.
    pub budget: Budget,
    /// What calls of tools may come to in all.
    pub totals: Option<Totals>,
}

/// What one parameter of a query may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Its value is one of these, in which `*` stands for any text; none for any value.
    pub values: Vec<String>,
    /// The most characters that its value may have.
    pub longest: Option<u64>,
}

/// What the body of a request may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BodyLimit {
    /// Most bytes.
    pub bytes: Option<u64>,
    /// Media types, lower-case and without parameters; none for any.
    pub types: Vec<String>,
}

/// What an answer may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AnswerLimit {
    /// Most bytes of its body.
    pub bytes: Option<u64>,
    /// Most seconds from the request to its end.
    pub seconds: Option<u64>,
    /// Most bytes that are passed on in a second.
    pub bytes_per_second: Option<u64>,
}

/// How much a rule may be used for in all, by one task and what runs for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Most requests.
    pub requests: Option<u64>,
    /// Most bytes of paths, queries and bodies that are sent.
    pub sent: Option<u64>,
    /// Most bytes of bodies that are received.
    pub received: Option<u64>,
    /// Most requests within a time.
    pub rate: Option<Rate>,
}

/// So many within so much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// Within how many seconds.
    pub seconds: u32,
}

impl Limits {
    /// True when nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Why a request is outside these limits, as far as it says so itself; none when it is inside.
    pub fn breach(&self, request: &Request) -> Option<String> {
        self.query_breach(request).or_else(|| self.body_breach(request))
    }

    fn query_breach(&self, request: &Request) -> Option<String> {
        let (Some(known), Resource::Url(url)) = (&self.query, &request.resource) else {
            return None;
        };
        let found = match parameters(url.query().unwrap_or("")) {
            Ok(found) => found,
            Err(fault) => return Some(format!("its query can be read in more than one way: {fault}")),
        };
        found.iter().find_map(|(name, value)| match known.get(name) {
            None => Some(format!("its query has a parameter `{name}`")),
            Some(parameter) => parameter.breach(name, value),
        })
    }

    fn body_breach(&self, request: &Request) -> Option<String> {
        let length = match request.arguments.get(argument::CONTENT_LENGTH) {
            Some(Argument::Whole(length)) => u64::try_from(*length).ok(),
            _ => None,
        };
        if let (Some(most), Some(length)) = (self.body.bytes, length)
            && length > most
        {
            return Some(format!("its body has {length} bytes, more than {most}"));
        }
        if self.body.types.is_empty() {
            return None;
        }
        match request.arguments.get(argument::CONTENT_TYPE) {
            Some(Argument::Text(text)) => {
                let own = media_type(text);
                (!self.body.types.contains(&own)).then(|| format!("its body is of type `{own}`"))
            }
            _ => (length.unwrap_or(0) > 0).then(|| "its body is of no type".into()),
        }
    }

    /// What the gate must do for the limits to hold.
    pub fn obligations(&self) -> Vec<Obligation> {
        let mut duties = Vec::new();
        if self.body != BodyLimit::default() {
            duties.push(Obligation::RequestBody {
                bytes: self.body.bytes.unwrap_or(u64::MAX),
                types: self.body.types.clone(),
            });
        }
        let AnswerLimit {
            bytes,
            seconds,
            bytes_per_second,
        } = self.answer;
        if self.answer != AnswerLimit::default() {
            duties.push(Obligation::Answer {
                bytes,
                seconds,
                bytes_per_second,
            });
        }
        if !self.keys.is_empty() {
            duties.push(Obligation::PinKey {
                sha256: self.keys.clone(),
            });
        }
        duties
    }
}

impl Parameter {
    fn breach(&self, name: &str, value: &str) -> Option<String> {
        let fits = self.values.is_empty() || self.values.iter().any(|pattern| segment_matches(pattern, value));
        if !fits {
            return Some(format!("its parameter `{name}` has another value"));
        }
        let length = u64::try_from(value.chars().count()).unwrap_or(u64::MAX);
        let most = self.longest.filter(|most| length > *most)?;
        Some(format!(
            "its parameter `{name}` has {length} characters, more than {most}"
        ))
    }

    /// True when every value that fits here fits `wide` too; false when that is not sure.
    pub fn is_within(&self, wide: &Self) -> bool {
        // A `*` of a pattern can only be read by a `*` of the wider one, which reads whatever it stands for.
        let covered = |value: &String| wide.values.iter().any(|pattern| segment_matches(pattern, value));
        let values = wide.values.is_empty() || (!self.values.is_empty() && self.values.iter().all(covered));
        values && at_most(self.longest, wide.longest)
    }
}

impl BodyLimit {
    /// True when every body that fits here fits `wide` too.
    pub fn is_within(&self, wide: &Self) -> bool {
        let types =
            wide.types.is_empty() || (!self.types.is_empty() && self.types.iter().all(|own| wide.types.contains(own)));
        types && at_most(self.bytes, wide.bytes)
    }
}

fn at_most(own: Option<u64>, wide: Option<u64>) -> bool {
    wide.is_none_or(|wide| own.is_some_and(|own| own <= wide))
}

/// The media type in the value of a `Content-Type` field: what stands before its parameters, in lower case.
pub fn media_type(field: &str) -> String {
    let essence = field.split(';').next().unwrap_or("");
    essence.trim().to_ascii_lowercase()
}

/// A size in the largest unit that shows it whole.
pub fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units
        .iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .and_then(|(unit, name)| bytes.checked_div(*unit).map(|count| (count, name)));
    match fits {
        Some((count, name)) => format!("{count} {name}"),
        None => format!("{bytes} bytes"),
    }
}

fn listed(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [heads @ .., tail] => format!("{} {last} {tail}", heads.join(", ")),
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(|value| format!("`{value}`")).collect();
        let longest = self.longest.map(|most| format!("at most {most} characters"));
        let parts: Vec<String> = Some(listed(&values, "or"))
            .filter(|text| !text.is_empty())
            .into_iter()
            .chain(longest)
            .collect();
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            1 => write!(f, "{} requests a second", self.count),
            60 => write!(f, "{} requests a minute", self.count),
            3600 => write!(f, "{} requests an hour", self.count),
            86_400 => write!(f, "{} requests a day", self.count),
            other => write!(f, "{} requests in {other} s", self.count),
        }
    }
}

impl fmt::Display for Limits {
    /// The limits in plain words, with semicolons between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query.as_ref().map(|known| {
            let told = |(name, parameter): (&String, &Parameter)| match parameter.to_string() {
                told if told.is_empty() => format!("`{name}`"),
                told => format!("`{name}` ({told})"),
            };
            match listed(&known.iter().map(told).collect::<Vec<_>>(), "and") {
                names if names.is_empty() => "no query".to_owned(),
                names => format!("no other parameters than {names}"),
            }
        });
        let body = match (self.body.bytes, self.body.types.as_slice()) {
            (None, []) => None,
            (Some(0), _) => Some("no body".to_owned()),
            (bytes, types) => {
                let most = bytes.map(|bytes| format!("of at most {}", size(bytes)));
                let types = (!types.is_empty()).then(|| format!("of {}", listed(types, "or")));
                let parts: Vec<String> = most.into_iter().chain(types).collect();
                Some(format!("a body {}", parts.join(", ")))
            }
        };
        let parts = [
            self.answer.bytes.map(|bytes| format!("of at most {}", size(bytes))),
            self.answer.seconds.map(|seconds| format!("within {seconds} s")),
            self.answer
                .bytes_per_second
                .map(|rate| format!("at {} a second", size(rate))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let answer = (!parts.is_empty()).then(|| format!("an answer {}", parts.join(", ")));
        let keys: Vec<String> = self.keys.iter().map(|key| format!("sha256 {key}")).collect();
        let keys = (!keys.is_empty()).then(|| format!("the server's key is {}", listed(&keys, "or")));
        let Budget {
            requests,
            sent,
            received,
            rate,
        } = self.budget;
        let parts = [
            requests.map(|count| format!("{count} requests")),
            sent.map(|bytes| format!("{} sent", size(bytes))),
            received.map(|bytes| format!("{} received", size(bytes))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let budget = (!parts.is_empty()).then(|| format!("at most {} in all", listed(&parts, "and")));
        let rate = rate.map(|rate| format!("at most {rate}"));
        let totals = self.totals.as_ref().map(ToString::to_string);
        let all: Vec<String> = [query, body, answer, keys, budget, rate, totals]
            .into_iter()
            .flatten()
            .collect();
        f.write_str(&all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{Method, Verb};
    use crate::id::TaskId;
    use crate::url::HttpUrl;

    fn request(url: &str) -> Request {
        let verb = Verb::Http(Method::parse("POST").unwrap());
        Request::new(TaskId([0; 8]), verb, Resource::Url(HttpUrl::parse(url).unwrap()))
    }

    fn saying(length: i64, kind: Option<&str>) -> Request {
        let mut request = request("https://a.test/x");
        let length = Argument::Whole(length);
        request.arguments.insert(argument::CONTENT_LENGTH.into(), length);
        if let Some(kind) = kind {
            let kind = Argument::Text(kind.into());
            request.arguments.insert(argument::CONTENT_TYPE.into(), kind);
        }
        request
    }

    fn parameter(values: &[&str], longest: Option<u64>) -> Parameter {
        Parameter {
            values: values.iter().map(ToString::to_string).collect(),
            longest,
        }
    }

    #[test]
    fn p4_a_query_holds_what_is_named_and_nothing_else() {
        let limits = Limits {
            query: Some(BTreeMap::from([
                ("q".into(), parameter(&[], Some(4))),
                ("lang".into(), parameter(&["en", "de-*"], None)),
            ])),
            ..Limits::default()
        };
        for (query, fits) in [
            ("", true),
            ("?q=abcd", true),
            ("?q=%C3%A9%C3%A9%C3%A9%C3%A9", true),
            ("?lang=de-CH&q=", true),
            ("?q=abcde", false),
            ("?lang=fr", false),
            ("?lang=den", false),
            ("?Q=a", false),
            ("?q=a&debug=1", false),
            ("?q=a&q=b", false),
            ("?q=a;x=b", false),
            ("?q[]=a", false),
        ] {
            let said = limits.breach(&request(&format!("https://a.test/x{query}")));
            assert_eq!(said.is_none(), fits, "{query}: {said:?}");
        }
        let none = Limits {
            query: Some(BTreeMap::new()),
            ..Limits::default()
        };
        assert!(none.breach(&request("https://a.test/x?")).is_none());
        assert!(none.breach(&request("https://a.test/x?y")).is_some());
    }

    #[test]
    fn p4_a_body_is_what_is_named_and_no_longer() {
        let limits = Limits {
            body: BodyLimit {
                bytes: Some(10),
                types: vec!["application/json".into()],
            },
            ..Limits::default()
        };
        for (length, kind, fits) in [
            (10, Some("application/json"), true),
            (10, Some("Application/JSON ; charset=utf-8"), true),
            (0, None, true),
            (11, Some("application/json"), false),
            (1, Some("text/plain"), false),
            (1, Some("application/jsonx"), false),
            (1, None, false),
        ] {
            assert_eq!(
                limits.breach(&saying(length, kind)).is_none(),
                fits,
                "{length} {kind:?}"
            );
        }
        assert!(
            limits.breach(&request("https://a.test/")).is_none(),
            "what is not said is the gate's to see"
        );
        let duty = Obligation::RequestBody {
            bytes: 10,
            types: vec!["application/json".into()],
        };
        assert_eq!(limits.obligations(), [duty]);
        assert_eq!(Limits::default().obligations(), []);
    }

    #[test]
    fn limits_read_as_a_sentence() {
        let limits = Limits {
            query: Some(BTreeMap::from([
                ("lang".into(), parameter(&["en", "de"], None)),
                ("page".into(), Parameter::default()),
                ("q".into(), parameter(&[], Some(100))),
            ])),
            body: BodyLimit {
                bytes: Some(64 << 10),
                types: vec!["application/json".into()],
            },
            answer: AnswerLimit {
                bytes: Some(10 << 20),
                seconds: Some(30),
                bytes_per_second: None,
            },
            keys: Vec::new(),
            budget: Budget {
                requests: Some(100),
                sent: Some(1 << 20),
                received: None,
                rate: Some(Rate { count: 60, seconds: 60 }),
            },
            totals: None,
        };
        assert_eq!(
            limits.to_string(),
            "no other parameters than `lang` (`en` or `de`), `page` and `q` (at most 100 characters); a body of at most 64 KiB, of \
             application/json; an answer of at most 10 MiB, within 30 s; at most 100 requests and 1 MiB sent in all; at most 60 \
             requests a minute"
        );
        assert_eq!(Limits::default().to_string(), "");
    }

    fn parameters() -> impl proptest::strategy::Strategy<Value = Parameter> {
        use proptest::prelude::*;
        (
            proptest::collection::vec("[ab*]{0,3}", 0..3),
            proptest::option::of(0u64..4),
        )
            .prop_map(|(values, longest)| Parameter { values, longest })
    }

    proptest::proptest! {
        #[test]
        fn p3_within_never_widens(narrow in parameters(), wide in parameters(), value in "[ab]{0,4}") {
            if narrow.is_within(&wide) && narrow.breach("p", &value).is_none() {
                proptest::prop_assert_eq!(wide.breach("p", &value), None, "{:?} in {:?} at {}", narrow, wide, value);
            }
        }
    }
}
