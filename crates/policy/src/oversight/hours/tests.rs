//! Hours against a table of the week that is walked minute by minute, in every zone and over every change of the clocks.

use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60_000;

fn hours(zone: &str, windows: &[(&str, &str)], except: &[&str], before_close: u64) -> Hours {
    Hours {
        zone: Zone::named(zone).unwrap(),
        windows: windows
            .iter()
            .map(|(days, times)| {
                let days = if days.is_empty() {
                    Days::ALL
                } else {
                    Days::parse(days).unwrap()
                };
                Window::parse(days, times).unwrap()
            })
            .collect(),
        except: except.iter().map(|text| Closed::parse(text).unwrap()).collect(),
        before_close,
    }
}

/// `2026-03-29T02:00:00+01:00`, in milliseconds.
fn at(text: &str) -> Millis {
    let instant: Timestamp = text.parse().unwrap();
    Millis(u64::try_from(instant.as_millisecond()).unwrap())
}

/// For each minute of a week whether it is open: written down window by window.
fn week(windows: &[Window]) -> Vec<bool> {
    let mut table = vec![false; 7 * 1440];
    for window in windows {
        for day in 0..7usize {
            if window.days.0 & (1 << day) == 0 {
                continue;
            }
            let (from, to) = (usize::from(window.from), usize::from(window.to));
            let to = if to > from { to } else { to + 1440 };
            for minute in from..to {
                table[(day * 1440 + minute) % (7 * 1440)] = true;
            }
        }
    }
    table
}

fn by_table(hours: &Hours, table: &[bool], now: Millis) -> bool {
    let instant = Timestamp::from_millisecond(i64::try_from(now.0).unwrap()).unwrap();
    let there = hours.zone.rules.to_datetime(instant);
    let day = usize::try_from(there.weekday().to_monday_zero_offset()).unwrap();
    let minute = usize::try_from(there.hour()).unwrap() * 60 + usize::try_from(there.minute()).unwrap();
    let closed = hours.except.iter().any(|closed| match closed {
        Closed::Days(days) => days.0 & (1 << day) != 0,
        Closed::Dates { first, last } => (*first..=*last).contains(&there.date()),
        Closed::Yearly { month, day } => (there.month(), there.day()) == (*month, *day),
    });
    table[day * 1440 + minute] && !closed
}

#[test]
fn c053_a_night_is_from_its_first_second_to_its_last_also_where_the_clocks_are_set() {
    let night = hours("Europe/Zurich", &[("", "22:00-06:00")], &[], 0);
    for (time, want) in [
        ("2026-06-01T21:59:59.999+02:00", false),
        ("2026-06-01T22:00:00+02:00", true),
        ("2026-06-02T05:59:59.999+02:00", true),
        ("2026-06-02T06:00:00+02:00", false),
        // Summer time begins: 02:00 is 03:00. The night has seven hours.
        ("2026-03-28T21:59:59+01:00", false),
        ("2026-03-28T22:00:00+01:00", true),
        ("2026-03-29T01:59:59+01:00", true),
        ("2026-03-29T03:00:00+02:00", true),
        ("2026-03-29T05:59:59+02:00", true),
        ("2026-03-29T06:00:00+02:00", false),
        // The winter's six o'clock is the summer's seven.
        ("2026-03-29T06:00:00+01:00", false),
        // Summer time ends: 02:00 to 03:00 comes twice. The night has nine hours.
        ("2026-10-24T21:59:59+02:00", false),
        ("2026-10-24T22:00:00+02:00", true),
        ("2026-10-25T02:30:00+02:00", true),
        ("2026-10-25T02:30:00+01:00", true),
        ("2026-10-25T05:59:59+01:00", true),
        ("2026-10-25T06:00:00+01:00", false),
    ] {
        assert_eq!(night.is_open(at(time)), want, "{time}");
    }
    for (time, closes) in [
        ("2026-06-01T23:00:00+02:00", "2026-06-02T06:00:00+02:00"),
        ("2026-03-28T23:00:00+01:00", "2026-03-29T06:00:00+02:00"),
        ("2026-10-24T23:00:00+02:00", "2026-10-25T06:00:00+01:00"),
    ] {
        assert_eq!(night.closes_at(at(time)), Some(at(closes)), "{time}");
    }
    assert_eq!(
        night.opens_at(at("2026-03-29T12:00:00+02:00")),
        Some(at("2026-03-29T22:00:00+02:00"))
    );
}

