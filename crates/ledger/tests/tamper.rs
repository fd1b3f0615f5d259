//! What `verify` finds: five ways of changing a log, in each of the places where a record stands.

mod specimen;

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick_ledger::{VerifyFault, verify};
use specimen::{Specimen, files};

const FULL: &str = "tile/entries/000";

fn tail_of(log: &Path) -> PathBuf {
    files(&log.join("tail")).pop().unwrap()
}

/// The five copies: what is done to a list of records, and which is the first that is wrong.
type Change = (&'static str, fn(&mut Vec<Vec<u8>>), u64);

const CHANGES: [Change; 5] = [
    ("a byte is changed", |all| *all[100].last_mut().unwrap() ^= 1, 100),
    ("a record is deleted in the middle", |all| drop(all.remove(100)), 100),
    (
        "the last three are deleted",
        |all| all.truncate(all.len() - 3),
        u64::MAX,
    ),
    ("two are swapped", |all| all.swap(100, 120), 100),
    ("a copied one is added", |all| all.insert(100, all[7].clone()), 100),
];

fn read_bundle(path: &Path) -> Vec<Vec<u8>> {
    let (bytes, mut all, mut at) = (fs::read(path).unwrap(), Vec::new(), 0);
    while at < bytes.len() {
        let len = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        all.push(bytes[at + 2..at + 2 + len].to_vec());
        at += 2 + len;
    }
    all
}

fn write_bundle(path: &Path, all: &[Vec<u8>]) {
    let entry = |entry: &Vec<u8>| [&u16::try_from(entry.len()).unwrap().to_be_bytes()[..], entry].concat();
    fs::write(path, all.iter().flat_map(entry).collect::<Vec<u8>>()).unwrap();
}

/// Where the records stand in the bytes of a segment of the tail, each with its 10 bytes of head.
fn tail_records(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 25);
    let number = |at: usize, len: usize| {
        bytes[at..at + len]
            .iter()
            .fold(0usize, |all, byte| all << 8 | usize::from(*byte))
    };
    while at + 16 < bytes.len() {
        let end = at + 16 + number(at + 4, 4);
        let mut entry = at + 16 + 22 + number(at + 36, 2);
        while entry < end {
            let len = 10 + number(entry, 2);
            found.push(entry..entry + len);
            entry += len;
        }
        at = end;
    }
    found
}

fn fault(specimen: &Specimen, log: &Path) -> VerifyFault {
    verify(log, &specimen.verifier(), None).unwrap_err()
}

#[test]
fn p10_an_untouched_log_passes() {
    for last in [1, 5, 255, 256, 300, 700] {
        let specimen = Specimen::closed(last);
        let verified = verify(&specimen.log(), &specimen.verifier(), None).unwrap();
        assert_eq!(
            (verified.size, verified.checkpoint_size, verified.unsigned_tail),
            (last + 1, last + 1, 0)
        );
        assert!(
            verified
                .checkpoint
                .starts_with(&format!("{}\n{}\n", specimen::ORIGIN, last + 1))
        );
    }
}

#[test]
fn c067_p10_five_changes_to_a_bundle_are_found_and_the_first_wrong_record_is_named() {
    let specimen = Specimen::closed(700);
    for (what, change, first) in CHANGES {
        let log = specimen.copy("copy");
        let mut all = read_bundle(&log.join(FULL));
        change(&mut all);
        write_bundle(&log.join(FULL), &all);
        let found = fault(&specimen, &log);
        assert_eq!(found.record(), Some(first.min(253)), "{what}: {found}");
    }
}

#[test]
fn c067_p10_five_changes_to_a_partial_bundle_are_found() {
    let specimen = Specimen::closed(700);
    for (what, change, first) in CHANGES {
        let log = specimen.copy("copy");
        let path = log.join("tile/entries/002.p/189");
        let mut all = read_bundle(&path);
        change(&mut all);
        write_bundle(&path, &all);
        let found = fault(&specimen, &log);
        assert_eq!(found.record(), Some(512 + first.min(186)), "{what}: {found}");
    }
}

#[test]
fn c067_p10_five_changes_to_the_tail_are_found() {
    let specimen = Specimen::closed(700);
    let whole = fs::read(tail_of(&specimen.log())).unwrap();
    let at = tail_records(&whole);
    assert_eq!(at.len(), 701);
    let piece = |number: usize| whole[at[number].clone()].to_vec();
    let cut = |from: usize, upto: usize| [&whole[..at[from].start], &whole[at[upto].end..]].concat();
    let copies: [(&str, Vec<u8>, u64); 6] = [
        (
            "a byte is changed",
            {
                let mut bytes = whole.clone();
                bytes[at[600].end - 2] ^= 1;
                bytes
            },
            600,
        ),
        ("a record is deleted in the middle", cut(600, 600), 600),
        ("the last three are deleted", whole[..at[698].start].to_vec(), 698),
        ("the last three are cut out", cut(698, 700), 698),
        (
            "two are swapped",
            [
                &whole[..at[600].start],
                &piece(650),
                &whole[at[600].end..at[650].start],
                &piece(600),
                &whole[at[650].end..],
            ]
            .concat(),
            600,
        ),
        (
            "a copied one is added",
            [&whole[..at[600].start], &piece(7), &whole[at[600].start..]].concat(),
            600,
        ),
    ];
    for (what, bytes, first) in copies {
        let log = specimen.copy("copy");
        fs::write(tail_of(&log), bytes).unwrap();
        let found = fault(&specimen, &log);
        assert_eq!(found.record(), Some(first), "{what}: {found}");
        assert!(
            specimen.open_at(&log).is_err(),
            "{what}: such a log must not be written on"
        );
    }
}
