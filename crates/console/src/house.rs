//! What every request of a browser works with: the desk, the papers, who is logged in.

use std::sync::{Arc, Mutex, MutexGuard};

use bailiwick_gate::desk::{Approver, Asked, Desk, DeskFault};
use bailiwick_gate::{Clock, Random};

use crate::papers::{Logins, Papers};
use crate::sessions::Sessions;

/// What a console is made of.
#[derive(Clone)]
pub struct House {
    /// Questions, grants, tasks.
    pub desk: Arc<dyn Desk>,
    /// The log and the rules.
    pub papers: Arc<dyn Papers>,
    /// People with codes of their own.
    pub logins: Option<Arc<dyn Logins>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
}

/// Words that are told where a page cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words(pub String);

impl From<DeskFault> for Words {
    fn from(fault: DeskFault) -> Self {
        Self(fault.to_string())
    }
}

impl From<String> for Words {
    fn from(words: String) -> Self {
        Self(words)
    }
}

/// The same, with who is logged in and where it listens.
#[derive(Clone)]
pub(crate) struct Open {
    pub house: House,
    pub sessions: Arc<Mutex<Sessions>>,
    pub port: u16,
    /// Verifying reads the whole log: one at a time.
    pub verifying: Arc<tokio::sync::Semaphore>,
}

impl Open {
    pub fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Calls the desk or the papers, which wait for the daemon and for files, on a thread where that harms nobody.
    pub async fn ask<T: Send + 'static>(&self, call: impl FnOnce(&House) -> T + Send + 'static) -> Result<T, Words> {
        let house = self.house.clone();
        tokio::task::spawn_blocking(move || call(&house))
            .await
            .map_err(|fault| Words(format!("the console could not ask the daemon: {fault}")))
    }

    /// The questions that wait, oldest first.
    pub async fn asked(&self) -> Result<Vec<Asked>, Words> {
        Ok(self.ask(|house| house.desk.asked()).await??)
    }
}

/// A session, as its pages know it.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    /// The part of its path that it alone knows.
    pub path: String,
    /// Who.
    pub approver: Approver,
    /// What every form carries.
    pub form: String,
}

impl Seat {
    /// The address of a page of this session.
    pub fn to(&self, page: &str) -> String {
        format!("/s/{}/{page}", self.path)
    }
}
