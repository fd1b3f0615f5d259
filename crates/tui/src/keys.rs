//! What a key does.
//!
//! Promises: P8 (an answer is taken only for a question that still waits, after its end has been on the screen, by a key that
//! was pressed after that; what is pasted is never an answer).
//! Not here: when a key counts (`guard`), carrying out what comes of it (`screen`).

use bailiwick_gate::desk::Answer;
use bailiwick_model::{DecisionId, Millis};

use crate::entry::{Entry, Purpose};
use crate::guard::{Code, Guard, Key};
use crate::page::{Fate, QuestionPage};
use crate::paper::{Ink, Line, Paper};
use crate::questions::Place;
use crate::rows::Rows;
use crate::state::{Effect, Layer, State, Sure, View};
use crate::terms::{Target, TermsPage};
use crate::{hints, times};

/// What came of a key.
type Effects = Vec<Effect>;

/// Why an answer is not taken.
type Refused = String;

/// Takes a key.
pub fn key(state: &mut State, key: Key) -> Effects {
    state.at = state.at.max(key.at);
    let fresh = state.pressed.note(&key);
    match key.code {
        Code::Ctrl('c') => return vec![Effect::Quit],
        Code::Ctrl('z') => return vec![Effect::Suspend],
        _ => {}
    }
    match state.layers.last() {
        None => in_list(state, key.code),
        Some(Layer::Question(_)) => in_question(state, key.code, fresh),
        Some(Layer::Offers(..)) => in_offers(state, key.code),
        Some(Layer::Terms(_)) => in_terms(state, key.code, fresh),
        Some(Layer::Entry(_)) => in_entry(state, key.code, fresh),
        Some(Layer::Grant(..)) => in_grant(state, key.code),
        Some(Layer::Sure(..)) => in_sure(state, key.code, fresh),
        Some(Layer::Help(_)) => {
            if let Some(Layer::Help(paper)) = state.layers.last_mut()
                && scroll(paper, key.code)
            {
                return Vec::new();
            }
            state.layers.pop();
            Vec::new()
        }
    }
}

/// Takes what was pasted: it goes into a text that is being typed, and nowhere else.
pub fn paste(state: &mut State, text: &str) {
    if let Some(Layer::Entry(entry)) = state.layers.last_mut() {
        entry.add(text);
        if entry.purpose == Purpose::Filter {
            let text = entry.text.clone();
            state.questions.set_filter(text);
        }
    }
}

fn scroll(paper: &mut Paper, code: Code) -> bool {
    let page = paper.page();
    match code {
        Code::Up | Code::Char('k') => paper.scroll(-1),
        Code::Down | Code::Char('j') => paper.scroll(1),
        Code::PageUp | Code::Char('b') => paper.scroll(page.saturating_neg()),
        Code::PageDown | Code::Char(' ') => paper.scroll(page),
        Code::Home => paper.scroll_to(0),
        Code::End | Code::Char('G') => paper.scroll_to_end(),
        _ => return false,
    }
    true
}

fn step<K: PartialEq>(rows: &mut Rows<K>, code: Code) -> bool {
    let page = rows.page();
    match code {
        Code::Up | Code::Char('k') => rows.step(-1),
        Code::Down | Code::Char('j') => rows.step(1),
        Code::PageUp | Code::Char('b') => rows.step(page.saturating_neg()),
        Code::PageDown => rows.step(page),
        Code::Home => rows.step(isize::MIN),
        Code::End | Code::Char('G') => rows.step(isize::MAX),
        _ => return false,
    }
    true
}

fn in_list(state: &mut State, code: Code) -> Effects {
    let moved = match state.view {
        View::Questions => step(&mut state.questions.rows, code),
        View::Grants => step(&mut state.grants, code),
        View::Tasks => step(&mut state.tasks, code),
    };
    if moved {
        return Vec::new();
    }
    match (code, state.view) {
        (Code::Char('q'), _) => return vec![Effect::Quit],
        (Code::Esc, View::Questions) if !state.questions.filter().is_empty() => {
            state.questions.set_filter(String::new());
        }
        (Code::Char('?'), _) => {
            let paper = hints::all();
            state.push(Layer::Help(paper));
        }
        (Code::Char('1'), _) => state.view = View::Questions,
        (Code::Char('2' | 'g'), _) => state.view = View::Grants,
        (Code::Char('3' | 't'), _) => state.view = View::Tasks,
        (Code::Tab, view) => {
            state.view = match view {
                View::Questions => View::Grants,
                View::Grants => View::Tasks,
                View::Tasks => View::Questions,
            }
        }
        (Code::BackTab, view) => {
            state.view = match view {
                View::Questions => View::Tasks,
                View::Grants => View::Questions,
                View::Tasks => View::Grants,
            }
        }
        (Code::Char('/'), View::Questions) => {
            let text = state.questions.filter().to_owned();
            state.push(Layer::Entry(Entry::begin(Purpose::Filter, &text)));
        }
        (Code::Left, View::Questions) => state.questions.fold(Some(true)),
        (Code::Right, View::Questions) => state.questions.fold(Some(false)),
        (Code::Char(' '), View::Questions) => state.questions.fold(None),
        (Code::Enter, View::Questions) => match state.questions.rows.selected() {
            Some(Place::Kind(_)) => state.questions.fold(None),
            Some(Place::Question(id)) => open(state, *id),
            None => {}
        },
        (Code::Enter, View::Grants) => {
            if let Some(grant) = selected_grant(state) {
                let layer = Layer::Grant(grant.id, state.paper_of(grant));
                state.push(layer);
            }
        }
        (Code::Char('r'), View::Grants) => ask_revoke(state),
        (Code::Char('c'), View::Grants) => narrow(state),
        (Code::Char('e') | Code::Enter, View::Tasks) => ask_end(state),
        _ => {}
    }
    Vec::new()
}

