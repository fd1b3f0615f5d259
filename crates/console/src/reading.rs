//! How far a question was read: it is served in parts, and a yes is taken after the last one only.
//!
//! Promises: P8 (nobody says yes to what they were not shown whole: the last part carries a nonce that a yes must name, parts are
//! served one after the other, and a yes within half a second of the last is not taken). Trust: the lines are the agent's; their
//! number and length are what it likes.

use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Asked, Detail};
use bailiwick_model::visible;
use sha2::{Digest as _, Sha256};

/// A yes so soon after the last part was served was not meant for it: a key that was already pressed, a click for what stood
/// there before.
pub const TOO_SOON: Duration = Duration::from_millis(500);

/// Most lines of a part.
const PART_LINES: usize = 200;

/// Most characters of a part.
const PART_CHARS: usize = 16_000;

/// Longest piece of a line that stands as one.
const PIECE: usize = 4_000;

/// A part of a question's details.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Its pieces, each of one detail.
    pub pieces: Vec<Piece>,
}

/// Lines of one detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The detail's name.
    pub name: String,
    /// What to mind about it.
    pub mind: Option<String>,
    /// True where the part before held its beginning.
    pub goes_on: bool,
    /// How many lines the whole detail has.
    pub of: usize,
    /// The lines: number, text, and true where the text goes on a line that was cut for its length.
    pub lines: Vec<(usize, String, bool)>,
}

/// Cuts details into parts. Nothing is left out: the texts of all parts, one after the other, are those of the details.
pub fn parts(details: &[Detail]) -> Vec<Part> {
    let mut all = Vec::new();
    let mut part = Part::default();
    let (mut lines, mut chars) = (0usize, 0usize);
    for detail in details {
        let begin = |goes_on| Piece {
            name: visible(&detail.name),
            mind: detail.mind.as_deref().map(visible),
            goes_on,
            of: detail.lines.len(),
            lines: Vec::new(),
        };
        let mut piece = begin(false);
        for (number, line) in detail.lines.iter().enumerate() {
            for (place, text) in cut(&visible(line)).into_iter().enumerate() {
                let length = text.chars().count();
                if lines >= PART_LINES || (lines > 0 && chars.saturating_add(length) > PART_CHARS) {
                    let next = begin(!piece.lines.is_empty() || piece.goes_on);
                    let full = std::mem::replace(&mut piece, next);
                    if !full.lines.is_empty() {
                        part.pieces.push(full);
                    }
                    all.push(std::mem::take(&mut part));
                    (lines, chars) = (0, 0);
                }
                piece.lines.push((number.saturating_add(1), text, place > 0));
                lines = lines.saturating_add(1);
                chars = chars.saturating_add(length);
            }
        }
        part.pieces.push(piece);
    }
    if all.is_empty() || !part.pieces.is_empty() {
        all.push(part);
    }
    all
}

/// A line in pieces that are not too long for a page.
fn cut(line: &str) -> Vec<String> {
    if line.len() <= PIECE {
        return vec![line.to_owned()];
    }
    let all: Vec<char> = line.chars().collect();
    all.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

/// What a person reads of a question, as a digest: when it is another, reading begins anew.
pub fn content(asked: &Asked) -> [u8; 32] {
    let text = serde_json::to_vec(&(&asked.digest, &asked.sentence, &asked.details, &asked.offers));
    // Texts and numbers alone: writing them cannot fail.
    Sha256::digest(text.unwrap_or_default()).into()
}

/// How far one session has read one question.
#[derive(Debug)]
pub struct Reading {
    content: [u8; 32],
    parts: usize,
    served: usize,
    nonce: String,
    ready: Option<Instant>,
}

/// Why a yes is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// The last part was not served, or the form does not carry what stood in it.
    Unread,
    /// The last part, or the sentence of this yes, came a moment ago.
    TooSoon,
}

