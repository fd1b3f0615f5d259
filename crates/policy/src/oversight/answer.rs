//! Who may answer a question, and say so by watching.
//!
//! Promises: P2 (every layer that names approvers must name this one for this), P4 (whoever no layer's list has may not).

use std::collections::BTreeSet;

use bailiwick_gate::MayAnswer;
use bailiwick_model::Request;

use super::{Approvers, Named, Oversight};

/// A yes to something that needs four eyes is given by so many people.
pub const FOUR_EYES: usize = 2;

impl Named {
    fn may(&self, request: &Request) -> bool {
        self.may.is_empty()
            || self
                .may
                .iter()
                .any(|rule| rule.covers(&request.verb, &request.resource))
    }
}

impl Approvers {
    /// All who may ever answer about this, each after so many seconds.
    fn all<'a>(&'a self, request: &Request) -> Vec<(u64, &'a Named)> {
        let now = self.named.iter().map(|named| (0, named));
        let later = self.escalate.iter().map(|(after, named)| (*after, named));
        now.chain(later).filter(|(_, named)| named.may(request)).collect()
    }

    /// Those who may answer about this, a question having waited for so many seconds.
    fn of<'a>(&'a self, request: &'a Request, waited: u64) -> impl Iterator<Item = &'a Named> {
        let later = self.escalate.iter().filter(move |(after, _)| *after <= waited);
        let all = self.named.iter().chain(later.map(|(_, named)| named));
        all.filter(|named| named.may(request))
    }
}

impl Oversight {
    /// True when some layer says who may answer. Where none does, the person may, and everybody whom they have enrolled.
    pub fn names_approvers(&self) -> bool {
        !self.approvers.is_empty()
    }

    /// True when this person may answer a question about a request that has waited for so many milliseconds.
    pub fn may_answer(&self, who: &str, request: &Request, waited: u64) -> bool {
        let seconds = waited / 1000;
        let mut layers = self.approvers.values();
        layers.all(|layer| layer.of(request, seconds).any(|named| named.name == who))
    }

    /// Those who may answer about a request, each after some time of waiting, in the order of their names; none where no layer
    /// names anybody.
    pub fn approvers_of(&self, request: &Request) -> Option<Vec<MayAnswer>> {
        if !self.names_approvers() {
            return None;
        }
        let layers: Vec<Vec<(u64, &Named)>> = self.approvers.values().map(|layer| layer.all(request)).collect();
        let names: BTreeSet<&str> = layers.iter().flatten().map(|(_, named)| named.name.as_str()).collect();
        let of = |name: &str| {
            let mut may = MayAnswer {
                name: name.to_owned(),
                after: 0,
                within: Vec::new(),
            };
            for layer in &layers {
                let own = || layer.iter().filter(|(_, named)| named.name == name);
                let first = own().map(|(after, _)| *after).min()?;
                may.after = may.after.max(first);
                if own().all(|(_, named)| !named.may.is_empty()) {
                    let acts = own().flat_map(|(_, named)| &named.may);
                    may.within.push(acts.map(|rule| rule.act().clone()).collect());
                }
            }
            Some(may)
        };
        Some(names.into_iter().filter_map(of).collect())
    }

    /// After how many seconds further people may answer about a request: each such time, in order.
    pub fn escalations(&self, request: &Request) -> Vec<u64> {
        let all = self.approvers.values().flat_map(|layer| &layer.escalate);
        let mut after: Vec<u64> = all
            .filter(|(_, named)| named.may(request))
            .map(|(after, _)| *after)
            .collect();
        after.sort_unstable();
        after.dedup();
        after
    }

    /// Those who may answer about a request at once, in words.
    pub fn who(&self, request: &Request) -> String {
        let mut names: Vec<&str> = self
            .approvers
            .values()
            .flat_map(|layer| layer.of(request, 0))
            .map(|named| named.name.as_str())
            .filter(|name| self.may_answer(name, request, 0))
            .collect();
        names.sort_unstable();
        names.dedup();
        match (names.as_slice(), self.names_approvers()) {
            ([], false) => "an approver".into(),
            ([], true) => "an approver (no layer's list has one for this)".into(),
            (names, _) => names.join(" or "),
        }
    }
}
