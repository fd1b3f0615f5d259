//! Questions that hold an act: shown, answered, lapsed; the program waits and notices nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Done, Origin, finish};
use serde_json::Value;

/// What waits, as `approve --json` lists it, once there is something.
fn waiting(kit: &Bailiwick) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let listed = kit.run(&["approve", "--json"]);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let all = listed["waiting"].as_array().unwrap().clone();
        if !all.is_empty() || begun.elapsed() > Duration::from_secs(20) {
            return all;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a shell line in the fence, in the background.
fn begin(kit: &Bailiwick, options: &[&str], line: &str) -> std::thread::JoinHandle<Done> {
    let mut words = vec!["run"];
    words.extend(options);
    words.extend(["--", "sh", "-c", line]);
    let command = kit.command(&words);
    std::thread::spawn(move || finish(command, Duration::from_secs(60)))
}

fn asking(kit: &Bailiwick, rules: &str) {
    kit.write("bailiwick.toml", rules);
    kit.run(&["trust"]).ok();
}

#[test]
fn p8_a_request_that_is_asked_about_waits_and_goes_through_after_a_yes() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let origin = Origin::start();
        let url = origin.url("/x?q=1");
        kit.shell_outside(&format!("curl -sf {url}")).ok();
        asking(
            &kit,
            &format!(
                "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n",
                origin.port()
            ),
        );
        let run = begin(&kit, &[], &format!("curl -sf -m 60 '{url}' && echo through"));
        let all = waiting(&kit);
        assert_eq!(all.len(), 1, "{all:?}");
        let act = all[0]["act"].as_str().unwrap();
        assert_eq!(act, format!("GET {url} at 127.0.0.1"));
        let shown = kit.run(&["approve"]).status_is(4).stdout;
        let id = all[0]["id"].as_str().unwrap();
        assert!(
            shown.contains(&format!("q-{id}  {act}\n")) && shown.contains("wants a person to say"),
            "{shown}"
        );
        assert!(kit.run(&["status"]).ok().stdout.contains("1 question waits"));
        let before = origin.requests().len();
        let answer = kit.run(&["approve", &format!("q-{}", &id[..6])]).ok();
        assert_eq!(answer.stdout, format!("yes, once: {act}\n"));
        let says = format!("bailiwick: yes says: the agent may send GET {url}, once, in this task\n");
        assert_eq!(answer.stderr, says);
        let done = run.join().unwrap().ok();
        assert!(done.stdout.ends_with("through\n"), "{}", done.stdout);
        assert_eq!(origin.requests().len(), before + 1);
        let told = format!("bailiwick: waits for you: `bailiwick approve q-{id}`: {act}\n");
        assert!(done.stderr.contains(&told), "{}", done.stderr);
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains(": yes by "), "{log}");
        assert!(kit.run(&["explain", id]).ok().stdout.contains("said yes"));
        kit.run(&["approve", id]).status_is(2);
    }
}

#[test]
fn p4_no_and_silence_and_nobody_are_a_no() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    let url = origin.url("/");
    asking(
        &kit,
        &format!(
            "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n[questions]\ndeadline = \"3 s\"\n",
            origin.port()
        ),
    );
    let line = format!("curl -s -m 60 -w '%{{http_code}}' {url}");
    let run = begin(&kit, &["-q"], &line);
    let all = waiting(&kit);
    kit.run(&["approve", "--no", all[0]["id"].as_str().unwrap()]).ok();
    let said = run.join().unwrap().ok().stdout;
    assert!(said.contains("answered-no") && said.ends_with("403"), "{said}");
    let run = begin(&kit, &["-q"], &line).join().unwrap().ok();
    assert!(
        run.stdout.contains("question-lapsed") && run.stdout.ends_with("403"),
        "{}",
        run.stdout
    );
    assert!(run.elapsed >= Duration::from_secs(3), "{:?}", run.elapsed);
    let run = begin(&kit, &["-q", "--no-ask"], &line).join().unwrap().ok();
    assert!(
        run.stdout.contains("nobody-to-ask") && run.stdout.ends_with("403"),
        "{}",
        run.stdout
    );
    assert!(origin.requests().is_empty());
    let last = kit.run(&["last", "-n", "3"]).ok().stdout;
    assert!(
        last.contains("a person was asked, and said no") && last.contains("nobody answered in time"),
        "{last}"
    );
}

