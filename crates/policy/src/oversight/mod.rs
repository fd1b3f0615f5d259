//! Oversight: when a context is open, what is done only while somebody watches, what two people must say yes to, and who
//! may say it.
//!
//! Promises: P2 (layers only narrow: closed in one is closed; what must be watched or seen by four eyes adds up; who may
//! answer must be one who may in every layer that names anybody), P4, P5 (an act is found as a deny would find it: under
//! every spelling, and by the tunnel that it could hide in), P14 (functions of what is handed in).
//! Trust: it stands in rule files; of a project's file that nobody trusts nothing of it holds.
//! Not here: reading it (`read`), clocks and calendars (`hours`), who is there and what they said (`mediator`).

mod answer;
mod hours;
mod program;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bailiwick_model::{
    AbsPath, Code, Decision, Host, Layer, Millis, Obligation, Reason, Request, Resource, ResourcePattern, RuleRef,
    Verb, Verdict,
};

pub use answer::FOUR_EYES;
pub use hours::{Closed, Days, Hours, Window, Zone};
pub use program::ProgramApprover;
pub use read::is_name;

use crate::combine::other_views;
use crate::rule::Rule;

/// One condition on the time: some acts, or all, only in these hours.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Timed {
    /// What it is about; empty for everything.
    pub on: Vec<Rule>,
    /// When that is open.
    pub hours: Hours,
    /// Where it stands.
    pub origin: RuleRef,
}

/// Somebody who may answer questions.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub name: String,
    /// About what; empty for everything.
    pub may: Vec<Rule>,
}

/// Who may answer, by one layer.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Approvers {
    pub named: Vec<Named>,
    /// After how many seconds a question goes to these too.
    pub escalate: Vec<(u64, Named)>,
}

/// What is known of a moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The time.
    pub now: Millis,
    /// Who is there and watches.
    pub present: &'a BTreeSet<String>,
}

/// The oversight in force, of all layers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Oversight {
    pub(crate) timed: Vec<Timed>,
    pub(crate) present: Vec<Rule>,
    pub(crate) four_eyes: Vec<Rule>,
    pub(crate) approvers: BTreeMap<Layer, Approvers>,
}

impl fmt::Debug for Oversight {
    /// What it says, without regard to where that stands: this goes into the digest of the rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines()).finish()
    }
}

fn acts(rules: &[Rule]) -> Vec<String> {
    let own = rules.iter().filter(|rule| rule.follows_from.is_none());
    own.map(|rule| rule.act().to_string()).collect()
}

impl Named {
    fn line(&self) -> String {
        match self.may.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, acts(&self.may).join(", ")),
        }
    }
}

impl Oversight {
    /// True when nothing is overseen.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// True when something is done only while somebody watches.
    pub fn watches(&self) -> bool {
        !self.present.is_empty()
    }

