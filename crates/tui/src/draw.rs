//! Draws the state. What it costs goes with the screen, not with how much there is.
//!
//! Promises: P8 (every text goes through `cells::put`, which lets nothing through that draws).

use bailiwick_gate::desk::{AtWork, Granted};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::cells::{cut, put, safe, width};
use crate::entry::{Entry, Purpose};
use crate::page::{Fate, QuestionPage};
use crate::paper::{Ink, Paper};
use crate::questions::{Shown, headline};
use crate::rows::Rows;
use crate::state::{Layer, State, View};
use crate::terms::TermsPage;
use crate::{hints, times};

/// Styles, with colours or without.
#[derive(Debug, Clone, Copy)]
struct Pens {
    coloured: bool,
}

impl Pens {
    fn pen(self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.coloured { style.fg(colour) } else { style }
    }

    fn of(self, ink: Ink) -> Style {
        match ink {
            Ink::Plain => Style::new(),
            Ink::Question => Style::new().add_modifier(Modifier::BOLD),
            Ink::Heading => self.pen(Color::Cyan, Modifier::BOLD),
            Ink::Faint => Style::new().add_modifier(Modifier::DIM),
            Ink::Mind => self.pen(Color::Yellow, Modifier::BOLD),
            Ink::Agent => self.pen(Color::Magenta, Modifier::empty()),
            Ink::Grant => self.pen(Color::Green, Modifier::BOLD),
        }
    }

    fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn bad(self) -> Style {
        self.pen(Color::Red, Modifier::BOLD)
    }

    fn good(self) -> Style {
        self.pen(Color::Green, Modifier::empty())
    }
}

/// A sheet to draw on, with its pens.
struct Sheet<'a> {
    buffer: &'a mut Buffer,
    pens: Pens,
    edge: u16,
}

impl Sheet<'_> {
    fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        put(self.buffer, (x, y), self.edge, text, style)
    }

    /// Puts a text so that it ends at the edge; where it begins.
    fn put_right(&mut self, y: u16, text: &str, style: Style) -> u16 {
        let wide = u16::try_from(width(text)).unwrap_or(u16::MAX);
        let x = self.edge.saturating_sub(wide);
        self.put(x, y, text, style);
        x
    }

    fn fill(&mut self, y: u16, style: Style) {
        let area = ratatui::layout::Rect::new(0, y, self.edge, 1);
        let area = area.intersection(self.buffer.area);
        self.buffer.set_style(area, style);
    }

    fn room(&self, x: u16) -> usize {
        usize::from(self.edge.saturating_sub(x))
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let (columns, rows) = state.size;
    let pens = Pens {
        coloured: state.coloured,
    };
    let mut sheet = Sheet {
        buffer: frame.buffer_mut(),
        pens,
        edge: columns,
    };
    if state.is_too_small() {
        sheet.put(0, 0, "too small to answer", pens.bad());
        sheet.put(0, 1, "make it larger", Style::new());
        return;
    }
    head(&mut sheet, state);
    let foot = rows.saturating_sub(1);
    match state.top() {
        None => list(&mut sheet, state),
        Some(Layer::Question(page)) => question(&mut sheet, state, page),
        Some(Layer::Offers(_, chosen)) => offers(&mut sheet, state, chosen),
        Some(Layer::Terms(form)) => terms(&mut sheet, state, form),
        Some(Layer::Entry(entry)) if entry.purpose == Purpose::Filter => list(&mut sheet, state),
        Some(Layer::Entry(entry)) => word(&mut sheet, state, entry),
        Some(Layer::Grant(_, paper) | Layer::Sure(_, paper, _) | Layer::Help(paper)) => on_paper(&mut sheet, 1, paper),
    }
    notice(&mut sheet, state, foot.saturating_sub(1));
    keys(&mut sheet, state, foot);
}

fn head(sheet: &mut Sheet<'_>, state: &State) {
    let bar = sheet.pens.selected();
    sheet.fill(0, bar);
    let counts = [
        (View::Questions, "Questions", state.questions.all().len()),
        (View::Grants, "Grants", state.granted.len()),
        (View::Tasks, "Tasks", state.at_work.len()),
    ];
    let mut x = if sheet.edge >= 56 {
        sheet.put(0, 0, " Bailiwick  ", bar.add_modifier(Modifier::BOLD))
    } else {
        0
    };
    for (view, name, count) in counts {
        let text = format!(" {name} {count} ");
        let chosen = view == state.view;
        let style = if chosen {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            bar
        };
        // Without colours and reversal, brackets still tell.
        let text = if chosen { format!("[{name} {count}]") } else { text };
        x = sheet.put(x, 0, &text, style);
    }
    let time = times::local(state.now, state.now, &state.zone);
    let who = safe(&state.by.name).into_owned();
    let right = format!(" {who}  {time} ");
    if sheet.room(x) > width(&right) {
        sheet.put_right(0, &right, bar);
    }
}

