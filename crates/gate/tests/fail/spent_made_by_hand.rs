//! Obligations without a permit are nothing to act on.

use bailiwick_gate::{PermitTerms, Spent};

fn forge(terms: PermitTerms) -> Spent {
    Spent { terms }
}

fn main() {}
