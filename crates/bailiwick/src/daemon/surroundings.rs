//! The clock and the randomness that the deciding ring is handed.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bailiwick_gate::{Clock, Random};
use bailiwick_model::Millis;

/// The machine's clock, which never goes back: where that is set back, time goes on as fast as it did, so that what was granted
/// for a time ends when that time is over. Where it is set forward, time goes along.
#[derive(Debug, Default)]
pub struct SteadyClock(Mutex<Option<(Instant, u64)>>);

impl SteadyClock {
    /// Has time begin no earlier than this: what was kept then was there already.
    pub fn no_earlier_than(&self, time: Millis) {
        self.at(Instant::now(), time.0);
    }

    fn at(&self, elapsed: Instant, wall: u64) -> Millis {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = last.map_or(0, |(then, time)| {
            let passed = elapsed.saturating_duration_since(then).as_millis();
            u64::try_from(passed).map_or(u64::MAX, |passed| time.saturating_add(passed))
        });
        let now = wall.max(steady);
        // Kept from the moment that counts, so that no part of a millisecond is lost on the way.
        if last.is_none() || wall > steady {
            *last = Some((elapsed, now));
        }
        Millis(now)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.at(Instant::now(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The kernel's randomness (getrandom(2)).
#[derive(Debug, Clone, Copy)]
pub struct KernelRandom;

impl Random for KernelRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(got) => rest = rest.get_mut(got..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                // Ids and permits that can be guessed are worth nothing: without randomness there is no going on.
                Err(_) => std::process::abort(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn c053_a_clock_that_is_set_back_lengthens_nothing() {
        let clock = SteadyClock::default();
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        assert_eq!(clock.at(begin, 1_000_000), Millis(1_000_000));
        assert_eq!(clock.at(after(10), 1_000_010), Millis(1_000_010));
        assert_eq!(clock.at(after(20), 10), Millis(1_000_020), "set back: time goes on");
        assert_eq!(clock.at(after(5_020), 5_010), Millis(1_005_020));
        assert_eq!(
            clock.at(after(5_030), 9_000_000),
            Millis(9_000_000),
            "set forward: it goes along"
        );
    }
}
