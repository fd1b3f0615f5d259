//! What a crash leaves: cut at every offset, and killed at any moment.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bailiwick_gate::{Ledger, Pending};
use bailiwick_model::Durability;

use crate::disk::RealDisk;
use crate::specimen::{ORIGIN, Specimen, Still, append, files, fill, numbered};
use crate::writer::Turnover;
use crate::{Log, read, verify};

#[test]
fn p10_a_small_log_cut_at_every_offset_of_every_file_recovers_or_is_refused() {
    // As a crash leaves it: some records are published, some stand in the tail alone.
    let specimen = Specimen::in_memory();
    let log = specimen.open().unwrap().0;
    append(&log, 1, Durability::Durable);
    log.checkpoint().unwrap();
    append(&log, 2, Durability::Durable);
    append(&log, 3, Durability::Durable);
    let whole = specimen.copy("whole");
    log.close();

    let (mut recovered, mut refused) = (0, 0);
    for file in files(&whole) {
        let name = file.strip_prefix(&whole).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        for len in 0..bytes.len() {
            let copy = specimen.folder.path().join("cut");
            let _ = std::fs::remove_dir_all(&copy);
            crate::specimen::copy(&whole, &copy);
            std::fs::write(copy.join(name), &bytes[..len]).unwrap();
            let shown = format!("{} cut at {len}", name.display());
            let before = verify(&copy, &specimen.verifier(), None);
            let in_tail = name.starts_with("tail");
            match specimen.open_at(&copy) {
                Ok((log, opened)) => {
                    recovered += 1;
                    assert!(opened.size >= 2, "{shown}: published records are gone");
                    assert!(in_tail || opened.size == 4, "{shown}: records of the tail are gone");
                    assert!(before.is_ok() || !in_tail, "{shown}: {before:?}");
                    log.close();
                    let after =
                        verify(&copy, &specimen.verifier(), None).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
                    assert_eq!(after.size, opened.size + 1, "{shown}");
                    let numbers: Vec<_> = read(&copy).unwrap().map(|record| record.unwrap().1.time.0).collect();
                    assert_eq!(
                        numbers[1..opened.size as usize],
                        [1, 2, 3][..opened.size as usize - 1],
                        "{shown}"
                    );
                }
                Err(fault) => {
                    refused += 1;
                    assert!(in_tail || name.as_os_str() == "checkpoint", "{shown}: {fault}");
                    assert!(before.is_err(), "{shown}: refused, but it verifies: {fault}");
                }
            }
        }
    }
    assert!(
        recovered > 500 && refused > 500,
        "{recovered} recovered, {refused} refused"
    );
}

#[test]
fn p10_a_write_cut_short_keeps_every_whole_record_before_it() {
    let specimen = Specimen::in_memory();
    let log = specimen.open().unwrap().0;
    let mut ends = Vec::new();
    for number in 1..=4 {
        append(&log, number, Durability::Durable);
        ends.push(
            std::fs::metadata(&files(&specimen.log().join("tail"))[0])
                .unwrap()
                .len(),
        );
    }
    let whole = specimen.copy("whole");
    log.close();
    for (number, end) in (1..).zip(ends) {
        for len in [end, end + 1] {
            let copy = specimen.folder.path().join("cut");
            let _ = std::fs::remove_dir_all(&copy);
            crate::specimen::copy(&whole, &copy);
            let file = std::fs::File::options()
                .write(true)
                .open(&files(&copy.join("tail"))[0])
                .unwrap();
            file.set_len(len.min(file.metadata().unwrap().len())).unwrap();
            let (log, opened) = specimen.open_at(&copy).unwrap();
            assert_eq!(opened.size, number + 1);
            log.close();
        }
    }
}

const CHILD: &str = "BAILIWICK_LEDGER_TEST_CHILD";

