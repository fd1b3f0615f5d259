//! Tells a person on their desktop that something waits: nothing more, and nothing can be answered there.
//!
//! Promises: P8 (what stands there is the mediator's sentence, safe and cut; no answer comes from a notification).
//! Trust: the bus is the session's of whoever ordered the run. Whoever listens there learns that something waits, and what.
//! Not here: keys and locked secrets (`keyring`), which use the same bus.
//! See: <https://specifications.freedesktop.org/notification-spec/latest/>.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bailiwick_gate::desk::Asked;
use zbus::zvariant::Value;

use super::keyring::address_of;
use super::lock;

/// How long the session's notifications may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait for further questions, which are told together: the least time between two notifications.
const TOGETHER: Duration = Duration::from_secs(2);

/// Most questions that wait to be told.
const IN_LINE: usize = 64;

/// As much of a sentence as is told, in characters.
const SENTENCE: usize = 140;

/// Where a task's person can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bell {
    address: String,
}

impl Bell {
    /// Where that is; none where the rules say so, or where nobody looks at a screen. What is `wanted` is told also there.
    pub fn of(wanted: Option<bool>, environment: &[(String, String)]) -> Option<Self> {
        let set = |wanted: &str| {
            environment
                .iter()
                .any(|(name, value)| name == wanted && !value.is_empty())
        };
        let looks = set("DISPLAY") || set("WAYLAND_DISPLAY");
        let address = wanted.unwrap_or(looks).then(|| address_of(environment)).flatten()?;
        Some(Self { address })
    }
}

/// What a bell is rung for.
#[derive(Debug, Clone)]
enum Rung {
    /// A question waits, of this sentence.
    Question(String),
    /// This was done.
    Done(String),
}

/// Rings the bells, from a thread of its own: a session that does not answer holds up nothing else.
#[derive(Debug, Default)]
pub struct Ringer {
    line: Mutex<Option<SyncSender<(Bell, Rung)>>>,
}

impl Ringer {
    /// Tells of a question. Where too many wait to be told, they are told together anyway.
    pub fn tell(&self, bell: &Bell, asked: &Asked) {
        self.put(bell, Rung::Question(sentence(&asked.sentence)));
    }

    /// Tells of something that was done.
    pub fn say(&self, bell: &Bell, what: &str) {
        self.put(bell, Rung::Done(sentence(what)));
    }

    fn put(&self, bell: &Bell, rung: Rung) {
        let mut line = lock(&self.line);
        let line = line.get_or_insert_with(|| {
            let (line, questions) = sync_channel(IN_LINE);
            std::thread::spawn(move || ring_all(&questions));
            line
        });
        let _ = line.try_send((bell.clone(), rung));
    }
}

/// The sentence, safe, and cut with a mark.
fn sentence(text: &str) -> String {
    let begin: String = text.chars().take(SENTENCE.saturating_add(1)).collect();
    let safe = bailiwick_tui::safe(&begin);
    let cut: String = safe.chars().take(SENTENCE).collect();
    if cut.len() < safe.len() {
        format!("{cut}…")
    } else {
        cut
    }
}

fn ring_all(questions: &Receiver<(Bell, Rung)>) {
    let mut last: HashMap<String, u32> = HashMap::new();
    while let Ok(first) = questions.recv() {
        let mut told: HashMap<String, (String, usize)> = HashMap::new();
        for (bell, rung) in std::iter::once(first).chain(questions.try_iter()) {
            match rung {
                Rung::Question(sentence) => {
                    let (_, count) = told.entry(bell.address).or_insert((sentence, 0));
                    *count = count.saturating_add(1);
                }
                // Each stands by itself, in the place of nothing.
                Rung::Done(what) => {
                    if let Err(e) = ring(&bell.address, 0, &what, 0) {
                        talkln!("bailiwick: a notification could not be shown: {e}");
                    }
                }
            }
        }
        for (address, (sentence, count)) in told {
            let before = last.get(&address).copied().unwrap_or_default();
            match ring(&address, before, &sentence, count) {
                // One notification, that says something else: they do not pile up.
                Ok(number) => drop(last.insert(address, number)),
                Err(e) => talkln!("bailiwick: a notification could not be shown: {e}"),
            }
        }
        std::thread::sleep(TOGETHER);
    }
}

fn ring(address: &str, before: u32, sentence: &str, count: usize) -> zbus::Result<u32> {
    const NAME: &str = "org.freedesktop.Notifications";
    const PATH: &str = "/org/freedesktop/Notifications";
    let connection = zbus::blocking::connection::Builder::address(address)?
        .method_timeout(PATIENCE)
        .build()?;
    let can: Vec<String> = connection
        .call_method(Some(NAME), PATH, Some(NAME), "GetCapabilities", &())?
        .body()
        .deserialize()?;
    let (head, body) = told(sentence, count, can.iter().any(|one| one == "body-markup"));
    let nothing: Vec<&str> = Vec::new();
    let hints: HashMap<&str, Value<'_>> = HashMap::from([("urgency", Value::U8(1))]);
    let call = (
        "Bailiwick",
        before,
        "",
        head.as_str(),
        body.as_str(),
        nothing,
        hints,
        -1_i32,
    );
    let answer = connection.call_method(Some(NAME), PATH, Some(NAME), "Notify", &call)?;
    answer.body().deserialize()
}

/// What stands there.
fn told(sentence: &str, count: usize, markup: bool) -> (String, String) {
    let head = match count {
        0 => "Your agent did something".to_owned(),
        1 => "A question waits for you".to_owned(),
        several => format!("{several} questions wait for you"),
    };
    let sentence = match markup {
        true => sentence.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
        false => sentence.to_owned(),
    };
    let then = match count {
        0 => "`bailiwick log show` has it whole.",
        _ => "`bailiwick approve` shows it whole, and answers it.",
    };
    (head, format!("{sentence}\n{then}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn bells_are_where_somebody_looks_or_wants_to_be_told() {
        let bus = ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus");
        let display = ("WAYLAND_DISPLAY", "wayland-0");
        for (wanted, environment, there) in [
            (None, &[bus, display][..], true),
            (None, &[bus], false),
            (None, &[display], false),
            (None, &[bus, ("DISPLAY", "")], false),
            (Some(true), &[bus], true),
            (Some(true), &[display], false),
            (Some(false), &[bus, display], false),
        ] {
            assert_eq!(
                Bell::of(wanted, &set(environment)).is_some(),
                there,
                "{wanted:?} {environment:?}"
            );
        }
    }

    #[test]
    fn c048_a_notification_draws_nothing_but_its_text() {
        let (_, body) = told("codex wants to run <b>x</b> & <a href=\"x\">y</a>", 1, true);
        assert!(
            !body.contains(['<', '>']) && body.contains("&lt;b&gt;") && body.contains("&amp;"),
            "{body}"
        );
        assert!(told("a", 3, false).0.starts_with("3 questions"));
    }
}
