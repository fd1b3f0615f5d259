//! What was refused during a run, as `run --explain-denials` tells it.

use std::fmt::Write as _;

use crate::protocol::RefusedAct;

/// Most different acts that are told.
const MOST: usize = 100;

/// What was refused so far: each act once, with how often.
#[derive(Debug)]
pub struct Refused {
    live: bool,
    acts: Vec<(RefusedAct, u64)>,
}

impl Refused {
    /// Nothing yet. With `live`, each act is told when it comes for the first time.
    pub fn new(live: bool) -> Self {
        Self { live, acts: Vec::new() }
    }

    /// Hears of one.
    pub fn hear(&mut self, refused: RefusedAct) {
        let same = |known: &RefusedAct| known.code == refused.code && known.act == refused.act;
        let full = self.acts.len() >= MOST;
        match self.acts.iter_mut().find(|(known, _)| same(known)) {
            Some((_, count)) => *count = count.saturating_add(1),
            None if full => {}
            None => {
                if self.live {
                    crate::talk::talk(&told(&refused, 1));
                }
                self.acts.push((refused, 1));
            }
        }
    }

    /// What is told at the end. `denied` is how much was refused in all.
    pub fn told(&self, denied: u64) -> String {
        if denied == 0 {
            return "bailiwick: nothing was refused; files outside the fence do not exist in there, which is no refusal\n".into();
        }
        let different = self.acts.len();
        let more = if different >= MOST { " or more" } else { "" };
        let mut out = format!("bailiwick: {denied} refused, {different}{more} different\n");
        if !self.live {
            self.acts
                .iter()
                .for_each(|(act, count)| out.push_str(&told(act, *count)));
        }
        out
    }
}

fn told(refused: &RefusedAct, count: u64) -> String {
    let mut out = String::new();
    for (place, line) in refused.told.lines().enumerate() {
        let times = if place == 0 && count > 1 {
            format!(", {count} times")
        } else {
            String::new()
        };
        let id = if place == 0 {
            format!(" {}", refused.id)
        } else {
            String::new()
        };
        let _ = writeln!(out, "  {line}{id}{times}");
    }
    out
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{Code, DecisionId};

    use super::*;

    #[test]
    fn each_act_is_told_once_with_how_often() {
        let act = |act: &str| RefusedAct {
            id: DecisionId([1; 6]),
            code: Code::NoRule,
            act: act.into(),
            told: format!("no: {act} (no-rule)\n  to change it: add it\n"),
        };
        let mut refused = Refused::new(false);
        for one in ["GET http://a.test/", "GET http://b.test/", "GET http://a.test/"] {
            refused.hear(act(one));
        }
        assert_eq!(
            refused.told(3),
            "bailiwick: 3 refused, 2 different\n  no: GET http://a.test/ (no-rule) 010101010101, 2 times\n    to change it: add it\n  no: GET \
             http://b.test/ (no-rule) 010101010101\n    to change it: add it\n"
        );
        assert!(Refused::new(false).told(0).contains("nothing was refused"));
    }
}
