//! Hours: on which days, between which times of the clock on the wall, in which time zone.
//!
//! Answers: is it open now, when does it close, when does it open next?
//! Promises: P4 (a time that no calendar has is closed), P14 (functions of a time that is handed in; the zones are built
//! in, so that no file of the machine changes an answer).
//! The one truth is `stands_open`: what a person reads off the clock and the calendar there. What is said about opening
//! and closing is found by looking where that changes: at the edges of windows, at midnight, where the clocks are set.
//! Trust: texts come from rule files. Not here: reading those (`read`), what hours are for (`mod`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use bailiwick_model::Millis;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Milliseconds of a day.
const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// How far is looked ahead, in days: a year, and what the longest holiday may hang over.
const HORIZON: u64 = 400;

/// The days of the week, Monday first.
const WEEK: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The zones that are built in.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone, by its name in the IANA database.
#[derive(Clone)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    /// The zone of this name; none where the database knows none.
    pub fn named(name: &str) -> Option<Self> {
        let rules = ZONES.get(name).ok()?;
        let name = rules.iana_name().unwrap_or("UTC").to_owned();
        Some(Self { name, rules })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of all zones.
    pub fn all() -> impl Iterator<Item = String> {
        ZONES.available().map(|name| name.to_string())
    }

    /// Date and time there; none for a time that no calendar has.
    fn at(&self, now: Millis) -> Option<DateTime> {
        let instant = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
        Some(self.rules.to_datetime(instant))
    }

    /// A time as people there write it: `Mon 2026-11-30 08:00 Europe/Zurich`.
    pub fn tell(&self, at: Millis) -> String {
        match self.at(at) {
            Some(there) => {
                let day = day_name(there.date());
                format!(
                    "{day} {} {:02}:{:02} {}",
                    there.date(),
                    there.hour(),
                    there.minute(),
                    self.name
                )
            }
            None => "a time that no calendar has".into(),
        }
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn number_of(date: Date) -> u8 {
    u8::try_from(date.weekday().to_monday_zero_offset()).unwrap_or(0)
}

fn day_name(date: Date) -> &'static str {
    WEEK.get(usize::from(number_of(date))).copied().unwrap_or("?")
}

/// Some days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    /// All seven.
    pub const ALL: Self = Self(0x7f);

    /// Reads `Mon`, `Mon-Fri`, `Sat-Mon`, and such with commas between.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let own = WEEK.iter().position(|day| day.eq_ignore_ascii_case(name))?;
            u8::try_from(own).ok()
        };
        let mut days = 0u8;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (mut day, last) = (number(first)?, number(last)?);
            loop {
                days |= 1 << day;
                if day == last {
                    break;
                }
                day = (day.saturating_add(1)) % 7;
            }
        }
        (days != 0).then_some(Self(days))
    }

    fn has(self, date: Date) -> bool {
        self.0 & (1 << number_of(date)) != 0
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("every day");
        }
        let is_in = |day: usize| self.0 & (1 << (day % 7)) != 0;
        let mut words = Vec::new();
        // Each run of days, from a day that is in and the one before it is not.
        for first in (0..7).filter(|day| is_in(*day) && !is_in(*day + 6)) {
            let length = (0..7).take_while(|more| is_in(first + more)).count();
            let name = |day: usize| WEEK.get(day % 7).copied().unwrap_or("?");
            words.push(match length {
                1 => name(first).to_owned(),
                _ => format!("{}-{}", name(first), name(first + length.saturating_sub(1))),
            });
        }
        f.write_str(&words.join(","))
    }
}

/// A time of the day to a time of the day, on some days. Where the second is not the later, it is on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The days on which it begins.
    pub days: Days,
    /// The minute of the day at which it begins.
    from: u16,
    /// The minute of the day before which it ends.
    to: u16,
}

