//! What a person says, and what comes of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::desk::{Answer, Known, Scope, Terms};
use bailiwick_model::{GrantId, Millis};

use crate::client::{Browser, Heard, get, post, token};
use crate::fake::{NOW, Served, Still, dana, every_kind, grant, id, question, serve, some_times};

fn house() -> (Served, Browser) {
    let served = serve(Arc::new(Still));
    let browser = Browser::enter(&served);
    (served, browser)
}

/// Long enough for a yes to be taken.
fn pause() {
    std::thread::sleep(Duration::from_millis(520));
}

fn ask(served: &Served, number: u32) -> String {
    let asked = question(
        number,
        "claude wants to run git push origin main",
        "run git push",
        &[("program", "git"), ("word 1", "push")],
    );
    served.desk.change(|held| held.asked.push(asked));
    format!("/question/{}", id(number))
}

#[test]
fn p8_a_yes_is_for_the_sentence_that_was_shown() {
    let (served, browser) = house();
    let page = ask(&served, 1);
    let shown = browser.get(&page);
    assert_eq!(shown.status, 200);
    assert!(
        shown.body.contains("may run git push origin main, once, in this task"),
        "{}",
        shown.body
    );
    let yes = browser.yes_fields(&shown);
    pause();
    let told = browser.follow(&browser.post(&format!("{page}/yes"), &yes));
    assert!(
        told.body
            .contains("yes: may run git push origin main, once, in this task"),
        "{}",
        told.body
    );
    let said = served.desk.look(|held| held.said.clone());
    let [(question, answer, by)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!((*question, by), (id(1), &dana()));
    assert!(
        matches!(answer, Answer::Yes { offer: 0, terms, .. } if terms.count == Some(1) && terms.scope == Scope::Task)
    );
}

#[test]
fn p8_a_wider_yes_has_its_terms_in_the_sentence_and_the_digest() {
    let (served, browser) = house();
    let page = ask(&served, 1);
    browser.get(&page);
    let query = "?offer=1&often=times&times=4&long=10m&scope=context";
    let shown = browser.get(&format!("{page}/offer{query}"));
    let sentence = "may read /home/dana/reference, and what is below it, at most 4 times, until 2026-11-30 18:14:05 UTC, in this context";
    assert!(shown.body.contains(sentence), "{}", shown.body);
    let seen = browser.get(&page).field("seen").unwrap();
    let yes = format!("{}&seen={seen}", browser.yes_fields(&shown));
    pause();
    // A form that was changed on the way: the digest fits no other terms, no other offer and no other question.
    for (from, to) in [
        ("count=4", "count=5"),
        ("count=4", "count=any"),
        ("scope=context", "scope=task"),
        ("offer=1", "offer=2"),
        ("offer=1", "offer=9"),
        ("until=", "until=9"),
    ] {
        let changed = yes.replacen(from, to, 1);
        assert_ne!(changed, yes);
        let told = browser.follow(&browser.post(&format!("{page}/yes"), &changed));
        assert!(
            told.body.contains("your answer was not taken"),
            "{changed}: {}",
            told.body
        );
        pause();
    }
    assert!(served.desk.look(|held| held.said.is_empty()));
    // The same by a page without a script.
    let plain = browser.get(&format!("{page}{query}"));
    assert_eq!(browser.yes_fields(&plain), yes);
    pause();
    browser.follow(&browser.post(&format!("{page}/yes"), &yes));
    let granted = served.desk.look(|held| held.granted.clone());
    assert_eq!(granted[0].sentence, sentence);
}

#[test]
fn p8_what_was_not_shown_to_its_end_gets_no_yes() {
    let (served, browser) = house();
    let long = every_kind()
        .into_iter()
        .find(|(name, _)| *name == "run-long-script")
        .unwrap()
        .1;
    let page = format!("/question/{}", long.id);
    served.desk.change(|held| held.asked.push(long));
    let first = browser.get(&page);
    assert!(first.body.contains("Part 1 of 2") && first.body.contains("echo step 1<"));
    assert!(!first.body.contains("step 249<"), "the second part stands in the first");
    assert_eq!(first.field("seen"), None);
    assert!(
        first.body.contains("id=\"say-yes\" type=\"submit\" disabled"),
        "{}",
        first.body
    );
    pause();
    let mut yes = browser.yes_fields(&first);
    for seen in ["", "&seen=", &format!("&seen={}", "07".repeat(16))] {
        let told = browser.follow(&browser.post(&format!("{page}/yes"), &format!("{yes}{seen}")));
        assert!(told.body.contains("was not shown to its end"), "{}", told.body);
    }
    let last = browser.get(&format!("{page}/part?part=2"));
    assert_eq!(last.header("x-console-part"), Some("2"));
    assert!(last.body.contains("rm -r keep") && last.body.contains("The end"));
    yes.push_str(&format!("&seen={}", last.field("seen").unwrap()));
    let soon = browser.follow(&browser.post(&format!("{page}/yes"), &yes));
    assert!(soon.body.contains("within half a second"), "{}", soon.body);
    assert!(served.desk.look(|held| held.said.is_empty()));
    // Being shown it once more sets the half second anew.
    pause();
    browser.follow(&browser.post(&format!("{page}/yes"), &yes));
    assert_eq!(served.desk.look(|held| held.said.len()), 1);
}

#[test]
fn p8_parts_come_one_after_the_other() {
    let (served, browser) = house();
    let script: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    let asked = question(1, "claude wants to run sh", "run sh", &[("word 1", &script)]);
    served.desk.change(|held| held.asked.push(asked));
    let page = format!("/question/{}", id(1));
    let leap = browser.get(&format!("{page}?part=6"));
    assert!(leap.body.contains("Part 1 of 6"), "{}", leap.body);
    for part in 2..=6 {
        let leap = browser.get(&format!("{page}/part?part=6"));
        assert_eq!(leap.header("x-console-part"), Some(part.to_string().as_str()));
    }
}

#[test]
fn p8_another_question_in_the_place_of_one_is_read_anew() {
    let (served, browser) = house();
    let page = ask(&served, 1);
    let shown = browser.get(&page);
    let yes = browser.yes_fields(&shown);
    pause();
    // The same id, another content: only a daemon gone wrong does this.
    served
        .desk
        .change(|held| held.asked[0].details[0].lines = vec!["rm".into()]);
    let again = browser.get(&page);
    assert_ne!(again.field("seen"), shown.field("seen"));
    pause();
    let told = browser.follow(&browser.post(&format!("{page}/yes"), &yes));
    assert!(told.body.contains("was not shown to its end"), "{}", told.body);
}

#[test]
fn a_no_has_a_word_and_more_is_asked_for() {
    let (served, browser) = house();
    let (one, two, three) = (ask(&served, 1), ask(&served, 2), ask(&served, 3));
    browser.follow(&browser.post(&format!("{one}/no"), "word=use+a+branch"));
    browser.follow(&browser.post(&format!("{two}/no"), "word=+"));
    let told = browser.follow(&browser.post(&format!("{three}/more"), "word=why%3F"));
    assert!(told.body.contains("the agent was told to say more"), "{}", told.body);
    let said: Vec<Answer> = served
        .desk
        .look(|held| held.said.iter().map(|(_, answer, _)| answer.clone()).collect());
    assert_eq!(
        said,
        [
            Answer::No {
                word: Some("use a branch".into())
            },
            Answer::No { word: None },
            Answer::More { word: "why?".into() }
        ]
    );
    let four = ask(&served, 4);
    assert_eq!(browser.post(&format!("{four}/more"), "word=").status, 400);
    assert_eq!(
        browser
            .post(&format!("{four}/no"), &format!("word={}", "x".repeat(501)))
            .status,
        400
    );
    assert_eq!(served.desk.look(|held| held.said.len()), 3);
}

#[test]
fn c050_of_two_answers_the_first_counts_and_the_second_is_told() {
    let (served, browser) = house();
    let page = ask(&served, 1);
    let other = Browser::enter(&served);
    let yes = browser.yes_fields(&browser.get(&page));
    other.get(&page);
    pause();
    other.follow(&other.post(&format!("{page}/no"), ""));
    let state = browser.get(&format!("{page}/state?words=0"));
    assert!(state.body.contains("data-gone"), "{}", state.body);
    let late = browser.post(&format!("{page}/yes"), &yes);
    assert_eq!(late.status, 410);
    assert!(
        late.body.contains("somebody else answered it") && late.body.contains("did not count"),
        "{}",
        late.body
    );
    assert_eq!(browser.get(&page).status, 410);
    assert_eq!(served.desk.look(|held| held.said.len()), 1);
}

#[test]
fn many_questions_stand_by_kind_and_a_no_is_for_those_shown() {
    let (served, browser) = house();
    served.desk.change(|held| {
        for n in 0..1000 {
            let kind = format!("run tool{}", n % 7);
            held.asked.push(question(
                n,
                &format!("claude wants to run tool{} {n}", n % 7),
                &kind,
                &[("word 1", "x")],
            ));
        }
    });
    let begun = Instant::now();
    let page = browser.get("/questions");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(page.body.matches("<li class=\"row kind\"").count(), 7);
    assert!(page.body.contains("143 questions"), "{}", page.body);
    let (_, kind) = page.body.split_once("questions?kind=").unwrap();
    let kind = kind.split('"').next().unwrap();
    let alike = browser.get(&format!("/questions?kind={kind}"));
    assert_eq!(alike.body.matches("<li class=\"row\"").count(), 40);
    assert!(alike.body.contains("Page 1 of 4") && alike.body.contains("No to these 40"));
    let ids = alike.field("questions").unwrap().replace(' ', "+");
    let told = browser.follow(&browser.post("/questions/no", &format!("questions={ids}&word=not+now")));
    assert!(told.body.contains("no to 40 questions"), "{}", told.body);
    assert_eq!(served.desk.look(|held| (held.asked.len(), held.said.len())), (960, 40));
    let told = browser.follow(&browser.post("/questions/no", &format!("questions={ids}")));
    assert!(
        told.body.contains("no to 0 questions, 40 did not wait any more"),
        "{}",
        told.body
    );
    // A list that was opened one by one stays so.
    let flat = browser.get("/questions/list?page=0&grouped=false");
    assert!(flat.body.contains("Page 1 of 24") && flat.body.contains("Show them by kind"));
}

#[test]
fn p11_grants_are_narrowed_and_revoked_and_tasks_ended() {
    let (served, browser) = house();
    served.desk.change(|held| {
        held.granted = vec![
            grant(1, "may read /a, at most 5 times", some_times(5)),
            grant(2, "may run x", Terms::default()),
        ];
        held.at_work = vec![bailiwick_gate::desk::AtWork {
            id: bailiwick_model::TaskId([5; 8]),
            context: "/home/dana/acme-site".into(),
            command: vec!["claude".into()],
            started: NOW,
        }];
    });
    let page = browser.get("/grants");
    assert!(page.body.contains("may read /a, at most 5 times") && page.body.contains("dana and rui"));
    let (one, two) = (GrantId([1; 6]), GrantId([2; 6]));
    let told = browser.follow(&browser.post(&format!("/grants/{two}/narrow"), "count=3&long=10m"));
    assert!(told.body.contains("narrowed to"), "{}", told.body);
    let terms = Terms {
        count: Some(3),
        until: Some(Millis(NOW.0 + 600_000)),
        scope: Scope::Task,
    };
    assert_eq!(served.desk.look(|held| held.narrowed.clone()), [(two, terms)]);
    for wrong in ["", "count=0", "count=-1", "count=x", "long=never"] {
        let told = browser.post(&format!("/grants/{two}/narrow"), wrong);
        assert!(
            told.status == 400 || browser.follow(&told).body.contains("Not done"),
            "{wrong}"
        );
    }
    let told = browser.follow(&browser.post(&format!("/grants/{one}/narrow"), "count=9"));
    assert!(told.body.contains("can be narrowed only"), "{}", told.body);
    browser.follow(&browser.post(&format!("/grants/{one}/revoke"), ""));
    assert_eq!(served.desk.look(|held| held.revoked.clone()), [one]);
    let told = browser.follow(&browser.post(&format!("/grants/{one}/revoke"), ""));
    assert!(told.body.contains("there is no grant"), "{}", told.body);
    // Ending a task takes a page that asks, and a form.
    assert!(
        browser
            .get("/tasks/0505050505050505/end")
            .body
            .contains("End this task?")
    );
    assert!(served.desk.look(|held| held.ended.is_empty()));
    browser.follow(&browser.post("/tasks/0505050505050505/end", ""));
    assert_eq!(served.desk.look(|held| held.ended.len()), 1);
}

#[test]
fn p10_the_log_is_paged_filtered_and_verified() {
    let (_served, browser) = house();
    let page = browser.get("/log");
    assert!(
        page.body.contains("#199") && page.body.contains("before=140"),
        "{}",
        page.body
    );
    let older = browser.get("/log?before=140");
    assert!(older.body.contains("#139") && !older.body.contains("#140<"));
    assert!(
        browser
            .get("/log?task=0505050505050505")
            .body
            .contains("value=\"0505050505050505\"")
    );
    assert_eq!(browser.get("/log?task=zz").status, 404);
    assert_eq!(browser.get("/log?before=x").status, 400);
    let told = browser.follow(&browser.post("/log/verify", ""));
    assert!(told.body.contains("verified: 200 records"), "{}", told.body);
}

#[test]
fn authority_is_read_of_known_contexts_only() {
    let (_served, browser) = house();
    let page = browser.get("/authority");
    assert!(page.body.contains("deny  run git push\\u{202e}"), "{}", page.body);
    assert_eq!(browser.get("/authority?context=/etc").status, 404);
    assert!(
        browser
            .get("/authority?context=%2Fhome%2Fdana%2F%3Cb%3Enotes")
            .body
            .contains("&lt;b&gt;notes/bailiwick.toml")
    );
}

#[test]
fn people_with_codes_log_in_as_themselves() {
    let served = serve(Arc::new(Still));
    let wrong = post(served.port, "/login/code", "", "name=rui&code=000000");
    assert_eq!(wrong.status, 403);
    let browser = Browser::welcomed(
        served.port,
        &post(served.port, "/login/code", "", "name=rui&code=123+456"),
    );
    let page = ask(&served, 1);
    browser.follow(&browser.post(&format!("{page}/no"), ""));
    let by = served.desk.look(|held| held.said[0].2.clone());
    assert_eq!((by.name.as_str(), by.by), ("rui", Known::Code));
    // Questions are theirs to answer, and nothing else here is theirs.
    for page in ["/tasks", "/grants", "/log", "/authority"] {
        assert_eq!(browser.get(page).status, 403, "{page}");
    }
    for _ in 0..5 {
        post(served.port, "/login/code", "", "name=ida&code=000000");
    }
    assert_eq!(post(served.port, "/login/code", "", "name=ida&code=123456").status, 429);
}

/// A stream of events, line by line.
fn listen(browser: &Browser) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", browser.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (path, port, cookie) = (&browser.path, browser.port, &browser.cookie);
    write!(
        stream,
        "GET {path}/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
    )
    .unwrap();
    BufReader::new(stream)
}

