//! What an argument of a call was chosen from: the list in another tool's answer out of which the agent was given a handle.
//!
//! Promises: P4 (what is no part of an answer is refused), P14 (all that a rule is told of the list stands in the request).
//! Trust: the text of a part is a person's, in a rule; what stands in a request was put together by the tool gate, out of
//! what a server answered.
//! Not here: handles (`tools`), what is asked of the list (`policy`).
//! See: RFC 6901 (JSON Pointer).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::request::{Argument, Request, argument};
use crate::tool::{ToolError, ToolName};

/// Most entries of a list that an argument was chosen from: a longer one is not judged.
pub const MOST_CHOICES: usize = 256;

/// Longest place, in bytes.
const MAX_PLACE: usize = 512;

/// A part of what a tool answers: `air/search#/flights/*`; all of it where no place is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerPart {
    tool: ToolName,
    place: String,
}

impl AnswerPart {
    /// Reads `SERVER/TOOL#/PLACE`, or `SERVER/TOOL`.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        let (tool, place) = match text.split_once("#/") {
            Some((tool, _)) => (tool, text.get(tool.len().saturating_add(1)..).unwrap_or("")),
            None => (text, ""),
        };
        let tool = ToolName::parse(tool)?;
        let is_one = !tool.name().is_empty() && !tool.name().contains('*');
        if !is_one || place.len() > MAX_PLACE || place.chars().any(char::is_control) {
            let shown: String = text.chars().take(64).collect();
            return Err(ToolError(format!(
                "`{}` names no part of a tool's answers",
                shown.escape_debug()
            )));
        }
        let place = place.to_owned();
        Ok(Self { tool, place })
    }

    /// The tool that answers.
    pub fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// Where in the answer: a JSON Pointer, in which `*` stands for every entry. Empty for all of it.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for AnswerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "{}", self.tool),
            place => write!(f, "{}#{place}", self.tool),
        }
    }
}

impl FromStr for AnswerPart {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        Self::parse(text)
    }
}

impl Serialize for AnswerPart {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AnswerPart {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Request {
    /// Says what an argument of a call was chosen from: the argument's name with dots between names within each other, the
    /// part of an answer, and what that part held, each entry with what rules look at.
    pub fn choosing(&mut self, argument: &str, from: &AnswerPart, among: Vec<Argument>) {
        let all = self.arguments.entry(argument::CHOSEN.into());
        let all = all.or_insert_with(|| Argument::Fields(BTreeMap::new()));
        if let Argument::Fields(all) = all {
            let list = BTreeMap::from([(from.to_string(), Argument::List(among))]);
            all.insert(argument.into(), Argument::Fields(list));
        }
    }

    /// What an argument was chosen from, where it was chosen from this part of an answer and from nothing else.
    pub fn chosen_from(&self, argument: &str, from: &AnswerPart) -> Option<&[Argument]> {
        let Some(Argument::Fields(all)) = self.arguments.get(argument::CHOSEN) else {
            return None;
        };
        let Some(Argument::Fields(parts)) = all.get(argument) else {
            return None;
        };
        match parts.get(&from.to_string()) {
            Some(Argument::List(among)) if parts.len() == 1 => Some(among),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Verb;
    use crate::id::TaskId;
    use crate::request::Resource;

    #[test]
    fn p4_a_part_of_an_answer_is_read_or_refused() {
        for text in [
            "air/search#/flights/*",
            "air/search",
            "air/search#/a~1b/*/c",
            "air/x#y#/z",
        ] {
            assert_eq!(AnswerPart::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            AnswerPart::parse("air/search#/flights/*").unwrap().place(),
            "/flights/*"
        );
        for wrong in ["", "air", "air/*", "air/#/x", "Air/search#/x", "air/search#/a\nb"] {
            assert!(AnswerPart::parse(wrong).is_err(), "{wrong}");
        }
        assert!(AnswerPart::parse(&format!("air/search#/{}", "x".repeat(MAX_PLACE))).is_err());
    }

    #[test]
    fn p4_only_the_named_part_counts() {
        let tool = ToolName::parse("air/book").unwrap();
        let mut request = Request::new(TaskId([0; 8]), Verb::Call, Resource::Tool(tool));
        let part = |text: &str| AnswerPart::parse(text).unwrap();
        request.choosing("flight", &part("air/search#/flights/*"), vec![Argument::Whole(1)]);
        let own = request.chosen_from("flight", &part("air/search#/flights/*"));
        assert_eq!(own, Some(&[Argument::Whole(1)][..]));
        for (argument, from) in [
            ("flight", "air/search#/flights"),
            ("flight", "air/deals#/flights/*"),
            ("back", "air/search#/flights/*"),
        ] {
            assert_eq!(request.chosen_from(argument, &part(from)), None, "{argument} {from}");
        }
        // Of two nobody knows which it is.
        let both = Argument::Fields(BTreeMap::from([
            ("air/search#/flights/*".into(), Argument::List(Vec::new())),
            ("air/deals#/flights/*".into(), Argument::List(Vec::new())),
        ]));
        let all = BTreeMap::from([("flight".to_owned(), both)]);
        request.arguments.insert(argument::CHOSEN.into(), Argument::Fields(all));
        assert_eq!(request.chosen_from("flight", &part("air/search#/flights/*")), None);
    }
}