impl Window {
    /// Reads `08:00-16:00` or, over midnight, `22:00-06:00`; `24:00` is the end of the day.
    pub fn parse(days: Days, text: &str) -> Option<Self> {
        let minute = |text: &str, most: u16| {
            let (hours, minutes) = text.split_once(':')?;
            let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number(hours) || !is_number(minutes) {
                return None;
            }
            let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
            let all = hours.checked_mul(60)?.checked_add(minutes)?;
            (minutes < 60 && all <= most).then_some(all)
        };
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minute(from, DAY.saturating_sub(1))?, minute(to, DAY)?);
        (from != to).then_some(Self { days, from, to })
    }

    fn has(&self, there: DateTime) -> bool {
        let minute = minute_of(there);
        let begins = |date: Date| self.days.has(date);
        if self.from < self.to {
            return begins(there.date()) && (self.from..self.to).contains(&minute);
        }
        let begun_yesterday = || there.date().yesterday().is_ok_and(begins);
        (minute >= self.from && begins(there.date())) || (minute < self.to && begun_yesterday())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{} {}-{}", self.days, clock(self.from), clock(self.to))
    }
}

fn minute_of(there: DateTime) -> u16 {
    let part = |number: i8| u16::try_from(number).unwrap_or(0);
    part(there.hour())
        .saturating_mul(60)
        .saturating_add(part(there.minute()))
}

/// Whole days on which it is closed, whatever the windows say: also the rest of a night that began the day before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// Days of the week.
    Days(Days),
    /// From a date to a date, both of them too.
    Dates {
        /// The first.
        first: Date,
        /// The last.
        last: Date,
    },
    /// The same day of each year.
    Yearly {
        /// 1 to 12.
        month: i8,
        /// 1 to 31.
        day: i8,
    },
}

impl Closed {
    /// Reads `Sat-Sun`, `2026-12-25`, `2026-12-24..2027-01-02`, `12-25`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(days) = Days::parse(text) {
            return Some(Self::Days(days));
        }
        let date = |text: &str| {
            // The library reads more ways of writing a date than people here need.
            let plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            plain.then(|| text.parse::<Date>().ok()).flatten()
        };
        if let Some((first, last)) = text.split_once("..") {
            let (first, last) = (date(first.trim())?, date(last.trim())?);
            return (first <= last).then_some(Self::Dates { first, last });
        }
        if let Some(day) = date(text) {
            return Some(Self::Dates { first: day, last: day });
        }
        let (month, day) = text.split_once('-')?;
        let number = |text: &str| (text.len() == 2).then(|| text.parse::<i8>().ok()).flatten();
        let (month, day) = (number(month)?, number(day)?);
        // A leap year has all days that there are.
        Date::new(2024, month, day).ok().map(|_| Self::Yearly { month, day })
    }

    fn has(&self, date: Date) -> bool {
        match self {
            Self::Days(days) => days.has(date),
            Self::Dates { first, last } => *first <= date && date <= *last,
            Self::Yearly { month, day } => date.month() == *month && date.day() == *day,
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Days(days) => days.fmt(f),
            Self::Dates { first, last } if first == last => first.fmt(f),
            Self::Dates { first, last } => write!(f, "{first}..{last}"),
            Self::Yearly { month, day } => write!(f, "{month:02}-{day:02}"),
        }
    }
}

/// When something is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours {
    /// Where the clock hangs.
    pub zone: Zone,
    /// Open in any of these.
    pub windows: Vec<Window>,
    /// Closed on these days.
    pub except: Vec<Closed>,
    /// Closed for so long before each closing too, in seconds.
    pub before_close: u64,
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: Vec<String>| all.join(", ");
        let windows = list(self.windows.iter().map(ToString::to_string).collect());
        write!(f, "{windows} {}", self.zone.name())?;
        if !self.except.is_empty() {
            write!(
                f,
                ", except {}",
                list(self.except.iter().map(ToString::to_string).collect())
            )?;
        }
        if self.before_close > 0 {
            write!(f, ", not within {} min of closing", self.before_close.div_ceil(60))?;
        }
        Ok(())
    }
}

impl Hours {
    /// True where the clock and the calendar there say that it is open.
    fn stands_open(&self, now: Millis) -> bool {
        let Some(there) = self.zone.at(now) else { return false };
        self.windows.iter().any(|window| window.has(there))
            && !self.except.iter().any(|closed| closed.has(there.date()))
    }

