//! The tasks that run, and their end.

use bailiwick_gate::desk::AtWork;
use maud::{Markup, html};

use super::layout::{raw, short, time, token};
use crate::house::Seat;

/// The page.
pub fn body(seat: &Seat, tasks: &[AtWork]) -> Markup {
    html! {
        h1 { "Tasks" }
        @if tasks.is_empty() { p.calm { "No task runs." } }
        ul.rows {
            @for task in tasks {
                li.row {
                    p.what { code { (raw(&task.command.join(" "))) } }
                    p.meta { "In " (raw(&task.context)) ", task " (short(&task.id.to_string())) ", since " (time(task.started)) "." }
                    p.acts {
                        a href=(seat.to(&format!("log?task={}", task.id))) { "Its log" }
                        a href=(seat.to(&format!("authority?context={}", url_escaped(&task.context)))) { "What it may do" }
                        a.bad href=(seat.to(&format!("tasks/{}/end", task.id))) { "End it …" }
                    }
                }
            }
        }
    }
}

/// A text as a part of an address.
pub fn url_escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Whether it is really meant.
pub fn end(seat: &Seat, task: &AtWork) -> Markup {
    html! {
        h1 { "End this task?" }
        p { code { (raw(&task.command.join(" "))) } }
        p { "In " (raw(&task.context)) ", since " (time(task.started)) ". All that runs in it ends with it, and what it asked is withdrawn. What it wrote stays." }
        form method="post" action=(seat.to(&format!("tasks/{}/end", task.id))) {
            (token(seat))
            button.no type="submit" { "End the task" }
            " " a href=(seat.to("tasks")) { "Let it go on" }
        }
    }
}
