//! Verifying, offline: is every record as it was written, and if not, which is the first that is not?
//!
//! Answers: which record was changed, dropped, swapped, cut off or added?
//! Promises: P10.
//! Trust: nothing in the folder is believed. What holds is the public key, and a checkpoint that the caller kept
//! (`since`). Without one, going back to an older state of the folder as a whole cannot be found.
//! Not here: repairing (nothing is), reading for people (`read`).
//! See: docs/design/log.md, "what verify checks".
//!
//! All hashes are computed from the records. The stored hash tiles serve to say *which* record is wrong; the signed
//! checkpoints say *that* one is.

use std::fmt;
use std::io;
use std::path::Path;
use std::thread;

use crate::folder::{list_tiles, read_checkpoint, read_tile};
use crate::key::VerifierKey;
use crate::note::{self, Checkpoint, UnverifiedCheckpoint};
use crate::tail::{self, RestKind, Segment};
use crate::tile::{Place, WIDTH, entries, hashes};
use crate::tree::{Hash, Tree, leaf, root_of};

/// What `verify` saw.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// How many records there are, all covered by a signature.
    pub size: u64,
    /// How many of them the published checkpoint covers.
    pub checkpoint_size: u64,
    /// Bytes at the end of the tail that are no record: a write that a crash cut short, or one that is going on.
    pub unsigned_tail: u64,
    /// The newest signed checkpoint.
    pub checkpoint: String,
}

/// How a record is not as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// Its content was changed.
    Changed,
    /// It, and perhaps others, were taken out; what stands in its place came later.
    Dropped,
    /// It changed places with another.
    Swapped,
    /// It was put in.
    Added,
    /// It and all after it are missing.
    Cut,
    /// It is the first that may be wrong: the signatures do not fit, and the hashes were changed too.
    Unknown,
}

/// Says what is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyFault {
    /// A record is not as it was.
    #[error("record {record} {how}: {cause}")]
    Record {
        /// The first that is wrong, from 0.
        record: u64,
        /// In which way.
        how: Tampering,
        /// What shows it.
        cause: String,
    },
    /// A checkpoint does not hold.
    #[error("the checkpoint `{which}` does not hold: {cause}")]
    Checkpoint {
        /// Which one.
        which: String,
        /// Why.
        cause: String,
    },
    /// A file is there that is no part of the log.
    #[error("`{path}` is no part of a log")]
    Stray {
        /// Its path in the folder.
        path: String,
    },
    /// Something cannot be read.
    #[error("the log `{path}` cannot be read: {cause}")]
    Unreadable {
        /// The folder or file.
        path: String,
        /// What was found.
        cause: String,
    },
}

impl VerifyFault {
    /// The first record that is wrong, where that can be said.
    pub fn record(&self) -> Option<u64> {
        match self {
            Self::Record { record, .. } => Some(*record),
            _ => None,
        }
    }

    fn wrong(record: u64, how: Tampering, cause: impl Into<String>) -> Self {
        Self::Record {
            record,
            how,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Tampering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "was changed",
            Self::Dropped => "was dropped",
            Self::Swapped => "was swapped with another",
            Self::Added => "was added",
            Self::Cut => "and all after it are missing",
            Self::Unknown => "is the first that may be wrong",
        })
    }
}

/// Verifies a log from its files and the public key; a daemon may be writing it meanwhile.
///
/// With `since`, an older checkpoint that was kept elsewhere (a signed note, or `SIZE ROOT`): also that the log is a continuation of it.
pub fn verify(folder: &Path, key: &VerifierKey, since: Option<&str>) -> Result<Verified, VerifyFault> {
    let unreadable = |error: io::Error| VerifyFault::Unreadable {
        path: folder.display().to_string(),
        cause: error.to_string(),
    };
    let since = since
        .map(|text| note::kept(text, key))
        .transpose()
        .map_err(|cause| VerifyFault::Checkpoint {
            which: "since".into(),
            cause: cause.into(),
        })?;
    // In this order: what is published is in the tail, and what is in tiles is in the tail or was.
    let published = read_checkpoint(folder)
        .map_err(unreadable)?
        .ok_or_else(|| VerifyFault::Checkpoint {
            which: "checkpoint".into(),
            cause: "there is none; this is no log, or it was taken away".into(),
        })?;
    let checkpoint = check_note(&published, key, "checkpoint")?;
    let (places, stray) = list_tiles(folder).map_err(unreadable)?;
    if let Some(path) = stray {
        return Err(VerifyFault::Stray {
            path: path.display().to_string(),
        });
    }
    let segments = tail::read(folder).map_err(unreadable)?;
    Check {
        folder,
        key,
        checkpoint,
        since,
        places,
        segments: &segments,
    }
    .run(published)
}

