//! The Merkle tree of RFC 6962: leaf and node hashes, and a tree that is kept by its right edge alone.

use sha2::{Digest as _, Sha256};

/// A SHA-256 hash: of a leaf, of a node, or of a whole tree.
pub(crate) type Hash = [u8; 32];

/// Hashes a leaf: a zero byte, then the entry.
pub(crate) fn leaf(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

/// Hashes two subtrees into one: a one byte, then both.
pub(crate) fn node(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 65];
    for (slot, byte) in bytes.iter_mut().skip(1).zip(left.iter().chain(right)) {
        *slot = *byte;
    }
    Sha256::digest(bytes).into()
}

/// The root of any number of subtrees of one height, the last of which may be missing.
pub(crate) fn root_of(hashes: &[Hash]) -> Hash {
    let mut tree = Tree::default();
    hashes.iter().for_each(|hash| tree.push(*hash));
    tree.root()
}

/// A tree, kept by the roots of its perfect subtrees: at most 64 hashes, whatever its size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    size: u64,
    /// Largest first: one for each bit that is set in `size`.
    peaks: Vec<Hash>,
}

impl Tree {
    /// A tree of `size` leaves from the hashes at its right edge: level by level of tiles (8 tree levels each), lowest first.
    pub(crate) fn from_edge(size: u64, edge: &[Vec<Hash>]) -> Self {
        let mut peaks = Vec::new();
        for level in edge.iter().rev() {
            let mut rest = level.as_slice();
            while let Some(bit) = rest.len().checked_ilog2() {
                let (perfect, after) = rest.split_at(1 << bit);
                peaks.push(root_of(perfect));
                rest = after;
            }
        }
        Self { size, peaks }
    }

    /// The tree whose subtrees of 2^`height` leaves are the leaves of this one.
    pub(crate) fn raised(&self, height: u32) -> Self {
        Self {
            size: self.size << height,
            peaks: self.peaks.clone(),
        }
    }

    /// How many leaves there are.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf.
    pub(crate) fn push(&mut self, leaf: Hash) {
        self.push_seen(leaf, |_, _| ());
    }

    /// Adds a leaf and shows every subtree that it completes, with its height.
    pub(crate) fn push_seen(&mut self, leaf: Hash, mut seen: impl FnMut(u32, &Hash)) {
        let mut hash = leaf;
        for height in 1..=self.size.trailing_ones() {
            let Some(left) = self.peaks.pop() else { break };
            hash = node(&left, &hash);
            seen(height, &hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// The root.
    pub(crate) fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => Sha256::digest([]).into(),
            Some(last) => peaks.fold(*last, |right, left| node(left, &right)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6962, section 2.1, word by word.
    fn naive(entries: &[Vec<u8>]) -> Hash {
        match entries {
            [] => Sha256::digest([]).into(),
            [one] => leaf(one),
            many => {
                let split = 1 << (many.len() - 1).ilog2();
                node(&naive(&many[..split]), &naive(&many[split..]))
            }
        }
    }

    #[test]
    fn known_roots() {
        // The test vectors of the certificate transparency project.
        let entries: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0x10],
            vec![0x20, 0x21],
            vec![0x30, 0x31],
            vec![0x40, 0x41, 0x42, 0x43],
            (0x50..0x58).collect(),
            (0x60..0x70).collect(),
        ];
        let hex = |hash: Hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut tree = Tree::default();
        assert_eq!(
            hex(tree.root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        entries.iter().for_each(|entry| tree.push(leaf(entry)));
        assert_eq!(
            hex(tree.root()),
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn p10_roots_equal_the_naive_ones(entries in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..700)) {
            let mut tree = Tree::default();
            let mut edge = vec![Vec::new(); 3];
            for entry in &entries {
                edge[0].push(leaf(entry));
                tree.push_seen(leaf(entry), |height, hash| if height.is_multiple_of(8) { edge[height as usize / 8].push(*hash) });
            }
            let size = entries.len();
            let edge: Vec<_> = edge.iter().enumerate().map(|(level, all)| all[(size >> (8 * (level + 1))) << 8..].to_vec()).collect();
            prop_assert_eq!(tree.root(), naive(&entries));
            prop_assert_eq!(Tree::from_edge(size as u64, &edge).root(), naive(&entries));
        }
    }
}
