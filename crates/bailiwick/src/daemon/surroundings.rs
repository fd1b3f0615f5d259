//! The clock and the randomness that the deciding ring is handed.

use std::time::{SystemTime, UNIX_EPOCH};

use bailiwick_gate::{Clock, Random};
use bailiwick_model::Millis;

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