fn check_note(text: &str, key: &VerifierKey, which: &str) -> Result<Checkpoint, VerifyFault> {
    let fault = |cause: &str| VerifyFault::Checkpoint {
        which: which.into(),
        cause: cause.into(),
    };
    note::verify(text, key).map_err(fault)
}

struct Check<'a> {
    folder: &'a Path,
    key: &'a VerifierKey,
    checkpoint: Checkpoint,
    since: Option<Checkpoint>,
    places: Vec<Place>,
    segments: &'a [Segment],
}

/// The records of the tail, as far as they are whole.
struct TailRecords<'a> {
    start: u64,
    entries: Vec<&'a [u8]>,
    /// With the index of the first record of its frame.
    notes: Vec<(u64, &'a str)>,
    rest: Option<Rest>,
}

/// What follows the whole frames of a segment and is none.
struct Rest {
    len: u64,
    /// The first record in it that is not as it was, and in which way.
    first_wrong: (u64, Tampering),
    was_synced: bool,
    /// The hashes of the records that it claims to hold.
    claimed: Vec<Hash>,
}

impl TailRecords<'_> {
    fn size(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    fn lost(&self, cause: String) -> VerifyFault {
        let end = (self.size(), Tampering::Cut);
        let (record, how) = self.rest.as_ref().map_or(end, |rest| rest.first_wrong);
        VerifyFault::wrong(record, how, cause)
    }
}

/// What a bundle of 256 records that stands in tiles alone comes to.
struct Bundle {
    root: Hash,
    /// Kept where a checkpoint ends inside.
    leaves: Vec<Hash>,
}

