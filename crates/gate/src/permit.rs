//! Permits: one-use proof that the mediator allowed this very request.

use bailiwick_model::{Code, DecisionId, Digest, Millis, Nonce, Obligation, Request, TaskId};
use serde::{Deserialize, Serialize};

use crate::written::RequestDigest;

/// What a permit is for: data that anyone may read and no one can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermitTerms {
    /// The decision behind it.
    pub decision: DecisionId,
    /// The request it is for.
    pub digest: Digest,
    /// The task it is for.
    pub task: TaskId,
    /// Its identity.
    pub nonce: Nonce,
    /// When it lapses.
    pub deadline: Millis,
    /// What the gate must do.
    pub obligations: Vec<Obligation>,
}

/// Proof that one request was allowed. Not `Clone`; used once, by value.
#[derive(Debug)]
#[must_use = "a permit that is not used must be given up, so that what it reserved is released"]
pub struct Permit {
    terms: PermitTerms,
}

/// Says why a permit does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PermitFault {
    /// The request is not the one that was allowed.
    #[error("the permit is for another request")]
    OtherRequest,
    /// It has lapsed.
    #[error("the permit has lapsed")]
    Lapsed,
}

impl PermitFault {
    /// The code of the denial that this fault becomes.
    pub fn code(self) -> Code {
        Code::PermitRefused
    }
}

impl Permit {
    /// Makes a permit. For `mediator` and the client in this crate only: a test over the source holds the callers.
    #[doc(hidden)]
    pub fn issued_by_mediator(terms: PermitTerms) -> Self {
        Self { terms }
    }

    /// What the permit is for.
    pub fn terms(&self) -> &PermitTerms {
        &self.terms
    }

    /// Uses the permit for a request. The effect may follow, under the obligations, and must then be settled.
    pub fn spend(self, request: &Request, now: Millis) -> Result<Spent, PermitFault> {
        self.spend_as(RequestDigest::of(request), now)
    }

    /// The same for a request whose digest has been made.
    pub fn spend_as(self, request: RequestDigest, now: Millis) -> Result<Spent, PermitFault> {
        if request.value() != self.terms.digest {
            return Err(PermitFault::OtherRequest);
        }
        if now >= self.terms.deadline {
            return Err(PermitFault::Lapsed);
        }
        Ok(Spent { terms: self.terms })
    }
}

/// A permit that has been used; what is left is to do the effect and say what became of it.
#[derive(Debug)]
#[must_use = "an effect must be settled"]
pub struct Spent {
    terms: PermitTerms,
}

impl Spent {
    /// What the gate must do.
    pub fn obligations(&self) -> &[Obligation] {
        &self.terms.obligations
    }

    /// The identity of the permit, for settling.
    pub fn nonce(&self) -> Nonce {
        self.terms.nonce
    }

    /// The decision behind it, for messages.
    pub fn decision(&self) -> DecisionId {
        self.terms.decision
    }
}
