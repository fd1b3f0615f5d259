//! What people say to questions, and what follows.
//!
//! Promises: P8 (a yes is a grant for just what was shown; the request is then decided again and never let through by the yes
//! itself; so is every other question that the grant answers), P10 (an answer is on record, durable, before it has an effect).
//! Trust: answers come from people, by a road that no agent has; each names the digest of what was shown.
//! Not here: keeping questions (`questions`), what a yes may cover (`offers`), keeping grants (`grants`).

use std::sync::Arc;

use bailiwick_authority::act_within;
use bailiwick_gate::desk::{Answer, Approver, Closed, DeskFault, Granted, Known, Offer, Scope, Terms};
use bailiwick_gate::{LedgerFault, Pending, Refusal, Waiting};
use bailiwick_model::{
    Act, Answered, Argument, Code, DecisionId, Digest, Durability, Event, GrantId, Millis, Reason, Record, TaskId,
    Verdict, argument, visible,
};
use bailiwick_policy::FOUR_EYES;

use crate::asked;
use crate::monitor::Mediator;
use crate::offers::offers;
use crate::questions::Held;
use crate::session::Asker;
use crate::task::lock;

/// How long the grant that a yes to one request gives may be used, in milliseconds: it is decided again at once.
const GRANT_LIFE: u64 = 30_000;

/// An answer that has been looked through: nothing in it is left to refuse.
enum Wish {
    No(Option<String>),
    More(String),
    Yes {
        offer: Offer,
        terms: Terms,
    },
    /// A yes that is one of two.
    Second {
        shown: Digest,
        sentence: String,
    },
}

impl Mediator {
    /// Answers a question. After a yes the request is decided again, with a grant for just what was shown; so is every other
    /// question that waits and that the grant answers.
    pub fn answer(self: &Arc<Self>, id: DecisionId, answer: &Answer, by: &Approver) -> Result<Closed, DeskFault> {
        let now = self.clock.now();
        // Of two yeses at the same moment, one is the first.
        let two = self.questions.look(id, needs_two).unwrap_or(false);
        let _seconding = two.then(|| lock(&self.questions.seconding));
        let wish = self.questions.look(id, |waiting| wish(waiting, answer, by, now));
        let wish = wish.ok_or(DeskFault::Unknown(id))??;
        if let Wish::Second { shown, sentence } = wish {
            return self.second(id, by, (shown, sentence));
        }
        let held = self.questions.take_one(id).ok_or(DeskFault::Unknown(id))?;
        if held.waiting.deadline <= now {
            self.close(held, Answered::Lapsed);
            return Err(DeskFault::Unknown(id));
        }
        let request = &held.waiting.request;
        let choice = request.arguments.get(argument::CHOICE).cloned();
        let chosen = choice.map(|choice| (request.task, choice));
        let closed = match wish {
            Wish::No(word) => self.deny(held, Answered::No, word, by),
            Wish::More(word) => {
                self.questions.talks.remember(&held.waiting, &word);
                self.deny(held, Answered::More, Some(word), by)
            }
            Wish::Yes { offer, terms } => self.grant(held, &offer, terms, by, now),
            // Handled above, where the question stays.
            Wish::Second { .. } => Err(DeskFault::Unknown(id)),
        };
        self.ended(id);
        if let Ok(Closed {
            answer: Some(Answered::Yes),
            ..
        }) = &closed
        {
            self.leave_the_others(chosen.as_ref(), by);
        }
        closed
    }

    /// Where one of several was chosen, the others are not.
    fn leave_the_others(&self, chosen: Option<&(TaskId, Argument)>, by: &Approver) {
        let Some((task, choice)) = chosen else { return };
        let other = |held: &Held| {
            let request = &held.waiting.request;
            request.task == *task && request.arguments.get(argument::CHOICE) == Some(choice)
        };
        while let Some(held) = self.questions.take_first(other) {
            let id = held.waiting.id;
            // Whoever asked hears it also when the record of it fails: then by that fault's code.
            let _ = self.deny(held, Answered::No, Some("another of the options was chosen".into()), by);
            self.ended(id);
        }
    }

    /// Keeps the first of two yeses: on record, then with the question, which waits on.
    fn second(&self, id: DecisionId, by: &Approver, to: (Digest, String)) -> Result<Closed, DeskFault> {
        let waiting = self.questions.look(id, Waiting::clone).ok_or(DeskFault::Unknown(id))?;
        self.append_answer(
            &waiting,
            Answered::Seconded,
            Some(by),
            (None, None),
            Durability::Durable,
        )
        .and_then(Pending::wait)
        .map_err(|fault| DeskFault::Fault(fault.to_string()))?;
        let waiting = self.questions.second(id, by, to).ok_or(DeskFault::Unknown(id))?;
        if let Some(watcher) = self.watcher.get() {
            watcher.waits(&waiting);
            watcher.moved();
        }
        Ok(Closed {
            answer: None,
            grant: None,
            released: 0,
        })
    }

