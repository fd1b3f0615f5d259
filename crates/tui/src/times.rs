//! Moments and spans as a person reads them, in their own time zone.

use bailiwick_model::Millis;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, ZonedDateTime};

fn zoned(time: Millis, zone: &TimeZone) -> Option<ZonedDateTime> {
    let millis = i64::try_from(time.0).ok()?;
    Some(
        Timestamp::from_millisecond(millis)
            .ok()?
            .to_zoned_datetime(zone.clone()),
    )
}

/// A moment in local time: of today without its date.
pub fn local(time: Millis, now: Millis, zone: &TimeZone) -> String {
    match (zoned(time, zone), zoned(now, zone)) {
        (Some(time), Some(now)) if time.date() == now.date() => time.strftime("%H:%M:%S").to_string(),
        (Some(time), _) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        (None, _) => "a moment that no calendar has".into(),
    }
}

/// How the zone is called at a moment.
pub fn zone_name(time: Millis, zone: &TimeZone) -> String {
    zoned(time, zone).map_or_else(String::new, |time| time.strftime("%Z").to_string())
}

/// A span, in its two largest parts.
pub fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..600 => format!("{} min {} s", seconds / 60, seconds % 60),
        600..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The next time that a clock on the wall shows this: `18:30`, `7:05`. None for what is no time of the day.
pub fn next(text: &str, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<i8>().ok()).flatten()
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    let time = jiff::civil::Time::new(hour, minute, 0, 0).ok()?;
    let now = zoned(now, zone)?;
    // A day that has no such time, or has it twice, has what the calendar makes of it.
    [0, 1, 2].into_iter().find_map(|days| {
        let date = now.date().checked_add(days.days()).ok()?;
        let then = date.to_datetime(time).to_zoned_datetime(zone.clone()).ok()?;
        let millis = u64::try_from(then.timestamp().as_millisecond()).ok()?;
        (then > now).then_some(Millis(millis))
    })
}

/// A moment so much later, to the full minute above.
pub fn later(now: Millis, minutes: u64) -> Millis {
    let then = now.0.saturating_add(minutes.saturating_mul(60_000));
    Millis(then.div_ceil(60_000).saturating_mul(60_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30 18:04:05 UTC.
    const NOW: Millis = Millis(1_796_061_845_000);

    #[test]
    fn times_of_the_day_are_the_next_ones() {
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        let shown = |text: &str| next(text, NOW, &zurich).map(|then| local(then, NOW, &zurich));
        assert_eq!(local(NOW, NOW, &zurich), "19:04:05");
        assert_eq!(shown("19:05").as_deref(), Some("19:05:00"));
        assert_eq!(shown("19:04").as_deref(), Some("2026-12-01 19:04:00"));
        assert_eq!(shown("7:00").as_deref(), Some("2026-12-01 07:00:00"));
        for wrong in [
            "",
            "25:00",
            "19:60",
            "19",
            "19:5",
            "-1:00",
            "19:05:00",
            "１９:05",
            "+1:00",
        ] {
            assert_eq!(next(wrong, NOW, &zurich), None, "{wrong}");
        }
    }

    #[test]
    fn times_that_a_day_has_not_or_twice_still_come() {
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        let at = |text: &str| {
            let zoned: ZonedDateTime = text.parse().unwrap();
            Millis(u64::try_from(zoned.timestamp().as_millisecond()).unwrap())
        };
        let spring = at("2026-03-29T01:30:00+01:00[Europe/Zurich]");
        assert_eq!(
            local(next("02:30", spring, &zurich).unwrap(), spring, &zurich),
            "03:30:00"
        );
        let autumn = at("2026-10-25T02:15:00+02:00[Europe/Zurich]");
        assert_eq!(next("02:30", autumn, &zurich).unwrap().0 - autumn.0, 15 * 60_000);
        let second = at("2026-10-25T02:45:00+02:00[Europe/Zurich]");
        assert!(next("02:30", second, &zurich).unwrap() > second);
    }

    #[test]
    fn spans_have_two_parts() {
        for (millis, want) in [
            (999, "0 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (601_000, "10 min"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(millis), want);
        }
        assert_eq!(later(Millis(61_000), 10), Millis(12 * 60_000));
    }
}
