//! Secrets: their values, fetched when a broker needs one, and handed to it by a descriptor.
//!
//! Promises: P9 (a value is in no variable, file, record or message; here it is overwritten once it has been handed over).
//! Trust: where a value comes from is said by the person, or by a project's file that they trust.
//! Not here: which broker is handed which secret (`policy`), secrets for requests (`vault`).

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_policy::SecretSource;
use zeroize::Zeroizing;

/// The variable that says at which descriptor a program finds its secret.
pub const VARIABLE: &str = "BAILIWICK_SECRET_FD";

/// Longest value: what a pipe takes in at once.
const MAX: usize = 32 * 1024;
/// How long a command of the person's may take to say one.
const PATIENCE: Duration = Duration::from_secs(30);

type Value = Zeroizing<Vec<u8>>;

/// Gives the end of a pipe from which a value can be read, once.
pub fn hand_out(value: &[u8]) -> Result<OwnedFd, String> {
    let (from, mut into) = std::io::pipe().map_err(|e| e.to_string())?;
    into.write_all(value).map_err(|e| e.to_string())?;
    Ok(from.into())
}

/// Fetches a value.
pub fn value(source: &SecretSource, environment: &[(String, String)]) -> Result<Value, String> {
    let value = match source {
        SecretSource::File(path) => {
            let file = std::fs::File::open(path.to_path_buf()).map_err(|e| format!("the secret in `{path}`: {e}"))?;
            read(file).map_err(|e| format!("the secret in `{path}`: {e}"))?
        }
        SecretSource::Variable(name) => {
            let found = environment.iter().find(|(own, _)| own == name);
            let (_, value) = found.ok_or_else(|| format!("the variable `{name}` of the secret is not set"))?;
            Zeroizing::new(value.as_bytes().to_vec())
        }
        SecretSource::Command(words) => said_by(words, environment)?,
        SecretSource::Keyring(attributes) => super::keyring::find(attributes, environment)?,
    };
    let line = value.strip_suffix(b"\n").unwrap_or(&value);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err("the secret is empty".into());
    }
    Ok(Zeroizing::new(line.to_vec()))
}

/// Reads a value into room that does not grow, so that no copy is left behind.
fn read(from: impl Read) -> Result<Value, String> {
    let mut value = Zeroizing::new(Vec::with_capacity(MAX + 1));
    let limit = u64::try_from(MAX).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut value).map_err(|e| e.to_string())?;
    if value.len() > MAX {
        return Err(format!("it is longer than {MAX} bytes"));
    }
    Ok(value)
}

/// The first line that a command of the person's says.
fn said_by(words: &[String], environment: &[(String, String)]) -> Result<Value, String> {
    let (program, rest) = words.split_first().ok_or("the secret's command names no program")?;
    let mut child = Command::new(program)
        .args(rest)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("the secret's command `{program}`: {e}"))?;
    let output = child.stdout.take().ok_or("the secret's command has no output")?;
    let reader = std::thread::spawn(move || read(output));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the secret's command `{program}` took too long"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if !status.success() {
        return Err(format!("the secret's command `{program}` failed: {status}"));
    }
    let said = reader
        .join()
        .map_err(|_| "the secret's command said nothing".to_owned())??;
    let line = said.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(Zeroizing::new(line.to_vec()))
}

#[cfg(test)]
mod tests {
    use bailiwick_model::AbsPath;

    use super::*;

    fn handed(from: SecretSource) -> Result<String, String> {
        let environment = [
            ("TOKEN".to_owned(), "of a variable".to_owned()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ];
        let mut text = String::new();
        let end = hand_out(&value(&from, &environment)?)?;
        std::fs::File::from(end).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn p9_a_secret_is_read_once_from_where_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let path = AbsPath::new(folder.path().join("token")).unwrap();
        std::fs::write(path.to_path_buf(), "of a file\n").unwrap();
        assert_eq!(handed(SecretSource::File(path.clone())).as_deref(), Ok("of a file"));
        assert_eq!(
            handed(SecretSource::Variable("TOKEN".into())).as_deref(),
            Ok("of a variable")
        );
        let command = |text: &str| SecretSource::Command(text.split(' ').map(Into::into).collect());
        assert_eq!(handed(command("printf said\\nmore")).as_deref(), Ok("said"));
        assert!(handed(SecretSource::Variable("NONE".into())).is_err());
        assert!(handed(command("false")).is_err());
        assert!(handed(command("/does/not/exist")).is_err());
        std::fs::write(path.to_path_buf(), "").unwrap();
        assert!(handed(SecretSource::File(path.clone())).is_err());
        std::fs::write(path.to_path_buf(), vec![b'x'; MAX + 1]).unwrap();
        let Err(said) = handed(SecretSource::File(path)) else {
            panic!()
        };
        assert!(said.contains("longer") && !said.contains("xxx"), "{said}");
    }
}
