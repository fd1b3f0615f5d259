//! The tail: where records stand first, and what is synced.
//!
//! Answers: which records does a file of the tail hold, and where do they end?
//! Promises: P10 (a record in the tail is always covered by a signature; what a crash leaves half written is told
//! from what was tampered with).
//! Trust: the bytes may have been changed by anyone with access to the disk. Reading bounds everything; a frame counts
//! for `verify` and for opening only when its signature does.
//! Not here: writing it (`writer`), tiles (`tile`).
//! See: docs/design/log.md, "the tail".
//!
//! A segment is named after the index of its first record and is a header and frames. A frame is one group of records
//! with the signed checkpoint that covers them:
//!
//! ```text
//! magic 4 · payload length 4 · first 8 bytes of the payload's SHA-256
//! payload: first index 8 · records on disk before it 8 · count 4 · note length 2 · note · entries
//! entry:   length 2 · first 8 bytes of its leaf hash · the record as JSON
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::tree::{Hash, leaf};

/// The folder of the tail inside the log's.
pub(crate) const FOLDER: &str = "tail";
/// How a segment begins; the index of its first record follows, in 8 bytes.
const HEADER: &[u8; 17] = b"bailiwick-tail/1\n";
/// The length of a segment's header.
pub(crate) const HEADER_LEN: usize = HEADER.len() + 8;
/// How a frame begins: a byte that no text has, then three letters.
const MAGIC: [u8; 4] = *b"\xb1bwf";
/// The length of a frame before its payload.
const FRAME_HEAD: usize = 16;
/// What a frame has beside its note and its entries.
pub(crate) const FRAME_ROOM: usize = FRAME_HEAD + 22;
/// What an entry has beside its record.
pub(crate) const ENTRY_HEAD: usize = 10;
/// The most bytes of a frame's payload. The writer stays far below.
const MAX_PAYLOAD: usize = 16 << 20;
/// How many places are tried to find a frame behind damage.
const MAX_TRIES: u32 = 10_000;

/// One file of the tail.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// The index of its first record, from its name.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

/// One group of records with the checkpoint that covers them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The index of its first record.
    pub(crate) first: u64,
    /// How many records were on disk when it was written.
    pub(crate) synced: u64,
    /// The signed note; its signature has not been looked at.
    pub(crate) note: &'a str,
    pub(crate) entries: Vec<&'a [u8]>,
}

/// What stands in a segment.
pub(crate) struct Scan<'a> {
    pub(crate) frames: Vec<Frame<'a>>,
    /// Where the last good frame ends.
    pub(crate) end: usize,
    /// The index behind the last good frame's records.
    pub(crate) next: u64,
    /// What follows and is no frame: a write that a crash cut short, or damage.
    pub(crate) rest: &'a [u8],
}

/// What the bytes after the last good frame look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestKind {
    /// A frame whose end is missing.
    Cut,
    /// A whole frame that belongs elsewhere.
    Moved,
    /// Something else.
    Broken,
}

/// The path of the segment that begins with a record.
pub(crate) fn segment_path(folder: &Path, start: u64) -> PathBuf {
    folder.join(FOLDER).join(format!("{start:020}"))
}

/// A segment's header.
pub(crate) fn header(start: u64) -> Vec<u8> {
    [HEADER.as_slice(), &start.to_be_bytes()].concat()
}

