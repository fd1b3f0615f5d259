//! The disk, as the log needs it: a seam, so that a full or failing one can be shown in tests.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What writing a log does to a disk.
pub(crate) trait Disk: Send + Sync {
    /// Writes at a place in a file.
    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until a file's content is on disk.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Keeps room for more content, so that writing it cannot meet a full disk. False where that cannot be done.
    fn reserve(&self, file: &File, from: u64, len: u64) -> io::Result<bool>;

    /// Makes a file whose name and content appear together; on disk before that when `safe`.
    fn put(&self, path: &Path, bytes: &[u8], safe: bool) -> io::Result<()>;

    /// Makes a new, empty file, with its name on disk.
    fn create(&self, path: &Path) -> io::Result<File>;

    /// Waits until all that was put is on disk.
    fn sync_all(&self, folder: &File) -> io::Result<()>;
}

/// The real disk.
pub(crate) struct RealDisk;

/// How the name of a file ends that is being put.
pub(crate) const UNFINISHED: &str = "tmp";

impl Disk for RealDisk {
    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn reserve(&self, file: &File, from: u64, len: u64) -> io::Result<bool> {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, len) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn put(&self, path: &Path, bytes: &[u8], safe: bool) -> io::Result<()> {
        let beside = path.with_added_extension(UNFINISHED);
        let open = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)
        };
        let mut file = match (open(), path.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(folder)?;
                open()?
            }
            (opened, _) => opened?,
        };
        let written = file
            .write_all(bytes)
            .and_then(|()| if safe { file.sync_data() } else { Ok(()) });
        let put = written.and_then(|()| fs::rename(&beside, path));
        if put.is_err() {
            // What is left of it takes room on a disk that may be full; a later put would overwrite it anyway.
            let _ = fs::remove_file(&beside);
        }
        put
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(file)
    }

    fn sync_all(&self, folder: &File) -> io::Result<()> {
        Ok(rustix::fs::syncfs(folder)?)
    }
}

/// Makes a folder for its owner alone, with those above it.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
