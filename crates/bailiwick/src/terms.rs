//! How often and how long a yes holds, as a person writes it on a command line.

use bailiwick_gate::desk::{Scope, Terms};
use bailiwick_model::{Millis, visible};
use jiff::tz::TimeZone;

use crate::cli::TermsArgs;
use crate::failure::Failure;

/// Longest time that can be written, in seconds: a year.
const LONGEST: u64 = 366 * 24 * 60 * 60;

/// Reads terms; times of day are this machine's.
pub fn read(args: &TermsArgs, scope: Scope, now: Millis) -> Result<Terms, Failure> {
    let span = args.span.as_deref().map(|text| after(text, now)).transpose()?;
    let until = args
        .until
        .as_deref()
        .map(|text| at(text, now, &TimeZone::system()))
        .transpose()?;
    if args.times == Some(0) {
        return Err(Failure::usage("`--times 0` is no yes"));
    }
    Ok(Terms {
        count: args.times,
        until: span.or(until),
        scope,
    })
}

/// A time from now on: `90 s`, `10 min`, `2 h`, `3 d`.
fn after(text: &str, now: Millis) -> Result<Millis, Failure> {
    let wrong = || {
        Failure::usage(format!("`{}` is no length of time", visible(text)))
            .hint("write `60 s`, `10 min`, `2 h` or `3 d`, up to a year")
    };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let seconds = seconds
        .filter(|seconds| (1..=LONGEST).contains(seconds))
        .ok_or_else(wrong)?;
    Ok(Millis(now.0.saturating_add(seconds.saturating_mul(1000))))
}

/// The next moment at which clocks here show a time of day, as on the screen.
fn at(text: &str, now: Millis, zone: &TimeZone) -> Result<Millis, Failure> {
    bailiwick_tui::next(text, now, zone).ok_or_else(|| {
        Failure::usage(format!("`{}` is no time of day", visible(text))).hint("write hours and minutes, as in `18:00`")
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn zone() -> TimeZone {
        TimeZone::get("Europe/Zurich").unwrap()
    }

    fn millis(text: &str) -> Millis {
        Millis(u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    #[test]
    fn times_of_day_are_the_next_ones_here() {
        for (now, text, want) in [
            ("2026-11-30T06:00:00Z", "18:00", "2026-11-30T17:00:00Z"),
            ("2026-11-30T17:00:00Z", "18:00", "2026-12-01T17:00:00Z"),
            ("2026-06-30T06:00:00Z", "9:05", "2026-06-30T07:05:00Z"),
            // Clocks are set forward at 2:00, and back at 3:00.
            ("2026-03-28T20:00:00Z", "02:30", "2026-03-29T01:30:00Z"),
            ("2026-10-24T20:00:00Z", "02:30", "2026-10-25T00:30:00Z"),
        ] {
            assert_eq!(
                at(text, millis(now), &zone()).unwrap(),
                millis(want),
                "{text} after {now}"
            );
        }
        for bad in ["", "18", "24:00", "18:60", "1800", "-1:00", "018:00"] {
            assert!(at(bad, Millis(0), &zone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_of_time_have_units() {
        assert_eq!(after("60 s", Millis(5)).unwrap(), Millis(60_005));
        assert_eq!(after("10min", Millis(0)).unwrap(), Millis(600_000));
        for bad in ["", "10", "0 s", "1 fortnight", "99999999999 h", "400 d"] {
            assert!(after(bad, Millis(0)).is_err(), "{bad}");
        }
    }
}
