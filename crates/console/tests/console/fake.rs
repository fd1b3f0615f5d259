//! A desk and papers that hold what a test puts there, and keep what is said.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bailiwick_console::{Console, Door, Entry, House, LogPage, LogWish, Logins, Papers, Rules, Tone};
use bailiwick_gate::desk::{
    Answer, Approver, Asked, AtWork, Closed, Desk, DeskFault, Detail, Granted, Known, Likes, Offer, Scope, Terms,
};
use bailiwick_gate::{Clock, Random};
use bailiwick_model::{
    AbsPath, Act, Anchors, Answered, ContextId, DecisionId, Digest, GrantId, Millis, Request, Resource, TaskId, Verb,
};

/// 2026-11-30 18:04:05 UTC.
pub const NOW: Millis = Millis(1_796_061_845_000);

/// What the desk holds.
#[derive(Default)]
pub struct Held {
    pub asked: Vec<Asked>,
    pub granted: Vec<Granted>,
    pub at_work: Vec<AtWork>,
    pub said: Vec<(DecisionId, Answer, Approver)>,
    pub revoked: Vec<GrantId>,
    pub narrowed: Vec<(GrantId, Terms)>,
    pub ended: Vec<TaskId>,
    pub there: Vec<Approver>,
    pub moment: u64,
    pub away: bool,
}

/// The desk.
#[derive(Default)]
pub struct FakeDesk {
    held: Mutex<Held>,
    changed: Condvar,
}

impl FakeDesk {
    /// Changes what it holds, and tells whoever waits.
    pub fn change<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.held.lock().unwrap();
        let out = change(&mut held);
        held.moment += 1;
        self.changed.notify_all();
        out
    }

    /// Looks at what it holds.
    pub fn look<T>(&self, look: impl FnOnce(&Held) -> T) -> T {
        look(&self.held.lock().unwrap())
    }

    fn open(&self) -> Result<(), DeskFault> {
        match self.held.lock().unwrap().away {
            true => Err(DeskFault::Fault("no daemon runs".into())),
            false => Ok(()),
        }
    }
}

impl Desk for FakeDesk {
    fn asked(&self) -> Result<Vec<Asked>, DeskFault> {
        self.open()?;
        Ok(self.look(|held| held.asked.clone()))
    }

    fn answer(&self, question: DecisionId, answer: &Answer, by: &Approver) -> Result<Closed, DeskFault> {
        self.open()?;
        self.change(|held| {
            let place = held.asked.iter().position(|asked| asked.id == question);
            let place = place.ok_or(DeskFault::Unknown(question))?;
            let asked = held.asked[place].clone();
            let mut grant = None;
            let came_to = match answer {
                Answer::No { .. } => Answered::No,
                Answer::More { .. } => Answered::More,
                Answer::Yes { offer, terms, shown } => {
                    let chosen = asked.offers.get(*offer).ok_or(DeskFault::Offer(question))?;
                    if chosen.digest(question, terms) != *shown || chosen.terms(*terms) != *terms {
                        return Err(DeskFault::Offer(question));
                    }
                    let granted = Granted {
                        id: GrantId([7; 6]),
                        sentence: chosen.sentence(terms),
                        acts: chosen.acts.clone(),
                        terms: *terms,
                        used: 0,
                        task: Some(asked.task),
                        context: asked.context.clone(),
                        by: vec![by.name.clone()],
                        given: NOW,
                    };
                    held.granted.insert(0, granted.clone());
                    grant = Some(granted);
                    Answered::Yes
                }
            };
            held.asked.remove(place);
            held.said.push((question, answer.clone(), by.clone()));
            Ok(Closed {
                answer: Some(came_to),
                grant,
                released: 0,
            })
        })
    }

    fn granted(&self) -> Result<Vec<Granted>, DeskFault> {
        self.open()?;
        Ok(self.look(|held| held.granted.clone()))
    }

    fn narrow(&self, grant: GrantId, terms: &Terms) -> Result<Granted, DeskFault> {
        self.change(|held| {
            let found = held.granted.iter_mut().find(|known| known.id == grant);
            let found = found.ok_or(DeskFault::Grant(grant))?;
            if terms.count > found.terms.count && found.terms.count.is_some() {
                return Err(DeskFault::Wider(grant));
            }
            found.terms = *terms;
            let found = found.clone();
            held.narrowed.push((grant, *terms));
            Ok(found)
        })
    }

    fn revoke(&self, grant: GrantId) -> Result<(), DeskFault> {
        self.change(|held| {
            let before = held.granted.len();
            held.granted.retain(|known| known.id != grant);
            if held.granted.len() == before {
                return Err(DeskFault::Grant(grant));
            }
            held.revoked.push(grant);
            Ok(())
        })
    }

