//! The table: every attempt, family by family, and what they share.

mod crooked;
mod descriptors;
mod guarded;
mod hidden;
mod ipc;
mod kernel;
mod links;
mod network;
mod outside;
mod processes;
mod proxy;
mod sockets;
mod terminal;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Family, Refused, Tried};

/// Every attempt.
pub fn families() -> Vec<Family> {
    let family = |name, attempts| Family { name, attempts };
    vec![
        family("possible", outside::possible()),
        family("descriptors", descriptors::attempts()),
        family("links", links::attempts()),
        family("hidden files", hidden::attempts()),
        family("guarded files", guarded::present()),
        family("guarded names", guarded::absent()),
        family("outside", outside::attempts()),
        family("set-id", outside::set_id()),
        family("processes", processes::attempts()),
        family("left behind", processes::left_behind()),
        family("kernel", kernel::attempts()),
        family("terminal", terminal::attempts()),
        family("sockets", sockets::attempts()),
        family("ipc", ipc::attempts()),
        family("network", network::attempts()),
        family("proxy", proxy::attempts()),
        family("crooked", crooked::attempts()),
    ]
}

/// Every bait begins so.
const MARK: &[u8] = b"BAIT-";

/// What of the bait stands in these bytes.
fn bait(bytes: &[u8]) -> Tried {
    let mut found = Vec::new();
    for (at, window) in bytes.windows(MARK.len()).enumerate() {
        if window == MARK {
            let rest = bytes.get(at..).unwrap_or_default();
            let word = rest
                .iter()
                .take(64)
                .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
            let word: Vec<u8> = word.copied().collect();
            found.push(String::from_utf8_lossy(&word).into_owned());
        }
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        return Err(format!("no bait in {} bytes", bytes.len()).into());
    }
    Ok(found.join(" "))
}

/// Reads at most a mebibyte of a file.
fn read(path: impl AsRef<Path>) -> Tried {
    let path = path.as_ref();
    // A pipe of somebody else would wait, and what is read from it is gone for them.
    if !path.metadata()?.is_file() {
        return Err("it is not a file".into());
    }
    let mut bytes = Vec::new();
    OpenOptions::new()
        .read(true)
        .open(path)?
        .take(1 << 20)
        .read_to_end(&mut bytes)?;
    bait(&bytes)
}

/// Writes to a file that is there, or makes one.
fn write(path: impl AsRef<Path>, content: &str) -> Tried {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(content.as_bytes())?;
    Ok("written".into())
}

/// Runs a shell line in the current folder; its output is what was got.
fn shell(line: &str) -> Result<Vec<u8>, Refused> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null());
    let done = command.output()?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        let said = String::from_utf8_lossy(&done.stderr);
        let cause = format!("{}: {}", done.status, said.trim());
        // A program that is not installed.
        let missing = done.status.code() == Some(127);
        Err(if missing {
            Refused::NotHere(cause)
        } else {
            Refused::Stopped(cause)
        })
    }
}

/// Learns from a shell line.
fn learn(line: &str) -> Tried {
    bait(&shell(line)?)
}

/// Does something by a shell line.
fn act(line: &str) -> Tried {
    shell(line).map(|_| "done".into())
}

/// Tries several ways; the first that works.
fn any(ways: impl IntoIterator<Item = Tried>) -> Tried {
    let (mut causes, mut stopped) = (Vec::new(), false);
    for way in ways {
        match way {
            Ok(got) => return Ok(got),
            Err(Refused::Stopped(cause)) => {
                stopped = true;
                causes.push(cause);
            }
            Err(Refused::NotHere(cause)) => causes.push(cause),
        }
    }
    causes.dedup();
    causes.truncate(4);
    let causes = causes.join("; ");
    Err(if stopped {
        Refused::Stopped(causes)
    } else {
        Refused::NotHere(causes)
    })
}

/// Quoted for a shell.
fn quoted(path: impl AsRef<Path>) -> String {
    format!("'{}'", path.as_ref().display())
}
