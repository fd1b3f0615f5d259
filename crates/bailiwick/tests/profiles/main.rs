//! Profiles, whole way: what agents and toolchains keep, caches that nothing is written through, projects of several
//! languages built inside with nothing but the preset.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod init;
mod install;
mod kept;
mod login;
mod toolchains;

use bailiwick_testkit::Bailiwick;

/// The product as whoever runs the tests, and as an ordinary user.
pub(crate) fn kits() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

/// Puts a program into the home, outside the project.
pub(crate) fn program(kit: &Bailiwick, path: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let file = kit.write_home(path, text);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}
