//! Who is logged in: links that are used once, sessions with two ends, and what wrong tries cost.
//!
//! Promises: P8 (nobody answers who did not come by a link of the person's or by a code of their own). Trust: tokens and cookies come from whoever connects. A session
//! is known by two secrets: its path, and a cookie that the browser sends below that path only; cookies know no ports, so that
//! one without such a path would go to every server on this machine's loopback, the agent's among them.
//! Not here: reading them from requests (`wall`).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bailiwick_gate::Random;
use bailiwick_gate::desk::Approver;
use bailiwick_model::DecisionId;
use sha2::{Digest as _, Sha256};

use crate::reading::Reading;

/// How long a link can be used.
pub const LINK_LIFE: Duration = Duration::from_secs(120);

/// A session ends so long after the last page that a person asked for.
pub const IDLE: Duration = Duration::from_secs(2 * 3600);

/// A session ends so long after it began.
pub const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// Most links that can be used at a time; the oldest gives way.
const MAX_LINKS: usize = 8;

/// Most sessions; the one that was used longest ago gives way.
const MAX_SESSIONS: usize = 32;

/// Most questions of which a session keeps how far they were read; the oldest gives way.
const MAX_READINGS: usize = 256;

/// Most words that wait to be shown.
const MAX_TOLD: usize = 16;

/// Most live streams of one session: a browser keeps six connections to one server.
const MAX_STREAMS: usize = 4;

/// Wrong tokens in a row that are answered at once, and how long one takes to be forgotten.
const WRONG: (u32, Duration) = (20, Duration::from_secs(3));

/// Wrong codes of one name, likewise.
const WRONG_CODES: (u32, Duration) = (5, Duration::from_secs(60));

/// Most names of which wrong codes are counted.
const MAX_NAMES: usize = 64;

type Hash = [u8; 32];

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// A secret of that many random bytes, as text.
pub fn secret(random: &dyn Random, bytes: usize) -> String {
    let mut raw = vec![0u8; bytes];
    random.fill(&mut raw);
    hex::encode(raw)
}

/// Counts wrong tries and lets them be forgotten, one after the other.
#[derive(Debug, Default)]
struct Wrong {
    count: u32,
    since: Option<Instant>,
}

impl Wrong {
    /// True when no more are to be heard now.
    fn is_full(&mut self, (most, each): (u32, Duration), now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let forgotten = now.saturating_duration_since(since).as_secs() / each.as_secs().max(1);
        if forgotten > 0 {
            self.count = self.count.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
            self.since = Some(now);
        }
        self.count >= most
    }

    fn add(&mut self) {
        self.count = self.count.saturating_add(1);
    }
}

/// Why nobody was logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEntry {
    /// The token is not that of a link that can be used.
    Unknown,
    /// There have been too many wrong ones.
    TooMany,
}

/// One who is logged in.
#[derive(Debug)]
pub struct Session {
    cookie: Hash,
    /// Who.
    pub approver: Approver,
    /// What every form carries.
    pub form: String,
    began: Instant,
    used: Instant,
    streams: usize,
    readings: BTreeMap<DecisionId, (u64, Reading)>,
    told: VecDeque<(u64, Told)>,
    next: u64,
}

/// Words for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// True where something was not done.
    pub wrong: bool,
    /// What there is to say.
    pub words: String,
}

/// What a browser needs to come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The part of the path that is known to this session alone.
    pub path: String,
    /// The cookie's value.
    pub cookie: String,
}

/// All that are logged in.
#[derive(Debug, Default)]
pub struct Sessions {
    links: VecDeque<(Hash, Approver, Instant)>,
    open: BTreeMap<Hash, Session>,
    wrong: Wrong,
    codes: BTreeMap<String, Wrong>,
}

impl Sessions {
    /// Makes a link's token, for one login of that person.
    pub fn link(&mut self, approver: Approver, random: &dyn Random, now: Instant) -> String {
        let token = secret(random, 32);
        while self.links.len() >= MAX_LINKS {
            self.links.pop_front();
        }
        self.links.push_back((hash(&token), approver, now));
        token
    }

    /// Logs in by a link's token, which is used up by it. A wrong one uses nothing up.
    pub fn enter(&mut self, token: &str, random: &dyn Random, now: Instant) -> Result<Pass, NoEntry> {
        self.links
            .retain(|(_, _, made)| now.saturating_duration_since(*made) < LINK_LIFE);
        let wanted = hash(token);
        let place = self.links.iter().position(|(token, _, _)| *token == wanted);
        match place.and_then(|place| self.links.remove(place)) {
            Some((_, approver, _)) => Ok(self.begin(approver, random, now)),
            // A right token is heard whatever was tried before: so nobody is kept out by others' tries.
            None if self.wrong.is_full(WRONG, now) => Err(NoEntry::TooMany),
            None => {
                self.wrong.add();
                Err(NoEntry::Unknown)
            }
        }
    }

