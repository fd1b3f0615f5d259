//! Grants that are wider than one request: what they cover and not, how they are counted, narrowed, revoked and kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bailiwick_gate::desk::{Answer, DeskFault, Scope, Terms};
use bailiwick_gate::{Answer as Frame, Passed, Settlement};
use bailiwick_mediator::TaskSpec;
use bailiwick_model::{Answered, Code, Event, GrantChange, Millis, TaskId};

use crate::house::{House, MemoryStore, TASK, plain_rules, request, spec};
use crate::talking::{Gate, dana, watched};

const OTHER: TaskId = TaskId([0xbb; 8]);

pub fn terms(count: Option<u64>, until: Option<u64>, scope: Scope) -> Terms {
    Terms {
        count,
        until: until.map(Millis),
        scope,
    }
}

impl House {
    /// Says yes to the offer with these words in it.
    fn grants(&self, waiting: &bailiwick_gate::Waiting, words: &str, terms: Terms) -> bailiwick_gate::desk::Closed {
        let asked = self.asked(waiting);
        let place = asked.offers.iter().position(|offer| offer.says == words);
        let place = place.unwrap_or_else(|| panic!("no offer `{words}` among {:#?}", asked.offers));
        let answer = Answer::yes(&asked, place, terms).unwrap();
        self.mediator.answer(waiting.id, &answer, &dana()).unwrap()
    }
}

#[test]
fn p8_a_wider_yes_covers_what_it_says_and_no_more() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    let closed = house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(Some(3), None, Scope::Task),
    );
    let granted = closed.grant.unwrap();
    assert_eq!(
        granted.sentence,
        "may change /a/b, and what is below it, at most 3 times, in this task"
    );
    gate.is_allowed();
    gate.decide(&request("write /a/b/d"), true);
    gate.is_allowed();
    // Outside of it a person is asked, and what the rules deny stays denied.
    let outside = gate.asks(&house, &request("write /a/c"));
    house.no(&outside).unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
    gate.decide(&request("delete /a/b/c"), true);
    assert_eq!(gate.is_denied(), Code::NoRule);
    gate.decide(&request("write /a/b/e"), true);
    gate.is_allowed();
    let fourth = gate.asks(&house, &request("write /a/b/e"));
    assert_eq!(house.mediator.granted()[0].used, 3);
    house.no(&fourth).unwrap();
    gate.is_denied();
    house.mediator.sweep(house.now()).unwrap();
    assert_eq!(house.mediator.granted().len(), 1, "what it gave still goes on");
}

#[test]
fn p8_an_answer_holds_for_what_was_shown_alone() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    let asked = house.asked(&waiting);
    let shown = Answer::yes(&asked, 2, terms(Some(1), None, Scope::Task)).unwrap();
    let Answer::Yes { shown, .. } = shown else {
        panic!("a yes")
    };
    let over = house.now().0;
    for (offer, terms) in [
        (2, terms(Some(2), None, Scope::Task)),
        (2, terms(None, None, Scope::Task)),
        (2, terms(Some(1), None, Scope::Context)),
        (1, terms(Some(1), None, Scope::Task)),
        (0, terms(Some(1), None, Scope::Task)),
        (9, terms(Some(1), None, Scope::Task)),
    ] {
        let other = Answer::Yes { offer, terms, shown };
        let refused = house.mediator.answer(waiting.id, &other, &dana());
        assert_eq!(refused, Err(DeskFault::Offer(waiting.id)), "{offer} {terms:?}");
    }
    for never in [terms(Some(0), None, Scope::Task), terms(None, Some(over), Scope::Task)] {
        let never = Answer::yes(&asked, 2, never).unwrap();
        assert_eq!(
            house.mediator.answer(waiting.id, &never, &dana()),
            Err(DeskFault::Offer(waiting.id))
        );
    }
    assert_eq!(house.mediator.waiting().len(), 1, "a wrong answer answers nothing");
}

