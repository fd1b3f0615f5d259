//! Questions answered on the whole screen, and at the terminal of a run: keys sent to a real terminal, a real daemon, a held
//! request.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Done, Origin, finish, skip};
use serde_json::Value;

/// A terminal of 80 columns and 24 rows in which a shell line runs.
struct Terminal<'a> {
    kit: &'a Bailiwick,
    socket: String,
}

impl<'a> Terminal<'a> {
    fn open(kit: &'a Bailiwick, name: &str, line: &str) -> Option<Self> {
        let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            skip("tmux is not there");
            return None;
        }
        let terminal = Self {
            kit,
            socket: kit.outside().join(name).display().to_string(),
        };
        let line = format!("{line}; echo left with $?; sleep 600");
        terminal
            .tmux(&[
                "-u",
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                "80",
                "-y",
                "24",
                &line,
            ])
            .ok();
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Done {
        let mut command = self.kit.outside_command("tmux");
        command
            .env("TERM", "screen")
            .env("LC_ALL", "C.UTF-8")
            .env("SHELL", "/bin/sh");
        command.args(["-S", &self.socket]).args(words);
        finish(command, Duration::from_secs(20))
    }

    fn types(&self, keys: &[&str]) {
        let mut words = vec!["send-keys"];
        words.extend(keys);
        self.tmux(&words).ok();
    }

    fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).ok().stdout
    }

    /// Waits until the screen shows it: the screen then.
    fn until(&self, wanted: &str) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shows();
            let read = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            if read.contains(wanted) {
                return shown;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no `{wanted}` on\n{shown}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A project in which requests to a server are asked about.
fn asking(kit: &Bailiwick, origin: &Origin) {
    let rules = format!(
        "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n",
        origin.port()
    );
    kit.write("bailiwick.toml", &rules);
    kit.run(&["trust"]).ok();
}

/// A request in the fence, in the background.
fn request(kit: &Bailiwick, url: &str) -> std::thread::JoinHandle<Done> {
    let line = format!("curl -s -m 60 -w ' %{{http_code}}' '{url}'");
    let command = kit.command(&["run", "-q", "--", "sh", "-c", &line]);
    std::thread::spawn(move || finish(command, Duration::from_secs(90)))
}

fn questions(kit: &Bailiwick) -> Vec<Value> {
    let listed = kit.run(&["approve", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["waiting"].as_array().unwrap().clone()
}

fn pause() {
    std::thread::sleep(Duration::from_millis(1200));
}

#[test]
fn p8_a_question_comes_up_on_the_screen_and_is_answered_there() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let origin = Origin::start();
        asking(&kit, &origin);
        let approve = format!("'{}' approve", kit.program());
        let Some(screen) = Terminal::open(&kit, "tmux", &approve) else {
            return;
        };
        screen.until("Nothing waits for you.");
        let url = origin.url("/x?q=1");
        let run = request(&kit, &url);
        screen.until(&format!("GET {url}"));
        // Nothing is open: no key in the list is an answer.
        screen.types(&["y"]);
        pause();
        // What is typed ahead, with the question, is none either.
        screen.types(&["Enter", "y"]);
        let shown = screen.until("The request, whole");
        pause();
        assert_eq!(questions(&kit).len(), 1, "{shown}");
        assert!(origin.requests().is_empty());
        screen.types(&["End"]);
        pause();
        screen.types(&["y"]);
        screen.until("yes (grant");
        let done = run.join().unwrap().ok();
        assert!(done.stdout.ends_with(" 200"), "{}", done.stdout);
        assert_eq!(origin.requests().len(), 1);
        // The next asks again; a no with a word.
        let run = request(&kit, &url);
        screen.until(&format!("GET {url}"));
        pause();
        screen.types(&["Enter"]);
        screen.until("The request, whole");
        pause();
        screen.types(&["w"]);
        screen.until("a word to the agent");
        screen.types(&["-l", "use the other host"]);
        screen.until("use the other host");
        pause();
        screen.types(&["Enter"]);
        let done = run.join().unwrap().ok();
        assert!(
            done.stdout.contains("use the other host") && done.stdout.ends_with(" 403"),
            "{}",
            done.stdout
        );
        // More is wanted.
        let run = request(&kit, &url);
        screen.until(&format!("GET {url}"));
        pause();
        screen.types(&["Enter"]);
        screen.until("The request, whole");
        pause();
        screen.types(&["m"]);
        screen.until("What do you want to know?");
        screen.types(&["-l", "what is this for?"]);
        screen.until("what is this for?");
        pause();
        screen.types(&["Enter"]);
        let done = run.join().unwrap().ok();
        assert!(done.stdout.contains("what is this for?"), "{}", done.stdout);
        // A wider yes answers what follows, until it is revoked.
        let run = request(&kit, &url);
        screen.until(&format!("GET {url}"));
        pause();
        screen.types(&["Enter"]);
        screen.until("The request, whole");
        screen.types(&["End"]);
        pause();
        screen.types(&["o"]);
        screen.until("from narrow to wide");
        screen.types(&["Down"]);
        screen.types(&["Enter"]);
        screen.until("how often");
        for key in ["Right", "Right", "Right", "Down", "Right", "Down", "Right"] {
            screen.types(&[key]);
        }
        let shown = screen.until("in this context");
        assert!(shown.contains("UTC"), "{shown}");
        pause();
        screen.types(&["y"]);
        screen.until("yes (grant");
        run.join().unwrap().ok();
        let done = request(&kit, &url).join().unwrap().ok();
        assert!(done.stdout.ends_with(" 200"), "{}", done.stdout);
        screen.types(&["2"]);
        screen.until("used 2 times");
        screen.types(&["r"]);
        screen.until("Revoke grant");
        pause();
        screen.types(&["y"]);
        screen.until("No grant holds.");
        assert!(kit.run(&["grants", "list"]).ok().stdout.contains("nothing is granted"));
        // The terminal is given back.
        screen.types(&["q"]);
        let left = screen.until("left with 0");
        assert!(!left.contains("Bailiwick"), "{left}");
    }
}

#[test]
fn p8_the_screen_is_left_and_taken_again() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    asking(&kit, &origin);
    // A shell with job control, which is what a stopped program comes back to.
    let Some(screen) = Terminal::open(&kit, "tmux", "sh -i") else {
        return;
    };
    screen.types(&["-l", &format!("PS1='here> '; '{}' approve", kit.program())]);
    screen.types(&["Enter"]);
    screen.until("Nothing waits for you.");
    screen.types(&["C-z"]);
    let shell = screen.until("here>");
    assert!(!shell.contains("Nothing waits"), "{shell}");
    screen.types(&["-l", "stty -a | grep -o ' -*echo ' | tr -d ' '; echo echoes"]);
    screen.types(&["Enter"]);
    assert!(
        screen.until("echo echoes here>").contains("\necho\n"),
        "{}",
        screen.shows()
    );
    let run = request(&kit, &origin.url("/"));
    while questions(&kit).is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Typed to the shell, and on to the program: no answer.
    screen.types(&["-l", "fg"]);
    screen.types(&["Enter"]);
    screen.until("GET http://127.0.0.1");
    // The window changes.
    screen.tmux(&["resize-window", "-x", "40", "-y", "10"]).ok();
    screen.until("[Questions 1]");
    pause();
    screen.types(&["Enter"]);
    screen.until("space read on");
    pause();
    screen.types(&["y"]);
    screen.until("read it to its end first");
    screen.tmux(&["resize-window", "-x", "120", "-y", "30"]).ok();
    screen.until("y yes, once");
    pause();
    screen.types(&["n"]);
    let done = run.join().unwrap().ok();
    assert!(done.stdout.ends_with(" 403"), "{}", done.stdout);
    screen.types(&["C-c"]);
    screen.until("here>");
    // Ended from outside, it gives the terminal back as well.
    let line = format!("'{}' approve & p=$!; (sleep 3; kill -TERM $p) & fg %-", kit.program());
    screen.types(&["-l", &line]);
    screen.types(&["Enter"]);
    screen.until("Nothing waits for you.");
    let shell = screen.until("here>");
    assert!(!shell.contains("Nothing waits"), "{shell}");
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_told_what_to_do() {
    let kit = Bailiwick::new();
    let approve = format!("TERM=dumb '{}' approve", kit.program());
    let Some(screen) = Terminal::open(&kit, "tmux", &approve) else {
        return;
    };
    let shown = screen.until("left with 2");
    assert!(
        shown.contains("TERM is `dumb`") && shown.contains("approve --list"),
        "{shown}"
    );
}

#[test]
fn p8_a_question_is_answered_at_the_terminal_of_its_run() {
    let kit = Bailiwick::new();
    let origin = Origin::start();
    asking(&kit, &origin);
    let url = origin.url("/x");
    // The agent writes all the while, and tries to draw over the question.
    let agent = format!(
        "(while sleep 0.1; do printf \"\\033[2J\\033[Hnothing to see\\n\"; done) & code=$(curl -s -m 60 -o /dev/null -w \"%{{http_code}}\" {url}); kill $!; wait; echo \"came to $code\""
    );
    let line = format!("'{}' run -q -- sh -c '{agent}' < /dev/null", kit.program());
    for (place, (word, code)) in [("yes", "200"), ("no: not that host", "403"), ("more: why?", "403")]
        .iter()
        .enumerate()
    {
        let before = origin.requests().len();
        let Some(screen) = Terminal::open(&kit, &format!("tmux-{place}"), &line) else {
            return;
        };
        // What is typed before the question stands there is thrown away, also the beginning of a line.
        screen.types(&["-l", "yes"]);
        screen.types(&["Enter"]);
        screen.types(&["-l", "ye"]);
        screen.until("type `yes`, `no`");
        std::thread::sleep(Duration::from_millis(800));
        let shown = screen.shows();
        assert!(
            shown.contains(&format!("yes says: the agent may send GET {url}")),
            "{shown}"
        );
        assert_eq!(questions(&kit).len(), 1, "{shown}");
        screen.types(&["-l", "s"]);
        screen.types(&["Enter"]);
        screen.until("type `yes`, `no`, `no: WORD` or `more: WHAT`");
        assert_eq!(origin.requests().len(), before);
        screen.types(&["-l", word]);
        screen.types(&["Enter"]);
        screen.until(&format!("came to {code}"));
        assert_eq!(origin.requests().len() - before, usize::from(*code == "200"));
        screen.until("left with");
    }
    // Answered elsewhere meanwhile.
    let Some(screen) = Terminal::open(&kit, "tmux", &line) else {
        return;
    };
    screen.until("type `yes`, `no`");
    let id = questions(&kit)[0]["id"].as_str().unwrap().to_owned();
    kit.run(&["approve", &id, "--no"]).ok();
    screen.until("came to 403");
}

#[test]
fn c047_c048_a_command_is_there_to_its_end_and_draws_nothing() {
    let kit = Bailiwick::new();
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[commands]\nask = [\"touch\"]\n",
    );
    kit.run(&["trust"]).ok();
    let program = kit.program();
    let Some(screen) = Terminal::open(&kit, "tmux", &format!("'{program}' approve")) else {
        return;
    };
    let bytes = kit.outside().join("bytes");
    screen
        .tmux(&["pipe-pane", "-o", &format!("cat > '{}'", bytes.display())])
        .ok();
    screen.until("Nothing waits for you.");
    // A word that would clear, move, link, copy, turn and hide, and ends far below.
    let hostile = "a\\033[2K\\033[1Aok\\033]8;;http://evil.test\\007x\\033]8;;\\007\\033]52;c;aGk=\\007\\rls\\342\\200\\256b\\342\\200\\213c";
    let line = format!(
        "printf '{hostile}' > word; i=0; while [ $i -lt 250 ]; do echo \"line $i\" >> word; i=$((i+1)); done; \
         printf 'true%500s; rm -r keep' '' >> word; /usr/bin/touch -- \"$(cat word)\"; echo came to $?"
    );
    let command = kit.command(&["run", "-q", "--", "sh", "-c", &line]);
    let run = std::thread::spawn(move || finish(command, Duration::from_secs(120)));
    screen.until("touch --");
    pause();
    screen.types(&["Enter"]);
    screen.until("characters: the whole");
    pause();
    screen.types(&["y"]);
    screen.until("read it to its end first");
    let mut seen = String::new();
    let begun = Instant::now();
    while !seen.contains(" end\n") {
        seen.push_str(&screen.shows());
        screen.types(&["Space"]);
        std::thread::sleep(Duration::from_millis(100));
        seen.push_str(&screen.shows());
        assert!(begun.elapsed() < Duration::from_secs(60), "{seen}");
    }
    for number in 0..250 {
        assert!(
            seen.contains(&format!("line {number}")),
            "line {number} was not to be seen"
        );
    }
    assert!(seen.contains("\\u{20}×500") && seen.contains("; rm -r keep"), "{seen}");
    for hidden in ["\\u{1b}]52;c;aGk=\\u{7}", "\\rls", "\\u{202e}b", "\\u{200b}c"] {
        let squeezed: String = seen.split(|c: char| c.is_whitespace() || c == '┊').collect();
        assert!(squeezed.contains(hidden), "{hidden} is not to be seen");
    }
    let listed = kit.run(&["approve", "--list"]).status_is(4).stdout;
    screen.types(&["n"]);
    pause();
    screen.types(&["n"]);
    let done = run.join().unwrap();
    let told = [
        listed,
        done.stderr,
        kit.run(&["log", "show"]).ok().stdout,
        kit.run(&["last"]).stdout,
    ];
    for text in told {
        let drawn = text.chars().find(|c| c.is_control() && *c != '\n');
        assert!(drawn.is_none(), "{drawn:?} in {text:?}");
    }
    screen.types(&["q"]);
    screen.until("left with 0");
    // Of what went to the terminal every escape is one of this program's own.
    let written = String::from_utf8_lossy(&std::fs::read(&bytes).unwrap()).into_owned();
    for foreign in [
        "\u{1b}[2K",
        "\u{1b}[1A",
        "\u{1b}]8",
        "\u{1b}]52",
        "\u{202e}",
        "\u{200b}",
        "\u{7}",
    ] {
        assert!(!written.contains(foreign), "{foreign:?} went to the terminal");
    }
    assert!(written.len() > 10_000, "{} bytes", written.len());
}
