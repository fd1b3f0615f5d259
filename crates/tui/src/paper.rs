//! A text of any length, broken into rows for a width, of which a window is looked at.
//!
//! Promises: P8 (no row is left out; it is known how far the rows have been shown). Memory: the text once, and three numbers a
//! row. Drawing costs what fits on the screen.

use crate::cells::{self, Break};

/// What a line is, which says how it is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ink {
    /// Text.
    #[default]
    Plain,
    /// What is asked.
    Question,
    /// A heading.
    Heading,
    /// What matters less.
    Faint,
    /// What a person should mind.
    Mind,
    /// The agent's own words.
    Agent,
    /// What a yes says.
    Grant,
}

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// What stands before its first row.
    pub name: String,
    /// What stands before its other rows.
    pub below: String,
    /// The text, safe.
    pub text: String,
    /// What it is.
    pub ink: Ink,
    /// True to break it at the edge only.
    pub exact: bool,
    /// Its number among the lines of one value, and how many they are.
    pub number: Option<(usize, usize)>,
}

impl Line {
    /// Prose.
    pub fn prose(ink: Ink, text: impl AsRef<str>) -> Self {
        Self {
            text: cells::safe(text.as_ref()).into_owned(),
            ink,
            ..Self::default()
        }
    }

    /// Prose that begins after a name.
    pub fn named(name: &str, column: usize, ink: Ink, text: impl AsRef<str>) -> Self {
        let name = cells::safe(name);
        let gap = column.saturating_sub(cells::width(&name));
        Self {
            name: format!("{name}{}", " ".repeat(gap)),
            below: " ".repeat(column),
            ..Self::prose(ink, text)
        }
    }
}

/// One row: a line, and which bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    line: usize,
    start: usize,
    end: usize,
}

/// One row to be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn<'a> {
    /// What stands before it.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// What it is.
    pub ink: Ink,
}

/// Where the lower edge of the window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The first row of the window, from 1.
    pub first: usize,
    /// The last.
    pub last: usize,
    /// How many there are.
    pub of: usize,
    /// In a value of several rows: line, lines, column of the last row's beginning.
    pub within: Option<(usize, usize, usize)>,
}

/// The text and the window on it.
#[derive(Debug, Clone, Default)]
pub struct Paper {
    lines: Vec<Line>,
    rows: Vec<Row>,
    size: (usize, usize),
    top: usize,
    /// How many lines must have been shown.
    needed: usize,
    /// True once the last row of the last needed line has been drawn.
    shown: bool,
}

impl Paper {
    /// Of these lines the first `needed` must be shown before anything is said to them.
    pub fn new(lines: Vec<Line>, needed: usize) -> Self {
        Self {
            needed: needed.min(lines.len()),
            lines,
            ..Self::default()
        }
    }

    /// Gives the window another size; the row at its top stays there.
    pub fn set_size(&mut self, width: usize, height: usize) {
        if self.size == (width, height) {
            return;
        }
        if self.size.0 != width {
            let held = self.rows.get(self.top).copied();
            self.rows.clear();
            for (number, line) in self.lines.iter().enumerate() {
                let taken = cells::width(&line.name).max(cells::width(&line.below));
                let breaks = if line.exact { Break::Edge } else { Break::Words };
                for row in cells::rows(&line.text, width.saturating_sub(taken), breaks) {
                    self.rows.push(Row {
                        line: number,
                        start: row.start,
                        end: row.end,
                    });
                }
            }
            if let Some(held) = held {
                let below = |row: &Row| (row.line, row.start) <= (held.line, held.start);
                self.top = self.rows.partition_point(below).saturating_sub(1);
            }
        }
        self.size = (width, height);
        self.scroll_to(self.top);
    }

    /// Moves the window so that this row is at its top, as far as there are rows.
    pub fn scroll_to(&mut self, row: usize) {
        self.top = row.min(self.last_top());
    }

    /// Moves the window by rows.
    pub fn scroll(&mut self, rows: isize) {
        self.scroll_to(self.top.saturating_add_signed(rows));
    }

