//! Files of the person's alone that are written whole or not at all.
//!
//! Promises: P9 (mode 0600 from the first byte on). Whoever reads one finds what was there before, or what is there now.
//! Not here: which files those are (`places`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Puts these bytes in the place of what a file held. They are on disk when this comes back.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
