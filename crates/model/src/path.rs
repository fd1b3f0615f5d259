//! Absolute paths in lexical normal form.
//!
//! Promises: P5. Trust: the text may come from an agent. Links are *not* followed here: the object that a path
//! reaches is settled by the kernel (mounts, Landlock) or by whoever opens it, never by this text.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

/// Longest path that is accepted, in bytes (the kernel's `PATH_MAX` is 4096 with its final NUL).
const MAX: usize = 4095;

/// Says why a text is not an absolute path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with `/`.
    #[error("`{0}` is not an absolute path")]
    Relative(String),
    /// The path is longer than the kernel takes.
    #[error("a path of {0} bytes is too long: the kernel takes {MAX}")]
    TooLong(usize),
    /// The path holds a NUL byte.
    #[error("a path cannot hold a NUL byte")]
    Nul,
}

/// An absolute path without `.`, `..`, empty segments or a final slash.
///
/// Bytes that are not UTF-8 are written `\xHH`, and a backslash `\\`, so that different paths stay different texts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AbsPath(String);

impl AbsPath {
    /// The root folder.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Reads an absolute path; `..` is resolved as text.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.as_ref().as_os_str().as_bytes();
        if bytes.first() != Some(&b'/') {
            return Err(PathError::Relative(String::from_utf8_lossy(bytes).into_owned()));
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        let normal = normalize(&escape(bytes));
        if normal.len() > MAX {
            return Err(PathError::TooLong(normal.len()));
        }
        Ok(Self(normal))
    }

    /// Reads a path that may be relative to this one.
    pub fn join(&self, path: impl AsRef<Path>) -> Result<Self, PathError> {
        Self::new(self.to_path_buf().join(path))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for the operating system: escapes undone.
    pub fn to_path_buf(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec(unescape(&self.0)))
    }

    /// The segments, from the root.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }

    /// The last segment; none for the root.
    pub fn name(&self) -> Option<&str> {
        self.segments().next_back()
    }

    /// The folder that holds this path; none for the root.
    pub fn parent(&self) -> Option<Self> {
        let (head, name) = self.0.rsplit_once('/')?;
        (!name.is_empty()).then(|| Self(if head.is_empty() { "/".into() } else { head.into() }))
    }

    /// The path itself, then each folder above it up to the root.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.0.as_str());
        std::iter::from_fn(move || {
            let here = next?;
            next = match here.rsplit_once('/') {
                _ if here == "/" => None,
                Some(("", _)) => Some("/"),
                Some((head, _)) => Some(head),
                None => None,
            };
            Some(here)
        })
    }

    /// True when `other` is this path or lies below it.
    pub fn holds(&self, other: &Self) -> bool {
        self.0 == "/"
            || other
                .0
                .strip_prefix(self.0.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                out.push('\\');
            }
            out.push(character);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'x') => {
                let digits = [rest.next(), rest.next()].map(|digit| {
                    digit
                        .and_then(|digit| char::from(digit).to_digit(16))
                        .and_then(|value| u8::try_from(value).ok())
                });
                if let [Some(high), Some(low)] = digits {
                    out.push(high << 4 | low);
                }
            }
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    out
}

fn normalize(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

impl fmt::Display for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<'de> Deserialize<'de> for AbsPath {
    /// Takes only the normal form: a frame with another spelling is malformed.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let well_formed =
            text.starts_with('/') && text.len() <= MAX && !text.contains('\0') && normalize(&text) == text;
        // An escape that does not come back as itself would make two texts of one path.
        if well_formed && escape(&unescape(&text)) == text {
            Ok(Self(text))
        } else {
            Err(serde::de::Error::custom("not a path in normal form"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn p5_one_form_for_many_spellings() {
        for spelling in ["/a/b", "/a//b", "/a/./b", "/a/c/../b", "/../a/b/", "//a/b/."] {
            assert_eq!(path(spelling).as_str(), "/a/b", "{spelling}");
        }
        assert_eq!(path("/..").as_str(), "/");
        assert!(AbsPath::new("a/b").is_err());
    }

    #[test]
    fn ancestors_and_holds_end_at_segments() {
        assert_eq!(path("/a/b").ancestors().collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(path("/").ancestors().collect::<Vec<_>>(), ["/"]);
        assert!(path("/a").holds(&path("/a/b")) && path("/a").holds(&path("/a")) && path("/").holds(&path("/x")));
        assert!(!path("/a").holds(&path("/ab")));
    }

    #[test]
    fn bytes_outside_utf8_come_back_as_they_were() {
        let odd = std::ffi::OsStr::from_bytes(b"/a/\xff\\x");
        let read = AbsPath::new(odd).unwrap();
        assert_eq!(read.as_str(), "/a/\\xff\\\\x");
        assert_eq!(read.to_path_buf().as_os_str(), odd);
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<AbsPath>(&text).unwrap(), read);
        assert!(serde_json::from_str::<AbsPath>("\"/a/../b\"").is_err());
        assert!(
            serde_json::from_str::<AbsPath>("\"/a\\\\x2f\"").is_err(),
            "an escaped slash is not a path"
        );
    }
}
