//! `bailiwick-probe`: tries one attempt or all of them, and prints one line of JSON for each.
//!
//! list                 names every attempt and its family
//! try ID WORLD         tries one; WORLD is JSON
//! all WORLD            tries each in a process of its own
//! victim, keeper, linger WORD  what the attempts are aimed at, and what they leave behind

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use bailiwick_probe::{Line, World, families};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => list(),
        ["try", id, world] => attempt(id, world),
        ["all", world] => all(world),
        ["keeper"] => bailiwick_probe::be_keeper().map_err(|e| e.to_string()),
        ["victim", _bait] => bailiwick_probe::be_victim().map_err(|e| e.to_string()),
        ["linger", _word] => {
            std::thread::sleep(std::time::Duration::from_secs(30));
            Ok(())
        }
        _ => Err("usage: bailiwick-probe list | try ID WORLD | all WORLD".into()),
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
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    for family in families() {
        for attempt in family.attempts {
            let mut child = Command::new(&own);
            child.args(["try", &attempt.id, world]).stdin(Stdio::null());
            let output = child.output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout);
            match text.lines().last() {
                Some(line) => say(line)?,
                None => {
                    let tried = Err(bailiwick_probe::Refused::Stopped(format!(
                        "it was ended: {}",
                        output.status
                    )));
                    let line = Line::of(&attempt.id, family.name, tried);
                    say(&serde_json::to_string(&line).map_err(|e| e.to_string())?)?;
                }
            }
        }
    }
    Ok(())
}