fn next(events: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            events.read_line(&mut line).unwrap() > 0,
            "the stream ended before `{wanted}`"
        );
        if line.contains(wanted) {
            return line;
        }
    }
}

#[test]
fn a_new_question_is_told_within_200_ms() {
    let (served, browser) = house();
    let mut events = listen(&browser);
    next(&mut events, "data: 0 -");
    for number in 1..6 {
        std::thread::sleep(Duration::from_millis(60));
        let begun = Instant::now();
        ask(&served, number);
        next(&mut events, &format!("data: {number} {}", id(number)));
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    }
    assert!(served.desk.look(|held| held.there.iter().all(|by| *by == dana())));
    served.desk.change(|held| held.away = true);
    next(&mut events, "event: away");
    served.desk.change(|held| held.away = false);
    next(&mut events, "event: changed");
    browser.post("/leave", "");
    next(&mut events, "event: ended");
}

#[test]
fn nobody_is_there_whose_page_is_closed() {
    let (served, browser) = house();
    assert!(served.desk.look(|held| held.there.is_empty()));
    let mut events = listen(&browser);
    next(&mut events, "data: 0 -");
    assert!(!served.desk.look(|held| held.there.is_empty()));
    drop(events);
    std::thread::sleep(Duration::from_secs(6));
    let before = served.desk.look(|held| held.there.len());
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(served.desk.look(|held| held.there.len()), before);
}

