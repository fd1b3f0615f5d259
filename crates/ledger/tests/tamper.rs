//! What `verify` finds: five ways of changing a log, in each of the places where a record stands.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panic")]

mod specimen;

use std::fs;
use std::path::{Path, PathBuf};

use bailiwick_ledger::{VerifyFault, verify};
use bailiwick_model::Durability;
use specimen::{Specimen, append, files, fill};

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

#[test]
fn p10_any_changed_byte_of_any_file_is_found() {
    let specimen = Specimen::closed(300);
    for file in files(&specimen.log()) {
        let bytes = fs::read(&file).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            fs::write(&file, changed).unwrap();
            let found = verify(&specimen.log(), &specimen.verifier(), None);
            assert!(found.is_err(), "byte {at} of `{}`", file.display());
        }
        fs::write(&file, bytes).unwrap();
    }
    verify(&specimen.log(), &specimen.verifier(), None).unwrap();
}

#[test]
fn p10_a_missing_file_and_one_too_many_are_found() {
    let specimen = Specimen::closed(600);
    for file in files(&specimen.log()) {
        let name = file.strip_prefix(specimen.log()).unwrap().display().to_string();
        let log = specimen.copy("copy");
        fs::remove_file(log.join(&name)).unwrap();
        // Tiles of what still stands in the tail are only copies; those that are gone are written anew at opening.
        if !name.starts_with("tile") {
            assert!(verify(&log, &specimen.verifier(), None).is_err(), "without `{name}`");
        }
    }
    for name in [
        "tile/entries/003",
        "tile/0/003",
        "tile/entries/002.p/200",
        "tile/1/000.p/3",
        "tile/0/0",
        "tile/2/000",
    ] {
        let log = specimen.copy("copy");
        let path = log.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(log.join("tile/0/000"), &path).unwrap();
        assert!(verify(&log, &specimen.verifier(), None).is_err(), "with `{name}`");
    }
}

#[test]
fn p10_another_history_does_not_fit_the_checkpoint_even_with_the_same_key() {
    // Another log with the same key, in which record 100 is another: all of it fits, but not what was published before.
    let (specimen, other) = (Specimen::closed(300), Specimen::new());
    specimen::copy(&specimen.folder.path().join("key"), &other.folder.path().join("key"));
    let log = other.open().unwrap().0;
    for number in 1..=300 {
        append(&log, if number == 100 { 7 } else { number }, Durability::Ordered);
    }
    log.close();
    let copy = other.copy("copy");
    fs::copy(specimen.log().join("checkpoint"), copy.join("checkpoint")).unwrap();
    let found = verify(&copy, &specimen.verifier(), None).unwrap_err();
    assert!(found.record().is_some_and(|record| record <= 100), "{found}");
    // The forger has no key.
    let stranger = Specimen::closed(300);
    assert!(verify(&stranger.log(), &specimen.verifier(), None).is_err());
}

#[test]
fn p10_what_is_signed_is_verified_against_before_it_is_published() {
    let specimen = Specimen::new();
    let log = specimen.open().unwrap().0;
    fill(&log, 1..=300);
    let published = log.checkpoint().unwrap();
    let old = specimen.copy("old");
    fill(&log, 301..=310);
    let signed = log.signed().unwrap();
    // As a crash would leave it, right now.
    let new = specimen.copy("new");
    let verifier = specimen.verifier();
    let found = verify(&new, &verifier, Some(&signed)).unwrap();
    assert_eq!(found.size, 311);
    verify(&new, &verifier, Some(&published)).unwrap();
    let found = verify(&old, &verifier, Some(&signed)).unwrap_err();
    assert_eq!(found.record(), Some(301), "{found}");
    let (log, opened) = specimen.open_at(&new).unwrap();
    assert_eq!(opened.size, 311);
    log.close();
    verify(&new, &verifier, Some(&signed)).unwrap();
}

#[test]
fn p10_going_back_is_found_with_a_later_checkpoint_and_not_without() {
    let specimen = Specimen::new();
    let log = specimen.open().unwrap().0;
    fill(&log, 1..=300);
    let early = log.checkpoint().unwrap();
    let old = specimen.copy("old");
    fill(&log, 301..=600);
    let late = log.checkpoint().unwrap();
    log.close();
    let verifier = specimen.verifier();
    for since in [&early, &late] {
        verify(&specimen.log(), &verifier, Some(since)).unwrap();
    }
    verify(&old, &verifier, None).unwrap();
    verify(&old, &verifier, Some(&early)).unwrap();
    let found = verify(&old, &verifier, Some(&late)).unwrap_err();
    assert_eq!(found.record(), Some(301), "{found}");
    assert!(verify(&old, &verifier, Some("not a note")).is_err());

    // Another history from the old state on, signed with the real key.
    let log = specimen.open_at(&old).unwrap().0;
    for _ in 301..=700 {
        append(&log, 1, Durability::Ordered);
    }
    log.close();
    verify(&old, &verifier, Some(&early)).unwrap();
    let found = verify(&old, &verifier, Some(&late)).unwrap_err();
    assert!(found.to_string().contains("not a continuation"), "{found}");
}