impl Check<'_> {
    fn run(&self, published: String) -> Result<Verified, VerifyFault> {
        let tail = self.tail()?;
        let size = tail.size();
        let floor = tail.start / WIDTH;

        // From tiles alone, in parallel; then what is both in tiles and in the tail.
        let bundles = self.bundles(floor)?;
        let before = self.open_bundle(&tail, floor)?;
        let mut records: Vec<&[u8]> = entries(&before).0;
        records.truncate((tail.start - floor * WIDTH) as usize);
        records.extend(&tail.entries);
        let leaves: Vec<Hash> = records.iter().map(|entry| leaf(entry)).collect();
        let levels = levels_of(&bundles, &leaves);

        self.compare_overlap(floor, &tail, &leaves)?;
        self.compare_upper(&levels)?;
        if tail.rest.as_ref().is_some_and(|rest| rest.was_synced) {
            let cause = "a frame of the tail is not as it was written".into();
            return Err(self.lost(&tail, floor, &leaves, cause));
        }
        if size < self.checkpoint.size {
            let cause = format!(
                "the checkpoint covers {} records, {size} are left",
                self.checkpoint.size
            );
            return Err(self.lost(&tail, floor, &leaves, cause));
        }
        let newest = self.compare_roots(&tail, floor, &bundles, &leaves)?;
        Ok(Verified {
            size,
            checkpoint_size: self.checkpoint.size,
            unsigned_tail: tail.rest.map_or(0, |rest| rest.len),
            checkpoint: newest.unwrap_or(published),
        })
    }

    /// Says that records which were there once are not, and which is the first: by the hash tiles if they tell, else by
    /// what is left of the tail.
    fn lost(&self, tail: &TailRecords<'_>, floor: u64, leaves: &[Hash], cause: String) -> VerifyFault {
        let claimed = tail.rest.as_ref().map_or(&[][..], |rest| &rest.claimed);
        let leaves = [leaves, claimed].concat();
        let mut places: Vec<_> = self
            .places
            .iter()
            .filter(|place| place.level == Some(0) && place.number >= floor)
            .collect();
        places.sort_by_key(|place| (place.number, WIDTH - place.width));
        let told = places.into_iter().find_map(|place| {
            let stored = self.read(*place).ok().flatten()?;
            let from = leaves.len().min(((place.number - floor) * WIDTH) as usize);
            let upto = leaves.len().min(from + WIDTH as usize);
            compare(place.number * WIDTH, leaves.get(from..upto)?, hashes(&stored), *place).err()
        });
        told.unwrap_or_else(|| tail.lost(cause))
    }

    fn tail(&self) -> Result<TailRecords<'_>, VerifyFault> {
        let Some(first) = self.segments.first() else {
            return Err(VerifyFault::wrong(0, Tampering::Cut, "the tail is missing"));
        };
        let mut tail = TailRecords {
            start: first.start,
            entries: Vec::new(),
            notes: Vec::new(),
            rest: None,
        };
        let mut next = first.start;
        for segment in self.segments {
            if tail.rest.is_some() {
                return Err(tail.lost("a segment of the tail is not as it was written".into()));
            }
            if segment.start != next {
                return Err(VerifyFault::wrong(
                    next,
                    Tampering::Cut,
                    "a segment of the tail is missing",
                ));
            }
            let scan = segment.scan();
            next = scan.next;
            if !scan.rest.is_empty() {
                let how = match scan.rest_kind() {
                    RestKind::Cut => Tampering::Cut,
                    RestKind::Moved => Tampering::Dropped,
                    RestKind::Broken => Tampering::Changed,
                };
                let was_synced = scan.rest_was_synced();
                let claimed = scan.claimed().iter().map(|(entry, _)| leaf(entry)).collect();
                let first_wrong = (scan.first_wrong(), how);
                tail.rest = Some(Rest {
                    len: scan.rest.len() as u64,
                    first_wrong,
                    was_synced,
                    claimed,
                });
            }
            for frame in scan.frames {
                tail.notes.push((frame.first, frame.note));
                tail.entries.extend(frame.entries);
            }
        }
        Ok(tail)
    }

    /// Checks the bundles that stand in tiles alone; the lowest fault wins.
    fn bundles(&self, count: u64) -> Result<Vec<Bundle>, VerifyFault> {
        let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let share = count.div_ceil(threads).max(1);
        let parts = thread::scope(|scope| {
            let part = |from: u64| {
                scope.spawn(move || {
                    (from..count.min(from + share))
                        .map(|number| self.bundle(number))
                        .collect()
                })
            };
            let parts: Vec<_> = (0..count).step_by(share as usize).map(part).collect();
            parts
                .into_iter()
                .map(|part| part.join())
                .collect::<Vec<thread::Result<Result<Vec<Bundle>, VerifyFault>>>>()
        });
        let mut bundles = Vec::with_capacity(count as usize);
        for part in parts {
            let failed = |_| VerifyFault::Unreadable {
                path: self.folder.display().to_string(),
                cause: "a reading thread failed".into(),
            };
            bundles.append(&mut part.map_err(failed)??);
        }
        Ok(bundles)
    }

    fn bundle(&self, number: u64) -> Result<Bundle, VerifyFault> {
        let first = number * WIDTH;
        let place = Place::full(None, number);
        let bytes = self.read(place)?;
        let bytes = bytes.ok_or_else(|| VerifyFault::wrong(first, Tampering::Cut, missing(place)))?;
        let stored = self.read(Place::full(Some(0), number))?;
        let stored = stored
            .ok_or_else(|| VerifyFault::wrong(first, Tampering::Unknown, missing(Place::full(Some(0), number))))?;
        let (found, whole) = entries(&bytes);
        let leaves: Vec<Hash> = found.iter().map(|entry| leaf(entry)).collect();
        compare(first, &leaves, hashes(&stored), Place::full(Some(0), number))?;
        if !whole || leaves.len() as u64 != WIDTH || stored.len() != leaves.len() * size_of::<Hash>() {
            let cause = format!("`{}` does not hold {WIDTH} records", place.path().display());
            let record = first + (leaves.len() as u64).min(WIDTH);
            return Err(VerifyFault::wrong(record, Tampering::Unknown, cause));
        }
        let root = root_of(&leaves);
        let inside = |size: u64| (first + 1..first + WIDTH).contains(&size);
        let keep = inside(self.checkpoint.size) || self.since.as_ref().is_some_and(|since| inside(since.size));
        Ok(Bundle {
            root,
            leaves: if keep { leaves } else { Vec::new() },
        })
    }

    /// The bundle in which the tail begins, from tiles.
    fn open_bundle(&self, tail: &TailRecords<'_>, floor: u64) -> Result<Vec<u8>, VerifyFault> {
        if tail.start == floor * WIDTH {
            return Ok(Vec::new());
        }
        let place = Place::full(None, floor);
        let bytes = self.read(place)?;
        let bytes = bytes.ok_or_else(|| VerifyFault::wrong(floor * WIDTH, Tampering::Cut, missing(place)))?;
        let held = floor * WIDTH + entries(&bytes).0.len() as u64;
        if held < tail.start {
            let cause = format!("`{}` is cut short", place.path().display());
            return Err(VerifyFault::wrong(held, Tampering::Cut, cause));
        }
        Ok(bytes)
    }

    /// Compares the tiles that overlap the tail, full and partial, with the records.
    fn compare_overlap(&self, floor: u64, tail: &TailRecords<'_>, leaves: &[Hash]) -> Result<(), VerifyFault> {
        let mut places: Vec<&Place> = self
            .places
            .iter()
            .filter(|place| place.level.unwrap_or(0) == 0)
            .collect();
        // Hashes before records: they say more exactly what happened.
        places.sort_by_key(|place| (place.number, place.level.is_none(), WIDTH - place.width));
        for place in places {
            let first = place.number * WIDTH;
            if place.number < floor {
                self.compare_old_partial(*place)?;
                continue;
            }
            let Some(bytes) = self.read(*place)? else { continue };
            let from = (first - floor * WIDTH) as usize;
            let upto = from.saturating_add(place.width as usize);
            let want = leaves
                .get(from.min(leaves.len())..upto.min(leaves.len()))
                .unwrap_or_default();
            let stored: Vec<Hash> = match place.level {
                Some(_) => hashes(&bytes).to_vec(),
                None => entries(&bytes).0.iter().map(|entry| leaf(entry)).collect(),
            };
            match place.level {
                Some(_) => compare(first, want, &stored, *place)?,
                // The tail fits the hashes, or we would not be here: it is the bundle that is wrong.
                None => compare(first, &stored, want, *place)?,
            }
            if first.saturating_add(place.width) > tail.size() {
                // Only what is in the tail is put into tiles, so it was there.
                let cause = format!("`{}` holds more than the tail", place.path().display());
                return Err(self.lost(tail, floor, leaves, cause));
            }
            let whole = match place.level {
                Some(_) => bytes.len() == size_of_val(want),
                None => entries(&bytes).1 && stored.len() == want.len(),
            };
            if !whole || stored.len() != want.len() {
                let record = first + stored.len().min(want.len()) as u64;
                let cause = format!("`{}` does not hold {} records", place.path().display(), place.width);
                return Err(VerifyFault::wrong(record, Tampering::Unknown, cause));
            }
        }
        Ok(())
    }

    /// Compares a partial tile whose full one was checked.
    fn compare_old_partial(&self, place: Place) -> Result<(), VerifyFault> {
        if place.width == WIDTH {
            return Ok(());
        }
        let (Some(partial), Some(full)) = (self.read(place)?, self.read(Place { width: WIDTH, ..place })?) else {
            return Ok(());
        };
        if full.starts_with(&partial) {
            return Ok(());
        }
        let cause = format!("`{}` does not fit the full tile", place.path().display());
        Err(VerifyFault::wrong(place.number * WIDTH, Tampering::Unknown, cause))
    }

    /// Compares the tiles of the levels above the first with what the records come to.
    fn compare_upper(&self, levels: &[Vec<Hash>]) -> Result<(), VerifyFault> {
        let mut places: Vec<&Place> = self
            .places
            .iter()
            .filter(|place| place.level.unwrap_or(0) > 0)
            .collect();
        places.sort();
        for place in places {
            let Some(bytes) = self.read(*place)? else { continue };
            let level = usize::from(place.level.unwrap_or(0));
            let want = levels.get(level - 1).map(Vec::as_slice).unwrap_or_default();
            let from = place.number.saturating_mul(WIDTH).min(want.len() as u64) as usize;
            let upto = from.saturating_add(place.width as usize);
            let want = want.get(from..upto.min(want.len())).unwrap_or_default();
            if bytes != want.concat() {
                let same = want
                    .iter()
                    .zip(hashes(&bytes))
                    .take_while(|(want, found)| want == found)
                    .count();
                let record = ((from + same) as u64).checked_shl(8 * level as u32).unwrap_or(u64::MAX);
                let cause = format!("the records do not come to what `{}` holds", place.path().display());
                return Err(VerifyFault::wrong(record, Tampering::Unknown, cause));
            }
        }
        Ok(())
    }

    /// Compares every signed checkpoint with the records; returns the newest in the tail.
    fn compare_roots(
        &self,
        tail: &TailRecords<'_>,
        floor: u64,
        bundles: &[Bundle],
        leaves: &[Hash],
    ) -> Result<Option<String>, VerifyFault> {
        let mut wanted: Vec<(&str, Checkpoint)> = Vec::new();
        for (first, text) in &tail.notes {
            let note = UnverifiedCheckpoint::parse(text);
            let note = note.map_err(|cause| VerifyFault::wrong(*first, Tampering::Unknown, cause))?;
            wanted.push((text, note.stated().clone()));
        }
        self.check_signatures(tail)?;
        wanted.push(("", self.checkpoint.clone()));
        wanted.extend(self.since.clone().map(|since| ("since", since)));
        wanted.sort_by_key(|(_, checkpoint)| checkpoint.size);

        let mut tree = Tree::default();
        // Up to where the tail's own checkpoints hold, and those that stand elsewhere. Two signed histories may differ: the
        // one says nothing of the other.
        let (mut good_in_tail, mut good) = (0, 0);
        let mut next = wanted.iter().peekable();
        let mut check = |tree: &Tree| {
            while let Some((which, checkpoint)) = next.next_if(|(_, checkpoint)| checkpoint.size == tree.size()) {
                let in_tail = !matches!(*which, "since" | "");
                if checkpoint.root == tree.root() {
                    *if in_tail { &mut good_in_tail } else { &mut good } = tree.size();
                    continue;
                }
                let good = if in_tail { good.max(good_in_tail) } else { good };
                let cause = match *which {
                    "since" => "the log is not a continuation of the checkpoint that was kept",
                    "" => "the records do not come to the published checkpoint",
                    _ => "the records do not come to the checkpoint in the tail",
                };
                return Err(VerifyFault::wrong(
                    good,
                    Tampering::Unknown,
                    format!("{cause} of {} records", checkpoint.size),
                ));
            }
            Ok(())
        };
        check(&tree)?;
        let mut whole = Tree::default();
        for (number, bundle) in (0..).zip(bundles) {
            if !bundle.leaves.is_empty() {
                let mut inside = tree.clone();
                for leaf in &bundle.leaves {
                    inside.push(*leaf);
                    if inside.size() < (number + 1) * WIDTH {
                        check(&inside)?;
                    }
                }
            }
            // The tree of bundles has the same shape, eight levels up.
            whole.push(bundle.root);
            tree = whole.raised(8);
            check(&tree)?;
        }
        debug_assert_eq!(tree.size(), floor * WIDTH);
        for leaf in leaves {
            tree.push(*leaf);
            check(&tree)?;
        }
        match next.next() {
            None => {}
            Some((_, checkpoint)) => {
                let cause = format!(
                    "a signed checkpoint covers {} records, {} are left",
                    checkpoint.size,
                    tree.size()
                );
                return Err(VerifyFault::wrong(tree.size(), Tampering::Cut, cause));
            }
        }
        match tail
            .notes
            .last()
            .map(|(_, text)| (text, UnverifiedCheckpoint::parse(text)))
        {
            Some((text, Ok(note))) if note.stated().size == tree.size() => Ok(Some((*text).to_owned())),
            _ if self.checkpoint.size == tree.size() => Ok(None),
            _ => Err(VerifyFault::wrong(
                self.checkpoint.size,
                Tampering::Added,
                "no signature covers it",
            )),
        }
    }

    /// Checks the signatures in the tail, in parallel.
    fn check_signatures(&self, tail: &TailRecords<'_>) -> Result<(), VerifyFault> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let share = tail.notes.len().div_ceil(threads).max(1);
        let wrong = thread::scope(|scope| {
            let check = |notes: &[(u64, &str)]| {
                notes
                    .iter()
                    .find_map(|(first, text)| Some((*first, note::verify(text, self.key).err()?)))
            };
            let parts: Vec<_> = tail
                .notes
                .chunks(share)
                .map(|notes| scope.spawn(move || check(notes)))
                .collect();
            let failed = |_| Some((tail.start, "a thread failed"));
            parts.into_iter().find_map(|part| part.join().unwrap_or_else(failed))
        });
        match wrong {
            None => Ok(()),
            Some((record, cause)) => Err(VerifyFault::wrong(
                record,
                Tampering::Added,
                format!("in its checkpoint, {cause}"),
            )),
        }
    }

    fn read(&self, place: Place) -> Result<Option<Vec<u8>>, VerifyFault> {
        read_tile(self.folder, place).map_err(|error| VerifyFault::Unreadable {
            path: self.folder.join(place.path()).display().to_string(),
            cause: error.to_string(),
        })
    }
}

