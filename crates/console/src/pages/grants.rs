//! The grants that hold: narrowed, revoked.

use bailiwick_gate::desk::{Granted, Scope};
use maud::{Markup, html};

use super::layout::{number, raw, short, time, token};
use crate::house::Seat;
use crate::terms::LENGTHS;

/// The page.
pub fn body(seat: &Seat, grants: &[Granted]) -> Markup {
    html! {
        h1 { "Grants" }
        p { "What was said yes to, and still holds. Revoking cuts off within a second what goes on under it." }
        @if grants.is_empty() { p.calm { "No grant holds." } }
        ul.rows {
            @for grant in grants { (row(seat, grant)) }
        }
    }
}

fn row(seat: &Seat, grant: &Granted) -> Markup {
    let id = grant.id.to_string();
    let to = |what: &str| seat.to(&format!("grants/{id}/{what}"));
    html! {
        li.row {
            p.what #{ "g-" (id) } { (raw(&grant.sentence)) }
            p.meta {
                "Used " (number(usize::try_from(grant.used).unwrap_or(usize::MAX), "time"))
                ". Given by " (raw(&grant.by.join(" and "))) ", " (time(grant.given))
                @match (grant.terms.scope, grant.task) {
                    (Scope::Task, Some(task)) => { ", for task " (short(&task.to_string())) " in " }
                    (Scope::Task | Scope::Context, _) => { ", for " }
                }
                (raw(&grant.context.to_string()))
                @if let Some(until) = grant.terms.until { ". Ends " span.left { (time(until)) } }
                ". " (short(&id))
            }
            @if !grant.acts.is_empty() {
                p.meta { "As acts: " @for act in &grant.acts { code { (raw(&act.to_string())) } " " } }
            }
            div.acts {
                form method="post" action=(to("revoke")) {
                    (token(seat))
                    button.no type="submit" aria-describedby={ "g-" (id) } { "Revoke" }
                }
                details {
                    summary aria-describedby={ "g-" (id) } { "Narrow" }
                    (narrow(seat, grant, &to("narrow")))
                }
            }
        }
    }
}

fn narrow(seat: &Seat, grant: &Granted, to: &str) -> Markup {
    let id = grant.id.to_string();
    let left = grant.terms.count.map(|count| count.saturating_sub(grant.used));
    html! {
        form method="post" action=(to) {
            (token(seat))
            div.fields {
                p {
                    label for={ "n-" (id) } { "At most so many more times" }
                    input id={ "n-" (id) } type="number" name="count" min="1" max=[left] placeholder=(left.map_or_else(|| "no limit".to_owned(), |left| left.to_string()));
                }
                p {
                    label for={ "l-" (id) } { "Not longer than" }
                    select id={ "l-" (id) } name="long" {
                        option value="" { "as it is" }
                        @for (name, words, _) in LENGTHS { option value=(name) { (words) " from now" } }
                    }
                }
            }
            button type="submit" { "Narrow it" }
        }
    }
}
