//! Questions at the terminal of a run whose agent has none: shown whole, answered with a typed word.
//!
//! Answers: which question may be shown here, and what is an answer to it?
//! Promises: P8 (while a question stands there, nothing that the agent writes gets to the terminal; what it wrote before is
//! undone as far as it drew; what was typed before the question is thrown away; a yes is a whole word).
//! Trust: the agent's output may share the terminal, so it waits. Where the person's input is what the agent reads, nothing is
//! asked here: a word could go either way.
//! Not here: longer questions, other offers (`approve`).

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bailiwick_gate::Clock as _;
use bailiwick_gate::desk::{Answer, Asked, Desk, DeskFault};
use bailiwick_model::{Answered, visible};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp, tcgetwinsize};

use super::approve::said;
use crate::columns::folded;
use crate::daemon::SteadyClock;
use crate::desk::person;

/// Most questions that wait to be shown here; `approve` has all.
const IN_LINE: usize = 64;

/// Most rows of a question that is shown here.
const MOST_ROWS: usize = 40;

/// Most characters of a question that is shown here.
const MOST: usize = 4000;

/// How long a question must have stood there before a word is an answer to it.
const LOOK: Duration = Duration::from_millis(400);

/// How often it is looked whether a question still waits.
const AGAIN: Duration = Duration::from_millis(500);

/// The longest line that is read.
const LONGEST: usize = 4096;

/// Ends whatever the agent may have begun to draw, and takes back how it draws: its strings (CAN, ST), its modes (DECSTR), its
/// letters and colours, its screen.
const PLAIN: &str = "\x18\x1b\\\x1b[!p\x1b[?1049l\x1b[0m\x1b(B\x0f\x1b[?7h\x1b[?25h\r\n";

/// Holds the agent's output back while a question stands at the terminal.
#[derive(Debug, Default)]
pub struct Hold {
    held: Mutex<bool>,
    let_go: Condvar,
}

