//! Signing, which is refused in a fence: the key is not there, and nothing outside signs for the agent yet.
//!
//! A person who signs must not find unsigned commits under their name, nor an error about a missing key. So git is given
//! this program as the one that signs; it says in one line what is the case, and git makes no commit. Who wants unsigned
//! commits says so: `[git] unsigned = true`.

use std::process::ExitCode;

use super::settings::GitSettings;

/// How git calls a program that is to sign: `PROGRAM --status-fd=2 -bsau KEY`.
const FIRST_WORD: &str = "--status-fd=2";

/// What is said in a fence.
const REFUSAL: &str = "bailiwick: nothing is signed in here: the key is outside. Commit outside, or ask for unsigned commits: \
                       `[git] unsigned = true` in bailiwick.toml";

/// Answers git, when it was git that called this program; none when it was not.
pub fn answer_git() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some(FIRST_WORD) {
        return None;
    }
    talkln!("{REFUSAL}");
    Some(ExitCode::FAILURE)
}

/// What git is told over all of its files, as variables. `program` is where this program lies inside.
pub fn variables(settings: &GitSettings, unsigned: bool, program: Option<&str>) -> Vec<(String, String)> {
    let mut told: Vec<(&str, &str)> = Vec::new();
    if settings.signs() && unsigned {
        told.extend([
            ("commit.gpgSign", "false"),
            ("tag.gpgSign", "false"),
            ("tag.forceSignAnnotated", "false"),
        ]);
    } else if settings.signs() {
        // One format, whatever the repository says: only this one asks the program first.
        let program = program.unwrap_or("/bin/false");
        told.extend([
            ("gpg.format", "openpgp"),
            ("gpg.program", program),
            ("gpg.openpgp.program", program),
        ]);
        told.extend(settings.signs_commits.then_some(("commit.gpgSign", "true")));
        told.extend(settings.signs_tags.then_some(("tag.gpgSign", "true")));
    }
    numbered(&told)
}

/// Settings as git takes them from its environment (git-config(1), "GIT_CONFIG_COUNT").
fn numbered(told: &[(&str, &str)]) -> Vec<(String, String)> {
    if told.is_empty() {
        return Vec::new();
    }
    let mut all = vec![("GIT_CONFIG_COUNT".to_owned(), told.len().to_string())];
    for (number, (name, value)) in told.iter().enumerate() {
        all.push((format!("GIT_CONFIG_KEY_{number}"), (*name).to_owned()));
        all.push((format!("GIT_CONFIG_VALUE_{number}"), (*value).to_owned()));
    }
    all
}

/// What the person is told before; none when nothing is signed here.
pub fn note(settings: &GitSettings, unsigned: bool) -> Option<String> {
    let what = match (settings.signs_commits, settings.signs_tags) {
        (false, false) => return None,
        (true, false) => "commits",
        (false, true) => "tags",
        (true, true) => "commits and tags",
    };
    Some(if unsigned {
        format!("your {what} are signed outside; the agent's are not, as `[git] unsigned` says")
    } else {
        format!(
            "your {what} are signed, which nothing in there can do: git refuses to make any; `[git] unsigned = true` makes them without"
        )
    })
}
