//! Tiles: the files that keep records and hashes for good, 256 to a file.
//!
//! Answers: in which file stands a record or a hash, and how is a bundle of records written?
//! Promises: P10 (a full tile never changes).
//! Trust: tiles are read back from a disk that others may have written to; reading bounds everything and believes
//! nothing.
//! Not here: the tail, where records stand first (`tail`).
//! See: C2SP tlog-tiles.

use std::path::{Path, PathBuf};

use crate::tree::{Hash, Tree, leaf};

/// How many records or hashes a full tile has.
pub(crate) const WIDTH: u64 = 256;
/// How many levels of tiles there can be: 8 levels of the tree each.
const LEVELS: u32 = 8;
/// The most bytes an entry may have.
pub(crate) const MAX_ENTRY: usize = 65535;
/// The most bytes a bundle can have.
pub(crate) const MAX_BUNDLE: u64 = WIDTH * (MAX_ENTRY as u64 + 2);

/// One tile's place: which kind, which number, how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// None for records, else the level of the hashes.
    pub(crate) level: Option<u8>,
    /// The number in its level.
    pub(crate) number: u64,
    /// 1 to 256.
    pub(crate) width: u64,
}

impl Place {
    /// A full tile.
    pub(crate) fn full(level: Option<u8>, number: u64) -> Self {
        Self {
            level,
            number,
            width: WIDTH,
        }
    }

    /// The path inside the log's folder: `tile/0/x001/234`, with `.p/17` behind when partial.
    pub(crate) fn path(&self) -> PathBuf {
        let mut groups = vec![format!("{:03}", self.number % 1000)];
        let mut rest = self.number / 1000;
        while rest > 0 {
            groups.push(format!("x{:03}", rest % 1000));
            rest /= 1000;
        }
        let mut path = PathBuf::from("tile");
        path.push(
            self.level
                .map_or_else(|| "entries".to_owned(), |level| level.to_string()),
        );
        if self.width < WIDTH
            && let Some(last) = groups.first_mut()
        {
            last.push_str(".p");
        }
        path.extend(groups.iter().rev());
        if self.width < WIDTH {
            path.push(self.width.to_string());
        }
        path
    }

    /// Reads a path inside the log's folder; none when it is not one that `path` writes.
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let mut parts = path.to_str()?.strip_prefix("tile/")?.split('/');
        let level = match parts.next()? {
            "entries" => None,
            level => Some(level.parse().ok().filter(|level| u32::from(*level) < LEVELS)?),
        };
        let (mut number, mut width) = (0u64, WIDTH);
        for part in parts {
            if let Some(last) = part.strip_suffix(".p") {
                number = number.checked_mul(1000)?.checked_add(last.parse().ok()?)?;
                width = 0;
            } else if width == 0 {
                width = part.parse().ok()?;
            } else {
                number = number
                    .checked_mul(1000)?
                    .checked_add(part.trim_start_matches('x').parse().ok()?)?;
            }
        }
        let place = Self { level, number, width };
        ((1..=WIDTH).contains(&width) && place.path() == path).then_some(place)
    }
}

/// Adds an entry to a bundle.
pub(crate) fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) {
    debug_assert!(entry.len() <= MAX_ENTRY);
    bundle.extend_from_slice(&u16::try_from(entry.len()).unwrap_or(u16::MAX).to_be_bytes());
    bundle.extend_from_slice(entry);
}

/// The entries of a bundle, and whether that was all there is in it.
pub(crate) fn entries(bundle: &[u8]) -> (Vec<&[u8]>, bool) {
    let (mut found, mut rest) = (Vec::with_capacity(WIDTH as usize), bundle);
    while let Some((len, after)) = rest.split_first_chunk() {
        let Some((entry, after)) = after.split_at_checked(usize::from(u16::from_be_bytes(*len))) else {
            break;
        };
        found.push(entry);
        rest = after;
    }
    (found, rest.is_empty())
}

/// The hashes of a tile, as far as they are whole.
pub(crate) fn hashes(tile: &[u8]) -> &[Hash] {
    tile.as_chunks().0
}

/// What has been put into tiles: the right edge of every level, and the bundle that is not full yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shelf {
    tree: Tree,
    /// By level: the hashes of the tile that is not full yet.
    edge: Vec<Vec<Hash>>,
    bundle: Vec<u8>,
}

/// A tile, to be written.
pub(crate) struct Tile {
    pub(crate) place: Place,
    pub(crate) bytes: Vec<u8>,
}

