//! The time, for permits: they lapse by the mediator's clock, which is the machine's.

use std::time::{SystemTime, UNIX_EPOCH};

use bailiwick_model::Millis;

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
