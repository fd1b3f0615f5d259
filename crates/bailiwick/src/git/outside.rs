//! Git that runs outside for an agent: what it must not heed of what lies in the project, and who it is there.
//!
//! Promises: P5 (it works on the repository of the context and no other, whatever stands in the folder where it was started),
//! P9 (the credential is answered for one host, once, from a descriptor).
//! Trust: the agent writes all in the project but what is guarded: objects, branches, files, nested repositories. The
//! settings of the repository are the person's, since they are guarded, as long as they lead to no other file.
//! See: git(1), "Environment Variables"; git-config(1); gitcredentials(7); gitrepository-layout(5).

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;

use bailiwick_model::AbsPath;
use bailiwick_policy::{Broker, Secret};
use zeroize::Zeroizing;

use super::quiet_git;

/// The word that makes this program answer git's questions for a credential.
pub const CREDENTIAL: &str = "__credential";
/// Who a token belongs to where nobody says: hosts take any name beside a token.
const USER: &str = "x-access-token";
/// Longest question of git's, in bytes.
const MAX_QUESTION: u64 = 64 * 1024;

/// True for git, by the name or path of a broker's program.
pub fn is_git(program: &str) -> bool {
    program.rsplit('/').next() == Some("git")
}

/// What git is told by variables, over all files. An error where the repository is not one that it can be held to.
pub fn variables(root: &AbsPath, secret: Option<&Secret>, broker: &Broker) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join(".git").map_err(|e| e.to_string())?;
    let found = folder.to_path_buf().symlink_metadata();
    if !found.is_ok_and(|found| found.is_dir()) {
        return Err(format!("git runs outside only where `{folder}` is a folder"));
    }
    leads_nowhere(&folder)?;
    let mut told = vec![
        ("core.hooksPath".to_owned(), "/dev/null".to_owned()),
        ("core.fsmonitor".into(), "false".into()),
        ("core.pager".into(), "cat".into()),
        ("core.editor".into(), "false".into()),
        ("core.askPass".into(), String::new()),
        // An empty one takes away those that stand before it.
        ("credential.helper".into(), String::new()),
        ("credential.interactive".into(), "false".into()),
        ("credential.useHttpPath".into(), "false".into()),
        ("protocol.ext.allow".into(), "never".into()),
        ("push.gpgSign".into(), "false".into()),
        ("push.followTags".into(), "false".into()),
        ("push.recurseSubmodules".into(), "no".into()),
        ("submodule.recurse".into(), "false".into()),
        ("gc.auto".into(), "0".into()),
        ("maintenance.auto".into(), "false".into()),
    ];
    if let Some(secret) = secret {
        let host = host_of(secret, broker)?;
        let user = secret.user.as_deref().unwrap_or(USER);
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let words = [&program.display().to_string(), CREDENTIAL, &host, user].map(quoted);
        told.push(("credential.helper".into(), format!("!{}", words.join(" "))));
    }
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    for name in ["GIT_DIR", "GIT_COMMON_DIR"] {
        put(name, folder.as_str());
    }
    put("GIT_WORK_TREE", root.as_str());
    put("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"] {
        put(name, "/dev/null");
    }
    put("GIT_ATTR_NOSYSTEM", "1");
    put("GIT_TERMINAL_PROMPT", "0");
    put("GIT_ASKPASS", "");
    put("SSH_ASKPASS", "");
    put("GIT_PAGER", "cat");
    put("GIT_EDITOR", "false");
    put("GIT_NO_LAZY_FETCH", "1");
    put("GIT_NO_REPLACE_OBJECTS", "1");
    put("GIT_OPTIONAL_LOCKS", "0");
    put("GIT_CONFIG_COUNT", &told.len().to_string());
    for (number, (name, value)) in told.iter().enumerate() {
        put(&format!("GIT_CONFIG_KEY_{number}"), name);
        put(&format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    Ok(all)
}

/// A word as git's shell reads it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The host that a secret is for: the one that is named with it, else the only one that its broker reaches.
fn host_of(secret: &Secret, broker: &Broker) -> Result<String, String> {
    if let Some(host) = &secret.host {
        return Ok(host.clone());
    }
    let mut hosts = broker.hosts();
    match (hosts.next(), hosts.next()) {
        (Some(Some(host)), None) => Ok(host),
        _ => Err("its secret does not say for which host it is: add `host = \"…\"` to it".into()),
    }
}

/// The repository's own settings lead to no other file: that could be one that the agent writes.
fn leads_nowhere(folder: &AbsPath) -> Result<(), String> {
    let settings = folder.join("config").map_err(|e| e.to_string())?;
    let mut git = quiet_git(std::path::Path::new("/"));
    git.args(["config", "--no-includes", "--file"])
        .arg(settings.to_path_buf());
    git.args(["--name-only", "--list", "-z"]);
    let done = git.output().map_err(|e| format!("git cannot be asked: {e}"))?;
    if !done.status.success() {
        return Err(format!("`{settings}` cannot be read"));
    }
    let names = String::from_utf8_lossy(&done.stdout).to_ascii_lowercase();
    let leads = |name: &str| {
        name.starts_with("include.") || name.starts_with("includeif.") || name == "extensions.worktreeconfig"
    };
    match names.split('\0').find(|name| leads(name)) {
        Some(name) => Err(format!(
            "`{settings}` leads to another file by `{name}`: git runs outside only without that"
        )),
        None => Ok(()),
    }
}

/// Answers git's question for a credential: `__credential HOST USER get`, the question on standard input, the secret on the
/// descriptor that it was handed. For another host, or another word than `get`, it says nothing.
pub fn answer_credential() -> ExitCode {
    let mut words = std::env::args().skip(2);
    let (Some(host), Some(user), Some(what)) = (words.next(), words.next(), words.next()) else {
        return ExitCode::FAILURE;
    };
    let mut question = String::new();
    if std::io::stdin()
        .lock()
        .take(MAX_QUESTION)
        .read_to_string(&mut question)
        .is_err()
    {
        return ExitCode::FAILURE;
    }
    if what != "get" || !is_for(&question, &host) {
        return ExitCode::SUCCESS;
    }
    match secret() {
        Ok(secret) => {
            let head = format!("username={user}\npassword=");
            let mut answer = Zeroizing::new(Vec::with_capacity(head.len() + secret.len() + 1));
            answer.extend_from_slice(head.as_bytes());
            answer.extend_from_slice(&secret);
            answer.push(b'\n');
            match std::io::stdout().lock().write_all(&answer) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn secret() -> std::io::Result<Zeroizing<Vec<u8>>> {
    let file = std::fs::File::from(bailiwick_fence::inherited_secret()?);
    let mut line = Zeroizing::new(Vec::with_capacity(64 * 1024));
    std::io::BufReader::new(file)
        .take(MAX_QUESTION)
        .read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(std::io::Error::other("it was read already"));
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

/// True when git asks for this host, by a protocol that shows the secret to nobody else: `https`, or `http` to this machine.
fn is_for(question: &str, host: &str) -> bool {
    let value = |key: &str| {
        let mut lines = question.lines().filter_map(|line| line.split_once('='));
        lines.find(|(own, _)| *own == key).map(|(_, value)| value)
    };
    let asked = value("host").unwrap_or_default().to_ascii_lowercase();
    let name = asked.rsplit_once(':').map_or(asked.as_str(), |(name, _)| name);
    let here = ["127.0.0.1", "localhost", "[::1]"].contains(&name);
    let protocol = match value("protocol") {
        Some("https") => true,
        Some("http") => here,
        _ => false,
    };
    protocol && asked == host.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_a_credential_is_for_one_host_and_no_other_hears_of_it() {
        let question = |protocol: &str, host: &str| format!("protocol={protocol}\nhost={host}\npath=a/b\n");
        for (protocol, host, own, want) in [
            ("https", "github.com", "github.com", true),
            ("https", "GitHub.com", "github.com", true),
            ("https", "github.com.evil.test", "github.com", false),
            ("https", "evil.test", "github.com", false),
            ("https", "github.com:8443", "github.com", false),
            ("http", "github.com", "github.com", false),
            ("http", "127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http", "127.0.0.1:8081", "127.0.0.1:8080", false),
            ("ftp", "github.com", "github.com", false),
        ] {
            assert_eq!(is_for(&question(protocol, host), own), want, "{protocol} {host}");
        }
        assert!(!is_for("host=github.com\n", "github.com"));
        // The first line of a key counts, for git as for us.
        assert!(!is_for(
            "protocol=https\nhost=evil.test\nhost=github.com\n",
            "github.com"
        ));
    }

    #[test]
    fn p5_a_repository_that_leads_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = AbsPath::new(folder.path().canonicalize().unwrap()).unwrap();
        let done = quiet_git(folder.path()).args(["init", "-q"]).status().unwrap();
        assert!(done.success());
        let git = root.join(".git").unwrap();
        leads_nowhere(&git).unwrap();
        for (setting, value) in [
            ("include.path", "../x"),
            ("includeIf.onbranch:x.path", "../x"),
            ("extensions.worktreeConfig", "true"),
        ] {
            let set = quiet_git(folder.path())
                .args(["config", setting, value])
                .status()
                .unwrap();
            assert!(set.success(), "{setting}");
            assert!(leads_nowhere(&git).is_err(), "{setting}");
            let unset = quiet_git(folder.path()).args(["config", "--unset", setting]).status();
            assert!(unset.unwrap().success());
        }
        leads_nowhere(&git).unwrap();
    }
}
