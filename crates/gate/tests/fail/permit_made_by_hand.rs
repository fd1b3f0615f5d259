//! A permit has no public fields: only a mediator's answer makes one.

use bailiwick_gate::{Permit, PermitTerms};

fn forge(terms: PermitTerms) -> Permit {
    Permit { terms }
}

fn main() {}
