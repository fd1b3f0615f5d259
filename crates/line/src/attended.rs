//! Those who are served, and whose leaving is something to put on record.
//!
//! Promises: P10 (what a task's end brings to light is not lost with it).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// How many there are.
#[derive(Debug, Default)]
pub(crate) struct Attended {
    count: watch::Sender<usize>,
    /// There has been one.
    begun: AtomicBool,
}

/// Somebody is served, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Attending(Arc<Attended>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Attended {
    /// Notes one; says whether it is the first ever.
    pub(crate) fn begin(self: &Arc<Self>) -> (Attending, bool) {
        self.count.send_modify(|count| *count = count.saturating_add(1));
        (Attending(Arc::clone(self)), !self.begun.swap(true, Ordering::Relaxed))
    }

    /// Returns when there is nobody.
    pub(crate) async fn gone(&self) {
        let mut count = self.count.subscribe();
        // The sender lives as long as this.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}
