//! The files of the repository, and Rust text without comments, texts and tests.

use std::path::{Path, PathBuf};

/// Names of what is not the repository's own. In a worktree `.git` is a file.
const FOREIGN: [&str; 4] = ["target", ".git", "node_modules", "corpus"];

/// The rooms that decide: pure, and read in one sitting each.
pub const DECIDING: [&str; 6] = ["model", "gate", "policy", "authority", "flow", "mediator"];

/// Keeps a finding when the condition does not hold, so that one run shows all of them.
macro_rules! hold {
    ($findings:ident, $condition:expr, $($message:tt)+) => {
        if !$condition {
            $findings.push(format!($($message)+));
        }
    };
}
pub(crate) use hold;

/// Fails when there are findings, and shows them all.
#[track_caller]
pub fn report(findings: &[String]) {
    assert!(findings.is_empty(), "\n  {}", findings.join("\n  "));
}

/// The top of the repository: where the runner says it is now, since a build may be shared with another checkout.
pub fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&own).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// One text file.
#[derive(Debug)]
pub struct File {
    /// Its path from the top of the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl File {
    /// The crate's folder name, for files under `crates/`.
    pub fn room(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// True for files that are compiled into what is shipped.
    pub fn is_shipped(&self) -> bool {
        let below_src = self
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"));
        self.path.ends_with(".rs") && below_src.is_some_and(|(room, _)| !room.contains('/')) && !self.is_test_module()
    }

    /// True for a module of unit tests in a file of its own.
    fn is_test_module(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/src/tests/") || self.path.contains("/tests/")
    }

    /// The text before the tests at its bottom.
    pub fn before_tests(&self) -> &str {
        before_tests(&self.text).0
    }

    /// The code before the tests at its bottom: comments and quoted texts are blanked.
    pub fn code(&self) -> String {
        code_only(self.before_tests())
    }
}

/// Every text file of the repository.
pub fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    assert!(
        found.len() > 20,
        "the repository is not where it should be: {}",
        root.display()
    );
    found
}

/// Every Rust file of the repository.
pub fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// One document, which must be there.
pub fn document(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|fault| panic!("{path}: {fault}"))
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<File>) {
    let entries = std::fs::read_dir(folder).expect("a folder of the repository can be listed");
    for entry in entries.flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("an entry has a kind");
        if FOREIGN.iter().any(|name| entry.file_name() == **name) {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, found);
        } else if kind.is_file()
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).expect("the walk stays inside");
            let path = path.to_str().expect("paths of the repository are text").to_owned();
            found.push(File { path, text });
        }
    }
}

/// What stands before `#[cfg(test)] mod … {`, and what stands from there on.
pub fn before_tests(text: &str) -> (&str, &str) {
    let mut at = 0;
    let mut attribute = None;
    for line in text.split_inclusive('\n') {
        if line.starts_with("#[cfg(test)]") {
            attribute = attribute.or(Some(at));
        } else if line.starts_with("mod ") && line.trim_end().ends_with('{') {
            if let Some(start) = attribute {
                return text.split_at(start);
            }
        } else if !line.starts_with("#[") {
            attribute = None;
        }
        at += line.len();
    }
    (text, "")
}

/// The code with comments and the insides of quoted texts blanked; lines keep their numbers.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(end) = next_token(&chars, at, &mut out) {
        at = end;
    }
    out
}

/// Copies or blanks one token from `at`, and says where the next begins.
fn next_token(chars: &[char], at: usize, out: &mut String) -> Option<usize> {
    let here = *chars.get(at)?;
    let next = chars.get(at + 1).copied();
    let end = match here {
        '/' if next == Some('/') => find(chars, at, |rest| rest.first() == Some(&'\n')),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => quoted_end(chars, at, '"'),
        'r' | 'b' | 'c' if !word_before(chars, at) => match raw_end(chars, at) {
            Some(end) => end,
            None => {
                out.push(here);
                return Some(at + 1);
            }
        },
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => quoted_end(chars, at, '\''),
        _ => {
            out.push(here);
            return Some(at + 1);
        }
    };
    out.extend(
        chars
            .iter()
            .take(end)
            .skip(at)
            .map(|char| if *char == '\n' { '\n' } else { ' ' }),
    );
    Some(end)
}

fn word_before(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| chars.get(before));
    before.is_some_and(|char| char.is_alphanumeric() || *char == '_')
}

fn find(chars: &[char], from: usize, found: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|at| chars.get(*at..).is_some_and(&found))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0usize);
    while at < chars.len() {
        match (chars.get(at), chars.get(at + 1)) {
            (Some('/'), Some('*')) => (at, depth) = (at + 2, depth + 1),
            (Some('*'), Some('/')) => (at, depth) = (at + 2, depth.saturating_sub(1)),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_end(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from + 1;
    while let Some(char) = chars.get(at) {
        match char {
            '\\' => at += 2,
            char if *char == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a raw text (`r"…"`, `br#"…"#`, …) that begins here, if one does.
fn raw_end(chars: &[char], from: usize) -> Option<usize> {
    let rest = chars.get(from..)?;
    let prefix = rest
        .iter()
        .take(2)
        .take_while(|char| matches!(char, 'r' | 'b' | 'c'))
        .count();
    if rest.get(prefix.checked_sub(1)?) != Some(&'r') {
        return None;
    }
    let hashes = rest.iter().skip(prefix).take_while(|char| **char == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let inside = from + prefix + hashes + 1;
    Some(find(chars, inside, |rest| rest.starts_with(&closing)) + closing.len())
}

/// The names of all tests in a text: functions with an attribute that ends in `test]` or `test(…)]`.
pub fn tests_in(text: &str) -> Vec<String> {
    let code = code_only(text);
    let mut names = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let (before, after) = code.split_at(at);
        let start = before.rfind(['}', '{', ';']).unwrap_or(0);
        let attributes = before.get(start..).unwrap_or_default();
        let is_test = ["#[test]", "::test]", "::test("]
            .iter()
            .any(|mark| attributes.contains(mark));
        if is_test {
            let name = after.get(3..).unwrap_or_default();
            names.push(
                name.chars()
                    .take_while(|char| char.is_alphanumeric() || *char == '_')
                    .collect(),
            );
        }
    }
    names
}

/// The names of all tests of the repository.
pub fn all_tests() -> Vec<String> {
    rust_files().iter().flat_map(|file| tests_in(&file.text)).collect()
}

#[test]
fn comments_and_texts_are_not_code() {
    let text = r##"let a = "unsafe"; // unsafe
/* unsafe /* unsafe */ */ let b = r#"un"safe"#; let c = '"'; let d: &'static str = b"unsafe\"";
let e = '\''; keep"##;
    let code = code_only(text);
    assert!(!code.contains("safe"), "{code}");
    assert!(code.contains("keep") && code.contains("'static str"), "{code}");
    assert_eq!(code.lines().count(), 3);
}

#[test]
fn tests_are_found_and_cut_off() {
    let text = "fn p1_no() {}\n#[cfg(test)]\nconst X: u8 = 1;\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn p1_yes() {}\n}\n";
    assert_eq!(tests_in(text), ["p1_yes"]);
    let (code, tests) = before_tests(text);
    assert!(code.contains("const X") && tests.starts_with("#[cfg(test)]\nmod tests"));
}