#[test]
fn p14_a_time_that_comes_twice_is_open_twice_and_one_that_never_comes_is_not_open() {
    let quarter = hours("Europe/Zurich", &[("", "02:15-02:45")], &[], 0);
    // In spring that half hour does not come.
    assert_eq!(
        quarter.opens_at(at("2026-03-29T00:00:00+01:00")),
        Some(at("2026-03-30T02:15:00+02:00"))
    );
    // In autumn it comes twice, with a pause between.
    let first = at("2026-10-25T02:15:00+02:00");
    assert_eq!(quarter.opens_at(at("2026-10-25T00:00:00+02:00")), Some(first));
    assert_eq!(quarter.closes_at(first), Some(at("2026-10-25T02:45:00+02:00")));
    assert_eq!(
        quarter.opens_at(at("2026-10-25T02:50:00+02:00")),
        Some(at("2026-10-25T02:15:00+01:00"))
    );
    // A window that the change leads out of closes at the change.
    let late = hours("Europe/Zurich", &[("", "01:00-02:30")], &[], 0);
    assert_eq!(
        late.closes_at(at("2026-03-29T01:30:00+01:00")),
        Some(at("2026-03-29T03:00:00+02:00"))
    );
    // A day that an island left out.
    let apia = hours("Pacific/Apia", &[("Fri", "00:00-24:00")], &[], 0);
    assert_eq!(
        apia.opens_at(at("2011-12-29T12:00:00-10:00")),
        Some(at("2012-01-06T00:00:00+14:00"))
    );
}

#[test]
fn p4_days_that_are_closed_are_closed_whole_and_closing_comes_earlier_by_the_margin() {
    let office = hours(
        "Europe/Zurich",
        &[("Mon-Fri", "08:00-16:00")],
        &["2026-12-24..2027-01-02", "08-01", "Wed"],
        2 * 3600,
    );
    for (time, want) in [
        ("2026-11-30T13:59:59.999+01:00", true),
        ("2026-11-30T14:00:00+01:00", false),
        ("2026-11-30T15:59:59+01:00", false),
        ("2026-12-02T10:00:00+01:00", false),
        ("2026-12-24T10:00:00+01:00", false),
        ("2027-01-01T10:00:00+01:00", false),
        ("2027-01-04T10:00:00+01:00", true),
        // The first of August is a Saturday in 2026, and a Tuesday in 2028.
        ("2028-08-01T10:00:00+02:00", false),
        ("2028-07-31T10:00:00+02:00", true),
    ] {
        assert_eq!(office.is_open(at(time)), want, "{time}");
    }
    assert_eq!(
        office.closes_at(at("2026-11-30T09:00:00+01:00")),
        Some(at("2026-11-30T14:00:00+01:00"))
    );
    assert_eq!(
        office.opens_at(at("2026-12-23T15:00:00+01:00")),
        Some(at("2027-01-04T08:00:00+01:00"))
    );
    // The rest of a night falls away with its day.
    let night = hours("UTC", &[("Fri", "22:00-06:00")], &["Sat"], 0);
    assert_eq!(
        night.closes_at(at("2026-11-27T23:00:00Z")),
        Some(at("2026-11-28T00:00:00Z"))
    );
    // What is always open never closes; what is open for less than the margin never opens.
    let always = hours("UTC", &[("", "00:00-24:00")], &[], 3600);
    assert!(always.is_open(at("2026-11-27T23:59:59Z")) && always.closes_at(at("2026-11-27T23:59:59Z")).is_none());
    let never = hours("UTC", &[("", "08:00-09:00")], &[], 3600);
    assert!(!never.is_open(at("2026-11-27T08:30:00Z")) && never.opens_at(at("2026-11-27T08:30:00Z")).is_none());
    // Windows that touch are one: closing is where both have ended.
    let two = hours("UTC", &[("", "08:00-12:00"), ("", "12:00-16:00")], &[], 3600);
    assert!(two.is_open(at("2026-11-27T11:59:00Z")));
    assert_eq!(
        two.closes_at(at("2026-11-27T11:59:00Z")),
        Some(at("2026-11-27T15:00:00Z"))
    );
}

