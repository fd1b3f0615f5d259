//! Small logs to be looked at, and damaged.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and fails by panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bailiwick_gate::{Clock, Ledger};
use bailiwick_ledger::{Log, LogFault, Opened, SigningKey, VerifierKey};
use bailiwick_model::{Durability, Event, Millis, Record};

pub const ORIGIN: &str = "test.example/dana";

pub struct Still;

impl Clock for Still {
    fn now(&self) -> Millis {
        Millis(1_764_437_000_000)
    }
}

/// A folder with a key and a log.
pub struct Specimen {
    pub folder: tempfile::TempDir,
}

impl Specimen {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// One on a disk that forgets, where there is one: for tests that open logs by the thousand.
    pub fn in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self {
            folder: folder.unwrap(),
        }
    }

    /// A log with records 0 (the opening) to `last`, closed.
    pub fn closed(last: u64) -> Self {
        let specimen = Self::new();
        let log = specimen.open().unwrap().0;
        fill(&log, 1..=last);
        log.close();
        specimen
    }

    pub fn key(&self) -> SigningKey {
        SigningKey::load_or_create(&self.folder.path().join("key/log.key"), ORIGIN).unwrap()
    }

    pub fn verifier(&self) -> VerifierKey {
        self.key().verifier().clone()
    }

    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub fn open(&self) -> Result<(Log, Opened), LogFault> {
        self.open_at(&self.log())
    }

    pub fn open_at(&self, folder: &Path) -> Result<(Log, Opened), LogFault> {
        Log::open(folder, self.key(), ORIGIN, Arc::new(Still))
    }

    /// A copy of the log beside it, to be damaged.
    pub fn copy(&self, name: &str) -> PathBuf {
        let to = self.folder.path().join(name);
        let _ = fs::remove_dir_all(&to);
        copy(&self.log(), &to);
        to
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let to = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &to);
        } else {
            fs::copy(item.path(), to).unwrap();
        }
    }
}

/// Every file below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let item = item.unwrap();
        if item.file_type().unwrap().is_dir() {
            found.extend(files(&item.path()));
        } else {
            found.push(item.path());
        }
    }
    found.sort();
    found
}

/// A record that names its number.
pub fn numbered(number: u64) -> Record {
    let event = Event::TaskEnded {
        status: i32::try_from(number).unwrap(),
    };
    Record {
        time: Millis(number),
        task: None,
        event,
    }
}

pub fn append(log: &Log, number: u64, durability: Durability) -> u64 {
    log.append(&numbered(number), durability).unwrap().wait().unwrap().index
}

/// Appends numbered records, each at the place of its number.
pub fn fill(log: &Log, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        assert_eq!(append(log, number, Durability::Ordered), number);
    }
}