/// Writes a frame.
pub(crate) fn write_frame<'a>(
    out: &mut Vec<u8>,
    first: u64,
    synced: u64,
    note: &str,
    entries: impl ExactSizeIterator<Item = (&'a [u8], &'a Hash)>,
) {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD]);
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&synced.to_be_bytes());
    out.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&u16::try_from(note.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(note.as_bytes());
    for (entry, hash) in entries {
        out.extend_from_slice(&u16::try_from(entry.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(&prefix(hash));
        out.extend_from_slice(entry);
    }
    let payload = out.get(at + FRAME_HEAD..).unwrap_or_default();
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let head = [MAGIC.as_slice(), &len, &checksum(payload)].concat();
    for (slot, byte) in out.iter_mut().skip(at).zip(head) {
        *slot = byte;
    }
}

fn prefix(hash: &Hash) -> [u8; 8] {
    hash.first_chunk().copied().unwrap_or_default()
}

fn checksum(payload: &[u8]) -> [u8; 8] {
    prefix(&Sha256::digest(payload).into())
}

/// Reads all segments, in order. An empty tail is no error here.
pub(crate) fn read(folder: &Path) -> io::Result<Vec<Segment>> {
    // A segment may be swept away between listing and reading: its records stand in tiles then, so list again.
    let mut tries = 0;
    loop {
        match read_once(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 10 && folder.join(FOLDER).exists() => {
                tries += 1;
            }
            other => return other,
        }
    }
}

fn read_once(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for item in fs::read_dir(folder.join(FOLDER))? {
        let path = item?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(start) = digits.then(|| name.parse().ok()).flatten() {
            segments.push(Segment {
                bytes: Vec::new(),
                start,
                path,
            });
        }
    }
    segments.sort_by_key(|segment| segment.start);
    for segment in &mut segments {
        segment.bytes = fs::read(&segment.path)?;
    }
    Ok(segments)
}

impl Segment {
    /// Reads the frames, up to the first thing that is none.
    pub(crate) fn scan(&self) -> Scan<'_> {
        let mut scan = Scan {
            frames: Vec::new(),
            end: 0,
            next: self.start,
            rest: &self.bytes,
        };
        let Some(mut rest) = self.bytes.strip_prefix(header(self.start).as_slice()) else {
            return scan;
        };
        while let Some((frame, after)) = frame(rest).filter(|(frame, _)| frame.first == scan.next) {
            scan.next += frame.entries.len() as u64;
            scan.frames.push(frame);
            rest = after;
        }
        scan.end = self.bytes.len() - rest.len();
        scan.rest = rest;
        scan
    }
}

impl Scan<'_> {
    /// Says whether what follows the good frames was on disk once: then it is damage, not a write cut short.
    ///
    /// A later frame tells: it names how many records were safe when it was written.
    pub(crate) fn rest_was_synced(&self) -> bool {
        // A whole frame right here has the wrong index: a crash does not move frames.
        if frame(self.rest).is_some() {
            return true;
        }
        let mut rest = self.rest;
        let mut tries = 0;
        while let Some(at) = rest.windows(MAGIC.len()).position(|window| window == MAGIC) {
            let Some(found) = rest.get(at..) else { break };
            // A crash leaves a few frames; whoever made thousands of false beginnings only wants to keep us busy.
            tries += 1;
            if tries > MAX_TRIES || frame(found).is_some_and(|(frame, _)| frame.synced > self.next) {
                return true;
            }
            rest = found.get(1..).unwrap_or_default();
        }
        false
    }

    /// What the rest looks like.
    pub(crate) fn rest_kind(&self) -> RestKind {
        let len = self
            .rest
            .get(4..8)
            .and_then(|len| len.first_chunk())
            .map(|len| u32::from_be_bytes(*len) as usize);
        match len {
            _ if frame(self.rest).is_some() => RestKind::Moved,
            Some(len) if self.rest.starts_with(&MAGIC) && len <= self.rest.len().saturating_sub(FRAME_HEAD) => {
                RestKind::Broken
            }
            Some(_) if !self.rest.starts_with(&MAGIC) => RestKind::Broken,
            _ => RestKind::Cut,
        }
    }

    /// The entries of the frame that the rest begins with, as far as they can be read, each with whether it fits its own
    /// hash. They say where to look, nothing more.
    pub(crate) fn claimed(&self) -> Vec<(&[u8], bool)> {
        let payload = self.rest.get(FRAME_HEAD..).unwrap_or_default();
        let Some((frame, count, mut rest)) = payload_head(payload) else {
            return Vec::new();
        };
        let mut claimed = Vec::new();
        while let Some((bytes, hash, after)) = entry(rest)
            && frame.first == self.next
            && claimed.len() < count as usize
        {
            claimed.push((bytes, prefix(&leaf(bytes)) == *hash));
            rest = after;
        }
        claimed
    }

    /// The index of the first record of the rest that does not fit its own hash.
    pub(crate) fn first_wrong(&self) -> u64 {
        self.next + self.claimed().iter().take_while(|(_, fits)| *fits).count() as u64
    }
}

