//! Skips that are seen: a test that cannot run on this machine says so, and `./scripts/test` prints and counts it.

use std::io::Write;

/// Says that the running test is skipped, and why. The test returns after it; it counts as skipped, not as passed.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(list) = std::env::var_os("BAILIWICK_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).open(list);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the list of skipped tests can be written");
    }
}