/// Opens a question. Whatever keys were typed ahead are nobody's answer to it: its guard begins when it has been drawn.
fn open(state: &mut State, id: DecisionId) {
    if let Some(asked) = state.questions.find(id).cloned() {
        state.push(Layer::Question(Box::new(QuestionPage::open(asked))));
    }
}

fn selected_grant(state: &State) -> Option<&bailiwick_gate::desk::Granted> {
    let of_layer = state.layers.iter().find_map(|layer| match layer {
        Layer::Grant(id, _) => Some(id),
        _ => None,
    });
    let id = of_layer.or(state.grants.selected())?;
    state.granted.iter().find(|grant| grant.id == *id)
}

fn ask_revoke(state: &mut State) {
    let Some(grant) = selected_grant(state) else { return };
    let lines = vec![
        Line::prose(Ink::Question, format!("Revoke grant {}?", grant.id)),
        Line::default(),
        Line {
            name: "  ".into(),
            below: "  ".into(),
            ..Line::prose(Ink::Grant, &grant.sentence)
        },
        Line::default(),
        Line::prose(
            Ink::Plain,
            "Connections and commands that go on under it are cut off within a second. What it let happen is not undone.",
        ),
    ];
    let layer = Layer::Sure(Sure::Revoke(grant.id), Paper::new(lines, 5), Guard::default());
    state.push(layer);
}

fn ask_end(state: &mut State) {
    let found = state.tasks.selected();
    let found = found.and_then(|id| state.at_work.iter().find(|task| task.id == *id));
    let Some(task) = found else { return };
    let indented = |text: String| Line {
        name: "  ".into(),
        below: "  ".into(),
        ..Line::prose(Ink::Plain, text)
    };
    let lines = vec![
        Line::prose(Ink::Question, format!("End task {}?", task.id)),
        Line::default(),
        indented(task.command.join(" ")),
        indented(format!("in {}", task.context)),
        Line::default(),
        Line::prose(
            Ink::Plain,
            "All that runs in it ends with it; it is asked to end by itself first.",
        ),
    ];
    let layer = Layer::Sure(Sure::End(task.id), Paper::new(lines, 6), Guard::default());
    state.push(layer);
}

fn narrow(state: &mut State) {
    if let Some(grant) = selected_grant(state) {
        let page = TermsPage::of_grant(grant, state.now, &state.zone);
        state.push(Layer::Terms(Box::new(page)));
    }
}

/// Why nothing can be said to the question that is looked at.
fn is_open(state: &State) -> Result<&QuestionPage, Refused> {
    let page = state.page().ok_or_else(|| "there is no question here".to_owned())?;
    match &page.fate {
        Fate::Waits if page.asked.deadline <= state.now => Err("its deadline has passed: silence was a no".into()),
        Fate::Waits => Ok(page),
        Fate::Sent => Err("an answer is on its way".into()),
        Fate::Over(why) => Err(format!("nothing can be answered here any more: {why}")),
    }
}

/// Why a key is no answer.
fn is_meant(state: &State, guard: Guard, fresh: bool) -> Result<(), Refused> {
    if state.is_too_small() {
        return Err("make the window larger first".into());
    }
    if !guard.is_seen(state.at) {
        return Err("not taken: it came before this could be looked at; wait a second, and press it again".into());
    }
    if !fresh {
        return Err("not taken: the key was down already; let it go for a second, and press it again".into());
    }
    Ok(())
}

/// Why the end has to be seen first.
fn is_read(paper: &Paper) -> Result<(), Refused> {
    match paper.is_shown() {
        true => Ok(()),
        false => Err("not taken: read it to its end first (↓, space, End)".into()),
    }
}

