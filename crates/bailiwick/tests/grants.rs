//! Yeses that hold for more than one request, over real tasks: what they cover, how they end, and what outlives the daemon.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Origin};
use serde_json::Value;

/// A task in the background that is talked to by a line: whatever it says is collected.
struct Talking {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Talking {
    /// Starts a shell in the fence that reads lines.
    fn begin(kit: &Bailiwick) -> Self {
        let mut command = kit.command(&["run", "-q", "--", "bash"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let pipes: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for mut pipe in pipes {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(got @ 1..) = pipe.read(&mut bytes) {
                    said.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..got]));
                }
            });
        }
        Self { child, said }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it has said something.
    fn says(&self, words: &str) -> String {
        let said = || self.said.lock().unwrap().clone();
        assert!(until(|| said().contains(words)), "`{words}` in: {}", said());
        said()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn waiting(kit: &Bailiwick) -> Vec<Value> {
    let listed = kit.run(&["approve", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["waiting"].as_array().unwrap().clone()
}

/// The question about this act, once it waits.
fn question(kit: &Bailiwick, act: &str) -> Value {
    let find = || {
        waiting(kit)
            .into_iter()
            .find(|one| one["act"].as_str().unwrap().starts_with(act))
    };
    assert!(until(|| find().is_some()), "`{act}` among {:?}", waiting(kit));
    find().unwrap()
}

/// The number of the offer that says this.
fn offer(question: &Value, says: &str) -> String {
    let all = question["offers"].as_array().unwrap();
    let place = all.iter().position(|one| one["says"] == says);
    place.unwrap_or_else(|| panic!("`{says}` among {all:#?}")).to_string()
}

fn id(question: &Value) -> &str {
    question["id"].as_str().unwrap()
}

fn grants(kit: &Bailiwick) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&kit.run(&["grants", "list", "--json"]).ok().stdout).unwrap();
    listed["grants"].as_array().unwrap().clone()
}

fn asking(kit: &Bailiwick, rules: &str) {
    kit.write("bailiwick.toml", rules);
    kit.run(&["trust"]).ok();
}

const COMMANDS: &str =
    "extends = [\"coding\"]\n[commands]\nask = [\"touch\", \"git\", \"rm\"]\n[questions]\ndeadline = \"1 h\"\n";

#[test]
fn c045_what_was_stored_is_what_was_shown_and_covers_no_more() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        asking(&kit, COMMANDS);
        let mut shell = Talking::begin(&kit);
        shell.line("mkdir -p tmp other; git init -q . 2>/dev/null; git status && rm -r ./tmp; echo first $?");
        // The line is no act: each of its programs is.
        let init = question(&kit, "run git init");
        kit.run(&["approve", "--no", id(&init)]).ok();
        let status = question(&kit, "run git status");
        let always = offer(&status, "may run git status, in just these words");
        let said = kit
            .run(&["approve", id(&status), "--offer", &always, "--scope", "context"])
            .ok()
            .stdout;
        assert!(
            said.starts_with("yes: may run git status, in just these words, in this context (grant "),
            "{said}"
        );
        let list = kit.run(&["grants", "list"]).ok().stdout;
        assert!(
            list.contains("may run git status, in just these words, in this context")
                && list.contains("covers `run @exact git status`")
                && list.contains("used once"),
            "{list}"
        );
        shell.line("rm -r ./other; echo second");
        let removal = question(&kit, "run rm -r ./other");
        kit.run(&["approve", "--no", "--word", "keep it", id(&removal)]).ok();
        shell.says("second");
        shell.line("git push origin main; git status -s; git status >/dev/null 2>&1; echo third");
        for act in ["run git push origin main", "run git status -s"] {
            let asked = question(&kit, act);
            kit.run(&["approve", "--no", id(&asked)]).ok();
        }
        // The very same passes without a question.
        let said = shell.says("third");
        assert!(waiting(&kit).is_empty());
        let word = said
            .lines()
            .find(|line| line.contains("run rm -r ./other: answered-no ("));
        assert!(word.is_some_and(|line| line.ends_with("): keep it")), "{said}");
        let can = |act: &str| kit.run(&["can", act]);
        assert!(
            can("run git status")
                .status_is(0)
                .stdout
                .contains("may run git status, in just these words")
        );
        can("run git push origin main").status_is(4);
        let grant = grants(&kit).remove(0);
        kit.run(&["grants", "revoke", grant["id"].as_str().unwrap()]).ok();
        can("run git status").status_is(4);
        assert!(grants(&kit).is_empty());
    }
}

