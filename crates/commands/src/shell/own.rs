//! What a shell does by itself, and what it is given to read: commands of its own, `-c`, its input.

use bailiwick_model::Command;

use super::words::{OPEN, Read, may_hold_lines};

/// Shells whose words after `-c`, or whose input, are a line.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"];

/// What the shell does by itself, without starting anything and without reading a further line.
pub(crate) const BUILTINS: &[&str] = &[
    ":", "[", "alias", "bg", "break", "cd", "continue", "declare", "dirs", "disown", "echo", "exit", "export", "false",
    "fg", "getopts", "hash", "help", "history", "jobs", "let", "local", "logout", "popd", "printf", "pushd", "pwd",
    "read", "readonly", "return", "set", "shift", "shopt", "test", "times", "true", "type", "typeset", "ulimit",
    "umask", "unalias", "unset", "wait",
];

/// What a command reads from its input.
#[derive(Clone)]
pub(crate) enum Input {
    /// Nothing that the line says.
    None,
    /// This text.
    Text(String),
    /// What is known at run time only.
    Open,
}

/// Why a command of the shell itself may start something after all.
pub(crate) fn does_more(name: &str, rest: &[Read]) -> Option<String> {
    let any = |fits: &dyn Fn(&str) -> bool| rest.iter().any(|word| fits(&word.text));
    let more = match name {
        "alias" => any(&|word| word.contains('=')),
        "shopt" | "set" => any(&|word| word.contains("alias") || word == "-k"),
        "hash" | "jobs" => any(&|word| word.starts_with('-')),
        "echo" | ":" | "true" | "false" | "cd" | "exit" | "return" | "help" => false,
        "printf" => any(&|word| word == "-v"),
        // What these take for a name or a number may hold a line: `test -v 'a[$(x)]'`.
        _ => any(&may_hold_lines),
    };
    more.then(|| format!("what `{name}` does with these words is not read"))
}

/// What a command of the shell itself says on its output, where it is written out without escapes and formats.
pub(crate) fn says(name: &str, rest: &[Read]) -> Option<String> {
    let plain = |word: &Read| !word.open && !word.text.starts_with('-') && !word.text.contains('%');
    let words: Vec<String> = rest.iter().map(|word| word.text.replace("\\n", "\n")).collect();
    let text = words.join(" ");
    (matches!(name, "echo" | "printf") && rest.iter().all(plain) && !text.contains('\\')).then_some(text)
}

/// The lines that shells among a command's forms are given, or why they are not known.
pub(crate) fn inner_lines(command: &Command, input: &Input) -> Vec<Result<String, String>> {
    let shells = command
        .forms()
        .iter()
        .filter(|form| form.names.iter().any(|name| SHELLS.contains(&name.as_str())));
    let mut lines = Vec::new();
    for form in shells {
        let name = form.words.first().cloned().unwrap_or_default();
        let mut words = form.words.iter().skip(1);
        let (mut code, mut found) = (false, None);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(words.next()),
                "--" | "-" => {
                    found = words.next();
                    break;
                }
                long if long.starts_with("--") => {}
                short if short.starts_with(['-', '+']) => code |= short.contains('c'),
                _ => {
                    found = Some(word);
                    break;
                }
            }
        }
        match (code, found, input) {
            // Words that are put in later may be put into the line.
            (true, Some(line), _) if !line.contains(OPEN) && !form.cut => lines.push(Ok(line.clone())),
            (true, _, _) => lines.push(Err(format!("what `{name}` runs is known at run time only"))),
            // A script is a file: what it starts is asked about when it starts.
            (false, Some(_), _) | (false, None, Input::None) => {}
            (false, None, Input::Text(line)) => lines.push(Ok(line.clone())),
            (false, None, Input::Open) => {
                lines.push(Err(format!("what `{name}` reads and runs is known at run time only")))
            }
        }
    }
    lines
}
