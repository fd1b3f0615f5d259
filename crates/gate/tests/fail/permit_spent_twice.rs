//! Spending consumes the permit.

use bailiwick_gate::Permit;
use bailiwick_model::{Millis, Request};

fn twice(permit: Permit, request: &Request) {
    let _first = permit.spend(request, Millis(0));
    let _second = permit.spend(request, Millis(0));
}

fn main() {}