#[test]
fn p4_a_question_ends_when_its_program_does() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    let url = origin.url("/");
    asking(
        &kit,
        &format!(
            "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n",
            origin.port()
        ),
    );
    let run = begin(
        &kit,
        &["-q"],
        &format!("curl -s -m 60 {url} & p=$!; sleep 2; kill $p; wait; sleep 3"),
    );
    assert_eq!(waiting(&kit).len(), 1);
    let begun = Instant::now();
    while !kit.run(&["approve"]).stdout.contains("nothing waits") {
        assert!(begun.elapsed() < Duration::from_secs(10), "the question stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.join().unwrap().ok();
    assert!(kit.run(&["log", "show"]).ok().stdout.contains("withdrawn"));
    assert!(origin.requests().is_empty());
}

#[test]
fn c045_a_yes_is_told_with_its_sentence_before_it_is_said() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    let url = origin.url("/x");
    asking(
        &kit,
        &format!(
            "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n",
            origin.port()
        ),
    );
    let line = format!("for n in 1 2 3; do curl -s -m 60 -o /dev/null -w '%{{http_code}} ' {url}; done");
    let run = begin(&kit, &["-q"], &line);
    let all = waiting(&kit);
    let id = all[0]["id"].as_str().unwrap();
    // What cannot be said is not said.
    for (words, why) in [
        (&["--times", "3"][..], "granted once"),
        (&["--offer", "9"], "no offer 9"),
        (&["--offer", "1", "--times", "0"], "no yes"),
        (&["--offer", "1", "--until", "25:00"], "no time of day"),
        (&["--word", "x"], "--no"),
        (&["--no", "--offer", "1"], "cannot be used with"),
        (&["--list"], "cannot be used with"),
    ] {
        let mut all = vec!["approve", id];
        all.extend(words);
        let refused = kit.run(&all).status_is(2);
        assert!(refused.stderr.contains(why), "{words:?}: {}", refused.stderr);
    }
    assert_eq!(waiting(&kit).len(), 1);
    let words = [
        "approve", id, "--offer", "1", "--times", "2", "--for", "10 min", "--scope", "context",
    ];
    let said = kit.run(&words).ok();
    let sentence = said
        .stderr
        .trim_end()
        .strip_prefix("bailiwick: yes says: the agent ")
        .unwrap();
    assert!(
        sentence.contains(", with any query, at most 2 times, until ") && sentence.ends_with("in this context"),
        "{sentence}"
    );
    let kept: Value = serde_json::from_str(&kit.run(&["grants", "list", "--json"]).ok().stdout).unwrap();
    let (kept, sentence) = (&kept["grants"][0], Value::from(sentence));
    assert_eq!(kept["sentence"], sentence);
    assert!(
        said.stdout
            .contains(&format!("(grant {})", kept["id"].as_str().unwrap())),
        "{}",
        said.stdout
    );
    // The third is asked again: what was said holds twice.
    let begun = Instant::now();
    let third = loop {
        let all = waiting(&kit);
        match all.iter().find(|asked| asked["id"].as_str() != Some(id)) {
            Some(third) => break third["id"].as_str().unwrap().to_owned(),
            None => assert!(begun.elapsed() < Duration::from_secs(20), "{all:?}"),
        }
    };
    kit.run(&["approve", &third, "--no"]).ok();
    assert_eq!(run.join().unwrap().ok().stdout, "200 200 403 ");
    assert_eq!(origin.requests().len(), 2);
}