#[test]
fn c050_equal_questions_are_answered_one_by_one_or_by_one_grant() {
    let kit = Bailiwick::new();
    asking(&kit, COMMANDS);
    for wide in [false, true] {
        let mut shell = Talking::begin(&kit);
        shell.line("rm -f a b 2>/dev/null & touch a & touch b & touch a & wait; echo all");
        assert!(until(|| waiting(&kit).len() == 4), "{:?}", waiting(&kit));
        let removal = question(&kit, "run rm");
        kit.run(&["approve", "--no", id(&removal)]).ok();
        let first = question(&kit, "run touch a");
        if wide {
            let offer = offer(&first, "may run touch a, in just these words");
            let said = kit.run(&["approve", id(&first), "--offer", &offer]).ok().stdout;
            assert!(said.contains("other questions that this answered as well: 1"), "{said}");
        } else {
            kit.run(&["approve", id(&first)]).ok();
        }
        let left = if wide { 1 } else { 2 };
        assert!(until(|| waiting(&kit).len() == left), "{:?}", waiting(&kit));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(waiting(&kit).len(), left);
        assert!(kit.run(&["approve", id(&first)]).status_is(2).stderr.contains("waits"));
        for one in waiting(&kit) {
            kit.run(&["approve", "--no", id(&one)]).ok();
        }
        shell.says("all");
    }
}

#[test]
fn c051_grants_and_questions_outlive_a_daemon_that_is_killed() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        asking(&kit, COMMANDS);
        let mut shell = Talking::begin(&kit);
        shell.line("touch a; echo made");
        let first = question(&kit, "run touch a");
        let always = offer(&first, "may run touch a, in just these words");
        kit.run(&["approve", id(&first), "--offer", &always, "--scope", "context"])
            .ok();
        shell.says("made");
        let names: Vec<String> = (0..10).map(|number| format!("b{number}")).collect();
        shell.line(&names.iter().map(|name| format!("touch {name} & ")).collect::<String>());
        assert!(until(|| waiting(&kit).len() == 10), "{:?}", waiting(&kit));
        let status: Value = serde_json::from_str(&kit.run(&["status", "--json"]).ok().stdout).unwrap();
        let daemon = status["daemon"]["pid"].as_u64().unwrap();
        kit.shell_outside(&format!("kill -9 {daemon}")).ok();
        drop(shell);
        // Another daemon: nothing is lost, and nothing runs by itself.
        assert!(until(|| kit.run(&["grants", "list"]).status == 0));
        let kept = waiting(&kit);
        assert_eq!(kept.len(), 10, "{kept:?}");
        assert!(kept.iter().all(|one| one["running"] == false));
        let listed = kit.run(&["approve"]).status_is(4).stdout;
        assert!(
            listed.contains("which has ended: a yes is for the next one of"),
            "{listed}"
        );
        let b3 = question(&kit, "run touch b3");
        kit.run(&["approve", id(&b3)]).ok();
        let b4 = question(&kit, "run touch b4");
        kit.run(&["approve", "--no", id(&b4)]).ok();
        assert_eq!(waiting(&kit).len(), 8);
        let mut shell = Talking::begin(&kit);
        shell.line("touch a && touch b3 && echo both; touch b3; echo again");
        shell.says("both");
        let again = question(&kit, "run touch b3");
        assert_eq!(again["running"], true, "the yes was for once");
        kit.run(&["approve", "--no", id(&again)]).ok();
        shell.says("again");
        assert!(kit.run(&["log", "verify"]).ok().stdout.contains("verified"));
    }
}

/// A server whose answer never ends, and how many requests it had.
fn endless() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let _ = connection.read(&mut head);
                counted.fetch_add(1, Ordering::SeqCst);
                let slow = head.starts_with(b"GET /slow");
                let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while slow && connection.write_all(b"more\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    (port, count)
}

#[test]
fn c053_a_grant_ends_in_the_middle_of_a_download() {
    for (end, kit) in [("time", Bailiwick::new()), ("revoked", Bailiwick::as_ordinary_user())] {
        let (port, count) = endless();
        asking(
            &kit,
            &format!("extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{port}/**\"]\n"),
        );
        kit.shell_outside(&format!("curl -sf http://127.0.0.1:{port}/")).ok();
        let span = if end == "time" { "8 s" } else { "10 min" };
        let given = kit.run(&[
            "grants",
            "give",
            "--json",
            "--for",
            span,
            &format!("GET http://127.0.0.1:{port}/**"),
        ]);
        let given: Value = serde_json::from_str(&given.ok().stdout).unwrap();
        let grant = given["granted"]["id"].as_str().unwrap().to_owned();
        let mut shell = Talking::begin(&kit);
        shell.line(&format!(
            "curl -sS -N http://127.0.0.1:{port}/slow > slow; echo the download ended with $?"
        ));
        assert!(until(|| count.load(Ordering::SeqCst) == 2), "the download begins");
        let begun = Instant::now();
        if end == "revoked" {
            kit.run(&["grants", "revoke", &grant]).ok();
        }
        let said = shell.says("the download ended with");
        let took = begun.elapsed();
        assert!(!said.contains("ended with 0\n"), "cut off, not finished: {said}");
        let limit = if end == "time" { 12 } else { 2 };
        assert!(took < Duration::from_secs(limit), "{took:?}");
        // From now on it is asked.
        shell.line(&format!("curl -s -m 60 http://127.0.0.1:{port}/; echo asked"));
        let asked = question(&kit, &format!("GET http://127.0.0.1:{port}/"));
        kit.run(&["approve", "--no", id(&asked)]).ok();
        shell.says("asked");
        let log = kit.run(&["log", "show"]).ok().stdout;
        let told = if end == "time" {
            "grant over, used"
        } else {
            "grant revoked by "
        };
        assert!(log.contains(told) && log.contains("1 cut off"), "{log}");
    }
}

