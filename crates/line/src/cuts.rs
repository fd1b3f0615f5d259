//! What goes on under a permit, and is cut off when the grant behind that permit holds no more.
//!
//! Promises: P11 (whoever waits or passes bytes under the permit is woken at once; a client that takes nothing, so that
//! nobody passes anything, loses its connection). Trust: the word comes from the mediator.
//! Not here: what stops where (each gate's own), the settlement (`effect`).

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bailiwick_model::Nonce;

/// How long what is cut off may take to end by itself, before the connection of its client is closed.
const CUT_TIME: Duration = Duration::from_millis(300);

/// Most tasks that are woken when an effect is cut off.
const CUT_WAKERS: usize = 4;

/// Most permits that were revoked before they came and are remembered.
const REVOKED_EARLY: usize = 1024;

/// What is said of what was cut off.
pub const REVOKED: &str = "cut off: what allowed it was revoked";

/// Whether one effect is cut off.
#[derive(Debug, Default)]
pub struct Cut {
    is_cut: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// The client's socket.
    client: Option<Arc<OwnedFd>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cut {
    /// True when it is.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Ready when it is cut off; else whoever polls is woken then.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_cut() {
            return Poll::Ready(());
        }
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            // The task that answers and the one that sends; others have gone on.
            if wakers.len() >= CUT_WAKERS {
                wakers.remove(0);
            }
            wakers.push(cx.waker().clone());
        }
        drop(wakers);
        if self.is_cut() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns when it is cut off.
    pub async fn off(&self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        lock(&self.wakers).drain(..).for_each(Waker::wake);
    }
}

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<Nonce, Arc<Cut>>,
    /// Revoked before the permit came, the last one last.
    early: VecDeque<Nonce>,
}

/// The effects that are under way.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Mutex<State>);

impl Cuts {
    /// An effect under this permit begins, on behalf of a client.
    pub(crate) fn begin(&self, nonce: Nonce, client: Option<Arc<OwnedFd>>) -> Arc<Cut> {
        let mut state = lock(&self.0);
        let cut = Arc::new(Cut {
            is_cut: AtomicBool::new(state.early.contains(&nonce)),
            wakers: Mutex::default(),
            client,
        });
        state.under_way.insert(nonce, Arc::clone(&cut));
        cut
    }

    /// It has ended.
    pub(crate) fn end(&self, nonce: Nonce) {
        lock(&self.0).under_way.remove(&nonce);
    }

    /// Cuts off what goes on under this permit, now or as soon as it comes. The client's connection ends where it is still
    /// going on a moment later.
    pub(crate) fn revoke(self: &Arc<Self>, nonce: Nonce) {
        let mut state = lock(&self.0);
        let Some(cut) = state.under_way.get(&nonce).cloned() else {
            if state.early.len() >= REVOKED_EARLY {
                state.early.pop_front();
            }
            state.early.push_back(nonce);
            return;
        };
        drop(state);
        cut.cut();
        let all = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(CUT_TIME).await;
            let goes_on = lock(&all.0).under_way.contains_key(&nonce);
            if goes_on && let Some(client) = &cut.client {
                let _ = rustix::net::shutdown(client, rustix::net::Shutdown::Both);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn p11_who_waits_under_a_revoked_permit_is_woken_and_one_that_comes_later_is_cut_at_once() {
        let cuts = Arc::<Cuts>::default();
        let (one, other) = (Nonce([1; 16]), Nonce([2; 16]));
        let waiting = cuts.begin(one, None);
        let untouched = cuts.begin(other, None);
        let waits = tokio::spawn({
            let waiting = Arc::clone(&waiting);
            async move { waiting.off().await }
        });
        tokio::task::yield_now().await;
        cuts.revoke(one);
        waits.await.unwrap();
        assert!(waiting.is_cut() && !untouched.is_cut());
        cuts.end(one);
        cuts.revoke(Nonce([3; 16]));
        assert!(cuts.begin(Nonce([3; 16]), None).is_cut());
        assert!(!cuts.begin(Nonce([4; 16]), None).is_cut());
    }
}