fn missing(place: Place) -> String {
    format!("`{}` is missing", place.path().display())
}

/// The hashes of all whole subtrees of 256, 256², … records.
fn levels_of(bundles: &[Bundle], leaves: &[Hash]) -> Vec<Vec<Hash>> {
    let (whole, _) = leaves.as_chunks::<{ WIDTH as usize }>();
    let roots = bundles
        .iter()
        .map(|bundle| bundle.root)
        .chain(whole.iter().map(|leaves| root_of(leaves)));
    let mut levels = vec![roots.collect::<Vec<Hash>>()];
    while let Some(last) = levels.last().filter(|last| last.len() as u64 >= WIDTH) {
        let (whole, _) = last.as_chunks::<{ WIDTH as usize }>();
        levels.push(whole.iter().map(|hashes| root_of(hashes)).collect());
    }
    levels
}

/// Compares the records' hashes with the stored ones, as far as there are both, and says what happened to the first
/// that differs.
fn compare(first: u64, found: &[Hash], stored: &[Hash], place: Place) -> Result<(), VerifyFault> {
    let Some(at) = found.iter().zip(stored).position(|(found, stored)| found != stored) else {
        return Ok(());
    };
    let rest = |hashes: &[Hash], from: usize| hashes.get(from..).unwrap_or_default().to_vec();
    let (now, was) = (found.get(at), stored.get(at));
    let same_after = |found: &[Hash], stored: &[Hash]| {
        let len = found.len().min(stored.len());
        len > 0 && found.iter().zip(stored).all(|(found, stored)| found == stored)
    };
    let swapped =
        (at + 1..found.len().min(stored.len())).any(|other| found.get(other) == was && stored.get(other) == now);
    let how = if same_after(&rest(found, at), &rest(stored, at + 1)) {
        Tampering::Dropped
    } else if same_after(&rest(found, at + 1), &rest(stored, at)) {
        Tampering::Added
    } else if swapped {
        Tampering::Swapped
    } else {
        Tampering::Changed
    };
    let cause = format!("it does not fit what `{}` holds", place.path().display());
    Err(VerifyFault::wrong(first + at as u64, how, cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};
    use crate::specimen::{Specimen, append};
    use crate::tile::Shelf;
    use bailiwick_model::Durability;

    #[test]
    fn p10_changing_a_record_with_all_checksums_and_hashes_fails_at_the_signature() {
        let specimen = Specimen::new();
        let log = specimen.open().unwrap().0;
        (1..=60).for_each(|number| _ = append(&log, number, Durability::Durable));
        log.close();
        let folder = specimen.copy("copy");
        let segments = tail::read(&folder).unwrap();
        let mut bytes = tail::header(0);
        let (mut shelf, mut full) = (Shelf::default(), Vec::new());
        for frame in segments[0].scan().frames {
            let entries: Vec<Vec<u8>> = frame.entries.iter().map(|entry| entry.to_vec()).collect();
            let forge = |(at, mut entry): (u64, Vec<u8>)| {
                if at == 40 {
                    *entry.last_mut().unwrap() ^= 1;
                }
                (leaf(&entry), entry)
            };
            let forged: Vec<_> = (frame.first..).zip(entries).map(forge).collect();
            forged
                .iter()
                .for_each(|(hash, entry)| shelf.push(entry, *hash, &mut full));
            let entries = forged.iter().map(|(hash, entry)| (entry.as_slice(), hash));
            tail::write_frame(&mut bytes, frame.first, frame.synced, frame.note, entries);
        }
        assert_eq!(bytes.len(), segments[0].bytes.len());
        std::fs::write(&segments[0].path, bytes).unwrap();
        shelf.partial().iter().for_each(|tile| {
            RealDisk
                .put(&folder.join(tile.place.path()), &tile.bytes, false)
                .unwrap()
        });
        // Each record was synced by itself, so there is a signature for each size: even so, the record is named.
        let fault = verify(&folder, &specimen.verifier(), None).unwrap_err();
        assert_eq!(fault.record(), Some(40), "{fault}");
        assert!(specimen.open_at(&folder).is_err());
    }
}