#[test]
fn p11_a_command_that_runs_outside_ends_with_its_grant() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        asking(
            &kit,
            "extends = [\"coding\"]\n[[broker]]\nrun = \"sleep *\"\nask = true\n[questions]\ndeadline = \"1 h\"\n",
        );
        let mut shell = Talking::begin(&kit);
        shell.line("sleep 1000; echo it ended with $?");
        let asked = question(&kit, "broker sleep 1000");
        let always = offer(
            &asked,
            "may have sleep 1000 run outside, with more authority than it has itself, in just these words",
        );
        kit.run(&["approve", id(&asked), "--offer", &always, "--scope", "context"])
            .ok();
        let tasks = || -> Value { serde_json::from_str(&kit.run(&["status", "--json"]).ok().stdout).unwrap() };
        let runs = || tasks()["daemon"]["tasks"].as_array().unwrap().len();
        assert!(until(|| runs() == 2), "it runs outside");
        let grant = grants(&kit).remove(0);
        let begun = Instant::now();
        kit.run(&["grants", "revoke", grant["id"].as_str().unwrap()]).ok();
        let said = shell.says("it ended with ");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(!said.contains("it ended with 0"), "{said}");
        assert!(until(|| runs() == 1));
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("grant revoked by ") && log.contains("1 cut off"), "{log}");
    }
}

#[test]
fn p8_a_grant_by_hand_answers_only_what_a_rule_asks() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    let act = format!("GET http://127.0.0.1:{}/**", origin.port());
    asking(&kit, "extends = [\"coding\"]\n");
    let refused = kit.run(&["grants", "give", &act]).status_is(2).stderr;
    assert!(refused.contains("no rule here asks about it"), "{refused}");
    asking(
        &kit,
        &format!(
            "extends = [\"coding\"]\n[network]\nask = [\"{act}\"]\ndeny = [\"GET http://127.0.0.1:{}/x\"]\n",
            origin.port()
        ),
    );
    kit.run(&["grants", "give", "--times", "2", &act]).ok();
    let fetch = |path: &str| {
        kit.run(&["run", "-q", "--no-ask", "--", "curl", "-sf", &origin.url(path)])
            .status
    };
    assert_ne!(fetch("/x"), 0, "a deny stays");
    assert_eq!((fetch("/1"), fetch("/2")), (0, 0));
    assert_ne!(fetch("/3"), 0, "used up");
    for bad in [["--times", "0"], ["--for", "10"], ["--until", "25:00"]] {
        kit.run(&["grants", "give", bad[0], bad[1], &act]).status_is(2);
    }
}

#[test]
fn p8_tell_me_more_goes_to_the_agent_and_comes_back() {
    let kit = Bailiwick::new();
    asking(&kit, COMMANDS);
    let program = kit.program();
    let mut shell = Talking::begin(&kit);
    shell.line("touch a; echo tried $?");
    let asked = question(&kit, "run touch a");
    kit.run(&["approve", id(&asked), "--more", "what is it for?"]).ok();
    let said = shell.says("tried 126");
    let hint = format!("answer with `bailiwick tell {} WORDS`, then try again", id(&asked));
    assert!(
        said.contains("tell-more (") && said.contains("): what is it for?") && said.contains(&hint),
        "{said}"
    );
    shell.line(&format!(
        "{program} last -n 1; {program} tell {} 'a marker for the build'; {program} approve; {program} grants list; touch a; echo done $?",
        id(&asked)
    ));
    let again = question(&kit, "run touch a");
    assert_eq!(again["words"][0]["asked"], "what is it for?");
    assert_eq!(again["words"][0]["answered"], "a marker for the build");
    let shown = kit.run(&["approve"]).status_is(4).stdout;
    assert!(
        shown.contains("the agent says (its own words): a marker for the build"),
        "{shown}"
    );
    kit.run(&["approve", id(&again)]).ok();
    let said = shell.says("done 0");
    assert_eq!(
        said.matches("the commands are for the person outside").count(),
        2,
        "{said}"
    );
}

