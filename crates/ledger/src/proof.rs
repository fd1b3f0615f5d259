//! Receipts: proof that a record is in a log, checked with the public key alone.
//!
//! Answers: was this very record in the log that this key signed?
//! Promises: P10.
//! Trust: a receipt comes from anyone; it proves only what hashes and a signature show.
//! See: C2SP tlog-proof; RFC 6962, section 2.1.1.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::folder::{read_checkpoint, read_tile};
use crate::key::VerifierKey;
use crate::note::{self, MAX_NOTE, UnverifiedCheckpoint};
use crate::tile::{Place, WIDTH, hashes};
use crate::tree::{Hash, node, root_of};

/// How a receipt begins.
const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// Says why a receipt cannot be made, or does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofFault {
    /// The published checkpoint does not cover the record yet.
    #[error("record {record} is not covered by the published checkpoint of {size} records")]
    NotCovered {
        /// The record.
        record: u64,
        /// How many the checkpoint covers.
        size: u64,
    },
    /// The log cannot be read.
    #[error("the log `{path}` cannot be read: {cause}")]
    Unreadable {
        /// The folder or file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// The receipt does not hold.
    #[error("the receipt does not hold: {0}")]
    Wrong(&'static str),
}

/// Makes a receipt for a record from the published checkpoint and its tiles.
pub fn inclusion_proof(folder: &Path, record: u64) -> Result<String, ProofFault> {
    let unreadable = |cause: String| ProofFault::Unreadable {
        path: folder.display().to_string(),
        cause,
    };
    let note = read_checkpoint(folder).map_err(|error| unreadable(error.to_string()))?;
    let note = note.ok_or_else(|| unreadable("there is no checkpoint".into()))?;
    let checkpoint =
        UnverifiedCheckpoint::parse(&note).map_err(|cause| unreadable(format!("in the checkpoint, {cause}")))?;
    let size = checkpoint.stated().size;
    if record >= size {
        return Err(ProofFault::NotCovered { record, size });
    }
    let mut text = format!("{HEADER}\nindex {record}\n");
    for (from, upto) in path_of(record, size) {
        let hash = subtree(folder, from, upto, size)?;
        text.push_str(&STANDARD.encode(hash));
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&note);
    Ok(text)
}

/// Checks a receipt for a record, given as it stands in the log; returns its index.
pub fn verify_inclusion(receipt: &str, entry: &[u8], key: &VerifierKey) -> Result<u64, ProofFault> {
    let wrong = ProofFault::Wrong;
    if receipt.len() > 2 * MAX_NOTE + 64 * 48 {
        return Err(wrong("it is too long"));
    }
    let (head, note) = receipt.split_once("\n\n").ok_or(wrong("it has no checkpoint"))?;
    let checkpoint = note::verify(note, key).map_err(ProofFault::Wrong)?;
    let mut lines = head.split('\n');
    if lines.next() != Some(HEADER) {
        return Err(wrong("it is not a receipt that this build knows"));
    }
    let index = lines
        .next()
        .and_then(|line| line.strip_prefix("index "))
        .and_then(|text| text.parse::<u64>().ok());
    let index = index.ok_or(wrong("it has no index"))?;
    if index >= checkpoint.size {
        return Err(wrong("its checkpoint does not cover the record"));
    }
    let mut hash = crate::tree::leaf(entry);
    for (from, _) in path_of(index, checkpoint.size) {
        let line = lines.next().ok_or(wrong("a hash is missing"))?;
        let other: Hash = STANDARD
            .decode(line)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(wrong("a hash is malformed"))?;
        hash = if from > index {
            node(&hash, &other)
        } else {
            node(&other, &hash)
        };
    }
    match lines.next() {
        None if hash == checkpoint.root => Ok(index),
        None => Err(wrong("the record is not the one that was logged")),
        Some(_) => Err(wrong("it has hashes too many")),
    }
}

/// The subtrees beside the way from a leaf to the root, lowest first, each as the range of its leaves.
fn path_of(index: u64, size: u64) -> Vec<(u64, u64)> {
    let (mut from, mut upto, mut beside) = (0, size, Vec::new());
    while upto - from > 1 {
        let split = from + (1 << (upto - from - 1).ilog2());
        if index < split {
            beside.push((split, upto));
            upto = split;
        } else {
            beside.push((from, split));
            from = split;
        }
    }
    beside.reverse();
    beside
}

/// The root of the records in a range of the tree of this size, from the hash tiles.
fn subtree(folder: &Path, from: u64, upto: u64, size: u64) -> Result<Hash, ProofFault> {
    let count = upto - from;
    if !count.is_power_of_two() {
        let split = from + (1 << (count - 1).ilog2());
        return Ok(node(
            &subtree(folder, from, split, size)?,
            &subtree(folder, split, upto, size)?,
        ));
    }
    let height = count.ilog2();
    let level = height / 8;
    let (first, wanted) = (from >> (8 * level), 1u64 << (height % 8));
    let number = first / WIDTH;
    let place = Place::full(u8::try_from(level).ok(), number);
    let partial = Place {
        width: (size >> (8 * level)) % WIDTH,
        ..place
    };
    let unreadable = |cause: String| ProofFault::Unreadable {
        path: folder.join(place.path()).display().to_string(),
        cause,
    };
    let mut tile = read_tile(folder, place).map_err(|error| unreadable(error.to_string()))?;
    if tile.is_none() && partial.width > 0 {
        tile = read_tile(folder, partial).map_err(|error| unreadable(error.to_string()))?;
    }
    let tile = tile.ok_or_else(|| unreadable("it is missing".into()))?;
    let at = (first % WIDTH) as usize;
    let hashes = hashes(&tile)
        .get(at..at + wanted as usize)
        .ok_or_else(|| unreadable("it is cut short".into()))?;
    Ok(root_of(hashes))
}
