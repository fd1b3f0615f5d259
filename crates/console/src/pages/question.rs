//! One question: whole, in parts; what may be said to it.
//!
//! Promises: P8 (the sentence of a yes is the server's, whole, and its form names it by its digest; the agent's own words stand
//! apart and say so).

use bailiwick_gate::desk::{Asked, Offer, Said, Scope, Terms};
use bailiwick_model::DecisionId;
use maud::{Markup, html};

use super::layout::{cut, number, raw, short, spoken, time, token};
use crate::house::Seat;
use crate::reading::{Part, Piece};
use crate::terms::{Chosen, LENGTHS, MOST_TIMES, exact_fields, scope_name};

/// Longest sentence in a heading; the details have all of it in any case.
const HEADING: usize = 300;

/// Longest sentence of an offer in the list of offers; the chosen one is shown whole.
const OFFER: usize = 300;

/// Past so many lines the details scroll in a box of their own.
const LONG: usize = 24;

/// Longest word to an agent.
pub const MAX_WORD: usize = 500;

/// What is shown of a question.
pub struct Shown<'a> {
    /// The question.
    pub asked: &'a Asked,
    /// Its parts.
    pub parts: &'a [Part],
    /// Which of them is shown, from zero.
    pub part: usize,
    /// What the last part carries, where it was served.
    pub nonce: Option<&'a str>,
    /// What was chosen.
    pub chosen: &'a Chosen,
}

fn address(seat: &Seat, id: DecisionId, what: &str) -> String {
    seat.to(&format!("question/{id}{what}"))
}

/// The page.
pub fn body(seat: &Seat, shown: &Shown<'_>) -> Markup {
    let asked = shown.asked;
    html! {
        article #question data-state=(address(seat, asked.id, "/state")) data-parts=(shown.parts.len()) data-part=(shown.part.saturating_add(1)) data-words=(asked.words.len()) data-next=(address(seat, asked.id, "/part")) {
            p.back { a href=(seat.to("questions")) { "All questions" } }
            h1 { (cut(&asked.sentence, HEADING)) }
            div #state role="status" aria-live="polite" {}
            (about(asked))
            (details(seat, shown))
            (words(&asked.words))
            section.answers aria-labelledby="answers" {
                h2 #answers { "Your answer" }
                (yes_part(seat, shown))
                (no_part(seat, asked))
                (more_part(seat, asked))
            }
        }
    }
}

fn about(asked: &Asked) -> Markup {
    let likes = asked.likes;
    html! {
        dl.about {
            div { dt { "Program" } dd { code { (raw(&asked.command.join(" "))) } } }
            div { dt { "Where" } dd { (raw(&asked.context.to_string())) } }
            div {
                dt { "Task" }
                dd {
                    (short(&asked.task.to_string())) " of " (raw(&asked.principal))
                    @if !asked.running { ". It has ended: a yes is kept for the next task here" }
                }
            }
            div { dt { "Asked" } dd { (time(asked.since)) ". Silence is a no " span.left { (time(asked.deadline)) } } }
            div {
                dt { "Why" }
                dd { @for line in &asked.because { p { (spoken(line)) } } }
            }
            div {
                dt { "The like before" }
                dd {
                    @if likes.asked == 0 { "Never asked here" } @else {
                        "Asked " (number(usize::try_from(likes.asked).unwrap_or(usize::MAX), "time")) " here: " (likes.yes) " yes, " (likes.no) " no"
                    }
                }
            }
            @if !asked.seconded.is_empty() {
                div { dt { "Two people" } dd { strong { (raw(&asked.seconded.join(", "))) " said yes already" } ". Another person has to say yes too" } }
            }
        }
    }
}

/// How many lines there are in all.
fn lines(parts: &[Part]) -> usize {
    let lines = parts
        .iter()
        .flat_map(|part| &part.pieces)
        .flat_map(|piece| &piece.lines);
    lines.filter(|(_, _, goes_on)| !goes_on).count()
}

/// The details, as far as they are served; a script brings the parts that follow.
fn details(seat: &Seat, shown: &Shown<'_>) -> Markup {
    let many = shown.parts.len() > 1;
    let long = many || lines(shown.parts) > LONG;
    html! {
        section aria-labelledby="details" {
            h2 #details {
                "All of it"
                @if long { span.more { " (" (number(lines(shown.parts), "line")) ")" } }
            }
            div.whole.long[long] #whole tabindex="0" role="region" aria-labelledby="details" {
                @if let Some(one) = shown.parts.get(shown.part) { (part(one)) }
                (end(seat, shown))
            }
            @if many {
                nav.pager.parts aria-label="Parts of the question" {
                    @if shown.part > 0 { a rel="prev" href={ (address(seat, shown.asked.id, "")) "?part=" (shown.part) } { "Part before" } }
                    span { "Part " (shown.part.saturating_add(1)) " of " (shown.parts.len()) }
                    @if shown.part.saturating_add(1) < shown.parts.len() {
                        a rel="next" href={ (address(seat, shown.asked.id, "")) "?part=" (shown.part.saturating_add(2)) } { "Next part" }
                    }
                }
            }
        }
    }
}

