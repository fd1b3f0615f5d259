//! Becoming an ordinary user, for tests that run as root and must hold for both.

use std::ffi::OsStr;
use std::process::Command;

/// The uid and gid of the ordinary user. Nothing on a machine needs to know it.
pub const ORDINARY_UID: u32 = 4242;

/// True when this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command run as the ordinary user when this process is root, and as it is otherwise.
pub fn ordinary(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={ORDINARY_UID}"))
        .arg(format!("--regid={ORDINARY_UID}"))
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_is_never_root() {
        let output = ordinary("id").arg("-u").output().expect("id and setpriv are there");
        let uid: u32 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .expect("a number");
        assert_ne!(uid, 0);
        if is_root() {
            assert_eq!(uid, ORDINARY_UID);
        }
    }
}
