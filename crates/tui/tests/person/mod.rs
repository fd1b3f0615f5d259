//! A person at a screen without a terminal: questions as the mediator makes them, keys at times, the screen as text.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::sync::Arc;

use bailiwick_gate::desk::{Approver, Asked, AtWork, Detail, Granted, Known, Likes, Offer, Said, Scope, Terms};
use bailiwick_model::{
    AbsPath, Act, Anchors, ContextId, DecisionId, Digest, GrantId, Host, Millis, Request, Resource, TaskId, Verb,
    visible,
};
use bailiwick_tui::{Code, Effect, Key, Snapshot, State, draw, key};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// 2026-11-30 18:04:05 UTC.
pub const NOW: Millis = Millis(1_796_061_845_000);

/// A piece of a request, as the mediator makes it.
pub fn piece(name: &str, value: &str) -> Detail {
    Detail {
        name: name.into(),
        lines: value.split('\n').map(visible).collect(),
        mind: None,
    }
}

/// A question about something.
pub fn asked(number: u8, verb: Verb, act: &str, sentence: &str, details: Vec<Detail>) -> Asked {
    let task = TaskId([7; 8]);
    let context = "/home/dana/acme-site";
    Asked {
        id: DecisionId([number, 0, 0, 0, 0, number]),
        task,
        running: true,
        context: ContextId(context.into()),
        command: vec!["codex".into(), "exec".into(), "fix the build".into()],
        principal: "dana".into(),
        request: Request {
            task,
            verb,
            resource: Resource::Name(Host::parse("example.test").unwrap()),
            arguments: Default::default(),
            label: Default::default(),
        },
        digest: Digest([number; 32]),
        act: visible(act),
        sentence: visible(sentence),
        details,
        because: vec!["`ask = [\"run git push\"]` in bailiwick.toml:7 wants a person to say".into()],
        words: Vec::new(),
        likes: Likes {
            asked: 4,
            yes: 3,
            no: 1,
        },
        seconded: Vec::new(),
        since: Millis(NOW.0 - 12_000),
        deadline: Millis(NOW.0 + 252_000),
        offers: vec![offer(None, &format!("may {}", visible(act)))],
        kind: format!("run {}", act.split(' ').nth(1).unwrap_or_default()),
        rule: None,
    }
}

/// An offer: of the request, or of an act.
pub fn offer(act: Option<&str>, says: &str) -> Offer {
    let nowhere = Anchors {
        root: None,
        home: AbsPath::root(),
    };
    Offer {
        acts: act.iter().map(|act| Act::parse(act, &nowhere).unwrap()).collect(),
        says: says.into(),
    }
}

/// A command with its words.
pub fn command(number: u8, words: &[&str]) -> Asked {
    let act = format!("run {}", words.join(" "));
    let mut details = vec![piece("program", words[0])];
    let rest = words.iter().enumerate().skip(1);
    details.extend(rest.map(|(place, word)| piece(&format!("word {place}"), word)));
    asked(number, Verb::Run, &act, &format!("codex wants to {act}"), details)
}

/// `git push origin agent/x`, with wider offers.
pub fn git_push() -> Asked {
    let mut asked = command(1, &["git", "push", "origin", "agent/x"]);
    asked.kind = "run git push".into();
    asked.offers.extend([
        offer(
            Some("run @exact git push origin agent/x"),
            "may run git push origin agent/x, in just these words",
        ),
        offer(
            Some("run git push origin **"),
            "may run git push origin, with any further words",
        ),
        offer(Some("run git push **"), "may run git push, with any further words"),
    ]);
    asked.words = vec![Said {
        asked: Some("which branch is that?".into()),
        answered: Some("The branch of this task. y says: the agent may do anything.".into()),
    }];
    asked.rule = Some("allow = [\"run @exact git push origin agent/x\"]".into());
    asked
}

/// A grant.
pub fn grant(number: u8, says: &str, terms: Terms) -> Granted {
    Granted {
        id: GrantId([number, 0, 0, 0, 0, number]),
        sentence: format!("{says}{terms}"),
        acts: Vec::new(),
        terms,
        used: 1,
        task: Some(TaskId([7; 8])),
        context: ContextId("/home/dana/acme-site".into()),
        by: vec!["dana".into()],
        given: Millis(NOW.0 - 600_000),
    }
}

/// Terms that are limited in every way.
pub fn terms() -> Terms {
    Terms {
        count: Some(10),
        until: Some(Millis(NOW.0 + 3_355_000)),
        scope: Scope::Context,
    }
}

/// A task.
pub fn task(number: u8) -> AtWork {
    AtWork {
        id: TaskId([number; 8]),
        context: "/home/dana/acme-site".into(),
        command: vec!["codex".into(), "exec".into(), "fix the build".into()],
        started: Millis(NOW.0 - 600_000),
    }
}

/// A person at a screen.
pub struct Person {
    /// The state.
    pub state: State,
    terminal: Terminal<TestBackend>,
    /// What time it is for them, in milliseconds.
    pub at: u64,
}

impl Person {
    /// At a screen of that size.
    pub fn at(columns: u16, rows: u16) -> Self {
        let by = Approver {
            name: "dana".into(),
            by: Known::User,
        };
        let zone = TimeZone::get("Europe/Zurich").unwrap();
        let mut person = Self {
            state: State::new(by, zone, NOW, true),
            terminal: Terminal::new(TestBackend::new(columns, rows)).unwrap(),
            at: 10_000,
        };
        person.look();
        person
    }

    /// Something has changed at the desk.
    pub fn hears(&mut self, asked: Vec<Asked>) -> &mut Self {
        let snapshot = Snapshot {
            asked: asked.into_iter().map(Arc::new).collect(),
            ..Snapshot::default()
        };
        self.state.renew(Ok(snapshot));
        self.look();
        self
    }

    /// The screen is drawn.
    pub fn look(&mut self) {
        let size = self.terminal.size().unwrap();
        self.state.tick(Millis(NOW.0 + self.at - 10_000), self.at);
        self.state.resize(size.width, size.height);
        self.terminal.draw(|frame| draw(frame, &self.state)).unwrap();
        self.state.drawn();
    }

    /// Time goes by.
    pub fn waits(&mut self, millis: u64) -> &mut Self {
        self.at += millis;
        self.look();
        self
    }

    /// Presses a key, after a while.
    pub fn presses(&mut self, code: Code) -> Vec<Effect> {
        self.waits(1500);
        self.presses_at_once(code)
    }

    /// Presses a key, with no time gone by since what came before.
    pub fn presses_at_once(&mut self, code: Code) -> Vec<Effect> {
        let key_ = Key {
            code,
            at: self.at,
            held: false,
        };
        let effects = key(&mut self.state, key_);
        self.look();
        effects
    }

    /// Types a text.
    pub fn types(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            self.presses(Code::Char(character));
        }
        self
    }

    /// The window gets another size.
    pub fn resizes(&mut self, columns: u16, rows: u16) -> &mut Self {
        self.terminal.backend_mut().resize(columns, rows);
        self.look();
        self
    }

    /// What is on the screen, as running text.
    pub fn reads(&self) -> String {
        self.sees().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// What is on the screen.
    pub fn sees(&self) -> String {
        let buffer = self.terminal.backend().buffer();
        let wide = usize::from(buffer.area.width);
        let mut out = String::new();
        for row in buffer.content.chunks(wide) {
            let mut line = String::new();
            let mut skip = 0;
            for cell in row {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                line.push_str(cell.symbol());
                skip = unicode_width::UnicodeWidthStr::width(cell.symbol()).saturating_sub(1);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}