    fn deny(&self, held: Held, answer: Answered, word: Option<String>, by: &Approver) -> Result<Closed, DeskFault> {
        let Held { waiting, asker, .. } = held;
        let word = word.map(|word| visible(&word));
        let noted = self
            .append_answer(&waiting, answer, Some(by), (None, word.clone()), Durability::Durable)
            .and_then(Pending::wait);
        let code = match &noted {
            Ok(_) => answer.refusal().unwrap_or(Code::Fault),
            Err(_) => Code::LogUnavailable,
        };
        if let Some(asker) = asker {
            let word = word.filter(|_| noted.is_ok());
            asker.deny(Refusal {
                word,
                ..Refusal::new(waiting.id, code)
            });
        }
        noted.map_err(|fault| DeskFault::Fault(fault.to_string()))?;
        self.count(&waiting, answer);
        Ok(Closed {
            answer: Some(answer),
            grant: None,
            released: 0,
        })
    }

    fn grant(
        self: &Arc<Self>,
        held: Held,
        offer: &Offer,
        terms: Terms,
        by: &Approver,
        now: Millis,
    ) -> Result<Closed, DeskFault> {
        let Held { waiting, asker, .. } = held;
        let id = waiting.id;
        let fail = |asker: Option<Asker>, code, fault| {
            if let Some(asker) = asker {
                asker.deny(Refusal::new(id, code));
            }
            Err(fault)
        };
        let only = offer.is_request().then_some(waiting.digest);
        let kept_until = only.map(|_| Millis(now.0.saturating_add(GRANT_LIFE)));
        let names = waiting.seconded.iter().chain([by]).map(|by| by.name.clone());
        let granted = Granted {
            id: self.new_grant_id(),
            sentence: offer.sentence(&terms),
            acts: offer.acts.clone(),
            terms: Terms {
                until: terms.until.or(kept_until),
                ..terms
            },
            used: 0,
            task: Some(waiting.request.task),
            context: waiting.context.clone(),
            by: names.collect(),
            given: now,
        };
        let outlives = only.is_none().then(|| self.note_grant(&granted)).transpose();
        let noted = outlives.and_then(|_| {
            let grant = (Some(granted.id), None);
            self.append_answer(&waiting, Answered::Yes, Some(by), grant, Durability::Durable)?
                .wait()
        });
        if let Err(fault) = noted {
            return fail(asker, Code::LogUnavailable, DeskFault::Fault(fault.to_string()));
        }
        let grant = match self.give(granted.clone(), only, &waiting.against.reasons) {
            Ok(grant) => grant,
            Err(fault) => return fail(asker, Code::Fault, fault),
        };
        self.count(&waiting, Answered::Yes);
        match asker {
            Some(asker) if self.task(waiting.request.task).is_some() => self.decide_patiently(&waiting.request, asker),
            Some(asker) => asker.deny(Refusal::new(id, Code::UnknownTask)),
            None => {}
        }
        let released = if only.is_some() { 0 } else { self.release(&grant, now) };
        Ok(Closed {
            answer: Some(Answered::Yes),
            grant: Some(granted),
            released,
        })
    }

    /// Decides the questions again that a grant answers, as far as it reaches: how many.
    pub(crate) fn release(self: &Arc<Self>, grant: &crate::Grant, now: Millis) -> usize {
        let mut released = 0usize;
        loop {
            let left = grant
                .capability
                .constraints
                .count
                .is_none_or(|count| grant.taken.now() < count);
            let fits = |held: &Held| {
                let task = self.task(held.waiting.request.task);
                let holds = task.is_some_and(|task| task.state().has(grant.id));
                left && holds
                    && held.asker.is_some()
                    && grant.answers(
                        &held.waiting.request,
                        &held.waiting.against,
                        &held.waiting.principal,
                        now,
                    )
            };
            let next = self.questions.take_first(fits);
            let Some(Held { waiting, asker, .. }) = next else {
                return released;
            };
            let noted = self.append_answer(
                &waiting,
                Answered::Yes,
                None,
                (Some(grant.id), None),
                Durability::Ordered,
            );
            self.ended(waiting.id);
            released = released.saturating_add(1);
            match (asker, noted) {
                (Some(asker), Ok(_)) => self.decide_patiently(&waiting.request, asker),
                (Some(asker), Err(_)) => asker.deny(Refusal::new(waiting.id, Code::LogUnavailable)),
                (None, _) => {}
            }
        }
    }

    pub(crate) fn new_grant_id(&self) -> GrantId {
        let mut bytes = [0; 6];
        self.random.fill(&mut bytes);
        GrantId(bytes)
    }