/// Reads one frame; none when there is no whole one.
fn frame(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (len, rest) = rest.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let len = usize::try_from(u32::from_be_bytes(*len))
        .ok()
        .filter(|len| *len <= MAX_PAYLOAD)?;
    let (payload, after) = rest.split_at_checked(len)?;
    if checksum(payload) != *sum {
        return None;
    }
    let (mut frame, count, mut entries) = payload_head(payload)?;
    for _ in 0..count {
        let (bytes, hash, rest) = entry(entries)?;
        if prefix(&leaf(bytes)) != *hash {
            return None;
        }
        frame.entries.push(bytes);
        entries = rest;
    }
    entries.is_empty().then_some((frame, after))
}

fn payload_head(payload: &[u8]) -> Option<(Frame<'_>, u32, &[u8])> {
    let (first, rest) = payload.split_first_chunk()?;
    let (synced, rest) = rest.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (note, entries) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let frame = Frame {
        first: u64::from_be_bytes(*first),
        synced: u64::from_be_bytes(*synced),
        note: std::str::from_utf8(note).ok()?,
        entries: Vec::new(),
    };
    // A frame near the top of the numbers would make the next index overflow.
    (frame.first < u64::MAX / 2).then_some((frame, u32::from_be_bytes(*count), entries))
}

fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8; 8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let (entry, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some((entry, hash, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(groups: &[(u64, u64, Vec<Vec<u8>>)]) -> Segment {
        let mut bytes = header(groups[0].0);
        for (first, synced, entries) in groups {
            let hashes: Vec<_> = entries.iter().map(|entry| leaf(entry)).collect();
            let entries = entries.iter().map(Vec::as_slice).zip(&hashes);
            write_frame(&mut bytes, *first, *synced, "note", entries);
        }
        Segment {
            path: PathBuf::new(),
            start: groups[0].0,
            bytes,
        }
    }

    fn three() -> Segment {
        let entry = |text: &str| text.as_bytes().to_vec();
        segment(&[
            (5, 5, vec![entry("five"), entry("six")]),
            (7, 5, vec![entry("seven")]),
            (8, 7, vec![entry("eight")]),
        ])
    }

    #[test]
    fn p10_a_tail_cut_at_any_place_keeps_the_whole_frames_before_it() {
        let whole = three();
        let ends: Vec<_> = whole.scan().frames.iter().map(|frame| frame.first).collect();
        assert_eq!(ends, [5, 7, 8]);
        for len in 0..whole.bytes.len() {
            let cut = Segment {
                bytes: whole.bytes[..len].to_vec(),
                path: PathBuf::new(),
                start: 5,
            };
            let scan = cut.scan();
            assert!(scan.next <= 8, "{len}");
            assert_eq!(scan.end + scan.rest.len(), len);
            assert!(!scan.rest_was_synced(), "{len}");
        }
    }

    #[test]
    fn p10_damage_before_synced_frames_is_told_from_a_write_cut_short() {
        let whole = three();
        let at = whole.bytes.windows(3).position(|window| window == b"six").unwrap();
        let mut flipped = three();
        flipped.bytes[at] ^= 1;
        let scan = flipped.scan();
        assert_eq!((scan.next, scan.first_wrong(), scan.rest_was_synced()), (5, 6, true));
        // The last two were not yet synced when the third began: a power cut can lose the second and keep the third.
        let at = whole.bytes.windows(5).position(|window| window == b"seven").unwrap();
        let mut flipped = three();
        flipped.bytes[at] ^= 1;
        let scan = flipped.scan();
        assert_eq!((scan.next, scan.rest_was_synced()), (7, false));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6)) {
            let mut segment = three();
            for (at, byte) in flips {
                let at = at % segment.bytes.len();
                segment.bytes[at] = byte;
            }
            segment.bytes.extend_from_slice(&bytes);
            let scan = segment.scan();
            let _ = (scan.rest_was_synced(), scan.first_wrong());
            let raw = Segment { path: PathBuf::new(), start: 0, bytes };
            let _ = raw.scan().first_wrong();
        }
    }
}
