//! A request as it is sent: written once, with the digest that its permit must carry.
//!
//! Promises: P1 (a digest of this kind is made from a request and from nothing else, so that a permit cannot be used with
//! one that was merely named). Trust: the request stems from hostile bytes.
//! Not here: the frame round it (`client`), what the mediator makes of it.

use bailiwick_model::{Digest, Request};
use sha2::{Digest as _, Sha256};

/// The digest of a request: SHA-256 over a tag and its JSON, whose fields stand in a fixed order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestDigest(Digest);

impl RequestDigest {
    /// The digest of a request.
    pub fn of(request: &Request) -> Self {
        Written::of(request).digest
    }

    /// The digest as a value, to be told.
    pub fn value(self) -> Digest {
        self.0
    }
}

/// A request as JSON, with its digest.
#[derive(Debug, Clone)]
pub struct Written {
    json: Vec<u8>,
    digest: RequestDigest,
}

impl Written {
    /// Writes a request.
    pub fn of(request: &Request) -> Self {
        // A request holds only text, numbers and addresses: writing it cannot fail. Were it to, the digest of the empty
        // text would fit no other request, and no frame could be read.
        let json = serde_json::to_vec(request).unwrap_or_default();
        let mut hash = Sha256::new();
        hash.update(b"bailiwick request v1\n");
        hash.update(&json);
        let digest = RequestDigest(Digest(hash.finalize().into()));
        Self { json, digest }
    }

    /// Its digest.
    pub fn digest(&self) -> RequestDigest {
        self.digest
    }

    /// How many bytes its JSON has: one that is longer than a frame cannot be asked about.
    pub fn bytes(&self) -> usize {
        self.json.len()
    }

    /// Its JSON.
    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }
}