#[test]
fn streams_are_bounded_and_their_places_given_back() {
    let (_served, browser) = house();
    let mut held: Vec<_> = (0..4).map(|_| listen(&browser)).collect();
    for events in &mut held {
        next(events, "data: 0 -");
    }
    assert_eq!(browser.get("/live").status, 429);
    held.clear();
    let begun = Instant::now();
    loop {
        let mut events = listen(&browser);
        let mut first = String::new();
        events.read_line(&mut first).unwrap();
        if first.contains("200") {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "no place is given back: {first}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_daemon_that_is_away_is_told_on_every_page() {
    let (served, browser) = house();
    served.desk.change(|held| held.away = true);
    for page in ["/questions", "/tasks", "/grants"] {
        let told: Heard = browser.get(page);
        assert_eq!(told.status, 502, "{page}");
        assert!(told.body.contains("no daemon runs"), "{page}: {}", told.body);
    }
    assert_eq!(browser.get("/log").status, 200);
}

#[test]
fn p8_a_session_is_left() {
    let (served, browser) = house();
    assert_eq!(browser.get("/questions").status, 200);
    let left = browser.post("/leave", "");
    assert!(left.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(browser.get("/questions").status, 401);
    assert_eq!(get(served.port, "/", &browser.cookie).status, 200);
    // A link is good for one login.
    let token = token(&served);
    assert_eq!(post(served.port, "/login", "", &format!("token={token}")).status, 303);
    assert_eq!(post(served.port, "/login", "", &format!("token={token}")).status, 403);
}
