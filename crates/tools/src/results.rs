//! What a server answers, made ready for the agent under the duties of a permit.
//!
//! Answers: what of this result may the agent see?
//! Promises: P4 (a result that passes a limit is refused), P6 (what a rule keeps back is kept back in every copy: in the
//! structured part, in text that is JSON; a part that cannot be read for it is kept back whole).
//! Trust: the result is the server's, who may write the same value into several places.
//! Not here: who decides (`mediator`); what opens a handle (`call`).

use bailiwick_model::{Label, Obligation, ToolDuty};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::handles::{Given, Handles, summary};
use crate::limits;
use crate::places::Place;

/// What stands for what was kept back.
const KEPT_BACK: &str = "[kept back]";

/// What is said of a duty that has no place here.
pub(crate) const STRANGE: &str = "a duty that does not go with it";

/// The duties of one permit for a call: towards its arguments and its result.
#[derive(Debug, Default)]
pub(crate) struct Duties {
    /// Places that are kept back.
    pub(crate) redact: Vec<Place>,
    /// Places that become handles.
    pub(crate) handles: Vec<Place>,
    /// Most rows of all lists together.
    pub(crate) rows: Option<u64>,
    /// Most bytes in all.
    pub(crate) bytes: Option<u64>,
    /// Arguments in which handles are opened.
    pub(crate) reveal: Vec<Place>,
    /// The tags on what becomes a handle.
    pub(crate) label: Label,
}

impl Duties {
    /// Reads the obligations of a permit. The error names what has no place here.
    pub(crate) fn of(obligations: &[Obligation]) -> Result<Self, String> {
        let mut duties = Self::default();
        let places = |paths: &[String]| -> Result<Vec<Place>, String> {
            let place = |path: &String| Place::parse(path).ok_or_else(|| "a place that cannot be read".to_owned());
            paths.iter().map(place).collect()
        };
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        for obligation in obligations {
            let Obligation::Tool(duty) = obligation else {
                return Err(STRANGE.into());
            };
            match duty {
                ToolDuty::Redact { paths } => duties.redact.extend(places(paths)?),
                ToolDuty::Present { paths } => duties.handles.extend(places(paths)?),
                ToolDuty::Reveal { paths } => duties.reveal.extend(places(paths)?),
                ToolDuty::Label { label } => duties.label = duties.label.joined(label),
                ToolDuty::Cap { rows, bytes } => {
                    duties.rows = least(duties.rows, *rows);
                    duties.bytes = least(duties.bytes, *bytes);
                }
                // The daemon's to do.
                ToolDuty::Notify => {}
                ToolDuty::Tokens { .. } => return Err(STRANGE.into()),
            }
        }
        Ok(duties)
    }

    fn change(&self) -> bool {
        !self.redact.is_empty() || !self.handles.is_empty() || self.rows.is_some()
    }

    /// True when nothing may be seen of it that has not been looked through: a server's own words are not, then.
    pub(crate) fn keeps_back(&self) -> bool {
        !self.redact.is_empty() || !self.handles.is_empty()
    }

    /// Makes a result ready. The error says why it may not be seen.
    pub(crate) fn apply(&self, result: &mut CallToolResult, kept: &Handles, origin: &str) -> Result<(), String> {
        let mut cut = Cut(false);
        if self.change() {
            // What a server says beside the result is for programs, and is not looked through.
            result.meta = None;
            if let Some(value) = &mut result.structured_content {
                self.value(value, kept, origin, &mut cut)?;
            }
            for block in &mut result.content {
                self.block(block, kept, origin, &mut cut)?;
            }
        }
        let mut left_out = Vec::new();
        if let Some(rows) = self.rows.filter(|_| cut.0) {
            left_out.push(format!("{rows} rows"));
        }
        if let Some(bytes) = self.bytes
            && cut_bytes(result, usize::try_from(bytes).unwrap_or(usize::MAX))
        {
            left_out.push(format!("{bytes} bytes"));
        }
        if !left_out.is_empty() {
            let note = format!("[bailiwick left out what is over {}]", left_out.join(" and "));
            result.content.push(ContentBlock::text(note));
        }
        Ok(())
    }

