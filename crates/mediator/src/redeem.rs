//! Hands the secrets of a permit to its gate, each once.
//!
//! Promises: P9 (only what an open permit of this very task names, only once, only before the permit lapses), P10 (each
//! use is on disk before anything is handed out). Trust: who asks is a gate that hostile bytes may have taken over.
//! Not here: which requests a secret is for (`policy`), its value (the vault, which is handed in).

use std::sync::Arc;

use bailiwick_gate::{LedgerFault, Redeemed, Refusal, ToRedeem, ToSign, Use, Vault};
use bailiwick_model::{Code, Decision, Durability, Event, Nonce, Obligation, Record, Request, Resource, TaskId, Verb};

use crate::monitor::Mediator;
use crate::task::{Redeemable, lock};

/// What may be redeemed with the permit for a request.
pub(crate) fn redeemable(request: &Request, decision: &Decision) -> Option<Box<Redeemable>> {
    let (Resource::Url(url), Verb::Http(method)) = (&request.resource, &request.verb) else {
        return None;
    };
    let secrets: Vec<_> = decision
        .obligations
        .iter()
        .filter_map(|obligation| match obligation {
            Obligation::Inject { secret, place } => Some((secret.clone(), place.clone())),
            Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. }
            | Obligation::DialAddress { .. }
            | Obligation::MatchServerName
            | Obligation::RequestBody { .. }
            | Obligation::Answer { .. }
            | Obligation::PinKey { .. }
            | Obligation::Tool(_) => None,
        })
        .collect();
    let (method, url) = (method.clone(), url.clone());
    (!secrets.is_empty()).then(|| Box::new(Redeemable { method, url, secrets }))
}

/// What is called with what was redeemed.
type Then = Box<dyn FnOnce(Result<Redeemed, Refusal>) + Send>;

impl Mediator {
    /// Hands out what a permit names, once its use is on disk; calls back from whichever thread has it.
    pub(crate) fn redeem(
        &self,
        task: TaskId,
        nonce: &Nonce,
        wanted: ToRedeem,
        vault: Option<&Arc<dyn Vault>>,
        then: Then,
    ) {
        let ToRedeem {
            secret,
            sign,
            unwelcome,
        } = wanted;
        let refused = |code| Err(self.refuse(Some(task), code, &format!("redeem secret:{secret}")));
        let now = self.clock.now();
        let found = self.task(task).and_then(|task| {
            let _writer = lock(&task.writer);
            task.state().redeem(nonce, &secret, now)
        });
        let Some((id, method, url, place)) = found else {
            return then(refused(Code::PermitRefused));
        };
        let bounded = sign.as_ref().is_none_or(ToSign::is_bounded);
        let Some(vault) = vault.filter(|_| bounded).map(Arc::clone) else {
            return then(refused(Code::SecretUnavailable));
        };
        let event = Event::Redeemed {
            id,
            secret: secret.clone(),
            place: place.clone(),
        };
        let record = Record {
            time: now,
            task: Some(task),
            event,
        };
        let wanted = Use {
            task,
            secret,
            place,
            method,
            url,
            sign,
            unwelcome,
        };
        let handed = move |recorded: Result<_, LedgerFault>| match recorded {
            Ok(_) => {
                // This may be the log's own thread: what is refused here is on record when the gate settles.
                let code = Code::SecretUnavailable;
                vault.redeem(
                    wanted,
                    Box::new(move |handed| then(handed.map_err(|_| Refusal::new(id, code)))),
                );
            }
            Err(_) => then(Err(Refusal::new(id, Code::LogUnavailable))),
        };
        match self.ledger.append(&record, Durability::Durable) {
            Ok(pending) => pending.then(Box::new(handed)),
            Err(fault) => handed(Err(fault)),
        }
    }
}
