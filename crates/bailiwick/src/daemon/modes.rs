//! What an agent has switched on at its terminal: whoever comes to another terminal finds it switched on there, too.
//!
//! Trust: the output is an agent's, and may hold anything; what is kept of it are numbers.
//! See: xterm, "Control Sequences", DEC private modes; the kitty keyboard protocol.

use std::collections::BTreeMap;

/// Modes that mean another screen for the whole window.
const WHOLE_SCREEN: [u16; 3] = [47, 1047, 1049];

/// Modes that are on at a terminal that nobody has touched: lines wrap, the cursor is shown.
const ON_AT_FIRST: [u16; 2] = [7, 25];

/// Modes that are of the moment: a cursor that is kept, a screen that is being drawn.
const OF_THE_MOMENT: [u16; 2] = [1048, 2026];

/// Most modes that are kept, longest sequence that is looked at, and largest number of keyboard flags.
const MOST: usize = 64;
const LONGEST: usize = 32;
const FLAGS: u16 = 31;

/// What is switched on and off.
#[derive(Debug, Default)]
pub struct Modes {
    modes: BTreeMap<u16, bool>,
    /// How keys are told apart (kitty), where an agent asked for it.
    keys: Option<u16>,
    /// The end of what came before, where a sequence may have begun.
    before: Vec<u8>,
}

impl Modes {
    /// Takes what was put out.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.before);
        all.extend_from_slice(bytes);
        let mut rest = all.as_slice();
        while let Some(start) = rest.iter().position(|byte| *byte == 0x1b) {
            rest = rest.get(start..).unwrap_or_default();
            let inner = rest.get(2..).unwrap_or_default();
            let end = inner.iter().take(LONGEST).position(|byte| (0x40..=0x7e).contains(byte));
            match (rest.get(1), end) {
                // More of it may come.
                (None | Some(b'['), None) if rest.len() < LONGEST => {
                    self.before = rest.to_vec();
                    return;
                }
                (Some(b'['), Some(end)) if end < LONGEST => {
                    let (inner, last) = (inner.get(..end).unwrap_or_default(), inner.get(end));
                    self.note(inner, last.copied().unwrap_or_default());
                }
                _ => {}
            }
            rest = rest.get(1..).unwrap_or_default();
        }
    }

    fn note(&mut self, inner: &[u8], last: u8) {
        let Some((kind, numbers)) = inner.split_first() else {
            return;
        };
        let text = String::from_utf8_lossy(numbers);
        let mut numbers = text.split(';').map(|number| number.parse::<u16>().ok());
        match (kind, last) {
            (b'?', b'h' | b'l') => {
                for mode in numbers.flatten().filter(|mode| !OF_THE_MOMENT.contains(mode)) {
                    if self.modes.len() < MOST || self.modes.contains_key(&mode) {
                        self.modes.insert(mode, last == b'h');
                    }
                }
            }
            (b'>', b'u') => self.keys = numbers.next().flatten().filter(|flags| *flags <= FLAGS),
            (b'<', b'u') => self.keys = None,
            _ => {}
        }
    }

    /// True when the agent has the whole screen, and draws it itself.
    pub fn is_whole_screen(&self) -> bool {
        WHOLE_SCREEN.iter().any(|mode| self.modes.get(mode) == Some(&true))
    }

    /// What brings a terminal that nobody has touched into this state, but for what is on the screen.
    pub fn set(&self) -> Vec<u8> {
        let mut out = String::new();
        if self.is_whole_screen() {
            out.push_str("\x1b[?1049h\x1b[H\x1b[2J");
        }
        for (mode, on) in &self.modes {
            if !WHOLE_SCREEN.contains(mode) && *on != ON_AT_FIRST.contains(mode) {
                out.push_str(&format!("\x1b[?{mode}{}", if *on { 'h' } else { 'l' }));
            }
        }
        if let Some(flags) = self.keys {
            out.push_str(&format!("\x1b[>{flags}u"));
        }
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[&[u8]]) -> Vec<u8> {
        let mut modes = Modes::default();
        pieces.iter().for_each(|piece| modes.push(piece));
        modes.set()
    }

    #[test]
    fn what_is_switched_on_stays_known_however_it_is_cut() {
        let output = b"x\x1b[?1049h\x1b[?25ly\x1b[?1000;1006h\x1b[>1u\x1b[?2026h\x1b[?2004h\x1b[31m";
        let want = b"\x1b[?1049h\x1b[H\x1b[2J\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[>1u";
        assert_eq!(after(&[output]), want);
        for place in 0..output.len() {
            let (one, other) = output.split_at(place);
            assert_eq!(after(&[one, other]), want, "{place}");
        }
        let off = b"\x1b[?1049l\x1b[?25h\x1b[?1000;1006l\x1b[<u\x1b[?2004l";
        assert_eq!(after(&[output, off]), b"");
    }

    #[test]
    fn an_agent_cannot_fill_it_up() {
        let mut modes = Modes::default();
        (0..2000u16).for_each(|mode| modes.push(format!("\x1b[?{mode}h").as_bytes()));
        modes.push(&[b"\x1b[?".as_slice(), &[b'1'; 100_000]].concat());
        // If its time grew with the square of what comes, this would not end.
        modes.push(&[0x1b; 1 << 20]);
        assert!(modes.modes.len() <= MOST && modes.before.len() < LONGEST);
        assert_eq!(after(&[b"\x1b[?99999h\x1b[?;h\x1b[?xh\x1b[>99u"]), b"");
    }
}
