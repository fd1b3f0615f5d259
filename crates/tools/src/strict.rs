//! One message, read in one way only.
//!
//! Answers: is there another way to read these bytes than the one that is judged?
//! Promises: P4, P5 (a name that stands twice, a number that changes when it is read, a name with characters that nobody
//! sees: refused, naming the place). What is judged is what was read here, and what is sent on is written from that.
//! Trust: the bytes are the agent's, or a server's.
//! See: RFC 8259 sections 4 and 6, RFC 7493 (I-JSON).

use std::borrow::Cow;
use std::fmt;

use bailiwick_model::visible;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits;

/// What is wrong with a message that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Where: names and positions, apart by dots.
    pub at: String,
    /// What.
    pub what: &'static str,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.strip_prefix("params.arguments.").unwrap_or(&self.at);
        if at.is_empty() {
            return write!(f, "the message {}", self.what);
        }
        write!(f, "`{at}` {}", self.what)
    }
}

/// A message as it was read, with the first thing that is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// What it says. Of names that stand twice, the first.
    pub value: Value,
    /// What is wrong with it.
    pub flaw: Option<Flaw>,
}

/// Reads a message. An error where it is no JSON, or nested too deeply to be read.
pub fn read(bytes: &[u8]) -> Result<Message, serde_json::Error> {
    let mut state = State {
        numbers: Numbers { bytes, at: 0 },
        path: Vec::new(),
        depth: 0,
        flaw: None,
    };
    let readable = without_endless(bytes);
    let mut reader = serde_json::Deserializer::from_slice(&readable);
    let value = Seed(&mut state).deserialize(&mut reader)?;
    reader.end()?;
    Ok(Message {
        value,
        flaw: state.flaw,
    })
}

/// The text with numbers that are too large to be read as zeros of the same length: they are found to be other numbers than
/// they say, at their place, and whoever sent them is answered.
fn without_endless(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut numbers = Numbers { bytes, at: 0 };
    let mut text = Cow::Borrowed(bytes);
    while let Some(number) = numbers.next() {
        if number.parse::<f64>().is_ok_and(f64::is_infinite) {
            let from = numbers.at.saturating_sub(number.len());
            if let Some(place) = text.to_mut().get_mut(from..numbers.at) {
                place.fill(b' ');
                place.iter_mut().take(1).for_each(|first| *first = b'0');
            }
        }
    }
    text
}

/// True for characters that show nothing, or change how their neighbours are shown.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control() || visible(character.encode_utf8(&mut [0; 4])).starts_with("\\u{")
}

/// What is said of a name that stands twice.
pub(crate) const TWICE: &str = "stands twice";

enum Step {
    Name(String),
    Position(usize),
}

struct State<'a> {
    numbers: Numbers<'a>,
    path: Vec<Step>,
    depth: usize,
    flaw: Option<Flaw>,
}

impl State<'_> {
    fn find(&mut self, what: &'static str) {
        if self.flaw.is_some() {
            return;
        }
        let mut at = String::new();
        for step in &self.path {
            if !at.is_empty() {
                at.push('.');
            }
            match step {
                Step::Name(name) => at.push_str(&visible(name)),
                Step::Position(position) => at.push_str(&position.to_string()),
            }
        }
        self.flaw = Some(Flaw { at, what });
    }

    fn number(&mut self, number: &Number) {
        let text = self.numbers.next().unwrap_or_default();
        if !is_exact(text, number) {
            self.find("is a number that cannot be kept exactly");
        }
    }
}

/// True when a number still has the value of its text. Zero has no sign.
fn is_exact(text: &str, number: &Number) -> bool {
    if number.is_u64() && !number.is_i64() {
        return false;
    }
    let (Some(said), Some(kept)) = (digits_of(text), digits_of(&number.to_string())) else {
        return false;
    };
    said == kept && !(said.1.is_empty() && said.0)
}

/// A number's sign, its digits without zeros at either end, and the power of ten of the last of them.
fn digits_of(text: &str) -> Option<(bool, String, i64)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let digits = significant.trim_end_matches('0');
    if digits.is_empty() {
        return Some((negative, String::new(), 0));
    }
    let cut = i64::try_from(significant.len().checked_sub(digits.len())?).ok()?;
    let places = i64::try_from(fraction.len()).ok()?;
    let power = exponent.checked_sub(places)?.checked_add(cut)?;
    Some((negative, digits.to_owned(), power))
}

/// The numbers of a JSON text, one after the other, as they are written. The text is read for its grammar elsewhere.
struct Numbers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Numbers<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut in_string = false;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => in_string = !in_string,
                b'\\' if in_string => self.at = self.at.saturating_add(1),
                b'-' | b'0'..=b'9' if !in_string => {
                    let from = self.at;
                    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    while self.bytes.get(self.at).is_some_and(is_part) {
                        self.at = self.at.saturating_add(1);
                    }
                    return std::str::from_utf8(self.bytes.get(from..self.at)?).ok();
                }
                _ => {}
            }
            self.at = self.at.saturating_add(1);
        }
        None
    }
}