fn keys(sheet: &mut Sheet<'_>, state: &State, y: u16) {
    let mut x = 0;
    for (key, what) in hints::now(state) {
        let gap = if x == 0 { 0 } else { 2 };
        if sheet.room(x) < width(key).saturating_add(width(what)).saturating_add(1 + gap) {
            continue;
        }
        let at = x.saturating_add(u16::try_from(gap).unwrap_or(0));
        let after = sheet.put(at, y, key, Style::new().add_modifier(Modifier::BOLD));
        x = sheet.put(after.saturating_add(1), y, what, sheet.pens.faint());
    }
}

fn notice(sheet: &mut Sheet<'_>, state: &State, y: u16) {
    if let Some(Layer::Entry(entry)) = state.top()
        && entry.purpose == Purpose::Filter
    {
        let text = format!("/{}▏", tail(&entry.text, sheet.room(2)));
        sheet.put(0, y, &text, Style::new().add_modifier(Modifier::BOLD));
        return;
    }
    let style = if state.is_told_badly() {
        sheet.pens.bad()
    } else {
        sheet.pens.good()
    };
    let rows = state.told();
    let first = y
        .saturating_add(1)
        .saturating_sub(u16::try_from(rows.len()).unwrap_or(1));
    for (y, row) in (first..).zip(&rows) {
        sheet.put(0, y, row, style);
    }
}

/// The end of a text that fits.
fn tail(text: &str, room: usize) -> String {
    let mut kept: Vec<char> = Vec::new();
    let mut used = 0usize;
    for character in text.chars().rev() {
        used = used.saturating_add(width(character.encode_utf8(&mut [0; 4])));
        if used > room {
            break;
        }
        kept.push(character);
    }
    kept.iter().rev().collect()
}

fn on_paper(sheet: &mut Sheet<'_>, y: u16, paper: &Paper) {
    let mut y = y;
    for row in paper.window() {
        let x = sheet.put(0, y, row.name, sheet.pens.faint());
        let style = sheet.pens.of(row.ink);
        sheet.put(x, y, row.text, style);
        y = y.saturating_add(1);
    }
}

fn list(sheet: &mut Sheet<'_>, state: &State) {
    match state.view {
        View::Questions => questions(sheet, state),
        View::Grants => grants(sheet, state),
        View::Tasks => tasks(sheet, state),
    }
}

fn empty(sheet: &mut Sheet<'_>, state: &State, text: &str, more: &str) {
    let text = if state.heard { text } else { "asking the daemon" };
    sheet.put(2, 2, text, Style::new());
    if state.heard {
        sheet.put(2, 3, more, sheet.pens.faint());
    }
}

/// How a row begins: with a mark where it is selected.
fn mark(sheet: &mut Sheet<'_>, y: u16, selected: bool) -> Style {
    if selected {
        let style = sheet.pens.selected();
        sheet.fill(y, style);
        sheet.put(0, y, "›", style);
        style
    } else {
        Style::new()
    }
}

fn questions(sheet: &mut Sheet<'_>, state: &State) {
    if state.questions.rows.len() == 0 {
        let filter = state.questions.filter();
        if filter.is_empty() {
            return empty(
                sheet,
                state,
                "Nothing waits for you.",
                "What an agent asks comes up here by itself.",
            );
        }
        let none = format!("None of them holds `{}`.", safe(filter));
        return empty(sheet, state, &none, "Esc shows all.");
    }
    let mut y = 1;
    for (shown, selected) in state.questions.window() {
        let style = mark(sheet, y, selected);
        match shown {
            Shown::Kind { kind, count, folded } => {
                let fold = if folded { "▸" } else { "▾" };
                let count = format!("  {count} alike ");
                let right = sheet.put_right(y, &count, style.add_modifier(Modifier::DIM));
                let x = sheet.put(2, y, fold, style);
                let room = usize::from(right.saturating_sub(x).saturating_sub(1));
                let begin: String = kind.chars().take(room.saturating_add(1)).collect();
                let bold = style.add_modifier(Modifier::BOLD);
                sheet.put(x.saturating_add(1), y, &cut(&safe(&begin), room), bold);
            }
            Shown::Question { asked, under } => {
                let x = if under { 4 } else { 2 };
                let left = asked.deadline.0.saturating_sub(state.now.0);
                let time = format!("  {} ", if left == 0 { "over".into() } else { times::span(left) });
                let soon = left < 60_000 && !selected;
                let pen = if soon {
                    sheet.pens.of(Ink::Mind)
                } else {
                    style.add_modifier(Modifier::DIM)
                };
                let right = sheet.put_right(y, &time, pen);
                let folder = asked.context.0.rsplit('/').next().unwrap_or_default();
                let folder = cut(&safe(folder), 16).into_owned();
                let right = if sheet.edge >= 60 && !folder.is_empty() {
                    let at = right.saturating_sub(u16::try_from(width(&folder)).unwrap_or(0));
                    put(sheet.buffer, (at, y), right, &folder, style.add_modifier(Modifier::DIM));
                    at.saturating_sub(1)
                } else {
                    right
                };
                let room = usize::from(right.saturating_sub(x));
                sheet.put(x, y, &headline(asked, room), style);
            }
        }
        y = y.saturating_add(1);
    }
}

