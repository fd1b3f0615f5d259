//! Opening: what is there, what a crash left, and where writing goes on.
//!
//! Answers: may this folder be written on, and from which state?
//! Promises: P10 (nothing that was on disk is cut off; a log that was changed is refused).
//! Trust: the files may have been changed since they were written, so that a forged state is signed on. The tail's last
//! note must be signed with this key, and every note in the tail must fit the records before it.
//! Not here: checking every record of the past (`verify`).

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, make_folder};
use crate::folder::{read_checkpoint, read_tile};
use crate::key::SigningKey;
use crate::log::{LogFault, Opened};
use crate::note::{self, Checkpoint, UnverifiedCheckpoint};
use crate::tail::{self, HEADER_LEN, Segment};
use crate::tile::{Place, Shelf, Tile, WIDTH, entries, hashes};
use crate::tree::{Hash, Tree, leaf, root_of};

/// What a writer goes on from.
pub(crate) struct Recovered {
    pub(crate) on_disk: OnDisk,
    pub(crate) opened: Opened,
}

/// A log as it stands on disk.
pub(crate) struct OnDisk {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    /// The folder, held locked.
    pub(crate) lock: File,
    pub(crate) key: SigningKey,
    pub(crate) origin: String,
    /// All segments but the last, with the index behind their records.
    pub(crate) older: Vec<(PathBuf, u64)>,
    /// The last segment.
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The note that covers all records.
    pub(crate) note: String,
    pub(crate) shelf: Shelf,
}

