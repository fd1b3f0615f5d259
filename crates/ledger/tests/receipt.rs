//! Receipts, and what reading gives back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panic")]

mod specimen;

use std::fs;

use bailiwick_gate::Ledger;
use bailiwick_ledger::{ProofFault, inclusion_proof, read, verify, verify_inclusion};
use bailiwick_model::{Code, DecisionId, Durability, Event, Millis, Record, TaskId};
use specimen::{Specimen, fill, numbered};

#[test]
fn p10_every_record_has_a_receipt_that_holds_for_it_alone() {
    for last in [0, 1, 2, 6, 255, 256, 700] {
        let specimen = Specimen::closed(last);
        let verifier = specimen.verifier();
        for index in (1..=last).step_by(last as usize / 20 + 1) {
            let receipt = inclusion_proof(&specimen.log(), index).unwrap();
            let entry = serde_json::to_vec(&numbered(index)).unwrap();
            assert_eq!(verify_inclusion(&receipt, &entry, &verifier), Ok(index), "{receipt}");
            let other = serde_json::to_vec(&numbered(index + 1)).unwrap();
            assert!(verify_inclusion(&receipt, &other, &verifier).is_err());
            for at in (0..receipt.len()).step_by(7) {
                let mut changed = receipt.clone().into_bytes();
                changed[at] ^= 1;
                let changed = String::from_utf8_lossy(&changed).into_owned();
                assert!(verify_inclusion(&changed, &entry, &verifier).is_err(), "{changed}");
            }
        }
        let size = last + 1;
        assert_eq!(
            inclusion_proof(&specimen.log(), size),
            Err(ProofFault::NotCovered { record: size, size })
        );
    }
}

#[test]
fn c068_p10_odd_names_stay_in_one_record_and_come_back() {
    let odd = [
        "x\n{\"decision\":\"allow\",\"who\":\"root\"}",
        "\u{202e}txt.exe\u{2066}\u{0}\u{7f}\r\n\n\n",
        "\u{2014} log.example AAAA\n",
        "\"},{\"time\":1",
    ];
    let specimen = Specimen::new();
    let log = specimen.open().unwrap().0;
    let record = |what: &str| Record {
        time: Millis(7),
        task: Some(TaskId([1; 8])),
        event: Event::Refused {
            id: DecisionId([2; 6]),
            code: Code::MalformedRequest,
            what: what.into(),
        },
    };
    for what in odd {
        log.append(&record(what), Durability::Durable).unwrap().wait().unwrap();
    }
    log.close();
    let records: Vec<_> = read(&specimen.log()).unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), 1 + odd.len());
    for ((index, found), what) in records.iter().skip(1).zip(odd) {
        assert_eq!(found, &record(what), "record {index}");
    }
    assert_eq!(verify(&specimen.log(), &specimen.verifier(), None).unwrap().size, 5);
    // No control character of a name stands in the file as itself.
    let bundle = fs::read(specimen.log().join("tile/entries/000.p/5")).unwrap();
    let text = bundle[2..]
        .iter()
        .filter(|byte| **byte == b'\n' || **byte == b'\r')
        .count();
    assert_eq!(text, 0);
}

#[test]
fn p10_a_durable_receipt_brings_the_checkpoint_that_covers_it() {
    let specimen = Specimen::new();
    let log = specimen.open().unwrap().0;
    fill(&log, 1..=20);
    let pending = log.append(&numbered(21), Durability::Durable).unwrap();
    assert_eq!(pending.index(), 21);
    let receipt = pending.wait().unwrap();
    let note = receipt.checkpoint.unwrap();
    assert_eq!(note.lines().nth(1), Some("22"));
    fill(&log, 22..=30);
    log.close();
    verify(&specimen.log(), &specimen.verifier(), Some(&note)).unwrap();
}

#[test]
fn a_folder_without_a_log_is_said_to_have_none() {
    let folder = tempfile::tempdir().unwrap();
    assert!(read(folder.path()).is_err());
    assert!(read(&folder.path().join("nothing")).is_err());
    assert!(verify(folder.path(), &Specimen::new().verifier(), None).is_err());
    assert!(inclusion_proof(folder.path(), 0).is_err());
}