/// What would move the cursor, hide, or be taken for something else.
fn draws(text: &str) -> Option<char> {
    text.chars().find(|c| {
        let hidden = matches!(u32::from(*c), 0x200b..=0x200f | 0x202a..=0x202e | 0x2066..=0x2069 | 0xfeff);
        (c.is_control() && *c != '\n') || hidden
    })
}

#[test]
fn c048_what_is_asked_about_draws_nothing_anywhere() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    asking(
        &kit,
        &format!(
            "extends = [\"coding\"]\nask = [\"write ./asked\"]\n[commands]\nask = [\"touch\"]\n[network]\nask = [\"GET http://127.0.0.1:{0}/**\", \"GET http://*.example.test/**\"]\n[questions]\ndeadline = \"1 h\"\n",
            origin.port()
        ),
    );
    let evil = "x\\e[2K\\e[1Ahello\\e]8;;http://h.test\\e\\\\link\\e]52;c;aGk=\\a\\rls\\u202e\\u200by";
    let mut shell = Talking::begin(&kit);
    shell.line(&format!("export LC_ALL=C.UTF-8; E=$(printf '{evil}'); touch \"$E\" & curl -s \"http://127.0.0.1:{}/?q=$E\" & curl -s http://\u{430}pi.example.test/ & curl -s http://127.0.0.1:{}/ & wait; echo all", origin.port(), origin.port()));
    question(&kit, "run touch");
    question(&kit, &format!("GET http://127.0.0.1:{}/", origin.port()));
    let look_alike = question(&kit, "resolve xn--pi-6kc.example.test");
    let host = &look_alike["details"][0];
    assert_eq!(host["lines"][0], "xn--pi-6kc.example.test");
    let mind = host["mind"].as_str().unwrap();
    assert!(
        mind.contains("\u{430}pi.example.test") && mind.contains("several scripts"),
        "{mind}"
    );
    let touch = question(&kit, "run touch");
    assert!(touch["act"].as_str().unwrap().contains("\\u"), "{touch}");
    let shown = kit.run(&["approve"]);
    for one in waiting(&kit) {
        kit.run(&["approve", "--no", id(&one)]).ok();
    }
    let said = shell.says("all");
    let log = kit.run(&["log", "show"]).ok();
    let last = kit.run(&["last", "-n", "9"]).ok();
    let told = said
        .lines()
        .filter(|line| line.contains("bailiwick"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(told.contains("answered-no"), "{said}");
    for text in [&shown.stdout, &shown.stderr, &log.stdout, &last.stdout, &told] {
        assert_eq!(draws(text), None, "{text:?}");
    }
}

#[test]
fn c047_nothing_of_a_long_command_is_left_out() {
    let kit = Bailiwick::new();
    asking(
        &kit,
        "extends = [\"coding\"]\n[commands]\nask = [\"sh\", \"rm\"]\n[questions]\ndeadline = \"1 h\"\n",
    );
    let mut shell = Talking::begin(&kit);
    shell.line("mkdir -p keep; L=$(for i in $(seq 249); do echo \": line $i\"; done; echo 'rm -r keep'); sh -c \"$L\" & sh -c \"$(printf ': %03972d; rm -r keep' 0)\" & sh -c \"$(printf ': %500s; rm -r keep' '')\" & wait; echo all");
    assert!(until(|| waiting(&kit).len() == 3), "{:?}", waiting(&kit));
    let mut seen = [false; 3];
    for one in waiting(&kit) {
        let details = one["details"].as_array().unwrap();
        let word = details.iter().find(|detail| detail["name"] == "word 2").unwrap();
        let lines: Vec<&str> = word["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        assert!(lines.last().unwrap().ends_with("rm -r keep"), "{lines:?}");
        let place = match lines.len() {
            250 => 0,
            _ if lines[0].len() > 3000 => 1,
            _ => 2,
        };
        seen[place] = true;
        if place == 2 {
            assert!(
                lines[0].contains("\\u{20}×50"),
                "a run of blanks is shown as one: {lines:?}"
            );
        }
        // What it starts is named and counted.
        let starts = details.iter().find(|detail| detail["name"] == "starts");
        let starts = starts.map(|detail| detail["lines"].to_string()).unwrap_or_default();
        assert!(starts.contains("rm"), "{details:#?}");
        kit.run(&["approve", "--no", id(&one)]).ok();
    }
    assert_eq!(seen, [true; 3]);
    shell.says("all");
    assert!(kit.project().join("keep").exists());
}
