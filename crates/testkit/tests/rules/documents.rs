//! What must be written down: codes, promises with their tests, field cases with theirs.

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_model::Code;

use crate::tree::{all_tests, document, hold, report};

/// How many promises the house makes: P1 to P14.
const PROMISES: u32 = 14;

/// The field cases that are listed.
const CASES: [u32; 53] = [
    1, 2, 4, 6, 7, 9, 10, 11, 13, 15, 16, 17, 19, 20, 21, 23, 25, 26, 28, 29, 30, 32, 34, 35, 37, 38, 40, 42, 43, 45,
    47, 48, 50, 51, 53, 54, 55, 56, 58, 60, 61, 62, 64, 65, 67, 68, 70, 73, 74, 75, 76, 78, 79,
];

/// The cells of each table row whose first cell is a letter and a number, such as `P4` or `C070`.
fn rows(text: &str, letter: char) -> Vec<(u32, Vec<String>)> {
    let cells = |line: &str| -> Option<(u32, Vec<String>)> {
        let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let id = cells.first()?.strip_prefix(letter)?;
        let number = id.split_whitespace().next()?.parse().ok()?;
        Some((number, cells))
    };
    text.lines().filter_map(cells).collect()
}

/// The number in a test's name: `p4_…` and `c070_…` name promise 4 and case 70.
fn named(test: &str, letter: char) -> Option<u32> {
    let (digits, _) = test.strip_prefix(letter)?.split_once('_')?;
    digits.parse().ok()
}

/// Every id once, as a map from the id to its cells.
fn by_id(rows: Vec<(u32, Vec<String>)>, what: &str) -> BTreeMap<u32, Vec<String>> {
    let mut map = BTreeMap::new();
    for (id, cells) in rows {
        assert!(map.insert(id, cells).is_none(), "{what} {id} is listed twice");
    }
    map
}

#[test]
fn every_code_is_documented_once() {
    let mut findings = Vec::new();
    let text = document("docs/codes.md");
    let mut headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    headings.sort_unstable();
    let mut codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    codes.sort_unstable();
    for code in &codes {
        hold!(
            findings,
            headings.contains(code),
            "docs/codes.md has no heading `## {code}`"
        );
    }
    assert_eq!(
        headings, codes,
        "docs/codes.md has a heading that is no code, or one twice"
    );
    for section in text.split("\n## ").skip(1) {
        let sentences = section.matches(['.', '?']).count();
        hold!(findings, sentences >= 2, "docs/codes.md says too little: {section}");
    }
    report(&findings);
}

#[test]
fn every_promise_names_its_tests_or_is_pending() {
    let mut findings = Vec::new();
    let text = document("docs/security/claims.md");
    let tests: BTreeSet<String> = all_tests().into_iter().collect();
    let claims = by_id(rows(&text, 'P'), "promise");
    assert_eq!(
        claims.keys().copied().collect::<Vec<_>>(),
        (1..=PROMISES).collect::<Vec<_>>()
    );
    for (promise, cells) in claims {
        assert_eq!(cells.len(), 4, "P{promise}: promise, kept here, assumptions, tests");
        let (kept, named_tests) = (cells.get(1).expect("four cells"), cells.get(3).expect("four cells"));
        let known = ["enforced", "partly", "pending"]
            .iter()
            .any(|word| kept.starts_with(word));
        hold!(
            findings,
            known,
            "P{promise} is neither enforced, partly nor pending: {kept}"
        );
        let mut count = 0;
        for quoted in named_tests.split('`').skip(1).step_by(2) {
            let name = quoted.rsplit(':').next().unwrap_or_default().trim();
            hold!(
                findings,
                tests.contains(name),
                "P{promise} names the test `{quoted}`, which does not exist"
            );
            count += 1;
        }
        let pending = named_tests.contains("pending: ");
        hold!(
            findings,
            count > 0 || pending,
            "P{promise} names no test and is not `pending: …`"
        );
        hold!(
            findings,
            count > 0 || !kept.starts_with("enforced"),
            "P{promise} is enforced without a test"
        );
    }
    report(&findings);
}

#[test]
fn every_test_of_a_promise_names_one_that_exists() {
    let mut findings = Vec::new();
    for test in all_tests() {
        if let Some(promise) = named(&test, 'p') {
            hold!(
                findings,
                (1..=PROMISES).contains(&promise),
                "the test `{test}` names no promise"
            );
        }
    }
    report(&findings);
}

#[test]
fn every_field_case_is_tested_or_pending() {
    let mut findings = Vec::new();
    let text = document("docs/cases.md");
    let cases = by_id(rows(&text, 'C'), "case");
    assert_eq!(cases.keys().copied().collect::<Vec<_>>(), CASES);
    let tested: BTreeSet<u32> = all_tests().iter().filter_map(|test| named(test, 'c')).collect();
    for case in &tested {
        hold!(
            findings,
            cases.contains_key(case),
            "a test names case C{case:03}, which is not listed"
        );
    }
    for (case, cells) in cases {
        assert_eq!(cells.len(), 4, "C{case:03}: id, kind, what happened, state");
        let state = cells.get(3).expect("four cells");
        let has_test = tested.contains(&case);
        if state.starts_with("pending: needs ") {
            hold!(findings, !has_test, "C{case:03} has a test and is marked pending");
        } else {
            hold!(
                findings,
                state == "tested" || state.starts_with("partly: "),
                "C{case:03}: what is `{state}`?"
            );
            hold!(
                findings,
                has_test,
                "C{case:03} is marked `{state}`, and no test is named c{case:03}_…"
            );
        }
    }
    report(&findings);
}

#[test]
fn the_documents_a_newcomer_needs_are_there() {
    let needed = [
        "README.md",
        "ARCHITECTURE.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "docs/glossary.md",
    ];
    for path in needed {
        assert!(document(path).lines().count() >= 10, "{path} says too little");
    }
    let readme = document("README.md");
    for command in ["cargo run --release -- run -- bash", "./scripts/test"] {
        assert!(readme.contains(command), "README.md does not show `{command}`");
    }
}
