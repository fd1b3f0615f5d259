//! What is known of people, the whole way: read from an address, and read anew while a task runs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Answer, Bailiwick, Origin, kits};

/// The desk of `examples/benefits`, with what its rules say of relations.
fn desk(kit: &Bailiwick, relations: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/benefits");
    let home = kit.home().join("benefits");
    for file in [
        "register/hr.py",
        "register/mcp.py",
        "register/people.toml",
        "desk/agent.py",
        "desk/bailiwick.toml",
    ] {
        let place = home.join(file);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(from.join(file), place).unwrap();
    }
    let desk = home.join("desk");
    let rules = std::fs::read_to_string(desk.join("bailiwick.toml")).unwrap();
    let (before, rest) = rules.split_once("[relations]").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    std::fs::write(
        desk.join("bailiwick.toml"),
        format!("{before}[relations]\n{relations}\nme = \"e1\"\n\n{after}"),
    )
    .unwrap();
    let call = |id: &str| {
        format!(
            "{{\"tool\": \"hr__benefits\", \"args\": {{\"employee_id\": \"{id}\", \"bailiwick_reason\": \"talk\"}}}}\n"
        )
    };
    std::fs::write(
        desk.join("e1.jsonl"),
        "{\"tool\": \"hr__benefits\", \"args\": {\"employee_id\": \"e1\"}}\n",
    )
    .unwrap();
    for id in ["e2", "e4"] {
        std::fs::write(desk.join(format!("{id}.jsonl")), call(id)).unwrap();
    }
    kit.hand_over();
    desk
}

fn at(kit: &Bailiwick, desk: &Path, words: &str) -> bailiwick_testkit::Done {
    kit.shell_outside(&format!("cd {} && exec {} {words}", desk.display(), kit.program()))
}

fn trusted(kit: &Bailiwick, desk: &Path) {
    at(kit, desk, "trust").ok();
    at(kit, desk, "tools pin --yes").ok();
}

/// An agent that looks up whom it is told to, one after the other, in one task.
struct Agent<'a> {
    desk: &'a Path,
    child: Child,
    asked: usize,
}

impl<'a> Agent<'a> {
    fn start(kit: &Bailiwick, desk: &'a Path) -> Self {
        let line = "n=0; while [ ! -e over ]; do if [ -e ask-$n ]; then python3 agent.py $(cat ask-$n).jsonl > said.tmp; mv said.tmp said-$n; n=$((n+1)); fi; sleep 0.05; done";
        let run = format!(
            "cd {} && exec {} run -q -- sh -c '{line}'",
            desk.display(),
            kit.program()
        );
        let mut command = kit.outside_command("sh");
        let child = command
            .args(["-c", &run])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { desk, child, asked: 0 }
    }

