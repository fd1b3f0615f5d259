//! What stands on the screen: a frame of every kind of question, on screens of three sizes, and of every other page.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod person;

use bailiwick_gate::desk::{Asked, Detail};
use bailiwick_model::{Method, Verb};
use bailiwick_tui::{Code, Snapshot};
use person::{Person, asked, command, git_push, grant, offer, piece, task, terms};

/// The page of a question, on a usual, a wide and a tiny screen.
fn page(question: &Asked) -> String {
    let mut all = String::new();
    for (columns, rows) in [(80, 24), (160, 50), (40, 10)] {
        let mut person = Person::at(columns, rows);
        person.hears(vec![question.clone()]);
        person.presses(Code::Enter);
        all.push_str(&format!("── {columns}×{rows}\n{}", person.sees()));
    }
    all
}

fn file() -> Asked {
    let path = "/home/dana/Documents/taxes 2026/größe.pdf";
    let mut asked = asked(
        2,
        Verb::Read,
        &format!("read {path}"),
        &format!("codex wants to read {path}"),
        vec![piece("path", path)],
    );
    asked.kind = "read /home/dana/Documents/taxes 2026".into();
    asked.because = vec!["`ask = [\"~/Documents/**\"]` in bailiwick.toml:3 wants a person to say".into()];
    let folder = "/home/dana/Documents/taxes 2026";
    asked.offers.push(offer(
        Some(&format!("read {folder}/**")),
        &format!("may read {folder}, and what is below it"),
    ));
    asked
}

fn url() -> Asked {
    let url = "https://xn--pi-7kc.example.test/v1/items?q=1&token=abc";
    let verb = Verb::Http(Method::parse("POST").unwrap());
    let mut asked = asked(
        3,
        verb,
        &format!("POST {url}"),
        &format!("codex wants to send POST {url} at 203.0.113.7"),
        vec![
            piece("method", "POST"),
            piece("scheme", "https"),
            Detail {
                mind: Some(
                    "elsewhere this is shown as `аpi.example.test`: letters of several scripts, it may look like another name"
                        .into(),
                ),
                ..piece("host", "xn--pi-7kc.example.test")
            },
            piece("port", "443"),
            piece("path", "/v1/items"),
            piece("query q", "1"),
            piece("query token", "abc"),
            piece("address", "203.0.113.7"),
            piece("content-length", "120"),
        ],
    );
    asked.kind = "POST xn--pi-7kc.example.test".into();
    asked.seconded = vec!["ana".into()];
    asked
}

#[test]
fn p8_every_kind_of_question_is_there_whole() {
    let tunnel = asked(
        5,
        Verb::Tunnel,
        "tunnel db.example.test:5432",
        "codex wants to connect to db.example.test:5432, unread",
        vec![piece("host", "db.example.test"), piece("port", "5432")],
    );
    let secret = asked(
        6,
        Verb::Use,
        "use secret:github",
        "git wants to use secret:github",
        vec![piece("secret", "secret:github")],
    );
    let name = asked(
        7,
        Verb::Resolve,
        "resolve example.test",
        "curl wants to look up the name example.test",
        vec![piece("host", "example.test")],
    );
    let mut push = git_push();
    push.running = true;
    for (kind, question) in [
        ("file", file()),
        ("url", url()),
        (
            "command",
            command(4, &["sh", "-c", "make clean &&\nrm -r ./tmp\n\techo done"]),
        ),
        ("push", push),
        ("tunnel", tunnel),
        ("secret", secret),
        ("name", name),
    ] {
        insta::assert_snapshot!(format!("question_{kind}"), page(&question));
    }
}

#[test]
fn a_question_whose_task_has_ended_says_so() {
    let mut question = git_push();
    question.running = false;
    question.offers.remove(0);
    insta::assert_snapshot!("question_of_an_ended_task", page(&question));
}

/// Three lists and what lies above them.
#[test]
fn lists_and_forms() {
    let mut person = Person::at(80, 24);
    insta::assert_snapshot!("asking", person.sees());
    person.hears(Vec::new());
    insta::assert_snapshot!("nothing_waits", person.sees());
    let mut several: Vec<Asked> = vec![git_push(), file(), url()];
    several.extend((10..13).map(|number| {
        let mut asked = command(number, &["touch", "a"]);
        asked.kind = "run touch".into();
        asked
    }));
    several[1].deadline.0 = person::NOW.0 + 50_000;
    let snapshot = Snapshot {
        asked: several.into_iter().map(std::sync::Arc::new).collect(),
        granted: vec![
            grant(1, "may run git push origin, with any further words", terms()),
            grant(
                2,
                "may read /home/dana/Documents/taxes 2026, and what is below it",
                Default::default(),
            ),
        ],
        at_work: vec![task(7), task(8)],
    };
    person.state.renew(Ok(snapshot));
    person.look();
    insta::assert_snapshot!("questions", person.sees());
    person.presses(Code::Tab);
    insta::assert_snapshot!("grants", person.sees());
    person.presses(Code::Enter);
    insta::assert_snapshot!("grant", person.sees());
    person.presses(Code::Char('c'));
    insta::assert_snapshot!("grant_cut_down", person.sees());
    person.presses(Code::Esc);
    person.presses(Code::Char('r'));
    insta::assert_snapshot!("grant_revoke", person.sees());
    person.presses(Code::Esc);
    person.presses(Code::Esc);
    person.presses(Code::Tab);
    insta::assert_snapshot!("tasks", person.sees());
    person.presses(Code::Char('e'));
    insta::assert_snapshot!("task_end", person.sees());
    person.presses(Code::Esc);
    person.presses(Code::Char('1'));
    person.presses(Code::Enter);
    person.presses(Code::Char('o'));
    insta::assert_snapshot!("offers", person.sees());
    person.presses(Code::Down);
    person.presses(Code::Down);
    person.presses(Code::Enter);
    insta::assert_snapshot!("terms", person.sees());
    person.resizes(40, 10);
    insta::assert_snapshot!("terms_tiny", person.sees());
    person.resizes(80, 24);
    person.presses(Code::Esc);
    person.presses(Code::Esc);
    person.presses(Code::Char('m'));
    person.types("which branch is that, and what is on it?");
    insta::assert_snapshot!("tell_more", person.sees());
    person.presses(Code::Esc);
    person.presses(Code::Char('?'));
    insta::assert_snapshot!("keys", person.sees());
    person.resizes(20, 4);
    insta::assert_snapshot!("too_small", person.sees());
}