#[test]
fn p4_times_that_no_calendar_has_are_closed() {
    let always = hours("Asia/Kathmandu", &[("", "00:00-24:00")], &[], 0);
    for time in [Millis(u64::MAX), Millis(u64::MAX / 2), Millis(1 << 60)] {
        assert!(!always.is_open(time));
        assert_eq!(always.closes_at(time), None);
        assert_eq!(always.opens_at(time), None);
        assert!(!always.zone.tell(time).is_empty());
    }
    assert!(always.is_open(Millis(0)));
}

#[test]
fn what_is_written_is_read_and_nothing_else() {
    for (text, want) in [
        ("Mon-Fri", Some("Mon-Fri")),
        ("mon,WED", Some("Mon,Wed")),
        ("Sat-Mon", Some("Sat-Mon")),
        ("Mon-Sun", Some("every day")),
        ("Mon,Tue,Thu-Fri", Some("Mon-Tue,Thu-Fri")),
        ("Monday", None),
        ("", None),
        ("Mon-", None),
        ("Mon--Fri", None),
    ] {
        assert_eq!(
            Days::parse(text).map(|days| days.to_string()).as_deref(),
            want,
            "{text}"
        );
    }
    for (text, want) in [
        ("08:00-16:00", true),
        ("22:00-06:00", true),
        ("00:00-24:00", true),
        ("8:00-16:00", false),
        ("08:00-08:00", false),
        ("24:00-08:00", false),
        ("08:60-09:00", false),
        ("08:00-25:00", false),
        ("08:00", false),
        ("+8:00-16:00", false),
    ] {
        assert_eq!(Window::parse(Days::ALL, text).is_some(), want, "{text}");
    }
    for (text, want) in [
        ("Sat-Sun", Some("Sat-Sun")),
        ("2026-12-25", Some("2026-12-25")),
        ("2026-12-24 .. 2027-01-02", Some("2026-12-24..2027-01-02")),
        ("02-29", Some("02-29")),
        ("2027-01-02..2026-12-24", None),
        ("2026-02-30", None),
        ("13-01", None),
        ("2026-12-25T10:00:00", None),
        ("20261225", None),
    ] {
        assert_eq!(
            Closed::parse(text).map(|closed| closed.to_string()).as_deref(),
            want,
            "{text}"
        );
    }
    assert!(Zone::named("Europe/Zürich").is_none() && Zone::named("../etc/passwd").is_none());
    assert_eq!(Zone::named("europe/zurich").unwrap().name(), "Europe/Zurich");
    assert_eq!(
        hours("UTC", &[("Mon-Fri", "08:00-16:00")], &["12-25"], 7200).to_string(),
        "Mon-Fri 08:00-16:00 UTC, except 12-25, not within 120 min of closing"
    );
}

/// Where the clocks of each zone are set, from 2015 on, with what lies between.
fn changes(zone: &Zone) -> Vec<u64> {
    let from: Timestamp = "2015-01-01T00:00:00Z".parse().unwrap();
    let until: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let set = zone.rules.following(from).map(|set| set.timestamp());
    set.take_while(|at| *at < until).filter_map(millis_of).collect()
}

