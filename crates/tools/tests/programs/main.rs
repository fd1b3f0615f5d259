//! Real servers behind the gate, and real clients before it: programs from npm and PyPI as `./scripts/test` installs them.

#[cfg(test)]
mod clients;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod servers;
#[cfg(test)]
#[path = "../gate/world.rs"]
#[allow(dead_code, reason = "what the other tests need of it")]
mod world;

#[cfg(test)]
mod found {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use crate::world::{Lines, Script};

    fn cache() -> Option<PathBuf> {
        let cache = std::env::var_os("BAILIWICK_TEST_CACHE").map(PathBuf::from);
        cache.or_else(|| Some(PathBuf::from("/var/cache/bailiwick-test")).filter(|cache| cache.is_dir()))
    }

    /// A file of a package from npm; none, said aloud, where it is not installed.
    pub fn npm(path: &str) -> Option<PathBuf> {
        let found = cache().map(|cache| cache.join("node_modules").join(path));
        let found = found.filter(|path| path.exists());
        if found.is_none() {
            bailiwick_testkit::skip(&format!("{path} is not installed"));
        }
        found
    }

    /// The Python that has the SDK; none, said aloud, where it is not installed.
    pub fn python() -> Option<PathBuf> {
        let found = cache().map(|cache| cache.join("python-mcp/bin/python"));
        let found = found.filter(|path| path.exists());
        if found.is_none() {
            bailiwick_testkit::skip("the Python SDK of the tools' protocol is not installed");
        }
        found
    }

    /// A program as a server: with a clean environment, and these words.
    pub fn server(program: impl Into<PathBuf>, words: &[String]) -> Script {
        let (program, words) = (program.into(), words.to_vec());
        Arc::new(move |lines: Lines| {
            let end = || std::os::fd::OwnedFd::from(lines.writer.try_clone().unwrap());
            let mut child = Command::new(&program)
                .args(&words)
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap())
                .env("HOME", "/nonexistent")
                .stdin(end())
                .stdout(end())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            drop(lines);
            let _ = child.wait();
        })
    }
}