impl Hold {
    fn set(&self, held: bool) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.let_go.notify_all();
    }

    fn wait(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held {
            held = self.let_go.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Lets go at its end, whatever that is.
struct Holding<'a>(&'a Hold);

impl<'a> Holding<'a> {
    fn begin(hold: &'a Hold) -> Self {
        hold.set(true);
        Self(hold)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A stream that is held back where it is a terminal.
pub struct Held<W> {
    to: W,
    hold: Option<Arc<Hold>>,
}

impl<W: Write + std::io::IsTerminal> Held<W> {
    /// Over a stream.
    pub fn over(to: W, hold: &Arc<Hold>) -> Self {
        let hold = to.is_terminal().then(|| Arc::clone(hold));
        Self { to, hold }
    }
}

impl<W: Write> Write for Held<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(hold) = &self.hold {
            hold.wait();
        }
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Shows questions at the terminal, one after the other, from a thread of its own.
pub struct Asker {
    line: SyncSender<Box<Asked>>,
}

impl Asker {
    /// Begins; none where no terminal is there to be asked at, or where what is typed there is the agent's.
    pub fn begin(desk: impl Desk + 'static, hold: Arc<Hold>) -> Option<Self> {
        if std::io::stdin().is_terminal() {
            return None;
        }
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let (line, questions) = sync_channel(IN_LINE);
        std::thread::spawn(move || Terminal { terminal, desk, hold }.ask_all(&questions));
        Some(Self { line })
    }

    /// Takes a question: false where too many wait already.
    pub fn ask(&self, asked: &Asked) -> bool {
        self.line.try_send(Box::new(asked.clone())).is_ok()
    }
}

struct Terminal<D> {
    terminal: File,
    desk: D,
    hold: Arc<Hold>,
}

/// What became of a question.
enum Came {
    /// An answer, which is to be given.
    Word(Answer),
    /// It waits no more.
    Ended,
    /// This is not in the foreground, or the terminal is gone.
    Away,
}

impl<D: Desk> Terminal<D> {
    fn ask_all(mut self, questions: &Receiver<Box<Asked>>) {
        while let Ok(asked) = questions.recv() {
            // It may have been answered while another stood here.
            let Some(asked) = self.find(&asked) else { continue };
            if !self.is_ours() {
                continue;
            }
            let hold = Arc::clone(&self.hold);
            let _held = Holding::begin(&hold);
            if self.ask(&asked).is_err() {
                return;
            }
        }
    }

    fn find(&self, asked: &Asked) -> Option<Asked> {
        let all = self.desk.asked().ok()?;
        all.into_iter().find(|one| one.id == asked.id)
    }

    /// True in the foreground: whoever reads from behind is stopped.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.terminal).is_ok_and(|front| front == rustix::process::getpgrp())
    }

    fn ask(&mut self, asked: &Asked) -> std::io::Result<()> {
        let columns = tcgetwinsize(&self.terminal).map_or(80, |size| usize::from(size.ws_col).clamp(40, 110));
        let Some(text) = shown(asked, columns) else {
            let line = format!(
                "bailiwick: a question that is too long for this place: `bailiwick approve` shows it whole (q-{})\n",
                asked.id
            );
            return self.terminal.write_all(format!("{PLAIN}{line}").as_bytes());
        };
        self.terminal.write_all(format!("{PLAIN}{text}").as_bytes())?;
        let told = match self.hear(asked)? {
            Came::Word(answer) => {
                let answered = self.desk.answer(asked.id, &answer, &person());
                told(&answer, asked, answered)
            }
            Came::Ended => "\nbailiwick: that question waits no more: it was answered elsewhere, or ended\n".to_owned(),
            Came::Away => return Ok(()),
        };
        self.terminal.write_all(told.as_bytes())
    }

    /// Hears a word that is an answer.
    fn hear(&mut self, asked: &Asked) -> std::io::Result<Came> {
        self.terminal.write_all(b"> ")?;
        self.terminal.flush()?;
        // Nothing that was typed before is an answer, nor the beginning of one.
        let _ = tcflush(&self.terminal, QueueSelector::IFlush);
        let begun = Instant::now();
        let mut looked = Instant::now();
        let mut line = Vec::new();
        loop {
            if !self.is_ours() {
                return Ok(Came::Away);
            }
            if looked.elapsed() > AGAIN {
                looked = Instant::now();
                if self.find(asked).is_none() {
                    return Ok(Came::Ended);
                }
            }
            let beat = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let ready = poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&beat));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let mut buffer = [0; 512];
            let got = self.terminal.read(&mut buffer)?;
            if got == 0 {
                // The end of a file, typed: no answer.
                self.terminal.write_all(b"\n> ")?;
                continue;
            }
            line.extend_from_slice(buffer.get(..got).unwrap_or_default());
            if line.last() != Some(&b'\n') && line.len() < LONGEST {
                continue;
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if begun.elapsed() < LOOK {
                self.say("that came before the question could be read")?;
                continue;
            }
            match read(&text, asked) {
                Some(answer) => return Ok(Came::Word(answer)),
                None => self.say("type `yes`, `no`, `no: WORD` or `more: WHAT`")?,
            }
        }
    }

    fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.terminal.write_all(format!("bailiwick: {text}\n> ").as_bytes())
    }
}

/// What a typed line says.
fn read(text: &str, asked: &Asked) -> Option<Answer> {
    let said = |word: &str| {
        let (head, rest) = text.split_at_checked(word.len())?;
        let rest = rest.trim();
        (head.eq_ignore_ascii_case(word) && !rest.is_empty()).then(|| visible(rest))
    };
    if text.eq_ignore_ascii_case("yes") {
        return Answer::once(asked);
    }
    if text.eq_ignore_ascii_case("no") {
        return Some(Answer::No { word: None });
    }
    if let Some(word) = said("no:") {
        return Some(Answer::No { word: Some(word) });
    }
    said("more:").map(|word| Answer::More { word })
}

/// The question as it stands there, whole; none for one that is too long for that, or that cannot be answered here.
fn shown(asked: &Asked, columns: usize) -> Option<String> {
    let says = Answer::once(asked).and_then(|answer| said(asked, &answer))?;
    let mut rows = Vec::new();
    let mut put = |indent: usize, text: &str| {
        let room = columns.saturating_sub(indent);
        for row in broken(&bailiwick_tui::safe(text), room) {
            rows.push(format!("{}{row}", " ".repeat(indent)));
        }
    };
    put(0, &format!("bailiwick: {}?", asked.sentence));
    for why in &asked.because {
        put(2, &format!("because {why}"));
    }
    for detail in &asked.details {
        for (place, line) in detail.lines.iter().enumerate() {
            let name = if place == 0 { detail.name.as_str() } else { "" };
            put(2, &format!("{name:<12} {line}"));
        }
        if let Some(mind) = &detail.mind {
            put(2, &format!("! {mind}"));
        }
    }
    if !asked.seconded.is_empty() {
        put(
            2,
            &format!("yes from {}; one person more has to say it", asked.seconded.join(", ")),
        );
    }
    put(2, &format!("yes says: the agent {says}"));
    for exchange in &asked.words {
        if let Some(answered) = &exchange.answered {
            put(
                2,
                &format!("the agent's own words, which nobody has checked: {answered}"),
            );
        }
    }
    let left = asked.deadline.0.saturating_sub(SteadyClock::default().now().0);
    put(
        2,
        &format!("silence is a no in {} (q-{})", bailiwick_tui::span(left), asked.id),
    );
    put(
        2,
        "type `yes`, `no`, `no: WORD` or `more: WHAT`, and Enter; `bailiwick approve` in another terminal offers wider answers",
    );
    let characters: usize = rows.iter().map(|row| row.chars().count()).sum();
    (rows.len() <= MOST_ROWS && characters <= MOST).then(|| rows.join("\n") + "\n")
}

