//! `bailiwick-probe`: tries one attempt or all of them, and prints one line of JSON for each.
//!
//! list                 names every attempt and its family
//! try ID WORLD         tries one; WORLD is JSON
//! all WORLD            tries each in a process of its own
//! many FILE            tries those that the file lists, each with a world of its own: {"id": …, "world": …} a line
//! victim, keeper, linger WORD  what the attempts are aimed at, and what they leave behind

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use bailiwick_probe::{Line, World, families};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => list(),
        ["try", id, world] => attempt(id, world),
        ["all", world] => all(world),
        ["many", file] => many(file),
        ["keeper"] => bailiwick_probe::be_keeper().map_err(|e| e.to_string()),
        ["victim", _bait] => bailiwick_probe::be_victim().map_err(|e| e.to_string()),
        ["linger", _word] => {
            std::thread::sleep(std::time::Duration::from_secs(30));
            Ok(())
        }
        _ => Err("usage: bailiwick-probe list | try ID WORLD | all WORLD | many FILE".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            let _ = writeln!(std::io::stderr(), "bailiwick-probe: {cause}");
            ExitCode::from(2)
        }
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|e| e.to_string())
}

fn list() -> Result<(), String> {
    for family in families() {
        for attempt in family.attempts {
            say(&format!("{}\t{}", attempt.id, family.name))?;
        }
    }
    Ok(())
}

fn attempt(id: &str, world: &str) -> Result<(), String> {
    let world: World = serde_json::from_str(world).map_err(|e| format!("the world cannot be read: {e}"))?;
    for family in families() {
        if let Some(attempt) = family.attempts.iter().find(|attempt| attempt.id == id) {
            let line = Line::of(id, family.name, attempt.run(&world));
            return say(&serde_json::to_string(&line).map_err(|e| e.to_string())?);
        }
    }
    Err(format!("`{id}` is no attempt"))
}

fn all(world: &str) -> Result<(), String> {
    for family in families() {
        for attempt in family.attempts {
            apart(&attempt.id, family.name, world)?;
        }
    }
    Ok(())
}

fn many(file: &str) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    struct Listed {
        id: String,
        world: World,
    }
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let families = families();
    let before = names_here();
    for line in text.lines() {
        let listed: Listed = serde_json::from_str(line).map_err(|e| format!("{file}: {e}"))?;
        let family = families
            .iter()
            .find(|family| family.attempts.iter().any(|attempt| attempt.id == listed.id));
        let family = family.ok_or_else(|| format!("`{}` is no attempt", listed.id))?;
        let world = serde_json::to_string(&listed.world).map_err(|e| e.to_string())?;
        apart(&listed.id, family.name, &world)?;
        // What one attempt leaves in the current folder must not be in the way of the next.
        for name in names_here().difference(&before) {
            let _ = std::fs::remove_file(name).or_else(|_| std::fs::remove_dir_all(name));
        }
    }
    Ok(())
}

fn names_here() -> BTreeSet<std::ffi::OsString> {
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// Tries one in a process of its own, which may end or be ended.
fn apart(id: &str, family: &str, world: &str) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(&own);
    child
        .args(["try", id, world])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = child.spawn().map_err(|e| e.to_string())?;
    let mut said = String::new();
    // One line at most: what it leaves behind may keep the pipe open.
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut said);
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if !said.is_empty() {
        return say(said.trim_end());
    }
    let tried = Err(bailiwick_probe::Refused::Stopped(format!("it was ended: {status}")));
    let line = Line::of(id, family, tried);
    say(&serde_json::to_string(&line).map_err(|e| e.to_string())?)
}