fn grants(sheet: &mut Sheet<'_>, state: &State) {
    if state.grants.len() == 0 {
        let more = "A yes that is wider than one request stands here until it ends.";
        return empty(sheet, state, "No grant holds.", more);
    }
    let mut y = 1;
    for (id, selected) in state.grants.window() {
        let Some(grant) = state.granted.iter().find(|grant| grant.id == *id) else {
            continue;
        };
        let style = mark(sheet, y, selected);
        let room = sheet.room(2);
        let begin: String = grant.sentence.chars().take(room.saturating_add(1)).collect();
        sheet.put(2, y, &cut(&safe(&begin), room), style);
        let facts = cut(&about(grant, state), sheet.room(4)).into_owned();
        sheet.put(4, y.saturating_add(1), &facts, sheet.pens.faint());
        y = y.saturating_add(2);
    }
}

fn about(grant: &Granted, state: &State) -> String {
    let used = match grant.terms.count {
        Some(count) => format!("used {} of {count}", grant.used),
        None if grant.used == 1 => "used once".into(),
        None => format!("used {} times", grant.used),
    };
    let ends = grant.terms.until.map(|until| {
        let left = times::span(until.0.saturating_sub(state.now.0));
        format!(", ends {} ({left})", times::local(until, state.now, &state.zone))
    });
    let by = safe(&grant.by.join(", ")).into_owned();
    format!("{}  {used}{}, by {by}", grant.id, ends.unwrap_or_default())
}

fn tasks(sheet: &mut Sheet<'_>, state: &State) {
    if state.tasks.len() == 0 {
        return empty(sheet, state, "No task runs.", "`bailiwick run -- PROGRAM` starts one.");
    }
    let mut y = 1;
    for (id, selected) in state.tasks.window() {
        let Some(task) = state.at_work.iter().find(|task| task.id == *id) else {
            continue;
        };
        let style = mark(sheet, y, selected);
        let since = format!("  since {} ", times::local(task.started, state.now, &state.zone));
        let right = sheet.put_right(y, &since, style.add_modifier(Modifier::DIM));
        let room = usize::from(right.saturating_sub(2));
        sheet.put(2, y, &cut(&task_line(task, room), room), style);
        y = y.saturating_add(1);
    }
}

fn task_line(task: &AtWork, room: usize) -> String {
    let text = format!("{}  {}  {}", task.id, task.command.join(" "), task.context);
    let begin: String = text.chars().take(room.saturating_add(1)).collect();
    safe(&begin).into_owned()
}

fn question(sheet: &mut Sheet<'_>, state: &State, page: &QuestionPage) {
    let asked = &page.asked;
    let left = asked.deadline.0.saturating_sub(state.now.0);
    let (text, style) = match &page.fate {
        Fate::Waits if left == 0 => ("over: its deadline has passed".to_owned(), sheet.pens.bad()),
        Fate::Waits => {
            let at = times::local(asked.deadline, state.now, &state.zone);
            let soon = left < 60_000;
            let style = if soon {
                sheet.pens.of(Ink::Mind)
            } else {
                sheet.pens.faint()
            };
            (format!("q-{}  no in {} ({at})", asked.id, times::span(left)), style)
        }
        Fate::Sent => ("the answer is on its way".to_owned(), sheet.pens.good()),
        Fate::Over(why) => (format!("over: {why}"), sheet.pens.bad()),
    };
    let place = place(&page.paper);
    let right = sheet.put_right(1, &place, sheet.pens.faint());
    let room = usize::from(right.saturating_sub(1));
    sheet.put(0, 1, &cut(&text, room), style);
    on_paper(sheet, 2, &page.paper);
}