    fn value(&self, value: &mut Value, kept: &Handles, origin: &str, cut: &mut Cut) -> Result<(), String> {
        for place in &self.redact {
            place.each(value, &mut |part| *part = Value::from(KEPT_BACK));
        }
        for place in &self.handles {
            let mut all = Vec::new();
            place.each(value, &mut |part| all.push(std::mem::take(part)));
            let mut stands = self.handles_of(all, kept, origin, Some(place.text()))?.into_iter();
            place.each(value, &mut |part| *part = stands.next().unwrap_or_default());
        }
        if let Some(rows) = self.rows {
            let mut left = rows;
            cut.0 |= cut_rows(value, &mut left);
        }
        Ok(())
    }

    fn block(&self, block: &mut ContentBlock, kept: &Handles, origin: &str, cut: &mut Cut) -> Result<(), String> {
        match block {
            ContentBlock::Text(text) => {
                text.meta = None;
                self.text(&mut text.text, kept, origin, cut)
            }
            ContentBlock::Resource(resource) => {
                resource.meta = None;
                match &mut resource.resource {
                    ResourceContents::TextResourceContents { text, meta, .. } => {
                        *meta = None;
                        self.text(text, kept, origin, cut)
                    }
                    _ => self.opaque(block, kept, origin),
                }
            }
            _ => self.opaque(block, kept, origin),
        }
    }

    fn text(&self, text: &mut String, kept: &Handles, origin: &str, cut: &mut Cut) -> Result<(), String> {
        let read = serde_json::from_str::<Value>(text);
        match read {
            Ok(mut value) if value.is_object() || value.is_array() => {
                self.value(&mut value, kept, origin, cut)?;
                *text = value.to_string();
            }
            _ if !self.handles.is_empty() => {
                let value = Value::from(std::mem::take(text));
                *text = self.handle(value, kept, origin)?.to_string();
            }
            // It could say anything, also what is to be kept back.
            _ if !self.redact.is_empty() => KEPT_BACK.clone_into(text),
            _ => {
                if let Some(rows) = self.rows {
                    cut.0 |= cut_lines(text, rows);
                }
            }
        }
        Ok(())
    }

    /// A picture, a sound, a link: it is not looked into.
    fn opaque(&self, block: &mut ContentBlock, kept: &Handles, origin: &str) -> Result<(), String> {
        if !self.handles.is_empty() {
            let value = serde_json::to_value(&*block).unwrap_or(Value::Null);
            *block = ContentBlock::text(self.handle(value, kept, origin)?.to_string());
        } else if !self.redact.is_empty() {
            *block = ContentBlock::text(KEPT_BACK);
        }
        Ok(())
    }

    /// What stands for a value that cannot be looked into.
    fn handle(&self, value: Value, kept: &Handles, origin: &str) -> Result<Value, String> {
        let stands = self.handles_of(vec![value], kept, origin, None)?;
        Ok(stands.into_iter().next().unwrap_or_default())
    }

    /// What stands for values that one place named: handles, and what may be said of each value.
    fn handles_of(
        &self,
        all: Vec<Value>,
        kept: &Handles,
        origin: &str,
        place: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let said: Vec<Value> = all.iter().map(summary).collect();
        let given = Given {
            tool: origin.to_owned(),
            place: place.map(ToOwned::to_owned),
            all,
            label: self.label.clone(),
        };
        let names = kept.keep(given).map_err(|fault| fault.to_string())?;
        let stands = names.into_iter().zip(said);
        Ok(stands.map(|(name, said)| json!({"handle": name, "of": said})).collect())
    }
}

/// Whether rows were left out.
struct Cut(bool);

/// Cuts lists that lie in no other list, so that they have so many items together. True where any was cut.
fn cut_rows(value: &mut Value, left: &mut u64) -> bool {
    match value {
        Value::Array(all) => {
            let (most, before) = (usize::try_from(*left).unwrap_or(usize::MAX), all.len());
            all.truncate(most);
            *left = left.saturating_sub(u64::try_from(all.len()).unwrap_or(u64::MAX));
            all.len() < before
        }
        Value::Object(map) => {
            let mut cut = false;
            for value in map.values_mut() {
                cut |= cut_rows(value, left);
            }
            cut
        }
        _ => false,
    }
}

fn cut_lines(text: &mut String, rows: u64) -> bool {
    let most = usize::try_from(rows).unwrap_or(usize::MAX);
    if text.lines().count() <= most {
        return false;
    }
    *text = text.lines().take(most).collect::<Vec<_>>().join("\n");
    true
}