#[test]
fn p14_every_zone_agrees_with_the_table_round_every_change_of_its_clocks() {
    let mut zones = 0;
    let mut seen = 0;
    for name in Zone::all() {
        let Some(zone) = Zone::named(&name) else { continue };
        zones += 1;
        let windows = [
            Window::parse(Days::ALL, "22:00-06:00").unwrap(),
            Window::parse(Days::parse("Sun").unwrap(), "01:30-02:30").unwrap(),
        ];
        let all = changes(&zone);
        let times: Vec<u64> = all
            .iter()
            .rev()
            .take(4)
            .copied()
            .chain([at("2026-07-01T00:00:00Z").0])
            .collect();
        for time in times {
            for window in windows {
                let own = Hours {
                    zone: zone.clone(),
                    windows: vec![window],
                    except: Vec::new(),
                    before_close: 0,
                };
                let table = week(&own.windows);
                for minutes in (-300i64..=300).step_by(15) {
                    let now = Millis(time.checked_add_signed(minutes * 60_000).unwrap());
                    for now in [now, Millis(now.0 - 1)] {
                        assert_eq!(
                            own.is_open(now),
                            by_table(&own, &table, now),
                            "{name} {}",
                            zone.tell(now)
                        );
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(zones > 400 && seen > 200_000, "{zones} zones, {seen} times");
}

fn any_hours() -> impl Strategy<Value = Hours> {
    let names: Vec<String> = Zone::all().filter(|name| Zone::named(name).is_some()).collect();
    let window = (1u8..128, 0u16..96, 1u16..=96).prop_filter_map("of no length", |(days, from, to)| {
        let (from, to) = (from * 15, to * 15);
        (from != to).then_some(Window {
            days: Days(days),
            from,
            to,
        })
    });
    let closed = prop_oneof![
        (1u8..127).prop_map(|days| Closed::Days(Days(days))),
        (1i8..=12, 1i8..=28).prop_map(|(month, day)| Closed::Yearly { month, day })
    ];
    (
        proptest::sample::select(names),
        proptest::collection::vec(window, 1..4),
        proptest::collection::vec(closed, 0..2),
        prop_oneof![Just(0u64), (1u64..20).prop_map(|quarters| quarters * 900)],
    )
        .prop_map(|(zone, windows, except, before_close)| Hours {
            zone: Zone::named(&zone).unwrap(),
            windows,
            except,
            before_close,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// The clock is handed in: any time of forty years, with those round a change of the clocks among them.
    #[test]
    fn p14_opening_and_closing_are_where_the_table_turns(
        hours in any_hours(), far in 0u64..40, minute in 0u64..525_600, near in any::<prop::sample::Index>(), round in any::<bool>(),
    ) {
        let all = changes(&hours.zone);
        let free = far * 365 * DAY_MILLIS + minute * MINUTE;
        let now = match all.is_empty() || !round {
            true => free,
            false => near.get(&all) + (minute % 2880) * MINUTE - DAY_MILLIS,
        };
        let plain = Hours { before_close: 0, ..hours.clone() };
        let table = week(&plain.windows);
        let now = Millis(now);
        prop_assert_eq!(plain.is_open(now), by_table(&plain, &table, now));
        // The next turn within eight days, found minute by minute.
        let open = by_table(&plain, &table, now);
        let turn = (1..8 * 1440)
            .map(|minutes| Millis(now.0 + minutes * MINUTE))
            .find(|at| by_table(&plain, &table, *at) != open);
        let found = if open { plain.closes_at(now) } else { plain.opens_at(now) };
        match (turn, found) {
            (Some(turn), Some(found)) => {
                // Old offsets have seconds; then the turn lies within the minute.
                prop_assert!(found <= turn && turn.0 - found.0 < MINUTE, "{:?} {:?}", turn, found);
            }
            (Some(turn), None) => prop_assert!(false, "it turns at {:?}", turn),
            (None, Some(found)) => prop_assert!(found.0 > now.0 + (8 * 1440 - 1) * MINUTE),
            (None, None) => {}
        }
        // The margin only takes away, and what is said of it holds.
        if hours.is_open(now) {
            prop_assert!(plain.is_open(now));
            if let Some(closes) = hours.closes_at(now) {
                prop_assert!(closes > now && !hours.is_open(closes));
                prop_assert!(hours.is_open(Millis(closes.0 - 1)));
            }
        } else if let Some(opens) = hours.opens_at(now) {
            prop_assert!(opens > now && hours.is_open(opens) && !hours.is_open(Millis(opens.0 - 1)));
        }
    }
}