struct Seed<'s, 'a>(&'s mut State<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl Seed<'_, '_> {
    fn deeper<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.0.depth = self.0.depth.saturating_add(1);
        if self.0.depth > limits::DEPTH {
            return Err(E::custom("it is nested too deeply"));
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        let number = Number::from(value);
        self.0.number(&number);
        Ok(Value::Number(number))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        let number = Number::from(value);
        self.0.number(&number);
        Ok(Value::Number(number))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is out of range"))?;
        self.0.number(&number);
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.deeper()?;
        let mut all = Vec::new();
        loop {
            self.0.path.push(Step::Position(all.len()));
            let next = access.next_element_seed(Seed(self.0))?;
            self.0.path.pop();
            match next {
                Some(value) => all.push(value),
                None => break,
            }
        }
        self.0.depth = self.0.depth.saturating_sub(1);
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.deeper()?;
        let mut all = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if name.len() > limits::OFFERED_NAME {
                return Err(A::Error::custom("a name is too long"));
            }
            let hidden = name.chars().any(is_hidden);
            let twice = all.contains_key(&name);
            self.0.path.push(Step::Name(name.clone()));
            if hidden {
                self.0.find("is a name with characters that do not show");
            }
            if twice {
                self.0.find(TWICE);
            }
            let value = access.next_value_seed(Seed(self.0))?;
            self.0.path.pop();
            if !twice {
                all.insert(name, value);
            }
        }
        self.0.depth = self.0.depth.saturating_sub(1);
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flaw(text: &str) -> Option<String> {
        read(text.as_bytes()).unwrap().flaw.map(|flaw| flaw.to_string())
    }

    #[test]
    fn c038_a_name_that_stands_twice_is_found_wherever_it_stands() {
        let text = r#"{"params":{"arguments":{"repo":"acme/demo","repo":"acme/other"}}}"#;
        assert_eq!(flaw(text).unwrap(), "`repo` stands twice");
        let text = r#"{"params":{"arguments":{"a":[{"b":1,"\u0062":2}]}}}"#;
        assert_eq!(flaw(text).unwrap(), "`a.0.b` stands twice", "spelled otherwise");
        assert_eq!(flaw(r#"{"id":1,"id":2}"#).unwrap(), "`id` stands twice");
        assert_eq!(flaw(r#"{"a":{"x":1},"b":{"x":1}}"#), None);
    }

    #[test]
    fn c038_a_number_that_would_change_is_found() {
        for fine in [
            "0",
            "-1",
            "200",
            "199.999",
            "0.1",
            "1e2",
            "1.50",
            "9007199254740993",
            "-9223372036854775808",
            "0.0",
        ] {
            assert_eq!(flaw(&format!("[{fine}]")), None, "{fine}");
        }
        for changed in [
            "12345678901234567890123",
            "18446744073709551615",
            "0.1000000000000000055511151231257827",
            "1e-400",
            "9007199254740993.0",
            "-0",
            "-0.0",
            "200.00000000000000000001",
        ] {
            let flaw = flaw(&format!(r#"{{"amount":{changed}}}"#)).unwrap();
            assert_eq!(flaw, "`amount` is a number that cannot be kept exactly", "{changed}");
        }
        assert_eq!(
            flaw("1e400").as_deref(),
            Some("the message is a number that cannot be kept exactly")
        );
        assert_eq!(
            flaw(r#"{"a\"1":"\\2\"3 18446744073709551615","b":[4]}"#),
            None,
            "strings are no numbers"
        );
    }

    #[test]
    fn p4_a_number_without_end_is_found_at_its_place() {
        let text = r#"{"params":{"arguments":{"a":1,"amount":-1e400,"note":"1e400"}}}"#;
        assert_eq!(
            flaw(text).as_deref(),
            Some("`amount` is a number that cannot be kept exactly")
        );
    }

    #[test]
    fn p8_a_name_that_hides_something_is_found_and_shown() {
        assert_eq!(
            flaw("{\"am\u{200b}ount\":1}").unwrap(),
            "`am\\u{200b}ount` is a name with characters that do not show"
        );
        assert!(flaw("{\"\u{202e}x\":1}").is_some());
        assert!(flaw("{\"a\\u0000\":1}").is_some());
        assert_eq!(flaw("{\"größe\":\"\u{202e}\"}"), None, "values are data");
    }

    #[test]
    fn p4_what_is_no_json_or_too_deep_is_refused() {
        for text in [
            "",
            "{",
            "{}x",
            "[1,]",
            "{\"a\":1,}",
            "NaN",
            "\"\\ud800\"",
            "01",
            "'a'",
            "{} {}",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(read(b"\"\xff\"").is_err());
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(read(deep(limits::DEPTH).as_bytes()).is_ok());
        assert!(read(deep(limits::DEPTH + 1).as_bytes()).is_err());
        assert!(read(deep(1_000_000).as_bytes()).is_err());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            (-1_000_000i64..1_000_000).prop_map(|n| Value::from(n as f64 / 1000.0)),
            "[a-z\"\\\\0-9{}:,-]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z0-9\"\\\\]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn p5_what_is_written_plainly_is_read_as_it_is(value in json()) {
            let message = read(value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(&message.value, &value);
            let minus_zero = value.to_string().contains("-0.0");
            prop_assert!(message.flaw.is_none() || minus_zero, "{:?} in {}", message.flaw, value);
        }

        #[test]
        fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn reading_what_looks_like_json_never_panics(text in "[\\[\\]{}:,\"0-9eE.+\\-\\\\a ]{0,60}") {
            if let Ok(message) = read(text.as_bytes())
                && message.flaw.is_none()
            {
                prop_assert_eq!(message.value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
