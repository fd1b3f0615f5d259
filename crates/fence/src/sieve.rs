//! Sieves for names: which of a folder's could be what some pattern asks for? What they let through, the pattern judges.
//!
//! Promises: P5 (nothing is kept back that a pattern matches). Pure.
//! Not here: the patterns (`bailiwick_model`), the walk (`search`).

/// The bytes with which a name begins or ends that some pattern asks for: most names of most folders have neither.
#[derive(Debug)]
pub(crate) struct Ends {
    first: [bool; 256],
    last: [bool; 256],
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            first: [false; 256],
            last: [false; 256],
        }
    }
}

impl Ends {
    /// Lets names through that a pattern's last step could be.
    pub(crate) fn add(&mut self, step: &[u8]) {
        let let_through = |known: &mut [bool; 256], byte: u8| {
            if let Some(known) = known.get_mut(usize::from(byte)) {
                *known = true;
            }
        };
        match (step.first(), step.last()) {
            (Some(b'*') | None, Some(b'*') | None) => self.first = [true; 256],
            (Some(b'*'), Some(last)) => let_through(&mut self.last, *last),
            (Some(first), _) => let_through(&mut self.first, *first),
            (None, Some(_)) => {}
        }
    }

    pub(crate) fn could_be(&self, name: &[u8]) -> bool {
        let is = |known: &[bool; 256], byte: Option<&u8>| {
            byte.and_then(|byte| known.get(usize::from(*byte)))
                .is_some_and(|known| *known)
        };
        is(&self.first, name.first()) || is(&self.last, name.last())
    }
}

/// Matches one name; `*` stands for any text. A first sieve: the pattern itself has the last word.
pub(crate) fn fits(glob: &[u8], name: &[u8]) -> bool {
    let mut parts = glob.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    for part in parts {
        match rest
            .windows(part.len().max(1))
            .position(|window| window.starts_with(part))
        {
            _ if part.is_empty() => {}
            Some(place) => rest = rest.get(place.saturating_add(part.len())..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sieve_lets_all_through_that_a_pattern_matches() {
        for (glob, name, want) in [
            ("*.pem", "a.pem", true),
            ("*.pem", "a.pen", false),
            (".env*", ".env.local", true),
            ("*", "x", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c", false),
        ] {
            assert_eq!(fits(glob.as_bytes(), name.as_bytes()), want, "{glob} {name}");
            let mut ends = Ends::default();
            ends.add(glob.as_bytes());
            assert!(ends.could_be(name.as_bytes()) || !want, "{glob} {name}");
        }
        for (step, name) in [(".env", "env"), ("*.pem", "x.pen"), ("a*b", "b")] {
            let mut ends = Ends::default();
            ends.add(step.as_bytes());
            assert!(!ends.could_be(name.as_bytes()), "{step} {name}");
        }
    }
}