/// Cuts the text of a result to so many bytes in all; what is no text goes whole or not at all. True where any was cut.
fn cut_bytes(result: &mut CallToolResult, most: usize) -> bool {
    let mut cut = false;
    if result
        .structured_content
        .as_ref()
        .is_some_and(|value| value.to_string().len() > most)
    {
        result.structured_content = None;
        cut = true;
    }
    let mut left = most;
    result.content.retain_mut(|block| {
        if let ContentBlock::Text(text) = block {
            if text.text.len() > left {
                let end = text.text.floor_char_boundary(left);
                text.text.truncate(end);
                cut = true;
            }
            left = left.saturating_sub(text.text.len());
            return !text.text.is_empty();
        }
        let bytes = serde_json::to_string(block).map_or(usize::MAX, |text| text.len());
        let fits = bytes <= left;
        left = left.saturating_sub(if fits { bytes } else { 0 });
        cut |= !fits;
        fits
    });
    cut
}

/// How many bytes a result has, as it is sent.
pub(crate) fn length(result: &CallToolResult) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, result);
    count.0
}

/// Longest text that is repeated of what a server says about its own failure.
pub(crate) fn quoted(text: &str) -> String {
    bailiwick_model::visible(&text.chars().take(limits::QUOTED).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[&str]) -> Vec<Place> {
        all.iter().map(|text| Place::parse(text).unwrap()).collect()
    }

    fn result() -> CallToolResult {
        let value =
            json!({"name": "Ann", "salary": 98765432, "items": [{"id": 1, "tags": [1, 2, 3]}, {"id": 2}, {"id": 3}]});
        let mut result = CallToolResult::success(vec![
            ContentBlock::text(value.to_string()),
            ContentBlock::text("Ann earns 98765432"),
            ContentBlock::image("aGVsbG8=", "image/png"),
        ]);
        result.structured_content = Some(value);
        result
    }

    #[test]
    fn p6_what_is_kept_back_is_kept_back_in_every_copy() {
        let duties = Duties {
            redact: places(&["/salary"]),
            ..Duties::default()
        };
        let mut result = result();
        duties.apply(&mut result, &Handles::default(), "hr/look").unwrap();
        let all = serde_json::to_string(&result).unwrap();
        assert!(!all.contains("98765432") && !all.contains("aGVsbG8"), "{all}");
        assert!(all.contains("Ann") && all.contains(KEPT_BACK), "{all}");
        assert_eq!(result.structured_content.unwrap()["salary"], KEPT_BACK);
    }

    #[test]
    fn p6_a_handle_stands_for_a_part_and_for_what_cannot_be_read() {
        let duties = Duties {
            handles: places(&["salary"]),
            ..Duties::default()
        };
        let (mut result, kept) = (result(), Handles::default());
        duties.apply(&mut result, &kept, "hr/look").unwrap();
        let all = serde_json::to_string(&result).unwrap();
        assert!(!all.contains("98765432") && !all.contains("aGVsbG8"), "{all}");
        let part = &result.structured_content.unwrap()["salary"];
        let name = part["handle"].as_str().unwrap();
        let (value, given) = kept.open(name).unwrap();
        assert_eq!((value, given.tool.as_str()), (json!(98765432), "hr/look"));
        assert_eq!(given.place.as_deref(), Some("salary"));
        assert_eq!(part["of"], json!({"type": "number"}));
    }

    #[test]
    fn rows_are_cut_and_bytes_refused() {
        let duties = Duties {
            rows: Some(2),
            ..Duties::default()
        };
        let mut some = result();
        duties.apply(&mut some, &Handles::default(), "a/b").unwrap();
        let items = &some.structured_content.as_ref().unwrap()["items"];
        assert_eq!(items, &json!([{"id": 1, "tags": [1, 2, 3]}, {"id": 2}]));
        let mut lines = CallToolResult::success(vec![ContentBlock::text("a\nb\nc")]);
        duties.apply(&mut lines, &Handles::default(), "a/b").unwrap();
        assert_eq!(lines.content[0].as_text().unwrap().text, "a\nb");
        assert_eq!(
            lines.content[1].as_text().unwrap().text,
            "[bailiwick left out what is over 2 rows]"
        );
        let duties = Duties {
            bytes: Some(60),
            ..Duties::default()
        };
        let mut some = result();
        duties.apply(&mut some, &Handles::default(), "a/b").unwrap();
        assert_eq!(some.structured_content, None);
        let texts: Vec<&str> = some
            .content
            .iter()
            .map(|block| block.as_text().unwrap().text.as_str())
            .collect();
        assert_eq!(texts[0].len(), 60);
        assert_eq!(texts[1..], ["[bailiwick left out what is over 60 bytes]"]);
    }
}
