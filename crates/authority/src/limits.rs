//! Narrowing the limits of HTTP requests.
//!
//! Promises: P3: in each dimension a wish is no more than what is held; silence takes the held limit.

use bailiwick_model::{AnswerLimit, BodyLimit, Budget, Limits, Rate, Totals};

/// The wanted limits with the held ones wherever nothing is wanted; the name of the first dimension that is wider else.
pub(crate) fn narrowed(held: &Limits, wanted: &Limits) -> Result<Limits, &'static str> {
    let query = match (&held.query, &wanted.query) {
        (held, None) => held.clone(),
        (None, wanted) => wanted.clone(),
        (Some(held), Some(wanted)) => {
            let inside = wanted
                .iter()
                .all(|(name, own)| held.get(name).is_some_and(|wide| own.is_within(wide)));
            Some(inside.then(|| wanted.clone()).ok_or("query")?)
        }
    };
    let body = BodyLimit {
        bytes: least(held.body.bytes, wanted.body.bytes, "body")?,
        types: some_of(&held.body.types, &wanted.body.types, "content types")?,
    };
    let answer = AnswerLimit {
        bytes: least(held.answer.bytes, wanted.answer.bytes, "answer")?,
        seconds: least(held.answer.seconds, wanted.answer.seconds, "answer")?,
        bytes_per_second: least(held.answer.bytes_per_second, wanted.answer.bytes_per_second, "answer")?,
    };
    let (own, wish) = (&held.budget, &wanted.budget);
    let budget = Budget {
        requests: least(own.requests, wish.requests, "budget")?,
        sent: least(own.sent, wish.sent, "budget")?,
        received: least(own.received, wish.received, "budget")?,
        rate: rate(own.rate, wish.rate)?,
    };
    Ok(Limits {
        query,
        body,
        answer,
        keys: some_of(&held.keys, &wanted.keys, "keys")?,
        budget,
        totals: totals(held.totals.as_ref(), wanted.totals.as_ref())?,
    })
}

/// Totals are counted under the rule that they stand in: others than those held are never handed on.
fn totals(held: Option<&Totals>, wanted: Option<&Totals>) -> Result<Option<Totals>, &'static str> {
    match (held, wanted) {
        (held, None) => Ok(held.cloned()),
        (Some(held), Some(wanted)) if held == wanted => Ok(Some(held.clone())),
        _ => Err("totals"),
    }
}

fn least(held: Option<u64>, wanted: Option<u64>, what: &'static str) -> Result<Option<u64>, &'static str> {
    match (held, wanted) {
        (Some(held), Some(wanted)) if wanted > held => Err(what),
        (held, wanted) => Ok(wanted.or(held)),
    }
}

/// A list of what is admitted, in which none means any.
fn some_of<T: Clone + PartialEq>(held: &[T], wanted: &[T], what: &'static str) -> Result<Vec<T>, &'static str> {
    match (held, wanted) {
        (held, []) => Ok(held.to_vec()),
        ([], wanted) => Ok(wanted.to_vec()),
        (held, wanted) if wanted.iter().all(|own| held.contains(own)) => Ok(wanted.to_vec()),
        _ => Err(what),
    }
}

/// No more at once, in no less time: so that it is no more within any time.
fn rate(held: Option<Rate>, wanted: Option<Rate>) -> Result<Option<Rate>, &'static str> {
    match (held, wanted) {
        (Some(held), Some(wanted)) if wanted.count > held.count || wanted.seconds < held.seconds => Err("rate"),
        (held, wanted) => Ok(wanted.or(held)),
    }
}
