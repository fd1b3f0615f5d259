//! What a task has read, and where it may go then: requests and commands of a real task.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use bailiwick_testkit::{Answer, Heard, Origin, kits};

#[track_caller]
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn path_of(heard: &Heard) -> &str {
    let at = heard
        .target
        .find("://")
        .and_then(|at| heard.target[at + 3..].find('/').map(|slash| at + 3 + slash));
    &heard.target[at.unwrap_or(0)..]
}

const SCRIPT: &str = r#"
try() { what=$1; shift; echo "$what $(curl -s -m 20 -w ' %{http_code}' "$@")" >> said; }
try before -d x URL/out/1
(curl -sN URL/out/slow > slow; echo "slow ended $?" >> said) &
(sleep 1000; echo "outside ended $?" >> said) &
until [ -s slow ]; do sleep 0.05; done
touch begun
until [ -e go ]; do sleep 0.05; done
try private URL/private/x
touch read
wait
until [ -e seen ]; do sleep 0.05; done
try post -d x URL/out/2
try get URL/out/3
try vault -d x URL/vault/x
try again URL/private/x
sleep 1
echo "outside refused $?" >> said
"#;

#[test]
fn p6_what_a_task_has_read_goes_only_where_it_may_and_what_is_open_is_cut_off() {
    for kit in kits() {
        let origin = Origin::answering(|heard| match path_of(heard) {
            "/out/slow" => Answer::events(vec![(Duration::from_millis(20), b"data: x\n\n".to_vec()); 1500]),
            path => Answer::text(200, format!("ok {path}")),
        });
        let url = format!("http://127.0.0.1:{}", origin.port());
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"* {url}/**\"]\n[[broker]]\nrun = \"sleep *\"\n\
                 [tag.private]\non = [\"GET {url}/private/**\"]\nmay_reach = [\"POST {url}/vault/**\"]\n"
            ),
        );
        kit.run(&["trust"]).ok();
        kit.write("try.sh", &SCRIPT.replace("URL", &url));
        let mut command = kit.command(&["run", "-q", "--no-ask", "--", "bash", "try.sh"]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        until("it begins", || kit.project().join("begun").exists());
        let runs = || kit.run(&["status"]).ok().stdout;
        until("the command runs outside", || runs().contains("sleep 1000"));
        assert!(!runs().contains("has read"), "{}", runs());
        kit.write("go", "");
        until("it has read", || kit.project().join("read").exists());
        let begun = Instant::now();
        let said = || std::fs::read_to_string(kit.project().join("said")).unwrap();
        until("what is open is cut off", || {
            said().contains("slow ended") && said().contains("outside ended")
        });
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let status = runs();
        kit.write("seen", "");
        let done = child.wait_with_output().unwrap();
        let said = said();
        assert!(done.status.success(), "{said}");
        let line = |what: &str| said.lines().find(|line| line.starts_with(what)).unwrap_or(&said);
        assert_eq!(line("before "), "before ok /out/1 200");
        assert_eq!(line("private "), "private ok /private/x 200");
        assert_eq!(line("vault "), "vault ok /vault/x 200");
        for what in ["post ", "get ", "again "] {
            let line = line(what);
            assert!(line.contains("flow-refused"), "{line}");
        }
        assert_ne!(line("slow ended"), "slow ended 0", "{said}");
        assert_ne!(line("outside ended"), "outside ended 0", "{said}");
        assert_ne!(line("outside refused"), "outside refused 0", "{said}");
        let heard: Vec<String> = origin
            .requests()
            .iter()
            .map(|heard| path_of(heard).to_owned())
            .collect();
        assert!(
            !heard.iter().any(|path| path == "/out/2" || path == "/out/3"),
            "{heard:?}"
        );
        assert!(
            status.contains(&format!("has read what is tagged `private` (GET {url}/private/x, ")),
            "{status}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("has read what is tagged private ("), "{log}");
        let refused = log
            .lines()
            .find(|line| line.contains("deny POST") && line.contains("/out/2"))
            .unwrap();
        let id = refused.rsplit(", ").next().unwrap().trim_end_matches(')');
        let why = kit.run(&["explain", id]).stdout;
        assert!(
            why.contains("this task has read what is tagged `private`") && why.contains("`may_reach` of `tag private`"),
            "{why}"
        );
    }
}

#[test]
fn p6_a_task_carries_the_tags_of_its_trees_from_its_start() {
    for kit in kits() {
        let origin = Origin::start();
        let url = format!("http://127.0.0.1:{}", origin.port());
        kit.write_home("hr/people.txt", "Ann earns 98765432\n");
        let rules = |files: &str| {
            format!(
                "extends = [\"coding\"]\n[files]\nread = [{files}]\n[network]\nallow = [\"* {url}/**\"]\n\
                 [tag.hr]\non = [\"read ~/hr/*.txt\"]\nmay_reach = [\"POST {url}/payroll\"]\n"
            )
        };
        let send = |to: &str| {
            let line = format!(
                "tar c {}/hr 2>/dev/null | gzip | curl -s -w ' %{{http_code}}' --data-binary @- {url}/{to}",
                kit.home().display()
            );
            kit.run(&["run", "--no-ask", "--", "bash", "-c", &line]).ok()
        };
        kit.write("bailiwick.toml", &rules("\"~/hr\""));
        kit.run(&["trust"]).ok();
        let out = send("out");
        assert!(
            out.stdout.contains("flow-refused") && out.stdout.ends_with(" 403"),
            "{}",
            out.stdout
        );
        // Wherever its lines end.
        let told = |said: &str| said.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = told(&out.stderr);
        assert!(said.contains("what it may read is tagged `hr` (read "), "{said}");
        assert!(said.contains("pass on what is tagged hr, but by POST http"), "{said}");
        assert_eq!(send("payroll").stdout, "ok 200");
        // One that may not read it carries nothing.
        kit.write("bailiwick.toml", &rules(""));
        kit.run(&["trust"]).ok();
        let out = send("out");
        assert_eq!(out.stdout, "ok 200");
        let said = told(&out.stderr);
        assert!(!said.contains("what it may read is tagged"), "{said}");
    }
}
