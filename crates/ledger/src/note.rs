//! Signed notes and checkpoints: how a tree head is written, signed and checked.
//!
//! Answers: is this text a checkpoint of this log, signed with this key?
//! Promises: P10 (a checkpoint cannot be made without the key).
//! Trust: a note may come from anyone who could write to the folder or to the person; nothing in it counts before its
//! signature does.
//! Not here: where the key is kept (`key`).
//! See: C2SP signed-note, tlog-checkpoint.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signature;

use crate::key::{SigningKey, VerifierKey};
use crate::tree::Hash;

/// The most bytes that a note may have.
pub(crate) const MAX_NOTE: usize = 4096;

/// A checkpoint whose signature holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// How many records it covers.
    pub(crate) size: u64,
    /// The root of their tree.
    pub(crate) root: Hash,
}

/// A checkpoint as it is written, without its signature looked at.
pub(crate) struct UnverifiedCheckpoint<'a> {
    text: &'a str,
    signatures: &'a str,
    origin: &'a str,
    stated: Checkpoint,
}

/// Writes and signs a checkpoint.
pub(crate) fn sign(key: &SigningKey, origin: &str, size: u64, root: &Hash) -> String {
    let text = format!("{origin}\n{size}\n{}\n", STANDARD.encode(root));
    let signature = key.sign(text.as_bytes());
    let mut bytes = key.verifier().id().to_vec();
    bytes.extend_from_slice(&signature);
    format!(
        "{text}\n\u{2014} {} {}\n",
        key.verifier().name(),
        STANDARD.encode(bytes)
    )
}

impl<'a> UnverifiedCheckpoint<'a> {
    /// Reads a signed note; an unknown form is an error in words.
    pub(crate) fn parse(note: &'a str) -> Result<Self, &'static str> {
        if note.len() > MAX_NOTE {
            return Err("it is too long for a checkpoint");
        }
        let split = note.rfind("\n\n").ok_or("it is not a signed note")?;
        let (text, signatures) = note.split_at_checked(split + 1).ok_or("it is not a signed note")?;
        let mut lines = text.split('\n');
        let (origin, size, root) = (lines.next(), lines.next(), lines.next());
        let origin = origin.filter(|origin| !origin.is_empty()).ok_or("it has no origin")?;
        let size = size.and_then(whole).ok_or("it states no size")?;
        let root = root
            .and_then(|text| STANDARD.decode(text).ok())
            .and_then(|bytes| bytes.try_into().ok());
        let root = root.ok_or("it states no root")?;
        let stated = Checkpoint { size, root };
        Ok(Self {
            text,
            signatures: signatures.get(1..).unwrap_or_default(),
            origin,
            stated,
        })
    }

    /// What it states; not to be believed yet.
    pub(crate) fn stated(&self) -> &Checkpoint {
        &self.stated
    }

    /// Checks the signature. Signatures of others (witnesses) are passed over, as the format asks.
    pub(crate) fn verify(self, key: &VerifierKey) -> Result<Checkpoint, &'static str> {
        if self.origin != key.name() {
            return Err("it is of another log");
        }
        let mut found = false;
        for line in self.signatures.split_terminator('\n') {
            let line = line
                .strip_prefix("\u{2014} ")
                .ok_or("a line that should be a signature is none")?;
            let (name, bytes) = line
                .split_once(' ')
                .ok_or("a line that should be a signature is none")?;
            let bytes = STANDARD.decode(bytes).map_err(|_| "a signature is not base64")?;
            let (id, signature) = bytes.split_first_chunk::<4>().ok_or("a signature is too short")?;
            if name != key.name() || *id != key.id() {
                continue;
            }
            let signature = Signature::from_slice(signature).map_err(|_| "the signature has the wrong length")?;
            if !key.verifies(self.text.as_bytes(), &signature) {
                return Err("the signature does not match");
            }
            found = true;
        }
        if found {
            Ok(self.stated)
        } else {
            Err("it is not signed with this key")
        }
    }
}

/// Reads a decimal number as the format asks: digits alone, no leading zero.
fn whole(text: &str) -> Option<u64> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    plain.then(|| text.parse().ok()).flatten()
}

/// Reads a checkpoint that its keeper stands for: a signed note, or `SIZE ROOT`, as a run prints it. The short form needs
/// no signature: whoever kept it knows where it comes from, and one that was never true is never met by the log.
pub(crate) fn kept(text: &str, key: &VerifierKey) -> Result<Checkpoint, &'static str> {
    let short = || {
        let (size, root) = text.trim().split_once(' ')?;
        let root = STANDARD.decode(root).ok()?.try_into().ok()?;
        Some(Checkpoint {
            size: whole(size)?,
            root,
        })
    };
    short().map_or_else(|| verify(text, key), Ok)
}

/// Reads a note and checks its signature.
pub(crate) fn verify(note: &str, key: &VerifierKey) -> Result<Checkpoint, &'static str> {
    UnverifiedCheckpoint::parse(note)?.verify(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> SigningKey {
        SigningKey::from_seed(&[7; 32], "log.example/dana").unwrap()
    }

    #[test]
    fn p10_a_note_round_trips_and_no_byte_of_it_can_change() {
        let key = key();
        let note = sign(&key, "log.example/dana", 17, &[3; 32]);
        let verifier: VerifierKey = key.verifier().to_string().parse().unwrap();
        assert_eq!(
            verify(&note, &verifier),
            Ok(Checkpoint {
                size: 17,
                root: [3; 32]
            })
        );
        for at in 0..note.len() {
            let mut bytes = note.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(verify(&changed, &verifier).is_err(), "{changed}");
            }
        }
    }

    #[test]
    fn a_cosignature_of_a_witness_is_passed_over() {
        let key = key();
        let note = sign(&key, "log.example/dana", 17, &[3; 32]) + "\u{2014} witness.example AAAAAAEC\n";
        assert_eq!(verify(&note, key.verifier()).map(|checkpoint| checkpoint.size), Ok(17));
    }

    #[test]
    fn p10_the_note_of_another_log_is_refused() {
        let other = SigningKey::from_seed(&[7; 32], "log.example/rui").unwrap();
        let note = sign(&other, "log.example/rui", 17, &[3; 32]);
        assert!(verify(&note, key().verifier()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC*(\n\\PC*){0,6}") {
            let _ = verify(&text, key().verifier());
        }
    }
}