    /// What it says, one line each, with the layer.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for timed in &self.timed {
            let what = match timed.on.is_empty() {
                true => "everything".to_owned(),
                false => acts(&timed.on).join(", "),
            };
            lines.insert(format!("{} hours {what}: {}", timed.origin.layer, timed.hours));
        }
        for (word, rules) in [("present", &self.present), ("four eyes", &self.four_eyes)] {
            let own = rules.iter().filter(|rule| rule.follows_from.is_none());
            lines.extend(own.map(|rule| format!("{} {word} {}", rule.layer(), rule.act())));
        }
        for (layer, approvers) in &self.approvers {
            lines.extend(
                approvers
                    .named
                    .iter()
                    .map(|named| format!("{layer} approver {}", named.line())),
            );
            let later = approvers.escalate.iter();
            lines.extend(later.map(|(after, named)| format!("{layer} approver after {after} s {}", named.line())));
        }
        lines.into_iter().collect()
    }

    /// Adds that of one more file.
    pub(crate) fn merge(&mut self, other: Self) {
        self.timed.extend(other.timed);
        self.present.extend(other.present);
        self.four_eyes.extend(other.four_eyes);
        for (layer, approvers) in other.approvers {
            let own = self.approvers.entry(layer).or_default();
            own.named.extend(approvers.named);
            own.escalate.extend(approvers.escalate);
        }
    }

    /// The acts of which each start or call must be decided about, for oversight to hold.
    pub(crate) fn watched(&self) -> impl Iterator<Item = &Rule> {
        let timed = self.timed.iter().flat_map(|timed| &timed.on);
        timed.chain(&self.present).chain(&self.four_eyes)
    }

    /// The folders whose files are to be asked about, since two people must say yes.
    pub(crate) fn asked_trees(&self) -> impl Iterator<Item = AbsPath> {
        self.four_eyes.iter().filter_map(|rule| match &rule.act().resource {
            ResourcePattern::Path(pattern) => pattern.as_tree(),
            _ => None,
        })
    }

    /// What is to be said about the time and about who is there: a denial, or nothing. `duties` is what the rules want of
    /// the gate: a secret that is put in is used.
    pub(crate) fn conditions(&self, request: &Request, duties: &[Obligation], moment: Moment<'_>) -> Option<Decision> {
        if self.timed.is_empty() && self.present.is_empty() {
            return None;
        }
        let views = views(request, duties);
        let shut = self.shut(&views, moment.now);
        let alone = self.alone(&views, moment);
        shut.into_iter().chain(alone).reduce(Decision::and)
    }

    /// Denies what is closed.
    fn shut(&self, views: &[Request], now: Millis) -> Option<Decision> {
        let about = |timed: &&Timed| timed.on.is_empty() || touched(&timed.on, views).is_some();
        let mut reasons: Vec<Reason> = self
            .timed
            .iter()
            .filter(about)
            .filter(|timed| !timed.hours.is_open(now))
            .map(|timed| Reason {
                verdict: Verdict::Deny,
                code: Code::OutOfHours,
                rule: Some(timed.origin.clone()),
                text: format!("it is open {} ({})", timed.hours, timed.origin),
            })
            .collect();
        let first = reasons.first_mut()?;
        let zone = self.timed.iter().find(about).map(|timed| &timed.hours.zone);
        let opens = match (self.next_opening(views, now), zone) {
            (Some(at), Some(zone)) => format!("it opens {}", zone.tell(at)),
            _ => "it does not open within a year".into(),
        };
        first.text = format!("{opens}: {}", first.text);
        Some(denied(Code::OutOfHours, reasons))
    }

    /// The next moment at which all hours that are about this are open.
    fn next_opening(&self, views: &[Request], now: Millis) -> Option<Millis> {
        let about = |timed: &&Timed| timed.on.is_empty() || touched(&timed.on, views).is_some();
        let all: Vec<&Hours> = self.timed.iter().filter(about).map(|timed| &timed.hours).collect();
        all_open_at(&all, now)
    }

    /// Denies what is to be watched, where nobody watches who may.
    fn alone(&self, views: &[Request], moment: Moment<'_>) -> Option<Decision> {
        let rule = touched(&self.present, views)?;
        let request = views.first()?;
        let watches = |name: &String| self.may_answer(name, request, 0);
        if moment.present.iter().any(watches) {
            return None;
        }
        let reason = Reason {
            verdict: Verdict::Deny,
            code: Code::NobodyPresent,
            rule: Some(rule.origin.clone()),
            text: format!(
                "`{}` ({}) is done only while {} watches",
                rule.follows_from.as_deref().unwrap_or(&rule.origin.act),
                rule.origin,
                self.who(request)
            ),
        };
        Some(denied(Code::NobodyPresent, vec![reason]))
    }

    /// Makes an ask of what two people must say yes to.
    pub(crate) fn with_four_eyes(&self, request: &Request, decision: Decision) -> Decision {
        if self.four_eyes.is_empty() || decision.verdict == Verdict::Deny {
            return decision;
        }
        let Some(rule) = touched(&self.four_eyes, &views(request, &decision.obligations)) else {
            return decision;
        };
        let reason = Reason {
            verdict: Verdict::Ask,
            code: Code::FourEyes,
            rule: Some(rule.origin.clone()),
            text: format!(
                "`{}` ({}) needs the yes of two people, neither of them the one whose task asks",
                rule.follows_from.as_deref().unwrap_or(&rule.origin.act),
                rule.origin
            ),
        };
        let ask = Decision {
            verdict: Verdict::Ask,
            code: Code::FourEyes,
            reasons: vec![reason],
            obligations: Vec::new(),
        };
        ask.and(decision)
    }

    /// True when the context is open. What is said of single acts does not count.
    pub fn is_open(&self, now: Millis) -> bool {
        self.whole().iter().all(|hours| hours.is_open(now))
    }

    /// When the context closes; none where it is closed, or goes on for more than a year.
    pub fn closes_at(&self, now: Millis) -> Option<Millis> {
        if !self.is_open(now) {
            return None;
        }
        self.whole().iter().filter_map(|hours| hours.closes_at(now)).min()
    }

    /// When the context opens; none where it is open, or does not open within a year.
    pub fn opens_at(&self, now: Millis) -> Option<Millis> {
        let all = self.whole();
        if all.iter().all(|hours| hours.is_open(now)) {
            return None;
        }
        all_open_at(&all, now)
    }

    /// A time as it is told where the context's hours are: `Mon 2026-11-30 08:00 Europe/Zurich`.
    pub fn tell(&self, at: Millis) -> Option<String> {
        self.whole().first().map(|hours| hours.zone.tell(at))
    }

    /// The hours that hold for all that a context does.
    fn whole(&self) -> Vec<&Hours> {
        let whole = self.timed.iter().filter(|timed| timed.on.is_empty());
        whole.map(|timed| &timed.hours).collect()
    }
}