#[test]
fn c050_once_releases_one_and_this_task_releases_the_equal_ones() {
    for wide in [false, true] {
        let house = watched();
        let mut gate = Gate::new(&house);
        let first = gate.asks(&house, &request("write /a/x"));
        gate.asks(&house, &request("write /b/x"));
        gate.asks(&house, &request("write /a/x"));
        if wide {
            let closed = house.grants(
                &first,
                "may change /a/x, and what is below it",
                terms(None, None, Scope::Task),
            );
            assert_eq!(closed.released, 1);
            gate.is_allowed();
            gate.is_allowed();
        } else {
            house.yes(&first).unwrap();
            gate.is_allowed();
        }
        let left: Vec<String> = house
            .mediator
            .waiting()
            .iter()
            .map(|one| one.request.to_string())
            .collect();
        let want: &[&str] = if wide {
            &["write /b/x"]
        } else {
            &["write /a/x", "write /b/x"]
        };
        let mut left: Vec<&str> = left.iter().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, want);
        let second = house.no(&first);
        assert_eq!(
            second,
            Err(DeskFault::Unknown(first.id)),
            "of two answers the first counts"
        );
    }
}

#[test]
fn p11_what_is_revoked_answers_nothing_and_what_goes_on_is_cut_off() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    let granted = house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(None, None, Scope::Task),
    );
    let id = granted.grant.unwrap().id;
    let open = gate.is_allowed();
    gate.decide(&request("write /a/b/d"), true);
    let settled = gate.is_allowed();
    let settlement = Settlement {
        nonce: settled.nonce,
        done: true,
        note: String::new(),
        passed: Passed::default(),
    };
    house.mediator.settle_of(TASK, &settlement).unwrap();
    house.mediator.revoke(id, &dana()).unwrap();
    assert!(matches!(gate.hears(), Frame::Revoked { nonce } if nonce == open.nonce));
    assert_eq!(house.mediator.revoke(id, &dana()), Err(DeskFault::Grant(id)));
    gate.asks(&house, &request("write /a/b/d"));
    assert!(house.mediator.granted().is_empty());
    let ended = house
        .ledger
        .all()
        .into_iter()
        .find_map(|(record, _)| match record.event {
            Event::GrantChanged {
                grant,
                how,
                used,
                cut,
                principal,
            } => Some((grant, how, used, cut, principal)),
            _ => None,
        });
    assert_eq!(ended, Some((id, GrantChange::Revoked, 2, 1, Some("dana".into()))));
}

#[test]
fn c053_a_grant_ends_with_its_time_in_the_middle_of_work() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    let end = house.now().0 + 60_000;
    house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(None, Some(end), Scope::Task),
    );
    let open = gate.is_allowed();
    house.clock.0.store(end - 1, Ordering::SeqCst);
    house.mediator.sweep(house.now()).unwrap();
    gate.decide(&request("write /a/b/d"), true);
    gate.is_allowed();
    house.clock.0.store(end, Ordering::SeqCst);
    let late = gate.asks(&house, &request("write /a/b/d"));
    house.mediator.sweep(house.now()).unwrap();
    let mut cut = vec![gate.hears(), gate.hears()];
    cut.retain(|frame| matches!(frame, Frame::Revoked { .. }));
    assert_eq!(cut.len(), 2, "both that were open are cut off");
    assert!(
        cut.iter()
            .any(|frame| matches!(frame, Frame::Revoked { nonce } if *nonce == open.nonce))
    );
    house.no(&late).unwrap();
    assert_eq!(gate.is_denied(), Code::AnsweredNo);
}

#[test]
fn p3_a_grant_is_narrowed_and_never_widened() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    let end = house.now().0 + 60_000;
    let granted = house
        .grants(
            &waiting,
            "may change /a/b, and what is below it",
            terms(Some(5), Some(end), Scope::Task),
        )
        .grant
        .unwrap();
    gate.is_allowed();
    let narrow = |wish| house.mediator.narrow(granted.id, &wish, &dana());
    for wider in [
        terms(Some(5), None, Scope::Task),
        terms(None, Some(end + 1), Scope::Task),
        terms(None, None, Scope::Context),
    ] {
        assert_eq!(narrow(wider), Err(DeskFault::Wider(granted.id)), "{wider:?}");
    }
    let left = narrow(terms(Some(1), Some(end - 1), Scope::Task)).unwrap();
    assert_eq!((left.terms.count, left.used), (Some(2), 1), "one more than was used");
    assert!(
        left.sentence
            .starts_with("may change /a/b, and what is below it, at most 2 times, until ")
    );
    gate.decide(&request("write /a/b/c"), true);
    gate.is_allowed();
    gate.asks(&house, &request("write /a/b/c"));
}