    /// Puts on record that a grant is given which outlives the request that was asked about.
    pub(crate) fn note_grant(&self, granted: &Granted) -> Result<Box<dyn Pending>, LedgerFault> {
        let event = Event::Granted {
            grant: granted.id,
            sentence: granted.sentence.clone(),
            acts: granted.acts.clone(),
            count: granted.terms.count,
            until: granted.terms.until,
            context: (granted.terms.scope == Scope::Context).then(|| granted.context.clone()),
            by: granted.by.clone(),
        };
        let record = Record {
            time: self.clock.now(),
            task: granted.task,
            event,
        };
        self.ledger.append(&record, Durability::Durable)
    }
}

/// True when two people must say yes.
fn needs_two(waiting: &Waiting) -> bool {
    let asks = |reason: &Reason| reason.verdict == Verdict::Ask && reason.code == Code::FourEyes;
    waiting.against.reasons.iter().any(asks)
}

/// Refuses a yes of somebody who may not say it: not to this, not yet, or not so wide.
fn may_say_yes(waiting: &Waiting, offer: &Offer, by: &Approver, now: Millis) -> Result<(), DeskFault> {
    let Some(all) = &waiting.approvers else { return Ok(()) };
    let name = visible(&by.name);
    let Some(may) = all.iter().find(|may| may.name == by.name) else {
        let who = asked::who_may(all);
        return Err(DeskFault::Refused(format!("`{name}` may not say yes to this: {who}")));
    };
    let waited = now.0.saturating_sub(waiting.since.0) / 1000;
    if waited < may.after {
        let left = may.after.saturating_sub(waited);
        return Err(DeskFault::Refused(format!(
            "`{name}` may say yes to this once it has waited for {} s, in {left} s",
            may.after
        )));
    }
    // To the request itself they may, or they would not stand in the list.
    let inside = |list: &Vec<Act>| offer.acts.iter().all(|act| list.iter().any(|own| act_within(act, own)));
    if !may.within.iter().all(inside) {
        return Err(DeskFault::Refused(format!(
            "`{name}` may say yes to the request itself, and not to so much"
        )));
    }
    Ok(())
}

/// Refuses a yes that is not one more person's, to the same.
fn is_another_pair_of_eyes(waiting: &Waiting, shown: Digest, by: &Approver) -> Result<(), DeskFault> {
    let name = visible(&by.name);
    let refuse = |why: String| Err(DeskFault::Refused(why));
    if by.by == Known::Program {
        return refuse("two people must say yes to this: a program is none".into());
    }
    if by.name == waiting.principal {
        return refuse(format!("`{name}` is the one whose task asks: two others must say yes"));
    }
    if waiting.seconded.iter().any(|known| known.name == by.name) {
        return refuse(format!("`{name}` has said yes already: another must"));
    }
    match &waiting.seconded_to {
        Some((digest, sentence)) if *digest != shown => refuse(format!(
            "the first yes was to: {}; say yes to the same, or no",
            visible(sentence)
        )),
        _ => Ok(()),
    }
}

/// What a yes to a question may cover. Where its task has ended, there is no request that could still be decided: the
/// narrowest is its act, of the next task.
pub(crate) fn offers_of(waiting: &Waiting) -> Vec<Offer> {
    let mut all = offers(&waiting.request);
    // Where data goes, and what untrusted text may have chosen, is said for what is shown alone.
    let of_flow = |reason: &Reason| matches!(reason.code, Code::FlowAsked | Code::InfluenceAsked);
    let asks = waiting.against.reasons.iter();
    if asks.filter(|reason| reason.verdict == Verdict::Ask).any(of_flow) {
        all.retain(Offer::is_request);
    }
    let of_running = |offer: &Offer| waiting.running || !offer.is_request();
    all.into_iter().filter(of_running).collect()
}

/// Looks an answer through.
fn wish(waiting: &Waiting, answer: &Answer, by: &Approver, now: Millis) -> Result<Wish, DeskFault> {
    match answer {
        Answer::No { word } => Ok(Wish::No(word.clone())),
        Answer::More { word } => Ok(Wish::More(word.clone())),
        Answer::Yes { offer, terms, shown } => {
            let other = || DeskFault::Offer(waiting.id);
            let mut all = offers_of(waiting);
            if *offer >= all.len() {
                return Err(other());
            }
            let offer = all.swap_remove(*offer);
            let never = terms.count == Some(0) || terms.until.is_some_and(|until| until <= now);
            let nowhere = !waiting.running && terms.scope == Scope::Task;
            if offer.terms(*terms) != *terms || offer.digest(waiting.id, terms) != *shown || never || nowhere {
                return Err(other());
            }
            may_say_yes(waiting, &offer, by, now)?;
            if !needs_two(waiting) {
                return Ok(Wish::Yes { offer, terms: *terms });
            }
            is_another_pair_of_eyes(waiting, *shown, by)?;
            if waiting.seconded.len().saturating_add(1) >= FOUR_EYES {
                return Ok(Wish::Yes { offer, terms: *terms });
            }
            Ok(Wish::Second {
                shown: *shown,
                sentence: offer.sentence(terms),
            })
        }
    }
}