fn or_say(state: &mut State, done: Result<Effects, Refused>) -> Effects {
    done.unwrap_or_else(|why| {
        state.say(true, why);
        Vec::new()
    })
}

fn in_question(state: &mut State, code: Code, fresh: bool) -> Effects {
    if let Some(page) = state.page_mut()
        && scroll(&mut page.paper, code)
    {
        return Vec::new();
    }
    let done = match code {
        Code::Esc | Code::Char('q') | Code::Left => {
            state.layers.pop();
            return Vec::new();
        }
        Code::Char('g') => {
            state.layers.clear();
            state.view = View::Grants;
            return Vec::new();
        }
        Code::Char('?') => {
            let paper = hints::all();
            state.push(Layer::Help(paper));
            return Vec::new();
        }
        Code::Char('y') => yes_once(state, fresh),
        Code::Char('n') => no(state, fresh),
        Code::Char('o') => offers(state),
        Code::Char('w') => word(state, Purpose::No),
        Code::Char('m') => word(state, Purpose::More),
        _ => return Vec::new(),
    };
    or_say(state, done)
}

fn send(state: &mut State, question: DecisionId, answer: Answer, said: Option<String>) -> Effects {
    if let Some(page) = state.page_mut() {
        page.fate = Fate::Sent;
    }
    vec![Effect::Answer { question, answer, said }]
}

fn yes_once(state: &mut State, fresh: bool) -> Result<Effects, Refused> {
    let page = is_open(state)?;
    is_read(&page.paper)?;
    is_meant(state, page.guard, fresh)?;
    let answer = Answer::once(&page.asked);
    let answer = answer.ok_or_else(|| "a yes to this cannot be said: its task has ended".to_owned())?;
    let (id, said) = (page.asked.id, crate::page::narrowest(&page.asked));
    Ok(send(state, id, answer, said))
}

fn no(state: &mut State, fresh: bool) -> Result<Effects, Refused> {
    let page = is_open(state)?;
    is_meant(state, page.guard, fresh)?;
    let id = page.asked.id;
    Ok(send(state, id, Answer::No { word: None }, None))
}

fn offers(state: &mut State) -> Result<Effects, Refused> {
    let page = is_open(state)?;
    let mut rows = Rows::default();
    rows.renew((0..page.asked.offers.len()).collect());
    let layer = Layer::Offers(page.asked.id, rows);
    state.push(layer);
    Ok(Vec::new())
}

fn word(state: &mut State, purpose: fn(DecisionId) -> Purpose) -> Result<Effects, Refused> {
    let id = is_open(state)?.asked.id;
    state.push(Layer::Entry(Entry::begin(purpose(id), "")));
    Ok(Vec::new())
}

fn in_offers(state: &mut State, code: Code) -> Effects {
    let Some(Layer::Offers(_, rows)) = state.layers.last_mut() else {
        return Vec::new();
    };
    if step(rows, code) {
        return Vec::new();
    }
    let chosen = rows.selected().copied();
    match code {
        Code::Esc | Code::Char('q' | 'o') | Code::Left => {
            state.layers.pop();
        }
        Code::Enter | Code::Right => {
            let now = state.now;
            let page = state.page().zip(chosen);
            let form = page.and_then(|(page, chosen)| TermsPage::of_offer(&page.asked, chosen, now, &state.zone));
            if let Some(form) = form {
                state.push(Layer::Terms(Box::new(form)));
            }
        }
        _ => {}
    }
    Vec::new()
}

fn in_terms(state: &mut State, code: Code, fresh: bool) -> Effects {
    let Some(Layer::Terms(form)) = state.layers.last_mut() else {
        return Vec::new();
    };
    let has_fields = form.has_fields();
    match code {
        Code::Up | Code::BackTab if has_fields => form.go(-1),
        Code::Down | Code::Tab if has_fields => form.go(1),
        Code::Left if has_fields => form.choose(-1),
        Code::Right if has_fields => form.choose(1),
        Code::Esc | Code::Char('q') | Code::Left => {
            state.layers.pop();
        }
        Code::Char('t') if has_fields => {
            state.push(Layer::Entry(Entry::begin(Purpose::Until, "")));
        }
        Code::Char('y') => {
            let done = yes_in_terms(state, fresh);
            return or_say(state, done);
        }
        other => {
            scroll(&mut form.paper, other);
        }
    }
    state.fit();
    Vec::new()
}