impl Reading {
    /// Nothing was read yet.
    pub fn begin(content: [u8; 32], parts: usize, nonce: String) -> Self {
        Self {
            content,
            parts: parts.max(1),
            served: 0,
            nonce,
            ready: None,
        }
    }

    /// True for the question that was read.
    pub fn is_of(&self, content: &[u8; 32]) -> bool {
        self.content == *content
    }

    /// The part that can be served, counted from zero: none that lies beyond the one after the last.
    pub fn serve(&mut self, wanted: usize, now: Instant) -> usize {
        let part = wanted.min(self.served).min(self.parts.saturating_sub(1));
        self.served = self.served.max(part.saturating_add(1));
        if self.served == self.parts {
            // The yes appears with it, or a moment ago it did with another page.
            self.ready = Some(now);
        }
        part
    }

    /// A sentence with its yes is shown: it is not taken right away.
    pub fn show(&mut self, now: Instant) {
        if self.ready.is_some() {
            self.ready = Some(now);
        }
    }

    /// What the last part carries; none before that was served.
    pub fn nonce(&self) -> Option<&str> {
        self.ready.map(|_| self.nonce.as_str())
    }

    /// True when a yes is taken.
    pub fn take(&self, nonce: &str, now: Instant) -> Result<(), NotYet> {
        match self.ready {
            None => Err(NotYet::Unread),
            Some(_) if nonce != self.nonce => Err(NotYet::Unread),
            Some(ready) if now.saturating_duration_since(ready) < TOO_SOON => Err(NotYet::TooSoon),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(name: &str, lines: Vec<String>) -> Detail {
        Detail {
            name: name.into(),
            lines,
            mind: None,
        }
    }

    #[test]
    fn p8_parts_hold_all_of_a_question() {
        let details = [
            detail("program", vec!["rm".into()]),
            detail("word 1", (0..1000).map(|n| format!("line {n}")).collect()),
            detail("word 2", vec!["x".repeat(50_000) + "; rm -r keep"]),
            detail("empty", vec![String::new()]),
        ];
        let parts = parts(&details);
        assert!(parts.len() > 6, "{}", parts.len());
        for wanted in &details {
            let mut lines: Vec<String> = Vec::new();
            for piece in parts
                .iter()
                .flat_map(|part| &part.pieces)
                .filter(|piece| piece.name == wanted.name)
            {
                assert_eq!(piece.goes_on, !lines.is_empty());
                for (_, text, goes_on) in &piece.lines {
                    match (goes_on, lines.last_mut()) {
                        (true, Some(last)) => last.push_str(text),
                        _ => lines.push(text.clone()),
                    }
                }
            }
            assert_eq!(lines, wanted.lines, "{}", wanted.name);
        }
        for part in &parts {
            let lines = part.pieces.iter().flat_map(|piece| &piece.lines);
            assert!(lines.clone().count() <= PART_LINES);
            assert!(lines.map(|(_, text, _)| text.chars().count()).sum::<usize>() <= PART_CHARS + PIECE);
        }
        assert_eq!(super::parts(&[]).len(), 1);
    }

    #[test]
    fn p8_a_yes_comes_after_the_last_part_and_not_at_once() {
        let now = Instant::now();
        let mut reading = Reading::begin([0; 32], 3, "n".into());
        assert_eq!(reading.take("n", now), Err(NotYet::Unread));
        assert_eq!(reading.serve(2, now), 0, "no part is left out");
        assert_eq!(reading.serve(1, now), 1);
        assert_eq!((reading.nonce(), reading.take("n", now)), (None, Err(NotYet::Unread)));
        assert_eq!(reading.serve(2, now), 2);
        assert_eq!(reading.take("n", now), Err(NotYet::TooSoon));
        let later = now + TOO_SOON;
        assert_eq!(reading.take("m", later), Err(NotYet::Unread));
        assert_eq!(reading.take("n", later), Ok(()));
        reading.show(later);
        assert_eq!(reading.take("n", later), Err(NotYet::TooSoon));
    }
}