    /// A page, less one row to hold on to.
    pub fn page(&self) -> isize {
        isize::try_from(self.size.1.saturating_sub(1).max(1)).unwrap_or(1)
    }

    /// To the end.
    pub fn scroll_to_end(&mut self) {
        self.top = self.last_top();
    }

    fn last_top(&self) -> usize {
        self.rows.len().saturating_sub(self.size.1)
    }

    /// True when there is something below the window.
    pub fn goes_on(&self) -> bool {
        self.top < self.last_top()
    }

    /// Notes that the window has been drawn.
    pub fn drawn(&mut self) {
        self.shown |= self.shows_end();
    }

    /// True when the end of what must be shown is in the window, or above it.
    pub fn shows_end(&self) -> bool {
        let bottom = self.top.saturating_add(self.size.1);
        let rest = self.rows.get(bottom..).unwrap_or_default();
        self.size.1 > 0 && rest.first().is_none_or(|row| row.line >= self.needed)
    }

    /// True once the end of what must be shown has been shown.
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    /// Hands the window over to other paper; what has been shown of it only where the needed lines are the same.
    pub fn hand_over(&self, to: &mut Self, same: bool) {
        let (width, height) = self.size;
        to.set_size(width, height);
        to.scroll_to(self.top);
        to.shown = same && self.shown;
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The first row of a line.
    pub fn row_of(&self, line: usize) -> usize {
        self.rows.partition_point(|row| row.line < line)
    }

    /// The rows of the window.
    pub fn window(&self) -> impl Iterator<Item = Drawn<'_>> {
        self.rows.iter().skip(self.top).take(self.size.1).filter_map(|row| {
            let line = self.lines.get(row.line)?;
            Some(Drawn {
                name: if row.start == 0 { &line.name } else { &line.below },
                text: line.text.get(row.start..row.end)?,
                ink: line.ink,
            })
        })
    }

    /// Where the window is.
    pub fn position(&self) -> Position {
        let last = self.top.saturating_add(self.size.1).min(self.rows.len());
        let row = last.checked_sub(1).and_then(|last| self.rows.get(last));
        let within = row.and_then(|row| {
            let line = self.lines.get(row.line)?;
            let (number, of) = line.number?;
            let column = line.text.get(..row.start)?.chars().count().saturating_add(1);
            Some((number, of, column))
        });
        Position {
            first: self.top.saturating_add(1).min(last),
            last,
            of: self.rows.len(),
            within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(lines: &[&str], needed: usize) -> Paper {
        Paper::new(lines.iter().map(|text| Line::prose(Ink::Plain, text)).collect(), needed)
    }

    #[test]
    fn c047_the_end_counts_only_when_it_was_drawn() {
        let lines: Vec<String> = (0..250).map(|line| format!("line {line}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut paper = paper(&lines, 249);
        paper.set_size(80, 20);
        paper.drawn();
        assert!(!paper.is_shown());
        paper.scroll(228);
        assert!(!paper.is_shown(), "moved, not drawn");
        paper.drawn();
        assert!(!paper.is_shown(), "one is missing");
        paper.scroll(1);
        paper.drawn();
        assert!(paper.is_shown());
        assert!(paper.goes_on());
        assert_eq!(
            paper.position(),
            Position {
                first: 230,
                last: 249,
                of: 250,
                within: None
            }
        );
    }

    #[test]
    fn nothing_is_shown_where_there_is_no_room() {
        let mut paper = paper(&["a"], 1);
        paper.set_size(80, 0);
        paper.drawn();
        assert!(!paper.is_shown());
    }

    #[test]
    fn another_width_keeps_the_row_at_the_top() {
        let long = "x".repeat(400);
        let mut paper = Paper::new(
            vec![
                Line {
                    exact: true,
                    ..Line::prose(Ink::Plain, &long)
                },
                Line {
                    exact: true,
                    ..Line::prose(Ink::Plain, &long)
                },
            ],
            2,
        );
        paper.set_size(40, 5);
        paper.scroll_to(12);
        paper.set_size(20, 5);
        assert_eq!(paper.top, 24);
        paper.set_size(40, 5);
        assert_eq!(paper.top, 12);
    }
}