/// What follows a part: the end of all, which a yes must have come by; or word that there is more.
pub fn end(seat: &Seat, shown: &Shown<'_>) -> Markup {
    let last = shown.part.saturating_add(1) == shown.parts.len();
    html! {
        @match shown.nonce.filter(|_| last) {
            Some(nonce) => {
                p.end #end tabindex="0" { "The end. That was all: " (number(lines(shown.parts), "line")) "." }
                input type="hidden" form="yes" name="seen" value=(nonce);
            }
            None => {
                p.next #next tabindex="0" data-part=(shown.part.saturating_add(2)) {
                    "Part " (shown.part.saturating_add(1)) " of " (shown.parts.len()) " ends here. "
                    a href={ (address(seat, shown.asked.id, "")) "?part=" (shown.part.saturating_add(2)) } { "There is more" }
                }
            }
        }
    }
}

/// One part.
pub fn part(part: &Part) -> Markup {
    html! {
        @for one in &part.pieces { (piece(one)) }
    }
}

fn piece(piece: &Piece) -> Markup {
    let numbered = piece.of > 1;
    html! {
        div.detail {
            h3 {
                (raw(&piece.name))
                @if piece.goes_on { span.more { " (goes on)" } }
                @else if numbered { span.more { " (" (number(piece.of, "line")) ")" } }
            }
            @if let Some(mind) = &piece.mind { p.mind { strong { "Mind: " } (spoken(mind)) } }
            div.lines {
                @for (count, text, goes_on) in &piece.lines {
                    p.line {
                        @if numbered { span.no aria-hidden="true" { @if !goes_on { (count) } } }
                        @if text.is_empty() { span.more { "(empty)" } } @else { code { (raw(text)) } }
                    }
                }
            }
        }
    }
}

/// The agent's own words.
fn words(words: &[Said]) -> Markup {
    html! {
        @if !words.is_empty() {
            section.agent aria-labelledby="words" {
                h2 #words { "What the agent says about it" }
                p.more { "Its own words. They may be untrue, and are no part of what you answer." }
                @for said in words {
                    @if let Some(asked) = &said.asked { p { strong { "You wanted to know: " } (raw(asked)) } }
                    @match &said.answered {
                        Some(answered) => blockquote { (as_lines(answered)) },
                        None => p.more { "No answer yet." },
                    }
                }
            }
        }
    }
}

fn as_lines(text: &str) -> Markup {
    html! { @for line in text.lines() { p { (raw(line)) } } }
}

fn yes_part(seat: &Seat, shown: &Shown<'_>) -> Markup {
    let (asked, chosen) = (shown.asked, shown.chosen);
    html! {
        section.answer aria-labelledby="yes-title" {
            h3 #yes-title { "Yes" }
            form #choose method="get" action=(address(seat, asked.id, "")) data-offer=(address(seat, asked.id, "/offer")) {
                input type="hidden" name="part" value=(shown.part.saturating_add(1));
                fieldset {
                    legend { "What it is to cover" }
                    @for (place, offer) in asked.offers.iter().enumerate() { (offer_choice(place, offer, chosen)) }
                }
                (terms_choice(asked, chosen))
                button #show type="submit" { "Show what this yes covers" }
            }
            (yes(seat, shown))
        }
    }
}

fn offer_choice(place: usize, offer: &Offer, chosen: &Chosen) -> Markup {
    html! {
        p.choice {
            input type="radio" name="offer" id={ "offer-" (place) } value=(place) checked[place == chosen.offer] data-once[offer.is_request()];
            label for={ "offer-" (place) } {
                (cut(&offer.says, OFFER))
                @if offer.is_request() { span.more { " (just this, once)" } }
            }
        }
    }
}