/// Not a test by itself: what the test below starts and kills.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = std::path::Path::new(&folder);
    let key = crate::SigningKey::load_or_create(&folder.join("key/log.key"), ORIGIN).unwrap();
    let turnover = Turnover {
        bytes: 1 << 20,
        records: 100,
    };
    let disk = std::sync::Arc::new(RealDisk);
    let clock = std::sync::Arc::new(Still);
    let (log, _) = Log::open_on(disk, turnover, &folder.join("log"), key, ORIGIN, clock).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let log = log.clone();
            thread::spawn(move || {
                for number in 0u64.. {
                    let number = number % 1_000_000 * 10 + writer;
                    log.append(&numbered(number), Durability::Ordered).unwrap();
                    let receipt = log
                        .append(&numbered(number), Durability::Durable)
                        .and_then(Pending::wait)
                        .unwrap();
                    println!("acknowledged {} {number}", receipt.index);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn p10_a_process_killed_at_any_moment_leaves_a_log_that_verifies_and_holds_all_durable_records() {
    let specimen = Specimen::new();
    specimen.key();
    let mut acknowledged = Vec::new();
    let mut rounds_with_records = 0;
    for round in 0..24u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "open::tests::child_that_appends_until_it_is_killed",
                "--nocapture",
            ])
            .env(CHILD, specimen.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, first) = std::sync::mpsc::channel();
        let listener = thread::spawn(move || {
            let mut heard = Vec::new();
            for line in out.lines().map_while(Result::ok) {
                let mut words = line
                    .split(' ')
                    .skip_while(|word| !word.ends_with("acknowledged"))
                    .skip(1);
                if let (Some(Ok(index)), Some(Ok(number))) =
                    (words.next().map(str::parse::<u64>), words.next().map(str::parse::<u64>))
                {
                    heard.push((index, number));
                    let _ = tell.send(());
                }
            }
            heard
        });
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .subsec_nanos();
        // Some are killed while they open, most while they write.
        if round % 4 != 0 {
            first.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        thread::sleep(Duration::from_millis(u64::from(nanos % 97)));
        child.kill().unwrap();
        child.wait().unwrap();
        let heard = listener.join().unwrap();
        rounds_with_records += u32::from(!heard.is_empty());
        acknowledged.extend(heard);
        if acknowledged.is_empty() {
            continue;
        }
        verify(&specimen.log(), &specimen.verifier(), None).unwrap_or_else(|fault| panic!("round {round}: {fault}"));
        let records: Vec<_> = read(&specimen.log()).unwrap().map(|record| record.unwrap().1).collect();
        for (index, number) in &acknowledged {
            assert_eq!(
                records.get(*index as usize),
                Some(&numbered(*number)),
                "round {round}, record {index}"
            );
        }
    }
    assert!(
        rounds_with_records >= 18,
        "only {rounds_with_records} rounds came to write"
    );
}

#[test]
fn p10_a_log_that_was_changed_is_not_written_on() {
    let specimen = Specimen::closed(5);
    let other = crate::SigningKey::load_or_create(&specimen.folder.path().join("other.key"), ORIGIN).unwrap();
    let clock = std::sync::Arc::new(Still);
    let fault = Log::open(&specimen.log(), other, ORIGIN, clock).unwrap_err();
    assert!(matches!(fault, crate::LogFault::Checkpoint { .. }), "{fault}");
    // Any byte of the tail: it was all on disk, and is covered by the checkpoint.
    let tail = files(&specimen.log().join("tail")).pop().unwrap();
    let bytes = std::fs::read(&tail).unwrap();
    for at in (0..bytes.len()).step_by(37) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&tail, changed).unwrap();
        assert!(specimen.open().is_err(), "byte {at}");
        assert!(
            verify(&specimen.log(), &specimen.verifier(), None).is_err(),
            "byte {at}"
        );
    }
    std::fs::remove_file(&tail).unwrap();
    assert!(specimen.open().is_err());
}

#[test]
fn a_long_log_is_opened_from_its_tiles() {
    let specimen = Specimen::in_memory();
    let began = Instant::now();
    let turnover = Turnover {
        bytes: 1 << 30,
        records: 70_000,
    };
    let open = || {
        let (disk, clock) = (std::sync::Arc::new(RealDisk), std::sync::Arc::new(Still));
        Log::open_on(disk, turnover, &specimen.log(), specimen.key(), ORIGIN, clock).unwrap()
    };
    let log = open().0;
    fill(&log, 1..=70_500);
    log.close();
    let (log, opened) = open();
    assert_eq!(opened.size, 70_501);
    log.close();
    assert_eq!(
        verify(&specimen.log(), &specimen.verifier(), None).unwrap().size,
        70_502
    );
    assert!(began.elapsed() < Duration::from_secs(60));
}