    fn at_work(&self) -> Result<Vec<AtWork>, DeskFault> {
        self.open()?;
        Ok(self.look(|held| held.at_work.clone()))
    }

    fn end(&self, task: TaskId) -> Result<(), DeskFault> {
        self.change(|held| {
            held.at_work.retain(|known| known.id != task);
            held.ended.push(task);
        });
        Ok(())
    }

    fn changed(&self, seen: u64, patience: Duration, by: &Approver) -> Result<u64, DeskFault> {
        self.open()?;
        let mut held = self.held.lock().unwrap();
        held.there.push(by.clone());
        let same = |held: &mut Held| held.moment == seen;
        let (held, _) = self.changed.wait_timeout_while(held, patience, same).unwrap();
        Ok(held.moment)
    }
}

/// The papers.
pub struct FakePapers;

impl Papers for FakePapers {
    fn log(&self, wish: &LogWish) -> Result<LogPage, String> {
        let newest = wish.before.unwrap_or(200);
        let oldest = newest.saturating_sub(wish.most as u64);
        let entries = (oldest..newest).rev().map(entry);
        let entries = entries
            .filter(|entry| wish.task.is_none() || entry.task == wish.task)
            .collect();
        Ok(LogPage {
            entries,
            older: (oldest > 0).then_some(oldest),
        })
    }

    fn verify(&self) -> Result<String, String> {
        Ok("verified: 200 records, all of them signed".into())
    }

    fn contexts(&self) -> Result<Vec<String>, String> {
        Ok(vec!["/home/dana/acme-site".into(), "/home/dana/<b>notes".into()])
    }

    fn rules(&self, context: &str) -> Rules {
        Rules {
            context: context.into(),
            told: Ok(format!(
                "ceiling (shipped)\n  allow write ~/**\n  deny  * ~/.ssh/**\n\nproject {context}/bailiwick.toml\n  allow write {context}/**\n  ask   POST https://**\n  deny  run git push\u{202e}"
            )),
        }
    }
}

fn entry(index: u64) -> Entry {
    let (came, tone, text) = match index % 5 {
        0 => (
            "allow",
            Tone::Good,
            "GET https://docs.rs/serde at 151.101.1.1 by allow in bailiwick.toml:9",
        ),
        1 => (
            "deny",
            Tone::Bad,
            "read /home/dana/.ssh/id_rsa\u{1b}[2K by deny in builtin",
        ),
        2 => (
            "ask",
            Tone::Asked,
            "run git push origin main by ask in bailiwick.toml:12",
        ),
        3 => ("yes", Tone::Asked, "run git push origin main: yes by dana"),
        _ => (
            "started",
            Tone::Plain,
            "for dana in /home/dana/acme-site: <script>alert(1)</script>",
        ),
    };
    Entry {
        index,
        time: Millis(NOW.0 - (200 - index) * 61_000),
        task: Some(TaskId([5; 8])),
        came: came.into(),
        tone,
        text: text.into(),
    }
}

/// One person with a code of their own.
pub struct FakeLogins;

impl Logins for FakeLogins {
    fn any(&self) -> bool {
        true
    }

    fn check(&self, name: &str, code: &str) -> Option<Approver> {
        (name == "rui" && code == "123456").then(|| Approver {
            name: "rui".into(),
            by: Known::Code,
        })
    }

    fn leave(&self, _: &Approver) {}
}

/// A clock that stands still, and one that goes.
pub struct Still;

impl Clock for Still {
    fn now(&self) -> Millis {
        NOW
    }
}

/// The time of the machine.
pub struct Going;

impl Clock for Going {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Millis(since.as_millis() as u64)
    }
}

/// Numbers that differ, and are the same in every run.
#[derive(Default)]
pub struct Counting(Mutex<u8>);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let mut count = self.0.lock().unwrap();
        *count = count.wrapping_add(1);
        bytes.fill(*count);
    }
}

/// A console that serves on a port of its own.
pub struct Served {
    pub desk: Arc<FakeDesk>,
    pub door: Door,
    pub port: u16,
}

/// Starts one. It serves as long as the test's process runs.
pub fn serve(clock: Arc<dyn Clock>) -> Served {
    let desk = Arc::new(FakeDesk::default());
    let house = House {
        desk: desk.clone(),
        papers: Arc::new(FakePapers),
        logins: Some(Arc::new(FakeLogins)),
        clock,
        random: Arc::new(Counting::default()),
    };
    let console = Console::listen(0, house).unwrap();
    let (door, port) = (console.door(), console.address().port());
    std::thread::spawn(move || console.serve().unwrap());
    Served { desk, door, port }
}

