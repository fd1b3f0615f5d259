//! The log, the newest first.

use bailiwick_model::TaskId;
use maud::{Markup, html};

use super::layout::{raw, short, time, token};
use crate::house::Seat;
use crate::papers::{LogPage, LogWish, Tone};

fn address(seat: &Seat, wish: &LogWish, before: Option<u64>) -> String {
    let mut query: Vec<String> = Vec::new();
    query.extend(before.map(|before| format!("before={before}")));
    query.extend(wish.task.map(|task| format!("task={task}")));
    seat.to(&format!("log?{}", query.join("&")))
}

/// The page.
pub fn body(seat: &Seat, page: &LogPage, wish: &LogWish) -> Markup {
    html! {
        h1 { "Log" }
        div.bar {
            form method="get" action=(seat.to("log")) role="search" aria-label="Records of one task" {
                label for="task" { "Task" }
                input #task type="text" name="task" value=[wish.task.map(|task: TaskId| task.to_string())] maxlength="16" spellcheck="false" autocomplete="off" placeholder="all tasks";
                button type="submit" { "Show" }
            }
            form method="post" action=(seat.to("log/verify")) {
                (token(seat))
                button type="submit" { "Verify the log" }
            }
        }
        @if page.entries.is_empty() { p.calm { "There are no records." } }
        ol.log {
            @for entry in &page.entries {
                li class=(tone(entry.tone)) {
                    span.when { (time(entry.time)) }
                    span.came { (raw(&entry.came)) }
                    span.what { (raw(&entry.text)) }
                    span.of {
                        @if let Some(task) = entry.task {
                            a href=(address(seat, &LogWish { task: Some(task), ..*wish }, None)) title="Records of this task" { (short(&task.to_string())) }
                        }
                        " " span.no { "#" (entry.index) }
                    }
                }
            }
        }
        nav.pager aria-label="Older and newer records" {
            @if wish.before.is_some() { a href=(address(seat, wish, None)) { "Newest" } }
            @if let Some(older) = page.older { a rel="next" href=(address(seat, wish, Some(older))) { "Older" } }
        }
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Asked => "asked",
        Tone::Plain => "plain",
    }
}