    /// True when a code of this name may be tried now; it counts as wrong until [`Self::right_code`] says otherwise.
    pub fn may_try_code(&mut self, name: &str, now: Instant) -> bool {
        if !self.codes.contains_key(name) && self.codes.len() >= MAX_NAMES {
            self.codes.retain(|_, wrong| {
                wrong.is_full(WRONG_CODES, now);
                wrong.count > 0
            });
            if self.codes.len() >= MAX_NAMES {
                return false;
            }
        }
        let wrong = self.codes.entry(name.to_owned()).or_default();
        if wrong.is_full(WRONG_CODES, now) {
            return false;
        }
        wrong.add();
        true
    }

    /// The code was right: who it is comes in.
    pub fn right_code(&mut self, name: &str, approver: Approver, random: &dyn Random, now: Instant) -> Pass {
        self.codes.remove(name);
        self.begin(approver, random, now)
    }

    fn begin(&mut self, approver: Approver, random: &dyn Random, now: Instant) -> Pass {
        self.sweep(now);
        while self.open.len() >= MAX_SESSIONS {
            let oldest = self.open.iter().min_by_key(|(_, session)| session.used);
            let Some(oldest) = oldest.map(|(path, _)| *path) else {
                break;
            };
            self.open.remove(&oldest);
        }
        let pass = Pass {
            path: secret(random, 16),
            cookie: secret(random, 32),
        };
        let session = Session {
            cookie: hash(&pass.cookie),
            approver,
            form: secret(random, 16),
            began: now,
            used: now,
            streams: 0,
            readings: BTreeMap::new(),
            told: VecDeque::new(),
            next: 1,
        };
        self.open.insert(hash(&pass.path), session);
        pass
    }

    fn sweep(&mut self, now: Instant) {
        self.open.retain(|_, session| session.left(now).is_some());
    }

    /// The session of a path, when one of the cookies is its own. A page that a person asked for keeps it from being idle.
    pub fn find(&mut self, path: &str, cookies: &[String], asked_for: bool, now: Instant) -> Option<&mut Session> {
        self.sweep(now);
        let session = self.open.get_mut(&hash(path))?;
        if !cookies.iter().any(|cookie| hash(cookie) == session.cookie) {
            return None;
        }
        if asked_for {
            session.used = now;
        }
        Some(session)
    }

    /// The session of a path whose cookie was seen before, while a request of it goes on.
    pub fn of(&mut self, path: &str, now: Instant) -> Option<&mut Session> {
        self.sweep(now);
        self.open.get_mut(&hash(path))
    }

    /// Ends a session.
    pub fn leave(&mut self, path: &str) {
        self.open.remove(&hash(path));
    }
}

