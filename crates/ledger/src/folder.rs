//! Reading a log's folder: tiles and the published checkpoint, within limits.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::disk::UNFINISHED;
use crate::tile::{MAX_BUNDLE, Place, WIDTH};
use crate::tree::Hash;

/// The name of the published checkpoint.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Reads a file, refusing more than `limit` bytes.
pub(crate) fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is longer than such a file can be",
        ));
    }
    Ok(bytes)
}

/// Reads the published checkpoint's note; none when there is no such file.
pub(crate) fn read_checkpoint(folder: &Path) -> io::Result<Option<String>> {
    match read_file(&folder.join(CHECKPOINT), crate::note::MAX_NOTE as u64) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| io::ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a tile; none when there is no such file.
pub(crate) fn read_tile(folder: &Path, place: Place) -> io::Result<Option<Vec<u8>>> {
    let limit = place.level.map_or(MAX_BUNDLE, |_| WIDTH * size_of::<Hash>() as u64);
    match read_file(&folder.join(place.path()), limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every file under `tile/`, as far as it is a tile, and the first path that is none.
pub(crate) fn list_tiles(folder: &Path) -> io::Result<(Vec<Place>, Option<PathBuf>)> {
    let (mut places, mut stray) = (Vec::new(), None);
    let mut open = vec![PathBuf::from("tile")];
    while let Some(below) = open.pop() {
        let items = match fs::read_dir(folder.join(&below)) {
            // A folder of partial tiles may be swept away while we look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for item in items {
            let item = item?;
            let path = below.join(item.file_name());
            if item.file_type()?.is_dir() {
                open.push(path);
            } else if let Some(place) = Place::parse(&path) {
                places.push(place);
            } else if path.extension().is_none_or(|extension| extension != UNFINISHED) {
                stray.get_or_insert(path);
            }
        }
    }
    Ok((places, stray))
}
