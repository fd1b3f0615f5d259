//! Text in the cells of a terminal: made safe, measured, broken into rows, put down.
//!
//! Promises: P8 (no character of a text draws anything but itself: what controls, hides, joins, stacks or turns its neighbours
//! is written out). Trust: every text is the agent's until it has been through [`safe`]; [`put`] looks once more.

use std::borrow::Cow;
use std::ops::Range;

use bailiwick_model::visible;
use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthChar;

/// Stands in the place of a character that should not have come this far.
const STRAY: char = '\u{fffd}';

/// How many cells a character takes; none for one that does not go to a terminal.
fn cells(character: char) -> Option<usize> {
    let joins = matches!(u32::from(character),
        // Skin tones, and the letters that two by two are flags: they become one with their neighbours.
        0x1f3fb..=0x1f3ff | 0x1f1e6..=0x1f1ff
        // The Braille pattern without dots.
        | 0x2800);
    let blank = character.is_whitespace() && character != ' ';
    match character.width() {
        Some(0) | None => None,
        Some(_) if joins || blank => None,
        wide => wide,
    }
}

/// The text with every character written out that a terminal would not show as itself, in cells of its own. What is safe
/// already stays as it is.
pub fn safe(text: &str) -> Cow<'_, str> {
    let plain = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if plain(text) {
        return Cow::Borrowed(text);
    }
    let seen = visible(text);
    if seen == text && seen.chars().all(|c| cells(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(seen.len());
    for character in seen.chars() {
        match cells(character) {
            Some(_) => out.push(character),
            None => out.push_str(&format!("\\u{{{:x}}}", u32::from(character))),
        }
    }
    Cow::Owned(out)
}

/// How many cells a safe text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| cells(c).unwrap_or(1)).sum()
}

/// The beginning of a text that fits, with an ellipsis where something is left out.
pub fn cut(text: &str, room: usize) -> Cow<'_, str> {
    let mut used = 0usize;
    let mut fits = 0usize;
    for (at, character) in text.char_indices() {
        let wide = cells(character).unwrap_or(1);
        if used.saturating_add(wide) > room {
            let head = text.get(..fits).unwrap_or_default();
            return Cow::Owned(if room == 0 { String::new() } else { format!("{head}…") });
        }
        used = used.saturating_add(wide);
        if used < room {
            fits = at.saturating_add(character.len_utf8());
        }
    }
    Cow::Borrowed(text)
}

/// How a line that is too long is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// At blanks, where there are some.
    Words,
    /// At the edge: what stands there counts character by character.
    Edge,
}

/// The rows of a line, as ranges of its bytes; at least one. Together they hold every character.
pub fn rows(text: &str, room: usize, breaks: Break) -> Vec<Range<usize>> {
    let room = room.max(2);
    let mut all = Vec::new();
    let (mut start, mut used) = (0usize, 0usize);
    // Where the row could end, and how much of it would be used then.
    let mut blank: Option<(usize, usize)> = None;
    for (at, character) in text.char_indices() {
        let wide = cells(character).unwrap_or(1);
        // A word that moves to the next row may fill that, too.
        while used.saturating_add(wide) > room {
            let (end, after) = match (breaks, blank) {
                (Break::Words, Some((end, taken))) => (end, used.saturating_sub(taken)),
                _ => (at, 0),
            };
            all.push(start..end);
            start = end;
            used = after;
            blank = None;
        }
        used = used.saturating_add(wide);
        if character == ' ' {
            blank = Some((at.saturating_add(1), used));
        }
    }
    all.push(start..text.len());
    all
}

/// Puts a text down from a cell on, as far as it fits before the edge: the cell after it.
pub fn put(buffer: &mut Buffer, (x, y): (u16, u16), edge: u16, text: &str, style: Style) -> u16 {
    let area = buffer.area;
    if y < area.top() || y >= area.bottom() {
        return x;
    }
    let edge = edge.min(area.right());
    let mut x = x;
    for character in text.chars() {
        let (character, wide) = match cells(character) {
            Some(wide) => (character, u16::try_from(wide).unwrap_or(1)),
            None => (STRAY, 1),
        };
        let after = x.saturating_add(wide);
        if after > edge {
            break;
        }
        if let Some(cell) = buffer.cell_mut((x, y)) {
            cell.set_char(character).set_style(style);
        }
        // The second half of a wide character is no cell to be drawn.
        for half in x.saturating_add(1)..after {
            if let Some(cell) = buffer.cell_mut((half, y)) {
                cell.reset();
                cell.set_style(style);
            }
        }
        x = after;
    }
    x
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::layout::Rect;

    use super::*;

    #[test]
    fn c048_what_draws_is_written_out() {
        for (text, want) in [
            ("a\u{1b}[2K\u{1b}[1Ab", "a\\u{1b}[2K\\u{1b}[1Ab"),
            ("\u{1b}]52;c;aGk=\u{7}", "\\u{1b}]52;c;aGk=\\u{7}"),
            ("rm\r ls", "rm\\r ls"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("r\u{200b}m", "r\\u{200b}m"),
            ("e\u{301}", "e\\u{301}"),
            ("\u{9b}2K", "\\u{9b}2K"),
            ("a\u{a0}b\u{3000}c\u{2800}", "a\\u{a0}b\\u{3000}c\\u{2800}"),
            ("\u{1f44d}\u{1f3fd}", "\u{1f44d}\\u{1f3fd}"),
            ("größe 日本 \u{1f980}", "größe 日本 \u{1f980}"),
            ("\\u{1b}", "\\u{1b}"),
        ] {
            assert_eq!(safe(text), want);
            assert_eq!(safe(&safe(text)), want, "twice is once");
        }
    }

    #[test]
    fn texts_are_cut_with_a_mark() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("ab", 0), "");
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        let text = "may run git push origin";
        let shown: Vec<&str> = rows(text, 10, Break::Words).into_iter().map(|row| &text[row]).collect();
        assert_eq!(shown, ["may run ", "git push ", "origin"]);
        let shown: Vec<&str> = rows(text, 10, Break::Edge).into_iter().map(|row| &text[row]).collect();
        assert_eq!(shown, ["may run gi", "t push ori", "gin"]);
    }

    #[test]
    fn wide_characters_keep_to_their_cells() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 5, 1));
        assert_eq!(put(&mut buffer, (0, 0), 5, "日本語", Style::default()), 4);
        assert_eq!(put(&mut buffer, (4, 0), 5, "\u{1b}x", Style::default()), 5);
        let row: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert_eq!(row, ["日", " ", "本", " ", "\u{fffd}"]);
    }

    proptest! {
        #[test]
        fn c048_nothing_safe_draws(text in any::<String>()) {
            let safe = safe(&text);
            for character in safe.chars() {
                prop_assert!(!character.is_control() && cells(character).is_some(), "{character:?}");
            }
        }

        #[test]
        fn c047_rows_lose_nothing_and_fit(text in "[ a-z日é]{0,200}", room in 2usize..40, words in any::<bool>()) {
            let breaks = if words { Break::Words } else { Break::Edge };
            let mut whole = String::new();
            for row in rows(&text, room, breaks) {
                let row = &text[row];
                prop_assert!(width(row) <= room);
                whole.push_str(row);
            }
            prop_assert_eq!(whole, text);
        }
    }
}
