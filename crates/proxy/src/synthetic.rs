//! Addresses of the gate's own that stand for names, inside the fence only.
//!
//! Answers: a program that knows no proxy looks a name up and connects to the address; which name did it mean?
//! Promises: P5 (an address stands for one name at a time). Trust: the agent can ask for as many names as its rules
//! let it resolve: the table is bounded, and a program that holds on to an address whose name was dropped is refused
//! by the name in its greeting or its Host line.
//! Not here: real addresses (`names`): no synthetic address is ever dialled.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use bailiwick_model::Host;

use crate::limits;

/// The base of the synthetic addresses, `198.19.0.0/16`: of the block for measurements between networks, which no public
/// host has (RFC 2544). Not of the loopback, which is the fence's own: so every port of a name is the name's.
pub const SYNTHETIC: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);

#[derive(Debug, Clone, Copy)]
struct Place {
    number: u16,
    used: u64,
}

/// Which name has which address.
#[derive(Debug, Default)]
pub(crate) struct Synthetic {
    places: HashMap<Host, Place>,
    names: HashMap<u16, Host>,
    by_use: BTreeMap<u64, u16>,
    clock: u64,
}

impl Synthetic {
    /// The address of a name: the same as long as the name is kept.
    pub(crate) fn address_of(&mut self, name: &Host) -> Ipv4Addr {
        self.clock = self.clock.saturating_add(1);
        let number = match self.places.get(name) {
            Some(place) => {
                self.by_use.remove(&place.used);
                place.number
            }
            None => self.free(),
        };
        self.by_use.insert(self.clock, number);
        self.names.insert(number, name.clone());
        let place = Place {
            number,
            used: self.clock,
        };
        self.places.insert(name.clone(), place);
        let [a, b, ..] = SYNTHETIC.octets();
        let [c, d] = number.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    }

    /// A number that stands for no name: a new one, or that of the name that was used longest ago.
    fn free(&mut self) -> u16 {
        if self.names.len() < limits::SYNTHETIC_NAMES {
            let next = self.names.len().saturating_add(1);
            return u16::try_from(next).unwrap_or(u16::MAX);
        }
        let (_, number) = self.by_use.pop_first().unwrap_or((0, 1));
        if let Some(name) = self.names.remove(&number) {
            self.places.remove(&name);
        }
        number
    }

    /// True for an address that stands for a name, or may come to.
    pub(crate) fn holds(address: IpAddr) -> bool {
        let [a, b, ..] = SYNTHETIC.octets();
        matches!(address.to_canonical(), IpAddr::V4(address) if matches!(address.octets(), [c, d, ..] if (a, b) == (c, d)))
    }

    /// The name that an address stands for.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<&Host> {
        let IpAddr::V4(address) = address.to_canonical() else {
            return None;
        };
        let [a, b, c, d] = address.octets();
        let [base_a, base_b, ..] = SYNTHETIC.octets();
        (a == base_a && b == base_b)
            .then(|| self.names.get(&u16::from_be_bytes([c, d])))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Host {
        Host::parse(&format!("n{number}.test")).unwrap()
    }

    #[test]
    fn p5_a_name_keeps_its_address_and_an_address_its_name() {
        let mut table = Synthetic::default();
        let first = table.address_of(&name(1));
        let second = table.address_of(&name(2));
        assert_ne!(first, second);
        assert_eq!(table.address_of(&name(1)), first);
        assert_eq!(table.name_of(first.into()), Some(&name(1)));
        assert_eq!(table.name_of(second.to_ipv6_mapped().into()), Some(&name(2)));
        for other in [
            "198.19.0.0",
            "198.19.9.9",
            "127.0.0.1",
            "198.18.0.1",
            "::1",
            "10.19.0.1",
        ] {
            assert_eq!(table.name_of(other.parse().unwrap()), None, "{other}");
            assert_eq!(
                Synthetic::holds(other.parse().unwrap()),
                other.starts_with("198.19."),
                "{other}"
            );
        }
    }

    #[test]
    fn p4_the_table_is_bounded_and_drops_what_was_used_longest_ago() {
        let mut table = Synthetic::default();
        let first = table.address_of(&name(0));
        let second = table.address_of(&name(1));
        for number in 2..limits::SYNTHETIC_NAMES {
            table.address_of(&name(number));
        }
        assert_eq!(table.address_of(&name(0)), first, "used again, so kept");
        let reused = table.address_of(&name(limits::SYNTHETIC_NAMES));
        assert_eq!(reused, second);
        assert_eq!(table.name_of(reused.into()), Some(&name(limits::SYNTHETIC_NAMES)));
        assert_eq!(table.names.len(), limits::SYNTHETIC_NAMES);
        assert_eq!(table.places.len(), limits::SYNTHETIC_NAMES);
        assert_eq!(table.by_use.len(), limits::SYNTHETIC_NAMES);
        assert_ne!(table.address_of(&name(1)), second);
    }
}
