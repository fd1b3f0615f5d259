//! What may stand in which source file.

use crate::tree::{DECIDING, before_tests, code_only, files, rust_files};

/// Most lines before the tests: in a file that decides, and elsewhere.
const DECIDING_LINES: usize = 600;
const OTHER_LINES: usize = 800;

/// Most lines of a module's head.
const HEAD_LINES: usize = 25;

/// What the deciding ring is handed and never fetches itself.
const OUTSIDE_WORLD: [&str; 17] = [
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::env",
    "std::os::fd",
    "std::os::unix::fs",
    "std::os::unix::net",
    "std::os::unix::process",
    "std::io::std",
    "std::{",
    "SystemTime",
    "Instant::now",
    "thread::spawn",
    "tokio",
    "println!",
    "print!(",
];

/// File names that say nothing of the domain.
const EMPTY_NAMES: [&str; 10] = [
    "util", "utils", "common", "type", "types", "helper", "helpers", "manager", "misc", "shared",
];

/// True when the word stands in the code, not as a part of a longer word.
fn has_word(code: &str, word: &str) -> bool {
    let part = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn unsafe_stands_in_the_fence_only() {
    for file in rust_files() {
        if file.room() != Some("fence") {
            let code = code_only(&file.text);
            for word in ["unsafe", "unsafe_code"] {
                assert!(
                    !has_word(&code, word),
                    "{}: `{word}` stands outside crates/fence",
                    file.path
                );
            }
        }
    }
}

#[test]
fn lints_are_inherited_and_exceptions_have_reasons() {
    for file in files() {
        let is_member = file.path.ends_with("/Cargo.toml") && !file.path.starts_with("fuzz/");
        if is_member {
            assert!(
                file.text.contains("[lints]\nworkspace = true"),
                "{} inherits no lints",
                file.path
            );
        }
        if file.path.ends_with(".rs") {
            let code: String = code_only(&file.text).split_whitespace().collect();
            let allows = code.contains("#[allow(") || code.contains("#![allow(");
            assert!(!allows, "{}: an exception is `#[expect(lint, reason = …)]`", file.path);
            let expects = code.matches("#[expect(").count() + code.matches("#![expect(").count();
            assert!(
                code.matches("reason=").count() >= expects,
                "{}: an exception has no reason",
                file.path
            );
        }
    }
}

#[test]
fn files_can_be_read_in_one_sitting() {
    for file in rust_files().iter().filter(|file| file.path.starts_with("crates/")) {
        let decides = file.room().is_some_and(|room| DECIDING.contains(&room));
        let limit = if decides { DECIDING_LINES } else { OTHER_LINES };
        let lines = file.before_tests().lines().count();
        assert!(
            lines <= limit,
            "{}: {lines} lines before its tests, the limit is {limit}",
            file.path
        );
    }
}

#[test]
fn unit_tests_stand_last() {
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        let tests = code_only(before_tests(&file.text).1);
        let closings = tests.lines().filter(|line| line.starts_with('}')).count();
        assert!(
            tests.is_empty() || (closings == 1 && tests.trim_end().ends_with("\n}")),
            "{}: code follows the tests, where the other rules do not look",
            file.path
        );
    }
}

#[test]
fn the_deciding_ring_is_handed_the_world() {
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        if file.room().is_some_and(|room| DECIDING.contains(&room)) {
            let code = file.code();
            for word in OUTSIDE_WORLD {
                assert!(!code.contains(word), "{}: `{word}` in a room that decides", file.path);
            }
        }
    }
}

#[test]
fn p1_permits_are_made_in_two_places() {
    let maker = "issued_by_mediator";
    let mut makers = 0;
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        if has_word(&file.code(), maker) {
            let may = file.room() == Some("mediator")
                || file.path == "crates/gate/src/client.rs"
                || file.path == "crates/gate/src/permit.rs";
            assert!(may, "{} makes permits", file.path);
            makers += 1;
        }
    }
    assert!(
        makers >= 2,
        "the function that makes permits is not called `{maker}` any more"
    );
}

#[test]
fn modules_say_what_they_answer() {
    for file in rust_files() {
        let Some((_, below)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        let head = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(head > 0, "{} has no head (`//!`)", file.path);
        assert!(
            head <= HEAD_LINES,
            "{}: its head has {head} lines, the limit is {HEAD_LINES}",
            file.path
        );
        for name in below.trim_end_matches(".rs").split('/') {
            assert!(
                !EMPTY_NAMES.contains(&name),
                "{}: name it after a thing of the domain",
                file.path
            );
        }
    }
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    // Written in two halves, so that this file does not name them itself.
    let foreign = [
        concat!("/wo", "rk/"),
        concat!("/fa", "rm"),
        concat!("fa", "rm-"),
        concat!("bash_", "jobs"),
        concat!(".libr", "ary"),
    ];
    for file in files() {
        for (number, line) in file.text.lines().enumerate() {
            for word in foreign {
                assert!(!line.contains(word), "{}:{}: names `{word}`", file.path, number + 1);
            }
        }
    }
}
