//! What may stand in which source file.

use crate::tree::{DECIDING, before_tests, code_only, files, hold, report, rust_files};

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
fn unsafe_stands_in_the_fence_and_in_one_file_of_the_probe() {
    let mut findings = Vec::new();
    for file in rust_files() {
        // What is tried from inside is made of raw calls, too: all of them stand in one file.
        let may = file.room() == Some("fence") || file.path == "crates/probe/src/sys.rs";
        if !may {
            let code = code_only(&file.text);
            for word in ["unsafe", "unsafe_code"] {
                hold!(
                    findings,
                    !has_word(&code, word),
                    "{}: `{word}` stands outside crates/fence and crates/probe/src/sys.rs",
                    file.path
                );
            }
        }
    }
    report(&findings);
}

#[test]
fn lints_are_inherited_and_exceptions_have_reasons() {
    let mut findings = Vec::new();
    for file in files() {
        let is_member = file.path.ends_with("/Cargo.toml") && !file.path.starts_with("fuzz/");
        if is_member {
            hold!(
                findings,
                file.text.contains("[lints]\nworkspace = true"),
                "{} inherits no lints",
                file.path
            );
        }
        if file.path.ends_with(".rs") {
            let code: String = code_only(&file.text).split_whitespace().collect();
            let allows = code.matches("#[allow(").count() + code.matches("#![allow(").count();
            hold!(
                findings,
                allows == 0 || !file.is_shipped(),
                "{}: an exception is `#[expect(lint, reason = …)]`",
                file.path
            );
            let expects = code.matches("#[expect(").count() + code.matches("#![expect(").count();
            hold!(
                findings,
                code.matches("reason=").count() >= expects + allows,
                "{}: an exception has no reason",
                file.path
            );
        }
    }
    report(&findings);
}

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| file.path.starts_with("crates/")) {
        let decides = file.room().is_some_and(|room| DECIDING.contains(&room));
        let limit = if decides { DECIDING_LINES } else { OTHER_LINES };
        let lines = file.before_tests().lines().count();
        hold!(
            findings,
            lines <= limit,
            "{}: {lines} lines before its tests, the limit is {limit}",
            file.path
        );
    }
    report(&findings);
}

#[test]
fn unit_tests_stand_last() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        let tests = code_only(before_tests(&file.text).1);
        let closings = tests.lines().filter(|line| line.starts_with('}')).count();
        hold!(
            findings,
            tests.is_empty() || (closings == 1 && tests.trim_end().ends_with("\n}")),
            "{}: code follows the tests, where the other rules do not look",
            file.path
        );
    }
    report(&findings);
}

#[test]
fn the_deciding_ring_is_handed_the_world() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        if file.room().is_some_and(|room| DECIDING.contains(&room)) {
            let code = file.code();
            for word in OUTSIDE_WORLD {
                hold!(
                    findings,
                    !code.contains(word),
                    "{}: `{word}` in a room that decides",
                    file.path
                );
            }
        }
    }
    report(&findings);
}

#[test]
fn p1_permits_are_made_in_two_places() {
    let mut findings = Vec::new();
    let maker = "issued_by_mediator";
    let mut makers = 0;
    for file in rust_files().iter().filter(|file| file.is_shipped()) {
        if has_word(&file.code(), maker) {
            let may = file.room() == Some("mediator")
                || file.path == "crates/gate/src/client.rs"
                || file.path == "crates/gate/src/permit.rs";
            hold!(findings, may, "{} makes permits", file.path);
            makers += 1;
        }
    }
    hold!(
        findings,
        makers >= 2,
        "the function that makes permits is not called `{maker}` any more"
    );
    report(&findings);
}

#[test]
fn modules_say_what_they_answer() {
    let mut findings = Vec::new();
    for file in rust_files() {
        let Some((_, below)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        let head = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        hold!(findings, head > 0, "{} has no head (`//!`)", file.path);
        hold!(
            findings,
            head <= HEAD_LINES,
            "{}: its head has {head} lines, the limit is {HEAD_LINES}",
            file.path
        );
        for name in below.trim_end_matches(".rs").split('/') {
            hold!(
                findings,
                !EMPTY_NAMES.contains(&name),
                "{}: name it after a thing of the domain",
                file.path
            );
        }
    }
    report(&findings);
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    let mut findings = Vec::new();
    // Written in two halves, so that this file does not name them itself.
    let foreign = [
        concat!("/fa", "rm"),
        concat!("fa", "rm-"),
        concat!("bash_", "jobs"),
        concat!(".libr", "ary"),
    ];
    for file in files() {
        for (number, line) in file.text.lines().enumerate() {
            // A folder of this name inside some other is nobody's.
            let machine = concat!("/wo", "rk/");
            let alone = |at: usize| {
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                !before.is_some_and(|char| char.is_alphanumeric() || "}_-.~*".contains(char))
            };
            let names_it = line.match_indices(machine).any(|(at, _)| alone(at));
            hold!(findings, !names_it, "{}:{}: names `{machine}`", file.path, number + 1);
            for word in foreign {
                hold!(
                    findings,
                    !line.contains(word),
                    "{}:{}: names `{word}`",
                    file.path,
                    number + 1
                );
            }
        }
    }
    report(&findings);
}
