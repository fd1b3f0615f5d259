//! What may be done, context by context, in the words of the rules.

use bailiwick_model::visible_lines;
use maud::{Markup, html};

use super::layout::{raw, spoken};
use super::tasks::url_escaped;
use crate::house::Seat;
use crate::papers::Rules;

/// The page. `rules` are those of the chosen context.
pub fn body(seat: &Seat, contexts: &[String], rules: Option<&Rules>) -> Markup {
    html! {
        h1 { "Authority" }
        p { "What a task may do in each context, and where each line comes from. A yes adds to it for a while: see the " a href=(seat.to("grants")) { "grants" } "." }
        @if contexts.is_empty() { p.calm { "No context is known yet: it begins with the first task." } }
        nav aria-label="Contexts" {
            ul.contexts {
                @for context in contexts {
                    @let chosen = rules.is_some_and(|rules| rules.context == *context);
                    li {
                        a href=(seat.to(&format!("authority?context={}", url_escaped(context)))) aria-current=[chosen.then_some("page")] { (raw(context)) }
                    }
                }
            }
        }
        @if let Some(rules) = rules {
            section aria-labelledby="rules" {
                h2 #rules { (raw(&rules.context)) }
                @match &rules.told {
                    Ok(told) => pre.rules tabindex="0" role="region" aria-labelledby="rules" { (visible_lines(told)) },
                    Err(why) => p.told.wrong { (spoken(why)) },
                }
            }
        }
    }
}