impl Session {
    /// How long it goes on when nothing more comes; none when it has ended.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let idle = IDLE.checked_sub(now.saturating_duration_since(self.used))?;
        let whole = LONGEST.checked_sub(now.saturating_duration_since(self.began))?;
        Some(idle.min(whole)).filter(|left| !left.is_zero())
    }

    /// Takes a live stream on; false when there are enough.
    pub fn open_stream(&mut self) -> bool {
        let may = self.streams < MAX_STREAMS;
        self.streams = self.streams.saturating_add(usize::from(may));
        may
    }

    /// A live stream has ended.
    pub fn close_stream(&mut self) {
        self.streams = self.streams.saturating_sub(1);
    }

    /// How far a question was read: begun anew where it is another than it was.
    pub fn reading(&mut self, question: DecisionId, content: Hash, parts: usize, nonce: String) -> &mut Reading {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        let known = self.readings.contains_key(&question);
        while !known && self.readings.len() >= MAX_READINGS {
            let oldest = self.readings.iter().min_by_key(|(_, (number, _))| *number);
            let Some(oldest) = oldest.map(|(id, _)| *id) else { break };
            self.readings.remove(&oldest);
        }
        let begin = || Reading::begin(content, parts, nonce.clone());
        let (last, reading) = self.readings.entry(question).or_insert_with(|| (number, begin()));
        *last = number;
        if !reading.is_of(&content) {
            *reading = begin();
        }
        reading
    }

    /// How far a question was read, if it was.
    pub fn read(&self, question: DecisionId) -> Option<&Reading> {
        self.readings.get(&question).map(|(_, reading)| reading)
    }

    /// Keeps words for a page: what the page's address names them by.
    pub fn tell(&mut self, told: Told) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        while self.told.len() >= MAX_TOLD {
            self.told.pop_front();
        }
        self.told.push_back((number, told));
        number
    }

    /// The words of that number.
    pub fn told(&self, number: u64) -> Option<&Told> {
        self.told
            .iter()
            .find(|(known, _)| *known == number)
            .map(|(_, told)| told)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use bailiwick_gate::desk::Known;

    use super::*;

    /// Random enough for a test: no two alike.
    struct Counting(Mutex<Cell<u8>>);

    impl Random for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            let count = self.0.lock().expect("no thread panics with it");
            count.set(count.get().wrapping_add(1));
            bytes.fill(count.get());
        }
    }

    fn random() -> Counting {
        Counting(Mutex::new(Cell::new(0)))
    }

    fn dana() -> Approver {
        Approver {
            name: "dana".into(),
            by: Known::User,
        }
    }

    #[test]
    fn p8_a_link_is_used_once_and_soon() {
        let (random, now) = (random(), Instant::now());
        let mut sessions = Sessions::default();
        let token = sessions.link(dana(), &random, now);
        assert_eq!(token.len(), 64);
        assert_eq!(sessions.enter("ff", &random, now), Err(NoEntry::Unknown));
        let pass = sessions.enter(&token, &random, now).expect("the token is right");
        assert_eq!(sessions.enter(&token, &random, now), Err(NoEntry::Unknown));
        assert!(
            sessions
                .find(&pass.path, std::slice::from_ref(&pass.cookie), true, now)
                .is_some()
        );
        assert!(sessions.find(&pass.path, &["x".into()], true, now).is_none());
        assert!(sessions.find("x", &[pass.cookie], true, now).is_none());
        let late = sessions.link(dana(), &random, now);
        assert_eq!(sessions.enter(&late, &random, now + LINK_LIFE), Err(NoEntry::Unknown));
    }

    #[test]
    fn p8_wrong_tokens_are_counted_and_keep_nobody_out() {
        let (random, now) = (random(), Instant::now());
        let mut sessions = Sessions::default();
        let token = sessions.link(dana(), &random, now);
        for _ in 0..WRONG.0 {
            assert_eq!(sessions.enter("no", &random, now), Err(NoEntry::Unknown));
        }
        assert_eq!(sessions.enter("no", &random, now), Err(NoEntry::TooMany));
        assert!(sessions.enter(&token, &random, now).is_ok());
        assert_eq!(sessions.enter("no", &random, now + WRONG.1), Err(NoEntry::Unknown));
    }

    #[test]
    fn p8_codes_of_a_name_are_tried_a_few_times() {
        let now = Instant::now();
        let mut sessions = Sessions::default();
        for _ in 0..WRONG_CODES.0 {
            assert!(sessions.may_try_code("rui", now));
        }
        assert!(!sessions.may_try_code("rui", now));
        assert!(sessions.may_try_code("ida", now));
        assert!(sessions.may_try_code("rui", now + WRONG_CODES.1));
        for name in 0..1000 {
            sessions.may_try_code(&name.to_string(), now);
        }
        assert!(sessions.codes.len() <= MAX_NAMES);
    }

    #[test]
    fn p8_a_session_ends_when_idle_and_in_any_case() {
        let (random, now) = (random(), Instant::now());
        let mut sessions = Sessions::default();
        let token = sessions.link(dana(), &random, now);
        let pass = sessions.enter(&token, &random, now).expect("the token is right");
        let cookies = [pass.cookie.clone()];
        let mut there =
            |after: Duration, asked_for| sessions.find(&pass.path, &cookies, asked_for, now + after).is_some();
        assert!(there(IDLE - Duration::from_secs(1), true));
        let mut at = IDLE - Duration::from_secs(1);
        while at + IDLE < LONGEST {
            at += IDLE - Duration::from_secs(1);
            assert!(there(at, true));
        }
        assert!(!there(LONGEST, true));

        let token = sessions.link(dana(), &random, now);
        let pass = sessions.enter(&token, &random, now).expect("the token is right");
        let cookies = [pass.cookie.clone()];
        // What a page asks for by itself does not keep a session from being idle.
        let half = IDLE / 2;
        assert!(sessions.find(&pass.path, &cookies, false, now + half).is_some());
        assert!(sessions.find(&pass.path, &cookies, false, now + IDLE).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (random, now) = (random(), Instant::now());
        let mut sessions = Sessions::default();
        for _ in 0..100 {
            let token = sessions.link(dana(), &random, now);
            sessions.enter(&token, &random, now).expect("the token is right");
        }
        assert!(sessions.open.len() <= MAX_SESSIONS);
        let session = sessions.open.values_mut().next().expect("there is one");
        for n in 0..=255u8 {
            for m in 0..4 {
                session.reading(DecisionId([n, m, 0, 0, 0, 0]), [0; 32], 1, String::new());
                session.tell(Told {
                    wrong: false,
                    words: String::new(),
                });
            }
        }
        assert!(session.readings.len() <= MAX_READINGS && session.told.len() <= MAX_TOLD);
        assert!((0..MAX_STREAMS).all(|_| session.open_stream()));
        assert!(!session.open_stream());
        session.close_stream();
        assert!(session.open_stream());
    }
}
