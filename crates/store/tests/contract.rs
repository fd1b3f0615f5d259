//! What every store does, whatever it keeps things in. A new backend adds one line at the end.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::sync::Arc;
use std::thread;

use bailiwick_gate::desk::{Granted, Likes, Said, Scope, Terms};
use bailiwick_gate::{GrantRow, Store, TaskRow, TaskState, Waiting};
use bailiwick_model::{
    AbsPath, Act, Anchors, Answered, Code, ContextId, Decision, DecisionId, Digest, GrantId, Millis, Request, Resource,
    TaskId, Verb,
};
use bailiwick_store::SqliteStore;

/// A place where a store can be opened, again and again.
trait Place {
    fn open(&self) -> impl Store + 'static;
}

fn row(number: u8, state: TaskState) -> TaskRow {
    TaskRow {
        id: TaskId([number; 8]),
        context: ContextId("/home/dana/it's \"one\"\n\u{202e}".into()),
        command: vec![
            "claude".into(),
            "-p".into(),
            "a\nb'; DROP TABLE task; --\u{0}".into(),
            String::new(),
        ],
        started: Millis(1_764_437_000_000 + u64::from(number)),
        state,
    }
}

fn p4_trust_is_for_one_content_of_one_file(place: &impl Place) {
    let store = place.open();
    let (one, two) = (Digest([1; 32]), Digest([2; 32]));
    assert!(!store.is_trusted("/p/bailiwick.toml", &one).unwrap());
    store.trust("/p/bailiwick.toml", &one, true, Millis(5)).unwrap();
    store.trust("/p/bailiwick.toml", &one, true, Millis(6)).unwrap();
    assert!(store.is_trusted("/p/bailiwick.toml", &one).unwrap());
    assert!(!store.is_trusted("/p/bailiwick.toml", &two).unwrap());
    assert!(!store.is_trusted("/q/bailiwick.toml", &one).unwrap());
    assert!(!store.is_trusted("/P/bailiwick.toml", &one).unwrap());
    store.trust("/p/bailiwick.toml", &two, false, Millis(7)).unwrap();
    assert!(store.is_trusted("/p/bailiwick.toml", &one).unwrap());
    store.trust("/p/bailiwick.toml", &one, false, Millis(8)).unwrap();
    assert!(!store.is_trusted("/p/bailiwick.toml", &one).unwrap());
}

fn tasks_come_newest_first_and_whole(place: &impl Place) {
    let store = place.open();
    assert_eq!(store.tasks(10).unwrap(), []);
    let ended = TaskState::Ended {
        at: Millis(9),
        status: -1,
    };
    let rows = [
        row(1, TaskState::Running),
        row(2, ended),
        row(
            3,
            TaskState::Lost {
                at: Millis(u64::MAX / 2),
            },
        ),
    ];
    rows.iter().for_each(|row| store.put_task(row).unwrap());
    let newest_first: Vec<_> = rows.iter().rev().cloned().collect();
    assert_eq!(store.tasks(10).unwrap(), newest_first);
    assert_eq!(store.tasks(2).unwrap(), newest_first.split_last().unwrap().1);
    assert_eq!(store.tasks(0).unwrap(), []);

    store.put_task(&row(1, ended)).unwrap();
    assert_eq!(store.tasks(10).unwrap().last(), Some(&row(1, ended)));
}

fn tasks_of_a_dead_daemon_are_marked_once(place: &impl Place) {
    let store = place.open();
    let ended = TaskState::Ended {
        at: Millis(9),
        status: 0,
    };
    for row in [row(1, TaskState::Running), row(2, ended), row(3, TaskState::Running)] {
        store.put_task(&row).unwrap();
    }
    assert_eq!(store.mark_lost(Millis(77)).unwrap(), 2);
    assert_eq!(store.mark_lost(Millis(78)).unwrap(), 0);
    let lost = TaskState::Lost { at: Millis(77) };
    assert_eq!(store.tasks(10).unwrap(), [row(3, lost), row(2, ended), row(1, lost)]);
}

fn content_outlives_the_store_that_wrote_it(place: &impl Place) {
    let store = place.open();
    store.trust("f", &Digest([1; 32]), true, Millis(5)).unwrap();
    store.put_task(&row(1, TaskState::Running)).unwrap();
    drop(store);
    let store = place.open();
    assert!(store.is_trusted("f", &Digest([1; 32])).unwrap());
    assert_eq!(store.tasks(10).unwrap(), [row(1, TaskState::Running)]);
}

fn two_at_once_see_and_keep_each_others_writes(place: &impl Place) {
    let stores = [Arc::new(place.open()), Arc::new(place.open())];
    let write = |store: Arc<_>, from: u8| {
        thread::spawn(move || (from..from + 40).for_each(|number| put(&*store, &row(number, TaskState::Running))))
    };
    let writers = [
        write(stores[0].clone(), 0),
        write(stores[1].clone(), 100),
        write(stores[1].clone(), 200),
    ];
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for store in &stores {
        assert_eq!(store.tasks(200).unwrap().len(), 120);
    }
}

