//! Currencies: how many digits an amount of them has behind the point (ISO 4217).
//!
//! Promises: P4 (an amount that the currency does not have, a tenth of a cent, is refused).

use bailiwick_model::Decimal;

/// The currencies that have another number of places than two.
const OTHERS: &[(u32, &[&str])] = &[
    (
        0,
        &[
            "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF",
            "XOF", "XPF",
        ],
    ),
    (3, &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"]),
    (4, &["CLF", "UYW"]),
];

/// The places of a currency; none where a unit is no currency's code.
pub(crate) fn places(unit: &str) -> Option<u32> {
    let is_code = unit.len() == 3 && unit.bytes().all(|byte| byte.is_ascii_uppercase());
    let other = OTHERS.iter().find(|(_, codes)| codes.contains(&unit));
    is_code.then(|| other.map_or(2, |(places, _)| *places))
}

/// Reads an amount with its unit: `200 EUR`, or a number alone.
pub(crate) fn amount_of(text: &str) -> Option<(Decimal, Option<String>)> {
    let (number, unit) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let number = Decimal::parse(number).ok().filter(|number| !number.is_negative())?;
    let unit = unit.trim();
    let plain = unit.chars().all(|c| c.is_alphanumeric()) && unit.len() <= 16;
    plain.then(|| (number, (!unit.is_empty()).then(|| unit.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_have_their_places() {
        for (unit, want) in [
            ("EUR", Some(2)),
            ("JPY", Some(0)),
            ("KWD", Some(3)),
            ("eur", None),
            ("points", None),
        ] {
            assert_eq!(places(unit), want, "{unit}");
        }
    }

    #[test]
    fn amounts_have_a_unit_or_none() {
        let read = |text: &str| amount_of(text).map(|(number, unit)| format!("{number} {}", unit.unwrap_or_default()));
        assert_eq!(read("200 EUR").as_deref(), Some("200 EUR"));
        assert_eq!(read("19.99").as_deref(), Some("19.99 "));
        for wrong in ["", "EUR", "-1 EUR", "1e999", "1 EUR CHF", "200EUR"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