    fn looks_up(&mut self, id: &str) -> String {
        let (ask, said) = (format!("ask-{}", self.asked), format!("said-{}", self.asked));
        self.asked += 1;
        std::fs::write(self.desk.join("ask.tmp"), id).unwrap();
        std::fs::rename(self.desk.join("ask.tmp"), self.desk.join(ask)).unwrap();
        let begun = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(self.desk.join(&said)) {
                return text;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer about {id}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Looks up until it is as wanted.
    fn until(&mut self, id: &str, wanted: &str) {
        let begun = Instant::now();
        loop {
            let said = self.looks_up(id);
            if said.contains(wanted) {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{id} is not {wanted}: {said}"
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn ends(mut self) {
        std::fs::write(self.desk.join("over"), "").unwrap();
        assert!(self.child.wait().unwrap().success());
        std::fs::remove_file(self.desk.join("over")).unwrap();
        for n in 0..self.asked {
            std::fs::remove_file(self.desk.join(format!("ask-{n}"))).unwrap();
            std::fs::remove_file(self.desk.join(format!("said-{n}"))).unwrap();
        }
    }
}

/// People as JSON: who reports to e1.
fn people(reports: &[&str]) -> String {
    let all = ["e1", "e2", "e3", "e4"].map(|id| {
        let above = if reports.contains(&id) {
            r#", "reports_to": "e1""#
        } else {
            ""
        };
        format!(r#"{{"id": "{id}"{above}}}"#)
    });
    format!(r#"{{"people": [{}]}}"#, all.join(", "))
}

fn json(text: &str) -> Answer {
    Answer::whole(200, "application/json", text.as_bytes().to_vec())
}

#[test]
fn p11_who_reports_to_whom_is_read_anew_from_an_address_while_a_task_runs() {
    for kit in kits() {
        let says = Arc::new(Mutex::new(json(&people(&["e2"]))));
        let of = Arc::clone(&says);
        let origin = Origin::answering(move |_| of.lock().unwrap().clone());
        let desk = desk(
            &kit,
            &format!(
                "from = \"{}\"\nrefresh = \"1 s\"\nstale_after = \"8 s\"",
                origin.url("/people")
            ),
        );
        // Before the first run nothing is known, and nothing is asked.
        trusted(&kit, &desk);
        let mut agent = Agent::start(&kit, &desk);
        agent.until("e2", "ok Ana");
        assert!(agent.looks_up("e4").contains("arguments-refused"));
        // `can` is told the same.
        let can = |id: &str| {
            at(
                &kit,
                &desk,
                &format!("can 'call hr/benefits {{\"employee_id\": \"{id}\"}}'"),
            )
            .stdout
        };
        assert!(!can("e1").contains("deny"), "{}", can("e1"));
        *says.lock().unwrap() = json(&people(&["e4"]));
        agent.until("e4", "ok Cy");
        assert!(
            agent.looks_up("e2").contains("arguments-refused"),
            "who has gone has gone"
        );
        // What cannot be read leaves the last one, until that is too old.
        for wrong in [
            Answer::text(503, "later"),
            json("{\"people\": [{\"id\": \"e1\"}, {\"id\": \"e1\"}]}"),
            json(&format!("{{\"people\": [], \"more\": \"{}\"}}", "x".repeat(5 << 20))),
            json("<html>"),
        ] {
            *says.lock().unwrap() = wrong;
            std::thread::sleep(Duration::from_millis(1300));
        }
        assert!(agent.looks_up("e4").contains("ok Cy"));
        agent.until("e4", "relations-stale");
        assert!(agent.looks_up("e1").contains("relations-stale"));
        *says.lock().unwrap() = json(&people(&["e2"]));
        agent.until("e2", "ok Ana");
        agent.ends();
        let log = at(&kit, &desk, "log show").ok().stdout;
        assert!(
            log.contains(&format!("for relations: GET {}", origin.url("/people"))),
            "{log}"
        );
        assert!(
            log.contains("for relations: done, ") && log.contains(", sha256 "),
            "{log}"
        );
        assert!(log.contains("for relations: not done, it answered with 503"), "{log}");
        assert!(log.contains("what it answered is longer than 4194304 bytes"), "{log}");
        // Nobody answers: what was read last serves, as long as it is not too old.
        drop(origin);
        let mut agent = Agent::start(&kit, &desk);
        agent.until("e2", "relations-stale");
        agent.ends();
    }
}

#[test]
fn p4_without_an_answer_nothing_is_known_and_nothing_starts() {
    let kit = Bailiwick::as_ordinary_user();
    let origin = Origin::answering(|_| Answer::text(404, ""));
    let desk = desk(&kit, &format!("from = \"{}\"", origin.url("/people")));
    trusted(&kit, &desk);
    let refused = at(&kit, &desk, "run -q -- true");
    assert!(
        refused.status != 0 && refused.stderr.contains("cannot be read: it answered with 404"),
        "{refused:?}"
    );
    // A deny of the person's holds for the daemon, too.
    let before = origin.requests().len();
    kit.write_home(
        ".config/bailiwick/rules.toml",
        &format!(
            "extends = [\"ceiling\"]\n[network]\ndeny = [\"GET {}\"]\n",
            origin.url("/people")
        ),
    );
    kit.hand_over();
    let denied = at(&kit, &desk, "run -q -- true");
    assert!(denied.stderr.contains("a rule denies `GET"), "{denied:?}");
    assert_eq!(origin.requests().len(), before);
}

#[test]
fn p11_a_file_is_read_anew_while_a_task_runs() {
    let kit = Bailiwick::as_ordinary_user();
    let desk = desk(&kit, "from = \"file:../register/people.toml\"\nrefresh = \"1 s\"");
    trusted(&kit, &desk);
    let file = desk.join("../register/people.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut agent = Agent::start(&kit, &desk);
    agent.until("e2", "ok Ana");
    assert!(agent.looks_up("e4").contains("arguments-refused"));
    let moved = text.replace(
        "name = \"Cy\"\nreports_to = \"e9\"",
        "name = \"Cy\"\nreports_to = \"e1\"",
    );
    assert_ne!(moved, text);
    std::fs::write(&file, moved).unwrap();
    agent.until("e4", "ok Cy");
    std::fs::write(&file, "people = [").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(
        agent.looks_up("e4").contains("ok Cy"),
        "what is broken leaves what was read before"
    );
    std::fs::write(&file, text).unwrap();
    agent.until("e4", "arguments-refused");
    agent.ends();
    let log = at(&kit, &desk, "log show").ok().stdout;
    assert!(log.matches("people.toml has changed, sha256 ").count() >= 2, "{log}");
}