/// How often openings are looked for that do not meet.
const TRIES: usize = 400;

/// The first moment from this one on at which all are open; none within a year, or where they are too many apart.
fn all_open_at(all: &[&Hours], now: Millis) -> Option<Millis> {
    let mut at = now;
    for _ in 0..TRIES {
        let shut: Vec<&&Hours> = all.iter().filter(|hours| !hours.is_open(at)).collect();
        if shut.is_empty() {
            return Some(at);
        }
        for hours in shut {
            at = at.max(hours.opens_at(at).or_else(|| hours.is_open(at).then_some(at))?);
        }
    }
    None
}

fn denied(code: Code, reasons: Vec<Reason>) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        code,
        reasons,
        obligations: Vec::new(),
    }
}

/// The first of these acts that one of the views of a request is about.
fn touched<'a>(rules: &'a [Rule], views: &[Request]) -> Option<&'a Rule> {
    let about = |rule: &&Rule| views.iter().any(|view| rule.covers(&view.verb, &view.resource));
    rules.iter().find(about)
}

/// A request, and what else it is: what git does by it, the same at the address that is dialled, the use of each secret that
/// is put in.
pub(crate) fn views(request: &Request, duties: &[Obligation]) -> Vec<Request> {
    let mut views = vec![request.clone()];
    views.extend(other_views(request).into_iter().map(|(view, _)| view));
    if let Some(address) = request.address() {
        for mut there in views.clone() {
            match &mut there.resource {
                Resource::Url(url) | Resource::Repository { url, .. } => url.host = Host::Address(address),
                Resource::Endpoint { host, .. } => *host = Host::Address(address),
                _ => continue,
            }
            views.push(there);
        }
    }
    for duty in duties {
        if let Obligation::Inject { secret, .. } = duty {
            let used = Resource::Secret(secret.clone());
            views.push(Request::new(request.task, Verb::Use, used));
        }
    }
    views
}
