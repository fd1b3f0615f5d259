//! One permit is one effect.

use bailiwick_gate::Permit;

fn twice(permit: &Permit) -> Permit {
    permit.clone()
}

fn keep<T: Clone>(_: T) {}

fn twice_more(permit: Permit) {
    keep(permit);
}

fn main() {}
