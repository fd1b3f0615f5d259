//! The questions that wait: one by one, or by kind where they are many.

use bailiwick_gate::desk::Asked;
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use super::layout::{cut, number, raw, short, time, token};
use crate::house::Seat;

/// Most questions or kinds of one page.
pub const PAGE: usize = 40;

/// From so many on, questions of one kind stand together.
const MANY: usize = 12;

/// Most characters of a question's sentence in a list; its own page has all.
const SENTENCE: usize = 240;

/// Which questions are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Those of this kind, by [`kind_id`].
    pub kind: Option<String>,
    /// Which page, from zero.
    pub page: usize,
    /// Whether those of one kind stand together; as it comes where nothing is said. A page that is open stays as it is.
    pub grouped: Option<bool>,
}

impl Wish {
    fn is_grouped(&self, asked: &[Asked]) -> bool {
        self.kind.is_none() && self.grouped.unwrap_or(asked.len() >= MANY)
    }
}

/// What stands in a list.
enum Row<'a> {
    One(&'a Asked),
    Kind(String, Vec<&'a Asked>),
}

/// What a kind is called in addresses.
pub fn kind_id(kind: &str) -> String {
    let digest = hex::encode(Sha256::digest(kind));
    digest.get(..16).unwrap_or(&digest).to_owned()
}

fn rows<'a>(asked: &'a [Asked], wish: &Wish) -> Vec<Row<'a>> {
    if let Some(kind) = &wish.kind {
        return asked
            .iter()
            .filter(|one| kind_id(&one.kind) == *kind)
            .map(Row::One)
            .collect();
    }
    if !wish.is_grouped(asked) {
        return asked.iter().map(Row::One).collect();
    }
    let mut order: Vec<&str> = Vec::new();
    let mut kinds: std::collections::BTreeMap<&str, Vec<&Asked>> = std::collections::BTreeMap::new();
    for one in asked {
        let group = kinds.entry(&one.kind).or_default();
        if group.is_empty() {
            order.push(&one.kind);
        }
        group.push(one);
    }
    let row = |kind: &str| match kinds.get(kind).map(Vec::as_slice) {
        Some([one]) => Some(Row::One(one)),
        Some(group) => Some(Row::Kind(kind.to_owned(), group.to_vec())),
        None => None,
    };
    order.into_iter().filter_map(row).collect()
}

fn query(wish: &Wish, page: usize) -> String {
    let mut query = format!("?page={page}");
    if let Some(kind) = &wish.kind {
        query.push_str("&kind=");
        query.push_str(kind);
    }
    if let Some(grouped) = wish.grouped {
        query.push_str(&format!("&grouped={grouped}"));
    }
    query
}

/// The list, which the script takes anew when something has changed.
pub fn list(seat: &Seat, asked: &[Asked], wish: &Wish) -> Markup {
    let (rows, grouped) = (rows(asked, wish), wish.is_grouped(asked));
    let pages = rows.len().div_ceil(PAGE).max(1);
    let page = wish.page.min(pages.saturating_sub(1));
    let shown: Vec<&Row<'_>> = rows.iter().skip(page.saturating_mul(PAGE)).take(PAGE).collect();
    html! {
        ol #list.rows data-waiting=(asked.len()) {
            @for row in &shown {
                @match row {
                    Row::One(one) if grouped => (question(seat, one, &format!("k-{}", kind_id(&one.kind)))),
                    Row::One(one) => (question(seat, one, &format!("q-{}", one.id))),
                    Row::Kind(kind, group) => (group_row(seat, kind, group)),
                }
            }
        }
        p #none.calm hidden[!shown.is_empty()] {
            @if wish.kind.is_some() { "Nothing of this kind waits any more." } @else { "Nothing waits for you." }
        }
        @if pages > 1 {
            nav.pager aria-label="More questions" {
                @if page > 0 { a rel="prev" href={ (seat.to("questions")) (query(wish, page.saturating_sub(1))) } { "Older" } }
                span { "Page " (page.saturating_add(1)) " of " (pages) }
                @if page.saturating_add(1) < pages { a rel="next" href={ (seat.to("questions")) (query(wish, page.saturating_add(1))) } { "Newer" } }
            }
        }
        @if !grouped && wish.kind.is_none() && asked.len() >= MANY {
            p { a href=(seat.to("questions")) { "Show them by kind" } }
        }
        @if wish.kind.is_some() && shown.len() > 1 { (no_to_all(seat, &shown)) }
    }
}

fn question(seat: &Seat, one: &Asked, id: &str) -> Markup {
    let address = seat.to(&format!("question/{}", one.id));
    html! {
        li.row id=(id) {
            a.what href=(address) { (cut(&one.sentence, SENTENCE)) }
            p.meta {
                "In " (raw(&one.context.to_string())) ", task " (short(&one.task.to_string()))
                @if !one.running { " (has ended)" }
                ". Asked " (time(one.since)) ", silence is a no " span.left { (time(one.deadline)) } "."
                @if !one.seconded.is_empty() { " " strong { "Needs one more yes." } }
            }
        }
    }
}

fn group_row(seat: &Seat, kind: &str, group: &[&Asked]) -> Markup {
    let address = seat.to(&format!("questions?kind={}", kind_id(kind)));
    let soonest = group.iter().map(|one| one.deadline).min();
    html! {
        li.row.kind id={ "k-" (kind_id(kind)) } {
            a.what href=(address) { (cut(kind, SENTENCE)) }
            p.meta {
                strong.many { (number(group.len(), "question")) }
                " alike"
                @if let Some(first) = group.first() { ". The oldest " (time(first.since)) }
                @if let Some(soonest) = soonest { ", the first no " span.left { (time(soonest)) } }
                "."
            }
        }
    }
}

/// A no to just those that are shown.
fn no_to_all(seat: &Seat, shown: &[&Row<'_>]) -> Markup {
    let ids: Vec<String> = shown
        .iter()
        .filter_map(|row| match row {
            Row::One(one) => Some(one.id.to_string()),
            Row::Kind(..) => None,
        })
        .collect();
    html! {
        form.all method="post" action=(seat.to("questions/no")) {
            (token(seat))
            input type="hidden" name="questions" value=(ids.join(" "));
            label for="all-word" { "A word to the agent (if you like)" }
            div.say {
                input #all-word type="text" name="word" maxlength="500" autocomplete="off";
                button.no type="submit" { "No to these " (ids.len()) }
            }
        }
    }
}

/// The page.
pub fn body(seat: &Seat, asked: &[Asked], wish: &Wish) -> Markup {
    // A list that is open stays as it was: one by one, or by kind.
    let same = Wish {
        grouped: Some(wish.is_grouped(asked)),
        ..wish.clone()
    };
    let source = seat.to("questions/list") + &query(&same, wish.page);
    let title = wish
        .kind
        .as_ref()
        .and_then(|kind| asked.iter().find(|one| kind_id(&one.kind) == *kind));
    html! {
        h1 { "Questions" }
        @if let Some(one) = title {
            p { "Those of one kind: " (raw(&one.kind)) ". " a href=(seat.to("questions")) { "All questions" } }
        } @else if wish.kind.is_some() {
            p { a href=(seat.to("questions")) { "All questions" } }
        }
        div #live-list data-from=(source) { (list(seat, asked, wish)) }
    }
}
