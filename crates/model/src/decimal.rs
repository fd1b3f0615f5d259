//! Decimals: numbers as they were written, without rounding.
//!
//! Promises: P4 (a number that cannot be held exactly is an error, never a near one). Trust: the text comes from an agent.
//! Amounts of money are compared and added; a share of one is exact, or none.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A decimal number, exact: at most 28 digits, at most 28 of them behind the point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(rust_decimal::Decimal);

/// Says that a text is no number that can be held exactly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no number that can be held exactly: at most 28 digits")]
pub struct DecimalError(String);

/// Longest text of a number, in bytes.
const MAX: usize = 64;

impl Decimal {
    /// Reads a number as JSON writes it (RFC 8259, section 6), also with an exponent.
    pub fn parse(text: &str) -> Result<Self, DecimalError> {
        let wrong = || DecimalError(text.chars().take(MAX).collect());
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
        let begins = digits.starts_with(|c: char| c.is_ascii_digit());
        if text.len() > MAX || !begins || !digits.bytes().all(plain) {
            return Err(wrong());
        }
        let read = if text.contains(['e', 'E']) {
            rust_decimal::Decimal::from_scientific(text)
        } else {
            rust_decimal::Decimal::from_str_exact(text)
        };
        read.map(|number| Self(number.normalize())).map_err(|_| wrong())
    }

    /// The number of digits behind the point, without zeros at the end.
    pub fn places(&self) -> u32 {
        self.0.scale()
    }

    /// True for less than zero.
    pub fn is_negative(&self) -> bool {
        *self < Self::default()
    }

    /// True for zero.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// The sum; none where it cannot be held exactly.
    pub fn plus(self, other: Self) -> Option<Self> {
        let sum = self.0.checked_add(other.0)?;
        // A sum of more digits than there are is rounded: what was added must come out again.
        (sum.checked_sub(other.0)? == self.0).then(|| Self(sum.normalize()))
    }

    /// The difference; none where it cannot be held exactly.
    pub fn minus(self, other: Self) -> Option<Self> {
        self.plus(Self(-other.0))
    }

    /// So many hundredths of it; none where that cannot be held exactly.
    pub fn hundredths(self, many: Self) -> Option<Self> {
        const HUNDREDTH: u32 = 2;
        let places = self.0.scale().checked_add(many.0.scale())?;
        let product = self.0.checked_mul(many.0)?;
        // What has more digits than there are is rounded, and has fewer places than both together.
        if !product.is_zero() && product.scale() != places {
            return None;
        }
        let mut share = product.normalize();
        share.set_scale(share.scale().checked_add(HUNDREDTH)?).ok()?;
        Some(Self(share.normalize()))
    }

    /// The greatest number of so many places that is not greater.
    #[must_use]
    pub fn rounded_down(self, places: u32) -> Self {
        let down = rust_decimal::RoundingStrategy::ToNegativeInfinity;
        Self(self.0.round_dp_with_strategy(places, down).normalize())
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self(number.into())
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text)
    }
}

impl fmt::Display for Decimal {
    /// Without an exponent and without zeros at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Serialize for Decimal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_numbers_are_read_as_written_or_not_at_all() {
        for (text, want) in [
            ("200", "200"),
            ("200.00", "200"),
            ("199.999", "199.999"),
            ("-0.5", "-0.5"),
            ("-0", "0"),
            ("2e2", "200"),
            ("1.5E-3", "0.0015"),
            ("0.1", "0.1"),
            ("9223372036854775808", "9223372036854775808"),
        ] {
            assert_eq!(
                Decimal::parse(text).map(|n| n.to_string()).as_deref(),
                Ok(want),
                "{text}"
            );
        }
        for bad in [
            "",
            "-",
            "+1",
            ".5",
            "1e400",
            "NaN",
            "inf",
            "1_000",
            "0x10",
            " 1",
            "1,5",
            "0.00000000000000000000000000001",
            "99999999999999999999999999999999",
        ] {
            assert!(Decimal::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p4_a_share_that_cannot_be_held_is_none() {
        let of = |text: &str| Decimal::parse(text).unwrap();
        assert_eq!(of("300").hundredths(of("10")), Some(of("30")));
        assert_eq!(of("299.99").hundredths(of("7.5")), Some(of("22.49925")));
        assert_eq!(of("0").hundredths(of("10")), Some(of("0")));
        let long = of("1.234567890123456789012345678");
        assert_eq!(long.hundredths(of("1.5")), None);
        assert_eq!(of("9999999999999999999999999999").hundredths(of("1000")), None);
        assert_eq!(of("-1.00005").rounded_down(4), of("-1.0001"));
        assert_eq!(of("22.49925").rounded_down(4), of("22.4992"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_added_can_be_taken_away(one in -1_000_000_000i64..1_000_000_000, other in 0i64..1_000_000_000, places in 0u32..6) {
            let of = |number: i64| Decimal::parse(&format!("{number}e-{places}")).unwrap();
            let sum = of(one).plus(of(other)).unwrap();
            proptest::prop_assert_eq!(sum, of(one + other));
            proptest::prop_assert_eq!(sum.minus(of(other)), Some(of(one)));
            proptest::prop_assert_eq!(Decimal::parse(&sum.to_string()), Ok(sum));
        }

        #[test]
        fn a_share_is_exact(number in -1_000_000_000i64..1_000_000_000, places in 0u32..6, many in 0i64..100_000, behind in 0u32..3) {
            let of = Decimal::parse(&format!("{number}e-{places}")).unwrap();
            let many_hundredths = Decimal::parse(&format!("{many}e-{behind}")).unwrap();
            let share = of.hundredths(many_hundredths).unwrap();
            let product = i128::from(number) * i128::from(many);
            let want = Decimal::parse(&format!("{product}e-{}", places + behind + 2));
            proptest::prop_assert_eq!(want, Ok(share));
            let down = share.rounded_down(4);
            let step = Decimal::parse("0.0001").unwrap();
            proptest::prop_assert!(down <= share && share < down.plus(step).unwrap() && down.places() <= 4);
        }

        #[test]
        fn p4_reading_never_panics(text in ".{0,70}") {
            let _ = Decimal::parse(&text);
        }
    }
}