/// Where the window is on the paper.
fn place(paper: &Paper) -> String {
    let at = paper.position();
    if at.first <= 1 && at.last == at.of {
        return "all of it".into();
    }
    let within = at.within.map(|(line, of, column)| match (of, column) {
        (1, column) => format!("column {column}, "),
        (of, 1) => format!("line {line} of {of}, "),
        (of, column) => format!("line {line} of {of} column {column}, "),
    });
    let more = if at.last < at.of { " ↓" } else { " end" };
    format!("{}row {} of {}{more}", within.unwrap_or_default(), at.last, at.of)
}

fn offers(sheet: &mut Sheet<'_>, state: &State, chosen: &Rows<usize>) {
    let heading = sheet.pens.of(Ink::Heading);
    sheet.put(0, 1, "What a yes may cover, from narrow to wide: the agent", heading);
    let Some(page) = state.page() else { return };
    let end = below(state);
    let mut y = 2;
    for (place, selected) in chosen.window() {
        let Some(offer) = page.asked.offers.get(*place) else {
            continue;
        };
        if y >= end {
            break;
        }
        let style = mark(sheet, y, selected);
        let number = format!("{place} ");
        let x = sheet.put(2, y, &number, style.add_modifier(Modifier::DIM));
        let once = if offer.is_request() { ", once" } else { "" };
        // The whole sentence comes with its terms, before the yes.
        let room = sheet.room(x);
        let begin: String = offer.says.chars().take(room.saturating_add(1)).collect();
        let begin = safe(&begin).into_owned();
        let text = if begin.chars().count() > room.saturating_sub(once.len()) {
            cut(&begin, room).into_owned()
        } else {
            format!("{begin}{once}")
        };
        sheet.put(x, y, &text, style);
        y = y.saturating_add(1);
    }
}

/// The first row below the body.
fn below(state: &State) -> u16 {
    u16::try_from(state.body().1.saturating_add(1)).unwrap_or(u16::MAX)
}

fn terms(sheet: &mut Sheet<'_>, state: &State, form: &TermsPage) {
    const COLUMN: u16 = 12;
    let fields = form.fields();
    let mut y = 1;
    for field in &fields {
        let (name, values, selected) = (field.name, &field.values, field.selected);
        let style = if selected {
            sheet.pens.selected()
        } else {
            sheet.pens.faint()
        };
        sheet.put(0, y, if selected { "›" } else { " " }, Style::new());
        sheet.put(1, y, name, style);
        let all: usize = values.iter().map(|(value, _)| width(value).saturating_add(4)).sum();
        let narrow = all > sheet.room(COLUMN);
        let mut x = COLUMN;
        for (value, chosen) in values {
            match (chosen, narrow) {
                (true, _) => {
                    let bold = Style::new().add_modifier(Modifier::BOLD);
                    x = sheet.put(x, y, &format!("‹ {value} ›"), bold);
                }
                (false, false) => x = sheet.put(x, y, &format!("  {value}  "), sheet.pens.faint()),
                (false, true) => {}
            }
        }
        y = y.saturating_add(1);
    }
    if !fields.is_empty() && state.body().1 > 10 {
        y = y.saturating_add(1);
    }
    on_paper(sheet, y, &form.paper);
}

fn word(sheet: &mut Sheet<'_>, state: &State, entry: &Entry) {
    let heading = sheet.pens.of(Ink::Heading);
    let room = sheet.room(0);
    let mut y = 1;
    for row in crate::cells::rows(entry.title(), room, crate::cells::Break::Words) {
        sheet.put(0, y, entry.title().get(row).unwrap_or_default(), heading);
        y = y.saturating_add(1);
    }
    if let (Some(page), Purpose::No(_) | Purpose::More(_)) = (state.page(), entry.purpose) {
        sheet.put(0, y, &headline(&page.asked, room), sheet.pens.faint());
        y = y.saturating_add(1);
    }
    let text = format!("{}▏", entry.text);
    let rows = crate::cells::rows(&text, room.saturating_sub(2), crate::cells::Break::Words);
    let end = below(state);
    let fits = usize::from(end.saturating_sub(y));
    for row in rows.iter().skip(rows.len().saturating_sub(fits)) {
        sheet.put(0, y, "> ", sheet.pens.faint());
        sheet.put(2, y, text.get(row.clone()).unwrap_or_default(), Style::new());
        y = y.saturating_add(1);
    }
}