fn terms_choice(asked: &Asked, chosen: &Chosen) -> Markup {
    let only_once = asked.offers.iter().all(Offer::is_request);
    html! {
        @if !only_once {
            fieldset #terms {
                legend { "How often, how long, where" }
                div.fields {
                    p {
                        label for="often" { "How often" }
                        select #often name="often" {
                            option value="once" selected[chosen.often == "once"] { "once" }
                            option value="times" selected[chosen.often == "times"] { "at most so many times:" }
                            option value="any" selected[chosen.often == "any"] { "any number of times" }
                        }
                    }
                    p #times-field {
                        label for="times" { "So many times" }
                        input #times type="number" name="times" min="1" max=(MOST_TIMES) value=(chosen.times);
                    }
                    p {
                        label for="long" { "How long" }
                        select #long name="long" {
                            option value="" selected[chosen.long.is_empty()] { "no end of its own" }
                            @for (name, words, _) in LENGTHS { option value=(name) selected[chosen.long == name] { (words) } }
                        }
                    }
                    p #until-field hidden {
                        label for="until-local" { "Until (your time)" }
                        input #until-local type="datetime-local";
                    }
                    p {
                        label for="scope" { "Where" }
                        select #scope name="scope" {
                            @if asked.running { option value="task" selected[chosen.terms.scope == Scope::Task] { "in this task, until it ends" } }
                            option value="context" selected[chosen.terms.scope == Scope::Context] { "in every task of this context" }
                        }
                    }
                }
                noscript { p.more { "The first answer above is always for once, whatever stands here." } }
            }
        }
    }
}

/// The sentence of a yes, and the yes: what the script takes anew when something else is chosen.
pub fn yes(seat: &Seat, shown: &Shown<'_>) -> Markup {
    let asked = shown.asked;
    let ready = shown.nonce.is_some();
    html! {
        form #yes method="post" action=(address(seat, asked.id, "/yes")) {
            (token(seat))
            @match asked.offers.get(shown.chosen.offer) {
                None => { p.told.wrong { "There is no such answer." } }
                Some(offer) => {
                    @let terms = offer.terms(shown.chosen.terms);
                    (sentence(asked, offer, &terms))
                    @for (name, value) in exact_fields(shown.chosen.offer, &terms) { input type="hidden" name=(name) value=(value); }
                    input type="hidden" name="shown" value=(offer.digest(asked.id, &terms));
                    button.main #say-yes type="submit" disabled[!ready] aria-describedby="yes-note" { "Yes" }
                    p.more #yes-note {
                        @if !ready { "Yes can be said after the last part of the question was shown." }
                    }
                }
            }
        }
    }
}

fn sentence(asked: &Asked, offer: &Offer, terms: &Terms) -> Markup {
    let program = asked.command.first().map_or("the program", String::as_str);
    let program = program.rsplit('/').next().unwrap_or(program);
    html! {
        div.sentence role="group" aria-label="What this yes covers" tabindex="0" {
            p { (raw(program)) " " strong { (raw(&offer.sentence(terms))) } "." }
            @if let Some(until) = terms.until { p.more { "That is until " (time(until)) " where you are." } }
            @if scope_name(terms.scope) == "context" { p.more { "The context is " (raw(&asked.context.to_string())) "." } }
            @if let Some(rule) = &asked.rule {
                p.more { "You have said yes to the like three times. This line in its bailiwick.toml would answer it: " code { (raw(rule)) } }
            }
        }
    }
}

fn no_part(seat: &Seat, asked: &Asked) -> Markup {
    html! {
        section.answer aria-labelledby="no-title" {
            h3 #no-title { "No" }
            form #no method="post" action=(address(seat, asked.id, "/no")) {
                (token(seat))
                label for="no-word" { "A word to the agent (if you like)" }
                div.say {
                    input #no-word type="text" name="word" maxlength=(MAX_WORD) autocomplete="off";
                    button.no type="submit" { "No" }
                }
            }
        }
    }
}

fn more_part(seat: &Seat, asked: &Asked) -> Markup {
    html! {
        section.answer aria-labelledby="more-title" {
            h3 #more-title { "Tell me more" }
            form #more method="post" action=(address(seat, asked.id, "/more")) {
                (token(seat))
                label for="more-word" { "What you want to know from the agent. It is refused for now, and may ask again" }
                div.say {
                    input #more-word type="text" name="word" required maxlength=(MAX_WORD) autocomplete="off";
                    button type="submit" { "Ask the agent" }
                }
            }
        }
    }
}

/// The question does not wait any more.
pub fn gone(seat: &Seat, words: &str) -> Markup {
    html! {
        h1 { "This question does not wait any more" }
        p { (spoken(words)) }
        p { a href=(seat.to("questions")) { "All questions" } }
    }
}

/// What a page that is open is told about its question.
pub fn state(there: bool, changed: bool) -> Markup {
    html! {
        @if !there {
            p.told.wrong data-gone { "This question does not wait any more: somebody else answered it, or it ended. Nothing that you say here counts." }
        } @else if changed {
            p.told { "There is news about this question. " a href="" { "Load it anew" } }
        }
    }
}