fn waiting(number: u8) -> Waiting {
    let path = AbsPath::new("/p/it's \"one\"\n\u{202e}").unwrap();
    let request = Request::new(TaskId([number; 8]), Verb::Write, Resource::File(path));
    Waiting {
        id: DecisionId([number; 6]),
        digest: bailiwick_gate::digest_of(&request),
        request,
        against: Decision::deny(Code::AskedByRule, "a rule wants a person to say"),
        since: Millis(u64::from(number)),
        deadline: Millis(9),
        context: ContextId("/p".into()),
        command: vec!["claude".into()],
        principal: "dana".into(),
        words: vec![Said {
            asked: Some("why?".into()),
            answered: None,
        }],
        seconded: Vec::new(),
        seconded_to: None,
        approvers: None,
        running: false,
    }
}

fn questions_come_oldest_first_and_whole(place: &impl Place) {
    let store = place.open();
    for number in [3, 1, 2] {
        store.put_question(&waiting(number)).unwrap();
    }
    let told = Waiting {
        words: Vec::new(),
        ..waiting(2)
    };
    store.put_question(&told).unwrap();
    store.drop_question(DecisionId([1; 6])).unwrap();
    store.drop_question(DecisionId([9; 6])).unwrap();
    assert_eq!(store.questions().unwrap(), [told.clone(), waiting(3)]);
    drop(store);
    assert_eq!(place.open().questions().unwrap(), [told, waiting(3)]);
}

fn grant(number: u8) -> GrantRow {
    let nowhere = Anchors {
        root: None,
        home: AbsPath::root(),
    };
    let acts = [
        "write /a/b",
        "run @exact git push 'a b' '\\*'",
        "GET https://*.h.test/x/**",
        "use secret:x",
    ];
    GrantRow {
        granted: Granted {
            id: GrantId([number; 6]),
            sentence: "may change /a/b, at most 3 times, in this context".into(),
            acts: acts.iter().map(|act| Act::parse(act, &nowhere).unwrap()).collect(),
            terms: Terms {
                count: Some(3),
                until: Some(Millis(7)),
                scope: Scope::Context,
            },
            used: 1,
            task: None,
            context: ContextId("/p".into()),
            by: vec!["dana".into(), "eve".into()],
            given: Millis(u64::from(number)),
        },
        only: None,
        against: Decision::deny(Code::AskedByRule, "a rule wants a person to say").reasons,
    }
}

fn p8_grants_are_read_back_as_they_were_given_with_their_uses(place: &impl Place) {
    let store = place.open();
    for number in [2, 1, 3] {
        store.put_grant(&grant(number)).unwrap();
    }
    store.use_grant(GrantId([2; 6]), 3).unwrap();
    store.use_grant(GrantId([2; 6]), 2).unwrap();
    store.use_grant(GrantId([9; 6]), 2).unwrap();
    store.drop_grant(GrantId([3; 6])).unwrap();
    drop(store);
    let mut used = grant(2);
    used.granted.used = 3;
    let store = place.open();
    assert_eq!(store.grants().unwrap(), [grant(1), used.clone()]);
    // One that is narrowed does not forget how often it was used.
    store.put_grant(&grant(2)).unwrap();
    assert_eq!(store.grants().unwrap(), [grant(1), used]);
}

fn the_like_is_counted_by_context(place: &impl Place) {
    let store = place.open();
    let (here, there) = (ContextId("/p".into()), ContextId("/q".into()));
    for answer in [Answered::Yes, Answered::No, Answered::Yes, Answered::Lapsed] {
        store.count(&here, "run git push", answer).unwrap();
    }
    let likes = |context, kind| store.likes(context, kind).unwrap();
    assert_eq!(
        likes(&here, "run git push"),
        Likes {
            asked: 4,
            yes: 2,
            no: 1
        }
    );
    assert_eq!(likes(&there, "run git push"), Likes::default());
    assert_eq!(likes(&here, "run git"), Likes::default());
}

fn put(store: &impl Store, row: &TaskRow) {
    store.put_task(row).unwrap();
}

/// Makes a test of every part of the contract, for one backend.
macro_rules! contract {
    ($name:ident, $place:expr) => {
        mod $name {
            contract!(@each $place; p4_trust_is_for_one_content_of_one_file, tasks_come_newest_first_and_whole,
                tasks_of_a_dead_daemon_are_marked_once, content_outlives_the_store_that_wrote_it,
                two_at_once_see_and_keep_each_others_writes, questions_come_oldest_first_and_whole,
                p8_grants_are_read_back_as_they_were_given_with_their_uses, the_like_is_counted_by_context);
        }
    };
    (@each $place:expr; $($part:ident),*) => {
        $(#[test] fn $part() { super::$part(&$place); })*
    };
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Place for Folder {
    fn open(&self) -> impl Store + 'static {
        SqliteStore::open(&self.0.path().join("store.db")).unwrap()
    }
}

contract!(sqlite, super::Folder::new());
