//! How much a choice can tell: logarithms, rounded up.
//!
//! Promises: P12. Whole numbers only, so that every machine counts alike.

use std::fmt;

/// An amount of information, in thousandths of a bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits(u64);

/// Binary places of the logarithm's fraction that are computed.
const PLACES: u32 = 16;

impl Bits {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// An amount in thousandths of a bit.
    pub fn of_thousandths(thousandths: u64) -> Self {
        Self(thousandths)
    }

    /// What choosing one of `choices` can tell at most: the binary logarithm, rounded up to a thousandth.
    pub fn of_choices(choices: u64) -> Self {
        let Some(whole) = choices.checked_ilog2() else {
            return Self::NONE;
        };
        if choices.is_power_of_two() {
            return Self(u64::from(whole).saturating_mul(1000));
        }
        // The mantissa, with 63 places behind the point; squaring it brings out one place of the logarithm each time.
        let mut mantissa = u128::from(choices) << 63u32.saturating_sub(whole);
        let mut fraction = 0u64;
        for _ in 0..PLACES {
            mantissa = mantissa.saturating_mul(mantissa) >> 63;
            fraction <<= 1;
            if mantissa >> 64 != 0 {
                fraction |= 1;
                mantissa >>= 1;
            }
        }
        // Two units in the last place stand for what was cut off here and in squaring: the bound is never below.
        let thousandths = fraction.saturating_add(2).saturating_mul(1000).div_ceil(1 << PLACES);
        Self(u64::from(whole).saturating_mul(1000).saturating_add(thousandths))
    }

    /// What a free text of this many bytes can tell at most.
    pub fn of_bytes(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8000))
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The amount in thousandths of a bit.
    pub fn thousandths(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} bits", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p12_known_logarithms() {
        for (choices, want) in [(0, 0), (1, 0), (2, 1000), (3, 1585), (10, 3322), (1 << 40, 40_000)] {
            assert_eq!(Bits::of_choices(choices).thousandths(), want, "{choices}");
        }
        assert_eq!(Bits::of_choices(3).to_string(), "1.585 bits");
        assert_eq!(
            Bits::of_bytes(u64::MAX).plus(Bits::of_bytes(1)),
            Bits(u64::MAX),
            "never wraps"
        );
    }

    proptest::proptest! {
        #[test]
        fn p12_never_below_and_hardly_above(choices in 1u64..) {
            let exact = (choices as f64).log2() * 1000.0;
            let ours = Bits::of_choices(choices).thousandths() as f64;
            proptest::prop_assert!(ours >= exact - 1e-6, "{} < {}", ours, exact);
            proptest::prop_assert!(ours <= exact + 1.1, "{} > {}", ours, exact);
        }

        #[test]
        fn p12_two_choices_tell_no_more_than_both(a in 1u64..1 << 31, b in 1u64..1 << 31) {
            proptest::prop_assert!(Bits::of_choices(a * b) <= Bits::of_choices(a).plus(Bits::of_choices(b)));
        }
    }
}