/// Rows of a text: at its blanks where that will do, else at the edge.
fn broken(text: &str, room: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for row in folded(text, room) {
        let mut row: Vec<char> = row.chars().collect();
        while row.len() > room {
            let rest = row.split_off(room);
            rows.push(row.iter().collect());
            row = rest;
        }
        rows.push(row.iter().collect());
    }
    rows
}

fn told(answer: &Answer, asked: &Asked, answered: Result<bailiwick_gate::desk::Closed, DeskFault>) -> String {
    let text = match answered {
        Err(fault) => format!("your answer was not taken: {fault}"),
        Ok(closed) => match (&closed.answer, said(asked, answer)) {
            (None, _) => "noted: a second person has to say yes too".to_owned(),
            (Some(Answered::Yes), Some(says)) => format!("yes: the agent {says}"),
            (Some(Answered::More), _) => "the agent is asked, and has to try again with its answer".to_owned(),
            _ => "no".to_owned(),
        },
    };
    format!("bailiwick: {}\n", bailiwick_tui::safe(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c047_a_word_is_an_answer_and_a_letter_is_none() {
        let asked: Asked = serde_json::from_value(serde_json::json!({
            "id": "010203040506", "task": "0102030405060708", "running": true, "context": "/home/dana/site",
            "command": ["codex"], "principal": "dana",
            "request": { "task": "0102030405060708", "verb": "resolve", "resource": { "name": "example.test" } },
            "digest": "00".repeat(32), "act": "resolve example.test",
            "sentence": "codex wants to look up the name example.test",
            "details": [{ "name": "host", "lines": ["example.test"] }],
            "because": ["a rule"], "words": [], "likes": { "asked": 0, "yes": 0, "no": 0 }, "seconded": [],
            "since": 0, "deadline": 1, "kind": "resolve example.test",
            "offers": [{ "acts": [], "says": "may look up the name example.test" }],
        }))
        .unwrap();
        assert_eq!(read("yes", &asked), Answer::once(&asked));
        assert_eq!(read("YES", &asked), Answer::once(&asked));
        for none in ["", "y", "ye", "yes!", "yes yes", "n", "no:", "more", "more:", "nö:x"] {
            assert_eq!(read(none, &asked), None, "{none}");
        }
        let no = |word: Option<&str>| Answer::No {
            word: word.map(str::to_owned),
        };
        assert_eq!(read("no", &asked), Some(no(None)));
        assert_eq!(read("No: use the other", &asked), Some(no(Some("use the other"))));
        let more = Answer::More {
            word: "which host?\\u{1b}".into(),
        };
        assert_eq!(read("more: which host?\u{1b}", &asked), Some(more));
        let text = shown(&asked, 80).unwrap();
        assert!(text.contains("yes says: the agent may look up the name example.test, once, in this task"));
        let mut long = asked;
        long.details[0].lines = vec!["x".repeat(MOST)];
        assert_eq!(shown(&long, 80), None);
        long.details[0].lines = vec![String::new(); MOST_ROWS];
        assert_eq!(shown(&long, 80), None);
    }

    #[test]
    fn c048_what_the_agent_writes_waits_while_a_question_stands_there() {
        let hold = Arc::new(Hold::default());
        hold.set(true);
        let (say, said) = std::sync::mpsc::channel();
        let waiting = Arc::clone(&hold);
        let writer = std::thread::spawn(move || {
            let mut held = Held {
                to: std::io::sink(),
                hold: Some(waiting),
            };
            let _ = held.write_all(b"\x1b[2J");
            let _ = say.send(());
        });
        assert!(said.recv_timeout(Duration::from_millis(200)).is_err());
        hold.set(false);
        assert!(said.recv_timeout(Duration::from_secs(10)).is_ok());
        let _ = writer.join();
    }
}
