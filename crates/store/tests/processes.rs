//! One store, several processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::path::Path;
use std::process::Command;

use bailiwick_gate::Store;
use bailiwick_model::{Digest, Millis};
use bailiwick_store::SqliteStore;

const CHILD: &str = "BAILIWICK_STORE_TEST_CHILD";
const COUNT: u8 = 30;

fn trust_all(path: &Path, file: &str) {
    let store = SqliteStore::open(path).unwrap();
    (0..COUNT).for_each(|number| store.trust(file, &Digest([number; 32]), true, Millis(1)).unwrap());
}

/// Not a test by itself: what the test below starts.
#[test]
fn child_that_trusts() {
    if let Some(path) = std::env::var_os(CHILD) {
        trust_all(Path::new(&path), "child");
    }
}

#[test]
fn processes_that_open_and_write_at_once_keep_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/store.db");
    // All of them find no file, and make one.
    let child = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_that_trusts"])
            .env(CHILD, &path)
            .spawn()
            .unwrap()
    };
    let children = [child(), child(), child()];
    trust_all(&path, "parent");
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = SqliteStore::open(&path).unwrap();
    for number in 0..COUNT {
        for file in ["parent", "child"] {
            assert!(
                store.is_trusted(file, &Digest([number; 32])).unwrap(),
                "{file} {number}"
            );
        }
    }
}