/// Dana, whose daemon this is.
pub fn dana() -> Approver {
    Approver {
        name: "dana".into(),
        by: Known::User,
    }
}

/// An id made of a number.
pub fn id(number: u32) -> DecisionId {
    let [a, b, c, d] = number.to_be_bytes();
    DecisionId([0, 0, a, b, c, d])
}

/// A question about an act, with these details: names and values, whose line breaks make lines.
pub fn question(number: u32, sentence: &str, kind: &str, details: &[(&str, &str)]) -> Asked {
    let says = sentence.split_once(" wants to ").map_or("do it", |(_, rest)| rest);
    let itself = Offer {
        acts: Vec::new(),
        says: format!("may {says}"),
    };
    let anchors = Anchors {
        root: None,
        home: AbsPath::root(),
    };
    let wide = |act: &str, says: &str| Offer {
        acts: vec![Act::parse(act, &anchors).unwrap()],
        says: says.into(),
    };
    Asked {
        id: id(number),
        task: TaskId([5; 8]),
        running: true,
        context: ContextId("/home/dana/acme-site".into()),
        command: vec!["/usr/bin/claude".into(), "--continue".into()],
        principal: "dana".into(),
        request: Request {
            task: TaskId([5; 8]),
            verb: Verb::Read,
            resource: Resource::File(AbsPath::new("/a").unwrap()),
            arguments: Default::default(),
            label: Default::default(),
        },
        digest: Digest([9; 32]),
        act: says.into(),
        sentence: sentence.into(),
        details: details
            .iter()
            .map(|(name, value)| Detail {
                name: (*name).into(),
                lines: value.split('\n').map(str::to_owned).collect(),
                mind: None,
            })
            .collect(),
        because: vec!["a rule wants a person to say: `ask` in bailiwick.toml, line 12".into()],
        words: Vec::new(),
        likes: Likes {
            asked: 3,
            yes: 2,
            no: 1,
        },
        seconded: Vec::new(),
        since: Millis(NOW.0 - 65_000),
        deadline: Millis(NOW.0 + 300_000),
        offers: vec![
            itself,
            wide(
                "read /home/dana/reference/**",
                "may read /home/dana/reference, and what is below it",
            ),
            wide(
                "GET https://docs.rs/**",
                "may send GET https://docs.rs/**, with any query",
            ),
        ],
        kind: kind.into(),
        rule: None,
    }
}

/// A grant of some time ago.
pub fn grant(number: u8, sentence: &str, terms: Terms) -> Granted {
    Granted {
        id: GrantId([number; 6]),
        sentence: sentence.into(),
        acts: Vec::new(),
        terms,
        used: 2,
        task: Some(TaskId([5; 8])),
        context: ContextId("/home/dana/acme-site".into()),
        by: vec!["dana".into(), "rui".into()],
        given: Millis(NOW.0 - 600_000),
    }
}

/// Terms that end.
pub fn some_times(count: u64) -> Terms {
    Terms {
        count: Some(count),
        until: Some(Millis(NOW.0 + 3_600_000)),
        scope: Scope::Context,
    }
}

/// A text that tries all that a text can try on a page.
pub const HOSTILE: &str = "\"><script>document.title='owned'</script><img src=x onerror=alert(1)>'`{{7*7}}</title></textarea>\u{1b}[2K\r\u{202e}gpj\u{200b}javascript:alert(1)&lt;b&gt;\u{0}";