fn yes_in_terms(state: &mut State, fresh: bool) -> Result<Effects, Refused> {
    let Some(Layer::Terms(form)) = state.layers.last() else {
        return Ok(Vec::new());
    };
    let terms = form.terms();
    let said = form.sentence();
    if let Target::Offer(..) = form.target {
        // What the wider answer comes from has to be read as well.
        is_read(&is_open(state)?.paper)
            .map_err(|_| "not taken: read the question to its end first (Esc, Esc, End)".to_owned())?;
    }
    is_read(&form.paper)?;
    is_meant(state, form.guard, fresh)?;
    if terms.until.is_some_and(|until| until <= state.now) {
        return Err("that time has passed: choose another".into());
    }
    match form.target {
        Target::Grant(_) if form.is_as_before() => Err("choose what is to be less first".into()),
        Target::Grant(id) => {
            state.layers.pop();
            state.layers.retain(|layer| !matches!(layer, Layer::Grant(..)));
            Ok(vec![Effect::Narrow(id, terms)])
        }
        Target::Offer(id, offer) => {
            let page = is_open(state)?;
            let answer = Answer::yes(&page.asked, offer, terms);
            let answer = answer.ok_or_else(|| "that offer is not made any more".to_owned())?;
            Ok(send(state, id, answer, Some(said)))
        }
    }
}

fn in_entry(state: &mut State, code: Code, fresh: bool) -> Effects {
    let Some(Layer::Entry(entry)) = state.layers.last_mut() else {
        return Vec::new();
    };
    let purpose = entry.purpose;
    match code {
        Code::Esc => {
            state.layers.pop();
            if purpose == Purpose::Filter {
                state.questions.set_filter(String::new());
            }
            Vec::new()
        }
        Code::Enter => {
            let done = entered(state, fresh);
            or_say(state, done)
        }
        other => {
            let changed = entry.type_key(other);
            if purpose == Purpose::Filter && changed {
                let text = entry.text.clone();
                state.questions.set_filter(text);
            }
            Vec::new()
        }
    }
}

fn entered(state: &mut State, fresh: bool) -> Result<Effects, Refused> {
    let Some(Layer::Entry(entry)) = state.layers.last() else {
        return Ok(Vec::new());
    };
    let text = entry.text.trim().to_owned();
    let (purpose, guard) = (entry.purpose, entry.guard);
    match purpose {
        Purpose::Filter => {
            state.layers.pop();
            Ok(Vec::new())
        }
        Purpose::Until => {
            let until = times::next(&text, state.now, &state.zone);
            let until = until.ok_or_else(|| "that is no time: write it as 18:30".to_owned())?;
            end_at(state, until)?;
            Ok(Vec::new())
        }
        Purpose::No(id) => {
            is_open(state)?;
            is_meant(state, guard, fresh)?;
            state.layers.pop();
            let word = (!text.is_empty()).then_some(text);
            Ok(send(state, id, Answer::No { word }, None))
        }
        Purpose::More(id) => {
            is_open(state)?;
            if text.is_empty() {
                return Err("say what you want to know, or Esc".into());
            }
            is_meant(state, guard, fresh)?;
            state.layers.pop();
            Ok(send(state, id, Answer::More { word: text }, None))
        }
    }
}

fn end_at(state: &mut State, until: Millis) -> Result<(), Refused> {
    let now = state.now;
    let form = state.layers.iter_mut().rev().find_map(|layer| match layer {
        Layer::Terms(form) => Some(form),
        _ => None,
    });
    if !form.is_some_and(|form| form.end_at(until, now)) {
        return Err("that is not earlier than it ends now".into());
    }
    state.layers.pop();
    state.fit();
    Ok(())
}

fn in_grant(state: &mut State, code: Code) -> Effects {
    if let Some(Layer::Grant(_, paper)) = state.layers.last_mut()
        && scroll(paper, code)
    {
        return Vec::new();
    }
    match code {
        Code::Esc | Code::Char('q') | Code::Left => {
            state.layers.pop();
        }
        Code::Char('r') => ask_revoke(state),
        Code::Char('c') => narrow(state),
        _ => {}
    }
    Vec::new()
}

fn in_sure(state: &mut State, code: Code, fresh: bool) -> Effects {
    let Some(Layer::Sure(sure, paper, guard)) = state.layers.last_mut() else {
        return Vec::new();
    };
    if scroll(paper, code) {
        return Vec::new();
    }
    let (sure, guard) = (*sure, *guard);
    match code {
        Code::Esc | Code::Char('q' | 'n') | Code::Left => {
            state.layers.pop();
            Vec::new()
        }
        Code::Char('y') => {
            let read = is_read(paper);
            let meant = read.and_then(|()| is_meant(state, guard, fresh));
            let done = meant.map(|()| {
                state.layers.clear();
                match sure {
                    Sure::Revoke(id) => vec![Effect::Revoke(id)],
                    Sure::End(id) => vec![Effect::End(id)],
                }
            });
            or_say(state, done)
        }
        _ => Vec::new(),
    }
}