/// Looks at a folder, cuts off what a crash left unfinished, and makes a new log where there is none.
pub(crate) fn recover(
    disk: Arc<dyn Disk>,
    folder: &Path,
    key: SigningKey,
    origin: &str,
) -> Result<Recovered, LogFault> {
    let unusable = |error: io::Error| LogFault::Unusable {
        path: folder.display().to_string(),
        cause: error.to_string(),
    };
    let damaged = |record, cause: &str| LogFault::Damaged {
        path: folder.display().to_string(),
        record,
        cause: cause.into(),
    };
    if key.verifier().name() != origin {
        let cause = format!("the key is of `{}`, not of `{origin}`", key.verifier().name());
        return Err(LogFault::Unusable {
            path: folder.display().to_string(),
            cause,
        });
    }
    make_folder(&folder.join(tail::FOLDER)).map_err(unusable)?;
    let folder = &folder.canonicalize().map_err(unusable)?;
    let lock = File::open(folder).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(LogFault::Busy {
                path: folder.display().to_string(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(unusable(error)),
    }
    let published = published(folder, &key)?;
    let mut segments = tail::read(folder).map_err(unusable)?;
    if segments.is_empty() {
        if published.as_ref().is_some_and(|checkpoint| checkpoint.size > 0) || folder.join("tile").exists() {
            return Err(damaged(0, "its tail is missing"));
        }
        let note = note::sign(&key, origin, 0, &Tree::default().root());
        begin(&*disk, folder, 0, &note).map_err(unusable)?;
        segments = tail::read(folder).map_err(unusable)?;
    }
    let start = segments.first().map_or(0, |segment| segment.start);
    let mut shelf = shelf_at(folder, start).map_err(|(record, cause)| damaged(record, &cause))?;

    let (mut older, mut last_note, mut tiles) = (Vec::new(), None, Vec::new());
    let mut recovered_bytes = 0;
    let count = segments.len();
    let mut last = None;
    for (at, segment) in segments.iter().enumerate() {
        if segment.start != shelf.tree().size() {
            return Err(damaged(shelf.tree().size(), "records are missing from its tail"));
        }
        let scan = segment.scan();
        let is_last = at + 1 == count;
        if !scan.rest.is_empty() && (!is_last || scan.rest_was_synced()) {
            return Err(damaged(scan.first_wrong(), "the record is not as it was written"));
        }
        for frame in &scan.frames {
            for entry in &frame.entries {
                shelf.push(entry, leaf(entry), &mut tiles);
            }
            let stated = UnverifiedCheckpoint::parse(frame.note).map_err(|cause| damaged(frame.first, cause))?;
            let now = Checkpoint {
                size: shelf.tree().size(),
                root: shelf.tree().root(),
            };
            if *stated.stated() != now {
                return Err(damaged(frame.first, "the records do not fit their checkpoint"));
            }
            if published
                .as_ref()
                .is_some_and(|published| published.size == now.size && *published != now)
            {
                return Err(damaged(frame.first, "the records do not fit the published checkpoint"));
            }
            last_note = Some((frame.first, frame.note));
        }
        if is_last {
            recovered_bytes = scan.rest.len() as u64;
            last = Some((segment, scan.end));
        } else {
            older.push((segment.path.clone(), scan.next));
        }
    }
    let size = shelf.tree().size();
    if let Some(published) = published.filter(|published| published.size > size) {
        let cause = format!(
            "the published checkpoint covers {} records, {size} are left",
            published.size
        );
        return Err(damaged(size, &cause));
    }
    let note = match last_note {
        Some((first, text)) => {
            note::verify(text, key.verifier()).map_err(|cause| damaged(first, cause))?;
            text.to_owned()
        }
        // Only the very first segment, cut short at birth, can be alone and without a note.
        None if size == 0 => note::sign(&key, origin, size, &shelf.tree().root()),
        None => return Err(damaged(size, "no signature in its tail covers it")),
    };
    let Some((segment, end)) = last else {
        return Err(damaged(0, "its tail is missing"));
    };
    let (file, len) = cut(&*disk, segment, end).map_err(unusable)?;
    put_missing(&*disk, folder, &tiles).map_err(unusable)?;
    // A crash may have left these half written; the next checkpoint brings its own.
    shelf
        .partial()
        .iter()
        .for_each(|tile| remove_partial(folder, tile.place));
    let (path, start) = (segment.path.clone(), segment.start);
    let (folder, origin) = (folder.to_owned(), origin.to_owned());
    let on_disk = OnDisk {
        disk,
        folder,
        lock,
        key,
        origin,
        older,
        file,
        path,
        start,
        len,
        note,
        shelf,
    };
    Ok(Recovered {
        on_disk,
        opened: Opened { size, recovered_bytes },
    })
}

/// The published checkpoint; none when it was never published. It is on disk before it gets its name, so one that does
/// not hold was changed.
fn published(folder: &Path, key: &SigningKey) -> Result<Option<Checkpoint>, LogFault> {
    let fault = |cause: String| LogFault::Checkpoint {
        path: folder.display().to_string(),
        cause,
    };
    let text = read_checkpoint(folder).map_err(|error| fault(error.to_string()))?;
    text.map(|text| note::verify(&text, key.verifier()).map_err(|cause| fault(cause.into())))
        .transpose()
}

/// Makes the file of a segment. It begins with the note that covers all before it, so that whatever stands in tiles
/// alone is always covered by a signature in the tail.
pub(crate) fn begin(disk: &dyn Disk, folder: &Path, start: u64, note: &str) -> io::Result<(PathBuf, File, u64)> {
    let path = tail::segment_path(folder, start);
    let file = disk.create(&path)?;
    let mut bytes = tail::header(start);
    tail::write_frame(&mut bytes, start, start, note, std::iter::empty());
    disk.write(&file, 0, &bytes)?;
    disk.sync(&file)?;
    Ok((path, file, bytes.len() as u64))
}

/// Cuts off what follows the last good frame, and opens the file for writing.
fn cut(disk: &dyn Disk, segment: &Segment, end: usize) -> io::Result<(File, u64)> {
    let file = File::options().read(true).write(true).open(&segment.path)?;
    let end = if end < HEADER_LEN {
        disk.write(&file, 0, &tail::header(segment.start))?;
        HEADER_LEN as u64
    } else {
        end as u64
    };
    file.set_len(end)?;
    disk.sync(&file)?;
    Ok((file, end))
}

/// Writes the tiles that a crash kept from the disk. The tail they are made from is signed; they are not.
fn put_missing(disk: &dyn Disk, folder: &Path, tiles: &[Tile]) -> io::Result<()> {
    for tile in tiles {
        if read_tile(folder, tile.place).ok().flatten().as_ref() != Some(&tile.bytes) {
            disk.put(&folder.join(tile.place.path()), &tile.bytes, false)?;
        }
        remove_partial(folder, tile.place);
    }
    Ok(())
}

/// Takes away the partial tiles that a full one has replaced.
pub(crate) fn remove_partial(folder: &Path, place: Place) {
    let partial = folder.join(Place { width: 1, ..place }.path());
    if let Some(partial) = partial.parent() {
        // Nothing depends on it: a partial tile that stays is checked by `verify` like any other.
        let _ = fs::remove_dir_all(partial);
    }
}

/// The shelf at the record where the tail begins, from tiles; else the record that is missing, and why.
fn shelf_at(folder: &Path, start: u64) -> Result<Shelf, (u64, String)> {
    let read = |place: Place, record: u64| match read_tile(folder, place) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err((record, format!("`{}` is missing", place.path().display()))),
        Err(error) => Err((record, format!("`{}` cannot be read: {error}", place.path().display()))),
    };
    let floor = start / WIDTH * WIDTH;
    let mut edge: Vec<Vec<Hash>> = vec![Vec::new()];
    for level in 1u8..8 {
        let shift = 8 * u32::from(level);
        if floor >> shift == 0 {
            break;
        }
        let mut at_level = Vec::new();
        for number in (floor >> shift >> 8 << 8)..floor >> shift {
            let tile = read(Place::full(Some(level - 1), number), number << shift)?;
            match hashes(&tile) {
                all if all.len() as u64 == WIDTH => at_level.push(root_of(all)),
                _ => return Err((number << shift, "a tile of hashes is cut short".into())),
            }
        }
        edge.push(at_level);
    }
    let mut shelf = Shelf::from_edge(floor, edge);
    if floor < start {
        let bundle = read(Place::full(None, floor / WIDTH), floor)?;
        let mut full = Vec::new();
        for entry in entries(&bundle).0.iter().take((start - floor) as usize) {
            shelf.push(entry, leaf(entry), &mut full);
        }
        if shelf.tree().size() != start {
            return Err((shelf.tree().size(), "a bundle of records is cut short".into()));
        }
    }
    Ok(shelf)
}

#[cfg(test)]
mod tests;