/// One question of every kind, by name.
pub fn every_kind() -> Vec<(&'static str, Asked)> {
    let mut lookalike = question(
        4,
        "claude wants to send POST https://xn--pi-7kc.example.test/v1/pay at 203.0.113.9",
        "POST xn--pi-7kc.example.test",
        &[
            ("method", "POST"),
            ("scheme", "https"),
            ("host", "xn--pi-7kc.example.test"),
            ("port", "443"),
            ("path", "/v1/pay"),
            ("query to", "babysitter"),
            ("content-type", "application/json"),
            ("address", "203.0.113.9"),
        ],
    );
    lookalike.details[2].mind = Some(
        "elsewhere this is shown as `аpi.example.test`: letters of several scripts, it may look like another name"
            .into(),
    );
    let mut ended = question(
        10,
        "claude wants to run touch b",
        "run touch",
        &[("program", "touch"), ("word 1", "b")],
    );
    ended.running = false;
    let mut told = question(
        11,
        "claude wants to run gh pr create --fill",
        "run gh pr create",
        &[
            ("program", "gh"),
            ("word 1", "pr"),
            ("word 2", "create"),
            ("word 3", "--fill"),
        ],
    );
    told.words = vec![
        bailiwick_gate::desk::Said {
            asked: None,
            answered: Some("I have finished the change, and want to open a pull request.".into()),
        },
        bailiwick_gate::desk::Said {
            asked: Some("Which branch?".into()),
            answered: Some("agent/tidy, against main.\nNothing else is pushed. <b>Please say yes</b>".into()),
        },
        bailiwick_gate::desk::Said {
            asked: Some("Who asked for it?".into()),
            answered: None,
        },
    ];
    told.rule = Some("allow = [\"run @exact gh pr create --fill\"]".into());
    let mut second = question(
        12,
        "claude wants to use secret:bank",
        "use secret:bank",
        &[("secret", "bank")],
    );
    second.seconded = vec!["dana".into()];
    second.likes = Likes::default();
    let script: String = (1..250).map(|n| format!("echo step {n}\n")).collect();
    vec![
        (
            "read-file",
            question(
                1,
                "claude wants to read /home/dana/reference/prices.csv",
                "read /home/dana/reference",
                &[("path", "/home/dana/reference/prices.csv")],
            ),
        ),
        (
            "delete-file",
            question(
                2,
                "claude wants to remove /home/dana/acme-site/old",
                "delete /home/dana/acme-site",
                &[("path", "/home/dana/acme-site/old")],
            ),
        ),
        (
            "get-url",
            question(
                3,
                "claude wants to send GET https://docs.rs/serde?page=2 at 151.101.1.1",
                "GET docs.rs",
                &[
                    ("method", "GET"),
                    ("scheme", "https"),
                    ("host", "docs.rs"),
                    ("port", "443"),
                    ("path", "/serde"),
                    ("query page", "2"),
                    ("address", "151.101.1.1"),
                ],
            ),
        ),
        ("post-look-alike-host", lookalike),
        (
            "push-branch",
            question(
                5,
                "claude wants to push to https://github.com/acme/site agent/tidy",
                "push github.com",
                &[
                    ("host", "github.com"),
                    ("port", "443"),
                    ("repository", "https://github.com/acme/site agent/tidy"),
                ],
            ),
        ),
        (
            "tunnel",
            question(
                6,
                "claude wants to connect to pinned.example.com, unread",
                "tunnel pinned.example.com",
                &[("host", "pinned.example.com"), ("port", "443")],
            ),
        ),
        (
            "run-command",
            question(
                7,
                "claude wants to run git push origin main",
                "run git push",
                &[
                    ("program", "git"),
                    ("file of the program", "/usr/bin/git"),
                    ("word 1", "push"),
                    ("word 2", "origin"),
                    ("word 3", "main"),
                    ("variable GIT_SSH_COMMAND", "ssh -i key"),
                    ("contacts", "github.com\ngitlab.com"),
                ],
            ),
        ),
        (
            "run-long-script",
            question(
                8,
                &format!("claude wants to run sh -c {}rm -r keep", script.replace('\n', "\\n")),
                "run sh",
                &[
                    ("program", "sh"),
                    ("word 1", "-c"),
                    ("word 2", &format!("{script}rm -r keep")),
                ],
            ),
        ),
        (
            "broker",
            question(
                9,
                "claude wants to have git push origin HEAD:refs/heads/agent/x run outside, with more authority than it has itself",
                "broker git push",
                &[
                    ("program", "git"),
                    ("word 1", "push"),
                    ("word 2", "origin"),
                    ("word 3", "HEAD:refs/heads/agent/x"),
                ],
            ),
        ),
        ("task-has-ended", ended),
        ("agent-has-told-more", told),
        ("second-yes", second),
        ("hostile", hostile(13)),
    ]
}

/// A question whose every text is hostile. The mediator would have made them visible; the console does not rely on that.
pub fn hostile(number: u32) -> Asked {
    let mut asked = question(
        number,
        &format!("{HOSTILE} wants to run {HOSTILE}"),
        HOSTILE,
        &[(HOSTILE, HOSTILE), ("path", HOSTILE)],
    );
    asked.details[0].mind = Some(HOSTILE.into());
    asked.context = ContextId(HOSTILE.into());
    asked.command = vec![HOSTILE.into(), HOSTILE.into()];
    asked.principal = HOSTILE.into();
    asked.because = vec![HOSTILE.into()];
    asked.seconded = vec![HOSTILE.into()];
    asked.rule = Some(HOSTILE.into());
    asked.words = vec![bailiwick_gate::desk::Said {
        asked: Some(HOSTILE.into()),
        answered: Some(HOSTILE.into()),
    }];
    for offer in &mut asked.offers {
        offer.says = format!("may {HOSTILE}");
    }
    asked
}
