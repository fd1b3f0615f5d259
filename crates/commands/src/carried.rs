//! What a command carries: `env touch x` starts `touch x`, `busybox rm x` is `rm x`.
//!
//! Promises: P4 (a launcher's licence is none for what it starts). Not here: reading the words (`argv`).

use bailiwick_gate::Start;
use bailiwick_model::NormalForm;

use crate::argv::Found;
use crate::grammar::Carries;
use crate::options::Role;

/// One command that another carries.
pub(crate) struct Carried {
    pub start: Start,
    /// True where it counts for denies only: nobody knows yet whether the file is the program of that name.
    pub only_against: bool,
    /// True where words are added to it which stand nowhere.
    pub open: bool,
}

/// The commands that these words carry.
pub(crate) fn carried(form: &NormalForm, found: Found<'_>, start: &Start) -> Vec<Carried> {
    let level = found.level;
    let mut all = Vec::new();
    let mut operands: Vec<String> = form.operands.iter().skip(level.skip).cloned().collect();
    let mut assigned = Vec::new();
    for (role, words) in found.carried {
        match role {
            // `env -S 'A=b touch x' y` starts `touch x y`.
            Role::Split => operands
                .splice(0..0, words.iter().flat_map(|text| split(text)))
                .for_each(drop),
            Role::Module => {
                let module = words.first().cloned().unwrap_or_default();
                let rest = form.operands.iter().cloned();
                all.push(Carried {
                    start: of(start, [module].into_iter().chain(rest).collect(), Vec::new()),
                    only_against: true,
                    open: false,
                });
            }
            Role::Line => all.extend(words.iter().map(|line| in_shell(start, line))),
            _ if words.is_empty() => {}
            // `find -exec` puts names in place of `{}`.
            _ => all.push(Carried {
                open: words.iter().any(|word| word.contains("{}")),
                start: of(start, words, Vec::new()),
                only_against: false,
            }),
        }
    }
    if level.assignments {
        let count = operands.iter().take_while(|word| is_assignment(word)).count();
        let pair = |word: String| {
            word.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        assigned = operands.drain(..count).filter_map(pair).collect();
    }
    // Their options stand between theirs and its own, so that it counts against only.
    if let Some(place) = operands.iter().position(|word| level.behind.contains(word)) {
        let words: Vec<String> = operands.iter().skip(place.saturating_add(1)).cloned().collect();
        all.extend((!words.is_empty()).then(|| Carried {
            start: of(start, words, Vec::new()),
            only_against: true,
            open: false,
        }));
    }
    let Some(first) = operands.first().cloned() else {
        return all;
    };
    match level.carries {
        None => {}
        // `flock FILE -c LINE`.
        Some(Carries::Command) if first == "-c" => all.extend(operands.get(1).map(|line| in_shell(start, line))),
        Some(Carries::Command | Carries::File) => all.push(Carried {
            start: of(start, operands, assigned),
            only_against: level.carries == Some(Carries::File),
            open: level.appends,
        }),
        Some(Carries::Line) => all.push(in_shell(start, &operands.join(" "))),
        Some(Carries::Applet) => all.push(Carried {
            start: Start {
                // It is this very file that runs, under another name.
                own: start.own,
                ..of(start, operands, assigned)
            },
            only_against: false,
            open: false,
        }),
        Some(Carries::Script) => {
            let name = first.rsplit('/').next().unwrap_or("");
            let stem = name.split('.').next().unwrap_or(name);
            // What a package manager puts behind the name `npm` is called `npm-cli.js`.
            let stem = stem.strip_suffix("-cli").unwrap_or(stem).to_owned();
            let words = [stem].into_iter().chain(operands.into_iter().skip(1)).collect();
            all.push(Carried {
                start: of(start, words, assigned),
                only_against: true,
                open: false,
            });
        }
    }
    all
}

/// A line that a shell is given. What it starts counts against it; the shell itself is judged when it starts.
fn in_shell(start: &Start, line: &str) -> Carried {
    let words = ["sh", "-c", line].map(ToOwned::to_owned).to_vec();
    Carried {
        start: of(start, words, Vec::new()),
        only_against: true,
        open: false,
    }
}

fn of(start: &Start, words: Vec<String>, assigned: Vec<(String, String)>) -> Start {
    let mut variables = start.variables.clone();
    variables.retain(|(name, _)| !assigned.iter().any(|(own, _)| own == name));
    variables.extend(assigned);
    Start::named(words, variables, &start.directory)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'))
}

/// Cuts a text as `env -S` does: blanks divide, quotes hold together. Escapes are left as they stand.
fn split(text: &str) -> Vec<String> {
    bailiwick_model::words_of(text).unwrap_or_else(|_| text.split_whitespace().map(Into::into).collect())
}
