//! Reading the records, for people: in order, also while a daemon appends.
//!
//! Trust: nothing is verified here; records that do not read are said to be so, and never split into two or shown as
//! something else.
//! Not here: whether they are as they were written (`verify`).

use std::io;
use std::path::{Path, PathBuf};
use std::vec;

use bailiwick_model::Record;

use crate::folder::read_tile;
use crate::tail;
use crate::tile::{Place, WIDTH, entries};

/// Says why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFault {
    /// The folder or a file in it cannot be read, or there is no log in it.
    #[error("the log `{path}` cannot be read: {cause}")]
    Unreadable {
        /// The folder or file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// What stands there is not a record.
    #[error("record {record} cannot be read: {cause}")]
    Malformed {
        /// Its index.
        record: u64,
        /// What was found.
        cause: String,
    },
}

/// The records of a log, in order; ends after the first one that is missing.
pub struct Records {
    folder: PathBuf,
    /// The index of the next record.
    next: u64,
    /// Where the tail begins.
    tail_start: u64,
    held: vec::IntoIter<Vec<u8>>,
    tail: Vec<Vec<u8>>,
    ended: bool,
}

/// Reads the records of a log: those that are written now. Nothing is verified.
pub fn read(folder: &Path) -> Result<Records, ReadFault> {
    let unreadable = |error: io::Error| ReadFault::Unreadable {
        path: folder.display().to_string(),
        cause: error.to_string(),
    };
    let segments = tail::read(folder).map_err(unreadable)?;
    let tail_start = segments.first().map_or(0, |segment| segment.start);
    let mut records = Vec::new();
    for segment in &segments {
        let scan = segment.scan();
        records.extend(
            scan.frames
                .iter()
                .flat_map(|frame| frame.entries.iter().map(|entry| entry.to_vec())),
        );
        if !scan.rest.is_empty() {
            break;
        }
    }
    Ok(Records {
        folder: folder.to_owned(),
        next: 0,
        tail_start,
        held: Vec::new().into_iter(),
        tail: records,
        ended: false,
    })
}

impl Records {
    /// How many records there are.
    pub fn size(&self) -> u64 {
        let tail = u64::try_from(self.tail.len()).unwrap_or(u64::MAX);
        self.tail_start.saturating_add(tail)
    }

    /// The same records from that one on: those before it are not read. For whoever has read none yet.
    #[must_use]
    pub fn starting_at(mut self, record: u64) -> Self {
        let begin = record.min(self.tail_start);
        // What is written in whole tiles is read a tile at a time.
        self.next = if begin == self.tail_start {
            begin
        } else {
            begin - begin % WIDTH
        };
        while self.next < record && matches!(self.next_entry(), Some(Ok(_))) {}
        self
    }

    /// Takes in the next bundle of records, or the tail; false at the end.
    fn refill(&mut self) -> Result<bool, ReadFault> {
        if self.next == self.tail_start {
            self.held = std::mem::take(&mut self.tail).into_iter();
            self.ended = true;
            return Ok(true);
        }
        if self.ended {
            return Ok(false);
        }
        let place = Place::full(None, self.next / WIDTH);
        let unreadable = |cause: String| ReadFault::Unreadable {
            path: self.folder.join(place.path()).display().to_string(),
            cause,
        };
        let bytes = read_tile(&self.folder, place).map_err(|error| unreadable(error.to_string()))?;
        let bytes = bytes.ok_or_else(|| unreadable("it is missing".into()))?;
        let wanted = WIDTH.min(self.tail_start - self.next) as usize;
        let found: Vec<_> = entries(&bytes)
            .0
            .iter()
            .take(wanted)
            .map(|entry| entry.to_vec())
            .collect();
        if found.len() < wanted {
            return Err(unreadable("it is cut short".into()));
        }
        self.held = found.into_iter();
        Ok(true)
    }
}

impl Records {
    /// The next entry, and which it is.
    fn next_entry(&mut self) -> Option<Result<(u64, Vec<u8>), ReadFault>> {
        let entry = match self.held.next() {
            Some(entry) => entry,
            None if self.ended => return None,
            None => match self.refill() {
                Ok(false) => return None,
                Ok(true) => self.held.next()?,
                Err(fault) => {
                    self.ended = true;
                    return Some(Err(fault));
                }
            },
        };
        let record = self.next;
        self.next += 1;
        Some(Ok((record, entry)))
    }
}

impl Iterator for Records {
    type Item = Result<(u64, Record), ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let (record, entry) = match self.next_entry()? {
            Ok(next) => next,
            Err(fault) => return Some(Err(fault)),
        };
        let read = serde_json::from_slice(&entry);
        Some(read.map(|read| (record, read)).map_err(|error| ReadFault::Malformed {
            record,
            cause: error.to_string(),
        }))
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Records({} from {})", self.folder.display(), self.next)
    }
}
