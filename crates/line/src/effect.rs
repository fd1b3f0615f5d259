//! An effect that was allowed: it is begun, counted and settled.
//!
//! Promises: P1 (it is settled however it ends, also when whoever did it went away).
//! Not here: asking (`channel`), what cuts it off (`cuts`).

use std::sync::Arc;

use bailiwick_gate::{Passed, Redeemed, Spent, ToRedeem};
use bailiwick_model::Code;
use tokio::sync::oneshot;

use crate::channel::{ANSWER_TIME, Channel};
use crate::cuts::{Cut, REVOKED};
use crate::speaker::Say;

/// An effect that was allowed and may now be done. Settled when it is dropped, if not before.
pub struct Effect {
    channel: Channel,
    spent: Spent,
    begun: bool,
    settled: bool,
    passed: Passed,
    cut: Arc<Cut>,
}

impl Effect {
    pub(crate) fn new(channel: Channel, spent: Spent, cut: Arc<Cut>) -> Self {
        Self {
            channel,
            spent,
            begun: false,
            settled: false,
            passed: Passed::default(),
            cut,
        }
    }

    /// Whether it is cut off.
    pub fn cut(&self) -> &Arc<Cut> {
        &self.cut
    }

    /// What the permit was spent on.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Notes that the effect has begun: from now on it counts as done, however it ends.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// Notes how many bytes went out in all. Without it, all that was taken for it counts.
    pub fn sent(&mut self, bytes: impl TryInto<u64>) {
        self.passed.sent = bytes.try_into().ok();
    }

    /// Notes how many bytes came back, besides those noted before.
    pub fn received(&mut self, bytes: impl TryInto<u64>) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.passed.received = self.passed.received.saturating_add(bytes);
    }

    /// Gets what the permit obliges the gate to put in.
    pub async fn redeem(&self, wanted: ToRedeem) -> Result<Redeemed, Code> {
        let (answer, answered) = oneshot::channel();
        let say = Say::Redeem(self.spent.nonce(), wanted, answer);
        if !self.channel.say(say) {
            return Err(Code::MediatorUnavailable);
        }
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(Ok(redeemed)) => redeemed.map_err(|refusal| refusal.code),
            Ok(Err(_)) | Err(_) => Err(Code::MediatorUnavailable),
        }
    }

    /// Says what became of it.
    pub fn settle(mut self, done: bool, note: impl Into<String>) {
        self.over(done, note.into());
    }

    fn over(&mut self, done: bool, mut note: String) {
        self.settled = true;
        let nonce = self.spent.nonce();
        self.channel.cuts().end(nonce);
        if self.cut.is_cut() {
            note.push_str(", ");
            note.push_str(REVOKED);
        }
        self.channel.say(Say::settle(nonce, done, note, self.passed));
    }
}

impl Drop for Effect {
    fn drop(&mut self) {
        if !self.settled {
            let note = if self.begun {
                "broken off"
            } else {
                "given up before it was done"
            };
            self.over(self.begun, note.into());
        }
    }
}
