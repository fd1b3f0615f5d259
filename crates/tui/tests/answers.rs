//! Which key is an answer, and to what.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod person;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Answer, Asked, Closed, DeskFault, Scope, Terms};
use bailiwick_model::{Answered, DecisionId, Millis};
use bailiwick_tui::{Code, Effect, HELD, Key, LOOK, Outcome, Snapshot, key, paste};
use person::{NOW, Person, command, git_push, grant, task, terms};

const Y: Code = Code::Char('y');

/// A person who looks at the first of these questions.
fn looking(asked: Vec<Asked>) -> Person {
    let mut person = Person::at(80, 24);
    person.hears(asked);
    assert!(person.presses(Code::Enter).is_empty());
    person
}

fn answer(effects: &[Effect]) -> (DecisionId, Answer) {
    match effects {
        [Effect::Answer { question, answer, .. }] => (*question, answer.clone()),
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn p8_a_yes_is_for_what_was_shown_and_once() {
    let question = git_push();
    let mut person = looking(vec![question.clone()]);
    let effects = person.presses(Y);
    let (id, said) = answer(&effects);
    assert_eq!((id, Some(said)), (question.id, Answer::once(&question)));
    let Effect::Answer { said: Some(said), .. } = &effects[0] else {
        panic!("nothing said")
    };
    assert!(
        person.sees().contains(said.as_str()),
        "the sentence of the yes is on the screen"
    );
    assert!(person.presses(Y).is_empty(), "one answer");
}

#[test]
fn c047_the_end_has_to_be_on_the_screen_before_a_yes() {
    let last = "rm -r keep";
    let lines: String = (1..250).map(|line| format!("echo {line}\n")).collect::<String>() + last;
    // No two rows of it are the same.
    let counted: String = (0..1000).map(|number| format!("{number:04}")).collect();
    let long = format!("{}; {last}", &counted[..4000 - 2 - last.len()]);
    let blanks = format!("true{}; {last}", " ".repeat(500));
    let big = format!("{}; {last}", "0123456789abcdef".repeat(131_072));
    assert!(big.len() > 2 << 20);
    for (what, script) in [("lines", &lines), ("long", &long), ("blanks", &blanks), ("big", &big)] {
        let begun = Instant::now();
        let mut person = looking(vec![command(1, &["sh", "-c", script])]);
        assert!(!person.sees().contains("y yes"), "{what}");
        assert!(person.presses(Y).is_empty(), "{what}: not before the end");
        assert!(person.sees().contains("read it to its end first"), "{what}");
        // Every character can be reached: all that is drawn on the way down, put together, is the script.
        if what != "big" {
            let mut seen = vec![person.sees()];
            let mut rows = Vec::new();
            while seen.len() < 2 || seen[seen.len() - 1] != seen[seen.len() - 2] {
                person.waits(100);
                person.presses_at_once(Code::Down);
                seen.push(body(&person));
            }
            for screen in &seen[1..] {
                let new = screen.lines().map(str::to_owned).collect::<Vec<_>>();
                let known = (0..=new.len())
                    .find(|skip| rows.ends_with(&new[..new.len() - skip]))
                    .unwrap();
                rows.extend_from_slice(&new[new.len() - known..]);
            }
            let all: String = rows
                .iter()
                .filter_map(|row| row.split_once("│ ").or_else(|| row.split_once("┊ ")))
                .map(|(_, text)| text)
                .collect();
            let want: String = script.split('\n').collect();
            let squeezed = |text: &str| text.replace(' ', "");
            assert!(squeezed(&all).contains(&squeezed(&want)), "{what}: {all}");
        }
        person.presses(Code::End);
        assert!(person.sees().contains(last), "{what}: {}", person.sees());
        assert!(
            person.reads().contains("once, in this task"),
            "{what}: {}",
            person.sees()
        );
        assert_eq!(answer(&person.presses(Y)).0, DecisionId([1, 0, 0, 0, 0, 1]), "{what}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
    }
}

/// The rows between the head and the foot.
fn body(person: &Person) -> String {
    let all = person.sees();
    let rows: Vec<&str> = all.lines().collect();
    rows[2..rows.len() - 2].join("\n")
}

#[test]
fn c047_the_end_that_was_jumped_over_undrawn_does_not_count() {
    let lines: String = (0..250).map(|line| format!("echo {line}\n")).collect();
    let mut person = looking(vec![command(1, &["sh", "-c", &lines])]);
    person.waits(1500);
    // Keys that came together are taken without a frame between them.
    for code in [Code::End, Code::Home, Y] {
        let at = person.at;
        let effects = key(&mut person.state, Key { code, at, held: false });
        assert!(effects.is_empty());
    }
    person.look();
    person.presses(Code::End);
    assert_eq!(person.presses(Y).len(), 1);
}

#[test]
fn c047_a_key_that_was_down_or_typed_ahead_is_no_yes() {
    let question = git_push();
    for early in [0, 1, LOOK - 1] {
        let mut person = looking(vec![question.clone()]);
        person.waits(early);
        assert!(person.presses_at_once(Y).is_empty(), "{early} ms after it came");
        assert!(person.sees().contains("not taken"), "{}", person.sees());
        // The same key, still down: it repeats late, then fast.
        person.waits(660);
        for _ in 0..50 {
            assert!(person.presses_at_once(Y).is_empty());
            person.waits(33);
        }
        assert!(person.sees().contains("the key was down already"));
        person.waits(HELD);
        assert_eq!(person.presses_at_once(Y).len(), 1, "let go, and pressed");
    }
    // Down since the list was there.
    let mut person = Person::at(80, 24);
    person.hears(vec![question.clone()]);
    person.presses(Y);
    for round in 0..100 {
        person.waits(33);
        if round == 10 {
            person.presses_at_once(Code::Enter);
        }
        assert!(person.presses_at_once(Y).is_empty(), "{round}");
    }
    // A terminal that tells what is held is believed.
    let mut person = looking(vec![question]);
    person.waits(5000);
    let at = person.at;
    let held = Key {
        code: Y,
        at,
        held: true,
    };
    assert!(key(&mut person.state, held).is_empty());
}

#[test]
fn c047_what_is_pasted_is_no_yes() {
    let mut person = looking(vec![git_push()]);
    person.waits(2000);
    paste(&mut person.state, "y");
    paste(&mut person.state, "\ry\r");
    person.look();
    assert_eq!(person.presses(Y).len(), 1, "the question waits still");
}

#[test]
fn c048_nothing_of_a_question_draws() {
    let hostile = [
        "\u{1b}[2K\u{1b}[1Aharmless",
        "\u{1b}]8;;https://evil.test\u{7}link\u{1b}]8;;\u{7}",
        "\u{1b}]52;c;aGk=\u{7}",
        "rm -r keep\rls",
        "a\u{202e}b",
        "r\u{200b}m",
        "\u{9b}2J\u{84}\u{85}",
        "e\u{301}\u{301}\u{301}",
        "a\u{2028}b\u{feff}c\u{e0041}",
    ];
    let mut question = command(1, &hostile);
    // Also where the mediator had let it through.
    let all = hostile.join(" ");
    question.act = all.clone();
    question.sentence = all.clone();
    question.kind = all.clone();
    question.command = vec![all.clone()];
    question.context.0 = all.clone();
    question.because = vec![all.clone()];
    question.seconded = vec![all.clone()];
    question.rule = Some(all.clone());
    question.words[..].iter().for_each(drop);
    question.words.push(bailiwick_gate::desk::Said {
        asked: Some(all.clone()),
        answered: Some(all.clone()),
    });
    for detail in &mut question.details {
        detail.name = all.clone();
        detail.lines = vec![all.clone()];
        detail.mind = Some(all.clone());
    }
    for offer in &mut question.offers {
        offer.says = all.clone();
    }
    let second = Asked {
        id: DecisionId([2; 6]),
        ..question.clone()
    };
    let snapshot = Snapshot {
        asked: vec![Arc::new(question), Arc::new(second)],
        granted: vec![grant(1, &all, terms())],
        at_work: vec![bailiwick_gate::desk::AtWork {
            command: vec![all.clone()],
            context: all.clone(),
            ..task(1)
        }],
    };
    for (columns, rows) in [(80, 24), (160, 50), (40, 10), (24, 7)] {
        let mut person = Person::at(columns, rows);
        person.state.renew(Ok(snapshot.clone()));
        person.state.by.name = all.clone();
        let mut bytes = Vec::new();
        let walk = [
            Code::Down,
            Code::Enter,
            Code::PageDown,
            Code::End,
            Code::Char('o'),
            Code::Enter,
            Code::Esc,
            Code::Esc,
            Code::Char('m'),
            Code::Char('\u{1b}'),
            Code::Char('\u{202e}'),
            Code::Esc,
            Code::Esc,
            Code::Char('2'),
            Code::Enter,
            Code::Char('r'),
            Code::Esc,
            Code::Char('c'),
            Code::Esc,
            Code::Esc,
            Code::Char('3'),
            Code::Char('e'),
            Code::Esc,
            Code::Char('1'),
            Code::Char('/'),
            Code::Char('\u{9b}'),
        ];
        for code in walk {
            person.presses(code);
            bytes.extend(written(&person));
        }
        person.state.outcome(Outcome::Answered {
            question: DecisionId([1; 6]),
            said: None,
            result: Err(DeskFault::Fault(all.clone())),
        });
        bytes.extend(written(&person));
        person.state.renew(Err(DeskFault::Fault(all.clone())));
        bytes.extend(written(&person));
        only_our_own(&String::from_utf8(bytes).unwrap());
    }
}

/// The bytes that a terminal gets for what is on the screen.
fn written(person: &Person) -> Vec<u8> {
    use ratatui::backend::CrosstermBackend;
    use ratatui::{Terminal, TerminalOptions, Viewport};
    let mut out = Vec::new();
    let (columns, rows) = person.state.size;
    let area = ratatui::layout::Rect::new(0, 0, columns, rows);
    let options = TerminalOptions {
        viewport: Viewport::Fixed(area),
    };
    let mut terminal = Terminal::with_options(CrosstermBackend::new(&mut out), options).unwrap();
    terminal
        .draw(|frame| bailiwick_tui::draw(frame, &person.state))
        .unwrap();
    drop(terminal);
    out
}

/// Holds where every control character is the beginning of moving the cursor, or of colours: what this program itself writes.
fn only_our_own(text: &str) {
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let hidden = matches!(u32::from(character), 0x80..=0x9f | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0x300..=0x36f | 0xe0000..=0xe0fff);
        assert!(!hidden, "{character:?} went to the terminal");
        if character != '\u{1b}' {
            assert!(!character.is_control(), "{character:?} went to the terminal");
            continue;
        }
        assert_eq!(rest.next(), Some('['), "an escape that is not ours");
        let last = loop {
            match rest.next() {
                Some('0'..='9' | ';' | '?') => {}
                other => break other,
            }
        };
        assert!(
            matches!(last, Some('H' | 'm' | 'l' | 'h')),
            "an escape that is not ours: {last:?}"
        );
    }
}

#[test]
fn c050_of_equal_questions_one_answer_is_for_one() {
    let mut first = command(1, &["touch", "a"]);
    let mut second = command(2, &["touch", "b"]);
    let mut third = command(3, &["touch", "a"]);
    for asked in [&mut first, &mut second, &mut third] {
        asked.kind = "run touch".into();
    }
    let mut person = Person::at(80, 24);
    person.hears(vec![first.clone(), second.clone(), third.clone()]);
    assert!(person.sees().contains("3 alike"), "{}", person.sees());
    person.presses(Code::Down);
    person.presses(Code::Enter);
    let effects = person.presses(Y);
    assert_eq!(answer(&effects).0, first.id);
    let closed = Closed {
        answer: Some(Answered::Yes),
        grant: None,
        released: 0,
    };
    person.state.outcome(Outcome::Answered {
        question: first.id,
        said: None,
        result: Ok(closed),
    });
    person.hears(vec![second.clone(), third.clone()]);
    assert!(
        person.presses(Y).is_empty(),
        "nothing is open: a key in the list answers nothing"
    );
    // Two people: the second is told.
    person.presses(Code::Down);
    person.presses(Code::Enter);
    let (id, _) = answer(&person.presses(Y));
    person.state.outcome(Outcome::Answered {
        question: id,
        said: None,
        result: Err(DeskFault::Unknown(id)),
    });
    person.look();
    let seen = person.sees();
    assert!(
        seen.contains("your answer was not taken") && seen.contains("answered by somebody else"),
        "{seen}"
    );
    assert!(person.presses(Y).is_empty());
}

#[test]
fn c045_what_is_stored_is_what_was_shown() {
    let question = git_push();
    let mut person = looking(vec![question.clone()]);
    person.presses(Code::End);
    person.presses(Code::Char('o'));
    person.presses(Code::Down);
    person.presses(Code::Down);
    person.presses(Code::Enter);
    person.presses(Code::Right);
    person.presses(Code::Down);
    person.presses(Code::Char('t'));
    person.types("20:00");
    person.presses(Code::Enter);
    person.presses(Code::Down);
    person.presses(Code::Right);
    let effects = person.presses(Y);
    let until = Millis(1_796_065_200_000);
    let want = Terms {
        count: Some(3),
        until: Some(until),
        scope: Scope::Context,
    };
    let [
        Effect::Answer {
            question: id,
            answer,
            said: Some(said),
        },
    ] = effects.as_slice()
    else {
        panic!("no answer: {}", person.sees())
    };
    assert_eq!(Some(answer.clone()), Answer::yes(&question, 2, want));
    assert_eq!(
        *said,
        "may run git push origin, with any further words, at most 3 times, until 2026-11-30 19:00:00 UTC, in this context"
    );
    let seen = person.reads();
    assert!(seen.contains(said.as_str()), "{seen}");
    assert!(seen.contains("20:00:00 CET here"), "{seen}");
    // What the desk says it has kept is held against it.
    let mut stored = grant(9, "may run git push origin, with any further words", want);
    for (sentence, wide) in [(said.clone(), false), ("may run git push".to_owned(), true)] {
        stored.sentence = sentence;
        let closed = Closed {
            answer: Some(Answered::Yes),
            grant: Some(stored.clone()),
            released: 1,
        };
        let outcome = Outcome::Answered {
            question: *id,
            said: Some(said.clone()),
            result: Ok(closed),
        };
        person.state.outcome(outcome);
        person.look();
        let seen = person.reads();
        assert_eq!(seen.contains("says something else than was shown"), wide, "{seen}");
        assert_eq!(
            seen.contains("yes (grant 090000000009): may run git push origin"),
            !wide,
            "{seen}"
        );
    }
}

#[test]
fn p8_another_choice_is_another_sentence_to_be_seen() {
    let mut person = looking(vec![git_push()]);
    person.presses(Code::End);
    person.presses(Code::Char('o'));
    person.presses(Code::Down);
    person.presses(Code::Enter);
    person.presses(Code::Right);
    person.waits(LOOK - 1);
    assert!(person.presses_at_once(Y).is_empty());
    person.presses(Code::Left);
    // Its time passes while it stands there.
    person.waits(11 * 60_000);
    assert!(person.presses_at_once(Y).is_empty());
}

#[test]
fn p4_a_question_that_is_over_takes_no_answer() {
    let question = git_push();
    let mut person = looking(vec![question.clone()]);
    person.waits(252_000);
    assert!(person.sees().contains("silence was a no"), "{}", person.sees());
    for code in [Y, Code::Char('n'), Code::Char('o'), Code::Char('w'), Code::Char('m')] {
        assert!(person.presses(code).is_empty());
    }
    assert!(
        person.sees().contains("over: its deadline has passed"),
        "{}",
        person.sees()
    );
    // Answered elsewhere, also while a wider answer is being chosen.
    let mut person = looking(vec![question]);
    person.presses(Code::End);
    person.presses(Code::Char('o'));
    person.presses(Code::Down);
    person.presses(Code::Enter);
    person.hears(vec![command(2, &["touch", "a"])]);
    assert!(person.presses(Y).is_empty());
    assert!(
        person.reads().contains("answered by somebody else, or ended"),
        "{}",
        person.sees()
    );
}

#[test]
fn p8_what_comes_moves_nothing_and_what_changes_is_seen_again() {
    let question = git_push();
    let mut person = looking(vec![question.clone()]);
    let before = body(&person);
    let others = |first: u8| (first..first + 30).map(|number| command(number, &["touch", "a"]));
    person.hears(others(10).chain([question.clone()]).chain(others(50)).collect());
    assert_eq!(body(&person), before);
    assert_eq!(answer(&person.presses(Y)).0, question.id);
    // Other offers: what was shown does not hold any more.
    let mut person = looking(vec![question.clone()]);
    person.waits(2000);
    let mut changed = question.clone();
    changed.offers[0].says = "may run git push --force".into();
    person.hears(vec![changed.clone()]);
    assert!(person.presses_at_once(Y).is_empty());
    assert!(person.sees().contains("it came before this could be looked at"));
    person.waits(2000);
    assert_eq!(Some(answer(&person.presses_at_once(Y)).1), Answer::once(&changed));
    // More words of the agent's are no other question.
    let mut person = looking(vec![question.clone()]);
    person.waits(2000);
    let mut more = question;
    more.seconded.push("ana".into());
    person.hears(vec![more]);
    assert_eq!(person.presses_at_once(Y).len(), 1);
}

#[test]
fn p8_after_a_pause_it_has_to_be_looked_at_again() {
    let mut person = looking(vec![git_push()]);
    person.waits(5000);
    person.state.was_away();
    assert!(person.presses_at_once(Y).is_empty());
    let mut person = looking(vec![git_push()]);
    person.resizes(20, 5);
    assert!(person.presses(Y).is_empty(), "too small to be seen");
    person.resizes(80, 24);
    assert_eq!(person.presses(Y).len(), 1);
}

#[test]
fn no_and_more_go_with_their_words() {
    let question = git_push();
    let mut person = looking(vec![question.clone()]);
    assert_eq!(answer(&person.presses(Code::Char('n'))).1, Answer::No { word: None });
    let mut person = looking(vec![question.clone()]);
    person.presses(Code::Char('w'));
    person.types("use agent/x yy\u{1b}[2K");
    let word = Some("use agent/x yy\\u{1b}[2K".into());
    assert_eq!(answer(&person.presses(Code::Enter)).1, Answer::No { word });
    let mut person = looking(vec![question]);
    person.presses(Code::Char('m'));
    assert!(person.presses(Code::Enter).is_empty(), "nothing is asked");
    paste(&mut person.state, "which\nbranch?");
    let word = "which branch?".into();
    assert_eq!(answer(&person.presses(Code::Enter)).1, Answer::More { word });
}

#[test]
fn p11_grants_are_cut_down_and_revoked_and_tasks_ended_after_a_second_look() {
    let terms = terms();
    let held = grant(1, "may run git push origin, with any further words", terms);
    let mut person = Person::at(80, 24);
    let snapshot = Snapshot {
        granted: vec![held.clone()],
        at_work: vec![task(3)],
        ..Snapshot::default()
    };
    person.state.renew(Ok(snapshot.clone()));
    person.presses(Code::Char('2'));
    person.presses(Code::Char('r'));
    assert!(
        person.presses_at_once(Y).is_empty(),
        "it came together with the question"
    );
    assert_eq!(person.presses(Y), [Effect::Revoke(held.id)]);
    person.presses(Code::Char('c'));
    assert!(person.presses(Y).is_empty(), "nothing is less yet");
    person.presses(Code::Right);
    person.presses(Code::Char('t'));
    person.types("21:00");
    person.presses(Code::Enter);
    assert!(
        person.sees().contains("not earlier than it ends now"),
        "{}",
        person.sees()
    );
    person.presses(Code::Esc);
    person.presses(Code::Down);
    person.presses(Code::Right);
    let effects = person.presses(Y);
    let [Effect::Narrow(id, less)] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!((*id, less.count), (held.id, Some(1)));
    assert!(less.until < terms.until && less.until > Some(NOW));
    person.presses(Code::Char('3'));
    person.presses(Code::Char('e'));
    assert!(person.presses_at_once(Y).is_empty());
    assert!(person.presses(Code::Esc).is_empty());
    person.presses(Code::Char('e'));
    assert_eq!(person.presses(Y), [Effect::End(task(3).id)]);
    // What is gone takes with it what lay above it.
    person.presses(Code::Char('2'));
    person.presses(Code::Char('r'));
    person.state.renew(Ok(Snapshot::default()));
    assert!(person.presses(Y).is_empty());
}

#[test]
fn a_thousand_questions_stay_usable() {
    let all: Vec<Asked> = (0..1000_u32)
        .map(|number| {
            let mut asked = command(1, &["touch", &format!("file-{number}")]);
            let [.., a, b] = number.to_be_bytes();
            asked.id = DecisionId([1, 0, 0, 0, a, b]);
            asked.kind = format!("run touch {}", number % 7);
            asked
        })
        .collect();
    let mut person = Person::at(80, 24);
    let begun = Instant::now();
    person.hears(all.clone());
    let seen = person.sees();
    assert!(
        seen.contains("[Questions 1000]") && seen.contains("▸ run touch 6"),
        "{seen}"
    );
    assert_eq!(seen.matches("alike").count(), 7);
    person.types("/file-77");
    let seen = person.sees();
    assert!(seen.contains("run touch file-77"), "{seen}");
    person.presses(Code::Enter);
    person.presses(Code::Esc);
    for round in 0..50 {
        person.hears(all[round..].to_vec());
        person.presses(Code::Down);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