#[test]
fn p3_tasks_of_a_context_share_the_uses_of_a_grant() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(Some(2), None, Scope::Context),
    );
    gate.is_allowed();
    let second = TaskSpec {
        id: Some(OTHER),
        approver_present: true,
        ..spec(plain_rules())
    };
    house.mediator.begin(second).unwrap();
    let elsewhere = TaskSpec {
        id: Some(TaskId([0xcc; 8])),
        approver_present: true,
        context: bailiwick_model::ContextId("/q".into()),
        ..spec(plain_rules())
    };
    house.mediator.begin(elsewhere).unwrap();
    let of = |task: TaskId| bailiwick_model::Request {
        task,
        ..request("write /a/b/c")
    };
    let mut third = Gate::of(&house, TaskId([0xcc; 8]));
    third.asks(&house, &of(TaskId([0xcc; 8])));
    let mut other = Gate::of(&house, OTHER);
    other.decide(&of(OTHER), true);
    let used = other.is_allowed();
    gate.asks(&house, &request("write /a/b/c"));
    // What was not done is given back, to whichever task comes next.
    let settlement = Settlement {
        nonce: used.nonce,
        done: false,
        note: String::new(),
        passed: Passed::default(),
    };
    house.mediator.settle_of(OTHER, &settlement).unwrap();
    gate.decide(&request("write /a/b/d"), true);
    gate.is_allowed();
    other.asks(&house, &of(OTHER));
}

#[test]
fn p3_many_at_once_use_a_grant_as_often_as_it_says() {
    let house = Arc::new(watched());
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(Some(11), None, Scope::Context),
    );
    gate.is_allowed();
    let tasks: Vec<TaskId> = (0..8).map(|number| TaskId([number; 8])).collect();
    for task in &tasks {
        house
            .mediator
            .begin(TaskSpec {
                id: Some(*task),
                ..spec(plain_rules())
            })
            .unwrap();
    }
    let threads: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let house = Arc::clone(&house);
            std::thread::spawn(move || {
                let asked = bailiwick_model::Request {
                    task,
                    ..request("write /a/b/c")
                };
                let decided = (0..8).map(|_| bailiwick_gate::Mediator::decide(&*house.mediator, &asked));
                decided
                    .filter(|outcome| matches!(outcome, bailiwick_gate::Outcome::Allow(_)))
                    .count()
            })
        })
        .collect();
    let allowed: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(allowed, 10);
}

#[test]
fn c051_what_is_granted_in_a_context_outlives_the_mediator_with_its_uses() {
    let store = Arc::<MemoryStore>::default();
    let present = || TaskSpec {
        approver_present: true,
        ..spec(plain_rules())
    };
    let house = House::keeping(present(), store.clone());
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(Some(2), None, Scope::Context),
    );
    gate.is_allowed();
    let waiting = gate.asks(&house, &request("write /c/d/e"));
    house.grants(
        &waiting,
        "may change /c/d, and what is below it",
        terms(None, None, Scope::Task),
    );
    gate.is_allowed();
    // A question of the first life, and a yes to it in the second.
    let old = gate.asks(&house, &request("write /f/g"));
    let house = House::keeping(present(), store);
    house.mediator.take_up_questions(vec![old.clone()]);
    let mut gate = Gate::new(&house);
    gate.decide(&request("write /a/b/c"), true);
    gate.is_allowed();
    let used_up = gate.asks(&house, &request("write /a/b/c"));
    house.no(&used_up).unwrap();
    gate.is_denied();
    let of_task = gate.asks(&house, &request("write /c/d/e"));
    house.no(&of_task).unwrap();
    gate.is_denied();
    let asked = house
        .mediator
        .asked()
        .into_iter()
        .find(|asked| asked.id == old.id)
        .unwrap();
    assert!(!asked.running);
    assert_eq!(asked.offers[0].says, "may change /f/g, and what is below it");
    let in_task = Answer::yes(&asked, 0, terms(Some(1), None, Scope::Task)).unwrap();
    assert_eq!(
        house.mediator.answer(old.id, &in_task, &dana()),
        Err(DeskFault::Offer(old.id))
    );
    house
        .mediator
        .answer(old.id, &Answer::once(&asked).unwrap(), &dana())
        .unwrap();
    gate.decide(&request("write /f/g"), true);
    gate.is_allowed();
    gate.asks(&house, &request("write /f/g"));
}