    /// Milliseconds of `before_close`.
    fn margin(&self) -> u64 {
        self.before_close.saturating_mul(1000)
    }

    /// True when it is open.
    pub fn is_open(&self, now: Millis) -> bool {
        let margin = self.margin();
        self.stands_open(now) && (margin == 0 || self.change(now, margin).is_none())
    }

    /// When it closes; none where it is closed, or goes on for more than a year.
    pub fn closes_at(&self, now: Millis) -> Option<Millis> {
        if !self.is_open(now) {
            return None;
        }
        let closing = self.change_in_sight(now)?;
        Some(Millis(closing.0.saturating_sub(self.margin())))
    }

    /// When it opens; none where it is open, or does not open within a year.
    pub fn opens_at(&self, now: Millis) -> Option<Millis> {
        if self.is_open(now) {
            return None;
        }
        let last = now.0.saturating_add(HORIZON.saturating_mul(DAY_MILLIS));
        let mut at = now;
        while at.0 < last {
            at = self.change_in_sight(at)?;
            // What is open for less than the margin never opens.
            if self.is_open(at) {
                return Some(at);
            }
        }
        None
    }

    /// The next change, as far as is looked ahead: near by first, since that is where it mostly is.
    fn change_in_sight(&self, now: Millis) -> Option<Millis> {
        let near = DAY_MILLIS.saturating_mul(4);
        let far = DAY_MILLIS.saturating_mul(HORIZON);
        self.change(now, near).or_else(|| self.change(now, far))
    }

    /// The first moment after this one, and no more than `within` milliseconds later, at which open becomes closed or closed
    /// open.
    fn change(&self, now: Millis, within: u64) -> Option<Millis> {
        let last = now.0.saturating_add(within);
        let is_open = self.stands_open(now);
        let changes = |at: &u64| self.stands_open(Millis(*at)) != is_open;
        let edges = self.edges(now, Millis(last));
        edges.into_iter().find(changes).map(Millis)
    }

    /// The moments after one and until another at which anything could change.
    fn edges(&self, after: Millis, until: Millis) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let is_between = |at: &u64| after.0 < *at && *at <= until.0;
        let mut add = |instant: Timestamp| found.extend(millis_of(instant).filter(is_between));
        let bounds = (self.zone.at(after), self.zone.at(until));
        let (Some(first), Some(last)) = bounds else {
            return found;
        };
        let ends = self.windows.iter().flat_map(|window| [window.from, window.to % DAY]);
        let minutes: BTreeSet<u16> = ends.chain([0]).collect();
        // Clocks have been set by a whole day, never by two.
        let back = |date: Date| date.yesterday().and_then(Date::yesterday).unwrap_or(date);
        let on = |date: Date| date.tomorrow().and_then(Date::tomorrow).unwrap_or(date);
        let (mut date, last) = (back(first.date()), on(last.date()));
        loop {
            for minute in &minutes {
                let part = |number: u16| i8::try_from(number).unwrap_or(0);
                let there = date.at(part(minute / 60), part(minute % 60), 0, 0);
                let offsets = match self.zone.rules.to_ambiguous_timestamp(there).offset() {
                    AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                    // Twice on that day, or never.
                    AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
                    AmbiguousOffset::Gap { .. } => [None, None],
                };
                let instants = offsets.into_iter().flatten();
                instants
                    .filter_map(|offset| offset.to_timestamp(there).ok())
                    .for_each(&mut add);
            }
            if date >= last {
                break;
            }
            let Ok(tomorrow) = date.tomorrow() else { break };
            date = tomorrow;
        }
        if let Some(from) = i64::try_from(after.0)
            .ok()
            .and_then(|at| Timestamp::from_millisecond(at).ok())
        {
            let set = self.zone.rules.following(from).map(|set| set.timestamp());
            set.take_while(|at| millis_of(*at).is_some_and(|at| at <= until.0))
                .for_each(&mut add);
        }
        found
    }
}

fn millis_of(instant: Timestamp) -> Option<u64> {
    u64::try_from(instant.as_millisecond()).ok()
}

#[cfg(test)]
mod tests;
