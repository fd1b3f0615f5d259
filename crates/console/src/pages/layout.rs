//! What all pages have in common.

use bailiwick_gate::desk::moment;
use bailiwick_model::{Millis, visible};
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::house::Seat;
use crate::sessions::Told;

/// The pages that can be gone to: address, name.
const PLACES: [(&str, &str); 5] = [
    ("questions", "Questions"),
    ("tasks", "Tasks"),
    ("grants", "Grants"),
    ("log", "Log"),
    ("authority", "Authority"),
];

/// A page of a session.
pub struct Page<'a> {
    /// Whose.
    pub seat: &'a Seat,
    /// Which of the places it belongs to.
    pub place: &'static str,
    /// Its title.
    pub title: &'a str,
    /// How many questions wait, where that is known.
    pub waiting: Option<usize>,
    /// What there is to say about what was just done.
    pub told: Option<&'a Told>,
}

/// Text that is not ours: in visible form, whatever it was before, and apart from what stands round it.
pub fn raw(text: &str) -> Markup {
    html! { bdi.raw { (visible(text)) } }
}

/// A moment: the browser makes it local time; without a script it stays as it is.
pub fn time(at: Millis) -> Markup {
    let utc = moment(at);
    let machine = utc.trim_end_matches(" UTC").replacen(' ', "T", 1) + "Z";
    html! { time datetime=(machine) title=(utc) { (utc) } }
}

/// The head that every page has.
fn head(title: &str) -> Markup {
    let [style, script, icon] = assets::addresses();
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            title { (title) " · Bailiwick" }
            link rel="stylesheet" href=(style);
            link rel="icon" type="image/svg+xml" href=(icon);
            script src=(script) defer {}
        }
    }
}

/// A page of a session, whole.
pub fn page(page: &Page<'_>, body: &Markup) -> Markup {
    let seat = page.seat;
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(page.title))
            body data-live=(seat.to("live")) data-title=(page.title) {
                a.skip href="#main" { "To the content" }
                header {
                    span.brand { "Bailiwick" }
                    nav aria-label="Pages" {
                        ul {
                            @for (address, name) in PLACES {
                                li {
                                    a href=(seat.to(address)) aria-current=[(page.place == address).then_some("page")] {
                                        (name)
                                        @if address == "questions" { (badge(page.waiting)) }
                                    }
                                }
                            }
                        }
                    }
                    p.link #link role="status" {}
                }
                main #main tabindex="-1" {
                    @if let Some(told) = page.told {
                        p.told.wrong[told.wrong] role="status" {
                            @if told.wrong { strong { "Not done: " } }
                            (raw(&told.words))
                        }
                    }
                    (body)
                }
                p.quiet #news role="status" aria-live="polite" {}
                footer {
                    form method="post" action=(seat.to("leave")) {
                        (token(seat))
                        "Logged in as " strong { (raw(&seat.approver.name)) } ". "
                        button.plain type="submit" { "Log out" }
                    }
                }
            }
        }
    }
}

/// How many questions wait.
fn badge(waiting: Option<usize>) -> Markup {
    let count = waiting.unwrap_or(0);
    html! {
        " "
        span.badge #waiting hidden[count == 0] {
            span #count { (count) }
            span.quiet { " waiting" }
        }
    }
}

/// A page of no session.
pub fn outside(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body.outside {
                main #main { (body) }
            }
        }
    }
}

/// A page of no session that says one thing.
pub fn bare(title: &str, words: &str) -> Markup {
    outside(title, &html! { h1 { (title) } p { (spoken(words)) } })
}

/// Our own words, with what stands in backticks as what can be typed.
pub fn spoken(words: &str) -> Markup {
    html! {
        @for (place, piece) in words.split('`').enumerate() {
            @if place % 2 == 1 { code { (raw(piece)) } } @else { (raw(piece)) }
        }
    }
}

/// What every form carries.
pub fn token(seat: &Seat) -> Markup {
    html! { input type="hidden" name="form" value=(seat.form); }
}

/// The beginning of a text that is too long for where it stands, and true when that is not all.
pub fn beginning(text: &str, most: usize) -> (String, bool) {
    let text = visible(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => (text.get(..end).unwrap_or_default().to_owned(), true),
        None => (text, false),
    }
}

/// A text, cut where it is too long: that it is cut is said.
pub fn cut(text: &str, most: usize) -> Markup {
    let (beginning, more) = beginning(text, most);
    html! {
        (raw(&beginning))
        @if more { span.more { " … (" (visible(text).chars().count()) " characters in all)" } }
    }
}

/// The first digits of an id, with the whole of it in the title.
pub fn short(id: &str) -> Markup {
    html! { code title=(id) { (id.get(..8).unwrap_or(id)) } }
}

/// `1 question`, `2 questions`.
pub fn number(count: usize, of: &str) -> String {
    match count {
        1 => format!("1 {of}"),
        _ => format!("{count} {of}s"),
    }
}
