//! When a key counts as an answer.
//!
//! Promises: P8 (a yes is said by a key that was pressed after what it answers had been there to be seen: not by one that was
//! down already, nor by one that was typed ahead).

/// How long something must have been on the screen before it can be answered, in milliseconds.
pub const LOOK: u64 = 400;

/// How long a key must have been up, in milliseconds. A key that is held comes again after less: a terminal does not tell
/// that from pressing it.
pub const HELD: u64 = 1000;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A character.
    Char(char),
    /// A character with the control key.
    Ctrl(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Tab with the shift key.
    BackTab,
    /// Backspace.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow to the left.
    Left,
    /// Arrow to the right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
}

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Which.
    pub code: Code,
    /// When, in milliseconds of a clock that only goes on.
    pub at: u64,
    /// True where the terminal says that it is held down.
    pub held: bool,
}

/// Since when something is on the screen as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guard {
    since: Option<u64>,
}

impl Guard {
    /// It has been drawn.
    pub fn drawn(&mut self, at: u64) {
        self.since.get_or_insert(at);
    }

    /// It is not what it was, or was not to be seen for a while.
    pub fn renew(&mut self) {
        self.since = None;
    }

    /// True when it has been there long enough to be looked at.
    pub fn is_seen(&self, at: u64) -> bool {
        self.since.is_some_and(|since| at.saturating_sub(since) >= LOOK)
    }
}

/// The keys of the last moments.
#[derive(Debug, Clone, Default)]
pub struct Pressed {
    last: Vec<(Code, u64)>,
}

impl Pressed {
    /// Notes a key: true when it is a new press.
    pub fn note(&mut self, key: &Key) -> bool {
        self.last.retain(|(_, at)| key.at.saturating_sub(*at) < HELD);
        let known = self.last.iter_mut().find(|(code, _)| *code == key.code);
        let fresh = known.is_none() && !key.held;
        match known {
            Some((_, at)) => *at = key.at,
            None => self.last.push((key.code, key.at)),
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn y(at: u64) -> Key {
        Key {
            code: Code::Char('y'),
            at,
            held: false,
        }
    }

    #[test]
    fn c047_a_key_that_is_held_is_not_pressed() {
        let mut pressed = Pressed::default();
        assert!(pressed.note(&y(0)));
        // The first repetition comes late, the others fast, for as long as it is held.
        for at in (660..5000).step_by(33) {
            assert!(!pressed.note(&y(at)), "{at}");
        }
        assert!(!pressed.note(&y(5900)));
        assert!(pressed.note(&y(6900)));
        let held = Key { held: true, ..y(9000) };
        assert!(!pressed.note(&held));
    }

    #[test]
    fn c047_nothing_is_answered_before_it_was_there_to_be_seen() {
        let mut guard = Guard::default();
        assert!(!guard.is_seen(10_000), "not drawn");
        guard.drawn(10_000);
        guard.drawn(10_300);
        assert!(!guard.is_seen(10_399));
        assert!(guard.is_seen(10_400));
        guard.renew();
        assert!(!guard.is_seen(20_000));
    }
}