impl Shelf {
    /// A shelf of `size` records, a multiple of 256, from the hashes at its right edge.
    pub(crate) fn from_edge(size: u64, edge: Vec<Vec<Hash>>) -> Self {
        Self {
            tree: Tree::from_edge(size, &edge),
            edge,
            bundle: Vec::new(),
        }
    }

    /// The tree of all that is on it.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Adds an entry; tiles that it fills come out.
    pub(crate) fn push(&mut self, entry: &[u8], hash: Hash, full: &mut Vec<Tile>) {
        debug_assert_eq!(hash, leaf(entry));
        push_entry(&mut self.bundle, entry);
        let number = self.tree.size() / WIDTH;
        let edge = &mut self.edge;
        push_hash(edge, 0, hash);
        self.tree.push_seen(hash, |height, hash| {
            if height.is_multiple_of(8) {
                push_hash(edge, (height / 8) as usize, *hash);
            }
        });
        if self.edge.first().is_some_and(|hashes| hashes.len() as u64 == WIDTH) {
            full.push(Tile {
                place: Place::full(None, number),
                bytes: std::mem::take(&mut self.bundle),
            });
        }
        for (level, hashes) in self.edge.iter_mut().enumerate() {
            if hashes.len() as u64 == WIDTH {
                let number = (self.tree.size() >> (8 * (level + 1))) - 1;
                let level = u8::try_from(level).ok();
                full.push(Tile {
                    place: Place::full(level, number),
                    bytes: hashes.concat(),
                });
                hashes.clear();
            }
        }
    }

    /// The tiles that are not full, as a checkpoint of this size needs them.
    pub(crate) fn partial(&self) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for (level, hashes) in self.edge.iter().enumerate().filter(|(_, hashes)| !hashes.is_empty()) {
            let number = self.tree.size() >> (8 * (level + 1));
            let width = hashes.len() as u64;
            if level == 0 {
                tiles.push(Tile {
                    place: Place {
                        level: None,
                        number,
                        width,
                    },
                    bytes: self.bundle.clone(),
                });
            }
            let level = u8::try_from(level).ok();
            tiles.push(Tile {
                place: Place { level, number, width },
                bytes: hashes.concat(),
            });
        }
        tiles
    }
}

fn push_hash(edge: &mut Vec<Vec<Hash>>, level: usize, hash: Hash) {
    if edge.len() <= level {
        edge.resize_with(level + 1, Vec::new);
    }
    if let Some(hashes) = edge.get_mut(level) {
        hashes.push(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_written_as_the_format_asks() {
        let path = |level, number, width| Place { level, number, width }.path().display().to_string();
        assert_eq!(path(Some(0), 1_234_067, 256), "tile/0/x001/x234/067");
        assert_eq!(path(None, 0, 17), "tile/entries/000.p/17");
        assert_eq!(path(Some(1), 1000, 1), "tile/1/x001/000.p/1");
        for odd in [
            "tile/0/1",
            "tile/0/x000/001",
            "tile/8/000",
            "tile/0/000.p/0",
            "tile/0/000.p/256",
            "tile/0",
            "x",
        ] {
            assert_eq!(Place::parse(Path::new(odd)), None, "{odd}");
        }
    }

    #[test]
    fn tiles_hold_every_level() {
        let (mut shelf, mut tiles) = (Shelf::default(), Vec::new());
        for number in 0..65_536u32 + 300 {
            shelf.push(&number.to_be_bytes(), leaf(&number.to_be_bytes()), &mut tiles);
        }
        let find = |place| tiles.iter().find(|tile| tile.place == place).map(|tile| &tile.bytes);
        let top = find(Place::full(Some(1), 0)).unwrap();
        let root = crate::tree::root_of(hashes(find(Place::full(Some(0), 3)).unwrap()));
        assert_eq!(hashes(top)[3], root);
        assert_eq!(tiles.len(), 257 * 2 + 1);
        let places: Vec<_> = shelf
            .partial()
            .iter()
            .map(|tile| tile.place.path().display().to_string())
            .collect();
        assert_eq!(
            places,
            [
                "tile/entries/257.p/44",
                "tile/0/257.p/44",
                "tile/1/001.p/1",
                "tile/2/000.p/1"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn places_round_trip(level in proptest::option::of(0u8..8), number in 0u64..u64::MAX / 256, width in 1u64..=256) {
            let place = Place { level, number, width };
            prop_assert_eq!(Place::parse(&place.path()), Some(place));
        }

        #[test]
        fn any_bundle_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (found, whole) = entries(&bytes);
            let mut again = Vec::new();
            found.iter().for_each(|entry| push_entry(&mut again, entry));
            prop_assert_eq!(whole, again == bytes);
        }
    }
}