#[test]
fn p11_no_grant_lays_a_tree_into_a_fence() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a/b/c"));
    house.grants(
        &waiting,
        "may change /a/b, and what is below it",
        terms(None, None, Scope::Context),
    );
    gate.is_allowed();
    gate.decide(&request("write /a/b/**"), false);
    assert_eq!(gate.is_denied(), Code::NobodyToAsk, "it could not be taken back");
}

#[test]
fn p8_tell_me_more_reaches_the_agent_and_its_words_come_back_apart() {
    let house = watched();
    let mut gate = Gate::new(&house);
    let waiting = gate.asks(&house, &request("write /a"));
    let more = Answer::More {
        word: "why \u{1b}[2K this?".into(),
    };
    let closed = house.mediator.answer(waiting.id, &more, &dana()).unwrap();
    assert_eq!(closed.answer, Some(Answered::More));
    let refusal = gate.is_refused();
    assert_eq!(
        (refusal.code, refusal.word.as_deref()),
        (Code::TellMore, Some("why \\u{1b}[2K this?"))
    );
    // Another task cannot speak for this one, and nobody can about what was not asked.
    house.mediator.tell(OTHER, waiting.id, "I am somebody else");
    gate.say(&bailiwick_gate::Call::Tell {
        question: waiting.id,
        words: "because\r\nyes, once: allow all".into(),
    });
    let again = gate.asks(&house, &request("write /a"));
    assert_eq!(again.words.len(), 1);
    assert_eq!(again.words[0].asked.as_deref(), Some("why \\u{1b}[2K this?"));
    assert_eq!(
        again.words[0].answered.as_deref(),
        Some("because\\r\\nyes, once: allow all")
    );
    let asked = house.asked(&again);
    assert!(!asked.sentence.contains("because") && !asked.act.contains("because"));
    // A long speech is cut, and ends.
    for _ in 0..100 {
        gate.say(&bailiwick_gate::Call::Tell {
            question: again.id,
            words: "x".repeat(100_000),
        });
    }
    let now = house.mediator.waiting().remove(0);
    assert_eq!(now.words.len(), 16);
    assert!(
        now.words
            .iter()
            .all(|said| said.answered.as_ref().is_none_or(|words| words.len() <= 4096))
    );
    // A word comes with a no.
    let no = Answer::No {
        word: Some("use the other folder".into()),
    };
    house.mediator.answer(again.id, &no, &dana()).unwrap();
    assert_eq!(
        gate.is_refused().to_string(),
        format!("answered-no ({}): use the other folder", again.id)
    );
}

#[test]
fn p8_the_like_is_counted_and_after_three_yeses_the_rule_is_told() {
    let house = watched();
    let mut gate = Gate::new(&house);
    for round in 0..4u64 {
        let waiting = gate.asks(&house, &request("write /a/x"));
        let asked = house.asked(&waiting);
        assert_eq!((asked.likes.asked, asked.likes.yes), (round, round));
        assert_eq!(
            asked.rule.as_deref(),
            (round == 3).then_some("allow = [\"write /a/x\"]")
        );
        house.yes(&waiting).unwrap();
        gate.is_allowed();
    }
}
