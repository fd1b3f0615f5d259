//! Stores that cannot be used: each is refused with its own fault, and left as it was.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bailiwick_gate::{Store, StoreFault, TaskRow, TaskState};
use bailiwick_model::{ContextId, Digest, Millis, TaskId};
use bailiwick_store::SqliteStore;

fn filled(folder: &Path) -> PathBuf {
    let path = folder.join("state/store.db");
    let store = SqliteStore::open(&path).unwrap();
    for number in 0..200u8 {
        store
            .trust(&format!("/file/{number}"), &Digest([number; 32]), true, Millis(1))
            .unwrap();
    }
    drop(store);
    path
}

fn fault(path: &Path) -> StoreFault {
    let before = fs::read(path).unwrap();
    let fault = SqliteStore::open(path).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "the file was touched");
    assert!(!fault.to_string().contains('\n'), "{fault}");
    fault
}

fn pragma(path: &Path, number: u32) {
    // The schema's number stands at byte 60 of the file, in four bytes.
    let mut bytes = fs::read(path).unwrap();
    bytes.splice(60..64, number.to_be_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_store_is_made_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path());
    let store = SqliteStore::open(&path).unwrap();
    store.trust("x", &Digest([0; 32]), true, Millis(1)).unwrap();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(
            fs::metadata(path.with_file_name(name)).unwrap().mode() & 0o777,
            0o600,
            "{name}"
        );
    }
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_newer_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path());
    pragma(&path, 99);
    match fault(&path) {
        StoreFault::Newer { found: 99, known, .. } => pragma(&path, u32::try_from(known).unwrap()),
        other => panic!("{other}"),
    }
    assert!(
        SqliteStore::open(&path)
            .unwrap()
            .is_trusted("/file/7", &Digest([7; 32]))
            .unwrap()
    );
}

#[test]
fn garbage_and_what_is_left_of_a_store_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path());
    let whole = fs::read(&path).unwrap();
    assert!(whole.len() > 3 * 4096);
    let mut holed = whole.clone();
    holed.splice(4096..8192, [0xa5; 4096]);
    let mut flipped = whole.clone();
    flipped.splice(0..4, *b"what");
    let copies = [
        b"not a store\n".to_vec(),
        vec![0; 8192],
        whole[..1].to_vec(),
        whole[..50].to_vec(),
        whole[..100].to_vec(),
        whole[..4096].to_vec(),
        whole[..whole.len() - 4096].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        holed,
        flipped,
    ];
    for (number, bytes) in copies.into_iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        match fault(&path) {
            StoreFault::Damaged { .. } => {}
            other => panic!("copy {number}: {other}"),
        }
    }
}

#[test]
fn the_database_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path());
    pragma(&path, 0);
    assert!(fault(&path).to_string().contains("another program"));
}

#[test]
fn a_row_that_makes_no_sense_is_damage_and_not_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let state = TaskState::Running;
    let command = vec!["true".into()];
    let row = TaskRow {
        id: TaskId([0xab; 8]),
        context: ContextId("c".into()),
        command,
        started: Millis(1),
        state,
    };
    let store = SqliteStore::open(&path).unwrap();
    store.put_task(&row).unwrap();
    drop(store);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|window| window == b"ababab").unwrap();
    let mut changed = bytes;
    changed[at] = b'x';
    // The index holds the old id, so SQLite itself may notice first; both are damage.
    fs::write(&path, changed).unwrap();
    let found = SqliteStore::open(&path).and_then(|store| store.tasks(10));
    assert!(matches!(found, Err(StoreFault::Damaged { .. })), "{found:?}");
}

#[test]
fn a_folder_in_the_way_is_unusable() {
    let folder = tempfile::tempdir().unwrap();
    let fault = SqliteStore::open(folder.path()).unwrap_err();
    assert!(matches!(fault, StoreFault::Unusable { .. }), "{fault}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let fault = SqliteStore::open(&file.join("store.db")).unwrap_err();
    assert!(matches!(fault, StoreFault::Unusable { .. }), "{fault}");
}

#[test]
fn a_store_works_from_inside_a_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&path).unwrap();
        store.trust("x", &Digest([0; 32]), true, Millis(1)).unwrap();
        assert!(store.is_trusted("x", &Digest([0; 32])).unwrap());
    });
}
